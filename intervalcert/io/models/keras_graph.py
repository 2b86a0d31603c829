"""config.json of a Keras model -> its layers, each after those that it takes, in the order that Keras gives them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from intervalcert.errors import InputError
from intervalcert.io.models.keras_config import MODELS, KerasLayer, check_keys, layer_of
from intervalcert.io.models.keras_kinds import MERGES
from intervalcert.io.models.keras_values import mapping, sequence, shown

__all__ = ["layers_of"]

MAX_LAYERS = 1_000

_MODEL_KEYS = {"module", "class_name", "config", "registered_name", "build_config", "compile_config"}


def layers_of(document: object) -> list[KerasLayer]:
    """Each after those that it takes: the input first, and the output last."""
    model = mapping(document, "config.json")
    kind = model.get("class_name")
    if not isinstance(kind, str) or model.get("module") not in MODELS.get(kind, ()):
        raise InputError(
            f"a model of the class {shown(kind)} of {shown(model.get('module'))}: Sequential and Functional are "
            "read. What a class of your own computes is not in the file: build it of layers, or export it to ONNX"
        )
    check_keys(model, _MODEL_KEYS, "the model")
    if model.get("registered_name") not in (None, kind):
        raise InputError(f"the model is registered as {shown(model['registered_name'])}, a class of your own")
    config = mapping(model.get("config"), "the configuration of the model")
    listed = sequence(config.get("layers"), "the list of layers")
    if not 2 <= len(listed) <= MAX_LAYERS:
        raise InputError(f"the model has {len(listed)} layers, with the input; 2 to {MAX_LAYERS} are read")
    layers = [layer_of(item, f"layer {index}") for index, item in enumerate(listed)]
    _check_names(layers)
    _check_sharing(document, listed, layers)
    if kind == "Sequential":
        check_keys(config, {"name", "trainable", "dtype", "layers", "build_input_shape"}, "the model")
        shape = config.get("build_input_shape")
        if shape is not None and shape != layers[0].config.get("batch_shape"):
            raise InputError(f"the model was built for inputs {shown(shape)}, but its first layer says another shape")
        layers = _chain(layers)
    else:
        check_keys(config, {"name", "trainable", "layers", "input_layers", "output_layers"}, "the model")
        layers = _graph(layers, listed, config)
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
            raise InputError(
                "a layer is shared: it would be applied twice, and only layers that are applied once are read"
            )
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


# -- what takes what -------------------------------------------------------------------------------------------------


def _chain(layers: Sequence[KerasLayer]) -> list[KerasLayer]:
    """The layers of a Sequential model."""
    for layer in layers:
        if layer.kind in MERGES:
            raise InputError(f"{layer.where} is applied to one array, where a list of them is expected")
    return [layers[0], *(replace(layer, sources=(before.name,)) for before, layer in pairwise(layers))]


def _graph(layers: Sequence[KerasLayer], listed: Sequence[Any], config: Mapping[str, Any]) -> list[KerasLayer]:
    """The layers of a Functional model, if each is applied once, and all of them are needed for the output."""
    known = {
        layer.name: replace(layer, sources=_sources(layer, data)) for layer, data in zip(layers, listed, strict=True)
    }
    first, last = (_end_of(config.get(key), key) for key in ("input_layers", "output_layers"))
    inputs = [layer.name for layer in layers if layer.kind == "InputLayer"]
    if inputs != [first]:
        names = ", ".join(map(shown, inputs[:5])) or "none"
        raise InputError(f"a model with one input is read; this one has {names}, and says that it is {shown(first)}")
    ordered = _in_order(known, last)
    for layer in layers:
        if layer.name not in ordered:
            raise InputError(
                f"the output is {shown(last)}; {layer.where} is not part of that: only graphs without loops or layers "
                "beside them are read"
            )
    taken = [name for layer in known.values() for name in layer.sources]
    branches = len(set(taken)) < len(taken) or any(len(layer.sources) > 1 for layer in known.values())
    if branches and ordered != list(known):
        raise InputError(
            "the layers are not listed in the order in which Keras lists them: which weights belong to "
            "which of them is not known"
        )
    return [known[name] for name in ordered]


def _in_order(known: Mapping[str, KerasLayer], last: str) -> list[str]:
    """As keras.src.ops.function.map_graph: by the longest way to the output, and by when a search from it meets them.

    Raises: InputError for a cycle, or for a source that is not there.
    """
    met: dict[str, int] = {}
    done: dict[str, None] = {}
    pending: list[tuple[str, bool]] = [(last, False)]
    while pending:
        name, is_left = pending.pop()
        if is_left:
            done[name] = None
        elif name not in known or (name in met and name not in done):
            raise InputError(
                f"the output {shown(last)} needs what {shown(name)} gives, which is not there, or needs itself: only "
                "graphs without loops or layers beside them are read"
            )
        elif name not in done:
            met[name] = len(met)
            pending += [(name, True), *((source, False) for source in reversed(known[name].sources))]
    depth = dict.fromkeys(done, 0)
    for name in reversed(done):
        for source in known[name].sources:
            depth[source] = max(depth[source], depth[name] + 1)
    return sorted(done, key=lambda name: (-depth[name], met[name]))


def _sources(layer: KerasLayer, data: Mapping[str, Any]) -> tuple[str, ...]:
    """The layers that it takes; none for an input."""
    if data.get("name") != layer.name:
        raise InputError(f"{layer.where} is called {shown(data.get('name'))}, too")
    nodes = sequence(data.get("inbound_nodes"), f"the inbound_nodes of {layer.where}")
    if layer.kind == "InputLayer":
        if nodes:
            raise InputError(f"{layer.where} has an input itself")
        return ()
    if len(nodes) != 1:
        raise InputError(f"{layer.where} is applied {len(nodes)} times: only layers that are applied once are read")
    what = f"the input of {layer.where}"
    given = mapping(nodes[0], what)
    check_keys(given, {"args", "kwargs"}, what)
    for key, value in mapping(given.get("kwargs"), what).items():
        if not ((key in {"mask", "training"} and value is None) or (key == "training" and value is False)):
            raise InputError(f"{layer.where} is called with {shown(key)}: {shown(value)}, which is not read")
    match given.get("args"):
        case [list(several)] if layer.kind in MERGES and several:
            return tuple(_source(one, what) for one in several)
        case [one] if layer.kind not in MERGES:
            return (_source(one, what),)
    count = "a list of inputs" if layer.kind in MERGES else "one input each"
    raise InputError(f"{what} is {shown(given.get('args'))}: such layers are read with {count}")


def _source(value: object, what: str) -> str:
    match value:
        case {"class_name": "__keras_tensor__", "config": {"keras_history": history}}:
            return _tensor_name(history, what)
    raise InputError(f"{what} is {shown(value)}, where what a layer gives is expected, with one input each")


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
    raise InputError(
        f"{what} is {shown(value)}: models are read with one input and one output, of layers that are applied once"
    )
