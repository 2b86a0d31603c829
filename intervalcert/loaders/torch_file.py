"""PyTorch's state dicts (``.pt``, ``.pth``), read by torch itself, which makes tensors and nothing else of them.

Such a file is an archive with a pickle, and a pickle is a program. `torch.load` runs it with ``weights_only``, which
knows only what tensors need, from version 2.10 on without holes that are known; there is no other way in here. Before,
the pickle is looked through, not run: even the names that torch allows include some that make tensors of whatever is in
the memory.
"""

from __future__ import annotations

import math
import pickletools
import re
import warnings
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from intervalcert.errors import InputError, UsageError
from intervalcert.files import open_input
from intervalcert.loaders.archives import open_archive
from intervalcert.loaders.interface import Hints, Reading, needed
from intervalcert.loaders.named import Stored, from_bfloat16, network_of

__all__ = ["array_of", "import_torch", "kind_of", "read"]

MAX_PICKLE = 2**22
"""Bytes of the pickle, which has the names and shapes only: tens of thousands of tensors."""

_LEAST_VERSION = (2, 10)
_CALLED = {"collections OrderedDict", "torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_parameter"}
_STORAGE = re.compile(r"torch [A-Za-z0-9]+Storage")
_STATE_DICT = "save its state dict: torch.save(model.state_dict(), 'model.pt')"


def read(path: Path, hints: Hints) -> Reading:
    """The chain of the linear layers in a state dict; see `named` for what is understood."""
    torch = import_torch()
    found = re.match(r"(\d+)\.(\d+)", str(torch.__version__))
    if found is None or tuple(map(int, found.groups())) < _LEAST_VERSION:
        least = ".".join(map(str, _LEAST_VERSION))
        raise UsageError(f"PyTorch files are read by torch {least} or newer; this is {torch.__version__}")
    _check_archive(path)
    return Reading(network_of(_tensors(_loaded(torch, path), torch, path), hints))


def import_torch() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return needed("torch", "torch")


# -- before torch reads it -------------------------------------------------------------------------------------------


def _check_archive(path: Path) -> None:
    """Raises: InputError unless the file is an archive with a pickle of tensors, as far as can be seen from outside."""
    with open_archive(path, "PyTorch") as archive:
        members = archive.infolist()
        pickles = [info for info in members if info.filename.lower().endswith("data.pkl")]
        if any(info.filename.endswith("constants.pkl") for info in members):
            raise InputError(f"{path} is a TorchScript program, which is not read: export the model to ONNX")
        if len(pickles) != 1:
            raise InputError(f"{path} is not a PyTorch file: it has {len(pickles)} members data.pkl")
        if any(info.compress_type != zipfile.ZIP_STORED for info in members):
            raise InputError(f"{path} has compressed members, which torch.save does not write")
        if pickles[0].file_size > MAX_PICKLE:
            raise InputError(f"{path}: its pickle is larger than {MAX_PICKLE // 2**20} MiB, so it is no state dict")
        _check_pickle(archive.read(pickles[0]), path)
    with open_input(path) as file:
        if file.read(4) != b"PK\x03\x04":  # torch would take it for a bare pickle
            raise InputError(f"{path} does not begin as an archive")


def _check_pickle(data: bytes, path: Path) -> None:
    """Refuses names that a state dict does not need."""
    try:
        for code, argument, _ in pickletools.genops(data):
            if code.name in {"INST", "STACK_GLOBAL", "OBJ", "NEWOBJ", "NEWOBJ_EX"} or code.name.startswith("EXT"):
                raise InputError(f"{path} holds more than tensors ({code.name} in its pickle): {_STATE_DICT}")
            if code.name == "GLOBAL" and argument not in _CALLED and _STORAGE.fullmatch(str(argument)) is None:
                name = str(argument).replace(" ", ".")
                raise InputError(
                    f"{path} holds {name[:200]!r}, not only plain tensors: it would have to be run, and is not. If it "
                    f"is a whole model or a checkpoint, {_STATE_DICT}"
                )
    except (ValueError, OverflowError, UnicodeError, IndexError) as error:
        raise InputError(f"{path} is not a complete PyTorch file: {_line(error)}") from None


def _loaded(torch: Any, path: Path) -> object:
    with open_input(path) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return torch.load(file, map_location="cpu", weights_only=True)
        except (OSError, MemoryError):
            raise
        except Exception as error:  # there is hardly a type that it does not raise
            raise InputError(
                f"{path}: torch cannot read it ({_line(error)}). If it is a model, {_STATE_DICT}"
            ) from None


def _line(error: Exception) -> str:
    """What is wrong, without advice: torch's would be to run the file."""
    first = str(error).partition("\n")[0].partition("Weights only load failed")[0]
    said = "".join(x for x in first if x.isprintable())[:200].strip()
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


# -- what torch made of it -------------------------------------------------------------------------------------------


def _tensors(loaded: object, torch: Any, path: Path) -> dict[str, Stored]:
    if torch.is_tensor(loaded):
        raise InputError(f"{path} holds one tensor without a name: {_STATE_DICT}")
    if not isinstance(loaded, dict):
        raise InputError(f"{path} holds a {type(loaded).__name__}, not a state dict: {_STATE_DICT}")
    for key, value in loaded.items():
        if not isinstance(key, str):
            raise InputError(f"{path}: a key of type {type(key).__name__}; those of a state dict are names")
        if isinstance(value, dict):
            raise InputError(
                f"{path} is a checkpoint with the keys {[str(name)[:80] for name in loaded][:20]}: save the state dict "
                f"in it by itself, as in torch.save(checkpoint[{key[:80]!r}], 'model.pt')"
            )
        if type(value) not in {torch.Tensor, torch.nn.Parameter}:
            raise InputError(f"{path}: {key[:200]!r} is a {type(value).__name__}, not a tensor: {_STATE_DICT}")
    return {key: _stored(torch, value, key) for key, value in loaded.items()}


def _stored(torch: Any, tensor: Any, name: str) -> Stored:
    return Stored(kind_of(torch, tensor), tuple(tensor.shape), lambda: array_of(torch, tensor, repr(name)))


def kind_of(torch: Any, tensor: Any) -> str:
    """``float32``, as the type is called; with what else makes it no plain tensor, of which only the kind is known."""
    kind = str(tensor.dtype).removeprefix("torch.")
    if tensor.layout is not torch.strided:
        return f"{kind}, {str(tensor.layout).removeprefix('torch.')}"
    return kind if tensor.device.type == "cpu" else f"{kind} on the device {tensor.device.type}"


def array_of(torch: Any, tensor: Any, what: str) -> npt.NDArray[Any]:
    """The numbers of a dense tensor, bfloat16 as float32; the array may share its memory.

    Requires: a `kind_of` float16, float32, float64 or bfloat16.
    Raises: InputError if it has more numbers than are stored: a few bytes could stand for any number of them.
    """
    size = math.prod(tensor.shape)
    held = tensor.untyped_storage().nbytes()
    if size * tensor.element_size() > held:
        raise InputError(
            f"{what} repeats its numbers (shape {list(tensor.shape)}, {held} bytes): save a .contiguous() copy of it"
        )
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    if plain.dtype is torch.bfloat16:
        bits: npt.NDArray[np.uint16] = plain.view(torch.int16).numpy().view(np.uint16)
        return from_bfloat16(bits)
    found: npt.NDArray[Any] = plain.numpy()
    return found
