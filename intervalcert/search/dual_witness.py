"""Duals that are worth a proof: from the chain at an input to the multipliers, the steps and the point of `proof.dual`.

The search starts where the chain ends: its sectors and multipliers are a dual, too (of a hinge with z > 0, λ1 : λ3 is
(1 - t) : t; with z < 0, λ1 : λ2 is), so nothing is lost. What the chain leaves at zero starts at a little that costs
next to nothing. Multipliers are rounded to few bits in the end, and solved for once more: witnesses are short, and the
point is that of the very numbers that are proved.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from intervalcert.backends.protocol import Floats, Indices
from intervalcert.model.activations import PiecewiseLinear
from intervalcert.proof.dual import DualStep
from intervalcert.proof.ellipsoids import LoewnerMajorant, Sector, Step
from intervalcert.proof.hinges import ETA, NAMES, DualPoint, DualWitness, Goal, Place, Range, Splits
from intervalcert.search.dual import ChainForm
from intervalcert.search.ellipsoids import guess_inner, guess_majorant
from intervalcert.search.hinges import MULTIPLIERS, Bends, Form, Solution

__all__ = ["ChainLayout", "DualSetting", "Found", "Layout", "Multipliers"]

_BITS = 24
"""Of a multiplier."""

_GRID = 2.0**44
"""M is a multiple of 1 over this: on a coarser grid λ2 costs more than some leads have."""

_LITTLE = 1e-4
"""Of the lead: what all multipliers that the chain leaves at zero may cost in the beginning."""

_UNSURE = 2.0**-50
"""By this part floats may be off."""

_CALM = (0.0, *(2.0**-k for k in range(10, -1, -1)))
"""Parts of D that are taken off, until a form has a least value: without any it has one, if floats can tell."""

_FIRMER = 8
"""How often γ may grow then."""

_STEADY = (0.0, 2.0**-20, 2.0**-14, 2.0**-8)
"""Such parts, until floats see that a form is convex with what a proof needs to spare."""


class Layout(ABC):
    """A network in floats, as duals see it. functions: those of each site."""

    functions: Sequence[PiecewiseLinear]

    @abstractmethod
    def form(self, sites: Sequence[Bends], eps: float) -> Form:
        """Of the first sites. Raises: FloatingPointError for numbers beyond the floats."""

    @abstractmethod
    def free(self, at: Floats, middle: Floats, zeta: Floats, nu: Floats) -> Floats:
        """The variables of hinges in the proof. at: their arguments at the input. zeta, nu: changes of z and ν."""

    @abstractmethod
    def steps(self, witness: DualWitness, form: Form, multipliers: Floats) -> Any:
        """What shows that the form of a witness is convex. multipliers: the witness's own.

        Raises: LinAlgError, FloatingPointError where floats fail.
        """


@dataclass(frozen=True, eq=False)
class Found:
    """What is worth a proof: the multipliers, what shows that they are some, the point, and what floats think of it."""

    witness: DualWitness
    steps: Any
    at: DualPoint
    value: float


@dataclass(frozen=True, eq=False)
class Multipliers:
    """γ; those of the hinges of each site, for each hinge of its function a matrix with a column for each argument
    (zero where it does not bend); and those of halfspaces.
    """

    gamma: float
    hinges: Sequence[Sequence[Floats]]
    cuts: Mapping[Place, float]


class DualSetting:
    """What all goals behind some sites share at one input, in some halfspaces: the form, and where to start."""

    def __init__(
        self,
        layout: Layout,
        values: Sequence[Floats],
        ranges: Sequence[Range],
        widest: Sequence[Range],
        eps: float,
        splits: Splits | None = None,
    ) -> None:
        """values: of the arguments of the first sites, at the input. ranges: between which they stay. widest: between
        which they were known to stay at first.

        Raises: FloatingPointError for numbers beyond the floats.
        """
        self._layout, self._splits = layout, splits or {}
        self._hinges = [
            [
                _Place.of(float(weight), float(kink), z, ends, wide, self._signs(site, index, len(z)))
                for index, (weight, kink) in enumerate(function.hinges)
            ]
            for site, (function, z, ends, wide) in enumerate(
                zip(layout.functions, values, ranges, widest, strict=False)
            )
        ]
        sites = [
            _site(len(z), float(function.slope), hinges)
            for function, z, hinges in zip(layout.functions, values, self._hinges, strict=False)
        ]
        if not all(np.isfinite(site.low).all() and np.isfinite(site.high).all() for site in sites):
            raise FloatingPointError("ranges beyond the floats")
        self.eps, self.form = eps, layout.form(sites, eps)

    def _signs(self, site: int, hinge: int, rows: int) -> Floats:
        """The signs of the halfspaces of a hinge, 0 where there is none."""
        found = np.zeros(rows)
        for (at, which, neuron), sign in self._splits.items():
            if (at, which) == (site, hinge):
                found[neuron] = sign
        return found

    # -- where to start ----------------------------------------------------------------------------------------------

    def start(self, chain: Sequence[Floats], square: float, lead: float) -> Floats:
        """Multipliers from those of a chain.

        chain: w⁻² of each argument of each site, 0 where it has none. square: dᵀPd, its slope squared.
        """
        gamma = max(float(np.sqrt(max(square, 0.0))), 1e-150) / (2 * self.eps)
        parts = [np.array([gamma])]
        for site, known in zip(self.form.sites, chain, strict=False):
            usual = float(np.median(known[known > 0])) if (known > 0).any() else 1.0
            own = np.where(known > 0, known, usual)[site.neuron]
            parts += [
                self._of_sectors(site, gamma * own * site.weight**2, lead).ravel(),
                self._little(site.cut_at, lead),
                self._little(site.edge**2, lead),
            ]
        return np.concatenate(parts)

    def _of_sectors(self, site: Bends, alpha: Floats, lead: float) -> Floats:
        z, low, high = site.at, site.low, site.high
        part = np.clip(np.abs(z) / np.maximum(np.maximum(z - low, high - z), 1e-300), 0.0, 1.0)  # t
        wide = np.maximum(high - low, 1e-300)
        little = self._little(wide, lead)
        two = np.maximum(np.where(z > 0, 0.0, alpha * part), little / wide)
        three = np.maximum(np.where(z > 0, alpha * part, 0.0), little / wide)
        return np.array([alpha, two, three, little, little, little / wide])

    def _little(self, size: Floats, lead: float) -> Floats:
        """What costs next to nothing, of a term of that size."""
        found: Floats = _LITTLE * abs(lead) / (MULTIPLIERS * max(self.form.size, 1)) / np.maximum(np.abs(size), 1e-300)
        return found

    def spread_out(self, multipliers: Floats) -> Multipliers:
        """By their places."""
        hinges: list[list[Floats]] = []
        cuts: dict[Place, float] = {}
        for index, part in enumerate(self.form.parts(multipliers)):
            of_hinges, betas, stays = self.form.sites[index].split(part)
            at, made = 0, []
            beta, stay = iter(betas.tolist()), iter(stays.tolist())
            for which, place in enumerate(self._hinges[index]):
                made.append(np.zeros((MULTIPLIERS, len(place.slope))))
                made[-1][:, place.bends] = of_hinges[:, at : at + len(place.bends)]
                at += len(place.bends)
                for neuron in place.still.tolist():
                    made[-1][1 if place.slope[neuron] else 2, neuron] = next(stay)
                cuts |= {(index, which, neuron): next(beta) for neuron in place.cut.tolist()}
            hinges.append(made)
        return Multipliers(float(multipliers[0]), hinges, cuts)

    def inherited(self, known: Multipliers, lead: float) -> Floats:
        """From those of a form whose halfspaces, or ranges, were fewer or wider; such that there is a least value."""
        parts = [np.array([known.gamma])]
        for index, site in enumerate(self.form.sites):
            of_hinges, betas, stays = [np.zeros((MULTIPLIERS, 0))], [], [np.zeros(0)]
            for which, place in enumerate(self._hinges[index]):
                before = known.hinges[index][which]
                of_hinges.append(before[:, place.bends])
                stays.append(np.where(place.slope[place.still] == 1, before[1, place.still], before[2, place.still]))
                for neuron, sign in zip(place.cut.tolist(), place.sign.tolist(), strict=True):
                    own = before[3 if sign < 0 else 4, neuron]  # -y, or -w, is s·z in the halfspace
                    betas.append(known.cuts.get((index, which, neuron), own))
            some, wide = np.hstack(of_hinges), np.maximum(site.high - site.low, 1e-300)
            little = self._little(wide, lead)
            least = np.array([little / wide, little / wide, little / wide, little, little, little / wide])
            parts += [np.maximum(some, least).ravel(), np.maximum(betas, self._little(site.cut_at, lead))]
            parts.append(np.maximum(np.concatenate(stays), self._little(site.edge**2, lead)))
        return np.concatenate(parts)

    def calmer(self, multipliers: Floats, part: float) -> Floats:
        """With so much of every positive D taken off: λ2 and λ3 grow by it, α and M stay."""
        found = multipliers.copy()
        for site, own in zip(self.form.sites, self.form.parts(found), strict=True):
            alpha, two, three = site.split(own)[0][:3]  # views
            middle = (alpha - two + three) / (2 * alpha)
            more = part * np.maximum(alpha * middle**2 - three, 0.0)
            two += more
            three += more
        return found

    def feasible(self, multipliers: Floats, direction: Any, value: float) -> Floats:
        """These multipliers, or calmer ones whose form has a least value. Raises: LinAlgError if there are none."""
        for part in _CALM:
            made = self.calmer(multipliers, part)
            if self._has_least(made, direction, value):
                return made
        for _ in range(_FIRMER):  # hardly anything holds the input: then γ does
            made[0] *= 16
            if self._has_least(made, direction, value):
                return made
        raise np.linalg.LinAlgError("a form without a least value")

    def _has_least(self, multipliers: Floats, direction: Any, value: float) -> bool:
        try:
            self.form.solved(multipliers, direction, value, 0.0)
        except np.linalg.LinAlgError:
            return False
        return True

    # -- what is worth a proof ----------------------------------------------------------------------------------------

    def found(self, multipliers: Floats, goal: Goal, value: float) -> Found:
        """The witness that these multipliers come to, or calmer ones, if floats do not see that theirs is one.

        Raises: LinAlgError if there is none.
        """
        for part in _STEADY:
            with suppress(np.linalg.LinAlgError):
                return self._found(self.calmer(multipliers, part), goal, value)
        raise np.linalg.LinAlgError("a form of which floats do not see that it is convex")

    def _found(self, multipliers: Floats, goal: Goal, value: float) -> Found:
        """The witness, of rounded numbers, and its point. Raises: LinAlgError if there is none."""
        gamma = float(_short(multipliers[:1])[0])
        numbers, solved = [], [np.array([gamma])]
        for index, part in enumerate(self.form.parts(multipliers)):
            of_hinges, betas, stays = self.form.sites[index].split(_short(part))
            alpha, two, three, four, five, six = of_hinges
            # λ2 = α·(1 - 2M) + λ3 must not be below zero: M is rounded down, by more than floats are off.
            middle = (np.floor((alpha - two + three) / (2 * alpha) * _GRID) - 1) / _GRID
            two = alpha * (1 - 2 * middle) + three
            solved += [np.array([alpha, two, three, four, five, six]).ravel(), betas, stays]
            numbers.append(self._placed(index, np.array([alpha, middle, three, four, five, six]), betas, stays))
        joined = np.concatenate(solved)
        solution = self.form.solved(joined, self.form.direction(goal), value, 0.0)
        witness = DualWitness(goal, gamma, tuple(numbers))
        point = DualPoint(solution.delta, self._free(joined, solution))
        return Found(witness, self._layout.steps(witness, self.form, joined), point, solution.value)

    def _placed(self, index: int, of_those: Floats, betas: Floats, stays: Floats) -> tuple[Floats, ...]:
        """For each hinge the rows `NAMES`, of all arguments."""
        found, at, cut, still = [], 0, 0, 0
        for place in self._hinges[index]:
            made = np.zeros((len(NAMES), len(place.slope)))
            made[1] = place.slope
            made[:MULTIPLIERS, place.bends] = of_those[:, at : at + len(place.bends)]
            made[MULTIPLIERS, place.cut] = betas[cut : cut + len(place.cut)] * place.sign
            made[2, place.still] = stays[still : still + len(place.still)]
            at, cut, still = at + len(place.bends), cut + len(place.cut), still + len(place.still)
            found.append(made)
        return tuple(found)

    def _free(self, multipliers: Floats, solution: Solution) -> tuple[tuple[Floats, ...], ...]:
        """The variables of all hinges."""
        nus = []
        for index, (site, part) in enumerate(zip(self.form.sites, self.form.parts(multipliers), strict=True)):
            alpha, two, three = site.split(part)[0][:3]
            middle = (alpha - two + three) / (2 * alpha)
            own = self._layout.free(site.at, middle, solution.zeta[index][site.neuron], solution.nu[index])
            at, made = 0, []
            for place in self._hinges[index]:
                nu = np.zeros(len(place.slope))
                nu[place.bends] = own[at : at + len(place.bends)]
                at += len(place.bends)
                made.append(nu)
            nus.append(tuple(made))
        return tuple(nus)

    def place_of(self, site: int, column: int) -> Place:
        """Of the hinge that is a column of a site's."""
        for which, place in enumerate(self._hinges[site]):
            if column < len(place.bends):
                return site, which, int(place.bends[column])
            column -= len(place.bends)
        raise IndexError(column)


@dataclass(frozen=True, eq=False)
class _Place:
    """Of one hinge: where its arguments are. bends: those that may reach the kink; slope: 1 or 0 of the others.

    cut, sign: those in a halfspace, and s. still: those that stay on one side, but were not known to at first.
    """

    weight: float
    at: Floats
    low: Floats
    high: Floats
    bends: Indices
    slope: Floats
    cut: Indices
    sign: Floats
    still: Indices

    @staticmethod
    def of(weight: float, kink: float, z: Floats, ends: Range, widest: Range, signs: Floats) -> _Place:
        def from_kink(ends: Range) -> Range:
            # A little outward: what rounds here must not be taken for a line there.
            unsure = _UNSURE * (np.abs(ends[0]) + np.abs(ends[1]) + abs(kink)) if kink else 0.0
            return ends[0] - kink - unsure, ends[1] - kink + unsure

        (low, high), (least, most) = from_kink(ends), from_kink(widest)
        bends = (low < 0) & (high > 0) & (signs == 0)
        cut = np.flatnonzero(signs)
        slope = np.where(~bends & ((low >= 0) | (signs < 0)) & (signs <= 0), 1.0, 0.0)
        far = np.where(slope == 1, high, low)
        still = np.flatnonzero(~bends & (least < 0) & (most > 0) & (far != 0))
        return _Place(weight, z - kink, low, high, np.flatnonzero(bends), slope, cut, signs[cut], still)


def _site(rows: int, slope: float, hinges: Sequence[_Place]) -> Bends:
    base, shift = np.full(rows, slope), np.zeros(rows)
    for place in hinges:
        base = base + place.weight * place.slope
        at, line = place.at[place.cut], place.slope[place.cut]
        shift[place.cut] += place.weight * (line * at - np.maximum(at, 0.0))

    def joined(parts: list[Any], kind: type = np.float64) -> Any:
        return np.concatenate(parts) if parts else np.zeros(0, dtype=kind)

    return Bends(
        base,
        joined([place.bends for place in hinges], np.intp),
        joined([np.full(len(place.bends), place.weight) for place in hinges]),
        joined([place.at[place.bends] for place in hinges]),
        joined([place.low[place.bends] for place in hinges]),
        joined([place.high[place.bends] for place in hinges]),
        joined([place.cut for place in hinges], np.intp),
        joined([place.sign for place in hinges]),
        joined([place.at[place.cut] for place in hinges]),
        shift,
        joined([place.still for place in hinges], np.intp),
        joined([np.where(place.slope == 1, place.high, place.low)[place.still] for place in hinges]),
        joined([place.at[place.still] for place in hinges]),
    )


class ChainLayout(Layout):
    """A chain of matrices: its hidden layers are the sites."""

    def __init__(self, weights: Sequence[Floats], functions: Sequence[PiecewiseLinear]) -> None:
        """weights: of all layers."""
        self.functions, self._weights = functions, weights
        with np.errstate(all="ignore"):  # what is infinite is refused where it is used
            self._gram: Floats = weights[0] @ weights[0].T

    def form(self, sites: Sequence[Bends], eps: float) -> ChainForm:
        """Raises: FloatingPointError for numbers beyond the floats."""
        if not np.isfinite(self._gram).all() or not all(np.isfinite(weights).all() for weights in self._weights):
            raise FloatingPointError("weights, or their squares, beyond the floats")
        return ChainForm(self._weights, sites, self._gram, eps)

    def free(self, at: Floats, middle: Floats, zeta: Floats, nu: Floats) -> Floats:  # noqa: ARG002
        """ν."""
        found: Floats = np.maximum(at, 0.0) - middle * at + nu
        return found

    def steps(self, witness: DualWitness, form: Form, multipliers: Floats) -> tuple[DualStep, ...]:  # noqa: ARG002
        """Raises: LinAlgError, FloatingPointError where floats fail."""
        found: list[DualStep] = []
        before: Floats | None = None
        total, kept = 0, np.zeros(0, dtype=np.intp)
        room = 1 / (1 - float(ETA))  # as the proof has it, but for rounding: its majorants leave no more room
        for index, numbers in enumerate(witness.numbers):
            function, w = self.functions[index], self._weights[index]
            slopes, spread, bend = np.full(len(w), float(function.slope)), np.zeros(len(w)), np.zeros(len(w))
            for (weight, _), hinge in zip(function.hinges, numbers, strict=True):
                alpha, middle, three = hinge[:3]
                slopes += float(weight) * middle
                spread += float(weight) ** 2 * np.divide(room, alpha, out=np.zeros(len(w)), where=alpha > 0)
                bend += alpha * middle**2 - three + _UNSURE * (alpha * middle**2 + three)
            with np.errstate(over="raise", invalid="raise", divide="raise"):
                if before is None:
                    s, scale = self._gram * (room / witness.gamma), 0
                else:
                    w = w[:, kept]
                    s, scale = w @ before @ w.T, total
                power = int(np.frexp(max(float(s.diagonal().max()), 2.0**-900))[1])
                total = scale + power
                kept = np.flatnonzero((slopes != 0) | (spread > 0) | (bend < 0))
                if not len(kept):
                    return (*found, *(_nothing(power) for _ in range(len(witness.numbers) - len(found))))
                majorant = guess_majorant(np.ldexp(s[np.ix_(kept, kept)], -power))
                v = np.sqrt(np.ldexp(np.maximum(bend[kept], 0.0), total))
                v = np.where(bend[kept] > 0, np.nextafter(v * (1 + 2.0**-50), np.inf), 0.0)
                drop, gain, smaller = _dropped(majorant.above, np.ldexp(np.maximum(-bend[kept], 0.0), total))
                step = guess_inner(smaller, v)
                found.append(DualStep(kept, power, majorant, step, drop, gain))
                before = slopes[kept, None] * step.after * slopes[kept]
                before.flat[:: len(kept) + 1] += np.ldexp(spread[kept], -total)
        return tuple(found)


def _nothing(power: int) -> DualStep:
    """Of a layer after which nothing changes."""
    none, empty = np.zeros(0), np.zeros((0, 0))
    step = Step(Sector(none, none), none, none, empty, empty, empty, 0.0, 0.0)
    return DualStep(np.zeros(0, dtype=np.intp), power, LoewnerMajorant(empty, empty, 0.0), step, none, empty)


def _dropped(s: Floats, squares: Floats) -> tuple[Any, Any, Any]:
    """c, with squares a little below these; G; and J."""
    c = np.sqrt(squares) * (1 - 2.0**-48)
    some = np.flatnonzero(c)
    across = s[:, some] * c[some]
    gain = np.linalg.solve(across[some] * c[some, None] + np.eye(len(some)), across.T).T
    left = s - gain @ across.T
    return c, gain, left - (left[:, some] * c[some]) @ gain.T + gain @ gain.T


def _short(x: Floats) -> Floats:
    """Rounded to few bits."""
    mantissa, exponent = np.frexp(x)
    found: Floats = np.ldexp(np.rint(mantissa * 2.0**_BITS), exponent - _BITS)
    return found
