"""numpy's files: ``.npy`` and ``.npz``. Pickles are never read, and sizes are checked before memory is taken."""

from __future__ import annotations

import lzma
import math
import os
import re
import tokenize
import warnings
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np
import numpy.typing as npt

from intervalcert.errors import InputError
from intervalcert.files import open_input
from intervalcert.network import exact_bias, exact_matrix
from intervalcert.rational import RationalMatrix

__all__ = ["ArrayHeader", "map_array", "open_array", "read_archive", "read_header", "read_matrix"]

MAX_UNPACKED_BYTES = 2**31
"""What an archive may unpack to: 2 GiB, so that a small file cannot fill the memory."""

_HEADER_FAULTS = (
    *(ValueError, EOFError, SyntaxError, TypeError, KeyError, tokenize.TokenError),
    *(RecursionError, OverflowError, MemoryError),
)
"""What numpy's reader of headers, which are Python literals, raises on a damaged one."""

_ARCHIVE_FAULTS = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    UnicodeError,
    NotImplementedError,
    RuntimeError,
)

_MEMBER = re.compile(r"([Wb])(0|[1-9]\d{0,3})\.npy")


def read_matrix(path: Path) -> RationalMatrix:
    """A network of one layer: the array, outputs x inputs."""
    return exact_matrix(open_array(path), f"{path}: the weights")


def open_array(path: Path) -> npt.NDArray[Any]:
    """A ``.npy`` file, mapped into memory rather than read; it must hold exactly what it says."""
    return map_array(path, read_header(path))


def read_header(path: Path, *, bfloat16: bool | None = None) -> ArrayHeader:
    """What a ``.npy`` file declares, and holds. With `bfloat16`, it must hold numbers of two bytes without a type.

    That is how numpy writes them; with False they are refused with the advice to say so.
    """
    with open_input(path) as file:
        header = _header(file, str(path), bfloat16=bfloat16)
        _check_size(header, os.fstat(file.fileno()).st_size, str(path))
        return header


def map_array(path: Path, header: ArrayHeader) -> npt.NDArray[Any]:
    """The numbers after the header, mapped: memory is taken by the parts that are looked at, while the map is alive."""
    with open_input(path) as file:
        try:
            return np.memmap(file, header.dtype, "r", header.length, header.shape, header.order)
        except ValueError:
            raise InputError(f"{path} was changed while it was read: try again when nobody writes to it") from None


def read_archive(path: Path) -> tuple[list[RationalMatrix], list[RationalMatrix | None] | None]:
    """The arrays W0, W1, … (outputs x inputs) and, if there are any, b0, b1, …; other names are refused."""
    arrays: dict[tuple[str, int], npt.NDArray[Any]] = {}
    budget = MAX_UNPACKED_BYTES
    with open_input(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                for info in archive.infolist():
                    match = _MEMBER.fullmatch(info.filename)
                    if match is None:
                        raise InputError(
                            f"{path} contains {info.filename!r}: only W0, W1, … and b0, b1, … are understood"
                        )
                    key = match[1], int(match[2])
                    if key in arrays:
                        raise InputError(f"{path} contains {info.filename!r} twice")
                    budget -= info.file_size
                    if budget < 0:
                        raise InputError(f"{path} unpacks to more than {MAX_UNPACKED_BYTES // 2**20} MiB")
                    with archive.open(info) as member:
                        arrays[key] = _read_member(member, info.file_size, f"{path}: {info.filename}")
        except _ARCHIVE_FAULTS as error:
            raise InputError(f"{path} is not a complete .npz file: {error}") from None
    return _in_order(arrays, path)


def _in_order(
    arrays: dict[tuple[str, int], npt.NDArray[Any]], path: Path
) -> tuple[list[RationalMatrix], list[RationalMatrix | None] | None]:
    layers = sorted(index for kind, index in arrays if kind == "W")
    if layers != list(range(len(layers))) or not layers:
        have = ", ".join(f"W{i}" for i in layers) or "no weights"
        raise InputError(f"{path} must contain W0, W1, … without gaps, but has {have}")
    weights = [exact_matrix(arrays["W", i], f"{path}: W{i}") for i in layers]
    biased = sorted(index for kind, index in arrays if kind == "b")
    if not biased:
        return weights, None
    if biased[-1] >= len(layers):
        raise InputError(f"{path} has a bias b{biased[-1]}, but no layer W{biased[-1]}")
    return weights, [exact_bias(arrays["b", i], f"{path}: the bias b{i}") if i in biased else None for i in layers]


def _read_member(member: IO[bytes], size: int, where: str) -> npt.NDArray[Any]:
    """One array of an archive, no larger than the archive says that it is."""
    header = _header(member, where)
    _check_size(header, size, where)
    data = member.read(header.bytes + 1)
    if len(data) != header.bytes:
        raise InputError(f"{where} is incomplete")
    return np.frombuffer(data, dtype=header.dtype).reshape(header.shape, order=header.order)


@dataclass(frozen=True)
class ArrayHeader:
    """What an array file declares: plain numbers in a vector or a matrix."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    order: Literal["C", "F"]
    length: int

    @property
    def bytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.shape)


def _header(file: IO[bytes], where: str, *, bfloat16: bool | None = None) -> ArrayHeader:
    """Reads what comes before the numbers; whatever is not plain numbers is refused here, pickled objects first."""
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
    if not bfloat16 and (dtype.kind not in "fiu" or dtype.itemsize > 8 or dtype.subdtype is not None):
        raise InputError(f"{where}: numbers of type {dtype} (float16, float32, float64 or integers are read)")
    if len(shape) not in {1, 2} or not all(type(side) is int and side > 0 for side in shape):
        shown = shape if len(shape) <= 4 else f"of {len(shape)} dimensions"
        raise InputError(f"{where}: an array of shape {shown} where a non-empty vector or matrix is expected")
    return ArrayHeader(dtype, shape, "F" if fortran else "C", file.tell())


def _check_size(header: ArrayHeader, size: int, where: str) -> None:
    if header.length + header.bytes != size:
        raise InputError(
            f"{where} says that it holds {header.bytes} bytes of numbers, but holds {size - header.length} "
            "(is it truncated?)"
        )
