"""Functions and methods of tensors in a traced graph: sums, parts, what is put together, other shapes.

A value is a `Flow`, a constant (`Tensor`), a plain number, a list of values, `PLACES`, or the size of the batch
(`Batch`), with which nothing is computed. Arguments are checked against what each function is known to take.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from inspect import signature
from types import SimpleNamespace
from typing import Any, NamedTuple

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
from intervalcert.io.models.torch_operators import Modules
from intervalcert.io.models.torch_trace import Batch

__all__ = ["CHANGING", "PLACES", "STRUCTURAL", "VIEWS", "Extremes", "Functions", "named_functions"]

_AS_IT_IS = {"view", "reshape", "contiguous", "detach", "squeeze", "unsqueeze"}

VIEWS = _AS_IT_IS | {"getitem", "chunk", "split", "permute", "transpose", "pad"}
"""Those whose results may be at the same place in the memory as what they are taken from."""

STRUCTURAL = _AS_IT_IS | {"clone", "size", "dim", "ndimension", "getattr"}
"""Those that change no numbers."""

CHANGING = {"iadd": "add", "isub": "sub", "imul": "mul", "itruediv": "div"} | {
    f"{name}_": name for name in ("add", "sub", "mul", "div", "clamp", "clamp_min", "clamp_max")
}
"""Those that change their first argument in place: what they compute."""


class _Places:
    """Where in a tensor something was, which is not known."""

    def __repr__(self) -> str:
        return "places that depend on the input"


PLACES = _Places()


class Extremes(NamedTuple):
    """What a sort gives, and maxima along an axis."""

    values: Any
    indices: Any


class Functions:
    """The functions by their names, of arguments that are bound to the names in `_FUNCTIONS`.

    batch: stands for the size of the batch in shapes.
    """

    def __init__(self, numbers: Numbers, graph: Graph, modules: Modules) -> None:
        self._numbers, self._graph, self._modules = numbers, graph, modules
        self._operators = Operators(graph, 0, strip_softmax=False)
        self.batch = Batch()

    def run(self, name: str, arguments: Sequence[Any], named: dict[str, Any]) -> Any:
        """Raises: InputError for what is not known, or not with these arguments."""
        if name not in _FUNCTIONS:
            raise InputError(f"{name} is not understood (only {', '.join(sorted(_FUNCTIONS))})")
        step, parameters = _FUNCTIONS[name]
        names = parameters.split()
        if names[-1].startswith("*"):  # view(x, 2, 3) and view(x, (2, 3))
            names[-1] = names[-1][1:]
            sizes = arguments[1:]
            if sizes and not (len(sizes) == 1 and isinstance(sizes[0], tuple | list)):
                arguments = [arguments[0], list(sizes)]
        named = {_ALIASES.get(key, key) if key not in names else key: value for key, value in named.items()}
        if len(arguments) > len(names) or set(named) - set(names[len(arguments) :]):
            raise InputError(f"{name} is understood with the arguments {', '.join(names)} only")
        given = dict(zip(names, arguments, strict=False)) | named
        try:
            signature(step).bind(self, **given)
        except TypeError as error:
            raise InputError(f"{name} is understood with more arguments only ({error})") from None
        return step(self, **given)

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
        return self._operators.times(*self._both(input, other))

    def _div(self, input: Any, other: Any) -> Any:  # noqa: A002
        a, b = self._both(input, other)
        if not isinstance(a, Flow) or isinstance(b, Flow):
            raise InputError("a division by what depends on the input, which is not understood")
        return self._operators.divided(a, b)

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
            return Extremes(self._largest(which, x, dim, keepdim), PLACES)
        return self._larger(which, x, other)

    def _larger(self, which: int, x: Any, other: Any) -> Any:
        if not isinstance(other, Flow | Tensor):
            raise InputError(f"it compares with {other!r}, which is no tensor")
        of = functions.largest if which else functions.smallest
        return of(self._graph, None, list(self._both(x, other)))  # type: ignore[arg-type]

    def _maximum(self, input: Any, other: Any) -> Any:  # noqa: A002
        return self._larger(1, input, other)

    def _minimum(self, input: Any, other: Any) -> Any:  # noqa: A002
        return self._larger(0, input, other)

    def _largest(self, which: int, x: Any, dim: Any, keepdim: Any) -> Flow:
        return windows.largest(self._graph, *self._over(x, dim, keepdim), sign=1 if which else -1)

    def _amax(self, input: Any, dim: Any, keepdim: Any = False) -> Any:  # noqa: A002
        return self._largest(1, input, dim, keepdim)

    def _amin(self, input: Any, dim: Any, keepdim: Any = False) -> Any:  # noqa: A002
        return self._largest(0, input, dim, keepdim)

    def _max(self, input: Any, other: Any = None, keepdim: Any = False, dim: Any = None) -> Any:  # noqa: A002
        return self._extreme(1, input, other, dim, keepdim)

    def _min(self, input: Any, other: Any = None, keepdim: Any = False, dim: Any = None) -> Any:  # noqa: A002
        return self._extreme(0, input, other, dim, keepdim)

    def _mean(self, input: Any, dim: Any, keepdim: Any = False) -> Any:  # noqa: A002
        return windows.summed(self._graph, *self._over(input, dim, keepdim), mean=True)

    def _sum(self, input: Any, dim: Any, keepdim: Any = False) -> Any:  # noqa: A002
        return windows.summed(self._graph, *self._over(input, dim, keepdim), mean=False)

    def _over(self, x: Any, dim: Any, keepdim: Any) -> tuple[Flow, list[int], list[Size]]:
        """What is reduced, the axes that go, and the shape that is left."""
        flow = _flow(x)
        listed = [_axis(axis, flow) for axis in (dim if isinstance(dim, tuple | list) else [dim])]
        gone = sorted(set(listed))
        if not listed or len(gone) < len(listed) or not isinstance(keepdim, bool):
            raise InputError(f"it reduces along {dim!r}, with keepdim {keepdim!r}")
        for axis in gone:
            flow.check_side(axis, "it reduces")
        left = [1 if i in gone else side for i, side in enumerate(flow.shape) if keepdim or i not in gone]
        return flow, gone, left

    def _sort(self, input: Any, dim: Any = -1, descending: Any = False, stable: Any = False) -> Any:  # noqa: A002
        """Whether it is stable changes the places alone."""
        x = _flow(input)
        if not isinstance(descending, bool) or not isinstance(stable, bool):
            raise InputError("its order depends on the input, or is no truth value")
        axis = _axis(dim, x)
        x.check_side(axis, "it sorts")
        inner = math.prod(x.sides[axis + 1 :])
        value = self._graph.sort(x.numbers, x.sides[axis], inner, ascending=not descending)
        return Extremes(replace(x, value=value), PLACES)

    # -- other shapes ----------------------------------------------------------------------------------------------

    def _view(self, input: Any, shape: Any) -> Any:  # noqa: A002
        if not isinstance(shape, tuple | list):
            raise InputError(f"a change of shape to {shape!r}")
        x, wanted = _flow(input), [None if isinstance(side, Batch) else side for side in shape]
        if not all(side is None or (type(side) is int and side >= -1) for side in wanted) or wanted.count(-1) > 1:
            raise InputError(f"a change of shape to {shape!r}")
        check_rank(wanted)
        return x.reshaped(wanted, zero_copies=False)

    def _contiguous(self, input: Any) -> Any:  # noqa: A002
        return _flow(input)

    def _size(self, input: Any, dim: Any = None) -> Any:  # noqa: A002
        if not isinstance(input, Flow | Tensor):
            raise InputError(f"it asks for the shape of {input!r}")
        sides = tuple(self.batch if side is None else side for side in input.shape)
        if dim is not None and type(dim) is not int:
            raise InputError(f"the axis {dim!r}")
        return sides if dim is None else sides[axis_of(dim, len(sides))]

    def _dim(self, input: Any) -> Any:  # noqa: A002
        return len(self._size(input))

    def _getattr(self, input: Any, name: Any) -> Any:  # noqa: A002
        if name not in {"shape", "ndim"}:
            raise InputError(f"the attribute {name!r} of a tensor; only its shape is understood")
        return self._size(input) if name == "shape" else self._dim(input)

    def _permute(self, input: Any, dims: Any) -> Any:  # noqa: A002
        x = _flow(input)
        order = [_axis(axis, x) for axis in (dims if isinstance(dims, tuple | list) else [dims])]
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

    def _pad(self, input: Any, pad: Any, mode: Any = "constant", value: Any = None) -> Any:  # noqa: A002
        if mode != "constant" or not isinstance(pad, tuple | list):
            raise InputError(f"it pads by {pad!r} in the mode {mode!r}; only 'constant' is understood")
        return self._modules.pad(_flow(input), pad, 0 if value is None else value)

    # -- what modules do, with numbers that are given -----------------------------------------------------------------

    def _clamp(self, input: Any, min: Any = None, max: Any = None) -> Any:  # noqa: A002
        if min is None and max is None:
            raise InputError("it has no ends")
        return self._modules.clip(_flow(input), -math.inf if min is None else min, math.inf if max is None else max)

    def _linear(self, input: Any, weight: Any, bias: Any = None) -> Any:  # noqa: A002
        return self._modules.linear(_flow(input), _constant(weight, "weight"), _optional(bias, "bias"))

    def _convolution(self, sides: int, input: Any, weight: Any, bias: Any, **settings: Any) -> Any:  # noqa: A002
        kernel = _constant(weight, "weight")
        if len(kernel.shape) != 2 + sides:
            raise InputError(f"its weights have the shape {list(kernel.shape)}")
        return self._modules.convolve(_flow(input), kernel, _optional(bias, "bias"), SimpleNamespace(**settings))

    def _conv1d(self, input: Any, weight: Any, bias: Any = None, **settings: Any) -> Any:  # noqa: A002
        return self._convolution(1, input, weight, bias, **(_CONVOLUTION | settings))

    def _conv2d(self, input: Any, weight: Any, bias: Any = None, **settings: Any) -> Any:  # noqa: A002
        return self._convolution(2, input, weight, bias, **(_CONVOLUTION | settings))

    def _batch_norm(
        self,
        input: Any,  # noqa: A002
        running_mean: Any,
        running_var: Any,
        weight: Any = None,
        bias: Any = None,
        training: Any = False,
        momentum: Any = 0.1,
        eps: Any = 1e-5,
    ) -> Any:
        del momentum  # of training
        if training is not False:
            raise InputError("it is in training mode, where it depends on the batch: call model.eval() first")
        mean, variance = _constant(running_mean, "running_mean"), _constant(running_var, "running_var")
        gamma, beta = _optional(weight, "weight"), _optional(bias, "bias")
        return self._modules.normalise(_flow(input), mean, variance, gamma, beta, eps)

    # -- parts -----------------------------------------------------------------------------------------------------

    def _getitem(self, input: Any, index: Any) -> Any:  # noqa: A002
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
        if (
            not isinstance(sizes, tuple | list)
            or not all(type(size) is int and size > 0 for size in sizes)
            or not sizes
        ):
            raise InputError(f"parts of {split_size_or_sections!r}")
        if sum(sizes) != side:
            raise InputError(f"{side} numbers along the axis {axis} in parts of {sizes!r}")
        return tuple(parts_of(self._graph, x, axis, sizes))

    def _cat(self, tensors: Any, dim: Any = 0) -> Any:
        flows = _flows(tensors)
        return joined(self._graph, flows, _axis(dim, flows[0]))

    def _stack(self, tensors: Any, dim: Any = 0) -> Any:
        flows = [self._unsqueeze(flow, dim) for flow in _flows(tensors)]
        return joined(self._graph, flows, _axis(dim, flows[0]))


def _flow(x: Any) -> Flow:
    if not isinstance(x, Flow):
        raise InputError("it is applied to something that does not depend on the input")
    return x


def _flows(tensors: Any) -> list[Flow]:
    if not isinstance(tensors, tuple | list) or not tensors or not all(isinstance(x, Flow) for x in tensors):
        raise InputError("it puts something else together than values that depend on the input")
    return list(tensors)


def _constant(value: Any, name: str) -> Tensor:
    if not isinstance(value, Tensor):
        raise InputError(f"its {name} is no parameter and no buffer of the module")
    return value


def _optional(value: Any, name: str) -> Tensor | None:
    return None if value is None else _constant(value, name)


def _axis(axis: Any, x: Flow) -> int:
    if type(axis) is not int:
        raise InputError(f"the axis {axis!r}")
    return axis_of(axis, len(x.shape))


_Step = tuple[Callable[..., Any], str]

_ALIASES = {"axis": "dim", "keepdims": "keepdim"}
"""What torch calls them, too, as numpy does."""

_CONVOLUTION = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1}
_OF_CONVOLUTIONS = "input weight bias stride padding dilation groups"

_FUNCTIONS: dict[str, _Step] = {
    "add": (Functions._add, "input other alpha"),
    "sub": (Functions._sub, "input other alpha"),
    "mul": (Functions._mul, "input other"),
    "div": (Functions._div, "input other"),
    "truediv": (Functions._div, "input other"),
    "neg": (Functions._neg, "input"),
    "max": (Functions._max, "input other keepdim dim"),
    "min": (Functions._min, "input other keepdim dim"),
    "maximum": (Functions._maximum, "input other"),
    "minimum": (Functions._minimum, "input other"),
    "amax": (Functions._amax, "input dim keepdim"),
    "amin": (Functions._amin, "input dim keepdim"),
    "mean": (Functions._mean, "input dim keepdim"),
    "sum": (Functions._sum, "input dim keepdim"),
    "sort": (Functions._sort, "input dim descending stable"),
    "clamp": (Functions._clamp, "input min max"),
    "clip": (Functions._clamp, "input min max"),
    "clamp_min": (lambda self, input, min: self._clamp(input, min), "input min"),  # noqa: A006
    "clamp_max": (lambda self, input, max: self._clamp(input, None, max), "input max"),  # noqa: A006
    "linear": (Functions._linear, "input weight bias"),
    "conv1d": (Functions._conv1d, _OF_CONVOLUTIONS),
    "conv2d": (Functions._conv2d, _OF_CONVOLUTIONS),
    "batch_norm": (Functions._batch_norm, "input running_mean running_var weight bias training momentum eps"),
    "pad": (Functions._pad, "input pad mode value"),
    "view": (Functions._view, "input *shape"),
    "reshape": (Functions._view, "input *shape"),
    "contiguous": (Functions._contiguous, "input"),
    "clone": (Functions._contiguous, "input"),
    "detach": (Functions._contiguous, "input"),
    "size": (Functions._size, "input dim"),
    "dim": (Functions._dim, "input"),
    "ndimension": (Functions._dim, "input"),
    "getattr": (Functions._getattr, "input name"),
    "permute": (Functions._permute, "input *dims"),
    "transpose": (Functions._transpose, "input dim0 dim1"),
    "squeeze": (Functions._squeeze, "input dim"),
    "unsqueeze": (Functions._unsqueeze, "input dim"),
    "getitem": (Functions._getitem, "input index"),
    "chunk": (Functions._chunk, "input chunks dim"),
    "split": (Functions._split, "tensor split_size_or_sections dim"),
    "cat": (Functions._cat, "tensors dim"),
    "stack": (Functions._stack, "tensors dim"),
}


_OF_NN = ("linear", "conv1d", "conv2d", "batch_norm", "pad")
"""Those of torch.nn.functional; what torch itself has by these names may be something else."""


def named_functions(torch: Any) -> dict[Any, str]:
    """The functions that torch.fx puts into graphs, and the names by which they are known here: these objects alone."""
    own = [name for name in (*_FUNCTIONS, *CHANGING) if name not in _OF_NN]
    found = {getattr(operator, name): name for name in own if hasattr(operator, name)}
    found |= {getattr(torch, name): name for name in own if hasattr(torch, name)}
    found |= {getattr(torch.nn.functional, name): name for name in _OF_NN}
    found[getattr] = "getattr"
    return found | dict.fromkeys((torch.concat, torch.concatenate), "cat")
