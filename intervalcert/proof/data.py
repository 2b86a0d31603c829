"""What every witness is: plain frozen data, floats and integers, that can be stored, sent, and checked by others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Witness", "arrays_of", "is_plain", "size_of"]


class Witness:
    """The base of frozen dataclasses of numbers, arrays and other witnesses.

    Invariants: arrays are of float64 or of indices, and nobody writes to them; numbers are Python's.
    """

    def __post_init__(self) -> None:
        for each in fields(self):  # type: ignore[arg-type]
            value = getattr(self, each.name)
            if isinstance(value, np.ndarray):
                kind = np.intp if value.dtype == np.intp else np.float64  # indices, or numbers
                seen = np.asarray(value, dtype=kind).view()  # the caller may go on with its own
                seen.setflags(write=False)
                object.__setattr__(self, each.name, seen)
            elif isinstance(value, np.generic):
                object.__setattr__(self, each.name, value.item())

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Arrays that arrive from another process could be written to."""
        self.__dict__.update(state)
        self.__post_init__()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {size_of(self)} bytes>"


def arrays_of(witness: Any) -> Iterator[npt.NDArray[Any]]:
    """All arrays in it."""
    if isinstance(witness, np.ndarray):
        yield witness
    elif isinstance(witness, tuple):
        for part in witness:
            yield from arrays_of(part)
    elif isinstance(witness, Witness):
        for each in fields(witness):  # type: ignore[arg-type]
            yield from arrays_of(getattr(witness, each.name))


def is_plain(witness: Any) -> bool:
    """Whether all of it is there, as numbers and arrays: nothing that is made when it is asked for."""
    if isinstance(witness, tuple):
        return all(map(is_plain, witness))
    if isinstance(witness, Witness):
        return all(is_plain(getattr(witness, each.name)) for each in fields(witness))  # type: ignore[arg-type]
    return witness is None or isinstance(witness, np.ndarray | int | float | str)


def size_of(witness: Any) -> int:
    """Bytes that the arrays in it take."""
    return sum(array.nbytes for array in arrays_of(witness))
