"""ONNX files: bytes -> protobuf -> arrays. What the graph means is `onnx_graph`'s affair.

Nothing in the file is believed: declared sizes are checked against the bytes that are there before memory is taken, and
external data is read from plain files beside the model only.
"""

from __future__ import annotations

import math
import os
import stat
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from intervalcert.errors import InputError
from intervalcert.files import Stamp, open_input, stamp_of
from intervalcert.loaders.interface import Hints, Reading, needed
from intervalcert.loaders.onnx_graph import read_graph
from intervalcert.network import MAX_ENTRIES

__all__ = ["read"]

MAX_MODEL_BYTES = 2**31 - 1
"""What protobuf can hold; larger models have external data."""

_TYPES: dict[int, tuple[str, str, str]] = {
    # as TensorProto.DataType numbers them: numpy's type, the field for numbers that are not raw, and its own type
    1: ("<f4", "float_data", "<f4"),
    2: ("<u1", "int32_data", "<i4"),
    3: ("<i1", "int32_data", "<i4"),
    6: ("<i4", "int32_data", "<i4"),
    7: ("<i8", "int64_data", "<i8"),
    9: ("<u1", "int32_data", "<i4"),  # truth values
    10: ("<f2", "int32_data", "<i4"),  # the bits of each number
    11: ("<f8", "double_data", "<f8"),
}
_EXTERNAL = 1


def read(path: Path, hints: Hints) -> Reading:
    """The network that an ONNX file describes."""
    onnx = needed("onnx", "onnx")
    with open_input(path) as file:
        if os.fstat(file.fileno()).st_size > MAX_MODEL_BYTES:
            raise InputError(f"{path} is larger than an ONNX file can be")
        data = file.read(MAX_MODEL_BYTES + 1)
    model = onnx.ModelProto()
    try:
        model.ParseFromString(data)
    except Exception as error:  # the package has errors of its own, which are not to be imported without it
        if type(error).__name__ != "DecodeError":
            raise
        raise InputError(f"{path} is not a complete ONNX model: {error}") from None
    tensors = _Tensors(path)
    network = read_graph(model, tensors.array, hints)
    return Reading(network, tuple(tensors.beside.items()))


class _Tensors:
    """Reads the arrays of one model, and remembers from which files beside it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.beside: dict[Path, Stamp] = {}

    def array(self, tensor: Any, where: str) -> npt.NDArray[Any]:
        """The numbers of a TensorProto. Raises: InputError unless they are just as many as it declares."""
        shape = tuple(tensor.dims)
        if tensor.data_type not in _TYPES:
            raise InputError(
                f"{where}: numbers of type {tensor.data_type} (float16, float32, float64 and integers are read)"
            )
        kind, field, stored = _TYPES[tensor.data_type]
        dtype = np.dtype(kind)
        if min(shape, default=1) < 0 or math.prod(shape) > MAX_ENTRIES:
            raise InputError(
                f"{where}: an array of shape {list(shape)}; at most {MAX_ENTRIES} numbers are held as exact ones"
            )
        if tensor.HasField("segment"):
            raise InputError(f"{where}: it is stored in segments, which are not read")
        count = math.prod(shape)
        if tensor.data_location == _EXTERNAL:
            data = self._external(tensor, count * dtype.itemsize, where)
        elif tensor.HasField("raw_data"):
            data = tensor.raw_data
        else:
            listed = getattr(tensor, field)
            if len(listed) != count:
                raise InputError(f"{where} says that it holds {count} numbers, but holds {len(listed)}")
            plain = np.array(listed, dtype=stored)
            if kind == "<f2":
                return plain.astype("<u2").view(dtype).reshape(shape)
            return plain.astype(dtype).reshape(shape)
        if len(data) != count * dtype.itemsize:
            raise InputError(
                f"{where} says that it holds {count * dtype.itemsize} bytes of numbers, but holds {len(data)}"
            )
        return np.frombuffer(data, dtype).reshape(shape)

    def _external(self, tensor: Any, size: int, where: str) -> bytes:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        name = entries.get("location", "")
        if not name or name in {".", ".."} or any(sign in name for sign in "/\\:\0"):
            raise InputError(f"{where}: external data at {name[:200]!r}; only a plain file beside the model is read")
        offset, length = (
            _natural(entries.get(key, default), where) for key, default in (("offset", "0"), ("length", str(size)))
        )
        if length != size:
            raise InputError(f"{where}: {length} bytes of external data, where {size} are declared")
        path = self._path.parent / name
        with _open_plain(path, where) as file:
            self.beside.setdefault(path, stamp_of(path))
            if offset + size > os.fstat(file.fileno()).st_size:
                raise InputError(f"{where}: {path} ends before the external data does (is it truncated?)")
            file.seek(offset)
            return file.read(size)


def _natural(text: str, where: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > 18:
        raise InputError(f"{where}: {text[:40]!r} is no place in a file of external data")
    return int(text)


def _open_plain(path: Path, where: str) -> IO[bytes]:
    """A regular file that is no link of either kind: a model must not make us read something else."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        if path.is_symlink():
            raise InputError(
                f"{where}: {path} is a link; external data is read from a plain file beside the model"
            ) from None
        raise InputError(f"{where}: the external data {path} cannot be read: {error.strerror or error}") from None
    file = os.fdopen(handle, "rb")
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1 or path.is_symlink():
        file.close()
        raise InputError(f"{where}: {path} is no plain file, or a link to one: put a copy of the data beside the model")
    return file
