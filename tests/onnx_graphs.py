"""Random ONNX graphs with convolutions, pools and branches; and what they compute, beside onnxruntime."""

from dataclasses import dataclass, field
from itertools import product
from math import prod
from random import Random

import numpy as np

from intervalcert import InputError
from intervalcert.model.activations import MaxPool, Sorting
from intervalcert.search.float_network import FloatNetwork
from tests.onnx_models import model, node, read, run, whole

SAMPLES = 3
MOST = 160  # numbers at one place


def columns(inputs):
    return inputs.reshape(len(inputs), -1).T.astype(np.float64)


def computed(network, inputs):
    """What the network computes in plain floats of 64 bits, one row per input; of a single output that alone."""
    found = FloatNetwork.of(network).logits(columns(inputs)).T
    return found if network.single is None else found[:, 1:]


def magnitudes(network, inputs):
    """At least all absolute values that the outputs are sums of, one row per input."""
    values = {-1: np.abs(columns(inputs))}
    for index, layer in enumerate(network.layers):
        total = 0
        for term in layer.terms:
            near = term.map.absolute().near()
            total = total + np.ldexp(near.apply(values[term.source]), near.exponent)
        total = total + _absolute(layer.bias) + _absolute(layer.before and layer.before.offset)
        if layer.activation is None:
            break
        if isinstance(layer.activation, MaxPool):
            total = layer.activation.float_values(total)
        elif isinstance(layer.activation, Sorting):
            total = np.broadcast_to(total.max(axis=0), total.shape)
        else:
            total = 1 + float(layer.activation.lipschitz) * total
        values[index] = total + _absolute(layer.after and layer.after.offset)
    found = total.T
    return found if network.single is None else found[:, 1:]


def _absolute(column):
    return 0 if column is None else np.abs(np.ldexp(column.near_floats().values, column.near_floats().exponent))


def differs(network, made, inputs):
    """By how much onnxruntime, which computes in float32, is further from the network than its rounding explains.

    Not at all, if that is not positive: a thousand units of the magnitudes.
    """
    expected = run(made, inputs)
    found = computed(network, inputs)
    assert found.shape == expected.shape
    return float((np.abs(found - expected) - 2.0**-14 * (1 + magnitudes(network, inputs))).max())


def quarters(random, *shape, least=-8):
    """Numbers k/4."""
    return (np.array([random.randint(least, 8) for _ in range(prod(shape))]).reshape(shape) / 4).astype(np.float32)


@dataclass
class Drawing:
    """A graph that grows. values: names and shapes (channels, height, width) of what depends on the input."""

    random: Random
    shape: tuple
    opset: int = 17
    nodes: list = field(default_factory=list)
    constants: dict = field(default_factory=dict)
    values: list = field(default_factory=list)

    def __post_init__(self):
        self.values.append(("x", self.shape))

    def constant(self, values):
        name = f"c{len(self.constants)}"
        self.constants[name] = values
        return name

    def add(self, op, inputs, shape=None, **attributes):
        """One node; its output is a value, if the shape is said."""
        output = f"v{len(self.nodes)}"
        self.nodes.append(node(op, inputs, output, **attributes))
        if shape is not None:
            self.values.append((output, tuple(shape)))
        return output

    def pick(self, fits=lambda shape: True):
        """One of the later values, as a rule."""
        found = [value for value in self.values if fits(value[1])]
        return found[-1 - min(int(self.random.expovariate(0.6)), len(found) - 1)] if found else None

    def maybe(self, **attributes):
        return attributes if self.random.random() < 0.5 else {}

    # -- windows ---------------------------------------------------------------------------------------------------

    def window(self, grid, least=0):
        """Attributes, and the grid of outputs; None if it does not fit."""
        draw = self.random
        size = [draw.randint(1, 3) for _ in grid]
        strides, dilations = [draw.choice([1, 1, 2]) for _ in grid], [draw.choice([1, 1, 1, 2]) for _ in grid]
        pads = [draw.randint(0, min(1, k - 1)) for k in size + size]
        sides = []
        for axis, side in enumerate(grid):
            room = side + pads[axis] + pads[axis + 2] - dilations[axis] * (size[axis] - 1) - 1
            sides.append(room // strides[axis] + 1 if room >= 0 else 0)
        return {"kernel_shape": size, "strides": strides, "dilations": dilations, "pads": pads}, sides

    def conv(self):
        name, (channels, *grid) = self.pick()
        groups = self.random.choice([g for g in (1, 1, 2, 3) if channels % g == 0])
        outputs = groups * self.random.randint(1, 3)
        attributes, sides = self.window(grid)
        if not all(sides) or outputs * prod(sides) > MOST:
            return
        weights = quarters(self.random, outputs, channels // groups, *attributes["kernel_shape"])
        inputs = f"{name} {self.constant(weights)}"
        if self.random.random() < 0.5:
            inputs += f" {self.constant(quarters(self.random, outputs))}"
        self.add("Conv", inputs, (outputs, *sides), group=groups, **attributes)

    def max_pool(self):
        name, (channels, *grid) = self.pick()
        attributes, sides = self.window(grid)
        if all(sides):
            self.add("MaxPool", name, (channels, *sides), **attributes)

    def average_pool(self):
        name, (channels, *grid) = self.pick()
        attributes, sides = self.window(grid)
        attributes["dilations"] = [1, 1]
        sides = [
            (n + attributes["pads"][i] + attributes["pads"][i + 2] - attributes["kernel_shape"][i])
            // attributes["strides"][i]
            + 1
            for i, n in enumerate(grid)
        ]
        if min(sides) > 0:
            del attributes["dilations"]
            self.add("AveragePool", name, (channels, *sides), **attributes, **self.maybe(count_include_pad=1))

    def global_pool(self):
        name, (channels, *_) = self.pick()
        op = self.random.choice(["GlobalMaxPool", "GlobalAveragePool", "ReduceMean", "ReduceMax", "ReduceMin"])
        axes = {"axes": [2, 3]} if op.startswith("Reduce") else {}
        self.add(op, name, (channels, 1, 1), **axes)

    # -- entry by entry --------------------------------------------------------------------------------------------

    def entrywise(self):
        name, shape = self.pick()
        sides = self.random.choice([(), (1,), (shape[0], 1, 1), shape, shape[1:], (1, *shape)])
        self.add(
            self.random.choice(["Add", "Sub", "Mul"]), f"{name} {self.constant(quarters(self.random, *sides))}", shape
        )

    def normalise(self):
        name, shape = self.pick()
        vectors = [quarters(self.random, shape[0]) for _ in range(3)]
        vectors.append(quarters(self.random, shape[0], least=1))
        self.add("BatchNormalization", " ".join([name, *map(self.constant, vectors)]), shape, epsilon=0.25)

    def bend(self):
        name, shape = self.pick()
        op = self.random.choice(["Relu", "Relu", "Relu", "LeakyRelu", "Tanh", "Sigmoid", "Identity", "Neg"])
        self.add(op, name, shape)

    # -- several values --------------------------------------------------------------------------------------------

    def sum(self):
        name, shape = self.pick()
        others = [value for value, other in self.values if other == shape]
        names = [name, *(self.random.choice(others) for _ in range(self.random.randint(1, 2)))]
        op = self.random.choice(["Add", "Sub"]) if len(names) == 2 else "Sum"
        self.add(op, " ".join(names), shape)

    def concat(self):
        name, shape = self.pick()
        axis = self.random.randrange(3)
        others = [v for v in self.values if all(v[1][i] == shape[i] for i in range(3) if i != axis)]
        parts = [(name, shape), *(self.random.choice(others) for _ in range(self.random.randint(1, 2)))]
        self.random.shuffle(parts)
        made = list(shape)
        made[axis] = sum(part[1][axis] for part in parts)
        if prod(made) <= MOST:
            self.add("Concat", " ".join(part[0] for part in parts), made, axis=axis + 1)

    def min_max(self):
        found = self.pick(lambda shape: shape[0] % 2 == 0)
        if found is None:
            return
        name, (channels, *grid) = found
        half = (channels // 2, *grid)
        if self.random.random() < 0.5:
            parts = [self.sliced(name, 1, 0, channels // 2, 1), self.sliced(name, 1, channels // 2, channels, 1)]
        else:
            parts = [self.sliced(name, 1, k, channels, 2) for k in range(2)]
        if self.random.random() < 0.3:
            parts.reverse()
        least, most = (self.add(op, " ".join(parts), half) for op in ("Min", "Max"))
        if self.random.random() < 0.7:
            self.add("Concat", " ".join(self.random.sample([least, most], 2)), (channels, *grid), axis=1)

    # -- moves -----------------------------------------------------------------------------------------------------

    def sliced(self, name, axis, start, end, step):
        numbers = [self.constant(whole(number)) for number in (start, end, axis, step)]
        return self.add("Slice", f"{name} {' '.join(numbers)}")

    def slice(self):
        name, shape = self.pick()
        axis, step = self.random.randrange(3), self.random.choice([1, 1, 2, -1])
        start, end = sorted(self.random.sample(range(shape[axis] + 1), 2))
        taken = range(start, end, step) if step > 0 else range(end - 1, start - 1, -1)
        end = end if step > 0 else start - 1 if start else -100
        made = self.sliced(name, axis + 1, taken.start, end, step)
        self.values.append((made, (*shape[:axis], len(taken), *shape[axis + 1 :])))

    def split(self):
        name, shape = self.pick(lambda shape: max(shape) > 1)
        axis = self.random.choice([i for i in range(3) if shape[i] > 1])
        first = self.random.randint(1, shape[axis] - 1)
        parts = [first, shape[axis] - first]
        outputs = [f"s{len(self.nodes)}_{k}" for k in range(2)]
        self.nodes.append(node("Split", f"{name} {self.constant(whole(*parts))}", " ".join(outputs), axis=axis + 1))
        for output, size in zip(outputs, parts, strict=True):
            self.values.append((output, (*shape[:axis], size, *shape[axis + 1 :])))

    def gather(self):
        name, shape = self.pick()
        axis = self.random.randrange(3)
        places = [
            self.random.randrange(-shape[axis], shape[axis]) for _ in range(self.random.randint(1, shape[axis] + 1))
        ]
        if self.random.random() < 0.5:
            places = self.random.sample(range(shape[axis]), shape[axis])
        made = (*shape[:axis], len(places), *shape[axis + 1 :])
        if prod(made) <= MOST:
            self.add("Gather", f"{name} {self.constant(whole(*places))}", made, axis=axis + 1)

    def transpose(self):
        name, shape = self.pick()
        order = self.random.sample(range(3), 3)
        self.add("Transpose", name, [shape[i] for i in order], perm=[0, *(i + 1 for i in order)])

    def reshape(self):
        name, shape = self.pick()
        count = prod(shape)
        sides = [
            s for s in product(range(1, count + 1), repeat=2) if count % (s[0] * s[1]) == 0 and s[0] * s[1] <= count
        ]
        first, second = self.random.choice(sides)
        made = (first, second, count // (first * second))
        self.add("Reshape", f"{name} {self.constant(whole(-1, *made))}", made)

    def pad(self):
        name, shape = self.pick()
        mode = self.random.choice(["constant", "constant", "constant", "reflect", "edge"])
        most = [2 if mode != "reflect" else min(2, side - 1) for side in shape]
        ends = [
            [self.random.randint(0, n) if i else self.random.choice([0, 0, min(n, 1)]) for i, n in enumerate(most)]
            for _ in range(2)
        ]
        made = [side + a + b for side, a, b in zip(shape, *ends, strict=True)]
        if prod(made) > MOST:
            return
        inputs = f"{name} {self.constant(whole(0, *ends[0], 0, *ends[1]))}"
        if mode == "constant" and self.random.random() < 0.3:
            inputs += f" {self.constant(np.array(0.75, np.float32))}"
        self.add("Pad", inputs, made, mode=mode)

    # -- the end ---------------------------------------------------------------------------------------------------

    def finished(self):
        """A model that ends with a matrix for each of the last values, and their sum."""
        outputs = self.random.randint(2, 4)
        ends = []
        for name, shape in self.random.sample(self.values[-4:], min(self.random.randint(1, 2), len(self.values[-4:]))):
            flat = self.add("Flatten", name)
            ends.append(self.add("Gemm", f"{flat} {self.constant(quarters(self.random, prod(shape), outputs))}"))
        self.nodes.append(node("Sum" if len(ends) > 1 else "Identity", " ".join(ends), "y"))
        return model(self.nodes, self.constants, shape=("N", *self.shape), opset=self.opset)


STEPS = (
    *["conv"] * 6,
    *["bend"] * 6,
    *["sum"] * 3,
    *["entrywise"] * 2,
    *["min_max"] * 2,
    *["pad"] * 2,
    *["concat"] * 2,
    *["normalise"] * 2,
    *("max_pool", "average_pool", "global_pool", "slice", "split", "gather", "transpose", "reshape"),
)


def drawn(seed, steps=STEPS):
    """A model and inputs for it."""
    random = Random(seed)
    made = Drawing(random, random.choice([(2, 4, 4), (1, 5, 3), (4, 3, 3), (3, 1, 6), (6, 1, 1), (2, 6, 5)]))
    for _ in range(random.randint(3, 14)):
        getattr(made, random.choice(steps))()
    return made.finished(), quarters(random, SAMPLES, *made.shape)


# -- what several tests are about --------------------------------------------------------------------------------------

C, B, V = quarters(Random(10), 4, 2, 3, 3), quarters(Random(11), 4), quarters(Random(12), 3, 64)
TAIL = [node("Relu", "h", "r"), node("Flatten", "r", "f"), node("Gemm", "f V", "y", transB=1)]
PAD = {"pads": [1, 1, 1, 1]}
"""A convolution of an image of 2 x 4 x 4, its bias, the matrix after it."""


def network_or_refusal(made, *known):
    """The network; or None, if it is refused for one of these reasons."""
    try:
        return read(made)
    except InputError as error:
        if not any(reason in str(error) for reason in known):
            raise
        return None


def shown(network):
    """Sources, maps and activations."""
    return [
        ([(term.source, str(term.map)) for term in layer.terms], layer.activation and layer.activation.name)
        for layer in network.layers
    ]
