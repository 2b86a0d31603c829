"""Short versions of the comparison run here: what `python -m compare` finds in full must not break unnoticed."""

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from compare import attack, cross, seed
from compare.__main__ import main
from compare.corpus import MODELS, corpus, small_model
from compare.harness import Setting
from intervalcert.batch import read_outputs
from intervalcert.layerwise import Plan

SHARED = Path(__file__).resolve().parents[1].parent / "shared"


@pytest.fixture
def short(tmp_path):
    return Setting(SHARED, tmp_path, short=True)


def test_backends_against_each_other_and_every_control_is_caught(short):
    outcome = cross.run(short)
    assert outcome.violations == []
    assert len(outcome.data["controls"]) == 7
    assert all(outcome.data["controls"].values())
    assert outcome.data["backends"]["arb"]["runs"] > 100


def test_the_full_corpus_has_at_least_200_items():
    assert len(list(corpus(None, short=False))) >= 200


def test_an_uncaught_control_fails_the_run(short, monkeypatch):
    """A control that breaks nothing stands for a harness that sees nothing."""
    few = list(corpus(None, short=True))[:4]
    monkeypatch.setattr(cross, "corpus", lambda *_, **__: few)
    monkeypatch.setattr(cross, "BOUND_CONTROLS", {"harmless": (64, Plan("gram", 5), cross.on_backend("exact"))})
    outcome = cross.run(short)
    assert [violation for violation in outcome.violations if "harmless" in violation]


def test_the_literal_seed_matches_the_published_digits(short):
    if short.paper_file("mnist_8x128.txt") is None:
        pytest.skip("the paper's files (../shared/paper) are not on this machine")
    outcome = seed.run(short)
    assert outcome.violations == []
    assert outcome.data["digits"]["divides"]


def test_one_digit_more_is_noticed(short, monkeypatch):
    """The published bound is matched in its last digit: a root rounded up once more does not divide it."""
    if short.paper_file("mnist_8x128.txt") is None:
        pytest.skip("the paper's files (../shared/paper) are not on this machine")
    honest = seed.heron_upper
    monkeypatch.setattr(seed, "heron_upper", lambda x: honest(x) + Fraction(1, seed.UNIT))
    assert seed.run(short).violations


def test_absent_files_are_skipped_and_not_passed(tmp_path):
    outcome = seed.run(Setting(tmp_path / "nothing", tmp_path, short=True))
    assert outcome.skipped
    assert outcome.data == {}


def test_no_certified_point_of_the_small_model_falls(short):
    outcome = attack.run(short)
    assert outcome.violations == []
    found = outcome.data["small model"]
    assert found["certified"] <= found["unbroken"] < found["points"]


def test_a_false_certificate_is_caught_by_the_attack(short, monkeypatch):
    """With margins of another scale everything is 'certified', and the attack says so."""
    honest = attack.compute_bounds

    def too_small(network):
        scaled = [layer.weights for layer in network.layers]
        shrunk = type(scaled[0])(scaled[0].numerators, scaled[0].denominator * 4)
        return honest(type(network).of([shrunk, *scaled[1:]]))

    monkeypatch.setattr(attack, "compute_bounds", too_small)
    assert attack.run(short).violations


def test_exact_logits_are_those_of_the_shipped_outputs():
    pixels = np.load(MODELS / "segments_inputs.npy")
    outputs = read_outputs(MODELS / "segments_outputs.txt")
    for index in (0, 99):
        found = attack.exact_logits(small_model(), [Fraction(int(x), 16) for x in pixels[index]])
        row = outputs.rows[index]
        assert found == [Fraction(n, row.denominator) for n in row.numerators]


def test_a_missing_folder_is_a_clear_error(tmp_path, capsys):
    assert main(["seed", "--shared", str(tmp_path / "gone"), "--out", str(tmp_path)]) == 3
    assert "gone" in capsys.readouterr().err


def test_a_file_in_the_place_of_the_results_is_a_clear_error(tmp_path, capsys):
    (tmp_path / "out").write_text("")
    assert main(["seed", "--shared", str(tmp_path), "--out", str(tmp_path / "out")]) == 3
    assert "out" in capsys.readouterr().err
