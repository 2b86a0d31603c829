"""Robust radii of a table of inputs, and what they come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from intervalcert.backends.protocol import Floats
from intervalcert.errors import InputError
from intervalcert.execution.processes import OnRows, verify_batches
from intervalcert.io.tables import LabelSource
from intervalcert.model.single import Single
from intervalcert.verify.filter import Bools
from intervalcert.verify.jobs import BATCH, Batch, batches_of
from intervalcert.verify.number_table import Epsilons, NumberTable
from intervalcert.verify.radius import Radii, RadiusVerifier
from intervalcert.verify.units import Units

__all__ = ["Medians", "RadiusSummary", "bracketed_inputs", "radii_of", "summarised_radii"]

_SMALL_BATCH = 8
"""Inputs in a batch where each may take long, so that processes share them evenly."""


@dataclass(frozen=True)
class Medians:
    """Over some inputs: of the lower ends, of the upper ends, of the relative widths; each of them is one of those.

    Of an even number of lower ends the lower one of the two in the middle, else the higher one.
    """

    lower: float
    upper: float
    relative_width: float

    @staticmethod
    def of(lower: Floats, upper: Floats, width: Floats) -> Medians | None:
        """None of no inputs."""
        if not len(lower):
            return None
        low = float(np.sort(lower)[(len(lower) - 1) // 2])
        high, wide = (float(np.sort(each)[len(each) // 2]) for each in (upper, width))
        return Medians(low, high, wide)


@dataclass(frozen=True)
class RadiusSummary:
    """What many radii come to.

    statuses: how many there are of each `RadiusStatus`. width: that was asked for. has_upper: whether upper ends were.
    medians: of all. right, medians_right: how many winners are the true class, and of those; None without labels.
    methods, proved_by: of the lower ends. ended: by which limits those that are open did. faults: of attempts.
    """

    total: int
    statuses: Counter[str]
    medians: Medians
    width: Fraction
    has_upper: bool
    methods: Counter[str]
    proved_by: Counter[str]
    ended: Counter[str]
    faults: Counter[str]
    semantics: str
    eps_space: str
    right: int | None = None
    medians_right: Medians | None = None
    units: Units | None = None
    single: Single | None = None

    @property
    def accuracy(self) -> float | None:
        return None if self.right is None else self.right / self.total


def bracketed_inputs(
    verifier: RadiusVerifier,
    chunks: Iterable[NumberTable],
    units: Units,
    *,
    jobs: int = 1,
    on_rows: OnRows = lambda *_: None,
) -> Iterator[Radii]:
    """The radii of a table of inputs, batch by batch, in so many processes. units: those of the whole table."""
    nothing = Epsilons.all_equal(Fraction(0))
    step = BATCH if verifier.job.budgets is None else _SMALL_BATCH

    def batches() -> Iterator[Batch]:
        for rows in chunks:
            yield from batches_of(rows, verifier.job.network, units.scale, nothing, step)

    return (found for _, found in verify_batches(verifier, batches(), jobs, on_rows))


def radii_of(
    parts: Iterable[Radii], labels: LabelSource | None = None, write: Callable[[Radii], None] | None = None
) -> list[Radii]:
    """All of them, each with whether its winner is right, if labels say so. write: takes them, one after the other.

    Raises: InputError unless there are as many labels as inputs; for too few as soon as they end.
    """
    found, total = [], 0
    for part in parts:
        total += len(part)
        judged = part if labels is None else replace(part, right=_right(part, labels, total))
        if write is not None:
            write(judged)
        found.append(replace(judged, counterexamples={}))
    if labels is not None:
        labels.check_count(total)
    return found


def _right(part: Radii, labels: LabelSource, total: int) -> Bools:
    known = labels.take(len(part))
    if len(known) < len(part):
        labels.check_count(total)
        raise InputError("fewer labels than inputs")
    return np.asarray(part.argmax == known)


def summarised_radii(parts: Sequence[Radii], width: Fraction, *, has_upper: bool) -> RadiusSummary:
    """Requires: some."""
    joined = Radii.joined(parts)
    right = joined.right
    all_of = joined.lower, joined.upper, joined.relative_width
    medians = Medians.of(*all_of)
    if medians is None:
        raise ValueError("a table without rows")
    return RadiusSummary(
        total=len(joined),
        statuses=Counter(joined.status.tolist()),
        medians=medians,
        width=width,
        has_upper=has_upper,
        methods=_counted(joined.method),
        proved_by=_counted(joined.proved_by),
        ended=_counted(joined.ended),
        faults=_counted(joined.fault),
        semantics=joined.semantics,
        eps_space=joined.eps_space,
        right=None if right is None else int(right.sum()),
        medians_right=None if right is None else Medians.of(*(each[right] for each in all_of)),
    )


def _counted(texts: npt.NDArray[np.str_]) -> Counter[str]:
    """How often each occurs that is not empty."""
    return Counter(texts[texts != ""].tolist())
