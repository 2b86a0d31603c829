"""A point that margins and the chain leave open: certified by duals, or falsified by an exact counterexample.

In this order, each step for what the ones before it left: a short dual for every other class, the worst first; an
attack that begins where the dual's least value is attained; a strong attack; a long dual; narrower ranges; splits
(`branching`). Floats search (`search.dual_witness`, `search.attack`); `proof.dual`, `proof.trees` and
`proof.counterexample` decide.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from intervalcert.backends.protocol import Backend, Floats
from intervalcert.errors import InconclusiveError, shortened
from intervalcert.model.evaluation import Evaluators
from intervalcert.model.network import Network
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.rounding import float_near
from intervalcert.proof.counterexample import GRID, Counterexample, check_counterexample, moved
from intervalcert.proof.decision import ATTACK, DUAL, SPLIT, Bracket, Status
from intervalcert.proof.dual import DualChecker, has_dual
from intervalcert.proof.hinges import joined
from intervalcert.proof.local import LocalChecker, bent_layers
from intervalcert.proof.trees import DualProof, leaves
from intervalcert.search.attack import QUICK, STRONG, Campaign, attack, lowered
from intervalcert.search.dual_witness import ChainLayout
from intervalcert.search.float_network import FloatNetwork
from intervalcert.search.local import LocalSearch, near_float
from intervalcert.verify.branching import FLOATS_END, Budget, Budgets, Pursuit
from intervalcert.verify.dual_cases import ChainCase, DualProver
from intervalcert.verify.local import RAISE_FAULTS

__all__ = ["CompleteVerdict", "CompleteVerifier"]

_SHORT, _SHORT_STEPS = (1e-4,), 12
_LONG = (3e-4, 1e-4, 3e-5, 1e-5, 3e-6, 1e-6, 3e-7, 1e-7)
"""What log det weighs, as parts of the lead."""

_ROUNDS = 3
"""Of the search for the chain that the ranges and the first multipliers come from."""

_AGAIN = (1e-5, 1e-6)
"""Once ranges are narrower."""

_FROM_DUAL = Campaign(steps=10, fixed=20)
"""Of an attack that begins where a dual has its least value."""


@dataclass(frozen=True)
class CompleteVerdict:
    """What was found of one point.

    method: by what, if it is decided. winner: of the point, if that is known. proof, counterexample: what proves it.
    bracket: what is known of the least lead, where nothing is decided.
    fault: what ended the attempt before it decided anything.
    """

    status: Status
    winner: int = 0
    method: str = ""
    proved_by: str = ""
    fault: str = ""
    proof: DualProof | None = field(default=None, compare=False, repr=False)
    counterexample: Counterexample | None = field(default=None, compare=False, repr=False)
    bracket: Bracket | None = field(default=None, compare=False)


_OPEN = CompleteVerdict(Status.UNKNOWN)

_quietly = np.errstate(all="ignore")
"""For attacks: what is infinite or not a number falsifies nothing."""

_strictly = partial(np.errstate, over="raise", invalid="raise", divide="raise")
"""For duals: what overflows has no value."""


class CompleteVerifier:
    """Decides single inputs of one network over the reals."""

    def __init__(
        self,
        network: Network,
        norms: Sequence[Fraction],
        margins: Sequence[Sequence[Fraction]],
        ladder: Sequence[Backend[Any]],
        evaluators: Evaluators,
        budgets: Budgets | None = None,
    ) -> None:
        """norms, margins: of this network. Requires: the last number system is exact."""
        self._network, self._norms, self._margins, self._ladder = network, norms, margins, ladder
        self._evaluators, self.budgets = evaluators, budgets or Budgets()
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
            _guarded(self.judged, column, eps[k], broken[k]) if k in broken else _guarded(self._tie, column, eps[k])
            for k, column in enumerate(columns)
        ]

    @_quietly
    def _tie(self, x: RationalMatrix, eps: Fraction) -> CompleteVerdict:
        """Equal logits at the input itself, in floats: perhaps a tie."""
        (logits,) = self._floats.logits(_floats(x)[:, None]).T
        top = np.sort(logits)[-2:]
        if np.isfinite(top).all() and top[1] - top[0] <= 2.0**-40 * np.abs(top).max():
            return self.judged(x, eps, np.zeros(x.shape[0]))
        return _OPEN

    @_quietly
    def judged(self, x: RationalMatrix, eps: Fraction, delta: Floats | None) -> CompleteVerdict:
        """Whether a change falsifies, once it is on the grid: brought there toward zero, its norm does not grow."""
        if delta is None or not np.isfinite(delta).all() or np.abs(delta).max() >= 2.0 ** (52 - GRID):
            return _OPEN
        delta = _on_grid(delta)
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
        radius, budget, fault = near_float(eps), self.budgets.begun(), ""
        pursuits: _Pursuits | None = None
        if self._has_dual and eps > 0:
            try:
                with _strictly():
                    pursuits = self._pursued(x, eps, budget)
                    if pursuits is not None and pursuits.all_climb(_SHORT, _SHORT_STEPS):
                        return pursuits.certified()
            except FLOATS_END as error:
                pursuits, fault = None, _said(error)
        if pursuits is not None and pursuits.falsified_from(pursuits.change):
            return pursuits.falsified
        found = self._strongly(x, eps, radius)
        if found.status is not Status.UNKNOWN:
            return found
        if pursuits is None:
            return replace(found, fault=fault)
        with _strictly():
            if pursuits.all_end():
                return pursuits.certified()
        if pursuits.falsified.status is Status.FALSIFIED:
            return pursuits.falsified
        return pursuits.open()

    def _pursued(self, x: RationalMatrix, eps: Fraction, budget: Budget) -> _Pursuits | None:
        """All classes that margins do not settle; None if there is no chain to begin with, or a tie."""
        points = self._evaluators.of_points(self._ladder[-1])
        values = points.at(x)
        ends = [value.float_bounds() for value in values]
        search = LocalSearch(self._network, self._floats, ends, eps)
        chains = search.best_chains(_ROUNDS)
        leads = points.leads(values[-1], search.winner)[0]
        if chains is None or not (leads > 0).all():
            return None
        deducted = [Fraction(0)] * len(leads)
        case = ChainCase(self._layout, self.on, x, eps, search.winner, chains, ends[:-1], leads, deducted)
        settled = [
            Fraction(lead) > eps * self._margins[case.winner][other]
            for lead, other in zip(leads.tolist(), case.others.tolist(), strict=True)
        ]
        return _Pursuits(self, x, DualProver(case, self._ladder), settled, budget)

    @_quietly
    def _strongly(self, x: RationalMatrix, eps: Fraction, radius: float) -> CompleteVerdict:
        broken = attack(self._floats, _floats(x)[None], radius, STRONG)
        return self.judged(x, eps, broken.get(0))

    @_quietly
    def lowest(self, x: RationalMatrix, radius: float, winner: int, other: int, start: Floats) -> tuple[float, Floats]:
        """The least lead over all others that an attack meets which begins at a change, and where."""
        pair, inside = (np.array([winner]), np.array([other])), np.array([radius * (1 - 1e-9)])
        lead, found = lowered(self._floats, _floats(x)[None], *pair, inside, start[None], _FROM_DUAL)
        return float(lead[0]), found[0]

    def lead_at(self, x: RationalMatrix, delta: Floats, winner: int, other: int) -> float:
        """A float that the lead is no larger than at a change; inf if that is not known."""
        try:
            there = moved(x, _on_grid(delta))
            points = self._evaluators.of_points(self._ladder[-1])
            found = points.leads(points.at(there)[-1], winner)[1]
        except InconclusiveError:
            return np.inf
        return float(found[other - (other > winner)])

    def on(self, backend: Backend[Any]) -> tuple[LocalChecker, DualChecker]:
        """Who checks chains and duals."""
        if backend not in self._checkers:
            made = LocalChecker(self._network, backend), DualChecker(self._network, backend, self._norms)
            self._checkers[backend] = made
        return self._checkers[backend]


class _Pursuits:
    """All classes of a point that margins do not settle, the one that seems nearest first.

    falsified: the verdict, once there is a counterexample; open until then.
    """

    def __init__(
        self,
        verifier: CompleteVerifier,
        x: RationalMatrix,
        prover: DualProver,
        settled: Sequence[bool],
        budget: Budget,
    ) -> None:
        case = prover.case
        self._of, self._x, self._case, self._prover, self._budget = verifier, x, case, prover, budget
        slopes = case.near_eps * np.sqrt(case.squares)
        order = np.argsort(case.leads / np.maximum(slopes, 1e-300), kind="stable").tolist()
        self._left = [Pursuit(prover, place, budget) for place in order if not settled[place]]
        self._lowest: Floats | None = None
        self.falsified = _OPEN

    @property
    def change(self) -> Floats | None:
        """Where the first dual that failed has its least value."""
        return self._left[0].change

    def all_climb(self, weights: Sequence[float], steps: int) -> bool:
        """Whether duals of so many steps settle all classes. One after the other: what one of them leaves open is
        decided before the next.
        """
        while self._left and self._left[0].climbs(weights, steps) and self._left[0].concludes():
            self._left.pop(0)
        return not self._left

    def all_end(self) -> bool:
        """Whether long duals, narrower ranges and splits settle all classes."""
        steps = max(1, self._of.budgets.steps // len(_LONG))
        while self._left:
            now = self._left[0]
            proved = now.climbs(_LONG, steps) or (not self.falsified_from(now.change) and self._ends(now))
            if not (proved and now.concludes()):
                return False
            self._left.pop(0)
        return True

    def _ends(self, now: Pursuit) -> bool:
        return (now.narrows() and now.climbs(_AGAIN, _SHORT_STEPS)) or now.splits(self.falsified_from)

    def falsified_from(self, change: Floats | None) -> bool:
        """Whether an attack that begins there finds a counterexample."""
        if change is None:
            return False
        winner, other = self._case.winner, self._left[0].other
        lead, found = self._of.lowest(self._x, self._case.near_eps, winner, other, change)
        if lead <= 0:
            self.falsified = self._of.judged(self._x, self._case.eps, found)
        self._lowest = found
        return self.falsified.status is Status.FALSIFIED

    def certified(self) -> CompleteVerdict:
        proof = self._prover.proof
        method = SPLIT if any(leaves(tree) > 1 for tree in proof.trees) else DUAL
        by = joined(sorted(self._prover.provers))
        return CompleteVerdict(Status.CERTIFIED, self._case.winner, method, by, proof=proof)

    def open(self) -> CompleteVerdict:
        """With what is known of the lead that could not be settled."""
        now, winner = self._left[0], self._case.winner
        with _strictly():
            lower = now.lower_bound()
        upper = np.inf if self._lowest is None else self._of.lead_at(self._x, self._lowest, winner, now.other)
        bracket = Bracket(winner, now.other, lower, upper, self._budget.ended)
        return CompleteVerdict(Status.UNKNOWN, fault=now.fault, bracket=bracket)


def _guarded(attempt: Callable[..., CompleteVerdict], *arguments: Any) -> CompleteVerdict:
    """What an attempt finds. One that ends by a fault, whatever it is, decides nothing, and says so."""
    try:
        return attempt(*arguments)
    except FLOATS_END as error:
        return CompleteVerdict(Status.UNKNOWN, fault=_said(error))
    except Exception as error:
        if os.environ.get(RAISE_FAULTS):
            raise
        return CompleteVerdict(Status.UNKNOWN, fault=_said(error))


def _on_grid(delta: Floats) -> Floats:
    """Toward zero, so that the norm does not grow."""
    found: Floats = np.trunc(delta * 2.0**GRID) / 2.0**GRID
    return found


def _floats(column: RationalMatrix) -> Floats:
    """Near them."""
    numerators, denominator = column.numerators[:, 0].tolist(), column.denominator
    return np.array([float_near(x, denominator) for x in numerators])


def _said(error: Exception) -> str:
    return shortened(f"{type(error).__name__}: {error}", 100)
