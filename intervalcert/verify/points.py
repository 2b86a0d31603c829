"""Certifying from inputs: the logits are enclosed by a rigorous forward pass, and what the global margins leave open
may be tried again locally, at the very input.

Inputs are taken in batches; a batch is verified in one go, in this process or in another (`processes`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from intervalcert.backends.protocol import Floats, Indices
from intervalcert.errors import InconclusiveError, InputError, shortened
from intervalcert.model.evaluation import (
    EnclosedLogits,
    Evaluator,
    Evaluators,
    FloatBounds,
    PointEvaluator,
    check_evaluable,
)
from intervalcert.numbers.float_formats import FloatFormat
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.pairs import floats_above
from intervalcert.numbers.rounding import float_enclosure
from intervalcert.proof.decision import ATTACK, LOCAL, MARGINS, Bracket, Status, Verdict
from intervalcert.proof.local import LocalWitness, ShortChains, shortened_chains
from intervalcert.proof.trees import DualProof
from intervalcert.verify.branching import FLOATS_END
from intervalcert.verify.complete import CompleteVerdict, CompleteVerifier
from intervalcert.verify.deployed import Deviation
from intervalcert.verify.falsify import AnyCounterexample, Falsified, span_of
from intervalcert.verify.filter import Bools
from intervalcert.verify.jobs import Batch, Job
from intervalcert.verify.local import RAISE_FAULTS, LocalVerifier
from intervalcert.verify.number_table import Epsilons, NumberTable
from intervalcert.verify.vectorised import VectorisedCertifier
from intervalcert.verify.verdicts import Verdicts, status_codes

__all__ = ["PointVerifier", "likely_winners"]


class _Draft:
    """The verdicts of a batch while they are found: arrays with one entry for each input."""

    def __init__(self, count: int) -> None:
        self.argmax: Indices = np.zeros(count, dtype=np.intp)
        self.certified: Bools = np.zeros(count, dtype=bool)
        self.radius: Floats = np.zeros(count)
        self.exactly: Bools = np.zeros(count, dtype=bool)
        self.method, self.proved_by, self.fault = [MARGINS] * count, [""] * count, [""] * count
        self.falsified: Bools = np.zeros(count, dtype=bool)
        self.counterexamples: dict[int, AnyCounterexample] = {}
        self.spans: dict[int, tuple[Fraction, Fraction]] = {}
        self.proofs: dict[int, DualProof | ShortChains] = {}
        self.brackets: dict[int, Bracket] = {}

    def verdicts(self, first: int, semantics: str, eps_space: str) -> Verdicts:
        return Verdicts(
            np.arange(first, first + len(self.argmax)),
            self.argmax,
            status_codes(self.certified, self.falsified),
            self.radius,
            self.exactly,
            semantics,
            eps_space,
            np.array(self.method),
            np.array(self.proved_by),
            np.array(self.fault),
            counterexamples={first + index: found for index, found in self.counterexamples.items()},
            spans={first + index: found for index, found in self.spans.items()},
            proofs={first + index: found for index, found in self.proofs.items()},
            brackets={first + index: found for index, found in self.brackets.items()},
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
        self._complete = None
        if job.budgets is not None:
            self._complete = CompleteVerifier(
                job.network, job.norms, job.margins, job.ladder, self._evaluators, job.budgets, job.form
            )

    def __getstate__(self) -> dict[str, Any]:
        """What all processes share."""
        names = ("job", "_vectorised", "_deployment", "_margins")
        return {name: self.__dict__[name] for name in names}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Raises: SoundnessError if it is about a program in floats, and those here are not to be trusted."""
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
        if self._complete is not None:
            self._decide(self._complete, draft, batch, deviation)
        return draft.verdicts(batch.first, self.job.semantics, self.job.network.eps_space)

    def attacked(self, batch: Batch, *, strongly: bool = False) -> list[CompleteVerdict]:
        """What an attack alone falsifies: a quick one on all inputs at once, or a strong one on each.

        Requires: a job that has budgets.
        """
        if self._complete is None:
            raise ValueError("attacks are for those who want every point decided")
        columns = [batch.column(k) for k in range(len(batch))]
        if not strongly:
            return self._complete.attacked(columns, batch.eps)
        strong = self._complete.falsifier.strongly
        return [_guarded(strong, x, eps) for x, eps in zip(columns, batch.eps, strict=True)]

    def nearer(self, x: RationalMatrix, found: AnyCounterexample) -> CompleteVerdict:
        """A counterexample to that input, a column, that is nearer than the one that is known; or nothing.

        Requires: a job that has budgets.
        """
        if self._complete is None:
            raise ValueError("attacks are for those who want every point decided")
        return _guarded(self._complete.falsifier.nearer, x, found)

    def _enclosed(self, batch: Batch) -> list[FloatBounds] | None:
        """Ends of the logits, last; before them, for a program, of what the other layers compute.

        By the first number system; None if it is not to be trusted in this process, or does not reach so far.
        """
        try:
            values = self._first.before_activations(batch.inputs)
            return [value.float_bounds() for value in (values if self._deployment is not None else values[-1:])]
        except InconclusiveError:
            return None

    def _by_margins(self, draft: _Draft, batch: Batch, enclosed: Sequence[FloatBounds] | None) -> None:
        """Over the reals. By the first number system, all at once; one by one where it cannot tell."""
        undecided = np.ones(len(batch), dtype=bool)
        if enclosed is not None:
            low, high = (end.T for end in enclosed[-1])
            winners = likely_winners(low.T, high.T)
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

    def _by_margins_of_program(
        self, draft: _Draft, batch: Batch, enclosed: Sequence[FloatBounds] | None
    ) -> Deviation | None:
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
        draft.argmax[:] = likely_winners(low, high)
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
        for name, enclosed in self._evaluators.finer(self.job.ladder):
            try:
                winner, least, most = _leads(enclosed(x))
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

    def _against(self, leads: Floats, winner: int, eps: Fraction) -> Verdict:
        """The verdict for logits with these leads of the winner over the others; not certified unless all are."""
        logits = np.insert(-np.maximum(leads, 0.0), winner, 0.0)  # no lead makes a tie
        return self._vectorised.verdicts(NumberTable(logits[None]), Epsilons.all_equal(eps))[0]

    def _refine(self, draft: _Draft, batch: Batch, index: int, deviation: Deviation | None) -> None:
        """Tries at the input itself what is not certified; with the errors of the program, if there is one."""
        if self._local is None or self.job.local_rounds is None or draft.certified[index]:
            return
        eps, floor = batch.eps[index], float_enclosure(batch.eps[index], batch.eps[index])[0]
        margin_deductions = self._deductions(draft, eps, index, deviation)
        if deviation is not None and margin_deductions is None:
            return
        found = self._local.certify(batch.column(index), eps, self.job.local_rounds, margin_deductions)
        draft.fault[index] = found.fault
        if not found.certified or (deviation is not None and found.winner != draft.argmax[index]):
            return
        draft.argmax[index], draft.certified[index] = found.winner, True
        # What is proved holds at this eps, and says nothing of larger ones.
        draft.radius[index] = max(draft.radius[index], floor)
        draft.method[index], draft.proved_by[index] = LOCAL, found.proved_by
        if self.job.keeps_chains and isinstance(found.witness, LocalWitness):
            draft.proofs[index] = shortened_chains(found.witness)

    def _deductions(self, draft: _Draft, eps: Fraction, index: int, deviation: Deviation | None) -> Floats | None:
        """Of a program: what is to be taken off the leads of the winner; None if nothing is known of its errors."""
        ceiling = float_enclosure(eps, eps)[1]
        if self._deployment is None or deviation is None or not ceiling <= deviation.most[index]:
            return None
        found: Floats = self._deployment.errors_at(deviation, ceiling, draft.argmax)[:, index]
        return found

    def _decide(self, complete: CompleteVerifier, draft: _Draft, batch: Batch, deviation: Deviation | None) -> None:
        """Certifies or falsifies what is open: first an attack on all of it at once, then one by one."""
        places = np.flatnonzero(~draft.certified).tolist()
        if not places:
            return
        columns, eps = [batch.column(k) for k in places], [batch.eps[k] for k in places]
        for k, x, distance, attacked in zip(places, columns, eps, complete.attacked(columns, eps), strict=True):
            found = attacked
            if attacked.status is Status.UNKNOWN and self._deployment is None:
                found = complete.decide(x, distance)
            elif attacked.status is Status.UNKNOWN:
                known = self._deductions(draft, distance, k, deviation)
                found = complete.decide(x, distance, int(draft.argmax[k]), known)
            draft.fault[k] = found.fault or draft.fault[k]
            if found.status is Status.UNKNOWN:
                if found.bracket is not None:
                    draft.brackets[k] = found.bracket
                continue
            draft.argmax[k], draft.fault[k] = found.winner, ""
            draft.method[k], draft.proved_by[k] = found.method, found.proved_by
            draft.certified[k], draft.falsified[k] = found.status is Status.CERTIFIED, found.status is Status.FALSIFIED
            if found.status is Status.CERTIFIED:
                draft.radius[k] = max(draft.radius[k], float_enclosure(distance, distance)[0])
                if found.proof is not None:
                    draft.proofs[k] = found.proof
            elif found.counterexample is not None:
                draft.counterexamples[k] = found.counterexample
                draft.spans[k] = span_of(found.counterexample, x)


def _guarded(attack: Callable[..., Falsified | None], *arguments: Any) -> CompleteVerdict:
    """What an attack comes to. One that ends by a fault finds nothing, and says so."""
    try:
        found = attack(*arguments)
    except Exception as error:
        if os.environ.get(RAISE_FAULTS) and not isinstance(error, FLOATS_END):
            raise
        return CompleteVerdict(Status.UNKNOWN, fault=shortened(f"{type(error).__name__}: {error}", 100))
    if found is None:
        return CompleteVerdict(Status.UNKNOWN)
    by = found.proved_by
    return CompleteVerdict(Status.FALSIFIED, found.winner, ATTACK, by, counterexample=found.counterexample)


def _check_within(inputs: FloatBounds, form: FloatFormat, first: int) -> None:
    """Raises: InputError for an entry that the format cannot hold. first: the index of the first column."""
    beyond = np.maximum(np.abs(inputs[0]), np.abs(inputs[1])) > float(form.largest) * (1 + 2.0**-40)
    if beyond.any():
        place, column = np.argwhere(beyond)[0].tolist()
        raise InputError(f"input {first + column}: entry {place} is beyond {form.name}")


def likely_winners(low: Floats, high: Floats) -> Indices:
    """Of each column: the class in whose favour the ends speak."""
    with np.errstate(invalid="ignore"):
        middle = low / 2 + high / 2
    found: Indices = np.argmax(np.nan_to_num(middle), axis=0)
    return found


def _leads(logits: EnclosedLogits) -> tuple[int, Floats, Floats]:
    """The winner of one output, and the ends of its leads over the other classes, in their order.

    The first largest logit, if the number system can tell: from the likely winner on to whoever leads it, or equals it
    with a smaller index.
    """
    low, high = logits.ends
    classes = np.arange(len(low))
    winner = int(likely_winners(low, high))
    for _ in classes:
        others = np.delete(classes, winner)
        low, high = logits.leads(winner)
        ahead = (high <= 0) & ((low < 0) | (others < winner))
        if not ahead.any():
            break
        winner = int(others[int(np.argmin(np.where(ahead, low, np.inf)))])
    return winner, low, high
