"""The search for a circulant chain, in floats: what `proof.circulant_chain` checks, names as there. Nothing is trusted.

First the multipliers, level by level: those of the closed form of `proof.ellipsoids`, with the largest eigenvalue of S
over all frequencies; so the chain is never worse than the product of the norms on the same tori. Then, frequency by
frequency, the matrices of each step; of wide layers they are large, and made one after the other when they are asked
for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

import numpy as np
import numpy.typing as npt

from intervalcert.backends.protocol import Floats
from intervalcert.errors import UndecidedError
from intervalcert.model.network import Network
from intervalcert.model.windows import Pair
from intervalcert.numbers.rounding import float_enclosure
from intervalcert.proof.circulant_chain import (
    CirculantLink,
    CirculantStep,
    CirculantWitness,
    Frequency,
    aliases,
    interleaved,
    is_real,
    root_error,
)
from intervalcert.proof.circulant_levels import Level, Segment, segments_of
from intervalcert.proof.ellipsoids import LoewnerMajorant, Sector
from intervalcert.search.ellipsoids import guess_step
from intervalcert.search.factors import largest_eigenvalue

__all__ = ["not_circulant", "search_circulant", "witness_bytes"]

_LARGEST = 1 - 2.0**-10
"""The most that v²·||S|| starts with: K = I - VSV must be positive definite with some room."""

_MOVES = (0.9, 1.1, 1.25)
"""By these factors multipliers are tuned."""

_NEGLIGIBLE = 2.0**-12
"""A round that lowers the squared margins by a smaller part is the last."""

_SLACK, _SMALL, _UNIT = 2.0**-43, 16, 2.0**-44
"""As in `search.ellipsoids`: S is lifted by this, times the square of its side, which is taken to be 16 at least; and
its entries are multiples of the last."""

_KEPT = 2**28
"""Bytes of the steps of a witness that are kept. What takes more is made anew."""

_KEPT_LEVEL = 2**30
"""Bytes of the matrices S of one level that are kept, in float32: multipliers need no more digits. What takes more is
made anew, from the first level on."""

_CHEAP = 2.0**33
"""Operations of one search: if it takes fewer, all half turns are tried."""


def not_circulant(network: Network) -> str | None:
    """Why there is no circulant chain for a network; None if there may be one."""
    try:
        segments = segments_of(network)
    except UndecidedError as error:
        return str(error)
    if all(level.offsets == ((0, 0),) for segment in segments for level in segment.levels):
        return "no layer has a grid: a chain of matrices is what it is"
    return None


def witness_bytes(network: Network) -> int:
    """What the steps of a witness take if all are kept: known before anything is computed. Requires: it has one."""
    return sum(_count(segment, k) * _step_bytes(level) for segment, k, level in _hidden(segments_of(network)))


def _hidden(segments: Sequence[Segment]) -> Iterator[tuple[Segment, int, Level]]:
    """All levels but that of the last layer: (segment, place, level)."""
    for segment in segments:
        for k, level in enumerate(segment.levels):
            if level.slopes is not None or level.constant is not None:
                yield segment, k, level


def _count(segment: Segment, place: int) -> int:
    """Frequencies of a level, or a few less."""
    positions = math.prod(segment.sides) * math.prod(math.prod(x.stride) for x in segment.levels[place + 1 :])
    return positions // 2 + 1


def _step_bytes(level: Level) -> int:
    """Five matrices of twice the channels."""
    return 5 * 8 * (2 * level.side) ** 2


def search_circulant(network: Network, rounds: int = 0) -> CirculantWitness | None:
    """A chain with the closed form, or with multipliers that are tuned in so many rounds, one number for each layer.

    None if the network is none of the kind (`not_circulant`), or floats break down (at a layer of zeros, say).
    """
    if not_circulant(network) is not None:
        return None
    segments = segments_of(network)
    work = sum(_count(segment, k) * 16.0 * level.side**3 for segment, k, level in _hidden(segments))
    turns: list[Pair] = [(1, 1)] if work > _CHEAP else list(product((0, 1), repeat=2))  # type: ignore[arg-type]
    found = [plan for plan in (_planned(segments, each) for each in turns) if plan is not None]
    if not found:
        return None
    best = _tuned(segments, min(found, key=lambda plan: plan.mean_log), rounds)
    try:
        steps = tuple(best.steps()) if witness_bytes(network) <= _KEPT else _Anew(best.steps)
    except (np.linalg.LinAlgError, FloatingPointError):
        return None
    return CirculantWitness(best.half_turns, tuple(link for part in best.parts for link in part.links), steps)


class _Anew:
    """What is made when it is asked for, and anew for whoever asks again."""

    def __init__(self, make: Callable[[], Iterator[CirculantStep]]) -> None:
        self._make = make

    def __iter__(self) -> Iterator[CirculantStep]:
        return self._make()


@dataclass(frozen=True, eq=False)
class _Plan:
    """The links of all segments. mean_log: the mean logarithm of the squared margins, as far as floats tell.

    factors: by which v² of each hidden layer differs from the closed form.
    """

    half_turns: Pair
    parts: tuple[_Part, ...]
    mean_log: float
    factors: tuple[float, ...]

    def steps(self) -> Iterator[CirculantStep]:
        for part in self.parts:
            for frequency in part.roots(self.half_turns):
                yield from part.made(len(part.links), frequency)


def _tuned(segments: Sequence[Segment], best: _Plan, rounds: int) -> _Plan:
    """With the factors that lower the margins, one after the other."""
    for _ in range(rounds):
        before = best.mean_log
        for k, move in product(range(len(best.factors)), _MOVES):
            wanted = (*best.factors[:k], best.factors[k] * move, *best.factors[k + 1 :])
            other = _planned(segments, best.half_turns, wanted)
            if other is not None and other.mean_log < best.mean_log:
                best = other
        if best.mean_log > before - _NEGLIGIBLE:
            break
    return best


def _planned(segments: Sequence[Segment], half_turns: Pair, factors: tuple[float, ...] | None = None) -> _Plan | None:
    """None where floats end: at a layer of zeros, or multipliers that are too large."""
    parts, scale = [], 0.0
    factors = factors or (1.0,) * len(list(_hidden(segments)))
    rest = iter(factors)
    try:
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            for segment in segments:
                part = _Part(segment)
                part.plan(half_turns, rest)
                parts.append(part)
                scale += sum(link.exponent for link in part.links) * math.log(2)
                if segment.levels[-1].constant is not None:
                    scale += 2 * math.log(part.links[-1].w[0])
            squares = parts[-1].margins(half_turns)
    except (np.linalg.LinAlgError, FloatingPointError):
        return None
    return _Plan(half_turns, tuple(parts), float(np.log(np.maximum(squares, 1e-300)).mean()) + scale, factors)


class _Part:
    """One segment in floats. Matrices of frequencies are in coordinates (α, β), and on the scales of the links."""

    def __init__(self, segment: Segment) -> None:
        self._levels, self._sides = segment.levels, segment.sides
        self._near = [level.kernel.near_floats() for level in segment.levels]
        self._kept: tuple[int, dict[Frequency, npt.NDArray[np.float32]]] = 0, {}
        self.links: list[CirculantLink] = []

    def roots(self, half_turns: Pair) -> list[Frequency]:
        """The frequencies of the torus after the last hidden level."""
        return self._frequencies(half_turns, len(self.links) or len(self._hidden))

    @property
    def _hidden(self) -> list[Level]:
        return [level for level in self._levels if level.slopes is not None or level.constant is not None]

    def _frequencies(self, half_turns: Pair, depth: int) -> list[Frequency]:
        """Those of the torus after so many levels."""
        top = Fraction(half_turns[0], 2), Fraction(half_turns[1], 2)
        found = [b for b, _ in aliases(top, self._sides)]
        for level in reversed(self._levels[depth:]):
            found = [b for a in found for b, _ in aliases(a, level.stride)]
        return found

    # -- multipliers -----------------------------------------------------------------------------------------------

    def plan(self, half_turns: Pair, factors: Iterator[float]) -> None:
        """The links, one after the other, each with a factor."""
        for depth, level in enumerate(self._hidden, start=1):
            frequencies = self._frequencies(half_turns, depth)
            is_kept = len(frequencies) * 4 * (2 * level.side) ** 2 <= _KEPT_LEVEL
            spreads: dict[Frequency, npt.NDArray[np.float32]] = {}
            top = 0.0
            for a in frequencies:
                s = self._spread(depth, a, self._before(depth, a))
                top = max(top, largest_eigenvalue(s))
                if is_kept:
                    spreads[a] = s.astype(np.float32)
            self.links.append(self._link(level, top, 2 * self._near[depth - 1].exponent, next(factors)))
            self._kept = depth, spreads

    def _link(self, level: Level, top: float, exponent: int, factor: float) -> CirculantLink:
        if not 0 < top < math.inf:
            raise FloatingPointError("no positive eigenvalue")
        power = math.frexp(top)[1]
        sector, sigma = _sector(level), math.ldexp(top, -power)
        relative = factor * sector.spread / np.maximum(np.abs(sector.middle) + sector.spread, 1e-300)
        # v is rounded to few bits, and w goes with it: as in every step.
        v = np.sqrt(np.minimum(relative, _LARGEST) / sigma)
        step = guess_step(np.eye(level.side) * sigma / 4, sector, v).step
        return CirculantLink(power + exponent, sector, step.v, step.w)

    def _before(self, depth: int, a: Frequency) -> list[Floats | None]:
        """P of all aliases of a frequency after `depth` levels."""
        return [self._ellipsoid(depth - 1, b) for b, _ in aliases(a, self._levels[depth - 1].stride)]

    def _ellipsoid(self, depth: int, a: Frequency) -> Floats | None:
        if not depth:
            return None
        link, near = self.links[depth - 1], self._near[depth - 1]
        known = self._kept[1].pop(a, None) if self._kept[0] == depth else None  # asked for once: it is an alias of one
        s = self._spread(depth, a, self._before(depth, a)) if known is None else known.astype(np.float64)
        return self._after(depth, np.ldexp(s, 2 * near.exponent - link.exponent))

    def _after(self, depth: int, s: Floats) -> Floats:
        """Q."""
        link = self.links[depth - 1]
        times = len(s) // len(link.v)
        v, w, m = np.tile(link.v, times), np.tile(link.w, times), np.tile(link.sector.middle, times)
        k = np.eye(len(s)) - v[:, None] * s * v
        b = s + s @ (v[:, None] * np.linalg.solve(k, v[:, None] * s))
        made: Floats = m[:, None] * b * m
        made.flat[:: len(s) + 1] += w * w
        return (made + made.T) / 2

    def margins(self, half_turns: Pair) -> Floats:
        """Squares of the margins of all pairs of classes, over the scales of the links."""
        top = Fraction(half_turns[0], 2), Fraction(half_turns[1], 2)
        depth = len(self._levels)
        s = np.ldexp(self._spread(depth, top, self._before(depth, top)), 2 * self._near[-1].exponent)
        upper, lower = np.tril_indices(len(s), -1)
        found: Floats = s[upper, upper] + s[lower, lower] - 2 * s[upper, lower]
        return found

    # -- matrices --------------------------------------------------------------------------------------------------

    def _spread(self, depth: int, a: Frequency, before: Sequence[Floats | None]) -> Floats:
        """The bound of S of a frequency, over 4^exponent of the kernel."""
        level, kernel = self._levels[depth - 1], self._near[depth - 1].values
        parts = list(zip(aliases(a, level.stride), before, strict=True))
        total: Floats = sum((self._term(depth, b, omega, p) for (b, omega), p in parts), start=np.zeros(()))
        sizes = sum(omega * (1.0 if p is None else float(np.linalg.norm(p))) for (_, omega), p in parts)
        delta = float(root_error(level))
        total = (total + total.T) / 2
        total.flat[:: len(total) + 1] += delta * len(level.offsets) * float((kernel * kernel).sum()) * sizes
        return total * ((1 + delta) / math.prod(level.stride))

    def _term(self, depth: int, b: Frequency, omega: int, p: Floats | None) -> Floats:
        level, kernel = self._levels[depth - 1], self._near[depth - 1].values
        c, s = _waves(b, level.offsets)
        if is_real(b):
            symbol = (kernel @ c).reshape(level.channels)
        else:
            symbol = (kernel @ np.stack([c, -s], axis=1)).reshape(level.side, -1)
            p = None if p is None else interleaved(p)
            if omega == 1:
                below = (kernel @ np.stack([s, c], axis=1)).reshape(level.side, -1)
                symbol = np.concatenate([symbol, below])
        made: Floats = omega * ((symbol if p is None else symbol @ p) @ symbol.T)
        return made

    def made(self, depth: int, a: Frequency) -> Generator[CirculantStep, None, Floats | None]:
        """The steps of a frequency and of all that it is made of, in the order of the check; gives P' of it."""
        if not depth:
            return None
        before = []
        for b, _ in aliases(a, self._levels[depth - 1].stride):
            before.append((yield from self.made(depth - 1, b)))
        link, near = self.links[depth - 1], self._near[depth - 1]
        s = np.ldexp(self._spread(depth, a, before), 2 * near.exponent - link.exponent)
        majorant, times = _majorant(s), len(s) // len(link.v)
        sector = Sector(np.tile(link.sector.middle, times), np.tile(link.sector.spread, times))
        step = guess_step(majorant.above, sector, np.tile(link.v, times)).step
        yield CirculantStep(majorant, step.g, step.core, step.after, step.e, step.slack)
        return step.after


def _majorant(s: Floats) -> LoewnerMajorant:
    """For the S that floats take for `s`, on a scale on which the largest over all frequencies is about 1.

    Unlike that of `search.ellipsoids`, the lift has a size of its own: at some frequencies little comes through.
    """
    lift = max(float(np.linalg.norm(s)), 1.0) * max(len(s), _SMALL) ** 2 * _SLACK
    near: Floats = np.rint(s / _UNIT) * _UNIT
    above = near.copy()
    above.flat[:: len(s) + 1] = (np.ceil((near.diagonal() + lift) / _UNIT) + 1) * _UNIT
    return LoewnerMajorant(near, above, lift)


def _waves(b: Frequency, offsets: Sequence[Pair]) -> tuple[Floats, Floats]:
    """Cosines and sines of 2π·b·o for all offsets o."""
    parts = math.lcm(b[0].denominator, b[1].denominator)
    along = np.array([int(b[0] * parts), int(b[1] * parts)])
    angles = 2 * math.pi * ((np.array(offsets) @ along) % parts / parts)
    return np.cos(angles), np.sin(angles)


def _sector(level: Level) -> Sector:
    """Floats around the slopes of each channel; or around zero, if only a constant is known."""
    constant = level.constant
    slopes = level.slopes if constant is None else ((-constant, constant),) * level.side
    ends = {pair: _around(*pair) for pair in set(slopes or ())}
    pairs = [ends[pair] for pair in slopes or ()]
    return Sector(np.array([middle for middle, _ in pairs]), np.array([spread for _, spread in pairs]))


def _around(low: Fraction, high: Fraction) -> tuple[float, float]:
    middle = float((low + high) / 2)
    reach = max(high - Fraction(middle), Fraction(middle) - low)  # from the float, not from the middle itself
    return middle, float_enclosure(reach, reach)[1]
