"""exp(-t) for t >= 0, enclosed: in integers at any precision, and in float64 for whole arrays with a proven error.

Three functions are built from it, all increasing: the sigmoid 1/(1 + exp(-x)); `expm1_neg`, exp(min(x, 0)) - 1; and
`log1p_exp_neg`, ln(1 + exp(min(x, 0))). tanh, ELU and softplus follow from them by products and sums.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt

__all__ = [
    "FLOAT_ERROR",
    "expm1_neg_enclosure",
    "floats_expm1_neg",
    "floats_log1p_exp_neg",
    "floats_sigmoid",
    "log1p_exp_neg_enclosure",
    "sigmoid_enclosure",
]

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


def sigmoid_enclosure(x: Fraction, bits: int) -> tuple[Fraction, Fraction]:
    """Ends of 1/(1 + exp(-x)), apart by at most 2^-bits."""
    low, high = _exp_of_negative(abs(x), bits + 2)
    if x >= 0:
        return 1 / (1 + high), 1 / (1 + low)
    return low / (1 + low), high / (1 + high)


def expm1_neg_enclosure(x: Fraction, bits: int) -> tuple[Fraction, Fraction]:
    """Ends of exp(min(x, 0)) - 1, apart by at most 2^-bits."""
    if x >= 0:
        return Fraction(0), Fraction(0)
    low, high = _exp_of_negative(-x, bits)
    return low - 1, high - 1


def log1p_exp_neg_enclosure(x: Fraction, bits: int) -> tuple[Fraction, Fraction]:
    """Ends of ln(1 + exp(min(x, 0))), apart by at most 2^-bits: a change of exp by d changes it by at most d."""
    low, high = _exp_of_negative(max(-x, Fraction(0)), bits + 2)
    return _log_above_one(low, bits + 2)[0], _log_above_one(high, bits + 2)[1]


def _log_above_one(e: Fraction, bits: int) -> tuple[Fraction, Fraction]:
    """Ends of ln(1 + e), apart by at most 2^-bits. Requires: 0 <= e <= 1.

    It is 2·artanh(z), z = e/(2 + e) <= 1/3: twice the sum of z^(2k+1)/(2k+1), with fixed-point numbers rounded down. z
    is off by a unit, its square by less than 2; so a power by less than 3 (p/9 + 2/3 + 1 of the one before, p < 3), its
    quotient by less than 4, and what follows a power of 0 is less than 3·9/8 units.
    """
    working = bits + bits.bit_length() + 12
    bottom = 2 * e.denominator + e.numerator
    z = (e.numerator << working) // bottom
    square = z * z >> working
    total, power, terms = 0, z, 0
    while power:
        total += power // (2 * terms + 1)
        power = power * square >> working
        terms += 1
    error = 4 * terms + 4
    return Fraction(2 * total, 1 << working), Fraction(2 * (total + error), 1 << working)


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


def floats_sigmoid(x: Floats) -> Floats:
    """1/(1 + exp(-x)), off by at most `FLOAT_ERROR`: the derivative by exp(-|x|) is at most 1, and two roundings."""
    e = _floats_exp(np.abs(x))
    found: Floats = np.where(x >= 0, 1.0, e) / (1.0 + e)
    return found


def floats_expm1_neg(x: Floats) -> Floats:
    """exp(min(x, 0)) - 1, off by at most `FLOAT_ERROR`."""
    found: Floats = _floats_exp(np.maximum(-x, 0.0)) - 1.0
    return found


def floats_log1p_exp_neg(x: Floats) -> Floats:
    """ln(1 + exp(min(x, 0))), off by at most `FLOAT_ERROR`.

    As `_log_above_one`, in Horner's scheme: 18 terms leave less than 9^-18 < 2^-57 of a sum below 0.36. e is off by
    2^-46 and ln(1 + e) by no more; z is off by 2u of itself, and each step, off by 4u of a sum below 1.2, is multiplied
    by z² <= 1/9 thereafter: less than 2^-49 in all.
    """
    e = _floats_exp(np.maximum(-x, 0.0))
    z = e / (2.0 + e)
    square = z * z
    total = np.zeros_like(z)
    for k in range(17, -1, -1):
        total = total * square + 1.0 / (2 * k + 1)
    found: Floats = 2.0 * z * total
    return found
