"""numpy's files: ``.npy`` and ``.npz``. Pickles are never read, and sizes are checked before memory is taken."""

from __future__ import annotations

import re
import zipfile
import zlib
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from intervalcert.errors import InputError
from intervalcert.files import open_input
from intervalcert.network import exact_bias, exact_matrix
from intervalcert.rational import RationalMatrix

__all__ = ["open_array", "read_archive", "read_matrix"]

MAX_UNPACKED_BYTES = 2**31
"""What an archive may unpack to: 2 GiB, so that a small file cannot fill the memory."""

_MEMBER = re.compile(r"([Wb])(0|[1-9]\d{0,3})\.npy")


def read_matrix(path: Path) -> RationalMatrix:
    """A network of one layer: the array, outputs x inputs."""
    return exact_matrix(open_array(path), f"{path}: the weights")


def open_array(path: Path) -> npt.NDArray[Any]:
    """A ``.npy`` file, mapped into memory rather than read; a file shorter than it says is refused."""
    with open_input(path) as file:
        _check_header(file, str(path))
    try:
        array: npt.NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise InputError(f"{path} is not a complete .npy file: {error}") from None
    return array


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
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
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
    return weights, [exact_bias(arrays["b", i], i) if i in biased else None for i in layers]


def _read_member(member: IO[bytes], size: int, where: str) -> npt.NDArray[Any]:
    """One array of an archive, no larger than the archive says that it is."""
    dtype, shape, fortran, header = _check_header(member, where)
    expected = dtype.itemsize * int(np.prod(shape, dtype=object))
    if header + expected != size:
        raise InputError(f"{where} says that it holds {expected} bytes of numbers, but holds {size - header}")
    data = member.read(expected + 1)
    if len(data) != expected:
        raise InputError(f"{where} is incomplete")
    array = np.frombuffer(data, dtype=dtype)
    return array.reshape(shape, order="F" if fortran else "C")


def _check_header(file: IO[bytes], where: str) -> tuple[np.dtype[Any], tuple[int, ...], bool, int]:
    """The type, shape, order and header length that an array file declares; pickled objects are refused here."""
    try:
        major, _ = version = np.lib.format.read_magic(file)
        if major not in (1, 2):
            raise InputError(f"{where}: version {version} of the .npy format is not read (only 1 and 2)")
        read = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(file)
    except (ValueError, EOFError, SyntaxError, TypeError) as error:
        raise InputError(f"{where} is not a .npy array: {error}") from None
    if dtype.hasobject:
        raise InputError(f"{where} holds pickled Python objects, which are never read: save plain numbers instead")
    return dtype, shape, fortran, file.tell()
