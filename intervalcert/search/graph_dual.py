"""The quadratic dual of a graph of layers at one input, in plain floats: for `proof.graph_dual`. Nothing is trusted.

The variables are the change of the input and what every hinge gives. So the second derivative is one matrix H, linear
in the multipliers: one Cholesky factor gives the least value, where it is attained, and all derivatives. As in `dual`,
the derivative by a multiplier is its constraint; log det, times μ, keeps the form convex. Of the input only those
directions count that some argument or logit depends on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from intervalcert.backends.protocol import Floats, Indices
from intervalcert.errors import UndecidedError
from intervalcert.model.network import Network
from intervalcert.proof.graph_dual import Convexity
from intervalcert.proof.graphs import Passage
from intervalcert.proof.hinges import DualWitness, Goal
from intervalcert.proof.unit_vectors import NearValues, SiteRows, rows_of
from intervalcert.search.dual_witness import Layout
from intervalcert.search.graph_guide import TooWideError, plain_values
from intervalcert.search.hinges import Bends, Form, Known, Solution, derivatives, slopes_of_terms
from intervalcert.search.plain import PlainBackend

__all__ = ["MOST_VARIABLES", "GraphForm", "GraphLayout"]

MOST_VARIABLES = 4096
"""Of a form: with so many a step takes some seconds, and its matrices some GB."""

_MOST_OF_INPUTS = 0.8
"""So many directions of the input are worth another basis."""

_LEAST_PIVOT = 2.0**-11
"""The least diagonal of the factor of H, scaled to a diagonal of ones, that is believed."""

_ROOM, _FEW = 2.0**-42, 256
"""e, as a part of the number of variables squared, or of so few: more than float64 loses in the proof."""


@dataclass(frozen=True, eq=False)
class _Direction:
    """Of a goal: its row by all variables, and how much it changes by what is pinned.

    basis: of the directions of the input that matter; None for all. rows, cuts, stills: of each site, by these, and by
    the variables of the sites before it.
    """

    row: Floats
    moved: float
    basis: Floats | None
    rows: Sequence[Floats]
    cuts: Sequence[Floats]
    stills: Sequence[Floats]
    wide: int
    """Entries of δ."""


@dataclass(frozen=True, eq=False)
class _Lines:
    """Of some arguments the rows by all variables, and how much they change by what is pinned; by sites."""

    rows: Sequence[Floats]
    moved: Sequence[Floats]


def _lines(made: Sequence[tuple[Floats, Floats]], places: Sequence[Indices]) -> _Lines:
    """Of some of what was made of each site."""
    return _Lines(
        [rows[some] for (rows, _), some in zip(made, places, strict=True)],
        [moved[some] for (_, moved), some in zip(made, places, strict=True)],
    )


class GraphForm(Form):
    """Φ of the sites before a goal, in a graph near a point."""

    def __init__(
        self, passage: Passage, network: Network, near: NearValues, sites: Sequence[Bends], eps: float
    ) -> None:
        """Raises: TooWideError."""
        super().__init__(sites)
        self._passage, self._network, self._near, self._eps = passage, network, near, eps
        count = network.inputs + sum(site.count for site in sites)
        if count > MOST_VARIABLES:
            raise TooWideError(f"too much may bend for a dual: {count} variables, and {MOST_VARIABLES} are attempted")
        self.work = float(count) ** 3
        self._plan = [_asked(site) for site in sites]
        self._goals: dict[Goal, _Direction] = {}
        self._known: tuple[_Lines, _Lines, _Lines] | None = None

    # -- rows --------------------------------------------------------------------------------------------------------

    def direction(self, goal: Goal) -> _Direction:
        if goal not in self._goals:
            others = [goal]
            if goal.site == len(self._near.sites):  # all of this class at once: the way there takes longest
                classes = range(len(self._near.logits[0]))
                others = [Goal(goal.site, goal.plus, other) for other in classes if other != goal.plus]
            self._goals |= self._towards(others)
        return self._goals[goal]

    def _towards(self, goals: Sequence[Goal]) -> dict[Goal, _Direction]:
        """Raises: FloatingPointError if nothing leads there."""
        plain: Any = PlainBackend()
        try:
            found = rows_of(self._passage, self._network, self._plan, goals, self._near, plain)
        except UndecidedError as error:
            raise FloatingPointError(str(error)) from error
        shift, inputs = np.zeros(found.width), self._network.inputs
        columns, weights = [np.arange(inputs)], [np.ones(inputs)]
        for site, asked, start in zip(self.sites, self._plan, found.starts, strict=True):
            if len(asked.free):
                shift[start : start + len(asked.free)] = np.broadcast_to(site.shift, site.rows)[asked.free]
            columns.append(start + np.searchsorted(asked.free, site.neuron))
            weights.append(site.weight)
        column, weight = np.concatenate(columns), np.concatenate(weights)

        def by_variables(rows: Any) -> tuple[Floats, Floats]:
            """And how much they change by what is pinned."""
            values = np.zeros((0 if rows is None else rows.shape[0], found.width))
            if rows is not None:
                values[:, : rows.shape[1]] = plain_values(rows)
            return values[:, column] * weight, values @ shift

        if self._known is None:
            made = [by_variables(rows) for rows in found.of_sites]
            at = [np.searchsorted(asked.wanted, x.neuron) for asked, x in zip(self._plan, self.sites, strict=True)]
            cut = [np.searchsorted(asked.wanted, x.cut) for asked, x in zip(self._plan, self.sites, strict=True)]
            still = [np.searchsorted(asked.wanted, x.still) for asked, x in zip(self._plan, self.sites, strict=True)]
            self._known = _lines(made, at), _lines(made, cut), _lines(made, still)
        rows, moved = by_variables(found.goals)
        if not len(rows):
            rows, moved = np.zeros((len(goals), len(weight))), np.zeros(len(goals))
        basis = self._basis(rows)

        def reduced(lines: Floats) -> Floats:
            return lines if basis is None else np.hstack([lines[:, :inputs] @ basis, lines[:, inputs:]])

        hinges, cuts, stills = (self._before(known.rows, reduced) for known in self._lines)
        return {
            goal: _Direction(row, float(by), basis, hinges, cuts, stills, inputs if basis is None else basis.shape[1])
            for goal, row, by in zip(goals, reduced(rows), moved, strict=True)
        }

    def _before(self, lines: Sequence[Floats], reduced: Callable[[Floats], Floats]) -> list[Floats]:
        """Of each site the columns of what comes before it: there are no others."""
        ends = np.cumsum([self._network.inputs, *(site.count for site in self.sites)]).tolist()
        return [np.ascontiguousarray(reduced(rows[:, :end])) for rows, end in zip(lines, ends, strict=False)]

    @property
    def _lines(self) -> tuple[_Lines, _Lines, _Lines]:
        """Of hinges, of halfspaces, and of what stays on one side."""
        if self._known is None:
            raise ValueError("a form without a goal")
        return self._known

    def _basis(self, goals: Floats) -> Floats | None:
        """Of the directions of the input that matter; None if these are nearly all of them."""
        inputs = self._network.inputs
        every = [lines[:, :inputs] for known in self._lines for lines in known.rows]
        some = np.vstack([*every, goals[:, :inputs]])
        if len(some) > _MOST_OF_INPUTS * inputs:
            return None
        found: Floats = np.linalg.qr(some.T)[0]
        return found

    def halfspaces(self) -> list[tuple[Floats, Floats]]:
        found, (_, cuts, _), inputs = [], self._lines, self._network.inputs
        for site, rows, moved in zip(self.sites, cuts.rows, cuts.moved, strict=True):
            found.append((site.sign[:, None] * rows[:, :inputs], site.sign * (site.cut_at + moved)))
            if site.count:
                break
        return found

    # -- the form ----------------------------------------------------------------------------------------------------

    def solved(self, multipliers: Floats, direction: _Direction, value: float, weight: float) -> Solution:
        gamma, (hinges, cuts, stills) = float(multipliers[0]), self._lines
        linear, start = direction.row.copy(), direction.wide
        least = value + direction.moved - gamma * self._eps**2
        for index, (site, part) in enumerate(zip(self.sites, self.parts(multipliers), strict=True)):
            of_hinges, beta, stay = site.split(part)
            y = np.maximum(site.at, 0.0)
            values, by_z, by_y = slopes_of_terms(site.at + hinges.moved[index], y, site.low, site.high)
            least += float((of_hinges * values).sum())
            least += float((beta * site.sign) @ (site.cut_at + cuts.moved[index]))
            linear[:start] += direction.rows[index].T @ (of_hinges * by_z).sum(axis=0)
            linear[:start] += direction.cuts[index].T @ (beta * site.sign)
            still_at = site.still_at + stills.moved[index]
            least += float(stay @ (still_at * (still_at - site.edge)))
            linear[:start] += direction.stills[index].T @ (stay * (2 * still_at - site.edge))
            linear[start : start + site.count] += (of_hinges * by_y).sum(axis=0)
            start += site.count
        factor, scales = _factor(self._hessian(multipliers, direction.rows, direction.stills, direction.wide))
        root = _inverse(factor) * scales  # H⁻¹ = rootᵀ·root
        v = -(root.T @ (root @ linear)) / 2
        log_det = 2 * float(np.log(factor.diagonal()).sum() - np.log(scales).sum())
        return self._solution(least + float(linear @ v) / 2, log_det, multipliers, v, root, direction, weight)

    def _hessian(self, multipliers: Floats, rows: Sequence[Floats], stills: Sequence[Floats], wide: int) -> Floats:
        count = wide + sum(site.count for site in self.sites)
        found, start = np.zeros((count, count)), wide
        found.flat[: wide * (count + 1) : count + 1] = multipliers[0]
        for site, part, lines, still in zip(self.sites, self.parts(multipliers), rows, stills, strict=True):
            (alpha, two, three, *_), _, stay = site.split(part)
            weighted = np.concatenate([np.sqrt(three)[:, None] * lines, np.sqrt(stay)[:, None] * still])
            found[:start, :start] += weighted.T @ weighted
            own = slice(start, start + site.count)
            across = ((alpha - two + three) / 2)[:, None] * lines  # α·M
            found[own, :start] -= across
            found[:start, own] -= across.T
            found[own, own] += np.diag(alpha)
            start += site.count
        return found

    def _solution(
        self,
        value: float,
        log_det: float,
        multipliers: Floats,
        v: Floats,
        root: Floats,
        direction: _Direction,
        mu: float,
    ) -> Solution:
        """root: whose square H⁻¹ is, as rootᵀ·root."""
        hinges, cuts, stills = self._lines
        start = direction.wide
        delta, head = v[:start], root[:, :start].T @ root[:, :start]
        gradients = [np.array([float(delta @ delta) - self._eps**2 + mu * float(np.trace(head))])]
        curvatures = [np.array([2 * float(delta @ head @ delta) + mu * float((head * head).sum())])]
        zetas, nus = [], []
        for index, (site, part) in enumerate(zip(self.sites, self.parts(multipliers), strict=True)):
            rows, of_cuts, own = direction.rows[index], direction.cuts[index], slice(start, start + site.count)
            zeta, seen, alone = np.zeros(site.rows), root[:, :start] @ rows.T, root[:, own]
            zeta[site.neuron] = hinges.moved[index] + rows @ v[:start]
            zeta[site.cut] = cuts.moved[index] + of_cuts @ v[:start]
            zeta[site.still] = stills.moved[index] + direction.stills[index] @ v[:start]
            known = Known(
                (seen * seen).sum(axis=0),
                (seen * alone).sum(axis=0),
                (alone * alone).sum(axis=0),
                ((root[:, :start] @ of_cuts.T) ** 2).sum(axis=0),
                ((root[:, :start] @ direction.stills[index].T) ** 2).sum(axis=0),
            )
            first, second = derivatives(site, zeta, v[own], known, mu)
            gradients.append(first)
            curvatures.append(second)
            alpha, two, three = site.split(part)[0][:3]
            zetas.append(zeta)
            nus.append(v[own] - (alpha - two + three) / (2 * alpha) * zeta[site.neuron])
            start += site.count
        moved = delta if direction.basis is None else direction.basis @ delta
        return Solution(
            value, log_det, np.concatenate(gradients), np.concatenate(curvatures), moved, tuple(zetas), tuple(nus)
        )

    def convexity(self, multipliers: Floats) -> Convexity:
        """L, R and e, in all directions of the input. Raises: LinAlgError."""
        hinges, _, stills = (self._before(known.rows, lambda lines: lines) for known in self._lines)
        form = self._hessian(multipliers, hinges, stills, self._network.inputs)
        scales = np.ldexp(1.0, -np.rint(np.log2(form.diagonal()) / 2).astype(int))
        room = _ROOM * max(len(form), _FEW) ** 2
        scaled = form * scales * scales[:, None]
        scaled.flat[:: len(form) + 1] -= 2 * room
        return Convexity(np.linalg.cholesky(scaled), scales, room)


def _asked(site: Bends) -> SiteRows:
    free = np.union1d(site.neuron, site.cut).astype(np.intp)
    return SiteRows([Fraction(x) for x in site.base.tolist()], free, np.union1d(free, site.still).astype(np.intp))


def _factor(form: Floats) -> tuple[Floats, Floats]:
    """The Cholesky factor of R·H·R, and the diagonal of R. Raises: LinAlgError where floats do not tell."""
    from scipy.linalg import cholesky

    diagonal = form.diagonal()
    if not (np.isfinite(form).all() and (diagonal > 0).all()):
        raise np.linalg.LinAlgError("a form that is not convex")
    scales = 1 / np.sqrt(diagonal)
    factor: Floats = cholesky(form * scales * scales[:, None], lower=True, check_finite=False)
    if float(factor.diagonal().min()) < _LEAST_PIVOT:
        raise np.linalg.LinAlgError("a form that is nearly flat in some direction: floats do not tell")
    return factor, scales


def _inverse(factor: Floats) -> Floats:
    """Of a lower triangular one."""
    from scipy.linalg.lapack import dtrtri

    found, failed = dtrtri(factor, lower=1)
    if failed:
        raise np.linalg.LinAlgError("a factor that cannot be inverted")
    made: Floats = found
    return made


class GraphLayout(Layout):
    """A network near a point, as duals see it."""

    def __init__(self, passage: Passage, network: Network, near: NearValues) -> None:
        """passage: of the network, on plain floats."""
        self._passage, self._network, self._near = passage, network, near
        self.functions = [site.function for site in near.sites]

    def form(self, sites: Sequence[Bends], eps: float) -> GraphForm:
        return GraphForm(self._passage, self._network, self._near, sites, eps)

    def free(self, at: Floats, middle: Floats, zeta: Floats, nu: Floats) -> Floats:
        """What each gives."""
        found: Floats = np.maximum(at, 0.0) + middle * zeta + nu
        return found

    def steps(self, witness: DualWitness, form: Form, multipliers: Floats) -> Convexity:  # noqa: ARG002
        if not isinstance(form, GraphForm):
            raise TypeError("a form of another layout")
        return form.convexity(multipliers)
