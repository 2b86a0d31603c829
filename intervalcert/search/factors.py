"""Floats that are guessed, not computed: near-singular vectors and near-factorisations of a layer.

Nothing here is trusted. What the guesses are used for holds whatever they are; good ones only make it tight. They come
from floats alone, so that every backend gets the same ones and results stay comparable.
"""

from __future__ import annotations

from functools import cached_property, lru_cache

import numpy as np

from intervalcert.backends.protocol import Floats
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.proof.cholesky import Factor

__all__ = ["FloatGram", "factor_above", "largest_eigenvalue"]

_SHIFT = 2.0**-44
"""A factor is taken of c·I - G for a c above the guess of ||G|| by this part of it, times the side of G. Rounding moves
eigenvalues by some 2^-53 times the side: Cholesky's method succeeds, on any machine."""


_NEGLIGIBLE = 2.0**-150
"""What is smaller than this part of the largest entry of a factor is left out: exact integers stay short."""

_GOOD = 2.0**-36
"""A factor is given up if it is wrong by more than this part of c: the library that made it is broken."""


def largest_eigenvalue(symmetric: Floats) -> float:
    """Near it, or above."""
    try:
        return float(np.linalg.eigvalsh(symmetric)[-1])
    except np.linalg.LinAlgError:  # no convergence: this one is larger, which costs tightness alone
        return float(np.linalg.norm(symmetric))


def factor_above(symmetric: Floats, largest: float, exponent: int = 0) -> Factor | None:
    """A factor for G = symmetric·4^exponent and a c just above `largest`·4^exponent; None if there is none."""
    shifts = (largest * (1 + len(symmetric) * _SHIFT * wider) for wider in (1, 2**8, 2**16))
    attempts = (_factor(symmetric, c, exponent) for c in shifts)
    return next((found for found in attempts if found is not None), None)


def _shifted(symmetric: Floats, c: float) -> Floats:
    """c·I - G."""
    made = -symmetric
    made.flat[:: len(made) + 1] += c
    return made


def _factor(symmetric: Floats, c: float, exponent: int) -> Factor | None:
    try:
        triangle: Floats = np.asarray(np.linalg.cholesky(_shifted(symmetric, c)), dtype=np.float64)
    except np.linalg.LinAlgError:  # not positive definite
        return None
    if not _is_good(triangle, symmetric, c):
        return None
    triangle = np.where(np.abs(triangle) >= _NEGLIGIBLE * np.abs(triangle).max(), triangle, 0.0)
    return Factor(c, triangle, exponent)


def _is_good(triangle: Floats, symmetric: Floats, c: float) -> bool:
    """Whether L·Lᵀ acts on some vector like c·I - G, as far as floats tell."""
    if not np.isfinite(triangle).all():
        return False
    x = _start(len(triangle))
    with np.errstate(all="ignore"):  # what overflows is not good
        apart = triangle @ (triangle.T @ x) - (c * x - symmetric @ x)
        return bool(np.linalg.norm(apart) <= _GOOD * c * np.linalg.norm(x))


class FloatGram:
    """The smaller Gram matrix of some weights W, in floats; what follows from it is made when it is asked for."""

    def __init__(self, weights: RationalMatrix) -> None:
        near = weights.near_floats()
        self._weights, self._exponent = near.values, near.exponent

    @cached_property
    def _gram(self) -> Floats:
        """On the scale 4^exponent."""
        a = self._weights
        rows, columns = a.shape
        product: Floats = a @ a.T if rows <= columns else a.T @ a
        return product

    @cached_property
    def _largest(self) -> float:
        return largest_eigenvalue(self._gram)

    def direction(self) -> Floats:
        """A vector near the first right singular one, of integers; never zero.

        A step of inverse iteration. The Rayleigh quotient errs by the square of the error of its vector: 30 bits of it
        are as good as 60.
        """
        rows, columns = self._weights.shape
        side = len(self._gram)
        try:
            x = np.linalg.solve(_shifted(self._gram, self._largest * (1 + side * _SHIFT)), _start(side))
        except np.linalg.LinAlgError:
            x = _start(side)
        x = self._weights.T @ x if rows <= columns else x
        largest = np.max(np.abs(x))
        integers: Floats = np.rint(x / largest * 2**30) if 0 < largest < np.inf else np.zeros(columns)
        if not integers.any():  # W is zero, or all products underflowed: take the column with the largest entry
            integers[int(np.argmax(np.max(np.abs(self._weights), axis=0)))] = 1
        return integers

    def factor(self) -> Factor | None:
        """A factor for a c just above ||G||; None if there is none."""
        return factor_above(self._gram, self._largest, self._exponent)


@lru_cache(maxsize=16)
def _start(side: int) -> Floats:
    """A vector that no structure of a matrix is orthogonal to."""
    return np.random.default_rng(side).standard_normal(side)
