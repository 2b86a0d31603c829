"""Certifying from inputs: the logits are enclosed by a rigorous forward pass, and what the global margins leave open
may be tried again locally, at the very input.

Inputs are taken in batches; a batch is judged in one go, in this process or in another (`processes`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from intervalcert.backends.escalation import escalate
from intervalcert.backends.protocol import Backend, Floats, Indices
from intervalcert.errors import InconclusiveError, InputError, UsageError
from intervalcert.model.evaluation import (
    Ends,
    Evaluator,
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
from intervalcert.proof.decision import LOCAL, MARGINS, Verdict, check_logits
from intervalcert.verify.deployed import Deployment, Deviation
from intervalcert.verify.filter import Bools
from intervalcert.verify.local import LocalVerifier
from intervalcert.verify.number_table import Epsilons, NumberTable
from intervalcert.verify.vectorised import VectorisedCertifier
from intervalcert.verify.verdicts import Verdicts, status_codes

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
    exact. local_rounds: of the local search; None for no local refinement.
    form: the format that the network is run in, to whose numbers its weights are rounded already; None for the reals.
    sigmas: of the chain, or none.
    """

    network: Network
    norms: tuple[Fraction, ...]
    margins: Sequence[Sequence[Fraction]]
    ladder: tuple[Backend[Any], ...]
    local_rounds: int | None = None
    form: FloatFormat | None = None
    sigmas: tuple[Fraction, ...] = ()

    @property
    def semantics(self) -> str:
        """Which network verdicts are about."""
        return "real" if self.form is None else self.form.name

    def deployment(self) -> Deployment | None:
        """What all points share in a program of that format."""
        if self.form is None:
            return None
        return Deployment(self.network, self.norms, self.sigmas, self.form, self.ladder)


@dataclass(frozen=True)
class Batch:
    """Inputs of the first layer, one per column, the eps of each, the index of the first, their part of the work."""

    inputs: RationalMatrix
    eps: tuple[Fraction, ...]
    first: int = 0
    work: int = 0

    def __len__(self) -> int:
        return len(self.eps)

    def column(self, index: int) -> RationalMatrix:
        return RationalMatrix(self.inputs.numerators[:, index : index + 1], self.inputs.denominator)

    def work_of(self, done: int, more: int) -> int:
        """The part of the work that so many inputs are, after those that are done."""
        return self.work * (done + more) // len(self) - self.work * done // len(self)

    @property
    def common_eps(self) -> Fraction | None:
        """The eps of all of them, if it is one."""
        return self.eps[0] if len(set(self.eps)) == 1 else None


class _Draft:
    """The verdicts of a batch while they are found: arrays with one entry for each input."""

    def __init__(self, count: int) -> None:
        self.argmax: Indices = np.zeros(count, dtype=np.intp)
        self.certified: Bools = np.zeros(count, dtype=bool)
        self.radius: Floats = np.zeros(count)
        self.exactly: Bools = np.zeros(count, dtype=bool)
        self.method, self.proved_by, self.fault = [MARGINS] * count, [""] * count, [""] * count

    def verdicts(self, first: int, semantics: str, eps_space: str) -> Verdicts:
        return Verdicts(
            np.arange(first, first + len(self.argmax)),
            self.argmax,
            status_codes(self.certified),
            self.radius,
            self.exactly,
            semantics,
            eps_space,
            np.array(self.method),
            np.array(self.proved_by),
            np.array(self.fault),
        )


class PointVerifier:
    """The pipeline for a point of one network: its logits are enclosed, the enclosure is held against the margins, and
    what they leave open is tried at the input itself.

    It can be sent to another process, with all that is the same for every input; what is made of the weights on some
    number system is made there, when it is needed.
    Guarantees: `certified` only if it is proved that every input within eps has the same winner as this one, in the
    network over the reals or in the program (`Job.semantics`).
    """

    def __init__(self, job: Job) -> None:
        """Raises: InputError for a network that cannot be evaluated, or not be refined locally if that is asked for."""
        check_evaluable(job.network)
        self.job = job
        self._vectorised = VectorisedCertifier(job.margins, job.ladder[-1], eps_space=job.network.eps_space)
        self._deployment = job.deployment()
        self._margins = None if self._deployment is None else floats_above(job.margins)
        self._prepare()

    def _prepare(self) -> None:
        """Makes what belongs to one process."""
        job = self.job
        self._evaluators = Evaluators(job.network, job.norms)
        self._local = None
        if job.local_rounds is not None:
            self._local = LocalVerifier(job.network, job.norms, job.ladder, self._evaluators)

    def __getstate__(self) -> dict[str, Any]:
        """What all processes share."""
        names = ("job", "_vectorised", "_deployment", "_margins")
        return {name: self.__dict__[name] for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Raises: SoundnessError if a program in floats is judged, and those of this process are not to be trusted."""
        self.__dict__.update(state)
        self._prepare()

    @property
    def _first(self) -> Evaluator:
        return self._evaluators.on(self.job.ladder[0])

    @property
    def _points(self) -> PointEvaluator:
        return self._evaluators.of_points(self.job.ladder[-1])

    def verdicts(self, batch: Batch, on_input: Callable[[], None] = lambda: None) -> Verdicts:
        """A verdict for each input of the batch. on_input: called after each of them that is looked at by itself."""
        draft, deviation = _Draft(len(batch)), None
        enclosed = self._enclosed(batch)
        if self._deployment is None:
            self._by_margins(draft, batch, enclosed)
        else:
            deviation = self._by_margins_of_program(draft, batch, enclosed)
        if self._deployment is None or deviation is not None:
            for index in range(len(batch)):
                self._refine(draft, batch, index, deviation)
                on_input()
        return draft.verdicts(batch.first, self.job.semantics, self.job.network.eps_space)

    def _enclosed(self, batch: Batch) -> list[Ends] | None:
        """Ends of the logits, last; before them, for a program, of what the other layers compute.

        By the first number system; None if it is not to be trusted in this process, or does not reach so far.
        """
        try:
            values = self._first.before_activations(batch.inputs)
            return [value.float_bounds() for value in (values if self._deployment is not None else values[-1:])]
        except InconclusiveError:
            return None

    def _by_margins(self, draft: _Draft, batch: Batch, enclosed: Sequence[Ends] | None) -> None:
        """Over the reals. By the first number system, all at once; one by one where it cannot tell."""
        undecided = np.ones(len(batch), dtype=bool)
        if enclosed is not None:
            low, high = (end.T for end in enclosed[-1])
            winners = _likely_winners(low.T, high.T)
            places = np.arange(len(low)), winners
            finite: Bools = np.logical_and.reduce(np.isfinite(low) & np.isfinite(high), axis=1)
            worst, best = np.where(finite[:, None], high, 0.0), np.where(finite[:, None], low, 0.0)
            worst[places], best[places] = best[places], worst[places]
            epsilons = Epsilons.of(batch.eps, batch.first)
            # If the winner's lower end leads the others' upper ends by enough, so do the logits; if it does not even
            # the other way round, they do not.
            yes, maybe = (self._vectorised.verdicts(NumberTable(ends), epsilons) for ends in (worst, best))
            undecided = ~(finite & (yes.argmax == winners) & (yes.certified | ~maybe.certified))
            draft.argmax[:], draft.radius[:] = yes.argmax, yes.radius
            draft.certified[:], draft.exactly[:] = yes.certified, yes.exactly
            draft.proved_by[:] = [self.job.ladder[0].name] * len(batch)
        for index in np.flatnonzero(undecided).tolist():
            self._one_by_one(draft, batch, index)

    def _by_margins_of_program(self, draft: _Draft, batch: Batch, enclosed: Sequence[Ends] | None) -> Deviation | None:
        """Of the program in floats: certified with an error bound that does not claim to be the least one.

        None if nothing is known of the errors, and nothing certified.
        """
        if self._deployment is None or self._margins is None:
            raise ValueError("the network over the reals is no program")
        if enclosed is None:
            for index in range(len(batch)):
                self._one_by_one(draft, batch, index)
            draft.certified[:], draft.radius[:] = False, 0.0
            return None
        low, high = enclosed[-1]
        draft.argmax[:] = _likely_winners(low, high)
        inputs = self._first.backend.matrix(batch.inputs).float_bounds()
        _check_within(inputs, self._deployment.form, batch.first)
        deviation = self._deployment.deviation(self._deployment.extent_at(inputs, enclosed))
        found = self._deployment.radii(deviation, low, high, draft.argmax, self._margins)
        draft.certified[:] = Epsilons.of(batch.eps, batch.first).upper <= found
        draft.radius[:] = np.maximum(found, 0.0)
        draft.proved_by[:] = [self.job.ladder[0].name] * len(batch)
        return deviation

    def _one_by_one(self, draft: _Draft, batch: Batch, index: int) -> None:
        """Too close for a batch: on finer and finer number systems, at last on exact rationals.

        Their leads are rounded to floats, outward: what even that leaves open is not certified.
        """
        x = batch.column(index)
        winner, certified, radius, proved_by = 0, False, 0.0, ""
        for name, leads_at in self._finer_leads():
            try:
                winner, least, most = leads_at(x)
            except InconclusiveError:
                continue
            if not (np.isfinite(least).all() and np.isfinite(most).all()):
                continue
            yes, maybe = (self._against(ends, winner, batch.eps[index]) for ends in (least, most))
            certified, radius, proved_by = yes.certified, yes.radius, name
            if certified or (not maybe.certified and (least >= 0).all()):  # and the winner is known, too
                break
        draft.argmax[index], draft.certified[index], draft.radius[index] = winner, certified, radius
        draft.exactly[index], draft.proved_by[index] = True, proved_by

    def _finer_leads(self) -> Iterator[tuple[str, Callable[[RationalMatrix], tuple[int, Floats, Floats]]]]:
        """What finds the winner of an input and its leads over the other classes, as `_leads`, with its name.

        First the point that is followed exactly, or nearly so; then all number systems but the first.
        """
        if is_piecewise_linear(self.job.network):

            def at_point(x: RationalMatrix) -> tuple[int, Floats, Floats]:
                logits = self._points.at(x)[-1]
                return _leads(logits.float_bounds(), lambda winner: self._points.leads(logits, winner))

            yield self.job.ladder[-1].name, at_point
        for backend in self.job.ladder[1:] or self.job.ladder:

            def enclosed(x: RationalMatrix, backend: Backend[Any] = backend) -> tuple[int, Floats, Floats]:
                logits = self._evaluators.on(backend).before_activations(x)[-1]
                low, high = (end[:, 0] for end in logits.float_bounds())
                return _leads((low, high), lambda winner: leads_of(logits, winner, backend))

            yield backend.name, enclosed

    def _against(self, leads: Floats, winner: int, eps: Fraction) -> Verdict:
        """The verdict for logits with these leads of the winner over the others; not certified unless all are."""
        logits = np.insert(-np.maximum(leads, 0.0), winner, 0.0)  # no lead makes a tie
        return self._vectorised.verdicts(NumberTable(logits[None]), Epsilons.all_equal(eps))[0]

    def _refine(self, draft: _Draft, batch: Batch, index: int, deviation: Deviation | None) -> None:
        """Tries at the input itself what is not certified; with the errors of the program, if there is one."""
        if self._local is None or self.job.local_rounds is None or draft.certified[index]:
            return
        eps, margin_deductions = batch.eps[index], None
        floor, ceiling = float_enclosure(eps, eps)
        if self._deployment is not None and deviation is not None:
            if not ceiling <= deviation.most[index]:
                return
            margin_deductions = self._deployment.errors_at(deviation, ceiling, draft.argmax)[:, index]
        found = self._local.certify(batch.column(index), eps, self.job.local_rounds, margin_deductions)
        draft.fault[index] = found.fault
        if not found.certified or (deviation is not None and found.winner != draft.argmax[index]):
            return
        draft.argmax[index], draft.certified[index] = found.winner, True
        # What is proved holds at this eps, and says nothing of larger ones.
        draft.radius[index] = max(draft.radius[index], floor)
        draft.method[index], draft.proved_by[index] = LOCAL, found.proved_by


def _check_within(inputs: Ends, form: FloatFormat, first: int) -> None:
    """Raises: InputError for an entry that the format cannot hold. first: the index of the first column."""
    beyond = np.maximum(np.abs(inputs[0]), np.abs(inputs[1])) > float(form.largest) * (1 + 2.0**-40)
    if beyond.any():
        place, column = np.argwhere(beyond)[0].tolist()
        raise InputError(f"input {first + column}: entry {place} is beyond {form.name}")


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
        deployment = job.deployment()
        if deployment is None:
            raise UsageError("over the reals the norm of the inputs does not matter: certify against the bounds")
        if norm < 0:
            raise InputError(f"a norm must not be negative, and this one is {shortest_exact(norm)}")
        single = job.network.single
        self._threshold = None if single is None else single.constant
        self._semantics, self._eps_space = job.semantics, job.network.eps_space
        self.classes = len(job.margins)
        self.columns = self.classes if single is None else 1
        self._deployment = deployment
        self._worst = deployment.for_every(norm, Evaluators(job.network, job.norms).on(job.ladder[0]))
        self._margins = floats_above(job.margins)

    def verdicts(self, rows: NumberTable, epsilons: Epsilons, *, with_radius: bool = True) -> Verdicts:  # noqa: ARG002
        """A verdict per row. Raises: InputError unless there are as many logits as `columns`, all finite."""
        count, columns = rows.values.shape
        check_logits(columns, self.columns, rows.what)
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
        return Verdicts(
            np.arange(rows.first, rows.first + count),
            winners,
            status_codes(epsilons.upper <= found),
            np.maximum(found, 0.0),
            np.zeros(count, dtype=bool),
            self._semantics,
            self._eps_space,
        )


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
    rows: NumberTable, network: Network, scale: Fraction, epsilons: Epsilons, step: int = BATCH
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
        yield Batch(network.entered(made), tuple(map(epsilons.exact, part)), rows.first + start, work)
