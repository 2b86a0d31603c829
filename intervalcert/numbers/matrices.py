"""Matrices and vectors of exact rationals: integers over one common denominator; floats where they are the same."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from operator import or_
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from intervalcert.errors import InputError, UndecidedError

__all__ = ["IntegerArray", "NearFloats", "RationalMatrix", "RationalVector", "exact_integers"]


IntegerArray = npt.NDArray[np.object_]
"""An object array whose entries are Python ints: numpy's shape and slicing, unlimited size."""


MAX_MATRIX_BITS = 2**32
"""What the numerators of one matrix of decimals may take: half a gigabyte."""


@dataclass(frozen=True, slots=True)
class RationalVector:
    """Rationals over one common denominator >= 1, at least one of them: the logits of one output."""

    numerators: tuple[int, ...]
    denominator: int

    def __len__(self) -> int:
        return len(self.numerators)

    def with_first(self, constant: Fraction) -> RationalVector:
        """That number, and then these."""
        unit = constant.denominator
        first, others = constant.numerator * self.denominator, (x * unit for x in self.numerators)
        return RationalVector((first, *others), unit * self.denominator)

    @staticmethod
    def from_decimals(items: Sequence[tuple[int, int]]) -> RationalVector:
        """From the ``(mantissa, exponent)`` pairs of `parse_decimal`."""
        lowest = min(0, min(exponent for _, exponent in items))
        return RationalVector(tuple(m * 10 ** (e - lowest) for m, e in items), 10**-lowest)

    @staticmethod
    def from_fractions(items: Sequence[Fraction]) -> RationalVector:
        denominator = math.lcm(*(x.denominator for x in items))
        return RationalVector(tuple(x.numerator * (denominator // x.denominator) for x in items), denominator)


@dataclass(frozen=True, eq=False)
class NearFloats:
    """Floats beside rationals: each entry of values·2^exponent is its rational rounded to nearest, or equal if `exact`.

    Invariants: `values` is a finite float64 array that nobody writes to, its largest magnitude 0 or in [2^-64, 2^64].
    So an entry v is within 2^-53·|v| of its rational over 2^exponent, or within 2^-1075 where v is subnormal.
    """

    values: npt.NDArray[np.float64]
    exponent: int
    exact: bool


class RationalMatrix:
    """A matrix of rationals: an integer array over one common denominator. Immutable.

    Invariants: `numerators` is a two-dimensional, non-empty object array of Python ints that nobody writes to;
    `denominator` >= 1. Entry (i, j) is numerators[i, j] / denominator.
    A matrix of floats, or of integers that are floats, is kept as such: Python's integers, which take five times as
    much, are made when somebody asks for them.
    """

    __slots__ = ("_floats", "_integers", "_near", "_shape")

    def __init__(self, numerators: IntegerArray, denominator: int) -> None:
        self._shape: tuple[int, int] = numerators.shape
        self._integers: tuple[IntegerArray, int] | None = (numerators, denominator)
        self._floats: tuple[npt.NDArray[np.float64], int] | None = None  # the very values: array·2^exponent
        self._near: NearFloats | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return self._shape

    @property
    def numerators(self) -> IntegerArray:
        return self._as_integers()[0]

    @property
    def denominator(self) -> int:
        return self._as_integers()[1]

    def _as_integers(self) -> tuple[IntegerArray, int]:
        if self._integers is None:
            floats, exponent = cast("tuple[npt.NDArray[np.float64], int]", self._floats)  # one of the two is there
            self._integers = _float_integers(floats, exponent)
        return self._integers

    def __repr__(self) -> str:
        """All of it if that is short: for people."""
        rows, columns = self.shape
        few = rows * columns <= 16 and all(x.bit_length() <= 64 for x in (*self.numerators.flat, self.denominator))
        text = f"RationalMatrix({self.numerators.tolist()!r}, {self.denominator})" if few else ""
        return text if 0 < len(text) <= 100 else f"<RationalMatrix of {rows} x {columns}>"

    def __getitem__(self, index: tuple[int, int]) -> Fraction:
        return Fraction(self.numerators[index], self.denominator)

    def __eq__(self, other: object) -> bool:
        """The same rationals, however they are scaled."""
        if not isinstance(other, RationalMatrix):
            return NotImplemented
        return self.shape == other.shape and bool(
            np.all(self.numerators * other.denominator == other.numerators * self.denominator)
        )

    __hash__ = None  # type: ignore[assignment]

    def transposed(self) -> RationalMatrix:
        if self._integers is None and self._floats is not None:
            return RationalMatrix.from_floats(self._floats[0].T, self._floats[1])
        return RationalMatrix(self.numerators.T, self.denominator)

    def rows(self, part: slice) -> RationalMatrix:
        """Some rows. Floats stay floats. Raises: ValueError if there is none among them."""
        if not range(self.shape[0])[part]:
            raise ValueError(f"no rows of a matrix of {self.shape[0]} in {part}")
        if self._floats is not None:
            return RationalMatrix.from_floats(self._floats[0][part], self._floats[1])
        return RationalMatrix(self.numerators[part], self.denominator)

    def absolute(self) -> RationalMatrix:
        """With the absolute values of all entries."""
        return RationalMatrix(abs(self.numerators), self.denominator)

    def near_floats(self) -> NearFloats:
        """The nearest floats, on a scale on which they neither overflow nor all vanish. Computed once."""
        if self._near is None:
            self._near = _near(*self._floats, True) if self._floats is not None else _near(*_quotients(self))
        return self._near

    def as_floats(self) -> npt.NDArray[np.float64] | None:
        """These very numbers, if every one of them is a finite float64."""
        if self._floats is not None and self._floats[1] == 0:
            return self._floats[0]
        near = self.near_floats()
        if near.exact:
            with np.errstate(over="ignore"):
                made = np.ldexp(near.values, near.exponent)
            # What became infinite, or lost bits among the subnormals, does not come back.
            return made if np.array_equal(np.ldexp(made, -near.exponent), near.values) else None
        numerators, denominator = self.numerators.ravel().tolist(), self.denominator
        if (denominator // math.gcd(denominator, *numerators)).bit_count() != 1:
            return None
        try:
            found = [x / denominator for x in numerators]  # integers are divided with one rounding
        except OverflowError:
            return None
        if any(x * denominator != y for x, y in zip(map(Fraction, found), numerators, strict=True)):
            return None
        return np.array(found).reshape(self.shape)

    @staticmethod
    def from_floats(array: npt.NDArray[Any], exponent: int = 0) -> RationalMatrix:
        """The exact binary values of a two-dimensional float or integer array, times 2^exponent.

        Requires: every entry finite (the caller has the better error message).
        """
        if array.dtype.kind in "iu" and not _fit_floats(array):
            return RationalMatrix(_frozen(array.astype(object) << max(exponent, 0)), 1 << max(-exponent, 0))
        made = RationalMatrix.__new__(RationalMatrix)
        floats = np.array(array, dtype=np.float64, order="C")  # a copy: the caller may write to its own
        rows, columns = floats.shape
        made._shape, made._integers, made._floats, made._near = (rows, columns), None, (_frozen(floats), exponent), None
        return made

    @staticmethod
    def from_decimals(rows: Sequence[Sequence[tuple[int, int]]]) -> RationalMatrix:
        """From rows of ``(mantissa, exponent)`` pairs of `parse_decimal`, all rows equally long."""
        lowest = min(0, min(exponent for row in rows for _, exponent in row))
        largest = max(m.bit_length() + 4 * (e - lowest) for row in rows for m, e in row)
        if largest * len(rows) * len(rows[0]) > MAX_MATRIX_BITS:
            raise InputError("numbers of so different sizes that they do not fit into memory exactly")
        powers = {exponent: 10 ** (exponent - lowest) for exponent in {e for row in rows for _, e in row}}
        return RationalMatrix.from_integers(
            [[mantissa * powers[exponent] for mantissa, exponent in row] for row in rows], 10**-lowest
        )

    @staticmethod
    def from_fractions(rows: Sequence[Sequence[Fraction]]) -> RationalMatrix:
        denominator = math.lcm(*(x.denominator for row in rows for x in row))
        return RationalMatrix.from_integers(
            [[x.numerator * (denominator // x.denominator) for x in row] for row in rows], denominator
        )

    @staticmethod
    def from_integers(rows: Sequence[Iterable[int]], denominator: int = 1) -> RationalMatrix:
        listed = [list(row) for row in rows]
        numerators = np.empty((len(listed), len(listed[0])), dtype=object)
        for index, row in enumerate(listed):
            numerators[index, :] = row
        return RationalMatrix(_frozen(numerators), denominator)

    @staticmethod
    def filled(shape: tuple[int, int], value: Fraction) -> RationalMatrix:
        """One number in all places."""
        return RationalMatrix(_frozen(np.full(shape, value.numerator, dtype=object)), value.denominator)


def exact_integers(x: npt.NDArray[np.float64]) -> tuple[IntegerArray, int]:
    """A vector of floats as integers over a common denominator.

    Raises: UndecidedError unless all are finite float64: parts of other types are other numbers.
    """
    if x.dtype != np.float64 or not np.isfinite(x).all():
        raise UndecidedError("a number that is not a finite float64")
    numerators, denominator = _float_integers(x, 0)
    return numerators, denominator


def _fit_floats(integers: npt.NDArray[Any]) -> bool:
    """Whether each of them is a float64, as those of at most 53 bits are."""
    return integers.dtype.itemsize < 8 or (int(integers.max()) <= 2**53 and int(integers.min()) >= -(2**53))


def _frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array.setflags(write=False)
    return array


def _float_integers(floats: npt.NDArray[np.float64], exponent: int) -> tuple[IntegerArray, int]:
    """floats·2^exponent as integers over a power of two, exactly."""
    mantissas, exponents = np.frexp(floats)
    integers = np.ldexp(mantissas, 53).astype(np.int64)  # exact: |mantissa| < 1 has 53 bits
    exponents = exponents.astype(np.int64) - 53 + exponent
    nonzero = integers != 0
    if not nonzero.any():
        return _frozen(integers.astype(object)), 1
    low_bit = (integers & -integers)[nonzero]
    zeros = np.frexp(low_bit.astype(np.float64))[1] - 1  # a power of two is exact in float64
    lowest = min(0, int((exponents[nonzero] + zeros).min()))
    shifts = np.where(nonzero, exponents - lowest, 0)
    if int((exponents[nonzero] + 53).max()) - lowest <= 62:  # all of them fit into machine words
        small = np.where(shifts >= 0, integers << np.maximum(shifts, 0), integers >> np.maximum(-shifts, 0))
        return _frozen(small.astype(object)), 1 << -lowest
    # A negative shift drops only trailing zero bits: lowest is at most exponent + zeros.
    numerators = np.where(
        shifts >= 0,
        integers.astype(object) << np.maximum(shifts, 0).astype(object),
        integers.astype(object) >> np.maximum(-shifts, 0).astype(object),
    )
    return _frozen(numerators), 1 << -lowest


def _quotients(matrix: RationalMatrix) -> tuple[npt.NDArray[np.float64], int, bool]:
    """(values, exponent, exact): each value is its rational over 2^exponent, rounded to nearest."""
    numerators, denominator = matrix.numerators, matrix.denominator
    bits = max(map(int.bit_length, numerators.ravel().tolist()))
    if denominator & (denominator - 1) == 0:
        together = reduce(or_, map(abs, numerators.ravel().tolist()))
        zeros = (together & -together).bit_length() - 1 if together else 0  # trailing ones that all entries share
        if bits - zeros <= 53:
            return (numerators >> zeros).astype(np.float64), zeros + 1 - denominator.bit_length(), True
    if bits <= 53 and denominator < 1 << 53:  # both are floats, and division of floats is correctly rounded
        return numerators.astype(np.float64) / float(denominator), 0, False
    exponent = bits - denominator.bit_length()
    top, bottom = (numerators << max(-exponent, 0)), denominator << max(exponent, 0)
    # Python's division of integers is correctly rounded, however large they are; the quotients are below 2.
    return np.asarray(top / bottom, dtype=np.float64), exponent, False


def _near(values: npt.NDArray[np.float64], exponent: int, exact: bool) -> NearFloats:
    """Moves the scale by a power of two if need be. Scaling rounds only where it ends among the subnormals."""
    largest = float(np.max(np.abs(values)))
    if largest == 0 or 2.0**-64 <= largest <= 2.0**64:
        return NearFloats(_frozen(values), exponent, exact)
    shift = math.frexp(largest)[1]
    scaled = np.ldexp(values, -shift)
    exact = exact and bool(np.array_equal(np.ldexp(scaled, shift), values))
    return NearFloats(_frozen(scaled), exponent + shift, exact)
