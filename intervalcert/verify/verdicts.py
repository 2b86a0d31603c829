"""The verdicts of many outputs, held as arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from intervalcert.proof.decision import LOCAL, MARGINS, Bracket, Status, Verdict
from intervalcert.proof.local import ShortChains
from intervalcert.proof.trees import DualProof
from intervalcert.verify.falsify import AnyCounterexample
from intervalcert.verify.filter import Bools, Floats, Integers

__all__ = ["EXACT", "Texts", "Verdicts", "is_one_for_all", "status_codes"]


Texts = npt.NDArray[np.str_]
Codes = npt.NDArray[np.int8]
"""Of each verdict, the place of its status in `Status`."""

_STATUSES = tuple(Status)
_CODES = {status: code for code, status in enumerate(_STATUSES)}
_WORDS = np.array([status.value for status in _STATUSES])

_COLUMNS = ("indices", "argmax", "codes", "radius", "method", "exactly", "decided_by", "fault")
"""Arrays with one entry per verdict."""

_BY_INDEX = ("counterexamples", "spans", "proofs", "brackets")
"""Of some of them."""


EXACT = "exact"
"""The number system that the filter leaves to decide."""


def is_one_for_all(texts: Texts) -> bool:
    """Whether this is one text, repeated."""
    return len(texts) > 0 and not any(texts.strides)


def status_codes(certified: Bools, falsified: Bools | None = None) -> Codes:
    """Of outputs that are certified, or falsified, or of which nothing is known."""
    found = np.where(certified, np.int8(_CODES[Status.CERTIFIED]), np.int8(_CODES[Status.UNKNOWN]))
    return found if falsified is None else np.where(falsified, np.int8(_CODES[Status.FALSIFIED]), found)


@dataclass(frozen=True, eq=False)
class Verdicts(Sequence[Verdict]):
    """The verdicts of many outputs: a sequence of `Verdict`, held as arrays that cannot be written to.

    All of them are about the same network: semantics, eps_space as in `Verdict`.
    method, fault: one text for each, or a single one for all of them.
    decided_by: the number system that gave each answer; or a single one for all that are not decided `exactly`.
    input_range: of all the inputs, after scaling, rounded outward; None where logits were given.
    counterexamples: by index, of those that are falsified. spans: by index, between what the entries of the input are
    that falsifies. proofs: by index, of those that duals certify. brackets: by index, what is known of those that
    nothing decides.
    """

    indices: npt.NDArray[np.int64]
    argmax: Integers
    codes: Codes
    radius: Floats
    exactly: Bools
    semantics: str
    eps_space: str
    method: Texts = field(default_factory=lambda: np.array(MARGINS))
    decided_by: Texts = field(default_factory=lambda: np.array("float64"))
    fault: Texts = field(default_factory=lambda: np.array(""))
    input_range: tuple[float, float] | None = None
    counterexamples: Mapping[int, AnyCounterexample] = field(default_factory=dict, repr=False)
    spans: Mapping[int, tuple[Fraction, Fraction]] = field(default_factory=dict, repr=False)
    proofs: Mapping[int, DualProof | ShortChains] = field(default_factory=dict, repr=False)
    brackets: Mapping[int, Bracket] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        for name in ("method", "decided_by", "fault"):
            texts = getattr(self, name)
            object.__setattr__(self, name, texts if texts.ndim else np.broadcast_to(texts, len(self.indices)))
        self._protect()

    def __getstate__(self) -> dict[str, Any]:
        """Without what follows from the rest; and a text that stands for many does not stay one."""
        derived = {"certified", "falsified", "locally", "proved_by"}
        kept = {name: value for name, value in self.__dict__.items() if name not in derived}
        return kept | {"decided_by": self._each_decided_by()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Arrays that arrive from another process could be written to."""
        self.__dict__.update(state)
        self._protect()

    def _protect(self) -> None:
        for name in _COLUMNS:
            getattr(self, name).setflags(write=False)

    @cached_property
    def certified(self) -> Bools:
        found: Bools = self.codes == _CODES[Status.CERTIFIED]
        found.setflags(write=False)
        return found

    @cached_property
    def falsified(self) -> Bools:
        found: Bools = self.codes == _CODES[Status.FALSIFIED]
        found.setflags(write=False)
        return found

    @cached_property
    def proved_by(self) -> Texts:
        """The number system that proved each; empty where nothing is proved."""
        found: Texts = np.where(self.codes == _CODES[Status.UNKNOWN], "", self._each_decided_by())
        found.setflags(write=False)
        return found

    def _each_decided_by(self) -> Texts:
        one = is_one_for_all(self.decided_by)
        return np.where(self.exactly, EXACT, self.decided_by) if one else self.decided_by

    @cached_property
    def locally(self) -> Bools:
        one = is_one_for_all(self.method)
        found: Bools = np.broadcast_to(self.method[0] == LOCAL, len(self)) if one else self.method == LOCAL
        found.setflags(write=False)
        return found

    @property
    def found_by(self) -> Texts:
        """The method by which each was decided; empty where nothing is known."""
        return np.where(self.codes == _CODES[Status.UNKNOWN], "", self.method)

    @property
    def lead_lower(self) -> Floats:
        """Of those that are open, where that is known (else nan): the least lead is at least this (`Bracket`)."""
        found: Floats = self._of_brackets("lower", np.nan)
        return found

    @property
    def lead_upper(self) -> Floats:
        """And at most this."""
        found: Floats = self._of_brackets("upper", np.nan)
        return found

    @property
    def ended(self) -> Texts:
        """By which limit the search for each of them ended, if by one."""
        found: Texts = self._of_brackets("ended", "")
        return found

    def _of_brackets(self, name: str, none: float | str) -> Any:
        found = [self.brackets.get(index) for index in self.indices.tolist()]
        return np.array([none if each is None else getattr(each, name) for each in found])

    @property
    def status(self) -> Texts:
        """The status of each, as a word."""
        return _WORDS[self.codes]

    @staticmethod
    def of(verdicts: Sequence[Verdict]) -> Verdicts:
        """Requires: some, all about the same network."""
        if isinstance(verdicts, Verdicts):
            return verdicts
        return Verdicts(
            np.array([v.index for v in verdicts], dtype=np.int64),
            np.array([v.argmax for v in verdicts], dtype=np.intp),
            np.array([_CODES[v.status] for v in verdicts], dtype=np.int8),
            np.array([v.radius for v in verdicts], dtype=np.float64),
            np.array([v.exactly for v in verdicts], dtype=bool),
            *_common_subject(verdicts),
            np.array([v.method for v in verdicts], dtype=np.str_),
            np.array([v.proved_by for v in verdicts], dtype=np.str_),
            np.array([v.fault for v in verdicts], dtype=np.str_),
            counterexamples={v.index: v.counterexample for v in verdicts if v.counterexample is not None},
            brackets={v.index: v.bracket for v in verdicts if v.bracket is not None},
        )

    @staticmethod
    def joined(parts: Sequence[Verdicts], input_range: tuple[float, float] | None = None) -> Verdicts:
        """One after the other. Requires: some, all about the same network."""
        semantics, eps_space = _common_subject(parts)
        fields: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS}
        fields["decided_by"] = np.concatenate([part._each_decided_by() for part in parts])
        for name in _BY_INDEX:
            fields[name] = {index: found for part in parts for index, found in getattr(part, name).items()}
        return Verdicts(semantics=semantics, eps_space=eps_space, input_range=input_range, **fields)

    def __len__(self) -> int:
        return len(self.indices)

    @overload
    def __getitem__(self, place: int) -> Verdict: ...
    @overload
    def __getitem__(self, place: slice) -> Verdicts: ...
    def __getitem__(self, place: int | slice) -> Verdict | Verdicts:
        if isinstance(place, slice):
            part: dict[str, Any] = {name: getattr(self, name)[place] for name in _COLUMNS}
            some = set(part["indices"].tolist())
            for name in _BY_INDEX:
                part[name] = {index: found for index, found in getattr(self, name).items() if index in some}
            return replace(self, **part)
        return self._verdict(*(getattr(self, name)[place].item() for name in _COLUMNS))

    def __iter__(self) -> Iterator[Verdict]:
        columns = (getattr(self, name).tolist() for name in _COLUMNS)
        return (self._verdict(*found) for found in zip(*columns, strict=True))

    def _verdict(
        self, index: int, argmax: int, code: int, radius: float, method: str, exactly: bool, by: str, fault: str
    ) -> Verdict:
        status = _STATUSES[code]
        if status is Status.UNKNOWN:
            by = ""
        elif exactly and is_one_for_all(self.decided_by):
            by = EXACT
        return Verdict(
            index,
            argmax,
            status,
            radius,
            self.semantics,
            self.eps_space,
            method,
            exactly,
            proved_by=by,
            fault=fault,
            counterexample=self.counterexamples.get(index),
            bracket=self.brackets.get(index),
        )

    def __eq__(self, other: object) -> bool:
        """The same verdicts, in whatever sequence."""
        if not isinstance(other, Verdicts | tuple | list):
            return NotImplemented
        return len(self) == len(other) and all(mine == theirs for mine, theirs in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self)} verdicts, {int(self.certified.sum())} certified, {self.semantics} semantics>"


def _common_subject(some: Sequence[Verdict] | Sequence[Verdicts]) -> tuple[str, str]:
    """Semantics and eps space of all of them. Raises: ValueError if there is not one."""
    found = {(each.semantics, each.eps_space) for each in some}
    if len(found) != 1:
        raise ValueError(f"verdicts about one network are expected, not about {len(found)}")
    return found.pop()
