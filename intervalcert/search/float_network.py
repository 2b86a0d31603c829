"""A network in plain float64: values and gradients for those who guess. Nothing is proved of any of them.

Whoever searches (for a chain that is worth a proof, for an input that changes the winner) asks here; whoever proves
asks `model.evaluation`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from intervalcert.backends.protocol import Floats
from intervalcert.model.activations import Activation
from intervalcert.model.layers import UncertainScale
from intervalcert.model.network import Network
from intervalcert.numbers.matrices import NearFloats, RationalMatrix

__all__ = ["FloatLayer", "FloatNetwork"]


@dataclass(frozen=True, eq=False)
class FloatLayer:
    """Columns x -> f(W·x + bias) + shift. weights: near the exact ones, on a scale on which they do not overflow."""

    weights: NearFloats
    bias: Floats | None
    activation: Activation | None
    shift: Floats | None

    def product(self, x: Floats) -> Floats:
        """W·x."""
        return _ldexp(self.weights.values @ x, self.weights.exponent)

    def transposed_product(self, g: Floats) -> Floats:
        """Wᵀ·g."""
        return _ldexp(self.weights.values.T @ g, self.weights.exponent)

    def slopes(self, inner: Floats) -> Floats:
        """Of the activation at W·x + bias."""
        return np.ones(inner.shape) if self.activation is None else self.activation.float_slopes(inner)


@dataclass(frozen=True, eq=False)
class FloatNetwork:
    """Inputs and values are columns, as many as one likes; factors of uncertain scales are taken to be 1."""

    layers: tuple[FloatLayer, ...]
    shift: Floats | None = None

    @staticmethod
    def of(network: Network) -> FloatNetwork:
        layers = []
        for layer in network.layers:
            bias = _sum(_offset(layer.before), None if layer.bias is None else _floats(layer.bias))
            layers.append(FloatLayer(layer.weights.near_floats(), bias, layer.activation, _offset(layer.after)))
        return FloatNetwork(tuple(layers), _offset(network.uncertain_input_scale))

    def before_activations(self, inputs: Floats) -> list[Floats]:
        """W·x + b of each layer, the last one the logits. inputs: of the first layer (`Network.entered`)."""
        x = _plus(inputs, self.shift)
        found = []
        for layer in self.layers:
            x = _plus(layer.product(x), layer.bias)
            found.append(x)
            if layer.activation is not None:
                x = _plus(layer.activation.float_values(x), layer.shift)
        return found

    def logits(self, inputs: Floats) -> Floats:
        return self.before_activations(inputs)[-1]

    def gradients(self, inner: Sequence[Floats], directions: Floats) -> Floats:
        """Of <direction, logits> by the inputs, in columns, where the hidden layers have these inner values.

        inner: W·x + b of each hidden layer: one column for each direction, or one for all of them.
        """
        g = self.layers[-1].transposed_product(directions)
        for layer, z in zip(reversed(self.layers[:-1]), reversed(inner), strict=True):
            g = layer.transposed_product(layer.slopes(z) * g)
        return g

    def leads(self, winner: int) -> Floats:
        """The leads of one class over the others, in their order, as columns that the last layer's inputs meet."""
        last = _ldexp(self.layers[-1].weights.values, self.layers[-1].weights.exponent)
        found: Floats = np.delete(last[winner] - last, winner, axis=0).T
        return found

    def lead_gradient_lengths(self, inner: Sequence[Floats], winner: int) -> Floats:
        """Of the gradients of those leads by the inputs, where the hidden layers have these inner values (one column).

        By the Gram matrix of the first layer, ||W_1ᵀ·g||² = gᵀ·W_1·W_1ᵀ·g: where inputs are many, that is shorter.
        """
        g = self.leads(winner)
        hidden = self.layers[:-1]
        if not hidden:
            lengths: Floats = np.sqrt((g * g).sum(axis=0))
            return lengths
        for layer, z in zip(hidden[:0:-1], inner[:0:-1], strict=True):
            g = layer.transposed_product(layer.slopes(z) * g)
        g = hidden[0].slopes(inner[0]) * g
        squares = (g * (self.first_gram @ g)).sum(axis=0)
        return _ldexp(np.sqrt(np.maximum(squares, 0.0)), hidden[0].weights.exponent)

    @cached_property
    def first_gram(self) -> Floats:
        """W·Wᵀ of the first layer's `values`, without its exponent."""
        first = self.layers[0].weights.values
        gram: Floats = first @ first.T
        return gram


def _ldexp(x: Floats, exponent: int) -> Floats:
    return np.ldexp(x, exponent) if exponent else x


def _floats(column: RationalMatrix) -> Floats:
    near = column.near_floats()
    with np.errstate(over="ignore", under="ignore"):  # what is beyond the floats is infinite, or nothing
        return _ldexp(near.values, near.exponent)


def _offset(uncertain: UncertainScale | None) -> Floats | None:
    return None if uncertain is None or uncertain.offset is None else _floats(uncertain.offset)


def _sum(x: Floats | None, y: Floats | None) -> Floats | None:
    return y if x is None else _plus(x, y)


def _plus(x: Floats, column: Floats | None) -> Floats:
    return x if column is None else x + column
