"""ONNX operators that compute no numbers of the network: constants, shapes, and the sizes that shapes are made of.

Each takes a node and its inputs (None for one that is left out), and gives the value of its first output. (Those that
move numbers which depend on the input are in `onnx_moves`.)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from intervalcert.errors import InputError
from intervalcert.io.models.onnx_node import Node, Values, axis_of, between, exactly
from intervalcert.io.models.onnx_values import MAX_SIZES, Flow, Size, Sizes, Value, check_rank, plain, shown, sizes_of
from intervalcert.io.models.tensors import Tensor

__all__ = [
    "concat",
    "constant",
    "constant_of_shape",
    "converted",
    "cuts_of",
    "dropout",
    "flatten",
    "gather",
    "identity",
    "listed",
    "reshape",
    "shape",
    "slice_",
    "slice_parts",
    "squeeze",
    "transpose",
    "unsqueeze",
]

_Listed = list[int] | None

_END = 2**31 - 1
"""From here on the end of a part means: all that is left."""

# -- of the value that flows, too --------------------------------------------------------------------------------------


def identity(_: Node, values: Values) -> Value:
    return exactly(values, 1)[0]


def dropout(node: Node, values: Values) -> Value:
    x, ratio, training = between(values, 1, 3)
    if node.opset < 12:
        exactly(values, 1)
        node.number("ratio", 0.5)
    else:
        node.integer("seed", 0)
    if x is None or isinstance(ratio, Flow):
        raise InputError("its ratio depends on the input")
    if training is not None and not (
        isinstance(training, Tensor) and training.is_whole and not np.any(training.stored)
    ):
        raise InputError("it is in training mode: export the model for inference (model.eval())")
    return x


def flatten(node: Node, values: Values) -> Value:
    (x,) = exactly(values, 1)
    axis, rank = node.integer("axis", 1), len(x.shape)
    if not -rank <= axis <= rank:
        raise InputError(f"axis {axis} of {rank} dimensions")
    axis = axis + rank if axis < 0 else axis
    if isinstance(x, Tensor):
        return x.reshaped((math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))
    if not isinstance(x, Flow):
        raise InputError("sizes are flattened")
    front: Size = math.prod(x.sides[:axis])
    if None in x.shape:
        if None not in x.shape[:axis] or front != 1:
            raise InputError(f"axis {axis} of the shape {shown(x.shape)} mixes samples of a batch")
        front = None
    return x.with_shape((front, math.prod(x.sides[axis:])))


def reshape(node: Node, values: Values) -> Value:
    x, given = exactly(values, 2)
    allow_zero = bool(node.integer("allowzero", 0)) if node.opset >= 14 else False
    sizes = sizes_of(given, "its shape")
    wanted = sizes.values
    if sizes.scalar or any(side is not None and side < -1 for side in wanted) or wanted.count(-1) > 1:
        raise InputError(f"a change of shape to {shown(wanted)}")
    check_rank(wanted)
    if isinstance(x, Flow):
        return x.reshaped(wanted, zero_copies=not allow_zero)
    if isinstance(x, Sizes):
        if wanted in {(1,), (-1,), ()} and len(x.values) == 1:
            return Sizes(x.values, scalar=not wanted)
        x = node.computed(np.array(plain(x), dtype=np.int64))
    sides = [
        x.shape[i] if side == 0 and not allow_zero and i < len(x.shape) else side
        for i, side in enumerate(plain(sizes, "a constant gets the shape of a batch"))
    ]
    known = math.prod(side for side in sides if side != -1)
    if -1 in sides and known > 0:
        sides[sides.index(-1)] = x.size // known
    if math.prod(sides) != x.size or min(sides, default=0) < 0:
        raise InputError(f"a change of shape from {list(x.shape)} to {shown(wanted)}")
    return x.reshaped(tuple(sides))


def transpose(node: Node, values: Values) -> Value:
    (x,) = exactly(values, 1)
    order = node.integers("perm")
    order = list(range(len(x.shape)))[::-1] if order is None else order
    if not isinstance(x, Tensor) or sorted(order) != list(range(len(x.shape))):
        raise InputError(f"a transposition {order[:20]} of {len(x.shape)} dimensions")
    return x.transposed(tuple(order))


def squeeze(node: Node, values: Values) -> Value:
    x, axes = _with_axes(node, values)
    if axes is None:
        if isinstance(x, Flow) and None in x.shape:
            raise InputError("it does not say which sides it takes away, and the batch may be one of them")
        axes = [index for index, side in enumerate(x.shape) if side == 1]
    gone = {axis_of(axis, len(x.shape)) for axis in axes}
    if any(x.shape[axis] != 1 for axis in gone) or len(gone) < len(axes):
        raise InputError(f"it takes away sides of the shape {shown(x.shape)} that are not 1")
    return _reshaped(x, [side for index, side in enumerate(x.shape) if index not in gone])


def unsqueeze(node: Node, values: Values) -> Value:
    x, axes = _with_axes(node, values)
    if axes is None:
        raise InputError("it does not say where")
    rank = len(x.shape) + len(axes)
    new = {axis_of(axis, rank) for axis in axes}
    if len(new) < len(axes):
        raise InputError("it names a side twice")
    old = iter(x.shape)
    return _reshaped(x, [1 if index in new else next(old) for index in range(rank)])


def _with_axes(node: Node, values: Values) -> tuple[Value, list[int] | None]:
    """The axes are an attribute before version 13, an input from there on."""
    if node.opset < 13:
        (x,) = exactly(values, 1)
        return x, node.integers("axes")
    first, given = between(values, 1, 2)
    if first is None:
        raise InputError("its input is missing")
    return first, None if given is None else plain(sizes_of(given, "its axes"))


def _reshaped(x: Value, shape: list[Size]) -> Value:
    check_rank(shape)
    if isinstance(x, Flow):
        return x.with_shape(shape)
    if isinstance(x, Sizes):
        if len(shape) > 1:
            raise InputError("sizes become a matrix")
        return Sizes(x.values, scalar=not shape)
    return x.reshaped(tuple(int(side or 0) for side in shape))


# -- constants ---------------------------------------------------------------------------------------------------------


def constant(node: Node, values: Values) -> Value:
    exactly(values, 0)
    if (tensor := node.tensor("value")) is not None:
        return tensor
    if node.has("value_float"):
        return node.computed(np.array(float(node.number("value_float", 0.0)), dtype=np.float32))
    if node.has("value_int"):
        return node.computed(np.array(node.integer("value_int"), dtype=np.int64))
    if (floats := node.floats("value_floats")) is not None:
        return node.computed(np.array(floats, dtype=np.float32))
    if (integers := node.integers("value_ints")) is not None:
        return node.computed(np.array(integers, dtype=np.int64))
    raise InputError("a constant without numbers")


def constant_of_shape(node: Node, values: Values) -> Value:
    (given,) = exactly(values, 1)
    sides = listed(given, "its shape")
    tensor = node.tensor("value")
    value = node.computed(np.zeros(1, dtype=np.float32)) if tensor is None else tensor
    if value.size != 1 or min(sides, default=1) < 0:
        raise InputError(f"a constant of the shape {sides[:20]}")
    check_rank(sides)
    return value.reshaped(()).broadcast(tuple(sides))


def converted(node: Node, x: Tensor, kind: int) -> Tensor:
    """A constant of another type, if that changes none of its numbers."""
    target = {1: np.float32, 10: np.float16, 11: np.float64, 6: np.int32, 7: np.int64, 9: np.bool_}.get(kind)
    if target is None or x.stored is None:
        raise InputError(f"a conversion of a constant to type {kind}")
    node.budget.spend(x.shape, 64)
    with np.errstate(all="ignore"):
        made: npt.NDArray[Any] = x.stored.astype(target)
        if kind == 9:
            made = made.astype(np.uint8)
        near = x.stored.astype(np.float64)  # whole numbers beyond 2^53 are not held there
        if not np.array_equal(made.astype(np.float64), near) or (x.is_whole and (np.abs(near) >= 2**53).any()):
            raise InputError(f"a conversion of a constant to type {kind} that changes its numbers")
    return node.computed(made)


# -- sizes -------------------------------------------------------------------------------------------------------------


def shape(node: Node, values: Values) -> Value:
    (x,) = exactly(values, 1)
    rank = len(x.shape)
    start, end = (node.integer("start", 0), node.integer("end", rank)) if node.opset >= 15 else (0, rank)
    first, last = (min(max(i + rank if i < 0 else i, 0), rank) for i in (start, end))
    return Sizes(tuple(x.shape[first:last]))


def gather(node: Node, values: Values) -> Value:
    data, indices = (sizes_of(value, "sizes are gathered") for value in exactly(values, 2))
    if node.integer("axis", 0) not in {0, -1} or data.scalar:
        raise InputError("only entries of a list are gathered")
    places = [axis_of(index, len(data.values)) for index in plain(indices)]
    return Sizes(tuple(data.values[place] for place in places), scalar=indices.scalar)


def concat(node: Node, values: Values) -> Value:
    axis = node.integer("axis")
    parts = [sizes_of(value, "lists of sizes") for value in values if value is not None]
    if axis not in {0, -1} or not parts or any(part.scalar for part in parts) or len(parts) < len(values):
        raise InputError("only lists of sizes are put together")
    if sum(len(part.values) for part in parts) > MAX_SIZES:
        raise InputError(f"more than {MAX_SIZES} sizes are put together")
    return Sizes(tuple(side for part in parts for side in part.values))


def slice_parts(node: Node, values: Values) -> tuple[Value, _Listed, _Listed, _Listed, _Listed]:
    """What is sliced; starts, ends, axes and steps."""
    if node.opset < 10:
        (data,) = exactly(values, 1)
        return data, node.integers("starts"), node.integers("ends"), node.integers("axes"), None
    first, *given = between(values, 3, 5)
    if first is None:
        raise InputError("its input is missing")
    starts, ends, axes, steps = (None if item is None else listed(item, "a part") for item in given)
    return first, starts, ends, axes, steps


def cuts_of(
    shape: Sequence[Size], starts: _Listed, ends: _Listed, axes: _Listed, steps: _Listed
) -> tuple[tuple[slice, ...], list[Size]]:
    """Which part of an array that is, along each axis, and its shape. Of a batch it must be all."""
    if starts is None or ends is None or len(starts) != len(ends):
        raise InputError("it does not say where a part begins and ends")
    axes = list(range(len(starts))) if axes is None else axes
    steps = [1] * len(starts) if steps is None else steps
    places = [axis_of(axis, len(shape)) for axis in axes]
    if len(axes) != len(starts) or len(steps) != len(starts) or len(set(places)) < len(places) or 0 in steps:
        raise InputError(f"parts along the axes {axes[:20]} with the steps {steps[:20]}")
    cuts, left = [slice(None)] * len(shape), list(shape)
    for axis, start, end, step in zip(places, starts, ends, steps, strict=True):
        side = shape[axis]
        if side is None:
            if (start, step) != (0, 1) or end < _END:
                raise InputError(f"it takes a part along axis {axis} of {shown(shape)}, which mixes samples of a batch")
            continue
        taken = _taken(start, end, step, side)
        if not taken:
            raise InputError(f"nothing is left of axis {axis} of {shown(shape)} from {start} to {end}, step {step}")
        left[axis] = len(taken)
        cuts[axis] = slice(taken.start, taken.stop if taken.stop >= 0 else None, step)
    return tuple(cuts), left


def _taken(start: int, end: int, step: int, side: int) -> range:
    """As ONNX says it, which is not as Python does: backwards, a start before the first entry is the first entry."""
    first, last = (place + side if place < 0 else place for place in (start, end))
    if step > 0:
        return range(min(max(first, 0), side), min(max(last, 0), side), step)
    return range(min(max(first, 0), side - 1), min(max(last, -1), side - 1), step)


def slice_(node: Node, values: Values) -> Value:
    data, starts, ends, axes, steps = slice_parts(node, values)
    if isinstance(data, Tensor) and len(data.shape) > 1:
        cuts, _ = cuts_of(data.shape, starts, ends, axes, steps)
        return data.part(cuts)
    sizes = sizes_of(data, "sizes are sliced")
    if sizes.scalar or starts is None or ends is None or len(starts) != 1 or len(ends) != 1:
        raise InputError("only a part of a list is understood")
    if axes not in (None, [0], [-1]) or steps not in (None, [1]):
        raise InputError("only a part of a list, in its order, is understood")
    return Sizes(sizes.values[starts[0] : ends[0]])


def listed(value: Value, what: str) -> list[int]:
    """A list of whole numbers that do not depend on the batch."""
    sizes = sizes_of(value, what)
    if sizes.scalar:
        raise InputError(f"{what}: a single number where a list is expected")
    return plain(sizes)
