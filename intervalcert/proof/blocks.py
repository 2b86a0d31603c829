"""Norms of block matrices from above, by block-banded Cholesky factors: what all bounds of convolutions rest on.

A complex matrix A is given by its blocks, all of one shape, of which many are equal: block row r has the block with the
name `rows[r][k]` in block column k, and zeros elsewhere. Rows that have a column in common are near each other, so that
A·Aᴴ is block-banded, and so is its Cholesky factor. Floats guess it; how good it is, products tell, block by block.

Complex matrices are pairs of real ones, so that every number system has them.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from operator import add
from typing import Generic

import numpy as np

from intervalcert.backends.protocol import Backend, Floats, Matrix, S
from intervalcert.errors import UndecidedError
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.rounding import dyadic_value
from intervalcert.proof.data import Witness

__all__ = [
    "MOST_APART",
    "BlockFactor",
    "BlockRow",
    "BlockRows",
    "ComplexMatrix",
    "bandwidth",
    "largest",
    "squared_norm_upper",
    "times_adjoint",
]

BlockRows = Sequence[Mapping[int, int]]
"""For each block row the name of its block in each block column that has one."""

MOST_APART = 64
"""Bits between the scale of a factor and that of the kernel that it is about: farther apart, it proves nothing that is
of use, and exact numbers would be long."""


# -- witnesses -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, repr=False)
class BlockRow(Witness):
    """A block row of a triangular matrix: its blocks from the first in the band to the diagonal, side by side.

    imaginary: None if it is zero.
    """

    real: Floats
    imaginary: Floats | None = None


@dataclass(frozen=True, eq=False, repr=False)
class BlockFactor(Witness):
    """The witness: a number c and a triangular block-banded L with c·I - A·Aᴴ ~ L·Lᴴ.

    c is shift·4^exponent, and L has the block rows `rows`, times 2^exponent. They are looked at one after the other,
    and may be made as they are asked for; whoever asks again begins anew.
    """

    shift: float
    rows: Iterable[BlockRow]
    exponent: int = 0

    @property
    def c(self) -> Fraction:
        return Fraction(self.shift) * dyadic_value(1, 2 * self.exponent)


# -- complex matrices ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ComplexMatrix(Generic[S]):
    """R + i·I, or R alone. Operations take two of one kind. They consist of those on real matrices: the law holds."""

    real: Matrix[S]
    imaginary: Matrix[S] | None = None

    def __add__(self, other: ComplexMatrix[S]) -> ComplexMatrix[S]:
        parts = _both(self, other)
        return ComplexMatrix(self.real + other.real, None if parts is None else parts[0] + parts[1])

    def transposed(self) -> ComplexMatrix[S]:
        """Without conjugation."""
        return ComplexMatrix(self.real.transposed(), None if self.imaginary is None else self.imaginary.transposed())

    def frobenius_squared(self) -> S:
        """The sum of the squared moduli of all entries."""
        squares = self.real.frobenius_squared()
        return squares if self.imaginary is None else squares + self.imaginary.frobenius_squared()


def _both(a: ComplexMatrix[S], b: ComplexMatrix[S]) -> tuple[Matrix[S], Matrix[S]] | None:
    """Their imaginary parts; None if they are real."""
    if a.imaginary is None or b.imaginary is None:
        if a.imaginary is not b.imaginary:
            raise ValueError("a real and a complex matrix")
        return None
    return a.imaginary, b.imaginary


def times_adjoint(a: ComplexMatrix[S], b: ComplexMatrix[S]) -> ComplexMatrix[S]:
    """A·Bᴴ = (R + i·I)·(R' - i·I')ᵀ = R·R'ᵀ + I·I'ᵀ + i·(I·R'ᵀ - R·I'ᵀ).

    For A·Aᴴ itself (`a is b`) less work does: with X = I·Rᵀ the last difference is X - Xᵀ.
    """
    parts = _both(a, b)
    if a is b:
        if parts is None:
            return ComplexMatrix(_square(a.real))
        x = parts[0] @ a.real.transposed()
        return ComplexMatrix(_square(a.real) + _square(parts[0]), x - x.transposed())
    real = a.real @ b.real.transposed()
    if parts is None:
        return ComplexMatrix(real)
    one, other = parts
    return ComplexMatrix(real + one @ other.transposed(), one @ b.real.transposed() - a.real @ other.transposed())


def _square(matrix: Matrix[S]) -> Matrix[S]:
    """M·Mᵀ, whichever side is the smaller."""
    rows, columns = matrix.shape
    return matrix.gram() if rows <= columns else matrix @ matrix.transposed()


# -- the bound -------------------------------------------------------------------------------------------------------


def bandwidth(rows: BlockRows) -> int:
    """The largest distance of two block rows that have a block column in common."""
    first: dict[int, int] = {}
    most = 0
    for r, row in enumerate(rows):
        most = max([most, *(r - first.setdefault(k, r) for k in row)])
    return most


def squared_norm_upper(
    rows: BlockRows,
    blocks: Mapping[int, ComplexMatrix[S]],
    factor: BlockFactor,
    scale: int,
    backend: Backend[S],
    on_step: Callable[[], None] = lambda: None,
) -> S:
    """An upper bound of ||A||²: c + ||E||_F with E = c·I - A·Aᴴ - L·Lᴴ. `on_step` is called after each block row.

    Guarantees: the result encloses the bound of the exact run with the same factor, which is at least ||A||², whatever
    the factor is. Requires: all blocks have one shape, and all or none of them are real.
    scale: the exponent of the numbers of the model (`NearFloats`).
    Raises: UndecidedError if the factor is none of such a matrix, or on a scale far from its own.

    Proof. ||A||² is the largest vᴴ·A·Aᴴ·v over unit vectors v, and vᴴ·A·Aᴴ·v = c - ||Lᴴv||² - vᴴEv <= c + ||E||_F.
    Blocks of A·Aᴴ: that at (r, q) is the sum of A_rk·A_qkᴴ over the block columns k that both rows have. There is none
    if |r - q| exceeds b, the bandwidth, which depends on `rows` alone. Blocks of L·Lᴴ: row r of L has the blocks
    L_rk with max(r - b, 0) <= k <= r, as many as are demanded of it, and no others. So the block at (r, q), q <= r, is
    the sum of L_rk·L_qkᴴ over max(r - b, 0) <= k <= q, and there is none if r - q > b. Hence all of E lies within the
    band. It is equal to its adjoint: a block above the diagonal has the norm of the one below, so
    ||E||_F² = Σ_r ||E_rr||_F² + 2·Σ_{r > q} ||E_rq||_F².
    """
    if type(factor.exponent) is not int or abs(factor.exponent - scale) > MOST_APART:
        raise UndecidedError("a factor on a scale far from that of the layer")
    if not (type(factor.shift) is float and math.isfinite(factor.shift)):
        raise UndecidedError("a factor without a finite number")
    band, some = bandwidth(rows), next(iter(blocks.values()))
    side, is_real = some.real.shape[0], some.imaginary is None
    multiple = backend.matrix(RationalMatrix.from_floats(np.eye(side) * factor.shift, 2 * factor.exponent))
    grams = _Grams(rows, blocks)
    given, recent = iter(factor.rows), deque[BlockRow](maxlen=band + 1)
    squares = []
    for r in range(len(rows)):
        recent.append(_checked(next(given, None), (side, (min(r, band) + 1) * side), is_real))
        for q in range(max(r - band, 0), r + 1):
            residual = _product(recent, r - q, side, factor.exponent, backend)
            gram = grams.at(r, q)
            residual = residual if gram is None else residual + gram
            if r == q:  # E up to signs of its parts, which do not count
                residual = ComplexMatrix(multiple - residual.real, residual.imaginary)
            squares.append(residual.frobenius_squared() * backend.scalar(_times(r, q)))
        on_step()
    return backend.scalar(factor.c) + backend.sqrt_upper(reduce(add, squares))


def _times(r: int, q: int) -> Fraction:
    """How often a block of the lower triangle stands in the matrix."""
    return Fraction(1 if r == q else 2)


def _checked(row: BlockRow | None, shape: tuple[int, int], is_real: bool) -> BlockRow:
    """Raises: UndecidedError unless it is there, and has numbers of that shape, and an imaginary part if it must."""
    if isinstance(row, BlockRow) and (row.imaginary is None) is is_real:
        parts = [row.real] if row.imaginary is None else [row.real, row.imaginary]
        if all(isinstance(x, np.ndarray) and _is_finite(x, shape) for x in parts):
            return row
    raise UndecidedError("a factor of another shape, or no matrix of numbers")


def _is_finite(x: Floats, shape: tuple[int, int]) -> bool:
    return x.shape == shape and x.dtype == np.float64 and bool(np.isfinite(x).all())


def _product(recent: Sequence[BlockRow], apart: int, side: int, exponent: int, backend: Backend[S]) -> ComplexMatrix[S]:
    """The block of L·Lᴴ in the last row of some, `apart` to the left of the diagonal.

    The last row begins in the block column where the band begins, and the row q above it no later and ends at its
    diagonal, q: what both have are the first blocks of the one, and the last of the other.
    """
    row, other = recent[-1], recent[-1 - apart]
    common = row.real.shape[1] - apart * side
    left = _part(row, slice(0, common), exponent, backend)
    if not apart:
        return times_adjoint(left, left)
    return times_adjoint(left, _part(other, slice(other.real.shape[1] - common, None), exponent, backend))


def _part(row: BlockRow, columns: slice, exponent: int, backend: Backend[S]) -> ComplexMatrix[S]:
    def exactly(x: Floats) -> Matrix[S]:
        return backend.matrix(RationalMatrix.from_floats(x[:, columns], exponent))

    return ComplexMatrix(exactly(row.real), None if row.imaginary is None else exactly(row.imaginary))


class _Grams(Generic[S]):
    """The blocks of A·Aᴴ. Each product of two blocks is computed once, and so is each sum of such that occurs."""

    def __init__(self, rows: BlockRows, blocks: Mapping[int, ComplexMatrix[S]]) -> None:
        self._rows, self._blocks = rows, blocks
        self._products: dict[tuple[int, int], ComplexMatrix[S]] = {}
        self._sums: dict[tuple[tuple[int, int], ...], ComplexMatrix[S]] = {}

    def at(self, r: int, q: int) -> ComplexMatrix[S] | None:
        """The block in row r and column q; None if it is zero."""
        row, other = self._rows[r], self._rows[q]
        pairs = tuple(sorted((name, other[k]) for k, name in row.items() if k in other))
        if pairs and pairs not in self._sums:
            self._sums[pairs] = reduce(add, map(self._product, pairs))
        return self._sums.get(pairs)

    def _product(self, pair: tuple[int, int]) -> ComplexMatrix[S]:
        if pair not in self._products:
            self._products[pair] = times_adjoint(self._blocks[pair[0]], self._blocks[pair[1]])
        return self._products[pair]


def largest(values: Sequence[S], backend: Backend[S]) -> S:
    """Encloses the largest number: it is between the largest of the lower and the largest of the upper ends."""
    return backend.hull(max(x.lower() for x in values), max(x.upper() for x in values))
