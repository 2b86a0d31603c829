"""ONNX graphs that are not understood, or ask for too much: a message, soon, and in little memory."""

import itertools
import time
from random import Random

import numpy as np
import pytest

from intervalcert import InputError
from intervalcert.io.models import tensors
from tests.onnx_graphs import computed, quarters
from tests.onnx_models import array, model, node, read, refused, whole

# -- what is refused ---------------------------------------------------------------------------------------------------

CONV = {"W": quarters(Random(60), 4, 2, 3, 3)}
WRONG = {
    "a grid of three sides": (node("Conv", "x W5", "y"), (2, 4, 4, 4), r"\[batch, 2, 4, 4, 4\].*three are not read"),
    "weights of other dimensions": (node("Conv", "x W3", "y"), (2, 4, 4), "weights of the shape"),
    "weights that are whole": (node("Conv", "x N", "y"), (2, 4, 4), "must be real numbers"),
    "weights that flow": (node("Conv", "x x", "y"), (2, 4, 4), "weights or biases depend on the input"),
    "a bias that flows": (node("Conv", "x W x", "y"), (2, 4, 4), "weights or biases depend on the input"),
    "a bias of other size": (node("Conv", "x W three", "y"), (2, 4, 4), r"4 channels, but biases of shape \[3\]"),
    "an empty kernel": (node("Conv", "x E", "y"), (2, 4, 4), "windows of|groups"),
    "a window that does not fit its weights": (
        node("Conv", "x W", "y", kernel_shape=[3, 2]),
        (2, 4, 4),
        "it says that",
    ),
    "groups that do not divide": (node("Conv", "x W", "y", group=3), (2, 4, 4), "channels in 3 groups"),
    "no groups": (node("Conv", "x W", "y", group=0), (2, 4, 4), "in 0 groups"),
    "negative groups": (node("Conv", "x W", "y", group=-1), (2, 4, 4), "in -1 groups"),
    "other channels": (node("Conv", "x W", "y"), (3, 4, 4), "weights of the shape"),
    "strides of zero": (node("Conv", "x W", "y", strides=[0, 1]), (2, 4, 4), "at least 1 each"),
    "one stride": (node("Conv", "x W", "y", strides=[1]), (2, 4, 4), "2 numbers are expected"),
    "negative dilations": (node("Conv", "x W", "y", dilations=[-1, 1]), (2, 4, 4), "at least 1 each"),
    "negative pads": (node("Conv", "x W", "y", pads=[-1, 0, 0, 0]), (2, 4, 4), "a window of"),
    "two pads": (node("Conv", "x W", "y", pads=[1, 1]), (2, 4, 4), "with the pads"),
    "huge pads": (node("Conv", "x W", "y", pads=[2**40] * 4), (2, 4, 4), "too large"),
    "large pads": (node("Conv", "x W", "y", pads=[2**19] * 4), (2, 4, 4), "too large"),
    "huge strides": (node("Conv", "x W", "y", strides=[2**62] * 2), (2, 4, 4), "too large"),
    "huge dilations": (node("Conv", "x W", "y", dilations=[2**62] * 2), (2, 4, 4), "is larger than"),
    "pads in two ways": (
        node("Conv", "x W", "y", auto_pad="VALID", pads=[1] * 4),
        (2, 4, 4),
        "at the same time auto_pad",
    ),
    "another auto_pad": (node("Conv", "x W", "y", auto_pad="SAME"), (2, 4, 4), "'auto_pad' is 'SAME'; NOTSET"),
    "auto_pad with dilations": (
        node("Conv", "x W", "y", auto_pad="SAME_UPPER", dilations=[2, 2]),
        (2, 4, 4),
        "is computed in different ways",
    ),
    "a window that is too large": (node("Conv", "x W", "y"), (2, 2, 2), "is larger than"),
    "an attribute of others": (
        node("Conv", "x W", "y", output_padding=[1, 1]),
        (2, 4, 4),
        "'output_padding' is not und",
    ),
    "places of maxima": (node("MaxPool", "x", "y places", kernel_shape=[2, 2]), (2, 4, 4), "it has 2 outputs"),
    "maxima in another order": (
        node("MaxPool", "x", "y", kernel_shape=[2, 2], storage_order=1),
        (2, 4, 4),
        "storage_order is another",
    ),
    "maxima without a window": (node("MaxPool", "x", "y"), (2, 4, 4), "'kernel_shape' is missing"),
    "maxima of nothing": (
        node("MaxPool", "x", "y", kernel_shape=[1, 1], pads=[1] * 4),
        (2, 4, 4),
        "sees nothing at all",
    ),
    "means of nothing": (node("AveragePool", "x", "y", kernel_shape=[1, 1], pads=[1] * 4), (2, 4, 4), "sees nothing"),
    "an empty window": (node("MaxPool", "x", "y", kernel_shape=[0, 2]), (2, 4, 4), "windows of"),
    "means that need a large matrix": (
        node("AveragePool", "x", "y", kernel_shape=[2, 2], pads=[1] * 4),
        (1, 80, 80),
        "which is too large",
    ),
    "a mean over the batch": (node("ReduceMean", "x", "y", axes=[0, 1]), (2, 4, 4), "mixes samples"),
    "a mean over all": (node("ReduceMean", "x", "y"), (2, 4, 4), "mixes samples"),
    "an axis twice": (node("ReduceMean", "x", "y", axes=[1, -3]), (2, 4, 4), "names an axis twice"),
    "an axis beyond": (node("ReduceMax", "x", "y", axes=[4]), (2, 4, 4), "axis 4 of 4 dimensions"),
    "a mean of a constant": (node("ReduceMean", "W", "y"), (2, 4, 4), "applied to a constant"),
    "a slice of the batch": (node("Slice", "x zero one zero", "y"), (2, 4, 4), "mixes samples"),
    "a slice of nothing": (node("Slice", "x one one one", "y"), (2, 4, 4), "nothing is left"),
    "a slice in no steps": (node("Slice", "x zero one one zero", "y"), (2, 4, 4), "with the steps"),
    "a slice along an axis twice": (node("Slice", "x both both both", "y"), (2, 4, 4), "parts along the axes"),
    "a gather beyond": (node("Gather", "x nine", "y", axis=1), (2, 4, 4), "that are not there"),
    "a gather of the batch": (node("Gather", "x zero", "y"), (2, 4, 4), "mixes samples"),
    "a gather that flows": (node("Gather", "x x", "y"), (2, 4, 4), "depends on the input"),
    "a gather of floats": (node("Gather", "x W", "y", axis=1), (2, 4, 4), "whole numbers"),
    "a split of the batch": (node("Split", "x", "y z"), (2, 4, 4), "mixes samples"),
    "a split in other parts": (node("Split", "x both", "y z", axis=2), (2, 4, 4), "in parts of"),
    "a split in unequal parts": (node("Split", "x", "y z w", axis=2), (2, 4, 4), "no 3 equal parts"),
    "a split of a constant": (node("Split", "W", "y z"), (2, 4, 4), "a constant is split"),
    "pads of the batch": (node("Pad", "x batch", "y"), (2, 4, 4), "it pads axis 0"),
    "pads of other dimensions": (node("Pad", "x both", "y"), (2, 4, 4), "2 pads for 4 axes"),
    "pads of too many numbers": (node("Pad", "x huge", "y"), (2, 4, 4), "pads of"),
    "pads that cut off all": (node("Pad", "x cut", "y"), (2, 4, 4), "pads of"),
    "mirrors beyond": (node("Pad", "x mirror", "y", mode="reflect"), (2, 4, 4), "in the mode reflect"),
    "another mode": (node("Pad", "x mirror", "y", mode="symmetric"), (2, 4, 4), "'mode' is 'symmetric'"),
    "padding with many numbers": (node("Pad", "x mirror W", "y"), (2, 4, 4), "something else than one constant"),
    "put together along the batch": (node("Concat", "x x", "y", axis=0), (2, 4, 4), "mixes samples"),
    "blocks that do not divide": (node("DepthToSpace", "x", "y", blocksize=2), (2, 4, 4), "no blocks of 2 x 2"),
    "blocks of nothing": (node("SpaceToDepth", "x", "y", blocksize=0), (2, 4, 4), "blocks of 0"),
    "squares that do not divide": (node("SpaceToDepth", "x", "y", blocksize=3), (2, 4, 4), "no blocks of 3 x 3"),
    "expanded": (node("Expand", "x five", "y"), (2, 4, 4), "which is not read"),
    "some of the largest": (node("TopK", "x one", "y places", axis=1), (2, 4, 4), "only a sort along an axis is read"),
    "slopes that flow": (node("PRelu", "x x", "y"), (2, 4, 4), "depend on the input"),
    "slopes with a function": (node("PRelu", "slopes x", "y"), (2, 4, 4), "its slopes depend on the input"),
}
WRONG_NUMBERS = CONV | {
    "W3": quarters(Random(61), 4, 2, 3),
    "W5": quarters(Random(61), 4, 2, 3, 3, 3),
    "N": np.ones((4, 2, 3, 3), np.int64),
    "E": np.zeros((4, 2, 0, 3), np.float32),
    "three": quarters(Random(62), 3),
    "zero": whole(0),
    "one": whole(1),
    "both": whole(1, 1, 1)[:2],
    "nine": whole(9),
    "batch": whole(1, 0, 0, 0, 0, 0, 0, 0),
    "huge": whole(0, 0, 2**40, 0, 0, 0, 0, 0),
    "cut": whole(0, 0, -2, 0, 0, 0, -2, 0),
    "mirror": whole(0, 0, 4, 0, 0, 0, 0, 0),
    "five": whole(5, 1, 1, 1),
    "slopes": np.array([[[0.5]], [[0.25]]], np.float32),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_not_understood_is_refused(case):
    made, shape, said = WRONG[case]
    refused(rf"node 0 \({made.op_type}\): .*{said}", [made], WRONG_NUMBERS, shape=("N", *shape))


def test_a_fixed_batch_is_no_image():
    made = node("Conv", "x W", "y")
    refused("something else than one sample of a batch", [made], CONV, shape=(3, 2, 4, 4))


def test_a_cycle_is_refused():
    nodes = [node("Add", "x b", "a"), node("Relu", "a", "b"), node("Identity", "b", "y")]
    refused(r"node 0 \(Add\): the value 'b' is used before it is computed \(a cycle\?\)", nodes)


def test_places_of_a_sort_are_no_values():
    nodes = [node("TopK", "x k", "s p"), node("Cast", "p", "c", to=1), node("Add", "s c", "y")]
    refused(r"node 1 \(Cast\): the value 'p' is", nodes, {"k": whole(3)})


# -- small files that ask for much -------------------------------------------------------------------------------------


def doubled(count):
    """The sum x + x, and that twice, …: as many paths as 2^count."""
    return [node("Add", f"v{i} v{i}", f"v{i + 1}") for i in range(count)]


def many(op, count, more="", **attributes):
    names = ["x", *(f"v{i}" for i in range(1, count)), "y"]
    return [node(op, f"{a} {more}", b, **attributes) for a, b in itertools.pairwise(names)]


def image(side=128):
    return ("N", 1, side, side)


GREEDY = {
    "paths": (("N", 3), [node("Identity", "x", "v0"), *doubled(5000), node("Identity", "v5000", "y")], {}),
    "terms": (("N", 3), [node("Sum", "x " * 100_000, "y")], {}),
    "parts": (("N", 3), [node("Concat", "x " * 100_000, "y", axis=1)], {}),
    "parts of parts": (
        ("N", 3),
        [node("Concat", " ".join(["x" if not i else f"v{i}"] * 100), f"v{i + 1}", axis=1) for i in range(6)]
        + [node("Identity", "v6", "y")],
        {},
    ),
    "many convolutions": (image(), many("Conv", 5000, "W", pads=[1] * 4), {"W": array(1, 1, 3, 3)}),
    "many pools": (image(), many("MaxPool", 5000, kernel_shape=[3, 3], pads=[1] * 4), {}),
    "many means": (image(60), many("AveragePool", 5000, kernel_shape=[3, 3], pads=[1] * 4), {}),
    "many orders": (image(), many("Transpose", 9000, perm=[0, 1, 3, 2]), {}),
    "many parts": (
        image(1024),
        [node("Slice", f"x a{i} b{i} two", f"v{i}") for i in range(900)]
        + [node("Sum", " ".join(f"v{i}" for i in range(200)), "y")],
        {f"a{i}": whole(i) for i in range(900)} | {f"b{i}": whole(i + 1) for i in range(900)} | {"two": whole(2)},
    ),
    "many layers": (image(), many("Relu", 9000), {}),
    "a large grid": (image(1024), [node("Conv", "x W", "y")], {"W": array(64, 1, 1, 1)}),
    "a large window": (image(), [node("Conv", "x W", "y", pads=[63] * 4)], {"W": array(1, 1, 127, 127)}),
    "a large gather": (image(), [node("Gather", "x g", "y", axis=1)], {"g": np.zeros((100, 100), np.int64)}),
    "shifts before padding": (
        image(64),
        [
            node("Relu", "x", "v0"),
            *itertools.chain.from_iterable(
                [node("Add", f"v{i} c", f"w{i}"), node("Conv", f"w{i} W", f"v{i + 1}", pads=[1] * 4)]
                for i in range(300)
            ),
            node("Identity", "v300", "y"),
        ],
        {"W": array(1, 1, 3, 3), "c": array(64, 64)},
    ),
}


@pytest.mark.parametrize("case", GREEDY)
def test_a_small_file_does_not_take_long(case, monkeypatch):
    """With a limit that is lower than usual: what is refused is refused soon, and there is always a message."""
    shape, nodes, constants = GREEDY[case]
    made = model(nodes, constants, shape=shape)
    monkeypatch.setattr(tensors, "MAX_WORK", 2**21)
    start = time.process_time()
    with pytest.raises(InputError):
        read(made)
    assert time.process_time() - start < 10


def test_terms_of_terms_are_added_up():
    """Two hundred thousand of them are one map: x + 3·255·256·x."""
    network = read(model([node("Sum", "x " * 256, "v0"), *many("Sum", 3, "v0 " * 255)]))
    assert computed(network, np.array([[1, 0, -1]], np.float32)).tolist() == [[195_841, 0, -195_841]]


def test_a_graph_may_have_many_branches():
    """Some hundred of them, as large networks have."""
    nodes = [node("Relu", "x", "v0")]
    for i in range(150):
        nodes += [
            node("MatMul", f"v{i} W", f"a{i}"),
            node("Relu", f"a{i}", f"b{i}"),
            node("Add", f"b{i} v{i}", f"v{i + 1}"),
        ]
    network = read(model([*nodes, node("Identity", "v150", "y")], {"W": array(3, 3)}))
    assert len(network.layers) == 1 + 150 + 150
    assert not network.is_chain
