"""Verdicts and radii to files, piece by piece; a file appears complete under its name, or not at all."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from fractions import Fraction
from itertools import repeat
from pathlib import Path
from typing import IO, Any

import numpy as np

from intervalcert.backends.protocol import Floats
from intervalcert.errors import UsageError
from intervalcert.io.files import atomic_writer
from intervalcert.io.tables.parquet_rows import pyarrow_parquet
from intervalcert.numbers.text import decimal_lower, decimal_upper
from intervalcert.proof.decision import Status
from intervalcert.verify.radius import Radii
from intervalcert.verify.verdicts import Verdicts

__all__ = [
    "BRACKET_COLUMNS",
    "COMPLETE_COLUMNS",
    "RADIUS_COLUMNS",
    "RIGHT",
    "VERDICT_COLUMNS",
    "Write",
    "WriteRows",
    "check_ending",
    "csv_pieces",
    "radius_text",
    "verdict_sink",
]

VERDICT_COLUMNS = ("index", "argmax", "verdict", "radius", "semantics", "eps_space")
COMPLETE_COLUMNS = (
    *("index", "argmax", "status", "radius", "method", "lead_lower", "lead_upper", "ended"),
    *("semantics", "eps_space"),
)
"""Where every point was to be decided. Of those that are open, between what the least lead is (`Bracket`)."""

RADIUS_COLUMNS = ("index", "argmax", "radius", "semantics", "eps_space")

BRACKET_COLUMNS = (
    *("index", "argmax", "radius_lower", "radius_upper", "status", "method", "ended"),
    *("semantics", "eps_space"),
)
"""Of the robust radii of inputs."""

RIGHT = "right"
"""One more, with labels."""

Rows = Verdicts | Radii

Write = Callable[[Verdicts], None]
WriteRows = Callable[[Rows], None]


@contextlib.contextmanager
def verdict_sink(path: str | Path, columns: Sequence[str] = VERDICT_COLUMNS) -> Iterator[WriteRows]:
    """Takes verdicts, or radii, and writes them as ``.csv``, ``.jsonl``, ``.npy`` or ``.parquet``, by the ending.

    Binary formats have ``certified`` (a truth value) in the place of ``verdict`` (a word), and the radius itself, a
    float below the supremum, in the place of a decimal that is at most that.
    """
    path = Path(path)
    check_ending(path)
    with atomic_writer(path) as file, _SINKS[path.suffix.lower()](file, columns) as write:
        yield write


def check_ending(path: Path) -> None:
    """Raises: UsageError if verdicts cannot be written to a file of that name."""
    if path.suffix.lower() not in _SINKS:
        raise UsageError(f"{path}: verdicts are written as .csv, .jsonl, .npy or .parquet; choose one of these endings")
    if path.suffix.lower() == ".parquet":
        pyarrow_parquet(path)


# -- text ------------------------------------------------------------------------------------------------------------

_WORDS = tuple("not_certified" if status is Status.UNKNOWN else status.value for status in Status)
"""Of a status, as a verdict: what is not proved either way is not certified."""

_FLOOR_17 = Context(prec=17, rounding=ROUND_FLOOR)


def radius_text(radius: float) -> str:
    """A decimal that is at most the radius. (The shortest decimal of a float may lie above it.)

    `decimal` converts the float exactly and rounds down once; where it would write an exponent its form is not ours.
    """
    if 1e-5 <= radius < 1e16:
        text = str(_FLOOR_17.create_decimal_from_float(radius))
        return text.rstrip("0").rstrip(".") if "." in text else text
    return "inf" if math.isinf(radius) else decimal_lower(Fraction(radius))


def _lead_texts(leads: Floats, rounding: str) -> Iterator[str]:
    """Decimals that are at most, or at least, the leads; nothing for those that are not known."""
    context = Context(prec=17, rounding=rounding)
    for lead in leads.tolist():
        yield "" if math.isnan(lead) else f"{context.create_decimal_from_float(lead):g}"


def radius_text_upper(radius: float) -> str:
    """A decimal that is at least the radius."""
    return "inf" if math.isinf(radius) else decimal_upper(Fraction(radius))


def _texts(rows: Rows, columns: Sequence[str]) -> Iterator[tuple[str, ...]]:
    return _radius_texts(rows, columns) if isinstance(rows, Radii) else _verdict_texts(rows, columns)


def _radius_texts(radii: Radii, columns: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Nothing is written for an upper end that is not known."""
    ends = zip(radii.lower.tolist(), radii.upper.tolist(), strict=True)
    uppers = ("" if lower < upper == math.inf else radius_text_upper(upper) for lower, upper in ends)
    right = [] if radii.right is None else radii.right.tolist()
    found: dict[str, Iterator[str]] = {
        "index": map(str, radii.indices.tolist()),
        "argmax": map(str, radii.argmax.tolist()),
        "radius_lower": map(radius_text, radii.lower.tolist()),
        "radius_upper": uppers,
        "status": iter(radii.status.tolist()),
        "method": iter(radii.method.tolist()),
        "ended": iter(radii.ended.tolist()),
        RIGHT: iter(["yes" if each else "no" for each in right]),
        "semantics": repeat(radii.semantics, len(radii)),
        "eps_space": repeat(radii.eps_space, len(radii)),
    }
    return zip(*(found[name] for name in columns), strict=True)


def _verdict_texts(verdicts: Verdicts, columns: Sequence[str]) -> Iterator[tuple[str, ...]]:
    found: dict[str, Iterator[str]] = {
        "index": map(str, verdicts.indices.tolist()),
        "argmax": map(str, verdicts.argmax.tolist()),
        "verdict": map(_WORDS.__getitem__, verdicts.codes.tolist()),
        "radius": map(radius_text, verdicts.radius.tolist()),
        "status": iter(verdicts.status.tolist()),
        "method": iter(verdicts.found_by.tolist()),
        "lead_lower": _lead_texts(verdicts.lead_lower, ROUND_FLOOR) if "lead_lower" in columns else repeat(""),
        "lead_upper": _lead_texts(verdicts.lead_upper, ROUND_CEILING) if "lead_upper" in columns else repeat(""),
        "ended": iter(verdicts.ended.tolist()) if "ended" in columns else repeat(""),
        "semantics": repeat(verdicts.semantics, len(verdicts)),
        "eps_space": repeat(verdicts.eps_space, len(verdicts)),
    }
    return zip(*(found[name] for name in columns), strict=True)


def csv_pieces(columns: Sequence[str] = VERDICT_COLUMNS) -> Callable[[Rows], str]:
    """Verdicts, or radii, as lines; the first piece begins with the names of the columns."""
    header = [",".join(columns) + "\n"]

    def piece(rows: Rows) -> str:
        lines = "".join([",".join(texts) + "\n" for texts in _texts(rows, columns)])
        return (header.pop() if header else "") + lines

    return piece


@contextlib.contextmanager
def _csv(file: IO[bytes], columns: Sequence[str]) -> Iterator[WriteRows]:
    piece = csv_pieces(columns)
    yield lambda rows: _discard(file.write(piece(rows).encode()))


@contextlib.contextmanager
def _jsonl(file: IO[bytes], columns: Sequence[str]) -> Iterator[WriteRows]:
    numbers = {"index", "argmax"}
    line = ", ".join(f'"{name}": %s' if name in numbers else f'"{name}": "%s"' for name in columns)
    line = "{" + line + "}\n"

    def write(rows: Rows) -> None:
        file.write("".join([line % texts for texts in _texts(rows, columns)]).encode())

    yield write


def _discard(_: int) -> None:
    """What `write` returns is of no use."""


# -- binary ----------------------------------------------------------------------------------------------------------

_TYPES = {
    "index": "<i8",
    "argmax": "<i4",
    "certified": "?",
    "status": "S9",
    "radius": "<f8",
    "method": "S7",
    "lead_lower": "<f8",
    "lead_upper": "<f8",
    "ended": "S6",
    "radius_lower": "<f8",
    "radius_upper": "<f8",
    RIGHT: "?",
    "semantics": "S8",
    "eps_space": "S10",
}


def _binary(columns: Sequence[str]) -> list[str]:
    return ["certified" if name == "verdict" else name for name in columns]


def _column(rows: Rows, name: str) -> Any:
    """An array, or one value for all."""
    return getattr(rows, (_RADIUS_NAMES if isinstance(rows, Radii) else _NAMES).get(name, name))


_NAMES = {"index": "indices", "method": "found_by"}
_RADIUS_NAMES = {"index": "indices", "radius_lower": "lower", "radius_upper": "upper"}
"""Of columns that verdicts, or radii, call otherwise."""


@contextlib.contextmanager
def _npy(file: IO[bytes], columns: Sequence[str]) -> Iterator[WriteRows]:
    """Records. The header is written again at the end, when their number is known: numpy leaves room for it."""
    dtype = np.dtype([(name, _TYPES[name]) for name in _binary(columns)])
    count = 0

    def header() -> None:
        fields = {"descr": dtype.descr, "fortran_order": False, "shape": (count,)}
        file.seek(0)
        np.lib.format.write_array_header_1_0(file, fields)

    def write(rows: Rows) -> None:
        nonlocal count
        records = np.empty(len(rows), dtype=dtype)
        for name in dtype.names or ():
            records[name] = _column(rows, name)
        file.write(records.tobytes())
        count += len(records)

    header()
    length = file.tell()
    yield write
    header()
    if file.tell() != length:
        raise RuntimeError("numpy wrote a longer header than before")
    file.seek(0, 2)


@contextlib.contextmanager
def _parquet(file: IO[bytes], columns: Sequence[str]) -> Iterator[WriteRows]:
    import pyarrow as pa
    from pyarrow import parquet

    types = {
        "index": pa.int64(),
        "argmax": pa.int32(),
        "certified": pa.bool_(),
        "status": pa.string(),
        "radius": pa.float64(),
        "method": pa.string(),
        "lead_lower": pa.float64(),
        "lead_upper": pa.float64(),
        "ended": pa.string(),
        "radius_lower": pa.float64(),
        "radius_upper": pa.float64(),
        RIGHT: pa.bool_(),
        "semantics": pa.string(),
        "eps_space": pa.string(),
    }
    schema = pa.schema([(name, types[name]) for name in _binary(columns)])
    with parquet.ParquetWriter(file, schema) as writer:

        def write(rows: Rows) -> None:
            columns: list[Any] = [_column(rows, field.name) for field in schema]
            arrays: list[Any] = [
                pa.repeat(pa.scalar(column, field.type), len(rows))
                if isinstance(column, str)
                else pa.array(column, field.type)
                for column, field in zip(columns, schema, strict=True)
            ]
            writer.write_batch(pa.record_batch(arrays, schema=schema))

        yield write


_SINKS = {".csv": _csv, ".jsonl": _jsonl, ".npy": _npy, ".parquet": _parquet}
