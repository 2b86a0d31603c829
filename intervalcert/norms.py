"""Operator norms from above and from below, over any number system.

The one upper bound that needs no trust in convergence is the Frobenius norm, ||M|| <= ||M||_F. Gram iteration makes it
tight: it is applied not to M but to a high power of its Gram matrix, and roots bring it back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from intervalcert.errors import SoundnessError, UsageError
from intervalcert.fallback import describe, is_sharp, settle
from intervalcert.protocol import Backend, Matrix, S, Scalar
from intervalcert.rational import RationalMatrix, dyadic_value, round_down, round_up, shortest_exact

__all__ = [
    "AUTO_GAIN",
    "MAX_ITERATIONS",
    "Iterations",
    "LayerBound",
    "frobenius_upper",
    "guess_direction",
    "layer_bound",
    "norm_lower",
    "norm_upper",
    "sqrt_lower",
    "sqrt_upper",
]

Iterations = int | Literal["auto"]

MAX_ITERATIONS = 40
"""More gain nothing: the overestimate rank^(1/2^41) differs from 1 by less than 1e-11 for any matrix that fits."""

AUTO_GAIN = Fraction(1, 100_000)
"""`auto` stops when a step lowers the bound by less than this part of it. The excess left is then about as much."""

LOWER_SLACK, LOWER_BITS = Fraction(1, 2**40), 64
"""Lower bounds are published this part below what was found, in so many bits. They rest on a vector guessed in floats,
which differs from machine to machine by some 1e-15: with the slack, an audit elsewhere confirms them."""


_ZERO = Fraction(0)


# -- square roots ----------------------------------------------------------------------------------------------------


def sqrt_upper(x: Fraction, bits: int) -> Fraction:
    """The least dyadic with a `bits`-bit mantissa that is >= sqrt(x).

    Guarantees: result² >= x; result <= sqrt(x)·(1 + 2^(1-bits)), at any scale; monotone in x; exact if sqrt(x) is
    itself such a dyadic; 0 at 0.
    Requires: x >= 0 (ValueError otherwise).

    Proof. Choose e so that q = x/4^e has a root of `bits` bits, i.e. 4^(bits-1) <= q < 4^bits. The least integer m with
    m² >= q is the least with m² >= ceil(q), which is isqrt(ceil(q) - 1) + 1, `isqrt` being the integer floor of the
    root. m·2^e is then the least element, above sqrt(x), of a set that does not depend on x: hence monotone.
    """
    floor, exact, e = _normalised(x, bits)
    return dyadic_value(math.isqrt(floor - exact) + 1, e) if floor else Fraction(0)


def sqrt_lower(x: Fraction, bits: int) -> Fraction:
    """The greatest dyadic with a `bits`-bit mantissa that is <= sqrt(x). Requires: x >= 0."""
    floor, _, e = _normalised(x, bits)
    return dyadic_value(math.isqrt(floor), e)


def _normalised(x: Fraction, bits: int) -> tuple[int, bool, int]:
    """(floor(q), whether q is an integer, e) with x = q·4^e and 4^(bits-1) <= q < 4^bits; all zero for x = 0."""
    top, bottom = x.numerator, x.denominator
    if top <= 0:
        if top:
            raise ValueError(f"the square root of a negative number: {x}")
        return 0, True, 0
    # x lies between 2^(s-1) and 2^(s+1): q is at most a factor of 4 too small.
    e = (top.bit_length() - bottom.bit_length()) // 2 + 1 - bits
    while True:
        floor, rest = divmod(top << max(-2 * e, 0), bottom << max(2 * e, 0))
        if floor.bit_length() >= 2 * bits - 1:
            return floor, not rest, e
        e -= 1


def _sqrt_upper_of(x: S, backend: Backend[S]) -> S:
    """`sqrt_upper` as an operation on sets: it is monotone, so the hull of its values at the ends encloses them all.

    The sets here are sums of squares and products of non-negative numbers. An enclosure may stick out below zero; the
    values that it encloses do not, so the part below zero may be cut off.
    """
    low, high = x.lower(), x.upper()
    return backend.hull(
        sqrt_upper(low if low.numerator > 0 else _ZERO, backend.prec),
        sqrt_upper(high if high.numerator > 0 else _ZERO, backend.prec),
    )


def frobenius_upper(matrix: Matrix[S], backend: Backend[S]) -> S:
    """`sqrt_upper` of the sum of squares: at least ||M||_F, hence at least ||M||."""
    return _sqrt_upper_of(matrix.frobenius_squared(), backend)


# -- from above ------------------------------------------------------------------------------------------------------


def norm_upper(
    matrix: Matrix[S],
    backend: Backend[S],
    iterations: Iterations,
    on_step: Callable[[], None] = lambda: None,
) -> tuple[S, int]:
    """Gram iteration: an upper bound of the operator norm ||M||, and the number of steps made.

    Guarantees: the result encloses the bound of the exact run, which is at least ||M|| for the M enclosed by `matrix`;
    so its upper end is. With n steps the overestimate of the exact run is at most rank^(1/2^(n+1)), up to rounding of
    relative size 2^-prec.

    The steps, from H_0 = M:     G_i = gram(H_{i-1})             r_i = frobenius_upper(G_i)
                                 H_i, e_i = rounded(G_i / r_i)   where e_i >= ||G_i/r_i - H_i||_F
    and the way back, v_n = frobenius_upper(H_n):      v_{i-1} = sqrt_upper(r_i·(v_i + e_i)).      Result: v_0.

    Proof that v_i >= ||H_i||, downwards. v_n >= ||H_n||_F >= ||H_n||. If v_i >= ||H_i||, then
    ||H_{i-1}||² = ||G_i|| = r_i·||G_i/r_i|| <= r_i·(||H_i|| + ||G_i/r_i - H_i||_F) <= r_i·(v_i + e_i) <= v_{i-1}².
    (gram takes H·Hᵀ or Hᵀ·H, both of norm ||H||²; on the symmetric H_1, H_2, … it is the square.)
    Tightness: G_n has the norm ||M||^(2^n) up to the factors r, and ||G||_F <= sqrt(rank)·||G||.

    If M = 0 there is nothing to divide by: the iteration ends before its first step, and the Frobenius norm is 0.
    `auto` evaluates v_0 after each step, goes on only if it is proved to have fallen by more than `AUTO_GAIN`, and
    gives the least one with its number of steps. What an enclosure proves holds in the exact run: that one makes at
    least as many steps, and its least bound is no larger.
    """
    steps: list[tuple[S, S]] = []
    least = before = frobenius_upper(matrix, backend) if iterations == "auto" else None
    made = 0
    for _ in range(MAX_ITERATIONS if iterations == "auto" else iterations):
        gram = matrix.gram()
        if gram.is_zero():  # undecided raises; and gram(H) = 0 only if H = 0
            break
        scale = frobenius_upper(gram, backend)
        matrix, moved_squared = gram.divided(scale).rounded(backend.prec)
        steps.append((scale, _sqrt_upper_of(moved_squared, backend)))
        on_step()
        if least is not None and before is not None:
            now = _unwound(steps, matrix, backend)
            if now.upper() < least.upper():
                least, made = now, len(steps)
            if now.upper() * (1 + AUTO_GAIN) >= before.lower():
                break
            before = now
    if least is not None:
        return least, made
    return _unwound(steps, matrix, backend), len(steps)


def _unwound(steps: Sequence[tuple[S, S]], last: Matrix[S], backend: Backend[S]) -> S:
    v = frobenius_upper(last, backend)
    for scale, moved in reversed(steps):
        v = _sqrt_upper_of(scale * (v + moved), backend)
    return v


# -- from below ------------------------------------------------------------------------------------------------------


def guess_direction(weights: RationalMatrix) -> RationalMatrix:
    """A vector near the first right singular one, as a column of integers. Untrusted: any non-zero vector will do.

    From floats alone, so that every backend gets the same one. The Rayleigh quotient errs by the square of the error of
    its vector: 30 bits of it are as good as 60.
    """
    a = weights.near_floats().values
    rows, columns = a.shape
    gram = a @ a.T if rows <= columns else a.T @ a
    top = np.linalg.eigh(gram)[1][:, -1]
    x = a.T @ (a @ (a.T @ top if rows <= columns else top))
    largest = np.max(np.abs(x))
    integers = np.rint(x / largest * 2**30).astype(np.int64) if largest > 0 else np.zeros(columns, dtype=np.int64)
    if not integers.any():  # all products underflowed: take the column with the largest entry
        integers[int(np.argmax(np.max(np.abs(a), axis=0)))] = 1
    return RationalMatrix.from_integers([[int(k)] for k in integers])


def norm_lower(matrix: Matrix[S], direction: Matrix[S], backend: Backend[S]) -> Fraction:
    """A lower bound of the operator norm: ||Mx|| / ||x|| for the given x, rounded down.

    Guarantees: result <= ||M||, whatever x is. Requires: x is not zero.
    """
    stretch_squared = (matrix @ direction).frobenius_squared() / direction.frobenius_squared()
    return sqrt_lower(max(stretch_squared.lower(), Fraction(0)), backend.prec)


# -- both, for a layer -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LayerBound:
    """lower <= ||W|| <= upper, and how it was found.

    `computed_by` names the number system that settled it; `refused` says why the ones before it did not.
    """

    shape: tuple[int, int]
    lower: Fraction
    upper: Fraction
    iterations: int
    computed_by: str
    refused: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.lower <= self.upper:
            raise SoundnessError(
                f"a {self.shape[0]} x {self.shape[1]} layer has the lower bound {shortest_exact(self.lower)} and the "
                f"upper bound {shortest_exact(self.upper)}: one of them is wrong, and so may be every other result"
            )

    def stated(self) -> LayerBound:
        """As it is published: the lower bound with its slack."""
        return replace(self, lower=round_down(self.lower * (1 - LOWER_SLACK), LOWER_BITS))


def layer_bound(
    weights: RationalMatrix,
    rungs: Sequence[Backend[Any]],
    iterations: Iterations,
    on_step: Callable[[], None] = lambda: None,
) -> LayerBound:
    """Bounds of the operator norm of a weight matrix from both sides, on the first rung that gives a sharp one.

    Guarantees: lower <= ||W|| <= upper, both dyadics of `prec` bits. Raises: SoundnessError if they contradict.
    """
    if iterations != "auto" and (type(iterations) is not int or not 0 <= iterations <= MAX_ITERATIONS):
        raise UsageError(f"{iterations!r} iterations: choose 0..{MAX_ITERATIONS}, or auto")
    direction = guess_direction(weights)

    def compute(backend: Backend[Any]) -> tuple[Scalar, int, Fraction]:
        matrix = backend.matrix(weights)
        upper, steps = norm_upper(matrix, backend, iterations, on_step)
        return upper, steps, norm_lower(matrix, backend.matrix(direction), backend)

    settled = settle(rungs, compute, is_useful=lambda found: is_sharp(found[0]))
    upper, steps, lower = settled.value
    return LayerBound(
        shape=weights.shape,
        lower=lower,
        # On `exact` the bound is a dyadic of prec bits already; rounding is monotone, so it stays on the safe side.
        upper=round_up(upper.upper(), settled.backend.prec),
        iterations=steps,
        computed_by=describe(settled.backend),
        refused=settled.refused,
    )
