"""What each ONNX operator does to constants, to sizes, and to the value that depends on the input.

The table at the end names all operators that are understood. A method takes the node and its inputs (None for one that
is left out), and gives the value of its first output. Whatever it does not understand exactly it refuses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from intervalcert.errors import InputError
from intervalcert.loaders.assembly import Assembly
from intervalcert.loaders.onnx_values import Flow, Size, Sizes, Value, shown, sizes_of
from intervalcert.loaders.tensors import Tensor

__all__ = ["ADVICE", "FLOAT_TYPES", "MAX_WORK", "Node", "Operators", "ReadArray", "tensor_of"]

MAX_WORK = 2**25
"""Numbers that all nodes together may compute."""

ADVICE = "leave it out, or write it with layers that are understood (see the README), and export the model again"

FLOAT_TYPES = {1, 10, 11, 16}
_INTEGER_TYPES = {6, 7}

ReadArray = Callable[[Any, str], npt.NDArray[Any]]
"""Reads the numbers of a TensorProto."""


class Node:
    """One node: its attributes are taken one by one, and none may be left over."""

    def __init__(self, proto: Any, index: int) -> None:
        self.op: str = proto.op_type
        self.where = f"node {proto.name[:200] or index!r} ({proto.op_type[:100]})"
        self.inputs: list[str] = list(proto.input)
        self.outputs: list[str] = list(proto.output)
        self._attributes = {item.name: item for item in proto.attribute}
        if len(self._attributes) < len(proto.attribute):
            raise InputError(f"{self.where}: an attribute is given twice")
        if not self.outputs or not self.outputs[0]:
            raise InputError(f"{self.where}: its first output is not used, but another one is")
        if proto.domain not in {"", "ai.onnx"} or proto.overload:
            raise InputError(f"{self.where}: an operator of {proto.domain[:100]!r} is not understood; {ADVICE}")

    def _take(self, name: str, kind: int, field: str, default: Any) -> Any:
        item = self._attributes.pop(name, None)
        if item is None:
            return default
        if item.type != kind or item.ref_attr_name:
            raise InputError(f"the attribute {name!r} is of another type than it should be")
        return getattr(item, field)

    def number(self, name: str, default: float) -> Fraction:
        """A float32, at its exact value."""
        value = float(np.float32(self._take(name, 1, "f", default)))
        if not math.isfinite(value):
            raise InputError(f"the attribute {name!r} is {value}")
        return Fraction(value)

    def integer(self, name: str, default: int) -> int:
        return int(self._take(name, 2, "i", default))

    def integers(self, name: str) -> list[int] | None:
        found = self._take(name, 7, "ints", None)
        return None if found is None else [int(x) for x in found]

    def floats(self, name: str) -> list[float] | None:
        found = self._take(name, 6, "floats", None)
        return None if found is None else list(found)

    def tensor(self, name: str) -> Any:
        return self._take(name, 4, "t", None)

    def has(self, name: str) -> bool:
        return name in self._attributes

    def check_all_taken(self) -> None:
        if self._attributes:
            raise InputError(f"the attribute {next(iter(self._attributes))!r} is not understood")


class Operators:
    """The operators of one version, on one chain of layers.

    work: how many numbers were computed. stripped: whether a softmax was left out.
    """

    def __init__(self, assembly: Assembly, opset: int, array: ReadArray, *, strip_softmax: bool) -> None:
        self._assembly, self._opset, self._array, self._strip_softmax = assembly, opset, array, strip_softmax
        self.work, self.stripped = 0, False

    def run(self, node: Node, values: list[Value | None]) -> Value:
        """The first output of a node. Raises: InputError."""
        while values and values[-1] is None:
            values = values[:-1]
        method = _METHODS.get(node.op)
        if method is None:
            raise InputError(f"this operator is not understood; {ADVICE}")
        flow = next((value for value in values if isinstance(value, Flow)), None)
        if flow is not None and flow.softened and node.op not in _STRUCTURAL:
            raise InputError("something follows a softmax: only one at the very end can be stripped")
        found = method(self, node, values)
        node.check_all_taken()
        self.work += found.width if isinstance(found, Flow) else math.prod(found.shape)
        if self.work > MAX_WORK:
            raise InputError(f"the graph computes more than {MAX_WORK} numbers before it is known what it means")
        return found

    # -- affine ----------------------------------------------------------------------------------------------------

    def _matmul(self, _: Node, values: list[Value | None]) -> Value:
        a, b = _exactly(values, 2)
        return self._product(a, b)

    def _gemm(self, node: Node, values: list[Value | None]) -> Value:
        a, b, c = _between(values, 2, 3)
        if a is None or b is None:
            raise InputError("an input is missing")
        alpha, beta = node.number("alpha", 1.0), node.number("beta", 1.0)
        if node.integer("transA", 0):
            a = _turned(a)
        if node.integer("transB", 0):
            b = _turned(b)
        if len(a.shape) != 2 or len(b.shape) != 2:
            raise InputError("matrices are expected")
        found = self._product(a, b)
        if alpha != 1:
            found = self._times(found, _scalar(alpha))
        if c is None:
            return found
        if beta != 1:
            c = self._times(c, _scalar(beta))
        return self._plus(found, c)

    def _product(self, a: Value, b: Value) -> Value:
        if _is_whole(a) or _is_whole(b):
            raise InputError("a product of whole numbers")
        if isinstance(a, Flow) and isinstance(b, Tensor):
            # x·M for the row x: the layer's weights are Mᵀ.
            if len(b.shape) != 2:
                raise InputError(f"a product with an array of shape {list(b.shape)}; a matrix is expected")
            _check_vector(a, len(a.shape) - 1)
            if a.shape[-1] != b.shape[0]:
                raise InputError(f"a product of the shapes {shown(a.shape)} and {list(b.shape)}")
            self._assembly.affine(b.transposed((1, 0)), None)
            return Flow((*a.shape[:-1], b.shape[1]))
        if isinstance(a, Tensor) and isinstance(b, Flow):
            if len(a.shape) != 2:
                raise InputError(f"a product with an array of shape {list(a.shape)}; a matrix is expected")
            side = max(len(b.shape) - 2, 0)
            _check_vector(b, side)
            if b.shape[side] != a.shape[1]:
                raise InputError(f"a product of the shapes {list(a.shape)} and {shown(b.shape)}")
            self._assembly.affine(a, None)
            return Flow((*b.shape[:side], a.shape[0], *b.shape[side + 1 :]))
        if isinstance(a, Tensor) and isinstance(b, Tensor):
            if len(a.shape) != 2 or len(b.shape) != 2:
                raise InputError("a product of constants that are no matrices")
            self.work += a.size * b.shape[1]
            return a @ b
        raise _two_flows(a, b)

    def _add(self, _: Node, values: list[Value | None]) -> Value:
        return self._plus(*_exactly(values, 2))

    def _sub(self, _: Node, values: list[Value | None]) -> Value:
        a, b = _exactly(values, 2)
        return self._plus(a, self._times(b, _like(b, -1)))

    def _mul(self, _: Node, values: list[Value | None]) -> Value:
        return self._times(*_exactly(values, 2))

    def _div(self, _: Node, values: list[Value | None]) -> Value:
        a, b = _exactly(values, 2)
        if isinstance(b, Flow):
            raise InputError("a division by what depends on the input")
        if not isinstance(a, Flow) and _is_whole(a) and _is_whole(b):
            return _whole_quotient(sizes_of(a, "a division"), sizes_of(b, "a division"))
        if not isinstance(b, Tensor) or b.is_whole:
            raise InputError("a division by whole numbers")
        return self._times(a, b.reciprocal())

    def _neg(self, _: Node, values: list[Value | None]) -> Value:
        (a,) = _exactly(values, 1)
        return self._times(a, _like(a, -1))

    def _plus(self, a: Value, b: Value) -> Value:
        if isinstance(a, Flow) and isinstance(b, Flow):
            raise _two_flows(a, b)
        if isinstance(b, Flow):
            a, b = b, a
        if isinstance(a, Flow):
            self._assembly.shift(_entrywise(a, b))
            return a
        return _computed(a, b, lambda x, y: x + y, lambda x, y: x + y)

    def _times(self, a: Value, b: Value) -> Value:
        if isinstance(a, Flow) and isinstance(b, Flow):
            raise _two_flows(a, b)
        if isinstance(b, Flow):
            a, b = b, a
        if isinstance(a, Flow):
            self._assembly.scale(_entrywise(a, b))
            return a
        return _computed(a, b, lambda x, y: x * y, lambda x, y: x * y)

    def _batch_normalisation(self, node: Node, values: list[Value | None]) -> Value:
        x, *parts = _exactly(values, 5)
        epsilon = node.number("epsilon", 1e-5)
        node.number("momentum", 0.9)
        if node.integer("training_mode", 0) or node.integer("spatial", 1) != 1:
            raise InputError("it is in training mode: export the model for inference (model.eval())")
        if not isinstance(x, Flow) or len(x.shape) < 2:
            raise InputError("it is applied to something else than the samples of a batch")
        vectors = []
        for part in parts:
            if not isinstance(part, Tensor) or part.shape != (x.shape[1],) or part.is_whole:
                raise InputError(f"its parameters must be vectors of {x.shape[1]} numbers, one per channel")
            wide = part.reshaped((x.sides[1], *(1 for _ in x.shape[2:])))
            vectors.append(wide.broadcast(x.sides[1:]).reshaped((x.width,)))
        gamma, beta, mean, variance = vectors
        if x.sides[0] != 1:
            raise InputError("it is applied to a batch of a fixed size: export the model for one input")
        self._assembly.batch_normalise(gamma, beta, mean, variance + _scalar(epsilon))
        return x

    # -- activations -------------------------------------------------------------------------------------------------

    def _activate(self, values: Sequence[Value | None], name: str) -> Flow:
        x = values[0] if values else None
        if not isinstance(x, Flow):
            raise InputError("it is applied to a constant: let the exporter fold constants")
        self._assembly.activate(name)
        return x

    def _relu(self, _: Node, values: list[Value | None]) -> Value:
        return self._activate(_exactly(values, 1), "relu")

    def _leaky_relu(self, node: Node, values: list[Value | None]) -> Value:
        slope = node.number("alpha", 0.01)
        return self._activate(_exactly(values, 1), f"leaky_relu:{slope}" if slope else "relu")

    def _elu(self, node: Node, values: list[Value | None]) -> Value:
        return self._activate(_exactly(values, 1), f"elu:{node.number('alpha', 1.0)}")

    def _tanh(self, _: Node, values: list[Value | None]) -> Value:
        return self._activate(_exactly(values, 1), "tanh")

    def _sigmoid(self, _: Node, values: list[Value | None]) -> Value:
        return self._activate(_exactly(values, 1), "sigmoid")

    def _softplus(self, _: Node, values: list[Value | None]) -> Value:
        return self._activate(_exactly(values, 1), "softplus")

    def _clip(self, node: Node, values: list[Value | None]) -> Value:
        x, *ends = _between(values, 1, 3)
        low, high = (_end(end) for end in ends)
        if self._opset < 11:
            largest = float(np.finfo(np.float32).max)
            if any(end is not None for end in ends):
                raise InputError("before version 11 its ends are attributes")
            low, high = node.number("min", -largest), node.number("max", largest)
        return self._activate([x], _clip(low, high))

    def _softmax(self, node: Node, values: list[Value | None]) -> Value:
        (x,) = _exactly(values, 1)
        if not isinstance(x, Flow):
            raise InputError("it is applied to a constant")
        axis = _axis(node.integer("axis", -1 if self._opset >= 13 else 1), len(x.shape))
        over = x.sides[axis] if self._opset >= 13 else math.prod(x.sides[axis:])
        if over != x.width or x.shape[axis] is None:
            raise InputError(f"it is not taken over all classes: axis {axis} of the shape {shown(x.shape)}")
        if not self._strip_softmax:
            raise InputError(
                "margins live on the logits before it: export the model without it, or say --strip-softmax to leave it "
                "out (it keeps the order of the logits)"
            )
        self.stripped = True
        return replace(x, softened=True)

    # -- shapes ------------------------------------------------------------------------------------------------------

    def _identity(self, _: Node, values: list[Value | None]) -> Value:
        return _exactly(values, 1)[0]

    def _dropout(self, node: Node, values: list[Value | None]) -> Value:
        x, _, training = _between(values, 1, 3)
        node.number("ratio", 0.5)
        node.integer("seed", 0)
        if training is not None and not (
            isinstance(training, Tensor) and training.is_whole and not np.any(training.stored)
        ):
            raise InputError("it is in training mode: export the model for inference (model.eval())")
        if x is None:
            raise InputError("its input is missing")
        return x

    def _cast(self, node: Node, values: list[Value | None]) -> Value:
        (x,) = _exactly(values, 1)
        kind = node.integer("to", 0)
        node.integer("saturate", 1)
        if isinstance(x, Flow):
            if kind not in FLOAT_TYPES:
                raise InputError(f"a conversion of numbers that depend on the input to type {kind}: only to floats")
            return x
        if isinstance(x, Sizes):
            if kind not in _INTEGER_TYPES:
                raise InputError(f"a conversion of sizes to type {kind}")
            return x
        return _converted(x, kind)

    def _flatten(self, node: Node, values: list[Value | None]) -> Value:
        (x,) = _exactly(values, 1)
        axis = node.integer("axis", 1)
        axis = axis + len(x.shape) if axis < 0 else axis
        if not 0 <= axis <= len(x.shape):
            raise InputError(f"axis {axis} of {len(x.shape)} dimensions")
        if isinstance(x, Tensor):
            return x.reshaped((math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))
        if not isinstance(x, Flow):
            raise InputError("sizes are flattened")
        before, after = x.shape[:axis], x.sides[axis:]
        front: Size = math.prod(x.sides[:axis])
        if None in x.shape:
            if None not in before:
                raise InputError(f"axis {axis} of the shape {shown(x.shape)} mixes samples of a batch")
            front = None if front == 1 else -1
        if front == -1:
            raise InputError(f"axis {axis} of the shape {shown(x.shape)} mixes samples of a batch")
        return x.with_shape((front, math.prod(after)))

    def _reshape(self, node: Node, values: list[Value | None]) -> Value:
        x, shape = _exactly(values, 2)
        wanted = sizes_of(shape, "its shape").values
        allow_zero = bool(node.integer("allowzero", 0))
        if any(side is not None and side < -1 for side in wanted) or wanted.count(-1) > 1:
            raise InputError(f"a change of shape to {shown(wanted)}")
        if isinstance(x, Flow):
            return x.reshaped(wanted, zero_copies=not allow_zero)
        if isinstance(x, Sizes):
            if wanted in {(1,), (-1,), ()} and len(x.values) == 1:
                return Sizes(x.values, scalar=not wanted)
            raise InputError(f"a change of shape of sizes to {shown(wanted)}")
        if None in wanted:
            raise InputError("a constant gets the shape of a batch")
        sides = [
            x.shape[i] if side == 0 and not allow_zero and i < len(x.shape) else int(side or 0)
            for i, side in enumerate(wanted)
        ]
        known = math.prod(side for side in sides if side != -1)
        if -1 in sides and known > 0:
            sides[sides.index(-1)] = x.size // known
        if math.prod(sides) != x.size or min(sides, default=0) < 0:
            raise InputError(f"a change of shape from {list(x.shape)} to {shown(wanted)}")
        return x.reshaped(tuple(sides))

    def _transpose(self, node: Node, values: list[Value | None]) -> Value:
        (x,) = _exactly(values, 1)
        order = node.integers("perm")
        order = list(range(len(x.shape)))[::-1] if order is None else order
        if isinstance(x, Flow):
            return x.transposed(order)
        if not isinstance(x, Tensor) or sorted(order) != list(range(len(x.shape))):
            raise InputError(f"a transposition {order[:20]} of {len(x.shape)} dimensions")
        return x.transposed(tuple(order))

    def _squeeze(self, node: Node, values: list[Value | None]) -> Value:
        x, axes = self._with_axes(node, values)
        if axes is None:
            if isinstance(x, Flow) and None in x.shape:
                raise InputError("it does not say which sides it takes away, and the batch may be one of them")
            axes = [index for index, side in enumerate(x.shape) if side == 1]
        gone = {_axis(axis, len(x.shape)) for axis in axes}
        if any(x.shape[axis] != 1 for axis in gone) or len(gone) < len(axes):
            raise InputError(f"it takes away sides of the shape {shown(x.shape)} that are not 1")
        return _reshaped(x, [side for index, side in enumerate(x.shape) if index not in gone])

    def _unsqueeze(self, node: Node, values: list[Value | None]) -> Value:
        x, axes = self._with_axes(node, values)
        if axes is None:
            raise InputError("it does not say where")
        rank = len(x.shape) + len(axes)
        new = {_axis(axis, rank) for axis in axes}
        if len(new) < len(axes):
            raise InputError("it names a side twice")
        old = iter(x.shape)
        return _reshaped(x, [1 if index in new else next(old) for index in range(rank)])

    def _with_axes(self, node: Node, values: list[Value | None]) -> tuple[Value, list[int] | None]:
        """The axes are an attribute before version 13, an input from there on."""
        x, given = _between(values, 1, 2)
        if x is None or (given is not None and self._opset < 13):
            raise InputError("its inputs are not those of this version of the operator")
        if self._opset < 13:
            return x, node.integers("axes")
        return x, None if given is None else _plain(sizes_of(given, "its axes"))

    # -- constants and sizes -----------------------------------------------------------------------------------------

    def _constant(self, node: Node, values: list[Value | None]) -> Value:
        _exactly(values, 0)
        if (tensor := node.tensor("value")) is not None:
            return tensor_of(self._array(tensor, "its value"), "its value")
        if node.has("value_float"):
            return tensor_of(np.array(float(node.number("value_float", 0.0)), dtype=np.float32), "its value")
        if node.has("value_int"):
            return Tensor(np.array(node.integer("value_int", 0), dtype=np.int64))
        if (floats := node.floats("value_floats")) is not None:
            return tensor_of(np.array(floats, dtype=np.float32), "its value")
        if (integers := node.integers("value_ints")) is not None:
            return Tensor(np.array(integers, dtype=np.int64))
        raise InputError("a constant without numbers")

    def _constant_of_shape(self, node: Node, values: list[Value | None]) -> Value:
        (given,) = _exactly(values, 1)
        sides = _plain(sizes_of(given, "its shape"))
        tensor = node.tensor("value")
        value = np.zeros(1, dtype=np.float32) if tensor is None else self._array(tensor, "its value")
        if value.size != 1 or min(sides, default=1) < 0 or math.prod(sides) > MAX_WORK:
            raise InputError(f"a constant of the shape {sides[:20]}")
        return tensor_of(np.broadcast_to(value.reshape(()), sides), "its value")

    def _shape(self, node: Node, values: list[Value | None]) -> Value:
        (x,) = _exactly(values, 1)
        rank = len(x.shape)
        start, end = node.integer("start", 0), node.integer("end", rank)
        return Sizes(tuple(x.shape[slice(*(min(max(i + rank if i < 0 else i, 0), rank) for i in (start, end)))]))

    def _gather(self, node: Node, values: list[Value | None]) -> Value:
        data, indices = (sizes_of(value, "sizes are gathered") for value in _exactly(values, 2))
        if node.integer("axis", 0) not in {0, -1} or data.scalar:
            raise InputError("only entries of a list are gathered")
        places = [_axis(index, len(data.values)) for index in _plain(indices)]
        return Sizes(tuple(data.values[place] for place in places), scalar=indices.scalar)

    def _concat(self, node: Node, values: list[Value | None]) -> Value:
        if node.integer("axis", 0) not in {0, -1} or not values:
            raise InputError("only lists of sizes are put together")
        if any(isinstance(value, Flow) for value in values):
            raise InputError(
                f"values that depend on the input are put together: only chains of layers are understood; {ADVICE}"
            )
        parts = [sizes_of(value, "lists of sizes") for value in values if value is not None]
        if any(part.scalar for part in parts) or len(parts) < len(values):
            raise InputError("only lists of sizes are put together")
        return Sizes(tuple(side for part in parts for side in part.values))

    def _slice(self, node: Node, values: list[Value | None]) -> Value:
        parts: list[list[int] | None]
        if self._opset < 10:
            parts = [node.integers("starts"), node.integers("ends"), node.integers("axes"), None]
            _exactly(values, 1)
        else:
            given = _between(values, 3, 5)[1:]
            parts = [None if item is None else _plain(sizes_of(item, "a part")) for item in given]
        starts, ends, axes, steps = parts
        if not starts or not ends or len(starts) > 1 or len(ends) > 1:
            raise InputError("only a part of a list is understood")
        if values[0] is None or axes not in (None, [0], [-1]) or steps not in (None, [1]):
            raise InputError("only a part of a list, in its order, is understood")
        return Sizes(sizes_of(values[0], "sizes are sliced").values[starts[0] : ends[0]])


_METHODS: dict[str, Callable[[Operators, Node, list[Value | None]], Value]] = {
    "MatMul": Operators._matmul,
    "Gemm": Operators._gemm,
    "Add": Operators._add,
    "Sub": Operators._sub,
    "Mul": Operators._mul,
    "Div": Operators._div,
    "Neg": Operators._neg,
    "BatchNormalization": Operators._batch_normalisation,
    "Relu": Operators._relu,
    "LeakyRelu": Operators._leaky_relu,
    "Elu": Operators._elu,
    "Tanh": Operators._tanh,
    "Sigmoid": Operators._sigmoid,
    "Softplus": Operators._softplus,
    "Clip": Operators._clip,
    "Softmax": Operators._softmax,
    "Identity": Operators._identity,
    "Dropout": Operators._dropout,
    "Cast": Operators._cast,
    "Flatten": Operators._flatten,
    "Reshape": Operators._reshape,
    "Transpose": Operators._transpose,
    "Squeeze": Operators._squeeze,
    "Unsqueeze": Operators._unsqueeze,
    "Constant": Operators._constant,
    "ConstantOfShape": Operators._constant_of_shape,
    "Shape": Operators._shape,
    "Gather": Operators._gather,
    "Concat": Operators._concat,
    "Slice": Operators._slice,
    "LogSoftmax": Operators._softmax,
}

_STRUCTURAL = {"Identity", "Cast", "Flatten", "Reshape", "Squeeze", "Unsqueeze", "Shape"}


# -- small parts -----------------------------------------------------------------------------------------------------


def _exactly(values: list[Value | None], count: int) -> list[Value]:
    found = [value for value in values if value is not None]
    if len(values) != count or len(found) != count:
        raise InputError(f"{count} inputs are expected, and {len(found)} are given")
    return found


def _between(values: list[Value | None], least: int, most: int) -> list[Value | None]:
    if not least <= len(values) <= most or any(value is None for value in values[:least]):
        raise InputError(f"{least} to {most} inputs are expected, and {len(values)} are given")
    return [*values, *(None for _ in range(most - len(values)))]


def tensor_of(array: npt.NDArray[Any], where: str) -> Tensor:
    try:
        return Tensor(array)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _scalar(value: Fraction) -> Tensor:
    numerators = np.empty((), dtype=object)
    numerators[()] = value.numerator
    return Tensor(None, (numerators, value.denominator))


def _is_whole(value: Value) -> bool:
    return isinstance(value, Sizes) or (isinstance(value, Tensor) and value.is_whole)


def _like(value: Value, number: int) -> Tensor:
    """That number, of the kind of `value`: whole, or real."""
    return Tensor(np.array(number, dtype=np.int64)) if _is_whole(value) else _scalar(Fraction(number))


def _two_flows(a: Value, b: Value) -> InputError:
    if isinstance(a, Flow) and isinstance(b, Flow):
        return InputError(
            f"two values that depend on the input meet: a branch, and only chains are understood; {ADVICE}"
        )
    return InputError("sizes where numbers are expected")


def _entrywise(flow: Flow, value: Value) -> Tensor:
    """A constant for each entry of what flows, or one for all: a vector. Raises: InputError if it would be enlarged."""
    if not isinstance(value, Tensor) or value.is_whole:
        raise InputError("whole numbers are combined with what depends on the input")
    if value.size == 1 and len(value.shape) <= len(flow.shape):
        return value.reshaped((1,))
    if len(value.shape) > len(flow.shape):
        raise InputError(f"an array of shape {list(value.shape)} beside {shown(flow.shape)} adds dimensions")
    return value.broadcast(flow.sides).reshaped((flow.width,))


def _computed(a: Value, b: Value, real: Callable[[Tensor, Tensor], Tensor], whole: Callable[[int, int], int]) -> Value:
    """Of two constants, both real or both whole."""
    if isinstance(a, Tensor) and isinstance(b, Tensor) and not a.is_whole and not b.is_whole:
        return real(a, b)
    if not (_is_whole(a) and _is_whole(b)):
        raise InputError("whole and real numbers are combined")
    return _pairwise(sizes_of(a, "whole numbers"), sizes_of(b, "whole numbers"), whole)


def _pairwise(a: Sizes, b: Sizes, combine: Callable[[int, int], int]) -> Sizes:
    x, y = _plain(a), _plain(b)
    count = max(len(x), len(y))
    if {len(x), len(y)} - {1, count}:
        raise InputError(f"{len(x)} and {len(y)} whole numbers are combined")
    found = tuple(combine(x[i % len(x)], y[i % len(y)]) for i in range(count))
    if any(abs(number) >= 2**62 for number in found):
        raise InputError("a whole number beyond 64 bits")
    return Sizes(found, scalar=a.scalar and b.scalar)


def _whole_quotient(a: Sizes, b: Sizes) -> Sizes:
    if not all(x >= 0 for x in _plain(a)) or not all(x > 0 for x in _plain(b)):
        raise InputError("a division of whole numbers that are not positive")
    return _pairwise(a, b, lambda x, y: x // y)


def _plain(sizes: Sizes) -> list[int]:
    """Raises: InputError if the batch is among them."""
    found = [size for size in sizes.values if size is not None]
    if len(found) < len(sizes.values):
        raise InputError("it computes with the size of the batch, which is not known")
    return found


def _check_vector(flow: Flow, side: int) -> None:
    """Raises: InputError unless all numbers of a sample are along that side."""
    if any(size != 1 for index, size in enumerate(flow.sides) if index != side) or flow.shape[side] is None:
        raise InputError(
            f"a product with what has the shape {shown(flow.shape)}: all numbers of a sample must be along one side; "
            "flatten it first (or was the model exported for a batch of a fixed size?)"
        )


def _turned(value: Value) -> Value:
    if len(value.shape) != 2 or isinstance(value, Sizes):
        raise InputError("a matrix is expected")
    return value.transposed((1, 0))


def _reshaped(x: Value, shape: list[Size]) -> Value:
    if isinstance(x, Flow):
        return x.with_shape(shape)
    if isinstance(x, Sizes):
        if len(shape) > 1:
            raise InputError("sizes become a matrix")
        return Sizes(x.values, scalar=not shape)
    return x.reshaped(tuple(int(side or 0) for side in shape))


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise InputError(f"axis {axis} of {rank} dimensions")
    return axis % rank


def _end(value: Value | None) -> Fraction | None:
    """One end of a clip."""
    if value is None:
        return None
    if not isinstance(value, Tensor) or value.size != 1 or value.is_whole:
        raise InputError("its ends must be single constants")
    numerators, denominator = value.exact()
    return Fraction(numerators.ravel().tolist()[0], denominator)


def _clip(low: Fraction | None, high: Fraction | None) -> str:
    if low is None and high is None:
        return "identity"
    if low == 0 and high is None:
        return "relu"
    if low == -1 and high == 1:
        return "hard_tanh"
    return f"clip:{'-inf' if low is None else low}:{'inf' if high is None else high}"


def _converted(x: Tensor, kind: int) -> Tensor:
    """A constant of another type, if that changes none of its numbers."""
    target = {1: np.float32, 10: np.float16, 11: np.float64, 6: np.int32, 7: np.int64, 9: np.bool_}.get(kind)
    if target is None or x.stored is None:
        raise InputError(f"a conversion of a constant to type {kind}")
    with np.errstate(all="ignore"):
        made: npt.NDArray[Any] = x.stored.astype(target)
        if kind == 9:
            made = made.astype(np.uint8)
        if (
            not np.array_equal(made.astype(np.float64), x.stored.astype(np.float64))
            or (np.abs(x.stored.astype(np.float64)) >= 2**53).any()
        ):
            raise InputError(f"a conversion of a constant to type {kind} that changes its numbers")
    return Tensor(made)
