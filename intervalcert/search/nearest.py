"""From an input with another winner to a nearer one: where the lead is zero, as near as floats find. Nothing is proved.

The nearest point to x at which a lead is zero lies in the direction of its gradient there. So from a point with lead
zero steps go to the nearest point of the plane on which the linearised lead is zero, or a part of the way; along the
ray from x through each such point the first place is taken at which the winner does not lead.
"""

from __future__ import annotations

import numpy as np

from intervalcert.backends.protocol import Floats
from intervalcert.search.float_network import FloatNetwork

__all__ = ["brought_nearer"]

_ROUNDS = 12
_PARTS = np.array([0.03, 0.1, 0.3, 0.6, 1.0])
"""Of the way to the nearest point of the plane."""

_CUTS, _FINER = 32, 4
"""Places on a ray that are looked at together, and how often, between two of the last ones."""

_WORTH = 1e-5
"""Part by which a step must come nearer."""


def brought_nearer(network: FloatNetwork, x: Floats, delta: Floats, winner: int) -> Floats:
    """A change that is no longer than δ, and at which the winner does not lead either, as floats have it.

    Requires: at x + δ the winner does not lead.
    """
    best = delta
    for _ in range(_ROUNDS):
        rays = best[None] if best is delta else best + _PARTS[:, None] * (_target(network, x, best, winner) - best)
        lengths = np.linalg.norm(rays, axis=1)
        usable = np.isfinite(lengths) & (lengths > 0)
        if not usable.any():
            break
        units, most = rays[usable] / lengths[usable, None], float(np.linalg.norm(best))
        reached = _first_places(network, x, units, most, winner)
        nearest = int(np.argmin(reached))
        if best is not delta and not reached[nearest] < most * (1 - _WORTH):
            break
        best = units[nearest] * min(float(reached[nearest]), most)
    return best


def _target(network: FloatNetwork, x: Floats, delta: Floats, winner: int) -> Floats:
    """Of the plane on which the lead over the highest other class is zero, linearised at x + δ: the point next to x."""
    *inner, logits = network.before_activations((x + delta)[:, None])
    others = logits[:, 0].copy()
    others[winner] = -np.inf
    direction = np.zeros_like(logits)
    direction[winner], direction[int(np.argmax(others))] = 1, -1
    gradient = network.gradients(inner, direction)[:, 0]
    lead = float((direction * logits).sum())
    found: Floats = gradient * ((gradient @ delta - lead) / (gradient @ gradient))
    return found


def _first_places(network: FloatNetwork, x: Floats, units: Floats, most: float, winner: int) -> Floats:
    """On each ray (row) the least distance, up to `most`, at which the winner does not lead; inf if there is none."""
    low, high = np.zeros(len(units)), np.full(len(units), most)
    found = np.full(len(units), np.inf)
    cuts = np.arange(1, _CUTS + 1) / _CUTS
    for _ in range(_FINER):
        places = low[:, None] + (high - low)[:, None] * cuts
        points = x + (places[:, :, None] * units[:, None]).reshape(-1, len(x))
        logits = network.logits(points.T)
        top = logits[winner].copy()
        logits[winner] = -np.inf
        lost = (top <= logits.max(axis=0)).reshape(places.shape)
        first = np.argmax(lost, axis=1)
        falls = lost[np.arange(len(units)), first]
        at = places[np.arange(len(units)), first]
        found = np.where(falls, at, found)
        low = np.where(falls, at - (high - low) / _CUTS, low)
        high = np.where(falls, at, high)
    return found
