"""Certifying from inputs: the logits are enclosed by a rigorous forward pass, and what the global margins leave open
may be tried again locally, at the very input.

Inputs are taken in batches; a batch is judged in one go, in this process or in another (`processes`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from intervalcert.backends.escalation import escalate
from intervalcert.backends.protocol import Backend, Floats, Indices
from intervalcert.errors import InconclusiveError, InputError, UsageError
from intervalcert.model.evaluation import (
    Ends,
    Evaluators,
    PointEvaluator,
    check_evaluable,
    is_piecewise_linear,
    leads_of,
)
from intervalcert.model.network import Network
from intervalcert.numbers.float_formats import FloatFormat
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.pairs import floats_above
from intervalcert.numbers.rounding import float_enclosure
from intervalcert.numbers.text import shortest_exact
from intervalcert.proof.decision import Verdict
from intervalcert.verify.deployed import Deployment
from intervalcert.verify.filter import Bools
from intervalcert.verify.local import LocalVerifier
from intervalcert.verify.number_table import Epsilons, NumberTable
from intervalcert.verify.vectorised import VectorisedCertifier
from intervalcert.verify.verdicts import Verdicts

__all__ = [
    "Batch",
    "Evaluation",
    "Job",
    "LogitVerifier",
    "PointVerifier",
    "batches_of",
    "check_width",
    "evaluations",
]

BATCH = 64
"""Inputs in a batch. The error of a float64 batch is one number for all of them: it grows with their norm together."""


@dataclass(frozen=True)
class Job:
    """What is to be done with every input.

    norms: upper bounds of the layers' operator norms; margins: of the margins' rates; ladder: number systems, the last
    exact. effort: rounds of the local search; None for no local refinement.
    form: the format that the network is run in, to whose numbers its weights are rounded already; None for the reals.
    sigmas: of the chain, or none.
    """

    network: Network
    norms: tuple[Fraction, ...]
    margins: Sequence[Sequence[Fraction]]
    ladder: tuple[Backend[Any], ...]
    effort: int | None = None
    form: FloatFormat | None = None
    sigmas: tuple[Fraction, ...] = ()


@dataclass(frozen=True)
class Batch:
    """Inputs of the first layer, one per column, the radius of each, the index of the first, their part of the work."""

    inputs: RationalMatrix
    radii: tuple[Fraction, ...]
    first: int = 0
    work: int = 0

    def work_of(self, done: int, more: int) -> int:
        """The part of the work that so many inputs are, after those that are done."""
        count = len(self.radii)
        return self.work * (done + more) // count - self.work * done // count

    @property
    def common(self) -> Fraction | None:
        """The radius of all of them, if it is one."""
        return self.radii[0] if len(set(self.radii)) == 1 else None


class PointVerifier:
    """Judges inputs of one network.

    Guarantees: `certified` only if it is proved that every input within the radius has the same winner as this one, in
    the network over the reals.
    """

    def __init__(self, job: Job) -> None:
        check_evaluable(job.network)
        self._job = job
        self._bulk = VectorisedCertifier(job.margins, job.ladder[-1])
        self._evaluators = Evaluators(job.network, job.norms)
        self._local = None
        if job.effort is not None:
            self._local = LocalVerifier(job.network, job.norms, job.ladder, self._evaluators)
        self._deployment = None
        if job.form is not None:
            self._deployment = Deployment(job.network, job.norms, job.sigmas, job.form, job.ladder)
        self._margins = floats_above(job.margins)

    @property
    def _points(self) -> PointEvaluator:
        return self._evaluators.of_points(self._job.ladder[-1])

    def verdicts(self, batch: Batch, on_input: Callable[[], None] = lambda: None) -> Verdicts:
        """A verdict for each input of the batch. on_input: called after each of them that is looked at by itself."""
        if self._deployment is not None:
            return Verdicts.of(self._deployed(self._deployment, batch, on_input))
        try:
            found = self._together(batch)
        except InconclusiveError:  # float64 is not to be trusted in this process, or does not reach so far
            found = [self._one_by_one(batch, index) for index in range(len(batch.radii))]
        refined = []
        for index, verdict in enumerate(found):
            refined.append(self._refined(batch, index, verdict))
            on_input()
        return Verdicts.of(refined)

    def _together(self, batch: Batch) -> list[Verdict]:
        """By the first number system, all at once; one by one where it cannot tell."""
        low, high = (
            end.T
            for end in self._evaluators.on(self._job.ladder[0]).before_activations(batch.inputs)[-1].float_bounds()
        )
        winners = _likely_winners(low.T, high.T)
        places = np.arange(len(low)), winners
        finite: Bools = np.logical_and.reduce(np.isfinite(low) & np.isfinite(high), axis=1)
        worst, best = np.where(finite[:, None], high, 0.0), np.where(finite[:, None], low, 0.0)
        worst[places], best[places] = best[places], worst[places]
        radii = Epsilons.of(batch.radii, batch.first)
        # If the winner's lower end leads the others' upper ends by enough, so do the logits; if it does not even the
        # other way round, they do not.
        yes, maybe = (self._bulk.verdicts(NumberTable(ends), radii) for ends in (worst, best))
        sure = [bool(x) for x in finite & (yes.argmax == winners) & (yes.certified | ~maybe.certified)]
        name = self._job.ladder[0].name
        return [
            replace(verdict, index=batch.first + index, proved_by=name) if settled else self._one_by_one(batch, index)
            for index, (verdict, settled) in enumerate(zip(yes, sure, strict=True))
        ]

    def _deployed(self, deployment: Deployment, batch: Batch, on_input: Callable[[], None]) -> list[Verdict]:
        """Of the program in floats: certified with an error bound that does not claim to be the least one."""
        effort = self._job.effort
        try:
            evaluator = self._evaluators.on(self._job.ladder[0])
            before = [value.float_bounds() for value in evaluator.before_activations(batch.inputs)]
        except InconclusiveError:  # float64 does not reach so far
            some = (self._one_by_one(batch, index) for index in range(len(batch.radii)))
            return [replace(verdict, certified=False, radius=0.0) for verdict in some]
        low, high = before[-1]
        winners = _likely_winners(low, high)
        inputs = evaluator.backend.matrix(batch.inputs).float_bounds()
        beyond = np.maximum(np.abs(inputs[0]), np.abs(inputs[1])) > float(deployment.form.largest) * (1 + 2.0**-40)
        if beyond.any():
            place, column = np.argwhere(beyond)[0].tolist()
            raise InputError(f"input {batch.first + column}: entry {place} is beyond {deployment.form.name}")
        deviation = deployment.deviation(deployment.extent_at(inputs, before))
        radii = deployment.radii(deviation, low, high, winners, self._margins)
        found = []
        for index, (eps, radius) in enumerate(zip(batch.radii, radii.tolist(), strict=True)):
            floor, ceiling = float_enclosure(eps, eps)
            certified, locally, proved_by, fault = ceiling <= radius, False, evaluator.backend.name, ""
            if not certified and effort is not None and self._local is not None and ceiling <= deviation.most[index]:
                margin_deductions = deployment.errors_at(deviation, ceiling, winners)[:, index]
                local = self._local.certify(_column(batch.inputs, index), eps, effort, margin_deductions)
                fault = local.fault
                if local.certified and local.winner == winners[index]:
                    certified, locally, radius, proved_by = True, True, max(radius, floor), local.proved_by
            verdict = Verdict(batch.first + index, int(winners[index]), certified, max(radius, 0.0), locally=locally)
            found.append(replace(verdict, proved_by=proved_by, fault=fault))
            on_input()
        return found

    def _one_by_one(self, batch: Batch, index: int) -> Verdict:
        """Too close for a batch: on finer and finer number systems, at last on exact rationals.

        Their leads are rounded to floats, outward: what even that leaves open is not certified.
        """
        x = _column(batch.inputs, index)
        winner, certified, radius, proved_by = 0, False, 0.0, ""
        for name, leads_at in self._finer_leads():
            try:
                winner, least, most = leads_at(x)
            except InconclusiveError:
                continue
            if not (np.isfinite(least).all() and np.isfinite(most).all()):
                continue
            yes, maybe = (self._against(ends, winner, batch.radii[index]) for ends in (least, most))
            certified, radius, proved_by = yes.certified, yes.radius, name
            if certified or (not maybe.certified and (least >= 0).all()):  # and the winner is known, too
                break
        return Verdict(batch.first + index, winner, certified, radius, exactly=True, proved_by=proved_by)

    def _finer_leads(self) -> Iterator[tuple[str, Callable[[RationalMatrix], tuple[int, Floats, Floats]]]]:
        """What finds the winner of an input and its leads over the other classes, as `_leads`, with its name.

        First the point that is followed exactly, or nearly so; then all number systems but the first.
        """
        if is_piecewise_linear(self._job.network):

            def at_point(x: RationalMatrix) -> tuple[int, Floats, Floats]:
                logits = self._points.at(x)[-1]
                return _leads(logits.float_bounds(), lambda winner: self._points.leads(logits, winner))

            yield self._job.ladder[-1].name, at_point
        for backend in self._job.ladder[1:] or self._job.ladder:

            def enclosed(x: RationalMatrix, backend: Backend[Any] = backend) -> tuple[int, Floats, Floats]:
                logits = self._evaluators.on(backend).before_activations(x)[-1]
                low, high = (end[:, 0] for end in logits.float_bounds())
                return _leads((low, high), lambda winner: leads_of(logits, winner, backend))

            yield backend.name, enclosed

    def _against(self, leads: Floats, winner: int, eps: Fraction) -> Verdict:
        """The verdict for logits with these leads of the winner over the others; not certified unless all are."""
        logits = np.insert(-np.maximum(leads, 0.0), winner, 0.0)  # no lead makes a tie
        return self._bulk.verdicts(NumberTable(logits[None]), Epsilons.all_equal(eps))[0]

    def _refined(self, batch: Batch, index: int, verdict: Verdict) -> Verdict:
        if self._local is None or verdict.certified or self._job.effort is None:
            return verdict
        eps = batch.radii[index]
        found = self._local.certify(_column(batch.inputs, index), eps, self._job.effort)
        if not found.certified:
            return replace(verdict, fault=found.fault)
        # What is proved holds at this radius, and says nothing of larger ones.
        radius = max(verdict.radius, float_enclosure(eps, eps)[0])
        proved = replace(verdict, argmax=found.winner, certified=True, radius=radius, locally=True)
        return replace(proved, proved_by=found.proved_by)


def _column(inputs: RationalMatrix, index: int) -> RationalMatrix:
    return RationalMatrix(inputs.numerators[:, index : index + 1], inputs.denominator)


def _likely_winners(low: Floats, high: Floats) -> Indices:
    """Of each column: the class in whose favour the ends speak."""
    with np.errstate(invalid="ignore"):
        middle = low / 2 + high / 2
    found: Indices = np.argmax(np.nan_to_num(middle), axis=0)
    return found


def _leads(logits: Ends, leads_of: Callable[[int], Ends]) -> tuple[int, Floats, Floats]:
    """The winner of one output, and the ends of its leads over the other classes, in their order.

    The first largest logit, if the number system can tell: from the likely winner on to whoever leads it, or equals it
    with a smaller index. leads_of: the ends of the leads of a class over the others.
    """
    winner = int(_likely_winners(*logits))
    for _ in logits[0]:
        others = np.delete(np.arange(len(logits[0])), winner)
        low, high = leads_of(winner)
        ahead = (high <= 0) & ((low < 0) | (others < winner))
        if not ahead.any():
            break
        winner = int(others[int(np.argmin(np.where(ahead, low, np.inf)))])
    return winner, low, high


class LogitVerifier:
    """Judges given logits of a program in floats, by the worst case over all inputs of at most some norm."""

    def __init__(self, job: Job, norm: Fraction) -> None:
        """Requires: a job with a format. Raises: InputError for a negative norm."""
        if job.form is None:
            raise UsageError("over the reals the norm of the inputs does not matter: certify against the bounds")
        if norm < 0:
            raise InputError(f"a norm must not be negative, and this one is {shortest_exact(norm)}")
        single = job.network.single
        self._threshold = None if single is None else single.constant
        self.classes = len(job.margins)
        self.columns = self.classes if single is None else 1
        self._deployment = Deployment(job.network, job.norms, job.sigmas, job.form, job.ladder)
        self._worst = self._deployment.for_every(norm, Evaluators(job.network, job.norms).on(job.ladder[0]))
        self._margins = floats_above(job.margins)

    def verdicts(self, rows: NumberTable, radii: Epsilons, *, with_radius: bool = True) -> Verdicts:  # noqa: ARG002
        """A verdict per row. Raises: InputError unless there are as many logits as `columns`, all finite."""
        count, columns = rows.values.shape
        if columns != self.columns:
            raise InputError(f"{rows.what}: {columns} logits per output, but the model has {self.columns}")
        values = rows.values.astype(np.float64)
        if not np.isfinite(values).all():
            raise rows.not_finite(values)
        if self._threshold is not None:
            rows = rows.with_first(self._threshold)
            values = rows.values
        low = high = values.T
        if rows.decimal_places is None or rows.decimal_places:  # the floats next to values·10^-places
            near = values.T / 10.0 ** (rows.decimal_places or 0)
            with np.errstate(all="ignore"):
                near_by = 4 * np.spacing(np.abs(near))
                low, high = near - near_by, near + near_by
        winners = _likely_winners(low, high)
        found = self._deployment.radii(self._worst, low, high, winners, self._margins, twice=True)
        ceilings = np.array([float_enclosure(eps, eps)[1] for eps in map(radii.exact, range(count))])
        nowhere = np.zeros(count, dtype=bool)
        indices = np.arange(rows.first, rows.first + count)
        return Verdicts(indices, winners, ceilings <= found, np.maximum(found, 0.0), nowhere, nowhere.copy())


# -- enclosures ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Ends of what each layer computes before its activation, one row per input; the last layer's are the logits.

    Those of the model: a single output is alone. input_range: of the inputs themselves, after scaling; rounded outward.
    """

    lower: tuple[Floats, ...]
    upper: tuple[Floats, ...]
    input_range: tuple[float, float] | None = None

    def __repr__(self) -> str:
        inputs, logits = self.lower[-1].shape
        return f"<Evaluation of {inputs} inputs: {len(self.lower)} layers, {logits} logits>"

    @staticmethod
    def joined(parts: Sequence[Evaluation]) -> Evaluation:
        lower = zip(*(part.lower for part in parts), strict=True)
        upper = zip(*(part.upper for part in parts), strict=True)
        return Evaluation(tuple(map(np.concatenate, lower)), tuple(map(np.concatenate, upper)))


def evaluations(
    network: Network, norms: Sequence[Fraction], ladder: Sequence[Backend[Any]], batches: Iterator[Batch]
) -> Iterator[tuple[Evaluation, int]]:
    """Of each batch, on the first number system that gives one, with its part of the work."""
    evaluators = Evaluators(network, norms)

    def ends(inputs: RationalMatrix) -> list[tuple[Floats, Floats]]:
        found = escalate(ladder, lambda backend: evaluators.on(backend).before_activations(inputs))
        *hidden, (low, high) = (value.float_bounds() for value in found.value)
        own = slice(0 if network.single is None else 1, None)
        return [*hidden, (low[own], high[own])]

    for batch in batches:
        found = ends(batch.inputs)
        yield Evaluation(tuple(low.T for low, _ in found), tuple(high.T for _, high in found)), batch.work


# -- many ------------------------------------------------------------------------------------------------------------


def check_width(rows: NumberTable, network: Network) -> None:
    """Raises: InputError unless every row has as many numbers as the network takes."""
    found = rows.values.shape[1]
    if found != network.inputs:
        raise InputError(f"{rows.what}: {found} numbers per input, but the model takes {network.inputs}")


def batches_of(
    rows: NumberTable, network: Network, scale: Fraction, radii: Epsilons, step: int = BATCH
) -> Iterator[Batch]:
    """The rows of a table as batches of inputs of the first layer: each number times `scale`, then `Network.entered`.

    Requires: the scale that `units` finds for the whole table.
    Raises: InputError unless every row has as many finite numbers as the network takes.
    """
    check_width(rows, network)
    count = len(rows)
    for start in range(0, count, step):
        part = range(start, min(start + step, count))
        if rows.read_exact is None:
            values = rows.values[part.start : part.stop]
            if not np.isfinite(values).all():
                raise rows.not_finite(values, start)
            made = RationalMatrix.from_floats(values.T)
            divisor = 10 ** (rows.decimal_places or 0) * scale.denominator
            if scale.numerator != 1 or divisor != 1:
                made = RationalMatrix(made.numerators * scale.numerator, made.denominator * divisor)
        else:
            exact = [rows.row(index) for index in part]
            lists = [[Fraction(n, row.denominator) * scale for n in row.numerators] for row in exact]
            made = RationalMatrix.from_fractions(lists).transposed()
        work = rows.work * part.stop // count - rows.work * part.start // count
        yield Batch(network.entered(made), tuple(map(radii.exact, part)), rows.first + start, work)
