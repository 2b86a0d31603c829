"""Certifying from inputs: the logits are enclosed by a rigorous forward pass, and what the global margins leave open
may be tried again locally, at the very input.

Inputs are taken in blocks; a block is judged in one go, in this process or in another.
"""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from fractions import Fraction
from multiprocessing import get_context
from typing import Any

import numpy as np

from intervalcert.bulk import BulkCertifier, Radii, Rows, Verdicts
from intervalcert.certifier import Verdict
from intervalcert.errors import InconclusiveError, InputError
from intervalcert.filtering import Bools
from intervalcert.forward import Evaluator, check_evaluable
from intervalcert.local import LocalCertifier
from intervalcert.network import Network
from intervalcert.protocol import Backend, Floats, Indices
from intervalcert.rational import RationalMatrix, float_enclosure

__all__ = ["Block", "InputCertifier", "Task", "blocks_of", "judge_all"]

BLOCK = 64
"""Inputs in a block. The error of a float64 block is one number for all of them: it grows with their norm together."""


@dataclass(frozen=True)
class Task:
    """What is to be done with every input.

    norms: upper bounds of the layers' operator norms; margins: of the margins' rates; rungs: number systems, the last
    exact. effort: rounds of the local search; None for no local refinement.
    """

    network: Network
    norms: tuple[Fraction, ...]
    margins: tuple[tuple[Fraction, ...], ...]
    rungs: tuple[Backend[Any], ...]
    effort: int | None = None


@dataclass(frozen=True)
class Block:
    """Some inputs, one per column, the radius of each, the index of the first, and their part of the work."""

    inputs: RationalMatrix
    radii: tuple[Fraction, ...]
    first: int = 0
    work: int = 0

    @property
    def common(self) -> Fraction | None:
        """The radius of all of them, if it is one."""
        return self.radii[0] if len(set(self.radii)) == 1 else None


class InputCertifier:
    """Judges inputs of one network.

    Guarantees: `certified` only if it is proved that every input within the radius has the same winner as this one, in
    the network over the reals.
    """

    def __init__(self, task: Task) -> None:
        check_evaluable(task.network)
        self._task = task
        self._bulk = BulkCertifier(task.margins, task.rungs[-1])
        self._evaluators: dict[Backend[Any], Evaluator] = {}
        self._local = None if task.effort is None else LocalCertifier(task.network, task.norms, task.rungs)

    def verdicts(self, block: Block) -> Verdicts:
        """A verdict for each input of the block."""
        try:
            found = self._together(block)
        except InconclusiveError:  # float64 is not to be trusted in this process, or does not reach so far
            found = [self._one_by_one(block, index) for index in range(len(block.radii))]
        return Verdicts.of([self._refined(block, index, verdict) for index, verdict in enumerate(found)])

    def _together(self, block: Block) -> list[Verdict]:
        """By the first number system, all at once; one by one where it cannot tell."""
        low, high = (end.T for end in self._evaluator(self._task.rungs[0]).before_activations(block.inputs)[-1].ends())
        winners: Indices = np.argmax(low / 2 + high / 2, axis=1)
        places = np.arange(len(low)), winners
        finite: Bools = np.logical_and.reduce(np.isfinite(low) & np.isfinite(high), axis=1)
        worst, best = np.where(finite[:, None], high, 0.0), np.where(finite[:, None], low, 0.0)
        worst[places], best[places] = best[places], worst[places]
        radii = Radii.of(block.radii, block.first)
        # If the winner's lower end leads the others' upper ends by enough, so do the logits; if it does not even the
        # other way round, they do not.
        yes, maybe = (self._bulk.verdicts(Rows(ends), radii) for ends in (worst, best))
        sure = [bool(x) for x in finite & (yes.argmax == winners) & (yes.certified | ~maybe.certified)]
        return [
            replace(verdict, index=block.first + index) if settled else self._one_by_one(block, index)
            for index, (verdict, settled) in enumerate(zip(yes, sure, strict=True))
        ]

    def _evaluator(self, backend: Backend[Any]) -> Evaluator:
        if backend not in self._evaluators:
            self._evaluators[backend] = Evaluator(self._task.network, self._task.norms, backend)
        return self._evaluators[backend]

    def _one_by_one(self, block: Block, index: int) -> Verdict:
        """Too close for a block: on finer and finer number systems, at last on exact rationals.

        Their leads are rounded to floats, outward: what even that leaves open is not certified.
        """
        x = _column(block.inputs, index)
        winner, certified, radius = 0, False, 0.0
        for backend in self._task.rungs[1:] or self._task.rungs:
            try:
                logits = self._evaluator(backend).before_activations(x)[-1]
            except InconclusiveError:
                continue
            low, high = (end[:, 0] for end in logits.ends())
            winner = int(np.argmax(low / 2 + high / 2))
            unit = np.eye(len(low), dtype=np.int64)
            leads = backend.matrix(RationalMatrix.from_floats(np.delete(unit[winner] - unit, winner, axis=0))) @ logits
            least, most = (end[:, 0] for end in leads.ends())
            if not (np.isfinite(least).all() and np.isfinite(most).all()):
                continue
            yes, maybe = (self._against(ends, winner, block.radii[index]) for ends in (least, most))
            certified, radius = yes.certified, yes.radius
            if certified or not maybe.certified:
                break
        return Verdict(block.first + index, winner, certified, radius, exactly=True)

    def _against(self, leads: Floats, winner: int, eps: Fraction) -> Verdict:
        """The verdict for logits with these leads of the winner over the others; not certified if one is negative."""
        logits = np.insert(-np.maximum(leads, 0.0), winner, 0.0)
        found = self._bulk.verdicts(Rows(logits[None]), Radii.all_equal(eps))[0]
        return replace(found, certified=found.certified and bool((leads > 0).all()))

    def _refined(self, block: Block, index: int, verdict: Verdict) -> Verdict:
        if self._local is None or verdict.certified or self._task.effort is None:
            return verdict
        eps = block.radii[index]
        found = self._local.certify(_column(block.inputs, index), eps, self._task.effort)
        if not found.certified:
            return verdict
        # What is proved holds at this radius, and says nothing of larger ones.
        radius = max(verdict.radius, float_enclosure(eps, eps)[0])
        return replace(verdict, argmax=found.winner, certified=True, radius=radius, locally=True)


def _column(inputs: RationalMatrix, index: int) -> RationalMatrix:
    return RationalMatrix(inputs.numerators[:, index : index + 1], inputs.denominator)


# -- many ------------------------------------------------------------------------------------------------------------


def blocks_of(rows: Rows, width: int, scale: Fraction | None, radii: Radii, step: int = BLOCK) -> Iterator[Block]:
    """The rows of a table as blocks of inputs, each number times `scale`.

    Raises: InputError unless every row has `width` finite numbers; for integers, which must come with a scale.
    """
    count, found = rows.values.shape
    if found != width:
        raise InputError(f"{rows.what}: {found} numbers per input, but the model takes {width}")
    if rows.values.dtype.kind in "iu" and scale is None:
        raise InputError(
            f"{rows.what}: whole numbers of type {rows.values.dtype}. What is their unit? Say it as a scale, 1/255 for "
            "images of bytes that the model takes as x/255, or 1 if it takes them as they are"
        )
    factor = Fraction(1) if scale is None else scale
    for start in range(0, count, step):
        part = range(start, min(start + step, count))
        if rows.exactly is None:
            values = rows.values[part.start : part.stop]
            if not np.isfinite(values).all():
                row, column = np.argwhere(~np.isfinite(values))[0].tolist()
                place = f"row {rows.first + start + row}, column {column}"
                raise InputError(f"{rows.what}: {values[row, column]} in {place}; every number must be finite")
            made = RationalMatrix.from_floats(values.T)
            divisor = 10 ** (rows.places or 0) * factor.denominator
            if factor.numerator != 1 or divisor != 1:
                made = RationalMatrix(made.numerators * factor.numerator, made.denominator * divisor)
        else:
            exact = [rows.row(index) for index in part]
            lists = [[Fraction(n, row.denominator) * factor for n in row.numerators] for row in exact]
            made = RationalMatrix.from_fractions(lists).transposed()
        work = rows.work * part.stop // count - rows.work * part.start // count
        yield Block(made, tuple(map(radii.exact, part)), rows.first + start, work)


_certifier: InputCertifier | None = None


def _start(task: Task) -> None:
    """In a worker: what all blocks share. The parent alone answers an interrupt."""
    global _certifier
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _certifier = InputCertifier(task)


def _judge(block: Block) -> Verdicts:
    if _certifier is None:
        raise RuntimeError("a worker without a task")
    return _certifier.verdicts(block)


def _done(block: Block, future: Future[Verdicts]) -> tuple[Block, Verdicts]:
    return block, future.result()


def judge_all(task: Task, blocks: Iterator[Block], jobs: int = 1) -> Iterator[tuple[Block, Verdicts]]:
    """Each block with its verdicts, in order, in so many processes. Only a few blocks are held at a time."""
    if jobs <= 1:
        certifier = InputCertifier(task)
        yield from ((block, certifier.verdicts(block)) for block in blocks)
        return
    # A fresh interpreter: a fork of a process with threads (a progress bar is one) may hang.
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), _start, (task,))
    try:
        waiting: deque[tuple[Block, Future[Verdicts]]] = deque()
        for block in blocks:
            waiting.append((block, pool.submit(_judge, block)))
            if len(waiting) > 3 * jobs:
                yield _done(*waiting.popleft())
        while waiting:
            yield _done(*waiting.popleft())
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
