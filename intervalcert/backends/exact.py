"""The reference: exact rationals, and nothing but the standard library and integer arithmetic underneath.

FLINT is not used here, so that one library's fault cannot fool both sides of a comparison. Matrices are integers over a
common denominator. The only roundings are the ones that the mathematics asks for (`ExactMatrix.rounded`), with the
movement measured exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from intervalcert.backends.generic import (
    GenericVector,
    check_column,
    check_distinct,
    check_groups,
    check_same_shape,
    check_same_size,
    check_same_width,
    times_named,
)
from intervalcert.backends.integers import (
    Integers,
    Limbs,
    gram,
    in_limbs,
    product,
    python_integers,
    reshaped,
    rows_at,
)
from intervalcert.backends.protocol import Truth
from intervalcert.errors import UnboundedError
from intervalcert.numbers.matrices import IntegerArray, RationalMatrix
from intervalcert.numbers.rounding import float_at_least, sqrt_upper

if TYPE_CHECKING:
    from intervalcert.backends.protocol import Backend, Floats, Indices, Matrix, Scalar

__all__ = ["ExactBackend", "ExactMatrix", "ExactScalar"]


@dataclass(frozen=True, slots=True)
class ExactScalar:
    """The set {value}: every operation is exact, so the law holds with equality."""

    value: Fraction

    def __add__(self, other: ExactScalar) -> ExactScalar:
        return ExactScalar(self.value + other.value)

    def __sub__(self, other: ExactScalar) -> ExactScalar:
        return ExactScalar(self.value - other.value)

    def __mul__(self, other: ExactScalar) -> ExactScalar:
        return ExactScalar(self.value * other.value)

    def __truediv__(self, other: ExactScalar) -> ExactScalar:
        if other.value == 0:
            raise UnboundedError("division by zero")
        return ExactScalar(self.value / other.value)

    def lower(self) -> Fraction:
        return self.value

    def upper(self) -> Fraction:
        return self.value

    def less(self, other: ExactScalar) -> Truth:
        return Truth.of(proved=self.value < other.value, refuted=self.value >= other.value)


@dataclass(frozen=True, eq=False)
class ExactMatrix:
    """Integers over a common denominator >= 1 (not necessarily in lowest terms): Python's, or limbs after a product."""

    integers: Integers
    denominator: int

    @property
    def numerators(self) -> IntegerArray:
        return python_integers(self.integers)

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self.integers.shape
        return rows, columns

    def __add__(self, other: ExactMatrix) -> ExactMatrix:
        mine, theirs, denominator = self._over_one_denominator(other)
        return ExactMatrix(mine + theirs, denominator)

    def __sub__(self, other: ExactMatrix) -> ExactMatrix:
        mine, theirs, denominator = self._over_one_denominator(other)
        return ExactMatrix(mine - theirs, denominator)

    def _over_one_denominator(self, other: ExactMatrix) -> tuple[IntegerArray, IntegerArray, int]:
        check_same_shape(self.shape, other.shape)
        denominator = math.lcm(self.denominator, other.denominator)
        mine, theirs = denominator // self.denominator, denominator // other.denominator
        return (
            self.numerators if mine == 1 else self.numerators * mine,
            other.numerators if theirs == 1 else other.numerators * theirs,
            denominator,
        )

    def __matmul__(self, other: ExactMatrix) -> ExactMatrix:
        return ExactMatrix(product(self.integers, other.integers), self.denominator * other.denominator)

    def gram(self) -> ExactMatrix:
        rows, columns = self.shape
        smaller = self.integers if rows <= columns else self.integers.T
        return ExactMatrix(gram(smaller), self.denominator**2)

    def scalar_mul(self, factor: ExactScalar) -> ExactMatrix:
        top, bottom = factor.value.numerator, factor.value.denominator
        return ExactMatrix(self.numerators * top, self.denominator * bottom)

    def transposed(self) -> ExactMatrix:
        return ExactMatrix(self.integers.T, self.denominator)

    def ldexp(self, exponent: int) -> ExactMatrix:
        if exponent < 0:
            return ExactMatrix(self.integers, self.denominator << -exponent)
        shift = min(exponent, _trailing_zeros(self.denominator))
        if shift == exponent:
            return ExactMatrix(self.integers, self.denominator >> shift)
        return ExactMatrix(self.numerators << (exponent - shift), self.denominator >> shift)

    def rounded(self, bits: int) -> tuple[ExactMatrix, ExactScalar]:
        # n/d moves to q/2^bits with q = floor(n·2^bits/d + 1/2); the movement is (n·2^bits - q·d) / (d·2^bits).
        d = self.denominator
        shift = _trailing_zeros(d) - bits
        if isinstance(self.integers, Limbs) and d == 1 << (shift + bits) and shift > 0:
            limbs, squares = self.integers.rounded(shift)  # of (n - q·2^shift), over d²
            return ExactMatrix(limbs, 1 << bits), ExactScalar(Fraction(squares, d**2))
        scaled = self.numerators << bits
        q = (2 * scaled + d) // (2 * d)
        movement = (scaled - q * d).ravel()
        error = Fraction(int(np.dot(movement, movement)), (d << bits) ** 2)
        return ExactMatrix(in_limbs(q), 1 << bits), ExactScalar(error)

    def frobenius_squared(self) -> ExactScalar:
        if isinstance(self.integers, Limbs):
            squares = self.integers.sum_of_squares()
        else:
            flat = self.integers.ravel()
            squares = int(np.dot(flat, flat))
        return ExactScalar(Fraction(squares, self.denominator**2))

    def distances_squared(self, metric: ExactMatrix | None = None) -> GenericVector[ExactScalar]:
        moved = self if metric is None else self @ metric
        found = moved @ self.transposed()
        products, denominator = found.numerators, found.denominator
        own = products.diagonal()
        # xᵀPx + yᵀPy - xᵀPy - yᵀPx: points lose nothing by the difference.
        squares = own + own[:, None] - products - products.T
        below = np.tril_indices(len(own), -1)
        return GenericVector(tuple(ExactScalar(Fraction(x, denominator)) for x in squares[below].tolist()))

    def block(self, rows: Indices, columns: Indices) -> ExactMatrix:
        check_distinct(rows, columns)
        return ExactMatrix(self.integers[rows[:, None], columns], self.denominator)

    def rows_at(self, index: Indices) -> ExactMatrix:
        times_named(index, self.shape[0])
        return ExactMatrix(rows_at(self.integers, index), self.denominator)

    def reshaped(self, shape: tuple[int, int]) -> ExactMatrix:
        check_same_size(self.shape, shape)
        return ExactMatrix(reshaped(self.integers, shape), self.denominator)

    def stacked(self, others: Sequence[ExactMatrix]) -> ExactMatrix:
        parts = [self, *others]
        check_same_width(*(x.shape for x in parts))
        denominator = math.lcm(*(x.denominator for x in parts))
        factors = [denominator // x.denominator for x in parts]
        numerators = [x.numerators if n == 1 else x.numerators * n for x, n in zip(parts, factors, strict=True)]
        return ExactMatrix(np.concatenate(numerators), denominator)

    def row_scaled(self, column: ExactMatrix) -> ExactMatrix:
        check_column(column.shape, self.shape[0])
        return ExactMatrix(self.numerators * column.numerators, self.denominator * column.denominator)

    def sorted_within(self, size: int) -> ExactMatrix:
        check_groups(size, self.shape[0])
        groups = self.numerators.reshape(-1, size, self.shape[1])
        return ExactMatrix(np.sort(groups, axis=1).reshape(self.shape), self.denominator)

    def recentred(self) -> tuple[ExactMatrix, ExactScalar]:
        return self, ExactScalar(Fraction(0))

    def blurred(self, apart: ExactScalar) -> ExactMatrix:
        if apart.value > 0:
            raise UnboundedError("exact values are points: none is all that lies around one")
        return self

    def diag_scaled(self, rows: Floats, columns: Floats) -> ExactMatrix:
        made, denominator = self.numerators, self.denominator
        for weights in (rows[:, None], columns[None]):
            if (weights != 1).any():
                exact = RationalMatrix.from_floats(weights)
                made, denominator = made * exact.numerators, denominator * exact.denominator
        return ExactMatrix(made, denominator)

    def positive_part(self) -> ExactMatrix:
        numerators = self.numerators
        return ExactMatrix(np.where(numerators > 0, numerators, 0), self.denominator)

    def sigmoid(self) -> ExactMatrix:
        raise UnboundedError("exact values are rationals, and those of exp are not")

    def expm1_neg(self) -> ExactMatrix:
        return self.sigmoid()

    def log1p_exp_neg(self) -> ExactMatrix:
        return self.sigmoid()

    def with_norm_bound(self, norm: Fraction) -> ExactMatrix:  # noqa: ARG002 - a point
        return self

    def float_bounds(self) -> tuple[Floats, Floats]:
        numerators, d = self.numerators.ravel().tolist(), self.denominator
        lower = np.array([-float_at_least(-n, d) for n in numerators])
        upper = np.array([float_at_least(n, d) for n in numerators])
        return lower.reshape(self.shape), upper.reshape(self.shape)


def _trailing_zeros(n: int) -> int:
    return (n & -n).bit_length() - 1


@dataclass(frozen=True)
class ExactBackend:
    """Exact rationals, with a grid of 2^-prec where the mathematics rounds."""

    prec: int

    name = "exact"
    working_bits = None

    def refined(self) -> None:
        return None

    def scalar(self, value: Fraction) -> ExactScalar:
        return ExactScalar(value)

    def hull(self, lower: Fraction, upper: Fraction) -> ExactScalar:
        """Requires: lower == upper. A single rational cannot enclose more, and on points the core asks for no more."""
        if lower != upper:
            raise UnboundedError(f"exact values are points: no point encloses [{lower}, {upper}]")
        return ExactScalar(lower)

    def sqrt_upper(self, x: ExactScalar) -> ExactScalar:
        return ExactScalar(sqrt_upper(x.value, self.prec))

    def matrix(self, data: RationalMatrix) -> ExactMatrix:
        return ExactMatrix(data.numerators, data.denominator)


if TYPE_CHECKING:  # the type checker proves conformance
    _scalar: type[Scalar] = ExactScalar
    _matrix: type[Matrix[ExactScalar]] = ExactMatrix
    _backend: type[Backend[ExactScalar]] = ExactBackend
