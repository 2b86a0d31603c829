"""The filtered predicate: floats decide almost every output, with proof, and say which ones they cannot decide.

A verdict is a comparison with a radius: an output is certified at eps iff eps < sup, where

    sup = min over i != j of (y_j - y_i)/L[i][j]          (j the winner; a tie gives 0; L = 0 limits nothing)

So the filter finds r, the greatest float64 below sup, for a block of rows at once. Then eps <= r certifies and
eps >= succ(r) refutes, for any rational eps: a decision for eps that is a float, and for others unless
r < eps < succ(r). What stays open (a quotient within 2^-96 of a float, two quotients within 2^-48 of each other, sizes
beyond 2^±300) is reported as not settled, and exact rationals are asked. Hence: always the answer of exact arithmetic.

Notation of the proofs: u = 2^-53, arithmetic is IEEE double rounded to nearest; relative errors are to first order,
and the bounds that are used leave a factor of eight and more for the rest.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from intervalcert.numbers.pairs import PairMatrix
from intervalcert.numbers.rounding import float_near

__all__ = ["TILE_CELLS", "Filtered", "MarginTables", "filter_exact", "filter_rounded", "scratch"]

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.intp]

TILE_CELLS = 2**16
"""Logits that are judged at once: half a megabyte of floats, which stays in the cache."""

_LEAST, _MOST = 2.0**-300, 2.0**300
"""Within these sizes no product below leaves the normal floats."""

_CLOSE = 1 + 2.0**-48
_TOLERANCE = 2.0**-96
_SPLITTER = 2.0**27 + 1


@dataclass(frozen=True)
class Filtered:
    """What floats can prove about a block of rows; where `settled` is False nothing is claimed but `argmax`, if at all.

    radius: the greatest float64 below the supremum of the certified radii; 0 for a tie, inf if nothing limits it.
    rival: the class whose quotient is the least one; -1 if unknown. (Of rounded logits, in the place of the radius.)
    """

    argmax: Integers
    certified: Bools
    radius: Floats
    settled: Bools
    rival: Integers


_SCRATCH = threading.local()


def scratch(name: str, shape: tuple[int, ...]) -> Floats:
    """A matrix to work in, kept from call to call in each thread: fresh memory would cost more than the arithmetic."""
    size = math.prod(shape)
    kept: Floats | None = getattr(_SCRATCH, name, None)
    if kept is None or kept.size < size:
        kept = np.empty(size)
        setattr(_SCRATCH, name, kept)
    return kept[:size].reshape(shape)


class MarginTables:
    """The margins L[i][j] as arrays, made once; column j when j first wins.

    L = high + low + rest, high and low correctly rounded: |low| <= u·|high|, |rest| <= u·|low|. `point` where L is
    high. `reciprocal` is fl(1/L), inf where L is 0 (no limit). `same` numbers the different values of a column.
    Of a whole column: `unlimited` if every L is 0, `beyond` if some L is beyond 2^±300; then its rows are not settled.
    """

    def __init__(self, margins: Sequence[Sequence[Fraction]], scale: int = 1) -> None:
        """The tables of scale·L: for logits that are given in units of 1/scale."""
        self.classes = classes = len(margins)
        self._margins, self._scale = margins, scale
        self._known = np.zeros(classes, dtype=bool)
        self.reciprocal = np.full((classes, classes), np.inf)
        self.high = np.ones((classes, classes))
        self.low = np.zeros((classes, classes))
        self.point = np.zeros((classes, classes), dtype=bool)
        self.same = np.zeros((classes, classes), dtype=np.intp)
        self.unlimited = np.zeros(classes, dtype=bool)
        self.beyond = np.zeros(classes, dtype=bool)

    def prepare(self, winners: Integers) -> None:
        """Fills the columns of these classes."""
        wanted = (np.bincount(winners, minlength=self.classes) > 0) & ~self._known
        for j in np.flatnonzero(wanted).tolist():
            self._fill(j)

    def _fill(self, j: int) -> None:
        numbers: dict[tuple[int, int], int] = {}
        column = self._column(j)
        for i, pair in enumerate(column):
            top, bottom = pair
            self.same[i, j] = numbers.setdefault(pair, len(numbers))
            high = float_near(top, bottom)
            if _LEAST <= high <= _MOST:
                above, below = high.as_integer_ratio()
                rest, whole = top * below - above * bottom, bottom * below
                self.reciprocal[i, j] = bottom / top
                self.high[i, j], self.low[i, j], self.point[i, j] = high, float_near(rest, whole), rest == 0
            elif top:
                self.beyond[j] = True
        self.unlimited[j] = not any(top for top, _ in column)
        self._known[j] = True

    def _column(self, j: int) -> list[tuple[int, int]]:
        """scale·L[i][j] for all i, each as a numerator and a denominator; that of j itself is zero."""
        if isinstance(self._margins, PairMatrix):  # without a Fraction for each
            return [((m << max(e, 0)) * self._scale, 1 << max(-e, 0)) for m, e in self._margins.row(j)]
        column = (Fraction(0) if i == j else row[j] for i, row in enumerate(self._margins))
        return [(x.numerator * self._scale, x.denominator) for x in column]


def filter_exact(
    tables: MarginTables, logits: Floats, eps_lower: Floats | float, eps_upper: Floats | float
) -> Filtered:
    """Verdict and radius of each column of `logits` (classes x rows), which are exact; eps lies between its ends.

    Requires: finite logits; ends of eps that are the floats next to it (equal if it is one).
    """
    best, argmax, tied = _winners(logits)
    tables.prepare(argmax)
    with np.errstate(all="ignore"):
        quotients, leads = scratch("quotients", logits.shape), scratch("leads", logits.shape)
        np.take(tables.reciprocal, argmax, axis=1, out=quotients, mode="clip")
        quotients *= np.subtract(best, logits, out=leads)  # the winner's own becomes 0·inf: fmin leaves it out
        least: Floats = np.fmin.reduce(quotients, axis=0)
        # fl(lead)·fl(1/L) is the quotient within 3u, so one that exceeds `least` by 2^-48 = 32u is truly not the least.
        runner, alone = _first(row <= limit for limit in (least * _CLOSE,) for row in quotients)
        settled = (least >= _LEAST) & (least <= _MOST) & ~tables.beyond[argmax]
        columns = np.arange(len(best))
        other: Floats = np.take(logits, runner * len(best) + columns)
        crowded = np.flatnonzero(settled & ~alone)
        if crowded.size:
            settled[crowded] = _are_one_value(tables, logits, quotients, least, argmax, runner, other, crowded)
        radius, sure = _float_below_quotient(tables, best, other, runner * tables.classes + argmax)
        settled &= sure
    free = tables.unlimited[argmax] & ~tied
    radius[free], radius[tied] = np.inf, 0.0
    settled |= free | tied
    certified = (eps_upper <= radius) & ~tied
    settled &= certified | tied | (eps_lower > radius)
    return Filtered(argmax, certified, radius, settled, np.where(settled, runner, -1))


def _winners(logits: Floats) -> tuple[Floats, Integers, Bools]:
    """The largest logit of each column, the first index where it stands, and whether it stands at others too."""
    best: Floats = logits.max(axis=0)
    argmax, alone = _first(row == best for row in logits)
    return best, argmax, ~alone


def _first(rows: Iterable[Bools]) -> tuple[Integers, Bools]:
    """For each column of a matrix of truth values: the first index of a True, and whether it is the only one.

    Where there is none, some index.
    """
    head, *rest = rows
    first, count, found = np.zeros(len(head), dtype=np.uint16), head.astype(np.uint16), head.copy()
    for row in rest:
        first += ~found
        found |= row
        count += row
    return first.astype(np.intp), count == 1


def _are_one_value(
    tables: MarginTables,
    logits: Floats,
    quotients: Floats,
    least: Floats,
    argmax: Integers,
    runner: Integers,
    other: Floats,
    columns: Integers,
) -> Bools:
    """Whether all quotients near the least one are of the same logit and the same margin, so that they are equal."""
    close = quotients[:, columns] <= least[columns] * _CLOSE
    margin = tables.same[:, argmax[columns]]
    equal = (logits[:, columns] == other[columns]) & (margin == tables.same[runner[columns], argmax[columns]])
    found: Bools = (equal | ~close).all(axis=0)
    return found


def _float_below_quotient(tables: MarginTables, best: Floats, other: Floats, pair: Integers) -> tuple[Floats, Bools]:
    """The greatest float below x = (best - other)/L, and where that is sure.

    With s + e = best - other (Knuth), q = fl(s/high) and p + f = q·high (Dekker), all exact,
        x - q = (s - p - f + e - q·low - q·rest)/L,
    where s - p is exact (Sterbenz: p is s up to 2u), and every other term is at most 2u·s. Evaluated in floats this
    correction c is off by less than 18u²·q < 2^-100·q, so x = t + d ± 2^-100·q for t = fl(q + c), d = (q - t) + c.
    As t is nearest to q + c, |d| is at most half the distance to t's neighbour on that side. So if |d| >= 2^-96·q, then
    x lies strictly between t and that neighbour: t is below x if d > 0, and t's predecessor is if d < 0.
    If e = 0 and L = high, then q is nearest to x itself, s - p - f is computed with the right sign (0 only if it is 0),
    so d has the sign of x - t, and no tolerance is needed: at d = 0, x = t, and its predecessor is strictly below.
    """
    high, low = np.take(tables.high, pair), np.take(tables.low, pair)
    s = best - other
    v = s - best
    e = (best - (s - v)) - (other + v)
    q = s / high
    p = q * high
    q1, h1 = _upper_half(q), _upper_half(high)
    q2, h2 = q - q1, high - h1
    f = ((q1 * h1 - p) + q1 * h2 + q2 * h1) + q2 * h2
    c = (((s - p) - f) + (e - q * low)) / high
    t = q + c
    d = (q - t) + c
    exact = (e == 0) & np.take(tables.point, pair)
    sure = (np.abs(d) >= _TOLERANCE * q) | exact
    # t > 0 is an integer in the order of the floats: one less is its predecessor.
    return (t.view(np.int64) - (d <= 0)).view(np.float64), sure


def _upper_half(x: Floats) -> Floats:
    """Veltkamp: the upper 26 bits."""
    c = _SPLITTER * x
    half: Floats = c - (c - x)
    return half


def filter_rounded(
    tables: MarginTables, logits: Floats, eps_lower: Floats | float, eps_upper: Floats | float
) -> Filtered:
    """The same for logits that are only the nearest floats of the true ones (inf if beyond). The radius is not found.

    Rounding is monotone: a float that is the only largest one belongs to the winner. A lead is off by at most
    u·|y_j| + u·|y_i| + u·|lead| + 2^-1074 <= 4u·max|y| + 2^-1074, and `slack` is more. So each quotient lies between
    those of lead - slack and lead + slack, up to 4u, and so do their minima; and where only one of the lower ends is
    not above the least of the upper ends, it belongs to the rival.
    """
    best, argmax, tied = _winners(logits)
    tables.prepare(argmax)
    with np.errstate(all="ignore"):
        slack = 2.0**-49 * np.abs(logits).max(axis=0) + 2.0**-1060
        leads = best - logits
        leads[argmax, np.arange(len(best))] = np.nan  # left out by index
        reciprocal = np.take(tables.reciprocal, argmax, axis=1)
        lower = (leads - slack) * reciprocal
        least: Floats = np.fmin.reduce(lower, axis=0)
        most: Floats = np.fmin.reduce((leads + slack) * reciprocal, axis=0)
        plain = ~tied & ~tables.beyond[argmax]
        certified = (least >= _LEAST) & (least <= _MOST) & (least > eps_upper * _CLOSE) & plain
        bounded = (most >= _LEAST) & (most <= _MOST) & plain
        refuted = bounded & (most * _CLOSE < eps_lower)
        rival, alone = _first(row <= limit for limit in (most * _CLOSE,) for row in lower)
    rival[~(bounded & alone)] = -1
    return Filtered(argmax, certified, np.zeros(len(best)), certified | refuted, rival)
