"""exp(-t) for t >= 0, enclosed: in integers at any precision, and in float64 for whole arrays with a proven error.

Two functions are built from it, both monotone: the logistic function 1/(1 + exp(-x)), and `decay`, exp(min(x, 0)) - 1.
tanh and ELU follow from them by products and sums.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt

__all__ = ["FLOAT_ERROR", "decay_enclosure", "floats_decay", "floats_logistic", "logistic_enclosure"]

Floats = npt.NDArray[np.float64]


# -- in integers -----------------------------------------------------------------------------------------------------


def _exp_of_negative(t: Fraction, bits: int) -> tuple[Fraction, Fraction]:
    """Ends of exp(-t), apart by at most 2^-bits. Requires: t >= 0.

    Beyond t = bits it is less than e^-bits < 2^-bits. Else y = t/2^j <= 1/2, and exp(-y) by its series with fixed-point
    numbers: y and each term are rounded down, by less than 2 units a term, and what follows the first term of 0 is less
    than 4 units. Then j squarings: (v ± e)² is off by 2e + e² < 2e + 1, and rounded down by a unit, as v <= 1.
    """
    if t >= bits:
        return Fraction(0), Fraction(1, 2**bits)
    j = (2 * t.numerator // t.denominator).bit_length()
    terms = bits + 2 * j + 32  # more than it takes: the terms fall by half at least
    working = bits + j + terms.bit_length() + 8
    one = 1 << working
    y = (t.numerator << working) // (t.denominator << j)
    total = term = one
    for n in range(1, terms + 1):
        term = (term * y >> working) // n
        total += -term if n % 2 else term
        if not term:
            break
    error = 2 * terms + 8
    for _ in range(j):
        total, error = total * total >> working, 2 * error + 2
    return Fraction(max(total - error, 0), one), Fraction(min(total + error, one), one)


def logistic_enclosure(x: Fraction, bits: int) -> tuple[Fraction, Fraction]:
    """Ends of 1/(1 + exp(-x)), apart by at most 2^-bits."""
    low, high = _exp_of_negative(abs(x), bits + 2)
    if x >= 0:
        return 1 / (1 + high), 1 / (1 + low)
    return low / (1 + low), high / (1 + high)


def decay_enclosure(x: Fraction, bits: int) -> tuple[Fraction, Fraction]:
    """Ends of exp(min(x, 0)) - 1, apart by at most 2^-bits."""
    if x >= 0:
        return Fraction(0), Fraction(0)
    low, high = _exp_of_negative(-x, bits)
    return low - 1, high - 1


# -- in floats -------------------------------------------------------------------------------------------------------

_LOG2_HIGH = 0.6931471803691238
_LOG2_LOW = 1.9082149292705877e-10
"""Their sum is ln 2 up to 2^-86; the first has 32 bits, so that its multiples up to 2^11 are exact."""

FLOAT_ERROR = 2.0**-45
"""A bound of the error of the functions below, for every argument; see `_floats_exp`."""


def _floats_exp(t: Floats) -> Floats:
    """exp(-t) for t >= 0, off by at most 2^-46 (in truth some 2^-52).

    t is cut off at 700, where exp(-t) < 2^-1000. k = rint(t/ln 2) <= 1010 and r = t - k·ln 2, |r| <= 0.36: k·high is
    exact, the first difference too but for an error of u·|t - k·high| <= 2^-53, k·low <= 2^-22 is off by 2^-75 and by
    k·2^-86, and the second difference by 2^-54: r is off by less than 2^-51. Taylor's sum of exp(-r) up to the 14th
    power leaves less than 0.36^15/15!·e^0.36 < 2^-60. In Horner's scheme each of 14 steps is off by 2u of a partial sum
    below 1.5, and is multiplied by |r| < 0.36 thereafter: less than 2^-50 in all. exp(-r) < 1.5 and the scaling by 2^-k
    does not enlarge an error.
    """
    t = np.minimum(t, 700.0)
    k = np.rint(t * 1.4426950408889634)
    r = (t - k * _LOG2_HIGH) - k * _LOG2_LOW
    total = np.full_like(r, 1.0)
    for n in range(14, 0, -1):
        total = 1.0 - total * r / n
    found: Floats = np.ldexp(total, -k.astype(np.int64))
    return found


def floats_logistic(x: Floats) -> Floats:
    """1/(1 + exp(-x)), off by at most `FLOAT_ERROR`: the derivative by exp(-|x|) is at most 1, and two roundings."""
    e = _floats_exp(np.abs(x))
    found: Floats = np.where(x >= 0, 1.0, e) / (1.0 + e)
    return found


def floats_decay(x: Floats) -> Floats:
    """exp(min(x, 0)) - 1, off by at most `FLOAT_ERROR`."""
    found: Floats = _floats_exp(np.maximum(-x, 0.0)) - 1.0
    return found
