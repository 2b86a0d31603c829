"""Many outputs at once: rows of logits, the filter over them, exact rationals for what it leaves; arrays of verdicts.

Nothing here is written per row but the exact path, which few rows take.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from intervalcert.certifier import Certifier, Verdict
from intervalcert.errors import InputError
from intervalcert.filtering import (
    TILE_CELLS,
    Bools,
    Floats,
    Integers,
    MarginTables,
    judge_exact,
    judge_rounded,
    scratch,
)
from intervalcert.machine import arithmetic_fault
from intervalcert.protocol import Backend
from intervalcert.rational import RationalMatrix, RationalVector, float_enclosure, float_near, shortest_exact

__all__ = ["BulkCertifier", "Radii", "Rows", "Texts", "Verdicts", "bfloat16_values", "input_sides", "is_bfloat16"]

_LARGEST_INTEGER = 2**53
"""Every integer up to here is a float64."""

_LEAST_ROWS = 1_024
"""A tile has at least so many rows, however many classes: fewer would cost more in calls than in arithmetic."""


# -- rows in ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Radii:
    """A radius for each row: floats with lower <= eps <= upper (one, or one per row), and eps exactly.

    common: the radius of all rows, if it is known to be one.
    """

    lower: Floats | float
    upper: Floats | float
    exact: Callable[[int], Fraction]
    common: Fraction | None

    @staticmethod
    def all_equal(eps: Fraction, first: int = 0) -> Radii:
        _refuse_negative(eps, first)
        return Radii(*float_enclosure(eps, eps), lambda _: eps, eps)

    @staticmethod
    def of(radii: Sequence[Fraction], first: int = 0) -> Radii:
        for index, eps in enumerate(radii, first):
            _refuse_negative(eps, index)
        ends = np.array([float_enclosure(eps, eps) for eps in radii]).T
        common = radii[0] if all(eps == radii[0] for eps in radii) else None
        return Radii(ends[0], ends[1], radii.__getitem__, common)

    @staticmethod
    def of_floats(radii: Floats, first: int = 0) -> Radii:
        """Each at its exact binary value. Requires: finite."""
        if (radii < 0).any():
            index = int(np.argmax(radii < 0))
            _refuse_negative(Fraction(float(radii[index])), first + index)
        common = Fraction(float(radii[0])) if (radii == radii[0]).all() else None
        return Radii(radii, radii, lambda row: Fraction(float(radii[row])), common)

    def ends(self, part: slice) -> tuple[Floats | float, Floats | float]:
        if isinstance(self.lower, np.ndarray) and isinstance(self.upper, np.ndarray):
            return self.lower[part], self.upper[part]
        return self.lower, self.upper


def _refuse_negative(eps: Fraction, index: int) -> None:
    if eps < 0:
        raise InputError(f"output {index}: a radius must not be negative, and this one is {shortest_exact(eps)}")


@dataclass(frozen=True)
class Rows:
    """Some outputs of a table.

    values[r, i]·10^-places is logit i of row r, exactly; or, if places is None, values[r, i] is the float nearest to it
    (inf if it is beyond the floats), and `exactly(r, columns)` tells those entries of the row.
    radii: where the table has its own. what: the table, for messages. first: the index of row 0 there.
    work: how much of the table this is, in the units of its size (rows or bytes).
    """

    values: npt.NDArray[Any]
    places: int | None = 0
    exactly: Callable[[int, Sequence[int]], RationalVector] | None = None
    radii: Radii | None = None
    what: str = "the outputs"
    first: int = 0
    work: int = 0

    def __len__(self) -> int:
        return len(self.values)

    def row(self, index: int) -> RationalVector:
        if self.exactly is not None:
            return self.exactly(index, range(self.values.shape[1]))
        found = RationalMatrix.from_floats(self.values[index : index + 1])
        return RationalVector(tuple(found.numerators[0].tolist()), found.denominator * 10 ** (self.places or 0))

    def lead(self, index: int, winner: int, rival: int) -> tuple[int, int]:
        """y_winner - y_rival, exactly, as a numerator and a denominator. Requires: places is None."""
        if self.exactly is None:
            raise ValueError("rows of exact floats need no second look")
        pair = self.exactly(index, (winner, rival))
        return pair.numerators[0] - pair.numerators[1], pair.denominator

    def with_first(self, constant: Fraction) -> Rows:
        """That number, and then the one logit of each row, exactly. Raises: InputError unless all are finite."""
        values = self.values.astype(np.float64)
        if self.places is not None and not np.isfinite(values).all():
            raise self.not_finite(values)
        unit = 10 ** (self.places or 0)
        near = float_near(constant.numerator * unit, constant.denominator)
        if self.places is not None and math.isfinite(near) and Fraction(near) == constant * unit:
            return replace(self, values=_joined(near, values))

        def exactly(row: int, columns: Sequence[int]) -> RationalVector:
            if self.exactly is None:  # `row` does the same, for many columns
                top, bottom = self.values[row, 0].item().as_integer_ratio()
                own = RationalVector((top,), bottom * unit)
            else:
                own = self.exactly(row, (0,))
            pair = own.with_first(constant)
            return RationalVector(tuple(pair.numerators[column] for column in columns), pair.denominator)

        # Integers over a power of ten up to 10^22, both of them floats: the quotients are the nearest floats.
        near = float_near(constant.numerator, constant.denominator)
        return replace(self, values=_joined(near, values / float(unit)), places=None, exactly=exactly)

    @staticmethod
    def of_array(array: npt.NDArray[Any], what: str = "the outputs", first: int = 0, work: int = 0) -> Rows:
        """Each number at its exact value. Requires: a matrix. Raises: InputError for numbers of another type."""
        if is_bfloat16(array.dtype):
            array = bfloat16_values(array)
        if array.dtype.kind not in "fiu" or array.dtype.itemsize > 8:
            raise InputError(
                f"{what}: numbers of type {array.dtype} (float16, bfloat16, float32, float64 or integers are read)"
            )
        if array.dtype.kind == "f" or array.dtype.itemsize < 8 or _are_small(array):
            return Rows(array, what=what, first=first, work=work)

        def exactly(row: int, columns: Sequence[int]) -> RationalVector:
            return RationalVector(tuple(array[row, column].item() for column in columns), 1)

        return Rows(array.astype(np.float64), None, exactly, None, what, first, work)

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


# -- verdicts out ----------------------------------------------------------------------------------------------------


Texts = npt.NDArray[np.str_]
_COLUMNS = ("indices", "argmax", "certified", "radius", "exactly", "locally", "proved_by", "fault")
"""One entry per verdict, in the order of the fields of `Verdict`."""


@dataclass(frozen=True, eq=False)
class Verdicts(Sequence[Verdict]):
    """The verdicts of many outputs: a sequence of `Verdict`, held as arrays that cannot be written to.

    semantics: which network they are about: ``real``, or the format of a program. eps_space: where radii are measured.
    input_range: of all the inputs, after scaling, rounded outward; None where logits were given.
    """

    indices: npt.NDArray[np.int64]
    argmax: Integers
    certified: Bools
    radius: Floats
    exactly: Bools
    locally: Bools
    proved_by: Texts = field(default_factory=lambda: np.array(""))
    fault: Texts = field(default_factory=lambda: np.array(""))
    semantics: str = "real"
    eps_space: str = "input"
    input_range: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        for name in ("proved_by", "fault"):  # mostly nothing at all, in whatever number
            texts = getattr(self, name)
            object.__setattr__(self, name, texts if texts.ndim else np.broadcast_to(texts, len(self.indices)))
        for array in self._columns():
            array.setflags(write=False)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Arrays that arrive from another process could be written to."""
        self.__dict__.update(state)
        for array in self._columns():
            array.setflags(write=False)

    @staticmethod
    def of(verdicts: Sequence[Verdict]) -> Verdicts:
        if isinstance(verdicts, Verdicts):
            return verdicts
        return Verdicts(
            np.array([v.index for v in verdicts], dtype=np.int64),
            np.array([v.argmax for v in verdicts], dtype=np.intp),
            np.array([v.certified for v in verdicts], dtype=bool),
            np.array([v.radius for v in verdicts], dtype=np.float64),
            np.array([v.exactly for v in verdicts], dtype=bool),
            np.array([v.locally for v in verdicts], dtype=bool),
            np.array([v.proved_by for v in verdicts], dtype=np.str_),
            np.array([v.fault for v in verdicts], dtype=np.str_),
        )

    def _columns(self) -> tuple[npt.NDArray[Any], ...]:
        return tuple(getattr(self, name) for name in _COLUMNS)

    def __len__(self) -> int:
        return len(self.indices)

    @overload
    def __getitem__(self, place: int) -> Verdict: ...
    @overload
    def __getitem__(self, place: slice) -> Verdicts: ...
    def __getitem__(self, place: int | slice) -> Verdict | Verdicts:
        if isinstance(place, slice):
            return replace(self, **{name: getattr(self, name)[place] for name in _COLUMNS})
        return Verdict(*(array[place].item() for array in self._columns()))

    def __iter__(self) -> Iterator[Verdict]:
        return (Verdict(*found) for found in zip(*(array.tolist() for array in self._columns()), strict=True))

    def __eq__(self, other: object) -> bool:
        """The same verdicts, in whatever sequence."""
        if not isinstance(other, Verdicts | tuple | list):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self)} verdicts, {int(self.certified.sum())} certified, {self.semantics} semantics>"


class BulkCertifier:
    """Decides rows against one margin matrix: floats first, exact rationals for the rest.

    Guarantees: the verdicts and radii of `Certifier` on exact rationals, for every row.
    """

    def __init__(
        self, margins: Sequence[Sequence[Fraction]], exact: Backend[Any], threshold: Fraction | None = None
    ) -> None:
        """threshold: of a model with a single output, of which rows hold one logit. Otherwise one for each class.

        Requires: `exact` decides every comparison.
        """
        self.classes, self._threshold = len(margins), threshold
        self.columns = self.classes if threshold is None else 1
        self.one_by_one = Certifier(margins, (exact,))
        self._margins, self._exact = margins, exact
        self._tables: dict[int, MarginTables] = {}
        self._trusted = arithmetic_fault() is None  # else floats decide nothing

    def __reduce__(self) -> tuple[type[BulkCertifier], tuple[Any, Backend[Any], Fraction | None]]:
        """What arrives in another process tests that process, and takes over no floats from this one."""
        return BulkCertifier, (self._margins, self._exact, self._threshold)

    def verdicts(self, rows: Rows, radii: Radii, *, with_radius: bool = True) -> Verdicts:
        """A verdict per row. Without `with_radius` a radius may be left at 0: logits in text then cost much less.

        Raises: InputError unless there are as many logits as `columns`, all finite.
        """
        count, columns = rows.values.shape
        if columns != self.columns:
            raise InputError(
                f"{rows.what}: {columns} logits per output, but the bounds are of a model with {self.columns}"
            )
        if self._threshold is not None:
            rows = rows.with_first(self._threshold)
        argmax, rival, radius = np.zeros(count, dtype=np.intp), np.zeros(count, dtype=np.intp), np.zeros(count)
        certified, settled = np.zeros(count, dtype=bool), np.zeros(count, dtype=bool)
        judge = judge_rounded if rows.places is None else judge_exact
        by_rival = rows.places is None and with_radius
        tables = self._tables_for(rows.places or 0)
        step = min(count, max(_LEAST_ROWS, TILE_CELLS // self.classes))
        for start in range(0, count, step):
            part = slice(start, start + step)
            tile = scratch("tile", (self.classes, min(step, count - start)))
            tile[...] = rows.values[part].T
            if rows.places is not None and not np.isfinite(tile).all():
                raise rows.not_finite(tile.T, start)
            if self._trusted:
                found = judge(tables, tile, *radii.ends(part))
                argmax[part], rival[part], radius[part] = found.argmax, found.rival, found.radius
                certified[part], settled[part] = found.certified, found.settled
        # A rival that is known and alone: its pair of logits, read exactly, gives verdict and radius.
        known = rival >= 0 if by_rival and self._trusted else np.zeros(count, dtype=bool)
        for index in np.flatnonzero(known).tolist():
            lead, unit = rows.lead(index, argmax[index], rival[index])
            certified[index], radius[index] = self._against(lead, unit, argmax[index], rival[index], radii.exact(index))
        for index in np.flatnonzero(~(known if by_rival else settled)).tolist():
            verdict = self.one_by_one.verdict(rows.row(index), radii.exact(index), rows.first + index)
            argmax[index], radius[index], certified[index] = verdict.argmax, verdict.radius, verdict.certified
        indices, nowhere = np.arange(rows.first, rows.first + count), np.zeros(count, dtype=bool)
        return Verdicts(indices, argmax, certified, radius, ~settled, nowhere)

    def _tables_for(self, places: int) -> MarginTables:
        if places not in self._tables:
            self._tables[places] = MarginTables(self._margins, 10**places)
        return self._tables[places]

    def _against(self, lead: int, unit: int, argmax: int, rival: int, eps: Fraction) -> tuple[bool, float]:
        """Verdict and radius of an output whose supremum is x = (lead/unit)/L, with its rival alone."""
        margin = self._margins[rival][argmax]
        top, bottom = lead * margin.denominator, unit * margin.numerator
        nearest = top / bottom  # correctly rounded; the filter has seen that it is within 2^±300
        above, below = nearest.as_integer_ratio()
        radius = nearest if above * bottom < top * below else math.nextafter(nearest, 0.0)
        return eps.numerator * bottom < top * eps.denominator, radius
