"""Duals in plain floats: of each hinge that may bend its terms, and their derivatives. Nothing here is trusted.

`proof.hinges` and `proof.dual` say what the numbers are. A hinge has the multipliers α = λ1 + λ2 + λ3, and λ2 … λ6; a
halfspace β. All of them, and γ, are positive: their logarithms vary (`ascent`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from intervalcert.backends.protocol import Floats, Indices
from intervalcert.proof.hinges import Goal

__all__ = ["MULTIPLIERS", "Bends", "Form", "Known", "Solution", "Terms", "derivatives", "slopes_of_terms"]

MULTIPLIERS = 6
"""Of a hinge: α, λ2, …, λ6."""


@dataclass(frozen=True, eq=False)
class Bends:
    """One site at the input: f(z) = base·z + Σ c·max(z - k, 0) of those hinges that may bend, and its halfspaces.

    base: the slope of each argument without these. neuron: which one a hinge is of; weight: c. at: z - k at the input;
    low, high: between what it stays. cut, sign, cut_at: of each halfspace s·(z - k) <= 0 the argument, s, and z - k at
    the input. shift: what the lines that functions are in halfspaces give at the input beyond the functions: nothing,
    unless the input itself is outside. still: arguments that stay on one side of a kink that they once might have
    reached, edge: between zero and what they are (less the kink), still_at: what they are at the input.
    """

    base: Floats
    neuron: Indices
    weight: Floats
    at: Floats
    low: Floats
    high: Floats
    cut: Indices
    sign: Floats
    cut_at: Floats
    shift: Floats | float = 0.0
    still: Indices = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    edge: Floats = field(default_factory=lambda: np.zeros(0))
    still_at: Floats = field(default_factory=lambda: np.zeros(0))

    @property
    def rows(self) -> int:
        return len(self.base)

    @property
    def count(self) -> int:
        return len(self.neuron)

    @property
    def size(self) -> int:
        """Multipliers."""
        return MULTIPLIERS * self.count + len(self.cut) + len(self.still)

    def split(self, multipliers: Floats) -> tuple[Floats, Floats, Floats]:
        """Those of the hinges (6 x hinges), of the halfspaces, and of what stays on one side."""
        wide = MULTIPLIERS * self.count
        after = wide + len(self.cut)
        return multipliers[:wide].reshape(MULTIPLIERS, -1), multipliers[wide:after], multipliers[after:]


@dataclass(frozen=True, eq=False)
class Terms:
    """What multipliers make of a site.

    Of each hinge: α, M, p of the linear terms of ν. Of each argument: bend (Σ D), middle (the slope, with Σ c·M),
    linear (terms of ζ), spread (Σ c²/α), mean (Σ -c·p/(2α), the ν of least cost, and the shift). constant: the rest.
    """

    alpha: Floats
    part: Floats
    p: Floats
    bend: Floats
    middle: Floats
    linear: Floats
    spread: Floats
    mean: Floats
    constant: float

    @staticmethod
    def of(site: Bends, multipliers: Floats) -> Terms:
        (alpha, two, three, four, five, six), beta, stay = site.split(multipliers)
        one = alpha - two - three
        low, high, z = site.low, site.high, site.at
        y = np.maximum(z, 0.0)
        w = y - z
        part = (one + 2 * three) / (2 * alpha)
        p = one * (2 * y - z) + two * (2 * y - high) + three * (2 * w + low) - four - five + six * (high - low)
        r = -one * y - three * (2 * w + low) + five - six * high
        constant = one * y * w + two * y * (y - high) + three * w * (w + low) - four * y - five * w
        constant += six * ((high - low) * y - high * z + high * low) - p**2 / (4 * alpha)

        def by_row(numbers: Floats) -> Floats:
            found: Floats = np.bincount(site.neuron, numbers, site.rows).astype(np.float64, copy=False)
            return found

        linear = by_row(r + part * p) + np.bincount(site.cut, beta * site.sign, site.rows)
        linear = linear + np.bincount(site.still, stay * (2 * site.still_at - site.edge), site.rows)
        total = float(constant.sum()) + float((beta * site.sign) @ site.cut_at)
        total += float(stay @ (site.still_at * (site.still_at - site.edge)))
        return Terms(
            alpha,
            part,
            p,
            by_row(alpha * part**2 - three) - np.bincount(site.still, stay, site.rows),
            site.base + by_row(site.weight * part),
            linear,
            by_row(site.weight**2 / alpha),
            by_row(-site.weight * p / (2 * alpha)) + site.shift,
            total,
        )


@dataclass(frozen=True, eq=False)
class Known:
    """Of the changes if exp(-Φ) were their density: the variance of the ζ of each hinge, its covariance with Δ, the
    variance of Δ (its own, without the weight); and the variance of ζ for halfspaces, and where it stays on one side.
    """

    var: Floats
    covar: Floats
    own: Floats
    cut: Floats
    still: Floats


def derivatives(site: Bends, zeta: Floats, change: Floats, known: Known, mu: float) -> tuple[Floats, Floats]:
    """Of (least value + μ·log det) by the multipliers of a site, and minus the second ones.

    zeta: the change of each argument where the value is attained; change: of what each hinge gives.
    With α = λ1 + λ2 + λ3 in the place of λ1, λ2 stands for g2 - g1 = y·(z - u), and λ3 for g3 - g1 = w·(l - z).
    """
    z, low, high = site.at + zeta[site.neuron], site.low, site.high
    var, covar, own = known.var, known.covar, known.own
    values, by_z, by_y = slopes_of_terms(z, np.maximum(site.at, 0.0) + change, low, high)
    zero = np.zeros(len(z))
    traces = np.array([own - covar, covar, var - covar, zero, zero, zero])
    second = (by_z**2 * var + 2 * by_z * by_y * covar + by_y**2 * own) / 2
    forms = ((0.0, -0.5, 1.0), (0.0, 0.5, 0.0), (1.0, -0.5, 0.0))  # the quadratic parts: zz, half of zy, yy
    for k, (zz, zy, yy) in enumerate(forms):
        one_one, one_two = var * zz + covar * zy, var * zy + covar * yy
        two_one, two_two = covar * zz + own * zy, covar * zy + own * yy
        second[k] += mu * (one_one**2 + 2 * one_two * two_one + two_two**2)
    of_cuts = site.sign * (site.cut_at + zeta[site.cut])
    at = site.still_at + zeta[site.still]
    of_stills = at * (at - site.edge) + mu * known.still
    bent = (2 * at - site.edge) ** 2 * known.still / 2 + mu * known.still**2
    first = np.concatenate([(values + mu * traces).ravel(), of_cuts, of_stills])
    return first, np.concatenate([second.ravel(), known.cut / 2, bent])


def slopes_of_terms(z: Floats, y: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats, Floats]:
    """Of what α, λ2, … λ6 multiply (`derivatives`): the values at z and y, and the slopes by z and by y."""
    w, zero, one = y - z, np.zeros(len(z)), np.ones(len(z))
    values = np.array([y * w, y * (z - high), w * (low - z), -y, -w, (high - low) * y - high * z + high * low])
    by_z = np.array([-y, y, 2 * z - low - y, zero, one, -high])
    by_y = np.array([2 * y - z, z - high, low - z, -one, -one, high - low])
    return values, by_z, by_y


@dataclass(frozen=True, eq=False)
class Solution:
    """The least value of Φ, its log det, their derivatives by the multipliers, and where it is attained.

    gradient, curvature: by each multiplier of (least value + μ·log det), and minus its second derivative.
    delta: the change of the input. zeta, nu: that of each site's arguments, and of what each hinge gives less M times
    that.
    """

    value: float
    log_det: float
    gradient: Floats
    curvature: Floats
    delta: Floats
    zeta: tuple[Floats, ...]
    nu: tuple[Floats, ...]


class Form(ABC):
    """Φ of some sites, for goals behind them. work: products of two numbers for a step."""

    work: float

    def __init__(self, sites: Sequence[Bends]) -> None:
        self.sites = tuple(sites)
        self.size = 1 + sum(site.size for site in self.sites)

    def parts(self, multipliers: Floats) -> list[Floats]:
        """Those of each site; the first of all is γ."""
        ends = np.cumsum([1, *(site.size for site in self.sites)])
        return [multipliers[start:stop] for start, stop in pairwise(ends.tolist())]

    @abstractmethod
    def direction(self, goal: Goal) -> Any:
        """How the goal changes. Requires: it is of the site behind the last one here."""

    @abstractmethod
    def halfspaces(self) -> list[tuple[Floats, Floats]]:
        """Of each site, until one has hinges that bend: its halfspaces h + Gδ <= 0, as G and h.

        Requires: a direction was asked for.
        """

    @abstractmethod
    def solved(self, multipliers: Floats, direction: Any, value: float, weight: float) -> Solution:
        """direction: of the goal. value: the goal's, at the input. weight: μ.

        Raises: LinAlgError where Φ has no least value, as far as floats tell.
        """
