"""ONNX operators that are functions of values which depend on the input: activations, maxima, and what is in order."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction

import numpy as np

from intervalcert.errors import InputError
from intervalcert.io.models.assembly_graph import Graph
from intervalcert.io.models.onnx_node import ADVICE, Node, Values, axis_of, between, exactly
from intervalcert.io.models.onnx_values import Flow, Value, plain, shown, sizes_of
from intervalcert.io.models.tensors import Tensor

__all__ = [
    "clip",
    "elu",
    "entrywise",
    "largest",
    "leaky_relu",
    "prelu",
    "relu",
    "sigmoid",
    "smallest",
    "softplus",
    "sort",
    "tanh",
]

_MAX_END = 2_000
"""Bits of either part of the end of a clip. A float64 has at most 1,075."""


def entrywise(a: Value, b: Value) -> tuple[Flow, Tensor]:
    """What flows, and a constant for each of its entries, or for runs of them, or one for all: a vector.

    Raises: InputError if what flows would be enlarged.
    """
    flow, value = (a, b) if isinstance(a, Flow) else (b, a)
    if not isinstance(flow, Flow) or isinstance(value, Flow):
        raise InputError(f"a product of two values that depend on the input; {ADVICE}")
    if not isinstance(value, Tensor) or value.is_whole:
        raise InputError("whole numbers are combined with what depends on the input")
    more = len(value.shape) - len(flow.shape)
    if more > 0:
        if any(side != 1 for side in value.shape[:more]) or None in flow.shape:
            raise InputError(f"an array of shape {list(value.shape)} beside {shown(flow.shape)} adds dimensions")
        flow = flow.with_shape((1,) * more + flow.shape)
    if value.size == 1:
        return flow, value.reshaped((1,))
    sides = (1,) * (len(flow.shape) - len(value.shape)) + value.shape
    repeated = next((i for i, side in enumerate(reversed(sides)) if side != 1), 0)
    if any(side not in {1, own} for side, own in zip(sides, flow.sides, strict=True)):
        raise InputError(f"an array of shape {list(value.shape)} beside {shown(flow.shape)} does not fit")
    outer = flow.sides[: len(sides) - repeated]
    return flow, value.reshaped(sides[: len(sides) - repeated]).broadcast(outer).reshaped((math.prod(outer),))


# -- activations -------------------------------------------------------------------------------------------------------


def _activate(graph: Graph, values: Values, name: str) -> Flow:
    (x,) = exactly(values, 1)
    if not isinstance(x, Flow):
        raise InputError("it is applied to a constant: let the exporter fold constants")
    return replace(x, value=graph.activate(x.numbers, name))


def relu(graph: Graph, _: Node, values: Values) -> Value:
    return _activate(graph, values, "relu")


def leaky_relu(graph: Graph, node: Node, values: Values) -> Value:
    slope = node.number("alpha", 0.01)
    return _activate(graph, values, f"leaky_relu:{slope}" if slope else "relu")


def prelu(graph: Graph, _: Node, values: Values) -> Value:
    x, slopes = exactly(values, 2)
    flow, listed = entrywise(x, slopes)
    if flow is not x:
        raise InputError("its slopes depend on the input")
    return replace(flow, value=graph.leaky(flow.numbers, listed))


def elu(graph: Graph, node: Node, values: Values) -> Value:
    return _activate(graph, values, f"elu:{node.number('alpha', 1.0)}")


def tanh(graph: Graph, _: Node, values: Values) -> Value:
    return _activate(graph, values, "tanh")


def sigmoid(graph: Graph, _: Node, values: Values) -> Value:
    return _activate(graph, values, "sigmoid")


def softplus(graph: Graph, _: Node, values: Values) -> Value:
    return _activate(graph, values, "softplus")


def clip(graph: Graph, node: Node, values: Values) -> Value:
    if node.opset < 11:  # its ends are attributes
        most = float(np.finfo(np.float32).max)
        name = _clip_name(node.end("min", -most, -math.inf), node.end("max", most, math.inf))
        return _activate(graph, values, name)
    x, *ends = between(values, 1, 3)
    return _activate(graph, [x], _clip_name(*map(_end, ends)))


# -- the largest, the smallest, all in order -----------------------------------------------------------------------


def largest(graph: Graph, _: Node, values: Values) -> Value:
    return _extreme(graph, values, 1)


def smallest(graph: Graph, _: Node, values: Values) -> Value:
    return _extreme(graph, values, 0)


def _extreme(graph: Graph, values: Values, which: int) -> Value:
    """The smaller ones (0) or the larger ones (1) of pairs.

    With a constant that is a clip; of two halves of one value, as in MinMax, pairs are sorted.
    """
    if len(values) == 1:
        return exactly(values, 1)[0]
    a, b = exactly(values, 2)
    if isinstance(a, Flow) and isinstance(b, Flow):
        pair = graph.extremes(a.numbers, b.numbers) if a.shape == b.shape else None
        if pair is None:
            raise InputError(
                "of two values that depend on the input it is read only if they are parts of one, as the two halves in "
                f"MinMax: split along the channels, or every second one; {ADVICE}"
            )
        return replace(a, value=pair[which])
    flow, by = entrywise(a, b)
    end = _end(by)
    return _activate(graph, [flow], _clip_name(end, None) if which else _clip_name(None, end))


def sort(graph: Graph, node: Node, values: Values) -> Value:
    """All numbers along an axis, in order."""
    if node.opset < 10:
        (x,) = exactly(values, 1)
        count = node.integer("k")
    else:
        x, given = exactly(values, 2)
        count = sum(plain(sizes_of(given, "how many")))
    downwards, ordered = (node.integer(name, 1) if node.opset >= 11 else 1 for name in ("largest", "sorted"))
    axis = axis_of(node.integer("axis", -1), len(x.shape))
    if not isinstance(x, Flow) or x.shape[axis] is None or count != x.sides[axis] or not ordered:
        raise InputError(f"it gives some numbers only, or in no order: only a sort along an axis is read; {ADVICE}")
    inner = math.prod(x.sides[axis + 1 :])
    return replace(x, value=graph.sort(x.numbers, count, inner, ascending=not downwards))


def _end(value: Value | None) -> Fraction | None:
    """One end of a clip."""
    if value is None:
        return None
    if not isinstance(value, Tensor) or value.size != 1 or value.is_whole:
        raise InputError("its ends must be single constants")
    numerators, denominator = value.exact()
    (numerator,) = numerators.ravel().tolist()
    if max(numerator.bit_length(), denominator.bit_length()) > _MAX_END:
        raise InputError("an end is a number of more digits than floats have")
    return Fraction(numerator, denominator)


def _clip_name(low: Fraction | None, high: Fraction | None) -> str:
    if low is None and high is None:
        return "identity"
    if low == 0 and high is None:
        return "relu"
    if low == -1 and high == 1:
        return "hard_tanh"
    return f"clip:{'-inf' if low is None else low}:{'inf' if high is None else high}"
