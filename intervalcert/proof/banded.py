"""The operator norm of a convolution from above, as near as floats can guess: by a block-banded Cholesky factor.

Cut the grid into lines along one axis, its rows or its columns. The convolution is then a block matrix: the block from
input line j to output line i depends only on the place u of the window at which line i has line j, and is itself a
one-dimensional convolution, unrolled. Lines far from each other have nothing in common: T·Tᵀ and TᵀT are block-banded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from intervalcert.backends.protocol import Backend, Indices
from intervalcert.errors import UndecidedError
from intervalcert.model.linear_maps import Convolution
from intervalcert.model.taps import looks, place_of, unrolled
from intervalcert.model.windows import MISSING
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.proof.blocks import BlockFactor, BlockRows, ComplexMatrix, squared_norm_upper
from intervalcert.proof.data import Witness

__all__ = ["BandedWitness", "banded_upper", "line_blocks", "lines"]


@dataclass(frozen=True, eq=False, repr=False)
class BandedWitness(Witness):
    """axis: along which lines follow each other, 0 for rows and 1 for columns of the grid.

    by_outputs: whether the factor is one of c·I - T·Tᵀ, with a block row for each line of outputs; else of c·I - TᵀT,
    with one for each line of inputs.
    """

    axis: int
    by_outputs: bool
    factor: BlockFactor


def banded_upper(
    convolution: Convolution,
    witness: BandedWitness,
    backend: Backend[Any],
    on_step: Callable[[], None] = lambda: None,
) -> Any:
    """An upper bound of the operator norm ||T|| of a convolution; `on_step` is called after each line.

    Guarantees: the result encloses the bound of the exact run with the same witness, which is at least ||T||, whatever
    the witness is. Requires: the convolution has one group.
    Raises: UndecidedError if the witness is none of such a map.

    Proof. Put the numbers of a line side by side: that is another order of inputs and of outputs, and changes no norm.
    T is then the block matrix with the block B_u in row i and column j for each (i, j, u) in `looks`: the window at
    line i has line j at its place u, at most one u for each i and j; and zeros elsewhere, where windows look beyond the
    input or not at all. Its transpose has B_uᵀ in row j and column i, and the same norm. `squared_norm_upper` bounds
    the square of it.
    """
    axis = checked_axis(witness.axis)
    rows, blocks = lines(convolution, axis, witness.by_outputs), line_blocks(convolution, axis)
    if not blocks:  # no window looks at any input: T = 0
        return backend.scalar(Fraction(0))
    made = {}
    for u, block in blocks.items():
        matrix = backend.matrix(block)
        made[u] = ComplexMatrix(matrix if witness.by_outputs else matrix.transposed())
    scale = convolution.kernel.near_floats().exponent
    return backend.sqrt_upper(squared_norm_upper(rows, made, witness.factor, scale, backend, on_step))


def checked_axis(axis: int) -> int:
    """Raises: UndecidedError unless it is one of the two."""
    if type(axis) is not int or axis not in (0, 1):
        raise UndecidedError(f"a witness along the axis {axis!r}")
    return axis


def lines(convolution: Convolution, axis: int, by_outputs: bool) -> BlockRows:
    """For each line of outputs the place of the window at which it has each line of inputs; or the other way round."""
    window = convolution.window
    rows: list[dict[int, int]] = [{} for _ in range((window.outputs if by_outputs else window.inputs)[axis])]
    for i, j, u in looks(window, axis):
        rows[i if by_outputs else j][j if by_outputs else i] = u
    return rows


def line_blocks(convolution: Convolution, axis: int) -> dict[int, RationalMatrix]:
    """B_u for each place of the window along an axis that has some line of inputs; none if all of them are zero."""
    window, across = convolution.window, 1 - axis
    seen = looks(window, across)
    used = sorted({u for _, _, u in looks(window, axis)}) if seen else []
    blocks = {}
    for u in used:
        places: Indices = np.full((window.outputs[across], window.inputs[across]), MISSING, dtype=np.intp)
        for i, j, v in seen:
            places[i, j] = place_of(convolution, (u, v) if axis == 0 else (v, u))
        blocks[u] = unrolled(convolution, places)
    return blocks
