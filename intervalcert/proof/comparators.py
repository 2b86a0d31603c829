"""Sorting and largest numbers, as steps that compare pairs: min(a, b), max(a, b) = (a + b ∓ |a - b|)/2.

a + b is linear, and |a - b| is a function of one variable with slopes in [-1, 1], of which near a known point `sectors`
finds how far it bends. So whatever compares pairs and puts them in order is a chain of linear maps and such functions:

* Sorting groups: pairs of neighbours are put in order, first those that begin at an even place, then those at an odd
  one, and so on, as many times as a group has numbers ("odd-even transposition"): then each group is in order.
* The largest of some numbers: pairs of neighbours leave the larger one, until one is left.

Nothing of this is said of a network: it is about rows, each with a place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import prod

import numpy as np

from intervalcert.backends.protocol import Floats, Indices
from intervalcert.model.activations import MaxPool, PiecewiseLinear, Sorting
from intervalcert.model.evaluation import FloatBounds

__all__ = ["MODULUS", "Comparison", "difference", "kept_of", "rounds_of_sorting", "slots_of", "tournament"]

MODULUS = PiecewiseLinear("modulus", Fraction(0), Fraction(-1), ((Fraction(2), Fraction(0)),))
"""|x| = -x + 2·max(x, 0)."""


@dataclass(frozen=True, eq=False)
class Comparison:
    """The smaller of rows left[k] and right[k] goes to the place left[k], the larger to right[k]; each row once.

    keep: the rows that are needed afterwards, in this order.
    """

    left: Indices
    right: Indices
    keep: Indices


def rounds_of_sorting(function: Sorting, count: int) -> Iterator[Comparison]:
    """What sorts so many numbers as the function does. Requires: its groups are known."""
    size = function.size or 1
    places = np.arange(count).reshape(-1, size, function.inner).transpose(0, 2, 1)
    groups = (places if function.ascending else places[:, :, ::-1]).reshape(-1, size)
    every = np.arange(count)
    for turn in range(size):
        left, right = groups[:, turn % 2 : size - 1 : 2], groups[:, turn % 2 + 1 : size : 2]
        if left.size:
            yield Comparison(left.ravel(), right.ravel(), every)


def slots_of(function: MaxPool) -> tuple[Indices, Indices]:
    """What all windows see, window by window: the number of the window, and the row that is seen."""
    table = function.window.table.T  # outputs x places
    outputs, seen = len(table), table >= 0
    channel = np.arange(function.channels)[:, None, None]
    windows = np.broadcast_to(channel * outputs + np.arange(outputs)[:, None], (function.channels, *table.shape))
    rows = channel * prod(function.window.inputs) + table
    return windows[:, seen].ravel(), rows[:, seen].ravel()


def tournament(windows: Indices) -> Iterator[Comparison]:
    """What leaves the largest row of each window, in their order. windows: of the rows, ascending."""
    while len(windows) > 1:
        first = np.searchsorted(windows, windows)
        rank = np.arange(len(windows)) - first
        has_next = np.append(windows[1:] == windows[:-1], False)
        left = np.flatnonzero((rank % 2 == 0) & has_next)
        if not len(left):
            return
        keep = np.delete(np.arange(len(windows)), left)
        yield Comparison(left, left + 1, keep)
        windows = windows[keep]


def difference(ends: FloatBounds, left: Indices, right: Indices) -> FloatBounds:
    """Ends of the differences of numbers with these ends."""
    low, high = ends
    with np.errstate(over="ignore", invalid="ignore"):  # what is no number is refused by whoever uses it
        # A float difference is at most half a step off: the next float is on the safe side.
        return np.nextafter(low[left] - high[right], -np.inf), np.nextafter(high[left] - low[right], np.inf)


def kept_of(ends: FloatBounds, step: Comparison) -> FloatBounds:
    """Ends of what is kept: the smaller of two numbers is between the smaller of their lower and upper ends."""
    found: list[Floats] = []
    for end in ends:
        made = end.copy()
        made[step.left] = np.minimum(end[step.left], end[step.right])
        made[step.right] = np.maximum(end[step.left], end[step.right])
        found.append(made[step.keep])
    return found[0], found[1]
