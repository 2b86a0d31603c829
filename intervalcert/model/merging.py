"""Two linear maps of the same numbers, added up: one map, where there is one of a known kind. Exactly."""

from __future__ import annotations

from math import gcd, prod
from typing import Any

import numpy as np

from intervalcert.model.linear_maps import MAX_DENSE, Convolution, Dense, IndexMap, LinearMap, sum_of
from intervalcert.model.windows import Pair, Window, is_held
from intervalcert.numbers.matrices import RationalMatrix

__all__ = ["merged"]


def merged(one: LinearMap, other: LinearMap) -> LinearMap | None:
    """The map x -> one(x) + other(x); None if it is of no known kind, or too large. Requires: equal shapes."""
    if isinstance(one, Convolution) or isinstance(other, Convolution):
        first, second = _as_convolution(one, other), _as_convolution(other, one)
        both = None if first is None or second is None else _merged(first, second)
        if both is not None:
            return both
    if isinstance(one, IndexMap) and isinstance(other, IndexMap):
        if (one.index == other.index).all():
            return IndexMap(one.index, one.in_shape, one.out_shape, sum_of(_factors(one), _factors(other)))
        return None
    if (isinstance(one, Dense) or isinstance(other, Dense)) and one.is_small and other.is_small:
        return Dense(sum_of(one.dense(), other.dense()), one.in_shape, one.out_shape)
    return None


def _factors(linear: IndexMap) -> RationalMatrix:
    return RationalMatrix.from_floats(np.ones((linear.shape[0], 1))) if linear.factors is None else linear.factors


def _as_convolution(linear: LinearMap, like: LinearMap) -> Convolution | None:
    """Without groups; the identity on a grid is a convolution with a window of one place."""
    if isinstance(linear, Convolution):
        return linear if linear.groups == 1 else None
    if not (isinstance(linear, IndexMap) and isinstance(like, Convolution) and linear.is_identity):
        return None
    if like.in_shape != like.out_shape:
        return None
    place = Window(like.window.inputs, like.window.inputs, (1, 1))
    return Convolution(RationalMatrix.from_floats(np.eye(like.channels)), like.channels, place)


def _merged(one: Convolution, other: Convolution) -> Convolution | None:
    """With a window that has the places of both. Along each axis those are  stride·i + offset, at some offsets.

    None if that is too large: dilations without a common divisor have places at every offset between the ends.
    """
    if one.in_shape != other.in_shape or one.out_shape != other.out_shape:
        return None
    if one.window.stride != other.window.stride:
        return None
    (h, dy, top), (w, dx, left) = (_axis(one.window, other.window, axis) for axis in range(2))
    most = max(MAX_DENSE, 4 * prod(one.kernel.shape), 4 * prod(other.kernel.shape))
    if one.kernel.shape[0] * one.channels * h * w > most or not is_held(one.window.inputs, one.window.outputs, (h, w)):
        return None
    window = Window(one.window.inputs, one.window.outputs, (h, w), one.window.stride, (dy, dx), (top, left))
    return Convolution(sum_of(_spread(one, window), _spread(other, window)), one.channels, window)


def _axis(one: Window, other: Window, axis: int) -> tuple[int, int, int]:
    """(size, dilation, before) of a window that has the offsets of both along an axis."""
    offsets = sorted({offset for each in (one, other) for offset in _offsets(each, axis)})
    first, last = offsets[0], offsets[-1]  # the first is not positive: nothing is before less than 0
    dilation = gcd(*(offset - first for offset in offsets)) or 1
    return (last - first) // dilation + 1, dilation, -first


def _offsets(window: Window, axis: int) -> list[int]:
    return [u * window.dilation[axis] - window.before[axis] for u in range(window.size[axis])]


def _spread(linear: Convolution, window: Window) -> RationalMatrix:
    """The kernel in a larger window, with zeros at the places that are new."""
    places: list[Pair] = [
        ((y + window.before[0]) // window.dilation[0], (x + window.before[1]) // window.dilation[1])
        for y in _offsets(linear.window, 0)
        for x in _offsets(linear.window, 1)
    ]
    at = np.array([y * window.size[1] + x for y, x in places])
    outputs, taps = linear.kernel.shape[0], window.taps
    floats = linear.kernel.as_floats()
    source: Any = linear.kernel.numerators if floats is None else floats
    wide = np.zeros((outputs, linear.channels, taps), dtype=source.dtype)
    wide[:, :, at] = source.reshape(outputs, linear.channels, -1)
    flat: Any = wide.reshape(outputs, -1)
    return RationalMatrix(flat, linear.kernel.denominator) if floats is None else RationalMatrix.from_floats(flat)
