"""Floats that are guessed: largest eigenvalues, and Cholesky factors of block-banded matrices. Nothing here is trusted.

A block matrix A is given as in `proof.blocks`. Factors of c·I - A·Aᴴ may be large: their rows are made one after the
other, and where they are too many to be kept, anew whenever they are asked for.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from operator import add
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from intervalcert.backends.protocol import Floats, Indices
from intervalcert.errors import UndecidedError
from intervalcert.proof.blocks import BlockFactor, BlockRow, BlockRows, bandwidth
from intervalcert.search.factors import largest_eigenvalue

__all__ = [
    "ABOVE",
    "KEPT_BYTES",
    "STEPS",
    "SURELY",
    "Anew",
    "Array",
    "FloatBlocks",
    "factor_near",
    "factor_surely",
    "places_of",
    "top_eigenpair",
]

Array = npt.NDArray[Any]
"""Of floats, or of complex floats."""

T = TypeVar("T")

ABOVE = (2.0**-36, 2.0**-30, 2.0**-24, 2.0**-16)
"""By what part c is above the guess of the largest eigenvalue, one attempt after the other: rounding moves eigenvalues
by less than the first, and a guess that is too small by a little is caught by the next."""

RESIDUAL = 1e-10
"""Of an eigenvector, as a part of the eigenvalue: that is wrong by no more, and by far less if no other one is near."""

SURELY = 2.0**-32
"""More than `RESIDUAL`: by this part above an eigenvalue that is known so well a factor exists."""

STEPS = 600
"""Of Lanczos' method, at most."""

_INVERSE_STEPS = 40
"""Of Lanczos' method with an inverse: eigenvalues near the largest are far apart there."""

KEPT_BYTES = 2**28
"""Of a factor that is kept. The rows of a larger one are made when they are asked for."""

_GRID_BITS = 58
"""Entries of a factor are multiples of 2^-58 times a power of two above the largest: exact integers stay short. What
that moves is next to nothing beside the rounding of floats, which have 53 bits."""

_LEAF = 64
"""The side of a triangular matrix from which on equations are solved by halves."""


class Anew(Generic[T]):
    """What is made when it is asked for, and anew for whoever asks again."""

    def __init__(self, length: int, make: Callable[[], Iterator[T]]) -> None:
        self._length, self._make = length, make

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        return self._make()


# -- the largest eigenvalue ------------------------------------------------------------------------------------------


def top_eigenpair(square: Callable[[Array], Array], start: Array, steps: int) -> tuple[float, Array, bool]:
    """Near the largest eigenvalue of a positive semidefinite map, from below; a vector; whether it is near enough.

    By Lanczos' method. All vectors are kept, and made orthogonal to each other; where they would be too many, it begins
    anew with the best.
    """
    most = max(8, min(steps, 120, 2**23 // len(start)))
    value, vector, is_done = 0.0, start / np.linalg.norm(start), False
    try:
        while steps > 0 and not is_done:
            value, vector, is_done, made = _lanczos(square, vector, min(steps, most))
            steps -= made
    except np.linalg.LinAlgError:  # no convergence: what is known so far
        pass
    return value, vector, is_done


def _lanczos(square: Callable[[Array], Array], start: Array, steps: int) -> tuple[float, Array, bool, int]:
    basis = np.empty((steps + 1, len(start)), dtype=start.dtype)
    basis[0] = start
    projected = np.zeros((steps + 1, steps + 1))
    values, vectors, is_done, made = np.zeros(1), np.ones((1, 1)), False, 0
    while made < steps and not is_done:
        image = square(basis[made])
        projected[made, made] = np.vdot(basis[made], image).real
        made += 1
        for _ in range(2):  # once is not enough for what is nearly dependent
            image = image - basis[:made].T @ (basis[:made] @ image.conj()).conj()
        rest = float(np.linalg.norm(image))
        if made == steps or made % 5 == 0 or rest <= RESIDUAL * projected[0, 0]:
            values, vectors = np.linalg.eigh(projected[:made, :made])
            is_done = bool(rest * abs(vectors[-1, -1]) <= RESIDUAL * values[-1])
        if rest > 0:
            basis[made] = image / rest
        projected[made - 1, made] = projected[made, made - 1] = rest
    vector = basis[:made].T @ vectors[:, -1]
    return float(values[-1]), vector / np.linalg.norm(vector), is_done, made


# -- block matrices --------------------------------------------------------------------------------------------------


class FloatBlocks:
    """A block matrix A in floats, real or complex: block row r has blocks[rows[r][k]] in block column k."""

    def __init__(self, rows: BlockRows, blocks: Mapping[int, Array]) -> None:
        self.rows, self.blocks, self.band = rows, blocks, bandwidth(rows)
        some = next(iter(blocks.values()))
        self.side, self.inner = map(int, some.shape)
        self.dtype: np.dtype[Any] = some.dtype
        self._sums: dict[tuple[tuple[int, int], ...], Array] = {}

    @property
    def factor_bytes(self) -> int:
        """What all rows of a factor take."""
        return len(self.rows) * (self.band + 1) * self.side**2 * self.dtype.itemsize

    def gram(self, r: int, q: int) -> Array | None:
        """A block of A·Aᴴ; None if it is zero."""
        row, other = self.rows[r], self.rows[q]
        pairs = tuple(sorted((name, other[k]) for k, name in row.items() if k in other))
        if pairs and pairs not in self._sums:
            self._sums[pairs] = reduce(add, (_times_adjoint(self.blocks[u], self.blocks[v]) for u, v in pairs))
        return self._sums.get(pairs)

    def largest_eigenvalue(self) -> float:
        """Near that of A·Aᴴ."""
        count = len(self.rows)
        if count == 1:
            gram = self.gram(0, 0)
            return 0.0 if gram is None else largest_eigenvalue(gram)
        places = places_of(self.rows)
        columns = 1 + max(k for row in self.rows for k in row)

        def square(v: Array) -> Array:
            y, x = v.reshape(count, self.side), np.zeros((columns, self.inner), dtype=self.dtype)
            for u, (r, k) in places.items():
                x[k] += y[r] @ self.blocks[u].conj()
            made = np.zeros_like(y)
            for u, (r, k) in places.items():
                made[r] += x[k] @ self.blocks[u].T
            return made.ravel()

        start = np.random.default_rng(0).standard_normal(count * self.side).astype(self.dtype)
        return top_eigenpair(square, start, STEPS)[0]

    def factor_rows(self, c: float) -> Iterator[BlockRow]:
        """Those of the Cholesky factor of c·I - A·Aᴴ. Raises: LinAlgError if it is not positive definite."""
        side, recent = self.side, deque[Array](maxlen=self.band + 1)
        for r in range(len(self.rows)):
            first = max(r - self.band, 0)
            row = np.zeros((side, (r - first + 1) * side), dtype=self.dtype)
            recent.append(row)
            for q in range(first, r + 1):
                done = (q - first) * side
                other, gram = recent[q - r - 1], self.gram(r, q)
                block = np.zeros((side, side), dtype=self.dtype) if gram is None else -gram
                if done:
                    left, end = row[:, :done], other.shape[1] - side
                    block -= _times_adjoint(left, left if q == r else other[:, end - done : end])
                if q < r:
                    row[:, done : done + side] = _solved(other[:, -side:], block.conj().T).conj().T
                else:
                    block.flat[:: side + 1] += c
                    row[:, done:] = np.linalg.cholesky(block)
            if not np.isfinite(row).all():
                raise np.linalg.LinAlgError("a factor that is not finite")
            yield _on_grid(row, c)

    def zero_rows(self) -> Iterator[BlockRow]:
        """With c = 0 they prove that ||A||² is at most the Frobenius norm of A·Aᴴ: where nothing better is found."""
        for r in range(len(self.rows)):
            zero = np.zeros((self.side, (min(r, self.band) + 1) * self.side))
            yield BlockRow(zero, zero if self.dtype.kind == "c" else None)


def places_of(rows: BlockRows) -> dict[int, tuple[Indices, Indices]]:
    """For each name of a block the block rows and columns that have it."""
    found: dict[int, list[tuple[int, int]]] = {}
    for r, row in enumerate(rows):
        for k, name in row.items():
            found.setdefault(name, []).append((r, k))
    return {name: (np.array(each)[:, 0], np.array(each)[:, 1]) for name, each in found.items()}


def _times_adjoint(a: Array, b: Array) -> Array:
    """A·Bᴴ; a complex A·Aᴴ by real products, which are faster."""
    if a is b and np.iscomplexobj(a):
        real, imaginary = np.ascontiguousarray(a.real), np.ascontiguousarray(a.imag)
        x = imaginary @ real.T
        made: Array = (real @ real.T + imaginary @ imaginary.T) + 1j * (x - x.T)
        return made
    found: Array = a @ (b.conj().T if np.iscomplexobj(b) else b.T)
    return found


def _solved(lower: Array, right: Array) -> Array:
    """L⁻¹·B for a lower triangular L, by halves: nearly all of it is products."""
    side = len(lower)
    if side <= _LEAF:
        found: Array = np.linalg.solve(lower, right)
        return found
    half = side // 2
    top = _solved(lower[:half, :half], right[:half])
    return np.concatenate([top, _solved(lower[half:, half:], right[half:] - lower[half:, :half] @ top)])


def _on_grid(row: Array, c: float) -> BlockRow:
    unit = 2.0 ** (math.frexp(math.sqrt(c))[1] - _GRID_BITS)

    def rounded(x: Floats) -> Floats:
        made: Floats = np.rint(x / unit) * unit
        return made

    return BlockRow(rounded(row.real), rounded(row.imag) if np.iscomplexobj(row) else None)


# -- factors ---------------------------------------------------------------------------------------------------------


def factor_near(blocks: FloatBlocks, exponent: int, shift: float) -> BlockFactor:
    """With that shift if it is possible, else with one above the largest eigenvalue.

    Whether it is possible one sees when all of its rows were made.
    """
    for c in _shifts(blocks, shift):
        if 0 < c < math.inf:
            try:
                if blocks.factor_bytes <= KEPT_BYTES:
                    rows = tuple(blocks.factor_rows(c))
                    return BlockFactor(c, rows, exponent) if c == shift else _sharper(blocks, c, rows, exponent)
                for _ in blocks.factor_rows(c):
                    pass
                return factor_surely(blocks, exponent, c)
            except np.linalg.LinAlgError:  # c is below the largest eigenvalue, or the library is broken
                continue
    return BlockFactor(0.0, Anew(len(blocks.rows), blocks.zero_rows), exponent)


def _sharper(blocks: FloatBlocks, c: float, rows: Sequence[BlockRow], exponent: int) -> BlockFactor:
    """With a c nearer to the largest eigenvalue, if it is possible; else with this one.

    Where many eigenvalues are near the largest, Lanczos' method takes long to tell them apart; but those of the inverse
    of c·I - A·Aᴴ, 1/(c - λ), are far from each other, and its factor is known.
    """
    start = np.random.default_rng(0).standard_normal(len(blocks.rows) * blocks.side).astype(blocks.dtype)
    inverse, _, _ = top_eigenpair(_inverse(rows, blocks.side, blocks.band), start, _INVERSE_STEPS)
    for above in ABOVE[:2]:
        nearer = (c - 1 / inverse) * (1 + above) if inverse > 0 else c
        if 0 < nearer < c:
            try:
                return BlockFactor(nearer, tuple(blocks.factor_rows(nearer)), exponent)
            except np.linalg.LinAlgError:  # too near
                continue
    return BlockFactor(c, tuple(rows), exponent)


def _inverse(rows: Sequence[BlockRow], side: int, band: int) -> Callable[[Array], Array]:
    """Of L·Lᴴ, for the L of these block rows."""
    parts = [row.real if row.imaginary is None else row.real + 1j * row.imaginary for row in rows]
    corners = [np.linalg.inv(part[:, -side:]) for part in parts]

    def apply(x: Array) -> Array:
        y = x.reshape(len(parts), side).copy()
        for r, part in enumerate(parts):
            first = max(r - band, 0)
            y[r] = corners[r] @ (y[r] - part[:, :-side] @ y[first:r].ravel())
        for r in range(len(parts) - 1, -1, -1):
            y[r] = corners[r].conj().T @ y[r]
            first = max(r - band, 0)
            y[first:r] -= (parts[r][:, :-side].conj().T @ y[r]).reshape(r - first, side)
        return y.ravel()

    return apply


def _shifts(blocks: FloatBlocks, first: float) -> Iterator[float]:
    yield first
    guess = blocks.largest_eigenvalue()
    yield from (guess * (1 + above) for above in ABOVE)


def factor_surely(blocks: FloatBlocks, exponent: int, c: float) -> BlockFactor:
    """The factor whose rows are made when they are asked for; an UndecidedError for who asks if they cannot be made."""

    def rows() -> Iterator[BlockRow]:
        try:
            yield from blocks.factor_rows(c)
        except np.linalg.LinAlgError as error:
            raise UndecidedError("floats find no factor of a convolution for this number") from error

    return BlockFactor(c, Anew(len(blocks.rows), rows), exponent)
