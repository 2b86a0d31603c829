"""Counterexamples: floats attack (`search.attack`), and what they find is judged, over the reals or for a program."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from intervalcert.backends.protocol import Backend, Floats
from intervalcert.errors import InconclusiveError
from intervalcert.model.evaluation import Evaluators
from intervalcert.model.network import Network
from intervalcert.numbers.float_formats import FloatFormat
from intervalcert.numbers.matrices import RationalMatrix, exact_integers
from intervalcert.numbers.rounding import float_at_least, float_near, sqrt_upper
from intervalcert.proof.counterexample import GRID, Counterexample, check_counterexample, moved
from intervalcert.proof.program import FloatCounterexample, Program, check_float_counterexample, distance_squared
from intervalcert.search.attack import QUICK, STRONG, Campaign, attack, lowered
from intervalcert.search.float_network import FloatNetwork
from intervalcert.search.local import near_float
from intervalcert.search.nearest import brought_nearer

__all__ = [
    "AnyCounterexample",
    "Falsified",
    "Falsifier",
    "ProgramFalsifier",
    "RealFalsifier",
    "distance_upper",
    "span_of",
]

AnyCounterexample = Counterexample | FloatCounterexample

_FROM_DUAL = Campaign(steps=10, fixed=20)
"""Of an attack that begins where a dual has its least value."""

_BEYOND = (0.0, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3)
"""Parts by which to go beyond where floats see a tie, so that the change, rounded, does falsify."""

_NEAR_TIE = 2.0**-40
"""Of the largest logit: floats do not tell which of two that are so near to each other is larger."""

_quietly = np.errstate(all="ignore")
"""What is infinite or not a number falsifies nothing."""


@dataclass(frozen=True)
class Falsified:
    """A counterexample that was checked, by that number system, and the winner that it takes the lead from."""

    counterexample: AnyCounterexample
    winner: int
    proved_by: str


def span_of(found: AnyCounterexample, x: RationalMatrix) -> tuple[Fraction, Fraction]:
    """The least and the largest entry of the input that falsifies, exactly. x: the input that it is near to."""
    at = (
        moved(x, found.delta)
        if isinstance(found, Counterexample)
        else RationalMatrix.from_floats(found.changed[:, None])
    )
    entries = at.numerators.ravel().tolist()
    return Fraction(min(entries), at.denominator), Fraction(max(entries), at.denominator)


def distance_upper(found: AnyCounterexample, x: RationalMatrix) -> float:
    """The least float, or nearly, that is at least the distance of what falsifies from the input: it falsifies there.

    Of a program both inputs must be within eps.
    """
    if isinstance(found, Counterexample):
        numbers, unit = exact_integers(found.delta)
        square = Fraction(int((numbers * numbers).sum()), unit**2)
    else:
        square = max(distance_squared(u, x) for u in (found.near, found.changed))
    distance = sqrt_upper(square, 53)
    return float_at_least(distance.numerator, distance.denominator)


class Falsifier(ABC):
    """Looks for counterexamples of one network."""

    _campaigns: tuple[Campaign, Campaign, Campaign] = (QUICK, STRONG, _FROM_DUAL)
    """For many points at once, for one, and from where a dual has its least value."""

    _near_tie = _NEAR_TIE

    def __init__(self, floats: FloatNetwork) -> None:
        self._floats = floats

    @abstractmethod
    def judged(self, x: RationalMatrix, eps: Fraction, delta: Floats) -> Falsified | None:
        """Whether this change, or one very near to it, falsifies. x: a column."""

    @abstractmethod
    def lead_at(self, x: RationalMatrix, eps: Fraction, delta: Floats, winner: int, other: int) -> float:
        """A float that the lead is no larger than at some input within eps, near that change; inf if none is known."""

    @_quietly
    def attacked(self, columns: Sequence[RationalMatrix], eps: Sequence[Fraction]) -> dict[int, Floats]:
        """By a quick attack on many points at once: a change for each that seems to fall, or to be a tie.

        Raises: FloatingPointError for an eps beyond the floats.
        """
        x, radius = np.array([floats_near(column) for column in columns]), np.array([near_float(each) for each in eps])
        top = np.sort(self._floats.logits(x.T).T, axis=1)[:, -2:]
        ties = np.isfinite(top).all(axis=1) & (top[:, 1] - top[:, 0] <= self._near_tie * np.abs(top).max(axis=1))
        broken = attack(self._floats, x, radius, self._campaigns[0])
        return {k: np.zeros(x.shape[1]) for k in np.flatnonzero(ties).tolist()} | broken

    @_quietly
    def strongly(self, x: RationalMatrix, eps: Fraction) -> Falsified | None:
        """By a strong attack."""
        broken = attack(self._floats, floats_near(x)[None], near_float(eps), self._campaigns[1])
        return self.judged(x, eps, broken[0]) if broken else None

    @_quietly
    def lowest(self, x: RationalMatrix, eps: Fraction, winner: int, other: int, start: Floats) -> tuple[float, Floats]:
        """The least lead over all others that floats meet on the way from a change to that class, and where."""
        pair, inside = (np.array([winner]), np.array([other])), np.array([near_float(eps) * (1 - 1e-9)])
        begin, campaign = np.nan_to_num(start)[None], self._campaigns[2]
        lead, found = lowered(self._floats, floats_near(x)[None], *pair, inside, begin, campaign)
        return float(lead[0]), found[0]

    @_quietly
    def nearer(self, x: RationalMatrix, found: AnyCounterexample) -> Falsified | None:
        """A counterexample that is nearer than one that is known, and has the same winner at the input."""
        known, at = distance_upper(found, x), floats_near(x)
        delta = found.delta if isinstance(found, Counterexample) else found.changed - at
        if not (np.isfinite(delta).all() and delta.any() and 0 < known < np.inf):
            return None
        short = brought_nearer(self._floats, at, delta, found.winner)
        for beyond in _BEYOND:
            length = float(np.linalg.norm(short)) * (1 + beyond)
            if not length < known:
                break
            better = self.judged(x, Fraction(known), short * (1 + beyond))
            if better is not None:
                return better
        return None


class RealFalsifier(Falsifier):
    """Over the reals: changes are multiples of 2^-24, and logits are enclosed."""

    def __init__(
        self, network: Network, floats: FloatNetwork, evaluators: Evaluators, ladder: Sequence[Backend[Any]]
    ) -> None:
        super().__init__(floats)
        self._outputs, self._evaluators, self._ladder = network.outputs, evaluators, ladder

    @_quietly
    def judged(self, x: RationalMatrix, eps: Fraction, delta: Floats) -> Falsified | None:
        if not np.isfinite(delta).all() or np.abs(delta).max() >= 2.0 ** (52 - GRID):
            return None
        delta = _on_grid(delta)
        here, there = self._floats.logits(floats_near(x)[:, None] + np.stack([0 * delta, delta], axis=1)).T
        if not (np.isfinite(here).all() and np.isfinite(there).all()):
            return None
        order = np.argsort(-here, kind="stable")
        likely = 1 + int((here >= here[order[0]] - _NEAR_TIE * np.abs(here).max()).sum())
        for winner in order[:likely].tolist():
            others = np.delete(np.arange(len(there)), winner)
            guess = Counterexample(delta, winner, int(others[np.argmax(there[others])]))
            try:
                enclosures = self._evaluators.finer(self._ladder)
                proved_by = check_counterexample(guess, x, eps, self._outputs, enclosures)
            except InconclusiveError:
                continue
            return Falsified(guess, winner, proved_by)
        return None

    def lead_at(self, x: RationalMatrix, eps: Fraction, delta: Floats, winner: int, other: int) -> float:
        if not np.isfinite(delta).all() or np.abs(delta).max() >= 2.0 ** (52 - GRID):
            return np.inf
        numbers, unit = exact_integers(_on_grid(delta))
        if Fraction(int((numbers * numbers).sum()), unit**2) > eps**2:
            return np.inf
        for _, enclosed in self._evaluators.finer(self._ladder):
            try:
                high = enclosed(moved(x, _on_grid(delta))).leads(winner)[1]
            except InconclusiveError:
                continue
            return float(high[other - (other > winner)])
        return np.inf


class ProgramFalsifier(Falsifier):
    """For a program in floats: inputs are numbers of its format, and the program is run as `proof.program` has it."""

    _campaigns = (QUICK, replace(STRONG, is_deep=True), replace(_FROM_DUAL, is_deep=True))
    """Where the reals just tie, a program need not: so the lead is lowered as far as it goes."""

    def __init__(self, network: Network, floats: FloatNetwork, form: FloatFormat) -> None:
        """network: as deployed."""
        super().__init__(floats)
        self._program, self._form = Program(network, form), form
        self._near_tie = float(2**16 * form.unit)

    @_quietly
    def judged(self, x: RationalMatrix, eps: Fraction, delta: Floats) -> Falsified | None:
        near, changed = self._inputs(x, eps, delta)
        try:
            here, there = self._program.logits(np.stack([near, changed], axis=1)).T
            winner = int(np.argmax(here))
            others = np.delete(np.arange(len(there)), winner)
            guess = FloatCounterexample(near, changed, winner, int(others[np.argmax(there[others])]))
            check_float_counterexample(guess, x, eps, self._program)
        except InconclusiveError:
            return None
        return Falsified(guess, winner, "float64")

    def _inputs(self, x: RationalMatrix, eps: Fraction, delta: Floats) -> tuple[Floats, Floats]:
        """Of the format, near x and near x + δ: the latter within eps, as far as floats tell."""
        at, radius = floats_near(x), near_float(eps)
        near = self._form.nearest(at)
        changed = near
        part = 1.0
        for _ in range(4):  # rounding leads out of the ball by a little: then a little less is changed
            changed = self._form.nearest(at + part * delta)
            distance = float(np.linalg.norm(changed - at))
            if not distance > radius * (1 - 1e-12):
                break
            part *= radius / distance * (1 - 1e-9)
        return near, changed

    @_quietly
    def lead_at(self, x: RationalMatrix, eps: Fraction, delta: Floats, winner: int, other: int) -> float:
        """By the program."""
        _, changed = self._inputs(x, eps, delta)
        if not np.isfinite(changed).all() or distance_squared(changed, x) > eps**2:
            return np.inf
        try:
            logits = self._program.logits(changed[:, None])[:, 0]
        except InconclusiveError:
            return np.inf
        return float(np.nextafter(logits[winner] - logits[other], np.inf))


def floats_near(column: RationalMatrix) -> Floats:
    """Near the numbers of a column."""
    numerators, denominator = column.numerators[:, 0].tolist(), column.denominator
    return np.array([float_near(x, denominator) for x in numerators])


def _on_grid(delta: Floats) -> Floats:
    """Toward zero, so that the norm does not grow."""
    found: Floats = np.trunc(delta * 2.0**GRID) / 2.0**GRID
    return found
