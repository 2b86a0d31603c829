"""The audit confirms what is true, names what is not, and does not compare the bounds of one model with another."""

import json
import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from bounds_files import set_margin

from intervalcert import InputError, Network, audit, compute_bounds, load_bounds, load_model, save_bounds
from intervalcert.bounds import audit as auditing
from intervalcert.bounds.costs import exact_seconds, tuning_seconds
from intervalcert.cli import commands
from intervalcert.cli.program import main
from intervalcert.io.models import save_model
from intervalcert.numbers.rounding import round_down
from intervalcert.numbers.text import decimal_lower, decimal_upper, format_exact
from intervalcert.search.factors import FloatGram

FIXTURES = Path(__file__).parent / "fixtures"
MODEL = "[[1.0,2.0],[3.0,4.1]],[[0.5,0.25,-1],[1,1.3,2]]"
TINY = Fraction(1, 2**60)


@pytest.fixture
def files(tmp_path, monkeypatch):
    """model.txt and the honest bounds.json of it, in the working folder."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.txt").write_text(MODEL)
    bounds = compute_bounds(load_model("model.txt"), "exact", 3)
    save_bounds(bounds, "bounds.json")
    return bounds


def audited(capsys, *argv):
    code = main(["audit", *argv])
    found = capsys.readouterr()
    assert "Traceback" not in found.err
    return code, found.out, found.err


# -- honest files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("activation", ["relu", "sigmoid"])
@pytest.mark.parametrize("iterations", [0, 5, "auto"])
@pytest.mark.parametrize("backend", ["arb", "exact", "mpmath"])
def test_honest_bounds_are_confirmed(tmp_path, backend, iterations, activation):
    """Through the file, as a user would: every claim, of every backend, with no tolerance."""
    path = tmp_path / "model.txt"
    path.write_text(MODEL)
    network = load_model(path, activation=activation)
    save_bounds(compute_bounds(network, backend, iterations), tmp_path / "bounds.json")
    report = audit(load_bounds(tmp_path / "bounds.json"), network)
    assert report.unconfirmed == ()
    assert report.confirmed
    names = [claim.what for claim in report.claims]
    assert names == [
        "layer 0, upper",
        "layer 0, lower",
        "layer 1, upper",
        "layer 1, lower",
        "layer 0, sigma",
        "margin 0,1",
        "margin 0,2",
        "margin 1,2",
    ]


@pytest.mark.parametrize("prec", [16, 33, 200])
def test_honest_bounds_of_any_precision_are_confirmed(prec):
    network = Network.from_arrays([np.random.default_rng(1).normal(size=(4, 3)), np.arange(8.0).reshape(2, 4)])
    assert audit(compute_bounds(network, "arb", 4, prec=prec), network).confirmed


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_honest_bounds_of_any_scale_are_confirmed(scale):
    network = Network.from_arrays([np.eye(2) * scale, np.array([[1.0, 2.0], [3.0, 4.0]]) * scale])
    assert audit(compute_bounds(network, "arb"), network).confirmed


def test_honest_bounds_of_zero_layers_are_confirmed():
    network = Network.from_arrays([np.zeros((2, 2)), np.eye(2)])
    assert audit(compute_bounds(network, "arb"), network).confirmed


def test_honest_bounds_of_another_machine_are_confirmed(monkeypatch):
    """Lower bounds rest on a vector guessed in floats, which another library guesses otherwise in its last bits."""
    network = Network.from_arrays([np.random.default_rng(2).normal(size=(5, 5)), np.eye(5)[:3]])
    bounds = compute_bounds(network, "arb", 8)
    direction = FloatGram.direction

    def elsewhere(self):
        found = direction(self)
        return found + (-1.0) ** np.arange(len(found))

    monkeypatch.setattr(FloatGram, "direction", elsewhere)
    assert audit(bounds, network).unconfirmed == ()
    assert audit(replace(bounds, witnesses=None), network).unconfirmed, "so the test can fail"


def test_so_they_are_at_a_coarse_precision(monkeypatch):
    """A norm that sits on the grid, missed by a hair: lower bounds are finer than the grid of 2^-16."""
    network = Network.from_arrays([np.diag([2.0, 1.0, 0.5]), np.eye(3)])
    bounds = compute_bounds(network, "exact", 4, prec=16)
    monkeypatch.setattr(FloatGram, "direction", lambda _: np.array([2.0**30, 1.0, 0.0]))
    assert audit(bounds, network).unconfirmed == ()


def test_without_witnesses_others_are_searched_for(files, capsys):
    """On the same machine they are the same: all is confirmed, and it is said how."""
    Path("bounds.json.witnesses.npz").unlink()
    report = audit(load_bounds("bounds.json"), load_model("model.txt"))
    assert report.confirmed
    assert re.search(r"there is no file \S+bounds\.json\.witnesses\.npz", report.recomputed)
    code, out, _ = audited(capsys, "bounds.json", "--model", "model.txt")
    assert code == 0
    assert "by others that were found here" in out


def test_with_witnesses_nothing_is_searched_for(files, monkeypatch):
    for name in ("search_norm", "found_chains"):
        monkeypatch.setattr(auditing, name, lambda *_: pytest.fail("it was searched for"))
    report = audit(load_bounds("bounds.json"), load_model("model.txt"))
    assert (report.confirmed, report.recomputed) == (True, "")


def test_the_command_says_that_all_is_confirmed(files, capsys):
    code, out, err = audited(capsys, "bounds.json", "--model", "model.txt")
    assert code == 0
    assert "8 of 8 claims confirmed" in out
    assert err == ""


# -- files that claim too much ---------------------------------------------------------------------------------------


def with_layer(bounds, index, **changes):
    layers = list(bounds.layers)
    layers[index] = replace(layers[index], **changes)
    return replace(bounds, layers=tuple(layers))


def with_margin(bounds, i, j, value):
    matrix = [list(row) for row in bounds.margins.matrix]
    matrix[i][j] = matrix[j][i] = value
    return replace(bounds, margins=replace(bounds.margins, matrix=tuple(map(tuple, matrix))))


def below(margin):
    """A dyadic a little below what the audit finds."""
    return round_down(margin * (1 - TINY), 100)


TAMPERED = {
    "upper of layer 0": (
        lambda b: with_layer(b, 0, lower=Fraction(0), upper=b.layers[0].upper * (1 - TINY)),
        "layer 0, upper",
    ),
    "upper of layer 1": (
        lambda b: with_layer(b, 1, lower=Fraction(0), upper=b.layers[1].upper * (1 - TINY)),
        "layer 1, upper",
    ),
    "lower of layer 1": (
        lambda b: with_layer(b, 1, lower=b.layers[1].upper * (1 - TINY)),
        "layer 1, lower",
    ),
    "margin 0,1": (lambda b: with_margin(b, 0, 1, below(b.margins.matrix[0][1])), "margin 0,1"),
    "margin 1,2": (lambda b: with_margin(b, 1, 2, below(b.margins.matrix[1][2])), "margin 1,2"),
    "margin zero": (lambda b: with_margin(b, 0, 2, Fraction(0)), "margin 0,2"),
}


@pytest.mark.parametrize("name", TAMPERED)
def test_a_claim_that_is_too_good_is_named(files, capsys, name):
    """By a part in 2^60, and it alone: the others stay confirmed."""
    tamper, what = TAMPERED[name]
    save_bounds(tamper(files), "tampered.json")
    code, out, err = audited(capsys, "tampered.json", "--model", "model.txt")
    assert code == 4
    assert "7 of 8 claims confirmed" in out
    assert what in out
    assert err.count("\n") == 1
    assert "tampered.json" in err
    assert what in err
    report = audit(load_bounds("tampered.json"), load_model("model.txt"))
    assert [claim.what for claim in report.unconfirmed] == [what]
    (claim,) = report.unconfirmed
    assert claim.claimed < claim.exact or "lower" in what


def test_all_false_claims_are_named(files, capsys):
    bounds = with_margin(with_layer(files, 0, upper=files.layers[0].lower), 0, 1, Fraction(1))
    save_bounds(bounds, "tampered.json")
    code, _, err = audited(capsys, "tampered.json", "--model", "model.txt")
    assert code == 4
    assert "layer 0, upper" in err
    assert "margin 0,1" in err
    assert "layer 1" not in err


def test_an_edited_file_is_named(files, capsys):
    """With a text editor rather than through the package: one digit of one margin, and its decimal."""
    data = json.loads(Path("bounds.json").read_text())
    value = files.margins.matrix[0][2] / 2
    set_margin(data, 0, 2, format_exact(value), decimal_upper(value))
    Path("edited.json").write_text(json.dumps(data))
    code, _, err = audited(capsys, "edited.json", "--model", "model.txt")
    assert code == 4
    assert "margin 0,2" in err


def test_looser_claims_are_confirmed(files, capsys):
    """A bound that is larger than it must be is still a bound."""
    bounds = with_layer(files, 0, upper=files.layers[0].upper * 2, lower=Fraction(0))
    save_bounds(with_margin(bounds, 0, 1, bounds.margins.matrix[0][1] * 2), "loose.json")
    assert audited(capsys, "loose.json", "--model", "model.txt")[0] == 0


def test_claimed_iterations_cannot_hide_a_false_bound(files):
    """Whatever number of steps the file claims, a bound below the true norm is not confirmed."""
    true = max(np.linalg.svd(np.array([[1.0, 3.0], [2.0, 4.1]]), compute_uv=False))
    for iterations in (0, 3, 40):
        below = Fraction(true) * (1 - Fraction(1, 10**9))
        claim = with_layer(files, 0, lower=Fraction(0), upper=below, iterations=iterations)
        report = audit(claim, load_model("model.txt"))
        assert "layer 0, upper" in [claim.what for claim in report.unconfirmed]


def test_a_lower_bound_above_its_upper_bound_does_not_load(files):
    data = json.loads(Path("bounds.json").read_text())
    above = files.layers[0].upper * 2
    data["layers"][0]["lower"] = {"exact": format_exact(above), "decimal": decimal_lower(above)}
    Path("edited.json").write_text(json.dumps(data))
    with pytest.raises(InputError, match="contradicts itself"):
        load_bounds("edited.json")


# -- what a file may ask for -----------------------------------------------------------------------------------------


def dear_bounds():
    """A file of a few kilobytes: forty steps with 4096 bits on two layers of 64 neurons take minutes."""
    rng = np.random.default_rng(1)
    network = Network.from_arrays([rng.standard_normal(shape).astype(np.float32) for shape in ((64, 64), (10, 64))])
    honest = compute_bounds(network, "float64")
    layers = tuple(replace(layer, method="gram", iterations=40) for layer in honest.layers)
    return network, replace(honest, layers=layers, method=replace(honest.method, prec=4096), witnesses=None)


def seconds(bounds, network):
    """What exact arithmetic is estimated to take with witnesses by the methods that the bounds claim."""
    return exact_seconds(network, auditing._searched(bounds, network), bounds.method.prec)


def test_bounds_that_would_take_hours_to_check_are_refused_at_once():
    network, bounds = dear_bounds()
    with pytest.raises(InputError, match=r"about \d+ minutes.*4096 bits.*40 iterations.*60 s.*--budget \d+"):
        audit(bounds, network)


def test_the_command_refuses_them_too(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    network, bounds = dear_bounds()
    save_model(network, "model.npz")
    same = load_model("model.npz")
    save_bounds(replace(bounds, sources=same.sources, network=same.content), "dear.json")
    assert Path("dear.json").stat().st_size < 8192
    assert "--budget" in refused(capsys, "dear.json", "--model", "model.npz")


def test_a_budget_is_kept_and_can_be_changed(files, capsys):
    """Of an honest file as of any other."""
    assert "--budget" in refused(capsys, "bounds.json", "--model", "model.txt", "--budget", "0")
    assert audited(capsys, "bounds.json", "--model", "model.txt", "--budget", "5")[0] == 0
    with pytest.raises(InputError, match="budget"):
        audit(files, load_model("model.txt"), budget=1e-9)
    with pytest.raises(InputError, match="budget"):
        audit(files, load_model("model.txt"), budget=float("nan"))
    network, bounds = dear_bounds()
    small = replace(bounds, layers=tuple(replace(layer, iterations=1) for layer in bounds.layers))
    assert seconds(small, network) < 60 < seconds(bounds, network)
    assert audit(small, network, budget=1e6).claims


def test_a_long_audit_is_announced(files, capsys, monkeypatch):
    monkeypatch.setattr(commands, "_LONG_AUDIT", 0.0)
    code, _, err = audited(capsys, "bounds.json", "--model", "model.txt")
    assert code == 0
    assert re.fullmatch(r"checking bounds\.json with exact rationals takes about \S+ s\n", err)


def test_a_large_model_needs_no_budget_for_its_default_bounds():
    """They take longer than a minute, but no longer than the model itself asks for."""
    rng = np.random.default_rng(2)
    network = Network.from_arrays([rng.standard_normal(shape).astype(np.float32) for shape in ((4, 9), (3, 4))])
    bounds = compute_bounds(network, "float64", method="cholesky")
    costs = {"exact_seconds": lambda *_: 1000.0, "usual_seconds": lambda _: 600.0}
    with pytest.MonkeyPatch.context() as patch:
        for name, cost in costs.items():
            patch.setattr(auditing, name, cost)
        assert audit(bounds, network).confirmed
        patch.setattr(auditing, "usual_seconds", lambda _: 400.0)
        with pytest.raises(InputError, match="budget"):
            audit(bounds, network)


def test_what_costs_more_is_estimated_to():
    """More bits, more steps, a chain, a second one, weights of more bits, a layer without a factor."""
    rng = np.random.default_rng(3)
    shapes = ((30, 20), (10, 30))
    network = Network.from_arrays([rng.standard_normal(shape).astype(np.float32) for shape in shapes])
    bounds = compute_bounds(network, "float64", 5, margins="product")
    least = seconds(bounds, network)
    layers = tuple(replace(layer, iterations=6) for layer in bounds.layers)
    dearer = [
        replace(bounds, method=replace(bounds.method, prec=128)),
        replace(bounds, layers=layers),
        replace(bounds, method=replace(bounds.method, margins="chain")),
    ]
    assert all(seconds(claim, network) > least for claim in dearer)
    tuned = replace(dearer[2], method=replace(dearer[2].method, tuning_rounds=5))
    assert seconds(tuned, network) > seconds(dearer[2], network)
    assert tuning_seconds(network, 6) > tuning_seconds(network, 5) > 0
    long = Network.from_arrays([rng.standard_normal(shape) * 2.0 ** rng.integers(-500, 0, shape) for shape in shapes])
    assert seconds(bounds, long) > least
    by_factor = replace(bounds, layers=tuple(replace(layer, method="cholesky") for layer in bounds.layers))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FloatGram, "factor", lambda *_: None)
        assert seconds(by_factor, network) > seconds(bounds, network)


# -- another model ---------------------------------------------------------------------------------------------------


def refused(capsys, *argv):
    code, out, err = audited(capsys, *argv)
    assert (code, out) == (3, "")
    assert err.count("\n") == 1
    return err


def test_other_numbers_are_another_model(files, capsys, tmp_path):
    (tmp_path / "other.txt").write_text(MODEL.replace("4.1", "4.2"))
    err = refused(capsys, "bounds.json", "--model", "other.txt")
    assert "another model" in err
    assert "other.txt" in err
    assert "model.txt" in err


@pytest.mark.parametrize("text", [MODEL, MODEL + "\n", MODEL.replace("0.5", "0.50")], ids=["name", "newline", "zero"])
def test_the_same_numbers_in_another_file_are_the_same_model(files, capsys, tmp_path, text):
    """The hash of the network decides, and bounds depend on nothing else."""
    (tmp_path / "other.txt").write_text(text)
    assert audited(capsys, "bounds.json", "--model", "other.txt")[0] == 0
    np.save(tmp_path / "x.npy", np.zeros((1, 2)))
    inputs = ("--inputs", "x.npy", "--eps", "0.1", "--jobs", "1")
    assert main(["certify", "bounds.json", "--model", "other.txt", *inputs]) == 0


def test_a_model_of_two_files_and_the_same_in_one(tmp_path, monkeypatch, capsys):
    """Its weights lie beside it; nobody is told that they are biases."""
    monkeypatch.chdir(tmp_path)
    two, one = FIXTURES / "mlp_dynamo_external.onnx", FIXTURES / "mlp_dynamo.onnx"
    for bounds, model, other in (("two.json", two, one), ("one.json", one, two)):
        assert main(["bounds", str(model), "-o", bounds]) == 0
        capsys.readouterr()
        assert audited(capsys, bounds, "--model", str(other))[0] == 0
        err = refused(capsys, bounds, "--model", str(FIXTURES / "zoo_elu_dynamo.onnx"))
        assert "another model" in err
        assert model.name in err
        assert "bias" not in err


def test_biases_belong_to_the_model(files, capsys, tmp_path):
    """They do not enter the bounds, but they are part of what the bounds are of."""
    (tmp_path / "biases.txt").write_text("[1,2],[3,4,5]")
    (tmp_path / "others.txt").write_text("[1,2],[3,4,6]")
    assert main(["bounds", "model.txt", "--biases", "biases.txt", "-o", "biased.json"]) == 0
    capsys.readouterr()
    assert audited(capsys, "biased.json", "--model", "model.txt", "--biases", "biases.txt")[0] == 0
    assert "--biases" in refused(capsys, "biased.json", "--model", "model.txt")
    assert "another model" in refused(capsys, "biased.json", "--model", "model.txt", "--biases", "others.txt")
    assert "biases.txt" in refused(capsys, "bounds.json", "--model", "model.txt", "--biases", "biases.txt")


def test_the_activation_must_be_the_same(files, capsys):
    err = refused(capsys, "bounds.json", "--model", "model.txt", "--activation", "sigmoid")
    assert "relu" in err
    assert "sigmoid" in err
    assert "--activation" in err


def test_the_shapes_must_be_the_same(files):
    """A file whose hash fits but whose layers do not has been edited."""
    bounds = with_layer(files, 0, shape=(2, 3))
    with pytest.raises(InputError, match="shapes"):
        audit(bounds, load_model("model.txt"))


def test_bounds_of_arrays_belong_to_those_arrays():
    network = Network.from_arrays([np.eye(2)])
    with pytest.raises(InputError, match="another model"):
        audit(compute_bounds(network, "exact", 1), Network.from_arrays([np.eye(2) * 2]))
