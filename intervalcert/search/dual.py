"""The quadratic dual of a lead at one input, in plain floats: its value, its derivatives, and the way up.

`proof.dual` has the mathematics, and checks what comes of it; nothing here is trusted. For given multipliers the form Φ
of all changes (of the input, and of what each hinge gives) has a least value, which no lead is below. Here it is found
by going through the layers once, as the chain of ellipsoids does, but with means:

    forward   S = W·P·Wᵀ,   B = (S⁻¹ - D)⁻¹,   P = M·B·M + Σ c²/α,   with the mean of each, and what was left behind;
    backward  costates: the change at which the least value is attained, without any inverse; and what is known of the
              changes (their covariances, if exp(-Φ) were their density), from the end.

By the envelope theorem the derivative of the least value by a multiplier is the constraint at that change. Its second
derivative along itself is -½·∇gᵀ·Cov·∇g: the diagonal that makes a quasi-Newton ascent quick. log det, times a weight μ
that falls, keeps Φ away from where it has no least value.

A hinge's multipliers are α = λ1 + λ2 + λ3, and λ2 … λ6; all of them, and γ, are positive: their logarithms vary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from intervalcert.backends.protocol import Floats, Indices

__all__ = ["DualForm", "HingeLayer", "Solution", "ascent"]

MULTIPLIERS = 6
"""Of a hinge: α, λ2, …, λ6."""

_RIDGE = 1e-13
"""S is taken larger by this part of its mean diagonal, where floats would call it indefinite."""


_LEAST = 2.0**-6
"""The least diagonal of the root of I - LᵀDL that is believed."""


@dataclass(frozen=True, eq=False)
class HingeLayer:
    """One hidden layer at the input: W, and f(z) = base·z + Σ c·max(z - k, 0) of those hinges that may bend.

    base: the slope of each neuron without these. neuron: which one a hinge is of; weight: c. at: z - k at the input;
    low, high: between what it stays. pull: of each neuron, what splits add to Φ per unit of z; constant: and beside
    that.
    """

    weights: Floats
    base: Floats
    neuron: Indices
    weight: Floats
    at: Floats
    low: Floats
    high: Floats

    @property
    def count(self) -> int:
        return len(self.neuron)


@dataclass(frozen=True, eq=False)
class Solution:
    """The least value of Φ, its log det, their derivatives by the multipliers, and where it is attained.

    gradient, curvature: by each multiplier of (least value + μ·log det), and minus its second derivative.
    pulled: ∂Φ/∂z of the first layer at the change where the value is attained: δ is -Wᵀ·pulled/(2γ).
    zeta, nu: the change of each layer's z, and of what each hinge gives less M times that.
    """

    value: float
    log_det: float
    gradient: Floats
    curvature: Floats
    pulled: Floats
    zeta: tuple[Floats, ...]
    nu: tuple[Floats, ...]


@dataclass(frozen=True, eq=False)
class _Passed:
    """What is kept of a layer on the way forward."""

    b: Floats
    d: Floats
    inner: Floats
    middle: Floats
    mean: Floats
    linear: Floats
    hinges: _Hinges


@dataclass(frozen=True, eq=False)
class _Hinges:
    """Of the hinges of a layer: α, M, D and the linear terms p of ν, and the multipliers themselves."""

    alpha: Floats
    middle: Floats
    bend: Floats
    p: Floats
    r: Floats
    constant: float

    @staticmethod
    def of(layer: HingeLayer, multipliers: Floats) -> _Hinges:
        alpha, two, three, four, five, six = multipliers
        one = alpha - two - three
        low, high, z = layer.low, layer.high, layer.at
        y = np.maximum(z, 0.0)
        w = y - z
        middle = (one + 2 * three) / (2 * alpha)
        p = one * (2 * y - z) + two * (2 * y - high) + three * (2 * w + low) - four - five + six * (high - low)
        r = -one * y - three * (2 * w + low) + five - six * high
        constant = one * y * w + two * y * (y - high) + three * w * (w + low) - four * y - five * w
        constant += six * ((high - low) * y - high * z + high * low)
        return _Hinges(alpha, middle, alpha * middle**2 - three, p, r, float(constant.sum()))


class DualForm:
    """Φ for the leads of one winner at one input."""

    def __init__(self, layers: Sequence[HingeLayer], gram: Floats, eps: float) -> None:
        """gram: W·Wᵀ of the first layer."""
        self.layers, self._gram, self._eps = tuple(layers), gram, eps
        self.size = 1 + MULTIPLIERS * sum(layer.count for layer in layers)

    def split(self, multipliers: Floats) -> tuple[float, list[Floats]]:
        """γ, and those of each layer (6 x hinges)."""
        found, at = [], 1
        for layer in self.layers:
            wide = MULTIPLIERS * layer.count
            found.append(multipliers[at : at + wide].reshape(MULTIPLIERS, -1))
            at += wide
        return float(multipliers[0]), found

    def solved(self, multipliers: Floats, direction: Floats, lead: float, weight: float) -> Solution:
        """direction: of the lead, by what the last hidden layer gives. lead: at the input. weight: μ.

        Raises: LinAlgError where Φ has no least value, as far as floats tell.
        """
        gamma, parts = self.split(multipliers)
        passed: list[_Passed] = []
        value, log_det = lead - gamma * self._eps**2, self.layers[0].weights.shape[0] * np.log(gamma)
        spread: Floats | None = None
        mean = np.zeros(0)
        for layer, part in zip(self.layers, parts, strict=True):
            if spread is None:
                s, mean = self._gram / gamma, np.zeros(len(self._gram))
            else:
                s, mean = layer.weights @ spread @ layer.weights.T, layer.weights @ mean
            step, gained, lost = _forward(layer, _Hinges.of(layer, part), s, mean)
            value, log_det = value + gained, log_det + lost
            hinges = step.hinges
            spread = step.middle[:, None] * step.b * step.middle
            np.add.at(spread, (layer.neuron, layer.neuron), layer.weight**2 / hinges.alpha)
            mean = step.middle * step.mean
            np.add.at(mean, layer.neuron, -layer.weight * hinges.p / (2 * hinges.alpha))
            passed.append(step)
        if spread is None:
            raise ValueError("a network without hidden layers")
        value += float(direction @ mean - direction @ (spread @ direction) / 4)
        return self._backward(gamma, passed, direction, value, log_det, weight)

    def _backward(
        self, gamma: float, passed: Sequence[_Passed], cost: Floats, value: float, log_det: float, mu: float
    ) -> Solution:
        known: Floats | None = None
        gradients, curvatures, zetas, nus = [], [], [], []
        pulled = np.zeros(0)
        for index in range(len(passed) - 1, -1, -1):
            layer, step = self.layers[index], passed[index]
            some, hinges, b = layer.neuron, step.hinges, step.b
            zeta = step.mean - (b @ (step.middle * cost)) / 2
            nu = -(hinges.p + layer.weight * cost[some]) / (2 * hinges.alpha)
            zetas.append(zeta)
            nus.append(nu)
            var, covar, own = _covariances(layer, step, known)
            found = _derivatives(layer, zeta[some], hinges.middle * zeta[some] + nu, var, covar, own, mu)
            gradients.append(found[0].ravel())
            curvatures.append(found[1].ravel())
            pulled = step.middle * cost + step.linear - 2 * step.d * zeta
            known = _information(step, known)
            if index:
                known = layer.weights.T @ known @ layer.weights
                cost = layer.weights.T @ pulled
        if known is None:
            raise ValueError("a network without hidden layers")
        moved = -(self._gram @ pulled) / (2 * gamma)  # W·δ
        square = float(-(pulled @ moved) / (2 * gamma))
        wide = len(self._gram)
        by_gamma = square - self._eps**2 + mu * (wide / gamma - float((known * self._gram).sum()) / gamma**2)
        bent = 2 * (square / gamma - float(moved @ known @ moved) / gamma**2) + mu * wide / gamma**2
        return Solution(
            value,
            log_det,
            np.concatenate([[by_gamma], *reversed(gradients)]),
            np.concatenate([[bent], *reversed(curvatures)]),
            pulled,
            tuple(reversed(zetas)),
            tuple(reversed(nus)),
        )


def _forward(layer: HingeLayer, hinges: _Hinges, s: Floats, mean: Floats) -> tuple[_Passed, float, float]:
    """Through one layer; what is added to the least value, and to log det."""
    count = len(s)
    bend, linear, middle = (np.zeros(count) for _ in range(3))
    middle += layer.base
    np.add.at(bend, layer.neuron, hinges.bend)
    np.add.at(middle, layer.neuron, layer.weight * hinges.middle)
    np.add.at(linear, layer.neuron, hinges.r + hinges.middle * hinges.p)
    some = np.unique(layer.neuron)
    b, inner, lost = _without(s, bend, some)
    lost += float(np.log(hinges.alpha).sum())
    turn = bend * mean - linear / 2
    moved = b @ turn
    gained = hinges.constant + float(linear @ mean - (bend * mean) @ mean - turn @ moved)
    gained -= float((hinges.p**2 / (4 * hinges.alpha)).sum())
    return _Passed(b, bend, inner, middle, mean + moved, linear, hinges), gained, lost


def _without(s: Floats, bend: Floats, some: Indices) -> tuple[Floats, Floats, float]:
    """B = (S⁻¹ - D)⁻¹, D + D·B·D among the neurons that bend, and log det of I - LᵀDL. Raises: LinAlgError."""
    from scipy.linalg import cholesky, solve_triangular  # a fifth of a second, which most commands do without

    s = (s + s.T) / 2
    if not len(some):
        return s, np.zeros((0, 0)), 0.0
    d, part = bend[some], s[np.ix_(some, some)]
    root = _root(part)
    kept = cholesky(np.eye(len(some)) - root.T @ (d[:, None] * root), lower=True, check_finite=False)
    if float(kept.diagonal().min()) < _LEAST:
        raise np.linalg.LinAlgError("a form that is nearly flat in some direction: floats do not tell")
    x = solve_triangular(kept, root.T, lower=True, check_finite=False)
    inner = d[:, None] * (x.T @ x) * d
    inner.flat[:: len(some) + 1] += d
    across = s[:, some]
    found: Floats = s + across @ inner @ across.T
    return found, inner, 2 * float(np.log(kept.diagonal()).sum())


def _root(s: Floats) -> Floats:
    """A matrix whose square S is, or nearly: S has no full rank where a layer is wider than the one before."""
    from scipy.linalg import cholesky

    ridge = _RIDGE * float(np.trace(s)) / len(s)
    try:
        found: Floats = cholesky(s + ridge * np.eye(len(s)), lower=True, check_finite=False)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(s)
        found = vectors * np.sqrt(np.maximum(values, 0.0))
    return found


def _covariances(layer: HingeLayer, step: _Passed, known: Floats | None) -> tuple[Floats, Floats, Floats]:
    """Of each hinge: the variance of ζ, the covariance of ζ and Δ, the variance of Δ (its own, without the weight)."""
    some, hinges = layer.neuron, step.hinges
    var = step.b[some, some]
    across, own = np.zeros(len(some)), 1 / hinges.alpha
    if known is not None:
        turned = step.b[some] * step.middle
        seen = turned @ known
        var = var - (seen * turned).sum(axis=1)
        ratio = layer.weight / hinges.alpha
        across = -seen[np.arange(len(some)), some] * ratio
        own = own - ratio**2 * known[some, some]
    m = hinges.middle
    return var, m * var + across, m * m * var + 2 * m * across + own


def _information(step: _Passed, known: Floats | None) -> Floats:
    """What is known of the layer's z from behind: F·N·Fᵀ - (D + D·B·D), F = I + D·B, N = M·Λ·M."""
    count = len(step.b)
    some = np.flatnonzero(step.d)
    found = np.zeros((count, count))
    if known is not None:
        seen = step.middle[:, None] * known * step.middle
        seen = seen + (seen @ step.b) * step.d
        found = seen + step.d[:, None] * (step.b @ seen)
    d = step.d[some]
    bent = d[:, None] * step.b[np.ix_(some, some)] * d
    bent.flat[:: len(some) + 1] += d
    found[np.ix_(some, some)] -= bent
    return found


def _derivatives(
    layer: HingeLayer, zeta: Floats, change: Floats, var: Floats, covar: Floats, own: Floats, mu: float
) -> tuple[Floats, Floats]:
    """By α, λ2 … λ6 of each hinge.

    With α = λ1 + λ2 + λ3 in the place of λ1, λ2 stands for g2 - g1 = y·(z - u), and λ3 for g3 - g1 = w·(l - z).
    """
    z, low, high = layer.at + zeta, layer.low, layer.high
    y = np.maximum(layer.at, 0.0) + change
    w = y - z
    zero, one = np.zeros(len(z)), np.ones(len(z))
    values = np.array([y * w, y * (z - high), w * (low - z), -y, -w, (high - low) * y - high * z + high * low])
    by_z = np.array([-y, y, 2 * z - low - y, zero, one, -high])
    by_y = np.array([2 * y - z, z - high, low - z, -one, -one, high - low])
    traces = np.array([own - covar, covar, var - covar, zero, zero, zero])
    second = (by_z**2 * var + 2 * by_z * by_y * covar + by_y**2 * own) / 2
    forms = ((0.0, -0.5, 1.0), (0.0, 0.5, 0.0), (1.0, -0.5, 0.0))  # the quadratic parts: zz, half of zy, yy
    for k, (zz, zy, yy) in enumerate(forms):
        one_one, one_two = var * zz + covar * zy, var * zy + covar * yy
        two_one, two_two = covar * zz + own * zy, covar * zy + own * yy
        second[k] += mu * (one_one**2 + 2 * one_two * two_one + two_two**2)
    return values + mu * traces, second


# -- the way up --------------------------------------------------------------------------------------------------------

_MEMORY = 10
_LEAP = 3.0
"""The most by which a logarithm changes at once."""
_HALVINGS = 20


def ascent(
    solve: Callable[[Floats, float], Solution], start: Floats, lead: float, weights: Sequence[float], steps: int
) -> Iterator[tuple[Floats, Solution]]:
    """Multipliers, and the least value that they give, one step after the other.

    L-BFGS on the logarithms, with the diagonal of the second derivatives for a first guess; for each μ of `weights`,
    as parts of the lead, so many steps. Raises: LinAlgError if Φ has no least value at the start.
    """
    logs = np.log(start)
    for part in weights:
        mu = part * abs(lead)
        memory: list[tuple[Floats, Floats]] = []
        found = solve(np.exp(logs), mu)
        for _ in range(steps):
            multipliers = np.exp(logs)
            gradient = found.gradient * multipliers
            curvature = found.curvature * multipliers**2 + np.abs(gradient) + 1e-6 * abs(lead) / len(logs)
            moved = None
            for remembered in (memory, []):
                direction = np.clip(_two_loops(gradient, curvature, remembered), -_LEAP, _LEAP)
                moved = _searched(solve, logs, direction, found, mu, float(gradient @ direction))
                if moved is not None or not memory:
                    break
            if moved is None:
                break
            there, after = moved
            step, turn = there - logs, gradient - after.gradient * np.exp(there)
            if step @ turn > 1e-12 * np.linalg.norm(step) * np.linalg.norm(turn):
                memory = [*memory, (step, turn)][-_MEMORY:]
            logs, found = there, after
            yield np.exp(logs), found


def _two_loops(gradient: Floats, curvature: Floats, memory: Sequence[tuple[Floats, Floats]]) -> Floats:
    """The quasi-Newton direction: the two loops of L-BFGS."""
    q = gradient.copy()
    parts = []
    for step, turn in reversed(memory):
        part = (step @ q) / (step @ turn)
        q -= part * turn
        parts.append(part)
    q /= curvature
    for (step, turn), part in zip(memory, reversed(parts), strict=True):
        q += (part - (turn @ q) / (step @ turn)) * step
    return q


def _searched(
    solve: Callable[[Floats, float], Solution], logs: Floats, direction: Floats, now: Solution, mu: float, slope: float
) -> tuple[Floats, Solution] | None:
    """The first of 1, 1/2, 1/4, … of a step that is worth it; None if none is."""
    if not slope > 0:
        return None
    part, height = 1.0, now.value + mu * now.log_det
    for _ in range(_HALVINGS):
        there = logs + part * direction
        try:
            found = solve(np.exp(there), mu)
        except np.linalg.LinAlgError:
            found = None
        if found is not None and found.value + mu * found.log_det >= height + 1e-4 * part * slope:
            return there, found
        part /= 2
    return None
