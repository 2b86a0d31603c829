"""Keras 3 models (``.keras``), read without Keras: the layers in config.json, the weights in model.weights.h5.

Nothing of the file is run. There is a list of classes of layers, of the keys in their configurations and of the values
there whose meaning is exactly known; everything else is refused. The network is what Keras computes in inference, over
the reals. Weights are the numbers of the file. Constants of the configuration (slopes, scales, epsilon) are decimals
there: Keras rounds them to the type of the layer, float32 as a rule, and so does this reader. In float16 and float64
layers the backends of Keras round some constants in different ways; such are read only if all ways lead to one number.

Settings of Keras that no file holds are taken to be the usual ones: images have their channels last, and Normalization
divides by no less than 1e-7.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from intervalcert.errors import InputError
from intervalcert.loaders.archives import MAX_UNPACKED_BYTES, open_archive
from intervalcert.loaders.assembly import Assembly
from intervalcert.loaders.interface import Hints, Reading, needed
from intervalcert.loaders.tensors import Tensor
from intervalcert.network import MAX_ENTRIES, Network
from intervalcert.rational import RationalMatrix

__all__ = ["read"]

MAX_JSON_BYTES = 2**23
MAX_LAYERS = 1_000
MAX_NESTED = 8
"""Of lists of numbers."""

FREE_BYTES, MAX_EXPANSION = 2**24, 100
"""Weights hardly compress: what is larger, and grows more than that many times, was made to fill the memory."""

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_DTYPES = {name: np.dtype(name) for name in ("float16", "float32", "float64")}
_LEAST_STD = 1e-7  # keras.config.epsilon()

Shape = tuple[int, ...]
Array = npt.NDArray[Any]


def read(path: Path, hints: Hints) -> Reading:
    """The network in an archive of Keras 3."""
    h5py = needed("h5py", "keras")
    with open_archive(path, ".keras") as archive:
        for name in archive.namelist():
            if name not in {"metadata.json", "config.json", "model.weights.h5"}:
                raise InputError(f"it contains {_shown(name)}, which the layers that are read do not need")
        _check_version(_parsed(archive, "metadata.json"))
        layers = _layers_of(_parsed(archive, "config.json"))
        weights = _unpacked(archive, "model.weights.h5", MAX_UNPACKED_BYTES)
    with _Store.of(h5py, weights) as store:
        return Reading(_network(layers, store, hints.strip_softmax))


def _shown(value: object) -> str:
    """For messages: one short line, whatever it is."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}…"


# -- the archive and its JSON ----------------------------------------------------------------------------------------


def _unpacked(archive: zipfile.ZipFile, name: str, limit: int) -> bytes:
    try:
        info = archive.getinfo(name)
    except KeyError:
        raise InputError(f"there is no {name} in it: it is no complete Keras 3 model") from None
    size = info.file_size
    if size > limit or size > max(FREE_BYTES, MAX_EXPANSION * info.compress_size):
        raise InputError(f"{name} unpacks to {size} bytes, more than such a file can need")
    with archive.open(info) as member:
        return member.read(size)


def _parsed(archive: zipfile.ZipFile, name: str) -> object:
    def unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
        made = dict(pairs)
        if len(made) < len(pairs):
            raise InputError(f"{name} has two values for the same key, beside {_shown(next(iter(made)))}")
        return made

    def refuse(constant: str) -> object:
        raise InputError(f"{name} contains {constant}; every number must be finite")

    data = _unpacked(archive, name, MAX_JSON_BYTES)
    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=unique, parse_constant=refuse)
    except ValueError as error:  # also no UTF-8, and integers of too many digits
        raise InputError(f"{name} is not JSON: {str(error).partition('.')[0]}") from None
    except RecursionError:
        raise InputError(f"{name} is nested too deeply") from None


def _check_version(metadata: object) -> None:
    version = metadata.get("keras_version") if isinstance(metadata, dict) else None
    if not isinstance(version, str) or not version.startswith("3."):
        raise InputError(
            f"it was saved by Keras {_shown(version)}; the models of Keras 3 are read: load it there and save it again"
        )


# -- the layers and their order --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Layer:
    """One layer as config.json says it. stored: the name of its group in model.weights.h5."""

    name: str
    kind: str
    config: Mapping[str, Any]
    dtype: np.dtype[Any]
    built: object = None
    stored: str = ""

    @property
    def where(self) -> str:
        return f"the layer {_shown(self.name)} ({self.kind})"


_LAYER_KEYS = {"module", "class_name", "config", "registered_name", "build_config", "name", "inbound_nodes"}
_MODELS = {
    "Sequential": {"keras", "keras.models", "keras.src.models.sequential"},
    "Functional": {"keras", "keras.models", "keras.src.models.functional"},
}


def _mapping(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{what} is {_shown(value)}, where an object is expected")
    return value


def _sequence(value: object, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise InputError(f"{what} is {_shown(value)}, where a list is expected")
    return value


def _layers_of(document: object) -> list[_Layer]:
    """The layers in the order in which they are applied, the input first."""
    model = _mapping(document, "config.json")
    kind = model.get("class_name")
    if not isinstance(kind, str) or model.get("module") not in _MODELS.get(kind, ()):
        raise InputError(
            f"a model of the class {_shown(kind)} of {_shown(model.get('module'))}: Sequential and Functional are "
            "read. What a class of your own computes is not in the file: build it of layers, or export it to ONNX"
        )
    _only(model, {"module", "class_name", "config", "registered_name", "build_config", "compile_config"}, "the model")
    if model.get("registered_name") not in {None, kind}:
        raise InputError(f"the model is registered as {_shown(model['registered_name'])}, a class of your own")
    config = _mapping(model.get("config"), "the configuration of the model")
    listed = _sequence(config.get("layers"), "the list of layers")
    if not 2 <= len(listed) <= MAX_LAYERS:
        raise InputError(f"the model has {len(listed)} layers, with the input; 2 to {MAX_LAYERS} are read")
    _check_sharing(document, listed)
    layers = [_layer_of(item, index, kind == "Functional") for index, item in enumerate(listed)]
    names = [layer.name for layer in layers]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"two layers are called {_shown(twice)}: which one is meant is not known")
    if kind == "Sequential":
        _only(config, {"name", "trainable", "dtype", "layers", "build_input_shape"}, "the model")
        shape = config.get("build_input_shape")
        if shape is not None and shape != layers[0].config.get("batch_shape"):
            raise InputError(f"the model was built for inputs {_shown(shape)}, but its first layer says another shape")
    else:
        _only(config, {"name", "trainable", "layers", "input_layers", "output_layers"}, "the model")
        layers = _chained(layers, listed, config)
    for index, layer in enumerate(layers):
        if (layer.kind == "InputLayer") != (index == 0):
            raise InputError(
                f"{layer.where} is at place {index}: a model has one input, as its first layer (say keras.Input(shape))"
            )
    # Keras counts the layers of each class; those of a Functional model include the input.
    stored = _stored_names(layers if kind == "Functional" else layers[1:])
    return [_renamed(layer, stored.get(layer.name, "")) for layer in layers]


def _renamed(layer: _Layer, stored: str) -> _Layer:
    return _Layer(layer.name, layer.kind, layer.config, layer.dtype, layer.built, stored)


def _stored_names(layers: Sequence[_Layer]) -> dict[str, str]:
    """As saving_lib._save_container_state names the groups: by class, whatever a layer is called."""
    found: dict[str, str] = {}
    used: dict[str, int] = {}
    for layer in layers:
        name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", layer.kind)
        name = re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()
        used[name] = used.get(name, -1) + 1
        found[layer.name] = f"{name}_{used[name]}" if used[name] else name
    return found


def _only(given: Mapping[str, Any], known: set[str], what: str) -> None:
    for key in given:
        if key not in known:
            raise InputError(f"{what} has {_shown(key)}: {_shown(given[key])}, and what that means is not known")


def _layer_of(value: object, index: int, functional: bool) -> _Layer:
    data = _mapping(value, f"layer {index}")
    config = _mapping(data.get("config"), f"the configuration of layer {index}")
    kind, name = data.get("class_name"), config.get("name")
    if not isinstance(name, str) or not isinstance(kind, str):
        raise InputError(f"layer {index} has the name {_shown(name)} and the class {_shown(kind)}: both must be texts")
    where = f"the layer {_shown(name)} ({kind if kind.isidentifier() and len(kind) < 80 else _shown(kind)})"
    if kind in {*_MODELS, "Model"}:
        raise InputError(f"{where} is a model within the model: build one model of the layers of both")
    if kind not in _KINDS or data.get("module") != "keras.layers" or data.get("registered_name") is not None:
        read = ", ".join(_KINDS)
        raise InputError(
            f"{where} of {_shown(data.get('module'))} is not read from .keras files (these are: {read}): leave it out, "
            "or export the model to ONNX"
        )
    _only(data, _LAYER_KEYS | {"shared_object_id"}, where)
    if functional and data.get("name") != name:
        raise InputError(f"{where} is called {_shown(data.get('name'))}, too")
    rules = _KINDS[kind]
    for key in sorted({"name", "dtype", *rules.needs} - set(config)):
        raise InputError(f"{where} does not say its {key!r}: save the model again, with Keras 3")
    for key, content in config.items():
        if key in rules.fixed and content is not rules.fixed[key]:
            raise InputError(f"{where} has {key}: {_shown(content)}, which is not read: leave it out, or use ONNX")
    ignored = {"name", "dtype", "trainable", "activity_regularizer"}
    _only(config, ignored | rules.needs | rules.ignored | set(rules.fixed), where)
    return _Layer(name, kind, config, _dtype_of(config["dtype"], where), data.get("build_config"))


def _dtype_of(policy: object, where: str) -> np.dtype[Any]:
    """Of all numbers of a layer: its variables, and what it computes with."""
    name = policy
    if isinstance(policy, dict):
        name = None
        if (
            policy.get("module") in {"keras", "keras.dtype_policies"}
            and policy.get("class_name") in {"DTypePolicy", "FloatDTypePolicy"}
            and policy.get("registered_name") is None
            and isinstance(policy.get("config"), dict)
            and set(policy["config"]) == {"name"}
        ):
            name = policy["config"]["name"]
    if not isinstance(name, str) or name not in _DTYPES:
        raise InputError(
            f"{where} has the dtype {_shown(policy)}: {', '.join(_DTYPES)} are read (not mixed, not quantized)"
        )
    return _DTYPES[name]


def _check_sharing(document: object, layers: Sequence[object]) -> None:
    """What has the shared_object_id of an earlier object is that object to Keras, whatever else it says."""
    found: dict[int, list[dict[str, Any]]] = {}
    pending: list[object] = [document]
    while pending:
        item = pending.pop()
        if isinstance(item, list):
            pending.extend(item)
        elif isinstance(item, dict):
            pending.extend(item.values())
            if "shared_object_id" in item:
                key = item["shared_object_id"]
                if type(key) is not int:
                    raise InputError(f"a shared_object_id {_shown(key)} that is no whole number")
                found.setdefault(key, []).append(item)
    for same in found.values():
        if len(same) == 1:
            continue
        if any(item is layer for item in same for layer in layers):
            raise InputError("a layer is shared: it would be applied twice, and only chains of layers are read")
        said = [[item.get(key) for key in ("module", "class_name", "config", "registered_name")] for item in same]
        if any("Policy" in str(kind) for _, kind, *_ in said) and any(content != said[0] for content in said):
            raise InputError("different objects have the same shared_object_id: which one is meant is not known")


def _chained(layers: list[_Layer], listed: Sequence[Any], config: Mapping[str, Any]) -> list[_Layer]:
    """The layers of a Functional model, if each is applied once, to what the one before gives."""
    after: dict[str, _Layer] = {}
    for layer, data in zip(layers, listed, strict=True):
        nodes = _sequence(data.get("inbound_nodes"), f"the inbound_nodes of {layer.where}")
        if layer.kind == "InputLayer":
            if nodes:
                raise InputError(f"{layer.where} has an input itself")
            continue
        if len(nodes) != 1:
            raise InputError(
                f"{layer.where} is applied {len(nodes)} times: only chains of layers are read, each applied once"
            )
        before = _source_of(nodes[0], layer)
        if before in after:
            raise InputError(
                f"{after[before].where} and {_shown(layer.name)} both take what {_shown(before)} gives: only chains of "
                "layers are read, without branches"
            )
        after[before] = layer
    first, last = (_end_of(config.get(key), key) for key in ("input_layers", "output_layers"))
    starts = [layer for layer in layers if layer.kind == "InputLayer"]
    if len(starts) != 1 or starts[0].name != first:
        names = ", ".join(_shown(layer.name) for layer in starts[:5]) or "none"
        raise InputError(f"a model with one input is read; this one has {names}, and says that it is {_shown(first)}")
    chain = starts
    while chain[-1].name in after and len(chain) < len(layers):
        chain.append(after[chain[-1].name])
    if chain[-1].name != last or len(chain) != len(layers):
        missing = [layer for layer in layers if layer not in chain]
        more = f"; {missing[0].where} is not part of that" if missing else ""
        raise InputError(
            f"the layers after the input {_shown(first)} lead to {_shown(chain[-1].name)}, the output is "
            f"{_shown(last)}{more}: only chains of layers are read, without branches, loops or layers beside them"
        )
    return chain


def _end_of(value: object, what: str) -> str:
    """["name", 0, 0], or a list of just one of these."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    return _tensor_name(value, what)


def _tensor_name(value: object, what: str) -> str:
    """Of the layer that gives a tensor: ["name", 0, 0], the first result of its first application."""
    match value:
        case [str(name), node, result] if type(node) is type(result) is int and (node, result) == (0, 0):
            return name
    raise InputError(f"{what} is {_shown(value)}: only chains of layers are read, with one input and one output")


def _source_of(node: object, layer: _Layer) -> str:
    what = f"the input of {layer.where}"
    given = _mapping(node, what)
    _only(given, {"args", "kwargs"}, what)
    for key, value in _mapping(given.get("kwargs"), what).items():
        if not ((key in {"mask", "training"} and value is None) or (key == "training" and value is False)):
            raise InputError(f"{layer.where} is called with {_shown(key)}: {_shown(value)}, which is not read")
    match given.get("args"):
        case [{"class_name": "__keras_tensor__", "config": {"keras_history": history}}]:
            return _tensor_name(history, what)
    raise InputError(f"{what} is {_shown(given.get('args'))}: only chains of layers are read, with one input each")


# -- the weights -----------------------------------------------------------------------------------------------------

_HDF5_FAULTS = (
    OSError,
    RuntimeError,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    ArithmeticError,
    MemoryError,
    NotImplementedError,
)


class _Store:
    """model.weights.h5, of which only what was asked for may be there."""

    def __init__(self, h5py: Any, file: Any) -> None:
        self._h5py, self._file = h5py, file

    @staticmethod
    @contextlib.contextmanager
    def of(h5py: Any, data: bytes) -> Iterator[_Store]:
        if not data.startswith(_SIGNATURE):
            raise InputError("model.weights.h5 is no HDF5 file")
        with _understood():
            file = h5py.File(io.BytesIO(data), "r")
        try:
            yield _Store(h5py, file)
        finally:
            with contextlib.suppress(*_HDF5_FAULTS):
                file.close()

    def check(self, layers: Sequence[_Layer]) -> None:
        """Raises: InputError for groups that belong to no layer. What is of training only is left alone."""
        with _understood():
            self._names(self._file, {"layers", "vars", "optimizer", "metrics"}, "the file")
            own = self._group(self._file, "vars")
            if own is not None:
                self._names(own, set(), "vars")
            groups = self._group(self._file, "layers")
            if groups is None:
                raise InputError("model.weights.h5 has no layers: the model was saved before it had weights")
            self._names(groups, {layer.stored for layer in layers}, "layers")
            for layer in layers:
                group = self._group(groups, layer.stored)
                if group is not None:
                    self._names(group, {"vars", *_KINDS[layer.kind].beside}, f"layers/{layer.stored}")

    def arrays(self, layer: _Layer, wanted: Sequence[tuple[str, Shape, str]]) -> list[Array]:
        """The variables of a layer, which has just these: what each is, its shape, its type (or "int")."""
        place = f"layers/{layer.stored}/vars"
        with _understood():
            group = self._file
            for name in place.split("/"):
                group = None if group is None else self._group(group, name)
            if group is None:
                if wanted:
                    raise InputError(f"its {wanted[0][0]} ({place}/0) is not in model.weights.h5")
                return []
            found = []
            for index, (what, shape, kind) in enumerate(wanted):
                found.append(self._array(group, str(index), shape, kind, f"its {what} ({place}/{index})"))
            self._names(group, {str(index) for index in range(len(wanted))}, place)
        return found

    def _names(self, group: Any, known: set[str], place: str) -> None:
        if len(group) > len(known) or not set(group) <= known:
            extra = next((name for name in group if name not in known), "")
            raise InputError(
                f"model.weights.h5 has {_shown(extra)} in {place}, which belongs to no layer of the configuration"
            )

    def _child(self, group: Any, name: str) -> Any:
        link = group.get(name, getlink=True)
        if link is None:
            return None
        if not isinstance(link, self._h5py.HardLink):
            raise InputError(f"model.weights.h5: {_shown(name)} is a link to another place, which is not followed")
        return group[name]

    def _group(self, parent: Any, name: str) -> Any:
        found = self._child(parent, name)
        if found is not None and not isinstance(found, self._h5py.Group):
            raise InputError(f"model.weights.h5: {_shown(name)} is not a group")
        return found

    def _array(self, group: Any, name: str, shape: Shape, kind: str, what: str) -> Array:
        """As Keras writes it: plain numbers in one piece of the file, no larger than the file itself."""
        h5t, h5d = self._h5py.h5t, self._h5py.h5d
        found = self._child(group, name)
        if found is None:
            raise InputError(f"{what} is not in model.weights.h5")
        if not isinstance(found, self._h5py.Dataset) or found.shape != shape:
            shown = list(getattr(found, "shape", None) or ())
            raise InputError(f"{what} has the shape {_shown(shown)}, where the configuration asks for {list(shape)}")
        types = {
            "float16": [h5t.IEEE_F16LE],
            "float32": [h5t.IEEE_F32LE],
            "float64": [h5t.IEEE_F64LE],
            "int": [h5t.STD_I32LE, h5t.STD_I64LE],
        }
        if found.id.get_type() not in types[kind] or self._h5py.h5a.get_num_attrs(found.id):
            raise InputError(f"{what} is stored as {_shown(found.dtype)}, where plain {kind} numbers are expected")
        made = found.id.get_create_plist()
        plain = made.get_layout() == h5d.CONTIGUOUS and not made.get_nfilters() and not made.get_external_count()
        if not plain or found.id.get_storage_size() != math.prod(shape) * found.dtype.itemsize:
            raise InputError(
                f"{what} is compressed, in pieces, in another file or not stored at all: save the model again"
            )
        values: Array = np.empty(shape, dtype=found.dtype)
        if found.size:
            found.read_direct(values)
        return values


@contextlib.contextmanager
def _understood() -> Iterator[None]:
    """Turns whatever h5py raises for a damaged file into an error that says so."""
    try:
        yield
    except _HDF5_FAULTS as error:
        text = " ".join(str(error).split())
        raise InputError(f"model.weights.h5 is damaged: {_shown(text or type(error).__name__)}") from None


# -- numbers of the configuration ------------------------------------------------------------------------------------


def _number(value: object, what: str) -> float:
    """A finite decimal of the configuration, as the double that JSON makes of it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{what} is {_shown(value)}, where a number is expected")
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found) or found != value:
        raise InputError(f"{what} is {_shown(value)}, a number too large to be read")
    return found


def _rounded(values: Array, dtype: np.dtype[Any], what: str) -> Array:
    """Numbers that become a tensor of that type: at once, or (TensorFlow; Normalization) by way of float32."""
    with np.errstate(over="ignore", under="ignore"):
        found: Array = values.astype(dtype)
        other = values.astype(np.float32).astype(dtype)
    return _agreed(found, other, what, dtype)


def _parameter(value: object, dtype: np.dtype[Any], what: str) -> Fraction:
    """A number that a function takes beside its tensor: in float32 (TensorFlow, say), or in the layer's type (JAX)."""
    given = np.array(_number(value, what))
    with np.errstate(over="ignore", under="ignore"):
        found, other = given.astype(dtype), given.astype(np.float32)
    return Fraction(float(_agreed(found, other.astype(np.float64), what, dtype)))


def _agreed(found: Array, other: Array, what: str, dtype: np.dtype[Any]) -> Array:
    if not np.isfinite(found).all():
        raise InputError(f"{what} is too large for {dtype}")
    if not np.array_equal(found, other):
        raise InputError(
            f"{what} is rounded in different ways by the backends of Keras in a layer of {dtype}: use float32, "
            "or a number that both types hold"
        )
    return found


def _numbers(value: object, what: str) -> Array:
    """A number or nested lists of them, as doubles; or a numpy array as Keras writes it."""
    match value:
        case {"class_name": "__numpy__", "config": {"value": inner, "dtype": str(name)}} if name in _DTYPES:
            given = _numbers(inner, what)
            with np.errstate(over="ignore", under="ignore"):
                made = given.astype(_DTYPES[name]).astype(np.float64)
            if not np.isfinite(made).all():
                raise InputError(f"{what} is too large for {name}")
            return made
    shape: list[int] = []
    level: list[Any] = [value]
    while any(isinstance(item, list) for item in level):
        if len(shape) == MAX_NESTED or len({len(x) if isinstance(x, list) else -1 for x in level}) > 1 or not level[0]:
            raise InputError(f"{what} is {_shown(value)}, where a number, or lists of the same lengths are expected")
        shape.append(len(level[0]))
        level = [item for part in level for item in part]
    return np.array([_number(item, what) for item in level]).reshape(shape)


def _whole(value: object, what: str) -> int:
    if type(value) is not int:
        raise InputError(f"{what} is {_shown(value)}, where a whole number is expected")
    return value


def _flag(value: object, what: str) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"{what} is {_shown(value)}, where true or false is expected")
    return value


# -- what layers compute ---------------------------------------------------------------------------------------------


@dataclass
class _Chain:
    """The model so far. shape: of what the last layer gives, without the batch."""

    assembly: Assembly
    shape: Shape
    store: _Store
    softmax: str | None = None

    def spread(self, values: Tensor, shape: Shape | None = None) -> Tensor:
        """One number for each entry at this point, of an array that is broadcast (after it was given that shape)."""
        placed = values if shape is None else values.reshaped(shape)
        return placed.broadcast(self.shape).reshaped((self.assembly.width,))

    def activate(self, name: object, layer: _Layer) -> None:
        """The function of that name in keras.activations, with what it takes by default there."""
        if name == "softmax":
            if self.shape[-1] != self.assembly.width:
                raise InputError(f"a softmax of each row of an array of shape {list(self.shape)} is not read")
            self.softmax = layer.where
        elif name == "leaky_relu":
            self._leaky(0.2, layer)
        elif isinstance(name, str) and name in _FUNCTIONS:
            self.assembly.activate(_FUNCTIONS[name])
        elif name is not None:
            known = ", ".join((*_FUNCTIONS, "leaky_relu", "softmax"))
            raise InputError(
                f"the activation {_shown(name)} is not read (these are: {known}): use one of them, or, if it is "
                "a layer, let it follow this one"
            )

    def _leaky(self, slope: object, layer: _Layer) -> None:
        value = _parameter(slope, layer.dtype, "the negative slope")
        if not 0 <= value <= 1:
            raise InputError(f"the negative slope {_shown(slope)} is not read: it must be in 0 … 1")
        self.assembly.activate(f"leaky_relu:{value}" if value else "relu")

    # Each of these is one class of layers.

    def identity(self, layer: _Layer) -> None:
        """What only training changes."""

    def dense(self, layer: _Layer) -> None:
        units, width = _whole(layer.config["units"], "units"), self.shape[-1]
        if width != self.assembly.width:
            raise InputError(
                f"it is applied to each row of an array of shape {list(self.shape)}: put a Flatten layer before it"
            )
        if not 0 < units <= MAX_ENTRIES // width:
            raise InputError(f"{units} units for {width} inputs: a layer has 1 to {MAX_ENTRIES} weights")
        kind = layer.dtype.name
        wanted: list[tuple[str, Shape, str]] = [("kernel", (width, units), kind)]
        if _flag(layer.config["use_bias"], "use_bias"):
            wanted.append(("bias", (units,), kind))
        kernel, *bias = self.store.arrays(layer, wanted)
        with _about("its kernel"):
            weights = Tensor(kernel).transposed((1, 0))
        with _about("its bias"):
            self.assembly.affine(weights, Tensor(bias[0]) if bias else None)
        self.shape = (*self.shape[:-1], units)
        self.activate(layer.config["activation"], layer)

    def activation(self, layer: _Layer) -> None:
        self.activate(layer.config["activation"], layer)

    def relu(self, layer: _Layer) -> None:
        slope, most, threshold = (layer.config[key] for key in ("negative_slope", "max_value", "threshold"))
        slope, threshold = _number(slope, "negative_slope"), _number(threshold, "threshold")
        if threshold or (slope and most is not None):
            raise InputError(
                f"a ReLU with threshold {threshold}, negative_slope {slope} and max_value {_shown(most)} is not "
                "read: a slope or a max_value without the others is"
            )
        if most is None:
            self._leaky(slope, layer)
            return
        top = _rounded(np.array(_number(most, "max_value")), layer.dtype, "max_value")
        if top < 0:
            raise InputError(f"max_value is {_shown(most)}, below zero")
        self.assembly.activate(f"clip:0:{Fraction(float(top))}")

    def leaky_relu(self, layer: _Layer) -> None:
        self._leaky(layer.config["negative_slope"], layer)

    def elu(self, layer: _Layer) -> None:
        value = _parameter(layer.config["alpha"], layer.dtype, "alpha")
        self.assembly.activate(f"elu:{value}")

    def apply_softmax(self, layer: _Layer) -> None:
        if _whole(layer.config["axis"], "axis") not in {-1, len(self.shape)}:
            raise InputError(f"a softmax along the axis {layer.config['axis']}: only the last one is read")
        self.activate("softmax", layer)

    def flatten(self, layer: _Layer) -> None:
        order = layer.config["data_format"]
        if order != "channels_last" and not (order == "channels_first" and len(self.shape) == 1):
            raise InputError(f"data_format {_shown(order)} changes the order of the numbers: use channels_last")
        self.shape = (self.assembly.width,)

    def reshape(self, layer: _Layer) -> None:
        sizes = [_whole(x, "a size") for x in _sequence(layer.config["target_shape"], "target_shape")]
        width = self.assembly.width
        known = math.prod(x for x in sizes if x != -1)
        if sizes.count(-1) == 1 and known > 0 and width % known == 0:
            sizes[sizes.index(-1)] = width // known
        if not sizes or min(sizes) < 1 or math.prod(sizes) != width:
            raise InputError(f"{width} numbers of shape {list(self.shape)} do not have the shape {_shown(sizes)}")
        self.shape = tuple(sizes)

    def rescaling(self, layer: _Layer) -> None:
        for key, act in (("scale", self.assembly.scale), ("offset", self.assembly.shift)):
            values = _rounded(_numbers(layer.config[key], key), layer.dtype, key)
            if values.ndim > len(self.shape):
                raise InputError(f"{key} has the shape {list(values.shape)}, but an input has {list(self.shape)}")
            with _about(key):
                act(self.spread(Tensor(values)))

    def normalization(self, layer: _Layer) -> None:
        """(x - mean)/max(sqrt(variance), 1e-7), and the maximum is the root of max(variance, 1e-14)."""
        kept = self._kept_axes(layer.config["axis"])
        sizes = tuple(self.shape[axis - 1] for axis in kept)
        given = [layer.config[key] for key in ("mean", "variance")]
        names = ("its mean", "its variance")
        if given == [None, None]:
            kind = layer.dtype.name
            wanted = [("mean", sizes, kind), ("variance", sizes, kind), ("count", (), "int")]
            mean, variance, _ = self.store.arrays(layer, wanted)
        else:
            self.store.arrays(layer, [])
            mean, variance = (
                _rounded(_numbers(x, name), layer.dtype, name) for x, name in zip(given, names, strict=True)
            )
            if mean.shape != variance.shape or mean.shape not in {(), sizes}:
                raise InputError(
                    f"a mean of shape {list(mean.shape)} and a variance of shape {list(variance.shape)}, where one "
                    f"number or an array of shape {list(sizes)} is expected for each"
                )
        exact = [_tensor(x, name) for x, name in zip((mean, variance), names, strict=True)]
        if (variance < 0).any():
            raise InputError("a variance below zero")
        squares = [Fraction(x) for x in variance.astype(np.float64).ravel().tolist()]
        with np.errstate(under="ignore"):
            least = [float(layer.dtype.type(_LEAST_STD)), float(layer.dtype.type(np.float32(_LEAST_STD)))]
        if min(squares) < Fraction(max(least)) ** 2:
            if least[0] != least[1]:
                raise InputError(f"a variance below {_LEAST_STD}² in a layer of {layer.dtype}: use float32")
            raised = [max(square, Fraction(least[0]) ** 2) for square in squares]
            exact[1] = Tensor.of_matrix(RationalMatrix.from_fractions([raised])).reshaped(variance.shape)
        aligned = None if mean.ndim == 0 else tuple(n if i + 1 in kept else 1 for i, n in enumerate(self.shape))
        placed = [self.spread(x, aligned) for x in exact]
        one = self.spread(Tensor(np.array(1)))
        self.assembly.batch_normalise(one, one - one, *placed)

    def _kept_axes(self, value: object) -> list[int]:
        """The axes with statistics of their own, counted from the batch, which is 0."""
        rank = len(self.shape) + 1
        listed = [] if value is None else value if isinstance(value, list) else [value]
        kept = sorted(axis + rank if axis < 0 else axis for axis in (_whole(x, "axis") for x in listed))
        if len(set(kept)) < len(kept) or not all(0 < axis < rank for axis in kept):
            raise InputError(f"axis {_shown(value)} of an array of shape {list(self.shape)} is not read")
        return kept

    def batch_normalization(self, layer: _Layer) -> None:
        """Inference: gamma·(x - mean)/sqrt(variance + epsilon) + beta along the last axis; in float32 or float64."""
        if _whole(layer.config["axis"], "axis") not in {-1, len(self.shape)}:
            raise InputError(f"it acts along the axis {layer.config['axis']}: only the last one is read")
        flags = [_flag(layer.config[key], key) for key in ("scale", "center")]
        names = [name for name, flag in zip(("gamma", "beta"), flags, strict=True) if flag]
        names += ["moving_mean", "moving_variance"]
        arrays = self.store.arrays(layer, [(name, self.shape[-1:], layer.dtype.name) for name in names])
        found = {name: _tensor(array, f"its {name}") for name, array in zip(names, arrays, strict=True)}
        with np.errstate(over="ignore", under="ignore"):
            computed = np.promote_types(layer.dtype, np.float32)
            epsilon = np.array([_number(layer.config["epsilon"], "epsilon")]).astype(computed)
        found["moving_variance"] += _tensor(epsilon, "epsilon")
        one = self.spread(Tensor(np.array(1)))
        placed = {name: self.spread(values) for name, values in found.items()}
        self.assembly.batch_normalise(
            placed.get("gamma", one), placed.get("beta", one - one), placed["moving_mean"], placed["moving_variance"]
        )


def _tensor(values: Array, what: str) -> Tensor:
    with _about(what):
        return Tensor(values)


@contextlib.contextmanager
def _about(what: str) -> Iterator[None]:
    try:
        yield
    except InputError as error:
        raise InputError(f"{what}: {error}") from None


_FUNCTIONS = {
    "linear": "identity",
    "relu": "relu",
    "relu6": "clip:0:6",
    "tanh": "tanh",
    "hard_tanh": "hard_tanh",
    "sigmoid": "sigmoid",
    "softplus": "softplus",
    "elu": "elu:1",
}


@dataclass(frozen=True)
class _Kind:
    """A class of layers.

    needs: keys that its configuration must have, and that are read. fixed: keys that may be missing, or have just that
    value. ignored: keys of training. beside: what its group of the weights may hold of training.
    """

    act: Callable[[_Chain, _Layer], None]
    needs: frozenset[str] = frozenset()
    fixed: Mapping[str, bool | None] = field(default_factory=dict)
    ignored: frozenset[str] = frozenset()
    beside: frozenset[str] = frozenset()


def _noise(*keys: str) -> _Kind:
    return _Kind(_Chain.identity, ignored=frozenset(keys), beside=frozenset({"seed_generator"}))


def _keys(text: str) -> frozenset[str]:
    return frozenset(text.split())


_KINDS = {
    "InputLayer": _Kind(_Chain.identity, _keys("batch_shape"), {"sparse": False, "ragged": False, "optional": False}),
    "Dense": _Kind(
        _Chain.dense,
        _keys("units activation use_bias"),
        {"quantization_config": None, "lora_rank": None, "lora_alpha": None},
        _keys("kernel_initializer bias_initializer kernel_regularizer bias_regularizer")
        | _keys("kernel_constraint bias_constraint"),
    ),
    "Flatten": _Kind(_Chain.flatten, _keys("data_format")),
    "Reshape": _Kind(_Chain.reshape, _keys("target_shape")),
    "Activation": _Kind(_Chain.activation, _keys("activation")),
    "ReLU": _Kind(_Chain.relu, _keys("max_value negative_slope threshold")),
    "LeakyReLU": _Kind(_Chain.leaky_relu, _keys("negative_slope")),
    "ELU": _Kind(_Chain.elu, _keys("alpha")),
    "Softmax": _Kind(_Chain.apply_softmax, _keys("axis")),
    "Rescaling": _Kind(_Chain.rescaling, _keys("scale offset")),
    "Normalization": _Kind(_Chain.normalization, _keys("axis mean variance"), {"invert": False}),
    "BatchNormalization": _Kind(
        _Chain.batch_normalization,
        _keys("axis epsilon center scale"),
        {"renorm": False, "renorm_clipping": None},
        _keys("momentum renorm_momentum synchronized beta_initializer gamma_initializer moving_mean_initializer")
        | _keys("moving_variance_initializer beta_regularizer gamma_regularizer beta_constraint gamma_constraint"),
    ),
    "Dropout": _noise("rate", "seed", "noise_shape"),
    "AlphaDropout": _noise("rate", "seed", "noise_shape"),
    "GaussianDropout": _noise("rate", "seed"),
    "GaussianNoise": _noise("stddev", "seed"),
    "ActivityRegularization": _Kind(_Chain.identity, ignored=_keys("l1 l2")),
}


def _network(layers: Sequence[_Layer], store: _Store, strip_softmax: bool) -> Network:
    first, *rest = layers
    with _about(first.where):
        shape = _input_shape(first.config["batch_shape"])
        chain = _Chain(Assembly(math.prod(shape)), shape, store)
    store.check([layer for layer in layers if layer.stored])
    for layer in rest:
        if chain.softmax is not None:
            raise InputError(f"{chain.softmax} is a softmax before {layer.where}: it is read at the very end only")
        with _about(layer.where):
            _check_built(layer.built, chain.shape)
            rules = _KINDS[layer.kind]
            if layer.kind not in {"Dense", "Normalization", "BatchNormalization"}:
                store.arrays(layer, [])
            rules.act(chain, layer)
    if chain.softmax is not None and not strip_softmax:
        raise InputError(
            f"{chain.softmax} is a softmax at the end, but margins live on the logits before it: say --strip-softmax"
        )
    if strip_softmax and chain.softmax is None:
        raise InputError("there is no softmax at the end that could be left out: leave --strip-softmax out")
    return chain.assembly.network(shape)


def _input_shape(value: object) -> Shape:
    sizes = _sequence(value, "batch_shape")[1:]
    if not sizes or None in sizes:
        raise InputError(f"batch_shape is {_shown(value)}: every size but the first, of the batch, must be known")
    shape = tuple(_whole(size, "a size of batch_shape") for size in sizes)
    if min(shape) < 1 or math.prod(shape) > MAX_ENTRIES:
        raise InputError(f"an input has the shape {_shown(list(shape))}; 1 to {MAX_ENTRIES} numbers are read")
    return shape


def _check_built(value: object, shape: Shape) -> None:
    """Keras builds a layer for the shape that build_config says, and then applies it to what comes."""
    if value is None:
        return
    match value:
        case {"input_shape": [batch, *sizes], **rest} if not rest and (batch is None or type(batch) is int):
            if sizes == list(shape) and all(type(size) is int for size in sizes):
                return
    raise InputError(f"it was built for {_shown(value)}, but is applied to an input of shape {list(shape)}")
