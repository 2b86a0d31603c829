"""Many outputs: arrays and files of logits in, verdicts out."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from intervalcert.certifier import Certifier, Verdict
from intervalcert.errors import InputError, UsageError
from intervalcert.files import atomic_writer, read_text
from intervalcert.loaders.numpy_files import open_array
from intervalcert.network import exact_matrix
from intervalcert.rational import (
    RationalVector,
    as_row,
    as_rows,
    decimal_lower,
    is_flat,
    parse_decimal,
    parse_rational,
    plain_array,
)

__all__ = [
    "RADIUS_COLUMNS",
    "Outputs",
    "Summary",
    "certify_all",
    "outputs_of",
    "read_labels",
    "read_outputs",
    "summarise",
    "verdict_writer",
    "verdicts_as_csv",
]


@dataclass(frozen=True)
class Outputs:
    """Logits, one row per output, all equally long; the radii and the header line, where the file has them."""

    rows: tuple[RationalVector, ...]
    radii: tuple[Fraction, ...] | None = None
    header: str | None = None


# -- in --------------------------------------------------------------------------------------------------------------


def outputs_of(array: npt.ArrayLike) -> Outputs:
    """From an array or a list: one output per row, or a single output. Each number is taken at its exact value."""
    found = plain_array(array)
    if found is None:
        rows = [as_row(array, "the output")] if is_flat(array) else as_rows(array, "the outputs")
        return Outputs(tuple(map(RationalVector.from_fractions, rows)))
    return _rows_of(np.atleast_2d(found), "the outputs")


def _rows_of(array: npt.NDArray[Any], what: str) -> Outputs:
    exact = exact_matrix(array, what)
    return Outputs(tuple(RationalVector(tuple(row), exact.denominator) for row in exact.numerators.tolist()))


def read_outputs(path: str | Path, classes: int | None = None) -> Outputs:
    """A ``.npy`` matrix, or lines of comma-separated logits with an optional header; a radius may follow a space.

    With `classes`, an output of another length is refused with its place.
    """
    path = Path(path)
    if path.suffix.lower() == ".npy":
        array = open_array(path)
        if classes is not None and array.shape[-1] != classes:
            raise InputError(f"{path} has {array.shape[-1]} logits per output, but the bounds are of {classes} classes")
        return _rows_of(array, str(path))
    rows: list[RationalVector] = []
    radii: list[Fraction | None] = []
    header = None
    for place, (number, line) in enumerate(_lines(path)):
        if place == 0 and _is_header(line):
            header = line
            continue
        try:
            row, radius = _parse_line(line, classes or (len(rows[0]) if rows else None))
        except InputError as error:
            raise InputError(f"{path}, line {number}: {error}") from None
        if radii and (radius is None) != (radii[0] is None):
            raise InputError(f"{path}, line {number}: either every line carries a radius or none does")
        rows.append(row)
        radii.append(radius)
    if not rows:
        raise InputError(f"{path} contains no outputs")
    carried = tuple(radius for radius in radii if radius is not None)
    return Outputs(tuple(rows), carried or None, header)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    return ((n, line.strip()) for n, line in enumerate(read_text(path).splitlines(), 1) if line.strip())


_MISSING = {"na", "n/a", "none", "null", "nil", "missing"}
"""What programs write where a number is missing: not a name, so such a line is data, and refused."""


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


def _parse_line(line: str, expected: int | None) -> tuple[RationalVector, Fraction | None]:
    logits, radius = line, None
    parts = line.rsplit(maxsplit=1)
    if len(parts) == 2 and not parts[0].endswith(","):
        logits, radius = parts[0], parse_rational(parts[1])
        if radius < 0:
            raise InputError(f"the radius {parts[1]} is negative")
    cells = logits.split(",")
    if expected is not None and len(cells) != expected:
        shown = line if len(line) <= 40 else line[:30] + "…"
        raise InputError(f"{len(cells)} logits, separated by commas, where {expected} are expected: {shown!r}")
    return RationalVector.from_decimals([parse_decimal(cell) for cell in cells]), radius


def read_labels(path: str | Path, count: int, classes: int) -> tuple[int, ...]:
    """One class number per output: a ``.npy`` vector, or one per line."""
    path = Path(path)
    if path.suffix.lower() == ".npy":
        array = open_array(path)
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise InputError(f"{path}: labels are a vector of integers, not {array.dtype} of shape {array.shape}")
        labels = [int(x) for x in array]
    else:
        labels = []
        for number, line in _lines(path):
            if not (line.isascii() and line.isdecimal()) or len(line) > 9:
                raise InputError(f"{path}, line {number}: {line[:20]!r} is not a class number")
            labels.append(int(line))
    if len(labels) != count:
        raise InputError(f"{path} has {len(labels)} labels, but there are {count} outputs")
    for index, label in enumerate(labels):
        if not 0 <= label < classes:
            raise InputError(f"{path}: label {index} is {label}, but classes go from 0 to {classes - 1}")
    return tuple(labels)


# -- through ---------------------------------------------------------------------------------------------------------


def certify_all(
    certifier: Certifier,
    outputs: Outputs,
    radii: Sequence[Fraction],
    on_output: Callable[[], None] = lambda: None,
) -> tuple[Verdict, ...]:
    """A verdict for each output at its radius."""
    verdicts = []
    for index, (row, eps) in enumerate(zip(outputs.rows, radii, strict=True)):
        verdicts.append(certifier.verdict(row, eps, index))
        on_output()
    return tuple(verdicts)


@dataclass(frozen=True)
class Summary:
    """Counts over a set of outputs. accuracy and vra (verified robust accuracy) are parts of 1, None without labels."""

    certified: int
    total: int
    exactly: int
    right: int | None = None
    right_and_certified: int | None = None

    @property
    def accuracy(self) -> float | None:
        return None if self.right is None else self.right / self.total

    @property
    def vra(self) -> float | None:
        return None if self.right_and_certified is None else self.right_and_certified / self.total


def summarise(verdicts: Sequence[Verdict], labels: Sequence[int] | None) -> Summary:
    """VRA: the share of outputs that are both right and certified."""
    right = None if labels is None else [v.argmax == label for v, label in zip(verdicts, labels, strict=True)]
    return Summary(
        certified=sum(v.certified for v in verdicts),
        total=len(verdicts),
        exactly=sum(v.exactly for v in verdicts),
        right=None if right is None else sum(right),
        right_and_certified=None
        if right is None
        else sum(r and v.certified for r, v in zip(right, verdicts, strict=True)),
    )


# -- out -------------------------------------------------------------------------------------------------------------

_COLUMNS = ("index", "argmax", "verdict", "radius")
RADIUS_COLUMNS = ("index", "argmax", "radius")


def verdict_writer(path: str | Path, columns: Sequence[str] = _COLUMNS) -> Callable[[Sequence[Verdict]], None]:
    """Writes verdicts as ``.csv``, ``.jsonl`` or ``.npy``, by the ending; an unknown ending is refused at once."""
    path = Path(path)
    writers = {".csv": lambda v, c: verdicts_as_csv(v, c).encode(), ".jsonl": _as_jsonl, ".npy": _as_npy}
    if path.suffix.lower() not in writers:
        raise UsageError(f"{path}: verdicts are written as .csv, .jsonl or .npy; choose one of these endings")
    serialise = writers[path.suffix.lower()]

    def write(verdicts: Sequence[Verdict]) -> None:
        with atomic_writer(path) as file:
            file.write(serialise(verdicts, columns))

    return write


def _record(verdict: Verdict, columns: Iterable[str]) -> dict[str, int | str]:
    fields: dict[str, int | str] = {
        "index": verdict.index,
        "argmax": verdict.argmax,
        "verdict": "certified" if verdict.certified else "not_certified",
        "radius": radius_text(verdict.radius),
    }
    return {name: fields[name] for name in columns}


def radius_text(radius: float) -> str:
    """A decimal that is at most the radius. (The shortest decimal of a float may lie above it.)"""
    return "inf" if math.isinf(radius) else decimal_lower(Fraction(radius))


def verdicts_as_csv(verdicts: Sequence[Verdict], columns: Sequence[str] = _COLUMNS) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(_record(v, columns) for v in verdicts)
    return text.getvalue()


def _as_jsonl(verdicts: Sequence[Verdict], columns: Sequence[str]) -> bytes:
    return "".join(json.dumps(_record(v, columns)) + "\n" for v in verdicts).encode()


def _as_npy(verdicts: Sequence[Verdict], columns: Sequence[str]) -> bytes:
    types = {"index": "<i8", "argmax": "<i8", "verdict": "<U13", "radius": "<f8"}
    array = np.empty(len(verdicts), dtype=[(name, types[name]) for name in columns])
    for row, verdict in enumerate(verdicts):
        # The float itself, which is below the true radius already, in place of its decimal.
        array[row] = tuple({**_record(verdict, columns), "radius": verdict.radius}[name] for name in columns)
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=False)
    return buffer.getvalue()
