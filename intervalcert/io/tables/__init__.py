"""Tables of outputs, read and written piece by piece: memory does not grow with the number of rows.

A reader gives `NumberTable`, a writer takes `Verdicts`. The format is told by the ending: ``.npy``, ``.parquet``, else
text. Any of them may be compressed, as ``logits.csv.gz``: it is unpacked for the while.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from intervalcert.errors import UsageError
from intervalcert.io.files import unpacked
from intervalcert.io.tables import numpy_rows, parquet_rows, text_rows
from intervalcert.io.tables.source import LabelSource, RowSource

__all__ = ["LabelSource", "RowSource", "open_labels", "open_rows"]

T = TypeVar("T")


def open_rows(
    path: str | Path,
    classes: int | None = None,
    *,
    bfloat16: bool = False,
    on_header: text_rows.OnHeader = lambda *_: None,
    shape: tuple[int, ...] | None = None,
) -> RowSource:
    """The outputs of a file. With `classes`, an output of another length is refused with its place.

    shape: these are inputs, each of that shape or flat; only a ``.npy`` file has shapes.

    bfloat16: take the two-byte numbers of a ``.npy`` file, which have no type there, for bfloat16.
    on_header: called with the first line of a text file and True if it holds names, False if it only looks like that.
    """
    path = Path(path)
    with ExitStack() as stack:
        inner = stack.enter_context(unpacked(path))
        if inner.suffix.lower() == ".npy":
            source = numpy_rows.open_rows(inner, classes, bfloat16=bfloat16, shape=shape)
        elif bfloat16:
            raise UsageError(f"{path}: --dtype bfloat16 is for .npy files, which cannot say it themselves")
        elif inner.suffix.lower() == ".parquet":
            source = parquet_rows.open_rows(inner, classes, path)
        else:
            source = text_rows.open_rows(inner, classes, on_header)
        chunks = _lasting(stack.pop_all(), source.chunks)
    return RowSource(path, source.size, (replace(rows, what=str(path)) for rows in chunks))


def open_labels(path: str | Path, classes: int, on_header: text_rows.OnHeader = lambda *_: None) -> LabelSource:
    """The true classes: a ``.npy`` vector, or one per line of text, under a header or without one."""
    path = Path(path)
    with ExitStack() as stack:
        inner = stack.enter_context(unpacked(path))
        is_array = inner.suffix.lower() == ".npy"
        found = numpy_rows.labels(inner) if is_array else text_rows.labels(inner, on_header)
        chunks = _lasting(stack.pop_all(), found)
    return LabelSource(path, chunks, classes)


def _lasting(stack: ExitStack, items: Iterator[T]) -> Iterator[T]:
    """The items; what is open for them is closed after the last one, or when nobody wants more."""
    with stack:
        yield from items
