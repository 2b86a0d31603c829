"""Balls: python-flint's `arb` and `arb_mat`, rounded outward by FLINT. The only module that imports `flint`.

FLINT guarantees the law for each of its operations, at any precision. What is left to do here is to keep python-flint's
traps out of the core: its precision is a global of the process, its comparisons answer False when they cannot tell
(`!=` too), `bool(arb(0))` is True, `max` and `sorted` trust those, `float(arb)` may round below the upper end, division
by a ball around zero gives nan. So balls never leave this module bare.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from operator import mul
from typing import TYPE_CHECKING, Any

import flint
import numpy as np
import numpy.typing as npt

from intervalcert.backends.generic import (
    DoubledBits,
    GenericVector,
    check_column,
    check_distinct,
    check_groups,
    check_same_size,
    check_same_width,
    hull_of_roots,
    times_named,
)
from intervalcert.backends.protocol import Truth
from intervalcert.errors import UnboundedError
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.rounding import dyadic_value, float_enclosure

if TYPE_CHECKING:
    from intervalcert.backends.protocol import Backend, Floats, Indices, Matrix, Scalar

__all__ = ["ArbBackend", "ArbMatrix", "ArbScalar"]

Ball = Any  # flint.arb; python-flint's own annotations are not complete enough to be checked strictly
BallMatrix = Any  # flint.arb_mat
IntegerMatrix = Any  # flint.fmpz_mat
_Nearby = tuple[Any, Ball]  # what holds for a nearby matrix, and how near it is


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
    """A set of matrices, entry by entry. An answer is given for a P beside each member A, with a bound of ||A - P||_F.

    integers: a point, as an `fmpz_mat` of entries that FLINT multiplies as machine words; else None.
    mat: the set as an `arb_mat`. held: the integers if there are any, else `mat`.
    unit: a power of two that the entries hardly exceed; None if it is not known. (A bad one costs tightness and time.)
    """

    __slots__ = ("_mat", "_short", "_turned", "bits", "integers", "unit")

    def __init__(
        self, held: BallMatrix | IntegerMatrix, bits: int, unit: Ball | None = None, turned: _Centre | None = None
    ) -> None:
        """turned: the one that this is the transpose of."""
        self.integers = held if isinstance(held, flint.fmpz_mat) else None
        self._mat = None if self.integers is not None else held
        self.bits, self.unit, self._turned = bits, unit, turned
        self._short: _Nearby | None = None

    @property
    def mat(self) -> BallMatrix:
        if self._mat is None:
            self._mat = flint.arb_mat(self.integers)  # exact
        return self._mat

    @property
    def held(self) -> BallMatrix | IntegerMatrix:
        return self.mat if self.integers is None else self.integers

    def short(self) -> _Nearby:
        """P: without the bits that are small beside the unit. (Threads may both make it: no lock is around FLINT's.)"""
        if self._short is None and self._turned is not None:
            part, lost = self._turned.short()
            self._short = part.transpose(), lost
        elif self._short is None:
            with _working(self.bits):
                unit = _power_above(_row_sums(self.mat)) if self.unit is None else self.unit
                self._short = _cut(self.mat, unit, self.bits)
        return self._short

    def operand(self, narrowest: int) -> _Nearby:
        """P for a product whose narrowest side this is."""
        if self.integers is not None or narrowest <= _NARROW:
            return self.held, flint.arb(0)
        return self.short()

    def squared(self) -> _Nearby:
        """P·Pᵀ or Pᵀ·P, the smaller."""
        return self._square_of(self.operand(min(self.held.nrows(), self.held.ncols())))

    def _square_of(self, nearby: _Nearby) -> _Nearby:
        part, lost = nearby
        transposed = part.transpose()
        with _working(self.bits):
            return _product(part, transposed) if part.nrows() <= part.ncols() else _product(transposed, part), lost

    def sum_of_squares(self) -> _Nearby:
        """||P||_F²; here P = A: its entries, in one row, times themselves."""
        entries = self.held.entries()
        row = type(self.held)(1, len(entries), entries)
        with _working(self.bits):
            return _product(row, row.transpose())[0, 0], flint.arb(0)


class _Gram(_Centre):
    """A Gram matrix. One product gives its norm and the next step: P is short for both."""

    __slots__ = ("_square",)

    def __init__(self, mat: BallMatrix, bits: int, unit: Ball) -> None:
        super().__init__(mat, bits, unit)
        self._square: _Nearby | None = None

    def squared(self) -> _Nearby:
        if self._square is None:
            self._square = self._square_of(self.short())
        return self._square

    def sum_of_squares(self) -> _Nearby:
        square, lost = self.squared()
        with _working(self.bits):
            return square.trace(), lost


def _cut(mat: BallMatrix, unit: Ball, bits: int) -> _Nearby:
    """P with short entries, and a bound of ||A - P||_F. (Entries beyond the unit would only lose more.)

    Adding 3 units to numbers of at most one, at a precision that ends at 2^-kept of it, drops the bits beyond; FLINT
    adds what that loses to the radii. A ball that encloses the sums of all members of a row has a radius of at least
    the sum of theirs; and the Frobenius norm of the radii is at most that of their sums, over rows or over columns.
    """
    rows, columns = mat.nrows(), mat.ncols()
    lift = _filled(rows, columns, 3 * unit)
    kept = max(_WORD, bits // 2 - 3)
    with _working(kept + 2):
        lifted = mat + lift
        part = lifted.mid() - lift
    sums = lifted * _filled(columns, 1, 1) if columns <= rows else _filled(1, rows, 1) * lifted
    return part, sum(x.rad() ** 2 for x in sums.entries()).sqrt().abs_upper()


def _product(a: BallMatrix | IntegerMatrix, b: BallMatrix | IntegerMatrix) -> BallMatrix:
    """Integers are multiplied as such if both are."""
    made = a * b
    return made if isinstance(made, flint.arb_mat) else flint.arb_mat(made)  # exact


def _row_sums(mat: BallMatrix | IntegerMatrix) -> Ball:
    """At least the sum of the magnitudes of the entries of each row: it is an entry of A times a vector of signs.

    (FLINT rounds radii up by 2^-29 or more: more than the roots taken here and above could lose by a wrong direction.)
    """
    return _largest(_product(mat, flint.arb_mat(mat.ncols(), 1, [flint.arb(0, 1)] * mat.ncols())).entries())


def _norm(mat: BallMatrix | IntegerMatrix) -> Ball:
    """At least ||A||, which is at most the root of the largest sum of a row times that of a column (Schur's test)."""
    return (_row_sums(mat) * _row_sums(mat.transpose())).sqrt().abs_upper()


def _largest(balls: Iterable[Ball]) -> Ball:
    """An exact number that no member exceeds in magnitude."""
    return reduce(flint.arb.max, (x.abs_upper() for x in balls)).abs_upper()


def _power_above(number: Ball) -> Ball:
    """The power of two above an exact number."""
    mantissa, exponent = number.man_exp()
    return flint.arb((1, mantissa.bit_length() + exponent))


def _is_power(scale: Ball) -> bool:
    """Whether it is a power of two, and nothing else."""
    return bool(_power_above(scale.abs_upper()) == 2 * scale)


def _table(entries: list[Any], columns: int) -> npt.NDArray[np.object_]:
    """In rows: numpy takes and sorts objects as it does numbers."""
    made = np.empty(len(entries), dtype=object)
    made[:] = entries
    return made.reshape(-1, columns)


def _ascending(groups: npt.NDArray[np.object_]) -> npt.NDArray[np.object_]:
    """Sorted along the second axis: integers, or balls, each between the ends of its rank, rounded outward.

    Balls that overlap have no order, and FLINT's comparisons do not say so; integers and ends are points, which do.
    """
    entries = groups.ravel().tolist()
    if isinstance(entries[0], flint.fmpz) or all(x.is_exact() for x in entries):
        return np.sort(groups, axis=1)
    lower, upper = (
        np.sort(_table([end(x) for x in entries], 1).reshape(groups.shape), axis=1)
        for end in (flint.arb.lower, flint.arb.upper)
    )
    return _table(list(map(flint.arb.union, lower.ravel().tolist(), upper.ravel().tolist())), 1)


def _filled(rows: int, columns: int, value: Ball | int) -> BallMatrix:
    """As a product of two vectors, which is faster than a list of all entries."""
    return flint.arb_mat(rows, 1, [value] * rows) * flint.arb_mat(1, columns, [1] * columns)


@dataclass(frozen=True, eq=False)
class ArbMatrix:
    """The matrices s·(A + E) with s in `scale`, A in `centre` entry by entry, and ||E||_F <= `error`.

    `scale` is a ball, `error` an exact number; operations are carried out at `bits`. Why not an `arb_mat` alone: FLINT
    multiplies exact entries of up to 62 bits three times as fast as balls. So Gram iteration and large products move
    what is uncertain, and all bits beyond, into `error`. There it also grows less: a product takes it times ||A||, not
    times the norm of the absolute values. Multiplying by a point then touches `scale` alone, widening
    `error` alone.
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
        return self.centre.held.nrows(), self.centre.held.ncols()

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
            return mat if error.is_zero() else mat + _filled(*self.shape, flint.arb(0, error))

    def __add__(self, other: ArbMatrix) -> ArbMatrix:
        with _working(self.bits):
            if _is_power(self.scale):  # dividing by it is exact
                scale, mine, error = self.scale, self.centre.mat, self.error
                other = replace(other, scale=other.scale / scale)
            else:
                scale, (mine, error) = flint.arb(1), self._unscaled()
            others, further = other._unscaled()
            return ArbMatrix(_Centre(mine + others, self.bits), scale, (error + further).abs_upper())

    def __sub__(self, other: ArbMatrix) -> ArbMatrix:
        with _working(self.bits):
            return self + replace(other, scale=-other.scale)

    def __matmul__(self, other: ArbMatrix) -> ArbMatrix:
        narrowest = min(*self.shape, other.shape[1])
        (a, lost), (b, further) = self.centre.operand(narrowest), other.centre.operand(narrowest)
        with _working(self.bits):
            e, f = (self.error + lost).abs_upper(), (other.error + further).abs_upper()
            # (A + E)·(B + F) - A·B = E·B + A·F + E·F, and ||E·B||_F <= ||E||_F·||B||.
            error = e * f
            error += 0 if e.is_zero() else e * _norm(b)
            error += 0 if f.is_zero() else f * _norm(a)
            return ArbMatrix(_Centre(_product(a, b), self.bits), self.scale * other.scale, error.abs_upper())

    def gram(self) -> ArbMatrix:
        square, lost = self.centre.squared()
        with _working(self.bits):
            # No entry of A·Aᵀ exceeds the largest on its diagonal. Let the unit be the power of two above that.
            unit = _power_above(_largest(square[i, i] for i in range(square.nrows())))
            made = _Gram(square, self.bits, unit)
            error = self.error + lost
            if not error.is_zero():
                # (A + E)·(A + E)ᵀ - A·Aᵀ = A·Eᵀ + E·Aᵀ + E·Eᵀ, at most ||E||_F·(2·||A|| + ||E||_F) in Frobenius norm;
                # and ||A||² = ||A·Aᵀ|| is at most the Frobenius norm of what was just found.
                squares, further = made.sum_of_squares()
                norm = (squares.abs_upper().sqrt() + further).sqrt()
                error = error * (2 * norm + error)
            return ArbMatrix(made, self.scale * self.scale, error.abs_upper())

    def scalar_mul(self, factor: ArbScalar) -> ArbMatrix:
        with _working(self.bits):
            if factor.ball.is_exact():
                return replace(self, scale=self.scale * factor.ball)
            # `scale` is one number for all entries; of these factors each has its own.
            mat, error = self._unscaled()
            made = _Centre(mat * factor.ball, self.bits)
            return ArbMatrix(made, flint.arb(1), (error * factor.ball).abs_upper())

    def transposed(self) -> ArbMatrix:
        return replace(self, centre=_Centre(self.centre.held.transpose(), self.bits, turned=self.centre))

    def ldexp(self, exponent: int) -> ArbMatrix:
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

        Slow. With refined bits, whose balls are far narrower than a step, it keeps them from growing.
        """
        rows, columns = self.shape
        with _working(self.bits):
            scale, back, half = flint.arb((1, bits)), flint.arb((1, -bits)), flint.arb((1, -1))
            return flint.arb_mat(rows, columns, [(x * scale + half).floor() * back for x in self._balls().entries()])

    def frobenius_squared(self) -> ArbScalar:
        squares, lost = self.centre.sum_of_squares()
        with _working(self.bits):
            # | ||A + E||² - ||A||² | = | ||A + E|| - ||A|| |·(||A + E|| + ||A||) <= ||E||·(2·||A|| + ||E||)
            error = self.error + lost
            apart = (error * (2 * squares.abs_upper().sqrt() + error)).abs_upper()
            return ArbScalar((squares + flint.arb(0, apart)) * self.scale * self.scale, self.bits)

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

    def block(self, rows: Indices, columns: Indices) -> ArbMatrix:
        check_distinct(rows, columns)
        held = self.centre.held
        some = type(held)(len(rows), len(columns), [held[i, j] for i in rows.tolist() for j in columns.tolist()])
        return replace(self, centre=_Centre(some, self.bits, self.centre.unit))  # no part of E is larger than E

    def rows_at(self, index: Indices) -> ArbMatrix:
        times = times_named(index, self.shape[0])
        held, columns = self.centre.held, self.shape[1]
        some = _table([*held.entries(), *[0] * columns], columns)[index]  # -1 is the last: zeros
        made = type(held)(len(index), columns, some.ravel().tolist())
        error = self.error
        if times != 1:  # as often as an entry of E is there its square counts
            with _working(self.bits):
                error = (error * flint.arb(times).sqrt()).abs_upper()
        return replace(self, centre=_Centre(made, self.bits, self.centre.unit), error=error)

    def reshaped(self, shape: tuple[int, int]) -> ArbMatrix:
        check_same_size(self.shape, shape)
        held = self.centre.held
        return replace(self, centre=_Centre(type(held)(*shape, held.entries()), self.bits, self.centre.unit))

    def stacked(self, others: Sequence[ArbMatrix]) -> ArbMatrix:
        parts = [self, *others]
        check_same_width(*(x.shape for x in parts))
        with _working(self.bits):
            if all(x.scale == self.scale for x in others):  # points, and the same: FLINT says so of no others
                integers = all(x.centre.integers is not None for x in parts)
                scale, unscaled = self.scale, [(x.centre.held if integers else x.centre.mat, x.error) for x in parts]
            else:
                scale = self.scale if _is_power(self.scale) else flint.arb(1)
                unscaled = [replace(x, scale=x.scale / scale)._unscaled() for x in parts]
            entries = [x for held, _ in unscaled for x in held.entries()]
            made = type(unscaled[0][0])(sum(x.shape[0] for x in parts), self.shape[1], entries)
            error = sum(x * x for _, x in unscaled).sqrt().abs_upper()
            return ArbMatrix(_Centre(made, self.bits), scale, error)

    def row_scaled(self, column: ArbMatrix) -> ArbMatrix:
        check_column(column.shape, self.shape[0])
        factors, columns = column._balls().entries(), self.shape[1]
        with _working(self.bits):
            made = list(map(mul, self.centre.mat.entries(), (x for x in factors for _ in range(columns))))
            error = self.error if self.error.is_zero() else (self.error * _largest(factors)).abs_upper()
            return ArbMatrix(_Centre(flint.arb_mat(*self.shape, made), self.bits), self.scale, error)

    def sorted_within(self, size: int) -> ArbMatrix:
        check_groups(size, self.shape[0])
        if not self.scale > 0:  # a positive factor changes no order
            mat, error = self._unscaled()
            return ArbMatrix(_Centre(mat, self.bits), flint.arb(1), error).sorted_within(size)
        held, columns = self.centre.held, self.shape[1]
        groups = _table(held.entries(), columns).reshape(-1, size, columns)
        with _working(self.bits):
            made = _ascending(groups).ravel().tolist()
        return replace(self, centre=_Centre(type(held)(*self.shape, made), self.bits, self.centre.unit))

    def recentred(self) -> tuple[ArbMatrix, ArbScalar]:
        return self, ArbScalar(flint.arb(0), self.bits)

    def blurred(self, apart: ArbScalar) -> ArbMatrix:
        most = apart.upper()
        if most <= 0:
            return self
        if self.scale.contains(0):
            return ArbMatrix.of(self._balls(), self.bits).blurred(apart)
        with _working(self.bits):
            return replace(self, error=(self.error + _ball(most) / self.scale.abs_lower()).abs_upper())

    def diag_scaled(self, rows: Floats, columns: Floats) -> ArbMatrix:
        left, right = ([flint.arb(x) for x in weights.tolist()] for weights in (rows, columns))  # exact
        with _working(self.bits):
            if (rows == rows[0]).all() and (columns == columns[0]).all():
                return replace(self, scale=self.scale * left[0] * right[0])
            largest = flint.arb(float(np.max(np.abs(rows)))) * flint.arb(float(np.max(np.abs(columns))))
            made = self.centre.mat.entries()
            if (rows != 1).any():
                made = list(map(mul, made, (a for a in left for _ in right)))
            if (columns != 1).any():
                made = list(map(mul, made, right * len(left)))
            centre = _Centre(flint.arb_mat(*self.shape, made), self.bits)
            return ArbMatrix(centre, self.scale, (self.error * largest).abs_upper())

    def positive_part(self) -> ArbMatrix:
        # x -> max(x, 0) moves no two numbers further apart: not those of E, either.
        zero = flint.arb(0)
        mat, error = self._unscaled()
        with _working(self.bits):
            made = flint.arb_mat(*self.shape, [zero.max(x) for x in mat.entries()])
            return ArbMatrix(_Centre(made, self.bits), flint.arb(1), error)

    def sigmoid(self) -> ArbMatrix:
        return self._curved(lambda x: 1 / (1 + (-x).exp()))

    def expm1_neg(self) -> ArbMatrix:
        zero = flint.arb(0)
        return self._curved(lambda x: zero.min(x).exp() - 1)

    def log1p_exp_neg(self) -> ArbMatrix:
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

    def with_norm_bound(self, norm: Fraction) -> ArbMatrix:  # noqa: ARG002 - there are bits enough
        return self

    def float_bounds(self) -> tuple[Floats, Floats]:
        balls = self._balls().entries()
        with _working(53):  # ends are rounded outward to that: to floats, unless their exponents are beyond those
            both = np.array([(float(x.lower()), float(x.upper())) for x in balls])
        sizes = np.abs(both)
        for index in np.flatnonzero(~((sizes > _SMALL) & (sizes < _LARGE)).all(axis=1)).tolist():
            ball = ArbScalar(balls[index], self.bits)
            both[index] = float_enclosure(ball.lower(), ball.upper())
        lower, upper = both.T.reshape(2, *self.shape)
        return lower, upper


_WORD = 61
"""The bits that are kept below the largest entry, at least. One more still fits what FLINT multiplies as machine words:
3 ms for a product of 128 x 128, against 8 ms beyond."""

_NARROW = 64
"""Products with a side of at most this keep all bits: they cost little, and vectors are evaluated with them."""

_MINUS_ZERO = np.int64(-(2**63))
"""The bits of the float -0.0."""

_BYTES = 128
"""What an entry takes while a matrix is made and multiplied with its transpose: two balls of 48, and integers."""

_SMALL, _LARGE = 2.0**-1000, 2.0**1000
"""Floats between these have 53 bits, all of them."""


@dataclass(frozen=True)
class ArbBackend(DoubledBits):
    """Balls of `working_bits` bits, by default twice the grid's.

    Rounding to the grid widens by half a step of it, `gram` by the bits that it drops: on 128 x 128 layers the relative
    width of a norm is about 2^-49 with a grid of 2^-64, after 11 steps or 40. The refined backend does not widen.
    """

    name = "arb"

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
        near = data.near_floats()
        top = math.frexp(float(np.max(np.abs(near.values))))[1]  # all values are below 2^top
        if near.exact:
            held, exponent = _of_floats(near.values, top)
            scale = flint.arb((1, near.exponent + exponent))
        else:
            # In lowest terms: so the same numbers on another scale are held alike, and give the same bounds there.
            common = math.gcd(data.denominator, *data.numerators.ravel().tolist())
            denominator = data.denominator // common
            held = _of_integers(data.numerators // common if common > 1 else data.numerators)
            top += near.exponent + denominator.bit_length()
            held = held if top <= _WORD else flint.arb_mat(held)
            with _working(self.working_bits):
                scale = 1 / flint.arb(flint.fmpz(denominator))
        return ArbMatrix(_Centre(held, self.working_bits, flint.arb((1, top))), scale, flint.arb(0))


def _of_floats(values: Floats, top: int) -> tuple[BallMatrix | IntegerMatrix, int]:
    """A matrix and an exponent: exactly these values, as short integers if possible. Requires: |values| < 2^top."""
    shift = _WORD - top
    integers = np.ldexp(values, shift).astype(np.int64)
    again = np.ldexp(integers.astype(np.float64), -shift)
    # Compared as bits, so that no mode of the processor makes the smallest of them equal to zero.
    if not ((again.view(np.int64) == values.view(np.int64)) | (values.view(np.int64) == _MINUS_ZERO)).all():
        return flint.arb_mat(*values.shape, values.ravel().tolist()), 0
    together = int(np.bitwise_or.reduce(integers, axis=None))
    zeros = (together & -together).bit_length() - 1 if together else shift  # trailing ones that all entries share
    return _of_integers(integers >> zeros), zeros - shift


def _of_integers(integers: npt.NDArray[Any]) -> IntegerMatrix:
    """From a list, or one by one where most are zero."""
    rows, columns = integers.shape
    if 4 * np.count_nonzero(integers) > integers.size:
        return flint.fmpz_mat(rows, columns, integers.ravel().tolist())
    made, listed = flint.fmpz_mat(rows, columns), integers.tolist()
    for i, j in np.argwhere(integers).tolist():
        made[i, j] = listed[i][j]
    return made


if TYPE_CHECKING:  # the type checker proves conformance
    _scalar: type[Scalar] = ArbScalar
    _matrix: type[Matrix[ArbScalar]] = ArbMatrix
    _backend: type[Backend[ArbScalar]] = ArbBackend
