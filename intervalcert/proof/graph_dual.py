"""The quadratic dual of a graph of layers: as `dual`, with all that a hinge may give as variables, and one form.

The variables are the change δ of the input and that of every hinge's y = max(z, 0) (z less its kink) that may bend.
Everything between hinges is linear: so the change of each z is a row times the vector v of all variables before it
(`unit_vectors`). Hinges that do not bend are lines, with a slope that is known exactly.

With the multipliers of `dual`, and its numbers α, M, D, p, r, the form is

    Φ(v) = lead + γ·(||δ||² - eps²) + Σ (α·(y - M·z)² - D·z² + p·(y - M·z) + (p·M + r)·z + λ6·u·l),              (1)

whose second derivative is 2·H, H = diag(γ, α) - C - Cᵀ + Σ λ3·z·zᵀ, where the row of C at a hinge's y is α·M times the
row of its z (α·M² - D = λ3). Let R be a diagonal of positive numbers. If for some L and e > 0

    ||R·H·R - 2e·I - L·Lᵀ||_F <= e,     then R·H·R >= e·I,     and with the gradient g at any v,

    Φ  >=  Φ(v) - ¼·gᵀH⁻¹g  >=  Φ(v) - ||R·g||²/(4e)       everywhere.                                              (2)

IN A HALFSPACE where y is a line or zero, but the input itself is outside: there y changes by what the line gives at the
input less what the hinge gives there, too. That is a number that is enclosed, and no variable.

What is known of the input itself are the ends of each z there (`sites`), and of the logits; nothing else is asked.
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
from intervalcert.model.evaluation import FloatBounds
from intervalcert.model.network import Network
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.proof.data import Witness
from intervalcert.proof.ellipsoids import are_finite, is_below, multiple, point
from intervalcert.proof.graphs import Passage
from intervalcert.proof.hinges import (
    DualClaim,
    DualPoint,
    DualWitness,
    Goal,
    Hinge,
    Range,
    Splits,
    checked_gamma,
    checked_hinge,
    claim_of,
    of_hinge,
)
from intervalcert.proof.unit_vectors import NearValues, Rows, SiteRows, rows_of

__all__ = ["Convexity", "GraphDualChecker"]


@dataclass(frozen=True, eq=False, repr=False)
class Convexity(Witness):
    """L (factor), the diagonal of R (scales), and e."""

    factor: Floats
    scales: Floats
    e: float


@dataclass(frozen=True, eq=False)
class _Bent:
    """One hinge of a site: the numbers of all its functions, as they were checked, and of those that are wanted.

    pinned: functions in a halfspace that are lines or zero there.
    """

    every: Hinge
    wanted: Hinge
    pinned: Floats


@dataclass(frozen=True, eq=False)
class _Coordinate:
    """The variables of one hinge of one site: their functions, and where they are among all variables."""

    site: int
    hinge: int
    functions: Indices
    start: int


class GraphDualChecker:
    """Checks duals for points of one network on one number system, with what all points share."""

    def __init__(self, network: Network, backend: Backend[Any], norms: Sequence[Fraction]) -> None:
        """network: known exactly. norms: upper bounds of the operator norms of its branches."""
        if not network.is_exact:
            raise ValueError("a network that is not known exactly")
        self._network, self._backend = network, backend
        self._passage = Passage(network, backend, norms)

    def check(
        self,
        witness: DualWitness,
        convexity: Convexity,
        at: DualPoint,
        near: NearValues,
        ranges: Sequence[Range],
        eps: Fraction,
        above: Fraction = Fraction(0),
        splits: Splits | None = None,
    ) -> DualClaim:
        """The claim that the witness's goal is above that number at every input within eps (in the halfspaces, if there
        are some). at: δ, and y of each hinge (zero where it is no variable).

        Requires: `near` encloses the values at the input; its contenders, and the `ranges` of its sites, hold at all
        inputs within eps.
        Raises: InconclusiveError unless that is proved here.
        """
        goal, known = witness.goal, splits or {}
        if len(ranges) != len(near.sites):
            raise UndecidedError("ranges of other sites")
        gamma = checked_gamma(witness, at, len(near.sites), ranges, eps, known)
        if at.delta.shape != (self._network.inputs,) or not are_finite(at.delta):
            raise UndecidedError("a change of another input")
        bent, plan = [], []
        for index in range(goal.site):
            own, asked = self._site(index, witness.numbers[index], at.nu[index], near, ranges[index], known)
            bent.append(own)
            plan.append(asked)
        rows = rows_of(self._passage, self._network, plan, [goal], near, self._backend)
        form = _CheckedForm(self._backend, self._network.inputs, gamma, bent, plan, rows)
        form.check_convex(convexity)
        lead = self._goal_at_input(goal, near)
        bound = form.bound(at.delta, near, lead, eps, convexity)
        return claim_of(bound, goal, above, known, self._backend.name)

    def _site(
        self,
        index: int,
        numbers: Sequence[Floats],
        ys: Sequence[Floats],
        near: NearValues,
        ends: Range,
        splits: Splits,
    ) -> tuple[list[_Bent], SiteRows]:
        """Raises: UndecidedError for multipliers that are none."""
        function, rows = near.sites[index].function, len(near.sites[index].ends[0])
        if not len(numbers) == len(ys) == len(function.hinges) or not ends[0].shape == (rows,):
            raise UndecidedError("multipliers of other hinges")
        signs = [of_hinge(splits, index, which) for which in range(len(function.hinges))]
        every = [
            checked_hinge(kink, weight, numbers[which], ys[which], ends, signs[which])
            for which, (weight, kink) in enumerate(function.hinges)
        ]
        slopes, wanted, free = [function.slope] * rows, np.zeros(rows, dtype=bool), np.zeros(rows, dtype=bool)
        pinned = []
        for hinge, own in zip(every, signs, strict=True):
            bends, cut = hinge.alpha > 0, np.zeros(rows, dtype=bool)
            cut[list(own)] = True
            pinned.append((cut & ~bends).astype(np.float64))
            wanted |= bends | cut | (hinge.numbers[2] > 0)
            free |= bends | cut
            for k in np.flatnonzero(~bends & (hinge.middle != 0)).tolist():
                slopes[k] += hinge.weight * Fraction(float(hinge.middle[k]))
        some = np.flatnonzero(wanted)
        place = {k: i for i, k in enumerate(some.tolist())}
        of_wanted = [
            checked_hinge(
                hinge.kink,
                hinge.weight,
                hinge.numbers[:, some],
                hinge.nu[some],
                (ends[0][some], ends[1][some]),
                {place[k]: s for k, s in own.items()},
            )
            for hinge, own in zip(every, signs, strict=True)
        ]
        bent = [_Bent(*parts) for parts in zip(every, of_wanted, pinned, strict=True)]
        return bent, SiteRows(slopes, np.flatnonzero(free), some)

    def _goal_at_input(self, goal: Goal, near: NearValues) -> Fraction:
        """At least so much is the goal at the input itself."""
        low, high = near.logits if goal.site == len(near.sites) else near.sites[goal.site].ends
        goal.signs(len(low))
        found = Fraction(0)
        for place, ends, sign in ((goal.plus, low, 1), (goal.minus, high, -1)):
            if place >= 0:
                if not math.isfinite(ends[place]):
                    raise UndecidedError("a goal that is not known at the input")
                found += sign * Fraction(float(ends[place]))
        return found


class _CheckedForm:
    """Φ, with numbers that were checked."""

    def __init__(
        self,
        backend: Backend[Any],
        inputs: int,
        gamma: Fraction,
        bent: Sequence[Sequence[_Bent]],
        plan: Sequence[SiteRows],
        rows: Rows,
    ) -> None:
        self._backend, self._inputs, self._gamma = backend, inputs, gamma
        self._bent, self._plan, self._rows = bent, plan, rows
        self._coordinates: list[_Coordinate] = []
        self._count = inputs
        for site, own in enumerate(bent):
            for which, each in enumerate(own):
                functions = np.flatnonzero(each.every.alpha > 0)
                self._coordinates.append(_Coordinate(site, which, functions, self._count))
                self._count += len(functions)
        self._columns, self._weights = self._expansion()

    def _expansion(self) -> tuple[Indices, Matrix[Any] | None]:
        """Of each variable the column of the rows that it is of, and its weight there; None if all are one."""
        columns, weights = [np.arange(self._inputs)], [Fraction(1)] * self._inputs
        for each in self._coordinates:
            free = self._plan[each.site].free
            columns.append(self._rows.starts[each.site] + np.searchsorted(free, each.functions))
            weights += [self._bent[each.site][each.hinge].every.weight] * len(each.functions)
        if all(weight == 1 for weight in weights):
            return np.concatenate(columns), None
        return np.concatenate(columns), self._backend.matrix(RationalMatrix.from_fractions([[x] for x in weights]))

    def _by_variables(self, rows: Matrix[Any]) -> Matrix[Any]:
        """Rows, as columns, with an entry for each variable."""
        known = self._columns < rows.shape[1]
        found = rows.transposed().rows_at(np.where(known, self._columns, -1))
        return found if self._weights is None else found.row_scaled(self._weights)

    # -- convex ------------------------------------------------------------------------------------------------------

    def check_convex(self, convexity: Convexity) -> None:
        """Raises: UndecidedError unless R·H·R >= e·I is proved."""
        factor, scales, count = convexity.factor, convexity.scales, self._count
        if factor.shape != (count, count) or scales.shape != (count,) or not are_finite(factor, scales, convexity.e):
            raise UndecidedError("a factor of another form")
        if scales.dtype != np.float64 or not ((scales > 0).all() and convexity.e > 0):
            raise UndecidedError("scales, or room for errors, that are not positive")
        form, backend = self._hessian(scales), self._backend
        found = point(factor, backend)
        rest = form - multiple(2 * Fraction(convexity.e), count, backend) - found @ found.transposed()
        if not is_below(rest, convexity.e, backend):
            raise UndecidedError("a form is not proved to be convex")

    def _hessian(self, scales: Floats) -> Matrix[Any]:
        """R·H·R."""
        backend, count, ones = self._backend, self._count, np.ones(self._count)
        diagonal = backend.matrix(RationalMatrix.from_fractions([[self._gamma]] * self._inputs))
        alphas = [self._bent[each.site][each.hinge].every.alpha[each.functions] for each in self._coordinates]
        some = np.concatenate([np.zeros(0), *alphas])
        if len(some):
            diagonal = diagonal.stacked([point(some[:, None], backend)])
        found = point(np.diag(scales * 1.0), backend).row_scaled(diagonal).diag_scaled(ones, scales)
        across, squares = [], []
        places = np.full(count, -1, dtype=np.intp)
        seen = 0
        for each in self._coordinates:
            rows, own = self._rows.of_sites[each.site], self._bent[each.site][each.hinge].wanted
            if rows is None:
                continue
            columns = self._by_variables(rows).diag_scaled(scales, np.ones(rows.shape[0]))
            if own.numbers[2].any():
                squares.append((columns, columns.diag_scaled(ones, own.numbers[2])))
            if len(each.functions):
                wanted = np.searchsorted(self._plan[each.site].wanted, each.functions)
                taken = columns.transposed().rows_at(wanted)
                mine = scales[each.start : each.start + len(wanted)]
                taken = taken.diag_scaled(own.alpha[wanted], np.ones(count)).diag_scaled(
                    own.middle[wanted], np.ones(count)
                )
                across.append(taken.diag_scaled(mine, np.ones(count)))
                places[each.start : each.start + len(wanted)] = seen + np.arange(len(wanted))
                seen += len(wanted)
        for columns, weighted in squares:
            found = found + weighted @ columns.transposed()
        if across:
            c = across[0].stacked(across[1:]).rows_at(places)
            found = found - c - c.transposed()
        return found

    # -- the bound ---------------------------------------------------------------------------------------------------

    def bound(
        self, delta: Floats, near: NearValues, lead: Fraction, eps: Fraction, convexity: Convexity
    ) -> Matrix[Any]:
        """A number that (2) is at least, as a matrix."""
        backend, one = self._backend, point(np.ones((1, 1)), self._backend)
        moved = point(delta[:, None], backend)
        changes: list[Matrix[Any]] = [moved]
        zs: list[list[Matrix[Any]]] = []
        for site, own in enumerate(self._bent):
            values = _between(near.sites[site].ends, backend)
            rows, wanted, free = self._rows.of_sites[site], self._plan[site].wanted, self._plan[site].free
            if rows is None:
                zs.append([])
            else:
                here = values.rows_at(wanted) + rows @ _joined(changes, rows.shape[1])
                zs.append([_less(here, each.every.kink, backend) for each in own])
            if len(free):
                if sum(each.shape[0] for each in changes) != self._rows.starts[site]:
                    raise UndecidedError("variables of other sites")
                changes.append(reduce(add, [self._given(each, values) for each in own]).rows_at(free))
        value = one.scalar_mul(backend.scalar(lead))
        value = value + one.scalar_mul(
            backend.scalar(self._gamma) * (moved.frobenius_squared() - backend.scalar(eps**2))
        )
        gradient: Matrix[Any] | None = None
        if self._rows.goals is not None:
            value = value + self._rows.goals @ _joined(changes, self._rows.goals.shape[1])
            gradient = self._by_variables(self._rows.goals)
        parts = {}
        for site, own in enumerate(self._bent):
            rows, pulled = self._rows.of_sites[site], []
            if rows is None or not own:
                continue
            for which, (each, z) in enumerate(zip(own, zs[site], strict=True)):
                hinge = each.wanted
                y = point(hinge.nu[:, None], backend)
                value = value + self._terms(hinge, z, y)
                # by z: r + 2·λ3·z - 2·α·M·y; by y itself: p + 2·α·(y - M·z)
                bent = _times(_times(y, hinge.alpha), hinge.middle) - _times(z, hinge.numbers[2])
                pulled.append(backend.matrix(hinge.r) - bent.ldexp(1))
                parts[site, which] = backend.matrix(hinge.p) + _times(y - _times(z, hinge.middle), hinge.alpha).ldexp(1)
            more = self._by_variables(rows) @ reduce(add, pulled)
            gradient = more if gradient is None else gradient + more
        alone = [moved.scalar_mul(backend.scalar(2 * self._gamma))]
        for at in self._coordinates:
            if len(at.functions):
                places = np.searchsorted(self._plan[at.site].wanted, at.functions)
                alone.append(parts[at.site, at.hinge].rows_at(places))
        explicit = alone[0].stacked(alone[1:])
        gradient = explicit if gradient is None else gradient + explicit
        return value - one.scalar_mul(self._correction(gradient, convexity))

    def _correction(self, gradient: Matrix[Any], convexity: Convexity) -> Any:
        """||R·g||²/(4e)."""
        scaled = gradient.diag_scaled(convexity.scales, np.ones(1))
        return scaled.frobenius_squared() * self._backend.scalar(1 / (4 * Fraction(convexity.e)))

    def _given(self, bent: _Bent, at: Matrix[Any]) -> Matrix[Any]:
        """By how much what a hinge gives, times its weight, is other than at the input, besides the lines."""
        backend, hinge = self._backend, bent.every
        z = _less(at, hinge.kink, backend)
        there = z.positive_part()
        given = _times(point(hinge.nu[:, None], backend) - there, (hinge.alpha > 0).astype(np.float64))
        if bent.pinned.any():
            given = given + _times(_times(z, hinge.middle) - there, bent.pinned)
        return given if hinge.weight == 1 else given.scalar_mul(backend.scalar(hinge.weight))

    def _terms(self, hinge: Hinge, z: Matrix[Any], y: Matrix[Any]) -> Matrix[Any]:
        """(1), summed over the functions: α·(y - M·z)² - D·z² = α·y² - 2·α·M·y·z + λ3·z²; p·y + r·z."""
        backend = self._backend
        bent = _times(_times(z, hinge.middle), hinge.alpha)
        total = y.transposed() @ _times(y, hinge.alpha) - (y.transposed() @ bent).ldexp(1)
        total = total + z.transposed() @ _times(z, hinge.numbers[2])
        total = total + backend.matrix(hinge.p.transposed()) @ y + backend.matrix(hinge.r.transposed()) @ z
        return total + backend.matrix(RationalMatrix.filled(total.shape, hinge.constant))


def _between(ends: FloatBounds, backend: Backend[Any]) -> Matrix[Any]:
    """A column that contains all that is between these ends. Raises: UndecidedError unless they are finite."""
    low, high = ends
    middle = low / 2 + high / 2
    if not are_finite(low, high, middle):
        raise UndecidedError("values that are not known")
    found = point(middle[:, None], backend)
    some = np.flatnonzero(low != high).tolist()
    known = [(Fraction(float(low[k])), Fraction(float(middle[k])), Fraction(float(high[k]))) for k in some]
    apart = sum((max(top - at, at - bottom) ** 2 for bottom, at, top in known), Fraction(0))
    return found.blurred(backend.sqrt_upper(backend.scalar(apart))) if apart else found


def _joined(columns: Sequence[Matrix[Any]], count: int) -> Matrix[Any]:
    """The first so many entries of columns, one below the other. Raises: UndecidedError unless there are as many."""
    found = columns[0].stacked(list(columns[1:])) if len(columns) > 1 else columns[0]
    if found.shape[0] < count:
        raise UndecidedError("rows of other variables")
    return found if found.shape[0] == count else found.block(np.arange(count), np.arange(1))


def _less(column: Matrix[Any], kink: Fraction, backend: Backend[Any]) -> Matrix[Any]:
    return column - backend.matrix(RationalMatrix.filled(column.shape, kink)) if kink else column


def _times(column: Matrix[Any], factors: Floats) -> Matrix[Any]:
    return column.diag_scaled(factors, np.ones(1))
