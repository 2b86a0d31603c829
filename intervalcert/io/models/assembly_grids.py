"""Arrays that are moved, put together and pooled: what readers of several formats share. All of it is exact."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from intervalcert.backends.protocol import Indices
from intervalcert.errors import InputError
from intervalcert.io.models.assembly_graph import Graph
from intervalcert.io.models.assembly_values import Value
from intervalcert.io.models.tensors import Tensor
from intervalcert.model.linear_maps import MAX_DENSE, Shape
from intervalcert.model.windows import Window

__all__ = ["Pads", "joined", "mean_pool", "missing_padding", "moves_numbers", "positions", "transposed"]

Pads = tuple[int, int, int, int]
"""Top, left, bottom, right."""


# -- positions ---------------------------------------------------------------------------------------------------------


def positions(graph: Graph, shape: Shape) -> Indices:
    """That of each number of an array, in an array of that shape."""
    graph.budget.hold(math.prod(shape))
    return np.arange(math.prod(shape)).reshape(shape)


def moves_numbers(shape: Shape, order: Sequence[int]) -> bool:
    """Whether another order of the axes is another order of the numbers, too."""
    kept = [axis for axis in order if shape[axis] != 1]
    return kept != sorted(kept)


def transposed(graph: Graph, x: Value, order: Sequence[int]) -> Value:
    """With its axes in that order."""
    shape = tuple(x.shape[axis] for axis in order)
    if not moves_numbers(x.shape, order):
        return x.reshaped(shape)
    return graph.take(x, positions(graph, x.shape).transpose(order).ravel(), shape)


def joined(graph: Graph, values: Sequence[Value], axis: int) -> Value:
    """One after the other along an axis. Requires: shapes that differ there only."""
    sides = [value.shape[axis] for value in values]
    shape = list(values[0].shape)
    shape[axis] = sum(sides)
    parts = np.split(positions(graph, tuple(shape)), np.cumsum(sides)[:-1], axis=axis)
    return graph.join(values, [part.ravel() for part in parts], tuple(shape))


# -- windows -----------------------------------------------------------------------------------------------------------


def missing_padding(side: int, stride: int, size: int) -> int:
    """How much padding there must be for an output at each stride; below zero if there is some room left."""
    return (-(-side // stride) - 1) * stride + size - side


def mean_pool(graph: Graph, x: Value, channels: int, window: Window, pads: Pads = (0, 0, 0, 0)) -> Value:
    """The mean of each window, channel by channel, over its places that are within the input and these pads.

    Sums over windows that are divided by one number are a convolution; else each place has its own weights.
    """
    graph.budget.hold(window.taps * math.prod(window.outputs))
    counts = _counts(window, pads)
    if not counts.min():
        raise InputError("the mean of a window that sees nothing at all")
    if counts.min() == counts.max():
        return graph.average(x, channels, window, int(counts[0]))
    shape = (channels, *window.outputs)
    return graph.mix(x, _means(graph, window, counts), (channels, *window.inputs), shape)


def _counts(window: Window, pads: Pads) -> Indices:
    """How many places of each window are within the input and these pads."""
    along = []
    for axis in range(2):
        places = np.arange(window.size[axis])[:, None] * window.dilation[axis] - window.before[axis]
        places = places + np.arange(window.outputs[axis]) * window.stride[axis]
        within = (places >= -pads[axis]) & (places < window.inputs[axis] + pads[axis + 2])
        along.append(within.sum(axis=0))
    found: Indices = np.outer(*along).ravel()
    return found


def _means(graph: Graph, window: Window, counts: Indices) -> Tensor:
    """Places x positions: the weights of all windows, one row each."""
    places, inputs = math.prod(window.outputs), math.prod(window.inputs)
    if places * inputs > MAX_DENSE:
        raise InputError(
            f"means over windows that do not all see as many numbers, of a grid of {window.inputs}: they need a matrix "
            f"of {places} x {inputs}, which is too large (let padding count: count_include_pad)"
        )
    graph.budget.count(places * inputs)
    common = math.lcm(*np.unique(counts).tolist())
    matrix = np.zeros((places, inputs), dtype=np.int64)
    tap, place = np.nonzero(window.table >= 0)
    matrix[place, window.table[tap, place]] = common // counts[place]
    return Tensor(None, (matrix.astype(object), common), graph.budget)
