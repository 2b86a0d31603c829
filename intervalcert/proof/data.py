"""What every witness is: plain frozen data, floats and integers, that can be stored, sent, and checked by others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Witness", "arrays_of", "is_plain", "size_of"]


class Witness:
    """The base of frozen dataclasses of numbers, arrays and other witnesses.

    Invariants: arrays are of float64 or of indices, and nobody writes to them: what a check has seen stays so. Numbers
    are Python's; where a float is meant, they are floats, and mean the same to all who read them.
    """

    def __post_init__(self) -> None:
        for each in fields(self):  # type: ignore[arg-type]
            value = getattr(self, each.name)
            if isinstance(value, np.generic):
                value = value.item()
                object.__setattr__(self, each.name, value)
            if isinstance(value, np.ndarray) or type(value) is tuple:
                object.__setattr__(self, each.name, _kept(value))
            elif each.type == "float" and isinstance(value, int | Fraction):
                object.__setattr__(self, each.name, float(value))

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Arrays that arrive from another process could be written to."""
        self.__dict__.update(state)
        self.__post_init__()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {size_of(self)} bytes>"


def _kept(array: Any) -> Any:
    """A plain copy that nobody else has, unless it is one already; of a tuple, of all that is in it."""
    if type(array) is tuple:
        return tuple(map(_kept, array))
    if not isinstance(array, np.ndarray):
        return array
    kind = np.intp if array.dtype == np.intp else np.float64  # indices, or numbers
    if type(array) is np.ndarray and array.base is None and not array.flags.writeable and array.dtype == kind:
        return array
    kept = np.array(array, dtype=kind)
    kept.setflags(write=False)
    return kept


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
