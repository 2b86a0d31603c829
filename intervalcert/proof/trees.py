"""Duals put together: trees of splits, and ranges that duals made narrower.

A split asks on which side of its kink one argument is. What holds on both sides holds (`hinges.resolved`), so a tree of
duals proves what all of its leaves prove. A dual of an argument itself, or of its negative, makes its range narrower:
that is a fact about every input within eps, and later duals may rest upon it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from intervalcert.errors import UndecidedError
from intervalcert.proof.data import Witness
from intervalcert.proof.hinges import DualClaim, DualWitness, Place, Range, Splits, resolved

__all__ = ["DualProof", "Narrowed", "Split", "Tree", "leaves", "narrower", "proved_tree"]


@dataclass(frozen=True, eq=False, repr=False)
class Split(Witness):
    """below: where the argument is not above the kink; above: where it is not below."""

    place: Place
    below: Tree
    above: Tree


Tree = DualWitness | Split


@dataclass(frozen=True, eq=False, repr=False)
class Narrowed(Witness):
    """A dual whose goal is one argument, or its negative, and a float that it is more than."""

    dual: DualWitness
    end: float


@dataclass(frozen=True, eq=False, repr=False)
class DualProof(Witness):
    """What certifies a point: chains that give ranges, what narrows them, one after the other, and for each class that
    the margins leave open a tree.
    """

    winner: int
    chains: tuple[object, ...]
    narrowed: tuple[Narrowed, ...]
    trees: tuple[Tree, ...]


def leaves(tree: Tree) -> int:
    """How many."""
    return 1 if isinstance(tree, DualWitness) else leaves(tree.below) + leaves(tree.above)


def proved_tree(
    tree: Tree, check: Callable[[DualWitness, Splits], DualClaim], splits: Splits | None = None
) -> DualClaim:
    """What a tree proves in these halfspaces, if every leaf is proved in its own. Raises: InconclusiveError if not."""
    known = splits or {}
    if isinstance(tree, DualWitness):
        claim = check(tree, known)
        if claim.goal != tree.goal or not claim.splits <= frozenset(known.items()):
            raise UndecidedError("a claim about other inputs, or of another goal")
        return DualClaim(claim.goal, claim.above, frozenset(known.items()), claim.proved_by)
    if tree.place in known:
        raise UndecidedError("a place that is split twice")
    below = proved_tree(tree.below, check, {**known, tree.place: 1})
    above = proved_tree(tree.above, check, {**known, tree.place: -1})
    return resolved(tree.place, above, below)


def narrower(ranges: Sequence[Range], claim: DualClaim, end: float) -> list[Range]:
    """The ranges with one end moved to that float. Raises: UndecidedError unless the claim shows that it may be."""
    site, plus, minus = claim.goal
    if claim.splits or (plus >= 0) == (minus >= 0) or not 0 <= site < len(ranges):
        raise UndecidedError("a claim that is about no argument everywhere")
    if not (np.isfinite(end) and claim.above >= Fraction(end)):
        raise UndecidedError("a range that is narrower than what is proved")
    low, high = (np.array(side) for side in ranges[site])
    if plus >= 0:
        low[plus] = max(low[plus], end)
    else:
        high[minus] = min(high[minus], -end)  # -z > end
    return [*ranges[:site], (low, high), *ranges[site + 1 :]]
