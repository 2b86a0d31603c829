"""Programs in floats on the command line: files in, verdicts out with their semantics, and whatever is refused."""

import json
import math
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from commands import ran

from intervalcert import certify_deployed, certify_inputs, compute_bounds, load_model, save_bounds
from intervalcert.numbers.float_formats import FORMATS


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.savez("model.npz", W0=np.array([[1.0, 2.0], [3.0, -1.0]]), W1=np.eye(2))
    np.savez("tenths.npz", W0=np.array([[0.1, 0.2], [0.3, -0.1]]), W1=np.eye(2))
    np.savez("wide.npz", W0=np.ones((2, 300)))
    np.save("wide.npy", np.ones((1, 300)))
    np.save("x.npy", np.array([[1.0, 2.0], [3.0, 1.0], [1.0, 0.35]]))
    np.save("bytes.npy", np.array([[1, 2], [3, 1], [2, 1]], dtype=np.uint8))
    np.save("three.npy", np.ones((2, 3)))
    np.save("nan.npy", np.array([[1.0, np.nan]]))
    np.save("large.npy", np.array([[1e6, 0.0]]))
    np.save("y.npy", np.array([[5.0, 1.0], [5.0, 8.0], [1.7, 2.65]]))
    (tmp_path / "y.txt").write_text("5,1 0.1\n5,8 0.2\n1.7,2.65 1\n")
    return tmp_path


FROM_INPUTS = ("certify", "--model", "model.npz", "--inputs", "x.npy", "--jobs", "1")
FROM_LOGITS = ("certify", "y.npy", "--model", "model.npz")


@pytest.mark.parametrize("name", ["real", *FORMATS])
def test_every_output_says_what_it_is_about(name: str, files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from pyarrow import parquet

    both = [(*FROM_INPUTS, "--deployed", name)]
    if name != "real":
        both.append((*FROM_LOGITS, "--deployed", name, "--input-norm", "4"))
    for argv in both:
        argv = (*argv, "--eps", "0.25")
        code, out, err = ran(capsys, *argv)
        assert (code, err) == (0, "")
        assert name in out.split()
        assert "input space" in out
        code, out, _ = ran(capsys, *argv, "--json")
        shown = json.loads(out)
        assert (shown["semantics"], shown["eps_space"], shown["norm"], shown["eps"]) == (name, "input", "L2", "0.25")
        assert (shown["certified"], shown["total"]) == (2, 3)
        for ending in ("csv", "jsonl", "npy", "parquet"):
            path = files / f"out.{ending}"
            assert ran(capsys, *argv, "-o", path)[::2] == (0, f"wrote {path}\n")
        lines = [line.split(",") for line in (files / "out.csv").read_text().split()]
        assert lines[0] == ["index", "argmax", "verdict", "radius", "semantics", "eps_space"]
        assert [line[4:] for line in lines[1:]] == [[name, "input"]] * 3
        assert [line[2] for line in lines[1:]] == ["certified", "certified", "not_certified"]
        rows = [json.loads(line) for line in (files / "out.jsonl").read_text().splitlines()]
        assert [(row["semantics"], row["eps_space"]) for row in rows] == [(name, "input")] * 3
        records = np.load(files / "out.npy")
        assert records["semantics"].tolist() == [name.encode()] * 3
        assert records["eps_space"].tolist() == [b"input"] * 3
        assert records["certified"].tolist() == [True, True, False]
        table = parquet.read_table(files / "out.parquet").to_pylist()
        assert [(row["semantics"], row["eps_space"]) for row in table] == [(name, "input")] * 3


@pytest.mark.parametrize("name", FORMATS)
def test_check_tells_by_the_exit_code(name: str, files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (FROM_INPUTS, (*FROM_LOGITS, "--input-norm", "1")):
        argv = (*argv, "--deployed", name, "--check")
        assert ran(capsys, *argv, "--eps", "0.25")[0] == 1
        assert ran(capsys, *argv, "--eps", "0.001")[0] == 0


def test_the_commands_and_the_functions_agree(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    network = load_model("model.npz")
    norm = Fraction(math.isqrt(2 * 9 * 10**40), 10**20) + Fraction(1, 10**19)
    ran(capsys, *FROM_INPUTS, "--deployed", "float16", "--eps", "0.25", "-o", "a.npy")
    ran(capsys, *FROM_LOGITS, "--deployed", "float16", "--eps", "0.25", "--input-box", "-3", "2", "-o", "b.npy")
    ran(capsys, "certify", "y.txt", *FROM_LOGITS[2:], "--deployed", "float16", "--input-box", "-3", "2", "-o", "c.npy")
    inputs = certify_inputs(network, np.load("x.npy"), "0.25", deployed="float16", local=False)
    logits = certify_deployed(network, np.load("y.npy"), "0.25", deployed="float16", input_norm=norm)
    for name, found in (("a.npy", inputs), ("b.npy", logits)):
        assert np.load(name)["radius"].tolist() == pytest.approx(found.radius.tolist(), rel=1e-15)
        assert np.load(name)["certified"].tolist() == found.certified.tolist()
    assert np.load("c.npy")["certified"].tolist() == [True, True, False]


def refusals() -> Iterator[tuple[int, str, tuple[str, ...]]]:
    """Exit code, what the message says, and the command."""
    inputs = ("certify", "--model", "model.npz", "--inputs")
    logits = ("certify", "y.npy", "--model", "model.npz", "--eps", "0.1", "--deployed", "float32")
    eps = ("--eps", "0.1", "--deployed", "float32")
    yield 2, "invalid choice", (*inputs, "x.npy", "--eps", "0.1", "--deployed", "float8")
    yield 2, "--eps", (*inputs, "x.npy", "--deployed", "float32")
    yield 2, "--model", ("certify", "--inputs", "x.npy", *eps)
    yield 2, "--model", ("certify", "y.npy", "--input-norm", "1", *eps)
    yield 2, "--input-norm", logits
    yield 2, "--input-norm", (*logits, "--input-norm", "1", "--input-box", "0", "1")
    yield 2, "--input-norm", (*inputs, "x.npy", *eps, "--input-norm", "1")
    yield 3, "is not between 0 and 1", (*inputs, "x.npy", *eps, "--input-box", "0", "1")
    yield 2, "--local", (*logits, "--input-norm", "1", "--local")
    yield 2, "--input-scale", (*logits, "--input-norm", "1", "--input-scale", "1")
    yield 2, "exclude", (*inputs, "x.npy", "bounds.json", "y.npy", *eps)
    yield 3, "scale", (*inputs, "bytes.npy", *eps)
    yield 3, "3 numbers per input", (*inputs, "three.npy", *eps)
    yield 3, "nan", (*inputs, "nan.npy", *eps)
    yield (
        3,
        "beyond float16",
        (*inputs, "large.npy", "--input-scale", "1", *eps, "--jobs", "1", "--deployed", "float16"),
    )
    yield 3, "tanh", (*inputs, "x.npy", *eps, "--activation", "tanh")
    yield 3, "elu", (*inputs, "x.npy", *eps, "--activation", "elu:1")
    yield 3, "negative", (*inputs, "x.npy", "--eps", "-1", "--deployed", "float32")
    yield 3, "negative", (*logits, "--input-norm", "-1")
    yield 3, "--input-norm", (*logits, "--input-norm", "nan")
    yield 3, "--input-norm", (*logits, "--input-norm", "much")
    yield 3, "--input-box", (*logits, "--input-box", "0", "inf")
    yield 3, "--input-box", (*logits, "--input-box", "1", "0")
    yield 3, "3 logits", ("certify", "three.npy", "--model", "model.npz", *eps, "--input-norm", "1")
    yield 3, "nan", ("certify", "nan.npy", "--model", "model.npz", *eps, "--input-norm", "1")
    yield 3, "not float32 numbers", ("certify", "bounds.json", "--model", "tenths.npz", "--inputs", "x.npy", *eps)
    yield 3, "another model", ("certify", "bounds.json", *inputs[1:], "x.npy", *eps)


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_format_too_coarse_is_said(jobs: str, files: Path, capfd: pytest.CaptureFixture[str]) -> None:
    wide = ("certify", "--model", "wide.npz", "--inputs", "wide.npy", "--eps", "0.1", "--deployed", "bfloat16")
    code, out, err = ran(capfd, *wide, "--jobs", jobs, "--json")
    assert (code, json.loads(out)["certified"]) == (0, 0)
    assert "too coarse" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("code", "says", "argv"), list(refusals()), ids=lambda x: " ".join(x) if isinstance(x, tuple) else ""
)
def test_what_is_refused(
    code: int, says: str, argv: tuple[str, ...], files: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    save_bounds(compute_bounds(load_model("tenths.npz")), "bounds.json")
    found, out, err = ran(capfd, *argv, "-o", "out.csv")
    assert found == code, err
    assert out == ""
    assert says in err, err
    assert "Traceback" not in err
    assert not (files / "out.csv").exists()


@pytest.mark.parametrize("box", [("-3", "2"), ("-5/2", "5/2"), ("-1e-1", "0.1"), ("-.5", "0"), ("-2", "-1")])
def test_boxes_may_begin_below_zero(box: tuple[str, str], files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = ran(capsys, *FROM_LOGITS, "--deployed", "float32", "--eps", "0.1", "--input-box", *box, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["certified"] == 3


def test_scaled_bytes(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ("certify", "--model", "model.npz", "--inputs", "bytes.npy", "--input-scale", "1/255", "--jobs", "1")
    code, out, _ = ran(capsys, *argv, "--eps", "1e-4", "--deployed", "float32", "--json")
    assert code == 0
    assert json.loads(out)["certified"] == 3
