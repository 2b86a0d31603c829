"""The truth about small networks: how near the nearest other winner is, exactly, by walking through linear regions.

A piecewise linear network is affine on each of its linear regions: polytopes, cut out by the hyperplanes at which a
neuron reaches a kink. Where another class is at least as high as the winner is a polytope in each of them, too. Regions
are visited by their distance from x, the nearest one first: a region of some neurons is halved by the next one, and no
half is nearer than the whole. So the first polytope of another winner that is met is the nearest one.

THE NEAREST POINT of a polytope {g·d + c <= 0} to the origin is found constraint by constraint: if the nearest point of
those before fulfils the next one, it stays; else it is on the hyperplane of that one (Seidel). In n dimensions such
recursions end after n hyperplanes, at a point. All numbers are integers: points are held with a common denominator, and
a constraint may be multiplied by what is positive. Meant for two or three inputs, and some 20 neurons.

Written once more on purpose: it judges verdicts, and shares nothing with what found them, not even the network: it
takes arrays of numbers and the names of activations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from heapq import heappop, heappush
from itertools import count
from math import gcd, inf, lcm
from operator import mul
from typing import Any

__all__ = ["PlainNetwork", "TooManyRegionsError"]


class TooManyRegionsError(Exception):
    """More of them than one wanted to visit."""


Row = tuple[int, ...]
"""Coefficients of d, and the constant: g·d + c, up to a positive factor."""

Spot = tuple[Row, int, int]
"""A point, its denominator, and the sum of the squares of its numerators."""


@dataclass(frozen=True)
class _Pieces:
    """An activation of one number: it is slopes[k]·z + constants[k] between ends[k - 1] and ends[k]."""

    ends: tuple[Fraction, ...]
    slopes: tuple[int, ...]
    constants: tuple[int, ...]
    unit: int
    """Of slopes and constants."""

    @staticmethod
    def of(ends: Sequence[Fraction], slopes: Sequence[Fraction], constants: Sequence[Fraction]) -> _Pieces:
        unit = lcm(*(each.denominator for each in (*slopes, *constants)))
        return _Pieces(tuple(ends), *(tuple(int(x * unit) for x in each) for each in (slopes, constants)), unit)


def _activation(name: str) -> _Pieces | None:
    """None for the sorting of neighbours in pairs. Raises: ValueError for one that is not known here."""
    kind, *words = name.split(":")
    zero, one = Fraction(0), Fraction(1)
    if kind == "group_sort" and words == ["2", "1"]:
        return None
    if kind == "identity":
        return _Pieces.of([], [one], [zero])
    if kind in {"relu", "leaky_relu"}:
        below = Fraction(words[0]) if words else zero
        return _Pieces.of([zero], [below, one], [zero, zero])
    if kind in {"clip", "hard_tanh"}:
        low, high = words if kind == "clip" else ("-1", "1")
        ends, slopes, constants = [], [one], [zero]
        if low != "-inf":
            ends, slopes, constants = [Fraction(low)], [zero, one], [Fraction(low), zero]
        if high != "inf":
            ends, slopes, constants = [*ends, Fraction(high)], [*slopes, zero], [*constants, Fraction(high)]
        return _Pieces.of(ends, slopes, constants)
    raise ValueError(f"the activation {name!r} is none that is known here")


@dataclass(frozen=True)
class _Layer:
    """Integers over a denominator. pieces: of the activation; `sorts` if it is that of pairs; neither at the end."""

    weights: list[list[int]]
    bias: list[int]
    unit: int
    pieces: _Pieces | None
    sorts: bool

    def applied(self, values: Sequence[Row], over: int) -> tuple[list[Row], int]:
        """To rows over a denominator; each is c in the place of the constant alone, or an affine function."""
        columns = list(zip(*values, strict=True))
        found = []
        for row, b in zip(self.weights, self.bias, strict=True):
            made = [sum(map(mul, row, column)) for column in columns]
            made[-1] += b * over
            found.append(made)
        total = over * self.unit
        common = gcd(total, *(x for row in found for x in row))
        return [tuple(x // common for x in row) for row in found], total // common


@dataclass
class _Node:
    """A region that is halved already by some neurons: those of layers before `layer`, and `done` decisions of it.

    rows: what the neurons of the layer are before the activation. given: what those that are done are after it.
    ahead: the halfspace that it was entered through, if its nearest point is not known yet. end: that of a pair of
    logits, where another class leads.
    """

    walls: list[Row]
    spot: Spot
    layer: int
    rows: list[Row]
    over: int
    given: list[Row]
    piece: int = 0
    ahead: Row | None = None
    end: bool = field(default=False)


class PlainNetwork:
    """A dense network with exact numbers: what it computes, and how near the next winner is."""

    def __init__(self, weights: Sequence[Any], biases: Sequence[Any], between: str) -> None:
        """weights: of each layer rows of numbers at their exact values, as floats or fractions; biases: or None."""
        self._layers = []
        for index, (matrix, bias) in enumerate(zip(weights, biases, strict=True)):
            rows = [[Fraction(x) for x in _plain(row)] for row in _plain(matrix)]
            constants = [Fraction(0)] * len(rows) if bias is None else [Fraction(x) for x in _plain(bias)]
            unit = lcm(*(x.denominator for row in rows for x in row), *(x.denominator for x in constants))
            pieces = _activation(between) if index < len(weights) - 1 else None
            sorts = pieces is None and index < len(weights) - 1
            scaled = [[int(x * unit) for x in row] for row in rows]
            self._layers.append(_Layer(scaled, [int(x * unit) for x in constants], unit, pieces, sorts))

    def logits(self, x: Sequence[Fraction]) -> list[Fraction]:
        over = lcm(*(v.denominator for v in x))
        values: list[Row] = [(v.numerator * (over // v.denominator),) for v in x]
        for layer in self._layers:
            values, over = layer.applied(values, over)
            if layer.sorts:
                values = [each for k in range(0, len(values), 2) for each in sorted(values[k : k + 2])]
            elif layer.pieces is not None:
                values = [_bent(row, over, layer.pieces) for row in values]
                over *= layer.pieces.unit
        return [Fraction(row[0], over) for row in values]

    def winner(self, x: Sequence[Fraction]) -> int:
        """The first of the largest logits."""
        found = self.logits(x)
        return found.index(max(found))

    def nearest_change(
        self,
        x: Sequence[Fraction],
        other: int | None = None,
        most: Fraction | None = None,
        patience: float = inf,
    ) -> Fraction | None:
        """The least squared distance from x of a point at which the winner of x does not lead all others, or that one.

        None if there is none, or none within `most`, a squared distance. patience: how many regions, or parts of some,
        may be looked at. Raises: TooManyRegionsError.
        """
        winner, tick, limit = self.winner(x), count(), inf if most is None else _ratio(most.numerator, most.denominator)
        best: Fraction | None = None
        heap: list[tuple[float, int, _Node]] = [(0.0, next(tick), self._root(x))]
        while heap:
            key, _, node = heappop(heap)
            if key > limit:
                break
            patience -= 1
            if patience < 0:
                raise TooManyRegionsError
            if node.ahead is not None:  # on that wall, since the nearest point so far is beyond it
                spot = _nearest(node.walls, [node.ahead], len(x))
                if spot is None:
                    continue
                node.walls, node.spot, node.ahead = [*node.walls, node.ahead], spot, None
                exactly = _ratio(spot[2], spot[1] ** 2)
                if exactly > key:
                    heappush(heap, (exactly, next(tick), node))
                    continue
            if node.end:
                distance = Fraction(node.spot[2], node.spot[1] ** 2)
                if (best is None or distance < best) and (most is None or distance <= most):
                    best, limit = distance, min(limit, key)
                continue
            for half in self._halves(node, winner, other):
                nearer = key if half.ahead is None else max(key, _distance(half.ahead))
                if nearer <= limit:
                    heappush(heap, (nearer, next(tick), half))
        return best

    def _root(self, x: Sequence[Fraction]) -> _Node:
        """In coordinates from x on."""
        over = lcm(*(v.denominator for v in x))
        n = len(x)
        start = [(*(over * (k == i) for k in range(n)), v.numerator * (over // v.denominator)) for i, v in enumerate(x)]
        rows, over = self._layers[0].applied(start, over)
        return _Node([], ((0,) * n, 1, 0), 0, rows, over, [])

    def _halves(self, node: _Node, winner: int, other: int | None) -> Iterator[_Node]:
        """Of a region whose nearest point is known: the other sides of what is ahead, then where another class leads.

        One walks on to the last layer on the side on which the nearest point is.
        """
        while node.layer < len(self._layers) - 1:
            layer = self._layers[node.layer]
            step = 2 if layer.sorts else 1
            while len(node.given) < len(node.rows):
                at = len(node.given)
                if layer.sorts:
                    yield from self._compared(node, node.rows[at : at + step])
                else:
                    yield from self._located(node, node.rows[at], layer.pieces)
            over = node.over if layer.pieces is None else node.over * layer.pieces.unit
            rows, over = self._layers[node.layer + 1].applied(node.given, over)
            node = _Node(node.walls, node.spot, node.layer + 1, rows, over, [])
        for t in range(len(node.rows)):
            if t != winner and other in (None, t):
                lead = tuple(a - b for a, b in zip(node.rows[winner], node.rows[t], strict=True))
                yield _entered(node, lead, end=True)

    def _compared(self, node: _Node, pair: Sequence[Row]) -> Iterator[_Node]:
        """The smaller one of a pair comes first."""
        a, b = pair
        apart = tuple(p - q for p, q in zip(a, b, strict=True))
        swapped = _at(apart, node.spot) > 0
        chosen, left = ([b, a], [a, b]) if swapped else ([a, b], [b, a])
        wall = _negative(apart) if swapped else apart
        if any(apart):
            yield _entered(node, _negative(wall), [*node.given, *left])
        node.walls = [*node.walls, _short(wall)]
        node.given = [*node.given, *chosen]

    def _located(self, node: _Node, row: Row, pieces: _Pieces | None) -> Iterator[_Node]:
        if pieces is None:
            raise ValueError("an activation without pieces")
        while node.piece < len(pieces.ends):
            end = pieces.ends[node.piece]
            from_end = tuple(x * end.denominator for x in row)
            from_end = (*from_end[:-1], from_end[-1] - end.numerator * node.over)
            below = _at(from_end, node.spot) <= 0
            wall = from_end if below else _negative(from_end)
            if any(from_end[:-1]):
                if below:
                    yield _entered(node, _negative(wall), node.given, node.piece + 1)
                else:
                    made = _on_piece(row, node.over, pieces, node.piece)
                    yield _entered(node, _negative(wall), [*node.given, made])
                node.walls = [*node.walls, _short(wall)]
            if below:
                break
            node.piece += 1
        node.given = [*node.given, _on_piece(row, node.over, pieces, node.piece)]
        node.piece = 0


def _plain(numbers: Any) -> Any:
    return numbers.tolist() if hasattr(numbers, "tolist") else numbers


def _bent(row: Row, over: int, pieces: _Pieces) -> Row:
    piece = sum(row[0] * end.denominator > end.numerator * over for end in pieces.ends)
    return _on_piece(row, over, pieces, piece)


def _on_piece(row: Row, over: int, pieces: _Pieces, piece: int) -> Row:
    slope = pieces.slopes[piece]
    made = [x * slope for x in row]
    made[-1] += pieces.constants[piece] * over
    return tuple(made)


def _entered(node: _Node, ahead: Row, given: Sequence[Row] | None = None, piece: int = 0, end: bool = False) -> _Node:
    """Beyond a wall; at once, if the nearest point so far is on it or beyond it."""
    kept = node.given if given is None else list(given)
    ahead = _short(ahead)
    is_there = _at(ahead, node.spot) <= 0
    walls = [*node.walls, ahead] if is_there else node.walls
    return _Node(walls, node.spot, node.layer, node.rows, node.over, kept, piece, None if is_there else ahead, end)


def _negative(row: Row) -> Row:
    return tuple(-x for x in row)


def _short(row: Row) -> Row:
    common = gcd(*row)
    return tuple(x // common for x in row) if common > 1 else row


def _at(row: Row, spot: Spot) -> int:
    """The value there, up to a positive factor."""
    return sum(map(mul, row, spot[0])) + row[-1] * spot[1]


def _ratio(top: int, bottom: int) -> float:
    """Rounded to nearest: it never turns an order around."""
    try:
        return top / bottom
    except OverflowError:
        return inf


def _distance(wall: Row) -> float:
    """How far the origin is from a halfspace, squared; infinite if that is empty."""
    if wall[-1] <= 0:
        return 0.0
    size = sum(x * x for x in wall[:-1])
    return _ratio(wall[-1] ** 2, size) if size else inf


def _nearest(walls: Sequence[Row], on: list[Row], inputs: int) -> Spot | None:
    """The point nearest to the origin on the hyperplanes `on` and within all walls; None if there is none."""
    spot = _projected(on, inputs)
    if spot is None:
        return None
    for index, wall in enumerate(walls):
        if _at(wall, spot) > 0:
            if len(on) == inputs:
                return None
            spot = _nearest(walls[:index], [*on, wall], inputs)
            if spot is None:
                return None
    return spot


def _projected(on: Sequence[Row], inputs: int) -> Spot | None:
    """The point of some hyperplanes that is nearest to the origin; None if their normals are dependent.

    Where they are, a wall that the nearest point of the others violates is violated in all of their intersection.
    """
    if len(on) == 1:
        (wall,) = on
        point, over = [-wall[-1] * x for x in wall[:-1]], _dot(wall, wall)
    elif len(on) == inputs == 2:
        (a, b, c), (d, e, f) = on
        point, over = [b * f - e * c, c * d - a * f], a * e - b * d
    elif len(on) == 2:
        g, h = on
        aa, ab, bb = _dot(g, g), _dot(g, h), _dot(h, h)
        s, t = bb * g[-1] - ab * h[-1], aa * h[-1] - ab * g[-1]
        point, over = [-(s * x + t * y) for x, y in zip(g[:-1], h[:-1], strict=True)], aa * bb - ab * ab
    elif len(on) == inputs == 3:
        f, g, h = on
        gh, hf, fg = _cross(g, h), _cross(h, f), _cross(f, g)
        terms = zip(gh, hf, fg, strict=True)
        point, over = [-(f[3] * p + g[3] * q + h[3] * r) for p, q, r in terms], sum(map(mul, f, gh))
    else:
        raise ValueError("three inputs at the most")
    if not over:
        return None
    common = gcd(over, *point) * (1 if over > 0 else -1)
    found = tuple(x // common for x in point)
    return found, over // common, sum(x * x for x in found)


def _dot(a: Row, b: Row) -> int:
    return sum(map(mul, a[:-1], b[:-1]))


def _cross(a: Row, b: Row) -> Row:
    return a[1] * b[2] - a[2] * b[1], a[2] * b[0] - a[0] * b[2], a[0] * b[1] - a[1] * b[0]
