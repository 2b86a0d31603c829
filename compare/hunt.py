"""``python -m compare hunt --minutes N``: looks for a false answer, for as long as one likes.

A trial is one decided point that is compared with the exact answer. Three kinds of rounds take turns: `points` of small
networks over the reals, whose truth is a rational (`regions`), at all scales; `programs` in floats, which are run; and
`outputs`, many at once, against the definition in integers. The trials of the first two went through the whole pipeline
and are counted together. All that a round draws depends on its kind and its number, so ``--replay points:1234`` runs
that one again.

What was found is kept in ``hunt_state.json`` among the results; another run goes on from there. One false answer, now
or before, fails the run; and so does a control (`controls.HUNT_CONTROLS`), broken on purpose, that is not caught, and a
forged proof (`forged`) that is accepted.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from compare.controls import HUNT_CONTROLS
from compare.forged import FORGERIES
from compare.harness import Outcome, Setting, require_folder, table
from compare.hunt_outputs import outputs_round
from compare.hunt_points import Found, points_round
from compare.hunt_programs import programs_round
from intervalcert.errors import InputError, UsageError

__all__ = ["KINDS", "State", "caught", "hunted", "run"]


class Round(Protocol):
    def __call__(self, number: int, seconds: float = ...) -> Found: ...


KINDS: dict[str, tuple[Round, float]] = {
    "points": (points_round, 0.75),
    "programs": (programs_round, 0.15),
    "outputs": (outputs_round, 0.1),
}
"""What a round does, and its share of the time."""

PIPELINE, VECTORISED = ("points", "programs"), ("outputs",)
AIMS = {PIPELINE: 10**6, VECTORISED: 10**8}

_MINUTES, _SHORT_MINUTES = 10.0, 0.4
_SECONDS = 4.0
"""Of the processor, for a round of points; what is left of it then is left out."""

_SAVED_EVERY = 10.0
_KEPT = 25
"""Records of what is wrong about verdicts of one kind, brackets, and so on; all are counted."""

_VERSION = 1


@dataclass
class Record:
    """What one kind of rounds has come to. next: the number of the next one; seconds: of the processor."""

    next: int = 0
    seconds: float = 0.0
    open: int = 0
    faults: int = 0
    trials: dict[str, int] = field(default_factory=dict)

    @property
    def decided(self) -> int:
        return sum(self.trials.values())


@dataclass
class State:
    """All that was hunted so far. wrong: false answers, false brackets, errors in their place; counts: of each."""

    kinds: dict[str, Record] = field(default_factory=lambda: {name: Record() for name in KINDS})
    wrong: list[dict[str, Any]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    @staticmethod
    def read(path: Path) -> State:
        """Nothing yet, if there is no file. Raises: InputError for one that is no such state."""
        if not path.exists():
            return State()
        try:
            given = json.loads(path.read_text())
            if given.pop("version") != _VERSION:
                raise ValueError("another version")
            kinds = {name: Record(**given["kinds"].get(name, {})) for name in KINDS}
            return State(kinds, list(given["wrong"]), dict(given["counts"]))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise InputError(f"{path} is no state of a hunt ({error}): move it away, and a new one begins") from None

    def write(self, path: Path) -> None:
        """All of it, or nothing."""
        beside = path.with_suffix(".new")
        beside.write_text(json.dumps({"version": _VERSION, **asdict(self)}, indent=1) + "\n")
        os.replace(beside, path)

    def add(self, name: str, number: int, found: Found, seconds: float) -> None:
        record = self.kinds[name]
        record.next, record.seconds = number + 1, record.seconds + seconds
        record.open, record.faults = record.open + found.open, record.faults + found.faults
        record.trials = dict(Counter(record.trials) + found.trials)
        for each in found.wrong:
            key = f"{name}: {each.about}"
            self.counts[key] = self.counts.get(key, 0) + 1
            if self.counts[key] <= _KEPT:
                self.wrong.append({"round": f"{name}:{number}", "what": each.what, **each.record})


def hunted(state: State, seconds: float, save: Callable[[State], None] = lambda _: None) -> None:
    """Rounds of all kinds, each for its share, from where the state is; for so long, and at least one of each."""
    end, saved = time.monotonic() + seconds, time.monotonic()
    due = list(KINDS)
    while due or time.monotonic() < end:
        name = due.pop(0) if due else min(KINDS, key=lambda each: state.kinds[each].seconds / KINDS[each][1])
        number, start = state.kinds[name].next, time.process_time()
        found = KINDS[name][0](number, _SECONDS)
        state.add(name, number, found, time.process_time() - start)
        if time.monotonic() > saved + _SAVED_EVERY:
            save(state)
            saved = time.monotonic()


def caught(name: str, rounds: int = 300) -> int | None:
    """The number of the first round in which a control gives a false answer; None if none does."""
    kind, broken, first = HUNT_CONTROLS[name]
    with broken():
        for number in range(first, first + rounds):
            if any(each.about == "verdict" for each in KINDS[kind][0](number, _SECONDS).wrong):
                return number
    return None


# -- the run -----------------------------------------------------------------------------------------------------------


def run(setting: Setting) -> Outcome:
    outcome = Outcome("hunt")
    if setting.replay is not None:
        return _replayed(setting.replay, outcome)
    path = require_folder(setting.out) / "hunt_state.json"
    state = State.read(path)
    minutes = setting.minutes if setting.minutes is not None else _SHORT_MINUTES if setting.short else _MINUTES
    try:
        hunted(state, 60 * minutes, lambda now: now.write(path))
    finally:
        state.write(path)
    outcome.violations += [f"{each['round']}: {each['what']}; {_rest(each)}" for each in state.wrong]
    broken = {name: caught(name) for name in HUNT_CONTROLS}
    outcome.violations += [f"the control '{name}' was not caught" for name, where in broken.items() if where is None]
    forged = {name: forgery.verdict() for name, forgery in FORGERIES.items()}
    outcome.violations += [f"forged, {name}: {what}" for name, what in forged.items() if what]
    _report(outcome, state, broken)
    return outcome


def _replayed(asked: str, outcome: Outcome) -> Outcome:
    """One round once more. Raises: UsageError for none."""
    name, _, number = asked.partition(":")
    if name not in KINDS or not number.isdecimal():
        raise UsageError(f"--replay {asked}: say {', '.join(KINDS)}, a colon, and the number of a round")
    found = KINDS[name][0](int(number))
    outcome.violations += [f"{asked}: {each.what}; {_rest(each.record)}" for each in found.wrong]
    outcome.data = {"replayed": asked, "trials": dict(found.trials), "open": found.open, "faults": found.faults}
    shown = table(f"The round {asked}", "decided", "trials")
    for way, trials in sorted(found.trials.items()):
        shown.add_row(way, str(trials))
    shown.add_row("open", str(found.open))
    outcome.tables.append(shown)
    return outcome


def _rest(record: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in record.items() if name not in ("round", "what"))


def _report(outcome: Outcome, state: State, broken: dict[str, int | None]) -> None:
    shown = table(
        "Trials so far: decided points that were compared with the exact answer",
        *("rounds of", "number", "trials", "open", "where floats end", "trials/s", "false", "other faults"),
    )
    for name, record in state.kinds.items():
        false, *others = (state.counts.get(f"{name}: {about}", 0) for about in ("verdict", "bracket", "error"))
        rate = record.decided / max(record.seconds, 1e-9)
        counts = (
            record.next,
            f"{record.decided:,}",
            f"{record.open:,}",
            record.faults,
            f"{rate:,.0f}",
            false,
            sum(others),
        )
        shown.add_row(name, *map(str, counts))
        outcome.data[name] = {**asdict(record), "decided": record.decided, "false": false}
    ways = table("By the way in which they were decided", "rounds of", "way", "trials")
    for name, record in state.kinds.items():
        for way, trials in sorted(record.trials.items()):
            ways.add_row(name, way, f"{trials:,}")
    for names, aim in AIMS.items():
        done = sum(state.kinds[name].decided for name in names)
        outcome.data[" and ".join(names)] = {"trials": done, "aim": aim}
    controls = table("Negative controls: broken on purpose, and caught", "control", "in round")
    for name, where in broken.items():
        controls.add_row(name, str(where))
    outcome.data |= {"controls": broken, "forged": list(FORGERIES), "wrong": state.counts}
    outcome.tables += [shown, ways, controls]
