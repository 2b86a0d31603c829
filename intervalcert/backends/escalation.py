"""Escalation: whatever one number system cannot settle, a finer one is asked, and at last exact rationals.

An undecided comparison, a result without bounds, and an enclosure too wide to be useful are treated alike: the same
generic code is run again on the next one. The last is `exact`, where sets are points: nothing is undecided there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from intervalcert.backends.protocol import Backend, Scalar, is_wider
from intervalcert.errors import InconclusiveError

__all__ = ["SHARP_BITS", "Escalated", "describe", "escalate", "is_sharp"]

T = TypeVar("T")

SHARP_BITS = 20
"""An enclosure is useful if its relative width is at most 2^-20: a millionth, far below what iterations gain."""


@dataclass(frozen=True)
class Escalated(Generic[T]):
    """A value, the number system that gave it, and why the ones before it did not."""

    value: T
    backend: Backend[Any]
    skipped_because: tuple[str, ...] = ()


def is_sharp(x: Scalar) -> bool:
    """Whether the set is a point, or a relative width of at most 2^-20 separates its ends."""
    return not is_wider(x, SHARP_BITS)


def escalate(
    ladder: Sequence[Backend[Any]],
    compute: Callable[[Backend[Any]], T],
    is_useful: Callable[[T], bool] = lambda _: True,
) -> Escalated[T]:
    """The value of `compute` on the first number system that answers usefully.

    Guarantees: the value comes from a run that decided everything it branched on. If even the last one is
    inconclusive its error is raised; if its value is not useful it is returned all the same (it is still sound).
    """
    skipped: list[str] = []
    for backend in ladder[:-1]:
        try:
            value = compute(backend)
        except InconclusiveError as error:
            skipped.append(f"{describe(backend)}: {error}")
            continue
        if is_useful(value):
            return Escalated(value, backend, tuple(skipped))
        skipped.append(f"{describe(backend)}: relative width above 2^-{SHARP_BITS}")
    return Escalated(compute(ladder[-1]), ladder[-1], tuple(skipped))


def describe(backend: Backend[Any]) -> str:
    """``arb, 128 bits`` or ``exact``."""
    bits = backend.working_bits
    return backend.name if bits is None else f"{backend.name}, {bits} bits"
