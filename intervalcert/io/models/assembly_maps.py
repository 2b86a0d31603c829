"""Linear maps as files have them: in tensors, to which more may be multiplied before they become those of `model`.

Each kind says what becomes of it if its outputs or inputs are scaled, picked or put in another order; None where that
is no map of its kind, or too large. All of it is exact.

    Weights   a matrix                                        -> Dense
    Kernel    a window that goes over a grid                  -> Convolution
    Entries   entries that are picked, and their factors      -> IndexMap
    Alike     one matrix for each channel alike               -> ChannelWise
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from math import prod

import numpy as np

from intervalcert.backends.protocol import Indices
from intervalcert.errors import InputError
from intervalcert.io.models.assembly_vectors import in_runs, product, spread, taken
from intervalcert.io.models.tensors import MAX_COMPUTED, Budget, Tensor
from intervalcert.model.linear_maps import ChannelWise, Convolution, Dense, IndexMap, LinearMap, Shape, identity
from intervalcert.model.windows import MISSING, Window
from intervalcert.numbers.matrices import RationalMatrix

__all__ = ["Alike", "Entries", "Kernel", "Numbers", "TensorMap", "Weights", "after", "convolution"]


_TIMES, _FEW = 4, 2**16
"""A map is not made larger than so many times what it was, unless that is little."""


class Numbers:
    """What maps are made of at last: one matrix for all layers with the same numbers, so that it is bounded once."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self._matrices: dict[tuple[object, ...], tuple[Tensor, RationalMatrix]] = {}
        self._identities: dict[Shape, IndexMap] = {}

    def matrix(self, weights: Tensor) -> RationalMatrix:
        """Requires: two dimensions."""
        if weights.place in self._matrices:
            self.budget.repeat(weights.shape)
        else:  # the tensor is kept, so that no other one comes to be in its place
            self._matrices[weights.place] = weights, weights.matrix()
        return self._matrices[weights.place][1]

    def column(self, vector: Tensor | None, width: int) -> RationalMatrix | None:
        """In full."""
        return None if vector is None else spread(vector, width).column()

    def identity(self, shape: Shape) -> IndexMap:
        if shape not in self._identities:
            self.budget.hold(prod(shape))
            self._identities[shape] = identity(shape)
        return self._identities[shape]


class TensorMap(ABC):
    """x -> T·x. Immutable. Factors and vectors are those of `assembly_vectors`: one number for a run of entries."""

    @property
    @abstractmethod
    def outputs(self) -> int: ...

    @property
    @abstractmethod
    def inputs(self) -> int: ...

    @abstractmethod
    def rows_scaled(self, factors: Tensor) -> TensorMap | None:
        """The map x -> factors·T·x."""

    @abstractmethod
    def rows_at(self, index: Indices) -> TensorMap | None:
        """The map that gives the outputs at these places, and zero where that is missing."""

    @abstractmethod
    def columns_scaled(self, factors: Tensor) -> TensorMap | None:
        """The map x -> T·(factors·x)."""

    @abstractmethod
    def columns_at(self, index: Indices, inputs: int) -> TensorMap | None:
        """The map of `inputs` numbers x that takes those at these places, and zero where that is missing."""

    @abstractmethod
    def of(self, vector: Tensor) -> Tensor | None:
        """T·vector; None if that takes too long."""

    @abstractmethod
    def made(self, numbers: Numbers) -> LinearMap: ...


def _fits(count: int, numbers: Tensor) -> bool:
    """Whether so many numbers may stand in the place of these: not many more, most of which would be zeros."""
    return count <= min(max(_TIMES * numbers.size, _FEW), MAX_COMPUTED)


# -- a matrix ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Weights(TensorMap):
    """Outputs x inputs."""

    weights: Tensor

    @property
    def outputs(self) -> int:
        return self.weights.shape[0]

    @property
    def inputs(self) -> int:
        return self.weights.shape[1]

    def rows_scaled(self, factors: Tensor) -> Weights:
        factors = factors if factors.size == 1 else spread(factors, self.outputs)
        return Weights(self.weights * factors.reshaped((factors.size, 1)))

    def columns_scaled(self, factors: Tensor) -> Weights:
        return Weights(self.weights * (factors if factors.size == 1 else spread(factors, self.inputs)))

    def rows_at(self, index: Indices) -> Weights | None:
        if not _fits(len(index) * self.inputs, self.weights):
            return None
        return Weights(self.weights.at(_rows(index, self.inputs)))

    def columns_at(self, index: Indices, inputs: int) -> Weights | None:
        seen = index[index >= 0]
        if not _fits(self.outputs * inputs, self.weights) or len(np.unique(seen)) < len(seen):
            return None
        back = np.full(inputs, MISSING, dtype=np.intp)
        back[seen] = np.nonzero(index >= 0)[0]
        first = np.arange(self.outputs)[:, None] * self.inputs
        return Weights(self.weights.at(np.where(back >= 0, first + back, MISSING)))

    def of(self, vector: Tensor) -> Tensor:
        column = spread(vector, self.inputs).reshaped((self.inputs, 1))
        return (self.weights @ column).reshaped((self.outputs,))

    def made(self, numbers: Numbers) -> Dense:
        return Dense(numbers.matrix(self.weights))


def _rows(index: Indices, columns: int) -> Indices:
    """Places of whole rows, counted row by row."""
    return np.where(index[:, None] >= 0, index[:, None] * columns + np.arange(columns), MISSING)


# -- a convolution -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Kernel(TensorMap):
    """kernel: output channels x (input channels of a group · places of the window), as of `Convolution`."""

    kernel: Tensor
    channels: int
    window: Window
    groups: int = 1

    @property
    def outputs(self) -> int:
        return self.kernel.shape[0] * prod(self.window.outputs)

    @property
    def inputs(self) -> int:
        return self.channels * prod(self.window.inputs)

    @property
    def _by_group(self) -> Tensor:
        """Groups x output channels of one x input channels of one x places."""
        rows, inner = self.kernel.shape[0] // self.groups, self.channels // self.groups
        return self.kernel.reshaped((self.groups, rows, inner, self.window.taps))

    def rows_scaled(self, factors: Tensor) -> Kernel | None:
        """By factors that are the same all over a channel."""
        each = in_runs(factors, self.kernel.shape[0])
        return None if each is None else replace(self, kernel=self.kernel * each.reshaped((each.size, 1)))

    def columns_scaled(self, factors: Tensor) -> Kernel | None:
        """By factors that are the same all over a channel."""
        each = in_runs(factors, self.channels)
        if each is None:
            return None
        made = self._by_group * each.reshaped((self.groups, 1, self.channels // self.groups, 1))
        return replace(self, kernel=made.reshaped(self.kernel.shape))

    def rows_at(self, index: Indices) -> Kernel | None:
        """Whole channels."""
        picked = _channels(index, prod(self.window.outputs)) if self.groups == 1 else None
        columns = self.kernel.shape[1]
        if picked is None or not _fits(len(picked) * columns, self.kernel):
            return None
        return replace(self, kernel=self.kernel.at(_rows(picked, columns)))

    def columns_at(self, index: Indices, inputs: int) -> TensorMap | None:
        """Whole channels, each once at the most; or all of them with zeros around, which the window has as padding."""
        picked = _channels(index, prod(self.window.inputs)) if self.groups == 1 else None
        if picked is not None and inputs % prod(self.window.inputs) == 0:
            return self._of_channels(picked, inputs // prod(self.window.inputs))
        around = _padding(index, self.channels, self.window, inputs)
        if around is None:
            return None
        size, (top, left) = around
        before = (self.window.before[0] + top, self.window.before[1] + left)
        window = replace(self.window, inputs=size, before=before)
        return convolution(self.kernel, self.channels, window, self.groups)

    def _of_channels(self, picked: Indices, channels: int) -> Kernel | None:
        seen, taps, outputs = picked[picked >= 0], self.window.taps, self.kernel.shape[0]
        if len(np.unique(seen)) < len(seen) or not _fits(outputs * channels * taps, self.kernel):
            return None
        back = np.full(channels, MISSING, dtype=np.intp)
        back[seen] = np.nonzero(picked >= 0)[0]
        places = np.where(back[:, None] >= 0, back[:, None] * taps + np.arange(taps), MISSING).ravel()
        first = np.arange(outputs)[:, None] * self.kernel.shape[1]
        made = self.kernel.at(np.where(places >= 0, first + places, MISSING))
        return replace(self, kernel=made, channels=channels)

    def of(self, vector: Tensor) -> Tensor | None:
        """What a channel has the same all over it is summed up over channels first, and then at each place."""
        each = in_runs(vector, self.channels)
        if each is None:
            return self._of_all(spread(vector, self.inputs))
        grouped = self._by_group * each.reshaped((self.groups, 1, self.channels // self.groups, 1))
        at_places = grouped.summed(2).reshaped((self.kernel.shape[0], self.window.taps))
        if not self.window.is_padded:
            return at_places.summed(1)
        kinds, which = np.unique(self.window.table >= 0, axis=1, return_inverse=True)
        sums = at_places @ Tensor(kinds.astype(np.int64), budget=vector.budget)
        first = np.arange(self.kernel.shape[0])[:, None] * kinds.shape[1]
        return sums.at((first + which.reshape(1, -1)).ravel().astype(np.intp))

    def _of_all(self, vector: Tensor) -> Tensor | None:
        if self.kernel.size * prod(self.window.outputs) > MAX_COMPUTED:
            return None
        vector.budget.spend((self.kernel.size, prod(self.window.outputs)), 256)
        found = self._made(RationalMatrix(*self.kernel.exact())).exactly(vector.column())
        return Tensor(None, (found.numerators.ravel(), found.denominator), vector.budget)

    def _made(self, kernel: RationalMatrix) -> Convolution:
        return Convolution(kernel, self.channels, self.window, self.groups)

    def made(self, numbers: Numbers) -> Convolution:
        return self._made(numbers.matrix(self.kernel))


def convolution(kernel: Tensor, channels: int, window: Window, groups: int) -> TensorMap:
    """A window that goes over a grid. If one grid is a single place, and there is one group, that is a matrix.

    kernel: as of `Kernel`. Raises: InputError if it does not fit.
    """
    outputs, columns = kernel.shape
    if groups < 1 or channels % groups or outputs % groups or columns != channels // groups * window.taps:
        raise InputError(
            f"a kernel of {outputs} x {columns} numbers for {channels} channels in {groups} groups and a window of "
            f"{window}"
        )
    whole = window.outputs == (1, 1) and window.size == window.inputs and window.before == (0, 0)
    if groups == 1 and whole and window.dilation == (1, 1):
        return Weights(kernel)
    places, positions = prod(window.outputs), prod(window.inputs)
    several = groups > 1 or (places > 1 and positions > 1)
    if several or not _fits(outputs * places * channels * positions, kernel):
        return Kernel(kernel, channels, window, groups)
    tap, place = np.nonzero(window.table >= 0)
    index = np.full((outputs, places, channels, positions), MISSING, dtype=np.intp)
    first = (np.arange(outputs)[:, None] * channels + np.arange(channels)) * window.taps
    index[:, place, :, window.table[tap, place]] = first + tap[:, None, None]
    return Weights(kernel.at(index.reshape(outputs * places, channels * positions)))


def _channels(index: Indices, places: int) -> Indices | None:
    """Which whole channels of so many places these are, or `MISSING`; None if they are no such."""
    if len(index) % places:
        return None
    rows = index.reshape(-1, places)
    first = rows[:, :1]
    whole = (rows == first + np.arange(places)) & (first % places == 0)
    return first[:, 0] // places if (whole | ((first < 0) & (rows < 0))).all(axis=1).all() else None


def _padding(
    index: Indices, channels: int, window: Window, inputs: int
) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """((height, width), (top, left)) if the index is that of an image of `inputs` numbers, with zeros around it."""
    grid = index.reshape(channels, *window.inputs)
    rows, columns = (np.nonzero((grid[0] >= 0).any(axis=axis))[0] for axis in (1, 0))
    if not len(rows):
        return None
    size, (top, left) = (len(rows), len(columns)), (int(rows[0]), int(columns[0]))
    if channels * prod(size) != inputs:
        return None
    inner = grid[:, top : top + size[0], left : left + size[1]]
    if inner.size != inputs or (inner.ravel() != np.arange(inputs)).any() or (grid >= 0).sum() != inputs:
        return None
    return size, (top, left)


# -- entries -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Entries(TensorMap):
    """y_i = factor_i·x[index_i], or 0 where it is missing. index: None for the entries in their order."""

    in_shape: Shape
    shape: Shape
    index: Indices | None = None
    factors: Tensor | None = None

    @property
    def outputs(self) -> int:
        return prod(self.shape)

    @property
    def inputs(self) -> int:
        return prod(self.in_shape)

    def rows_scaled(self, factors: Tensor) -> Entries:
        return replace(self, factors=product(factors, self.factors))

    def rows_at(self, index: Indices) -> Entries:
        own = after(index, self.index, self.inputs)
        factors = None if self.factors is None else taken(self.factors, index, self.outputs)
        return replace(self, shape=(len(index),), index=own, factors=factors)

    def columns_scaled(self, factors: Tensor) -> Entries:
        own = factors if self.index is None else taken(factors, self.index, self.inputs)
        return replace(self, factors=product(own, self.factors))

    def columns_at(self, index: Indices, inputs: int) -> Entries:
        return replace(self, in_shape=(inputs,), index=after(self.index, index, inputs))

    def of(self, vector: Tensor) -> Tensor:
        own = vector if self.index is None else taken(vector, self.index, self.inputs, 0)
        return product(own, self.factors)

    def made(self, numbers: Numbers) -> IndexMap:
        factors = None if self.factors is None or self.factors.holds_only(1) else self.factors
        if self.index is None and factors is None:
            return numbers.identity(self.shape)
        numbers.budget.hold(self.outputs)
        index = np.arange(self.outputs) if self.index is None else self.index
        return IndexMap(index, self.in_shape, self.shape, numbers.column(factors, self.outputs))


def after(second: Indices | None, first: Indices | None, inputs: int) -> Indices | None:
    """The index of entries of `inputs` numbers at `first`, of which those at `second` are taken; None is all of them.

    It is None if all entries are in their order.
    """
    if first is None or second is None:
        index = first if second is None else second
    else:
        index = np.where(second >= 0, first[second], MISSING)
    return None if index is not None and np.array_equal(index, np.arange(inputs)) else index


# -- one matrix for each channel alike ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Alike(TensorMap):
    """matrix: outputs of a channel x inputs of a channel. The shapes begin with the channels."""

    matrix: Tensor
    in_shape: Shape
    shape: Shape

    @property
    def outputs(self) -> int:
        return prod(self.shape)

    @property
    def inputs(self) -> int:
        return prod(self.in_shape)

    def rows_scaled(self, factors: Tensor) -> Alike | None:
        return self._scaled(factors)

    def columns_scaled(self, factors: Tensor) -> Alike | None:
        return self._scaled(factors)

    def _scaled(self, factors: Tensor) -> Alike | None:
        """By one number."""
        one = in_runs(factors, 1)
        return None if one is None else replace(self, matrix=self.matrix * one.reshaped((1, 1)))

    def rows_at(self, index: Indices) -> None:  # noqa: ARG002 - whatever they are
        return None

    def columns_at(self, index: Indices, inputs: int) -> None:  # noqa: ARG002 - whatever they are
        return None

    def of(self, vector: Tensor) -> Tensor | None:
        """Of one number for each channel: the matrix times ones, times that number."""
        each = in_runs(vector, self.in_shape[0])
        if each is None:
            return None
        sums = self.matrix.summed(1)
        return (each.reshaped((each.size, 1)) * sums.reshaped((1, sums.size))).reshaped((self.outputs,))

    def made(self, numbers: Numbers) -> ChannelWise:
        return ChannelWise(numbers.matrix(self.matrix), self.in_shape, self.shape)
