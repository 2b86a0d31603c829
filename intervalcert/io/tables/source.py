"""What every reader of a table gives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from intervalcert.errors import InputError
from intervalcert.verify.number_table import NumberTable

__all__ = ["CHUNK_CELLS", "LabelSource", "RowSource"]

CHUNK_CELLS = 2**20
"""Logits that are read at once."""


@dataclass(frozen=True)
class RowSource:
    """The rows of one file, to be read once. size: what `NumberTable.work` adds up to; None if the file cannot tell."""

    path: Path
    size: int | None
    chunks: Iterator[NumberTable]


class LabelSource:
    """The labels of one file, taken as many at a time as there are outputs."""

    def __init__(self, path: Path, chunks: Iterator[npt.NDArray[Any]], classes: int) -> None:
        self._path, self._chunks, self._classes = path, chunks, classes
        self._waiting: npt.NDArray[Any] = np.zeros(0, dtype=np.int64)
        self._read = 0

    def take(self, count: int) -> npt.NDArray[Any]:
        """The next labels; fewer than asked for only at the end. Raises: InputError for one that is no class."""
        while len(self._waiting) < count and (chunk := next(self._chunks, None)) is not None:
            wrong = (chunk < 0) | (chunk >= self._classes)
            if wrong.any():
                place = int(np.argmax(wrong))
                raise InputError(
                    f"{self._path}: label {self._read + place} is {chunk[place]}, "
                    f"but classes go from 0 to {self._classes - 1}"
                )
            self._read += len(chunk)
            self._waiting = np.concatenate([self._waiting, chunk.astype(np.int64)])
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        return taken

    def check_count(self, outputs: int) -> None:
        """Raises: InputError unless there were as many labels as outputs. To be called after the last output."""
        labels = self._read + sum(len(chunk) for chunk in self._chunks)
        if labels != outputs:
            raise InputError(f"{self._path} has {labels} labels, but there are {outputs} outputs")
