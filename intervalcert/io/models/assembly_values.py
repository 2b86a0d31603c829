"""What a graph of operations has at one of its points: values that wait to become layers. Immutable.

A value is an origin, and what was done to each of its numbers since (`Post`):

    C·(scale·P·y + offset) + shift          (C as in `layers.UncertainScale`; what is missing is 1 or 0)

y is what the origin gives: the input, a sum of linear maps, an activation, or an activation times factors that no
rational holds. P takes entries of it, in any order, or puts zeros.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod

import numpy as np

from intervalcert.backends.protocol import Indices
from intervalcert.io.models.assembly_maps import TensorMap, after
from intervalcert.io.models.assembly_vectors import product, taken, total
from intervalcert.io.models.tensors import Tensor
from intervalcert.model.activations import Activation
from intervalcert.model.linear_maps import Shape
from intervalcert.model.normalisation import FACTOR_LEAST

__all__ = ["NOTHING", "Applied", "Input", "Linear", "Origin", "Part", "Post", "Shrunk", "Value"]


@dataclass(frozen=True, eq=False)
class Post:
    """y -> C·(scale·P·y + offset) + shift. index: that of P, or None for all entries in their order.

    Vectors have one number for each entry, or one for a run of them (`assembly_vectors`). least: of the entries of C.
    moved_from: what was done before entries were moved, if they were moved last.
    """

    index: Indices | None = None
    scale: Tensor | None = None
    offset: Tensor | None = None
    shift: Tensor | None = None
    least: Fraction = Fraction(1)
    moved_from: Post | None = None

    @property
    def changes_numbers(self) -> bool:
        """Whether it does more than to move them."""
        return self.scale is not None or self.shift is not None or self.least < 1

    def times(self, factors: Tensor) -> Post:
        return replace(
            self,
            scale=product(factors, self.scale),
            offset=None if self.offset is None else product(self.offset, factors),
            shift=None if self.shift is None else product(self.shift, factors),
            moved_from=None,
        )

    def plus(self, by: Tensor) -> Post:
        return replace(self, shift=total(self.shift, by), moved_from=None)

    def shrunk(self) -> Post:
        """Multiplied with factors in [FACTOR_LEAST, 1]. Requires: it has none yet."""
        return replace(self, least=FACTOR_LEAST, offset=self.shift, shift=None, moved_from=None)

    def at(self, index: Indices, width: int, inputs: int) -> Post:
        """Of its `width` entries those at these places, and zeros where that is missing. inputs: entries of y."""
        return Post(
            after(index, self.index, inputs),
            None if self.scale is None else taken(self.scale, index, width),
            None if self.offset is None else taken(self.offset, index, width, 0),
            None if self.shift is None else taken(self.shift, index, width, 0),
            self.least,
            self if self.index is None else self.moved_from,
        )

    def unmoved(self, inputs: int) -> Post | None:
        """What was done to all entries of y in their order, before they were moved; None if there is no such thing."""
        if self.index is None or self.moved_from is not None:
            return self if self.index is None else self.moved_from
        back = np.argsort(self.index, kind="stable")
        if len(back) != inputs or (self.index[back] != np.arange(inputs)).any():
            return None
        return self.at(back, inputs, inputs)


NOTHING = Post()


@dataclass(frozen=True, eq=False)
class Origin:
    """Where numbers come from, in an array of that shape.

    serial: counts them; each takes only what comes before it. where: for messages, or nothing. notes: a place for what
    is to be said of it (`Assembly.note`) once it is known what becomes of it.
    """

    serial: int
    shape: Shape
    where: str
    notes: list[str]

    @property
    def width(self) -> int:
        return prod(self.shape)

    @property
    def indices(self) -> Indices:
        """Of all its entries, in their order."""
        return np.arange(self.width)

    def has_all(self, index: Indices) -> bool:
        """Whether these are all of its entries, each once."""
        return np.array_equal(np.sort(index), self.indices)


@dataclass(frozen=True, eq=False)
class Value:
    """What an origin gives, and what was done to its entries since."""

    origin: Origin
    post: Post
    shape: Shape

    @property
    def width(self) -> int:
        return prod(self.shape)

    @property
    def is_bare(self) -> bool:
        """Whether no linear map is pending."""
        return not isinstance(self.origin, Linear)

    @property
    def is_input(self) -> bool:
        """Whether it is the input still, but for its entries one by one."""
        return isinstance(self.origin, Input)

    def reshaped(self, shape: Shape) -> Value:
        """The same numbers. Requires: as many."""
        return self if shape == self.shape else replace(self, shape=shape)


@dataclass(frozen=True, eq=False)
class Input(Origin):
    """The input of the network."""


@dataclass(frozen=True, eq=False)
class Part:
    """T·value; the identity if there is no map."""

    map: TensorMap | None
    value: Value


@dataclass(frozen=True, eq=False)
class Linear(Origin):
    """Σ T_k·value_k + bias."""

    parts: tuple[Part, ...]
    bias: Tensor | None


@dataclass(frozen=True, eq=False)
class Applied(Origin):
    """f(value)."""

    function: Activation
    value: Value


@dataclass(frozen=True, eq=False)
class Shrunk(Origin):
    """C·(value + offset), the entries of C in [FACTOR_LEAST, 1]. The value is just what an activation gives."""

    value: Value
    offset: Tensor | None
