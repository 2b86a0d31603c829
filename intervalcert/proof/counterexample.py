"""Inputs that falsify: within eps of a known one, with another class at least as high as the winner there.

The change δ is a multiple of 2^-24 in every entry, so it is an exact input; its square is summed up in integers. Let j
be the winner at x. If at x + δ some other class is at least as high as j, the answer at x is not robust: at x + δ
there is another winner, or a tie. Logits are enclosed; what an enclosure cannot tell falsifies nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from intervalcert.backends.protocol import Floats
from intervalcert.errors import InconclusiveError, UndecidedError
from intervalcert.model.evaluation import EnclosedLogits, FloatBounds
from intervalcert.numbers.matrices import RationalMatrix, exact_integers
from intervalcert.proof.data import Witness

__all__ = ["GRID", "Counterexample", "Enclosures", "check_counterexample", "moved"]

GRID = 24
"""Entries of δ are multiples of 2^-24."""

Enclosures = Iterable[tuple[str, Callable[[RationalMatrix], EnclosedLogits]]]
"""What encloses the logits of an input, a column; with the name of the number system."""


@dataclass(frozen=True, eq=False, repr=False)
class Counterexample(Witness):
    """At the input plus delta the class `other` is at least as high as the winner at the input itself."""

    delta: Floats
    winner: int
    other: int


def moved(x: RationalMatrix, delta: Floats) -> RationalMatrix:
    """The input plus δ, exactly. Raises: UndecidedError unless δ has as many numbers, all multiples of 2^-24."""
    if delta.shape != (x.shape[0],) or x.shape[1] != 1:
        raise UndecidedError("a change of another input")
    numbers, unit = exact_integers(delta)
    if (1 << GRID) % unit:
        raise UndecidedError(f"a change that is no multiple of 2^-{GRID}")
    return RationalMatrix(x.numerators * unit + (numbers * x.denominator)[:, None], x.denominator * unit)


def check_counterexample(
    found: Counterexample, x: RationalMatrix, eps: Fraction, outputs: int, enclosures: Enclosures
) -> str:
    """Proves that it falsifies; by the number system that is named.

    outputs: classes. enclosures: of the logits of the network, on one number system after the other.
    Raises: UndecidedError unless it is proved that the winner is that of x, the first of the largest logits, that δ is
    within eps, and that the other class is at least as high at x + δ.
    """
    if not (0 <= found.winner < outputs and 0 <= found.other < outputs and found.winner != found.other):
        raise UndecidedError("a change from no class, or to none")
    there = moved(x, found.delta)
    numbers, unit = exact_integers(found.delta)
    if Fraction(int((numbers * numbers).sum()), unit**2) > eps**2:
        raise UndecidedError("a change beyond eps")
    for name, logits_at in enclosures:
        try:
            here, after = (logits_at(u).leads(found.winner) for u in (x, there))
        except InconclusiveError:
            continue
        if _is_first(here, found.winner) and _leads(after, found.winner, found.other):
            return name
    raise UndecidedError("no change of the winner is proved")


def _is_first(leads: FloatBounds, winner: int) -> bool:
    """Whether it is proved to lead every class before it, and to be no lower than those after it."""
    low = leads[0]
    return bool(np.isfinite(low).all()) and bool((low[:winner] > 0).all() and (low[winner:] >= 0).all())


def _leads(leads: FloatBounds, winner: int, other: int) -> bool:
    """Whether the lead over that class is proved not to be positive."""
    high = leads[1]
    return bool(high[other - (other > winner)] <= 0)
