"""Text tables: lines of comma-separated decimals, each exactly what it says, with an optional header; its eps may
follow after a space.

A block of lines is first offered to a fast path, which understands only the plainest lines and never complains. What it
declines is read line by line, strictly, with messages that name the line. Both give the same rows:

* numpy's parser of decimals is Python's, hence correctly rounded, so its floats are the nearest ones;
* decimals with at most D <= 22 places are integers m in units of 10^-D. The product of the nearest float and 10^D
  (which is a float) is m within 2u·|m|, less than 1/2 for |m| < 2^50, so rounding it to an integer gives m.
"""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from intervalcert.errors import InputError, shortened
from intervalcert.io.files import open_input
from intervalcert.io.tables.source import RowSource
from intervalcert.numbers.matrices import RationalVector
from intervalcert.numbers.parsing import parse_decimal, parse_rational
from intervalcert.proof.decision import check_logits
from intervalcert.verify.number_table import Epsilons, NumberTable

__all__ = ["labels", "open_rows"]

BLOCK_BYTES = 2**20
MAX_LINE_BYTES = 2**22
"""1,024 classes of 1,500 digits fit."""

OnHeader = Callable[[str, bool], None]
"""Called with the first line if it is a header (True), or looks like one of numbers and is read as an output."""

_PLAIN = b"0123456789+-.eE,\n"
_MAX_TOKEN = 64
"""Characters of a number on the fast path."""
_LONG_EXPONENT = re.compile(rb"[eE][+-]?[0-9]{4}")
_MAX_PLACES, _MAX_UNITS = 22, 2.0**50

_MISSING = {"na", "n/a", "none", "null", "nil", "missing"}
"""What programs write where a number is missing: not a name, so such a line is data, and refused."""


# -- blocks of complete lines ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Block:
    """Complete lines. line: the number of the first one, from 1. offset: bytes before it."""

    data: bytes
    line: int
    offset: int

    def lines(self, path: Path) -> list[str]:
        """Their text, with the ends of the lines. Raises: InputError unless it is UTF-8 without zeros."""
        if b"\0" in self.data:
            raise InputError(f"{path} is not a text file (it contains zero bytes)")
        try:
            return self.data.decode("utf-8-sig" if not self.offset else "utf-8").splitlines(keepends=True)
        except UnicodeDecodeError as error:
            raise InputError(f"{path} is not a text file (byte {self.offset + error.start} is not UTF-8)") from None

    def count(self, path: Path) -> int:
        """How many lines; the plain ones end with a line feed alone."""
        return len(self.lines(path)) if self.data.translate(None, _PLAIN + b" /") else self.data.count(b"\n")


def _blocks(path: Path) -> Iterator[_Block]:
    line, offset, rest, blank = 1, 0, b"", True
    with open_input(path) as file:
        while True:
            piece = file.read(BLOCK_BYTES)
            data = rest + piece
            # After the last end of a line; a \r at the very end may be half of one.
            cut = max(data.rfind(b"\n"), data.rfind(b"\r", 0, len(data) - 1)) + 1 if piece else len(data)
            if piece and not cut and len(data) > MAX_LINE_BYTES:
                raise InputError(f"{path}, line {line}: a line of more than {MAX_LINE_BYTES // 2**20} MiB")
            if cut:
                block = _Block(data[:cut], line, offset)
                blank = blank and not block.data.strip()
                yield block
                line += block.count(path)
                offset += cut
            rest = data[cut:]
            if not piece:
                break
    if blank:
        raise InputError(f"{path} is empty")


# -- outputs ---------------------------------------------------------------------------------------------------------


def open_rows(path: Path, classes: int | None, on_header: OnHeader) -> RowSource:
    size = 0
    with contextlib.suppress(OSError, ValueError):  # by name: a pipe must be opened once; what is wrong, reading tells
        size = path.stat().st_size
    return RowSource(path, size or None, _Reader(path, classes, on_header).chunks())


class _Reader:
    """Reads one file; knows what earlier lines had, because later ones must have the same."""

    def __init__(self, path: Path, classes: int | None, on_header: OnHeader) -> None:
        self._path, self._classes, self._on_header = path, classes, on_header
        self._width = classes
        self._carries_eps: bool | None = None

    def chunks(self) -> Iterator[NumberTable]:
        first = 0
        begun = False
        for block in _blocks(self._path):
            work = len(block.data)
            if not begun:
                begun, block = self._without_header(block)
            rows = self._fast(block, first, work) or self._strict(block, first, work)
            if rows is not None:
                yield rows
                first += len(rows)
        if not first:
            raise InputError(f"{self._path} contains no rows")

    def _without_header(self, block: _Block) -> tuple[bool, _Block]:
        """The block after the first line that is not blank, if that is a header; and whether there was such a line."""
        lines = block.lines(self._path)
        start = next((place for place, line in enumerate(lines) if line.strip()), len(lines))
        begun = start < len(lines)
        first = lines[start].strip() if begun else ""
        if begun and _is_header(first):
            self._on_header(first, True)
            start += 1
        elif [cell.strip() for cell in first.split(",")] == list(map(str, range(first.count(",") + 1))):
            self._on_header(first, False)  # 0,1,2,…: what programs write over columns without names
        return begun, _Block("".join(lines[start:]).encode(), block.line + start, max(block.offset, 1))

    def _fast(self, block: _Block, first: int, work: int) -> NumberTable | None:
        """The rows of a block of plain lines; None, and nothing is wrong yet, if it is not one."""
        data = _tidied(block.data)
        if self._width is None or not data:
            return None
        data, epsilons = _without_common_eps(data, first)
        found = _numbers(data, self._width) if self._carries_eps in {None, epsilons is not None} else None
        if found is None:
            return None
        self._carries_eps = epsilons is not None
        values, places = found
        lines = cache(lambda: data.split(b"\n"))

        def read_exact(row: int, columns: Sequence[int]) -> RationalVector:
            cells = lines()[row].decode().split(",")
            return RationalVector.from_decimals([parse_decimal(cells[column]) for column in columns])

        return NumberTable(
            values, places, None if places is not None else read_exact, epsilons, str(self._path), first, work
        )

    def _strict(self, block: _Block, first: int, work: int) -> NumberTable | None:
        """The rows of a block, line by line. Raises: InputError, with the line."""
        rows: list[RationalVector] = []
        values: list[list[float]] = []
        epsilons: list[Fraction] = []
        for number, line in enumerate(block.lines(self._path), block.line):
            if not line.strip():
                continue
            try:
                cells, row, eps = _parse_line(line.strip(), self._width, self._classes)
            except InputError as error:
                raise InputError(f"{self._path}, line {number}: {error}") from None
            if self._carries_eps not in {None, eps is not None}:
                raise InputError(f"{self._path}, line {number}: either every line carries its eps or none does")
            self._width, self._carries_eps = len(row), eps is not None
            rows.append(row)
            values.append([float(cell) for cell in cells])  # correctly rounded
            epsilons += [eps] if eps is not None else []
        if not rows:
            return None
        own = Epsilons.of(epsilons, first) if epsilons else None

        def read_exact(row: int, columns: Sequence[int]) -> RationalVector:
            found = rows[row]
            return RationalVector(tuple(found.numerators[column] for column in columns), found.denominator)

        return NumberTable(np.array(values), None, read_exact, own, str(self._path), first, work)


def _tidied(data: bytes) -> bytes:
    """Lines that end with a line feed, without spaces after commas: as in Python's and other notations."""
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n")
    if b" " in data:
        data = data.replace(b", ", b",")
    return data if data.endswith(b"\n") or not data else data + b"\n"


def _without_common_eps(data: bytes, first: int) -> tuple[bytes, Epsilons | None]:
    """Lines that all end with the same eps, without it."""
    _, space, tail = data[: data.index(b"\n")].rpartition(b" ")
    if not space or data.count(b" " + tail + b"\n") != data.count(b"\n"):
        return data, None
    try:
        epsilons = Epsilons.all_equal(parse_rational(tail.decode()), first)
    except (InputError, UnicodeDecodeError):
        return data, None
    return data.replace(b" " + tail + b"\n", b"\n"), epsilons


def _numbers(data: bytes, classes: int) -> tuple[npt.NDArray[np.float64], int | None] | None:
    """The values and places (see `NumberTable`) of lines that hold nothing but so many decimals each; else None."""
    if data.translate(None, _PLAIN):
        return None
    letters = np.frombuffer(data, dtype=np.uint8)
    ends = np.flatnonzero((letters == ord(",")) | (letters == ord("\n")))
    pattern = np.frombuffer(b"," * (classes - 1) + b"\n", dtype=np.uint8)
    if len(ends) % classes or (letters[ends].reshape(-1, classes) != pattern).any():
        return None
    values = _parsed(data.replace(b"\n", b","))
    if len(values) != len(ends) or not np.isfinite(values).all() or np.diff(ends, prepend=-1).max() > _MAX_TOKEN:
        return None
    values = values.reshape(-1, classes)
    if b"e" in data or b"E" in data:
        return None if _LONG_EXPONENT.search(data) else (values, None)
    places = max(_reach(np.flatnonzero(letters == ord(".")), ends) - 1, 0)
    if places > _MAX_PLACES:
        return values, None
    units = np.rint(values * 10.0**places)
    return (units, places) if max(units.max(), -units.min()) < _MAX_UNITS else (values, None)


def _parsed(numbers: bytes) -> npt.NDArray[np.float64]:
    """The nearest floats of numbers that end with commas; too few of them if one is not a number."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", DeprecationWarning)
        try:
            return np.fromstring(numbers, sep=",")
        except (ValueError, DeprecationWarning):  # which of the two depends on the version of numpy
            return np.zeros(0)


def _reach(marks: npt.NDArray[np.intp], ends: npt.NDArray[np.intp]) -> int:
    """The largest distance of a mark from the end of its number. Requires: at most one mark in each."""
    if not len(marks):
        return 0
    following = ends if len(marks) == len(ends) else ends[np.searchsorted(ends, marks)]
    return int((following - marks).max())


def _is_header(line: str) -> bool:
    """Names only. ``nan`` is a (refused) number, not a name."""
    return all(_is_name(cell.strip()) for cell in line.split(","))


def _is_name(cell: str) -> bool:
    bare = cell.strip('"')
    try:
        float(bare)
    except ValueError:
        return bare.lower() not in _MISSING and (bare[:1].isalpha() or bare[:1] == "_")
    return False


def _parse_line(line: str, width: int | None, classes: int | None) -> tuple[list[str], RationalVector, Fraction | None]:
    """The numbers, as they stand there and exactly, and the eps after them. width: of the lines before."""
    numbers, eps = line, None
    parts = line.rsplit(maxsplit=1)
    shown = repr(shortened(line))
    if "," not in line and (len(line.split()) > 2 or (len(parts) == 2 and (width == 2 or parts[1][0] == "-"))):
        raise InputError(
            f"{shown} has blanks between its numbers, where commas are expected, and a blank only before an eps "
            "(with numpy: savetxt(…, delimiter=','))"
        )
    if len(parts) == 2 and not parts[0].endswith(","):
        numbers, eps = parts[0], parse_rational(parts[1])
        if eps < 0:
            raise InputError(f"the eps {parts[1]} is negative")
    cells = numbers.split(",")
    if classes is not None:
        check_logits(len(cells), classes, f"{shown}, split at its commas")
    elif width is not None and len(cells) != width:
        raise InputError(f"{len(cells)} numbers, separated by commas, where {width} are expected: {shown}")
    return cells, RationalVector.from_decimals([parse_decimal(cell) for cell in cells]), eps


# -- labels ----------------------------------------------------------------------------------------------------------


def labels(path: Path, on_header: OnHeader) -> Iterator[npt.NDArray[Any]]:
    """One class number per line; the first may be a header."""
    begun = False
    for block in _blocks(path):
        numbers = block.data.split() if not block.data.translate(None, b"0123456789\n") else []
        if numbers and max(map(len, numbers)) <= 9:
            begun = True
            yield np.array(numbers).astype(np.int64)
            continue
        found = []
        for number, line in enumerate(block.lines(path), block.line):
            text = line.strip()
            if text and not begun and _is_header(text):
                begun = True
                on_header(text, True)
                continue
            begun = begun or bool(text)
            if text and (not (text.isascii() and text.isdecimal()) or len(text) > 9):
                raise InputError(f"{path}, line {number}: {shortened(text, 20)!r} is not a class number")
            found += [int(text)] if text else []
        yield np.array(found, dtype=np.int64)
