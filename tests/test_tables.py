"""Tables of outputs: every way to write the same numbers is read as those numbers, in pieces of any size, and verdicts
come out the same in every format. Then the command line on many rows: memory, interruption, labels.
"""

import contextlib
import datetime as dt
import decimal
import io
import json
import math
import os
import signal
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pyarrow as pa
import pytest
from commands import ran
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet as pq

from intervalcert import InputError, Network, UsageError, certify, compute_bounds, save_bounds
from intervalcert.api import vectorised_certifier
from intervalcert.backends.registry import get_backend
from intervalcert.cli.program import main
from intervalcert.execution.streaming import certify_source, read_labels, read_outputs
from intervalcert.io.tables import open_rows, source, text_rows
from intervalcert.io.tables.parquet_pages import page_bytes
from intervalcert.io.tables.writers import VERDICT_COLUMNS, verdict_sink
from intervalcert.numbers.matrices import RationalVector
from intervalcert.proof.decision import Certifier, Status, Verdict
from intervalcert.verify.number_table import Epsilons, NumberTable
from intervalcert.verify.vectorised import VectorisedCertifier
from intervalcert.verify.verdicts import Verdicts

BOUNDS = compute_bounds(Network.from_arrays([np.array([[1.0, 2.0], [0.5, 1.0], [-1.0, 2.0]])]), "exact", 3)
MARGINS = BOUNDS.margins.matrix


def one_by_one(rows, epsilons):
    certifier = Certifier(MARGINS, (get_backend("exact"),))
    return [
        certifier.verdict(RationalVector.from_fractions(row), eps, index)
        for index, (row, eps) in enumerate(zip(rows, epsilons, strict=True))
    ]


def fractions(outputs):
    return [[Fraction(n, row.denominator) for n in row.numerators] for row in outputs.rows]


def collected(path, radii=None, *, with_radius=True, **options):
    """The verdicts of a file, by the streaming path."""
    bulk = VectorisedCertifier(MARGINS, get_backend("exact"))
    found = []
    for rows in open_rows(path, 3, **options).chunks:
        found += bulk.verdicts(rows, radii or rows.epsilons, with_radius=with_radius)
    return found


# -- text ------------------------------------------------------------------------------------------------------------

DECIMAL = st.one_of(
    st.integers(-999, 999).map(str),
    st.floats(-100, 100, width=32).map(lambda x: str(np.float32(x))),
    st.floats(-1e9, 1e9).map(repr),
    st.floats(-10, 10).map(lambda x: f"{x:.3f}"),
    st.floats(-10, 10).map(lambda x: f"{x:.18e}"),
    st.builds("{}.{}".format, st.integers(-3, 3), st.integers(0, 10**30)),
    st.sampled_from(
        ["-0", "+1", ".5", "5.", "1e-400", "1e400", "0e999", "-.25E+2", "1" * 70, "0.30000000000000000001"]
    ),
)
LINES = st.lists(st.tuples(DECIMAL, DECIMAL, DECIMAL), min_size=1, max_size=8)
EPS = st.sampled_from(["0", "0.3", "36/255", "1e-3", "2.5", "1*2^-3"])


@given(LINES, EPS, st.sampled_from([40, 100, 2**20]), st.sampled_from(["\n", "\r\n"]), st.booleans())
def test_text_has_the_verdicts_of_its_decimals(tmp_path_factory, lines, eps, block, end, spaced):
    """Whatever the notation, the size of the blocks and the path that reads them: verdict and radius are exact."""
    path = tmp_path_factory.mktemp("text") / "y.csv"
    path.write_bytes(end.join((", " if spaced else ",").join(line) for line in lines).encode())
    rows = [[Fraction(cell) for cell in line] for line in lines]
    expected = one_by_one(rows, [Fraction(1, 3)] * len(rows))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_rows, "BLOCK_BYTES", block)
        assert fractions(read_outputs(path, 3)) == rows
        radius = Epsilons.all_equal(Fraction(1, 3))
        assert collected(path, radius) == list(expected)
        assert [v.certified for v in collected(path, radius, with_radius=False)] == [v.certified for v in expected]


@given(LINES, st.lists(EPS, min_size=1, max_size=3), st.sampled_from([60, 2**20]))
def test_lines_with_radii(tmp_path_factory, lines, radii, block):
    path = tmp_path_factory.mktemp("text") / "y.txt"
    own = [radii[index % len(radii)] for index in range(len(lines))]
    path.write_text("".join(f"{','.join(line)} {eps}\n" for line, eps in zip(lines, own, strict=True)))
    exact = [Fraction(1, 8) if eps == "1*2^-3" else Fraction(eps) for eps in own]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_rows, "BLOCK_BYTES", block)
        assert read_outputs(path, 3).epsilons == tuple(exact)
        assert collected(path) == list(one_by_one([[Fraction(cell) for cell in line] for line in lines], exact))
        summary = certify_source(vectorised_certifier(BOUNDS), open_rows(path, 3), None)
    assert summary.eps == (exact[0] if len(set(exact)) == 1 else None)


@given(st.lists(st.one_of(st.floats(allow_nan=False, allow_infinity=False), st.floats(-9, 9, width=32)), min_size=1))
def test_the_parser_rounds_correctly(numbers):
    """The claim about numpy that the fast path rests on."""
    texts = [form(x) for x in numbers for form in (repr, "{:.30e}".format, "{:.17g}".format, "{:.9g}".format)]
    found = text_rows._parsed((",".join(texts) + ",").encode())
    assert found.tolist() == [float(Fraction(text)) if abs(Fraction(text)) < 2**1023 else float(text) for text in texts]


def fast(path):
    """How many rows the fast path reads."""
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        strict = text_rows._Reader._strict
        patch.setattr(text_rows._Reader, "_strict", lambda *a: seen.append(strict(*a)) or seen[-1])
        total = sum(len(rows) for rows in open_rows(path, 3).chunks)
    return total - sum(len(rows) for rows in seen if rows is not None)


@pytest.mark.parametrize(
    "text",
    [
        "1,2,3\n" * 9,
        "a,b,c\n" + "1.5,-2.25,3e-5\r\n" * 9,
        "1, 2, 3\n" * 9,
        "1,2,3 36/255\n" * 9,
        "\ufeff\n1,2,3\n" + "0.1,0.2,0.3\n" * 8,
    ],
    ids=["plain", "header and crlf", "spaces", "radius", "mark"],
)
def test_plain_text_takes_the_fast_path(tmp_path, text):
    (tmp_path / "y.csv").write_text(text, newline="")
    assert fast(tmp_path / "y.csv") == 9


@pytest.mark.parametrize(
    ("bad", "says"),
    [
        ("1,2", "2 logits"),
        ("1,,3", "not a decimal"),
        ("1,2,3e9999", "exponent"),
        ("1,2,nan", "finite"),
        ("1,2,0x3", "0x3"),
        ("1,2,3 0.5", "every line carries its eps"),
        ("1,2,1_0", "1_0"),
        ("1,2,--3", "--3"),
        ("1,2," + "7" * 1501, "1501 digits"),
        ("1,2,3 4 5", "3 4"),
    ],
)
@pytest.mark.parametrize("block", [50, 2**20])
def test_a_bad_line_is_named_by_its_number(tmp_path, monkeypatch, bad, says, block):
    """After a header, blank lines, and many good lines of several blocks; of Unix, Windows and old Macs."""
    monkeypatch.setattr(text_rows, "BLOCK_BYTES", block)
    for end in ("\n", "\r\n", "\r"):
        lines = ["a,b,c", "", *["1,2,3"] * 70, "  ", bad, "1,2,3"]
        (tmp_path / "y.csv").write_text(end.join(lines), newline="")
        with pytest.raises(InputError, match=f"y.csv, line 74: .*{says}"):
            list(open_rows(tmp_path / "y.csv", 3).chunks)


def test_a_line_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(text_rows, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(text_rows, "MAX_LINE_BYTES", 2**20)
    (tmp_path / "y.csv").write_text("1,2,3\n" + "1," * 600_000)
    with pytest.raises(InputError, match="line 2: a line of more than 1 MiB"):
        list(open_rows(tmp_path / "y.csv", 3).chunks)


def test_a_byte_that_is_no_text_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(text_rows, "BLOCK_BYTES", 50)
    (tmp_path / "y.csv").write_bytes(b"1,2,3\n" * 100 + b"1,\xff,3\n")
    with pytest.raises(InputError, match="byte 602 is not UTF-8"):
        list(open_rows(tmp_path / "y.csv", 3).chunks)


# -- .npy ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["<f2", ">f4", "<f4", "<f8", ">f8", "<i4", ">i8", "<u8", "i1", "bfloat16"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_in_windows(tmp_path, monkeypatch, dtype, order):
    monkeypatch.setattr("intervalcert.io.tables.numpy_rows.CHUNK_CELLS", 20)
    rng = np.random.default_rng(2)
    array = np.abs(rng.normal(size=(50, 3)) * 9)
    array[:10] = np.rint(array[:10])
    array = array.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype, order=order)
    np.save(tmp_path / "y.npy", array)
    eps = Fraction(1, 7)
    expected = one_by_one([[Fraction(float(x)) for x in row] for row in array], [eps] * 50)
    assert collected(tmp_path / "y.npy", Epsilons.all_equal(eps), bfloat16=dtype == "bfloat16") == list(expected)
    assert certify(BOUNDS, array, eps) == expected
    assert certify(BOUNDS, array, [eps] * 50) == expected
    assert certify(BOUNDS, array[:, ::-1][:, ::-1], str(eps)) == expected


def test_bfloat16_must_be_said(tmp_path):
    np.save(tmp_path / "y.npy", np.ones((2, 3), dtype=ml_dtypes.bfloat16))
    with pytest.raises(InputError, match="--dtype bfloat16"):
        open_rows(tmp_path / "y.npy", 3)
    np.save(tmp_path / "z.npy", np.ones((2, 3), dtype=np.float16))
    with pytest.raises(InputError, match="float16, not bfloat16"):
        open_rows(tmp_path / "z.npy", 3, bfloat16=True)


def test_the_place_of_nan_is_that_in_the_file(tmp_path, monkeypatch):
    monkeypatch.setattr("intervalcert.io.tables.numpy_rows.CHUNK_CELLS", 30)
    array = np.ones((100, 3), dtype=np.float32)
    array[77, 2] = np.nan
    np.save(tmp_path / "y.npy", array)
    with pytest.raises(InputError, match=r"y\.npy: nan in row 77, column 2"):
        collected(tmp_path / "y.npy", Epsilons.all_equal(Fraction(0)))


def test_a_file_cut_while_it_is_read_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("intervalcert.io.tables.numpy_rows.CHUNK_CELLS", 30)
    np.save(tmp_path / "y.npy", np.ones((10_000, 3)))
    chunks = open_rows(tmp_path / "y.npy", 3).chunks
    next(chunks)
    os.truncate(tmp_path / "y.npy", 1000)
    with pytest.raises(InputError, match="changed while it was read"):
        list(chunks)


# -- Parquet ---------------------------------------------------------------------------------------------------------


def write_parquet(path, **columns):
    pq.write_table(pa.table(columns), path, row_group_size=7)
    return path


def test_parquet(tmp_path, monkeypatch):
    """Mixed types, several row groups and batches, integers beyond the floats."""
    monkeypatch.setattr("intervalcert.io.tables.parquet_rows.CHUNK_CELLS", 15)
    rng = np.random.default_rng(3)
    columns = {
        "cat": rng.normal(size=40).astype(np.float32),
        "dog": np.array([*range(39), 2**53 + 1]),
        "bird": rng.normal(size=40).astype(np.float16),
    }
    path = write_parquet(tmp_path / "y.parquet", **columns)
    rows = [[Fraction(x.item()) for x in row] for row in zip(*columns.values(), strict=True)]
    assert fractions(read_outputs(path, 3)) == rows
    eps = Fraction(1, 3)
    assert collected(path, Epsilons.all_equal(eps)) == list(one_by_one(rows, [eps] * 40))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
def test_parquet_with_radii(tmp_path, dtype):
    rng = np.random.default_rng(3)
    logits, eps = rng.normal(size=(20, 3)), np.abs(rng.normal(size=20) * 3).astype(dtype)
    path = write_parquet(tmp_path / "y.parquet", a=logits[:, 0], eps=eps, b=logits[:, 1], c=logits[:, 2])
    rows = [[Fraction(x) for x in row] for row in logits.tolist()]
    assert collected(path) == list(one_by_one(rows, [Fraction(x) for x in eps.tolist()]))


ONE = pa.array([1.0])
BAD_PARQUET = {
    "null": ({"a": pa.array([1.0, None]), "b": [1.0, 2.0], "c": [1.0, 2.0]}, ["row 1", "'a'"]),
    "text": ({"a": ["1"], "b": ONE, "c": ONE}, ["'a'", "string"]),
    "nested": ({"a": [[1.0]], "b": ONE, "c": ONE}, ["'a'", "list"]),
    "decimal": ({"a": [decimal.Decimal("1.5")], "b": ONE, "c": ONE}, ["'a'", "decimal"]),
    "truth": ({"a": [True], "b": ONE, "c": ONE}, ["'a'", "bool"]),
    "date": ({"a": [dt.date(2020, 1, 1)], "b": ONE, "c": ONE}, ["'a'", "date"]),
    "two classes": ({"a": ONE, "b": ONE}, ["2 logits", "3 classes"]),
    "four classes": ({"a": ONE, "b": ONE, "c": ONE, "d": ONE}, ["4 logits", "3 classes"]),
    "nan": ({"a": ONE, "b": [math.nan], "c": ONE}, ["nan", "row 0, column 1"]),
    "inf beside a large integer": ({"a": [2**60 + 1], "b": [math.inf], "c": ONE}, ["inf", "row 0, column 1"]),
    "no rows": ({"a": pa.array([], pa.float32()), "b": pa.array([], pa.float32())}, ["no rows"]),
    "radius alone": ({"eps": ONE}, ["no rows"]),
    "negative radius": ({"a": ONE, "b": ONE, "c": ONE, "eps": [-0.5]}, ["output 0", "-0.5"]),
    "nan radius": ({"a": ONE, "b": ONE, "c": ONE, "eps": [math.nan]}, ["nan", "row 0", "eps"]),
    "null radius": ({"a": ONE, "b": ONE, "c": ONE, "eps": pa.array([None], pa.float64())}, ["row 0", "eps"]),
}


@pytest.mark.parametrize("name", BAD_PARQUET)
def test_bad_parquet_is_refused(tmp_path, name):
    columns, phrases = BAD_PARQUET[name]
    path = write_parquet(tmp_path / "y.parquet", **columns)
    with pytest.raises(InputError) as refused:
        collected(path, None if "eps" in columns else Epsilons.all_equal(Fraction(0)))
    assert all(phrase in str(refused.value) for phrase in ["y.parquet" if name != "negative radius" else "", *phrases])


def test_damaged_parquet_is_refused(tmp_path):
    good = write_parquet(tmp_path / "y.parquet", a=[1.0, 2.0], b=[2.0, 1.0], c=[0.0, 9.0]).read_bytes()
    path = tmp_path / "bad.parquet"
    for data in [b"", b"PAR1", b"1,2,3\n", *(good[:cut] for cut in range(0, len(good) - 1, 97))]:
        path.write_bytes(data)
        with pytest.raises(InputError, match=r"bad\.parquet"):
            collected(path, Epsilons.all_equal(Fraction(0)))
    for at in range(0, len(good), 41):
        path.write_bytes(good[:at] + bytes([good[at] ^ 0x55]) + good[at + 1 :])
        with contextlib.suppress(InputError):  # it may still be valid; nothing else may happen
            collected(path, Epsilons.all_equal(Fraction(0)))


WAYS = {
    "usual": {},
    "small groups and pages": {"row_group_size": 100, "data_page_size": 64, "compression": "gzip"},
    "plain": {"compression": "none", "use_dictionary": False, "data_page_version": "2.0"},
    "checksums": {"compression": "brotli", "write_page_index": True, "write_page_checksum": True},
    "split bytes": {"compression": "zstd", "column_encoding": "BYTE_STREAM_SPLIT", "use_dictionary": False},
    "no statistics": {"write_statistics": False},
    "texts in statistics": {"column_encoding": {"a": "PLAIN"}, "use_dictionary": ["b", "c"]},
}


@pytest.mark.parametrize("way", WAYS)
def test_pages_of_parquet_are_as_large_as_they_say(tmp_path, way):
    """All of them together, with their headers, take what the end of the file says of an honest one."""
    rng = np.random.default_rng(3)
    columns = {"a": rng.normal(size=700), "b": rng.integers(0, 9, 700), "c": np.zeros(700)}
    path = tmp_path / "y.parquet"
    pq.write_table(pa.table(columns), path, **WAYS[way])
    assert [float(row[0]) for row in fractions(read_outputs(path, 3))] == columns["a"].tolist()
    metadata = pq.ParquetFile(path).metadata
    with path.open("rb") as file:
        for index in range(metadata.num_row_groups):
            for column in map(metadata.row_group(index).column, range(3)):
                pages = list(page_bytes(file, column))
                assert pages
                heads = column.total_uncompressed_size - sum(pages)
                assert 0 < heads < 200 * len(pages)


def giant(path, rows, **options):
    """Zeros in one page for each of three columns."""
    whole = dict.fromkeys(("row_group_size", "write_batch_size", "max_rows_per_page"), rows)
    table = pa.table({name: np.zeros(rows) for name in "abc"})
    pq.write_table(table, path, compression="zstd", data_page_size=2**30, **whole, **options)
    return path


@pytest.mark.parametrize("use_dictionary", [True, False])
def test_a_small_parquet_file_with_very_many_rows_is_refused(tmp_path, use_dictionary):
    path = giant(tmp_path / "y.parquet", 3_000_000, use_dictionary=use_dictionary)
    assert path.stat().st_size < 20_000
    with pytest.raises(InputError, match=r"y\.parquet has \d+ bytes and unpacks to more than 64 times as many"):
        open_rows(path, 3)


def test_a_page_of_parquet_that_lies_about_its_size_is_refused(tmp_path, monkeypatch):
    """The end of the file says otherwise, but the library would believe the page."""
    monkeypatch.setattr("intervalcert.io.files.FREE_BYTES", 2**16)
    path = giant(tmp_path / "y.parquet", 1250, use_dictionary=False)
    assert len(read_outputs(path, 3).rows) == 1250
    with path.open("rb") as file:
        column = pq.ParquetFile(path).metadata.row_group(0).column(1)
        (page,) = page_bytes(file, column)
    assert 10_000 <= page < 10_100
    data = bytearray(path.read_bytes())
    zigzag, largest = 2 * page, 2**21 - 2
    said, lie = (bytes([0x15, x & 127 | 128, x >> 7 & 127 | 128, x >> 14]) for x in (zigzag, largest))
    place = data.index(said, column.data_page_offset)
    data[place : place + 4] = lie
    path.write_bytes(data)
    with pytest.raises(InputError, match="unpacks to more than 64 times as many"):
        open_rows(path, 3)


def test_pages_that_are_too_large_together_are_refused(tmp_path, monkeypatch):
    path = giant(tmp_path / "y.parquet", 1250, use_dictionary=False)
    monkeypatch.setattr("intervalcert.io.tables.parquet_rows.MAX_PAGES_BYTES", 30_000)
    with pytest.raises(InputError, match=r"row group 0 has pages .* write smaller pages or row groups"):
        open_rows(path, 3)


@pytest.mark.parametrize(
    "header",
    [
        b"",
        bytes([0x15, 0x80] + [0x80] * 12),  # a number that does not end
        bytes([0x1C] * 30),  # structures within structures
        bytes([0x18, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F]),  # a text that is longer than the file
        bytes([0x1D, 0]),  # a type that there is not
        bytes([0x15, 0, 0]),  # no sizes
        bytes([0x15, 0, 0x15, 1, 0x15, 0, 0]),  # a size below zero
        bytes([0x19, 0xFC, 0xFF, 0xFF, 0x7F] + [0] * 100),  # a list that does not end
    ],
)
def test_headers_of_pages_that_make_no_sense(header):
    column = SimpleNamespace(dictionary_page_offset=None, data_page_offset=4, total_compressed_size=100)
    with pytest.raises(ValueError, match="header of a page"):
        list(page_bytes(io.BytesIO(b"PAR1" + header), column))


def test_parquet_without_pyarrow_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for use in (lambda: open_rows(tmp_path / "y.parquet", 3), lambda: verdict_sink(tmp_path / "v.parquet").__enter__()):
        with pytest.raises(UsageError, match=r"pip install 'intervalcert\[parquet\]'"):
            use()


def test_pyarrow_is_imported_only_for_parquet():
    modules = "intervalcert.cli.commands, intervalcert.execution.streaming, intervalcert.api"
    program = f"import sys, {modules}; assert 'pyarrow' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)


# -- verdicts out ----------------------------------------------------------------------------------------------------

SOME = Verdicts.of(
    [
        Verdict(i, i % 3, Status.UNKNOWN if i % 2 else Status.CERTIFIED, x, "real", "input")
        for i, x in enumerate([0.5, 0.1, math.inf, 0.0, 1e-7, 123456.75])
    ]
)


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".npy", ".parquet"])
@pytest.mark.parametrize("pieces", [1, 2, 6])
def test_written_in_pieces(tmp_path, ending, pieces):
    path = tmp_path / f"v{ending}"
    with verdict_sink(path) as write:
        for start in range(0, 6, 6 // pieces):
            write(SOME[start : start + 6 // pieces])
        assert not path.exists()
    if ending == ".npy":
        found = np.load(path)
    elif ending == ".parquet":
        table = pq.read_table(path)
        assert [str(field.type) for field in table.schema] == ["int64", "int32", "bool", "double", "string", "string"]
        found = {name: table[name].to_numpy() for name in table.column_names}
    else:
        lines = path.read_text().splitlines()
        if ending == ".csv":
            names = lines.pop(0).split(",")
            assert names == list(VERDICT_COLUMNS)
            records = [dict(zip(names, x.split(","), strict=True)) for x in lines]
        else:
            records = [json.loads(line) for line in lines]
        assert [float(record["radius"]) for record in records] == SOME.radius.tolist()
        assert [int(record["argmax"]) for record in records] == SOME.argmax.tolist()
        assert [record["verdict"] == "certified" for record in records] == SOME.certified.tolist()
        assert {(record["semantics"], record["eps_space"]) for record in records} == {("real", "input")}
        return
    for name in ("argmax", "certified", "radius"):
        assert found[name].tolist() == getattr(SOME, name).tolist()
    assert found["index"].tolist() == list(range(6))
    assert {str(np.asarray(x).astype(str)) for x in found["semantics"]} == {"real"}
    assert {str(np.asarray(x).astype(str)) for x in found["eps_space"]} == {"input"}


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".npy", ".parquet"])
def test_a_failure_in_the_middle_leaves_what_was_there(tmp_path, ending):
    path = tmp_path / f"v{ending}"
    path.write_bytes(b"an older result")

    def fail():
        with verdict_sink(path) as write:
            write(SOME)
            raise InputError("later")

    with pytest.raises(InputError, match="later"):
        fail()
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert path.read_bytes() == b"an older result"


# -- labels ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["l.txt", "l.npy"])
def test_labels_in_pieces(tmp_path, monkeypatch, name):
    monkeypatch.setattr(text_rows, "BLOCK_BYTES", 20)
    monkeypatch.setattr("intervalcert.io.tables.numpy_rows.CHUNK_CELLS", 7)
    labels = np.random.default_rng(1).integers(0, 3, 100)
    np.save(tmp_path / "l.npy", labels)
    (tmp_path / "l.txt").write_text("".join(f"{x}\n" for x in labels))
    assert read_labels(tmp_path / name, 100, 3) == tuple(labels.tolist())
    np.save(tmp_path / "y.npy", np.eye(3)[np.arange(100) % 3])
    rows = open_rows(tmp_path / "y.npy", 3)
    summary = certify_source(
        vectorised_certifier(BOUNDS),
        rows,
        Epsilons.all_equal(Fraction(0)),
        labels=source.LabelSource(Path("l"), iter([labels]), 3),
    )
    assert (summary.total, summary.certified) == (100, 100)
    assert summary.right == summary.right_and_certified == int((labels == np.arange(100) % 3).sum())
    for count in (99, 101):
        with pytest.raises(InputError, match=f"100 labels, but there are {count} outputs"):
            read_labels(tmp_path / name, count, 3)


@pytest.mark.parametrize("header", ["label", '"class"', "y_true", "\n\n label \n"])
def test_labels_may_have_a_header(tmp_path, capsys, header):
    (tmp_path / "l.csv").write_text(f"{header}\n2\n0\n1\n")
    assert read_labels(tmp_path / "l.csv", 3, 3) == (2, 0, 1)
    save_bounds(BOUNDS, tmp_path / "b.json")
    np.save(tmp_path / "y.npy", np.eye(3)[[2, 0, 0]] * 3)
    words = ("certify", tmp_path / "b.json", tmp_path / "y.npy", "--eps", "0", "--json", "--labels", tmp_path / "l.csv")
    code, out, err = ran(capsys, *words)
    assert (code, json.loads(out)["accuracy"]) == (0, 2 / 3)
    assert f"l.csv: the first line is taken for a header: {header.strip()}" in err


@pytest.mark.parametrize("text", ["1\nlabel\n2\n", "label\nlabel\n1\n", "nan\n1\n", "none\n1\n", "-1\n1\n", "1.0\n1\n"])
def test_what_is_no_header_of_labels(tmp_path, text):
    (tmp_path / "l.csv").write_text(text)
    with pytest.raises(InputError, match="is not a class number"):
        read_labels(tmp_path / "l.csv", 2, 3)


# -- the command line ------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_bounds(BOUNDS, "bounds.json")
    return tmp_path


def test_every_format_in_every_format_out(folder, capsys, monkeypatch):
    """The same numbers as .npy, Parquet and text; the same verdicts as .npy and Parquet."""
    monkeypatch.setattr("intervalcert.io.tables.numpy_rows.CHUNK_CELLS", 100)
    logits = np.random.default_rng(5).normal(size=(200, 3)).astype(np.float32)
    np.save("y.npy", logits)
    write_parquet("y.parquet", **{f"y{i}": logits[:, i] for i in range(3)})
    Path("y.csv").write_text("".join(",".join(str(decimal.Decimal(float(x))) for x in row) + "\n" for row in logits))
    expected = certify(BOUNDS, logits, "0.1")
    for name in ("y.npy", "y.parquet", "y.csv"):
        assert main(["certify", "bounds.json", name, "--eps", "0.1", "--json", "-o", "v.npy"]) == 0
        assert json.loads(capsys.readouterr().out)["certified"] == expected.certified.sum()
        assert main(["radius", "bounds.json", name, "-o", "r.parquet"]) == 0
        found = np.load("v.npy")
        for column in ("argmax", "certified", "radius"):
            assert found[column].tolist() == getattr(expected, column).tolist()
        assert pq.read_table("r.parquet")["radius"].to_pylist() == expected.radius.tolist()


def test_bfloat16_on_the_command_line(folder, capsys):
    array = np.random.default_rng(5).normal(size=(20, 3)).astype(ml_dtypes.bfloat16)
    np.save("y.npy", array)
    assert main(["radius", "bounds.json", "y.npy"]) == 3
    assert "--dtype bfloat16" in capsys.readouterr().err
    assert main(["radius", "bounds.json", "y.npy", "--dtype", "bfloat16", "-o", "r.npy"]) == 0
    assert np.load("r.npy")["radius"].tolist() == certify(BOUNDS, array, 0).radius.tolist()


PEAK = """
import sys
from intervalcert.cli.program import main
code = main(sys.argv[1:])
status = open("/proc/self/status").read().splitlines()
print(next(line.split()[1] for line in status if line.startswith("VmHWM")))
sys.exit(code)
"""


def sparse_npy(path, rows):
    """A table of zeros, 12 bytes a row, that takes no room on the disk."""
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (rows, 3)})
        file.truncate(file.tell() + 12 * rows)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peak memory is read from /proc")
def test_memory_does_not_grow_with_the_rows(folder):
    peaks = []
    for rows in (600_000, 8_000_000):
        sparse_npy(folder / "y.npy", rows)
        argv = [sys.executable, "-c", PEAK, "radius", "bounds.json", "y.npy", "-o", "r.npy"]
        done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=120)
        peaks.append(int(done.stdout) / 1024)
        assert (folder / "r.npy").stat().st_size > 20 * rows
    assert peaks[1] - peaks[0] < 20, peaks
    assert peaks[1] < 200


@pytest.mark.skipif(os.name != "posix", reason="signals are those of POSIX")
@pytest.mark.parametrize("ending", [".csv", ".npy", ".parquet"])
@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143), ("SIGHUP", 129), ("SIGKILL", -9)])
def test_an_interrupted_run_leaves_no_half_file(folder, name, code, ending):
    """A run over two hundred million rows, interrupted when some are written."""
    sparse_npy(folder / "y.npy", 200_000_000)
    argv = [sys.executable, "-m", "intervalcert", "radius", "bounds.json", "y.npy", "-o", f"r{ending}"]
    process = subprocess.Popen(argv, stderr=subprocess.PIPE, text=True)
    try:
        end = time.monotonic() + 60
        while not any(path.stat().st_size > 10**5 for path in folder.glob(".*.part")):
            assert time.monotonic() < end
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(getattr(signal, name))
        assert process.wait(timeout=60) == code
        assert "Traceback" not in process.stderr.read()
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
    left = {path.name for path in folder.iterdir()} - {"bounds.json", "bounds.json.witnesses.npz", "y.npy"}
    assert f"r{ending}" not in left
    assert left == set() or name == "SIGKILL"


def test_rows_of_exact_floats_have_no_second_look():
    with pytest.raises(ValueError, match="no second look"):
        NumberTable.of_array(np.ones((1, 3))).lead(0, 0, 1)


# -- what a hostile reading found ------------------------------------------------------------------------------------


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes are Unix's")
def test_a_named_pipe_is_opened_once(folder):
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    command = [sys.executable, "-m", "intervalcert", "certify", "bounds.json", str(pipe), "--eps", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as reader:
        pipe.write_text("1,2,3\n3,2,1\n")  # returns when the reader has opened it
        out, _ = reader.communicate(timeout=30)
    assert json.loads(out)["total"] == 2


@pytest.mark.parametrize("cell", ["0e9999", "0E1001", "0e-9999", "1e1001"])
def test_an_exponent_beyond_the_limit_is_refused_on_either_path(tmp_path, cell):
    for text in (f"{cell},5,1\n1,2,3\n", f"{cell},5,1\n1,2,3\n\n"):
        (tmp_path / "y.csv").write_text(text)
        with pytest.raises(InputError, match="line 1: the exponent"):
            read_outputs(tmp_path / "y.csv", 3)


@pytest.mark.parametrize("eps", ["0.5", "0.50000000000000000001"])
def test_the_count_of_exact_decisions_does_not_depend_on_the_output(tmp_path, eps):
    """A lead of 1 and a bit against a margin of 2: only exact rationals can tell."""
    margins = ((Fraction(0), Fraction(2)), (Fraction(2), Fraction(0)))
    (tmp_path / "y.csv").write_text("1.00000000000000000002,0\n")
    certifier = VectorisedCertifier(margins, get_backend("exact"))
    radii = Epsilons.all_equal(Fraction(eps))
    found = [
        certify_source(certifier, open_rows(tmp_path / "y.csv", 2), radii, write=write)
        for write in (None, lambda _: None)
    ]
    assert found[0] == found[1]
    assert found[0].exactly == 1


@pytest.mark.parametrize("name", ["y.csv", "y.parquet", "y.txt"])
def test_a_type_is_refused_where_the_file_says_its_own(tmp_path, name):
    (tmp_path / name).write_text("1,2\n")
    with pytest.raises(UsageError, match=r"for \.npy files"):
        open_rows(tmp_path / name, 2, bfloat16=True)


def test_masked_radii_are_refused():
    bounds = compute_bounds(Network.from_arrays([np.array([[1.0, 0.0], [-1.0, 0.0]])]), "exact")
    with pytest.raises(InputError, match="masked"):
        certify(bounds, np.array([[3.0, 0.0], [3.0, 0.0]]), np.ma.array([1.0, 0.1], mask=[True, False]))


def test_a_header_of_numbers_is_an_output_and_a_note(folder, capsys):
    (folder / "y.csv").write_text("0,1,2\n5,1,1\n")
    assert main(["certify", "bounds.json", "y.csv", "--eps", "0", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["total"] == 2
    assert "read as numbers; if it is a header, take it out: 0,1,2" in err
