"""Archives of plain arrays (``.npz``): the same arrays give the same bytes, and no pickle is ever read."""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from intervalcert.errors import InputError
from intervalcert.io.files import check_growth, size_of
from intervalcert.io.models.archives import open_archive
from intervalcert.io.models.numpy_files import ArrayHeader, array_header, check_size

__all__ = ["Arrays", "read_arrays", "write_arrays"]

Arrays = dict[str, npt.NDArray[Any]]

_DATE = (1980, 1, 1, 0, 0, 0)

_LEAST_BYTES = (4, 32)
"""As how many a number counts at least, and one that is a text, however few it takes in the file: it will take more."""


def write_arrays(file: IO[bytes], arrays: Mapping[str, npt.NDArray[Any]], *, compressed: bool) -> None:
    """Writes them under their names."""
    compression = zipfile.ZIP_DEFLATED if compressed else zipfile.ZIP_STORED
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, array in arrays.items():
            made = io.BytesIO()
            np.lib.format.write_array(made, array, version=(1, 0), allow_pickle=False)
            info = zipfile.ZipInfo(f"{name}.npy", _DATE)
            info.compress_type, info.external_attr = compression, 0o644 << 16
            archive.writestr(info, made.getvalue())


def read_arrays(
    path: Path, refused: Callable[[str], str | None], *, texts: bool = False, origin: Path | None = None
) -> Arrays:
    """All arrays of an archive.

    refused: says why a member of that name is not read; None if it is. texts: arrays of bytes are read, too.
    origin: the file that the archive was itself unpacked from.
    Raises: InputError for what is damaged, refused, or larger than such a file can need.
    """
    arrays: Arrays = {}
    taken, size = 0, size_of(origin or path)
    with open_archive(path, ".npz", origin) as archive:
        for info in archive.infolist():
            why = refused(info.filename)
            if why is not None:
                raise InputError(f"{path} contains {info.filename!r}: {why}")
            with archive.open(info) as member:
                where = f"{path}: {info.filename}"
                header = array_header(member, where, texts=texts)
                check_size(header, info.file_size, where)
                taken += math.prod(header.shape) * max(header.dtype.itemsize, _LEAST_BYTES[header.dtype.kind == "S"])
                check_growth(path, taken, size)
                arrays[info.filename.removesuffix(".npy")] = _read_member(member, header, where)
    return arrays


def _read_member(member: IO[bytes], header: ArrayHeader, where: str) -> npt.NDArray[Any]:
    """One array of an archive, no larger than the archive says that it is."""
    data = member.read(header.bytes + 1)
    if len(data) != header.bytes:
        raise InputError(f"{where} is incomplete")
    return np.frombuffer(data, dtype=header.dtype).reshape(header.shape, order=header.order)
