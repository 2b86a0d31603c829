"""ONNX files of real exporters: the network is the one that was exported, and is refused where it is not understood."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from intervalcert import InputError, UsageError, load_model
from intervalcert.numbers.float_formats import get_format
from intervalcert.verify.deployed import as_deployed
from tests.commands import ran
from tests.onnx_models import (
    TYPES,
    UNITS,
    agree,
    layers_of,
    logits,
    model,
    node,
    read,
    rounding,
    run,
    saved,
    tensor,
    whole,
)

FIXTURES = Path(__file__).parent / "fixtures"
EXPECTED = np.load(FIXTURES / "expected.npz")
STEMS = sorted(path.stem for path in FIXTURES.glob("*.onnx"))
REFUSED = {"zoo_softplus_dynamo", "zoo_softmax"}
GRAPHS = {stem for stem in STEMS if stem.startswith(("cnn", "residual", "minmax", "pools"))}
"""With convolutions and branches: see test_onnx_graphs.py."""
FLOAT32 = get_format("float32")


def expected(stem):
    """Inputs, and what the framework computed of them."""
    return EXPECTED[f"{stem}__x"], EXPECTED[f"{stem}__y"]


# -- files of exporters ----------------------------------------------------------------------------------------------


def test_the_fixtures_are_there():
    assert len(STEMS) == 40
    assert set(STEMS) > REFUSED
    assert len(GRAPHS) == 10


@pytest.mark.parametrize("stem", sorted(set(STEMS) - REFUSED - GRAPHS - {"mlp_float16"}))
def test_the_network_computes_what_the_framework_and_onnxruntime_do(stem):
    """To within what floats are off; which is little beside the outputs, or it would prove nothing."""
    network, (x, y) = load_model(FIXTURES / f"{stem}.onnx"), expected(stem)
    kind = str(x.dtype)
    little = 4000 * UNITS[kind] * np.abs(y).max()
    assert rounding(network, x, UNITS[kind]).max() < little
    assert agree(network, FIXTURES / f"{stem}.onnx", x, kind)
    assert agree(network, None, x, kind, computed=y)
    for place in np.ndindex(y.shape):
        wrong = y.astype(np.float64)
        wrong[place] += 2 * little
        assert not agree(network, None, x, kind, computed=wrong)


def test_the_network_in_float16_is_near():
    """A bound for any order of its sums would be larger than the outputs, which are near 20."""
    network, (x, y) = load_model(FIXTURES / "mlp_float16.onnx"), expected("mlp_float16")
    low, high = logits(network, x)
    for computed in (y, run(FIXTURES / "mlp_float16.onnx", x)):
        assert ((low - 0.05 <= computed) & (computed <= high + 0.05)).all()


@pytest.mark.parametrize("stem", [stem for stem in STEMS if stem.startswith("mlp")])
def test_the_same_weights_are_the_same_network(stem):
    network, other = load_model(FIXTURES / f"{stem}.onnx"), load_model(FIXTURES / "mlp.npz")
    assert layers_of(network) == layers_of(other)
    assert network.content == other.content
    assert network.folded == ()
    assert network.shape == (6,)


@pytest.mark.parametrize(
    "stems",
    [
        ("image_torchscript_exporter", "image_unfolded", "image_dynamo_unoptimised"),
        ("image_tf2onnx", "image_tf2onnx_flatten", "image_tf2onnx_shape"),
        *(
            (f"zoo_{name}_torchscript", f"zoo_{name}_dynamo")
            for name in ("elu", "tanh", "sigmoid", "hardtanh", "relu6", "leaky")
        ),
    ],
    ids=lambda stems: stems[0],
)
def test_two_exports_of_a_model_are_the_same_network(stems):
    first, *others = (load_model(FIXTURES / f"{stem}.onnx") for stem in stems)
    assert [layers_of(other) for other in others] == [layers_of(first)] * len(others)
    assert {other.content for other in others} == {first.content}


def test_a_normalisation_is_known_as_one():
    """(x - 0.1307)/0.3081 with the numbers that are in the file, which are float32."""
    path = FIXTURES / "image_torchscript_exporter.onnx"
    network = load_model(path, eps_space="normalised")
    mean, std = (float(np.float32(value)) for value in (0.1307, 0.3081))
    assert [network.normalisation.mean[i, 0] for i in range(16)] == [mean] * 16
    assert [1 / network.normalisation.factor[i, 0] for i in range(16)] == [std] * 16
    assert network.shape == (1, 4, 4)
    x = expected(path.stem)[0]
    assert all(np.allclose(a, b) for a, b in zip(logits(network, x), logits(load_model(path), x), strict=True))


@pytest.mark.parametrize(
    ("stem", "name"),
    [
        ("elu", "elu:1/2"),
        ("tanh", "tanh"),
        ("sigmoid", "sigmoid"),
        ("hardtanh", "hard_tanh"),
        ("relu6", "clip:0:6"),
        ("softplus", "softplus"),
        ("leaky", "leaky_relu:13421773/67108864"),
    ],
)
def test_activations_of_torch(stem, name):
    assert load_model(FIXTURES / f"zoo_{stem}_torchscript.onnx").activations == (name, None)


def test_softplus_as_dynamo_writes_it_depends_on_a_comparison():
    """Where(x > 20, x, Softplus(x)) is another function than Softplus, if only a little."""
    with pytest.raises(InputError, match=r"\(Greater\): what is computed depends on a comparison"):
        load_model(FIXTURES / "zoo_softplus_dynamo.onnx")


# -- a softmax at the end ----------------------------------------------------------------------------------------------


def test_a_softmax_is_refused_or_stripped_if_one_says_so(capsys):
    path, plain = FIXTURES / "zoo_softmax.onnx", FIXTURES / "zoo_leaky_torchscript.onnx"
    with pytest.raises(InputError, match=r"node '/3/Softmax' \(Softmax\): margins live on the logits.*--strip-softmax"):
        load_model(path)
    network = load_model(path, strip_softmax=True)
    assert network.activations == ("relu", None)
    assert [layer[:2] for layer in layers_of(network)] == [layer[:2] for layer in layers_of(load_model(plain))]
    assert ran(capsys, "inspect", path)[0] == 3
    assert ran(capsys, "inspect", path, "--strip-softmax")[0] == 0


def test_without_a_softmax_nothing_is_stripped():
    with pytest.raises(InputError, match="no softmax at the end to be stripped"):
        load_model(FIXTURES / "mlp_dynamo.onnx", strip_softmax=True)


W = np.array([[1, 2, -1, 0.5], [0, 1, 3, -2], [4, -0.5, 1, 1]], dtype=np.float32)
LINEAR = node("MatMul", "x W", "z")


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize(
    ("opset", "axis", "shape"),
    [
        (11, 1, ("N", 3)),
        (11, None, ("N", 3)),
        (17, None, ("N", 3)),
        (17, 1, ("N", 3)),
        (17, -1, (1, 3)),
        (11, 0, (1, 3)),
    ],
)
def test_the_order_of_the_logits_is_that_of_the_softmax(op, opset, axis, shape):
    last = node(op, "z", "y", **({} if axis is None else {"axis": axis}))
    made = model([LINEAR, last], {"W": W}, opset=opset, shape=shape)
    network = read(made, strip_softmax=True)
    inputs = np.random.default_rng(1).normal(size=(8, 3)).astype(np.float32)
    assert (run(made, inputs).argsort() == logits(network, inputs)[0].argsort()).all()
    assert layers_of(network) == layers_of(read(model([node("MatMul", "x W", "y")], {"W": W})))


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ([LINEAR, node("Softmax", "z", "p"), node("Relu", "p", "y")], r"\(Relu\): something follows a softmax"),
        ([LINEAR, node("Softmax", "z", "p"), node("Add", "p one", "y")], r"\(Add\): something follows a softmax"),
        ([LINEAR, node("Softmax", "z", "p"), node("LogSoftmax", "p", "y")], r"\(LogSoftmax\): something follows"),
        ([LINEAR, node("Softmax", "z", "y", axis=0)], r"not taken over all classes: axis 0 of the shape \[batch, 4\]"),
        ([node("Reshape", "x s", "z"), node("Softmax", "z", "y")], r"over all classes: axis 2 of .* \[batch, 3, 1\]"),
    ],
)
def test_other_softmaxes_cannot_be_stripped(nodes, said):
    with pytest.raises(InputError, match=said):
        read(model(nodes, {"W": W, "one": [1], "s": whole(0, 3, 1)}), strip_softmax=True)


def test_a_softmax_was_taken_over_all_sides_from_its_axis_on():
    """Before version 13: of the shape [batch, 3, 1], by default from side 1 on."""
    nodes, sizes = [node("Reshape", "x s", "z"), node("Softmax", "z", "y")], {"s": whole(0, 3, 1)}
    assert read(model(nodes, sizes, opset=12), strip_softmax=True).outputs == 3
    for opset, axis in ((13, 2), (12, 2), (12, 0)):  # of one class each, or of all samples together
        nodes[1] = node("Softmax", "z", "y", axis=axis)
        with pytest.raises(InputError, match=rf"not taken over all classes: axis {axis}"):
            read(model(nodes, sizes, opset=opset), strip_softmax=True)


def test_what_moves_no_numbers_may_follow_a_softmax():
    nodes = [LINEAR, node("Softmax", "z", "s"), node("Identity", "s", "i"), node("Flatten", "i", "y")]
    assert read(model(nodes, {"W": W}), strip_softmax=True).outputs == 4


# -- what is not understood --------------------------------------------------------------------------------------------


def with_name(name, op, inputs, output, **attributes):
    made = node(op, inputs, output, **attributes)
    made.name = name
    return made


MISTAKES = {
    "convolution": (
        [with_name("c1", "Conv", "x W", "y")],
        r"node 'c1' \(Conv\): it is applied to what has the shape \[batch, 3\]: a batch, channels, and one or two",
    ),
    "transposed convolution": (
        [with_name("c2", "ConvTranspose", "x W", "y")],
        r"node 'c2' \(ConvTranspose\): of convolutions plain ones are read \(Conv\); leave it out",
    ),
    "pooling": (
        [with_name("p", "LpPool", "x", "y", kernel_shape=[2])],
        r"node 'p' \(LpPool\): of pools those with maxima and means are read; leave it out",
    ),
    "recurrence": ([with_name("r", "LSTM", "x W W", "y")], r"node 'r' \(LSTM\): recurrent layers are not understood"),
    "layer norm": ([node("LayerNormalization", "x b", "y")], r"node 0 \(LayerNormalization\): what it divides by dep"),
    "gelu": ([node("Gelu", "x", "y")], r"node 0 \(Gelu\): no bounds of this function are proved; those of Relu, Leaky"),
    "quantised": ([node("DequantizeLinear", "x b", "y")], r"node 0 \(DequantizeLinear\): a quantised model"),
    "classes": ([LINEAR, node("ArgMax", "z", "y")], r"node 1 \(ArgMax\): it gives classes"),
    "unknown": (
        [node("Fancy", "x", "y")],
        r"node 0 \(Fancy\): this operator is not understood; leave it out, or write",
    ),
    "of another domain": (
        [node("FusedGemm", "x W", "y", domain="com.microsoft")],
        r"node 0 \(FusedGemm\): an operator of 'com.microsoft' is not understood",
    ),
    "a sum of other shapes": (
        [LINEAR, node("Add", "z x", "y")],
        r"node 1 \(Add\): what has the shapes \[batch, 4\] and \[batch, 3\] is added up: one would be repeated",
    ),
    "twice in one node": (
        [node("Mul", "x x", "y")],
        r"node 0 \(Mul\): a product of two values that depend on the input; leave it out",
    ),
    "a matrix of the input": (
        [node("MatMul", "x x", "y")],
        r"node 0 \(MatMul\): a product of two values that depend on the input",
    ),
    "a comparison": (
        [LINEAR, node("Greater", "z z", "g"), node("Where", "g z z", "y")],
        r"node 1 \(Greater\): what is computed depends on a comparison",
    ),
    "output that goes on": ([node("Relu", "x", "y"), node("Relu", "y", "z"), node("Add", "y z", "w")], None),
    "a constant put beside": (
        [node("Concat", "x W", "y", axis=1)],
        r"\(Concat\): constants are put together with what depends on the input",
    ),
    "division by the input": ([node("Div", "b x", "y")], r"node 0 \(Div\): a division by what depends on the input"),
    "not an activation": (
        [node("Softmax", "b", "s"), node("Add", "x s", "y")],
        r"\(Softmax\): it is applied to a const",
    ),
    "constant output": (
        [node("Relu", "x", "z"), node("Identity", "b", "y")],
        "output 'y' does not depend on the input",
    ),
}


@pytest.mark.parametrize("case", MISTAKES)
def test_messages_name_the_node_and_say_what_to_do(case):
    nodes, said = MISTAKES[case]
    made = model(nodes, {"W": W, "b": [1, 2, 3]})
    if said is None:  # what y does not depend on is left alone
        assert read(made).activations == ("relu", None)
        return
    with pytest.raises(InputError, match=said):
        read(made)


def test_two_inputs_and_two_outputs_are_refused():
    made = model([node("MatMul", "x W", "y")])
    made.graph.input.add().CopyFrom(made.graph.input[0])
    made.graph.input[1].name = "W"
    with pytest.raises(InputError, match=r"one input is expected, and this one has 2: 'x', 'W' \(what stays the same"):
        read(made)
    made.graph.initializer.append(tensor(W, "W"))  # a value for that input
    assert read(made).outputs == 4
    made.graph.output.add(name="x")
    with pytest.raises(InputError, match="one output is expected, and this one has 2: 'y', 'x'"):
        read(made)


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        (("N", "M"), r"\[N, M\]: its widths must be known \(only the first side, the batch, may be dynamic\): export"),
        (("N", 3, None), r"\[N, 3, \?\]: its widths must be known"),
        (("N",), "its widths must be known"),
        ((), "its widths must be known"),
        (None, "declared without a shape"),
        (("N", 0), r"\[N, \?\]; 1 to \d+ numbers are expected"),
        (("N", -3), r"\[N, -3\]; 1 to"),
        (("N", 2**40), r"\[N, 1099511627776\]; 1 to"),
        (("N", *[1] * 40, 3), "an array of 42 dimensions"),
    ],
)
def test_widths_must_be_known(shape, said):
    with pytest.raises(InputError, match=said):
        read(model([node("Identity", "x", "y")], shape=shape))


def test_an_input_of_whole_numbers_is_refused():
    made = model([node("Cast", "x", "y", to=1)])
    made.graph.input[0].type.tensor_type.elem_type = 2
    with pytest.raises(InputError, match="numbers of type 2; floats are expected: leave the conversion out"):
        read(made)


@pytest.mark.parametrize("shape", [(4, 3), (2, 1, 3)])
def test_a_batch_of_a_fixed_size_is_no_input(shape):
    with pytest.raises(InputError, match=r"\(MatMul\): .*exported for a batch of a fixed size"):
        read(model([node("MatMul", "x W", "y")], {"W": W}, shape=shape))
    with pytest.raises(InputError, match=r"one number per class is expected.*batch of a fixed size"):
        read(model([node("Relu", "x", "y")], shape=shape))


def test_other_options_are_refused():
    with pytest.raises(UsageError, match="--activation is not for an ONNX model"):
        load_model(FIXTURES / "mlp_dynamo.onnx", activation="relu")


# -- what a program in floats does besides its layers ------------------------------------------------------------------

PLAIN = {
    "zeros and ones": [
        node("Sub", "x none", "s"),
        node("Div", "s one", "d"),
        node("MatMul", "d W", "z"),
        node("Add", "z none", "h"),
        node("Mul", "h one", "y"),
    ],
    "a bias that is subtracted": [LINEAR, node("Sub", "z b", "y")],
    "layers": [LINEAR, node("Add", "z b", "h"), node("Relu", "h", "r"), node("MatMul", "r V", "y")],
    "gemm": [node("Gemm", "x W b", "y")],
    "two layers in a row": [LINEAR, node("MatMul", "z V", "y")],
    "casts to the same type": [node("Cast", "x", "c", to=1), node("MatMul", "c W", "d"), node("Cast", "d", "y", to=1)],
    "shapes": [node("Flatten", "x", "f"), node("MatMul", "f W", "m"), node("Unsqueeze", "m two", "y")],
    "a converted constant": [node("Cast", "half", "c", to=1), node("MatMul", "x c", "y")],
}
BESIDES = {
    "a cast": ([node("Cast", "x", "c", to=10), node("Cast", "c", "d", to=1), node("MatMul", "d W", "y")], "conversion"),
    "a cast within": ([LINEAR, node("Cast", "z", "c", to=11), node("Cast", "c", "y", to=1)], "a conversion to another"),
    "a cast at the end": ([LINEAR, node("Cast", "z", "y", to=16)], "a conversion to another type"),
    "alpha": ([node("Gemm", "x W b", "y", alpha=2.0)], "a scaling"),
    "beta": ([node("Gemm", "x W b", "y", beta=2.0)], "constants that are computed"),
    "two biases": ([node("Gemm", "x W b", "z"), node("Add", "z b", "y")], "several shifts"),
    "a scaling": ([LINEAR, node("Mul", "z k", "y")], "a scaling"),
    "a division": ([LINEAR, node("Div", "z k", "y")], "a scaling"),
    "a bias that is computed": ([node("Mul", "b k", "c"), node("Gemm", "x W c", "y")], "constants that are computed"),
    "weights that are computed": ([node("Mul", "W k", "c"), node("MatMul", "x c", "y")], "constants that are computed"),
    "a shift before a layer": (
        [LINEAR, node("Relu", "z", "r"), node("Add", "r b", "s"), node("MatMul", "s V", "y")],
        "a scaling or a shift before a layer",
    ),
    "batch normalisation": ([LINEAR, node("BatchNormalization", "z b b b b", "y")], "batch normalisation"),
}
CONSTANTS = {
    "W": W,
    "b": [1, 2, 3, 4],
    "V": np.ones((4, 2), dtype=np.float32),
    "k": [3],
    "none": [0],
    "one": [1],
    "half": W.astype(np.float16),
    "two": whole(2),
}


@pytest.mark.parametrize("case", PLAIN)
def test_layers_alone_are_deployed(case):
    network = read(model(PLAIN[case], CONSTANTS))
    assert network.folded == ()
    assert layers_of(as_deployed(network, FLOAT32)) == layers_of(network)


def test_a_mean_of_zeros_is_no_normalisation(tmp_path, capsys):
    """As in the files of ACAS Xu, whose inputs have the shape (1, 1, 1, 5): x - 0, then layers."""
    rng = np.random.default_rng(3)
    constants, nodes = {"mean": np.zeros((1, 1, 1, 5), dtype=np.float32)}, [node("Sub", "x mean", "s")]
    nodes.append(node("Flatten", "s", "h0", axis=1))
    for i, (inputs, outputs) in enumerate([(5, 6), (6, 6), (6, 5)]):
        constants[f"W{i}"] = rng.normal(size=(inputs, outputs)).astype(np.float32)
        constants[f"b{i}"] = rng.normal(size=outputs).astype(np.float32)
        last = i == 2
        nodes += [node("MatMul", f"h{i} W{i}", f"m{i}"), node("Add", f"m{i} b{i}", "y" if last else f"a{i}")]
        nodes += [] if last else [node("Relu", f"a{i}", f"h{i + 1}")]
    made = model(nodes, constants, shape=(1, 1, 1, 5))
    network = read(made)
    assert network.normalisation is None
    assert network.folded == ()
    assert agree(network, made, rng.normal(size=(20, 5)).astype(np.float32))
    path = saved(made, tmp_path / "acas.onnx")
    np.save(tmp_path / "x.npy", rng.normal(size=(4, 5)).astype(np.float32))
    code, out, _ = ran(capsys, "inspect", path)
    assert code == 0
    assert re.search(r"normalisation\W+none", out)
    argv = ("--model", path, "--inputs", tmp_path / "x.npy", "--eps", "0.0001", "--deployed", "float32", "--json")
    code, out, _ = ran(capsys, "certify", *argv)
    assert code == 0
    assert json.loads(out)["certified"] > 0


@pytest.mark.parametrize("case", BESIDES)
def test_what_is_done_besides_is_recorded_and_not_deployed(case):
    nodes, said = BESIDES[case]
    network = read(model(nodes, CONSTANTS))
    assert any(said in what for what in network.folded)
    with pytest.raises(InputError, match="is not known, so it cannot be certified as deployed"):
        as_deployed(network, FLOAT32)


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("to", [1, 10, 11, 16])
def test_a_cast_is_recorded_if_the_type_is_another_than_that_of_the_input(kind, to):
    nodes = [node("Cast", "x", "c", to=to), node("Relu", "c", "y")]
    network = read(model(nodes, kind=kind))
    assert network.folded == (() if to == TYPES[kind] else ("a conversion to another type",))


@pytest.mark.parametrize("to", [2, 3, 6, 7, 9, 8, 0, 17])
def test_a_cast_to_other_types_changes_numbers(to):
    with pytest.raises(InputError, match=rf"\(Cast\): a conversion .* to type {to}"):
        read(model([node("Cast", "x", "y", to=to)]))
