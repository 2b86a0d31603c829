"""The rigorous forward pass: on every number system it encloses what rationals compute, layer by layer."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intervalcert import InputError, Network, certify_inputs, compute_bounds
from intervalcert.backends.registry import backend_names, get_backend
from intervalcert.model import evaluation as module
from intervalcert.model.activations import activation
from intervalcert.model.evaluation import Evaluator, Evaluators, PointEvaluator, check_evaluable
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.verify.jobs import Batch, Job
from intervalcert.verify.points import PointVerifier

HINGES = ("relu", "leaky_relu:0.01", "leaky_relu:1/3", "leaky_relu:-0.5", "leaky_relu:3", "hard_tanh", "identity")
HINGES += ("clip:0:6", "clip:1/3:1/2", "clip:-inf:0.1", "clip:-2:inf", "clip:1:1")
GROUPS = ("group_sort", "min_max")
WAYS = (*backend_names(), "points")
CURVES = ("tanh", "sigmoid", "elu:1", "softplus")


def bend(name, x):
    kind, _, parameter = name.partition(":")
    if kind == "hard_tanh":
        return max(Fraction(-1), min(Fraction(1), x))
    if kind == "clip":
        low, high = (None if end.endswith("inf") else Fraction(end) for end in parameter.split(":"))
        x = x if low is None else max(x, low)
        return x if high is None else min(x, high)
    return x if kind == "identity" or x > 0 else x * Fraction(parameter or 0)


def exact_layers(network, x):
    """W·x + b of every layer for one input, in rationals."""
    value, found = list(x), []
    for layer in network.layers:
        rows = range(layer.weights.shape[0])
        value = [sum(layer.weights[i, j] * v for j, v in enumerate(value)) for i in rows]
        value = [z + (0 if layer.bias is None else layer.bias[i, 0]) for i, z in enumerate(value)]
        found.append(value)
        if layer.activation is not None:
            value = [bend(layer.activation.name, z) for z in value]
    return found


def drawn(seed, between="relu", widths=(3, 4, 3, 2), scale=Fraction(1), biases=True):
    """Rationals that are no floats among the weights."""
    rng = np.random.default_rng(seed)

    def matrix(rows, columns):
        return RationalMatrix.from_fractions(
            [
                [Fraction(int(rng.integers(-50, 50)), int(rng.integers(1, 20))) * scale for _ in range(columns)]
                for _ in range(rows)
            ]
        )

    weights = [matrix(rows, columns) for columns, rows in itertools.pairwise(widths)]
    return Network.of(weights, [matrix(rows, 1) for rows in widths[1:]] if biases else None, between=between)


def some_inputs(seed, width, count, scale=Fraction(1)):
    rng = np.random.default_rng(seed)
    return [
        [Fraction(int(rng.integers(-99, 99)), int(rng.integers(1, 30))) * scale for _ in range(width)]
        for _ in range(count)
    ]


def norms_of(network):
    return [layer.upper for layer in compute_bounds(network, "exact", 3, margins="product").layers]


def columns(points):
    return RationalMatrix.from_fractions(points).transposed()


def assert_encloses(network, points, name, norms=None):
    """Every entry of every layer, by its ends."""
    if name == "points":
        evaluator = PointEvaluator(network, norms or norms_of(network), get_backend("exact"))
        alone = [[value.float_bounds() for value in evaluator.at(columns([x]))] for x in points]
        found = [
            tuple(np.stack(ends, axis=1) for ends in zip(*layer, strict=True)) for layer in zip(*alone, strict=True)
        ]
    else:
        evaluator = Evaluator(network, norms or norms_of(network), get_backend(name))
        found = [value.float_bounds() for value in evaluator.before_activations(columns(points))]
    for index, x in enumerate(points):
        for (low, high), exact in zip(found, exact_layers(network, x), strict=True):
            for a, y, b in zip(low[:, index].tolist(), exact, high[:, index].tolist(), strict=True):
                assert a == -np.inf or Fraction(a) <= y
                assert b == np.inf or y <= Fraction(b)
    return found


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    between=st.sampled_from(HINGES),
    count=st.sampled_from([1, 2, 5]),
    biases=st.booleans(),
    widths=st.lists(st.integers(1, 5), min_size=1, max_size=3),
)
def test_every_backend_encloses_the_exact_network(seed, between, count, biases, widths):
    network = drawn(seed, between, (*widths, 2), biases=biases)
    points = some_inputs(seed, network.inputs, count)
    norms = norms_of(network)
    for name in WAYS:
        assert_encloses(network, points, name, norms)


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("between", HINGES)
def test_the_enclosures_are_narrow(name, between):
    """An enclosure of everything would be right, too: a hundred millionth of the largest value must do."""
    network = drawn(1, between)
    for low, high in assert_encloses(network, some_inputs(1, 3, 4), name):
        assert (high - low).max() <= 1e-8 * np.abs(low).max()


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("exponent", [-1000, -300, -150, 150, 300, 1000])
def test_extreme_scales(name, exponent):
    """Weights and biases far beyond the floats: ends may be infinite, and are never wrong."""
    scale = Fraction(10) ** exponent
    for between in ("relu", "leaky_relu:-0.5", "hard_tanh"):
        network = drawn(2, between, scale=scale)
        assert_encloses(network, some_inputs(2, 3, 2), name)
        assert_encloses(network, some_inputs(2, 3, 1, 1 / scale), name)


@pytest.mark.parametrize("name", WAYS)
def test_huge_biases_and_inputs_at_the_ends_of_the_floats(name):
    huge = Fraction(10) ** 308
    network = Network.of(
        [RationalMatrix.from_integers([[1, 1], [-1, 1]]), RationalMatrix.from_integers([[1, 0], [0, 1]])],
        [RationalMatrix.from_fractions([[huge], [-huge]]), None],
    )
    tiny = Fraction(1, 2**1074)
    assert_encloses(network, [[tiny, -tiny], [huge, huge], [Fraction(0), Fraction(0)], [-huge, tiny]], name)


@pytest.mark.parametrize("name", WAYS)
def test_kinks_exactly_met(name):
    """Values that are 0, 1 and -1 exactly, and next to that."""
    weights = RationalMatrix.from_integers([[1], [1], [1]])
    bias = RationalMatrix.from_fractions([[Fraction(0)], [Fraction(1, 10**30)], [-Fraction(1, 10**30)]])
    last = RationalMatrix.from_integers([[1, 1, 1], [0, 0, 1]])
    for between in HINGES:
        network = Network.of([weights, last], [bias, None], between=between)
        assert_encloses(network, [[Fraction(k)] for k in (-1, 0, 1)], name)


# -- a single point, cut after each layer ----------------------------------------------------------------------------


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    between=st.sampled_from(HINGES),
    kept=st.sampled_from([1, 3, 6]),
    widths=st.lists(st.integers(1, 5), min_size=2, max_size=4),
    scale=st.sampled_from([Fraction(1), Fraction(1, 50), Fraction(10**20)]),
)
def test_a_point_is_no_further_off_than_it_says(seed, between, kept, widths, scale):
    """With so few bits that every term of the error matters; in rationals, without a tolerance."""
    network = drawn(seed, between, (*widths, 3), scale=scale)
    (x,) = some_inputs(seed, network.inputs, 1)
    exact = exact_layers(network, x)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "KEPT_BITS", kept)
        points = PointEvaluator(network, norms_of(network), get_backend("exact"))
        found = points.at(columns([x]))
    for near, values in zip(found, exact, strict=True):
        numerators, denominator = near.value.numerators[:, 0].tolist(), near.value.denominator
        apart = (Fraction(n, denominator) - y for n, y in zip(numerators, values, strict=True))
        assert sum(d**2 for d in apart) <= near.error**2
        low, high = near.float_bounds()
        assert all(Fraction(a) <= y <= Fraction(b) for a, y, b in zip(low.tolist(), values, high.tolist(), strict=True))
    for winner, y in enumerate(exact[-1]):
        leads = [y - other for i, other in enumerate(exact[-1]) if i != winner]
        low, high = points.leads(found[-1], winner)
        assert all(Fraction(a) <= z <= Fraction(b) for a, z, b in zip(low.tolist(), leads, high.tolist(), strict=True))


def test_a_point_is_followed_through_a_deep_network():
    """Forty layers, each of which takes a ball three times as far as the values: the point is known to 12 digits."""
    rng = np.random.default_rng(0)
    weights = [3 * np.linalg.qr(rng.normal(size=(8, 8)))[0] for _ in range(40)]
    network, norms = Network.from_arrays(weights, between="leaky_relu:0.1"), [Fraction(3000001, 10**6)] * 40
    x = columns([[Fraction(k, 8) for k in range(8)]])
    low, high = Evaluator(network, norms, get_backend("float64")).before_activations(x)[-1].float_bounds()
    assert (high - low).max() > 1e-6 * np.abs(low).max()
    low, high = PointEvaluator(network, norms, get_backend("exact")).at(x)[-1].float_bounds()
    assert (high - low).max() <= 1e-12 * np.abs(low).max()


@pytest.mark.parametrize("make", [Evaluator, PointEvaluator])
def test_a_matrix_of_several_layers_is_converted_once(monkeypatch, make):
    exact = get_backend("exact")
    shared, last = (RationalMatrix.from_integers(rows) for rows in ([[1, 2], [-1, 1]], [[1, 0], [0, 3]]))
    network = Network.of([shared, shared, shared, last])
    converted = []
    matrix = type(exact).matrix
    monkeypatch.setattr(type(exact), "matrix", lambda self, data: (converted.append(data), matrix(self, data))[1])
    make(network, [Fraction(3)] * 4, exact)
    assert [sum(data is each for data in converted) for each in (shared, last)] == [1, 1]


def test_an_evaluator_is_made_once_for_each_number_system():
    network = drawn(3)
    evaluators = Evaluators(network, norms_of(network))
    exact, arb = get_backend("exact"), get_backend("arb")
    assert evaluators.on(exact) is evaluators.on(get_backend("exact"))
    assert evaluators.on(arb) is not evaluators.on(exact)
    assert evaluators.on(arb).backend == arb
    assert evaluators.on(arb) is not evaluators.on(get_backend("arb", 200))
    assert evaluators.of_points(exact) is evaluators.of_points(exact)


@pytest.mark.parametrize("ladder", [("float64", "exact"), ("exact",)])
def test_a_network_is_converted_once_for_all_that_a_point_asks(monkeypatch, ladder):
    """Batches, single points and the local refinement share their evaluators."""
    network = drawn(6)
    made = []
    for kind in (Evaluator, PointEvaluator):
        start = kind.__init__
        monkeypatch.setattr(
            kind,
            "__init__",
            lambda self, *given, start=start: (made.append((type(self), given[2])), start(self, *given))[1],
        )
    systems = tuple(map(get_backend, ladder))
    margins = compute_bounds(network, "exact", 3).margins.matrix
    verifier = PointVerifier(Job(network, tuple(norms_of(network)), margins, systems, local_rounds=3))
    points = some_inputs(6, 3, 4)
    for eps in (Fraction(1, 10**6), Fraction(1, 10), Fraction(10)):
        verifier.verdicts(Batch(columns(points), (eps,) * len(points)))
    assert len(made) == len(set(made))
    assert {kind for kind, _ in made} == {Evaluator, PointEvaluator}


def test_exact_is_exact():
    network = drawn(3, "leaky_relu:1/3")
    (x,) = some_inputs(3, 3, 1)
    found = Evaluator(network, norms_of(network), get_backend("exact")).before_activations(columns([x]))
    for value, exact in zip(found, exact_layers(network, x), strict=True):
        assert [Fraction(n, value.denominator) for n in value.numerators[:, 0].tolist()] == exact


@pytest.mark.parametrize("name", ["exact", "arb"])
def test_a_block_is_its_columns(name):
    """Where entries have their own errors, many inputs at once give what each gives alone."""
    network, points = drawn(4, "hard_tanh"), some_inputs(4, 3, 3)
    evaluator = Evaluator(network, norms_of(network), get_backend(name))
    together = evaluator.before_activations(columns(points))[-1].float_bounds()
    for index, x in enumerate(points):
        alone = evaluator.before_activations(columns([x]))[-1].float_bounds()
        for some, single in zip(together, alone, strict=True):
            assert np.abs(some[:, index] - single[:, 0]).max() <= 1e-12 * np.abs(single).max()


@pytest.mark.parametrize("name", WAYS)
def test_a_wider_norm_is_still_right(name):
    """The norms only make enclosures narrower: any upper bound will do."""
    network = drawn(5)
    for factor in (1, 2, 10**9):
        assert_encloses(network, some_inputs(5, 3, 2), name, [norm * factor for norm in norms_of(network)])


@pytest.mark.parametrize("between", GROUPS)
def test_what_cannot_be_evaluated_is_refused(between):
    """The layer and the activation are named, and what to do instead."""
    network = Network.from_arrays([np.eye(2), np.eye(2)], between=between)
    refusals = (
        lambda: check_evaluable(network),
        lambda: Evaluator(network, [Fraction(1)] * 2, get_backend("exact")),
        lambda: certify_inputs(network, np.ones((1, 2)), "0.1", local=True),
        lambda: certify_inputs(network, np.ones((1, 2)), "0.1", local=False),
    )
    for refused in refusals:
        with pytest.raises(InputError, match=f"layer 0: the activation '{between}'") as caught:
            refused()
        assert "certify given logits instead" in str(caught.value)


@pytest.mark.parametrize("between", CURVES)
def test_what_is_not_piecewise_linear_is_not_refined(between):
    network = Network.from_arrays([np.eye(2), np.eye(2)], between=between)
    with pytest.raises(InputError, match="piecewise linear"):
        certify_inputs(network, np.ones((1, 2)), "0.1", local=True)


def test_a_single_layer_needs_no_activation():
    network = Network.from_arrays([np.eye(2)], [[1.0, 2.0]], between="tanh")
    for name in backend_names():
        assert_encloses(network, [[Fraction(1, 3), Fraction(2, 7)]], name)


FLT_MAX = "340282346638528859811704183484516925440"


@pytest.mark.parametrize("name", ["float64", "arb", "exact", "mpmath"])
@pytest.mark.parametrize("ends", [f"0:{FLT_MAX}", f"-{FLT_MAX}:6", f"-{FLT_MAX}:{FLT_MAX}", "0:2000000000"])
def test_ends_far_away_cost_no_precision(name, ends):
    """Those of a Clip of old, which stand for none: but they are there, and hold for numbers beyond them."""
    low, high = map(Fraction, ends.split(":"))
    function, backend = activation(f"clip:{ends}"), get_backend(name)
    for size in (1.0, 1e10, 1e39):
        drawn = np.array([[-3.25, 5.5], [7.75, 0.1]]) * size
        found = function.enclosure(backend.matrix(RationalMatrix.from_floats(drawn)), backend).float_bounds()
        for place in np.ndindex(2, 2):
            exact = max(low, min(high, Fraction(drawn[place])))
            assert Fraction(found[0][place]) <= exact <= Fraction(found[1][place]), (size, place)
            assert size > 1 or found[1][place] - found[0][place] < 1e-8
