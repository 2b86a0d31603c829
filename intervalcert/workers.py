"""Blocks of inputs, judged in several processes: in order, a few at a time, and gone when the caller is."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from multiprocessing import connection, get_context, parent_process
from typing import Any

from intervalcert.bulk import Verdicts
from intervalcert.errors import InputError
from intervalcert.inputs import Block, InputCertifier, Task

__all__ = ["judge_all"]

_certifier: InputCertifier | None = None


def _start(task: Task) -> None:
    """In a worker: what all blocks share. The parent alone answers an interrupt."""
    global _certifier
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    # A copy of a number system that tests its process when it is made tests this one.
    rungs: tuple[Any, ...] = task.rungs
    _certifier = InputCertifier(replace(task, rungs=tuple(replace(rung) for rung in rungs)))


def _end_with_parent() -> None:
    """A parent that is killed cannot say good-bye."""
    parent = parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _judge(block: Block) -> Verdicts:
    if _certifier is None:
        raise RuntimeError("a worker without a task")
    return _certifier.verdicts(block)


def _done(block: Block, future: Future[Verdicts]) -> tuple[Block, Verdicts]:
    try:
        return block, future.result()
    except BrokenProcessPool:
        raise InputError(
            f"a process that worked on the inputs from {block.first} on was ended from outside, or ran out of memory: "
            "try again, with fewer jobs"
        ) from None


@contextlib.contextmanager
def _deaf() -> Iterator[None]:
    """No interrupt meanwhile. (Only the main thread may say so.)"""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def judge_all(task: Task, blocks: Iterator[Block], jobs: int = 1) -> Iterator[tuple[Block, Verdicts]]:
    """Each block with its verdicts, in order, in so many processes. Only a few blocks are held at a time."""
    if jobs <= 1:
        certifier = InputCertifier(task)
        yield from ((block, certifier.verdicts(block)) for block in blocks)
        return
    InputCertifier(task)  # what is wrong with the task is said here, not by a worker
    # A fresh interpreter: a fork of a process with threads (a progress bar is one) may hang.
    pool = ProcessPoolExecutor(jobs, get_context("spawn"), _start, (task,))
    try:
        waiting: deque[tuple[Block, Future[Verdicts]]] = deque()
        for block in blocks:
            with _deaf():  # a process that is started now is born so
                waiting.append((block, pool.submit(_judge, block)))
            if len(waiting) > 3 * jobs:
                yield _done(*waiting.popleft())
        while waiting:
            yield _done(*waiting.popleft())
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
