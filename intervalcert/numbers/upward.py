"""Upper bounds in floats: sums, products, roots and norms of non-negative numbers, rounded upward or enlarged.

What is assumed is what `float_environment` tests: IEEE-754 binary64, rounded to nearest, with gradual underflow. With
u = 2^-53 and η = 2^-1074 there are two ways to an upper bound:

* step by step (`add_up`, `mul_up`, `sqrt_up`, `ldexp_up`, `hypot_up`): the nearest float is at most half a step below
  the true value, so the next one is not below it. Zeros are exact, and stay zero;
* all at once (`enlarged`, `norms_up`): a formula of k operations is evaluated as it stands, in arrays, and the result
  enlarged by more than all of its roundings: 1/(1 - γ_k) <= 1 + 4·k·u for γ_k = k·u/(1 - k·u) and k <= 2^51 (Higham,
  Accuracy and Stability of Numerical Algorithms, 2nd ed., 3.1).

Whatever is infinite, or not a number, bounds nothing: it is for the caller to refuse it.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from intervalcert.errors import UnboundedError
from intervalcert.numbers.rounding import float_at_least

__all__ = [
    "ETA",
    "LONGEST",
    "ROOM",
    "VANISHING",
    "U",
    "add_up",
    "enlarged",
    "float_up",
    "gamma_up",
    "hypot_up",
    "ldexp_up",
    "mul_up",
    "norms_up",
    "rough_norms_up",
    "sqrt_up",
]

Floats = npt.NDArray[np.float64]
F = TypeVar("F", float, Floats)

U = 2.0**-53
"""The unit roundoff: one operation is off by at most this part of its result, or by η/2 where that is subnormal."""

ETA = 2.0**-1074
"""The smallest float above zero."""

ROOM = 1 + 2.0**-20
"""Bounds that are computed in a few float operations and sums of at most `LONGEST` terms, times this."""

LONGEST = 2**28

VANISHING = 2.0**-500
"""More than the root of what a sum of `LONGEST` products loses to underflow."""

_LEAST = 2.0**-1000
"""Far more than what underflows in a formula, and next to nothing."""


# -- step by step ------------------------------------------------------------------------------------------------------
# (Norms have several u to spare, and underflow terms twice what can be lost: next to those a step more or less does not
# matter, and no test can see it. Each is upward all the same, so that every line is right by itself.)


def add_up(*terms: float) -> float:
    """An upper bound of the sum. Requires: no term is negative."""
    total = 0.0
    for term in terms:
        if term:
            total = math.nextafter(total + term, math.inf) if total else term
    return total


def mul_up(x: float, y: float) -> float:
    """An upper bound of the product. Requires: neither is negative."""
    return math.nextafter(x * y, math.inf) if x and y else 0.0


def sqrt_up(x: float) -> float:
    """A float above the square root, also above that of zero. Requires: x >= 0; an integer is below 2^53."""
    return math.nextafter(math.sqrt(x), math.inf)


def ldexp_up(x: float, shift: int) -> float:
    """An upper bound of x·2^shift; infinite where there is none. Requires: x >= 0."""
    try:
        moved = math.ldexp(x, shift)
    except OverflowError:
        return math.inf
    return moved if shift >= 0 or not x else math.nextafter(moved, math.inf)  # upwards it is exact


def hypot_up(*terms: float) -> float:
    """An upper bound of the root of the sum of the squares; one term alone is its own. Requires: none is negative."""
    some = [x for x in terms if x]
    largest = max(some, default=0.0)
    if len(some) < 2 or largest == math.inf:
        return largest
    shift = math.frexp(largest)[1]  # the largest is brought below 1: no square overflows, and none that counts vanishes
    squares = [mul_up(x, x) for x in (ldexp_up(x, -shift) for x in some)]
    return ldexp_up(sqrt_up(add_up(*squares)), shift)


def gamma_up(k: int) -> float:
    """An upper bound of γ_{k+2}: two operations to spare, for the factors alpha and beta that BLAS routines have.

    Raises: UnboundedError where γ exceeds 1/3, the largest that bounds of sums of squares can do with.
    """
    ku = (k + 2) * U  # exact: k is far below 2^53
    if ku > 0.25:
        raise UnboundedError(f"inner products of length {k} are too long for float64")
    return math.nextafter(ku / (1 - ku), math.inf)  # 1 - ku is exact: a multiple of u below 1


def float_up(x: Fraction) -> float:
    """The least float that is not below; infinite beyond the floats."""
    return float_at_least(x.numerator, x.denominator)


# -- all at once -------------------------------------------------------------------------------------------------------


def enlarged(x: F, terms: int = 0) -> F:
    """An upper bound of what `x` is the float value of: a formula of sums and products of non-negative numbers.

    Requires: at most `terms` operations in a sum, and a dozen more: what is added here outweighs terms + 16 of them.
    """
    return x * (1 + (terms + 16) * 2.0**-51) + _LEAST


def norms_up(x: Floats, axis: int) -> Floats:
    """Upper bounds of Euclidean norms. Scaled by powers of two, so that no square vanishes or overflows."""
    largest = np.max(np.abs(x), axis=axis, keepdims=True)
    exponent = np.frexp(np.where(np.isfinite(largest), largest, 1.0))[1]
    parts = np.ldexp(x, -exponent)  # at most 1; what vanishes here is less than 2^-1073, beside a sum of at least 1/4
    roots = enlarged(np.sqrt((parts**2).sum(axis=axis, keepdims=True)), x.shape[axis])
    found: Floats = np.nextafter(np.ldexp(roots, exponent), np.inf).squeeze(axis)
    return found


def rough_norms_up(squares: Floats) -> Floats:
    """Upper bounds of norms, of which the floats `squares` are sums of at most `LONGEST` squares that do not overflow.

    Fast; for what is multiplied by a rounding error afterwards.
    """
    found: Floats = np.sqrt(squares) * ROOM + VANISHING
    return found
