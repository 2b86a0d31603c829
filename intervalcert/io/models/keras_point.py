"""A point of a Keras model while it is read: what a layer takes, and what all kinds of layers need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from intervalcert.errors import InputError, error_context
from intervalcert.io.models.assembly_graph import Graph
from intervalcert.io.models.assembly_grids import transposed
from intervalcert.io.models.assembly_values import Value
from intervalcert.io.models.keras_config import KerasLayer
from intervalcert.io.models.keras_values import Array, shown, whole
from intervalcert.io.models.keras_weights import WeightStore
from intervalcert.io.models.tensors import Tensor
from intervalcert.model.linear_maps import Shape

__all__ = ["Act", "Point", "with_last_first"]


@dataclass(frozen=True)
class Point:
    """value: what a layer gives, in the shape and the order that it has in Keras, without the batch.

    others: what the layer that follows takes besides. softmax: the layer that ended in one, which was left out.
    """

    graph: Graph
    store: WeightStore
    value: Value
    others: tuple[Value, ...] = ()
    softmax: str | None = None

    @property
    def shape(self) -> Shape:
        return self.value.shape

    @property
    def width(self) -> int:
        return self.value.width

    @property
    def values(self) -> tuple[Value, ...]:
        """All that the layer takes."""
        return (self.value, *self.others)

    def at(self, value: Value, shape: Shape | None = None) -> Point:
        """The same model at another value."""
        return replace(self, value=value if shape is None else value.reshaped(shape), others=())

    def activated(self, name: str) -> Point:
        return self.at(self.graph.activate(self.value, name), self.shape)

    def tensor(self, values: Array, what: str) -> Tensor:
        with error_context(what):
            return self.graph.tensor(values)

    def spread(self, values: Tensor, shape: Shape | None = None) -> Tensor:
        """One number for each entry at this point, of an array that is broadcast (after it was given that shape).

        One number stays one: it is for all of them.
        """
        if values.size == 1:
            return values.reshaped((1,))
        placed = values if shape is None else values.reshaped(shape)
        return placed.broadcast(self.shape).reshaped((self.width,))

    def axis_of(self, value: object, what: str) -> int:
        """Of an array without the batch, which is the axis 0 in Keras."""
        axis, rank = whole(value, "axis"), len(self.shape) + 1
        if not 0 < (axis + rank if axis < 0 else axis) < rank:
            raise InputError(f"{what} the axis {axis} of an array of shape {list(self.shape)}: that is not read")
        return (axis + rank if axis < 0 else axis) - 1

    def check_built(self, built: object) -> None:
        """Keras builds a layer for the shapes that build_config says, and then applies it to what comes."""
        listed = [built] if not self.others else None
        match built:
            case None:
                return
            case {"input_shape": [list(), *_] as several, **rest} if not rest:
                listed = several
            case {"input_shape": one, **rest} if not rest:
                listed = [one]
        if listed is None or len(listed) != len(self.values) or not all(map(_fits, listed, self.values)):
            shapes = " and ".join(str(list(value.shape)) for value in self.values[:3])
            raise InputError(f"it was built for {shown(built)}, but is applied to an input of shape {shapes}")


Act = Callable[[Point, KerasLayer], Point]
"""What a layer makes of what it takes."""


def _fits(given: object, value: Value) -> bool:
    match given:
        case [batch, *sizes] if batch is None or type(batch) is int:
            return sizes == list(value.shape) and all(type(size) is int for size in sizes)
    return False


def with_last_first(graph: Graph, values: Sequence[Value], act: Callable[[Sequence[Value], bool], Value]) -> Value:
    """Acts on values of one rank with their last axis in front, if fewer of them have been moved then; and moves back.

    That is how convolutions give images whose channels are the last axis in Keras. act: is told whether it is so.
    """
    rank = len(values[0].shape)
    moved = [transposed(graph, value, [rank - 1, *range(rank - 1)]) for value in values]
    if sum(map(_is_moved, moved)) >= sum(map(_is_moved, values)):
        return act(values, False)
    return transposed(graph, act(moved, True), [*range(1, rank), 0])


def _is_moved(value: Value) -> bool:
    return value.post.index is not None
