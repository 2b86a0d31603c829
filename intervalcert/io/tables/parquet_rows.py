"""Parquet tables, by pyarrow, which is only imported if such a file is named.

One numeric column per class, in order; a column named ``eps`` may hold each output's own.

Rows are read in slices. But of each column a whole page is unpacked at once, and a small file can hold pages of any
size: so the headers of the pages are looked through first (`parquet_pages`), and what grows too much is refused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from intervalcert.errors import InputError, UsageError, shortened
from intervalcert.io.files import check_growth, open_input, size_of
from intervalcert.io.tables.parquet_pages import page_bytes
from intervalcert.io.tables.source import CHUNK_CELLS, RowSource
from intervalcert.numbers.matrices import RationalVector
from intervalcert.numbers.parsing import as_fraction
from intervalcert.proof.decision import check_logits
from intervalcert.verify.number_table import Epsilons, NumberTable

if TYPE_CHECKING:
    from types import ModuleType

__all__ = ["open_rows", "pyarrow_parquet"]

_EPS = "eps"

MAX_PAGES_BYTES = 2**30
"""What one page of each column may take, unpacked: 1 GiB, as 1,024 columns do with pages of the usual size."""

_LEAST_BYTES = 4
"""As how many a number counts at least, however few it takes in the file."""


def pyarrow_parquet(path: Path) -> ModuleType:
    """The module that reads and writes Parquet. Raises: UsageError that says how to get it."""
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise UsageError(
            f"{path}: Parquet needs pyarrow; install it with: pip install 'intervalcert[parquet]'"
        ) from None
    module: ModuleType = parquet
    return module


def open_rows(path: Path, classes: int | None, origin: Path | None = None) -> RowSource:
    """origin: the file that this one was unpacked from."""
    parquet = pyarrow_parquet(path)
    with _refusing_damage(path):
        file = parquet.ParquetFile(path, pre_buffer=False, buffer_size=2**20)
        schema, count = file.schema_arrow, file.metadata.num_rows
    logits = [name for name in schema.names if name != _EPS]
    if len(set(schema.names)) != len(schema.names):
        raise InputError(f"{path} has two columns of the same name")
    for field in schema:
        _check_type(field, path)
    if not logits or not count:
        raise InputError(f"{path} contains no rows")
    if classes is not None:
        check_logits(len(logits), classes, f"{path} (columns {_listed(logits)})")
    with _refusing_damage(path):
        _check_pages(path, file.metadata, size_of(origin or path))
    return RowSource(path, count, _chunks(file, path, logits, _EPS in schema.names))


def _check_pages(path: Path, metadata: Any, size: int) -> None:
    """Raises: InputError if the numbers, or the pages that are held at the same time, are too many for such a file."""
    check_growth(path, _LEAST_BYTES * metadata.num_rows * metadata.num_columns, size)
    with open_input(path) as file:
        for index in range(metadata.num_row_groups):
            group = metadata.row_group(index)
            columns = map(group.column, range(group.num_columns))
            taken = sum(max(page_bytes(file, column), default=0) for column in columns)
            check_growth(path, taken, size)
            if taken > MAX_PAGES_BYTES:
                raise InputError(
                    f"{path}: row group {index} has pages that take {taken // 2**20} MiB together, one of each column; "
                    f"at most {MAX_PAGES_BYTES // 2**20} MiB are read: write smaller pages or row groups"
                )


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(repr(shortened(name, 20)) for name in names[:4])
    return shown + (", …" if len(names) > 4 else "")


def _check_type(field: Any, path: Path) -> None:
    import pyarrow as pa

    if not (pa.types.is_floating(field.type) or pa.types.is_integer(field.type)):
        raise InputError(f"{path}: the column {shortened(field.name)!r} holds {field.type}, not floats or integers")


def _chunks(file: Any, path: Path, logits: Sequence[str], has_eps: bool) -> Iterator[NumberTable]:
    first = 0
    with _refusing_damage(path), file:
        for batch in file.iter_batches(max(1, CHUNK_CELLS // len(logits)), use_threads=False):
            columns = [_numbers(batch, name, path, first) for name in logits]
            epsilons = _epsilons(_numbers(batch, _EPS, path, first), path, first) if has_eps else None
            yield _rows(columns, epsilons, path, first)
            first += batch.num_rows


def _rows(columns: Sequence[npt.NDArray[Any]], epsilons: Epsilons | None, path: Path, first: int) -> NumberTable:
    count = len(columns[0])
    values = np.empty((len(columns), count))
    parts = [NumberTable.of_array(column[:, None], str(path), first) for column in columns]
    for row, part in zip(values, parts, strict=True):
        row[...] = part.values[:, 0]
    if all(part.decimal_places == 0 for part in parts):
        return NumberTable(values.T, 0, None, epsilons, str(path), first, count)

    def read_exact(row: int, wanted: Sequence[int]) -> RationalVector:
        return RationalVector.from_fractions([as_fraction(columns[column][row]) for column in wanted])

    # Where integers were rounded, inf and nan of other columns would not be told from numbers beyond the floats.
    for number, column in enumerate(columns):
        _check_finite(column, f"{path}: ", first, f"column {number}")
    return NumberTable(values.T, None, read_exact, epsilons, str(path), first, count)


def _epsilons(found: npt.NDArray[Any], path: Path, first: int) -> Epsilons:
    _check_finite(found, f"{path}: ", first, f"column {_EPS!r}")
    if found.dtype.kind == "f":
        return Epsilons.of_floats(found.astype(np.float64), first)
    return Epsilons.of([as_fraction(x) for x in found], first)


def _check_finite(column: npt.NDArray[Any], where: str, first: int, name: str) -> None:
    wrong = ~np.isfinite(column)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InputError(f"{where}{column[row]} in row {first + row}, {name}; every number must be finite")


def _numbers(batch: Any, name: str, path: Path, first: int) -> npt.NDArray[Any]:
    column = batch.column(name)
    if column.null_count:
        row = first + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise InputError(f"{path}: nothing in row {row}, column {shortened(name)!r}; every number must be there")
    found: npt.NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return found


@contextlib.contextmanager
def _refusing_damage(path: Path) -> Iterator[None]:
    """The errors of pyarrow as ours: they are of many kinds where a file is damaged."""
    import pyarrow as pa

    with open_input(path):  # its messages for what is missing or a folder are better
        pass
    try:
        yield
    except (pa.ArrowException, OSError, ValueError, OverflowError, KeyError) as error:
        reason = shortened(str(error).splitlines()[0], 200) if str(error) else type(error).__name__
        raise InputError(f"{path} is not a complete Parquet file: {reason}") from None
