"""A point that margins and the chain leave open: certified by duals, or falsified by an exact counterexample.

In this order, each step for what the ones before it left: a short dual for every other class, the worst first; an
attack that begins where the dual's least value is attained; a strong attack; a long dual; narrower ranges; splits
(`branching`). Floats search (`search.dual_witness`, `search.attack`); `proof.dual`, `proof.trees`, and for
counterexamples `proof.counterexample` and `proof.program` decide.

Duals are of the nominal network over the reals: what uncertain scales, or a program in floats, may take off a lead is
deducted from it.
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
from intervalcert.numbers.float_formats import FloatFormat
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.proof.decision import ATTACK, DUAL, SPLIT, Bracket, Status
from intervalcert.proof.hinges import joined
from intervalcert.proof.trees import DualProof, leaves
from intervalcert.search.float_network import FloatNetwork
from intervalcert.verify.branching import FLOATS_END, Budget, Budgets, Pursuit
from intervalcert.verify.dual_cases import DualProver
from intervalcert.verify.duals import duals_of
from intervalcert.verify.falsify import AnyCounterexample, Falsified, Falsifier, ProgramFalsifier, RealFalsifier
from intervalcert.verify.local import RAISE_FAULTS

__all__ = ["CompleteVerdict", "CompleteVerifier"]

_SHORT, _SHORT_STEPS = (1e-4,), 12
_LONG = (3e-4, 1e-4, 3e-5, 1e-5, 3e-6, 1e-6, 3e-7, 1e-7)
"""What log det weighs, as parts of the lead."""

_AGAIN = (3e-4, 1e-4, 3e-5, 1e-5, 3e-6, 1e-6)
"""Once ranges are narrower."""

_WORTH_NARROWING = 0.03
"""Of what a bound lacks: what another round of narrowing must have gained."""


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
    counterexample: AnyCounterexample | None = field(default=None, compare=False, repr=False)
    bracket: Bracket | None = field(default=None, compare=False)


_OPEN = CompleteVerdict(Status.UNKNOWN)

_strictly = partial(np.errstate, over="raise", invalid="raise", divide="raise")
"""For duals: what overflows has no value."""


class CompleteVerifier:
    """Decides single inputs of one network: over the reals, or of the program in a format."""

    def __init__(
        self,
        network: Network,
        norms: Sequence[Fraction],
        margins: Sequence[Sequence[Fraction]],
        ladder: Sequence[Backend[Any]],
        evaluators: Evaluators,
        budgets: Budgets | None = None,
        form: FloatFormat | None = None,
    ) -> None:
        """norms, margins: of this network. form: of a program, whose network is as deployed; None for the reals.

        Requires: the last number system is exact.
        """
        self._network, self._margins = network, margins
        self.budgets, self._form = budgets or Budgets(), form
        floats = FloatNetwork.of(network)
        self.falsifier: Falsifier = (
            RealFalsifier(network, floats, evaluators, ladder)
            if form is None
            else ProgramFalsifier(network, floats, form)
        )
        self._duals = duals_of(network, norms, ladder, evaluators)

    def attacked(self, columns: Sequence[RationalMatrix], eps: Sequence[Fraction]) -> list[CompleteVerdict]:
        """By a quick attack on many points at once: what falls is falsified, everything else open."""
        try:
            broken = self.falsifier.attacked(columns, eps)
        except FLOATS_END:  # `decide` says so of each
            broken = {}
        found = [_OPEN] * len(columns)
        for k, delta in broken.items():
            found[k] = _guarded(self._judged, columns[k], eps[k], delta)
        return found

    def _judged(self, x: RationalMatrix, eps: Fraction, delta: Floats) -> CompleteVerdict:
        return _falsified(self.falsifier.judged(x, eps, delta))

    def decide(
        self, x: RationalMatrix, eps: Fraction, winner: int | None = None, deductions: Floats | None = None
    ) -> CompleteVerdict:
        """What is proved of one input, a column. An attempt that ends by a fault decides nothing, and says so.

        winner, deductions: of a program, what is to be taken off the lead of that class over each; None if its errors
        are not known, so that nothing is certified.
        """
        return _guarded(self._attempt, x, eps, winner, deductions)

    def _attempt(
        self, x: RationalMatrix, eps: Fraction, winner: int | None, deductions: Floats | None
    ) -> CompleteVerdict:
        fault, pursuits = "", None
        budget = self.budgets.begun()
        if eps > 0 and (self._form is None or deductions is not None):
            try:
                with _strictly():
                    pursuits = self._pursued(x, eps, budget, winner, deductions)
                    if pursuits is not None and pursuits.all_climb(_SHORT, _SHORT_STEPS):
                        return pursuits.certified()
            except (*FLOATS_END, InconclusiveError) as error:
                pursuits, fault = None, _said(error)
        is_hopeless = pursuits is not None and pursuits.is_hopeless(pursuits.change)
        if pursuits is not None and pursuits.falsified is not None:
            return _falsified(pursuits.falsified)
        found = self.falsifier.strongly(x, eps)
        if found is not None:
            return _falsified(found)
        if pursuits is None:
            return replace(_OPEN, fault=fault)
        with _strictly():
            if not is_hopeless and pursuits.all_end():
                return pursuits.certified()
        return pursuits.open() if pursuits.falsified is None else _falsified(pursuits.falsified)

    def _pursued(
        self, x: RationalMatrix, eps: Fraction, budget: Budget, winner: int | None, deductions: Floats | None
    ) -> _Pursuits | None:
        """All classes that margins do not settle; None if there is no dual to begin with, or a tie."""
        if self._duals is None:
            return None
        prover = self._duals.prover(x, eps, lambda winner: self._deducted(x, eps, winner, deductions))
        if prover is None or winner not in (None, prover.case.winner):
            return None
        case = prover.case
        settled = [
            Fraction(lead) > eps * self._margins[case.winner][other] + deducted
            for lead, other, deducted in zip(case.leads.tolist(), case.others.tolist(), case.deducted, strict=True)
        ]
        return _Pursuits(self, x, prover, settled, budget)

    def _deducted(self, x: RationalMatrix, eps: Fraction, winner: int, deductions: Floats | None) -> list[Fraction]:
        """What a nominal lead of the winner over each other class must be more than.

        Raises: FloatingPointError if that is not finite.
        """
        uncertain = Fraction(0) if self._duals is None else self._duals.distance.deduction(x, eps)
        if deductions is None:
            return [uncertain] * (self._network.outputs - 1)
        if not np.isfinite(deductions).all():
            raise FloatingPointError("errors of the program beyond the floats")
        return [uncertain + Fraction(each) for each in np.delete(deductions, winner).tolist()]


class _Pursuits:
    """All classes of a point that margins do not settle, the one that seems nearest first.

    falsified: a counterexample, once there is one.
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
        self.falsified: Falsified | None = None

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
            proved = now.climbs(_LONG, steps) or (not self.is_hopeless(now.change) and self._ends(now))
            if not (proved and now.concludes()):
                return False
            self._left.pop(0)
        return True

    def _ends(self, now: Pursuit) -> bool:
        before = now.value
        while now.narrows():
            if now.climbs(_AGAIN, _SHORT_STEPS):
                return True
            if self.is_hopeless(now.change):
                return False
            if not now.value > before + _WORTH_NARROWING * abs(before):
                break
            before = now.value
        return now.splits(self.is_hopeless)

    def is_hopeless(self, change: Floats | None) -> bool:
        """Whether an attack that begins there finds a counterexample, or a lead that is no more than what is deducted.

        Then there is no proof.
        """
        if change is None:
            return False
        falsifier, eps = self._of.falsifier, self._case.eps
        lead, found = falsifier.lowest(self._x, eps, self._case.winner, self._left[0].other, change)
        self._lowest = found
        if lead <= float(max(self._case.deducted)):
            self.falsified = falsifier.judged(self._x, eps, found)
        return self.falsified is not None or lead <= float(min(self._case.deducted))

    def certified(self) -> CompleteVerdict:
        proof = self._prover.proof
        method = SPLIT if any(leaves(tree) > 1 for tree in proof.trees) else DUAL
        by = joined(sorted(self._prover.provers))
        return CompleteVerdict(Status.CERTIFIED, self._case.winner, method, by, proof=proof)

    def open(self) -> CompleteVerdict:
        """With what is known of the lead that could not be settled."""
        now, case = self._left[0], self._case
        with _strictly():
            lower = now.lower_bound()
        upper = np.inf
        if self._lowest is not None:
            upper = self._of.falsifier.lead_at(self._x, case.eps, self._lowest, case.winner, now.other)
        bracket = Bracket(case.winner, now.other, lower, upper, self._budget.ended)
        return CompleteVerdict(Status.UNKNOWN, fault=now.fault, bracket=bracket)


def _falsified(found: Falsified | None) -> CompleteVerdict:
    if found is None:
        return _OPEN
    return CompleteVerdict(Status.FALSIFIED, found.winner, ATTACK, found.proved_by, counterexample=found.counterexample)


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


def _said(error: Exception) -> str:
    return shortened(f"{type(error).__name__}: {error}", 100)
