"""A network in plain float64: values and gradients for those who guess. Nothing is proved of any of them.

Whoever searches (for a chain that is worth a proof, for an input that changes the winner) asks here; whoever proves
asks `model.evaluation`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add

import numpy as np

from intervalcert.backends.protocol import Floats
from intervalcert.model.activations import Activation
from intervalcert.model.layers import INPUT, UncertainScale
from intervalcert.model.linear_maps import FloatMap
from intervalcert.model.network import Network
from intervalcert.numbers.matrices import NearFloats, RationalMatrix

__all__ = ["FloatBranch", "FloatLayer", "FloatNetwork"]


@dataclass(frozen=True, eq=False)
class FloatBranch:
    """Columns x of a source -> T·x. The map is on a scale on which its numbers do not overflow."""

    source: int
    map: FloatMap

    def product(self, x: Floats) -> Floats:
        """T·x."""
        return _ldexp(self.map.apply(x), self.map.exponent)

    def transposed_product(self, g: Floats) -> Floats:
        """Tᵀ·g."""
        return _ldexp(self.map.adjoint(g), self.map.exponent)


@dataclass(frozen=True, eq=False)
class FloatLayer:
    """Columns x -> f(Σ T·x + bias) + shift."""

    branches: tuple[FloatBranch, ...]
    bias: Floats | None
    activation: Activation | None
    shift: Floats | None

    def adjoint(self, inner: Floats, g: Floats) -> Floats:
        """The gradient of <g, f> where Σ T·x + bias is `inner`, by that."""
        return g if self.activation is None else self.activation.float_adjoint(inner, g)


@dataclass(frozen=True, eq=False)
class FloatNetwork:
    """Inputs and values are columns, as many as one likes; factors of uncertain scales are taken to be 1.

    head: the matrices of the last layer's branches. first: the weights of the first layer, if the network is dense.
    """

    layers: tuple[FloatLayer, ...]
    head: tuple[NearFloats, ...]
    shift: Floats | None = None
    first: NearFloats | None = None

    @staticmethod
    def of(network: Network) -> FloatNetwork:
        maps = network.by_layer(network.of_branches(lambda linear: linear.near()))
        layers = []
        for layer, near in zip(network.layers, maps, strict=True):
            bias = _sum(_offset(layer.before), None if layer.bias is None else _floats(layer.bias))
            pairs = zip(layer.branches, near, strict=True)
            branches = tuple(FloatBranch(term.source, each) for term, each in pairs)
            layers.append(FloatLayer(branches, bias, layer.activation, _offset(layer.after)))
        head = tuple(matrix.near_floats() for matrix in network.head)
        first = network.layers[0].weights.near_floats() if network.is_dense else None
        return FloatNetwork(tuple(layers), head, _offset(network.uncertain_input_scale), first)

    def before_activations(self, inputs: Floats) -> list[Floats]:
        """Σ T·x + b of each layer, the last one the logits. inputs: of the first layer (`Network.entered`)."""
        values = {INPUT: _plus(inputs, self.shift)}
        found = []
        for index, layer in enumerate(self.layers):
            total = reduce(add, (branch.product(values[branch.source]) for branch in layer.branches))
            x = _plus(total, layer.bias)
            found.append(x)
            if layer.activation is not None:
                values[index] = _plus(layer.activation.float_values(x), layer.shift)
        return found

    def logits(self, inputs: Floats) -> Floats:
        return self.before_activations(inputs)[-1]

    def gradients(self, inner: Sequence[Floats], directions: Floats) -> Floats:
        """Of <direction, logits> by the inputs, in columns, where the hidden layers have these inner values.

        inner: Σ T·x + b of each hidden layer: one column for each direction, or one for all of them.
        """
        return self._pulled_back(inner, {len(self.layers) - 1: directions})[INPUT]

    def _pulled_back(self, inner: Sequence[Floats], g: dict[int, Floats], down_to: int = 0) -> dict[int, Floats]:
        """g: gradients by what some layers give. They become those by the sources of the layers from `down_to` on."""
        for index in range(len(self.layers) - 1, down_to - 1, -1):
            if index not in g:
                continue
            layer, above = self.layers[index], g.pop(index)
            if layer.activation is not None:
                above = layer.adjoint(inner[index], above)
            for branch in layer.branches:
                part = branch.transposed_product(above)
                g[branch.source] = part if branch.source not in g else g[branch.source] + part
        return g

    def leads(self, winner: int) -> Floats:
        """The leads of one class over the others, in their order, as columns that the last layer's inputs meet.

        Requires: a last layer with a single branch.
        """
        (near,) = self.head
        last = _ldexp(near.values, near.exponent)
        found: Floats = np.delete(last[winner] - last, winner, axis=0).T
        return found

    def lead_gradient_lengths(self, inner: Sequence[Floats], winner: int) -> Floats:
        """Of the gradients of those leads by the inputs, where the hidden layers have these inner values (one column).

        Of a dense network by the Gram matrix of the first layer, ||W_1ᵀ·g||² = gᵀ·W_1·W_1ᵀ·g: where inputs are many,
        that is shorter.
        """
        unit = np.eye(len(self.head[0].values))
        directions = np.delete(unit[winner] - unit, winner, axis=0).T
        if self.first is None or len(self.layers) == 1:
            g = self.gradients(inner, directions)
            lengths: Floats = np.sqrt((g * g).sum(axis=0))
            return lengths
        g = self._pulled_back(inner, {len(self.layers) - 1: directions}, down_to=1)[0]
        g = self.layers[0].adjoint(inner[0], g)
        squares = (g * (self.first_gram @ g)).sum(axis=0)
        return _ldexp(np.sqrt(np.maximum(squares, 0.0)), self.first.exponent)

    @cached_property
    def first_gram(self) -> Floats:
        """W·Wᵀ of the first layer's values, without its exponent. Requires: a dense network."""
        if self.first is None:
            raise ValueError("a network that is not dense")
        gram: Floats = self.first.values @ self.first.values.T
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
