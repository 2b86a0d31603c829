"""Margin bounds of a graph of layers: differences of any two inputs, as images of one ball (`images`, `graphs`).

The quotients of each function lie in the interval that its slopes span, whatever the inputs are; those of |a - b|, in a
comparison of two numbers, between -1 and 1. In the end the lead of class j over class i changes by dᵀC·η, where C are
the images of all that the last layer takes, and d the difference of rows j and i of its matrices:

    L[i][j]² = dᵀ·C·Cᵀ·d.

Here are the witness, and who checks it on the way (`WitnessGuide`); `graph_local` adds what is known near a point.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from typing import Any, TypeVar

import numpy as np

from intervalcert.backends.protocol import Backend, Floats, Indices, Matrix
from intervalcert.errors import UndecidedError
from intervalcert.model.activations import Activation
from intervalcert.model.evaluation import FloatBounds
from intervalcert.model.network import Network
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.proof.data import Witness
from intervalcert.proof.ellipsoids import Sector, are_finite, point
from intervalcert.proof.graphs import Guide, Image, Passage
from intervalcert.proof.images import Bending, Compression, Head, check_bending, check_compression

__all__ = [
    "Contenders",
    "Functions",
    "GraphChain",
    "Link",
    "WitnessGuide",
    "encloses",
    "graph_squares",
    "head_beside",
    "images_below",
]


@dataclass(frozen=True, eq=False, repr=False)
class Functions(Witness):
    """The witness of functions of one variable: sectors of all of them, and of those that bend, what `images` needs.

    reach: near a point, how far their arguments can change; otherwise nothing.
    """

    sector: Sector
    bending: Bending | None
    reach: Floats


@dataclass(frozen=True, eq=False, repr=False)
class Contenders(Witness):
    """Near a point: the places, of all that windows see, where a largest number can be; and of the other places, how
    far the difference between the number there and that of its window's champion can change (`graph_local`).
    """

    places: Indices
    reach: Floats


Link = Functions | Compression | Contenders

GraphChain = tuple[Link, ...]
"""What is asked for on the way through a network, in that order. Another ball is taken when its turn has come."""

_L = TypeVar("_L", Functions, Compression, Contenders)


class WitnessGuide(Guide):
    """Proves from a witness what it is asked. Raises: UndecidedError wherever it does not."""

    def __init__(self, links: GraphChain, backend: Backend[Any]) -> None:
        self._links, self._backend = links, backend
        self._next, self._turn = 0, 0
        self._bending: Bending | None = None

    def finish(self) -> None:
        """All of it must have been asked for."""
        if self._next != len(self._links):
            raise UndecidedError("a chain of another network")

    def take(self, kind: type[_L]) -> _L:
        """The next link."""
        if self._next == len(self._links):
            raise UndecidedError("a chain that ends too early")
        found = self._links[self._next]
        self._next += 1
        if not isinstance(found, kind):
            raise UndecidedError("a chain of another network")
        return found

    def functions(self, count: int) -> Functions:
        """The next link, of so many functions. What bends is asked for afterwards, and only then."""
        found = self.take(Functions)
        sector = found.sector
        if not sector.middle.shape == sector.spread.shape == (count,) or not are_finite(sector.middle, sector.spread):
            raise UndecidedError("sectors of other functions")
        if (sector.spread < 0).any() or (found.bending is None) != (not sector.spread.any()):
            raise UndecidedError("sectors that do not say what bends")
        self._bending = found.bending
        return found

    def bending(self) -> Bending:
        """What is said of those of the last functions that bend."""
        step, self._bending = self._bending, None
        if step is None:
            raise UndecidedError("nothing is said of what bends")
        return step

    def enters(self, layer: int, rows: int, width: int) -> None:
        pass

    def bent(self, rows: Matrix[Any], spread: Floats, among: Matrix[Any]) -> tuple[Head, Floats]:  # noqa: ARG002
        step = self.bending()
        return check_bending(step, spread, rows, self._backend), step.w

    def takes_another(self, count: int, width: int, *, given: bool) -> bool:  # noqa: ARG002 - the witness says it
        self._turn += 1
        link = self._links[self._next] if self._next < len(self._links) else None
        return isinstance(link, Compression) and link.turn == self._turn

    def another(self, rows: Matrix[Any]) -> Matrix[Any]:
        return check_compression(self.take(Compression), rows, self._backend)


class _AllInputs(WitnessGuide):
    """For any two inputs."""

    def sector(self, rows: Matrix[Any], function: Activation, least: Fraction, ends: FloatBounds) -> Sector:  # noqa: ARG002
        found = self.functions(rows.shape[0])
        slopes = function.slopes
        if slopes is None or not encloses(
            found.sector, min(slopes[0], slopes[0] * least), max(slopes[1], slopes[1] * least)
        ):
            raise UndecidedError("a sector does not hold the slopes of the activation")
        return found.sector

    def constant(self, rows: Matrix[Any], lipschitz: Fraction) -> Sector:
        found = self.functions(rows.shape[0])
        step = found.bending
        if found.sector.middle.any() or not encloses(found.sector, -lipschitz, lipschitz) or step is None:
            raise UndecidedError("a sector does not hold the constant of the activation")
        if (step.v != step.v[:1]).any() or (step.w != step.w[:1]).any():
            raise UndecidedError("functions of all numbers at once have one multiplier")
        return found.sector

    def contenders(self, rows: Matrix[Any], windows: Indices, ends: FloatBounds) -> Indices:  # noqa: ARG002
        return np.arange(rows.shape[0])


def encloses(sector: Sector, low: Fraction, high: Fraction) -> bool:
    """Whether every sector holds these slopes; exactly. Requires: finite ones."""
    ends = {(m, r) for m, r in zip(sector.middle.tolist(), sector.spread.tolist(), strict=True)}
    return all(Fraction(m) - Fraction(r) <= low and high <= Fraction(m) + Fraction(r) for m, r in ends)


def graph_squares(
    passage: Passage, network: Network, links: GraphChain, backend: Backend[Any]
) -> tuple[RationalMatrix, Matrix[Any]] | None:
    """(W, P) with L[i][j]² = dᵀPd for the difference d of rows i and j of W; None if the logits never change.

    Raises: InconclusiveError unless the witness is proved on this number system.
    """
    guide = _AllInputs(links, backend)
    images = passage.images(guide)
    guide.finish()
    parts = images_below(network, images, backend)
    if not parts:
        return None
    stacked = parts[0][1].stacked([matrix for _, matrix in parts[1:]])
    return head_beside([matrix for matrix, _ in parts]), stacked @ stacked.transposed()


def images_below(
    network: Network, images: dict[int, Image], backend: Backend[Any]
) -> list[tuple[RationalMatrix, Matrix[Any]]]:
    """Of each branch of the last layer whose source changes: its matrix at the numbers that change, and their image."""
    found = []
    for term, matrix in zip(network.layers[-1].branches, network.head, strict=True):
        image = images.get(term.source)
        if image is None:
            continue
        kept = np.flatnonzero(image.index >= 0)
        columns = kept[np.argsort(image.index[kept])]
        rows = point(np.eye(len(kept)), backend) if image.matrix is None else image.matrix
        found.append((_columns(matrix, columns), rows))
    return found


def _columns(matrix: RationalMatrix, columns: Indices) -> RationalMatrix:
    """Some columns. Floats stay floats."""
    floats = matrix.as_floats()
    if floats is not None:
        return RationalMatrix.from_floats(floats[:, columns])
    return RationalMatrix(matrix.numerators[:, columns], matrix.denominator)


def head_beside(matrices: Sequence[RationalMatrix]) -> RationalMatrix:
    """Columns after columns, exactly."""
    if len(matrices) == 1:
        return matrices[0]
    common = lcm(*(matrix.denominator for matrix in matrices))
    return RationalMatrix(
        np.concatenate([matrix.numerators * (common // matrix.denominator) for matrix in matrices], axis=1), common
    )
