"""Certifiers that are broken on purpose, each in one place. A harness that does not catch them is worth nothing.

Uses much of the package itself: what is broken here lies inside. The question is put as a user puts it: one part is
replaced, and `compute_bounds` is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any
from unittest.mock import patch

import numpy as np

from compare.harness import Asked
from intervalcert import Bounds, Network, api
from intervalcert.backends.exact import ExactBackend, ExactMatrix, ExactScalar
from intervalcert.backends.generic import GenericMatrix, hull_of_roots
from intervalcert.backends.protocol import Floats, Truth
from intervalcert.model import layers as layers_module
from intervalcert.model.activations import MaxPool
from intervalcert.model.layers import Layer
from intervalcert.model.linear_maps import Convolution, IndexMap, LinearMap
from intervalcert.model.merging import merged
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.rounding import sqrt_lower
from intervalcert.proof import chain, cholesky, circulant_levels, ellipsoids, torus
from intervalcert.search import chain as chain_search
from intervalcert.search import convolutions as convolution_search
from intervalcert.search import layer_norms as norm_search
from intervalcert.search.ellipsoids import GuessedStep, guess_majorant, guess_step
from intervalcert.search.local import near_float
from intervalcert.verify import deployed, falsify
from intervalcert.verify import filter as filter_module
from intervalcert.verify.dual_cases import ChainCase

__all__ = [
    "BOUND_CONTROLS",
    "CONVOLUTION_CONTROLS",
    "GRADIENT_CONTROLS",
    "GRAPH_CONTROLS",
    "HUNT_CONTROLS",
    "SPOILED",
    "VERDICT_CONTROLS",
    "Broken",
]

Logits = tuple[Fraction, ...]


# -- numbers that are rounded toward zero, as floats without directed rounding would be ------------------------------


def _toward_zero(x: Fraction, bits: int) -> Fraction:
    if x == 0:
        return x
    scale = Fraction(2) ** (bits - x.numerator.bit_length() + x.denominator.bit_length())
    return Fraction(int(x * scale)) / scale


@dataclass(frozen=True)
class _Truncated:
    """A number of `bits` bits; every operation forgets what does not fit."""

    value: Fraction
    bits: int

    def _of(self, value: Fraction) -> _Truncated:
        return _Truncated(_toward_zero(value, self.bits), self.bits)

    def __add__(self, other: _Truncated) -> _Truncated:
        return self._of(self.value + other.value)

    def __sub__(self, other: _Truncated) -> _Truncated:
        return self._of(self.value - other.value)

    def __mul__(self, other: _Truncated) -> _Truncated:
        return self._of(self.value * other.value)

    def __truediv__(self, other: _Truncated) -> _Truncated:
        return self._of(self.value / other.value)

    def lower(self) -> Fraction:
        return self.value

    def upper(self) -> Fraction:
        return self.value

    def less(self, other: _Truncated) -> Truth:
        return Truth.of(proved=self.value < other.value, refuted=self.value >= other.value)


@dataclass(frozen=True)
class _TruncatingBackend:
    prec: int
    name = "rounds toward zero"
    working_bits = None

    def refined(self) -> None:
        return None

    def scalar(self, value: Fraction) -> _Truncated:
        return _Truncated(_toward_zero(value, self.prec), self.prec)

    def hull(self, lower: Fraction, upper: Fraction) -> _Truncated:
        return self.scalar((lower + upper) / 2)

    def sqrt_upper(self, x: _Truncated) -> _Truncated:
        return hull_of_roots(x, self)

    def matrix(self, data: RationalMatrix) -> GenericMatrix[_Truncated]:
        return GenericMatrix.of(self, data)


# -- an exact backend whose rounding step is broken ------------------------------------------------------------------


class _WithoutError(ExactMatrix):
    """Cuts entries off toward zero and reports that nothing was lost."""

    def rounded(self, bits: int) -> tuple[ExactMatrix, ExactScalar]:
        cut = abs(self.numerators << bits) // self.denominator
        signs = (self.numerators > 0).astype(int) - (self.numerators < 0).astype(int)
        return _WithoutError(cut * signs.astype(object), 1 << bits), ExactScalar(Fraction(0))

    def gram(self) -> ExactMatrix:
        product = super().gram()
        return _WithoutError(product.numerators, product.denominator)

    def ldexp(self, exponent: int) -> ExactMatrix:
        moved = super().ldexp(exponent)
        return _WithoutError(moved.numerators, moved.denominator)


class _WithoutWidening(ExactMatrix):
    """Leaves the rounding step out: more digits than the reference keeps, so it falls below it."""

    def rounded(self, bits: int) -> tuple[ExactMatrix, ExactScalar]:
        return super().rounded(bits + 40)

    def gram(self) -> ExactMatrix:
        product = super().gram()
        return _WithoutWidening(product.numerators, product.denominator)

    def ldexp(self, exponent: int) -> ExactMatrix:
        moved = super().ldexp(exponent)
        return _WithoutWidening(moved.numerators, moved.denominator)


@dataclass(frozen=True)
class _WithMatrix(ExactBackend):
    """The exact backend with another kind of matrix."""

    kind: type[ExactMatrix] = ExactMatrix

    def matrix(self, data: RationalMatrix) -> ExactMatrix:
        return self.kind(data.numerators, data.denominator)


def _run(network: Network, backend: object, asked: Asked) -> Bounds:
    """Bounds by that number system in the place of exact rationals: without another one behind it."""
    with patch.object(api, "precision_ladder", lambda *_: (backend,)):
        return asked.bounds(network, "exact")


def _truncating(network: Network, asked: Asked) -> Bounds:
    return _run(network, _TruncatingBackend(asked.prec), asked)


def _without_error(network: Network, asked: Asked) -> Bounds:
    return _run(network, _WithMatrix(asked.prec, _WithoutError), asked)


def _without_widening(network: Network, asked: Asked) -> Bounds:
    return _run(network, _WithMatrix(asked.prec, _WithoutWidening), asked)


def _roots_from_below(network: Network, asked: Asked) -> Bounds:
    with patch.object(ExactBackend, "sqrt_upper", lambda self, x: ExactScalar(sqrt_lower(x.value, self.prec))):
        return asked.bounds(network, "exact")


def _nothing(_: object, backend: Any) -> Any:
    """In the place of the Frobenius norm of a residual."""
    return backend.scalar(Fraction(0))


def _without_residual(network: Network, asked: Asked) -> Bounds:
    with patch.object(cholesky, "frobenius_upper", _nothing):
        return asked.bounds(network, "exact")


# -- chains that are broken --------------------------------------------------------------------------------------------

_HAIR = 2.0**-10


def _shrunk_after_the_proof(network: Network, asked: Asked) -> Bounds:
    """A thousandth less of each P' is handed to the next layer than was proved."""

    def point(values: Floats, backend: Any) -> Any:
        return ellipsoids.point(values * (1 - _HAIR), backend)

    with patch.object(chain, "point", point):
        return asked.bounds(network, "exact")


def _with_slopes(network: Network, low: Fraction, high: Fraction, asked: Asked) -> Bounds:
    """Another sector is believed of all activations."""
    with patch.object(Layer, "slopes", property(lambda layer: None if layer.activation is None else (low, high))):
        return asked.bounds(network, "exact")


def _narrow_sector(network: Network, asked: Asked) -> Bounds:
    """ReLU taken for a leaky one."""
    return _with_slopes(network, Fraction(_HAIR), Fraction(1), asked)


def _norm_of_s_without_residual(network: Network, asked: Asked) -> Bounds:
    with patch.object(chain, "eigenvalue_upper", lambda _, factor, backend: backend.scalar(factor.c)):
        return asked.bounds(network, "exact")


@contextmanager
def _spoiled_s() -> Iterator[None]:
    """Floats guess every S too small."""
    with patch.object(chain_search, "guess_majorant", lambda s: guess_majorant(s * 0.75)):
        yield


@contextmanager
def _spoiled_k() -> Iterator[None]:
    """Floats guess a K that is too large, and all that follows from it."""
    with patch.object(chain_search, "guess_step", lambda s, sector, v: guess_step(s * 0.75, sector, v)):
        yield


@contextmanager
def _spoiled_g() -> Iterator[None]:
    """Floats guess a G in which one column is lost."""

    def guess(s: Floats, sector: ellipsoids.Sector, v: Floats) -> GuessedStep:
        found = guess_step(s, sector, v)
        step = found.step
        g = step.g * np.where(np.arange(step.side) == 0, 0.0, 1.0)
        h = s @ (step.v[:, None] * g)
        core = sector.middle[:, None] * (s + h @ h.T) * sector.middle
        core = (core + core.T) / 2
        after = core + np.diag(step.after.diagonal() - step.core.diagonal())
        return replace(found, step=replace(step, g=g, core=core, after=after))

    with patch.object(chain_search, "guess_step", guess):
        yield


def _believed(spoiled: Callable[[], Any]) -> Broken:
    def compute(network: Network, asked: Asked) -> Bounds:
        with spoiled(), patch.object(ellipsoids, "frobenius_upper", _nothing):
            return asked.bounds(network, "exact")

    return compute


def _unbelieved(spoiled: Callable[[], Any]) -> Broken:
    def compute(network: Network, asked: Asked) -> Bounds:
        with spoiled():
            return asked.bounds(network, "exact")

    return compute


Broken = Callable[[Network, Asked], Bounds]
_GRAM = Asked(16, "gram", 5, "product")
_CHOLESKY = Asked(64, "cholesky", 5, "product")
_CHAIN = Asked(64, "cholesky", 5, "chain")
_TUNED = Asked(64, "cholesky", 5, "chain", 3)

BOUND_CONTROLS: dict[str, tuple[Asked, Broken]] = {
    "rounding toward zero": (_GRAM, _truncating),
    "dropping the truncation error": (_GRAM, _without_error),
    "dropping the widening": (_GRAM, _without_widening),
    "a square root from below": (_GRAM, _roots_from_below),
    "a Cholesky factor that is believed": (_CHOLESKY, _without_residual),
    "chain: a matrix smaller than proved": (_CHAIN, _shrunk_after_the_proof),
    "chain: a sector that is too narrow": (_CHAIN, _narrow_sector),
    "chain: a square root from below": (_CHAIN, _roots_from_below),
    "chain: the norm of S believed": (_CHAIN, _norm_of_s_without_residual),
    "chain: a spoiled S believed": (_CHAIN, _believed(_spoiled_s)),
    "chain: a spoiled K believed": (_CHAIN, _believed(_spoiled_k)),
    "chain: a spoiled G believed": (_CHAIN, _believed(_spoiled_g)),
    "chain, tuned: a matrix smaller than proved": (_TUNED, _shrunk_after_the_proof),
    "chain, tuned: a spoiled K believed": (_TUNED, _believed(_spoiled_k)),
}
"""What is asked for, and the broken computation."""

SPOILED: dict[str, tuple[Asked, Broken]] = {
    "a spoiled S": (_CHAIN, _unbelieved(_spoiled_s)),
    "a spoiled K": (_CHAIN, _unbelieved(_spoiled_k)),
    "a spoiled G": (_CHAIN, _unbelieved(_spoiled_g)),
}
"""The same bad guesses, in honest hands: each must be given up, for the product."""


# -- norms of convolutions -------------------------------------------------------------------------------------------


def _on_a_torus(network: Network, asked: Asked) -> Bounds:
    """By waves, whatever else would be shorter."""
    with patch.object(norm_search, "choose_method", lambda _: "torus"):
        return asked.bounds(network, "exact")


def _without_a_frequency(network: Network, asked: Asked) -> Bounds:
    """The first one, that of the mean, is left out: in the search, and in the proof."""
    honest = torus.frequencies

    def fewer(*arguments: Any) -> list[torus.Frequency]:
        found = honest(*arguments)
        return found[1:] or found

    with patch.object(torus, "frequencies", fewer), patch.object(convolution_search, "frequencies", fewer):
        return _on_a_torus(network, asked)


def _period_too_small(network: Network, asked: Asked) -> Bounds:
    """By one."""
    honest = torus.period
    with patch.object(torus, "period", lambda axis: max(1, honest(axis) - 1)):
        return _on_a_torus(network, asked)


CONVOLUTION_CONTROLS: dict[str, tuple[Asked, Broken]] = {
    "convolution: a frequency left out": (_CHOLESKY, _without_a_frequency),
    "convolution: a period one too small": (_CHOLESKY, _period_too_small),
}
"""Those of graphs, as above."""


# -- wrong by so much that gradients tell ----------------------------------------------------------------------------


def _first_layer_skipped(network: Network) -> Bounds:
    """A published fault: the recursion starts at the second layer. (Its sigmas are those of other layers.)"""
    weights = [layer.weights for layer in network.layers[1:]]
    found = _CHAIN.bounds(Network.of(weights, between=network.activations[1:-1]), "exact")
    return replace(found, margins=replace(found.margins, sigmas=()))


def _half_the_spread(network: Network) -> Bounds:
    """The multiplier's sector is [m - ρ/2, m + ρ/2]: a ReLU whose slopes lie between 1/4 and 3/4."""
    return _with_slopes(network, Fraction(1, 4), Fraction(3, 4), _CHAIN)


def _without_the_multiplier(network: Network) -> Bounds:
    """Q = M·B·M, without the W² of the activation's part."""

    def guess(s: Floats, sector: ellipsoids.Sector, v: Floats) -> GuessedStep:
        found = guess_step(s, sector, v)
        return replace(found, step=replace(found.step, after=found.step.core))

    with patch.object(chain_search, "guess_step", guess), patch.object(ellipsoids, "is_raised", lambda *_: True):
        return _CHAIN.bounds(network, "exact")


GRADIENT_CONTROLS: dict[str, Callable[[Network], Bounds]] = {
    "the first layer skipped": _first_layer_skipped,
    "half the spread of the sector": _half_the_spread,
    "a step without its multiplier": _without_the_multiplier,
}
"""Of dense networks."""


# -- graphs ------------------------------------------------------------------------------------------------------------

_ANY_PRODUCT = Asked(64, "auto", "auto", "product")
_ANY_CHAIN = Asked(64, "auto", "auto", "chain")


def _skips_left_out(network: Network, asked: Asked) -> Bounds | None:
    """Of x + F(x), the bounds of F(x)."""
    layers = []
    for layer in network.layers:
        kept = tuple(term for term in layer.terms if not (isinstance(term.map, IndexMap) and term.map.is_identity))
        layers.append(replace(layer, terms=kept or layer.terms))
    if tuple(layers) == network.layers:
        return None
    return asked.bounds(replace(network, layers=tuple(layers)), "exact")


def _of_the_wrong_sign(network: Network, asked: Asked) -> Bounds | None:
    """Of x + C·x, the bounds of x - C·x."""
    if all(len(layer.branches) == len(layer.terms) for layer in network.layers):
        return None
    anew = replace(network, layers=tuple(replace(layer) for layer in network.layers))  # what it merged is not kept
    with patch.object(layers_module, "merged", lambda one, other: merged(_negative(one), other)):
        return asked.bounds(anew, "exact")


def _negative(linear: LinearMap) -> LinearMap:
    if isinstance(linear, Convolution):
        return replace(linear, kernel=RationalMatrix(-linear.kernel.numerators, linear.kernel.denominator))
    if isinstance(linear, IndexMap) and linear.factors is None:
        return replace(linear, factors=RationalMatrix.filled((linear.shape[0], 1), Fraction(-1)))
    raise ValueError(f"{linear} is no map of a residual connection here")


def _windows_counted_once(network: Network, asked: Asked) -> Bounds | None:
    """A maximum over windows that overlap, taken for one over windows that do not."""
    if not any(isinstance(layer.activation, MaxPool) for layer in network.layers):
        return None
    with patch.object(MaxPool, "lipschitz", Fraction(1)):
        return asked.bounds(network, "exact")


def _without_the_mask(network: Network, asked: Asked) -> Bounds | None:
    """Beyond the grid, a torus has the slopes of the activation, where the network has zeros."""
    if not network.is_chain:
        return None
    with patch.object(circulant_levels, "widened", lambda slopes: slopes):
        return asked.bounds(network, "exact")


def _asked(asked: Asked, broken: Callable[[Network, Asked], Bounds | None]) -> Callable[[Network], Bounds | None]:
    return lambda network: broken(network, asked)


GRAPH_CONTROLS: dict[str, Callable[[Network], Bounds | None]] = {
    "product: a skip left out": _asked(_ANY_PRODUCT, _skips_left_out),
    "chain: a skip left out": _asked(_ANY_CHAIN, _skips_left_out),
    "product: a residual of the wrong sign": _asked(_ANY_PRODUCT, _of_the_wrong_sign),
    "chain: a residual of the wrong sign": _asked(_ANY_CHAIN, _of_the_wrong_sign),
    "product: windows that overlap counted once": _asked(_ANY_PRODUCT, _windows_counted_once),
    "chain: a torus without its mask": _asked(_ANY_CHAIN, _without_the_mask),
}
"""Of graphs; None where there is nothing to break."""


# -- verdicts --------------------------------------------------------------------------------------------------------


def _winner_by_value(bounds: Bounds, logits: Logits, eps: Fraction) -> bool:
    """Leaves out every class whose logit equals the largest: the tie-masking fault of a published certifier."""
    j, y = logits.index(max(logits)), logits
    return all(y[j] - y[i] > eps * bounds.margins.matrix[i][j] for i in range(len(y)) if y[i] != y[j])


def _eps_as_float(bounds: Bounds, logits: Logits, eps: Fraction) -> bool:
    """Reads 0.3 as the float next to it, which is below."""
    j, y, read = logits.index(max(logits)), logits, Fraction(float(eps))
    return all(y[j] - y[i] > read * bounds.margins.matrix[i][j] for i in range(len(y)) if i != j)


VERDICT_CONTROLS = {"excluding the winner by value": _winner_by_value, "eps read as a float": _eps_as_float}


# -- the pipeline of a point, and the decision of many outputs ---------------------------------------------------------


@contextmanager
def _narrow_ranges() -> Iterator[None]:
    """Half as wide as they are, for search and proof alike."""
    honest = ChainCase._around

    def around(case: ChainCase, reaches: Any) -> Any:
        return honest(case, [reach / 2 for reach in reaches])

    with patch.object(ChainCase, "_around", around):
        yield


@contextmanager
def _counterexamples_believed() -> Iterator[None]:
    """From an attack that reaches out a little further than it may."""
    with (
        patch.object(falsify, "near_float", lambda eps: near_float(eps) * 1.01),
        patch.object(falsify, "check_counterexample", lambda *_: "exact"),
    ):
        yield


@contextmanager
def _programs_without_errors() -> Iterator[None]:
    with patch.object(deployed, "_kappa", lambda *_: Fraction(0)):
        yield


@contextmanager
def _radii_of_ties() -> Iterator[None]:
    """The float next to a supremum in the place of the one below it."""
    honest = filter_module._float_below_quotient

    def nearest(*arguments: Any) -> Any:
        radius, sure = honest(*arguments)
        return np.nextafter(radius, np.inf), sure

    with patch.object(filter_module, "_float_below_quotient", nearest):
        yield


HUNT_CONTROLS: dict[str, tuple[str, Callable[[], Any], int]] = {
    "ranges half as wide": ("points", _narrow_ranges, 0),
    "counterexamples believed": ("points", _counterexamples_believed, 0),
    "a program without errors": ("programs", _programs_without_errors, 0),
    "a radius that is not below": ("outputs", _radii_of_ties, 0),
}
"""The kind of rounds that must catch it, what is broken, and the number of the first round that is tried."""
