"""The hunt for false answers: a minute of it finds none, and finds what is broken on purpose."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest

from compare import hunt
from compare.__main__ import main
from compare.controls import HUNT_CONTROLS
from compare.forged import FORGERIES, with_text
from compare.harness import Setting
from compare.hunt import KINDS, State, caught, hunted
from compare.hunt_outputs import outputs_round, plainly_certified
from compare.hunt_points import Found, Wrong, roots
from compare.hunt_programs import FORMATS, Program, programs_round
from intervalcert.errors import InputError
from intervalcert.proof import trees


@pytest.fixture(autouse=True)
def _as_users_run_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault in an attempt is counted."""
    monkeypatch.delenv("INTERVALCERT_RAISE_FAULTS")


def test_a_short_hunt_finds_nothing_false() -> None:
    state = State()
    hunted(state, 20)
    assert [each for each in state.wrong if not each["what"].startswith("a bracket")] == []
    assert all(record.next and record.decided for record in state.kinds.values())
    assert state.kinds["outputs"].decided > 100_000


@pytest.mark.parametrize("name", HUNT_CONTROLS)
def test_what_is_broken_is_caught(name: str) -> None:
    assert caught(name) is not None


def test_a_round_is_the_same_again() -> None:
    assert programs_round(3) == programs_round(3)
    assert outputs_round(2) == outputs_round(2)


@pytest.mark.parametrize("name", FORGERIES)
def test_what_is_forged_is_refused_and_would_be_believed(name: str) -> None:
    assert FORGERIES[name].verdict() == ""


def test_a_control_of_text_that_is_gone_says_so() -> None:
    with pytest.raises(ValueError, match="written anew"), with_text(trees, "narrower", "no such text", ""):
        pass


# -- as a command ------------------------------------------------------------------------------------------------------


@pytest.fixture
def stubbed(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[int]]:
    """Rounds that take no time; number 7 of the points gives a false answer. Without controls."""
    asked: dict[str, list[int]] = {name: [] for name in KINDS}

    def of(name: str) -> hunt.Round:
        def one(number: int, seconds: float = 0) -> Found:
            asked[name].append(number)
            found = Found(open=1)
            found.trials["certified by margins"] = 10
            if (name, number) == ("points", 7):
                found.wrong.append(Wrong("certified, but no", {"eps": "1/3"}))
            return found

        return one

    monkeypatch.setattr(hunt, "KINDS", {name: (of(name), share) for name, (_, share) in KINDS.items()})
    monkeypatch.setattr(hunt, "HUNT_CONTROLS", {})
    monkeypatch.setattr(hunt, "FORGERIES", {})
    return asked


def test_a_hunt_goes_on_where_it_ended(stubbed: dict[str, list[int]], tmp_path, capsys) -> None:
    command = ["hunt", "--minutes", "0", "--out", str(tmp_path)]
    for times in range(7):
        assert main(command) == 0
        kept = json.loads((tmp_path / "hunt_state.json").read_text())
        assert {kept["kinds"][name]["next"] for name in KINDS} == {times + 1}
    assert stubbed == {name: list(range(7)) for name in KINDS}
    assert kept["kinds"]["points"]["trials"] == {"certified by margins": 70}
    assert main(command) == 1
    assert main(command) == 1, "what was found before is not forgotten"
    shown = " ".join(capsys.readouterr().out.split())
    assert "VIOLATION: points:7: certified, but no; eps 1/3" in shown
    assert main([*command[:1], "--replay", "points:7", "--out", str(tmp_path)]) == 1
    assert main([*command[:1], "--replay", "points:6", "--out", str(tmp_path)]) == 0
    outcome = json.loads((tmp_path / "hunt.json").read_text())
    assert outcome["replayed"] == "points:6"
    assert main([*command[:1], "--replay", "nothing:6", "--out", str(tmp_path)]) == 3


def test_controls_that_are_not_caught_and_forgeries_that_are_accepted_fail_the_run(
    stubbed: dict[str, list[int]], tmp_path, monkeypatch
) -> None:
    monkeypatch.setattr(hunt, "HUNT_CONTROLS", HUNT_CONTROLS)
    monkeypatch.setattr(hunt, "caught", lambda name: None if name == "a radius that is not below" else 1)
    outcome = hunt.run(Setting(tmp_path, tmp_path, minutes=0))
    assert outcome.violations == ["the control 'a radius that is not below' was not caught"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 0}', '{"version": 1, "kinds": {"points": {"x": 1}}}'])
def test_a_state_that_is_none_is_refused(text: str, tmp_path) -> None:
    path = tmp_path / "hunt_state.json"
    path.write_text(text)
    with pytest.raises(InputError, match="no state of a hunt"):
        State.read(path)


@pytest.mark.parametrize(
    "words", [["cross", "--minutes", "1"], ["hunt", "--minutes", "-1"], ["hunt", "cross", "--replay", "points:1"]]
)
def test_options_that_mean_nothing_are_refused(words: list[str]) -> None:
    with pytest.raises(SystemExit):
        main(words)


# -- what it judges by -------------------------------------------------------------------------------------------------


def test_the_definition_in_integers() -> None:
    rng = np.random.default_rng(0)
    for bits in (3, 30, 61):
        margins = rng.integers(0, 2**bits, (3, 3))
        logits, right = rng.integers(-(2 ** (bits - 1)), 2 ** (bits - 1), (200, 3)), rng.integers(1, 2**bits, 200)
        left = int(rng.integers(1, 2**bits))
        found, winners = plainly_certified(logits, margins, left, right)
        for row, times, yes, j in zip(logits.tolist(), right.tolist(), found.tolist(), winners.tolist(), strict=True):
            assert j == row.index(max(row))
            others = [i for i in range(3) if i != j]
            assert yes == all((row[j] - row[i]) * left > times * int(margins[i, j]) for i in others)


def test_roots_are_on_both_sides() -> None:
    for square in (Fraction(2), Fraction(1, 3), Fraction(7, 10**90), Fraction(10**90, 7)):
        low, high = roots(square)
        assert low**2 < square < high**2
        assert high - low < low / 2**60
    assert roots(Fraction(4, 9)) == (Fraction(2, 3), Fraction(2, 3))


def test_numbers_of_the_formats() -> None:
    """float16: those that numpy has; bfloat16: those of the package ml_dtypes, at all sizes."""
    halves = np.arange(2**16, dtype=np.uint16).view(np.float16).astype(np.float64)
    halves = np.unique(halves[np.isfinite(halves)])
    some = halves[(halves >= -0.01) & (halves <= 0.013)]
    assert set(some) <= set(FORMATS["float16"].between(-0.01, 0.013).tolist())
    assert len(some) <= FORMATS["float16"].count(-0.01, 0.013) <= len(some) + 4
    ml_dtypes = pytest.importorskip("ml_dtypes")
    every = (np.arange(2**16, dtype=np.uint32) << 16).view(np.float32)
    every = every[np.isfinite(every)].astype(np.float64)
    form = FORMATS["bfloat16"]
    assert (form.rounded(every) == every).all()
    every = every[np.abs(every) < 2.0**127]
    for other in (every, every * (1 + 2.0**-9), every * (1 + 2.0**-9 + 2.0**-20), every * (1 - 2.0**-9)):
        assert (form.rounded(other) == other.astype(ml_dtypes.bfloat16).astype(np.float64)).all()
    rng = np.random.default_rng(1)
    a, b = (rng.choice(every[np.abs(every) < 1e18], 10_000) for _ in range(2))
    for mine, theirs in ((form.times(a, b), np.multiply), (form.plus(a, b), np.add)):
        expected = theirs(a.astype(ml_dtypes.bfloat16), b.astype(ml_dtypes.bfloat16)).astype(np.float64)
        normal = np.abs(expected) >= 2.0**-126  # below, their product is rounded twice
        assert (mine == expected)[normal].all()


def test_a_program_in_floats() -> None:
    w = np.array([[1.0, 2.0**-11, 2.0**-11]])
    program = Program(FORMATS["float16"], [w], [None], "relu")
    sequential, from_behind = hunt_orders()
    assert program.logits(np.ones((3, 1)), sequential)[0, 0] == 1
    assert program.logits(np.ones((3, 1)), from_behind)[0, 0] == 1 + 2.0**-10


def hunt_orders():
    from compare.hunt_programs import _orders

    return _orders(np.random.default_rng(0))[:2]
