"""Linear maps without unrolling: each against a loop over fractions, on every number system, back and forth.

`matrix_of` makes the matrix of a convolution from its definition, place by place; all that a map says of itself is then
compared with that matrix, exactly, or by containment. Frameworks say how many outputs a window has, and what they are.
"""

from dataclasses import replace
from fractions import Fraction
from itertools import product as pairs
from math import prod
from random import Random

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from strategies import (
    at_least_the_norm,
    matrix_sets,
    product,
    rational_matrices,
    seeds,
    sum_of_squares,
    to_rows,
    transposed,
)
from test_contract import System, check_inside

from intervalcert.backends.registry import get_backend
from intervalcert.errors import InputError
from intervalcert.model import linear_maps
from intervalcert.model.linear_maps import ChannelWise, Convolution, Dense, IndexMap, identity, shape_text, sum_of
from intervalcert.model.windows import MISSING, Window
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.rounding import sqrt_upper

KINDS = ("decimal", "integer", "gaussian", "zero", "rank one")


def column(values):
    return RationalMatrix.from_fractions([[Fraction(x)] for x in values])


# -- what is drawn ---------------------------------------------------------------------------------------------------


def both(strategy):
    return st.tuples(strategy, strategy)


def windows():
    """Of any fit: padding before, windows that end beyond the input or before its end, some that see nothing."""
    return st.builds(
        Window,
        inputs=both(st.integers(1, 4)),
        outputs=both(st.integers(1, 3)),
        size=both(st.integers(1, 3)),
        stride=both(st.integers(1, 3)),
        dilation=both(st.integers(1, 2)),
        before=both(st.integers(0, 2)),
    )


def random_kernel(seed, shape):
    random = Random(seed)
    kind = random.choice(["decimal", "float", "float", "integer", "huge", "tiny"])
    entries = {
        "decimal": lambda: Fraction(random.randint(-(10**4), 10**4), 10**3),
        "float": lambda: Fraction(random.gauss(0, 1)),
        "integer": lambda: Fraction(random.randint(-9, 9)),
        "huge": lambda: Fraction(random.gauss(0, 1)) * Fraction(2) ** 2000,
        "tiny": lambda: Fraction(random.randint(-99, 99), 7) / 2**1500,
    }[kind]
    rows = [[entries() for _ in range(shape[1])] for _ in range(shape[0])]
    if kind == "float" and random.random() < 0.5:
        return RationalMatrix.from_floats(np.array([[float(x) for x in row] for row in rows]), random.randint(-5, 5))
    return RationalMatrix.from_fractions(rows)


@st.composite
def convolutions(draw):
    """One to three channels, in one to three groups."""
    groups, window = draw(st.integers(1, 3)), draw(windows())
    channels = groups * draw(st.integers(1, 3 // groups))
    outputs = groups * draw(st.integers(1, 2))
    kernel = random_kernel(draw(seeds()), (outputs, channels // groups * window.taps))
    return Convolution(kernel, channels, window, groups)


@st.composite
def index_maps(draw, inputs=None):
    inputs, outputs = inputs or draw(st.integers(1, 6)), draw(st.integers(1, 8))
    index = draw(st.lists(st.integers(MISSING, inputs - 1), min_size=outputs, max_size=outputs))
    factors = random_kernel(draw(seeds()), (outputs, 1)) if draw(st.booleans()) else None
    return IndexMap(np.array(index), (inputs,), (outputs,), factors)


@st.composite
def channel_wise(draw):
    channels, rows, columns = (draw(st.integers(1, 3)) for _ in range(3))
    return ChannelWise(random_kernel(draw(seeds()), (rows, columns)), (channels, columns), (channels, rows))


def dense_maps():
    shapes = both(st.integers(1, 4))
    return st.builds(lambda seed, shape: Dense(random_kernel(seed, shape)), seeds(), shapes)


def maps():
    return st.one_of(convolutions(), convolutions(), index_maps(), channel_wise(), dense_maps())


# -- by the definition -----------------------------------------------------------------------------------------------


def places(window):
    """(output, place of the window, input) for all that is within the input, each a pair."""
    for i, u in pairs(np.ndindex(*window.outputs), np.ndindex(*window.size)):
        at = [window.stride[k] * i[k] + window.dilation[k] * u[k] - window.before[k] for k in (0, 1)]
        if all(0 <= at[k] < window.inputs[k] for k in (0, 1)):
            yield i, u, tuple(at)


def flat(place, sides):
    return place[0] * sides[1] + place[1]


def convolution_matrix(made):
    window, outputs = made.window, made.kernel.shape[0]
    per_group, out_group = made.channels // made.groups, outputs // made.groups
    rows = [[Fraction(0)] * made.shape[1] for _ in range(made.shape[0])]
    for i, u, at in places(window):
        for o, c in pairs(range(outputs), range(per_group)):
            channel = o // out_group * per_group + c
            row, entry = o * prod(window.outputs) + flat(i, window.outputs), channel * prod(window.inputs)
            rows[row][entry + flat(at, window.inputs)] += made.kernel[o, c * window.taps + flat(u, window.size)]
    return rows


def index_matrix(made):
    rows = [[Fraction(0)] * made.shape[1] for _ in range(made.shape[0])]
    for i, j in enumerate(made.index.tolist()):
        if j >= 0:
            rows[i][j] = Fraction(1) if made.factors is None else made.factors[i, 0]
    return rows


def channel_matrix(made):
    (height, width), once = made.matrix.shape, to_rows(made.matrix)
    rows = [[Fraction(0)] * made.shape[1] for _ in range(made.shape[0])]
    for c, i, j in np.ndindex(made.channels, height, width):
        rows[c * height + i][c * width + j] = once[i][j]
    return rows


def matrix_of(made):
    """The matrix of a map, outputs x inputs, by the definition of its kind."""
    if isinstance(made, Dense):
        return to_rows(made.matrix)
    kinds = {Convolution: convolution_matrix, IndexMap: index_matrix, ChannelWise: channel_matrix}
    return kinds[type(made)](made)


def frobenius(rows):
    """At least the norm of the matrix, with 64 bits."""
    return sqrt_upper(sum_of_squares(rows), 64)


# -- exactly ---------------------------------------------------------------------------------------------------------


@settings(max_examples=200)
@given(made=maps(), seed=seeds())
def test_maps_are_their_matrices(made, seed):
    """The shape, the matrix, what becomes of columns, absolute values, squares of rows."""
    rows = matrix_of(made)
    assert made.shape == (len(rows), len(rows[0])) == (prod(made.out_shape), prod(made.in_shape))
    x = random_kernel(seed, (made.shape[1], 1 + seed % 3))
    assert to_rows(made.exactly(x)) == product(rows, to_rows(x))
    assert to_rows(made.dense()) == rows
    assert made.is_small
    assert to_rows(made.absolute().dense()) == [[abs(x) for x in row] for row in rows]
    assert type(made.absolute()) is type(made)
    assert to_rows(made.row_squares()) == [[sum(x * x for x in row)] for row in rows]
    assert made.summands >= max(sum(x != 0 for x in row) for row in rows)


@given(made=maps(), seed=seeds())
def test_the_adjoint_is_the_transpose(made, seed):
    """<Tx, y> = <x, Tᵀy>, exactly."""
    backend = get_backend("exact")
    x, y = random_kernel(seed, (made.shape[1], 2)), random_kernel(seed + 1, (made.shape[0], 2))
    operator = made.on(backend)
    forth = operator.apply(backend.matrix(x)).transposed() @ backend.matrix(y)
    back = backend.matrix(x).transposed() @ operator.adjoint(backend.matrix(y))
    assert (forth - back).frobenius_squared().value == 0
    assert (operator.apply(backend.matrix(x)) - backend.matrix(made.exactly(x))).frobenius_squared().value == 0


@given(made=maps(), seed=seeds())
def test_factors_for_the_inputs(made, seed):
    """All alike, one for each channel, one for each place, or any: a map of the same kind, or None, but a true one."""
    random, inputs = Random(seed), made.shape[1]
    channels = made.in_shape[0] if len(made.in_shape) > 1 else 1
    some = [Fraction(random.randint(-9, 9), random.randint(1, 9)) for _ in range(inputs)]
    size = inputs // channels
    for kind, factors in {
        "alike": some[:1] * inputs,
        "of channels": [some[k // size] for k in range(inputs)],
        "of places": [some[k % size] for k in range(inputs)],
        "any": some,
    }.items():
        found = made.scaled(column(factors))
        if found is None:
            assert len(set(factors)) > 1
            assert (
                isinstance(made, ChannelWise) if kind == "of channels" else isinstance(made, Convolution | ChannelWise)
            )
            continue
        assert type(found) is type(made)
        assert (found.in_shape, found.out_shape) == (made.in_shape, made.out_shape)
        assert matrix_of(found) == [[x * y for x, y in zip(row, factors, strict=True)] for row in matrix_of(made)]


@given(made=maps())
def test_norms_are_at_most_those_that_are_said(made):
    """`stretch`, for a map whose numbers are all that it is off by; the norm of an index map is that of its Gram."""
    rows = matrix_of(made)
    if isinstance(made, IndexMap):
        gram = product(transposed(rows), rows)
        assert all(x == 0 for i, row in enumerate(gram) for j, x in enumerate(row) if i != j)
        assert made.norm_squared() == max(gram[i][i] for i in range(len(gram)))
        if made.factors is None:
            return
    (numbers,) = made.identity_parts[1]
    assert at_least_the_norm(made.stretch * frobenius(to_rows(numbers)), rows)


@pytest.mark.parametrize("taps", [(1, 3), (3, 1), (2, 2)])
def test_a_kernel_of_ones_needs_all_of_what_is_said(taps):
    """On a larger grid its norm is nearly the number of places: the root of that, times the norm of the kernel."""
    outputs = tuple(7 if side > 1 else 1 for side in taps)
    inputs = tuple(n + side - 1 for n, side in zip(outputs, taps, strict=True))
    made = Convolution(RationalMatrix.filled((1, prod(taps)), Fraction(1)), 1, Window(inputs, outputs, taps))
    rows, kernel = matrix_of(made), sqrt_upper(Fraction(prod(taps)), 64)
    assert at_least_the_norm(made.stretch * kernel, rows)
    assert not at_least_the_norm(made.stretch * kernel * Fraction(9, 10), rows)


@given(made=convolutions())
def test_blocks_are_the_groups(made):
    """Each group by itself is one of the blocks, and each block one of the groups."""
    rows, per_group, out_group = matrix_of(made), made.channels // made.groups, made.kernel.shape[0] // made.groups
    inputs, outputs = per_group * prod(made.window.inputs), out_group * prod(made.window.outputs)
    groups = [
        [row[g * inputs : (g + 1) * inputs] for row in rows[g * outputs : (g + 1) * outputs]]
        for g in range(made.groups)
    ]
    found = [matrix_of(block) for block in made.blocks()]
    assert all(block.groups == 1 for block in made.blocks())
    assert all(group in found for group in groups)
    assert all(block in groups for block in found)


@pytest.mark.parametrize("exponent", [0, -3000, 3000])
@pytest.mark.parametrize("values", [(1.0, 2.0), (0.5, 0.5), (0.0, -0.0), (3.0, -3.0)])
def test_groups_are_equal_only_if_their_numbers_are(values, exponent):
    """Also where they are no floats: one that is a power of two larger has the same numerators."""
    window = Window((2, 2), (2, 2), (1, 1))
    for kernel in (
        RationalMatrix.from_floats(np.array(values)[:, None], exponent),
        RationalMatrix.from_fractions([[Fraction(x) * Fraction(2) ** exponent / 3] for x in values]),
    ):
        blocks = Convolution(kernel, 2, window, 2).blocks()
        assert len(blocks) == len({kernel[i, 0] for i in range(2)})
        assert {block.kernel[0, 0] for block in blocks} == {kernel[i, 0] for i in range(2)}


@given(made=index_maps(), shape=both(st.integers(1, 3)), data=st.data())
def test_index_maps_one_after_the_other(made, shape, data):
    last = data.draw(index_maps(inputs=made.shape[0]))
    both_of_them = last.after(made)
    assert matrix_of(both_of_them) == product(matrix_of(last), matrix_of(made))
    assert (both_of_them.in_shape, both_of_them.out_shape) == (made.in_shape, last.out_shape)
    same = identity(shape)
    assert same.is_identity
    assert same.norm_squared() == 1
    assert matrix_of(same) == [[Fraction(i == j) for j in range(prod(shape))] for i in range(prod(shape))]
    assert matrix_of(identity(made.out_shape).after(made)) == matrix_of(made)
    assert matrix_of(made.after(identity(made.in_shape))) == matrix_of(made)


def test_what_an_index_map_is():
    def of(index, inputs, factors=None):
        return IndexMap(np.array(index), (inputs,), (len(index),), None if factors is None else column(factors))

    for made, what, is_identity, is_permutation in (
        (of([0, 1], 2), "identity", True, True),
        (of([1, 0], 2), "another order", False, True),
        (of([1, 1], 2), "a part", False, False),
        (of([0, 1], 3), "a part", False, False),
        (of([0, -1], 2), "padding", False, False),
        (of([0, 1], 2, [1, 1]), "scaling", False, False),
    ):
        assert (str(made), made.is_identity, made.is_permutation) == (what, is_identity, is_permutation)
        assert made.parameters == (0 if made.factors is None else 2)
    assert of([-1, -1], 2).norm_squared() == 0


# -- on number systems -----------------------------------------------------------------------------------------------


@settings(max_examples=100)
@given(made=maps(), columns=st.integers(1, 2), data=st.data())
def test_operators_contain_what_they_make_of_each_member(backend_name, made, columns, data):
    """With a norm that holds, the Frobenius norm, and without one."""
    rows = matrix_of(made)
    x = data.draw(matrix_sets((made.shape[1], columns), KINDS))
    y = data.draw(matrix_sets((made.shape[0], columns), KINDS))
    back = product(transposed(rows), y.point)
    for prec, norm in pairs((16, 64), (None, frobenius(rows))):
        system = System(get_backend(backend_name, prec), generic=False)
        operator = made.on(system.backend, norm)
        what = f"{made!r} with the norm {norm}"
        check_inside(system, operator.apply(x.on(system)), product(rows, x.point), f"{what}: apply", x=x, matrix=rows)
        check_inside(system, operator.adjoint(y.on(system)), back, f"{what}: adjoint", y=y, matrix=rows)


@settings(max_examples=20)
@given(made=maps())
def test_numbers_may_be_converted_by_others(backend_name, made):
    """As sets around them: then each kernel in that set is taken into account."""
    backend, rows = get_backend(backend_name), matrix_of(made)
    system = System(backend, generic=False)
    wide = Fraction(0) if system.of_points else Fraction(1, 8)
    factor = backend.hull(1 - wide, 1 + wide)
    asked = []

    def convert(data):
        asked.append(data.shape)
        return backend.matrix(data).scalar_mul(factor)

    norm = frobenius(rows) * (1 + wide)
    for known in (None, norm):
        asked.clear()
        operator = made.on(backend, known, convert)
        numbers = made.identity_parts[1]
        assert sum(map(prod, asked)) == sum(prod(x.shape) for x in numbers), "not converted once"
        ones = [[Fraction(1)]] * made.shape[1]
        for end in (1 - wide, 1, 1 + wide) if numbers else (1,):
            expected = [[x * end for x in row] for row in product(rows, ones)]
            check_inside(system, operator.apply(system.of(ones)), expected, f"{made!r}: apply", end=end)
            ups = [[Fraction(1)]] * made.shape[0]
            expected = [[x * end for x in row] for row in product(transposed(rows), ups)]
            check_inside(system, operator.adjoint(system.of(ups)), expected, f"{made!r}: adjoint", end=end)


def members_of_a_ball(made, sign):
    """For maps of which one input goes to one output, times 4: a ball of radius 1/8, and its border there."""
    zeros = [[Fraction(0)]] * made.shape[1]
    moved = [list(row) for row in zeros]
    moved[-1][0] += sign * Fraction(1, 8)
    return zeros, moved


WIDE_WINDOW = Window((3, 3), (3, 3), (3, 3), before=(1, 1))
CENTRE_TAP = Convolution(RationalMatrix.from_integers([[0] * 4 + [4] + [0] * 4]), 1, WIDE_WINDOW)
FOUR_TIMES = IndexMap(np.arange(9), (9,), (9,), column([4] * 9))


@pytest.mark.parametrize("made", [CENTRE_TAP, FOUR_TIMES], ids=str)
@pytest.mark.parametrize("sign", [1, -1])
def test_a_ball_grows_by_the_norm_and_no_less(backend_name, made, sign):
    """The member on the border goes to the border; and where sets are balls, they grow by nothing but the norm."""
    system = System(get_backend(backend_name), generic=False)
    if system.of_points:
        return
    zeros, moved = members_of_a_ball(made, sign)
    ball = system.of(zeros).blurred(system.backend.scalar(Fraction(1, 8)))
    operator = made.on(system.backend, Fraction(4))
    for way in (operator.apply, operator.adjoint):
        expected = [[4 * x for x in row] for row in moved]
        check_inside(system, way(ball), expected, "at the border")
        if system.backend.name == "float64":
            assert way(ball).frobenius_squared().upper() <= Fraction(1, 4) * (1 + Fraction(1, 2**30))


def test_a_ball_that_is_gathered_grows_by_the_norm_too():
    """Nine outputs of one input: three times the radius, not nine times."""
    backend = get_backend("float64")
    operator = IndexMap(np.zeros(9, dtype=np.intp), (1,), (9,)).on(backend, Fraction(3))
    ball = backend.matrix(RationalMatrix.filled((9, 1), Fraction(0))).blurred(backend.scalar(Fraction(1, 8)))
    system = System(backend, generic=False)
    for sign in (1, -1):
        expected = [[sign * Fraction(3, 8)]]  # of the member with 1/24 in each of them
        check_inside(system, operator.adjoint(ball), expected, "at the border")
    assert operator.adjoint(ball).frobenius_squared().upper() <= Fraction(9, 64) * (1 + Fraction(1, 2**30))


def test_a_norm_that_is_too_small_is_noticed():
    """The checks above can fail: half of the norm, and the member on the border is lost."""
    system = System(get_backend("float64"), generic=False)
    for made in (CENTRE_TAP, FOUR_TIMES):
        zeros, moved = members_of_a_ball(made, 1)
        ball = system.of(zeros).blurred(system.backend.scalar(Fraction(1, 8)))
        operator = made.on(system.backend, Fraction(2))
        for found in (operator.apply(ball), operator.adjoint(ball)):
            with pytest.raises(AssertionError, match="not in the enclosure"):
                check_inside(system, found, [[4 * x for x in row] for row in moved], "at the border")


@given(made=maps(), more=st.sampled_from([-1, 1, 2]))
def test_columns_of_another_length_are_refused(backend_name, made, more):
    """Of longer ones numpy would take a part alone, or some more of the next channel."""
    backend = get_backend(backend_name)
    for norm in (None, Fraction(10)):
        operator = made.on(backend, norm)
        for way, length in ((operator.apply, made.shape[1]), (operator.adjoint, made.shape[0])):
            for wrong in (length + more, 2 * length):
                if wrong > 0:
                    with pytest.raises(ValueError):  # noqa: PT011 - whoever says so
                        way(backend.matrix(RationalMatrix.filled((wrong, 1), Fraction(1))))
    for wrong in (made.shape[1] + more, 2 * made.shape[1]):
        if wrong > 0:
            with pytest.raises(ValueError):  # noqa: PT011 - whoever says so
                made.exactly(RationalMatrix.filled((wrong, 1), Fraction(1)))
            with pytest.raises(ValueError, match="factors"):
                made.scaled(RationalMatrix.filled((wrong, 1), Fraction(1)))
    with pytest.raises(ValueError, match="factors"):
        made.scaled(RationalMatrix.filled((made.shape[1], 2), Fraction(1)))


# -- in floats -------------------------------------------------------------------------------------------------------


@given(made=maps(), seed=seeds())
def test_floats_are_near(made, seed):
    rows, near, rng = matrix_of(made), made.near(), np.random.default_rng(seed)
    scaled = np.array([[float(x / Fraction(2) ** near.exponent) for x in row] for row in rows])
    x, y = rng.standard_normal((made.shape[1], 2)), rng.standard_normal((made.shape[0], 2))
    size = np.abs(scaled).sum() + 1e-300
    assert np.isfinite(size)
    assert np.abs(near.apply(x) - scaled @ x).max() <= 1e-12 * size
    assert np.abs(near.adjoint(y) - scaled.T @ y).max() <= 1e-12 * size


# -- windows ---------------------------------------------------------------------------------------------------------


@given(window=windows())
def test_tables_are_where_a_window_looks(window):
    looks = {(flat(u, window.size), flat(i, window.outputs)): flat(at, window.inputs) for i, u, at in places(window)}
    assert window.taps == prod(window.size)
    assert window.table.shape == (window.taps, prod(window.outputs))
    assert window.adjoint_table.shape == (window.taps, prod(window.inputs))
    for (tap, output), found in np.ndenumerate(window.table):
        assert found == looks.get((tap, output), MISSING)
    backwards = {(tap, at): output for (tap, output), at in looks.items()}
    assert len(backwards) == len(looks)
    for (tap, at), found in np.ndenumerate(window.adjoint_table):
        assert found == backwards.get((tap, at), MISSING)
    assert window.is_padded == (len(looks) < window.taps * prod(window.outputs))
    seen = [sum(at == position for at in looks.values()) for position in range(prod(window.inputs))]
    assert window.most_windows == max(seen)
    for table in (window.table, window.adjoint_table):
        with pytest.raises(ValueError, match="read-only"):
            table[0, 0] = 7


def test_what_makes_no_difference_is_the_same_window():
    assert Window((5, 5), (1, 5), (3, 1), stride=(2, 1), dilation=(1, 3)) == Window((5, 5), (1, 5), (3, 1))
    assert Window((5, 5), (2, 5), (3, 1), stride=(2, 1)) != Window((5, 5), (2, 5), (3, 1))
    assert str(Window((5, 5), (5, 5), (3, 3), before=(1, 1))) == "3x3"
    assert str(Window((9, 9), (3, 3), (3, 2), stride=(2, 2), dilation=(2, 1))) == "3x2 stride 2 dilation 2x1"


@pytest.mark.parametrize(
    "change",
    [
        {"inputs": (0, 3)},
        {"outputs": (3, 0)},
        {"size": (-1, 3)},
        {"stride": (0, 1)},
        {"dilation": (1, 0)},
        {"before": (-1, 0)},
        {"stride": (2**20 + 1, 1)},
        {"before": (0, 2**21)},
        {"inputs": (2**14, 2**14)},
        {"outputs": (2**14, 2**14)},
    ],
)
def test_windows_that_make_no_sense_are_refused(change):
    usual = {"inputs": (3, 3), "outputs": (3, 3), "size": (3, 3)}
    Window(**usual)
    with pytest.raises(InputError, match="window"):
        Window(**{**usual, **change})


@pytest.mark.parametrize(
    ("inputs", "size", "more"),
    [
        ((3, 3), (4, 1), {}),
        ((3, 3), (1, 4), {}),
        ((3, 3), (2, 2), {"dilation": (3, 1)}),
        ((3, 3), (3, 3), {"pads": (0, 0, -1, 0)}),
        ((3, 3), (3, 3), {"stride": (0, 1)}),
        ((3, 3), (3, 3), {"dilation": (0, 1)}),
        ((0, 3), (3, 3), {"pads": (2, 2, 2, 2)}),
        ((3, 3), (0, 3), {}),
    ],
)
def test_windows_that_do_not_fit_once_are_refused(inputs, size, more):
    with pytest.raises(InputError, match="window"):
        Window.padded(inputs, size, **more)


@st.composite
def geometries(draw, most_padding):
    """(inputs, size, stride, dilation, before, after) of a window that fits once at least, along both axes."""
    found = []
    for _ in range(2):
        size, stride, dilation = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(1, 3))
        before, after = (draw(st.integers(0, most_padding(size))) for _ in range(2))
        least = max(1, dilation * (size - 1) + 1 - before - after)
        found.append((draw(st.integers(least, least + 6)), size, stride, dilation, before, after))
    return tuple(zip(*found, strict=True))


def fits_alike(inputs, size, dilation, both_sides):
    """Whether it does with the same padding before and behind, which is all that torch knows."""
    return all(inputs[k] + 2 * both_sides[k] >= dilation[k] * (size[k] - 1) + 1 for k in (0, 1))


def whole_numbers(shape, seed):
    return np.random.default_rng(seed).integers(-8, 9, shape).astype(np.float32)


def exact_outputs(made, x):
    """Of one input, in the shape of a framework's output."""
    found = to_rows(made.exactly(RationalMatrix.from_floats(x.reshape(-1, 1))))
    return np.array([float(y) for (y,) in found]).reshape(made.out_shape)


def largest(window, x):
    """A maximum pool by the table: of each channel, over what is there."""
    grid = np.concatenate([x.reshape(x.shape[0], -1), np.full((x.shape[0], 1), -np.inf)], axis=1)
    return grid[:, window.table].max(axis=1).reshape(x.shape[0], *window.outputs)


@given(geometry=geometries(lambda size: 3), groups=st.integers(1, 2), seed=seeds())
def test_convolutions_are_those_of_torch(geometry, groups, seed):
    """Sizes and values: integers so small that floats are exact."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    inputs, size, stride, dilation, before, _ = geometry
    assume(fits_alike(inputs, size, dilation, before))
    window = Window.padded(inputs, size, stride, dilation, (*before, *before))
    x, weights = whole_numbers((2, *inputs), seed), whole_numbers((2, 2 // groups, *size), seed + 1)
    made = Convolution(RationalMatrix.from_floats(weights.reshape(2, -1)), 2, window, groups)
    given_to = torch.from_numpy(x)[None], torch.from_numpy(weights)
    found = torch.nn.functional.conv2d(*given_to, stride=stride, dilation=dilation, padding=before, groups=groups)
    assert found[0].shape == made.out_shape
    assert (found[0].numpy() == exact_outputs(made, x)).all()


@example(geometry=((5, 5), (3, 2), (2, 3), (1, 1), (1, 1), (0, 0)), ceil=True, seed=1)
@given(geometry=geometries(lambda size: size // 2), ceil=st.booleans(), seed=seeds())
def test_pools_are_those_of_torch(geometry, ceil, seed):
    """The last window may begin within the padding before the input, and never beyond its end."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    inputs, size, stride, dilation, before, _ = geometry
    assume(fits_alike(inputs, size, dilation, before))
    window = Window.padded(inputs, size, stride, dilation, (*before, *before), ceil=ceil)
    x = whole_numbers((2, *inputs), seed)
    found = torch.nn.functional.max_pool2d(torch.from_numpy(x)[None], size, stride, before, dilation, ceil_mode=ceil)
    assert found[0].shape == (2, *window.outputs)
    assert (found[0].numpy() == largest(window, x)).all()


@settings(max_examples=40)
@given(geometry=geometries(lambda size: 3), groups=st.integers(1, 2), seed=seeds())
def test_convolutions_are_those_of_onnxruntime(geometry, groups, seed):
    """With other padding behind than before."""
    onnx_models = pytest.importorskip("tests.onnx_models")
    inputs, size, stride, dilation, before, after = geometry
    pads = (*before, *after)
    window = Window.padded(inputs, size, stride, dilation, pads)
    x, weights = whole_numbers((2, *inputs), seed), whole_numbers((2, 2 // groups, *size), seed + 1)
    made = Convolution(RationalMatrix.from_floats(weights.reshape(2, -1)), 2, window, groups)
    node = onnx_models.node("Conv", "x w", "y", strides=stride, dilations=dilation, pads=pads, group=groups)
    (found,) = run_onnx(onnx_models, node, {"w": weights}, x)
    assert found.shape == made.out_shape
    assert (found == exact_outputs(made, x)).all()


@settings(max_examples=60)
@given(geometry=geometries(lambda size: size - 1), ceil=st.booleans(), seed=seeds())
def test_pools_are_those_of_onnxruntime(geometry, ceil, seed):
    onnx_models = pytest.importorskip("tests.onnx_models")
    inputs, size, stride, dilation, before, after = geometry
    pads = (*before, *after)
    window = Window.padded(inputs, size, stride, dilation, pads, ceil=ceil)
    x = whole_numbers((2, *inputs), seed)
    node = onnx_models.node(
        "MaxPool", "x", "y", kernel_shape=size, strides=stride, dilations=dilation, pads=pads, ceil_mode=int(ceil)
    )
    (found,) = run_onnx(onnx_models, node, {}, x)
    assert found.shape == (2, *window.outputs)
    seen = (window.table >= 0).any(axis=0).reshape(window.outputs)  # of nothing at all the maximum is anything
    assert (found[:, seen] == largest(window, x)[:, seen]).all()


def run_onnx(onnx_models, node, constants, x):
    made = onnx_models.model([node], constants, shape=(1, *x.shape), opset=22)
    (found,) = onnx_models.session_of(made).run(None, {"x": x[None]})
    return found


# -- what is refused, and what they are called -----------------------------------------------------------------------


def ones(rows, columns):
    return RationalMatrix.filled((rows, columns), Fraction(1))


SMALL = Window((3, 3), (3, 3), (1, 1))


@pytest.mark.parametrize(
    "make",
    [
        lambda: Convolution(ones(2, 3), 4, SMALL),
        lambda: Convolution(ones(2, 4), 4, SMALL, 0),
        lambda: Convolution(ones(2, 1), 3, SMALL, 2),
        lambda: Convolution(ones(3, 2), 4, SMALL, 2),
        lambda: Convolution(ones(2, 4), 4, SMALL, 2),
        lambda: Dense(ones(2, 3), (2,)),
        lambda: Dense(ones(2, 3), (3,), (3,)),
        lambda: ChannelWise(ones(2, 3), (2, 3), (3, 2)),
        lambda: ChannelWise(ones(2, 3), (2, 2), (2, 2)),
        lambda: IndexMap(np.array([0, 2]), (2,), (2,)),
        lambda: IndexMap(np.array([0, -2]), (2,), (2,)),
        lambda: IndexMap(np.array([0, 1]), (2,), (3,)),
        lambda: IndexMap(np.array([[0, 1]]), (2,), (2,)),
        lambda: IndexMap(np.array([0, 1]), (2,), (2,), ones(1, 1)),
        lambda: IndexMap(np.array([0, 1]), (2,), (2,), ones(2, 2)),
    ],
)
def test_maps_that_do_not_fit_together_are_refused(make):
    with pytest.raises(InputError):
        make()


def test_maps_that_do_not_follow_each_other_are_refused():
    for first in (identity((3,)), identity((1,))):
        with pytest.raises(ValueError, match="columns"):
            IndexMap(np.array([0, 1]), (2,), (2,)).after(first)


def test_an_index_map_is_not_changed_from_outside():
    index = np.array([0, 1])
    made = IndexMap(index, (2,), (2,))
    index[0] = 1
    assert made.is_identity
    assert made.index.tolist() == [0, 1]
    with pytest.raises(ValueError, match="read-only"):
        made.index[0] = 1


def test_large_maps_are_not_unrolled(monkeypatch):
    monkeypatch.setattr(linear_maps, "MAX_DENSE", 80)
    made = Convolution(ones(1, 1), 1, SMALL)
    assert not made.is_small
    with pytest.raises(InputError, match="too large"):
        made.dense()
    assert Dense(ones(9, 9)).dense().shape == (9, 9), "it is there"


def test_maps_that_differ_have_other_words_or_numbers():
    """All that a map is goes into its identity: whatever is changed, it is another one."""
    window = Window((4, 4), (2, 2), (2, 2), (2, 2))
    kernel = ones(2, 4)
    some = [
        Convolution(kernel, 2, window, 2),
        Convolution(ones(2, 8), 2, window),
        *(Convolution(kernel, 2, replace(window, **change), 2) for change in CHANGES),
        Dense(kernel),
        ChannelWise(kernel, (2, 4), (2, 2)),
        ChannelWise(kernel, (3, 4), (3, 2)),
        identity((4,)),
        IndexMap(np.array([0, 1, 2, 2]), (4,), (4,)),
        IndexMap(np.array([0, 1, 2, 3]), (5,), (4,)),
        IndexMap(np.array([0, 1, 2, 3]), (4,), (4,), ones(4, 1)),
    ]
    parts = [(words, tuple(map(str, map(to_rows, numbers)))) for words, numbers in (x.identity_parts for x in some)]
    assert len(set(parts)) == len(parts)
    assert all(repr(made).startswith(f"<{type(made).__name__} ") for made in some)
    assert shape_text((3, 4, 5)) == "3x4x5"
    assert "2 groups" in str(some[0])


CHANGES = [
    {"inputs": (4, 5)},
    {"inputs": (5, 4)},
    {"outputs": (2, 3)},
    {"outputs": (3, 2)},
    {"stride": (1, 2)},
    {"dilation": (2, 1)},
    {"before": (1, 0)},
]


@given(
    sets=both(st.integers(1, 3)).flatmap(lambda shape: st.tuples(*[rational_matrices(shape)] * 2)),
)
def test_sums_of_rationals(sets):
    x, y = sets
    expected = [[a + b for a, b in zip(*rows, strict=True)] for rows in zip(to_rows(x), to_rows(y), strict=True)]
    assert to_rows(sum_of(x, y)) == expected
    assert sum_of(x, None) is x
    with pytest.raises(ValueError, match="shapes"):
        sum_of(x, RationalMatrix.filled((x.shape[0], x.shape[1] + 1), Fraction(1)))
    with pytest.raises(ValueError, match="shapes"):
        sum_of(RationalMatrix.filled((4, 1), Fraction(1)), RationalMatrix.filled((1, 1), Fraction(1)))


@given(values=st.lists(both(st.floats(allow_nan=False, allow_infinity=False)), min_size=1, max_size=4))
@example(values=[(1e308, 1e308)])
@example(values=[(1.0, 2.0**-53)])
@example(values=[(-1e308, 1e308), (5e-324, -5e-324)])
def test_sums_of_floats_are_exact(values):
    """Also where they are no floats any more."""
    one, other = (np.array(part)[:, None] for part in zip(*values, strict=True))
    found = sum_of(RationalMatrix.from_floats(one), RationalMatrix.from_floats(other))
    assert to_rows(found) == [[Fraction(x) + Fraction(y)] for x, y in values]


def test_where_floats_are_not_as_they_should_be_integers_are_added(monkeypatch):
    """A processor that flushes small sums to zero would leave no trace of what was lost."""
    one, other = (RationalMatrix.from_floats(np.array([[x]])) for x in (2.0**-1060, 2.0**-1061))
    assert sum_of(one, other)._integers is None
    monkeypatch.setattr(linear_maps, "arithmetic_fault", lambda: "a fault")
    found = sum_of(one, other)
    assert found._integers is not None
    assert found[0, 0] == Fraction(3, 2**1061)
