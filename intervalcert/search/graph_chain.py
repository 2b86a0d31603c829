"""The search for a chain through a graph, for all inputs, in floats: for `proof.graph_chain`. Nothing is trusted.

The closed form of the multipliers is that of `proof.ellipsoids`: v² = ρ/((|m| + ρ)·σ), σ near the squared norm of the
images that the rows are of. Differences of pairs, over sqrt(2), are rows of such images in another orthogonal basis:
theirs is half of that. So a chain without branches is not worse than the product of norms, but for what rounding costs.
"""

from __future__ import annotations

import contextlib
from fractions import Fraction
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from intervalcert.backends.protocol import Floats, Indices, Matrix
from intervalcert.model.activations import Activation
from intervalcert.model.evaluation import FloatBounds
from intervalcert.model.network import Network
from intervalcert.numbers.rounding import float_enclosure
from intervalcert.proof.comparators import MODULUS
from intervalcert.proof.ellipsoids import Sector
from intervalcert.proof.graph_chain import Functions, GraphChain, images_below
from intervalcert.proof.graphs import Passage
from intervalcert.search.graph_guide import Key, Multipliers, SearchGuide, TooWideError, plain_values
from intervalcert.search.multipliers import backed_off
from intervalcert.search.plain import PlainBackend

__all__ = ["MOST_WORK", "search_graph_chains"]

MOST_WORK = 1e12
"""Products of two numbers in one passage: in floats a minute."""

_LARGEST = 0.99
"""The most that v²·σ starts with: what must be positive definite needs some room."""

_ITERATIONS = 60
"""Of the power method, for a norm."""

_DIRECTIONS = 256
"""So many pairs of classes are looked at while multipliers are tuned."""


class _AllInputs(SearchGuide):
    """For any two inputs."""

    def __init__(self, network: Network, multipliers: Multipliers | None) -> None:
        super().__init__(network, multipliers, MOST_WORK, "a chain")
        self._share = 1.0
        self.together = False

    def sector(self, rows: Matrix[Any], function: Activation, least: Fraction, ends: FloatBounds) -> Sector:  # noqa: ARG002
        if function.slopes is None:
            raise FloatingPointError("an activation without slopes")
        low, high = function.slopes
        found = _around(min(low, low * least), max(high, high * least), rows.shape[0])
        self._share = 0.5 if function is MODULUS else 1.0
        self.add(Functions(found, None, np.zeros(0)))
        return found

    def constant(self, rows: Matrix[Any], lipschitz: Fraction) -> Sector:
        found = _around(-lipschitz, lipschitz, rows.shape[0])
        self._share, self.together = 1.0, True
        self.add(Functions(found, None, np.zeros(0)))
        return found

    def contenders(self, rows: Matrix[Any], windows: Indices, ends: FloatBounds) -> Indices:  # noqa: ARG002
        return np.arange(rows.shape[0])

    def first_weights(self, rows: Floats, spread: Floats, among: Floats) -> Floats:
        """The closed form."""
        link = self.links[-1]
        if not isinstance(link, Functions):
            raise TypeError("functions come before what bends of them")
        middle = np.abs(link.sector.middle[link.sector.spread > 0])
        relative = np.minimum(spread / (middle + spread), _LARGEST) * self._share
        found: Floats = np.sqrt(relative / max(_norm_squared(among), _norm_squared(rows) * self._share))
        return found


def _around(low: Fraction, high: Fraction, count: int) -> Sector:
    """A sector of floats around these slopes."""
    middle = float((low + high) / 2)
    reach = max(high - Fraction(middle), Fraction(middle) - low)  # from the float, not from the middle itself
    return Sector(np.full(count, middle), np.full(count, float_enclosure(reach, reach)[1]))


def _norm_squared(rows: Floats) -> float:
    """Near ||rows||², mostly from below by less than a hundredth."""
    x = np.ones(len(rows)) + np.arange(len(rows)) % 7
    found = 0.0
    for _ in range(_ITERATIONS):
        x = rows @ (rows.T @ (x / np.linalg.norm(x)))
        found = float(np.linalg.norm(x))
        if not found:
            raise FloatingPointError("a layer of zeros")
    return found


class _Chain:
    """What a passage found: Cᵀd of some pairs of classes in columns."""

    def __init__(self, network: Network, passage: Passage, multipliers: Multipliers | None) -> None:
        """Raises: TooWideError, LinAlgError, FloatingPointError."""
        self.guide = _AllInputs(network, multipliers)
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            images = passage.images(self.guide)
            parts = images_below(network, images, PlainBackend())  # type: ignore[arg-type]
            if not parts:
                raise FloatingPointError("logits that never change")
            self.leads = reduce(add, (_leads(head.near_floats(), image) for head, image in parts)).T

    @property
    def mean_log(self) -> float:
        """The mean logarithm of the squared margins."""
        squares = (self.leads * self.leads).sum(axis=0)
        return float(np.log(np.maximum(squares, 1e-300)).mean())


def _leads(head: Any, image: Matrix[Any]) -> Floats:
    last = np.ldexp(head.values, head.exponent) @ plain_values(image)
    upper, lower = np.tril_indices(len(last), -1)
    some = np.linspace(0, len(upper) - 1, min(len(upper), _DIRECTIONS)).astype(np.intp)
    found: Floats = last[upper[some]] - last[lower[some]]
    return found


def search_graph_chains(network: Network, rounds: int) -> tuple[GraphChain, ...]:
    """A chain with the closed form, and one with multipliers tuned in so many rounds; none where floats find none.

    Raises: TooWideError if it would take too much time or memory.
    """
    passage = Passage(network, PlainBackend())  # type: ignore[arg-type]
    try:
        first = _Chain(network, passage, None)
    except (np.linalg.LinAlgError, FloatingPointError):
        return ()
    best = _tuned(network, passage, first, rounds)
    return (first.guide.links,) if best is None else (first.guide.links, best.guide.links)


def _tuned(network: Network, passage: Passage, first: _Chain, rounds: int) -> _Chain | None:
    """A better one by the mean of the logarithms of the margins; None if nothing is."""
    if first.guide.together:  # one multiplier for all of them is not tuned
        return None
    best: _Chain | None = None
    now, chain, least = first.guide.multipliers(), first, first.mean_log
    # Where floats end, so does the search: what was found before stands.
    with contextlib.suppress(FloatingPointError, TooWideError), np.errstate(over="raise", invalid="raise"):
        for _ in range(rounds):
            factors = chain.guide.factors(chain.leads)
            keys: list[Key] = sorted(factors)

            def build(wanted: list[Floats], keys: list[Key] = keys) -> _Chain:
                return _Chain(network, passage, dict(zip(keys, wanted, strict=True)))

            moved = backed_off([now[key] for key in keys], [factors[key] for key in keys], build)
            if moved is None:
                break
            chain, now = moved[0], dict(zip(keys, moved[1], strict=True))
            if chain.mean_log < least:
                least, best = chain.mean_log, chain
    return best
