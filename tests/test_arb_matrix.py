"""The matrices of `backends.arb`: a centre, a scale and a Frobenius ball, at the members where the bounds are reached.

The contract draws members at random, mostly well inside. Here they are on the border: an error along the largest
singular vector, entries that all move by half a step, bits that are all cut off.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from random import Random
from unittest.mock import patch

import flint
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import (
    excludes_zero,
    matrix_sets,
    minus,
    product,
    random_fraction,
    smaller_gram,
    sum_of_squares,
    to_rows,
    transposed,
)
from test_contract import System, check_inside

from intervalcert.backends import arb
from intervalcert.backends.arb import ArbBackend, ArbScalar
from intervalcert.backends.exact import ExactBackend
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.rounding import float_enclosure, sqrt_upper
from intervalcert.proof.norms import norm_upper

BACKEND = ArbBackend(64)


@pytest.fixture
def all_products_large(monkeypatch):
    """As if every side were wide: operands of products are cut to few bits."""
    monkeypatch.setattr(arb, "_NARROW", 0)


def exact(ball):
    mantissa, exponent = ball.man_exp()
    return int(mantissa) * Fraction(2) ** int(exponent)


def midpoints(mat):
    return [[exact(mat[i, j].mid()) for j in range(mat.ncols())] for i in range(mat.nrows())]


def parts(matrix):
    """(s, A, e) of a matrix whose scale is exact, A being midpoints; what radii there are is added to e."""
    assert matrix.scale.is_exact()
    radii = sqrt_upper(sum((exact(x.rad()) ** 2 for x in matrix.centre.mat.entries()), Fraction(0)), 64)
    return exact(matrix.scale), midpoints(matrix.centre.mat), exact(matrix.error) + radii


def distance_squared(matrix, rows):
    """||M/s - A||_F² for the matrix M = `rows`; M is a member if that is at most e²."""
    scale, centre, _ = parts(matrix)
    return sum_of_squares(minus([[x / scale for x in row] for row in rows], centre))


def over(matrix, divisor):
    """The set over a divisor: a scale that is no point, as wide as the divisor is."""
    return replace(matrix, scale=(ArbScalar(matrix.scale, matrix.bits) / divisor).ball)


def widened(rows, bits):
    """A set of matrices with a Frobenius error, and that error."""
    made, _ = BACKEND.matrix(RationalMatrix.from_fractions(rows)).rounded(bits)
    assert not made.error.is_zero()
    scale, _, error = parts(made)
    return made, error * abs(scale)


DIAGONAL = [[Fraction(3 - i if i == j else 0) for j in range(3)] for i in range(3)]  # norm 3, along the first axis


# -- the members on the border ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("shape", [(3, 3), (3, 5), (5, 3)])
def test_gram_contains_an_error_along_the_largest_singular_vector(shape, sign):
    """There the error of the product is 2·||A||·||E|| + ||E||², the whole of what `gram` allows for the norm ||A||."""
    rows = [[DIAGONAL[i][j] if i < 3 and j < 3 else Fraction(0) for j in range(shape[1])] for i in range(shape[0])]
    made, error = widened(rows, 40)
    member = [list(row) for row in rows]
    member[0][0] += sign * error
    found = made.gram()
    assert distance_squared(found, smaller_gram(member)) <= parts(found)[2] ** 2
    beyond = [list(row) for row in rows]
    beyond[0][0] += 2 * error
    assert distance_squared(found, smaller_gram(beyond)) > parts(found)[2] ** 2, "the check is vacuous"


@pytest.mark.parametrize(
    "row",
    [
        [Fraction(1, 2**32), Fraction(0)],  # an error as large as the matrix, sqrt(2)/2^34: its square counts
        [Fraction(Random(1).getrandbits(100) | 1, 2**100)],  # the norm of a square whose last bits are dropped
    ],
)
def test_gram_of_one_row_allows_no_more_than_what_an_error_does(row):
    """Of one row the Frobenius norm is the norm: nothing is left over that could hide a part of the error."""
    made, error = widened([row], 33)
    found = made.gram()
    for times in (1, -1, 2):
        member = [[row[0] + times * error, *row[1:]]]
        inside = distance_squared(found, smaller_gram(member)) <= parts(found)[2] ** 2
        assert inside == (times != 2)  # else the check is vacuous


def test_the_sum_of_squares_contains_an_error_along_the_matrix():
    rows = [[Fraction(3), Fraction(4), Fraction(0), Fraction(0), Fraction(0)]]
    made, error = widened(rows, 40)
    found = made.frobenius_squared()
    for sign in (1, -1):
        assert found.lower() <= (5 + sign * error) ** 2 <= found.upper()
        assert not found.lower() <= (5 + sign * 2 * error) ** 2 <= found.upper(), "the check is vacuous"


@pytest.mark.parametrize("divisor", [Fraction(1), Fraction(7, 3), Fraction(-1, 1000), Fraction(2) ** 300])
def test_rounding_contains_a_matrix_whose_entries_all_move_by_half_a_step(divisor):
    """Ties go upwards: each of nine entries moves by 2^-41, hence ||E||_F = 3·2^-41, all that is allowed."""
    tie = [[Fraction(2 * (i + j) + 1, 2**41) for j in range(3)] for i in range(3)]
    moved = [[x + Fraction(1, 2**41) for x in row] for row in tie]
    made = BACKEND.matrix(RationalMatrix.from_fractions([[x * divisor for x in row] for row in tie]))
    found, movement = over(made, BACKEND.scalar(divisor)).rounded(40)
    assert movement.lower() <= Fraction(9, 4**41) <= movement.upper()
    assert not excludes_zero(found - BACKEND.matrix(RationalMatrix.from_fractions(moved)))
    scale, centre, error = exact(found.scale.mid()), found.centre.mat, exact(found.error)
    radius = exact(found.scale.rad())
    gap = sum_of_squares([[moved[i][j] / scale - exact(centre[i, j].mid()) for j in range(3)] for i in range(3)])
    assert gap <= (error + radius) ** 2
    assert error * abs(scale) < Fraction(3, 2**41) * (1 + Fraction(1, 2**20)), "wider than half a step an entry"


@pytest.mark.parametrize("scale", [Fraction(1), Fraction(-1, 4), Fraction(2) ** 70])
def test_a_difference_adds_the_errors_each_in_its_scale(scale):
    """E along one entry in both: the difference moves by the sum of both errors, and by no more than that."""
    (left, first), (right, second) = widened(DIAGONAL, 40), widened(DIAGONAL, 43)
    found = left.scalar_mul(BACKEND.scalar(scale)) - right.scalar_mul(BACKEND.scalar(-scale))
    for sign in (1, -1):
        member = [[2 * scale * x for x in row] for row in DIAGONAL]
        member[1][2] += sign * abs(scale) * (first + second)
        assert distance_squared(found, member) <= parts(found)[2] ** 2
        member[1][2] += sign * abs(scale) * second
        assert distance_squared(found, member) > parts(found)[2] ** 2, "the check is vacuous"


def test_rounding_where_the_scale_may_be_zero():
    """1/[2^-15, 2^15] is enclosed by a ball around zero, which no error can be divided by."""
    rows = [[Fraction(i + j + 1) for j in range(3)] for i in range(3)]
    made = BACKEND.matrix(RationalMatrix.from_fractions(rows))
    divided = over(made, BACKEND.hull(Fraction(1, 2**15), Fraction(2) ** 15))
    assert divided.scale.contains(0)
    assert not excludes_zero(divided)
    assert divided.frobenius_squared().upper() > 0
    found, _ = divided.rounded(40)
    for divisor in (Fraction(1, 2**15), Fraction(1), Fraction(2) ** 15):
        member = [[Fraction(round(x / divisor * 2**40), 2**40) for x in row] for row in rows]
        assert not excludes_zero(found - BACKEND.matrix(RationalMatrix.from_fractions(member)))


def test_rounding_where_the_scale_is_zero():
    """Multiplied by the point 0: the entries are on the grid, and none is lost."""
    made = BACKEND.matrix(RationalMatrix.from_integers([[1, -2], [3, 4]])).scalar_mul(BACKEND.scalar(Fraction(0)))
    assert made.scale.contains(0)
    found, movement = made.rounded(40)
    assert not excludes_zero(found)
    assert movement.lower() <= 0 <= movement.upper()
    assert found.frobenius_squared().upper() <= Fraction(4 * 4, 4**41) * (1 + Fraction(1, 2**20))


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(("bits", "size"), [((33, 33), 2**-33), ((40, 40), 1), ((40, 90), 1), ((90, 40), 1)])
def test_a_product_contains_errors_along_the_largest_singular_vectors(bits, size, large, monkeypatch):
    """There the product moves by ||E||·||B|| + ||A||·||F|| + ||E||·||F||, all of what is allowed."""
    if large:
        monkeypatch.setattr(arb, "_NARROW", 0)
    rows = [[x * Fraction(size) for x in row] for row in DIAGONAL]
    (left, e), (right, f) = widened(rows, bits[0]), widened(rows, bits[1])
    found = left @ right
    for times in (1, -1, 2):
        members = [[list(row) for row in rows] for _ in range(2)]
        members[0][0][0] += times * e
        members[1][0][0] += times * f
        inside = distance_squared(found, product(*members)) <= parts(found)[2] ** 2
        assert inside == (times != 2)  # else the check is vacuous


def test_a_product_of_errors_alone_is_rounded_up():
    """sqrt(2)/2^34 and sqrt(6)/2^34, each rounded to 128 bits: their product has 256."""
    left, e = widened([[Fraction(0)] * 2], 33)
    right, f = widened([[Fraction(0)] * 3] * 2, 33)
    found = left @ right
    assert e * f < exact(found.error) * exact(found.scale) < e * f * (1 + Fraction(1, 2**120))


# -- the bits that are dropped ---------------------------------------------------------------------------------------


def integers(bits, shape, seed=0):
    random = Random(seed + bits)
    return [[Fraction(random.getrandbits(bits) - 2 ** (bits - 1)) for _ in range(shape[1])] for _ in range(shape[0])]


def of(rows, backend=BACKEND):
    return backend.matrix(RationalMatrix.from_fractions(rows))


def check_near(found, rows):
    """The matrix is a member, and would not be one without the error; which is small."""
    distance, (_, centre, error) = distance_squared(found, rows), parts(found)
    assert distance <= error**2
    beside = sqrt_upper(sum((exact(x.rad()) ** 2 for x in found.centre.mat.entries()), Fraction(0)), 64)
    assert distance > beside**2, "nothing was dropped: the check is vacuous"
    assert error**2 <= sum_of_squares(centre) / 4**40, "far too much was dropped"


@pytest.mark.parametrize("bits", [20, 40, 100, 1000])
@pytest.mark.parametrize("shape", [(1, 1), (4, 9), (9, 4), (16, 16)])
def test_what_gram_drops_before_the_next_step(bits, shape):
    rows = integers(bits, shape)
    found = of(rows).gram()
    part, lost = found.centre.short()
    assert all(x.is_exact() for x in part.entries())
    scaled = [[x / exact(found.scale) for x in row] for row in smaller_gram(rows)]
    distance, unit = sum_of_squares(minus(scaled, midpoints(part))), exact(found.centre.unit)
    assert distance <= exact(lost) ** 2
    assert exact(lost) <= unit * Fraction(2) ** (2 * min(shape).bit_length() - arb._WORD)
    assert (distance > 0) == (bits > 31), "nothing was dropped: the check is vacuous"
    for x in (x for row in midpoints(part) for x in row):
        assert abs(x) <= unit
        assert (x / unit * 2**arb._WORD).denominator == 1, "an entry that FLINT does not multiply as a machine word"


@pytest.mark.parametrize("grid", [None, 1000])
def test_what_gram_drops_is_in_the_error_of_the_next_step(grid):
    """Also beside an error of 2^-1000 that was there."""
    rows = integers(100, (5, 5))
    made = of(rows) if grid is None else of(rows).rounded(grid)[0]
    check_near(made.gram().gram(), smaller_gram(smaller_gram(rows)))


@pytest.mark.usefixtures("precision")
def test_what_gram_drops_is_in_its_sum_of_squares():
    rows = integers(100, (5, 5))
    made = of(rows).gram()
    found, expected = made.frobenius_squared(), sum_of_squares(smaller_gram(rows))
    assert found.lower() <= expected <= found.upper()
    square, _ = made.centre.squared()
    beside = square.trace() * made.scale * made.scale
    assert abs(exact(beside.mid()) - expected) > exact(beside.rad()), "nothing was dropped: the check is vacuous"


@pytest.mark.usefixtures("all_products_large")
@pytest.mark.parametrize("shape", [(5, 5), (4, 9), (9, 4)])
def test_what_a_large_product_drops_is_in_its_error(shape):
    """On either side alone, and on both."""
    long, short = integers(100, shape), integers(20, shape)
    for a, b in ((long, transposed(short)), (short, transposed(long)), (long, transposed(long))):
        check_near(of(a) @ of(b), product(a, b))
    check_near(of(long).gram(), smaller_gram(long))
    turned = of(long).transposed()
    check_near(turned @ of(short), product(transposed(long), short))
    exactly = of(short) @ of(transposed(short))
    assert exactly.error.is_zero()
    assert distance_squared(exactly, product(short, transposed(short))) == 0


@pytest.mark.parametrize("shape", [(3, 8), (8, 3)])
@pytest.mark.parametrize("unit", [-30, 0, 5, 200])
def test_a_cut_covers_radii_and_entries_of_any_size(unit, shape):
    """Members at the ends of their balls, and a unit that is wrong either way."""
    random = Random(unit)
    entries = [flint.arb(random_fraction(random).numerator % 2**90, random.choice([0, 1, 2**20])) for _ in range(24)]
    mat = flint.arb_mat(*shape, entries)
    part, lost = arb._cut(mat, flint.arb((1, unit)), 128)
    assert exact(lost) >= 2**20
    for sign in (1, -1):
        gaps = [
            abs(exact(x.mid()) + sign * exact(x.rad()) - exact(p.mid()))
            for x, p in zip(entries, part.entries(), strict=True)
        ]
        beyond = [max(gap - exact(p.rad()), Fraction(0)) for gap, p in zip(gaps, part.entries(), strict=True)]
        assert sum(gap**2 for gap in beyond) <= exact(lost) ** 2


@given(
    sets=st.tuples(*[st.integers(1, 4)] * 3).flatmap(
        lambda sides: st.tuples(matrix_sets(sides[:2]), matrix_sets(sides[1:]))
    )
)
def test_large_products_obey_the_law(sets):
    a, b = sets
    for prec in (16, 64):
        system = System(ArbBackend(prec), generic=False)
        with patch.object(arb, "_NARROW", 0):
            check_inside(system, a.on(system) @ b.on(system), product(a.point, b.point), "@", a=a, b=b)
            check_inside(system, a.on(system).gram(), smaller_gram(a.point), "gram", a=a)


def test_large_products_are_narrow():
    """As large as they are in fact, without a pretence: the error is some 2^-50 of the result."""
    random = np.random.default_rng(1)
    left, right = (random.standard_normal((arb._NARROW + 1,) * 2) for _ in range(2))
    found = BACKEND.matrix(RationalMatrix.from_floats(left)) @ BACKEND.matrix(RationalMatrix.from_floats(right))
    a, b = (to_rows(RationalMatrix.from_floats(x)) for x in (left, right))
    check_near(found, product(a, b))
    assert parts(found)[2] ** 2 <= sum_of_squares(parts(found)[1]) / 4**46


def test_gram_of_mixed_scales():
    """Tiny entries vanish beside huge ones, into the error; alone they do not."""
    huge, tiny = Fraction(2) ** 1000, Fraction(1, 2**1070)
    for rows in ([[huge, tiny], [tiny, -tiny], [tiny, huge]], [[tiny, tiny], [3 * tiny, tiny]], [[huge, 0], [0, tiny]]):
        found = BACKEND.matrix(RationalMatrix.from_fractions([list(map(Fraction, row)) for row in rows])).gram()
        assert distance_squared(found, smaller_gram(rows)) <= parts(found)[2] ** 2
        assert excludes_zero(found)


def test_gram_of_zero_is_zero():
    found = BACKEND.matrix(RationalMatrix.from_integers([[0, 0, 0]] * 5)).gram()
    assert found.error.is_zero()
    assert found.frobenius_squared().upper() == 0
    assert found.gram().frobenius_squared().upper() == 0


def test_gram_of_balls_of_any_width():
    """Radii far larger than the midpoints, so that entries of the product are beyond the unit."""
    ones = [[Fraction(1)] * 3] * 3
    made = BACKEND.matrix(RationalMatrix.from_fractions(ones))
    for width in (Fraction(1, 2**60), Fraction(1, 3), Fraction(100)):
        factor = BACKEND.hull(1 / (1 + width), 1 + width)
        for spread in (made.scalar_mul(factor) - made, over(made, factor) - made):
            for x in (1 / (1 + width) - 1, Fraction(0), width):
                expected = BACKEND.matrix(RationalMatrix.from_fractions([[3 * x * x] * 3] * 3))
                assert not excludes_zero(spread.gram() - expected)
                found = spread.frobenius_squared()
                assert found.lower() <= 9 * x * x <= found.upper()


def test_the_square_is_computed_once():
    """For the norm and for the next step: multiplying by a point, powers of two and `rounded` keep it."""
    made = BACKEND.matrix(RationalMatrix.from_integers([[3, 1, 4], [1, 5, 9], [2, 6, 5]])).gram()
    made.frobenius_squared()
    square, _ = made.centre.squared()
    moved, _ = made.scalar_mul(BACKEND.scalar(Fraction(7))).ldexp(-5).rounded(64)
    moved.frobenius_squared()
    assert moved.centre.squared()[0] is square


# -- what matrices are made of ---------------------------------------------------------------------------------------

TINY, LONG = 5e-324, 1 + 2.0**-52


@pytest.mark.parametrize(
    ("rows", "short"),
    [
        ([[1.0, -0.75], [-0.0, 3.0]], True),
        ([[LONG, -(2.0**-9)], [0.0, LONG / 2]], True),  # 61 bits in all
        ([[LONG, -(2.0**-8) * LONG], [0.0, LONG / 2]], True),
        ([[LONG, -(2.0**-9) * LONG], [0.0, LONG / 2]], False),
        ([[1.0, TINY], [0.0, -1.0]], False),
        ([[2.0**64, TINY], [2.0**63, 1.0]], False),  # what is scaled down by a little vanishes
        ([[TINY, 3 * TINY], [-TINY, 0.0]], True),
        ([[1e308, -1e300], [1e-300, 0.0]], False),
        ([[0.0, 0.0], [0.0, 0.0]], True),
        ([[0.0] * 9, [0.0] * 8 + [LONG]], True),
    ],
)
def test_floats_are_taken_exactly(rows, short):
    for backend in (ArbBackend(16), BACKEND):
        made = backend.matrix(RationalMatrix.from_floats(np.array(rows)))
        assert (made.centre.integers is not None) == short
        assert distance_squared(made, [list(map(Fraction, row)) for row in rows]) == 0
        assert parts(made)[2] == 0


@pytest.mark.parametrize("digits", [5, 18, 19, 60])
def test_decimals_are_integers_over_a_scale(digits):
    """Whose width is the only one: entries and their products are exact, as short integers where they are."""
    rows = [[Fraction(7 * 10**digits // 9 + i - j, 10**digits) for j in range(3)] for i in range(3)]
    made = of(rows)
    assert (made.centre.integers is not None) == (digits <= 18)
    assert [x * 10**digits for x in chain.from_iterable(rows)] == list(map(exact, made.centre.mat.entries()))
    scale = made.scale
    assert exact(scale.mid()) - exact(scale.rad()) <= Fraction(1, 10**digits) <= exact(scale.mid()) + exact(scale.rad())
    assert exact(scale.rad()) < Fraction(1, 2**120) / 10**digits


def test_sparse_matrices():
    rows = [[Fraction(i + 1, 7) if (i + 2 * j) % 9 == 0 else Fraction(0) for j in range(9)] for i in range(6)]
    assert list(map(exact, of(rows).centre.mat.entries())) == [7 * x for x in chain.from_iterable(rows)]


@pytest.mark.parametrize("exponent", [-2000, -1075, -1060, -1021, -1000, 0, 999, 1024, 1026, 2000])
def test_ends_are_the_floats_around(exponent):
    for x in (Fraction(sign, 3) * Fraction(2) ** exponent for sign in (1, -1)):
        lower, upper = of([[x, 0 * x]]).float_bounds()
        assert (lower[0, 0], upper[0, 0]) == float_enclosure(x, x)
        assert lower[0, 1] == upper[0, 1] == 0


# -- widths ----------------------------------------------------------------------------------------------------------


def test_norms_are_narrow():
    """The growth of the error over many steps: `escalation` asks for 2^-20, and this is what the docstring promises."""
    random = Random(5)
    weights = RationalMatrix.from_integers([[random.randint(-(2**24), 2**24) for _ in range(48)] for _ in range(48)])
    reference = norm_upper(ExactBackend(64).matrix(weights), ExactBackend(64), 11)[0].upper()
    for backend, bits in ((BACKEND, 47), (BACKEND.refined(), 62)):
        found = norm_upper(backend.matrix(weights), backend, 11)[0]
        assert found.lower() <= reference <= found.upper()
        assert found.upper() - found.lower() <= reference / 2**bits


def test_threads_share_flint_without_standing_in_each_others_way():
    weights = RationalMatrix.from_integers([[(i * j) % 7 - 3 for j in range(12)] for i in range(12)])
    alone = norm_upper(BACKEND.matrix(weights), BACKEND, 4)[0].upper()
    shared = BACKEND.matrix(weights)
    with ThreadPoolExecutor(4) as pool:
        found = [pool.submit(lambda: norm_upper(shared, BACKEND, 4)[0].upper()) for _ in range(8)]
        assert {item.result(timeout=60) for item in found} == {alone}


# -- what is relied on in FLINT --------------------------------------------------------------------------------------


@pytest.fixture
def precision():
    before = flint.ctx.prec
    flint.ctx.prec = 200
    yield
    flint.ctx.prec = before


@pytest.mark.usefixtures("precision")
def test_a_radius_of_many_bits_is_rounded_up():
    """Radii have thirty bits."""
    wanted = 2**100 + 1
    assert wanted < exact(flint.arb(0, flint.arb(wanted)).rad()) < 2**100 + 2**75


@pytest.mark.usefixtures("precision")
def test_the_radius_of_a_row_sum_is_at_least_the_sum_of_the_radii():
    random = Random(7)
    radii = [[random.getrandbits(random.choice([1, 10, 30])) for _ in range(9)] for _ in range(9)]
    mat = flint.arb_mat(9, 9, [flint.arb(random.getrandbits(90), r) for row in radii for r in row])
    sums = mat * flint.arb_mat(9, 1, [1] * 9)
    assert all(exact(sums[i, 0].rad()) >= sum(radii[i]) for i in range(9))


@pytest.mark.usefixtures("precision")
def test_ends_of_magnitudes_are_outward():
    third = flint.arb(flint.fmpq(1, 3))
    flint.ctx.prec = 10
    assert exact(third.abs_lower()) < Fraction(1, 3) < exact(third.abs_upper())
    assert 3 < exact(flint.arb(-5, 1).abs_lower()) <= 4
    assert exact(flint.arb(-5, 7).abs_lower()) == 0


@pytest.mark.usefixtures("precision")
def test_a_product_with_balls_around_zero_gives_sums_of_magnitudes():
    random = Random(8)
    rows = [[Fraction(random.getrandbits(80) - 2**79, 2 ** random.randint(0, 90)) for _ in range(9)] for _ in range(5)]
    mat = of(rows).centre.mat
    row = max(sum(map(abs, row)) for row in midpoints(mat))
    column = max(sum(map(abs, row)) for row in transposed(midpoints(mat)))
    assert row <= exact(arb._row_sums(mat)) <= row * (1 + Fraction(1, 2**20))
    assert row * column <= exact(arb._norm(mat)) ** 2 <= row * column * (1 + Fraction(1, 2**20))
    wide = flint.arb_mat(1, 2, [flint.arb(-3, 2), flint.arb(1, 4)])  # at most 5 and 5
    assert 10 <= exact(arb._row_sums(wide)) < 10 + Fraction(1, 2**20)


@pytest.mark.usefixtures("precision")
def test_matrices_of_floats_are_exact_at_any_precision():
    flint.ctx.prec = 2
    for x in (1 + 2.0**-52, -0.1, 5e-324, 1.7976931348623157e308):
        (found,) = flint.arb_mat(1, 1, [x]).entries()
        assert exact(found) == Fraction(x)


@pytest.mark.usefixtures("precision")
def test_ends_of_53_bits_are_floats_outward():
    third = flint.arb(flint.fmpq(-1, 3), flint.arb(flint.fmpq(1, 10**30)))
    flint.ctx.prec = 53
    below, above = Fraction(float(third.lower())), Fraction(float(third.upper()))
    assert below == exact(third.lower())
    assert above == exact(third.upper())
    assert above - below == Fraction(1, 2**54)
    assert below < Fraction(-1, 3) < above
