"""``.npy`` tables. One window of the file is mapped at a time: pages that were read stay resident with their map."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from intervalcert.errors import InputError
from intervalcert.io.models.numpy_files import ArrayHeader, map_array, read_header
from intervalcert.io.tables.source import CHUNK_CELLS, RowSource
from intervalcert.proof.decision import check_logits
from intervalcert.verify.number_table import NumberTable, bfloat16_values, input_sides

__all__ = ["labels", "open_rows"]


def open_rows(
    path: Path, classes: int | None, *, bfloat16: bool = False, shape: tuple[int, ...] | None = None
) -> RowSource:
    header = read_header(path, bfloat16=bfloat16, flat=shape is None)
    is_column = len(header.shape) == 1 and classes == 1  # of a single output
    if shape is not None:
        count, _ = input_sides(header.shape, shape, str(path))
        header = replace(header, shape=(1, *header.shape)) if count == 1 else header
    elif not is_column:
        if classes is not None:
            check_logits(header.shape[-1], classes, str(path))
        if len(header.shape) != 2:
            raise InputError(f"{path}: an array of shape {header.shape} where a non-empty matrix is expected")
    return RowSource(path, header.shape[0], _rows(path, header, bfloat16))


def _rows(path: Path, header: ArrayHeader, bfloat16: bool) -> Iterator[NumberTable]:
    """Of an array of any shape: what is after the first side is one row, the last index running fastest."""
    for start, window in _windows(path, header, max(1, CHUNK_CELLS // math.prod(header.shape[1:]))):
        values = (bfloat16_values(window) if bfloat16 else window).reshape(len(window), -1)
        yield NumberTable.of_array(values, str(path), start, len(values))


def _windows(path: Path, header: ArrayHeader, step: int) -> Iterator[tuple[int, npt.NDArray[Any]]]:
    """Pieces of the array, copied, with their places."""
    for start in range(0, header.shape[0], step):
        yield start, np.array(map_array(path, header)[start : start + step])


def labels(path: Path) -> Iterator[npt.NDArray[Any]]:
    header = read_header(path)
    if len(header.shape) != 1 or header.dtype.kind not in "iu":
        raise InputError(f"{path}: labels are a vector of integers, not {header.dtype} of shape {header.shape}")
    return (window for _, window in _windows(path, header, CHUNK_CELLS))
