"""Plain floats in the place of a number system, for those who guess: it encloses nothing, and obeys no law.

What is written over the protocols of `backends` runs on it, as far as it is needed here: linear maps, and the way of
images through a graph (`proof.graphs`). It is in no registry, and nobody who proves can ask for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from intervalcert.backends.protocol import Floats, Indices
from intervalcert.numbers.matrices import RationalMatrix

__all__ = ["PlainBackend", "PlainMatrix"]


@dataclass(frozen=True, eq=False)
class PlainMatrix:
    """A matrix near the one that is meant."""

    values: Floats

    @property
    def shape(self) -> tuple[int, int]:
        rows, columns = self.values.shape
        return rows, columns

    def __add__(self, other: PlainMatrix) -> PlainMatrix:
        return PlainMatrix(self.values + other.values)

    def __sub__(self, other: PlainMatrix) -> PlainMatrix:
        return PlainMatrix(self.values - other.values)

    def __matmul__(self, other: PlainMatrix) -> PlainMatrix:
        return PlainMatrix(self.values @ other.values)

    def transposed(self) -> PlainMatrix:
        return PlainMatrix(self.values.T)

    def ldexp(self, exponent: int) -> PlainMatrix:
        return PlainMatrix(np.ldexp(self.values, exponent))

    def block(self, rows: Indices, columns: Indices) -> PlainMatrix:
        return PlainMatrix(self.values[np.ix_(rows, columns)])

    def rows_at(self, index: Indices) -> PlainMatrix:
        taken = self.values[index]
        taken[index < 0] = 0.0
        return PlainMatrix(taken)

    def reshaped(self, shape: tuple[int, int]) -> PlainMatrix:
        return PlainMatrix(self.values.reshape(shape))

    def stacked(self, others: Sequence[PlainMatrix]) -> PlainMatrix:
        return PlainMatrix(np.concatenate([self.values, *(other.values for other in others)]))

    def row_scaled(self, column: PlainMatrix) -> PlainMatrix:
        return PlainMatrix(self.values * column.values)

    def diag_scaled(self, rows: Floats, columns: Floats) -> PlainMatrix:
        return PlainMatrix(self.values * rows[:, None] * columns)


class PlainBackend:
    """Makes such matrices. Raises: FloatingPointError for numbers beyond the floats."""

    name = "floats"

    def matrix(self, data: RationalMatrix) -> PlainMatrix:
        near = data.near_floats()
        if not near.exponent:
            return PlainMatrix(near.values)
        with np.errstate(over="ignore"):
            made = np.ldexp(near.values, near.exponent)
        if not np.isfinite(made).all():
            raise FloatingPointError("weights beyond the floats")
        return PlainMatrix(made)
