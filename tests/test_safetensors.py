"""safetensors files, and what names of tensors say: an order where they state one, never a guess."""

import json
import struct
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from intervalcert import InputError, UsageError, load_model
from intervalcert.io.models import named
from intervalcert.io.models.interface import Hints
from intervalcert.io.models.named import Stored, from_bfloat16, network_of
from tests.commands import ran

pytest.importorskip("safetensors", reason="the package safetensors is not installed")

FIXTURES = Path(__file__).parent / "fixtures"
FIXTURE = FIXTURES / "mlp.safetensors"
CODES = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "BF16": "<u2", "I64": "<i8", "U8": "u1"}


def written(path, tensors, *, metadata=None, types=None):
    """A file with these arrays, made by hand: safetensors' own writer would refuse some of them."""
    header, body = {}, b""
    if metadata is not None:
        header["__metadata__"] = metadata
    for name, array in tensors.items():
        kind = (types or {}).get(name) or next(k for k, code in CODES.items() if np.dtype(code) == array.dtype)
        data = array.astype(array.dtype.newbyteorder("<")).tobytes()
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    return raw(path, json.dumps(header).encode(), body)


def raw(path, header, body):
    """Spaces keep the length away from what other formats begin with."""
    header += b" " * (-len(header) % 8)
    path.write_bytes(struct.pack("<Q", len(header)) + header + body)
    return path


def layer(outputs, inputs, seed=0):
    return np.random.default_rng([seed, outputs, inputs]).normal(size=(outputs, inputs)).astype(np.float32)


def stored(shapes, kind="float32"):
    """Tensors of these shapes, all zero."""

    def one(shape):
        return Stored(kind, shape, lambda: np.zeros(shape, dtype=np.float32))

    return {name: one(shape) for name, shape in shapes.items()}


def chain(names):
    """Layers of different widths 2, 3, 4, … in that order, listed in another one."""
    shapes = {f"{name}.weight" if name else "weight": (i + 3, i + 2) for i, name in enumerate(names)}
    return stored(dict(sorted(shapes.items(), reverse=True)))


def widths(network):
    return [layer.weights.shape for layer in network.layers]


def exact(array):
    return [[Fraction(float(x)) for x in row] for row in array]


def fractions(matrix):
    rows, columns = matrix.shape
    return [[matrix[i, j] for j in range(columns)] for i in range(rows)]


# -- the same network ------------------------------------------------------------------------------------------------


def test_the_fixture_is_the_network_of_the_npz_file():
    network, expected = load_model(FIXTURE), load_model(FIXTURES / "mlp.npz")
    for one, other in zip(network.layers, expected.layers, strict=True):
        assert fractions(one.weights) == fractions(other.weights)
        assert fractions(one.bias) == fractions(other.bias)
    assert network.activations == ("relu", "relu", None)
    assert network.content == expected.content
    assert [source.name for source in network.sources] == ["mlp.safetensors"]


@pytest.mark.parametrize("code", ["<f2", "<f4", "<f8"])
def test_floats_are_their_binary_value(tmp_path, code):
    ends = np.finfo(code)
    array = np.array([[ends.max, -ends.tiny], [ends.smallest_subnormal, 0.1]], dtype=code)
    network = load_model(written(tmp_path / "m.safetensors", {"weight": array}))
    assert fractions(network.layers[0].weights) == exact(array)


def test_bfloat16_is_exact(tmp_path):
    """All finite ones, beside Python's own arithmetic: sign, 8 bits of exponent, 7 of mantissa."""
    bits = np.array([x for x in range(2**16) if x >> 7 & 255 != 255], dtype="<u2").reshape(2, -1)

    def value(x):
        sign, exponent, mantissa = (-1) ** (x >> 15), x >> 7 & 255, x & 127
        return sign * (Fraction(mantissa) if not exponent else Fraction(128 + mantissa) * 2 ** (exponent - 1)) / 2**133

    network = load_model(written(tmp_path / "m.safetensors", {"weight": bits}, types={"weight": "BF16"}))
    assert fractions(network.layers[0].weights) == [[value(int(x)) for x in row] for row in bits]


def test_bfloat16_of_any_layout_is_read_by_its_bits():
    bits = np.array([[0x3F80, 0xC000], [0x0001, 0x7F7F]], dtype=np.uint16)
    assert from_bfloat16(bits.T).tolist() == from_bfloat16(bits).T.tolist()


def test_numbers_stay_as_they_are_stored(tmp_path, monkeypatch):
    """A large file is not turned into Python's integers when it is read."""
    monkeypatch.setattr("intervalcert.numbers.matrices.exact_integers", lambda *_: pytest.fail("converted"))
    network = load_model(written(tmp_path / "m.safetensors", {"0.weight": layer(3, 2), "2.weight": layer(2, 3)}))
    assert network.inputs == 2


def test_metadata_means_nothing(tmp_path):
    tensors = {"a1.weight": layer(3, 2), "a2.weight": layer(2, 3)}
    plain = load_model(written(tmp_path / "a.safetensors", tensors))
    assert load_model(written(tmp_path / "b.safetensors", tensors, metadata={"x": "y"})).content == plain.content


# -- the order of the layers -----------------------------------------------------------------------------------------

ORDERED = [
    ["fc1", "fc2", "fc10"],
    ["fc9", "fc10", "fc11"],
    ["0", "2", "4"],
    ["0", "3", "5"],
    ["net.0", "net.2"],
    ["module.0", "module.2"],
    ["_orig_mod.module.1", "_orig_mod.module.3", "_orig_mod.module.10"],
    ["model.layers.3.linear", "model.layers.12.linear"],
    ["a1b.c", "a2b.c", "a03b.c"],
    ["7.0", "10.0"],
    [""],
    ["whatever"],
]


@pytest.mark.parametrize("names", ORDERED, ids=str)
def test_names_that_differ_in_one_number_say_the_order(names):
    network = network_of(chain(names), Hints())
    assert widths(network) == [(i + 3, i + 2) for i in range(len(names))]


UNORDERED = [
    ["a", "b"],
    ["fc1", "out"],
    ["encoder1.fc1", "encoder1.fc2", "encoder2.fc1"],
    ["fc1", "fc01"],
    ["fc1", "fc01", "fc2"],
    ["fc", "fc1"],
    ["a1", "b2"],
    ["1a", "2b"],
    ["fc¹", "fc²"],
    ["fc١", "fc٢"],
    ["x1y1", "x2y2"],
    ["", "1"],
]


@pytest.mark.parametrize("names", UNORDERED, ids=str)
def test_an_order_is_never_guessed(names):
    """Widths that fit would do, or the alphabet; but two equal widths would be swapped in silence."""
    with pytest.raises(InputError, match=r"order: say it with --layers") as caught:
        network_of(chain(names), Hints())
    assert all(repr(name) in str(caught.value) for name in names)
    assert widths(network_of(chain(names), Hints(layers=tuple(names)))) == [(i + 3, i + 2) for i in range(len(names))]


BESIDE = [
    ["0", "1"],
    ["0", "1", "3"],
    ["net.0", "net.2", "net.3"],
    ["module.0", "module.1"],
    ["_orig_mod.4", "_orig_mod.5"],
]


@pytest.mark.parametrize("names", BESIDE, ids=str)
def test_layers_side_by_side_in_a_sequential_have_nothing_between_them(names):
    """Sequential(Linear, Linear, ReLU, Linear) has the names 0, 1, 3: a relu after 0 is another network."""
    for hints in (Hints(), Hints(activation="relu")):
        with pytest.raises(InputError, match=r"side by side.*--layers"):
            network_of(chain(names), hints)
    assert len(network_of(chain(names), Hints(layers=tuple(names))).layers) == len(names)


@pytest.mark.parametrize("names", [["layers.0", "layers.1", "layers.2"], ["my_module.7", "my_module.8"]], ids=str)
def test_neighbours_in_a_list_need_an_activation_that_is_said(names):
    """A ModuleList has functions between its layers, a Sequential with the same names has none."""
    with pytest.raises(InputError, match=r"side by side.*ModuleList.*--activation"):
        network_of(chain(names), Hints())
    for name in ("relu", "tanh", "identity"):
        network = network_of(chain(names), Hints(activation=name))
        assert network.activations == (*[name] * (len(names) - 1), None)
        assert widths(network) == [(i + 3, i + 2) for i in range(len(names))]


def test_the_order_that_is_said_is_taken():
    tensors = stored({"a.weight": (4, 3), "b.weight": (3, 2)})
    assert widths(network_of(tensors, Hints(layers=("b", "a")))) == [(3, 2), (4, 3)]
    square = {"fc1.weight": Stored("float32", (2, 2), lambda: np.array([[1, 2], [3, 4]], dtype=np.float32))}
    square["fc2.weight"] = Stored("float32", (2, 2), lambda: np.array([[5, 6], [7, 8]], dtype=np.float32))
    swapped = network_of(square, Hints(layers=("fc2", "fc1")))
    assert [fractions(found.weights) for found in swapped.layers] == [[[5, 6], [7, 8]], [[1, 2], [3, 4]]]


@pytest.mark.parametrize(
    ("layers", "said"),
    [
        (("fc1",), r"leaves out \['fc2'\]"),
        (("fc1", "fc2", "fc3"), r"no layer 'fc3'; there are \['fc1', 'fc2'\]"),
        (("fc1", "fc2", "fc1"), "twice"),
        (("fc1.weight", "fc2.weight"), r"no layer 'fc1.weight'"),
        ((), r"leaves out"),
    ],
)
def test_all_layers_are_named_once(layers, said):
    tensors = stored({"fc1.weight": (3, 2), "fc2.weight": (2, 3)})
    with pytest.raises(InputError, match=said):
        network_of(tensors, Hints(layers=layers))


def test_widths_that_do_not_fit_are_refused():
    with pytest.raises(InputError, match=r"layer 'fc2'.*for 4 inputs.*but there are 3.*--layers"):
        network_of(stored({"fc1.weight": (3, 2), "fc2.weight": (2, 4)}), Hints())


def test_the_activation_stands_between_all_layers(tmp_path):
    path = written(tmp_path / "m.safetensors", {f"{i}.weight": layer(2, 2, i) for i in (0, 2, 4)})
    assert load_model(path).activations == ("relu", "relu", None)
    assert load_model(path, activation="tanh").activations == ("tanh", "tanh", None)
    assert load_model(path, activation="identity").activations == ("identity", "identity", None)
    with pytest.raises(InputError, match="no Lipschitz constant"):
        load_model(path, activation="gelu")


# -- what is not a linear layer --------------------------------------------------------------------------------------

LAYER = {"0.weight": (3, 2), "0.bias": (3,)}
STRANGE = {
    "batch normalisation": ({"1.weight": (3,), "1.bias": (3,), "1.running_mean": (3,)}, "'1.running_mean'.*batch norm"),
    "its variance": ({"1.running_var": (3,)}, "batch normalisation"),
    "its counter": ({"1.num_batches_tracked": ()}, "batch normalisation"),
    "layer normalisation": ({"1.weight": (3,), "1.bias": (3,)}, r"'1.weight' \(float32, shape \[3\]\)"),
    "convolution": ({"1.weight": (3, 3, 1, 1)}, r"shape \[3, 3, 1, 1\]\).*export the model to ONNX"),
    "scalar": ({"scale": ()}, r"'scale' \(float32, shape \[\]\)"),
    "another name": ({"1.kernel": (3, 3)}, "'1.kernel'"),
    "a name that ends alike": ({"xweight": (3, 3)}, "'xweight'"),
    "weight normalisation": ({"1.weight_g": (3, 1), "1.weight_v": (3, 3)}, "'1.weight_g'"),
    "parametrisation": ({"1.parametrizations.weight.original0": (3, 3)}, "original0"),
    "bias without weight": ({"1.bias": (3,)}, "bias of a layer without a weight"),
    "bias that is a matrix": ({"1.weight": (3, 3), "1.bias": (3, 1)}, "'1.bias'"),
    "nameless": ({".weight": (3, 3)}, "'.weight'"),
}


@pytest.mark.parametrize("case", STRANGE)
def test_every_tensor_is_used_or_refused(case):
    more, said = STRANGE[case]
    assert len(network_of(stored(LAYER), Hints()).layers) == 1
    with pytest.raises(InputError, match=said):
        network_of(stored({**LAYER, **more}), Hints(layers=("0",)))


@pytest.mark.parametrize("kind", ["int64", "F8_E4M3", "bool", "complex64"])
def test_other_types_are_refused(kind):
    with pytest.raises(InputError, match=rf"'0.weight' \({kind}.*another type than float16"):
        network_of(stored({"0.weight": (3, 2)}, kind), Hints())


@pytest.mark.parametrize(("dtype", "kind"), [("<i8", "I64"), ("u1", "U8")])
def test_whole_numbers_are_refused(tmp_path, dtype, kind):
    path = written(tmp_path / "m.safetensors", {"weight": np.ones((2, 2), dtype)})
    with pytest.raises(InputError, match=rf"'weight' \({kind}, shape \[2, 2\]\)"):
        load_model(path)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", ["fc2.weight", "fc2.bias"])
def test_numbers_must_be_finite(tmp_path, name, value):
    tensors = {"fc1.weight": layer(3, 2), "fc2.weight": layer(2, 3), "fc2.bias": layer(2, 1)[:, 0]}
    tensors[name].flat[1] = value
    with pytest.raises(InputError, match=rf"'{name}'.*{value}"):
        load_model(written(tmp_path / "m.safetensors", tensors))


@pytest.mark.parametrize("bits", [0x7F80, 0xFF80, 0x7FC0])
def test_a_bfloat16_must_be_finite(tmp_path, bits):
    array = np.array([[0x3F80, 0x3F80], [bits, 0x3F80]], dtype="<u2")
    with pytest.raises(InputError, match=r"'weight': (-?inf|nan) at \[1, 0\]"):
        load_model(written(tmp_path / "m.safetensors", {"weight": array}, types={"weight": "BF16"}))


@pytest.mark.parametrize("shape", [(0, 2), (2, 0)])
def test_an_empty_matrix_is_refused(tmp_path, shape):
    with pytest.raises(InputError, match=r"no inputs|a matrix of 0 numbers"):
        load_model(written(tmp_path / "m.safetensors", {"weight": np.zeros(shape, "<f4")}))


def test_a_file_without_tensors_is_refused(tmp_path):
    with pytest.raises(InputError, match="no tensors"):
        load_model(written(tmp_path / "m.safetensors", {}))


def test_long_names_are_refused():
    with pytest.raises(InputError, match="longer than 256"):
        network_of(chain(["1" * 5000, "2" * 5000]), Hints())


def test_more_numbers_than_are_held_are_refused_before_they_are_read(monkeypatch):
    monkeypatch.setattr(named, "MAX_NUMBERS", 11)
    unread = {name: Stored("float32", (2, 3), lambda: pytest.fail("read")) for name in ("0.weight", "2.weight")}
    with pytest.raises(InputError, match="more than 11 numbers"):
        network_of(unread, Hints())


# -- files that are damaged, or meant to do damage -------------------------------------------------------------------

ENTRY = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}
HOSTILE = {
    "a hole": ({"weight": ENTRY}, 20),
    "too short": ({"weight": ENTRY}, 12),
    "overlap": ({"0.weight": ENTRY, "2.weight": ENTRY}, 16),
    "a gap": ({"0.weight": ENTRY, "2.weight": {**ENTRY, "data_offsets": [20, 36]}}, 36),
    "a huge shape": ({"weight": {**ENTRY, "shape": [2**40, 2**40]}}, 16),
    "a shape that is large and empty": ({"weight": {**ENTRY, "shape": [2**60, 0], "data_offsets": [0, 0]}}, 0),
    "a shape that does not fit": ({"weight": {**ENTRY, "shape": [2, 3]}}, 16),
    "a negative side": ({"weight": {**ENTRY, "shape": [-2, -2]}}, 16),
    "offsets the wrong way": ({"weight": {**ENTRY, "data_offsets": [16, 0]}}, 16),
    "an unknown type": ({"weight": {**ENTRY, "dtype": "F31"}}, 16),
    "another field": ({"weight": {**ENTRY, "order": "F"}}, 16),
    "a list": ([ENTRY], 16),
    "no entry": ({"weight": 3}, 16),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_headers_are_refused(tmp_path, case):
    header, size = HOSTILE[case]
    with pytest.raises(InputError):
        load_model(raw(tmp_path / "m.safetensors", json.dumps(header).encode(), bytes(size)))


def test_the_header_of_those_is_read_if_it_is_right(tmp_path):
    network = load_model(raw(tmp_path / "m.safetensors", json.dumps({"weight": ENTRY}).encode(), bytes(16)))
    assert fractions(network.layers[0].weights) == [[0, 0], [0, 0]]


@pytest.mark.parametrize(
    "header",
    [
        b'{"weight":%s,"weight":%s}',
        b'{"weight":%s,"w\\u0065ight":%s}',
    ],
    ids=["twice", "spelled differently"],
)
def test_a_name_that_occurs_twice_is_refused(tmp_path, header):
    """The package takes the last of two."""
    entry = json.dumps(ENTRY).encode()
    with pytest.raises(InputError, match="the key 'weight' occurs twice"):
        load_model(raw(tmp_path / "m.safetensors", header % (entry, entry), bytes(16)))


@pytest.mark.parametrize(
    "entry", [ENTRY, {**ENTRY, "dtype": "F" * 10**6}, {**ENTRY, "order": "F"}], ids=["right", "type", "field"]
)
def test_messages_stay_short(tmp_path, entry):
    path = raw(tmp_path / "m.safetensors", json.dumps({"w" * 10**6: entry}).encode(), bytes(16))
    with pytest.raises(InputError) as caught:
        load_model(path)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("depth", [20, 100_000])
def test_deep_headers_are_refused(tmp_path, depth):
    with pytest.raises(InputError):
        load_model(raw(tmp_path / "m.safetensors", b'{"weight":' + b"[" * depth + b"]" * depth + b"}", b""))


def test_a_header_that_claims_to_be_large_is_refused(tmp_path):
    from intervalcert.io.models.safetensors_file import read

    path = tmp_path / "m.safetensors"
    for length in (2**63, 2**24 + 8, 9, 0):
        path.write_bytes(struct.pack("<Q", length) + b"{}      ")
        with pytest.raises(InputError):
            read(path, Hints())


def test_a_file_that_is_too_large_is_not_read(tmp_path, monkeypatch):
    from intervalcert.io.models import safetensors_file

    monkeypatch.setattr(safetensors_file, "MAX_UNPACKED_BYTES", 2**20)
    path = tmp_path / "m.safetensors"
    with path.open("wb") as file:
        file.write(FIXTURE.read_bytes())
        file.truncate(2**20 + 1)
    with pytest.raises(InputError, match="larger than 1 MiB"):
        load_model(path)


def test_every_truncation_is_refused(tmp_path, capsys):
    data, path = FIXTURE.read_bytes(), tmp_path / "m.safetensors"
    for length in range(0, len(data), 10):
        path.write_bytes(data[:length])
        with pytest.raises(InputError):
            load_model(path)
    for length in (0, 7, 100, len(data) - 1):
        path.write_bytes(data[:length])
        code, _, said = ran(capsys, "bounds", path, "--out", tmp_path / "bounds.json")
        assert code == 3, (length, said)
        assert str(path) in said


@given(st.lists(st.tuples(st.integers(0, FIXTURE.stat().st_size - 1), st.integers(0, 255)), min_size=1, max_size=6))
def test_changed_bytes_give_a_network_or_a_refusal(tmp_path_factory, changes):
    data = bytearray(FIXTURE.read_bytes())
    for place, byte in changes:
        data[place] = byte
    path = tmp_path_factory.getbasetemp() / "changed.safetensors"
    path.write_bytes(data)
    try:
        network = load_model(path)
    except InputError:
        return
    assert network.outputs >= 2


@given(st.integers(0, 400), st.binary(max_size=12))
def test_inserted_bytes_give_a_network_or_a_refusal(tmp_path_factory, place, more):
    data = FIXTURE.read_bytes()
    header = data[8 : 8 + int.from_bytes(data[:8], "little")]
    path = tmp_path_factory.getbasetemp() / "inserted.safetensors"
    raw(path, header[:place] + more + header[place:], data[8 + len(header) :])
    try:
        network = load_model(path)
    except InputError:
        return
    assert network.outputs >= 2


@pytest.mark.parametrize("length", [0x80, 0x180, 0x280, 0x4B50, 0x0A08])
def test_any_length_of_the_header_is_recognised(tmp_path, length):
    """The file begins with that length, which must not be taken for the mark of a pickle, of an archive or of ONNX."""
    header = json.dumps({"weight": ENTRY}).encode().ljust(length)
    assert load_model(raw(tmp_path / "m.safetensors", header, bytes(16))).inputs == 2


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(UsageError, match=r"pip install 'intervalcert\[safetensors\]'"):
        load_model(FIXTURE)
