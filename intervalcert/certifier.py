"""The second stage: one output, its margins, a verdict. The code that says "certified".

Certified iff for every i != j, by index: y_j - y_i > eps·L[i][j], where j is the first index of the largest logit.
Robustness follows: within eps the lead of j over i changes by at most eps·L[i][j], so it stays positive.
Only proof counts. The inequality is strict, so equal logits are not certified, not even at eps = 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from intervalcert.errors import InputError, UndecidedError
from intervalcert.fallback import settle
from intervalcert.protocol import Backend, Truth
from intervalcert.rational import float_below, shortest_exact

__all__ = ["Certifier", "Verdict", "largest_radius", "winner"]

Row = Sequence[Fraction]


@dataclass(frozen=True)
class Verdict:
    """The answer for one output.

    radius: a float strictly below the supremum of the radii at which the output is certified, so that certifying at
    exactly this radius succeeds; 0.0 if there is none, inf if nothing can change the winner.
    exactly: whether the filter could not tell and exact rationals decided.
    """

    index: int
    argmax: int
    certified: bool
    radius: float
    exactly: bool = False


def winner(logits: Row) -> int:
    """The first index of the maximum."""
    return max(range(len(logits)), key=lambda i: (logits[i], -i))


class Certifier:
    """Decides outputs against one margin matrix on a ladder of number systems.

    The first rungs are a filter: what they prove or refute is settled. What they leave UNKNOWN goes on, at last to
    exact rationals, so the verdict is always the one of exact arithmetic.
    """

    def __init__(self, margins: Sequence[Row], rungs: Sequence[Backend[Any]]) -> None:
        self._margins = margins
        self._rungs = rungs
        self._converted: dict[Backend[Any], list[list[Any]]] = {}

    def verdict(self, logits: Row, eps: Fraction, index: int = 0) -> Verdict:
        """Requires: eps >= 0 and as many finite logits as classes (InputError otherwise)."""
        self._check(logits, eps, index)
        top = winner(logits)
        settled = settle(self._rungs, lambda backend: self._certified(backend, logits, top, eps))
        return Verdict(
            index, top, settled.value, float_below_radius(logits, self._margins, top), bool(settled.refused)
        )

    def _check(self, logits: Row, eps: Fraction, index: int) -> None:
        if len(logits) != len(self._margins):
            raise InputError(
                f"output {index} has {len(logits)} logits, but the bounds are of a model with {len(self._margins)}"
            )
        if eps < 0:
            raise InputError(f"output {index}: a radius must not be negative, and this one is {shortest_exact(eps)}")

    def _certified(self, backend: Backend[Any], logits: Row, top: int, eps: Fraction) -> bool:
        """Raises: UndecidedError if some comparison stays open and none fails."""
        margins = self._margins_on(backend)
        radius = backend.scalar(eps)
        y = [backend.scalar(value) for value in logits]
        undecided = False
        for i in range(len(y)):
            if i == top:  # the winner is left out by index, never by value
                continue
            holds: Truth = (radius * margins[i][top]).less(y[top] - y[i])
            if holds is Truth.FALSE:
                return False
            undecided |= holds is Truth.UNKNOWN
        if undecided:
            raise UndecidedError("a margin too close to call")
        return True

    def _margins_on(self, backend: Backend[Any]) -> list[list[Any]]:
        """The margins as values of a number system: converted once, not once per output."""
        if backend not in self._converted:
            self._converted[backend] = [[backend.scalar(bound) for bound in row] for row in self._margins]
        return self._converted[backend]


def largest_radius(logits: Row, margins: Sequence[Row], top: int) -> Fraction | None:
    """The supremum of the certified radii: min over i of (y_j - y_i)/L[i][j]. None if it is infinite.

    A tie gives 0: then no radius is certified. Where L is 0 the lead cannot change: it limits nothing, unless it is 0.
    """
    leads = [(logits[top] - logits[i], margins[i][top]) for i in range(len(logits)) if i != top]
    if any(lead == 0 for lead, _ in leads):
        return Fraction(0)
    return min((lead / bound for lead, bound in leads if bound), default=None)


def float_below_radius(logits: Row, margins: Sequence[Row], top: int) -> float:
    """`largest_radius`, rounded strictly down to a float."""
    radius = largest_radius(logits, margins, top)
    return float("inf") if radius is None else float_below(radius)
