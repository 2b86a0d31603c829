"""Operator norms from above by one Cholesky factorisation: far tighter than Gram iteration, in two products.

The norm of a symmetric G is at most c if c·I - G is positive semidefinite. Floats give a triangular L with
L·Lᵀ ~ c·I - G; how near it is can be computed, on any number system, with two products.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from intervalcert.backends.protocol import Backend, Floats, Matrix, S
from intervalcert.errors import UndecidedError
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.rounding import dyadic_value
from intervalcert.proof.data import Witness
from intervalcert.proof.norms import frobenius_upper

__all__ = ["Factor", "cholesky_upper", "eigenvalue_upper"]


@dataclass(frozen=True, eq=False, repr=False)
class Factor(Witness):
    """The witness: a number c and a triangular L with c·I - G ~ L·Lᵀ for a symmetric G.

    c is shift·4^exponent and L triangle·2^exponent: floats, so that each is a multiple of a power of two.
    """

    shift: float
    triangle: Floats
    exponent: int = 0

    @property
    def c(self) -> Fraction:
        return Fraction(self.shift) * dyadic_value(1, 2 * self.exponent)


def eigenvalue_upper(symmetric: Matrix[S], factor: Factor, backend: Backend[S]) -> S:
    """An upper bound of xᵀGx over all unit vectors x, whatever the factor is: c + ||E||_F, E = c·I - G - L·Lᵀ.

    Proof.  xᵀGx = c - ||Lᵀx||² - xᵀEx <= c + ||E||_F.
    Raises: UndecidedError if the factor is none of a matrix like that.
    """
    triangle = factor.triangle
    is_matrix = triangle.shape == symmetric.shape and triangle.dtype == np.float64
    is_number = type(factor.shift) is float and math.isfinite(factor.shift) and type(factor.exponent) is int
    if not (is_matrix and is_number and np.isfinite(triangle).all()):
        raise UndecidedError("a factor of another shape, or no matrix of numbers")
    multiple = RationalMatrix.from_floats(np.diag(np.full(len(triangle), factor.shift)), 2 * factor.exponent)
    square = backend.matrix(RationalMatrix.from_floats(triangle, factor.exponent)).gram()
    residual = backend.matrix(multiple) - symmetric - square
    return backend.scalar(factor.c) + frobenius_upper(residual, backend)


def cholesky_upper(matrix: Matrix[S], factor: Factor, backend: Backend[S]) -> S:
    """An upper bound of the operator norm ||M||.

    Guarantees: the result encloses the bound of the exact run with the same factor, which is at least ||M||, whatever
    the factor is. If it is the float Cholesky factor of c·I - G, of side n, the relative excess over sqrt(c) is near
    n·2^-53, to which enclosures add their own (`float64` n²·2^-54: 1e-12 for 128, 1e-9 for 4096); and c itself is above
    ||G|| by n·2^-44.

    Proof. Let G be the smaller Gram matrix, ||G|| = ||M||². It is symmetric and positive semidefinite, so ||G|| is the
    largest xᵀGx, which `eigenvalue_upper` bounds.

    Nothing is assumed of the factorisation. (Rump, Verification of positive definiteness, BIT Numerical Mathematics 46,
    2006, concludes from the mere success of a float factorisation with a shifted diagonal, by an a priori bound of its
    errors. That saves a product, but trusts the library's algorithm, and holds for floats alone. The residual is
    measured here instead: what a broken library returns is only a bad guess, and every number system can check it.)
    """
    return backend.sqrt_upper(eigenvalue_upper(matrix.gram(), factor, backend))
