"""What the modules of torch.nn compute in evaluation, over the reals, of values that depend on the input.

Each takes the module, whose attributes are read as they are now, and what it is applied to. The first side of every
shape is the batch, and no sample knows of another. Windows and padding are those of `onnx_windows` and `onnx_moves`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np

from intervalcert.errors import InputError
from intervalcert.io.models.assembly_graph import Graph
from intervalcert.io.models.assembly_grids import Pads
from intervalcert.io.models.onnx_moves import padded
from intervalcert.io.models.onnx_values import Flow, shown
from intervalcert.io.models.onnx_windows import Image, averaged, image_of, two
from intervalcert.io.models.tensors import Tensor
from intervalcert.io.models.torch_numbers import INSTEAD, Numbers
from intervalcert.model.windows import Pair, Window

__all__ = ["SHAPE_ADVICE", "Modules", "flattened"]

SHAPE_ADVICE = "say the shape of one input (shape=(channels, height, width)) where inputs are images"

_LEAST_THRESHOLD = {"float64": 40}
"""Of a Softplus: exp(-40) < 4.3e-18 and an ulp of a float64 there is 7.1e-15. For shorter types it is 20."""

Step = Callable[[Any, Flow], Flow]


class Modules:
    """The known classes of torch.nn, on one graph. known: what each computes; views: those that may not copy."""

    def __init__(self, numbers: Numbers, graph: Graph, *, strip_softmax: bool) -> None:
        self._numbers, self._graph, self._strip_softmax = numbers, graph, strip_softmax
        nn = numbers.torch.nn
        dropouts = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
        still: dict[type, Step] = {
            nn.Flatten: lambda module, x: flattened(x, module.start_dim, module.end_dim),
            nn.Identity: lambda _, x: x,
            **dict.fromkeys(dropouts, self._dropout),
        }
        self.structural = frozenset(still)
        self.views = self.structural | {nn.Unflatten}
        self.known: dict[type, Step] = {
            **still,
            nn.Unflatten: self._unflatten,
            nn.Linear: self._linear,
            nn.BatchNorm1d: self._batch_normalisation,
            nn.BatchNorm2d: self._batch_normalisation,
            **self._functions(),
            **self._windows(),
        }

    def _functions(self) -> dict[type, Step]:
        nn = self._numbers.torch.nn
        parameter = self._numbers.parameter
        return {
            nn.ReLU: lambda _, x: self.activate(x, "relu"),
            nn.Tanh: lambda _, x: self.activate(x, "tanh"),
            nn.Sigmoid: lambda _, x: self.activate(x, "sigmoid"),
            nn.ReLU6: self._hard_tanh,
            nn.Hardtanh: self._hard_tanh,
            nn.LeakyReLU: lambda module, x: self.activate(x, f"leaky_relu:{parameter(module.negative_slope)}"),
            nn.PReLU: self._prelu,
            nn.ELU: lambda module, x: self.activate(x, f"elu:{parameter(module.alpha)}"),
            nn.Softplus: self._softplus,
            nn.Softmax: self._softmax,
            nn.LogSoftmax: self._softmax,
        }

    def _windows(self) -> dict[type, Step]:
        nn = self._numbers.torch.nn
        of_sides: dict[str, Step] = {
            "Conv": self._convolution,
            "MaxPool": self._max_pool,
            "AvgPool": self._average_pool,
            "AdaptiveAvgPool": self._adaptive_pool,
            "AdaptiveMaxPool": self._adaptive_pool,
            "ZeroPad": self._pad,
            "ConstantPad": self._pad,
        }
        return {getattr(nn, f"{name}{sides}d"): step for name, step in of_sides.items() for sides in (1, 2)}

    # -- affine ----------------------------------------------------------------------------------------------------

    def _linear(self, module: Any, x: Flow) -> Flow:
        _check_flat(x)
        bias = None if module.bias is None else self._numbers.tensor(self._graph, module, "bias", 1)
        return self.linear(x, self._numbers.tensor(self._graph, module, "weight", 2), bias)

    def linear(self, x: Flow, weights: Tensor, bias: Tensor | None) -> Flow:
        """W·x + bias. weights: outputs x inputs. Raises: InputError for what is no such thing."""
        _check_flat(x)
        if len(weights.shape) != 2:
            raise InputError(f"its weights have the shape {list(weights.shape)}; a matrix is expected")
        return Flow((None, weights.shape[0]), self._graph.affine(x.value, weights, bias))

    def _batch_normalisation(self, module: Any, x: Flow) -> Flow:
        ranks = {4} if type(module) is self._numbers.torch.nn.BatchNorm2d else {2, 3}
        if module.training:
            raise InputError("it is in training mode, where it depends on the batch: call model.eval() first")
        if module.running_mean is None or module.running_var is None:
            raise InputError("it has no running statistics, so that it depends on the batch")
        if len(x.shape) not in ranks:
            raise InputError(f"it is applied to what has the shape {shown(x.shape)}: {SHAPE_ADVICE}")
        vectors = (
            None if getattr(module, name) is None else self._numbers.tensor(self._graph, module, name, 1)
            for name in ("running_mean", "running_var", "weight", "bias")
        )
        mean, variance, gamma, beta = vectors
        if mean is None or variance is None:
            raise InputError("it has no running statistics, so that it depends on the batch")
        return self.normalise(x, mean, variance, gamma, beta, module.eps)

    def normalise(
        self, x: Flow, mean: Tensor, variance: Tensor, gamma: Tensor | None, beta: Tensor | None, eps: object
    ) -> Flow:
        """gamma·(x - mean)/sqrt(variance + eps) + beta, channel by channel; without gamma or beta 1 and 0.

        Raises: InputError for vectors of other lengths.
        """
        graph = self._graph
        if not 2 <= len(x.shape) <= 4:
            raise InputError(f"it is applied to what has the shape {shown(x.shape)}: {SHAPE_ADVICE}")
        channels = x.sides[1]
        gamma = graph.tensor(np.ones(channels)) if gamma is None else gamma
        beta = graph.tensor(np.zeros(channels)) if beta is None else beta
        for vector in (mean, variance, gamma, beta):
            if vector.shape != (channels,):
                more = (
                    "" if len(x.shape) == 2 else f" channels of {shown(x.shape)}, which has several axes (a Flatten?)"
                )
                raise InputError(f"it is for {vector.size} numbers, but there are {channels}{more}")
        graph.budget.spend((channels,), 2_048)  # a root takes as long as some sums
        epsilon = graph.tensor(np.array([float(self._numbers.parameter(eps))]))
        return replace(x, value=graph.batch_normalise(x.numbers, gamma, beta, mean, variance + epsilon))

    # -- functions -------------------------------------------------------------------------------------------------

    def activate(self, x: Flow, name: str) -> Flow:
        return replace(x, value=self._graph.activate(x.numbers, name))

    def _hard_tanh(self, module: Any, x: Flow) -> Flow:
        return self.clip(x, module.min_val, module.max_val)

    def clip(self, x: Flow, least: object, most: object) -> Flow:
        """min(max(x, least), most), whose ends are rounded to the type of the model; either may be infinite."""
        low, high = (self._numbers.end(end) for end in (least, most))
        texts = [str(end) if math.isinf(end) else str(Fraction(end)) for end in (low, high)]
        name = {("-1", "1"): "hard_tanh", ("0", "inf"): "relu", ("-inf", "inf"): "identity"}.get((texts[0], texts[1]))
        return self.activate(x, name or f"clip:{':'.join(texts)}")

    def _prelu(self, module: Any, x: Flow) -> Flow:
        slopes = self._numbers.tensor(self._graph, module, "weight", 1)
        channels = x.sides[1] if len(x.shape) > 1 else 1
        if slopes.size not in {1, channels}:
            raise InputError(f"it has {slopes.size} slopes, and is applied to what has the shape {shown(x.shape)}")
        return replace(x, value=self._graph.leaky(x.numbers, slopes))

    def _softplus(self, module: Any, x: Flow) -> Flow:
        numbers = self._numbers
        if numbers.rounded(module.beta, numbers.torch.float64) != 1:
            raise InputError(f"its beta is {module.beta!r}; only 1 is understood: {INSTEAD}")
        least = _LEAST_THRESHOLD.get(str(numbers.kind), 20)
        if numbers.rounded(module.threshold, numbers.torch.float64) < least:
            raise InputError(
                f"its threshold is {module.threshold!r}, where torch jumps from ln(1 + exp(x)) to x: in {numbers.kind} "
                f"that is more than a rounding error below {least}. Set .threshold = {least}"
            )
        return self.activate(x, "softplus")

    def _softmax(self, module: Any, x: Flow) -> Flow:
        _check_flat(x)
        if module.dim not in {1, -1} or isinstance(module.dim, bool):
            raise InputError(f"its dim is {module.dim!r}; that of the classes is 1 (or -1)")
        if not self._strip_softmax:
            raise InputError(
                "margins live on the logits before it: take it out of the model, or say strip_softmax=True to leave it "
                "out (it keeps the order of the logits)"
            )
        return replace(x, value=self._graph.soften(x.value), softened=True)

    # -- what only moves numbers -----------------------------------------------------------------------------------

    def _dropout(self, module: Any, x: Flow) -> Flow:
        if module.training:
            raise InputError("it is in training mode, where it is random: call model.eval() first")
        return x

    def _unflatten(self, module: Any, x: Flow) -> Flow:
        axis, sides = module.dim, module.unflattened_size
        if type(axis) is not int or not 1 <= axis % max(len(x.shape), 1) < len(x.shape) or axis >= len(x.shape):
            raise InputError(f"it takes the axis {axis!r} of the shape {shown(x.shape)} apart")
        axis %= len(x.shape)
        sides = _whole_numbers(sides, "its sizes", len(sides), least=-1)
        if sides.count(-1) == 1 and 0 not in sides:
            sides[sides.index(-1)] = x.sides[axis] // math.prod(side for side in sides if side > 0)
        if min(sides, default=0) < 1 or math.prod(sides) != x.sides[axis]:
            raise InputError(f"it makes {sides} of {x.sides[axis]} numbers along the axis {axis}")
        return x.with_shape((*x.shape[:axis], *sides, *x.shape[axis + 1 :]))

    def _pad(self, module: Any, x: Flow) -> Flow:
        sides = _sides_of(module)
        _image(sides, x)
        return self.pad(x, _whole_numbers(module.padding, "its padding", 2 * sides, least=None), module.value)

    def pad(self, x: Flow, pads: Sequence[object], value: object) -> Flow:
        """So many numbers more or fewer at either end of the last axes, the last one first, all of that value."""
        if len(pads) % 2 or len(pads) > 2 * len(x.shape):
            raise InputError(f"{len(pads)} pads for {len(x.shape)} axes")
        found = _whole_numbers(list(pads), "its padding", len(pads), least=None)
        pairs = list(zip(found[::2], found[1::2], strict=True))[::-1]
        around = [(0, 0)] * (len(x.shape) - len(pairs)) + pairs
        return padded(self._graph, x, around, self._numbers.scalar(self._graph, value))

    # -- windows ---------------------------------------------------------------------------------------------------

    def _convolution(self, module: Any, x: Flow) -> Flow:
        sides = _sides_of(module)
        _image(sides, x)
        if module.padding_mode != "zeros":
            raise InputError(f"its padding_mode is {module.padding_mode!r}; only 'zeros' is understood: {INSTEAD}")
        kernel = self._numbers.tensor(self._graph, module, "weight", 2 + sides)
        bias = None if module.bias is None else self._numbers.tensor(self._graph, module, "bias", 1)
        return self.convolve(x, kernel, bias, module)

    def convolve(self, x: Flow, kernel: Tensor, bias: Tensor | None, settings: Any) -> Flow:
        """A convolution along all sides but the channels. settings: has stride, padding, dilation and groups.

        Raises: InputError for what does not fit.
        """
        sides = len(kernel.shape) - 2
        if sides not in {1, 2}:
            raise InputError(f"weights of the shape {list(kernel.shape)}; convolutions have one or two sides")
        image = _image(sides, x)
        outputs, inner, *size = kernel.shape
        (groups,) = _whole_numbers(settings.groups, "its groups", 1)
        if image.channels % groups or outputs % groups or inner != image.channels // groups:
            raise InputError(
                f"weights of the shape {list(kernel.shape)} in {groups} groups, for {image.channels} channels"
            )
        stride, dilation = _pair(settings.stride, "its stride", sides), _pair(settings.dilation, "its dilation", sides)
        area = two(size, 1)
        pads = _conv_pads(settings.padding, sides, area, stride, dilation)
        window = Window.padded(image.grid, area, stride, dilation, pads)
        self._graph.budget.count(kernel.size)  # one may stand at many places
        kernel = kernel.reshaped((outputs, inner, *area))
        return image.over(outputs, window, self._graph.convolve(image.flow.numbers, kernel, window, groups, bias))

    def _max_pool(self, module: Any, x: Flow) -> Flow:
        if module.return_indices:
            raise InputError("it gives indices, too (return_indices), which is not understood")
        image, window, _ = self._pool_window(module, x, _pair(module.dilation, "its dilation", _sides_of(module)))
        return image.over(image.channels, window, self._graph.max_pool(image.flow.numbers, image.channels, window))

    def _average_pool(self, module: Any, x: Flow) -> Flow:
        image, window, pads = self._pool_window(module, x, (1, 1))
        divisor = getattr(module, "divisor_override", None)  # AvgPool1d has none
        if divisor is None:
            return averaged(self._graph, image, window, pads if module.count_include_pad else (0, 0, 0, 0))
        (count,) = _whole_numbers(divisor, "its divisor_override", 1)
        value = self._graph.average(image.flow.numbers, image.channels, window, count)
        return image.over(image.channels, window, value)

    def _pool_window(self, module: Any, x: Flow, dilation: Pair) -> tuple[Image, Window, Pads]:
        sides = _sides_of(module)
        image = _image(sides, x)
        size = _pair(module.kernel_size, "its kernel_size", sides)
        given = module.kernel_size if module.stride is None else module.stride
        height, width = _pair(module.padding, "its padding", sides, least=0, missing=0)
        if 2 * height > size[0] or 2 * width > size[1]:
            raise InputError(f"its padding is {module.padding!r}; torch takes at most half of the window")
        pads = (height, width, height, width)
        stride = _pair(given, "its stride", sides)
        return image, Window.padded(image.grid, size, stride, dilation, pads, ceil=bool(module.ceil_mode)), pads

    def _adaptive_pool(self, module: Any, x: Flow) -> Flow:
        sides = _sides_of(module)
        image = _image(sides, x)
        given = module.output_size
        listed = list(given) if isinstance(given, tuple | list) else [given] * sides
        own = image.grid[-sides:]
        if len(listed) == sides:
            listed = [side if wanted is None else wanted for wanted, side in zip(listed, own, strict=True)]
        outputs = _pair(listed, "its output_size", sides)
        if any(side % wanted for side, wanted in zip(image.grid, outputs, strict=True)):
            raise InputError(
                f"it makes {list(outputs[-sides:])} of {list(own)}, which does not divide evenly: only that is "
                f"understood ({INSTEAD})"
            )
        size: Pair = (image.grid[0] // outputs[0], image.grid[1] // outputs[1])
        window = Window.padded(image.grid, size, size)
        if not hasattr(module, "return_indices"):
            return averaged(self._graph, image, window, (0, 0, 0, 0))
        if module.return_indices:
            raise InputError("it gives indices, too (return_indices), which is not understood")
        return image.over(image.channels, window, self._graph.max_pool(image.flow.numbers, image.channels, window))


def flattened(x: Flow, start: object, end: object) -> Flow:
    """The axes from start to end as one. Raises: InputError if that takes the batch, or is no range of axes."""
    rank = len(x.shape)
    if type(start) is int and type(end) is int:
        first, last = (axis + rank if axis < 0 else axis for axis in (start, end))
        if 1 <= first < last < rank or (start, end) == (1, -1):
            one = math.prod(x.sides[first : last + 1])
            return x.with_shape((*x.shape[:first], one, *x.shape[last + 1 :]))
    raise InputError(
        f"it flattens the axes {start} to {end} of the shape {shown(x.shape)}; only axes behind the batch are "
        "understood, as 1 to -1"
    )


def _check_flat(x: Flow) -> None:
    if len(x.shape) != 2:
        raise InputError(
            f"inputs of the shape {shown(x.shape)} have several axes here, and it would act on one: add a Flatten"
        )


def _sides_of(module: Any) -> int:
    return 1 if type(module).__name__.endswith("1d") else 2


def _image(sides: int, x: Flow) -> Image:
    if len(x.shape) != 2 + sides:
        wanted = "(channels, height, width)" if sides == 2 else "(channels, length)"
        raise InputError(
            f"it is applied to what has the shape {shown(x.shape)}, but needs {wanted} behind the batch: say the shape "
            f"of one input, shape={wanted}"
        )
    return image_of(x)


def _whole_numbers(value: object, what: str, count: int, least: int | None = 1) -> list[int]:
    """One number for all of them, or as many as there are."""
    listed = list(value) if isinstance(value, tuple | list) else [value] * count
    found = [number for number in listed if isinstance(number, int) and not isinstance(number, bool)]
    if len(listed) == 1 < count:
        found *= count
    if len(found) != max(count, len(listed)) or any(least is not None and number < least for number in found):
        raise InputError(f"{what} is {value!r}; {count} whole numbers are expected")
    return found


def _pair(value: object, what: str, sides: int, *, least: int = 1, missing: int = 1) -> Pair:
    return two(_whole_numbers(value, what, sides, least), missing)


def _conv_pads(padding: object, sides: int, size: Pair, stride: Pair, dilation: Pair) -> Pads:
    """Top, left, bottom, right."""
    if padding == "valid":
        return (0, 0, 0, 0)
    if padding == "same":
        if stride != (1, 1):
            raise InputError("its padding is 'same', and its stride another one than 1")
        height, width = (of * (side - 1) for of, side in zip(dilation, size, strict=True))
        return (height // 2, width // 2, height - height // 2, width - width // 2)
    height, width = _pair(padding, "its padding", sides, least=0, missing=0)
    return (height, width, height, width)
