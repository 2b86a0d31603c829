"""Balls: python-flint's `arb` and `arb_mat`, rounded outward by FLINT. The only module that imports `flint`.

FLINT guarantees the law for each of its operations, at any precision. What is left to do here is to keep python-flint's
traps out of the core: its precision is a global of the process, its comparisons answer False when they cannot tell
(`!=` too), `bool(arb(0))` is True, `max` and `sorted` trust those, `float(arb)` may round below the upper end, division
by a ball around zero gives nan. So balls never leave this module bare.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from operator import mul
from typing import TYPE_CHECKING, Any

import flint

from intervalcert.errors import UnboundedError
from intervalcert.protocol import Truth
from intervalcert.rational import RationalMatrix, dyadic_value

if TYPE_CHECKING:
    from intervalcert.protocol import Backend, Matrix, Scalar

__all__ = ["ArbBackend", "ArbMatrix", "ArbScalar"]

Ball = Any  # flint.arb; python-flint's own annotations are not complete enough to be checked strictly
BallMatrix = Any  # flint.arb_mat


class _working:  # noqa: N801 - used as a statement: with _working(bits)
    """Sets FLINT's global precision and puts it back, one thread at a time.

    (FLINT rounds outward at any precision: code elsewhere that changes it costs tightness, never soundness.)
    """

    __slots__ = ("_before", "_bits")
    _lock = threading.RLock()

    def __init__(self, bits: int) -> None:
        self._bits = bits

    def __enter__(self) -> None:
        self._lock.acquire()
        self._before = flint.ctx.prec
        flint.ctx.prec = self._bits

    def __exit__(self, *_: object) -> None:
        flint.ctx.prec = self._before
        self._lock.release()


def _dyadic(x: Ball) -> Fraction:
    """The exact value of an exact ball."""
    mantissa, exponent = x.man_exp()
    return dyadic_value(int(mantissa), int(exponent))


def _ball(value: Fraction) -> Ball:
    """A ball around `value`, exact if the working precision can hold it."""
    return flint.arb(flint.fmpq(value.numerator, value.denominator))


@dataclass(frozen=True, slots=True, eq=False)
class ArbScalar:
    """A finite ball, and the precision at which operations on it are carried out."""

    ball: Ball
    bits: int

    def __post_init__(self) -> None:
        if not self.ball.is_finite():
            raise UnboundedError(f"no finite ball encloses the result at {self.bits} bits")

    def __add__(self, other: ArbScalar) -> ArbScalar:
        with _working(self.bits):
            return ArbScalar(self.ball + other.ball, self.bits)

    def __sub__(self, other: ArbScalar) -> ArbScalar:
        with _working(self.bits):
            return ArbScalar(self.ball - other.ball, self.bits)

    def __mul__(self, other: ArbScalar) -> ArbScalar:
        with _working(self.bits):
            return ArbScalar(self.ball * other.ball, self.bits)

    def __truediv__(self, other: ArbScalar) -> ArbScalar:
        with _working(self.bits):
            return ArbScalar(self.ball / other.ball, self.bits)  # a ball around zero gives nan, caught above

    def lower(self) -> Fraction:
        # Midpoint and radius are exact dyadics; `ball.lower()` would round.
        return _dyadic(self.ball.mid()) - _dyadic(self.ball.rad())

    def upper(self) -> Fraction:
        return _dyadic(self.ball.mid()) + _dyadic(self.ball.rad())

    def less(self, other: ArbScalar) -> Truth:
        # FLINT's comparisons are True only if they hold for all members.
        return Truth.of(proved=self.ball < other.ball, refuted=self.ball >= other.ball)


@dataclass(frozen=True, slots=True, eq=False)
class ArbMatrix:
    """An `arb_mat`, and the precision at which operations on it are carried out. Its entries are finite balls."""

    mat: BallMatrix
    bits: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.mat.nrows(), self.mat.ncols()

    def __sub__(self, other: ArbMatrix) -> ArbMatrix:
        with _working(self.bits):
            return ArbMatrix(self.mat - other.mat, self.bits)

    def __matmul__(self, other: ArbMatrix) -> ArbMatrix:
        with _working(self.bits):
            return ArbMatrix(self.mat * other.mat, self.bits)

    def gram(self) -> ArbMatrix:
        rows, columns = self.shape
        transposed = self.mat.transpose()
        with _working(self.bits):
            return ArbMatrix(self.mat * transposed if rows <= columns else transposed * self.mat, self.bits)

    def divided(self, divisor: ArbScalar) -> ArbMatrix:
        with _working(self.bits):
            inverse = ArbScalar(1 / divisor.ball, self.bits)  # one division and n² products; nan is caught
            return ArbMatrix(self.mat * inverse.ball, self.bits)

    def rounded(self, bits: int) -> tuple[ArbMatrix, ArbScalar]:
        rows, columns = self.shape
        with _working(self.bits):
            # Half a step per entry, squared and summed: rows·columns·4^-(bits+1).
            most = ArbScalar(flint.arb(0).union(_ball(Fraction(rows * columns, 4 ** (bits + 1)))), self.bits)
        if self.bits < 4 * bits:
            return ArbMatrix(self._moved_quickly(bits), self.bits), most
        moved = ArbMatrix(self._moved_sharply(bits), self.bits)
        measured = (self - moved).frobenius_squared()
        # Both enclose the movement; what was measured is the better one unless its ball is too fat to say anything.
        return moved, measured if measured.lower() >= 0 and measured.upper() <= most.upper() else most

    def _moved_sharply(self, bits: int) -> BallMatrix:
        """floor(x·2^bits + 1/2)/2^bits, entry by entry: a point wherever both ends of a ball move to the same one.

        Slower, and only worth it on the refined rung, whose balls are far narrower than a step.
        """
        rows, columns = self.shape
        with _working(self.bits):
            scale, back, half = flint.arb((1, bits)), flint.arb((1, -bits)), flint.arb((1, -1))
            return flint.arb_mat(rows, columns, [(x * scale + half).floor() * back for x in self.mat.entries()])

    def _moved_quickly(self, bits: int) -> BallMatrix:
        """Every entry widened by half a step."""
        lift, drop = _half_steps(*self.shape, bits)
        # Bits far below the grid carry nothing but make the next product dearer. Adding a number of the size of the
        # largest entry, at a precision that ends 16 bits below the grid, drops them; FLINT adds what that loses to the
        # radius. Entries beyond that size only lose more: sound, and the core's entries are at most 1.
        with _working(bits + _KEPT_BELOW_GRID):
            moved = self.mat + lift
        with _working(self.bits):
            return moved + drop

    def frobenius_squared(self) -> ArbScalar:
        entries = self.mat.entries()
        with _working(self.bits):
            return ArbScalar(sum(map(mul, entries, entries), flint.arb(0)), self.bits)

    def is_zero(self) -> Truth:
        rows, columns = self.shape
        return Truth.of(  # both generators stop at the first entry that settles them: here, mostly the first of all
            proved=all(self.mat[i, j].is_zero() for i in range(rows) for j in range(columns)),  # the ball is {0}
            refuted=any(not self.mat[i, j].contains(0) for i in range(rows) for j in range(columns)),
        )

    def row(self, index: int) -> ArbMatrix:
        columns = self.mat.ncols()
        return ArbMatrix(flint.arb_mat(1, columns, [self.mat[index, j] for j in range(columns)]), self.bits)


_KEPT_BELOW_GRID = 18
"""1 + 2^-bits needs bits + 1 bits; 17 more keep the loss at 2^-16 of a step."""


@lru_cache(maxsize=2)
def _half_steps(rows: int, columns: int, bits: int) -> tuple[BallMatrix, BallMatrix]:
    """Matrices of 3 ± 2^-(bits+1) and of -3: their sum is what moving to the nearest multiple of 2^-bits can add.

    3 and not 1, so that the sum with an entry in [-1, 1] stays within a factor of two.
    """
    half_step = flint.arb((1, -(bits + 1)))
    count = rows * columns
    return (
        flint.arb_mat(rows, columns, [flint.arb(3, half_step)] * count),
        flint.arb_mat(rows, columns, [flint.arb(-3)] * count),
    )


@dataclass(frozen=True)
class ArbBackend:
    """Balls of `working_bits` bits, by default twice the grid's.

    Rounding to the grid widens by half a step of it, and squaring amplifies that: on 128 x 128 layers and 11 steps the
    relative width of a norm is about 2^-41 with a grid of 2^-64. The refined backend does not widen.
    """

    prec: int
    working_bits: int = 0

    name = "arb"

    def __post_init__(self) -> None:
        if not self.working_bits:
            object.__setattr__(self, "working_bits", 2 * self.prec)

    def refined(self) -> ArbBackend:
        return ArbBackend(self.prec, 2 * self.working_bits)

    def scalar(self, value: Fraction) -> ArbScalar:
        with _working(self.working_bits):
            return ArbScalar(_ball(value), self.working_bits)

    def hull(self, lower: Fraction, upper: Fraction) -> ArbScalar:
        with _working(self.working_bits):
            ball = _ball(lower) if lower == upper else _ball(lower).union(_ball(upper))
            return ArbScalar(ball, self.working_bits)

    def matrix(self, data: RationalMatrix) -> ArbMatrix:
        with _working(self.working_bits):
            mat = flint.arb_mat(flint.fmpz_mat(data.numerators.tolist()))
            if data.denominator != 1:
                mat = mat / flint.arb(flint.fmpz(data.denominator))
            return ArbMatrix(mat, self.working_bits)


if TYPE_CHECKING:  # the type checker proves conformance
    _scalar: type[Scalar] = ArbScalar
    _matrix: type[Matrix[ArbScalar]] = ArbMatrix
    _backend: type[Backend[ArbScalar]] = ArbBackend
