"""config.json of a Keras model -> its layers, in the order in which they are applied.

Nothing of it is run. Classes, keys and values whose meaning is exactly known are read; everything else is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from intervalcert.errors import InputError, error_context
from intervalcert.io.models.keras_kinds import ACTIVATION_LAYERS, KINDS, OF_ALL
from intervalcert.io.models.keras_values import DTYPES, mapping, sequence, shown

__all__ = ["KerasLayer", "layers_of"]

MAX_LAYERS = 1_000

_MODELS = {
    "Sequential": ("keras", "keras.models", "keras.src.models.sequential"),
    "Functional": ("keras", "keras.models", "keras.src.models.functional"),
}
_MODEL_KEYS = {"module", "class_name", "config", "registered_name", "build_config", "compile_config"}
_LAYER_KEYS = {"module", "class_name", "config", "registered_name", "build_config", "name", "inbound_nodes"}


@dataclass(frozen=True)
class KerasLayer:
    """One layer as config.json says it.

    built: the shape that it was built for, as it is said there. activation: a layer that is this one's activation.
    stored: the name of its group in model.weights.h5, empty for the input of a Sequential model.
    """

    name: str
    kind: str
    config: Mapping[str, Any]
    dtype: np.dtype[Any]
    built: object = None
    activation: KerasLayer | None = None
    stored: str = ""

    @property
    def where(self) -> str:
        return f"the layer {shown(self.name)} ({self.kind})"


def layers_of(document: object) -> list[KerasLayer]:
    """The layers in the order in which they are applied, the input first."""
    model = mapping(document, "config.json")
    kind = model.get("class_name")
    if not isinstance(kind, str) or model.get("module") not in _MODELS.get(kind, ()):
        raise InputError(
            f"a model of the class {shown(kind)} of {shown(model.get('module'))}: Sequential and Functional are "
            "read. What a class of your own computes is not in the file: build it of layers, or export it to ONNX"
        )
    _check_keys(model, _MODEL_KEYS, "the model")
    if model.get("registered_name") not in (None, kind):
        raise InputError(f"the model is registered as {shown(model['registered_name'])}, a class of your own")
    config = mapping(model.get("config"), "the configuration of the model")
    listed = sequence(config.get("layers"), "the list of layers")
    if not 2 <= len(listed) <= MAX_LAYERS:
        raise InputError(f"the model has {len(listed)} layers, with the input; 2 to {MAX_LAYERS} are read")
    layers = [_layer_of(item, f"layer {index}") for index, item in enumerate(listed)]
    _check_names(layers)
    _check_sharing(document, listed, layers)
    if kind == "Sequential":
        _check_keys(config, {"name", "trainable", "dtype", "layers", "build_input_shape"}, "the model")
        shape = config.get("build_input_shape")
        if shape is not None and shape != layers[0].config.get("batch_shape"):
            raise InputError(f"the model was built for inputs {shown(shape)}, but its first layer says another shape")
    else:
        _check_keys(config, {"name", "trainable", "layers", "input_layers", "output_layers"}, "the model")
        layers = _chained(layers, listed, config)
    for index, layer in enumerate(layers):
        if (layer.kind == "InputLayer") != (index == 0):
            raise InputError(
                f"{layer.where} is at place {index}: a model has one input, as its first layer (say keras.Input(shape))"
            )
    return _placed(layers, counted=kind == "Functional")


def _placed(layers: Sequence[KerasLayer], counted: bool) -> list[KerasLayer]:
    """As saving_lib._save_container_state names the groups: by class, whatever a layer is called.

    counted: whether the input is one of them.
    """
    used: dict[str, int] = {}
    placed = [] if counted else [layers[0]]
    for layer in layers[len(placed) :]:
        name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", layer.kind)
        name = re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()
        used[name] = used.get(name, -1) + 1
        placed.append(replace(layer, stored=f"{name}_{used[name]}" if used[name] else name))
    return placed


# -- one layer -------------------------------------------------------------------------------------------------------


def _check_keys(given: Mapping[str, Any], known: set[str] | frozenset[str], what: str) -> None:
    for key in given:
        if key not in known:
            raise InputError(f"{what} has {shown(key)}: {shown(given[key])}, and what that means is not known")


def _layer_of(value: object, place: str) -> KerasLayer:
    data = mapping(value, place)
    config = mapping(data.get("config"), f"the configuration of {place}")
    kind, name = data.get("class_name"), config.get("name")
    if not isinstance(name, str) or not isinstance(kind, str):
        raise InputError(f"{place} has the name {shown(name)} and the class {shown(kind)}: both must be texts")
    where = f"the layer {shown(name)} ({kind if kind.isidentifier() and len(kind) < 80 else shown(kind)})"
    _check_class(data, kind, where)
    _check_keys(data, _LAYER_KEYS | {"shared_object_id"}, where)
    rules = KINDS[kind]
    for key in sorted({"name", "dtype", *rules.needs} - set(config)):
        raise InputError(f"{where} does not say its {key!r}: save the model again, with Keras 3")
    for key, content in config.items():
        if key in rules.fixed and content is not rules.fixed[key]:
            raise InputError(f"{where} has {key}: {shown(content)}, which is not read: leave it out, or use ONNX")
    _check_keys(config, OF_ALL | rules.needs | rules.may | rules.ignored | set(rules.fixed), where)
    made = KerasLayer(name, kind, config, _dtype_of(config["dtype"], where), data.get("build_config"))
    match config.get("activation"):
        case {"class_name": str(inner)} if inner in ACTIVATION_LAYERS:
            with error_context(where):
                return replace(made, activation=_layer_of(config["activation"], "its activation"))
    return made


def _check_class(data: Mapping[str, Any], kind: str, where: str) -> None:
    if kind in {*_MODELS, "Model"}:
        raise InputError(f"{where} is a model within the model: build one model of the layers of both")
    module = data.get("module")
    if module == "keras.layers" and "Conv" in kind:
        raise InputError(f"{where}: convolutions are not read yet, only models of Dense layers are")
    if kind not in KINDS or module != "keras.layers" or data.get("registered_name") is not None:
        raise InputError(
            f"{where} of {shown(module)} is not read from .keras files (these are: {', '.join(KINDS)}): leave it out, "
            "or export the model to ONNX"
        )


def _dtype_of(policy: object, where: str) -> np.dtype[Any]:
    """Of all numbers of a layer: its variables, and what it computes with."""
    name = policy
    if isinstance(policy, dict):
        name = None
        if (
            policy.get("module") in ("keras", "keras.dtype_policies")
            and policy.get("class_name") in ("DTypePolicy", "FloatDTypePolicy")
            and policy.get("registered_name") is None
            and isinstance(policy.get("config"), dict)
            and set(policy["config"]) == {"name"}
        ):
            name = policy["config"]["name"]
    if not isinstance(name, str) or name not in DTYPES:
        raise InputError(
            f"{where} has the dtype {shown(policy)}: {', '.join(DTYPES)} are read (not mixed, not quantized)"
        )
    return DTYPES[name]


# -- all layers ------------------------------------------------------------------------------------------------------


def _check_names(layers: Sequence[KerasLayer]) -> None:
    seen: set[str] = set()
    for layer in layers:
        if layer.name in seen:
            raise InputError(f"two layers are called {shown(layer.name)}: which one is meant is not known")
        seen.add(layer.name)


def _check_sharing(document: object, listed: Sequence[Any], layers: Sequence[KerasLayer]) -> None:
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
                    raise InputError(f"a shared_object_id {shown(key)} that is no whole number")
                found.setdefault(key, []).append(item)
    applied = {id(item) for item in listed}
    functions = {id(layer.config["activation"]): layer.activation for layer in layers if layer.activation}
    for same in found.values():
        if len(same) == 1:
            continue
        if any(id(item) in applied for item in same):
            raise InputError("a layer is shared: it would be applied twice, and only chains of layers are read")
        if any(id(item) in functions for item in same):
            said = [_said(functions.get(id(item))) for item in same]
        elif any("Policy" in str(item.get("class_name")) for item in same):
            said = [[item.get(key) for key in ("module", "class_name", "config", "registered_name")] for item in same]
        else:
            continue  # of training
        if any(content != said[0] for content in said):
            raise InputError("different objects have the same shared_object_id: which one is meant is not known")


def _said(layer: KerasLayer | None) -> list[Any] | None:
    """All that a layer without variables computes depends on."""
    if layer is None:
        return None
    return [layer.kind, layer.dtype, {key: value for key, value in layer.config.items() if key != "dtype"}]


def _chained(layers: Sequence[KerasLayer], listed: Sequence[Any], config: Mapping[str, Any]) -> list[KerasLayer]:
    """The layers of a Functional model, if each is applied once, to what the one before gives."""
    after: dict[str, KerasLayer] = {}
    for layer, data in zip(layers, listed, strict=True):
        if data.get("name") != layer.name:
            raise InputError(f"{layer.where} is called {shown(data.get('name'))}, too")
        nodes = sequence(data.get("inbound_nodes"), f"the inbound_nodes of {layer.where}")
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
                f"{after[before].where} and {shown(layer.name)} both take what {shown(before)} gives: only chains of "
                "layers are read, without branches"
            )
        after[before] = layer
    first, last = (_end_of(config.get(key), key) for key in ("input_layers", "output_layers"))
    chain = [layer for layer in layers if layer.kind == "InputLayer"]
    if [layer.name for layer in chain] != [first]:
        names = ", ".join(shown(layer.name) for layer in chain[:5]) or "none"
        raise InputError(f"a model with one input is read; this one has {names}, and says that it is {shown(first)}")
    while chain[-1].name in after and len(chain) < len(layers):
        chain.append(after[chain[-1].name])
    if chain[-1].name != last or len(chain) != len(layers):
        reached = {layer.name for layer in chain}
        beside = next((f"; {layer.where} is not part of that" for layer in layers if layer.name not in reached), "")
        raise InputError(
            f"the layers after the input {shown(first)} lead to {shown(chain[-1].name)}, the output is "
            f"{shown(last)}{beside}: only chains of layers are read, without branches, loops or layers beside them"
        )
    return chain


def _source_of(node: object, layer: KerasLayer) -> str:
    what = f"the input of {layer.where}"
    given = mapping(node, what)
    _check_keys(given, {"args", "kwargs"}, what)
    for key, value in mapping(given.get("kwargs"), what).items():
        if not ((key in {"mask", "training"} and value is None) or (key == "training" and value is False)):
            raise InputError(f"{layer.where} is called with {shown(key)}: {shown(value)}, which is not read")
    match given.get("args"):
        case [{"class_name": "__keras_tensor__", "config": {"keras_history": history}}]:
            return _tensor_name(history, what)
    raise InputError(f"{what} is {shown(given.get('args'))}: only chains of layers are read, with one input each")


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
    raise InputError(f"{what} is {shown(value)}: only chains of layers are read, with one input and one output")
