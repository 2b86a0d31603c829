"""Keras files of images and of graphs, against numpy in float64 and against what Keras itself computed."""

import contextlib
import copy
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from intervalcert import InputError, evaluate, load_model

pytest.importorskip("h5py", reason="the package h5py is not installed")

from tests.keras_graphs import (
    FUNCTIONS,
    IMAGES,
    Model,
    convolved,
    depthwise,
    in_first,
    largest,
    layer,
    mean,
    random_model,
    same,
    settings,
)
from tests.test_keras import archived, drawn, reader, stored, tensor
from tests.test_keras_refused import changed_anywhere

FIXTURES = Path(__file__).parent / "fixtures"
ROUNDING = 1e-12


@pytest.fixture
def read(tmp_path):
    return reader(tmp_path)


def is_enclosed(network, x, y):
    """Whether the enclosure of what the network gives for x is small and holds y, up to the rounding of y."""
    found = evaluate(network, [np.ravel(x).tolist()], backend="arb")
    low, high = found.lower[-1][0], found.upper[-1][0]
    y = np.ravel(y)
    room = ROUNDING * max(abs(y).max(), 1)
    assert len(low) == len(y)
    assert (high - low <= room).all()
    return bool(((low <= y + room) & (y - room <= high)).all())


def image(*shape, seed=11):
    return drawn(*shape, seed=seed).astype(float)


# -- convolutions ------------------------------------------------------------------------------------------------------

SIZES = list(settings((3, 4, 5, 6), (1, 2, 3, 4), (1, 2, 3)))


@pytest.mark.parametrize("padding", ["valid", "same"])
def test_convolutions_of_all_sizes_and_strides(read, padding):
    seen = 0
    for grid, size, strides, chosen in SIZES:
        if chosen != padding:
            continue
        config = {"filters": 2, "kernel_size": size, "strides": strides, "padding": padding}
        kernel, bias, x = drawn(*size, 2, 2), drawn(2, seed=1), image(*grid, 2)
        network = read([layer("Conv2D", **config)], {"conv2d": [kernel, bias]}, (*grid, 2))
        assert is_enclosed(network, x, convolved(x, config, kernel, bias))
        if any(len(set(same(n, k, s))) > 1 for n, k, s in zip(grid, size, strides, strict=True)) and padding == "same":
            assert not is_enclosed(network, x, convolved(x, config, kernel, bias, at_end=False))
            seen += 1
    assert seen > 20 or padding == "valid"


@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize("order", ["channels_last", "channels_first"])
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("activation", FUNCTIONS)
def test_convolutions_have_groups_dilations_and_orders(read, padding, order, groups, activation):
    config = {"kernel_size": [2, 3], "padding": padding, "dilation_rate": [3, 2], "groups": groups, "filters": 8}
    kernel, bias, x = drawn(2, 3, 4 // groups, 8), drawn(8, seed=1), image(5, 6, 4)
    true = lambda x: FUNCTIONS[activation](convolved(x, {**IMAGES["Conv2D"], **config}, kernel, bias))  # noqa: E731
    if order == "channels_first":
        true, x = in_first(true), image(4, 5, 6)
    made = layer("Conv2D", **config, activation=activation, data_format=order)
    assert is_enclosed(read([made], {"conv2d": [kernel, bias]}, x.shape), x, true(x))
    plain = layer("Conv2D", **config, use_bias=False, data_format=order)
    if activation == "linear":
        assert not is_enclosed(read([plain], {"conv2d": [kernel]}, x.shape), x, true(x))


@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("strides", [[1, 1], [2, 2]])
def test_depthwise_convolutions_have_kernels_for_each_channel(read, padding, times, biased, strides):
    config = {"kernel_size": [3, 2], "padding": padding, "depth_multiplier": times, "strides": strides}
    weights, x = [drawn(3, 2, 3, times), drawn(3 * times, seed=1)][: 1 + biased], image(5, 4, 3)
    network = read([layer("DepthwiseConv2D", **config, use_bias=biased)], {"depthwise_conv2d": weights}, (5, 4, 3))
    assert is_enclosed(network, x, depthwise(x, config, *weights))


def test_an_image_is_moved_once(read):
    """What convolutions give is moved to the order of Keras and back: nothing of that is left between them."""
    parts = [layer("Conv2D", filters=2, kernel_size=[3, 3], padding="same", activation="relu") for _ in range(3)]
    weights = {f"conv2d_{i}" if i else "conv2d": [drawn(3, 3, 2, 2, seed=i), drawn(2)] for i in range(3)}
    parts += [layer("Flatten"), layer("Dense", units=3, use_bias=False)]
    network = read(parts, weights | {"dense": [drawn(32, 3)]}, (4, 4, 2))
    assert len(network.layers) == 5
    assert network.shape == (4, 4, 2)


# -- pools and padding -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["channels_last", "channels_first"])
def test_pools_of_all_sizes_and_strides(read, order):
    """Means are read where padding is the same at both ends: there it does not count."""
    refused = told = 0
    for grid, size, strides, padding in SIZES:
        config, turned = {"pool_size": size, "strides": strides, "padding": padding}, order == "channels_first"
        shape = (2, *grid) if turned else (*grid, 2)
        x, uneven = image(*shape), any(len(set(same(*each))) > 1 for each in zip(grid, size, strides, strict=True))
        placed = in_first if turned else lambda function: function
        network = read([layer("MaxPooling2D", **config, data_format=order)], shape=shape)
        assert is_enclosed(network, x, placed(partial(largest, config=config))(x))
        made = layer("AveragePooling2D", **config, data_format=order)
        if padding == "same" and uneven:
            refused += 1
            with pytest.raises(InputError, match=r"\(AveragePooling2D\): .*the backends of Keras compute different me"):
                read([made], shape=shape)
            continue
        network = read([made], shape=shape)
        assert is_enclosed(network, x, placed(partial(mean, config=config))(x))
        if padding == "same" and any(sum(same(*each)) for each in zip(grid, size, strides, strict=True)):
            told += 1
            assert not is_enclosed(network, x, placed(partial(mean, config=config, counts_padding=True))(x))
    assert refused > 20
    assert told > 1


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("order", ["channels_last", "channels_first"])
@pytest.mark.parametrize("kind", ["GlobalAveragePooling2D", "GlobalMaxPooling2D"])
def test_pools_over_everything(read, keeps, order, kind):
    x, axes = image(4, 3, 2), (0, 1) if order == "channels_last" else (1, 2)
    made = [
        layer(kind, keepdims=keeps, data_format=order),
        layer("Rescaling", scale=[2.0, 3, 5, 7][: 2 if keeps else 4]),
    ]
    if keeps and order == "channels_first":
        made[1]["config"]["scale"] = [[[1.0]], [[2]], [[3]], [[4]]]
    elif order == "channels_last":
        made[1]["config"]["scale"] = [2.0, 3]
    y = (x.mean if "Average" in kind else x.max)(axis=axes, keepdims=keeps)
    assert is_enclosed(read(made, shape=(4, 3, 2)), x, y * np.array(made[1]["config"]["scale"]))


@pytest.mark.parametrize("order", ["channels_last", "channels_first"])
@pytest.mark.parametrize("around", [[[0, 0], [0, 0]], [[1, 0], [0, 2]], [[2, 1], [3, 0]]])
def test_zeros_around_an_image(read, order, around):
    x = image(3, 2, 2)
    pads = [*around, [0, 0]] if order == "channels_last" else [[0, 0], *around]
    made = [layer("ZeroPadding2D", padding=around, data_format=order), layer("Rescaling", scale=1.0, offset=0.5)]
    assert is_enclosed(read(made, shape=(3, 2, 2)), x, np.pad(x, pads) + 0.5)


# -- shapes and orders -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["channels_last", "channels_first"])
def test_flatten_has_the_channels_last(read, order):
    x, kernel = image(2, 3, 4), drawn(24, 2)
    made = [layer("Flatten", data_format=order), layer("Dense", units=2, use_bias=False)]
    flat = x.ravel() if order == "channels_last" else np.moveaxis(x, 0, -1).ravel()
    assert is_enclosed(read(made, {"dense": [kernel]}, x.shape), x, flat @ kernel)


@pytest.mark.parametrize("dims", [[1, 2, 3], [3, 1, 2], [2, 3, 1], [3, 2, 1]])
def test_permute_counts_from_the_batch(read, dims):
    x = image(2, 3, 4)
    true = x.transpose([axis - 1 for axis in dims])
    made = [layer("Permute", dims=dims), layer("Rescaling", scale=drawn(*true.shape).tolist())]
    assert is_enclosed(read(made, shape=x.shape), x, true * drawn(*true.shape))


@pytest.mark.parametrize("axis", [1, 2, 3, -1, -2, -3])
@pytest.mark.parametrize("after", [None, "relu"])
def test_batch_normalization_along_every_axis(read, axis, after):
    x = image(2, 3, 4)
    side = x.shape[axis - 1 if axis > 0 else axis]
    arrays = [drawn(side, seed=i) for i in range(3)] + [np.float32([1.5, 0.25, 3, 0.5][:side])]
    sides = [side if i == (axis - 1 if axis > 0 else axis + 3) else 1 for i in range(3)]
    gamma, beta, means, variance = (array.astype(float).reshape(sides) for array in arrays)
    made = [layer("BatchNormalization", axis=axis, epsilon=0.125)]
    true = gamma * (x - means) / np.sqrt(variance + 0.125) + beta
    if after:
        made, true = [*made, layer("Activation", activation=after)], np.maximum(true, 0)
    assert is_enclosed(read(made, {"batch_normalization": arrays}, x.shape), x, true)


# -- graphs ------------------------------------------------------------------------------------------------------------


def loaded(folder, model, last, **hints):
    return load_model(archived(folder / "m.keras", model.document(last), model.stored()), **hints)


@pytest.mark.parametrize("seed", range(40))
def test_random_graphs(tmp_path, seed):
    model, last = random_model(seed)
    assert is_enclosed(loaded(tmp_path, model, last), model.values["input"], model.values[last])


def branched():
    """Two convolutions of the same shape beside each other, and their difference, doubled."""
    model = Model((3, 4, 2), image(3, 4, 2))
    a, b = (
        model.conv("input", 2, (3, 3), "relu", 1, padding="same"),
        model.conv("input", 2, (3, 3), "relu", 5, padding="same"),
    )
    c = model.add("Subtract", [a, b], model.values[a] - model.values[b])
    return model, model.add("Add", [c, c], 2 * model.values[c])


def test_branches_and_values_that_are_taken_twice(tmp_path):
    model, last = branched()
    network = loaded(tmp_path, model, last)
    assert is_enclosed(network, model.values["input"], model.values[last])
    assert not is_enclosed(network, model.values["input"], -model.values[last])


def test_the_order_of_layers_is_that_of_keras_or_refused(tmp_path):
    """Weights are stored by class and number: those of two layers at one depth must not be exchanged."""
    model, last = branched()
    model.layers[:2], model.sources[:2] = model.layers[1::-1], model.sources[1::-1]
    with pytest.raises(InputError, match="not listed in the order in which Keras lists them"):
        loaded(tmp_path, model, last)


@pytest.mark.parametrize("axis", [1, 2, 3, -1, -3])
def test_arrays_are_put_together_along_an_axis(tmp_path, axis):
    model = Model((2, 3, 2), image(2, 3, 2))
    a, b = model.conv("input", 2, (1, 1), "relu", 1), model.conv("input", 2, (1, 1), "linear", 5)
    y = np.concatenate([model.values[a], model.values[b], model.values[a]], axis=axis - 1 if axis > 0 else axis)
    at = model.add("Concatenate", [a, b, a], y, axis=axis)
    last = model.add("Flatten", at, y.ravel())
    last = model.dense(last, 3, 7)
    assert is_enclosed(loaded(tmp_path, model, last), model.values["input"], model.values[last])


def test_a_residual_network_is_as_short_as_it_can_be(tmp_path):
    """One layer that moves the input, one for each convolution with its sum, one for the end."""
    model = Model((4, 4, 2), image(4, 4, 2))
    at = model.conv("input", 2, (3, 3), "relu", 1, padding="same")
    for seed in (3, 7):
        inner = model.conv(at, 2, (3, 3), "relu", seed, padding="same")
        inner = model.conv(inner, 2, (3, 3), "linear", seed + 2, padding="same")
        total = model.add("Add", [at, inner], model.values[at] + model.values[inner])
        at = model.add("Activation", total, np.maximum(model.values[total], 0), activation="relu")
    last = model.dense(model.add("GlobalAveragePooling2D", at, model.values[at].mean(axis=(0, 1))), 3)
    network = loaded(tmp_path, model, last)
    assert is_enclosed(network, model.values["input"], model.values[last])
    assert len(network.layers) == 8


def test_a_softmax_in_a_branch_is_refused(tmp_path):
    model = Model((2,), image(2))
    a, b = model.dense("input", 3, 1), model.dense("input", 3, 2)
    soft, b = model.add("Softmax", a, None), model.add("ReLU", b, None)
    with pytest.raises(InputError, match=r"\(Softmax\) is a softmax before the layer 'Add 4' \(Add\)"):
        loaded(tmp_path, model, model.add("Add", [soft, b], None), strip_softmax=True)


# -- fixtures ----------------------------------------------------------------------------------------------------------


def test_the_fixtures_are_graphs_with_images():
    for name, shape in {"cnn": (8, 7, 2), "residual": (8, 8, 2), "branches": (2, 6, 5)}.items():
        network = load_model(FIXTURES / f"{name}.keras")
        assert network.shape == shape
        assert network.layers[-1].shape[0] == 3


# -- refused -----------------------------------------------------------------------------------------------------------

CONV = {"filters": 2, "kernel_size": [2, 2]}
REFUSED = {
    "filters that are none": (layer("Conv2D", **{**CONV, "filters": 0}), "0 filters for 2 channels in 1 groups"),
    "filters of a float": (layer("Conv2D", **{**CONV, "filters": 2.0}), "filters is 2.0, where a whole number"),
    "groups that do not fit": (layer("Conv2D", **CONV, groups=3), "2 filters for 2 channels in 3 groups"),
    "groups of nothing": (layer("Conv2D", **CONV, groups=0), "in 0 groups"),
    "a kernel of one side": (layer("Conv2D", filters=2, kernel_size=[2]), r"kernel_size is \[2\], where two numbers"),
    "a kernel of a number": (layer("Conv2D", filters=2, kernel_size=2), "kernel_size is 2, where a list"),
    "an empty kernel": (layer("Conv2D", filters=2, kernel_size=[0, 2]), r"kernel_size is \[0, 2\]"),
    "another kernel": (layer("Conv2D", filters=2, kernel_size=[3, 2]), r"its kernel .* has the shape \[2, 2, 2, 2\]"),
    "no steps": (layer("Conv2D", **CONV, strides=[0, 1]), r"strides is \[0, 1\]"),
    "strides and dilations": (layer("Conv2D", **CONV, strides=[2, 1], dilation_rate=[1, 2]), "one of them at a time"),
    "other padding": (layer("Conv2D", **CONV, padding="causal"), "padding is 'causal': valid and same are read"),
    "padding that is no word": (layer("Conv2D", **CONV, padding=["same"]), r"padding is \['same'\]"),
    "another order": (layer("Conv2D", **CONV, data_format="first"), "data_format is 'first': channels_last and"),
    "a wide window": (layer("Conv2D", **CONV, dilation_rate=[9, 1]), "is larger than"),
    "a huge dilation": (layer("Conv2D", **CONV, dilation_rate=[2**40, 1], padding="same"), "too large"),
    "lora": (layer("Conv2D", **CONV, lora_rank=2), "has lora_rank: 2"),
    "an unknown key": (layer("Conv2D", **CONV, mystery=2), "has 'mystery': 2"),
    "an activation": (layer("Conv2D", **CONV, activation="selu"), "the activation 'selu' is not read"),
    "a softmax of places": (layer("Conv2D", **CONV, activation="softmax"), "a softmax of each row"),
    "no multiplier": (layer("DepthwiseConv2D", kernel_size=[2, 2], depth_multiplier=0), "depth_multiplier is 0"),
    "a huge pool": (layer("MaxPooling2D", pool_size=[9, 9]), r"a window of \(9, 9\).* is larger than"),
    "a pool of one side": (layer("AveragePooling2D", pool_size=[2]), "pool_size is"),
    "keepdims": (layer("GlobalAveragePooling2D", keepdims=1), "keepdims is 1, where true or false"),
    "negative padding": (layer("ZeroPadding2D", padding=[[0, -1], [0, 0]]), r"padding is \[\[0, -1\], \[0, 0\]\]"),
    "huge padding": (layer("ZeroPadding2D", padding=[[0, 2**40], [0, 0]]), "padding is .* around an array of shape"),
    "padding of a number": (
        layer("ZeroPadding2D", padding=1),
        r"padding is 1, where \[\[top, bottom\], \[left, right\]\]",
    ),
    "padding of truths": (layer("ZeroPadding2D", padding=[[True, 0], [0, 0]]), "a part of padding is True"),
    "too few axes": (layer("Permute", dims=[1, 2]), r"dims \[1, 2\] of an array of shape"),
    "an axis twice": (layer("Permute", dims=[1, 2, 2]), "dims"),
    "the batch": (layer("Permute", dims=[0, 1, 2]), "dims"),
    "normalization of an axis beyond": (layer("BatchNormalization", axis=4), "acts along the axis 4 of an array"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_layer_of_images_that_is_not_understood_is_refused_by_name(read, case):
    made, said = REFUSED[case]
    made = copy.deepcopy(made)
    made["config"]["name"] = "mine"
    weights = {"Conv2D": {"conv2d": [drawn(2, 2, 2, 2), drawn(2)]}}
    with pytest.raises(InputError, match=said) as caught:
        read([made], weights.get(made["class_name"]), (4, 3, 2))
    assert f"'mine' ({made['class_name']})" in str(caught.value)


@pytest.mark.parametrize("kind", [kind for kind in IMAGES if kind != "Concatenate"])
def test_layers_of_images_take_three_sides(read, kind):
    config = {"Conv2D": CONV, "DepthwiseConv2D": {"kernel_size": [2, 2]}}
    with pytest.raises(InputError, match=rf"\({kind}\): .*array of shape \[4, 3\], which is no image"):
        read([layer(kind, **config.get(kind, {}))], shape=(4, 3))


def merged(kind, *shapes, **config):
    """A merge of the input in such shapes."""
    model = Model((12,), image(12))
    parts = [model.add("Reshape", "input", None, target_shape=list(shape)) for shape in shapes]
    return model, model.add(kind, parts, None, **config)


MERGED = {
    "shapes that are repeated": (merged("Add", (3, 4), (12, 1)), r"shapes \[3, 4\] and \[12, 1\] is combined"),
    "three of a difference": (merged("Subtract", *[(12,)] * 3), "applied to 3 arrays, where two are expected"),
    "one of a difference": (merged("Subtract", (12,)), "applied to 1 arrays"),
    "nothing at all": (merged("Add"), "such layers are read with a list of inputs"),
    "sides that differ": (merged("Concatenate", (3, 4), (4, 3)), r"shapes \[3, 4\] and \[4, 3\] is put together"),
    "ranks that differ": (merged("Concatenate", (3, 4), (12,)), "is put together"),
    "along the batch": (merged("Concatenate", (12,), (12,), axis=0), "along the axis 0 of an array"),
    "beyond": (merged("Concatenate", (12,), (12,), axis=2), "along the axis 2 of an array"),
    "along no number": (merged("Concatenate", (12,), (12,), axis=None), "axis is None"),
    "too many": (merged("Add", *[(12,)] * 300), "a sum of 300 values"),
}


@pytest.mark.parametrize("case", MERGED)
def test_values_that_do_not_go_together_are_refused(tmp_path, case):
    (model, last), said = MERGED[case]
    with pytest.raises(InputError, match=said):
        loaded(tmp_path, model, last)


def test_shapes_that_merges_were_built_for_are_checked(tmp_path):
    model, last = merged("Add", (3, 4), (3, 4))
    document = model.document(last)
    document["config"]["layers"][-1]["build_config"] = {"input_shape": [[None, 3, 4], [None, 3, 4]]}
    assert load_model(archived(tmp_path / "m.keras", document, {})).shape == (12,)
    for wrong in ([[None, 3, 4]], [[None, 3, 4], [None, 4, 3]], [None, 3, 4], [[None, 3, 4]] * 3, [[]], 3):
        document["config"]["layers"][-1]["build_config"] = {"input_shape": wrong}
        with pytest.raises(InputError, match=r"\(Add\): it was built for"):
            load_model(archived(tmp_path / "m.keras", document, {}))


CALLS = {
    "one array": [tensor("Reshape 0")],
    "two arguments": [tensor("Reshape 0"), tensor("Reshape 1")],
    "an empty list": [[]],
    "numbers": [[1, 2]],
    "lists within": [[[tensor("Reshape 0")]]],
    "nothing": [],
    "a text": "Reshape 0",
}


@pytest.mark.parametrize("case", CALLS)
def test_merges_are_called_with_one_list(tmp_path, case):
    model, last = merged("Add", (3, 4), (3, 4))
    document = model.document(last)
    document["config"]["layers"][-1]["inbound_nodes"][0]["args"] = CALLS[case]
    with pytest.raises(InputError, match=r"the input of the layer 'Add 2' \(Add\) is"):
        load_model(archived(tmp_path / "m.keras", document, {}))


def test_a_cycle_of_branches_is_refused(tmp_path):
    model, last = branched()
    document = model.document(last)
    document["config"]["layers"][1]["inbound_nodes"][0]["args"] = [tensor(last)]
    with pytest.raises(InputError, match="or needs itself: only graphs without loops"):
        load_model(archived(tmp_path / "m.keras", document, model.stored()))


def one_of_each():
    """A model with every class of images."""
    model = Model((4, 3, 2), None)
    a = model.add("ZeroPadding2D", "input", None, padding=[[1, 0], [0, 1]])
    a = model.add("Conv2D", a, None, [drawn(2, 2, 2, 2), drawn(2)], **CONV)
    a = model.add("DepthwiseConv2D", a, None, [drawn(2, 1, 2, 1), drawn(2)], kernel_size=[2, 1], padding="same")
    a = model.add("BatchNormalization", a, None, [drawn(2), drawn(2), drawn(2), np.float32([1, 2])])
    a = model.add(
        "Permute", model.add("AveragePooling2D", a, None, pool_size=[1, 2], strides=[1, 1]), None, dims=[2, 1, 3]
    )
    b = model.add("MaxPooling2D", a, None, strides=[1, 1], padding="same")
    a = model.add("Subtract", [model.add("Add", [a, b], None), b], None)
    a, b = model.add("GlobalMaxPooling2D", a, None), model.add("GlobalAveragePooling2D", a, None, keepdims=True)
    a, b = model.add("Flatten", a, None), model.add("Flatten", b, None)
    return model, model.add("Concatenate", [a, b], None)


EACH = [(model.document(last), stored(model.stored())) for model, last in (one_of_each(), branched())]


def test_the_models_that_are_changed_are_read(tmp_path):
    for document, weights in EACH:
        assert load_model(archived(tmp_path / "m.keras", document, weights)).outputs >= 2


@given(st.data())
def test_any_configuration_of_a_graph_gives_a_network_or_a_refusal(tmp_path_factory, data):
    document, weights = data.draw(st.sampled_from(EACH))
    path = tmp_path_factory.getbasetemp() / "changed.keras"
    with contextlib.suppress(InputError):
        load_model(archived(path, changed_anywhere(data, document), weights))


def test_means_are_exact(read):
    """Weights of 1/9, 1/6 and 1/4, which no float holds."""
    made = layer("AveragePooling2D", pool_size=[3, 3], strides=[1, 1], padding="same")
    found = evaluate(read([made], shape=(3, 3, 1)), [[1] * 9], backend="arb")
    assert all(low <= 1 <= high for low, high in zip(found.lower[-1][0], found.upper[-1][0], strict=True))
    assert max(Fraction(x) for x in found.upper[-1][0]) - min(Fraction(x) for x in found.lower[-1][0]) < 1e-14
