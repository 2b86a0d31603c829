"""What ONNX operators do to the numbers of a network, beside Fractions: its layers are exact."""

from fractions import Fraction

import numpy as np
import pytest

from tests.onnx_models import agree, array, exact, layers, model, node, read, refused, turned, whole, zeros

W, V, SQUARE = array(3, 4), array(4, 2), array(3, 3)  # inputs x outputs
B4 = array(4)


# -- matrices ----------------------------------------------------------------------------------------------------------

NUMBERS = {"alpha": np.float32(0.3), "beta": np.float32(-1.7)}
BIASES = {None: None, "()": (), "(1,)": (1,), "(4,)": (4,), "(1, 1)": (1, 1), "(1, 4)": (1, 4)}


@pytest.mark.parametrize("form", BIASES)
@pytest.mark.parametrize("given", [(), ("alpha",), ("beta",), ("alpha", "beta")], ids=str)
@pytest.mark.parametrize("transposed", [0, 1])
def test_gemm_is_alpha_times_the_product_plus_beta_times_c(transposed, given, form):
    alpha, beta = (exact(NUMBERS[name]) if name in given else 1 for name in NUMBERS)
    constants = {"W": W.T.copy() if transposed else W}
    bias = zeros(4)
    if form is not None:
        constants["C"] = array(*BIASES[form])
        bias = [beta * x for x in exact(np.broadcast_to(constants["C"].ravel(), 4))]
    attributes = {name: float(NUMBERS[name]) for name in given} | {"transB": transposed}
    made = node("Gemm", "x W C" if form is not None else "x W", "y", **attributes)
    weights = [[alpha * x for x in row] for row in turned(exact(W))]
    assert layers([made], constants) == [(weights, bias, None)]


@pytest.mark.parametrize("transposed", [0, 1])
def test_gemm_of_a_column(transposed):
    """An input of shape [3, 1], transposed; or a matrix before it."""
    made = node("Gemm", "x W b", "y", transA=1, transB=transposed)
    constants = {"W": W.T.copy() if transposed else W, "b": B4}
    assert layers([made], constants, shape=(3, 1)) == [(turned(exact(W)), exact(B4), None)]
    before = node("Gemm", "W x b", "y", transA=1 - transposed)
    assert layers([before], constants | {"b": B4[:, None]}, shape=(3, 1)) == [(turned(exact(W)), exact(B4), None)]
    row = node("Gemm", "W x", "y", transA=1 - transposed, transB=1)
    assert layers([row], constants, shape=(1, 3)) == [(turned(exact(W)), zeros(4), None)]


def test_gemm_adds_what_flows_to_a_product_of_constants():
    a, b = array(1, 2), array(2, 3)
    made = node("Gemm", "a b x", "y", alpha=0.5, beta=3.0)
    bias = [sum(x * y for x, y in zip(exact(a)[0], column, strict=True)) / 2 for column in turned(exact(b))]
    weights = [[Fraction(3 * (i == j)) for j in range(3)] for i in range(3)]
    assert layers([made], {"a": a, "b": b}, shape=(1, 3)) == [(weights, bias, None)]


@pytest.mark.parametrize(
    ("form", "said"),
    [((2, 4), "C has the shape"), ((3,), "C has"), ((4, 1), "C has"), ((1, 1, 4), "C has"), ((0,), "C has")],
)
def test_gemm_never_grows_by_c(form, said):
    refused(rf"node 0 \(Gemm\): {said}", [node("Gemm", "x W C", "y")], {"W": W, "C": np.ones(form, np.float32)})
    constants = {"A": array(1, 3), "W": W, "C": np.ones(form, np.float32)}
    refused(said, [node("Gemm", "A W C", "c"), node("Add", "x c", "y")], constants, shape=("N", 4))


@pytest.mark.parametrize(("op", "inputs"), [("Gemm", "x V"), ("MatMul", "x V"), ("MatMul", "V x")])
def test_widths_must_fit(op, inputs):
    refused(rf"node 0 \({op}\): a product", [node(op, inputs, "y")], {"V": V})


@pytest.mark.parametrize(
    ("inputs", "shape"),
    [
        ("x W", ("N", 3)),
        ("x W", (1, 3)),
        ("x W", (3,)),
        ("x W", ("N", 1, 3)),
        ("x W", ("N", 1, 1, 3)),
        ("T x", (3,)),
        ("T x", (3, 1)),
        ("T x", ("N", 3, 1)),
        ("T x", ("N", 1, 3, 1)),
    ],
)
def test_a_matrix_stands_on_either_side(inputs, shape):
    found = layers([node("MatMul", inputs, "y")], {"W": W, "T": W.T.copy()}, shape=shape)
    assert found == [(turned(exact(W)), zeros(4), None)]


@pytest.mark.parametrize(
    ("inputs", "shape"),
    [("x S", (3, 3)), ("S x", ("N", 3)), ("x S", ("N", 3, 1)), ("S x", ("N", 1, 3)), ("S x", (1, 3))],
)
def test_a_product_with_more_than_one_vector_is_refused(inputs, shape):
    """Of a square matrix, which would fit."""
    refused(r"\(MatMul\): a product with what has the shape", [node("MatMul", inputs, "y")], {"S": SQUARE}, shape=shape)


@pytest.mark.parametrize("values", [array(3), array(1, 3, 4), np.ones((3, 4), np.int64)])
@pytest.mark.parametrize("inputs", ["x W", "W x"])
def test_other_products_are_refused(inputs, values):
    refused(r"\(MatMul\): a product", [node("MatMul", inputs, "y")], {"W": values})


def test_a_product_without_dimensions_is_refused():
    nodes = [node("Reshape", "x none", "z"), node("MatMul", "z W", "y")]
    refused(
        r"\(MatMul\): a product with what has the shape \[\]", nodes, {"none": whole(), "W": array(1, 2)}, shape=(1, 1)
    )


def test_layers_in_a_row_stay_apart():
    found = layers([node("MatMul", "x W", "z"), node("MatMul", "z V", "y")], {"W": W, "V": V})
    assert found == [(turned(exact(W)), zeros(4), "identity"), (turned(exact(V)), zeros(2), None)]


# -- entry by entry ----------------------------------------------------------------------------------------------------

ENTRYWISE = {
    "Add": lambda c: (Fraction(1), c),
    "Sub": lambda c: (Fraction(1), -c),
    "Mul": lambda c: (c, Fraction(0)),
    "Div": lambda c: (1 / c, Fraction(0)),
    "Add turned": lambda c: (Fraction(1), c),
    "Sub turned": lambda c: (Fraction(-1), c),
    "Mul turned": lambda c: (c, Fraction(0)),
}
"""x -> scale·x + shift for each constant."""
FORMS = {(): 1, (1,): 1, (1, 1): 1, (3,): 3, (1, 3): 3}


def entrywise(case, start, end, constant):
    op, _, order = case.partition(" ")
    return node(op, f"{constant} {start}" if order else f"{start} {constant}", end)


def maps(case, values, width):
    """Scales and shifts, one for each entry."""
    return zip(*map(ENTRYWISE[case], exact(np.broadcast_to(values.ravel(), width))), strict=True)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", ENTRYWISE)
def test_entry_by_entry_before_a_layer(case, form):
    """It is a normalisation of the inputs, which is in the first layer if distances are those of the inputs."""
    values = array(*form)
    nodes = [entrywise(case, "x", "z", "c"), node("MatMul", "z W", "y")]
    scales, shifts = maps(case, values, 3)
    rows = turned(exact(W))
    weights = [[w * s for w, s in zip(row, scales, strict=True)] for row in rows]
    bias = [sum(w * t for w, t in zip(row, shifts, strict=True)) for row in rows]
    assert layers(nodes, {"c": values, "W": W}) == [(weights, bias, None)]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", ENTRYWISE)
def test_entry_by_entry_after_a_layer(case, form):
    values = array(*form)
    nodes = [
        node("MatMul", "x S", "z"),
        entrywise(case, "z", "a", "c"),
        node("Tanh", "a", "t"),
        node("MatMul", "t W", "y"),
    ]
    scales, shifts = maps(case, values, 3)
    weights = [[w * s for w in row] for row, s in zip(turned(exact(SQUARE)), scales, strict=True)]
    found = layers(nodes, {"c": values, "S": SQUARE, "W": W})
    assert found == [(weights, list(shifts), "tanh"), (turned(exact(W)), zeros(4), None)]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", ENTRYWISE)
def test_entry_by_entry_between_an_activation_and_a_layer(case, form):
    values = array(*form)
    nodes = [
        node("MatMul", "x S", "z"),
        node("Tanh", "z", "t"),
        entrywise(case, "t", "a", "c"),
        node("Gemm", "a W b", "y"),
    ]
    scales, shifts = maps(case, values, 3)
    rows = turned(exact(W))
    weights = [[w * s for w, s in zip(row, scales, strict=True)] for row in rows]
    bias = [b + sum(w * t for w, t in zip(row, shifts, strict=True)) for row, b in zip(rows, exact(B4), strict=True)]
    found = layers(nodes, {"c": values, "S": SQUARE, "W": W, "b": B4})
    assert found == [(turned(exact(SQUARE)), zeros(3), "tanh"), (weights, bias, None)]


@pytest.mark.parametrize("first", ENTRYWISE)
@pytest.mark.parametrize("second", ENTRYWISE)
def test_two_of_them_in_a_row(first, second):
    one, other = array(3), array(1)
    nodes = [node("MatMul", "x S", "z"), entrywise(first, "z", "a", "c"), entrywise(second, "a", "y", "d")]
    (s, t), (u, v) = maps(first, one, 3), maps(second, other, 3)
    weights = [[u[i] * s[i] * w for w in row] for i, row in enumerate(turned(exact(SQUARE)))]
    found = layers(nodes, {"c": one, "d": other, "S": SQUARE})
    assert found == [(weights, [u[i] * t[i] + v[i] for i in range(3)], None)]


def test_neg():
    found = layers([node("Neg", "x", "z"), node("MatMul", "z W", "y")], {"W": W})
    assert found == [([[-x for x in row] for row in turned(exact(W))], zeros(4), None)]


def test_a_channel_gets_its_own_number():
    """Of an image [N, 2, 1, 2], which is flattened afterwards."""
    values, weights = array(1, 2, 1, 1), array(4, 3)
    nodes = [node("Mul", "x c", "z"), node("Flatten", "z", "f"), node("MatMul", "f W", "y")]
    factors = [exact(values.ravel()[i // 2]) for i in range(4)]
    expected = [[w * f for w, f in zip(row, factors, strict=True)] for row in turned(exact(weights))]
    assert layers(nodes, {"c": values, "W": weights}, shape=("N", 2, 1, 2)) == [(expected, zeros(3), None)]


ENLARGING = [(2, 3), (3, 1), (3, 3), (2, 1, 3), (2, 1, 1), (4,), (2,), (0,)]


@pytest.mark.parametrize("op", ["Add", "Sub", "Mul", "Div"])
@pytest.mark.parametrize(
    ("shape", "form"),
    [((1, 3), form) for form in ENLARGING] + [(("N", 3), form) for form in [*ENLARGING, (1, 1, 3), (1, 1, 1)]],
)
def test_what_flows_is_never_enlarged(op, form, shape):
    refused(
        rf"node 0 \({op}\): an array of shape", [node(op, "x c", "y")], {"c": np.ones(form, np.float32)}, shape=shape
    )


@pytest.mark.parametrize("op", ["Add", "Mul", "Div"])
def test_whole_numbers_are_no_weights(op):
    refused(rf"\({op}\): (a division by )?whole numbers", [node(op, "x c", "y")], {"c": whole(1, 2, 3)})


def test_a_division_by_zero_is_refused():
    refused(r"node 0 \(Div\): a division by zero", [node("Div", "x c", "y")], {"c": [1, 0, 1]})


@pytest.mark.parametrize("op", ["Mul", "Div"])
def test_factors_that_are_zero(op):
    """Nothing is divided by them: they are no normalisation."""
    nodes = [node("Mul", "x c", "z"), node(op, "z d", "a"), node("MatMul", "a W", "y")]
    weights = [[row[0] / 2, Fraction(0), row[2] / 2] for row in turned(exact(W))]
    factor = 0.5 if op == "Mul" else 2
    assert layers(nodes, {"c": [1, 0, 1], "d": [factor], "W": W}) == [(weights, zeros(4), None)]


# -- batch normalisation -----------------------------------------------------------------------------------------------

EPSILON = 0.25
VARIANCE = np.array([0.75, 3.75, 0.0], np.float32)  # with epsilon 1, 4 and 1/4: their roots are exact
ROOTS = [Fraction(1), Fraction(1, 2), Fraction(2)]
PARAMETERS = {"g": array(3, seed=1), "b": array(3, seed=2), "m": array(3, seed=3), "v": VARIANCE}


def normalised():
    """Scales and shifts of gamma·(x - mean)/root + beta."""
    gamma, beta, mean = (exact(PARAMETERS[name]) for name in "gbm")
    scales = [g * r for g, r in zip(gamma, ROOTS, strict=True)]
    return scales, [b - m * s for b, m, s in zip(beta, mean, scales, strict=True)]


@pytest.mark.parametrize("opset", [7, 9, 14, 15, 21])
def test_batch_normalisation_before_an_activation(opset):
    scales, shifts = normalised()
    nodes = [
        node("MatMul", "x S", "z"),
        node("BatchNormalization", "z g b m v", "n", epsilon=EPSILON),
        node("Relu", "n", "r"),
        node("MatMul", "r W", "y"),
    ]
    weights = [[w * s for w in row] for row, s in zip(turned(exact(SQUARE)), scales, strict=True)]
    found = layers(nodes, PARAMETERS | {"S": SQUARE, "W": W}, opset=opset)
    assert found == [(weights, shifts, "relu"), (turned(exact(W)), zeros(4), None)]


def test_batch_normalisation_after_an_activation():
    scales, shifts = normalised()
    nodes = [
        node("MatMul", "x S", "z"),
        node("Relu", "z", "r"),
        node("BatchNormalization", "r g b m v", "n", epsilon=EPSILON),
        node("MatMul", "n W", "y"),
    ]
    rows = turned(exact(W))
    weights = [[w * s for w, s in zip(row, scales, strict=True)] for row in rows]
    bias = [sum(w * t for w, t in zip(row, shifts, strict=True)) for row in rows]
    found = layers(nodes, PARAMETERS | {"S": SQUARE, "W": W})
    assert found == [(turned(exact(SQUARE)), zeros(3), "relu"), (weights, bias, None)]


def test_batch_normalisation_of_channels():
    """[N, 3, 2]: two numbers in each."""
    scales, shifts = normalised()
    nodes = [
        node("BatchNormalization", "x g b m v", "n", epsilon=EPSILON),
        node("Flatten", "n", "f"),
        node("MatMul", "f W", "y"),
    ]
    weights = array(6, 2)
    expected = [[w * scales[i // 2] for i, w in enumerate(row)] for row in turned(exact(weights))]
    bias = [sum(w * shifts[i // 2] for i, w in enumerate(row)) for row in turned(exact(weights))]
    assert layers(nodes, PARAMETERS | {"W": weights}, shape=("N", 3, 2)) == [(expected, bias, None)]


def test_a_root_that_is_not_rational_is_enclosed():
    """The factor is root·gamma·C with C in [least, 1], and the epsilon is the float32 nearest to 1e-5, not 1e-5."""
    variance = array(3) ** 2
    nodes = [node("MatMul", "x S", "z"), node("BatchNormalization", "z g b m v", "n"), node("Relu", "n", "y")]
    made = model(nodes, PARAMETERS | {"v": variance, "S": SQUARE})
    layer = read(made).layers[0]
    for i, row in enumerate(turned(exact(SQUARE))):
        root = layer.weights[i, 0] / (row[0] * exact(PARAMETERS["g"][i]))
        square = 1 / (exact(variance[i]) + exact(np.float32(1e-5)))
        assert (root * layer.before.least) ** 2 <= square <= root**2
        assert root**2 - square < Fraction(1, 2**100)
        mean, beta = (exact(PARAMETERS[name][i]) for name in "mb")
        assert layer.before.offset[i, 0] == -mean * root * exact(PARAMETERS["g"][i])
        assert layer.bias[i, 0] == beta


@pytest.mark.parametrize(
    ("made", "opset", "said"),
    [
        (node("BatchNormalization", "x g b m v", "y", training_mode=1), 15, "training mode"),
        (node("BatchNormalization", "x g b m v", "y p q", training_mode=1), 15, "it has 3 outputs.*for inference"),
        (node("BatchNormalization", "x g b m v", "y p q r s"), 9, "it has 5 outputs.*for inference"),
        (node("BatchNormalization", "x g b m v", "y", spatial=0), 8, "spatial"),
        (node("BatchNormalization", "x g b m v", "y", spatial=1), 9, "attribute 'spatial' is not understood"),
        (node("BatchNormalization", "x g b m v", "y", training_mode=0), 13, "attribute 'training_mode' is not"),
        (node("BatchNormalization", "x g b m", "y"), 15, "5 inputs are expected, and 4 are given"),
        (node("BatchNormalization", "x g b m g", "y"), 15, "a variance .* that is not positive"),
        (node("BatchNormalization", "x g b m B", "y"), 15, "vectors of 3 numbers, one per channel"),
        (node("BatchNormalization", "g g b m v", "y"), 15, "something else than one sample"),
        (node("BatchNormalization", "x g b m v", "y", epsilon=float("nan")), 15, "attribute 'epsilon' is nan"),
    ],
)
def test_other_batch_normalisations_are_refused(made, opset, said):
    """Until version 13 training mode is said by more outputs alone."""
    constants = PARAMETERS | {"g": -np.ones(3, np.float32), "B": B4}
    refused(rf"node 0 \(BatchNormalization\): .*{said}", [made], constants, opset=opset)


def test_batch_normalisation_of_a_fixed_batch_is_refused():
    made = node("BatchNormalization", "x g b m v", "y")
    refused("something else than one sample of a batch", [made], PARAMETERS, shape=(4, 3))


# -- activations -------------------------------------------------------------------------------------------------------

FLOAT32_MAX = Fraction(float(np.finfo(np.float32).max))
ACTIVATIONS = [
    (7, node("Relu", "x", "y"), "relu"),
    (16, node("LeakyRelu", "x", "y"), f"leaky_relu:{exact(np.float32(0.01))}"),
    (6 + 1, node("LeakyRelu", "x", "y", alpha=0.1), f"leaky_relu:{exact(np.float32(0.1))}"),
    (16, node("LeakyRelu", "x", "y", alpha=-0.5), "leaky_relu:-1/2"),
    (16, node("LeakyRelu", "x", "y", alpha=0.0), "relu"),
    (22, node("Elu", "x", "y"), "elu:1"),
    (7, node("Elu", "x", "y", alpha=0.3), f"elu:{exact(np.float32(0.3))}"),
    (13, node("Tanh", "x", "y"), "tanh"),
    (13, node("Sigmoid", "x", "y"), "sigmoid"),
    (22, node("Softplus", "x", "y"), "softplus"),
    (10, node("Clip", "x", "y", min=-0.1, max=0.2), f"clip:{exact(np.float32(-0.1))}:{exact(np.float32(0.2))}"),
    (10, node("Clip", "x", "y", max=6.0), f"clip:{-FLOAT32_MAX}:6"),
    (10, node("Clip", "x", "y", min=0.0), f"clip:0:{FLOAT32_MAX}"),
    (10, node("Clip", "x", "y", min=-1.0, max=1.0), "hard_tanh"),
    (11, node("Clip", "x a b", "y"), f"clip:{exact(np.float32(-0.1))}:{exact(np.float32(0.2))}"),
    (13, node("Clip", "x a", "y"), f"clip:{exact(np.float32(-0.1))}:inf"),
    (13, node("Clip", "x _ b", "y"), f"clip:-inf:{exact(np.float32(0.2))}"),
    (13, node("Clip", "x zero", "y"), "relu"),
    (13, node("Clip", "x minus one", "y"), "hard_tanh"),
    (13, node("Clip", "x one one", "y"), "clip:1:1"),
    (13, node("Clip", "x", "y"), None),
]
ENDS = {"a": -0.1, "b": 0.2, "zero": 0, "one": [1], "minus": -1}


@pytest.mark.parametrize(
    ("opset", "made", "name"), ACTIVATIONS, ids=lambda value: getattr(value, "op_type", str(value))
)
def test_activations_have_the_numbers_of_the_file(opset, made, name):
    """Attributes are float32 numbers, those by default as well."""
    found = layers([made], ENDS, opset=opset)
    identity = exact(np.eye(3))
    assert found == ([(identity, zeros(3), name)] if name else []) + [(identity, zeros(3), None)]


@pytest.mark.parametrize(
    ("opset", "made", "said"),
    [
        (13, node("Clip", "x one minus", "y"), "lower end must not be above the upper one"),
        (10, node("Clip", "x", "y", min=1.0, max=-1.0), "lower end must not be above"),
        (10, node("Clip", "x a", "y"), "1 inputs are expected, and 2 are given"),
        (13, node("Clip", "x", "y", min=0.0), "attribute 'min' is not understood in version 13"),
        (13, node("Clip", "x three", "y"), "single constants"),
        (13, node("Clip", "x size", "y"), "single constants"),
        (13, node("Clip", "a x", "y"), "single constants"),
        (10, node("Clip", "x", "y", max=-float("inf")), "attribute 'max' is -inf"),
        (10, node("Clip", "x", "y", max=float("nan")), "attribute 'max' is nan"),
        (10, node("Clip", "x", "y", max=1), "attribute 'max' is of another type"),
        (16, node("LeakyRelu", "x", "y", alpha=1), "attribute 'alpha' is of another type"),
        (16, node("LeakyRelu", "x", "y", slope=0.1), "attribute 'slope' is not understood"),
        (16, node("Elu", "x", "y", alpha=-1.0), "alpha must not be negative"),
        (16, node("Relu", "a", "y"), "applied to a constant"),
        (16, node("Relu", "x a", "y"), "1 inputs are expected, and 2 are given"),
        (16, node("Relu", "_", "y"), "1 inputs are expected, and 0 are given"),
        (16, node("Relu", "x", "y z"), "it has 2 outputs"),
    ],
)
def test_other_activations_are_refused(opset, made, said):
    refused(rf"node 0 \({made.op_type}\): .*{said}", [made], ENDS | {"three": [1, 2, 3], "size": whole(1)}, opset=opset)


@pytest.mark.parametrize("value", [np.inf, np.nan])
def test_the_ends_of_a_clip_are_finite(value):
    refused("every number must be finite", [node("Clip", "x c", "y")], {"c": value})
    refused("every number must be finite", [node("Clip", "x _ c", "y")], {"c": -value})


@pytest.mark.parametrize(
    ("inputs", "attributes", "expected"),
    [
        ("x zero up", {"min": 0.0, "max": np.inf}, "relu"),
        ("x down one", {"min": -np.inf, "max": 1.0}, "clip:-inf:1"),
        ("x down up", {"min": -np.inf, "max": np.inf}, None),
        ("x down", {"min": -np.inf, "max": np.inf}, None),
    ],
)
def test_infinite_ends_are_none(inputs, attributes, expected):
    """As attributes and as initialisers, of either rank that they may have."""
    numbers = {"zero": 0.0, "one": 1.0, "up": np.inf, "down": -np.inf}
    wide = {name: np.array([value], np.float32) for name, value in numbers.items()}
    tail = [node("Identity", "z", "y")]
    for constants in (numbers, wide):
        assert layers([node("Clip", inputs, "z"), *tail], constants, opset=13)[0][2] == expected
    assert layers([node("Clip", "x", "z", **attributes), *tail], opset=10)[0][2] == expected


def test_ends_that_are_computed_are_exact_or_refused():
    nodes = [node("Div", "a b", "c"), node("Clip", "x c", "y")]
    ratio = exact(np.float32(-0.1)) / exact(np.float32(0.2))
    assert layers(nodes, ENDS)[0][2] == f"clip:{ratio}:inf"
    squares = [node("Mul", f"c{i} c{i}", f"c{i + 1}") for i in range(6)]
    refused(
        r"\(Clip\): an end is a number of more digits than floats", [*squares, node("Clip", "x c6", "y")], {"c0": 1e30}
    )


# -- constants with more sides -----------------------------------------------------------------------------------------

WIDE = {
    "a sum": ((1, 3), [node("Add", "x c", "y")], {"c": array(1, 1, 3)}),
    "a product": ((1, 2, 3), [node("Mul", "c x", "y")], {"c": array(1, 1, 1, 2, 1)}),
    "a number": ((1, 3), [node("Sub", "x c", "y")], {"c": array(1, 1, 1)}),
    "a matrix": (("N", 1, 3), [node("MatMul", "x c", "y")], {"c": array(1, 3, 4)}),
    "a matrix on the left": (("N", 3, 1), [node("MatMul", "c x", "y")], {"c": array(1, 4, 3)}),
    "a matrix of many sides": (("N", 1, 1, 3), [node("MatMul", "x c", "y")], {"c": array(1, 1, 3, 2)}),
}


@pytest.mark.parametrize("case", WIDE)
def test_constants_with_leading_sides_of_one(case):
    shape, nodes, constants = WIDE[case]
    nodes = [*nodes[:-1], node(nodes[-1].op_type, " ".join(nodes[-1].input), "z"), node("Flatten", "z", "y")]
    made = model(nodes, constants, shape=shape)
    assert agree(read(made), made, array(2, *shape[1:], seed=5))


@pytest.mark.parametrize(
    ("shape", "op", "constant", "said"),
    [
        (("N", 3), "Add", (1, 1, 3), "adds dimensions"),
        ((1, 3), "Add", (2, 1, 3), "adds dimensions"),
        (("N", 3), "MatMul", (1, 3, 4), "a matrix is expected"),
        (("N", 1, 3), "MatMul", (2, 3, 4), "a matrix is expected"),
    ],
)
def test_other_constants_with_more_sides_are_refused(shape, op, constant, said):
    refused(rf"node 0 \({op}\): .*{said}", [node(op, "x c", "y")], {"c": array(*constant)}, shape=shape)
