"""The verdicts of many outputs, held as arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from intervalcert.proof.decision import Verdict
from intervalcert.verify.filter import Bools, Floats, Integers

__all__ = ["Texts", "Verdicts"]


Texts = npt.NDArray[np.str_]


_COLUMNS = ("indices", "argmax", "certified", "radius", "exactly", "locally", "proved_by", "fault")
"""One entry per verdict, in the order of the fields of `Verdict`."""


@dataclass(frozen=True, eq=False)
class Verdicts(Sequence[Verdict]):
    """The verdicts of many outputs: a sequence of `Verdict`, held as arrays that cannot be written to.

    semantics: which network they are about: ``real``, or the format of a program. eps_space: where radii are measured.
    input_range: of all the inputs, after scaling, rounded outward; None where logits were given.
    """

    indices: npt.NDArray[np.int64]
    argmax: Integers
    certified: Bools
    radius: Floats
    exactly: Bools
    locally: Bools
    proved_by: Texts = field(default_factory=lambda: np.array(""))
    fault: Texts = field(default_factory=lambda: np.array(""))
    semantics: str = "real"
    eps_space: str = "input"
    input_range: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        for name in ("proved_by", "fault"):  # mostly nothing at all, in whatever number
            texts = getattr(self, name)
            object.__setattr__(self, name, texts if texts.ndim else np.broadcast_to(texts, len(self.indices)))
        for array in self._columns():
            array.setflags(write=False)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Arrays that arrive from another process could be written to."""
        self.__dict__.update(state)
        for array in self._columns():
            array.setflags(write=False)

    @staticmethod
    def of(verdicts: Sequence[Verdict]) -> Verdicts:
        if isinstance(verdicts, Verdicts):
            return verdicts
        return Verdicts(
            np.array([v.index for v in verdicts], dtype=np.int64),
            np.array([v.argmax for v in verdicts], dtype=np.intp),
            np.array([v.certified for v in verdicts], dtype=bool),
            np.array([v.radius for v in verdicts], dtype=np.float64),
            np.array([v.exactly for v in verdicts], dtype=bool),
            np.array([v.locally for v in verdicts], dtype=bool),
            np.array([v.proved_by for v in verdicts], dtype=np.str_),
            np.array([v.fault for v in verdicts], dtype=np.str_),
        )

    def _columns(self) -> tuple[npt.NDArray[Any], ...]:
        return tuple(getattr(self, name) for name in _COLUMNS)

    def __len__(self) -> int:
        return len(self.indices)

    @overload
    def __getitem__(self, place: int) -> Verdict: ...
    @overload
    def __getitem__(self, place: slice) -> Verdicts: ...
    def __getitem__(self, place: int | slice) -> Verdict | Verdicts:
        if isinstance(place, slice):
            return replace(self, **{name: getattr(self, name)[place] for name in _COLUMNS})
        return Verdict(*(array[place].item() for array in self._columns()))

    def __iter__(self) -> Iterator[Verdict]:
        return (Verdict(*found) for found in zip(*(array.tolist() for array in self._columns()), strict=True))

    def __eq__(self, other: object) -> bool:
        """The same verdicts, in whatever sequence."""
        if not isinstance(other, Verdicts | tuple | list):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self)} verdicts, {int(self.certified.sum())} certified, {self.semantics} semantics>"
