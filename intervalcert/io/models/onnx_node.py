"""One node of an ONNX graph: its names, its attributes, each of which must be understood, and its inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from intervalcert.errors import InputError, shortened
from intervalcert.io.models.onnx_values import Value
from intervalcert.io.models.tensors import Budget, Tensor

__all__ = ["ADVICE", "Node", "ReadTensor", "Values", "axis_of", "between", "check_texts", "exactly"]

ADVICE = "leave it out, or write it with layers that are understood (see the README), and export the model again"

ReadTensor = Callable[[Any, str], Tensor]
"""Reads the numbers of a TensorProto, which is at a place."""

Values = Sequence[Value | None]
"""The inputs of a node; None for one that is left out."""

_FLOAT, _INT, _STRING, _TENSOR, _FLOATS, _INTS = 1, 2, 3, 4, 6, 7


class Node:
    """Its attributes are taken one by one, and none may be left over.

    opset: the version of the operators. budget: what the model may take to compute. where: for messages.
    """

    def __init__(self, proto: Any, index: int, opset: int, read: ReadTensor, budget: Budget) -> None:
        check_texts(proto.op_type, proto.name, *proto.input, *proto.output, *(item.name for item in proto.attribute))
        self.op: str = proto.op_type
        shown = self.op if self.op.isidentifier() else repr(self.op)
        self.where = f"node {shortened(proto.name, 200) or index!r} ({shortened(shown, 100)})"
        self.opset, self.budget, self._read = opset, budget, read
        self.inputs: list[str] = list(proto.input)
        self.outputs: list[str] = list(proto.output)
        self._attributes = {item.name: item for item in proto.attribute}
        if len(self._attributes) < len(proto.attribute):
            raise InputError(f"{self.where}: an attribute is given twice")
        if proto.domain not in {"", "ai.onnx"} or proto.overload:
            domain = shortened(proto.domain, 100)
            raise InputError(f"{self.where}: an operator of {domain!r} is not understood; {ADVICE}")
        if not self.outputs or not self.outputs[0]:
            raise InputError(f"{self.where}: its first output is not used, but another one is")

    def _take(self, name: str, kind: int, field: str) -> Any:
        item = self._attributes.pop(name, None)
        if item is None:
            return None
        if item.type != kind or item.ref_attr_name:
            raise InputError(f"the attribute {name!r} is of another type than it should be")
        return getattr(item, field)

    def number(self, name: str, default: float) -> Fraction:
        """A float32, at its exact value."""
        found = self._take(name, _FLOAT, "f")
        value = float(np.float32(default if found is None else found))
        if not math.isfinite(value):
            raise InputError(f"the attribute {name!r} is {value}")
        return Fraction(value)

    def end(self, name: str, default: float, nothing: float) -> Fraction | None:
        """One end of a range, as `number`; None for that infinity, which is no end."""
        item = self._attributes.get(name)
        if item is None or item.f != nothing:
            return self.number(name, default)
        self._take(name, _FLOAT, "f")
        return None

    def integer(self, name: str, default: int | None = None) -> int:
        """Without a default it must be there."""
        found = self._take(name, _INT, "i")
        if found is None:
            found = default
        if found is None:
            raise InputError(f"the attribute {name!r} is missing")
        return int(found)

    def word(self, name: str, *known: str) -> str:
        """One of these; the first by default."""
        found = self._take(name, _STRING, "s")
        word = known[0] if found is None else found.decode("utf-8", "replace")
        if word not in known:
            raise InputError(f"the attribute {name!r} is {shortened(word, 50)!r}; {', '.join(known)} are understood")
        return word

    def integers(self, name: str) -> list[int] | None:
        found = self._take(name, _INTS, "ints")
        return None if found is None else [int(x) for x in found]

    def floats(self, name: str) -> list[float] | None:
        found = self._take(name, _FLOATS, "floats")
        return None if found is None else list(found)

    def tensor(self, name: str) -> Tensor | None:
        found = self._take(name, _TENSOR, "t")
        return None if found is None else self._read(found, f"its {name}")

    def computed(self, array: npt.NDArray[Any]) -> Tensor:
        """A constant that is not one of the file's arrays."""
        return Tensor(array, budget=self.budget)

    def has(self, name: str) -> bool:
        return name in self._attributes

    def check_all_taken(self) -> None:
        if self._attributes:
            name = next(iter(self._attributes))
            raise InputError(
                f"the attribute {shortened(name, 100)!r} is not understood in version {self.opset} of the operators"
            )


def check_texts(*names: str | bytes) -> None:
    """Raises: InputError for what is no text: protobuf gives bytes then."""
    if any(isinstance(name, bytes) for name in names):
        raise InputError("a name that is not UTF-8: the file is damaged")


def exactly(values: Values, count: int) -> list[Value]:
    found = [value for value in values if value is not None]
    if len(values) != count or len(found) != count:
        raise InputError(f"{count} inputs are expected, and {len(found)} are given")
    return found


def between(values: Values, least: int, most: int) -> list[Value | None]:
    """All of them, with None for those that are left out at the end."""
    if not least <= len(values) <= most or any(value is None for value in values[:least]):
        raise InputError(f"{least} to {most} inputs are expected, and {len(values)} are given")
    return [*values, *(None for _ in range(most - len(values)))]


def axis_of(axis: int, rank: int) -> int:
    """Counted from the front."""
    if not -rank <= axis < rank:
        raise InputError(f"axis {axis} of {rank} dimensions")
    return axis % rank
