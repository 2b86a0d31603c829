"""Better multipliers for a chain, by floats alone. Nothing here is trusted: `proof` checks what comes of it.

For a direction d at the end of a chain, dᵀPd is the largest value, over the differences of all layers, of

    2·dᵀΔ_n - ||Δ_0||² + Σ Λ_k·(ρ_k²δ_k² - Δ'_k²)            (names as in `ellipsoids`, Λ = w⁻²)

so its derivative by Λ_k is ρ_k²δ_k² - Δ'_k² at the vectors where it is attained, and it is convex in Λ. They follow
from the end backwards: with p = d after the last layer, δ = B·M·p, Δ'_k = p_k/Λ_k, and Wᵀ·(Mp + V²δ) is the p of the
layer before. At the best Λ the derivative is zero, Λ_k = |p_k|/(ρ_k|δ_k|): going part of the way there, layer by layer,
converges in a few rounds, where gradient steps take a hundred.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from intervalcert.backends.protocol import Floats
from intervalcert.search.ellipsoids import GuessedStep

__all__ = ["backed_off", "improved_weights"]

T = TypeVar("T")

_PACE = 0.7
_LEAP = 0.25
"""The part of the way that is gone, and the most by which the logarithm of a v changes at once."""


def improved_weights(steps: Sequence[GuessedStep], weights: Sequence[Floats], directions: Floats) -> list[Floats]:
    """The factor by which to change each v of each step, to lower dᵀPd for the columns d of `directions`.

    They are weighed by 1/(dᵀPd): the mean of the logarithms falls. weights: those of the layers but the first,
    restricted to the rows and columns that the steps have.
    """
    p: Floats = directions / np.sqrt(np.maximum(_squares(steps[-1].step.core, directions), 1e-300))
    factors: list[Floats] = []
    for guessed, w in zip(reversed(steps), (*reversed(weights), None), strict=True):
        step, s, h = guessed.step, guessed.s, guessed.h
        moved = step.sector.middle[:, None] * p
        delta = s @ moved + h @ (h.T @ moved)
        inner = ((step.v[:, None] * delta) ** 2).sum(axis=1)
        outer = ((step.w[:, None] * p) ** 2).sum(axis=1)
        tiny = 1e-12 * (inner.mean() + outer.mean()) + 1e-300
        factors.append(np.exp(np.clip(_PACE / 4 * np.log((outer + tiny) / (inner + tiny)), -_LEAP, _LEAP)))
        if w is None:
            break
        p = w.T @ (moved + (step.v**2)[:, None] * delta)
        p /= max(float(np.max(np.abs(p))), 1e-300)  # its size does not matter, and would grow from layer to layer
    return factors[::-1]


def _squares(p: Floats, directions: Floats) -> Floats:
    """dᵀPd of each column d."""
    found: Floats = (directions * (p @ directions)).sum(axis=0)
    return found


def backed_off(
    now: Sequence[Floats], factors: Sequence[Floats], build: Callable[[list[Floats]], T | None]
) -> tuple[T, list[Floats]] | None:
    """What `build` makes of multipliers v² that are changed by the squares of the factors, and these multipliers.

    With less of a change while there is none: where K would not be positive definite.
    """
    for part in (1.0, 0.5, 0.25):
        wanted = [old * factor ** (2 * part) for old, factor in zip(now, factors, strict=True)]
        try:
            found = build(wanted)
        except (np.linalg.LinAlgError, FloatingPointError):
            continue
        if found is not None:
            return found, wanted
    return None
