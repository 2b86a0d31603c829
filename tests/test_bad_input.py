"""Bad input: a clear message, the right exit code, no output file, never a traceback.

Most cases are a line in a table: the file, and what its message must say. They run the command line in this process
and are checked in the same way (`Folder.refuses`). Files are only as bad as they must be for the one thing tested.
"""

import copy
import io
import json
import os
import pickle
import re
import resource
import struct
import subprocess
import sys
import textwrap
import time
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
from bounds_files import set_margin

from intervalcert import InputError, Network, compute_bounds, load_bounds, load_model, save_bounds
from intervalcert.cli.program import main
from intervalcert.errors import shortened
from intervalcert.execution.streaming import read_labels, read_outputs

FIXTURES = Path(__file__).parent / "fixtures"

TEXT_MODEL = "[[1.0,2.0],[3.0,4.0]],[[0.5,0.25,-1],[1,1,2]]"
"""Two inputs, two hidden, three classes."""

WEIGHTS = ([[1.0, 3.0], [2.0, 4.0]], [[0.5, 1.0], [0.25, 1.0], [-1.0, 2.0]])
BEFORE = b"an older result\n"


class Folder:
    """A working folder with one valid file of each kind, and a way to run a command that must fail in it."""

    def __init__(self, path, capsys):
        self.path = path
        self._capsys = capsys

    def names(self):
        return sorted(path.name for path in self.path.iterdir())

    def run(self, *argv):
        """Exit code, stdout, stderr. argparse leaves by SystemExit: that is an exit code too."""
        self._capsys.readouterr()
        try:
            code = main([str(word) for word in argv])
        except SystemExit as left:
            code = left.code
        found = self._capsys.readouterr()
        return code, found.out, found.err

    def refuses(self, *argv, says=(), code=3, output=None):
        """The command fails as promised, both where its output file is new and where it exists."""
        if output is not None:
            argv = (*argv, "-o", output)
        for before in (None, BEFORE):
            target = None if output is None else self.path / output
            if before is not None and target is not None:
                target.write_bytes(before)
            listing = self.names()
            found, out, err = self.run(*argv)
            assert found == code, err
            assert out == ""
            assert_clear(err, code)
            for phrase in says:
                assert phrase in err, err
            assert self.names() == listing, "a file was left behind"
            if before is not None and target is not None:
                assert target.read_bytes() == before


def assert_clear(err, code=3):
    """One message of reasonable length, printable, and no sign of the program's insides."""
    assert "Traceback" not in err
    assert " object at 0x" not in err, err
    if code != 2:
        assert err.startswith("intervalcert: "), err
        assert err.count("\n") == 1, err
    assert err.endswith("\n")
    assert len(err) < 800, err
    assert err.rstrip("\n").replace("\n", " ").isprintable(), ascii(err)


@pytest.fixture(scope="module")
def bounds_text(tmp_path_factory):
    path = tmp_path_factory.mktemp("bounds") / "model.txt"
    path.write_text(TEXT_MODEL)
    target = path.with_name("bounds.json")
    save_bounds(compute_bounds(load_model(path), "exact", 2), target)
    return target.read_text()


@pytest.fixture
def folder(tmp_path, monkeypatch, capsys, bounds_text):
    monkeypatch.chdir(tmp_path)
    Path("model.txt").write_text(TEXT_MODEL)
    Path("bounds.json").write_text(bounds_text)
    Path("outputs.csv").write_text("1.0,2.0,5.0\n0.5,9.0,1e-3\n")
    Path("radii.txt").write_text("1.0,2.0,5.0 0.1\n0.5,9.0,1e-3 0.25\n")
    Path("labels.txt").write_text("2\n1\n")
    return Folder(tmp_path, capsys)


def test_the_good_files_are_good(folder):
    """Otherwise every refusal below could have another reason."""
    assert folder.run("bounds", "model.txt", "-o", "out.json")[0] == 0
    assert folder.run("certify", "bounds.json", "outputs.csv", "--eps", "0.1", "--labels", "labels.txt")[0] == 0
    assert folder.run("certify", "bounds.json", "radii.txt")[0] == 0
    assert folder.run("radius", "bounds.json", "outputs.csv")[0] == 0
    assert folder.run("audit", "bounds.json", "--model", "model.txt")[0] == 0


# -- files in numpy's formats ----------------------------------------------------------------------------------------


def npy(array):
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(array), allow_pickle=True)
    return buffer.getvalue()


def npy_raw(header, data=b"", version=(1, 0)):
    """A .npy file with any header, however wrong."""
    head = header.encode("latin-1")
    length = struct.pack("<H" if version[0] == 1 else "<I", len(head))
    return b"\x93NUMPY" + bytes(version) + length + head + data


def header(shape, descr="<f8", fortran="False"):
    return f"{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}\n"


def npz(*members, compression=zipfile.ZIP_STORED):
    """An archive of (name, bytes) pairs; the same name may come twice."""
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with zipfile.ZipFile(buffer, "w", compression) as archive:
            for name, data in members:
                archive.writestr(name, data)
    return buffer.getvalue()


def npz_with_false_size(size):
    """An archive whose directory claims that its only member unpacks to `size` bytes."""
    data = bytearray(npz(("W0.npy", npy(np.eye(2))), compression=zipfile.ZIP_DEFLATED))
    entry = data.index(b"PK\x01\x02")
    struct.pack_into("<I", data, entry + 24, size)
    return bytes(data)


class Boom:
    """Unpickling this would leave a file behind."""

    def __reduce__(self):
        return (open, ("pickled.was.run", "w"))


W0, W1 = (npy(np.array(w)) for w in WEIGHTS)
PICKLED = np.array([[Boom(), 1.0]], dtype=object)
DUPLICATE = npz(("W0.npy", W0), ("W0.npy", W0))

BAD_MODELS = [
    # id, file name, content, phrases. The file's name is always expected in the message.
    ("empty", "m.txt", b"", ["empty"]),
    ("blank", "m.txt", b" \n\t\n", ["empty"]),
    ("empty npy", "m.npy", b"", []),
    ("empty npz", "m.npz", b"", []),
    ("nan", "m.txt", b"[[1.0,nan],[3.0,4.0]]", ["line 1", "nan", "finite"]),
    ("capital nan", "m.txt", b"[[1.0,NaN],[3.0,4.0]]", ["NaN", "finite"]),
    ("inf", "m.txt", b"[[1.0,2.0],\n[-inf,4.0]]", ["line 2", "-inf", "finite"]),
    ("infinity", "m.txt", b"[[Infinity,2.0],[1,4.0]]", ["Infinity", "finite"]),
    ("ragged", "m.txt", b"[[1.0,2.0],[3.0]]", ["layer 0", "row 1", "ragged"]),
    ("ragged in the second layer", "m.txt", b"[[1,2]],[[1,2],[3,4,5]]", ["layer 1", "row 1", "ragged"]),
    ("layers that do not fit", "m.txt", b"[[1,2,3]],[[1,2],[3,4]]", ["layer 1", "2 inputs", "3 outputs"]),
    ("truncated in a number", "m.txt", b"[[1.0,2.0],[3.0,4", ["truncated"]),
    ("truncated after a row", "m.txt", b"[[1.0,2.0],[3.0,4.0]", ["truncated"]),
    ("truncated after a comma", "m.txt", b"[[1.0,2.0],[3.0,4.0]],", ["truncated"]),
    ("truncated in the second layer", "m.txt", b"[[1.0,2.0],[3.0,4.0]],[", ["truncated"]),
    ("only brackets", "m.txt", b"[", ["truncated"]),
    ("closing first", "m.txt", b"]]", ["line 1, column 1", "'['"]),
    ("empty row", "m.txt", b"[[]]", ["line 1"]),
    ("empty matrix", "m.txt", b"[]", ["line 1"]),
    ("missing number", "m.txt", b"[[1,,2]]", ["line 1"]),
    ("trailing comma", "m.txt", b"[[1,2,]]", ["line 1"]),
    ("text after the end", "m.txt", b"[[1,2]] hello", ["line 1, column 9", "hello"]),
    ("no comma between", "m.txt", b"[[1,2]]\n[[1,2],[3,4]]", ["line 2, column 1", "','"]),
    ("three brackets", "m.txt", b"[[[1,2]]]", ["line 1, column 3"]),
    ("a word", "m.txt", b"[[1,two]]", ["line 1", "two"]),
    ("hexadecimal", "m.txt", b"[[1,0x1p3]]", ["0x1p3"]),
    ("underscores", "m.txt", b"[[1,1_000]]", ["1_000"]),
    ("full-width digit", "m.txt", "[[1,１]]".encode(), ["１"]),
    ("two numbers in one", "m.txt", b"[[1 2,3]]", ["1 2"]),
    ("two signs", "m.txt", b"[[1,--2]]", ["--2"]),
    ("a fraction", "m.txt", b"[[1,1/3]]", ["1/3"]),
    ("exponent that would eat the machine", "m.txt", b"[[1e999999999,1]]", ["1e999999999", "exponent"]),
    ("exponent that would round to zero", "m.txt", b"[[1e-999999999,1]]", ["exponent"]),
    ("exponent with many digits", "m.txt", b"[[1e" + b"9" * 5000 + b",1]]", ["exponent"]),
    ("exponent hidden behind zeros", "m.txt", b"[[1e" + b"0" * 100 + b"5001,1]]", ["exponent"]),
    ("exponent of nothing", "m.txt", b"[[1e,1]]", ["1e"]),
    ("sizes too different", "m.txt", b"[[1e-1000" + b",1" * 1_100_000 + b"]]", ["layer 0", "sizes"]),
    ("a number of many digits", "m.txt", b"[[" + b"7" * 5000 + b",1]]", ["5000 digits"]),
    ("a number of a million digits", "m.txt", b"[[" + b"7" * 10**6 + b",1]]", ["line 1"]),
    ("binary garbage", "m.txt", bytes(range(256)), ["not a text file"]),
    ("latin-1", "m.txt", b"[[1,2]]\xe9", ["not a text file", "byte 7"]),
    ("UTF-16", "m.txt", "[[1,2]]".encode("utf-16"), ["not a text file"]),
    ("zeros", "m.txt", b"\0" * 1000, ["not a text file"]),
    ("JSON", "m.txt", b'{"W0": [[1, 2]]}', ["line 1, column 1"]),
    ("bounds file as model", "m.txt", b'{\n "format": "intervalcert bounds"\n}', ["holds the bounds"]),
    ("npy called txt", "m.txt", W0, ["not text", "ending", ".npy"]),
    ("npz called txt", "m.txt", npz(("W0.npy", W0)), ["not text", "ending", ".npz"]),
    ("text called npy", "m.npy", TEXT_MODEL.encode(), [".npy", "ending"]),
    ("text called npz", "m.npz", TEXT_MODEL.encode(), [".npz", "ending"]),
    ("npy called npz", "m.npz", W0, [".npz", "ending"]),
    ("npz called npy", "m.npy", npz(("W0.npy", W0)), [".npy", "ending"]),
    ("zip of something else", "m.npz", npz(("readme.txt", b"hello")), ["readme.txt", "W0"]),
    ("zip without an end", "m.npz", b"PK\x03\x04" + b"\0" * 100, [".npz"]),
    # .npy
    ("npy nan", "m.npy", npy([[1.0, np.nan], [1.0, 2.0]]), ["nan", "row 0, column 1", "finite"]),
    ("npy inf", "m.npy", npy([[1.0, 2.0], [-np.inf, 2.0]]), ["-inf", "row 1, column 0", "finite"]),
    ("npy pickled", "m.npy", npy(PICKLED), ["pickled"]),
    ("npy bool", "m.npy", npy([[True, False]]), ["bool"]),
    ("npy complex", "m.npy", npy([[1j, 2]]), ["complex"]),
    ("npy text", "m.npy", npy([["1", "2"]]), ["<U1"]),
    ("npy bytes", "m.npy", npy([[b"1", b"2"]]), ["S1"]),
    ("npy dates", "m.npy", npy(np.zeros((2, 2), "M8[s]")), ["datetime64"]),
    ("npy long double", "m.npy", npy_raw(header("(2, 2)", "<f16"), bytes(64)), ["float128"]),
    ("npy records", "m.npy", npy(np.zeros((2, 2), [("a", "<f8")])), ["type"]),
    ("npy vector", "m.npy", npy([1.0, 2.0]), ["shape (2,)", "matrix"]),
    ("npy scalar", "m.npy", npy(1.0), ["shape ()", "matrix"]),
    ("npy cube", "m.npy", npy(np.zeros((2, 2, 2))), ["shape (2, 2, 2)", "matrix"]),
    ("npy without rows", "m.npy", npy(np.zeros((0, 2))), ["shape (0, 2)"]),
    ("npy without columns", "m.npy", npy(np.zeros((2, 0))), ["shape (2, 0)"]),
    ("npy shorter than it says", "m.npy", npy_raw(header("(2, 2)"), bytes(31)), []),
    ("npy longer than it says", "m.npy", npy_raw(header("(2, 2)"), bytes(40)), []),
    ("npy of terabytes, it says", "m.npy", npy_raw(header("(1000000, 1000000)")), []),
    ("npy size beyond 64 bits", "m.npy", npy_raw(header(f"({10**30}, 2)")), []),
    ("npy size that wraps to zero", "m.npy", npy_raw(header(f"({2**62}, 4)")), []),
    ("npy negative shape", "m.npy", npy_raw(header("(-2, 3)"), bytes(48)), []),
    ("npy two negatives", "m.npy", npy_raw(header("(-2, -3)"), bytes(48)), []),
    ("npy truth as shape", "m.npy", npy_raw(header("(True, 2)"), bytes(16)), []),
    ("npy 100 dimensions", "m.npy", npy_raw(header("(" + "1, " * 100 + ")"), bytes(8)), []),
    ("npy zero-sized numbers", "m.npy", npy_raw(header("(2, 2)", "V0")), []),
    ("npy fortran order is a word", "m.npy", npy_raw(header("(2, 2)", fortran="'x'"), bytes(32)), []),
    ("npy version 9", "m.npy", npy_raw(header("(2, 2)"), bytes(32), (9, 0)), ["version"]),
    ("npy header not closed", "m.npy", npy_raw("{'descr': '<f8', 'shape': (1, 2", bytes(16)), []),
    ("npy string not closed", "m.npy", npy_raw("{'descr': '''<f8", bytes(16)), []),
    ("npy header deep", "m.npy", npy_raw("(" * 9000, bytes(16)), []),
    ("npy header of signs", "m.npy", npy_raw("-" * 5000 + "1", bytes(16)), []),
    ("npy header of a name", "m.npy", npy_raw("hello", bytes(16)), []),
    ("npy header a list", "m.npy", npy_raw("[]", bytes(16)), []),
    ("npy header without keys", "m.npy", npy_raw("{}", bytes(16)), []),
    ("npy header long", "m.npy", npy_raw("a" * 20000, bytes(16)), []),
    ("npy header longer than the file", "m.npy", b"\x93NUMPY\x02\0" + b"\xff" * 6, []),
    ("npy unknown type", "m.npy", npy_raw(header("(1, 2)", "q" + "9" * 50), bytes(16)), []),
    ("npy type with a shape", "m.npy", npy_raw(header("(1, 2)", "(3,)f8"), bytes(48)), []),
    # .npz
    ("npz nothing", "m.npz", npz(), ["W0"]),
    ("npz nan", "m.npz", npz(("W0.npy", npy([[1.0, np.nan], [1, 2]]))), ["W0", "nan", "row 0, column 1"]),
    ("npz inf in a bias", "m.npz", npz(("W0.npy", W0), ("b0.npy", npy([np.inf, 0]))), ["bias", "inf"]),
    ("npz bias of the wrong length", "m.npz", npz(("W0.npy", W0), ("b0.npy", npy([1.0]))), ["layer 0", "1 biases"]),
    ("npz bias a matrix", "m.npz", npz(("W0.npy", W0), ("b0.npy", npy([[1.0, 2.0]]))), ["bias", "shape (1, 2)"]),
    ("npz bias without layer", "m.npz", npz(("W0.npy", W0), ("b1.npy", npy([1.0, 2.0]))), ["b1", "W1"]),
    ("npz only biases", "m.npz", npz(("b0.npy", npy([1.0, 2.0]))), ["W0"]),
    ("npz extra name", "m.npz", npz(("W0.npy", W0), ("scale.npy", W0)), ["scale.npy"]),
    ("npz name of keras", "m.npz", npz(("arr_0.npy", W0)), ["arr_0.npy", "W0"]),
    ("npz W1 missing", "m.npz", npz(("W0.npy", W0), ("W2.npy", W1)), ["W0, W2"]),
    ("npz W0 missing", "m.npz", npz(("W1.npy", W1)), ["W1"]),
    ("npz W00", "m.npz", npz(("W00.npy", W0)), ["W00.npy"]),
    ("npz lower case", "m.npz", npz(("w0.npy", W0)), ["w0.npy"]),
    ("npz duplicate member", "m.npz", DUPLICATE, ["W0.npy", "twice"]),
    ("npz path upwards", "m.npz", npz(("../W0.npy", W0)), ["../W0.npy"]),
    ("npz absolute path", "m.npz", npz(("/srv/W0.npy", W0)), ["/srv/W0.npy"]),
    ("npz folder", "m.npz", npz(("W0.npy/", b"")), ["W0.npy/"]),
    ("npz name with an escape sequence", "m.npz", npz(("\x1b[2J.npy", W0)), []),
    ("npz member not an array", "m.npz", npz(("W0.npy", b"hello")), ["W0.npy"]),
    ("npz member empty", "m.npz", npz(("W0.npy", b"")), ["W0.npy"]),
    ("npz pickled", "m.npz", npz(("W0.npy", npy(PICKLED))), ["W0.npy", "pickled"]),
    ("npz plain pickle", "m.npz", npz(("W0.npy", pickle.dumps([1]))), ["W0.npy"]),
    ("npz bool", "m.npz", npz(("W0.npy", npy([[True, False]]))), ["W0", "bool"]),
    ("npz complex", "m.npz", npz(("W0.npy", npy([[1j, 2]]))), ["W0", "complex"]),
    ("npz text", "m.npz", npz(("W0.npy", npy([["1", "2"]]))), ["W0", "<U1"]),
    ("npz empty text", "m.npz", npz(("W0.npy", npy_raw(header("(2, 2)", "<U0")))), ["W0"]),
    ("npz dates", "m.npz", npz(("W0.npy", npy(np.zeros((2, 2), "M8[s]")))), ["W0", "datetime64"]),
    ("npz long double", "m.npz", npz(("W0.npy", npy_raw(header("(2, 2)", "<f16"), bytes(64)))), ["W0", "float128"]),
    ("npz layers that do not fit", "m.npz", npz(("W0.npy", W1), ("W1.npy", W1)), ["layer 1", "2 inputs"]),
    ("npz size that wraps", "m.npz", npz(("W0.npy", npy_raw(header(f"({2**62}, 4)")))), ["W0.npy"]),
    ("npz two negatives", "m.npz", npz(("W0.npy", npy_raw(header("(-2, -3)"), bytes(48)))), ["W0.npy"]),
    ("npz truth as shape", "m.npz", npz(("W0.npy", npy_raw(header("(True, 2)"), bytes(16)))), ["W0.npy"]),
    ("npz 100 dimensions", "m.npz", npz(("W0.npy", npy_raw(header("(" + "1, " * 100 + ")"), bytes(8)))), ["W0.npy"]),
    ("npz type with a shape", "m.npz", npz(("W0.npy", npy_raw(header("(1, 2)", "(3,)f8"), bytes(48)))), ["W0.npy"]),
    ("npz header not closed", "m.npz", npz(("W0.npy", npy_raw("{'descr': (1, 2", bytes(16)))), ["W0.npy"]),
    ("npz longer than it says", "m.npz", npz(("W0.npy", W0 + b"more")), ["W0.npy"]),
    ("npz directory says 3 GiB", "m.npz", npz_with_false_size(3 * 2**30), ["2048 MiB"]),
    ("npz directory says 1 GiB", "m.npz", npz_with_false_size(2**30), ["unpacks to more", "1073741824"]),
    ("npz directory says 3 bytes", "m.npz", npz_with_false_size(3), []),
]


@pytest.mark.parametrize(("name", "content", "phrases"), [c[1:] for c in BAD_MODELS], ids=[c[0] for c in BAD_MODELS])
def test_a_bad_model_is_refused(folder, name, content, phrases):
    """By `bounds` and by `audit`, with the file's name in the message."""
    Path(name).write_bytes(content)
    folder.refuses("bounds", name, says=[name, *phrases], output="out.json")
    folder.refuses("audit", "bounds.json", "--model", name, says=[name, *phrases])


@pytest.mark.parametrize(
    ("content", "place"),
    [
        ("[[1,2,nan]]", "line 1, column 7"),
        ("[[1,2],\n [3,\n  x]]", "line 3, column 3"),
        ("[[1,2],[3,4]],\n[[1,1e9999],[1,1]]", "line 2, column 5"),
    ],
)
def test_a_bad_number_is_pointed_at(folder, content, place):
    """A row may hold thousands of numbers: the place of the row alone does not help to find one."""
    Path("m.txt").write_text(content)
    folder.refuses("bounds", "m.txt", says=["m.txt", place], output="out.json")


BAD_BIASES = [
    ("empty", b"", ["biases.txt", "empty"]),
    ("nan", b"[1,nan],[1,2,3]", ["biases.txt", "line 1", "nan"]),
    ("too few vectors", b"[1,2]", ["2 layers", "1 bias"]),
    ("too many vectors", b"[1,2],[1,2,3],[1]", ["2 layers", "3 bias"]),
    ("wrong length", b"[1,2,3],[1,2,3]", ["layer 0", "2 outputs", "3 biases"]),
    ("a matrix", b"[[1,2]],[[1,2,3]]", ["biases.txt", "line 1, column 2"]),
    ("truncated", b"[1,2],[1,2", ["biases.txt", "truncated"]),
    ("machine-eating decimal", b"[1,2],[1,2,1e999999999]", ["biases.txt", "exponent"]),
    ("npy", npy([1.0, 2.0]), ["biases.txt", "not a text file"]),
]


@pytest.mark.parametrize(("content", "phrases"), [c[1:] for c in BAD_BIASES], ids=[c[0] for c in BAD_BIASES])
def test_bad_biases_are_refused(folder, content, phrases):
    Path("biases.txt").write_bytes(content)
    folder.refuses("bounds", "model.txt", "--biases", "biases.txt", says=["model.txt", *phrases][1:], output="out.json")
    folder.refuses("audit", "bounds.json", "--model", "model.txt", "--biases", "biases.txt", says=phrases)


def test_biases_that_do_not_fit_are_named(folder):
    """The model may be right: the message must say which file to look at."""
    Path("biases.txt").write_text("[1,2,3],[1,2,3]")
    folder.refuses("bounds", "model.txt", "--biases", "biases.txt", says=["biases.txt"], output="out.json")


# -- bounds files ----------------------------------------------------------------------------------------------------


def edited(text, change):
    data = json.loads(text)
    change(data)
    return json.dumps(data)


def margin(i, j, exact, decimal):
    return lambda data: set_margin(data, i, j, exact, decimal)


def set_layer(side, exact, decimal):
    def change(data):
        data["layers"][0][side] = {"exact": exact, "decimal": decimal}

    return change


def without_last_class(data):
    data["margins"]["exact"].pop()
    data["margins"]["decimal"].pop()


BAD_BOUNDS = [
    ("empty", lambda _: "", ["empty"]),
    ("truncated at half", lambda text: text[: len(text) // 2], ["not a complete bounds file"]),
    ("without its last bracket", lambda text: text.rstrip().removesuffix("}"), ["not a complete bounds file"]),
    ("text after the end", lambda text: text + "}", ["not a complete bounds file"]),
    ("a model", lambda _: TEXT_MODEL, ["bounds file"]),
    ("a list", lambda _: "[]", ["not a bounds file", "intervalcert bounds"]),
    ("null", lambda _: "null", ["not a bounds file"]),
    ("some other JSON", lambda _: '{"a": 1}', ["not a bounds file"]),
    ("not a text", lambda _: "{\0\0\0", ["not a text file"]),
    ("no object", lambda _: "\0\0\0\0", ["not a bounds file"]),
    ("newer version", lambda text: edited(text, lambda d: d.update(version=8)), ["version 8", "upgrade"]),
    ("older version", lambda text: edited(text, lambda d: d.update(version=6)), ["version 6", "compute", "anew"]),
    ("version 0", lambda text: edited(text, lambda d: d.update(version=0)), ["version 0"]),
    ("version true", lambda text: edited(text, lambda d: d.update(version=True)), ["version"]),
    ("version 1.0", lambda text: edited(text, lambda d: d.update(version=1.0)), ["version"]),
    ("other semantics", lambda text: edited(text, lambda d: d.update(semantics="float32")), ["float32", "real"]),
    ("key twice", lambda text: text.replace('"version": 7,', '"version": 7, "version": 7,'), ["twice"]),
    ("key twice deep", lambda text: text.replace('"rows": 2,', '"rows": 2, "rows": 2,', 1), ["twice"]),
    ("NaN", lambda text: text.replace('"version": 7', '"version": NaN'), ["NaN"]),
    ("Infinity", lambda text: text.replace('"version": 7', '"version": Infinity'), ["Infinity"]),
    ("number that overflows", lambda text: text.replace('"version": 7', '"version": 1e999999'), ["version"]),
    ("huge integer", lambda text: text.replace('"version": 7', '"version": ' + "9" * 10**6), ["bounds file"]),
    ("large integer", lambda text: text.replace('"version": 7', '"version": ' + "9" * 4000), ["version"]),
    ("deep brackets", lambda _: "[" * 10**5 + "]" * 10**5, ["bounds file"]),
    ("deep objects", lambda _: '{"a":' * 10**5, ["bounds file"]),
    ("decimal disagrees", lambda text: edited(text, margin(0, 1, "1*2^0", "1.5")), ["margin 0,1", "disagree"]),
    ("decimal rounded down", lambda text: edited(text, margin(0, 1, f"{2**60 + 1}*2^-60", "1")), ["disagree"]),
    ("decimal longer", lambda text: edited(text, margin(0, 1, "1*2^0", "1.0")), ["margin 0,1", "disagree"]),
    ("exact a number", lambda text: edited(text, margin(0, 1, "1", "1")), ["margin 0,1"]),
    ("exact a quotient", lambda text: edited(text, margin(0, 1, "1/2", "0.5")), ["margin 0,1"]),
    ("exact even", lambda text: edited(text, margin(0, 1, "2*2^-1", "1")), ["margin 0,1", "even"]),
    ("zero otherwise", lambda text: edited(text, margin(0, 1, "0*2^1", "0")), ["margin 0,1", "even"]),
    ("leading zeros", lambda text: edited(text, margin(0, 1, "01*2^0", "1")), ["margin 0,1"]),
    ("other digits", lambda text: edited(text, margin(0, 1, "١*2^0", "1")), ["margin 0,1"]),
    ("a plus", lambda text: edited(text, margin(0, 1, "1*2^+1", "2")), ["margin 0,1"]),
    ("exact a word", lambda text: edited(text, margin(0, 1, "wide", "1")), ["margin 0,1", "wide"]),
    ("exact nan", lambda text: edited(text, margin(0, 1, "nan", "nan")), ["margin 0,1", "nan"]),
    ("exact eats the machine", lambda text: edited(text, margin(0, 1, "1e999999999", "1")), ["margin 0,1"]),
    ("dyadic eats the machine", lambda text: edited(text, margin(0, 1, "1*2^99999999999", "1")), ["margin 0,1"]),
    ("long dyadic", lambda text: edited(text, margin(0, 1, "9" * 10**5 + "*2^0", "1")), ["margin 0,1"]),
    ("negative margin", lambda text: edited(text, margin(0, 1, "-1*2^0", "-1")), ["margin 0,1", "negative"]),
    ("two blanks", lambda text: edited(text, margin(0, 2, "1*2^0 ", "1")), ["row 2", "3 numbers"]),
    ("a tab", lambda text: edited(text, margin(0, 2, "1*2^0\t", "1")), ["margin 0,2"]),
    ("margins of another shape", lambda text: edited(text, without_last_class), ["3 rows"]),
    ("a short row", lambda text: edited(text, lambda d: d["margins"]["exact"].__setitem__(2, "1*2^0")), ["row 2"]),
    ("a row of class 0", lambda text: edited(text, lambda d: d["margins"]["exact"].__setitem__(0, "1*2^0")), ["row 0"]),
    ("short decimals", lambda text: edited(text, lambda d: d["margins"]["decimal"].__setitem__(2, "1")), ["row 2"]),
    ("decimals of another shape", lambda text: edited(text, lambda d: d["margins"]["decimal"].pop()), ["3 rows"]),
    ("no layers", lambda text: edited(text, lambda d: d.update(layers=[])), []),
    ("negative upper", lambda text: edited(text, set_layer("upper", "-1*2^0", "-1")), ["layer 0", "upper", "negative"]),
    ("negative lower", lambda text: edited(text, set_layer("lower", "-1*2^0", "-1")), ["layer 0", "lower", "negative"]),
    ("lower above upper", lambda text: edited(text, set_layer("lower", "1*2^20", "1048576")), ["contradicts itself"]),
    ("no rows", lambda text: edited(text, lambda d: d["layers"][0].update(rows=0)), ["layer 0"]),
    ("iterations -1", lambda text: edited(text, lambda d: d["layers"][0].update(iterations=-1)), ["layer 0", "-1"]),
    ("iterations 41", lambda text: edited(text, lambda d: d["layers"][0].update(iterations=41)), ["layer 0", "41"]),
    (
        "unknown activation",
        lambda text: edited(text, lambda d: d["layers"][0].update(activation="swish")),
        ["layer 0", "swish"],
    ),
    (
        "activation of the logits",
        lambda text: edited(text, lambda d: d["layers"][-1].update(activation="relu")),
        ["last layer", "relu"],
    ),
]


@pytest.mark.parametrize(("make", "phrases"), [c[1:] for c in BAD_BOUNDS], ids=[c[0] for c in BAD_BOUNDS])
def test_a_bad_bounds_file_is_refused(folder, bounds_text, make, phrases):
    """By all three commands that read one."""
    Path("bad.json").write_text(make(bounds_text))
    says = ["bad.json", *phrases]
    folder.refuses("certify", "bad.json", "outputs.csv", "--eps", "0.1", says=says, output="out.csv")
    folder.refuses("radius", "bad.json", "outputs.csv", says=says, output="out.jsonl")
    folder.refuses("audit", "bad.json", "--model", "model.txt", says=says)


def paths_into(value, path=()):
    """The place of every value in a JSON document, the document itself included."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from paths_into(item, (*path, key))


def replaced(data, path, value):
    if not path:
        return value
    result = copy.deepcopy(data)
    parent = result
    for key in path[:-1]:
        parent = parent[key]
    if value is DELETE:
        del parent[path[-1]]
    else:
        parent[path[-1]] = value
    return result


DELETE = object()
REPLACEMENTS = [None, [], {}, -1, "x", True, 0.5, 10**30, [[]], "", "\ud800", DELETE]


def test_no_edit_of_a_bounds_file_escapes_as_another_exception(tmp_path, bounds_text):
    """Every value of a valid file replaced by values of every type: it is read or refused, and nothing else."""
    data = json.loads(bounds_text)
    path = tmp_path / "bounds.json"
    refusals = []
    for place in paths_into(data):
        for value in REPLACEMENTS:
            if value is DELETE and not place:
                continue
            path.write_text(json.dumps(replaced(data, place, value)))
            try:
                load_bounds(path)
            except InputError as error:
                refusals.append(str(error))
            except Exception as error:
                raise AssertionError(f"{place} replaced by {value!r}: {error!r}") from error
    assert len(refusals) > 500
    assert [message for message in refusals if "bounds.json" not in message] == []


WRONG_TYPES = {
    ("version",): [None, [], {}, -1, "x", True, 0.5, DELETE],
    ("semantics",): [None, [], {}, -1, "x", True, DELETE],
    ("eps_space",): [None, [], {}, -1, "x", True, DELETE],
    ("model",): [None, [], {}, -1, "x", True, DELETE],
    ("model", 0): [None, [], {}, -1, "x", True],
    ("model", 0, "name"): [None, [], {}, -1, True, DELETE],
    ("model", 0, "sha256"): [None, [], {}, -1, "x", True, "", DELETE],
    ("method",): [None, [], {}, -1, "x", True, DELETE],
    ("method", "backend"): [None, [], {}, -1, True, DELETE],
    ("method", "prec"): [None, [], {}, -1, "x", True, 0.5, DELETE],
    ("method", "working_bits"): [[], {}, -1, "x", True, 0.5, DELETE],
    ("method", "iterations"): [None, [], {}, -1, "x", True, 0.5, DELETE],
    ("method", "norms"): [None, [], {}, -1, True, DELETE],
    ("method", "margins"): [None, [], {}, -1, True, DELETE],
    ("method", "tuning_rounds"): [None, [], {}, -1, "x", True, 0.5, 1001, 10**30, DELETE],
    ("versions",): [None, [], -1, "x", True, DELETE],
    ("versions", "numpy"): [None, [], {}, -1, True],
    ("layers",): [None, [], {}, -1, "x", True, DELETE],
    ("layers", 0): [None, [], {}, -1, "x", True],
    ("layers", 0, "rows"): [None, [], {}, -1, "x", True, 0.5, DELETE],
    ("layers", 0, "columns"): [None, [], {}, -1, "x", True, 0.5, DELETE],
    ("layers", 0, "activation"): [None, [], {}, -1, "x", True, DELETE],
    ("layers", 0, "lower"): [None, [], {}, -1, "x", True, DELETE],
    ("layers", 0, "upper"): [None, [], {}, -1, "x", True, DELETE],
    ("layers", 0, "upper", "exact"): [None, [], {}, -1, "x", True, DELETE],
    ("layers", 0, "upper", "decimal"): [None, [], {}, -1, "x", True, DELETE],
    ("layers", 0, "iterations"): [None, [], {}, -1, "x", True, 0.5, DELETE],
    ("layers", 0, "computed_by"): [None, [], {}, -1, True, DELETE],
    ("layers", 0, "skipped_because"): [None, {}, -1, "x", True, [1], DELETE],
    ("layers", 0, "sigma"): [[], {}, -1, "x", True, DELETE],
    ("layers", 1, "sigma"): [[], {}, -1, "x", True, DELETE],
    ("margins",): [None, [], {}, -1, "x", True, DELETE],
    ("margins", "exact"): [None, [], {}, -1, "x", True, DELETE],
    ("margins", "exact", 0): [None, [], {}, -1, "x", True, DELETE],
    ("margins", "exact", 1): [None, [], {}, -1, "x", True, "", DELETE],
    ("margins", "decimal"): [None, [], {}, -1, "x", True, DELETE],
    ("margins", "decimal", 1): [None, [], {}, -1, "x", True, "", DELETE],
    ("margins", "computed_by"): [None, [], {}, -1, True, DELETE],
    ("margins", "skipped_because"): [None, {}, -1, "x", True, [1], DELETE],
    ("witnesses",): [{}, -1, "x", True, [1], {"name": "x"}, {"name": 1, "sha256": "0" * 64}, DELETE],
    ("witnesses", "name"): [None, "", ".", "..", "/x", "../x", "a/b", "a\0b", "x" * 300, 1, DELETE],
    ("witnesses", "sha256"): [None, "", "0" * 63, "G" * 64, 1, DELETE],
}


@pytest.mark.parametrize("place", WRONG_TYPES, ids=lambda place: ".".join(map(str, place)))
def test_a_value_of_the_wrong_type_is_refused(tmp_path, bounds_text, place):
    """What is not exactly understood must not be guessed: `str(None)` is not the number of iterations."""
    data, path = json.loads(bounds_text), tmp_path / "bounds.json"
    accepted = []
    for value in WRONG_TYPES[place]:
        path.write_text(json.dumps(replaced(data, place, value)))
        try:
            load_bounds(path)
        except InputError:
            continue
        accepted.append("(deleted)" if value is DELETE else value)
    assert accepted == []


def test_every_truncation_of_a_bounds_file_is_refused(tmp_path, bounds_text):
    path = tmp_path / "bounds.json"
    whole = bounds_text.rstrip()
    for length in range(0, len(whole), 7):
        path.write_text(whole[:length])
        with pytest.raises(InputError, match=re.escape("bounds.json")):
            load_bounds(path)


def test_bounds_of_another_model_are_refused(folder):
    Path("other.txt").write_text(TEXT_MODEL.replace("4.0", "4.5"))
    folder.refuses("audit", "bounds.json", "--model", "other.txt", says=["another model", "other.txt", "model.txt"])
    Path("more.txt").write_text("[[1,2],[3,4]],[[1,2,3,4],[1,2,3,5]]")
    assert folder.run("bounds", "more.txt", "-o", "more.json")[0] == 0
    folder.refuses("certify", "more.json", "outputs.csv", "--eps", "1", says=["3 logits", "4"], output="out.csv")


@pytest.mark.parametrize("prec", [-1, 0, 15, 4097, 10**30])
def test_bounds_of_a_precision_that_does_not_exist_are_refused(folder, bounds_text, prec):
    """The file is at fault, not the call: exit code 3, not 2."""
    Path("bad.json").write_text(edited(bounds_text, lambda d: d["method"].update(prec=prec)))
    folder.refuses("audit", "bad.json", "--model", "model.txt", says=["precision"])


# -- outputs, labels, radii ------------------------------------------------------------------------------------------

BAD_OUTPUTS = [
    ("empty", "y.csv", b"", ["empty"]),
    ("blank lines", "y.csv", b"\n\n  \n", ["empty"]),
    ("header only", "y.csv", b"cat,dog,bird\n", ["no rows"]),
    ("ragged", "y.csv", b"1,2,3\n1,2\n", ["line 2", "2 logits", "3"]),
    ("ragged after blank lines", "y.csv", b"1,2,3\n\n\n1,2,3,4\n", ["line 4", "4 logits"]),
    ("nan", "y.csv", b"1,2,3\n1,nan,3\n", ["line 2", "nan", "finite"]),
    ("nan first", "y.csv", b"nan,nan,nan\n1,2,3\n", ["line 1", "nan", "finite"]),
    ("inf", "y.csv", b"1,2,inf\n", ["line 1", "inf", "finite"]),
    ("-inf", "y.csv", b"1,2,-Infinity\n", ["line 1", "-Infinity", "finite"]),
    ("header twice", "y.csv", b"cat,dog,bird\ncat,dog,bird\n1,2,3\n", ["line 2", "cat"]),
    ("word", "y.csv", b"1,2,3\n1,two,3\n", ["line 2", "two"]),
    ("missing logit", "y.csv", b"1,,3\n", ["line 1"]),
    ("trailing comma", "y.csv", b"1,2,3,\n", ["line 1"]),
    ("semicolons", "y.csv", b"1;2;3\n", ["line 1", "1;2;3"]),
    ("spaces only", "y.csv", b"1 2 3\n", ["line 1", "1 2"]),
    ("decimal comma", "y.csv", b'"1,5","2,5","3,5"\n', ["line 1"]),
    ("wrong length", "y.csv", b"1,2,3,4\n", ["line 1", "4 logits", "3"]),
    ("wrong length, with radius", "y.txt", b"1,2 0.1\n", ["line 1", "2 logits", "3"]),
    ("mixed radii", "y.txt", b"1,2,3 0.1\n1,2,3\n", ["line 2", "carries its eps"]),
    ("radius later", "y.txt", b"1,2,3\n1,2,3 0.1\n", ["line 2", "carries its eps"]),
    ("negative radius", "y.txt", b"1,2,3 0.1\n1,2,3 -0.1\n", ["line 2", "-0.1", "negative"]),
    ("nan radius", "y.txt", b"1,2,3 nan\n", ["line 1", "nan"]),
    ("inf radius", "y.txt", b"1,2,3 inf\n", ["line 1", "inf"]),
    ("radius over zero", "y.txt", b"1,2,3 1/0\n", ["line 1", "zero"]),
    ("radius a word", "y.txt", b"1,2,3 far\n", ["line 1", "far"]),
    ("machine-eating radius", "y.txt", b"1,2,3 1e999999999\n", ["line 1", "exponent"]),
    ("machine-eating logit", "y.csv", b"1,2,3e999999999\n", ["line 1", "exponent"]),
    ("full-width digit", "y.csv", "1,2,３\n".encode(), ["line 1", "３"]),
    ("binary garbage", "y.csv", bytes(range(256)), ["not a text file"]),
    ("latin-1", "y.csv", b"1,2,3\n\xe9", ["not a text file"]),
    ("npy called csv", "y.csv", npy([[1.0, 2.0, 3.0]]), ["not a text file"]),
    ("npz", "y.npz", npz(("arr_0.npy", npy([[1.0, 2.0, 3.0]]))), ["not"]),
    ("text called npy", "y.npy", b"1,2,3\n", [".npy"]),
    ("npy empty", "y.npy", npy(np.zeros((0, 3))), ["shape (0, 3)"]),
    ("npy vector", "y.npy", npy([1.0, 2.0, 3.0]), ["shape (3,)"]),
    ("npy cube", "y.npy", npy(np.zeros((2, 2, 3))), ["shape (2, 2, 3)"]),
    ("npy nan", "y.npy", npy([[1.0, 2.0, 3.0], [1.0, np.nan, 3.0]]), ["nan", "row 1, column 1"]),
    ("npy inf", "y.npy", npy(np.array([[1, 2, np.inf]], "float32")), ["inf", "row 0, column 2"]),
    ("npy pickled", "y.npy", npy(PICKLED), ["pickled"]),
    ("npy text", "y.npy", npy([["1", "2", "3"]]), ["<U1"]),
    ("npy bool", "y.npy", npy([[True, False, True]]), ["bool"]),
    ("npy wrong length", "y.npy", npy([[1.0, 2.0]]), ["2 logits", "3"]),
    ("npy truncated", "y.npy", npy([[1.0, 2.0, 3.0]])[:-1], []),
]


@pytest.mark.parametrize(("name", "content", "phrases"), [c[1:] for c in BAD_OUTPUTS], ids=[c[0] for c in BAD_OUTPUTS])
def test_bad_outputs_are_refused(folder, name, content, phrases):
    Path(name).write_bytes(content)
    says = [name, *phrases]
    folder.refuses("certify", "bounds.json", name, "--eps", "0.1", says=says, output="out.csv")
    folder.refuses("radius", "bounds.json", name, says=says, output="out.npy")


BAD_LABELS = [
    ("empty", "l.txt", b"", ["empty"]),
    ("too few", "l.txt", b"1\n", ["1 labels", "2 outputs"]),
    ("too many", "l.txt", b"1\n2\n0\n", ["3 labels", "2 outputs"]),
    ("out of range", "l.txt", b"1\n3\n", ["label 1 is 3", "0 to 2"]),
    ("negative", "l.txt", b"1\n-1\n", ["line 2", "-1"]),
    ("decimal", "l.txt", b"1.0\n2\n", ["line 1", "1.0"]),
    ("word", "l.txt", b"1\ncat\n", ["line 2", "cat"]),
    ("machine-eating", "l.txt", b"1e999999999\n1\n", ["line 1"]),
    ("many digits", "l.txt", b"9" * 10**5 + b"\n1\n", ["line 1"]),
    ("full-width digit", "l.txt", "１\n1\n".encode(), ["line 1"]),
    ("superscript", "l.txt", "²\n1\n".encode(), ["line 1"]),
    ("two columns", "l.txt", b"0,1\n1,2\n", ["line 1", "0,1"]),
    ("binary garbage", "l.txt", bytes(range(256)), ["not a text file"]),
    ("npy floats", "l.npy", npy([1.0, 2.0]), ["float64"]),
    ("npy bool", "l.npy", npy([True, False]), ["bool"]),
    ("npy matrix", "l.npy", npy([[1], [2]]), ["shape (2, 1)"]),
    ("npy negative", "l.npy", npy([1, -1]), ["label 1 is -1"]),
    ("npy large", "l.npy", npy(np.array([1, 2**63], "uint64")), ["label 1 is 9223372036854775808"]),
    ("npy pickled", "l.npy", npy(np.array([1, 2], dtype=object)), ["pickled"]),
    ("npy too many", "l.npy", npy([1, 1, 1]), ["3 labels", "2 outputs"]),
]


@pytest.mark.parametrize(("name", "content", "phrases"), [c[1:] for c in BAD_LABELS], ids=[c[0] for c in BAD_LABELS])
def test_bad_labels_are_refused(folder, name, content, phrases):
    Path(name).write_bytes(content)
    argv = ("certify", "bounds.json", "outputs.csv", "--eps", "0.1", "--labels", name)
    folder.refuses(*argv, says=[name, *phrases], output="out.csv")


@pytest.mark.parametrize(
    ("eps", "phrase"),
    [
        ("", "number"),
        (" ", "number"),
        ("abc", "abc"),
        ("nan", "finite"),
        ("inf", "finite"),
        ("-inf", "finite"),
        ("-0.1", "negative"),
        ("-1/2", "negative"),
        ("-1*2^-3", "negative"),
        ("1/0", "zero"),
        ("0/0", "zero"),
        ("1/-0", "zero"),
        ("1/2/3", "2/3"),
        ("/2", "number"),
        ("2/", "number"),
        ("1e999999999", "exponent"),
        ("1e-999999999", "exponent"),
        ("1/1e-999999999", "exponent"),
        ("1*2^999999999", "exponent"),
        ("9" * 10_000, "number"),
        ("0x1p3", "0x1p3"),
        ("１", "１"),
        ("٣", "٣"),
        ("1_0", "1_0"),
        ("0,3", "0,3"),
        ("0.3 0.4", "0.3 0.4"),
        ("1e", "1e"),
        (".", "."),
        ("++1", "++1"),
        ("0.3f", "0.3f"),
        ("1+2", "1+2"),
        ("0.3%", "0.3%"),
    ],
    ids=lambda text: ascii(text[:20]),
)
def test_a_bad_eps_is_refused(folder, eps, phrase):
    """`--eps=` so that a leading minus is not taken for an option."""
    argv = ("certify", "bounds.json", "outputs.csv", f"--eps={eps}")
    folder.refuses(*argv, says=["--eps", phrase], output="out.csv")


def test_a_negative_eps_after_a_space_is_refused_too(folder):
    folder.refuses("certify", "bounds.json", "outputs.csv", "--eps", "-0.1", says=["negative"], output="out.csv")


# -- files that cannot be read or written ----------------------------------------------------------------------------

READERS = {
    "model": ("bounds", "{}"),
    "model of audit": ("audit", "bounds.json", "--model", "{}"),
    "biases": ("bounds", "model.txt", "--biases", "{}"),
    "bounds": ("radius", "{}", "outputs.csv"),
    "bounds of audit": ("audit", "{}", "--model", "model.txt"),
    "outputs": ("radius", "bounds.json", "{}"),
    "inputs": ("evaluate", "model.txt", "{}"),
    "labels": ("certify", "bounds.json", "outputs.csv", "--eps", "0.1", "--labels", "{}"),
}


def reading(what, name):
    return tuple(word.format(name) for word in READERS[what])


@pytest.mark.parametrize("ending", [".txt", ".npy", ".npz", ".json", ""])
@pytest.mark.parametrize("what", READERS)
def test_a_missing_file_and_a_folder_are_refused(folder, what, ending):
    folder.refuses(*reading(what, "gone" + ending), says=["gone" + ending, "no such file"])
    Path("box" + ending).mkdir()
    folder.refuses(*reading(what, "box" + ending), says=["box" + ending, "folder"])


@pytest.mark.parametrize("what", READERS)
def test_a_path_that_cannot_be_opened_is_refused(folder, what):
    """Permissions do not stop the administrator, so: a loop of links, a file used as a folder, too long a name."""
    Path("loop.txt").symlink_to("loop.txt")
    folder.refuses(*reading(what, "loop.txt"), says=["loop.txt"])
    folder.refuses(*reading(what, "labels.txt/inside.txt"), says=["labels.txt/inside.txt"])
    long = "n" * 300
    folder.refuses(*reading(what, long), says=[long])


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="permissions do not stop the administrator")
@pytest.mark.parametrize("what", READERS)
def test_an_unreadable_file_is_refused(folder, what):
    Path("secret.txt").write_text("[[1,2]]")
    Path("secret.txt").chmod(0)
    folder.refuses(*reading(what, "secret.txt"), says=["secret.txt", "cannot be read"])


@pytest.mark.skipif(not Path("/proc/self/mem").exists(), reason="needs a file that opens but does not read")
@pytest.mark.parametrize("what", READERS)
def test_a_file_that_fails_while_it_is_read_is_refused(folder, what):
    folder.refuses(*reading(what, "/proc/self/mem"), says=["/proc/self/mem", "cannot be read"])


def test_the_api_refuses_a_name_that_no_file_can_have(tmp_path):
    for read in (load_model, load_bounds, read_outputs, lambda path: read_labels(path, 1, 2)):
        with pytest.raises(InputError, match="a"):
            read(str(tmp_path / "a\0b"))


WRITERS = {
    "bounds": (("bounds", "model.txt"), ".json"),
    "certify": (("certify", "bounds.json", "radii.txt"), ".csv"),
    "radius": (("radius", "bounds.json", "outputs.csv"), ".jsonl"),
}


@pytest.mark.parametrize("what", WRITERS)
def test_an_output_that_cannot_be_written_is_refused(folder, what):
    argv, ending = WRITERS[what]
    Path("box" + ending).mkdir()
    folder.refuses(*argv, "-o", "box" + ending, says=["box" + ending, "cannot be written"])
    folder.refuses(*argv, "-o", "gone/out" + ending, says=["gone/out" + ending, "cannot be written"])
    folder.refuses(*argv, "-o", "labels.txt/out" + ending, says=["labels.txt/out" + ending, "cannot be written"])
    folder.refuses(*argv, "-o", "n" * 300 + ending, says=["cannot be written"])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
@pytest.mark.parametrize("what", WRITERS)
def test_an_output_that_is_not_a_regular_file_is_not_replaced(folder, what):
    """`-o /dev/null`, run by the administrator, must not put a file in the place of the device."""
    argv, ending = WRITERS[what]
    pipe = Path("pipe" + ending)
    os.mkfifo(pipe)
    folder.run(*argv, "-o", pipe)
    assert pipe.is_fifo()


# -- what argparse and the commands refuse as usage ------------------------------------------------------------------

BAD_USAGE = [
    ("iterations -1", ("bounds", "model.txt", "--iterations", "-1", "-o", "out.json"), ["-1"]),
    ("iterations 41", ("bounds", "model.txt", "--iterations", "41", "-o", "out.json"), ["41", "0..40"]),
    ("iterations abc", ("bounds", "model.txt", "--iterations", "abc", "-o", "out.json"), ["abc"]),
    ("iterations 1.5", ("bounds", "model.txt", "--iterations", "1.5", "-o", "out.json"), ["1.5"]),
    ("iterations huge", ("bounds", "model.txt", "--iterations", "9" * 50, "-o", "out.json"), []),
    ("iterations full-width", ("bounds", "model.txt", "--iterations", "１", "-o", "out.json"), []),
    ("prec 0", ("bounds", "model.txt", "--prec", "0", "-o", "out.json"), ["0 bits", "16..4096"]),
    ("prec 15", ("bounds", "model.txt", "--prec", "15", "-o", "out.json"), ["15 bits", "16..4096"]),
    ("prec 5000", ("bounds", "model.txt", "--prec", "5000", "-o", "out.json"), ["5000 bits", "16..4096"]),
    ("prec -64", ("bounds", "model.txt", "--prec", "-64", "-o", "out.json"), ["-64"]),
    ("prec abc", ("bounds", "model.txt", "--prec", "abc", "-o", "out.json"), ["abc"]),
    ("backend", ("bounds", "model.txt", "--backend", "gpu", "-o", "out.json"), ["gpu", "arb", "exact", "mpmath"]),
    ("backend empty", ("bounds", "model.txt", "--backend", "", "-o", "out.json"), ["arb"]),
    ("backend before model", ("bounds", "gone.txt", "--backend", "gpu"), ["gpu"]),
    ("certify ending", ("certify", "bounds.json", "radii.txt", "-o", "out.xlsx"), ["out.xlsx", ".csv"]),
    ("certify no ending", ("certify", "bounds.json", "radii.txt", "-o", "out"), ["out", ".jsonl"]),
    ("certify ending before files", ("certify", "gone.json", "gone.txt", "-o", "out.txt"), ["out.txt", ".npy"]),
    ("radius ending", ("radius", "bounds.json", "radii.txt", "-o", "out.json"), ["out.json", ".csv"]),
    ("certify without eps", ("certify", "bounds.json", "outputs.csv", "-o", "out.csv"), ["outputs.csv", "--eps"]),
    ("no command", (), ["usage"]),
    ("unknown command", ("certfy", "bounds.json"), ["certfy"]),
    ("unknown option", ("bounds", "model.txt", "--fast"), ["--fast"]),
    ("no model", ("bounds",), ["MODEL"]),
    ("no outputs", ("certify", "bounds.json"), ["OUTPUTS"]),
    ("audit without model", ("audit", "bounds.json"), ["--model"]),
    ("radius takes no eps", ("radius", "bounds.json", "radii.txt", "--eps", "1"), ["--eps"]),
]


@pytest.mark.parametrize(("argv", "phrases"), [c[1:] for c in BAD_USAGE], ids=[c[0] for c in BAD_USAGE])
def test_usage_is_refused_with_2_and_nothing_is_written(folder, argv, phrases):
    folder.refuses(*argv, says=phrases, code=2)
    assert not list(Path().glob("out.*"))


@pytest.mark.parametrize(
    "argv",
    [
        ("certify", "bounds.json", "radii.txt", "-o", "out.xlsx"),
        ("radius", "bounds.json", "outputs.csv", "-o", "out.txt"),
    ],
)
def test_an_unknown_ending_is_refused_before_anything_is_computed(folder, monkeypatch, argv):
    monkeypatch.setattr("intervalcert.api.vectorised_certifier", lambda *_: pytest.fail("it was computed first"))
    folder.refuses(*argv, code=2)


def test_iterations_are_refused_before_anything_is_computed(folder, monkeypatch):
    monkeypatch.setattr(
        "intervalcert.bounds.margin_bounds.search_norm", lambda *_: pytest.fail("it was computed first")
    )
    folder.refuses("bounds", "model.txt", "--iterations", "41", code=2)


@pytest.mark.parametrize("name", ["swish", "", "ReLU6", "relu ", "__class__"])
def test_an_unknown_activation_is_refused(folder, name):
    """It never counts as one with the Lipschitz constant 1."""
    argv = ("bounds", "model.txt", "--activation", name)
    folder.refuses(*argv, says=[repr(name), "relu", "sigmoid"], output="out.json")


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("ReLU", "relu"),
        ("RELU", "relu"),
        ("Tanh", "tanh"),
        ("HardTanh", "hard_tanh"),
        ("Min_Max", "min_max"),
        ("LeakyReLU:0.01", "leaky_relu:0.01"),
        ("ELU:1E-2", "elu:1E-2"),
        ("Clip:0:6", "clip:0:6"),
    ],
)
def test_activations_are_known_in_any_case(folder, name, known):
    """They are the same ones: bounds are of the same network."""
    assert load_model("model.txt", activation=name).content == load_model("model.txt", activation=known).content
    for given, options in ((name, ()), (known, ("-o", "out.json"))):
        assert folder.run("bounds", "model.txt", "--activation", given, *options)[0] == 0
    assert folder.run("audit", "out.json", "--model", "model.txt", "--activation", name)[0] == 0


# -- one file in the place of another --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["mlp_dynamo.onnx", "mlp.keras", "mlp.npz", "mlp.pt", "mlp.safetensors", "mlp.txt"])
def test_a_model_in_the_place_of_bounds(folder, name):
    Path(name).write_bytes((FIXTURES / name).read_bytes())
    says = [f"{name} is not a bounds file", f"intervalcert bounds {name} -o bounds.json"]
    for argv in (("certify", name, "outputs.csv", "--eps", "1"), ("radius", name, "outputs.csv")):
        folder.refuses(*argv, says=says, output="out.csv")
    folder.refuses("audit", name, "--model", "model.txt", says=says)
    folder.refuses("certify", "outputs.csv", "bounds.json", "--eps", "1", says=["outputs.csv is not a bounds file"])


@pytest.mark.parametrize("name", ["bounds.json", "bounds.txt", "bounds.onnx", "bounds.npz", "bounds"])
def test_bounds_in_the_place_of_a_model(folder, name):
    Path("bounds.json").rename(name)
    says = [f"{name} holds the bounds of a model", "give the model itself"]
    for argv in (("bounds", name), ("convert", name, "out.npz"), ("inspect", name), ("evaluate", name, "outputs.csv")):
        folder.refuses(*argv, says=says)
    folder.refuses("certify", "--model", name, "--inputs", "outputs.csv", "--eps", "1", says=says)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("form", ["%.18e", "%.2f"])
def test_numbers_that_are_separated_by_blanks(folder, sign, form):
    """As numpy's savetxt writes them: the last number of a line is no radius."""
    np.savetxt("y.txt", sign * np.array([[1.0, 2.0, 6.7], [3.0, 4.0, 5.5]]), fmt=form)
    for argv in (("certify", "bounds.json", "y.txt"), ("certify", "bounds.json", "y.txt", "--eps", "1")):
        folder.refuses(*argv, says=["y.txt, line 1", "blanks between its numbers", "delimiter=','"], output="out.csv")
    np.savetxt("x.txt", sign * np.array([[0.5, 2.5], [3.0, 4.0]]), fmt=form)
    folder.refuses("evaluate", "model.txt", "x.txt", says=["x.txt"], output="out.csv")
    np.savez("two.npz", W0=np.eye(2))
    assert folder.run("bounds", "two.npz", "-o", "two.json")[0] == 0
    folder.refuses("radius", "two.json", "x.txt", says=["blanks between its numbers"], output="out.csv")


# -- damaged archives, byte by byte ----------------------------------------------------------------------------------

GOOD = {
    "m.npy": npy(np.array(WEIGHTS[0])),
    "stored.npz": npz(("W0.npy", W0), ("b0.npy", npy([1.0, 2.0]))),
    "deflated.npz": npz(("W0.npy", W0), ("b0.npy", npy([1.0, 2.0])), compression=zipfile.ZIP_DEFLATED),
    "bzip2.npz": npz(("W0.npy", W0), compression=zipfile.ZIP_BZIP2),
    "lzma.npz": npz(("W0.npy", W0), compression=zipfile.ZIP_LZMA),
}


@pytest.mark.parametrize("name", GOOD)
def test_every_truncation_of_a_numpy_file_is_refused(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(GOOD[name])
    load_model(path)
    for length in range(len(GOOD[name])):
        path.write_bytes(GOOD[name][:length])
        with pytest.raises(InputError, match=re.escape(name)):
            load_model(path)


@pytest.mark.parametrize("name", GOOD)
def test_no_changed_byte_of_a_numpy_file_escapes_as_another_exception(tmp_path, name):
    """Each byte in turn; the file is read (it may still be valid) or refused by name, and nothing else happens."""
    path = tmp_path / name
    good = GOOD[name]
    escaped = {}
    for at in range(len(good)):
        for byte in {0x28, 0xFF, good[at] ^ 1, good[at] ^ 0x80} - {good[at]}:
            path.write_bytes(good[:at] + bytes([byte]) + good[at + 1 :])
            try:
                load_model(path)
            except InputError as error:
                if name not in str(error):
                    escaped["without a name"] = f"byte {at} = {byte:#x}: {error}"
            except Exception as error:
                escaped[type(error).__name__] = f"byte {at} = {byte:#x}: {error}"
    assert escaped == {}


def test_pickles_are_not_run(folder):
    """The objects in the pickled files above would create a file if anybody unpickled them."""
    Path("m.npy").write_bytes(npy(PICKLED))
    Path("m.npz").write_bytes(npz(("W0.npy", npy(PICKLED))))
    for name in ("m.npy", "m.npz"):
        with pytest.raises(InputError, match="pickled"):
            load_model(name)
    assert not Path("pickled.was.run").exists()
    pickle.loads(pickle.dumps(Boom())).close()
    assert Path("pickled.was.run").exists(), "the trap itself does not work"


# -- time and memory -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", READERS)
def test_gigabytes_are_refused_at_once(folder, what):
    """Three gigabytes (a sparse file of zeros) where text is expected: nobody waits for them to be read or hashed."""
    with Path("huge.txt").open("wb") as file:
        file.write(b"{" if "bounds" in what else b"[[")
        file.truncate(3 * 2**30)
    start = time.perf_counter()
    code, out, err = folder.run(*reading(what, "huge.txt"))
    assert time.perf_counter() - start < 2
    assert (code, out) == (3, "")
    assert_clear(err)
    assert "huge.txt" in err
    assert "MiB" in err


@pytest.mark.parametrize("brackets", [b"[", b"]", b"[[", b"[]", b"{", b'{"a":['], ids=ascii)
@pytest.mark.parametrize("what", READERS)
def test_megabytes_of_brackets_are_refused_at_once(folder, what, brackets):
    Path("deep.txt").write_bytes(brackets * (5_000_000 // len(brackets)))
    start = time.perf_counter()
    code, out, err = folder.run(*reading(what, "deep.txt"))
    assert time.perf_counter() - start < 2
    assert (code, out) == (3, "")
    assert_clear(err)
    assert "deep.txt" in err


@pytest.mark.parametrize("exact", ["1*2^-2000000", "1*2^2000000", "1*2^-19999", "1e1000/1e-1000"])
def test_numbers_at_the_limit_do_not_take_long(folder, bounds_text, exact):
    """A small file must not keep the machine busy: 10,000 margins of the largest size that is read."""
    data = json.loads(bounds_text)
    classes = 142
    data["layers"][-1]["rows"] = classes
    data["margins"]["exact"] = [" ".join([exact] * j) for j in range(classes)]
    data["margins"]["sha256"] = "0" * 64
    Path("slow.json").write_text(json.dumps(data))
    start = time.perf_counter()
    code, _, err = folder.run("radius", "slow.json", "outputs.csv")
    assert time.perf_counter() - start < 2
    assert code == 3, err


def test_a_margin_at_the_limit_can_be_used(folder, bounds_text):
    """A bounds file that is accepted must be usable in reasonable time."""
    from intervalcert.numbers.parsing import parse_rational
    from intervalcert.numbers.text import decimal_upper

    data = json.loads(bounds_text)
    exact = "1*2^-20000"
    decimal = decimal_upper(parse_rational(exact))
    for i, j in ((0, 1), (0, 2), (1, 2)):
        set_margin(data, i, j, exact, decimal)
    Path("tiny.json").write_text(json.dumps(data))
    start = time.perf_counter()
    assert folder.run("radius", "tiny.json", "outputs.csv")[0] == 0
    assert time.perf_counter() - start < 2


SLOPES = {
    "one": (["leaky_relu:1*2^19000"], "more than 8400 bits"),
    "a small one": (["leaky_relu:1*2^-19000"], "more than 8400 bits"),
    "an end": (["clip:0:1*2^9000"], "more than 8400 bits"),
    "many together": (["leaky_relu:1*2^8000"] * 3, "some 24003 bits, and at most 20000"),
    "many fractions": (["leaky_relu:1.00001e-800"] * 8 + ["elu:1*2^8000"] * 3, "at most 20000"),
}


@pytest.mark.parametrize("case", SLOPES)
def test_slopes_that_no_network_has_are_refused(folder, case):
    names, said = SLOPES[case]
    layers = {f"W{i}": np.eye(2) for i in range(len(names) + 1)}
    np.savez("slopes.npz", **layers, activations=np.array([name.encode() for name in names]))
    folder.refuses("bounds", "slopes.npz", says=[said])


def test_weights_that_multiply_beyond_all_bounds_are_refused(folder):
    """A text of a few letters is a number of 11,000 bits."""
    np.savez("weights.npz", W0=np.array([[b"1*2^11000"]]), W1=np.array([[b"1*2^11000"], [b"1"]]))
    folder.refuses("bounds", "weights.npz", says=["at most 20000"])


def test_the_number_of_layers_is_limited(folder):
    np.savez("deep.npz", **{f"W{i}": np.eye(2) for i in range(1025)})
    folder.refuses("inspect", "deep.npz", says=["1025 layers; at most 1024"])


def limited(folder, megabytes, *argv):
    """Runs the command line in a process that may not take more than so much address space; its peak is returned."""
    program = """
        import resource, sys
        from intervalcert.cli.program import main
        import intervalcert.api, intervalcert.report.text
        limit = int(sys.argv[1]) * 2**20
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        code = main(sys.argv[2:])
        print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)
        sys.exit(code)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(megabytes), *argv],
        cwd=folder.path,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 3, done.stderr
    assert_clear(done.stderr)
    return done.stderr, float(done.stdout)


LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits of address space are those of Linux")


@LINUX
def test_a_bomb_of_an_archive_is_not_unpacked(folder):
    """A member that would unpack to 512 MiB but whose header speaks of four numbers."""
    with (
        zipfile.ZipFile("bomb.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("W0.npy", "w") as member,
    ):
        member.write(npy(np.eye(2)))
        for _ in range(32):
            member.write(bytes(2**24))
    assert Path("bomb.npz").stat().st_size < 5 * 2**20
    err, peak = limited(folder, 4096, "bounds", "bomb.npz")
    assert "unpacks to more" in err
    assert peak < 64


@LINUX
@pytest.mark.parametrize("command", ["inspect", "bounds"])
def test_zeros_of_one_byte_do_not_become_objects(folder, command):
    """64 KiB that would be 2^26 numbers: as Python's they take some gigabytes."""
    np.savez_compressed("zeros.npz", W0=np.zeros((2**13, 2**13), "int8"))
    assert Path("zeros.npz").stat().st_size < 2**17
    err, peak = limited(folder, 4096, command, "zeros.npz")
    assert "unpacks to more" in err
    assert peak < 64


@LINUX
@pytest.mark.parametrize(("megabytes", "backend"), [(500, "auto"), (800, "arb")])
def test_too_little_memory_is_a_message(folder, megabytes, backend):
    """An honest matrix that the allowed memory cannot hold: as floats, or as exact numbers."""
    Path("large.npz").write_bytes(npz(("W0.npy", npy(np.ones((1000, 25000), "int8")))))
    err, _ = limited(folder, megabytes, "bounds", "large.npz", "--backend", backend)
    assert "memory" in err


@LINUX
def test_one_extreme_exponent_does_not_make_every_number_of_its_row_large(folder):
    """A fifth of a megabyte of logits of the wrong count; over one denominator they take a thousand times as much."""
    Path("wide.csv").write_text("1e-1000," + ",".join(["1"] * 100_000) + "\n")
    err, peak = limited(folder, 4096, "radius", "bounds.json", "wide.csv")
    assert "logits" in err
    assert peak < 64


@LINUX
def test_an_array_that_lies_about_its_size_takes_no_memory(folder):
    Path("lie.npy").write_bytes(npy_raw(header("(1000000, 1000000)"), bytes(64)))
    err, peak = limited(folder, 4096, "bounds", "lie.npy")
    assert "lie.npy" in err
    assert peak < 64


def test_the_limit_of_the_helper_works(folder):
    """Without a limit that bites, the tests of memory above could not fail."""
    program = "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**28, 2**28)); bytes(2**29)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert b"MemoryError" in done.stderr
    assert resource.getrlimit(resource.RLIMIT_AS) != (2**28, 2**28)


# -- arrays ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weights", "phrase"),
    [
        ([], "no layers"),
        ([[[1.0, 2.0], [3.0]]], "layer 0"),
        ([[[1.0, np.nan], [1.0, 2.0]]], "layer 0"),
        ([np.eye(2), [[1.0, 2.0], [np.inf, 2.0]]], "layer 1"),
        ([np.eye(2), np.eye(3)], "layer 1"),
        ([[1.0, 2.0]], "layer 0, row 0"),
        ([np.zeros((2, 0))], "shape (2, 0)"),
        ([[["a", "b"]]], "layer 0"),
        ([[[None, 1.0], [1.0, 2.0]]], "layer 0"),
        ([[[1j, 1.0], [1.0, 2.0]]], "complex"),
        ([np.ones((2, 2), dtype=bool)], "bool"),
        ([np.ones((2, 2), dtype=np.longdouble)], "type"),
    ],
    ids=str,
)
def test_bad_arrays_are_refused(weights, phrase):
    with pytest.raises(InputError, match=re.escape(phrase)):
        Network.from_arrays(weights)


@pytest.mark.parametrize(
    ("biases", "phrase"),
    [
        ([[1.0, 2.0], [1.0, 2.0]], "one per layer"),
        ([[1.0]], "1 biases"),
        ([[[1.0, 2.0]]], "entry 0"),
        ([[np.nan, 1.0]], "nan"),
        ([["a", "b"]], "layer 0"),
        ([[[1.0], [1.0, 2.0]]], "layer 0"),
    ],
    ids=str,
)
def test_bad_arrays_of_biases_are_refused(biases, phrase):
    with pytest.raises(InputError, match=re.escape(phrase)):
        Network.from_arrays([np.eye(2)], biases)


@pytest.mark.parametrize(
    ("text", "most", "expected"),
    [("", 4, ""), ("four", 4, "four"), ("fives", 4, "fiv…"), ("n" * 40, 40, "n" * 40), ("n" * 41, 40, "n" * 39 + "…")],
)
def test_long_texts_are_shortened_to_what_is_allowed(text, most, expected):
    assert shortened(text, most) == expected
    assert len(shortened(text * 1000)) <= 40
