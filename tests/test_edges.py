"""Small networks a little within and beyond the distance of their nearest other winner: never wrong, seldom open."""

from __future__ import annotations

from collections import Counter

import pytest

from compare import edges
from compare.harness import Setting


def test_never_wrong_and_open_at_ties_alone(tmp_path) -> None:
    outcome = edges.run(Setting(tmp_path, tmp_path, short=True))
    assert outcome.violations == []
    found = outcome.data["all"]
    assert found["points"] > 400
    where = Counter(answer["where"] for answer in outcome.data["open_points"])
    assert where["tie"] <= outcome.data["tie"]["points"] > 0
    assert found["open"] == where["tie"]  # nothing else is open


def test_a_wrong_answer_fails_the_run(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = edges.answers(12)
    wrong = [edges.Answer(**{**vars(found[0]), "wrong": "certified, but it is not"})]
    monkeypatch.setattr(edges, "get_context", lambda _: _Serial(wrong))
    outcome = edges.run(Setting(tmp_path, tmp_path, short=True))
    assert len(outcome.violations) == outcome.data["all"]["points"] > 0


class _Serial:
    """In the place of processes."""

    def __init__(self, found: list[edges.Answer]) -> None:
        self._found = found

    def Pool(self, _: int) -> _Serial:  # noqa: N802
        return self

    def __enter__(self) -> _Serial:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def imap(self, _: object, seeds: list[int]) -> list[list[edges.Answer]]:
        return [self._found for _ in seeds]
