"""The network in plain floats: near the exact one, and its gradients are those of its values. Nothing rests on it."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from intervalcert import Network
from intervalcert.backends.registry import get_backend
from intervalcert.errors import InputError
from intervalcert.model.activations import activation
from intervalcert.model.evaluation import Evaluator
from intervalcert.model.layers import UncertainScale
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.search.float_network import FloatNetwork

PIECES = ("relu", "leaky_relu:-0.5", "leaky_relu:1/3", "hard_tanh", "identity", "clip:-1/2:inf", "clip:0.1:2")
CURVES = ("tanh", "sigmoid", "softplus", "elu:1", "elu:2.5")


def drawn(between, widths=(4, 6, 5, 3), seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    shapes = list(zip(widths[1:], widths, strict=False))
    weights = [rng.normal(size=shape) * scale for shape in shapes]
    return Network.from_arrays(weights, [rng.normal(size=rows) * scale for rows, _ in shapes], between=between)


def inputs(network, count=5, seed=1):
    return np.random.default_rng(seed).normal(size=(network.inputs, count))


def enclosed(network, x):
    """The middle of each layer's values, from 200 bits."""
    evaluator = Evaluator(network, [Fraction(2) ** 600] * len(network.layers), get_backend("arb", 200))
    ends = (value.float_bounds() for value in evaluator.before_activations(RationalMatrix.from_floats(x)))
    return [low / 2 + high / 2 for low, high in ends]


def assert_near(found, expected, within=1e-12):
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= within * max(np.abs(expected).max(), 2.0**-1000)


@pytest.mark.parametrize("between", PIECES + CURVES)
@pytest.mark.parametrize("widths", [(4, 6, 5, 3), (4, 6, 3), (4, 3)])
def test_values_are_those_of_the_network(between, widths):
    network = drawn(between, widths)
    x = inputs(network)
    found = FloatNetwork.of(network).before_activations(x)
    for some, exact in zip(found, enclosed(network, x), strict=True):
        assert_near(some, exact)
    assert (FloatNetwork.of(network).logits(x) == found[-1]).all()


def test_offsets_of_uncertain_scales_are_added():
    """Before the bias, after the activation, and of the inputs; the factors are nearly 1."""
    near = Fraction(2**60 - 1, 2**60)

    def uncertain(rows, seed):
        return UncertainScale(RationalMatrix.from_floats(np.random.default_rng(seed).normal(size=(rows, 1))), near)

    network = drawn("tanh")
    first, second, last = network.layers
    first = replace(first, before=uncertain(6, 2), after=uncertain(6, 3))
    second = replace(second, bias=None, before=uncertain(5, 4), after=UncertainScale(None, near))
    network = replace(network, layers=(first, second, last))
    rough = Network.from_arrays([[[1.0, 2.0], [3.0, 4.0]]], mean=[0.5, 1.5], std=[1.0, 3.0])
    for made in (network, rough):
        x = inputs(made)
        for some, exact in zip(FloatNetwork.of(made).before_activations(x), enclosed(made, x), strict=True):
            assert_near(some, exact)


@pytest.mark.parametrize("name", PIECES + CURVES)
def test_slopes_are_those_of_the_values(name):
    function = activation(name)
    x = np.concatenate([np.linspace(-4, 4, 37) + 0.01, [-50.0, 50.0]])[:, None]
    step = 2.0**-18
    quotients = (function.float_values(x + step) - function.float_values(x - step)) / (2 * step)
    assert_near(function.float_slopes(x), quotients, 1e-8)
    low, high = function.slopes
    assert (function.float_slopes(x) >= float(low)).all()
    assert (function.float_slopes(x) <= float(high) * (1 + 1e-15)).all()


@pytest.mark.parametrize("name", CURVES)
def test_no_value_overflows(name):
    function, x = activation(name), np.array([[-1e300], [-1e5], [0.0], [1e5], [1e300]])
    with np.errstate(all="raise", under="ignore"):
        assert np.isfinite(function.float_values(x)).all()
        assert np.isfinite(function.float_slopes(x)).all()


def test_at_a_kink_the_slope_is_that_of_the_piece_before():
    kinks = np.array([[-1.0], [0.0], [1.0]])
    assert activation("relu").float_slopes(kinks).ravel().tolist() == [0, 0, 1]
    assert activation("hard_tanh").float_slopes(kinks).ravel().tolist() == [0, 1, 1]
    assert activation("leaky_relu:0.25").float_slopes(kinks).ravel().tolist() == [0.25, 0.25, 1]


@pytest.mark.parametrize("between", PIECES + CURVES)
@pytest.mark.parametrize("widths", [(4, 6, 5, 3), (4, 6, 3), (4, 3)])
def test_gradients_are_those_of_the_values(between, widths):
    """Each input with its own direction, and one input with several."""
    network = drawn(between, widths)
    floats, x = FloatNetwork.of(network), inputs(network)
    directions = np.random.default_rng(2).normal(size=(3, 5))
    *inner, _ = floats.before_activations(x)
    found = floats.gradients(inner, directions)
    step = 2.0**-20
    for k in range(network.inputs):
        e = step * np.eye(network.inputs)[:, [k]]
        change = floats.logits(x + e) - floats.logits(x - e)
        assert_near(found[k], (directions * change).sum(axis=0) / (2 * step), 1e-6)
    alone = floats.gradients([z[:, [0]] for z in inner], directions)
    assert_near(alone[:, 0], found[:, 0])
    assert_near(alone[:, 3], floats.gradients([z[:, [0]] for z in inner], directions[:, [3]])[:, 0])


@pytest.mark.parametrize("scale", [1.0, 2.0**-200, 2.0**150])
@pytest.mark.parametrize("widths", [(4, 6, 5, 3), (4, 6, 3), (4, 3)])
def test_lengths_are_those_of_the_gradients_of_leads(widths, scale):
    network = drawn("leaky_relu:0.1", widths, scale=scale)
    floats, x = FloatNetwork.of(network), inputs(network, 1)
    *inner, _ = floats.before_activations(x)
    for winner in range(3):
        unit = np.eye(3)
        gradients = floats.gradients(inner, np.delete(unit[winner] - unit, winner, axis=0).T)
        size = np.abs(gradients).max()
        assert_near(floats.lead_gradient_lengths(inner, winner) / size, np.linalg.norm(gradients / size, axis=0))
        assert floats.leads(winner).shape == (widths[-2], 2)


def test_groups_have_no_values():
    network = Network.from_arrays([np.eye(2), np.eye(2)], between="group_sort")
    floats = FloatNetwork.of(network)
    with pytest.raises(InputError, match="group_sort"):
        floats.logits(np.ones((2, 1)))
    with pytest.raises(InputError, match="group_sort"):
        floats.gradients([np.ones((2, 1))], np.ones((2, 1)))
