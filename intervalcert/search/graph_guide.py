"""Who looks for a witness on the way through a graph (`proof.graphs`): the same questions, answered by floats.

Sectors and contenders are those of the subclasses: for all inputs, or near a point. How much memory and time a passage
takes is known as it goes along, before it is spent: one that would take too much ends with `TooWideError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from intervalcert.backends.protocol import Floats, Indices, Matrix
from intervalcert.model.layers import INPUT
from intervalcert.model.network import Network
from intervalcert.proof.graph_chain import Contenders, Functions, GraphChain, Link
from intervalcert.proof.graphs import Guide
from intervalcert.proof.images import Head
from intervalcert.search.images import Ball, Bend, first_weights, guess_ball, guess_bend
from intervalcert.search.plain import PlainMatrix
from intervalcert.search.room import USUAL, Room

__all__ = ["Key", "Multipliers", "SearchGuide", "TooWideError", "plain_values"]

Key = tuple[int, int]
"""Of functions: their layer, and the place among the links of that layer."""

Multipliers = Mapping[Key, Floats]
"""w⁻² of each function, 0 where there is none."""

_FEW = 256
"""A ball of at most so many dimensions is turned inside, whatever bends: it grows by less."""

_FEWER = 0.8
"""So many times the rows that are alive, or fewer, are worth waiting for."""

_MOST_ENTRIES = 2**25
"""Of a matrix, 256 MiB; some ten such are held at a time."""

_PACE, _LEAP = 0.7, 0.25
"""As in `multipliers`."""


class TooWideError(Exception):
    """A layer is so wide that it is not attempted."""


class SearchGuide(Guide):
    """Makes the links of a chain, and remembers the steps for better multipliers."""

    def __init__(
        self, network: Network, multipliers: Multipliers | None, most_work: float, what: str, room: Room = USUAL
    ) -> None:
        """most_work: products of two numbers, at most. what: that is looked for, for people.

        room: for rounding errors of the proof.
        """
        self._network, self._multipliers, self._room = network, multipliers, room
        self._most_work, self._what = most_work, what
        self._layer, self._place, self._width = 0, 0, network.inputs
        self._turn = 0
        self._links: list[Link] = []
        self.keyed: dict[Key, Functions | Contenders] = {}
        self._steps: list[tuple[Key, Indices, Bend] | Ball] = []
        self.work, self.largest = 0.0, 0.0

    @property
    def links(self) -> GraphChain:
        return tuple(self._links)

    @property
    def functions(self) -> dict[Key, Functions]:
        """By their keys."""
        return {key: link for key, link in self.keyed.items() if isinstance(link, Functions)}

    # -- on the way --------------------------------------------------------------------------------------------------

    def enters(self, layer: int, rows: int, width: int) -> None:
        self._layer, self._place, self._width = layer, 0, width
        columns = sum(term.map.shape[1] for term in self._network.layers[layer].branches)
        self.spend(rows * width, rows * width * min(columns, 1024))

    def spend(self, entries: float, work: float) -> None:
        """Raises: TooWideError if it is too much."""
        self.work += work
        self.largest = max(self.largest, entries)
        if entries > _MOST_ENTRIES or self.work > self._most_work:
            rows, _ = self._network.layers[self._layer].shape
            much = f"some {entries * 80 / 2**30:.1f} GB" if entries > _MOST_ENTRIES else f"{self.work:.0e} products"
            raise TooWideError(f"layer {self._layer} is too wide for {self._what}: {rows} neurons, {much}")

    def add(self, link: Functions | Contenders) -> None:
        """As the next one."""
        self.keyed[self._layer, self._place] = link
        self._place += 1
        self._links.append(link)

    def bent(self, rows: Matrix[Any], spread: Floats, among: Matrix[Any]) -> tuple[Head, Floats]:
        values, (count, width) = plain_values(rows), rows.shape
        inside = width <= max(2 * count, _FEW)
        side, other = (width, count) if inside else (count, width)
        after = width + count + (0 if inside else count)
        largest = max(side * side, among.shape[0] * after)
        self.spend(largest, side * side * (side + 2.0 * other) + among.shape[0] * width * (width if inside else count))
        link, key = self._links[-1], (self._layer, self._place - 1)
        if not isinstance(link, Functions):
            raise TypeError("functions come before what bends of them")
        places = np.flatnonzero(link.sector.spread > 0)
        v = self._known_weights(key, spread, places)
        if v is None:
            v = self.first_weights(values, spread, plain_values(among))
        found = guess_bend(values, spread, v, inside=inside, room=self._room.of(len(self._steps)))
        self._links[-1] = self.keyed[key] = replace(link, bending=found.step)
        self._steps.append((key, places, found))
        head = PlainMatrix(found.head)
        self._width = after
        return (Head(turn=head) if inside else Head(more=head)), found.step.w  # type: ignore[arg-type]

    def _known_weights(self, key: Key, spread: Floats, places: Indices) -> Floats | None:
        """V of the functions that bend, by the multipliers; None without."""
        if self._multipliers is None:
            return None
        known = self._multipliers[key][places]
        usual = float(np.median(known[known > 0])) if (known > 0).any() else 1.0
        return spread * np.sqrt(np.where(known > 0, known, usual))

    def first_weights(self, rows: Floats, spread: Floats, among: Floats) -> Floats:  # noqa: ARG002 - others need it
        """V where nothing better is known. among: as in `bent`."""
        return first_weights(rows, spread)

    def takes_another(self, count: int, width: int, *, given: bool) -> bool:
        """Where fewer rows are alive than the ball has dimensions; unless fewer still will be at the next layer."""
        self._turn += 1
        return count < width and not (given and self._alive_next() < _FEWER * count)

    def _alive_next(self) -> int:
        """Rows that are alive when the next layer has taken what it takes, at the most; none after the last one."""
        layers, following = self._network.layers, self._layer + 1
        if following == len(layers) - 1:
            return 0
        later = {term.source for layer in layers[following + 1 :] for term in layer.branches}
        others = (self._network.inputs if x == INPUT else prod(layers[x].out_shape) for x in later if x <= self._layer)
        return layers[following].shape[0] + sum(others)

    def another(self, rows: Matrix[Any]) -> Matrix[Any]:
        count, width = rows.shape
        self.spend(count * max(width, count), count * count * (width + count / 3))
        found = guess_ball(plain_values(rows), self._room.of(len(self._steps)))
        self._links.append(replace(found.step, turn=self._turn))
        self._steps.append(found)
        return PlainMatrix(found.step.factor * found.step.units[:, None])  # type: ignore[return-value]

    # -- better multipliers ------------------------------------------------------------------------------------------

    def multipliers(self) -> dict[Key, Floats]:
        """Those that were used."""
        found = {}
        for key, link in self.functions.items():
            made = np.zeros(len(link.sector.spread))
            if link.bending is not None:
                made[link.sector.spread > 0] = 1 / link.bending.w**2
            found[key] = made
        return found

    def factors(self, directions: Floats) -> dict[Key, Floats]:
        """By which to change each v, to lower ||Cᵀd|| for the columns Cᵀd, given as columns."""
        eta = directions / np.maximum(np.sqrt((directions * directions).sum(axis=0)), 1e-300)
        found = {key: np.ones(len(link.sector.spread)) for key, link in self.functions.items()}
        for step in reversed(self._steps):
            if isinstance(step, Ball):
                eta = step.before(eta)
                continue
            key, places, bend = step
            eta, inner, outer = bend.before(eta)
            tiny = 1e-12 * (inner.mean() + outer.mean()) + 1e-300
            ratio = np.log((outer + tiny) / (inner + tiny))
            found[key][places] = np.exp(np.clip(_PACE / 4 * ratio, -_LEAP, _LEAP))
        return found


def plain_values(rows: Any) -> Floats:
    """On plain floats."""
    if not isinstance(rows, PlainMatrix):
        raise TypeError("a search is made on plain floats")
    return rows.values
