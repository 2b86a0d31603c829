"""Model files -> `Network`. One reader per format, chosen by what the file contains and checked against its ending."""

from __future__ import annotations

import os
from pathlib import Path

from intervalcert.errors import InputError
from intervalcert.files import open_input, sha256_of
from intervalcert.loaders import numpy_files, text
from intervalcert.network import Network, Source

__all__ = ["load_model"]

_ENDINGS = {".npy": "npy", ".npz": "npz", ".txt": "text"}
_NAMES = {"npy": "a numpy array (.npy)", "npz": "a numpy archive (.npz)", "text": "text"}


def load_model(path: str | Path, biases: str | Path | None = None, *, activation: str = "relu") -> Network:
    """Reads a model: text (inputs x outputs), ``.npz`` with W0, W1, … (and b0, b1, …), or ``.npy`` (one matrix).

    None of these formats says which activation stands between the layers: `activation` does.
    Raises: InputError, with the place and the reason, for everything that is not exactly understood.
    """
    path = Path(path)
    files = [path, Path(biases)] if biases is not None else [path]
    before = [_stamp(file) for file in files]
    kind = _kind_of(path)
    if kind == "text":
        weights, own_biases = text.read_network(path), None
    elif kind == "npy":
        weights, own_biases = [numpy_files.read_matrix(path)], None
    else:
        weights, own_biases = numpy_files.read_archive(path)
    if biases is not None:
        if own_biases is not None:
            raise InputError(f"{path} has biases of its own, so {biases} would replace them: give one or the other")
        own_biases = text.read_biases(files[1])
    # Hashed after they were read: a file that is too large to be read has been refused by now.
    sources = [Source(file.name, sha256_of(file)) for file in files]
    if [_stamp(file) for file in files] != before:
        raise InputError(f"{path} was changed while it was read: try again when nobody writes to it")
    try:
        return Network.of(weights, own_biases, between=activation, sources=sources)
    except InputError as error:
        raise InputError(f"{' with '.join(map(str, files))}: {error}") from None


def _stamp(path: Path) -> tuple[int, ...]:
    """What changes when somebody writes to a file."""
    with open_input(path) as file:
        found = os.fstat(file.fileno())
        return found.st_ino, found.st_size, found.st_mtime_ns


def _kind_of(path: Path) -> str:
    with open_input(path) as file:
        head = file.read(6)
    kind = "npz" if head.startswith(b"PK") else "npy" if head == b"\x93NUMPY" else "text"
    expected = _ENDINGS.get(path.suffix.lower(), kind)
    if kind != expected:
        raise InputError(f"{path} is not {_NAMES[expected]}, as its ending says: it looks like {_NAMES[kind]}")
    return kind
