"""What a number system must offer, and the one law that it must obey.

A value of a backend denotes a *set* of reals: a single rational (`exact`), a ball (`arb`), an interval (`mpmath`), or
of matrices (`float64`: a ball in the Frobenius norm).

    THE LAW (inclusion).  For every operation f of these protocols with the enclosure F that a backend computes:
                          if x is in X and y is in Y, then f(x, y) is in F(X, Y).

The mathematics (`norms`, `margin_bounds`, `decision`) is written once over these protocols. On `exact` every set is a
point and the run is the reference. On any other backend, by induction over the law, each intermediate set contains the
point of the reference run that has the same `prec`. Hence, with no tolerance:

                          upper(result on any backend)  >=  result on `exact`.

Two consequences for whoever writes a backend:

* Rounding is an operation too. `Matrix.rounded` on `exact` moves every entry to the nearest multiple of 2^-prec; other
  backends must enclose the moved entry (widen by half a step), not leave the step out.
* Whoever cannot tell says so: a comparison answers `Truth.UNKNOWN`, an operation without a bounded result raises
  `UnboundedError`. Neither is ever read as an answer; `escalation` asks a finer number system instead.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from intervalcert.errors import UndecidedError
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.pairs import Dyadics

__all__ = ["Backend", "Floats", "Indices", "Matrix", "S", "Scalar", "Truth", "Vector", "is_wider"]

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]


class Truth(enum.Enum):
    """Three-valued truth: whether a statement holds for all, for no, or for some members of the sets compared."""

    TRUE = "true"
    FALSE = "false"
    UNKNOWN = "unknown"

    def __bool__(self) -> bool:
        if self is Truth.UNKNOWN:
            raise UndecidedError("an undecided comparison has no truth value: use more precision, or certainly()")
        return self is Truth.TRUE

    def certainly(self) -> bool:
        """Proved. UNKNOWN is not."""
        return self is Truth.TRUE

    @staticmethod
    def of(proved: bool, refuted: bool) -> Truth:
        """From the two halves of a comparison of sets; at most one of them can hold."""
        return Truth.TRUE if proved else Truth.FALSE if refuted else Truth.UNKNOWN


class Scalar(Protocol):
    """A non-empty bounded set of reals. Immutable. Every operation obeys the law."""

    def __add__(self, other: Self, /) -> Self: ...

    def __sub__(self, other: Self, /) -> Self: ...

    def __mul__(self, other: Self, /) -> Self: ...

    def __truediv__(self, other: Self, /) -> Self:
        """Raises: UnboundedError if `other` contains zero."""

    def lower(self) -> Fraction:
        """Guarantees: lower <= every member. Exact, not rounded."""

    def upper(self) -> Fraction:
        """Guarantees: upper >= every member. Exact, not rounded."""

    def less(self, other: Self, /) -> Truth:
        """Whether x < y for the members x of self, y of other."""


S = TypeVar("S", bound=Scalar)


def is_wider(x: Scalar, bits: int) -> bool:
    """Whether the set is more than a point, and more than 2^-bits of its size separates its ends."""
    lower, upper = x.lower(), x.upper()
    return (upper - lower) * (1 << bits) > max(abs(lower), abs(upper))


class Vector(Protocol[S]):
    """Sets of reals, one after another: what is done alike with many pairs of classes. Immutable.

    Every operation obeys the law, place by place.
    """

    def __len__(self) -> int: ...

    def __getitem__(self, place: int, /) -> S: ...

    def __add__(self, other: Self, /) -> Self:
        """Raises: ValueError unless there are as many."""

    def scalar_mul(self, factor: S, /) -> Self:
        """Each times `factor`."""

    def roots(self, backend: Backend[S], /) -> Self:
        """`Backend.sqrt_upper` of each."""

    def replaced(self, entries: Mapping[int, S], /) -> Self:
        """The same with other sets at some places."""

    def blunt(self, bits: int, /) -> Sequence[int]:
        """The places of the sets that are wider than 2^-bits of their size (`is_wider`), or near that."""

    def upper(self, bits: int, /) -> Dyadics:
        """Guarantees: each at least every member, rounded up to a mantissa of `bits` bits as by `rounding.round_up`."""


class Matrix(Protocol[S]):
    """A set of real matrices of one shape. Immutable. Every operation obeys the law."""

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, columns), both at least 1."""

    def __add__(self, other: Self, /) -> Self: ...

    def __sub__(self, other: Self, /) -> Self: ...

    def __matmul__(self, other: Self, /) -> Self: ...

    def gram(self) -> Self:
        """M·Mᵀ if M has at most as many rows as columns, else Mᵀ·M: the same norm, on the smaller side."""

    def scalar_mul(self, factor: S, /) -> Self:
        """Every entry times a member of `factor`, each its own: diagonal matrices of such are on either side, too."""

    def transposed(self) -> Self: ...

    def ldexp(self, exponent: int, /) -> Self:
        """Every entry times 2^exponent."""

    def rounded(self, bits: int, /) -> tuple[Self, S]:
        """Every entry moved to the nearest multiple of 2^-bits, and the squared Frobenius norm of that movement.

        Guarantees: for each M in self, with R = M moved to the grid (ties upwards), R is in the first value and
        ||M - R||_F², which is at most rows·columns·4^-(bits+1), in the second.
        """

    def frobenius_squared(self) -> S:
        """The sum of the squares of all entries."""

    def distances_squared(self, metric: Self | None = None, /) -> Vector[S]:
        """(x - y)ᵀ·P·(x - y) for all pairs of rows x, y, with P = `metric`, or the identity without one.

        In the order of `pairs.PairMatrix`: (0, 1), (0, 2), (1, 2), (0, 3), … What pairs have in common is done once.
        """

    def block(self, rows: Indices, columns: Indices, /) -> Self:
        """The entries in some rows and columns, in the order named; at least one of each, and none twice.

        Raises: ValueError for an index named twice, or a negative one. (A ball around a part is no larger than the one
        around all only if each entry is taken once.)
        """

    def rows_at(self, index: Indices, /) -> Self:
        """Row k is row index[k], or zero where that is -1; a row may be named more than once.

        Raises: ValueError for an index below -1 or beyond the rows, or if there is none. (A ball grows by the root of
        the number of times that a row is named.)
        """

    def reshaped(self, shape: tuple[int, int], /) -> Self:
        """The same entries in the same order, row by row. Raises: ValueError unless there are as many."""

    def stacked(self, others: Sequence[Self], /) -> Self:
        """The others below this one, in their order. Raises: ValueError unless all have as many columns."""

    def row_scaled(self, column: Self, /) -> Self:
        """Entry (i, j) times column[i, 0]. Raises: ValueError unless `column` is one, with as many rows."""

    def sorted_within(self, size: int, /) -> Self:
        """Rows in consecutive groups of `size`: the entries of a group in a column, ascending.

        The k-th smallest of some numbers does not fall when one of them rises: where each is between two ends, it is
        between the k-th smallest of the lower and of the upper ones. And sorting two vectors brings them no further
        apart, because no other order of their entries has a larger inner product: a ball keeps its radius.
        Raises: ValueError unless the rows divide into such groups.
        """

    def recentred(self) -> tuple[Self, S]:
        """(M, r). Guarantees: every member is within r of a member of M, in the Frobenius norm.

        A linear map of a norm up to n takes it to within n·r of what it makes of M (`blurred`): for maps that would
        spread a ball by more.
        """

    def blurred(self, apart: S, /) -> Self:
        """Guarantees: every matrix within `apart` of a member, in the Frobenius norm, is a member.

        The upper end of `apart` counts; it is a distance, so what lies below zero counts as zero.
        Raises: UnboundedError where only points are known, unless it is zero.
        """

    def diag_scaled(self, rows: Floats, columns: Floats, /) -> Self:
        """Entry (i, j) times rows[i]·columns[j]: diagonal matrices on both sides. The weights are finite, and exact."""

    def positive_part(self) -> Self:
        """max(x, 0) of every entry x."""

    def sigmoid(self) -> Self:
        """1/(1 + exp(-x)) of every entry x. Raises: UnboundedError where only points are known: it is not rational."""

    def expm1_neg(self) -> Self:
        """exp(min(x, 0)) - 1 of every entry x. Raises: as `sigmoid`."""

    def log1p_exp_neg(self) -> Self:
        """ln(1 + exp(min(x, 0))) of every entry x. Raises: as `sigmoid`."""

    def with_norm_bound(self, norm: Fraction, /) -> Self:
        """The members M of the set with ||M|| <= norm, in the operator norm (others may stay).

        An enclosure that remembers it spreads less in a product M·x: the error of x grows by ||M||, not by ||M||_F.
        """

    def float_bounds(self) -> tuple[Floats, Floats]:
        """Arrays of floats with lower <= entry <= upper, infinite where floats end, for every member."""


class Backend(Protocol[S]):
    """A number system together with its precision. Frozen: two values are the same number system if they are equal.

    `prec` belongs to the mathematics, not to the arithmetic: the bits of the grid of `Matrix.rounded` and of square
    roots. Runs of equal `prec` are comparable. How many bits an enclosure carries is the backend's own affair.
    """

    @property
    def name(self) -> str:
        """The name in the registry."""

    @property
    def prec(self) -> int: ...

    @property
    def working_bits(self) -> int | None:
        """The bits that enclosures carry; None if the arithmetic is exact."""

    def refined(self) -> Backend[S] | None:
        """The same number system with enclosures of twice the bits; None if there is none."""

    def scalar(self, value: Fraction, /) -> S:
        """A set that contains `value`."""

    def hull(self, lower: Fraction, upper: Fraction, /) -> S:
        """A set that contains [lower, upper]. Requires: lower <= upper."""

    def sqrt_upper(self, x: S, /) -> S:
        """A set that contains `rounding.sqrt_upper` of every member, rounded up to `prec` bits.

        It is asked for sums of squares and products of non-negative numbers. An enclosure of those may stick out below
        zero; the numbers do not, so the part below zero counts as zero.
        """

    def matrix(self, data: RationalMatrix, /) -> Matrix[S]:
        """A set that contains the matrix `data`."""
