"""Keras layers that compute nothing, or nearly so: other shapes, another order, several values together."""

from __future__ import annotations

import math
from collections.abc import Sequence

from intervalcert.errors import InputError
from intervalcert.io.models.assembly_grids import joined, transposed
from intervalcert.io.models.assembly_values import Value
from intervalcert.io.models.keras_config import KerasLayer
from intervalcert.io.models.keras_point import Act, Point, with_last_first
from intervalcert.io.models.keras_values import sequence, shown, whole

__all__ = ["MAX_RANK", "SHAPE_ACTS"]

MAX_RANK = 16
"""Sizes of an array; numpy takes some more."""


def _flatten(point: Point, layer: KerasLayer) -> Point:
    """With channels_first the first axis becomes the last one before."""
    order = layer.config["data_format"]
    if order not in ("channels_last", "channels_first"):
        raise InputError(f"data_format is {shown(order)}: channels_last and channels_first are read")
    value = point.value
    if order == "channels_first":
        value = transposed(point.graph, value, [*range(1, len(point.shape)), 0])
    return point.at(value, (point.width,))


def _reshape(point: Point, layer: KerasLayer) -> Point:
    sizes = [whole(x, "a size") for x in sequence(layer.config["target_shape"], "target_shape")]
    known = math.prod(x for x in sizes if x != -1)
    if sizes.count(-1) == 1 and known > 0:
        sizes[sizes.index(-1)] = point.width // known
    if not 0 < len(sizes) <= MAX_RANK or min(sizes) < 1 or math.prod(sizes) != point.width:
        raise InputError(f"{point.width} numbers of shape {list(point.shape)} do not have the shape {shown(sizes)}")
    return point.at(point.value, tuple(sizes))


def _permute(point: Point, layer: KerasLayer) -> Point:
    """Axes are counted from the batch, which is 0."""
    order = [whole(x, "a part of dims") - 1 for x in sequence(layer.config["dims"], "dims")]
    if sorted(order) != list(range(len(point.shape))):
        raise InputError(f"dims {shown(layer.config['dims'])} of an array of shape {list(point.shape)}")
    return point.at(transposed(point.graph, point.value, order))


# -- several values ----------------------------------------------------------------------------------------------------


def _add(point: Point, _: KerasLayer) -> Point:
    _check_same(point)
    return point.at(with_last_first(point.graph, point.values, lambda values, _: point.graph.add(values)))


def _subtract(point: Point, _: KerasLayer) -> Point:
    _check_same(point)
    if len(point.values) != 2:
        raise InputError(f"it is applied to {len(point.values)} arrays, where two are expected")

    def difference(values: Sequence[Value], _: bool) -> Value:
        return point.graph.add([values[0], point.graph.negative(values[1])])

    return point.at(with_last_first(point.graph, point.values, difference))


def _check_same(point: Point) -> None:
    for value in point.others:
        if value.shape != point.shape:
            raise InputError(
                f"what has the shapes {list(point.shape)} and {list(value.shape)} is combined: one would be repeated, "
                "which is not read"
            )


def _concatenate(point: Point, layer: KerasLayer) -> Point:
    axis = point.axis_of(layer.config["axis"], "it puts arrays together along")
    around = [*point.shape[:axis], *point.shape[axis + 1 :]]
    for value in point.others:
        if len(value.shape) != len(point.shape) or [*value.shape[:axis], *value.shape[axis + 1 :]] != around:
            raise InputError(f"what has the shapes {list(point.shape)} and {list(value.shape)} is put together")

    def together(values: Sequence[Value], is_turned: bool) -> Value:
        return joined(point.graph, values, (axis + 1) % len(point.shape) if is_turned else axis)

    return point.at(with_last_first(point.graph, point.values, together))


SHAPE_ACTS: dict[str, Act] = {
    "Flatten": _flatten,
    "Reshape": _reshape,
    "Permute": _permute,
    "Add": _add,
    "Subtract": _subtract,
    "Concatenate": _concatenate,
}
