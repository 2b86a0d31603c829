"""Model files are read exactly: the network is the one that the file says, to the last digit and bit."""

import hashlib
import io
import zipfile
from fractions import Fraction

import numpy as np
import pytest

from intervalcert import InputError, Network, load_model
from intervalcert.model.activations import activation


def fractions(matrix):
    rows, columns = matrix.shape
    return [[matrix[i, j] for j in range(columns)] for i in range(rows)]


def weights_of(network):
    return [fractions(layer.weights) for layer in network.layers]


def biases_of(network):
    return [None if layer.bias is None else [row[0] for row in fractions(layer.bias)] for layer in network.layers]


def read_text(tmp_path, text, biases=None, **options):
    path = tmp_path / "model.txt"
    path.write_text(text)
    if biases is None:
        return load_model(path, **options)
    (tmp_path / "biases.txt").write_text(biases)
    return load_model(path, tmp_path / "biases.txt", **options)


# -- the text format -------------------------------------------------------------------------------------------------


def test_text_is_inputs_by_outputs_so_it_is_transposed(tmp_path):
    network = read_text(tmp_path, "[[1,2,3],[4,5,6]],[[7,8],[9,10],[11,12]]")
    assert weights_of(network) == [[[1, 4], [2, 5], [3, 6]], [[7, 9, 11], [8, 10, 12]]]
    assert (network.inputs, network.outputs) == (2, 2)
    assert network.activations == ("relu", None)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.1", Fraction(1, 10)),
        ("-0.1", Fraction(-1, 10)),
        ("+0.1", Fraction(1, 10)),
        (".5", Fraction(1, 2)),
        ("5.", Fraction(5)),
        ("007", Fraction(7)),
        ("-0", Fraction(0)),
        ("1e3", Fraction(1000)),
        ("1E+3", Fraction(1000)),
        ("1e-3", Fraction(1, 1000)),
        ("-1.25e-2", Fraction(-1, 80)),
        ("12345678901234567890.123456789", Fraction(12345678901234567890123456789, 10**9)),
        ("1e-400", Fraction(1, 10**400)),
        ("1e400", Fraction(10**400)),
        ("0.1000000000000000055511151231257827", Fraction(1000000000000000055511151231257827, 10**34)),
    ],
)
def test_decimals_are_exact(tmp_path, text, value):
    """Not the float nearest to them: 0.1 is 1/10, and 1e-400 is not zero."""
    network = read_text(tmp_path, f"[[{text},1]]")
    assert weights_of(network) == [[[value], [1]]]


def test_decimals_of_very_different_size_stand_side_by_side(tmp_path):
    network = read_text(tmp_path, "[[1e300,1e-300],[0.1,-7]]")
    assert weights_of(network) == [[[10**300, Fraction(1, 10)], [Fraction(1, 10**300), -7]]]


@pytest.mark.parametrize(
    "text",
    [
        "[[1,2],[3,4]],[[5,6],[7,8]]",
        " [ [ 1 , 2 ] , [ 3 , 4 ] ] , [ [ 5 , 6 ] , [ 7 , 8 ] ] \n",
        "[[1,2],\n[3,4]],\n\n[[5,6],\n[7,8]]\n",
        "[[1,2],\r\n[3,4]],\r\n[[5,6],[7,8]]\r\n",
        "\ufeff[[1,2],[3,4]],[[5,6],[7,8]]",
        "\t[[1.0,2.00],[3e0,4]],[[5,6],[7,0.8e1]]",
    ],
    ids=["plain", "spaces", "lines", "carriage returns", "byte order mark", "other decimals"],
)
def test_white_space_means_nothing(tmp_path, text):
    assert weights_of(read_text(tmp_path, text)) == [[[1, 3], [2, 4]], [[5, 7], [6, 8]]]


def test_biases_are_one_vector_per_layer(tmp_path):
    network = read_text(tmp_path, "[[1,2],[3,4]],[[5,6],[7,8]]", "[0.1,-2],\n[1e-3, 4]\n")
    assert biases_of(network) == [[Fraction(1, 10), -2], [Fraction(1, 1000), 4]]
    assert weights_of(network) == weights_of(read_text(tmp_path, "[[1,2],[3,4]],[[5,6],[7,8]]"))


def test_any_ending_may_hold_text(tmp_path):
    path = tmp_path / "model.weights"
    path.write_text("[[1,2]]")
    assert weights_of(load_model(path)) == [[[1], [2]]]
    assert weights_of(load_model(str(path))) == [[[1], [2]]]


# -- numpy's formats -------------------------------------------------------------------------------------------------

FLOATS = {
    "<f2": [[0.1, -65504.0], [6e-8, 0.0]],
    ">f2": [[0.1, 1.0], [2.0, -3.5]],
    "<f4": [[0.1, -3.4e38], [1e-45, 0.0]],
    ">f4": [[0.1, 1.5], [2.0, -3.5]],
    "<f8": [[0.1, -1.7e308], [5e-324, 2.2250738585072014e-308]],
    ">f8": [[0.1, 1.5], [1e-310, -3.5]],
}


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_are_their_binary_value(tmp_path, dtype, order):
    """The smallest subnormals and the largest numbers of each width included; 0.1 of 16 bits is not 0.1 of 64."""
    array = np.array(FLOATS[dtype], dtype=dtype, order=order)
    expected = [[Fraction(*float(x).as_integer_ratio()) for x in row] for row in array]
    assert len({x for row in expected for x in row}) == 4, "a case that underflowed would prove little"
    np.save(tmp_path / "m.npy", array)
    np.savez(tmp_path / "m.npz", W0=array)
    assert weights_of(load_model(tmp_path / "m.npy")) == [expected]
    assert weights_of(load_model(tmp_path / "m.npz")) == [expected]
    assert weights_of(Network.from_arrays([array])) == [expected]


@pytest.mark.parametrize("dtype", ["i1", "u1", "<i2", ">i2", "<u4", ">i4", "<i8", ">i8", "<u8", ">u8"])
def test_integers_are_exact_to_their_ends(tmp_path, dtype):
    """A way through float64 would change 2^63 - 1."""
    ends = np.iinfo(dtype)
    array = np.array([[ends.min, ends.max], [1, ends.max - 1]], dtype=dtype)
    expected = [[int(ends.min), int(ends.max)], [1, int(ends.max) - 1]]
    np.save(tmp_path / "m.npy", array)
    assert weights_of(load_model(tmp_path / "m.npy")) == [expected]
    assert weights_of(Network.from_arrays([array])) == [expected]


def test_integers_beside_floats_are_not_rounded():
    """Numpy makes one float64 array of such a list, and 2^53 + 1 is not a float64."""
    large = 2**53 + 1
    try:
        network = Network.from_arrays([[[large, 0.5], [1, 2]]])
    except InputError:
        return  # to refuse is as good
    assert network.layers[0].weights[0, 0] == large


def test_a_view_is_read_like_a_copy():
    base = np.arange(48, dtype=np.float32).reshape(6, 8) / 7
    view = base[::2, ::-2]
    assert weights_of(Network.from_arrays([view])) == weights_of(Network.from_arrays([view.copy()]))
    assert weights_of(Network.from_arrays([view]))[0][1][0] == Fraction(float(base[2, 7]))


def test_the_network_does_not_change_with_the_array():
    array = np.eye(2)
    network = Network.from_arrays([array])
    array[0, 0] = 99
    assert network.layers[0].weights[0, 0] == 1


@pytest.mark.parametrize("compressed", [False, True])
def test_an_archive_has_layers_in_the_order_of_their_numbers(tmp_path, compressed):
    """Ten comes after nine, not after one; the order within the archive means nothing."""
    arrays = {f"W{i}": np.diag([i + 1.0, 1.0]) for i in reversed(range(12))}
    (np.savez_compressed if compressed else np.savez)(tmp_path / "m.npz", **arrays)
    network = load_model(tmp_path / "m.npz")
    assert [layer.weights[0, 0] for layer in network.layers] == list(range(1, 13))


def test_an_archive_may_have_some_biases(tmp_path):
    np.savez(tmp_path / "m.npz", W0=np.eye(2), W1=np.eye(2), b1=np.array([0.1, 2], dtype="float32"))
    assert biases_of(load_model(tmp_path / "m.npz")) == [None, [Fraction(float(np.float32(0.1))), 2]]


def test_an_archive_with_biases_takes_no_others(tmp_path):
    """One of the two would silently lose."""
    np.savez(tmp_path / "m.npz", W0=np.eye(2), b0=np.zeros(2))
    (tmp_path / "biases.txt").write_text("[1,2]")
    with pytest.raises(InputError, match=r"m\.npz.*biases\.txt"):
        load_model(tmp_path / "m.npz", tmp_path / "biases.txt")
    np.savez(tmp_path / "m.npz", W0=np.eye(2))
    assert biases_of(load_model(tmp_path / "m.npz", tmp_path / "biases.txt")) == [[1, 2]]


def test_an_archive_in_fortran_order_inside_a_zip_of_another_writer(tmp_path):
    array = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, version=(2, 0))
    with zipfile.ZipFile(tmp_path / "m.npz", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("W0.npy", buffer.getvalue())
    assert weights_of(load_model(tmp_path / "m.npz")) == [[[0, 1, 2], [3, 4, 5]]]


def test_the_same_network_from_text_archive_and_arrays(tmp_path):
    first, second = np.array([[1.5, -2.25], [0.125, 3.0], [0.0, 1.0]]), np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.5]])
    bias = [np.array([1.0, 2.0, 3.5]), np.array([0.0, -1.0])]
    text = ",".join(str(w.T.tolist()) for w in (first, second))
    from_text = read_text(tmp_path, text, "[1,2,3.5],[0,-1]")
    np.savez(tmp_path / "m.npz", W0=first, W1=second.astype("float16"), b0=bias[0], b1=bias[1].astype(int))
    from_archive = load_model(tmp_path / "m.npz")
    from_arrays = Network.from_arrays([first, second], bias)
    for network in (from_archive, from_arrays):
        assert weights_of(network) == weights_of(from_text)
        assert biases_of(network) == biases_of(from_text)
        assert network.activations == from_text.activations
        for mine, other in zip(network.layers, from_text.layers, strict=True):
            assert mine == other


# -- what identifies a network ---------------------------------------------------------------------------------------


def test_the_hash_is_that_of_the_files(tmp_path):
    """What `sha256sum` prints for them, with the names, without the folders."""
    network = read_text(tmp_path, "[[1,2]]", "[1,2]")
    assert [(source.name, source.sha256) for source in network.sources] == [
        ("model.txt", hashlib.sha256(b"[[1,2]]").hexdigest()),
        ("biases.txt", hashlib.sha256(b"[1,2]").hexdigest()),
    ]
    np.savez(tmp_path / "m.npz", W0=np.eye(2))
    (source,) = load_model(tmp_path / "m.npz").sources
    assert source.sha256 == hashlib.sha256((tmp_path / "m.npz").read_bytes()).hexdigest()


def test_the_hash_in_memory_depends_on_every_number_and_activation():
    weights = [np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[5.0, 6.0], [7.0, 8.0]])]
    biases = [np.array([1.0, 2.0]), np.array([3.0, 4.0])]

    def digest(weights=weights, biases=biases, between="relu"):
        (source,) = Network.from_arrays(weights, biases, between=between).sources
        return source.sha256

    changed = [digest(between="tanh"), digest(biases=None), digest(biases=[biases[0], None])]
    changed += [digest(weights=weights[:1], biases=biases[:1])]
    changed += [digest(weights=[weights[0].T, weights[1]])]
    for layer in range(2):
        for entry in range(4):
            other = [w.copy() for w in weights]
            other[layer].flat[entry] = np.nextafter(other[layer].flat[entry], 99)
            changed.append(digest(weights=other))
        for entry in range(2):
            others = [b.copy() for b in biases]
            others[layer][entry] = np.nextafter(others[layer][entry], 99)
            changed.append(digest(biases=others))
    assert len({digest(), *changed}) == 1 + len(changed)


def test_the_hash_in_memory_is_of_values_not_of_types():
    """The same numbers as float32 or float64 are the same network."""
    one = Network.from_arrays([np.eye(2, dtype="float32")])
    assert one.sources == Network.from_arrays([np.eye(2)]).sources
    assert one.sources == Network.from_arrays([np.eye(2, dtype="int8")]).sources
    assert one.sources[0].name == "(in memory)"


def test_the_hash_in_memory_sees_the_shape():
    """The same numbers in the same order, as 2 x 3 and as 3 x 2."""
    numbers = np.arange(6.0)
    two, three = (Network.from_arrays([numbers.reshape(shape)]) for shape in ((2, 3), (3, 2)))
    assert two.sources != three.sources


@pytest.mark.parametrize("name", ["relu", "sigmoid", "group_sort", "identity"])
def test_the_activation_is_the_callers_word(tmp_path, name):
    """No format says it; the last layer has none."""
    network = read_text(tmp_path, "[[1,2],[3,4]],[[5,6],[7,8]]", activation=name)
    assert network.activations == (name, None)


@pytest.mark.parametrize(
    ("name", "constant"),
    [("leaky_relu:0.01", 1), ("leaky_relu:-2", 2), ("leaky_relu:3/2", Fraction(3, 2)), ("elu:1", 1), ("elu:3", 3)],
)
def test_the_constant_of_an_activation_with_a_parameter(name, constant):
    """ELU with alpha = 3 is three times as steep below zero: a constant of 1 would certify what can be flipped."""
    assert activation(name).lipschitz == constant


@pytest.mark.parametrize("name", ["leaky_relu", "elu", "elu:-1", "elu:nan", "leaky_relu:", "relu:1"])
def test_an_activation_without_its_parameter_is_refused(name):
    with pytest.raises(InputError):
        activation(name)
