"""The second stage: one output, its margins, a verdict. The code that says "certified".

Certified iff for every i != j, by index: y_j - y_i > eps·L[i][j], where j is the first index of the largest logit.
Robustness follows: within eps the lead of j over i changes by at most eps·L[i][j], so it stays positive.
Only proof counts. The inequality is strict, so equal logits are not certified, not even at eps = 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Any

from intervalcert.backends.escalation import escalate
from intervalcert.backends.protocol import Backend, Truth
from intervalcert.errors import InputError, UndecidedError
from intervalcert.numbers.matrices import RationalVector
from intervalcert.numbers.rounding import float_below
from intervalcert.numbers.text import shortest_exact

__all__ = [
    "ATTACK",
    "DUAL",
    "LOCAL",
    "MARGINS",
    "SPLIT",
    "Bracket",
    "Certifier",
    "Status",
    "Verdict",
    "check_eps",
    "check_logits",
    "winner",
]

MARGINS, LOCAL, DUAL, SPLIT, ATTACK = "margins", "local", "dual", "split", "attack"
"""How an output is decided: by margins that hold for all inputs, by a chain, a dual or a tree of duals at the input
itself; falsified by an attack."""


class Status(StrEnum):
    """What is proved of a point: no change of the winner within eps, or a change. Where neither is: unknown."""

    UNKNOWN = "unknown"
    CERTIFIED = "certified"
    FALSIFIED = "falsified"


@dataclass(frozen=True)
class Bracket:
    """What is known of a lead that could not be decided: within eps the least lead of the winner over the other class
    is at least `lower`, which is proved, and at most `upper`, which it is at some input. ended: by which limit the
    search ended, ``splits`` or ``time``; empty if by none.
    """

    winner: int
    other: int
    lower: float
    upper: float
    ended: str = ""


@dataclass(frozen=True)
class Verdict:
    """The answer for one output, and what it is about: set by whoever proved it.

    radius: a float strictly below the supremum of the eps at which the output is certified, so that certifying at
    exactly this radius succeeds; 0.0 if there is none, inf if nothing can change the winner.
    semantics: which network it is about: ``real``, or the format of a program. eps_space: where eps is measured.
    method: ``margins``; ``local``, ``dual`` or ``split`` if it took a look at the input itself, and the radius is then
    no more than the eps that was asked for; ``attack`` if it is falsified.
    exactly: whether the filter could not tell and exact rationals decided. (Equal verdicts may differ in this.)
    proved_by: the number system that proved it; empty if the status is unknown. fault: what went wrong in an attempt at
    it, as opposed to one that proved nothing. (Equal verdicts may differ in these, too.)
    counterexample: what falsifies it: a `Counterexample`, or None. bracket: what is known of the least lead, if neither
    is proved although all was tried; or None.
    """

    index: int
    argmax: int
    status: Status
    radius: float
    semantics: str
    eps_space: str
    method: str = MARGINS
    exactly: bool = field(default=False, compare=False)
    proved_by: str = field(default="", compare=False)
    fault: str = field(default="", compare=False)
    counterexample: Any = field(default=None, compare=False, repr=False)
    bracket: Bracket | None = field(default=None, compare=False)

    @property
    def certified(self) -> bool:
        return self.status is Status.CERTIFIED

    @property
    def locally(self) -> bool:
        return self.method == LOCAL


def check_logits(found: int, expected: int, what: str) -> None:
    """Raises: InputError unless there are as many logits per output as the model has."""
    if found != expected:
        outputs = f"{expected} classes" if expected > 1 else "a single output"
        raise InputError(f"{what}: {found} logits per output, but the model has {outputs}")


def check_eps(eps: Fraction, index: int) -> None:
    """Raises: InputError for a negative one."""
    if eps < 0:
        raise InputError(f"output {index}: eps must not be negative, and this one is {shortest_exact(eps)}")


def winner(logits: RationalVector) -> int:
    """The first index of the maximum."""
    return logits.numerators.index(max(logits.numerators))


class Certifier:
    """Decides outputs against one margin matrix on a ladder of number systems.

    All but the last are a filter: what they prove or refute is settled. What they leave UNKNOWN goes on, at last to
    exact rationals, so the verdict is always the one of exact arithmetic.
    """

    def __init__(
        self, margins: Sequence[Sequence[Fraction]], ladder: Sequence[Backend[Any]], eps_space: str = "input"
    ) -> None:
        """eps_space: where the distances are measured that the margins are per unit of."""
        self._margins = margins
        self._ladder = ladder
        self._eps_space = eps_space
        self._columns: dict[int, tuple[Fraction, ...]] = {}
        self._limits: dict[Backend[Any], tuple[Fraction, dict[int, list[Any]]]] = {}

    def verdict(self, logits: RationalVector, eps: Fraction, index: int = 0) -> Verdict:
        """Raises: InputError unless eps >= 0 and there are as many logits as classes."""
        check_logits(len(logits), len(self._margins), f"output {index}")
        check_eps(eps, index)
        top = winner(logits)
        escalated = escalate(self._ladder, lambda backend: self._certified(backend, logits, top, eps))
        radius = self._supremum(logits, top)
        return Verdict(
            index=index,
            argmax=top,
            status=Status.CERTIFIED if escalated.value else Status.UNKNOWN,
            radius=math.inf if radius is None else float_below(radius),
            semantics="real",
            eps_space=self._eps_space,
            exactly=bool(escalated.skipped_because) and escalated.backend.working_bits is None,
            proved_by=escalated.backend.name if escalated.value else "",
        )

    def _certified(self, backend: Backend[Any], logits: RationalVector, top: int, eps: Fraction) -> bool:
        """Raises: UndecidedError if some comparison stays open and none fails."""
        limits = self._limits_of(backend, eps, top)
        undecided = False
        for i, lead in _leads(logits, top):
            holds: Truth = limits[i].less(backend.scalar(Fraction(lead, logits.denominator)))
            if holds is Truth.FALSE:
                return False
            undecided |= holds is Truth.UNKNOWN
        if undecided:
            raise UndecidedError("a margin too close to call")
        return True

    def _limits_of(self, backend: Backend[Any], eps: Fraction, top: int) -> list[Any]:
        """eps·L[i][top] for every i, remembered for a run of outputs at the same eps."""
        if backend not in self._limits or self._limits[backend][0] != eps:
            self._limits[backend] = eps, {}
        columns = self._limits[backend][1]
        if top not in columns:
            distance = backend.scalar(eps)
            columns[top] = [distance * backend.scalar(bound) for bound in self._column(top)]
        return columns[top]

    def _column(self, top: int) -> tuple[Fraction, ...]:
        """L[i][top] for every i, remembered."""
        if top not in self._columns:
            self._columns[top] = tuple(row[top] for row in self._margins)
        return self._columns[top]

    def _supremum(self, logits: RationalVector, top: int) -> Fraction | None:
        """The supremum of the certified eps: min over i of (y_j - y_i)/L[i][j]. None if it is infinite.

        A tie gives 0: then no eps is certified. Where L is 0 the lead cannot change, so it limits nothing.
        """
        least: tuple[int, int] | None = None  # a numerator and a denominator: cross products compare without gcds
        column = self._column(top)
        for i, lead in _leads(logits, top):
            if lead == 0:
                return Fraction(0)
            bound = column[i]
            over, under = lead * bound.denominator, bound.numerator
            if under and (least is None or over * least[1] < least[0] * under):
                least = over, under
        return None if least is None else Fraction(least[0], least[1] * logits.denominator)


def _leads(logits: RationalVector, top: int) -> Iterator[tuple[int, int]]:
    """(i, numerator of y_top - y_i) for every i but the winner: left out by index, never by value."""
    best = logits.numerators[top]
    return ((i, best - other) for i, other in enumerate(logits.numerators) if i != top)
