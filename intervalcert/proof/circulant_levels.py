"""A convolutional chain of layers on nested tori: what is known of it from the network alone, before any witness.

A TORUS of the sides N = (N_1, N_2) carries functions x on all pairs of integers with values in R^c and

    x_{j + N_k·e_k} = (-1)^{p_k}·x_j         along each axis k,

p in {0, 1}² being the same for all tori. Such a function is any function on the box [0, N_1) x [0, N_2), continued. A
convolution with the offsets o, matrices K_o and strides s takes those of the sides s·N to those of the sides N
(products along each axis):  (C·x)_i = Σ_o K_o·x_{s·i + o}.  For x_{s·(i + N_k·e_k) + o} = (-1)^{p_k}·x_{s·i + o}.

A GRID is the box [0, h) x [0, w) of positions that a layer of the network has, or its input; h <= N_1 and w <= N_2. The
layer's map T has the same formula on grids, where what is beyond the input is zero. Let [0, n) be the inputs of T along
an axis, [0, m) its outputs, N the side of the torus of the inputs, and for all offsets o along that axis (only those at
which some window looks at an input: others have no part in T)

    N >= n,    N >= n - o,    N >= s·(m - 1) + o + 1.                                                          (1)

LEMMA.  If x on the torus is equal to X on the grid of the inputs, and zero elsewhere in the box, then C·x is equal to
T·X on the grid of the outputs. It is enough that x is equal to X on the grid, if no window of T looks beyond it. Proof.
Let 0 <= i < m along the axis: s·i + o lies in [n - N, N - 1] by (1). If it is in [0, n), x has there the value of X. If
not, T has a zero there; and it is in [n, N), or in [n - N, 0), and N more is in [n, N): up to a sign x has there a
value beyond the grid in the box, which is zero. So it is for two axes: one index beyond the grid suffices for zero. If
no window looks beyond the grid, only the first case occurs. ∎

THE MASK.  Let two inputs of the network differ by Δ_0, layer l before its activation by δ_l = T_l·Δ_{l-1}, and after it
by Δ_l = D_l·δ_l, D_l a diagonal matrix of slopes, each in the sector of its channel. CLAIM: there are functions on
tori, Δ'_0 and δ'_l = C_l·Δ'_{l-1}, Δ'_l = D'_l·δ'_l, with D'_l a diagonal matrix of slopes, at *each* position of the
torus in the sector of the channel, or zero where `widened` says that the sector was widened to hold zero; such that
Δ'_l = Δ_l on the grid, and Δ'_l is zero on the rest of the box if a window of T_{l+1} looks beyond its grid; and
||Δ'_0|| = ||Δ_0||. Proof. Δ'_0 is Δ_0 on the grid, and zero elsewhere. By the lemma, δ'_l = δ_l on the grid. Let D'_l
be D_l on the grid. Elsewhere δ'_l need not vanish: there the torus has outputs that the network has not. If T_{l+1}
looks beyond its grid, let the slopes there be 0: so the sector must hold 0, and is widened if it does not (ReLU's does;
that of a linear layer, of a mean, of the sums of MinMax does not). If it does not look there, let them be any of the
sector. Either way Δ'_l is as claimed. ∎   A dense layer looks at grid positions alone. So what is proved of all tori
and slopes in these sectors is proved of the network. (With slopes 1 beyond the grid in the place of 0, a difference
that left the grid could come back and cancel the true one: the bound may be 0 for a true 1.)

THE SIDES.  The torus after level l has N_l, that before it s_l·N_l: so all are multiples of the last one, which is
taken as small as (1) allows for all levels. Along an axis with one output (i = 0) the stride is arbitrary: it is taken
to be the side before it, and the side after it can be 1. A dense layer, also one that takes a grid, is a convolution
with one output, and has an offset for each position of the grid; a layer of a few numbers without a grid has a grid of
1 x 1.

MINMAX sorts pairs of channels at each position. With R = [[1, 1], [1, -1]]: the sum of a pair has the slope 1; of the
difference of the two in its place, up to a sign, the absolute value is taken, whose slopes are in [-1, 1]. R·Δ = D·R·δ
with such D, and Δ = ½·R·(R·Δ). So level l has R·K_o for K_o, and the level after it K_o·½R: then all slopes are
diagonal.

A SEGMENT ends at an activation without sectors, which is only known to take vectors no further apart than by a
constant: sorting of more than two, a maximum over windows. What follows begins anew, on tori of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import prod
from typing import Any

import numpy as np

from intervalcert.backends.protocol import Indices
from intervalcert.errors import UndecidedError
from intervalcert.model.activations import Sorting
from intervalcert.model.layers import Layer
from intervalcert.model.linear_maps import MAX_DENSE, Convolution, LinearMap, Shape
from intervalcert.model.network import Network
from intervalcert.model.taps import looks
from intervalcert.model.windows import Pair, Window
from intervalcert.numbers.matrices import RationalMatrix

__all__ = ["MAX_LEVELS", "MAX_SIDE", "Level", "Segment", "Slopes", "segments_of"]

Slopes = tuple[tuple[Fraction, Fraction], ...]
"""The ends of the sector of each channel."""

MAX_LEVELS = 128
"""Deeper networks are none for a circulant chain: its check goes down from the last level to the first."""

MAX_SIDE = 4096
"""Channels, or neurons of a dense layer: a step takes matrices of this side, or of twice as much."""


@dataclass(frozen=True, eq=False)
class Level:
    """A layer on its tori: y_i = Σ_o K_o·x_{stride·i + o}, and slopes.

    kernel: K_o, flat: (channels of y, channels of x) as rows, offsets as columns. stride: the torus before has so many
    times the sides of that after it.
    slopes: of each channel of y, with zero where that is needed; None after the last layer, or with a `constant`.
    constant: the activation takes no two vectors further apart than by this; None if there are slopes, or none at all.
    """

    kernel: RationalMatrix
    channels: tuple[int, int]
    offsets: tuple[Pair, ...]
    stride: Pair
    slopes: Slopes | None
    constant: Fraction | None

    @property
    def side(self) -> int:
        """Channels of y."""
        return self.channels[0]


@dataclass(frozen=True, eq=False)
class Segment:
    """Levels one after the other, of which only the last has no slopes. sides: of the torus after that one."""

    levels: tuple[Level, ...]
    sides: Pair


def segments_of(network: Network) -> tuple[Segment, ...]:
    """The levels of all layers; the last of them gives the logits.

    Raises: UndecidedError, which says why, if the network is none of this kind.
    """
    return tuple(_segment(part) for part in _parts(network))


# -- one layer after the other ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Axis:
    """Along an axis: the inputs and outputs of a map, its stride, and the offset at each place of its window in use."""

    inputs: int
    outputs: int
    stride: int
    offsets: dict[int, int]

    @property
    def least(self) -> int:
        """The least side of the torus before it: (1)."""
        offsets = self.offsets.values()
        return max(self.inputs, self.inputs - min(offsets), self.stride * (self.outputs - 1) + max(offsets) + 1)

    @property
    def is_padded(self) -> bool:
        """Whether some window looks beyond the grid, at a place where another looks at an input."""
        offsets = self.offsets.values()
        return min(offsets) < 0 or self.stride * (self.outputs - 1) + max(offsets) >= self.inputs


@dataclass(frozen=True, eq=False)
class _Map:
    """arrange: makes of its numbers an array (channels of y, of x, offsets). channels: of y."""

    numbers: RationalMatrix
    arrange: Callable[[Any], Any]
    channels: int
    axes: tuple[_Axis, _Axis]


@dataclass(frozen=True, eq=False)
class _Piece:
    """A layer by itself. pairs: of channels that are sorted; none if it is an activation with slopes of its own."""

    map: _Map
    slopes: Slopes | None = None
    constant: Fraction | None = None
    pairs: Indices | None = None

    @property
    def axes(self) -> tuple[_Axis, _Axis]:
        return self.map.axes

    @property
    def grid(self) -> Shape:
        """Of its outputs: (channels, height, width)."""
        return self.map.channels, self.axes[0].outputs, self.axes[1].outputs


def _parts(network: Network) -> list[list[_Piece]]:
    """The layers of each segment."""
    if not network.is_chain:
        raise UndecidedError("a layer adds up what several others give, and their maps do not make up one map")
    if len(network.layers) > MAX_LEVELS:
        raise UndecidedError(f"more than {MAX_LEVELS} layers")
    found: list[list[_Piece]] = [[]]
    grid: Shape | None = None
    for index, layer in enumerate(network.layers):
        piece = _piece(layer, grid, index == len(network.layers) - 1)
        found[-1].append(piece)
        grid = piece.grid
        if piece.constant is not None:
            found.append([])
            grid = None
    return found


def _piece(layer: Layer, grid: Shape | None, is_last: bool) -> _Piece:
    """grid: of what the layer takes; None if any will do, as at the beginning of a segment."""
    linear = layer.branches[0].map
    if isinstance(linear, Convolution) and not is_last and grid in (None, linear.in_shape):
        made = _of_window(linear)
    else:
        made = _of_matrix(linear, grid or (linear.shape[1], 1, 1))
    if layer.activation is None:
        return _Piece(made)
    pairs = _pairs(layer, made)
    if pairs is not None:
        ends = {int(k): (Fraction(1), Fraction(1)) for k in pairs[0]}
        ends |= {int(k): (Fraction(-1), Fraction(1)) for k in pairs[1]}
        return _Piece(made, tuple(ends[k] for k in range(made.channels)), pairs=pairs)
    if layer.slopes is None:
        return _Piece(made, constant=layer.activation.lipschitz)
    return _Piece(made, (layer.slopes,) * made.channels)


def _pairs(layer: Layer, linear: _Map) -> Indices | None:
    """The first and the second channel of each pair that is sorted; None if the activation does something else.

    Numbers are read as (groups, 2, inner): if `inner` is made of whole channels, as many of them stand apart. Factors
    that are not known exactly would be between the sorting and the sums.
    """
    made, positions = layer.activation, linear.axes[0].outputs * linear.axes[1].outputs
    if not (isinstance(made, Sorting) and made.size == 2) or layer.before or layer.after or made.inner % positions:
        return None
    places = np.arange(linear.channels).reshape(-1, 2, made.inner // positions)
    return np.stack([places[:, 0].ravel(), places[:, 1].ravel()])


def _of_window(linear: Convolution) -> _Map:
    """A convolution on its grid."""
    outputs = linear.kernel.shape[0]
    axes = _axis(linear.window, 0), _axis(linear.window, 1)
    used = [u * linear.window.size[1] + v for u, v in product(axes[0].offsets, axes[1].offsets)]
    if not used:
        raise UndecidedError("a layer that looks at none of its inputs")
    if outputs > MAX_SIDE or outputs * linear.channels * len(used) > MAX_DENSE:
        raise UndecidedError(f"a convolution with kernels of {outputs} x {linear.channels}, which are too large")

    def arrange(numbers: Any) -> Any:
        """Of groups that do not see each other, a block is zero."""
        groups = linear.groups
        parts = numbers.reshape(groups, outputs // groups, -1, linear.window.taps)[:, :, :, used]
        made = np.zeros((groups, outputs // groups, groups, *parts.shape[2:]), dtype=numbers.dtype)
        for g in range(groups):
            made[g, :, g] = parts[g]
        return made.reshape(outputs, linear.channels, len(used))

    return _Map(linear.kernel, arrange, outputs, axes)


def _axis(window: Window, axis: int) -> _Axis:
    used = sorted({u for _, _, u in looks(window, axis)})
    offsets = {u: window.dilation[axis] * u - window.before[axis] for u in used}
    return _Axis(window.inputs[axis], window.outputs[axis], window.stride[axis], offsets)


def _of_matrix(linear: LinearMap, grid: Shape) -> _Map:
    """Any other map, as a matrix: one output, and an offset for each position of the grid (channels, height, width)."""
    if not linear.is_small or linear.shape[0] > MAX_SIDE:
        raise UndecidedError("a map that is no convolution on the grid of what it takes, and too large for a matrix")

    def arrange(numbers: Any) -> Any:
        return numbers.reshape(len(numbers), grid[0], -1)

    axes = _Axis(grid[1], 1, 1, {y: y for y in range(grid[1])}), _Axis(grid[2], 1, 1, {x: x for x in range(grid[2])})
    return _Map(linear.dense(), arrange, linear.shape[0], axes)


# -- together ---------------------------------------------------------------------------------------------------------


def _segment(pieces: Sequence[_Piece]) -> Segment:
    along = [_strides([piece.axes[k] for piece in pieces]) for k in (0, 1)]
    levels = []
    for place, piece in enumerate(pieces):
        after = pieces[place + 1] if place + 1 < len(pieces) else None
        before = pieces[place - 1].pairs if place else None
        offsets = tuple(product(piece.axes[0].offsets.values(), piece.axes[1].offsets.values()))
        kernel, channels = _kernel(piece, before)
        slopes = piece.slopes
        if slopes is not None and after is not None and any(axis.is_padded for axis in after.axes):
            slopes = widened(slopes)
        stride = (along[0][0][place], along[1][0][place])
        levels.append(Level(kernel, channels, offsets, stride, slopes, piece.constant))
    return Segment(tuple(levels), (along[0][1], along[1][1]))


def widened(slopes: Slopes) -> Slopes:
    """With zero in each sector."""
    return tuple((min(low, Fraction(0)), max(high, Fraction(0))) for low, high in slopes)


def _strides(axes: Sequence[_Axis]) -> tuple[list[int], int]:
    """Along an axis: the strides of all levels, and the side of the torus after the last.

    Proof. Before level l the side is N·s_l·…·s_k, for the last side N. It is at least `least` of that level, (1), if N
    is at least that over the product; and N is no less than the outputs of the last level.
    """
    strides: list[int] = []
    for axis in axes:
        wanted = [axis.least, *(_over(each.least, prod(strides[k:])) for k, each in enumerate(axes[: len(strides)]))]
        strides.append(max(wanted) if axis.outputs == 1 else axis.stride)
    sides = (_over(axis.least, prod(strides[k:])) for k, axis in enumerate(axes))
    return strides, max(axes[-1].outputs, *sides)


def _over(least: int, times: int) -> int:
    """The least N with N·times >= least."""
    return -(-least // times)


def _kernel(piece: _Piece, before: Indices | None) -> tuple[RationalMatrix, tuple[int, int]]:
    """With R of the pairs of channels that are sorted after it, and ½R of those `before` it. Floats stay floats."""
    numbers, arrange = piece.map.numbers, piece.map.arrange
    near = numbers.near_floats()
    if near.exact and piece.pairs is None and before is None:
        made = arrange(near.values)
        outputs, inputs, offsets = made.shape
        return RationalMatrix.from_floats(made.reshape(-1, offsets), near.exponent), (outputs, inputs)
    made, denominator = arrange(numbers.numerators), numbers.denominator
    outputs, inputs, offsets = made.shape
    if piece.pairs is not None:
        made = _sums_and_differences(made, piece.pairs)
    if before is not None:
        made, denominator = _sums_and_differences(made.swapaxes(0, 1), before).swapaxes(0, 1), 2 * denominator
    return RationalMatrix(made.reshape(-1, offsets), denominator), (outputs, inputs)


def _sums_and_differences(x: Any, pairs: Indices) -> Any:
    """R·x: R is its own transpose."""
    made = x.copy()
    made[pairs[0]], made[pairs[1]] = x[pairs[0]] + x[pairs[1]], x[pairs[0]] - x[pairs[1]]
    return made
