"""The circulant chain: true for all slopes of convolutional networks that are unrolled and multiplied exactly, never
below the exact run, not above the product of norms; and each mistake in its geometry is seen, on purpose.
"""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intervalcert.backends.registry import backend_names, get_backend
from intervalcert.errors import InconclusiveError, UndecidedError
from intervalcert.model.activations import MaxPool, Sorting, activation
from intervalcert.model.layers import INPUT, Layer, Term, UncertainScale
from intervalcert.model.linear_maps import Convolution, Dense, identity
from intervalcert.model.network import Network
from intervalcert.model.windows import Window
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.proof import circulant_chain, circulant_levels
from intervalcert.proof.circulant_chain import CirculantWitness, aliases, check_circulant, is_real
from intervalcert.proof.circulant_levels import segments_of
from intervalcert.proof.data import is_plain, size_of
from intervalcert.proof.ellipsoids import Sector
from intervalcert.search import circulant_chain as search
from intervalcert.search.circulant_chain import not_circulant, search_circulant, witness_bytes

EXACT, FLOAT64 = get_backend("exact"), get_backend("float64")


# -- networks ----------------------------------------------------------------------------------------------------------


def eighths(rng, shape):
    return RationalMatrix.from_floats(rng.integers(-8, 9, shape) / 8)


def convolution(rng, channels, outputs, grid, size=None, stride=None, pads=None, dilation=(1, 1), groups=1):
    """Random where it is not said; padding differs from side to side."""
    stride = stride or tuple(int(x) for x in rng.integers(1, 3, 2))
    size = size or tuple(int(x) for x in rng.integers(1, 4, 2))
    pads = pads or tuple(int(x) for x in rng.integers(0, 3, 4))
    room = [dilation[k] * (size[k] - 1) + 1 - grid[k] - pads[k] for k in (0, 1)]
    pads = (*pads[:2], max(pads[2], room[0]), max(pads[3], room[1]))
    window = Window.padded(grid, size, stride, dilation, pads)
    return Convolution(eighths(rng, (outputs, channels // groups * window.taps)), channels, window, groups)


def mean_pool(rng, shape):
    """Of each channel: windows of 2 x 2, or 3 along an axis, whose weights no float holds."""
    channels, *grid = shape
    size = tuple(min(int(x), n) for x, n in zip(rng.integers(2, 4, 2), grid, strict=True))
    window = Window.padded(tuple(grid), size, tuple(int(x) for x in rng.integers(1, 3, 2)))
    numbers = RationalMatrix.filled((channels, window.taps), Fraction(1, window.taps))
    return Convolution(numbers, channels, window, channels)


def residual(rng, shape):
    """Of x + conv(x): the second term, on the same grid."""
    channels, *grid = shape
    return convolution(rng, channels, channels, tuple(grid), (3, 3), (1, 1), (1, 1, 1, 1))


KINDS = ("relu", "leaky_relu:0.25", "identity", "min_max", "mean", "residual", "tanh")


def some_layer(rng, source, shape, kind):
    """A layer of that kind that takes an array of that shape."""
    channels, *grid = shape
    if kind == "mean":
        return Layer((Term(source, mean_pool(rng, shape)),), None, activation("identity"))
    if kind == "residual":
        terms = Term(source, identity(shape)), Term(source, residual(rng, shape))
        return Layer(terms, None, activation(str(rng.choice(["identity", "relu"]))))
    outputs = 2 * int(rng.integers(1, 2)) if kind == "min_max" else int(rng.integers(1, 3))
    linear = convolution(rng, channels, outputs, tuple(grid))
    if kind == "min_max":
        kind = f"group_sort:2:{math.prod(linear.out_shape[1:])}"
    return Layer((Term(source, linear),), None, activation(kind))


def network_of(layers):
    return Network(tuple(layers), (Network.from_arrays([np.eye(2)]).sources[0],))


def head(rng, source, shape, classes=3, hidden=0):
    """A dense layer or two on top."""
    made, inputs = [], math.prod(shape)
    if hidden:
        made.append(Layer((Term(source, Dense(eighths(rng, (hidden, inputs)))),), None, activation("relu")))
        source, inputs = source + 1, hidden
    return [*made, Layer((Term(source, Dense(eighths(rng, (classes, inputs)))),), None, None)]


def drawn(seed, kinds=None, depth=2, grid=None, hidden=None):
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(1, 3)), *(grid or map(int, rng.integers(3, 7, 2))))
    layers = []
    for kind in kinds or [str(rng.choice(KINDS)) for _ in range(depth)]:
        layers.append(some_layer(rng, len(layers) - 1, shape, kind))
        shape = layers[-1].out_shape
    hidden = int(rng.integers(0, 2)) * 3 if hidden is None else hidden
    return network_of([*layers, *head(rng, len(layers) - 1, shape, hidden=hidden)])


# -- steep gradients, exactly ------------------------------------------------------------------------------------------


def matrices(network):
    """The linear map of each layer, unrolled, as integers and a denominator: all terms are added up, none is merged."""
    found = []
    for layer in network.layers:
        dense = [term.map.dense() for term in layer.terms]
        common = math.lcm(*(m.denominator for m in dense))
        found.append((sum(m.numerators * (common // m.denominator) for m in dense), common))
    return found


def turned(layer, ways, x):
    """What the activation may make of a difference x: D·x, or x·D, which is the same. ways: 0 or 1 for each neuron.

    It is the least or the largest slope; of a pair that is sorted, the first one says whether both change places.
    """
    if isinstance(layer.activation, Sorting):
        first, second = np.arange(len(x)).reshape(-1, 2, layer.activation.inner).transpose(1, 0, 2).reshape(2, -1)
        made, swapped = x.copy(), ways[first] == 0
        made[first[swapped]], made[second[swapped]] = x[second[swapped]], x[first[swapped]]
        return made
    low, high = (end if x.dtype == object else float(end) for end in layer.slopes)
    return x * np.where(ways > 0, high, low)


def steep_gradients(network, seed, tries=3, rounds=8):
    """Squared lengths of gradients of all leads, for slopes that are random at first, then made steeper and steeper.

    They are chosen with floats. The steepest is then computed exactly.
    """
    rng = np.random.default_rng(seed)
    exact, hidden = matrices(network), network.layers[:-1]
    near = [(numbers / unit).astype(float) for numbers, unit in exact]

    def gradient(d, ways, numbers):
        for layer, way, matrix in zip(reversed(hidden), reversed(ways), reversed(numbers), strict=True):
            d = turned(layer, way, d).dot(matrix)
        return d

    found = {}
    for i, j in pairs_of(network):
        d, best = near[-1][j] - near[-1][i], (-1.0, [])
        for _ in range(tries):
            ways = [rng.integers(0, 2, layer.shape[0]) for layer in hidden]
            for _ in range(rounds):
                x = gradient(d, ways, near[:-1])
                best = max(best, (float(x @ x), ways), key=lambda pair: pair[0])
                ways = steeper(hidden, near, d, ways, x)
        row = gradient(exact[-1][0][j] - exact[-1][0][i], best[1], [numbers for numbers, _ in exact[:-1]])
        found[i, j] = sum(Fraction(x) ** 2 for x in row) / math.prod(unit for _, unit in exact) ** 2
    return found


def pairs_of(network):
    return [(i, j) for j in range(network.outputs) for i in range(j)]


def steeper(hidden, near, d, ways, x):
    """For the direction x, layer by layer: of each neuron the way that adds more to the lead."""
    ways = list(ways)
    for index, layer in enumerate(hidden):
        x, g = near[index] @ x, d
        for later in range(len(hidden) - 1, index, -1):
            g = turned(hidden[later], ways[later], g) @ near[later]
        gains = [g * turned(layer, np.full(len(x), way), x) for way in (0, 1)]
        if isinstance(layer.activation, Sorting):
            places = np.arange(len(x)).reshape(-1, 2, layer.activation.inner)
            gains = [np.broadcast_to(y[places].sum(axis=1, keepdims=True), places.shape).ravel() for y in gains]
        ways[index] = (gains[1] > gains[0]).astype(int)
        x = turned(layer, ways[index], x)
    return ways


def squares_of(network, witness=None, backend=EXACT):
    """L² of all pairs, from above; None if floats find no chain."""
    witness = witness or search_circulant(network)
    if witness is None:
        return None
    found = check_circulant(network, witness, backend)
    return {pair: found[k].upper() for k, pair in enumerate(pairs_of(network))}


def twisted(network, half_turns):
    """A witness on tori with these half turns."""
    plan = search._planned(segments_of(network), half_turns)
    return CirculantWitness(half_turns, tuple(link for part in plan.parts for link in part.links), tuple(plan.steps()))


def steeper_than(network, squares, seed=0, **more):
    """The pairs whose lead is steeper than it may be, with both squares."""
    steepest = steep_gradients(network, seed, **more)
    return [(pair, steepest[pair], squares[pair]) for pair in squares if steepest[pair] > squares[pair]]


def has_zeros(network):
    """Whether a layer is zero: then floats find no chain."""
    return any(not any(numbers.ravel()) for numbers, _ in matrices(network))


# -- it is true --------------------------------------------------------------------------------------------------------


@settings(max_examples=80)
@given(seed=st.integers(0, 10**6), depth=st.integers(1, 3))
def test_no_gradient_exceeds_the_bound(seed, depth):
    network = drawn(seed, depth=depth)
    squares = squares_of(network)
    if squares is None:
        assert has_zeros(network)
    else:
        assert steeper_than(network, squares, seed) == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("then", KINDS)
def test_every_kind_before_every_kind(kind, then):
    network = drawn(sum(map(ord, kind + then)), [kind, then])
    squares = squares_of(network)
    assert squares is not None
    assert steeper_than(network, squares) == []


def uncertain(layer, least=Fraction(9, 10)):
    return replace(layer, before=UncertainScale(None, least), after=UncertainScale(None, least))


@pytest.mark.parametrize("kind", ["relu", "identity", "leaky_relu:0.25"])
def test_factors_that_are_not_known_belong_to_the_slopes(kind):
    network = drawn(7, [kind, "relu"])
    widened = network_of([uncertain(network.layers[0]), *network.layers[1:]])
    before, after = squares_of(network), squares_of(widened)
    assert all(after[pair] >= before[pair] for pair in before) or kind == "relu"
    assert steeper_than(widened, after) == []


@pytest.mark.parametrize("inner", [1, 2])
@pytest.mark.parametrize("order", ["", ":descending"])
def test_pairs_of_neighbours_and_of_halves(inner, order):
    """Channels 0 and 1, 2 and 3; or 0 and 2, 1 and 3. Between the convolutions and between the dense layers."""
    rng = np.random.default_rng(5)
    first = convolution(rng, 2, 4, (3, 4), (2, 3), (1, 2), (1, 0, 0, 1))
    second = convolution(rng, 4, 4, first.window.outputs, (3, 2), (1, 1), (0, 1, 1, 1))
    last = Dense(eighths(rng, (4, second.shape[0])))
    names = [f"group_sort:2:{inner * math.prod(linear.out_shape[1:])}{order}" for linear in (first, second, last)]
    layers = [
        Layer((Term(k - 1, linear),), None, activation(name))
        for k, (linear, name) in enumerate(zip((first, second, last), names, strict=True))
    ]
    network = network_of([*layers, *head(rng, 2, (4,))])
    assert all(level.constant is None for segment in segments_of(network) for level in segment.levels)
    assert steeper_than(network, squares_of(network), tries=20) == []


def test_groups_and_dilations():
    rng = np.random.default_rng(6)
    first = convolution(rng, 4, 4, (5, 4), (2, 2), (1, 1), (1, 2, 0, 1), (2, 3), groups=2)
    second = convolution(rng, 4, 2, first.window.outputs, (2, 3), (2, 1), (2, 0, 1, 1), (3, 1))
    layers = [Layer((Term(k - 1, x),), None, activation("leaky_relu:-0.5")) for k, x in enumerate((first, second))]
    network = network_of([*layers, *head(rng, 1, second.out_shape)])
    assert steeper_than(network, squares_of(network), tries=20) == []


def longest(network, seed):
    """Squared quotients of differences, for inputs near each other and far from each other: exactly."""
    rng = np.random.default_rng(seed)
    steepest = dict.fromkeys(pairs_of(network), Fraction(0))
    for scale in (1, 8, 64):
        x = [Fraction(int(k), 4) for k in rng.integers(-20, 21, network.inputs)]
        y = [a + Fraction(int(k), scale) for a, k in zip(x, rng.integers(-4, 5, network.inputs), strict=True)]
        both = RationalMatrix.from_fractions([list(pair) for pair in zip(x, y, strict=True)])
        for layer in network.layers:
            both = layer.terms[0].map.exactly(both)
            if layer.activation is not None:
                both = exact_values(layer.activation, both)
        change = [both[k, 0] - both[k, 1] for k in range(network.outputs)]
        apart = sum((a - b) ** 2 for a, b in zip(x, y, strict=True))
        for i, j in steepest:
            steepest[i, j] = max(steepest[i, j], (change[j] - change[i]) ** 2 / apart)
    return steepest


def exact_values(function, x):
    made = function.enclosure(EXACT.matrix(x), EXACT)
    low, _ = made.float_bounds()  # all numbers here are short
    return RationalMatrix.from_floats(low)


@pytest.mark.parametrize("kind", ["pool", "sort"])
def test_activations_without_sectors_begin_a_new_segment(kind):
    rng = np.random.default_rng(8)
    first = convolution(rng, 1, 3, (6, 5), (2, 3), (1, 1), (1, 1, 1, 1))
    window = Window.padded(first.window.outputs, (2, 2), (2, 1))
    function = MaxPool.of(3, window) if kind == "pool" else activation(f"group_sort:3:{math.prod(first.out_shape[1:])}")
    layer = Layer((Term(INPUT, first),), None, function)
    second = convolution(rng, 3, 2, layer.out_shape[1:], (3, 2), (1, 1), (1, 0, 1, 1))
    layers = [layer, Layer((Term(0, second),), None, activation("relu"))]
    network = network_of([*layers, *head(rng, 1, second.out_shape)])
    assert [len(segment.levels) for segment in segments_of(network)] == [1, 2]
    squares = squares_of(network)
    assert all(longest(network, seed)[pair] <= squares[pair] for seed in range(5) for pair in squares)
    assert all(squares_of(network, backend=FLOAT64)[pair] >= squares[pair] for pair in squares)


def on_torus(network, witness):
    """The chain with the same multipliers, in floats, position by position, without waves: L² of all pairs."""
    links, before, gain = iter(witness.links), None, 1.0
    (segment,) = segments_of(network)
    sides = [segment.sides]
    for level in reversed(segment.levels):
        sides.append(tuple(n * s for n, s in zip(sides[-1], level.stride, strict=True)))
    for level, fine, coarse in zip(segment.levels, sides[:0:-1], sides[-2::-1], strict=True):
        matrix = circulant(level, fine, coarse, witness.half_turns)
        s = matrix @ matrix.T if before is None else matrix @ before @ matrix.T
        link = next(links, None)
        if link is None:
            return {(i, j): gain * (s[i, i] + s[j, j] - 2 * s[i, j]) for i, j in pairs_of(network)}
        s, gain = s * 2.0**-link.exponent, gain * 2.0**link.exponent
        v, w, m = (np.repeat(x, math.prod(coarse)) for x in (link.v, link.w, link.sector.middle))
        k = np.eye(len(s)) - v[:, None] * s * v
        before = m[:, None] * (s + s @ (v[:, None] * np.linalg.solve(k, v[:, None] * s))) * m + np.diag(w * w)
    raise AssertionError("no last layer")


def circulant(level, fine, coarse, half_turns):
    """The matrix of a convolution between tori, from its definition."""
    near = level.kernel.near_floats()
    kernel = (near.values * 2.0**near.exponent).reshape(*level.channels, -1)
    made = np.zeros((level.channels[0], *coarse, level.channels[1], *fine))
    for y, x in product(range(coarse[0]), range(coarse[1])):
        for o, (dy, dx) in enumerate(level.offsets):
            turns, row = divmod(y * level.stride[0] + dy, fine[0])
            others, column = divmod(x * level.stride[1] + dx, fine[1])
            sign = (-1) ** (turns * half_turns[0] + others * half_turns[1])
            made[:, y, x, :, row, column] += sign * kernel[:, :, o]
    return made.reshape(level.channels[0] * math.prod(coarse), -1)


@pytest.mark.parametrize("half_turns", list(product((0, 1), repeat=2)))
@pytest.mark.parametrize("seed", range(6))
def test_waves_give_what_positions_give(seed, half_turns):
    """Up to what is lost to roundings and slack: so neither an alias nor a pair of opposites counts wrongly."""
    network = drawn(seed, depth=2, grid=(4, 5))
    witness = twisted(network, half_turns)
    squares, expected = squares_of(network, witness), on_torus(network, witness)
    for pair in squares:
        assert expected[pair] * (1 - 1e-9) <= squares[pair] <= expected[pair] * (1 + 1e-6) + 1e-9


def test_frequencies_that_a_layer_does_not_let_through():
    """At the frequency zero a difference is zero, on every number system: no step may fail because it has no size."""
    network = on_a_line([[-1.0, 0.0, 1.0], [1.0, -2.0, 1.0]], 4, ["relu", "identity"])
    for half_turns in product((0, 1), repeat=2):
        witness = twisted(network, half_turns)
        squares = squares_of(network, witness)
        assert steeper_than(network, squares) == []
        assert all(squares_of(network, witness, FLOAT64)[pair] >= squares[pair] for pair in squares)


# -- the law, and the product ------------------------------------------------------------------------------------------


@settings(max_examples=12)
@given(seed=st.integers(0, 10**6))
def test_no_number_system_is_below_the_exact_run(seed):
    network = drawn(seed)
    witness = search_circulant(network)
    if witness is None:
        assert has_zeros(network)
        return
    exact = squares_of(network, witness)
    for name in backend_names():
        found = squares_of(network, witness, get_backend(name))
        assert all(found[pair] >= exact[pair] for pair in exact), (name, found, exact)


@pytest.mark.parametrize("seed", range(12))
def test_never_above_the_product_of_norms_on_the_same_tori(seed):
    """Up to slack; and on the whole well below it."""
    network = drawn(seed, ["relu", "relu"], hidden=4)
    witness = search_circulant(network)
    (segment,) = segments_of(network)
    part, total = search._Part(segment), 1.0
    for depth, level in enumerate(segment.levels[:-1], start=1):
        norms = [
            np.linalg.eigvalsh(part._spread(depth, a, [None] * len(aliases(a, level.stride))))[-1]
            for a in part._frequencies(witness.half_turns, depth)
        ]
        total *= max(norms) * 4.0 ** level.kernel.near_floats().exponent
    w, unit = matrices(network)[-1]
    found = squares_of(network, witness, FLOAT64)
    for (i, j), square in found.items():
        assert square <= total * float(sum((w[j] - w[i]) ** 2) / unit**2) * (1 + 1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_tuned_multipliers_are_no_worse_and_true(seed):
    network = drawn(seed, ["relu", "leaky_relu:0.25"], hidden=4)
    closed, tuned = (squares_of(network, search_circulant(network, rounds)) for rounds in (0, 3))
    assert math.prod(tuned.values()) < math.prod(closed.values())
    assert steeper_than(network, tuned) == []


def test_equal_rows_have_no_margin():
    rng = np.random.default_rng(3)
    first = convolution(rng, 1, 2, (4, 4), (3, 3), (1, 1), (1, 1, 1, 1))
    row = rng.integers(-8, 9, first.shape[0]) / 8
    last = Dense(RationalMatrix.from_floats(np.stack([row, -row, row])))
    layers = [Layer((Term(INPUT, first),), None, activation("relu")), Layer((Term(0, last),), None, None)]
    network = network_of(layers)
    for backend in (EXACT, FLOAT64):
        squares = squares_of(network, backend=backend)
        assert squares[0, 2] == 0 < squares[0, 1]


# -- mistakes on purpose -----------------------------------------------------------------------------------------------
# Each is made in the search and in the proof alike, so that the witness is one of the mistaken chain.


def on_a_line(kernels, width, kinds):
    """One channel on a grid of 1 x width, windows of three."""
    window = Window.padded((1, width), (1, 3), pads=(0, 1, 0, 1))
    maps = [Convolution(RationalMatrix.from_floats(np.array([kernel])), 1, window) for kernel in kernels]
    layers = [Layer((Term(k - 1, maps[k]),), None, activation(kind)) for k, kind in enumerate(kinds)]
    last = Dense(RationalMatrix.from_floats(np.eye(width)))
    return network_of([*layers, Layer((Term(len(layers) - 1, last),), None, None)])


def caught(networks):
    """Whether a gradient convicts the mistake, in one of the networks."""
    for network in networks:
        squares = squares_of(network)
        if squares is not None and steeper_than(network, squares):
            return True
    return False


LINEAR = [[1.0, 0.0, 1.0], [-1.0, 2.0**-6, 1.0]]
"""On a line of three, the torus has four positions: (z + 1/z)·(z - 1/z) = z² - 1/z² is zero there, but for the 2^-6."""


def test_a_linear_layer_without_the_mask_is_caught(monkeypatch):
    network = on_a_line(LINEAR, 3, ["identity", "identity"])
    assert steeper_than(network, squares_of(network)) == []
    monkeypatch.setattr(circulant_levels, "widened", lambda slopes: slopes)
    squares = squares_of(network)
    assert steeper_than(network, squares)
    assert max(squares.values()) < Fraction(1, 100) < 1 < min(steep_gradients(network, 0).values())


@pytest.mark.parametrize("kind", ["leaky_relu:0.75", "min_max", "mean", "residual"])
def test_each_kind_without_the_mask_is_caught(monkeypatch, kind):
    networks = [masked(kind, seed) for seed in range(3)]
    assert not caught(networks)
    monkeypatch.setattr(circulant_levels, "widened", lambda slopes: slopes)
    assert caught(networks)


def masked(kind, seed):
    """Kernels that cancel on the torus, the first of them made of a layer of that kind."""
    rng = np.random.default_rng(seed)
    window = Window.padded((1, 3), (1, 3), pads=(0, 1, 0, 1))
    weights = eighths(rng, (3, 3))

    def kernel(*rows):
        return Convolution(RationalMatrix.from_floats(np.array(rows)), len(rows[0]) // 3, window)

    first, second = kernel(LINEAR[0]), kernel(LINEAR[1])
    if kind == "leaky_relu:0.75":
        layers = [Layer((Term(INPUT, first),), None, activation(kind))]
    elif kind == "residual":  # x + (x_{-1} - x + x_{+1})
        terms = Term(INPUT, identity((1, 1, 3))), Term(INPUT, kernel([1.0, -1.0, 1.0]))
        layers = [Layer(terms, None, activation("identity"))]
    elif kind == "mean":
        same = Layer((Term(INPUT, Convolution(RationalMatrix.filled((1, 3), Fraction(1, 3)), 1, window)),), None, None)
        layers = [replace(same, activation=activation("identity"))]
        second = kernel([1.0, -1.5, 1.0])
    else:  # a pair of equal channels: their sum has the slope 1, their difference is zero
        layers = [Layer((Term(INPUT, kernel(LINEAR[0], LINEAR[0])),), None, activation("group_sort:2:3"))]
        second = kernel([*LINEAR[1], *LINEAR[1]])
    layers.append(Layer((Term(0, second),), None, activation("identity")))
    return network_of([*layers, Layer((Term(1, Dense(weights)),), None, None)])


def strided(seeds=range(4)):
    """Linear networks whose bounds are tight: windows that do not overlap, and no padding."""
    for seed in seeds:
        rng = np.random.default_rng(seed)
        first = convolution(rng, 1, 2, (4, 6), (2, 3), (2, 3), (0, 0, 0, 0))
        second = convolution(rng, 2, 2, (2, 2), (1, 1), (1, 1), (0, 0, 0, 0))
        layers = [Layer((Term(k - 1, x),), None, activation("identity")) for k, x in enumerate((first, second))]
        yield network_of([*layers, *head(rng, 1, (2, 2, 2))])


def test_strided_linear_networks_are_tight():
    for network in strided():
        squares, steepest = squares_of(network), steep_gradients(network, 0)
        assert all(steepest[pair] <= squares[pair] <= steepest[pair] * (1 + Fraction(1, 10**6)) for pair in squares)


def with_aliases(monkeypatch, mistaken):
    for module in (circulant_chain, search):
        monkeypatch.setattr(module, "aliases", mistaken)


def test_forgotten_aliases_are_caught(monkeypatch):
    """One of them in the place of all: at a stride of two, and at the dense layer."""
    networks = list(strided())
    assert not caught(networks)
    with_aliases(monkeypatch, lambda a, stride: aliases(a, stride)[:1] if stride == (2, 3) else aliases(a, stride))
    assert caught(networks)


def test_a_missing_frequency_is_caught(monkeypatch):
    """Of those that the dense layer adds up the last; or all whose second turn is beyond a half."""
    networks = list(strided())
    with_aliases(monkeypatch, lambda a, stride: aliases(a, stride)[:-1] or aliases(a, stride))
    assert caught(networks)


def test_half_of_both_axes_is_caught(monkeypatch):
    """Opposite frequencies are opposite in both axes together."""

    def quarter(a, stride):
        found = aliases(a, stride)
        half = Fraction(1, 2)
        return [(b, w) for b, w in found if b[0] <= half and b[1] <= half] or found if is_real(a) else found

    networks = [drawn(seed, ["identity"], grid=(5, 5), hidden=0) for seed in range(6)]
    assert not caught(networks)
    with_aliases(monkeypatch, quarter)
    assert caught(networks)


@pytest.mark.parametrize("at", [0, 1])
def test_a_torus_that_is_too_small_by_one_is_caught(monkeypatch, at):
    """At the first, or at the second of two layers: the other one has no padding there."""
    networks = [narrow(at, seed) for seed in range(8)]
    assert not caught(networks)
    least = circulant_levels._Axis.least.fget
    monkeypatch.setattr(
        circulant_levels._Axis, "least", property(lambda axis: max(least(axis) - axis.is_padded, axis.inputs))
    )
    assert caught(networks)


def narrow(at, seed):
    """A padded layer of windows over a narrow grid, before or after one that takes each position by itself."""
    rng = np.random.default_rng(seed)
    maps, grid = [], (2, 2)
    for k in (0, 1):
        if k == at:
            made = convolution(rng, 1, 1, grid, (2, 3), (1, 1), (1, 2, 0, 1))
        else:
            made = convolution(rng, 1, 1, grid, (1, 1), (1, 1), (0, 0, 0, 0))
        maps.append(made)
        grid = made.window.outputs
    layers = [Layer((Term(k - 1, x),), None, activation("identity")) for k, x in enumerate(maps)]
    return network_of([*layers, *head(rng, 1, maps[-1].out_shape)])


def test_a_twist_along_one_axis_only_is_caught(monkeypatch):
    """The first torus is taken for one that is twisted along its first axis, the others are twisted along both."""
    found = []
    for seed in range(12):
        network = drawn(seed, ["identity"], grid=(3, 3), hidden=0)
        assert steeper_than(network, squares_of(network, twisted(network, (1, 1)))) == []
        (segment,) = segments_of(network)
        first = segment.levels[0]
        side = segment.sides[1] * math.prod(level.stride[1] for level in segment.levels)
        with monkeypatch.context() as patch:
            for module, name in ((circulant_chain, "_roots"), (search, "_waves")):
                right = getattr(module, name)

                def mistaken(b, offsets, right=right, first=first, side=side):
                    less = Fraction(1, 2 * side) if offsets is first.offsets else 0
                    return right((b[0], (b[1] - less) % 1), offsets)

                patch.setattr(module, name, mistaken)
            patch.setattr(search, "segments_of", lambda _, segment=segment: (segment,))
            patch.setattr(circulant_chain, "segments_of", lambda _, segment=segment: (segment,))
            found += steeper_than(network, squares_of(network, of_segment(segment, (1, 1))))
    assert found


def of_segment(segment, half_turns):
    plan = search._planned((segment,), half_turns)
    return CirculantWitness(half_turns, tuple(plan.parts[0].links), tuple(plan.steps()))


def with_coarse_roots(monkeypatch, bits):
    """The same roots in search and proof, of so few bits."""
    monkeypatch.setattr(circulant_chain, "ROOT_BITS", bits)

    def coarse(b, offsets):
        cosines, sines = np.array(circulant_chain._roots(b, offsets)).T / 2.0**bits
        return cosines, sines

    monkeypatch.setattr(search, "_waves", coarse)


def test_what_coarse_roots_lose_is_counted(monkeypatch):
    """With roots of two bits the bound holds, because of δ; without δ it is caught."""
    networks = [drawn(seed, ["identity"], grid=(3, 4), hidden=0) for seed in range(12)]
    with_coarse_roots(monkeypatch, 2)
    assert not caught(networks)
    for module in (circulant_chain, search):
        monkeypatch.setattr(module, "root_error", lambda level: Fraction(0))
    assert caught(networks)


# -- whatever the witness is -------------------------------------------------------------------------------------------


def spoiled(witness):
    """The witness with one thing changed at a time: (what, witness)."""
    link, step = witness.links[0], witness.steps[-1]
    yield "other turns", replace(witness, half_turns=tuple(1 - p for p in witness.half_turns))
    for turns in ((0,), (0, 2), (0, True), (0.0, 1), (0, 0, 0)):
        yield f"turns {turns}", replace(witness, half_turns=turns)
    yield "a step less", replace(witness, steps=witness.steps[:-1])
    yield "no first step", replace(witness, steps=witness.steps[1:])
    yield "another order", replace(witness, steps=witness.steps[::-1])
    yield "no step at all", replace(witness, steps=(None,) * len(witness.steps))
    yield "a link less", replace(witness, links=witness.links[:-1])
    yield "a link that is none", replace(witness, links=(None, *witness.links[1:]))
    narrow, shifted = (
        Sector(link.sector.middle, link.sector.spread * 0.9),
        Sector(link.sector.middle * 0, link.sector.spread),
    )
    changes = {"exponent": [link.exponent - 1, link.exponent + 1, 2000, 0.5], "sector": [narrow, shifted]}
    for name in ("v", "w"):
        x = getattr(link, name)
        changes[name] = [x * 0.9, x * 2, -x, x[:-1], x[:1], np.full_like(x, np.nan), x[:, None], x.astype(np.intp)]
    for name, values in changes.items():
        for value in values:
            yield f"{name} {value}", replace(witness, links=(replace(link, **{name: value}), *witness.links[1:]))
    parts = {"e": [0.0, -1.0, np.nan, 0.9], "slack": [0.0, -1.0, np.nan], "s": [None]}
    for name in ("g", "core", "after"):
        x = getattr(step, name)
        lower = x - np.eye(len(x)) * 2.0**-20
        parts[name] = [x * 0.5, x * 2, lower, x[:-1], np.full_like(x, np.inf), x + np.triu(np.ones_like(x), 1)]
    s = step.s
    parts["s"] += [replace(s, near=s.near * 0.5, above=s.above * 0.5), replace(s, lift=0.0), replace(s, above=s.near)]
    parts["s"] += [replace(s, near=s.near[:1], above=s.above[:1]), replace(s, lift=math.nan)]
    for name, values in parts.items():
        for value in values:
            yield f"{name} {value}", replace(witness, steps=(*witness.steps[:-1], replace(step, **{name: value})))


@pytest.mark.parametrize("backend", [EXACT, FLOAT64], ids=["exact", "float64"])
@pytest.mark.parametrize("seed", [1, 4])
def test_a_spoiled_witness_is_refused_or_harmless(seed, backend):
    network = drawn(seed, ["relu", "leaky_relu:0.25"], hidden=3)
    witness, refused = search_circulant(network), 0
    steepest = steep_gradients(network, seed)
    for what, other in spoiled(witness):
        try:
            squares = squares_of(network, other, backend)
        except InconclusiveError:
            refused += 1
        else:
            assert all(steepest[pair] <= squares[pair] for pair in steepest), what
    assert refused > 40


def test_a_constant_needs_the_same_multipliers_for_all():
    rng = np.random.default_rng(2)
    first = convolution(rng, 1, 3, (4, 3), (2, 2), (1, 1), (1, 0, 0, 1))
    layer = Layer((Term(INPUT, first),), None, activation(f"group_sort:3:{math.prod(first.out_shape[1:])}"))
    network = network_of([layer, *head(rng, 0, first.out_shape)])
    witness = search_circulant(network)
    (link,) = witness.links
    other = np.array([1.0, 1.0, 0.5])
    for spoilt in (
        replace(link, v=link.v * other, w=link.w / other),
        replace(link, sector=Sector(link.sector.middle + 0.5, link.sector.spread)),
        replace(link, sector=Sector(link.sector.middle, link.sector.spread / 2), w=link.w / 2),
    ):
        with pytest.raises(UndecidedError):
            check_circulant(network, replace(witness, links=(spoilt,)), EXACT)


# -- which networks, and what it takes ---------------------------------------------------------------------------------


def test_other_networks_have_no_such_chain():
    rng = np.random.default_rng(1)
    dense = Network.from_arrays([rng.standard_normal((4, 5)), rng.standard_normal((3, 4))])
    assert "no layer has a grid" in not_circulant(dense)
    first = convolution(rng, 1, 1, (4, 4), (3, 3), (1, 1), (1, 1, 1, 1))
    layers = [Layer((Term(k - 1, first),), None, activation("relu")) for k in (0, 1)]
    skipped = Layer((Term(0, identity((1, 4, 4))), Term(1, first)), None, activation("relu"))
    branched = network_of([*layers, skipped, *head(rng, 2, (1, 4, 4))])
    assert "adds up what several others give" in not_circulant(branched)
    for network in (dense, branched):
        assert search_circulant(network) is None
    witness = search_circulant(drawn(4))
    with pytest.raises(UndecidedError):
        check_circulant(branched, witness, EXACT)


def test_memory_is_known_and_steps_are_made_anew(monkeypatch):
    network = drawn(4, ["relu", "relu"], hidden=3)
    kept = search_circulant(network)
    assert is_plain(kept)
    assert size_of(kept) <= witness_bytes(network)
    monkeypatch.setattr(search, "_KEPT", 0)
    lazy = search_circulant(network)
    assert not is_plain(lazy)
    assert size_of(lazy) < size_of(kept)
    assert squares_of(network, lazy) == squares_of(network, lazy)
    squares = squares_of(network, kept)
    assert all(abs(x / squares[pair] - 1) < 1e-9 for pair, x in squares_of(network, lazy).items())


def test_each_frequency_is_told():
    network = drawn(4, ["relu", "relu"], hidden=3)
    witness, told = search_circulant(network), []
    check_circulant(network, witness, FLOAT64, lambda: told.append(None))
    assert len(told) == len(witness.steps)


@settings(max_examples=60)
@given(turns=st.tuples(st.integers(0, 1), st.integers(0, 1)), sides=st.tuples(*[st.integers(1, 4)] * 4))
def test_each_pair_of_opposite_frequencies_is_taken_once(turns, sides):
    """From the last torus of one position down to two tori before it."""
    tops, strides = [((Fraction(turns[0], 2), Fraction(turns[1], 2)), 1)], (sides[:2], sides[2:])
    n = (1, 1)
    for stride in strides:
        tops = [pair for a, _ in tops for pair in aliases(a, stride)]
        n = n[0] * stride[0], n[1] * stride[1]
        every = product(*([Fraction(2 * k + p, 2 * m) for k in range(m)] for m, p in zip(n, turns, strict=True)))
        taken = [b for b, _ in tops] + [(-b[0] % 1, -b[1] % 1) for b, _ in tops if not is_real(b)]
        assert sorted(taken) == sorted(every)
