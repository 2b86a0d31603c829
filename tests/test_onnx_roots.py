"""Batch normalisation in the branches of an ONNX graph: its roots are enclosed, and belong to one branch."""

from fractions import Fraction
from random import Random

import mpmath
import numpy as np
import pytest

from intervalcert.backends.registry import get_backend
from intervalcert.model.evaluation import Evaluator
from intervalcert.numbers.matrices import RationalMatrix
from tests.onnx_graphs import PAD, TAIL, B, C, V, columns, quarters, shown
from tests.onnx_models import model, node, read, whole

# -- roots -------------------------------------------------------------------------------------------------------------

ROOTS = {name: quarters(Random(50 + k), 4) for k, name in enumerate("gbm")} | {"v": np.array([1, 2, 3, 5], np.float32)}
NORM = "g b m v"
ROOTED = {
    "before an activation": [node("Conv", "x C", "c", **PAD), node("BatchNormalization", f"c {NORM}", "h")],
    "after an activation": [
        node("Conv", "x C", "c", **PAD),
        node("Relu", "c", "d"),
        node("BatchNormalization", f"d {NORM}", "e"),
        node("Conv", "e K B", "h", **PAD),
    ],
    "after an activation that is taken twice": [
        node("Conv", "x C", "c", **PAD),
        node("Relu", "c", "d"),
        node("BatchNormalization", f"d {NORM}", "e"),
        node("Conv", "e K", "i", **PAD),
        node("Add", "i d", "h"),
    ],
    "in one branch": [
        node("Conv", "x C", "c", **PAD),
        node("Conv", "x C B", "d", **PAD),
        node("BatchNormalization", f"c {NORM}", "e"),
        node("Add", "d e", "h"),
    ],
    "in both branches": [
        node("Conv", "x C", "c", **PAD),
        node("Relu", "c", "d"),
        node("BatchNormalization", f"c {NORM}", "e"),
        node("BatchNormalization", f"d {NORM}", "k"),
        node("Add", "k e", "h"),
    ],
    "of a sum": [
        node("Conv", "x C", "c", **PAD),
        node("Relu", "c", "d"),
        node("Add", "c d", "e"),
        node("BatchNormalization", f"e {NORM}", "h"),
    ],
    "in a part of a concatenation": [
        node("Conv", "x C B", "c", **PAD),
        node("BatchNormalization", f"c {NORM}", "d"),
        node("Concat", "d c", "e", axis=1),
        node("Conv", "e L", "h", **PAD),
    ],
    "twice": [
        node("Conv", "x C B", "c", **PAD),
        node("BatchNormalization", f"c {NORM}", "d"),
        node("BatchNormalization", f"d {NORM}", "h"),
    ],
    "before padding with numbers": [
        node("Conv", "x C", "c", **PAD),
        node("BatchNormalization", f"c {NORM}", "d"),
        node("Pad", "d around three", "e"),
        node("Conv", "e K", "h"),
    ],
}


class Precise:
    """These operators on numbers of 400 bits."""

    def __init__(self, constants):
        self.values = {name: np.vectorize(mpmath.mpf, otypes=[object])(array) for name, array in constants.items()}

    def run(self, nodes, x):
        self.values["x"] = x
        for part in nodes:
            inputs = [self.values.get(name) for name in part.input]
            pads = next((list(each.ints) for each in part.attribute if each.name == "pads"), [0] * 4)
            made = getattr(self, part.op_type.lower())
            self.values[part.output[0]] = made(*inputs, pads) if part.op_type == "Conv" else made(*inputs)
        return self.values["y"]

    def conv(self, x, kernel, *more):
        bias, pads = more if len(more) == 2 else (np.zeros(len(kernel)), more[0])
        wide = np.pad(x, [(0, 0), *zip(pads[:2], pads[2:], strict=True)])
        sides = [wide.shape[i] - kernel.shape[i + 1] + 1 for i in (1, 2)]
        made = np.empty((len(kernel), *sides), dtype=object)
        for o, i, j in np.ndindex(made.shape):
            seen = wide[:, i : i + kernel.shape[2], j : j + kernel.shape[3]]
            made[o, i, j] = (kernel[o] * seen).sum() + bias[o]
        return made

    def batchnormalization(self, x, gamma, beta, mean, variance):
        epsilon = mpmath.mpf(float(np.float32(1e-5)))
        shaped = [each.reshape(-1, 1, 1) for each in (gamma, beta, mean)]
        roots = np.array([mpmath.sqrt(each + epsilon) for each in variance], dtype=object).reshape(-1, 1, 1)
        return shaped[0] * (x - shaped[2]) / roots + shaped[1]

    def relu(self, x):
        return np.maximum(x, 0)

    def add(self, x, y):
        return x + y

    def concat(self, *parts):
        return np.concatenate(parts)

    def pad(self, x, around, value):
        return np.pad(x, [(0, 0), (1, 1), (1, 1)], constant_values=value[()])

    def flatten(self, x):
        return x.ravel()

    def gemm(self, x, weights):
        return weights.dot(x)


@pytest.mark.parametrize("case", ROOTED)
def test_roots_are_enclosed_within_their_last_bits(case):
    """Whatever the branches do, their factors are those of one branch, and of no other."""
    nodes = [*ROOTED[case], *TAIL]
    constants = {"C": C, "B": B, "V": V, "K": quarters(Random(55), 4, 4, 3, 3), "L": quarters(Random(56), 4, 8, 3, 3)}
    constants |= ROOTS | {"around": whole(0, 0, 1, 1, 0, 0, 1, 1), "three": np.array(0.75, np.float32)}
    network = read(model(nodes, constants, shape=("N", 2, 4, 4)))
    assert not network.is_exact
    x, backend = quarters(Random(57), 1, 2, 4, 4), get_backend("arb", 200)
    evaluator = Evaluator(network, [Fraction(2**10)] * len(network.branches), backend)
    found = evaluator.before_activations(RationalMatrix.from_floats(columns(x)))[-1]
    with mpmath.workprec(400):
        exact = Precise(constants).run(nodes, np.vectorize(mpmath.mpf, otypes=[object])(x[0]))
        truth = [[Fraction(int(mpmath.floor(value * 2**350)), 2**350)] for value in exact]
    low, high = (found - backend.matrix(RationalMatrix.from_fractions(truth))).ldexp(90).float_bounds()
    assert (low <= 2.0**-200).all()
    assert (high >= -(2.0**-200)).all()
    assert (high - low < 1).all()


def test_factors_of_one_branch_are_not_those_of_another():
    network = read(model([*ROOTED["in one branch"], *TAIL], {"C": C, "B": B, "V": V} | ROOTS, shape=("N", 2, 4, 4)))
    assert [layer.before is not None for layer in network.layers] == [True, False, False]
    assert shown(network)[:2] == [
        ([(-1, "convolution 3x3")], "identity"),
        ([(-1, "convolution 3x3"), (0, "identity")], "relu"),
    ]
