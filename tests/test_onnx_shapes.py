"""Constants, shapes and sizes in ONNX files: folded exactly, and never so that numbers change places."""

import math
from fractions import Fraction

import numpy as np
import pytest

from tests.onnx_models import (
    array,
    exact,
    layers,
    layers_of,
    model,
    node,
    read,
    refused,
    session_of,
    tensor,
    turned,
    whole,
    zeros,
)

W, V, B3 = array(3, 4), array(4, 2), array(3)

# -- constants ---------------------------------------------------------------------------------------------------------

A, C = array(4, seed=1), array(4, seed=2)


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([node("Add", "a c", "b")], lambda a, c: a + c),
        ([node("Sub", "a c", "b")], lambda a, c: a - c),
        ([node("Mul", "a c", "b")], lambda a, c: a * c),
        ([node("Div", "a c", "b")], lambda a, c: a / c),
        ([node("Neg", "a", "n"), node("Div", "n c", "d"), node("Sub", "d a", "b")], lambda a, c: -a / c - a),
    ],
    ids=lambda value: value[0].op_type if isinstance(value, list) else "",
)
def test_constants_are_folded_exactly(nodes, expected):
    """No float32 is 1/3, and a sum of two is seldom one."""
    bias = [expected(a, c) for a, c in zip(exact(A), exact(C), strict=True)]
    assert any(exact(np.float32(float(x))) != x for x in bias)
    found = layers([*nodes, node("Gemm", "x W b", "y")], {"a": A, "c": C, "W": W})
    assert found == [(turned(exact(W)), bias, None)]


def test_products_of_constants_are_exact():
    expected = [[sum(exact(W)[i][k] * exact(V)[k][j] for k in range(4)) for i in range(3)] for j in range(2)]
    found = layers([node("MatMul", "W V", "M"), node("MatMul", "x M", "y")], {"W": W, "V": V})
    assert found == [(expected, zeros(2), None)]


@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
@pytest.mark.parametrize("listed", [False, True])
def test_floats_are_their_binary_value(kind, listed):
    """The largest and the smallest of their type, raw or one by one."""
    ends = np.finfo(kind)
    values = np.array([[ends.max, -ends.tiny], [ends.smallest_subnormal, 0.1]], dtype=kind)
    made = model([node("MatMul", "x W", "y")], {"W": values}, shape=("N", 2), kind=kind)
    if listed:
        stored = made.graph.initializer[0]
        stored.ClearField("raw_data")
        if kind == "float16":
            stored.int32_data.extend(values.ravel().view(np.uint16).tolist())
        else:
            getattr(stored, "float_data" if kind == "float32" else "double_data").extend(values.ravel().tolist())
    assert layers_of(read(made)) == [(turned(exact(values)), zeros(2), None)]


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({"value": tensor(B3)}, exact(B3)),
        ({"value_float": 0.1}, [exact(np.float32(0.1))] * 3),
        ({"value_floats": [0.1, 0.2, 0.3]}, exact(np.array([0.1, 0.2, 0.3], np.float32))),
    ],
)
def test_constants_of_nodes(attributes, expected):
    found = layers([node("Constant", "", "c", **attributes), node("Add", "x c", "y")])
    assert found == [(exact(np.eye(3)), expected, None)]


@pytest.mark.parametrize(
    "attributes",
    [
        {"value_string": "x"},
        {"value_float": float("nan")},
        {"value_floats": [1, float("inf")]},
        {},
        {"value_float": 1.0, "value_int": 2},
        {"value": tensor(np.array([np.nan], np.float32))},
    ],
)
def test_other_constants_are_refused(attributes):
    refused(r"node 0 \(Constant\): ", [node("Constant", "", "c", **attributes), node("Add", "x c", "y")])


@pytest.mark.parametrize("value", [None, 0.1])
def test_a_constant_of_some_shape(value):
    attributes = {} if value is None else {"value": tensor(np.array([value], np.float32))}
    found = layers([node("ConstantOfShape", "s", "c", **attributes), node("Add", "x c", "y")], {"s": whole(1, 3)})
    assert found == [(exact(np.eye(3)), [exact(np.float32(value or 0))] * 3, None)]


@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
@pytest.mark.parametrize("to", [1, 10, 11])
def test_a_constant_is_converted_if_that_changes_nothing(kind, to):
    nodes = [node("Cast", "c", "d", to=to), node("Add", "x d", "y")]
    assert layers(nodes, {"c": np.array([0.5, -3, 0], kind)}) == [(exact(np.eye(3)), [Fraction(1, 2), -3, 0], None)]
    rounded = (kind, to) in {("float32", 10), ("float64", 1), ("float64", 10)}
    odd = np.array([1 / 3, 2 / 3, 1], kind)
    if rounded:
        refused(rf"\(Cast\): a conversion of a constant to type {to} that changes its numbers", nodes, {"c": odd})
    else:
        assert layers(nodes, {"c": odd}) == [(exact(np.eye(3)), exact(odd), None)]


@pytest.mark.parametrize(
    ("values", "to"),
    [
        (np.array([2**53 + 1]), 11),
        (np.array([1.5]), 7),
        (np.array([-1e30]), 6),
        (np.array([70000.0]), 10),
        (whole(3), 9),
        (np.array([1.0]), 2),
        (np.array([1.0]), 16),
    ],
)
def test_other_conversions_are_refused(values, to):
    refused(
        r"\(Cast\): a conversion of a constant", [node("Cast", "c", "d", to=to), node("Add", "x d", "y")], {"c": values}
    )


def test_whole_numbers_become_weights_if_they_are_converted():
    found = layers([node("Cast", "c", "d", to=1), node("Add", "x d", "y")], {"c": whole(1, -2, 3)})
    assert found == [(exact(np.eye(3)), [1, -2, 3], None)]


# -- shapes ------------------------------------------------------------------------------------------------------------

M6 = array(6, 2)
FLAT = [(turned(exact(M6)), zeros(2), None)]
"""Six numbers in their order, times M."""

FLATTENED = {
    "Flatten": ((("N", 2, 3)), [node("Flatten", "x", "f")]),
    "Flatten from the end": (("N", 2, 3), [node("Flatten", "x", "f", axis=-2)]),
    "Flatten of a channel": (("N", 1, 6), [node("Flatten", "x", "f", axis=2)]),
    "Flatten of one input": ((2, 3), [node("Flatten", "x", "f", axis=0)]),
    "Reshape to any batch": (("N", 2, 3), [node("Reshape", "x any", "f")]),
    "Reshape that copies": (("N", 2, 3), [node("Reshape", "x copies", "f")]),
    "Reshape of one input": ((1, 2, 3), [node("Reshape", "x one", "f")]),
    "Reshape to a vector": ((2, 3), [node("Reshape", "x rest", "f")]),
    "Transpose": (("N", 6, 1), [node("Transpose", "x", "t", perm=[0, 2, 1]), node("Flatten", "t", "f")]),
    "Transpose of one input": ((6, 1), [node("Transpose", "x", "f")]),
    "Transpose from channels first": (
        ("N", 1, 2, 3),
        [node("Transpose", "x", "t", perm=[0, 2, 3, 1]), node("Flatten", "t", "f")],
    ),
    "Squeeze": (("N", 1, 6), [node("Squeeze", "x ones", "f")]),
    "Squeeze of all": ((1, 6, 1), [node("Squeeze", "x", "f")]),
    "Unsqueeze": (("N", 6), [node("Unsqueeze", "x both", "f")]),
    "Identity": (("N", 6), [node("Identity", "x", "f")]),
    "Dropout": (("N", 6), [node("Dropout", "x", "f mask")]),
    "Dropout in inference": (("N", 6), [node("Dropout", "x half no", "f")]),
    "torch: x.view(x.size(0), -1)": (
        ("N", 2, 3),
        [
            node("Shape", "x", "s"),
            node("Gather", "s zero", "n", axis=0),
            node("Unsqueeze", "n axis", "u"),
            node("Concat", "u rest", "c", axis=0),
            node("Reshape", "x c", "f"),
        ],
    ),
    "tensorflow: tf.concat": (
        ("N", 2, 3),
        [
            node("Shape", "x", "s"),
            node("Cast", "s", "s32", to=6),
            node("Slice", "s32 axis ones axis", "n"),
            node("Concat", "n rest32", "c32", axis=0),
            node("Cast", "c32", "c", to=7),
            node("Reshape", "x c", "f"),
        ],
    ),
    "a width that is computed": (
        ("N", 2, 3),
        [
            node("Shape", "x", "s"),
            node("Gather", "s ones", "two", axis=0),
            node("Gather", "s minus", "three", axis=0),
            node("Mul", "two three", "six"),
            node("Concat", "rest six", "c", axis=0),
            node("Reshape", "x c", "f"),
        ],
    ),
    "a quotient of sizes": (
        ("N", 2, 3),
        [
            node("Shape", "x", "s", start=1),
            node("Gather", "s zero", "two"),
            node("Div", "twelve two", "six"),
            node("Squeeze", "six axis", "whole"),
            node("Reshape", "whole axis1", "list"),
            node("Concat", "rest list", "c", axis=-1),
            node("Reshape", "x c", "f"),
        ],
    ),
    "a shape of ones": (
        ("N", 6),
        [
            node("Shape", "x", "s", end=1),
            node("Shape", "s", "r"),
            node("ConstantOfShape", "r", "ones_", value=tensor(whole(-1))),
            node("Concat", "ones_ six", "c", axis=0),
            node("Reshape", "x c", "f"),
        ],
    ),
}
SIZES = {
    "any": whole(-1, 6),
    "copies": whole(0, -1),
    "one": whole(1, 6),
    "rest": whole(-1),
    "rest32": np.array([-1], np.int32),
    "ones": whole(1),
    "both": whole(1, -2),
    "zero": np.array(0),
    "axis": whole(0),
    "axis1": whole(1),
    "minus": whole(-1),
    "twelve": whole(12),
    "half": np.array(0.5, np.float32),
    "no": np.array(False),
}


@pytest.mark.parametrize("case", FLATTENED)
def test_numbers_keep_their_places(case):
    shape, nodes = FLATTENED[case]
    constants = {name: value for name, value in SIZES.items() if not any(name in made.output for made in nodes)}
    constants |= {"M": M6, "six": whole(6)} if case == "a shape of ones" else {"M": M6}
    assert layers([*nodes, node("MatMul", "f M", "y")], constants, shape=shape) == FLAT


MIXED = {
    "Flatten of the batch": (("N", 6), node("Flatten", "x", "y", axis=0)),
    "Flatten over samples": (("N", 2, 3), node("Flatten", "x", "y", axis=2)),
    "Reshape over samples": (("N", 6), node("Reshape", "x s", "y"), whole(-1, 3)),
    "Reshape of all samples": (("N", 6), node("Reshape", "x s", "y"), whole(-1)),
    "Reshape into the width": (("N", 6), node("Reshape", "x s", "y"), whole(1, -1)),
    "Reshape to other widths": (("N", 6), node("Reshape", "x s", "y"), whole(-1, 4)),
    "Reshape of too many": ((1, 6), node("Reshape", "x s", "y"), whole(2, 6)),
    "Reshape with two unknowns": ((1, 6), node("Reshape", "x s", "y"), whole(-1, -1)),
    "Reshape to a negative side": ((1, 6), node("Reshape", "x s", "y"), whole(-2, -3)),
    "Reshape to nothing": ((1, 6), node("Reshape", "x s", "y", allowzero=1), whole(0, 6)),
    "Reshape that copies too far": ((1, 6), node("Reshape", "x s", "y"), whole(1, 6, 0)),
    "Reshape to a number": ((1, 6), node("Reshape", "x s", "y"), np.array(-1)),
    "Reshape to floats": ((1, 6), node("Reshape", "x s", "y"), np.array([1, 6], np.float32)),
    "Reshape to a matrix": ((1, 6), node("Reshape", "x s", "y"), np.array([[1, 6]])),
    "Reshape to many dimensions": ((1, 6), node("Reshape", "x s", "y"), whole(*[1] * 70, 6)),
    "Reshape to what flows": ((1, 6), node("Reshape", "s x", "y"), np.ones(6, np.float32)),
    "Transpose of the batch": (("N", 6), node("Transpose", "x", "y")),
    "Transpose of the batch among others": (("N", 2, 3), node("Transpose", "x", "y", perm=[1, 0, 2])),
    "Transpose of other dimensions": (("N", 6), node("Transpose", "x", "y", perm=[0, 1, 2])),
    "Transpose that repeats": ((1, 6), node("Transpose", "x", "y", perm=[0, 0])),
    "Squeeze of a width": ((1, 6), node("Squeeze", "x s", "y"), whole(1)),
    "Squeeze of the batch": (("N", 6), node("Squeeze", "x s", "y"), whole(0)),
    "Squeeze of whatever": (("N", 6), node("Squeeze", "x", "y")),
    "Squeeze beyond": ((1, 6), node("Squeeze", "x s", "y"), whole(2)),
    "Unsqueeze before the batch": (("N", 6), node("Unsqueeze", "x s", "y"), whole(0)),
    "Unsqueeze twice": ((1, 6), node("Unsqueeze", "x s", "y"), whole(1, 1)),
    "Unsqueeze beyond": ((1, 6), node("Unsqueeze", "x s", "y"), whole(4)),
    "Unsqueeze nowhere": ((1, 6), node("Unsqueeze", "x", "y")),
    "Dropout in training": (("N", 6), node("Dropout", "x _ s", "y"), np.array(True)),
}


@pytest.mark.parametrize("case", MIXED)
def test_what_mixes_samples_is_refused(case):
    shape, made, *sizes = MIXED[case]
    refused(rf"node 0 \({made.op_type}\): ", [made], {"s": sizes[0]} if sizes else {}, shape=shape)


def test_numbers_that_change_places_are_those_of_other_columns():
    """[N, 2, 3] transposed: (0, 3, 1, 4, 2, 5) of six numbers, times M."""
    nodes = [node("Transpose", "x", "t", perm=[0, 2, 1]), node("Flatten", "t", "f"), node("MatMul", "f M", "y")]
    ((weights, bias, _),) = layers(nodes, {"M": M6}, shape=("N", 2, 3))
    columns = turned(weights)
    assert [columns[place] for place in (0, 3, 1, 4, 2, 5)] == exact(M6)
    assert bias == zeros(2)


@pytest.mark.parametrize(
    ("opset", "made", "said"),
    [
        (12, node("Squeeze", "x s", "y"), "1 inputs are expected"),
        (13, node("Squeeze", "x", "y", axes=[1]), "attribute 'axes' is not understood in version 13"),
        (12, node("Unsqueeze", "x", "y"), "does not say where"),
        (13, node("Reshape", "x t", "y", allowzero=1), "attribute 'allowzero' is not understood in version 13"),
        (11, node("Dropout", "x r", "y"), "1 inputs are expected"),
        (12, node("Dropout", "x", "y", ratio=0.5), "attribute 'ratio' is not understood in version 12"),
        (12, node("Dropout", "x", "y m n"), "it has 3 outputs"),
        (17, node("Flatten", "x", "y", axis=4), "axis 4 of 3 dimensions"),
        (17, node("Flatten", "x", "y", axis=-4), "axis -4 of 3 dimensions"),
        (17, node("Flatten", "x", "y", axis=1.0), "attribute 'axis' is of another type"),
    ],
)
def test_every_version_has_its_own_inputs_and_attributes(opset, made, said):
    constants = {"s": whole(1), "r": 0.5, "t": whole(1, 6)}
    refused(rf"node 0 \({made.op_type}\): .*{said}", [made], constants, opset=opset, shape=(1, 1, 6))


@pytest.mark.parametrize("opset", [7, 11, 12])
def test_axes_are_attributes_at_first(opset):
    nodes = [node("Unsqueeze", "x", "u", axes=[1, 3]), node("Squeeze", "u", "f", axes=[1, -1])]
    assert layers([*nodes, node("MatMul", "f M", "y")], {"M": M6}, opset=opset, shape=("N", 6)) == FLAT


def test_the_mask_of_a_dropout_is_no_value():
    nodes = [node("Dropout", "x", "d m"), node("Cast", "m", "c", to=1), node("Mul", "d c", "y")]
    refused(r"node 1 \(Cast\): the value 'm' is .* the mask of a Dropout", nodes)


# -- sizes -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({}, [5, 2, 3]),
        ({"start": 1}, [2, 3]),
        ({"start": -1}, [3]),
        ({"end": 1}, [5]),
        ({"start": 0, "end": -1}, [5, 2]),
        ({"start": -7, "end": 7}, [5, 2, 3]),
        ({"start": 2, "end": 1}, []),
    ],
)
def test_a_part_of_a_shape(attributes, expected):
    """Of a constant; the message says what became of it. And onnxruntime takes it."""
    nodes = [
        node("Shape", "c", "s", **attributes),
        node("Concat", "s rest", "t", axis=0),
        node("Reshape", "x t", "y"),
    ]
    constants = {"c": np.zeros((5, 2, 3), np.float32), "rest": whole(-1, 2)}
    sides = [*expected, 30 // math.prod(expected), 2]
    refused(rf"the output has the shape \[{', '.join(map(str, sides))}\]", nodes, constants, shape=(1, 60))
    session = session_of(model(nodes, constants, shape=(1, 60)))
    assert session.run(None, {"x": np.zeros((1, 60), np.float32)})[0].shape == tuple(sides)


LISTS = {
    "Gather beyond": [node("Gather", "list three", "s")],
    "Gather beyond the start": [node("Gather", "list four", "s")],
    "Gather along another axis": [node("Gather", "list zero", "s", axis=1)],
    "Gather from a number": [node("Gather", "scalar zero", "s")],
    "Gather of a matrix": [node("Gather", "list square", "s")],
    "Gather of floats": [node("Gather", "floats zero", "s")],
    "Concat without an axis": [node("Concat", "list list", "s")],
    "Concat along another axis": [node("Concat", "list list", "s", axis=1)],
    "Concat of a number": [node("Concat", "scalar list", "s", axis=0)],
    "Concat of floats": [node("Concat", "floats list", "s", axis=0)],
    "Slice backwards": [node("Slice", "list zero one_ zero minus", "s")],
    "Slice of a number": [node("Slice", "scalar zero one_", "s")],
    "Slice along another axis": [node("Slice", "list zero one_ one_", "s")],
    "Slice of two parts": [node("Slice", "list list list", "s")],
    "Slice without an end": [node("Slice", "list zero", "s")],
    "Add of other lengths": [node("Add", "list many", "s")],
    "Add of bytes, which wrap around": [node("Add", "bytes bytes", "s")],
    "Mul beyond 31 bits, which may wrap around": [node("Mul", "large large", "s")],
    "Div by zero": [node("Div", "list zero", "s")],
    "Div of negative numbers": [node("Div", "minus one_", "s")],
    "Add of whole and real numbers": [node("Add", "list floats", "s")],
    "Cast of sizes to floats": [node("Shape", "floats", "t"), node("Cast", "t", "s", to=1)],
    "Cast of a large number": [node("Gather", "huge zero", "n"), node("Cast", "n", "s", to=6)],
    "MatMul of sizes": [node("MatMul", "square square", "s")],
    "ConstantOfShape of negative sides": [node("ConstantOfShape", "minus", "s")],
    "ConstantOfShape of many numbers": [node("ConstantOfShape", "large", "s")],
    "ConstantOfShape of many dimensions": [node("ConstantOfShape", "many", "s")],
    "ConstantOfShape of two numbers": [node("ConstantOfShape", "one_", "s", value=tensor(whole(1, 2)))],
    "Reshape of sizes": [node("Shape", "floats", "t"), node("Reshape", "t list", "s")],
    "Flatten of sizes": [node("Shape", "floats", "t"), node("Flatten", "t", "s")],
    "Transpose of sizes": [node("Shape", "floats", "t"), node("Transpose", "t", "s")],
    "Unsqueeze of sizes": [node("Shape", "floats", "t"), node("Unsqueeze", "t zero", "s")],
    "Reshape of a constant": [node("Reshape", "floats square4", "s")],
    "Reshape of a constant to nothing": [node("Reshape", "floats nothing", "s")],
    "Transpose of a constant": [node("Transpose", "floats", "s", perm=[1, 0])],
    "Unsqueeze of a constant to many dimensions": [node("Unsqueeze", "floats many2", "s")],
}
CONSTANTS = {
    "list": whole(1, 6),
    "zero": whole(0),
    "one_": whole(1),
    "three": whole(2),
    "four": whole(-3),
    "minus": whole(-1),
    "scalar": np.array(6),
    "square": whole(1, 6, 1, 6).reshape(2, 2),
    "floats": np.ones(6, np.float32),
    "many": np.ones(70, np.int64),
    "many2": np.arange(70),
    "bytes": np.array([200, 200], np.uint8),
    "large": whole(2**16, 2**16),
    "huge": whole(2**40),
    "square4": whole(2, 4),
    "nothing": whole(0, -1, 0),
}


@pytest.mark.parametrize("case", LISTS)
def test_only_lists_of_sizes_are_computed(case):
    nodes = LISTS[case]
    refused(
        rf"node {len(nodes) - 1} \({nodes[-1].op_type}\): ",
        [*nodes, node("Reshape", "x s", "y")],
        CONSTANTS,
        shape=(1, 6),
    )


def test_the_size_of_the_batch_is_never_computed_with():
    nodes = [node("Shape", "x", "s"), node("Mul", "s two", "t"), node("Reshape", "x t", "y")]
    refused(r"node 1 \(Mul\): it computes with the size of the batch, which is not known", nodes, {"two": whole(2)})
    constant = [node("Shape", "x", "s"), node("ConstantOfShape", "s", "c"), node("Add", "x c", "y")]
    refused(r"node 1 \(ConstantOfShape\): it computes with the size of the batch", constant)
    moved = [node("Shape", "x", "s"), node("Reshape", "c s", "d"), node("Add", "x d", "y")]
    refused(r"node 1 \(Reshape\): a constant gets the shape of a batch", moved, {"c": B3})


def test_a_shape_may_be_asked_for_as_often_as_one_likes():
    """It is no use of the value, and not a branch."""
    nodes = [
        node("Shape", "x", "s"),
        node("MatMul", "x W", "z"),
        node("Shape", "z", "t"),
        node("Reshape", "z t", "u"),
        node("Shape", "z", "v"),
        node("Reshape", "u v", "y"),
    ]
    assert layers(nodes, {"W": W}) == [(turned(exact(W)), zeros(4), None)]


@pytest.mark.parametrize("opset", [7, 9])
def test_a_slice_has_attributes_at_first(opset):
    nodes = [
        node("Shape", "x", "s"),
        node("Slice", "s", "n", starts=[-9], ends=[1]),
        node("Concat", "n rest", "t", axis=0),
        node("Reshape", "x t", "f"),
        node("MatMul", "f M", "y"),
    ]
    assert layers(nodes, {"rest": whole(-1), "M": M6}, opset=opset, shape=("N", 2, 3)) == FLAT


def test_constants_change_their_shape_too():
    nodes = [
        node("Transpose", "T", "t"),
        node("Reshape", "t copies", "r"),
        node("Unsqueeze", "r axis", "u"),
        node("Squeeze", "u axis", "s"),
        node("Flatten", "s", "W"),
        node("Gemm", "x W b", "y"),
    ]
    constants = {"T": W.T.copy(), "copies": whole(0, -1), "axis": whole(1), "b": np.ones((1, 4), np.float32)}
    assert layers(nodes, constants) == [(turned(exact(W)), [1] * 4, None)]
