"""ONNX graphs with convolutions, pools and branches: the network computes what onnxruntime does.

Values are those of `FloatNetwork`, in plain floats of 64 bits. The constants of these models are multiples of 1/4, so
that hardly anything is rounded in float32 either.
"""

from fractions import Fraction
from pathlib import Path
from random import Random

import numpy as np
import pytest

from intervalcert import load_model
from intervalcert.model.linear_maps import ChannelWise, Convolution, Dense, IndexMap
from tests.onnx_graphs import (
    PAD,
    TAIL,
    B,
    C,
    V,
    computed,
    differs,
    drawn,
    magnitudes,
    network_or_refusal,
    quarters,
    shown,
)
from tests.onnx_models import model, node, numpy_helper, onnx, read, run, tensor, whole

FIXTURES = Path(__file__).parent / "fixtures"
EXPECTED = np.load(FIXTURES / "expected.npz")
KINDS = ("cnn", "residual", "minmax", "pools")
STEMS = [path.stem for kind in KINDS for path in sorted(FIXTURES.glob(f"{kind}_*.onnx"))]


# -- random graphs -----------------------------------------------------------------------------------------------------

ODD = ("of which one sees nothing at all", "parts of one, as the two halves")
"""Windows of a pool that are beyond the input; maxima of parts that have roots of their own."""


@pytest.mark.parametrize("part", range(8))
def test_onnxruntime_computes_what_the_network_does(part):
    """Nearly none of these graphs is refused."""
    refusals = 0
    for seed in range(60 * part, 60 * part + 60):
        made, inputs = drawn(seed)
        network = network_or_refusal(made, *ODD)
        refusals += network is None
        assert network is None or differs(network, made, inputs) <= 0, seed
    assert refusals <= 3


def in_float64(made):
    other = onnx.ModelProto()
    other.CopyFrom(made)
    for stored in other.graph.initializer:
        values = numpy_helper.to_array(stored)
        if values.dtype == np.float32:
            stored.CopyFrom(tensor(values.astype(np.float64), stored.name))
    for value in (*other.graph.input, *other.graph.output):
        value.type.tensor_type.elem_type = 11
    return other


@pytest.mark.filterwarnings("ignore")
def test_the_reference_implementation_computes_the_same_in_float64():
    """To within the last bits. (Its pools of maxima are wrong with some dilations; onnxruntime's are not.)"""
    reference = pytest.importorskip("onnx.reference")
    compared = 0
    for seed in range(1000, 1250):
        made, inputs = drawn(seed)
        if any(part.op_type == "MaxPool" for part in made.graph.node):
            continue
        network = network_or_refusal(made, *ODD)
        if network is None:
            continue
        (expected,) = reference.ReferenceEvaluator(in_float64(made)).run(None, {"x": inputs.astype(np.float64)})
        off = np.abs(computed(network, inputs) - expected.reshape(len(inputs), -1))
        assert (off <= 1e-13 * (1 + magnitudes(network, inputs))).all(), seed
        compared += 1
    assert compared > 150


def test_the_comparison_notices_another_number():
    """One constant of a graph is off by 1/8."""
    noticed = tried = 0
    for seed in range(40):
        made, inputs = drawn(seed)
        network, random = read(made), Random(seed)
        stored = [each for each in made.graph.initializer if each.data_type == 1 and each.name != "x"]
        chosen = random.choice(stored)
        values = numpy_helper.to_array(chosen).copy()
        values.ravel()[random.randrange(values.size)] += 0.125
        chosen.CopyFrom(tensor(values, chosen.name))
        tried += 1
        noticed += differs(network, made, inputs) > 0
    assert noticed > tried / 2  # the others have no part in the output, or are cut off by a ReLU


def test_the_graphs_are_not_all_alike():
    maps, functions, operators, branched, roots = set(), set(), set(), 0, 0
    for seed in range(200):
        made, _ = drawn(seed)
        network = network_or_refusal(made, *ODD)
        operators |= {part.op_type for part in made.graph.node}
        for layer in network.layers if network else ():
            maps |= {type(term.map) for term in layer.terms}
            functions.add(layer.activation and layer.activation.parts[0])
            roots += layer.before is not None
            branched += len(layer.terms) > 1
    assert maps == {Dense, Convolution, IndexMap, ChannelWise}
    assert functions >= {"relu", "leaky_relu", "tanh", "sigmoid", "identity", "group_sort", "max_pool"}
    assert min(branched, roots) > 20
    assert operators >= {"Conv", "MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool", "ReduceMean", "Sum"}
    assert operators >= {
        "ReduceMax",
        "ReduceMin",
        "Pad",
        "Split",
        "Slice",
        "Gather",
        "Transpose",
        "Concat",
        "Max",
        "Min",
    }


# -- one network, one hash ---------------------------------------------------------------------------------------------

WAYS = {
    "a bias": [node("Conv", "x C B", "h", **PAD)],
    "a shift": [node("Conv", "x C", "c", **PAD), node("Add", "c shift", "h")],
    "a shift on the left": [node("Conv", "x C", "c", **PAD), node("Add", "full c", "h")],
    "a difference": [node("Conv", "x C", "c", **PAD), node("Sub", "c minus", "h")],
    "padding before": [node("Pad", "x around", "p"), node("Conv", "p C B", "h")],
    "padding in two steps": [node("Pad", "x top", "p"), node("Conv", "p C B", "h", pads=[0, 1, 1, 1])],
    "padding as a convolution has it": [node("Conv", "x C B", "h", auto_pad="SAME_UPPER", strides=[1, 1])],
    "settings that are usual": [node("Conv", "x C B", "h", dilations=[1, 1], group=1, kernel_shape=[3, 3], **PAD)],
    "another layout on the way": [
        node("Conv", "x C", "c", **PAD),
        node("Transpose", "c", "last", perm=[0, 2, 3, 1]),
        node("Add", "last B", "s"),
        node("Transpose", "s", "h", perm=[0, 3, 1, 2]),
    ],
    "halves put together": [
        node("Conv", "x C B", "c", **PAD),
        node("Split", "c", "a b", axis=1),
        node("Concat", "a b", "h", axis=1),
    ],
    "identities": [node("Identity", "x", "i"), node("Dropout", "i", "d"), node("Conv", "d C B", "h", **PAD)],
}
SAME_NUMBERS = {
    "C": C,
    "B": B,
    "V": V,
    "shift": B.reshape(4, 1, 1),
    "minus": -B.reshape(1, 4, 1, 1),
    "full": np.broadcast_to(B.reshape(1, 4, 1, 1), (1, 4, 4, 4)).copy(),
    "around": whole(0, 0, 1, 1, 0, 0, 1, 1),
    "top": whole(0, 0, 1, 0, 0, 0, 0, 0),
}


@pytest.mark.parametrize("case", WAYS)
def test_one_network_has_one_hash(case):
    """However it is written: convolution, ReLU, matrix."""
    network = read(model([*WAYS[case], *TAIL], SAME_NUMBERS, shape=("N", 2, 4, 4), opset=13))
    plain = read(model([*WAYS["a bias"], *TAIL], SAME_NUMBERS, shape=("N", 2, 4, 4)))
    assert network.content == plain.content
    assert network.folded == plain.folded == ()
    assert network.activations == ("relu", None)


def test_a_function_of_numbers_in_another_order():
    """A ReLU between two transpositions is one without them."""
    nodes = [
        node("Conv", "x C B", "c", **PAD),
        node("Transpose", "c", "last", perm=[0, 2, 3, 1]),
        node("Relu", "last", "s"),
        node("Transpose", "s", "r", perm=[0, 3, 1, 2]),
        *TAIL[1:],
    ]
    plain = read(model([*WAYS["a bias"], *TAIL], SAME_NUMBERS, shape=("N", 2, 4, 4)))
    assert read(model(nodes, SAME_NUMBERS, shape=("N", 2, 4, 4))).content == plain.content


GRID = {
    "Gemm": [node("Flatten", "x", "g"), node("Gemm", "g W b", "h", transB=1)],
    "MatMul": [node("Flatten", "x", "g"), node("MatMul", "g T", "m"), node("Add", "m b", "h")],
    "Conv over it": [node("Conv", "x K b", "h")],
    "Conv over more than it": [node("Pad", "x around", "p"), node("Conv", "p L b", "h")],
    "Conv on one place": [node("Reshape", "x column", "c"), node("Conv", "c P b", "h")],
    "Conv with padding": [node("Reshape", "x column", "c"), node("Conv", "c Q b", "h", pads=[1, 1, 1, 1])],
    "Conv in one dimension": [node("Reshape", "x row", "c"), node("Conv", "c R b", "h")],
    "Conv after a transposition": [node("Transpose", "x", "t", perm=[0, 1, 3, 2]), node("Conv", "t S b", "h")],
}
DENSE = quarters(Random(13), 5, 18)


@pytest.mark.parametrize("case", GRID)
def test_a_convolution_over_one_place_is_a_matrix(case):
    cube = DENSE.reshape(5, 2, 3, 3)
    wide, three = np.zeros((5, 2, 5, 5), np.float32), np.zeros((5, 18, 3, 3), np.float32)
    wide[:, :, 1:4, 1:4], three[:, :, 1, 1] = cube, DENSE
    constants = {
        "W": DENSE,
        "T": DENSE.T.copy(),
        "K": cube,
        "L": wide,
        "P": DENSE[:, :, None, None],
        "Q": three,
        "R": DENSE.reshape(5, 2, 9),
        "S": cube.transpose(0, 1, 3, 2).copy(),
        "b": quarters(Random(14), 5),
        "column": whole(-1, 18, 1, 1),
        "row": whole(-1, 2, 9),
        "around": SAME_NUMBERS["around"],
        "V": quarters(Random(15), 3, 5),
    }
    networks = [read(model([*GRID[name], *TAIL], constants, shape=("N", 2, 3, 3))) for name in (case, "Gemm")]
    assert networks[0].content == networks[1].content
    assert networks[0].is_dense


MEANS = {
    "GlobalAveragePool": [node("GlobalAveragePool", "r", "z")],
    "AveragePool": [node("AveragePool", "r", "z", kernel_shape=[3, 3])],
    "AveragePool in strides": [node("AveragePool", "r", "z", kernel_shape=[3, 3], strides=[2, 3], ceil_mode=0)],
    "ReduceMean": [node("ReduceMean", "r", "z", axes=[2, 3])],
    "ReduceMean from the end": [node("ReduceMean", "r", "z", axes=[-1, -2], keepdims=0)],
    "ReduceSum, divided": [node("ReduceSum", "r axes", "s"), node("Mul", "s ninth", "z")],
}


def test_a_mean_over_a_grid_has_one_hash():
    found = set()
    for name, nodes in MEANS.items():
        constants = {"V": quarters(Random(16), 3, 2), "axes": whole(2, 3), "ninth": np.float32(0.125)}
        made = [node("Relu", "x", "r"), *nodes, node("Flatten", "z", "f"), node("Gemm", "f V", "y", transB=1)]
        network = read(model(made, constants, shape=("N", 2, 3, 3)))
        if name != "ReduceSum, divided":  # by 8
            found.add(network.content)
    assert len(found) == 1


RESIDUAL = [
    node("Conv", "x A", "a", **PAD),
    node("Relu", "a", "r"),
    node("Conv", "r D", "d", **PAD),
    node("Relu", "d", "s"),
    node("Conv", "s E", "e", **PAD),
    node("Conv", "r F", "f"),
    node("Add", "e f", "g"),
    node("Relu", "g", "h"),
    node("Flatten", "h", "k"),
    node("Gemm", "k G", "y"),
]
RESIDUAL_NUMBERS = {
    "A": quarters(Random(20), 3, 2, 3, 3),
    "D": quarters(Random(21), 4, 3, 3, 3),
    "E": quarters(Random(22), 2, 4, 3, 3),
    "F": quarters(Random(23), 2, 3, 1, 1),
    "G": quarters(Random(24), 32, 3),
}


def test_the_order_of_nodes_in_a_file_makes_no_difference():
    """Each order in which nothing is used before it is computed."""
    first = read(model(RESIDUAL, RESIDUAL_NUMBERS, shape=("N", 2, 4, 4)))
    moved = [*RESIDUAL[:2], RESIDUAL[5], *RESIDUAL[2:5], *RESIDUAL[6:]]
    dead = [node("Conv", "x A", "unused"), node("Sigmoid", "unused", "too"), *moved]
    for nodes in (moved, dead):
        assert read(model(nodes, RESIDUAL_NUMBERS, shape=("N", 2, 4, 4))).content == first.content
    sources = [[term.source for term in layer.terms] for layer in first.layers]
    assert sources == [[-1], [0], [1, 0], [2]]
    other = {**RESIDUAL_NUMBERS, "F": -RESIDUAL_NUMBERS["F"]}
    assert read(model(RESIDUAL, other, shape=("N", 2, 4, 4))).content != first.content


# -- what becomes a layer ----------------------------------------------------------------------------------------------


def test_a_residual_connection_is_a_second_term():
    nodes = [
        node("Conv", "x A", "a", **PAD),
        node("Relu", "a", "r"),
        node("Conv", "r K B", "c", **PAD),
        node("Add", "c r", "s"),
        node("Relu", "s", "h"),
        *TAIL[1:],
    ]
    nodes[-2] = node("Flatten", "h", "f")
    constants = {"A": C, "K": quarters(Random(30), 4, 4, 3, 3), "B": B, "V": V}
    network = read(model(nodes, constants, shape=("N", 2, 4, 4)))
    assert shown(network) == [
        ([(-1, "convolution 3x3")], "relu"),
        ([(0, "convolution 3x3"), (0, "identity")], "relu"),
        ([(1, "dense")], None),
    ]
    assert network.is_chain
    assert not network.folded


def test_what_is_taken_twice_is_one_layer():
    """A convolution whose output goes to a ReLU and to a sum; and a sum that goes on twice."""
    nodes = [
        node("Conv", "x A", "a", **PAD),
        node("Relu", "a", "r"),
        node("Add", "a r", "s"),
        node("Relu", "s", "t"),
        node("Sub", "s t", "u"),
        node("Flatten", "u", "f"),
        node("Gemm", "f V", "y", transB=1),
    ]
    network = read(model(nodes, {"A": C, "V": V}, shape=("N", 2, 4, 4)))
    assert shown(network) == [
        ([(-1, "convolution 3x3")], "identity"),
        ([(0, "identity")], "relu"),
        ([(0, "identity"), (1, "identity")], "identity"),
        ([(2, "identity")], "relu"),
        ([(2, "identity"), (3, "scaling")], "identity"),
        ([(4, "dense")], None),
    ]


def test_equal_functions_of_one_value_are_one_layer():
    nodes = [node("Relu", "x", "a"), node("Relu", "x", "b"), node("Add", "a b", "y")]
    assert shown(read(model(nodes))) == [([(-1, "identity")], "relu"), ([(0, "identity"), (0, "identity")], None)]


def test_a_concatenation_has_a_term_for_each_part():
    nodes = [
        node("Conv", "x A", "a", **PAD),
        node("Conv", "x K", "b"),
        node("Relu", "b", "c"),
        node("Concat", "a c x", "s", axis=1),
        node("Relu", "s", "r"),
        node("Flatten", "r", "f"),
        node("Gemm", "f V", "y", transB=1),
    ]
    constants = {"A": C, "K": quarters(Random(31), 3, 2, 1, 1), "V": quarters(Random(32), 3, 144)}
    network = read(model(nodes, constants, shape=("N", 2, 4, 4)))
    assert shown(network) == [
        ([(-1, "convolution 3x3")], "identity"),
        ([(-1, "convolution 1x1")], "relu"),
        ([(0, "padding"), (1, "padding"), (-1, "padding")], "relu"),
        ([(2, "dense")], None),
    ]


def test_scalings_are_multiplied_into_convolutions():
    """After one, and before one; a shift before one that is padded has another bias at its edges."""
    nodes = [
        node("Conv", "x A B", "a", **PAD),
        node("Mul", "a k", "b"),
        node("Relu", "b", "c"),
        node("Mul", "c k", "d"),
        node("Add", "d m", "e"),
        node("Conv", "e K", "g", **PAD),
        node("Flatten", "g", "y"),
    ]
    constants = {"A": C, "B": B, "k": quarters(Random(33), 4, 1, 1), "m": quarters(Random(34), 1, 4, 1, 1)}
    constants["K"] = quarters(Random(35), 2, 4, 3, 3)
    made = model(nodes, constants, shape=("N", 2, 4, 4))
    network = read(made)
    assert shown(network) == [([(-1, "convolution 3x3")], "relu"), ([(0, "convolution 3x3")], None)]
    inputs = quarters(Random(36), 3, 2, 4, 4)
    assert np.array_equal(computed(network, inputs), run(made, inputs))
    bias = network.layers[1].bias
    assert len({bias[i, 0] for i in range(16)}) == 9
    first = network.layers[0]
    assert [first.terms[0].map.kernel[i, 0] for i in range(4)] == [
        Fraction(float(C[i, 0, 0, 0])) * Fraction(float(constants["k"][i, 0, 0])) for i in range(4)
    ]


def test_a_scaling_that_varies_over_a_channel_is_a_layer():
    nodes = [
        node("Relu", "x", "r"),
        node("Mul", "r k", "s"),
        node("Conv", "s A", "a", **PAD),
        node("Flatten", "a", "y"),
    ]
    made = model(nodes, {"A": C, "k": quarters(Random(40), 4, 4)}, shape=("N", 2, 4, 4))
    network = read(made)
    assert shown(network)[1:] == [([(0, "scaling")], "identity"), ([(1, "convolution 3x3")], None)]
    inputs = quarters(Random(41), 3, 2, 4, 4)
    assert np.array_equal(computed(network, inputs), run(made, inputs))


def test_the_normalisation_of_an_input_that_goes_to_several_layers():
    """What all of them do first; and nothing, if one of them takes the input as it is."""
    nodes = [
        node("Sub", "x m", "a"),
        node("Div", "a s", "n"),
        node("Conv", "n A", "c", **PAD),
        node("Conv", "n K", "d"),
        node("Add", "c d", "e"),
        node("Relu", "e", "h"),
        *TAIL[1:],
    ]
    nodes[-2] = node("Flatten", "h", "f")
    constants = {"A": C, "K": quarters(Random(42), 4, 2, 1, 1), "V": V, "m": quarters(Random(43), 2, 1, 1)}
    constants["s"] = np.array([[[2]], [[0.5]]], np.float32)
    inputs = quarters(Random(44), 3, 2, 4, 4)
    for raw in (False, True):
        nodes[3] = node("Conv", "x K" if raw else "n K", "d")
        made = model(nodes, constants, shape=("N", 2, 4, 4))
        network = read(made)
        assert (network.normalisation is None) == raw
        assert np.array_equal(computed(network, inputs), run(made, inputs))
        if not raw:
            inner = read(made, eps_space="normalised")
            assert [inner.normalisation.mean[i, 0] for i in (0, 16)] == [
                Fraction(float(x)) for x in constants["m"].ravel()
            ]
            assert [inner.normalisation.factor[i, 0] for i in (0, 16)] == [Fraction(1, 2), 2]
            assert str(inner.layers[0].terms[0].map) == "convolution 3x3"


def test_a_normalisation_is_known_behind_a_transposition():
    """Channels last, as Keras has them: the input is normalised, and then turned."""
    for before in (True, False):
        nodes = [
            node("Mul", "x k" if before else "t t_k", "s"),
            node("Transpose", "s" if before else "x", "t" if not before else "h0", perm=[0, 3, 1, 2]),
        ]
        nodes = nodes if before else nodes[::-1]
        nodes += [node("Conv", f"{'h0' if before else 's'} A B", "h", **PAD), *TAIL]
        constants = {"A": C, "B": B, "V": V, "k": np.array([2, 0.5], np.float32)}
        constants["t_k"] = constants["k"].reshape(2, 1, 1)
        made = model(nodes, constants, shape=("N", 4, 4, 2))
        network = read(made, eps_space="normalised")
        assert [network.normalisation.factor[i, 0] for i in range(3)] == [2, Fraction(1, 2), 2]
        inputs = quarters(Random(45), 3, 4, 4, 2)
        assert np.array_equal(computed(read(made), inputs), run(made, inputs))


# -- files of others ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stem", STEMS)
def test_files_of_exporters(stem):
    path, x, y = FIXTURES / f"{stem}.onnx", EXPECTED[f"{stem}__x"], EXPECTED[f"{stem}__y"]
    network = load_model(path)
    found = computed(network, x)
    for other in (y, run(path, x)):
        assert np.abs(found - other).max() < 2e-6 * np.abs(y).max()
    assert path.stat().st_size < 60_000


def test_there_are_files_of_exporters():
    assert len(STEMS) == 10


@pytest.mark.parametrize("kind", ["residual", "minmax", "pools"])
def test_both_exporters_write_the_same_network(kind):
    """(Where one of them folds batch normalisation into a convolution, in float32, its numbers are others.)"""
    first, second = (load_model(FIXTURES / f"{kind}_{name}.onnx") for name in ("torchscript", "dynamo"))
    assert first.content == second.content
    if kind != "pools":
        assert load_model(FIXTURES / "residual_unfolded.onnx").content != first.content


def test_min_max_of_torch():
    network = load_model(FIXTURES / "minmax_dynamo.onnx")
    assert network.activations == ("group_sort:2:72:descending", "group_sort:2:4", "group_sort:2:1", None)
    assert network.is_chain
    assert not network.folded


def test_a_network_of_torch_with_batch_normalisation():
    network = load_model(FIXTURES / "cnn_unfolded.onnx", eps_space="normalised")
    assert [bool(layer.before) for layer in network.layers] == [True, False, False, False]
    assert [bool(layer.after) for layer in network.layers] == [False, True, False, False]
    assert network.shape == (2, 8, 8)
    assert network.normalisation.mean[64, 0] == Fraction(3, 8)


@pytest.fixture(scope="session")
def models_dir():
    path = Path(__file__).resolve().parents[1].parent / "shared" / "models"
    if not path.is_dir():
        pytest.skip("the models of a public competition (../shared/models) are not on this machine")
    return path


@pytest.mark.parametrize(
    ("name", "layers", "branches"),
    [
        ("cifar_base_kw", 4, 4),
        ("cifar_wide_kw", 4, 4),
        ("cifar_bias_field_0", 9, 9),
        ("resnet_3b2_bn_mixup_adv_4.0_bs128_lr-1", 9, 12),
    ],
)
def test_models_of_a_public_competition(models_dir, name, layers, branches):
    path = models_dir / f"{name}.onnx"
    network = load_model(path)
    assert (len(network.layers), len(network.branches)) == (layers, branches)
    x = np.random.default_rng(1).uniform(0, 1, (2, *network.shape)).astype(np.float32)
    found, expected = computed(network, x), run(path, x)
    assert np.abs(found - expected).max() < 2e-6 * np.abs(expected).max()
