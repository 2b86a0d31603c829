"""ONNX operators whose windows go over a grid: convolutions and pools; and those that take sides of an array together.

A grid of one dimension is one of height 1. Padding is zero for sums, and does not count for maxima. A mean divides by
how many places of its window are within the input, or within the padded input if it counts padding; of a window that
sticks out at the end, with ceil_mode, the rest counts for nothing.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from intervalcert.errors import InputError
from intervalcert.io.models import assembly_values
from intervalcert.io.models import onnx_shapes as shapes
from intervalcert.io.models.assembly_graph import Graph
from intervalcert.io.models.assembly_grids import Pads, mean_pool, missing_padding
from intervalcert.io.models.onnx_moves import picked, positions_of, transposed
from intervalcert.io.models.onnx_node import ADVICE, Node, Values, axis_of, between, exactly
from intervalcert.io.models.onnx_values import Flow, Size, Value, shown
from intervalcert.io.models.tensors import Tensor
from intervalcert.model.windows import Pair, Window

__all__ = [
    "Image",
    "Pads",
    "average_pool",
    "averaged",
    "convolution",
    "global_average_pool",
    "global_max_pool",
    "image_of",
    "largest",
    "max_pool",
    "reduce_max",
    "reduce_mean",
    "reduce_min",
    "reduce_sum",
    "summed",
    "two",
]


@dataclass(frozen=True)
class Image:
    """What flows, as channels over a grid. sides: of the grid, as the file has them, one or two."""

    flow: Flow
    channels: int
    grid: Pair
    sides: int

    def over(self, channels: int, window: Window, value: assembly_values.Value) -> Flow:
        """What windows have made of it."""
        return Flow((self.flow.shape[0], channels, *window.outputs[-self.sides :]), value)

    @property
    def all_of_it(self) -> Window:
        return Window(self.grid, (1, 1), self.grid)


def image_of(x: Value | None) -> Image:
    """Raises: InputError unless it is one sample."""
    if not isinstance(x, Flow):
        raise InputError("it is applied to a constant: let the exporter fold constants")
    if len(x.shape) not in {3, 4}:
        raise InputError(
            f"it is applied to what has the shape {shown(x.shape)}: a batch, channels, and one or two sides of a grid "
            "are expected (three are not read)"
        )
    if x.sides[0] != 1:
        raise InputError("it is applied to something else than one sample of a batch: export the model for one")
    _, channels, *grid = x.sides
    return Image(x, channels, (grid[0], grid[1]) if len(grid) == 2 else (1, grid[0]), len(grid))


# -- convolutions ------------------------------------------------------------------------------------------------------


def convolution(graph: Graph, node: Node, values: Values) -> Value:
    x, weights, bias = between(values, 2, 3)
    image, kernel = image_of(x), _constant(weights)
    biases = None if bias is None else _constant(bias)
    if len(kernel.shape) != 2 + image.sides:
        raise InputError(f"weights of the shape {list(kernel.shape)} for what has the shape {shown(image.flow.shape)}")
    outputs, inner, *size = kernel.shape
    given, groups = node.integers("kernel_shape"), node.integer("group", 1)
    if given is not None and given != size:
        raise InputError(f"it says that its windows are {given[:20]}, and has weights for {size}")
    if groups < 1 or image.channels % groups or outputs % groups or inner != image.channels // groups:
        raise InputError(f"weights of the shape {list(kernel.shape)} for {image.channels} channels in {groups} groups")
    window, _ = _window(node, image, size)
    graph.budget.count(kernel.size)  # one may stand at many places: each time it counts as if it were computed
    kernel = kernel.reshaped((outputs, inner, *window.size))
    return image.over(outputs, window, graph.convolve(image.flow.numbers, kernel, window, groups, biases))


def _constant(value: Value | None) -> Tensor:
    if isinstance(value, Flow):
        raise InputError(f"its weights or biases depend on the input; {ADVICE}")
    if not isinstance(value, Tensor) or value.is_whole:
        raise InputError("its weights and biases must be real numbers")
    return value


# -- pools -------------------------------------------------------------------------------------------------------------


def max_pool(graph: Graph, node: Node, values: Values) -> Value:
    (x,) = exactly(values, 1)
    image = image_of(x)
    if node.opset >= 8 and node.integer("storage_order", 0):
        raise InputError("its storage_order is another one than 0")
    window, _ = _window(node, image, node.integers("kernel_shape"), pool=True, dilated=node.opset >= 10)
    return image.over(image.channels, window, graph.max_pool(image.flow.numbers, image.channels, window))


def global_max_pool(graph: Graph, _: Node, values: Values) -> Value:
    (x,) = exactly(values, 1)
    image = image_of(x)
    value = graph.max_pool(image.flow.numbers, image.channels, image.all_of_it)
    return image.over(image.channels, image.all_of_it, value)


def average_pool(graph: Graph, node: Node, values: Values) -> Value:
    (x,) = exactly(values, 1)
    image, counts_padding = image_of(x), bool(node.integer("count_include_pad", 0))
    window, pads = _window(node, image, node.integers("kernel_shape"), pool=True, dilated=node.opset >= 19)
    return averaged(graph, image, window, pads if counts_padding else (0, 0, 0, 0))


def averaged(graph: Graph, image: Image, window: Window, pads: Pads) -> Flow:
    """The means of what windows see within the input and these pads, which are zeros."""
    value = mean_pool(graph, image.flow.numbers, image.channels, window, pads)
    return image.over(image.channels, window, value)


def global_average_pool(graph: Graph, _: Node, values: Values) -> Value:
    (x,) = exactly(values, 1)
    image = image_of(x)
    value = graph.average(image.flow.numbers, image.channels, image.all_of_it, math.prod(image.grid))
    return image.over(image.channels, image.all_of_it, value)


# -- windows -----------------------------------------------------------------------------------------------------------


def _window(
    node: Node, image: Image, size: Sequence[int] | None, *, pool: bool = False, dilated: bool = True
) -> tuple[Window, Pads]:
    """The window of a node, and its padding."""
    if size is None:
        raise InputError("the attribute 'kernel_shape' is missing")
    sides = image.sides
    stride, dilation = _pair(node, "strides", sides), _pair(node, "dilations", sides) if dilated else (1, 1)
    ceil = bool(node.integer("ceil_mode", 0)) if pool and node.opset >= 10 else False
    given, auto = node.integers("pads"), node.word("auto_pad", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER")
    if len(size) != sides or (given is not None and len(given) != 2 * sides) or min(size) < 1:
        raise InputError(f"windows of {list(size)[:20]} with the pads {(given or [])[:20]}, over {sides} sides")
    if auto != "NOTSET" and any(given or ()):
        raise InputError(f"it has pads, and at the same time auto_pad {auto}")
    height, width = two(size)
    pads: Pads = (0, 0, 0, 0) if given is None else (*two(given[:sides], 0), *two(given[sides:], 0))
    if auto.startswith("SAME"):
        missing = [missing_padding(image.grid[axis], stride[axis], (height, width)[axis]) for axis in range(2)]
        if dilation != (1, 1) or (pool and min(missing) < 0):
            raise InputError(f"auto_pad {auto} of such windows is computed in different ways: export it with pads")
        top, left = (max(number, 0) // 2 for number in missing)
        bottom, right = (max(number, 0) - max(number, 0) // 2 for number in missing)
        pads = (top, left, bottom, right) if auto == "SAME_UPPER" else (bottom, right, top, left)
        ceil = False
    return Window.padded(image.grid, (height, width), stride, dilation, pads, ceil=ceil), pads


def _pair(node: Node, name: str, sides: int) -> Pair:
    found = node.integers(name)
    if found is None:
        return (1, 1)
    if len(found) != sides or min(found) < 1:
        raise InputError(f"the attribute {name!r} is {found[:20]}; {sides} numbers are expected, at least 1 each")
    return two(found)


def two(numbers: Sequence[int], missing: int = 1) -> Pair:
    """Along the height and the width, of one side or of two."""
    return (missing, numbers[0]) if len(numbers) == 1 else (numbers[0], numbers[1])


# -- over sides of an array --------------------------------------------------------------------------------------------


def reduce_mean(graph: Graph, node: Node, values: Values) -> Value:
    return summed(graph, *_reduced(node, values, 18), mean=True)


def reduce_sum(graph: Graph, node: Node, values: Values) -> Value:
    return summed(graph, *_reduced(node, values, 13), mean=False)


def reduce_max(graph: Graph, node: Node, values: Values) -> Value:
    return largest(graph, *_reduced(node, values, 18), sign=1)


def reduce_min(graph: Graph, node: Node, values: Values) -> Value:
    return largest(graph, *_reduced(node, values, 18), sign=-1)


def _reduced(node: Node, values: Values, since: int) -> tuple[Flow, list[int], list[Size]]:
    """What is reduced, the axes that go, and the shape that is left. since: the version with axes as an input."""
    if node.opset < since:
        first, given = between(values, 1, 1)[0], None
        axes = node.integers("axes")
    else:
        first, given = between(values, 1, 2)
        axes = None if given is None else shapes.listed(given, "its axes")
    keeps = node.integer("keepdims", 1)
    is_nothing = node.opset >= since and bool(node.integer("noop_with_empty_axes", 0)) and not axes
    if not isinstance(first, Flow):
        raise InputError("it is applied to a constant: let the exporter fold constants")
    rank = len(first.shape)
    gone = [] if is_nothing else sorted({axis_of(axis, rank) for axis in (axes or range(rank))})
    if axes and len(gone) < len(axes):
        raise InputError("it names an axis twice")
    for axis in gone:
        first.check_side(axis, "it reduces")
    left: list[Size] = [1 if i in gone else side for i, side in enumerate(first.shape) if keeps or i not in gone]
    return first, gone, left


def _in_a_grid(graph: Graph, x: Flow, gone: Sequence[int]) -> tuple[assembly_values.Value, int, Window]:
    """With the sides that go at the end: the numbers, how many grids there are, and a window over all of each."""
    kept = [axis for axis in range(len(x.shape)) if axis not in gone]
    moved = transposed(graph, x, [*kept, *gone])
    sides = [x.sides[axis] for axis in gone]
    grid = (sides[0], sides[1]) if len(sides) == 2 else (1, math.prod(sides))
    channels = x.width // math.prod(sides)
    return moved.value.reshaped((channels, *grid)), channels, Window(grid, (1, 1), grid)


def summed(graph: Graph, x: Flow, gone: list[int], left: list[Size], *, mean: bool) -> Flow:
    """The sums or means over these axes, in the shape that is left."""
    if not gone:
        return x.with_shape(left)
    value, channels, window = _in_a_grid(graph, x, gone)
    return Flow(tuple(left), graph.average(value, channels, window, window.taps if mean else 1))


def largest(graph: Graph, x: Flow, gone: list[int], left: list[Size], *, sign: int) -> Flow:
    """The maxima (minima, if sign is -1) over these axes. Of two numbers each, it is one of a pair that is sorted."""
    if not gone:
        return x.with_shape(left)
    if [x.sides[axis] for axis in gone] == [2]:
        halves = np.split(positions_of(graph, x), 2, axis=gone[0])
        shape = [1 if axis in gone else side for axis, side in enumerate(x.shape)]
        a, b = (picked(graph, x, half, shape).value for half in halves)
        pair = graph.extremes(a, b)
        if pair is not None:
            return Flow(tuple(left), pair[sign > 0])
    value, channels, window = _in_a_grid(graph, x, gone)
    if sign < 0:
        return Flow(tuple(left), graph.negative(graph.max_pool(graph.negative(value), channels, window)))
    return Flow(tuple(left), graph.max_pool(value, channels, window))
