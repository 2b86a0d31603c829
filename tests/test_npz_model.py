"""Our own model file: what `convert` writes is read back as the same network, and nothing else is read."""

import time
import zipfile
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from intervalcert import InputError, Network, load_model, save_model
from intervalcert.model.layers import UncertainScale
from intervalcert.numbers.matrices import RationalMatrix
from tests.commands import ran
from tests.test_model_files import FIXTURES, IMAGES, MLP, NOT_READ, ZOO, fixture, write_npz


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
        before=UncertainScale(RationalMatrix.from_fractions([[third], [huge]]), Fraction(1, 2)),
        after=UncertainScale(None, third),
    )
    network = replace(network, layers=(layer, network.layers[1]), shape=(1, 2), folded=("batch normalisation",))
    save_model(network, tmp_path / "m.npz")
    found = load_model(tmp_path / "m.npz", eps_space="normalised")
    assert found.content == network.content
    assert replace(found, sources=network.sources) == replace(network, sources=network.sources)


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
    monkeypatch.setattr("intervalcert.io.models.archives.MAX_UNPACKED_BYTES", 10_000)
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


def test_a_network_without_a_hash_is_not_converted(tmp_path, capsys, monkeypatch):
    """The hash is that of the input space, where it does not fit into memory."""
    save_model(Network.from_arrays([np.eye(2)], std=["1e-300", "1"], eps_space="normalised"), tmp_path / "m.npz")
    monkeypatch.setattr("intervalcert.model.normalisation.MAX_MATRIX_BITS", 1_000)
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
    path = write_npz(tmp_path / "m.npz", **arrays, **{name: np.array([b"1*2^-20000"])})
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


def test_a_mean_of_zeros_and_factors_of_one_are_no_normalisation(tmp_path, capsys):
    weights = np.eye(2, dtype=np.float32)
    np.savez(tmp_path / "m.npz", W0=weights, mean=np.zeros(2), factor=np.ones(2))
    for network in (load_model(tmp_path / "m.npz"), load_model(tmp_path / "m.npz", mean=0, std=[1, 1])):
        assert network.normalisation is None
    assert Network.from_arrays([weights], mean=[0, 0], std="1").normalisation is None
    np.savez(tmp_path / "m.npz", W0=weights, mean=np.zeros(3), factor=np.ones(3))
    code, _, err = ran(capsys, "inspect", tmp_path / "m.npz")
    assert (code, "3 inputs are normalised, but the model takes 2" in err) == (3, True)
