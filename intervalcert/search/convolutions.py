"""Floats that are guessed: factors and directions that show the norms of convolutions. Nothing here is trusted.

The methods of `proof.banded` and `proof.torus` ask for the same thing, a factor of c·I - A·Aᴴ for a block matrix A
whose rows are near each other: once for the convolution itself, or once for each frequency. Those of frequencies are
made one after the other, when they are asked for: wide layers would fill the memory with them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import product
from operator import add
from typing import Literal

import numpy as np

from intervalcert.backends.protocol import Floats, Indices
from intervalcert.model.linear_maps import Convolution
from intervalcert.model.taps import AxisTaps, axis_taps
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.proof.banded import BandedWitness, line_blocks, lines
from intervalcert.proof.blocks import BlockFactor, BlockRows, bandwidth
from intervalcert.proof.torus import (
    Frequency,
    Offset,
    Parts,
    SemiTorusWitness,
    TorusWitness,
    frequencies,
    is_exact,
    root,
    semi_torus_parts,
    torus_parts,
)
from intervalcert.search.blocks import (
    ABOVE,
    KEPT_BYTES,
    STEPS,
    SURELY,
    Anew,
    Array,
    FloatBlocks,
    factor_near,
    factor_surely,
    places_of,
    top_eigenpair,
)

__all__ = [
    "Estimate",
    "Method",
    "choose_method",
    "estimate",
    "search_banded",
    "search_direction",
    "search_semi_torus",
    "search_torus",
]

Method = Literal["banded", "semi-torus", "torus"]


# -- the convolution itself --------------------------------------------------------------------------------------------

_LEAST_STEPS, _EFFORT = 24, 6e10
"""Steps of Lanczos' method: at least so many, and more while all of them take no more operations than that."""


def search_direction(convolution: Convolution) -> Floats:
    """A vector near the first right singular one, of integers; never zero. (30 bits of it are as good as 60.)"""
    _, x, _ = _top_of(convolution)
    largest = np.max(np.abs(x))
    integers: Floats = np.rint(x / largest * 2**30) if 0 < largest < np.inf else np.zeros(len(x))
    if not integers.any():  # the map is zero
        integers[0] = 1
    return integers


@lru_cache(maxsize=2)
def _top_of(convolution: Convolution) -> tuple[float, Floats, bool]:
    """Near ||T||²·4^-exponent; near the first right singular vector; whether they are near enough."""
    near = convolution.near()
    outputs, inputs = convolution.shape
    start = np.random.default_rng(0).standard_normal(min(outputs, inputs))
    work = 4 * math.prod(convolution.kernel.shape) * math.prod(convolution.window.outputs)
    steps = int(max(_LEAST_STEPS, min(STEPS, _EFFORT / work)))

    def forth(x: Floats) -> Floats:
        return near.apply(x[:, None])[:, 0]

    def back(y: Floats) -> Floats:
        return near.adjoint(y[:, None])[:, 0]

    if inputs <= outputs:
        return top_eigenpair(lambda x: back(forth(x)), start, steps)
    value, y, is_near = top_eigenpair(lambda y: forth(back(y)), start, steps)
    return value, back(y), is_near


def _floats(matrix: RationalMatrix, exponent: int) -> Floats:
    """Near matrix·2^-exponent."""
    near = matrix.near_floats()
    shift = near.exponent - exponent
    return np.ldexp(near.values, shift) if shift else near.values


# -- with lines alone --------------------------------------------------------------------------------------------------


def search_banded(convolution: Convolution, plan: Estimate | None = None) -> BandedWitness:
    """Along the axis, and on the side, that cost least, if no other ones are planned."""
    plan = plan or estimate(convolution)["banded"]
    exponent = convolution.kernel.near_floats().exponent
    found = {u: _floats(block, exponent) for u, block in line_blocks(convolution, plan.axis).items()}
    if not found:  # the map is zero
        return BandedWitness(plan.axis, plan.by_outputs, BlockFactor(0.0, (), exponent))
    blocks = FloatBlocks(
        lines(convolution, plan.axis, plan.by_outputs),
        {u: block if plan.by_outputs else np.ascontiguousarray(block.T) for u, block in found.items()},
    )
    value, _, is_near = _top_of(convolution)
    if is_near and value > 0 and blocks.factor_bytes > KEPT_BYTES:
        factor = factor_surely(blocks, exponent, value * (1 + SURELY))
    else:
        factor = factor_near(blocks, exponent, value * (1 + ABOVE[0]))
    return BandedWitness(plan.axis, plan.by_outputs, factor)


# -- with frequencies --------------------------------------------------------------------------------------------------

_FloatParts = dict[int, dict[Offset, Floats]]


def search_torus(convolution: Convolution, half_turns: tuple[int, int] | None = None) -> TorusWitness:
    """With the signs at the ends of the grid that promise the least bound, if no other ones are named."""
    axes, parts = torus_parts(convolution)
    (first, second), factors = _search_waves(convolution, [{0: 0}], parts, axes, half_turns)
    return TorusWitness((first, second), factors)


def search_semi_torus(
    convolution: Convolution, plan: Estimate | None = None, half_turn: int | None = None
) -> SemiTorusWitness:
    """Along the axis, and on the side, that cost least; with the sign that promises the least bound; or as is named."""
    plan = plan or estimate(convolution)["semi-torus"]
    axes, parts = semi_torus_parts(convolution, plan.axis, plan.by_outputs)
    rows = lines(convolution, plan.axis, plan.by_outputs)
    named = None if half_turn is None else (half_turn,)
    (found,), factors = _search_waves(convolution, rows, parts, axes, named)
    return SemiTorusWitness(plan.axis, plan.by_outputs, found, factors)


def _search_waves(
    convolution: Convolution,
    rows: BlockRows,
    parts: Parts,
    axes: Sequence[AxisTaps],
    named: tuple[int, ...] | None,
) -> tuple[tuple[int, ...], Iterable[BlockFactor]]:
    """The half turns, and the factors of all frequencies."""
    if not any(parts.values()):  # the map is zero
        return (0,) * len(axes), ()
    exponent = convolution.kernel.near_floats().exponent
    floats = {u: {t: _floats(part, exponent) for t, part in of.items()} for u, of in parts.items()}
    both = [(0,) if len(axis.offsets) == 1 else (0, 1) for axis in axes]
    half_turns, largest = _best_twist(rows, floats, axes, list(product(*both)) if named is None else [named])
    listed = frequencies(axes, half_turns)

    def factors() -> Iterator[BlockFactor]:
        """One c for all frequencies, if the worst was found; else larger ones from where it is seen."""
        c = largest * (1 + ABOVE[0])
        for frequency in listed:
            found = factor_near(_blocks_at(rows, floats, frequency), exponent, c)
            c = max(c, found.shift)
            yield found

    return half_turns, Anew(len(listed), factors)


def _blocks_at(rows: BlockRows, parts: _FloatParts, frequency: Frequency) -> FloatBlocks:
    """The block matrix of one frequency."""
    return FloatBlocks(rows, {u: _symbol(of, frequency) for u, of in parts.items()})


def _symbol(parts: Mapping[Offset, Floats], frequency: Frequency) -> Array:
    """With the very roots of unity that the proof takes: real where it is real."""
    roots = {offset: root(frequency, offset) for offset in parts}
    if any(y for _, y in roots.values()):
        return reduce(add, (part * complex(*map(float, roots[offset])) for offset, part in parts.items()))
    return reduce(add, (part * float(roots[offset][0]) for offset, part in parts.items()))


_POWER_STEPS, _ROUND, _FEW, _LAST = 48, 4, 6, 2
"""Steps of power iteration at many frequencies at once; after each round the smaller half is given up, except a few.
The last ones are looked at more closely: power iteration is slow where eigenvalues are near each other."""


def _best_twist(
    rows: BlockRows, parts: _FloatParts, axes: Sequence[AxisTaps], options: Sequence[tuple[int, ...]]
) -> tuple[tuple[int, ...], float]:
    """The half turns whose largest squared norm is the least, as far as one can see, and what that is."""
    listed = [(which, a) for which, option in enumerate(options) for a in frequencies(axes, option)]
    which, alive, squares = np.array([each for each, _ in listed]), np.arange(len(listed)), np.zeros(len(listed))
    waves = _Waves(rows, parts, [a for _, a in listed])
    x = waves.start()
    for step in range(1, _POWER_STEPS + 1 if len(listed) > 1 else 1):
        y = waves.apply(x, alive)
        squares[alive] = _squares(y)
        x = waves.adjoint(y, alive)
        x = x / np.sqrt(_squares(x) + np.finfo(float).tiny)
        if step % _ROUND == 0:
            kept = np.isin(alive, _survivors(alive, which, squares))
            alive, x = alive[kept], np.ascontiguousarray(x[:, :, kept])
    found = []
    for option in range(len(options)):
        mine = np.flatnonzero(which == option)
        last = [listed[k][1] for k in mine[np.argsort(-squares[mine])[:_LAST]].tolist()]
        found.append(max(_blocks_at(rows, parts, a).largest_eigenvalue() for a in last))
    best = int(np.argmin(found))
    return options[best], found[best]


def _survivors(alive: Indices, which: Indices, squares: Floats) -> Indices:
    """Of each option the larger half, or a few."""
    found = []
    for option in np.unique(which[alive]):
        mine = alive[which[alive] == option]
        found.append(mine[np.argsort(-squares[mine])[: max(_FEW, -(-len(mine) // 2))]])
    return np.concatenate(found)


class _Waves:
    """The block matrices of many frequencies at once, applied to arrays of (block, entry, frequency)."""

    def __init__(self, rows: BlockRows, parts: _FloatParts, listed: Sequence[Frequency]) -> None:
        self._parts, self._places, self._count = parts, places_of(rows), len(rows)
        self._columns = 1 + max(k for row in rows for k in row)
        some = next(iter(parts.values()))
        self._side, self._inner = next(iter(some.values())).shape
        turns = np.array([[float(x) for x in a] for a in listed])
        self._roots = {t: np.exp(2j * np.pi * (turns @ np.array(t))) for t in some}

    def start(self) -> Array:
        count = len(next(iter(self._roots.values())))
        x = np.random.default_rng(0).standard_normal((self._columns, self._inner, count)).astype(np.complex128)
        return x / np.sqrt(_squares(x))

    def apply(self, x: Array, alive: Indices) -> Array:
        made = np.zeros((self._count, self._side, len(alive)), dtype=np.complex128)
        for u, (r, k) in self._places.items():
            for t, part in self._parts[u].items():
                made[r] += _real_times(part, x[k] * self._roots[t][alive])
        return made

    def adjoint(self, y: Array, alive: Indices) -> Array:
        made = np.zeros((self._columns, self._inner, len(alive)), dtype=np.complex128)
        for u, (r, k) in self._places.items():
            for t, part in self._parts[u].items():
                made[k] += _real_times(part.T, y[r] * self._roots[t][alive].conj())
        return made


def _squares(x: Array) -> Floats:
    """The squared norm for each frequency."""
    found: Floats = (x.real**2 + x.imag**2).sum(axis=(0, 1))
    return found


def _real_times(matrix: Floats, z: Array) -> Array:
    """A real matrix times complex ones: as times real ones with twice as many columns."""
    found: Array = np.ascontiguousarray(matrix @ np.ascontiguousarray(z).view(np.float64)).view(np.complex128)
    return found


# -- what it costs, known beforehand -----------------------------------------------------------------------------------

MOST_SECONDS, MOST_BYTES = 20.0, 2**30
"""What a sharper method may take on float64 before the next one is chosen."""

_FLOP, _TOUCHED, _CALL = 2.5e-11, 1e-8, 4e-5
"""Seconds for an operation in a product, for an entry of a matrix that is made, and for an operation on matrices."""


@dataclass(frozen=True)
class Estimate:
    """What search and proof take on float64, on one core of an ordinary machine, and how often `on_step` is called.

    axis, by_outputs: how the witness is to be made. exact: whether the method loses nothing but roundings.
    """

    method: Method
    seconds: float
    bytes: int
    steps: int
    axis: int = 0
    by_outputs: bool = True
    exact: bool = True

    @property
    def fits(self) -> bool:
        return self.seconds <= MOST_SECONDS and self.bytes <= MOST_BYTES


def choose_method(convolution: Convolution) -> Method:
    """The sharpest that fits: of exact ones the cheapest, else the semi-torus; the torus takes what is left."""
    found = estimate(convolution)
    exact = [each for each in found.values() if each.exact and each.fits]
    if exact:
        return min(exact, key=_cost).method
    return "semi-torus" if found["semi-torus"].fits else "torus"


def estimate(convolution: Convolution) -> dict[Method, Estimate]:
    """The least cost of each method, from shapes alone. Requires: the convolution has one group."""
    plans = list(product((0, 1), (True, False)))
    return {
        "banded": min((_banded(convolution, *plan) for plan in plans), key=_cost),
        "semi-torus": min((_semi_torus(convolution, *plan) for plan in plans), key=_cost),
        "torus": _torus(convolution),
    }


def _cost(found: Estimate) -> float:
    """Time; where memory is short it counts, too."""
    return found.seconds * max(1.0, found.bytes / MOST_BYTES)


def _banded(convolution: Convolution, axis: int, by_outputs: bool) -> Estimate:
    window, across = convolution.window, 1 - axis
    outputs = convolution.kernel.shape[0] * window.outputs[across]
    inputs = convolution.channels * window.inputs[across]
    rows = lines(convolution, axis, by_outputs)
    seconds, held = _cost_of(rows, *((outputs, inputs) if by_outputs else (inputs, outputs)), is_real=True)
    return Estimate("banded", seconds, held, len(rows), axis, by_outputs)


def _semi_torus(convolution: Convolution, axis: int, by_outputs: bool) -> Estimate:
    waves = axis_taps(convolution.window, 1 - axis)
    outputs, inputs = convolution.kernel.shape[0], convolution.channels * max(1, len(waves.phases))
    rows, exact = lines(convolution, axis, by_outputs), len(waves.offsets) <= 1
    seconds, held = _cost_of(rows, *((outputs, inputs) if by_outputs else (inputs, outputs)), is_real=exact)
    made = len(waves.offsets) * convolution.window.size[axis] * (outputs * inputs * _TOUCHED + 2 * _CALL)
    count = len(frequencies([waves], [0])) if waves.places else 0
    return Estimate("semi-torus", count * (seconds + made), held, count * len(rows), axis, by_outputs, exact)


def _torus(convolution: Convolution) -> Estimate:
    axes = [axis_taps(convolution.window, axis) for axis in (0, 1)]
    offsets, phases = (math.prod(map(len, each)) for each in zip(*((a.offsets, a.phases) for a in axes), strict=True))
    side, inner = sorted((convolution.kernel.shape[0], convolution.channels * max(1, phases)))
    exact = not offsets or is_exact(axes)
    seconds, held = _cost_of([{0: 0}], side, inner, is_real=exact)
    count = len(frequencies(axes, [0, 0])) if offsets else 0
    made = offsets * (side * inner * _TOUCHED + 2 * _CALL)
    return Estimate("torus", count * (seconds + made), held + 16 * offsets * side * inner, count, exact=exact)


def _cost_of(rows: BlockRows, side: int, inner: int, is_real: bool) -> tuple[float, int]:
    """Seconds and bytes of the factor of one block matrix, guessed and proved."""
    band, numbers = bandwidth(rows), 1 if is_real else 2
    near = ((row, other) for r, row in enumerate(rows) for other in rows[max(r - band, 0) : r + 1])
    pairs = {(u, other[k]) for row, other in near for k, u in row.items() if k in other}
    blocks = len(rows) * (band + 1)
    products = (2 * blocks * (band + 1) * side + 4 * len(pairs) * inner) * side**2 * numbers**2
    seconds = products * _FLOP + blocks * (side**2 * _TOUCHED * numbers + _CALL * numbers**2)
    kept = blocks * side**2 * 8 * numbers
    held = (2 * (band + 1) ** 2 + 2 * len(pairs) + 12) * side**2 + 2 * len(pairs) * inner * side
    return seconds, held * 8 * numbers + (kept if kept <= KEPT_BYTES else 0)
