"""The checker of certificates: what it accepts is true, whatever the certificate says; and honest ones are accepted."""

import json
import subprocess
import sys
import zipfile
from dataclasses import replace
from fractions import Fraction
from functools import cache
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from random import Random

import numpy as np
import pytest

from compare.regions import PlainNetwork
from intervalcert import InputError, Network, compute_bounds
from intervalcert.api import verification_job
from intervalcert.checker import archive, claims, core, model
from intervalcert.io import certificate
from intervalcert.io.certificate import CertificateWriter, FoundPoints, PointsAbout, checked_model
from intervalcert.verify.branching import Budgets
from intervalcert.verify.jobs import batches_of
from intervalcert.verify.number_table import Epsilons, NumberTable
from intervalcert.verify.points import PointVerifier

TIGHT = 1 + Fraction(1, 2**30)


def drawn(seed, sizes=(2, 4, 3, 3), kind="relu"):
    """A network, and its arrays."""
    rng = np.random.default_rng(seed)
    weights = [rng.standard_normal((m, n)) / np.sqrt(n) for n, m in pairwise(sizes)]
    biases = [rng.standard_normal(m) / 2 for m in sizes[1:]]
    network = Network.from_arrays(weights, biases, between=kind)
    return network, (weights, biases)


def points_of(network, rows, eps, complete=False):
    """What is found of points, and their rows."""
    bounds = compute_bounds(network)
    job = verification_job(network, bounds, 10, "real", Budgets() if complete else None)
    verifier, found = PointVerifier(replace(job, keeps_chains=True)), FoundPoints()
    table = NumberTable(np.array(rows, dtype=float))
    for batch in batches_of(table, network, Fraction(1), Epsilons.all_equal(eps), 8):
        found.add(verifier.verdicts(batch))
    return bounds, found, [[Fraction(x) for x in row] for row in np.array(rows, dtype=float).tolist()]


def written(network, rows, eps, complete=False):
    """The bytes of a certificate of inputs, and the rows that it is about."""
    bounds, found, exact = points_of(network, rows, eps, complete)
    made = BytesIO()
    with CertificateWriter(made, network, bounds) as writer:
        writer.write_points(PointsAbout("inputs", "hash", eps), exact, found)
    return made.getvalue(), exact


def checked(content, network, rows, folder):
    path = Path(folder) / "some.cert"
    path.write_bytes(content)
    given = claims.Tables(None, "", lambda scale: ([x * scale for x in row] for row in rows), "hash")
    tables = given if len(rows) else claims.Tables()
    return claims.check_certificate(path, checked_model(network), tables)


# -- norms, margins ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(4, 4), (3, 7), (7, 3), (1, 5)])
def test_norms_are_bounded_whatever_the_factor_is(shape):
    rng, random = np.random.default_rng(sum(shape)), Random(1)
    for _ in range(30):
        w = rng.integers(-9, 10, shape)
        layer = model.Layer(w.tolist(), 7, [0] * shape[0], 1, None)
        truth = float(np.linalg.norm(w / 7, 2)) ** 2
        side = min(shape)
        rows = [[random.randint(-50, 50) for _ in range(k + 1)] for k in range(side)]
        factor = core.Factor(
            Fraction(random.randint(-200, 200), 2 ** random.randint(0, 6)), rows, random.randint(-6, 1)
        )
        try:
            found = core.norm_squared(layer, factor)
        except core.Refused:
            continue
        assert float(found) >= truth * (1 - 1e-12), (w, factor)


@pytest.mark.parametrize(
    "kind", ["relu", "leaky_relu:1/4", "leaky_relu:-1/2", "clip:-1:1", "tanh", "sigmoid", "identity"]
)
def test_what_is_proved_is_no_more_than_the_bounds(kind, tmp_path):
    """And no less than a lower bound: the gradient at some points, where there is one."""
    network, _ = drawn(5, (3, 6, 5, 4), kind)
    bounds = compute_bounds(network)
    made = BytesIO()
    with CertificateWriter(made, network, bounds):
        pass
    found = checked(made.getvalue(), network, [], tmp_path)
    for layer, square in zip(bounds.layers[:-1], found.norms, strict=True):
        assert layer.lower**2 <= square <= (layer.upper * TIGHT) ** 2
    for j, row in enumerate(found.margins):
        for i, square in enumerate(row):
            assert square <= (bounds.margins.matrix[j][i] * TIGHT) ** 2


def test_sorting_has_the_margins_of_the_product(tmp_path):
    network, _ = drawn(5, (3, 6, 4, 3), "group_sort:2:1")
    made = BytesIO()
    with CertificateWriter(made, network, compute_bounds(network, margins="product")):
        pass
    found = checked(made.getvalue(), network, [], tmp_path)
    assert len(found.margins[2]) == 2


def shaken(step, random):
    """A step with one number changed."""
    place = random.randrange(6)
    v, g = list(step.v), [list(column) for column in step.g]
    if place == 0 and v:
        v[random.randrange(len(v))] = random.choice([0, 1, -1, max(v) * 2])
    elif place == 1 and g:
        column = random.choice(g)
        column[random.randrange(len(column))] *= random.choice([0, -1, 2, 1 << 20])
    elif place == 2:
        return replace(step, v_exponent=step.v_exponent + random.choice([-40, -1, 1, 40]))
    elif place == 3:
        return replace(step, g_exponent=step.g_exponent + random.choice([-40, -1, 1, 40]))
    elif place == 4:
        return replace(step, kept=list(step.kept)[:-1], v=v[:-1])
    else:
        return replace(step, v=[0] * len(v), g=[])
    return replace(step, v=v, g=g)


def margins_from_below(weights, biases, random):
    """Of each pair: the steepest gradient of its lead at some points."""
    outputs = len(weights[-1])
    found = [[0.0] * j for j in range(outputs)]
    for _ in range(300):
        x = np.array([random.uniform(-3, 3) for _ in range(weights[0].shape[1])])
        slope = np.eye(len(x))
        for index, (w, b) in enumerate(zip(weights, biases, strict=True)):
            x, slope = w @ x + b, w @ slope
            if index < len(weights) - 1:
                slope, x = slope * (x > 0)[:, None], np.maximum(x, 0)
        for j in range(outputs):
            for i in range(j):
                found[j][i] = max(found[j][i], float(np.linalg.norm(slope[j] - slope[i])))
    return found


@pytest.mark.parametrize("seed", range(4))
def test_what_a_shaken_chain_proves_is_true(seed):
    network, arrays = drawn(seed, (2, 5, 4, 3))
    random = Random(seed)
    witnesses = compute_bounds(network).witnesses
    (chain,) = [certificate._steps(network, each) for each in witnesses.chains]
    seen, below = checked_model(network), margins_from_below(*arrays, random)
    accepted = 0
    for _ in range(150):
        steps = list(chain)
        place = random.randrange(len(steps))
        steps[place] = shaken(steps[place], random)
        try:
            squares = core.chain_squares(seen, steps)
        except core.Refused:
            continue
        accepted += 1
        for j, row in enumerate(squares):
            for i, square in enumerate(row):
                assert float(square) >= below[j][i] ** 2 * (1 - 1e-9)
    assert 0 < accepted < 150


# -- near an input -----------------------------------------------------------------------------------------------------


@cache
def locals_of(seed, part):
    """(model, x, eps, winner, chains), the squared distance of the nearest other winner, of points with chains."""
    network, arrays = drawn(seed)
    plain, random, made = PlainNetwork(*arrays, "relu"), Random(seed), []
    for _ in range(12):
        x = [Fraction(random.randint(-64, 64), 32) for _ in range(2)]
        truth = plain.nearest_change(x, most=Fraction(10**4))
        if not truth:
            continue
        eps = Fraction(float(truth) ** 0.5) * part
        _, found, _ = points_of(network, [[float(v) for v in x]], eps)
        if 0 in found.chains:
            chains = [certificate._local_steps(links) for links in found.chains[0]]
            made.append((checked_model(network), x, eps, found.winners[0], chains, truth))
    return made


@pytest.mark.parametrize("seed", range(6))
def test_what_certifies_locally_is_accepted_and_shaken_true(seed):
    random = Random(seed)
    for seen, x, eps, winner, chains, truth in locals_of(seed, Fraction(7, 10)):
        core.check_local(seen, x, eps, winner, chains)
        for _ in range(60):
            tried = [list(chain) for chain in chains]
            chain = random.choice(tried)
            place = random.randrange(len(chain))
            chain[place] = shaken(chain[place], random)
            larger = eps * random.choice([1, Fraction(11, 10), Fraction(3, 2)])
            try:
                core.check_local(seen, x, larger, winner, tried)
            except core.Refused:
                continue
            assert larger**2 < truth, (x, larger, truth)


def test_a_network_of_one_layer_has_no_chain():
    seen = model.Model((model.Layer([[1, 0], [0, 1]], 1, [0, 0], 1, None),))
    with pytest.raises(core.Refused):
        core.check_local(seen, [Fraction(1), Fraction(0)], Fraction(10**6), 0, [()])


@pytest.mark.parametrize(
    ("what", "spoil"),
    [
        ("what a sector is", lambda patch: patch.setattr(core, "sector_near", _narrow)),
        ("a rounding up", lambda patch: patch.setattr(core, "above", _below)),
    ],
)
def test_without_its_lines_false_claims_are_accepted(what, spoil, monkeypatch):
    """Negative controls: each of these, broken, proves that a winner lasts beyond where it does; unbroken none does."""
    fooled = []
    for broken in (False, True):
        with monkeypatch.context() as patch:
            if broken:
                spoil(patch)
            count = 0
            for seed in range(8):
                for seen, x, eps, winner, chains, truth in locals_of(seed, Fraction(9, 10)):
                    for times in (Fraction(6, 5), 3, 10):
                        larger = eps * times
                        for tried in (chains, *map(lambda more, of=chains: forged(of, more), (0, 1, 2))):
                            try:
                                core.check_local(seen, x, larger, winner, tried)
                            except core.Refused:
                                continue
                            count += larger**2 >= truth
            fooled.append(count)
    assert fooled[0] == 0
    assert fooled[1] > 0, what


def test_k_is_shown_to_be_positive_definite(monkeypatch):
    """Of S = [[1, 0.9], [0.9, 1]] and v² = 0.6 it is not: its eigenvalues are -0.14 and 0.94."""
    s = core.Symmetric([[1000, 900], [900, 1000]], -10)
    half = (0, 1 << core.GRID)
    good, bad = (core.Step([0, 1], [v, v], -10, _identity(2), -40) for v in (512, 793))
    above = core.through(s, [half, half], good)
    assert above.form([1, 0]) >= Fraction(1000, 1024) / 4
    with pytest.raises(core.Refused, match="positive definite"):
        core.through(s, [half, half], bad)
    monkeypatch.setattr(core, "root_above", lambda _: 0)  # negative control: the residual is not measured
    core.through(s, [half, half], bad)


def forged(chains, more):
    """With v larger, so that w is smaller, and any G."""
    return [
        [replace(step, v_exponent=step.v_exponent + more, g=_identity(len(step.g)), g_exponent=-40) for step in chain]
        for chain in chains
    ]


def _identity(side):
    return [[1 << 40 if i == j else 0 for j in range(side)] for i in range(side)]


def _narrow(function, z, reach_squared):
    return (1 << core.GRID, 1 << core.GRID) if z > 0 else (0, 0)


def _below(below, unit, exponent):
    made = ABOVE(below, unit, exponent)
    return core.Symmetric([[entry // 4 for entry in row] for row in made.rows], made.exponent)


ABOVE = core.above


# -- certificates ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def honest():
    network, arrays = drawn(3, (2, 5, 4, 3))
    rows = np.random.default_rng(0).integers(-16, 17, (24, 2)) / 8
    eps = Fraction(1, 4)
    content, exact = written(network, rows, eps, complete=True)
    plain = PlainNetwork(*arrays, "relu")
    truths = [plain.nearest_change(row, most=Fraction(10**4)) for row in exact]
    return network, truths, content, exact, eps


def test_an_honest_certificate_is_accepted(honest, tmp_path):
    network, _, content, rows, eps = honest
    said = []
    path = tmp_path / "some.cert"
    path.write_bytes(content)
    tables = claims.Tables(None, "", lambda _: iter(rows), "hash")
    found = claims.check_certificate(path, checked_model(network), tables, said.append)
    assert found.eps == eps
    assert sum(found.counts) == len(rows)
    assert found.counts[claims.MARGINS] > 0
    assert found.counts[claims.FALSIFIED] > 0
    assert len(said) >= 6


def test_the_same_bytes_each_time(honest):
    network, _, content, rows, eps = honest
    again, _ = written(network, [[float(x) for x in row] for row in rows], eps, complete=True)
    assert again == content


def test_of_another_model_or_other_inputs_it_is_refused(honest, tmp_path):
    network, _, content, rows, _ = honest
    with pytest.raises(model.Malformed, match="another model"):
        checked(content, drawn(4, (2, 5, 4, 3))[0], rows, tmp_path)
    with pytest.raises(model.Malformed, match="another number"):
        checked(content, network, rows[:-1], tmp_path)
    path = tmp_path / "some.cert"
    with pytest.raises(model.Malformed, match="another hash"):
        claims.check_certificate(path, checked_model(network), claims.Tables(None, "", lambda _: iter(rows), "other"))
    with pytest.raises(model.Malformed, match="--inputs"):
        claims.check_certificate(path, checked_model(network), claims.Tables())


def members(content):
    with zipfile.ZipFile(BytesIO(content)) as file:
        return {name: file.read(name) for name in file.namelist()}


def packed(parts):
    made = BytesIO()
    with zipfile.ZipFile(made, "w") as file:
        for name, part in parts.items():
            file.writestr(name, part)
    return made.getvalue()


def true_of(found, seen, rows, truths, status, winners):
    """Whether all that was accepted is so. truths: squared distances of the nearest other winners."""
    for row, truth, known, winner in zip(rows, truths, status, winners, strict=True):
        is_near = truth is not None and truth <= found.eps**2
        if known in (claims.MARGINS, claims.LOCAL) and is_near:
            return False
        if known == claims.FALSIFIED and not is_near:
            return False
        if core.winner_of(model.values_at(seen, row)[-1]) != winner:
            return False
    return True


def test_what_is_accepted_of_mutated_certificates_is_true(honest, tmp_path):
    """Members swapped, cut, with bytes changed; claims changed in the manifest."""
    network, truths, content, rows, _ = honest
    random, parts = Random(7), members(content)
    seen, names, outcomes = (
        checked_model(network),
        sorted(set(parts) - {"manifest.json"}),
        {"accepted": 0, "refused": 0, "malformed": 0},
    )
    for _ in range(250):
        now, kind = dict(parts), random.randrange(5)
        name = random.choice(names)
        if kind == 0:
            changed = bytearray(now[name] or b"0")
            changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
            now[name] = bytes(changed)
        elif kind == 1:
            now[name] = now[name][: random.randrange(len(now[name]) + 1)]
        elif kind == 2:
            other = random.choice(names)
            now[name], now[other] = now[other], now[name]
        elif kind == 3:
            now.pop(name)
        else:
            manifest = json.loads(now["manifest.json"])
            _change(manifest, random)
            now["manifest.json"] = json.dumps(manifest).encode()
        try:
            found = checked(packed(now), network, rows, tmp_path)
        except model.Malformed:
            outcomes["malformed"] += 1
        except core.Refused:
            outcomes["refused"] += 1
        else:
            outcomes["accepted"] += 1
            with zipfile.ZipFile(tmp_path / "some.cert") as file:
                status, winners = (
                    list(file.read(next(n for n in file.namelist() if n.startswith(f"points.{what}.i"))))
                    for what in ("status", "winner")
                )
            assert true_of(found, seen, rows, truths, status, winners)
    assert min(outcomes.values()) > 0, outcomes


def _change(manifest, random):
    """One number or text of it."""
    places = []

    def walk(at):
        for key in list(at) if isinstance(at, dict) else range(len(at)):
            if isinstance(at[key], dict | list):
                walk(at[key])
            else:
                places.append((at, key))

    walk(manifest)
    at, key = random.choice(places)
    value = at[key]
    at[key] = value + random.choice([-1, 1, 7, -(10**6)]) if isinstance(value, int) else str(value) + "1"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("manifest.json", b"[" * 100_000),
        ("manifest.json", b'{"format": 1e999}'),
        ("manifest.json", b"{}"),
        ("manifest.json", b'{"a": 1, "a": 2}'),
        ("manifest.json", b"\xff"),
        ("points.status.i3", b"123"),
    ],
)
def test_hostile_members_are_refused(honest, tmp_path, name, content):
    network, _, honest_content, rows, _ = honest
    parts = members(honest_content) | {name: content}
    with pytest.raises(model.Malformed):
        checked(packed(parts), network, rows, tmp_path)


def test_what_grows_too_much_is_refused_before_it_is_read(honest, tmp_path):
    network, _, content, rows, _ = honest
    made = BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as file:
        for name, part in members(content).items():
            file.writestr(name, part if name != "manifest.json" else b" " * 2**27 + part)
    with pytest.raises(model.Malformed, match="too much"):
        checked(made.getvalue(), network, rows, tmp_path)


def test_no_more_is_read_than_is_said(honest, tmp_path):
    """A member that says that it is short, and is not; and a directory of millions of entries."""
    network, _, content, rows, _ = honest
    made = BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as file:
        for name, part in members(content).items():
            file.writestr(name, part if name != "margins.i8" else bytes(2**24))
    data = made.getvalue()
    large, small = (n.to_bytes(4, "little") for n in (2**24, 8 * 3))
    with pytest.raises(model.Malformed):
        checked(data.replace(large, small), network, rows, tmp_path)
    end = bytearray(content)
    end[-10:-6] = (2**25).to_bytes(4, "little")
    with pytest.raises(model.Malformed, match="directory"):
        checked(bytes(end), network, rows, tmp_path)
    with pytest.raises(model.Malformed, match="behind"):
        checked(content + b"more", network, rows, tmp_path)


@pytest.mark.parametrize("members_of", [70_000])
def test_large_archives_are_read(tmp_path, members_of):
    path = tmp_path / "large.cert"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("manifest.json", "{}")
        for index in range(members_of):
            file.writestr(f"a{index}.i1", b"")
    assert archive.Archive(path).manifest == {}


@pytest.mark.parametrize(
    "name",
    [
        "leaky_relu:1e5/3",
        "leaky_relu:1e-+5",
        "elu:1e.5",
        "elu:1e/5",
        "elu:nan",
        "clip:1:0",
        "min_max:foo",
        "what",
        "group_sort:zzz",
        "relu:1",
        "leaky_relu:1e9999",
        "leaky_relu:1_0",
        "leaky_relu:1/0",
        "elu:-1",
        "clip:0:nan",
    ],
)
def test_names_of_no_function_are_refused(name):
    with pytest.raises(model.Malformed):
        model.activation(name)


def test_a_single_output_has_its_threshold_before_it(tmp_path):
    network = Network.from_arrays([[[1.0, 2.0], [3.0, -4.0]], [[1.0, 1.0]]], threshold="1/2")
    seen = checked_model(network)
    assert seen.completed([Fraction(3)]) == [Fraction(1, 2), Fraction(3)]
    made = BytesIO()
    with CertificateWriter(made, network, compute_bounds(network)) as writer:
        found = FoundPoints()
        found.winners.extend([1, 0])
        found.radii.extend([0.0, 0.0])
        about = PointsAbout("outputs", "hash", Fraction(1, 100))
        assert writer.write_points(about, [[Fraction(3)], [Fraction(0)]], found) == [0, 2, 0, 0]
    path = tmp_path / "single.cert"
    path.write_bytes(made.getvalue())
    tables = claims.Tables(lambda: iter([[Fraction(3)], [Fraction(0)]]), "hash")
    assert claims.check_certificate(path, seen, tables).counts == (0, 2, 0, 0)


def changed_points(content, **changes):
    """The certificate with other words about its points."""
    parts = members(content)
    manifest = json.loads(parts["manifest.json"])
    manifest["points"] |= changes
    return packed(parts | {"manifest.json": json.dumps(manifest).encode()})


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"scale": "1000000"}, "input-scale"),
        ({"scale": "0"}, "input-scale"),
        ({"falsified": {"0": "x"}}, "."),
        ({"falsified": {"0": None}}, "."),
        ({"falsified": {"00": 1}}, "numbers of points"),
        ({"local": {"\u0660": []}}, "numbers of points"),
        ({"eps": "1" * 300}, "fraction"),
        ({"eps": "-1"}, "fraction"),
        ({"count": 2**39}, "points.status"),
        ({"count": True}, "so many"),
        ({"kind": "logits"}, "."),
    ],
)
def test_hostile_words_about_points_are_refused(honest, tmp_path, changes, what):
    network, _, content, rows, _ = honest
    with pytest.raises((model.Malformed, core.Refused), match=what):
        checked(changed_points(content, **changes), network, rows, tmp_path)


def test_a_falsified_point_names_a_class(honest, tmp_path):
    network, _, content, rows, _ = honest
    known = json.loads(members(content)["manifest.json"])["points"]["falsified"]
    for other in ("x", None, [], True, -1, 99):
        with pytest.raises((model.Malformed, core.Refused)):
            checked(changed_points(content, falsified=known | dict.fromkeys(known, other)), network, rows, tmp_path)


def test_what_is_given_and_not_used_is_said(honest, tmp_path):
    network, _, content, rows, _ = honest
    parts = members(content)
    manifest = json.loads(parts["manifest.json"]) | {"points": None}
    without = {name: part for name, part in parts.items() if name.startswith(("norm", "chain", "margins"))}
    with pytest.raises(model.Malformed, match="nothing about inputs"):
        checked(packed(without | {"manifest.json": json.dumps(manifest).encode()}), network, rows, tmp_path)
    true = json.dumps(json.loads(parts["manifest.json"]) | {"version": True}).encode()
    with pytest.raises(model.Malformed, match="version"):
        checked(packed(parts | {"manifest.json": true}), network, rows, tmp_path)
    for name in ("foo", "x\x1b[2K\rall claims are proved.i1"):
        with pytest.raises(model.Malformed) as told:
            checked(packed(parts | {name: b""}), network, rows, tmp_path)
        assert "\x1b" not in str(told.value)


def test_what_is_shown_is_no_less():
    random = Random(3)
    for _ in range(300):
        number = Fraction(random.randint(1, 10**12), random.randint(1, 10**12)) * Fraction(2) ** random.randint(-90, 90)
        shown = Fraction(claims._shown(number))
        assert number <= shown <= number * (1 + Fraction(2, 10**5))
    assert claims._shown(1 + Fraction(400, 2**30)) != "1"
    assert claims._shown(Fraction(1, 2**4000)) != "0"


def test_many_points_take_little_memory(honest, tmp_path):
    """A file of some kilobytes that says that there are millions of points, and a table of a few."""
    network, _, content, rows, _ = honest
    parts = {name: part for name, part in members(content).items() if not name.startswith("points")}
    manifest = json.loads(parts["manifest.json"])
    manifest["points"] |= {"count": 2**27, "local": {}, "falsified": {}}
    made = BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as file:
        for name, part in (parts | {"manifest.json": json.dumps(manifest).encode()}).items():
            file.writestr(name, part)
        for what in ("status", "winner", "radius"):
            file.writestr(f"points.{what}.i1", bytes(2**27))
    with pytest.raises(model.Malformed, match="too much"):
        checked(made.getvalue(), network, rows, tmp_path)


def test_what_has_no_certificate_is_said():
    network, _ = drawn(1)
    smooth = Network.from_arrays([[[1.0, 2.0], [3.0, 4.0]]] * 2, mean=0.5, std=2.0, eps_space="normalised")
    with pytest.raises(InputError, match="space of the inputs"):
        checked_model(smooth)
    bounds = replace(compute_bounds(network), witnesses=None)
    with pytest.raises(InputError, match="witnesses"):
        CertificateWriter(BytesIO(), network, bounds)


def test_it_needs_the_standard_library_alone():
    program = (
        "import sys\n"
        "for name in ('numpy', 'flint', 'mpmath', 'scipy', 'rich'): sys.modules[name] = None\n"
        "from intervalcert.checker import claims, core, model\n"
        "assert not [n for n in sys.modules if n.startswith('intervalcert.') and '.checker' not in n]\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


# -- claims, forged one by one -----------------------------------------------------------------------------------------


def decoded(parts, name):
    """The name of an array's member, and its numbers."""
    (member,) = (each for each in parts if each.startswith(f"{name}.i"))
    return member, np.frombuffer(parts[member], dtype=f"<i{member[-1]}").astype(np.int64)


def with_numbers(content, name, change):
    """The certificate with other numbers in an array."""
    parts = members(content)
    member, numbers = decoded(parts, name)
    del parts[member]
    return packed(parts | {f"{name}.i8": change(numbers.copy()).astype("<i8").tobytes()})


def at(place, value):
    def change(numbers):
        numbers[place] = value
        return numbers

    return change


def of_status(content, status):
    """The first point of that status, and its index."""
    return int(np.flatnonzero(decoded(members(content), "points.status")[1] == status)[0])


@pytest.mark.parametrize("change", [lambda n: n // 2, lambda n: -n, lambda n: n * 0, lambda n: n - (n >> 8)])
def test_smaller_margins_are_refused(honest, tmp_path, change):
    network, _, content, rows, _ = honest
    with pytest.raises(core.Refused, match="margin"):
        checked(with_numbers(content, "margins", change), network, rows, tmp_path)


@pytest.mark.parametrize("upper", [lambda n, e: [n, e - 1], lambda n, e: [-n, e], lambda n, e: [0, 0]])
def test_smaller_norms_are_refused(honest, tmp_path, upper):
    network, _, content, rows, _ = honest
    parts = members(content)
    manifest = json.loads(parts["manifest.json"])
    manifest["norms"][0]["upper"] = upper(*manifest["norms"][0]["upper"])
    with pytest.raises(core.Refused, match="norm"):
        checked(packed(parts | {"manifest.json": json.dumps(manifest).encode()}), network, rows, tmp_path)


def test_other_winners_are_refused(honest, tmp_path):
    network, _, content, rows, _ = honest
    for status in (claims.MARGINS, claims.FALSIFIED):
        place = of_status(content, status)
        winner = int(decoded(members(content), "points.winner")[1][place])
        for other in {0, 1, 2, -1, 3} - {winner}:
            with pytest.raises(core.Refused):
                checked(with_numbers(content, "points.winner", at(place, other)), network, rows, tmp_path)


def test_what_is_unknown_has_a_winner_and_a_radius_that_are_proved(honest, tmp_path):
    network, _, content, rows, _ = honest
    place = of_status(content, claims.MARGINS)
    unknown = with_numbers(content, "points.status", at(place, claims.UNKNOWN))
    checked(unknown, network, rows, tmp_path)  # less is claimed
    winner = int(decoded(members(content), "points.winner")[1][place])
    with pytest.raises(core.Refused, match="wins"):
        checked(with_numbers(unknown, "points.winner", at(place, (winner + 1) % 3)), network, rows, tmp_path)


def test_larger_radii_are_refused(honest, tmp_path):
    network, _, content, rows, eps = honest
    for place, radius in enumerate(decoded(members(content), "points.radius")[1].tolist()):
        with pytest.raises(core.Refused, match="radius"):
            checked(with_numbers(content, "points.radius", at(place, radius + 2**42)), network, rows, tmp_path)
    place = of_status(content, claims.FALSIFIED)
    with pytest.raises(core.Refused, match="radius"):
        checked(with_numbers(content, "points.radius", at(place, int(eps * 2**50))), network, rows, tmp_path)
    with pytest.raises(model.Malformed, match="radius"):
        checked(with_numbers(content, "points.radius", at(0, -1)), network, rows, tmp_path)


def test_what_is_not_certified_is_not_said_to_be(honest, tmp_path):
    network, _, content, rows, _ = honest
    place = of_status(content, claims.FALSIFIED)
    parts = members(with_numbers(content, "points.status", at(place, claims.MARGINS)))
    manifest = json.loads(parts["manifest.json"])
    del manifest["points"]["falsified"][str(place)]
    parts = {name: part for name, part in parts.items() if not name.startswith(f"falsified{place}.")}
    with pytest.raises(core.Refused, match="last within"):
        checked(packed(parts | {"manifest.json": json.dumps(manifest).encode()}), network, rows, tmp_path)
    with pytest.raises(model.Malformed, match="status"):
        checked(with_numbers(content, "points.status", at(place, 4)), network, rows, tmp_path)
    with pytest.raises(model.Malformed, match="said to be proved so"):
        checked(with_numbers(content, "points.status", at(place, claims.UNKNOWN)), network, rows, tmp_path)


def test_outputs_are_certified_by_margins_alone(tmp_path):
    network, _ = drawn(3, (2, 5, 4, 3))
    made, found, rows = BytesIO(), FoundPoints(), [[Fraction(1), Fraction(0), Fraction(-1)]]
    found.winners.append(0)
    found.radii.append(0.0)
    with CertificateWriter(made, network, compute_bounds(network)) as writer:
        writer.write_points(PointsAbout("outputs", "hash", Fraction(10**6)), rows, found)
    path = tmp_path / "outputs.cert"
    tables = claims.Tables(lambda: iter(rows), "hash")
    for status in (claims.UNKNOWN, claims.MARGINS, claims.LOCAL, claims.FALSIFIED):
        path.write_bytes(with_numbers(made.getvalue(), "points.status", at(0, status)))
        if status == claims.UNKNOWN:
            assert claims.check_certificate(path, checked_model(network), tables).counts == (1, 0, 0, 0)
            continue
        with pytest.raises(core.Refused if status == claims.MARGINS else model.Malformed):
            claims.check_certificate(path, checked_model(network), tables)


def test_proofs_of_inputs_are_none_of_outputs(tmp_path):
    """Of a model with as many outputs as inputs: a row might be taken for either."""
    network, _ = drawn(3, (3, 5, 4, 3))
    content, rows = written(network, np.random.default_rng(0).integers(-16, 17, (30, 3)) / 8, Fraction(1, 2), True)
    checked(content, network, rows, tmp_path)
    outputs = [model.values_at(checked_model(network), row)[-1] for row in rows]
    path = tmp_path / "outputs.cert"
    path.write_bytes(changed_points(content, kind="outputs"))
    for given in (rows, outputs):
        with pytest.raises((model.Malformed, core.Refused), match=r"status|wins|last"):
            claims.check_certificate(path, checked_model(network), claims.Tables(lambda of=given: iter(of), "hash"))
    only = of_status(content, claims.FALSIFIED)
    parts = members(changed_points(content, kind="outputs"))
    manifest = json.loads(parts["manifest.json"])
    manifest["points"] |= {"count": 1, "local": {}, "falsified": {"0": manifest["points"]["falsified"][str(only)]}}
    kept = {name: part for name, part in parts.items() if name.startswith(("norm", "chain", "margins"))}
    kept |= {f"falsified0.i{name[-1]}": part for name, part in parts.items() if name.startswith(f"falsified{only}.")}
    for what in ("status", "winner"):
        kept[f"points.{what}.i8"] = decoded(parts, f"points.{what}")[1][only : only + 1].astype("<i8").tobytes()
    kept |= {"points.radius.i1": b"\0", "manifest.json": json.dumps(manifest).encode()}
    path.write_bytes(packed(kept))
    with pytest.raises(model.Malformed, match="status"):
        claims.check_certificate(path, checked_model(network), claims.Tables(lambda: iter([rows[only]]), "hash"))


@pytest.mark.parametrize("power", [-1000, -300, 900])
def test_certificates_at_the_ends_of_the_floats(power, tmp_path):
    rng = np.random.default_rng(1)
    weights = [np.ldexp(rng.standard_normal((m, n)), power) for n, m in pairwise((3, 4, 4, 4, 4, 4, 3))]
    _accepted(Network.from_arrays(weights), tmp_path)


@pytest.mark.parametrize("which", range(3))
def test_certificates_of_layers_of_zeros(which, tmp_path):
    _accepted(Network.from_arrays([np.full((3, 3), float(k != which)) for k in range(3)]), tmp_path)


def _accepted(network, folder):
    """What is written of any network can be read; margins are no larger than the product. (Chains on scales that are
    far apart are left out.)
    """
    made = BytesIO()
    with CertificateWriter(made, network, compute_bounds(network)):
        pass
    found, product = checked(made.getvalue(), network, [], folder), compute_bounds(network, margins="product").margins
    for j, row in enumerate(found.margins):
        for i, square in enumerate(row):
            assert square <= (product.matrix[j][i] * TIGHT) ** 2


def test_smooth_activations_decide_nothing_from_inputs():
    seen = checked_model(drawn(5, (3, 6, 5, 4), "tanh")[0])
    with pytest.raises(model.Malformed, match="rational values"):
        model.values_at(seen, [Fraction(0)] * 3)
    with pytest.raises(core.Refused, match="piecewise linear"):
        core.check_local(seen, [Fraction(0)] * 3, Fraction(1), 0, [[]])
