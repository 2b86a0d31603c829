"""One point as duals see it: what their search begins with, and what their proofs rest upon."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from intervalcert.backends.escalation import escalate
from intervalcert.backends.protocol import Backend, Floats, Indices
from intervalcert.errors import InconclusiveError, UndecidedError
from intervalcert.model.evaluation import FloatBounds
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.proof.dual import DualChecker
from intervalcert.proof.graph_chain import Contenders
from intervalcert.proof.graph_dual import GraphDualChecker
from intervalcert.proof.graph_local import GraphLocalChecker, Site
from intervalcert.proof.hinges import DualClaim, DualWitness, Goal, Range, Splits
from intervalcert.proof.local import LocalChecker
from intervalcert.proof.trees import DualProof, Narrowed, Tree, narrower, proved_tree
from intervalcert.proof.unit_vectors import NearValues
from intervalcert.search.dual_witness import DualSetting, Found, Layout
from intervalcert.search.graph_local import GraphChainsFound
from intervalcert.search.local import ChainsFound, near_float

__all__ = ["ChainCase", "DualCase", "DualProver", "GraphCase"]


class DualCase(ABC):
    """A point, and what floats believe of it.

    winner, others: the class that leads, and the other ones. leads: over each of these, from below. deducted: what a
    lead must be more than, of each, exactly. layout, values: of the sites, and their arguments. ranges: between which
    these stay, as chains claim. multipliers, squares: of the last chain, where the first multipliers come from.
    """

    layout: Layout
    winner: int
    others: Indices
    leads: Floats
    deducted: Sequence[Fraction]
    values: Sequence[Floats]
    ranges: Sequence[Range]
    multipliers: Sequence[Floats]
    squares: Floats
    chains: tuple[object, ...]

    def __init__(self, eps: Fraction) -> None:
        self.eps, self.near_eps = eps, near_float(eps)

    @abstractmethod
    def proves_ranges(self, backend: Backend[Any]) -> list[Range]:
        """`ranges`, proved. Raises: InconclusiveError."""

    @abstractmethod
    def proves(
        self, backend: Backend[Any], found: Found, ranges: Sequence[Range], above: Fraction, splits: Splits
    ) -> DualClaim:
        """The goal of a dual is more than that, in these halfspaces. Raises: InconclusiveError."""

    def setting(self, ranges: Sequence[Range], sites: int, splits: Splits | None = None) -> DualSetting:
        """Of the first sites."""
        return DualSetting(self.layout, self.values[:sites], ranges[:sites], self.ranges, self.near_eps, splits)

    def goal(self, place: int) -> Goal:
        """The lead over one of the others."""
        return Goal(len(self.ranges), self.winner, int(self.others[place]))


class ChainCase(DualCase):
    """A point of a chain of matrices."""

    def __init__(
        self,
        layout: Layout,
        checkers: Callable[[Backend[Any]], tuple[LocalChecker, DualChecker]],
        x: RationalMatrix,
        eps: Fraction,
        winner: int,
        chains: ChainsFound,
        inner: Sequence[FloatBounds],
        leads: Floats,
        deducted: Sequence[Fraction],
    ) -> None:
        """x: a column. inner: enclosures of the hidden layers' values there."""
        super().__init__(eps)
        self._checkers, self._x, self._inner = checkers, x, inner
        self.layout, self.winner, self.leads, self.deducted = layout, winner, leads, deducted
        self.others = np.delete(np.arange(len(leads) + 1), winner)
        self.values = [low / 2 + high / 2 for low, high in inner]
        self.ranges = self._around([link.reach for link in chains.chains[-1]])
        self.chains, self.multipliers, self.squares = chains.chains, chains.multipliers, chains.squares

    def _around(self, reaches: Sequence[Floats]) -> list[Range]:
        # A float sum is at most half a step off: the next float is on the safe side.
        return [
            (np.nextafter(low - reach, -np.inf), np.nextafter(high + reach, np.inf))
            for (low, high), reach in zip(self._inner, reaches, strict=True)
        ]

    def proves_ranges(self, backend: Backend[Any]) -> list[Range]:
        chain, _ = self._checkers(backend)
        return self._around(chain.reaches(self.chains, self._inner, self.eps))  # type: ignore[arg-type]

    def proves(
        self, backend: Backend[Any], found: Found, ranges: Sequence[Range], above: Fraction, splits: Splits
    ) -> DualClaim:
        _, dual = self._checkers(backend)
        return dual.check(found.witness, found.steps, found.at, self._x, ranges, self.eps, above, splits)


class GraphCase(DualCase):
    """A point of a graph of layers."""

    def __init__(
        self,
        layout: Layout,
        checkers: Callable[[Backend[Any]], tuple[GraphLocalChecker, GraphDualChecker]],
        eps: Fraction,
        winner: int,
        found: GraphChainsFound,
        inner: Sequence[FloatBounds],
        logits: FloatBounds,
        leads: Floats,
        deducted: Sequence[Fraction],
    ) -> None:
        """inner, logits: enclosures of the layers' values at the point."""
        super().__init__(eps)
        self._checkers, self._inner, self._logits = checkers, inner, logits
        self._proved: NearValues | None = None
        self.layout, self.winner, self.leads, self.deducted = layout, winner, leads, deducted
        self.others = np.delete(np.arange(len(leads) + 1), winner)
        self.values = [site.ends[0] / 2 + site.ends[1] / 2 for site in found.sites]
        self.ranges = [_around(site) for site in found.sites]
        self.chains, self.multipliers, self.squares = found.chains, found.multipliers, found.squares

    def proves_ranges(self, backend: Backend[Any]) -> list[Range]:
        local, _ = self._checkers(backend)
        proved = local.sites(self.chains, self._inner, self.eps)  # type: ignore[arg-type]
        contenders = {key: link.places for key, link in proved.facts.items() if isinstance(link, Contenders)}
        self._proved = NearValues(tuple(proved.sites), self._logits, contenders)
        if len(proved.sites) != len(self.values):
            raise UndecidedError("a chain of other functions than were looked at")
        return [_around(site) for site in proved.sites]

    def proves(
        self, backend: Backend[Any], found: Found, ranges: Sequence[Range], above: Fraction, splits: Splits
    ) -> DualClaim:
        if self._proved is None:
            raise UndecidedError("nothing is known near the point")
        _, dual = self._checkers(backend)
        return dual.check(found.witness, found.steps, found.at, self._proved, ranges, self.eps, above, splits)


def _around(site: Site) -> Range:
    # A float sum is at most half a step off: the next float is on the safe side.
    return np.nextafter(site.ends[0] - site.reach, -np.inf), np.nextafter(site.ends[1] + site.reach, np.inf)


class DualProver:
    """What is proved of a case: its ranges, each of its duals, and what they come to together.

    ranges: those that the search may take: as claimed, and as narrowed by proofs.
    """

    def __init__(self, case: DualCase, ladder: Sequence[Backend[Any]]) -> None:
        """ladder: one number system after the other. One that is exact at its end is left out if there are others: what
        the finest enclosures cannot tell is hardly worth the time that rationals of so many bits take.
        """
        self.case, self.ranges = case, list(case.ranges)
        self._ladder = ladder if len(ladder) == 1 else [each for each in ladder if each.working_bits is not None]
        self._proved: list[Range] | None = None
        self._narrowed: list[Narrowed] = []
        self._claims: dict[int, tuple[DualWitness, DualClaim]] = {}
        self._trees: list[Tree] = []
        self._settings: dict[int, DualSetting] = {}
        self.provers: set[str] = set()

    @property
    def setting(self) -> DualSetting:
        """Of all sites, without halfspaces. Raises: FloatingPointError for numbers beyond the floats."""
        return self.setting_of(len(self.ranges))

    def setting_of(self, sites: int) -> DualSetting:
        """Of the first sites, without halfspaces."""
        if sites not in self._settings:
            self._settings[sites] = self.case.setting(self.ranges, sites)
        return self._settings[sites]

    def _known(self) -> list[Range]:
        """Raises: InconclusiveError."""
        if self._proved is None:
            found = escalate(self._ladder, self.case.proves_ranges)
            self._proved = found.value
            self.provers.add(found.backend.name)
        return self._proved

    def claimed(self, found: Found, above: Fraction, splits: Splits) -> DualClaim | None:
        """What a dual proves, if it does."""
        try:
            known = self._known()
            claim = escalate(self._ladder, lambda backend: self.case.proves(backend, found, known, above, splits)).value
        except InconclusiveError:
            return None
        self.provers.add(claim.proved_by)
        return claim

    def proves(self, found: Found, above: Fraction, splits: Splits) -> bool:
        """Whether a dual is proved, in its halfspaces. It is remembered."""
        claim = self.claimed(found, above, splits)
        if claim is not None:
            self._claims[id(found.witness)] = found.witness, claim
        return claim is not None

    def narrows(self, found: Found, end: float) -> bool:
        """Whether a range is proved to be narrower; then it is so for all duals to come."""
        claim = self.claimed(found, Fraction(end), {})
        if claim is None:
            return False
        self._proved = narrower(self._known(), claim, end)
        self.ranges = narrower(self.ranges, claim, end)
        self._narrowed.append(Narrowed(found.witness, end))
        self._settings = {sites: made for sites, made in self._settings.items() if sites <= claim.goal.site}
        return True

    def concludes(self, tree: Tree) -> DualClaim:
        """What a tree proves, all of whose leaves are proved. Raises: InconclusiveError if they are not."""
        claim = proved_tree(tree, lambda dual, _: self._claims[id(dual)][1])
        self._trees.append(tree)
        return claim

    @property
    def proof(self) -> DualProof:
        """All that was concluded, and what it rests upon."""
        return DualProof(self.case.winner, self.case.chains, tuple(self._narrowed), tuple(self._trees))
