"""The search for a chain at one input of a graph, in floats: what `proof.graph_local` checks. Nothing here is trusted.

As in `local`: first with simple multipliers, then with better ones for the class that is nearest to winning. Only what
seems to succeed is worth a proof, and attempts that must fail are seen to fail before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from intervalcert.backends.protocol import Floats, Indices, Matrix
from intervalcert.model.activations import Activation
from intervalcert.model.evaluation import FloatBounds
from intervalcert.model.network import Network
from intervalcert.proof.ellipsoids import Sector
from intervalcert.proof.graph_chain import Contenders, Functions, GraphChain, images_below
from intervalcert.proof.graph_local import GraphLocalWitness, Site, champions
from intervalcert.proof.graphs import Passage
from intervalcert.search.float_network import FloatNetwork
from intervalcert.search.graph_guide import Key, Multipliers, SearchGuide, plain_values
from intervalcert.search.local import HOPELESS, NEAR, ROOM, SLOW, WORTH_PROVING, near_float
from intervalcert.search.multipliers import backed_off
from intervalcert.search.plain import PlainBackend
from intervalcert.search.room import USUAL, Room
from intervalcert.search.sectors import sector_around

__all__ = ["MOST_WORK", "GraphChainsFound", "GraphLocalSearch"]

MOST_WORK = 2e11
"""Products of two numbers in one passage: in floats some ten seconds."""

_MOST_IN_ALL = 8e11
"""In all passages of a search."""

_Facts = Mapping[Key, Functions | Contenders]


class _Near(SearchGuide):
    """Near a point: reaches, sectors by them, and contenders."""

    def __init__(
        self, network: Network, eps: float, known: _Facts, multipliers: Multipliers | None, room: Room
    ) -> None:
        super().__init__(network, multipliers, MOST_WORK, "local refinement", room)
        self._eps, self._facts, self._unsure = eps, known, room.reach
        self.sites: list[Site] = []

    def _reach(self, rows: Matrix[Any]) -> Floats:
        values = plain_values(rows)
        squares = np.einsum("ij,ij->i", values, values)
        reach: Floats = self._eps * np.sqrt(squares + float(squares.max()) * self._unsure) * (1 + self._unsure)
        known = self._facts.get((self._layer, self._place))
        return reach if known is None or known.reach.shape != reach.shape else np.minimum(reach, known.reach)

    def sector(self, rows: Matrix[Any], function: Activation, least: Fraction, ends: FloatBounds) -> Sector:
        reach, hinges = self._reach(rows), function.piecewise_linear
        if hinges is None:
            raise FloatingPointError("an activation that is not known near a point")
        found = sector_around(hinges, *ends, reach, least)
        self.sites.append(Site((self._layer, self._place), hinges, ends, reach))
        self.add(Functions(found, None, reach))
        return found

    def constant(self, rows: Matrix[Any], lipschitz: Fraction) -> Sector:  # noqa: ARG002 - that is for all inputs
        raise FloatingPointError("an activation that is not known near a point")

    def contenders(self, rows: Matrix[Any], windows: Indices, ends: FloatBounds) -> Indices:
        low, high = ends
        every: Indices = np.arange(len(windows))
        first = champions(every, windows, low)
        known = self._facts.get((self._layer, self._place))
        if isinstance(known, Contenders):
            places = known.places
        else:
            apart = rows.rows_at(first) - rows.rows_at(every)
            ahead = np.nextafter(low[first] - high, -np.inf)
            places = np.flatnonzero((ahead < self._reach(apart)) | (first == every))
        others = np.delete(every, places)
        reach = np.zeros(0)
        if len(others):
            first = champions(places, windows, low)
            reach = self._reach(rows.rows_at(first[others]) - rows.rows_at(others))
        self.add(Contenders(places, reach))
        return places


@dataclass(frozen=True, eq=False)
class _Chain:
    """What a passage found: the least lead over eps times its slope, and Cᵀd of the class of which that is."""

    guide: _Near
    ratio: float
    worst: Floats
    squares: Floats
    """Of the slopes of all leads."""


@dataclass(frozen=True, eq=False)
class GraphChainsFound:
    """Chains, the sites of the last one, w⁻² of each of their functions (0 where it has none), and the squared slope of
    the lead over each other class, in their order.
    """

    chains: tuple[GraphChain, ...]
    sites: tuple[Site, ...]
    contenders: Mapping[Key, Indices]
    multipliers: tuple[Floats, ...]
    squares: Floats


class GraphLocalSearch:
    """The search for a good chain at one point, in floats."""

    def __init__(
        self,
        network: Network,
        floats: FloatNetwork,
        passage: Passage,
        ends: Sequence[FloatBounds],
        eps: Fraction,
        margin_deductions: Floats | None = None,
    ) -> None:
        """floats, passage: of the network, on plain floats. ends: of Σ T·x + b of each layer at the input."""
        if not all(np.isfinite(end).all() for pair in ends for end in pair):
            raise FloatingPointError("values beyond the floats")
        self._network, self._floats, self._passage, self._eps = network, floats, passage, near_float(eps)
        *self._inner, (low, high) = ends
        logits = low / 2 + high / 2
        self.winner = int(np.argmax(logits))
        self.margin_deductions = (
            np.zeros(network.outputs - 1) if margin_deductions is None else np.delete(margin_deductions, self.winner)
        )
        self._leads = np.delete(logits[self.winner] - logits, self.winner) - self.margin_deductions
        self._room = USUAL
        self.work, self.largest = 0.0, 0.0

    def search(self, rounds: int, room: Room = USUAL) -> tuple[float, GraphLocalWitness | None]:
        """The least lead over eps times its slope, as floats have it; and a witness if that is worth a proof.

        Then `work` and `largest` are the products that its proof takes, and the entries of its largest matrix.
        rounds: of better multipliers. room: for rounding errors. Raises: TooWideError if it would take too much.
        """
        self._room = room
        if len(self._network.layers) == 1 or not (self._leads > 0).all():
            return 0.0, None  # of a single layer the margins are exact already
        most = self._largest_ratio()
        if most < 1:
            return most, None
        ratio, chains = self._search(rounds)
        if ratio < WORTH_PROVING:
            return ratio, None
        guides = [chain.guide for chain in chains]
        self.work, self.largest = sum(guide.work for guide in guides), max(guide.largest for guide in guides)
        return ratio, GraphLocalWitness(self.winner, tuple(guide.links for guide in guides))

    def best_chains(self, rounds: int, room: Room = USUAL) -> GraphChainsFound | None:
        """The best chains that are found, also where they are not worth a proof; None if there are none.

        The way to better bounds begins there. Raises: as `search`.
        """
        self._room = room
        if len(self._network.layers) == 1 or not (self._leads > 0).all():
            return None
        chains = self._search(rounds, gives_up=False)[1]
        last = chains[-1]
        if not len(last.squares):
            return None
        known = last.guide.multipliers()
        return GraphChainsFound(
            tuple(chain.guide.links for chain in chains),
            tuple(last.guide.sites),
            {key: link.places for key, link in last.guide.keyed.items() if isinstance(link, Contenders)},
            tuple(known[site.key] for site in last.guide.sites),
            last.squares,
        )

    def _search(self, rounds: int, *, gives_up: bool = True) -> tuple[float, list[_Chain]]:
        """The last chain gives the slopes, the one before it shorter reaches. gives_up: where there is no hope."""
        first = self._chain({}, None)
        best, chains, chain = first.ratio, [first], first
        if best >= WORTH_PROVING or (best < HOPELESS and gives_up):
            return best, chains
        now = first.guide.multipliers()
        for _ in range(min(rounds, int(_MOST_IN_ALL / max(first.guide.work, 1.0)))):
            moved = self._moved(chain, now, first)
            if moved is None:
                break
            chain, now = moved
            gain = chain.ratio - best
            if gain > 0:
                best, chains = chain.ratio, [first, chain]
            if best >= WORTH_PROVING or (best < NEAR and gain < (WORTH_PROVING - best) * SLOW):
                break
        return best, chains

    def _largest_ratio(self) -> float:
        """What no estimated ratio can exceed: the least lead over eps times the length of its gradient, at v itself."""
        middles = [(low / 2 + high / 2)[:, None] for low, high in self._inner]
        lengths = self._floats.lead_gradient_lengths(middles, self.winner)
        return float((self._leads / np.maximum(self._eps * lengths, 1e-300)).min()) * (1 + ROOM)

    def _chain(self, known: _Facts, multipliers: Multipliers | None) -> _Chain:
        guide = _Near(self._network, self._eps, known, multipliers, self._room)
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            images = self._passage.images(guide, self._inner)
            parts = images_below(self._network, images, PlainBackend())  # type: ignore[arg-type]
            if not parts:
                return _Chain(guide, np.inf, np.zeros(0), np.zeros(0))
            slopes: Floats = reduce(add, (self._against(head.near_floats(), image) for head, image in parts))
            sizes = np.sqrt((slopes * slopes).sum(axis=1))
            quotients = self._leads / np.maximum(self._eps * sizes, 1e-300)
        worst = int(np.argmin(quotients))
        return _Chain(guide, float(quotients[worst]), slopes[worst], sizes**2)

    def _against(self, head: Any, image: Matrix[Any]) -> Floats:
        last = np.ldexp(head.values, head.exponent)
        found: Floats = np.delete(last[self.winner] - last, self.winner, axis=0) @ plain_values(image)
        return found

    def _moved(self, chain: _Chain, now: dict[Key, Floats], first: _Chain) -> tuple[_Chain, dict[Key, Floats]] | None:
        """A chain with better multipliers, if there is one of the same functions."""
        factors = chain.guide.factors(chain.worst[:, None])
        keys = sorted(factors)

        def build(wanted: list[Floats]) -> _Chain | None:
            found = self._chain(first.guide.keyed, dict(zip(keys, wanted, strict=True)))
            return found if sorted(found.guide.functions) == keys else None

        moved = backed_off([now[key] for key in keys], [factors[key] for key in keys], build)
        return None if moved is None else (moved[0], dict(zip(keys, moved[1], strict=True)))
