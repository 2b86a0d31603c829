"""Balls: python-flint's `arb` and `arb_mat`, rounded outward by FLINT. The only module that imports `flint`.

FLINT guarantees the law for each of its operations, at any precision. What is left to do here is to keep python-flint's
traps out of the core: its precision is a global of the process, its comparisons answer False when they cannot tell
(`!=` too), `bool(arb(0))` is True, `max` and `sorted` trust those, `float(arb)` may round below the upper end, division
by a ball around zero gives nan. So balls never leave this module bare.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache, reduce
from typing import TYPE_CHECKING, Any

import flint
import numpy as np

from intervalcert.backends.generic import GenericVector, check_distinct, hull_of_roots
from intervalcert.errors import UnboundedError
from intervalcert.protocol import Truth
from intervalcert.rational import RationalMatrix, dyadic_value, float_enclosure

if TYPE_CHECKING:
    from intervalcert.protocol import Backend, Floats, Indices, Matrix, Scalar

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


class _Centre:
    """An `arb_mat` that remembers its Gram matrix: the norm and the next step of an iteration both ask for it."""

    __slots__ = ("_square", "bits", "mat")

    def __init__(self, mat: BallMatrix, bits: int) -> None:
        self.mat, self.bits = mat, bits
        self._square: BallMatrix | None = None

    def square(self) -> BallMatrix:
        """A·Aᵀ or Aᵀ·A, the smaller. (Two threads may both compute it: no lock is taken around FLINT's.)"""
        if self._square is None:
            transposed = self.mat.transpose()
            with _working(self.bits):
                wide = self.mat.nrows() <= self.mat.ncols()
                self._square = self.mat * transposed if wide else transposed * self.mat
        return self._square

    def norm(self) -> Ball:
        """At least ||A||_F, whose square is the trace of A·Aᵀ. At the precision of the moment."""
        return self.square().trace().abs_upper().sqrt()


@dataclass(frozen=True, eq=False)
class ArbMatrix:
    """The matrices s·(A + E) with s in `scale`, A in `centre` entry by entry, and ||E||_F <= `error`.

    `scale` is a ball, `error` an exact number; operations are carried out at `bits`. Why not an `arb_mat` alone: Gram
    iteration is products, and FLINT multiplies exact entries of up to 62 bits four times as fast as balls. So `gram`
    moves what is uncertain, and all bits beyond, into `error`. There it also grows less: a product takes it times
    ||A||, not times the norm of the absolute values. Dividing then touches `scale` alone, widening `error` alone.
    """

    centre: _Centre
    scale: Ball
    error: Ball

    @staticmethod
    def of(mat: BallMatrix, bits: int) -> ArbMatrix:
        return ArbMatrix(_Centre(mat, bits), flint.arb(1), flint.arb(0))

    @property
    def bits(self) -> int:
        return self.centre.bits

    @property
    def shape(self) -> tuple[int, int]:
        return self.centre.mat.nrows(), self.centre.mat.ncols()

    def _unscaled(self) -> tuple[BallMatrix, Ball]:
        """s·A, and a bound of ||s·E||_F."""
        if self.scale == 1:
            return self.centre.mat, self.error
        with _working(self.bits):
            return self.centre.mat * self.scale, (self.error * self.scale).abs_upper()

    def _balls(self) -> BallMatrix:
        """An `arb_mat` that encloses the set: no entry of E is larger than ||E||_F."""
        mat, error = self._unscaled()
        with _working(self.bits):
            return mat if error.is_zero() else mat + _filled(*self.shape, 1) * flint.arb(0, error)

    def __add__(self, other: ArbMatrix) -> ArbMatrix:
        (mine, error), (others, further) = self._unscaled(), other._unscaled()
        with _working(self.bits):
            return ArbMatrix(_Centre(mine + others, self.bits), flint.arb(1), (error + further).abs_upper())

    def __sub__(self, other: ArbMatrix) -> ArbMatrix:
        with _working(self.bits):
            return self + replace(other, scale=-other.scale)

    def __matmul__(self, other: ArbMatrix) -> ArbMatrix:
        with _working(self.bits):
            return ArbMatrix.of(self._balls() * other._balls(), self.bits)

    def gram(self) -> ArbMatrix:
        square, side = self.centre.square(), min(self.shape)
        with _working(self.bits):
            # No entry of A·Aᵀ exceeds the largest on its diagonal. Let the unit be the power of two above that.
            mantissa, exponent = reduce(flint.arb.max, (square[i, i] for i in range(side))).abs_upper().man_exp()
            unit = flint.arb((1, mantissa.bit_length() + exponent))
            square = square / unit
        # Adding 3 to numbers in [-1, 1], at a precision that ends at 2^-kept, drops the bits beyond; FLINT adds what
        # that loses to the radii. (Entries of another size would only lose more.)
        kept = max(_WORD, self.bits // 2 - 3)
        with _working(kept + 2):
            lifted = square + _filled(side, side, 3)
            centre = _Centre(lifted.mid() - _filled(side, side, 3), self.bits)
        with _working(self.bits):
            # A ball that encloses the sums of all members of a row has a radius of at least the sum of theirs; and the
            # Frobenius norm of the radii is at most that of their sums over the rows.
            lost = error = sum(x.rad() ** 2 for x in (lifted * _filled(side, 1, 1)).entries()).sqrt()
            if not self.error.is_zero():
                # (A + E)·(A + E)ᵀ - A·Aᵀ = A·Eᵀ + E·Aᵀ + E·Eᵀ, at most ||E||_F·(2·||A|| + ||E||_F) in Frobenius norm;
                # and ||A||² = ||A·Aᵀ|| is at most the Frobenius norm of what was just found.
                norm = (unit * (centre.norm() + lost)).sqrt()
                error += self.error * (2 * norm + self.error) / unit
            return ArbMatrix(centre, self.scale * self.scale * unit, error.abs_upper())

    def divided(self, divisor: ArbScalar) -> ArbMatrix:
        with _working(self.bits):
            quotient = ArbScalar(self.scale / divisor.ball, self.bits)  # nan is caught
        return replace(self, scale=quotient.ball)

    def times(self, factor: ArbScalar) -> ArbMatrix:
        with _working(self.bits):
            return replace(self, scale=self.scale * factor.ball)

    def transposed(self) -> ArbMatrix:
        return replace(self, centre=_Centre(self.centre.mat.transpose(), self.bits))

    def scaled(self, exponent: int) -> ArbMatrix:
        with _working(self.bits):
            return replace(self, scale=self.scale * flint.arb((1, exponent)))

    def rounded(self, bits: int) -> tuple[ArbMatrix, ArbScalar]:
        rows, columns = self.shape
        with _working(self.bits):
            # Half a step per entry, squared and summed: rows·columns·4^-(bits+1).
            most = _ball(Fraction(rows * columns, 4 ** (bits + 1)))
            between = ArbScalar(flint.arb(0).union(most), self.bits)
            if self.bits < 4 * bits:
                if self.scale.contains(0):
                    return ArbMatrix.of(self._balls(), self.bits).rounded(bits)
                error = self.error + most.sqrt() / self.scale.abs_lower()
                return replace(self, error=error.abs_upper()), between
        moved = ArbMatrix.of(self._moved_sharply(bits), self.bits)
        measured = (self - moved).frobenius_squared()
        # Both enclose the movement; what was measured is the better one unless its ball is too fat to say anything.
        return moved, measured if measured.lower() >= 0 and measured.upper() <= between.upper() else between

    def _moved_sharply(self, bits: int) -> BallMatrix:
        """floor(x·2^bits + 1/2)/2^bits, entry by entry: a point wherever both ends of a ball move to the same one.

        Slow. On the refined rung, whose balls are far narrower than a step, it keeps them from growing.
        """
        rows, columns = self.shape
        with _working(self.bits):
            scale, back, half = flint.arb((1, bits)), flint.arb((1, -bits)), flint.arb((1, -1))
            return flint.arb_mat(rows, columns, [(x * scale + half).floor() * back for x in self._balls().entries()])

    def frobenius_squared(self) -> ArbScalar:
        with _working(self.bits):
            # | ||A + E||² - ||A||² | = | ||A + E|| - ||A|| |·(||A + E|| + ||A||) <= ||E||·(2·||A|| + ||E||)
            apart = (self.error * (2 * self.centre.norm() + self.error)).abs_upper()
            unscaled = self.centre.square().trace() + flint.arb(0, apart)
            return ArbScalar(unscaled * self.scale * self.scale, self.bits)

    def distances_squared(self, metric: ArbMatrix | None = None) -> GenericVector[ArbScalar]:
        # xᵀPx + yᵀPy - xᵀPy - yᵀPx: one product for all pairs. What cancels there, 128 bits and more can spare.
        moved = self if metric is None else self @ metric
        rows, balls = self.shape[0], (moved @ self.transposed())._balls().entries()
        with _working(self.bits):
            own = balls[:: rows + 1]
            return GenericVector(
                tuple(
                    ArbScalar(own[i] + own[j] - balls[i * rows + j] - balls[j * rows + i], self.bits)
                    for j in range(rows)
                    for i in range(j)
                )
            )

    def is_zero(self) -> Truth:
        if self.frobenius_squared().ball > 0:  # mostly this; and the square is needed anyhow
            return Truth.FALSE
        entries = self._balls().entries()
        return Truth.of(
            proved=all(x.is_zero() for x in entries),  # the ball is {0}
            refuted=any(not x.contains(0) for x in entries),
        )

    def block(self, rows: Indices, columns: Indices) -> ArbMatrix:
        check_distinct(rows, columns)
        mat = self.centre.mat
        some = flint.arb_mat(len(rows), len(columns), [mat[i, j] for i in rows.tolist() for j in columns.tolist()])
        return replace(self, centre=_Centre(some, self.bits))  # no part of E is larger than E

    def weighted(self, rows: Floats, columns: Floats) -> ArbMatrix:
        left, right = ([flint.arb(x) for x in weights.tolist()] for weights in (rows, columns))  # exact
        with _working(self.bits):
            if (rows == rows[0]).all() and (columns == columns[0]).all():
                return replace(self, scale=self.scale * left[0] * right[0])
            largest = flint.arb(float(np.max(np.abs(rows)))) * flint.arb(float(np.max(np.abs(columns))))
            # Of a table of entries: an element of an arb_mat costs ten times as much as one of a list.
            entries = iter(self.centre.mat.entries())
            made = [next(entries) * a * b for a in left for b in right]
            centre = _Centre(flint.arb_mat(*self.shape, made), self.bits)
            return ArbMatrix(centre, self.scale, (self.error * largest).abs_upper())

    def positive_part(self) -> ArbMatrix:
        # x -> max(x, 0) moves no two numbers further apart: not those of E, either.
        zero = flint.arb(0)
        mat, error = self._unscaled()
        with _working(self.bits):
            made = flint.arb_mat(*self.shape, [zero.max(x) for x in mat.entries()])
            return ArbMatrix(_Centre(made, self.bits), flint.arb(1), error)

    def logistic(self) -> ArbMatrix:
        return self._curved(lambda x: 1 / (1 + (-x).exp()))

    def decay(self) -> ArbMatrix:
        zero = flint.arb(0)
        return self._curved(lambda x: zero.min(x).exp() - 1)

    def soft(self) -> ArbMatrix:
        zero = flint.arb(0)
        return self._curved(lambda x: zero.min(x).exp().log1p())

    def _curved(self, function: Callable[[Ball], Ball]) -> ArbMatrix:
        """An increasing function: the hull of its values at the ends of each ball. (lower and upper round outward.)

        It moves by at most exp(-b) beyond ±b: there arguments are cut off, at b = bits. (exp of less would be a number
        whose exponent alone fills the memory.)
        """
        with _working(self.bits):
            most, rest = flint.arb(self.bits), flint.arb(0, flint.arb((1, -self.bits)))
            cut = (most.min((-most).max(x)) for x in self._balls().entries())
            hulls = (function(x.lower()).union(function(x.upper())) + rest for x in cut)
            made = [ArbScalar(x, self.bits).ball for x in hulls]  # nan is caught
            return ArbMatrix.of(flint.arb_mat(*self.shape, made), self.bits)

    def within(self, norm: Fraction) -> ArbMatrix:  # noqa: ARG002 - there are bits enough
        return self

    def ends(self) -> tuple[Floats, Floats]:
        balls = (ArbScalar(x, self.bits) for x in self._balls().entries())
        both = [float_enclosure(x.lower(), x.upper()) for x in balls]
        lower, upper = np.array(both, dtype=np.float64).T
        return lower.reshape(self.shape), upper.reshape(self.shape)


_WORD = 61
"""The bits below the largest entry that `gram` keeps, at least. One more still fits what FLINT multiplies as machine
words: 4 ms for a product of 128 x 128, against 10 ms beyond."""

_BYTES = 128
"""What an entry takes while a matrix is made and multiplied with its transpose: two balls of 48, and integers."""


@lru_cache(maxsize=4)
def _filled(rows: int, columns: int, value: int) -> BallMatrix:
    return flint.arb_mat(rows, columns, [value] * (rows * columns))


@dataclass(frozen=True)
class ArbBackend:
    """Balls of `working_bits` bits, by default twice the grid's.

    Rounding to the grid widens by half a step of it, `gram` by the bits that it drops: on 128 x 128 layers the relative
    width of a norm is about 2^-49 with a grid of 2^-64, after 11 steps or 40. The refined backend does not widen.
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

    def sqrt_upper(self, x: ArbScalar) -> ArbScalar:
        return hull_of_roots(x, self)

    def matrix(self, data: RationalMatrix) -> ArbMatrix:
        np.empty(math.prod(data.shape) * _BYTES, np.uint8)  # raises where memory is short; FLINT would end the process
        with _working(self.working_bits):
            mat = flint.arb_mat(flint.fmpz_mat(data.numerators.tolist()))
            if data.denominator != 1:
                mat = mat / flint.arb(flint.fmpz(data.denominator))
            return ArbMatrix.of(mat, self.working_bits)


if TYPE_CHECKING:  # the type checker proves conformance
    _scalar: type[Scalar] = ArbScalar
    _matrix: type[Matrix[ArbScalar]] = ArbMatrix
    _backend: type[Backend[ArbScalar]] = ArbBackend
