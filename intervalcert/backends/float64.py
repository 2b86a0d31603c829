"""Balls around float64 matrices: one BLAS product a step, and every rounding error bounded beforehand and added upward.

A matrix value is a ball in the Frobenius norm,    { (C + D)·2^e : ||D||_F <= error },
with a float64 array C, an integer e, and a float. What is assumed of the machine: IEEE-754 binary64, rounding to
nearest, gradual underflow (`float_environment` tests all three before anything is computed), and a BLAS whose products
are sums of products, in any order, with or without FMA (not a Strassen-like scheme). Then, with u = 2^-53, η = 2^-1074,
and bounds of bounds rounded upward (`upward`):

* one operation:   |fl(x∘y) - x∘y| <= u·|fl(x∘y)| + η/2, and without the η for sums, which never underflow;
* inner products:  |fl(xᵀy) - xᵀy| <= γ_k·|x|ᵀ|y| + k·η,  γ_k = k·u/(1 - k·u)   (Higham, Accuracy and Stability of
  Numerical Algorithms, 2nd ed., 3.1, with the underflow of each product added);
* hence products:  ||fl(AB) - AB||_F <= γ_k·||A||_F·||B||_F + k·sqrt(rows·columns)·η,  since Frobenius norms multiply.

Overflow cannot go unnoticed: C is kept near 1 by powers of two, which is exact or accounted for, and an error that is
not finite raises `UnboundedError`, whereupon `escalation` asks a finer number system.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from intervalcert.backends.float64_scalars import BITS, Float64Scalar, Float64Vector
from intervalcert.backends.generic import (
    check_column,
    check_distinct,
    check_groups,
    check_same_shape,
    check_same_size,
    check_same_width,
    times_named,
)
from intervalcert.errors import UnboundedError
from intervalcert.numbers.exponentials import FLOAT_ERROR, floats_expm1_neg, floats_log1p_exp_neg, floats_sigmoid
from intervalcert.numbers.float_environment import arithmetic_fault, product_fault
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.rounding import dyadic_value
from intervalcert.numbers.upward import (
    ETA,
    LONGEST,
    ROOM,
    VANISHING,
    U,
    add_up,
    float_up,
    gamma_up,
    hypot_up,
    ldexp_up,
    mul_up,
    norms_up,
    rough_norms_up,
    sqrt_up,
)

if TYPE_CHECKING:
    from intervalcert.backends.protocol import Backend, Floats, Indices, Matrix

__all__ = ["Float64Backend", "Float64Matrix"]

_LARGEST = sys.float_info.max
_LEAST, _MOST = 2.0**-100, 2.0**100
"""Frobenius norms between which a centre is left on its scale: products and squares of such stay far from the ends."""

_FLAT = 16.0
"""||C||_F²/||CCᵀ||_F is a kind of rank: from here on a spectrum is taken for flat."""


class Float64Matrix:
    """{ (centre + D)·2^exponent : ||D||_F <= error }. Immutable. The entries of the centre are finite.

    What is known of the norm of the centre travels along with it: `squares` and `norm` as in the properties below.
    `_operator`, if known, restricts the set: to the members whose operator norm is at most that, times 2^exponent.
    """

    __slots__ = ("_known_norm", "_known_squares", "_operator", "centre", "error", "exponent")

    def __init__(
        self,
        centre: Floats,
        exponent: int,
        error: float,
        norm: float | None = None,
        squares: tuple[float, float] | None = None,
    ) -> None:
        if not error < math.inf:  # nan is not, either
            raise UnboundedError("the rounding errors of float64 have no finite bound here")
        self.centre, self.exponent, self.error = centre, exponent, error
        self._known_norm, self._known_squares = norm, squares
        self._operator = math.inf

    def __repr__(self) -> str:
        return f"Float64Matrix({self.centre!r} * 2**{self.exponent}, error {self.error!r})"

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self.centre.shape
        return rows, columns

    @property
    def _squares(self) -> tuple[float, float]:
        """Bounds of ||C||_F² from below and from above.

        An inner product of all entries with themselves: its terms are not negative, so it is within γ of its value,
        relatively, and within entries·η.
        """
        if self._known_squares is None:
            flat = self.centre.ravel()
            total = float(flat @ flat)
            if total or flat.any():
                # 1/(1 - γ) <= 1 + 2γ; and twice γ covers the roundings of the next two lines.
                relative, absolute = 2 * gamma_up(flat.size), flat.size * ETA
                low = math.nextafter(total * (1 - relative) - absolute, -math.inf)
                self._known_squares = max(0.0, low), add_up(mul_up(total, 1 + relative), 2 * absolute)
            else:
                self._known_squares = 0.0, 0.0
        return self._known_squares

    @property
    def _norm(self) -> float:
        """An upper bound of ||C||_F."""
        if self._known_norm is None:
            most = self._squares[1]
            self._known_norm = sqrt_up(most) if most else 0.0
        return self._known_norm

    def _least_norm(self) -> float:
        """A lower bound of ||C||_F."""
        return math.nextafter(math.sqrt(self._squares[0]), 0.0)

    def _spread(self) -> float:
        """The Frobenius norm of a matrix of ones, upward."""
        return sqrt_up(self.centre.size)

    def _on_scale(self) -> Float64Matrix:
        """The same set, on a scale on which its members neither overflow nor vanish in a product."""
        size = max(self._norm, self.error)
        if not size or _LEAST <= size <= _MOST:
            return self
        return self._moved_to(self.exponent + math.frexp(size)[1])._on_scale()

    def _moved_to(self, exponent: int) -> Float64Matrix:
        """The same set, or one around it, on the scale 2^exponent.

        Multiplying by a power of two is exact, but for what ends among the subnormals: that is off by less than η.
        """
        shift = self.exponent - exponent
        if not shift:
            return self
        lost = mul_up(self._spread(), ETA) if shift < 0 else 0.0
        # A product is faster than ldexp, and rounded alike; but it needs a factor that is a float.
        moved = self.centre * 2.0**shift if abs(shift) < 1000 else np.ldexp(self.centre, shift)
        return Float64Matrix(moved, exponent, add_up(ldexp_up(self.error, shift), lost))

    def __add__(self, other: Float64Matrix) -> Float64Matrix:
        return self - other._negated()

    def __sub__(self, other: Float64Matrix) -> Float64Matrix:
        check_same_shape(self.shape, other.shape)
        if other.exponent > self.exponent:
            return (other - self)._negated()
        if not other._norm and not other.error:
            return self
        if not self._norm and not self.error:
            return other._negated()
        aligned = other._moved_to(self.exponent)  # the larger scale: upwards could overflow
        made = Float64Matrix(self.centre - aligned.centre, self.exponent, 0.0)
        # A float difference is off by at most u times itself, and never underflows.
        return made._widened(add_up(self.error, aligned.error, mul_up(U, made._norm)))._on_scale()

    def _negated(self) -> Float64Matrix:
        return Float64Matrix(-self.centre, self.exponent, self.error)

    def __matmul__(self, other: Float64Matrix) -> Float64Matrix:
        made = self._product(self.centre, other.centre, other._norm, self.exponent + other.exponent)
        # (A + D)(B + E) - AB = (A + D)E + DB, and ||(A + D)E||_F <= ||A + D||·||E||_F with the operator norm.
        most = min(self._operator, add_up(self._norm, self.error))
        spread = add_up(mul_up(most, other.error), mul_up(self.error, other._norm))
        return made._widened(add_up(made.error, spread))._on_scale()

    def gram(self) -> Float64Matrix:
        rows, columns = self.shape
        smaller = self.centre if rows <= columns else self.centre.T
        made = self._product(smaller, smaller.T, self._norm, 2 * self.exponent)
        # (C + D)(C + D)ᵀ - CCᵀ = CDᵀ + DCᵀ + DDᵀ, and ||CDᵀ||_F <= ||C||·||D||_F with the operator norm of C. That is
        # what keeps the error small from step to step: on a flat spectrum ||C||_F is larger by sqrt(rank).
        if self.error:
            spread = mul_up(self.error, add_up(2 * made._root(self._norm), self.error))
            made = made._widened(add_up(made.error, spread))
        return made._on_scale()

    def _product(self, left: Floats, right: Floats, norm: float, exponent: int) -> Float64Matrix:
        """The product of the centre, or its transpose, with `right`, whose Frobenius norm is at most `norm`."""
        inner = left.shape[1]
        product = left @ right
        rounding = mul_up(gamma_up(inner), mul_up(self._norm, norm))  # zero only if one factor is
        underflow = mul_up(inner * ETA, sqrt_up(product.size)) if rounding else 0.0
        return Float64Matrix(product, exponent, add_up(rounding, underflow))

    def _root(self, norm: float) -> float:
        """For a ball around CCᵀ, with ||C||_F <= norm: at least the operator norm of C, whose square is that of CCᵀ.

        That one is at most the Frobenius norm, and at most the largest sum of magnitudes in a row or column.
        """
        most = self._norm
        if most * _FLAT < norm * norm:  # only then do sums over rows promise more, and they take time
            magnitudes = np.abs(self.centre)
            sums = max(float(magnitudes.sum(axis=axis).max()) for axis in (0, 1))
            most = min(most, mul_up(sums, 1 + 2 * gamma_up(self.centre.shape[1])))
        return sqrt_up(add_up(most, self.error))

    def scalar_mul(self, factor: Float64Scalar) -> Float64Matrix:
        return self._times_between(*factor.between())

    def _times_between(self, least: float, most: float, shift: int) -> Float64Matrix:
        """Every entry times t·2^shift for least <= t <= most. With a float r in their midst,

        (C + D)·t - C·r = D·t + C·(t - r).
        """
        r = (least + most) / 2
        apart = math.nextafter(max(most - r, r - least), math.inf)
        largest = max(abs(least), abs(most))
        underflow = mul_up(self._spread(), ETA) if self._norm else 0.0
        # The norm of the float products: each is at most (1 + u) times the true one, or off by η/2.
        norm = add_up(mul_up(mul_up(self._norm, abs(r)), 1 + 2 * U), underflow)
        error = add_up(mul_up(self.error, largest), mul_up(self._norm, apart), mul_up(U, norm), underflow)
        return Float64Matrix(self.centre * r, self.exponent + shift, error, norm)._on_scale()

    def transposed(self) -> Float64Matrix:
        made = Float64Matrix(self.centre.T, self.exponent, self.error, self._known_norm, self._known_squares)
        made._operator = self._operator
        return made

    def ldexp(self, exponent: int) -> Float64Matrix:
        known = self._known_norm, self._known_squares
        return Float64Matrix(self.centre, self.exponent + exponent, self.error, *known)

    def rounded(self, bits: int) -> tuple[Float64Matrix, Float64Scalar]:
        # Each entry moves by at most half a step, all of them by at most sqrt(rows·columns)·2^-(bits+1).
        made = self if self.exponent >= -bits - 400 else self._moved_to(-bits - 400)  # half a step is at most 2^400
        error = add_up(made.error, mul_up(self._spread(), ldexp_up(1.0, -(bits + 1) - made.exponent)))
        return made._widened(error)._on_scale(), _movement(self.centre.size, bits)

    def _widened(self, error: float) -> Float64Matrix:
        """The ball around the same centre with another error; what is known of the centre stays known."""
        return Float64Matrix(self.centre, self.exponent, error, self._known_norm, self._known_squares)

    def frobenius_squared(self) -> Float64Scalar:
        least, most = self._squares
        if self.error:  # | ||C + D|| - ||C|| | <= error
            low = max(0.0, math.nextafter(self._least_norm() - self.error, 0.0))
            high = add_up(self._norm, self.error)
            least, most = math.nextafter(low * low, 0.0), mul_up(high, high)
        return Float64Scalar.of_floats(least, most, 2 * self.exponent)

    def distances_squared(self, metric: Float64Matrix | None = None) -> Float64Vector:
        """The centre's differences, row by row, with the metric taken to all rows at once.

        Let X be the centre, P that of the metric, p >= ||P + its error||, γ of this width. Floats give, row by row,
            Y = XP up to a_i <= γ·||x_i||·||P||_F,      D = x_i - x_j and E = y_i - y_j, each up to u times itself,
        and D·E up to γ·||D||·||E||. With n >= ||D||, ||x_i - x_j|| and q = p·n + a_i + a_j, which ||E|| does not exceed
        but for roundings, D·E is (x_i - x_j)ᵀP(x_i - x_j) up to  n·((γ + 2u)·q + a_i + a_j).
        An error of X moves differences by at most δ = sqrt(2)·error, which adds p·(2nδ + δ²), and one of the metric
        n²·error. (Without a metric Y is X, and a is 0.) `ROOM` covers the roundings of these bounds themselves, and
        `VANISHING` what underflows, in n and in a: products lose at most width·η, far less than n·γn or n·a. (γ counts
        two operations more than are made: in the last rounding, outward, there is nothing left to lose.)
        """
        left, right = self._on_scale(), None if metric is None else metric._on_scale()
        rows, width = left.shape
        if width > LONGEST:
            raise UnboundedError(f"rows of {width} numbers are too long for float64")
        x, gamma = left.centre, gamma_up(width)
        y, p, apart, off = x, 1.0, 0.0, np.zeros(rows)
        if right is not None:
            y, p, apart = x @ right.centre, add_up(right._norm, right.error), right.error
            lengths = rough_norms_up(np.einsum("ij,ij->i", x, x))
            off = lengths * mul_up(gamma, p) * ROOM + width * VANISHING
        delta = mul_up(left.error, 2.0**0.5)  # the float is above the root
        squares, products = np.empty(rows * (rows - 1) // 2), np.empty(rows * (rows - 1) // 2)
        spread, zero = np.empty_like(squares), np.zeros(len(squares), dtype=bool)
        for j in range(1, rows):
            part = slice(j * (j - 1) // 2, j * (j + 1) // 2)
            d = x[:j] - x[j]
            squares[part] = np.einsum("ij,ij->i", d, d)
            products[part] = squares[part] if right is None else np.einsum("ij,ij->i", d, y[:j] - y[j])
            spread[part] = off[:j] + off[j]
            if not left.error and not squares[part].all():
                zero[part] = ~d.any(axis=1)
        n = rough_norms_up(squares)
        error = n * ((gamma + 2 * U) * (p * n + spread) + spread) + p * (2 * n + delta) * delta + n * n * apart
        error *= ROOM
        low = np.where(zero, 0.0, np.nextafter(products - error, -np.inf))
        high = np.where(zero, 0.0, np.nextafter(products + error, np.inf))
        exponent = 2 * left.exponent + (0 if right is None else right.exponent)
        return Float64Vector(low, high, np.full(len(low), exponent, dtype=np.int64))

    def block(self, rows: Indices, columns: Indices) -> Float64Matrix:
        check_distinct(rows, columns)
        return Float64Matrix(self.centre[np.ix_(rows, columns)], self.exponent, self.error)._on_scale()

    def rows_at(self, index: Indices) -> Float64Matrix:
        # Each entry of D is there as often as its row is named: the sum of squares grows by no more than that.
        times = times_named(index, self.shape[0])
        made = self._on_scale()
        taken = made.centre[index]
        taken[index < 0] = 0.0
        error = made.error if times == 1 else mul_up(made.error, sqrt_up(times)) if times else 0.0
        return Float64Matrix(taken, made.exponent, error)._on_scale()

    def reshaped(self, shape: tuple[int, int]) -> Float64Matrix:
        check_same_size(self.shape, shape)
        return self._with_entries(self.centre.reshape(shape))

    def _with_entries(self, centre: Floats) -> Float64Matrix:
        """The ball with this centre, whose entries are those of the own one in another order."""
        return Float64Matrix(centre, self.exponent, self.error, self._known_norm, self._known_squares)

    def stacked(self, others: Sequence[Float64Matrix]) -> Float64Matrix:
        check_same_width(self.shape, *(x.shape for x in others))
        parts = [x._on_scale() for x in (self, *others)]
        # The largest scale: upwards could overflow. Zero is zero on any.
        exponent = max((x.exponent for x in parts if x._norm or x.error), default=self.exponent)
        aligned = [x._moved_to(exponent) if x._norm or x.error else x for x in parts]
        centre = np.concatenate([x.centre for x in aligned])
        return Float64Matrix(centre, exponent, hypot_up(*(x.error for x in aligned)))._on_scale()

    def row_scaled(self, column: Float64Matrix) -> Float64Matrix:
        """With diagonal matrices F, G of the column's centre and of its error, which has no entry beyond that:

        (F + G)·(C + D) - F·C = (F + G)·D + G·C, and ||G·C||_F is at most ||G||_F times the longest row of C.
        """
        check_column(column.shape, self.shape[0])
        left, right = self._on_scale(), column._on_scale()
        made = Float64Matrix(left.centre * right.centre, left.exponent + right.exponent, 0.0)
        largest = add_up(float(np.max(np.abs(right.centre))), right.error)
        longest = float(np.max(norms_up(left.centre, axis=1))) if right.error and left._norm else 0.0
        # Each product is off by at most u times itself, or η/2.
        lost = add_up(mul_up(U, made._norm), mul_up(left._spread(), ETA) if left._norm and right._norm else 0.0)
        return made._widened(add_up(mul_up(left.error, largest), mul_up(right.error, longest), lost))._on_scale()

    def sorted_within(self, size: int) -> Float64Matrix:
        check_groups(size, self.shape[0])
        groups = self.centre.reshape(-1, size, self.shape[1])
        return self._with_entries(np.sort(groups, axis=1).reshape(self.shape))

    def recentred(self) -> tuple[Float64Matrix, Float64Scalar]:
        return self._widened(0.0), Float64Scalar.of_floats(self.error, self.error, self.exponent)

    def blurred(self, apart: Float64Scalar) -> Float64Matrix:
        if apart.high[0] <= 0:
            return self
        _, most, shift = apart.between()
        made = self if self.exponent >= shift - 400 else self._moved_to(shift - 400)  # then it is at most 2^400
        return made._widened(add_up(made.error, ldexp_up(most, shift - made.exponent)))._on_scale()

    def diag_scaled(self, rows: Floats, columns: Floats) -> Float64Matrix:
        largest = mul_up(float(np.max(np.abs(rows))), float(np.max(np.abs(columns))))
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is refused with its norm
            found = Float64Matrix(self.centre * rows[:, None] * columns, self.exponent, 0.0)
            found._norm  # noqa: B018 - known from here on
        # Two products, each off by at most u times itself or η/2; and the first error is multiplied by a column's.
        shaky = mul_up(add_up(1.0, float(np.max(np.abs(columns)))), mul_up(self._spread(), ETA))
        lost = add_up(mul_up(3 * U, found._norm), shaky if found._norm or self._norm else 0.0)
        return found._widened(add_up(mul_up(self.error, largest), lost))._on_scale()

    def positive_part(self) -> Float64Matrix:
        # x -> max(x, 0) moves no two numbers further apart.
        return Float64Matrix(np.maximum(self.centre, 0.0), self.exponent, self.error)._on_scale()

    def sigmoid(self) -> Float64Matrix:
        return self._curved(floats_sigmoid, 0.25)

    def expm1_neg(self) -> Float64Matrix:
        return self._curved(floats_expm1_neg, 1.0)

    def log1p_exp_neg(self) -> Float64Matrix:
        return self._curved(floats_log1p_exp_neg, 0.5)

    def _curved(self, function: Callable[[Floats], Floats], lipschitz: float) -> Float64Matrix:
        """A function whose values lie in an interval of length 1, off by at most FLOAT_ERROR in floats."""
        with np.errstate(over="ignore"):  # both ends of the line are fine arguments
            made = function(np.ldexp(self.centre, self.exponent))
        apart = mul_up(ldexp_up(self.error, self.exponent), lipschitz)
        error = mul_up(self._spread(), 2 * FLOAT_ERROR)  # and what scaling lost among the subnormals
        return Float64Matrix(made, 0, add_up(min(apart, self._spread()), error))._on_scale()

    def with_norm_bound(self, norm: Fraction) -> Float64Matrix:
        least = dyadic_value(1, self.exponent)
        made = self._widened(self.error)
        made._operator = float_up(norm / least)
        return made

    def float_bounds(self) -> tuple[Floats, Floats]:
        with np.errstate(over="ignore"):
            lower = upper = self.centre
            if self.error:
                # A float sum c ± r is off by at most u·|c ± r| <= u·(||C|| + r): all of them by the same, which is
                # far less than r as a rule, and much faster than the next float of each.
                apart = add_up(self.error, mul_up(2 * U, add_up(self._norm, self.error)))
                lower, upper = self.centre - apart, self.centre + apart
            if not self.exponent:
                return lower, upper
            # Scaling up is exact, or ends beyond the largest float, which is still a lower end. Scaling down is off by
            # at most η/2, among the subnormals: there a step of η is one float, elsewhere it is lost, and nothing was.
            lower, upper = np.ldexp(lower, self.exponent), np.ldexp(upper, self.exponent)
            if self.exponent > 0:
                return np.minimum(lower, _LARGEST), np.maximum(upper, -_LARGEST)
            return lower - ETA, upper + ETA


@lru_cache(maxsize=64)
def _movement(entries: int, bits: int) -> Float64Scalar:
    """Encloses ||M - R||_F² where each entry moves by at most half a step of 2^-bits."""
    return Float64Scalar.around(Fraction(0), Fraction(entries, 4 ** (bits + 1)))


@dataclass(frozen=True)
class Float64Backend:
    """float64 with a priori error bounds. `prec` is the grid of the mathematics; the arithmetic has 53 bits, always."""

    prec: int
    _fault: str | None = field(
        default_factory=lambda: arithmetic_fault() or product_fault(), init=False, repr=False, compare=False
    )

    name = "float64"
    working_bits = BITS

    def __reduce__(self) -> tuple[type[Float64Backend], tuple[int]]:
        """What arrives in another process, or is copied, tests that process anew."""
        return Float64Backend, (self.prec,)

    def refined(self) -> None:
        return None

    def scalar(self, value: Fraction) -> Float64Scalar:
        return Float64Scalar.around(value, value)

    def hull(self, lower: Fraction, upper: Fraction) -> Float64Scalar:
        return Float64Scalar.around(lower, upper)

    def sqrt_upper(self, x: Float64Scalar) -> Float64Scalar:
        return x.sqrt_upper(self.prec)

    def matrix(self, data: RationalMatrix) -> Float64Matrix:
        if self._fault is not None:
            raise UnboundedError(f"float64 arithmetic cannot be trusted in this process: {self._fault}")
        near = data.near_floats()
        made = Float64Matrix(near.values, near.exponent, 0.0)
        if near.exact:
            return made
        # Rounded to nearest: off by at most u times itself, or η/2 where it is subnormal.
        return made._widened(add_up(mul_up(U, made._norm), mul_up(made._spread(), ETA)))


if TYPE_CHECKING:  # the type checker proves conformance
    _matrix: type[Matrix[Float64Scalar]] = Float64Matrix
    _backend: type[Backend[Float64Scalar]] = Float64Backend
