"""The scalars of `float64`: intervals between dyadics of any size, and many of them as arrays of floats with exponents.

Scalars are few, so they are exact integers, rounded outward to 128 bits; vectors are long, so they are floats, rounded
outward by a step.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from intervalcert.backends.generic import check_same_length
from intervalcert.backends.protocol import Truth
from intervalcert.errors import UnboundedError
from intervalcert.numbers.pairs import Dyadics
from intervalcert.numbers.rounding import dyadic_value, root_upper, round_down, round_up

if TYPE_CHECKING:
    from intervalcert.backends.protocol import Backend, Floats, Scalar, Vector
    from intervalcert.numbers.pairs import Exponents

__all__ = ["BITS", "Float64Scalar", "Float64Vector"]

BITS, SCALAR_BITS = 53, 128
Dyadic = tuple[int, int]
"""(m, e) for m·2^e."""


def _sum(x: Dyadic, y: Dyadic) -> Dyadic:
    (m, e), (n, f) = x, y
    return ((m << e - f) + n, f) if e >= f else (m + (n << f - e), e)


def _down(x: Dyadic) -> Dyadic:
    excess = x[0].bit_length() - SCALAR_BITS
    return x if excess <= 0 else (x[0] >> excess, x[1] + excess)  # the shift of an integer is a floor


def _up(x: Dyadic) -> Dyadic:
    excess = x[0].bit_length() - SCALAR_BITS
    return x if excess <= 0 else (-(-x[0] >> excess), x[1] + excess)


def _near(x: Dyadic, shift: int) -> float:
    """A float less than one step below x·2^shift; infinite if that is too large."""
    excess = max(0, x[0].bit_length() - 53)
    try:
        return math.ldexp(float(x[0] >> excess), x[1] + excess + shift)
    except OverflowError:
        return math.inf


def _root(x: Dyadic, prec: int) -> Dyadic:
    """`rounding.sqrt_upper`, without fractions: every step of an iteration takes one."""
    m, e = x
    return root_upper(m << max(e, 0), 1 << max(-e, 0), prec)


def _scaled(x: float, exponent: int) -> Dyadic:
    """x·2^exponent, exactly."""
    mantissa, power = math.frexp(x)
    return int(mantissa * 2.0**53), power - 53 + exponent


def _dyadic(x: Fraction) -> Dyadic:
    """Requires: the denominator is a power of two."""
    return x.numerator, 1 - x.denominator.bit_length()


@dataclass(frozen=True, slots=True, eq=False)
class Float64Scalar:
    """The interval [low, high] of dyadics, low <= high. Results are rounded outward to 128 bits, of any size."""

    low: Dyadic
    high: Dyadic

    @staticmethod
    def around(low: Fraction, high: Fraction) -> Float64Scalar:
        return Float64Scalar(_dyadic(round_down(low, SCALAR_BITS)), _dyadic(round_up(high, SCALAR_BITS)))

    @staticmethod
    def of_floats(low: float, high: float, exponent: int) -> Float64Scalar:
        """[low, high]·2^exponent, exactly."""
        return Float64Scalar(_scaled(low, exponent), _scaled(high, exponent))

    def __add__(self, other: Float64Scalar) -> Float64Scalar:
        return Float64Scalar(_down(_sum(self.low, other.low)), _up(_sum(self.high, other.high)))

    def __sub__(self, other: Float64Scalar) -> Float64Scalar:
        return self + other._negated()

    def _negated(self) -> Float64Scalar:
        return Float64Scalar((-self.high[0], self.high[1]), (-self.low[0], self.low[1]))

    def __mul__(self, other: Float64Scalar) -> Float64Scalar:
        if self.low[0] >= 0 and other.low[0] >= 0:
            (a, b), (c, d) = (self.low, self.high), (other.low, other.high)
            return Float64Scalar(_down((a[0] * c[0], a[1] + c[1])), _up((b[0] * d[0], b[1] + d[1])))
        ends = [x * y for x in (self.lower(), self.upper()) for y in (other.lower(), other.upper())]
        return Float64Scalar.around(min(ends), max(ends))

    def __truediv__(self, other: Float64Scalar) -> Float64Scalar:
        if other.low[0] <= 0 <= other.high[0]:
            raise UnboundedError("division by an interval that contains zero")
        ends = [x / y for x in (self.lower(), self.upper()) for y in (other.lower(), other.upper())]
        return Float64Scalar.around(min(ends), max(ends))

    def lower(self) -> Fraction:
        return dyadic_value(*self.low)

    def upper(self) -> Fraction:
        return dyadic_value(*self.high)

    def less(self, other: Float64Scalar) -> Truth:
        return Truth.of(proved=self.upper() < other.lower(), refuted=self.lower() >= other.upper())

    def sqrt_upper(self, prec: int) -> Float64Scalar:
        """As `Backend.sqrt_upper`. Monotone: the roots of the ends enclose all."""
        low, high = (_root(end, prec) if end[0] > 0 else (0, 0) for end in (self.low, self.high))
        return Float64Scalar(_down(low), _up(high))

    def between(self) -> tuple[float, float, int]:
        """(least, most, shift) with least·2^shift <= every member <= most·2^shift, the larger of them near 1."""
        shift = max((m.bit_length() + e for m, e in (self.low, self.high) if m), default=0)
        least = math.nextafter(_near(self.low, -shift), -math.inf)
        most = math.nextafter(_near(self.high, -shift), math.inf)
        return least, most, shift


class Float64Vector:
    """The intervals [low, high]·2^exponents, place by place, with finite floats low <= high. Immutable."""

    __slots__ = ("exponents", "high", "low")

    def __init__(self, low: Floats, high: Floats, exponents: Exponents) -> None:
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise UnboundedError("the rounding errors of float64 have no finite bound here")
        self.low, self.high, self.exponents = low, high, exponents

    def __len__(self) -> int:
        return len(self.low)

    def __getitem__(self, place: int) -> Float64Scalar:
        return Float64Scalar.of_floats(float(self.low[place]), float(self.high[place]), int(self.exponents[place]))

    def __add__(self, other: Float64Vector) -> Float64Vector:
        check_same_length(len(self), len(other))
        top = np.maximum(self.exponents, other.exponents)
        low, high = (
            np.ldexp(a, (self.exponents - top).astype(np.intc)) + np.ldexp(b, (other.exponents - top).astype(np.intc))
            for a, b in ((self.low, other.low), (self.high, other.high))
        )
        # Scaling down is exact, but for what ends among the subnormals: each end is off by at most half the least float
        # there, and the sum by half a step of its own. Two steps outward are more than that. Zeros are exact.
        zero = (self.low == 0) & (self.high == 0) & (other.low == 0) & (other.high == 0)
        for _ in range(2):
            low, high = np.nextafter(low, -np.inf), np.nextafter(high, np.inf)
        return Float64Vector(np.where(zero, 0.0, low), np.where(zero, 0.0, high), top)

    def scalar_mul(self, factor: Float64Scalar) -> Float64Vector:
        least, most, shift = factor.between()
        with np.errstate(over="ignore", under="ignore"):
            ends = np.stack([end * part for end in (self.low, self.high) for part in (least, most)])
        # The nearest float is at most half a step away. (From below `between` has left that much room already, but for
        # what underflows.) Zeros are exact, and stay zero.
        zero = (self.low == 0) & (self.high == 0)
        low = np.where(zero, 0.0, np.nextafter(ends.min(axis=0), -np.inf))
        high = np.where(zero, 0.0, np.nextafter(ends.max(axis=0), np.inf))
        return Float64Vector(low, high, self.exponents + shift)

    def roots(self, backend: Backend[Float64Scalar]) -> Float64Vector:
        # Monotone: the roots of the ends enclose all, and so do those rounded up. A float is a dyadic of 53 bits: the
        # least one of `prec` >= 53 bits above a root is not above a float that is.
        odd = (self.exponents & 1).astype(np.intc)
        low, high = (np.sqrt(np.maximum(np.ldexp(end, odd), 0.0)) for end in (self.low, self.high))
        low, high = np.nextafter(low, 0.0), np.where(high > 0, np.nextafter(high, np.inf), 0.0)
        return Float64Vector(_to_bits(low, backend.prec), _to_bits(high, backend.prec), (self.exponents - odd) // 2)

    def replaced(self, entries: Mapping[int, Float64Scalar]) -> Float64Vector:
        low, high, exponents = self.low.copy(), self.high.copy(), self.exponents.copy()
        for place, scalar in entries.items():
            zero = not scalar.low[0] and not scalar.high[0]
            low[place], high[place], exponents[place] = (0.0, 0.0, 0) if zero else scalar.between()
        return Float64Vector(low, high, exponents)

    def blunt(self, bits: int) -> list[int]:
        largest = np.maximum(np.abs(self.low), np.abs(self.high))
        return np.flatnonzero((self.high - self.low) > largest * 2.0**-bits).tolist()

    def upper(self, bits: int) -> Dyadics:
        parts, powers = np.frexp(self.high)
        return Dyadics.of_floats(_to_bits(parts, bits), self.exponents + powers)


def _to_bits(x: Floats, bits: int) -> Floats:
    """Each rounded up to a mantissa of so many bits. Requires: sizes far from the ends of the floats."""
    if bits >= BITS:
        return x
    parts, powers = np.frexp(x)
    rounded: Floats = np.ldexp(np.ceil(np.ldexp(parts, bits)), powers - bits)
    return rounded


if TYPE_CHECKING:  # the type checker proves conformance
    _scalar: type[Scalar] = Float64Scalar
    _vector: type[Vector[Float64Scalar]] = Float64Vector
