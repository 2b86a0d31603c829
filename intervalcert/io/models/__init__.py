"""Model files -> `Network`. One reader per format, chosen by what the file contains and checked against its ending.

A reader is a function `read(path, hints)` in a module of its own (`interface`); the table below names them all. What
belongs to a framework is imported when a file needs it.
"""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from intervalcert.errors import InputError, SoundnessError, UsageError
from intervalcert.io.files import open_input, sha256_of, size_of, stamp_of, unpacked
from intervalcert.io.models.interface import Hints, Reader
from intervalcert.io.models.tensors import FREE_NUMBERS
from intervalcert.model.linear_maps import ChannelWise
from intervalcert.model.network import Network, Source, check_eps_space
from intervalcert.numbers.parsing import is_listed

if TYPE_CHECKING:
    from intervalcert.io.models.torch_modules import from_torch

__all__ = ["from_torch", "load_model", "read_model", "save_model"]


@dataclass(frozen=True)
class _Format:
    """A kind of file: what it is called, how its name ends, which module reads it, and what a user may say of it."""

    name: str
    endings: tuple[str, ...]
    module: str
    hints: tuple[str, ...] = ()


_FORMATS = {
    "npy": _Format("a numpy array (.npy)", (".npy",), "numpy_files", ("biases", "activation")),
    "npz": _Format("a numpy archive (.npz)", (".npz",), "npz_model", ("biases", "activation")),
    "text": _Format("text", (".txt",), "text", ("biases", "activation")),
    "onnx": _Format("an ONNX model (.onnx)", (".onnx",), "onnx_file", ("strip_softmax",)),
    "safetensors": _Format(
        "a safetensors file (.safetensors)", (".safetensors",), "safetensors_file", ("activation", "layers")
    ),
    "torch": _Format("a PyTorch file (.pt)", (".pt", ".pth", ".bin"), "torch_file", ("activation", "layers")),
    "keras": _Format("a Keras 3 model (.keras)", (".keras",), "keras_file", ("strip_softmax",)),
}
_BOUNDS = b'"intervalcert bounds"'
"""What a bounds file begins with, as its format."""

_PER_BYTE = 2
"""Weights that a compressed file may have for each of its bytes, beyond `FREE_NUMBERS`. (Others have one at most.)"""

_REFUSED = {
    b"\x89HDF": "an HDF5 file. Keras 2 models are not read: save the model with Keras 3, as .keras",
    b"\x1f\x8b": "compressed by gzip, as its name does not say: one whose name ends with .gz is unpacked, once",
    b"\x80": "a pickle, which could run any program, and is never read. Save a PyTorch state dict with "
    "torch.save(model.state_dict(), 'model.pt'), or the model as .safetensors or .onnx",
}


def load_model(
    path: str | Path,
    biases: str | Path | None = None,
    *,
    activation: str | None = None,
    layers: Sequence[str] | None = None,
    strip_softmax: bool = False,
    mean: object = None,
    std: object = None,
    eps_space: str = "input",
    threshold: object = None,
    regression: bool = False,
) -> Network:
    """Reads a model: ONNX, Keras 3, PyTorch state dicts, safetensors, ``.npz``, ``.npy`` or the text format.

    Any of them may be compressed, as ``model.onnx.gz``. The hash that identifies it is that of the compressed file.

    Args:
        biases: a text file with biases, for the formats without any.
        activation: what stands between the layers, for formats that do not say it (``relu`` if this does not, either).
        layers: names of the layers in their order, for formats that do not say it.
        strip_softmax: leave out a softmax or a sigmoid at the end: margins live on the logits before it.
        mean, std: of inputs that are normalised before the model sees them: a number, or one for each entry.
        eps_space: where distances are measured: ``input``, before any normalisation, or ``normalised``, after it.
        threshold: of a single output y, which is class 1 if y > threshold, else class 0 (0 if not said).
        regression: a single output is a number, without classes: for bounds of its Lipschitz constant.

    Raises: InputError, with the place and the reason, for everything that is not exactly understood.
    """
    space = check_eps_space(eps_space)
    if layers is not None and not is_listed(layers):
        raise UsageError(f"layers is a list of names, not {layers!r}")
    hints = Hints(
        None if biases is None else Path(biases),
        activation,
        None if layers is None else tuple(layers),
        strip_softmax,
        threshold,
        regression,
    )
    return read_model(Path(path), hints, mean, std).measured_in(space)


def read_model(path: Path, hints: Hints, mean: object = None, std: object = None) -> Network:
    """The model as it is, with distances in the normalised space if it normalises its inputs."""
    before = stamp_of(path), None if hints.biases is None else stamp_of(hints.biases)
    files = " with ".join(map(str, (path, hints.biases) if hints.biases else (path,)))
    try:
        with unpacked(path) as inner:
            reading = _reader_of(inner, hints)(inner, replace(hints, origin=path))
        network = reading.network.deciding(hints.threshold, regression=hints.regression).after(mean, std)
    except InputError as error:
        text = str(error)
        named = text.startswith((str(path), str(hints.biases)))
        raise InputError(text if named else f"{files}: {text}") from None
    # Hashed after they were read: a file that is too large to be read has been refused by now.
    found = [path, *([] if hints.biases is None else [hints.biases]), *(beside for beside, _ in reading.beside)]
    _check_numbers(network, path, sum(map(size_of, found)))
    sources = tuple(Source(file.name, sha256_of(file)) for file in found)
    after = stamp_of(path), None if hints.biases is None else stamp_of(hints.biases)
    if after != before or any(stamp_of(file) != stamp for file, stamp in reading.beside):
        raise InputError(f"{path} was changed while it was read: try again when nobody writes to it")
    return replace(network, sources=sources)


def _check_numbers(network: Network, path: Path, size: int) -> None:
    """Whatever is done with a model takes more than reading it: a tiny file must not ask for hours.

    Raises: InputError for far more weights than files have bytes, as only compressed and computed ones can have.
    """
    maps = {term.map.key: term.map for layer in network.layers for term in layer.terms}
    # What a pool of means needs is counted where it is made.
    numbers = sum(linear.parameters for linear in maps.values() if not isinstance(linear, ChannelWise))
    if numbers > max(FREE_NUMBERS, _PER_BYTE * size):
        raise InputError(
            f"{path} has {size} bytes for {numbers} weights: at most {FREE_NUMBERS}, or {_PER_BYTE} for each byte, are "
            "taken from a compressed file. If it is what you want, save it uncompressed"
        )


def _reader_of(path: Path, hints: Hints) -> Reader:
    """Raises: InputError for a file that is not read, UsageError for hints that are not for its kind."""
    kind = _kind_of(path)
    _check_hints(kind, hints, path)
    found: Reader = import_module(f"intervalcert.io.models.{_FORMATS[kind].module}").read
    return found


def save_model(network: Network, path: str | Path) -> None:
    """Writes the exact network as ``.npz``, which `load_model` reads back.

    Raises: SoundnessError if what was written is not that network.
    """
    from intervalcert.io.models.npz_model import read, write_network

    write_network(network, Path(path))
    if read(Path(path), Hints()).network.measured_in(network.eps_space).content != network.content:
        raise SoundnessError(f"{path} does not hold the network that was written to it")


def _check_hints(kind: str, hints: Hints, path: Path) -> None:
    for name in ("biases", "activation", "layers", "strip_softmax"):
        if getattr(hints, name) not in (None, False) and name not in _FORMATS[kind].hints:
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} is not for {_FORMATS[kind].name}, as {path} is: leave it out")


def _kind_of(path: Path) -> str:
    """What the file looks like, if its ending agrees."""
    expected = next((kind for kind, form in _FORMATS.items() if path.suffix.lower() in form.endings), None)
    with open_input(path) as file:
        head = file.read(4096)
    if _BOUNDS in head and head.lstrip().startswith(b"{"):
        raise InputError(f"{path} holds the bounds of a model: where a model is expected, give the model itself")
    kind = _looks_like(path, head)
    if kind is None:
        for magic, what in _REFUSED.items():
            if head.startswith(magic):
                raise InputError(f"{path} is {what}")
        kind = expected if expected in {"onnx", "text"} else "text"  # these have no mark to know them by
    if expected not in {None, kind}:
        raise InputError(
            f"{path} is not {_FORMATS[expected or kind].name}, as its ending says: it looks like {_FORMATS[kind].name}"
        )
    return kind


def _looks_like(path: Path, head: bytes) -> str | None:
    # First: the length of a header can look like the first bytes of all others.
    if len(head) > 8 and head[8:9] == b"{" and int.from_bytes(head[:8], "little") < path.stat().st_size:
        return "safetensors"
    if head.startswith(b"\x93NUMPY"):
        return "npy"
    if head.startswith(b"PK"):
        return _kind_of_archive(path)
    if not head or not any(byte < 9 or 13 < byte < 32 for byte in head):
        return "text"
    return "onnx" if head[0] == 8 else None  # an ONNX file begins with its version, as a rule


def _kind_of_archive(path: Path) -> str:
    try:
        with open_input(path) as file, zipfile.ZipFile(file) as archive:
            names = archive.namelist()
    except (zipfile.BadZipFile, NotImplementedError, UnicodeError, EOFError, RuntimeError, ValueError):
        names = []
    if not names:  # damaged: the reader that the ending names says how
        expected = {".keras": "keras", ".pt": "torch", ".pth": "torch", ".bin": "torch"}
        return expected.get(path.suffix.lower(), "npz")
    if "config.json" in names and any(name.endswith(".h5") for name in names):
        return "keras"
    return "torch" if any(name.endswith("data.pkl") for name in names) else "npz"


def __getattr__(name: str) -> object:
    if name == "from_torch":
        return import_module("intervalcert.io.models.torch_modules").from_torch
    raise AttributeError(name)
