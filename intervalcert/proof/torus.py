"""The operator norm of a convolution from above, on a twisted torus: for layers too wide for anything else.

Continue the grid periodically, with a change of sign at its end or without one: then waves diagonalise the
convolution, and its norm is the largest of those of a few small matrices. If the period leaves room for padding, the
convolution is a part of that one. The torus takes waves along both axes; the semi-torus along one, and lines along the
other.

LEMMA. Let S be a finite set of integers, M_t for t in S matrices of one shape, real or complex, and T the map of
x_0 … x_{n-1} to y_0 … y_{m-1} with y_i = Σ_t M_t·x_{i+t}, where x_j = 0 unless 0 <= j < n. Let N >= n, N >= m, and for
each t in S also N >= n - t and N >= m + t. Then for p = 0 and for p = 1

    ||T||  <=  max_a ||M(a)||,   M(a) = Σ_t M_t·e^(2πi·a·t),   over the turns a = (2k + p)/(2N), k = 0 … N - 1.

Proof. Let C map x_0 … x_{N-1} to y_0 … y_{N-1} by the same formula, where x is continued by x_{j+N} = (-1)^p·x_j.
Take x with x_j = 0 for n <= j < N, and 0 <= i < m. All i + t lie in [n - N, N - 1]. There the continued x_j is the
given one for 0 <= j < n; it is zero for n <= j < N; and for n - N <= j < 0 it is ±x_{j+N}, zero as well, since then
n <= j + N < N. So T is a part of C, some of its rows and columns (N >= n, m), and ||T|| <= ||C||. The waves
x_j = e^(2πi·a·j)·v obey the continuation, as e^(2πi·a·N) = (-1)^p, and C maps them to e^(2πi·a·i)·M(a)·v. The N waves
e^(2πi·a·j) are orthogonal, and equally long: in the coordinates that they give, C is the block diagonal matrix of all
M(a). ∎

If S has a single element, T is block diagonal up to the order of its blocks, each of them M_t or zero: then
||T|| <= ||M_t||, and one frequency does, whatever it is; it is taken to be 0.

Two axes. On the coarser grid of `taps` a convolution is y_i = Σ_t K_t·x_{i+t} with pairs i and t. Let M_t of the lemma
be all that belongs to one offset t along the first axis: a convolution along the second. M(a) is one, too, with the
matrices Σ_t K_{t,s}·e^(2πi·a·t). The lemma applies again, or the lines of the first axis are left as they are, if it is
only applied to the second.

Opposite frequencies. The turns of an axis contain with a also -a (up to whole turns, which change nothing), because
-(2k + p) = 2(-k - p) + p. For real K_t the matrices at a and -a, all axes together, are complex conjugates of each
other and have the same norm: one of the two suffices.

Roots of unity are only known within δ. If |z_t - e^(2πi·a·t)| <= δ, then the norm of Σ_t K_t·(z_t - e^(2πi·a·t)) is at
most δ·Σ_t ||K_t||. With lines, K_t is a sum, over the places u of a window, of maps that take each line of inputs to at
most one line of outputs, and no two to the same, by a matrix K_{u,t}: such a map has the norm ||K_{u,t}|| at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import product
from operator import add
from typing import Any

import numpy as np

from intervalcert.backends.protocol import Backend, Matrix
from intervalcert.errors import UndecidedError
from intervalcert.model.linear_maps import Convolution
from intervalcert.model.taps import AxisTaps, axis_taps, looks, place_of, taps_of, unrolled
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.roots_of_unity import root_of_unity
from intervalcert.proof.banded import checked_axis, lines
from intervalcert.proof.blocks import BlockFactor, BlockRows, ComplexMatrix, largest, squared_norm_upper
from intervalcert.proof.data import Witness
from intervalcert.proof.norms import frobenius_upper

__all__ = [
    "ROOT_BITS",
    "Frequency",
    "Offset",
    "SemiTorusWitness",
    "TorusWitness",
    "frequencies",
    "is_exact",
    "period",
    "root",
    "semi_torus_parts",
    "semi_torus_upper",
    "torus_parts",
    "torus_upper",
]

Offset = tuple[int, ...]
Frequency = tuple[Fraction, ...]
"""In turns, along each axis that has waves."""

Parts = dict[int, dict[Offset, RationalMatrix]]
"""For each name of a block, the matrices that make it up, one for each offset."""

ROOT_BITS = 60


@dataclass(frozen=True, eq=False, repr=False)
class TorusWitness(Witness):
    """half_turns: for each axis whether the continuation changes the sign (1) or not (0).

    factors: for each of `frequencies`, in that order, one of c·I - A·Aᴴ; each of them may have its own c. They may be
    made as they are asked for; whoever asks again begins anew.
    """

    half_turns: tuple[int, int]
    factors: Iterable[BlockFactor]


@dataclass(frozen=True, eq=False, repr=False)
class SemiTorusWitness(Witness):
    """axis: along which lines follow each other; waves are along the other one, and `half_turn` is about that.

    by_outputs: as of `BandedWitness`. factors: as of `TorusWitness`.
    """

    axis: int
    by_outputs: bool
    half_turn: int
    factors: Iterable[BlockFactor]


# -- frequencies: from the geometry alone ------------------------------------------------------------------------------


def period(axis: AxisTaps) -> int:
    """The least N of the lemma."""
    n, m, offsets = axis.inputs, axis.outputs, axis.offsets
    return max(n, m, n - min(offsets), m + max(offsets))


def turns(axis: AxisTaps, half_turn: int) -> list[Fraction]:
    """Those of the lemma; one that is 0 if there is a single offset."""
    if len(axis.offsets) == 1:
        return [Fraction(0)]
    n = period(axis)
    return [Fraction(2 * k + half_turn, 2 * n) for k in range(n)]


def frequencies(axes: Sequence[AxisTaps], half_turns: Sequence[int]) -> list[Frequency]:
    """All of them, or their opposites: the one that comes first in the order of tuples."""
    found = product(*map(turns, axes, half_turns))
    return [a for a in found if a <= tuple(-x % 1 for x in a)]


def is_exact(axes: Sequence[AxisTaps]) -> bool:
    """Whether no axis needs more than one frequency: then nothing is lost on the torus, and no root is needed."""
    return all(len(axis.offsets) == 1 for axis in axes)


def _root_error(axes: Sequence[AxisTaps]) -> Fraction:
    """δ: `root_of_unity` is nearer than that; and exact at 0."""
    return Fraction(0) if is_exact(axes) else Fraction(1, 1 << ROOT_BITS)


# -- the bounds --------------------------------------------------------------------------------------------------------


def torus_upper(
    convolution: Convolution,
    witness: TorusWitness,
    backend: Backend[Any],
    on_step: Callable[[], None] = lambda: None,
) -> Any:
    """An upper bound of the operator norm ||T|| of a convolution; `on_step` is called after each frequency.

    Guarantees: the result encloses the bound of the exact run with the same witness, which is at least ||T||, whatever
    the witness is. Requires: the convolution has one group.
    Raises: UndecidedError if the witness is none of such a map.

    Proof. By the lemma, applied to both axes, ||T|| is at most the largest norm of K(a) = Σ_t K_t·e^(2πi·a·t) over all
    frequencies a, and by opposites over those that are listed. With numbers z_t near the roots, and A(a) = Σ_t K_t·z_t
    or its transpose, ||K(a)|| <= ||A(a)|| + δ·Σ_t ||K_t||_F; and `squared_norm_upper` bounds ||A(a)||².
    """
    axes, parts = torus_parts(convolution)
    return _upper(convolution, [{0: 0}], parts, axes, witness.half_turns, witness.factors, backend, on_step)


def semi_torus_upper(
    convolution: Convolution,
    witness: SemiTorusWitness,
    backend: Backend[Any],
    on_step: Callable[[], None] = lambda: None,
) -> Any:
    """An upper bound of the operator norm ||T|| of a convolution; `on_step` is called after each line of a frequency.

    Guarantees, Requires and Raises: as `torus_upper`.

    Proof. By the lemma, applied to one axis, ||T|| is at most the largest norm of the maps M(a) that are left along the
    other one. Such a map is a block matrix as in `banded_upper`, with the block Σ_t K_{u,t}·e^(2πi·a·t) at the place u
    of the window. The rest is as in `torus_upper`.
    """
    axis = checked_axis(witness.axis)
    axes, parts = semi_torus_parts(convolution, axis, witness.by_outputs)
    rows = lines(convolution, axis, witness.by_outputs)
    return _upper(convolution, rows, parts, axes, (witness.half_turn,), witness.factors, backend, on_step)


def _upper(
    convolution: Convolution,
    rows: BlockRows,
    parts: Parts,
    axes: Sequence[AxisTaps],
    half_turns: Sequence[int],
    factors: Iterable[BlockFactor],
    backend: Backend[Any],
    on_step: Callable[[], None],
) -> Any:
    """The root of the largest bound of all frequencies, and what roots of unity are off by."""
    if not any(parts.values()):  # no window looks at any input: T = 0
        return backend.scalar(Fraction(0))
    if len(half_turns) != len(axes) or not all(type(p) is int and p in (0, 1) for p in half_turns):
        raise UndecidedError(f"a torus twisted by {half_turns!r}")
    matrices = {u: {t: backend.matrix(part) for t, part in of.items()} for u, of in parts.items()}
    scale = convolution.kernel.near_floats().exponent
    given, found = iter(factors), []
    for frequency in frequencies(axes, half_turns):
        factor = next(given, None)
        if not isinstance(factor, BlockFactor):
            raise UndecidedError("a witness that lacks a factor for some frequency")
        blocks = {u: _symbol(of, frequency, backend) for u, of in matrices.items()}
        found.append(squared_norm_upper(rows, blocks, factor, scale, backend, on_step))
    norm = backend.sqrt_upper(largest(found, backend))
    delta = _root_error(axes)
    if not delta:
        return norm
    sizes = [frobenius_upper(part, backend) for of in matrices.values() for part in of.values()]
    return norm + backend.scalar(delta) * reduce(add, sizes)


def _symbol(parts: Mapping[Offset, Matrix[Any]], frequency: Frequency, backend: Backend[Any]) -> ComplexMatrix[Any]:
    """Σ_t K_t·z_t; real if all z_t are."""
    each = [(part, *root(frequency, offset)) for offset, part in parts.items()]
    real = reduce(add, (part if x == 1 else part.scalar_mul(backend.scalar(x)) for part, x, _ in each))
    imaginaries = [part.scalar_mul(backend.scalar(y)) for part, _, y in each if y]
    return ComplexMatrix(real, reduce(add, imaginaries) if imaginaries else None)


def root(frequency: Frequency, offset: Offset) -> tuple[Fraction, Fraction]:
    """z_t, its real and its imaginary part: dyadics near e^(2πi·a·t), from the turn a·t, which is known exactly."""
    turn = sum((a * t for a, t in zip(frequency, offset, strict=True)), Fraction(0)) % 1
    cosine, sine = root_of_unity(turn, ROOT_BITS)
    return Fraction(cosine, 1 << ROOT_BITS), Fraction(sine, 1 << ROOT_BITS)


# -- what the blocks are made of ---------------------------------------------------------------------------------------


def torus_parts(convolution: Convolution) -> tuple[list[AxisTaps], Parts]:
    """The axes that have waves, and K_t for all offsets t, or their transposes, with no more rows than columns."""
    taps = taps_of(convolution)
    return list(taps.axes), {0: {t: _flat(matrix) for t, matrix in taps.matrices.items()}}


def _flat(matrix: RationalMatrix) -> RationalMatrix:
    rows, columns = matrix.shape
    return matrix if rows <= columns else matrix.transposed()


def semi_torus_parts(convolution: Convolution, axis: int, by_outputs: bool) -> tuple[list[AxisTaps], Parts]:
    """The axis that has waves, and K_{u,t} for places u along the other axis and offsets t; or their transposes."""
    across = axis_taps(convolution.window, 1 - axis)
    parts: Parts = {}
    for u in sorted({u for _, _, u in looks(convolution.window, axis)}):
        parts[u] = {}
        for t in across.offsets:
            places = [place_of(convolution, (u, v) if axis == 0 else (v, u)) for v in across.at(t)]
            matrix = unrolled(convolution, np.array([places]))
            parts[u][t,] = matrix if by_outputs else matrix.transposed()
    return [across], parts
