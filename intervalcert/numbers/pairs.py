"""Many dyadics at once, and the symmetric matrix of margins that is made of them: each pair of classes once.

A dyadic is m·2^e with integers m and e. A thousand classes have half a million pairs, so they are held as two arrays;
`Fraction` objects are made one at a time, for whoever asks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from intervalcert.numbers.matrices import IntegerArray
from intervalcert.numbers.rounding import dyadic_value
from intervalcert.numbers.upward import float_up

__all__ = ["Dyadics", "PairMatrix", "first_of_row", "floats_above"]

Floats = npt.NDArray[np.float64]
Exponents = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Dyadics(Sequence[Fraction]):
    """Numbers mantissas[k]·2^exponents[k].

    Invariants: a mantissa is an odd Python int, or 0 with the exponent 0 (so equal numbers are held alike); nobody
    writes to the arrays.
    """

    mantissas: IntegerArray
    exponents: Exponents

    def __post_init__(self) -> None:
        self.mantissas.setflags(write=False)
        self.exponents.setflags(write=False)

    @staticmethod
    def of(pairs: Iterable[tuple[int, int]]) -> Dyadics:
        """From (m, e) for m·2^e, m of any kind."""
        odd = [_odd(m, e) for m, e in pairs]
        mantissas = np.empty(len(odd), dtype=object)
        mantissas[:] = [m for m, _ in odd]
        return Dyadics(mantissas, np.array([e for _, e in odd], dtype=np.int64))

    @staticmethod
    def of_fractions(numbers: Iterable[Fraction]) -> Dyadics:
        """Raises: ValueError if one of them is no dyadic."""
        return Dyadics.of(map(_parts, numbers))

    @staticmethod
    def of_floats(floats: Floats, exponents: Exponents) -> Dyadics:
        """floats[k]·2^exponents[k], exactly. Requires: finite ones."""
        parts, powers = np.frexp(floats)
        integers = np.ldexp(parts, 53).astype(np.int64)  # exact: |part| < 1 has 53 bits
        zeros = np.maximum(np.frexp((integers & -integers).astype(np.float64))[1] - 1, 0)  # trailing ones
        shifted = np.where(integers != 0, exponents + powers - 53 + zeros, 0)
        return Dyadics((integers >> zeros).astype(object), shifted.astype(np.int64))

    def __len__(self) -> int:
        return len(self.mantissas)

    @overload
    def __getitem__(self, place: int) -> Fraction: ...
    @overload
    def __getitem__(self, place: slice) -> Dyadics: ...
    def __getitem__(self, place: int | slice) -> Fraction | Dyadics:
        if isinstance(place, slice):
            return Dyadics(self.mantissas[place], self.exponents[place])
        return dyadic_value(self.mantissas[place], int(self.exponents[place]))

    def __iter__(self) -> Iterator[Fraction]:
        return (dyadic_value(m, e) for m, e in self.parts())

    def parts(self) -> Iterator[tuple[int, int]]:
        """(m, e) of each."""
        return zip(self.mantissas.tolist(), self.exponents.tolist(), strict=True)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Dyadics):
            return NotImplemented
        return np.array_equal(self.exponents, other.exponents) and np.array_equal(self.mantissas, other.mantissas)

    def __hash__(self) -> int:
        return hash(tuple(self.parts()))

    def __repr__(self) -> str:
        return f"<{len(self)} dyadics>"

    def smaller(self, other: Dyadics) -> Dyadics:
        """The smaller of both, place by place."""
        mine = [_is_at_most(x, y) for x, y in zip(self.parts(), other.parts(), strict=True)]
        which = np.array(mine, dtype=bool)
        return Dyadics(
            np.where(which, self.mantissas, other.mantissas), np.where(which, self.exponents, other.exponents)
        )

    def rounded_up(self) -> Floats:
        """The least floats that are not below; infinite beyond the floats. Requires: none is negative."""
        excess = [max(0, m.bit_length() - 53) for m in self.mantissas.tolist()]
        tops = [-(-m >> x) for m, x in zip(self.mantissas.tolist(), excess, strict=True)]  # the shift is a floor
        exponents = self.exponents + np.array(excess, dtype=np.int64)
        with np.errstate(over="ignore", under="ignore"):
            made = np.ldexp(np.array(tops, dtype=np.float64), np.clip(exponents, -5000, 5000).astype(np.int32))
        for k in np.flatnonzero((made < 2.0**-1000) & (self.mantissas != 0)).tolist():
            made[k] = float_up(self[k])  # among the subnormals there are fewer bits
        return made


def _odd(m: int, e: int) -> tuple[int, int]:
    if not m:
        return 0, 0
    zeros = (m & -m).bit_length() - 1
    return m >> zeros, e + zeros


def _parts(x: Fraction) -> tuple[int, int]:
    if x.denominator & (x.denominator - 1):
        raise ValueError(f"{x.numerator}/{x.denominator} is no multiple of a power of two")
    return x.numerator, 1 - x.denominator.bit_length()


def _is_at_most(x: tuple[int, int], y: tuple[int, int]) -> bool:
    (m, e), (n, f) = x, y
    return m << (e - f) <= n if e >= f else m <= n << (f - e)


# -- matrices --------------------------------------------------------------------------------------------------------


def first_of_row(j: int) -> int:
    """Where the pairs (0, j), (1, j), …, (j - 1, j) begin, if those of lower classes stand before them."""
    return j * (j - 1) // 2


@dataclass(frozen=True, eq=False, repr=False)
class PairMatrix(Sequence[Sequence[Fraction]]):
    """A symmetric matrix of dyadics, zero on the diagonal: `matrix[i][j]` is an exact Fraction.

    entries: those of the pairs (0, 1), (0, 2), (1, 2), (0, 3), …
    """

    entries: Dyadics

    def __post_init__(self) -> None:
        if first_of_row(len(self)) != len(self.entries):
            raise ValueError(f"{len(self.entries)} is not the number of pairs of some classes")

    @staticmethod
    def of(rows: Sequence[Sequence[Fraction]]) -> PairMatrix:
        """Raises: ValueError unless it is symmetric, zero on the diagonal, and all dyadics."""
        if isinstance(rows, PairMatrix):
            return rows
        classes = range(len(rows))
        if any(len(row) != len(rows) for row in rows) or any(rows[i][i] != 0 for i in classes):
            raise ValueError("margins make a square matrix with a diagonal of zeros")
        if any(rows[i][j] != rows[j][i] for j in classes for i in range(j)):
            raise ValueError("margins make a symmetric matrix")
        return PairMatrix(Dyadics.of_fractions(rows[i][j] for j in classes for i in range(j)))

    def __len__(self) -> int:
        return math.isqrt(2 * len(self.entries)) + 1  # c(c - 1) lies between (c - 1)² and c²

    @overload
    def __getitem__(self, place: int) -> Sequence[Fraction]: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Sequence[Fraction]]: ...
    def __getitem__(self, place: int | slice) -> Sequence[Any]:
        if isinstance(place, slice):
            return [_Row(self, i) for i in range(len(self))[place]]
        return _Row(self, range(len(self))[place])

    def __eq__(self, other: object) -> bool:
        """The same numbers, in whatever sequence of rows."""
        if isinstance(other, PairMatrix):
            return self.entries == other.entries
        if not isinstance(other, tuple | list):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(self.entries)

    def __repr__(self) -> str:
        return f"<the pairs of {len(self)} classes>"

    @cached_property
    def _parts(self) -> list[tuple[int, int]]:
        return list(self.entries.parts())

    def row(self, i: int) -> list[tuple[int, int]]:
        """(m, e) of all entries m·2^e of a row, or of a column."""
        parts = self._parts
        after = [parts[j * (j - 1) // 2 + i] for j in range(i + 1, len(self))]
        return [*parts[first_of_row(i) : first_of_row(i + 1)], (0, 0), *after]

    def rounded_up(self) -> Floats:
        """As an array: the least floats that are not below; infinite beyond the floats."""
        made = np.zeros((len(self), len(self)))
        floats = self.entries.rounded_up()
        for j in range(len(self)):
            made[j, :j] = made[:j, j] = floats[first_of_row(j) : first_of_row(j + 1)]
        return made


def floats_above(matrix: Sequence[Sequence[Fraction]]) -> Floats:
    """The least floats that are not below, infinite beyond the floats; an array that cannot be written to."""
    if isinstance(matrix, PairMatrix):
        made = matrix.rounded_up()
    else:
        made = np.array([[float_up(x) for x in row] for row in matrix], dtype=np.float64)
    made.setflags(write=False)
    return made


class _Row(Sequence[Fraction]):
    """One row of a `PairMatrix`."""

    __slots__ = ("_index", "_matrix")

    def __init__(self, matrix: PairMatrix, index: int) -> None:
        self._matrix, self._index = matrix, index

    def __len__(self) -> int:
        return len(self._matrix)

    @overload
    def __getitem__(self, place: int) -> Fraction: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Fraction]: ...
    def __getitem__(self, place: int | slice) -> Fraction | Sequence[Fraction]:
        if isinstance(place, slice):
            return tuple(self)[place]
        i, j = sorted((self._index, range(len(self))[place]))
        return self._matrix.entries[first_of_row(j) + i] if i != j else Fraction(0)

    def __iter__(self) -> Iterator[Fraction]:
        return (dyadic_value(m, e) for m, e in self._matrix.row(self._index))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Row | tuple | list):
            return NotImplemented
        return tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))
