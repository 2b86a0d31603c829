"""Model files of all kinds: one network whatever the format, known by content, and shown."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import intervalcert
from intervalcert import InputError, certify_inputs, from_torch, load_model
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


def write_npz(path, **arrays):
    np.savez(path, **{"W0": np.eye(2), "W1": np.eye(2), **arrays})
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
    for words in (["--mean", value, "--std", "1"], ["--std", value], ["--activation", f"leaky_relu:{value}"]):
        code, out, _ = ran(capsys, "inspect", write_npz(tmp_path / "m.npz"), *words)
        assert code == 0
        assert said in out
