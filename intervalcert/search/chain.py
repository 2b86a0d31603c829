"""Margin bounds tighter than the product of norms: one ellipsoid is carried through all layers.

Let Δ_l be the difference of the outputs of layer l for two inputs, Δ_0 that of the inputs. With the ellipsoids of
`ellipsoids` and q = ||Δ_0||²: Δ_0 is in E(I, q) by Cauchy and Schwarz; a layer's weights take E(P, q) to E(S, q) with
S = WPWᵀ, its activation, whose difference quotients lie in a sector, takes that to E(P', q) by the step proved there.
At the end Δ is in E(P, q). The lead of class j over class i changes by dᵀΔ, d = W_n[j] - W_n[i], and (dᵀΔ)² <= q·dᵀPd:

    L[i][j] = sqrt(dᵀ P d).

* Wide, narrow and rank-deficient layers are nothing special: S = WPWᵀ exists for every W.
* Another sector than that of ReLU, [0, 1], has another middle and spread; for the identity the spread is 0, and the
  step is Q = S. A sector is first divided by the activation's constant b, and P' multiplied by b².
* Factors of a layer that are not known exactly (`UncertainScale`) belong to the activation: they widen its sector.
* An activation that mixes components has no sector. ||Δ|| <= b·||WΔ_{l-1}||, and ||x||² <= ||S||·q for x in E(S, q):
  P' = b²·t·I with t >= ||S||, the step of the product.
* For a single layer there is no step, P = I, and L = ||d|| is the product's, too.
* A zero layer makes every margin 0, and the product says so: there is no chain then.

Beside the margins stands σ_l >= ||S_l|| for each hidden layer, so that the layer's inner values, before the activation,
change by at most sqrt(σ_l) per unit of the input's distance.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from intervalcert.backends.escalation import SHARP_BITS
from intervalcert.backends.protocol import Backend, Floats, Matrix, S, Scalar, Vector, is_wider
from intervalcert.errors import UndecidedError
from intervalcert.model.layers import Layer
from intervalcert.model.network import Network
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.rounding import dyadic_value, float_enclosure
from intervalcert.proof.cholesky import Factor, eigenvalue_upper
from intervalcert.proof.ellipsoids import LoewnerMajorant, Sector, Step, guess_step, point, prove_below, prove_step
from intervalcert.search.factors import factor_above, largest_eigenvalue
from intervalcert.search.multipliers import improved_weights

__all__ = ["Chain", "Multipliers", "chain_bounds", "distances_squared", "guess_chain", "tuned_multipliers"]

Multipliers = tuple[Floats, ...]
"""v_k²·||S|| of each neuron of each hidden layer: without a unit; 1/2 for ReLU where nothing better is known."""

_LARGEST = 1 - 2.0**-10
"""The most that v²·||S|| starts with: K = I - VSV must be positive definite with some room."""

_ROOM = 2.0**-30
"""By this part, a number without a sector's step is above the norm that it stands for."""

_DIRECTIONS = 4_096
"""So many pairs of classes are looked at while multipliers are tuned: all of 91 classes."""


@dataclass(frozen=True, eq=False)
class Link:
    """What floats guess for one hidden layer; S is on the scale 2^exponent, and P' without the activation's constant.

    s: a guess of S from above; factor: for a bound of ||S'||; size: a number above that.
    step: None for an activation without a sector; P' is then size·I.
    """

    exponent: int
    s: LoewnerMajorant
    factor: Factor
    size: float
    step: Step | None

    @property
    def after(self) -> Floats:
        """P'."""
        return self.size * np.eye(len(self.s.above)) if self.step is None else self.step.after


Chain = tuple[Link, ...]


# -- guessing --------------------------------------------------------------------------------------------------------


def guess_chain(network: Network, multipliers: Multipliers | None = None) -> Chain | None:
    """Floats for every hidden layer; None if they break down somewhere (a zero layer, say)."""
    links: list[Link] = []
    for index, layer in enumerate(network.layers[:-1]):
        chosen = None if multipliers is None else multipliers[index]
        try:
            links.append(_guess(layer, links[-1].after if links else None, chosen))
        except (np.linalg.LinAlgError, FloatingPointError):
            return None
    return tuple(links)


def _guess(layer: Layer, before: Floats | None, chosen: Floats | None) -> Link:
    near = layer.weights.near_floats()
    w = near.values
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        s = w @ w.T if before is None else w @ before @ w.T
        s = (s + s.T) / 2
        top = largest_eigenvalue(s)
        if not 0 < top < math.inf:
            raise FloatingPointError("no positive eigenvalue")
        power = math.frexp(top)[1]
        lifted = LoewnerMajorant.guess(np.ldexp(s, -power))
        top = math.ldexp(top, -power) + lifted.lift
        factor = factor_above(lifted.above, top)
        if factor is None:
            raise FloatingPointError("no factor")
        size = float(factor.shift) * (1 + _ROOM)
        sector = _sector(layer)
        step = None
        if sector is not None:
            relative = _closed_form(sector) if chosen is None else chosen
            step = guess_step(lifted.above, sector, np.sqrt(relative / top))
    return Link(power + 2 * near.exponent, lifted, factor, size, step)


def _closed_form(sector: Sector) -> Floats:
    """v²·||S|| as `ellipsoids` proposes it."""
    found: Floats = np.minimum(sector.spread / (np.abs(sector.middle) + sector.spread), _LARGEST)
    return found


def _sector(layer: Layer) -> Sector | None:
    """The sector of the activation over its constant, as floats around it."""
    if layer.activation is None or layer.slopes is None:
        return None
    low, high = (x / layer.activation.lipschitz for x in layer.slopes)
    middle = float((low + high) / 2)
    reach = max(high - Fraction(middle), Fraction(middle) - low)  # from the float, not from the middle itself
    spread = float_enclosure(reach, reach)[1]
    rows = layer.weights.shape[0]
    return Sector(np.full(rows, middle), np.full(rows, spread))


def _encloses(middle: float, spread: float, low: Fraction, high: Fraction) -> bool:
    return Fraction(middle) - Fraction(spread) <= low and high <= Fraction(middle) + Fraction(spread)


def tuned_multipliers(network: Network, rounds: int) -> Multipliers | None:
    """Multipliers that lower the mean of the logarithms of the margins, as far as floats tell; None if nothing does.

    Of at most `_DIRECTIONS` pairs, spread over all: a mean needs no more.
    A network whose layers do not all have sectors keeps the closed form.
    """
    links = guess_chain(network)
    if links is None or any(link.step is None for link in links):
        return None
    last = network.layers[-1].weights.near_floats().values
    upper, lower = np.tril_indices(len(last), -1)
    some = np.linspace(0, len(upper) - 1, min(len(upper), _DIRECTIONS)).astype(np.intp)
    d = (last[upper[some]] - last[lower[some]]).T
    weights = [layer.weights.near_floats().values for layer in network.layers[1:-1]]
    best: Multipliers | None = None
    # Where floats end, so does the search: what was found before stands.
    with contextlib.suppress(FloatingPointError), np.errstate(over="raise", invalid="raise", divide="raise"):
        least, now = _mean_log(links, d), _relative(links)
        for _ in range(rounds):
            factors = improved_weights([link.step for link in links if link.step is not None], weights, d)
            moved = _moved(network, now, factors)
            if moved is None:
                break
            links, now = moved
            if (found := _mean_log(links, d)) < least:
                least, best = found, now
    return best


def _moved(network: Network, now: Multipliers, factors: Sequence[Floats]) -> tuple[Chain, Multipliers] | None:
    """A chain with changed multipliers; with less of a change while K is not positive definite."""
    for part in (1.0, 0.5, 0.25):
        wanted = tuple(old * factor ** (2 * part) for old, factor in zip(now, factors, strict=True))
        links = guess_chain(network, wanted)
        if links is not None:
            return links, wanted
    return None


def _relative(links: Chain) -> Multipliers:
    return tuple(_closed_form(link.step.sector) for link in links if link.step is not None)


def _mean_log(links: Chain, d: Floats) -> float:
    """The mean logarithm of the squared margins, up to a constant."""
    scale = sum(link.exponent for link in links) * math.log(2)
    squares = (d * (links[-1].after @ d)).sum(axis=0)
    return float(np.log(np.maximum(squares, 1e-300)).mean()) + scale


# -- proving ---------------------------------------------------------------------------------------------------------


def chain_bounds(network: Network, chain: Chain, backend: Backend[Any]) -> tuple[Vector[Any], list[Scalar]]:
    """L[i][j]² for all pairs (i, j), in the order of `pairs.PairMatrix`, and σ_l for the hidden layers.

    Guarantees: each encloses the value of the exact run with the same guesses, which is a bound as above.
    Raises: UndecidedError if a guess is not proved here.
    """
    gain = Fraction(1)
    sigmas: list[Scalar] = []
    before: Matrix[Any] | None = None
    for layer, link in zip(network.layers[:-1], chain, strict=True):
        w = backend.matrix(layer.weights)
        s = ((w if before is None else w @ before) @ w.transposed()).ldexp(-link.exponent)
        above = prove_below(s, link.s, backend)
        sigma = eigenvalue_upper(above, link.factor, backend)
        if link.step is not None:
            if not _is_sector_of(layer, link.step.sector):
                raise UndecidedError("a sector does not hold the slopes of the activation")
            prove_step(link.step, above, backend)
        elif not sigma.less(backend.scalar(Fraction(link.size))).certainly():
            raise UndecidedError("a chain's number is not proved to be large enough")
        gain *= dyadic_value(1, link.exponent)
        sigmas.append(sigma * backend.scalar(gain))
        gain *= layer.activation.lipschitz**2 if layer.activation else 1
        before = point(link.after, backend)
    squares = distances_squared(network.layers[-1].weights, before, backend)
    return squares.scalar_mul(backend.scalar(gain)), sigmas


def distances_squared(weights: RationalMatrix, metric: Matrix[S] | None, backend: Backend[S]) -> Vector[S]:
    """dᵀPd for the differences d of all pairs of rows, in the order of `pairs.PairMatrix`; P = I without a metric.

    Guarantees: each encloses that number. Where rows are so near each other that the enclosure is of no use, their
    difference is taken exactly, and by itself; until that is of no use, either, and a finer number system is needed.
    """
    found = backend.matrix(weights).distances_squared(metric)
    close = found.blunt(SHARP_BITS)
    if not close:
        return found
    numerators, again = weights.numerators, {}
    upper, lower = np.tril_indices(len(numerators), -1)
    for place in close:
        apart = numerators[upper[place]] - numerators[lower[place]]
        if apart.any():
            two = RationalMatrix(np.stack([apart, np.zeros_like(apart)]), weights.denominator)
            again[place] = backend.matrix(two).distances_squared(metric)[0]
            if is_wider(again[place], SHARP_BITS):
                break
        else:
            again[place] = backend.scalar(Fraction(0))
    return found.replaced(again)


def _is_sector_of(layer: Layer, sector: Sector) -> bool:
    """Whether it holds all difference quotients over the constant; exactly."""
    if layer.activation is None or layer.slopes is None:
        return False
    low, high = (x / layer.activation.lipschitz for x in layer.slopes)
    ends = set(zip(sector.middle.tolist(), sector.spread.tolist(), strict=True))
    return all(_encloses(middle, spread, low, high) for middle, spread in ends)
