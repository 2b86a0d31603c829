"""A chain of layers built operation by operation: a graph of which one value is carried along (`assembly_graph`)."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from intervalcert.io.models.assembly_graph import Graph
from intervalcert.io.models.assembly_values import Value
from intervalcert.io.models.interface import Hints
from intervalcert.io.models.tensors import Budget, Tensor
from intervalcert.model.linear_maps import Shape
from intervalcert.model.network import Network

__all__ = ["Assembly"]


class Assembly:
    """What was read so far. `width`: how many numbers there are at this point; `budget`: what they may take.

    value: what the next operation takes. Whoever has branches takes it from `graph`, and puts a value back.
    """

    def __init__(self, inputs: int | Shape) -> None:
        self.graph = Graph((inputs,) if isinstance(inputs, int) else inputs)
        self.value: Value = self.graph.input

    @property
    def width(self) -> int:
        return self.value.width

    @property
    def budget(self) -> Budget:
        return self.graph.budget

    def tensor(self, array: npt.NDArray[Any]) -> Tensor:
        """Numbers that are stored in the file: the more there are, the more may be computed."""
        return self.graph.tensor(array)

    def affine(self, weights: Tensor, bias: Tensor | None) -> None:
        """X -> W·x + bias. weights: outputs x inputs."""
        self.value = self.graph.affine(self.value, weights, bias)

    def scale(self, factors: Tensor) -> None:
        """X -> factors·x, entry by entry. Requires: a vector of `width`, or of 1."""
        self.value = self.graph.scale(self.value, factors)

    def divide(self, by: Tensor) -> None:
        """X -> x/by, entry by entry. Requires: a vector of `width`, or of 1."""
        self.value = self.graph.divide(self.value, by)

    def shift(self, by: Tensor) -> None:
        """X -> x + by. Requires: a vector of `width`, or of 1."""
        self.value = self.graph.shift(self.value, by)

    def batch_normalise(self, gamma: Tensor, beta: Tensor, mean: Tensor, variance: Tensor) -> None:
        """X -> gamma·(x - mean)/sqrt(variance) + beta, entry by entry; the epsilon is in the variance. Vectors."""
        self.value = self.graph.batch_normalise(self.value, gamma, beta, mean, variance)

    def activate(self, name: str) -> None:
        """The activation of that name."""
        self.value = self.graph.activate(self.value, name)

    def soften(self) -> None:
        """A softmax over all numbers, which is left out: it keeps their order. Requires: it is the end."""
        self.value = self.graph.soften(self.value)

    def note(self, what: str) -> None:
        """Something that a program in floats does besides its layers, and that is no part of the network."""
        self.graph.note(what)

    def network(self, shape: tuple[int, ...] | None = None, hints: Hints | None = None) -> Network:
        """The network, with distances in the normalised space if there is one; whoever knows the file adds sources."""
        return self.graph.network(self.value, shape, hints)
