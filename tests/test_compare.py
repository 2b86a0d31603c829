"""Short versions of the comparison run here: what `python -m compare` finds in full must not break unnoticed."""

import ast
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import intervalcert
from compare import attack, cross, gains, gradients, seed
from compare.__main__ import PARTS, main
from compare.controls import BOUND_CONTROLS, GRADIENT_CONTROLS, VERDICT_CONTROLS
from compare.corpus import MODELS, corpus, small_model
from compare.harness import Asked, Outcome, Setting, store
from compare.ordinary import clusters, logits, trained
from compare.rationals import decimal_lower, decimal_upper, sqrt_lower
from intervalcert import Network, SoundnessError, compute_bounds
from intervalcert.backends.registry import backend_names, get_backend
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
    for found in outcome.data["backends"].values():
        assert found["runs"] > 100
        assert 0.85 * found["answers"] < found["own"] <= found["answers"]
    assert outcome.data["backends"]["exact"]["own"] == outcome.data["backends"]["exact"]["answers"]


def test_every_number_system_is_compared():
    assert set(cross.BACKENDS) == set(backend_names()) - {"auto"}


def test_an_answer_of_another_number_system_is_told_from_its_own():
    asked = Asked(64, "gram", 3, "product")
    found = {name: asked.bounds(small_model(), name) for name in ("exact", "arb", "float64")}
    assert all(all(cross.answered(name, bounds)) for name, bounds in found.items())
    coarse = Asked(16, "gram", 3, "product").bounds(small_model(), "float64")  # what 16 bits cut off is more than 2^-20
    assert [layer.computed_by.partition(",")[0] for layer in coarse.layers] == ["arb"] * len(coarse.layers)
    assert cross.answered("float64", coarse) == [*[False] * len(coarse.layers), True]


def test_a_number_system_that_never_answers_itself_fails_the_run(short, monkeypatch):
    few = list(corpus(None, short=True))[:2]
    monkeypatch.setattr(cross, "corpus", lambda *_, **__: few)
    monkeypatch.setattr(cross, "answered", lambda name, found: [name != "arb"] * (len(found.layers) + 1))
    assert [violation for violation in cross.run(short).violations if violation.startswith("arb answered nothing")]


def test_an_error_in_the_place_of_bounds_fails_the_run(short, monkeypatch):
    honest = Asked.bounds

    def bounds(self, network, backend):
        if backend == "float64":
            raise SoundnessError("broken")
        return honest(self, network, backend)

    few = list(corpus(None, short=True))[:2]
    monkeypatch.setattr(cross, "corpus", lambda *_, **__: few)
    monkeypatch.setattr(Asked, "bounds", bounds)
    assert [violation for violation in cross.run(short).violations if violation.endswith("float64: broken")]


@pytest.mark.parametrize("way", cross.DECISIONS)
def test_a_wrong_verdict_fails_the_run(short, monkeypatch, way):
    """Equal logits are certified."""
    few = list(corpus(None, short=True))[:2]
    decide, given = VERDICT_CONTROLS["excluding the winner by value"], cross.DECISIONS[way][1]
    monkeypatch.setattr(cross, "corpus", lambda *_, **__: few)
    monkeypatch.setattr(cross, "DECISIONS", {way: (decide, given)})
    assert [violation for violation in cross.run(short).violations if f"certified from {way}" in violation]


def test_the_full_corpus_has_at_least_200_items():
    assert len(list(corpus(None, short=False))) >= 200


def test_an_uncaught_control_fails_the_run(short, monkeypatch):
    """A control that breaks nothing stands for a harness that sees nothing."""
    few = list(corpus(None, short=True))[:4]
    harmless = Asked(64, "gram", 5, "chain"), lambda network, asked: asked.bounds(network, "exact")
    monkeypatch.setattr(cross, "corpus", lambda *_, **__: few)
    monkeypatch.setattr(cross, "BOUND_CONTROLS", {"harmless": harmless})
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
    exact = Asked(64, "cholesky", "auto", "chain").bounds(small_model(), "exact")
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
        return compute_bounds(network, "exact", method="cholesky")

    monkeypatch.setattr(gradients, "GRADIENT_CONTROLS", {"harmless": harmless})
    assert gradients.run(short).violations == ["the control 'harmless' was not caught"]


def test_gradients_are_those_of_differences():
    """Between two points of one linear piece, with biases: the change over the distance, along the gradient itself."""
    network = Network.from_arrays([np.array([[1, 0], [0, -2]]), np.array([[3, 1], [1, 1]])], [[-1, 0], [0, 0]])
    points = np.array([[2, 1], [2, -1], [0, -1], [1, 5]])
    active, proved = gradients.active_neurons(network, points, 1)
    assert proved.tolist() == [True, True, True, False]  # the last is at the kink of the first neuron
    assert active[0].tolist()[:3] == [[True, False], [True, True], [False, True]]
    backend = get_backend("float64")
    weights = [backend.matrix(layer.weights) for layer in network.layers]
    for point, square in ((0, 4), (1, 4), (2, 0)):  # the lead of 1 over 0: -2·first
        (found,) = gradients.gradient_squares_lower(weights, [active[0][point]], [(0, 1)])
        assert 0 <= square - found < Fraction(1, 10**9)
    found = gradients.steepest(network, points, 1, backend)
    assert (found.points, found.kinks, found.inconclusive) == (3, 1, 0)
    assert 4 - found.inner[0][0] < Fraction(1, 1000)  # the first layer stretches by at most 2
    assert found.inner[0][0] <= 4


def test_gradients_of_other_activations_are_refused():
    network = Network.from_arrays([np.eye(2), np.eye(2)], between="tanh")
    with pytest.raises(ValueError, match="ReLU"):
        gradients.active_neurons(network, np.ones((1, 2), dtype=np.int64), 1)


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
    outputs = seed.read_outputs(MODELS / "segments_outputs.txt")
    assert set(outputs.epsilons) == {Fraction(1, 4)}
    for index in (0, 99):
        found = attack.exact_logits(small_model(), [Fraction(int(x), 16) for x in pixels[index]])
        assert found == outputs.rows[index]


def test_roots_and_decimals_of_judges_are_rounded_as_they_say():
    numbers = [
        Fraction(p, q) * Fraction(2) ** e
        for p in (1, 2, 3, 10**30 + 1)
        for q in (1, 7, 10**20)
        for e in (-900, -1, 0, 901)
    ]
    for x in (Fraction(0), *numbers):
        for bits in (1, 8, 64):
            root = sqrt_lower(x, bits)
            assert root**2 <= x <= (root * (1 + Fraction(4, 2**bits))) ** 2
        assert Fraction(decimal_lower(x, 9)) <= x <= Fraction(decimal_upper(x, 9))
        assert Fraction(decimal_upper(x, 9)) <= Fraction(decimal_lower(x, 9)) * (1 + Fraction(1, 10**8))
    assert sqrt_lower(Fraction(9, 4)) == Fraction(3, 2)
    assert (decimal_lower(Fraction(2, 3), 3), decimal_upper(Fraction(2, 3), 3)) == ("0.666", "0.667")
    assert decimal_lower(Fraction(1, 2**126), 9) == "1.17549435e-38"


def test_what_is_used_of_the_package_beside_its_public_names_is_said():
    public = {f"{home}.{name}" for home in ("intervalcert", "intervalcert.errors") for name in intervalcert.__all__}
    said = {}
    for path in sorted(MODELS.parent.rglob("*.py")):
        tree, used = ast.parse(path.read_text()), set()
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                used |= {f"{node.module}.{name.name}" for name in node.names}
            elif isinstance(node, ast.Import):
                used |= {name.name for name in node.names}
            elif isinstance(node, ast.Constant):  # a program that is run in a process of its own
                used |= set(re.findall(r"from (intervalcert\.[a-z.]+) import", str(node.value)))
        if {name for name in used if name.startswith("intervalcert.")} - public:
            said[path.name] = "of the package itself" in (ast.get_docstring(tree) or "")
    inside = ("attack.py", "bench.py", "controls.py", "gradients.py", "hostile.py", "liresnet.py", "ordinary.py")
    inside = (*inside, "unsound.py")
    assert said == dict.fromkeys(inside, True)


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
