"""An attack, to see how much room is left above what is certified, and that no certified point falls.

Projected gradient ascent in L2 with momentum and restarts: for a point x with winner j and a target i it climbs
y_i - y_j over ||x' - x|| <= eps. What it breaks is not robust, so the unbroken share is an upper limit for any sound
certifier. The inputs range over all reals, as in the certificate: they are not clipped to [0, 1].

Uses the network in plain floats of the package itself: values and gradients, to climb by. What it finds is judged in
exact rationals, by plain loops that share nothing with it (`exact_networks`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from rich.table import Table

from compare.exact_networks import ExactNetwork, exact_logits
from compare.harness import Outcome, Setting, table
from compare.subjects import Subject, random_graphs, robust
from intervalcert import Verdicts, certify_inputs
from intervalcert.search.float_network import FloatNetwork

__all__ = ["Campaign", "attack", "exact_logits", "run", "verdicts_of"]

Floats = npt.NDArray[np.float64]

_MANY = 1_000
"""From so many points on, processes are worth their start."""


@dataclass(frozen=True)
class Campaign:
    """How hard to try: gradient steps per attempt, how many runner-up classes, restarts from random points."""

    steps: int = 20
    targets: int = 3
    restarts: int = 2
    momentum: float = 0.75
    seed: int = 1


def attack(network: FloatNetwork, x: Floats, eps: float, campaign: Campaign) -> dict[int, Floats]:
    """For each point that falls: a perturbation within eps that changes its winner (in float64)."""
    rng = np.random.default_rng(campaign.seed)
    logits = network.logits(x.T).T
    order = np.argsort(-logits, axis=1, kind="stable")
    winner = order[:, 0]
    broken: dict[int, Floats] = {}
    for restart in range(campaign.restarts):
        for rank in range(1, 1 + min(campaign.targets, logits.shape[1] - 1)):
            left = np.array([i for i in range(len(x)) if i not in broken])
            if not left.size:
                return broken
            found = _climb(network, x[left], winner[left], order[left, rank], eps, campaign, rng if restart else None)
            broken |= {int(left[i]): delta for i, delta in found.items()}
    return broken


def _climb(
    network: FloatNetwork,
    x: Floats,
    winner: npt.NDArray[np.intp],
    target: npt.NDArray[np.intp],
    eps: float,
    campaign: Campaign,
    rng: np.random.Generator | None,
) -> dict[int, Floats]:
    columns = np.arange(len(x))
    direction = np.zeros((len(network.head[0].values), len(x)))
    direction[target, columns] = 1
    direction[winner, columns] -= 1
    # A hair inside the ball, so that rounding does not lead out of it.
    radius = eps * (1 - 1e-9)
    delta = np.zeros_like(x) if rng is None else _scaled(rng.standard_normal(x.shape), radius)
    velocity = np.zeros_like(x)
    broken: dict[int, Floats] = {}
    for step in range(campaign.steps):
        *inner, logits = network.before_activations((x + delta).T)
        for i in np.flatnonzero(np.argmax(logits, axis=0) != winner):
            broken.setdefault(int(i), delta[i].copy())
        velocity = campaign.momentum * velocity + _scaled(network.gradients(inner, direction).T, 1.0)
        length = 2.0 * radius * (1 - step / campaign.steps)
        delta = delta + _scaled(velocity, length)
        norms = np.linalg.norm(delta, axis=1, keepdims=True)
        delta *= np.minimum(1.0, radius / np.maximum(norms, 1e-300))
    return broken


def _scaled(vectors: Floats, length: float) -> Floats:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors * (length / np.maximum(norms, 1e-300)))


# -- the run ---------------------------------------------------------------------------------------------------------


def run(setting: Setting) -> Outcome:
    outcome = Outcome("attack")
    shown = table(
        "Certified, and what an attack leaves standing",
        *("model", "eps", "points", "by margins", "and locally", "unbroken", "between"),
    )
    for subject in (*robust(setting, outcome), *random_graphs()):
        _campaign(setting, subject, outcome, shown)
    outcome.tables.append(shown)
    return outcome


def verdicts_of(subject: Subject) -> Verdicts:
    """Of the test inputs: by the margins that a user gets who asks for nothing else, and locally where they fail."""
    inputs = subject.first()
    jobs = (os.cpu_count() or 1) if len(inputs) > _MANY else 1
    return certify_inputs(subject.network, inputs, subject.eps, local=True, scale=Fraction(1, subject.unit), jobs=jobs)


def _campaign(setting: Setting, subject: Subject, outcome: Outcome, shown: Table) -> None:
    name, x, eps = subject.name, subject.first() / subject.unit, subject.eps
    floats, exact = FloatNetwork.of(subject.network), ExactNetwork(subject.network)
    verdicts = verdicts_of(subject)
    certified = {verdict.index for verdict in verdicts if verdict.certified}
    broken: dict[int, Floats] = {}
    pieces = np.array_split(np.arange(len(x)), max(1, len(x) // 500))
    for piece in setting.progress(pieces, f"attack on {name}", len(pieces)):
        found = attack(floats, x[piece], float(eps), Campaign())
        broken |= {int(piece[i]): delta for i, delta in found.items()}
    for index in sorted(certified & broken.keys()):
        if _really_falls(exact, x[index], broken[index], Fraction(eps)):
            outcome.violations.append(
                f"{name}: point {index} is certified at {eps}, and a perturbation changes its winner"
            )
    unbroken = len(x) - len(broken)
    between = unbroken - len(certified)
    locally = int(verdicts.locally.sum())
    counts = (len(x), len(certified) - locally, len(certified), unbroken, between)
    shown.add_row(name, eps, *map(str, counts))
    outcome.data[name] = {
        "eps": eps,
        "points": len(x),
        "certified": len(certified),
        "locally": locally,
        "unbroken": unbroken,
    }


def _really_falls(network: ExactNetwork, x: Floats, delta: Floats, eps: Fraction) -> bool:
    """Exactly: the perturbation is within eps, and the winner of the real-number network changes."""
    point, moved = [Fraction(v) for v in x], [Fraction(v) for v in x + delta]
    if sum((a - b) ** 2 for a, b in zip(point, moved, strict=True)) > eps**2:
        return False
    before, after = network.logits(point), network.logits(moved)
    return before.index(max(before)) != after.index(max(after))
