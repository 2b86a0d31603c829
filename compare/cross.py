"""Backend against backend: every interval result must be at least the exact one. No tolerance, anywhere.

Compared are norms, margins by the product and by the chain (tuned or not), and the sigmas that come with a chain. The
same checks are run over deliberately broken variants (`compare.controls`): each must be caught, else the harness itself
is blind and the run fails. And a chain that floats guessed badly must be given up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from statistics import median
from time import perf_counter

import numpy as np

from compare.controls import BOUND_CONTROLS, SPOILED, VERDICT_CONTROLS
from compare.corpus import Item, corpus
from compare.harness import Asked, Outcome, Setting, table
from intervalcert import Network, load_model
from intervalcert.backends.registry import backend_names, get_backend, precision_ladder
from intervalcert.bounds.margin_bounds import NO_CHAIN, MarginPlan, Margins, NetworkBounds, network_bounds
from intervalcert.bounds.norm_bounds import Plan
from intervalcert.errors import InconclusiveError, SoundnessError
from intervalcert.numbers.matrices import RationalVector
from intervalcert.proof.decision import Certifier

__all__ = ["Compute", "Decide", "bound_violations", "plainly_certified", "run", "verdict_violations"]

Compute = Callable[[Network, Asked], NetworkBounds]
Matrix = tuple[tuple[Fraction, ...], ...]
Decide = Callable[[Matrix, RationalVector, Fraction], bool]
"""(margins, logits, eps) -> certified?"""

SETTINGS = (
    Asked(64, Plan("gram", 11), MarginPlan("product")),
    Asked(64, Plan("cholesky", 3), MarginPlan("chain")),
    Asked(64, Plan("cholesky", 3), MarginPlan("chain", tuning_rounds=5)),
    Asked(16, Plan("gram", 3), MarginPlan("product")),
    Asked(16, Plan("cholesky", 3), MarginPlan("product")),
    Asked(32, Plan("cholesky", 3), MarginPlan("chain", tuning_rounds=1)),
    Asked(24, Plan("gram", 6), MarginPlan("best")),
    Asked(128, Plan("gram", 12), MarginPlan("best", tuning_rounds=2)),
    Asked(64, Plan("gram", 0), MarginPlan("product")),
)
"""Large networks are run with the first two."""


def on_backend(name: str) -> Compute:
    """One number system without fallback: what it cannot settle is reported as such, not handed on."""

    def compute(network: Network, asked: Asked) -> NetworkBounds:
        plans = [asked.plan] * len(network.layers)
        return network_bounds(network, (get_backend(name, asked.prec),), plans, margins=asked.margins)

    return compute


# -- bounds ----------------------------------------------------------------------------------------------------------


def bound_violations(found: NetworkBounds, exact: NetworkBounds) -> list[str]:
    """Where an upper bound is below the exact one, or a lower bound above it."""
    wrong = []
    for index, (a, e) in enumerate(zip(found.layers, exact.layers, strict=True)):
        if a.upper < e.upper:
            wrong.append(f"norm of layer {index}: {a.upper} < {e.upper}")
        if a.lower > e.lower:
            wrong.append(f"lower bound of layer {index}: {a.lower} > {e.lower}")
    if len(found.margins.sigmas) != len(exact.margins.sigmas):
        wrong.append("a chain was proved where exact rationals prove none, or the other way round")
    for index, (a, e) in enumerate(zip(found.margins.sigmas, exact.margins.sigmas, strict=False)):
        if a < e:
            wrong.append(f"sigma of layer {index}: {a} < {e}")
    for i, (row, reference) in enumerate(zip(found.margins.matrix, exact.margins.matrix, strict=True)):
        wrong += [f"margin {i},{j}: {a} < {e}" for j, (a, e) in enumerate(zip(row, reference, strict=True)) if a < e]
    return wrong


def excesses(found: NetworkBounds, exact: NetworkBounds) -> Iterator[float]:
    """By which part each margin is above the exact one."""
    for row, reference in zip(found.margins.matrix, exact.margins.matrix, strict=True):
        yield from (float(a / e - 1) for a, e in zip(row, reference, strict=True) if e)


@dataclass
class Tally:
    """What one backend did over the corpus. without_chain: where one was asked for, and the product was given."""

    runs: int = 0
    inconclusive: int = 0
    without_chain: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self.excess: list[float] = []


# -- verdicts --------------------------------------------------------------------------------------------------------


def plainly_certified(margins: Matrix, logits: RationalVector, eps: Fraction) -> bool:
    """The definition, word for word, in rationals: the reference that certifiers are checked against."""
    y = [Fraction(n, logits.denominator) for n in logits.numerators]
    j = next(i for i, value in enumerate(y) if value == max(y))
    return all(y[j] - y[i] > eps * margins[i][j] for i in range(len(y)) if i != j)


def outputs_near_the_edge(margins: Matrix, seed: int) -> Iterator[tuple[RationalVector, Fraction]]:
    """Ties, and outputs whose lead is exactly eps·L, or a hair above or below it, besides ordinary ones."""
    rng = np.random.default_rng([seed, 5])
    classes = len(margins)
    for eps in (Fraction(0), Fraction(3, 10), Fraction(1, 10**9), Fraction(36, 255)):
        yield RationalVector((0,) * classes, 1), eps
        j = int(rng.integers(classes))
        for hair in (Fraction(0), Fraction(1, 10**40), -Fraction(1, 10**40)):
            edge = [-eps * (margins[i][j] + hair) if i != j else Fraction(0) for i in range(classes)]
            yield RationalVector.from_fractions(edge), eps
        ordinary = [Fraction(float(x)) * max(map(max, margins)) for x in rng.standard_normal(classes)]
        yield RationalVector.from_fractions(ordinary), eps


def verdict_violations(decide: Decide, margins: Matrix, seed: int) -> list[str]:
    """Where a decision differs from the definition."""
    return [
        f"eps {eps}, logits {logits.numerators}/{logits.denominator}: not what the definition says"
        for logits, eps in outputs_near_the_edge(margins, seed)
        if decide(margins, logits, eps) != plainly_certified(margins, logits, eps)
    ]


def on_ladder(name: str) -> Decide:
    """The certifier with the rational fallback that starts on one number system."""
    ladder = precision_ladder(name)
    return lambda margins, logits, eps: Certifier(margins, ladder).verdict(logits, eps).certified


# -- the run ---------------------------------------------------------------------------------------------------------


def run(setting: Setting) -> Outcome:
    outcome = Outcome("cross")
    path = setting.paper_file("mnist_8x128.txt")
    if path is None:
        outcome.skipped.append("the paper's MNIST model is absent (--shared)")
    items = list(corpus(load_model(path) if path else None, short=setting.short))
    tallies: dict[str, Tally] = defaultdict(Tally)
    for item in setting.progress(items, "cross", len(items)):
        _check(item, _feasible(item, setting.short), tallies, outcome)
    caught = _controls([item for item in items if item.small][: 16 if setting.short else 40], outcome)
    _report(outcome, tallies, caught, len(items))
    return outcome


def _check(item: Item, backends: Sequence[str], tallies: dict[str, Tally], outcome: Outcome) -> None:
    for asked in SETTINGS if item.small else SETTINGS[:2]:
        where = f"{item.name}, {asked}"
        exact = _timed(on_backend("exact"), tallies["exact"], item.network, asked)
        if exact is None:
            outcome.violations.append(f"{where}: exact is inconclusive")
            continue
        for name in backends:
            try:
                found = _timed(on_backend(name), tallies[name], item.network, asked)
            except SoundnessError as error:
                outcome.violations.append(f"{where}, {name}: {error}")
                continue
            if found is not None:
                outcome.violations += [f"{where}, {name}: {wrong}" for wrong in bound_violations(found, exact)]
                tallies[name].excess.extend(excesses(found, exact))
    for name in backend_names():
        wrong = verdict_violations(on_ladder(name), exact.margins.matrix if exact else (), len(item.name))
        outcome.violations += [f"{item.name}, certified on {name}: {what}" for what in wrong]


def _feasible(item: Item, short: bool) -> list[str]:
    """The backends to compare with `exact`. Pure Python would take a quarter of an hour for the paper's model."""
    most = 16 if short else 64
    large = any(min(layer.weights.shape) > most for layer in item.network.layers)
    return [name for name in backend_names() if name != "exact" and not (name == "mpmath" and large)]


def _timed(compute: Compute, tally: Tally, network: Network, asked: Asked) -> NetworkBounds | None:
    start = perf_counter()
    tally.runs += 1
    try:
        found = compute(network, asked)
    except InconclusiveError:
        tally.inconclusive += 1
        return None
    finally:
        tally.seconds += perf_counter() - start
    wanted = asked.margins.method != "product" and len(network.layers) > 1
    tally.without_chain += wanted and not found.margins.sigmas
    return found


def _controls(items: list[Item], outcome: Outcome) -> dict[str, int]:
    """How often each broken variant is caught by the very checks above; never is a violation."""
    caught: dict[str, int] = {}
    plain = Asked(64, Plan("gram", 3), MarginPlan("product"))

    @cache
    def exactly(index: int, asked: Asked) -> NetworkBounds:
        return on_backend("exact")(items[index].network, asked)

    for name, (asked, broken) in BOUND_CONTROLS.items():
        caught[name] = 0
        for index, item in enumerate(items):
            try:
                caught[name] += len(bound_violations(broken(item.network, asked), exactly(index, asked)))
            except SoundnessError:
                caught[name] += 1  # its lower bound contradicted its upper bound: caught as well
            except InconclusiveError:
                continue
    for name, decide in VERDICT_CONTROLS.items():
        found = (verdict_violations(decide, exactly(seed, plain).margins.matrix, seed) for seed in range(len(items)))
        caught[name] = sum(map(len, found))
    for name, (asked, spoiled) in SPOILED.items():
        product = replace(asked, margins=MarginPlan("product"))
        outcome.violations += [
            f"{item.name}: a chain was proved from {name}"
            for index, item in enumerate(items)
            if _said_in_full(item.network, exactly(index, product).margins) != spoiled(item.network, asked).margins
        ]
    outcome.violations += [f"the control '{name}' was not caught" for name, times in caught.items() if not times]
    return caught


def _said_in_full(network: Network, product: Margins) -> Margins:
    """The margins of the product where a chain was asked for: they say that there is none, if there could be one."""
    return (
        product if len(network.layers) == 1 else replace(product, skipped_because=(*product.skipped_because, NO_CHAIN))
    )


def _report(outcome: Outcome, tallies: dict[str, Tally], caught: dict[str, int], items: int) -> None:
    shown = table(
        f"{items} networks; every bound against exact",
        *("backend", "runs", "inconclusive", "without a chain", "median excess", "worst", "s"),
    )
    outcome.data["items"] = items
    outcome.data["backends"] = {}
    for name, tally in tallies.items():
        middle, worst = (median(tally.excess), max(tally.excess)) if tally.excess else (0.0, 0.0)
        counts = map(str, (tally.runs, tally.inconclusive, tally.without_chain))
        shown.add_row(name, *counts, f"{middle:.1e}", f"{worst:.1e}", f"{tally.seconds:.1f}")
        outcome.data["backends"][name] = {
            "runs": tally.runs,
            "inconclusive": tally.inconclusive,
            "without_chain": tally.without_chain,
            "median_excess": middle,
            "worst_excess": worst,
            "seconds": tally.seconds,
        }
    controls = table("Negative controls: broken on purpose, and caught", "control", "violations reported")
    for name, times in caught.items():
        controls.add_row(name, str(times))
    outcome.data["controls"] = caught
    outcome.tables += [shown, controls]
