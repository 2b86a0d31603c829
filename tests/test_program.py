"""The program in one named order: bit by bit the one that scalars of the format compute; and what that falsifies."""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from random import Random

import graphs
import numpy as np
import pytest
from test_deployed import TYPES
from test_graph_deployed import Program as Simulated
from test_graph_deployed import Way

from intervalcert import InputError, Network, certify_inputs
from intervalcert.errors import UndecidedError
from intervalcert.model.layers import INPUT, Term
from intervalcert.model.linear_maps import Convolution, Dense
from intervalcert.model.windows import Window
from intervalcert.numbers.float_formats import FORMATS, get_format
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.proof import program as module
from intervalcert.proof.program import FloatCounterexample, Program, check_float_counterexample
from intervalcert.verify.deployed import as_deployed

IN_ORDER = Way(by_branch=False, tree="forward", mean="divide", bias="last")


def deployed(seed, form):
    """A graph of layers as that format has it, or None if it has none."""
    try:
        return as_deployed(graphs.graph(seed), form)
    except InputError:
        return None


@pytest.mark.parametrize("name", FORMATS)
def test_it_computes_what_scalars_of_the_format_do(name):
    form, met = get_format(name), set()
    for seed in range(60):
        network = deployed(seed, form)
        if network is None or TYPES.get(name) is None:
            continue
        rng = np.random.default_rng(seed)
        inputs = form.nearest(rng.normal(size=(network.inputs, 3)) * 2.0 ** rng.integers(-3, 3))
        simulated = Simulated(network, name).run(inputs, IN_ORDER)[len(network.layers) - 1].astype(np.float64)
        found = Program(network, form).logits(inputs)
        assert np.array_equal(found, simulated), seed
        met |= {type(term.map).__name__ for layer in network.layers for term in layer.terms}
        met |= {type(layer.activation).__name__ for layer in network.layers}
    assert met >= {"Dense", "Convolution", "IndexMap", "Sorting", "MaxPool", "LeakyReLU"}


@pytest.mark.parametrize("name", FORMATS)
def test_means_are_sums_that_are_divided(name):
    form, rng = get_format(name), np.random.default_rng(1)
    if TYPES.get(name) is None:
        pytest.skip("a format without scalars here")
    window = Window((4, 5), (2, 3), (3, 3))
    mean = Convolution(RationalMatrix.filled((2, 9), Fraction(1, 9)), 2, window, groups=2, is_mean=True)
    head = Dense(RationalMatrix.from_floats(form.nearest(rng.normal(size=(3, 12)))), (2, 2, 3))
    bias = RationalMatrix.from_floats(form.nearest(rng.normal(size=(12, 1))))
    network = Network.of_terms([(Term(INPUT, mean),), (Term(0, head),)], [bias, None])
    network = as_deployed(network, form)
    for size in (1.0, 1e3):
        inputs = form.nearest(rng.normal(size=(40, 7)) * size)
        simulated = Simulated(network, name).run(inputs, IN_ORDER)[1].astype(np.float64)
        assert np.array_equal(Program(network, form).logits(inputs), simulated)
    if form.bits < 53:
        with pytest.raises(UndecidedError, match="subnormal"):
            Program(network, form).logits(np.eye(40)[:, :1] * 2.0 ** (form.emin + 1))


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32"])
def test_rounding_by_way_of_float64_is_rounding_once(name):
    """Sums, and products, also where they are subnormal, against exact rationals."""
    form, random = get_format(name), Random(1)

    def number():
        scale = random.choice([0, 0, -form.bits, form.emin // 2, form.emin, form.emin - form.bits // 2])
        x = random.randint(-(2**form.bits), 2**form.bits) * Fraction(2) ** (scale - form.bits)
        return float(form.rounded(RationalMatrix.from_fractions([[x]]), "x")[0, 0])

    for _ in range(4000):
        x, y = number(), number()
        for exact, floats in ((Fraction(x) * Fraction(y), x * y), (Fraction(x) + Fraction(y), x + y)):
            once = form.rounded(RationalMatrix.from_fractions([[exact]]), "x")[0, 0]
            assert Fraction(float(form.nearest(np.array([floats]))[0])) == once


def test_what_is_no_input_of_the_program_is_refused():
    network = Network.from_arrays([np.eye(2)])
    form = get_format("float16")
    program = Program(network, form)
    assert program.logits(np.ones((2, 1))).tolist() == [[1.0], [1.0]]
    for inputs in (
        np.full((2, 1), 1 + 2.0**-20),
        np.full((2, 1), np.nan),
        np.full((2, 1), 1e6),
        np.ones((3, 1)),
        np.ones(2),
        np.ones((2, 1), dtype=np.float32),
    ):
        with pytest.raises(UndecidedError):
            program.logits(inputs)
    with pytest.raises(UndecidedError):  # overflows
        Program(Network.from_arrays([np.full((2, 2), 60000.0)]), form).logits(np.ones((2, 1)))


def refused(found, x, eps, program):
    try:
        check_float_counterexample(found, RationalMatrix.from_fractions([[a] for a in x]), Fraction(eps), program)
    except UndecidedError:
        return True
    return False


def test_a_counterexample_is_checked_in_every_part():
    program = Program(Network.from_arrays([np.eye(2)]), get_format("float32"))
    x, unit = (Fraction(1), Fraction(1, 3)), 2.0**-24
    third = float(np.float32(1 / 3))
    good = FloatCounterexample(np.array([1.0, third]), np.array([0.625, 0.625]), 0, 1)
    apart = (Fraction(3, 8) ** 2 + (Fraction(5, 8) - Fraction(1, 3)) ** 2) ** Fraction(1, 2)
    assert not refused(good, x, "0.5", program), "a tie"
    assert refused(good, x, Fraction(apart) - Fraction(1, 2**30), program), "outside of the ball by 2^-30"
    assert refused(replace(good, winner=1, other=0), x, "0.5", program)
    for winner, other in ((0, 0), (0, 2), (2, 1), (-2, 1)):
        assert refused(replace(good, winner=winner, other=other), x, "0.5", program)
    assert refused(replace(good, changed=np.array([0.625, 0.625 - unit])), x, "0.5", program), "not quite"
    assert refused(replace(good, near=np.array([1.0, 1 / 3])), x, "0.5", program), "no number of the format"
    assert refused(replace(good, near=np.array([1.75, third])), x, "0.5", program), "far from x"
    assert refused(replace(good, order="backward"), x, "0.5", program)
    assert refused(replace(good, changed=np.array([0.625])), x, "0.5", program)
    assert refused(good, (*x, x[0]), "0.5", program)


def test_its_distances_are_exact(monkeypatch):
    """A control: by float distances what is outside by a hair would do."""
    program = Program(Network.from_arrays([np.eye(2)]), get_format("float32"))
    found = FloatCounterexample(np.array([1.0, 0.0]), np.array([0.5, 0.5]), 0, 1)
    root = Fraction(70710678118654752439, 10**20)  # below sqrt(1/2)
    assert refused(found, (Fraction(1), Fraction(0)), root, program)
    assert not refused(found, (Fraction(1), Fraction(0)), root + Fraction(1, 10**19), program)
    monkeypatch.setattr(module, "distance_squared", lambda u, x: Fraction(0) * len(u) * x.shape[0])
    assert not refused(found, (Fraction(1), Fraction(0)), root, program)


# -- all of it -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["float32", "float16", "float64", "bfloat16"])
def test_points_of_a_program_are_decided_rightly(name):
    """Falsified: by the scalars, too. Certified: no attack on the scalars finds anything."""
    form, statuses = get_format(name), {"certified": 0, "falsified": 0, "unknown": 0}
    for seed in range(4):
        rng = np.random.default_rng(seed)
        sizes = (3, 6, 5, 3)
        arrays = [form.nearest(rng.normal(size=(b, a))) for a, b in pairwise(sizes)]
        network = as_deployed(Network.from_arrays(arrays, [form.nearest(rng.normal(size=b)) for b in sizes[1:]]), form)
        inputs, eps = rng.normal(size=(12, 3)), rng.choice([0.0625, 0.25, 0.5])
        found = certify_inputs(network, inputs, eps, complete=True, deployed=name)
        simulated = Simulated(network, name)
        for k, verdict in enumerate(found):
            statuses[verdict.status] += 1
            if verdict.status == "falsified":
                each = verdict.counterexample
                both = np.stack([each.near, each.changed], axis=1)
                here, there = simulated.run(both, IN_ORDER)[2].T
                assert int(np.argmax(here)) == each.winner == verdict.argmax
                assert there[each.other] >= there[each.winner]
                assert (np.linalg.norm(both - inputs[k][:, None], axis=0) <= eps).all()
            elif verdict.status == "certified":
                steps = rng.normal(size=(3, 300))
                around = form.nearest(inputs[k][:, None] + 0.99 * eps * steps / np.linalg.norm(steps, axis=0))
                around = around[:, np.linalg.norm(around - inputs[k][:, None], axis=0) <= eps]
                assert (np.argmax(simulated.run(around, IN_ORDER)[2], axis=0) == verdict.argmax).all()
    assert statuses["falsified"] > 3
    assert statuses["certified"] > (0 if name == "bfloat16" else 5)


def test_a_program_that_ties_at_the_input_is_falsified():
    twice = Network.from_arrays([np.eye(2), np.array([[1.0, 0.0], [1.0, 0.0]])])
    (found,) = certify_inputs(twice, np.array([[0.5, 0.25]]), "0", complete=True, deployed="float32")
    assert (found.status, found.argmax, found.method, found.semantics) == ("falsified", 0, "attack", "float32")
    assert (found.counterexample.near == found.counterexample.changed).all()
