"""The quadratic dual of a chain of matrices at one input, in plain floats: its value and its derivatives.

`proof.dual` has the mathematics, and checks what comes of it; nothing here is trusted. For given multipliers the form Φ
of all changes (of the input, and of what each hinge gives) has a least value, which no lead is below. Here it is found
by going through the layers once, as the chain of ellipsoids does, but with means:

    forward   S = W·P·Wᵀ,   B = (S⁻¹ - D)⁻¹,   P = M·B·M + Σ c²/α,   with the mean of each, and what was left behind;
    backward  costates: the change at which the least value is attained, without any inverse; and what is known of the
              changes (their covariances, if exp(-Φ) were their density), from the end.

By the envelope theorem the derivative of the least value by a multiplier is the constraint at that change. Its second
derivative along itself is -½·∇gᵀ·Cov·∇g: the diagonal that makes a quasi-Newton ascent quick. log det, times a weight μ
that falls, keeps Φ away from where it has no least value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from intervalcert.backends.protocol import Floats, Indices
from intervalcert.proof.hinges import Goal
from intervalcert.search.hinges import Bends, Form, Known, Solution, Terms, derivatives

__all__ = ["LEAST_PIVOT", "ChainForm", "root_of"]

_RIDGE = 1e-13
"""S is taken larger by this part of its mean diagonal, where floats would call it indefinite."""

LEAST_PIVOT = 2.0**-6
"""The least diagonal of the root of I - LᵀDL that is believed."""

_PRODUCTS = 12
"""Of two matrices of a layer, or what takes as long, in a step."""


@dataclass(frozen=True, eq=False)
class _Passed:
    """What is kept of a layer on the way forward."""

    b: Floats
    mean: Floats
    terms: Terms


class ChainForm(Form):
    """Φ of hidden layers, each of which takes what the one before it gives."""

    def __init__(self, weights: Sequence[Floats], sites: Sequence[Bends], gram: Floats, eps: float) -> None:
        """weights: of the layers, at least one more than there are sites. gram: W·Wᵀ of the first one."""
        super().__init__(sites)
        self._weights, self._gram, self._eps = tuple(weights), gram, eps
        self.work = _PRODUCTS * sum(float(site.rows) ** 3 for site in sites)

    def direction(self, goal: Goal) -> Floats:
        """By what the last site gives."""
        w = self._weights[goal.site]
        found: Floats = (goal.signs(len(w)) @ w)[0]
        return found

    def halfspaces(self) -> list[tuple[Floats, Floats]]:
        rows, moved, found = self._weights[0], np.zeros(len(self._gram)), []
        for index, site in enumerate(self.sites):
            sign = site.sign[:, None]
            found.append((sign * rows[site.cut], site.sign * (site.cut_at + moved[site.cut])))
            if site.count:
                break
            after = self._weights[index + 1]
            rows, moved = after @ (site.base[:, None] * rows), after @ (site.base * moved + site.shift)
        return found

    def solved(self, multipliers: Floats, direction: Floats, value: float, weight: float) -> Solution:
        gamma, passed = float(multipliers[0]), list[_Passed]()
        least, log_det = value - gamma * self._eps**2, len(self._gram) * np.log(gamma)
        spread, mean = np.zeros((0, 0)), np.zeros(0)
        for index, (site, part) in enumerate(zip(self.sites, self.parts(multipliers), strict=True)):
            if not index:
                s, mean = self._gram / gamma, np.zeros(len(self._gram))
            else:
                w = self._weights[index]
                s, mean = w @ spread @ w.T, w @ mean
            step, gained, lost = _forward(Terms.of(site, part), s, mean)
            least, log_det = least + gained, log_det + lost
            terms = step.terms
            spread = terms.middle[:, None] * step.b * terms.middle
            spread.flat[:: len(spread) + 1] += terms.spread
            mean = terms.middle * step.mean + terms.mean
            passed.append(step)
        if not passed:
            raise ValueError("a form without sites")
        least += float(direction @ mean - direction @ (spread @ direction) / 4)
        return self._backward(gamma, passed, direction, least, log_det, weight)

    def _backward(
        self, gamma: float, passed: Sequence[_Passed], cost: Floats, value: float, log_det: float, mu: float
    ) -> Solution:
        known: Floats | None = None
        gradients, curvatures, zetas, nus = [], [], [], []
        pulled = np.zeros(0)
        for index in range(len(passed) - 1, -1, -1):
            site, step = self.sites[index], passed[index]
            some, terms = site.neuron, step.terms
            zeta = step.mean - (step.b @ (terms.middle * cost)) / 2
            nu = -(terms.p + site.weight * cost[some]) / (2 * terms.alpha)
            zetas.append(zeta)
            nus.append(nu)
            change = terms.part * zeta[some] + nu
            first, second = derivatives(site, zeta, change, _covariances(site, step, known), mu)
            gradients.append(first)
            curvatures.append(second)
            pulled = terms.middle * cost + terms.linear - 2 * terms.bend * zeta
            known = _information(step, known)
            if index:
                w = self._weights[index]
                known = w.T @ known @ w
                cost = w.T @ pulled
        if known is None:
            raise ValueError("a form without sites")
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
            -(self._weights[0].T @ pulled) / (2 * gamma),
            tuple(reversed(zetas)),
            tuple(reversed(nus)),
        )


def _forward(terms: Terms, s: Floats, mean: Floats) -> tuple[_Passed, float, float]:
    """Through one layer; what is added to the least value, and to log det."""
    bend, linear = terms.bend, terms.linear
    b, lost = _without(s, bend, np.flatnonzero(bend))
    lost += float(np.log(terms.alpha).sum())
    turn = bend * mean - linear / 2
    moved = b @ turn
    gained = terms.constant + float(linear @ mean - (bend * mean) @ mean - turn @ moved)
    return _Passed(b, mean + moved, terms), gained, lost


def _without(s: Floats, bend: Floats, some: Indices) -> tuple[Floats, float]:
    """B = (S⁻¹ - D)⁻¹, and log det of I - LᵀDL. some: where D is not zero. Raises: LinAlgError."""
    from scipy.linalg import cholesky, solve_triangular  # a fifth of a second, which most commands do without

    s = (s + s.T) / 2
    if not len(some):
        return s, 0.0
    d, part = bend[some], s[np.ix_(some, some)]
    root = root_of(part)
    kept = cholesky(np.eye(len(some)) - root.T @ (d[:, None] * root), lower=True, check_finite=False)
    if float(kept.diagonal().min()) < LEAST_PIVOT:
        raise np.linalg.LinAlgError("a form that is nearly flat in some direction: floats do not tell")
    x = solve_triangular(kept, root.T, lower=True, check_finite=False)
    inner = d[:, None] * (x.T @ x) * d
    inner.flat[:: len(some) + 1] += d
    across = s[:, some]
    found: Floats = s + across @ inner @ across.T
    return found, 2 * float(np.log(kept.diagonal()).sum())


def root_of(s: Floats) -> Floats:
    """A matrix whose square S is, or nearly: S has no full rank where a layer is wider than the one before."""
    from scipy.linalg import cholesky

    ridge = _RIDGE * float(np.trace(s)) / len(s)
    try:
        found: Floats = cholesky(s + ridge * np.eye(len(s)), lower=True, check_finite=False)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(s)
        found = vectors * np.sqrt(np.maximum(values, 0.0))
    return found


def _covariances(site: Bends, step: _Passed, known: Floats | None) -> Known:
    """known: what is known from behind of what the layer gives."""
    some, terms, weight = site.neuron, step.terms, site.weight
    var = step.b.diagonal()
    across, own = np.zeros(len(some)), 1 / terms.alpha
    if known is not None:
        turned = step.b * terms.middle
        seen = turned @ known
        var = var - (seen * turned).sum(axis=1)
        ratio = weight / terms.alpha
        across = -seen[some, some] * ratio
        own = own - ratio**2 * known[some, some]
    m, of_hinges = terms.part, var[some]
    return Known(
        of_hinges, m * of_hinges + across, m * m * of_hinges + 2 * m * across + own, var[site.cut], var[site.still]
    )


def _information(step: _Passed, known: Floats | None) -> Floats:
    """What is known of the layer's z from behind: F·N·Fᵀ - (D + D·B·D), F = I + D·B, N = M·Λ·M."""
    bend, middle = step.terms.bend, step.terms.middle
    count = len(step.b)
    some = np.flatnonzero(bend)
    found = np.zeros((count, count))
    if known is not None:
        seen = middle[:, None] * known * middle
        seen = seen + (seen @ step.b) * bend
        found = seen + bend[:, None] * (step.b @ seen)
    d = bend[some]
    bent = d[:, None] * step.b[np.ix_(some, some)] * d
    bent.flat[:: len(some) + 1] += d
    found[np.ix_(some, some)] -= bent
    return found
