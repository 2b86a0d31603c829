"""ONNX files that are damaged, or meant to do damage: a clear message, exit code 3, soon and in little memory."""

import itertools
import os
import random
import shutil
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from intervalcert import InputError, UsageError, load_model
from intervalcert.backends.registry import get_backend, precision_ladder
from intervalcert.bounds import margin_bounds
from intervalcert.bounds.norm_bounds import Plan
from intervalcert.io.models import onnx_file, onnx_graph, tensors
from intervalcert.io.models.assembly import Assembly
from intervalcert.model.evaluation import Evaluator
from tests.commands import ran
from tests.onnx_models import array, layers_of, model, node, onnx, read, refused, saved, tensor, whole

FIXTURES = Path(__file__).parent / "fixtures"
FIXTURE, EXTERNAL = FIXTURES / "mlp_torchscript_exporter.onnx", FIXTURES / "mlp_dynamo_external.onnx"
W = array(3, 4)
LINEAR = node("MatMul", "x W", "y")


def linear(**options):
    return model([LINEAR], {"W": W}, **options)


# -- damaged -----------------------------------------------------------------------------------------------------------


STEMS = ("mlp_torchscript_exporter", "image_unfolded", "image_tf2onnx_shape", "zoo_relu6_dynamo")


def content_or_message(path):
    """What is in a file, or why it is refused."""
    try:
        return load_model(path).content, None
    except (InputError, UsageError) as error:
        return None, str(error)


@pytest.mark.parametrize("stem", STEMS)
def test_a_truncated_file_is_refused_or_complete(tmp_path, stem):
    """At every tenth byte. What is cut off at the very end may be something that means nothing."""
    data = (FIXTURES / f"{stem}.onnx").read_bytes()
    path, expected, refusals = tmp_path / "m.onnx", load_model(FIXTURES / f"{stem}.onnx").content, 0
    ends = range(0, len(data), 10)
    for end in ends:
        path.write_bytes(data[:end])
        content, message = content_or_message(path)
        assert content == expected if message is None else str(path) in message
        refusals += message is not None
    assert refusals > len(ends) - 5


def test_a_damaged_file_gives_exit_code_3(tmp_path, capsys):
    path = tmp_path / "m.onnx"
    for end in (0, 1, 100, 700):
        path.write_bytes(FIXTURE.read_bytes()[:end])
        code, out, said = ran(capsys, "inspect", path)
        assert (code, out) == (3, "")
        assert str(path) in said
        assert "Traceback" not in said


def test_random_damage_is_never_a_fault_of_the_program(tmp_path):
    """A byte or two of a real file are changed: it is refused, or read as whatever it says now."""
    draw, path = random.Random(11), tmp_path / "m.onnx"
    files = [path.read_bytes() for path in sorted(FIXTURES.glob("*.onnx")) if path != EXTERNAL]
    refusals = 0
    for _ in range(1500):
        data = bytearray(draw.choice(files))
        for _ in range(draw.choice([1, 1, 2, 5])):
            place = draw.randrange(1, len(data))
            data[place] = draw.choice([data[place] ^ 1 << draw.randrange(8), draw.randrange(256), 0, 255])
        path.write_bytes(data)
        _, message = content_or_message(path)
        assert message is None or str(path) in message
        refusals += message is not None
    assert 100 < refusals < 1400


def test_a_file_of_something_else_is_refused(tmp_path):
    for data, said in (
        (b"\x08\x08" + b"\xff" * 20, "not a complete ONNX model"),
        (b"\x08\x08", "no graph with nodes"),
        (b"\x00" * 50, "not a complete ONNX model"),
        (b"[[1,2],[3,4]]", "it looks like text"),
    ):
        (tmp_path / "m.onnx").write_bytes(data)
        with pytest.raises(InputError, match=said):
            load_model(tmp_path / "m.onnx")


def test_fields_that_nobody_knows_are_refused(tmp_path):
    """Protobuf would leave them out in silence."""
    data = linear().SerializeToString()
    (tmp_path / "m.onnx").write_bytes(data)
    assert load_model(tmp_path / "m.onnx").outputs == 4
    (tmp_path / "m.onnx").write_bytes(data + b"\xf8\x07\x01")  # field 127, a number
    with pytest.raises(InputError, match=r"fields that ONNX .* does not know"):
        load_model(tmp_path / "m.onnx")


@pytest.mark.parametrize("text", [b"Gemm", b"nnnn", b"WWWW", b"transB", b"ai.onnx"])
@pytest.mark.parametrize("last", [False, True])
def test_names_are_text(tmp_path, text, last):
    """The first or the last time that it stands there: the initialisers come after the nodes."""
    made = model([node("Gemm", "x WWWW", "y", name="nnnn", transB=0)], {"WWWW": W})
    made.opset_import[0].domain = "ai.onnx"
    good, path = made.SerializeToString(), tmp_path / "m.onnx"
    path.write_bytes(good)
    assert load_model(path).outputs == 4
    place = good.rindex(text) if last else good.index(text)
    path.write_bytes(good[:place] + b"\xff" * len(text) + good[place + len(text) :])
    with pytest.raises(InputError, match=r"not UTF-8|does not say which version"):
        load_model(path)


# -- versions ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opset", [1, 6, 29, 1000])
def test_other_versions_of_the_operators_are_refused(opset):
    refused(rf"operators of version {opset}; 7 to 28 are understood", [LINEAR], {"W": W}, opset=opset)


@pytest.mark.parametrize("version", [0, 2, 15, 2**40])
def test_other_versions_of_the_format_are_refused(version):
    made = linear()
    made.ir_version = version
    with pytest.raises(InputError, match=rf"a file of version {version} of ONNX; 3 to 14 are understood"):
        read(made)


def test_one_version_of_the_operators_is_named():
    made = linear()
    made.opset_import.add(domain="ai.onnx", version=17)  # another name of the same
    made.opset_import.add(domain="com.microsoft", version=1)
    assert read(made).outputs == 4
    made.opset_import[1].version = 18
    with pytest.raises(InputError, match="names 2 versions of the operators"):
        read(made)
    del made.opset_import[:2]
    with pytest.raises(InputError, match="does not say which version of the operators"):
        read(made)


# -- graphs ------------------------------------------------------------------------------------------------------------

GRAPHS = {
    "a cycle": (
        [node("Add", "x b", "a"), node("Add", "y W", "b"), node("Relu", "a", "y")],
        r"used before it is computed \(a cycle",
    ),
    "itself": ([node("Add", "y W", "y")], "used before it is computed"),
    "another order": (
        [node("Relu", "z", "y"), node("Neg", "x", "z")],
        r"node 0 \(Relu\): the value 'z' is used before",
    ),
    "a missing value": ([node("MatMul", "x V", "y")], r"node 0 \(MatMul\): the value 'V' is missing"),
    "no output": ([node("MatMul", "x W", "z")], "nothing computes the output 'y'"),
    "two of a name": ([node("Neg", "x", "y"), node("Relu", "x", "y")], "the value 'y' is defined twice"),
    "an output that is the input": ([node("Neg", "x", "x")], "the value 'x' is defined twice"),
    "an output that is a constant": ([node("Neg", "x", "W"), LINEAR], "the value 'W' is defined twice"),
    "no inputs": ([node("MatMul", "", "y")], "2 inputs are expected, and 0 are given"),
    "an input left out": ([node("MatMul", "_ W", "y")], "2 inputs are expected, and 1 are given"),
    "many inputs": ([node("Gemm", "x W W W", "y")], "2 to 3 inputs are expected, and 4 are given"),
    "a nameless output": ([node("Dropout", "x", "_"), node("Identity", "x", "y")], None),
    "the second output": ([node("Dropout", "x", "d y")], None),
    "no operator": ([node("", "x", "y")], r"node 0 \(''\): this operator is not understood"),
    "a strange operator": ([node("a\nb", "x", "y")], r"node 0 \('a\\nb'\): this operator"),
}


@pytest.mark.parametrize("case", GRAPHS)
def test_graphs_that_make_no_sense(case):
    nodes, said = GRAPHS[case]
    if case == "the second output":
        nodes[0].output[0] = ""
        said = r"node 0 \(Dropout\): its first output is not used, but another one is"
    if said is None:
        assert read(model(nodes, {"W": W})).outputs == 3
        return
    refused(said, nodes, {"W": W})


def test_names_that_are_given_twice_or_not_at_all():
    made = linear()
    made.graph.initializer.add().CopyFrom(made.graph.initializer[0])
    with pytest.raises(InputError, match="two initialisers have the same name"):
        read(made)
    made = linear()
    made.graph.node[0].attribute.extend([onnx.helper.make_attribute("a", 1)] * 2)
    with pytest.raises(InputError, match=r"node 0 \(MatMul\): an attribute is given twice"):
        read(made)
    for output in ("", "W", "z"):
        made = linear()
        made.graph.output[0].name = output
        with pytest.raises(InputError, match=rf"output '{output}'( does not depend on the input)?$"):
            read(made)
    made = linear()
    made.graph.input[0].name = made.graph.node[0].input[0] = ""
    with pytest.raises(InputError, match="2 inputs are expected, and 1 are given"):
        read(made)


def test_an_output_may_be_the_input():
    made = linear()
    made.graph.output[0].name = "x"
    assert layers_of(read(made)) == layers_of(read(model([node("Identity", "x", "y")])))


@pytest.mark.parametrize(
    ("op", "said"),
    [
        ("LSTM", "recurrent layers"),
        ("MaxPool", "it has 2 outputs, where one is known"),
        ("LayerNormalization", "what it divides by"),
        ("If", "depends on a comparison"),
    ],
)
def test_an_operator_of_many_outputs_is_not_said_to_be_in_training(op, said):
    """It is not understood, and exporting the model again would not help; whatever else is wrong with the graph."""
    nodes = [onnx.helper.make_node(op, ["x"], ["a", "b"]), node("Add", "a b", "c"), node("MatMul", "c W", "y")]
    with pytest.raises(InputError, match=rf"\({op}\): .*{said}") as caught:
        read(model(nodes, {"W": W}))
    assert "training" not in str(caught.value)
    assert "inference" not in str(caught.value)


def test_more_outputs_than_are_known():
    nodes = [onnx.helper.make_node("Relu", ["x"], ["a", "b"]), node("MatMul", "a W", "y")]
    refused(r"\(Relu\): it has 2 outputs, where one is known", nodes, {"W": W})
    statistics = {name: array(3) for name in "gbmv"}
    nodes = [onnx.helper.make_node("BatchNormalization", ["x", *"gbmv"], ["a", "d", "e"]), node("MatMul", "a W", "y")]
    refused(r"\(BatchNormalization\): it has 3 outputs, as in training: .*model\.eval", nodes, {"W": W, **statistics})


def test_functions_and_sparse_numbers_are_refused():
    made = linear()
    made.functions.add(name="MatMul")
    with pytest.raises(InputError, match="functions of its own"):
        read(made)
    made = linear()
    made.graph.sparse_initializer.add()
    with pytest.raises(InputError, match="sparse initialisers"):
        read(made)
    made = linear()
    made.graph.node[0].overload = "other"
    with pytest.raises(InputError, match=r"\(MatMul\): an operator of"):
        read(made)


# -- numbers -----------------------------------------------------------------------------------------------------------


def changed(change):
    """The initialiser W, changed."""
    made = linear()
    change(made.graph.initializer[0])
    return made


def filled(**fields):
    def change(stored):
        stored.ClearField("raw_data")
        for name, value in fields.items():
            if isinstance(value, list):
                del getattr(stored, name)[:]
                getattr(stored, name).extend(value)
            else:
                setattr(stored, name, value)

    return change


NUMBERS = {
    "too few": (filled(raw_data=bytes(44)), "holds 48 bytes of numbers, but holds 44"),
    "too many": (filled(raw_data=bytes(52)), "holds 48 bytes of numbers, but holds 52"),
    "none": (filled(), "holds 12 numbers, but holds 0"),
    "too few in a list": (filled(float_data=[1.0] * 11), "holds 12 numbers, but holds 11"),
    "in two ways": (filled(float_data=[1.0] * 12, raw_data=bytes(48)), "stored twice"),
    "in a list of another type": (filled(double_data=[1.0] * 12), "holds 12 numbers, but holds 0"),
    "a huge shape": (filled(dims=[2**40, 2**40]), "at most 67108864 numbers"),
    "a huge shape that is empty": (filled(dims=[2**40, 2**40, 0]), "at most 67108864 numbers"),
    "a large shape": (filled(dims=[2**13, 2**13]), "holds 67108864 numbers, but holds 0"),
    "a negative side": (filled(dims=[-3, -4]), r"an array of shape \[-3, -4\]"),
    "many dimensions": (filled(dims=[1] * 70, raw_data=bytes(4)), "an array of 70 dimensions"),
    "texts": (filled(data_type=8), "numbers of type 8"),
    "complex numbers": (filled(data_type=14), "numbers of type 14"),
    "bfloat16": (filled(data_type=16), "numbers of type 16"),
    "no type": (filled(data_type=0), "numbers of type 0"),
    "an unknown type": (filled(data_type=77), "numbers of type 77"),
    "long bits of a float16": (filled(data_type=10, int32_data=[2**16] * 12), "a number that is none of its type"),
    "negative bits of a float16": (filled(data_type=10, int32_data=[-1] * 12), "a number that is none of its type"),
    "long bytes": (filled(data_type=2, int32_data=[256] * 12), "a number that is none of its type"),
    "another shape": (filled(dims=[4, 3], raw_data=bytes(48)), "a product of the shapes"),
}


@pytest.mark.parametrize("case", NUMBERS)
def test_numbers_are_just_as_many_as_are_declared(case):
    change, said = NUMBERS[case]
    with pytest.raises(InputError, match=rf"node 0 \(MatMul\): (the initialiser 'W'.*)?{said}"):
        read(changed(change))


def test_segments_are_refused():
    def change(stored):
        stored.segment.begin, stored.segment.end = 0, 12

    with pytest.raises(InputError, match="stored in segments"):
        read(changed(change))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", ["float16", "float32", "float64"])
@pytest.mark.parametrize("listed", [False, True])
def test_numbers_must_be_finite(value, kind, listed):
    values = np.ones((3, 2), kind)
    values[1, 1] = value
    made = model([LINEAR], {"W": values}, kind=kind)
    if listed:
        field = {"float16": "int32_data", "float32": "float_data", "float64": "double_data"}[kind]
        bits = values.view(np.uint16) if kind == "float16" else values
        filled(**{field: bits.ravel().tolist()})(made.graph.initializer[0])
    with pytest.raises(InputError, match=rf"node 0 \(MatMul\): the initialiser 'W': {value} at \[1, 1\]; every number"):
        read(made)


@pytest.mark.parametrize("shape", [(0, 4), (3, 0)])
def test_empty_matrices_are_refused(shape):
    refused(r"node 0 \(MatMul\): a (product|matrix of 0 numbers)", [LINEAR], {"W": np.zeros(shape, np.float32)})


# -- external data -----------------------------------------------------------------------------------------------------


@pytest.fixture
def external(tmp_path):
    """A copy of the model whose tensors are in a second file, and a way to change where they are said to be."""
    for path in (EXTERNAL, FIXTURES / f"{EXTERNAL.name}.data"):
        shutil.copy(path, tmp_path / path.name)

    def change(**entries):
        made = onnx.load(EXTERNAL, load_external_data=False)
        for stored in made.graph.initializer:
            kept = {entry.key: entry.value for entry in stored.external_data} | entries
            del stored.external_data[:]
            for key, value in kept.items():
                stored.external_data.add(key=key, value=value)
        return saved(made, tmp_path / EXTERNAL.name)

    return change


def test_external_data_is_read_and_named_as_a_source(external):
    network = load_model(external())
    assert network.content == load_model(FIXTURE).content
    assert [source.name for source in network.sources] == [EXTERNAL.name, f"{EXTERNAL.name}.data"]


PLACES = [
    "/etc/passwd",
    "../secret",
    "..",
    ".",
    "",
    "sub/data",
    "sub\\data",
    "C:data",
    "a\0b",
    "./mlp_dynamo_external.onnx.data",
]


@pytest.mark.parametrize("place", PLACES)
def test_external_data_is_beside_the_model(external, place):
    with pytest.raises(InputError, match="only a plain file beside the model is read"):
        load_model(external(location=place))


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"location": "nowhere"}, "cannot be read: No such file"),
        ({"location": "n" * 5000}, "cannot be read: File name too long"),
        ({"offset": "200"}, "ends before the external data does"),
        ({"offset": str(10**17)}, "ends before the external data does"),
        ({"offset": "-1"}, "'-1' is no place"),
        ({"offset": "1e3"}, "'1e3' is no place"),
        ({"offset": "٣"}, "is no place"),
        ({"offset": "9" * 5000}, "is no place"),
        ({"length": "4"}, "4 bytes of external data, where .* are declared"),
    ],
)
def test_external_data_is_where_the_model_says(external, entries, said):
    with pytest.raises(InputError, match=said):
        load_model(external(**entries))


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights there")
@pytest.mark.parametrize("link", [os.symlink, os.link, "folder", "pipe"])
def test_external_data_is_no_link(external, tmp_path, link):
    path = external()
    data = tmp_path / f"{EXTERNAL.name}.data"
    data.rename(tmp_path / "elsewhere")
    if link == "folder":
        data.mkdir()
    elif link == "pipe":
        os.mkfifo(data)
    else:
        link(tmp_path / "elsewhere", data)
    with pytest.raises(InputError, match=r"is a link; external data|is no plain file, or a link"):
        load_model(path)


def test_truncated_external_data_is_refused(external, tmp_path):
    path, data = external(), tmp_path / f"{EXTERNAL.name}.data"
    data.write_bytes(data.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"ends before the external data does \(is it truncated\?\)"):
        load_model(path)


def test_external_data_that_is_replaced_meanwhile_is_refused(external, monkeypatch):
    path = external()
    monkeypatch.setattr(onnx_file, "stamp_of", lambda _: (0, 0, 0))
    with pytest.raises(InputError, match="was changed while it was read"):
        load_model(path)


def test_a_place_is_given_once(external, tmp_path):
    made = onnx.load(external(), load_external_data=False)
    for stored in made.graph.initializer:
        stored.external_data.add(key="location", value="other")
    with pytest.raises(InputError, match="two places of external data"):
        load_model(saved(made, tmp_path / EXTERNAL.name))


def test_external_data_in_a_constant_is_read_the_same_way(tmp_path):
    made = model([node("Constant", "", "W", value=tensor(W)), LINEAR])
    stored = made.graph.node[0].attribute[0].t
    stored.ClearField("raw_data")
    stored.data_location = 1
    stored.external_data.add(key="location", value="numbers")
    (tmp_path / "numbers").write_bytes(W.tobytes())
    assert layers_of(load_model(saved(made, tmp_path / "m.onnx"))) == layers_of(read(linear()))
    stored.external_data[0].value = "../numbers"
    with pytest.raises(InputError, match=r"node 0 \(Constant\): its value: external data at '../numbers'"):
        load_model(saved(made, tmp_path / "m.onnx"))


# -- small files that ask for much ---------------------------------------------------------------------------------


def row(op, count, more=""):
    """So many of them, one after the other."""
    names = ["x", *(f"v{i}" for i in range(1, count)), "y"]
    return [node(op, f"{a} {more}", b) for a, b in itertools.pairwise(names)]


def squares(count):
    """c², c⁴, …: each twice as long as the one before, and the last one a factor."""
    return [*(node("Mul", f"c{i} c{i}", f"c{i + 1}") for i in range(count)), node("Mul", f"x c{count}", "y")]


DOUBLED = [node("Concat", f"c{i} c{i}", f"c{i + 1}", axis=0) for i in range(30)]
ZEROS = node("ConstantOfShape", "s", "W")
GREEDY = {
    "long numbers": (3, squares(40), {"c0": 1.1}),
    "many long numbers": (5000, squares(14), {"c0": array(5000)}),
    "a common denominator": (8000, [node("Div", "b c", "d"), node("Add", "x d", "y")], {"b": 1.1, "c": array(8000)}),
    "many divisions": (2000, row("Div", 9000, "c"), {"c": array(2000)}),
    "many factors": (3, row("Mul", 9000, "c"), {"c": array(3)}),
    "many shifts": (2000, row("Add", 9000, "c"), {"c": array(2000)}),
    "many layers": (1000, row("Relu", 9000), {}),
    "many roots": (500, row("BatchNormalization", 2000, "c c c v"), {"c": array(500), "v": abs(array(500))}),
    "one matrix many times": (1000, [ZEROS, *row("MatMul", 500, "W")], {"s": whole(1000, 1000)}),
    "a product of constants": (2, [ZEROS, node("MatMul", "W W", "y")], {"s": whole(2000, 2000)}),
    "an outer product": (5000, [node("Mul", "a b", "y")], {"a": array(5000, 1), "b": array(1, 5000)}),
    "long lists": (3, [*DOUBLED, node("Reshape", "x c30", "y")], {"c0": whole(1, 1)}),
    "a large constant": (3, [ZEROS, node("Add", "x W", "y")], {"s": whole(2**31, 2**31)}),
}


@pytest.mark.parametrize("case", GREEDY)
def test_a_small_file_does_not_take_long(case, monkeypatch):
    """With a limit that is lower than usual: the point is that all of it is counted, before it is computed."""
    width, nodes, constants = GREEDY[case]
    made = model(nodes, constants, shape=("N", width))
    assert len(made.SerializeToString()) < 400_000
    monkeypatch.setattr(tensors, "MAX_WORK", 2**21)
    start = time.process_time()
    with pytest.raises(InputError, match=r"(too large|too much) to be computed exactly|sizes are put together"):
        read(made)
    assert time.process_time() - start < 5


def tied(count, side=4):
    """One matrix at so many places, and another one at the end."""
    nodes = [node("Identity", "x", "r0")]
    for i in range(count):
        nodes += [node("MatMul", f"r{i} W", f"z{i}"), node("Relu", f"z{i}", f"r{i + 1}")]
    nodes.append(node("MatMul", f"r{count} V", "y"))
    return model(nodes, {"W": array(side, side), "V": array(side, 3)}, shape=("N", side))


def test_a_matrix_at_many_places_is_held_bounded_and_converted_once(monkeypatch):
    network = read(tied(20))
    weights = [layer.weights for layer in network.layers]
    assert all(each is weights[0] for each in weights[:20])
    assert weights[20] is not weights[0]
    bounded = []
    prove = margin_bounds.prove_norm
    monkeypatch.setattr(margin_bounds, "prove_norm", lambda *each: (bounded.append(each[0]), prove(*each))[1])
    stepped = []
    found = margin_bounds.layer_bounds(network, precision_ladder("exact"), [Plan()] * 21, stepped.append)
    assert [linear.matrix for linear in bounded] == [weights[0], weights[20]]
    assert set(stepped) == set(range(21))
    assert [replace(bound, layer=0, source=-1) for bound in found[:20]] == [found[0]] * 20
    assert [bound.layer for bound in found] == list(range(21))
    evaluator = Evaluator(network, [bound.upper for bound in found], get_backend("float64"))
    assert len({id(each) for each in evaluator._operators}) == 2


def test_plans_that_differ_are_carried_out_each():
    network = read(tied(2))
    found = margin_bounds.layer_bounds(
        network, precision_ladder("exact"), [Plan(iterations=0), Plan(iterations=5), Plan()]
    )
    assert found[0].upper > found[1].upper


def test_the_places_of_a_matrix_are_counted(monkeypatch):
    monkeypatch.setattr(tensors, "MAX_REPEATED", 3 * 4096)
    assert len(read(tied(4)).layers) == 5
    with pytest.raises(InputError, match=r"a matrix of shape \[4, 4\] is used at so many places"):
        read(tied(5))
    monkeypatch.setattr(tensors, "_PLACE", 1)
    monkeypatch.setattr(tensors, "MAX_REPEATED", 3 * 16 - 1)
    assert len(read(tied(3)).layers) == 4
    with pytest.raises(InputError, match="at so many places"):
        read(tied(4))


def test_views_of_one_array_are_the_same_matrix_only_if_they_are_read_alike():
    made, square = Assembly(2), np.array([[1, 2], [3, 4]], dtype=np.float32)
    for view in (square, square.T, square[:], square[::-1], square.copy()):
        made.affine(made.tensor(view), None)
    weights = [layer.weights for layer in made.network().layers]
    assert weights[0] is weights[2]
    assert len({id(each) for each in weights}) == 4
    assert [each[0, 1] for each in weights] == [2, 3, 2, 4, 2]


def test_inputs_that_are_left_out_do_not_take_long():
    start = time.process_time()
    assert read(model([node("Relu", "x" + " _" * 150_000, "y")])).outputs == 3
    assert time.process_time() - start < 5


def test_a_model_may_take_some_work_for_each_of_its_numbers(monkeypatch):
    nodes = [node("MatMul", "x W", "z"), node("Mul", "z c", "m"), node("Relu", "m", "r"), node("MatMul", "r V", "y")]
    made = model(nodes, {"W": array(40, 50), "c": array(50), "V": array(50, 10)}, shape=("N", 40))
    monkeypatch.setattr(tensors, "MAX_WORK", 1000)
    assert read(made).outputs == 10
    monkeypatch.setattr(tensors, "_PER_STORED", 0)
    with pytest.raises(InputError, match=r"node 0 \(MatMul\): constants of shape \[2000\] .* too much to be computed"):
        read(made)


def test_all_numbers_of_a_model_are_limited(monkeypatch):
    monkeypatch.setattr(onnx_graph, "MAX_NUMBERS", 11)
    with pytest.raises(InputError, match="more than 11 numbers together"):
        read(linear())


def test_the_number_of_nodes_is_limited():
    refused("a graph of 10001 nodes; at most 10000 are read", row("Identity", 10_001))
    assert read(model(row("Identity", 10_000))).outputs == 3


def test_long_names_are_shortened_in_messages():
    name = "n" * 100_000
    made = model([node("Fancy", "x", name, name=name), node("Relu", name, "y")])
    with pytest.raises(InputError) as caught:
        read(made)
    assert len(str(caught.value)) < 1000
