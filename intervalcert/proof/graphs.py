"""The way of differences through a graph of layers, as images of one ball (`images`): the same for search and proof.

What is done here is algebra: linear maps of images, sums, and what becomes of images when rows bend or a new ball is
taken. All that is claimed on the way (in which sector a function bends, that a ball is large enough) is asked of a
`Guide`: one that proves it from a witness, or one that looks for a witness, on floats that promise nothing.

A layer's inner values have the image Z = Σ T·C. Its activation is made of functions of one variable:

* of each entry its own, of which the output is (M·Z, W): rows whose sector is [0, 0] do not change, and are left out;
* comparisons of pairs (`comparators`), for sorting and for the largest number in a window;
* or none, if it is only known that it moves no two vectors apart by more than a constant.

Uncertain scales multiply each change by a number in [least, 1]. Before and after a function of one variable they belong
to it, and bring its quotients nearer to zero; beside comparisons they are functions of their own, x -> c·x.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from math import prod
from operator import add
from typing import Any

import numpy as np

from intervalcert.backends.protocol import Backend, Floats, Indices, Matrix
from intervalcert.model.activations import IDENTITY, Activation, Componentwise, MaxPool, Sorting
from intervalcert.model.evaluation import FloatBounds
from intervalcert.model.layers import INPUT, Layer, UncertainScale
from intervalcert.model.linear_maps import Convolution, LinearMap, Operator
from intervalcert.model.network import Network
from intervalcert.proof.comparators import (
    MODULUS,
    Comparison,
    difference,
    kept_of,
    rounds_of_sorting,
    slots_of,
    tournament,
)
from intervalcert.proof.ellipsoids import Sector, point
from intervalcert.proof.images import Head, beside

__all__ = ["Guide", "Image", "Passage"]

_SPREAD_OUT = 2**22
"""Numbers that the windows of a convolution see at once, at the most: columns are taken in parts."""


@dataclass(frozen=True, eq=False)
class Image:
    """C, of which only the rows are held that are not zero. index: of each number of the value its row, or -1.

    matrix: None for the identity.
    """

    index: Indices
    matrix: Matrix[Any] | None

    @property
    def count(self) -> int:
        """Rows that are held."""
        return len(self.index) if self.matrix is None else self.matrix.shape[0]


class Guide(ABC):
    """Who is asked on the way. Whatever it answers is sound if it is a proof, and else only an attempt."""

    @abstractmethod
    def enters(self, layer: int, rows: int, width: int) -> None:
        """A layer's inner values are next: so many rows of images of a ball of that width."""

    @abstractmethod
    def sector(self, rows: Matrix[Any], function: Activation, least: Fraction, ends: FloatBounds) -> Sector:
        """One that holds all quotients of functions whose arguments change by the rows, times [least, 1].

        ends: of the arguments at the point, if there is one.
        """

    @abstractmethod
    def constant(self, rows: Matrix[Any], lipschitz: Fraction) -> Sector:
        """Around 0, for a function of all rows at once with that constant."""

    @abstractmethod
    def bent(self, rows: Matrix[Any], spread: Floats, among: Matrix[Any]) -> tuple[Head, Floats]:
        """For rows that bend: what becomes of images, and w (`images`). among: all rows of the value they are of."""

    def times_slopes(self, rows: Matrix[Any], sector: Sector, kept: Indices) -> Matrix[Any]:  # noqa: ARG002
        """M·Z, for some of the functions of the last sector: those that are kept."""
        return rows.diag_scaled(sector.middle, np.ones(rows.shape[1]))

    @abstractmethod
    def takes_another(self, count: int, width: int, *, given: bool) -> bool:
        """Whether another ball is taken now, so many rows being alive. given: they are what layers give, at last."""

    @abstractmethod
    def another(self, rows: Matrix[Any]) -> Matrix[Any]:
        """Rows that may stand for these (`images`)."""

    @abstractmethod
    def contenders(self, rows: Matrix[Any], windows: Indices, ends: FloatBounds) -> Indices:
        """Of rows in windows: such that the largest of a window is always among them; at least one of each window."""


class _Ball:
    """How long η is, and the images that are alive."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.images: dict[int, Image] = {INPUT: Image(np.arange(width), None)}

    def forget(self, sources: Sequence[int]) -> None:
        for source in sources:
            self.images.pop(source, None)

    def matrix(self, source: int, backend: Backend[Any]) -> Matrix[Any]:
        """The rows that are held of an image, also of the identity."""
        found = self.images[source].matrix
        return point(np.eye(self.width), backend) if found is None else found

    def bend(self, head: Head, count: int, backend: Backend[Any]) -> None:
        """All images become those of (η', ν/w), with so many ν."""
        for source, image in self.images.items():
            made = head.of(self.matrix(source, backend))
            self.images[source] = Image(image.index, _with_zeros(made, count, backend))
        self.width = head.width(self.width) + count


class Passage:
    """The way through one network on one number system, with what all passages share."""

    def __init__(self, network: Network, backend: Backend[Any], norms: Sequence[Fraction] | None = None) -> None:
        """norms: upper bounds of the operator norms of the network's branches, if they are known."""
        self._network, self._backend = network, backend
        known = [None] * len(network.branches) if norms is None else list(norms)
        self._operators = [
            (branch, branch.map.on(backend, norm)) for branch, norm in zip(network.branches, known, strict=True)
        ]
        last = {branch.source: branch.layer for branch in network.branches}
        self._last_used = [[x for x, at in last.items() if at == index] for index in range(len(network.layers))]

    def images(self, guide: Guide, inner: Sequence[FloatBounds] | None = None) -> dict[int, Image]:
        """The images of what the last layer takes; those of what does not change are missing.

        inner: ends of the inner values of the hidden layers at the point, if there is one.
        """
        ball = _Ball(self._network.inputs)
        for index, layer in enumerate(self._network.layers[:-1]):
            count = layer.shape[0]
            guide.enters(index, count, ball.width)
            rows = self._inner(index, ball)
            ball.forget(self._last_used[index])
            if rows is None:
                continue  # nothing that it takes changes
            ends = (np.zeros(count), np.zeros(count)) if inner is None else inner[index]
            made = self._activated(layer, self._compressed(rows, ball, guide), ends, ball, guide)
            if made is not None:
                ball.images[index] = made
        return ball.images

    def _inner(self, layer: int, ball: _Ball) -> Matrix[Any] | None:
        """Z = Σ T·C; None if it is zero."""
        parts = []
        for branch, operator in self._operators:
            image = ball.images.get(branch.source) if branch.layer == layer else None
            if image is not None:
                parts.append(self._applied(branch.map, operator, image, ball.width))
        return reduce(add, parts) if parts else None

    def _applied(self, linear: LinearMap, operator: Operator, image: Image, width: int) -> Matrix[Any]:
        """T·C, some columns at a time."""
        return beside([operator.apply(part) for part in self._columns(image, width, _columns_at_once(linear))])

    def _columns(self, image: Image, width: int, at_once: int) -> Iterator[Matrix[Any]]:
        """All rows of C, with so many of its columns."""
        for start in range(0, width, at_once):
            columns = np.arange(start, min(start + at_once, width))
            if image.matrix is None:
                yield point(np.eye(width)[:, columns], self._backend)
            else:
                yield image.matrix.block(np.arange(image.count), columns).rows_at(image.index)

    # -- activations -------------------------------------------------------------------------------------------------

    def _activated(self, layer: Layer, rows: Matrix[Any], ends: FloatBounds, ball: _Ball, guide: Guide) -> Image | None:
        function = layer.activation
        if isinstance(function, Componentwise):
            return self._bent(rows, function, layer.least_factor, ends, ball, guide)
        if function is None:
            raise ValueError("a hidden layer has an activation")
        if isinstance(function, Sorting) and function.size is not None:
            rows = self._scaled(rows, layer.before, ball, guide)
            for step in rounds_of_sorting(function, rows.shape[0]):
                rows, ends = self._compared(rows, step, ends, ball, guide)
        elif isinstance(function, MaxPool):
            rows = self._scaled(rows, layer.before, ball, guide)
            rows = self._largest(rows, function, ends, ball, guide)
        else:  # an uncertain scale brings no two vectors apart
            return self._within(rows, function.lipschitz, ball, guide)
        rows = self._scaled(rows, layer.after, ball, guide)
        return Image(np.arange(rows.shape[0]), rows)

    def _scaled(self, rows: Matrix[Any], by: UncertainScale | None, ball: _Ball, guide: Guide) -> Matrix[Any]:
        """C·x for a diagonal C with entries in [least, 1]."""
        if by is None:
            return rows
        ends = np.zeros(rows.shape[0]), np.zeros(rows.shape[0])
        made = self._bent(rows, IDENTITY, by.least, ends, ball, guide)
        if made is None or made.matrix is None or made.count < rows.shape[0]:
            raise ValueError("no factor is zero")
        return made.matrix

    def _bent(
        self, rows: Matrix[Any], function: Activation, least: Fraction, ends: FloatBounds, ball: _Ball, guide: Guide
    ) -> Image | None:
        """Of a function of each entry; None if none of them can change."""
        sector = guide.sector(rows, function, least, ends)
        kept = np.flatnonzero((sector.middle != 0) | (sector.spread > 0))
        if not len(kept):
            return None
        made = self._through(rows.rows_at(kept), Sector(sector.middle[kept], sector.spread[kept]), kept, ball, guide)
        index = np.full(rows.shape[0], -1, dtype=np.intp)
        index[kept] = np.arange(len(kept))
        return Image(index, self._compressed(made, ball, guide, given=True))

    def _within(self, rows: Matrix[Any], lipschitz: Fraction, ball: _Ball, guide: Guide) -> Image:
        """Of a function of all of them."""
        made = self._through(rows, guide.constant(rows, lipschitz), np.arange(rows.shape[0]), ball, guide)
        return Image(np.arange(rows.shape[0]), self._compressed(made, ball, guide, given=True))

    def _through(self, rows: Matrix[Any], sector: Sector, kept: Indices, ball: _Ball, guide: Guide) -> Matrix[Any]:
        """M·Z, and W for the rows that bend. kept: which of the functions they are of."""
        linear, more = self._opened([rows], rows, sector.spread, ball, guide)
        made = guide.times_slopes(linear[0], sector, kept)
        return made if more is None else beside([made, more])

    def _opened(
        self, images: Sequence[Matrix[Any]], rows: Matrix[Any], spread: Floats, ball: _Ball, guide: Guide
    ) -> tuple[list[Matrix[Any]], Matrix[Any] | None]:
        """Lets the rows with a spread bend. images: the first is that of the value.

        What becomes of the images, without columns for ν; and the image of ν in these columns, zero where none is.
        """
        bending = np.flatnonzero(spread > 0)
        if not len(bending):
            return list(images), None
        head, w = guide.bent(rows.rows_at(bending), spread[bending], images[0])
        ball.bend(head, len(bending), self._backend)
        tail = np.zeros((len(spread), len(bending)))
        tail[bending, np.arange(len(bending))] = w
        return [head.of(image) for image in images], point(tail, self._backend)

    def _compared(
        self, rows: Matrix[Any], step: Comparison, ends: FloatBounds, ball: _Ball, guide: Guide
    ) -> tuple[Matrix[Any], FloatBounds]:
        """min, max = (a + b ∓ |a - b|)/2 of the pairs; |a - b| changes by m·(a - b) + ν."""
        apart = rows.rows_at(step.left) - rows.rows_at(step.right)
        sector = guide.sector(apart, MODULUS, Fraction(1), difference(ends, step.left, step.right))
        (every, moved), more = self._opened([rows, apart], apart, sector.spread, ball, guide)
        if more is not None:
            every = _with_zeros(every, more.shape[1], self._backend)
        half = moved.diag_scaled(sector.middle, np.ones(moved.shape[1])).ldexp(-1)
        if more is not None:
            half = beside([half, more.ldexp(-1)])
        mean = (every.rows_at(step.left) + every.rows_at(step.right)).ldexp(-1)
        others = np.delete(np.arange(rows.shape[0]), np.concatenate([step.left, step.right]))
        parts = [mean - half, mean + half] + ([every.rows_at(others)] if len(others) else [])
        place = np.argsort(np.concatenate([step.left, step.right, others]))[step.keep]
        made = parts[0].stacked(parts[1:]).rows_at(place)
        return self._compressed(made, ball, guide), kept_of(ends, step)

    def _largest(
        self, rows: Matrix[Any], function: MaxPool, ends: FloatBounds, ball: _Ball, guide: Guide
    ) -> Matrix[Any]:
        """Of each window: of those that can be the largest at all."""
        windows, seen = slots_of(function)
        spread_out = rows.rows_at(seen)
        slots = guide.contenders(spread_out, windows, (ends[0][seen], ends[1][seen]))
        rows, seen, windows = spread_out.rows_at(slots), seen[slots], windows[slots]
        ends = ends[0][seen], ends[1][seen]
        for step in tournament(windows):
            rows, ends = self._compared(rows, step, ends, ball, guide)
        if rows.shape[0] != function.channels * prod(function.window.outputs):
            raise ValueError("a window without a row, or with two")
        return rows

    # -- another ball ------------------------------------------------------------------------------------------------

    def _compressed(self, rows: Matrix[Any], ball: _Ball, guide: Guide, *, given: bool = False) -> Matrix[Any]:
        """The rows, and with them all images that are alive, of another ball if the guide takes one."""
        sources = sorted(ball.images)
        counts = [rows.shape[0], *(ball.images[source].count for source in sources)]
        if not guide.takes_another(sum(counts), ball.width, given=given):
            return rows
        made = guide.another(rows.stacked([ball.matrix(source, self._backend) for source in sources]))
        ball.width = made.shape[1]
        first, *others = np.split(np.arange(made.shape[0]), np.cumsum(counts)[:-1])
        for source, places in zip(sources, others, strict=True):
            ball.images[source] = Image(ball.images[source].index, made.rows_at(places))
        return made.rows_at(first)


def _with_zeros(image: Matrix[Any], count: int, backend: Backend[Any]) -> Matrix[Any]:
    return beside([image, point(np.zeros((image.shape[0], count)), backend)])


def _columns_at_once(linear: LinearMap) -> int:
    if not isinstance(linear, Convolution):
        return 2**30
    taps, places = linear.window.table.shape
    return max(1, int(_SPREAD_OUT // (linear.channels * taps * places)))
