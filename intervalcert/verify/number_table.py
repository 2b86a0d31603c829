"""Rows of exact numbers (logits or inputs) as arrays, and the eps of each row."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from intervalcert.errors import InputError
from intervalcert.numbers.matrices import RationalMatrix, RationalVector
from intervalcert.numbers.rounding import float_enclosure, float_near
from intervalcert.proof.decision import check_eps
from intervalcert.verify.filter import Floats

__all__ = ["Epsilons", "NumberTable", "bfloat16_values", "input_sides", "is_bfloat16"]


_LARGEST_INTEGER = 2**53
"""Every integer up to here is a float64."""


@dataclass(frozen=True)
class Epsilons:
    """The eps of each row: floats with lower <= eps <= upper (one, or one per row), and eps exactly.

    common: the eps of all rows, if it is known to be one.
    """

    lower: Floats | float
    upper: Floats | float
    exact: Callable[[int], Fraction]
    common: Fraction | None

    @staticmethod
    def all_equal(eps: Fraction, first: int = 0) -> Epsilons:
        check_eps(eps, first)
        return Epsilons(*float_enclosure(eps, eps), lambda _: eps, eps)

    @staticmethod
    def of(values: Sequence[Fraction], first: int = 0) -> Epsilons:
        for index, eps in enumerate(values, first):
            check_eps(eps, index)
        ends = np.array([float_enclosure(eps, eps) for eps in values]).T
        common = values[0] if all(eps == values[0] for eps in values) else None
        return Epsilons(ends[0], ends[1], values.__getitem__, common)

    @staticmethod
    def of_floats(values: Floats, first: int = 0) -> Epsilons:
        """Each at its exact binary value. Requires: finite."""
        if (values < 0).any():
            index = int(np.argmax(values < 0))
            check_eps(Fraction(float(values[index])), first + index)
        common = Fraction(float(values[0])) if (values == values[0]).all() else None
        return Epsilons(values, values, lambda row: Fraction(float(values[row])), common)

    def float_bounds(self, part: slice) -> tuple[Floats | float, Floats | float]:
        if isinstance(self.lower, np.ndarray) and isinstance(self.upper, np.ndarray):
            return self.lower[part], self.upper[part]
        return self.lower, self.upper


@dataclass(frozen=True)
class NumberTable:
    """Some outputs of a table.

    values[r, i]·10^-decimal_places is number i of row r, exactly; or, if decimal_places is None, values[r, i] is the
    float nearest to it (inf if it is beyond the floats), and `read_exact(r, columns)` tells those entries of the row.
    epsilons: where the table has its own. what: the table, for messages. first: the index of row 0 there.
    work: how much of the table this is, in the units of its size (rows or bytes).
    """

    values: npt.NDArray[Any]
    decimal_places: int | None = 0
    read_exact: Callable[[int, Sequence[int]], RationalVector] | None = None
    epsilons: Epsilons | None = None
    what: str = "the outputs"
    first: int = 0
    work: int = 0

    def __len__(self) -> int:
        return len(self.values)

    def row(self, index: int) -> RationalVector:
        if self.read_exact is not None:
            return self.read_exact(index, range(self.values.shape[1]))
        found = RationalMatrix.from_floats(self.values[index : index + 1])
        return RationalVector(tuple(found.numerators[0].tolist()), found.denominator * 10 ** (self.decimal_places or 0))

    def lead(self, index: int, winner: int, rival: int) -> tuple[int, int]:
        """y_winner - y_rival, exactly, as a numerator and a denominator. Requires: decimal_places is None."""
        if self.read_exact is None:
            raise ValueError("rows of exact floats need no second look")
        pair = self.read_exact(index, (winner, rival))
        return pair.numerators[0] - pair.numerators[1], pair.denominator

    def with_first(self, constant: Fraction) -> NumberTable:
        """That number, and then the one logit of each row, exactly. Raises: InputError unless all are finite."""
        values = self.values.astype(np.float64)
        if self.decimal_places is not None and not np.isfinite(values).all():
            raise self.not_finite(values)
        unit = 10 ** (self.decimal_places or 0)
        near = float_near(constant.numerator * unit, constant.denominator)
        if self.decimal_places is not None and math.isfinite(near) and Fraction(near) == constant * unit:
            return replace(self, values=_joined(near, values))

        def read_exact(row: int, columns: Sequence[int]) -> RationalVector:
            if self.read_exact is None:  # `row` does the same, for many columns
                top, bottom = self.values[row, 0].item().as_integer_ratio()
                own = RationalVector((top,), bottom * unit)
            else:
                own = self.read_exact(row, (0,))
            pair = own.with_first(constant)
            return RationalVector(tuple(pair.numerators[column] for column in columns), pair.denominator)

        # Integers over a power of ten up to 10^22, both of them floats: the quotients are the nearest floats.
        near = float_near(constant.numerator, constant.denominator)
        return replace(self, values=_joined(near, values / float(unit)), decimal_places=None, read_exact=read_exact)

    @staticmethod
    def of_exact(rows: Sequence[RationalVector], what: str = "the outputs") -> NumberTable:
        """Rows that are held exactly. Requires: some, all equally long."""

        def read_exact(row: int, columns: Sequence[int]) -> RationalVector:
            return RationalVector(tuple(rows[row].numerators[column] for column in columns), rows[row].denominator)

        near = [[float_near(n, row.denominator) for n in row.numerators] for row in rows]
        return NumberTable(np.array(near, dtype=np.float64), None, read_exact, what=what)

    @staticmethod
    def of_array(array: npt.NDArray[Any], what: str = "the outputs", first: int = 0, work: int = 0) -> NumberTable:
        """Each number at its exact value. Requires: a matrix. Raises: InputError for numbers of another type."""
        if is_bfloat16(array.dtype):
            array = bfloat16_values(array)
        if array.dtype.kind not in "fiu" or array.dtype.itemsize > 8:
            raise InputError(
                f"{what}: numbers of type {array.dtype} (float16, bfloat16, float32, float64 or integers are read)"
            )
        if array.dtype.kind == "f" or array.dtype.itemsize < 8 or _are_small(array):
            return NumberTable(array, what=what, first=first, work=work)

        def read_exact(row: int, columns: Sequence[int]) -> RationalVector:
            return RationalVector(tuple(array[row, column].item() for column in columns), 1)

        return NumberTable(array.astype(np.float64), None, read_exact, None, what, first, work)

    def not_finite(self, values: npt.NDArray[Any], start: int = 0) -> InputError:
        """What is to be raised for the first of some values, those from row `start` on. Requires: there is one."""
        row, column = np.argwhere(~np.isfinite(values))[0].tolist()
        place = f"row {self.first + start + row}, column {column}"
        return InputError(f"{self.what}: {values[row, column]} in {place}; every number must be finite")


def input_sides(found: tuple[int, ...], one: tuple[int, ...], what: str) -> tuple[int, int]:
    """How many inputs an array of shape `found` holds, and numbers per input: each has the shape `one`, or is flat.

    Raises: InputError for an array of another shape.
    """
    width = math.prod(one)
    for single in (one, (width,)):
        if 0 not in found and single in {found, found[1:]}:
            return math.prod(found) // width, width
    count = math.prod(found[-1:] if len(found) < 3 else found[1:])
    many = f"{count} numbers per input, but the model takes {width}: " if count != width else ""
    shapes = " or ".join(f"(n, {', '.join(map(str, single))})" for single in dict.fromkeys((one, (width,))))
    raise InputError(f"{what}: {many}an array of shape {found} where {shapes} is expected, for n inputs")


def _joined(constant: float, column: Floats) -> Floats:
    """Rows of two, held by columns: that is how they are judged."""
    made = np.empty((2, len(column)))
    made[0], made[1] = constant, column[:, 0]
    return made.T


def _are_small(integers: npt.NDArray[Any]) -> bool:
    return bool(integers.max() <= _LARGEST_INTEGER) and bool(integers.min() >= -_LARGEST_INTEGER)


def is_bfloat16(dtype: np.dtype[Any]) -> bool:
    """Whether this is the type that the package ml_dtypes defines (and JAX uses)."""
    return dtype.itemsize == 2 and dtype.name == "bfloat16"


def bfloat16_values(array: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """A bfloat16 is the upper half of a float32."""
    return (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
