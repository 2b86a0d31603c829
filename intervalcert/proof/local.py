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
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from intervalcert.backends.protocol import Backend, Floats, Indices, Matrix
from intervalcert.errors import UndecidedError
from intervalcert.model.activations import PiecewiseLinear
from intervalcert.model.evaluation import FloatBounds
from intervalcert.model.network import Network
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.parsing import MAX_BINARY_EXPONENT
from intervalcert.numbers.rounding import dyadic_value
from intervalcert.proof.data import Witness
from intervalcert.proof.ellipsoids import LoewnerMajorant, Sector, Step, check_majorant, check_step, point
from intervalcert.proof.sectors import holds_sector, is_within_reach

__all__ = [
    "Leads",
    "LocalChecker",
    "LocalClaim",
    "LocalLink",
    "LocalWitness",
    "ShortChains",
    "ShortLink",
    "bent_layers",
    "shortened_chains",
]


@dataclass(frozen=True, eq=False, repr=False)
class LocalLink(Witness):
    """The witness of one hidden layer: which neurons are kept, S from above, and the step; as in `chain`.

    reach, sector: of all neurons; those that are not kept have an empty sector. exponent: P' is on the scale
    2^exponent of P.
    """

    kept: Indices
    reach: Floats
    sector: Sector
    s: LoewnerMajorant
    step: Step
    exponent: int


@dataclass(frozen=True, eq=False, repr=False)
class LocalWitness(Witness):
    """Chains, each of which may use the reaches of the one before; the last one gives the slopes of the leads."""

    winner: int
    chains: tuple[tuple[LocalLink, ...], ...]


@dataclass(frozen=True, eq=False, repr=False)
class ShortLink(Witness):
    """Of a link what cannot be computed from the others, from the network and the input: for exact checkers."""

    kept: Indices
    v: Floats
    g: Floats
    exponent: int


ShortChains = tuple[tuple[ShortLink, ...], ...]


def shortened_chains(witness: LocalWitness) -> ShortChains:
    """All chains of a witness. They take a small part of its memory."""
    return tuple(
        tuple(ShortLink(link.kept, link.step.v, link.step.g, link.exponent) for link in links)
        for links in witness.chains
    )


@dataclass(frozen=True)
class LocalClaim:
    """Every input within eps has this winner; proved by that number system."""

    winner: int
    eps: Fraction
    proved_by: str


@dataclass(frozen=True, eq=False)
class Leads:
    """At the input: those of one class over the others, in their order, from below; and what is to be taken off them.

    deductions: for errors of another kind, none of them negative; None for none.
    """

    winner: int
    lower: Floats
    deductions: Floats | None = None

    def left(self, winner: int, outputs: int) -> list[Fraction]:
        """Less the deductions, exactly. Raises: UndecidedError unless these are leads of that class over all others."""
        taken_off = np.zeros(self.lower.shape) if self.deductions is None else self.deductions
        if not (np.isfinite(taken_off).all() and (taken_off >= 0).all() and np.isfinite(self.lower).all()):
            raise UndecidedError("leads, or what is taken off them, are not finite")
        if self.winner != winner or not (
            0 <= winner < outputs and self.lower.shape == taken_off.shape == (outputs - 1,)
        ):
            raise UndecidedError("leads of another class, or over another number of classes")
        return [Fraction(a) - Fraction(b) for a, b in zip(self.lower.tolist(), taken_off.tolist(), strict=True)]


def bent_layers(network: Network) -> list[tuple[PiecewiseLinear, Fraction]]:
    """Of each hidden layer: the activation, and the least factor of its uncertain scales."""
    return [
        (layer.activation.piecewise_linear, layer.least_factor)
        for layer in network.layers
        if layer.activation and layer.activation.piecewise_linear
    ]


class LocalChecker:
    """Checks witnesses for points of one network on one number system, with what all points share."""

    def __init__(self, network: Network, backend: Backend[Any]) -> None:
        """Requires: piecewise linear activations."""
        self._network, self._backend = network, backend
        self._functions = bent_layers(network)
        made = {id(layer.weights): backend.matrix(layer.weights) for layer in network.layers}
        self._weights = [made[id(layer.weights)] for layer in network.layers]
        first = self._weights[0]
        self._first = first @ first.transposed()
        self._slopes: dict[int, Matrix[Any]] = {}

    def check(
        self,
        witness: LocalWitness,
        inner: Sequence[FloatBounds],
        leads: Leads,
        eps: Fraction,
    ) -> LocalClaim:
        """The claim that the witness's winner stays ahead of every other class within eps, by more than the deductions.

        Requires: `inner` encloses W·x + b of each hidden layer at the input.
        Raises: InconclusiveError unless that is proved here.
        """
        if not witness.chains or eps < 0:
            raise UndecidedError("a witness without a chain, or of no eps")
        left = leads.left(witness.winner, self._network.outputs)
        known: list[Floats] | None = None
        for links in witness.chains[:-1]:
            self._prove(links, inner, eps, known)
            known = [link.reach for link in links]
        p, kept, exponent = self._prove(witness.chains[-1], inner, eps, known)
        if p is None:
            proved = all(lead > 0 for lead in left)
        else:
            slopes = self._against(witness.winner)
            d = slopes.block(np.arange(slopes.shape[0]), kept)
            squares = (d @ p @ d.transposed()).float_bounds()[1].diagonal()
            limit = eps**2 * dyadic_value(1, exponent)
            proved = all(
                lead > 0 and math.isfinite(square) and lead**2 > limit * Fraction(max(square, 0.0))
                for lead, square in zip(left, squares.tolist(), strict=True)
            )
        if not proved:
            raise UndecidedError("a lead is not proved to last")
        return LocalClaim(witness.winner, eps, self._backend.name)

    def reaches(
        self, chains: Sequence[Sequence[LocalLink]], inner: Sequence[FloatBounds], eps: Fraction
    ) -> list[Floats]:
        """By how much the inner values of each layer change at the most, at any input within eps.

        Requires: `inner` as for `check`. Raises: InconclusiveError unless the chains are proved here.
        """
        if not chains or eps < 0:
            raise UndecidedError("no chain, or no eps")
        known: list[Floats] | None = None
        for links in chains:
            self._prove(links, inner, eps, known)
            known = [link.reach for link in links]
        # A chain that ends early says that nothing changes there.
        still = [np.zeros(len(low)) for low, _ in inner[len(chains[-1]) :]]
        return [*(link.reach for link in chains[-1]), *still]

    def _against(self, winner: int) -> Matrix[Any]:
        """The rows of the last weights: that of the winner less each other one."""
        if winner not in self._slopes:
            weights = self._network.layers[-1].weights
            numerators = np.delete(weights.numerators[winner] - weights.numerators, winner, axis=0)
            self._slopes[winner] = self._backend.matrix(RationalMatrix(numerators, weights.denominator))
        return self._slopes[winner]

    def _prove(
        self, links: Sequence[LocalLink], inner: Sequence[FloatBounds], eps: Fraction, known: list[Floats] | None
    ) -> tuple[Matrix[Any] | None, Indices, int]:
        """P at the end of a chain, the neurons that it is of, and its scale; None if nothing can change there.

        Raises: UndecidedError unless every step is proved.
        """
        backend = self._backend
        before: Matrix[Any] | None = None
        kept: Indices = np.zeros(0, dtype=np.intp)
        total = 0
        if len(links) > len(self._functions):
            raise UndecidedError("a chain of more layers than there are")
        for index, link in enumerate(links):
            _check_link(link, len(inner[index][0]))
            if before is None:
                s = self._first
            else:
                w = self._weights[index]
                w = w.block(np.arange(w.shape[0]), kept)
                s = w @ before @ w.transposed()
            s = s.ldexp(-link.exponent)
            total += link.exponent
            proved = is_within_reach(link.reach, s.float_bounds()[1].diagonal(), eps**2 * dyadic_value(1, total))
            if known is not None and index < len(known):
                proved |= link.reach >= known[index]
            if not proved.all():
                raise UndecidedError("a neuron may change by more than was guessed")
            low, high = inner[index]
            function, least = self._functions[index]
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
            check_step(link.step, check_majorant(s.block(kept, kept), link.s, backend), backend)
            before = point(link.step.after, backend)
        if len(links) != len(self._functions) or before is None:
            raise UndecidedError("a chain that ends too early")
        return before, kept, total


def _check_link(link: LocalLink, rows: int) -> None:
    """Numpy would repeat what is too short. Raises: UndecidedError unless it is of so many neurons."""
    kept, inner = link.kept, link.step.sector
    vectors = (link.reach, link.sector.middle, link.sector.spread)
    if any(x.shape != (rows,) or x.dtype != np.float64 for x in vectors) or abs(link.exponent) > MAX_BINARY_EXPONENT:
        raise UndecidedError("a link of another layer")
    if kept.ndim != 1 or kept.dtype != np.intp or (np.diff(kept) <= 0).any() or not ((kept >= 0) & (kept < rows)).all():
        raise UndecidedError("neurons that are kept are named once, in order")
    if not inner.middle.shape == inner.spread.shape == kept.shape:
        raise UndecidedError("a step of other neurons than are kept")
