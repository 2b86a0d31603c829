"""Intervals: `mpmath.iv`, pure Python. Slow, and that is its worth: it shares no code with FLINT.

Each backend owns a context of its own; the global `mpmath.iv` is never touched. Matrices are the generic ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from mpmath import libmp
from mpmath.ctx_iv import MPIntervalContext

from intervalcert.backends.generic import DoubledBits, GenericMatrix, hull_of_roots
from intervalcert.backends.protocol import Truth
from intervalcert.errors import UnboundedError
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.rounding import dyadic_value

if TYPE_CHECKING:
    from intervalcert.backends.protocol import Backend, Matrix, Scalar

__all__ = ["MpmathBackend", "MpmathScalar"]

Interval = Any  # mpmath.ctx_iv.ivmpf: mpmath has no annotations


@lru_cache(maxsize=16)
def _context(bits: int) -> Any:
    """An interval context of its own for each precision; nobody else sees it, so nobody else changes it."""
    context = MPIntervalContext()
    context.prec = bits
    return context


def _exact(end: tuple[int, int, int, int]) -> Fraction:
    """The exact value of one end of an interval; infinities and nan have no mantissa but a non-zero exponent."""
    sign, mantissa, exponent, _ = end
    if not mantissa and exponent:
        raise UnboundedError("an interval without a finite end")
    return dyadic_value(-int(mantissa) if sign else int(mantissa), int(exponent))


@dataclass(frozen=True, slots=True, eq=False)
class MpmathScalar:
    """A finite interval; it knows its context, hence its precision."""

    interval: Interval

    def __post_init__(self) -> None:
        for end in self.interval._mpi_:
            if not end[1] and end[2]:
                raise UnboundedError("no bounded interval encloses the result")

    def __add__(self, other: MpmathScalar) -> MpmathScalar:
        return MpmathScalar(self.interval + other.interval)

    def __sub__(self, other: MpmathScalar) -> MpmathScalar:
        return MpmathScalar(self.interval - other.interval)

    def __mul__(self, other: MpmathScalar) -> MpmathScalar:
        return MpmathScalar(self.interval * other.interval)

    def __truediv__(self, other: MpmathScalar) -> MpmathScalar:
        if other.lower() <= 0 <= other.upper():
            raise UnboundedError("division by an interval that contains zero")
        return MpmathScalar(self.interval / other.interval)

    def lower(self) -> Fraction:
        return _exact(self.interval._mpi_[0])

    def upper(self) -> Fraction:
        return _exact(self.interval._mpi_[1])

    def less(self, other: MpmathScalar) -> Truth:
        # mpmath raises ValueError where it cannot tell; the exact ends say it without an exception.
        return Truth.of(proved=self.upper() < other.lower(), refuted=self.lower() >= other.upper())


@dataclass(frozen=True)
class MpmathBackend(DoubledBits):
    """Intervals whose ends have `working_bits` bits, by default twice the grid's."""

    name = "mpmath"

    def scalar(self, value: Fraction) -> MpmathScalar:
        return self.hull(value, value)

    def hull(self, lower: Fraction, upper: Fraction) -> MpmathScalar:
        # The lower end is rounded down, the upper end up.
        bits = self.working_bits
        low = libmp.from_rational(lower.numerator, lower.denominator, bits, libmp.round_floor)
        high = libmp.from_rational(upper.numerator, upper.denominator, bits, libmp.round_ceiling)
        return MpmathScalar(_context(bits).make_mpf((low, high)))

    def sqrt_upper(self, x: MpmathScalar) -> MpmathScalar:
        return hull_of_roots(x, self)

    def matrix(self, data: RationalMatrix) -> GenericMatrix[MpmathScalar]:
        return GenericMatrix.of(self, data)


if TYPE_CHECKING:  # the type checker proves conformance
    _scalar: type[Scalar] = MpmathScalar
    _matrix: type[Matrix[MpmathScalar]] = GenericMatrix[MpmathScalar]
    _backend: type[Backend[MpmathScalar]] = MpmathBackend
