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
A >= B - r·I for symmetric A, B with ||A - B||_F <= r. So floats guess v, w, T, S', G, R, P' and small l, e, s, and

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

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from intervalcert.backends.protocol import Backend, Floats, Indices, Matrix
from intervalcert.errors import UndecidedError
from intervalcert.numbers.matrices import IntegerArray, RationalMatrix, exact_integers
from intervalcert.proof.norms import frobenius_upper

__all__ = ["LoewnerMajorant", "Sector", "Step", "guess_step", "point", "prove_below", "prove_step"]

_SLACK = 2.0**-43
"""e is this, times the side, times ||G||_F²; l and s are the same part of norms. More than float64 loses in products,
and more than the grids below lose."""

_SMALL = 16
"""Narrower layers get the slack of this side: the grids below are as coarse for them."""

_MOST = 2.0**-2
"""No e beyond this is tried."""

_GRID = 44
"""S', R and P' are multiples of 2^-44 of a power of two near their size, and G of 2^-41: of 45 bits or so."""

_BITS = 20
"""So many bits has v."""


@dataclass(frozen=True, eq=False)
class Sector:
    """The middle m and the spread ρ >= 0 of the difference quotients of each neuron."""

    middle: Floats
    spread: Floats


@dataclass(frozen=True, eq=False)
class Step:
    """What floats guess for one layer; names as above (s is S', after is P', slack is s).

    h: H as floats have it: for better guesses of v, not for the proof. g and h are of the bending neurons.
    """

    sector: Sector
    v: Floats
    w: Floats
    s: Floats
    g: Floats
    core: Floats
    after: Floats
    e: float
    slack: float
    h: Floats

    @property
    def side(self) -> int:
        return len(self.v)

    @property
    def bending(self) -> Indices:
        """The neurons that couple: those with v > 0."""
        return np.flatnonzero(self.v)


# -- guessing --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LoewnerMajorant:
    """A guess of a matrix S from above: near (T), above (S') and lift (l) of the first inequality."""

    near: Floats
    above: Floats
    lift: float

    @staticmethod
    def guess(s: Floats) -> LoewnerMajorant:
        """For the S that floats take for `s`."""
        lift = float(np.linalg.norm(s)) * max(len(s), _SMALL) ** 2 * _SLACK
        return LoewnerMajorant(*_raised(_symmetric(s), np.full(len(s), lift)), lift)


def _raised(x: Floats, by: Floats) -> tuple[Floats, Floats]:
    """The matrix on a grid, and the same with the diagonal raised by as much at least."""
    unit = _unit(max(float(np.max(np.abs(x))), float(np.max(by))), _GRID)
    near: Floats = np.rint(x / unit) * unit
    above = near.copy()
    above.flat[:: len(x) + 1] = (np.ceil((near.diagonal() + by) / unit) + 1) * unit
    return near, above


def guess_step(s: Floats, sector: Sector, v: Floats) -> Step:
    """The guesses that go with S' and a v. Raises: LinAlgError if K is not positive definite, as far as floats tell."""
    side = len(s)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        v, w = np.where(sector.spread > 0, v, 0.0), np.zeros(side)
        v = _short(v)
        np.divide(sector.spread, v, out=w, where=sector.spread > 0)
        w = np.where(w > 0, np.nextafter(np.nextafter(w, np.inf), np.inf), 0.0)  # v·w >= ρ must hold exactly
        some = np.flatnonzero(v)
        g, e = _guess_inverse(s[np.ix_(some, some)], v[some])
        h = s[:, some] @ (v[some, None] * g)
        core = _symmetric(sector.middle[:, None] * (s + h @ h.T) * sector.middle)
        slack = max(float(np.linalg.norm(core)), float(np.max(w * w))) * max(side, _SMALL) ** 2 * _SLACK
        core, after = _raised(core, w * w + slack)
    if not all(np.isfinite(x).all() for x in (after, g, v, w)):
        raise FloatingPointError("not a matrix of numbers")
    return Step(sector, v, w, s, g, core, after, e, slack, h)


def _guess_inverse(s: Floats, v: Floats) -> tuple[Floats, float]:
    """G and e, of the bending neurons."""
    side = len(v)
    if not side:
        return np.zeros((0, 0)), 0.0
    g = np.linalg.inv(np.linalg.cholesky(np.eye(side) - v[:, None] * s * v)).T
    wide = max(side, _SMALL)
    e = wide * max(float((g * g).sum()), wide) * _SLACK
    if not e < _MOST:
        raise FloatingPointError("a matrix too far from well conditioned for the chain")
    unit = _unit(float(np.max(np.abs(g))), _GRID - 3)
    return np.rint(g * math.sqrt(1 + e) / unit) * unit, e


def _symmetric(x: Floats) -> Floats:
    """The proof needs this, whatever the library did."""
    found: Floats = (x + x.T) / 2
    return found


def _unit(largest: float, bits: int) -> float:
    """The power of two that is 2^-bits of the one above `largest`; multiplying by it is exact."""
    if not 2.0**-900 < largest < 2.0**900:
        raise FloatingPointError("numbers at the ends of the floats, or none")
    return 2.0 ** (math.frexp(largest)[1] - bits)


def _short(x: Floats) -> Floats:
    """Rounded to few bits."""
    mantissa, exponent = np.frexp(x)
    found: Floats = np.ldexp(np.rint(mantissa * 2.0**_BITS), exponent - _BITS)
    return found


# -- proving ---------------------------------------------------------------------------------------------------------


def prove_below(s: Matrix[Any], guess: LoewnerMajorant, backend: Backend[Any]) -> Matrix[Any]:
    """Proves that S <= S', which is returned. Raises: UndecidedError unless it is proved."""
    if not guess.near.shape == guess.above.shape == s.shape or not math.isfinite(guess.lift):
        raise UndecidedError("a chain's matrix is of another shape, or no matrix of numbers")
    raised = _is_raised(guess.near, guess.above, exact_integers(np.full(len(guess.near), guess.lift)))
    if not (raised and _is_below(point(guess.near, backend) - s, guess.lift, backend)):
        raise UndecidedError("a chain's matrix is not proved to be large enough")
    return point(guess.above, backend)


def prove_step(step: Step, s: Matrix[Any], backend: Backend[Any]) -> None:
    """Proves that δ in E(S', q) and the sector imply Δ in E(P', q), for every q. s: S', the step's own.

    Raises: UndecidedError unless it is proved.
    """
    _check_shapes(step, s)
    (w, unit), (slack, other) = exact_integers(step.w), exact_integers(np.full(step.side, step.slack))
    by = w * w * other + slack * unit**2, unit**2 * other  # w² + s
    if not (_covers(step.v, step.w, step.sector.spread) and _is_raised(step.core, step.after, by)):
        raise UndecidedError("a chain's numbers do not cover a sector")
    bending, middle = step.bending, step.sector.middle
    b = s
    if len(bending):
        every, some, ones = np.arange(step.side), np.arange(len(bending)), np.ones(len(bending))
        g, v = point(step.g, backend), step.v[bending]
        h = _part(s, every, bending) @ g.diag_scaled(v, ones)
        product = g.transposed() @ (g - _part(h, bending, some).diag_scaled(v, ones))
        if not _is_below(_multiple(1 + Fraction(step.e), len(bending), backend) - product, step.e, backend):
            raise UndecidedError("a chain's matrix is not proved to be positive definite")
        b = s + h @ h.transposed()
    q = b.diag_scaled(middle, middle)
    if not _is_below(point(step.core, backend) - q, step.slack, backend):
        raise UndecidedError("a chain's matrix is not proved to be large enough")


def _check_shapes(step: Step, s: Matrix[Any]) -> None:
    """Numpy would repeat what is too short. Raises: UndecidedError unless everything is of the same neurons."""
    side, bending = step.side, len(step.bending)
    vectors = (step.v, step.w, step.sector.middle, step.sector.spread)
    fits = s.shape == step.core.shape == step.after.shape == (side, side) and step.g.shape == (bending, bending)
    if not fits or any(x.shape != (side,) for x in vectors):
        raise UndecidedError("a chain's matrices are not of the same neurons")
    if not (math.isfinite(step.e) and math.isfinite(step.slack)):
        raise UndecidedError("a chain's numbers are not finite")


def _part(matrix: Matrix[Any], rows: Indices, columns: Indices) -> Matrix[Any]:
    """A block; the matrix itself if that is all of it. Requires: indices in ascending order."""
    return matrix if matrix.shape == (len(rows), len(columns)) else matrix.block(rows, columns)


def point(values: Floats, backend: Backend[Any]) -> Matrix[Any]:
    return backend.matrix(RationalMatrix.from_floats(values))


def _multiple(number: float | Fraction, side: int, backend: Backend[Any]) -> Matrix[Any]:
    return point(np.eye(side), backend).scalar_mul(backend.scalar(Fraction(number)))


def _is_below(matrix: Matrix[Any], most: float, backend: Backend[Any]) -> bool:
    """Whether the Frobenius norm is proved to be less."""
    proved: bool = frobenius_upper(matrix, backend).less(backend.scalar(Fraction(most))).certainly()
    return proved


def _covers(v: Floats, w: Floats, spread: Floats) -> bool:
    """Whether 0 <= ρ <= v·w and v, w >= 0 in each component: with integers, so that no float operation is trusted."""
    (a, d), (b, e), (c, f) = map(exact_integers, (v, w, spread))
    return bool((a * b * f >= c * (d * e)).all() and (v >= 0).all() and (w >= 0).all() and (spread >= 0).all())


def _is_raised(x: Floats, above: Floats, by: tuple[IntegerArray, int]) -> bool:
    """Whether both are symmetric, equal off the diagonal, and on it the second is larger by so much; exactly.

    by: integers over a denominator.
    """
    apart = x != above
    apart.flat[:: len(x) + 1] = False
    if apart.any() or (x != x.T).any():
        return False
    (low, d), (high, e), (more, f) = exact_integers(x.diagonal()), exact_integers(above.diagonal()), by
    return bool(((high * d - low * e) * f >= more * (d * e)).all())
