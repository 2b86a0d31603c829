"""Small networks of convolutions, pools, sorting, residual connections and concatenations, from fixed seeds.

Uses the linear maps of the package itself: nothing public makes such a network but a file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import prod

import numpy as np
import numpy.typing as npt

from intervalcert import Network
from intervalcert.model.activations import MaxPool
from intervalcert.model.arrays import exact_matrix
from intervalcert.model.layers import INPUT, Term
from intervalcert.model.linear_maps import ChannelWise, Convolution, Dense, IndexMap, Shape, identity
from intervalcert.model.windows import Pair, Window
from intervalcert.numbers.matrices import RationalMatrix

__all__ = ["GRID", "KINDS", "TIGHT", "Draw", "gaussian", "line"]

Floats = npt.NDArray[np.float64]
Rows = list[list[Fraction]]
Draw = Callable[[np.random.Generator, tuple[int, int]], Floats | Rows]
"""Makes the numbers of a map: a matrix, or a kernel of output channels x numbers that a window sees."""

GRID: Shape = (2, 6, 6)
"""Of the inputs of all `KINDS`, unless another one is named."""

CLASSES = 4
SAME = (1, 1, 1, 1)
"""The padding of a window of 3 x 3 that keeps the size."""


def gaussian(rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
    """Such that a layer keeps the size of numbers, on average; multiples of 1/256."""
    made: Floats = np.rint(rng.standard_normal(shape) * (2 / shape[1]) ** 0.5 * 256) / 256
    return made


class _Maker:
    """Adds one layer after the other; each is known by its index."""

    def __init__(self, seed: Sequence[int], draw: Draw, grid: Shape) -> None:
        self._rng, self._draw = np.random.default_rng(seed), draw
        self._terms: list[tuple[Term, ...]] = []
        self._biases: list[RationalMatrix | None] = []
        self._between: list[str] = []
        self._shapes: dict[int, Shape] = {INPUT: grid}

    def shape(self, source: int) -> Shape:
        return self._shapes[source]

    def convolution(
        self,
        source: int,
        outputs: int,
        size: Pair = (3, 3),
        stride: Pair = (1, 1),
        pads: tuple[int, int, int, int] = SAME,
        groups: int = 1,
    ) -> Term:
        channels, height, width = self.shape(source)
        window = Window.padded((height, width), size, stride, pads=pads)
        kernel = self._numbers((outputs, channels // groups * window.taps))
        return Term(source, Convolution(kernel, channels, window, groups))

    def dense(self, source: int, outputs: int) -> Term:
        shape = self.shape(source)
        return Term(source, Dense(self._numbers((outputs, prod(shape))), shape))

    def _numbers(self, shape: tuple[int, int]) -> RationalMatrix:
        return exact_matrix(self._draw(self._rng, shape), "random numbers")

    def add(self, *terms: Term, between: str | Callable[[Shape], str] = "relu") -> int:
        inner = terms[0].map.out_shape
        name = between if isinstance(between, str) else between(inner)
        self._terms.append(terms)
        self._biases.append(self._bias(prod(inner)))
        self._between.append(name)
        index = len(self._terms) - 1
        self._shapes[index] = _out_shape(name, inner)
        return index

    def _bias(self, count: int) -> RationalMatrix:
        return RationalMatrix.from_floats(np.rint(self._rng.standard_normal((count, 1)) * 64) / 256)

    def finished(self, source: int, classes: int = CLASSES) -> Network:
        head = (self.dense(source, classes),)
        return Network.of_terms([*self._terms, head], [*self._biases, self._bias(classes)], between=self._between)


def _out_shape(name: str, inner: Shape) -> Shape:
    return MaxPool.named(name, name.partition(":")[2]).out_shape(inner) if name.startswith("max_pool:") else inner


def _halves(inner: Shape) -> str:
    """MinMax of channel k and channel k + half of them, at each position."""
    return f"group_sort:2:{prod(inner) // 2}"


def _pooled(size: Pair, stride: Pair, pads: tuple[int, int, int, int]) -> Callable[[Shape], str]:
    def name(inner: Shape) -> str:
        return MaxPool.of(inner[0], Window.padded((inner[1], inner[2]), size, stride, pads=pads)).name

    return name


def _concatenated(make: _Maker, *sources: int) -> list[Term]:
    """Channels after channels."""
    shapes = [make.shape(source) for source in sources]
    sizes = [prod(shape) for shape in shapes]
    out = (sum(shape[0] for shape in shapes), *shapes[0][1:])
    terms = []
    for place, (source, shape, size) in enumerate(zip(sources, shapes, sizes, strict=True)):
        index = np.full(sum(sizes), -1)
        index[sum(sizes[:place]) :][:size] = np.arange(size)
        terms.append(Term(source, IndexMap(index, shape, out)))
    return terms


# -- random ones -------------------------------------------------------------------------------------------------------


def plain(seed: int, draw: Draw = gaussian, grid: Shape = GRID) -> Network:
    """Two convolutions with strides, padded on one side more than on the other, in groups the second; two matrices."""
    make = _Maker((seed, 1), draw, grid)
    first = make.add(make.convolution(INPUT, 4, (3, 2), (2, 1), (1, 0, 1, 1)))
    second = make.add(make.convolution(first, 4, (3, 3), (1, 2), SAME, groups=2))
    return make.finished(make.add(make.dense(second, 8)))


def residual(seed: int, draw: Draw = gaussian, grid: Shape = GRID) -> Network:
    """Residual: x + conv(relu(conv(x))), then x + conv(x), which is one linear map."""
    make = _Maker((seed, 2), draw, grid)
    stem = make.add(make.convolution(INPUT, 3, (3, 3), (2, 2)))
    inner = make.add(make.convolution(stem, 3))
    joined = make.add(Term(stem, identity(make.shape(stem))), make.convolution(inner, 3), between="leaky_relu:0.25")
    linear = make.add(Term(joined, identity(make.shape(joined))), make.convolution(joined, 3), between="relu")
    return make.finished(linear)


def pairs(seed: int, draw: Draw = gaussian, grid: Shape = GRID) -> Network:
    """MinMax of the first and the second half of the channels."""
    make = _Maker((seed, 3), draw, grid)
    first = make.add(make.convolution(INPUT, 4, (3, 3), (2, 2)), between=_halves)
    second = make.add(make.convolution(first, 4), between=_halves)
    return make.finished(make.add(make.dense(second, 6), between="group_sort:2:1:descending"))


def largest(seed: int, draw: Draw = gaussian, grid: Shape = GRID) -> Network:
    """Maxima over windows that overlap, then over windows that do not."""
    make = _Maker((seed, 4), draw, grid)
    first = make.add(make.convolution(INPUT, 3), between=_pooled((3, 3), (2, 2), SAME))
    second = make.add(make.convolution(first, 3, (2, 2), pads=(0, 0, 1, 1)), between=_pooled((1, 2), (1, 1), (0,) * 4))
    return make.finished(second)


def means(seed: int, draw: Draw = gaussian, grid: Shape = GRID) -> Network:
    """Two branches: means over windows, and means of as many numbers as there are at the edge; put side by side."""
    make = _Maker((seed, 5), draw, grid)
    one = make.add(make.convolution(INPUT, 2, pads=(1, 0, 1, 2)))
    other = make.add(make.convolution(INPUT, 2, (1, 1), pads=(0, 0, 0, 0)), between="leaky_relu:0.1")
    _, height, width = grid
    window = Window.padded((height, width), (2, 2), (2, 2))
    mean = Convolution(RationalMatrix.filled((2, 4), Fraction(1, 4)), 2, window, 2, is_mean=True)
    pooled = [
        make.add(Term(one, mean), between="identity"),
        make.add(Term(other, _edge_means(make.shape(other))), between="identity"),
    ]
    joined = make.add(*_concatenated(make, *pooled), between="identity")
    return make.finished(make.add(make.convolution(joined, 3), between="leaky_relu:0.1"))


def _edge_means(shape: Shape) -> ChannelWise:
    """Over windows of 3 x 3, stride 2, padded: of the numbers that a window sees, so their count differs."""
    window = Window.padded((shape[1], shape[2]), (3, 3), (2, 2), pads=SAME)
    rows = [[Fraction(0)] * prod(shape[1:]) for _ in range(prod(window.outputs))]
    for row, seen in zip(rows, window.table.T.tolist(), strict=True):
        inside = [place for place in seen if place >= 0]
        for place in inside:
            row[place] = Fraction(1, len(inside))
    return ChannelWise(RationalMatrix.from_fractions(rows), shape, (shape[0], *window.outputs))


def line(seed: int, draw: Draw = gaussian, grid: Shape = (1, 1, 6)) -> Network:
    """Two convolutions along a line, without strides: waves along it are all that there is to their norms."""
    make = _Maker((seed, 6), draw, grid)
    first = make.add(make.convolution(INPUT, 2, (1, 3), pads=(0, 1, 0, 1)))
    return make.finished(make.add(make.convolution(first, 1, (1, 3), pads=(0, 1, 0, 1))))


KINDS: dict[str, Callable[..., Network]] = {
    "plain CNN": plain,
    "residual": residual,
    "MinMax": pairs,
    "max pools": largest,
    "means, side by side": means,
}
"""(seed, how numbers are drawn, the grid of the inputs) -> a network."""


# -- those whose bounds are attained -----------------------------------------------------------------------------------


def _of_floats(*rows: Sequence[float]) -> RationalMatrix:
    return RationalMatrix.from_floats(np.array(rows, dtype=np.float64))


def doubled() -> Network:
    """The map x + x: a residual connection that is one linear map, of the norm 2."""
    grid = (1, 3, 3)
    same = Convolution(_of_floats([1.0]), 1, Window((3, 3), (3, 3), (1, 1)))
    head = Dense(_of_floats([1.0] + [0.0] * 8, [0.0] * 8 + [1.0]), grid)
    terms = [(Term(INPUT, same), Term(INPUT, identity(grid))), (Term(0, head),)]
    return Network.of_terms(terms, between="identity")


def skipped() -> Network:
    """The map x + relu(x), with slopes 2 where x > 0: the skip is a branch of its own."""
    grid = (1, 2, 2)
    same = Convolution(_of_floats([1.0]), 1, Window((2, 2), (2, 2), (1, 1)))
    head = Dense(_of_floats([1.0, 0, 0, 0], [0, 0, 0, 1.0]), grid)
    terms = [
        (Term(INPUT, same),),
        (Term(0, same), Term(INPUT, identity(grid))),
        (Term(1, head),),
    ]
    return Network.of_terms(terms, between=["relu", "identity"])


def seen_four_times() -> Network:
    """The maximum over all 2 x 2 windows of a 3 x 3 image; its middle is in four of them, and the lead is their sum."""
    function = MaxPool.of(1, Window((3, 3), (2, 2), (2, 2)))
    head = Dense(_of_floats([1.0] * 4, [0.0] * 4), (1, 2, 2))
    return Network.of_terms([(Term(INPUT, identity((1, 3, 3))),), (Term(0, head),)], between=[function.name])


def cancelling(between: str = "identity") -> Network:
    """Two convolutions on a line of three, which cancel on a torus of four positions but for 2^-6.

    Pairs are two equal channels, one of which has a bias: their sum is what counts.
    """
    window = Window.padded((1, 3), (1, 3), pads=(0, 1, 0, 1))
    channels = 2 if between.startswith("group_sort") else 1
    first = Convolution(_of_floats(*[[1.0, 0, 1.0]] * channels), 1, window)
    second = Convolution(_of_floats([-1.0, 2.0**-6, 1.0] * channels), channels, window)
    terms = [(Term(INPUT, first),), (Term(0, second),), (Term(1, Dense(_of_floats(*np.eye(3)), (1, 1, 3))),)]
    bias = _of_floats(*[[float(k >= 3)] for k in range(3 * channels)])
    return Network.of_terms(terms, [bias, None, None], between=[between, "identity"])


TIGHT: dict[str, Callable[[], Network]] = {
    "x + x": doubled,
    "x + relu(x)": skipped,
    "a pixel in four windows": seen_four_times,
    "convolutions that cancel on a torus": cancelling,
    "the same, leaky": lambda: cancelling("leaky_relu:0.75"),
    "the same, in pairs": lambda: cancelling("group_sort:2:3"),
}
"""Networks whose gradients attain margins, or nearly: what is a little too small is seen."""
