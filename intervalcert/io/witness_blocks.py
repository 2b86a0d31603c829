"""The witness of one block of a convolution, as plain arrays: see `witness_file`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from intervalcert.numbers.parsing import MAX_BINARY_EXPONENT
from intervalcert.proof.banded import BandedWitness
from intervalcert.proof.blocks import BlockFactor, BlockRow
from intervalcert.proof.layer_norms import ConvolutionWitness
from intervalcert.proof.torus import SemiTorusWitness, TorusWitness

__all__ = ["BLOCK_PARTS", "block_arrays", "block_of"]

BLOCK_PARTS: Mapping[str, npt.NDArray[Any]] = {
    "kind": np.zeros(0, dtype=np.int64),
    "shifts": np.zeros(0),
    "exponents": np.zeros(0, dtype=np.int64),
    "shapes": np.zeros((0, 4), dtype=np.int64),
    "rows": np.zeros(0),
}
"""The names of the arrays, each with an empty one: those of a map that is zero need no factors."""

_BANDED, _SEMI_TORUS, _TORUS = range(3)


def block_arrays(witness: ConvolutionWitness) -> dict[str, npt.NDArray[Any]]:
    """Its arrays, one for each of `BLOCK_PARTS`."""
    kind: tuple[int, ...]
    if isinstance(witness, BandedWitness):
        kind, factors = (_BANDED, witness.axis, witness.by_outputs, 0, 0), [witness.factor]
    elif isinstance(witness, SemiTorusWitness):
        kind = (_SEMI_TORUS, witness.axis, witness.by_outputs, witness.half_turn, 0)
        factors = list(witness.factors)
    else:
        kind, factors = (_TORUS, 0, 0, *witness.half_turns), list(witness.factors)
    shapes, numbers = [], []
    for index, factor in enumerate(factors):
        for row in factor.rows:
            shapes.append((index, *row.real.shape, row.imaginary is not None))
            numbers += [row.real.ravel()] if row.imaginary is None else [row.real.ravel(), row.imaginary.ravel()]
    return {
        "kind": np.array(kind, dtype=np.int64),
        "shifts": np.array([factor.shift for factor in factors]),
        "exponents": np.array([factor.exponent for factor in factors], dtype=np.int64),
        "shapes": np.array(shapes, dtype=np.int64).reshape(-1, 4),
        "rows": np.concatenate([np.zeros(0), *numbers]),
    }


def block_of(arrays: Mapping[str, npt.NDArray[Any]], name: str) -> ConvolutionWitness:
    """The witness of such arrays. Raises: ValueError for what is none. (Whether it proves anything, `proof` tells.)"""
    if arrays["kind"].shape != (5,) or arrays["shapes"].ndim != 2 or arrays["shapes"].shape[1] != 4:
        raise ValueError(f"{name} is of another shape")
    if any(arrays[part].ndim != 1 for part in ("shifts", "exponents", "rows")):
        raise ValueError(f"{name} is of another shape")
    kind, axis, by_outputs, *half_turns = arrays["kind"].tolist()
    factors = tuple(_factors(arrays, name))
    if not {axis, by_outputs, *half_turns} <= {0, 1}:
        raise ValueError(f"{name} is along no axis, or twisted by no half turn")
    if kind == _BANDED and len(factors) == 1:
        return BandedWitness(axis, bool(by_outputs), factors[0])
    if kind == _SEMI_TORUS:
        return SemiTorusWitness(axis, bool(by_outputs), half_turns[0], factors)
    if kind == _TORUS:
        return TorusWitness((half_turns[0], half_turns[1]), factors)
    raise ValueError(f"{name} is of no kind that is known")


def _factors(arrays: Mapping[str, npt.NDArray[Any]], name: str) -> Iterator[BlockFactor]:
    shifts, exponents, shapes = (arrays[part].tolist() for part in ("shifts", "exponents", "shapes"))
    if len(shifts) != len(exponents) or any(abs(e) > MAX_BINARY_EXPONENT for e in exponents):
        raise ValueError(f"{name} has another number of exponents, or one beyond ±{MAX_BINARY_EXPONENT}")
    rows: list[list[BlockRow]] = [[] for _ in shifts]
    at = 0
    for index, height, width, is_complex in shapes:
        count = height * width
        if not 0 <= index < len(rows) or is_complex not in (0, 1) or height < 0 or width < 0:
            raise ValueError(f"{name} has a row that is none")
        parts = []
        for _ in range(1 + is_complex):
            numbers = arrays["rows"][at : at + count]
            if len(numbers) != count:
                raise ValueError(f"{name} has too few numbers")
            parts.append(numbers.reshape(height, width))
            at += count
        rows[index].append(BlockRow(*parts))
    if at != len(arrays["rows"]):
        raise ValueError(f"{name} has too many numbers")
    for shift, exponent, own in zip(shifts, exponents, rows, strict=True):
        yield BlockFactor(shift, tuple(own), exponent)
