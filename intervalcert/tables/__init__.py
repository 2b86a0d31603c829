"""Tables of outputs, read and written piece by piece: memory does not grow with the number of rows.

A reader gives `Rows`, a writer takes `Verdicts`. The format is told by the ending: ``.npy``, ``.parquet``, else text.
"""

from __future__ import annotations

from pathlib import Path

from intervalcert.errors import UsageError
from intervalcert.tables import numpy_rows, parquet_rows, text_rows
from intervalcert.tables.source import LabelSource, RowSource

__all__ = ["LabelSource", "RowSource", "open_labels", "open_rows"]


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
    if path.suffix.lower() == ".npy":
        return numpy_rows.open_rows(path, classes, bfloat16=bfloat16, shape=shape)
    if bfloat16:
        raise UsageError(f"{path}: --dtype bfloat16 is for .npy files, which cannot say it themselves")
    if path.suffix.lower() == ".parquet":
        return parquet_rows.open_rows(path, classes)
    return text_rows.open_rows(path, classes, on_header)


def open_labels(path: str | Path, classes: int, on_header: text_rows.OnHeader = lambda *_: None) -> LabelSource:
    """The true classes: a ``.npy`` vector, or one per line of text, under a header or without one."""
    path = Path(path)
    if path.suffix.lower() == ".npy":
        return LabelSource(path, numpy_rows.labels(path), classes)
    return LabelSource(path, text_rows.labels(path, on_header), classes)
