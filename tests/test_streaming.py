"""Many outputs: what is read from files, what is counted, what is written, and that a written radius is a true one."""

import csv
import io
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from commands import ran

from intervalcert import (
    InputWarning,
    Network,
    Verdict,
    Verdicts,
    certified_radius,
    certify,
    certify_deployed,
    compute_bounds,
    save_bounds,
)
from intervalcert.errors import InputError, UsageError
from intervalcert.execution.streaming import outputs_of, read_labels, read_outputs, summarise
from intervalcert.io.tables.writers import RADIUS_COLUMNS, VERDICT_COLUMNS, check_ending, radius_text, verdict_sink
from intervalcert.proof.decision import Status


def values(outputs):
    return [[Fraction(n, row.denominator) for n in row.numerators] for row in outputs.rows]


def read(tmp_path, text, name="outputs.csv"):
    (tmp_path / name).write_text(text)
    return read_outputs(tmp_path / name)


# -- in --------------------------------------------------------------------------------------------------------------

TENTHS = [[Fraction(1, 10), Fraction(-2), Fraction(3, 10**5)], [Fraction(4), Fraction(5), Fraction(6)]]


@pytest.mark.parametrize(
    "text",
    [
        "0.1,-2,3e-5\n4,5,6\n",
        "0.1,-2,3e-5\n4,5,6",
        "0.1, -2, 3e-5\n4,  5,\t6\n",
        "  0.1,-2,3e-5  \n\n4,5,6\n\n",
        "cat,dog,bird\n0.1,-2,3e-5\n4,5,6\n",
        '"cat","dog","bird"\n0.1,-2,3e-5\n4,5,6\n',
        "y0,y1,y2\r\n0.1,-2,3e-5\r\n4,5,6\r\n",
        "class 0, class 1, class 2\n0.1,-2,3e-5\n4,5,6\n",
        "\ufeff0.1,-2,3e-5\n4,5,6\n",
    ],
    ids=["plain", "no last newline", "spaces", "blank lines", "header", "quoted", "crlf", "header of words", "mark"],
)
def test_lines_of_logits(tmp_path, text):
    outputs = read(tmp_path, text)
    assert values(outputs) == TENTHS
    assert outputs.epsilons is None


@pytest.mark.parametrize(
    "text",
    [
        "0.1,-2,3e-5 0.3\n4,5,6 36/255\n",
        "0.1, -2, 3e-5 0.3\n4, 5, 6   36/255\n",
        "0.1,-2,3e-5\t0.3\n\n4,5,6\t36/255",
        "a,b,c\n0.1,-2,3e-5 0.3\n4,5,6 36/255\n",
    ],
    ids=["plain", "spaces", "tabs", "header"],
)
def test_lines_with_their_own_radius(tmp_path, text):
    outputs = read(tmp_path, text, "outputs.txt")
    assert values(outputs) == TENTHS
    assert outputs.epsilons == (Fraction(3, 10), Fraction(36, 255))


def test_the_radius_zero_is_a_radius(tmp_path):
    """Zero must not be taken for the absence of one."""
    outputs = read(tmp_path, "1,2 0\n3,4 0\n")
    assert outputs.epsilons == (0, 0)


def test_logits_may_have_any_size(tmp_path):
    outputs = read(tmp_path, "1e-400,1e400,12345678901234567890.5\n")
    assert values(outputs) == [[Fraction(1, 10**400), Fraction(10**400), Fraction(24691357802469135781, 2)]]


@pytest.mark.parametrize("dtype", ["<f2", ">f4", "<f8", ">f8", "<i4", "u1"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_logits(tmp_path, dtype, order):
    array = np.array([[0.1, 2, 3], [4, 5.7, 6]]).astype(dtype, order=order)
    expected = [[Fraction(float(x)) for x in row] for row in array]
    np.save(tmp_path / "y.npy", array)
    assert values(read_outputs(tmp_path / "y.npy")) == expected
    assert values(read_outputs(str(tmp_path / "y.npy"))) == expected
    assert values(outputs_of(array)) == expected


def test_integer_logits_beyond_floats_are_exact(tmp_path):
    np.save(tmp_path / "y.npy", np.array([[2**63 - 1, 2**63 - 2]]))
    assert values(read_outputs(tmp_path / "y.npy")) == [[2**63 - 1, 2**63 - 2]]


@pytest.mark.parametrize("given", [["0.1", "1/3"], [Fraction(1, 10), Fraction(1, 3)], [["0.1", "1/3"]]])
def test_exact_logits_from_python(given):
    assert values(outputs_of(given)) == [[Fraction(1, 10), Fraction(1, 3)]]


def test_labels(tmp_path):
    (tmp_path / "l.txt").write_text("2\n0\n\n 1 \n")
    assert read_labels(tmp_path / "l.txt", 3, 3) == (2, 0, 1)
    for dtype in ("u1", ">i8", "<u8"):
        np.save(tmp_path / "l.npy", np.array([2, 0, 1], dtype=dtype))
        labels = read_labels(tmp_path / "l.npy", 3, 3)
        assert labels == (2, 0, 1)
        assert {type(label) for label in labels} == {int}
    with pytest.raises(InputError, match="label 0 is 2"):
        read_labels(tmp_path / "l.npy", 3, 2)
    with pytest.raises(InputError, match="3 labels, but there are 4"):
        read_labels(tmp_path / "l.npy", 4, 3)


# -- counts ----------------------------------------------------------------------------------------------------------

REAL = {"semantics": "real", "eps_space": "input"}
VERDICTS = (
    Verdict(0, 1, Status.CERTIFIED, 0.5, **REAL),
    Verdict(1, 2, Status.UNKNOWN, 0.1, **REAL),
    Verdict(2, 0, Status.CERTIFIED, math.inf, **REAL, exactly=True),
    Verdict(3, 0, Status.UNKNOWN, 0.0, **REAL),
)


def test_summary():
    """VRA counts an output only if it is right and certified: here 0 alone (2 is certified, but wrong)."""
    found = summarise(VERDICTS, [1, 2, 1, 0])
    assert (found.certified, found.total, found.exactly) == (2, 4, 1)
    assert found.accuracy == 0.75
    assert found.vra == 0.25


def test_summary_without_labels():
    found = summarise(VERDICTS, None)
    assert (found.certified, found.total, found.exactly) == (2, 4, 1)
    assert found.accuracy is None
    assert found.vra is None


# -- out -------------------------------------------------------------------------------------------------------------


def written(path, verdicts, columns=VERDICT_COLUMNS):
    with verdict_sink(path, columns) as write:
        write(Verdicts.of(verdicts))


def test_csv(tmp_path):
    written(tmp_path / "v.csv", VERDICTS)
    assert (tmp_path / "v.csv").read_text() == (
        "index,argmax,verdict,radius,semantics,eps_space\n"
        "0,1,certified,0.5,real,input\n"
        "1,2,not_certified,0.1,real,input\n"
        "2,0,certified,inf,real,input\n"
        "3,0,not_certified,0,real,input\n"
    )


def test_jsonl(tmp_path):
    written(tmp_path / "v.jsonl", VERDICTS)
    lines = (tmp_path / "v.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"index": 0, "argmax": 1, "verdict": "certified", "radius": "0.5", **REAL},
        {"index": 1, "argmax": 2, "verdict": "not_certified", "radius": "0.1", **REAL},
        {"index": 2, "argmax": 0, "verdict": "certified", "radius": "inf", **REAL},
        {"index": 3, "argmax": 0, "verdict": "not_certified", "radius": "0", **REAL},
    ]


def test_npy(tmp_path):
    """Plain numbers: it loads where pickles are refused. The radius is the float itself."""
    written(tmp_path / "v.npy", VERDICTS)
    array = np.load(tmp_path / "v.npy", allow_pickle=False)
    assert array.dtype.names == ("index", "argmax", "certified", "radius", "semantics", "eps_space")
    assert array["index"].tolist() == [0, 1, 2, 3]
    assert array["argmax"].tolist() == [1, 2, 0, 0]
    assert array["certified"].tolist() == [True, False, True, False]
    assert array["radius"].tolist() == [0.5, 0.1, math.inf, 0.0]
    assert set(array["semantics"].tolist()) == {b"real"}
    assert set(array["eps_space"].tolist()) == {b"input"}


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".npy"])
def test_radius_columns(tmp_path, ending):
    path = tmp_path / f"r{ending}"
    written(path, VERDICTS, RADIUS_COLUMNS)
    if ending == ".npy":
        assert np.load(path).dtype.names == RADIUS_COLUMNS
    elif ending == ".csv":
        assert path.read_text().startswith("index,argmax,radius,semantics,eps_space\n0,1,0.5,real,input\n")
    else:
        assert json.loads(path.read_text().splitlines()[0]) == {"index": 0, "argmax": 1, "radius": "0.5", **REAL}


def test_an_ending_in_capitals_is_the_same(tmp_path):
    written(tmp_path / "v.CSV", VERDICTS)
    assert (tmp_path / "v.CSV").read_text().startswith("index,")


@pytest.mark.parametrize("name", ["v.txt", "v", "v.csv.gz", ".csv"])
def test_an_unknown_ending_is_refused(tmp_path, name):
    with pytest.raises(UsageError, match=r"\.csv, \.jsonl, \.npy or \.parquet"):
        check_ending(tmp_path / name)


# -- radii -----------------------------------------------------------------------------------------------------------

BOUNDS = compute_bounds(
    Network.from_arrays([np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[0.5, 1.0], [0.3, 1.7], [-1.0, 2.0]])]),
    "exact",
    4,
)


def supremum(logits):
    """Min over i of (y_j - y_i) / L[i][j], exactly, from its definition."""
    top = logits.index(max(logits))
    return min((logits[top] - y) / BOUNDS.margins.matrix[i][top] for i, y in enumerate(logits) if i != top)


def some_logits():
    """Random ones at many scales, and close decisions."""
    random = np.random.default_rng(5)
    rows = [random.normal(size=3) * 10.0 ** random.integers(-12, 12) for _ in range(60)]
    rows += [np.array([1.0, 1.0 + 2.0**-k, 0.0]) for k in range(0, 53, 4)]
    rows += [np.array([0.0, 5e-324, 0.0]), np.array([1e308, -1e308, 0.0])]
    return rows


@pytest.mark.parametrize("row", some_logits(), ids=str)
def test_the_radius_is_certified_and_the_supremum_is_not(row):
    """Float radius < supremum, with no float in between; certified at the one, not at the other, nor above it."""
    true = supremum([Fraction(float(x)) for x in row])
    (radius,) = certified_radius(BOUNDS, row)
    assert Fraction(radius) < true
    assert Fraction(math.nextafter(radius, math.inf)) >= true
    for eps, expected in [
        (radius, True),
        (radius_text(radius), True),
        (true * (1 - Fraction(1, 10**60)), True),
        (true, False),
        (math.nextafter(radius, math.inf), False),
        (math.nextafter(math.nextafter(radius, math.inf), math.inf), False),
    ]:
        (verdict,) = certify(BOUNDS, row, eps)
        assert verdict.certified is expected, eps
        assert verdict.radius == radius


def test_a_tie_has_the_radius_zero_and_is_not_certified():
    for logits in ([1.0, 1.0, 0.0], [0.0, 2.0, 2.0], [3, 3, 3]):
        (verdict,) = certify(BOUNDS, logits, 0)
        assert verdict.radius == 0.0
        assert not verdict.certified
        assert verdict.argmax == logits.index(max(logits))


def test_without_any_margin_the_radius_is_infinite():
    """Equal rows of the last layer: no input can change the lead of a class."""
    constant = compute_bounds(Network.from_arrays([np.ones((2, 2))]), "exact", 1)
    (verdict,) = certify(constant, [2.0, 1.0], 10**9)
    assert verdict.certified
    assert verdict.radius == math.inf
    (tied,) = certify(constant, [1.0, 1.0], 0)
    assert not tied.certified
    assert tied.radius == 0.0


@pytest.mark.parametrize("radius", [0.1, 0.3, 1 / 3, 1e-300, 1e300, 5e-324, 2.5, 1e16, 123456.7, 0.0])
def test_the_decimal_of_a_radius_is_at_most_the_radius(radius):
    """Near enough to be of use, and never above: repr(0.1) would be below, repr of other floats above."""
    text = radius_text(radius)
    assert Fraction(text) <= Fraction(radius)
    assert Fraction(radius) - Fraction(text) <= Fraction(radius) / 10**15


def test_some_shortest_decimals_lie_above_their_float():
    """Otherwise the test before would not prove that the rounding is directed."""
    assert any(Fraction(repr(x)) > Fraction(x) for x in (0.3, 1 / 3, 123456.7))


def test_written_radii_are_certified(tmp_path):
    """The whole way: written as text, read back by a program that knows nothing of this package, certified."""
    rows = np.random.default_rng(7).normal(size=(50, 3))
    verdicts = certify(BOUNDS, rows, 0)
    written(tmp_path / "r.csv", verdicts, RADIUS_COLUMNS)
    for record in csv.DictReader(io.StringIO((tmp_path / "r.csv").read_text())):
        index = int(record["index"])
        (again,) = certify(BOUNDS, rows[index], record["radius"])
        assert again.certified
        assert again.argmax == int(record["argmax"]) == int(rows[index].argmax())
        assert Fraction(record["radius"]) < supremum([Fraction(x) for x in rows[index].tolist()])


# -- probabilities are no logits -------------------------------------------------------------------------------------


def softmax(logits):
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


LOGITS = np.random.default_rng(3).normal(size=(200, 3)) * 5
SOFT = softmax(LOGITS)
LIKELY = {
    "float64": SOFT,
    "float32": SOFT.astype(np.float32),
    "float16": SOFT.astype(np.float16),
    "one": SOFT[0],
    "list": SOFT.tolist(),
    "decimals": [[f"{x:.3f}" for x in row] for row in SOFT],
    "saturated": np.array([[1.0, 0.0, 0.0], [0.5, 0.25, 0.25]]),
}
UNLIKELY = {
    "logits": LOGITS,
    "their logarithms": np.log(SOFT),
    "one of them": np.vstack([SOFT, [[0.5, 0.75, 0.25]]]),
    "the first of them": np.vstack([[[0.5, 0.75, 0.25]], SOFT]),
    "negative": np.array([[0.75, 0.5, -0.25]]),
    "labels": np.eye(3),
    "halves": SOFT / 2,
    "long": [["1e400", "0", "0.5"]],
}


@pytest.mark.parametrize("kind", LIKELY)
def test_probabilities_are_remarked(kind):
    """The lead of a winner is smaller among them than among the logits: nothing false is said, and little is proved."""
    with pytest.warns(InputWarning, match="sum to 1"):
        found = certify(BOUNDS, LIKELY[kind], "0.01")
    expected = certify(BOUNDS, LOGITS, "0.01")
    if kind == "float64":
        assert (found.radius <= expected.radius).all()
    with pytest.warns(InputWarning, match="sum to 1"):
        certified_radius(BOUNDS, LIKELY[kind])
    with pytest.warns(InputWarning, match="sum to 1"):
        certify_deployed(Network.from_arrays([np.eye(3)]), LIKELY[kind], 0, deployed="float32", input_norm=1)


@pytest.mark.parametrize("kind", UNLIKELY)
def test_what_is_not_taken_for_probabilities(kind):
    """A warning would be an error here."""
    assert len(certify(BOUNDS, UNLIKELY[kind], 0))


@pytest.mark.parametrize("ending", [".npy", ".csv"])
def test_files_of_probabilities_are_remarked(tmp_path, monkeypatch, capsys, ending):
    monkeypatch.setattr("intervalcert.io.tables.numpy_rows.CHUNK_CELLS", 30)
    monkeypatch.setattr("intervalcert.io.tables.text_rows.BLOCK_BYTES", 500)
    save_bounds(BOUNDS, tmp_path / "b.json")
    path = tmp_path / f"y{ending}"
    for table, remarked in ((SOFT, True), (LOGITS, False), (np.vstack([SOFT, LOGITS[:1]]), False)):
        np.save(path, table) if ending == ".npy" else np.savetxt(path, table, delimiter=",", fmt="%.6f")
        for words in (("certify", tmp_path / "b.json", path, "--eps", "0.1"), ("radius", tmp_path / "b.json", path)):
            code, out, err = ran(capsys, *words)
            assert code == 0
            assert ("sum to 1, as probabilities do" in err) == remarked
            assert out
