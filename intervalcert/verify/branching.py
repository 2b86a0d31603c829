"""One class that a short dual does not settle: a longer one, narrower ranges, and splits, the least bound first.

A node of the tree has some halfspaces, and the best multipliers found in them; a child begins with those of its parent,
and never has a smaller bound: what holds of the parent holds of it. Where the least value is attained is a point that
may falsify, at every node. The least of all open bounds bounds the lead; nothing is certified before all are proved.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from itertools import count
from time import monotonic

import numpy as np

from intervalcert.backends.protocol import Floats
from intervalcert.errors import InconclusiveError, UndecidedError
from intervalcert.numbers.rounding import float_enclosure
from intervalcert.numbers.upward import float_up
from intervalcert.proof.hinges import DualClaim, Goal, Place, Splits, resolved
from intervalcert.proof.trees import Split, Tree
from intervalcert.search.ascent import ascent
from intervalcert.search.branching import ends_that_matter, widest, worth_splitting
from intervalcert.search.dual_witness import DualSetting, Found, Multipliers
from intervalcert.search.graph_guide import TooWideError
from intervalcert.search.halfspaces import best_multipliers, nothing_there
from intervalcert.search.hinges import Solution
from intervalcert.verify.dual_cases import DualProver

__all__ = [
    "DEFAULT_DUAL_STEPS",
    "DEFAULT_SPLITS",
    "FLOATS_END",
    "MAX_DUAL_STEPS",
    "MAX_SPLITS",
    "SPLITS",
    "TIME",
    "Budget",
    "Budgets",
    "Pursuit",
]

DEFAULT_DUAL_STEPS = 200
"""Of the long dual of one class."""

DEFAULT_SPLITS = 1000

MAX_DUAL_STEPS = MAX_SPLITS = 100_000

TIME, SPLITS, WORK = "time", "splits", "work"
"""What may end a search."""

MOST_WORK = 5e12
"""Products of two numbers in the forms of a point (`Form.work`): some minutes."""

FLOATS_END = (np.linalg.LinAlgError, FloatingPointError, OverflowError, ZeroDivisionError, TooWideError)
"""What a search in floats may end with: no fault of the program."""

WORTH = 1e-8
"""Of the lead: a dual that floats take for so much larger than what it must be is worth a proof."""

_NODE, _NODE_STEPS = (1e-5, 1e-6, 1e-7, 1e-8), 10
"""What log det weighs in a node, as parts of the lead, and steps for each."""

_NARROWED = 40
"""Ends of ranges that duals are tried for."""

_NARROW, _NARROW_STEPS = (1e-3, 1e-4), 8

_WORTH_NARROWING, _SLACK = 0.02, 1e-7
"""Of how far an argument reaches: what an end must gain, and what is left to rounding."""

_SLACKS = (_SLACK, 1e-4, 1e-2)
"""Of the lead: what is left to rounding in a bound of it. Large forms lose more."""


@dataclass(frozen=True)
class Budgets:
    """What a point may take. steps: of the long dual of each class. splits: of all its classes together. seconds: an
    extra stop; None for none.

    Steps and splits are counted, so that a verdict does not depend on how fast a machine is, unless seconds are given.
    """

    steps: int = DEFAULT_DUAL_STEPS
    splits: int = DEFAULT_SPLITS
    seconds: float | None = None

    def begun(self) -> Budget:
        """For one point, from now on."""
        return Budget(self.splits, np.inf if self.seconds is None else monotonic() + self.seconds)


@dataclass
class Budget:
    """What is left for a point: splits, until when, and work. ended: which of them ended a search."""

    splits: int
    deadline: float = np.inf
    work: float = MOST_WORK
    ended: str = ""

    def expired(self) -> bool:
        if self.work < 0:
            self.ended = WORK
        if self.deadline < np.inf and monotonic() > self.deadline:
            self.ended = TIME
        return self.ended in (TIME, WORK)

    def spend(self, work: float) -> None:
        """Raises: FloatingPointError if there is none left."""
        self.work -= work
        if self.work < 0 and self.expired():
            raise FloatingPointError("a search that takes too much work")

    def takes_split(self) -> bool:
        """Whether one was left."""
        if not self.splits:
            self.ended = SPLITS
        self.splits = max(self.splits - 1, 0)
        return self.ended != SPLITS


@dataclass(frozen=True, eq=False)
class _Climb:
    """The best multipliers of a form that were found, and where its least value is attained."""

    setting: DualSetting
    goal: Goal
    at_input: float
    multipliers: Floats
    solution: Solution

    @property
    def value(self) -> float:
        return self.solution.value

    def found(self) -> Found:
        """What is worth a proof. Raises: LinAlgError and the like."""
        return self.setting.found(self.multipliers, self.goal, self.at_input)

    def spread_out(self) -> Multipliers:
        return self.setting.spread_out(self.multipliers)


def _climbed(
    setting: DualSetting,
    start: Floats,
    goal: Goal,
    at_input: float,
    scale: float,
    weights: Sequence[float],
    steps: int,
    stop: Callable[[float], bool],
    budget: Budget,
) -> _Climb:
    """From some multipliers up, or calmer ones. at_input: the goal there. scale: of what is worth a step.

    Raises: LinAlgError and the like if there is no least value to begin with.
    """
    direction = setting.form.direction(goal)

    def solve(multipliers: Floats, weight: float) -> Solution:
        budget.spend(setting.form.work)
        return setting.form.solved(multipliers, direction, at_input, weight)

    start = setting.feasible(start, direction, at_input)
    best = _Climb(setting, goal, at_input, start, solve(start, 0.0))
    if stop(best.value):
        return best
    with suppress(*FLOATS_END):  # what was found before stays
        for multipliers, solution in ascent(solve, start, scale, weights, steps):
            if solution.value > best.value:
                best = _Climb(setting, goal, at_input, multipliers, solution)
            if stop(best.value):
                break
    return best


@dataclass(eq=False)
class _Node:
    """splits: its halfspaces. climb: the best that was found in them; None if floats fail there. bound: from below, as
    floats have it: that of the parent, or better. setting: of its halfspaces; None if floats end there.
    """

    splits: Splits
    climb: _Climb | None
    bound: float
    setting: DualSetting | None
    place: Place | None = None
    halves: tuple[_Node, _Node] | None = None
    proved: Found | None = None

    def tree(self) -> Tree | None:
        """What proves it; None while something of it is open."""
        if self.proved is not None:
            return self.proved.witness
        if self.place is None or self.halves is None:
            return None
        below, above = (half.tree() for half in self.halves)
        return None if below is None or above is None else Split(self.place, below, above)


class Pursuit:
    """The search for a proof that the winner of a case leads one of the others.

    fault: what ended the search before it found anything; empty if nothing did.
    """

    def __init__(self, prover: DualProver, place: int, budget: Budget) -> None:
        """place: of the class among the others."""
        self._prover, self._place, self._budget = prover, place, budget
        self._goal = prover.case.goal(place)
        self._lead, self._above = float(prover.case.leads[place]), prover.case.deducted[place]
        self._enough = float_up(self._above) + WORTH * self._lead
        self._root: _Node | None = None
        self.fault = ""

    @property
    def other(self) -> int:
        """The class that is to be led."""
        return self._goal.minus

    @property
    def change(self) -> Floats | None:
        """Where the best form that was found, without any halfspace, has its least value."""
        return None if self._root is None or self._root.climb is None else self._root.climb.solution.delta

    @property
    def value(self) -> float:
        """What the best dual without halfspaces has for its least value; -inf without one."""
        return -np.inf if self._root is None or self._root.climb is None else self._root.climb.value

    def _is_good(self, value: float) -> bool:
        return value > self._enough

    def _stops(self, value: float) -> bool:
        return self._is_good(value) or self._budget.expired()

    # -- without splits ----------------------------------------------------------------------------------------------

    def climbs(self, weights: Sequence[float], steps: int) -> bool:
        """Whether a dual proves it, after so many more steps with each weight."""
        case = self._prover.case
        before = None if self._root is None else self._root.climb
        try:
            setting = self._prover.setting
            if before is None:
                start = setting.start(case.multipliers, float(case.squares[self._place]), self._lead)
            else:
                start = setting.inherited(before.spread_out(), self._lead)
            climb = self._climb(setting, start, weights, steps)
        except FLOATS_END as error:
            self.fault = f"{type(error).__name__}: {error}"
            return False
        self._root = _Node({}, climb, climb.value, setting)
        return self._is_proved(self._root)

    def _climb(self, setting: DualSetting, start: Floats, weights: Sequence[float], steps: int) -> _Climb:
        return _climbed(setting, start, self._goal, self._lead, self._lead, weights, steps, self._stops, self._budget)

    def _is_proved(self, node: _Node) -> bool:
        if node.climb is None or not self._is_good(node.climb.value):
            return False
        try:
            found = node.climb.found()
        except FLOATS_END:
            return False
        if found.value > float(self._above) and self._prover.proves(found, self._above, node.splits):
            node.proved = found
        return node.proved is not None

    # -- narrower ranges ---------------------------------------------------------------------------------------------

    def narrows(self) -> bool:
        """Whether some ranges that matter here are narrower now, for all duals to come."""
        if self._root is None or self._root.climb is None or len(self._prover.case.ranges) < 2:
            return False
        climb = self._root.climb
        ends = ends_that_matter(climb.setting, climb.multipliers, climb.solution)[:_NARROWED]
        some = False
        for _, (site, _, neuron), side in sorted(ends, key=lambda each: each[1]):
            if self._budget.expired():
                break
            with suppress(*FLOATS_END):
                some |= self._narrows(site, neuron, side)
        return some

    def _narrows(self, site: int, neuron: int, side: int) -> bool:
        """One end of one range; side: -1 for the lower one."""
        case, ranges = self._prover.case, self._prover.ranges
        at_input = -side * float(case.values[site][neuron])
        end = -side * float(ranges[site][side > 0][neuron])
        reach = at_input - end
        if not reach > 0:
            return False
        setting = self._prover.setting_of(site)
        start = setting.start(case.multipliers[:site], (reach / case.near_eps) ** 2, reach)
        goal = Goal(site, neuron, -1) if side < 0 else Goal(site, -1, neuron)
        enough = at_input if abs(at_input) < reach else np.inf  # then it does not reach a kink at zero

        def stops(value: float) -> bool:
            return value > enough or self._budget.expired()

        climb = _climbed(setting, start, goal, at_input, reach, _NARROW, _NARROW_STEPS, stops, self._budget)
        found = climb.found()
        claimed = found.value - _SLACK * reach
        return claimed > end + _WORTH_NARROWING * reach and self._prover.narrows(found, claimed)

    # -- splits ------------------------------------------------------------------------------------------------------

    def splits(self, is_hopeless: Callable[[Floats], bool]) -> bool:
        """Whether splits prove it. is_hopeless: of a change, whether it shows that nothing can: that is the end."""
        if self._root is None or self._root.climb is None:
            return False
        order, known = count(), self._root.climb.spread_out()
        heap = [(self._root.bound, next(order), self._root, known)]
        while heap:
            _, _, node, known = heapq.heappop(heap)
            if node.climb is not None:
                known = node.climb.spread_out()
            place = self._place_to_split(node)
            if place is None or self._budget.expired() or not self._budget.takes_split():
                return False
            node.place = place
            node.halves = self._half(node, known, place, 1), self._half(node, known, place, -1)
            for half in node.halves:
                if self._is_proved(half):
                    continue
                if half.climb is not None and is_hopeless(half.climb.solution.delta):
                    return False
                heapq.heappush(heap, (half.bound, next(order), half, known))
        return True

    def _place_to_split(self, node: _Node) -> Place | None:
        if node.climb is not None:
            return worth_splitting(node.climb.setting, node.climb.multipliers, node.climb.solution)
        return None if node.setting is None else widest(node.setting)

    def _half(self, node: _Node, known: Multipliers, place: Place, sign: int) -> _Node:
        """known: of the node, or of the last one above it that has some."""
        splits = {**node.splits, place: sign}
        case, setting = self._prover.case, None
        try:
            setting = case.setting(self._prover.ranges, len(case.ranges), splits)
            if any(site.count for site in setting.form.sites):
                start = setting.inherited(known, self._lead)
                made = self._empty(setting, start) or self._climb(setting, start, _NODE, _NODE_STEPS)
            else:
                made = self._linear(setting)
        except FLOATS_END:
            return _Node(splits, None, node.bound, setting)
        return _Node(splits, made, max(node.bound, made.value), setting)

    def _empty(self, setting: DualSetting, start: Floats) -> _Climb | None:
        """Where nothing is in all halfspaces, as far as floats tell: any multipliers, and those that show it."""
        direction = setting.form.direction(self._goal)
        shown = nothing_there(setting.form, setting.eps, self._lead)
        if shown is None:
            return None
        some = self._climb(setting, start, (), 0)
        multipliers = some.multipliers + (1 + abs(some.value) / self._lead) * shown
        solution = setting.form.solved(multipliers, direction, self._lead, 0.0)
        return _Climb(setting, self._goal, self._lead, multipliers, solution)

    def _linear(self, setting: DualSetting) -> _Climb:
        """Where nothing bends."""
        direction = setting.form.direction(self._goal)
        multipliers = best_multipliers(setting.form, direction, self._lead, setting.eps)
        solution = setting.form.solved(multipliers, direction, self._lead, 0.0)
        return _Climb(setting, self._goal, self._lead, multipliers, solution)

    # -- in the end --------------------------------------------------------------------------------------------------

    def lower_bound(self) -> float:
        """A float that the lead, less what is deducted, is proved to be no smaller than; -inf if nothing is known."""
        if self._root is None:
            return -np.inf
        alone = _Node({}, self._root.climb, self._root.bound, self._root.setting)
        for node in (self._root, alone):  # the tree, or without splits
            with suppress(InconclusiveError):
                above = self._bounded(node).above - self._above
                return float_enclosure(above, above)[0]
        return -np.inf

    def _bounded(self, node: _Node) -> DualClaim:
        """What is proved of the lead in a node. Raises: InconclusiveError."""
        if node.place is not None and node.halves is not None:
            below, beyond = (self._bounded(half) for half in node.halves)
            return resolved(node.place, beyond, below)
        found, least = node.proved, [self._above]
        if found is None:
            if node.climb is None:
                raise UndecidedError("no bound")
            try:
                found = node.climb.found()
            except FLOATS_END as error:
                raise UndecidedError("no bound") from error
            if not np.isfinite(found.value):
                raise UndecidedError("no bound")
            least = [Fraction(found.value - slack * self._lead) for slack in _SLACKS]
        for above in least:
            claim = self._prover.claimed(found, above, node.splits)
            if claim is not None:
                return claim
        raise UndecidedError("no bound")

    def concludes(self) -> bool:
        """Whether what was proved comes to a proof."""
        tree = None if self._root is None else self._root.tree()
        if tree is None:
            return False
        claim = self._prover.concludes(tree)
        return claim.goal == self._goal and claim.above >= self._above and not claim.splits
