"""The matrices of `backends.arb`: a centre, a scale and a Frobenius ball, at the members where the bounds are reached.

The contract draws members at random, mostly well inside. Here they are on the border: an error along the largest
singular vector, entries that all move by half a step, bits that are all cut off.
"""

from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from random import Random

import flint
import pytest
from strategies import minus, smaller_gram, sum_of_squares

from intervalcert.backends import arb
from intervalcert.backends.arb import ArbBackend
from intervalcert.backends.exact import ExactBackend
from intervalcert.norms import norm_upper
from intervalcert.protocol import Truth
from intervalcert.rational import RationalMatrix

BACKEND = ArbBackend(64)


def exact(ball):
    mantissa, exponent = ball.man_exp()
    return int(mantissa) * Fraction(2) ** int(exponent)


def parts(matrix):
    """(s, A, e) of a matrix whose scale and centre are exact."""
    rows, columns = matrix.shape
    assert matrix.scale.is_exact()
    centre = [[matrix.centre.mat[i, j] for j in range(columns)] for i in range(rows)]
    return exact(matrix.scale), [[exact(x) for x in row] for row in centre], exact(matrix.error)


def distance_squared(matrix, rows):
    """||M/s - A||_F² for the matrix M = `rows`; M is a member if that is at most e²."""
    scale, centre, _ = parts(matrix)
    return sum_of_squares(minus([[x / scale for x in row] for row in rows], centre))


def widened(rows, bits):
    """A set of matrices with a Frobenius error, and that error."""
    made, _ = BACKEND.matrix(RationalMatrix.from_fractions(rows)).rounded(bits)
    assert not made.error.is_zero()
    return made, parts(made)[2]


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
    found, movement = made.divided(BACKEND.scalar(divisor)).rounded(40)
    assert movement.lower() <= Fraction(9, 4**41) <= movement.upper()
    assert (found - BACKEND.matrix(RationalMatrix.from_fractions(moved))).is_zero() is Truth.UNKNOWN
    scale, centre, error = exact(found.scale.mid()), found.centre.mat, exact(found.error)
    radius = exact(found.scale.rad())
    gap = sum_of_squares([[moved[i][j] / scale - exact(centre[i, j].mid()) for j in range(3)] for i in range(3)])
    assert gap <= (error + radius) ** 2
    assert error * abs(scale) < Fraction(3, 2**41) * (1 + Fraction(1, 2**20)), "wider than half a step an entry"


@pytest.mark.parametrize("scale", [Fraction(1), Fraction(-1, 4), Fraction(2) ** 70])
def test_a_difference_adds_the_errors_each_in_its_scale(scale):
    """E along one entry in both: the difference moves by the sum of both errors, and by no more than that."""
    (left, first), (right, second) = widened(DIAGONAL, 40), widened(DIAGONAL, 43)
    found = left.divided(BACKEND.scalar(1 / scale)) - right.divided(BACKEND.scalar(-1 / scale))
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
    divided = made.divided(BACKEND.hull(Fraction(1, 2**15), Fraction(2) ** 15))
    assert divided.scale.contains(0)
    found, _ = divided.rounded(40)
    for divisor in (Fraction(1, 2**15), Fraction(1), Fraction(2) ** 15):
        member = [[Fraction(round(x / divisor * 2**40), 2**40) for x in row] for row in rows]
        assert (found - BACKEND.matrix(RationalMatrix.from_fractions(member))).is_zero() is not Truth.FALSE
    assert divided.is_zero() is Truth.UNKNOWN


# -- the bits that gram drops ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [20, 40, 100, 1000])
@pytest.mark.parametrize("shape", [(1, 1), (4, 9), (9, 4), (16, 16)])
def test_what_gram_drops_is_in_its_error(bits, shape):
    random = Random(bits)
    integers = [[random.getrandbits(bits) - 2 ** (bits - 1) for _ in range(shape[1])] for _ in range(shape[0])]
    found = BACKEND.matrix(RationalMatrix.from_integers(integers)).gram()
    _, centre, error = parts(found)
    distance = distance_squared(found, smaller_gram([[Fraction(x) for x in row] for row in integers]))
    assert distance <= error**2
    assert error <= Fraction(2) ** (2 * min(shape).bit_length() - arb._WORD)
    assert (distance > 0) == (bits > 31), "nothing was dropped: the check is vacuous"
    for x in (x for row in centre for x in row):
        assert abs(x) <= 1
        assert (x * 2**arb._WORD).denominator == 1, "an entry that FLINT does not multiply as a machine word"


def test_what_gram_drops_is_added_to_an_error_that_was_there():
    """An error of 2^-1000 lets nobody forget the bits that are cut off."""
    integers = [[2**100 // (i + j + 3) for j in range(4)] for i in range(4)]
    made, _ = BACKEND.matrix(RationalMatrix.from_integers(integers)).rounded(1000)
    assert 0 < parts(made)[2] < Fraction(1, 2**990)
    found = made.gram()
    distance = distance_squared(found, smaller_gram([[Fraction(x) for x in row] for row in integers]))
    assert 0 < distance <= parts(found)[2] ** 2


def test_gram_of_mixed_scales():
    """Tiny entries vanish beside huge ones, into the error; alone they do not."""
    huge, tiny = Fraction(2) ** 1000, Fraction(1, 2**1070)
    for rows in ([[huge, tiny], [tiny, -tiny], [tiny, huge]], [[tiny, tiny], [3 * tiny, tiny]], [[huge, 0], [0, tiny]]):
        found = BACKEND.matrix(RationalMatrix.from_fractions([list(map(Fraction, row)) for row in rows])).gram()
        assert distance_squared(found, smaller_gram(rows)) <= parts(found)[2] ** 2
        assert found.is_zero() is Truth.FALSE


def test_gram_of_zero_is_zero():
    found = BACKEND.matrix(RationalMatrix.from_integers([[0, 0, 0]] * 5)).gram()
    assert found.is_zero() is Truth.TRUE
    assert found.gram().frobenius_squared().upper() == 0


def test_gram_of_balls_of_any_width():
    """Radii far larger than the midpoints, so that entries of the product are beyond the unit."""
    ones = [[Fraction(1)] * 3] * 3
    made = BACKEND.matrix(RationalMatrix.from_fractions(ones))
    for width in (Fraction(1, 2**60), Fraction(1, 3), Fraction(100)):
        spread = made.divided(BACKEND.hull(1 / (1 + width), 1 + width)) - made
        for x in (1 / (1 + width) - 1, Fraction(0), width):
            expected = BACKEND.matrix(RationalMatrix.from_fractions([[3 * x * x] * 3] * 3))
            assert (spread.gram() - expected).is_zero() is not Truth.FALSE
            found = spread.frobenius_squared()
            assert found.lower() <= 9 * x * x <= found.upper()


def test_the_square_is_computed_once(monkeypatch):
    """For the norm and for the next step: `divided` and `rounded` keep it."""
    made = BACKEND.matrix(RationalMatrix.from_integers([[3, 1, 4], [1, 5, 9], [2, 6, 5]])).gram()
    made.frobenius_squared()
    square = made.centre.square()
    moved, _ = made.divided(BACKEND.scalar(Fraction(7))).rounded(64)
    moved.frobenius_squared()
    assert moved.centre.square() is square


# -- widths ----------------------------------------------------------------------------------------------------------


def test_norms_are_narrow():
    """The growth of the error over many steps: `fallback` asks for 2^-20, and this is what the docstring promises."""
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
