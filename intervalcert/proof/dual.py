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

A hinge that does not bend is no variable: y = z if z >= 0 everywhere (M = 1), y = 0 if z <= 0 (M = 0). So δ and the ν
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

THE BOUND. By (2) Φ is at least η·(γ·||·||² + Σ α·(·)²) above its tangent at any point, so with its gradient g there

    Φ  >=  Φ(point) - (||g_δ||²/γ + Σ g_ν²/α)/(4η)       everywhere.                                              (3)

The point is a guess; value and gradient at it are enclosed, by one pass forward and one back. Near the least value the
correction is next to nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from intervalcert.backends.protocol import Backend, Floats, Indices, Matrix
from intervalcert.errors import UndecidedError
from intervalcert.model.activations import PiecewiseLinear
from intervalcert.model.network import Network
from intervalcert.numbers.matrices import IntegerArray, RationalMatrix, exact_integers
from intervalcert.numbers.parsing import MAX_BINARY_EXPONENT
from intervalcert.numbers.upward import float_up
from intervalcert.proof.data import Witness
from intervalcert.proof.ellipsoids import LoewnerMajorant, Step, check_majorant, check_step, point
from intervalcert.proof.local import bent_layers

__all__ = [
    "ETA",
    "NAMES",
    "DualChecker",
    "DualClaim",
    "DualPoint",
    "DualStep",
    "DualWitness",
    "Range",
    "Splits",
    "has_dual",
]

ETA = Fraction(1, 2**30)

NAMES = ("alpha", "middle", "lambda3", "lambda4", "lambda5", "lambda6", "split")
"""The rows of the numbers of a hinge, one column for each neuron. alpha is 0 where it does not bend; split is β·s."""

Range = tuple[Floats, Floats]
"""Of a layer: floats between which each neuron's value stays at all inputs within eps; proved."""

Splits = Mapping[tuple[int, int, int], int]
"""(layer, hinge, neuron) -> s of the halfspace s·(z - kink) <= 0 that one is in."""


@dataclass(frozen=True, eq=False, repr=False)
class DualWitness(Witness):
    """The multipliers that prove a lead of the winner over the target.

    numbers: of each hidden layer, for each hinge of its function, a matrix with the rows `NAMES`.
    """

    target: int
    gamma: float
    numbers: tuple[tuple[Floats, ...], ...]


@dataclass(frozen=True, eq=False, repr=False)
class DualStep(Witness):
    """Of one hidden layer: which neurons go on, S from above on the scale 2^exponent of the P before it, v, and B."""

    kept: Indices
    exponent: int
    s: LoewnerMajorant
    step: Step


@dataclass(frozen=True, eq=False, repr=False)
class DualPoint(Witness):
    """The point of (3): δ, and ν of each hinge of each layer (zero where it does not bend)."""

    delta: Floats
    nu: tuple[tuple[Floats, ...], ...]


@dataclass(frozen=True)
class DualClaim:
    """At every input within eps the winner's logit is more than so much above the target's; by that number system."""

    target: int
    proved_by: str


@dataclass(frozen=True, eq=False)
class _Hinge:
    """One hinge of a layer's function, with numbers for each neuron, exactly: integers over a denominator."""

    kink: Fraction
    weight: Fraction
    numbers: Floats
    nu: Floats
    p: RationalMatrix
    r: RationalMatrix
    constant: Fraction
    bend: tuple[IntegerArray, int]
    """D."""

    @property
    def alpha(self) -> Floats:
        found: Floats = self.numbers[0]
        return found

    @property
    def middle(self) -> Floats:
        found: Floats = self.numbers[1]
        return found


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
        winner: int,
        eps: Fraction,
        deduction: Fraction = Fraction(0),
        splits: Splits | None = None,
    ) -> DualClaim:
        """The claim that the winner leads the target by more than the deduction at every input within eps of x (in
        the halfspaces, if there are some).

        Requires: `ranges` hold the values of all hidden neurons at those inputs. x: a column (`Network.entered`).
        Raises: InconclusiveError unless that is proved here.
        """
        outputs = self._network.outputs
        if not (0 <= witness.target < outputs and 0 <= winner < outputs and witness.target != winner and eps >= 0):
            raise UndecidedError("a dual of no two classes, or of no eps")
        gamma = Fraction(witness.gamma) if math.isfinite(witness.gamma) else Fraction(0)
        if gamma <= 0 or not len(witness.numbers) == len(ranges) == len(steps) == len(at.nu) == len(self._functions):
            raise UndecidedError("a dual without a multiplier of the distance, or of other layers")
        hinges = [
            self._hinges(index, witness.numbers[index], at.nu[index], ranges[index], splits or {})
            for index in range(len(self._functions))
        ]
        self._check_convex(gamma, hinges, steps)
        bound = self._bound(gamma, hinges, at.delta, x, winner, witness.target, eps)
        lower = float(bound.float_bounds()[0][0, 0])
        if not (math.isfinite(lower) and Fraction(lower) > deduction):
            raise UndecidedError("a lead is not proved to last")
        return DualClaim(witness.target, self._backend.name)

    # -- the terms: exact comparisons and numbers ------------------------------------------------------------------

    def _hinges(
        self, layer: int, numbers: Sequence[Floats], nu: Sequence[Floats], ends: Range, splits: Splits
    ) -> list[_Hinge]:
        """Raises: UndecidedError for multipliers that are none."""
        function = self._functions[layer]
        if not len(numbers) == len(nu) == len(function.hinges):
            raise UndecidedError("multipliers of other hinges")
        found = []
        for index, (weight, kink) in enumerate(function.hinges):
            own = {neuron: s for (at, hinge, neuron), s in splits.items() if (at, hinge) == (layer, index)}
            found.append(_checked_hinge(kink, weight, numbers[index], nu[index], ends, own))
        return found

    # -- convex ----------------------------------------------------------------------------------------------------

    def _check_convex(self, gamma: Fraction, hinges: Sequence[Sequence[_Hinge]], steps: Sequence[DualStep]) -> None:
        """Raises: UndecidedError unless (2) is proved."""
        backend, total, kept = self._backend, 0, np.zeros(0, dtype=np.intp)
        before: Matrix[Any] | None = None
        for index, (own, step) in enumerate(zip(hinges, steps, strict=True)):
            rows = len(own[0].alpha) if own else self._network.layers[index].shape[0]
            slopes, spread = _slopes(self._functions[index], own, rows)
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
        hinges: Sequence[Sequence[_Hinge]],
        delta: Floats,
        x: RationalMatrix,
        winner: int,
        target: int,
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
        logits = self._affine(len(hinges), y)
        signs = np.zeros((1, logits.shape[0]))
        signs[0, winner], signs[0, target] = 1.0, -1.0
        pick = point(signs, backend)
        value = value + pick @ logits
        cost = (pick @ self._weights[-1]).transposed()
        return value - one.scalar_mul(self._correction(gamma, hinges, shifted, moved, cost))

    def _affine(self, index: int, y: Matrix[Any]) -> Matrix[Any]:
        z, bias = self._forth[index] @ y, self._biases[index]
        return z if bias is None else z + bias

    def _terms(self, hinge: _Hinge, z: Matrix[Any], y: Matrix[Any], nu: Matrix[Any]) -> Matrix[Any]:
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
        hinges: Sequence[Sequence[_Hinge]],
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
                total = total + _times(by_nu, _roots_above(hinge.alpha)).frobenius_squared()
                bent = _times(_times(_times(z, hinge.middle), hinge.alpha), hinge.middle) - _times(z, hinge.numbers[2])
                parts.append(_times(by_y, hinge.middle) + backend.matrix(hinge.r) - bent.scalar_mul(two))
            cost = self._back[index] @ reduce(add, parts)
        slope = moved.scalar_mul(backend.scalar(2 * gamma)) + cost
        total = total + slope.frobenius_squared() * backend.scalar(1 / gamma)
        return total * backend.scalar(1 / (4 * ETA))


def _checked_hinge(
    kink: Fraction, weight: Fraction, numbers: Floats, nu: Floats, ends: Range, splits: Mapping[int, int]
) -> _Hinge:
    """The numbers of one hinge. splits: s of the neurons that are in a halfspace.

    Raises: UndecidedError unless they are multipliers, and each hinge that is no variable does not bend.
    """
    low, high = ends
    rows = len(low)
    if numbers.shape != (len(NAMES), rows) or not low.shape == high.shape == nu.shape == (rows,):
        raise UndecidedError("multipliers of other neurons")
    if not all(array.dtype == np.float64 and np.isfinite(array).all() for array in (numbers, nu, low, high)):
        raise UndecidedError("multipliers, or values, that are not finite")
    (all_of_them, unit), (least, most, over) = exact_integers(numbers.ravel()), _from_kink(low, high, kink)
    alpha, middle, three, four, five, six, split = all_of_them.reshape(len(NAMES), rows)
    bends = numbers[0] > 0
    signs = np.zeros(rows, dtype=np.int64)
    for neuron, sign in splits.items():
        if sign not in (-1, 1) or not 0 <= neuron < rows:
            raise UndecidedError("a halfspace without a sign, or of no neuron")
        signs[neuron] = sign
    is_line = ~bends & (numbers[1] == 1) & ((least >= 0).astype(bool) | (signs == -1))
    is_zero = ~bends & (numbers[1] == 0) & ((most <= 0).astype(bool) | (signs == 1))
    if not (bends | is_line | is_zero).all() or (bends & (signs != 0)).any():
        raise UndecidedError("a hinge that may bend is taken for a line, or the other way round")
    if (numbers[2:6] < 0).any() or (numbers[0] < 0).any() or numbers[2:6, ~bends].any() or nu[~bends].any():
        raise UndecidedError("multipliers of the wrong sign, or where there are none")
    if (numbers[6] * signs < 0).any() or numbers[6, signs == 0].any():
        raise UndecidedError("a halfspace on the wrong side")
    two = np.where(bends, alpha * (unit - 2 * middle) + three * unit, 0)  # over unit²
    if (two < 0).any():
        raise UndecidedError("multipliers of the wrong sign")
    lower, upper = np.where(least < 0, least, 0), np.where(most > 0, most, 0)  # l and u, over `over`
    p = -two * upper + ((three * lower + six * (upper - lower)) - (four + five) * over) * unit  # over unit²·over
    r = (five + split) * over - three * lower - six * upper  # over unit·over
    constant = Fraction(int((six * upper * lower).sum()), unit * over**2)
    bend = np.where(bends, alpha * middle * middle - three * unit * unit, 0)  # over unit³
    return _Hinge(
        kink,
        weight,
        numbers,
        nu,
        RationalMatrix(np.where(bends, p, 0)[:, None], unit**2 * over),
        RationalMatrix(r[:, None], unit * over),
        constant,
        (bend, unit**3),
    )


def _from_kink(low: Floats, high: Floats, kink: Fraction) -> tuple[IntegerArray, IntegerArray, int]:
    """The ends less the kink, as integers over a common denominator."""
    ends, unit = exact_integers(np.concatenate([low, high]))
    moved = ends * kink.denominator - kink.numerator * unit
    return moved[: len(low)], moved[len(low) :], unit * kink.denominator


def _slopes(function: PiecewiseLinear, hinges: Sequence[_Hinge], rows: int) -> tuple[list[Fraction], Floats]:
    """A of each neuron, exactly, and floats that are at least Σ c²/(α·(1 - η))."""
    slopes, spread = [function.slope] * rows, [Fraction(0)] * rows
    for hinge in hinges:
        for k, (alpha, middle) in enumerate(zip(hinge.alpha.tolist(), hinge.middle.tolist(), strict=True)):
            if middle:
                slopes[k] += hinge.weight * Fraction(middle)
            if alpha:
                spread[k] += hinge.weight**2 / (Fraction(alpha) * (1 - ETA))
    return slopes, np.array([float_up(x) for x in spread])


def _checked_kept(
    step: DualStep, slopes: Sequence[Fraction], spread: Floats, hinges: Sequence[_Hinge], total: int
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
    for bend, over in _sums([hinge.bend for hinge in hinges]):
        if not ((v * v * over << down) >= ((bend[kept] * unit**2) << up)).all():
            raise UndecidedError("a step does not cover how far the neurons bend")
    return kept


def _sums(parts: Sequence[tuple[IntegerArray, int]]) -> list[tuple[IntegerArray, int]]:
    """Their sum, if there are some."""
    if not parts:
        return []
    total, over = parts[0]
    for more, other in parts[1:]:
        total, over = total * other + more * over, over * other
    return [(total, over)]


def _scaled_up(x: Floats, exponent: int) -> Floats:
    """Floats at least x·2^exponent, zero only where x is: what is too small for a float is more than zero."""
    with np.errstate(over="ignore"):  # infinite: for the caller to refuse
        found: Floats = np.where(x > 0, np.nextafter(np.ldexp(x, exponent), np.inf), 0.0)
    return found


def _roots_above(alpha: Floats) -> Floats:
    """Numbers r with r²·α >= 1, where α is not zero. Raises: UndecidedError if floats end there."""
    some = alpha > 0
    roots = np.zeros(len(alpha))
    roots[some] = (1 / np.sqrt(alpha[some])) * (1 + 2.0**-48)
    (r, d), (a, e) = exact_integers(roots), exact_integers(alpha)
    if not (r * r * a >= d * d * e)[some].all():
        raise UndecidedError("multipliers at the ends of the floats")
    return roots


def _times(column: Matrix[Any], factors: Floats) -> Matrix[Any]:
    return column.diag_scaled(factors, np.ones(1))


def _filled(column: Matrix[Any], value: Fraction, backend: Backend[Any]) -> Matrix[Any]:
    return backend.matrix(RationalMatrix.filled(column.shape, value))
