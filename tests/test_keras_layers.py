"""Layers of Keras files: every class and every function, exactly as Keras computes them in inference."""

import math
from fractions import Fraction

import numpy as np
import pytest

from intervalcert import InputError, evaluate
from intervalcert.io.models import keras_kinds, keras_layers

pytest.importorskip("h5py", reason="the package h5py is not installed")

from tests.test_keras import (
    USUAL,
    check,
    check_enclosed,
    clipped,
    drawn,
    exact,
    layer,
    leaky,
    matrix,
    policy,
    reader,
    relu,
    single,
)


@pytest.fixture
def read(tmp_path):
    return reader(tmp_path)


IMAGE = (2, 4, 3)
KERNEL, BIAS = drawn(2, 3), drawn(3, seed=1)
MEANS, STDS = drawn(3, seed=2), np.array([0.5, 2, 4], dtype=np.float32)
ROWS, ROW_STDS = drawn(2, seed=3), np.array([2, 0.25], dtype=np.float32)
PAIRS, PAIR_STDS = drawn(2, 3, seed=4), np.array([[0.5, 2, 8], [1, 4, 0.125]], dtype=np.float32)
COUNT = np.array(0, dtype=np.int32)


def as_numpy(values, dtype):
    return {"class_name": "__numpy__", "config": {"value": values, "dtype": dtype}}


# -- layers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("biased", [True, False])
def test_dense_layers_multiply_with_their_kernel(read, dtype, biased):
    made = layer("Dense", units=3, use_bias=biased, dtype=policy(dtype) if biased else dtype)
    weights = [array.astype(dtype) for array in (KERNEL, BIAS)[: 1 + biased]]
    network = read([made], {"dense": weights})
    check(network, (2,), lambda x: x @ exact(KERNEL) + (exact(BIAS) if biased else 0))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_weights_are_their_binary_value(read, dtype):
    ends = np.finfo(dtype)
    kernel = np.array([[ends.max, -ends.tiny], [ends.smallest_subnormal, 0.1]], dtype=dtype)
    network = read([layer("Dense", units=2, use_bias=False, dtype=policy(dtype))], {"dense": [kernel]})
    assert matrix(network.layers[0].weights).tolist() == exact(kernel.T).tolist()


def test_a_dense_layer_of_one_row_is_one_matrix(read):
    check(
        read([layer("Dense", units=3)], {"dense": [KERNEL, BIAS]}, (1, 2)),
        (2,),
        lambda x: x @ exact(KERNEL) + exact(BIAS),
    )


def test_the_last_index_of_an_input_runs_fastest(read):
    kernel = drawn(24, 2)
    network = read([layer("Flatten"), layer("Dense", units=2, use_bias=False)], {"dense": [kernel]}, IMAGE)
    check(network, IMAGE, lambda x: x.ravel() @ exact(kernel))
    assert network.shape == IMAGE


def test_a_vector_is_flat_whatever_comes_first(read):
    check(read([layer("Flatten", data_format="channels_first")]), (2,), lambda x: x)


RESCALINGS = {
    "number": (1 / 255, 0.0, lambda x: x * single(1 / 255)),
    "with offset": (1 / 127.5, -1, lambda x: x * single(1 / 127.5) - 1),
    "channels": ([0.1, 2, -3], [0.7, 0, 1], lambda x: x * [single(0.1), 2, -3] + [single(0.7), 0, 1]),
    "rows": ([[[0.1]], [[2]]], 0, lambda x: x * np.array([[[single(0.1)]], [[2]]])),
    "everything": (drawn(*IMAGE).tolist(), 0.0, lambda x: x * exact(drawn(*IMAGE))),
    "float32 of numpy": (as_numpy([0.1, 2, 3], "float32"), 0, lambda x: x * [single(0.1), 2, 3]),
    "float64 of numpy": (as_numpy([0.1, 2, 3], "float64"), 0, lambda x: x * [single(0.1), 2, 3]),
    "float16 of numpy": (as_numpy([0.1, 2, 3], "float16"), 0, lambda x: x * [exact(np.float16(0.1)).item(), 2, 3]),
    "zero": ([1, 0, 2], 3, lambda x: x * [1, 0, 2] + 3),
}


def test_rescaling_by_one_is_nothing(read):
    network = read([layer("Rescaling", scale=1.0, offset=0.0), layer("Dense", units=3)], {"dense": [KERNEL, BIAS]})
    assert network.normalisation is None
    assert network.folded == ()


@pytest.mark.parametrize("case", RESCALINGS)
def test_rescaling_rounds_its_constants_to_float32(read, case):
    scale, offset, function = RESCALINGS[case]
    check(read([layer("Rescaling", scale=scale, offset=offset)], shape=IMAGE), IMAGE, function)


def normalized(mean, std, *axes):
    """Along the axes that are named, counted from the batch."""
    sides = tuple(n if i + 1 in axes else 1 for i, n in enumerate(IMAGE))
    return lambda x: (x - exact(mean).reshape(sides)) / exact(std).reshape(sides)


NORMALIZATIONS = {
    "channels": ([-1], MEANS, STDS, (3,)),
    "channels, from the front": (3, MEANS, STDS, (3,)),
    "rows": ([1], ROWS, ROW_STDS, (1,)),
    "rows, from the back": (-3, ROWS, ROW_STDS, (1,)),
    "both": ([1, 3], PAIRS, PAIR_STDS, (1, 3)),
    "both, in another order": ([-1, 1], PAIRS, PAIR_STDS, (1, 3)),
    "all at once": (None, np.float32(0.125), np.float32(2), ()),
    "all at once, in a list": ([], np.float32(0.125), np.float32(2), ()),
}


@pytest.mark.parametrize("written", ["configuration", "variables"])
@pytest.mark.parametrize("case", NORMALIZATIONS)
def test_normalization_knows_its_axes(read, case, written):
    """Axes are sorted before the statistics are laid along them."""
    axis, mean, std, axes = NORMALIZATIONS[case]
    if written == "configuration":
        network = read([layer("Normalization", axis=axis, mean=mean.tolist(), variance=(std**2).tolist())], shape=IMAGE)
    else:
        network = read([layer("Normalization", axis=axis)], {"normalization": [mean, std**2, COUNT]}, IMAGE)
    check(network, IMAGE, normalized(mean, std, *axes))


def test_inputs_may_have_many_sizes(read):
    shape = (1,) * 14 + (3, 2)
    network = read([layer("Normalization", axis=[15], mean=MEANS.tolist(), variance=(STDS**2).tolist())], shape=shape)
    check(network, shape, lambda x: (x - exact(MEANS)[:, None]) / exact(STDS)[:, None])


def test_one_mean_serves_all_axes(read):
    network = read([layer("Normalization", axis=[1, 3], mean=0.1, variance=4)], shape=IMAGE)
    check(network, IMAGE, lambda x: (x - single(0.1)) / 2)


@pytest.mark.parametrize("space", ["input", "normalised"])
def test_a_large_image_with_a_variance_for_each_number_is_normalized(read, space):
    """The roots are multiples of 1/8. A matrix of all pairs of inputs would be too large: there is none."""
    shape, random = (32, 32, 3), np.random.default_rng(1)
    std = random.integers(1, 24, shape).astype(np.float32) / 8
    mean, kernel = drawn(*shape), random.integers(-8, 9, (3072, 2)).astype(np.float32)
    made = [layer("Normalization", axis=[1, 2, 3]), layer("Flatten"), layer("Dense", units=2, use_bias=False)]
    weights = {"normalization": [mean, std**2, COUNT], "dense": [kernel]}
    network = read(made, weights, shape, eps_space=space)
    assert len(network.layers) == 1
    assert set(network.folded) <= {"batch normalisation", "the normalisation of its inputs"}
    x = random.integers(-8, 9, shape).astype(np.float32)
    found = evaluate(network, [x.ravel()], backend="arb", scale=1)
    for k, true in enumerate(((exact(x) - exact(mean)) / exact(std)).ravel() @ exact(kernel)):
        low, high = found.lower[-1][0, k], found.upper[-1][0, k]
        assert low <= true <= high
        assert high - low < 1e-9


def test_normalization_divides_by_no_less_than_its_epsilon(read):
    network = read([layer("Normalization", mean=[1, 2, 3], variance=[0, 1e-30, 4])], shape=IMAGE)
    check_enclosed(network, IMAGE, lambda x: (x - exact([1, 2, 3])) / np.array([single(1e-7), single(1e-7), 2]))


def test_a_variance_below_that_is_not_read_in_float64(read):
    """Backends round 1e-7 in different ways there."""
    with pytest.raises(InputError, match=r"layer 0.*\(Normalization\).*variance below.*use float32"):
        read([layer("Normalization", mean=1, variance=0, dtype=policy("float64"))])


@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("center", [True, False])
def test_batch_normalization_uses_its_moving_statistics(read, scale, center):
    """The variances with epsilon are squares, so that all is rational."""
    gamma, beta, mean, variance = drawn(3), drawn(3, seed=1), drawn(3, seed=2), STDS**2 - np.float32(0.25)
    arrays = [array for array, has in ((gamma, scale), (beta, center)) if has]
    made = layer("BatchNormalization", epsilon=0.25, scale=scale, center=center, axis=3)
    network = read([made], {"batch_normalization": [*arrays, mean, variance]}, IMAGE)
    factor, shift = exact(gamma) if scale else 1, exact(beta) if center else 0
    check(network, IMAGE, lambda x: factor * (x - exact(mean)) / exact(STDS) + shift)


@pytest.mark.parametrize("after", [None, layer("ReLU")], ids=["", "relu"])
def test_roots_are_enclosed(read, after):
    """The variances with epsilon are squares of 3/2, 5/4 and 3: 1/root is no dyadic number."""
    gamma, beta, mean, roots = drawn(3), drawn(3, seed=1), drawn(3, seed=2), np.array([1.5, 1.25, 3], dtype=np.float32)
    arrays = {"batch_normalization": [gamma, beta, mean, roots**2 - np.float32(0.125)]}
    network = read([layer("BatchNormalization", epsilon=0.125), *([after] if after else [])], arrays, (3,))
    function = relu if after else lambda x: x
    check_enclosed(network, (3,), lambda x: function(exact(gamma) * (x - exact(mean)) / exact(roots) + exact(beta)))


def test_epsilon_is_rounded_to_float32(read):
    """That makes a difference of 5e-8 of the root, which the enclosures see."""
    arrays = {"batch_normalization": [np.zeros(2, dtype=np.float32)] * 2}
    network = read([layer("BatchNormalization", center=False, scale=False, epsilon=0.1)], arrays)
    x = (
        Fraction(math.isqrt(single(0.1).numerator * single(0.1).denominator * 4**200))
        / single(0.1).denominator
        / 2**200
    )
    found = evaluate(network, [[x, -x]], backend="arb")
    assert abs(found.lower[-1] - [[1, -1]]).max() < 1e-14


@pytest.mark.parametrize("kind", [kind for kind, rules in keras_kinds.KINDS.items() if kind in USUAL and rules.beside])
def test_what_only_training_does_is_left_out(read, kind):
    check(read([layer(kind)]), (2,), lambda x: x)


@pytest.mark.parametrize("kind", ["Identity", "ActivityRegularization"])
def test_layers_that_do_nothing_do_nothing(read, kind):
    check(read([layer(kind)]), (2,), lambda x: x)


def test_shapes_count_where_numbers_are_broadcast(read):
    layers = [layer("Reshape", target_shape=[4, -1, 2]), layer("Rescaling", scale=[2, 3])]
    check(read(layers, shape=IMAGE), IMAGE, lambda x: x.reshape(-1, 2) * [2, 3])
    layers = [layer("Flatten"), layer("Reshape", target_shape=[8, 3]), layer("Rescaling", scale=[2, 3, 5])]
    check(read(layers, shape=IMAGE), IMAGE, lambda x: x.reshape(-1, 3) * [2, 3, 5])


def test_every_class_that_is_listed_is_read():
    assert set(keras_kinds.KINDS) == {"InputLayer", *keras_layers._ACTS}


# -- functions -------------------------------------------------------------------------------------------------------

NAMED = {
    "linear": lambda x: x,
    None: lambda x: x,
    "relu": relu,
    "relu6": clipped(0, 6),
    "hard_tanh": clipped(-1, 1),
    "leaky_relu": leaky(single(0.2)),
}
LAYERS = {
    "relu": (layer("ReLU"), relu),
    "whole numbers": (layer("ReLU", negative_slope=0, threshold=0), relu),
    "slope": (layer("ReLU", negative_slope=0.1), leaky(single(0.1))),
    "top": (layer("ReLU", max_value=1.1), clipped(0, single(1.1))),
    "top 6": (layer("ReLU", max_value=6), clipped(0, 6)),
    "top 0": (layer("ReLU", max_value=0.0), clipped(0, 0)),
    "leaky": (layer("LeakyReLU", negative_slope=0.3), leaky(single(0.3))),
    "leaky 0": (layer("LeakyReLU", negative_slope=0.0), relu),
    "leaky 1": (layer("LeakyReLU", negative_slope=1), lambda x: x),
    "leaky in float64": (layer("LeakyReLU", negative_slope=0.25, dtype="float64"), leaky(Fraction(1, 4))),
}


@pytest.mark.parametrize("place", ["dense", "layer"])
@pytest.mark.parametrize("name", NAMED)
def test_functions_have_their_names(read, name, place):
    function = NAMED[name]
    if place == "dense":
        network = read([layer("Dense", units=3, activation=name)], {"dense": [KERNEL, BIAS]})
        check(network, (2,), lambda x: function(x @ exact(KERNEL) + exact(BIAS)))
    else:
        check(read([layer("Activation", activation=name)]), (2,), function)


@pytest.mark.parametrize("place", ["layer", "of a dense layer", "of an activation layer"])
@pytest.mark.parametrize("case", LAYERS)
def test_layers_of_functions(read, case, place):
    made, function = LAYERS[case]
    made["config"]["name"] = "mine"
    if place == "of a dense layer":
        network = read([layer("Dense", units=3, activation=made)], {"dense": [KERNEL, BIAS], "dense/activation": []})
        check(network, (2,), lambda x: function(x @ exact(KERNEL) + exact(BIAS)))
    else:
        check(read([made if place == "layer" else layer("Activation", activation=made)]), (2,), function)


CURVES = {
    "tanh": (layer("Activation", activation="tanh"), "tanh", math.tanh),
    "sigmoid": (layer("Activation", activation="sigmoid"), "sigmoid", lambda x: 1 / (1 + math.exp(-x))),
    "softplus": (layer("Activation", activation="softplus"), "softplus", lambda x: math.log1p(math.exp(x))),
    "elu": (layer("Activation", activation="elu"), "elu:1", lambda x: max(x, 0) + math.expm1(min(x, 0))),
    "elu layer": (layer("ELU", alpha=1.0), "elu:1", lambda x: max(x, 0) + math.expm1(min(x, 0))),
    "elu layer of early versions": (layer("ELU"), "elu:1", lambda x: max(x, 0) + math.expm1(min(x, 0))),
    "elu layer with alpha": (
        layer("ELU", alpha=0.3),
        f"elu:{single(0.3)}",
        lambda x: max(x, 0) + float(single(0.3)) * math.expm1(min(x, 0)),
    ),
}


@pytest.mark.parametrize("case", CURVES)
def test_curves(read, case):
    made, name, function = CURVES[case]
    network = read([made])
    assert network.activations == (name, None)
    points = np.array([[-3.0, 0.5], [0.0, 2.25], [-0.125, 7.0]])
    found = evaluate(network, points, backend="arb")
    expected = np.vectorize(function)(points)
    assert (found.upper[-1] - found.lower[-1] < 1e-14).all()
    assert (abs(expected - found.lower[-1]) < 1e-14).all()


SOFTMAXES = {
    "activation": [layer("Dense", units=3, activation="softmax")],
    "layer": [layer("Dense", units=3), layer("Softmax")],
    "layer from the front": [layer("Dense", units=3), layer("Softmax", axis=1)],
    "activation layer": [layer("Dense", units=3), layer("Activation", activation="softmax")],
    "layer as activation": [layer("Dense", units=3, activation=layer("Softmax", name="mine"))],
}


@pytest.mark.parametrize("case", SOFTMAXES)
def test_a_softmax_at_the_end_is_left_out_if_that_is_said(read, case):
    weights = {"dense": [KERNEL, BIAS]}
    check(read(SOFTMAXES[case], weights, strip_softmax=True), (2,), lambda x: x @ exact(KERNEL) + exact(BIAS))
    with pytest.raises(InputError, match=r"is a softmax at the end.*say --strip-softmax"):
        read(SOFTMAXES[case], weights)


def test_a_softmax_that_is_not_there_cannot_be_left_out(read):
    with pytest.raises(InputError, match="leave --strip-softmax out"):
        read([layer("Dense", units=3)], {"dense": [KERNEL, BIAS]}, strip_softmax=True)
