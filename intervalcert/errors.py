"""Every exception that intervalcert raises on purpose.

The tree, with the exit code that the command line gives to each::

    IntervalcertError
    ├── UsageError          2   the call itself makes no sense (an unknown backend, 0 bits)
    ├── InputError          3   a file or an array is refused: what, where, what to do
    ├── SoundnessError      4   a self-check of the arithmetic failed: trust no result of this run
    └── InconclusiveError       the number system is too coarse for the question; never reaches a user,
        ├── UndecidedError      because `intervalcert.backends.escalation` catches it and asks a finer one
        └── UnboundedError

    InputWarning                what is taken, but looks like a mistake (a `UserWarning`; the command line says it)

An `InconclusiveError` is not an answer. It is raised where a computation would otherwise have to guess:
a comparison of two sets that overlap, or an operation whose result no bounded set encloses.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

__all__ = [
    "InconclusiveError",
    "InputError",
    "InputWarning",
    "IntervalcertError",
    "SoundnessError",
    "UnboundedError",
    "UndecidedError",
    "UsageError",
    "error_context",
    "shortened",
]


class IntervalcertError(Exception):
    """The root of the tree; its text is written for the person who reads it."""


class UsageError(IntervalcertError):
    """The call makes no sense, whatever the data."""


class InputError(IntervalcertError):
    """A model, an output, a bounds file or a number is refused."""


class InputWarning(UserWarning):
    """An input is taken as it is, although it looks like something else than it should be."""


class SoundnessError(IntervalcertError):
    """A lower bound above its upper bound, or a claim that the exact audit cannot confirm."""


class InconclusiveError(IntervalcertError):
    """The working precision does not suffice to answer."""


class UndecidedError(InconclusiveError):
    """An UNKNOWN truth value was used as a bool."""


class UnboundedError(InconclusiveError):
    """No bounded set encloses the result (a division by a set that contains zero, say)."""


@contextlib.contextmanager
def error_context(what: str) -> Iterator[None]:
    """What is refused within says what it is about."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{what}: {error}") from None


def shortened(text: str, most: int = 40) -> str:
    """For messages: at most so many characters, the last of them "…" if there were more."""
    return text if len(text) <= most else f"{text[: most - 1]}…"
