"""Enclosures of logits: the function, the command, and its files. Every one contains what exact rationals give."""

from __future__ import annotations

import csv
import io
import itertools
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import ran

from intervalcert import InputError, Network, UsageError, evaluate
from intervalcert.numbers.parsing import parse_rational

BACKENDS = ("float64", "arb", "exact", "mpmath")
SLOPES = {"relu": (0, 1), "leaky_relu:1/7": (Fraction(1, 7), 1), "leaky_relu:-3/2": (Fraction(-3, 2), 1)}


def bent(name: str, x: Fraction) -> Fraction:
    if name == "hard_tanh":
        return max(Fraction(-1), min(Fraction(1), x))
    if name == "identity":
        return x
    below, above = SLOPES[name]
    return x * (above if x > 0 else below)


def exact(layers: list[Any], biases: list[Any], name: str, x: list[Fraction]) -> list[list[Fraction]]:
    """W·h + b of each layer, by plain loops."""
    found = []
    for index, (w, b) in enumerate(zip(layers, biases, strict=True)):
        z = [
            sum((Fraction(a) * h for a, h in zip(row, x, strict=True)), Fraction(0)) + (0 if b is None else Fraction(c))
            for row, c in zip(w, w if b is None else b, strict=True)
            for c in [0 if b is None else c]
        ]
        found.append(z)
        x = [bent(name, value) for value in z] if index < len(layers) - 1 else z
    return found


def random_case(seed: int) -> tuple[list[Any], list[Any], str, np.ndarray]:
    rng = np.random.default_rng(seed)
    sides = [int(k) for k in rng.integers(1, 7, rng.integers(1, 4))] + [int(rng.integers(2, 5))]
    power = int(rng.choice([0, 0, 0, -300, 40]))
    layers = [
        np.ldexp(rng.standard_normal((after, before)), power).tolist() for before, after in itertools.pairwise(sides)
    ]
    biases = [
        None if rng.random() < 0.3 else (rng.standard_normal(after) * rng.choice([1.0, 1e6])).tolist()
        for after in sides[1:]
    ]
    name = [*SLOPES, "hard_tanh", "identity"][seed % 5]
    return layers, biases, name, rng.standard_normal((3, sides[0])) * rng.choice([1e-8, 1.0, 1e8])


@pytest.mark.parametrize("backend", BACKENDS)
def test_every_layer_is_enclosed(backend: str) -> None:
    for seed in range(40 if backend != "mpmath" else 10):
        layers, biases, name, inputs = random_case(seed)
        found = evaluate(Network.from_arrays(layers, biases, between=name), inputs, backend=backend)
        for row, x in enumerate(inputs.tolist()):
            for index, values in enumerate(exact(layers, biases, name, list(map(Fraction, x)))):
                for k, value in enumerate(values):
                    low, high = float(found.lower[index][row, k]), float(found.upper[index][row, k])
                    assert Fraction(low) <= value <= Fraction(high), (seed, index, row, k)
                    if backend != "float64":  # the two floats around it, or one further
                        assert high <= np.nextafter(np.nextafter(np.nextafter(low, np.inf), np.inf), np.inf)


def test_float64_is_narrow_on_usual_numbers() -> None:
    rng = np.random.default_rng(0)
    network = Network.from_arrays([rng.standard_normal((20, 30)), rng.standard_normal((5, 20))])
    found = evaluate(network, rng.standard_normal((100, 30)))
    assert [low.shape for low in found.lower] == [(100, 20), (100, 5)]
    assert (found.upper[-1] - found.lower[-1]).max() < 1e-9


def test_inputs_of_all_kinds() -> None:
    """Decimals at what they say, integers with a scale, single rows, many blocks."""
    network = Network.from_arrays([np.array([[1.0, 2.0], [3.0, -1.0]])])
    for inputs, scale, expected in (
        ([["0.1", "1/3"]], None, (Fraction(1, 10) + Fraction(2, 3), Fraction(3, 10) - Fraction(1, 3))),
        ([0.1, 0.25], None, (Fraction(0.1) + Fraction(1, 2), 3 * Fraction(0.1) - Fraction(1, 4))),
        (np.array([[51, 255]], dtype=np.uint8), "1/255", (Fraction(11, 5), Fraction(-2, 5))),
        (np.array([2**62 + 1, 0]), 1, (Fraction(2**62 + 1), Fraction(3 * (2**62 + 1)))),
        (np.array([0.5, 0.25], dtype=np.float16), "-1/3", (Fraction(-1, 3), Fraction(-5, 12))),
    ):
        for backend in BACKENDS:
            found = evaluate(network, inputs, scale=scale, backend=backend)
            for k, value in enumerate(expected):
                assert Fraction(found.lower[0][0, k]) <= value <= Fraction(found.upper[0][0, k])
                assert found.upper[0][0, k] - found.lower[0][0, k] <= 1e-14 * max(1.0, abs(float(value)))
    many = np.random.default_rng(1).standard_normal((333, 2))
    found = evaluate(network, many)
    assert found.lower[0].shape == (333, 2)
    for row in (0, 63, 64, 65, 332):
        value = Fraction(many[row, 0]) + 2 * Fraction(many[row, 1])
        assert Fraction(found.lower[0][row, 0]) <= value <= Fraction(found.upper[0][row, 0])


def test_what_cannot_be_evaluated() -> None:
    network = Network.from_arrays([np.eye(2), np.eye(2)])
    for inputs in (np.ones((1, 3)), np.array([[1.0, np.nan]]), [["x", 1]], np.ones((0, 2)), np.array([[1, 2]])):
        with pytest.raises(InputError):
            evaluate(network, inputs)
    with pytest.raises(UsageError):
        evaluate(network, np.ones((1, 2)), backend="float32")
    for between in ("group_sort", "min_max"):
        with pytest.raises(InputError, match="layer 0"):
            evaluate(Network.from_arrays([np.eye(2), np.eye(2)], between=between), np.ones((1, 2)))


# -- the command -----------------------------------------------------------------------------------------------------

W0, W1, B0 = [[1.1, 2.3], [3.7, -1.9], [0.3, 0.3]], [[1.0, 0.0, 0.1], [0.0, 1.0, 0.1], [0.7, 0.7, 0.1]], [0.1, 0.2, 0.3]
POINTS = [[1.0, 2.0], [3.0, 1.0], [1e-9, 1e-9], [1e300, 1e299]]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    np.savez("model.npz", W0=np.array(W0), b0=np.array(B0), W1=np.array(W1))
    np.savez("same.npz", W0=np.array([[1.0], [1.0], [0.5]]))
    np.save("x.npy", np.array(POINTS))
    np.save("one.npy", np.array([[1.0]]))
    np.save("bytes.npy", np.array([[1, 2]], dtype=np.uint8))
    np.save("three.npy", np.ones((2, 3)))
    np.save("nan.npy", np.array([[1.0, np.nan]]))
    np.save("none.npy", np.ones((0, 2)))
    Path("x.csv").write_text("".join(f"{a!r},{b!r}\n" for a, b in POINTS))
    return tmp_path


def check_lines(text: str, layers: list[Any], biases: list[Any], points: list[list[Fraction]]) -> None:
    """The decimals of each line enclose the exact logits, and name a winner only if it is one."""
    header, *rows = csv.reader(io.StringIO(text))
    classes = len(layers[-1])
    assert header == ["index", "argmax", *(f"{end}{k}" for k in range(classes) for end in ("lower", "upper"))]
    assert [row[0] for row in rows] == [str(k) for k in range(len(points))]
    for row, x in zip(rows, points, strict=True):
        logits = exact(layers, biases, "relu", x)[-1]
        ends = [parse_rational(text) for text in row[2:]]
        for k, value in enumerate(logits):
            assert ends[2 * k] <= value <= ends[2 * k + 1], row
        best = max(range(classes), key=lambda k: logits[k])
        apart = all(ends[2 * best] > ends[2 * k + 1] for k in range(classes) if k != best)
        assert row[1] == (str(best) if apart else ""), row


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("table", ["x.npy", "x.csv"])
def test_text_is_rounded_outward(backend: str, table: str, files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """x.csv is read as decimals: 1e-9 there is not the float."""
    points = [[Fraction(x) if table == "x.npy" else Fraction(repr(x)) for x in row] for row in POINTS]
    said = f"inputs from 1e-9 to {'1e+300' if table == 'x.csv' else '1.00001e+300'}, as they are given\n"
    code, out, err = ran(capsys, "evaluate", "model.npz", table, "--backend", backend)
    assert (code, err) == (0, said)
    check_lines(out, [W0, W1], [B0, None], points)
    code, printed, err = ran(capsys, "evaluate", "model.npz", table, "--backend", backend, "-o", "out.csv")
    assert (code, printed, err) == (0, "", f"{said}wrote out.csv\n")
    assert (files / "out.csv").read_text() == out


def test_arrays_hold_the_same(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for backend in ("float64", "arb"):
        for name in ("out.npy", "out.npz"):
            assert ran(capsys, "evaluate", "model.npz", "x.npy", "--backend", backend, "-o", name)[0] == 0
        found = evaluate(
            Network.from_arrays([np.array(W0), np.array(W1)], [np.array(B0), None]), np.array(POINTS), backend=backend
        )
        ends = np.load("out.npy")
        assert ends.shape == (4, 3, 2)
        assert (ends == np.stack([found.lower[-1], found.upper[-1]], axis=2)).all()
        with np.load("out.npz") as layers:
            assert sorted(layers.files) == ["lower0", "lower1", "upper0", "upper1"]
            for index in (0, 1):
                assert (layers[f"lower{index}"] == found.lower[index]).all()
                assert (layers[f"upper{index}"] == found.upper[index]).all()
        for row, x in enumerate(POINTS):
            values = exact([W0, W1], [B0, None], "relu", list(map(Fraction, x)))
            for k, value in enumerate(values[-1]):
                assert Fraction(ends[row, k, 0]) <= value <= Fraction(ends[row, k, 1])


def test_no_winner_is_named_where_logits_are_equal(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for backend in BACKENDS:
        code, out, _ = ran(capsys, "evaluate", "same.npz", "one.npy", "--backend", backend)
        assert code == 0
        assert out.splitlines()[1].split(",")[:2] == ["0", ""]


def test_many_rows_are_numbered_throughout(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save("many.npy", np.random.default_rng(2).standard_normal((150, 2)))
    code, out, _ = ran(capsys, "evaluate", "model.npz", "many.npy")
    assert code == 0
    points = [[Fraction(x) for x in row] for row in np.load("many.npy").tolist()]
    check_lines(out, [W0, W1], [B0, None], points)


def test_a_scale_is_exact(files: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ran(capsys, "evaluate", "model.npz", "bytes.npy", "--input-scale", "1/255", "--backend", "exact")
    assert code == 0
    check_lines(out, [W0, W1], [B0, None], [[Fraction(1, 255), Fraction(2, 255)]])


@pytest.mark.parametrize(
    ("code", "says", "argv"),
    [
        (2, "there is no backend", ("model.npz", "x.npy", "--backend", "float32")),
        (2, ".npz", ("model.npz", "x.npy", "-o", "out.txt")),
        (2, "is an input", ("model.npz", "x.npy", "-o", "x.npy")),
        (2, "is an input", ("model.npz", "x.npy", "-o", "model.npz")),
        (2, "required", ("model.npz",)),
        (3, "scale", ("model.npz", "bytes.npy")),
        (3, "3 numbers per input", ("model.npz", "three.npy", "-o", "out.npz")),
        (3, "nan", ("model.npz", "nan.npy", "-o", "out.csv")),
        (3, "non-empty", ("model.npz", "none.npy", "-o", "out.npy")),
        (3, "group_sort", ("model.npz", "x.npy", "--activation", "group_sort")),
        (3, "absent.npy", ("model.npz", "absent.npy", "-o", "out.npy")),
        (3, "--input-scale", ("model.npz", "bytes.npy", "--input-scale", "one")),
    ],
)
def test_what_the_command_refuses(
    code: int, says: str, argv: tuple[str, ...], files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(path.name for path in files.iterdir())
    found, out, err = ran(capsys, "evaluate", *argv)
    assert (found, out) == (code, ""), err
    assert says in err
    assert "Traceback" not in err
    assert sorted(path.name for path in files.iterdir()) == before
