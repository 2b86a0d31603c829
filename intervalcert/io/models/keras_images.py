"""Keras layers of images: convolutions, pools, padding.

Images have their channels last or first, as data_format says; windows want them first, and what they give is moved
back. Padding "same" is as much as an output at every stride needs, half of it in front, and the odd one at the end.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intervalcert.errors import InputError
from intervalcert.io.models.assembly_grids import Pads, mean_pool, missing_padding, positions, transposed
from intervalcert.io.models.assembly_values import Value
from intervalcert.io.models.keras_config import KerasLayer
from intervalcert.io.models.keras_functions import activate
from intervalcert.io.models.keras_point import Act, Point
from intervalcert.io.models.keras_values import flag, sequence, shown, whole
from intervalcert.io.models.keras_weights import Wanted
from intervalcert.io.models.tensors import MAX_COMPUTED, Tensor
from intervalcert.model.windows import MISSING, Pair, Window

__all__ = ["IMAGE_ACTS"]

_TO_FIRST, _TO_LAST = (2, 0, 1), (1, 2, 0)


@dataclass(frozen=True)
class _Image:
    """An image with its channels in front. is_last: whether Keras has them last."""

    point: Point
    value: Value
    is_last: bool

    @property
    def channels(self) -> int:
        return self.value.shape[0]

    @property
    def grid(self) -> Pair:
        _, height, width = self.value.shape
        return height, width

    @property
    def all_of_it(self) -> Window:
        return Window(self.grid, (1, 1), self.grid)

    def back(self, value: Value) -> Point:
        """What windows have made of it, in the order of Keras."""
        return self.point.at(transposed(self.point.graph, value, _TO_LAST) if self.is_last else value)


def _image(point: Point, layer: KerasLayer) -> _Image:
    order = _word(layer, "data_format", "channels_last", "channels_first")
    if len(point.shape) != 3:
        raise InputError(f"it is applied to an array of shape {list(point.shape)}, which is no image of three sides")
    is_last = order == "channels_last"
    return _Image(point, transposed(point.graph, point.value, _TO_FIRST) if is_last else point.value, is_last)


def _word(layer: KerasLayer, key: str, *known: str) -> str:
    given = layer.config[key]
    for word in known:
        if given == word:
            return word
    raise InputError(f"{key} is {shown(given)}: {' and '.join(known)} are read")


def _pair(layer: KerasLayer, key: str) -> Pair:
    """Two numbers, of at least 1."""
    found = [whole(x, f"a part of {key}") for x in sequence(layer.config[key], key)]
    if len(found) != 2 or min(found) < 1:
        raise InputError(f"{key} is {shown(found)}, where two numbers are expected, at least 1 each")
    return found[0], found[1]


def _window(layer: KerasLayer, grid: Pair, size: Pair, dilation: Pair = (1, 1)) -> tuple[Window, Pads]:
    """The window of a layer, and its padding."""
    stride = _pair(layer, "strides")
    pads: Pads = (0, 0, 0, 0)
    if _word(layer, "padding", "valid", "same") == "same":
        reach = [(size[axis] - 1) * dilation[axis] + 1 for axis in range(2)]
        height, width = (max(missing_padding(grid[axis], stride[axis], reach[axis]), 0) for axis in range(2))
        pads = (height // 2, width // 2, height - height // 2, width - width // 2)
    if max(stride) > 1 and max(dilation) > 1:
        raise InputError(f"strides {list(stride)} and dilation_rate {list(dilation)}: Keras has one of them at a time")
    return Window.padded(grid, size, stride, dilation, pads), pads


# -- convolutions ------------------------------------------------------------------------------------------------------


def _convolution(point: Point, layer: KerasLayer) -> Point:
    """Its kernel is height x width x input channels of a group x output channels."""
    image = _image(point, layer)
    size, outputs, groups = _pair(layer, "kernel_size"), *(whole(layer.config[x], x) for x in ("filters", "groups"))
    if groups < 1 or image.channels % groups or outputs < 1 or outputs % groups:
        raise InputError(f"{outputs} filters for {image.channels} channels in {groups} groups")
    kernel, bias = _weights(point, layer, (*size, image.channels // groups, outputs), outputs)
    return _convolved(image, layer, kernel.transposed((3, 2, 0, 1)), groups, bias)


def _depthwise(point: Point, layer: KerasLayer) -> Point:
    """Each channel has some kernels of its own: height x width x channels x how many."""
    image = _image(point, layer)
    size, times = _pair(layer, "kernel_size"), whole(layer.config["depth_multiplier"], "depth_multiplier")
    if times < 1:
        raise InputError(f"depth_multiplier is {times}")
    outputs = image.channels * times
    kernel, bias = _weights(point, layer, (*size, image.channels, times), outputs)
    return _convolved(image, layer, kernel.transposed((2, 3, 0, 1)).reshaped((outputs, 1, *size)), image.channels, bias)


def _weights(point: Point, layer: KerasLayer, shape: tuple[int, ...], outputs: int) -> tuple[Tensor, Tensor | None]:
    wanted: list[Wanted] = [("kernel", shape, layer.dtype.name)]
    if flag(layer.config["use_bias"], "use_bias"):
        wanted.append(("bias", (outputs,), layer.dtype.name))
    kernel, *bias = point.store.arrays(layer, wanted)
    return point.tensor(kernel, "its kernel"), point.tensor(bias[0], "its bias") if bias else None


def _convolved(image: _Image, layer: KerasLayer, kernel: Tensor, groups: int, bias: Tensor | None) -> Point:
    """kernel: output channels x input channels of a group x height x width."""
    height, width = kernel.shape[2:]
    window, _ = _window(layer, image.grid, (height, width), _pair(layer, "dilation_rate"))
    return activate(image.back(image.point.graph.convolve(image.value, kernel, window, groups, bias)), layer)


# -- pools -------------------------------------------------------------------------------------------------------------


def _max_pool(point: Point, layer: KerasLayer) -> Point:
    image = _image(point, layer)
    window, _ = _window(layer, image.grid, _pair(layer, "pool_size"))
    return image.back(point.graph.max_pool(image.value, image.channels, window))


def _average_pool(point: Point, layer: KerasLayer) -> Point:
    """Padding does not count."""
    image = _image(point, layer)
    window, (top, left, bottom, right) = _window(layer, image.grid, _pair(layer, "pool_size"))
    if (top, left) != (bottom, right):
        raise InputError(
            f"padding 'same' of means over windows of {window}, of a grid of {image.grid}, is not the same at both "
            "ends, and the backends of Keras compute different means then: use 'valid', or another size"
        )
    return image.back(mean_pool(point.graph, image.value, image.channels, window))


def _global_average(point: Point, layer: KerasLayer) -> Point:
    image = _image(point, layer)
    return _whole(image, layer, mean_pool(point.graph, image.value, image.channels, image.all_of_it))


def _global_max(point: Point, layer: KerasLayer) -> Point:
    image = _image(point, layer)
    return _whole(image, layer, point.graph.max_pool(image.value, image.channels, image.all_of_it))


def _whole(image: _Image, layer: KerasLayer, value: Value) -> Point:
    """One number for each channel, as an image of one place or as a vector."""
    keeps = flag(layer.config["keepdims"], "keepdims")
    return image.back(value) if keeps else image.point.at(value, (image.channels,))


# -- padding -----------------------------------------------------------------------------------------------------------


def _zero_padding(point: Point, layer: KerasLayer) -> Point:
    image = _image(point, layer)
    given = layer.config["padding"]
    match given:
        case [[top, bottom], [left, right]]:
            pads = [whole(x, "a part of padding") for x in (top, bottom, left, right)]
        case _:
            raise InputError(f"padding is {shown(given)}, where [[top, bottom], [left, right]] is expected")
    height, width = image.grid[0] + sum(pads[:2]), image.grid[1] + sum(pads[2:])
    if min(pads) < 0 or image.channels * height * width > MAX_COMPUTED:
        raise InputError(f"padding is {shown(given)}, around an array of shape {list(point.shape)}")
    point.graph.budget.hold(image.channels * height * width)
    around = ((0, 0), (pads[0], pads[1]), (pads[2], pads[3]))
    index = np.pad(positions(point.graph, image.value.shape), around, constant_values=MISSING)
    if index.size == image.value.width:
        return point
    return image.back(point.graph.take(image.value, index.ravel(), (image.channels, height, width)))


IMAGE_ACTS: dict[str, Act] = {
    "Conv2D": _convolution,
    "DepthwiseConv2D": _depthwise,
    "MaxPooling2D": _max_pool,
    "AveragePooling2D": _average_pool,
    "GlobalAveragePooling2D": _global_average,
    "GlobalMaxPooling2D": _global_max,
    "ZeroPadding2D": _zero_padding,
}
