"""An attack: inputs near a given one at which another class leads, in plain floats. What it finds is judged by `proof`.

The lead of the winner over a target is lowered over ||δ|| <= eps, for many points at once: by projected gradient steps
with momentum, of a length that falls, and in the end by δ <- -eps·∇/||∇||, whose fixed points are those at which the
lead is least to first order. Inputs range over all reals: they are not clipped to any box.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from intervalcert.backends.protocol import Floats, Indices
from intervalcert.search.float_network import FloatNetwork

__all__ = ["QUICK", "STRONG", "Campaign", "attack", "lowered"]


@dataclass(frozen=True)
class Campaign:
    """How hard to try: gradient and fixed-point steps of an attempt, targets (runners-up first), restarts at random.

    is_deep: whether an attempt goes on where another class leads already, to where it leads most.
    """

    steps: int = 20
    fixed: int = 4
    targets: int = 3
    restarts: int = 2
    momentum: float = 0.75
    seed: int = 1
    is_deep: bool = False


QUICK = Campaign(restarts=1)
STRONG = Campaign(steps=40, fixed=8, targets=1 << 30, restarts=4)

_INSIDE = 1 - 1e-9
"""A hair inside the ball, so that rounding does not lead out of it."""


def attack(network: FloatNetwork, x: Floats, eps: Floats | float, campaign: Campaign) -> dict[int, Floats]:
    """For each point (row) that falls: a perturbation within eps at which another class leads, in float64."""
    rng = np.random.default_rng(campaign.seed)
    radius = np.broadcast_to(np.asarray(eps, dtype=np.float64), (len(x),)) * _INSIDE
    logits = network.logits(x.T).T
    order = np.argsort(-logits, axis=1, kind="stable")
    winner = order[:, 0]
    broken: dict[int, Floats] = {}
    for restart in range(campaign.restarts):
        for rank in range(1, 1 + min(campaign.targets, logits.shape[1] - 1)):
            left = np.array([i for i in range(len(x)) if i not in broken])
            if not left.size:
                return broken
            start = np.zeros((len(left), x.shape[1]))
            if restart:
                start = _scaled(rng.standard_normal(start.shape), radius[left])
            pair = winner[left], order[left, rank]
            lead, delta = lowered(network, x[left], *pair, radius[left], start, campaign)
            broken |= {int(i): delta[k] for k, i in enumerate(left) if lead[k] < 0}
    return broken


def lowered(
    network: FloatNetwork,
    x: Floats,
    winner: Indices,
    target: Indices,
    radius: Floats,
    start: Floats,
    campaign: Campaign,
) -> tuple[Floats, Floats]:
    """The least lead of the winner over all others that was met at each point, and where, on the way to a target.

    Stops where all are negative, unless it is deep. start: perturbations to begin with, brought into the ball.
    """
    columns = np.arange(len(x))
    direction = np.zeros((len(network.head[0].values), len(x)))
    direction[target, columns] = 1
    direction[winner, columns] -= 1
    delta, velocity = _within(start, radius), np.zeros_like(x)
    least, best = np.full(len(x), np.inf), delta.copy()
    for step in range(campaign.steps + campaign.fixed + 1):
        *inner, logits = network.before_activations((x + delta).T)
        top = logits[winner, columns]
        logits[winner, columns] = -np.inf
        lead = top - logits.max(axis=0)
        better = lead < least
        least, best = np.where(better, lead, least), np.where(better[:, None], delta, best)
        if ((least < 0).all() and not campaign.is_deep) or step == campaign.steps + campaign.fixed:
            break
        gradient = network.gradients(inner, direction).T
        if step < campaign.steps:
            velocity = campaign.momentum * velocity + _scaled(gradient, 1.0)
            length = 2.0 * radius * (1 - step / campaign.steps)
            delta = _within(delta + _scaled(velocity, length), radius)
        else:
            delta = _scaled(gradient, radius)
    return least, best


def _within(delta: Floats, radius: Floats) -> Floats:
    norms = np.linalg.norm(delta, axis=1)
    return np.asarray(delta * np.minimum(1.0, radius / np.maximum(norms, 1e-300))[:, None])


def _scaled(vectors: Floats, length: Floats | float) -> Floats:
    norms = np.linalg.norm(vectors, axis=1)
    return np.asarray(vectors * (length / np.maximum(norms, 1e-300))[:, None])
