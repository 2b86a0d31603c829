"""The way up: multipliers that make the least value of a form larger. Nothing here is trusted.

L-BFGS on the logarithms of the multipliers, with the diagonal of the exact second derivatives for a first guess: that
is what makes it quick.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from intervalcert.backends.protocol import Floats
from intervalcert.search.hinges import Solution

__all__ = ["ascent"]

_MEMORY = 10
_LEAP = 3.0
"""The most by which a logarithm changes at once."""
_HALVINGS = 20


def ascent(
    solve: Callable[[Floats, float], Solution], start: Floats, lead: float, weights: Sequence[float], steps: int
) -> Iterator[tuple[Floats, Solution]]:
    """Multipliers, and the least value that they give, one step after the other.

    For each μ of `weights`, as parts of the lead, so many steps. Raises: LinAlgError if there is no least value at the
    start.
    """
    logs = np.log(start)
    for part in weights:
        mu = part * abs(lead)
        memory: list[tuple[Floats, Floats]] = []
        found = solve(np.exp(logs), mu)
        for _ in range(steps):
            multipliers = np.exp(logs)
            gradient = found.gradient * multipliers
            curvature = found.curvature * multipliers**2 + np.abs(gradient) + 1e-6 * abs(lead) / len(logs)
            moved = None
            for remembered in (memory, []):
                direction = np.clip(_two_loops(gradient, curvature, remembered), -_LEAP, _LEAP)
                moved = _searched(solve, logs, direction, found, mu, float(gradient @ direction))
                if moved is not None or not memory:
                    break
            if moved is None:
                break
            there, after = moved
            step, turn = there - logs, gradient - after.gradient * np.exp(there)
            if step @ turn > 1e-12 * np.linalg.norm(step) * np.linalg.norm(turn):
                memory = [*memory, (step, turn)][-_MEMORY:]
            logs, found = there, after
            yield np.exp(logs), found


def _two_loops(gradient: Floats, curvature: Floats, memory: Sequence[tuple[Floats, Floats]]) -> Floats:
    """The quasi-Newton direction: the two loops of L-BFGS."""
    q = gradient.copy()
    parts = []
    for step, turn in reversed(memory):
        part = (step @ q) / (step @ turn)
        q -= part * turn
        parts.append(part)
    q /= curvature
    for (step, turn), part in zip(memory, reversed(parts), strict=True):
        q += (part - (turn @ q) / (step @ turn)) * step
    return q


def _searched(
    solve: Callable[[Floats, float], Solution], logs: Floats, direction: Floats, now: Solution, mu: float, slope: float
) -> tuple[Floats, Solution] | None:
    """The first of 1, 1/2, 1/4, … of a step that is worth it; None if none is."""
    if not slope > 0:
        return None
    part, height = 1.0, now.value + mu * now.log_det
    for _ in range(_HALVINGS):
        there = logs + part * direction
        try:
            found = solve(np.exp(there), mu)
        except np.linalg.LinAlgError:
            found = None
        if found is not None and found.value + mu * found.log_det >= height + 1e-4 * part * slope:
            return there, found
        part /= 2
    return None
