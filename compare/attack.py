"""An attack, to see how much room is left above what is certified, and that no certified point falls.

Uses the attack of the package itself (`intervalcert/search/attack.py`). What it breaks is not robust, so the unbroken
share is an upper limit for any sound certifier. What it finds is judged in exact rationals, by plain loops that share
nothing with it (`exact_networks`).
"""

from __future__ import annotations

import os
from fractions import Fraction

import numpy as np
import numpy.typing as npt
from rich.table import Table

from compare.exact_networks import ExactNetwork
from compare.harness import Outcome, Setting, table
from compare.subjects import Subject, random_graphs, robust
from intervalcert import Verdicts, certify_inputs
from intervalcert.search.attack import Campaign, attack
from intervalcert.search.float_network import FloatNetwork

__all__ = ["run", "verdicts_of"]

Floats = npt.NDArray[np.float64]

_MANY = 1_000
"""From so many points on, processes are worth their start."""


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
