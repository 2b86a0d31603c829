"""The operator norm of a linear map, from both sides: the witness and its check, for each kind of map."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Generic

import numpy as np

from intervalcert.backends.protocol import Backend, Floats, S
from intervalcert.errors import InconclusiveError, UndecidedError
from intervalcert.model.linear_maps import ChannelWise, Convolution, Dense, IndexMap, LinearMap
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.rounding import sqrt_lower
from intervalcert.proof.banded import BandedWitness, banded_upper
from intervalcert.proof.blocks import MOST_APART, largest
from intervalcert.proof.cholesky import Factor, cholesky_upper
from intervalcert.proof.data import Witness
from intervalcert.proof.norms import LOWER_BITS, Iterations, frobenius_upper, norm_lower, norm_upper
from intervalcert.proof.torus import SemiTorusWitness, TorusWitness, semi_torus_upper, torus_upper

__all__ = ["CLAIMED", "ConvolutionWitness", "NormClaim", "NormWitness", "check_norm"]

ConvolutionWitness = BandedWitness | SemiTorusWitness | TorusWitness

CLAIMED = ("gram", "cholesky", "banded", "semi-torus", "torus", "frobenius", "exact")
"""How a norm may have been bounded. Two maps have no need of a witness: an index map, whose norm is exact, and any
convolution, by its Frobenius norm."""


@dataclass(frozen=True, eq=False, repr=False)
class NormWitness(Witness):
    """What shows the norm of a linear map T.

    direction: a vector, one entry per input, near the first right singular one; it shows the lower bound. Of an index
    map nobody asks for one.
    Of a matrix W: factor, of c·I - G for the smaller Gram matrix G of W; steps, of Gram iteration. One of the two shows
    the upper bound; where there are both, the smaller bound counts.
    Of a convolution: blocks, one for each of its blocks (`Convolution.blocks`); none at all for its Frobenius norm.
    """

    direction: Floats
    factor: Factor | None = None
    steps: Iterations | None = None
    blocks: tuple[ConvolutionWitness, ...] = ()


@dataclass(frozen=True)
class NormClaim(Generic[S]):
    """lower <= ||T||, and `upper` encloses a bound from above, by one of `CLAIMED`; `steps` are those of ``gram``."""

    lower: Fraction
    upper: S
    method: str
    steps: int


def check_norm(
    linear: LinearMap, witness: NormWitness, backend: Backend[Any], on_step: Callable[[], None] = lambda: None
) -> NormClaim[Any]:
    """What the witness proves. Guarantees: it is true, whatever the witness is.

    Raises: InconclusiveError if it proves nothing on this number system.
    """
    if isinstance(linear, Dense | ChannelWise):  # the same matrix for each channel: its norm is theirs
        return _check_matrix(linear.matrix, witness, backend, on_step)
    if isinstance(linear, Convolution):
        return _check_convolution(linear, witness, backend, on_step)
    if isinstance(linear, IndexMap):
        square = linear.norm_squared()
        return NormClaim(_root_lower(square, backend), backend.sqrt_upper(backend.scalar(square)), "exact", 0)
    raise ValueError(f"{linear!r} is no map whose norm is known")


def _root_lower(square: Fraction, backend: Backend[Any]) -> Fraction:
    return sqrt_lower(max(square, Fraction(0)), max(backend.prec, LOWER_BITS))


def _column(direction: Floats, inputs: int) -> RationalMatrix:
    """Raises: UndecidedError unless it is a vector of so many numbers, not all zero."""
    is_vector = isinstance(direction, np.ndarray) and direction.shape == (inputs,) and direction.dtype == np.float64
    if not (is_vector and np.isfinite(direction).all() and direction.any()):
        raise UndecidedError("a direction that is none of the inputs of the layer")
    return RationalMatrix.from_floats(direction[:, None])


def _check_matrix(
    weights: RationalMatrix, witness: NormWitness, backend: Backend[Any], on_step: Callable[[], None]
) -> NormClaim[Any]:
    factor = witness.factor
    if factor is not None and (
        type(factor.exponent) is not int or abs(factor.exponent - weights.near_floats().exponent) > MOST_APART
    ):
        raise UndecidedError("a factor on a scale far from that of the layer")
    direction = backend.matrix(_column(witness.direction, weights.shape[1]))
    matrix = backend.matrix(weights)
    lower = norm_lower(matrix, direction, backend)
    by_factor = None
    if factor is not None:
        by_factor = NormClaim(lower, cholesky_upper(matrix, factor, backend), "cholesky", 0)
        on_step()
    if witness.steps is None:
        if by_factor is None:
            raise UndecidedError("a witness of no upper bound")
        return by_factor
    try:
        upper, steps = norm_upper(matrix, backend, witness.steps, on_step)
    except InconclusiveError:
        if by_factor is None:
            raise
        return by_factor
    by_gram = NormClaim(lower, upper, "gram", steps)
    return by_factor if by_factor and by_factor.upper.upper() <= upper.upper() else by_gram


def _check_convolution(
    convolution: Convolution, witness: NormWitness, backend: Backend[Any], on_step: Callable[[], None]
) -> NormClaim[Any]:
    """Groups do not see each other: the norm is the largest of their norms.

    Lower: ||Tx||/||x|| for the direction x. Upper, without witnesses: ||T|| <= `stretch`·||K||_F.
    """
    x = backend.matrix(_column(witness.direction, convolution.shape[1]))
    stretched = convolution.on(backend).apply(x).frobenius_squared() / x.frobenius_squared()
    lower = _root_lower(stretched.lower(), backend)
    blocks = convolution.blocks()
    if not witness.blocks:
        norms = (frobenius_upper(backend.matrix(block.kernel), backend) for block in blocks)
        upper = largest(list(norms), backend) * backend.scalar(convolution.stretch)
        on_step()
        return NormClaim(lower, upper, "frobenius", 0)
    if len(witness.blocks) != len(blocks):
        raise UndecidedError("a witness of another number of groups")
    pairs = zip(blocks, witness.blocks, strict=True)
    found = [_block_upper(block, proof, backend, on_step) for block, proof in pairs]
    methods = [method for _, method in found]
    return NormClaim(lower, largest([upper for upper, _ in found], backend), max(methods, key=CLAIMED.index), 0)


def _block_upper(
    block: Convolution, witness: ConvolutionWitness, backend: Backend[Any], on_step: Callable[[], None]
) -> tuple[Any, str]:
    if isinstance(witness, BandedWitness):
        return banded_upper(block, witness, backend, on_step), "banded"
    if isinstance(witness, SemiTorusWitness):
        return semi_torus_upper(block, witness, backend, on_step), "semi-torus"
    if isinstance(witness, TorusWitness):
        return torus_upper(block, witness, backend, on_step), "torus"
    raise UndecidedError("a witness of no kind that is known")
