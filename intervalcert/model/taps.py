"""A convolution cut into pieces: taps on a coarser grid, rows of its grid, and the matrices that belong to them.

Along an axis the window at output i looks at the inputs stride·i + o, with o = dilation·u - before for its places u.
With o = stride·t + p, where t = floor(o/stride) and 0 <= p < stride, that is the input stride·(i + t) + p: the phase p
of the position i + t on a grid that is coarser by the stride. Take the inputs stride·J + p for all p as channels of one
position J (space to depth), and every convolution has the stride 1:

    y_i = Σ_t K_t·x_{i+t},   K_t of output channels x (phases · input channels).

If the stride does not divide the number of inputs, some phases of the last position are missing. Norms take them for
inputs: the map T that is described here then has more columns than the convolution, and at least its norm.

Places that look beyond the input wherever the window stands are left out: they have no part in the map. (So an axis
with a single output, whose stride is arbitrary, can take all of its inputs for phases of one position: one offset.)
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from intervalcert.backends.protocol import Indices
from intervalcert.model.linear_maps import Convolution
from intervalcert.model.windows import MISSING, Window
from intervalcert.numbers.matrices import RationalMatrix

__all__ = ["AxisTaps", "Look", "Taps", "axis_taps", "looks", "place_of", "taps_of", "unrolled"]

Look = tuple[int, int, int]
"""(i, j, u): the window at output i has the input j at its place u, along one axis."""


def looks(window: Window, axis: int) -> list[Look]:
    """All that it looks at within the input, along one axis."""
    stride, dilation, before = window.stride[axis], window.dilation[axis], window.before[axis]
    found = []
    for u in range(window.size[axis]):
        o = dilation * u - before
        first, last = max(0, -(o // stride)), min(window.outputs[axis] - 1, (window.inputs[axis] - 1 - o) // stride)
        found += [(i, stride * i + o, u) for i in range(first, last + 1)]
    return found


@dataclass(frozen=True)
class AxisTaps:
    """One axis on the coarser grid: from output i, place u of the window looks at phase p of position i + t.

    inputs: positions of the coarser grid. outputs: as of the window. stride: inputs that a position stands for.
    places: (t, p) -> u. Empty if no window looks at any input.
    """

    inputs: int
    outputs: int
    stride: int
    places: dict[tuple[int, int], int]

    @property
    def offsets(self) -> tuple[int, ...]:
        return tuple(sorted({t for t, _ in self.places}))

    @property
    def phases(self) -> tuple[int, ...]:
        """Those that some window looks at."""
        return tuple(sorted({p for _, p in self.places}))

    def at(self, offset: int) -> list[int]:
        """The place of the window at this offset, for each phase, or `MISSING`."""
        return [self.places.get((offset, phase), MISSING) for phase in self.phases]


def axis_taps(window: Window, axis: int) -> AxisTaps:
    inputs, outputs = window.inputs[axis], window.outputs[axis]
    stride = inputs if outputs == 1 else window.stride[axis]
    used = sorted({u for _, _, u in looks(window, axis)})
    places = {divmod(window.dilation[axis] * u - window.before[axis], stride): u for u in used}
    return AxisTaps(-(-inputs // stride), outputs, stride, places)


@dataclass(frozen=True, eq=False)
class Taps:
    """K_t for each pair of offsets t; all of one shape. None if no window looks at any input: the map is zero.

    The columns of a matrix are (phase along the height, phase along the width, channel), the last running fastest.
    """

    axes: tuple[AxisTaps, AxisTaps]
    matrices: dict[tuple[int, int], RationalMatrix]


def taps_of(convolution: Convolution) -> Taps:
    """Requires: the convolution has one group."""
    rows, columns = axis_taps(convolution.window, 0), axis_taps(convolution.window, 1)
    matrices = {}
    for t in product(rows.offsets, columns.offsets):
        places = [place_of(convolution, (u, v)) for u in rows.at(t[0]) for v in columns.at(t[1])]
        matrices[t] = unrolled(convolution, np.array([places]))
    return Taps((rows, columns), matrices)


def place_of(convolution: Convolution, along: tuple[int, int]) -> int:
    """The place of a window from those along the height and along the width; `MISSING` if one of them is."""
    return MISSING if MISSING in along else along[0] * convolution.window.size[1] + along[1]


def unrolled(convolution: Convolution, places: Indices) -> RationalMatrix:
    """A matrix of blocks, one for each entry of a table of places: the kernel at that place, or zero if `MISSING`.

    A block has the output channels as rows and the input channels as columns. Requires: one group.
    """
    if convolution.groups != 1:
        raise ValueError("a convolution in groups has no single kernel: take each of its blocks")
    outputs, channels, taps = convolution.kernel.shape[0], convolution.channels, convolution.window.taps
    rows, columns = places.shape
    of_channels = np.arange(outputs)[:, None, None] * (channels * taps) + np.arange(channels) * taps
    looked = places[:, None, :, None]
    index = np.where(looked == MISSING, MISSING, of_channels + looked)
    return _gathered(convolution.kernel, index.reshape(rows * outputs, columns * channels))


def _gathered(matrix: RationalMatrix, index: Indices) -> RationalMatrix:
    """The entries at some places, counted row by row, or zero where it is `MISSING`. Floats stay floats."""
    near = matrix.near_floats()
    if near.exact:
        return RationalMatrix.from_floats(np.append(near.values.ravel(), 0.0)[index], near.exponent)  # the last is zero
    return RationalMatrix(np.append(matrix.numerators.ravel(), 0)[index], matrix.denominator)
