"""What the chain and local refinement gain over the product of norms, and what they cost: margins, certificates, time.

Models that were trained with the product in their loss leave little to gain; ordinary ones leave much. Both are shown.
`best` must never be looser than the product: that is checked, without tolerance. (`chain` alone may be, by its slack.)
Times are those of all bounds, as a ratio to those with margins by the product on the same number system: interleaved,
the best of several, one thread. A ratio above 5 is marked. Graphs of layers are tuned in 10 rounds at the most; the
bundled CNN is looked at on `float64` alone, once: its chain takes a minute on `exact`, and more on `arb`.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from statistics import median
from time import perf_counter
from typing import Any, Literal

import numpy as np

from compare.bench import interleaved
from compare.harness import Outcome, Setting, table
from compare.subjects import Subject, ordinary, random_graphs, robust
from intervalcert import Bounds, certify, certify_inputs, compute_bounds

__all__ = ["COSTLY", "WAYS", "looser", "run"]

WAYS: dict[str, tuple[Literal["product", "chain", "best"], int]] = {
    "product": ("product", 0),
    "chain": ("chain", 0),
    "best": ("best", 0),
    "best, 10 rounds": ("best", 10),
    "best, 50 rounds": ("best", 50),
}
"""(margins, rounds of tuning)"""

BACKENDS = {"float64": 9, "arb": 4, "exact": 4}
"""How often the product and `best` are timed; tuned ones are timed once, on float64 thrice."""

LOCAL = 1_000
"""Inputs at which local refinement is tried."""

MOST_ROUNDS = 10
"""Of tuning the chain of a graph."""

COSTLY = 5.0
"""What `best` may cost, as a multiple of the product."""


def looser(found: Bounds, product: Bounds) -> list[str]:
    """Margins above those of the product."""
    return [
        f"margin {i},{j} is looser than the product"
        for i, (row, others) in enumerate(zip(found.margins.matrix, product.margins.matrix, strict=True))
        for j, (x, y) in enumerate(zip(row, others, strict=True))
        if x > y
    ]


def _ratios(found: Bounds, product: Bounds) -> list[float]:
    """Of each pair's margin to that of the product, in order of size."""
    pairs = [(i, j) for j in range(len(found.margins.matrix)) for i in range(j)]
    both = ((found.margins.matrix[i][j], product.margins.matrix[i][j]) for i, j in pairs)
    return sorted(float(x / y) for x, y in both if y)


def _ways(subject: Subject) -> list[str]:
    """Those that are feasible for it."""
    return [way for way, (_, rounds) in WAYS.items() if subject.network.is_dense or rounds <= MOST_ROUNDS]


def _task(subject: Subject, backend: str, way: str) -> Callable[[], Bounds]:
    margins, rounds = WAYS[way]
    return lambda: compute_bounds(subject.network, backend, margins=margins, tuning_rounds=rounds)


def _measured(subject: Subject, short: bool, outcome: Outcome) -> dict[str, Any]:
    bounds: dict[str, Bounds] = {}
    seconds: dict[str, float] = {}
    system = "float64" if subject.few else "arb"
    for way in _ways(subject):
        start = perf_counter()
        bounds[way] = _task(subject, system, way)()
        seconds[way] = perf_counter() - start
    del seconds["chain"]  # `best` is shown
    timed = {system: seconds} if subject.few else _timed(subject, short)
    tuned = bounds["best, 10 rounds"] if subject.few else _task(subject, "float64", "best, 10 rounds")()
    return _certified(subject, bounds, outcome) | {"seconds": timed, "local": _locally(subject, tuned, short)}


def _certified(subject: Subject, bounds: dict[str, Bounds], outcome: Outcome) -> dict[str, Any]:
    logits = subject.logits
    ways: dict[str, Any] = {}
    for way, found in bounds.items():
        if WAYS[way][0] == "best":
            outcome.violations += [f"{subject.name}, {way}: {wrong}" for wrong in looser(found, bounds["product"])]
        ratios = _ratios(found, bounds["product"])
        verdicts = certify(found, logits, subject.eps)
        right = verdicts.argmax == subject.labels
        ways[way] = {
            "ratio": {"least": ratios[0], "median": median(ratios), "most": ratios[-1]},
            "certified": int(verdicts.certified.sum()),
            "certified_and_right": int((verdicts.certified & right).sum()),
            "mean_radius": float(verdicts.radius.mean()),
            "refused": list(found.margins.skipped_because),
        }
    accuracy = float((np.argmax(logits, axis=1) == subject.labels).mean())
    points = {"outputs": len(logits), "eps": subject.eps, "accuracy": accuracy}
    return {"network": subject.name, **points, "ways": ways}


def _timed(subject: Subject, short: bool) -> dict[str, dict[str, float]]:
    """Seconds, by number system and way."""
    found = {}
    for backend, repeats in BACKENDS.items():
        plain: dict[str, Callable[[], object]] = {way: _task(subject, backend, way) for way in ("product", "best")}
        tuned: dict[str, Callable[[], object]] = {
            way: _task(subject, backend, way) for way in _ways(subject) if WAYS[way][1]
        }
        seconds = interleaved(plain, 2 if short else repeats)
        found[backend] = seconds | interleaved(tuned, 3 if backend == "float64" and not short else 1)
    return found


def _locally(subject: Subject, bounds: Bounds, short: bool) -> dict[str, Any]:
    """What local refinement adds to tuned margins, and what it takes: at the first inputs, in one process."""
    inputs = subject.first(50 if short else LOCAL)
    found: dict[str, Any] = {"inputs": len(inputs)}
    for name, local in (("margins", False), ("locally", True)):
        start = perf_counter()
        verdicts = certify_inputs(
            subject.network, inputs, subject.eps, bounds=bounds, local=local, scale=Fraction(1, subject.unit)
        )
        found[name] = int(verdicts.certified.sum())
        found[f"{name}_seconds"] = perf_counter() - start
    tried = max(1, len(inputs) - found["margins"])
    return found | {"ms": 1000 * (found["locally_seconds"] - found["margins_seconds"]) / tried}


# -- the run -----------------------------------------------------------------------------------------------------------


def run(setting: Setting) -> Outcome:
    outcome = Outcome("gains")
    graphs = list(random_graphs())[: 2 if setting.short else None]
    subjects = [*robust(setting, outcome), *ordinary(setting, outcome), *graphs]
    outcome.data["networks"] = [
        _measured(subject, setting.short, outcome) for subject in setting.progress(subjects, "gains", len(subjects))
    ]
    outcome.tables = _tables(outcome.data["networks"])
    return outcome


def _tables(rows: list[dict[str, Any]]) -> list[Any]:
    columns = ("network", "margins", "of the product: median", "range", "certified", "and right", "mean radius")
    gains = table("Margins by the chain, and what they certify", *columns)
    for row in rows:
        share = f"{row['network']}\n{row['accuracy']:.2%} right, eps {row['eps']}"
        for way, found in row["ways"].items():
            if way == "best":  # the chain, unless the range of that says otherwise
                continue
            ratio, count = found["ratio"], row["outputs"]
            gains.add_row(
                share,
                way,
                f"{ratio['median']:.4f}",
                f"{ratio['least']:.4f} to {ratio['most']:.4f}",
                f"{found['certified'] / count:.2%}",
                f"{found['certified_and_right'] / count:.2%}",
                f"{found['mean_radius']:.4f}",
            )
            share = ""
        gains.add_section()
    times = table("Time of all bounds", "network", "backend", "product, s", *(w for w in WAYS if w.startswith("best")))
    for row in rows:
        name = row["network"]
        for backend, seconds in row["seconds"].items():
            ratios = (seconds[way] / seconds["product"] for way in seconds if way != "product")
            times.add_row(name, backend, f"{seconds['product']:.4f}", *(_ratio(x) for x in ratios))
            name = ""
        times.add_section()
    times.caption = (
        f"As multiples of the product's; beyond {COSTLY:.0f} with a *. Bundled CNN: float64 alone, timed once."
    )
    local = table("Local refinement", "network", "inputs", "by margins, 10 rounds", "and locally", "ms an input tried")
    for row in rows:
        found = row["local"]
        shares = (f"{found[name] / found['inputs']:.2%}" for name in ("margins", "locally"))
        local.add_row(row["network"], str(found["inputs"]), *shares, f"{found['ms']:.0f}")
    return [gains, local, times]


def _ratio(ratio: float) -> str:
    return f"{ratio:.2f}x{'*' if ratio > COSTLY else ''}"
