"""What every witness is: plain frozen data, floats and integers, that can be stored, sent, and checked by others."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

__all__ = ["Witness", "size_of"]


class Witness:
    """The base of frozen dataclasses of numbers, arrays and other witnesses. Nobody writes to the arrays."""

    def __post_init__(self) -> None:
        for each in fields(self):  # type: ignore[arg-type]
            value = getattr(self, each.name)
            if isinstance(value, np.ndarray):
                seen = value.view()  # the caller may go on with its own
                seen.setflags(write=False)
                object.__setattr__(self, each.name, seen)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Arrays that arrive from another process could be written to."""
        self.__dict__.update(state)
        self.__post_init__()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {size_of(self)} bytes>"


def size_of(witness: Any) -> int:
    """Bytes that the arrays in it take."""
    if isinstance(witness, np.ndarray):
        return witness.nbytes
    if isinstance(witness, tuple):
        return sum(map(size_of, witness))
    names = [each.name for each in fields(witness)] if isinstance(witness, Witness) else []  # type: ignore[arg-type]
    return sum(size_of(getattr(witness, name)) for name in names)
