"""Chains through graphs and circulant chains, as plain arrays: see `witness_file`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from intervalcert.backends.protocol import Floats
from intervalcert.io.array_archive import Arrays
from intervalcert.numbers.parsing import MAX_BINARY_EXPONENT
from intervalcert.proof.circulant_chain import CirculantLink, CirculantStep, CirculantWitness
from intervalcert.proof.ellipsoids import LoewnerMajorant, Sector
from intervalcert.proof.graph_chain import Contenders, Functions, GraphChain, Link
from intervalcert.proof.images import Bending, Compression

__all__ = [
    "circulant_arrays",
    "circulant_of",
    "graph_arrays",
    "graph_of",
    "lower_triangle",
    "symmetric",
    "with_diagonal",
]


def lower_triangle(square: Floats) -> Floats:
    """Row by row."""
    found: Floats = square[np.tril_indices(len(square))]
    return found


def symmetric(lower: Floats) -> Floats:
    """With the part below the diagonal also above it."""
    found: Floats = np.where(np.tri(len(lower), dtype=bool), lower, lower.T)
    return found


def with_diagonal(square: Floats, diagonal: Floats) -> Floats:
    made = square.copy()
    made.flat[:: len(made) + 1] = diagonal
    return made


# -- chains through graphs ---------------------------------------------------------------------------------------------


def graph_arrays(chain: GraphChain, name: str) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """The arrays of a chain for all inputs, with their names. Raises: ValueError for links of one point.

    How many links it has stands beside them: where nothing bends there are none, and it is a chain all the same.
    """
    yield f"{name}.links", np.array([len(chain)], dtype=np.int64)
    for index, link in enumerate(chain):
        yield from ((f"{name}.{index}.{part}", array) for part, array in _link_arrays(link))


def _link_arrays(link: Link) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    if isinstance(link, Contenders) or (isinstance(link, Functions) and link.reach.size):
        raise ValueError("a chain near a point is no part of bounds")
    if isinstance(link, Compression):
        yield "integers", np.array([link.turn], dtype=np.int64)
        yield "factor", link.factor
        yield "units", link.units
        yield "numbers", np.array([link.slack])
        return
    yield "sector", np.stack([link.sector.middle, link.sector.spread])
    if link.bending is not None:
        step = link.bending
        yield "integers", np.array([int(step.inside)], dtype=np.int64)
        yield "vectors", np.stack([step.v, step.w])
        yield "g", step.g
        yield "numbers", np.array([step.e])


def graph_of(known: Arrays, name: str) -> GraphChain | None:
    """The chain of that name, whose arrays are taken out; None if there is none.

    Raises: KeyError or ValueError for what is none.
    """
    if f"{name}.links" not in known:
        return None
    (count,) = _flat(known, f"{name}.links", 1)
    links: list[Link] = []
    while len(links) < count:
        place = f"{name}.{len(links)}"
        if f"{place}.factor" in known:
            (turn,), (slack,) = _flat(known, f"{place}.integers", 1), _flat(known, f"{place}.numbers", 1)
            links.append(Compression(known.pop(f"{place}.factor"), known.pop(f"{place}.units"), slack, turn))
        elif f"{place}.sector" in known:
            links.append(Functions(Sector(*_rows(known, f"{place}.sector", 2)), _bending(known, place), np.zeros(0)))
        else:
            raise ValueError(f"{place} is missing")
    return tuple(links)


def _bending(known: Arrays, place: str) -> Bending | None:
    if f"{place}.g" not in known:
        return None
    (inside,), (e,) = _flat(known, f"{place}.integers", 1), _flat(known, f"{place}.numbers", 1)
    if inside not in (0, 1):
        raise ValueError(f"{place}.integers is no truth value")
    v, w = _rows(known, f"{place}.vectors", 2)
    return Bending(v, w, known.pop(f"{place}.g"), e, bool(inside))


def _flat(known: Arrays, name: str, length: int) -> list[Any]:
    found = known.pop(name)
    if found.shape != (length,):
        raise ValueError(f"{name} is of the shape {found.shape}")
    values: list[Any] = found.tolist()
    return values


def _rows(known: Arrays, name: str, count: int) -> Floats:
    found = known.pop(name)
    if found.ndim != 2 or len(found) != count:
        raise ValueError(f"{name} is of the shape {found.shape}")
    return found


# -- circulant chains --------------------------------------------------------------------------------------------------

_STEP_PARTS = ("near", "above", "core", "after", "g")


def circulant_arrays(witness: CirculantWitness, name: str) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    """Its arrays, with their names: of each link, and of all steps together."""
    exponents = [link.exponent for link in witness.links]
    yield f"{name}.integers", np.array([*witness.half_turns, *exponents], dtype=np.int64)
    for index, link in enumerate(witness.links):
        yield f"{name}.{index}.vectors", np.stack([link.sector.middle, link.sector.spread, link.v, link.w])
    steps = list(witness.steps)
    yield f"{name}.shapes", np.array([(len(step.core), len(step.g)) for step in steps], dtype=np.int64)
    yield f"{name}.numbers", np.array([(step.s.lift, step.e, step.slack) for step in steps])
    parts: dict[str, list[Floats]] = {
        "near": [lower_triangle(step.s.near) for step in steps],
        "above": [step.s.above.diagonal() for step in steps],
        "core": [lower_triangle(step.core) for step in steps],
        "after": [step.after.diagonal() for step in steps],
        "g": [step.g.ravel() for step in steps],
    }
    for part, arrays in parts.items():
        joined = np.concatenate(arrays)
        if joined.size:  # where no function bends there is no G
            yield f"{name}.{part}", joined


def circulant_of(known: Arrays, name: str) -> CirculantWitness | None:
    """The chain of that name, whose arrays are taken out; None if there is none. Raises: as `graph_of`."""
    if f"{name}.integers" not in known:
        return None
    integers = known.pop(f"{name}.integers").ravel().tolist()
    if len(integers) < 2 or any(abs(x) > MAX_BINARY_EXPONENT for x in integers):
        raise ValueError(f"{name}.integers has too few numbers, or too large ones")
    first, second, *exponents = integers
    links = []
    for index, exponent in enumerate(exponents):
        middle, spread, v, w = _rows(known, f"{name}.{index}.vectors", 4)
        links.append(CirculantLink(exponent, Sector(middle, spread), v, w))
    return CirculantWitness((first, second), tuple(links), tuple(_steps(known, name)))


def _steps(known: Arrays, name: str) -> Iterator[CirculantStep]:
    shapes, numbers = known.pop(f"{name}.shapes"), known.pop(f"{name}.numbers")
    if shapes.ndim != 2 or shapes.shape[1] != 2 or numbers.shape != (len(shapes), 3) or (shapes < 0).any():
        raise ValueError(f"{name}.shapes or {name}.numbers is of another shape")
    rest = {part: known.pop(f"{name}.{part}", np.zeros(0)).ravel() for part in _STEP_PARTS}
    at = dict.fromkeys(_STEP_PARTS, 0)

    def taken(part: str, count: int) -> Floats:
        found = rest[part][at[part] : at[part] + count]
        if len(found) != count:
            raise ValueError(f"{name}.{part} has too few numbers")
        at[part] += count
        return found

    for (side, bending), (lift, e, slack) in zip(shapes.tolist(), numbers.tolist(), strict=True):
        near, core = (symmetric(_square(taken(part, side * (side + 1) // 2), side)) for part in ("near", "core"))
        above, after = with_diagonal(near, taken("above", side)), with_diagonal(core, taken("after", side))
        g = taken("g", bending * bending).reshape(bending, bending)
        yield CirculantStep(LoewnerMajorant(near, above, lift), g, core, after, e, slack)
    if any(at[part] != len(rest[part]) for part in _STEP_PARTS):
        raise ValueError(f"{name} has too many numbers")


def _square(lower: Floats, side: int) -> Floats:
    made = np.zeros((side, side))
    made[np.tril_indices(side)] = lower
    return made
