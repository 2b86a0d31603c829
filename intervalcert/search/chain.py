"""The search for a good chain of ellipsoids, in floats: what `proof.chain` checks, names as there. Nothing is trusted.

A closed form of the multipliers is never worse than the product of norms (`proof.ellipsoids`); `tuned_multipliers`
finds better ones. What is searched here is the dual of a semidefinite relaxation in the manner of LipSDP (Fazlyab,
Robey, Hassani, Morari, Pappas, NeurIPS 2019), one layer after another as in ECLipsE (Xu, Sivaranjani, NeurIPS 2024).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from intervalcert.backends.protocol import Floats
from intervalcert.model.layers import Layer
from intervalcert.model.network import Network
from intervalcert.numbers.rounding import float_enclosure
from intervalcert.proof.chain import ChainLink, ChainWitness, has_ellipsoids, slopes_over_constant
from intervalcert.proof.ellipsoids import Sector
from intervalcert.proof.graph_chain import GraphChain
from intervalcert.search.ellipsoids import GuessedStep, guess_majorant, guess_step
from intervalcert.search.factors import factor_above, largest_eigenvalue
from intervalcert.search.graph_chain import search_graph_chains
from intervalcert.search.multipliers import backed_off, improved_weights

__all__ = ["Multipliers", "search_chain", "search_chains", "tuned_multipliers"]

Multipliers = tuple[Floats, ...]
"""v_k²·||S|| of each neuron of each hidden layer: without a unit; 1/2 for ReLU where nothing better is known."""

_LARGEST = 1 - 2.0**-10
"""The most that v²·||S|| starts with: K = I - VSV must be positive definite with some room."""

_ROOM = 2.0**-30
"""By this part, a number without a sector's step is above the norm that it stands for."""

_DIRECTIONS = 4_096
"""So many pairs of classes are looked at while multipliers are tuned: all of 91 classes."""


_Guess = list[tuple[ChainLink, GuessedStep | None]]
"""The links of a chain, each with what else floats know of its step."""


def search_chains(network: Network, rounds: int) -> tuple[ChainWitness | GraphChain, ...]:
    """A chain with the closed form, and one with multipliers tuned in so many rounds; none where floats find none.

    Raises: TooWideError if a graph of layers is so wide that it would take too much time or memory.
    """
    if not has_ellipsoids(network):
        return search_graph_chains(network, rounds)
    closed = search_chain(network)
    if closed is None:
        return ()
    multipliers = tuned_multipliers(network, rounds) if rounds else None
    tuned = None if multipliers is None else search_chain(network, multipliers)
    return (closed,) if tuned is None else (closed, tuned)


def search_chain(network: Network, multipliers: Multipliers | None = None) -> ChainWitness | None:
    """A chain with these multipliers, or with the closed form; None if floats break down (at a zero layer, say)."""
    found = _guess(network, multipliers)
    return None if found is None else tuple(link for link, _ in found)


def _guess(network: Network, multipliers: Sequence[Floats] | None) -> _Guess | None:
    found: _Guess = []
    for index, layer in enumerate(network.layers[:-1]):
        chosen = None if multipliers is None else multipliers[index]
        try:
            found.append(_guess_link(layer, found[-1][0].after if found else None, chosen))
        except (np.linalg.LinAlgError, FloatingPointError):
            return None
    return found


def _guess_link(layer: Layer, before: Floats | None, chosen: Floats | None) -> tuple[ChainLink, GuessedStep | None]:
    near = layer.weights.near_floats()
    w = near.values
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        s = w @ w.T if before is None else w @ before @ w.T
        s = (s + s.T) / 2
        top = largest_eigenvalue(s)
        if not 0 < top < math.inf:
            raise FloatingPointError("no positive eigenvalue")
        power = math.frexp(top)[1]
        majorant = guess_majorant(np.ldexp(s, -power))
        top = math.ldexp(top, -power) + majorant.lift
        factor = factor_above(majorant.above, top)
        if factor is None:
            raise FloatingPointError("no factor")
        sector, guessed = _sector(layer), None
        if sector is not None:
            relative = _closed_form(sector) if chosen is None else chosen
            guessed = guess_step(majorant.above, sector, np.sqrt(relative / top))
    size, step = factor.shift * (1 + _ROOM), None if guessed is None else guessed.step
    return ChainLink(power + 2 * near.exponent, majorant, factor, size, step), guessed


def _closed_form(sector: Sector) -> Floats:
    """v²·||S|| as `ellipsoids` proposes it."""
    found: Floats = np.minimum(sector.spread / (np.abs(sector.middle) + sector.spread), _LARGEST)
    return found


def _sector(layer: Layer) -> Sector | None:
    """The sector of the activation over its constant, as floats around it."""
    slopes = slopes_over_constant(layer)
    if slopes is None:
        return None
    low, high = slopes
    middle = float((low + high) / 2)
    reach = max(high - Fraction(middle), Fraction(middle) - low)  # from the float, not from the middle itself
    spread = float_enclosure(reach, reach)[1]
    rows = layer.shape[0]
    return Sector(np.full(rows, middle), np.full(rows, spread))


def tuned_multipliers(network: Network, rounds: int) -> Multipliers | None:
    """Multipliers that lower the mean of the logarithms of the margins, as far as floats tell; None if nothing does.

    Of at most `_DIRECTIONS` pairs, spread over all: a mean needs no more.
    A network whose layers do not all have sectors keeps the closed form.
    """
    guess = _guess(network, None)
    if guess is None or any(step is None for _, step in guess):
        return None
    last = network.layers[-1].weights.near_floats().values
    upper, lower = np.tril_indices(len(last), -1)
    some = np.linspace(0, len(upper) - 1, min(len(upper), _DIRECTIONS)).astype(np.intp)
    d = (last[upper[some]] - last[lower[some]]).T
    weights = [layer.weights.near_floats().values for layer in network.layers[1:-1]]
    best: Multipliers | None = None
    # Where floats end, so does the search: what was found before stands.
    with contextlib.suppress(FloatingPointError), np.errstate(over="raise", invalid="raise", divide="raise"):
        least = _mean_log(guess, d)
        now = [_closed_form(link.step.sector) for link, _ in guess if link.step is not None]
        for _ in range(rounds):
            factors = improved_weights([step for _, step in guess if step is not None], weights, d)
            moved = backed_off(now, factors, lambda wanted: _guess(network, wanted))
            if moved is None:
                break
            guess, now = moved
            if (found := _mean_log(guess, d)) < least:
                least, best = found, tuple(now)
    return best


def _mean_log(guess: _Guess, d: Floats) -> float:
    """The mean logarithm of the squared margins, up to a constant."""
    scale = sum(link.exponent for link, _ in guess) * math.log(2)
    squares = (d * (guess[-1][0].after @ d)).sum(axis=0)
    return float(np.log(np.maximum(squares, 1e-300)).mean()) + scale
