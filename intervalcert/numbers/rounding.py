"""Exact numbers rounded in a stated direction: to p-bit dyadics, roots, floats."""

from __future__ import annotations

import math
import sys
from fractions import Fraction

__all__ = [
    "dyadic_value",
    "float_at_least",
    "float_below",
    "float_enclosure",
    "float_near",
    "root_upper",
    "round_down",
    "round_up",
    "sqrt_lower",
    "sqrt_upper",
]


def dyadic_value(mantissa: int, exponent: int) -> Fraction:
    """mantissa·2^exponent."""
    return Fraction(mantissa << exponent) if exponent >= 0 else Fraction(mantissa, 1 << -exponent)


def round_up(x: Fraction, bits: int) -> Fraction:
    """The least dyadic with a `bits`-bit mantissa that is >= x.

    Guarantees: x <= result <= x·(1 + 2^(1-bits)) for x >= 0; monotone in x, because the set of `bits`-bit dyadics does
    not depend on x.
    """
    return x if _fits(x, bits) else -round_down(-x, bits)


def round_down(x: Fraction, bits: int) -> Fraction:
    """The greatest dyadic with a `bits`-bit mantissa that is <= x; monotone in x."""
    if _fits(x, bits):
        return x
    # bit lengths bracket log2|x| within 1, so the quotient below has `bits` or bits + 1 bits; cut the superfluous one.
    shift = bits - (x.numerator.bit_length() - x.denominator.bit_length())
    top, bottom = x.numerator, x.denominator
    mantissa = (top << shift) // bottom if shift >= 0 else top // (bottom << -shift)
    excess = mantissa.bit_length() - bits
    # Floor of a floor is the floor. A carry to 2^bits (negative x) leaves a power of two, which has a 1-bit mantissa.
    return dyadic_value(mantissa >> excess, excess - shift)


def _fits(x: Fraction, bits: int) -> bool:
    """Whether x is a dyadic with a mantissa of at most so many bits, as a glance tells (0 is)."""
    bottom = x.denominator
    return x.numerator.bit_length() <= bits and bottom & (bottom - 1) == 0


def sqrt_upper(x: Fraction, bits: int) -> Fraction:
    """The least dyadic with a `bits`-bit mantissa that is >= sqrt(x).

    Guarantees: result² >= x; result <= sqrt(x)·(1 + 2^(1-bits)), at any scale; monotone in x; exact if sqrt(x) is
    itself such a dyadic; 0 at 0.
    Requires: x >= 0 (ValueError otherwise).

    Proof. Choose e so that q = x/4^e has a root of `bits` bits, i.e. 4^(bits-1) <= q < 4^bits. The least integer m with
    m² >= q is the least with m² >= ceil(q), which is isqrt(ceil(q) - 1) + 1, `isqrt` being the integer floor of the
    root. m·2^e is then the least element, above sqrt(x), of a set that does not depend on x: hence monotone.
    """
    return dyadic_value(*root_upper(x.numerator, x.denominator, bits))


def root_upper(top: int, bottom: int, bits: int) -> tuple[int, int]:
    """(m, e) with m·2^e = sqrt_upper(top/bottom, bits)."""
    floor, exact, e = _normalised(top, bottom, bits)
    return (math.isqrt(floor - exact) + 1, e) if floor else (0, 0)


def sqrt_lower(x: Fraction, bits: int) -> Fraction:
    """The greatest dyadic with a `bits`-bit mantissa that is <= sqrt(x). Requires: x >= 0."""
    floor, _, e = _normalised(x.numerator, x.denominator, bits)
    return dyadic_value(math.isqrt(floor), e)


def _normalised(top: int, bottom: int, bits: int) -> tuple[int, bool, int]:
    """(floor(q), whether q is an integer, e) with x = top/bottom = q·4^e and 4^(bits-1) <= q < 4^bits; zeros for 0."""
    if top <= 0:
        if top:
            raise ValueError(f"the square root of a negative number: {top}/{bottom}")
        return 0, True, 0
    # x lies between 2^(s-1) and 2^(s+1): q is at most a factor of 4 too small.
    e = (top.bit_length() - bottom.bit_length()) // 2 + 1 - bits
    while True:
        floor, rest = divmod(top << max(-2 * e, 0), bottom << max(2 * e, 0))
        if floor.bit_length() >= 2 * bits - 1:
            return floor, not rest, e
        e -= 1


def float_below(x: Fraction) -> float:
    """The greatest float64 strictly below x > 0, at least 0.0; and 0.0 for x <= 0.

    Strict, so that a radius reported this way satisfies the strict inequality that defines "certified".
    """
    if x <= 0:
        return 0.0
    try:
        nearest = x.numerator / x.denominator  # correctly rounded by Python, also for huge integers
    except OverflowError:
        nearest = math.inf
    return nearest if nearest < x else math.nextafter(nearest, 0.0)


def float_enclosure(lower: Fraction, upper: Fraction) -> tuple[float, float]:
    """The greatest float64 <= lower, and the least >= upper; infinite where there is none."""
    return -float_at_least(-lower.numerator, lower.denominator), float_at_least(upper.numerator, upper.denominator)


def float_at_least(top: int, bottom: int) -> float:
    """The least float64 >= top/bottom; infinite if there is none. Requires: bottom >= 1."""
    try:
        nearest = top / bottom  # correctly rounded, also for huge integers
    except OverflowError:
        return math.inf if top > 0 else -sys.float_info.max
    over, under = nearest.as_integer_ratio()
    return nearest if over * bottom >= top * under else math.nextafter(nearest, math.inf)


def float_near(top: int, bottom: int) -> float:
    """The float64 nearest to top/bottom: integers are divided with one rounding. Infinite beyond the floats."""
    try:
        return top / bottom
    except OverflowError:
        return math.inf if top > 0 else -math.inf
