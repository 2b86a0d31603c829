"""The activations of Keras layers: functions by their names, and layers of their own."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from intervalcert.errors import InputError, error_context
from intervalcert.io.models.keras_config import KerasLayer
from intervalcert.io.models.keras_point import Act, Point
from intervalcert.io.models.keras_values import number, numbers, parameter, rounded, shown, whole

__all__ = ["FUNCTION_ACTS", "activate"]

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


def activate(point: Point, layer: KerasLayer) -> Point:
    """The activation of a layer: another layer, or a function of keras.activations with its defaults there."""
    name = layer.config["activation"]
    if layer.activation is not None:
        inner = layer.activation
        with error_context(inner.where):
            point.check_built(inner.built)
            return FUNCTION_ACTS[inner.kind](point, inner)
    if name is None:
        return point
    if name == "softmax":
        return _softened(point, layer)
    if name == "leaky_relu":
        return _leaky(point, 0.2, layer)
    if isinstance(name, str) and name in _FUNCTIONS:
        return point.activated(_FUNCTIONS[name])
    known = ", ".join((*_FUNCTIONS, "leaky_relu", "softmax"))
    raise InputError(
        f"the activation {shown(name)} is not read (these are: {known}): use one of them, or, if it is "
        "a layer, let it follow this one"
    )


def _leaky(point: Point, slope: object, layer: KerasLayer) -> Point:
    value = parameter(slope, layer.dtype, "the negative slope")
    if not 0 <= value <= 1:
        raise InputError(f"the negative slope {shown(slope)} is not read: it must be in 0 … 1")
    return point.activated(f"leaky_relu:{value}" if value else "relu")


def _softened(point: Point, layer: KerasLayer) -> Point:
    if point.shape[-1] != point.width:
        raise InputError(f"a softmax of each row of an array of shape {list(point.shape)} is not read")
    return replace(point.at(point.graph.soften(point.value)), softmax=layer.where)


def _relu(point: Point, layer: KerasLayer) -> Point:
    slope, threshold = (number(layer.config[key], key) for key in ("negative_slope", "threshold"))
    most = layer.config["max_value"]
    if threshold or (slope and most is not None):
        raise InputError(
            f"a ReLU with threshold {threshold}, negative_slope {slope} and max_value {shown(most)} is not "
            "read: a slope or a max_value without the others is"
        )
    if most is None:
        return _leaky(point, slope, layer)
    top = Fraction(float(rounded(numbers(number(most, "max_value"), ""), layer.dtype, "max_value")))
    if top < 0:
        raise InputError(f"max_value is {shown(most)}, below zero")
    return point.activated(f"clip:0:{top}")


def _leaky_relu(point: Point, layer: KerasLayer) -> Point:
    return _leaky(point, layer.config["negative_slope"], layer)


def _elu(point: Point, layer: KerasLayer) -> Point:
    return point.activated(f"elu:{parameter(layer.config.get('alpha', 1.0), layer.dtype, 'alpha')}")


def _softmax(point: Point, layer: KerasLayer) -> Point:
    axis = layer.config["axis"]
    if whole(axis, "axis") not in {-1, len(point.shape)}:
        raise InputError(f"a softmax along the axis {axis}: only the last one is read")
    return _softened(point, layer)


FUNCTION_ACTS: dict[str, Act] = {
    "Activation": activate,
    "ReLU": _relu,
    "LeakyReLU": _leaky_relu,
    "ELU": _elu,
    "Softmax": _softmax,
}
