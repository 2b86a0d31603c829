"""An attack, to see how much room is left above what is certified, and that no certified point falls.

Projected gradient ascent in L2 with momentum and restarts: for a point x with winner j and a target i it climbs
y_i - y_j over ||x' - x|| <= eps. What it breaks is not robust, so the unbroken share is an upper limit for any sound
certifier. The inputs range over all reals, as in the certificate: they are not clipped to [0, 1].

Uses the network in plain floats of the package itself: values and gradients, to climb by. What it finds is judged here.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

import numpy as np
import numpy.typing as npt
from rich.table import Table

from compare.harness import Outcome, Setting, table
from compare.subjects import Subject, robust
from intervalcert import Network, Verdicts, certify_inputs
from intervalcert.model.linear_maps import Convolution, Dense, LinearMap
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


def exact_logits(network: Network, x: Sequence[Fraction]) -> list[Fraction]:
    """The real-number network at x, in rationals, for ReLU networks of matrices and convolutions, and sums of them.

    Written once more on purpose: it judges verdicts, and shares nothing with what found them.
    """
    values = {-1: list(x)}
    for index, layer in enumerate(network.layers):
        if layer.before or layer.after or (layer.activation is not None and layer.activation.name != "relu"):
            raise ValueError("only ReLU networks are attacked")
        parts = [_exact_product(term.map, values[term.source]) for term in layer.terms]
        if layer.bias is not None:
            parts.append([layer.bias[i, 0] for i in range(layer.bias.shape[0])])
        sums = [sum(each, Fraction(0)) for each in zip(*parts, strict=True)]
        values[index] = sums if layer.activation is None else [max(v, Fraction(0)) for v in sums]
    return values[len(network.layers) - 1]


def _exact_product(linear: LinearMap, x: Sequence[Fraction]) -> list[Fraction]:
    """A matrix or a convolution times x, by plain loops."""
    if isinstance(linear, Dense):
        w = linear.matrix
        return [sum(n * v for n, v in zip(row, x, strict=True)) / w.denominator for row in w.numerators.tolist()]
    if not isinstance(linear, Convolution):
        raise ValueError(f"{linear} is no map that is attacked")
    window, (height, width) = linear.window, linear.window.inputs
    rows, denominator = linear.kernel.numerators.tolist(), linear.kernel.denominator
    of_group, per_group = linear.channels // linear.groups, len(rows) // linear.groups
    found = []
    for c, i, j in product(range(len(rows)), *map(range, window.outputs)):
        total = Fraction(0)
        for d, u, v in product(range(of_group), *map(range, window.size)):
            y = window.stride[0] * i + window.dilation[0] * u - window.before[0]
            z = window.stride[1] * j + window.dilation[1] * v - window.before[1]
            if 0 <= y < height and 0 <= z < width:
                weight = rows[c][(d * window.size[0] + u) * window.size[1] + v]
                total += weight * x[((c // per_group * of_group + d) * height + y) * width + z]
        found.append(total / denominator)
    return found


# -- the run ---------------------------------------------------------------------------------------------------------


def run(setting: Setting) -> Outcome:
    outcome = Outcome("attack")
    shown = table(
        "Certified, and what an attack leaves standing",
        *("model", "eps", "points", "by margins", "and locally", "unbroken", "between"),
    )
    for subject in robust(setting, outcome):
        _campaign(setting, subject, outcome, shown)
    outcome.tables.append(shown)
    return outcome


def verdicts_of(subject: Subject) -> Verdicts:
    """Of all test inputs: by the margins that a user gets who asks for nothing else, and locally where they fail."""
    jobs = (os.cpu_count() or 1) if len(subject.numerators) > _MANY else 1
    scale = Fraction(1, subject.unit)
    return certify_inputs(subject.network, subject.numerators, subject.eps, local=True, scale=scale, jobs=jobs)


def _campaign(setting: Setting, subject: Subject, outcome: Outcome, shown: Table) -> None:
    name, network, x, eps = subject.name, subject.network, subject.inputs, subject.eps
    floats = FloatNetwork.of(network)
    verdicts = verdicts_of(subject)
    certified = {verdict.index for verdict in verdicts if verdict.certified}
    broken: dict[int, Floats] = {}
    pieces = np.array_split(np.arange(len(x)), max(1, len(x) // 500))
    for piece in setting.progress(pieces, f"attack on {name}", len(pieces)):
        found = attack(floats, x[piece], float(eps), Campaign())
        broken |= {int(piece[i]): delta for i, delta in found.items()}
    for index in sorted(certified & broken.keys()):
        if _really_falls(network, x[index], broken[index], Fraction(eps)):
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


def _really_falls(network: Network, x: Floats, delta: Floats, eps: Fraction) -> bool:
    """Exactly: the perturbation is within eps, and the winner of the real-number network changes."""
    point, moved = [Fraction(v) for v in x], [Fraction(v) for v in x + delta]
    if sum((a - b) ** 2 for a, b in zip(point, moved, strict=True)) > eps**2:
        return False
    before, after = exact_logits(network, point), exact_logits(network, moved)
    return before.index(max(before)) != after.index(max(after))
