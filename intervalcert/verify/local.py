"""Local refinement: with the input v known, only differences from v matter, and the sectors of activations shrink.

The chain of ellipsoids as in `chain`, with q = eps²: all u with ||u - v|| <= eps have Δ_0 = u - v in E(I, eps²), and
each layer takes E(P, eps²) to E(S, eps²), S = WPWᵀ, and to E(P', eps²). What is new:

* A neuron's inner value changes by |δ_k| <= b_k for any b_k >= eps·sqrt(S_kk) (take d = e_k). With its value z_k at v
  enclosed (`evaluation.PointEvaluator`: once, for search and proof alike), `sectors` gives the interval of its
  difference quotients from v.
* A neuron whose quotient can only be 0 does not change at all: its row and column are left out.
* A second chain may use the b_k of a first one that was proved, where they are smaller: each of them is a fact.

At the end the lead y_j - y_i at u is that at v up to dᵀΔ, d = W_n[j] - W_n[i], |dᵀΔ| <= eps·sqrt(dᵀPd). So j wins at
every such u, with no tie, if for every other class i the lead at v is positive and its square exceeds eps²·dᵀPd.

Floats guess everything, first with the multipliers v_k² = c·ρ_k/sqrt(S_kk), where ||VSV|| ~ 0.4, then with better ones
(`multipliers`) for the class that is nearest to winning. Only a guess that promises success is proved. Most attempts
that fail are seen to fail before: if g is the gradient of a lead at v, no chain can have dᵀPd < ||g||².
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from intervalcert.backends.protocol import Backend, Floats, Indices, Matrix
from intervalcert.errors import InconclusiveError, InputError, UndecidedError
from intervalcert.model.activations import PiecewiseLinear
from intervalcert.model.evaluation import Ends, PointEvaluator, is_piecewise_linear
from intervalcert.model.network import Network
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.rounding import dyadic_value, float_enclosure
from intervalcert.proof.ellipsoids import LoewnerMajorant, Sector, Step, guess_step, point, prove_below, prove_step
from intervalcert.proof.sectors import holds_sector, is_within_reach, sector_around
from intervalcert.search.multipliers import improved_weights

__all__ = ["DEFAULT_EFFORT", "RAISE_FAULTS", "LocalVerdict", "LocalVerifier"]

DEFAULT_EFFORT = 10
"""Rounds of better multipliers. Most of the gain comes with the first three."""

RAISE_FAULTS = "INTERVALCERT_RAISE_FAULTS"
"""A variable of the environment: if it is set, a fault in an attempt is raised, not counted. Tests set it."""

_ROOM = 2.0**-30
"""Reaches are guessed larger by this part: more than enclosures are wide."""

_NORM = 0.4
_WORTH_PROVING = 1 + 2.0**-20
_HOPELESS = 0.75
"""A lead over eps times its slope: from here on a guess is worth a proof; below this no multipliers will help."""

_NEAR, _SLOW = 0.98, 0.2
"""A round gains about half of what the one before did: if it gains less than this part of what is missing, the rest are
in vain. Nearer than 0.98 all are tried: some rounds lose before they gain."""


@dataclass(frozen=True, eq=False)
class _Link:
    """What floats guess for one hidden layer: which neurons are kept, S from above, and the step; as in `chain`.

    reach, sector: of all neurons; those that are not kept have an empty sector. exponent: P' is on the scale
    2^exponent of P.
    """

    kept: Indices
    reach: Floats
    sector: Sector
    s: LoewnerMajorant
    step: Step
    exponent: int


@dataclass(frozen=True)
class LocalVerdict:
    """promise: the least lead over eps times its slope, as floats have it; beyond 1 was tried to be proved.

    proved_by: the number system that did. fault: what ended the attempt before it could prove anything.
    """

    certified: bool
    estimated_ratio: float
    winner: int = 0
    proved_by: str = ""
    fault: str = ""


class LocalVerifier:
    """Tries to certify single inputs of one network on a ladder of number systems."""

    def __init__(self, network: Network, norms: Sequence[Fraction], ladder: Sequence[Backend[Any]]) -> None:
        """Requires: `norms` are upper bounds of the layers' operator norms; the last number system is exact.

        Raises: InputError if an activation is not piecewise linear.
        """
        if not is_piecewise_linear(network):
            raise InputError(
                "local refinement is for piecewise linear activations (relu, leaky_relu:SLOPE, clip:LO:HI, hard_tanh, "
                "identity): leave it out"
            )
        self._network, self._norms, self._ladder = network, norms, ladder
        self._near = [layer.weights.near_floats() for layer in network.layers]
        self._provers: dict[Backend[Any], _Prover] = {}
        first = self._near[0].values
        self._first = first @ first.T

    @cached_property
    def points(self) -> PointEvaluator:
        """What follows a point through the network; its weights are converted when they are needed."""
        return PointEvaluator(self._network, self._norms, self._ladder[-1])

    def certify(
        self, x: RationalMatrix, eps: Fraction, effort: int = DEFAULT_EFFORT, margin_deductions: Floats | None = None
    ) -> LocalVerdict:
        """x: the input, one column. `certified` only if it is proved that every u within eps has the winner of x.

        debts: what is to be taken off the winner's lead over each class first (for errors of another kind).
        An attempt that ends by a fault, whatever it is, certifies nothing, and says so.
        """
        try:
            return self._attempt(x, eps, effort, margin_deductions)
        except (np.linalg.LinAlgError, FloatingPointError) as error:  # floats end here
            return LocalVerdict(False, 0.0, fault=_said(error))
        except Exception as error:
            if os.environ.get(RAISE_FAULTS):
                raise
            return LocalVerdict(False, 0.0, fault=_said(error))

    def _attempt(self, x: RationalMatrix, eps: Fraction, effort: int, margin_deductions: Floats | None) -> LocalVerdict:
        *inner, logits = self.points.at(x)
        ends = [value.float_bounds() for value in (*inner, logits)]
        with np.errstate(over="raise", invalid="raise"):
            guessed = _Floats(self._network, self._near, self._first, ends, eps, margin_deductions)
            estimated_ratio, chains = guessed.search(effort)
        if estimated_ratio < _WORTH_PROVING:
            return LocalVerdict(False, estimated_ratio)
        leads = self.points.leads(logits, guessed.winner)[0]
        for backend in self._ladder:
            try:
                if backend not in self._provers:
                    self._provers[backend] = _Prover(self._network, backend)
                if self._provers[backend].proves(
                    chains, ends[:-1], leads, eps, guessed.winner, guessed.margin_deductions
                ):
                    return LocalVerdict(True, estimated_ratio, guessed.winner, backend.name)
            except InconclusiveError:
                continue
        return LocalVerdict(False, estimated_ratio)


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"[:100]


def _hinges(network: Network) -> list[tuple[PiecewiseLinear, Fraction]]:
    """Of each hidden layer: the activation, and the least factor of its uncertain scales."""
    return [
        (layer.activation.piecewise_linear, layer.least_factor)
        for layer in network.layers
        if layer.activation and layer.activation.piecewise_linear
    ]


# -- guessing --------------------------------------------------------------------------------------------------------


class _Floats:
    """The search for a good chain at one point, in floats."""

    def __init__(
        self,
        network: Network,
        near: Sequence[Any],
        first: Floats,
        ends: Sequence[Ends],
        eps: Fraction,
        margin_deductions: Floats | None = None,
    ) -> None:
        """ends: of W·x + b of each layer at the input."""
        if not all(np.isfinite(end).all() for pair in ends for end in pair):
            raise FloatingPointError("values beyond the floats")
        self._near, self._first, self._eps = near, first, _float(eps)
        self._hinges = _hinges(network)
        *self._inner, (low, high) = ends
        logits = low / 2 + high / 2
        self.winner = int(np.argmax(logits))
        self.margin_deductions = (
            np.zeros(network.outputs - 1) if margin_deductions is None else np.delete(margin_deductions, self.winner)
        )
        self._leads = np.delete(logits[self.winner] - logits, self.winner) - self.margin_deductions
        last = np.ldexp(near[-1].values, near[-1].exponent)
        self._directions = np.delete(last[self.winner] - last, self.winner, axis=0).T

    def search(self, effort: int) -> tuple[float, list[list[_Link]]]:
        """The best promise, and the chains to be proved for it: the last one gives the slopes."""
        if not self._hinges or not (self._leads > 0).all():
            return 0.0, []  # of a single layer the margins are exact already
        most = self._largest_ratio()
        if most < 1:
            return most, []
        first = self._chain(None, None)
        best, worst = self._estimated_ratio(first)
        chains = [first]
        if best >= _WORTH_PROVING or best < _HOPELESS:
            return best, chains
        reaches = [link.reach for link in first]
        now, links = self._multipliers(first), first
        for _ in range(effort):
            moved = self._moved(links, now, worst, reaches)
            if moved is None:
                break
            links, now = moved
            found, worst = self._estimated_ratio(links)
            gain = found - best
            if gain > 0:
                best, chains = found, [first, links]
            if best >= _WORTH_PROVING or (best < _NEAR and gain < (_WORTH_PROVING - best) * _SLOW):
                break
        return best, chains

    def _largest_ratio(self) -> float:
        """What no promise can exceed: the least lead over eps times the length of its gradient, at v itself."""
        g = self._directions
        weights = list(zip(self._near, self._hinges, self._inner, strict=False))
        for near, (function, _), (low, high) in weights[:0:-1]:
            g = np.ldexp(near.values.T @ (_slopes(low / 2 + high / 2, function)[:, None] * g), near.exponent)
        near, (function, _), (low, high) = weights[0]
        g = _slopes(low / 2 + high / 2, function)[:, None] * g
        lengths = np.ldexp(np.sqrt(np.maximum((g * (self._first @ g)).sum(axis=0), 0.0)), near.exponent)
        return float((self._leads / np.maximum(self._eps * lengths, 1e-300)).min()) * (1 + _ROOM)

    def _estimated_ratio(self, links: list[_Link]) -> tuple[float, int]:
        """The least lead over eps times its slope, and whose it is."""
        last = links[-1]
        if not len(last.kept):
            return math.inf, 0
        d = self._directions[last.kept]
        scale = np.sqrt(np.ldexp(1.0, sum(link.exponent for link in links)))
        slopes = np.sqrt(np.maximum((d * (last.step.after @ d)).sum(axis=0), 0.0)) * scale
        quotients = self._leads / np.maximum(self._eps * slopes, 1e-300)
        worst = int(np.argmin(quotients))
        return float(quotients[worst]), worst

    def _multipliers(self, links: list[_Link]) -> list[Floats]:
        """w⁻² of each neuron, in the scale of the network; 0 where there is none."""
        found, exponent = [], 0
        for link in links:
            exponent += link.exponent
            made, w = np.zeros(len(link.reach)), link.step.w
            made[link.kept] = np.ldexp(np.where(w > 0, 1.0, 0.0), -exponent) / np.where(w > 0, w * w, 1.0)
            found.append(made)
        return found

    def _moved(
        self, links: list[_Link], now: list[Floats], worst: int, reaches: list[Floats]
    ) -> tuple[list[_Link], list[Floats]] | None:
        """A chain with better multipliers; with less of a change while K is not positive definite."""
        pairs = zip(self._near[1:], pairwise(links), strict=False)
        blocks = [near.values[np.ix_(link.kept, before.kept)] for near, (before, link) in pairs]
        d = self._directions[links[-1].kept][:, [worst]]
        factors = improved_weights([link.step for link in links], blocks, d)
        for part in (1.0, 0.5, 0.25):
            wanted = [x.copy() for x in now]
            for made, link, factor in zip(wanted, links, factors, strict=True):
                made[link.kept] *= factor ** (2 * part)
            try:
                found = self._chain(wanted, reaches)
            except (np.linalg.LinAlgError, FloatingPointError):
                continue
            return (found, wanted) if len(found) == len(links) else None
        return None

    def _chain(self, multipliers: list[Floats] | None, reaches: list[Floats] | None) -> list[_Link]:
        """A chain; shorter than the network if from some layer on nothing can change."""
        links: list[_Link] = []
        total = 0
        for index, (function, least) in enumerate(self._hinges):
            near = self._near[index]
            with np.errstate(over="raise", invalid="raise", divide="raise"):
                if links:
                    w = near.values[:, links[-1].kept]
                    s = w @ links[-1].step.after @ w.T
                else:
                    s = self._first
                diagonal = np.maximum(s.diagonal(), 0.0)
                power = math.frexp(max(float(diagonal.max()), 2.0**-900))[1]
                exponent = power + 2 * near.exponent
                scale = np.sqrt(np.ldexp(1.0, total + exponent))
                s, diagonal = np.ldexp(s, -power), np.ldexp(diagonal, -power)
                unsure = float(np.linalg.norm(s)) * len(s) * _ROOM / 2**10
                reach = self._eps * np.sqrt(diagonal + unsure) * scale * (1 + _ROOM)
                if reaches is not None:
                    reach = np.minimum(reach, reaches[index])
                sector = self._sector(index, function, reach, least)
                kept = np.flatnonzero((sector.middle != 0) | (sector.spread > 0))
                if not len(kept):
                    links.append(_still(reach, sector))
                    return links
                inner = Sector(sector.middle[kept], sector.spread[kept])
                lifted = LoewnerMajorant.guess(s[np.ix_(kept, kept)])
                if multipliers is None:
                    v = _first_weights(lifted.above, inner.spread)
                else:
                    known = multipliers[index][kept]
                    usual = float(np.median(known[known > 0])) if (known > 0).any() else 1.0
                    v = inner.spread * np.sqrt(np.where(known > 0, known, usual)) * scale
                step = guess_step(lifted.above, inner, v)
            links.append(_Link(kept, reach, sector, lifted, step, exponent))
            total += exponent
        return links

    def _sector(self, index: int, function: PiecewiseLinear, reach: Floats, least: Fraction) -> Sector:
        return sector_around(function, *self._inner[index], reach, least)


def _still(reach: Floats, sector: Sector) -> _Link:
    """The end of a chain beyond which nothing changes."""
    nothing = np.zeros(0)
    empty = np.zeros((0, 0))
    step = Step(Sector(nothing, nothing), nothing, nothing, empty, empty, empty, empty, 0.0, 0.0, empty)
    return _Link(np.zeros(0, dtype=np.intp), reach, sector, LoewnerMajorant(empty, empty, 0.0), step, 0)


def _first_weights(s: Floats, spread: Floats) -> Floats:
    """v² = c·ρ/sqrt(S_kk) with ||VSV|| ~ 0.4."""
    v: Floats = np.sqrt(spread / np.sqrt(np.maximum(s.diagonal(), 2.0**-100)))
    x = v.copy()
    norm = 1.0
    for _ in range(12):  # power iteration: a guess is enough
        size = float(np.linalg.norm(x))
        if not size:
            return v
        x = v * (s @ (v * (x / size)))
        norm = float(np.linalg.norm(x))
    return v * math.sqrt(_NORM / max(norm, 2.0**-500))


def _slopes(x: Floats, function: PiecewiseLinear) -> Floats:
    """Of the piecewise linear function at x; at a kink that of the piece before."""
    total = np.full(len(x), float(function.slope))
    for weight, kink in function.hinges:
        total = total + float(weight) * (x > float(kink))
    return total


def _float(x: Fraction) -> float:
    """Near it. Raises: FloatingPointError where floats end."""
    found = float_enclosure(x, x)[1]
    if not math.isfinite(found):
        raise FloatingPointError("a number beyond the floats")
    return found


# -- proving ---------------------------------------------------------------------------------------------------------


class _Prover:
    """One number system, with what all points share."""

    def __init__(self, network: Network, backend: Backend[Any]) -> None:
        self._network, self._backend = network, backend
        self._hinges = _hinges(network)
        self._weights = network.of_weights(backend.matrix)
        first = self._weights[0]
        self._first = first @ first.transposed()
        self._slopes: dict[int, Matrix[Any]] = {}

    def proves(
        self,
        chains: list[list[_Link]],
        ends: Sequence[Ends],
        leads: Floats,
        eps: Fraction,
        winner: int,
        margin_deductions: Floats | None = None,
    ) -> bool:
        """Whether the winner stays ahead of every other class within eps, by more than its debts to them.

        Requires: ends enclose W·x + b of each hidden layer at the input, leads are those of the winner over the other
        classes, in their order, from below. Raises: InconclusiveError if a guess is not proved here.
        """
        known: list[Floats] | None = None
        for links in chains[:-1]:
            self._prove(links, ends, eps, known)
            known = [link.reach for link in links]
        p, kept, exponent = self._prove(chains[-1], ends, eps, known)
        owed = np.zeros(len(leads)) if margin_deductions is None else margin_deductions
        if not (np.isfinite(owed).all() and (owed >= 0).all() and np.isfinite(leads).all()):
            return False
        left = [Fraction(lead) - Fraction(debt) for lead, debt in zip(leads.tolist(), owed.tolist(), strict=True)]
        if len(left) != self._network.outputs - 1:
            return False
        if p is None:
            return all(lead > 0 for lead in left)
        slopes = self._against(winner)
        d = slopes.block(np.arange(slopes.shape[0]), kept)
        squares = (d @ p @ d.transposed()).float_bounds()[1].diagonal()
        limit = eps**2 * dyadic_value(1, exponent)
        return all(
            lead > 0 and math.isfinite(square) and lead**2 > limit * Fraction(max(square, 0.0))
            for lead, square in zip(left, squares.tolist(), strict=True)
        )

    def _against(self, winner: int) -> Matrix[Any]:
        """The rows of the last weights: that of the winner less each other one."""
        if winner not in self._slopes:
            weights = self._network.layers[-1].weights
            numerators = np.delete(weights.numerators[winner] - weights.numerators, winner, axis=0)
            self._slopes[winner] = self._backend.matrix(RationalMatrix(numerators, weights.denominator))
        return self._slopes[winner]

    def _prove(
        self, links: list[_Link], ends: Sequence[Ends], eps: Fraction, known: list[Floats] | None
    ) -> tuple[Matrix[Any] | None, Indices, int]:
        """P at the end of a chain, the neurons that it is of, and its scale; None if nothing can change there.

        Raises: UndecidedError unless every step is proved.
        """
        backend = self._backend
        before: Matrix[Any] | None = None
        kept: Indices = np.zeros(0, dtype=np.intp)
        total = 0
        for index, link in enumerate(links):
            if before is None:
                s = self._first
            else:
                w = self._weights[index]
                w = w.block(np.arange(w.shape[0]), kept)
                s = w @ before @ w.transposed()
            s = s.ldexp(-link.exponent)
            total += link.exponent
            proved = is_within_reach(link.reach, s.float_bounds()[1].diagonal(), eps**2 * dyadic_value(1, total))
            if known is not None:
                proved |= link.reach >= known[index]
            if not proved.all():
                raise UndecidedError("a neuron may change by more than was guessed")
            low, high = ends[index]
            function, least = self._hinges[index]
            if not holds_sector(function, low, high, link.reach, link.sector, least):
                raise UndecidedError("a sector is not proved to hold all slopes")
            kept = link.kept
            left_out = np.delete(np.arange(len(low)), kept)
            if link.sector.middle[left_out].any() or link.sector.spread[left_out].any():
                raise UndecidedError("a neuron that may change was left out")
            if not len(kept):
                return None, kept, total
            if (link.step.sector.middle != link.sector.middle[kept]).any() or (
                link.step.sector.spread != link.sector.spread[kept]
            ).any():
                raise UndecidedError("a step is of another sector")
            prove_step(link.step, prove_below(s.block(kept, kept), link.s, backend), backend)
            before = point(link.step.after, backend)
        if len(links) != len(self._hinges) or before is None:
            raise UndecidedError("a chain that ends too early")
        return before, kept, total
