"""Local refinement of a graph of layers: as `local`, with the images of one ball (`images`, `graphs`).

All u with ||u - v|| <= eps differ from the input v by images of η with ||η|| <= eps. What is new beside `graph_chain`:

* The argument of a function, with the row x of images, changes by at most b for any b >= eps·||x||. With its value at v
  enclosed, `sectors` gives the interval of its difference quotients from v; so for |a - b| in a comparison.
* A number that cannot change has no row. A function that does not reach a kink is linear, and bends nothing.
* In a window, let the champion be the contender with the largest lower end at v. If a number is smaller than that by at
  least as much as their difference can change, it is at no u larger than the champion: the largest of a window is that
  of its contenders.
* A second chain may use the b of a first one that was proved, where they are smaller: each of them is a fact about the
  network, whatever proved it. (Rows of tournaments are the same if the contenders are.)

At the end the lead y_j - y_i at u is that at v up to dᵀC·η: j wins at every such u, without a tie, if for any other
class i the lead at v is positive and its square exceeds eps²·||Cᵀd||².
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from intervalcert.backends.protocol import Backend, Floats, Indices, Matrix
from intervalcert.errors import UndecidedError
from intervalcert.model.activations import Activation, PiecewiseLinear
from intervalcert.model.evaluation import FloatBounds
from intervalcert.model.network import Network
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.proof.data import Witness
from intervalcert.proof.ellipsoids import Sector
from intervalcert.proof.graph_chain import Contenders, Functions, GraphChain, WitnessGuide, images_below
from intervalcert.proof.graphs import Image, Passage
from intervalcert.proof.images import row_squares_upper
from intervalcert.proof.local import Leads, LocalClaim
from intervalcert.proof.sectors import Bools, holds_sector, is_within_reach

__all__ = ["Facts", "GraphLocalChecker", "GraphLocalWitness", "NearPoint", "Site", "champions"]

Facts = dict[tuple[int, int], Functions | Contenders]
"""What was proved of reaches, by the layer and by the place among its links."""


@dataclass(frozen=True, eq=False, repr=False)
class GraphLocalWitness(Witness):
    """Chains, each of which may use the reaches of the one before; the last one gives the slopes of the leads."""

    winner: int
    chains: tuple[GraphChain, ...]


@dataclass(frozen=True, eq=False)
class Site:
    """Functions of one variable each, on the way through a graph near a point. key: as in `Facts`.

    ends: of their arguments at the point. reach: these change by no more than that within eps.
    """

    key: tuple[int, int]
    function: PiecewiseLinear
    ends: FloatBounds
    reach: Floats


def champions(places: Indices, windows: Indices, low: Floats) -> Indices:
    """Of each place: the contender of its window with the largest lower end, the last of equal ones.

    places: the contenders. windows: of all places, ascending from 0. Raises: UndecidedError for a window without one.
    """
    found = np.full(int(windows[-1]) + 1, -1, dtype=np.intp)
    ordered = places[np.argsort(low[places], kind="stable")]
    found[windows[ordered]] = ordered  # of several, the last one stays
    if (found < 0).any():
        raise UndecidedError("a window without a contender")
    return found[windows]


class NearPoint(WitnessGuide):
    """For all inputs within eps of one."""

    def __init__(self, links: GraphChain, backend: Backend[Any], eps: Fraction, known: Facts) -> None:
        super().__init__(links, backend)
        self._eps, self._known = eps, known
        self._at = (-1, 0)
        self.facts: Facts = {}
        self.sites: list[Site] = []

    def enters(self, layer: int, rows: int, width: int) -> None:  # noqa: ARG002 - sizes do not matter
        self._at = layer, 0

    def _learns(self, link: Functions | Contenders, rows: Matrix[Any] | None) -> None:
        """Proves that the arguments whose images are the rows, None for none, change by no more than the reach."""
        reach, at = link.reach, self._at
        self._at = at[0], at[1] + 1
        if reach.shape != (0 if rows is None else rows.shape[0],) or not np.isfinite(reach).all():
            raise UndecidedError("reaches of other functions")
        self.facts[at] = link
        if rows is None:
            return
        known = self._known.get(at)
        proved: Bools = np.zeros(len(reach), dtype=bool)
        if known is not None and type(known) is type(link) and known.reach.shape == reach.shape:
            proved = reach >= known.reach
        if not (proved.all() or self.are_within_reach(reach, rows, proved)):
            raise UndecidedError("a neuron may change by more than was guessed")

    def are_within_reach(self, reach: Floats, rows: Matrix[Any], proved: Bools) -> bool:
        """Whether the arguments whose images are the rows change by no more than that, where it is not proved yet."""
        return bool((proved | is_within_reach(reach, row_squares_upper(rows), self._eps**2)).all())

    def sector(self, rows: Matrix[Any], function: Activation, least: Fraction, ends: FloatBounds) -> Sector:
        link, at = self.functions(rows.shape[0]), self._at
        self._learns(link, rows)
        hinges = function.piecewise_linear
        if hinges is None or not holds_sector(hinges, *ends, link.reach, link.sector, least):
            raise UndecidedError("a sector is not proved to hold all slopes")
        self.sites.append(Site(at, hinges, ends, link.reach))
        return link.sector

    def constant(self, rows: Matrix[Any], lipschitz: Fraction) -> Sector:  # noqa: ARG002 - that is for all inputs
        raise UndecidedError("an activation that is not known near a point")

    def contenders(self, rows: Matrix[Any], windows: Indices, ends: FloatBounds) -> Indices:
        link = self.take(Contenders)
        places, count = link.places, len(windows)
        if places.ndim != 1 or places.dtype != np.intp or not len(places) or (np.diff(places) <= 0).any():
            raise UndecidedError("contenders are named once, in order")
        if places[0] < 0 or places[-1] >= count:
            raise UndecidedError("contenders of another layer")
        known = self._known.get(self._at)
        if known is not None and not (isinstance(known, Contenders) and np.array_equal(known.places, places)):
            raise UndecidedError("chains of other contenders")
        low, high = ends
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise UndecidedError("values that are not known")
        first = champions(places, windows, low)
        others = np.delete(np.arange(count), places)
        if len(others):
            self._learns(link, rows.rows_at(first[others]) - rows.rows_at(others))
            # A float difference is at most half a step off: the float before it is not above the true one.
            if not (np.nextafter(low[first[others]] - high[others], -np.inf) >= link.reach).all():
                raise UndecidedError("a number may become the largest of its window")
        else:
            self._learns(link, None)
        return places


class GraphLocalChecker:
    """Checks witnesses for points of one network on one number system, with what all points share."""

    def __init__(self, network: Network, backend: Backend[Any], norms: Sequence[Fraction] | None = None) -> None:
        """Requires: activations that are known near a point; at least one. norms: as `Passage`."""
        self._network, self._backend = network, backend
        self.passage = Passage(network, backend, norms)

    def check(
        self,
        witness: GraphLocalWitness,
        inner: Sequence[FloatBounds],
        leads: Leads,
        eps: Fraction,
    ) -> LocalClaim:
        """The claim that the witness's winner stays ahead of every other class within eps, by more than the deductions.

        Requires: `inner` encloses Σ T·x + b of each hidden layer at the input.
        Raises: InconclusiveError unless that is proved here.
        """
        if not witness.chains or eps < 0:
            raise UndecidedError("a witness without a chain, or of no eps")
        left = leads.left(witness.winner, self._network.outputs)
        images, _ = self._proved(witness.chains, inner, eps)
        parts = [self._against(witness.winner, *part) for part in images_below(self._network, images, self._backend)]
        squares = row_squares_upper(reduce(add, parts)).tolist() if parts else [0.0] * len(left)
        proved = all(
            lead > 0 and math.isfinite(square) and lead**2 > eps**2 * Fraction(max(square, 0.0))
            for lead, square in zip(left, squares, strict=True)
        )
        if not proved:
            raise UndecidedError("a lead is not proved to last")
        return LocalClaim(witness.winner, eps, self._backend.name)

    def sites(self, chains: Sequence[GraphChain], inner: Sequence[FloatBounds], eps: Fraction) -> NearPoint:
        """Who has gone the way of the last chain: its sites, with reaches, and what was learned of contenders.

        Requires: `inner` as for `check`. Raises: InconclusiveError unless the chains are proved here.
        """
        if not chains or eps < 0:
            raise UndecidedError("no chain, or no eps")
        return self._proved(chains, inner, eps)[1]

    def _proved(
        self, chains: Sequence[GraphChain], inner: Sequence[FloatBounds], eps: Fraction
    ) -> tuple[dict[int, Image], NearPoint]:
        """The last images, and who went there last. Requires: a chain. Raises: InconclusiveError."""
        if [low.shape for low, _ in inner] != [(layer.shape[0],) for layer in self._network.layers[:-1]]:
            raise UndecidedError("values of other layers")
        known: Facts = {}
        for links in chains:
            guide = NearPoint(links, self._backend, eps, known)
            images = self.passage.images(guide, inner)
            guide.finish()
            known = guide.facts
        return images, guide

    def _against(self, winner: int, matrix: RationalMatrix, image: Matrix[Any]) -> Matrix[Any]:
        """The image of the leads of the winner over the others: the row of the winner less each other one, exactly."""
        numerators = np.delete(matrix.numerators[winner] - matrix.numerators, winner, axis=0)
        return self._backend.matrix(RationalMatrix(numerators, matrix.denominator)) @ image
