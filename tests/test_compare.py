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
from compare.controls import (
    BOUND_CONTROLS,
    CONVOLUTION_CONTROLS,
    GRADIENT_CONTROLS,
    GRAPH_CONTROLS,
    VERDICT_CONTROLS,
    _on_a_torus,
)
from compare.corpus import MODELS, bundled_cnn, corpus, small_model
from compare.exact_networks import ExactNetwork, exact_logits
from compare.graphs import KINDS, TIGHT
from compare.harness import Asked, Outcome, Setting, store
from compare.jacobians import GraphJacobian
from compare.ordinary import clusters, logits, trained
from compare.rationals import decimal_lower, decimal_upper, sqrt_lower
from compare.subjects import GRAPHS, random_graphs
from intervalcert import Network, SoundnessError, compute_bounds, evaluate
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
    controls = (BOUND_CONTROLS, CONVOLUTION_CONTROLS, VERDICT_CONTROLS)
    assert outcome.data["controls"].keys() == {name for each in controls for name in each}
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


def test_norms_by_honest_waves_are_no_violation():
    """What the controls of convolutions break is sound as it is, and is looked at in the same way."""
    asked, _ = CONVOLUTION_CONTROLS["convolution: a frequency left out"]
    graphs = [item.network for item in corpus(None, short=True) if item.small and not item.network.is_dense]
    assert len(graphs) > len(KINDS)
    for network in graphs:
        waves, lines = _on_a_torus(network, asked), asked.bounds(network, "exact")
        assert any(a.method != b.method for a, b in zip(waves.layers, lines.layers, strict=True))
        assert cross.untrue_norms(waves, lines) == []


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


def test_no_certified_point_falls(short):
    outcome = attack.run(short)
    assert outcome.violations == []
    assert len(outcome.data) == 1 + len(GRAPHS)
    for found in outcome.data.values():
        assert 0 < found["locally"] < found["certified"] <= found["unbroken"] < found["points"]


@pytest.fixture
def dense_only(monkeypatch):
    """Without the random graphs: what is broken is caught on the small model."""
    monkeypatch.setattr(gradients, "tight_graphs", list)
    for part in (attack, gradients):
        monkeypatch.setattr(part, "random_graphs", list)


@pytest.fixture
def graphs_only(monkeypatch):
    """Without the other subjects."""
    monkeypatch.setattr(gradients, "ordinary", lambda *_: ())
    for part in (attack, gradients):
        monkeypatch.setattr(part, "robust", lambda *_: ())


@pytest.mark.usefixtures("graphs_only")
def test_every_false_certificate_of_a_graph_is_caught_by_the_attack(short, monkeypatch):
    """All of its points are 'certified'; those that fall are named, and no others."""
    honest = attack.certify_inputs

    def everything(*arguments, **options):
        found = honest(*arguments, **options)
        return replace(found, codes=np.full_like(found.codes, found.codes[found.certified][0]))

    monkeypatch.setattr(attack, "certify_inputs", everything)
    outcome = attack.run(short)
    for name, found in outcome.data.items():
        named = [violation for violation in outcome.violations if violation.startswith(f"{name}: point ")]
        assert len(named) == found["points"] - found["unbroken"] > 0


@pytest.mark.usefixtures("dense_only")
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


@pytest.mark.usefixtures("dense_only")
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
    assert outcome.data["controls"].keys() == GRADIENT_CONTROLS.keys() | GRAPH_CONTROLS.keys()
    assert all(any(counts.values()) for counts in outcome.data["controls"].values())
    assert len(outcome.data["networks"]) == 2 + len(GRAPHS) + len(TIGHT)
    for found in outcome.data["networks"]:
        parts = found["steepest_part_of"]
        least = 0.05 if found["network"].startswith("random") else 0.3
        assert found["points"] + found["at_a_kink"] == 100
        assert least < parts["product"] <= parts["best"] <= 1
        assert parts["chain"] <= parts["chain, tuned"] <= parts["best"]
        assert ("sigma" in parts) == (":" not in found["network"])
        if found["network"].startswith("tight"):
            assert parts["best"] > 0.9999


def harmless(network):
    return compute_bounds(network, "exact", method="cholesky")


@pytest.mark.usefixtures("dense_only")
def test_a_gradient_control_that_nothing_catches_fails_the_run(short, monkeypatch):
    monkeypatch.setattr(gradients, "GRADIENT_CONTROLS", {"harmless": harmless})
    monkeypatch.setattr(gradients, "GRAPH_CONTROLS", {})
    assert gradients.run(short).violations == ["the control 'harmless' was not caught"]


@pytest.mark.usefixtures("graphs_only")
def test_a_gradient_control_of_graphs_that_nothing_catches_fails_the_run(short, monkeypatch):
    monkeypatch.setattr(gradients, "random_graphs", list)
    monkeypatch.setattr(gradients, "GRADIENT_CONTROLS", {})
    monkeypatch.setattr(gradients, "GRAPH_CONTROLS", {"harmless": harmless, "nothing to break": lambda _: None})
    names = ("harmless", "nothing to break")
    assert gradients.run(short).violations == [f"the control '{name}' was not caught" for name in names]


@pytest.mark.parametrize("network", [*(make(3) for make in KINDS.values()), *(make() for make in TIGHT.values())])
def test_gradients_of_graphs_are_those_of_differences(network):
    """Between two points of one linear piece, exactly: the change is the gradient times the step."""
    rng, exact, jacobian = np.random.default_rng(4), ExactNetwork(network), GraphJacobian(network, get_backend("exact"))
    compared = 0
    for _ in range(10):
        x, step = ([Fraction(int(n), k) for n in rng.integers(-31, 32, network.inputs)] for k in (17, 10**6))
        (before, one), (after, other) = (exact.followed(p) for p in (x, [a + b for a, b in zip(x, step, strict=True)]))
        if one != other or not all(piece.smooth for piece in one):
            continue
        compared += 1
        low, high = jacobian.gradients(one).float_bounds()
        assert (high - low <= 1e-12).all()
        changes = [b - a for a, b in zip(before.fractions(), after.fractions(), strict=True)]
        assert np.allclose(np.array(step, dtype=float) @ low, np.array(changes, dtype=float), rtol=1e-9, atol=1e-15)
    assert compared > 3


@pytest.mark.parametrize(
    ("network", "kinks"),
    [
        (TIGHT["a pixel in four windows"](), [[3] * 9, [0, 0, 0, 0, 1, 1, 0, 0, 0]]),
        (TIGHT["the same, in pairs"](), []),
        (TIGHT["x + relu(x)"](), [[0, 1, 1, 1]]),
        (Network.from_arrays([np.eye(4), np.eye(4)], between="group_sort:2:2"), [[1, 2, 1, 3], [1, 2, 3, 2]]),
    ],
)
def test_a_tie_or_a_kink_leaves_a_point_out(network, kinks):
    smooth = np.array([[5, 2, 3, -4, 6, -7, 8, 9, 1][: network.inputs]])
    points = np.array([*kinks, *smooth.tolist()])
    found = gradients.steepest_of_graph(network, points, 1, get_backend("exact"))
    assert (found.points, found.kinks, found.inconclusive) == (1, len(kinks), 0)


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
    small, ordinary, *graphs = outcome.data["networks"]
    assert [found["network"] for found in graphs] == ["random: plain CNN", "random: residual"]
    for found in (small, ordinary, *graphs):
        ways = found["ways"]
        assert ways["best"]["ratio"]["most"] <= 1
        assert ways["best, 10 rounds"]["ratio"]["median"] <= ways["best"]["ratio"]["median"]
        assert ways["product"]["certified"] <= ways["best"]["certified"] <= found["outputs"]
        assert found["seconds"].keys() == gains.BACKENDS.keys()
    assert ordinary["accuracy"] > 0.9
    assert ordinary["ways"]["chain"]["ratio"]["median"] < 0.8
    for found in graphs:
        local = found["local"]
        assert found["ways"]["best, 10 rounds"]["ratio"]["median"] < 0.7
        assert local["margins"] < local["locally"] < local["inputs"]


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
    assert {violation.partition(":")[0] for violation in violations} >= {"random"}
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
        found = exact_logits(small_model(), [Fraction(int(x), 16) for x in pixels[index]])
        assert found == outputs.rows[index]


@pytest.mark.parametrize("network", [*(make(3) for make in KINDS.values()), *(make() for make in TIGHT.values())])
def test_exact_values_are_those_of_the_network(network):
    """In the enclosures of another implementation, which are as narrow as floats can be."""
    points = np.random.default_rng(2).integers(-9, 10, (5, network.inputs))
    found = evaluate(network, points, scale=Fraction(1, 8), backend="exact")
    exact = ExactNetwork(network)
    for row, lower, upper in zip(points, found.lower[-1], found.upper[-1], strict=True):
        logits = exact.logits([Fraction(int(x), 8) for x in row])
        assert all(low <= y <= high for low, y, high in zip(lower, logits, upper, strict=True))
        assert np.allclose(lower, upper, rtol=1e-12, atol=1e-12)


def test_exact_values_of_the_bundled_cnn_are_those_that_are_shipped_with_it():
    images = SHARED / "data" / "mnist.npz"
    if not images.is_file():
        pytest.skip("the MNIST images (../shared/data) are not on this machine")
    with np.load(images, allow_pickle=False) as archive:
        pixels = archive["x_test"][:3].reshape(3, -1).tolist()
    shipped = np.load(Path(intervalcert.__file__).parent / "data" / "mnist_cnn_outputs.npy")
    exact = ExactNetwork(bundled_cnn())
    for row, expected in zip(pixels, shipped, strict=False):
        found = exact.logits([Fraction(x, 255) for x in row])
        assert [np.float32(float(y)) for y in found] == expected.tolist()


def test_values_of_other_activations_are_refused():
    network = Network.from_arrays([np.eye(2), np.eye(2)], between="tanh")
    with pytest.raises(ValueError, match="tanh"):
        exact_logits(network, [Fraction(0)] * 2)


def test_labels_of_random_graphs_are_what_wins_and_several_classes_do():
    for subject in random_graphs():
        assert (subject.logits.argmax(axis=1) == subject.labels).all()
        assert sorted(np.bincount(subject.labels))[-2] >= len(subject.labels) // 4


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
    inside = (
        "attack.py",
        "bench.py",
        "controls.py",
        "convolutions.py",
        "exact_networks.py",
        "gradients.py",
        "graphs.py",
    )
    inside = (*inside, "forged.py", "hunt_outputs.py", "hunt_points.py", "hunt_programs.py")
    inside = (*inside, "hostile.py", "jacobians.py", "liresnet.py", "ordinary.py", "unsound.py")
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
