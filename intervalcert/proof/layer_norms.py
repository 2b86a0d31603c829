"""The operator norm of a layer, from both sides: the witness and its check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Generic

import numpy as np

from intervalcert.backends.protocol import Backend, Floats, S
from intervalcert.errors import InconclusiveError, UndecidedError
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.proof.cholesky import Factor, cholesky_upper
from intervalcert.proof.data import Witness
from intervalcert.proof.norms import Iterations, norm_lower, norm_upper

__all__ = ["MOST_APART", "NormClaim", "NormWitness", "check_norm"]


MOST_APART = 64
"""Bits between the scale of a factor and that of the matrix that it is about: farther apart, it proves nothing that is
of use, and exact numbers would be long."""


@dataclass(frozen=True, eq=False, repr=False)
class NormWitness(Witness):
    """What shows the norm of a weight matrix W.

    direction: a vector, one entry per column of W, near the first right singular one; it shows the lower bound.
    factor: of c·I - G for the smaller Gram matrix G of W. steps: of Gram iteration. One of the two shows the upper
    bound; where there are both, the smaller bound counts.
    """

    direction: Floats
    factor: Factor | None = None
    steps: Iterations | None = None


@dataclass(frozen=True)
class NormClaim(Generic[S]):
    """lower <= ||W||, and `upper` encloses a bound from above; by ``cholesky``, or by so many steps of ``gram``."""

    lower: Fraction
    upper: S
    method: str
    steps: int


def check_norm(
    weights: RationalMatrix, witness: NormWitness, backend: Backend[Any], on_step: Callable[[], None] = lambda: None
) -> NormClaim[Any]:
    """What the witness proves. Guarantees: it is true, whatever the witness is.

    Raises: InconclusiveError if it proves nothing on this number system.
    """
    direction, factor = witness.direction, witness.factor
    if factor is not None and abs(factor.exponent - weights.near_floats().exponent) > MOST_APART:
        raise UndecidedError("a factor on a scale far from that of the layer")
    is_vector = direction.shape == weights.shape[1:] and direction.dtype == np.float64
    if not (is_vector and np.isfinite(direction).all() and direction.any()):
        raise UndecidedError("a direction that is none of the inputs of the layer")
    matrix = backend.matrix(weights)
    lower = norm_lower(matrix, backend.matrix(RationalMatrix.from_floats(direction[:, None])), backend)
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
