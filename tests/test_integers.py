"""Integer matrices in limbs against plain Python loops, at the borders where a limb or a sum overflows."""

from fractions import Fraction
from random import Random

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from intervalcert.backends import integers
from intervalcert.backends.exact import ExactMatrix, ExactScalar
from intervalcert.backends.integers import Limbs, gram, product, python_integers
from intervalcert.numbers.rounding import float_enclosure

BITS = integers._LIMB
BORDERS = sorted(
    {
        sign * (2**power + offset)
        for sign in (-1, 1)
        for power in (0, 1, 21, 22, 23, 31, 32, 43, 44, 45, 53, 62, 63, 64, 65, 66, 87, 88, 107, 108, 128)
        for offset in (-1, 0, 1)
    }
)
NUMBERS = st.one_of(
    st.sampled_from(BORDERS), st.integers(-5, 5), st.integers(-(2**40), 2**40), st.integers(-(2**300), 2**300)
)

SIDES = st.integers(1, 3)


def integer_array(rows):
    array = np.empty((len(rows), len(rows[0])), dtype=object)
    for i, row in enumerate(rows):
        array[i, :] = row
    return array


def in_limbs(rows):
    """The numbers in limbs, with the invariants checked."""
    return checked(integers._limbs(integer_array(rows)))


def checked(made):
    assert isinstance(made, Limbs)
    *lower, top = made.words
    assert made.words.dtype == np.int64
    assert all((limb >= 0).all() and (limb < 2**BITS).all() for limb in lower)
    assert (top >= -(2 ** (BITS - 1))).all()
    assert (top < 2 ** (BITS - 1)).all()
    largest = max(map(int.bit_length, (x if x >= 0 else ~x for x in python_integers(made).ravel().tolist())))
    assert len(made.words) == largest // BITS + 1, "a superfluous limb"
    return made


def numbers(made):
    """The numbers of a result, Python integers, which do not overflow later either."""
    if isinstance(made, Limbs):
        checked(made)
    found = python_integers(made)
    assert all(type(x) is int for x in found.ravel().tolist())
    return found.tolist()


def plain_product(a, b):
    return [[sum(x * y for x, y in zip(row, column, strict=True)) for column in zip(*b, strict=True)] for row in a]


def check(a, b):
    """Both products, of Python integers and of limbs."""
    left, right = integer_array(a), integer_array(b)
    transposed = [list(column) for column in zip(*a, strict=True)]
    assert numbers(product(left, right)) == plain_product(a, b), f"a = {a}\nb = {b}"
    assert numbers(gram(left)) == plain_product(a, transposed), f"a = {a}"
    assert numbers(gram(left.T)) == plain_product(transposed, a), f"a = {a}"
    if (limbs := integers._limbs(left)) is not None:
        assert numbers(product(limbs, right)) == plain_product(a, b), f"a = {a}\nb = {b}"
        assert numbers(gram(limbs.T)) == plain_product(transposed, a), f"a = {a}"


@st.composite
def grids(draw, height=SIDES, width=SIDES):
    rows, columns = draw(height), draw(width)
    return draw(st.lists(st.lists(NUMBERS, min_size=columns, max_size=columns), min_size=rows, max_size=rows))


@st.composite
def factors(draw):
    inner = st.just(draw(st.integers(1, 3)))
    return draw(grids(width=inner)), draw(grids(height=inner))


# -- to limbs and back -----------------------------------------------------------------------------------------------


@given(rows=grids())
@example(rows=[[0]])
@example(rows=[[-1, 0]])
@example(rows=[[2**21 - 1, -(2**21)]])  # still one limb
@example(rows=[[2**63 - 1, -(2**63)]])  # still a word
def test_limbs_are_the_numbers(rows):
    made = in_limbs(rows)
    assert numbers(made) == rows
    assert made.shape == (len(rows), len(rows[0]))
    assert numbers(made.T) == [list(column) for column in zip(*rows, strict=True)]


@pytest.mark.parametrize("x", BORDERS)
def test_every_border_value(x):
    assert numbers(in_limbs([[x]])) == [[x]]
    assert numbers(in_limbs([[x, 0, -1]])) == [[x, 0, -1]]


def test_too_long_numbers_have_no_limbs():
    most = 2 ** (BITS * integers._MAX_LIMBS)
    assert integers._limbs(integer_array([[most // 2 - 1, -most // 2]])) is not None
    assert integers._limbs(integer_array([[most**2]])) is None


# -- products --------------------------------------------------------------------------------------------------------


@given(pair=factors())
@example(pair=([[0]], [[0]]))
@example(pair=([[-1]], [[-1]]))
def test_products_are_exact(pair):
    check(*pair)


@pytest.mark.parametrize("x", BORDERS)
def test_every_pair_of_border_values(x):
    """One row of one border value against all of them: sums that carry across limbs and change sign."""
    check([[x], [-x], [x + 1]], [BORDERS])


@pytest.mark.parametrize("value", [2**21 - 1, 2**21, 2**22 - 1, 2**22, 2**43 - 1, 2**44, 2**65 - 1, -(2**21), -(2**22)])
@pytest.mark.parametrize("inner", [1, 255, 256, 700])
def test_all_entries_extreme(value, inner):
    """Every limb full and many terms: the largest sums that a limb product can have."""
    a = integer_array([[value] * inner, [-value] * inner])
    expected = inner * value * value
    signs = [[expected, -expected], [-expected, expected]]
    assert numbers(gram(a)) == signs
    assert numbers(product(a, a.T)) == signs
    mixed = integer_array([[value * (-1) ** k for k in range(inner)]])
    assert numbers(product(a, mixed.T)) == [[value * value * (inner % 2)], [-value * value * (inner % 2)]]


@pytest.mark.parametrize("inner", [510, 511, 512, 513, 1023, 1024, 1025, 1535, 4001])
def test_sums_at_the_limit_of_float64(inner):
    """512 terms of (2^22 - 1)² in the lower limbs are just below 2^53: the most that is allowed in one sum."""
    value = 2**65 - 1  # limbs 0x3FFFFF, 0x3FFFFF, 0x1FFFFF
    a = np.full((2, inner), value, dtype=object)
    a[1, 0] = value - 1  # one odd term more or less, which a rounded sum would lose
    expected = [[inner * value**2, inner * value**2 - value], [inner * value**2 - value, 0]]
    expected[1][1] = (inner - 1) * value**2 + (value - 1) ** 2
    assert numbers(gram(a)) == expected
    assert numbers(product(a, a.T)) == expected


def test_the_sums_in_float64_are_as_long_as_they_may_be():
    """Not one bit more: with sums of twice the length, the largest is beyond 2^53, and odd."""
    assert integers._INNER * (2**BITS - 1) ** 2 <= 2**53 < 2 * integers._INNER * (2**BITS - 1) ** 2


@pytest.mark.parametrize("inner", [12 * 512, 12 * 512 + 512])
def test_sums_at_the_limit_of_int64(inner):
    """40 limbs and 12 blocks of 512: 480 products, of 2^53 each, in one sum. One block more goes to Python."""
    value = 2 ** (BITS * integers._MAX_LIMBS - 1) - 1
    a = np.full((1, inner), value, dtype=object)
    a[0, 1] = -value
    limbs = integers._limbs(a)
    assert integers._summable(limbs, limbs) == (inner == 12 * 512)
    assert numbers(gram(a)) == [[inner * value**2]]
    ones = np.full((inner, 1), 1, dtype=object)
    assert numbers(product(a, ones)) == [[(inner - 2) * value]]


def test_more_sums_than_int64_can_hold_go_to_python(monkeypatch):
    assert integers._MAX_SUMS * 2**53 + 2**42 <= 2**63 - 2**42
    monkeypatch.setattr(integers, "_MAX_SUMS", 2)
    monkeypatch.setattr(integers, "_carried", lambda *_: pytest.fail("limbs in spite of too many sums"))
    monkeypatch.setattr(integers, "_limbs", lambda a: a)
    long = Limbs(np.ones((3, 1, 1), dtype=np.int64))
    x = 1 + 2**BITS + 4**BITS
    assert gram(long).tolist() == product(long, long).tolist() == [[x * x]]


@pytest.mark.parametrize("bits", [22 * 40 - 2, 22 * 40 - 1, 22 * 40, 22 * 40 + 1, 22 * 40 + 70, 2000, 20_000])
def test_sizes_around_the_most_limbs(bits):
    """Up to 40 limbs are multiplied in floats; beyond that Python's own products take over."""
    check([[2**bits - 1, -(2**bits)], [1, 2**bits + 1]], [[-(2**bits) + 1, 3], [2**bits, -1]])


def test_products_of_products_of_products():
    """Longer and longer limbs, until Python takes over."""
    made = integer_array([[3, -5, 2**21], [7, 2**22 - 1, -1]])
    rows = made.tolist()
    for step in range(8):
        rows, made = plain_product(rows, [list(column) for column in zip(*rows, strict=True)]), gram(made)
        assert numbers(made) == rows, step
    assert not isinstance(made, Limbs)


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
    assert numbers(product(a.T, a)) == numbers(gram(a.T)) == expected
    limbs = integers._limbs(a)
    limbs.words.setflags(write=False)
    assert numbers(gram(limbs.T)) == expected
    assert numbers(limbs.rounded(3)[0]) == [[(x + 4) >> 3 for x in row] for row in a.tolist()]


# -- sums of squares -------------------------------------------------------------------------------------------------


@given(rows=grids())
def test_sums_of_squares_are_exact(rows):
    assert in_limbs(rows).sum_of_squares() == sum(x * x for row in rows for x in row)


@pytest.mark.parametrize("value", [2**65 - 1, -(2**65), 1 - 2**44, -(2**21), 2**43 - 1])
@pytest.mark.parametrize("count", [1, 511, 512, 513, 1024, 5000])
def test_sums_of_squares_at_the_limit_of_float64(value, count):
    rows = [[value] * count]
    rows[0][-1] += 1
    assert in_limbs(rows).sum_of_squares() == (count - 1) * value**2 + (value + 1) ** 2


# -- rounding --------------------------------------------------------------------------------------------------------


def check_rounding(rows, shift):
    found, moved = in_limbs(rows).rounded(shift)
    expected = [[(2 * x + 2**shift) // 2 ** (shift + 1) for x in row] for row in rows]  # ties upwards
    assert numbers(found) == expected, (rows, shift)
    squares = ((x - q * 2**shift) ** 2 for u, v in zip(rows, expected, strict=True) for x, q in zip(u, v, strict=True))
    assert moved == sum(squares), (rows, shift)


@given(rows=grids(), shift=st.integers(1, 400))
@example(rows=[[0]], shift=1)
@example(rows=[[-1, 1, -3, 3]], shift=1)  # ties
@example(rows=[[-1, 1]], shift=2)
@example(rows=[[2**21 - 1, -(2**21)]], shift=300)  # everything is rounded away
@example(rows=[[2**65 - 1, 2**65]], shift=1)  # a carry through all limbs
def test_rounding_is_that_of_integers(rows, shift):
    check_rounding(rows, shift)


@pytest.mark.parametrize("shift", [1, 2, 21, 22, 23, 43, 44, 45, 64, 65, 66, 67, 109, 110, 111, 130])
def test_rounding_at_the_borders_of_limbs(shift):
    """Every border value, ties on both sides of zero, and their neighbours, at shifts on and beside whole limbs."""
    half = 2 ** (shift - 1)
    ties = [half * k + offset for k in (-3, -2, -1, 0, 1, 2, 3, 5) for offset in (-1, 0, 1)]
    check_rounding([BORDERS + ties], shift)
    for x in BORDERS + ties:
        check_rounding([[x]], shift)


def test_rounding_many_entries():
    """More than fit into one sum, with every low bit set: the largest sums of squares."""
    for shift in (22, 64, 66):
        check_rounding([[(5 << shift) + (1 << (shift - 1)) - 1] * 300] * 4, shift)
        check_rounding([[-(5 << shift) - (1 << (shift - 1))] * 300] * 4, shift)


# -- over a denominator ----------------------------------------------------------------------------------------------


@given(
    rows=grids(),
    denominator=st.one_of(st.integers(0, 200).map(lambda k: 2**k), st.integers(1, 10**30)),
    bits=st.integers(0, 80),
    exponent=st.integers(-200, 200),
)
@example(rows=[[5, -5]], denominator=2**64, bits=64, exponent=0)  # on the grid already
@example(rows=[[5, -5]], denominator=3, bits=1, exponent=0)
@example(rows=[[5, -5]], denominator=2**10 * 3, bits=1, exponent=12)
def test_exact_matrices_of_limbs_and_of_integers_are_alike(rows, denominator, bits, exponent):
    """Rounding, scaling and all else have two ways each; and both are compared with fractions."""
    plain, limbs = ExactMatrix(integer_array(rows), denominator), ExactMatrix(in_limbs(rows), denominator)
    entries = [Fraction(x, denominator) for row in rows for x in row]
    grid = [Fraction((2 * x.numerator * 2**bits + x.denominator) // (2 * x.denominator), 2**bits) for x in entries]
    for made in (plain, limbs):
        assert made.shape == (len(rows), len(rows[0]))
        assert values(made) == entries
        assert made.frobenius_squared().value == sum(x * x for x in entries)
        assert values(made.ldexp(exponent)) == [x * Fraction(2) ** exponent for x in entries]
        assert values(made.scalar_mul(ExactScalar(Fraction(-7, 3)))) == [x * Fraction(-7, 3) for x in entries]
        assert values(made - plain) == [0] * len(entries)
        most, width = made.shape
        back = np.arange(width)[::-1]
        assert values(made.block(np.array([most - 1]), back)) == entries[-width:][::-1]
        assert values(made.block(np.arange(most), np.array([0]))) == entries[::width]
        assert values(made.diag_scaled(np.full(most, -0.75), np.full(width, 2.0**-1074))) == [
            x * Fraction(-3, 4) * Fraction(2) ** -1074 for x in entries
        ]
        assert values(made.positive_part()) == [max(x, Fraction(0)) for x in entries]
        assert [[Fraction(x) for x in end.ravel()] for end in made.float_bounds()] == [
            [Fraction(x) for x in end] for end in zip(*(float_enclosure(x, x) for x in entries), strict=True)
        ]
        moved, error = made.rounded(bits)
        assert values(moved) == grid
        assert error.value == sum((x - y) ** 2 for x, y in zip(entries, grid, strict=True))
        assert values(made @ plain.gram()) == values(plain @ limbs.gram()) if len(rows) == len(rows[0]) else True


def values(matrix):
    return [Fraction(x, matrix.denominator) for x in matrix.numerators.ravel().tolist()]


def test_a_chain_of_grams_stays_in_limbs():
    """What makes the reference fast: no Python integer between one product and the next."""
    random = Random(3)
    made = ExactMatrix(integer_array([[random.getrandbits(30) - 2**29 for _ in range(9)] for _ in range(9)]), 2**40)
    for _ in range(4):
        made, _ = made.gram().ldexp(-1).rounded(64)
        assert isinstance(made.integers, Limbs)
        assert len(made.integers.words) <= 3
