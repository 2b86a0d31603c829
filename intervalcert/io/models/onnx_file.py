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

from intervalcert.errors import InputError, shortened
from intervalcert.io.files import Stamp, open_input, stamp_of
from intervalcert.io.models.interface import Hints, Reading, needed
from intervalcert.io.models.onnx_graph import read_graph
from intervalcert.io.models.onnx_node import check_texts
from intervalcert.io.models.onnx_values import check_rank
from intervalcert.model.arrays import MAX_ENTRIES

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
    size = model.ByteSize()
    model.DiscardUnknownFields()
    if model.ByteSize() != size:
        raise InputError(f"{path} has fields that ONNX {onnx.__version__} does not know (is it damaged, or newer?)")
    tensors = _Tensors(hints.origin or path)
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
        dtype, count = np.dtype(kind), math.prod(shape)
        if min(shape, default=1) < 0 or max(shape, default=1) > MAX_ENTRIES or count > MAX_ENTRIES:
            raise InputError(
                f"{where}: an array of shape {list(shape[:20])}; at most {MAX_ENTRIES} numbers are held as exact ones"
            )
        check_rank(shape)
        if tensor.HasField("segment"):
            raise InputError(f"{where}: it is stored in segments, which are not read")
        external, listed = tensor.data_location == _EXTERNAL, getattr(tensor, field)
        if external + tensor.HasField("raw_data") + bool(listed) > 1:
            raise InputError(f"{where}: its numbers are stored twice, in different ways")
        if external:
            data = self._external(tensor, count * dtype.itemsize, where)
        elif tensor.HasField("raw_data"):
            data = tensor.raw_data
        else:
            return _listed(listed, stored, dtype, where, count).reshape(shape)
        if len(data) != count * dtype.itemsize:
            raise InputError(
                f"{where} says that it holds {count * dtype.itemsize} bytes of numbers, but holds {len(data)}"
            )
        return np.frombuffer(data, dtype).reshape(shape)

    def _external(self, tensor: Any, size: int, where: str) -> bytes:
        entries = {entry.key: entry.value for entry in tensor.external_data}
        check_texts(*entries.keys(), *entries.values())
        if len(entries) < len(tensor.external_data):
            raise InputError(f"{where}: two places of external data are given")
        name = entries.get("location", "")
        if not name or name in {".", ".."} or any(sign in name for sign in "/\\:\0"):
            raise InputError(
                f"{where}: external data at {shortened(name, 200)!r}; only a plain file beside the model is read"
            )
        offset, length = (
            _natural(entries.get(key, default), where) for key, default in (("offset", "0"), ("length", str(size)))
        )
        if length != size:
            raise InputError(f"{where}: {length} bytes of external data, where {size} are declared")
        path = self._path.parent / name
        with _open_plain(path, where) as file:
            found = os.fstat(file.fileno())
            if self.beside.setdefault(path, stamp_of(path)) != (found.st_ino, found.st_size, found.st_mtime_ns):
                raise InputError(f"{where}: {path} was changed while it was read: try again when nobody writes to it")
            if offset + size > found.st_size:
                raise InputError(f"{where}: {path} ends before the external data does (is it truncated?)")
            file.seek(offset)
            return file.read(size)


def _listed(numbers: Any, stored: str, dtype: np.dtype[Any], where: str, count: int) -> npt.NDArray[Any]:
    """One by one, in a field of another type."""
    if len(numbers) != count:
        raise InputError(f"{where} says that it holds {count} numbers, but holds {len(numbers)}")
    plain = np.array(numbers, dtype=stored)
    made = plain.astype("<u2" if dtype == "<f2" else dtype)
    if not np.array_equal(made, plain, equal_nan=made.dtype.kind == "f"):
        raise InputError(f"{where}: a number that is none of its type")
    return made.view(dtype)


def _natural(text: str, where: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > 18:
        raise InputError(f"{where}: {shortened(text)!r} is no place in a file of external data")
    return int(text)


def _open_plain(path: Path, where: str) -> IO[bytes]:
    """A regular file that is no link of either kind: a model must not make us read something else."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        if os.path.islink(path):  # noqa: PTH114 - pathlib fails on names that are too long
            raise InputError(
                f"{where}: {path} is a link; external data is read from a plain file beside the model"
            ) from None
        raise InputError(f"{where}: the external data {path} cannot be read: {error.strerror or error}") from None
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1 or path.is_symlink():
        os.close(handle)
        raise InputError(f"{where}: {path} is no plain file, or a link to one: put a copy of the data beside the model")
    return os.fdopen(handle, "rb")
