"""The search for what shows the norm of a linear map: what `proof.layer_norms` checks. Nothing here is trusted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Literal, get_args

import numpy as np

from intervalcert.model.linear_maps import ChannelWise, Convolution, Dense, LinearMap
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.proof.banded import BandedWitness
from intervalcert.proof.blocks import BlockFactor
from intervalcert.proof.layer_norms import ConvolutionWitness, NormWitness
from intervalcert.proof.norms import Iterations
from intervalcert.search.convolutions import (
    choose_method,
    estimate,
    search_banded,
    search_direction,
    search_semi_torus,
    search_torus,
)
from intervalcert.search.factors import FloatGram

__all__ = ["METHODS", "NormMethod", "norm_cost", "search_norm"]

NormMethod = Literal["auto", "gram", "cholesky"]
METHODS: tuple[NormMethod, ...] = get_args(NormMethod)

KEPT_BYTES = 2**26
"""Factors of a convolution that take no more are kept, to be stored with the bounds."""

_FLOP = 5e-11
"""Seconds for an operation in a product of matrices."""

SMALL = 16
"""Up to this side Gram iteration costs next to nothing, and often gives the very norm: `auto` tries both. Beyond it,
Cholesky alone: a factor is only kept if floats find it good, and then no other bound is noticeably tighter."""


def search_norm(linear: LinearMap, method: NormMethod, iterations: Iterations) -> NormWitness:
    """A witness by that method, which is about matrices; of other maps by the only one that there is for them."""
    if isinstance(linear, Dense | ChannelWise):
        return _search_matrix(linear.matrix, method, iterations)
    if isinstance(linear, Convolution):
        return NormWitness(search_direction(linear), blocks=tuple(map(_search_block, linear.blocks())))
    return NormWitness(np.zeros(1))


_SEARCHES: dict[str, Callable[[Convolution], ConvolutionWitness]] = {
    "banded": search_banded,
    "semi-torus": search_semi_torus,
    "torus": search_torus,
}


def _search_block(block: Convolution) -> ConvolutionWitness:
    """By the method that fits. Small factors are kept; others are made anew whenever somebody asks for them."""
    method = choose_method(block)
    found, plan = _SEARCHES[method](block), estimate(block)[method]
    if plan.bytes * (1 if method == "banded" else plan.steps) > KEPT_BYTES:
        return found
    if isinstance(found, BandedWitness):
        return replace(found, factor=_kept(found.factor))
    return replace(found, factors=tuple(map(_kept, found.factors)))


def norm_cost(linear: LinearMap) -> tuple[float, int]:
    """About how many seconds the norm of a map takes on float64, and how often a step is told."""
    if isinstance(linear, Convolution):
        plans = [estimate(block)[choose_method(block)] for block in linear.blocks()]
        return sum(plan.seconds for plan in plans), sum(plan.steps for plan in plans)
    if isinstance(linear, Dense | ChannelWise):
        short, long = sorted(linear.matrix.shape)
        return 1e-4 + short**2 * (2 * long + 4 * short) * _FLOP, 1
    return 1e-4, 1


def _kept(factor: BlockFactor) -> BlockFactor:
    return replace(factor, rows=tuple(factor.rows))


def _search_matrix(weights: RationalMatrix, method: NormMethod, iterations: Iterations) -> NormWitness:
    """`cholesky` takes Gram iteration, too, where floats find no factor."""
    gram = FloatGram(weights)
    factor = None if method == "gram" else gram.factor()
    alone = factor is not None and (method == "cholesky" or min(weights.shape) > SMALL)
    return NormWitness(gram.direction(), factor, None if alone else iterations)
