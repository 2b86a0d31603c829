"""Activations as types: each says what is known of it, and what is not. A new one is a class, and nothing else."""

from dataclasses import FrozenInstanceError, replace
from fractions import Fraction

import numpy as np
import pytest

from intervalcert import Network, certify_inputs, compute_bounds, evaluate
from intervalcert.errors import InputError
from intervalcert.model.activations import (
    ACTIVATIONS,
    IDENTITY,
    PARAMETRISED,
    Activation,
    Clip,
    PiecewiseLinear,
    activation,
    activation_of,
)
from intervalcert.numbers.float_formats import get_format
from intervalcert.numbers.matrices import RationalMatrix

NAMES = (*ACTIVATIONS, "leaky_relu:0.01", "leaky_relu:-3", "elu:2", "clip:0:6", "clip:-inf:1/3", "clip:-1:inf")
PIECES = ("relu", "hard_tanh", "identity", "leaky_relu:1/4", "clip:0:6", "clip:-inf:1", "clip:-1/2:inf")
ZERO, ONE = Fraction(0), Fraction(1)


@pytest.mark.parametrize("name", NAMES)
def test_a_name_makes_what_has_that_name(name):
    made = activation(name)
    assert isinstance(made, Activation)
    assert (made.name, made.parts) == (name, tuple(name.split(":")))
    assert activation(made.name) == made
    assert hash(activation(made.name)) == hash(made)
    with pytest.raises(FrozenInstanceError):
        made.name = "relu"


@pytest.mark.parametrize(
    ("name", "shape", "made"),
    [
        ("min_max:halves", (6,), "group_sort:2:3"),
        ("MinMax:halves:descending", (4, 2, 3), "group_sort:2:12:descending"),
        ("min_max:neighbours", (6, 5), "group_sort:2:5"),
        ("group_sort:3:neighbours", (6, 2, 2), "group_sort:3:4"),
        ("relu", (5,), "relu"),
        ("group_sort:2:1", (5,), "group_sort:2:1"),
    ],
)
def test_names_that_group_channels(name, shape, made):
    assert activation_of(name, shape) == activation(made)


@pytest.mark.parametrize(
    "name", ["min_max:halves", "group_sort:2:neighbours", "group_sort:0:neighbours", "relu:halves"]
)
def test_channels_that_are_no_such_groups_are_refused(name):
    with pytest.raises(InputError):
        activation_of(name, (5,))


def test_groups_of_channels_between_matrices():
    """The name is resolved at each layer, and what is sorted is what the name says."""
    weights = [np.eye(4), np.eye(4), np.eye(4)[:2]]
    network = Network.from_arrays(weights, between="min_max:halves")
    assert network.activations == ("group_sort:2:2", "group_sort:2:2", None)
    found = evaluate(network, np.array([[0.75, -0.5, -0.25, 0.5]]), scale=1, backend="exact")
    assert found.lower[-1].tolist() == found.upper[-1].tolist() == [[-0.25, -0.5]]
    mixed = Network.from_arrays(weights, between=["min_max:neighbours", "relu"])
    found = evaluate(mixed, np.array([[0.75, -0.5, -0.25, 0.5]]), scale=1, backend="exact")
    assert found.lower[-1].tolist() == found.upper[-1].tolist() == [[0.0, 0.75]]


def test_names_that_differ_are_different_activations():
    """Also where the functions do not: the name is what a network is identified by."""
    assert activation("leaky_relu:0.5") != activation("leaky_relu:1/2")
    assert activation("clip:0:inf") != activation("relu")
    assert activation("clip:-1:1") != activation("hard_tanh")
    assert activation("identity") == IDENTITY != activation("clip:-inf:inf")


@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_known_is_said(name):
    made, form = activation(name), get_format("float32")
    sorts, curved = name in {"group_sort", "min_max"}, name in {"tanh", "sigmoid", "softplus", "elu:2"}
    assert (made.slopes is None) == sorts
    assert (made.not_evaluable is not None) == sorts
    assert (made.piecewise_linear is None) == (sorts or curved)
    if sorts or curved:
        with pytest.raises(InputError, match=r"layer 7: how .* is rounded in float32 is not known"):
            made.in_format(form, "layer 7")
        for ask in (lambda: made.float_error(form), lambda: made.size_upper(np.zeros(1), np.zeros(1))):
            with pytest.raises(ValueError, match=name):
                ask()


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "float64"])
def test_parameters_become_those_of_the_format(name):
    form = get_format(name)
    for kept in PIECES:
        assert activation(kept).in_format(form, "layer 0") == activation(kept)
    made = activation("leaky_relu:1/3").in_format(form, "layer 0")
    assert made.slope == form.rounded(RationalMatrix.from_fractions([[Fraction(1, 3)]]), "x")[0, 0]
    with pytest.raises(InputError, match=r"layer 2: an end of 'clip:0:1/3' is not a number of"):
        activation("clip:0:1/3").in_format(form, "layer 2")
    with pytest.raises(InputError, match=r"the slope of layer 2: .* is beyond"):
        activation("leaky_relu:1*2^5000").in_format(form, "layer 2")
    with pytest.raises(InputError, match=r"the end of layer 2's clip: .* is beyond"):
        activation("clip:-inf:1*2^5000").in_format(form, "layer 2")


def test_kinds_with_parameters_say_which():
    assert activation("group_sort").not_evaluable  # the only one that may stand without
    for kind, made in PARAMETRISED.items():
        if kind == "group_sort":
            continue
        with pytest.raises(InputError, match="depends on") as caught:
            activation(kind)
        assert made.depends_on in str(caught.value)


@pytest.mark.parametrize(
    ("hinges", "slopes"),
    [
        ((), (2, 2)),
        (((-3, 0),), (-1, 2)),
        (((5, 1), (-9, -1)), (-7, 2)),  # in the order of the kinks: 2, -7, -2
        (((1, 4), (1, 3), (1, 2)), (2, 5)),
    ],
)
def test_slopes_are_those_of_the_pieces(hinges, slopes):
    pieces = tuple((Fraction(weight), Fraction(kink)) for weight, kink in hinges)
    made = PiecewiseLinear("drawn", ZERO, Fraction(2), pieces)
    assert made.slopes == slopes
    assert made.lipschitz == max(map(abs, slopes))


class Absolute(PiecewiseLinear):
    """|x|: -x + 2·max(x, 0)."""


def test_a_new_activation_is_one_class():
    """Bounds, enclosures and the local refinement need no more; in floats of a program it is refused."""
    function = Absolute("absolute", ZERO, -ONE, ((Fraction(2), ZERO),))
    assert (function.slopes, function.lipschitz) == ((-1, 1), 1)
    rng = np.random.default_rng(0)
    weights = [rng.normal(size=shape) for shape in ((5, 3), (4, 5), (3, 4))]
    plain = Network.from_arrays(weights)
    layers = tuple(layer if layer.activation is None else replace(layer, activation=function) for layer in plain.layers)
    network = replace(plain, layers=layers)
    x = rng.normal(size=(6, 3))
    exact = x.T
    for w in weights[:-1]:
        exact = np.abs(w @ exact)
    logits = (weights[-1] @ exact).T
    for backend in ("float64", "arb", "exact"):
        found = evaluate(network, x, backend=backend)
        assert (found.lower[-1] <= logits + 1e-9).all()
        assert (found.upper[-1] >= logits - 1e-9).all()
        assert (found.upper[-1] - found.lower[-1]).max() < 1e-9
    assert compute_bounds(network, "exact").margins.matrix[0][1] > 0
    verdicts = certify_inputs(network, x, "0.01", local=True)
    assert (verdicts.argmax == logits.argmax(axis=1)).all()
    assert verdicts.certified.any()
    with pytest.raises(InputError, match="how 'absolute' is rounded"):
        certify_inputs(network, x, "0.01", deployed="float32")


def test_relu_and_its_kin_are_clips():
    for name, ends in (("relu", [0]), ("hard_tanh", [-1, 1]), ("identity", [])):
        made = activation(name)
        assert isinstance(made, Clip)
        assert [kink for _, kink in made.hinges] == ends
