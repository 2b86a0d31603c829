"""Linear maps between arrays of numbers: what a layer does before its bias, exactly, and without unrolling it.

An array of the shape (channels, height, width) is one long vector, its last index running fastest; so is any other.

    Dense         a matrix
    Convolution   a window that goes over a grid: y[o, i] = Σ_c Σ_t K[o, c, t]·x[c, place(t, i)], 0 if missing
    IndexMap      y_i = factor_i·x[index_i], or zero: the identity, padding, slicing, a change of order, a scaling
    ChannelWise   one matrix for each channel alike: pooling whose weights differ from place to place

Each says its shape, what it makes of exact columns, of those of any number system (`on`), and of floats (`near`), back
and forth; its absolute value; the squared norms of its rows; and itself as a matrix, where that fits (`dense`).
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import lcm, prod
from typing import Any, Protocol

import numpy as np

from intervalcert.backends.protocol import Backend, Floats, Indices, Matrix
from intervalcert.errors import InputError
from intervalcert.model.windows import MISSING, Window
from intervalcert.numbers.float_environment import arithmetic_fault
from intervalcert.numbers.float_formats import FloatFormat
from intervalcert.numbers.matrices import IntegerArray, RationalMatrix
from intervalcert.numbers.rounding import sqrt_upper

__all__ = [
    "MAX_DENSE",
    "MAX_MEAN",
    "ChannelWise",
    "Convert",
    "Convolution",
    "Dense",
    "FloatMap",
    "IndexMap",
    "LinearMap",
    "Operator",
    "Shape",
    "identity",
    "shape_text",
    "sum_of",
]

Shape = tuple[int, ...]

Convert = Callable[[RationalMatrix], Matrix[Any]]

MAX_DENSE = 2**24
"""Entries of a matrix that a map is unrolled to: as floats, 128 MiB."""

MAX_MEAN = 65504
"""The most numbers whose mean is told by its weights, 1 over their count: the largest float16. Whoever makes a mean of
more says so (`Network.folded`)."""


def shape_text(shape: Shape) -> str:
    """For people."""
    return "x".join(map(str, shape))


class Operator(Protocol):
    """A linear map on one number system. Both ways obey the law: what becomes of a member is in what becomes of all."""

    def apply(self, x: Matrix[Any], /) -> Matrix[Any]:
        """T·x for each column. Raises: ValueError for columns of another length."""

    def adjoint(self, y: Matrix[Any], /) -> Matrix[Any]:
        """Tᵀ·y for each column. Raises: ValueError for columns of another length."""


class FloatMap(Protocol):
    """A linear map in plain floats, on a scale on which its numbers do not overflow; nothing is proved of it."""

    @property
    def exponent(self) -> int: ...

    def apply(self, x: Floats, /) -> Floats:
        """Near T·x·2^-exponent for each column."""

    def adjoint(self, y: Floats, /) -> Floats:
        """Near Tᵀ·y·2^-exponent for each column."""


class LinearMap(ABC):
    """x -> T·x. Immutable."""

    in_shape: Shape
    out_shape: Shape

    def __eq__(self, other: object) -> bool:
        """The same map, wherever its numbers are held."""
        if not isinstance(other, LinearMap):
            return NotImplemented
        return self is other or (self.shape == other.shape and self.identity_parts == other.identity_parts)

    def __hash__(self) -> int:
        return hash((self.shape, self.identity_parts[0]))

    @property
    def shape(self) -> tuple[int, int]:
        """(outputs, inputs), as that of a matrix."""
        return prod(self.out_shape), prod(self.in_shape)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self}: {shape_text(self.in_shape)} -> {shape_text(self.out_shape)}>"

    @property
    @abstractmethod
    def key(self) -> object:
        """Equal for maps that share their numbers in memory, and do the same with them."""

    @property
    @abstractmethod
    def parameters(self) -> int:
        """Numbers that it is made of."""

    @property
    @abstractmethod
    def summands(self) -> int:
        """The most products that a program adds up for one of its outputs."""

    @abstractmethod
    def rounded(self, form: FloatFormat, what: str) -> LinearMap:
        """With the numbers that a program in this format has instead. Raises: InputError if those are unknown."""

    @property
    @abstractmethod
    def identity_parts(self) -> tuple[str, tuple[RationalMatrix, ...]]:
        """All that it is: words without numbers of the model, and these."""

    @property
    def stretch(self) -> Fraction:
        """With other numbers, that are off by d in the Frobenius norm, the map is off by at most so many times d."""
        return Fraction(1)

    @abstractmethod
    def on(self, backend: Backend[Any], norm: Fraction | None = None, convert: Convert | None = None) -> Operator:
        """Itself on a number system. Requires: ||T|| <= norm, if that is said: errors then grow by no more.

        convert: makes a matrix of its numbers, in the place of `Backend.matrix`; each of them is converted once before
        the operator is there.
        """

    @abstractmethod
    def near(self) -> FloatMap:
        """Itself in floats; for those who guess."""

    @abstractmethod
    def exactly(self, x: RationalMatrix) -> RationalMatrix:
        """T·x for each column. Raises: ValueError for columns of another length."""

    @abstractmethod
    def absolute(self) -> LinearMap:
        """With the absolute values of all its entries."""

    @abstractmethod
    def scaled(self, factors: RationalMatrix) -> LinearMap | None:
        """The map x -> T·diag(factors)·x, one column of factors for the inputs; None if that is no map of this kind.

        Raises: ValueError unless there is one for each input.
        """

    @abstractmethod
    def row_squares(self) -> RationalMatrix:
        """The squared norm of each row, as a column."""

    def dense(self) -> RationalMatrix:
        """The matrix. Raises: InputError if it is too large (`is_small`)."""
        if not self.is_small:
            rows, columns = self.shape
            raise InputError(f"a map with a matrix of {rows} x {columns} is not unrolled: that is too large")
        return self._unrolled()

    @property
    def is_small(self) -> bool:
        """Whether its matrix may be held."""
        return prod(self.shape) <= MAX_DENSE

    def _unrolled(self) -> RationalMatrix:
        """All unit vectors at once."""
        return self.exactly(RationalMatrix.from_floats(np.eye(self.shape[1])))


# -- a matrix --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class Dense(LinearMap):
    """A matrix, outputs x inputs. The shapes of what it takes and gives are those of vectors if they are not said."""

    matrix: RationalMatrix
    in_shape: Shape = ()
    out_shape: Shape = ()

    def __post_init__(self) -> None:
        rows, columns = self.matrix.shape
        object.__setattr__(self, "in_shape", self.in_shape or (columns,))
        object.__setattr__(self, "out_shape", self.out_shape or (rows,))
        if self.shape != self.matrix.shape:
            raise InputError(f"a matrix of {rows} x {columns} from {self.in_shape} to {self.out_shape}")

    def __str__(self) -> str:
        return "dense"

    @property
    def key(self) -> object:
        return id(self.matrix)

    @property
    def parameters(self) -> int:
        return prod(self.matrix.shape)

    @property
    def summands(self) -> int:
        return self.matrix.shape[1]

    def rounded(self, form: FloatFormat, what: str) -> Dense:
        return Dense(form.rounded(self.matrix, what), self.in_shape, self.out_shape)

    @property
    def identity_parts(self) -> tuple[str, tuple[RationalMatrix, ...]]:
        return "weights", (self.matrix,)

    def on(self, backend: Backend[Any], norm: Fraction | None = None, convert: Convert | None = None) -> Operator:
        made = (convert or backend.matrix)(self.matrix)
        return _DenseOperator(made if norm is None else made.with_norm_bound(norm))

    def near(self) -> FloatMap:
        near = self.matrix.near_floats()
        return _DenseFloats(near.values, near.exponent)

    def exactly(self, x: RationalMatrix) -> RationalMatrix:
        return RationalMatrix(self.matrix.numerators.dot(x.numerators), self.matrix.denominator * x.denominator)

    def absolute(self) -> Dense:
        return Dense(self.matrix.absolute(), self.in_shape, self.out_shape)

    def scaled(self, factors: RationalMatrix) -> Dense:
        _check_factors(factors, self.shape[1])
        numerators = self.matrix.numerators * factors.numerators.T
        made = RationalMatrix(numerators, self.matrix.denominator * factors.denominator)
        return Dense(made, self.in_shape, self.out_shape)

    def row_squares(self) -> RationalMatrix:
        return _row_squares(self.matrix)

    @property
    def is_small(self) -> bool:
        return True  # it is there

    def _unrolled(self) -> RationalMatrix:
        return self.matrix


@dataclass(frozen=True, eq=False)
class _DenseOperator:
    matrix: Matrix[Any]

    def apply(self, x: Matrix[Any]) -> Matrix[Any]:
        return self.matrix @ x

    def adjoint(self, y: Matrix[Any]) -> Matrix[Any]:
        return self.matrix.transposed() @ y


@dataclass(frozen=True, eq=False)
class _DenseFloats:
    values: Floats
    exponent: int

    def apply(self, x: Floats) -> Floats:
        return self.values @ x

    def adjoint(self, y: Floats) -> Floats:
        return self.values.T @ y


# -- a convolution ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class Convolution(LinearMap):
    """A window that goes over a grid, in `groups` that do not see each other.

    kernel: output channels x (input channels of a group · places of the window), the place running fastest.
    is_mean: whether it is a pool of means. Its numbers are in no file then: a program adds up, and divides.
    """

    kernel: RationalMatrix
    channels: int
    window: Window
    groups: int = 1
    is_mean: bool = False

    def __post_init__(self) -> None:
        outputs, columns = self.kernel.shape
        if self.groups < 1 or self.channels % self.groups or outputs % self.groups:
            raise InputError(f"{self.channels} and {outputs} channels do not divide into {self.groups} groups")
        if columns != self.channels // self.groups * self.window.taps:
            raise InputError(
                f"a kernel of {outputs} x {columns} numbers for {self.channels} channels in {self.groups} groups and a "
                f"window of {self.window}"
            )
        object.__setattr__(self, "in_shape", (self.channels, *self.window.inputs))
        object.__setattr__(self, "out_shape", (outputs, *self.window.outputs))

    def __str__(self) -> str:
        if self.is_mean:
            return f"mean {self.window}"
        return f"convolution {self.window}" + (f" in {self.groups} groups" if self.groups > 1 else "")

    @property
    def key(self) -> object:
        return id(self.kernel), self.window, self.groups

    @property
    def parameters(self) -> int:
        return 0 if self.is_mean else prod(self.kernel.shape)

    @property
    def summands(self) -> int:
        return self.kernel.shape[1]

    def rounded(self, form: FloatFormat, what: str) -> Convolution:
        return self if self.is_mean else replace(self, kernel=form.rounded(self.kernel, what))

    @property
    def identity_parts(self) -> tuple[str, tuple[RationalMatrix, ...]]:
        return f"convolution of {self.channels} channels, {self.groups} groups, {_window_text(self.window)}", (
            self.kernel,
        )

    def blocks(self) -> list[Convolution]:
        """One for each group; of equal ones, one. The map is block diagonal, but for the order of its channels."""
        if self.groups == 1:
            return [self]
        rows = self.kernel.shape[0] // self.groups
        found: dict[object, Convolution] = {}
        for g in range(self.groups):
            part = self.kernel.rows(slice(g * rows, (g + 1) * rows))
            floats = part.as_floats()
            if floats is not None:
                numbers: object = (floats + 0.0).tobytes()  # zeros of either sign are equal
            else:
                numbers = part.denominator, *part.numerators.ravel().tolist()
            found.setdefault(numbers, Convolution(part, self.channels // self.groups, self.window))
        return list(found.values())

    @property
    def stretch(self) -> Fraction:
        """||T|| <= Σ_t ||K_t|| over the places of the window, and that is at most sqrt(places)·||K||_F."""
        return sqrt_upper(Fraction(self.window.taps), 32)

    def on(self, backend: Backend[Any], norm: Fraction | None = None, convert: Convert | None = None) -> Operator:
        return _ConvolutionOperator(self, None if norm is None else backend.scalar(norm), convert or backend.matrix)

    def near(self) -> FloatMap:
        near = self.kernel.near_floats()
        return _ConvolutionFloats(near.values, near.exponent, self)

    def exactly(self, x: RationalMatrix) -> RationalMatrix:
        _check_length(x.shape[0], self.shape[1])
        made = _windowed(self.kernel.numerators, x.numerators, self.window.table, self.groups)
        return RationalMatrix(made, self.kernel.denominator * x.denominator)

    def absolute(self) -> Convolution:
        return replace(self, kernel=self.kernel.absolute())

    def scaled(self, factors: RationalMatrix) -> Convolution | None:
        """Only by factors that are the same all over a channel."""
        _check_factors(factors, self.shape[1])
        of_channels = factors.numerators.reshape(self.channels, -1)
        if (of_channels != of_channels[:, :1]).any():
            return None
        outputs, taps = self.kernel.shape[0], self.window.taps
        each = of_channels[:, 0].reshape(self.groups, 1, -1, 1)
        grouped = self.kernel.numerators.reshape(self.groups, outputs // self.groups, -1, taps)
        made = (grouped * each).reshape(self.kernel.shape)
        return Convolution(
            RationalMatrix(made, self.kernel.denominator * factors.denominator), self.channels, self.window, self.groups
        )

    def row_squares(self) -> RationalMatrix:
        """Only what a window has within the input counts."""
        outputs, taps = self.kernel.shape[0], self.window.taps
        squares = (self.kernel.numerators**2).reshape(outputs, -1, taps).sum(axis=1)
        inside = (self.window.table >= 0).astype(np.int64).astype(object)
        return RationalMatrix(squares.dot(inside).reshape(-1, 1), self.kernel.denominator**2)


def _window_text(window: Window) -> str:
    return (
        f"{window.size} over {window.inputs} to {window.outputs}, stride {window.stride}, dilation {window.dilation}, "
        f"before {window.before}"
    )


def _adjoint_kernel(kernel: Any, groups: int, taps: int) -> Any:
    """Input channels x (output channels of a group · places): what the adjoint map has in the place of the kernel."""
    outputs = kernel.shape[0]
    grouped = kernel.reshape(groups, outputs // groups, -1, taps).transpose(0, 2, 1, 3)
    return grouped.reshape(groups * grouped.shape[1], -1)


def _windowed(kernel: Any, x: Any, table: Indices, groups: int) -> Any:
    """Of columns x: what windows that look at `table` make of them, numbers of whatever kind. (channels·places, p)."""
    outputs, inner = kernel.shape
    taps, places = table.shape
    channels, columns = inner // taps * groups, x.shape[1]
    grid = x.reshape(channels, -1, columns)
    grid = np.concatenate([grid, np.zeros((channels, 1, columns), dtype=grid.dtype)], axis=1)  # `MISSING` is the last
    made = np.empty((groups, outputs // groups, places * columns), dtype=grid.dtype)
    per_group = channels // groups
    for g in range(groups):
        seen = grid[g * per_group : (g + 1) * per_group, table].reshape(inner, places * columns)
        made[g] = kernel[g * len(made[g]) : (g + 1) * len(made[g])].dot(seen)
    return made.reshape(outputs * places, columns)


@dataclass(frozen=True, eq=False)
class _ConvolutionFloats:
    values: Floats
    exponent: int
    map: Convolution

    def apply(self, x: Floats) -> Floats:
        found: Floats = _windowed(self.values, x, self.map.window.table, self.map.groups)
        return found

    def adjoint(self, y: Floats) -> Floats:
        turned = _adjoint_kernel(self.values, self.map.groups, self.map.window.taps)
        found: Floats = _windowed(turned, y, self.map.window.adjoint_table, self.map.groups)
        return found


class _ConvolutionOperator:
    """The columns are spread out to what each window sees, and multiplied by the kernel: one product for a group.

    A ball around the columns is not spread with them: T·(P + D) is within ||T||·||D||_F of T·P.
    """

    def __init__(self, convolution: Convolution, norm: Any, convert: Convert) -> None:
        self._map, self._norm, self._convert = convolution, norm, convert
        self._forward = self._grouped(convolution.kernel)

    @cached_property
    def _backward(self) -> list[Matrix[Any]]:
        kernel, window = self._map.kernel, self._map.window
        floats = kernel.as_floats()  # they stay floats
        if floats is not None:
            return self._grouped(RationalMatrix.from_floats(_adjoint_kernel(floats, self._map.groups, window.taps)))
        turned = _adjoint_kernel(kernel.numerators, self._map.groups, window.taps)
        return self._grouped(RationalMatrix(turned, kernel.denominator))

    def _grouped(self, kernel: RationalMatrix) -> list[Matrix[Any]]:
        rows = kernel.shape[0] // self._map.groups
        return [self._convert(kernel.rows(slice(g * rows, (g + 1) * rows))) for g in range(self._map.groups)]

    def apply(self, x: Matrix[Any]) -> Matrix[Any]:
        _check_length(x.shape[0], self._map.shape[1])
        return self._within(x, lambda point: self._windowed(self._forward, point, self._map.window.table))

    def adjoint(self, y: Matrix[Any]) -> Matrix[Any]:
        _check_length(y.shape[0], self._map.shape[0])
        return self._within(y, lambda point: self._windowed(self._backward, point, self._map.window.adjoint_table))

    def _within(self, x: Matrix[Any], product: Callable[[Matrix[Any]], Matrix[Any]]) -> Matrix[Any]:
        if self._norm is None:
            return product(x)
        point, apart = x.recentred()
        return product(point).blurred(apart * self._norm)

    def _windowed(self, kernels: list[Matrix[Any]], x: Matrix[Any], table: Indices) -> Matrix[Any]:
        taps, places = table.shape
        columns = x.shape[1]
        per_group = kernels[0].shape[1] // taps
        size = x.shape[0] // (per_group * len(kernels))  # of one channel
        parts = []
        for g, kernel in enumerate(kernels):
            first = (g * per_group + np.arange(per_group)[:, None, None]) * size
            index = np.where(table >= 0, first + table, MISSING).ravel()
            seen = x.rows_at(index).reshaped((per_group * taps, places * columns))
            parts.append((kernel @ seen).reshaped((kernel.shape[0] * places, columns)))
        return parts[0] if len(parts) == 1 else parts[0].stacked(parts[1:])


# -- an index map ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class IndexMap(LinearMap):
    """y_i = factor_i·x[index_i], and 0 where the index is `MISSING`. factors: a column, or None for ones."""

    index: Indices
    in_shape: Shape
    out_shape: Shape
    factors: RationalMatrix | None = None

    def __post_init__(self) -> None:
        rows, columns = self.shape
        index = np.array(self.index, dtype=np.intp)  # a copy: the caller may write to its own
        if index.shape != (rows,) or index.min() < MISSING or index.max() >= columns:
            raise InputError(f"an index map from {self.in_shape} to {self.out_shape} that does not fit them")
        if self.factors is not None and self.factors.shape != (rows, 1):
            raise InputError("an index map has one factor for each of its outputs")
        index.setflags(write=False)
        object.__setattr__(self, "index", index)

    @cached_property
    def is_identity(self) -> bool:
        rows, columns = self.shape
        return self.factors is None and rows == columns and bool((self.index == np.arange(rows)).all())

    @cached_property
    def is_permutation(self) -> bool:
        """Whether it only changes the order."""
        rows, columns = self.shape
        return self.factors is None and rows == columns and bool((np.sort(self.index) == np.arange(rows)).all())

    def __str__(self) -> str:
        if self.is_identity:
            return "identity"
        if self.is_permutation:
            return "another order"
        if self.factors is not None:
            return "scaling"
        return "padding" if (self.index < 0).any() else "a part"

    @property
    def key(self) -> object:
        return id(self)

    @property
    def parameters(self) -> int:
        return 0 if self.factors is None else self.factors.shape[0]

    @property
    def summands(self) -> int:
        return 1

    def rounded(self, form: FloatFormat, what: str) -> IndexMap:
        return self if self.factors is None else replace(self, factors=form.rounded(self.factors, what))

    @property
    def identity_parts(self) -> tuple[str, tuple[RationalMatrix, ...]]:
        digest = hashlib.sha256(self.index.astype("<i8").tobytes()).hexdigest()
        return f"index map {self.shape} {digest}", () if self.factors is None else (self.factors,)

    def norm_squared(self) -> Fraction:
        """||T||², exactly: no two inputs meet in an output, so TᵀT is diagonal, and has the sums of squared factors."""
        seen = self.index >= 0
        totals = np.zeros(self.shape[1], dtype=object)
        squares = np.ones(self.shape[0], dtype=object) if self.factors is None else self.factors.numerators[:, 0] ** 2
        np.add.at(totals, self.index[seen], squares[seen])
        over = 1 if self.factors is None else self.factors.denominator**2
        return Fraction(max(totals.tolist()), over)

    def on(self, backend: Backend[Any], norm: Fraction | None = None, convert: Convert | None = None) -> Operator:
        diagonal = None if self.factors is None else (convert or backend.matrix)(self.factors)
        return _IndexOperator(self, diagonal, None if norm is None else backend.scalar(norm))

    def near(self) -> FloatMap:
        if self.factors is None:
            return _IndexFloats(self.index, None, 0, self.shape[1])
        near = self.factors.near_floats()
        return _IndexFloats(self.index, near.values, near.exponent, self.shape[1])

    def exactly(self, x: RationalMatrix) -> RationalMatrix:
        _check_length(x.shape[0], self.shape[1])
        taken = np.where(self.index[:, None] >= 0, x.numerators[self.index], 0)
        if self.factors is None:
            return RationalMatrix(taken, x.denominator)
        return RationalMatrix(taken * self.factors.numerators, x.denominator * self.factors.denominator)

    def absolute(self) -> IndexMap:
        factors = None if self.factors is None else self.factors.absolute()
        return IndexMap(self.index, self.in_shape, self.out_shape, factors)

    def scaled(self, factors: RationalMatrix) -> IndexMap:
        _check_factors(factors, self.shape[1])
        own = self.exactly(factors)
        return IndexMap(self.index, self.in_shape, self.out_shape, own)

    def row_squares(self) -> RationalMatrix:
        if self.factors is None:
            return RationalMatrix.from_floats((self.index >= 0).astype(np.float64)[:, None])
        inside = np.where(self.index >= 0, self.factors.numerators[:, 0] ** 2, 0)
        return RationalMatrix(inside[:, None], self.factors.denominator**2)

    def after(self, first: IndexMap) -> IndexMap:
        """The map x -> this(first(x)). Raises: ValueError unless the first one gives what this one takes."""
        _check_length(first.shape[0], self.shape[1])
        index = np.where(self.index >= 0, first.index[self.index], MISSING)
        if first.factors is None:
            return IndexMap(index, first.in_shape, self.out_shape, self.factors)
        return IndexMap(index, first.in_shape, self.out_shape, self.exactly(first.factors))


def identity(shape: Shape) -> IndexMap:
    """The map x -> x."""
    return IndexMap(np.arange(prod(shape)), shape, shape)


@dataclass(frozen=True, eq=False)
class _IndexOperator:
    map: IndexMap
    diagonal: Matrix[Any] | None
    norm: Any

    def apply(self, x: Matrix[Any]) -> Matrix[Any]:
        _check_length(x.shape[0], self.map.shape[1])
        if self.map.is_identity:
            return x
        if self.norm is None:
            return self._times(x.rows_at(self.map.index))
        point, apart = x.recentred()
        return self._times(point.rows_at(self.map.index)).blurred(apart * self.norm)

    def _times(self, x: Matrix[Any]) -> Matrix[Any]:
        return x if self.diagonal is None else x.row_scaled(self.diagonal)

    def adjoint(self, y: Matrix[Any]) -> Matrix[Any]:
        _check_length(y.shape[0], self.map.shape[0])
        if self.norm is None:
            return self._gathered(y)
        point, apart = y.recentred()
        return self._gathered(point).blurred(apart * self.norm)

    def _gathered(self, y: Matrix[Any]) -> Matrix[Any]:
        """An input may go to several outputs: as many rounds as the most of them."""
        scaled, total = self._times(y), None
        for index in _inverse(self.map.index, self.map.shape[1]):
            part = scaled.rows_at(index)
            total = part if total is None else total + part
        if total is None:
            raise ValueError("an index map without inputs")
        return total


def _inverse(index: Indices, inputs: int) -> list[Indices]:
    """Lists of outputs, one for each input or `MISSING`, that together have each output once."""
    order = np.argsort(index, kind="stable")
    order = order[index[order] >= 0]
    inputs_of = index[order]
    first = np.searchsorted(inputs_of, inputs_of)
    rounds = np.arange(len(order)) - first
    found = []
    for k in range(max(1, int(rounds.max(initial=-1)) + 1)):
        made = np.full(inputs, MISSING, dtype=np.intp)
        made[inputs_of[rounds == k]] = order[rounds == k]
        found.append(made)
    return found


@dataclass(frozen=True, eq=False)
class _IndexFloats:
    index: Indices
    factors: Floats | None
    exponent: int
    inputs: int

    def apply(self, x: Floats) -> Floats:
        taken: Floats = np.where(self.index[:, None] >= 0, x[self.index], 0.0)
        return taken if self.factors is None else taken * self.factors

    def adjoint(self, y: Floats) -> Floats:
        made = np.zeros((self.inputs, y.shape[1]))
        scaled = y if self.factors is None else y * self.factors
        seen = self.index >= 0
        np.add.at(made, self.index[seen], scaled[seen])
        return made


# -- one matrix for each channel alike -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class ChannelWise(LinearMap):
    """The same matrix for each channel: outputs of a channel x inputs of a channel. Its norm is that of the matrix."""

    matrix: RationalMatrix
    in_shape: Shape
    out_shape: Shape

    def __post_init__(self) -> None:
        rows, columns = self.matrix.shape
        if self.in_shape[0] != self.out_shape[0] or (rows, columns) != (
            prod(self.out_shape[1:]),
            prod(self.in_shape[1:]),
        ):
            raise InputError(f"a matrix of {rows} x {columns} for channels of {self.in_shape} to {self.out_shape}")

    def __str__(self) -> str:
        return "the same matrix for each channel"

    @property
    def key(self) -> object:
        return id(self.matrix), self.channels

    @property
    def channels(self) -> int:
        return self.in_shape[0]

    @property
    def parameters(self) -> int:
        return prod(self.matrix.shape)

    @property
    def summands(self) -> int:
        return self.matrix.shape[1]

    def rounded(self, form: FloatFormat, what: str) -> LinearMap:
        raise InputError(f"{what}: how {form.name} rounds a pool whose means are of different counts is not known")

    @property
    def identity_parts(self) -> tuple[str, tuple[RationalMatrix, ...]]:
        return f"{self.channels} channels alike", (self.matrix,)

    def on(self, backend: Backend[Any], norm: Fraction | None = None, convert: Convert | None = None) -> Operator:
        made = (convert or backend.matrix)(self.matrix)
        return _ChannelOperator(made if norm is None else made.with_norm_bound(norm), self.channels)

    def near(self) -> FloatMap:
        near = self.matrix.near_floats()
        return _ChannelFloats(near.values, near.exponent, self.channels)

    def exactly(self, x: RationalMatrix) -> RationalMatrix:
        _check_length(x.shape[0], self.shape[1])
        made = _alike(self.matrix.numerators, x.numerators, self.channels)
        return RationalMatrix(made, self.matrix.denominator * x.denominator)

    def absolute(self) -> ChannelWise:
        return ChannelWise(self.matrix.absolute(), self.in_shape, self.out_shape)

    def scaled(self, factors: RationalMatrix) -> ChannelWise | None:
        """Only by factors that are the same in all channels."""
        _check_factors(factors, self.shape[1])
        of_channels = factors.numerators.reshape(self.channels, -1)
        if (of_channels != of_channels[:1]).any():
            return None
        numerators = self.matrix.numerators * of_channels[:1]
        made = RationalMatrix(numerators, self.matrix.denominator * factors.denominator)
        return ChannelWise(made, self.in_shape, self.out_shape)

    def row_squares(self) -> RationalMatrix:
        once = _row_squares(self.matrix)
        return RationalMatrix(np.tile(once.numerators, (self.channels, 1)), once.denominator)


def _alike(matrix: Any, x: Any, channels: int) -> Any:
    """The matrix times each channel of the columns x."""
    rows, columns = matrix.shape
    turned = x.reshape(channels, columns, -1).transpose(1, 0, 2).reshape(columns, -1)
    made = matrix.dot(turned).reshape(rows, channels, -1).transpose(1, 0, 2)
    return made.reshape(channels * rows, -1)


@dataclass(frozen=True, eq=False)
class _ChannelOperator:
    matrix: Matrix[Any]
    channels: int

    def apply(self, x: Matrix[Any]) -> Matrix[Any]:
        return self._alike(self.matrix, x)

    def adjoint(self, y: Matrix[Any]) -> Matrix[Any]:
        return self._alike(self.matrix.transposed(), y)

    def _alike(self, matrix: Matrix[Any], x: Matrix[Any]) -> Matrix[Any]:
        """Channels become columns, and rows again: a change of order, no number twice."""
        (rows, columns), count = matrix.shape, x.shape[1]
        _check_length(x.shape[0], self.channels * columns)
        there = np.arange(x.shape[0]).reshape(self.channels, columns).T.ravel()
        back = np.arange(rows * self.channels).reshape(rows, self.channels).T.ravel()
        turned = x.rows_at(there).reshaped((columns, self.channels * count))
        return (matrix @ turned).reshaped((rows * self.channels, count)).rows_at(back)


@dataclass(frozen=True, eq=False)
class _ChannelFloats:
    values: Floats
    exponent: int
    channels: int

    def apply(self, x: Floats) -> Floats:
        found: Floats = _alike(self.values, x, self.channels)
        return found

    def adjoint(self, y: Floats) -> Floats:
        found: Floats = _alike(self.values.T, y, self.channels)
        return found


# -- what they share -------------------------------------------------------------------------------------------------


def _check_length(found: int, wanted: int) -> None:
    """Raises: ValueError for columns of another length: of longer ones numpy would take a part."""
    if found != wanted:
        raise ValueError(f"columns of {found} numbers, where {wanted} are needed")


def _check_factors(factors: RationalMatrix, inputs: int) -> None:
    """Raises: ValueError unless it is a column with one factor for each input."""
    if factors.shape != (inputs, 1):
        raise ValueError(f"factors of the shape {factors.shape} for {inputs} inputs")


def _row_squares(matrix: RationalMatrix) -> RationalMatrix:
    squares: IntegerArray = (matrix.numerators**2).sum(axis=1)
    return RationalMatrix(squares[:, None], matrix.denominator**2)


def _over(x: RationalMatrix, common: int) -> IntegerArray:
    found: IntegerArray = x.numerators * (common // x.denominator)
    return found


def sum_of(x: RationalMatrix, y: RationalMatrix | None) -> RationalMatrix:
    """The sum x + y, where None is zero. Floats stay floats, if their sums are: integers take many times the memory."""
    if y is None:
        return x
    if x.shape != y.shape:
        raise ValueError(f"a sum of matrices of the shapes {x.shape} and {y.shape}")
    a, b = x.as_floats(), y.as_floats()
    if a is not None and b is not None and arithmetic_fault() is None:
        with np.errstate(over="ignore", invalid="ignore"):
            total = a + b
            part = total - a
            lost = (a - (total - part)) + (b - part)  # what rounding took off each sum, exactly (Knuth)
        if np.isfinite(total).all() and not lost.any():
            return RationalMatrix.from_floats(total)
    common = lcm(x.denominator, y.denominator)
    return RationalMatrix(_over(x, common) + _over(y, common), common)
