"""Small networks at their very edges: never wrong, and how often nothing is decided.

The nearest other winner of random networks, with two or three inputs and up to 20 neurons, is known exactly
(`regions`). Each point is asked at its distance times 1 ± 10^-k, as a user asks; and at the distance itself, where that
is a rational: there it is falsified, or open. A point that is decided wrongly fails the run.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from multiprocessing import get_context
from statistics import median
from time import perf_counter

import numpy as np

from compare.harness import Outcome, Setting, table
from compare.hunt_points import Drawn, network_of, roots, wrong_verdict
from intervalcert import Network, certify_inputs, compute_bounds

__all__ = ["CASES", "Answer", "answers", "run"]

SIZES = (
    (2, 4, 3, 3),
    (2, 6, 3),
    (3, 6, 3),
    (2, 6, 5, 3),
    (3, 5, 5, 4),
    (2, 10, 10, 3),
    (3, 10, 10, 3),
    (2, 20, 4),
    (3, 20, 3),
)
KINDS = ("relu", "relu", "leaky_relu:1/4", "clip:-1:1")
STYLES = ("gaussian", "grid", "line")
CASES = tuple((size, kind, style) for size in SIZES for kind in KINDS for style in STYLES)
"""What networks are drawn from, one after the other."""

UNKNOWN = "unknown"
_NEAR = (1, 2, 3, 4, 5)
_POINTS = 4
_FURTHEST = Fraction(100)
"""A squared distance: what is as far as that is not asked for."""

_FULL = 216
"""Networks; in short runs those that take least time, once each."""


@dataclass(frozen=True)
class Answer:
    """Of one point at one eps. seed: of the network. where: on which side of the edge; part: eps is that times it."""

    seed: int
    point: int
    where: str
    status: str
    method: str
    seconds: float
    wrong: str
    eps: str = ""
    bracket: str = ""

    @property
    def is_open(self) -> bool:
        return self.status == UNKNOWN


@dataclass
class _Count:
    points: int = 0
    open: int = 0
    seconds: list[float] = field(default_factory=list)


def drawn(seed: int) -> tuple[Drawn, np.random.Generator]:
    """The network of that number."""
    size, kind, style = CASES[seed % len(CASES)]
    rng = np.random.default_rng([seed, 17, 4])
    return network_of(rng, size, kind, style), rng


def answers(seed: int) -> list[Answer]:
    """All points of one network."""
    made, rng = drawn(seed)
    plain = made.plain
    network = Network.from_arrays(made.weights, made.biases, between=made.between)
    bounds = compute_bounds(network)
    found = []
    for point in range(_POINTS):
        x = np.rint(rng.standard_normal(network.inputs) * 64) / 64
        exactly = [Fraction(v) for v in x.tolist()]
        truth = plain.nearest_change(exactly, most=_FURTHEST)
        if not truth:
            continue
        for where, eps in _asked(truth):
            start = perf_counter()
            (verdict,) = certify_inputs(network, x[None], eps, bounds=bounds, complete=True, scale=1)
            seconds = perf_counter() - start
            wrong = wrong_verdict(plain, exactly, truth, eps, verdict)
            answer = Answer(seed, point, where, str(verdict.status), verdict.method, seconds, wrong)
            if verdict.status == UNKNOWN or wrong:
                answer = Answer(*list(vars(answer).values())[:7], str(eps), f"{verdict.bracket}")
            found.append(answer)
    return found


def _asked(truth: Fraction) -> Iterator[tuple[str, Fraction]]:
    low, high = roots(truth)
    for k in _NEAR:
        yield f"1 - 1e-{k}", low * (1 - Fraction(1, 10**k))
    if low == high:
        yield "tie", low
    for k in reversed(_NEAR):
        yield f"1 + 1e-{k}", high * (1 + Fraction(1, 10**k))


# -- the run -----------------------------------------------------------------------------------------------------------


def run(setting: Setting) -> Outcome:
    outcome = Outcome("edges")
    some = [(size, kind, style) for size in SIZES[1:3] for kind in KINDS[1:] for style in STYLES[:2]]
    some.append((SIZES[2], "leaky_relu:1/4", "line"))  # whose distances are rationals
    seeds = [CASES.index(case) for case in some] if setting.short else list(range(_FULL))
    found: list[Answer] = []
    with get_context("spawn").Pool(1 if setting.short else os.cpu_count() or 1) as pool:
        for each in setting.progress(pool.imap(answers, seeds), "edges", len(seeds)):
            found += each
    outcome.violations += [
        f"network {each.seed}, point {each.point}, {each.where}, eps {each.eps}: {each.wrong}"
        for each in found
        if each.wrong
    ]
    _report(outcome, found, len(seeds))
    return outcome


def _report(outcome: Outcome, found: list[Answer], networks: int) -> None:
    shown = table(f"{networks} networks", "eps/distance", "points", "open", "share", "median s", "worst s")
    counts: dict[str, _Count] = defaultdict(_Count)
    for name, chosen in [(answer.where, answer) for answer in found] + [("all", answer) for answer in found]:
        counts[name].points += 1
        counts[name].open += chosen.is_open
        counts[name].seconds.append(chosen.seconds)
    for name, count in counts.items():
        share, middle, worst = count.open / count.points, median(count.seconds), max(count.seconds)
        shown.add_row(name, str(count.points), str(count.open), f"{share:.2%}", f"{middle:.3f}", f"{worst:.2f}")
        outcome.data[name] = {"points": count.points, "open": count.open, "median_s": middle, "worst_s": worst}
    outcome.data["open_points"] = [vars(answer) for answer in found if answer.is_open]
    outcome.tables.append(shown)
