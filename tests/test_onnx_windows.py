"""ONNX operators on images, one by one, with all their settings: what the network computes is what onnxruntime does."""

import itertools
from fractions import Fraction
from random import Random

import numpy as np
import pytest

from intervalcert.model.linear_maps import ChannelWise, Convolution, Dense
from tests.onnx_graphs import computed, network_or_refusal, quarters
from tests.onnx_models import model, node, read, refused, run, whole

# -- windows -----------------------------------------------------------------------------------------------------------


def settings(random, sides, *, dilated=True):
    """A window, and attributes of a node for it."""
    size, found = [random.randint(1, 3) for _ in range(sides)], {}
    if random.random() < 0.7:
        found["strides"] = [random.randint(1, 3) for _ in range(sides)]
    if dilated and random.random() < 0.5:
        found["dilations"] = [random.randint(1, 2) for _ in range(sides)]
    kind = random.random()
    if kind < 0.5:
        found["pads"] = [random.randint(0, 2) for _ in range(2 * sides)]
    elif kind < 0.75:
        found["auto_pad"] = random.choice(["SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"])
    return size, found


def compared(made, inputs, *known):
    """Whether onnxruntime and the network both compute something, which is then the same."""
    try:
        expected = run(made, inputs)
    except Exception:  # it has errors of its own
        expected = np.zeros(0)
    network = network_or_refusal(made, "is larger than", *known)
    if network is None or not expected.size:
        return False
    found = computed(network, inputs)
    assert found.shape == expected.shape
    assert np.abs(found - expected).max() <= 1e-6 * (1 + np.abs(expected).max()), made.graph.node[0]
    return True


SAME = "is computed in different ways"


def test_convolutions_with_all_settings():
    """Onnxruntime takes no dilations together with auto_pad, and has outputs of no number; all else must agree."""
    agreed = 0
    for seed in range(300):
        random = Random(seed)
        sides, groups = random.choice([1, 2, 2]), random.choice([1, 1, 2, 3])
        channels, outputs = (groups * random.randint(1, 2) for _ in range(2))
        shape = (channels, *(random.randint(1, 6) for _ in range(sides)))
        size, attributes = settings(random, sides)
        constants = {"W": quarters(random, outputs, channels // groups, *size), "b": quarters(random, outputs)}
        attributes |= {"kernel_shape": size} if random.random() < 0.5 else {}
        attributes |= {"group": groups} if groups > 1 or random.random() < 0.3 else {}
        conv = node("Conv", random.choice(["x W", "x W b"]), "z", **attributes)
        made = model([conv, node("Flatten", "z", "y")], constants, shape=("N", *shape))
        agreed += compared(made, quarters(random, 2, *shape), SAME)
    assert agreed > 200


@pytest.mark.parametrize(("op", "opsets"), [("MaxPool", (10, 11, 12, 17, 22)), ("AveragePool", (10, 11, 17, 19, 22))])
def test_pools_with_all_settings(op, opsets):
    """Whatever padding counts, and however a last window sticks out."""
    agreed = 0
    for seed in range(400):
        random = Random(seed)
        sides, opset = random.choice([1, 2, 2]), random.choice(opsets)
        shape = (random.randint(1, 3), *(random.randint(1, 6) for _ in range(sides)))
        size, attributes = settings(random, sides, dilated=op == "MaxPool" or opset >= 19)
        for name in ("ceil_mode", *(["count_include_pad"] if op == "AveragePool" else [])):
            attributes |= {name: random.randint(0, 1)} if random.random() < 0.5 else {}
        made = model(
            [node(op, "x", "z", kernel_shape=size, **attributes), node("Flatten", "z", "y")],
            shape=("N", *shape),
            opset=opset,
        )
        agreed += compared(made, quarters(random, 2, *shape), SAME, "sees nothing at all")
    assert agreed > 150


def test_means_of_torch():
    """With ceil_mode and padding that counts, a window is divided by what is within the padded input."""
    torch = pytest.importorskip("torch", reason="the package torch is not installed")
    pool = torch.nn.functional.avg_pool2d
    for side, size, stride, pad, ceil, counts in itertools.product(
        (4, 5, 7), (2, 3), (1, 2, 3), (0, 1), (False, True), (False, True)
    ):
        x = quarters(Random(side), 1, 2, side, side)
        expected = pool(torch.from_numpy(x.astype(np.float64)), size, stride, pad, ceil, counts).numpy()
        attributes = {
            "strides": [stride] * 2,
            "pads": [pad] * 4,
            "ceil_mode": int(ceil),
            "count_include_pad": int(counts),
        }
        nodes = [node("AveragePool", "x", "z", kernel_shape=[size] * 2, **attributes), node("Flatten", "z", "y")]
        network = read(model(nodes, shape=("N", 2, side, side)))
        assert np.allclose(computed(network, x), expected.reshape(1, -1), rtol=1e-14, atol=1e-14)


def last_map(nodes, constants=None, **options):
    (term,) = read(model([*nodes, node("Flatten", "z", "y")], constants, **options)).layers[-1].terms
    return term.map


@pytest.mark.parametrize(
    ("attributes", "kind"),
    [
        ({}, Convolution),
        ({"pads": [1, 1, 1, 1], "count_include_pad": 1}, Convolution),
        ({"pads": [1, 1, 1, 1]}, ChannelWise),
        ({"strides": [2, 2], "ceil_mode": 1}, ChannelWise),
        ({"strides": [2, 2], "ceil_mode": 1, "pads": [1, 0, 0, 0], "count_include_pad": 1}, ChannelWise),
        ({"strides": [3, 3]}, Convolution),
    ],
)
def test_means_are_convolutions_where_all_are_divided_by_one_number(attributes, kind):
    found = last_map([node("AveragePool", "x", "z", kernel_shape=[2, 2], **attributes)], shape=("N", 3, 5, 5))
    assert type(found) is kind
    if kind is Convolution:
        assert found.groups == 3
        assert {found.kernel[i, j] for i in range(3) for j in range(4)} == {Fraction(1, 4)}


# -- everything else, one by one ---------------------------------------------------------------------------------------

IMAGE = (4, 3, 2)
NUMBERS = {
    "a": quarters(Random(1), 4, 1, 1),
    "three": whole(3),
    "axis": whole(1),
    "axes": whole(2, 3),
    "all": whole(1, 2, 3),
    "last": whole(-1),
    "ends": whole(1, -1),
    "parts": whole(1, 3),
    "ones": whole(1, 1, 1, 1),
    "from": whole(1, 0),
    "to": whole(100, -1),
    "along": whole(1, 2),
    "by": whole(2, 1),
    "down": whole(-1, 2),
    "end": whole(-(2**62), 0),
    "back": whole(-1, -1),
    "begin": whole(0),
    "far": whole(2**63 - 1),
    "batch": whole(0),
    "pads": whole(0, 0, 1, 2, 0, 0, 2, 1),
    "crop": whole(0, -1, 1, 0, 0, 1, -1, 2),
    "edges": whole(1, 0, 1, 2),
    "below": whole(0, 0, 1, 0),
    "around": whole(0, 1, 2, 1, 0, 2, 1, 1),
    "value": np.array(0.75, np.float32),
    "order": whole(2, 0, -1, 1),
    "twice": np.array([[0, 3], [1, 0]]),
    "one": np.array(2),
    "slope": np.full((4, 1, 1), 0.25, np.float32),
    "slopes": np.array([0.25, 1.5, -0.5, 0.0], np.float32).reshape(4, 1, 1),
    "slopes_of_places": np.arange(-2, 4, dtype=np.float32).reshape(1, 3, 2) / 8,
    "four": whole(4),
    "zero": np.array(0.0, np.float32),
    "half": np.array([0.5], np.float32),
}
SINGLE = {
    "a sum over sides": (11, [node("ReduceSum", "x", "z", axes=[2, 3])]),
    "a sum over sides, later": (17, [node("ReduceSum", "x axes", "z", keepdims=0)]),
    "a sum over channels": (13, [node("ReduceSum", "x axis", "z")]),
    "a sum over nothing": (13, [node("ReduceSum", "x", "z", noop_with_empty_axes=1)]),
    "a mean over sides": (17, [node("ReduceMean", "x", "z", axes=[-1, -2])]),
    "a mean over rows": (17, [node("ReduceMean", "x", "z", axes=[2], keepdims=0)]),
    "a mean over channels": (17, [node("ReduceMean", "x", "z", axes=[1])]),
    "a mean over channels and columns": (18, [node("ReduceMean", "x ends", "z")]),
    "a maximum over sides": (13, [node("ReduceMax", "x", "z", axes=[2, 3])]),
    "a minimum over columns": (18, [node("ReduceMin", "x last", "z", keepdims=0)]),
    "a maximum over channels": (18, [node("ReduceMax", "x axis", "z")]),
    "a global maximum": (17, [node("GlobalMaxPool", "x", "z")]),
    "a global mean": (17, [node("GlobalAveragePool", "x", "z")]),
    "another order": (17, [node("Transpose", "x", "z", perm=[0, 3, 1, 2])]),
    "a slice": (9, [node("Slice", "x", "z", starts=[1, 0], ends=[100, -1], axes=[1, 2])]),
    "a slice in steps": (17, [node("Slice", "x from to along by", "z")]),
    "a slice backwards": (17, [node("Slice", "x back end along back", "z")]),
    "a slice of the whole batch": (17, [node("Slice", "x begin far batch", "s"), node("Relu", "s", "z")]),
    "some of them": (17, [node("Gather", "x order", "z", axis=1)]),
    "some of them twice": (17, [node("Gather", "x twice", "z", axis=1)]),
    "one of them": (17, [node("Gather", "x one", "z", axis=1)]),
    "two parts": (13, [node("Split", "x parts", "p q", axis=1), node("Neg", "q", "z")]),
    "two equal parts": (12, [node("Split", "x", "p q", axis=1), node("Add", "p q", "z")]),
    "two parts as an attribute": (12, [node("Split", "x", "p q", axis=1, split=[1, 3]), node("Neg", "q", "z")]),
    "parts by their number": (18, [node("Split", "x", "p q", axis=2, num_outputs=2), node("Relu", "q", "z")]),
    "put together": (17, [node("Neg", "x", "n"), node("Concat", "n x n", "z", axis=2)]),
    "put together from the end": (17, [node("Relu", "x", "n"), node("Concat", "n x", "z", axis=-3)]),
    "zeros around": (17, [node("Pad", "x pads", "z")]),
    "zeros around, at first": (10, [node("Pad", "x", "z", pads=[0, 0, 1, 2, 0, 0, 2, 1])]),
    "numbers around, at first": (10, [node("Pad", "x", "z", pads=[0, 0, 1, 2, 0, 0, 2, 1], value=0.75)]),
    "numbers around": (17, [node("Pad", "x pads value", "z")]),
    "zeros around, and parts": (17, [node("Pad", "x crop", "z")]),
    "zeros along some axes": (18, [node("Pad", "x edges _ axes", "z")]),
    "edges around": (17, [node("Pad", "x pads", "z", mode="edge")]),
    "mirrors around": (17, [node("Pad", "x around", "p"), node("Pad", "p around", "z", mode="reflect")]),
    "the other end around": (19, [node("Pad", "x around", "z", mode="wrap")]),
    "depth to space": (11, [node("DepthToSpace", "x", "z", blocksize=2)]),
    "depth to space, by columns": (13, [node("DepthToSpace", "x", "z", blocksize=2, mode="CRD")]),
    "space to depth": (18, [node("Pad", "x below _ axes", "p"), node("SpaceToDepth", "p", "z", blocksize=2)]),
    "expanded to itself": (17, [node("Expand", "x ones", "z")]),
    "a difference of values": (17, [node("Relu", "x", "r"), node("Sub", "r x", "z")]),
    "a sum of one": (17, [node("Sum", "x", "z")]),
    "a sum of three": (17, [node("Relu", "x", "r"), node("Sum", "r x r", "z")]),
    "a sum with constants": (17, [node("Sum", "a x half", "z")]),
    "the same twice": (17, [node("Add", "x x", "z")]),
    "one slope": (17, [node("PRelu", "x slope", "z")]),
    "a slope of each channel": (17, [node("PRelu", "x slopes", "z")]),
    "a slope of each place": (17, [node("PRelu", "x slopes_of_places", "z")]),
    "one slope, a number": (17, [node("PRelu", "x half", "z")]),
    "in order": (17, [node("TopK", "x four", "z places", axis=1)]),
    "in order upwards": (17, [node("TopK", "x three", "z places", axis=2, largest=0)]),
    "at least zero": (17, [node("Max", "x zero", "z")]),
    "at most a half": (17, [node("Min", "half x", "z")]),
    "a maximum of one": (17, [node("Max", "x", "z")]),
    "a maximum of parts": (
        17,
        [
            node("Gather", "x order", "g", axis=1),
            node("Max", "g x", "m"),
            node("Min", "x g", "n"),
            node("Sub", "m n", "z"),
        ],
    ),
}


@pytest.mark.parametrize("case", SINGLE)
def test_each_operator_computes_what_onnxruntime_does(case):
    """On an image, and on what a convolution makes of one."""
    opset, nodes = SINGLE[case]
    last = node("Flatten", "z", "y")
    moved = [type(part)() for part in nodes]
    for made, part in zip(moved, nodes, strict=True):
        made.CopyFrom(part)
        made.input[:] = ["h" if name == "x" else name for name in part.input]
    conv = node("Conv", "x W b", "h", pads=[1, 1, 1, 1])
    constants = NUMBERS | {"W": quarters(Random(2), 4, 4, 3, 3), "b": quarters(Random(3), 4)}
    inputs = quarters(Random(4), 3, *IMAGE)
    for graph in ([*nodes, last], [conv, *moved, last]):
        made = model(graph, constants, shape=("N", *IMAGE), opset=opset)
        network = read(made)
        assert np.abs(computed(network, inputs) - run(made, inputs)).max() <= 1e-5


# -- MinMax ------------------------------------------------------------------------------------------------------------

HALVES = [node("Slice", "h zero two one", "a"), node("Slice", "h two far one", "b")]
STEPS = [node("Slice", "h zero far one by", "a"), node("Slice", "h one far one by", "b")]
PLACES = {"zero": whole(0), "one": whole(1), "two": whole(2), "far": whole(2**40), "by": whole(2), "three": whole(3)}
KERNEL = quarters(Random(5), 4, 2, 3, 3)


def min_max(parts, *order):
    conv = node("Conv", "x W", "h")
    ends = [node("Max", "a b", "most"), node("Min", "a b", "least"), node("Concat", " ".join(order), "z", axis=1)]
    return [conv, *parts, *ends, node("Conv", "z V", "c"), node("Flatten", "c", "y")]


@pytest.mark.parametrize(
    ("parts", "order", "name"),
    [
        (HALVES, ("least", "most"), "group_sort:2:8"),
        (HALVES, ("most", "least"), "group_sort:2:8:descending"),
        (STEPS, ("least", "most"), "group_sort:2:4"),
        (STEPS, ("most", "least"), "group_sort:2:4"),
        ([node("Split", "h", "a b", axis=1)], ("least", "most"), "group_sort:2:8"),
        ([node("Split", "h", "b a", axis=1)], ("most", "least"), "group_sort:2:8:descending"),
        (
            [node("Gather", "h even", "a", axis=1), node("Gather", "h odd", "b", axis=1)],
            ("least", "most"),
            "group_sort:2:4",
        ),
    ],
)
def test_min_max_is_a_sorting_of_pairs(parts, order, name):
    """Whatever the halves are, and in which order they come out: one layer, which the next takes as it is."""
    constants = PLACES | {"W": KERNEL, "V": quarters(Random(6), 3, 4, 2, 2), "even": whole(0, 2), "odd": whole(1, 3)}
    made = model(min_max(parts, *order), constants, shape=("N", 2, 4, 4), opset=13)
    network = read(made)
    assert network.activations == (name, None)
    assert network.is_chain
    assert [type(layer.terms[0].map) for layer in network.layers] == [Convolution, Dense]
    inputs = quarters(Random(7), 3, 2, 4, 4)
    assert np.array_equal(computed(network, inputs), run(made, inputs))


def test_min_max_after_roots():
    """The factors of a batch normalisation before it stay in the layer that is sorted."""
    nodes = min_max(HALVES, "least", "most")
    nodes[1:1] = [node("BatchNormalization", "h g q m v", "n")]
    for part in nodes[2:4]:
        part.input[0] = "n"
    constants = PLACES | {"W": KERNEL, "V": quarters(Random(6), 3, 4, 2, 2)}
    constants |= {name: quarters(Random(8), 4) for name in "gqm"} | {"v": np.array([1, 2, 3, 5], np.float32)}
    network = read(model(nodes, constants, shape=("N", 2, 4, 4)))
    assert network.activations == ("group_sort:2:8", None)
    assert network.layers[0].before is not None


def test_a_maximum_of_two_other_values_is_refused():
    nodes = [node("Relu", "x", "r"), node("Tanh", "x", "t"), node("Max", "r t", "y")]
    refused(r"\(Max\): of two values that depend on the input it is read only if they are parts of one.*MinMax", nodes)
    nodes[2] = node("Min", "r t x", "y")
    refused(r"\(Min\): 2 inputs are expected", nodes)


# -- parts beyond the ends ---------------------------------------------------------------------------------------------

ENDS = (-(2**63), -1000, -100, *range(-7, 8), 100, 1000, 2**31 - 1)


def test_slices_from_and_to_anywhere():
    """Backwards, a start before the first entry is the first entry, which it is not in Python."""
    agreed = 0
    for seed in range(300):
        random = Random(seed)
        axis, step = random.choice([1, 2, -1]), random.choice([-3, -2, -1, 1, 2])
        start, end = random.choice(ENDS), random.choice(ENDS if step > 0 else ENDS[:-1])
        numbers = {"s": whole(start), "e": whole(end), "a": whole(axis), "k": whole(step)}
        made = model([node("Slice", "x s e a k", "z"), node("Flatten", "z", "y")], numbers, shape=("N", 2, 5))
        inputs = quarters(random, 2, 2, 5)
        taken = compared(made, inputs, "nothing is left")
        assert taken or not run(made, inputs).size, numbers
        agreed += taken
    assert agreed > 100


@pytest.mark.parametrize(
    ("start", "places"), [(-100, [0]), (-6, [0]), (-5, [0]), (-1, [4, 3, 2, 1, 0]), (7, [4, 3, 2, 1, 0])]
)
def test_a_slice_backwards_begins_at_the_first_entry_at_least(start, places):
    numbers = {"s": whole(start), "e": whole(-1000), "a": whole(2), "k": whole(-1)}
    network = read(model([node("Slice", "x s e a k", "z"), node("Flatten", "z", "y")], numbers, shape=("N", 2, 5)))
    x = quarters(Random(5), 1, 2, 5)
    assert computed(network, x).tolist() == x[:, :, places].reshape(1, -1).tolist()


def test_parts_of_constants_begin_there_too():
    numbers = {"C": quarters(Random(6), 5, 3), "s": whole(-100), "e": whole(-1000), "a": whole(0), "k": whole(-1)}
    made = model([node("Slice", "C s e a k", "d"), node("Gemm", "x d", "y", transB=1)], numbers)
    x = quarters(Random(7), 2, 3)
    assert compared(made, x)
    assert computed(read(made), x).shape == (2, 1)


@pytest.mark.parametrize("pool", ["GlobalMaxPool", "ReduceMean", "Relu"])
def test_slices_of_nothing_are_refused(pool):
    """Whatever comes after them."""
    numbers = {"s": whole(3), "e": whole(3), "a": whole(2), "k": whole(-1)}
    nodes = [node("Slice", "x s e a k", "z"), node(pool, "z", "y", **({"axes": [2]} if pool == "ReduceMean" else {}))]
    refused(r"node 0 \(Slice\): nothing is left of axis 2 of \[batch, 2, 5, 4\]", nodes, numbers, shape=("N", 2, 5, 4))


def test_pads_of_either_sign():
    """As onnxruntime pads and cuts; refused, where nothing is left of an axis before something is added."""
    agreed = 0
    for seed in range(300):
        random = Random(seed)
        pads = [0, 0, *(random.randint(-4, 3) for _ in range(2)), 0, 0, *(random.randint(-4, 3) for _ in range(2))]
        made = model([node("Pad", "x p", "z"), node("Flatten", "z", "y")], {"p": whole(*pads)}, shape=("N", 2, 3, 4))
        is_left = all(side + min(pads[i], 0) + min(pads[i + 4], 0) > 0 for i, side in ((2, 3), (3, 4)))
        taken = compared(made, quarters(random, 2, 2, 3, 4), "pads of")
        assert taken == is_left, pads
        agreed += taken
    assert agreed > 100
