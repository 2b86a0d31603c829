"""Witnesses in files: read back as they were, checked by nobody's trust, and never worth more than what they prove."""

import hashlib
import io
import itertools
import json
import os
import time
import zipfile
from dataclasses import replace
from fractions import Fraction
from math import prod
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slopes import pairs_of, some_points, steeper_than
from strategies import at_least_the_norm, to_rows

from intervalcert import InputError, Network, audit, compute_bounds, load_bounds, save_bounds
from intervalcert.backends.registry import get_backend
from intervalcert.bounds import margin_bounds
from intervalcert.bounds.costs import exact_seconds
from intervalcert.bounds.results import StoredWitnesses
from intervalcert.errors import InconclusiveError, UnboundedError, UndecidedError
from intervalcert.io.array_archive import write_arrays
from intervalcert.io.bounds_file import witnesses_of
from intervalcert.io.witness_file import load_witnesses, packed_witnesses
from intervalcert.model.activations import MaxPool, activation
from intervalcert.model.layers import Term
from intervalcert.model.linear_maps import Convolution, Dense
from intervalcert.model.windows import Window
from intervalcert.numbers.matrices import RationalMatrix, exact_integers
from intervalcert.numbers.rounding import sqrt_upper
from intervalcert.proof.banded import BandedWitness
from intervalcert.proof.blocks import BlockFactor, BlockRow
from intervalcert.proof.chain import check_chain
from intervalcert.proof.cholesky import Factor
from intervalcert.proof.data import size_of
from intervalcert.proof.ellipsoids import Sector
from intervalcert.proof.layer_norms import NormWitness, check_norm
from intervalcert.proof.witnesses import Witnesses

EXACT = get_backend("exact")


def drawn(seed=0, widths=(4, 6, 5, 3), between="relu"):
    rng = np.random.default_rng(seed)
    shapes = list(itertools.pairwise(widths))
    weights = [rng.integers(-64, 65, (rows, columns)) / 64 for columns, rows in shapes]
    return Network.from_arrays(weights, between=between)


def parts_of(witness):
    """Every array and number in it, in order."""
    if isinstance(witness, tuple):
        return [part for item in witness for part in parts_of(item)]
    if hasattr(witness, "__dataclass_fields__"):
        return [part for name in witness.__dataclass_fields__ for part in parts_of(getattr(witness, name))]
    return [witness]


def are_same(one, other):
    pairs = list(zip(parts_of(one), parts_of(other), strict=True))
    return all(np.array_equal(x, y) if isinstance(x, np.ndarray) else x == y for x, y in pairs)


# -- there and back --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("between", ["relu", "leaky_relu:-0.5", "tanh", "group_sort", "identity"])
@pytest.mark.parametrize("options", [{}, {"effort": 3}, {"iterations": 4}, {"margins": "product"}])
def test_witnesses_are_read_back_as_they_were(tmp_path, between, options):
    network = drawn(1, (5, 20, 18, 4), between)
    bounds = compute_bounds(network, "float64", **options)
    save_bounds(bounds, tmp_path / "b.json")
    again = load_bounds(tmp_path / "b.json")
    assert isinstance(again.witnesses, StoredWitnesses)
    assert are_same(witnesses_of(again)[0], bounds.witnesses)
    report = audit(again, network)
    assert (report.unconfirmed, report.recomputed) == ((), "")


@pytest.mark.parametrize("scale", [2.0**-700, 2.0**600])
def test_so_are_those_of_any_scale(tmp_path, scale):
    rng = np.random.default_rng(3)
    network = Network.from_arrays([rng.normal(size=(20, 20)) * scale, rng.normal(size=(3, 20))])
    bounds = compute_bounds(network, "float64")
    save_bounds(bounds, tmp_path / "b.json")
    assert audit(load_bounds(tmp_path / "b.json"), network).unconfirmed == ()


def linear_or_still(kind):
    """Graphs whose witnesses are empty somewhere: where nothing bends, or a convolution is zero."""
    rng = np.random.default_rng(1)
    padded, one = Window.padded((4, 4), (3, 3), pads=(1, 1, 1, 1)), Window.padded((4, 4), (1, 1), (2, 2))
    numbers = np.zeros((2, 9)) if kind == "zero" else rng.integers(-8, 9, (2, 9)) / 8
    first = Convolution(RationalMatrix.from_floats(numbers), 1, padded)
    function = MaxPool.of(2, one) if kind == "windows of one" else activation("relu" if kind == "zero" else kind)
    count = prod(function.out_shape((2, 4, 4)))
    last = [Term(0, Dense(RationalMatrix.from_floats(rng.integers(-8, 9, (3, count)) / 8)))]
    last += [Term(-1, Dense(RationalMatrix.from_floats(rng.integers(-8, 9, (3, 16)) / 8)))]
    last = last[:1] if kind == "identity" else last  # a circulant chain takes one branch
    return Network.of_terms([(Term(-1, first),), tuple(last)], between=[function.name])


@pytest.mark.parametrize("kind", ["windows of one", "group_sort:1:1", "identity", "zero"])
def test_where_nothing_bends_the_witnesses_are_kept_and_confirmed(tmp_path, kind):
    """A chain without links is a chain, and arrays without numbers are not missing."""
    network = linear_or_still(kind)
    bounds = compute_bounds(network, "float64")
    save_bounds(bounds, tmp_path / "b.json")
    again = load_bounds(tmp_path / "b.json")
    found = witnesses_of(again)[0]
    assert found is not None
    assert len(found.chains) == len(bounds.witnesses.chains)
    assert found.chains or kind == "zero"
    report = audit(again, network)
    assert (report.unconfirmed, report.recomputed) == ((), "")


def test_they_travel_with_the_bounds(tmp_path):
    """Bounds that were read are written elsewhere with what proves them; and in another folder the name suffices."""
    network = drawn()
    save_bounds(compute_bounds(network), tmp_path / "a.json")
    (tmp_path / "elsewhere").mkdir()
    save_bounds(load_bounds(tmp_path / "a.json"), tmp_path / "elsewhere" / "b.json")
    assert not audit(load_bounds(tmp_path / "elsewhere" / "b.json"), network).recomputed
    (tmp_path / "moved").mkdir()
    for name in ("a.json", "a.json.witnesses.npz"):
        (tmp_path / name).rename(tmp_path / "moved" / name)
    assert not audit(load_bounds(tmp_path / "moved" / "a.json"), network).recomputed


def test_too_much_is_not_kept(monkeypatch, tmp_path):
    """Nor is it missed: an audit searches anew."""
    network = drawn(2, (5, 20, 18, 4))
    full = size_of(compute_bounds(network, "float64").witnesses)
    for most, kept in ((full, True), (full - 1, False), (0, False)):
        monkeypatch.setattr(margin_bounds, "MAX_WITNESS_BYTES", most)
        bounds = compute_bounds(network, "float64")
        assert (bounds.witnesses is not None) is kept
    save_bounds(bounds, tmp_path / "b.json")
    assert json.loads((tmp_path / "b.json").read_text())["witnesses"] is None
    assert not (tmp_path / "b.json.witnesses.npz").exists()
    report = audit(load_bounds(tmp_path / "b.json"), network)
    assert (report.confirmed, report.recomputed) == (True, "none are stored with the bounds")


def test_a_matrix_of_several_layers_has_one_witness(tmp_path):
    shared = RationalMatrix.from_floats(np.random.default_rng(1).normal(size=(20, 20)))
    last = RationalMatrix.from_floats(np.random.default_rng(2).normal(size=(3, 20)))
    network = Network.of([shared, shared, shared, last])
    bounds = compute_bounds(network, "float64")
    save_bounds(bounds, tmp_path / "b.json")
    found, _ = witnesses_of(load_bounds(tmp_path / "b.json"))
    assert are_same(found, bounds.witnesses)
    assert len({id(witness) for witness in found.norms}) == 2
    assert len([name for name in arrays_in(tmp_path / "b.json.witnesses.npz") if name.endswith("direction")]) == 2
    assert audit(load_bounds(tmp_path / "b.json"), network).confirmed


def test_a_witness_holds_only_what_proved_the_bound():
    wide, small = drawn(1, (30, 20, 3)), drawn(1, (3, 2, 2))
    for network in (wide, small):
        bounds = compute_bounds(network, "float64")
        for bound, witness in zip(bounds.layers, bounds.witnesses.norms, strict=True):
            assert (witness.factor is None) == (bound.method == "gram")
            assert witness.steps == (bound.iterations if bound.method == "gram" else None)


# -- files that are not what they should be --------------------------------------------------------------------------


@pytest.fixture
def stored(tmp_path):
    network = drawn(4, (5, 20, 18, 4))
    save_bounds(compute_bounds(network, "float64"), tmp_path / "b.json")
    return network, tmp_path / "b.json", tmp_path / "b.json.witnesses.npz"


def packed(path, arrays):
    with path.open("wb") as file:
        write_arrays(file, arrays, compressed=False)


def arrays_in(path):
    with np.load(path) as found:
        return {name: found[name] for name in found.files}


def with_arrays(path, beside, arrays):
    """The same bounds with other witnesses, whose hash they name."""
    packed(beside, arrays)
    data = json.loads(path.read_text())
    data["witnesses"]["sha256"] = hashlib.sha256(beside.read_bytes()).hexdigest()
    path.write_text(json.dumps(data))
    return load_bounds(path)


def test_another_file_is_not_believed(stored):
    """Also if a single bit is another one: others are searched for, and it is said why."""
    network, path, beside = stored
    data = bytearray(beside.read_bytes())
    data[len(data) // 2] ^= 1
    beside.write_bytes(data)
    report = audit(load_bounds(path), network)
    assert "damaged, or of other bounds" in report.recomputed
    assert report.confirmed


def test_files_may_be_renamed(stored, monkeypatch):
    """Both of them, or the bounds alone while other bounds take the old name; and a link leads to both."""
    network, path, beside = stored
    path.with_name("link.json").symlink_to(path)
    (path.parent / "sub").mkdir()
    (path.parent / "sub" / "l.json").symlink_to(path)
    for name in ("link.json", "sub/l.json"):
        assert audit(load_bounds(path.parent / name), network).recomputed == ""
    other = path.with_name("one.json")
    path.rename(other)
    assert audit(load_bounds(other), network).recomputed == ""
    beside.rename(path.with_name("one.json.witnesses.npz"))
    assert audit(load_bounds(other), network).recomputed == ""
    save_bounds(compute_bounds(drawn(9), "float64"), path)
    assert audit(load_bounds(other), network).recomputed == ""
    monkeypatch.chdir(path.parent)
    found = load_bounds("one.json")
    monkeypatch.chdir("/")
    assert audit(found, network).recomputed == "", "a relative name is that of the folder then"


def test_bounds_without_their_witnesses_can_be_saved(stored):
    _, path, beside = stored
    for spoil in (lambda: beside.write_bytes(b"nonsense"), beside.unlink):
        spoil()
        assert save_bounds(load_bounds(path), path.with_name("again.json")) is None
        assert load_bounds(path.with_name("again.json")).witnesses is None


def test_an_interrupt_leaves_the_old_pair(stored, monkeypatch):
    """Whatever fails while they are written, both are those of before."""
    _, path, beside = stored
    before, right = (path.read_bytes(), beside.read_bytes()), os.replace
    for name in (path.name, beside.name):

        def failing(source, target, name=name):
            if Path(target).name == name:
                raise KeyboardInterrupt
            right(source, target)

        with monkeypatch.context() as patch:
            patch.setattr("intervalcert.io.files.os.replace", failing)
            with pytest.raises(KeyboardInterrupt):
                save_bounds(compute_bounds(drawn(9), "float64"), path)
        assert path.read_bytes() == before[0]
        assert name == path.name or beside.read_bytes() == before[1]
        assert {file.name for file in path.parent.iterdir()} == {path.name, beside.name}
        beside.write_bytes(before[1])


def test_the_witnesses_of_bounds_are_no_bounds(stored):
    _, _, beside = stored
    with pytest.raises(InputError, match=r"witnesses of a bounds file: give that, b\.json"):
        load_bounds(beside)


def test_certify_does_not_read_it(stored):
    from intervalcert import certify

    _, path, beside = stored
    beside.write_bytes(b"nonsense")
    assert len(certify(load_bounds(path), np.eye(4), "0.1")) == 4


WRONG = {
    "a member too many": lambda a: a | {"norm9.direction": np.ones(3)},
    "a name of nothing": lambda a: a | {"x": np.ones(3)},
    "a third chain": lambda a: a | {"chain2.0.integers": np.zeros(2, dtype=np.int64)},
    "nothing at all": lambda _: {"norm1.direction": np.ones(3)},
    "no direction": lambda a: {k: v for k, v in a.items() if k != "norm1.direction"},
    "no integers": lambda a: {k: v for k, v in a.items() if k != "norm0.integers"},
    "no vectors": lambda a: {k: v for k, v in a.items() if k != "chain0.1.vectors"},
    "no near": lambda a: {k: v for k, v in a.items() if k != "chain0.0.near"},
    "a chain without its first link": lambda a: {k: v for k, v in a.items() if not k.startswith("chain0.0")},
    "floats for integers": lambda a: a | {"norm0.integers": np.zeros(2)},
    "integers for floats": lambda a: a | {"norm0.direction": np.ones(5, dtype=np.int64)},
    "floats of four bytes": lambda a: a | {"norm0.direction": np.ones(5, dtype=np.float32)},
    "a huge exponent": lambda a: a | {"norm0.integers": np.array([2**40, -1])},
    "a huge exponent of a chain": lambda a: a | {"chain0.0.integers": np.array([0, -(2**62)])},
    "too many steps": lambda a: a | {"norm0.integers": np.array([0, 41])},
    "steps below none": lambda a: a | {"norm0.integers": np.array([0, -2])},
    "the same as a later one": lambda a: a | {"norm3.same": np.array([3])},
    "the same as none": lambda a: a | {"norm3.same": np.array([-1])},
    "no triangle": lambda a: a | {"norm0.factor": np.ones(5)},
    "two sides": lambda a: a | {"norm0.direction": np.ones((5, 1))},
    "numbers of very different sizes": lambda a: a | {"norm0.direction": np.array([1.0, 2.0**-300, 0, 0, 0])},
    "a tiny number": lambda a: a | {"norm0.numbers": np.array([2.0**-260])},
    "a huge number": lambda a: a | {"norm0.numbers": np.array([2.0**260])},
    "a matrix far from 1": lambda a: a | {"chain0.0.g": a["chain0.0.g"] * 2.0**260},
    "nan": lambda a: a | {"norm0.direction": np.array([1.0, np.nan, 0, 0, 0])},
    "inf": lambda a: a | {"chain0.0.numbers": a["chain0.0.numbers"] * np.inf},
    "vectors of other neurons": lambda a: a | {"chain0.0.vectors": a["chain0.0.vectors"][:, 1:]},
    "a vector too few": lambda a: a | {"chain0.0.vectors": a["chain0.0.vectors"][1:]},
    "a number too many": lambda a: a | {"chain0.0.numbers": np.ones(6)},
    "numbers of a link without a sector": lambda a: a | {"chain0.0.numbers": np.ones(3)},
    "a diagonal too short": lambda a: a | {"chain0.0.above": a["chain0.0.above"][1:]},
}


@pytest.mark.parametrize("wrong", WRONG)
def test_a_malformed_file_is_refused(stored, wrong):
    network, path, beside = stored
    bounds = with_arrays(path, beside, WRONG[wrong](arrays_in(beside)))
    with pytest.raises(InputError) as refused:
        audit(bounds, network)
    assert str(beside) in str(refused.value) or "witnesses are of" in str(refused.value)


def test_pickles_are_never_read(stored):
    network, path, beside = stored
    made = io.BytesIO()
    np.lib.format.write_array(made, np.array([{}], dtype=object), allow_pickle=True)
    with zipfile.ZipFile(beside, "w") as archive:
        archive.writestr("norm0.direction.npy", made.getvalue())
    data = json.loads(path.read_text())
    data["witnesses"]["sha256"] = hashlib.sha256(beside.read_bytes()).hexdigest()
    path.write_text(json.dumps(data))
    with pytest.raises(InputError, match="pickled"):
        audit(load_bounds(path), network)


UNPROVED = {
    "a direction of another layer": ("norm0.direction", lambda x: np.ones(7)),
    "no direction at all": ("norm0.direction", lambda x: x * 0),
    "a factor of another layer": ("norm0.factor", lambda x: np.ones(6)),
    "a factor of nothing": ("norm0.factor", lambda x: x * 0),
    "a chain's matrix halved": ("chain0.0.near", lambda x: x / 2),
    "another scale": ("chain0.1.integers", lambda x: x - 1),
    "a v that is none": ("chain0.1.vectors", lambda x: -x),
}


@pytest.mark.parametrize("what", UNPROVED)
def test_a_witness_that_proves_too_little_confirms_nothing(stored, what):
    """It is a claim that is not confirmed, not a fault."""
    network, path, beside = stored
    arrays, (name, change) = arrays_in(beside), UNPROVED[what]
    report = audit(with_arrays(path, beside, arrays | {name: change(arrays[name])}), network)
    assert not report.recomputed
    assert report.unconfirmed


def test_witnesses_of_another_model_confirm_nothing(stored):
    network, path, _ = stored
    other = compute_bounds(drawn(5, (5, 20, 18, 4)), "float64").witnesses
    assert audit(replace(load_bounds(path), witnesses=other), network).unconfirmed
    fewer = compute_bounds(drawn(5, (5, 20, 4)), "float64").witnesses
    with pytest.raises(InputError, match="2 layers; the model has 3"):
        audit(replace(load_bounds(path), witnesses=fewer), network)


# -- whatever a witness is, what it proves is true ---------------------------------------------------------------------


def shaken(array, random):
    """One entry changed: by a hair, in sign, to nothing, or altogether."""
    made = np.array(array, dtype=np.float64, copy=True)
    place = random.randrange(made.size)
    factor = random.choice([1 + 2.0**-40, 1 - 2.0**-20, 0.0, -1.0, 0.5, 3.0, 2.0**60])
    made.flat[place] = made.flat[place] * factor + random.choice([0.0, 0.0, 1e-9, 1.0])
    return made


@settings(max_examples=150, deadline=None)
@given(random=st.randoms(use_true_random=False), seed=st.integers(0, 5))
def test_what_a_shaken_witness_proves_is_true(tmp_path_factory, random, seed):
    network = drawn(seed, (3, 5, 4, 3))
    bounds = compute_bounds(network, "float64", method="cholesky")
    path = tmp_path_factory.mktemp("shaken") / "w.npz"
    path.write_bytes(packed_witnesses(bounds.witnesses))
    arrays = arrays_in(path)
    for _ in range(random.choice([1, 1, 2, 5])):
        name = random.choice([name for name in arrays if not name.endswith("integers")])
        arrays[name] = shaken(arrays[name], random)
    packed(path, arrays)
    try:
        witnesses = load_witnesses(path)
    except InputError:
        return
    for layer, witness in zip(network.layers, witnesses.norms, strict=True):
        claim = check_norm(Dense(layer.weights), witness, EXACT)
        rows = to_rows(layer.weights)
        assert at_least_the_norm(claim.upper.upper(), rows)
        assert claim.lower == 0 or not at_least_the_norm(claim.lower * (1 - Fraction(1, 2**60)), rows)
    try:
        found = check_chain(network, witnesses.chains[0], EXACT)
    except InconclusiveError:
        return
    squares = {pair: found.squares[place].upper() for place, pair in enumerate(pairs_of(network))}
    margins = [[sqrt_upper(squares.get((min(i, j), max(i, j)), Fraction(0)), 64) for j in range(3)] for i in range(3)]
    assert steeper_than(network, margins, some_points(network, seed)) == []


@pytest.mark.parametrize(
    "witness",
    [
        NormWitness(np.zeros(2)),
        NormWitness(np.ones(2)),
        NormWitness(np.ones(3), steps=2),
        NormWitness(np.array([1.0, np.nan]), steps=2),
        NormWitness(np.array([1.0, np.inf]), steps=2),
        NormWitness(np.zeros(2), steps=2),
    ],
)
def test_a_norm_needs_a_witness(backend_name, witness):
    network = Network.from_arrays([[[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]])
    with pytest.raises(InconclusiveError):
        check_norm(Dense(network.layers[0].weights), witness, get_backend(backend_name))


def test_a_chain_has_a_link_for_each_hidden_layer(backend_name):
    network = drawn()
    (chain,) = compute_bounds(network, "float64").witnesses.chains
    for wrong in ((), chain[:1], (*chain, chain[-1]), chain[::-1]):
        with pytest.raises(InconclusiveError):
            check_chain(network, wrong, get_backend(backend_name))


def test_witnesses_are_plain_data():
    """They can be sent, and nothing in them can do anything."""
    import pickle

    found = compute_bounds(drawn(), "float64", effort=2).witnesses
    assert are_same(pickle.loads(pickle.dumps(found)), found)
    for each in (found, pickle.loads(pickle.dumps(found))):
        assert {type(part) for part in parts_of(each)} <= {np.ndarray, float, int, type(None)}
        assert not any(part.flags.writeable for part in parts_of(each) if isinstance(part, np.ndarray))
    assert isinstance(found, Witnesses)


# -- what a checker must not mistake -----------------------------------------------------------------------------------


def test_numbers_of_other_types_are_what_they_are():
    """Sixteen bits have no room for the parts of a number: read as they are, a spread would be negative, and cover all.

    The network multiplies by 1 and has a ReLU: its margin is 1, and a chain with v = w = 0 would give 1/4.
    """
    network = Network.from_arrays([[[1.0]], [[1.0]], [[1.0], [0.0]]])
    (chain,) = compute_bounds(network, "float64").witnesses.chains
    links = []
    for link in chain:
        step, near = link.step, link.s.above
        half = np.full(1, 0.5, dtype=np.float16)
        core = near / 4
        after = core + 2 * step.slack * np.eye(1)
        sector = Sector(half, half)
        forged = replace(step, sector=sector, v=np.zeros(1), w=np.zeros(1), g=np.zeros((0, 0)), core=core, after=after)
        links.append(replace(link, step=forged))
    for name in ("float64", "arb", "exact"):
        with pytest.raises(InconclusiveError):
            check_chain(network, tuple(links), get_backend(name))


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.int8, np.uint8, bool, np.int64, np.longdouble])
def test_exact_integers_are_of_float64_alone(kind):
    with pytest.raises(UndecidedError):
        exact_integers(np.ones(2, dtype=kind))


def test_nobody_writes_to_a_witness():
    """Nor does who made it, while it is checked; a copy of a copy is none."""
    own = np.eye(2)
    for array in (own, own[:], own.T):
        made = Factor(1.0, array)
        own[0, 0] = 7.0
        assert made.triangle[0, 0] != 7.0
        assert not made.triangle.flags.writeable
        assert replace(made, shift=2.0).triangle is made.triangle
        own[0, 0] = 1.0


def test_a_band_that_changes_while_it_is_checked_proves_nothing_false():
    """Rows that are made as they are asked for, by somebody who writes to those that were seen."""
    convolution = Convolution(RationalMatrix.from_floats(np.array([[1.0, 1.0]])), 1, Window((1, 8), (1, 8), (1, 2)))
    c = 2.0 + 2**-6

    class Rows:
        def __iter__(self):
            before = None
            for r in range(8):
                row = np.array([[np.sqrt(c - 2)]]) if r == 0 else np.array([[np.sqrt(c - (2 if r < 7 else 1)), 0.0]])
                if before is not None:
                    before[...] = 0
                    before[0, -1] = -1 / row[0, 0]
                before = row
                yield BlockRow(row)

    witness = NormWitness(np.ones(8), blocks=(BandedWitness(1, True, BlockFactor(c, Rows(), 0)),))
    for name in ("exact", "float64", "arb"):
        claim = check_norm(convolution, witness, get_backend(name))
        assert claim.upper.upper() >= Fraction(np.linalg.norm(np.eye(8) + np.eye(8, k=1), 2)) * (1 - Fraction(1, 2**40))


@pytest.mark.parametrize("shift", [2**70 - 2**16, Fraction(2**70 - 2**16), Fraction(2**71, 3)])
def test_numbers_that_are_no_floats_mean_the_same_to_all(shift):
    """c, and what stands on the diagonal."""
    one = Dense(RationalMatrix.from_floats(np.array([[2.0**35]])))
    for name in ("exact", "arb", "float64"):
        claim = check_norm(one, NormWitness(np.ones(1), Factor(shift, np.zeros((1, 1)), 0)), get_backend(name))
        assert claim.upper.upper() >= 2**35


@pytest.mark.parametrize("exponent", [1.0, float("nan"), Fraction(1, 2), None, "0"])
def test_a_scale_is_a_whole_number(exponent):
    witness = NormWitness(np.ones(1), Factor(4.0, np.zeros((1, 1)), exponent))
    with pytest.raises(UndecidedError):
        check_norm(Dense(RationalMatrix.from_floats(np.array([[2.0]]))), witness, get_backend("exact"))


def test_a_witness_holds_float64():
    made = Sector(np.ones(2, dtype=np.float16), np.ma.masked_array([1.0, 2.0]))
    assert made.middle.dtype == made.spread.dtype == np.float64
    assert type(made.spread) is np.ndarray
    assert type(Factor(np.float16(0.5), np.eye(2)).shift) is float


@pytest.mark.parametrize(
    ("member", "place"), [("norm0.integers", 0), ("chain0.0.integers", 0), ("chain0.0.integers", 1)]
)
@pytest.mark.parametrize("exponent", [20_000, -20_000, 600, -600])
def test_a_scale_far_away_proves_nothing_and_costs_nothing(stored, member, place, exponent):
    """Exact numbers would be tens of thousands of bits long."""
    network, path, beside = stored
    arrays = arrays_in(beside)
    changed = arrays[member].copy()
    changed[place] = exponent
    before = time.process_time()
    report = audit(with_arrays(path, beside, arrays | {member: changed}), network)
    assert report.unconfirmed
    assert time.process_time() - before < 5


def test_long_numbers_are_estimated_to_take_long():
    network = drawn(4, (5, 20, 18, 4))
    honest = compute_bounds(network, "float64").witnesses
    first, *rest = honest.norms
    triangle = first.factor.triangle.copy()
    triangle[0, 0] *= 2.0**-600
    long = replace(honest, norms=(replace(first, factor=replace(first.factor, triangle=triangle)), *rest))
    assert exact_seconds(network, long, 64) > exact_seconds(network, honest, 64)
    (link, *others), *more = honest.chains
    for scale in (2.0**240, 2.0**-240):
        moved = replace(link, s=replace(link.s, near=link.s.near * scale))
        far = replace(honest, chains=((moved, *others), *more))
        assert exact_seconds(network, far, 64) > exact_seconds(network, honest, 64)


def test_margins_that_nobody_looked_at_are_not_confirmed(stored):
    """Half of a matrix, or one of other classes: only in memory, for a file has each pair once."""
    network, path, _ = stored
    bounds = load_bounds(path)
    full = [list(row) for row in bounds.margins.matrix]
    upper = [[x if i < j else Fraction(0) for j, x in enumerate(row)] for i, row in enumerate(full)]
    for wrong in (upper, [], full[:3], [row[:3] for row in full], [*full, full[0]]):
        with pytest.raises(InputError, match="margins"):
            audit(replace(bounds, margins=replace(bounds.margins, matrix=wrong)), network)
    with pytest.raises(InputError, match="no method"):
        audit(replace(bounds, method=replace(bounds.method, margins="sum")), network)


@pytest.mark.parametrize("kind", ["fifo", "device", "folder", "large"])
def test_only_a_plain_file_of_some_size_is_read(stored, monkeypatch, kind):
    network, path, beside = stored
    beside.unlink()
    if kind == "fifo":
        os.mkfifo(beside)
    elif kind == "device":
        beside.symlink_to("/dev/zero")
    elif kind == "folder":
        beside.mkdir()
    else:
        with beside.open("wb") as file:
            file.truncate(2**40)
    assert audit(load_bounds(path), network).recomputed


def test_an_interval_without_ends_is_none():
    """Mpmath has such; they enclose everything, and are of no use."""
    import mpmath

    from intervalcert.backends import mpmath_iv

    wide = mpmath.iv.mpf([1, mpmath.inf])
    with pytest.raises(UnboundedError):
        mpmath_iv.MpmathScalar(wide)
    with pytest.raises(UnboundedError):
        mpmath_iv._exact(wide._mpi_[1])


@pytest.mark.parametrize("between", ["relu", "group_sort"])
def test_a_sector_must_be_one_of_the_activation(backend_name, between):
    """Of numbers, one for each neuron; and of an activation that has one."""
    network, relu = drawn(0, between=between), drawn(0)
    first, *rest = compute_bounds(relu, "float64").witnesses.chains[0]
    half = np.full(6, 0.5)
    sectors = [
        Sector(half * np.nan, half),
        Sector(half, half * np.inf),
        Sector(half[:3], half),
        Sector(half, half[:, None]),
    ]
    sectors += [Sector(half[:, None], half[:, None])]
    sectors += [Sector(half, half)] if between == "group_sort" else []
    for sector in sectors:
        wrong = (replace(first, step=replace(first.step, sector=sector)), *rest)
        with pytest.raises(InconclusiveError):
            check_chain(network, wrong, get_backend(backend_name))


def test_a_factor_proves_what_gram_iteration_leaves_open(monkeypatch):
    network = drawn(1, (30, 20, 3))
    weights, witness = network.layers[0].weights, compute_bounds(network, "float64").witnesses.norms[0]

    def undecided(*_):
        raise UndecidedError("the size of a Gram matrix is not known well enough")

    monkeypatch.setattr("intervalcert.proof.layer_norms.norm_upper", undecided)
    both = replace(witness, steps=3)
    assert check_norm(Dense(weights), both, EXACT).method == "cholesky"
    with pytest.raises(UndecidedError):
        check_norm(Dense(weights), replace(both, factor=None), EXACT)
