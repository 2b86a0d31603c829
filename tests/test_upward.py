"""Upward floats: each step alone against fractions, and each once more without its rounding, which is noticed."""

import math
from fractions import Fraction
from random import Random

import numpy as np
import pytest
from test_directed_rounding import ETA, LARGEST, any_float, draws, magnitude

from intervalcert.errors import UnboundedError
from intervalcert.numbers.upward import (
    LONGEST,
    VANISHING,
    add_up,
    enlarged,
    float_up,
    gamma_up,
    ldexp_up,
    mul_up,
    norms_up,
    rough_norms_up,
    sqrt_up,
)


def reaches(found: float, exact: Fraction) -> bool:
    """Whether an upper bound is one, and not more than some roundings above; infinite only where floats end."""
    if found == math.inf:
        return exact * (1 + Fraction(1, 2**50)) >= LARGEST
    return exact <= Fraction(found) <= exact * (1 + Fraction(1, 2**48)) + 8 * ETA


# -- step by step ------------------------------------------------------------------------------------------------------


def missed_sums(add) -> int:
    drawn = [[any_float(random) for _ in range(random.randint(1, 5))] for random in draws(1, 4000)]
    return sum(not reaches(add(*terms), sum(map(Fraction, terms), Fraction(0))) for terms in drawn)


def missed_products(mul) -> int:
    drawn = [(any_float(random), any_float(random)) for random in draws(2, 4000)]
    return sum(not reaches(mul(x, y), Fraction(x) * Fraction(y)) for x, y in drawn)


def missed_gammas(gamma) -> int:
    """γ_{k+2}, for every short length and some long ones: from exact fractions."""
    lengths = [*range(1, 2000), *(random.getrandbits(random.randint(11, 50)) for random in draws(3, 500)), 2**51 - 2]
    parts = [Fraction(k + 2, 2**53) for k in lengths]
    exact = [ku / (1 - ku) for ku in parts]
    return sum(not x <= Fraction(gamma(k)) <= x * (1 + Fraction(1, 2**50)) for k, x in zip(lengths, exact, strict=True))


def missed_roots(root) -> int:
    """Of counts, and of floats of any size."""
    numbers = [*range(3000), *(random.getrandbits(40) for random in draws(4, 500)), *map(any_float, draws(44, 1000))]
    found = [Fraction(root(x)) for x in numbers]
    return sum(
        not Fraction(x) <= y**2 <= Fraction(x) * (1 + Fraction(1, 2**50)) + ETA**2
        for x, y in zip(numbers, found, strict=True)
    )


def missed_shifts(shifted) -> int:
    missed = 0
    for random in draws(5, 3000):
        x, shift = any_float(random), random.choice([random.randint(-60, 60), random.randint(-2200, 2200)])
        missed += not reaches(shifted(x, shift), Fraction(x) * Fraction(2) ** shift)
    return missed


def missed_conversions(convert) -> int:
    """The least float that is not below, among the subnormals and beyond the floats as well."""
    missed = 0
    for random in draws(45, 1500):
        x = Fraction(random.getrandbits(random.choice([9, 54, 100])), random.choice([1, 3, 2**50, 2**1100]))
        x *= random.choice([1, 1, 2**1000])
        found = convert(x)
        below = math.nextafter(found, -math.inf)
        missed += not (x <= found and below < x)
    return missed


def test_sums_go_upward():
    assert not missed_sums(add_up)


def test_products_go_upward():
    assert not missed_products(mul_up)


def test_gamma_is_not_below_its_definition():
    assert not missed_gammas(gamma_up)
    with pytest.raises(UnboundedError):
        gamma_up(2**51 - 1)


def test_roots_go_upward():
    assert not missed_roots(sqrt_up)


def test_shifts_go_upward():
    assert not missed_shifts(ldexp_up)
    for random in draws(5, 3000):
        x, shift = any_float(random), random.randint(0, 59)
        if x < 1e290:
            assert ldexp_up(x, shift) == math.ldexp(x, shift), "upwards it is exact"


def test_floats_from_above():
    assert not missed_conversions(float_up)


def nearest_shift(x: float, shift: int) -> float:
    try:
        return math.ldexp(x, shift)
    except OverflowError:
        return math.inf


@pytest.mark.parametrize(
    ("missed", "nearest"),
    [
        (missed_sums, lambda *terms: sum(terms)),
        (missed_products, lambda x, y: x * y),
        (missed_gammas, lambda k: (k + 2) * 2.0**-53 / (1 - (k + 2) * 2.0**-53)),
        (missed_gammas, lambda k: gamma_up(k - 1)),
        (missed_roots, math.sqrt),
        (missed_shifts, nearest_shift),
        (missed_conversions, lambda x: np.float64(x) if x < LARGEST else math.inf),
    ],
)
def test_the_nearest_float_is_noticed(missed, nearest):
    """The checks above can fail."""
    with np.errstate(over="ignore"):
        assert missed(nearest)


# -- all at once -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("terms", [0, 1, 7, 100, 3000, 10**6])
def test_what_is_enlarged_outweighs_sums_that_lose_every_term(terms):
    """1 and so many terms of half its last bit, one after another: all of them are lost."""
    total = 1.0
    for _ in range(min(terms, 3000)):
        total += 2.0**-53
    assert total == 1.0
    assert Fraction(enlarged(total, terms)) >= 1 + terms * Fraction(1, 2**53)
    assert Fraction(enlarged(0.0)) >= (terms + 1) * Fraction(1, 2**1074)
    assert Fraction(enlarged(total, 0)) < 1 + 10**6 * Fraction(1, 2**53), "so that the number of terms matters"


def products_of_sixteen() -> list[list[float]]:
    return [[magnitude(random, -1, 1) for _ in range(16)] for random in draws(46, 300)]


def test_what_is_enlarged_outweighs_a_product_of_sixteen():
    for factors in products_of_sixteen():
        assert Fraction(enlarged(math.prod(factors))) >= math.prod(map(Fraction, factors))
        [[found]] = enlarged(np.array([[math.prod(factors)]])).tolist()
        assert found == enlarged(math.prod(factors)), "in arrays as alone"
    assert any(Fraction(math.prod(factors)) < math.prod(map(Fraction, factors)) for factors in products_of_sixteen())


def exactly(x) -> list[Fraction]:
    return [Fraction(y) for y in np.ravel(x).tolist()]


def missed_norms(norms) -> int:
    """Those below the exact ones, or much above: where every square but one is lost, or would vanish or overflow."""
    missed = 0
    for seed in range(300):
        random = Random(seed)
        shape = random.choice([(1, 1), (1, 5), (7, 1), (3, 4)])
        powers = random.choice([[0], [-1074], [-700], [700], [1015], [-700, 700], [-1060, 1015]])
        numbers = [magnitude(random, -3, 3) * 2.0 ** random.choice(powers) for _ in range(math.prod(shape))]
        x = np.array(numbers).reshape(shape) * random.choice([-1, 1])
        for axis, lines in ((1, x), (0, x.T)):
            exact = [sum(y * y for y in exactly(line)) for line in lines]
            for found, square in zip(norms(x, axis).tolist(), exact, strict=True):
                most = square * (1 + Fraction(1, 2**30)) + Fraction(2) ** -1980
                missed += not (math.isfinite(found) and square <= Fraction(found) ** 2 <= most)
    column = np.full((4000, 2), 0.99 * 2.0**-26.5)
    column[0] = 1.0
    assert (column[0] ** 2 + column[1] ** 2 == 1.0).all()
    exact = sum(y * y for y in exactly(column[:, 0]))
    return missed + sum(Fraction(y) ** 2 < exact for y in norms(column, 0).tolist())


def test_norms_are_at_least_the_exact_ones():
    assert not missed_norms(norms_up)


def test_norms_of_the_nearest_floats_are_noticed():
    with np.errstate(all="ignore"):
        assert missed_norms(lambda x, axis: np.sqrt((x * x).sum(axis=axis)))
        assert missed_norms(lambda x, axis: enlarged(np.linalg.norm(x, axis=axis), x.shape[axis]))


def test_rough_norms_are_at_least_the_exact_ones():
    """Also where all squares vanish, or one after another is lost; and beside `VANISHING` hardly more."""
    for random in draws(47, 600):
        size = random.randint(1, 9)
        least = random.choice([-3, -520, -545, -1074])
        row = np.array([[magnitude(random, least, least + 6) for _ in range(size)]])
        [found] = rough_norms_up(np.einsum("ij,ij->i", row, row)).tolist()
        square = sum(y * y for y in exactly(row))
        assert square <= Fraction(found) ** 2 <= square * (1 + Fraction(1, 2**18)) + 3 * Fraction(VANISHING), row
    assert Fraction(rough_norms_up(np.ones(1))[0]) ** 2 >= 1 + LONGEST * Fraction(1, 2**53), "as many as are lost"
    assert Fraction(VANISHING) ** 2 >= LONGEST * ETA
