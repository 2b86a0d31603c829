"""What the checker reads is what the package reads, number by number; whatever else comes is refused, and soon."""

import io
import os
import shutil
import struct
import subprocess
import sys
import time
import zipfile
import zlib
from contextlib import suppress
from fractions import Fraction
from hashlib import sha256
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from intervalcert import Network, load_model, save_model
from intervalcert.checker import reading
from intervalcert.checker.model import Malformed, Model, activation, values_at
from intervalcert.checker.reading import file_sha256, read_model, read_table
from tests.strategies import random_decimal, random_fraction

ROOT = Path(__file__).resolve().parents[1]
FIXTURES = ROOT / "tests" / "fixtures"

FLOATS = ["<f2", ">f2", "<f4", ">f4", "<f8", ">f8"]
INTEGERS = ["i1", "u1", "<i2", ">i2", "<u2", ">u2", "<i4", ">i4", "<u4", ">u4", "<i8", ">i8", "<u8", ">u8"]


# -- the same as the package -----------------------------------------------------------------------------------------


def assert_same(path, activation_name=None, **hints):
    """The model that is read is the network that is loaded. Gives the model back."""
    network = load_model(path, **({} if activation_name is None else {"activation": activation_name}), **hints)
    model = read_model(path, activation_name)
    assert len(model.layers) == len(network.layers)
    for found, expected in zip(model.layers, network.layers, strict=True):
        assert (found.outputs, found.inputs) == expected.weights.shape
        compared(found.rows, found.unit, expected.weights.numerators.tolist(), expected.weights.denominator)
        zeros = [[0]] * found.outputs
        bias, unit = (zeros, 1) if expected.bias is None else (expected.bias.numerators, expected.bias.denominator)
        compared([[b] for b in found.bias], found.bias_unit, np.array(bias, dtype=object).tolist(), unit)
        name = None if expected.activation is None else expected.activation.name
        assert found.activation == (None if name is None else activation(name))
    return model


def compared(rows, unit, others, denominator):
    assert unit >= 1
    for row, other in zip(rows, others, strict=True):
        for x, y in zip(row, other, strict=True):
            assert type(x) is int
            assert x * denominator == y * unit


def npz(path, **arrays):
    np.savez(path, **arrays)
    return path


def matrix(random, shape, entry=random_fraction):
    return [[entry(random) for _ in range(shape[1])] for _ in range(shape[0])]


def texts(rows):
    return np.array([[str(x).encode() for x in row] for row in rows])


@pytest.mark.parametrize("seed", range(30))
def test_networks_that_were_saved(tmp_path, seed):
    """Of any numbers, with biases or without, normalised or not, with a single output or several."""
    random = Random(seed)
    entry = random.choice([random_decimal, random_fraction, lambda r: Fraction(r.gauss(0, 1))])
    widths = [random.randint(1, 5) for _ in range(random.randint(2, 4))]
    if seed % 3:
        widths[-1] = random.randint(2, 4)
    sides = list(zip(widths[1:], widths[:-1], strict=True))
    names = ["relu", "tanh", "leaky_relu:0.01", "leaky_relu:1/3", "clip:-1:0.5", "hard_tanh", "elu:0.5", "identity"]
    made = Network.from_arrays(
        [matrix(random, side, entry) for side in sides],
        [random.choice([None, [entry(random) for _ in range(side[0])]]) for side in sides],
        between=[random.choice(names) for _ in sides[1:]],
        **(
            {"mean": [random_decimal(random) for _ in range(widths[0])], "std": [Fraction(2, 7)] * widths[0]}
            | {"eps_space": random.choice(["input", "normalised"])}
            if random.random() < 0.5
            else {}
        ),
        **({"threshold": random_decimal(random)} if widths[-1] == 1 and random.random() < 0.7 else {}),
    )
    save_model(made, tmp_path / "m.npz")
    model = assert_same(tmp_path / "m.npz")
    again = load_model(tmp_path / "m.npz")
    save_model(again, tmp_path / "again.npz")
    assert read_model(tmp_path / "again.npz").sha256 == model.sha256


@pytest.mark.parametrize("kind", FLOATS)
def test_floats_of_any_bits(tmp_path, kind):
    """Subnormals, the largest, zeros of both signs: an exact value for each pattern of bits."""
    rng = np.random.default_rng(1)
    size = np.dtype(kind).itemsize
    values = np.frombuffer(rng.bytes(size * 400), dtype=kind)
    info = np.finfo(np.dtype(kind).newbyteorder("="))
    special = [0.0, -0.0, info.max, info.min, info.tiny, info.smallest_subnormal, -info.smallest_subnormal, 1 / 3]
    values = np.concatenate([values[np.isfinite(values)], np.array(special)]).astype(kind)[-300:]
    weights = np.stack([values, values[::-1]]).astype(kind)
    assert weights.dtype == np.dtype(kind)
    model = assert_same(npz(tmp_path / "m.npz", W0=weights, b0=values[-2:]))
    (layer,) = model.layers
    for x, row in zip(weights.ravel().tolist(), np.array(layer.rows, dtype=object).ravel(), strict=True):
        assert Fraction(row, layer.unit) == Fraction(x)


@pytest.mark.parametrize("kind", INTEGERS)
def test_integers_of_any_type(tmp_path, kind):
    info = np.iinfo(kind)
    weights = np.array([[info.min, info.max, 0], [1, 2, info.max - 1]], dtype=kind)
    assert assert_same(npz(tmp_path / "m.npz", W0=weights)).layers[0].unit == 1


def test_numbers_that_are_texts(tmp_path):
    words = [
        b"1/3",
        b"5*2^-200",
        b"-7*2^300",
        b"0.25",
        b"-1e-3",
        b" 2 ",
        b"36/255",
        b"-0.5/0.3",
        b"1/-3",
        b"+4",
        b"0*2^0",
    ]
    weights = np.array([words, words[::-1]])
    model = assert_same(npz(tmp_path / "m.npz", W0=weights, b0=np.array([b"1/7", b"1e1000"])))
    assert Fraction(model.layers[0].rows[0][0], model.layers[0].unit) == Fraction(1, 3)


def test_either_order_of_memory(tmp_path):
    weights = np.arange(6.0).reshape(2, 3) / 7
    of_columns = np.asfortranarray(weights)
    first, second = (read_model(npz(tmp_path / "m.npz", W0=x)).sha256 for x in (weights, of_columns))
    assert first == second
    thin = np.asfortranarray([[1.5], [2], [3]])
    assert_same(npz(tmp_path / "m.npz", W0=of_columns[:1], W1=thin, b1=np.arange(3), W2=np.asfortranarray(thin.T)))


def test_headers_of_both_versions(tmp_path):
    for version in ((1, 0), (2, 0)):
        made = io.BytesIO()
        np.lib.format.write_array(made, np.array([[1.5, 2], [3, 4]]), version=version)
        with zipfile.ZipFile(tmp_path / "m.npz", "w") as archive:
            archive.writestr("W0.npy", made.getvalue())
        assert_same(tmp_path / "m.npz")


def test_what_does_not_count_is_not_looked_at(tmp_path):
    found = read_model(npz(tmp_path / "m.npz", W0=np.eye(2), shape=np.array([2, 1]), folded=np.array([b"batch norm"])))
    assert found.sha256 == read_model(npz(tmp_path / "n.npz", W0=np.eye(2))).sha256


def test_activations(tmp_path):
    weights = {f"W{i}": np.eye(2) for i in range(3)}
    names = np.array([b"leaky_relu:0.01", b"tanh"])
    model = assert_same(npz(tmp_path / "m.npz", **weights, activations=names))
    assert [layer.activation and layer.activation.name for layer in model.layers] == ["leaky_relu:1/100", "tanh", None]
    assert_same(npz(tmp_path / "n.npz", **weights))
    assert_same(npz(tmp_path / "n.npz", **weights), "softplus")
    with pytest.raises(Malformed, match="names 2 activations"):
        read_model(tmp_path / "m.npz", "relu")
    with pytest.raises(Malformed, match="'swish' is not understood"):
        read_model(tmp_path / "n.npz", "swish")


@pytest.mark.parametrize("kind", ["<f4", ">f8", "texts"])
def test_a_normalisation_is_in_the_first_layer(tmp_path, kind):
    """Exactly: the logits are those of factor·(x - mean)."""
    rng = np.random.default_rng(3)
    weights, bias, mean, factor = rng.normal(size=(3, 4)), rng.normal(size=3), rng.normal(size=4), rng.normal(size=4)
    column = [Fraction(k, 7) for k in (1, -2, 3, 4)]
    if kind == "texts":
        mean, factor = texts([column])[0], texts([column[::-1]])[0]
    else:
        mean, factor = mean.astype(kind), factor.astype(kind)
    model = assert_same(npz(tmp_path / "m.npz", W0=weights, b0=bias, W1=weights.T, mean=mean, factor=factor))
    plain = read_model(npz(tmp_path / "n.npz", W0=weights, b0=bias, W1=weights.T))
    x = [Fraction(k, 5) for k in (3, -1, 4, 1)]
    exact = [[Fraction(y.decode() if kind == "texts" else float(y)) for y in each] for each in (mean, factor)]
    moved = [f * (x_ - m) for x_, m, f in zip(x, *exact, strict=True)]
    assert values_at(model, x) == values_at(plain, moved)


@pytest.mark.parametrize("threshold", [None, "0*2^0", "1/2", "-3", "7*2^-30", "0.1"])
@pytest.mark.parametrize("bias", [None, [0.1]])
def test_a_single_output(tmp_path, threshold, bias):
    """Class 1 is the model's own output, class 0 the threshold."""
    arrays = {} if bias is None else {"b1": np.array(bias)}
    arrays |= {} if threshold is None else {"single": np.array([threshold.encode()])}
    model = assert_same(npz(tmp_path / "m.npz", W0=np.eye(2) / 3, W1=np.array([[1.5, -2]]), **arrays))
    said = Fraction(1, 2) if threshold == "1/2" else None
    assert values_at(model, [Fraction(1), Fraction(0)])[-1][0] == (
        said or load_model(tmp_path / "m.npz").single.constant
    )


@pytest.mark.parametrize("name", ["mlp.txt", "mlp.npz"])
def test_fixtures(name):
    assert_same(FIXTURES / name)


def test_the_published_model(paper_dir):
    assert_same(paper_dir / "mnist_8x128.txt")
    assert_same(paper_dir / "two_logit_network.txt")


@pytest.mark.parametrize("seed", range(10))
def test_text_models(tmp_path, seed):
    """Decimals of all notations, blanks between them, any ends of lines, a mark at the beginning; one output, too."""
    random = Random(seed)
    widths = [random.randint(1, 4) for _ in range(random.randint(2, 4))]

    def number():
        digits = f"{random.randint(0, 10**6)}"
        notation = random.choice(["{}", "-{}", "+{}", "{}.", ".{}", "0.{}", "-.{}e-7", "{}e5", "{}.5E+03", "{}e-0300"])
        return random.choice(["", " ", "\r\n"]) + notation.format(digits) + random.choice(["", "\t "])

    layers = [
        "[" + ",".join("[" + ",".join(number() for _ in range(outputs)) + "]" for _ in range(inputs)) + "]"
        for inputs, outputs in pairwise(widths)
    ]
    data = (
        random.choice(["", "\ufeff"]) + random.choice([",", " ,\n "]).join(layers) + random.choice(["", "\n", "\r\n "])
    )
    (tmp_path / "m.txt").write_bytes(data.encode())
    assert_same(tmp_path / "m.txt")
    assert_same(tmp_path / "m.txt", "leaky_relu:1/7")


def test_a_text_model_is_written_inputs_first(tmp_path):
    (tmp_path / "m").write_text("[[1,2,3],[4,5,6]]")
    assert read_model(tmp_path / "m").layers[0].rows == [(1, 4), (2, 5), (3, 6)]


# -- tables ----------------------------------------------------------------------------------------------------------


def table(path, scale=1):
    return list(read_table(path, Fraction(scale)))


@pytest.mark.parametrize("kind", [*FLOATS, *INTEGERS])
def test_arrays_of_rows(tmp_path, kind):
    """Of any number of sides: the first is the row, the others run through it."""
    rng = np.random.default_rng(5)
    for shape in ((1,), (7,), (3, 4), (5, 1), (1, 6), (2, 3, 2, 2)):
        values = (100 * rng.random(size=shape)).astype(kind)
        np.save(tmp_path / "x.npy", values)
        for scale in (Fraction(1), Fraction(1, 255), Fraction(-3)):
            expected = [[scale * Fraction(x) for x in row] for row in values.reshape(len(values), -1).tolist()]
            assert table(tmp_path / "x.npy", scale) == expected


@pytest.mark.parametrize(
    "data",
    [
        "1,-2.5,3e-2\n.5,+6.,7E1\n",
        "a,b,_c\n1,-2.5,3e-2\n.5,+6.,7E1",
        "\ufeffa,b,_c\r\n1, -2.5 ,3e-2\r\n\r\n .5,+6.,7E1",
        '\n  \n"x 1" , "größe",e5\n\t1,-2.5,3e-2\t\n \n0.5e0,6,70\n\n',
        "1,-2.50,.03\n0000.5,+06,7e0001\n",
    ],
)
def test_text_tables(tmp_path, data):
    """With a header or without, blank lines and blanks, any notation."""
    (tmp_path / "x.csv").write_bytes(data.encode())
    rows = [[Fraction(1), Fraction(-5, 2), Fraction(3, 100)], [Fraction(1, 2), Fraction(6), Fraction(70)]]
    for scale in (Fraction(1), Fraction(1, 3)):
        found = table(tmp_path / "x.csv", scale)
        assert found == [[scale * x for x in row] for row in rows]
        assert all(type(x) is Fraction for row in found for x in row)


def test_numbers_of_columns_are_an_output(tmp_path):
    (tmp_path / "x").write_text("0,1\n2,3\n")
    assert table(tmp_path / "x") == [[0, 1], [2, 3]]
    (tmp_path / "x").write_text("7\n-8\n")
    assert table(tmp_path / "x") == [[7], [-8]]


@given(st.lists(st.decimals(allow_nan=False, allow_infinity=False, min_value=-1000, max_value=1000), min_size=1))
def test_decimals_are_what_they_say(values):
    text = [str(x) for x in values]
    for word, value in zip(text, values, strict=True):
        top, bottom = reading._decimal(word)
        assert bottom > 0
        assert Fraction(top, bottom) == Fraction(value)


def test_rows_come_one_after_the_other(tmp_path):
    """A long table takes no more memory than a short one: it has never been read as a whole."""
    with (tmp_path / "x.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (2**28, 4)})
        file.truncate(file.tell() + 2**33)
    with (tmp_path / "x.csv").open("wb") as file:
        file.write(b"1,2\n" * 10)
        file.truncate(2**30)
    for name, width in (("x.npy", 4), ("x.csv", 2)):
        rows = read_table(tmp_path / name, Fraction(1))
        assert [len(next(rows)) for _ in range(10)] == [width] * 10
        rows.close()


def test_hashes(tmp_path):
    (tmp_path / "x").write_bytes(b"abc" * 10**6)
    assert file_sha256(tmp_path / "x") == sha256(b"abc" * 10**6).hexdigest()
    with pytest.raises(Malformed, match=r"nothing: there is no such file"):
        file_sha256(tmp_path / "nothing")


# -- what is refused -------------------------------------------------------------------------------------------------


def refused(read, path, said=None):
    """At once, naming the file. Gives what is said."""
    begun = time.monotonic()
    with pytest.raises(Malformed, match=said) as info:
        read(path)
    assert time.monotonic() - begun < 10
    assert str(path) in str(info.value)
    assert len(str(info.value)) < 1000
    return str(info.value)


PLAIN = {"W0": np.eye(2), "W1": np.ones((3, 2))}


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"terms": np.array([b"-1 dense 2 2"])}, "'terms.npy': no certificates yet of convolutions"),
        ({"factor_least": np.array([b"1/2"])}, "'factor_least.npy': no certificates yet"),
        ({"before_least0": np.array([b"1/2"])}, "'before_least0.npy': no certificates yet"),
        ({"after0": np.ones(2)}, "'after0.npy': no certificates yet"),
        ({"I0": np.ones(2)}, "'I0.npy': no certificates yet"),
        ({"W1_1": np.ones((3, 2))}, "'W1_1.npy': no certificates yet"),
        ({"surprise": np.ones(2)}, "'surprise.npy' is not known"),
        ({"W01": np.ones(2)}, "'W01.npy' is not known"),
        ({"W\u0661": np.ones(2)}, "is not known"),
        ({"W3": np.ones((2, 3))}, "without gaps"),
        ({"b2": np.ones(3)}, "without gaps"),
        ({"mean": np.zeros(2)}, "mean and factor or neither"),
        ({"factor": np.ones(2)}, "mean and factor or neither"),
        ({"mean": np.zeros(3), "factor": np.ones(2)}, "must be 2 numbers each"),
        ({"mean": np.zeros(3), "factor": np.ones(3)}, "must be 2 numbers each"),
        ({"mean": np.zeros(2), "factor": np.array([1.0, 0.0])}, "no factor zero"),
        ({"mean": np.zeros((2, 1)), "factor": np.ones((2, 1))}, "mean: shape"),
        ({"mean": np.array([b"1", b"2e9999"]), "factor": np.ones(2)}, "mean: .*exponent"),
        ({"W0": np.ones(2)}, "W0: shape"),
        ({"W0": np.ones((2, 2, 1))}, "W0: shape"),
        ({"W0": np.array(1.0)}, "W0: shape"),
        ({"W0": np.ones((2, 0))}, "W0: shape"),
        ({"W0": np.ones((0, 2))}, "W0: shape"),
        ({"W0": np.array([[np.nan, 1], [1, 1]])}, "W0 is damaged, or not plain.*NaN"),
        ({"W0": np.array([[np.inf, 1], [1, 1]])}, "W0 is damaged, or not plain.*Infinity"),
        ({"W0": np.array([[1, 1], [1, -np.inf]], dtype=">f2")}, "W0 is damaged, or not plain.*Infinity"),
        ({"W0": np.eye(2, dtype=bool)}, "W0: type '|b1'"),
        ({"W0": np.eye(2, dtype=complex)}, "W0: type '<c16'"),
        ({"W0": np.eye(2, dtype=np.longdouble)}, "W0: type '<f16'"),
        ({"W0": np.eye(2).astype("V2")}, "W0: type"),
        ({"W0": np.zeros((2, 2), dtype=[("x", "f4")])}, "W0: type"),
        ({"W0": np.array([["1", "2"], ["3", "4"]])}, "W0: type '<U1'"),
        ({"W0": np.array([[1, "2"], ["3", None]], dtype=object)}, "W0: type '|O'"),
        ({"W0": np.array([[b"1", b"x"], [b"3", b"4"]])}, "W0: 'x' is not a .finite. decimal"),
        ({"W0": np.array([[b"1", b"nan"], [b"3", b"4"]])}, "W0: 'nan' is not"),
        ({"W0": np.array([[b"1", b"1/0"], [b"3", b"4"]])}, "W0 is damaged, or not plain.*Zero"),
        ({"W0": np.array([[b"1", b"1*2^-20001"], [b"3", b"4"]])}, "W0: '1.2.-20001' is not"),
        ({"W0": np.array([[b"1", b"\xff"], [b"3", b"4"]])}, "W0 is damaged, or not plain"),
        ({"W0": np.array([[b"1", b"1/2/3"], [b"3", b"4"]])}, "W0: '2/3' is not"),
        ({"W1": np.ones((3, 4))}, "layer 1 takes 4 numbers"),
        ({"b0": np.ones(3)}, "one bias for each output"),
        ({"b0": np.ones((2, 1))}, "b0: shape"),
        ({"activations": np.array([b"relu", b"relu"])}, "2 activations"),
        ({"activations": np.array([b"max_pool:2"])}, "'max_pool:2' is not understood"),
        ({"activations": np.array([1.0])}, "activations is damaged, or not plain"),
        ({"activations": np.array([[b"relu"]])}, "activations: shape"),
        ({"activations": np.array([b"\xff"])}, "activations is damaged, or not plain"),
        ({"single": np.array([b"0"])}, "a single output"),
        ({"W1": np.ones((1, 2)), "single": np.array([b"regression"])}, "without classes nothing can be certified"),
        ({"W1": np.ones((1, 2)), "single": np.array([b"0", b"1"])}, "threshold"),
        ({"W1": np.ones((1, 2)), "single": np.array([b"none"])}, "'none' is not a .finite. decimal"),
        ({"W1": np.ones((1, 2)), "b1": np.ones(2)}, "one bias for each output"),
    ],
)
def test_an_archive_says_only_what_is_understood(tmp_path, arrays, said):
    np.savez(tmp_path / "m.npz", **(PLAIN | arrays))
    refused(read_model, tmp_path / "m.npz", said)


def test_members_are_what_the_package_writes(tmp_path):
    """Every name that its own reader understands is read, or refused as not there yet."""
    from intervalcert.io.models import npz_model

    for name in ("W0", "b12", "terms", "activations", "mean", "factor", "factor_least", "shape", "folded", "single"):
        assert npz_model._MEMBER.fullmatch(f"{name}.npy")
        assert bool(reading._MEMBER.fullmatch(f"{name}.npy")) != bool(reading._NOT_YET.fullmatch(f"{name}.npy"))
    for name in ("I3", "W3_1", "I3_10", "before0", "before_least7", "after12", "after_least0"):
        assert npz_model._MEMBER.fullmatch(f"{name}.npy")
        assert reading._NOT_YET.fullmatch(f"{name}.npy")


def npy(array, **changed):
    """The bytes of an array; or of one whose header says something else."""
    made = io.BytesIO()
    header = np.lib.format.header_data_from_array_1_0(array) | changed
    if not changed:
        np.save(made, array)
        return made.getvalue()
    text = repr(header).encode() if "raw" not in changed else changed["raw"]
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text + array.tobytes()


RAW = [
    b"",
    b"{",
    b"[" * 4000,
    b"-" * 4000 + b"1",
    b"(" * 80 + b")" * 80,
    b"1+" * 2000 + b"1",
    b"{[]: 1}",
    b"\0",
    b"\xff\xfe",
    b"'\\d'",
    b"__import__('os').system('false')",
    b"{'descr': '<f8', 'fortran_order': False, 'shape': (2, 2), 'more': 1}",
    b"{'descr': '<f8', 'fortran_order': 1, 'shape': (2, 2)}",
    b"{'descr': '<f8', 'fortran_order': False}",
    b"{'descr': '<f8', 'fortran_order': False, 'shape': " + b"9" * 3900 + b"}",
    b"{'descr': '<f8', 'fortran_order': False, 'shape': (2, 2.0)}",
    b"{'descr': '<f8', 'fortran_order': False, 'shape': (2, True)}",
    b"{'descr': '<f8', 'fortran_order': False, 'shape': (-2, -2)}",
    b"{'descr': '<f8', 'fortran_order': False, 'shape': (2, 2, 1, 0)}",
    b"{'descr': '<f8', 'fortran_order': False, 'shape': (2," + b"9" * 3800 + b")}",
    b"{'descr': '<f8', 'fortran_order': False, 'shape': (4611686018427387904, 4)}",
    b"{'descr': '<f8', 'fortran_order': False, 'shape': ()}",
    b"{'descr': '=f8', 'fortran_order': False, 'shape': (2, 2)}",
    b"{'descr': '|f8', 'fortran_order': False, 'shape': (2, 2)}",
    b"{'descr': '<f1', 'fortran_order': False, 'shape': (2, 16)}",
    b"{'descr': '|S0', 'fortran_order': False, 'shape': (2, 2)}",
    b"{'descr': '|S99999', 'fortran_order': False, 'shape': (2, 2)}",
    b"{'descr': '<f\xd9\xa8', 'fortran_order': False, 'shape': (2, 2)}",
    b"{'descr': ['<f8'], 'fortran_order': False, 'shape': (2, 2)}",
]


@pytest.mark.parametrize("raw", RAW)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_headers_that_are_not_plain(tmp_path, raw):
    data = npy(np.eye(2), raw=raw)
    (tmp_path / "x.npy").write_bytes(data)
    refused(table, tmp_path / "x.npy")
    with zipfile.ZipFile(tmp_path / "m.npz", "w") as archive:
        archive.writestr("W0.npy", data)
    refused(read_model, tmp_path / "m.npz", "W0")


def test_a_header_that_is_long_or_of_another_kind(tmp_path):
    for data in (
        b"\x93NUMPY\2\0" + struct.pack("<I", 2**31) + b"{",
        b"\x93NUMPY\1\0" + struct.pack("<H", 60_000) + b" " * 60_000,
        b"\x93NUMPY\3\0" + npy(np.eye(2))[8:],
        b"\x93NUMPY",
    ):
        (tmp_path / "x.npy").write_bytes(data)
        refused(table, tmp_path / "x.npy", "short header")


def test_arrays_hold_what_they_say(tmp_path):
    data = npy(np.ones((100, 3)))
    for found in (data[:-1], data[:-24], data + b"\0", data[:100]):
        (tmp_path / "x.npy").write_bytes(found)
        refused(table, tmp_path / "x.npy")
        with zipfile.ZipFile(tmp_path / "m.npz", "w") as archive:
            archive.writestr("W0.npy", found)
        refused(read_model, tmp_path / "m.npz", "W0")


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "layer 0"),
        (b" \n", "layer 0"),
        (b"[[1,2],[3]]", "layer 0 is damaged"),
        (b"[[1,2],[3,4]", "layer 0: ''"),
        (b"[[1,2],[3,4]],", "layer 1: ','"),
        (b"[[1,2],[3,4]][[1,2],[3,4]]", "layer 1: '..1,2"),
        (b"[[1,2][3,4]]", "layer 0: '.3,4"),
        (b"[[1,2],,[3,4]]", "layer 0: ',,"),
        (b"[1,2]", "layer 0: '.1,2"),
        (b"[[[1,2],[3,4]]]", "layer 0: '..."),
        (b"[[1,2],[[3,4]]]", "layer 0: ',..3"),
        (b"[[]]", "layer 0: '....'"),
        (b"[[1,]]", "layer 0: '' is not a"),
        (b"[[1,nan]]", "layer 0: 'nan' is not a"),
        (b"[[1,-inf]]", "layer 0: '-inf' is not a"),
        (b"[[1,1_0]]", "layer 0: '1_0' is not a"),
        (b"[[1,1 0]]", "layer 0: '1 0' is not a"),
        (b"[[1,0x10]]", "layer 0: '0x10' is not a"),
        (b"[[1,1/2]]", "layer 0: '1/2' is not a"),
        ("[[1,\u0663]]".encode(), "is not a .finite. decimal"),
        ("[[1,\uff11]]".encode(), "is not a .finite. decimal"),
        (b"[[1,1e]]", "layer 0: '1e' is not a"),
        (b"[[1,.]]", "layer 0: '.' is not a"),
        (b"[[1,1e1001]]", "exponent beyond"),
        (b"[[1,1e-1001]]", "exponent beyond"),
        (b"[[1,1e99999999999999999999]]", "exponent beyond"),
        (b"[[1,%b]]" % (b"1" * 1501), "1500 digits"),
        (b"[[1,2],[3,4]] x", "layer 1: 'x'"),
        (b"[[1,2],[3,4]],[[1,2,3]]", "layer 1 takes 1 numbers"),
        (b"[[1,2],[\xff,4]]", "UnicodeDecodeError"),
        (b"\x08\x07onnx", "neither a numpy file nor text"),
        (b"\x1f\x8b\x08\0", "gunzip"),
        (npy(np.eye(2)), "damaged|neither"),
        (b"PK", "is it truncated"),
        (b"PK\5\6" + bytes(18), "no|without gaps"),
        (b"PK\3\4" + bytes(100), "is it truncated"),
    ],
)
def test_models_that_are_refused(tmp_path, data, said):
    (tmp_path / "m.txt").write_bytes(data)
    refused(read_model, tmp_path / "m.txt", said)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "no rows"),
        (b"a,b\n\n", "no rows"),
        (b"1,2\n3\n", "line 2: 1 numbers"),
        (b"a,b\n1,2\na,b\n", "line 3: 'a' is not a"),
        (b"\n1,2\n3,4,5\n", "line 3: 3 numbers"),
        (b"1,2,\n", "line 1: '' is not a"),
        (b"3.0,3.0,4.0 0.49\n", "line 1: .*before an eps"),
        (b"3.0 0.49\n", "line 1: .*before an eps"),
        (b"1 2 3\n", "line 1: .*where a comma is expected"),
        (b"1;2;3\n", "line 1: '1;2;3' is not a"),
        (b"nan,nan\n1,2\n", "line 1: 'nan' is not a"),
        (b"-inf,1\n", "line 1: '-inf' is not a"),
        (b"Infinity,NaN\n", "line 1: 'Infinity' is not a"),
        (b"NA,none\n", "line 1: 'NA' is not a"),
        (b"1,1_0\n", "line 1: '1_0' is not a"),
        ("\u0661,2\n".encode(), "line 1: .* is not a"),
        ("\u00b2,\u00b3\n1,2".encode(), "line 1: .* is not a"),
        (b"1,1e1001\n", "line 1: .*exponent beyond"),
        (b"1,0.%b\n" % (b"1" * 1500), "line 1: .*1500 digits"),
        (b"1,2\n1,\xff\n", "UnicodeDecodeError"),
        (b"1\r2\r3\n", "line 1: .* a comma is expected"),
        (b"x\r1\n2\n", "line 1: .* a comma is expected"),
        (b"x\x0b1\n2\n", "line 1: .* a comma is expected"),
        (b"x,\ry\n2,3\n", "line 1: 'x' is not a"),
        (b"1,\r2\n2,3\n", "line 1: .* is not a"),
        (b"1,\x0b2,3\n", "line 1: .* is not a"),
        ("x\u2028y,z\n2,3\n".encode(), "line 1: .* is not a"),
        ("1,2\n\ufeff3,4\n".encode(), "line 2: .* is not a"),
        (b"1,2\n1,\0\n", "line 2: .* is not a"),
        (b"\x1f\x8b\x08\0", "gunzip"),
        (b"PAR1\x15\x04", "damaged|neither|not a"),
    ],
)
def test_tables_that_are_refused(tmp_path, data, said):
    (tmp_path / "x.csv").write_bytes(data)
    refused(table, tmp_path / "x.csv", said)


def test_arrays_that_are_no_tables(tmp_path):
    path = tmp_path / "x.npy"
    for array, said in (
        (np.array(1.0), "shape"),
        (np.ones((0, 3)), "shape"),
        (np.ones((3, 0)), "shape"),
        (np.ones((2, 3), order="F"), "C order"),
        (np.array([[1.0, np.nan]]), "NaN"),
        (np.array([[1.0, np.inf]], dtype="<f2"), "Infinity"),
        (np.array([True]), "type '|b1'"),
        (np.ones((2, 2), dtype="<c8"), "type '<c8'"),
        (np.ones((2, 2)).astype("V2"), "type"),
        (np.ones((1, 2**20 + 1), dtype="i1"), "in a row"),
    ):
        np.save(path, array)
        refused(table, path, said)
    np.save(path, np.array([{}], dtype=object), allow_pickle=True)
    refused(table, path, "type '|O'")


def test_files_that_cannot_be_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "packed.csv.gz").write_bytes(b"1,2\n")
    for read in (read_model, table, file_sha256):
        for path in (
            tmp_path / "nothing",
            tmp_path,
            tmp_path / "pipe",
            Path("/dev/zero"),
            Path("x\0y"),
            tmp_path / ("x" * 300),
        ):
            refused(read, path)
    for read in (read_model, table):
        refused(read, tmp_path / "packed.csv.gz", "gunzip")


# -- hostile files ---------------------------------------------------------------------------------------------------


def archived(path, *members, **options):
    """An archive of members (name, bytes), written one after the other, whatever their names."""
    with zipfile.ZipFile(path, "w", options.get("method", zipfile.ZIP_DEFLATED)) as archive:
        for name, data in members:
            info = zipfile.ZipInfo("x")
            info.filename = info.orig_filename = name
            info.compress_type = archive.compression
            archive.writestr(info, data)
    return path


@pytest.mark.parametrize(
    "name", ["W0.npy", "W0.npz", "/W0.npy", "../W0.npy", "W0.npy\0x", "", "W0", "W0.npy\n", "w0.npy"]
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_names_of_members(tmp_path, name):
    path = archived(tmp_path / "m.npz", (name, npy(np.eye(2))), ("W0.npy", npy(np.eye(2))))
    refused(read_model, path, "is not known, there twice")


def test_what_is_compressed_too_much_can_be_saved_otherwise(tmp_path):
    weights = np.zeros((1024, 1024))
    np.savez_compressed(tmp_path / "m.npz", W0=weights)
    refused(read_model, tmp_path / "m.npz", "unpacks to far too much")
    assert_same(npz(tmp_path / "m.npz", W0=weights))
    np.savez_compressed(tmp_path / "m.npz", **{f"W{i}": np.tile(np.arange(200.0), (200, 2)) for i in range(20)})
    refused(read_model, tmp_path / "m.npz", "bytes unpacked: save it by numpy.savez")


def test_members_that_are_packed_in_unusual_ways(tmp_path):
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        refused(read_model, archived(tmp_path / "m.npz", ("W0.npy", npy(np.eye(2))), method=method), "unusual way")
    path = archived(tmp_path / "m.npz", ("W0.npy", npy(np.eye(2))), method=zipfile.ZIP_STORED)
    data = bytearray(path.read_bytes())
    data[6] |= 1
    data[data.rindex(b"PK\1\2") + 8] |= 1
    path.write_bytes(data)
    refused(read_model, path, "W0 is damaged.*encrypted")


def test_what_is_damaged_inside_is_found(tmp_path):
    """The numbers of a member have a checksum."""
    path = archived(tmp_path / "m.npz", ("W0.npy", npy(np.eye(2))), method=zipfile.ZIP_STORED)
    data = path.read_bytes()
    path.write_bytes(data.replace(struct.pack("<d", 1), struct.pack("<d", 2)))
    refused(read_model, path, "W0 is damaged.*CRC")


def limited(code, *words, megabytes=700, seconds=60):
    """What a program prints that may take so much memory, and no more."""
    begin = f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({megabytes << 20}, {megabytes << 20}))\n"
    begin += "from pathlib import Path; from fractions import Fraction; import sys\n"
    begin += "from intervalcert.checker.model import Malformed\nfrom intervalcert.checker.reading import *\n"
    words = [sys.executable, "-c", BARE + begin + code, *map(str, words)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=seconds, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


BARE = """
import sys
for name in ("numpy", "flint", "mpmath", "scipy", "rich"):
    sys.modules[name] = None
import types
package = types.ModuleType("intervalcert")
package.__path__ = ["intervalcert"]
sys.modules["intervalcert"] = package
"""
"""The package without what it imports: a checker needs none of that."""

TRIED = """
import time
begun = time.monotonic()
try:
    print(*(x.sha256 for x in [read_model(Path(sys.argv[2]))])) if sys.argv[1] == "model" else print(sum(1 for _ in
        read_table(Path(sys.argv[2]), Fraction(1))))
except Malformed as error:
    print("Malformed", "MemoryError" in str(error), error)
print(time.monotonic() - begun, file=sys.stderr) if time.monotonic() - begun > 30 else None
"""


def header(descr, shape):
    text = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode()
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text


def bomb(path, size, name="W0.npy", begin=b"", said=None):
    """A member that unpacks to so many zeros, of which the directory says so, or something else."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed, crc = [packer.compress(begin)], zlib.crc32(begin)
    for start in range(0, size - len(begin), 2**20):
        piece = bytes(min(2**20, size - len(begin) - start))
        packed.append(packer.compress(piece))
        crc = zlib.crc32(piece, crc)
    data = b"".join([*packed, packer.flush()])
    sizes = struct.pack("<LLL", crc, len(data), size if said is None else said)
    rest = struct.pack("<HH", len(name), 0)
    local = b"PK\3\4" + struct.pack("<HHHHH", 20, 0, 8, 0, 0) + sizes + rest + name.encode() + data
    listed = b"PK\1\2" + struct.pack("<HHHHHH", 20, 20, 0, 8, 0, 0) + sizes + rest + bytes(14) + name.encode()
    end = b"PK\5\6" + struct.pack("<HHHHLLH", 0, 0, 1, 1, len(listed), len(local), 0)
    path.write_bytes(local + listed + end)
    return path


def ints(count, word, width):
    return header(f"|S{width}", (2, count // 2)) + word * count


def thin(count):
    """Matrices of few columns, which do not fit each other."""
    return ((f"W{k}.npy", header("|i1", (2**13, 5)) + bytes(range(256)) * 160) for k in range(count))


HOSTILE = {
    "zeros": lambda p: bomb(p, 2**28),
    "zeros of a matrix": lambda p: bomb(p, 2**27, begin=header("|i1", (2**13, (2**27 - 80) // 2**13))),
    "more than is said": lambda p: bomb(p, 2**29, begin=header("<f8", (2, 2)), said=len(header("<f8", (2, 2))) + 32),
    "many thin rows": lambda p: bomb(p, 2**20, begin=header("|i1", (2**20 - 61, 1)).ljust(61)),
    "many thin matrices": lambda p: archived(p, *thin(200)),
    "a header of zeros": lambda p: bomb(p, 2**20, begin=b"\x93NUMPY\2\0" + struct.pack("<L", 2**19)),
    "powers": lambda p: archived(p, ("W0.npy", ints(2**19, b"1*2^20000", 9))),
    "powers in rows": lambda p: archived(p, ("W0.npy", header("|S9", (2**15, 4)) + b"1*2^20000" * 2**17)),
    "one power": lambda p: archived(
        p, ("W0.npy", header("|S6", (2**15, 4)) + b"1e-999" + (b"1" + bytes(5)) * (2**17 - 1))
    ),
    "primes": lambda p: archived(
        p, ("W0.npy", header("|S9", (100, 100)) + b"".join(b"1/%07d" % (10**6 + 7 * k + 1) for k in range(10**4)))
    ),
    "longs": lambda p: archived(
        p, ("W0.npy", header("|S1502", (2, 300)) + b"".join(b"1/%01500d" % (10**1499 + 2 * k + 1) for k in range(600)))
    ),
    "many members": lambda p: archived(p, *((f"b{k}.npy", b"") for k in range(5000))),
    "huge shapes": lambda p: archived(p, ("W0.npy", header("<f8", (2**60, 2**60)) + bytes(100))),
    "names": lambda p: archived(
        p, ("W0.npy", npy(np.eye(2))), ("activations.npy", header("|S2", (2**22,)) + b"xy" * 2**22)
    ),
    "long means": lambda p: archived(
        p,
        ("W0.npy", npy(np.random.default_rng(0).integers(-99, 99, (2**9, 2**10), dtype="i1"))),
        ("mean.npy", header("|S10", (2**10,)) + b"1*2^-19999" * 2**10),
        ("factor.npy", header("|S10", (2**10,)) + b"3*2^-19999" * 2**10),
    ),
    "brackets": lambda p: p.write_bytes(b"[" * 10**7) and p,
    "closed brackets": lambda p: p.write_bytes(b"]" * 10**7) and p,
    "layers": lambda p: p.write_bytes(b",".join([b"[[1]]"] * 10**6)) and p,
    "blanks": lambda p: p.write_bytes(b" " * 10**7) and p,
    "blanks in brackets": lambda p: p.write_bytes(b"[" + b" " * 10**7) and p,
    "blanks in rows": lambda p: p.write_bytes(b"[[" + b" " * 10**6 + b"1" + b" " * 10**6 + b"2]]") and p,
    "digits": lambda p: p.write_bytes(b"[[1," + b"7" * 10**6 + b"]]") and p,
    "more digits": lambda p: p.write_bytes(b"[[1," + b"7" * 10**7) and p,
    "zeros of an exponent": lambda p: p.write_bytes(b"[[1,1e" + b"0" * 10**6 + b"x]]") and p,
    "exponents": lambda p: p.write_bytes(b"[[1e-1000" + b",1e1000" * 5 * 10**5 + b"]]") and p,
    "an exponent": lambda p: p.write_bytes(b"[[1e-1000" + b",1" * 10**6 + b"]]") and p,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_models_take_neither_memory_nor_time(tmp_path, name):
    path = HOSTILE[name](tmp_path / "m.npz")
    assert path.stat().st_size < 2**24
    said = limited(TRIED, "model", path)
    assert said.startswith(f"Malformed False {path}"), said[:300]
    assert len(said) < 1000


HOSTILE_TABLES = {
    "a line": b"1," * 2**22,
    "a name": b"x" * 2**23,
    "digits": b"1,2\n1," + b"7" * 10**6 + b"\n",
    "zeros of an exponent": b"1,1e" + b"0" * 10**6 + b"x\n",
    "columns": b"1" + b",1" * (2**20 + 1),
    "brackets": b"[" * 10**7,
    "a sparse array": header("<f8", (2**40, 784)) + bytes(100),
    "a wide array": header("<f8", (1, 2**20 + 1)) + bytes(8 * (2**20 + 1)),
    "an empty row": header("<f8", (2**62, 0)),
}


@pytest.mark.parametrize("name", HOSTILE_TABLES)
def test_hostile_tables_take_neither_memory_nor_time(tmp_path, name):
    (tmp_path / "x").write_bytes(HOSTILE_TABLES[name])
    said = limited(TRIED, "table", tmp_path / "x", megabytes=400)
    assert said.startswith(f"Malformed False {tmp_path / 'x'}"), said[:300]


def test_what_is_large_and_honest_is_read(tmp_path):
    """A row of a million numbers, blank lines without end, weights of which one is subnormal."""
    (tmp_path / "x.csv").write_bytes(b"\n" * 10**7 + b"1" + b",2" * (2**20 - 1))
    assert limited(TRIED, "table", tmp_path / "x.csv").strip() == "1"
    save_model(Network.from_arrays([np.eye(1024) / 10]), tmp_path / "m.npz")  # it is compressed, 400 times
    assert (tmp_path / "m.npz").stat().st_size < 2**15
    assert_same(tmp_path / "m.npz")
    weights = np.random.default_rng(0).normal(size=(100, 784))
    weights[0, 0] = 5e-324
    assert assert_same(npz(tmp_path / "m.npz", W0=weights)).layers[0].unit == 2**1074


# -- damaged files ---------------------------------------------------------------------------------------------------


def whole(path, read):
    """Whatever is in the file: Malformed, or something that is well formed."""
    found = None
    with suppress(Malformed):
        found = read(path)
    if found is None:
        refused(read, path)
    elif isinstance(found, Model):
        assert len(found.sha256) == 64
        for layer in found.layers:
            assert all(type(x) is int for row in layer.rows for x in row)
            assert all(type(x) is int for x in layer.bias)
    else:
        assert found
        assert {len(row) for row in found} == {len(found[0])}
        assert all(type(x) is Fraction for row in found for x in row)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """A file of each kind: its bytes, and what reads it."""
    folder = tmp_path_factory.mktemp("models")
    arrays = {
        "W0": np.arange(6.0).reshape(3, 2) / 7,
        "b0": np.arange(3, dtype="f4"),
        "W1": np.array([[b"1/3", b"-2", b".5"]]),
    }
    more = {"mean": np.ones(2), "factor": np.array([b"1/3", b"2"]), "single": np.array([b"1/2"])}
    np.savez(folder / "stored.npz", **arrays, **more, activations=np.array([b"leaky_relu:0.5"]))
    np.savez_compressed(folder / "packed.npz", **arrays, **more)
    (folder / "m.txt").write_text("[[1,-2.5],[3e-2,4]],\n[[1.25,2],[3,4]]\n")
    np.save(folder / "x.npy", np.arange(12.0).reshape(2, 3, 2))
    (folder / "x.csv").write_text("a,b\n1,-2.5\n3e-2,4\n")
    return {path.name: path.read_bytes() for path in folder.iterdir()}


KINDS = {"stored.npz": read_model, "packed.npz": read_model, "m.txt": read_model, "x.npy": table, "x.csv": table}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::SyntaxWarning")
def test_every_truncation(tmp_path, models, name):
    path = tmp_path / name
    for end in range(len(models[name])):
        path.write_bytes(models[name][:end])
        whole(path, KINDS[name])
        if name.endswith(("npz", "npy")):
            with pytest.raises(Malformed):
                KINDS[name](path)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::SyntaxWarning")
@given(data=st.data())
def test_changed_bytes(tmp_path_factory, models, name, data):
    """Bytes that are flipped, left out, or doubled."""
    changed = bytearray(models[name])
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(changed) - 1))
        kind = data.draw(st.integers(0, 3))
        if kind < 2:
            changed[place] = data.draw(st.integers(0, 255) if kind else st.sampled_from(b"0123456789[],.-+eE \n\0\xff"))
        elif kind == 2:
            del changed[place : place + data.draw(st.integers(1, 9))]
        else:
            changed[place:place] = changed[place : place + data.draw(st.integers(1, 9))]
    path = tmp_path_factory.getbasetemp() / f"changed {name}"
    path.write_bytes(changed)
    whole(path, KINDS[name])


@pytest.mark.parametrize("name", ["stored.npz", "packed.npz"])
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::SyntaxWarning")
def test_every_flipped_byte_of_an_archive(tmp_path, models, name):
    """None that counts is overlooked: what is still read is the same model."""
    path = tmp_path / "m.npz"
    path.write_bytes(models[name])
    expected = read_model(path).sha256
    for place in range(len(models[name])):
        changed = bytearray(models[name])
        changed[place] ^= 0xFF
        path.write_bytes(changed)
        whole(path, read_model)
        with suppress(Malformed):
            assert read_model(path).sha256 == expected


@given(st.text("0123456789[],.-+eE \n", max_size=40))
def test_any_text(tmp_path_factory, text):
    """A model that is read here is one that the package reads, too; and a table likewise."""
    path = tmp_path_factory.getbasetemp() / "any.txt"
    path.write_text(text)
    whole(path, read_model)
    whole(path, table)


@given(st.text("01[],. ", max_size=12).map(lambda text: f"[[1,{text}2]]"))
def test_what_is_read_is_read_by_the_package_too(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "both.txt"
    path.write_text(text)
    try:
        read_model(path)
    except Malformed:
        return
    assert_same(path)


# -- by itself -------------------------------------------------------------------------------------------------------


def test_nothing_but_the_standard_library_is_imported():
    said = limited("print(sorted(x for x in sys.modules if x.split('.')[0] in ('numpy', 'flint', 'intervalcert')))")
    names = [
        "flint",
        "intervalcert",
        "intervalcert.checker",
        "intervalcert.checker.model",
        "intervalcert.checker.reading",
    ]
    assert said.strip() == str([*names, "numpy"])  # numpy and flint: None


def test_the_folder_by_itself(tmp_path, models):
    """A copy of it reads the same, without the package and without what is installed beside it."""
    shutil.copytree(
        ROOT / "intervalcert" / "checker", tmp_path / "checker", ignore=shutil.ignore_patterns("__pycache__")
    )
    (tmp_path / "m.npz").write_bytes(models["stored.npz"])
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import checker.reading as r; from pathlib import Path; "
        f"print(r.__file__, r.read_model(Path({str(tmp_path / 'm.npz')!r})).sha256); "
        "print([x for x in sys.modules if x.split('.')[0] in ('numpy', 'flint', 'intervalcert')])"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    expected = read_model(tmp_path / "m.npz").sha256
    assert done.stdout.split() == [str(tmp_path / "checker" / "reading.py"), expected, "[]"]


def test_no_line_computes_with_floats():
    """No literal of one, no call of float, no import beyond the standard library; at most 300 lines."""
    import ast

    source = (ROOT / "intervalcert" / "checker" / "reading.py").read_text()
    assert source.count("\n") <= 300
    for node in ast.walk(ast.parse(source)):
        assert not (isinstance(node, ast.Constant) and isinstance(node.value, float | complex))
        assert not (isinstance(node, ast.Name) and node.id in {"float", "complex", "eval", "exec", "round"})
        assert not isinstance(node, ast.Div)
        if isinstance(node, ast.ImportFrom):
            assert (node.level, node.module) == (1, "model") or node.module.split(".")[0] in sys.stdlib_module_names
        if isinstance(node, ast.Import):
            assert all(alias.name in sys.stdlib_module_names for alias in node.names)
