"""The quadratic dual: how far a class leads another one at least, at every input within eps of a known one.

Let Φ be the lead of class j over class t, plus terms that are at most zero at every input within eps, as a function of
the change δ of the input and of what each hinge gives, *all of which are free*. Then no lead is below the least value
of Φ, whatever the multipliers are. Where Φ is convex, one point at which its gradient nearly vanishes shows it.

TERMS. A hinge y = max(z, 0) (z less its kink) whose z stays in [l, u], l <= 0 <= u, has with w = y - z

    y·w = 0,   y² - u·y <= 0,   w² + l·w <= 0,   -y <= 0,   -w <= 0,   (u - l)·y - u·z + u·l <= 0,

the last because max(z, 0) is convex and equal to a line at l and at u. Times λ1, of any sign, and λ2 … λ6 >= 0, and
with γ·(||δ||² - eps²), γ > 0, they are added to the lead. With α = λ1 + λ2 + λ3 > 0 and M = (λ1 + 2·λ3)/(2α), that is,
λ2 = α·(1 - 2M) + λ3, and with ν = y - M·z, the terms of a hinge are

    α·ν² - D·z² + p·y + r·z + λ6·u·l,      D = α·M² - λ3,
    p = -λ2·u + λ3·l - λ4 - λ5 + λ6·(u - l),      r = -λ3·l + λ5 - λ6·u.                                          (1)

A hinge that does not bend is no variable: y = z if z >= 0 everywhere (M = 1), y = 0 if z <= 0 (M = 0). Its only terms
are λ3 times z² - u·z, or z² - l·z: z stays between zero and the other end; D = -λ3, r = -λ3·u, or -λ3·l. So δ and the ν
of the others are the free variables: z = W·y + b, y = M·z + ν, layer after layer.

A HALFSPACE of a split, s·z <= 0 with s = 1 or -1, adds β·s·z, β >= 0; and in it the hinge does not bend.

CONVEX. With η = 2^-30 let S_1 = W_1·W_1ᵀ/(γ·(1 - η)), and for each layer v_k² >= max(D_k, 0) (D_k the sum over the
hinges of neuron k), K = I - V·S·V > 0, B as in `ellipsoids`, P = A·B·A + diag(Σ c²/(α·(1 - η))) for the slopes A of the
neurons (with M for hinges, c being their weights), and S of the next layer W·P·Wᵀ. CLAIM: if ζ_l are the changes of z,

    γ·||δ||² + Σ α·ν² - Σ D·ζ²  >=  η·(γ·||δ||² + Σ α·ν²)       for all δ and ν.                                   (2)

Proof. Let q_0 = γ·(1 - η)·||δ||²; then W_1·δ is in E(S_1, q_0). If ζ is in E(S, q), ζᵀ(S⁻¹ - V²)ζ <= q - Σ D·ζ², and
(ζ, ν) is in the ellipsoid of diag(B, 1/(α·(1 - η))) with q' = q - Σ D·ζ² + (1 - η)·Σ α·ν², which is at least
ζᵀ(S⁻¹ - V²)ζ, and so not negative. A·ζ + Σ c·ν is an image of it, in E(P, q'), and the next ζ in E(W·P·Wᵀ, q').
(Where S is singular, as in `ellipsoids`.) After the last layer q' >= 0, which is (2). So K > 0 is needed for *every*
layer, the last one included. ∎

WHERE D IS NEGATIVE it makes the ellipsoid smaller. Let c_k >= 0, c_k² <= -D_k, C = diag(c), and G be any matrix. Then S
may be replaced by J = (I - G·C)·S·(I - G·C)ᵀ + G·Gᵀ, and q by q + |C·ζ|²: if (dᵀζ)² <= q·dᵀSd for all d, then

    (dᵀζ)² = (dᵀ(I - GC)ζ + (Gᵀd)ᵀ(Cζ))² <= (q + |Cζ|²)·dᵀJd                         (Cauchy-Schwarz, twice).

|C·ζ|² is at most what -Σ D·ζ² has of these, so (2) stands. (For S·C·(C·S·C + I)⁻¹ J is the least: that is a guess.)

THE BOUND. By (2) Φ is at least η·(γ·||·||² + Σ α·(·)²) above its tangent at any point, so with its gradient g there

    Φ  >=  Φ(point) - (||g_δ||²/γ + Σ g_ν²/α)/(4η)       everywhere.                                              (3)

The point is a guess; value and gradient at it are enclosed, by one pass forward and one back. Near the least value the
correction is next to nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from intervalcert.backends.protocol import Backend, Floats, Indices, Matrix
from intervalcert.errors import UndecidedError
from intervalcert.model.network import Network
from intervalcert.numbers.matrices import RationalMatrix, exact_integers
from intervalcert.numbers.parsing import MAX_BINARY_EXPONENT
from intervalcert.proof.data import Witness
from intervalcert.proof.ellipsoids import LoewnerMajorant, Step, are_finite, check_majorant, check_step, point
from intervalcert.proof.hinges import (
    ETA,
    DualClaim,
    DualPoint,
    DualWitness,
    Goal,
    Hinge,
    Range,
    Splits,
    checked_gamma,
    checked_hinge,
    claim_of,
    of_hinge,
    roots_above,
    slopes_of,
    sum_of_bends,
)
from intervalcert.proof.local import bent_layers

__all__ = ["DualChecker", "DualStep", "has_dual"]


@dataclass(frozen=True, eq=False, repr=False)
class DualStep(Witness):
    """Of one hidden layer: which neurons go on, S from above on the scale 2^exponent of the P before it, v, and B.

    drop: c of these neurons; gain: the columns of G where it is not zero. None of both if there are no columns.
    """

    kept: Indices
    exponent: int
    s: LoewnerMajorant
    step: Step
    drop: Floats
    gain: Floats


def has_dual(network: Network) -> bool:
    """Whether it is a chain of matrices and piecewise linear functions, at least one of them, and known exactly."""
    functions = [layer.activation for layer in network.layers[:-1]]
    known = all(function is not None and function.piecewise_linear is not None for function in functions)
    return network.is_dense and network.is_exact and len(functions) > 0 and known


class DualChecker:
    """Checks duals for points of one network on one number system, with what all points share."""

    def __init__(self, network: Network, backend: Backend[Any], norms: Sequence[Fraction]) -> None:
        """norms: upper bounds of the operator norms of the weights. Requires: `has_dual`."""
        if not has_dual(network):
            raise ValueError("a network without a quadratic dual")
        self._network, self._backend = network, backend
        self._functions = [function for function, _ in bent_layers(network)]
        made = {id(layer.weights): backend.matrix(layer.weights) for layer in network.layers}
        self._weights = [made[id(layer.weights)] for layer in network.layers]
        bounded = zip(self._weights, norms, strict=True)  # an error of a vector grows by the norm, no more
        self._forth = [weights.with_norm_bound(norm) for weights, norm in bounded]
        bounded = zip(self._weights, norms, strict=True)
        self._back = [weights.transposed().with_norm_bound(norm) for weights, norm in bounded]
        self._biases = [None if layer.bias is None else backend.matrix(layer.bias) for layer in network.layers]
        self._first = self._weights[0] @ self._weights[0].transposed()

    def check(
        self,
        witness: DualWitness,
        steps: Sequence[DualStep],
        at: DualPoint,
        x: RationalMatrix,
        ranges: Sequence[Range],
        eps: Fraction,
        above: Fraction = Fraction(0),
        splits: Splits | None = None,
    ) -> DualClaim:
        """The claim that the witness's goal is above that number at every input within eps of x (in the halfspaces, if
        there are some).

        Requires: `ranges` hold the values of all hidden neurons at those inputs. x: a column (`Network.entered`).
        Raises: InconclusiveError unless that is proved here.
        """
        goal, known = witness.goal, splits or {}
        gamma = checked_gamma(witness, at, len(self._functions), ranges, eps, known)
        if len(steps) != goal.site:
            raise UndecidedError("steps of other layers")
        hinges = [
            self._hinges(index, witness.numbers[index], at.nu[index], ranges[index], known)
            for index in range(goal.site)
        ]
        self._check_convex(gamma, hinges, steps)
        bound = self._bound(gamma, hinges, at.delta, x, goal, eps)
        return claim_of(bound, goal, above, known, self._backend.name)

    # -- the terms: exact comparisons and numbers ------------------------------------------------------------------

    def _hinges(
        self, layer: int, numbers: Sequence[Floats], nu: Sequence[Floats], ends: Range, splits: Splits
    ) -> list[Hinge]:
        """Raises: UndecidedError for multipliers that are none."""
        function = self._functions[layer]
        if not len(numbers) == len(nu) == len(function.hinges):
            raise UndecidedError("multipliers of other hinges")
        found = []
        for index, (weight, kink) in enumerate(function.hinges):
            own = of_hinge(splits, layer, index)
            found.append(checked_hinge(kink, weight, numbers[index], nu[index], ends, own))
        return found

    # -- convex ----------------------------------------------------------------------------------------------------

    def _check_convex(self, gamma: Fraction, hinges: Sequence[Sequence[Hinge]], steps: Sequence[DualStep]) -> None:
        """Raises: UndecidedError unless (2) is proved."""
        backend, total, kept = self._backend, 0, np.zeros(0, dtype=np.intp)
        before: Matrix[Any] | None = None
        for index, (own, step) in enumerate(zip(hinges, steps, strict=True)):
            rows = len(own[0].alpha) if own else self._network.layers[index].shape[0]
            slopes, spread = slopes_of(self._functions[index], own, rows)
            if not index:
                s = self._first.scalar_mul(backend.scalar(1 / (gamma * (1 - ETA))))
            elif before is None or not len(kept):  # nothing that comes later can change: so nothing may be free
                if any(hinge.alpha.any() for later in hinges[index:] for hinge in later):
                    raise UndecidedError("a hinge bends of which nothing that changes is known")
                return
            else:
                w = self._weights[index]
                w = w.block(np.arange(w.shape[0]), kept)
                s = w @ before @ w.transposed()
            if abs(step.exponent) > MAX_BINARY_EXPONENT:
                raise UndecidedError("a step on a scale far from that of the layer")
            total += step.exponent
            kept = _checked_kept(step, slopes, spread, own, total)
            if not len(kept):
                continue
            above = check_majorant(s.ldexp(-step.exponent).block(kept, kept), step.s, backend)
            above = _dropped(above, step, backend)
            check_step(step.step, above, backend)
            column = backend.matrix(RationalMatrix.from_fractions([[slopes[k]] for k in kept.tolist()]))
            b = point(step.step.after, backend).row_scaled(column)
            b = b.transposed().row_scaled(column)
            more = _scaled_up(spread[kept], -total)
            if not np.isfinite(more).all():
                raise UndecidedError("numbers beyond the floats")
            before = b + point(np.diag(more), backend)

    # -- the bound -------------------------------------------------------------------------------------------------

    def _bound(
        self,
        gamma: Fraction,
        hinges: Sequence[Sequence[Hinge]],
        delta: Floats,
        x: RationalMatrix,
        goal: Goal,
        eps: Fraction,
    ) -> Matrix[Any]:
        """A number that (3) is at least, as a matrix. Raises: UndecidedError for a point that is none."""
        backend = self._backend
        if delta.shape != (self._network.inputs,) or delta.dtype != np.float64 or not np.isfinite(delta).all():
            raise UndecidedError("a change of another input")
        moved, one = point(delta[:, None], backend), point(np.ones((1, 1)), backend)
        value = one.scalar_mul(backend.scalar(gamma) * (moved.frobenius_squared() - backend.scalar(eps**2)))
        y = backend.matrix(x) + moved
        shifted: list[list[Matrix[Any]]] = []
        for index, own in enumerate(hinges):
            z = self._affine(index, y)
            function = self._functions[index]
            parts = [z.scalar_mul(backend.scalar(function.slope))] if function.slope or not own else []
            shifted.append([])
            for hinge in own:
                from_kink = z if not hinge.kink else z - _filled(z, hinge.kink, backend)
                nu = point(hinge.nu[:, None], backend)
                given = _times(from_kink, hinge.middle) + nu
                value = value + self._terms(hinge, from_kink, given, nu)
                parts.append(given.scalar_mul(backend.scalar(hinge.weight)))
                shifted[-1].append(from_kink)
            if function.offset:
                parts.append(_filled(z, function.offset, backend))
            y = reduce(add, parts)
        values = self._affine(goal.site, y)
        pick = point(goal.signs(values.shape[0]), backend)
        value = value + pick @ values
        cost = (pick @ self._weights[goal.site]).transposed()
        return value - one.scalar_mul(self._correction(gamma, hinges, shifted, moved, cost))

    def _affine(self, index: int, y: Matrix[Any]) -> Matrix[Any]:
        z, bias = self._forth[index] @ y, self._biases[index]
        return z if bias is None else z + bias

    def _terms(self, hinge: Hinge, z: Matrix[Any], y: Matrix[Any], nu: Matrix[Any]) -> Matrix[Any]:
        """(1), summed over the neurons."""
        backend = self._backend
        bent = _times(z, hinge.middle)
        total = nu.transposed() @ _times(nu, hinge.alpha) - bent.transposed() @ _times(bent, hinge.alpha)
        total = total + z.transposed() @ _times(z, hinge.numbers[2])
        total = total + backend.matrix(hinge.p.transposed()) @ y + backend.matrix(hinge.r.transposed()) @ z
        return total + _filled(total, hinge.constant, backend)

    def _correction(
        self,
        gamma: Fraction,
        hinges: Sequence[Sequence[Hinge]],
        shifted: Sequence[Sequence[Matrix[Any]]],
        moved: Matrix[Any],
        cost: Matrix[Any],
    ) -> Any:
        """(||g_δ||²/γ + Σ g_ν²/α)/(4η), from above. cost: of what the last hidden layer gives, by the lead."""
        backend, total = self._backend, self._backend.scalar(Fraction(0))
        two = backend.scalar(Fraction(2))
        for index in range(len(hinges) - 1, -1, -1):
            function = self._functions[index]
            parts = [cost.scalar_mul(backend.scalar(function.slope))] if function.slope or not hinges[index] else []
            for hinge, z in zip(hinges[index], shifted[index], strict=True):
                by_y = cost.scalar_mul(backend.scalar(hinge.weight)) + backend.matrix(hinge.p)
                nu = point(hinge.nu[:, None], backend)
                by_nu = _times(nu, hinge.alpha).scalar_mul(two) + by_y
                total = total + _times(by_nu, roots_above(hinge.alpha)).frobenius_squared()
                bent = _times(_times(_times(z, hinge.middle), hinge.alpha), hinge.middle) - _times(z, hinge.numbers[2])
                parts.append(_times(by_y, hinge.middle) + backend.matrix(hinge.r) - bent.scalar_mul(two))
            cost = self._back[index] @ reduce(add, parts)
        slope = moved.scalar_mul(backend.scalar(2 * gamma)) + cost
        total = total + slope.frobenius_squared() * backend.scalar(1 / gamma)
        return total * backend.scalar(1 / (4 * ETA))


def _checked_kept(
    step: DualStep, slopes: Sequence[Fraction], spread: Floats, hinges: Sequence[Hinge], total: int
) -> Indices:
    """The neurons that go on. Raises: UndecidedError unless all that may change do, and v is large enough.

    total: the scale of S; v on that scale is v·2^-(total/2) on the network's.
    """
    kept, rows, own = step.kept, len(slopes), step.step
    if kept.ndim != 1 or kept.dtype != np.intp or (np.diff(kept) <= 0).any() or not ((kept >= 0) & (kept < rows)).all():
        raise UndecidedError("neurons that are kept are named once, in order")
    left_out = np.ones(rows, dtype=bool)
    left_out[kept] = False
    if spread[left_out].any() or any(slopes[k] for k in np.flatnonzero(left_out).tolist()):
        raise UndecidedError("a neuron that may change was left out")
    if own.v.shape != kept.shape or own.sector.middle.shape != kept.shape or (own.sector.middle != 1).any():
        raise UndecidedError("a step of other neurons, or of another slope")
    (v, unit), up, down = exact_integers(own.v), max(total, 0), max(-total, 0)
    bends = sum_of_bends(hinges)
    if bends is not None and not ((v * v * bends[1] << down) >= ((bends[0][kept] * unit**2) << up)).all():
        raise UndecidedError("a step does not cover how far the neurons bend")
    if step.drop.shape != kept.shape or step.gain.shape != (len(kept), np.count_nonzero(step.drop)):
        raise UndecidedError("a step of other neurons")
    if not are_finite(step.drop, step.gain) or (step.drop < 0).any():
        raise UndecidedError("what a step takes off is no number")
    if step.drop.any():
        c, over = exact_integers(step.drop)
        if (
            bends is None
            or not ((c * c * bends[1] << down) <= ((-bends[0][kept] * over**2) << up))[step.drop > 0].all()
        ):
            raise UndecidedError("a step takes off more than the neurons bend back")
    return kept


def _dropped(s: Matrix[Any], step: DualStep, backend: Backend[Any]) -> Matrix[Any]:
    """J. s: S', of the neurons that are kept."""
    some = np.flatnonzero(step.drop)
    if not len(some):
        return s
    every, gain = np.arange(s.shape[0]), point(step.gain, backend)
    c, ones = step.drop[some], np.ones(s.shape[0])
    left = s - gain @ s.block(some, every).diag_scaled(c, ones)  # (I - GC)·S
    return left - left.block(every, some).diag_scaled(ones, c) @ gain.transposed() + gain @ gain.transposed()


def _scaled_up(x: Floats, exponent: int) -> Floats:
    """Floats at least x·2^exponent, zero only where x is: what is too small for a float is more than zero."""
    with np.errstate(over="ignore"):  # infinite: for the caller to refuse
        found: Floats = np.where(x > 0, np.nextafter(np.ldexp(x, exponent), np.inf), 0.0)
    return found


def _times(column: Matrix[Any], factors: Floats) -> Matrix[Any]:
    return column.diag_scaled(factors, np.ones(1))


def _filled(column: Matrix[Any], value: Fraction, backend: Backend[Any]) -> Matrix[Any]:
    return backend.matrix(RationalMatrix.filled(column.shape, value))
