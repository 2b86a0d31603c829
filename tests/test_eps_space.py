"""Where eps is measured: normalised inputs, their two spaces, and bounds that know which network they are of."""

import csv
import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from intervalcert import (
    InputError,
    Network,
    UsageError,
    certify,
    certify_inputs,
    compute_bounds,
    evaluate,
    load_bounds,
    load_model,
    save_bounds,
    save_model,
)
from intervalcert.model.network import IN_MEMORY, Source
from tests.commands import ran
from tests.test_model_files import FIXTURES, fixture

WEIGHTS = [np.array([[1.0, -2.0], [0.5, 1.0]]), np.array([[1.0, 1.0], [-1.0, 2.0]])]
MEAN, STD = ["0.25", "-1"], ["1/8", "2"]


def test_in_the_input_space_the_normalisation_is_in_the_first_layer():
    """(x - mean)/std multiplied into W and b by hand."""
    network = Network.from_arrays(WEIGHTS, mean=MEAN, std=STD)
    by_hand = Network.from_arrays([WEIGHTS[0] * [8, 0.5], WEIGHTS[1]], [[-3, -0.5], None])
    assert network.content == by_hand.content
    assert network.eps_space == "input"


def test_in_the_normalised_space_the_layers_are_the_models():
    network = Network.from_arrays(WEIGHTS, mean=MEAN, std=STD, eps_space="normalised")
    plain = compute_bounds(Network.from_arrays(WEIGHTS), "exact")
    found = compute_bounds(network, "exact")
    assert found.margins.matrix == plain.margins.matrix
    assert (found.eps_space, plain.eps_space) == ("normalised", "input")


@pytest.mark.parametrize("space", ["input", "normalised"])
def test_logits_do_not_depend_on_the_space(space):
    network = Network.from_arrays(WEIGHTS, mean=MEAN, std=STD, eps_space=space)
    found = evaluate(network, [[0.5, 3.0]], backend="exact")
    h = [max(w[0] * 2 + w[1] * 2, 0) for w in WEIGHTS[0].tolist()]
    assert found.lower[-1][0].tolist() == [h[0] + h[1], -h[0] + 2 * h[1]] == found.upper[-1][0].tolist()


@pytest.mark.parametrize("local", [False, True])
@pytest.mark.parametrize("space", ["input", "normalised"])
def test_the_ball_is_in_the_space_that_is_said(space, local):
    """The truth is known: logits (x0 - m)/s and 0. They are equal at a distance |x0 - m|, or that over s."""
    network = Network.from_arrays(
        [np.array([[1.0], [-1.0]]), np.array([[1.0, -1.0], [0.0, 0.0]])], mean="1/2", std="1/4", eps_space=space
    )
    distance = Fraction(1, 4) if space == "input" else Fraction(1)  # at x = 3/4
    below, above = (
        certify_inputs(network, [[0.75]], distance * factor, local=local)[0] for factor in (Fraction(1, 3), 1)
    )
    assert (below.certified, above.certified) == (True, False)
    assert certify_inputs(network, [[0.75]], 0).eps_space == space
    assert certify(compute_bounds(network, "exact"), [[1.0, 0.0]], distance).eps_space == space
    assert not certify(compute_bounds(network, "exact"), [[1.0, 0.0]], distance).certified.any()


def test_a_space_that_there_is_not(tmp_path, capsys):
    with pytest.raises(InputError, match="does not normalise"):
        Network.from_arrays(WEIGHTS, eps_space="normalised")
    with pytest.raises(UsageError, match="eps space"):
        Network.from_arrays(WEIGHTS, eps_space="pixels")
    with pytest.raises(InputError, match="load the model"):
        Network.from_arrays(WEIGHTS, mean=1, std=1).measured_in("normalised")
    code, _, err = ran(capsys, "bounds", FIXTURES / "mlp.npz", "--eps-space", "normalised")
    assert code == 3
    assert "--mean" in err
    code, _, _ = ran(capsys, "bounds", FIXTURES / "mlp.npz", "--eps-space", "pixels")
    assert code == 2


@pytest.mark.parametrize(
    ("mean", "std", "said"),
    [
        (0, 0, "zero"),
        ([1, 2, 3], 1, "3 numbers"),
        (0, ["1", "0"], "zero"),
        (float("nan"), 1, "finite|nan"),
        ("x", 1, "mean"),
        ([[1, 2]], 1, "mean"),
        ([1, [2]], 1, "mean"),
        ([], 1, "mean"),
        (None, "inf", "std"),
    ],
)
def test_a_normalisation_must_make_sense(mean, std, said):
    with pytest.raises(InputError, match=said):
        Network.from_arrays(WEIGHTS, mean=mean, std=std)


def test_a_mean_without_a_std_is_refused(tmp_path, capsys):
    """Whoever forgets it would have logits and radii of another model. (A std alone is a scaling, and means 0.)"""
    with pytest.raises(UsageError, match="a mean without a std"):
        Network.from_arrays(WEIGHTS, mean=1)
    for options in ({"mean": 1}, {"mean": [0] * 6}):
        with pytest.raises(UsageError, match="a mean without a std"):
            load_model(FIXTURES / "mlp.npz", **options)
    code, out, err = ran(capsys, "bounds", FIXTURES / "mlp.npz", "--mean", "0.5", "-o", tmp_path / "b.json")
    assert (code, out) == (2, "")
    assert "--std" in err
    assert ran(capsys, "bounds", FIXTURES / "mlp.npz", "--mean", "0.5", "--std", "1")[0] == 0
    assert ran(capsys, "bounds", FIXTURES / "mlp.npz", "--std", "0.5")[0] == 0


def test_a_model_that_normalises_takes_no_other_normalisation():
    with pytest.raises(InputError, match="normalises its inputs itself"):
        load_model(fixture("image_torchscript_exporter.onnx"), mean=1)


@pytest.mark.parametrize(
    ("shape", "expected"), [((2, 3, 4), [1] * 12 + [2] * 12), ((4, 3, 2), [1, 2] * 12), ((3, 4, 2), [1, 2] * 12)]
)
def test_one_mean_per_channel(shape, expected):
    made = replace(Network.from_arrays([np.ones((2, 24))]), shape=shape).after([1, 2], 1)
    assert [made.normalisation.mean[i, 0] for i in range(24)] == expected


def test_a_first_layer_that_would_not_fit_into_memory_is_refused(monkeypatch):
    """Factors of very different sizes are long numbers over a common denominator, and multiplied into each weight."""
    weights, std = [np.ones((2, 50))], ["1e-900", *["1"] * 48, "1e900"]
    assert Network.from_arrays(weights, std=std).inputs == 50
    monkeypatch.setattr("intervalcert.model.normalisation.MAX_MATRIX_BITS", 100_000)
    with pytest.raises(InputError, match="so long"):
        Network.from_arrays(weights, std=std)
    assert Network.from_arrays(weights, std=std, eps_space="normalised").inputs == 50


@pytest.mark.parametrize("count", [20, 3_072])
def test_one_std_per_input(count):
    """Dividing by many different numbers makes a common denominator as long as all of them together: it is rounded."""
    random = np.random.default_rng(5)
    mean, std, x = random.normal(size=count), random.uniform(-2, 2, count), random.normal(size=count)
    weights = random.normal(size=(2, count))
    quotients = [(a - b) / c for a, b, c in zip(*([Fraction(v) for v in row] for row in (x, mean, std)), strict=True)]
    expected = [sum(Fraction(w) * q for w, q in zip(row, quotients, strict=True)) for row in weights.tolist()]
    for space in ("input", "normalised"):
        network = Network.from_arrays([weights], mean=mean, std=std, eps_space=space)
        assert network.is_exact == (count == 20)
        found = evaluate(network, [x], backend="arb")
        for k, value in enumerate(expected):
            assert Fraction(found.lower[-1][0, k]) <= value <= Fraction(found.upper[-1][0, k])
            assert found.upper[-1][0, k] - found.lower[-1][0, k] < 1e-12 * max(1, abs(value))


@pytest.mark.parametrize("shape", [None, (24,), (3, 8), (3, 3, 3), (4, 2, 3), (1, 3, 3), (3, 8, 1), (8, 3, 1)])
def test_channels_are_not_guessed(shape):
    size = 24 if shape is None else int(np.prod(shape))
    made = replace(Network.from_arrays([np.ones((2, size))]), shape=shape)
    with pytest.raises(InputError, match="channel"):
        made.after([1, 2, 3], 1)


def test_the_command_line_says_where_eps_is(tmp_path, capsys):
    model, bounds, out = FIXTURES / "mlp.npz", tmp_path / "b.json", tmp_path / "v.csv"
    options = ["--mean", "-0.5", "--std", "2"]
    np.save(tmp_path / "x.npy", np.linspace(-1, 1, 12).reshape(2, 6))
    np.save(tmp_path / "y.npy", np.array([[1.0, 2.0, 3.0]]))
    for space in ("input", "normalised"):
        chosen = [*options, "--eps-space", space]
        code, shown, _ = ran(capsys, "bounds", model, *chosen, "-o", bounds)
        assert code == 0
        assert ("normalised inputs" in shown) == (space == "normalised")
        assert load_bounds(bounds).eps_space == space
        _, shown, _ = ran(capsys, "certify", bounds, tmp_path / "y.npy", "--eps", "0.1", "-o", out)
        assert f"{space} space" in shown
        with out.open() as file:
            assert [row["eps_space"] for row in csv.DictReader(file)] == [space]
        _, shown, _ = ran(capsys, "certify", bounds, tmp_path / "y.npy", "--eps", "0.1", "--json")
        assert json.loads(shown)["eps_space"] == space
        _, shown, _ = ran(capsys, "radius", bounds, tmp_path / "y.npy")
        assert space in shown
        inputs = ["--model", model, "--inputs", tmp_path / "x.npy", "--eps", "0.01"]
        _, shown, _ = ran(capsys, "certify", *inputs, *chosen)
        assert f"{space} space" in shown
        _, shown, _ = ran(capsys, "certify", bounds, *inputs, *chosen, "--json")
        assert json.loads(shown)["eps_space"] == space
        code, shown, _ = ran(capsys, "audit", bounds, "--model", model, *chosen)
        assert code == 0
        assert ("normalised inputs" in shown) == (space == "normalised")
        other = "input" if space == "normalised" else "normalised"
        for words in (
            ["certify", bounds, tmp_path / "y.npy", "--eps", "0.1", "--eps-space", other],
            ["certify", bounds, *inputs, *options, "--eps-space", other],
            ["audit", bounds, "--model", model, *options, "--eps-space", other],
        ):
            code, _, err = ran(capsys, *words)
            assert code == 3
            assert "space" in err


@pytest.mark.parametrize("change", [[], ["--std", "2"], ["--mean", "-0.5", "--std", "3"]])
def test_bounds_are_of_the_network_not_of_the_file(tmp_path, capsys, change):
    """The same file with another normalisation is another network: its margins are other ones."""
    model, bounds = FIXTURES / "mlp.npz", tmp_path / "b.json"
    right = ["--mean", "-0.5", "--std", "2"]
    np.save(tmp_path / "x.npy", np.zeros((1, 6)))
    ran(capsys, "bounds", model, *right, "-o", bounds)
    inputs = ["--model", model, "--inputs", tmp_path / "x.npy", "--eps", "0.01"]
    assert ran(capsys, "certify", bounds, *inputs, *right)[0] == 0
    for words in (["certify", bounds, *inputs], ["audit", bounds, "--model", model]):
        code, _, err = ran(capsys, *words, *change)
        assert code == 3
        assert "another network" in err


@pytest.mark.parametrize("text", ["", "0" * 63, "G" * 64, 5, None])
def test_the_hash_of_the_network_is_a_hash(tmp_path, text):
    save_bounds(compute_bounds(Network.from_arrays(WEIGHTS), "exact"), tmp_path / "b.json")
    data = json.loads((tmp_path / "b.json").read_text())
    data["network"] = text
    (tmp_path / "b.json").write_text(json.dumps(data))
    with pytest.raises(InputError, match="network"):
        load_bounds(tmp_path / "b.json")


def test_inputs_are_those_of_the_model_in_either_space(tmp_path, capsys):
    """Pixels go in, whatever the space: --input-scale and the normalisation are both applied."""
    np.save(tmp_path / "x.npy", np.array([[255, 0, 51, 102, 153, 204]], dtype=np.uint8))
    words = [
        "evaluate",
        FIXTURES / "mlp.npz",
        tmp_path / "x.npy",
        "--input-scale",
        "1/255",
        "--mean",
        "0.5",
        "--std",
        "1",
    ]
    code, out, _ = ran(capsys, *words)
    assert code == 0
    pixels = [[Fraction(x, 255) - Fraction(1, 2) for x in (255, 0, 51, 102, 153, 204)]]
    expected = evaluate(load_model(FIXTURES / "mlp.npz"), pixels)
    shown = [float(x) for x in out.replace("\n", ",").split(",") if x.strip().replace(".", "").lstrip("-").isdigit()]
    assert shown, out
    for low in expected.lower[-1][0]:
        assert min(abs(x - low) for x in shown) < 1e-5 * max(1, abs(low)), out


def test_a_network_in_memory_is_known_by_its_content():
    network = Network.from_arrays(WEIGHTS, mean=1, std=2)
    assert network.sources[0].name == IN_MEMORY
    others = [Network.from_arrays(WEIGHTS, mean=m, std=s) for m, s in ((None, None), (1, 3), (2, 2))]
    assert len({made.sources for made in (network, *others)}) == 4
    assert network.sources != (Source(IN_MEMORY, "0" * 64),)


@pytest.mark.parametrize("space", ["input", "normalised"])
def test_a_normalisation_that_was_written_is_not_deployed(tmp_path, space):
    """In the input space it is in the first layer, where nobody would see it."""
    save_model(Network.from_arrays(WEIGHTS, mean=MEAN, std=STD, eps_space=space), tmp_path / "m.npz")
    with pytest.raises(InputError, match="the normalisation of its inputs"):
        certify_inputs(load_model(tmp_path / "m.npz"), [[0.0, 0.0]], 0, deployed="float32")
