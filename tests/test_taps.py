"""A convolution cut into taps and lines: put together again, it is the convolution, number by number."""

from fractions import Fraction
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from intervalcert.model.linear_maps import Convolution
from intervalcert.model.taps import axis_taps, looks, taps_of, unrolled
from intervalcert.model.windows import Window
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.proof.banded import line_blocks, lines


def random_window(random, most=5):
    """Windows of all kinds: larger than the input, far outside of it, ragged at the end, of one dimension."""

    def pair(low, high):
        return random.randint(low, high), random.randint(low, high)

    inputs = random.choice([pair(1, most), (1, random.randint(1, most)), (random.randint(1, most), 1)])
    return Window(inputs, pair(1, 4), pair(1, 4), pair(1, 3), pair(1, 2), pair(0, random.choice([0, 1, 5])))


def random_convolution(random, window=None, channels=3):
    window = random_window(random) if window is None else window
    before, after = random.randint(1, channels), random.randint(1, channels)
    kind = random.choice(["integers", "decimals", "low-pass", "floats", "few"])

    def number():
        if kind == "integers":
            return Fraction(random.randint(-9, 9))
        if kind == "decimals":
            return Fraction(random.randint(-999, 999), 100)
        if kind == "low-pass":
            return 1 + Fraction(random.randint(0, 9), 64)
        return Fraction(random.gauss(0, 1)) if kind == "floats" else Fraction(random.choice([0, 0, 0, 1]))

    rows = [[number() for _ in range(before * window.taps)] for _ in range(after)]
    return Convolution(RationalMatrix.from_fractions(rows), before, window)


def plain_matrix(convolution):
    """Its matrix as rows of fractions, from the definition alone."""
    window, kernel = convolution.window, convolution.kernel
    (h, w), (oh, ow), (kh, kw) = window.inputs, window.outputs, window.size
    outputs, channels = kernel.shape[0], convolution.channels
    rows = [[Fraction(0)] * (channels * h * w) for _ in range(outputs * oh * ow)]
    for o in range(outputs):
        for y in range(oh):
            for x in range(ow):
                for c in range(channels):
                    for u in range(kh):
                        for v in range(kw):
                            i = window.stride[0] * y + window.dilation[0] * u - window.before[0]
                            j = window.stride[1] * x + window.dilation[1] * v - window.before[1]
                            if 0 <= i < h and 0 <= j < w:
                                value = kernel[o, (c * kh + u) * kw + v]
                                rows[(o * oh + y) * ow + x][(c * h + i) * w + j] += value
    return rows


convolutions = st.integers(0, 10**9).map(lambda seed: random_convolution(Random(seed)))


@given(convolution=convolutions)
def test_the_package_unrolls_as_the_definition_says(convolution):
    assert convolution.dense() == RationalMatrix.from_fractions(plain_matrix(convolution))


@given(convolution=convolutions)
def test_taps_are_the_convolution(convolution):
    """y_i = Σ_t K_t·x_{i+t} on the coarser grid: the columns that exist are those of the map, in another order."""
    taps, expected = taps_of(convolution), plain_matrix(convolution)
    (rows, columns), (h, w) = taps.axes, convolution.window.inputs
    outputs, channels = convolution.kernel.shape[0], convolution.channels
    found = [[Fraction(0)] * len(expected[0]) for _ in expected]
    phases = [(p, q) for p in rows.phases for q in columns.phases]
    for (t, s), matrix in taps.matrices.items():
        assert matrix.shape == (outputs, len(phases) * channels)
        for y in range(rows.outputs):
            for x in range(columns.outputs):
                if not (0 <= y + t < rows.inputs and 0 <= x + s < columns.inputs):
                    continue
                for index, (p, q) in enumerate(phases):
                    i, j = rows.stride * (y + t) + p, columns.stride * (x + s) + q
                    if i >= h or j >= w:
                        continue  # an input that is missing
                    for o in range(outputs):
                        for c in range(channels):
                            place = (o * rows.outputs + y) * columns.outputs + x
                            found[place][(c * h + i) * w + j] += matrix[o, index * channels + c]
    assert found == expected


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("by_outputs", [True, False])
@given(convolution=convolutions)
def test_lines_are_the_convolution(axis, by_outputs, convolution):
    """Block (i, j) is B_u, with the numbers of a line ordered by place and then by channel."""
    window, expected = convolution.window, plain_matrix(convolution)
    outputs, channels = convolution.kernel.shape[0], convolution.channels
    blocks = line_blocks(convolution, axis)

    def place(line, across, channel, grid):
        y, x = (line, across) if axis == 0 else (across, line)
        return (channel * grid[0] + y) * grid[1] + x

    found = [[Fraction(0)] * len(expected[0]) for _ in expected]
    for r, row in enumerate(lines(convolution, axis, by_outputs)):
        for k, u in row.items():
            i, j = (r, k) if by_outputs else (k, r)
            if u not in blocks:
                assert not blocks
                continue
            for a in range(window.outputs[1 - axis]):
                for b in range(window.inputs[1 - axis]):
                    for o in range(outputs):
                        for c in range(channels):
                            value = blocks[u][a * outputs + o, b * channels + c]
                            found[place(i, a, o, window.outputs)][place(j, b, c, window.inputs)] += value
    assert found == expected


@given(seed=st.integers(0, 10**9))
def test_looks_are_all_there_is(seed):
    window = random_window(Random(seed))
    for axis in (0, 1):
        expected = {
            (i, window.stride[axis] * i + window.dilation[axis] * u - window.before[axis], u)
            for i in range(window.outputs[axis])
            for u in range(window.size[axis])
        }
        assert sorted(looks(window, axis)) == sorted((i, j, u) for i, j, u in expected if 0 <= j < window.inputs[axis])


def test_offsets_of_a_strided_window():
    """DESIGN: o = u·dilation - before, t = floor(o/s), p = o mod s."""
    taps = axis_taps(Window((14, 14), (7, 7), (4, 4), (2, 2), (1, 1), (1, 1)), 0)
    assert taps.places == {(-1, 1): 0, (0, 0): 1, (0, 1): 2, (1, 0): 3}
    assert (taps.inputs, taps.outputs, taps.offsets, taps.phases) == (7, 7, (-1, 0, 1), (0, 1))


@pytest.mark.parametrize(
    "window",
    [
        Window((8, 8), (8, 8), (1, 1)),
        Window((7, 9), (4, 5), (1, 1), (2, 2)),
        Window((8, 9), (4, 3), (2, 3), (2, 3)),
        Window((6, 6), (1, 1), (5, 5), before=(1, 1)),
        Window((1, 1), (1, 1), (3, 3), before=(1, 1)),
    ],
)
def test_where_there_is_a_single_offset(window):
    assert [len(axis_taps(window, axis).offsets) for axis in (0, 1)] == [1, 1]


def test_a_convolution_in_groups_is_refused():
    convolution = Convolution(RationalMatrix.from_floats(np.ones((2, 1))), 2, Window((2, 2), (2, 2), (1, 1)), 2)
    with pytest.raises(ValueError, match="groups"):
        unrolled(convolution, np.array([[0]]))


def test_a_division_that_rounds_to_zero_is_caught(monkeypatch):
    """The control: t = o/s rounded towards zero puts padded places into the wrong phase."""
    convolution = random_convolution(Random(1), Window((6, 6), (3, 3), (3, 3), (2, 2), (1, 1), (1, 1)))

    def towards_zero(o, stride):
        t = int(Fraction(o, stride))
        return t, o - stride * t

    monkeypatch.setattr("intervalcert.model.taps.divmod", towards_zero, raising=False)
    with pytest.raises((AssertionError, IndexError)):
        test_taps_are_the_convolution.hypothesis.inner_test(convolution)
