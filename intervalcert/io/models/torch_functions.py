"""Functions and methods of tensors in a traced graph: sums, parts, what is put together, other shapes.

A value is a `Flow`, a constant (`Tensor`), a plain number, a list of values, or a size; `BATCH` is the size of the
batch, with which nothing is computed. Arguments are checked against what each function is known to take.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from intervalcert.errors import InputError
from intervalcert.io.models import onnx_functions as functions
from intervalcert.io.models import onnx_windows as windows
from intervalcert.io.models.assembly_graph import Graph
from intervalcert.io.models.onnx_moves import joined, parts_of, picked, positions_of, transposed
from intervalcert.io.models.onnx_node import axis_of
from intervalcert.io.models.onnx_operators import Operators
from intervalcert.io.models.onnx_values import Flow, Size, Value, check_rank, shown
from intervalcert.io.models.tensors import Tensor
from intervalcert.io.models.torch_numbers import Numbers

__all__ = ["BATCH", "CHANGING", "STRUCTURAL", "VIEWS", "Functions", "named_functions"]

BATCH = "the size of the batch"

VIEWS = {"view", "reshape", "getitem", "chunk", "split", "contiguous", "permute", "transpose", "squeeze", "unsqueeze"}
"""Those whose results may be at the same place in the memory as what they are taken from."""

STRUCTURAL = {"view", "reshape", "contiguous", "size", "getattr", "squeeze", "unsqueeze"}
"""Those that change no numbers."""

CHANGING = {"iadd": "add", "isub": "sub", "imul": "mul", "itruediv": "div"} | {
    f"{name}_": name for name in ("add", "sub", "mul", "div")
}
"""Those that change their first argument in place: what they compute."""


class Functions:
    """The functions by their names, of arguments that are bound to the names in `_PARAMETERS`."""

    def __init__(self, numbers: Numbers, graph: Graph) -> None:
        self._numbers, self._graph = numbers, graph
        self._operators = Operators(graph, 0, strip_softmax=False)

    def run(self, name: str, arguments: Sequence[Any], named: dict[str, Any]) -> Any:
        """Raises: InputError for what is not known, or not with these arguments."""
        if name not in _FUNCTIONS:
            raise InputError(f"{name} is not understood (only {', '.join(sorted(_FUNCTIONS))})")
        step, parameters = _FUNCTIONS[name]
        names = parameters.split()
        if names and names[-1].startswith("*"):  # view(x, 2, 3) and view(x, (2, 3))
            x, *sizes = arguments
            listed = sizes[0] if len(sizes) == 1 and isinstance(sizes[0], tuple | list) else sizes
            arguments = [x, list(listed)]
            names[-1] = names[-1][1:]
        if len(arguments) > len(names) or set(named) - set(names[len(arguments) :]):
            raise InputError(f"{name} is understood with the arguments {', '.join(names)} only")
        return step(self, **dict(zip(names, arguments, strict=False)), **named)

    # -- sums and products -----------------------------------------------------------------------------------------

    def _both(self, a: Any, b: Any) -> tuple[Value, Value]:
        found = []
        for value in (a, b):
            if not isinstance(value, Flow | Tensor) and type(value) not in {int, float}:
                raise InputError(f"it is applied to {value!r}")
            found.append(value if isinstance(value, Flow | Tensor) else self._numbers.scalar(self._graph, value))
        if not any(isinstance(value, Flow) for value in found):
            raise InputError("it computes with constants alone: put what it gives into the model")
        return found[0], found[1]

    def _add(self, input: Any, other: Any, alpha: Any = 1) -> Any:  # noqa: A002
        return self._operators.plus(*self._terms(input, other, alpha))

    def _sub(self, input: Any, other: Any, alpha: Any = 1) -> Any:  # noqa: A002
        return self._operators.minus(*self._terms(input, other, alpha))

    def _terms(self, a: Any, b: Any, alpha: Any) -> tuple[Value, Value]:
        if alpha != 1:
            raise InputError(f"its alpha is {alpha!r}; only 1 is understood")
        return self._both(a, b)

    def _mul(self, input: Any, other: Any) -> Any:  # noqa: A002
        if type(input) is int and type(other) is int:
            return input * other  # of sizes
        return self._operators.times(*self._both(input, other))

    def _div(self, input: Any, other: Any) -> Any:  # noqa: A002
        a, b = self._both(input, other)
        if not isinstance(a, Flow) or isinstance(b, Flow):
            raise InputError("a division by what depends on the input, which is not understood")
        return self._operators.divided(a, b)

    def _floordiv(self, input: Any, other: Any) -> Any:  # noqa: A002
        if type(input) is not int or type(other) is not int or other < 1:
            raise InputError("only sizes are divided with a remainder")
        return input // other

    def _neg(self, input: Any) -> Any:  # noqa: A002
        x = _flow(input)
        return replace(x, value=self._graph.negative(x.numbers))

    # -- maxima, means, order --------------------------------------------------------------------------------------

    def _extreme(self, which: int, x: Any, other: Any, dim: Any, keepdim: Any) -> Any:
        """Of two values, or along an axis: then it gives indices, too, which are not known."""
        if type(other) is int and dim is None:
            dim, other = other, None
        if other is None:
            if type(dim) is not int:
                raise InputError("of one value it is understood along an axis only")
            return [windows.largest(self._graph, *self._over(x, dim, keepdim), sign=1 if which else -1), None]
        a, b = self._both(x, other)
        of = functions.largest if which else functions.smallest
        return of(self._graph, None, [a, b])  # type: ignore[arg-type]

    def _max(self, input: Any, other: Any = None, keepdim: Any = False, dim: Any = None) -> Any:  # noqa: A002
        return self._extreme(1, input, other, dim, keepdim)

    def _min(self, input: Any, other: Any = None, keepdim: Any = False, dim: Any = None) -> Any:  # noqa: A002
        return self._extreme(0, input, other, dim, keepdim)

    def _mean(self, input: Any, dim: Any, keepdim: Any = False) -> Any:  # noqa: A002
        return windows.summed(self._graph, *self._over(input, dim, keepdim), mean=True)

    def _over(self, x: Any, dim: Any, keepdim: Any) -> tuple[Flow, list[int], list[Size]]:
        """What is reduced, the axes that go, and the shape that is left."""
        flow = _flow(x)
        gone = sorted({_axis(axis, flow) for axis in (dim if isinstance(dim, tuple | list) else [dim])})
        for axis in gone:
            flow.check_side(axis, "it reduces")
        left = [1 if i in gone else side for i, side in enumerate(flow.shape) if keepdim or i not in gone]
        return flow, gone, left

    def _sort(self, input: Any, dim: Any = -1, descending: Any = False) -> Any:  # noqa: A002
        x = _flow(input)
        axis = _axis(dim, x)
        x.check_side(axis, "it sorts")
        inner = math.prod(x.sides[axis + 1 :])
        value = self._graph.sort(x.numbers, x.sides[axis], inner, ascending=not descending)
        return [replace(x, value=value), None]

    # -- other shapes ----------------------------------------------------------------------------------------------

    def _view(self, input: Any, shape: Any) -> Any:  # noqa: A002
        x = _flow(input)
        if not all(side == BATCH or (type(side) is int and side >= -1) for side in shape) or shape.count(-1) > 1:
            raise InputError(f"a change of shape to {shape!r}")
        check_rank(shape)
        return x.reshaped([None if side == BATCH else side for side in shape], zero_copies=False)

    def _contiguous(self, input: Any) -> Any:  # noqa: A002
        return _flow(input)

    def _size(self, input: Any, dim: Any = None) -> Any:  # noqa: A002
        sides = [BATCH if side is None else side for side in _flow(input).shape]
        return sides if dim is None else sides[_axis(dim, _flow(input))]

    def _getattr(self, input: Any, name: Any) -> Any:  # noqa: A002
        if name != "shape":
            raise InputError(f"the attribute {name!r} of a tensor; only its shape is understood")
        return self._size(input)

    def _permute(self, input: Any, dims: Any) -> Any:  # noqa: A002
        x = _flow(input)
        order = [_axis(axis, x) for axis in dims]
        if sorted(order) != list(range(len(x.shape))):
            raise InputError(f"a transposition {dims!r} of {len(x.shape)} dimensions")
        return transposed(self._graph, x, order)

    def _transpose(self, input: Any, dim0: Any, dim1: Any) -> Any:  # noqa: A002
        x = _flow(input)
        order, a, b = list(range(len(x.shape))), _axis(dim0, x), _axis(dim1, x)
        order[a], order[b] = b, a
        return transposed(self._graph, x, order)

    def _squeeze(self, input: Any, dim: Any) -> Any:  # noqa: A002
        x = _flow(input)
        axis = _axis(dim, x)
        x.check_side(axis, "it takes away")
        return x if x.shape[axis] != 1 else x.with_shape([*x.shape[:axis], *x.shape[axis + 1 :]])

    def _unsqueeze(self, input: Any, dim: Any) -> Any:  # noqa: A002
        x = _flow(input)
        if type(dim) is not int:
            raise InputError(f"the axis {dim!r}")
        axis = axis_of(dim, len(x.shape) + 1)
        return x.with_shape([*x.shape[:axis], 1, *x.shape[axis:]])

    # -- parts -----------------------------------------------------------------------------------------------------

    def _getitem(self, input: Any, index: Any) -> Any:  # noqa: A002
        if isinstance(input, list):
            if not isinstance(index, int | slice) or isinstance(index, bool):
                raise InputError(f"the part {index!r} of a list")
            try:
                return input[index]
            except (IndexError, TypeError):
                raise InputError(f"the part {index!r} of a list of {len(input)}") from None
        x = _flow(input)
        cuts = list(index) if isinstance(index, tuple) else [index]
        if cuts.count(Ellipsis) == 1:
            place = cuts.index(Ellipsis)
            cuts[place : place + 1] = [slice(None)] * (len(x.shape) - len(cuts) + 1)
        if len(cuts) > len(x.shape) or not all(type(cut) is int or isinstance(cut, slice) for cut in cuts):
            raise InputError(f"the part {index!r} of the shape {shown(x.shape)}; numbers and slices are understood")
        ends = [end for cut in cuts if isinstance(cut, slice) for end in (cut.start, cut.stop, cut.step)]
        if not all(end is None or type(end) is int for end in ends) or (None in x.shape and cuts[0] != slice(None)):
            raise InputError(f"the part {index!r} of the shape {shown(x.shape)}, which may mix samples of a batch")
        for cut, side in zip(cuts, x.sides, strict=False):
            if isinstance(cut, int) and not -side <= cut < side:
                raise InputError(f"the part {index!r} of the shape {shown(x.shape)}, which is not there")
        places = positions_of(self._graph, x)[tuple(cuts)]
        return picked(self._graph, x, places, [*x.shape[:1], *places.shape[1:]])

    def _chunk(self, input: Any, chunks: Any, dim: Any = 0) -> Any:  # noqa: A002
        x = _flow(input)
        if type(chunks) is not int or chunks < 1:
            raise InputError(f"{chunks!r} parts")
        return self._split(x, -(-x.sides[_axis(dim, x)] // chunks), dim)

    def _split(self, tensor: Any, split_size_or_sections: Any, dim: Any = 0) -> Any:
        x, sizes = _flow(tensor), split_size_or_sections
        axis = _axis(dim, x)
        x.check_side(axis, "it splits")
        side = x.sides[axis]
        if type(sizes) is int and sizes > 0:
            sizes = [min(sizes, side - start) for start in range(0, side, sizes)]
        if not isinstance(sizes, list) or not all(type(size) is int and size > 0 for size in sizes) or not sizes:
            raise InputError(f"parts of {split_size_or_sections!r}")
        if sum(sizes) != side:
            raise InputError(f"{side} numbers along the axis {axis} in parts of {sizes!r}")
        return list(parts_of(self._graph, x, axis, sizes))

    def _cat(self, tensors: Any, dim: Any = 0) -> Any:
        if not isinstance(tensors, list) or not tensors or not all(isinstance(x, Flow) for x in tensors):
            raise InputError("it puts something else together than values that depend on the input")
        return joined(self._graph, tensors, _axis(dim, tensors[0]))


def _flow(x: Any) -> Flow:
    if not isinstance(x, Flow):
        raise InputError("it is applied to something that does not depend on the input")
    return x


def _axis(axis: Any, x: Flow) -> int:
    if type(axis) is not int:
        raise InputError(f"the axis {axis!r}")
    return axis_of(axis, len(x.shape))


_Step = tuple[Callable[..., Any], str]

_FUNCTIONS: dict[str, _Step] = {
    "add": (Functions._add, "input other alpha"),
    "sub": (Functions._sub, "input other alpha"),
    "mul": (Functions._mul, "input other"),
    "div": (Functions._div, "input other"),
    "truediv": (Functions._div, "input other"),
    "floordiv": (Functions._floordiv, "input other"),
    "neg": (Functions._neg, "input"),
    "max": (Functions._max, "input other keepdim dim"),
    "min": (Functions._min, "input other keepdim dim"),
    "maximum": (Functions._max, "input other"),
    "minimum": (Functions._min, "input other"),
    "mean": (Functions._mean, "input dim keepdim"),
    "sort": (Functions._sort, "input dim descending"),
    "view": (Functions._view, "input *shape"),
    "reshape": (Functions._view, "input *shape"),
    "contiguous": (Functions._contiguous, "input"),
    "size": (Functions._size, "input dim"),
    "getattr": (Functions._getattr, "input name"),
    "permute": (Functions._permute, "input *dims"),
    "transpose": (Functions._transpose, "input dim0 dim1"),
    "squeeze": (Functions._squeeze, "input dim"),
    "unsqueeze": (Functions._unsqueeze, "input dim"),
    "getitem": (Functions._getitem, "input index"),
    "chunk": (Functions._chunk, "input chunks dim"),
    "split": (Functions._split, "tensor split_size_or_sections dim"),
    "cat": (Functions._cat, "tensors dim"),
}


def named_functions(torch: Any) -> dict[Any, str]:
    """The functions that torch.fx puts into graphs, and the names by which they are known here."""
    own = [*_FUNCTIONS, *CHANGING]
    found = {getattr(operator, name): name for name in own if hasattr(operator, name)}
    found |= {getattr(torch, name): name for name in own if hasattr(torch, name)}
    found[getattr] = "getattr"
    return found | dict.fromkeys((torch.concat, torch.concatenate), "cat")
