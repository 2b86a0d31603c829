"""Files that are compressed: every format is read as what is in it, from one complete gzip file, within one limit."""

import gzip
import hashlib
import io
import shutil
import tempfile

import numpy as np
import pytest

from intervalcert import InputError, UsageError, compute_bounds, load_bounds, load_model, save_bounds, save_model
from intervalcert.execution.streaming import read_labels, read_outputs
from intervalcert.io import files
from intervalcert.io import models as loaders
from intervalcert.io.models import npz_model
from intervalcert.io.tables import open_rows
from tests.commands import ran
from tests.test_model_files import FIXTURES, MLP, fixture, write_npz


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    """What is unpacked for the while is gone afterwards."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield
    assert list(folder.iterdir()) == []


def packed(path, folder, *, level=9):
    """A compressed copy in that folder."""
    made = folder / f"{path.name}.gz"
    made.write_bytes(gzip.compress(path.read_bytes(), level))
    return made


# -- what is read ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*MLP, "mlp.txt", "mlp.npz"])
def test_a_compressed_model_is_the_same_model(tmp_path, name):
    """Its hash is that of the file that lies there; what belongs to it is looked for beside that."""
    path = packed(fixture(name), tmp_path)
    if (FIXTURES / f"{name}.data").exists():
        shutil.copy(FIXTURES / f"{name}.data", tmp_path)
    plain, found = (load_model(each) for each in (FIXTURES / name, path))
    assert found.content == plain.content
    assert found.shape == plain.shape
    assert [source.name for source in found.sources] == [f"{name}.gz", *(s.name for s in plain.sources[1:])]
    assert found.sources[0].sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_compressed_array_and_biases(tmp_path):
    weights = np.arange(6.0).reshape(2, 3)
    np.save(tmp_path / "w.npy", weights)
    (tmp_path / "b.txt").write_text("[1,2.5]")
    plain = load_model(tmp_path / "w.npy", tmp_path / "b.txt")
    found = load_model(packed(tmp_path / "w.npy", tmp_path), packed(tmp_path / "b.txt", tmp_path))
    assert found.content == plain.content
    assert [source.name for source in found.sources] == ["w.npy.gz", "b.txt.gz"]


def test_tables_labels_and_bounds(tmp_path, capsys):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    logits = np.random.default_rng(1).normal(size=(50, 3))
    np.save(tmp_path / "y.npy", logits)
    np.savetxt(tmp_path / "y.csv", logits, delimiter=",", fmt="%.6f")
    pq.write_table(pa.table({f"c{i}": logits[:, i] for i in range(3)}), tmp_path / "y.parquet")
    np.save(tmp_path / "labels.npy", logits.argmax(axis=1))
    np.savetxt(tmp_path / "labels.txt", logits.argmax(axis=1), fmt="%d")
    exact = read_outputs(tmp_path / "y.npy", 3).rows
    for name in ("y.npy", "y.csv", "y.parquet"):
        assert [r.numerators for r in read_outputs(packed(tmp_path / name, tmp_path), 3).rows] == [
            r.numerators for r in read_outputs(tmp_path / name, 3).rows
        ]
        assert open_rows(tmp_path / f"{name}.gz", 3).path == tmp_path / f"{name}.gz"
    for name in ("labels.npy", "labels.txt"):
        assert read_labels(packed(tmp_path / name, tmp_path), 50, 3) == tuple(logits.argmax(axis=1).tolist())
    bounds = compute_bounds(load_model(write_npz(tmp_path / "m.npz", W1=np.ones((3, 2)))), "float64")
    save_bounds(bounds, tmp_path / "b.json")
    assert load_bounds(packed(tmp_path / "b.json", tmp_path)) == bounds
    words = ("certify", tmp_path / "b.json.gz", tmp_path / "y.csv.gz", "--labels", tmp_path / "labels.txt.gz")
    code, out, err = ran(capsys, *words, "--eps", "0", "--json")
    assert (code, '"accuracy": 1.0' in out) == (0, True), err
    assert len(exact) == 50


def test_a_table_may_be_left_before_its_end(tmp_path, monkeypatch):
    """What was unpacked is cleared away all the same (see the fixture)."""
    monkeypatch.setattr("intervalcert.io.tables.numpy_rows.CHUNK_CELLS", 3)
    np.save(tmp_path / "y.npy", np.eye(3))
    path = packed(tmp_path / "y.npy", tmp_path)
    open_rows(path, 3)
    chunks = open_rows(path, 3).chunks
    next(chunks)
    del chunks


# -- what is refused -------------------------------------------------------------------------------------------------


def test_messages_name_the_file_that_lies_there(tmp_path, capsys):
    (tmp_path / "y.csv").write_text("1,2,3\n1,2,x\n")
    np.save(tmp_path / "y.npy", np.array([[1.0, np.nan, 2.0]]))
    (tmp_path / "m.onnx").write_bytes(b"\x08nothing")
    (tmp_path / "b.json").write_text("{}")
    good = tmp_path / "good.json"
    save_bounds(compute_bounds(load_model(write_npz(tmp_path / "m.npz", W1=np.ones((3, 2)))), "float64"), good)
    for name, words in {
        "y.csv": ("radius", good),
        "y.npy": ("radius", good),
        "m.onnx": ("inspect",),
        "b.json": ("radius",),
    }.items():
        path = packed(tmp_path / name, tmp_path)
        code, _, err = ran(capsys, *words, path, *([path] if name == "b.json" else []))
        assert code == 3
        assert str(path) in err
        assert "temporary" not in err


def test_hints_are_checked_by_what_is_inside(tmp_path):
    with pytest.raises(
        UsageError, match=r"--activation is not for an ONNX model \(.onnx\), as .*mlp_dynamo.onnx.gz is"
    ):
        load_model(packed(fixture("mlp_dynamo.onnx"), tmp_path), activation="relu")


def test_every_truncation_is_refused(tmp_path):
    path = packed(FIXTURES / "mlp.txt", tmp_path)
    whole = path.read_bytes()
    for cut in (*range(20), *range(20, len(whole), 97), *range(len(whole) - 12, len(whole))):
        path.write_bytes(whole[:cut])
        with pytest.raises(InputError, match=r"mlp\.txt\.gz is not a complete gzip file"):
            load_model(path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: data + b"\0", "something follows"),
        (lambda data: data + b"more", "something follows"),
        (lambda data: data + gzip.compress(b"[[1,2]]"), "something follows"),
        (lambda data: data + bytes(2**21), "something follows"),
        (lambda data: data[:-8] + b"\0\0\0\0" + data[-4:], "not a complete gzip file: .*incorrect data check"),
        (lambda data: data[:-4] + b"\0\0\0\0", "not a complete gzip file: .*incorrect length check"),
        (lambda _: b"[[1,2],[3,4]]", "not a complete gzip file: .*incorrect header check"),
        (lambda data: gzip.compress(data), "compressed by gzip, as its name does not say"),
    ],
)
def test_other_files_are_refused(tmp_path, change, said):
    path = tmp_path / "m.txt.gz"
    path.write_bytes(change(gzip.compress(b"[[1,2],[3,4]]")))
    with pytest.raises(InputError, match=rf"m\.txt\.gz.*{said}"):
        load_model(path)


def test_a_gzip_file_must_say_so(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(gzip.compress(fixture("mlp_dynamo.onnx").read_bytes()))
    with pytest.raises(InputError, match="compressed by gzip, as its name does not say"):
        load_model(path)


# -- how much it may grow --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["m.npz.gz", "y.csv.gz", "b.json.gz", "m.onnx.gz"])
def test_a_bomb_is_not_unpacked(tmp_path, monkeypatch, name):
    written = []
    monkeypatch.setattr(files, "FREE_BYTES", 2**16)
    monkeypatch.setattr(
        files, "check_growth", lambda *each, check=files.check_growth: (written.append(each), check(*each))
    )
    path = tmp_path / name
    path.write_bytes(gzip.compress(b"0,0,0\n" * 2**21))
    read = {"y": lambda: open_rows(path, 3), "b": lambda: load_bounds(path)}.get(name[0], lambda: load_model(path))
    with pytest.raises(
        InputError, match=r"unpacks to more than 64 times as many \(\d+ or more\): .*save it uncompressed"
    ):
        read()
    assert max(unpacked for _, unpacked, _ in written) <= 64 * path.stat().st_size + 2**20


@pytest.mark.parametrize("name", ["m.npz", "m.npy.gz"])
def test_more_weights_than_such_a_file_can_need_are_refused(tmp_path, monkeypatch, name):
    """Reading them is cheap, bounding them is not: a tiny file must not ask for hours."""
    path, weights = tmp_path / name, np.ones((100, 90), np.int8)
    if name == "m.npz":
        np.savez_compressed(path, W0=weights)
    else:
        write_packed_array(path, weights)
    assert load_model(path).inputs == 90
    for module in (loaders, npz_model):
        monkeypatch.setattr(module, "FREE_NUMBERS", 2000)
    with pytest.raises(InputError, match=rf"{name} has \d+ bytes for 9000 weights: at most 2000.*save it uncompressed"):
        load_model(path)
    np.save(tmp_path / "m.npy", weights)
    again = load_model(tmp_path / "m.npy")
    save_model(again, tmp_path / "again.npz")
    assert load_model(tmp_path / "again.npz").content == again.content, "what we write ourselves, we read"


def write_packed_array(path, array):
    made = io.BytesIO()
    np.save(made, array)
    path.write_bytes(gzip.compress(made.getvalue()))


def test_an_archive_that_is_compressed_twice_counts_as_one(tmp_path, monkeypatch):
    """Rows that are alike shrink in their member, and members that are alike in the whole."""
    monkeypatch.setattr(files, "FREE_BYTES", 2**16)
    path, row = tmp_path / "m.npz", np.random.default_rng(1).normal(size=32)
    np.savez_compressed(path, **{f"W{i}": np.tile(row, (32, 1)) for i in range(100)})
    assert load_model(path).outputs == 32
    both = packed(path, tmp_path)
    assert both.stat().st_size * 4 < path.stat().st_size
    with pytest.raises(InputError, match=r"m\.npz\.gz has \d+ bytes and unpacks to more"):
        load_model(both)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "float16", "S1"])
def test_numbers_are_counted_not_bytes(tmp_path, monkeypatch, dtype):
    """Of 16,384 numbers each takes 4 bytes at least, one written as text 32, however it is stored."""
    path = tmp_path / "m.npz"
    np.savez_compressed(path, W0=np.ones((128, 128)).astype(dtype))
    count = 16_384 * (32 if dtype == "S1" else 4)
    assert path.stat().st_size < 1000
    monkeypatch.setattr(files, "FREE_BYTES", count)
    assert load_model(path).outputs == 128
    monkeypatch.setattr(files, "FREE_BYTES", count - 1)
    with pytest.raises(InputError, match=f"unpacks to more .*{count} or more"):
        load_model(path)


def test_pruned_networks_are_read(tmp_path, monkeypatch):
    """Of float32 weights 98 of 100 are zero."""
    monkeypatch.setattr(files, "FREE_BYTES", 0)
    rng = np.random.default_rng(2)
    weights = np.where(rng.random((500, 500)) < 0.02, rng.normal(size=(500, 500)), 0).astype(np.float32)
    np.savez_compressed(tmp_path / "m.npz", W0=weights)
    assert weights.nbytes > 30 * (tmp_path / "m.npz").stat().st_size
    assert load_model(tmp_path / "m.npz").inputs == 500
    np.savez(tmp_path / "m.npz", W0=weights)
    assert load_model(packed(tmp_path / "m.npz", tmp_path)).inputs == 500
