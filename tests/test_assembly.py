"""Whatever a file lists between two activations becomes one layer: the same function, in exact rationals.

The truth here is the list itself, carried out step by step on fractions.
"""

import operator
from fractions import Fraction
from random import Random

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from intervalcert import InputError, evaluate
from intervalcert.backends.registry import get_backend
from intervalcert.io.models.assembly import Assembly
from intervalcert.io.models.tensors import Tensor
from intervalcert.model.evaluation import Evaluator
from intervalcert.numbers.float_formats import get_format
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.verify.deployed import as_deployed

BENDS = {
    "relu": lambda x: max(x, 0),
    "identity": lambda x: x,
    "leaky_relu:1/4": lambda x: x if x > 0 else x / 4,
    "hard_tanh": lambda x: max(-1, min(1, x)),
    "clip:-1/2:inf": lambda x: max(-Fraction(1, 2), x),
}


def numbers(random, *shape):
    """Multiples of 1/8, as a file would store them."""
    found = np.array([random.randint(-16, 16) for _ in range(int(np.prod(shape)))], dtype=np.float32) / 8
    return found.reshape(shape)


def exact(array):
    return [Fraction(float(x)) for x in array.ravel()]


def random_steps(random, width):
    """Steps, each a name and its arrays, that end with a matrix of two outputs or more."""
    steps = []
    for _ in range(random.randint(0, 7)):
        kind = random.choice(["affine", "scale", "shift", "activate", "normalise", "divide", "scale", "shift"])
        if kind == "affine":
            rows = random.randint(1, 3)
            steps.append((kind, numbers(random, rows, width), random.choice([None, numbers(random, rows)])))
            width = rows
        elif kind in {"scale", "shift"}:
            steps.append((kind, numbers(random, random.choice([1, width]))))
        elif kind == "divide":  # by powers of 2: the quotients are dyadic
            by = [random.choice([1, -1]) * 2.0 ** random.randint(-2, 2) for _ in range(random.choice([1, width]))]
            steps.append((kind, np.array(by, dtype=np.float32)))
        elif kind == "activate":
            steps.append((kind, random.choice(list(BENDS))))
        else:  # variances that are powers of 4: their roots are dyadic
            gamma, beta, mean = (numbers(random, width) for _ in range(3))
            variance = np.array([4.0 ** random.randint(-2, 2) for _ in range(width)], dtype=np.float32)
            steps.append((kind, gamma, beta, mean, variance))
    steps.append(("affine", numbers(random, 2, width), None))
    return steps + [("scale", numbers(random, 2))] * random.randint(0, 1)


def assembled(steps, width):
    made = Assembly(width)
    for kind, *parts in steps:
        if kind == "activate":
            made.activate(parts[0])
        elif kind == "normalise":
            made.batch_normalise(*map(Tensor, parts))
        else:
            tensors = [None if part is None else Tensor(part) for part in parts]
            getattr(made, kind)(*tensors)
    return made.network()


def carried_out(steps, x):
    for kind, *parts in steps:
        if kind == "activate":
            x = [BENDS[parts[0]](value) for value in x]
            continue
        arrays = [None if part is None else exact(part) for part in parts]
        if kind == "affine":
            rows = parts[0].shape[0]
            sums = [sum(w * v for w, v in zip(map(Fraction, map(float, row)), x, strict=True)) for row in parts[0]]
            x = [z + b for z, b in zip(sums, arrays[1] or [Fraction(0)] * rows, strict=True)]
        elif kind == "normalise":
            roots = [Fraction(float(np.sqrt(np.float64(v)))) for v in parts[3].ravel()]
            assert [root * root for root in roots] == arrays[3]
            gamma, beta, mean = arrays[:3]
            x = [g * (v - m) / r + b for v, g, b, m, r in zip(x, gamma, beta, mean, roots, strict=True)]
        else:
            act = {"scale": operator.mul, "shift": operator.add, "divide": operator.truediv}[kind]
            x = list(map(act, x, arrays[0] * (len(x) // len(arrays[0]))))
    return x


def column(values):
    return RationalMatrix.from_fractions([[value] for value in values])


def logits(network, x):
    evaluator = Evaluator(network, [Fraction(2**40)] * len(network.layers), get_backend("exact"))
    return evaluator.before_activations(network.entered(column(x)))[-1]


@given(st.integers(0, 10**9))
def test_a_list_of_steps_becomes_the_same_function(seed):
    random = Random(seed)
    width = random.randint(1, 3)
    steps = random_steps(random, width)
    network = assembled(steps, width)
    for space in ("input", network.eps_space):
        measured = network.measured_in(space)
        for _ in range(4):
            x = [Fraction(random.randint(-20, 20), 8) for _ in range(width)]
            low, high = logits(measured, x).float_bounds()
            expected = carried_out(steps, x)
            assert [Fraction(v) for v in low[:, 0]] == [Fraction(v) for v in high[:, 0]] == expected, (seed, steps)


def test_an_array_of_one_number_is_added_to_all():
    """After an activation, before a matrix: multiplied into it."""
    steps = [
        ("affine", np.eye(2, dtype=np.float32), None),
        ("activate", "relu"),
        ("shift", np.array([0.5], dtype=np.float32)),
        ("affine", np.array([[1, 2], [3, 4]], dtype=np.float32), None),
    ]
    network = assembled(steps, 2)
    assert [network.layers[1].bias[i, 0] for i in range(2)] == [Fraction(3, 2), Fraction(7, 2)]


# -- roots -----------------------------------------------------------------------------------------------------------


def with_roots(place):
    """A batch normalisation whose roots are irrational: first, after a matrix, or after an activation."""
    first, last = np.array([[1, -2], [0.5, 1]], dtype=np.float32), np.array([[1, 1], [2, -1]], dtype=np.float32)
    normalise = ("normalise", *(np.array(x, dtype=np.float32) for x in ([1.5, -2], [0.25, 1], [0.5, -1], [2, 3])))
    steps = [("affine", first, None), ("activate", "leaky_relu:1/4"), ("affine", last, None)]
    steps.insert(place, normalise)
    return steps


def high_precision(steps, x):
    with mpmath.workprec(400):
        x = [mpmath.mpf(v.numerator) / v.denominator for v in x]
        for kind, *parts in steps:
            if kind == "activate":
                x = [v if v > 0 else v / 4 for v in x]
            elif kind == "affine":
                x = [sum(mpmath.mpf(float(w)) * v for w, v in zip(row, x, strict=True)) for row in parts[0]]
                x = x if parts[1] is None else [v + b for v, b in zip(x, parts[1].tolist(), strict=True)]
            elif kind in {"scale", "shift"}:
                x = [v * w if kind == "scale" else v + w for v, w in zip(x, parts[0].tolist(), strict=True)]
            else:
                listed = zip(x, *(part.tolist() for part in parts), strict=True)
                x = [g * (v - m) / mpmath.sqrt(s) + b for v, g, b, m, s in listed]
        return x


@pytest.mark.parametrize("between", [[], ["shift"], ["scale"], ["shift", "scale", "shift"]], ids=str)
@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_roots_are_enclosed_within_their_last_bits(place, between):
    steps = with_roots(place)
    steps[place:place] = [(kind, np.array([0.5, -3], dtype=np.float32)) for kind in between]
    network = assembled(steps, 2)
    assert not network.is_exact
    assert place > 0 or len(network.layers) == 2
    for space in {"input", network.eps_space}:
        check_enclosure(network.measured_in(space), steps)


def check_enclosure(network, steps):
    """Of the logits at one input, apart by less than 2^-110."""
    x = [Fraction(3, 8), Fraction(-5, 4)]
    backend = get_backend("arb", 150)
    evaluator = Evaluator(network, [Fraction(2**20)] * len(network.layers), backend)
    found = evaluator.before_activations(network.entered(column(x)))[-1]
    with mpmath.workprec(400):
        truth = [Fraction(int(mpmath.floor(value * 2**350)), 2**350) for value in high_precision(steps, x)]
    low, high = (found - backend.matrix(column(truth))).ldexp(110).float_bounds()
    assert (low <= 2.0**-200).all()
    assert (high >= -(2.0**-200)).all()
    assert (high - low < 1).all()


@pytest.mark.parametrize("bias", [None, np.array([0.5, 3], dtype=np.float32)], ids=["no bias", "bias"])
@pytest.mark.parametrize("space", ["input", "normalised"])
def test_a_normalisation_before_roots(space, bias):
    """In the input space it is multiplied into the layer, and its shift is shrunk with the rest."""
    steps = with_roots(1)
    steps[0] = ("affine", steps[0][1], bias)
    steps[:0] = [("shift", np.array([1.5, -2], dtype=np.float32)), ("scale", np.array([0.5, -3], dtype=np.float32))]
    network = assembled(steps, 2)
    assert network.normalisation is not None
    check_enclosure(network.measured_in(space), steps)


def test_a_root_that_is_dyadic_is_exact():
    steps = with_roots(1)
    steps[1] = (*steps[1][:-1], np.array([4, 0.25], dtype=np.float32))
    assert all(layer.least_factor == 1 for layer in assembled(steps, 2).layers)


def test_many_normalisations_in_a_row():
    """Each needs factors of its own."""
    steps = with_roots(2)
    steps[2:2] = [steps[2]] * 3
    x = [Fraction(3, 8), Fraction(-5, 4)]
    found = evaluate(assembled(steps, 2), [[float(v) for v in x]], backend="arb")
    for k, truth in enumerate(high_precision(steps, x)):
        assert mpmath.mpf(found.lower[-1][0, k]) <= truth <= mpmath.mpf(found.upper[-1][0, k])


@pytest.mark.parametrize("variance", [[0, 1], [-1, 1]])
def test_a_variance_must_be_positive(variance):
    steps = with_roots(1)
    steps[1] = (*steps[1][:-1], np.array(variance, dtype=np.float32))
    with pytest.raises(InputError, match="variance"):
        assembled(steps, 2)


# -- normalisation of the inputs -------------------------------------------------------------------------------------


def test_what_comes_first_is_the_normalisation():
    steps = [
        ("shift", np.array([-1, -2], dtype=np.float32)),
        ("scale", np.array([4, 0.5], dtype=np.float32)),
        ("affine", np.array([[1, 2], [3, 4]], dtype=np.float32), None),
    ]
    network = assembled(steps, 2)
    assert network.eps_space == "normalised"
    assert [network.normalisation.mean[i, 0] for i in range(2)] == [1, 2]
    assert [network.normalisation.factor[i, 0] for i in range(2)] == [4, Fraction(1, 2)]
    assert [[network.layers[0].weights[i, j] for j in range(2)] for i in range(2)] == [[1, 2], [3, 4]]
    inner = network.measured_in("input").layers[0]
    assert [[inner.weights[i, j] for j in range(2)] for i in range(2)] == [[4, 1], [12, 2]]
    assert [inner.bias[i, 0] for i in range(2)] == [-6, -16]


@pytest.mark.parametrize(
    "steps",
    [
        [("shift", np.zeros(2, dtype=np.float32))],
        [("shift", np.zeros(1, dtype=np.float32)), ("divide", np.ones(1, dtype=np.float32))],
        [("scale", np.ones(2, dtype=np.float32))],
        [("normalise", *(np.full(2, x, dtype=np.float32) for x in (1, 0, 0, 1)))],
    ],
)
def test_zeros_and_ones_are_no_normalisation(steps):
    network = assembled([*steps, ("affine", np.eye(2, dtype=np.float32), None)], 2)
    assert network.normalisation is None
    assert network.eps_space == "input"
    assert network.layers[0].bias is None


def test_a_scaling_that_loses_an_input_is_no_normalisation():
    steps = [("scale", np.array([4, 0], dtype=np.float32)), ("affine", np.eye(2, dtype=np.float32), None)]
    network = assembled(steps, 2)
    assert network.normalisation is None
    assert network.layers[0].weights[1, 1] == 0
    assert network.folded


def test_roots_that_lose_an_input_are_no_normalisation():
    steps = with_roots(0)
    steps[0] = ("normalise", np.array([0, 1.5], dtype=np.float32), *steps[0][2:])
    network = assembled(steps, 2)
    assert network.normalisation is None
    check_enclosure(network, steps)


def test_roots_first_need_no_matrix():
    """Of 5,000 inputs it would be too large."""
    random, made = np.random.default_rng(1), Assembly(5_000)
    vectors = [made.tensor(random.uniform(0.5, 2, 5_000).astype(np.float32)) for _ in range(4)]
    made.batch_normalise(*vectors)
    made.affine(made.tensor(random.normal(size=(2, 5_000)).astype(np.float32)), None)
    network = made.network((5_000,))
    assert len(network.layers) == 1
    assert len(network.measured_in("input").layers) == 1


@pytest.mark.parametrize("place", [0, 1, 2, 3])
@pytest.mark.parametrize("kinds", ["d", "dd", "nd", "dn", "s+", "d+", "s+d", "s+n"])
@pytest.mark.parametrize("count", [2, 130])
def test_a_division_by_many_numbers_is_enclosed(count, kinds, place):
    """The common denominator of 130 numbers has some hundred digits; of two it is exact. Roots before it, and after it.

    They are multiples of 1/8, so that the truth is rational.
    """
    random = np.random.default_rng(place)

    def some(*shape):
        return random.uniform(0.1, 3, shape).astype(np.float32) * random.choice([-1, 1], shape).astype(np.float32)

    last = some(count if place == 3 else 2, count)
    steps = [("affine", some(count, count), None), ("activate", "leaky_relu:1/4"), ("affine", last, None)]
    more = {
        "d": lambda: ("divide", some(count)),
        "s": lambda: ("scale", some(count)),
        "+": lambda: ("shift", some(count)),
        "n": lambda: ("normalise", *some(3, count), (random.integers(1, 24, count) / 8).astype(np.float32) ** 2),
    }
    steps[place:place] = [more[kind]() for kind in kinds]
    network = assembled(steps, count)
    assert network.is_exact == ("n" not in kinds and ("d" not in kinds or count == 2))
    assert max(layer.weights.denominator for layer in network.measured_in("input").layers).bit_length() < 600
    if network.normalisation is not None:
        assert network.normalisation.mean.denominator.bit_length() < 600
    x = [Fraction(random.integers(-8, 9).item(), 8) for _ in range(count)]
    for space in {"input", network.eps_space}:
        measured = network.measured_in(space)
        evaluator = Evaluator(measured, [Fraction(2**40)] * len(network.layers), get_backend("arb", 150))
        low, high = evaluator.before_activations(measured.entered(column(x)))[-1].float_bounds()
        for k, truth in enumerate(carried_out(steps, x)):
            assert Fraction(low[k, 0]) <= truth <= Fraction(high[k, 0])
            assert high[k, 0] - low[k, 0] <= 1e-12 * max(1, abs(truth))


def test_a_scaling_by_long_quotients_is_enclosed():
    """A file may compute 1/std first, and multiply."""
    random = np.random.default_rng(7)
    std, mean, weights = random.uniform(0.1, 3, 300), random.normal(size=300), random.normal(size=(2, 300))
    made = Assembly(300)
    made.shift(Tensor(-mean))
    made.scale(Tensor(np.ones(1)) / Tensor(std))
    made.affine(Tensor(weights), None)
    network = made.network()
    assert not network.is_exact
    x = [Fraction(k, 16) for k in range(300)]
    truth = carried_out([("shift", -mean), ("divide", std), ("affine", weights, None)], x)
    for space in ("input", "normalised"):
        measured = network.measured_in(space)
        evaluator = Evaluator(measured, [Fraction(2**20)], get_backend("arb", 150))
        low, high = evaluator.before_activations(measured.entered(column(x)))[-1].float_bounds()
        for k in range(2):
            assert Fraction(low[k, 0]) <= truth[k] <= Fraction(high[k, 0])
            assert high[k, 0] - low[k, 0] < 1e-9


# -- the program in floats -------------------------------------------------------------------------------------------

LAYER = ("affine", np.array([[1, 2], [3, 4]], dtype=np.float32), np.array([1, 2], dtype=np.float32))
BARE = ("affine", LAYER[1], None)
ONE = np.array([1, 0.5], dtype=np.float32)
ONES, ZEROS = np.ones(2, dtype=np.float32), np.zeros(2, dtype=np.float32)

PLAIN = {
    "layers": [LAYER, ("activate", "relu"), LAYER],
    "two matrices": [LAYER, BARE],
    "a bias that is added": [BARE, ("shift", ONE), ("activate", "relu"), LAYER],
    "an activation at the end": [LAYER, ("activate", "relu")],
    "zeros and ones first": [("shift", ZEROS), ("scale", ONES), ("divide", ONES), LAYER],
    "zeros and ones between": [LAYER, ("scale", ONES), ("activate", "relu"), ("shift", ZEROS), ("divide", ONES), LAYER],
    "zeros after a bias": [LAYER, ("shift", ZEROS), ("shift", -ZEROS)],
    "a shift between activations": [LAYER, ("activate", "relu"), ("shift", ONE), ("activate", "hard_tanh"), LAYER],
}
MORE = {
    "a second shift": [LAYER, ("shift", ONE)],
    "two shifts": [BARE, ("shift", ONE), ("shift", ONE)],
    "a scaling": [LAYER, ("scale", ONE)],
    "a scaling after an activation": [LAYER, ("activate", "relu"), ("scale", ONE), ("activate", "relu"), LAYER],
    "a tiny shift": [("shift", np.array([0, 1e-45], dtype=np.float32)), LAYER],
    "a shift before a layer": [LAYER, ("activate", "relu"), ("shift", ONE), LAYER],
    "a normalisation": [("shift", ONE), LAYER],
    "a scaling with a zero": [("scale", np.array([0, 1], dtype=np.float32)), LAYER],
    "a scaling with a zero, and no layer": [("scale", np.array([0, 1], dtype=np.float32)), ("activate", "relu"), LAYER],
    "batch normalisation": [LAYER, ("normalise", ONE, ONE, ONE, ONE), LAYER],
    "batch normalisation by nothing": [LAYER, ("normalise", ONES, ZEROS, ZEROS, ONES), LAYER],
    "irrational batch normalisation": [LAYER, ("normalise", ONE, ONE, ONE, 2 * ONE), LAYER],
}


@pytest.mark.parametrize("case", PLAIN)
def test_layers_alone_can_be_deployed(case):
    network = assembled(PLAIN[case], 2)
    assert network.folded == ()
    assert as_deployed(network, get_format("float32")).layers


@pytest.mark.parametrize("case", MORE)
def test_what_is_more_than_layers_is_not_certified_as_a_program_in_floats(case):
    """It rounds where the layers do not."""
    with pytest.raises(InputError, match="not known"):
        as_deployed(assembled(MORE[case], 2), get_format("float32"))


def test_constants_that_a_program_computes_are_not_those_that_it_stores():
    product = Tensor(LAYER[1]) * Tensor(np.array(0.1, dtype=np.float32))
    first, second = Assembly(2), Assembly(2)
    first.affine(product, None)
    second.affine(Tensor(np.ones((4, 2), dtype=np.float32)), None)
    second.shift(product.reshaped((4,)))
    third = Assembly(2)  # what is zero here may be something in floats
    tenth = Tensor(ONE) * Tensor(np.array(0.1, dtype=np.float32))
    third.shift(tenth - tenth)
    third.affine(Tensor(np.eye(2, dtype=np.float32)), None)
    for made in (first, second, third):
        with pytest.raises(InputError, match="constants that are computed"):
            as_deployed(made.network(), get_format("float32"))


# -- what does not fit -----------------------------------------------------------------------------------------------


def test_a_matrix_must_fit():
    made = Assembly(3)
    with pytest.raises(InputError, match="2 inputs"):
        made.affine(Tensor(np.eye(2)), None)
    with pytest.raises(InputError, match="biases of shape"):
        made.affine(Tensor(np.eye(3)), Tensor(np.ones(2)))


def test_a_function_of_very_many_numbers_needs_a_matrix_before_it():
    made = Assembly(5_000)
    with pytest.raises(InputError, match="too large"):
        made.activate("relu")


def test_no_inputs():
    with pytest.raises(InputError, match="no inputs"):
        Assembly(0)


@pytest.mark.parametrize(
    ("places", "shape"), [([0, 1, 2], (2,)), ([0, 1], (3,)), ([0, 3], (2,)), ([0, -2], (2,)), ([[0, 1]], (2,))]
)
def test_places_are_as_many_as_the_shape_says(places, shape):
    graph = Assembly(3).graph
    with pytest.raises(InputError, match="do not make the shape"):
        graph.take(graph.input, np.array(places), shape)
