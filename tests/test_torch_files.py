"""PyTorch's state dicts: the exact tensors that torch reads, or a refusal. Nothing in a file is ever run."""

import io
import os
import pickle
import struct
import subprocess
import sys
import zipfile
import zlib
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from intervalcert import InputError, Network, UsageError, from_torch, load_model
from tests.commands import ran

torch = pytest.importorskip("torch", reason="torch is not installed")
nn = torch.nn

FIXTURES = Path(__file__).parent / "fixtures"
FIXTURE = FIXTURES / "mlp.pt"
WHOLE = FIXTURE.read_bytes()
NUMBERS = np.arange(1, 7, dtype="<f4")


def saved(path, content, **options):
    torch.save(content, path, **options)
    return path


def fractions(matrix):
    rows, columns = matrix.shape
    return [[matrix[i, j] for j in range(columns)] for i in range(rows)]


def exact(tensor):
    return [[Fraction(float(x)) for x in row] for row in tensor.double()]


def chain(*names, width=2):
    """Square layers, each with other numbers, under these names; listed in another order."""
    weights = {name: torch.full((width, width), index + 1.0) for index, name in enumerate(names)}
    return {f"{name}.weight": weights[name] for name in sorted(names, reverse=True)}


def order(network):
    return [int(layer.weights[0, 0]) for layer in network.layers]


# -- pickles and archives by hand ------------------------------------------------------------------------------------


def text(value):
    return b"X" + struct.pack("<I", len(value.encode())) + value.encode()


def whole(value):
    data = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes([len(data)]) + data


def named(module, name):
    return f"c{module}\n{name}\n".encode()


DICT = named("collections", "OrderedDict") + b")R"


def storage(count=6, key=None, kind="FloatStorage", module="torch"):
    place = text("0") if key is None else key
    return b"(" + text("storage") + named(module, kind) + place + text("cpu") + whole(count) + b"tQ"


def tensor(shape=(2, 3), strides=(3, 1), *, of=None, offset=0, hooks=DICT, more=b""):
    sides, steps = (b"(" + b"".join(map(whole, values)) + b"t" for values in (shape, strides))
    arguments = (storage() if of is None else of) + whole(offset) + sides + steps + b"\x89" + hooks + more
    return named("torch._utils", "_rebuild_tensor_v2") + b"(" + arguments + b"tR"


def program(*parts, name="weight"):
    """A pickle of a dict with one tensor, or whatever else."""
    return b"\x80\x02" + DICT + b"(" + text(name) + b"".join(parts) + b"u."


def archive(path, pickled, data=None, more=(), **options):
    members = {"m/data.pkl": pickled, "m/byteorder": b"little", "m/data/0": NUMBERS.tobytes(), "m/version": b"3\n"}
    if data is not None:
        members["m/data/0"] = data
    with zipfile.ZipFile(path, "w", **options) as made:
        for name, content in (members | dict(more)).items():
            made.writestr(name, content)
    return path


# -- the same network ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mlp.pt", "mlp_named.pt"])
def test_the_fixtures_are_the_network_of_the_npz_file(name):
    network, expected = load_model(FIXTURES / name), load_model(FIXTURES / "mlp.npz")
    for one, other in zip(network.layers, expected.layers, strict=True):
        assert fractions(one.weights) == fractions(other.weights)
        assert fractions(one.bias) == fractions(other.bias)
    assert network.activations == ("relu", "relu", None)
    assert network.content == expected.content
    assert network.folded == ()
    assert [source.name for source in network.sources] == [name]


ENDS = {
    torch.float16: [65504, 2**-24, -(2**-14), 0.1],
    torch.bfloat16: [3.3895313892515355e38, 2**-133, -(2**-126), 0.1],
    torch.float32: [3.4028234663852886e38, 2**-149, -(2**-126), 0.1],
    torch.float64: [1.7976931348623157e308, 5e-324, -(2**-1022), 0.1],
}


@pytest.mark.parametrize("dtype", ENDS, ids=str)
def test_floats_are_their_binary_value(tmp_path, dtype):
    made = torch.tensor(ENDS[dtype], dtype=torch.float64).to(dtype).reshape(2, 2)
    network = load_model(saved(tmp_path / "m.pt", {"weight": made, "bias": made[0]}))
    assert fractions(network.layers[0].weights) == exact(made)
    assert fractions(network.layers[0].bias) == [[x] for x in exact(made)[0]]
    assert len({x for row in exact(made) for x in row}) == 4, "one that underflowed would prove little"
    assert made.dtype is dtype


def test_every_bfloat16_is_exact(tmp_path):
    bits = torch.tensor([x for x in range(-(2**15), 2**15) if x >> 7 & 255 != 255], dtype=torch.int16)
    made = bits.view(torch.bfloat16).reshape(2, -1)
    assert made.shape == (2, 2**15 - 2**7)
    network = load_model(saved(tmp_path / "m.pt", {"weight": made}))
    assert fractions(network.layers[0].weights) == exact(made)


VIEWS = {
    "transposed": lambda: torch.arange(6.0).reshape(3, 2).t(),
    "a part": lambda: torch.arange(24.0).reshape(4, 6)[1:3, 2:5],
    "every second": lambda: torch.arange(24.0).reshape(4, 6)[::2, ::2],
    "at the end": lambda: torch.arange(12.0)[6:].reshape(2, 3),
    "overlapping": lambda: torch.arange(6.0).as_strided((2, 3), (1, 1)),
    "a parameter": lambda: nn.Parameter(torch.arange(6.0).reshape(2, 3)),
    "with a gradient": lambda: torch.arange(6.0).reshape(2, 3).requires_grad_(),
}


@pytest.mark.parametrize("case", VIEWS)
def test_views_are_the_numbers_that_one_sees(tmp_path, case):
    made = VIEWS[case]()
    network = load_model(saved(tmp_path / "m.pt", {"weight": made}))
    assert made.shape == (2, 3)
    assert fractions(network.layers[0].weights) == exact(made.detach())


def test_layers_may_share_their_numbers(tmp_path):
    """Tied weights, and two views of one storage."""
    base = torch.arange(8.0).reshape(2, 2, 2)
    path = saved(tmp_path / "m.pt", {"a0.weight": base[1], "a1.weight": base[0], "a2.weight": base[1]})
    first, second, third = (fractions(layer.weights) for layer in load_model(path).layers)
    assert (first, second, third) == ([[4, 5], [6, 7]], [[0, 1], [2, 3]], [[4, 5], [6, 7]])


@pytest.mark.parametrize("options", [{}, {"keep_vars": True}], ids=["detached", "with variables"])
@pytest.mark.parametrize("kind", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_the_state_dict_of_a_model_is_read(tmp_path, kind, options):
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2, bias=False)).to(kind)
    network = load_model(saved(tmp_path / "m.pt", model.state_dict(**options)))
    assert fractions(network.layers[0].weights) == exact(model[0].weight.detach())
    assert fractions(network.layers[1].weights) == exact(model[2].weight.detach())
    assert fractions(network.layers[0].bias) == exact(model[0].bias.detach()[:, None])
    assert network.layers[1].bias is None


@pytest.mark.parametrize("kind", ENDS, ids=str)
def test_every_way_gives_the_same_network(tmp_path, kind):
    save_file = pytest.importorskip("safetensors.torch", reason="safetensors is not installed").save_file
    model = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 4, bias=False), nn.ReLU(), nn.Linear(4, 2)).to(kind)
    save_file(model.state_dict(), tmp_path / "m.safetensors")
    layers = [module for module in model if isinstance(module, nn.Linear)]
    weights = [layer.weight.detach().double().numpy() for layer in layers]
    biases = [None if layer.bias is None else layer.bias.detach().double().numpy() for layer in layers]
    networks = [
        from_torch(model),
        load_model(saved(tmp_path / "m.pt", model.state_dict())),
        load_model(tmp_path / "m.safetensors"),
        Network.from_arrays(weights, biases),
    ]
    assert len({network.content for network in networks}) == 1


@pytest.mark.parametrize("ending", [".pt", ".pth", ".bin", ".weights"])
@pytest.mark.parametrize("stem", ["model", "модель", "a b", "data"])
def test_any_name_does(tmp_path, stem, ending):
    """The name of the file is that of a folder in the archive."""
    assert load_model(saved(tmp_path / f"{stem}{ending}", {"weight": torch.ones(2, 2)})).outputs == 2


def test_the_other_byte_order_is_read(tmp_path):
    swapped = NUMBERS.astype(">f4").tobytes()
    path = archive(tmp_path / "m.pt", program(tensor()), swapped, {"m/byteorder": b"big"})
    assert fractions(load_model(path).layers[0].weights) == [[1, 2, 3], [4, 5, 6]]
    with pytest.raises(InputError, match="torch cannot read it"):
        load_model(archive(path, program(tensor()), swapped, {"m/byteorder": b"middle"}))


# -- the order of the layers -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "names",
    [
        ["0", "2", "4"],
        ["0", "2", "10"],
        ["fc1", "fc2", "fc10"],
        ["module.0", "module.2", "module.4"],
        ["_orig_mod.0", "_orig_mod.3", "_orig_mod.11"],
        ["module._orig_mod.net.0", "module._orig_mod.net.2"],
        ["model.fc1", "model.fc2"],
        ["model.model.0", "model.model.2"],
    ],
    ids=str,
)
def test_numbers_say_the_order(tmp_path, names):
    assert order(load_model(saved(tmp_path / "m.pt", chain(*names)))) == [*range(1, len(names) + 1)]


def test_an_order_that_is_not_stated_must_be_said(tmp_path, capsys):
    path = saved(tmp_path / "m.pt", chain("stem", "body", "head"))
    with pytest.raises(InputError, match=r"say it with --layers, first to last: \['body', 'head', 'stem'\]"):
        load_model(path)
    assert order(load_model(path, layers=["stem", "body", "head"])) == [1, 2, 3]
    assert order(load_model(path, layers=["head", "stem", "body"])) == [3, 1, 2]
    bounds = tmp_path / "bounds.json"
    assert ran(capsys, "bounds", path, "--out", bounds)[0] == 3
    assert ran(capsys, "bounds", path, "--layers", "stem,body,head", "--out", bounds)[0] == 0


@pytest.mark.parametrize("names", [["0", "1"], ["module.0", "module.1"], ["_orig_mod.0", "_orig_mod.1", "_orig_mod.3"]])
def test_a_sequential_without_activations_is_not_given_any(tmp_path, names):
    """Sequential(Linear, Linear), in a wrapper or not, has no relu between its layers."""
    path = saved(tmp_path / "m.pt", chain(*names))
    for options in ({}, {"activation": "relu"}):
        with pytest.raises(InputError, match="side by side"):
            load_model(path, **options)
    assert len(load_model(path, layers=names).layers) == len(names)


@pytest.mark.parametrize("name", ["net", "layers", "mymodule", "net._orig_mod"])
def test_neighbours_in_a_list_need_an_activation_that_is_said(tmp_path, name):
    """A Sequential of two Linears and a ModuleList have the same names."""

    class Model(nn.Module):
        def __init__(self, kind):
            super().__init__()
            parts = [nn.Linear(2, 2), nn.Linear(2, 2)]
            self.net = nn.Sequential(*parts) if kind == "sequential" else nn.ModuleList(parts)

    listed, sequential = (Model(kind).state_dict() for kind in ("list", "sequential"))
    assert list(listed) == list(sequential)
    path = saved(tmp_path / "m.pt", {key.replace("net", name, 1): value for key, value in sequential.items()})
    with pytest.raises(InputError, match=r"side by side.*ModuleList.*--activation"):
        load_model(path)
    assert load_model(path, activation="tanh").activations == ("tanh", None)
    assert load_model(path, activation="identity").activations == ("identity", None)


# -- what is not a state dict of plain tensors -----------------------------------------------------------------------

MODEL = nn.Sequential(nn.Linear(3, 2))


REFUSED = {
    "a model": (lambda: MODEL, r"'torch.nn.modules.container.Sequential'.*model.state_dict\(\)"),
    "a checkpoint": (
        lambda: {"epoch": 3, "best": {"loss": 0.5}, "net": MODEL.state_dict(), "loss": 0.5},
        r"checkpoint with the keys \['epoch', 'best', 'net', 'loss'\].*torch.save\(checkpoint\['net'\]",
    ),
    "with an optimizer": (
        lambda: {"net": MODEL.state_dict(), "optimizer": {"state": {0: {"step": 1}}}},
        "optimizers.*by itself",
    ),
    "nested": (lambda: {"a": {"b": MODEL.state_dict()}}, "checkpoint"),
    "a number beside": (lambda: {**MODEL.state_dict(), "epoch": 3}, "'epoch' something else than a tensor"),
    "a text beside": (lambda: {**MODEL.state_dict(), "name": "x"}, "'name'"),
    "a list beside": (lambda: {**MODEL.state_dict(), "sizes": [1, torch.ones(2)]}, "'sizes'"),
    "a tuple beside": (lambda: {**MODEL.state_dict(), "sizes": (1, (2, 3))}, "'sizes'"),
    "a list": (lambda: [torch.ones(2, 2)], "a list, not a state dict"),
    "a tuple": (lambda: (torch.ones(2, 2),), "a tuple, not a state dict"),
    "a number": (lambda: 3, "an? int, not a state dict"),
    "one tensor": (lambda: torch.ones(2, 2), "one tensor without a name"),
    "nothing": (dict, "no tensors"),
    "numbers for names": (lambda: {0: torch.ones(2, 2)}, "key of type int"),
    "a tuple for a name": (lambda: {("weight",): torch.ones(2, 2)}, "key of type tuple"),
    "an array": (lambda: {"weight": np.ones((2, 2))}, "numpy"),
    "sparse": (lambda: {"weight": torch.eye(2).to_sparse()}, "no plain one of floats.*_rebuild_sparse_tensor"),
    "sparse rows": (lambda: {"weight": torch.eye(2).to_sparse_csr()}, "no plain one of floats"),
    "without numbers": (lambda: {"weight": torch.ones(2, 2, device="meta")}, "no plain one of floats.*meta"),
    "negated": (lambda: {"weight": torch._neg_view(torch.ones(2, 2))}, "does not write for plain tensors"),
    "eight bits": (lambda: {"weight": torch.ones(2, 2).to(torch.float8_e5m2)}, "no plain one of floats"),
    "unsigned": (lambda: {"weight": torch.ones(2, 2, dtype=torch.uint16)}, "no plain one of floats"),
    "complex": (lambda: {"weight": torch.ones(2, 2, dtype=torch.complex64)}, r"complex64.*another type than float16"),
    "integers": (lambda: {"weight": torch.ones(2, 2, dtype=torch.int64)}, r"\(int64, shape \[2, 2\]\)"),
    "bytes": (lambda: {"weight": torch.ones(2, 2, dtype=torch.uint8)}, "uint8"),
    "booleans": (lambda: {"weight": torch.ones(2, 2, dtype=torch.bool)}, "bool"),
    "a subclass": (lambda: {"weight": nn.Buffer(torch.ones(2, 2)).as_subclass(Odd)}, "Odd|_rebuild_from_type"),
    "lazy": (lambda: nn.LazyLinear(3).state_dict(), "UninitializedParameter"),
    "quantised": (lambda: {"weight": quantised()}, "no plain one of floats.*_rebuild_qtensor"),
    "nan": (lambda: {"weight": torch.tensor([[1, 2], [3, np.nan]])}, r"'weight': nan at \[1, 1\]"),
    "infinite": (lambda: {"weight": torch.tensor([[1, -np.inf], [3, 4]])}, r"-inf at \[0, 1\]"),
    "half an infinity": (lambda: {"weight": torch.full((2, 2), 7e4).half()}, "inf at"),
    "nan in a bias": (lambda: {"weight": torch.eye(2), "bias": torch.tensor([np.nan, 1])}, "'bias': nan"),
    "repeated": (lambda: {"weight": torch.ones(1, 2).expand(3, 2)}, r"repeats its numbers.*contiguous"),
    "repeated a lot": (lambda: {"weight": torch.ones(1).expand(2**13, 2**13)}, "repeats its numbers"),
    "repeated without end": (lambda: {"weight": torch.ones(1).expand(2**30, 2**20)}, "more than 268435456 numbers"),
    "a vector": (lambda: {"weight": torch.ones(4)}, "neither the weight"),
    "a convolution": (lambda: nn.Conv2d(1, 2, 3).state_dict(), r"shape \[2, 1, 3, 3\].*ONNX"),
    "batch normalisation": (lambda: nn.BatchNorm1d(3).state_dict(), "batch normalisation"),
    "empty": (lambda: {"weight": torch.ones(0, 2)}, "0 numbers"),
    "pruned": (lambda: {"0.weight_orig": torch.ones(2, 2), "0.weight_mask": torch.ones(2, 2)}, "weight_orig"),
    "a shape that does not fit": (lambda: {"0.weight": torch.ones(3, 2), "2.weight": torch.ones(2, 4)}, "for 4 inputs"),
    "a bias that does not fit": (lambda: {"weight": torch.ones(3, 2), "bias": torch.ones(2)}, "biases of shape"),
}


class Odd(torch.Tensor):
    """A tensor that may compute anything."""


@pytest.mark.filterwarnings("ignore")
def quantised():
    return torch.quantize_per_tensor(torch.ones(2, 2), 0.1, 0, torch.qint8)


@pytest.mark.filterwarnings("ignore:.*(quantize|CSR)")
@pytest.mark.parametrize("case", REFUSED)
def test_other_contents_are_refused(tmp_path, case):
    make, said = REFUSED[case]
    path = saved(tmp_path / "m.pt", make())
    with pytest.raises(InputError, match=said) as caught:
        load_model(path)
    assert str(path) in str(caught.value)
    assert "weights_only=False" not in str(caught.value)


@pytest.mark.parametrize("content", [MODEL, MODEL.state_dict()], ids=["model", "state dict"])
def test_the_old_format_is_refused(tmp_path, content):
    path = saved(tmp_path / "m.pt", content, _use_new_zipfile_serialization=False)
    with pytest.raises(InputError, match="is a pickle, which could run any program"):
        load_model(path)


def test_other_protocols_are_refused(tmp_path):
    with pytest.raises(InputError, match="more than tensors"):
        load_model(saved(tmp_path / "m.pt", MODEL.state_dict(), pickle_protocol=4))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_torchscript_is_refused(tmp_path):
    torch.jit.save(torch.jit.script(MODEL), tmp_path / "m.pt")
    with pytest.raises(InputError, match=r"TorchScript.*ONNX"):
        load_model(tmp_path / "m.pt")


def test_a_command_ends_with_code_3(tmp_path, capsys):
    code, _, said = ran(capsys, "bounds", saved(tmp_path / "m.pt", MODEL), "--out", tmp_path / "b.json")
    assert code == 3
    assert "Sequential" in said


# -- nothing is run --------------------------------------------------------------------------------------------------


class Evil:
    """Writes a file when it is unpickled."""

    def __init__(self, command):
        self.command = command

    def __reduce__(self):
        return os.system, (self.command,)


def evil_programs(command):
    """Pickles that would run the command, in every way that pickles have."""
    call = text(command) + b"\x85R"
    made = {f"protocol {protocol}": pickle.dumps(Evil(command), protocol) for protocol in range(6)}
    made |= {f"in a dict, {p}": pickle.dumps({"weight": Evil(command)}, p) for p in range(6)}
    made |= {
        "os": b"\x80\x02" + named("os", "system") + call + b".",
        "posix": b"\x80\x02" + named("posix", "system") + call + b".",
        "by stack": b"\x80\x04" + text("os") + text("system") + b"\x93" + call + b".",
        "inst": b"(" + text(command) + b"ios\nsystem\n.",
        "obj": b"(" + named("os", "system") + text(command) + b"o.",
        "builtins": b"\x80\x02" + named("builtins", "eval") + text(f"__import__('os').system({command!r})") + b"\x85R.",
        "old builtins": b"\x80\x02"
        + named("__builtin__", "eval")
        + text(f"__import__('os').system({command!r})")
        + b"\x85R.",
        "after a dict": program(tensor())[:-1] + b"0" + named("os", "system") + call + b".",
        "beside a tensor": program(tensor(), text("x"), named("os", "system"), call),
        "as a hook": program(tensor(hooks=named("os", "system") + call)),
        "as a storage": program(tensor(of=named("os", "system") + call)),
    }
    return made


EVIL = evil_programs("true")


@pytest.mark.parametrize("case", EVIL)
def test_programs_are_not_run(tmp_path, monkeypatch, case):
    marker = tmp_path / "marker"
    data = evil_programs(f"touch '{marker}'")[case]
    loads = []
    monkeypatch.setattr(torch, "load", lambda *_, **__: loads.append(1))
    for path in (archive(tmp_path / "m.pt", data), archive(tmp_path / "m.zip", data)):
        with pytest.raises(InputError):
            load_model(path)
    for name in ("bare.pt", "bare.pkl"):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(InputError):
            load_model(tmp_path / name)
    assert not marker.exists()
    assert not loads, "torch was given it"
    if case in {"protocol 2", "by stack", "inst", "obj", "builtins"}:
        pickle.loads(data)
        assert marker.exists(), "it would prove nothing"


def test_torch_loads_weights_only(monkeypatch):
    """Whatever the environment says."""
    seen = []
    load = torch.load

    def watched(file, **options):
        seen.append(options)
        return load(file, **options)

    monkeypatch.setattr(torch, "load", watched)
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    load_model(FIXTURE)
    assert seen == [{"map_location": "cpu", "weights_only": True}]


def test_what_a_user_allows_torch_is_not_allowed_here(tmp_path):
    path = saved(tmp_path / "m.pt", {"weight": torch.ones(2, 2), "x": Evil("true")})
    with torch.serialization.safe_globals([os.system, Evil]), pytest.raises(InputError, match="system"):
        load_model(path)


# -- pickles that torch would take -----------------------------------------------------------------------------------

BOMB = b")q\x00" + b"".join(bytes([104, i, 104, i, 0x86, 113, i + 1]) for i in range(100))
"""A tuple with 2^100 parts, if one counts those of its parts."""

SHADOWED = b"\x80\x02" + DICT + b"(" + text("weight") + tensor() + b"u}" + text("items")
SIZES = {
    "more numbers than there are": program(tensor((20, 30), (30, 1), of=storage(600))),
    "fewer numbers than there are": program(tensor((2, 2), (2, 1), of=storage(4))),
    "a negative count": program(tensor(of=storage(-6))),
    "a huge count": program(tensor(of=storage(2**40))),
    "a count that overflows": program(tensor(of=storage(2**62))),
    "a count that is no integer": program(tensor(of=storage(2**300))),
    "a shape beyond the storage": program(tensor((200, 3), (3, 1))),
    "one row beyond the storage": program(tensor((3, 3), (3, 1))),
    "an offset beyond the storage": program(tensor(offset=1)),
    "a negative offset": program(tensor(offset=-1)),
    "negative strides": program(tensor(strides=(-3, -1), offset=5)),
    "negative sides": program(tensor((-2, -3))),
    "a shape that overflows": program(tensor((2**32, 2**32), (0, 0))),
    "strides that overflow": program(tensor(strides=(2**62, 2**62))),
    "a huge shape of one number": program(tensor((2**31, 2**31), (0, 0))),
    "a shape and other strides": program(tensor(strides=(3,))),
    "no such member": program(tensor(of=storage(key=text("7")))),
    "a member elsewhere": program(tensor(of=storage(key=text("../../data/0")))),
    "an unknown storage": program(tensor(of=storage(kind="OddStorage"))),
    "quantised without a scale": program(tensor(of=storage(24, kind="QInt8Storage"))),
    "an escaped name": program(tensor().replace(b"_rebuild_tensor_v2", b"_rebuild_tensor_v\\x32")),
}
HOSTILE = {
    "a shape of texts": program(tensor().replace(whole(2) + whole(3), text("2") + whole(3), 1)),
    "a tensor for a hook": program(tensor(hooks=tensor())),
    "a hook": program(tensor(hooks=DICT + text("x") + b"Ns")),
    "a negated view": program(tensor(more=b"}" + text("neg") + b"\x88s")),
    "no storage": program(tensor(of=text("0"))),
    "a number for a member": program(tensor(of=storage(key=whole(0)))),
    "an untyped storage": program(tensor(of=storage(24, kind="UntypedStorage", module="torch.storage"))),
    "a hidden method": SHADOWED + named("torch._utils", "_rebuild_tensor_v2") + b"sb.",
    "another hidden method": SHADOWED + named("collections", "OrderedDict") + b"sb.",
    "state of a tensor": program(tensor() + b"N\x85b"),
    "state that is a list": program(tensor())[:-1] + b"]b.",
    "a list in a list": program(b"]]]N\x85aaa"),
    "appended to a dict": program(tensor())[:-1] + b"Na.",
    "set in a list": b"\x80\x02]" + text("weight") + tensor() + b"s.",
    "set in a tensor": program(tensor() + whole(0) + whole(1) + b"s"),
    "called with more": b"\x80\x02"
    + named("collections", "OrderedDict")
    + b"]]"
    + text("weight")
    + tensor()
    + b"\x86aaR.",
    "called with a list": b"\x80\x02" + named("collections", "OrderedDict") + b"]" + BOMB + b"aR.",
    "a storage that is called": b"\x80\x02" + named("torch", "FloatStorage") + b")R.",
    "a storage by itself": b"\x80\x02" + storage() + b".",
    "a name by itself": b"\x80\x02" + named("collections", "OrderedDict") + b".",
    "a key twice": program(tensor(), text("weight"), tensor()),
    "a key without a value": program(tensor(), text("bias")),
    "a tuple of many parts for a key": b"\x80\x02" + BOMB + b"}h\x64Ns.",
    "a tuple of many parts for a member": program(BOMB, text("a"), tensor(of=storage(key=b"h\x64"))),
    "a deep tuple for a key": b"\x80\x02})" + b"\x85" * 100_000 + b"Ns.",
    "keys of one hash": b"\x80\x02}(" + b"".join(whole(k * (2**61 - 1)) + b"N" for k in range(1, 10_000)) + b"u.",
    "a large pickle": b"\x80\x02" + b"N" * 2**19 + b".",
    "a memory that is empty": b"\x80\x02h\x05.",
    "an empty stack": b"\x80\x02R.",
    "no mark": b"\x80\x02}u.",
    "no end": program(tensor())[:-1],
    "several values": b"\x80\x02N" + program(tensor())[2:],
    "no pickle": b"hello",
    "nothing": b"",
}


@pytest.mark.parametrize("case", SIZES)
def test_torch_checks_sizes(tmp_path, case):
    """And names of storages: what it finds is a refusal here."""
    with pytest.raises(InputError):
        load_model(archive(tmp_path / "m.pt", SIZES[case]))


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_pickles_are_refused_before_torch_sees_them(tmp_path, monkeypatch, case):
    """Some would take any time, all of the stack, or one name for another."""
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("torch was given it"))
    with pytest.raises(InputError):
        load_model(archive(tmp_path / "m.pt", HOSTILE[case]))


def test_those_pickles_are_read_if_they_are_right(tmp_path):
    path = archive(tmp_path / "m.pt", program(tensor()))
    assert fractions(load_model(path).layers[0].weights) == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize("loads", [torch.eye(2), {"weight": [1]}, {"weight": torch.eye(2).as_subclass(Odd)}, 3])
def test_what_torch_makes_is_looked_at_again(monkeypatch, loads):
    monkeypatch.setattr(torch, "load", lambda *_, **__: loads)
    with pytest.raises(InputError, match="not a"):
        load_model(FIXTURE)


def test_tensors_without_numbers_are_not_read():
    """In torch's modes that only compute shapes, tensors have none, or those of whatever was in the memory."""
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode(), pytest.raises(InputError):
        load_model(FIXTURE)
    with torch.device("meta"):
        assert load_model(FIXTURE).content == load_model(FIXTURES / "mlp.npz").content


# -- archives that are damaged, or more than one ---------------------------------------------------------------------


def test_every_truncation_is_refused(tmp_path, capsys):
    path = tmp_path / "m.pt"
    for length in range(0, len(WHOLE), 10):
        path.write_bytes(WHOLE[:length])
        with pytest.raises(InputError):
            load_model(path)
    for length in (0, 3, 100, len(WHOLE) - 1):
        path.write_bytes(WHOLE[:length])
        code, _, said = ran(capsys, "bounds", path, "--out", tmp_path / "bounds.json")
        assert code == 3, (length, said)
        assert str(path) in said


@pytest.mark.parametrize("first", [0, 1])
def test_no_changed_byte_gives_another_network(tmp_path, first):
    """Torch itself reads changed numbers without a word: it does not look at the checksums."""
    path, expected = tmp_path / "m.pt", load_model(FIXTURE).content
    refused = 0
    for place in range(first, len(WHOLE), 5):
        data = bytearray(WHOLE)
        data[place] ^= 1 << place % 8
        path.write_bytes(data)
        try:
            assert load_model(path).content == expected, place
        except InputError:
            refused += 1
    assert refused > len(WHOLE) // 20


def test_a_changed_weight_is_refused(tmp_path):
    with zipfile.ZipFile(FIXTURE) as made:
        place = WHOLE.index(made.read("mlp/data/0"))
    path = tmp_path / "m.pt"
    path.write_bytes(WHOLE[: place + 2] + bytes([WHOLE[place + 2] ^ 0x40]) + WHOLE[place + 3 :])
    assert torch.load(path)["0.weight"][0, 0] != torch.load(FIXTURE)["0.weight"][0, 0]
    with pytest.raises(InputError, match=r"damaged.*'mlp/data/0'"):
        load_model(path)


@given(st.lists(st.tuples(st.integers(0, len(WHOLE) - 1), st.binary(min_size=1, max_size=4)), min_size=1, max_size=6))
def test_changed_bytes_give_the_network_or_a_refusal(tmp_path_factory, changes):
    data = bytearray(WHOLE)
    for place, some in changes:
        data[place : place + len(some)] = some
    path = tmp_path_factory.getbasetemp() / "changed.pt"
    path.write_bytes(data)
    try:
        network = load_model(path)
    except InputError:
        return
    assert network.content == load_model(FIXTURES / "mlp.npz").content


with zipfile.ZipFile(FIXTURE) as _made:
    PICKLE = _made.read("mlp/data.pkl")
    DATA = {name.replace("mlp/", "m/"): _made.read(name) for name in _made.namelist() if "/data/" in name}


@given(st.lists(st.tuples(st.integers(0, len(PICKLE) - 1), st.binary(max_size=3)), min_size=1, max_size=4))
def test_changed_pickles_give_a_network_or_a_refusal(tmp_path_factory, changes):
    """With the right checksums; bytes that are replaced, inserted and removed."""
    data = bytearray(PICKLE)
    for place, some in changes:
        data[place : place + 1] = some
    path = archive(tmp_path_factory.getbasetemp() / "pickle.pt", bytes(data), more=DATA)
    try:
        network = load_model(path)
    except InputError:
        return
    assert network.outputs >= 2


def test_the_pickle_of_those_is_read_if_it_is_right(tmp_path):
    path = archive(tmp_path / "m.pt", PICKLE, more=DATA)
    assert load_model(path).content == load_model(FIXTURE).content


RIGHT = program(tensor())
ARCHIVES = {
    "two pickles": ({"more": {"m/sub/data.pkl": RIGHT}}, "2 members data.pkl"),
    "two that differ in capitals": ({"more": {"m/DATA.PKL": RIGHT}}, "2 members data.pkl"),
    "a program beside": ({"more": {"m/constants.pkl": b""}}, "TorchScript"),
    "numbers that differ in capitals": ({"more": {"m/DATA/0": NUMBERS[::-1].tobytes()}}, "not laid out"),
    "compressed": ({"compression": zipfile.ZIP_DEFLATED}, "compressed"),
    "a way out": ({"more": {"m/../../x": b""}}, "points out of the archive"),
    "from the root": ({"more": {"/etc/x": b""}}, "points out of the archive"),
    "a drive": ({"more": {"C:\\x": b""}}, "points out of the archive"),
    "another folder": ({"more": {"n/data/0": b""}}, "torch cannot read it"),
}


@pytest.mark.parametrize("case", ARCHIVES)
def test_other_archives_are_refused(tmp_path, case):
    options, said = ARCHIVES[case]
    with pytest.raises(InputError, match=said):
        load_model(archive(tmp_path / "m.pt", RIGHT, **options))


def test_an_archive_without_a_pickle_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "m.pt", "w") as made:
        made.writestr("m/version", "3\n")
    with pytest.raises(InputError, match=r"m\.pt"):
        load_model(tmp_path / "m.pt")


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_that_occurs_twice_is_refused(tmp_path):
    path = archive(tmp_path / "m.pt", RIGHT)
    with zipfile.ZipFile(path, "a") as made:
        made.writestr("m/data/0", NUMBERS[::-1].tobytes())
    with pytest.raises(InputError, match="contains 'm/data/0' twice"):
        load_model(path)


AROUND = {
    "bytes behind": lambda data: data + b"x",
    "bytes before": lambda data: b"PK\3\4" + data,
    "another archive behind": lambda data: data + data,
    "a comment": lambda data: data[:-2] + b"\3\0abc",
}


@pytest.mark.parametrize("source", ["torch", "zipfile"])
@pytest.mark.parametrize("case", AROUND)
def test_nothing_may_stand_around_the_archive(tmp_path, case, source):
    path = tmp_path / "m.pt"
    data = WHOLE if source == "torch" else archive(path, RIGHT).read_bytes()
    path.write_bytes(AROUND[case](data))
    with pytest.raises(InputError, match="not laid out"):
        load_model(path)


def entries(members, start):
    """Members of an archive and the list of them, as they would stand from `start` on."""
    body = listed = b""
    for name, data in members.items():
        crc, size, place = zlib.crc32(data), len(data), start + len(body)
        body += struct.pack("<4s5H3L2H", b"PK\3\4", 0, 0, 0, 0, 0, crc, size, size, len(name), 0) + name.encode() + data
        sizes = (crc, size, size, len(name), 0, 0, 0, 0, 0, place)
        listed += struct.pack("<4s6H3L5H2L", b"PK\1\2", 0, 0, 0, 0, 0, 0, *sizes) + name.encode()
    return body, listed


def two_in_one(chosen):
    """An archive with two lists of members: one stands at the end, the other is where a record says that it is."""
    data, lists, records = b"", [], []
    for numbers in (NUMBERS, NUMBERS + 10):
        body, listed = entries({"m/data.pkl": RIGHT, "m/data/0": numbers.tobytes(), "m/version": b"3\n"}, len(data))
        data += body
        lists.append((len(listed), len(data)))
        data += listed
        records.append(len(data))
        data += struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 0, 0, 0, 0, 3, 3, *lists[-1])
    data += struct.pack("<4sLQL", b"PK\6\7", 0, records[chosen], 1)
    return data + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 3, 3, *lists[1], 0)


def test_an_archive_that_is_two_is_refused(tmp_path):
    """Torch reads one, Python's zipfile (some versions of it) the other: what is checked must be what is read."""
    path = tmp_path / "m.pt"
    path.write_bytes(two_in_one(0))
    assert torch.load(path)["weight"][0, 0] == 1
    with pytest.raises(InputError):
        load_model(path)
    path.write_bytes(two_in_one(1))
    assert torch.load(path)["weight"][0, 0] == 11
    assert load_model(path).layers[0].weights[0, 0] == 11


def changed_list(place, value):
    """The archive of zipfile, with some bytes of the first entry of its list changed."""
    made = io.BytesIO()
    data = bytearray(archive(made, RIGHT).getvalue())
    start = data.index(b"PK\1\2") + place
    data[start : start + len(value)] = value
    return bytes(data)


LISTS = {
    "encrypted": (8, b"\1\0", "is encrypted"),
    "odd flags": (8, b"\x10\0", "not laid out"),
    "another size": (24, struct.pack("<L", 3), "not laid out"),
    "another size that is stored": (20, struct.pack("<L", 3), "not laid out"),
    "a larger size": (20, struct.pack("<2L", 2**31, 2**31), "more than 2048 MiB"),
    "a comment": (32, b"\1\0", "not a complete"),
    "a longer name": (28, b"\x0b\0", "not a complete"),
    "another place": (42, struct.pack("<L", 1), "is damaged"),
    "another name": (46, b"n", "is damaged"),
}


@pytest.mark.parametrize("case", LISTS)
def test_entries_that_are_not_right_are_refused(tmp_path, case):
    place, value, said = LISTS[case]
    (tmp_path / "m.pt").write_bytes(changed_list(place, value))
    with pytest.raises(InputError, match=said):
        load_model(tmp_path / "m.pt")


def complete(members, start=0, before=b""):
    body, listed = entries(members, start)
    place = len(before) + len(body)
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, len(members), len(members), len(listed), place, 0)
    return before + body + listed + end


def test_what_begins_otherwise_is_refused(tmp_path):
    """Torch takes it for a bare pickle."""
    path, members = tmp_path / "m.pt", {"m/data.pkl": RIGHT, "m/data/0": NUMBERS.tobytes(), "m/version": b"3\n"}
    path.write_bytes(complete(members, 4, b"PK\0\0"))
    with zipfile.ZipFile(path) as made:
        assert made.testzip() is None
    with pytest.raises(InputError, match="not laid out"):
        load_model(path)
    path.write_bytes(complete(members))
    assert load_model(path).outputs == 2


def test_an_archive_behind_a_large_hole_is_refused(tmp_path):
    """Its places are no numbers of 32 bits."""
    with (tmp_path / "m.pt").open("wb") as file:
        file.write(b"PK\3\4")
        file.seek(2**32)
        file.write(WHOLE)
    with pytest.raises(InputError, match="not laid out"):
        load_model(tmp_path / "m.pt")
    (tmp_path / "m.pt").unlink()


def test_more_fields_of_an_entry_are_refused(tmp_path):
    """They can say other sizes and places."""
    path = archive(tmp_path / "m.pt", RIGHT)
    with zipfile.ZipFile(path, "a") as made:
        info = zipfile.ZipInfo("m/more")
        info.extra = b"UT\5\0\1" + bytes(4)
        made.writestr(info, b"")
    with pytest.raises(InputError, match="not laid out"):
        load_model(path)


def test_names_that_end_in_the_middle_are_refused(tmp_path):
    """Python takes the part before a zero, torch the whole."""
    members = {"m/data.pkl": RIGHT, "m/data/0": NUMBERS.tobytes(), "m/more\0x": b"", "m/version": b"3\n"}
    path = tmp_path / "m.pt"
    for name in ("m/more\0x", "m/more"):
        path.write_bytes(complete({name if "more" in key else key: data for key, data in members.items()}))
        if "\0" in name:
            with pytest.raises(InputError, match="points out of the archive"):
                load_model(path)
    assert load_model(path).outputs == 2


def test_a_large_pickle_is_refused(monkeypatch):
    from intervalcert.io.models import torch_file

    monkeypatch.setattr(torch_file, "MAX_PICKLE", len(PICKLE))
    assert load_model(FIXTURE).outputs == 3
    monkeypatch.setattr(torch_file, "MAX_PICKLE", len(PICKLE) - 1)
    with pytest.raises(InputError, match="its pickle is larger than"):
        load_model(FIXTURE)


def test_members_that_overlap_are_refused(tmp_path):
    """A few bytes that are listed again and again could fill the memory."""
    names = {f"m/data/{i}": b"" for i in range(1000)}
    members = {"m/data.pkl": RIGHT, "m/data/x": bytes(10_000), **names}
    body, _ = entries(members, 0)
    listed = b""
    crc, size = zlib.crc32(bytes(10_000)), 10_000
    place = body.index(b"PK\3\4", 4)
    for name, data in members.items():
        sizes = (zlib.crc32(data), len(data), len(data)) if name == "m/data.pkl" else (crc, size, size)
        where = 0 if name == "m/data.pkl" else place
        listed += struct.pack("<4s6H3L5H2L", b"PK\1\2", 0, 0, 0, 0, 0, 0, *sizes, len(name), 0, 0, 0, 0, 0, where)
        listed += name.encode()
    end = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, len(members), len(members), len(listed), len(body), 0)
    (tmp_path / "m.pt").write_bytes(body + listed + end)
    with pytest.raises(InputError, match="members that overlap"):
        load_model(tmp_path / "m.pt")


def test_files_without_checksums_are_refused(tmp_path):
    config = torch.utils.serialization.config.save
    config.compute_crc32 = False
    try:
        path = saved(tmp_path / "m.pt", MODEL.state_dict())
    finally:
        config.compute_crc32 = True
    with pytest.raises(InputError, match=r"without checksums.*Save it again"):
        load_model(path)
    assert load_model(saved(path, MODEL.state_dict())).outputs == 2


def test_the_ending_and_the_content_must_agree(tmp_path):
    (tmp_path / "m.npz").write_bytes(WHOLE)
    with pytest.raises(InputError, match=r"is not a numpy archive.*looks like a PyTorch file"):
        load_model(tmp_path / "m.npz")
    (tmp_path / "m.pt").write_bytes((FIXTURES / "mlp.npz").read_bytes())
    with pytest.raises(InputError, match="is not a PyTorch file"):
        load_model(tmp_path / "m.pt")


@pytest.mark.parametrize("options", [{"strip_softmax": True}, {"biases": FIXTURES / "mlp_biases.txt"}])
def test_options_for_other_files_are_refused(options):
    with pytest.raises(UsageError, match="is not for a PyTorch file"):
        load_model(FIXTURE, **options)


# -- torch itself ----------------------------------------------------------------------------------------------------


def test_a_missing_torch_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UsageError, match=r"pip install 'intervalcert\[torch\]'"):
        load_model(FIXTURE)


@pytest.mark.parametrize("version", ["1.13.1", "2.6.0", "2.9.1+cu128", "unknown"])
def test_an_old_torch_is_refused(monkeypatch, version):
    """Before 2.10 a file could write to memory that is not its own (CVE-2026-24747)."""
    monkeypatch.setattr(torch, "__version__", version)
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("read"))
    with pytest.raises(UsageError, match=r"torch 2\.10 or newer.*pip install --upgrade 'intervalcert\[torch\]'"):
        load_model(FIXTURE)


@pytest.mark.parametrize("version", ["2.10.0", "2.13.0+cpu", "3.0.1"])
def test_newer_ones_are_not(monkeypatch, version):
    monkeypatch.setattr(torch, "__version__", version)
    assert load_model(FIXTURE).outputs == 3


def test_torch_is_imported_only_for_its_own_files():
    code = (
        "import sys; from intervalcert import load_model; import intervalcert.io.models.torch_file\n"
        f"load_model({str(FIXTURES / 'mlp.npz')!r}); assert 'torch' not in sys.modules\n"
        f"load_model({str(FIXTURE)!r}); assert 'torch' in sys.modules"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True)


def test_tensors_that_share_their_numbers_share_one_matrix(tmp_path):
    square = torch.ones(2, 2)
    torch.save({f"{i}.weight": square for i in (0, 2, 4)} | {"6.weight": square.clone()}, tmp_path / "m.pt")
    first, *rest = (layer.weights for layer in load_model(tmp_path / "m.pt").layers)
    assert [each is first for each in rest] == [True, True, False]
