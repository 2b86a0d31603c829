"""Constants for each entry of an array: vectors in which one number may stand for a run of entries.

A vector of n numbers is one for n·k entries: each number belongs to k of them in a row, as one for each channel of an
image, whose rows and columns come after the channels. One number is for all entries.
"""

from __future__ import annotations

from math import lcm

import numpy as np

from intervalcert.backends.protocol import Indices
from intervalcert.io.models.tensors import Tensor
from intervalcert.model.windows import MISSING

__all__ = ["aligned", "in_runs", "joined", "product", "spread", "taken", "total"]


def spread(vector: Tensor, count: int) -> Tensor:
    """The same, with so many numbers. Requires: a multiple of what it has."""
    if vector.size == count:
        return vector
    each = count // vector.size
    return vector.reshaped((vector.size, 1)).broadcast((vector.size, each)).reshaped((count,))


def aligned(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Two vectors for the same entries, with as many numbers each, or one."""
    if x.size == y.size or 1 in {x.size, y.size}:
        return x, y
    count = lcm(x.size, y.size)
    return spread(x, count), spread(y, count)


def product(x: Tensor, y: Tensor | None) -> Tensor:
    """The product x·y, where None is one."""
    if y is None:
        return x
    a, b = aligned(x, y)
    return a * b


def total(x: Tensor | None, y: Tensor | None) -> Tensor | None:
    """The sum x + y, where None is zero."""
    if x is None or y is None:
        return y if x is None else x
    a, b = aligned(x, y)
    return a + b


def in_runs(vector: Tensor, count: int) -> Tensor | None:
    """The same with `count` numbers, if it is the same all over each of so many runs; else None."""
    if count % vector.size == 0:
        return spread(vector, count)
    wide = spread(vector, lcm(vector.size, count))
    numbers = wide.stored if wide.stored is not None else wide.exact()[0]
    rows = numbers.reshape(count, -1)
    if (rows != rows[:, :1]).any():
        return None
    return wide.at(np.arange(0, wide.size, wide.size // count))


def taken(vector: Tensor, index: Indices, width: int, otherwise: int | None = None) -> Tensor:
    """For entries that are those of `width` others at `index`; where that is missing, the number `otherwise`.

    None: whatever is convenient there. In as few numbers as runs of the same length, or as many runs, allow.
    """
    if vector.size == 1 and (otherwise is None or not (index < 0).any()):
        return vector
    each, count = width // vector.size, len(index)
    run_of = np.where(index >= 0, index // each, MISSING)
    lengths = {each, count // vector.size if count % vector.size == 0 else 0}
    for length in sorted(lengths - {0, 1}, reverse=True):
        if count % length == 0:
            rows = run_of.reshape(-1, length)
            known = rows.max(axis=1)
            same = rows == known[:, None]
            if (same if otherwise is not None else same | (rows < 0)).all():
                return vector.at(known, 1 if otherwise is None else otherwise)
    return vector.at(run_of, 1 if otherwise is None else otherwise)


def joined(vectors: list[tuple[Tensor | None, int]], otherwise: int) -> Tensor | None:
    """One after the other, each for so many entries; None is that number, and all of them none is None."""
    some = next((vector for vector, _ in vectors if vector is not None), None)
    if some is None:
        return None
    constant = some.at(np.array([MISSING]), otherwise)
    return Tensor.joined([spread(constant if vector is None else vector, count) for vector, count in vectors])
