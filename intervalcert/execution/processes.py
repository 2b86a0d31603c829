"""Batches of inputs, verified in several processes: in order, a few at a time, and gone when the caller is.

Signals that end a program are the caller's to answer. A terminal sends them to every process of a run, and a worker is
born with them blocked, and stays so. When the caller has done, or is interrupted, it kills its workers, whatever they
do: they hold nothing that would be missed.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sized
from dataclasses import dataclass
from multiprocessing import connection, get_context, parent_process, resource_tracker
from multiprocessing.context import SpawnProcess
from time import monotonic
from typing import Any, Generic, Protocol, TypeVar

from intervalcert.errors import InputError, IntervalcertError
from intervalcert.io.cleanup import cleared_away
from intervalcert.verify.jobs import Batch

__all__ = ["OnRows", "verify_batches"]

_Pipe = connection.Connection
_Found = TypeVar("_Found", bound=Sized)
_Found_co = TypeVar("_Found_co", bound=Sized, covariant=True)


class _Verifier(Protocol[_Found_co]):
    """What finds something of each input of a batch, and can be sent to another process."""

    def verdicts(self, batch: Batch, on_input: Callable[[], None]) -> _Found_co: ...


OnRows = Callable[[int, int], None]
"""Is told of so many inputs that were verified, and their part of the work."""

_REPORT_SECONDS = 0.1
"""Between two such messages."""

_HAS_MASKS = hasattr(signal, "pthread_sigmask")  # Windows has not


@contextlib.contextmanager
def _signals_blocked() -> Iterator[None]:
    """Signals that end a program wait meanwhile, in this thread; processes started now never receive them."""
    if not _HAS_MASKS:
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Throttle:
    """Called after each input; reports how many there were, when some time has passed."""

    def __init__(self, report: Callable[[int], object]) -> None:
        self._report, self._count, self._last = report, 0, monotonic()

    def __call__(self) -> None:
        self._count += 1
        if monotonic() - self._last > _REPORT_SECONDS:
            self._report(self._count)
            self._count, self._last = 0, monotonic()


# -- in a worker -----------------------------------------------------------------------------------------------------


def _serve(pipe: _Pipe) -> None:
    """Is sent a verifier, then batches; answers each with verdicts, or with the exception that there was.

    Where that takes long, with the number of inputs that were verified meanwhile, before.
    """
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with contextlib.suppress(EOFError, OSError):  # the parent has gone
        sent, verifier = pipe.recv_bytes(), None
        while True:
            batch = pipe.recv()
            try:
                if verifier is None:  # what it finds wrong with this process is an answer, too
                    verifier = _arrived(sent)
                answer: Sized | Exception = verifier.verdicts(batch, _Throttle(pipe.send))
            except Exception as error:
                if not isinstance(error, IntervalcertError):  # a fault of ours: say where
                    error.add_note(traceback.format_exc())
                answer = error
            pipe.send(answer)


def _arrived(sent: bytes) -> _Verifier[Any]:
    verifier: _Verifier[Any] = pickle.loads(sent)  # noqa: S301 - by the parent of this process
    return verifier


def _end_with_parent() -> None:
    """A parent that is killed cannot say good-bye."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


# -- in the caller ---------------------------------------------------------------------------------------------------


@dataclass(eq=False)
class _Item(Generic[_Found]):
    """A batch, how many of its inputs were verified, as far as is known, and what a worker answered, once it has."""

    batch: Batch
    on_rows: OnRows
    done: int = 0
    answer: _Found | Exception | None = None

    def progress(self, more: int) -> None:
        self.on_rows(more, self.batch.work_of(self.done, more))
        self.done += more

    def end(self, answer: _Found | Exception) -> None:
        if not isinstance(answer, Exception):
            self.progress(len(answer) - self.done)
        self.answer = answer


class _Workers(Generic[_Found]):
    """Processes, each with one item at a time. All of this runs in the thread of the caller."""

    def __init__(self) -> None:
        self._processes: list[SpawnProcess] = []
        self._idle: list[_Pipe] = []
        self._busy: dict[_Pipe, _Item[_Found]] = {}
        self._waiting: deque[_Item[_Found]] = deque()

    def start(self, verifier: _Verifier[_Found], count: int) -> None:
        """Raises: InputError if there cannot be so many processes."""
        shared = pickle.dumps(verifier)
        context = get_context("spawn")  # a fork of a process with threads (a progress bar is one) may hang
        try:
            if _HAS_MASKS:
                resource_tracker.ensure_running()  # else started with the first process, and masks are lifted
            for _ in range(count):
                with _signals_blocked():
                    ours, theirs = context.Pipe()
                    self._idle.append(ours)
                    with theirs:
                        process = context.Process(target=_serve, args=(theirs,), daemon=True)
                        process.start()
                    self._processes.append(process)
        except OSError as error:
            raise InputError(
                f"{count} processes cannot be started: {error.strerror or error}: say fewer jobs"
            ) from None
        for pipe in self._idle:
            with _at_work("starting (a script that uses jobs must be guarded by if __name__ == '__main__')"):
                pipe.send_bytes(shared)

    def submit(self, item: _Item[_Found]) -> _Item[_Found]:
        self._waiting.append(item)
        self._turn(0)
        return item

    def verdicts(self, item: _Item[_Found]) -> _Found:
        """Waits for them. Raises: what the worker raised; InputError if it is no more."""
        while item.answer is None:
            self._turn(None)
        if isinstance(item.answer, Exception):
            raise item.answer
        return item.answer

    def _turn(self, seconds: float | None) -> None:
        """Takes what is done, after waiting so long for something, and gives out what waits."""
        ready = connection.wait(self._busy, seconds)
        for pipe in [pipe for pipe in self._busy if pipe in ready]:
            item = self._busy[pipe]
            with _at_work(f"on the inputs from {item.batch.first} on"):
                answer = pipe.recv()
            if isinstance(answer, int):
                item.progress(answer)
                continue
            item.end(answer)
            del self._busy[pipe]
            self._idle.append(pipe)
        while self._idle and self._waiting:
            pipe, item = self._idle.pop(), self._waiting.popleft()
            with _at_work(f"on the inputs from {item.batch.first} on"):
                pipe.send(item.batch)
            self._busy[pipe] = item

    def kill(self) -> None:
        with _signals_blocked():
            for process in self._processes:
                process.kill()
            for process in self._processes:
                process.join()
            for pipe in (*self._idle, *self._busy):
                pipe.close()


@contextlib.contextmanager
def _at_work(where: str) -> Iterator[None]:
    try:
        yield
    except (EOFError, OSError):
        raise InputError(
            f"a process at work {where} was ended from outside, or ran out of memory: try again, with fewer jobs"
        ) from None


def verify_batches(
    verifier: _Verifier[_Found], batches: Iterator[Batch], jobs: int = 1, on_rows: OnRows = lambda *_: None
) -> Iterator[tuple[Batch, _Found]]:
    """Each batch with what is found of its inputs, in order, in so many processes. Only a few batches are held."""
    if jobs <= 1:
        for batch in batches:
            item: _Item[_Found] = _Item(batch, on_rows)
            found = verifier.verdicts(batch, _Throttle(item.progress))
            item.end(found)
            yield batch, found
        return
    workers: _Workers[_Found] = _Workers()
    with cleared_away(workers.kill):
        workers.start(verifier, jobs)
        held: deque[_Item[_Found]] = deque()
        for batch in batches:
            held.append(workers.submit(_Item(batch, on_rows)))
            if len(held) > 3 * jobs:
                yield held[0].batch, workers.verdicts(held.popleft())
        while held:
            yield held[0].batch, workers.verdicts(held.popleft())
