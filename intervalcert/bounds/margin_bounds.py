"""Margin Lipschitz bounds: how fast the lead of one class over another can shrink.

L[i][j] >= sup over u != v of |(N(v)_j - N(v)_i) - (N(u)_j - N(u)_i)| / ||v - u||. Biases cancel in the differences.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, reduce
from operator import mul
from typing import Any, Literal, get_args

import numpy as np

from intervalcert.backends.escalation import SHARP_BITS, Escalated, describe, escalate
from intervalcert.backends.protocol import Backend, Floats, Scalar, Vector
from intervalcert.bounds.norm_bounds import LayerBound, Plan, layer_bound
from intervalcert.errors import InconclusiveError, InputError, UsageError
from intervalcert.model.network import Network
from intervalcert.numbers.pairs import PairMatrix, floats_above
from intervalcert.numbers.parsing import MAX_BINARY_EXPONENT
from intervalcert.numbers.rounding import round_up
from intervalcert.numbers.text import decimal_upper
from intervalcert.search.chain import Multipliers, chain_bounds, distances_squared, guess_chain, tuned_multipliers

__all__ = [
    "MARGIN_METHODS",
    "MAX_EFFORT",
    "MarginMethod",
    "MarginPlan",
    "Margins",
    "NetworkBounds",
    "layer_bounds",
    "network_bounds",
    "product_margins",
]


MarginMethod = Literal["product", "chain", "best"]
MARGIN_METHODS: tuple[MarginMethod, ...] = get_args(MarginMethod)

CHAIN_SLACK = Fraction(1, 2**40)
"""What a chain gives is published this part above what was found. It rests on matrices guessed in floats, which differ
from machine to machine by some 1e-14: with the slack, an audit elsewhere confirms it."""

MAX_EFFORT = 1000

NO_CHAIN = "chain: floats find none that is proved (a layer of zeros, or sizes beyond them): the product stands"


@dataclass(frozen=True)
class MarginPlan:
    """How margins are to be bounded.

    method: the product of norms; the chain; or best, the smaller of both for each pair of classes.
    effort: rounds of tuning the multipliers of the chain, in floats; the chain with the closed form is kept beside it.
    multipliers: in the place of tuned ones (for audits of what they gave).
    slack: see `CHAIN_SLACK`.
    """

    method: MarginMethod = "best"
    effort: int = 0
    multipliers: tuple[tuple[Fraction, ...], ...] = ()
    slack: Fraction = CHAIN_SLACK

    def __post_init__(self) -> None:
        if self.method not in MARGIN_METHODS:
            raise UsageError(f"there are no margins by {self.method!r}: choose one of {', '.join(MARGIN_METHODS)}")
        if type(self.effort) is not int or not 0 <= self.effort <= MAX_EFFORT:
            raise UsageError(f"an effort of {self.effort!r}: choose 0..{MAX_EFFORT} rounds")
        if self.effort and self.method == "product":
            raise UsageError("effort tunes the chain, and margins by the product have none: choose chain or best")


@dataclass(frozen=True)
class Margins:
    """The symmetric matrix of margin bounds (zero on the diagonal), and how it was found.

    matrix: exact, `matrix[i][j]`; a `PairMatrix` from whoever computes or reads one.
    sigmas: bounds of ||S_l|| for the hidden layers, by the chain in its closed form; none without a chain.
    multipliers: those of the tuned chain, where there is one.
    """

    matrix: Sequence[Sequence[Fraction]]
    computed_by: str
    skipped_because: tuple[str, ...] = ()
    sigmas: tuple[Fraction, ...] = ()
    multipliers: tuple[tuple[Fraction, ...], ...] = ()

    def __repr__(self) -> str:
        most = float(self.floats_upper.max())
        shown = decimal_upper(Fraction(most), 6) if math.isfinite(most) else "something beyond the floats"
        return f"<Margins of {len(self.matrix)} classes, at most {shown}>"

    @cached_property
    def floats_upper(self) -> Floats:
        """The matrix as floats: the least ones that are not below, infinite beyond the floats. Not to be written to."""
        return floats_above(self.matrix)


@dataclass(frozen=True)
class NetworkBounds:
    """What the first stage gives: a bound of each layer, and from them the margins."""

    layers: tuple[LayerBound, ...]
    margins: Margins


def layer_bounds(
    network: Network,
    ladder: Sequence[Backend[Any]],
    plans: Sequence[Plan],
    on_step: Callable[[int], None] = lambda _: None,
) -> tuple[LayerBound, ...]:
    """A bound of every layer's operator norm; there is one plan per layer. A matrix of several layers counts once."""
    known: dict[tuple[int, Plan], LayerBound] = {}
    for index, (layer, plan) in enumerate(zip(network.layers, plans, strict=True)):
        if (id(layer.weights), plan) in known:
            on_step(index)
        else:
            bound = layer_bound(layer.weights, ladder, plan, lambda index=index: on_step(index))  # type: ignore[misc]
            known[id(layer.weights), plan] = bound
    return tuple(known[id(layer.weights), plan] for layer, plan in zip(network.layers, plans, strict=True))


def _check_size(network: Network, layers: Sequence[LayerBound]) -> None:
    """Raises: InputError if the product of the norms and constants is so far from 1 that no bounds file holds it."""
    constants = [layer.activation.lipschitz for layer in network.layers if layer.activation is not None]
    bits = sum(max(x.numerator.bit_length(), x.denominator.bit_length()) for x in constants)
    bits += sum(abs(x.numerator.bit_length() - x.denominator.bit_length()) for x in (bound.upper for bound in layers))
    if bits > MAX_BINARY_EXPONENT:
        raise InputError(
            f"the layers and slopes of the model multiply to a number of some {bits} bits, and at most "
            f"{MAX_BINARY_EXPONENT} are held: rescale the model's layers"
        )


def product_margins(network: Network, layers: Sequence[LayerBound], ladder: Sequence[Backend[Any]]) -> Margins:
    """L[i][j] = (product over the hidden layers of lipschitz(activation)·||W||) · ||W_n[j] - W_n[i]||.

    Guarantees: each entry is a margin Lipschitz bound, a dyadic of `prec` bits.
    Requires: `layers` are sound bounds of this network's layers.

    Proof. A layer stretches distances by at most ||W||, its activation by at most its constant; so the inputs of the
    last layer differ by at most the product times ||v - u||. The lead of j over i is the inner product of the last
    input with W_n[j] - W_n[i], up to a constant; Cauchy and Schwarz.
    All factors are non-negative, so the upper ends of the norms may stand for the norms.
    """

    def compute(backend: Backend[Any]) -> Vector[Any]:
        factors = [bound.upper for bound in layers[:-1]]
        factors += [layer.activation.lipschitz for layer in network.layers if layer.activation is not None]
        body = reduce(mul, map(backend.scalar, factors), backend.scalar(Fraction(1)))
        return distances_squared(network.layers[-1].weights, None, backend).roots(backend).scalar_mul(body)

    settled = escalate(ladder, compute, is_useful=_is_sharp)
    # Rounding up to prec bits happens on every backend, is monotone, and keeps the file small.
    return _margins(settled.value, settled)


def _is_sharp(found: Vector[Any]) -> bool:
    return not found.blunt(SHARP_BITS)


def chain_margins(
    network: Network,
    ladder: Sequence[Backend[Any]],
    slack: Fraction = CHAIN_SLACK,
    multipliers: Multipliers | None = None,
) -> Margins | None:
    """The margins of `chain`, each above what was found by `slack`; None if floats guess no chain, or a wrong one.

    Guarantees: each entry is a margin Lipschitz bound, a dyadic of `prec` bits. Raises: InconclusiveError if the last
    number system can neither prove the guess nor, being exact, refute it.
    """
    guess = guess_chain(network, multipliers)
    if guess is None:
        return None

    def compute(backend: Backend[Any]) -> tuple[Vector[Any], list[Scalar]]:
        squares, sigmas = chain_bounds(network, guess, backend)
        return squares.roots(backend), sigmas

    try:
        settled = escalate(ladder, compute, is_useful=lambda found: _is_sharp(found[0]))
    except InconclusiveError:
        if ladder[-1].working_bits is not None:
            raise  # finer numbers might prove it: then the exact run would take the chain, and so must this one
        return None
    (roots, sigmas), raised = settled.value, settled.backend.scalar(1 + slack)
    upper = (round_up(sigma.upper() * (1 + slack), settled.backend.prec) for sigma in sigmas)
    return replace(_margins(roots.scalar_mul(raised), settled), sigmas=tuple(upper))


def _margins(found: Vector[Any], settled: Escalated[Any]) -> Margins:
    matrix = PairMatrix(found.upper(settled.backend.prec))
    return Margins(matrix, describe(settled.backend), settled.skipped_because)


def _smaller(one: Margins, other: Margins) -> Margins:
    """The smaller of both, pair by pair; what else `one` says stays."""
    matrix = PairMatrix(PairMatrix.of(one.matrix).entries.smaller(PairMatrix.of(other.matrix).entries))
    refused = tuple(dict.fromkeys(one.skipped_because + other.skipped_because))
    return replace(one, matrix=matrix, skipped_because=refused)


def margins_by(
    plan: MarginPlan, network: Network, layers: Sequence[LayerBound], ladder: Sequence[Backend[Any]]
) -> Margins:
    """The product, the chain, or the smaller of both, pair by pair. Without a chain or a hidden layer: the product.

    A chain that was asked for and not found is among what was refused.
    """
    if plan.method == "product" or len(layers) == 1:
        return product_margins(network, layers, ladder)
    chain = _best_chain(plan, network, ladder)
    if chain is not None and plan.method == "chain":
        return chain
    product = product_margins(network, layers, ladder)
    if chain is None:
        return replace(product, skipped_because=(*product.skipped_because, NO_CHAIN))
    return _smaller(chain, product)


def _best_chain(plan: MarginPlan, network: Network, ladder: Sequence[Backend[Any]]) -> Margins | None:
    """The chain in its closed form and, if asked for, with tuned multipliers: the smaller, pair by pair."""
    closed = chain_margins(network, ladder, plan.slack)
    tuned: Multipliers | None = None
    if plan.multipliers:
        tuned = tuple(np.array([float(x) for x in row]) for row in plan.multipliers)
    elif plan.effort:
        tuned = tuned_multipliers(network, plan.effort)
    if closed is None or tuned is None:
        return closed
    found = chain_margins(network, ladder, plan.slack, tuned)
    if found is None:
        return closed
    exact = tuple(tuple(Fraction(x) for x in row.tolist()) for row in tuned)
    return replace(_smaller(closed, found), multipliers=exact)


def network_bounds(
    network: Network,
    ladder: Sequence[Backend[Any]],
    plans: Sequence[Plan],
    on_step: Callable[[int], None] = lambda _: None,
    *,
    margins: MarginPlan | None = None,
) -> NetworkBounds:
    """The whole first stage on one ladder of number systems. Raises: InputError for margins too large to be written."""
    layers = layer_bounds(network, ladder, plans, on_step)
    _check_size(network, layers)
    return NetworkBounds(layers, margins_by(margins or MarginPlan(), network, layers, ladder))
