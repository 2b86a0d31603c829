"""Every rounding of float64 goes the way that it should: each operation, against fractions (steps: `test_upward`).

A 1 x 1 matrix of float64 is an interval, so the images of its ends and of points between can be computed exactly and
must lie inside; balls of a few entries are treated alike. Numbers are drawn so that a rounding matters: mantissas of
53 bits, next to powers of two on both sides, balls far wider than their centres, factors of 100 bits, and sizes where
floats end. All draws are the same in every run, and many enough that one `nextafter` too few is seen.
"""

import math
from fractions import Fraction
from itertools import chain
from itertools import product as pairs
from operator import add, mul, sub, truediv
from random import Random

import numpy as np
import pytest
from strategies import (
    excludes_zero,
    explain,
    is_dyadic,
    moved_to_grid,
    product,
    reciprocal,
    smaller_gram,
    sum_of_squares,
    transposed,
)

from intervalcert.backends import float64_scalars
from intervalcert.backends.float64 import Float64Matrix
from intervalcert.backends.float64_scalars import Float64Scalar
from intervalcert.backends.generic import GenericMatrix, hull_of_roots
from intervalcert.backends.protocol import Truth
from intervalcert.backends.registry import get_backend
from intervalcert.errors import UnboundedError
from intervalcert.numbers.exponentials import (
    FLOAT_ERROR,
    expm1_neg_enclosure,
    log1p_exp_neg_enclosure,
    sigmoid_enclosure,
)
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.rounding import dyadic_value, sqrt_upper
from intervalcert.numbers.upward import hypot_up

BACKEND = get_backend("float64")
ETA = Fraction(2) ** -1074
LARGEST = Fraction(np.finfo(np.float64).max)


# -- numbers at which rounding matters ---------------------------------------------------------------------------------


def mantissa(random: Random) -> float:
    """In [1, 2]: full of bits, or a few steps from either end, where a step is relatively largest and smallest."""
    step = random.randint(0, 5) * 2.0**-52
    kinds = (lambda: 1 + random.random(), lambda: 1 + step, lambda: 2 - step, lambda: 1 + random.getrandbits(3) / 8)
    return random.choice(kinds)()


def magnitude(random: Random, least: int = -60, most: int = 60) -> float:
    return math.ldexp(mantissa(random), random.randint(least, most))


def any_float(random: Random) -> float:
    """Not negative: zero, usual, subnormal, or as large as they come."""
    kinds = (
        lambda: 0.0,
        lambda: magnitude(random),
        lambda: magnitude(random, -3, 3),
        lambda: random.randint(1, 9) * 2.0**-1074,
        lambda: magnitude(random, -1075, -1000),
        lambda: magnitude(random, -540, -530),
        lambda: magnitude(random, 500, 1022),
    )
    return random.choice(kinds)()


def draws(seed: int, count: int):
    return (Random(f"{seed}-{k}") for k in range(count))


# -- dyadics -----------------------------------------------------------------------------------------------------------


def dyadic(random: Random) -> tuple[int, int]:
    bits = random.choice([1, 20, 53, 54, 100, 127, 128, 129, 130, 200, 256])
    m = random.choice(
        [random.getrandbits(bits), (1 << bits) - random.randint(0, 2), (1 << bits) + random.randint(0, 2)]
    )
    return random.choice([-1, 1]) * m, random.randint(-300, 50)


def test_dyadics_are_added_exactly_and_rounded_outward():
    for random in draws(6, 3000):
        x, y = dyadic(random), dyadic(random)
        assert dyadic_value(*float64_scalars._sum(x, y)) == dyadic_value(*x) + dyadic_value(*y), (x, y)
        down, exact, up = (dyadic_value(*z) for z in (float64_scalars._down(x), x, float64_scalars._up(x)))
        assert exact - abs(exact) / 2**127 <= down <= exact <= up <= exact + abs(exact) / 2**127, x
        assert max(float64_scalars._down(x)[0].bit_length(), float64_scalars._up(x)[0].bit_length()) <= 129, x


def test_near_is_less_than_a_step_below():
    """Among the subnormals, half a step above at the most."""
    for random in draws(7, 3000):
        x, shift = dyadic(random), random.choice([0, -100, 100, random.randint(-1300, 1300)])
        exact, found = dyadic_value(*x) * Fraction(2) ** shift, float64_scalars._near(x, shift)
        if math.isinf(found):  # `times` asks for nothing beyond 1
            assert abs(exact) >= LARGEST
            continue
        above = math.nextafter(found, math.inf)
        assert above == math.inf or Fraction(math.nextafter(found, -math.inf)) < exact < Fraction(above), (x, shift)
        if abs(found) >= 2.0**-1022:
            assert Fraction(found) <= exact, (x, shift)


def test_floats_are_dyadics_exactly():
    for random in draws(8, 1000):
        x, e = random.choice([-1, 1]) * any_float(random), random.randint(-2000, 2000)
        assert dyadic_value(*float64_scalars._scaled(x, e)) == Fraction(x) * Fraction(2) ** e, (x, e)
        if x:
            assert dyadic_value(*float64_scalars._dyadic(Fraction(x))) == Fraction(x), x


# -- scalars -----------------------------------------------------------------------------------------------------------


def scalar(random: Random) -> Float64Scalar:
    """An interval above, below or around zero, or a point; its ends have 1 to 256 bits before they are rounded."""
    ends = sorted(dyadic_value(*dyadic(random)) for _ in range(2))
    kind = random.randrange(4)
    if kind == 0:
        ends = [ends[0], ends[0]]
    elif kind == 1:
        ends = sorted(abs(end) / random.choice([1, 3]) for end in ends)
    elif kind == 2:
        ends = sorted([ends[1], ends[1] * (1 + random.choice([-1, 1]) * Fraction(random.getrandbits(99), 2**150))])
    return Float64Scalar.around(*ends)


def points(x: Float64Scalar) -> list[Fraction]:
    low, high = x.lower(), x.upper()
    return [low, high, (2 * low + high) / 3]


def test_scalars_are_around_what_they_are_made_of():
    for random in draws(9, 2000):
        low, high = sorted(dyadic_value(*dyadic(random)) / random.choice([1, 3, 7]) for _ in range(2))
        for made in (Float64Scalar.around(low, high), BACKEND.hull(low, high)):
            assert made.lower() <= low, (low, high)
            assert made.upper() >= high, (low, high)
        assert BACKEND.scalar(low).lower() <= low <= BACKEND.scalar(low).upper()


@pytest.mark.parametrize("operation", [add, sub, mul, truediv])
def test_scalar_operations_contain_the_images_of_all_ends(operation):
    refused = 0
    for random in draws(10, 2000):
        x, y = scalar(random), scalar(random)
        try:
            found = operation(x, y)
        except UnboundedError:
            assert operation is truediv
            assert y.lower() <= 0 <= y.upper()
            refused += 1
            continue
        images = [operation(a, b) for a in points(x) for b in points(y)]
        least, most = min(images), max(images)
        slack = max(map(abs, images)) / 2**120
        if operation in (add, sub):
            slack = max(abs(z) for z in (x.lower(), x.upper(), y.lower(), y.upper())) / 2**120
        assert found.lower() <= least, explain("too high", x=x, y=y, found=found)
        assert found.upper() >= most, explain("too low", x=x, y=y, found=found)
        assert found.lower() >= least - slack, explain("too wide", x=x, y=y, found=found)
        assert found.upper() <= most + slack, explain("too wide", x=x, y=y, found=found)
        assert is_dyadic(found.lower(), 128), "longer from step to step"
        assert is_dyadic(found.upper(), 128), "longer from step to step"
    assert (refused > 20) == (operation is truediv)


def test_comparisons_are_decided_by_the_ends():
    for random in draws(11, 2000):
        x, y = scalar(random), scalar(random)
        if random.random() < 0.3:
            y = random.choice([x, Float64Scalar(x.high, x.high), Float64Scalar(x.low, x.low)])
        pairs = {a < b for a in (x.lower(), x.upper()) for b in (y.lower(), y.upper())}
        assert x.less(y) is (Truth.UNKNOWN if len(pairs) == 2 else Truth.TRUE if pairs == {True} else Truth.FALSE)


def test_roots_contain_those_of_the_ends():
    for random in draws(12, 1000):
        x, backend = scalar(random), get_backend("float64", random.choice([16, 64, 100, 200]))
        if random.random() < 0.3:
            x = Float64Scalar((random.getrandbits(9), random.randint(1, 99)), (random.getrandbits(99) + 512, 99))
        found = backend.sqrt_upper(x)
        for point in points(x):
            assert found.lower() <= sqrt_upper(max(point, Fraction(0)), backend.prec) <= found.upper(), x


# -- balls -------------------------------------------------------------------------------------------------------------

SHAPES = (*[(1, 1)] * 8, (1, 2), (2, 1), (2, 2), (4, 1), (2, 3))


def ball(random: Random, shape: tuple[int, int], least: int = -20, most: int = 20) -> Float64Matrix:
    """Points, narrow balls, and balls far wider than their centre, which is then without any say, or zero."""
    size = magnitude(random, least, most)
    bare = random.random() < 0.2
    entries = [
        0.0 if bare else random.choice([-1, 0, 1, 1, -1]) * size * mantissa(random) for _ in range(math.prod(shape))
    ]
    parts = (0.0, 0.0, 2.0**-53, 2.0**-50, 2.0**-20, 0.5, 1.0, 2.0**10, 2.0**80)
    radius = size * random.choice(parts) * mantissa(random)
    exponent = random.choice([0, 0, 0, random.randint(-5, 5), random.randint(-60, 60)])
    if random.random() < 0.03:
        exponent = random.randint(-1500, 1500)
    return Float64Matrix(np.array(entries).reshape(shape), exponent, radius)


def tiny_ball(random: Random, shape: tuple[int, int]) -> Float64Matrix:
    """Among the subnormals."""
    entries = [random.randint(-9, 9) * 2.0 ** -random.randint(1060, 1074) for _ in range(math.prod(shape))]
    radius = random.choice([0, 0, random.randint(1, 9)]) * 2.0**-1074
    return Float64Matrix(np.array(entries).reshape(shape), random.choice([0, 0, 3, -3]), radius)


def far_ball(random: Random, shape: tuple[int, int]) -> Float64Matrix:
    """As large or small as operations leave them."""
    return ball(random, shape, *random.choice([(-100, -90), (90, 100)]))


def lean_ball(random: Random, shape: tuple[int, int]) -> Float64Matrix:
    """A centre that is zero, or about half of the radius' last bit: what a sum of the two rounds off."""
    radius = magnitude(random, -3, 3)
    part = random.choice([0.0, 0.0, radius * 2.0**-53 * random.random()])
    return Float64Matrix(np.full(shape, part), 0, radius)


def balls(random: Random, *shapes: tuple[int, int]) -> list[Float64Matrix]:
    kinds = random.choices([ball, tiny_ball, far_ball, lean_ball], [8, 1, 1, 4], k=len(shapes))
    found = [kind(random, shape) for kind, shape in zip(kinds, shapes, strict=True)]
    if len(shapes) == 2 and shapes[0] == shapes[1] and random.random() < 0.2:  # centres that cancel, or nearly do
        first, second = found
        nudge = random.choice([1.0, 1 + 2.0**-52])
        found[1] = Float64Matrix(first.centre * nudge, first.exponent, min(second.error, 2.0**200))
    return found


DIRECTIONS = {
    1: [(1,)],
    2: [(1, 0), (0, 1), (Fraction(3, 5), Fraction(4, 5)), (Fraction(-5, 13), Fraction(12, 13))],
    3: [(0, 1, 0), (Fraction(2, 3), Fraction(-1, 3), Fraction(2, 3))],
    4: [(1, 0, 0, 0), (0, 0, 0, 1), (Fraction(1, 2),) * 4, (Fraction(1, 2), Fraction(-1, 2)) * 2],
    6: [
        (1, 0, 0, 0, 0, 0),
        (0, 0, 0, 0, 1, 0),
        (0, Fraction(1, 2), Fraction(1, 2), Fraction(-1, 2), 0, Fraction(1, 2)),
    ],
}
"""Of length 1, exactly."""


def table_of(entries: list[Fraction], columns: int) -> list[list[Fraction]]:
    return [entries[k : k + columns] for k in range(0, len(entries), columns)]


def members(made: Float64Matrix, random: Random) -> list[list[list[Fraction]]]:
    """The centre alone; or two opposite points on the sphere around it, both ends of an interval, and one inside."""
    unit = Fraction(2) ** made.exponent
    centre, radius = [Fraction(x) * unit for x in made.centre.ravel().tolist()], Fraction(made.error) * unit
    direction = random.choice(DIRECTIONS[len(centre)])
    parts = (-radius, radius, radius * Fraction(random.randint(-9, 9), 10)) if radius else (radius,)
    found = [[x + part * y for x, y in zip(centre, direction, strict=True)] for part in parts]
    return [table_of(entries, made.shape[1]) for entries in found]


def is_inside(made: Float64Matrix, rows: list[list[Fraction]], slack: Fraction = Fraction(0)) -> bool:
    unit = Fraction(2) ** made.exponent
    assert made.shape == (len(rows), len(rows[0]))
    off = [
        max(abs(x - Fraction(c) * unit) - slack, Fraction(0))
        for row, centres in zip(rows, made.centre.tolist(), strict=True)
        for x, c in zip(row, centres, strict=True)
    ]
    return sum(x * x for x in off) <= (Fraction(made.error) * unit) ** 2


def check(made: Float64Matrix, rows: list[list[Fraction]], *operands: object, slack: Fraction = Fraction(0)) -> None:
    assert is_inside(made, rows, slack), f"{rows} is not in {made!r}, made of {operands}"


def check_known(made: Float64Matrix) -> Float64Matrix:
    """What is known of the centre is true."""
    squares = sum(Fraction(x) ** 2 for x in made.centre.ravel().tolist())
    low, high = made._squares
    assert low <= squares, made
    assert squares <= (high if high == math.inf else Fraction(high)), made
    assert made._norm == math.inf or Fraction(made._norm) ** 2 >= squares, made
    assert Fraction(made._least_norm()) ** 2 <= squares, made
    return made


def shape_of(random: Random) -> tuple[int, int]:
    return random.choice(SHAPES)


def each(a, b, operation):
    return [[operation(x, y) for x, y in zip(u, v, strict=True)] for u, v in zip(a, b, strict=True)]


def applied(seed: int, count: int, shapes, make, exact, tight: bool = False) -> None:
    """`make` of drawn balls contains `exact` of all their members; where there is no finite ball, it says so.

    tight: of intervals, it is hardly wider than the images of their ends.
    """
    refused = 0
    for random in draws(seed, count):
        operands = balls(random, *shapes(random))
        try:
            with np.errstate(over="ignore"):
                found = check_known(make(*operands))
        except UnboundedError:
            refused += 1
            continue
        images = []
        for chosen in pairs(*(members(check_known(operand), random) for operand in operands)):
            images.append(exact(*chosen))
            check(found, images[-1], *operands)
        if tight and {x.shape for x in operands} == {(1, 1)} and min(map(size_of, operands)) > 2.0**-200:
            unit = Fraction(2) ** found.exponent
            centre, radius = (Fraction(float(x)) * unit for x in (found.centre[0, 0], found.error))
            needed = max(abs(image[0][0] - centre) for image in images)
            most = max(abs(image[0][0]) for image in images)
            assert radius <= needed * (1 + Fraction(1, 2**20)) + (abs(centre) + most) / 2**46, (found, operands)
    assert refused < count / 10


def size_of(made: Float64Matrix) -> float:
    return float(np.max(np.abs(made.centre)))


def twice(random):
    shape = shape_of(random)
    return shape, shape


def chained(random):
    rows, inner = shape_of(random)
    return (rows, inner), (inner, 1 if inner == 3 else random.choice([1, 2]))


def once(random):
    return (shape_of(random),)


def test_sums_and_differences_of_balls():
    applied(20, 1500, twice, add, lambda x, y: each(x, y, add), tight=True)
    applied(21, 1500, twice, sub, lambda x, y: each(x, y, sub), tight=True)


def test_products_of_balls():
    applied(22, 2500, chained, lambda a, b: a @ b, product, tight=True)


def test_grams_of_balls():
    applied(23, 2000, once, Float64Matrix.gram, smaller_gram, tight=True)


def test_grams_on_a_flat_spectrum():
    """Where sums over rows bound the operator norm: 300 blocks of [[2, -1], [-1, 2]], one of them three times as large.

    The largest eigenvalue of a block is 3, of (1, -1). The member that is the radius further in that direction squares
    to 9 + 6·radius + radius² there, and it is the same as the centre elsewhere.
    """
    for random in draws(24, 4):
        size, radius = mantissa(random), magnitude(random, -25, 3)
        scales = np.where(np.arange(300) == 7, 3.0, 1.0) * size
        made = Float64Matrix(np.kron(np.diag(scales), np.array([[2.0, -1.0], [-1.0, 2.0]])), 0, radius).gram()
        assert made.error < 2.1 * radius * (9 * size + radius) + 2.0**-30, "sums over rows were not used"
        unit, off = Fraction(2) ** made.exponent, Fraction(0)
        for k, scale in enumerate(map(Fraction, scales.tolist())):
            more = Fraction(radius) * (6 * scale + Fraction(radius)) / 2 if k == 7 else Fraction(0)
            for i, j in pairs((0, 1), repeat=2):
                exact = (5 if i == j else -4) * scale**2 + (more if i == j else -more)
                off += (exact - Fraction(float(made.centre[2 * k + i, 2 * k + j])) * unit) ** 2
        assert off <= (Fraction(made.error) * unit) ** 2, (size, radius)


def test_what_underflows_in_many_entries_adds_up():
    """36 entries, of which each loses half of the smallest number: six halves of it in all."""
    tiny = np.full((6, 6), 3 * 2.0**-1074)
    made, ones = Float64Matrix(tiny, 0, 0.0), np.ones(6)
    half = [[Fraction(3, 2) * ETA] * 6] * 6
    for found in (
        made._moved_to(1).ldexp(-1),
        made._times_between(0.5, 0.5, 0),
        made.diag_scaled(ones / 2, ones),
        made.diag_scaled(ones, ones / 2),
    ):
        check(check_known(found), half)
    # Products that all vanish: 49/100 of the smallest number each.
    lost = Float64Matrix(np.full((6, 6), 49 * 2.0**-1074), 0, 0.0).diag_scaled(ones, ones / 100)
    check(lost, [[49 * ETA * Fraction(0.01)] * 6] * 6)
    # Products: 2^-1075 each, of which nothing is left, or twice as much.
    left, right = Float64Matrix(np.full((6, 4), 2.0**-540), 0, 0.0), Float64Matrix(np.full((4, 6), 2.0**-535), 0, 0.0)
    check(left @ right, [[4 * Fraction(2) ** -1075] * 6] * 6)


def test_the_other_shapes_of_a_set():
    applied(25, 600, once, Float64Matrix.transposed, transposed)
    applied(26, 600, once, Float64Matrix.positive_part, lambda x: [[max(y, Fraction(0)) for y in row] for row in x])
    applied(27, 600, once, Float64Matrix._on_scale, lambda x: x)
    applied(28, 600, once, Float64Matrix._negated, lambda x: [[-y for y in row] for row in x])
    for random in draws(29, 400):
        made = balls(random, (2, 3))[0]
        rows, columns = random.sample(range(2), random.randint(1, 2)), random.sample(range(3), random.randint(1, 3))
        found = check_known(made.block(np.array(rows), np.array(columns)))
        for member in members(made, random):
            check(found, [[member[i][j] for j in columns] for i in rows], made)


def test_powers_of_two():
    for random in draws(30, 1500):
        made, e = (
            balls(random, shape_of(random))[0],
            random.choice([random.randint(-9, 9), random.randint(-3000, 3000)]),
        )
        if random.random() < 0.1:  # a factor that is no float, and a product that is
            made, e = Float64Matrix(np.array([[magnitude(random, 90, 100)]]), 0, 0.0), random.randint(990, 1180)
        scaled, moved = check_known(made.ldexp(e)), None
        if made.exponent - e < 400:
            moved = check_known(made._moved_to(e))
        for member in members(made, random):
            check(scaled, [[x * Fraction(2) ** e for x in row] for row in member], made, e)
            if moved is not None:
                check(moved, member, made, e)


def test_multiples_by_sets():
    """Factors of 1 to 256 bits, points among them, and of any sign."""
    for random in draws(31, 3000):
        made, factor = balls(random, shape_of(random))[0], scalar(random)
        found = check_known(made.scalar_mul(factor))
        for member in members(made, random):
            for t in points(factor)[:2]:
                check(found, [[x * t for x in row] for row in member], made, factor)


def test_multiples_by_quotients():
    for random in draws(32, 3500):
        made, divisor = balls(random, shape_of(random))[0], scalar(random)
        if divisor.lower() <= 0 <= divisor.upper():
            with pytest.raises(UnboundedError):
                reciprocal(BACKEND, divisor)
            continue
        found = check_known(made.scalar_mul(reciprocal(BACKEND, divisor)))
        for member in members(made, random):
            for t in points(divisor)[:2]:
                check(found, [[x / t for x in row] for row in member], made, divisor)


def test_points_times_factors_of_a_hundred_bits_and_their_reciprocals():
    """Nothing but roundings: of the factor to a float, of its reciprocal, and of the product."""
    for random in draws(43, 4000):
        x, long = mantissa(random), Fraction(random.getrandbits(100) | 1 << 99, 2**100)
        made, factor = Float64Matrix(np.array([[x]]), 0, 0.0), BACKEND.scalar(long)
        check(made.scalar_mul(factor), [[Fraction(x) * long]], x, long)
        check(made.scalar_mul(reciprocal(BACKEND, factor)), [[Fraction(x) / long]], x, long)


def test_multiples_between_floats():
    for random in draws(33, 2500):
        made, shift = balls(random, shape_of(random))[0], random.choice([0, random.randint(-50, 50)])
        least, most = sorted(random.choice([-1, 1, 1]) * magnitude(random, -3, 3) for _ in range(2))
        if random.random() < 0.3:
            most = math.nextafter(least, math.inf)
        found = check_known(made._times_between(least, most, shift))
        for member in members(made, random):
            for t in (Fraction(least), Fraction(most)):
                check(found, [[x * t * Fraction(2) ** shift for x in row] for row in member], made, least, most)


def test_rounding_to_a_grid():
    """Entries in the middle of two steps, which all move by half a step, and any others."""
    for random in draws(34, 2500):
        bits, shape = random.randint(0, 60), shape_of(random)
        made = balls(random, shape)[0]
        if random.random() < 0.5:
            odd = [random.randrange(-99, 99, 2) for _ in range(math.prod(shape))]
            made = Float64Matrix(
                np.array(odd, dtype=float).reshape(shape), -bits - 1, random.choice([0.0, 0.0, made.error])
            )
        try:
            found, movement = made.rounded(bits)
        except UnboundedError:
            assert made.exponent < -300
            continue
        check_known(found)
        for member in members(made, random):
            moved = moved_to_grid(member, bits)
            check(found, moved, made, bits)
            assert movement.lower() <= sum_of_squares(each(member, moved, sub)) <= movement.upper(), (made, bits)


def test_sums_of_squares_and_zeros():
    """Balls around zero reach it, those away from it do not."""
    for random in draws(35, 4000):
        made = check_known(balls(random, shape_of(random))[0])
        found, apart = made.frobenius_squared(), excludes_zero(made)
        inside = members(made, random)
        some = [any(any(row) for row in member) for member in inside]
        for member in inside:
            assert found.lower() <= sum_of_squares(member) <= found.upper(), made
        assert found.upper() > 0 or not any(some), made
        assert not apart or all(some), made
        around = Fraction(made.error) ** 2 >= sum(Fraction(x) ** 2 for x in made.centre.ravel().tolist())
        assert not (around and (apart or found.lower() > 0)), made


def test_weights():
    for random in draws(36, 3000):
        made = balls(random, shape_of(random))[0]
        left, right = (
            np.array([random.choice([-1, 1]) * any_weight(random) for _ in range(side)]) for side in made.shape
        )
        try:
            found = made.diag_scaled(left, right)
        except UnboundedError:
            continue
        check_known(found)
        for member in members(made, random):
            exact = [
                [x * Fraction(u) * Fraction(v) for x, v in zip(row, right.tolist(), strict=True)]
                for row, u in zip(member, left.tolist(), strict=True)
            ]
            check(found, exact, made, left, right)


def moved_in(made: Float64Matrix, i: int, j: int, part: Fraction) -> list[list[Fraction]]:
    """The member that is that part of the radius away from the centre, in one entry."""
    unit = Fraction(2) ** made.exponent
    rows = [[Fraction(x) * unit for x in row] for row in made.centre.tolist()]
    rows[i][j] += Fraction(made.error) * unit * part
    return rows


def test_rows_that_are_named_several_times():
    """The whole radius is in the row that is named most often: the root of that number of times as much."""
    for random in draws(50, 2500):
        made, j = check_known(balls(random, random.choice([(1, 1), (1, 2), (2, 1), (2, 3), (4, 1)]))[0]), 0
        index = [random.randint(-1, made.shape[0] - 1) for _ in range(random.randint(1, 12))]
        found = check_known(made.rows_at(np.array(index)))
        most = max(range(made.shape[0]), key=index.count)
        for member in (moved_in(made, most, j, Fraction(1)), moved_in(made, most, j, Fraction(-1))):
            expected = [member[i] if i >= 0 else [Fraction(0)] * made.shape[1] for i in index]
            check(found, expected, made, index)
        unit = Fraction(2) ** (found.exponent - made.exponent)
        most_squared = Fraction(made.error) ** 2 * index.count(most)
        if made.error > 2.0**-200:
            assert (Fraction(found.error) * unit) ** 2 <= most_squared * (1 + Fraction(1, 2**40)), "too wide"
        once = made.rows_at(np.array(random.sample(range(made.shape[0]), made.shape[0])))
        assert once.error == made.error or once.exponent != made.exponent


def test_other_orders():
    """Entries in other places: what is known of the norm is still true, and no radius grows."""
    for random in draws(51, 1200):
        made = check_known(balls(random, random.choice([(2, 1), (2, 2), (4, 1), (2, 3)]))[0])
        rows, columns = made.shape
        flat = check_known(made.reshaped((1, rows * columns)))
        tall = check_known(made.transposed().reshaped((rows * columns, 1)))
        size = random.choice([k for k in (1, 2, 4) if rows % k == 0])
        ordered = check_known(made.sorted_within(size))
        assert flat.error == tall.error == ordered.error == made.error
        for member in members(made, random):
            check(flat, [list(chain(*member))], made)
            check(tall, [[x] for x in chain(*transposed(member))], made)
            groups = [transposed(member[k : k + size]) for k in range(0, rows, size)]
            expected = [row for group in groups for row in transposed([sorted(column) for column in group])]
            check(ordered, expected, made, size)


def test_balls_one_above_the_other():
    """Each at the end of its radius: the root of the sum of their squares, on unequal scales; and hardly more."""
    for random in draws(52, 2500):
        width = random.choice([1, 1, 2])
        shapes = [(random.choice([1, 2]), width) for _ in range(random.randint(2, 3))]
        parts = balls(random, *shapes)
        if random.random() < 0.2:
            parts[0] = Float64Matrix(np.zeros(shapes[0]), random.choice([-5000, 5000]), 0.0)
        found = check_known(parts[0].stacked(parts[1:]))
        for sign in (1, -1):
            moved = [moved_in(part, 0, 0, Fraction(sign)) for part in parts]
            check(found, [row for rows in moved for row in rows], *parts)
        radii = [Fraction(part.error) * Fraction(2) ** part.exponent for part in parts]
        sizes = [Fraction(size_of(part)) * Fraction(2) ** part.exponent for part in parts]
        allowed = sum(x * x for x in radii) * (1 + Fraction(1, 2**40)) + (sum(sizes) / 2**500) ** 2
        if all(max(part.error, size_of(part)) > 2.0**-200 for part in parts if part.error or size_of(part)):
            assert (Fraction(found.error) * Fraction(2) ** found.exponent) ** 2 <= allowed, "too wide"


def missed_roots_of_squares(hypot) -> int:
    """Of numbers of any size: an upper bound, and not more than some roundings above."""
    missed = 0
    for random in draws(53, 4000):
        near = magnitude(random, *random.choice([(-1060, -1000), (-540, -530), (-3, 3), (500, 1000)]))
        several = [near * mantissa(random) * random.choice([0.0, 0.5, 1.0, 2.0**-30]) for _ in range(3)]
        terms = random.choice([several, several, [any_float(random) for _ in range(random.randint(1, 4))]])
        squares, found = sum(Fraction(x) ** 2 for x in terms), hypot(*terms)
        if math.isinf(found):
            missed += squares * (1 + Fraction(1, 2**40)) < LARGEST**2
        else:
            missed += not squares <= Fraction(found) ** 2 <= (sqrt_upper(squares, 60) * (1 + TINY_STEPS) + 8 * ETA) ** 2
    return missed


TINY_STEPS = Fraction(1, 2**48)


def test_roots_of_sums_of_squares_are_upward():
    assert missed_roots_of_squares(hypot_up) == 0
    assert missed_roots_of_squares(math.hypot) > 0, "the nearest float may be below"
    assert missed_roots_of_squares(lambda *terms: float(sum(terms))) > 0, "far too much"
    assert missed_roots_of_squares(lambda *terms: math.sqrt(sum(x * x for x in terms))) > 0, "squares vanish, overflow"
    assert hypot_up() == hypot_up(0.0, 0.0) == 0
    assert hypot_up(0.0, 0.1) == 0.1
    assert hypot_up(1.0, math.inf) == math.inf


def test_a_factor_for_each_row():
    def columns(random):
        shape = shape_of(random)
        return shape, (shape[0], 1)

    def scaled(rows, column):
        return [[x * factor for x in row] for row, (factor,) in zip(rows, column, strict=True)]

    applied(54, 3500, columns, Float64Matrix.row_scaled, scaled, tight=True)


def test_the_error_of_factors_is_that_of_the_longest_row():
    """All of it in the factor of that row, which is not the row of the largest factor; and in no entry twice."""
    centre = np.array([[3.0, 4.0, 0.0], [1.0, 1.0, 1.0]])
    column = Float64Matrix(np.array([[1.0], [16.0]]), 0, 0.25)
    found = Float64Matrix(centre, 0, 0.0).row_scaled(column)
    check(found, [[Fraction(3 * 5, 4), Fraction(4 * 5, 4), Fraction(0)], [Fraction(16)] * 3])
    assert found.error < 1.25 * (1 + 2.0**-40)
    wide = Float64Matrix(centre, 0, 0.5).row_scaled(Float64Matrix(np.array([[1.0], [16.0]]), 0, 0.0))
    check(wide, [[Fraction(3), Fraction(4), Fraction(0)], [Fraction(16)] * 2 + [Fraction(24)]])
    assert wide.error < 8 * (1 + 2.0**-40)


def test_points_times_points_cover_their_own_rounding():
    for random in draws(55, 3000):
        x, y = mantissa(random), mantissa(random)
        found = Float64Matrix(np.array([[x]]), 0, 0.0).row_scaled(Float64Matrix(np.array([[y]]), 0, 0.0))
        check(found, [[Fraction(x) * Fraction(y)]], x, y)


def test_factors_under_which_all_vanishes():
    """36 entries that are 49/100 of the smallest number each, beside a large one whose factor is zero."""
    centre, factors = np.full((7, 6), 49 * 2.0**-1074), np.full((7, 1), 0.01)
    centre[0], factors[0] = 1.0, 0.0
    found = Float64Matrix(centre, 0, 0.0).row_scaled(Float64Matrix(factors, 0, 0.0))
    check(check_known(found), [[Fraction(0)] * 6] + [[49 * ETA * Fraction(0.01)] * 6] * 6)
    assert found.error > 0


def test_middles_and_what_is_around_them():
    """The middle has no radius, the distance is the radius, exactly; blurred by that it has all members again."""
    for random in draws(56, 1500):
        made = check_known(balls(random, shape_of(random))[0])
        middle, apart = made.recentred()
        check_known(middle)
        assert middle.error == 0
        assert middle.exponent == made.exponent
        assert (middle.centre == made.centre).all()
        assert apart.lower() == apart.upper() == Fraction(made.error) * Fraction(2) ** made.exponent
        again = check_known(middle.blurred(apart))
        for member in members(made, random):
            check(again, member, made)


def test_blurred_balls():
    """By scalars of 1 to 256 bits, points or not, of any size beside the ball's: radius and distance add up."""
    for random in draws(57, 4000):
        made, apart = check_known(balls(random, shape_of(random))[0]), scalar(random)
        if random.random() < 0.3:
            size = Fraction(2) ** random.choice([-3000, -1100, -500, 500, 1100, 3000]) * made_up(random)
            apart = Float64Scalar.around(size * random.choice([0, 1, -1]), size)
        found = check_known(made.blurred(apart))
        distance = max(apart.upper(), Fraction(0))
        unit = Fraction(2) ** made.exponent
        radius = Fraction(made.error) * unit
        direction = random.choice(DIRECTIONS[made.centre.size])
        centre = [Fraction(x) * unit for x in made.centre.ravel().tolist()]
        for sign in (1, -1):
            member = [x + sign * (radius + distance) * y for x, y in zip(centre, direction, strict=True)]
            check(found, table_of(member, made.shape[1]), made, apart)
        reached = Fraction(found.error) * Fraction(2) ** found.exponent
        if min(made.error, size_of(made)) > 2.0**-200 or not distance:
            allowed = (radius + distance) * (1 + TINY_STEPS) + Fraction(size_of(made)) * unit / 2**400
            assert reached <= allowed, (made, apart)


def made_up(random: Random) -> Fraction:
    """Near 1, with 100 bits."""
    return 1 + Fraction(random.getrandbits(100), 2**100)


def test_what_is_known_of_an_operator_norm_does_not_outlive_the_matrix():
    """Rows twice, other shapes, factors and what is around: none of these has the norm of the matrix."""
    known = Float64Matrix(np.array([[1.0, 1.0]]), 0, 0.0).with_norm_bound(sqrt_upper(Fraction(2), 60))
    column = Float64Matrix(np.array([[4.0]]), 0, 0.0)
    for made in (
        known.rows_at(np.array([0, 0, 0, 0])),
        known.stacked([known] * 3),
        known.row_scaled(column),
        known.blurred(BACKEND.scalar(Fraction(8))),
        known.reshaped((2, 1)),
        known.sorted_within(1),
        known.recentred()[0],
    ):
        assert made._operator == math.inf


def any_weight(random: Random) -> float:
    return random.choice([lambda: 0.0, lambda: 1.0, lambda: magnitude(random, -5, 5), lambda: any_float(random)])()


@pytest.mark.parametrize("name", ["sigmoid", "expm1_neg", "log1p_exp_neg"])
def test_curves(name):
    enclose = {
        "sigmoid": sigmoid_enclosure,
        "expm1_neg": expm1_neg_enclosure,
        "log1p_exp_neg": log1p_exp_neg_enclosure,
    }[name]
    for random in draws(37, 700):
        made = ball(random, shape_of(random), -6, 4)
        made = Float64Matrix(made.centre, random.choice([0, 0, 2, -2, made.exponent]), made.error)
        found = check_known(getattr(made, name)())
        for member in members(made, random):
            ends = [[enclose(x, 80) for x in row] for row in member]
            check(found, [[low for low, _ in row] for row in ends], made, slack=Fraction(1, 2**79))


def test_curves_of_wide_sets_move_as_much_as_they_can():
    """From one end of the line to the other, in all entries at once; the bound by the slope ends below."""
    for name, slope in (("sigmoid", 0.25), ("expm1_neg", 1.0), ("log1p_exp_neg", 0.5)):
        for radius in (1e-3, 1.0, 100.0, 1e9):
            made = getattr(Float64Matrix(np.zeros((2, 2)), 0, radius), name)()
            assert min(radius * slope, 2.0) <= made.error <= min(radius * slope, 2.0) * (1 + 2.0**-40) + 2.0**-40


def test_the_error_of_a_curve_is_that_of_every_entry():
    for name in ("sigmoid", "expm1_neg", "log1p_exp_neg"):
        assert getattr(Float64Matrix(np.ones((10, 10)), 0, 0.0), name)().error >= 10 * FLOAT_ERROR


def test_what_is_known_of_a_norm_is_known_of_the_new_set_alone():
    first, second = (Float64Matrix(np.array([[1.0]]), 0, 0.5) for _ in range(2))
    first.with_norm_bound(Fraction(1, 8))
    check(first @ second, [[Fraction(9, 4)]])


def test_what_is_known_of_the_operator_norm():
    """A product with the members that have it, of a ball, its transpose, and on other scales."""
    for random in draws(38, 1500):
        first, second = balls(random, (1, 1), (1, random.choice([1, 2])))
        inside = members(first, random)
        sizes = [abs(member[0][0]) for member in inside]
        norm = random.choice(sizes) * (1 + random.choice([0, Fraction(random.getrandbits(60), 2**62)]))
        known = first.with_norm_bound(norm)
        if random.random() < 0.3:
            known = known.transposed()
        try:
            with np.errstate(over="ignore"):
                found = check_known(known @ second)
        except UnboundedError:
            continue
        for member in inside:
            if abs(member[0][0]) <= norm:
                for other in members(second, random):
                    check(found, product(member, other), first, second, norm)


def test_ends_of_balls():
    for random in draws(39, 3000):
        made = balls(random, shape_of(random))[0]
        lower, upper = made.float_bounds()
        unit, radius = Fraction(2) ** made.exponent, Fraction(made.error)
        for c, low, high in zip(*(x.ravel().tolist() for x in (made.centre, lower, upper)), strict=True):
            assert low == -math.inf or low <= (Fraction(c) - radius) * unit, made
            assert high == math.inf or high >= (Fraction(c) + radius) * unit, made
            assert low < math.inf
            assert high > -math.inf


def test_matrices_of_rationals():
    for random in draws(40, 2000):
        shape, scale = shape_of(random), random.choice([1, 1, Fraction(2) ** -1100, Fraction(2) ** 1100])
        entries = [
            random.choice([-1, 1])
            * Fraction(random.getrandbits(random.choice([3, 54, 100])), random.choice([1, 3, 2**70]))
            * random.choice([1, Fraction(1, 2**1030)])
            for _ in range(math.prod(shape))
        ]
        rows = table_of([x * scale for x in entries], shape[1])
        check(check_known(BACKEND.matrix(RationalMatrix.from_fractions(rows))), rows)


# -- the generic matrix ------------------------------------------------------------------------------------------------


def small_scalar(random: Random) -> Float64Scalar:
    """Around zero more often than not, of sizes near 1: squares are above and below."""
    ends = sorted(random.choice([-1, 1]) * Fraction(magnitude(random, -3, 2)) for _ in range(2))
    return Float64Scalar.around(*random.choice([ends, ends, [-ends[1], -ends[1]], [min(ends[0], 0), ends[1]]]))


def generic(random: Random, rows: int, columns: int) -> GenericMatrix:
    return GenericMatrix(BACKEND, tuple(tuple(small_scalar(random) for _ in range(columns)) for _ in range(rows)))


def some_member(made: GenericMatrix, random: Random) -> list[list[Fraction]]:
    return [[random.choice(points(x)) for x in row] for row in made.rows]


def check_generic(found: GenericMatrix, rows: list[list[Fraction]], *operands: object) -> None:
    assert found.shape == (len(rows), len(rows[0]))
    for x, y in zip(chain(*found.rows), chain(*rows), strict=True):
        assert x.lower() <= y <= x.upper(), explain("outside", found=found.rows, exact=rows, operands=operands)
    lower, upper = (end.ravel().tolist() for end in found.float_bounds())
    for low, y, high in zip(lower, chain(*rows), upper, strict=True):
        assert Fraction(low) <= y <= Fraction(high), explain("ends", found=found.rows, exact=rows)


def test_generic_matrices():
    """Every operation on intervals around zero and away from it: all that a new backend gets for free."""
    curves = {"sigmoid": sigmoid_enclosure, "expm1_neg": expm1_neg_enclosure, "log1p_exp_neg": log1p_exp_neg_enclosure}
    for random in draws(41, 200):
        shape, other = (random.randint(1, 2), random.randint(1, 3)), random.randint(1, 2)
        a, b, c = generic(random, *shape), generic(random, *shape), generic(random, shape[1], other)
        t, bits, e = small_scalar(random), random.randint(0, 6), random.randint(-70, 70)
        left, right = (np.array([random.choice([0.0, -3.25, 0.1]) for _ in range(side)]) for side in shape)
        chosen = [np.array(random.sample(range(side), random.randint(1, side))) for side in shape]
        moved, movement = a.rounded(bits)
        squares, apart = a.frobenius_squared(), excludes_zero(a - b)
        for _ in range(3):
            x, y, z, u = (
                some_member(a, random),
                some_member(b, random),
                some_member(c, random),
                random.choice(points(t)),
            )
            check_generic(a, x)
            check_generic(a + b, each(x, y, add), a, b)
            check_generic(a - b, each(x, y, sub), a, b)
            check_generic(a @ c, product(x, z), a, c)
            check_generic(a.gram(), smaller_gram(x), a)
            check_generic(a.scalar_mul(t), [[v * u for v in row] for row in x], a, t)
            if t.lower() > 0 or t.upper() < 0:
                check_generic(a.scalar_mul(reciprocal(BACKEND, t)), [[v / u for v in row] for row in x], a, t)
            check_generic(a.transposed(), transposed(x), a)
            check_generic(a.ldexp(e), [[v * Fraction(2) ** e for v in row] for row in x], a, e)
            check_generic(moved, moved_to_grid(x, bits), a, bits)
            assert movement.lower() <= sum_of_squares(each(x, moved_to_grid(x, bits), sub)) <= movement.upper()
            assert squares.lower() <= sum_of_squares(x) <= squares.upper(), explain("squares", a=a.rows, x=x)
            assert not (apart and x == y)
            check_generic(a.block(*chosen), [[x[i][j] for j in chosen[1]] for i in chosen[0]], a)
            weighed = [
                [v * Fraction(p) * Fraction(q) for v, q in zip(row, right.tolist(), strict=True)]
                for row, p in zip(x, left.tolist(), strict=True)
            ]
            check_generic(a.diag_scaled(left, right), weighed, a, left, right)
            check_generic(a.positive_part(), [[max(v, Fraction(0)) for v in row] for row in x], a)
            check_generic(a.rows_at(np.array([-1, 0, -1, 0])), [[Fraction(0)] * shape[1], x[0]] * 2, a)
            check_generic(a.reshaped(shape[::-1]), table_of(list(chain(*x)), shape[0]), a)
            check_generic(a.stacked([b, a]), [*x, *y, *x], a, b)
            factors, first = b.block(np.arange(shape[0]), np.array([0])), [[row[0]] * shape[1] for row in y]
            check_generic(a.row_scaled(factors), each(x, first, mul), a, b)
            check_generic(a.sorted_within(shape[0]), transposed([sorted(v) for v in transposed(x)]), a)
            near = [row.copy() for row in x]
            near[-1][0] += max(u, Fraction(0)) * random.choice([-1, 1])
            check_generic(a.blurred(t), near, a, t)
            assert min(v.lower() for v in chain(*a.positive_part().rows)) >= 0
        assert squares.upper() <= sum(max(v.lower() ** 2, v.upper() ** 2) for row in a.rows for v in row) * (1 + TINY)
        assert squares.lower() >= 0
        if random.random() < 0.1:
            for name, enclose in curves.items():
                low, high = ([[enclose(v, 200)[k] for v in row] for row in x] for k in (0, 1))
                found = getattr(a, name)()
                check_generic(found, low)
                check_generic(found, high)


TINY = Fraction(1, 2**100)


def test_a_generic_zero_is_told_apart():
    """By the ends of the sum of squares, which are exact here."""
    zero, one = Fraction(0), Fraction(1)
    for ends, least, most in (
        (((zero, zero), (zero, zero)), zero, zero),
        (((zero, zero), (zero, one)), zero, one),
        (((-one, one), (zero, zero)), zero, one),
        (((-one, zero), (one, one)), one, 2 * one),
        (((-one, -one / 2), (-one, one)), one / 4, 2 * one),
        (((zero, zero), (one / 2, one)), one / 4, one),
    ):
        made = GenericMatrix(BACKEND, (tuple(BACKEND.hull(*pair) for pair in ends),))
        squares = made.frobenius_squared()
        assert (squares.lower(), squares.upper()) == (least, most)
        assert excludes_zero(made) is (least > 0)


def test_roots_of_any_backend_contain_those_of_the_ends():
    for random in draws(42, 300):
        x = small_scalar(random)
        found = hull_of_roots(x, BACKEND)
        for point in points(x):
            assert found.lower() <= sqrt_upper(max(point, Fraction(0)), BACKEND.prec) <= found.upper()
        assert found.lower() >= 0
