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

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Generic

import numpy as np

from intervalcert.backends.escalation import SHARP_BITS
from intervalcert.backends.protocol import Backend, Floats, Matrix, S, Vector, is_wider
from intervalcert.errors import UndecidedError
from intervalcert.model.activations import MaxPool, Sorting
from intervalcert.model.layers import Layer
from intervalcert.model.network import Network
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.rounding import dyadic_value
from intervalcert.proof.blocks import MOST_APART
from intervalcert.proof.cholesky import Factor, eigenvalue_upper
from intervalcert.proof.data import Witness
from intervalcert.proof.ellipsoids import LoewnerMajorant, Sector, Step, check_majorant, check_step, point
from intervalcert.proof.graph_chain import GraphChain, graph_squares
from intervalcert.proof.graphs import Passage

__all__ = [
    "ChainClaim",
    "ChainLink",
    "ChainWitness",
    "check_chain",
    "distances_squared",
    "has_ellipsoids",
    "slopes_over_constant",
]


_MOST_APART = 500
"""Bits between the scale of S and that of the weights, squared: farther apart, exact numbers would be long."""


@dataclass(frozen=True, eq=False, repr=False)
class ChainLink(Witness):
    """The witness of one hidden layer; S is on the scale 2^exponent, and P' without the activation's constant.

    s: S from above; factor: for a bound of ||S'||; size: a number above that.
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


ChainWitness = tuple[ChainLink, ...]
"""One link for each hidden layer."""


@dataclass(frozen=True)
class ChainClaim(Generic[S]):
    """squares: L[i][j]² for all pairs (i, j), in the order of `pairs.PairMatrix`; sigmas: σ_l of the hidden layers."""

    squares: Vector[S]
    sigmas: tuple[S, ...]


def slopes_over_constant(layer: Layer) -> tuple[Fraction, Fraction] | None:
    """Ends of the difference quotients of a layer's activation over its constant; None if it has no sector."""
    if layer.activation is None or layer.slopes is None:
        return None
    low, high = (x / layer.activation.lipschitz for x in layer.slopes)
    return low, high


def has_ellipsoids(network: Network) -> bool:
    """Whether it is a chain of matrices, with activations of which sectors are known or only the constant is.

    Of others, such as sorting in groups that are known, more is known: they go the way of `graph_chain`.
    """
    functions = [layer.activation for layer in network.layers if layer.activation is not None]
    return network.is_dense and not any(
        isinstance(function, MaxPool) or (isinstance(function, Sorting) and function.size is not None)
        for function in functions
    )


def check_chain(network: Network, witness: ChainWitness | GraphChain, backend: Backend[Any]) -> ChainClaim[Any]:
    """Guarantees: each number encloses that of the exact run with the same witness, which is a bound as above.

    Of a graph of layers, by `graph_chain`, without sigmas.
    Raises: InconclusiveError unless the witness is proved on this number system.
    """
    ellipsoids = [link for link in witness if isinstance(link, ChainLink)]
    links = tuple(link for link in witness if not isinstance(link, ChainLink))
    if has_ellipsoids(network) and not links:
        return _check_ellipsoids(network, ellipsoids, backend)
    if ellipsoids or has_ellipsoids(network):
        raise UndecidedError("a chain of another kind of network")
    found = graph_squares(Passage(network, backend), network, links, backend)
    if found is None:  # the logits are the same for all inputs
        zeros = RationalMatrix.filled((network.outputs, 1), Fraction(0))
        return ChainClaim(distances_squared(zeros, None, backend), ())
    return ChainClaim(distances_squared(*found, backend), ())


def _check_ellipsoids(network: Network, witness: Sequence[ChainLink], backend: Backend[Any]) -> ChainClaim[Any]:
    """Of a chain of matrices."""
    if len(witness) != len(network.layers) - 1:
        raise UndecidedError("a chain of another number of layers")
    gain = Fraction(1)
    sigmas: list[Any] = []
    before: Matrix[Any] | None = None
    for layer, link in zip(network.layers[:-1], witness, strict=True):
        if not type(link.exponent) is type(link.factor.exponent) is int:
            raise UndecidedError("a chain on no scale")
        apart = abs(link.exponent - 2 * layer.weights.near_floats().exponent)
        if apart > _MOST_APART or abs(link.factor.exponent) > MOST_APART:
            raise UndecidedError("a chain on a scale far from that of the layer")
        w = backend.matrix(layer.weights)
        s = ((w if before is None else w @ before) @ w.transposed()).ldexp(-link.exponent)
        above = check_majorant(s, link.s, backend)
        sigma = eigenvalue_upper(above, link.factor, backend)
        if link.step is not None:
            if not _is_sector_of(layer, link.step.sector):
                raise UndecidedError("a sector does not hold the slopes of the activation")
            check_step(link.step, above, backend)
        elif not (
            type(link.size) is float
            and math.isfinite(link.size)
            and sigma.less(backend.scalar(Fraction(link.size))).certainly()
        ):
            raise UndecidedError("a chain's number is not proved to be large enough")
        gain *= dyadic_value(1, link.exponent)
        sigmas.append(sigma * backend.scalar(gain))
        gain *= layer.activation.lipschitz**2 if layer.activation else 1
        before = point(link.after, backend)
    squares = distances_squared(network.layers[-1].weights, before, backend)
    return ChainClaim(squares.scalar_mul(backend.scalar(gain)), tuple(sigmas))


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
    slopes = slopes_over_constant(layer)
    if slopes is None or sector.middle.shape != sector.spread.shape or sector.middle.ndim != 1:
        return False
    if not (np.isfinite(sector.middle).all() and np.isfinite(sector.spread).all()):
        return False
    ends = set(zip(sector.middle.tolist(), sector.spread.tolist(), strict=True))
    return all(_encloses(middle, spread, *slopes) for middle, spread in ends)


def _encloses(middle: float, spread: float, low: Fraction, high: Fraction) -> bool:
    return Fraction(middle) - Fraction(spread) <= low and high <= Fraction(middle) + Fraction(spread)
