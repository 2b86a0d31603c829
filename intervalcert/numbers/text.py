"""Exact numbers as text: rounded outward for people, or the very value, which `parsing` reads back."""

from __future__ import annotations

from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal, InvalidOperation, Overflow
from fractions import Fraction

__all__ = ["decimal_lower", "decimal_upper", "format_exact", "shortest_exact"]


def decimal_upper(x: Fraction, digits: int = 17) -> str:
    """A decimal of `digits` significant digits, >= x >= 0: for people to read."""
    return _decimal(x, digits, ROUND_CEILING)


def decimal_lower(x: Fraction, digits: int = 17) -> str:
    """A decimal of `digits` significant digits, <= x, for x >= 0."""
    return _decimal(x, digits, ROUND_FLOOR)


def _decimal(x: Fraction, digits: int, rounding: str) -> str:
    if x < 0:
        raise ValueError("decimals for people are written of bounds, which are not negative")
    # Conversion of integers is exact, and `decimal` rounds the quotient correctly in the direction of its context.
    context = Context(prec=digits, rounding=rounding, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[InvalidOperation, Overflow])
    value = context.divide(Decimal(x.numerator), Decimal(x.denominator))
    text = f"{value:f}" if value == 0 or -5 <= value.adjusted() < digits else f"{value:e}"
    mantissa, e, exponent = text.partition("e")
    return (mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa) + e + exponent


def format_exact(x: Fraction) -> str:
    """The exact value as ``m*2^e`` if it is dyadic, else as ``p/q``; `parse_rational` reads both back."""
    bottom = x.denominator
    if bottom & (bottom - 1):
        return f"{x.numerator}/{bottom}"
    if x == 0:
        return "0*2^0"
    zeros = (x.numerator & -x.numerator).bit_length() - 1
    return f"{x.numerator >> zeros}*2^{zeros - (bottom.bit_length() - 1)}"


def shortest_exact(x: Fraction) -> str:
    """The exact value as people write it: a short decimal, else ``p/q``; ``≈`` marks what is too long to write."""
    if max(abs(x.numerator), x.denominator).bit_length() > 13_000:
        return f"≈{'-' if x < 0 else ''}{decimal_upper(abs(x))}"
    for digits in range(20):
        if (x * 10**digits).denominator == 1:
            whole = str(abs((x * 10**digits).numerator)).rjust(digits + 1, "0")
            text = f"{whole[: len(whole) - digits]}.{whole[len(whole) - digits :]}" if digits else whole
            return f"-{text}" if x < 0 else text
    return f"{x.numerator}/{x.denominator}"
