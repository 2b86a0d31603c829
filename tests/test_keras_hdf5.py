"""The weights of Keras files: only what Keras writes, and only what the layers need, is read from them."""

import io
import re
import struct
import time
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from intervalcert import InputError, load_model
from intervalcert.io.models import keras_hdf5
from intervalcert.io.models.keras_config import KerasLayer
from intervalcert.io.models.keras_hdf5 import PlainFile
from intervalcert.io.models.keras_weights import WeightStore
from tests.commands import ran

pytest.importorskip("h5py", reason="the package h5py is not installed")

import h5py

from tests.test_keras import FILES, FIXTURES, archived, check, drawn, exact, functional, layer, relu, sequential, stored

KERNEL, BIAS = drawn(2, 3), drawn(3, seed=1)
LAST = np.eye(3, dtype=np.float32)
WEIGHTS = {"dense": [KERNEL, BIAS], "re_lu": [], "dense_1": [LAST]}
DOCUMENT = sequential([layer("Dense", units=3), layer("ReLU"), layer("Dense", units=3, use_bias=False)], (2,))
STORED = stored(WEIGHTS)


def members(name):
    with zipfile.ZipFile(FIXTURES / name) as archive:
        return {part: archive.read(part) for part in archive.namelist()}


def network_of(folder, data):
    return load_model(archived(folder / "m.keras", DOCUMENT, data))


def edited(change, **options):
    """The file after a change by h5py; with options it is written anew."""
    data = io.BytesIO(b"" if options else STORED)
    with h5py.File(data, "w" if options else "r+", **options) as file:
        if options:
            with h5py.File(io.BytesIO(STORED), "r") as old:
                for name in old:
                    old.copy(name, file)
        change(file)
    return data.getvalue()


def test_the_file_that_is_changed_here_is_read(tmp_path):
    check(network_of(tmp_path, STORED), (2,), lambda x: relu(x @ exact(KERNEL) + exact(BIAS)))
    check(network_of(tmp_path, edited(lambda file: None)), (2,), lambda x: relu(x @ exact(KERNEL) + exact(BIAS)))


# -- our own look at the file beside that of h5py --------------------------------------------------------------------


def compared(plain, file, member, place):
    """How many objects there are, all the same for both."""
    found = plain.members(member)
    if found is None:
        array, other = plain.array(member), file[place]
        assert (array.shape, array.dtype) == (other.shape, other.dtype)
        assert plain.data[array.start :][: other.nbytes] == other[()].tobytes()
        return 1
    assert sorted(found) == sorted(file[place])
    return 1 + sum(compared(plain, file, found[name], f"{place}{name}/") for name in found)


@pytest.mark.parametrize("name", FILES)
def test_the_fixtures_are_seen_as_h5py_sees_them(name):
    data = members(name)["model.weights.h5"]
    plain = PlainFile(data)
    with h5py.File(io.BytesIO(data), "r") as file:
        assert compared(plain, file, plain.root, "/") > 10


@pytest.mark.parametrize("count", [1, 8, 9, 257, 1000])
def test_groups_of_any_size_are_seen_as_h5py_sees_them(count):
    rng = np.random.default_rng(count)
    types = ("<f2", "<f4", "<f8", "<i4", "<i8")
    data = io.BytesIO()
    with h5py.File(data, "w") as file:
        for index in rng.permutation(count):
            shape = tuple(rng.integers(1, 4, rng.integers(0, 4)))
            file[f"layers/{'x' * rng.integers(1, 30)}{index}"] = rng.normal(size=shape).astype(types[index % 5])
    plain = PlainFile(data.getvalue())
    with h5py.File(data, "r") as file:
        assert compared(plain, file, plain.root, "/") == count + 2


# -- arrays ----------------------------------------------------------------------------------------------------------

DENSE = "layers/dense/vars"
PLACE = r"layer 0.*\(Dense\): its kernel \(layers/dense/vars/0\)"


def replaced(values, name="0", **options):
    def change(file):
        del file[f"{DENSE}/{name}"]
        file[DENSE].create_dataset(name, data=values, **options)

    return lambda: edited(change)


def with_nan(values):
    made = values.copy()
    made[1, 2] = np.nan
    return made


def virtual(file):
    layout = h5py.VirtualLayout(shape=(2, 3), dtype="<f4")
    layout[:] = h5py.VirtualSource(".", f"{DENSE}/1", shape=(2, 3))
    del file[f"{DENSE}/0"]
    file[DENSE].create_virtual_dataset("0", layout)


def removed(*names):
    def change(file):
        for name in names:
            del file[name]

    return lambda: edited(change)


def linked(link, name=f"{DENSE}/0"):
    def change(file):
        del file[name]
        file[name] = link

    return lambda: edited(change)


def committed(file):
    file["layers/type"] = np.dtype("<f4")
    kind = file["layers/type"]
    del file[f"{DENSE}/0"]
    file[DENSE].create_dataset("0", data=KERNEL, dtype=kind)


NOT_PLAIN = f"{PLACE} is not stored as Keras stores it"
ARRAYS = {
    "not a number": (replaced(with_nan(KERNEL)), r"its kernel: nan at \[1, 2\]"),
    "infinite": (replaced(np.array([1, -np.inf, 3], dtype=np.float32), "1"), r"its bias: -inf at \[1\]"),
    "transposed": (replaced(KERNEL.T), rf"{PLACE} has the shape \[3, 2\], where .* asks for \[2, 3\]"),
    "flat": (replaced(KERNEL.ravel()), rf"{PLACE} has the shape \[6\]"),
    "one number": (replaced(KERNEL[0, 0]), rf"{PLACE} has the shape \[\]"),
    "a row more": (replaced(drawn(3, 3)), rf"{PLACE} has the shape \[3, 3\]"),
    "a bias more": (replaced(drawn(4), "1"), r"its bias .* has the shape \[4\], where .* asks for \[3\]"),
    "twice as exact": (replaced(KERNEL.astype("<f8")), f"{PLACE} has the type float64, where .* asks for float32"),
    "half as exact": (replaced(KERNEL.astype("<f2")), f"{PLACE} has the type float16"),
    "whole numbers": (replaced(KERNEL.astype("<i4")), f"{PLACE} has the type int32"),
    "whole numbers without a sign": (replaced(KERNEL.astype("<u4")), NOT_PLAIN),
    "the other way round": (replaced(KERNEL.astype(">f4")), NOT_PLAIN),
    "complex": (replaced(KERNEL.astype("<c8")), NOT_PLAIN),
    "texts": (replaced(np.full((2, 3), b"1.5")), NOT_PLAIN),
    "records": (replaced(np.zeros((2, 3), dtype=[("x", "<f4")])), NOT_PLAIN),
    "nothing": (replaced(h5py.Empty("<f4")), NOT_PLAIN),
    "compressed": (replaced(KERNEL, compression="gzip"), NOT_PLAIN),
    "in pieces": (replaced(KERNEL, chunks=(1, 3)), NOT_PLAIN),
    "shuffled": (replaced(KERNEL, shuffle=True), NOT_PLAIN),
    "that may grow": (replaced(KERNEL, maxshape=(None, 3)), NOT_PLAIN),
    "with a value for gaps": (replaced(KERNEL, fillvalue=3), NOT_PLAIN),
    "virtual": (lambda: edited(virtual), NOT_PLAIN),
    "of a named type": (lambda: edited(committed), r"'type' in layers|is not stored"),
    "of nine sides": (replaced(np.zeros((1,) * 9, dtype=np.float32)), NOT_PLAIN),
    "with a note": (lambda: edited(lambda file: file[f"{DENSE}/0"].attrs.create("dtype", "bfloat16")), NOT_PLAIN),
    "a group": (lambda: edited(lambda file: (file.pop(f"{DENSE}/0"), file.create_group(f"{DENSE}/0"))), NOT_PLAIN),
    "a link": (linked(h5py.SoftLink(f"/{DENSE}/1")), "has a link to another place"),
    "a link to another file": (linked(h5py.ExternalLink("other.h5", "x")), "has links to other places"),
    "missing": (removed(f"{DENSE}/0"), f"{PLACE} is not in model.weights.h5"),
    "missing bias": (removed(f"{DENSE}/1"), r"its bias \(layers/dense/vars/1\) is not in"),
    "missing variables": (removed(DENSE), f"{PLACE} is not in"),
    "missing group": (removed("layers/dense"), f"{PLACE} is not in"),
    "missing groups": (removed("layers"), "has no layers: the model was saved before it had weights"),
}


@pytest.mark.parametrize("case", ARRAYS)
def test_arrays_are_plain_numbers_of_the_right_shape(tmp_path, case):
    made, said = ARRAYS[case]
    with pytest.raises(InputError, match=said):
        network_of(tmp_path, made())


def test_arrays_in_other_files_are_not_read(tmp_path):
    other = tmp_path / "other.bin"
    other.write_bytes(KERNEL.tobytes())

    def change(file):
        del file[f"{DENSE}/0"]
        file[DENSE].create_dataset("0", (2, 3), "<f4", external=[(str(other), 0, 24)])

    with pytest.raises(InputError, match=NOT_PLAIN):
        network_of(tmp_path, edited(change))


def added(name, values=None):
    def change(file):
        if values is None:
            file.create_group(name)
        else:
            file[name] = values

    return lambda: edited(change)


GROUPS = {
    "a variable more": (added(f"{DENSE}/2", BIAS), "has '2' in layers/dense/vars"),
    "a variable of a function": (added("layers/re_lu/vars/0", BIAS), "has '0' in layers/re_lu/vars"),
    "a variable of the model": (added("vars/0", BIAS), "has '0' in vars"),
    "a layer more": (added("layers/dense_2/vars/0", BIAS), "has 'dense_2' in layers"),
    "a layer by its name": (added("layers/layer 0/vars/0", BIAS), "has 'layer 0' in layers"),
    "a part of a layer": (added("layers/dense/lora/vars/0", BIAS), "has 'lora' in layers/dense"),
    "an activation that is not there": (added("layers/dense/activation/vars"), "has 'activation' in layers/dense"),
    "noise that is not there": (added("layers/dense/seed_generator"), "has 'seed_generator' in layers/dense"),
    "another place": (added("_layer_checkpoint_dependencies/dense/vars/0", KERNEL), "has '_layer_checkpoint"),
    "a name of strange bytes": (added(b"layers/\xff\xfe"), "has .* in layers"),
    "a name of many letters": (added(f"layers/{'x' * 300}"), "names of another form"),
    "layers that are an array": (
        lambda: edited(lambda f: (f.pop("layers"), f.create_dataset("layers", data=1))),
        "no gr",
    ),
    "a layer that is an array": (
        lambda: edited(lambda f: (f.pop("layers/re_lu"), f.create_dataset("layers/re_lu", data=1))),
        "'layers/re_lu' is no group",
    ),
    "a layer that is a link": (linked(h5py.SoftLink("/layers/dense_1"), "layers/dense"), "has a link to another place"),
    "the newest form": (lambda: edited(lambda file: None, libver="latest"), "another form of HDF5 than Keras writes"),
    "groups in order": (lambda: edited(lambda file: None, track_order=True), "is no group as Keras writes them"),
    "something before it": (lambda: edited(lambda file: None, userblock_size=512), "is no HDF5 file"),
    "no HDF5": (lambda: b"\x89HDF", "is no HDF5 file"),
    "empty": (lambda: b"", "is no HDF5 file"),
}


@pytest.mark.parametrize("case", GROUPS)
def test_groups_are_those_of_the_layers(tmp_path, case):
    made, said = GROUPS[case]
    with pytest.raises(InputError, match=said):
        network_of(tmp_path, made())


def test_an_input_has_no_variables(tmp_path):
    document = functional([layer("Dense", units=3)], (2,))
    for values in ([], [BIAS]):
        path = archived(tmp_path / "m.keras", document, {"input_layer": values, "dense": [KERNEL, BIAS]})
        if values:
            with pytest.raises(InputError, match="has '0' in layers/input_layer/vars"):
                load_model(path)
        else:
            check(load_model(path), (2,), lambda x: x @ exact(KERNEL) + exact(BIAS))


def test_an_activation_has_no_variables(tmp_path):
    made = layer("Dense", units=3, activation=layer("ReLU", name="mine"))
    weights = {"dense": [KERNEL, BIAS], "dense/activation": [BIAS]}
    with pytest.raises(InputError, match="has '0' in layers/dense/activation/vars"):
        load_model(archived(tmp_path / "m.keras", sequential([made], (2,)), weights))


def test_a_function_that_two_layers_share_is_stored_once(tmp_path):
    made = [layer("Dense", units=3, activation={**layer("ReLU", name="x"), "shared_object_id": 3}) for _ in range(2)]
    weights = {"dense": [KERNEL, BIAS], "dense/activation": [], "dense_1": [LAST, BIAS]}
    network = load_model(archived(tmp_path / "m.keras", sequential(made, (2,)), weights))
    check(network, (2,), lambda x: relu(relu(x @ exact(KERNEL) + exact(BIAS)) + exact(BIAS)))


# -- files that are damaged, or meant to do damage -------------------------------------------------------------------

ROOT, NOWHERE = 96, 2**64 - 1


def fields(form, place):
    return struct.unpack_from(f"<{form}", STORED, place)


TREE, HEAP = fields("QQ", 80)
(SIZE, _, NAMES), (LEAF,) = fields("QQQ", HEAP + 8), fields("Q", TREE + 32)
FIRST, SECOND = LEAF + 8, LEAF + 48  # what the root leads to: the name, the object, a kind, a tree and a heap


def array_header(plain, *names):
    member = plain.root
    for name in names:
        member = plain.members(member)[name]
    return member.header


KERNEL_HEADER = array_header(PlainFile(STORED), "layers", "dense", "vars", "0")
SPACE, TYPE, FILL, LAYOUT = (KERNEL_HEADER + 16 + offset for offset in (0, 48, 80, 96))


def patched(*changes):
    """Places, and the bytes or the numbers of 8 bytes that are written there."""
    data = bytearray(STORED)
    for place, value in changes:
        text = value if isinstance(value, bytes) else struct.pack("<Q", value)
        data[place : place + len(text)] = text
    return bytes(data)


DAMAGED = {
    "a free place that is its own next": ("places that does not end", (HEAP + 16, 40), (NAMES + 40, 40)),
    "free places in a circle": ("places that does not end", (HEAP + 16, 40), (NAMES + 40, 56), (NAMES + 56, 40)),
    "a free place beyond": ("free places that leads nowhere", (HEAP + 16, 2**40)),
    "a free place that is too short": ("free places that leads nowhere", (HEAP + 16, SIZE - 8)),
    "a free place at the start": ("free places that leads nowhere", (HEAP + 16, 0)),
    "huge names": ("no names", (HEAP + 8, 2**62)),
    "names beyond the end": ("ends before it does", (HEAP + 24, len(STORED) - 8)),
    "names nowhere": ("ends before it does", (HEAP + 24, NOWHERE)),
    "names of another version": ("no names", (HEAP + 4, b"\x01")),
    "no names": ("no names", (HEAP, b"XXXX")),
    "names without an end": ("a name that does not end", (NAMES + SIZE - 1, b"x")),
    "a tree that is its own child": ("no tree of names|in a circle", (TREE + 5, b"\x01"), (TREE + 32, TREE)),
    "a tree that leads back": (
        "runs in a circle",
        (TREE + 5, b"\x01"),
        (TREE + 32, LEAF),
        (LEAF, STORED[TREE : TREE + 5] + b"\x01" + STORED[TREE + 6 : TREE + 24]),
        (LEAF + 24, bytes(24)),
    ),
    "a tree that is its own neighbour": ("no tree of names", (TREE + 8, TREE)),
    "a tree that is its own next": ("no tree of names", (TREE + 16, TREE)),
    "a deep tree": ("more names than a model can need", (TREE + 5, b"\xff"), (TREE + 32, TREE)),
    "a tree of pieces": ("no tree of names", (TREE + 4, b"\x01")),
    "no tree": ("no tree of names", (TREE, b"XXXX")),
    "a wide tree": ("no tree of names", (TREE + 6, b"\x21\x00")),
    "a tree of names beyond": ("a tree of other names", (TREE + 24, SIZE)),
    "a tree at the end": ("two tables of names", (80, len(STORED) - 8)),
    "a table at the end": ("ends before it does", (80, len(STORED) - 30), (ROOT + 24, len(STORED) - 30)),
    "one child twice": ("a tree of other names", (TREE + 6, b"\x02"), (TREE + 48, LEAF)),
    "no table": ("no table of names", (LEAF, b"XXXX")),
    "a table of another version": ("no table of names", (LEAF + 4, b"\x02")),
    "a long table": ("no table of names", (LEAF + 6, b"\x09\x00")),
    "an empty table": ("no table of names", (LEAF + 6, b"\x00\x00")),
    "half a table": ("no table of names", (ROOT + 2, b"\x02"), (ROOT + 18, b"\x08"), (ROOT + 32, 0)),
    "a name beyond": ("names of another form", (FIRST, SIZE)),
    "a name far beyond": ("names of another form", (FIRST, NOWHERE)),
    "a name of nothing": ("names of another form", (FIRST, 0)),
    "one name twice": ("names of another form", (SECOND, *fields("Q", FIRST))),
    "names in another order": ("names of another form", (FIRST, *fields("Q", SECOND)), (SECOND, *fields("Q", FIRST))),
    "an object beyond": ("ends before it does", (FIRST + 8, 2**63)),
    "an object nowhere": ("ends before it does", (FIRST + 8, NOWHERE)),
    "an object that is none": ("no object", (FIRST + 8, LEAF)),
    "another tree beside the name": ("two tables of names", (FIRST + 24, TREE)),
    "another heap beside the name": ("two tables of names", (FIRST + 32, HEAP)),
    "a link": ("a link to another place", (FIRST + 16, b"\x02")),
    "a header of another version": ("no object", (ROOT, b"\x02")),
    "a header of fewer parts": ("a header of another form", (ROOT + 2, b"\x00")),
    "a header of more parts": ("a header of another form", (ROOT + 2, b"\x02")),
    "a header that is too short": ("a header of another form", (ROOT + 8, b"\x10")),
    "a header of no end": ("a header of another form|ends before", (ROOT + 8, b"\xff\xff\xff\x7f")),
    "a header that continues in itself": (
        "a header of another form",
        (ROOT + 2, b"\xff\xff"),
        (ROOT + 16, b"\x10\x00"),
        (ROOT + 24, ROOT + 16),
        (ROOT + 32, 24),
    ),
    "a header that continues in half a place": (
        "is no group as Keras writes them",
        (ROOT + 2, b"\x02"),
        (ROOT + 16, b"\x10\x00\x08"),
        (ROOT + 32, 0),
    ),
    "a part of a strange length": ("a header of another form", (ROOT + 18, b"\x09")),
    "parts of strange lengths": (
        "a header of another form",
        (KERNEL_HEADER + 2, b"\x06"),
        (LAYOUT + 32 + 2, b"\x0c"),
        (LAYOUT + 32 + 20 + 2, b"\x64"),
    ),
    "a table that is shared": ("a header of another form", (ROOT + 20, b"\x02")),
    "two shapes": ("a header of another form", (FILL, b"\x01")),
    "a root nowhere": ("ends before it does", (64, NOWHERE)),
    "another version": ("another form of HDF5", (8, b"\x01")),
    "another version of groups": ("another form of HDF5", (10, b"\x01")),
    "other sizes": ("another form of HDF5", (13, b"\x04")),
    "other lengths": ("another form of HDF5", (14, b"\x04")),
    "other widths": ("another form of HDF5", (16, b"\x05")),
    "a base": ("another form of HDF5", (24, 8)),
    "an array beyond the end": ("an array that is not complete", (LAYOUT + 10, len(STORED) - 16)),
    "an array of another size": ("an array that is not complete", (LAYOUT + 18, 16)),
    "an array nowhere": (f"{PLACE} is not stored", (LAYOUT + 10, NOWHERE)),
    "an array in its header": (f"{PLACE} is not stored", (LAYOUT + 9, b"\x00")),
    "an array in pieces": (f"{PLACE} is not stored", (LAYOUT + 9, b"\x02")),
    "an array that is told in another way": (f"{PLACE} is not stored", (LAYOUT + 8, b"\x04")),
    "an array that is told in brief": (
        f"{PLACE} is not stored",
        (KERNEL_HEADER + 2, b"\x06"),
        (LAYOUT + 2, b"\x10"),
        (LAYOUT + 24, 0),
    ),
    "an array without a place": (f"{PLACE} is not stored", (LAYOUT, b"\x00")),
    "an array with filters": (f"{PLACE} is not stored", (FILL, b"\x0b")),
    "an array in other files": (f"{PLACE} is not stored", (FILL, b"\x07")),
    "an array filled at once": (f"{PLACE} is not stored", (FILL + 9, b"\x01")),
    "an array of another space": (f"{PLACE} is not stored", (SPACE + 8, b"\x02")),
    "an array that is turned round": (f"{PLACE} is not stored", (SPACE + 10, b"\x02")),
    "an array of more sides": (f"{PLACE} is not stored", (SPACE + 9, b"\x03")),
    "an array that may grow": (f"{PLACE} is not stored", (SPACE + 32, NOWHERE)),
    "an array of another exponent": (f"{PLACE} is not stored", (TYPE + 8 + 16, b"\x80")),
    "an array of another order": (f"{PLACE} is not stored", (TYPE + 9, b"\x21")),
    "an array with more behind its type": (f"{PLACE} is not stored", (TYPE + 8 + 20, b"\x01")),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_pointers_that_lead_nowhere_or_in_a_circle_are_refused_at_once(tmp_path, case):
    """The library behind h5py would fill the memory with some of these, and end the process for others."""
    said, *changes = DAMAGED[case]
    data = patched(*changes)
    assert data != STORED
    start = time.perf_counter()
    with pytest.raises(InputError, match=said):
        network_of(tmp_path, data)
    assert time.perf_counter() - start < 5


def test_an_array_that_looks_like_a_group_is_refused(tmp_path):
    """Beside its name stands a table, as if it were one."""
    place = STORED.index(struct.pack("<Q", KERNEL_HEADER)) + 8
    assert fields("I", place) == (0,)
    with pytest.raises(InputError, match=f"{PLACE} is not stored"):
        network_of(tmp_path, patched((place, b"\x01")))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        bytes(8),
        b"\2" + bytes(7),
        b"\1\0\2" + bytes(5),
        b"\1\1" + bytes(6),
        b"\1\1\1" + bytes(13),
        b"\1\x09" + bytes(6 + 72),
        b"\1\1\1" + bytes(5) + struct.pack("<QQ", 3, 4),
    ],
    ids=str,
)
def test_only_simple_shapes_are_known(body):
    assert keras_hdf5._shape(body) is None


def test_simple_shapes():
    assert keras_hdf5._shape(b"\1" + bytes(7)) == ()
    assert keras_hdf5._shape(b"\1\2" + bytes(6) + struct.pack("<QQ", 3, 4)) == (3, 4)
    assert keras_hdf5._shape(b"\1\2\1" + bytes(5) + struct.pack("<QQQQ", 3, 4, 3, 4)) == (3, 4)


@pytest.mark.parametrize("other", [KERNEL + 1, KERNEL.astype(np.float64), KERNEL.reshape(3, 2)], ids=["1", "2", "3"])
def test_what_h5py_reads_must_be_what_is_there(other):
    class Package:
        """In place of h5py."""

        class File(dict):
            def __init__(self, data, mode):
                self[f"{DENSE}/0"] = other

            def close(self):
                pass

    made = KerasLayer("first", "Dense", {}, np.dtype("f4"), stored="dense")
    with WeightStore.of(Package, STORED) as store, pytest.raises(InputError, match="not where h5py finds it"):
        store.arrays(made, [("kernel", (2, 3), "float32")])


def test_every_truncated_store_is_refused(tmp_path, capsys):
    for length in range(0, len(STORED), 10):
        with pytest.raises(InputError, match=r"model\.weights\.h5|layers/dense"):
            network_of(tmp_path, STORED[:length])
    code, out, said = ran(capsys, "inspect", archived(tmp_path / "m.keras", DOCUMENT, STORED[:-1]))
    assert (code, out) == (3, "")
    assert "model.weights.h5" in said


STRUCTURES = sorted(found.start() for mark in (b"TREE", b"SNOD", b"HEAP") for found in re.finditer(mark, STORED))
CHANGES = st.one_of(
    st.tuples(st.integers(0, len(STORED) - 1), st.binary(min_size=1, max_size=1)),
    st.tuples(
        st.sampled_from(STRUCTURES).flatmap(lambda place: st.sampled_from(range(place, place + 64))),
        st.sampled_from([struct.pack("<Q", place) for place in (0, 1, 8, 16, 2**63, NOWHERE, *STRUCTURES)]),
    ),
)


@given(st.lists(CHANGES, min_size=1, max_size=4))
def test_changed_bytes_give_a_network_or_a_refusal(tmp_path_factory, changes):
    """The sums of the archive are right: only what is in the file itself can tell."""
    try:
        network = network_of(tmp_path_factory.getbasetemp(), patched(*changes)[: len(STORED)])
    except InputError:
        return
    assert [part.weights.shape for part in network.layers] == [(3, 2), (3, 3)]
