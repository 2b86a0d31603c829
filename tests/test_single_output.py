"""A single output y: class 1 if y > threshold, else class 0; or a number, whose Lipschitz constant is all there is.

Everything is compared with what plain loops over rationals say of y and the threshold, and with what a search finds.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import pickle
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import ran
from hypothesis import example, given
from hypothesis import strategies as st
from test_deployed import UNITS, Array, Order, Program, Tally, near_boundaries, orders, rounded, search, without_errors

from intervalcert import (
    InputError,
    Network,
    UsageError,
    audit,
    certified_radius,
    certify,
    certify_deployed,
    certify_inputs,
    compute_bounds,
    evaluate,
    load_bounds,
    load_model,
    save_bounds,
    save_model,
)
from intervalcert.api import vectorised_certifier
from intervalcert.bounds.results import Bounds
from intervalcert.io.models.assembly import Assembly
from intervalcert.io.models.interface import Hints
from intervalcert.io.tables import open_rows
from intervalcert.model.layers import INPUT, Layer
from intervalcert.model.network import Source
from intervalcert.model.single import Single
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.rounding import float_below
from intervalcert.numbers.text import decimal_upper
from intervalcert.verify.number_table import Epsilons, NumberTable

THRESHOLDS = [Fraction(0), Fraction(1, 2), Fraction(1, 3), Fraction(-7, 4), Fraction(10) ** 30, Fraction(1, 10**40)]

W0, B0 = np.array([[1, -2], [3, 1], [-1, 1]]), np.array([1, 0, -1])
W1, B1 = np.array([[2, -1, 3]]), np.array([-1])


def network(**options: Any) -> Network:
    return Network.from_arrays([W0, W1], [B0, B1], **options)


def value(x: tuple[Fraction, ...]) -> Fraction:
    """The output of `network`, by plain loops."""
    h = [max(Fraction(0), row[0] * x[0] + row[1] * x[1] + b) for row, b in zip(W0.tolist(), B0.tolist(), strict=True)]
    return sum((a * b for a, b in zip(W1[0].tolist(), h, strict=True)), Fraction(B1.item()))


def points() -> list[tuple[Fraction, ...]]:
    return list(itertools.product([Fraction(k, 4) for k in range(-8, 9)], repeat=2))


def random_network(seed: int, **options: Any) -> Network:
    rng = np.random.default_rng(seed)
    sides = [int(k) for k in rng.integers(1, 7, rng.integers(1, 4))] + [1]
    weights = [rng.standard_normal((after, before)) for before, after in itertools.pairwise(sides)]
    biases = None if seed % 3 == 0 else [rng.standard_normal(len(w)) for w in weights]
    return Network.from_arrays(weights, biases, **options)


def two_outputs(one: Network) -> Network:
    """The same network made by hand: weights of zeros and the threshold, and then the output."""
    assert one.single is not None
    *before, last = one.model_layers
    weights = [layer.weights for layer in before]
    biases = [layer.bias for layer in before]
    row = [float(last.weights[0, k]) for k in range(last.weights.shape[1])]
    weights.append(RationalMatrix.from_floats(np.array([[0.0] * len(row), row])))
    own = Fraction(0) if last.bias is None else last.bias[0, 0]
    biases.append(RationalMatrix.from_fractions([[one.single.constant], [own]]))
    return Network.of(weights, biases)


# -- what is certified -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threshold", [*THRESHOLDS[:4], value((Fraction(1, 4), Fraction(1))), Fraction(40)], ids=str)
def test_no_point_near_a_certified_one_is_in_the_other_class(threshold):
    """All pairs of a grid: from the exact output, and from the input, at radii next to the distance of the others."""
    bounds = compute_bounds(network(threshold=threshold))
    known = {x: value(x) for x in points()}
    outputs = list(known.values())
    radii = certified_radius(bounds, outputs)
    for (x, y), radius, verdict in zip(known.items(), radii, certify(bounds, outputs, radii), strict=True):
        assert verdict.argmax == (1 if y > threshold else 0)
        assert verdict.certified == (y != threshold) == (radius > 0)
        reach = Fraction(radius) ** 2
        near = [other for other in known if sum((a - b) ** 2 for a, b in zip(x, other, strict=True)) <= reach]
        assert y == threshold or all((known[other] - threshold) * (y - threshold) > 0 for other in near), "nor a tie"
    assert any(radius >= 0.25 for radius in radii), "some balls hold other points of the grid"
    found = certify_inputs(network(threshold=threshold), [list(x) for x in known], "1/5", bounds=bounds, local=True)
    for (x, y), verdict in zip(known.items(), found, strict=True):
        assert verdict.argmax == (1 if y > threshold else 0)
        if verdict.certified:  # neither the other class nor a tie on the rim of the ball
            rim = [tuple(a + step / 5 for a, step in zip(x, way, strict=True)) for way in WAYS]
            assert all((value(u) - threshold) * (y - threshold) > 0 for u in rim)
    assert any(verdict.locally for verdict in found) == (threshold < 40), "which is beyond the grid"


WAYS = [(Fraction(3, 5), Fraction(4, 5)), (Fraction(-4, 5), Fraction(3, 5)), (Fraction(1), Fraction(0))]
WAYS += [(-a, -b) for a, b in WAYS] + [(b, a) for a, b in WAYS]


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("threshold", THRESHOLDS, ids=str)
def test_it_is_the_network_of_a_constant_and_the_output(seed, threshold):
    one = random_network(seed, threshold=threshold)
    two = two_outputs(one)
    assert one.outputs == 2
    for options in ({}, {"margins": "product"}, {"backend": "float64"}, {"backend": "exact", "margins": "chain"}):
        assert compute_bounds(one, **options).margins.matrix == compute_bounds(two, **options).margins.matrix
    inputs = np.random.default_rng(seed).standard_normal((6, one.inputs))
    for eps in (0, "0.05"):
        for local in (False, True):
            assert certify_inputs(one, inputs, eps, local=local) == certify_inputs(two, inputs, eps, local=local)


def test_the_margin_is_the_lipschitz_constant_of_the_output():
    one = Network.from_arrays([[[3.0, 4.0]]], threshold="2/3")
    assert compute_bounds(one, "exact").margins.matrix == ((0, 5), (5, 0))
    assert certified_radius(compute_bounds(one, "exact"), ["2/3", "8/3", 0]).tolist() == [
        0.0,
        float_below(Fraction(2, 5)),
        float_below(Fraction(2, 15)),
    ]


def test_a_constant_output_is_certified_at_every_radius_unless_it_is_the_threshold():
    still = Network.from_arrays([[[0.0, 0.0]]], [[1.0]], threshold=0)
    assert certified_radius(compute_bounds(still), [1.0]) == (math.inf,)
    tied = Network.from_arrays([[[0.0, 0.0]]], [[1.0]], threshold=1)
    for local in (False, True):
        [verdict] = certify_inputs(tied, [[0.5, 0.5]], 0, local=local)
        assert (verdict.argmax, verdict.certified) == (0, False)


@pytest.mark.parametrize("seed", range(20))
def test_local_certificates_withstand_an_attack(seed):
    """Steps along the gradient towards the threshold, which lies near the output, to the rim of the ball."""
    rng = np.random.default_rng(seed)
    weights = [rng.standard_normal(shape) for shape in ((9, 5), (8, 9), (1, 8))]
    v = rng.standard_normal(5)

    def run(x: Array) -> tuple[float, Array]:
        slopes, h = np.eye(5), x
        for w in weights[:-1]:
            slopes, h = (w @ slopes) * (w @ h > 0)[:, None], np.maximum(w @ h, 0)
        return float((weights[-1] @ h)[0]), (weights[-1] @ slopes)[0]

    y, slope = run(v)
    side = rng.choice([-1.0, 1.0])
    threshold = y + side * rng.choice([0.3, 0.6, 1.0]) * np.linalg.norm(slope) * 0.1
    one = Network.from_arrays(weights, threshold=float(threshold))
    [globally] = certify_inputs(one, v, "0.1")
    [found] = certify_inputs(one, v, "0.1", local=True)
    assert found.certified or not globally.certified
    best = y
    for start in (v, *(v + 0.02 * rng.standard_normal((20, 5)))):
        x = start
        for _ in range(30):
            step = side * run(x)[1]
            x = v + 0.1 * step / max(float(np.linalg.norm(step)), 1e-300)
            best = max(best, run(x)[0], key=lambda reached: side * reached)
    if found.certified:
        assert side * (best - threshold) < 0
        assert found.argmax == (1 if y > threshold else 0)


def test_local_refinement_sees_which_neurons_can_switch():
    """The second one is off all around the point: globally the rate is sqrt(2), there it is 1."""
    one = Network.from_arrays([np.eye(2), [[1.0, -1.0]]], [[9.0, -9.0], [0.0]], threshold=9)
    for x, argmax in ((0.012, 1), (-0.012, 0)):
        found = [certify_inputs(one, [[x, 0.0]], "0.01", local=local)[0] for local in (False, True)]
        assert [(verdict.certified, verdict.argmax) for verdict in found] == [(False, argmax), (True, argmax)]
        assert found[1].locally


# -- tables of outputs -----------------------------------------------------------------------------------------------

BOUNDS = {t: compute_bounds(Network.from_arrays([[[3.0, 4.0]]], threshold=t), "exact") for t in THRESHOLDS}


def expected(outputs, threshold, eps):
    """(argmax, certified, radius) of each, with the Lipschitz constant 5."""
    return [
        (1 if y > threshold else 0, abs(y - threshold) > 5 * eps, float_below(abs(y - threshold) / 5)) for y in outputs
    ]


def found(verdicts):
    return [(verdict.argmax, verdict.certified, verdict.radius) for verdict in verdicts]


@pytest.mark.parametrize("threshold", THRESHOLDS, ids=str)
def test_outputs_of_every_kind_are_read_exactly(threshold, tmp_path, capsys):
    """Flat or in rows; floats of all types, integers, texts; next to the threshold; each with the same verdicts."""
    near = float(threshold)
    values = [0.0, 1.0, -1.0, 0.5, near, math.nextafter(near, 9e99), math.nextafter(near, -9e99), 1e300, -1e-300, 0.1]
    eps, bounds = Fraction(1, 7), BOUNDS[threshold]
    for kind in (np.float64, np.float32, np.float16):
        with np.errstate(over="ignore"):
            floats = np.array(values).astype(kind)
        floats = floats[np.isfinite(floats)]
        wanted = expected([Fraction(float(y)) for y in floats], threshold, eps)
        listed = [float(y) for y in floats]
        columns = floats[:, None]
        for given_as in (
            floats,
            columns,
            np.asfortranarray(columns),
            listed,
            [[y] for y in listed],
            [str(Fraction(y)) for y in listed],
        ):
            assert found(certify(bounds, given_as, eps)) == wanted
            assert list(certified_radius(bounds, given_as)) == [radius for _, _, radius in wanted]
        save_bounds(bounds, tmp_path / "b.json")
        np.save(tmp_path / "flat.npy", floats)
        np.save(tmp_path / "rows.npy", columns)
        (tmp_path / "rows.csv").write_text("y\n" + "".join(f"{y!r}\n" for y in listed))
        (tmp_path / "own.txt").write_text("".join(f"{y!r} 1/7\n" for y in listed))
        decimal = [Fraction(repr(y)) for y in listed]
        for name in ("flat.npy", "rows.npy", "rows.csv", "own.txt"):
            options = [] if name == "own.txt" else ["--eps", "1/7"]
            out = tmp_path / "v.csv"
            assert ran(capsys, "certify", tmp_path / "b.json", tmp_path / name, *options, "-o", out)[0] == 0
            rows = list(csv.DictReader(io.StringIO(out.read_text())))
            exact = wanted if name.endswith("npy") else expected(decimal, threshold, eps)
            assert [(int(row["argmax"]), row["verdict"] == "certified") for row in rows] == [x[:2] for x in exact]
            assert all(Fraction(row["radius"]) <= Fraction(x[2]) for row, x in zip(rows, exact, strict=True))
    integers = np.array([0, 1, -1, 2**62 + 1, -(2**62) - 1])
    assert found(certify(bounds, integers, eps)) == expected([Fraction(int(y)) for y in integers], threshold, eps)


decimals = st.builds(lambda m, e: f"{m}e-{e}" if e > 3 else str(m / 10**e), st.integers(-999, 999), st.integers(0, 6))


@given(
    st.lists(decimals, min_size=1, max_size=6),
    st.fractions(-3, 3, max_denominator=12),
    st.sampled_from(["0", "0.01", "1/3"]),
)
@example(["0.3", "0.30"], Fraction(3, 10), "0")
@example(["0.333333333333333333333333", "0.3333333333333333"], Fraction(1, 3), "0")
def test_lines_of_text_against_any_threshold(tmp_path_factory, lines, threshold, eps):
    """Ties of decimals with the threshold, too."""
    path = tmp_path_factory.getbasetemp() / "lines.txt"
    path.write_text("\n".join(lines) + "\n")
    bounds = replace(BOUNDS[Fraction(0)], single=Single(threshold))
    certifier = vectorised_certifier(bounds)
    radius = Fraction(eps)
    judged = [
        one
        for rows in open_rows(path, certifier.columns).chunks
        for one in certifier.verdicts(rows, Epsilons.all_equal(radius))
    ]
    assert found(judged) == expected([Fraction(line) for line in lines], threshold, radius)


@pytest.mark.parametrize("threshold", ["1e400", "-1e400", "1e300", "1e-400"])
def test_thresholds_beyond_the_floats(threshold, tmp_path):
    bounds = replace(BOUNDS[Fraction(0)], single=Single(Fraction(threshold)))
    lines = ["0.5", "-0.25", "1.00000000000000000001", "7", threshold]
    texts = [lines[:4], lines]
    for some in texts:
        (tmp_path / "y.txt").write_text("\n".join(some) + "\n")
        wanted = expected([Fraction(line) for line in some], Fraction(threshold), 0)
        assert found(certify(bounds, some, 0)) == wanted
        certifier = vectorised_certifier(bounds)
        [rows] = open_rows(tmp_path / "y.txt", certifier.columns).chunks
        assert found(certifier.verdicts(rows, Epsilons.all_equal(Fraction(0)))) == wanted
    assert found(certify(bounds, np.array([0.5, 7.0]), 0)) == expected([Fraction(1, 2), 7], Fraction(threshold), 0)


def test_a_table_with_radii_of_its_own(tmp_path, capsys):
    pa = pytest.importorskip("pyarrow", reason="the package pyarrow is not installed")
    from pyarrow import parquet

    save_bounds(BOUNDS[Fraction(1, 2)], tmp_path / "b.json")
    y, eps = [0.5, 0.75, 3.0, -2.0], [0.0, 0.05, 0.4, 0.6]
    parquet.write_table(pa.table({"y": y, "eps": eps}), tmp_path / "y.parquet")
    assert ran(capsys, "certify", tmp_path / "b.json", tmp_path / "y.parquet", "-o", tmp_path / "v.npy")[0] == 0
    verdicts = np.load(tmp_path / "v.npy")
    assert verdicts["certified"].tolist() == [False, False, True, False]  # 1/4 is not above 5·0.05, as a float
    assert verdicts["argmax"].tolist() == [0, 1, 1, 0]


def test_labels_are_0_and_1(tmp_path, capsys):
    save_bounds(BOUNDS[Fraction(1, 2)], tmp_path / "b.json")
    (tmp_path / "y.txt").write_text("0.5\n0.6\n9\n-9\n")
    for labels, right in (("0 1 1 0", 1.0), ("1 1 1 1", 0.5)):
        (tmp_path / "l.txt").write_text(labels.replace(" ", "\n"))
        words = ("certify", tmp_path / "b.json", tmp_path / "y.txt", "--eps", "0.1", "--labels", tmp_path / "l.txt")
        code, out, _ = ran(capsys, *words, "--json")
        assert code == 0
        shown = json.loads(out)
        assert (shown["accuracy"], shown["threshold"], shown["certified"]) == (right, "0.5", 2)
    (tmp_path / "l.txt").write_text("0\n1\n2\n0\n")
    code, _, err = ran(capsys, *words)
    assert code == 3
    assert "classes go from 0 to 1" in err
    assert "class 1 if the single output y > 0.5, else class 0" in ran(capsys, *words[:-2])[1]


@pytest.mark.parametrize(
    ("outputs", "said"),
    [
        (np.ones((3, 2)), "2 logits per output"),
        (np.ones((1, 3)), "3 logits per output"),
        ([[1, 2], [3, 4]], "2 logits per output"),
        ([[1], [2, 3]], "row 1 has 2 numbers"),
        (np.array([1.0, np.nan]), "nan in row 1, column 0"),
        (np.array([[1.0], [np.inf]]), "inf in row 1, column 0"),
        (np.ones((2, 2, 1)), "shape"),
        ([], "non-empty"),
        (np.zeros((0, 1)), "non-empty"),
    ],
    ids=str,
)
@pytest.mark.parametrize("threshold", [Fraction(0), Fraction(1, 3)], ids=str)
def test_other_outputs_are_refused(outputs, said, threshold):
    with pytest.raises(InputError, match=said):
        certify(BOUNDS[threshold], outputs, 0)


@pytest.mark.parametrize("name", ["y.npy", "y.csv", "y.parquet"])
def test_tables_of_two_columns_are_refused(tmp_path, capsys, name):
    save_bounds(BOUNDS[Fraction(0)], tmp_path / "b.json")
    if name == "y.npy":
        np.save(tmp_path / name, np.ones((3, 2)))
    elif name == "y.csv":
        (tmp_path / name).write_text("1,2\n3,4\n")
    else:
        pa = pytest.importorskip("pyarrow", reason="the package pyarrow is not installed")
        from pyarrow import parquet

        parquet.write_table(pa.table({"a": [1.0], "b": [2.0]}), tmp_path / name)
    code, _, err = ran(capsys, "certify", tmp_path / "b.json", tmp_path / name, "--eps", "0.1")
    assert code == 3
    assert "2 logits" in err
    assert "single output" in err or "1 are expected" in err


def test_a_vector_is_still_no_table_of_several_classes(tmp_path, capsys):
    save_bounds(compute_bounds(Network.from_arrays([np.eye(2)])), tmp_path / "b.json")
    np.save(tmp_path / "y.npy", np.ones(2))
    code, _, err = ran(capsys, "certify", tmp_path / "b.json", tmp_path / "y.npy", "--eps", "0.1")
    assert code == 3
    assert "shape (2,)" in err


# -- the program in floats -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class OneLogit(Program):
    """A program that compares its only output with a threshold, a number of the format: as a program of two outputs."""

    threshold: float = 0.0

    def network(self) -> Network:
        return Network.from_arrays(
            list(self.weights), list(self.biases), between=self.between, threshold=self.threshold
        )

    def run(self, inputs: Array, order: Order) -> tuple[Array, Array]:
        before, computed = super().run(inputs, order)
        return before, np.vstack([np.full_like(computed, self.threshold), computed])

    def near(self, inputs: Array) -> Array:
        computed = super().near(inputs)
        return np.vstack([np.full_like(computed, self.threshold), computed])

    def slopes(self, x: Array) -> Array:
        found = super().slopes(x)
        return np.vstack([0 * found, found])


def random_one_logit(name: str, seed: int) -> OneLogit:
    """The threshold is what it gives at some input, so that there are boundaries, and may be large beside the rest."""
    rng = np.random.default_rng([seed, 77])
    sides = [int(k) for k in rng.integers(2, 20, rng.integers(1, 4))] + [1]
    weights = [rounded(name, rng.standard_normal((b, a)) / math.sqrt(a)) for a, b in itertools.pairwise(sides)]
    biases = [rounded(name, rng.standard_normal(len(w))) for w in weights]
    biases[-1] = rounded(name, biases[-1] + rng.choice([0.0, 0.0, 500.0]))
    made = OneLogit(name, tuple(weights), tuple(biases), ["relu", "hard_tanh", "identity"][seed % 3])
    middle = float(np.median(made.near(rng.standard_normal((sides[0], 41)))[1]))
    return replace(made, threshold=0.0 if seed % 4 == 0 else float(rounded(name, middle)))


def flips(name: str, seeds: range, *, local: bool = False, logits: bool = False) -> Tally:
    tally = Tally()
    for seed in seeds:
        rng = np.random.default_rng([seed, 78])
        program = random_one_logit(name, seed)
        v = near_boundaries(program, rng, 8)
        made = program.network()
        if logits:
            runs = list(orders(name, seed).values())
            columns = range(v.shape[1])
            y = np.array([float(program.run(v[:, [k]], runs[k % len(runs)])[1][1, 0]) for k in columns])
            norm = Fraction(float(np.linalg.norm(v, axis=0).max()) * (1 + 1e-12))
            verdicts = certify_deployed(made, y, 0, deployed=name, input_norm=norm)
            assert verdicts.argmax.tolist() == (y > program.threshold).tolist()
            radii = verdicts.radius.tolist()
        else:
            radii = [x * (1.1 if local else 1) for x in certify_inputs(made, v.T, 0, deployed=name).radius.tolist()]
            verdicts = certify_inputs(made, v.T, radii, deployed=name, local=local)
        for index, verdict in enumerate(verdicts):
            if verdict.certified and verdict.locally == local:
                tally.certified += 1
                search(program, v[:, index], verdict.argmax, radii[index], tally, seed)
    return tally


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize("how", [{}, {"logits": True}, {"local": True}], ids=["inputs", "logits", "locally"])
def test_programs_never_cross_the_threshold_where_they_are_certified(name, how):
    tally = flips(name, range(20), **how)
    assert tally.wrong == 0, tally
    assert tally.certified >= (1 if name == "bfloat16" else 5), tally


def test_without_the_error_terms_they_do(monkeypatch):
    without_errors(monkeypatch)
    assert flips("float32", range(20)).wrong > 0


@pytest.mark.parametrize("name", ["float32", "bfloat16"])
def test_the_threshold_itself_is_not_off(name):
    """Beside a large threshold an output is certified that differs from it by less than a rounding of both would be."""
    large = 256.0
    program = OneLogit(name, (np.array([[1.0]]),), (np.array([0.0]),), threshold=large)
    above = large * (1 + 4 * UNITS[name])  # the output is off by 2 units, and so would be a threshold that is computed
    assert above == rounded(name, above)
    [verdict] = certify_inputs(program.network(), [[above]], 0, deployed=name, scale=1)
    assert verdict.certified
    [verdict] = certify_inputs(program.network(), [[large]], 0, deployed=name, scale=1)
    assert (verdict.argmax, verdict.certified) == (0, False)


def test_a_threshold_that_is_no_number_of_the_format_is_refused(capsys, tmp_path):
    for threshold, name in (("0.1", "float32"), (1 + 2.0**-30, "float32"), (0.1, "float16"), ("1/3", "float64")):
        with pytest.raises(InputError, match=f"threshold .* is not a number of {name}"):
            certify_inputs(network(threshold=threshold), [[0.5, 0.5]], 0, deployed=name)
    with pytest.raises(InputError, match="the threshold"):
        certify_inputs(network(threshold=1e300), [[0.5, 0.5]], 0, deployed="float32")
    assert certify_inputs(network(threshold=0.1), [[0.5, 0.5]], 0, deployed="float64")[0].certified


# -- files -----------------------------------------------------------------------------------------------------------


def saved(folder: Path, **options: Any) -> tuple[Path, Path, Bounds]:
    model, bounds = folder / "m.npz", folder / "b.json"
    np.savez(model, W0=W0, b0=B0, W1=W1, b1=B1)
    made = compute_bounds(load_model(model, **options))
    save_bounds(made, bounds)
    return model, bounds, made


@pytest.mark.parametrize("options", [{}, {"threshold": "1/3"}, {"threshold": -1e-300}, {"regression": True}], ids=str)
def test_bounds_and_networks_come_back_from_their_files(tmp_path, options):
    model, path, bounds = saved(tmp_path, **options)
    assert load_bounds(path) == bounds
    one = load_model(model, **options)
    assert (
        bounds.single
        == one.single
        == (Single(None) if "regression" in options else Single(Fraction(options.get("threshold", 0))))
    )
    save_model(one, tmp_path / "again.npz")
    again = load_model(tmp_path / "again.npz")
    assert (again.single, again.content, again.layers) == (one.single, one.content, one.layers)
    with np.load(tmp_path / "again.npz") as arrays:
        assert arrays["W1"].shape == (1, 3), "the model's own output, and no constant"
    assert audit(bounds, one).confirmed
    for other in ({"threshold": 5}, {"regression": True}, {}):
        if other != options:
            with pytest.raises(InputError, match="for the classes"):
                audit(bounds, load_model(model, **other))
            with pytest.raises(InputError, match="says itself how its output is read"):
                load_model(tmp_path / "again.npz", **(other or {"threshold": 0}))


def test_the_threshold_is_part_of_the_hash_of_a_network():
    hashes = [network(threshold=t).content for t in (0, "1/2", "1/3", -1)]
    assert len(set(hashes)) == 4
    assert network().content == network(threshold=0).content == network(threshold="0.0").content
    assert network().sources == (Source("(in memory)", network().content),)
    assert network(threshold=3).sources == (Source("(in memory)", network(threshold=3).content),)


def in_file(text: str) -> dict[str, str]:
    """How a single output is read, as a bounds file says it: twice."""
    return {"exact": text, "classes": str(Single.of_text(text))}


@pytest.mark.parametrize("forged", ["1*2^3", "regression", None, "1/3"])
def test_a_forged_threshold_is_noticed(tmp_path, capsys, forged):
    model, path, _ = saved(tmp_path)
    data = json.loads(path.read_text())
    assert data["single"] == {"exact": "0*2^0", "classes": "class 1 if the single output y > 0, else class 0"}
    path.write_text(json.dumps({**data, "single": None if forged is None else in_file(forged)}))
    assert ran(capsys, "audit", path, "--model", model)[0] == 3
    np.save(tmp_path / "x.npy", np.zeros((1, 2)))
    words = ("certify", path, "--model", model, "--inputs", tmp_path / "x.npy", "--eps", "0.1")
    assert ran(capsys, *words)[0] == 3
    if forged is not None and forged != "regression":  # also if the model is read with it: then the hash is another
        code, _, err = ran(capsys, "audit", path, "--model", model, "--threshold", str(Single.of_text(forged).constant))
        assert code == 3
        assert "another network" in err


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0, "int found"),
        (True, "bool found"),
        ("nan", "not a finite"),
        ("", "not a decimal"),
        ("1/0", "divides by zero"),
    ],
    ids=str,
)
def test_damaged_bounds_are_refused(tmp_path, value, said):
    _, path, _ = saved(tmp_path)
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, "single": {**data["single"], "exact": value}}))
    with pytest.raises(InputError, match=said):
        load_bounds(path)


@pytest.mark.parametrize(
    "changed", [{"exact": "1*2^0"}, {"classes": "class 1 if the single output y > 1, else class 0"}]
)
def test_a_damaged_threshold_is_refused_without_the_model(tmp_path, changed):
    """It turns classes round, and given logits are judged by the bounds alone."""
    _, path, _ = saved(tmp_path)
    data = json.loads(path.read_text())
    for value in ({**data["single"], **changed}, next(iter(changed.values())), []):
        path.write_text(json.dumps({**data, "single": value}))
        with pytest.raises(InputError):
            load_bounds(path)


def test_a_certifier_that_travels_keeps_its_threshold():
    bulk = vectorised_certifier(compute_bounds(network(threshold="1/3")))
    again = pickle.loads(pickle.dumps(bulk))
    rows, radii = NumberTable(np.array([[0.0], [0.4], [5.0]])), Epsilons.all_equal(Fraction(0))
    assert again.columns == bulk.columns == 1
    assert again.verdicts(rows, radii) == bulk.verdicts(rows, radii)


def test_ends_beyond_the_floats_are_infinite():
    """Next to the largest float, without a word from numpy."""
    large = Network.from_arrays([[[1.0, 2.0]]], [[0.5]], threshold=1.7976931348623157e308)
    found = certify_inputs(large, [[0.1, 0.2], [1e300, 0.5]], 1, local=True)
    assert found.argmax.tolist() == [0, 0]


def test_a_sigmoid_before_the_one_that_is_stripped_is_still_above_zero():
    assembly = Assembly(2)
    assembly.affine(assembly.tensor(W1[:, :2].astype(float)), None)
    assembly.activate("sigmoid")
    assembly.activate("sigmoid")
    with pytest.raises(InputError, match="ends with several sigmoids"):
        assembly.network(hints=Hints(strip_softmax=True))


def test_bounds_of_three_classes_are_not_of_a_single_output(tmp_path):
    path = tmp_path / "b.json"
    save_bounds(compute_bounds(Network.from_arrays([np.eye(3)])), path)
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, "single": in_file("0")}))
    with pytest.raises(InputError, match="single: the last layer has 3 outputs"):
        load_bounds(path)


@pytest.mark.parametrize(
    ("member", "said"),
    [
        (np.array([b"0", b"1"]), "2 texts"),
        (np.array([b"no"]), "not a decimal"),
        (np.array([0.5]), "a list of names"),
        (np.array([[b"0"]]), "a list of names"),
    ],
    ids=str,
)
def test_damaged_archives_are_refused(tmp_path, member, said):
    np.savez(tmp_path / "m.npz", W0=W0, W1=W1, single=member)
    with pytest.raises(InputError, match=said):
        load_model(tmp_path / "m.npz")
    np.savez(tmp_path / "m.npz", W0=W0, single=np.array([b"0"]))
    with pytest.raises(InputError, match="single: a threshold is for a model with a single output, and this one has 3"):
        load_model(tmp_path / "m.npz")


def test_invariants_of_a_network():
    """The first output is the constant, or it is no such network."""
    one = network(threshold=2)
    source = (Source("x", "0" * 64),)
    column = RationalMatrix.from_fractions([[Fraction(2)], [Fraction(1)]])
    rows = {"weights": [[0, 1], [1, 1]], "outputs": [[0, 0], [1, 1], [1, 1]]}
    for made in rows.values():
        bias = column if len(made) == 2 else None
        layer = Layer.dense(INPUT, RationalMatrix.from_integers(made), bias, None)
        with pytest.raises(InputError, match="the first of two must be the threshold"):
            Network((layer,), source, single=Single(Fraction(2)))
    with pytest.raises(InputError, match="the first of two must be the threshold"):
        replace(one, single=Single(Fraction(3)))
    with pytest.raises(InputError, match="the first of two must be the threshold"):
        replace(one, single=Single(None))
    with pytest.raises(InputError, match="more than 4000 bits"):
        network(threshold=Fraction(1, 2**4001))
    assert network(threshold="1e-1000").single == Single(Fraction(1, 10**1000))


def test_long_thresholds_are_written_and_read(tmp_path):
    for text in ("1e-1000", f"{2**3999 + 1}/{2**3999}", f"{3**2400}/{2**3999}"):
        one = Network.from_arrays([W0, W1], threshold=Fraction(*map(int, text.split("/"))) if "/" in text else text)
        save_model(one, tmp_path / "m.npz")
        assert load_model(tmp_path / "m.npz").single == one.single
        save_bounds(compute_bounds(one), tmp_path / "b.json")
        assert load_bounds(tmp_path / "b.json").single == one.single


# -- readers ---------------------------------------------------------------------------------------------------------


def onnx_files(folder: Path) -> list[Path]:
    onnx_models = pytest.importorskip("tests.onnx_models")
    node, constants = onnx_models.node, {"a": W0.T, "c": B0, "w": W1.T, "d": B1}
    arrays = {name: np.array(x, dtype=np.float32) for name, x in constants.items()}
    hidden = [node("Gemm", "x a c", "h"), node("Relu", "h", "r")]
    graphs = {
        "batch": ([*hidden, node("Gemm", "r w d", "y")], ("N", 2)),
        "flat": ([*hidden, node("Gemm", "r w d", "z"), node("Squeeze", "z one", "y")], ("N", 2)),
        "one": ([*hidden, node("Gemm", "r w d", "y")], (1, 2)),
        "vector": (
            [*hidden, node("Gemm", "r w d", "z"), node("Flatten", "z", "y", axis=0)],
            (1, 2),
        ),
    }
    made = []
    for name, (nodes, shape) in graphs.items():
        sizes = {"one": np.array([1], dtype=np.int64)} if name == "flat" else {}
        proto = onnx_models.model(nodes, {**arrays, **sizes}, shape=shape)
        made.append(onnx_models.saved(proto, folder / f"{name}.onnx"))
    return made


def keras_file(folder: Path, *more: Any, **config: Any) -> Path:
    pytest.importorskip("h5py", reason="the package h5py is not installed")
    from tests.test_keras import archived, layer, sequential

    layers = [layer("Dense", units=3, activation="relu"), layer("Dense", units=1, **config), *more]
    weights = {
        "dense": [W0.T.astype(np.float32), B0.astype(np.float32)],
        "dense_1": [W1.T.astype(np.float32), B1.astype(np.float32)],
    }
    return archived(folder / "m.keras", sequential(layers, (2,)), weights)


def torch_model(*more: Any) -> Any:
    torch = pytest.importorskip("torch", reason="the package torch is not installed")
    nn = torch.nn
    made = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1), *more).eval()
    with torch.no_grad():
        for place, (w, b) in ((0, (W0, B0)), (2, (W1, B1))):
            made[place].weight.copy_(torch.tensor(w))
            made[place].bias.copy_(torch.tensor(b))
    return made


def test_every_reader_gives_the_same_classifier(tmp_path):
    files = [*onnx_files(tmp_path), keras_file(tmp_path)]
    torch = pytest.importorskip("torch", reason="the package torch is not installed")
    safetensors = pytest.importorskip("safetensors.torch", reason="the package safetensors is not installed")
    state = torch_model().state_dict()
    torch.save(state, tmp_path / "m.pt")
    safetensors.save_file(state, tmp_path / "m.safetensors")
    np.savez(tmp_path / "m.npz", W0=W0, b0=B0, W1=W1, b1=B1)
    (tmp_path / "m.txt").write_text(f"{W0.T.tolist()},{W1.T.tolist()}")
    (tmp_path / "b.txt").write_text(f"{B0.tolist()},{B1.tolist()}")
    files += [tmp_path / name for name in ("m.pt", "m.safetensors", "m.npz")]
    from intervalcert import from_torch

    for options in ({}, {"threshold": "-5/3"}, {"regression": True}):
        wanted = network(**options)
        found = [load_model(path, **options) for path in files]
        found.append(load_model(tmp_path / "m.txt", tmp_path / "b.txt", **options))
        found.append(from_torch(torch_model(), **options))
        for one in found:
            assert (one.content, one.single, one.layers) == (wanted.content, wanted.single, wanted.layers)
            assert one.folded == ()
    np.save(tmp_path / "m.npy", np.array([[1.0, 2.0]]))
    assert load_model(tmp_path / "m.npy", threshold=3).single == Single(Fraction(3))


SIGMOIDS = ("onnx", "keras", "keras layer", "torch")


def ending_with_a_sigmoid(kind: str, folder: Path, **options: Any) -> Network:
    if kind == "torch":
        torch = pytest.importorskip("torch", reason="the package torch is not installed")
        from intervalcert import from_torch

        return from_torch(torch_model(torch.nn.Sigmoid(), torch.nn.Dropout(), torch.nn.Flatten()).eval(), **options)
    if kind == "onnx":
        onnx_models = pytest.importorskip("tests.onnx_models")
        node = onnx_models.node
        nodes = [node("Gemm", "x a c", "h"), node("Relu", "h", "r"), node("Gemm", "r w d", "z")]
        nodes += [node("Sigmoid", "z", "s"), node("Flatten", "s", "y")]
        constants = {"a": W0.T.tolist(), "c": B0.tolist(), "w": W1.T.tolist(), "d": B1.tolist()}
        made: Network = onnx_models.read(onnx_models.model(nodes, constants, shape=("N", 2)), **options)
        return made
    from tests.test_keras import layer

    if kind == "keras":
        return load_model(keras_file(folder, activation="sigmoid"), **options)
    return load_model(keras_file(folder, layer("Activation", activation="sigmoid")), **options)


@pytest.mark.parametrize("kind", SIGMOIDS)
def test_a_sigmoid_at_the_end(kind, tmp_path):
    """Refused, as it is always above 0; stripped; compared with a threshold of its own; or a number."""
    with pytest.raises(InputError, match=r"ends with a sigmoid.*--strip-softmax.*probability of 1/2.*--threshold 1/2"):
        ending_with_a_sigmoid(kind, tmp_path)
    for threshold in (None, "7/3"):
        stripped = ending_with_a_sigmoid(kind, tmp_path, strip_softmax=True, threshold=threshold)
        assert stripped.content == network(threshold=threshold).content
        assert stripped.folded == ("a sigmoid",)
        with pytest.raises(InputError, match="how the program computes a sigmoid"):
            certify_inputs(stripped, [[0.0, 0.0]], 0, deployed="float32")
    x = [[float(a) for a in point] for point in points()]
    exact = [value(point) for point in points()]
    for options in ({"threshold": "1/2"}, {"regression": True}):
        kept = ending_with_a_sigmoid(kind, tmp_path, **options)
        assert kept.activations == ("relu", "sigmoid", None)
        found = evaluate(kept, x, backend="arb")
        near = [1 / (1 + math.exp(-float(y))) for y in exact]
        assert (np.abs(found.lower[-1][:, 0] - near) < 1e-12).all()
        assert found.lower[-1].shape == (len(x), 1)
    kept = ending_with_a_sigmoid(kind, tmp_path, threshold="1/2")
    verdicts = certify_inputs(kept, x, "0.01")
    assert [v.argmax for v in verdicts] == [int(y > 0) for y in exact]
    assert not any(v.certified for v, y in zip(verdicts, exact, strict=True) if y == 0)
    logits = certify_inputs(ending_with_a_sigmoid(kind, tmp_path, strip_softmax=True), x, "0.01")
    assert all(b.certified for a, b in zip(verdicts, logits, strict=True) if a.certified), "its margins are weaker"


def test_a_stripped_sigmoid_after_factors_that_are_not_known_exactly():
    """Batch normalisation before it: the factors stay in a layer of their own."""
    assembly = Assembly(2)
    tensor = assembly.tensor
    assembly.affine(tensor(W1[:, :2].astype(float)), None)
    one, three = tensor(np.ones(1)), tensor(np.full(1, 3.0))
    assembly.batch_normalise(one, one, one, three)
    assembly.activate("sigmoid")
    stripped = assembly.network(hints=Hints(strip_softmax=True))
    assert stripped.activations == ("identity", None)
    assert stripped.single == Single()
    found = evaluate(replace(stripped, sources=(Source("x", "0" * 64),)), [[3.0, 1.0]], scale=1, backend="arb")
    assert abs(found.lower[-1][0, 0] - ((2 * 3 - 1 - 1) / math.sqrt(3) + 1)) < 1e-12


@pytest.mark.parametrize("then", ["scale", "shift", "affine", "relu", "batch_normalise"])
def test_a_sigmoid_before_the_end_is_not_stripped(then):
    """And whatever follows decides how large the output is: 0 is a threshold like any other."""

    def made(hints: Hints) -> Network:
        assembly = Assembly(2)
        number = assembly.tensor(np.full(1, 3.0))
        assembly.affine(assembly.tensor(W1[:, :2].astype(float)), None)
        assembly.activate("sigmoid")
        if then == "affine":
            assembly.affine(assembly.tensor(np.full((1, 1), 3.0)), None)
        elif then == "relu":
            assembly.activate("relu")
        else:
            getattr(assembly, then)(*[number] * (4 if then == "batch_normalise" else 1))
        return assembly.network(hints=hints)

    with pytest.raises(InputError, match="no softmax at the end to be stripped, nor a sigmoid"):
        made(Hints(strip_softmax=True))
    assert made(Hints()).activations[0] == "sigmoid"
    assert made(Hints()).single == Single()


def test_a_sigmoid_before_a_softmax_is_not_stripped():
    """The logits are what the softmax takes."""
    assembly = Assembly(2)
    assembly.affine(assembly.tensor(W0.astype(float)), None)
    assembly.activate("sigmoid")
    assembly.soften()
    made = assembly.network(hints=Hints(strip_softmax=True))
    assert (made.activations, made.folded) == (("sigmoid", None), ("a softmax",))


def test_sigmoids_of_several_classes_are_kept_unless_one_says_so():
    def made(hints: Hints) -> Network:
        assembly = Assembly(2)
        assembly.affine(assembly.tensor(W0.astype(float)), None)
        assembly.activate("sigmoid")
        return assembly.network(hints=hints)

    assert made(Hints()).activations == ("sigmoid", None)
    assert made(Hints(strip_softmax=True)).activations == (None,)
    assert made(Hints()).single is made(Hints(strip_softmax=True)).single is None


@pytest.mark.parametrize("kind", ["onnx", "keras", "torch"])
def test_a_softmax_of_a_single_output_is_refused(kind, tmp_path):
    """It is 1 whatever the input."""

    def read() -> Network:
        if kind == "keras":
            return load_model(keras_file(tmp_path, activation="softmax"), strip_softmax=True)
        if kind == "torch":
            torch = pytest.importorskip("torch", reason="the package torch is not installed")
            from intervalcert import from_torch

            return from_torch(torch_model(torch.nn.Softmax(dim=1)), strip_softmax=True)
        onnx_models = pytest.importorskip("tests.onnx_models")
        nodes = [onnx_models.node("MatMul", "x w", "z"), onnx_models.node("Softmax", "z", "y")]
        made = onnx_models.model(nodes, {"w": [[1.0], [2.0]]}, shape=("N", 2))
        found: Network = onnx_models.read(made, strip_softmax=True)
        return found

    with pytest.raises(InputError, match="a softmax of a single output is the same for every input"):
        read()


def test_a_normalisation_moves_nothing_but_the_output():
    """In both spaces, for one layer and for two."""
    for weights in ([W0[:1].astype(float)], [W0, W1]):
        plain = Network.from_arrays(weights, threshold="1/3")
        for space in ("input", "normalised"):
            one = Network.from_arrays(weights, threshold="1/3", mean=["1/7", 2], std=[3, "1/5"], eps_space=space)
            assert one.single == Single(Fraction(1, 3))
            x = np.array([[0.25, 1.5], [-3.0, 2.25]])
            moved = [[(Fraction(a) - Fraction(1, 7)) / 3, (Fraction(b) - 2) * 5] for a, b in x.tolist()]
            found, wanted = evaluate(one, x, backend="exact"), evaluate(plain, moved, backend="exact")
            assert (found.lower[-1] == wanted.lower[-1]).all()
            assert certify_inputs(one, x, "1/100").argmax.tolist() == certify_inputs(plain, moved, 0).argmax.tolist()
        of_both = [compute_bounds(Network.from_arrays(weights, std=std), "exact").margins.matrix for std in (1, "1/2")]
        assert of_both[1][0][1] == 2 * of_both[0][0][1]


# -- regression, and what is refused ---------------------------------------------------------------------------------


def test_a_regression_has_bounds_and_nothing_to_certify():
    one = network(regression=True)
    bounds = compute_bounds(one)
    assert bounds.margins.matrix == compute_bounds(network()).margins.matrix
    assert audit(bounds, one).confirmed
    for attempt in (
        lambda: certify(bounds, [1.0], 0),
        lambda: certified_radius(bounds, [1.0]),
        lambda: certify_inputs(one, [[1.0, 0.5]], 0),
        lambda: certify_inputs(one, [[1.0, 0.5]], 0, deployed="float32"),
        lambda: certify_deployed(one, [1.0], 0, deployed="float32", input_norm=1),
    ):
        with pytest.raises(InputError, match="regression: its output is a number, and there are no classes"):
            attempt()
    assert evaluate(one, [[1.0, 2.0]], scale=1, backend="exact").lower[-1].tolist() == [[float(value((1, 2)))]]


@pytest.mark.parametrize("options", [{"threshold": 0}, {"regression": True}], ids=str)
def test_several_outputs_have_no_threshold(options):
    with pytest.raises(InputError, match="is for a model with a single output, and this one has 3"):
        Network.from_arrays([W0], **options)
    with pytest.raises(UsageError, match="one or the other"):
        network(threshold=0, regression=True)


@pytest.mark.parametrize("threshold", ["nan", float("inf"), True, "x", [1], b"1"], ids=str)
def test_thresholds_that_are_no_numbers(threshold):
    with pytest.raises(InputError, match="the threshold: "):
        network(threshold=threshold)


# -- the command line ------------------------------------------------------------------------------------------------


LIPSCHITZ = decimal_upper(compute_bounds(network()).margins.matrix[0][1], 10)


@pytest.fixture
def work(tmp_path):
    saved(tmp_path)
    np.save(tmp_path / "x.npy", np.array([[0.5, 0.25], [-1.5, 0.75], [1.25, 1.25]]))
    return tmp_path


def test_commands_say_how_the_output_is_read(work, capsys):
    said = "class 1 if the single output y > {}, else class 0"
    code, out, _ = ran(capsys, "inspect", work / "m.npz")
    assert code == 0
    assert said.format(0) in out
    assert "13" in out, "parameters: those of the model"
    code, out, _ = ran(capsys, "inspect", work / "m.npz", "--threshold", "-1/3")
    assert said.format("-1/3") in out
    code, out, _ = ran(capsys, "bounds", work / "m.npz", "--threshold=0.25", "-o", work / "t.json")
    assert code == 0
    assert said.format(0.25) in out
    assert f"Lipschitz bound of the output: {LIPSCHITZ}" in out
    assert "1 x 3" in out
    assert "2 x 3" not in out
    assert load_bounds(work / "t.json").single == Single(Fraction(1, 4))
    words = ("certify", "--model", work / "m.npz", "--inputs", work / "x.npy", "--eps", "0.01", "--jobs", "1")
    words += ("--threshold", "0.25")
    for more in ((), ("--local",), ("--deployed", "float32"), ("--local", "--deployed", "bfloat16")):
        code, out, _ = ran(capsys, *words, *more)
        assert code == 0
        assert said.format(0.25) in " ".join(out.split())
        assert "3 of 3" in out
    assert ran(capsys, *words, "--deployed", "float32", "--json")[1].count('"threshold": "0.25"') == 1
    assert ran(capsys, "audit", work / "t.json", "--model", work / "m.npz", "--threshold", "1/4")[0] == 0
    code, _, err = ran(capsys, "audit", work / "t.json", "--model", work / "m.npz")
    assert code == 3
    assert said.format(0.25) in err
    assert "--threshold" in err


def test_given_logits_of_a_program(work, capsys):
    (work / "y.csv").write_text("y\n0.25\n3\n-3\n")
    words = ("certify", work / "y.csv", "--model", work / "m.npz", "--eps", "0.01", "--deployed", "float32")
    code, out, _ = ran(capsys, *words, "--threshold", "0.25", "--input-box", "-2", "2", "-o", work / "v.csv")
    assert code == 0
    assert "2 of 3" in out
    rows = list(csv.DictReader(io.StringIO((work / "v.csv").read_text())))
    assert [row["argmax"] for row in rows] == ["0", "1", "0"]
    assert [row["verdict"] for row in rows] == ["not_certified", "certified", "certified"]


def test_evaluate_shows_the_output_alone(work, capsys):
    y = [value(tuple(map(Fraction, x))) for x in np.load(work / "x.npy").tolist()]
    for options, first in (((), "index,argmax,lower0,upper0"), (("--regression",), "index,lower0,upper0")):
        code, out, _ = ran(capsys, "evaluate", work / "m.npz", work / "x.npy", "--backend", "exact", *options)
        assert code == 0
        lines = out.splitlines()
        assert lines[0] == first
        for index, (line, exact) in enumerate(zip(lines[1:], y, strict=True)):
            cells = line.split(",")
            assert (int(cells[0]), Fraction(cells[-2]), Fraction(cells[-1])) == (index, exact, exact)
            if not options:
                assert cells[1] == str(int(exact > 0))
    tie = str(y[0])
    assert (
        "\n0,0," in ran(capsys, "evaluate", work / "m.npz", work / "x.npy", "--threshold", tie, "--backend", "exact")[1]
    )
    assert "\n0,," in ran(capsys, "evaluate", work / "m.npz", work / "x.npy", "--threshold", tie)[1], "not decided"
    assert ran(capsys, "evaluate", work / "m.npz", work / "x.npy", "-o", work / "e.npy")[0] == 0
    assert np.load(work / "e.npy").shape == (3, 1, 2)


def test_regression_on_the_command_line(work, capsys):
    code, out, _ = ran(capsys, "bounds", work / "m.npz", "--regression", "-o", work / "r.json")
    assert code == 0
    assert f"Lipschitz bound of the output: {LIPSCHITZ}" in out
    assert "regression" in out
    assert "(output)" in ran(capsys, "inspect", work / "m.npz", "--regression")[1]
    assert "(logits)" not in out
    (work / "y.csv").write_text("1\n")
    for words in (
        ("certify", work / "r.json", work / "y.csv", "--eps", "0.1"),
        ("radius", work / "r.json", work / "y.csv"),
        ("certify", "--model", work / "m.npz", "--regression", "--inputs", work / "x.npy", "--eps", "0.1"),
    ):
        code, out, err = ran(capsys, *words)
        assert (code, out) == (3, "")
        assert "no classes to be certified" in err
    assert ran(capsys, "audit", work / "r.json", "--model", work / "m.npz", "--regression")[0] == 0
    assert ran(capsys, "convert", work / "m.npz", work / "c.npz", "--regression")[0] == 0
    code, out, _ = ran(capsys, "inspect", work / "c.npz")
    assert "none, the single output is a number (regression)" in out
    assert ran(capsys, "audit", work / "b.json", "--model", work / "m.npz", "--regression")[0] == 3


def test_options_that_do_not_fit(work, capsys):
    assert ran(capsys, "inspect", work / "m.npz", "--threshold", "1", "--regression")[0] == 2
    code, _, err = ran(capsys, "inspect", work / "m.npz", "--threshold", "abc")
    assert code == 3
    assert "--threshold: 'abc'" in err
    np.savez(work / "two.npz", W0=np.eye(2))
    for option in (("--threshold", "0"), ("--regression",)):
        code, _, err = ran(capsys, "inspect", work / "two.npz", *option)
        assert code == 3
        assert "two.npz" in err
        assert "a model with a single output, and this one has 2" in err
        words = ("certify", work / "b.json", work / "x.npy", "--eps", "0", *option)
        code, _, err = ran(capsys, *words)
        assert code == 2
        assert option[0] in err
