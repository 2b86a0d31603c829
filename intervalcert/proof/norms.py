"""Operator norms from above and from below, over any number system.

The one upper bound that needs no trust in convergence is the Frobenius norm, ||M|| <= ||M||_F. Gram iteration makes it
tight: it is applied not to M but to a high power of its Gram matrix, and roots bring it back (Delattre, Barthélemy,
Araujo, Allauzen, Efficient bound of Lipschitz constant for convolutional layers by Gram iteration, ICML 2023).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Literal

from intervalcert.backends.protocol import Backend, Matrix, S, Scalar
from intervalcert.errors import UndecidedError
from intervalcert.numbers.rounding import dyadic_value, sqrt_lower

__all__ = [
    "AUTO_GAIN",
    "LOWER_BITS",
    "MAX_ITERATIONS",
    "Iterations",
    "frobenius_upper",
    "norm_lower",
    "norm_upper",
]

Iterations = int | Literal["auto"]

MAX_ITERATIONS = 40
"""More gain nothing: the overestimate rank^(1/2^41) differs from 1 by less than 1e-11 for any matrix that fits."""

AUTO_GAIN = Fraction(1, 100_000)
"""`auto` stops when a step lowers the bound by less than this part of it. The excess left is then about as much."""


LOWER_BITS = 64
"""Lower bounds have so many bits at least, however coarse the grid: they are near the norm."""


def frobenius_upper(matrix: Matrix[S], backend: Backend[S]) -> S:
    """`sqrt_upper` of the sum of squares: at least ||M||_F, hence at least ||M||."""
    return backend.sqrt_upper(matrix.frobenius_squared())


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

    The steps, from H_0 = M:     G_i = gram(H_{i-1})             r_i a power of two near ||G_i||_F
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
        power = _size(gram.frobenius_squared())
        if power is None:  # gram(H) = 0 only if H = 0
            break
        matrix, moved_squared = gram.ldexp(-power).rounded(backend.prec)
        steps.append((backend.scalar(dyadic_value(1, power)), moved_squared))
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


def _size(squared: Scalar) -> int | None:
    """A k with 1/6 < squared/4^k < 1; None if the set is {0}. Raises: UndecidedError if it differs within the set.

    Which k depends on where 11/8·squared lies among the powers of two. The factor is arbitrary, but keeps the borders
    away from the sizes that orthogonal, integer and binary matrices have, where enclosures would straddle them.
    """
    low, high = squared.lower(), squared.upper()
    if low.numerator <= 0:
        if high.numerator == 0:
            return None
        raise UndecidedError("the size of a Gram matrix is not known from below")
    j = _floor_log2(11 * low.numerator, 8 * low.denominator)
    if j != _floor_log2(11 * high.numerator, 8 * high.denominator):
        raise UndecidedError("the size of a Gram matrix is not known well enough")
    return (j + 2) // 2  # 4^k >= 2^(j+1) > 11/8·squared, and 4^k <= 2^(j+2) <= 11/2·squared


def _floor_log2(top: int, bottom: int) -> int:
    """The greatest j with 2^j <= top/bottom, for positive integers."""
    j = top.bit_length() - bottom.bit_length()
    return j if top << max(-j, 0) >= bottom << max(j, 0) else j - 1


def _unwound(steps: Sequence[tuple[S, S]], last: Matrix[S], backend: Backend[S]) -> S:
    """v_0 from H_n and the steps (r_i, e_i²)."""
    v = frobenius_upper(last, backend)
    moved_squared = moved = None
    for scale, squared in reversed(steps):
        if moved is None or squared is not moved_squared:  # interval backends give the same bound at every step
            moved_squared, moved = squared, backend.sqrt_upper(squared)
        v = backend.sqrt_upper(scale * (v + moved))
    return v


# -- from below ------------------------------------------------------------------------------------------------------


def norm_lower(matrix: Matrix[S], direction: Matrix[S], backend: Backend[S]) -> Fraction:
    """A lower bound of the operator norm: ||Mx|| / ||x|| for the given x, rounded down to `LOWER_BITS` bits.

    Guarantees: result <= ||M||, whatever x is. Requires: x is not zero.
    """
    stretch_squared = (matrix @ direction).frobenius_squared() / direction.frobenius_squared()
    return sqrt_lower(max(stretch_squared.lower(), Fraction(0)), max(backend.prec, LOWER_BITS))
