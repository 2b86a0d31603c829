"""Convolutional networks for `compare.train`: what they are built of, bounds of their layers' norms, and their file.

An architecture is a line of words, one for each layer but the last, which is dense and gives the ten logits:

    c16k5s2p2    a convolution to 16 channels, windows of 5 x 5, stride 2, 2 pixels of zeros around; else s1, p0
    rk3          a linear residual block x + conv(x): as many channels, windows of 3 x 3 (odd), the grid as it is
    d100         a dense layer of 100 neurons; only dense layers follow it

An activation follows each of these: ReLU, or MinMax, which puts the neighbouring channels 2k and 2k + 1 in order, the
smaller first. Both move no two vectors apart. Linear residual blocks, with no activation beside the identity, are from
Hu, Zou, Wang, Leino, Fredrikson: "Unlocking deterministic robustness certification on ImageNet", NeurIPS 2023:
x + conv(x) is one convolution, with 1 added in the middle of its kernel. Its norm is bounded as that of one, and may be
far below 1 + ||conv||.

**The norm of a convolution** T is bounded on a twisted torus. First its stride s goes: the s x s pixels of a cell are
made channels of a grid of ⌈side/s⌉ cells, on which T has stride 1. Along each axis, place u of the window is
o = u - padding pixels from where the output's cell begins: t = ⌊o/s⌋ cells from there, at the phase o mod s. So
y_i = Σ_t K_t x_{i+t}, with x zero outside its grid. If a period N is so large that what comes around meets only zeros,
T is a part of the same map on all x with x_{j+N} = e^{iφ} x_j, for every φ. Waves make that map block diagonal, hence

    ||T|| <= max_θ ||K^(θ)||_2,    K^(θ) = Σ_t K_t e^{iθ·t},    θ = (2πm + φ)/N,    m in {0, …, N - 1}²,

and the least of these for φ in {0, π}² is taken. K_t is real, so -θ gives nothing new: θ_1 in [0, π] and all θ_2 are
enough. In training, each ||K^(θ)|| comes from power iteration on K^(θ)ᴴK^(θ), a few steps for every batch from where
the last one left the vector v; the gradient is that of ||K^(θ)v|| at the θ that decides. In reports it is from an SVD.
"""

from __future__ import annotations

import math
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

Float64Array = npt.NDArray[np.float64]
ComplexArray = npt.NDArray[np.complex128]
Arrays = dict[str, npt.NDArray[np.generic]]
Shape = tuple[int, ...]

INPUT_SHAPE = (1, 28, 28)
CLASSES = 10
TWISTS = ((0, 0), (0, 1), (1, 0), (1, 1))
"""φ/π along both axes."""


# -- an architecture -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Windows:
    """Square windows that go over a square grid. residual: what they look at is added to what they give."""

    side: int
    outputs: int
    size: int
    stride: int
    padding: int
    residual: bool

    def waves(self, twist: tuple[int, int]) -> ComplexArray:
        """Of waves x places x phases: e^{iθ·t} at the phase of the place, else 0. With them a kernel makes K^(θ)."""
        pixels = np.arange(self.size) - self.padding
        cells, phases = pixels // self.stride, pixels % self.stride
        side = -(-self.side // self.stride)
        period = max(side, self.outputs, side - int(cells.min()), self.outputs + int(cells.max()))
        halves = [2 * np.arange(period) + each for each in twist]  # θ = half·π/period
        halves[0] = halves[0][halves[0] <= period]
        of_axes = [
            np.exp(1j * math.pi / period * np.multiply.outer(half, cells))[:, :, None]
            * (phases[:, None] == np.arange(self.stride))
            for half in halves
        ]
        made: ComplexArray = np.einsum("aup,bvq->abuvpq", *of_axes)
        return made.reshape(-1, self.size**2, self.stride**2)


@dataclass(frozen=True)
class Plan:
    """A layer without its numbers. source: the layer that it follows, -1 the input. windows: None if it is dense."""

    source: int
    in_shape: Shape
    out_shape: Shape
    windows: Windows | None

    @property
    def weight_shape(self) -> Shape:
        if self.windows is None:
            return math.prod(self.out_shape), math.prod(self.in_shape)
        return self.out_shape[0], self.in_shape[0], self.windows.size, self.windows.size

    @property
    def terms(self) -> str:
        """As `intervalcert` reads them in an .npz."""
        inputs = "x".join(map(str, self.in_shape))
        if self.windows is None:
            return f"{self.source} dense {inputs} {math.prod(self.out_shape)}"
        grid = self.windows
        pairs = [f"{x}x{x}" for x in (grid.outputs, grid.size, grid.stride, 1, grid.padding)]
        line = f"{self.source} convolution {inputs} {' '.join(pairs)} 1"
        return f"{line}; {self.source} identity {inputs}" if grid.residual else line

    def activation_name(self, activation: str) -> str:
        return "relu" if activation == "relu" else f"group_sort:2:{math.prod(self.out_shape[1:])}"


_WORD = re.compile(
    r"c(?P<channels>\d+)k(?P<size>\d+)(?:s(?P<stride>\d+))?(?:p(?P<padding>\d+))?|rk(?P<middle>\d+)|d(?P<neurons>\d+)"
)


def plans(architecture: str, activation: str) -> list[Plan]:
    """The layers that the words stand for, and that of the logits. Raises: ValueError for words that stand for none."""
    made: list[Plan] = []
    shape: Shape = INPUT_SHAPE
    for word in (*architecture.split(), f"d{CLASSES}"):
        found = _WORD.fullmatch(word)
        if found is None:
            raise ValueError(f"{word!r} is no layer: c16k5s2p2, rk3 and d100 are")
        numbers = {name: int(digits) for name, digits in found.groupdict().items() if digits is not None}
        if "neurons" in numbers:
            plan = Plan(len(made) - 1, shape, (numbers["neurons"],), None)
        elif len(shape) == 1:
            raise ValueError(f"{word!r} comes after a dense layer, which leaves no grid")
        else:
            windows = _windows(word, numbers, shape[1])
            plan = Plan(len(made) - 1, shape, (numbers.get("channels", shape[0]), *[windows.outputs] * 2), windows)
        if plan.out_shape[0] < 1 or (activation == "minmax" and plan.out_shape[0] % 2):
            raise ValueError(f"{word!r} has no outputs, or MinMax finds no pairs of them")
        made.append(plan)
        shape = plan.out_shape
    return made


def _windows(word: str, numbers: dict[str, int], side: int) -> Windows:
    residual = "middle" in numbers
    size, stride = numbers["middle" if residual else "size"], numbers.get("stride", 1)
    padding = size // 2 if residual else numbers.get("padding", 0)
    room = side + 2 * padding - size
    if min(size, stride) < 1 or room < 0 or (residual and size % 2 == 0):
        raise ValueError(f"{word!r} does not fit a grid of {side} x {side}")
    return Windows(side, room // stride + 1, size, stride, padding, residual)


# -- in training -----------------------------------------------------------------------------------------------------


class Layer(ABC):
    """Weights, a bias if wanted, and a running estimate of the norm."""

    def __init__(self, plan: Plan, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        self.plan = plan
        self.weight = weight.clone().requires_grad_()
        self.bias = None if bias is None else bias.clone().requires_grad_()

    @abstractmethod
    def apply(self, values: torch.Tensor) -> torch.Tensor:
        """What it makes of each input, before the activation."""

    @abstractmethod
    def advance_norm(self, steps: int) -> None:
        """Bring the estimate of the norm nearer to that of the weights."""

    @abstractmethod
    def norm(self) -> torch.Tensor:
        """The estimate, differentiable in the weights."""


class DenseLayer(Layer):
    """A matrix, outputs x inputs."""

    def __init__(self, plan: Plan, weight: torch.Tensor, bias: torch.Tensor | None, generator: torch.Generator) -> None:
        super().__init__(plan, weight, bias)
        self._vector = torch.randn(weight.shape[1], 1, generator=generator)

    def apply(self, values: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(values.flatten(1), self.weight, self.bias)

    @torch.no_grad()
    def advance_norm(self, steps: int) -> None:
        for _ in range(steps):
            self._vector = torch.nn.functional.normalize(self.weight.T @ (self.weight @ self._vector), dim=0)

    def norm(self) -> torch.Tensor:
        return torch.linalg.vector_norm(self.weight @ self._vector)


class ConvolutionLayer(Layer):
    """A kernel of output channels x input channels x height x width; in a residual block without the identity."""

    def __init__(
        self,
        plan: Plan,
        windows: Windows,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        generator: torch.Generator,
    ) -> None:
        super().__init__(plan, weight, bias)
        self.windows = windows
        of_twists = [windows.waves(twist) for twist in TWISTS]
        self._counts = [len(waves) for waves in of_twists]
        self._waves = torch.from_numpy(np.concatenate(of_twists)).to(torch.complex64)
        shape = (len(self._waves), min(plan.out_shape[0], plan.in_shape[0] * windows.stride**2), 1)
        self._vectors = torch.randn(shape, dtype=torch.complex64, generator=generator)
        self._deciding = 0
        places = torch.arange(windows.size**2) == windows.size**2 // 2
        self._identity = torch.eye(*weight.shape[:2])[:, :, None] * places * windows.residual

    def _symbols(self, waves: torch.Tensor) -> torch.Tensor:
        """K^(θ) for each of the waves, or K^(θ)ᴴ where that has fewer columns: the norm is the same."""
        kernel = self.weight.flatten(2) + self._identity
        made = torch.matmul(kernel.flatten(0, 1).to(waves.dtype), waves).reshape(len(waves), len(kernel), -1)
        return made.mH if made.shape[1] < made.shape[2] else made

    def apply(self, values: torch.Tensor) -> torch.Tensor:
        grid = self.windows
        made = torch.nn.functional.conv2d(values, self.weight, self.bias, grid.stride, grid.padding)
        return made + values if grid.residual else made

    @torch.no_grad()
    def advance_norm(self, steps: int) -> None:
        symbols = self._symbols(self._waves)
        squares = symbols.mH @ symbols
        for _ in range(steps):
            self._vectors = torch.nn.functional.normalize(squares @ self._vectors, dim=1)
        norms = torch.linalg.vector_norm(symbols @ self._vectors, dim=(1, 2))
        starts = accumulate(self._counts, initial=0)
        largest = [(part.max(0), start) for part, start in zip(norms.split(self._counts), starts, strict=False)]
        self._deciding = min((float(found.values), start + int(found.indices)) for found, start in largest)[1]

    def norm(self) -> torch.Tensor:
        wave = slice(self._deciding, self._deciding + 1)
        return torch.linalg.vector_norm(self._symbols(self._waves[wave]) @ self._vectors[wave])


def min_max(values: torch.Tensor) -> torch.Tensor:
    """Channels 2k and 2k + 1 in order, the smaller first."""
    even, odd = values[:, 0::2], values[:, 1::2]
    return torch.stack((torch.minimum(even, odd), torch.maximum(even, odd)), dim=2).flatten(1, 2)


ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {"relu": torch.relu, "minmax": min_max}


class ConvolutionalNetwork:
    """The layers of an architecture, an activation between any two."""

    def __init__(self, layers: list[Layer], activation: str) -> None:
        self.layers = layers
        self.activation = activation
        self.advance_norms(50)

    @staticmethod
    def make(
        architecture: str, activation: str, generator: torch.Generator, *, biased: bool, start: Path | None = None
    ) -> ConvolutionalNetwork:
        """With the numbers of a saved file, or orthogonal kernels, on a scale on which norms are 1.

        Residual blocks start near the identity. biased: with biases, which start at 0 where the file has none.
        Raises: ValueError if the file is of another architecture or activation.
        """
        planned = plans(architecture, activation)
        arrays = {} if start is None else _read(start)
        for name, expected in _structure(planned, activation).items():
            if start is not None and (name not in arrays or arrays[name].tolist() != expected.tolist()):
                raise ValueError(f"{start} has another architecture or activation: its {name!r} are others")
        if start is None:
            weights = [_orthogonal(plan, generator) for plan in planned]
        else:
            weights = [_tensor(arrays[f"W{index}"]) for index in range(len(planned))]
        layers: list[Layer] = []
        for index, (plan, matrix) in enumerate(zip(planned, weights, strict=True)):
            bias = torch.zeros(len(matrix)) if biased else None
            bias = _tensor(arrays[f"b{index}"]) if f"b{index}" in arrays else bias
            weight = matrix.reshape(plan.weight_shape)
            if plan.windows is None:
                layers.append(DenseLayer(plan, weight, bias, generator))
            else:
                layers.append(ConvolutionLayer(plan, plan.windows, weight, bias, generator))
        return ConvolutionalNetwork(layers, activation)

    @property
    def parameters(self) -> list[torch.Tensor]:
        return [tensor for layer in self.layers for tensor in (layer.weight, layer.bias) if tensor is not None]

    def logits(self, images: torch.Tensor) -> torch.Tensor:
        values = images.reshape(-1, *INPUT_SHAPE)
        for layer in self.layers[:-1]:
            values = ACTIVATIONS[self.activation](layer.apply(values))
        return self.layers[-1].apply(values)

    def advance_norms(self, steps: int) -> None:
        for layer in self.layers[:-1]:
            layer.advance_norm(steps)

    def margin_lipschitz(self) -> torch.Tensor:
        """Estimates of L_ij for i != j, differentiable in the weights. The diagonal means nothing."""
        norms = [torch.ones(()), *(layer.norm() for layer in self.layers[:-1])]
        last = self.layers[-1].weight
        squares = (last[:, None] - last[None]).square().sum(2)
        distances = (squares + torch.eye(CLASSES)).sqrt()  # 1 on the diagonal: a root has no gradient at 0
        return torch.stack(norms).prod() * distances

    def save(self, path: Path, grid_bits: int) -> None:
        """Round the numbers to multiples of 2^-grid_bits and replace the file at once."""
        arrays = _structure([layer.plan for layer in self.layers], self.activation)
        for index, layer in enumerate(self.layers):
            arrays[f"W{index}"] = _rounded(layer.weight.flatten(1), grid_bits)
            if layer.bias is not None:
                arrays[f"b{index}"] = _rounded(layer.bias, grid_bits)
        partial = path.with_name(f".partial-{path.name}")
        np.savez_compressed(partial, allow_pickle=False, **arrays)
        os.replace(partial, path)

    def saved_estimates(self, path: Path, images: npt.NDArray[np.uint8]) -> tuple[Float64Array, Float64Array]:
        """The logits and L_ij of the saved file: float64, norms by singular values."""
        arrays = _read(path)
        parts = np.array_split(images.reshape(len(images), -1) / 255.0, -(-len(images) // 500))
        logits = np.concatenate([evaluated(arrays, part) for part in parts])
        matrices = [np.asarray(arrays[f"W{index}"], dtype=np.float64) for index in range(len(self.layers))]
        of_hidden = zip(self.layers[:-1], matrices[:-1], strict=True)
        bound = math.prod(norm_estimate(layer.plan, matrix) for layer, matrix in of_hidden)
        return logits, bound * np.linalg.norm(matrices[-1][:, None] - matrices[-1][None], axis=2)


def _orthogonal(plan: Plan, generator: torch.Generator) -> torch.Tensor:
    shape = (plan.weight_shape[0], math.prod(plan.weight_shape[1:]))
    weight = torch.nn.init.orthogonal_(torch.empty(shape), generator=generator)
    if plan.windows is not None and plan.windows.residual:
        return weight * 0.1
    return weight / norm_estimate(plan, weight.double().numpy())


# -- the file --------------------------------------------------------------------------------------------------------


def _structure(planned: list[Plan], activation: str) -> Arrays:
    """What the file holds beside the numbers."""
    return {
        "terms": np.array([plan.terms.encode() for plan in planned]),
        "activations": np.array([plan.activation_name(activation).encode() for plan in planned[:-1]]),
        "shape": np.array(INPUT_SHAPE, dtype=np.int64),
    }


def _rounded(tensor: torch.Tensor, grid_bits: int) -> npt.NDArray[np.floating]:
    """On the grid, and as float16 if that holds all of them."""
    scale = 2.0**grid_bits
    made: npt.NDArray[np.float32] = (np.rint(tensor.detach().numpy() * scale) / scale + 0.0).astype(np.float32)
    with np.errstate(over="ignore", under="ignore"):
        short = made.astype(np.float16)
    return short if np.array_equal(short.astype(np.float32), made) else made


def _tensor(array: npt.NDArray[np.generic]) -> torch.Tensor:
    return torch.from_numpy(array.astype(np.float32))


def _read(path: Path) -> Arrays:
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}


# -- what a finished file does, in numpy -----------------------------------------------------------------------------


def norm_estimate(plan: Plan, matrix: Float64Array) -> float:
    """The norm of a dense layer, or the bound of a convolution's. matrix: as in the file."""
    if plan.windows is None:
        return float(np.linalg.norm(matrix, 2))
    size = plan.windows.size
    kernel = matrix.reshape(*plan.weight_shape[:2], size**2).copy()
    if plan.windows.residual:
        kernel[:, :, size**2 // 2] += np.eye(len(kernel))
    largest = []
    for twist in TWISTS:
        symbols = np.einsum("ock,fkr->focr", kernel, plan.windows.waves(twist), optimize=True)
        largest.append(float(np.linalg.norm(symbols.reshape(*symbols.shape[:2], -1), 2, axis=(1, 2)).max()))
    return min(largest)


def evaluated(arrays: Arrays, images: Float64Array) -> Float64Array:
    """The logits in float64, by what the file says alone: no torch, and no words of an architecture."""
    values = {-1: images}
    lines, names = (arrays[name].astype(str).tolist() for name in ("terms", "activations"))
    for index, line in enumerate(lines):
        total: Float64Array = np.zeros((1, 1))
        for term in line.split("; "):
            source, kind, *words = term.split(" ")
            x = values[int(source)]
            if kind != "identity":
                matrix = arrays[f"W{index}"].astype(np.float64)
                x = x @ matrix.T if kind == "dense" else _convolved(x, matrix, words)
            total = total + x
        if f"b{index}" in arrays:
            bias = arrays[f"b{index}"].astype(np.float64)
            total = total + np.repeat(bias, total.shape[1] // len(bias))
        if index < len(names):
            total = _activated(total, names[index])
        values[index] = total
    return values[len(lines) - 1]


def _activated(values: Float64Array, name: str) -> Float64Array:
    if name == "relu":
        return np.maximum(values, 0.0)
    size, inner = map(int, name.removeprefix("group_sort:").split(":"))
    return np.sort(values.reshape(len(values), -1, size, inner), axis=2).reshape(values.shape)


def _convolved(x: Float64Array, kernel: Float64Array, words: list[str]) -> Float64Array:
    """words: those of a convolution's term, as the file has them; dilation and groups are always 1 here."""
    shapes = [[int(number) for number in word.split("x")] for word in words[:6]]
    (channels, *inputs), outputs, size, stride, _, before = shapes
    pads = [(0, 0), (0, 0)]
    for axis in range(2):
        end = stride[axis] * (outputs[axis] - 1) + size[axis] - before[axis]  # of the last window
        pads.append((before[axis], max(0, end - inputs[axis])))
    padded = np.pad(x.reshape(len(x), channels, *inputs), pads)
    seen = np.lib.stride_tricks.sliding_window_view(padded, size, axis=(2, 3))[:, :, :: stride[0], :: stride[1]]
    seen = seen[:, :, : outputs[0], : outputs[1]]
    made = np.tensordot(seen, kernel.reshape(-1, channels, *size), axes=((1, 4, 5), (1, 2, 3)))
    return made.transpose(0, 3, 1, 2).reshape(len(x), -1)
