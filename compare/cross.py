"""Backend against backend: every interval result must be at least the exact one. No tolerance, anywhere.

Compared are norms, margins by the product and by the chain (tuned or not), and the sigmas that come with a chain, as
`compute_bounds` gives them: of dense networks, and of graphs with convolutions, branches, sorting and pools. What a
number system cannot settle, a finer one is asked; so it is counted how often the one that was named gave the answer,
and one that never does fails the run. Verdicts are held against the definition.

The same checks are run over deliberately broken variants (`compare.controls`): each must be caught, else the harness
itself is blind and the run fails. And a chain that floats guessed badly must be given up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from statistics import median
from time import perf_counter

import numpy as np

from compare.controls import BOUND_CONTROLS, CONVOLUTION_CONTROLS, SPOILED, VERDICT_CONTROLS, Broken
from compare.corpus import Item, corpus
from compare.harness import Asked, Outcome, Setting, table
from intervalcert import Bounds, IntervalcertError, SoundnessError, certify, load_model

__all__ = [
    "BACKENDS",
    "DECISIONS",
    "Decide",
    "answered",
    "bound_violations",
    "plainly_certified",
    "run",
    "wrong_verdicts",
]

Logits = tuple[Fraction, ...]
Output = tuple[Logits, Fraction]
"""Logits, and an eps."""
Decide = Callable[[Bounds, Logits, Fraction], bool]
"""(bounds, logits, eps) -> certified?"""

BACKENDS = ("exact", "arb", "float64", "mpmath")

SETTINGS = (
    Asked(64, "gram", 11, "product"),
    Asked(64, "cholesky", 3, "chain"),
    Asked(64, "cholesky", 3, "chain", 5),
    Asked(16, "gram", 3, "product"),
    Asked(24, "gram", 3, "product"),
    Asked(16, "cholesky", 3, "product"),
    Asked(32, "cholesky", 3, "chain", 1),
    Asked(24, "gram", 6, "best"),
    Asked(128, "gram", 12, "best", 2),
    Asked(64, "gram", 0, "product"),
)
"""Large networks are run with the first two. On 16 bits most norms by Gram iteration are too wide, and finer numbers
give them; 24 bits are the fewest on which each number system gives them itself.
"""

GRAPH_SETTINGS = (SETTINGS[0], SETTINGS[1], SETTINGS[2], SETTINGS[7], SETTINGS[8])
"""Of small graphs. Norms of convolutions know one method alone."""

LIMITS = (
    "Small graphs: five of ten settings, and on mpmath the first, of gaussian ones the first two. "
    "Bundled CNN: the first two, not on mpmath, and the chain not on arb."
)
"""What is not compared because it takes too long; said below the table."""


# -- bounds ----------------------------------------------------------------------------------------------------------


def bound_violations(found: Bounds, exact: Bounds) -> list[str]:
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


def untrue_norms(found: Bounds, exact: Bounds) -> list[str]:
    """Where an upper bound is below what the norm is at least: found in another way, it may be below another one."""
    pairs = enumerate(zip(found.layers, exact.layers, strict=True))
    return [f"norm of layer {index}: {a.upper} < {e.lower}" for index, (a, e) in pairs if a.upper < e.lower]


def excesses(found: Bounds, exact: Bounds) -> Iterator[float]:
    """By which part each margin is above the exact one."""
    for row, reference in zip(found.margins.matrix, exact.margins.matrix, strict=True):
        yield from (float(a / e - 1) for a, e in zip(row, reference, strict=True) if e)


def answered(name: str, found: Bounds) -> list[bool]:
    """Of each layer and, at last, of the margins: whether the number system of that name gave the answer itself.

    At the precision that was asked for: what it could not settle there is said, under its name.
    """
    parts = (*found.layers, found.margins)
    return [not any(reason.startswith(name) for reason in part.skipped_because) for part in parts]


@dataclass
class Tally:
    """What one backend did over the corpus.

    answers: bounds of layers, and margins; own: those that it gave itself. without_chain: where one was asked for, and
    the product was given. excess: of margins that it gave itself.
    """

    runs: int = 0
    answers: int = 0
    own: int = 0
    without_chain: int = 0
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self.excess: list[float] = []


# -- verdicts --------------------------------------------------------------------------------------------------------


def plainly_certified(bounds: Bounds, logits: Logits, eps: Fraction) -> bool:
    """The definition, word for word, in rationals: the reference that certifiers are checked against."""
    j = next(i for i, value in enumerate(logits) if value == max(logits))
    return all(logits[j] - logits[i] > eps * bounds.margins.matrix[i][j] for i in range(len(logits)) if i != j)


def outputs_near_the_edge(bounds: Bounds, seed: int) -> Iterator[Output]:
    """Ties, and outputs whose lead is exactly eps·L, or a hair above or below it, besides ordinary ones."""
    rng = np.random.default_rng([seed, 5])
    margins, classes = bounds.margins.matrix, bounds.classes
    for eps in (Fraction(0), Fraction(3, 10), Fraction(1, 10**9), Fraction(36, 255)):
        yield (Fraction(0),) * classes, eps
        j = int(rng.integers(classes))
        for hair in (Fraction(0), Fraction(1, 10**40), -Fraction(1, 10**40)):
            yield tuple(-eps * (margins[i][j] + hair) if i != j else Fraction(0) for i in range(classes)), eps
        yield tuple(Fraction(float(x)) * max(map(max, margins)) for x in rng.standard_normal(classes)), eps


def nearest_floats(outputs: Iterable[Output]) -> Iterator[Output]:
    """Those whose logits are within the floats, at the floats nearest to them."""
    for logits, eps in outputs:
        try:
            yield tuple(Fraction(float(y)) for y in logits), eps
        except OverflowError:
            continue


def wrong_verdicts(decide: Decide, bounds: Bounds, outputs: Iterable[Output]) -> list[str]:
    """Where a decision differs from the definition."""
    return [
        f"eps {eps}, logits {', '.join(map(str, logits))}: not what the definition says"
        for logits, eps in outputs
        if decide(bounds, logits, eps) != plainly_certified(bounds, logits, eps)
    ]


def _of_a_list(bounds: Bounds, logits: Logits, eps: Fraction) -> bool:
    return certify(bounds, [list(logits)], eps)[0].certified


def _of_an_array(bounds: Bounds, logits: Logits, eps: Fraction) -> bool:
    """Requires: logits that are floats."""
    return certify(bounds, np.array([[float(y) for y in logits]]), eps)[0].certified


DECISIONS: dict[str, tuple[Decide, Callable[[Iterable[Output]], Iterable[Output]]]] = {
    "a list of rationals": (_of_a_list, iter),
    "an array of floats": (_of_an_array, nearest_floats),
}
"""The ways to ask for a verdict, and what is made of the outputs for each."""


# -- the run ---------------------------------------------------------------------------------------------------------


def run(setting: Setting) -> Outcome:
    outcome = Outcome("cross")
    path = setting.paper_file("mnist_8x128.txt")
    if path is None:
        outcome.skipped.append("the paper's MNIST model is absent (--shared)")
    items = list(corpus(load_model(path) if path else None, short=setting.short))
    tallies: dict[str, Tally] = defaultdict(Tally)
    for item in setting.progress(items, "cross", len(items)):
        _check(item, _settings(item, setting.short), tallies, outcome)
    silent = (name for name, tally in tallies.items() if not tally.own)
    outcome.violations += [f"{name} answered nothing itself: nothing is known of it" for name in silent]
    small = [item for item in items if item.small]
    dense = [item for item in small if item.network.is_dense][: 16 if setting.short else 40]
    graphs = [item for item in small if not item.network.is_dense]
    caught = _controls(dense, outcome) | _caught(CONVOLUTION_CONTROLS, graphs, untrue_norms)
    outcome.violations += [f"the control '{name}' was not caught" for name, times in caught.items() if not times]
    _report(outcome, tallies, caught, len(items))
    return outcome


Settings = list[tuple[Asked, list[str]]]
"""What is asked for, and the number systems that are compared with `exact`."""


def _settings(item: Item, short: bool) -> Settings:
    """As many as are feasible (`LIMITS`). Pure Python would take a quarter of an hour for the paper's model."""
    most = 16 if short else 64
    large = any(min(each.map.shape) > most for each in item.network.branches)
    others = [name for name in BACKENDS if name != "exact" and not (name == "mpmath" and large)]
    if item.network.is_dense:
        return [(asked, others) for asked in (SETTINGS if item.small else SETTINGS[:2])]
    if not item.small:
        return [(SETTINGS[0], others), (SETTINGS[1], [name for name in others if name != "arb"])]
    slowly = GRAPH_SETTINGS[: 2 if item.name.startswith("gaussian") and not short else 1]
    return [
        (asked, others if asked in slowly else [name for name in others if name != "mpmath"])
        for asked in (GRAPH_SETTINGS[:2] if short else GRAPH_SETTINGS)
    ]


def _check(item: Item, settings: Settings, tallies: dict[str, Tally], outcome: Outcome) -> None:
    exact = None
    for asked, backends in settings:
        exact = _compared(item, asked, backends, tallies, outcome)
    if exact is None:
        return
    outputs = list(outputs_near_the_edge(exact, len(item.name)))
    for way, (decide, given) in DECISIONS.items():
        wrong = wrong_verdicts(decide, exact, given(outputs))
        outcome.violations += [f"{item.name}, certified from {way}: {what}" for what in wrong]


def _compared(
    item: Item, asked: Asked, backends: Sequence[str], tallies: dict[str, Tally], outcome: Outcome
) -> Bounds | None:
    """The exact bounds, with which all others were compared; None if there are none, which is a violation."""
    exact = _tallied(tallies["exact"], item, asked, "exact", outcome)
    for name in backends:
        found = _tallied(tallies[name], item, asked, name, outcome)
        if found is None or exact is None:
            continue
        outcome.violations += [f"{item.name}, {asked}, {name}: {wrong}" for wrong in bound_violations(found, exact)]
        if answered(name, found)[-1]:
            tallies[name].excess.extend(excesses(found, exact))
    return exact


def _tallied(tally: Tally, item: Item, asked: Asked, name: str, outcome: Outcome) -> Bounds | None:
    """The bounds that start on that number system; an error in their place is a violation."""
    start = perf_counter()
    tally.runs += 1
    try:
        found = asked.bounds(item.network, name)
    except IntervalcertError as error:
        outcome.violations.append(f"{item.name}, {asked}, {name}: {error}")
        return None
    finally:
        tally.seconds += perf_counter() - start
    own = answered(name, found)
    tally.answers += len(own)
    tally.own += sum(own)
    wanted = asked.margins != "product" and len(found.layers) > 1
    tally.without_chain += wanted and any(reason.startswith("chain: ") for reason in found.margins.skipped_because)
    return found


def _controls(items: list[Item], outcome: Outcome) -> dict[str, int]:
    """How often each broken variant is caught by the very checks above; and that spoiled guesses are given up."""
    plain = Asked(64, "gram", 3, "product")

    @cache
    def exactly(index: int, asked: Asked) -> Bounds:
        return asked.bounds(items[index].network, "exact")

    caught = _caught(BOUND_CONTROLS, items, bound_violations)
    for name, decide in VERDICT_CONTROLS.items():
        honest = (exactly(index, plain) for index in range(len(items)))
        found = (wrong_verdicts(decide, x, outputs_near_the_edge(x, seed)) for seed, x in enumerate(honest))
        caught[name] = sum(map(len, found))
    for name, (asked, spoiled) in SPOILED.items():
        product = replace(asked, margins="product", tuning_rounds=0)
        outcome.violations += [
            f"{item.name}: a chain was proved from {name}"
            for index, item in enumerate(items)
            if not _given_up(spoiled(item.network, asked), exactly(index, product))
        ]
    return caught


def _caught(
    controls: Mapping[str, tuple[Asked, Broken]], items: Sequence[Item], wrong: Callable[[Bounds, Bounds], list[str]]
) -> dict[str, int]:
    """How many bounds of each broken computation are wrong, beside exact ones."""
    caught = dict.fromkeys(controls, 0)
    honest = {asked for asked, _ in controls.values()}
    for item in items:
        exact = {asked: asked.bounds(item.network, "exact") for asked in honest}
        for name, (asked, broken) in controls.items():
            try:
                caught[name] += len(wrong(broken(item.network, asked), exact[asked]))
            except SoundnessError:
                caught[name] += 1  # its lower bound contradicted its upper bound: caught as well
            except IntervalcertError:
                continue  # it gave no answer, and nothing was caught
    return caught


def _given_up(found: Bounds, product: Bounds) -> bool:
    """Whether these are the margins of the product, and say that there is no chain, if there could be one."""
    said = found.margins.skipped_because
    of_chains = [reason for reason in said if reason.startswith("chain: ")]
    others = tuple(reason for reason in said if reason not in of_chains)
    return (
        len(of_chains) == (len(found.layers) > 1) and replace(found.margins, skipped_because=others) == product.margins
    )


def _report(outcome: Outcome, tallies: dict[str, Tally], caught: dict[str, int], items: int) -> None:
    shown = table(
        f"{items} networks; every bound against exact",
        *("backend", "runs", "answers", "its own", "without a chain", "median excess", "worst", "s"),
    )
    shown.caption = LIMITS
    outcome.data["items"] = items
    outcome.data["backends"] = {}
    for name, tally in tallies.items():
        middle, worst = (median(tally.excess), max(tally.excess)) if tally.excess else (0.0, 0.0)
        counts = map(str, (tally.runs, tally.answers, tally.own, tally.without_chain))
        shown.add_row(name, *counts, f"{middle:.1e}", f"{worst:.1e}", f"{tally.seconds:.1f}")
        outcome.data["backends"][name] = {
            "runs": tally.runs,
            "answers": tally.answers,
            "own": tally.own,
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
