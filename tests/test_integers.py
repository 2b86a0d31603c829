"""Integer products in limbs of float64 against plain Python loops, at the borders where a limb or a sum overflows."""

from random import Random

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from intervalcert.backends import integers
from intervalcert.backends.integers import gram, matmul

BORDERS = sorted(
    {
        sign * (2**power + offset)
        for sign in (-1, 1)
        for power in (0, 1, 15, 16, 17, 31, 32, 47, 48, 53, 63, 64, 127, 128)
        for offset in (-1, 0, 1)
    }
)


def integer_array(rows):
    array = np.empty((len(rows), len(rows[0])), dtype=object)
    for i, row in enumerate(rows):
        array[i, :] = row
    return array


def plain_product(a, b):
    return [[sum(x * y for x, y in zip(row, column, strict=True)) for column in zip(*b, strict=True)] for row in a]


def check(a, b):
    """Both products, and that the results are Python integers, which do not overflow later either."""
    left, right = integer_array(a), integer_array(b)
    found = matmul(left, right)
    assert found.tolist() == plain_product(a, b), f"a = {a}\nb = {b}"
    assert all(type(x) is int for x in found.ravel().tolist())
    transposed = [list(column) for column in zip(*a, strict=True)]
    assert gram(left).tolist() == plain_product(a, transposed), f"a = {a}"
    assert gram(left.T).tolist() == plain_product(transposed, a), f"a = {a}"


NUMBERS = st.one_of(
    st.sampled_from(BORDERS), st.integers(-5, 5), st.integers(-(2**40), 2**40), st.integers(-(2**300), 2**300)
)


@st.composite
def factors(draw):
    rows, inner, columns = (draw(st.integers(1, 3)) for _ in range(3))

    def grid(height, width):
        return draw(st.lists(st.lists(NUMBERS, min_size=width, max_size=width), min_size=height, max_size=height))

    return grid(rows, inner), grid(inner, columns)


@given(pair=factors())
@example(pair=([[0]], [[0]]))
@example(pair=([[-1]], [[-1]]))
def test_products_are_exact(pair):
    check(*pair)


@pytest.mark.parametrize("x", BORDERS)
def test_every_pair_of_border_values(x):
    """One row of one border value against all of them: sums that carry across limbs and change sign."""
    check([[x], [-x], [x + 1]], [BORDERS])


@pytest.mark.parametrize("value", [2**15 - 1, 2**15, 2**16 - 1, 2**16, 2**31, 2**32 - 1, 2**64 - 1, -(2**15), -(2**16)])
@pytest.mark.parametrize("inner", [1, 255, 256, 700])
def test_all_entries_extreme(value, inner):
    """Every limb full and many terms: the largest sums that a limb product can have."""
    a = integer_array([[value] * inner, [-value] * inner])
    expected = inner * value * value
    signs = [[expected, -expected], [-expected, expected]]
    assert gram(a).tolist() == signs
    assert matmul(a, a.T).tolist() == signs
    mixed = integer_array([[value * (-1) ** k for k in range(inner)]])
    assert matmul(a, mixed.T).tolist() == [[value * value * (inner % 2)], [-value * value * (inner % 2)]]


def test_a_sum_at_the_limit_of_float64():
    """2^21 terms of (2^16 - 1)² in the lowest limb: just below 2^53, the most that is allowed."""
    inner = integers._MAX_INNER
    value = 2**32 - 1  # limbs 0xFFFF, 0xFFFF and a sign limb
    a = np.full((1, inner), value, dtype=object)
    assert gram(a).tolist() == [[inner * value**2]]


def test_more_terms_than_float64_can_sum_go_to_python(monkeypatch):
    monkeypatch.setattr(integers, "_MAX_INNER", 4)
    monkeypatch.setattr(integers, "_split", lambda *_: pytest.fail("limbs in spite of too many terms"))
    a = integer_array([[3, -4, 5, 2**70, 1]])
    assert matmul(a, a.T).tolist() == gram(a).tolist() == [[9 + 16 + 25 + 2**140 + 1]]


@pytest.mark.parametrize("bits", [16 * 48 - 2, 16 * 48 - 1, 16 * 48, 16 * 48 + 1, 2000, 20_000])
def test_sizes_around_the_most_limbs(bits):
    """Up to 48 limbs are multiplied in floats; beyond that Python's own products take over."""
    check([[2**bits - 1, -(2**bits)], [1, 2**bits + 1]], [[-(2**bits) + 1, 3], [2**bits, -1]])


def test_full_limbs_in_the_most_sums():
    """48 limbs of ones, 200 terms: as many limb products as ever meet in one sum."""
    value, inner = 2 ** (16 * 48 - 1) - 1, 200
    a = np.full((2, inner), value, dtype=object)
    a[1] = -value
    expected = inner * value**2
    assert gram(a).tolist() == [[expected, -expected], [-expected, expected]]
    assert matmul(a, a.T).tolist() == [[expected, -expected], [-expected, expected]]


def test_unequal_sizes_and_shapes():
    random = Random(1)
    for rows, inner, columns in [(1, 1, 5), (5, 1, 1), (7, 40, 3), (2, 300, 2)]:
        a = [[random.randint(-9, 9) for _ in range(inner)] for _ in range(rows)]
        b = [[random.getrandbits(random.randint(1, 400)) - 2**100 for _ in range(columns)] for _ in range(inner)]
        check(a, b)


def test_views_and_read_only_arrays():
    a = integer_array([[1, -2, 2**40], [3, 4, -(2**70)]])
    a.setflags(write=False)
    expected = plain_product(a.T.tolist(), a.tolist())
    assert matmul(a.T, a).tolist() == gram(a.T).tolist() == expected
