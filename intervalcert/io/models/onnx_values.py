"""What flows through an ONNX graph while it is read: constants, sizes, and values that depend on the input."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from intervalcert.errors import InputError
from intervalcert.io.models import assembly_values
from intervalcert.io.models.tensors import Tensor

__all__ = ["MAX_RANK", "MAX_SIZES", "Flow", "Size", "Sizes", "Value", "check_rank", "plain", "shown", "sizes_of"]

MAX_RANK = 32
"""Dimensions of an array."""

MAX_SIZES = 1_000
"""Numbers in a list of sizes."""

Size = int | None
"""One side of a shape; None is the batch, of which only is known that it is the same everywhere."""


@dataclass(frozen=True)
class Sizes:
    """Whole numbers computed from shapes: a list, or a single one (`scalar`)."""

    values: tuple[Size, ...]
    scalar: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        return () if self.scalar else (len(self.values),)


@dataclass(frozen=True)
class Flow:
    """What the network has made of its input so far: numbers in C order, with this shape.

    value: these numbers. softened: a softmax was left out, and only what moves no numbers may follow.
    """

    shape: tuple[Size, ...]
    value: assembly_values.Value
    softened: bool = False

    @property
    def sides(self) -> tuple[int, ...]:
        """The shape of one sample: the batch counts as 1."""
        return tuple(1 if side is None else side for side in self.shape)

    @property
    def width(self) -> int:
        return math.prod(self.sides)

    def with_shape(self, shape: Sequence[Size]) -> Flow:
        """The same numbers. Raises: InputError unless there are as many, and the batch stays in front."""
        made = replace(self, shape=tuple(shape))
        if made.width != self.width or None in made.shape[1:] or (None in made.shape and None not in self.shape):
            raise InputError(f"a change of shape from {shown(self.shape)} to {shown(made.shape)}")
        return made

    def reshaped(self, wanted: Sequence[Size], *, zero_copies: bool) -> Flow:
        """As Reshape: -1 stands for what is left, 0 for the side as it was (or for nothing)."""
        sides = list(wanted)
        for index, side in enumerate(sides):
            if side == 0:
                if not zero_copies or index >= len(self.shape):
                    raise InputError(f"a change of shape from {shown(self.shape)} to {shown(wanted)}")
                sides[index] = self.shape[index]
        if sides.count(-1) == 1:
            place = sides.index(-1)
            known = math.prod(1 if side is None else side for side in sides if side != -1)
            batch_is_left = None in self.shape and None not in sides
            if batch_is_left and place == 0 and known == self.width:
                sides[0] = None  # as many rows as there are samples
            elif batch_is_left or known < 1 or self.width % known:
                raise InputError(
                    f"a change of shape from {shown(self.shape)} to {shown(wanted)}, which mixes samples of a batch"
                )
            else:
                sides[place] = self.width // known
        return self.with_shape(sides)

    @property
    def sample(self) -> tuple[int, ...]:
        """The shape of one sample, without the batch."""
        return self.sides[1:] if len(self.sides) > 1 and self.sides[0] == 1 else self.sides

    @property
    def numbers(self) -> assembly_values.Value:
        """In the shape of one sample."""
        return self.value.reshaped(self.sample)

    def check_side(self, axis: int, what: str) -> None:
        """Raises: InputError if that side is the batch."""
        if self.shape[axis] is None:
            raise InputError(f"{what} axis {axis} of the shape {shown(self.shape)}, which mixes samples of a batch")


Value = Tensor | Sizes | Flow


def shown(shape: Sequence[Size]) -> str:
    """A shape for people."""
    return f"[{', '.join('batch' if side is None else str(side) for side in shape)}]"


def check_rank(shape: Sequence[Size]) -> None:
    if len(shape) > MAX_RANK:
        raise InputError(f"an array of {len(shape)} dimensions; at most {MAX_RANK} are understood")


def sizes_of(value: Value, what: str) -> Sizes:
    """Whole numbers, from either kind of constant."""
    if isinstance(value, Sizes):
        return value
    stored = value.stored if isinstance(value, Tensor) else None
    if stored is not None and stored.ndim < 2 and stored.dtype in {np.dtype(np.int32), np.dtype(np.int64)}:
        if stored.size > MAX_SIZES:
            raise InputError(f"{what}: {stored.size} numbers where a shape is expected")
        return Sizes(tuple(np.atleast_1d(stored).tolist()), scalar=not stored.ndim)
    raise InputError(f"{what}: whole numbers (int32 or int64) that do not depend on the input are expected")


def plain(sizes: Sizes, otherwise: str = "it computes with the size of the batch, which is not known") -> list[int]:
    """Raises: InputError if the batch is among them."""
    found = [size for size in sizes.values if size is not None]
    if len(found) < len(sizes.values):
        raise InputError(otherwise)
    return found
