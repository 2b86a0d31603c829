"""A matrix over any Scalar, written once.

A new backend gets its matrices from here for free; it overrides them when its library has native ones. It is also the
yardstick of those: the contract tests run every native matrix against this one. The law holds because each method is a
composition of scalar operations that obey it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from operator import add
from typing import Generic, Self

import numpy as np

from intervalcert.backends.protocol import Backend, Floats, Indices, S, is_wider
from intervalcert.numbers.exponentials import expm1_neg_enclosure, log1p_exp_neg_enclosure, sigmoid_enclosure
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.pairs import Dyadics
from intervalcert.numbers.rounding import float_enclosure, round_up, sqrt_upper

__all__ = [
    "DoubledBits",
    "GenericMatrix",
    "GenericVector",
    "check_column",
    "check_distinct",
    "check_groups",
    "check_same_length",
    "check_same_shape",
    "check_same_size",
    "check_same_width",
    "hull_of_roots",
    "times_named",
]


def _rounding_error_squared(backend: Backend[S], shape: tuple[int, int], bits: int) -> S:
    """Encloses ||M - R||_F² for every M that is moved to the nearest multiple of 2^-bits entry by entry.

    Each entry moves by at most half a step, so the sum of squares is at most rows·columns·(2^-(bits+1))².
    """
    rows, columns = shape
    return backend.hull(Fraction(0), Fraction(rows * columns, 4 ** (bits + 1)))


@dataclass(frozen=True)
class DoubledBits:
    """The bits of a number system of enclosures: by default twice those of the grid, and twice as many once refined."""

    prec: int
    working_bits: int = 0

    def __post_init__(self) -> None:
        if not self.working_bits:
            object.__setattr__(self, "working_bits", 2 * self.prec)

    def refined(self) -> Self:
        return replace(self, working_bits=2 * self.working_bits)


def check_distinct(rows: Indices, columns: Indices) -> None:
    """Raises: ValueError for an index named twice, or from the end, which names another twice (Matrix.block)."""
    for indices in (rows.tolist(), columns.tolist()):
        if len(set(indices)) < len(indices) or min(indices, default=0) < 0:
            raise ValueError("a block takes every row and column once, by its index from 0")


def check_same_shape(one: tuple[int, int], other: tuple[int, int]) -> None:
    """Raises: ValueError for matrices of different shapes: numpy would repeat the smaller one."""
    if one != other:
        raise ValueError(f"a sum of matrices of the shapes {one} and {other}")


def times_named(index: Indices, rows: int) -> int:
    """The most times that one of so many rows is named. Raises: ValueError as `Matrix.rows_at`."""
    if index.ndim != 1 or not len(index) or index.min() < -1 or index.max() >= rows:
        raise ValueError(f"rows are named by indices from 0 to {rows - 1}, or by -1 for none; at least one of them")
    return int(np.bincount(index[index >= 0], minlength=1).max())


def check_same_size(one: tuple[int, int], other: tuple[int, int]) -> None:
    """Raises: ValueError unless a matrix of one shape has as many entries as one of the other, both of some size."""
    if min(other) < 1 or one[0] * one[1] != other[0] * other[1]:
        raise ValueError(f"the entries of a matrix of the shape {one} do not make one of {other}")


def check_same_width(*shapes: tuple[int, int]) -> None:
    """Raises: ValueError for matrices that cannot stand one above the other."""
    if len({columns for _, columns in shapes}) > 1:
        raise ValueError(f"matrices of the shapes {', '.join(map(str, shapes))} one above the other")


def check_column(column: tuple[int, int], rows: int) -> None:
    """Raises: ValueError unless it is one column with one factor for each row: numpy would repeat what is too short."""
    if column != (rows, 1):
        raise ValueError(f"factors of the shape {column} for {rows} rows")


def check_groups(size: int, rows: int) -> None:
    """Raises: ValueError unless the rows divide into groups of that size."""
    if size < 1 or rows % size:
        raise ValueError(f"{rows} rows do not divide into groups of {size}")


def check_same_length(one: int, other: int) -> None:
    """Raises: ValueError for vectors of different lengths: numpy would repeat the shorter one."""
    if one != other:
        raise ValueError(f"a sum of vectors of {one} and {other} entries")


def hull_of_roots(x: S, backend: Backend[S]) -> S:
    """Backend.sqrt_upper for any backend: the root is monotone, so the hull of its values at the ends has them all."""
    low, high = (sqrt_upper(max(end, Fraction(0)), backend.prec) for end in (x.lower(), x.upper()))
    return backend.hull(low, high)


@dataclass(frozen=True)
class GenericVector(Generic[S]):
    """Scalars of one backend, one after another."""

    entries: tuple[S, ...]

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, place: int) -> S:
        return self.entries[place]

    def __add__(self, other: GenericVector[S]) -> GenericVector[S]:
        check_same_length(len(self), len(other))
        return GenericVector(tuple(x + y for x, y in zip(self.entries, other.entries, strict=True)))

    def scalar_mul(self, factor: S) -> GenericVector[S]:
        return GenericVector(tuple(x * factor for x in self.entries))

    def roots(self, backend: Backend[S]) -> GenericVector[S]:
        return GenericVector(tuple(map(backend.sqrt_upper, self.entries)))

    def replaced(self, entries: Mapping[int, S]) -> GenericVector[S]:
        return GenericVector(tuple(entries.get(place, x) for place, x in enumerate(self.entries)))

    def blunt(self, bits: int) -> list[int]:
        return [place for place, x in enumerate(self.entries) if is_wider(x, bits)]

    def upper(self, bits: int) -> Dyadics:
        return Dyadics.of_fractions(round_up(x.upper(), bits) for x in self.entries)


@dataclass(frozen=True)
class GenericMatrix(Generic[S]):
    """Rows of scalars of one backend; at least one row and one column, all rows equally long."""

    backend: Backend[S]
    rows: tuple[tuple[S, ...], ...]

    @staticmethod
    def of(backend: Backend[S], data: RationalMatrix) -> GenericMatrix[S]:
        rows, columns = data.shape
        return GenericMatrix(
            backend, tuple(tuple(backend.scalar(data[i, j]) for j in range(columns)) for i in range(rows))
        )

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows), len(self.rows[0])

    def __add__(self, other: GenericMatrix[S]) -> GenericMatrix[S]:
        return GenericMatrix(
            self.backend,
            tuple(tuple(x + y for x, y in zip(a, b, strict=True)) for a, b in zip(self.rows, other.rows, strict=True)),
        )

    def __sub__(self, other: GenericMatrix[S]) -> GenericMatrix[S]:
        return GenericMatrix(
            self.backend,
            tuple(tuple(x - y for x, y in zip(a, b, strict=True)) for a, b in zip(self.rows, other.rows, strict=True)),
        )

    def __matmul__(self, other: GenericMatrix[S]) -> GenericMatrix[S]:
        columns = tuple(zip(*other.rows, strict=True))
        return GenericMatrix(self.backend, tuple(tuple(_dot(row, column) for column in columns) for row in self.rows))

    def gram(self) -> GenericMatrix[S]:
        rows, columns = self.shape
        vectors: Sequence[tuple[S, ...]] = self.rows if rows <= columns else tuple(zip(*self.rows, strict=True))
        half = [[_dot(u, v) for v in vectors[: i + 1]] for i, u in enumerate(vectors)]  # symmetric: half suffices
        side = range(len(vectors))
        return GenericMatrix(self.backend, tuple(tuple(half[max(i, j)][min(i, j)] for j in side) for i in side))

    def scalar_mul(self, factor: S) -> GenericMatrix[S]:
        return GenericMatrix(self.backend, tuple(tuple(x * factor for x in row) for row in self.rows))

    def transposed(self) -> GenericMatrix[S]:
        return GenericMatrix(self.backend, tuple(zip(*self.rows, strict=True)))

    def ldexp(self, exponent: int) -> GenericMatrix[S]:
        return self.scalar_mul(self.backend.scalar(Fraction(2) ** exponent))

    def rounded(self, bits: int) -> tuple[GenericMatrix[S], S]:
        # Moving to the grid is monotone, so the hull of where the ends move to encloses where all members do.
        moved = tuple(
            tuple(self.backend.hull(_on_grid(x.lower(), bits), _on_grid(x.upper(), bits)) for x in row)
            for row in self.rows
        )
        return GenericMatrix(self.backend, moved), _rounding_error_squared(self.backend, self.shape, bits)

    def frobenius_squared(self) -> S:
        return reduce(add, (_square(x, self.backend) for row in self.rows for x in row))

    def distances_squared(self, metric: GenericMatrix[S] | None = None) -> GenericVector[S]:
        # Differences first: a row that is near another one has a short one, and a narrow one.
        moved = None if metric is None else (self @ metric).rows

        def squared(i: int, j: int) -> S:
            apart = _minus(self.rows[i], self.rows[j])
            if moved is None:
                return reduce(add, (_square(x, self.backend) for x in apart))
            return _dot(apart, _minus(moved[i], moved[j]))

        return GenericVector(tuple(squared(i, j) for j in range(len(self.rows)) for i in range(j)))

    def block(self, rows: Indices, columns: Indices) -> GenericMatrix[S]:
        check_distinct(rows, columns)
        return GenericMatrix(self.backend, tuple(tuple(self.rows[i][j] for j in columns) for i in rows))

    def rows_at(self, index: Indices) -> GenericMatrix[S]:
        times_named(index, len(self.rows))
        zero = (self.backend.scalar(Fraction(0)),) * self.shape[1]
        return GenericMatrix(self.backend, tuple(zero if i < 0 else self.rows[i] for i in index.tolist()))

    def reshaped(self, shape: tuple[int, int]) -> GenericMatrix[S]:
        check_same_size(self.shape, shape)
        entries, columns = [x for row in self.rows for x in row], shape[1]
        starts = range(0, len(entries), columns)
        return GenericMatrix(self.backend, tuple(tuple(entries[k : k + columns]) for k in starts))

    def stacked(self, others: Sequence[GenericMatrix[S]]) -> GenericMatrix[S]:
        check_same_width(self.shape, *(x.shape for x in others))
        return GenericMatrix(self.backend, tuple(row for x in (self, *others) for row in x.rows))

    def row_scaled(self, column: GenericMatrix[S]) -> GenericMatrix[S]:
        check_column(column.shape, len(self.rows))
        scaled = (tuple(x * factor for x in row) for row, (factor,) in zip(self.rows, column.rows, strict=True))
        return GenericMatrix(self.backend, tuple(scaled))

    def sorted_within(self, size: int) -> GenericMatrix[S]:
        check_groups(size, len(self.rows))
        made: list[tuple[S, ...]] = []
        for start in range(0, len(self.rows), size):
            columns = zip(*self.rows[start : start + size], strict=True)
            made += zip(*(_ascending(column, self.backend) for column in columns), strict=True)
        return GenericMatrix(self.backend, tuple(made))

    def recentred(self) -> tuple[GenericMatrix[S], S]:
        return self, self.backend.scalar(Fraction(0))

    def blurred(self, apart: S) -> GenericMatrix[S]:
        # No entry of a matrix is larger than its norm.
        most = apart.upper()
        if most <= 0:
            return self
        beside = self.backend.hull(-most, most)
        return GenericMatrix(self.backend, tuple(tuple(x + beside for x in row) for row in self.rows))

    def diag_scaled(self, rows: Floats, columns: Floats) -> GenericMatrix[S]:
        left, right = ([self.backend.scalar(Fraction(float(x))) for x in weights] for weights in (rows, columns))
        return GenericMatrix(
            self.backend,
            tuple(
                tuple(x * a * b for x, b in zip(row, right, strict=True))
                for row, a in zip(self.rows, left, strict=True)
            ),
        )

    def positive_part(self) -> GenericMatrix[S]:
        return GenericMatrix(self.backend, tuple(tuple(_positive(x, self.backend) for x in row) for row in self.rows))

    def sigmoid(self) -> GenericMatrix[S]:
        return self._curved(sigmoid_enclosure)

    def expm1_neg(self) -> GenericMatrix[S]:
        return self._curved(expm1_neg_enclosure)

    def log1p_exp_neg(self) -> GenericMatrix[S]:
        return self._curved(log1p_exp_neg_enclosure)

    def _curved(self, enclose: Callable[[Fraction, int], tuple[Fraction, Fraction]]) -> GenericMatrix[S]:
        """A monotone function: from below at the lower end, from above at the upper one."""
        bits = self.backend.working_bits or self.backend.prec
        made = tuple(
            tuple(self.backend.hull(enclose(x.lower(), bits)[0], enclose(x.upper(), bits)[1]) for x in row)
            for row in self.rows
        )
        return GenericMatrix(self.backend, made)

    def with_norm_bound(self, norm: Fraction) -> GenericMatrix[S]:  # noqa: ARG002 - intervals have no use for it
        return self

    def float_bounds(self) -> tuple[Floats, Floats]:
        rows = [[float_enclosure(x.lower(), x.upper()) for x in row] for row in self.rows]
        both = np.array(rows, dtype=np.float64)
        return both[..., 0], both[..., 1]


def _positive(x: S, backend: Backend[S]) -> S:
    """max(x, 0). It is monotone: the hull of its values at the ends has them all."""
    zero = Fraction(0)
    return x if x.lower() >= 0 else backend.hull(zero, max(x.upper(), zero))


def _ascending(column: Sequence[S], backend: Backend[S]) -> list[S]:
    """Between the k-th smallest lower and the k-th smallest upper end: a set itself if those are its own."""
    lower, upper = (sorted(column, key=end) for end in (_lower, _upper))
    return [x if x is y else backend.hull(x.lower(), y.upper()) for x, y in zip(lower, upper, strict=True)]


def _lower(x: S) -> Fraction:
    return x.lower()


def _upper(x: S) -> Fraction:
    return x.upper()


def _on_grid(x: Fraction, bits: int) -> Fraction:
    """The nearest multiple of 2^-bits, ties upwards."""
    return Fraction((2 * x.numerator * 2**bits + x.denominator) // (2 * x.denominator), 2**bits)


def _minus(u: Sequence[S], v: Sequence[S]) -> list[S]:
    return [x - y for x, y in zip(u, v, strict=True)]


def _dot(u: Sequence[S], v: Sequence[S]) -> S:
    return reduce(add, (x * y for x, y in zip(u, v, strict=True)))


def _square(x: S, backend: Backend[S]) -> S:
    """x·x without the negative part that a product of two independent sets around zero would have."""
    if x.lower() >= 0 or x.upper() <= 0:
        return x * x
    return backend.hull(Fraction(0), max(x.lower() ** 2, x.upper() ** 2))
