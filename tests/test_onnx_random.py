"""Random ONNX graphs of operators that are understood: all are read, and onnxruntime computes what the network says.

In most of them no float operation rounds. All numbers are multiples of a power of two, and so few bits long that every
sum fits into a float, in whatever order it is taken: then both must be equal, to the last bit.
"""

from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intervalcert.model.activations import activation
from intervalcert.model.layers import Layer
from intervalcert.numbers.matrices import RationalMatrix
from tests.onnx_models import UNITS, agree, fractions, logits, model, node, read, rounding, run, whole

SAMPLES = 3
LATER = (13, 14, 15, 17, 19, 21)
OPSETS = {"float32": (7, 8, 9, 10, 11, 12, *LATER), "float64": LATER}  # onnxruntime has no older Clip of float64
BITS = {"float32": 24, "float64": 53}
STEPS = ("gemm", "matmul", "entrywise", "activation", "activation", "normalise", "reshape")


@dataclass
class Chain:
    """A graph that grows at one end. shape: of what flows. bits: no number has more, in units of the smallest."""

    draw: object
    opset: int
    kind: str
    shape: list
    bits: int = 6  # of inputs k/4 with |k| <= 16
    smooth: bool = False
    nodes: list = field(default_factory=list)
    constants: dict = field(default_factory=dict)
    value: str = "x"

    def pick(self, *values):
        return self.draw(st.sampled_from(values))

    def name(self):
        return f"v{len(self.nodes)}_{len(self.constants)}"

    def constant(self, values):
        name = self.name()
        self.constants[name] = values if isinstance(values, np.ndarray) else np.array(values, self.kind)
        return name

    def halves(self, *shape, least=-4, zero=True):
        """Numbers k/2, at most 2."""
        numbers = st.integers(least, 4) if zero else st.integers(least, 4).filter(bool)
        listed = self.draw(st.lists(numbers, min_size=prod(shape), max_size=prod(shape)))
        return (np.array(listed, self.kind) / 2).astype(self.kind).reshape(shape)

    def add(self, op, inputs=None, more="", **attributes):
        """One node on what flows; `points` if it is not the first one."""
        output = self.name()
        self.nodes.append(node(op, inputs or f"{self.value} {more}", output, **attributes))
        self.value = output

    def fits(self, bits):
        """Whether numbers may become so much longer; and they do."""
        if self.bits + bits > BITS[self.kind] and not self.smooth:
            return False
        self.bits += bits
        return True

    @property
    def width(self):
        return prod(side for side in self.shape if side != "N")

    def flat(self):
        """Two sides: those of the batch, and all others."""
        if len(self.shape) != 2:
            self.reshaped([self.shape[0], self.width], form=self.pick("flatten", "constant", "copies", "sizes"))

    # -- steps -----------------------------------------------------------------------------------------------------

    def gemm(self):
        """Sums of at most 4 products with k/2 <= 2, times at most 2, plus at most 4."""
        if not self.fits(6):
            return
        self.flat()
        outputs, turned = self.draw(st.integers(2, 4)), self.pick(0, 1)
        weights = self.halves(outputs, self.width)
        attributes = {"transB": turned} | self.pick({}, {"alpha": 0.5}, {"alpha": 2.0}, {"alpha": -1.0})
        more = self.constant(weights if turned else weights.T.copy())
        if self.opset < 11 or self.pick(True, False):
            more += " " + self.constant(self.halves(*self.pick((), (1,), (outputs,), (1, 1), (1, outputs))))
            attributes |= self.pick({}, {"beta": 2.0}, {"beta": -0.5})
        self.add("Gemm", more=more, **attributes)
        self.shape = [self.shape[0], outputs]

    def matmul(self):
        if not self.fits(5):
            return
        self.flat()
        weights = self.halves(self.width, self.draw(st.integers(2, 4)))
        self.add("MatMul", more=self.constant(weights))
        self.shape = [self.shape[0], weights.shape[1]]

    def entrywise(self):
        """A constant that is as large as what flows, or smaller, on either side."""
        if not self.fits(3):
            return
        op = self.pick("Add", "Sub", "Mul", "Div")
        sides = [self.pick(1, side if side != "N" else 1) for side in self.shape]
        values = self.halves(*sides[self.draw(st.integers(0, len(sides))) :], zero=op != "Div")
        if op == "Div":  # by powers of two
            values = np.exp2(np.round(np.log2(np.abs(values)))) * np.sign(values)
        other = self.constant(values.astype(self.kind))
        turned = op != "Div" and self.pick(True, False)
        self.add(op, f"{other} {self.value}" if turned else f"{self.value} {other}")

    def normalise(self):
        """Batch normalisation, with variance + epsilon = 1/4, 1 or 4, of which the roots are exact."""
        if len(self.shape) < 2 or not self.fits(6):
            return
        channels, epsilon = self.shape[1], self.pick(0.125, 0.25)
        variance = np.array([self.pick(0.25, 1.0, 4.0) - epsilon for _ in range(channels)], self.kind)
        gamma, beta, mean = (self.halves(channels) for _ in range(3))
        more = " ".join(map(self.constant, (gamma, beta, mean, variance)))
        self.add("BatchNormalization", more=more, epsilon=epsilon)

    def activation(self):
        if not self.fits(1):
            return
        kinds = [self.relu, self.clip]
        if self.kind == "float32":  # onnxruntime has no others in float64
            kinds += [self.leaky] + [self.curve] * (2 * self.smooth)
        self.pick(*kinds)()

    def relu(self):
        self.add("Relu")

    def leaky(self):
        self.add("LeakyRelu", alpha=self.pick(0.5, -0.5, 0.0))

    def curve(self):
        self.add(*self.pick(("Tanh",), ("Sigmoid",), ("Softplus",), ("Elu",)))

    def clip(self):
        low, high = sorted(self.halves(2).tolist())
        if self.opset < 11:
            self.add("Clip", **self.pick({"min": low}, {"max": high}, {"min": low, "max": high}))
            return
        low, high = (self.constant(np.array(end, self.kind)) for end in (low, high))
        self.add("Clip", more=self.pick("", low, f"_ {high}", f"{low} {high}"))

    def reshape(self):
        """Something that moves no numbers."""
        flat = ("flatten", "constant", "copies", "sizes")
        form = self.pick("identity", "dropout", "cast", "transpose", "unsqueeze", *flat)
        if form == "identity":
            self.add("Identity")
        elif form == "dropout":
            inference = f"{self.constant(np.array(0.5, np.float32))} {self.constant(np.array(False))}"
            self.add("Dropout", more=self.pick("", inference) if self.opset >= 12 else "")
        elif form == "cast":
            self.add("Cast", to={"float32": 1, "float64": 11}[self.kind])
        elif form == "transpose" and len(self.shape) > 2 and 1 in self.shape[1:]:
            place = self.shape.index(1, 1)
            order = [0, *(i for i in range(1, len(self.shape)) if i != place)]
            order.insert(self.draw(st.integers(1, len(order))), place)
            self.add("Transpose", perm=order)
            self.shape = [self.shape[i] for i in order]
        elif form == "unsqueeze" and len(self.shape) < 5:
            place = self.draw(st.integers(1, len(self.shape)))
            self.axes("Unsqueeze", place)
            self.shape.insert(place, 1)
            if self.pick(True, False):
                self.axes("Squeeze", place)
                del self.shape[place]
        elif form in flat:
            self.reshaped([self.shape[0], self.width], form)

    def axes(self, op, place):
        if self.opset < 13:
            self.add(op, axes=[place])
        else:
            self.add(op, more=self.constant(whole(place)))

    def reshaped(self, shape, form):
        batch = shape[0]
        if form == "flatten":
            self.add("Flatten", axis=1)
        elif form == "constant":
            self.add("Reshape", more=self.constant(whole(-1 if batch == "N" else batch, *shape[1:])))
        elif form == "copies":
            self.add("Reshape", more=self.constant(whole(0, -1)))
        else:  # as torch exports x.view(x.size(0), -1)
            start = self.value
            self.add("Shape")
            self.add("Gather", more=self.constant(np.array(0)), axis=0)
            self.axes("Unsqueeze", 0)
            self.add("Concat", more=self.constant(whole(-1)), axis=0)
            self.add("Reshape", f"{start} {self.value}")
        self.shape = shape


@st.composite
def graphs(draw, kinds=("float32", "float64"), smooth=False):
    """A model, its inputs, and the type of its numbers."""
    kind, batch = draw(st.sampled_from(kinds)), draw(st.sampled_from(("N", 1)))
    opset = draw(st.sampled_from(OPSETS[kind]))
    sample = draw(st.sampled_from([(2,), (3,), (4,), (1, 3), (2, 2), (1, 2, 2), (2, 1, 2), (2, 2, 1), (3, 1)]))
    chain = Chain(draw, opset, kind, [batch, *sample], smooth=smooth)
    for step in draw(st.lists(st.sampled_from(STEPS), min_size=3, max_size=8)):
        getattr(chain, step)()
    chain.flat()
    chain.nodes.append(node("Identity", chain.value, "y"))
    made = model(chain.nodes, chain.constants, shape=(batch, *sample), opset=opset, kind=kind)
    count = SAMPLES * prod(sample)
    numbers = draw(st.lists(st.integers(-16, 16), min_size=count, max_size=count))
    return made, (np.array(numbers) / 4).astype(kind).reshape(SAMPLES, *sample), kind


@settings(max_examples=250)
@given(graphs())
def test_onnxruntime_computes_the_very_numbers_of_the_network(graph):
    """None of these graphs is refused: whatever they are made of is understood."""
    made, inputs, _ = graph
    low, high = logits(read(made), inputs, backend="exact")
    found = run(made, inputs).astype(np.float64)
    assert np.array_equal(low, found)
    assert np.array_equal(high, found)


@settings(max_examples=150)
@given(graphs(kinds=("float32",), smooth=True))
def test_onnxruntime_computes_smooth_networks_but_for_its_rounding(graph):
    made, inputs, kind = graph
    assert agree(read(made), made, inputs, kind)


@settings(max_examples=60)
@given(graphs())
def test_a_network_is_the_same_after_its_file_was_written_again(graph):
    """The names of a graph, its doc strings and values that nobody needs mean nothing."""
    made, *_ = graph
    other = type(made)()
    other.CopyFrom(made)
    for index, part in enumerate(other.graph.node):
        part.name, part.doc_string = f"node {index}", "text"
    other.graph.node.add(op_type="Unknown", input=["nowhere"], output=["unused"])
    other.graph.initializer.add(name="unused too", data_type=99)
    other.producer_name = "somebody"
    assert read(other).content == read(made).content


def test_the_graphs_are_not_all_alike():
    """Every operator is drawn, and chains of several layers."""
    operators, lengths = set(), []

    @settings(max_examples=200)
    @given(graphs(kinds=("float32",), smooth=True))
    def collect(graph):
        operators.update(part.op_type for part in graph[0].graph.node)
        lengths.append(len(read(graph[0]).layers))

    collect()
    assert operators >= {"Gemm", "MatMul", "Add", "Sub", "Mul", "Div", "BatchNormalization", "Relu", "LeakyRelu", "Elu"}
    assert operators >= {"Tanh", "Sigmoid", "Softplus", "Clip", "Flatten", "Reshape", "Transpose", "Identity", "Cast"}
    assert operators >= {"Dropout", "Squeeze", "Unsqueeze", "Shape", "Gather", "Concat"}
    assert sum(length > 2 for length in lengths) > 40


# -- the comparison itself ---------------------------------------------------------------------------------------------

NODES = [
    node("Sub", "x a", "s"),
    node("Gemm", "s W b", "g", transB=1, alpha=0.5, beta=2.0),
    node("BatchNormalization", "g c a b d", "n", epsilon=0.25),
    node("LeakyRelu", "n", "l", alpha=0.5),
    node("Div", "l c", "q"),
    node("MatMul", "q W", "y"),
]
CONSTANTS = {
    "a": [1, -0.5, 2],
    "W": [[1, 2, -1], [0.5, -2, 1], [2, 1, 1.5]],
    "b": [0.5, 1, -1],
    "c": [2, 0.5, -1],
    "d": [0.75, 3.75, 0.75],
}
INPUTS = np.array([[1, 2, 3], [-4, 0.5, 1], [2, -3, -2.5]], np.float32)


def test_the_comparison_agrees_with_the_right_network():
    made = model(NODES, CONSTANTS)
    network = read(made)
    assert np.array_equal(logits(network, INPUTS, backend="exact")[0], run(made, INPUTS))
    assert agree(network, made, INPUTS)


def numbers_of(network):
    """(layer, part, row, column) of each number."""
    for index, layer in enumerate(network.layers):
        for part in ("weights", "bias"):
            if getattr(layer, part) is not None:
                yield from ((index, part, *place) for place in np.ndindex(getattr(layer, part).shape))


def test_the_comparison_notices_any_other_number():
    """One number of a layer is off by a thousandth."""
    made = model(NODES, CONSTANTS)
    network, found = read(made), run(made, INPUTS)
    places = list(numbers_of(network))
    assert len(places) == 9 + 3 + 9
    for index, part, row, column in places:
        layer = network.layers[index]
        values = fractions(getattr(layer, part))
        values[row][column] += Fraction(1, 1000)
        numbers = {"weights": layer.weights, "bias": layer.bias, part: RationalMatrix.from_fractions(values)}
        changed = Layer.dense(index - 1, numbers["weights"], numbers["bias"], layer.activation)
        wrong = replace(network, layers=(*network.layers[:index], changed, *network.layers[index + 1 :]))
        assert not agree(wrong, made, INPUTS, computed=found)


def test_the_comparison_notices_another_activation():
    made = model(NODES, CONSTANTS)
    network = read(made)
    for name in ("relu", "identity", "leaky_relu:0.499", "clip:-1:1", "tanh"):
        first, *rest = network.layers
        wrong = replace(network, layers=(replace(first, activation=activation(name)), *rest))
        assert not agree(wrong, made, INPUTS)


MUTANTS = {
    "another order of a difference": (0, node("Sub", "a x", "s")),
    "a sum": (0, node("Add", "x a", "s")),
    "not transposed": (1, node("Gemm", "s W b", "g", transB=0, alpha=0.5, beta=2.0)),
    "no alpha": (1, node("Gemm", "s W b", "g", transB=1, beta=2.0)),
    "no beta": (1, node("Gemm", "s W b", "g", transB=1, alpha=0.5)),
    "no bias": (1, node("Gemm", "s W", "g", transB=1, alpha=0.5, beta=2.0)),
    "another epsilon": (2, node("BatchNormalization", "g c a b d", "n", epsilon=0.26)),
    "mean and shift swapped": (2, node("BatchNormalization", "g c b a d", "n", epsilon=0.25)),
    "another slope": (3, node("LeakyRelu", "n", "l")),
    "a product": (4, node("Mul", "l c", "q")),
}


@pytest.mark.parametrize("case", MUTANTS)
def test_the_comparison_notices_another_graph(case):
    index, mutant = MUTANTS[case]
    network = read(model(NODES, CONSTANTS))
    made = model([*NODES[:index], mutant, *NODES[index + 1 :]], CONSTANTS)
    assert not agree(network, made, INPUTS)
    assert agree(read(made), made, INPUTS)


def test_what_floats_are_off_is_little():
    network = read(model(NODES, CONSTANTS))
    assert rounding(network, INPUTS, UNITS["float32"]).max() < 1e-3
