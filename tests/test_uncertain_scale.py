"""Factors that are only known to lie between two numbers (the roots of batch normalisation): what is proved must hold
for every choice of them. Here they lie in [1/2, 1], which shows what [1 - 2^-127, 1] would hide.
"""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from intervalcert import (
    InputError,
    Network,
    UsageError,
    audit,
    certify_inputs,
    compute_bounds,
    evaluate,
    load_model,
    save_model,
)
from intervalcert.backends.registry import backend_names, get_backend
from intervalcert.errors import InconclusiveError
from intervalcert.model.activations import activation
from intervalcert.model.evaluation import Evaluator, PointEvaluator
from intervalcert.model.layers import Layer, UncertainScale
from intervalcert.model.normalisation import FACTOR_LEAST, Normalisation, short_factors
from intervalcert.numbers.float_formats import get_format
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.proof.sectors import holds_sector
from intervalcert.search.sectors import sector_around
from intervalcert.verify.deployed import as_deployed

HALF = Fraction(1, 2)
FUNCTIONS = {
    "relu": lambda x: max(x, 0),
    "identity": lambda x: x,
    "leaky_relu:1/2": lambda x: x if x > 0 else x / 2,
    "leaky_relu:-1/2": lambda x: x if x > 0 else -x / 2,
    "hard_tanh": lambda x: max(-1, min(1, x)),
    "clip:1/4:2": lambda x: max(Fraction(1, 4), min(2, x)),
}


def matrix(random, rows, columns):
    return RationalMatrix.from_fractions(
        [[Fraction(random.randint(-16, 16), 8) for _ in range(columns)] for _ in range(rows)]
    )


def random_network(random, names=tuple(FUNCTIONS)):
    """Of two or three layers, every hidden one with factors before its bias, after its activation, or both.

    Often after a normalisation with factors of its own, in either space.
    """
    widths = [random.randint(1, 3) for _ in range(random.randint(2, 3))] + [random.randint(2, 3)]
    layers = []
    for index, (inputs, outputs) in enumerate(pairwise(widths)):
        last = index == len(widths) - 2

        def column(outputs=outputs):
            return random.choice([None, matrix(random, outputs, 1)])

        uncertain = [UncertainScale(column(), HALF), None] if not last else [None, None]
        random.shuffle(uncertain)
        if not last and random.random() < 0.3:
            uncertain = [UncertainScale(column(), HALF), UncertainScale(column(), HALF)]
        made = Network.of([matrix(random, 2, 2), matrix(random, 2, 2)], between=random.choice(names))
        layers.append(
            Layer.dense(
                len(layers) - 1,
                matrix(random, outputs, inputs),
                column(),
                None if last else made.layers[0].activation,
                *uncertain,
            )
        )
    network = Network(tuple(layers), made.sources)
    return entered(random, network) if random.random() < 0.6 else network


def entered(random, network):
    """After a normalisation."""
    factor = RationalMatrix.from_fractions(
        [[random.choice([1, -1]) * Fraction(random.randint(1, 16), 8)] for _ in range(network.inputs)]
    )
    normalisation = Normalisation(matrix(random, network.inputs, 1), factor, HALF)
    made = replace(network, normalisation=normalisation, eps_space="normalised")
    return made.measured_in(random.choice(["input", "normalised"]))


def factors(random, network):
    """One number per entry, often an end: for the entrance, then for each uncertain of each layer."""

    def some(count):
        return [random.choice([HALF, Fraction(1), Fraction(random.randint(8, 16), 16)]) for _ in range(count)]

    rows = [layer.weights.shape[0] for layer in network.layers]
    return [some(network.inputs), *([some(count), some(count)] for count in rows)]


def shrunk(value, by, factor):
    if by is None:
        return value
    offset = [0] * len(value) if by.offset is None else [by.offset[i, 0] for i in range(len(value))]
    return [c * (x + y) for c, x, y in zip(factor, value, offset, strict=True)]


def first_values(network, factor, x, step):
    """What the first layer gets of the input x, with a step in the space where distances are measured."""
    normalisation, value = network.normalisation, list(x)
    if normalisation is not None:
        if network.eps_space == "input":
            value = [v + s for v, s in zip(value, step, strict=True)]
        value = [c * (v - normalisation.mean[i, 0]) for i, (c, v) in enumerate(zip(factor, value, strict=True))]
        if network.eps_space == "input":
            return value  # the factors 1/std are in the layer
        value = [v * normalisation.factor[i, 0] for i, v in enumerate(value)]
    return [v + s for v, s in zip(value, step, strict=True)]


def inner_values(network, chosen, x, step=None):
    """W·x + b of each layer, with these factors."""
    found, value = [], first_values(network, chosen[0], x, step or [0] * len(x))
    for layer, (before, after) in zip(network.layers, chosen[1:], strict=True):
        rows, columns = layer.weights.shape
        value = [sum(layer.weights[i, j] * value[j] for j in range(columns)) for i in range(rows)]
        value = shrunk(value, layer.before, before)
        value = [z + (0 if layer.bias is None else layer.bias[i, 0]) for i, z in enumerate(value)]
        found.append(value)
        if layer.activation is not None:
            value = shrunk([FUNCTIONS[layer.activation.name](z) for z in value], layer.after, after)
    return found


def point(random, count):
    return [Fraction(random.randint(-24, 24), 8) for _ in range(count)]


def steepest_excess(network, margins, random, tries=60):
    """How much the square of a lead's change exceeds what the margins allow; over factors and pairs of inputs."""
    worst = None
    for _ in range(tries):
        chosen, x, step = factors(random, network), point(random, network.inputs), point(random, network.inputs)
        distance = sum(s**2 for s in step)
        y, z = (inner_values(network, chosen, x, s)[-1] for s in (None, step))
        for i in range(network.outputs):
            for j in range(i):
                change = (y[j] - y[i]) - (z[j] - z[i])
                excess = change**2 - margins[i][j] ** 2 * distance
                worst = excess if worst is None else max(worst, excess)
    return worst


@pytest.mark.parametrize("backend", backend_names())
@given(seed=st.integers(0, 10**6))
def test_margins_hold_for_all_factors(backend, seed):
    random = Random(seed)
    network = random_network(random)
    for margins in ("product", "chain", "best"):
        found = compute_bounds(network, backend, margins=margins)
        assert steepest_excess(network, found.margins.matrix, random, 20) <= 0, (seed, margins)


def cancelling():
    """Two entries that cancel, but only if nothing comes between: the leads are (c1 - c2)·x + 1/4."""
    weights = [RationalMatrix.from_integers(rows) for rows in ([[1], [1]], [[1, -1], [0, 0]])]
    made = Network.of(weights, [None, RationalMatrix.from_fractions([[HALF / 2], [Fraction(0)]])], between="identity")
    return replace(made, layers=(replace(made.layers[0], before=UncertainScale(None, HALF)), made.layers[1]))


def test_a_chain_that_forgets_the_factors_is_caught(monkeypatch):
    """The negative control of the test before."""
    network = cancelling()
    right = compute_bounds(network, "exact", margins="chain").margins.matrix
    assert steepest_excess(network, right, Random(0)) <= 0
    monkeypatch.setattr(Layer, "least_factor", Fraction(1))
    wrong = compute_bounds(network, "exact", margins="chain").margins.matrix
    assert steepest_excess(network, wrong, Random(0)) > 0


@pytest.mark.parametrize("backend", [name for name in backend_names() if name != "exact"])
@given(seed=st.integers(0, 10**6))
def test_the_forward_pass_encloses_all_factors(backend, seed):
    random = Random(seed)
    network = random_network(random)
    x = point(random, network.inputs)
    norms = [bound.upper for bound in compute_bounds(network, "float64").layers]
    column = network.entered(RationalMatrix.from_fractions([[value] for value in x]))
    found = Evaluator(network, norms, get_backend(backend)).before_activations(column)
    ends = [value.float_bounds() for value in found]
    for _ in range(10):
        for (low, high), values in zip(ends, inner_values(network, factors(random, network), x), strict=True):
            for k, value in enumerate(values):
                assert Fraction(low[k, 0]) <= value <= Fraction(high[k, 0]), (seed, k)


@given(seed=st.integers(0, 10**6))
def test_a_point_that_is_followed_encloses_all_factors(seed):
    random = Random(seed)
    network = random_network(random)
    x = point(random, network.inputs)
    norms = [bound.upper for bound in compute_bounds(network, "float64").layers]
    column = network.entered(RationalMatrix.from_fractions([[value] for value in x]))
    found = PointEvaluator(network, norms, get_backend("exact")).at(column)
    for _ in range(10):
        for near, values in zip(found, inner_values(network, factors(random, network), x), strict=True):
            centre = [Fraction(n, near.value.denominator) for n in near.value.numerators[:, 0].tolist()]
            assert sum((a - b) ** 2 for a, b in zip(centre, values, strict=True)) <= near.error**2, seed


@pytest.mark.parametrize("make", [lambda: random_network(Random(1)), lambda: normalised_by_halves("input")])
def test_exact_rationals_hold_no_unknown_factor(make):
    network = make()
    with pytest.raises(UsageError, match="roots"):
        evaluate(network, [[0.0] * network.inputs], backend="exact")
    column = RationalMatrix.from_integers([[1]] * network.inputs)
    with pytest.raises(InconclusiveError):
        Evaluator(network, [Fraction(99)] * len(network.layers), get_backend("exact")).before_activations(column)


@pytest.mark.parametrize("local", [False, True])
def test_no_certified_input_flips_for_any_factors(local):
    """At radii around the certified ones, with corners of the box of factors and steps in many directions."""
    certified = 0
    for seed in range(60):
        random = Random(seed)
        network = random_network(random)
        x, eps = point(random, network.inputs), Fraction(random.randint(1, 8), 16)
        verdict = certify_inputs(network, [x], eps, local=local, scale=1)[0]
        if not verdict.certified:
            continue
        certified += 1
        for _ in range(80):
            chosen, step = factors(random, network), point(random, network.inputs)
            size = sum(s * s for s in step)
            if not size:
                continue
            length = eps / Fraction(float(size) ** 0.5 * (1 + 1e-12))
            assert length**2 * size <= eps**2
            y = inner_values(network, chosen, x, [length * b for b in step])[-1]
            assert all(y[verdict.argmax] > y[i] for i in range(len(y)) if i != verdict.argmax), seed
    assert certified >= 8


@pytest.mark.parametrize("z", [-5.0, 0.0, 5.0])
@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "relu"])
def test_sectors_hold_all_factors(name, z):
    """Quotients between sampled values, times factors; and the sector that is guessed is proved."""
    function = activation(name).piecewise_linear
    low, reach = np.array([z]), np.array([1.0])
    sector = sector_around(function, low, low, reach, HALF)
    assert holds_sector(function, low, low, reach, sector, HALF)
    ends = [Fraction(float(sector.middle[0])) + side * Fraction(float(sector.spread[0])) for side in (-1, 1)]
    quotients = [
        (FUNCTIONS[name](z + d) - FUNCTIONS[name](Fraction(z))) / d for d in (Fraction(k, 8) for k in (-8, -1, 1, 8))
    ]
    for quotient in quotients:
        for factor in (HALF, 1):
            assert ends[0] <= factor * quotient <= ends[1]
    nearly = sector_around(function, low, low, reach, FACTOR_LEAST)  # integers beyond a machine word
    assert holds_sector(function, low, low, reach, nearly, FACTOR_LEAST)
    narrow = sector_around(function, low, low, reach)
    assert holds_sector(function, low, low, reach, narrow)
    if any(quotients) and len(set(quotients)) == 1:  # the neuron does not change: only the factors make a sector
        assert not holds_sector(function, low, low, reach, narrow, HALF)


def test_local_refinement_knows_the_factors(monkeypatch):
    """At x = 0 and eps = 1 the factors 1/2 and 1 flip the answer. Without them nothing would ever change."""
    network = cancelling()
    assert inner_values(network, [[], [[HALF, 1], []], [[], []]], [1])[-1] == [-HALF / 2, 0]
    assert not certify_inputs(network, [[0.0]], 1, local=True)[0].certified
    assert certify_inputs(network, [[0.0]], "0.12", local=True)[0].certified
    monkeypatch.setattr(Layer, "least_factor", Fraction(1))
    assert certify_inputs(network, [[0.0]], 1, local=True)[0].certified


def test_local_refinement_works_behind_trained_batch_normalisation():
    """Factors known to 2^-127 cost nothing: as many points are certified at the input itself as without them."""
    rng = np.random.default_rng(5)
    weights, inputs = [rng.normal(size=shape) for shape in ((6, 4), (6, 6), (3, 6))], rng.normal(size=(40, 4))
    plain = Network.from_arrays(weights)
    hidden = [replace(layer, after=UncertainScale(None, FACTOR_LEAST)) for layer in plain.layers[:-1]]
    behind = replace(plain, layers=(*hidden, plain.layers[-1]))
    found = [certify_inputs(network, inputs, "0.15", local=True) for network in (plain, behind)]
    assert found[0].locally.sum() > 3
    assert (found[0].locally == found[1].locally).all()
    assert not found[1].fault.any()


def normalised_by_halves(space, mean=1):
    """The first entry of a point wins; it is in [1/2, 1] times 3·(x - mean) before that."""
    columns = [RationalMatrix.from_integers([[x]] * 2) for x in (mean, 3)]
    network = replace(
        Network.from_arrays([np.eye(2)]), normalisation=Normalisation(*columns, HALF), eps_space="normalised"
    )
    return network.measured_in(space)


@pytest.mark.parametrize("backend", [name for name in backend_names() if name != "exact"])
@pytest.mark.parametrize("space", ["input", "normalised"])
def test_what_enters_is_enclosed(space, backend):
    found = evaluate(normalised_by_halves(space), [[3.0, 0.0]], backend=backend, scale=1)
    assert (found.lower[-1] <= [[3, -3]]).all()
    assert (found.upper[-1] >= [[6, -1.5]]).all()
    if backend != "float64":  # its balls are of whole columns
        assert np.allclose(found.lower[-1], [[3, -3]])
        assert np.allclose(found.upper[-1], [[6, -1.5]])


@pytest.mark.parametrize("local", [False, True])
def test_where_a_distance_is_measured_around_what_is_not_known(local):
    """The two entries are at least 3 + 3/2 apart: 9/4·sqrt(2) after the normalisation, a third of that before it."""
    radius = 2.25 * 2**0.5
    for space, most in (("normalised", radius), ("input", radius / 3)):
        network = normalised_by_halves(space)
        assert certify_inputs(network, [[3.0, 0.0]], most * (1 - 1e-7), local=local, scale=1)[0].certified
        assert not certify_inputs(network, [[3.0, 0.0]], most * (1 + 1e-7), local=local, scale=1)[0].certified


@pytest.mark.parametrize("space", ["input", "normalised"])
def test_local_refinement_finds_as_much_behind_factors_that_are_nearly_known(space):
    """Its search starts at what enters the first layer: here far from the input, because of the mean."""
    rng = np.random.default_rng(3)
    weights, inputs = [rng.normal(size=shape) for shape in ((6, 4), (6, 6), (3, 6))], 50 + rng.normal(size=(40, 4))
    exactly = Network.from_arrays(weights, mean=50, std=2, eps_space="normalised")
    nearly = replace(exactly, normalisation=replace(exactly.normalisation, least=FACTOR_LEAST))
    found = [
        [verdict.locally for verdict in certify_inputs(network.measured_in(space), inputs, "0.1", local=True)]
        for network in (exactly, nearly)
    ]
    assert found[0] == found[1]
    assert any(found[0])


def test_the_hash_sees_what_enters():
    made = normalised_by_halves("input")
    networks = [
        made,
        normalised_by_halves("normalised"),
        normalised_by_halves("input", mean=2),
        Network.from_arrays([3 * np.eye(2)]),
        Network.from_arrays([np.eye(2)], mean=1, std="1/3"),
        replace(made, normalisation=replace(made.normalisation, least=Fraction(1, 3))),
    ]
    assert len({network.content for network in networks}) == len(networks)


@pytest.mark.parametrize("space", ["input", "normalised"])
def test_a_network_with_unknown_factors_is_written_and_read(tmp_path, space):
    """What is left to be done before the first layer is written with it."""
    network = normalised_by_halves(space)
    save_model(network, tmp_path / "m.npz")
    again = load_model(tmp_path / "m.npz", eps_space=space)
    assert again.content == network.content
    assert again.uncertain_input_scale is not None
    save_model(again, tmp_path / "n.npz")
    assert load_model(tmp_path / "n.npz", eps_space=space).content == network.content


def test_what_was_written_in_the_input_space_has_no_other(tmp_path):
    """Its factors are in the first layer: what is before that is not the normalised space."""
    save_model(normalised_by_halves("input"), tmp_path / "m.npz")
    with pytest.raises(InputError, match="first layer already"):
        load_model(tmp_path / "m.npz", eps_space="normalised")


@pytest.mark.parametrize("network", [cancelling(), normalised_by_halves("input"), normalised_by_halves("normalised")])
def test_unknown_factors_are_not_deployed(network):
    """Whatever a file says of what was folded into it."""
    network = replace(network, folded=())
    assert not network.is_exact
    with pytest.raises(InputError, match="not known"):
        as_deployed(network, get_format("float32"))


def test_bounds_of_unknown_factors_are_audited():
    network = random_network(Random(3))
    for backend in backend_names():
        assert audit(compute_bounds(network, backend), network).confirmed


@pytest.mark.parametrize("count", [1, 30, 400])
def test_factors_are_rounded_away_from_zero_and_only_if_they_are_many(count):
    """Each is the near one times a number in [least, 1], whatever its sign and size."""
    random = Random(count)
    factors = [
        random.choice([1, -1]) * Fraction(2) ** random.randint(-300, 300) / random.randrange(2**23 + 1, 2**24, 2)
        for _ in range(count)
    ]
    near, least = short_factors(factors)
    assert (near == factors) == (least == 1) == (count <= 30)
    assert least >= 1 - Fraction(1, 2**127)
    assert all(least <= x / y <= 1 for x, y in zip(factors, near, strict=True))


@pytest.mark.parametrize("least", [Fraction(0), Fraction(-1, 2), Fraction(1), Fraction(3, 2)])
def test_factors_are_positive_and_below_one(least):
    made = Network.from_arrays([np.eye(2), np.eye(2)])
    with pytest.raises(InputError, match="factors"):
        replace(made, layers=(replace(made.layers[0], before=UncertainScale(None, least)), made.layers[1]))


def test_the_last_layer_has_no_unknown_factors():
    made = Network.from_arrays([np.eye(2), np.eye(2)])
    with pytest.raises(InputError, match="factors"):
        replace(made, layers=(made.layers[0], replace(made.layers[1], before=UncertainScale(None, HALF))))


def test_the_hash_sees_unknown_factors():
    made = Network.from_arrays([np.eye(2), np.eye(2)])
    column = RationalMatrix.from_integers([[1], [2]])
    layers = [
        made.layers[0],
        replace(made.layers[0], before=UncertainScale(None, HALF)),
        replace(made.layers[0], after=UncertainScale(None, HALF)),
        replace(made.layers[0], before=UncertainScale(column, HALF)),
        replace(made.layers[0], before=UncertainScale(None, Fraction(1, 3))),
    ]
    assert len({replace(made, layers=(layer, made.layers[1])).content for layer in layers}) == len(layers)
