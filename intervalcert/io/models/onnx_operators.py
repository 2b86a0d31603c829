"""What ONNX operators do to constants, to sizes, and to values that depend on the input.

The table at the end names all operators that are understood. A method takes the node and its inputs (None for one that
is left out), and gives the value of its first output, or a list of values. Whatever it does not understand exactly it
refuses. (Operators with windows are in `onnx_windows`, those that move numbers in `onnx_moves`, activations in
`onnx_functions`.)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np

from intervalcert.errors import InputError
from intervalcert.io.models import assembly_values
from intervalcert.io.models import onnx_functions as functions
from intervalcert.io.models import onnx_moves as moves
from intervalcert.io.models import onnx_shapes as shapes
from intervalcert.io.models import onnx_windows as windows
from intervalcert.io.models.assembly_graph import Graph
from intervalcert.io.models.onnx_functions import entrywise
from intervalcert.io.models.onnx_node import ADVICE, Node, Values, axis_of, between, exactly
from intervalcert.io.models.onnx_values import Flow, Sizes, Value, plain, shown, sizes_of
from intervalcert.io.models.tensors import Tensor

__all__ = ["FLOAT_TYPES", "Operators"]

FLOAT_TYPES = {1, 10, 11, 16}
_INTEGER_TYPES = {6, 7}


class Operators:
    """The operators on the values of one graph.

    kind: the type of the numbers that the input is declared with.
    """

    def __init__(self, graph: Graph, kind: int, *, strip_softmax: bool) -> None:
        self._graph, self._kind, self._strip_softmax = graph, kind, strip_softmax

    @staticmethod
    def check(node: Node) -> None:
        """Raises: InputError for an operator that is not understood, or one that gives more than it does in use."""
        if node.op not in _OPERATORS:
            raise InputError(f"{_UNKNOWN.get(node.op, 'this operator is not understood')}; {ADVICE}")
        # A Dropout has its mask, a TopK its places. Statistics of a batch come from training alone.
        if len(node.outputs) > (2 if node.op in {"Dropout", "TopK"} else 1) and node.op != "Split":
            trained = node.op == "BatchNormalization"
            what = "as in training: export the model for inference (model.eval())" if trained else "where one is known"
            raise InputError(f"it has {len(node.outputs)} outputs, {what}")

    @staticmethod
    def given(node: Node) -> list[str]:
        """Names of the outputs that are values here."""
        return list(filter(None, node.outputs)) if node.op == "Split" else node.outputs[:1]

    def run(self, node: Node, values: list[Value | None]) -> dict[str, Value]:
        """The outputs of a node, of its inputs, a list of its own. Raises: InputError."""
        self.check(node)
        while values and values[-1] is None:
            values.pop()
        if any(isinstance(value, Flow) and value.softened for value in values) and node.op not in _STRUCTURAL:
            raise InputError("something follows a softmax: only one at the very end can be stripped")
        self._graph.where = node.where
        found = _OPERATORS[node.op](self, node, values)
        node.check_all_taken()
        named = zip(node.outputs, found if isinstance(found, list) else [found], strict=False)
        return {name: value for name, value in named if name}

    # -- affine ----------------------------------------------------------------------------------------------------

    def _matmul(self, _: Node, values: Values) -> Value:
        a, b = exactly(values, 2)
        return self._product(a, b)

    def _gemm(self, node: Node, values: Values) -> Value:
        a, b, c = between(values, 2, 3)
        alpha, beta = node.number("alpha", 1.0), node.number("beta", 1.0)
        turned_a, turned_b = node.integer("transA", 0), node.integer("transB", 0)
        if a is None or b is None or len(a.shape) != 2 or len(b.shape) != 2:
            raise InputError("two matrices are expected: flatten what depends on the input first")
        found = self._product(self._turned(a) if turned_a else a, self._turned(b) if turned_b else b)
        if alpha != 1:
            found = self.times(found, self._scalar(alpha))
        if c is None:
            return found
        # C may be smaller than the product, but never larger.
        pairs = zip(reversed(c.shape), reversed(found.shape), strict=False)
        if len(c.shape) > 2 or any(side not in {1, whole} for side, whole in pairs):
            raise InputError(f"C has the shape {shown(c.shape)}, beside a product of the shape {shown(found.shape)}")
        return self.plus(found, self.times(c, self._scalar(beta)) if beta != 1 else c)

    def _product(self, a: Value, b: Value) -> Value:
        a, b = _as_matrix(a, b), _as_matrix(b, a)
        for constant in (a, b):
            if not isinstance(constant, Flow) and (isinstance(constant, Sizes) or constant.is_whole):
                raise InputError("a product of whole numbers")
            if isinstance(constant, Tensor) and len(constant.shape) != 2:
                raise InputError(f"a product with an array of shape {list(constant.shape)}; a matrix is expected")
        if isinstance(a, Flow) and isinstance(b, Tensor):
            # x·M for the row x: the layer's weights are Mᵀ.
            _check_vector(a, len(a.shape) - 1)
            if a.shape[-1] != b.shape[0]:
                raise InputError(f"a product of the shapes {shown(a.shape)} and {list(b.shape)}")
            return Flow((*a.shape[:-1], b.shape[1]), self._affine(a, b.transposed((1, 0))))
        if isinstance(a, Tensor) and isinstance(b, Flow):
            side = max(len(b.shape) - 2, 0)
            _check_vector(b, side)
            if b.shape[side] != a.shape[1]:
                raise InputError(f"a product of the shapes {list(a.shape)} and {shown(b.shape)}")
            return Flow((*b.shape[:side], a.shape[0], *b.shape[side + 1 :]), self._affine(b, a))
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            return a @ b
        raise InputError(f"a product of two values that depend on the input; {ADVICE}")

    def _affine(self, x: Flow, weights: Tensor) -> assembly_values.Value:
        """One matrix may stand at many places: each time it counts as if it were computed."""
        self._graph.budget.count(weights.size)
        return self._graph.affine(x.value, weights, None)

    def _turned(self, value: Value) -> Value:
        if isinstance(value, Sizes):
            raise InputError("a matrix is expected")
        return moves.transposed(self._graph, value, (1, 0)) if isinstance(value, Flow) else value.transposed((1, 0))

    def _add(self, _: Node, values: Values) -> Value:
        a, b = exactly(values, 2)
        return self.plus(a, b)

    def _sub(self, _: Node, values: Values) -> Value:
        a, b = exactly(values, 2)
        return self.minus(a, b)

    def minus(self, a: Value, b: Value) -> Value:
        if isinstance(a, Flow) and isinstance(b, Flow):
            return self.plus(a, replace(b, value=self._graph.negative(b.value)))
        return self.plus(a, self.negative(b))

    def _sum(self, _: Node, values: Values) -> Value:
        found, *others = exactly(values, max(len(values), 1))
        if others and all(isinstance(value, Flow) for value in values):
            return self._added([value for value in values if isinstance(value, Flow)])
        for other in others:
            found = self.plus(found, other)
        return found

    def _mul(self, _: Node, values: Values) -> Value:
        a, b = exactly(values, 2)
        return self.times(a, b)

    def _div(self, _: Node, values: Values) -> Value:
        a, b = exactly(values, 2)
        if isinstance(b, Flow):
            raise InputError(f"a division by what depends on the input; {ADVICE}")
        if not isinstance(a, Flow) and _is_whole(a) and _is_whole(b):
            return _whole_quotient(sizes_of(a, "a division"), sizes_of(b, "a division"))
        if isinstance(a, Flow):
            return self.divided(a, b)
        if isinstance(a, Tensor) and isinstance(b, Tensor) and not a.is_whole and not b.is_whole:
            return a / b
        raise InputError("a division of or by whole numbers")

    def divided(self, a: Flow, b: Value) -> Flow:
        """a/b. Raises: InputError if b depends on the input, or does not fit."""
        flow, by = entrywise(a, b)
        return replace(flow, value=self._graph.divide(flow.value, by))

    def _neg(self, _: Node, values: Values) -> Value:
        (a,) = exactly(values, 1)
        return self.negative(a)

    def negative(self, a: Value) -> Value:
        if isinstance(a, Tensor) and not a.is_whole:
            return -a
        return self.times(a, Tensor(np.array(-1, dtype=np.int64)) if _is_whole(a) else self._scalar(Fraction(-1)))

    def plus(self, a: Value, b: Value) -> Value:
        if isinstance(a, Flow) and isinstance(b, Flow):
            return self._added([a, b])
        if isinstance(a, Flow) or isinstance(b, Flow):
            flow, by = entrywise(a, b)
            return replace(flow, value=self._graph.shift(flow.value, by))
        return _computed(a, b, lambda x, y: x + y, lambda x, y: x + y)

    def _added(self, flows: list[Flow]) -> Flow:
        first = flows[0]
        for flow in flows:
            if flow.shape != first.shape:
                raise InputError(
                    f"what has the shapes {shown(first.shape)} and {shown(flow.shape)} is added up: one would be "
                    "repeated, which is not read"
                )
        return replace(first, value=self._graph.add([flow.numbers for flow in flows]))

    def times(self, a: Value, b: Value) -> Value:
        if isinstance(a, Flow) or isinstance(b, Flow):
            flow, by = entrywise(a, b)
            return replace(flow, value=self._graph.scale(flow.value, by))
        return _computed(a, b, lambda x, y: x * y, lambda x, y: x * y)

    def _scalar(self, value: Fraction) -> Tensor:
        return Tensor.of_fractions([value], (), self._graph.budget)

    def _batch_normalisation(self, node: Node, values: Values) -> Value:
        x, *parts = exactly(values, 5)
        epsilon = node.number("epsilon", 1e-5)
        node.number("momentum", 0.9)
        if node.opset >= 14 and node.integer("training_mode", 0):
            raise InputError("it is in training mode: export the model for inference (model.eval())")
        if node.opset < 9 and node.integer("spatial", 1) != 1:
            raise InputError("its parameters are not one per channel, but one per entry (spatial), which is not read")
        if not isinstance(x, Flow) or len(x.shape) < 2 or x.sides[0] != 1:
            raise InputError("it is applied to something else than one sample of a batch: export the model for one")
        vectors = []
        for part in parts:
            if not isinstance(part, Tensor) or part.shape != (x.shape[1],) or part.is_whole:
                raise InputError(f"its parameters must be vectors of {x.shape[1]} numbers, one per channel")
            vectors.append(part)
        self._graph.budget.spend((x.sides[1],), 2_048)  # a root takes as long as some sums
        gamma, beta, mean, variance = vectors
        variance = variance + self._scalar(epsilon)
        return replace(x, value=self._graph.batch_normalise(x.value, gamma, beta, mean, variance))

    # -- what the options of the reader are about ---------------------------------------------------------------------

    def _softmax(self, node: Node, values: Values) -> Value:
        (x,) = exactly(values, 1)
        if not isinstance(x, Flow):
            raise InputError("it is applied to a constant")
        axis = axis_of(node.integer("axis", -1 if node.opset >= 13 else 1), len(x.shape))
        over = x.sides[axis] if node.opset >= 13 else math.prod(x.sides[axis:])
        if over != x.width or x.shape[axis] is None:
            raise InputError(f"it is not taken over all classes: axis {axis} of the shape {shown(x.shape)}")
        if not self._strip_softmax:
            raise InputError(
                "margins live on the logits before it: export the model without it, or say --strip-softmax to leave it "
                "out (it keeps the order of the logits)"
            )
        return replace(x, value=self._graph.soften(x.value), softened=True)

    def _cast(self, node: Node, values: Values) -> Value:
        (x,) = exactly(values, 1)
        kind = node.integer("to")
        if node.opset >= 19:
            node.integer("saturate", 1)  # of floats of 8 bits
        if isinstance(x, Flow):
            if kind not in FLOAT_TYPES:
                raise InputError(f"a conversion of numbers that depend on the input to type {kind}: only to floats")
            if kind != self._kind:
                self._graph.note("a conversion to another type")
            return x
        if isinstance(x, Sizes):
            if kind not in _INTEGER_TYPES or any(size is not None and abs(size) >= 2**31 for size in x.values):
                raise InputError(f"a conversion of sizes to type {kind}")
            return x
        return shapes.converted(node, x, kind)


def _alone(operator: Callable[[Node, Values], Value]) -> _Operator:
    """One that looks at its node alone."""
    return lambda _, node, values: operator(node, values)


def _on_graph(operator: Callable[[Graph, Node, Values], Value | list[Value]]) -> _Operator:
    return lambda operators, node, values: operator(operators._graph, node, values)


_Operator = Callable[[Operators, Node, Values], Value | list[Value]]

_OPERATORS: dict[str, _Operator] = {
    "MatMul": Operators._matmul,
    "Gemm": Operators._gemm,
    "Add": Operators._add,
    "Sub": Operators._sub,
    "Sum": Operators._sum,
    "Mul": Operators._mul,
    "Div": Operators._div,
    "Neg": Operators._neg,
    "BatchNormalization": Operators._batch_normalisation,
    "Softmax": Operators._softmax,
    "LogSoftmax": Operators._softmax,
    "Cast": Operators._cast,
    "Relu": _on_graph(functions.relu),
    "LeakyRelu": _on_graph(functions.leaky_relu),
    "PRelu": _on_graph(functions.prelu),
    "Elu": _on_graph(functions.elu),
    "Tanh": _on_graph(functions.tanh),
    "Sigmoid": _on_graph(functions.sigmoid),
    "Softplus": _on_graph(functions.softplus),
    "Clip": _on_graph(functions.clip),
    "Max": _on_graph(functions.largest),
    "Min": _on_graph(functions.smallest),
    "TopK": _on_graph(functions.sort),
    "Identity": _alone(shapes.identity),
    "Dropout": _alone(shapes.dropout),
    "Flatten": _alone(shapes.flatten),
    "Reshape": _alone(shapes.reshape),
    "Squeeze": _alone(shapes.squeeze),
    "Unsqueeze": _alone(shapes.unsqueeze),
    "Constant": _alone(shapes.constant),
    "ConstantOfShape": _alone(shapes.constant_of_shape),
    "Shape": _alone(shapes.shape),
    "Conv": _on_graph(windows.convolution),
    "MaxPool": _on_graph(windows.max_pool),
    "GlobalMaxPool": _on_graph(windows.global_max_pool),
    "AveragePool": _on_graph(windows.average_pool),
    "GlobalAveragePool": _on_graph(windows.global_average_pool),
    "ReduceMean": _on_graph(windows.reduce_mean),
    "ReduceSum": _on_graph(windows.reduce_sum),
    "ReduceMax": _on_graph(windows.reduce_max),
    "ReduceMin": _on_graph(windows.reduce_min),
    "Transpose": _on_graph(moves.transpose),
    "Slice": _on_graph(moves.slice_),
    "Gather": _on_graph(moves.gather),
    "Split": _on_graph(moves.split),
    "Concat": _on_graph(moves.concat),
    "Pad": _on_graph(moves.pad),
    "Expand": _on_graph(moves.expand),
    "DepthToSpace": _on_graph(moves.depth_to_space),
    "SpaceToDepth": _on_graph(moves.space_to_depth),
}

_STRUCTURAL = {"Identity", "Cast", "Flatten", "Reshape", "Squeeze", "Unsqueeze", "Shape"}

_UNKNOWN = {
    op: what
    for what, ops in {
        "of convolutions plain ones are read (Conv)": "ConvTranspose ConvInteger DeformConv QLinearConv Col2Im",
        "of pools those with maxima and means are read": "LpPool GlobalLpPool MaxRoiPool MaxUnpool RoiAlign",
        "recurrent layers are not understood": "LSTM GRU RNN",
        "what it divides by depends on the input, and no bounds of that are proved": (
            "LayerNormalization InstanceNormalization GroupNormalization RMSNormalization LpNormalization LRN"
        ),
        "no bounds of this function are proved; those of Relu, LeakyRelu, Elu, Tanh, Sigmoid, Softplus and Clip are": (
            "Gelu Selu Celu HardSigmoid HardSwish Swish Mish ThresholdedRelu Softsign Erf Exp Log Sqrt Pow Abs"
        ),
        "a quantised model is not understood": "QuantizeLinear DequantizeLinear DynamicQuantizeLinear QLinearMatMul",
        "it gives classes, and margins live on the logits before it": "ArgMax ArgMin Hardmax",
        "what is computed depends on a comparison, which is not understood": "If Loop Scan Where Greater Less Equal",
    }.items()
    for op in ops.split()
}
"""Why, for those that people meet."""


# -- small parts -----------------------------------------------------------------------------------------------------


def _is_whole(value: Value) -> bool:
    return isinstance(value, Sizes) or (isinstance(value, Tensor) and value.is_whole)


def _computed(a: Value, b: Value, real: Callable[[Tensor, Tensor], Tensor], whole: Callable[[int, int], int]) -> Value:
    """Of two constants, both real or both whole."""
    if isinstance(a, Tensor) and isinstance(b, Tensor) and not a.is_whole and not b.is_whole:
        return real(a, b)
    if not (_is_whole(a) and _is_whole(b)):
        raise InputError("whole and real numbers are combined")
    return _pairwise(sizes_of(a, "whole numbers"), sizes_of(b, "whole numbers"), whole)


def _pairwise(a: Sizes, b: Sizes, combine: Callable[[int, int], int]) -> Sizes:
    x, y = plain(a), plain(b)
    count = max(len(x), len(y))
    if {len(x), len(y)} - {1, count}:
        raise InputError(f"{len(x)} and {len(y)} whole numbers are combined")
    found = tuple(combine(x[i % len(x)], y[i % len(y)]) for i in range(count))
    if any(abs(number) >= 2**31 for number in found):  # whole numbers of any type hold the others
        raise InputError("a whole number of more than 31 bits is computed")
    return Sizes(found, scalar=a.scalar and b.scalar)


def _whole_quotient(a: Sizes, b: Sizes) -> Sizes:
    if not all(x >= 0 for x in plain(a)) or not all(x > 0 for x in plain(b)):
        raise InputError("a division of whole numbers that are not positive")
    return _pairwise(a, b, lambda x, y: x // y)


def _as_matrix(value: Value, other: Value) -> Value:
    """A constant without leading sides of 1, which say nothing beside what has as many sides."""
    if not isinstance(value, Tensor) or not isinstance(other, Flow) or len(value.shape) > len(other.shape):
        return value
    more = max(len(value.shape) - 2, 0)
    return value.reshaped(value.shape[more:]) if more and set(value.shape[:more]) == {1} else value


def _check_vector(flow: Flow, side: int) -> None:
    """Raises: InputError unless all numbers of a sample are along that side."""
    others = (size for index, size in enumerate(flow.sides) if index != side)
    if not flow.shape or any(size != 1 for size in others) or flow.shape[side] is None:
        raise InputError(
            f"a product with what has the shape {shown(flow.shape)}: all numbers of a sample must be along one side; "
            "flatten it first (or was the model exported for a batch of a fixed size?)"
        )
