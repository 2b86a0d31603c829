"""The robust radius of an input: the least distance at which another class is at least as high as the winner.

It is bracketed by two floats. Within the lower end it is proved that the winner leads (the radius is larger); at the
upper end a counterexample was checked (the radius is no larger): the distance of that, rounded up. Who is certified at
some eps is so at each smaller one, and who is falsified at each larger one. An answer that contradicts this ends the
run.

Attacks look for the upper end, ever nearer, until they find nothing at a little less. Then the lower end is tried where
the bracket would be narrow enough; where nothing is decided there, half way between that and what is certified, a few
times.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from intervalcert.backends.protocol import Floats, Indices
from intervalcert.errors import SoundnessError, UsageError
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.rounding import float_at_least
from intervalcert.numbers.text import shortest_exact
from intervalcert.proof.decision import Status, Verdict
from intervalcert.verify.complete import CompleteVerdict
from intervalcert.verify.falsify import AnyCounterexample, distance_upper
from intervalcert.verify.filter import Bools
from intervalcert.verify.jobs import Batch, Job
from intervalcert.verify.points import PointVerifier
from intervalcert.verify.verdicts import Texts

__all__ = ["DEFAULT_WIDTH", "Radii", "RadiusStatus", "RadiusVerifier", "check_bracket_width"]

DEFAULT_WIDTH = Fraction(1, 100)
"""Of a bracket, as a part of its upper end."""

_FINE = Fraction(1, 8)
"""Of that width: so near to each other are an upper end and an eps at which an attack finds nothing."""

_QUICK, _STRONG, _LOCAL, _TRIALS = 16, 8, 64, 24
"""Steps at most: of a quick attack, of a strong one, of local refinement, of all that decides an input."""

_LESS = (0.1, 0.3)
"""By such parts of the upper end less a strong attack is tried, too: it then looks elsewhere."""

_OPEN, _HALVINGS = 3, 6
"""Trials of an input that may stay unknown, for each of them takes all that it may take; and trials after the first
of them, whatever they find.
"""

_GROWTHS, _OPEN_END = 6, 2
"""Trials where no upper end is known, each farther than the one before; and after the first that stays unknown."""

_NEAR = 4
"""Steps of a quick attack that are small."""

_FIRST = 2.0**-20
"""Where to begin if nothing is certified."""


class RadiusStatus(StrEnum):
    """How a search ended: with a bracket as narrow as wanted, or `open`: something between its ends is not decided.

    With a tie at the input itself, whose radius is 0; or unbounded: nothing can change the winner. With a lower end
    alone, because no other was asked for.
    """

    BRACKETED = "bracketed"
    OPEN = "open"
    TIE = "tie"
    UNBOUNDED = "unbounded"
    LOWER = "lower"


_COLUMNS = ("indices", "argmax", "lower", "upper", "status", "method", "proved_by", "ended", "fault")
"""Arrays with one entry for each input."""


@dataclass(frozen=True, eq=False, repr=False)
class Radii:
    """The robust radii of many inputs, between two floats each; arrays that cannot be written to.

    lower: certified at exactly this eps; 0 also where nothing is. upper: falsified at exactly this eps; inf where no
    counterexample is known. So lower <= radius <= upper, and lower < radius unless that is 0.
    status: how the search ended (`RadiusStatus`). ended: by which limit an open one did, if by one (`Bracket`).
    method, proved_by: of the lower end, empty if nothing is certified. fault: what went wrong in an attempt.
    semantics, eps_space: as in `Verdict`. input_range: as in `Verdicts`.
    counterexamples: by index, what falsifies at the upper end.
    right: whether the winner is the true class, where that is known.
    """

    indices: npt.NDArray[np.int64]
    argmax: Indices
    lower: Floats
    upper: Floats
    status: Texts
    method: Texts
    proved_by: Texts
    ended: Texts
    fault: Texts
    semantics: str
    eps_space: str
    input_range: tuple[float, float] | None = None
    counterexamples: Mapping[int, AnyCounterexample] = field(default_factory=dict)
    right: Bools | None = None

    def __post_init__(self) -> None:
        for name in _COLUMNS:
            getattr(self, name).setflags(write=False)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Arrays that arrive from another process could be written to."""
        self.__dict__.update(state)
        self.__post_init__()

    @staticmethod
    def joined(parts: Sequence[Radii], input_range: tuple[float, float] | None = None) -> Radii:
        """One after the other. Requires: some, all about the same network."""
        columns: dict[str, Any] = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS}
        some = {index: found for part in parts for index, found in part.counterexamples.items()}
        known = [part.right for part in parts if part.right is not None]
        return Radii(
            **columns,
            semantics=parts[0].semantics,
            eps_space=parts[0].eps_space,
            input_range=input_range,
            counterexamples=some,
            right=np.concatenate(known) if len(known) == len(parts) else None,
        )

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def relative_width(self) -> Floats:
        """(upper - lower)/upper, rounded up; 0 where both are the same, inf where no upper end is known."""
        known = np.isfinite(self.upper) & (self.upper > 0)
        upper = np.where(known, self.upper, 1.0)
        width = (upper - np.where(known, self.lower, 0.0)) / upper * (1 + 2.0**-50)
        return np.where(known, width, np.where(self.upper == self.lower, 0.0, np.inf))

    def __repr__(self) -> str:
        found = int((self.status == RadiusStatus.BRACKETED).sum())
        return f"<{len(self)} radii, {found} bracketed, {self.semantics} semantics>"


def check_bracket_width(width: Fraction) -> None:
    """Raises: UsageError unless it is a part of 1."""
    if not 0 < width < 1:
        raise UsageError(f"the width {shortest_exact(width)}: it is a part of the upper end, between 0 and 1")


class _Ends:
    """What is known of the radius of one input.

    certified: the largest eps that is proved, -1 if not even 0 is. falsified: the least one that is refuted.
    Raises: SoundnessError, where something is added, if that contradicts what was known.
    """

    def __init__(self, index: int, x: RationalMatrix, semantics: str) -> None:
        self.index, self.x, self._semantics = index, x, semantics
        self.certified, self.falsified = -1.0, math.inf
        self.argmax, self._winner = 0, -1
        self.method = self.proved_by = self.ended = self.fault = ""
        self.counterexample: AnyCounterexample | None = None

    def learn(self, verdict: Verdict | CompleteVerdict, eps: float) -> Status:
        """From a verdict at that eps. Returns: its status."""
        self.fault = verdict.fault or self.fault
        if verdict.status is Status.UNKNOWN:
            return verdict.status
        self._won_by(verdict.argmax if isinstance(verdict, Verdict) else verdict.winner)
        if verdict.status is Status.CERTIFIED:
            if eps > self.certified:
                self.certified, self.method, self.proved_by = eps, verdict.method, verdict.proved_by
        elif verdict.counterexample is not None:
            distance = distance_upper(verdict.counterexample, self.x)
            if distance < self.falsified:
                self.falsified, self.counterexample = distance, verdict.counterexample
        if self.certified >= self.falsified < math.inf:
            raise SoundnessError(
                f"input {self.index} is certified at {self.certified!r}, and falsified at {self.falsified!r}: "
                "trust no result of this run, and please report it"
            )
        return verdict.status

    def begin(self, verdict: Verdict) -> None:
        """With the verdict at eps = 0, whose radius is that of the margins."""
        self.argmax = verdict.argmax
        self.learn(verdict, verdict.radius)

    def _won_by(self, winner: int) -> None:
        """Over the reals an input has one winner. (A program may have another one at a number of its format nearby.)"""
        if self._semantics == "real":
            if self._winner not in (-1, winner):
                raise SoundnessError(f"input {self.index} is proved to be of class {self._winner}, and of {winner}")
            self._winner = self.argmax = winner

    @property
    def lower(self) -> float:
        return max(self.certified, 0.0)

    @property
    def is_settled(self) -> bool:
        """Whether there is nothing in between."""
        return self.falsified == 0 or self.certified == math.inf

    def is_narrow(self, width: Fraction) -> bool:
        if self.is_settled:
            return True
        upper = self.falsified
        return upper < math.inf and Fraction(upper) - Fraction(self.lower) <= width * Fraction(upper)

    def status(self, width: Fraction, *, has_upper: bool) -> RadiusStatus:
        if self.falsified == 0:
            return RadiusStatus.TIE
        if self.certified == math.inf:
            return RadiusStatus.UNBOUNDED
        if not has_upper:
            return RadiusStatus.LOWER
        return RadiusStatus.BRACKETED if self.is_narrow(width) else RadiusStatus.OPEN


class RadiusVerifier:
    """Brackets the radii of inputs of one network, by what a `PointVerifier` says at one eps after the other.

    The margins' radius alone if that is all that is asked of points; the largest that local refinement certifies; or
    both ends, if every point is to be decided. It can be sent to another process.
    """

    def __init__(self, points: PointVerifier, width: Fraction = DEFAULT_WIDTH) -> None:
        """width: what a bracket may be wide, as a part of its upper end. Raises: UsageError for one that is none."""
        check_bracket_width(width)
        self._points, self._width = points, width

    @property
    def job(self) -> Job:
        return self._points.job

    def verdicts(self, batch: Batch, on_input: Callable[[], None] = lambda: None) -> Radii:
        """The radius of each input of the batch, whatever its eps. on_input: called after each that is decided."""
        job, places = self.job, range(len(batch))
        known = [_Ends(batch.first + k, batch.column(k), job.semantics) for k in places]
        begun = self._points.verdicts(batch.part(places, [Fraction(0)] * len(batch)))
        for ends, verdict in zip(known, begun, strict=True):
            ends.begin(verdict)
        left = [k for k in places if not known[k].is_settled]
        if job.budgets is not None:
            self._attack(batch, known, left)
            for k in left:
                self._decide(known[k], batch.part([k], [Fraction(0)]))
                on_input()
        elif job.local_rounds is not None:
            self._refine(batch, known, left)
        return self._radii(batch.first, known)

    def _refine(self, batch: Batch, known: Sequence[_Ends], left: Sequence[int]) -> None:
        """Lower ends, by local refinement: until a little more is not certified."""
        failed = dict.fromkeys(left, math.inf)
        for _ in range(_LOCAL):
            trials: dict[int, float] = {}
            for k, high in failed.items():
                low = known[k].certified
                is_done = low < 0 or (high < math.inf and high - low <= self._width * high)
                eps = None if is_done else _between(low, high) if high < math.inf else _beyond(low, 2.0)
                if eps is not None:
                    trials[k] = eps
            if not trials:
                break
            found = self._points.verdicts(batch.part(list(trials), list(map(Fraction, trials.values()))))
            for (k, eps), verdict in zip(trials.items(), found, strict=True):
                if known[k].learn(verdict, eps) is not Status.CERTIFIED:
                    failed[k] = eps

    def _attack(self, batch: Batch, known: Sequence[_Ends], left: Sequence[int]) -> None:
        """Upper ends, by a quick attack on all inputs at once: ever farther until one falls, then ever nearer."""
        resists = {k: known[k].lower for k in left}
        for step in range(_QUICK):
            trials: dict[int, float] = {}
            for k, low in resists.items():
                high = known[k].falsified
                eps = high * (1 - self._fine) if high < math.inf else _beyond(low, 2.0 if step < _NEAR else 8.0)
                if eps is not None and low < eps:
                    trials[k] = eps
            if not trials:
                break
            found = self._points.attacked(batch.part(list(trials), list(map(Fraction, trials.values()))))
            for (k, eps), verdict in zip(trials.items(), found, strict=True):
                if self._learn(known[k], verdict, eps) is Status.UNKNOWN:
                    resists[k] = eps

    def _strongly(self, ends: _Ends, alone: Batch) -> None:
        """A nearer upper end, by a strong attack: at a little less, and at less, again and again while it falls."""
        for _ in range(_STRONG):
            falls = False
            for part in (self._fine, *_LESS):
                eps = ends.falsified * (1 - part)
                if not ends.lower < eps < math.inf:
                    break
                (verdict,) = self._points.attacked(alone.part([0], [Fraction(eps)]), strongly=True)
                falls = self._learn(ends, verdict, eps) is Status.FALSIFIED
                if falls:
                    break
            if not falls:
                break

    def _learn(self, ends: _Ends, verdict: Verdict | CompleteVerdict, eps: float) -> Status:
        """From a verdict at that eps; if it falsifies, from a nearer counterexample, too. Returns: its status."""
        status = ends.learn(verdict, eps)
        if status is Status.FALSIFIED and ends.counterexample is not None:
            ends.learn(self._points.nearer(ends.x, ends.counterexample), eps)
        return status

    @property
    def _fine(self) -> float:
        return float(self._width * _FINE)

    def _decide(self, ends: _Ends, alone: Batch) -> None:
        """Both ends of one input, until they are near enough, or too much is unknown."""
        attacked, unknown, still_open, later, growths = math.inf, math.inf, 0, 0, 0
        for _ in range(_TRIALS):
            if ends.falsified < attacked:
                self._strongly(ends, alone)
                attacked = ends.falsified
            if unknown >= ends.falsified:
                unknown = math.inf
            has_upper = ends.falsified < math.inf
            if not has_upper and unknown == math.inf:
                growths += 1
            eps = None if ends.is_narrow(self._width) else self._trial(ends, unknown, growths)
            is_too_much = still_open == _OPEN or later > (_HALVINGS if has_upper else _OPEN_END)
            if eps is None or is_too_much or growths > _GROWTHS:
                break
            (verdict,) = self._points.verdicts(alone.part([0], [Fraction(eps)]))
            if self._learn(ends, verdict, eps) is Status.UNKNOWN:
                unknown, still_open = eps, still_open + 1
                ends.ended = verdict.bracket.ended if verdict.bracket is not None else ""
            later += still_open > 0

    def _trial(self, ends: _Ends, unknown: float, growths: int) -> float | None:
        """What to try next. unknown: the least eps at which nothing could be decided; inf if there is none."""
        if unknown < math.inf:
            is_near = unknown - ends.lower <= self._fine * unknown
            return None if is_near else _between(ends.lower, unknown)
        if ends.falsified < math.inf:
            enough = (1 - self._width) * Fraction(ends.falsified)
            eps = float_at_least(enough.numerator, enough.denominator)
            return eps if ends.lower < eps < ends.falsified else None
        return _beyond(ends.lower, 2.0**growths)

    def _radii(self, first: int, known: Sequence[_Ends]) -> Radii:
        job = self.job
        width, has_upper = self._width, job.budgets is not None
        statuses = [ends.status(width, has_upper=has_upper) for ends in known]
        is_open = [status is RadiusStatus.OPEN for status in statuses]
        return Radii(
            np.arange(first, first + len(known)),
            np.array([ends.argmax for ends in known], dtype=np.intp),
            np.array([ends.lower for ends in known]),
            np.array([ends.falsified for ends in known]),
            np.array([status.value for status in statuses]),
            np.array([ends.method for ends in known]),
            np.array([ends.proved_by for ends in known]),
            np.array([ends.ended if each else "" for ends, each in zip(known, is_open, strict=True)]),
            np.array([ends.fault for ends in known]),
            job.semantics,
            job.network.eps_space,
            counterexamples={ends.index: ends.counterexample for ends in known if ends.counterexample is not None},
        )


def _between(low: float, high: float) -> float | None:
    """A float in between: half way, or where the magnitudes are half way. None if there is none."""
    found = low + (high - low) / 2
    if high > 4 * low:
        found = math.sqrt(low) * math.sqrt(high) if low > 0 else high / 8
    return found if low < found < high else None


def _beyond(low: float, factor: float) -> float | None:
    """So many times as far, if there is such a float."""
    found = low * factor if low > 0 else _FIRST
    return found if found < math.inf else None
