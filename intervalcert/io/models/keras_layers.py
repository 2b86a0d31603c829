"""What the layers of a Keras model compute in inference, over the reals.

Weights are the numbers of the file, and constants of the configuration those that Keras makes of them
(`keras_values`). Settings of Keras that no file holds are taken to be the usual ones: images have their channels last,
and Normalization divides by no less than 1e-7.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from intervalcert.errors import InputError, error_context
from intervalcert.io.models.assembly import Assembly
from intervalcert.io.models.interface import Hints
from intervalcert.io.models.keras_config import KerasLayer
from intervalcert.io.models.keras_values import (
    Array,
    array,
    flag,
    number,
    numbers,
    parameter,
    rounded,
    sequence,
    shown,
    whole,
)
from intervalcert.io.models.keras_weights import Wanted, WeightStore
from intervalcert.io.models.tensors import Tensor
from intervalcert.model.arrays import MAX_ENTRIES
from intervalcert.model.network import Network

__all__ = ["network_of"]

FREE_INPUTS = 2**12
"""More inputs than that need weights for each of them in the file, two of at least two bytes."""

MAX_RANK = 16
"""Sizes of an array; numpy takes some more."""

_LEAST_STD = 1e-7  # keras.config.epsilon()

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

Shape = tuple[int, ...]


def network_of(layers: Sequence[KerasLayer], store: WeightStore, hints: Hints) -> Network:
    """The network that a chain of layers is, the input first."""
    first, *rest = layers
    with error_context(first.where):
        shape = _input_shape(first.config["batch_shape"], store.size)
    chain = _Chain(Assembly(math.prod(shape)), shape, store)
    store.check([layer for layer in layers if layer.stored])
    for layer in rest:
        if chain.softmax is not None:
            raise InputError(f"{chain.softmax} is a softmax before {layer.where}: it is read at the very end only")
        chain.apply(layer)
    if chain.softmax is not None and not hints.strip_softmax:
        raise InputError(
            f"{chain.softmax} is a softmax at the end, but margins live on the logits before it: say --strip-softmax"
        )
    return chain.assembly.network(shape, hints)


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


@dataclass
class _Chain:
    """The model so far. shape: of what the last layer gives, without the batch. softmax: what ended in one."""

    assembly: Assembly
    shape: Shape
    store: WeightStore
    softmax: str | None = None

    def apply(self, layer: KerasLayer) -> None:
        with error_context(layer.where):
            self._check_built(layer.built)
            _ACTS[layer.kind](self, layer)

    def _check_built(self, value: object) -> None:
        """Keras builds a layer for the shape that build_config says, and then applies it to what comes."""
        match value:
            case None:
                return
            case {"input_shape": [batch, *sizes], **rest} if not rest and (batch is None or type(batch) is int):
                if sizes == list(self.shape) and all(type(size) is int for size in sizes):
                    return
        raise InputError(f"it was built for {shown(value)}, but is applied to an input of shape {list(self.shape)}")

    def _spread(self, values: Tensor, shape: Shape | None = None) -> Tensor:
        """One number for each entry at this point, of an array that is broadcast (after it was given that shape)."""
        placed = values if shape is None else values.reshaped(shape)
        return placed.broadcast(self.shape).reshaped((self.assembly.width,))

    def _check_last(self, axis: object, what: str) -> None:
        """Whether it is the last one; the batch is the axis 0."""
        if whole(axis, "axis") not in {-1, len(self.shape)}:
            raise InputError(f"{what} the axis {axis}: only the last one is read")

    def _activate(self, layer: KerasLayer) -> None:
        """The activation of a layer: another layer, or a function of keras.activations with its defaults there."""
        name = layer.config["activation"]
        if layer.activation is not None:
            self.apply(layer.activation)
        elif name == "softmax":
            self._softmax(layer)
        elif name == "leaky_relu":
            self._leaky(0.2, layer)
        elif isinstance(name, str) and name in _FUNCTIONS:
            self.assembly.activate(_FUNCTIONS[name])
        elif name is not None:
            known = ", ".join((*_FUNCTIONS, "leaky_relu", "softmax"))
            raise InputError(
                f"the activation {shown(name)} is not read (these are: {known}): use one of them, or, if it is "
                "a layer, let it follow this one"
            )

    def _leaky(self, slope: object, layer: KerasLayer) -> None:
        value = parameter(slope, layer.dtype, "the negative slope")
        if not 0 <= value <= 1:
            raise InputError(f"the negative slope {shown(slope)} is not read: it must be in 0 … 1")
        self.assembly.activate(f"leaky_relu:{value}" if value else "relu")

    def _softmax(self, layer: KerasLayer) -> None:
        if self.shape[-1] != self.assembly.width:
            raise InputError(f"a softmax of each row of an array of shape {list(self.shape)} is not read")
        self.softmax = layer.where
        self.assembly.soften()

    def _tensor(self, values: Array, what: str) -> Tensor:
        with error_context(what):
            return self.assembly.tensor(values)

    # Each of these is one class of layers.

    def identity(self, layer: KerasLayer) -> None:
        """Also what only training changes."""

    def dense(self, layer: KerasLayer) -> None:
        units, width = whole(layer.config["units"], "units"), self.shape[-1]
        if width != self.assembly.width:
            raise InputError(
                f"it is applied to each row of an array of shape {list(self.shape)}: put a Flatten layer before it"
            )
        if not 0 < units <= MAX_ENTRIES // width:
            raise InputError(f"{units} units for {width} inputs: a layer has 1 to {MAX_ENTRIES} weights")
        kind = layer.dtype.name
        wanted: list[Wanted] = [("kernel", (width, units), kind)]
        if flag(layer.config["use_bias"], "use_bias"):
            wanted.append(("bias", (units,), kind))
        kernel, *bias = self.store.arrays(layer, wanted)
        weights = self._tensor(kernel, "its kernel").transposed((1, 0))
        self.assembly.affine(weights, self._tensor(bias[0], "its bias") if bias else None)
        self.shape = (*self.shape[:-1], units)
        self._activate(layer)

    def activation(self, layer: KerasLayer) -> None:
        self._activate(layer)

    def relu(self, layer: KerasLayer) -> None:
        slope, threshold = (number(layer.config[key], key) for key in ("negative_slope", "threshold"))
        most = layer.config["max_value"]
        if threshold or (slope and most is not None):
            raise InputError(
                f"a ReLU with threshold {threshold}, negative_slope {slope} and max_value {shown(most)} is not "
                "read: a slope or a max_value without the others is"
            )
        if most is None:
            self._leaky(slope, layer)
            return
        top = Fraction(float(rounded(numbers(number(most, "max_value"), ""), layer.dtype, "max_value")))
        if top < 0:
            raise InputError(f"max_value is {shown(most)}, below zero")
        self.assembly.activate(f"clip:0:{top}")

    def leaky_relu(self, layer: KerasLayer) -> None:
        self._leaky(layer.config["negative_slope"], layer)

    def elu(self, layer: KerasLayer) -> None:
        alpha = parameter(layer.config.get("alpha", 1.0), layer.dtype, "alpha")
        self.assembly.activate(f"elu:{alpha}")

    def apply_softmax(self, layer: KerasLayer) -> None:
        self._check_last(layer.config["axis"], "a softmax along")
        self._softmax(layer)

    def flatten(self, layer: KerasLayer) -> None:
        order = layer.config["data_format"]
        if order != "channels_last" and not (order == "channels_first" and len(self.shape) == 1):
            raise InputError(f"data_format {shown(order)} changes the order of the numbers: use channels_last")
        self.shape = (self.assembly.width,)

    def reshape(self, layer: KerasLayer) -> None:
        sizes = [whole(x, "a size") for x in sequence(layer.config["target_shape"], "target_shape")]
        width = self.assembly.width
        known = math.prod(x for x in sizes if x != -1)
        if sizes.count(-1) == 1 and known > 0:
            sizes[sizes.index(-1)] = width // known
        if not 0 < len(sizes) <= MAX_RANK or min(sizes) < 1 or math.prod(sizes) != width:
            raise InputError(f"{width} numbers of shape {list(self.shape)} do not have the shape {shown(sizes)}")
        self.shape = tuple(sizes)

    def rescaling(self, layer: KerasLayer) -> None:
        for key, act in (("scale", self.assembly.scale), ("offset", self.assembly.shift)):
            values = rounded(array(layer.config[key], key), layer.dtype, key)
            if values.ndim > len(self.shape):
                raise InputError(f"{key} has the shape {list(values.shape)}, but an input has {list(self.shape)}")
            with error_context(key):
                act(self._spread(self.assembly.tensor(values)))

    def normalization(self, layer: KerasLayer) -> None:
        """(x - mean)/max(sqrt(variance), 1e-7), and the maximum is the root of max(variance, 1e-14)."""
        kept = self._kept_axes(layer.config["axis"])
        sizes = tuple(self.shape[axis - 1] for axis in kept)
        mean, variance = self._statistics(layer, sizes)
        exact = [self._tensor(mean, "its mean"), self._tensor(variance, "its variance")]
        if (variance < 0).any():
            raise InputError("a variance below zero")
        squares = [Fraction(x) for x in variance.astype(np.float64).ravel().tolist()]
        with np.errstate(under="ignore"):
            least = [float(layer.dtype.type(_LEAST_STD)), float(layer.dtype.type(np.float32(_LEAST_STD)))]
        if min(squares) < Fraction(max(least)) ** 2:
            if least[0] != least[1]:
                raise InputError(f"a variance below {_LEAST_STD}² in a layer of {layer.dtype}: use float32")
            raised = [max(square, Fraction(least[0]) ** 2) for square in squares]
            exact[1] = Tensor.of_fractions(raised, variance.shape, self.assembly.budget)
        aligned = None if mean.ndim == 0 else tuple(n if i + 1 in kept else 1 for i, n in enumerate(self.shape))
        placed = [self._spread(x, aligned) for x in exact]
        one = self._spread(self.assembly.tensor(np.array(1)))
        self.assembly.batch_normalise(one, one - one, *placed)

    def _kept_axes(self, value: object) -> list[int]:
        """The axes with statistics of their own, counted from the batch, which is 0."""
        rank = len(self.shape) + 1
        listed = [] if value is None else value if isinstance(value, list) else [value]
        kept = sorted(axis + rank if axis < 0 else axis for axis in (whole(x, "axis") for x in listed))
        if len(set(kept)) < len(kept) or not all(0 < axis < rank for axis in kept):
            raise InputError(f"axis {shown(value)} of an array of shape {list(self.shape)} is not read")
        return kept

    def _statistics(self, layer: KerasLayer, sizes: Shape) -> tuple[Array, Array]:
        """Mean and variance, of the configuration or of the weights: one number, or an array of these sizes."""
        if layer.config["mean"] is None and layer.config["variance"] is None:
            kind = layer.dtype.name
            wanted = [("mean", sizes, kind), ("variance", sizes, kind), ("count", (), "int")]
            mean, variance, _ = self.store.arrays(layer, wanted)
            return mean, variance
        self.store.arrays(layer, [])
        mean, variance = (
            rounded(numbers(layer.config[key], f"its {key}"), layer.dtype, f"its {key}") for key in ("mean", "variance")
        )
        if mean.shape != variance.shape or mean.shape not in {(), sizes}:
            raise InputError(
                f"a mean of shape {list(mean.shape)} and a variance of shape {list(variance.shape)}, where one "
                f"number or an array of shape {list(sizes)} is expected for each"
            )
        return mean, variance

    def batch_normalization(self, layer: KerasLayer) -> None:
        """Inference: gamma·(x - mean)/sqrt(variance + epsilon) + beta along the last axis; in float32 or float64."""
        self._check_last(layer.config["axis"], "it acts along")
        flags = [flag(layer.config[key], key) for key in ("scale", "center")]
        names = [name for name, has in zip(("gamma", "beta"), flags, strict=True) if has]
        names += ["moving_mean", "moving_variance"]
        arrays = self.store.arrays(layer, [(name, self.shape[-1:], layer.dtype.name) for name in names])
        found = {name: self._tensor(values, f"its {name}") for name, values in zip(names, arrays, strict=True)}
        with np.errstate(over="ignore", under="ignore"):
            computed = np.promote_types(layer.dtype, np.float32)
            epsilon = np.array([number(layer.config["epsilon"], "epsilon")]).astype(computed)
        found["moving_variance"] += self._tensor(epsilon, "epsilon")
        one = self._spread(self.assembly.tensor(np.array(1)))
        placed = {name: self._spread(values) for name, values in found.items()}
        self.assembly.batch_normalise(
            placed.get("gamma", one), placed.get("beta", one - one), placed["moving_mean"], placed["moving_variance"]
        )


_ACTS: dict[str, Callable[[_Chain, KerasLayer], None]] = {
    "Dense": _Chain.dense,
    "Flatten": _Chain.flatten,
    "Reshape": _Chain.reshape,
    "Activation": _Chain.activation,
    "ReLU": _Chain.relu,
    "LeakyReLU": _Chain.leaky_relu,
    "ELU": _Chain.elu,
    "Softmax": _Chain.apply_softmax,
    "Rescaling": _Chain.rescaling,
    "Normalization": _Chain.normalization,
    "BatchNormalization": _Chain.batch_normalization,
    "Identity": _Chain.identity,
    "Dropout": _Chain.identity,
    "AlphaDropout": _Chain.identity,
    "GaussianDropout": _Chain.identity,
    "GaussianNoise": _Chain.identity,
    "ActivityRegularization": _Chain.identity,
}
