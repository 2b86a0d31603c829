"""The traps of python-flint: each shown in the library itself, and then that `backends.arb` does not fall into it.

The first half of a test pins the library's behaviour. Should a later version mend it, that half fails and says that the
care taken here is no longer needed; the second half must hold in any case.
"""

import pickle
from fractions import Fraction

import flint
import numpy as np
import pytest

from intervalcert.backends.protocol import Truth
from intervalcert.backends.registry import get_backend
from intervalcert.errors import InputError, UnboundedError
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.parsing import as_fraction
from intervalcert.numbers.rounding import sqrt_upper

BACKEND = get_backend("arb", 64)
THIRD = Fraction(1, 3)


@pytest.fixture(autouse=True)
def usual_precision():
    before = flint.ctx.prec
    flint.ctx.prec = 53
    yield
    flint.ctx.prec = before


def test_max_of_balls_depends_on_their_order():
    wide, one = flint.arb(0, 10), flint.arb(1)
    first, second = max(wide, one), max(one, wide)
    assert first.rad() > 9  # nothing was proved, so max kept its first argument
    assert second.rad() == 0

    # Here nobody can ask `max` of scalars: they have no order but `less`, which says that it cannot tell.
    x, y = BACKEND.hull(Fraction(-10), Fraction(10)), BACKEND.scalar(Fraction(1))
    assert x.less(y) is Truth.UNKNOWN
    with pytest.raises(TypeError):
        max(x, y)


def test_sorted_balls_are_not_sorted():
    balls = [flint.arb(2), flint.arb(1, 5), flint.arb(0)]
    assert sorted(balls)[0] == 2  # although 0 < 2 is certain

    scalars = [BACKEND.scalar(Fraction(2)), BACKEND.hull(Fraction(-4), Fraction(6)), BACKEND.scalar(Fraction(0))]
    with pytest.raises(TypeError):
        sorted(scalars)

    # A matrix sorts the ends, which are points, and of points FLINT's comparisons tell the truth.
    assert sorted(map(flint.arb, [2, 1, 3])) == [1, 2, 3]
    points = BACKEND.matrix(RationalMatrix.from_integers([[4], [2], [1], [3]]))
    balls = points.row_scaled(points.rows_at(np.array([2, 3, 2, 3])).scalar_mul(BACKEND.hull(Fraction(1), Fraction(2))))
    crossed = balls - BACKEND.matrix(RationalMatrix.from_integers([[0], [7], [-6], [8]]))
    for made, least, most in (
        (balls, [1, 4, 6, 9], [2, 8, 12, 18]),  # of [4, 8], [6, 12], [1, 2], [9, 18]
        (crossed, [-1, 1, 4, 7], [5, 8, 8, 10]),  # of [4, 8], [-1, 5], [7, 8], [1, 10]
    ):
        lower, upper = made.sorted_within(4).float_bounds()
        assert ((lower[:, 0] <= least) & (lower[:, 0] >= np.subtract(least, 1e-6))).all()
        assert ((upper[:, 0] >= most) & (upper[:, 0] <= np.add(most, 1e-6))).all()


def test_undecided_comparisons_are_false_and_so_is_unequal():
    x, zero = flint.arb(0, 1), flint.arb(0)
    assert not any([x < zero, x <= zero, x > zero, x >= zero, x == zero, x != zero])
    assert [x == x, x != x] == [False, False]  # neither equal to itself nor unlike itself

    around, point = BACKEND.hull(Fraction(-1), Fraction(1)), BACKEND.scalar(Fraction(0))
    assert around.less(point) is Truth.UNKNOWN
    assert point.less(around) is Truth.UNKNOWN
    assert point.less(point) is Truth.FALSE
    one = BACKEND.matrix(RationalMatrix.from_integers([[1]]))
    squares = (one.scalar_mul(BACKEND.hull(Fraction(1, 2), Fraction(2))) - one).frobenius_squared()
    assert squares.less(point) is Truth.UNKNOWN
    assert point.less(squares) is Truth.UNKNOWN


def test_a_zero_ball_is_true():
    assert bool(flint.arb(0)) is True

    zero, one = (BACKEND.matrix(RationalMatrix.from_integers([[0, x]])).frobenius_squared() for x in (0, 1))
    assert zero.lower() == 0 == zero.upper()
    assert one.lower() == 1 == one.upper()


def test_float_of_a_ball_is_below_its_upper_end():
    flint.ctx.prec = 128
    assert Fraction(float(flint.arb(flint.fmpq(1, 3)))) < THIRD  # the midpoint, rounded to nearest: no bound at all
    assert float(flint.arb(1, 0.25)) == 1

    assert BACKEND.scalar(THIRD).lower() <= THIRD <= BACKEND.scalar(THIRD).upper()
    assert BACKEND.hull(Fraction(3, 4), Fraction(5, 4)).upper() >= Fraction(5, 4)
    with pytest.raises(TypeError):
        float(BACKEND.scalar(THIRD))  # a bound leaves the module as an exact rational only


def test_the_ends_that_flint_gives_are_rounded():
    flint.ctx.prec = 200
    ball = flint.arb(flint.fmpq(1, 3))
    flint.ctx.prec = 10
    mantissa, exponent = ball.upper().man_exp()
    assert int(mantissa) * Fraction(2) ** int(exponent) > THIRD + Fraction(1, 2**14)  # ten bits of the moment, not 200

    scalar = get_backend("arb", 100).scalar(THIRD)
    assert 0 < scalar.upper() - scalar.lower() < Fraction(1, 2**190)


def test_contains_rounds_a_rational_before_it_looks():
    flint.ctx.prec = 200
    ball = flint.arb(flint.fmpq(1, 3))
    assert ball.contains(flint.fmpq(1, 3))
    flint.ctx.prec = 10
    assert not ball.contains(flint.fmpq(1, 3))  # "not contained" is no refutation

    # The one question of this kind here is about the integer 0, which needs no rounding: whether a scale may be zero.
    third = BACKEND.matrix(RationalMatrix.from_integers([[1]], 3))
    for factor, grid in ((Fraction(1), 85), (Fraction(0), 0)):
        moved, _ = third.scalar_mul(BACKEND.scalar(factor)).rounded(8)
        lower, upper = moved.float_bounds()
        assert lower[0, 0] <= grid / 256 <= upper[0, 0] < lower[0, 0] + 2**-7


def test_the_root_of_a_ball_that_touches_zero_from_below_is_nan():
    root = flint.arb(0, 1).sqrt()
    assert not root.is_finite()

    # Square roots are taken of the exact ends, after what sticks out below zero is cut off.
    x = BACKEND.hull(Fraction(0), Fraction(1))
    assert x.lower() <= 0
    assert sqrt_upper(max(x.lower(), Fraction(0)), 64) == 0
    assert sqrt_upper(x.upper(), 64) >= 1


def test_division_by_a_ball_around_zero_is_nan():
    assert not (flint.arb(1) / flint.arb(0, 1)).is_finite()

    around = BACKEND.hull(Fraction(-1), Fraction(1))
    with pytest.raises(UnboundedError):
        BACKEND.scalar(Fraction(1)) / around


def test_the_precision_is_global():
    flint.ctx.prec = 10
    assert flint.arb(flint.fmpq(1, 3)).rad() > 2**-13

    scalar = BACKEND.scalar(THIRD)
    assert scalar.upper() - scalar.lower() < Fraction(1, 2**126)
    assert flint.ctx.prec == 10


def test_the_precision_is_put_back_after_an_error():
    flint.ctx.prec = 10
    with pytest.raises(UnboundedError):
        BACKEND.scalar(Fraction(1)) / BACKEND.scalar(Fraction(0))
    assert flint.ctx.prec == 10


@pytest.mark.parametrize("number", [np.int64(3), np.float32(3), np.uint8(3)], ids=lambda number: number.dtype.name)
def test_numpy_scalars_are_type_errors(number):
    with pytest.raises(TypeError):
        flint.arb(number)
    with pytest.raises(TypeError):
        flint.fmpq(number, 1)

    assert BACKEND.scalar(as_fraction(number)).lower() == 3
    weights = RationalMatrix.from_floats(np.array([[number]]))
    assert BACKEND.matrix(weights).frobenius_squared().lower() == 9


def test_numpy_truth_values_are_no_numbers():
    with pytest.raises(InputError):
        as_fraction(np.True_)


@pytest.mark.parametrize("value", [flint.arb(1), flint.arb_mat([[1]])], ids=["arb", "arb_mat"])
def test_balls_do_not_pickle(value):
    with pytest.raises(TypeError):
        pickle.dumps(value)

    # What crosses processes is the backend and exact rationals; both do.
    backend, upper = pickle.loads(pickle.dumps((BACKEND, BACKEND.scalar(THIRD).upper())))
    assert backend == BACKEND
    assert upper == BACKEND.scalar(THIRD).upper()


def test_ball_matrices_have_no_norm_and_no_cholesky():
    assert not [name for name in dir(flint.arb_mat) if "norm" in name or "chol" in name or "frob" in name]

    matrix = BACKEND.matrix(RationalMatrix.from_integers([[3, 4]]))
    assert matrix.frobenius_squared().lower() == matrix.frobenius_squared().upper() == 25
