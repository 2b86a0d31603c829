"""The witnesses of a bounds file, in an archive of plain arrays beside it: an audit checks them, and searches nothing.

Members, all of float64 or int64; a matrix that is symmetric or triangular is held by its lower triangle, row by row:

    norm{l}.direction, norm{l}.integers (exponent of the factor, steps or -1)              for each layer l
    norm{l}.factor (triangle), norm{l}.numbers (shift)                                      if there is a factor
    norm{l}.block{k}.kind (0 banded, 1 semi-torus, 2 torus; axis, by outputs, half turns)   for a block of a convolution
    norm{l}.block{k}.shifts, norm{l}.block{k}.exponents                 one for each of its factors
    norm{l}.block{k}.shapes (factor, rows, columns, imaginary or not), norm{l}.block{k}.rows (all their numbers)
    norm{l}.same (another layer)                in the place of all that, for a matrix of several layers
    chain{c}.{l}.integers (exponent, exponent of the factor), chain{c}.{l}.numbers (lift, size, shift; e, slack)
    chain{c}.{l}.near, chain{c}.{l}.factor, chain{c}.{l}.above (the diagonal)               for each hidden layer l
    chain{c}.{l}.core, chain{c}.{l}.vectors (middle, spread, v, w, diagonal of after), chain{c}.{l}.g
                                                              if it has a sector; no g if no neuron bends
    graph{c}.{l}.sector (middle, spread); if something bends: .vectors (v, w), .g, .numbers (e), .integers (inside)
    graph{c}.{l}.factor, graph{c}.{l}.units, .numbers (slack), .integers (turn)             another ball
    circulant{c}.integers (half turns, exponents of the links), circulant{c}.{l}.vectors (middle, spread, v, w)
    circulant{c}.shapes (side, bending), .numbers (lift, e, slack), .near, .above, .core, .after, .g    of all steps

What is read is only a guess: `proof` checks it. But numbers of very different sizes would make exact ones long.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from intervalcert.backends.protocol import Floats
from intervalcert.errors import InputError
from intervalcert.io.array_archive import Arrays, read_arrays, write_arrays
from intervalcert.io.witness_blocks import BLOCK_PARTS, block_arrays, block_of
from intervalcert.io.witness_chains import (
    circulant_arrays,
    circulant_of,
    graph_arrays,
    graph_of,
    lower_triangle,
    symmetric,
    with_diagonal,
)
from intervalcert.numbers.parsing import MAX_BINARY_EXPONENT
from intervalcert.proof.chain import ChainLink
from intervalcert.proof.cholesky import Factor
from intervalcert.proof.circulant_chain import CirculantWitness
from intervalcert.proof.ellipsoids import LoewnerMajorant, Sector, Step
from intervalcert.proof.layer_norms import ConvolutionWitness, NormWitness
from intervalcert.proof.norms import MAX_ITERATIONS
from intervalcert.proof.witnesses import AnyChain, Witnesses

__all__ = ["WITNESS_ENDING", "load_witnesses", "packed_witnesses", "witness_path"]

_MEMBER = re.compile(
    r"(norm(0|[1-9]\d{0,3})\.(direction|integers|factor|numbers|same"
    r"|block(0|[1-9]\d{0,3})\.(kind|shifts|exponents|shapes|rows))"
    r"|chain[01]\.(0|[1-9]\d{0,3})\.(integers|numbers|near|factor|above|core|vectors|g)"
    r"|graph[01]\.links|graph[01]\.(0|[1-9]\d{0,3})\.(integers|numbers|sector|vectors|g|factor|units)"
    r"|circulant[01]\.(integers|shapes|numbers|near|above|core|after|g|(0|[1-9]\d{0,3})\.vectors))\.npy"
)

_MOST_APART = 2.0**200
"""By what the largest number of an array may exceed the least that is not zero."""

_LARGEST = 2.0**250
"""No number is beyond this, or nearer to zero than its inverse: weights are taken on a scale on which they are at most
2^64, and chains on one on which they are near 1."""

_VECTORS = 5

_MOST_CHAINS = 2
"""Of each kind."""

_INTEGERS = (".integers", ".same", ".kind", ".exponents", ".shapes", ".links")
"""Endings of what holds whole numbers."""


WITNESS_ENDING = ".witnesses.npz"


def witness_path(path: Path) -> Path:
    """Where the witnesses of a bounds file are written."""
    return path.with_name(f"{path.name}{WITNESS_ENDING}")


# -- writing ---------------------------------------------------------------------------------------------------------


def packed_witnesses(witnesses: Witnesses) -> bytes | None:
    """The bytes of their file; None if they have numbers that would not be read."""
    arrays: Arrays = {}
    first: dict[int, int] = {}
    for index, norm in enumerate(witnesses.norms):
        name, steps = f"norm{index}", -1 if norm.steps is None else norm.steps
        if first.setdefault(id(norm), index) != index:
            arrays[f"{name}.same"] = np.array([first[id(norm)]], dtype=np.int64)
            continue
        arrays[f"{name}.direction"] = norm.direction
        arrays[f"{name}.integers"] = np.array([norm.factor.exponent if norm.factor else 0, steps], dtype=np.int64)
        if norm.factor is not None:
            arrays[f"{name}.factor"] = lower_triangle(norm.factor.triangle)
            arrays[f"{name}.numbers"] = np.array([norm.factor.shift])
        for k, block in enumerate(norm.blocks):
            parts = block_arrays(block).items()
            arrays.update((f"{name}.block{k}.{part}", array) for part, array in parts if array.size)
    counts = {"chain": 0, "graph": 0, "circulant": 0}
    for chain in witnesses.chains:
        kind = _kind(chain)
        arrays.update(_chain_arrays(chain, f"{kind}{counts[kind]}"))
        counts[kind] += 1
    if max(counts.values()) > _MOST_CHAINS or not all(x.size and _is_short(x) for x in arrays.values()):
        return None
    made = io.BytesIO()
    write_arrays(made, arrays, compressed=False)
    return made.getvalue()


def _kind(chain: AnyChain) -> str:
    if isinstance(chain, CirculantWitness):
        return "circulant"
    return "chain" if chain and all(isinstance(link, ChainLink) for link in chain) else "graph"


def _chain_arrays(chain: AnyChain, name: str) -> Iterator[tuple[str, Floats]]:
    if isinstance(chain, CirculantWitness):
        yield from circulant_arrays(chain, name)
        return
    if name.startswith("graph"):
        yield from graph_arrays(tuple(link for link in chain if not isinstance(link, ChainLink)), name)
    for index, link in enumerate(chain):
        if isinstance(link, ChainLink):
            yield from ((f"{name}.{index}.{part}", array) for part, array in _link_arrays(link))


def _link_arrays(link: ChainLink) -> Iterator[tuple[str, Floats]]:
    step = link.step
    numbers = [link.s.lift, link.size, link.factor.shift, *(() if step is None else (step.e, step.slack))]
    yield "integers", np.array([link.exponent, link.factor.exponent], dtype=np.int64)
    yield "numbers", np.array(numbers)
    yield "near", lower_triangle(link.s.near)
    yield "above", link.s.above.diagonal()
    yield "factor", lower_triangle(link.factor.triangle)
    if step is not None:
        yield "core", lower_triangle(step.core)
        vectors = (step.sector.middle, step.sector.spread, step.v, step.w, step.after.diagonal())
        yield "vectors", np.stack(vectors)
        if step.g.size:
            yield "g", step.g


# -- reading ---------------------------------------------------------------------------------------------------------


def load_witnesses(path: Path) -> Witnesses:
    """Raises: InputError unless it is a complete file of witnesses."""
    arrays = read_arrays(path, lambda member: None if _MEMBER.fullmatch(member) else "no part of a witness")
    for name, array in arrays.items():
        if array.dtype != (np.int64 if name.endswith(_INTEGERS) else np.float64):
            raise InputError(f"{path}: {name} holds numbers of type {array.dtype}")
        if not _is_short(array):
            raise InputError(f"{path}: {name} holds numbers of too different sizes, or not finite ones")
    try:
        return _witnesses(arrays)
    except (KeyError, ValueError) as error:
        what = f"{error.args[0]} is missing" if isinstance(error, KeyError) else str(error)
        raise InputError(f"{path} is not a complete file of witnesses: {what}") from None


def _is_short(array: Floats) -> bool:
    sizes = np.abs(array[array != 0].astype(np.float64))
    if not np.isfinite(sizes).all():
        return False
    return not sizes.size or bool(sizes.min() > 1 / _LARGEST and sizes.max() < min(sizes.min() * _MOST_APART, _LARGEST))


def _witnesses(arrays: Arrays) -> Witnesses:
    """Raises: KeyError or ValueError for what is missing, left over, or of another size."""
    known = dict(arrays)
    norms: list[NormWitness] = []
    while (name := f"norm{len(norms)}") and (f"{name}.direction" in known or f"{name}.same" in known):
        if f"{name}.same" in known:
            (other,) = _vector(known, f"{name}.same", 1).tolist()
            if not 0 <= other < len(norms):
                raise ValueError(f"{name} is the same as that of layer {other}, which does not come before it")
            norms.append(norms[other])
            continue
        exponent, steps = _integers(known, f"{name}.integers")
        if steps not in range(-1, MAX_ITERATIONS + 1):
            raise ValueError(f"{name} has {steps} steps")
        factor = None
        if f"{name}.factor" in known:
            (shift,) = _vector(known, f"{name}.numbers", 1).tolist()
            factor = Factor(shift, _triangle(known, f"{name}.factor"), exponent)
        direction = _vector(known, f"{name}.direction")
        blocks: list[ConvolutionWitness] = []
        while f"{name}.block{len(blocks)}.kind" in known:
            place = f"{name}.block{len(blocks)}"
            parts = {part: known.pop(f"{place}.{part}", empty) for part, empty in BLOCK_PARTS.items()}
            blocks.append(block_of(parts, place))
        norms.append(NormWitness(direction, factor, None if steps < 0 else steps, tuple(blocks)))
    chains = tuple(_chains(known))
    if known:
        raise ValueError(f"{next(iter(known))} belongs to nothing")
    return Witnesses(tuple(norms), chains)


def _chains(known: Arrays) -> Iterator[AnyChain]:
    for which in range(_MOST_CHAINS):
        links: list[ChainLink] = []
        while f"chain{which}.{len(links)}.integers" in known:
            links.append(_link(known, f"chain{which}.{len(links)}"))
        if links:
            yield tuple(links)
        through_graph = graph_of(known, f"graph{which}")
        if through_graph is not None:
            yield through_graph
    for which in range(_MOST_CHAINS):
        circulant = circulant_of(known, f"circulant{which}")
        if circulant is not None:
            yield circulant


def _link(known: Arrays, name: str) -> ChainLink:
    exponent, other = _integers(known, f"{name}.integers")
    near = symmetric(_triangle(known, f"{name}.near"))
    side = len(near)
    above = with_diagonal(near, _vector(known, f"{name}.above", side))
    triangle = _triangle(known, f"{name}.factor")
    has_step = f"{name}.core" in known
    lift, size, shift, *more = _vector(known, f"{name}.numbers", 5 if has_step else 3).tolist()
    step = None
    if has_step:
        core = symmetric(_triangle(known, f"{name}.core"))
        vectors = known.pop(f"{name}.vectors")
        if vectors.shape != (_VECTORS, len(core)):
            raise ValueError(f"{name}.vectors has another shape than its matrices")
        middle, spread, v, w, diagonal = vectors
        g = known.pop(f"{name}.g", np.zeros((0, 0)))
        step = Step(Sector(middle, spread), v, w, g, core, with_diagonal(core, diagonal), *more)
    return ChainLink(exponent, LoewnerMajorant(near, above, lift), Factor(shift, triangle, other), size, step)


def _integers(known: Arrays, name: str) -> tuple[int, int]:
    first, second = _vector(known, name, 2).tolist()
    if max(abs(first), abs(second)) > MAX_BINARY_EXPONENT:
        raise ValueError(f"{name} has an exponent beyond ±{MAX_BINARY_EXPONENT}")
    return int(first), int(second)


def _vector(known: Arrays, name: str, length: int | None = None) -> Floats:
    found = known.pop(name)
    if found.ndim != 1 or (length is not None and len(found) != length):
        raise ValueError(f"{name} is of the shape {found.shape}")
    return found


def _triangle(known: Arrays, name: str) -> Floats:
    """A lower triangle, as a square matrix."""
    packed = _vector(known, name)
    side = int(np.sqrt(2 * len(packed)))
    if side * (side + 1) // 2 != len(packed):
        raise ValueError(f"{name} has {len(packed)} numbers, which fill no triangle")
    made = np.zeros((side, side))
    made[np.tril_indices(side)] = packed
    return made
