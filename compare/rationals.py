"""Exact numbers for those who judge: written here once more, so that they share nothing with what they judge."""

from __future__ import annotations

from decimal import ROUND_CEILING, ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from math import isqrt

__all__ = ["decimal_lower", "decimal_upper", "sqrt_lower"]


def sqrt_lower(x: Fraction, bits: int = 64) -> Fraction:
    """At most sqrt(x), and at least (1 - 2^(1 - bits)) of it. Requires: x >= 0.

    Proof. floor(sqrt(floor(q))) = floor(sqrt(q)) for q = x·4^shift, whose root is 2^shift times that of x. The shift is
    at least such that q > 2^(2·bits - 1), if x is not 0: less than 1 is cut off from more than 2^(bits - 1).
    """
    shift = max(0, bits - (x.numerator.bit_length() - x.denominator.bit_length()) // 2)
    return Fraction(isqrt((x.numerator << 2 * shift) // x.denominator), 1 << shift)


def decimal_lower(x: Fraction, digits: int) -> str:
    """A decimal of so many digits, at most x."""
    return _decimal(x, Context(digits, ROUND_FLOOR))


def decimal_upper(x: Fraction, digits: int) -> str:
    """A decimal of so many digits, at least x."""
    return _decimal(x, Context(digits, ROUND_CEILING))


def _decimal(x: Fraction, context: Context) -> str:
    """The quotient is rounded once, as the context says; zeros at its end are nothing."""
    value = context.divide(Decimal(x.numerator), Decimal(x.denominator)).normalize(context)
    return f"{value:f}" if -5 <= value.adjusted() < context.prec else f"{value:e}"
