"""A point that margins and the chain leave open: certified by duals, or falsified by an exact counterexample.

In this order, each step for what the ones before it left: a short dual for every other class, the worst first; an
attack that begins where the dual's least value is attained; a strong attack; a long dual. Floats search
(`search.dual_witness`, `search.attack`), `proof.dual` and `proof.counterexample` decide.

Budgets count steps, so that a verdict does not depend on how fast a machine is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from intervalcert.backends.escalation import escalate
from intervalcert.backends.protocol import Backend, Floats
from intervalcert.errors import InconclusiveError, shortened
from intervalcert.model.evaluation import Evaluators, FloatBounds
from intervalcert.model.network import Network
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.rounding import float_near
from intervalcert.proof.counterexample import GRID, Counterexample, check_counterexample
from intervalcert.proof.decision import ATTACK, DUAL, Status
from intervalcert.proof.dual import DualChecker, has_dual
from intervalcert.proof.hinges import DualClaim, DualWitness, Goal, Range
from intervalcert.proof.local import LocalChecker, bent_layers
from intervalcert.search.ascent import ascent
from intervalcert.search.attack import QUICK, STRONG, Campaign, attack, lowered
from intervalcert.search.dual_witness import ChainLayout, DualSetting
from intervalcert.search.float_network import FloatNetwork
from intervalcert.search.hinges import Solution
from intervalcert.search.local import ChainsFound, LocalSearch, near_float
from intervalcert.verify.local import RAISE_FAULTS

__all__ = ["DEFAULT_DUAL_STEPS", "MAX_DUAL_STEPS", "CompleteVerdict", "CompleteVerifier"]

DEFAULT_DUAL_STEPS = 200
"""Of the long dual of one class; the short one has at most `_SHORT_STEPS`."""

MAX_DUAL_STEPS = 100_000

_SHORT, _SHORT_STEPS = (1e-4,), 12
_LONG = (3e-4, 1e-4, 3e-5, 1e-5, 3e-6, 1e-6, 3e-7, 1e-7)
"""What log det weighs, as parts of the lead."""

_ROUNDS = 3
"""Of the search for the chain that the ranges and the first multipliers come from."""

_WORTH = 1e-7
"""Of the lead: a dual that floats take for larger than this is worth a proof."""


@dataclass(frozen=True)
class CompleteVerdict:
    """What was found of one point.

    method: by what, if it is decided. winner: of the point, if that is known. duals, counterexample: what proves it.
    fault: what ended the attempt before it decided anything.
    """

    status: Status
    winner: int = 0
    method: str = ""
    proved_by: str = ""
    fault: str = ""
    duals: tuple[DualWitness, ...] = field(default=(), compare=False, repr=False)
    counterexample: Counterexample | None = field(default=None, compare=False, repr=False)


_OPEN = CompleteVerdict(Status.UNKNOWN)

_FLOATS_END = (np.linalg.LinAlgError, FloatingPointError, OverflowError, ZeroDivisionError)
"""What a search in floats may end with: no fault of the program."""

_quietly = np.errstate(all="ignore")
"""For attacks: what is infinite or not a number falsifies nothing."""

_strictly = partial(np.errstate, over="raise", invalid="raise", divide="raise")
"""For duals: what overflows has no value."""


@dataclass(frozen=True, eq=False)
class _Target:
    """One class that is to be led: its place among the others, the start of its dual, and the best of it so far."""

    place: int
    start: Floats
    best: tuple[Floats, Solution] | None = None


class CompleteVerifier:
    """Decides single inputs of one network over the reals."""

    def __init__(
        self,
        network: Network,
        norms: Sequence[Fraction],
        margins: Sequence[Sequence[Fraction]],
        ladder: Sequence[Backend[Any]],
        evaluators: Evaluators,
        dual_steps: int = DEFAULT_DUAL_STEPS,
    ) -> None:
        """norms, margins: of this network. Requires: the last number system is exact."""
        self._network, self._norms, self._margins, self._ladder = network, norms, margins, ladder
        self._evaluators, self._dual_steps = evaluators, dual_steps
        self._floats = FloatNetwork.of(network)
        self._has_dual = has_dual(network)
        self._checkers: dict[Backend[Any], tuple[LocalChecker, DualChecker]] = {}
        if self._has_dual:
            near = [layer.weights.near_floats() for layer in network.layers]
            with np.errstate(all="ignore"):  # what is infinite is refused where it is used
                weights = [np.ldexp(each.values, each.exponent) for each in near]
            self._layout = ChainLayout(weights, [function for function, _ in bent_layers(network)])

    # -- many at once ----------------------------------------------------------------------------------------------

    def falsified(self, columns: Sequence[RationalMatrix], eps: Sequence[Fraction]) -> list[CompleteVerdict]:
        """A quick attack on many points at once: what falls is falsified, everything else open."""
        x = np.array([_floats(column) for column in columns])
        try:
            radius = np.array([near_float(each) for each in eps])
        except FloatingPointError:  # `decide` says so of each
            return [_OPEN] * len(columns)
        with np.errstate(all="ignore"):
            broken = attack(self._floats, x, radius, QUICK)
        return [
            _guarded(self._judged, column, eps[k], broken[k]) if k in broken else _guarded(self._tie, column, eps[k])
            for k, column in enumerate(columns)
        ]

    @_quietly
    def _tie(self, x: RationalMatrix, eps: Fraction) -> CompleteVerdict:
        """Equal logits at the input itself, in floats: perhaps a tie."""
        (logits,) = self._floats.logits(_floats(x)[:, None]).T
        top = np.sort(logits)[-2:]
        if np.isfinite(top).all() and top[1] - top[0] <= 2.0**-40 * np.abs(top).max():
            return self._judged(x, eps, np.zeros(x.shape[0]))
        return _OPEN

    @_quietly
    def _judged(self, x: RationalMatrix, eps: Fraction, delta: Floats | None) -> CompleteVerdict:
        """Whether a change falsifies, once it is on the grid: brought there toward zero, its norm does not grow."""
        if delta is None or not np.isfinite(delta).all() or np.abs(delta).max() >= 2.0 ** (52 - GRID):
            return _OPEN
        delta = np.trunc(delta * 2.0**GRID) / 2.0**GRID
        here, there = (self._floats.logits(_floats(x)[:, None] + d[:, None])[:, 0] for d in (0 * delta, delta))
        if not (np.isfinite(here).all() and np.isfinite(there).all()):
            return _OPEN
        order = np.argsort(-here, kind="stable")
        for winner in order[: 1 + int((here >= here[order[0]] - 2.0**-40 * np.abs(here).max()).sum())].tolist():
            others = np.delete(np.arange(len(there)), winner)
            guess = Counterexample(delta, winner, int(others[np.argmax(there[others])]))
            try:
                enclosures = self._evaluators.finer(self._ladder)
                proved_by = check_counterexample(guess, x, eps, self._network.outputs, enclosures)
            except InconclusiveError:
                continue
            return CompleteVerdict(Status.FALSIFIED, winner, ATTACK, proved_by, counterexample=guess)
        return _OPEN

    # -- one by one ------------------------------------------------------------------------------------------------

    def decide(self, x: RationalMatrix, eps: Fraction) -> CompleteVerdict:
        """What is proved of one input, a column. An attempt that ends by a fault decides nothing, and says so."""
        return _guarded(self._attempt, x, eps)

    def _attempt(self, x: RationalMatrix, eps: Fraction) -> CompleteVerdict:
        radius, proof, fault = near_float(eps), None, ""
        if self._has_dual and eps > 0:
            try:
                with _strictly():
                    proof = self._duals(x, eps)
                    first = _OPEN if proof is None else proof.decided()
            except _FLOATS_END as error:
                proof, first, fault = None, _OPEN, _said(error)
            if first.status is not Status.UNKNOWN:
                return first
        found = self._strongly(x, eps, radius)
        if found.status is not Status.UNKNOWN:
            return found
        if proof is not None:
            with _strictly():
                found = proof.continued()
            fault = proof.fault
        return found if found.status is not Status.UNKNOWN else replace(found, fault=fault)

    def _duals(self, x: RationalMatrix, eps: Fraction) -> _DualProof | None:
        """The duals of all classes that margins do not settle; None if there is no chain to begin with."""
        points = self._evaluators.of_points(self._ladder[-1])
        values = points.at(x)
        ends = [value.float_bounds() for value in values]
        search = LocalSearch(self._network, self._floats, ends, eps)
        chains = search.best_chains(_ROUNDS)
        if chains is None:
            return None
        leads = points.leads(values[-1], search.winner)[0]
        return _DualProof(self, x, eps, search, chains, ends[:-1], leads)

    @_quietly
    def _strongly(self, x: RationalMatrix, eps: Fraction, radius: float) -> CompleteVerdict:
        broken = attack(self._floats, _floats(x)[None], radius, STRONG)
        return self._judged(x, eps, broken.get(0))

    def on(self, backend: Backend[Any]) -> tuple[LocalChecker, DualChecker]:
        """Who checks chains and duals."""
        if backend not in self._checkers:
            made = LocalChecker(self._network, backend), DualChecker(self._network, backend, self._norms)
            self._checkers[backend] = made
        return self._checkers[backend]


class _DualProof:
    """The duals of one point: one for each class that the margins do not settle.

    fault: what ended the search for one of them before it had a value; empty if nothing did.
    """

    def __init__(
        self,
        verifier: CompleteVerifier,
        x: RationalMatrix,
        eps: Fraction,
        search: LocalSearch,
        chains: ChainsFound,
        inner: Sequence[FloatBounds],
        leads: Floats,
    ) -> None:
        """inner, leads: enclosures of the hidden layers' values at x, and the winner's leads from below."""
        self._of, self._x, self._eps = verifier, x, eps
        self._winner, self._inner, self._chains = search.winner, inner, chains
        self._others = np.delete(np.arange(verifier._network.outputs), search.winner)
        reaches = [link.reach for link in chains.chains[-1]]
        self._ranges = [_range(ends, reach) for ends, reach in zip(inner, reaches, strict=True)]
        middles = [low / 2 + high / 2 for low, high in inner]
        near = near_float(eps)
        self._setting = DualSetting(verifier._layout, middles, self._ranges, near)
        self._leads = leads
        self._proved: list[DualWitness] = []
        self._provers: set[str] = set()
        self.fault = ""
        self._known: dict[Backend[Any], list[Range]] = {}
        settled = [
            lead > 0 and Fraction(lead) > eps * verifier._margins[search.winner][other]
            for lead, other in zip(leads.tolist(), self._others.tolist(), strict=True)
        ]
        slopes = near * np.sqrt(chains.squares)
        order = np.argsort(leads / np.maximum(slopes, 1e-300), kind="stable").tolist()
        self._open = [_Target(k, self._start(k)) for k in order if not settled[k]]

    def _start(self, place: int) -> Floats:
        return self._setting.start(self._chains.multipliers, float(self._chains.squares[place]), self._leads[place])

    def decided(self) -> CompleteVerdict:
        """By short duals, and an attack from where the first one that fails is least."""
        if not (self._leads > 0).all():
            return _OPEN
        return self._through(_SHORT, _SHORT_STEPS)

    def continued(self) -> CompleteVerdict:
        """By long duals."""
        if not (self._leads > 0).all():
            return _OPEN
        return self._through(_LONG, max(1, self._of._dual_steps // len(_LONG)))

    def _through(self, weights: Sequence[float], steps: int) -> CompleteVerdict:
        """One class after the other. What one of them does not lead decides the point, or leaves it open."""
        while self._open:
            target = self._climbed(self._open[0], weights, steps)
            self._open[0] = target
            if target.best is None or not self._is_proved(target, *target.best):
                return self._attacked(target)
            self._open.pop(0)
        return CompleteVerdict(
            Status.CERTIFIED, self._winner, DUAL, " and ".join(sorted(self._provers)), duals=tuple(self._proved)
        )

    def _goal(self, target: _Target) -> Goal:
        return Goal(len(self._ranges), self._winner, int(self._others[target.place]))

    def _climbed(self, target: _Target, weights: Sequence[float], steps: int) -> _Target:
        lead = float(self._leads[target.place])
        direction = self._setting.form.direction(self._goal(target))
        start = target.start if target.best is None else target.best[0]

        def solve(multipliers: Floats, weight: float) -> Solution:
            return self._setting.form.solved(multipliers, direction, lead, weight)

        best = target.best
        try:
            for multipliers, solution in ascent(solve, start, lead, weights, steps):
                if best is None or solution.value > best[1].value:
                    best = multipliers, solution
                if solution.value > _WORTH * lead:
                    break
        except _FLOATS_END as error:  # what was found before stays
            self.fault = _said(error)
        return _Target(target.place, target.start, best)

    def _is_proved(self, target: _Target, multipliers: Floats, solution: Solution) -> bool:
        if not solution.value > 0:
            return False
        lead = float(self._leads[target.place])
        found = self._setting.found(multipliers, self._goal(target), lead)
        if not found.value > 0:
            return False

        def check(backend: Backend[Any]) -> DualClaim:
            chain, dual = self._of.on(backend)
            if backend not in self._known:
                reaches = chain.reaches(self._chains.chains, self._inner, self._eps)
                self._known[backend] = [_range(ends, reach) for ends, reach in zip(self._inner, reaches, strict=True)]
            return dual.check(found.witness, found.steps, found.at, self._x, self._known[backend], self._eps)

        try:
            proved = escalate(self._of._ladder, check)
        except InconclusiveError:
            return False
        self._proved.append(found.witness)
        self._provers.add(proved.value.proved_by)
        return True

    @_quietly
    def _attacked(self, target: _Target) -> CompleteVerdict:
        """From the change at which the least value of the dual is attained."""
        if target.best is None:
            return _OPEN
        _, solution = target.best
        pair = np.array([self._winner]), self._others[[target.place]]
        radius = np.array([near_float(self._eps) * (1 - 1e-9)])
        campaign = Campaign(steps=10, fixed=20)
        lead, found = lowered(self._of._floats, _floats(self._x)[None], *pair, radius, solution.delta[None], campaign)
        return self._of._judged(self._x, self._eps, found[0]) if lead[0] <= 0 else _OPEN


def _guarded(attempt: Callable[..., CompleteVerdict], *arguments: Any) -> CompleteVerdict:
    """What an attempt finds. One that ends by a fault, whatever it is, decides nothing, and says so."""
    try:
        return attempt(*arguments)
    except _FLOATS_END as error:
        return CompleteVerdict(Status.UNKNOWN, fault=_said(error))
    except Exception as error:
        if os.environ.get(RAISE_FAULTS):
            raise
        return CompleteVerdict(Status.UNKNOWN, fault=_said(error))


def _range(ends: FloatBounds, reach: Floats) -> Range:
    """Between which values stay that are between the ends, and change by at most the reach."""
    # A float sum is at most half a step off: the next float is on the safe side.
    return np.nextafter(ends[0] - reach, -np.inf), np.nextafter(ends[1] + reach, np.inf)


def _floats(column: RationalMatrix) -> Floats:
    """Near them."""
    numerators, denominator = column.numerators[:, 0].tolist(), column.denominator
    return np.array([float_near(x, denominator) for x in numerators])


def _said(error: Exception) -> str:
    return shortened(f"{type(error).__name__}: {error}", 100)
