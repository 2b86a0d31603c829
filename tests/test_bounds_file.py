"""The bounds file: everything that is needed to use and to check bounds, exact, written whole or not at all."""

import json
import os
import re
import stat
from fractions import Fraction

import numpy as np
import pytest

from intervalcert import InputError, Network, audit, compute_bounds, load_bounds, load_model, save_bounds
from intervalcert.io.bounds_file import FORMAT_VERSION
from intervalcert.io.files import atomic_writer
from intervalcert.numbers.parsing import parse_rational

BACKENDS = ["arb", "exact", "mpmath"]


def small(scale=1.0, activation="relu"):
    weights = [np.array([[1.0, 2.0], [3.0, 4.0]]) * scale, np.array([[0.5, 1.0], [0.25, 1.0], [-1.0, 2.0]]) * scale]
    return Network.from_arrays(weights, between=activation)


def text_network(tmp_path, text):
    (tmp_path / "extreme.txt").write_text(text)
    return load_model(tmp_path / "extreme.txt")


NETWORKS = {
    "small": lambda _: small(),
    "sigmoid": lambda _: small(activation="sigmoid"),
    "tiny": lambda _: small(1e-300),
    "huge": lambda _: small(1e300),
    "subnormal": lambda _: small(5e-324),
    "decimals beyond floats": lambda path: text_network(path, "[[1e-900,0],[0,1e-900]],[[1e900,0],[0,1]]"),
    "zero layer": lambda _: Network.from_arrays([np.zeros((2, 2)), np.eye(2)]),
    "all zero": lambda _: Network.from_arrays([np.zeros((2, 3)), np.zeros((2, 2))]),
    "one layer": lambda _: Network.from_arrays([np.array([[1.0, 2.0], [3.0, 5.0]])]),
    "equal rows": lambda _: Network.from_arrays([np.array([[1.0, 2.0], [1.0, 2.0], [0.0, 1.0]])]),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_saved_is_read_back(tmp_path, name, backend):
    """Equal in every field, whatever the scale of the numbers."""
    bounds = compute_bounds(NETWORKS[name](tmp_path), backend, 2)
    save_bounds(bounds, tmp_path / "bounds.json")
    assert load_bounds(tmp_path / "bounds.json") == bounds
    assert load_bounds(str(tmp_path / "bounds.json")) == bounds


def extreme_chain(tmp_path, weight, layers, margins):
    network = text_network(tmp_path, ",".join([f"[[{weight},0],[0,{weight}]]"] * layers))
    return compute_bounds(network, "arb", 0, margins=margins)


@pytest.mark.parametrize("weight", ["1e-1000", "1e1000"])
def test_a_product_of_many_extreme_layers_is_read_back(tmp_path, weight):
    """Six layers of the most extreme weights that are read: the margins are near 2^19900 or its inverse."""
    bounds = extreme_chain(tmp_path, weight, 6, "product")
    save_bounds(bounds, tmp_path / "bounds.json")
    assert load_bounds(tmp_path / "bounds.json") == bounds


@pytest.mark.parametrize("weight", ["1e-1000", "1e1000"])
def test_a_chain_of_many_extreme_layers_is_read_back(tmp_path, weight):
    """Its sigmas are squares: near 2^13300 after two of the three layers."""
    bounds = extreme_chain(tmp_path, weight, 3, "best")
    assert len(bounds.margins.sigmas) == 2
    save_bounds(bounds, tmp_path / "bounds.json")
    assert load_bounds(tmp_path / "bounds.json") == bounds


@pytest.mark.parametrize("weight", ["1e-1000", "1e1000"])
@pytest.mark.parametrize(("margins", "layers"), [("product", 16), ("best", 9)])
def test_a_bound_that_could_not_be_read_back_is_not_written(tmp_path, weight, margins, layers):
    with pytest.raises(InputError, match="rescale"):
        save_bounds(extreme_chain(tmp_path, weight, layers, margins), tmp_path / "bounds.json")
    assert not (tmp_path / "bounds.json").exists()


@pytest.mark.parametrize("prec", [16, 64, 4096])
def test_every_precision_is_read_back(tmp_path, prec):
    """4096 bits are 1233 digits: within the limits of what is read."""
    bounds = compute_bounds(small(), "exact", 3, prec=prec)
    save_bounds(bounds, tmp_path / "bounds.json")
    assert load_bounds(tmp_path / "bounds.json") == bounds


def test_saving_twice_gives_the_same_bytes(tmp_path):
    bounds = compute_bounds(small(), "exact", 3)
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
    save_bounds(bounds, tmp_path / "one" / "b.json")
    save_bounds(load_bounds(tmp_path / "one" / "b.json"), tmp_path / "two" / "b.json")
    for name in ("b.json", "b.json.witnesses.npz"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


# -- content ---------------------------------------------------------------------------------------------------------


def saved(tmp_path, network, backend="arb", iterations=3, **options):
    bounds = compute_bounds(network, backend, iterations, **options)
    save_bounds(bounds, tmp_path / "bounds.json")
    return bounds, json.loads((tmp_path / "bounds.json").read_text())


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_file_says_everything(tmp_path, backend):
    """sha256, backend, precision, iterations, method, versions, both bounds of each layer, the margins."""
    path = tmp_path / "model.txt"
    path.write_text("[[1.0,2.0,0.5],[3.0,4.0,1]],[[0.5,0.25,-1],[1,1,2],[0,1,1]]")
    network = load_model(path, activation="tanh")
    _, data = saved(tmp_path, network, backend, 3, prec=80)
    assert data["format"] == "intervalcert bounds"
    assert data["version"] == FORMAT_VERSION == 7
    assert data["semantics"] == "real"
    assert data["eps_space"] == "input"
    assert data["model"] == [{"name": "model.txt", "sha256": network.sources[0].sha256}]
    assert re.fullmatch("[0-9a-f]{64}", data["model"][0]["sha256"])
    assert data["network"] == network.content
    bits = None if backend == "exact" else 160
    assert data["method"] == {
        "backend": backend,
        "prec": 80,
        "working_bits": bits,
        "iterations": "3",
        "norms": "gram",
        "margins": "best",
        "tuning_rounds": 0,
    }
    assert set(data["versions"]) >= {"python", "intervalcert", "numpy", "python-flint", "mpmath"}
    assert data["versions"]["numpy"] == np.__version__
    assert [(layer["rows"], layer["columns"], layer["activation"]) for layer in data["layers"]] == [
        (3, 2, "tanh"),
        (3, 3, None),
    ]
    for layer in data["layers"]:
        assert set(layer["lower"]) == set(layer["upper"]) == {"exact", "decimal"}
        assert (layer["method"], layer["iterations"]) == ("gram", 3)
        assert backend in layer["computed_by"]
        assert layer["skipped_because"] == []
    assert set(data["layers"][0]["sigma"]) == {"exact", "decimal"}
    assert data["layers"][1]["sigma"] is None, "there is no activation after it"
    assert [len(row.split()) for row in data["margins"]["exact"]] == [0, 1, 2], "each pair once"
    assert [len(row.split()) for row in data["margins"]["decimal"]] == [0, 1, 2]


def test_biases_are_recorded_beside_the_model(tmp_path):
    (tmp_path / "model.txt").write_text("[[1,2]]")
    (tmp_path / "biases.txt").write_text("[1,2]")
    _, data = saved(tmp_path, load_model(tmp_path / "model.txt", tmp_path / "biases.txt"))
    assert [source["name"] for source in data["model"]] == ["model.txt", "biases.txt"]


def pairs_of(data):
    """(exact, decimal, +1 for an upper and -1 for a lower bound) of every bound in the file."""
    for layer in data["layers"]:
        yield layer["lower"]["exact"], layer["lower"]["decimal"], -1
        yield layer["upper"]["exact"], layer["upper"]["decimal"], +1
    for exact, decimal in zip(data["margins"]["exact"], data["margins"]["decimal"], strict=True):
        for e, d in zip(exact.split(), decimal.split(), strict=True):
            yield e, d, +1


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["small", "tiny", "huge", "zero layer", "decimals beyond floats"])
def test_decimals_are_rounded_outward(tmp_path, name, backend):
    """Whoever copies the decimal of an upper bound has an upper bound; and it is within 1e-16 of the exact one."""
    _, data = saved(tmp_path, NETWORKS[name](tmp_path), backend)
    rounded = 0
    for exact, decimal, sign in pairs_of(data):
        value, shown = parse_rational(exact), Fraction(decimal)
        assert sign * (shown - value) >= 0
        assert abs(shown - value) * 10**16 <= value
        rounded += shown != value
    assert rounded > 0 or name in {"zero layer", "decimals beyond floats"}


def independent_value(text):
    """m*2^e, read without the package."""
    mantissa, exponent = re.fullmatch(r"(\d+)\*2\^(-?\d+)", text).groups()
    return int(mantissa) * Fraction(2) ** int(exponent)


def test_exact_strings_are_the_bounds(tmp_path):
    bounds, data = saved(tmp_path, small(), "arb")
    for layer, item in zip(bounds.layers, data["layers"], strict=True):
        assert independent_value(item["upper"]["exact"]) == layer.upper
        assert independent_value(item["lower"]["exact"]) == layer.lower
        assert layer.lower <= layer.upper
    for j, (row, items) in enumerate(zip(bounds.margins.matrix, data["margins"]["exact"], strict=True)):
        assert [independent_value(item) for item in items.split()] == list(row)[:j]


@pytest.mark.parametrize("name", ["small", "tiny", "huge"])
def test_there_is_no_bare_float(tmp_path, name):
    """A float in JSON is rounded by whoever reads it."""
    saved(tmp_path, NETWORKS[name](tmp_path))

    def refuse(text):
        raise AssertionError(f"the float {text}")

    json.loads((tmp_path / "bounds.json").read_text(), parse_float=refuse, parse_constant=refuse)


def test_the_file_ends_with_a_line_and_is_ascii(tmp_path):
    saved(tmp_path, small())
    content = (tmp_path / "bounds.json").read_bytes()
    assert content.endswith(b"}\n")
    assert content.isascii()


# -- written whole or not at all -------------------------------------------------------------------------------------


def listing(folder):
    return sorted(path.name for path in folder.iterdir())


class FailedInBetweenError(Exception):
    """Raised by the tests while a file is being written."""


@pytest.mark.parametrize("kind", [FailedInBetweenError, KeyboardInterrupt, MemoryError, SystemExit])
@pytest.mark.parametrize("before", [None, b"an older result"])
def test_a_failure_in_the_middle_leaves_no_trace(tmp_path, kind, before):
    path = tmp_path / "result.json"
    if before is not None:
        path.write_bytes(before)
    found = listing(tmp_path)

    def write_half():
        with atomic_writer(path) as file:
            file.write(b"half of it")
            file.flush()
            assert len(listing(tmp_path)) == len(found) + 1, "it is written beside its place"
            raise kind

    with pytest.raises(kind):
        write_half()
    assert listing(tmp_path) == found
    assert before is None or path.read_bytes() == before


@pytest.mark.parametrize("step", ["replace", "fsync", "chmod"])
@pytest.mark.parametrize("before", [None, b"an older result"])
def test_a_failing_system_leaves_no_trace(tmp_path, monkeypatch, step, before):
    """A full disk or a lost connection at any step: the old file stays, and the message names the file."""
    path = tmp_path / "result.json"
    if before is not None:
        path.write_bytes(before)
    found = listing(tmp_path)

    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(InputError, match=r"result\.json.*No space left"):
        save_bounds(compute_bounds(small(), "exact", 1), path)
    assert listing(tmp_path) == found
    assert before is None or path.read_bytes() == before


def test_the_old_file_stays_until_the_new_one_is_complete(tmp_path):
    path = tmp_path / "result.json"
    path.write_bytes(b"old")
    with atomic_writer(path) as file:
        file.write(b"new")
        file.flush()
        assert path.read_bytes() == b"old"
    assert path.read_bytes() == b"new"
    assert listing(tmp_path) == ["result.json"]


def test_a_reader_of_the_old_file_keeps_it(tmp_path):
    """Replaced, not overwritten in place."""
    path = tmp_path / "result.json"
    path.write_bytes(b"old")
    with path.open("rb") as reader:
        with atomic_writer(path) as file:
            file.write(b"new")
        assert reader.read() == b"old"


@pytest.mark.skipif(os.name != "posix", reason="modes are those of POSIX")
def test_the_mode_is_that_of_any_new_file(tmp_path):
    """Temporary files are private; the result must not be."""
    before = os.umask(0o027)
    try:
        save_bounds(compute_bounds(small(), "exact", 1), tmp_path / "bounds.json")
        now = os.umask(0o027)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "bounds.json").stat().st_mode) == 0o640
    assert now == 0o027, "the mask of the process is not changed"


@pytest.mark.skipif(os.name != "posix", reason="modes are those of POSIX")
@pytest.mark.parametrize("mode", [0o600, 0o664])
def test_the_mode_of_a_replaced_file_is_kept(tmp_path, mode):
    path = tmp_path / "bounds.json"
    path.write_bytes(b"old")
    path.chmod(mode)
    save_bounds(compute_bounds(small(), "exact", 1), path)
    assert stat.S_IMODE(path.stat().st_mode) == mode


def test_a_link_stays_a_link(tmp_path):
    """`-o` through a link writes to where the link points."""
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    target.write_bytes(b"old")
    link.symlink_to(target)
    save_bounds(compute_bounds(small(), "exact", 1), link)
    assert link.is_symlink()
    assert load_bounds(target).classes == 3


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_an_older_file_is_refused(tmp_path, version):
    """It says what to do."""
    _, data = saved(tmp_path, small())
    (tmp_path / "old.json").write_text(json.dumps(data | {"version": version}))
    with pytest.raises(InputError, match=rf"old\.json.*version {version}.*compute the bounds anew"):
        load_bounds(tmp_path / "old.json")


# -- many classes ----------------------------------------------------------------------------------------------------


def many(classes=40):
    rng = np.random.default_rng(classes)
    return Network.from_arrays([rng.standard_normal((6, 5)), rng.standard_normal((classes, 6))])


@pytest.mark.parametrize("classes", [16, 17, 40])
def test_many_classes_are_read_back_and_confirmed(tmp_path, classes):
    """Beyond 16 a hash takes the place of the decimals, which nobody would read."""
    network = many(classes)
    bounds, data = saved(tmp_path, network, "float64", "auto")
    assert load_bounds(tmp_path / "bounds.json") == bounds
    assert ("decimal" in data["margins"]) == (classes <= 16)
    assert ("sha256" in data["margins"]) == (classes > 16)
    assert audit(load_bounds(tmp_path / "bounds.json"), network).confirmed


def test_a_damaged_margin_of_many_classes_is_refused(tmp_path):
    """Every digit of one row changed in turn, two numbers exchanged, a hash of another kind."""
    _, data = saved(tmp_path, many(20), "float64", "auto")
    rows = data["margins"]["exact"]
    damaged = [rows[3][:k] + str((int(c) + 2) % 10) + rows[3][k + 1 :] for k, c in enumerate(rows[3]) if c.isdigit()]
    damaged.append(" ".join(reversed(rows[3].split())))
    assert len(damaged) > 40
    path = tmp_path / "damaged.json"
    for row in damaged:
        path.write_text(json.dumps(data | {"margins": data["margins"] | {"exact": [*rows[:3], row, *rows[4:]]}}))
        with pytest.raises(InputError):
            load_bounds(path)
    for digest in ("", "0" * 64, None, data["margins"]["sha256"].upper()):
        path.write_text(json.dumps(data | {"margins": data["margins"] | {"sha256": digest}}))
        with pytest.raises(InputError):
            load_bounds(path)


def test_a_pair_of_classes_takes_little_room_in_a_file(tmp_path):
    """A thousand classes have half a million of them."""
    _, data = saved(tmp_path, many(100), "float64", "auto")
    assert len("".join(data["margins"]["exact"])) < 25 * 100 * 99 / 2
    assert (tmp_path / "bounds.json").stat().st_size < 30 * 100 * 99 / 2
