"""safetensors: a JSON header with names, types, shapes and places, then the numbers.

The reference implementation checks that the places leave no gap, do not overlap and fit the shapes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from intervalcert.errors import InputError, shortened
from intervalcert.io.files import open_input, parse_json
from intervalcert.io.models.archives import MAX_UNPACKED_BYTES
from intervalcert.io.models.interface import Hints, Reading, needed
from intervalcert.io.models.named import Stored, from_bfloat16, network_of

__all__ = ["read"]

MAX_HEADER = 2**24
"""Bytes of the JSON before the numbers: hundreds of thousands of tensors."""

_TYPES = {"F16": ("float16", "<f2"), "F32": ("float32", "<f4"), "F64": ("float64", "<f8"), "BF16": ("bfloat16", "<u2")}
_FIELDS = {"dtype", "shape", "data_offsets"}


def read(path: Path, hints: Hints) -> Reading:
    """The chain of the linear layers in the file; see `named` for what is understood."""
    package = needed("safetensors", "safetensors")
    data = _bytes_of(path)
    try:
        found = package.deserialize(data)
    except Exception as error:  # SafetensorError as a rule; the package promises nothing
        raise InputError(f"{path} is not a complete safetensors file: {shortened(str(error), 200)}") from None
    _check_header(data, path)
    return Reading(network_of({name: _stored(entry) for name, entry in found}, hints))


def _bytes_of(path: Path) -> bytes:
    """The whole file, if its size and that of its header are within the limits."""
    with open_input(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > MAX_UNPACKED_BYTES:
            raise InputError(f"{path} is larger than {MAX_UNPACKED_BYTES // 2**20} MiB")
        head = file.read(8)
        length = int.from_bytes(head, "little")
        if len(head) < 8 or length > min(MAX_HEADER, size - 8):
            raise InputError(f"{path} is not a complete safetensors file: its header would take {length} bytes")
        return head + file.read(MAX_UNPACKED_BYTES)


def _check_header(data: bytes, path: Path) -> None:
    """Refuses a name that occurs twice, of which the package reads one, and what it does not look at."""
    try:
        header = parse_json(data[8 : 8 + int.from_bytes(data[:8], "little")])
        for name, entry in header.items():
            if name != "__metadata__" and set(entry) != _FIELDS:
                raise InputError(f"{path}: {shortened(name, 200)!r} has other fields than {', '.join(sorted(_FIELDS))}")
    except (ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{path} is not a complete safetensors file: its header is not understood ({error})") from None


def _stored(entry: dict[str, Any]) -> Stored:
    kind, code = _TYPES.get(entry["dtype"], (str(entry["dtype"]), ""))
    shape = tuple(entry["shape"])
    return Stored(kind, shape, _reader(entry["data"], code, shape))


def _reader(data: bytes, code: str, shape: Sequence[int]) -> Callable[[], npt.NDArray[Any]]:
    def array() -> npt.NDArray[Any]:
        numbers = np.frombuffer(data, code).reshape(shape)
        return from_bfloat16(numbers) if code == "<u2" else numbers

    return array
