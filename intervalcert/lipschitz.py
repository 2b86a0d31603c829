"""Margin Lipschitz bounds: how fast the lead of one class over another can shrink.

L[i][j] >= sup over u != v of |(N(v)_j - N(v)_i) - (N(u)_j - N(u)_i)| / ||v - u||. Biases cancel in the differences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from operator import mul
from typing import Any

from intervalcert.fallback import describe, is_sharp, settle
from intervalcert.layerwise import LayerBound, Plan, layer_bound
from intervalcert.network import Network
from intervalcert.norms import frobenius_upper
from intervalcert.protocol import Backend, Scalar
from intervalcert.rational import round_up

__all__ = ["Margins", "NetworkBounds", "layer_bounds", "network_bounds", "product_margins"]


@dataclass(frozen=True)
class Margins:
    """The symmetric matrix of margin bounds (zero on the diagonal), and how it was found."""

    matrix: tuple[tuple[Fraction, ...], ...]
    computed_by: str
    refused: tuple[str, ...] = ()


@dataclass(frozen=True)
class NetworkBounds:
    """What the first stage gives: a bound of each layer, and from them the margins."""

    layers: tuple[LayerBound, ...]
    margins: Margins


def layer_bounds(
    network: Network,
    rungs: Sequence[Backend[Any]],
    plans: Sequence[Plan],
    on_step: Callable[[int], None] = lambda _: None,
) -> tuple[LayerBound, ...]:
    """A bound of every layer's operator norm; there is one plan per layer."""
    return tuple(
        layer_bound(layer.weights, rungs, plan, lambda index=index: on_step(index))  # type: ignore[misc]
        for index, (layer, plan) in enumerate(zip(network.layers, plans, strict=True))
    )


def product_margins(network: Network, layers: Sequence[LayerBound], rungs: Sequence[Backend[Any]]) -> Margins:
    """L[i][j] = (product over the hidden layers of lipschitz(activation)·||W||) · ||W_n[j] - W_n[i]||.

    Guarantees: each entry is a margin Lipschitz bound, a dyadic of `prec` bits.
    Requires: `layers` are sound bounds of this network's layers.

    Proof. A layer stretches distances by at most ||W||, its activation by at most its constant; so the inputs of the
    last layer differ by at most the product times ||v - u||. The lead of j over i is the inner product of the last
    input with W_n[j] - W_n[i], up to a constant; Cauchy and Schwarz.
    All factors are non-negative, so the upper ends of the norms may stand for the norms.
    """
    last = network.layers[-1].weights
    classes = range(network.outputs)

    def compute(backend: Backend[Any]) -> dict[tuple[int, int], Scalar]:
        factors = [bound.upper for bound in layers[:-1]]
        factors += [layer.activation.lipschitz for layer in network.layers if layer.activation is not None]
        body = reduce(mul, map(backend.scalar, factors), backend.scalar(Fraction(1)))
        head = backend.matrix(last)
        rows = [head.row(i) for i in classes]
        return {(i, j): body * frobenius_upper(rows[j] - rows[i], backend) for j in classes for i in range(j)}

    settled = settle(rungs, compute, is_useful=lambda found: all(map(is_sharp, found.values())))
    # Rounding up to prec bits happens on every backend, is monotone, and keeps the file small.
    upper = {pair: round_up(value.upper(), settled.backend.prec) for pair, value in settled.value.items()}
    return Margins(
        tuple(tuple(Fraction(0) if i == j else upper[min(i, j), max(i, j)] for j in classes) for i in classes),
        describe(settled.backend),
        settled.refused,
    )


def network_bounds(
    network: Network,
    rungs: Sequence[Backend[Any]],
    plans: Sequence[Plan],
    on_step: Callable[[int], None] = lambda _: None,
) -> NetworkBounds:
    """The whole first stage on one ladder of number systems."""
    layers = layer_bounds(network, rungs, plans, on_step)
    return NetworkBounds(layers, product_margins(network, layers, rungs))
