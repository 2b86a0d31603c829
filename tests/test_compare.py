"""Short versions of the comparison run here: what `python -m compare` finds in full must not break unnoticed."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from compare import attack, cross, gains, gradients, seed
from compare.__main__ import PARTS, main
from compare.controls import BOUND_CONTROLS, GRADIENT_CONTROLS, VERDICT_CONTROLS
from compare.corpus import MODELS, corpus, small_model
from compare.harness import Asked, Outcome, Setting, store
from compare.ordinary import clusters, logits, trained
from intervalcert import Network, compute_bounds
from intervalcert.backends.registry import get_backend
from intervalcert.bounds.margin_bounds import MarginPlan, network_bounds
from intervalcert.bounds.norm_bounds import Plan
from intervalcert.execution.streaming import read_outputs
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.proof import local as local_proof
from intervalcert.proof.ellipsoids import Sector
from intervalcert.search import local as local_search

SHARED = Path(__file__).resolve().parents[1].parent / "shared"


@pytest.fixture
def short(tmp_path):
    return Setting(SHARED, tmp_path, short=True)


def test_backends_against_each_other_and_every_control_is_caught(short):
    outcome = cross.run(short)
    assert outcome.violations == []
    assert outcome.data["controls"].keys() == BOUND_CONTROLS.keys() | VERDICT_CONTROLS.keys()
    assert all(outcome.data["controls"].values())
    assert outcome.data["backends"]["arb"]["runs"] > 100


def test_the_full_corpus_has_at_least_200_items():
    assert len(list(corpus(None, short=False))) >= 200


def test_an_uncaught_control_fails_the_run(short, monkeypatch):
    """A control that breaks nothing stands for a harness that sees nothing."""
    few = list(corpus(None, short=True))[:4]
    asked = Asked(64, Plan("gram", 5), MarginPlan("chain"))
    monkeypatch.setattr(cross, "corpus", lambda *_, **__: few)
    monkeypatch.setattr(cross, "BOUND_CONTROLS", {"harmless": (asked, cross.on_backend("exact"))})
    outcome = cross.run(short)
    assert [violation for violation in outcome.violations if "harmless" in violation]


def test_a_chain_proved_from_a_spoiled_guess_fails_the_run(short, monkeypatch):
    """In the place of the honest hands that must give it up: the ones that believe it."""
    few = [item for item in corpus(None, short=True) if item.name.startswith("gaussian")][:2]
    monkeypatch.setattr(cross, "corpus", lambda *_, **__: few)
    monkeypatch.setattr(cross, "BOUND_CONTROLS", {})
    monkeypatch.setattr(cross, "SPOILED", {"a guess": BOUND_CONTROLS["chain: a spoiled S believed"]})
    outcome = cross.run(short)
    assert [violation for violation in outcome.violations if "proved from a guess" in violation]


def test_a_sigma_below_the_exact_one_is_a_violation():
    asked = Asked(64, Plan("cholesky"), MarginPlan("chain"))
    exact = cross.on_backend("exact")(small_model(), asked)
    assert cross.bound_violations(exact, exact) == []
    low = replace(
        exact, margins=replace(exact.margins, sigmas=tuple(x * Fraction(99, 100) for x in exact.margins.sigmas))
    )
    assert [wrong for wrong in cross.bound_violations(low, exact) if "sigma" in wrong]
    none = replace(exact, margins=replace(exact.margins, sigmas=()))
    assert cross.bound_violations(none, exact)
    assert cross.bound_violations(exact, none)


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
    honest = attack.certify_inputs

    def too_small(network, inputs, eps, **options):
        bounds = compute_bounds(network)
        matrix = tuple(tuple(x / 4 for x in row) for row in bounds.margins.matrix)
        shrunk = replace(bounds, margins=replace(bounds.margins, matrix=matrix))
        return honest(network, inputs, eps, bounds=shrunk, **options)

    monkeypatch.setattr(attack, "certify_inputs", too_small)
    assert attack.run(short).violations


def test_a_false_local_certificate_is_caught_by_the_attack(short, monkeypatch):
    """Sectors without a spread take the network for linear around each input; and nothing is given up before."""

    def thin(*arguments):
        found = honest(*arguments)
        return Sector(found.middle, np.zeros_like(found.spread))

    honest = local_search.sector_around
    monkeypatch.setattr(local_search, "sector_around", thin)
    monkeypatch.setattr(local_proof, "holds_sector", lambda *_: True)
    monkeypatch.setattr(local_search.LocalSearch, "_largest_ratio", lambda _: np.inf)
    assert attack.run(short).violations


# -- gradients --------------------------------------------------------------------------------------------------------


def test_no_gradient_exceeds_a_margin_and_every_control_is_caught(short):
    outcome = gradients.run(short)
    store(outcome, short)  # the data are JSON
    assert outcome.violations == []
    assert outcome.data["controls"].keys() == GRADIENT_CONTROLS.keys()
    assert all(any(counts.values()) for counts in outcome.data["controls"].values())
    for found in outcome.data["networks"]:
        parts = found["steepest_part_of"]
        assert found["points"] == 100
        assert 0.3 < parts["product"] <= parts["chain"] <= parts["chain, tuned"] <= 1
        assert parts["best"] == parts["chain, tuned"]


def test_a_gradient_control_that_nothing_catches_fails_the_run(short, monkeypatch):
    def harmless(network):
        return network_bounds(network, (get_backend("exact"),), [Plan("cholesky")] * len(network.layers))

    monkeypatch.setattr(gradients, "GRADIENT_CONTROLS", {"harmless": harmless})
    assert gradients.run(short).violations == ["the control 'harmless' was not caught"]


def test_gradients_are_those_of_differences():
    """Between two points of one linear piece, with biases: the change over the distance, along the gradient itself."""
    network = Network.from_arrays([np.array([[1, 0], [0, -2]]), np.array([[3, 1], [1, 1]])], [[-1, 0], [0, 0]])
    points = np.array([[2, 1], [2, -1], [0, -1], [1, 5]])
    active, proved = gradients.active_neurons(network, RationalMatrix(points.T.astype(object), 1))
    assert proved.tolist() == [True, True, True, False]  # the last is at the kink of the first neuron
    assert active[0].T.tolist()[:3] == [[True, False], [True, True], [False, True]]
    backend = get_backend("float64")
    weights = [backend.matrix(layer.weights) for layer in network.layers]
    for point, square in ((0, 4), (1, 4), (2, 0)):  # the lead of 1 over 0: -2·first
        (found,) = gradients.gradient_squares_lower(weights, [active[0][:, point]], [(0, 1)])
        assert 0 <= square - found < Fraction(1, 10**9)
    found = gradients.steepest(network, points, 1, backend)
    assert (found.points, found.kinks, found.inconclusive) == (3, 1, 0)
    assert 4 - found.inner[0][0] < Fraction(1, 1000)  # the first layer stretches by at most 2
    assert found.inner[0][0] <= 4


def test_gradients_of_other_activations_are_refused():
    network = Network.from_arrays([np.eye(2), np.eye(2)], between="tanh")
    with pytest.raises(ValueError, match="ReLU"):
        gradients.active_neurons(network, RationalMatrix.from_floats(np.ones((2, 1))))


# -- gains ------------------------------------------------------------------------------------------------------------


def test_best_is_never_looser_and_ordinary_networks_gain(short):
    outcome = gains.run(short)
    store(outcome, short)
    assert outcome.violations == []
    small, ordinary = outcome.data["networks"]
    for found in (small, ordinary):
        ways = found["ways"]
        assert ways["best"]["ratio"]["most"] <= 1
        assert ways["best, 10 rounds"]["ratio"]["median"] <= ways["best"]["ratio"]["median"]
        assert ways["product"]["certified"] <= ways["best"]["certified"] <= found["outputs"]
        assert found["seconds"].keys() == gains.BACKENDS.keys()
    assert ordinary["accuracy"] > 0.9
    assert ordinary["ways"]["chain"]["ratio"]["median"] < 0.8


def test_a_margin_looser_than_the_product_fails_the_run(short, monkeypatch):
    honest = gains.compute_bounds

    def loose(network, backend="arb", *, margins="best", tuning_rounds=0):
        found = honest(network, backend, margins=margins, tuning_rounds=tuning_rounds)
        if margins == "product" or tuning_rounds:
            return found
        matrix = tuple(tuple(x * 2 for x in row) for row in found.margins.matrix)
        return replace(found, margins=replace(found.margins, matrix=matrix))

    monkeypatch.setattr(gains, "compute_bounds", loose)
    monkeypatch.setattr(gains, "BACKENDS", {"float64": 1})
    violations = gains.run(short).violations
    assert violations
    assert all(", best: margin" in violation for violation in violations)


def test_an_ordinary_network_learns_and_has_biases():
    x, y = clusters(2_000, seed=0)
    network = trained((x / 64).astype(np.float32), y, (16,), epochs=25, seed=1)
    assert all(layer.bias is not None for layer in network.layers)
    assert (logits(network, x / 64).argmax(axis=1) == y).mean() > 0.8


# -- the rest ---------------------------------------------------------------------------------------------------------


def test_exact_logits_are_those_of_the_shipped_outputs():
    pixels = np.load(MODELS / "segments_inputs.npy")
    outputs = read_outputs(MODELS / "segments_outputs.txt")
    for index in (0, 99):
        found = attack.exact_logits(small_model(), [Fraction(int(x), 16) for x in pixels[index]])
        row = outputs.rows[index]
        assert found == [Fraction(n, row.denominator) for n in row.numerators]


@pytest.fixture
def stubbed(monkeypatch, tmp_path):
    """Runs the command with parts that only say their names; gives the exit code and the names."""

    def run(*words, violating=()):
        ran = []

        def part(name, _):
            ran.append(name)
            return Outcome(name, violations=["wrong"] if name in violating else [])

        monkeypatch.setattr("compare.__main__._run", part)
        return main([*words, "--out", str(tmp_path)]), ran

    return run


def test_several_parts_run_in_the_order_of_their_names(stubbed):
    assert stubbed("seed", "cross", "gradients") == (0, ["seed", "cross", "gradients"])
    assert stubbed("seed", "cross", "seed") == (0, ["seed", "cross"])
    assert stubbed("all") == (0, list(PARTS))


def test_a_violation_in_any_of_several_parts_fails_the_run(stubbed):
    assert stubbed("cross", "seed", "unsound", violating=["cross"]) == (1, ["cross", "seed", "unsound"])


@pytest.mark.parametrize("words", [(), ("cross", "all"), ("all", "all"), ("cross", "crass")])
def test_names_that_make_no_sense_are_refused_before_anything_runs(stubbed, words):
    with pytest.raises(SystemExit) as left:
        stubbed(*words)
    assert left.value.code == 2


def test_a_missing_folder_is_a_clear_error(tmp_path, capsys):
    assert main(["seed", "--shared", str(tmp_path / "gone"), "--out", str(tmp_path)]) == 3
    assert "gone" in capsys.readouterr().err


def test_a_file_in_the_place_of_the_results_is_a_clear_error(tmp_path, capsys):
    (tmp_path / "out").write_text("")
    assert main(["seed", "--shared", str(tmp_path), "--out", str(tmp_path / "out")]) == 3
    assert "out" in capsys.readouterr().err
