"""Model files of all kinds: one network whatever the format, known by content, shown, converted, with its eps space."""

import csv
import json
import subprocess
import sys
import time
import zipfile
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import intervalcert
from intervalcert import (
    InputError,
    Network,
    UsageError,
    certify,
    certify_inputs,
    compute_bounds,
    evaluate,
    from_torch,
    load_bounds,
    load_model,
    save_bounds,
    save_model,
)
from intervalcert.loaders.tensors import Tensor
from intervalcert.network import IN_MEMORY, Shrinkage, Source
from intervalcert.rational import RationalMatrix
from tests.commands import ran

FIXTURES = Path(__file__).parent / "fixtures"
PACKAGES = {".onnx": "onnx", ".keras": "h5py", ".pt": "torch", ".safetensors": "safetensors"}
EXTRAS = {".onnx": "onnx", ".keras": "keras", ".pt": "torch", ".safetensors": "safetensors"}

MLP = sorted(p.name for p in FIXTURES.glob("mlp*") if p.suffix in PACKAGES)
IMAGES = sorted(p.name for p in FIXTURES.glob("image*") if p.suffix in PACKAGES)
ZOO = sorted(p.name for p in FIXTURES.glob("zoo*") if p.suffix in PACKAGES)
NOT_READ = {"zoo_softmax.onnx", "zoo_softmax.keras", "zoo_softplus_dynamo.onnx"}


def fixture(name):
    """The path, if what reads it is installed."""
    path = FIXTURES / name
    if path.suffix in PACKAGES:
        pytest.importorskip(PACKAGES[path.suffix], reason=f"{name} is read with a package that is not installed")
    return path


# -- one network -----------------------------------------------------------------------------------------------------


def test_there_are_files_of_all_kinds():
    assert {Path(name).suffix for name in MLP} == set(PACKAGES)
    assert len(MLP) >= 13
    assert len(IMAGES) >= 9
    assert len(ZOO) >= 17


@pytest.mark.parametrize("name", MLP)
def test_every_loader_gives_the_same_network(name):
    """mlp.npz and the text of make.py are the same numbers, written by other means."""
    expected = load_model(FIXTURES / "mlp.npz")
    assert load_model(FIXTURES / "mlp.txt", FIXTURES / "mlp_biases.txt").content == expected.content
    found = load_model(fixture(name))
    assert found.content == expected.content
    for layer, other in zip(found.layers, expected.layers, strict=True):
        assert layer.weights == other.weights
        assert layer.bias == other.bias
        assert layer.activation == other.activation
    assert found.folded == ()
    assert found.sources[0].name == name


def test_the_same_images_from_different_exporters():
    names = [name for name in IMAGES if name.endswith("onnx") and "dynamo.onnx" not in name]
    found = {name: load_model(fixture(name)).content for name in names}
    by_maker = {name: content for name, content in found.items() if "tf2onnx" in name}
    assert len(set(by_maker.values())) == 1
    assert len({content for name, content in found.items() if name not in by_maker}) == 1


@pytest.mark.parametrize("name", [*MLP, *IMAGES, *ZOO])
def test_a_file_gives_bounds_with_one_command(capsys, name):
    if name in NOT_READ:
        code, _, err = ran(capsys, "bounds", fixture(name))
        assert code == 3
        assert name in err
        return
    code, out, _ = ran(capsys, "bounds", fixture(name), "--backend", "float64")
    assert code == 0
    assert "L2 distance of inputs" in out


@pytest.mark.parametrize("name", ["zoo_softmax.onnx", "zoo_softmax.keras"])
def test_a_softmax_at_the_end_is_stripped_if_one_says_so(capsys, name):
    code, _, err = ran(capsys, "inspect", fixture(name))
    assert code == 3
    assert "--strip-softmax" in err
    code, out, _ = ran(capsys, "inspect", fixture(name), "--strip-softmax")
    assert code == 0
    assert "(logits)" in out
    with pytest.raises(InputError, match="a softmax"):  # in floats it can make two classes equal
        certify_inputs(load_model(FIXTURES / name, strip_softmax=True), [[0.0] * 3], 0, deployed="float32")


@pytest.mark.parametrize("name", ["mlp.onnx", "mlp.keras"])
def test_a_softmax_that_is_not_there_is_not_stripped(capsys, name):
    path = fixture("mlp_dynamo.onnx" if name.endswith("onnx") else name)
    code, _, err = ran(capsys, "inspect", path, "--strip-softmax")
    assert code == 3
    assert "no softmax" in err


# -- which format ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mlp_dynamo.onnx", "mlp.keras", "mlp.pt", "mlp.safetensors", "mlp.npz"])
@pytest.mark.parametrize("ending", [".onnx", ".keras", ".pt", ".safetensors", ".npz", ".npy"])
def test_the_ending_must_agree_with_the_content(tmp_path, name, ending):
    path = fixture(name)
    moved = tmp_path / f"model{ending}"
    moved.write_bytes(path.read_bytes())
    if path.suffix == ending:
        assert load_model(moved).outputs == 3
        return
    with pytest.raises(InputError) as caught:
        load_model(moved)
    assert "as its ending says" in str(caught.value)


@pytest.mark.parametrize("name", ["mlp_dynamo.onnx", "mlp.keras", "mlp.pt", "mlp.safetensors", "mlp.npz"])
def test_without_an_ending_the_content_decides(tmp_path, name):
    path = fixture(name)
    moved = tmp_path / "model"
    moved.write_bytes(path.read_bytes())
    assert load_model(moved).content == load_model(FIXTURES / "mlp.npz").content


@pytest.mark.parametrize(
    ("head", "said"),
    [(b"\x80\x04\x95rubbish", " is a pickle"), (b"\x89HDF\r\n\x1a\n" + bytes(100), " is an HDF5 file")],
)
@pytest.mark.parametrize("ending", ["", ".pt", ".pkl", ".h5", ".keras"])
def test_pickles_and_old_models_are_refused_by_their_names(tmp_path, capsys, head, said, ending):
    path = tmp_path / f"model{ending}"
    path.write_bytes(head)
    code, _, err = ran(capsys, "inspect", path)
    assert code == 3
    assert said in err


def test_an_empty_file(tmp_path, capsys):
    for ending in (*PACKAGES, ".npz", ".txt", ""):
        path = tmp_path / f"empty{ending}"
        path.touch()
        code, _, err = ran(capsys, "inspect", path)
        assert code == 3, ending
        assert str(path) in err


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("mlp_dynamo.onnx", ["--activation", "relu"]),
        ("mlp_dynamo.onnx", ["--layers", "a,b"]),
        ("mlp_dynamo.onnx", ["--biases", FIXTURES / "mlp_biases.txt"]),
        ("mlp.keras", ["--activation", "relu"]),
        ("mlp.pt", ["--strip-softmax"]),
        ("mlp.npz", ["--layers", "0,1"]),
        ("mlp.npz", ["--strip-softmax"]),
    ],
)
def test_what_the_file_says_itself_nobody_else_may_say(capsys, name, hint):
    """A hint that would be ignored is an error of the caller."""
    code, _, err = ran(capsys, "inspect", FIXTURES / name, *hint)
    assert code == 2
    assert hint[0] in err


# -- what is installed -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", PACKAGES)
def test_a_package_that_is_missing_is_named_with_its_extra(capsys, monkeypatch, ending):
    for module in [PACKAGES[ending], *(name for name in sys.modules if name.startswith(f"{PACKAGES[ending]}."))]:
        monkeypatch.setitem(sys.modules, module, None)
    name = {".onnx": "mlp_dynamo.onnx"}.get(ending, f"mlp{ending}")
    code, _, err = ran(capsys, "inspect", FIXTURES / name)
    assert code == 2
    assert PACKAGES[ending] in err
    assert f"intervalcert[{EXTRAS[ending]}]" in err


def test_no_framework_is_imported_for_plain_files():
    program = (
        "import sys, intervalcert\n"
        f"network = intervalcert.load_model({str(FIXTURES / 'mlp.npz')!r})\n"
        "intervalcert.compute_bounds(network, 'float64')\n"
        "print(sorted({'torch', 'onnx', 'onnxruntime', 'h5py', 'safetensors', 'keras'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_from_torch_is_public():
    assert intervalcert.from_torch is from_torch


# -- inspect ---------------------------------------------------------------------------------------------------------


def test_inspect_shows_what_was_understood(capsys):
    path = fixture("image_torchscript_exporter.onnx")
    code, out, _ = ran(capsys, "inspect", path)
    assert code == 0
    for part in (
        *("leaky_relu:0.01", "(logits)", "1 x 4 x 4", "mean 0.1307", "std 0.3081", "input space"),
        *("batch normalisation", "roots", load_model(path).sources[0].sha256, load_model(path).content),
    ):
        assert part in out, part
    _, out, _ = ran(capsys, "inspect", path, "--eps-space", "normalised")
    assert "normalised space" in out
    assert load_model(path, eps_space="normalised").content in out


def test_inspect_counts_parameters(capsys):
    _, out, _ = ran(capsys, "inspect", FIXTURES / "mlp.npz")
    assert str(6 * 5 + 5 + 5 * 4 + 4 + 4 * 3 + 3) in out


def test_inspect_shows_slopes_and_constants(tmp_path, capsys):
    path = tmp_path / "m.npz"
    np.savez(path, W0=np.eye(2), W1=np.eye(2))
    for name, said in {"sigmoid": "0 to 0.25", "group_sort": "Lipschitz 1", "leaky_relu:-2": "-2 to 1"}.items():
        assert said in ran(capsys, "inspect", path, "--activation", name)[1]


@pytest.mark.parametrize(("value", "said"), [("1e400", "e+400"), ("-1e-400", "-1e-400"), ("1/3", "0.333333")])
def test_inspect_shows_numbers_of_any_size(tmp_path, capsys, value, said):
    for words in (["--mean", value], ["--std", value], ["--activation", f"leaky_relu:{value}"]):
        code, out, _ = ran(capsys, "inspect", write_npz(tmp_path / "m.npz"), *words)
        assert code == 0
        assert said in out


# -- convert ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in [*MLP, *IMAGES, *ZOO] if name not in NOT_READ])
def test_convert_writes_the_exact_network(tmp_path, capsys, name):
    path, out = fixture(name), tmp_path / "out.npz"
    code, printed, _ = ran(capsys, "convert", path, out)
    assert code == 0
    for space in ("input", "normalised"):
        if space == "normalised" and load_model(path).normalisation is None:
            continue
        found, expected = load_model(out, eps_space=space), load_model(path, eps_space=space)
        assert found.content == expected.content
        assert (found.shape, found.folded) == (expected.shape, expected.folded)
        assert (found.normalisation is None) == (expected.normalisation is None)
    assert printed.strip() == load_model(path).content
    again = tmp_path / "again.npz"
    save_model(load_model(path, eps_space="normalised" if load_model(path).normalisation else "input"), again)
    assert again.read_bytes() == out.read_bytes()


def test_a_converted_network_holds_any_rationals(tmp_path):
    """Thirds, numbers beyond the floats, unknown factors: whatever a network can be."""
    third, huge = Fraction(1, 3), Fraction(2) ** 1500
    network = Network.from_arrays(
        [[[third, huge], [1, -1 / huge]], [[0.1, 2], [3, 4]]],
        [[third, 0], None],
        between="clip:-1/3:inf",
        mean=["1/7", 2],
        std="1/3",
        eps_space="normalised",
    )
    layer = replace(
        network.layers[0],
        before=Shrinkage(RationalMatrix.from_fractions([[third], [huge]]), Fraction(1, 2)),
        after=Shrinkage(None, third),
    )
    network = replace(network, layers=(layer, network.layers[1]), shape=(1, 2), folded=("batch normalisation",))
    save_model(network, tmp_path / "m.npz")
    found = load_model(tmp_path / "m.npz", eps_space="normalised")
    assert found.content == network.content
    assert replace(found, sources=network.sources) == replace(network, sources=network.sources)


@pytest.mark.parametrize("space", ["input", "normalised"])
def test_a_normalisation_that_was_written_is_not_deployed(tmp_path, space):
    """In the input space it is in the first layer, where nobody would see it."""
    save_model(Network.from_arrays(WEIGHTS, mean=MEAN, std=STD, eps_space=space), tmp_path / "m.npz")
    with pytest.raises(InputError, match="the normalisation of its inputs"):
        certify_inputs(load_model(tmp_path / "m.npz"), [[0.0, 0.0]], 0, deployed="float32")


def test_external_data_is_not_overwritten(tmp_path, capsys):
    """It is an input of the command, as the model is."""
    path = fixture("mlp_dynamo_external.onnx")
    for name in (path.name, f"{path.name}.data"):
        (tmp_path / name).write_bytes((FIXTURES / name).read_bytes())
    data = tmp_path / f"{path.name}.data"
    np.save(tmp_path / "x.npy", np.zeros((1, 6)))
    for words in (
        ["bounds", tmp_path / path.name, "-o", data],
        ["evaluate", tmp_path / path.name, tmp_path / "x.npy", "-o", data],
    ):
        code, _, _ = ran(capsys, *words)
        assert code in {2, 3}
        assert data.read_bytes() == (FIXTURES / data.name).read_bytes()


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_floats_are_written_as_floats(tmp_path, kind):
    weights = (np.arange(6).reshape(2, 3) / 7).astype(kind)
    save_model(Network.from_arrays([weights]), tmp_path / "m.npz")
    with np.load(tmp_path / "m.npz") as found:
        assert found["W0"].dtype == kind
        assert np.array_equal(found["W0"], weights)


def test_a_network_is_written_as_npz_or_not_at_all(tmp_path, capsys):
    code, _, err = ran(capsys, "convert", FIXTURES / "mlp.npz", tmp_path / "m.onnx")
    assert code == 3
    assert ".npz" in err
    code, _, err = ran(capsys, "convert", FIXTURES / "zoo_softmax.onnx", tmp_path / "m.npz")
    assert code in {2, 3}
    assert list(tmp_path.iterdir()) == []


def write_npz(path, **arrays):
    np.savez(path, **{"W0": np.eye(2), "W1": np.eye(2), **arrays})
    return path


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"activations": np.array([b"relu", b"relu"])}, "activations"),
        ({"activations": np.array([b"swish"])}, "swish"),
        ({"activations": np.array([b"\xff"])}, "ASCII"),
        ({"activations": np.array([1.0])}, "names"),
        ({"mean": np.zeros(2)}, "or neither"),
        ({"factor": np.ones(2)}, "or neither"),
        ({"factor_least": np.array([b"1/2"])}, "or neither"),
        ({"factor": np.ones(2), "factor_least": np.array([b"1/2"])}, "or neither"),
        ({"mean": np.ones(2), "factor_least": np.array([b"1"])}, "or neither"),
        ({"mean": np.array([b"1/%d" % x for x in (3**2900, 5**2000)]), "factor": np.ones(2)}, "common denominator"),
        ({"before_least0": np.array([b"1"]), "before0": np.ones(2)}, "factors"),
        ({"after_least0": np.array([b"1"]), "after0": np.ones(2)}, "factors"),
        ({"mean": np.zeros(3), "factor": np.ones(3)}, "normalised"),
        ({"mean": np.zeros(2), "factor": np.ones(3)}, "for each input"),
        ({"mean": np.zeros(2), "factor": np.array([1.0, 0.0])}, "zero"),
        ({"mean": np.zeros(2), "factor": np.array([1.0, np.nan])}, "finite"),
        ({"mean": np.zeros(2), "factor": np.ones(2), "factor_least": np.array([b"0"])}, "(0, 1]"),
        ({"mean": np.zeros(2), "factor": np.ones(2), "factor_least": np.array([b"2"])}, "(0, 1]"),
        ({"mean": np.zeros(2), "factor": np.ones(2), "factor_least": np.array([b"1", b"1"])}, "one number"),
        ({"shape": np.array([3, 1])}, "shape"),
        ({"shape": np.array([2.0, 1.0])}, "sizes"),
        ({"shape": np.array([-2, -1])}, "sizes"),
        ({"before0": np.zeros(2)}, "before_least0"),
        ({"before_least0": np.array([b"2"])}, "factors"),
        ({"before_least0": np.array([b"0"])}, "factors"),
        ({"before_least0": np.array([b"1/2", b"1/2"])}, "one number"),
        ({"before_least1": np.array([b"1/2"])}, "factors"),
        ({"after_least0": np.array([b"1/2"]), "after0": np.zeros(3)}, "biases"),
        ({"after_least2": np.array([b"1/2"])}, "no layer"),
        ({"folded": np.array([1.0])}, "names"),
        ({"b0": np.array([b"1/3", b"x"])}, "b0"),
        ({"W0": np.array([[b"1/3", b"1e99999"], [b"1", b"2"]])}, "W0"),
        ({"W0": np.array([b"1/3", b"1"])}, "matrix"),
        ({"surprise": np.zeros(2)}, "surprise"),
    ],
)
def test_an_archive_says_only_what_is_understood(tmp_path, capsys, arrays, said):
    code, _, err = ran(capsys, "inspect", write_npz(tmp_path / "m.npz", **arrays))
    assert code == 3
    assert said in err


def test_activations_of_an_archive_are_not_overruled(tmp_path, capsys):
    path = write_npz(tmp_path / "m.npz", activations=np.array([b"tanh"]))
    assert load_model(path).activations == ("tanh", None)
    code, _, err = ran(capsys, "inspect", path, "--activation", "relu")
    assert code == 3
    assert "activations itself" in err


def test_every_truncation_of_a_converted_network_is_refused(tmp_path, capsys):
    save_model(load_model(fixture("image_torchscript_exporter.onnx")), tmp_path / "m.npz")
    data = (tmp_path / "m.npz").read_bytes()
    for end in range(0, len(data), 10):
        (tmp_path / "cut.npz").write_bytes(data[:end])
        code, _, err = ran(capsys, "inspect", tmp_path / "cut.npz")
        assert (code, "Traceback" in err) == (3, False), end


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("intervalcert.loaders.archives.MAX_UNPACKED_BYTES", 10_000)
    with zipfile.ZipFile(tmp_path / "m.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("W0.npy", bytes(20_000))
    with pytest.raises(InputError, match="unpacks to more"):
        load_model(tmp_path / "m.npz")


@pytest.mark.parametrize("name", ["/W0.npy", "../W0.npy", "a/../W0.npy", "c:W0.npy", "W0.npy\0x", "..\\W0.npy"])
def test_names_that_point_out_of_an_archive_are_refused(tmp_path, name):
    info = zipfile.ZipInfo("W0.npy")
    info.filename = name  # the constructor would tidy it up
    with zipfile.ZipFile(tmp_path / "m.npz", "w") as archive:
        archive.writestr(info, b"")
    with pytest.raises(InputError, match="points out of the archive"):
        load_model(tmp_path / "m.npz")


# -- where eps is measured -------------------------------------------------------------------------------------------

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
        Network.from_arrays(WEIGHTS, mean=1).measured_in("normalised")
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


def test_a_model_that_normalises_takes_no_other_normalisation():
    with pytest.raises(InputError, match="normalises its inputs itself"):
        load_model(fixture("image_torchscript_exporter.onnx"), mean=1)


@pytest.mark.parametrize(
    ("shape", "expected"), [((2, 3, 4), [1] * 12 + [2] * 12), ((4, 3, 2), [1, 2] * 12), ((3, 4, 2), [1, 2] * 12)]
)
def test_one_mean_per_channel(shape, expected):
    made = replace(Network.from_arrays([np.ones((2, 24))]), shape=shape).after([1, 2], None)
    assert [made.normalisation.mean[i, 0] for i in range(24)] == expected


def test_a_first_layer_that_would_not_fit_into_memory_is_refused(monkeypatch):
    """Factors of very different sizes are long numbers over a common denominator, and multiplied into each weight."""
    weights, std = [np.ones((2, 50))], ["1e-900", *["1"] * 48, "1e900"]
    assert Network.from_arrays(weights, std=std).inputs == 50
    monkeypatch.setattr("intervalcert.normalisation.MAX_MATRIX_BITS", 100_000)
    with pytest.raises(InputError, match="so long"):
        Network.from_arrays(weights, std=std)
    assert Network.from_arrays(weights, std=std, eps_space="normalised").inputs == 50


def test_a_network_without_a_hash_is_not_converted(tmp_path, capsys, monkeypatch):
    """The hash is that of the input space, where it does not fit into memory."""
    save_model(Network.from_arrays([np.eye(2)], std=["1e-300", "1"], eps_space="normalised"), tmp_path / "m.npz")
    monkeypatch.setattr("intervalcert.normalisation.MAX_MATRIX_BITS", 1_000)
    code, out, err = ran(capsys, "convert", tmp_path / "m.npz", tmp_path / "n.npz")
    assert (code, out) == (3, "")
    assert "so long" in err
    assert not (tmp_path / "n.npz").exists()


def test_inspect_knows_that_factors_are_in_the_first_layer(tmp_path, capsys):
    rng = np.random.default_rng(2)
    network = Network.from_arrays([rng.normal(size=(2, 300))], mean=1.5, std=rng.uniform(1, 2, 300))
    assert not network.is_exact
    save_model(network, tmp_path / "m.npz")
    code, out, _ = ran(capsys, "inspect", tmp_path / "m.npz")
    assert code == 0
    assert "x - mean, mean 1.5; what x is divided by is in the first layer" in out
    assert network.content in out


def test_long_texts_in_an_archive_are_refused_before_they_take_long(tmp_path, capsys):
    """One common denominator for all of them would be as long as all together."""
    random = np.random.default_rng(1)
    for name, shape in (("mean", 10_000), ("factor", 10_000), ("W0", (2, 10_000)), ("b0", 10_000)):
        texts = np.array([f"{x}/{y}" for x, y in random.integers(10**7, 10**8, (int(np.prod(shape)), 2))], dtype="S")
        weights = np.ones((10_000, 1) if name == "b0" else (2, 10_000), dtype=np.float32)
        arrays = {"W0": weights, name: texts.reshape(shape)}
        if name in {"mean", "factor"}:
            arrays = {"mean": np.zeros(10_000), "factor": np.ones(10_000), **arrays}
        np.savez_compressed(tmp_path / "m.npz", **arrays)
        start = time.process_time()
        code, _, err = ran(capsys, "inspect", tmp_path / "m.npz")
        assert time.process_time() - start < 20
        assert code == 3
        assert "exactly" in err


@pytest.mark.parametrize("name", ["factor_least", "before_least0", "after_least0"])
def test_factors_that_are_hardly_known(tmp_path, capsys, name):
    """The least factor is shown as it is, and may have more digits than Python writes at once."""
    arrays = {"mean": np.zeros(2), "factor": np.ones(2)} if name == "factor_least" else {}
    path = write_npz(tmp_path / "m.npz", **arrays, **{name: np.array([b"1*2^-50000"])})
    code, out, _ = ran(capsys, "inspect", path)
    assert code == 0
    assert "within a part of 1" in out
    assert ran(capsys, "convert", path, tmp_path / "n.npz")[0] == 0
    assert load_model(tmp_path / "n.npz").content == load_model(path).content


def test_numbers_that_are_too_long_are_not_written(tmp_path, capsys):
    long = RationalMatrix.from_fractions([[Fraction(1, 3**10_000)], [Fraction(1)]])
    network = Network.from_arrays([np.eye(2), np.eye(2)])
    network = replace(network, layers=(replace(network.layers[0], bias=long), network.layers[1]))
    with pytest.raises(InputError, match="too long to be written"):
        save_model(network, tmp_path / "m.npz")
    assert list(tmp_path.iterdir()) == []


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
        made.after([1, 2, 3], None)


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


@pytest.mark.parametrize("change", [[], ["--mean", "-0.5"], ["--mean", "-0.5", "--std", "3"]])
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


def test_bounds_of_an_older_version_know_no_normalisation(tmp_path):
    """They do not say of which network they are, only of which file."""
    network = Network.from_arrays(WEIGHTS)
    save_bounds(compute_bounds(network, "exact"), tmp_path / "b.json")
    data = json.loads((tmp_path / "b.json").read_text())
    data["version"] = 3
    del data["network"]
    (tmp_path / "old.json").write_text(json.dumps(data))
    old = load_bounds(tmp_path / "old.json")
    assert certify_inputs(network, [[1.0, 1.0]], 0, bounds=old).certified.shape == (1,)
    normalised = replace(Network.from_arrays(WEIGHTS, std="1/2"), sources=network.sources)
    with pytest.raises(InputError, match="older"):
        save_bounds(old, tmp_path / "again.json")
    with pytest.raises(InputError, match="older"):
        certify_inputs(normalised, [[1.0, 1.0]], 0, bounds=old)


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
    words = ["evaluate", FIXTURES / "mlp.npz", tmp_path / "x.npy", "--input-scale", "1/255", "--mean", "0.5"]
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


# -- the numbers of a file -------------------------------------------------------------------------------------------


def test_the_hash_does_not_depend_on_how_numbers_are_held():
    """Floats, decimals, fractions over any denominator; a mix of sizes that no common grid of 53 bits holds."""
    values = [[1.5, 2.0**-300], [2.0**300, -0.0]]
    exact = [[Fraction(x) for x in row] for row in values]
    same = [
        Network.of([RationalMatrix.from_floats(np.array(values))]),
        Network.of([RationalMatrix.from_fractions(exact)]),
        Network.of([RationalMatrix.from_integers([[int(x * 3 * 2**400) for x in row] for row in exact], 3 * 2**400)]),
        Network.of([RationalMatrix.from_floats(np.ldexp(values, 5), -5)]),
    ]
    assert len({network.content for network in same}) == 1
    other = Network.of([RationalMatrix.from_fractions([[Fraction(3, 2), Fraction(1, 3)], [1, 2]])])
    scaled = Network.of([RationalMatrix.from_integers([[9, 2], [6, 12]], 6)])
    assert other.content == scaled.content != same[0].content


@pytest.mark.parametrize(
    ("rows", "floats"),
    [
        ([[Fraction(1, 3)]], False),
        ([[Fraction(2) ** 1023]], True),
        ([[Fraction(2) ** 1024]], False),
        ([[Fraction(1, 2**1074)]], True),
        ([[Fraction(1, 2**1075)]], False),
        ([[Fraction(2**53 + 1)]], False),
        ([[Fraction(2**53 - 1), Fraction(1, 2**60)]], True),
        ([[Fraction(0)]], True),
    ],
)
def test_which_rationals_are_floats(rows, floats):
    found = RationalMatrix.from_fractions(rows).as_floats()
    assert (found is not None) == floats
    if found is not None:
        assert [[Fraction(x) for x in row] for row in found.tolist()] == rows


def test_sizes_are_bounded_before_memory_is_taken():
    big = Tensor(np.broadcast_to(np.float32(1), (4096, 4096)))
    for compute in (lambda: big + big, lambda: big * big, lambda: big @ big, lambda: -big, lambda: big / big):
        with pytest.raises(InputError, match="too large"):
            compute()


def test_numbers_do_not_grow_without_bounds():
    def grow(change):
        wide = Tensor(np.array([[2.0**1000, 3 * 2.0**-1000], [1, 5]]))
        for _ in range(200):
            wide = change(wide)

    for change in (
        lambda x: x * x,
        lambda x: (x * x * x * x) / x,
        lambda x: x @ x,
    ):
        with pytest.raises(InputError, match="too large"):
            grow(change)
