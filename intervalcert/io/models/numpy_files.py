"""numpy's arrays in files. Pickles are never read, and sizes are checked before memory is taken."""

from __future__ import annotations

import math
import os
import tokenize
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import numpy.typing as npt

from intervalcert.errors import InputError
from intervalcert.io.files import open_input
from intervalcert.io.models.interface import Hints, Reading
from intervalcert.io.models.text import read_biases
from intervalcert.model.arrays import exact_matrix
from intervalcert.model.network import Network

__all__ = ["MAX_TEXT", "ArrayHeader", "array_header", "check_size", "map_array", "open_array", "read", "read_header"]

MAX_TEXT = 2**14
"""Bytes of one number that is written as text."""

_HEADER_FAULTS = (
    *(ValueError, EOFError, SyntaxError, TypeError, KeyError, tokenize.TokenError),
    *(RecursionError, OverflowError, MemoryError),
)
"""What numpy's reader of headers, which are Python literals, raises on a damaged one."""


def read(path: Path, hints: Hints) -> Reading:
    """A network of one layer: the array, outputs x inputs."""
    weights = exact_matrix(open_array(path), f"{path}: the weights")
    biases = None if hints.biases is None else read_biases(hints.biases)
    return Reading(Network.of([weights], biases, between=hints.between))


def open_array(path: Path) -> npt.NDArray[Any]:
    """A ``.npy`` file, mapped into memory rather than read; it must hold exactly what it says."""
    return map_array(path, read_header(path))


def read_header(path: Path, *, bfloat16: bool | None = None, flat: bool = True) -> ArrayHeader:
    """What a ``.npy`` file declares, and holds. With `bfloat16`, it must hold numbers of two bytes without a type.

    That is how numpy writes them; with False they are refused with the advice to say so.
    flat: it must be a vector or a matrix; else it is for the caller to look at the shape.
    """
    with open_input(path) as file:
        header = array_header(file, str(path), bfloat16=bfloat16, flat=flat)
        check_size(header, os.fstat(file.fileno()).st_size, str(path))
        return header


def map_array(path: Path, header: ArrayHeader) -> npt.NDArray[Any]:
    """The numbers after the header, mapped: memory is taken by the parts that are looked at, while the map is alive."""
    with open_input(path) as file:
        try:
            return np.memmap(file, header.dtype, "r", header.length, header.shape, header.order)
        except ValueError:
            raise InputError(f"{path} was changed while it was read: try again when nobody writes to it") from None


@dataclass(frozen=True)
class ArrayHeader:
    """What an array file declares: plain numbers, as a rule in a vector or a matrix."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    order: Literal["C", "F"]
    length: int

    @property
    def bytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.shape)


def array_header(
    file: IO[bytes], where: str, *, bfloat16: bool | None = None, texts: bool = False, flat: bool = True
) -> ArrayHeader:
    """Reads what comes before the numbers; whatever is not plain numbers is refused here, pickled objects first.

    texts: also numbers or names that are written as bytes. flat: only vectors and matrices.
    """
    try:
        version = np.lib.format.read_magic(file)
        if version not in {(1, 0), (2, 0)}:
            raise InputError(f"{where}: version {version} of the .npy format is not read (only 1.0 and 2.0)")
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a header of Python 2, say
            shape, fortran, dtype = read(file)
    except (*_HEADER_FAULTS, UserWarning):
        raise InputError(f"{where} is not a .npy array: its header cannot be read") from None
    if dtype.hasobject:
        raise InputError(f"{where} holds pickled Python objects, which are never read: save plain numbers instead")
    two_bytes = dtype == np.dtype("V2") and dtype.names is None
    if bfloat16 and not two_bytes:
        raise InputError(f"{where}: numbers of type {dtype}, not bfloat16 (which numpy writes as V2)")
    if two_bytes and bfloat16 is False:
        raise InputError(f"{where}: numbers of two bytes without a type: if they are bfloat16, say --dtype bfloat16")
    plain = dtype.subdtype is None and (dtype.kind == "S" if texts and dtype.kind == "S" else dtype.kind in "fiu")
    if not bfloat16 and (not plain or dtype.itemsize > (MAX_TEXT if dtype.kind == "S" else 8)):
        raise InputError(f"{where}: numbers of type {dtype} (float16, float32, float64 or integers are read)")
    if len(shape) not in range(1, 3 if flat else 9) or not all(type(side) is int and side > 0 for side in shape):
        shown = shape if len(shape) <= 4 else f"of {len(shape)} dimensions"
        raise InputError(f"{where}: an array of shape {shown} where a non-empty vector or matrix is expected")
    return ArrayHeader(dtype, shape, "F" if fortran else "C", file.tell())


def check_size(header: ArrayHeader, size: int, where: str) -> None:
    if header.length + header.bytes != size:
        raise InputError(
            f"{where} says that it holds {header.bytes} bytes of numbers, but holds {size - header.length} "
            "(is it truncated?)"
        )
