"""ONNX models made by hand, and what they compute: in onnxruntime, and in this project's own forward pass."""

from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from intervalcert import InputError, evaluate, load_model

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="the package onnxruntime is not installed")
helper = pytest.importorskip("onnx.helper")
numpy_helper = pytest.importorskip("onnx.numpy_helper")

TYPES = {"float16": 10, "float32": 1, "float64": 11}
UNITS = {"float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-53}


def node(op, inputs, output, /, **attributes):
    """One node; names are separated by spaces, and '_' is an input that is left out."""
    names = ["" if name == "_" else name for name in inputs.split()]
    return helper.make_node(op, names, output.split(), **attributes)


def array(*shape, seed=0):
    """Numbers that are no short decimals, of either sign, none of them zero; the same ones every time."""
    rng = np.random.default_rng([seed, *shape])
    return (rng.uniform(0.1, 3, shape) * rng.choice([-1, 1], shape)).astype(np.float32)


def whole(*values):
    """A list of sizes."""
    return np.array(values, dtype=np.int64)


def tensor(array, name=""):
    return numpy_helper.from_array(np.asarray(array), name)


def declared(name, shape, kind="float32"):
    return helper.make_tensor_value_info(name, TYPES[kind], shape)


def model(nodes, constants=None, *, shape=("N", 3), opset=17, kind="float32"):
    """A ModelProto from x to y. Constants that are lists get the type of the input."""
    arrays = {
        name: value if isinstance(value, np.ndarray) else np.array(value, dtype=kind)
        for name, value in (constants or {}).items()
    }
    graph = helper.make_graph(
        nodes,
        "g",
        [declared("x", shape, kind)],
        [declared("y", None, kind)],
        [tensor(array, name) for name, array in arrays.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def saved(made, path):
    path.write_bytes(made.SerializeToString())
    return path


def session_of(made):
    """Of a ModelProto or a file: one thread, nothing optimised away, no messages."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    source = made.SerializeToString() if isinstance(made, onnx.ModelProto) else str(made)
    return onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])


def run(made, inputs):
    """What onnxruntime computes, one row per input: all at once, or one by one if the model takes a single one."""
    session = session_of(made)
    (found,) = session.get_inputs()
    if isinstance(found.shape[0], int):
        return np.stack([session.run(None, {found.name: row.reshape(found.shape)})[0].ravel() for row in inputs])
    return session.run(None, {found.name: inputs})[0].reshape(len(inputs), -1)


def logits(network, inputs, backend="float64"):
    """Ends of the network's outputs, one row per input."""
    found = evaluate(network, inputs.reshape(len(inputs), -1).astype(np.float64), backend=backend)
    return found.lower[-1], found.upper[-1]


def rounding(network, inputs, unit):
    """How far a program in floats may be from the network, to first order and then doubled; one row per input.

    Sums of n terms in any order are off by n units of the sum of their absolute values (Higham, 3.1); whatever else is
    done to them on the way (a bias, a scaling, a normalisation) and the activation by a few units more: 16 here.
    """
    values = np.abs(inputs.reshape(len(inputs), -1).astype(np.float64))
    errors = np.zeros_like(values)
    for layer in network.layers:
        weights = np.abs([[float(x) for x in row] for row in fractions(layer.weights)])
        moved = sum(np.abs([float(row[0]) for row in fractions(column)]) for column in layer.columns)
        values = values @ weights.T + moved
        errors = errors @ weights.T + unit * (weights.shape[1] + 16) * values
        if layer.activation is not None:
            steep = float(layer.activation.lipschitz)
            # |f(z)| <= |f(0)| + lipschitz·|z|, and |f(0)| < 6 for all that are used here
            values, errors = 6 + steep * values, steep * errors + unit * 16 * (6 + steep * values)
    return 2 * errors


def agree(network, made, inputs, kind="float32", computed=None):
    """Whether onnxruntime computes what is in the enclosures, but for its rounding."""
    found = run(made, inputs) if computed is None else computed
    (low, high), slack = logits(network, inputs), rounding(network, inputs, UNITS[kind])
    return found.shape == low.shape and bool(((low - slack <= found) & (found <= high + slack)).all())


def fractions(matrix):
    rows, columns = matrix.shape
    return [[matrix[i, j] for j in range(columns)] for i in range(rows)]


def layers_of(network):
    """(weights, bias, activation) of each layer, as Fractions; zeros if there is no bias."""
    return [
        (
            fractions(layer.weights),
            [Fraction(0)] * layer.weights.shape[0] if layer.bias is None else [row[0] for row in fractions(layer.bias)],
            None if layer.activation is None else layer.activation.name,
        )
        for layer in network.layers
    ]


def exact(values):
    """Floats as Fractions, in lists of the same form."""
    return [exact(x) for x in values] if np.ndim(values) else Fraction(float(values))


def read(made, **options):
    """The network of a ModelProto, by way of a file."""
    with TemporaryDirectory() as folder:
        return load_model(saved(made, Path(folder, "m.onnx")), **options)


def layers(nodes, constants=None, **options):
    """The exact layers of a model of these nodes."""
    return layers_of(read(model(nodes, constants, **options)))


def refused(said, nodes, constants=None, **options):
    """A model of these nodes is refused, with that message."""
    with pytest.raises(InputError, match=said):
        read(model(nodes, constants, **options))


def turned(rows):
    return [list(column) for column in zip(*rows, strict=True)]


def zeros(count):
    return [Fraction(0)] * count
