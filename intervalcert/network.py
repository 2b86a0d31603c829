"""A frozen description of a model: affine layers with activations between them. No files, no arithmetic.

Layer l computes activation(W·x + b), the last one W·x + b alone: its outputs are the logits. W is outputs x inputs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from intervalcert.activations import Activation, activation
from intervalcert.errors import InputError
from intervalcert.rational import RationalMatrix, as_row, as_rows, plain_array

__all__ = ["Layer", "Network", "Source", "exact_bias", "exact_matrix"]


MAX_CLASSES = 1_024
"""Margins are kept for each pair of classes: half a million pairs are the limit."""

MAX_ENTRIES = 2**26
"""Weights of one layer. As exact integers they take some 40 bytes each."""


@dataclass(frozen=True)
class Source:
    """Where a model came from: a file's name (without folders) and the sha256 of its bytes."""

    name: str
    sha256: str


@dataclass(frozen=True)
class Layer:
    """weights: outputs x inputs; bias: one column, or None for zero; activation: None after the last layer."""

    weights: RationalMatrix
    bias: RationalMatrix | None
    activation: Activation | None


@dataclass(frozen=True)
class Network:
    """A non-empty chain of layers that fit each other.

    Invariants, checked on construction: the columns of each layer are the rows of the one before; biases have one entry
    per row; every layer but the last has an activation, the last has none; at least two outputs.
    """

    layers: tuple[Layer, ...]
    sources: tuple[Source, ...]

    def __post_init__(self) -> None:
        if not self.layers:
            raise InputError("the model has no layers")
        for index, layer in enumerate(self.layers):
            rows, columns = layer.weights.shape
            if index and columns != self.layers[index - 1].weights.shape[0]:
                raise InputError(
                    f"layer {index} takes {columns} inputs, but layer {index - 1} gives "
                    f"{self.layers[index - 1].weights.shape[0]} outputs (weights are outputs x inputs; the text format "
                    "is written inputs x outputs)"
                )
            if layer.bias is not None and layer.bias.shape != (rows, 1):
                raise InputError(f"layer {index} has {rows} outputs, but {layer.bias.shape[0]} biases")
            if (layer.activation is None) != (index == len(self.layers) - 1):
                raise InputError(f"layer {index}: every layer but the last has an activation, the last has none")
        if self.outputs > MAX_CLASSES:
            raise InputError(f"the model has {self.outputs} outputs; margins are computed for at most {MAX_CLASSES}")
        if self.outputs < 2:
            raise InputError("the model has a single output: there is no other class to be told apart from")

    @property
    def inputs(self) -> int:
        return self.layers[0].weights.shape[1]

    @property
    def outputs(self) -> int:
        return self.layers[-1].weights.shape[0]

    @property
    def activations(self) -> tuple[str | None, ...]:
        """The name of each layer's activation; None for the last."""
        return tuple(None if layer.activation is None else layer.activation.name for layer in self.layers)

    @staticmethod
    def of(
        weights: Sequence[RationalMatrix],
        biases: Sequence[RationalMatrix | None] | None = None,
        *,
        between: str = "relu",
        sources: Sequence[Source] = (),
    ) -> Network:
        """A chain with the same activation between all layers. Without sources its own content identifies it."""
        if biases is not None and len(biases) != len(weights):
            raise InputError(f"{len(weights)} layers, but {len(biases)} bias vectors: there must be one per layer")
        function = activation(between)
        last = len(weights) - 1
        layers = tuple(
            Layer(w, biases[i] if biases is not None else None, function if i < last else None)
            for i, w in enumerate(weights)
        )
        return Network(layers, tuple(sources) or (_content(layers),))

    @staticmethod
    def from_arrays(
        weights: Sequence[npt.ArrayLike], biases: Sequence[npt.ArrayLike | None] | None = None, *, between: str = "relu"
    ) -> Network:
        """From numpy arrays or lists of rows (outputs x inputs), each entry taken at its exact value."""
        return Network.of(
            [exact_matrix(w, f"the weights of layer {i}") for i, w in enumerate(weights)],
            None
            if biases is None
            else [None if b is None else exact_bias(b, f"the bias of layer {i}") for i, b in enumerate(biases)],
            between=between,
        )


def exact_matrix(values: npt.ArrayLike, what: str) -> RationalMatrix:
    """A two-dimensional array of finite floats (16, 32, 64 bits) or integers, or a list of rows, as exact rationals."""
    array = plain_array(values)
    if array is None:
        return RationalMatrix.from_fractions(as_rows(values, what))
    if array.dtype.kind not in "fiu" or array.dtype.itemsize > 8:
        raise InputError(f"{what}: numbers of type {array.dtype} (float16, float32, float64 or integers are read)")
    if array.ndim != 2 or 0 in array.shape:
        raise InputError(f"{what}: an array of shape {array.shape} where a non-empty matrix is expected")
    if array.size > MAX_ENTRIES:
        raise InputError(f"{what}: {array.size} numbers; at most {MAX_ENTRIES} are held as exact ones")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        row, column = np.argwhere(~np.isfinite(array))[0]
        raise InputError(f"{what}: {array[row, column]} in row {row}, column {column}; every number must be finite")
    return RationalMatrix.from_floats(array)


def exact_bias(values: npt.ArrayLike, what: str) -> RationalMatrix:
    """A vector of biases as one exact column."""
    array = plain_array(values)
    if array is None:
        return RationalMatrix.from_fractions([as_row(values, what)]).transposed()
    if array.ndim != 1:
        raise InputError(f"{what}: an array of shape {array.shape} where a vector is expected")
    return exact_matrix(array[:, None], what)


def _content(layers: Sequence[Layer]) -> Source:
    """Identifies a network that came from no file by its exact numbers."""
    digest = hashlib.sha256()
    for layer in layers:
        for part in (layer.weights, layer.bias):
            if part is None:
                digest.update(b"none;")
                continue
            lowest = (Fraction(n, part.denominator) for n in part.numerators.ravel().tolist())
            numbers = ",".join(f"{x.numerator:x}/{x.denominator:x}" for x in lowest)
            digest.update(f"{part.shape}:{numbers};".encode())
        digest.update(f"{layer.activation and layer.activation.name}|".encode())
    return Source("(in memory)", digest.hexdigest())
