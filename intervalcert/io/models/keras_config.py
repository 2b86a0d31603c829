"""One layer in config.json of a Keras model.

Nothing of it is run. Classes, keys and values whose meaning is exactly known are read; everything else is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from intervalcert.errors import InputError, error_context
from intervalcert.io.models.keras_kinds import ACTIVATION_LAYERS, KINDS, OF_ALL
from intervalcert.io.models.keras_values import DTYPES, mapping, shown

__all__ = ["MODELS", "KerasLayer", "check_keys", "layer_of"]

MODELS = {
    "Sequential": ("keras", "keras.models", "keras.src.models.sequential"),
    "Functional": ("keras", "keras.models", "keras.src.models.functional"),
}
_KEYS = {"module", "class_name", "config", "registered_name", "build_config", "name", "inbound_nodes"}


@dataclass(frozen=True)
class KerasLayer:
    """One layer as config.json says it.

    built: the shape that it was built for, as it is said there. activation: a layer that is this one's activation.
    stored: the name of its group in model.weights.h5, empty for the input of a Sequential model.
    sources: the names of the layers that it takes.
    """

    name: str
    kind: str
    config: Mapping[str, Any]
    dtype: np.dtype[Any]
    built: object = None
    activation: KerasLayer | None = None
    stored: str = ""
    sources: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        return f"the layer {shown(self.name)} ({self.kind})"


def check_keys(given: Mapping[str, Any], known: AbstractSet[str], what: str) -> None:
    for key in given:
        if key not in known:
            raise InputError(f"{what} has {shown(key)}: {shown(given[key])}, and what that means is not known")


def layer_of(value: object, place: str) -> KerasLayer:
    data = mapping(value, place)
    config = mapping(data.get("config"), f"the configuration of {place}")
    kind, name = data.get("class_name"), config.get("name")
    if not isinstance(name, str) or not isinstance(kind, str):
        raise InputError(f"{place} has the name {shown(name)} and the class {shown(kind)}: both must be texts")
    where = f"the layer {shown(name)} ({kind if kind.isidentifier() and len(kind) < 80 else shown(kind)})"
    _check_class(data, kind, where)
    check_keys(data, _KEYS | {"shared_object_id"}, where)
    rules = KINDS[kind]
    for key in sorted({"name", "dtype", *rules.needs} - set(config)):
        raise InputError(f"{where} does not say its {key!r}: save the model again, with Keras 3")
    for key, content in config.items():
        if key in rules.fixed and content is not rules.fixed[key]:
            raise InputError(f"{where} has {key}: {shown(content)}, which is not read: leave it out, or use ONNX")
    check_keys(config, OF_ALL | rules.needs | rules.may | rules.ignored | set(rules.fixed), where)
    made = KerasLayer(name, kind, config, _dtype_of(config["dtype"], where), data.get("build_config"))
    match config.get("activation"):
        case {"class_name": str(inner)} if inner in ACTIVATION_LAYERS:
            with error_context(where):
                return replace(made, activation=layer_of(config["activation"], "its activation"))
    return made


def _check_class(data: Mapping[str, Any], kind: str, where: str) -> None:
    if kind in {*MODELS, "Model"}:
        raise InputError(f"{where} is a model within the model: build one model of the layers of both")
    module = data.get("module")
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
