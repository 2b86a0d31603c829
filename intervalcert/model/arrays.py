"""Arrays and lists of weights, as exact matrices."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from intervalcert.errors import InputError
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.parsing import as_row, as_rows, plain_array

__all__ = ["exact_bias", "exact_matrix"]


MAX_ENTRIES = 2**26
"""Weights of one layer. As exact integers they take some 40 bytes each."""


def exact_matrix(values: npt.ArrayLike, what: str) -> RationalMatrix:
    """A two-dimensional array of finite floats (16, 32, 64 bits) or integers, or a list of rows, as exact rationals."""
    array = plain_array(values)
    if array is None:
        return RationalMatrix.from_fractions(as_rows(values, what))
    if array.dtype.kind not in "fiu" or array.dtype.itemsize > 8:
        raise InputError(f"{what}: numbers of type {array.dtype} (float16, float32, float64 or integers are read)")
    if array.ndim != 2 or 0 in array.shape:
        raise InputError(f"{what}: an array of shape {array.shape} where a non-empty matrix is expected")
    if array.size > MAX_ENTRIES:
        raise InputError(f"{what}: {array.size} numbers; at most {MAX_ENTRIES} are held as exact ones")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        row, column = np.argwhere(~np.isfinite(array))[0]
        raise InputError(f"{what}: {array[row, column]} in row {row}, column {column}; every number must be finite")
    return RationalMatrix.from_floats(array)


def exact_bias(values: npt.ArrayLike, what: str) -> RationalMatrix:
    """A vector of biases as one exact column."""
    array = plain_array(values)
    if array is None:
        return RationalMatrix.from_fractions([as_row(values, what)]).transposed()
    if array.ndim != 1:
        raise InputError(f"{what}: an array of shape {array.shape} where a vector is expected")
    return exact_matrix(array[:, None], what)
