"""How much room a proof through a graph needs for its rounding errors: measured, where one failed for want of it.

Floats that guess do not see what a number system that rounds carries along. Here a witness goes its way on such a
system, and goes on where a proof would end; what each step would have needed is noted. The next search makes room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from intervalcert.backends.protocol import Backend, Floats, Matrix
from intervalcert.errors import InconclusiveError
from intervalcert.model.evaluation import FloatBounds
from intervalcert.proof.graph_chain import GraphChain
from intervalcert.proof.graph_local import Facts, NearPoint
from intervalcert.proof.graphs import Passage
from intervalcert.proof.images import (
    Compression,
    Head,
    bending_residual,
    compression_residual,
    row_squares_upper,
)
from intervalcert.proof.norms import frobenius_upper
from intervalcert.proof.sectors import Bools

__all__ = ["USUAL", "Room", "room_near_point"]

_MORE = 2.0
"""Times what was needed."""


@dataclass(frozen=True)
class Room:
    """steps: of each step of a chain, in order, how many times the usual e or s; once for those beyond.

    reach: by which part of the longest row's square all squares are taken for larger.
    """

    steps: tuple[float, ...] = ()
    reach: float = 2.0**-30

    def of(self, step: int) -> float:
        return self.steps[step] if step < len(self.steps) else 1.0

    def extended(self, needs: Sequence[float], reach: float) -> Room:
        """needs: of each step, as multiples of what was there; enough is below 1."""
        steps = (self.of(i) * max(1.0, _MORE * need) for i, need in enumerate(needs))
        return Room(tuple(steps), max(self.reach, _MORE * reach))


USUAL = Room()


class _Measuring(NearPoint):
    """Goes on where a proof would end.

    needs: of each step, as a multiple of what was there. reach: what is missing, as a part of the longest row's square.
    """

    def __init__(self, links: GraphChain, backend: Backend[Any], eps: Fraction, known: Facts) -> None:
        super().__init__(links, backend, eps, known)
        self.needs: list[float] = []
        self.reach = 0.0

    def bent(self, rows: Matrix[Any], spread: Floats, among: Matrix[Any]) -> tuple[Head, Floats]:  # noqa: ARG002
        step = self.bending()
        residual, head = bending_residual(step, spread, rows, self._backend)
        self._note(residual, step.e)
        return head, step.w

    def another(self, rows: Matrix[Any]) -> Matrix[Any]:
        step = self.take(Compression)
        residual, images = compression_residual(step, rows, self._backend)
        self._note(residual, step.slack)
        return images

    def _note(self, residual: Matrix[Any], have: float) -> None:
        self.needs.append(float(frobenius_upper(residual, self._backend).upper()) / have)

    def are_within_reach(self, reach: Floats, rows: Matrix[Any], proved: Bools) -> bool:
        squares = row_squares_upper(rows)
        missing = (squares - (reach / max(float(self._eps), 2.0**-900)) ** 2)[~proved]
        self.reach = max(self.reach, float(missing.max()) / max(float(squares.max()), 2.0**-900))
        return True


def room_near_point(
    passage: Passage,
    chains: Sequence[GraphChain],
    backend: Backend[Any],
    inner: Sequence[FloatBounds],
    eps: Fraction,
    before: Room,
) -> Room | None:
    """What the proof of chains near a point needs; None if that cannot be told, or is there already.

    passage: on that number system. inner: as for `GraphLocalChecker.check`. before: what the chains were made with.
    """
    known: Facts = {}
    room = before
    for links in chains:
        guide = _Measuring(links, backend, eps, known)
        try:
            passage.images(guide, inner)
        except InconclusiveError:
            return None
        known = guide.facts
        found = before.extended(guide.needs, before.reach + guide.reach if guide.reach > 0 else 0.0)
        steps = max(len(room.steps), len(found.steps))
        room = Room(tuple(max(room.of(i), found.of(i)) for i in range(steps)), max(room.reach, found.reach))
    return _changed(before, room)


def _changed(before: Room, after: Room) -> Room | None:
    return None if after == Room(tuple(map(before.of, range(len(after.steps)))), before.reach) else after
