"""ONNX operators that move numbers which depend on the input: pick them, put them together, change their order.

Each of them is an index map. Sizes are checked before lists of positions are made. What mixes samples of a batch is
refused; what is applied to constants alone is left to `onnx_shapes`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from intervalcert.backends.protocol import Indices
from intervalcert.errors import InputError
from intervalcert.io.models import assembly_grids as grids
from intervalcert.io.models import onnx_shapes as shapes
from intervalcert.io.models.assembly_graph import Graph
from intervalcert.io.models.onnx_node import ADVICE, Node, Values, axis_of, between, exactly
from intervalcert.io.models.onnx_values import Flow, Size, Value, check_rank, plain, shown, sizes_of
from intervalcert.io.models.tensors import MAX_COMPUTED, Tensor
from intervalcert.model.windows import MISSING

__all__ = [
    "concat",
    "depth_to_space",
    "expand",
    "gather",
    "joined",
    "pad",
    "padded",
    "parts_of",
    "picked",
    "positions_of",
    "slice_",
    "space_to_depth",
    "split",
    "transpose",
    "transposed",
]


def picked(graph: Graph, flow: Flow, positions: Indices, shape: Sequence[Size]) -> Flow:
    """The numbers at these positions, in that shape; zero where they are -1.

    Raises: InputError if that is nothing, mixes samples, or there are not as many positions as the shape says.
    """
    made = Flow(tuple(shape), flow.value, flow.softened)
    if None in made.shape[1:] or (None in made.shape and None not in flow.shape):
        raise InputError(f"it makes the shape {shown(made.shape)} of {shown(flow.shape)}, which mixes samples")
    if not positions.size:
        raise InputError("nothing is left of what depends on the input")
    value = graph.take(flow.value, positions.reshape(-1).astype(np.intp), made.sample)
    return Flow(made.shape, value, flow.softened)


def positions_of(graph: Graph, flow: Flow) -> Indices:
    """That of each number, in an array with the sides of one sample."""
    return grids.positions(graph, flow.sides)


# -- one value ---------------------------------------------------------------------------------------------------------


def transpose(graph: Graph, node: Node, values: Values) -> Value:
    (x,) = exactly(values, 1)
    if not isinstance(x, Flow):
        return shapes.transpose(node, values)
    order = node.integers("perm")
    order = list(range(len(x.shape)))[::-1] if order is None else order
    if sorted(order) != list(range(len(x.shape))):
        raise InputError(f"a transposition {order[:20]} of {len(x.shape)} dimensions")
    return transposed(graph, x, order)


def transposed(graph: Graph, x: Flow, order: Sequence[int]) -> Flow:
    shape = [x.shape[side] for side in order]
    if not grids.moves_numbers(x.sides, order):
        return x.with_shape(shape)
    return picked(graph, x, positions_of(graph, x).transpose(order), shape)


def slice_(graph: Graph, node: Node, values: Values) -> Value:
    if not values or not isinstance(values[0], Flow):
        return shapes.slice_(node, values)
    data, *parts = shapes.slice_parts(node, values)
    if not isinstance(data, Flow):
        raise InputError("its input is missing")
    cuts, shape = shapes.cuts_of(data.shape, *parts)
    return picked(graph, data, positions_of(graph, data)[cuts], shape)


def gather(graph: Graph, node: Node, values: Values) -> Value:
    data, indices = exactly(values, 2)
    if isinstance(indices, Flow):
        raise InputError(f"which entries are gathered depends on the input; {ADVICE}")
    if not isinstance(data, Flow):
        return shapes.gather(node, values)
    axis = axis_of(node.integer("axis", 0), len(data.shape))
    data.check_side(axis, "it gathers along")
    places = _whole_numbers(indices)
    side = data.sides[axis]
    if places.size and (places.min() < -side or places.max() >= side):
        raise InputError(f"it gathers entries that are not there, of {side} along axis {axis}")
    shape = [*data.shape[:axis], *places.shape, *data.shape[axis + 1 :]]
    check_rank(shape)
    graph.budget.hold(data.width // side * places.size)
    return picked(graph, data, np.take(positions_of(graph, data), places % side, axis=axis), shape)


def _whole_numbers(indices: Value) -> Indices:
    if isinstance(indices, Tensor) and indices.stored is not None and indices.is_whole:
        return indices.stored.astype(np.intp)
    sizes = sizes_of(indices, "what is gathered")
    found = np.array(plain(sizes), dtype=np.intp)
    return found.reshape(()) if sizes.scalar else found


def expand(_: Graph, __: Node, values: Values) -> Value:
    x, given = exactly(values, 2)
    if not isinstance(x, Flow):
        raise InputError("a constant is expanded: let the exporter fold constants")
    sides = sizes_of(given, "its shape")
    wanted = sides.values
    pairs = zip(reversed(x.shape), reversed(wanted), strict=False)
    if sides.scalar or len(wanted) > len(x.shape) or any(side not in {1, own} for own, side in pairs):
        raise InputError(f"what has the shape {shown(x.shape)} is repeated to {shown(wanted)}, which is not read")
    return x


def depth_to_space(graph: Graph, node: Node, values: Values) -> Value:
    """Of b·b channels each a square of b x b."""
    x, size = _blocks(node, values)
    mode = node.word("mode", "DCR", "CRD") if node.opset >= 11 else "DCR"
    channels, height, width = x.sides[1:]
    if channels % (size * size):
        raise InputError(f"{channels} channels are no blocks of {size} x {size}")
    depth = channels // (size * size)
    if mode == "DCR":
        moved = positions_of(graph, x).reshape(size, size, depth, height, width).transpose(2, 3, 0, 4, 1)
    else:
        moved = positions_of(graph, x).reshape(depth, size, size, height, width).transpose(0, 3, 1, 4, 2)
    return picked(graph, x, moved, [x.shape[0], depth, height * size, width * size])


def space_to_depth(graph: Graph, node: Node, values: Values) -> Value:
    """Of each square of b x b places as many channels."""
    x, size = _blocks(node, values)
    channels, height, width = x.sides[1:]
    if height % size or width % size:
        raise InputError(f"an image of {height} x {width} has no blocks of {size} x {size}")
    squares = positions_of(graph, x).reshape(channels, height // size, size, width // size, size)
    moved = squares.transpose(2, 4, 0, 1, 3)
    return picked(graph, x, moved, [x.shape[0], channels * size * size, height // size, width // size])


def _blocks(node: Node, values: Values) -> tuple[Flow, int]:
    (x,) = exactly(values, 1)
    size = node.integer("blocksize")
    if not isinstance(x, Flow) or len(x.shape) != 4 or x.sides[0] != 1 or size < 1:
        raise InputError(f"blocks of {size} of something else than one image")
    return x, size


# -- more or fewer numbers ---------------------------------------------------------------------------------------------


def pad(graph: Graph, node: Node, values: Values) -> Value:
    """Zeros around an array, or a constant, or what is there already: reflected, repeated or from the other end."""
    known = ("constant", "reflect", "edge", *(("wrap",) if node.opset >= 19 else ()))
    mode = node.word("mode", *known)
    x, ends, value = _padding(node, values)
    return padded(graph, x, ends, value, mode)


def padded(
    graph: Graph, x: Flow, ends: Sequence[tuple[int, int]], value: Tensor | None, mode: str = "constant"
) -> Flow:
    """With so many numbers more at either end of each axis, or fewer. value: of these; zero if there is none.

    Raises: InputError if of an axis nothing is left before anything is added.
    """
    if any(front or back for front, back in ends[:1]):
        x.check_side(0, "it pads")
    sides = [side + front + back for side, (front, back) in zip(x.sides, ends, strict=True)]
    kept = [side + min(front, 0) + min(back, 0) for side, (front, back) in zip(x.sides, ends, strict=True)]
    if min(kept) < 1 or math.prod(sides) > MAX_COMPUTED:
        raise InputError(f"pads of {ends[:20]} around the shape {shown(x.shape)}")
    graph.budget.hold(math.prod(sides))
    for side, (front, back) in zip(x.sides, ends, strict=True):
        limit = {"constant": None, "edge": None, "reflect": side - 1, "wrap": side}[mode]
        if (limit is not None and max(front, back) > limit) or (mode != "constant" and min(front, back) < 0):
            raise InputError(f"pads of {front} and {back} around {side} numbers, in the mode {mode}")
    cut = tuple(slice(max(-front, 0), side - max(-back, 0)) for side, (front, back) in zip(x.sides, ends, strict=True))
    around = [(max(front, 0), max(back, 0)) for front, back in ends]
    inner = positions_of(graph, x)[cut]
    if mode == "constant":
        positions = np.pad(inner, around, constant_values=MISSING)
    else:
        positions = np.pad(inner, around, mode=mode)  # type: ignore[call-overload]
    shape: list[Size] = [None if side is None else new for side, new in zip(x.shape, sides, strict=True)]
    made = picked(graph, x, positions, shape)
    if value is None or value.holds_only(0) or mode != "constant":
        return made
    missing = np.where(positions.ravel() < 0, 0, MISSING)
    return Flow(made.shape, graph.shift(made.value, value.reshaped((1,)).at(missing)))


def _padding(node: Node, values: Values) -> tuple[Flow, list[tuple[int, int]], Tensor | None]:
    """What is padded, how far along each axis, and with what."""
    axes: list[int] | None = None
    if node.opset < 11:
        (x,) = exactly(values, 1)
        pads = node.integers("pads")
        value: Value | None = node.computed(np.array([float(node.number("value", 0.0))]))
    else:
        x_, given, value, listed = between(values, 2, 4 if node.opset >= 18 else 3)[:4] + [None] * (node.opset < 18)
        if x_ is None or given is None:
            raise InputError("it does not say how far")
        x, pads = x_, shapes.listed(given, "its pads")
        axes = None if listed is None else shapes.listed(listed, "its axes")
    if not isinstance(x, Flow):
        raise InputError("a constant is padded: let the exporter fold constants")
    if value is not None and (not isinstance(value, Tensor) or value.size != 1 or value.is_whole):
        raise InputError("it pads with something else than one constant")
    places = [axis_of(axis, len(x.shape)) for axis in (range(len(x.shape)) if axes is None else axes)]
    if pads is None or len(pads) != 2 * len(places) or len(set(places)) < len(places):
        raise InputError(f"{len(pads or ())} pads for {len(places)} axes")
    ends = [(0, 0)] * len(x.shape)
    for number, axis in enumerate(places):
        ends[axis] = pads[number], pads[number + len(places)]
    return x, ends, value


# -- several values ----------------------------------------------------------------------------------------------------


def concat(graph: Graph, node: Node, values: Values) -> Value:
    flows = [value for value in values if isinstance(value, Flow)]
    if not flows:
        return shapes.concat(node, values)
    if len(flows) < len(values):
        raise InputError(f"constants are put together with what depends on the input; {ADVICE}")
    return joined(graph, flows, axis_of(node.integer("axis"), len(flows[0].shape)))


def joined(graph: Graph, flows: Sequence[Flow], axis: int) -> Flow:
    """One after the other along an axis. Raises: InputError if that is the batch, or they do not fit."""
    first = flows[0]
    first.check_side(axis, "it puts values together along")
    for flow in flows:
        if [*flow.shape[:axis], *flow.shape[axis + 1 :]] != [*first.shape[:axis], *first.shape[axis + 1 :]]:
            raise InputError(f"what has the shapes {shown(first.shape)} and {shown(flow.shape)} is put together")
    batch = len(first.shape) - len(first.sample) if axis else 0  # the sides that one sample does not have
    value = grids.joined(graph, [flow.value.reshaped(flow.sides[batch:]) for flow in flows], axis - batch)
    shape = (*first.shape[:axis], value.shape[axis - batch], *first.shape[axis + 1 :])
    return Flow(shape, value)


def split(graph: Graph, node: Node, values: Values) -> list[Value]:
    x, given = between(values, 1, 2 if node.opset >= 13 else 1)[:2] + [None] * (node.opset < 13)
    sizes = node.integers("split") if node.opset < 13 else None
    if given is not None:
        sizes = shapes.listed(given, "its parts")
    count = node.integer("num_outputs", len(node.outputs)) if node.opset >= 18 else len(node.outputs)
    if not isinstance(x, Flow):
        raise InputError("a constant is split: let the exporter fold constants")
    axis = axis_of(node.integer("axis", 0), len(x.shape))
    x.check_side(axis, "it splits")
    side = x.sides[axis]
    if sizes is None:
        each = -(-side // count) if 0 < count <= side else 0
        sizes = [each] * (count - 1) + [side - each * (count - 1)]
        if node.opset < 18 and each * count != side:
            raise InputError(f"{side} numbers along axis {axis} are no {count} equal parts")
    if min(sizes, default=0) < 1 or sum(sizes) != side or len(sizes) != len(node.outputs):
        raise InputError(f"{side} numbers along axis {axis} in parts of {sizes[:20]}, for {len(node.outputs)} outputs")
    return list(parts_of(graph, x, axis, sizes))


def parts_of(graph: Graph, x: Flow, axis: int, sizes: Sequence[int]) -> list[Flow]:
    """Parts along an axis. Requires: at least 1 each, and together all of it."""
    parts = np.split(positions_of(graph, x), np.cumsum(sizes)[:-1], axis=axis)
    return [
        picked(graph, x, part, [*x.shape[:axis], size, *x.shape[axis + 1 :]])
        for part, size in zip(parts, sizes, strict=True)
    ]
