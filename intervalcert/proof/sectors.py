"""How far an activation can bend within reach of a known point: sectors of difference quotients, exactly.

Let z be the inner value of a neuron at a point v, and |δ| <= b its change. All quotients (f(z + δ) - f(z))/δ of a hinge
f(x) = max(x - k, 0) lie in an interval that shrinks with the distance |z - k|: with t = min(1, |z - k|/b),

    z > k:  [t, 1].    From z the slope is 1 until the kink; beyond, f stays: the quotient is (z - k)/|δ| >= (z - k)/b.
    z < k:  [0, 1 - t].  By the same picture, f(z + δ) = δ - (k - z) beyond the kink: the quotient is 1 - (k - z)/δ.

If t = 1 the neuron cannot cross the kink: its quotient is 1 or 0. The quotients of a sum of hinges and a line add up.
Whatever smaller t and larger b are put in, the interval still holds all quotients. z is only known to lie between two
floats, b is a float: t is rounded down to a multiple of 2^-40 and everything is done with integers.
"""

from __future__ import annotations

from fractions import Fraction
from math import lcm

import numpy as np
import numpy.typing as npt

from intervalcert.backends.protocol import Floats
from intervalcert.model.activations import PiecewiseLinear
from intervalcert.numbers.matrices import IntegerArray, exact_integers
from intervalcert.proof.ellipsoids import Sector

__all__ = ["GRID", "holds_sector", "is_within_reach", "quotient_bounds"]

GRID = 40
"""Parts are multiples of 2^-40."""
_ONE = Fraction(1)

Bools = npt.NDArray[np.bool_]


def quotient_bounds(
    function: PiecewiseLinear, low: Floats, high: Floats, reach: Floats, least_factor: Fraction
) -> tuple[IntegerArray, IntegerArray, int]:
    """Integers A, B and d with all quotients of neuron k in [A_k/d, B_k/d], for z in [low, high] and |δ| <= reach.

    Times any factor between `least_factor` and 1 (`UncertainScale`): it brings a quotient nearer to zero.
    """
    (bottom, x), (top, y), (b, n) = map(exact_integers, (low, high, reach))
    common = lcm(function.slope.denominator, *(weight.denominator for weight, _ in function.hinges))
    denominator = common << GRID
    one = 1 << GRID
    start = int(function.slope * common) * one
    least, most = (np.full(len(low), start, dtype=object) for _ in range(2))
    for weight, kink in function.hinges:
        p, q = kink.numerator, kink.denominator
        above, below = bottom * q - p * x, p * y - top * q  # z - k >= above/(x·q), k - z >= below/(y·q)
        t_above, t_below = _parts(above, x * q, b, n), _parts(below, y * q, b, n)
        alpha = np.where(above > 0, t_above, 0)
        beta = np.where(below > 0, one - t_below, one)
        if weight < 0:
            alpha, beta = beta, alpha
        factor = int(weight * common)
        least, most = least + factor * alpha, most + factor * beta
    if least_factor == 1:
        return least, most, denominator
    p, q = least_factor.numerator, least_factor.denominator
    return least * _either(least > 0, p, q), most * _either(most < 0, p, q), denominator * q


def _either(where: Bools, one: int, other: int) -> IntegerArray:
    """One integer or the other, of any size: numpy would take the plain numbers for machine words."""
    made = np.full(len(where), other, dtype=object)
    made[where.astype(bool)] = one
    return made


def _parts(distance: IntegerArray, unit: int, reach: IntegerArray, over: int) -> IntegerArray:
    """min(1, (distance/unit) / (reach/over)) in units of 2^-40, rounded down; 1 where the reach is 0."""
    safe = np.where(reach > 0, reach, 1)
    quotient = ((distance * over) << GRID) // (safe * unit)
    return np.where(reach > 0, np.minimum(quotient, 1 << GRID), 1 << GRID)


def holds_sector(
    function: PiecewiseLinear, low: Floats, high: Floats, reach: Floats, sector: Sector, least_factor: Fraction = _ONE
) -> bool:
    """Whether each neuron's sector holds all its difference quotients; proved with integers.

    Requires: the neuron's value is between low and high, and changes by at most `reach`.
    least_factor: of the layer's `UncertainScale`.
    """
    given = (low, high, reach, sector.middle, sector.spread)
    if any(x.shape != low.shape for x in given) or not all(np.isfinite(x).all() for x in given):
        return False
    least, most, denominator = quotient_bounds(function, low, high, reach, least_factor)
    (m, d), (r, e) = exact_integers(sector.middle), exact_integers(sector.spread)
    inside = ((m * e - r * d) * denominator <= least * (d * e)) & ((m * e + r * d) * denominator >= most * (d * e))
    return bool(inside.all()) and bool((reach >= 0).all())


def is_within_reach(reach: Floats, squares: Floats, factor: Fraction) -> Bools:
    """Where reach² >= factor·squares, exactly; never where either is not finite."""
    finite = np.isfinite(squares) & np.isfinite(reach)
    (b, n), (s, d) = (exact_integers(np.where(finite, x, 0.0)) for x in (reach, squares))
    enough: Bools = (b * b * (d * factor.denominator) >= s * (factor.numerator * n * n)).astype(bool)
    found: Bools = finite & (reach >= 0) & enough
    return found
