"""Keras files that are refused: what is not exactly understood, and archives that are damaged or meant to do damage."""

import copy
import json
import math
import struct
import sys
import tracemalloc
import warnings
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from intervalcert import InputError, UsageError, load_model
from tests.commands import ran

pytest.importorskip("h5py", reason="the package h5py is not installed")

from tests.test_keras import (
    FIXTURES,
    METADATA,
    archived,
    drawn,
    functional,
    initializer,
    layer,
    policy,
    reader,
    sequential,
    source,
    stored,
    tensor,
)

WEIGHTS = {"dense": [drawn(2, 3), drawn(3)], "dense_1": [drawn(3, 2), drawn(2)]}


@pytest.fixture
def read(tmp_path):
    return reader(tmp_path)


def two():
    return [layer("Dense", units=3, activation="relu", name="first"), layer("Dense", units=2, name="second")]


def changed(document, path, value):
    """The value at that path; None for a key that is taken away."""
    made = copy.deepcopy(document)
    *way, last = path
    inner = made
    for key in way:
        inner = inner[key]
    if value is Ellipsis:
        del inner[last]
    else:
        inner[last] = value
    return made


FIRST, SECOND = ("config", "layers", 1), ("config", "layers", 2)
NODE = (*SECOND, "inbound_nodes")


def test_the_models_that_are_changed_here_are_read(tmp_path):
    for form in (sequential, functional):
        assert load_model(archived(tmp_path / "m.keras", form(two(), (2,)), WEIGHTS)).activations == ("relu", None)


# -- layers ----------------------------------------------------------------------------------------------------------

ONE_LAYER = {
    "Conv2D": (layer("Conv2D", filters=2), r"'mine' \(Conv2D\) does not say its 'activation'"),
    "Conv1D": (layer("Conv1D"), r"'mine' \(Conv1D\) of 'keras.layers' is not read"),
    "DepthwiseConv2D": (layer("DepthwiseConv2D"), "does not say its 'activation'"),
    "Add": (layer("Add"), r"'mine' \(Add\) is applied to one array, where a list of them is expected"),
    "convolutions of others": ({**layer("Conv2D"), "module": "mine"}, r"\(Conv2D\) of 'mine' is not read"),
    "LayerNormalization": (layer("LayerNormalization"), r"'mine' \(LayerNormalization\) of 'keras.layers' is not read"),
    "PReLU": (layer("PReLU"), r"\(PReLU\).*is not read.*leave it out, or export the model to ONNX"),
    "Lambda": (layer("Lambda", function={"class_name": "__lambda__"}), r"\(Lambda\).*is not read"),
    "TorchModuleWrapper": (layer("TorchModuleWrapper"), r"\(TorchModuleWrapper\).*is not read"),
    "another module": ({**layer("Dense", units=2), "module": "mine"}, r"\(Dense\) of 'mine' is not read"),
    "module within Keras": ({**layer("ReLU"), "module": "keras.src.ops.nn"}, "of 'keras.src.ops.nn' is not read"),
    "no module": ({**layer("Dense", units=2), "module": None}, "of None is not read"),
    "registered": ({**layer("Dense", units=2), "registered_name": "mine>Dense"}, "is not read"),
    "a sort of one's own": (
        {**layer("MinMax"), "module": "mine", "registered_name": "mine>MinMax"},
        r"\(MinMax\) of 'mine' is not read.*export the model to ONNX",
    ),
    "nested": ({**layer("Sequential", layers=[]), "module": "keras"}, "is a model within the model"),
    "another input": (source((2,), name="mine"), r"\(InputLayer\) is at place 1"),
    "a class that is no text": ({**layer("Dense", units=2), "class_name": ["Dense"]}, "both must be texts"),
    "units that are none": (layer("Dense", units=0), "0 units"),
    "units that are too many": (layer("Dense", units=2**40), "1099511627776 units for 2 inputs"),
    "units that are a float": (layer("Dense", units=2.0), "units is 2.0, where a whole number"),
    "units that are true": (layer("Dense", units=True), "units is True"),
    "bias that is a number": (layer("Dense", units=2, use_bias=1), "use_bias is 1, where true or false"),
    "quantized": (layer("Dense", units=2, quantization_config={}), r"has quantization_config: \{\}, which is not read"),
    "lora": (layer("Dense", units=2, lora_rank=2), "has lora_rank: 2"),
    "an unknown key": (layer("Dense", units=2, mystery=3), r"has 'mystery': 3, and what that means is not known"),
    "alpha of a leaky relu": (layer("LeakyReLU", negative_slope=0.1, alpha=0.3), "has 'alpha': 0.3"),
    "autocast": (layer("Identity", autocast=False), "has 'autocast': False"),
    "steep leaky relu": (layer("LeakyReLU", negative_slope=1.5), r"slope 1.5 is not read: it must be in 0 … 1"),
    "falling leaky relu": (layer("LeakyReLU", negative_slope=-0.1), r"slope -0.1 is not read"),
    "no slope": (layer("LeakyReLU", negative_slope=None), "the negative slope is None"),
    "leaky relu in float64": (
        layer("LeakyReLU", negative_slope=0.1, dtype="float64"),
        r"slope is rounded in different ways by the backends of Keras in a layer of float64: use float32",
    ),
    "leaky relu by name in float64": (layer("Activation", activation="leaky_relu", dtype="float64"), "different ways"),
    "rescaling in float16": (
        layer("Rescaling", scale=1 + 2**-11 + 2**-25, dtype="float16"),
        "scale is rounded in diff",
    ),
    "threshold": (layer("ReLU", threshold=1.0), "a ReLU with threshold 1.0"),
    "slope and top": (
        layer("ReLU", max_value=2.0, negative_slope=0.1),
        "a ReLU with threshold 0.0, negative_slope 0.1",
    ),
    "top below zero": (layer("ReLU", max_value=-1.0), "max_value is -1.0, below zero"),
    "negative alpha": (layer("ELU", alpha=-0.5), "alpha must not be negative"),
    "selu": (layer("Activation", activation="selu"), r"the activation 'selu' is not read \(these are: linear, relu"),
    "an activation that is written as a function": (
        layer("Activation", activation={"module": "builtins", "class_name": "function", "config": "relu"}),
        "the activation .* is not read",
    ),
    "an activation with variables": (layer("Activation", activation=layer("PReLU", name="x")), "is not read.*let it f"),
    "an activation of another module": (
        layer("Activation", activation={**layer("ReLU", name="x"), "module": "mine"}),
        r"'mine' \(Activation\): the layer 'x' \(ReLU\) of 'mine' is not read",
    ),
    "an activation that is wrong": (
        layer("Activation", activation=layer("ReLU", name="x", threshold=3)),
        r"'mine' \(Activation\): the layer 'x' \(ReLU\): a ReLU with threshold 3",
    ),
    "an activation built for another shape": (
        layer("Activation", activation={**layer("ReLU", name="x"), "build_config": {"input_shape": [None, 3]}}),
        r"\(ReLU\): it was built for .* but is applied to an input of shape \[2\]",
    ),
    "softmax of rows": (layer("Softmax", axis=0), "along the axis 0: only the last one is read"),
    "inverted": (layer("Normalization", mean=0, variance=1, invert=True), "has invert: True"),
    "the other half": (layer("Normalization", variance=1), "its mean is None"),
    "half a normalization": (layer("Normalization", mean=0.5), "its variance is None"),
    "normalization of the batch": (layer("Normalization", axis=0, mean=0, variance=1), "axis 0 of an array of shape"),
    "normalization twice": (layer("Normalization", axis=[1, -1], mean=0, variance=1), r"axis \[1, -1\] of an array"),
    "normalization beyond": (layer("Normalization", axis=2, mean=0, variance=1), "axis 2 of an array"),
    "too short a mean": (layer("Normalization", mean=[1], variance=[1]), r"a mean of shape \[1\]"),
    "different shapes": (layer("Normalization", mean=[1, 2], variance=1), r"a variance of shape \[\]"),
    "negative variance": (layer("Normalization", mean=0, variance=-1), "a variance below zero"),
    "mean as an object": (layer("Normalization", mean={"class_name": "__numpy__"}, variance=1), "its mean is {"),
    "renormalised": (layer("BatchNormalization", renorm=True), "has renorm: True"),
    "batch normalization of the batch": (layer("BatchNormalization", axis=0), "acts along the axis 0"),
    "axes of batch normalization": (layer("BatchNormalization", axis=[1]), r"axis is \[1\], where a whole number"),
    "scale that does not fit": (layer("Rescaling", scale=[1, 2, 3]), r"scale: an array of shape \[3\] does not broad"),
    "scale of a batch": (layer("Rescaling", scale=[[1, 2]]), r"scale has the shape \[1, 2\], but an input has \[2\]"),
    "scale of different lengths": (layer("Rescaling", scale=[[1], [2, 3]]), "lists of the same lengths"),
    "scale of nothing": (layer("Rescaling", scale=[]), "lists of the same lengths"),
    "scale of deep lists": (layer("Rescaling", scale=[[[[[[[[[1]]]]]]]]]), "lists of the same lengths"),
    "scale that is true": (layer("Rescaling", scale=True), "scale is True, where a number is expected"),
    "scale that is too large for numpy": (
        layer("Rescaling", scale={"class_name": "__numpy__", "config": {"value": [1e6, 1], "dtype": "float16"}}),
        "scale is too large for float16",
    ),
    "scale of texts": (layer("Rescaling", scale=["1", "2"]), "scale is '1', where a number is expected"),
    "scale of a tensor": (layer("Rescaling", scale={"class_name": "__tensor__", "config": {"value": 1}}), "scale is {"),
    "scale of whole numbers of numpy": (
        layer("Rescaling", scale={"class_name": "__numpy__", "config": {"value": [1, 2], "dtype": "int64"}}),
        "scale is {",
    ),
    "scale that is too large": (layer("Rescaling", scale=1e39), "scale is too large for float32"),
    "scale of 400 digits": (layer("Rescaling", scale=10**400), "a number too large to be read"),
    "scale that no double holds": (layer("Rescaling", scale=2**53 + 1), "a number too large to be read"),
    "shape that does not fit": (layer("Reshape", target_shape=[3]), r"2 numbers of shape \[2\] do not have the shape"),
    "shape with two gaps": (layer("Reshape", target_shape=[-1, -1]), "do not have the shape"),
    "shape of many sizes": (layer("Reshape", target_shape=[1] * 16 + [2]), "do not have the shape"),
    "shape of nothing": (layer("Reshape", target_shape=[]), "do not have the shape"),
    "shape that does not divide": (layer("Reshape", target_shape=[-1, 3]), "do not have the shape"),
    "shape with a gap and a zero": (layer("Reshape", target_shape=[-1, 0]), "do not have the shape"),
    "shape of negative sizes": (layer("Reshape", target_shape=[-1, -2]), "do not have the shape"),
    "shape of two negative sizes": (layer("Reshape", target_shape=[-2, -1, 1]), "do not have the shape"),
    "shape with a zero": (layer("Reshape", target_shape=[2, 0]), "do not have the shape"),
    "built for another shape": (
        {**layer("Dense", units=2), "build_config": {"input_shape": [None, 3]}},
        r"it was built for .* but is applied to an input of shape \[2\]",
    ),
    "built for a shape of floats": (
        {**layer("Dense", units=2), "build_config": {"input_shape": [None, 2.0]}},
        "it was built for",
    ),
    "built for several shapes": ({**layer("Dense", units=2), "build_config": {"shapes_dict": {}}}, "it was built for"),
}


ONE_GROUP = {"Dense": {"dense": [drawn(2, 2), drawn(2)]}, "BatchNormalization": {"batch_normalization": [drawn(2)] * 4}}


@pytest.mark.parametrize("case", ONE_LAYER)
def test_a_layer_that_is_not_understood_is_refused_by_name(read, case):
    made, said = ONE_LAYER[case]
    made["config"]["name"] = "mine"
    with pytest.raises(InputError, match=said) as caught:
        read([made], ONE_GROUP.get(str(made["class_name"])))
    assert "mine" in str(caught.value)


DTYPES = [
    "bfloat16",
    "mixed_float16",
    "mixed_bfloat16",
    "int8_from_float32",
    "float8_from_float32",
    "int32",
    "",
    None,
    3,
]
POLICIES = [
    policy("bfloat16"),
    {**policy(), "class_name": "QuantizedDTypePolicy"},
    {**policy(), "class_name": "DTypePolicyMap"},
    {**policy(), "module": "mine"},
    {**policy(), "module": ["keras"]},
    {**policy(), "registered_name": "mine"},
    {**policy(), "config": {"name": "float32", "mode": "int8"}},
    {**policy(), "config": None},
    {**policy(), "config": {"name": []}},
    {},
]


@pytest.mark.parametrize("dtype", DTYPES + POLICIES, ids=str)
def test_other_numbers_than_floats_of_one_type_are_refused(read, dtype):
    with pytest.raises(InputError, match=r"'layer 0' \(Dense\) has the dtype .*not mixed, not quantized"):
        read([layer("Dense", units=3, dtype=dtype)], WEIGHTS)


def test_rows_are_told_apart(read):
    """What would act on each row."""
    with pytest.raises(InputError, match="a softmax of each row"):
        read([layer("Softmax")], shape=(2, 3), strip_softmax=True)


@pytest.mark.parametrize("order", [None, "channels", 3, ["channels_last"]])
def test_other_orders_of_axes_are_refused(read, order):
    with pytest.raises(InputError, match=r"\(Flatten\): data_format is .* channels_last and channels_first are read"):
        read([layer("Flatten", data_format=order)], shape=(2, 3))


def test_a_dense_layer_of_rows_is_refused(read):
    with pytest.raises(InputError, match=r"each row of an array of shape \[4, 2\]: put a Flatten layer before it"):
        read([layer("Dense", units=3)], ONE_GROUP["Dense"], (4, 2))


def test_a_softmax_between_layers_is_refused(read):
    for made in ([layer("Softmax"), *two()], [layer("Activation", activation="softmax"), *two()]):
        with pytest.raises(InputError, match=r"is a softmax before the layer .* it is read at the very end only"):
            read(made, WEIGHTS, strip_softmax=True)


# -- models ----------------------------------------------------------------------------------------------------------

CHAIN, GRAPH = sequential(two(), (2,)), functional(two(), (2,))
AGAIN = {**GRAPH["config"]["layers"][1], "shared_object_id": 5}
ASIDE = {**layer("ReLU", name="aside"), "name": "aside"}
ASIDE["inbound_nodes"] = [{"args": [tensor("aside")], "kwargs": {}}]
UNBUILT = changed(CHAIN, ["config", "build_input_shape"], ...)


def entered(shape, **config):
    """With another input."""
    return changed(UNBUILT, ["config", "layers", 0], source(shape, **config))


MODELS = {
    "a list": ([CHAIN], "where an object is expected"),
    "another class": (changed(CHAIN, ["class_name"], "Mine"), "What a class of your own computes is not in the file"),
    "a class that is no text": (changed(CHAIN, ["class_name"], []), "What a class of your own computes"),
    "another module": (changed(CHAIN, ["module"], "mine"), "a class of your own"),
    "a module that is no text": (changed(CHAIN, ["module"], ["keras"]), "a class of your own"),
    "a registered class": (changed(CHAIN, ["registered_name"], "mine>Sequential"), "registered as 'mine>Sequential'"),
    "a registered list": (changed(CHAIN, ["registered_name"], []), "registered as"),
    "an unknown key": (changed(CHAIN, ["mystery"], 1), "the model has 'mystery': 1"),
    "an unknown setting": (changed(CHAIN, ["config", "mystery"], 1), "the model has 'mystery': 1"),
    "no configuration": (changed(CHAIN, ["config"], None), "the configuration of the model is None"),
    "no layers": (changed(CHAIN, ["config", "layers"], ...), "the list of layers is None"),
    "an input alone": (changed(CHAIN, ["config", "layers"], [source((2,))]), "the model has 1 layers"),
    "too many layers": (changed(CHAIN, ["config", "layers"], [{}] * 1001), "the model has 1001 layers"),
    "no input": (changed(UNBUILT, ["config", "layers", 0], ...), r"\(Dense\) is at place 0"),
    "built for another shape": (changed(CHAIN, ["config", "build_input_shape"], [None, 3]), "built for inputs"),
    "a layer that is no object": (changed(CHAIN, FIRST, "Dense"), "layer 1 is 'Dense', where an object"),
    "a layer without configuration": (changed(CHAIN, [*FIRST, "config"], ...), "the configuration of layer 1 is None"),
    "a layer without a name": (changed(CHAIN, [*FIRST, "config", "name"], ...), "the name None"),
    "a layer that does not say all": (
        changed(CHAIN, [*FIRST, "config", "use_bias"], ...),
        r"'first' \(Dense\) does not say its 'use_bias'",
    ),
    "a layer without a dtype": (changed(CHAIN, [*FIRST, "config", "dtype"], ...), "does not say its 'dtype'"),
    "an unknown key of a layer": (changed(CHAIN, [*FIRST, "mystery"], 1), r"'first' \(Dense\) has 'mystery': 1"),
    "one name twice": (changed(CHAIN, [*SECOND, "config", "name"], "first"), "two layers are called 'first'"),
    "an input of no size": (entered(()), "every size but the first"),
    "an input of many sizes": (entered((1,) * 16 + (2,)), "there are 1 to 16 of them"),
    "an input of any size": (entered((None, 2)), "every size but the first"),
    "a huge input": (entered((2**30, 2**30)), "no weights for that many"),
    "a large input": (entered((2**20,)), "no weights for that many"),
    "an empty input": (entered((0,)), "an input has the shape"),
    "an input of a half": (entered((1.5,)), "where a whole number"),
    "a sparse input": (entered((2,), sparse=True), "has sparse: True"),
    "an input of bytes": (
        changed(CHAIN, ["config", "layers", 0], source((2,), dtype="uint8")),
        "has the dtype 'uint8'",
    ),
    "a layer that is shared": (
        changed(CHAIN, ["config", "layers"], [source((2,)), AGAIN, changed(AGAIN, ["config", "name"], "x")]),
        "a layer is shared",
    ),
    "a layer that shares its number with something else": (
        changed(changed(CHAIN, FIRST, AGAIN), [*SECOND, "config", "kernel_initializer", "shared_object_id"], 5),
        "a layer is shared",
    ),
    "policies that share their number": (
        changed(
            changed(CHAIN, [*FIRST, "config", "dtype", "shared_object_id"], 5),
            [*SECOND, "config", "kernel_initializer"],
            {**policy("float64"), "shared_object_id": 5},
        ),
        "different objects have the same shared_object_id",
    ),
    "a policy that shares its number with something else": (
        changed(
            changed(CHAIN, [*FIRST, "config", "dtype", "shared_object_id"], 5),
            [*SECOND, "config", "kernel_initializer"],
            {**initializer("Zeros"), "shared_object_id": 5},
        ),
        "different objects have the same shared_object_id",
    ),
    "functions that share their number": (
        changed(
            changed(CHAIN, [*FIRST, "config", "activation"], {**layer("ReLU", name="x"), "shared_object_id": 5}),
            [*SECOND, "config", "activation"],
            {**layer("ReLU", name="x", max_value=1.0), "shared_object_id": 5},
        ),
        "different objects have the same shared_object_id",
    ),
    "a function that shares its number with something else": (
        changed(
            changed(CHAIN, [*FIRST, "config", "activation"], {**layer("ReLU", name="x"), "shared_object_id": 5}),
            ["compile_config"],
            {"x": {**layer("ReLU", name="x"), "shared_object_id": 5}},
        ),
        "different objects have the same shared_object_id",
    ),
    "a number that is none": (changed(CHAIN, [*FIRST, "shared_object_id"], 1.0), "no whole number"),
    "a branch": (
        changed(GRAPH, [*NODE, 0, "args"], [tensor("input")]),
        r"the output is 'second'; the layer 'first' \(Dense\) is not part of that",
    ),
    "a layer beside the others": (
        changed(GRAPH, ["config", "layers"], [*GRAPH["config"]["layers"], ASIDE]),
        r"the output is 'second'; the layer 'aside' \(ReLU\) is not part of that",
    ),
    "two inputs of a layer": (
        changed(GRAPH, [*NODE, 0, "args"], [[tensor("first"), tensor("input")]]),
        r"the input of the layer 'second' \(Dense\).*with one input each",
    ),
    "a layer applied twice": (changed(GRAPH, NODE, GRAPH["config"]["layers"][2]["inbound_nodes"] * 2), "2 times"),
    "a layer that is not applied": (changed(GRAPH, NODE, []), "'second' .* is applied 0 times"),
    "an input with an input": (changed(GRAPH, ["config", "layers", 0, "inbound_nodes"], [1]), "has an input itself"),
    "a cycle": (changed(GRAPH, [*FIRST, "inbound_nodes", 0, "args"], [tensor("second")]), "loops or layers beside"),
    "a layer after itself": (changed(GRAPH, [*NODE, 0, "args"], [tensor("second")]), "loops or layers beside"),
    "a source that is not there": (changed(GRAPH, [*NODE, 0, "args"], [tensor("third")]), "loops or layers beside"),
    "an output in the middle": (
        changed(GRAPH, ["config", "output_layers"], [["first", 0, 0]]),
        "the output is 'first'",
    ),
    "two outputs": (
        changed(GRAPH, ["config", "output_layers"], [["first", 0, 0], ["second", 0, 0]]),
        "with one input and one output",
    ),
    "outputs by name": (changed(GRAPH, ["config", "output_layers"], {"y": ["second", 0, 0]}), "with one input and one"),
    "another input": (changed(GRAPH, ["config", "input_layers"], [["first", 0, 0]]), "says that it is 'first'"),
    "another result": (
        changed(GRAPH, ["config", "output_layers"], [["second", 0, 1]]),
        "with one input and one output",
    ),
    "another application": (
        changed(GRAPH, [*NODE, 0, "args", 0, "config", "keras_history"], ["first", 1, 0]),
        "with one input and one output",
    ),
    "a truth for an index": (
        changed(GRAPH, [*NODE, 0, "args", 0, "config", "keras_history"], ["first", False, 0]),
        "with one input and one output",
    ),
    "a layer for training": (changed(GRAPH, [*NODE, 0, "kwargs"], {"training": True}), "called with 'training': True"),
    "a mask": (changed(GRAPH, [*NODE, 0, "kwargs"], {"mask": tensor("input")}), "called with 'mask'"),
    "an unknown argument": (changed(GRAPH, [*NODE, 0, "kwargs"], {"scale": None}), "called with 'scale': None"),
    "an unknown part of a call": (changed(GRAPH, [*NODE, 0, "more"], 1), "has 'more': 1"),
    "a call of early Keras": (changed(GRAPH, NODE, [[["first", 0, 0, {}]]]), "where an object is expected"),
    "two names": (changed(GRAPH, [*SECOND, "name"], "first"), "'second' .* is called 'first', too"),
    "an unknown setting of a graph": (changed(GRAPH, ["config", "mystery"], 1), "the model has 'mystery': 1"),
}


@pytest.mark.parametrize("case", MODELS)
def test_a_model_that_is_not_a_chain_of_known_layers_is_refused(tmp_path, case):
    document, said = MODELS[case]
    with pytest.raises(InputError, match=said):
        load_model(archived(tmp_path / "m.keras", document, WEIGHTS))


VALUES = [None, True, 0, 1, -1, 2, 0.5, 1e400, "", "relu", "Dense", "keras", [], [1], [None, 2], {}, policy("float16")]


def changed_anywhere(data, document):
    """One or two values anywhere are replaced, swapped, repeated or taken away."""
    document = copy.deepcopy(document)
    for _ in range(data.draw(st.integers(1, 2))):
        places, pending = [], [document]
        while pending:
            item = pending.pop()
            keys = list(item) if isinstance(item, dict) else range(len(item)) if isinstance(item, list) else []
            places += [(item, key) for key in keys]
            pending += [item[key] for key in keys]
        holder, key = data.draw(st.sampled_from(places))
        other, place = data.draw(st.sampled_from(places))
        match data.draw(st.sampled_from(["replace", "copy", "swap", "remove"])):
            case "replace":
                holder[key] = copy.deepcopy(data.draw(st.sampled_from(VALUES)))
            case "copy":
                holder[key] = copy.deepcopy(other[place])
            case "swap":
                holder[key], other[place] = copy.deepcopy(other[place]), copy.deepcopy(holder[key])
            case "remove":
                del holder[key]
    return document


@given(st.data())
def test_any_configuration_gives_a_network_or_a_refusal(tmp_path_factory, data):
    document = changed_anywhere(data, data.draw(st.sampled_from([CHAIN, GRAPH])))
    path = archived(tmp_path_factory.getbasetemp() / "changed.keras", document, STORED)
    try:
        network = load_model(path)
    except InputError:
        return
    assert network.outputs >= 2


STORED = stored(WEIGHTS)


# -- JSON ------------------------------------------------------------------------------------------------------------

TEXT = json.dumps(CHAIN)
SCALED = json.dumps(sequential([layer("Rescaling", scale=123), *two()], (2,)))
JSONS = {
    "an infinite scale": (SCALED.replace("123", "1e999").encode(), "scale is inf, a number too large"),
    "empty": (b"", "config.json is not JSON"),
    "cut": (TEXT[:-1].encode(), "config.json is not JSON"),
    "two documents": (TEXT.encode() * 2, "config.json is not JSON"),
    "no UTF-8": (TEXT.encode("utf-16"), "config.json is not JSON"),
    "a mark of bytes": (b"\xef\xbb\xbf" + TEXT.encode(), "config.json is not JSON"),
    "a key twice": (TEXT.replace('"units": 3', '"units": 4, "units": 3').encode(), "the key 'units' occurs twice"),
    "a key twice, spelled": (
        TEXT.replace('"units": 3', '"un\\u0069ts": 4, "units": 3').encode(),
        "the key 'units' occurs twice",
    ),
    "NaN": (TEXT.replace('"units": 3', '"units": NaN').encode(), "contains NaN"),
    "infinite": (TEXT.replace('"units": 3', '"units": -Infinity').encode(), "contains -Infinity"),
    "large": (TEXT.replace('"units": 3', '"units": 1e999').encode(), "units is inf"),
    "digits": (TEXT.replace('"units": 3', f'"units": {"9" * 5000}').encode(), "config.json is not JSON"),
    "deep": (b"[" * 200_000 + b"]" * 200_000, "nested too deeply"),
    "long": (TEXT.encode() + b" " * 2**23, "config.json unpacks to"),
}


@pytest.mark.parametrize("case", JSONS)
def test_json_that_could_be_read_in_two_ways_is_refused(tmp_path, case):
    text, said = JSONS[case]
    with pytest.raises(InputError, match=said):
        load_model(archived(tmp_path / "m.keras", text, WEIGHTS))


@pytest.mark.parametrize(
    "metadata", [b'{"keras_version": "2.15.0"}', b'{"keras_version": 3}', b"{}", b"[]", b'{"keras_version": "4.0"}']
)
def test_models_of_other_versions_are_refused(tmp_path, metadata):
    with pytest.raises(InputError, match="the models of Keras 3 are read: load it there and save it again"):
        load_model(archived(tmp_path / "m.keras", CHAIN, WEIGHTS, metadata=metadata))


# -- archives --------------------------------------------------------------------------------------------------------


def with_member(path, name, data=b"", **more):
    archived(path, CHAIN, WEIGHTS)
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(path, "a") as archive:
        archive.writestr(name, data, **more)
    return path


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("assets/vocabulary.txt", "contains 'assets/vocabulary.txt', which the layers that are read do not need"),
        ("assets/", "contains 'assets/'"),
        ("model.weights.npz", "contains 'model.weights.npz'"),
        ("../config.json", "points out of the archive"),
        ("a/../../x", "points out of the archive"),
        ("/etc/passwd", "points out of the archive"),
        ("\\\\server\\x", "points out of the archive"),
        ("C:\\x", "points out of the archive"),
        ("config.json", "contains 'config.json' twice"),
        ("model.weights.h5", "contains 'model.weights.h5' twice"),
    ],
)
def test_nothing_else_is_in_an_archive(tmp_path, name, said):
    with pytest.raises(InputError, match=said.replace("\\", "\\\\")):
        load_model(with_member(tmp_path / "m.keras", name))
    assert [file.name for file in tmp_path.iterdir()] == ["m.keras"]


@pytest.mark.parametrize("name", ["metadata.json", "config.json", "model.weights.h5"])
def test_a_member_that_is_missing_is_named(tmp_path, name):
    path = tmp_path / "m.keras"
    archived(path, CHAIN, WEIGHTS)
    with zipfile.ZipFile(path) as archive:
        parts = {part: archive.read(part) for part in archive.namelist() if part != name}
    with zipfile.ZipFile(path, "w") as archive:
        for part, data in parts.items():
            archive.writestr(part, data)
    with pytest.raises(InputError, match=f"no {name} in it|as its ending says"):
        load_model(path)


@pytest.fixture
def frugal():
    """No more than 64 MiB are used."""
    tracemalloc.start()
    yield
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 2**26


def test_a_bomb_is_not_unpacked(tmp_path, frugal):
    """200 MiB of zeros, in 200 KiB."""
    path = tmp_path / "m.keras"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("metadata.json", METADATA)
        archive.writestr("config.json", TEXT)
        with archive.open("model.weights.h5", "w") as member:
            for _ in range(200):
                member.write(bytes(2**20))
    assert path.stat().st_size < 2**20
    with pytest.raises(InputError, match=r"unpacks to more than 64 times as many \(209\d+ or more\)"):
        load_model(path)


def declared(path, name, size):
    """The directory of the archive says another size of that member."""
    data = bytearray(path.read_bytes())
    place = data.index(b"PK\x01\x02")
    while data[place + 46 : place + 46 + len(name)] != name.encode():
        place = data.index(b"PK\x01\x02", place + 4)
    struct.pack_into("<I", data, place + 24, size)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("name", ["config.json", "model.weights.h5"])
@pytest.mark.parametrize("size", [0, 10, 2**22, 2**32 - 2])
@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_size_that_is_not_the_true_one_is_refused(tmp_path, frugal, name, size, compression):
    path = archived(tmp_path / "m.keras", CHAIN, WEIGHTS, compression=compression)
    with pytest.raises(InputError):
        load_model(declared(path, name, size))


def test_an_encrypted_member_is_refused(tmp_path):
    data = bytearray(archived(tmp_path / "m.keras", CHAIN, WEIGHTS).read_bytes())
    data[data.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "m.keras").write_bytes(data)
    with pytest.raises(InputError, match="is encrypted"):
        load_model(tmp_path / "m.keras")


def test_every_truncation_is_refused(tmp_path, capsys):
    data, path = (FIXTURES / "mlp.keras").read_bytes(), tmp_path / "m.keras"
    for length in range(0, len(data), 10):
        path.write_bytes(data[:length])
        code, out, said = ran(capsys, "inspect", path)
        assert (code, out) == (3, ""), length
        assert str(path) in said
        assert "Traceback" not in said


@pytest.mark.parametrize("name", ["config.json", "metadata.json"])
def test_every_truncated_text_is_refused(tmp_path, name):
    with zipfile.ZipFile(FIXTURES / "mlp_functional.keras") as archive:
        parts = {part: archive.read(part) for part in archive.namelist()}
    whole = parts[name]
    for length in range(0, len(whole), max(10, len(whole) // 200)):
        parts[name] = whole[:length]
        path = archived(
            tmp_path / "m.keras", parts["config.json"], parts["model.weights.h5"], metadata=parts["metadata.json"]
        )
        with pytest.raises(InputError, match=f"{name} is not JSON"):
            load_model(path)


@given(
    st.lists(
        st.tuples(st.integers(0, (FIXTURES / "mlp.keras").stat().st_size - 1), st.integers(0, 255)),
        min_size=1,
        max_size=6,
    )
)
def test_changed_bytes_give_a_network_or_a_refusal(tmp_path_factory, changes):
    data = bytearray((FIXTURES / "mlp.keras").read_bytes())
    for place, byte in changes:
        data[place] = byte
    path = tmp_path_factory.getbasetemp() / "bytes.keras"
    path.write_bytes(data)
    try:
        network = load_model(path)
    except InputError:
        return
    assert network.content == load_model(FIXTURES / "mlp.keras").content  # sums of the archive protect all the rest


def test_a_missing_package_is_named(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(UsageError, match=r"pip install 'intervalcert\[keras\]'"):
        load_model(FIXTURES / "mlp.keras")
    code, _, said = ran(capsys, "inspect", FIXTURES / "mlp.keras")
    assert code == 2
    assert "intervalcert[keras]" in said


def test_nothing_in_the_file_is_run(tmp_path, monkeypatch):
    """Neither Keras nor what a file names is imported."""
    for name in ("keras", "tensorflow", "mine"):
        monkeypatch.setitem(sys.modules, name, None)
    document = changed(CHAIN, [*FIRST, "config", "kernel_initializer"], {"module": "mine", "class_name": "Evil"})
    assert math.isfinite(load_model(archived(tmp_path / "m.keras", document, WEIGHTS)).inputs)
