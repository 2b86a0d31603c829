"""What becomes of unit vectors on the way through a graph near a point: rows for every argument that is asked for.

Between hinges everything is linear. The unit vectors are those of the input, and, from there on, one for each function
that may be other than a line. So the change of an argument is its row times the changes of the input and of what those
functions give besides their lines, for chains, branches, comparisons of pairs and windows alike. Whoever asks says
which lines; on plain floats a search goes the same way.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from intervalcert.backends.protocol import Backend, Floats, Indices, Matrix
from intervalcert.errors import UndecidedError
from intervalcert.model.activations import Activation
from intervalcert.model.evaluation import FloatBounds
from intervalcert.model.network import Network
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.proof.ellipsoids import Sector
from intervalcert.proof.graph_chain import images_below
from intervalcert.proof.graph_local import Site
from intervalcert.proof.graphs import Guide, Image, Passage
from intervalcert.proof.hinges import Goal
from intervalcert.proof.images import Head

__all__ = ["NearValues", "Rows", "SiteRows", "rows_of"]


@dataclass(frozen=True, eq=False)
class NearValues:
    """What is known at a point, and near it. sites: in their order. logits: ends. contenders: by their keys."""

    sites: Sequence[Site]
    logits: FloatBounds
    contenders: Mapping[tuple[int, int], Indices]

    @property
    def places(self) -> dict[tuple[int, int], int]:
        """Of the sites, by their keys."""
        return {site.key: place for place, site in enumerate(self.sites)}


@dataclass(frozen=True, eq=False)
class SiteRows:
    """What is asked of one site on the way. slopes: of all functions, but for the hinges that are variables.

    free: functions with a number of their own, besides the line: one for all hinges of a function. wanted: the
    arguments whose rows are asked for.
    """

    slopes: Sequence[Fraction]
    free: Indices
    wanted: Indices


@dataclass(frozen=True, eq=False)
class Rows:
    """What became of unit vectors: of each site the rows that were wanted, and the first of its free columns; of each
    goal its row; the columns of all. Rows are as wide as was known when they were made.
    """

    of_sites: Sequence[Matrix[Any] | None]
    starts: Sequence[int]
    goals: Matrix[Any] | None
    width: int


class _Reached(Exception):  # noqa: N818 - no error: the way ends where the goal is
    pass


class _UnitVectors(Guide):
    """Goes with unit vectors. What floats do on the way they do on any number system."""

    def __init__(
        self, plan: Sequence[SiteRows], goals: Sequence[Goal], near: NearValues, backend: Backend[Any], inputs: int
    ) -> None:
        """plan: of the sites before the goals, in their order. goals: at a site, where the way ends; or none."""
        self._plan, self._goals, self._near, self._backend = plan, goals, near, backend
        self._places, self._key, self._now = near.places, (-1, 0), 0
        self.of_sites: list[Matrix[Any] | None] = [None] * len(plan)
        self.starts = [-1] * len(plan)
        self.goals: Matrix[Any] | None = None
        self.width = inputs

    def enters(self, layer: int, rows: int, width: int) -> None:  # noqa: ARG002 - sizes do not matter
        self._key = layer, 0

    def sector(self, rows: Matrix[Any], function: Activation, least: Fraction, ends: FloatBounds) -> Sector:  # noqa: ARG002
        self._now = self._place_of(function, least)
        if self._now >= len(self._plan):
            if not all(goal.site == self._now for goal in self._goals) or not self._goals:
                raise UndecidedError("a site beyond the goal")
            for goal in self._goals:
                goal.signs(rows.shape[0])  # it is one
            plus, minus = (
                np.array(ends) for ends in zip(*((goal.plus, goal.minus) for goal in self._goals), strict=True)
            )
            self.goals = rows.rows_at(plus) - rows.rows_at(minus)
            raise _Reached
        asked = self._plan[self._now]
        count = rows.shape[0]
        if len(asked.slopes) != count:
            raise UndecidedError("slopes of other functions")
        if len(asked.wanted):
            self.of_sites[self._now] = rows.rows_at(asked.wanted)
        spread = np.zeros(count)
        spread[asked.free] = 1.0
        return Sector(np.array([_near(slope) for slope in asked.slopes]), spread)

    def _place_of(self, function: Activation, least: Fraction) -> int:
        """Of the site that is met now. Raises: UndecidedError for one that is not known."""
        place = self._places.get(self._key)
        self._key = self._key[0], self._key[1] + 1
        if place is None or least != 1 or self._near.sites[place].function != function.piecewise_linear:
            raise UndecidedError("functions whose arguments are not known near the point")
        return place

    def constant(self, rows: Matrix[Any], lipschitz: Fraction) -> Sector:  # noqa: ARG002
        raise UndecidedError("an activation that is not known near a point")

    def times_slopes(self, rows: Matrix[Any], sector: Sector, kept: Indices) -> Matrix[Any]:
        slopes = [self._plan[self._now].slopes[k] for k in kept.tolist()]
        if all(Fraction(m) == slope for m, slope in zip(sector.middle.tolist(), slopes, strict=True)):
            return super().times_slopes(rows, sector, kept)
        return rows.row_scaled(self._backend.matrix(RationalMatrix.from_fractions([[slope] for slope in slopes])))

    def bent(self, rows: Matrix[Any], spread: Floats, among: Matrix[Any]) -> tuple[Head, Floats]:  # noqa: ARG002
        count, self.starts[self._now] = rows.shape
        self.width = rows.shape[1] + count
        return Head(), np.ones(count)

    def takes_another(self, count: int, width: int, *, given: bool) -> bool:  # noqa: ARG002
        return False

    def another(self, rows: Matrix[Any]) -> Matrix[Any]:  # noqa: ARG002
        raise ValueError("no other ball is taken")

    def contenders(self, rows: Matrix[Any], windows: Indices, ends: FloatBounds) -> Indices:  # noqa: ARG002
        found = self._near.contenders.get(self._key)
        self._key = self._key[0], self._key[1] + 1
        if found is None:
            raise UndecidedError("windows whose contenders are not known near the point")
        return found


def _near(slope: Fraction) -> float:
    """A float near it, zero only if it is."""
    found = float(slope)
    return found if found or not slope else math.copysign(5e-324, slope)


def rows_of(
    passage: Passage,
    network: Network,
    plan: Sequence[SiteRows],
    goals: Sequence[Goal],
    near: NearValues,
    backend: Backend[Any],
) -> Rows:
    """The rows of the sites, and of goals that are all at one site.

    Raises: UndecidedError for a plan of other sites, or another goal.
    """
    is_last = goals[0].site == len(near.sites)
    guide = _UnitVectors(plan, () if is_last else goals, near, backend, network.inputs)
    images: dict[int, Image] = {}
    with suppress(_Reached):
        images = passage.images(guide)
    for asked, start, rows in zip(plan, guide.starts, guide.of_sites, strict=True):
        if (len(asked.free) and start < 0) or (len(asked.wanted) and rows is None):
            raise UndecidedError("functions of what cannot change")
    if not is_last:
        return Rows(guide.of_sites, guide.starts, guide.goals, guide.width)
    parts = []
    for matrix, image in images_below(network, images, backend):
        for goal in goals:
            goal.signs(matrix.shape[0])  # it is one
        numerators = np.vstack([matrix.numerators, np.zeros((1, matrix.shape[1]), dtype=object)])  # -1 is none
        plus, minus = (
            numerators[list(ends)] for ends in zip(*((goal.plus, goal.minus) for goal in goals), strict=True)
        )
        parts.append(backend.matrix(RationalMatrix(plus - minus, matrix.denominator)) @ image)
    return Rows(guide.of_sites, guide.starts, reduce(add, parts) if parts else None, guide.width)
