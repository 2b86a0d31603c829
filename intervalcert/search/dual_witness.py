"""Duals that are worth a proof: from the chain at an input to the multipliers, the steps and the point of `proof.dual`.

The search starts where the chain ends: its sectors and multipliers are a dual, too (of a hinge with z > 0, λ1 : λ3 is
(1 - t) : t; with z < 0, λ1 : λ2 is), so nothing is lost. What the chain leaves at zero starts at a little that costs
next to nothing. Multipliers are rounded to few bits in the end, and solved for once more: witnesses are short, and the
point is that of the very numbers that are proved.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from intervalcert.backends.protocol import Floats, Indices
from intervalcert.model.activations import PiecewiseLinear
from intervalcert.proof.dual import ETA, NAMES, DualPoint, DualStep, DualWitness, Range
from intervalcert.proof.ellipsoids import LoewnerMajorant, Sector, Step
from intervalcert.search.dual import MULTIPLIERS, DualForm, HingeLayer, Solution
from intervalcert.search.ellipsoids import guess_inner, guess_majorant

__all__ = ["DualSetting", "Found", "steps_of"]

_BITS = 24
"""Of a multiplier."""

_GRID = 2.0**44
"""M is a multiple of 1 over this: on a coarser grid λ2 costs more than some leads have."""

_LITTLE = 1e-4
"""Of the lead: what all multipliers that the chain leaves at zero may cost in the beginning."""

_UNSURE = 2.0**-50
"""By this part floats may be off."""


@dataclass(frozen=True, eq=False)
class Found:
    """What is worth a proof: the multipliers, the point, and the lead that floats think it proves."""

    witness: DualWitness
    at: DualPoint
    lead: float


class DualSetting:
    """What all targets share at one input: the layers, and where to start."""

    def __init__(
        self,
        weights: Sequence[Floats],
        functions: Sequence[PiecewiseLinear],
        inner: Sequence[Floats],
        ranges: Sequence[Range],
        gram: Floats,
        eps: float,
    ) -> None:
        """weights: of the hidden layers. inner: their values at the input. ranges: between which they stay.

        Raises: FloatingPointError for numbers beyond the floats.
        """
        self._weights, self._functions, self.eps = weights, functions, eps
        self._inner, self._gram = inner, gram
        self._hinges = [
            [_Place.of(float(weight), float(kink), z, ends) for weight, kink in function.hinges]
            for function, z, ends in zip(functions, inner, ranges, strict=True)
        ]
        layers = [
            _layer(w, function, hinges) for w, function, hinges in zip(weights, functions, self._hinges, strict=True)
        ]
        if not all(np.isfinite(layer.low).all() and np.isfinite(layer.high).all() for layer in layers):
            raise FloatingPointError("ranges beyond the floats")
        self.form = DualForm(layers, gram, eps)

    def start(self, chain: Sequence[Floats], square: float, lead: float) -> Floats:
        """Multipliers from those of a chain.

        chain: w⁻² of each neuron of each layer, 0 where it has none. square: dᵀPd, its slope squared.
        """
        gamma = max(float(np.sqrt(max(square, 0.0))), 1e-150) / (2 * self.eps)
        parts = [np.array([gamma])]
        for layer, known in zip(self.form.layers, chain, strict=True):
            usual = float(np.median(known[known > 0])) if (known > 0).any() else 1.0
            own = np.where(known > 0, known, usual)[layer.neuron]
            parts.append(self._of_sectors(layer, gamma * own * layer.weight**2, lead).ravel())
        return np.concatenate(parts)

    def _of_sectors(self, layer: HingeLayer, alpha: Floats, lead: float) -> Floats:
        z, low, high = layer.at, layer.low, layer.high
        part = np.clip(np.abs(z) / np.maximum(np.maximum(z - low, high - z), 1e-300), 0.0, 1.0)  # t
        wide = np.maximum(high - low, 1e-300)
        little = _LITTLE * abs(lead) / (MULTIPLIERS * max(self.form.size, 1))
        two = np.maximum(np.where(z > 0, 0.0, alpha * part), little / wide**2)
        three = np.maximum(np.where(z > 0, alpha * part, 0.0), little / wide**2)
        return np.array([alpha, two, three, little / wide, little / wide, little / wide**2])

    def found(self, multipliers: Floats, direction: Floats, lead: float, target: int) -> Found:
        """The witness that these multipliers come to, rounded, and its point. Raises: LinAlgError if there is none."""
        gamma, parts = self.form.split(multipliers)
        gamma = float(_short(np.array([gamma]))[0])
        numbers, solved = [], [np.array([gamma])]
        for index, part in enumerate(parts):
            alpha, two, three, four, five, six = _short(part)
            # λ2 = α·(1 - 2M) + λ3 must not be below zero: M is rounded down, by more than floats are off.
            middle = (np.floor((alpha - two + three) / (2 * alpha) * _GRID) - 1) / _GRID
            two = alpha * (1 - 2 * middle) + three
            solved.append(np.array([alpha, two, three, four, five, six]).ravel())
            numbers.append(self._placed(index, np.array([alpha, middle, three, four, five, six])))
        solution = self.form.solved(np.concatenate(solved), direction, lead, 0.0)
        witness = DualWitness(target, gamma, tuple(numbers))
        return Found(witness, self._point(gamma, solved, solution), solution.value)

    def _placed(self, index: int, of_those: Floats) -> tuple[Floats, ...]:
        """For each hinge the rows `NAMES`, of all neurons."""
        found, at = [], 0
        for place in self._hinges[index]:
            made = np.zeros((len(NAMES), len(place.slope)))
            made[1] = place.slope
            made[:MULTIPLIERS, place.bends] = of_those[:, at : at + len(place.bends)]
            at += len(place.bends)
            found.append(made)
        return tuple(found)

    def _point(self, gamma: float, parts: Sequence[Floats], solution: Solution) -> DualPoint:
        nus = []
        for index, layer in enumerate(self.form.layers):
            alpha, two, three = parts[index + 1].reshape(MULTIPLIERS, -1)[:3]
            middle = (alpha - two + three) / (2 * alpha)
            own = np.maximum(layer.at, 0.0) - middle * layer.at + solution.nu[index]
            at, made = 0, []
            for place in self._hinges[index]:
                nu = np.zeros(len(place.slope))
                nu[place.bends] = own[at : at + len(place.bends)]
                at += len(place.bends)
                made.append(nu)
            nus.append(tuple(made))
        return DualPoint(-(self._weights[0].T @ solution.pulled) / (2 * gamma), tuple(nus))


@dataclass(frozen=True, eq=False)
class _Place:
    """Of one hinge: where its neurons are. bends: those that may reach the kink; slope: 1 or 0 of the others."""

    weight: float
    at: Floats
    low: Floats
    high: Floats
    bends: Indices
    slope: Floats

    @staticmethod
    def of(weight: float, kink: float, z: Floats, ends: Range) -> _Place:
        # A little outward: what rounds here must not be taken for a line there.
        low, high = (end - kink for end in ends)
        unsure = _UNSURE * (np.abs(ends[0]) + np.abs(ends[1]) + abs(kink)) if kink else 0.0
        low, high = low - unsure, high + unsure
        bends = (low < 0) & (high > 0)
        return _Place(weight, z - kink, low, high, np.flatnonzero(bends), np.where(~bends & (low >= 0), 1.0, 0.0))


def _layer(weights: Floats, function: PiecewiseLinear, hinges: Sequence[_Place]) -> HingeLayer:
    base = np.full(len(weights), float(function.slope))
    for place in hinges:
        base = base + place.weight * place.slope
    empty = np.zeros(0)

    def joined(parts: list[Floats]) -> Floats:
        return np.concatenate(parts) if parts else empty

    return HingeLayer(
        weights,
        base,
        np.concatenate([place.bends for place in hinges]) if hinges else np.zeros(0, dtype=np.intp),
        joined([np.full(len(place.bends), place.weight) for place in hinges]),
        joined([place.at[place.bends] for place in hinges]),
        joined([place.low[place.bends] for place in hinges]),
        joined([place.high[place.bends] for place in hinges]),
    )


def steps_of(
    witness: DualWitness, weights: Sequence[Floats], functions: Sequence[PiecewiseLinear], gram: Floats
) -> tuple[DualStep, ...]:
    """What shows that the form of a witness is convex. Raises: LinAlgError, FloatingPointError where floats fail."""
    found: list[DualStep] = []
    before: Floats | None = None
    total, kept = 0, np.zeros(0, dtype=np.intp)
    room = 1 / (1 - float(ETA))  # as the proof has it, but for rounding: its majorants leave no more room
    for w, function, numbers in zip(weights, functions, witness.numbers, strict=True):
        slopes, spread, bend = np.full(len(w), float(function.slope)), np.zeros(len(w)), np.zeros(len(w))
        for (weight, _), hinge in zip(function.hinges, numbers, strict=True):
            alpha, middle, three = hinge[:3]
            slopes += float(weight) * middle
            spread += float(weight) ** 2 * np.divide(room, alpha, out=np.zeros(len(w)), where=alpha > 0)
            bent = np.where(alpha > 0, alpha * middle**2 - three, 0.0)
            bend += bent + np.where(bent > 0, _UNSURE * (alpha * middle**2 + three), 0.0)
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            if before is None:
                s, scale = gram * (room / witness.gamma), 0
            else:
                w = w[:, kept]
                s, scale = w @ before @ w.T, total
            power = int(np.frexp(max(float(s.diagonal().max()), 2.0**-900))[1])
            total = scale + power
            kept = np.flatnonzero((slopes != 0) | (spread > 0))
            if not len(kept):
                return (*found, *(_nothing(power) for _ in range(len(weights) - len(found))))
            majorant = guess_majorant(np.ldexp(s[np.ix_(kept, kept)], -power))
            v = np.sqrt(np.ldexp(np.maximum(bend[kept], 0.0), total))
            v = np.where(bend[kept] > 0, np.nextafter(v * (1 + 2.0**-50), np.inf), 0.0)
            step = guess_inner(majorant.above, v)
            found.append(DualStep(kept, power, majorant, step))
            before = slopes[kept, None] * step.after * slopes[kept]
            before.flat[:: len(kept) + 1] += np.ldexp(spread[kept], -total)
    return tuple(found)


def _nothing(power: int) -> DualStep:
    """Of a layer after which nothing changes."""
    none, empty = np.zeros(0), np.zeros((0, 0))
    step = Step(Sector(none, none), none, none, empty, empty, empty, 0.0, 0.0)
    return DualStep(np.zeros(0, dtype=np.intp), power, LoewnerMajorant(empty, empty, 0.0), step)


def _short(x: Floats) -> Floats:
    """Rounded to few bits."""
    mantissa, exponent = np.frexp(x)
    found: Floats = np.ldexp(np.rint(mantissa * 2.0**_BITS), exponent - _BITS)
    return found
