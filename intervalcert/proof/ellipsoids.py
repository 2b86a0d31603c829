"""One layer of a chain: how an ellipsoid that holds all differences of its inputs becomes one for its outputs.

A symmetric P >= 0 and a number q stand for the vectors   E(P, q) = { x : (dᵀx)² <= q·dᵀPd for all d }.
(If P > 0 these are the x with xᵀP⁻¹x <= q; no inverse is needed to say it, so P may have any rank.) At once:

    linear      x in E(P, q)  implies  Wx in E(WPWᵀ, q),  whatever the shape and the rank of W
    monotone    P <= P' in the Loewner order (dᵀPd <= dᵀP'd for all d)  implies  E(P, q) is part of E(P', q)

By monotonicity each matrix of a chain may be replaced by a larger one: that is where guesses and roundings enter.

THE STEP.  Let δ in E(S, q), and Δ_k = θ_k·δ_k with |θ_k - m_k| <= ρ_k: an activation whose difference quotients lie in
the sector [m_k - ρ_k, m_k + ρ_k]. Take any v, w >= 0 with ρ_k <= v_k·w_k, and let V, W, M be the diagonal matrices of
v, w, m. If K = I - VSV is positive definite, then Δ is in E(Q, q) with

    Q = M·B·M + W²,       B = S + S·V·K⁻¹·V·S.

Proof. Let S > 0 first. δᵀS⁻¹δ <= q, and Δ' = Δ - Mδ has |Δ'_k| <= ρ_k|δ_k| <= w_k·v_k|δ_k|. Where w_k = 0, Δ'_k = 0;
elsewhere Δ'_k²/w_k² <= v_k²δ_k². In sum,  δᵀ(S⁻¹ - V²)δ + Σ Δ'_k²/w_k² <= q.  S⁻¹ - V² is positive definite because K
is (S^½V²S^½ and VSV have the same eigenvalues but for zeros), and its inverse is B (Woodbury). So (δ, Δ') lies in
E(diag(B, W²), q), and Δ = Mδ + Δ' in the image of that under (M, I), which is E(Q, q).
If S is singular, take S + ηI for small η > 0: it is larger, K stays positive definite, and Q is continuous in η.

Λ = W⁻² is the multiplier of the usual derivation by Lagrange. One number for all, v² = ρ/((|m| + ρ)·σ) with
σ >= ||S||, gives ||Q|| <= (|m| + ρ)²·σ: an eigenvalue s of S becomes at most m²s/(1 - v²s) + ρ²/v², which is that for
s = σ, and less below. So a chain of such steps is never worse than the product of norms. (If |m| is less than a
thousandth of ρ, v is kept smaller, since K would be singular; that costs as much at the most.)

WITH PRODUCTS ALONE.  For any G, if GᵀKG >= I, then K > 0, G is invertible, and K⁻¹ = G·(GᵀKG)⁻¹·Gᵀ <= GGᵀ. And
A >= B - r·I for symmetric A, B with ||A - B||_F <= r. So for
any v, w, T, S', G, R, P' and small l, e, s (`search.ellipsoids` guesses them),

    ||T - S||_F < l                            proves  S <= T + l·I <= S', which may stand for S, and
    ||(1 + e)·I - GᵀKG||_F < e                 proves  GᵀKG >= I, for K = I - V·S'·V; then with H = S'·V·G
    ||R - M·(S' + HHᵀ)·M||_F < s               proves  Q <= R + W² + s·I <= P',

if S' differs from T, and P' from R, on the diagonal alone, and there by enough.

Where ρ_k = 0, v_k and w_k are 0: K has the row and the column of the identity there, and V·K⁻¹·V none. So K and G are
those of the other neurons alone, the `bending` ones, and H = S'·V·G has a row for every neuron, a column for each of
these. Near a known point few neurons can bend: that is where most of the time is saved.

The norms are bounded on the number system at hand, and the rest are comparisons of integers. All guesses are multiples
of a power of two, with few bits, the same on all number systems; P' is a point again. So no error is carried from layer
to layer, and the integers of the exact run do not grow.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from intervalcert.backends.protocol import Backend, Floats, Indices, Matrix
from intervalcert.errors import UndecidedError
from intervalcert.numbers.matrices import IntegerArray, RationalMatrix, exact_integers
from intervalcert.proof.data import Witness
from intervalcert.proof.norms import frobenius_upper

__all__ = [
    "LoewnerMajorant",
    "Sector",
    "Step",
    "are_finite",
    "check_majorant",
    "check_step",
    "covers",
    "is_below",
    "is_raised",
    "multiple",
    "point",
]


@dataclass(frozen=True, eq=False, repr=False)
class Sector(Witness):
    """The middle m and the spread ρ >= 0 of the difference quotients of each neuron."""

    middle: Floats
    spread: Floats


@dataclass(frozen=True, eq=False, repr=False)
class Step(Witness):
    """The witness of one layer: v, w, G (g, of the bending neurons), R (core), P' (after), e and s (slack) of above."""

    sector: Sector
    v: Floats
    w: Floats
    g: Floats
    core: Floats
    after: Floats
    e: float
    slack: float

    @property
    def side(self) -> int:
        return len(self.v)

    @property
    def bending(self) -> Indices:
        """The neurons that couple: those with v > 0."""
        return np.flatnonzero(self.v)


@dataclass(frozen=True, eq=False, repr=False)
class LoewnerMajorant(Witness):
    """The witness that S <= S': near (T), above (S') and lift (l) of the first inequality."""

    near: Floats
    above: Floats
    lift: float


def check_majorant(s: Matrix[Any], guess: LoewnerMajorant, backend: Backend[Any]) -> Matrix[Any]:
    """Proves that S <= S', which is returned. Raises: UndecidedError unless it is proved."""
    if not guess.near.shape == guess.above.shape == s.shape or not are_finite(guess.near, guess.above, guess.lift):
        raise UndecidedError("a chain's matrix is of another shape, or no matrix of numbers")
    raised = is_raised(guess.near, guess.above, exact_integers(np.full(len(guess.near), guess.lift)))
    if not (raised and is_below(point(guess.near, backend) - s, guess.lift, backend)):
        raise UndecidedError("a chain's matrix is not proved to be large enough")
    return point(guess.above, backend)


def check_step(step: Step, s: Matrix[Any], backend: Backend[Any]) -> None:
    """Proves that δ in E(S', q) and the sector imply Δ in E(P', q), for every q. s: S', the step's own.

    Raises: UndecidedError unless it is proved.
    """
    _check_shapes(step, s)
    (w, unit), (slack, other) = exact_integers(step.w), exact_integers(np.full(step.side, step.slack))
    by = w * w * other + slack * unit**2, unit**2 * other  # w² + s
    if not (covers(step.v, step.w, step.sector.spread) and is_raised(step.core, step.after, by)):
        raise UndecidedError("a chain's numbers do not cover a sector")
    bending, middle = step.bending, step.sector.middle
    b = s
    if len(bending):
        every, some, ones = np.arange(step.side), np.arange(len(bending)), np.ones(len(bending))
        g, v = point(step.g, backend), step.v[bending]
        h = _part(s, every, bending) @ g.diag_scaled(v, ones)
        product = g.transposed() @ (g - _part(h, bending, some).diag_scaled(v, ones))
        if not is_below(multiple(1 + Fraction(step.e), len(bending), backend) - product, step.e, backend):
            raise UndecidedError("a chain's matrix is not proved to be positive definite")
        b = s + h @ h.transposed()
    q = b.diag_scaled(middle, middle)
    if not is_below(point(step.core, backend) - q, step.slack, backend):
        raise UndecidedError("a chain's matrix is not proved to be large enough")


def _check_shapes(step: Step, s: Matrix[Any]) -> None:
    """Numpy would repeat what is too short. Raises: UndecidedError unless everything is of the same neurons."""
    vectors = (step.v, step.w, step.sector.middle, step.sector.spread)
    if any(x.ndim != 1 for x in vectors):
        raise UndecidedError("a chain's numbers are not one for each neuron")
    side, bending = step.side, len(step.bending)
    fits = s.shape == step.core.shape == step.after.shape == (side, side) and step.g.shape == (bending, bending)
    if not fits or any(x.shape != (side,) for x in vectors):
        raise UndecidedError("a chain's matrices are not of the same neurons")
    if not are_finite(step.core, step.after, step.g, step.e, step.slack, *vectors):
        raise UndecidedError("a chain's numbers are not finite")


def are_finite(*numbers: Floats | float) -> bool:
    return all(bool(np.isfinite(x).all()) for x in numbers)


def _part(matrix: Matrix[Any], rows: Indices, columns: Indices) -> Matrix[Any]:
    """A block; the matrix itself if that is all of it. Requires: indices in ascending order."""
    return matrix if matrix.shape == (len(rows), len(columns)) else matrix.block(rows, columns)


def point(values: Floats, backend: Backend[Any]) -> Matrix[Any]:
    return backend.matrix(RationalMatrix.from_floats(values))


def multiple(number: float | Fraction, side: int, backend: Backend[Any]) -> Matrix[Any]:
    return point(np.eye(side), backend).scalar_mul(backend.scalar(Fraction(number)))


def is_below(matrix: Matrix[Any], most: float, backend: Backend[Any]) -> bool:
    """Whether the Frobenius norm is proved to be less."""
    proved: bool = frobenius_upper(matrix, backend).less(backend.scalar(Fraction(most))).certainly()
    return proved


def covers(v: Floats, w: Floats, spread: Floats) -> bool:
    """Whether 0 <= ρ <= v·w and v, w >= 0 in each component: with integers, so that no float operation is trusted."""
    (a, d), (b, e), (c, f) = map(exact_integers, (v, w, spread))
    return bool((a * b * f >= c * (d * e)).all() and (v >= 0).all() and (w >= 0).all() and (spread >= 0).all())


def is_raised(x: Floats, above: Floats, by: tuple[IntegerArray, int]) -> bool:
    """Whether both are symmetric, equal off the diagonal, and on it the second is larger by so much; exactly.

    by: integers over a denominator.
    """
    apart = x != above
    apart.flat[:: len(x) + 1] = False
    if apart.any() or (x != x.T).any():
        return False
    (low, d), (high, e), (more, f) = exact_integers(x.diagonal()), exact_integers(above.diagonal()), by
    return bool(((high * d - low * e) * f >= more * (d * e)).all())
