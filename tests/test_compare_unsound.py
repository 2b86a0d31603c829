"""The rules in use today are caught, and the digits that the source paper reports of one of them come out."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from compare.corpus import seed_networks
from compare.harness import Outcome, Setting, store
from compare.unsound import BOUNDS, GUARDED, NORMS, TIES, certified, exact_logits, run
from intervalcert import Network


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    folder = tmp_path_factory.mktemp("unsound")
    found = run(Setting(folder, folder, short=True))
    store(found, Setting(folder, folder, short=True))  # the data are JSON
    return found


def test_every_rule_is_caught_and_ours_hold(outcome: Outcome) -> None:
    assert outcome.violations == []
    assert outcome.skipped == []
    assert {claim["rule"] for claim in outcome.data["claims"]} == set(BOUNDS)
    assert {flip["rule"] for flip in outcome.data["flips"]} >= set(TIES)


def test_the_perturbations_written_flip_within_their_radius(outcome: Outcome) -> None:
    names = {f"seed: {name}": network for name, network in seed_networks().items()}
    checked = 0
    for flip in outcome.data["flips"]:
        x, y, before, after = (
            [Fraction(text) for text in flip[name]] for name in ("x", "perturbed", "logits", "logits_perturbed")
        )
        assert sum((a - b) ** 2 for a, b in zip(x, y, strict=True)) <= Fraction(flip["eps"]) ** 2
        assert [v.index(max(v)) for v in (before, after)] == flip["winners"]
        assert flip["winners"][0] != flip["winners"][1]
        if flip["network"] in names:
            linear = Network.of([layer.weights for layer in names[flip["network"]].layers], between="identity")
            assert [list(exact_logits(linear, np.array(point))) for point in (x, y)] == [before, after]
            checked += 1
    assert checked >= 4


def test_the_figures_of_the_paper() -> None:
    """float32, to the last digit: 9.434563e-6 for 1e-5, 1.8869127e-5 for 2e-5, and 0 for tiny weights."""
    small, signs = np.array([[1e-5]], dtype=np.float32), np.array([[1], [-1]], dtype=np.float32)
    tiny = np.finfo(np.float32).tiny
    assert str(NORMS[GUARDED](small)) == "9.434563e-06"
    assert str(BOUNDS[GUARDED]([small, signs])[0, 1]) == "1.8869127e-05"
    assert BOUNDS[GUARDED]([tiny * signs])[0, 1] == 0


def test_masking_ties_certifies_equal_logits_at_every_radius() -> None:
    margins = np.array([[0, 1.8], [1.8, 0]], dtype=np.float32)
    for eps in map(np.float32, (0, 0.3, 1.58, 1e30)):
        assert certified(np.zeros(2, dtype=np.float32), margins, eps, mask_ties=True)
        assert not certified(np.zeros(2, dtype=np.float32), margins, eps)


def test_exact_logits_are_those_of_the_network() -> None:
    network = Network.from_arrays([np.array([[1, -2], [3, 4]]), np.array([[1, 1], [1, -1]])])
    half = np.array([Fraction(1, 2), Fraction(1)])
    assert list(exact_logits(network, half)) == [Fraction(11, 2), Fraction(-11, 2)]
    with pytest.raises(ValueError, match="without biases"):
        exact_logits(Network.from_arrays([np.eye(2)], [np.ones(2)]), half)
