"""The search for a chain at one input, in floats: what `proof.local` checks, names as there. Nothing here is trusted.

First with the multipliers v_k² = c·ρ_k/sqrt(S_kk), where ||VSV|| ~ 0.4, then with better ones (`multipliers`) for the
class that is nearest to winning. Only what seems to succeed is worth a proof. Most attempts that fail are seen to fail
before: if g is the gradient of a lead at v, no chain can have dᵀPd < ||g||².
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np

from intervalcert.backends.protocol import Floats
from intervalcert.model.evaluation import FloatBounds
from intervalcert.model.network import Network
from intervalcert.numbers.rounding import float_enclosure
from intervalcert.proof.ellipsoids import LoewnerMajorant, Sector, Step
from intervalcert.proof.local import LocalLink, LocalWitness, bent_layers
from intervalcert.search.ellipsoids import GuessedStep, guess_majorant, guess_step
from intervalcert.search.float_network import FloatNetwork
from intervalcert.search.multipliers import backed_off, improved_weights
from intervalcert.search.sectors import sector_around

__all__ = ["HOPELESS", "NEAR", "ROOM", "SLOW", "WORTH_PROVING", "LocalSearch", "near_float"]

ROOM = 2.0**-30
"""Reaches are guessed larger by this part: more than enclosures are wide."""

_NORM = 0.4
WORTH_PROVING = 1 + 2.0**-20
HOPELESS = 0.75
"""A lead over eps times its slope: from here on a guess is worth a proof; below this no multipliers will help."""

_FEW = 32
"""Neurons whose matrices are small enough for their norms themselves."""

NEAR, SLOW = 0.98, 0.2
"""A round gains about half of what the one before did: if it gains less than this part of what is missing, the rest are
in vain. Nearer than 0.98 all are tried: some rounds lose before they gain."""


_Chain = list[tuple[LocalLink, GuessedStep]]
"""Links, each with what else floats know of its step."""


@dataclass(frozen=True, eq=False)
class ChainsFound:
    """Chains, w⁻² of each neuron of the last one, and dᵀPd of the lead over each other class, in their order."""

    chains: tuple[tuple[LocalLink, ...], ...]
    multipliers: tuple[Floats, ...]
    squares: Floats


class LocalSearch:
    """The search for a good chain at one point, in floats."""

    def __init__(
        self,
        network: Network,
        floats: FloatNetwork,
        ends: Sequence[FloatBounds],
        eps: Fraction,
        margin_deductions: Floats | None = None,
    ) -> None:
        """floats: of the network. ends: of W·x + b of each layer at the input."""
        if not all(np.isfinite(end).all() for pair in ends for end in pair):
            raise FloatingPointError("values beyond the floats")
        self._floats, self._eps = floats, near_float(eps)
        self._near = [layer.weights.near_floats() for layer in network.layers]
        self._functions = bent_layers(network)
        *self._inner, (low, high) = ends
        logits = low / 2 + high / 2
        self.winner = int(np.argmax(logits))
        self.margin_deductions = (
            np.zeros(network.outputs - 1) if margin_deductions is None else np.delete(margin_deductions, self.winner)
        )
        self._leads = np.delete(logits[self.winner] - logits, self.winner) - self.margin_deductions
        self._directions = floats.leads(self.winner)

    def search(self, rounds: int) -> tuple[float, LocalWitness | None]:
        """The least lead over eps times its slope, as floats have it; and a witness if that is worth a proof.

        rounds: of better multipliers.
        """
        ratio, chains = self._search(rounds)
        if ratio < WORTH_PROVING:
            return ratio, None
        return ratio, LocalWitness(self.winner, tuple(tuple(link for link, _ in chain) for chain in chains))

    def best_chains(self, rounds: int) -> ChainsFound | None:
        """The best chains that are found, also where they are not worth a proof; None if there are none.

        The way to better bounds begins there.
        """
        _, chains = self._search(rounds, gives_up=False)
        if not chains or len(chains[-1]) < len(self._functions) or not len(chains[-1][-1][0].kept):
            return None
        last, _ = chains[-1][-1]
        scale = np.ldexp(1.0, sum(link.exponent for link, _ in chains[-1]))
        d = self._directions[last.kept]
        squares = np.maximum((d * (last.step.after @ d)).sum(axis=0), 0.0) * scale
        links = tuple(tuple(link for link, _ in chain) for chain in chains)
        return ChainsFound(links, tuple(self._multipliers(chains[-1])), squares)

    def _search(self, rounds: int, *, gives_up: bool = True) -> tuple[float, list[_Chain]]:
        """The last chain gives the slopes, the one before it shorter reaches. gives_up: where there is no hope."""
        if not self._functions or not (self._leads > 0).all():
            return 0.0, []  # of a single layer the margins are exact already
        most = self._largest_ratio()
        if most < 1 and gives_up:
            return most, []
        first = self._chain(None, None)
        best, worst = self._estimated_ratio(first)
        chains = [first]
        if best >= WORTH_PROVING or (best < HOPELESS and gives_up):
            return best, chains
        reaches = [link.reach for link, _ in first]
        now, chain = self._multipliers(first), first
        for _ in range(rounds):
            moved = self._moved(chain, now, worst, reaches)
            if moved is None:
                break
            chain, now = moved
            found, worst = self._estimated_ratio(chain)
            gain = found - best
            if gain > 0:
                best, chains = found, [first, chain]
            if best >= WORTH_PROVING or (best < NEAR and gain < (WORTH_PROVING - best) * SLOW):
                break
        return best, chains

    def _largest_ratio(self) -> float:
        """What no estimated ratio can exceed: the least lead over eps times the length of its gradient, at v itself."""
        middles = [(low / 2 + high / 2)[:, None] for low, high in self._inner]
        lengths = self._floats.lead_gradient_lengths(middles, self.winner)
        return float((self._leads / np.maximum(self._eps * lengths, 1e-300)).min()) * (1 + ROOM)

    def _estimated_ratio(self, chain: _Chain) -> tuple[float, int]:
        """The least lead over eps times its slope, and whose it is."""
        last, _ = chain[-1]
        if not len(last.kept):
            return math.inf, 0
        d = self._directions[last.kept]
        scale = np.sqrt(np.ldexp(1.0, sum(link.exponent for link, _ in chain)))
        slopes = np.sqrt(np.maximum((d * (last.step.after @ d)).sum(axis=0), 0.0)) * scale
        quotients = self._leads / np.maximum(self._eps * slopes, 1e-300)
        worst = int(np.argmin(quotients))
        return float(quotients[worst]), worst

    def _multipliers(self, chain: _Chain) -> list[Floats]:
        """w⁻² of each neuron, in the scale of the network; 0 where there is none."""
        found, exponent = [], 0
        for link, _ in chain:
            exponent += link.exponent
            made, w = np.zeros(len(link.reach)), link.step.w
            made[link.kept] = np.ldexp(np.where(w > 0, 1.0, 0.0), -exponent) / np.where(w > 0, w * w, 1.0)
            found.append(made)
        return found

    def _moved(
        self, chain: _Chain, now: list[Floats], worst: int, reaches: list[Floats]
    ) -> tuple[_Chain, list[Floats]] | None:
        """A chain with better multipliers, if there is one as long."""
        links = [link for link, _ in chain]
        pairs = zip(self._near[1:], pairwise(links), strict=False)
        blocks = [near.values[np.ix_(link.kept, before.kept)] for near, (before, link) in pairs]
        d = self._directions[links[-1].kept][:, [worst]]
        factors = []
        for link, factor in zip(links, improved_weights([step for _, step in chain], blocks, d), strict=True):
            factors.append(np.ones(len(link.reach)))
            factors[-1][link.kept] = factor

        def build(wanted: list[Floats]) -> _Chain | None:
            found = self._chain(wanted, reaches)
            return found if len(found) == len(chain) else None

        return backed_off(now[: len(chain)], factors, build)

    def _chain(self, multipliers: list[Floats] | None, reaches: list[Floats] | None) -> _Chain:
        """A chain; shorter than the network if from some layer on nothing can change."""
        chain: _Chain = []
        total = 0
        for index, (function, least) in enumerate(self._functions):
            near = self._near[index]
            with np.errstate(over="raise", invalid="raise", divide="raise"):
                if chain:
                    before, _ = chain[-1]
                    w = near.values[:, before.kept]
                    s = w @ before.step.after @ w.T
                else:
                    s = self._floats.first_gram
                diagonal = np.maximum(s.diagonal(), 0.0)
                power = math.frexp(max(float(diagonal.max()), 2.0**-900))[1]
                exponent = power + 2 * near.exponent
                scale = np.sqrt(np.ldexp(1.0, total + exponent))
                s, diagonal = np.ldexp(s, -power), np.ldexp(diagonal, -power)
                unsure = float(np.linalg.norm(s)) * len(s) * ROOM / 2**10
                reach = self._eps * np.sqrt(diagonal + unsure) * scale * (1 + ROOM)
                if reaches is not None:
                    reach = np.minimum(reach, reaches[index])
                sector = sector_around(function, *self._inner[index], reach, least)
                kept = np.flatnonzero((sector.middle != 0) | (sector.spread > 0))
                if not len(kept):
                    chain.append(_still(reach, sector))
                    return chain
                inner = Sector(sector.middle[kept], sector.spread[kept])
                majorant = guess_majorant(s[np.ix_(kept, kept)])
                if multipliers is None:
                    v = _first_weights(majorant.above, inner.spread)
                else:
                    known = multipliers[index][kept]
                    usual = float(np.median(known[known > 0])) if (known > 0).any() else 1.0
                    v = inner.spread * np.sqrt(np.where(known > 0, known, usual)) * scale
                guessed = guess_step(majorant.above, inner, v)
            chain.append((LocalLink(kept, reach, sector, majorant, guessed.step, exponent), guessed))
            total += exponent
        return chain


def _still(reach: Floats, sector: Sector) -> tuple[LocalLink, GuessedStep]:
    """The end of a chain beyond which nothing changes."""
    nothing = np.zeros(0)
    empty = np.zeros((0, 0))
    step = Step(Sector(nothing, nothing), nothing, nothing, empty, empty, empty, 0.0, 0.0)
    link = LocalLink(np.zeros(0, dtype=np.intp), reach, sector, LoewnerMajorant(empty, empty, 0.0), step, 0)
    return link, GuessedStep(step, empty, empty)


def _first_weights(s: Floats, spread: Floats) -> Floats:
    """v² = c·ρ/sqrt(S_kk) with ||VSV|| ~ 0.4."""
    v: Floats = np.sqrt(spread / np.sqrt(np.maximum(s.diagonal(), 2.0**-100)))
    if len(v) <= _FEW:
        norm = float(np.linalg.norm(v[:, None] * s * v, 2))
        return v * math.sqrt(_NORM / max(norm, 2.0**-500))
    x = v.copy()
    norm = 1.0
    for _ in range(12):  # power iteration: a guess is enough, but for few neurons, where it may miss by much
        size = float(np.linalg.norm(x))
        if not size:
            return v
        x = v * (s @ (v * (x / size)))
        norm = float(np.linalg.norm(x))
    return v * math.sqrt(_NORM / max(norm, 2.0**-500))


def near_float(x: Fraction) -> float:
    """Near it. Raises: FloatingPointError where floats end."""
    found = float_enclosure(x, x)[1]
    if not math.isfinite(found):
        raise FloatingPointError("a number beyond the floats")
    return found
