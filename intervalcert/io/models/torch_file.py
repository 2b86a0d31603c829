"""PyTorch's state dicts (``.pt``, ``.pth``), read by torch itself, which makes tensors and nothing else of them.

Such a file is an archive with a pickle, and a pickle is a program. `torch.load` runs it with ``weights_only``, which
knows only what tensors need, from version 2.10 on without holes that are known; there is no other way in here. But what
that allows can still take all time and all of the stack, and torch does not look at the checksums of an archive: it
reads damaged numbers without a word. So everything is checked before: that the archive is laid out as `torch.save` does
it, so that all readers find the same in it; that its checksums are right; and that the pickle, step by step, can only
make a dict of plain tensors.
"""

from __future__ import annotations

import math
import pickletools
import re
import struct
import warnings
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from intervalcert.errors import InputError, UsageError, shortened
from intervalcert.io.files import open_input
from intervalcert.io.models.archives import open_archive
from intervalcert.io.models.interface import Hints, Reading, needed
from intervalcert.io.models.named import Stored, from_bfloat16, network_of

__all__ = ["array_of", "import_torch", "kind_of", "read"]

MAX_PICKLE = 2**19
"""Bytes of the pickle, which has the names and shapes only: thousands of tensors."""

_LEAST_VERSION = (2, 10)
_DICT = "collections.OrderedDict"
_TENSOR, _PARAMETER = "torch._utils._rebuild_tensor_v2", "torch._utils._rebuild_parameter"
_STORAGE = re.compile(r"torch\.[A-Za-z0-9]+Storage")
_STATE_DICT = "save its state dict: torch.save(model.state_dict(), 'model.pt')"


def read(path: Path, hints: Hints) -> Reading:
    """The chain of the linear layers in a state dict; see `named` for what is understood."""
    torch = import_torch()
    found = re.match(r"(\d+)\.(\d+)", str(torch.__version__))
    if found is None or tuple(map(int, found.groups())) < _LEAST_VERSION:
        least = ".".join(map(str, _LEAST_VERSION))
        raise UsageError(
            f"PyTorch files are read by torch {least} or newer, and this is {torch.__version__}: "
            "pip install --upgrade 'intervalcert[torch]'"
        )
    data = _pickle_of(path, hints.origin)
    try:
        _check_outline(_outline(data))
    except InputError as error:
        raise InputError(f"{path} {error}") from None
    return Reading(network_of(_tensors(_loaded(torch, path), torch, path), hints))


def import_torch() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return needed("torch", "torch")


# -- the archive -----------------------------------------------------------------------------------------------------


def _pickle_of(path: Path, origin: Path | None) -> bytes:
    """Raises: InputError unless the file is an archive as torch.save writes it, undamaged."""
    with open_archive(path, "PyTorch", origin) as archive:
        members = archive.infolist()
        pickles = [info for info in members if info.filename.lower().endswith("data.pkl")]
        if any(info.filename.lower().endswith("constants.pkl") for info in members):
            raise InputError(f"{path} is a TorchScript program, which is not read: export the model to ONNX")
        if len(pickles) != 1:
            raise InputError(f"{path} is not a PyTorch file: it has {len(pickles)} members data.pkl")
        if any(info.compress_type != zipfile.ZIP_STORED for info in members):
            raise InputError(f"{path} has compressed members, which torch.save does not write")
        if pickles[0].file_size > MAX_PICKLE:
            raise InputError(f"{path}: its pickle is larger than {MAX_PICKLE // 2**10} KiB, so it is no state dict")
        _check_layout(archive, path)
        damaged = archive.testzip()
        if damaged is not None:
            raise InputError(
                f"{path} is damaged, or was written without checksums: that of {damaged!r} is wrong. Save it again"
            )
        return archive.read(pickles[0])


def _check_layout(archive: zipfile.ZipFile, path: Path) -> None:
    """The list of the members ends the file, and nothing in it can be read in two ways.

    Python's reader and torch's differ in how they find the list, and in what they take for the same name.
    """
    members = archive.infolist()
    with open_input(path) as file:
        begin = file.read(4)
        size = file.seek(0, 2)
        file.seek(max(size - 98, 0))
        tail = file.read(98).rjust(98, b"\0")
    count, start = len(members), archive.start_dir
    end, locator, record = tail[-22:], tail[-42:-22], tail[:-42]
    longer = locator[:4] == b"PK\6\7"
    length = size - start - (98 if longer else 22)
    plain = begin == b"PK\3\4"
    plain &= struct.unpack("<4s4H2LH", end) == (b"PK\5\6", 0, 0, count, count, length, start, 0)
    if longer:
        plain &= struct.unpack("<4sLQL", locator) == (b"PK\6\7", 0, start + length, 1)
        plain &= struct.unpack("<4sQ4x2L4Q", record) == (b"PK\6\6", 44, 0, 0, count, count, length, start)
    for info in members:
        usual = not info.extra and not info.comment and not info.flag_bits & ~0x808
        plain &= usual and info.filename == info.orig_filename and info.compress_size == info.file_size
    if not plain or len({info.filename.lower() for info in members}) < count:
        raise InputError(
            f"{path} is not laid out as torch.save does it: other programs could read something else in it"
        )
    if sum(info.file_size for info in members) > size:
        raise InputError(f"{path} has members that overlap: together they are larger than the file")


# -- the pickle ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Name:
    """A function or a type that the pickle names."""

    text: str


@dataclass(frozen=True, eq=False)
class _Dict:
    """Its keys, which are names, with their values."""

    items: list[tuple[str, object]] = field(default_factory=list)


class _List:
    """What is in it does not matter: there is none in a state dict."""


class _Storage:
    """The numbers of a tensor, one after the other."""


class _View:
    """A tensor."""


def _outline(data: bytes) -> object:
    """What the pickle would make, without making it: `_Dict`, `_List`, `_View`, or plain values.

    Raises: InputError for every step that a dict of tensors does not need, and for one that cannot be done.
    """
    outline = _Outline()
    try:
        for code, argument, _ in pickletools.genops(data):
            outline.step(code.name, argument)
        (made,) = outline.stack
    except (ValueError, OverflowError, LookupError) as error:
        raise InputError(f"is not a complete PyTorch file: {_line(error)}") from None
    return made


class _Outline:
    """The machine that a pickle is a program for: a stack, those below it since a mark each, and a memory."""

    def __init__(self) -> None:
        self.stack: list[object] = []
        self._below: list[list[object]] = []
        self._memory: dict[int, object] = {}

    def step(self, code: str, argument: Any) -> None:
        match code:
            case "PROTO" | "STOP":
                pass
            case "NONE" | "NEWTRUE" | "NEWFALSE":
                self.stack.append({"NONE": None, "NEWTRUE": True, "NEWFALSE": False}[code])
            case "BININT" | "BININT1" | "BININT2" | "LONG1" | "BINFLOAT" | "BINUNICODE":
                self.stack.append(argument)
            case "GLOBAL":
                self.stack.append(_name(argument))
            case "BINPUT" | "LONG_BINPUT":
                self._memory[argument] = self.stack[-1]
            case "BINGET" | "LONG_BINGET":
                self.stack.append(self._memory[argument])
            case "MARK":
                self._below.append(self.stack)
                self.stack = []
            case "EMPTY_TUPLE" | "TUPLE1" | "TUPLE2" | "TUPLE3" | "TUPLE":
                parts = self._marked() if code == "TUPLE" else self._last("ET123".index(code[-1]) - 1)
                self.stack.append(tuple(parts))
            case "EMPTY_LIST" | "EMPTY_DICT":
                self.stack.append(_List() if code == "EMPTY_LIST" else _Dict())
            case "APPEND" | "APPENDS":
                parts = self._marked() if code == "APPENDS" else self._last(1)
                if not isinstance(self.stack[-1], _List):
                    raise _strange()
            case "SETITEM" | "SETITEMS":
                parts = self._marked() if code == "SETITEMS" else self._last(2)
                _set(self.stack[-1], parts[::2], parts[1::2])
            case "BINPERSID":
                self.stack.append(_storage(self.stack.pop()))
            case "REDUCE":
                function, arguments = self._last(2)
                self.stack.append(_called(function, arguments))
            case "BUILD":
                (state,) = self._last(1)
                _check_state(self.stack[-1], state)
            case _:
                raise InputError(f"holds more than tensors ({code} in its pickle): {_STATE_DICT}")

    def _last(self, count: int) -> list[object]:
        """Takes so many from the stack."""
        return [self.stack.pop() for _ in range(count)][::-1]

    def _marked(self) -> list[object]:
        """Takes all down to the last mark."""
        parts, self.stack = self.stack, self._below.pop()
        return parts


def _name(argument: str) -> _Name:
    text = argument.replace(" ", ".")
    if text.startswith(("torch._utils._rebuild_", "torch._tensor._rebuild_")) and text not in {_TENSOR, _PARAMETER}:
        raise InputError(
            f"holds a tensor that is no plain one of floats ({shortened(text, 200)}): save dense tensors of float32"
        )
    if text not in {_DICT, _TENSOR, _PARAMETER} and _STORAGE.fullmatch(text) is None:
        raise InputError(
            f"holds {shortened(text, 200)!r}, not only plain tensors: it would have to be run, and is not. If it is a "
            f"whole model or a checkpoint, {_STATE_DICT}"
        )
    return _Name(text)


def _strange() -> InputError:
    return InputError(f"holds something that torch.save does not write for plain tensors: {_STATE_DICT}")


def _set(target: object, keys: list[object], values: list[object]) -> None:
    """Only names may be keys: to look for others can take any time."""
    if not isinstance(target, _Dict):
        raise _strange()
    for key, value in zip(keys, values, strict=True):
        if not isinstance(key, str):
            raise InputError(
                f"has a dict with a key of type {type(key).__name__}, as optimizers have; the keys of a state dict are "
                "names. If it is a checkpoint, save the state dict in it by itself"
            )
        target.items.append((key, value))


def _storage(where: object) -> _Storage:
    """Of ("storage", its type, the name of its member, a device, how many numbers)."""
    match where:
        case ("storage", _Name(kind), str(), str(), int()) if _STORAGE.fullmatch(kind):
            return _Storage()
    raise _strange()


def _called(function: object, arguments: object) -> object:
    """What one of three functions makes of the arguments that torch.save gives it."""
    match function, arguments:
        case _Name(name), () if name == _DICT:
            return _Dict()
        case _Name(name), (_View(), bool(), _Dict([])) if name == _PARAMETER:
            return _View()
        case _Name(name), (_Storage(), int(), tuple(shape), tuple(strides), bool(), _Dict([])) if name == _TENSOR:
            if all(type(side) is int for side in shape + strides):
                return _View()
    raise _strange()


def _check_state(made: object, state: object) -> None:
    """A state dict has one attribute of its own, the versions of the modules. Another one could hide a method."""
    match made, state:
        case _Dict(), _Dict([("_metadata", _Dict())]):
            return
    raise _strange()


def _check_outline(made: object) -> None:
    """Raises: InputError unless it is a dict of tensors."""
    if isinstance(made, _View):
        raise InputError(f"holds one tensor without a name: {_STATE_DICT}")
    if not isinstance(made, _Dict):
        kind = "list" if isinstance(made, _List) else type(made).__name__
        raise InputError(f"holds a {kind}, not a state dict: {_STATE_DICT}")
    keys = [key for key, _ in made.items]
    dicts = [(key, value) for key, value in made.items if isinstance(value, _Dict)]
    inner = [(not any(isinstance(part, _View) for _, part in value.items), key) for key, value in dicts]
    if inner:
        raise InputError(
            f"is a checkpoint with the keys {[shortened(name, 80) for name in keys[:20]]}: save the state dict in it "
            f"by itself, as in torch.save(checkpoint[{shortened(min(inner)[1], 80)!r}], 'model.pt')"
        )
    for key, value in made.items:
        if not isinstance(value, _View):
            raise InputError(f"has under the key {shortened(key, 200)!r} something else than a tensor: {_STATE_DICT}")
    if len(set(keys)) < len(keys):
        raise InputError("has a key twice")


# -- what torch makes of it ------------------------------------------------------------------------------------------


def _loaded(torch: Any, path: Path) -> object:
    with open_input(path) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return torch.load(file, map_location="cpu", weights_only=True)
        except (OSError, MemoryError):
            raise
        except Exception as error:  # there is hardly a type that it does not raise
            raise InputError(f"{path}: torch cannot read it ({_line(error)})") from None


def _line(error: Exception) -> str:
    """What is wrong, without advice: torch's would be to run the file."""
    first = str(error).partition("\n")[0].partition("Weights only load failed")[0]
    said = "".join(x for x in first if x.isprintable()).strip()
    return f"{type(error).__name__}: {shortened(said, 200)}" if said else type(error).__name__


def _tensors(loaded: object, torch: Any, path: Path) -> dict[str, Stored]:
    if not isinstance(loaded, dict):
        raise InputError(f"{path} holds a {type(loaded).__name__}, not a state dict: {_STATE_DICT}")
    for key, value in loaded.items():
        if type(value) not in {torch.Tensor, torch.nn.Parameter}:
            what = f"{shortened(repr(key), 200)} is a {type(value).__name__}"
            raise InputError(f"{path}: {what}, not a tensor: {_STATE_DICT}")
    return {key: _stored(torch, value) for key, value in loaded.items()}


def _stored(torch: Any, tensor: Any) -> Stored:
    return Stored(kind_of(torch, tensor), tuple(tensor.shape), lambda: array_of(torch, tensor, "it"))


def kind_of(torch: Any, tensor: Any) -> str:
    """``float32``, as the type is called; with what else makes it no plain tensor, of which only the kind is known."""
    kind = str(tensor.dtype).removeprefix("torch.")
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return f"{kind}, within a function transform"
    if tensor.is_nested:
        return f"{kind}, nested"
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
            f"{what} repeats its numbers (shape {list(tensor.shape)}, {held} bytes): use a .contiguous() copy of it"
        )
    plain = tensor.detach().resolve_conj().resolve_neg().contiguous()
    if type(plain) is not torch.Tensor or (size and not plain.data_ptr()):
        raise InputError(f"{what} is a tensor whose numbers are not in the memory (a mode of torch is on)")
    if plain.dtype is torch.bfloat16:
        bits: npt.NDArray[np.uint16] = plain.view(torch.int16).numpy().view(np.uint16)
        return from_bfloat16(bits)
    found: npt.NDArray[Any] = plain.numpy()
    return found
