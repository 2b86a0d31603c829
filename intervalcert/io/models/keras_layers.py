"""What the layers of a Keras model compute in inference, over the reals.

Weights are the numbers of the file, and constants of the configuration those that Keras makes of them
(`keras_values`). Settings of Keras that no file holds are taken to be the usual ones: Normalization divides by no less
than 1e-7.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from intervalcert.errors import InputError, error_context
from intervalcert.io.models.assembly_graph import Graph
from intervalcert.io.models.assembly_grids import transposed
from intervalcert.io.models.interface import Hints
from intervalcert.io.models.keras_config import KerasLayer
from intervalcert.io.models.keras_functions import FUNCTION_ACTS, activate
from intervalcert.io.models.keras_images import IMAGE_ACTS
from intervalcert.io.models.keras_point import Act, Point
from intervalcert.io.models.keras_shapes import MAX_RANK, SHAPE_ACTS
from intervalcert.io.models.keras_values import (
    Array,
    array,
    flag,
    number,
    numbers,
    rounded,
    sequence,
    shown,
    whole,
)
from intervalcert.io.models.keras_weights import Wanted, WeightStore
from intervalcert.io.models.tensors import Tensor
from intervalcert.model.arrays import MAX_ENTRIES
from intervalcert.model.linear_maps import Shape
from intervalcert.model.network import Network

__all__ = ["network_of"]

FREE_INPUTS = 2**18
"""More inputs than that need weights for each of them in the file, two of at least two bytes."""

_LEAST_STD = 1e-7  # keras.config.epsilon()


def network_of(layers: Sequence[KerasLayer], store: WeightStore, hints: Hints) -> Network:
    """The network that a graph of layers is, the input first and the output last."""
    first, *rest = layers
    with error_context(first.where):
        shape = _input_shape(first.config["batch_shape"], store.size)
    graph = Graph(shape)
    store.check([layer for layer in layers if layer.stored])
    points = {first.name: Point(graph, store, graph.input)}
    for layer in rest:
        points[layer.name] = _applied(layer, [points[name] for name in layer.sources])
    last = points[layers[-1].name]
    if last.softmax is not None and not hints.strip_softmax:
        raise InputError(
            f"{last.softmax} is a softmax at the end, but margins live on the logits before it: say --strip-softmax"
        )
    return graph.network(last.value, shape, hints)


def _applied(layer: KerasLayer, taken: Sequence[Point]) -> Point:
    """What a layer gives."""
    for source in taken:
        if source.softmax is not None:
            raise InputError(f"{source.softmax} is a softmax before {layer.where}: it is read at the very end only")
    first, *others = taken
    point = Point(first.graph, first.store, first.value, tuple(other.value for other in others))
    point.graph.where = layer.where
    with error_context(layer.where):
        point.check_built(layer.built)
        return _ACTS[layer.kind](point, layer)


def _input_shape(value: object, stored_bytes: int) -> Shape:
    sizes = sequence(value, "batch_shape")[1:]
    if not 0 < len(sizes) <= MAX_RANK or None in sizes:
        raise InputError(
            f"batch_shape is {shown(value)}: every size but the first, of the batch, must be known; there are 1 to "
            f"{MAX_RANK} of them"
        )
    shape = tuple(whole(size, "a size of batch_shape") for size in sizes)
    if min(shape) < 1 or math.prod(shape) > max(FREE_INPUTS, min(stored_bytes // 4, MAX_ENTRIES)):
        raise InputError(f"an input has the shape {shown(list(shape))}: the file has no weights for that many numbers")
    return shape


def _identity(point: Point, _: KerasLayer) -> Point:
    """Also what only training changes."""
    return point


def _dense(point: Point, layer: KerasLayer) -> Point:
    units, width = whole(layer.config["units"], "units"), point.shape[-1]
    if width != point.width:
        raise InputError(
            f"it is applied to each row of an array of shape {list(point.shape)}: put a Flatten layer before it"
        )
    if not 0 < units <= MAX_ENTRIES // width:
        raise InputError(f"{units} units for {width} inputs: a layer has 1 to {MAX_ENTRIES} weights")
    kind = layer.dtype.name
    wanted: list[Wanted] = [("kernel", (width, units), kind)]
    if flag(layer.config["use_bias"], "use_bias"):
        wanted.append(("bias", (units,), kind))
    kernel, *bias = point.store.arrays(layer, wanted)
    weights = point.tensor(kernel, "its kernel").transposed((1, 0))
    value = point.graph.affine(point.value, weights, point.tensor(bias[0], "its bias") if bias else None)
    return activate(point.at(value, (*point.shape[:-1], units)), layer)


def _rescaling(point: Point, layer: KerasLayer) -> Point:
    for key, act in (("scale", point.graph.scale), ("offset", point.graph.shift)):
        values = rounded(array(layer.config[key], key), layer.dtype, key)
        if values.ndim > len(point.shape):
            raise InputError(f"{key} has the shape {list(values.shape)}, but an input has {list(point.shape)}")
        with error_context(key):
            point = point.at(act(point.value, point.spread(point.graph.tensor(values))))
    return point


def _normalization(point: Point, layer: KerasLayer) -> Point:
    """(x - mean)/max(sqrt(variance), 1e-7), and the maximum is the root of max(variance, 1e-14)."""
    kept = _kept_axes(point, layer.config["axis"])
    sizes = tuple(point.shape[axis - 1] for axis in kept)
    mean, variance = _statistics(point, layer, sizes)
    exact = [point.tensor(mean, "its mean"), point.tensor(variance, "its variance")]
    if (variance < 0).any():
        raise InputError("a variance below zero")
    squares = [Fraction(x) for x in variance.astype(np.float64).ravel().tolist()]
    with np.errstate(under="ignore"):
        least = [float(layer.dtype.type(_LEAST_STD)), float(layer.dtype.type(np.float32(_LEAST_STD)))]
    if min(squares) < Fraction(max(least)) ** 2:
        if least[0] != least[1]:
            raise InputError(f"a variance below {_LEAST_STD}² in a layer of {layer.dtype}: use float32")
        raised = [max(square, Fraction(least[0]) ** 2) for square in squares]
        exact[1] = Tensor.of_fractions(raised, variance.shape, point.graph.budget)
    aligned = None if mean.ndim == 0 else tuple(n if i + 1 in kept else 1 for i, n in enumerate(point.shape))
    placed = [point.spread(x, aligned) for x in exact]
    one = point.spread(point.graph.tensor(np.array(1)))
    return point.at(point.graph.batch_normalise(point.value, one, one - one, *placed))


def _kept_axes(point: Point, value: object) -> list[int]:
    """The axes with statistics of their own, counted from the batch, which is 0."""
    rank = len(point.shape) + 1
    listed = [] if value is None else value if isinstance(value, list) else [value]
    kept = sorted(axis + rank if axis < 0 else axis for axis in (whole(x, "axis") for x in listed))
    if len(set(kept)) < len(kept) or not all(0 < axis < rank for axis in kept):
        raise InputError(f"axis {shown(value)} of an array of shape {list(point.shape)} is not read")
    return kept


def _statistics(point: Point, layer: KerasLayer, sizes: Shape) -> tuple[Array, Array]:
    """Mean and variance, of the configuration or of the weights: one number, or an array of these sizes."""
    if layer.config["mean"] is None and layer.config["variance"] is None:
        kind = layer.dtype.name
        wanted = [("mean", sizes, kind), ("variance", sizes, kind), ("count", (), "int")]
        mean, variance, _ = point.store.arrays(layer, wanted)
        return mean, variance
    point.store.arrays(layer, [])
    mean, variance = (
        rounded(numbers(layer.config[key], f"its {key}"), layer.dtype, f"its {key}") for key in ("mean", "variance")
    )
    if mean.shape != variance.shape or mean.shape not in {(), sizes}:
        raise InputError(
            f"a mean of shape {list(mean.shape)} and a variance of shape {list(variance.shape)}, where one "
            f"number or an array of shape {list(sizes)} is expected for each"
        )
    return mean, variance


def _batch_normalization(point: Point, layer: KerasLayer) -> Point:
    """Inference: gamma·(x - mean)/sqrt(variance + epsilon) + beta along an axis; in float32 or float64."""
    axis = point.axis_of(layer.config["axis"], "it acts along")
    flags = [flag(layer.config[key], key) for key in ("scale", "center")]
    names = [name for name, has in zip(("gamma", "beta"), flags, strict=True) if has]
    names += ["moving_mean", "moving_variance"]
    arrays = point.store.arrays(layer, [(name, (point.shape[axis],), layer.dtype.name) for name in names])
    found = {name: point.tensor(values, f"its {name}") for name, values in zip(names, arrays, strict=True)}
    with np.errstate(over="ignore", under="ignore"):
        computed = np.promote_types(layer.dtype, np.float32)
        epsilon = np.array([number(layer.config["epsilon"], "epsilon")]).astype(computed)
    found["moving_variance"] += point.tensor(epsilon, "epsilon")
    one = point.graph.tensor(np.array([1]))
    others = [i for i in range(len(point.shape)) if i != axis]
    moved = transposed(point.graph, point.value, [axis, *others])
    gamma, beta = found.get("gamma", one), found.get("beta", one - one)
    value = point.graph.batch_normalise(moved, gamma, beta, found["moving_mean"], found["moving_variance"])
    return point.at(transposed(point.graph, value, np.argsort([axis, *others]).tolist()))


_ACTS: dict[str, Act] = {
    "Dense": _dense,
    "Rescaling": _rescaling,
    "Normalization": _normalization,
    "BatchNormalization": _batch_normalization,
    **SHAPE_ACTS,
    **FUNCTION_ACTS,
    **IMAGE_ACTS,
    **dict.fromkeys(
        ("Identity", "Dropout", "AlphaDropout", "GaussianDropout", "GaussianNoise", "ActivityRegularization"), _identity
    ),
}
