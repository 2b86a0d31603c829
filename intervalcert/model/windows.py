"""Where a window looks: the grid of a convolution or a pool, as a table of positions. No numbers of a model.

Along each axis the window at output i looks at the inputs  stride·i + dilation·u - before,  u = 0 … size - 1. What is
beyond the input is missing: zero for a sum, nothing for a maximum. The number of outputs is said, not computed: so
padding behind the end, or rows at the end that nobody looks at, need no words, and equal windows are equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from intervalcert.backends.protocol import Indices
from intervalcert.errors import InputError

__all__ = ["MISSING", "Pair", "Window", "is_held"]

Pair = tuple[int, int]
"""Along the height, and along the width."""

MISSING = -1
"""In a table of positions: beyond the input."""

MAX_SIDE = 2**20
"""Of a grid, a window, a stride, a dilation, a padding."""

MAX_TABLE = 2**26
"""Entries of a table of positions."""


def is_held(inputs: Pair, outputs: Pair, size: Pair) -> bool:
    """Whether a window of that size is small enough for a table of all positions."""
    return max(size) <= MAX_SIDE and prod(size) * max(prod(inputs), prod(outputs)) <= MAX_TABLE


@dataclass(frozen=True)
class Window:
    """A window that goes over a grid of `inputs` and stops at `outputs` places.

    Invariants, checked on construction: all sizes are at least 1, `before` is not negative, tables fit into memory.
    What makes no difference is 1: the stride along an axis with one output, the dilation of a window of size 1.
    """

    inputs: Pair
    outputs: Pair
    size: Pair
    stride: Pair = (1, 1)
    dilation: Pair = (1, 1)
    before: Pair = (0, 0)

    def __post_init__(self) -> None:
        sides = (*self.inputs, *self.outputs, *self.size, *self.stride, *self.dilation)
        if min(sides) < 1 or min(self.before) < 0 or max(*sides, *self.before) > MAX_SIDE:
            raise InputError(f"a window of {self.size} over {self.inputs} that makes no sense, or is too large")
        if not is_held(self.inputs, self.outputs, self.size):
            raise InputError(f"a window of {self.size} over {self.inputs}: that many positions are not held")
        for name, same in (("stride", self.outputs), ("dilation", self.size)):
            given: Pair = getattr(self, name)
            object.__setattr__(self, name, tuple(1 if n == 1 else x for x, n in zip(given, same, strict=True)))

    @staticmethod
    def padded(
        inputs: Pair,
        size: Pair,
        stride: Pair = (1, 1),
        dilation: Pair = (1, 1),
        pads: tuple[int, int, int, int] = (0, 0, 0, 0),
        *,
        ceil: bool = False,
    ) -> Window:
        """With as many outputs as frameworks compute. pads: top, left, bottom, right.

        ceil: the last window may stick out at the end, but begins within the input or the padding before it.
        Raises: InputError where the window does not fit once.
        """
        if min(*inputs, *size, *stride, *dilation) < 1 or min(pads) < 0:
            raise InputError(f"a window of {size} over {inputs}, strides {stride}, dilations {dilation}, pads {pads}")
        outputs = []
        for axis in range(2):
            room = inputs[axis] + pads[axis] + pads[axis + 2] - dilation[axis] * (size[axis] - 1) - 1
            if room < 0:
                raise InputError(f"a window of {size}, dilated by {dilation}, is larger than {inputs} with pads {pads}")
            count = (-(-room // stride[axis]) if ceil else room // stride[axis]) + 1
            if ceil and (count - 1) * stride[axis] >= inputs[axis] + pads[axis]:
                count -= 1
            outputs.append(count)
        return Window(inputs, (outputs[0], outputs[1]), size, stride, dilation, (pads[0], pads[1]))

    @property
    def taps(self) -> int:
        """Places of the window."""
        return prod(self.size)

    def _places(self, axis: int) -> Indices:
        """The input of each output (columns) at each place of the window (rows), along one axis; or `MISSING`."""
        at = np.arange(self.size[axis])[:, None] * self.dilation[axis] - self.before[axis]
        found = at + np.arange(self.outputs[axis]) * self.stride[axis]
        return np.where((found >= 0) & (found < self.inputs[axis]), found, MISSING)

    @cached_property
    def table(self) -> Indices:
        """Of taps x outputs: the position in the input that a place of the window looks at, or `MISSING`."""
        rows, columns = self._places(0), self._places(1)
        y, x = rows[:, None, :, None], columns[None, :, None, :]
        return self._frozen(np.where((y >= 0) & (x >= 0), y * self.inputs[1] + x, MISSING), prod(self.outputs))

    @cached_property
    def adjoint_table(self) -> Indices:
        """Of taps x inputs: the output whose window has the input at that place, or `MISSING`. There is one at most."""
        made = np.full((self.taps, prod(self.inputs)), MISSING, dtype=np.intp)
        tap, output = np.nonzero(self.table >= 0)
        made[tap, self.table[tap, output]] = output
        return self._frozen(made, prod(self.inputs))

    def _frozen(self, table: Indices, columns: int) -> Indices:
        made: Indices = table.reshape(self.taps, columns).astype(np.intp)
        made.setflags(write=False)
        return made

    @property
    def is_padded(self) -> bool:
        """Whether some window looks beyond the input."""
        return bool((self.table < 0).any())

    @cached_property
    def most_windows(self) -> int:
        """The largest number of windows that an input is in."""
        return int((self.adjoint_table >= 0).sum(axis=0).max())

    def __str__(self) -> str:
        """``3x3``, ``5x5 stride 2``, and what else is not usual."""
        words = ["x".join(map(str, self.size))]
        for name in ("stride", "dilation"):
            pair: Pair = getattr(self, name)
            if pair != (1, 1):
                words.append(f"{name} {'x'.join(map(str, dict.fromkeys(pair)))}")
        return " ".join(words)
