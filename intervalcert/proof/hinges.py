"""Hinges with multipliers: what duals are made of (`dual` for chains of matrices, which has the mathematics).

A site is where functions bend: a hidden layer of a chain, or a passage of a graph through functions of one variable
each. The arguments of its functions are z; each hinge y = max(z - kink, 0) of a function has its own multipliers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from intervalcert.backends.protocol import Floats, Matrix
from intervalcert.errors import UndecidedError
from intervalcert.model.activations import PiecewiseLinear
from intervalcert.numbers.matrices import IntegerArray, RationalMatrix, exact_integers
from intervalcert.numbers.upward import float_up
from intervalcert.proof.data import Witness

__all__ = [
    "ETA",
    "NAMES",
    "DualClaim",
    "DualPoint",
    "DualWitness",
    "Goal",
    "Hinge",
    "Place",
    "Range",
    "Splits",
    "checked_gamma",
    "checked_hinge",
    "claim_of",
    "joined",
    "of_hinge",
    "resolved",
    "roots_above",
    "slopes_of",
    "sum_of_bends",
]

ETA = Fraction(1, 2**30)

NAMES = ("alpha", "middle", "lambda3", "lambda4", "lambda5", "lambda6", "split")
"""The rows of the numbers of a hinge, one column for each neuron. alpha is 0 where it does not bend, and lambda3 then
multiplies z² - u·z, or z² - l·z; split is β·s.
"""

Range = tuple[Floats, Floats]
"""Of a site: floats between which each argument stays at all inputs within eps; proved."""

Place = tuple[int, int, int]
"""(site, hinge, neuron)."""

Splits = Mapping[Place, int]
"""Where -> s of the halfspace s·(z - kink) <= 0 that one is in."""


class Goal(NamedTuple):
    """What is bounded from below: at a site the argument `plus` less the argument `minus`; -1 stands for none.

    The logits are the site behind the last one: there it is the lead of one class over another.
    """

    site: int
    plus: int
    minus: int = -1

    def signs(self, rows: int) -> Floats:
        """As a row that the values of the site meet. Raises: UndecidedError for no such goal."""
        places = (self.plus, self.minus)
        if not all(type(k) is int and -1 <= k < rows for k in places) or self.plus == self.minus:
            raise UndecidedError("a goal of no values, or of one less itself")
        found = np.zeros((1, rows))
        for place, sign in zip(places, (1.0, -1.0), strict=True):
            if place >= 0:
                found[0, place] = sign
        return found


@dataclass(frozen=True, eq=False, repr=False)
class DualWitness(Witness):
    """The multipliers that prove a lower bound of the goal.

    numbers: of each site before that of the goal, for each hinge of its function, a matrix with the rows `NAMES`.
    """

    goal: Goal
    gamma: float
    numbers: tuple[tuple[Floats, ...], ...]


@dataclass(frozen=True, eq=False, repr=False)
class DualPoint(Witness):
    """The point of (3): δ, and ν of each hinge of each site (zero where it does not bend)."""

    delta: Floats
    nu: tuple[tuple[Floats, ...], ...]


@dataclass(frozen=True)
class DualClaim:
    """At every input within eps that is in all the halfspaces, the goal is more than `above`; by that number system."""

    goal: Goal
    above: Fraction
    splits: frozenset[tuple[Place, int]]
    proved_by: str


def resolved(place: Place, one: DualClaim, other: DualClaim) -> DualClaim:
    """What follows of claims about both sides of one place, and else about the same halfspaces: it needs that no more.

    Every z is in one of the two halfspaces, or in both.
    Raises: UndecidedError for other claims.
    """
    rests = []
    for claim, sign in ((one, -1), (other, 1)):
        if (place, sign) not in claim.splits or (place, -sign) in claim.splits:
            raise UndecidedError("a half of a split is missing")
        rests.append(claim.splits - {(place, sign)})
    if rests[0] != rests[1] or one.goal != other.goal:
        raise UndecidedError("halves of different splits")
    above, by = min(one.above, other.above), joined([one.proved_by, other.proved_by])
    return DualClaim(one.goal, above, rests[0], by)


def checked_gamma(
    witness: DualWitness, at: DualPoint, sites: int, ranges: Sequence[Range], eps: Fraction, splits: Splits
) -> Fraction:
    """The multiplier of the distance, exactly. sites: how many there are.

    Raises: UndecidedError unless the goal is behind all halfspaces, there are numbers of each site before it, and all
    is of these sites.
    """
    goal = witness.goal
    if not (type(goal.site) is int and 0 <= goal.site <= sites <= len(ranges) and eps >= 0):
        raise UndecidedError("a dual of no values, or of no eps")
    gamma = Fraction(witness.gamma) if math.isfinite(witness.gamma) else Fraction(0)
    if gamma <= 0 or not len(witness.numbers) == len(at.nu) == goal.site:
        raise UndecidedError("a dual without a multiplier of the distance, or of other layers")
    if any(site >= goal.site for site, _, _ in splits):
        raise UndecidedError("a halfspace behind what is bounded")
    return gamma


def of_hinge(splits: Splits, site: int, hinge: int) -> dict[int, int]:
    """S of the neurons of one hinge that are in a halfspace."""
    return {neuron: s for (at, which, neuron), s in splits.items() if (at, which) == (site, hinge)}


def claim_of(bound: Matrix[Any], goal: Goal, above: Fraction, splits: Splits, proved_by: str) -> DualClaim:
    """What follows of a number that the goal is at least. Raises: UndecidedError unless that is above the other."""
    lower = float(bound.float_bounds()[0][0, 0])
    if not (math.isfinite(lower) and Fraction(lower) > above):
        raise UndecidedError("a lead is not proved to last")
    return DualClaim(goal, above, frozenset(splits.items()), proved_by)


def joined(provers: Sequence[str]) -> str:
    """Number systems, each named once."""
    return " and ".join(sorted({name for each in provers for name in each.split(" and ")}))


@dataclass(frozen=True, eq=False)
class Hinge:
    """One hinge of a site's function, with numbers for each neuron, exactly: integers over a denominator."""

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


def checked_hinge(
    kink: Fraction, weight: Fraction, numbers: Floats, nu: Floats, ends: Range, splits: Mapping[int, int]
) -> Hinge:
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
    if (numbers[2:6] < 0).any() or (numbers[0] < 0).any() or numbers[3:6, ~bends].any() or nu[~bends].any():
        raise UndecidedError("multipliers of the wrong sign, or where there are none")
    if (numbers[6] * signs < 0).any() or numbers[6, signs == 0].any():
        raise UndecidedError("a halfspace on the wrong side")
    two = np.where(bends, alpha * (unit - 2 * middle) + three * unit, 0)  # over unit²
    if (two < 0).any():
        raise UndecidedError("multipliers of the wrong sign")
    lower, upper = np.where(least < 0, least, 0), np.where(most > 0, most, 0)  # l and u, over `over`
    p = -two * upper + ((three * lower + six * (upper - lower)) - (four + five) * over) * unit  # over unit²·over
    far = np.where(is_line, upper, lower)  # the end of the range that is not the kink, where it does not bend
    r = (five + split) * over - three * np.where(bends, lower, far) - six * upper  # over unit·over
    constant = Fraction(int((six * upper * lower).sum()), unit * over**2)
    bend = alpha * middle * middle - three * unit * unit  # over unit³
    return Hinge(
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


def slopes_of(function: PiecewiseLinear, hinges: Sequence[Hinge], rows: int) -> tuple[list[Fraction], Floats]:
    """A of each neuron, exactly, and floats that are at least Σ c²/(α·(1 - η))."""
    slopes, spread = [function.slope] * rows, [Fraction(0)] * rows
    for hinge in hinges:
        for k, (alpha, middle) in enumerate(zip(hinge.alpha.tolist(), hinge.middle.tolist(), strict=True)):
            if middle:
                slopes[k] += hinge.weight * Fraction(middle)
            if alpha:
                spread[k] += hinge.weight**2 / (Fraction(alpha) * (1 - ETA))
    return slopes, np.array([float_up(x) for x in spread])


def sum_of_bends(hinges: Sequence[Hinge]) -> tuple[IntegerArray, int] | None:
    """D of each neuron, as integers over a denominator; None for no hinges."""
    if not hinges:
        return None
    total, over = hinges[0].bend
    for hinge in hinges[1:]:
        more, other = hinge.bend
        total, over = total * other + more * over, over * other
    return total, over


def roots_above(alpha: Floats) -> Floats:
    """Numbers r with r²·α >= 1, where α is not zero. Raises: UndecidedError if floats end there."""
    some = alpha > 0
    roots = np.zeros(len(alpha))
    roots[some] = (1 / np.sqrt(alpha[some])) * (1 + 2.0**-48)
    (r, d), (a, e) = exact_integers(roots), exact_integers(alpha)
    if not (r * r * a >= d * d * e)[some].all():
        raise UndecidedError("multipliers at the ends of the floats")
    return roots
