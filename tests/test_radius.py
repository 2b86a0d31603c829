"""The robust radius, bracketed: certified at the lower end, falsified at the upper one; the truth is in between."""

import json
import pickle
from dataclasses import replace
from fractions import Fraction
from random import Random

import numpy as np
import pytest
from commands import ran
from regions import logits_at, nearest_change, winner_at
from test_complete import HINGES, drawn, point

from intervalcert import (
    Network,
    Radii,
    SoundnessError,
    UsageError,
    certify_inputs,
    compute_bounds,
    robust_radius,
    save_bounds,
    save_model,
)
from intervalcert.api import complete_budgets, radius_verifier, verification_job
from intervalcert.errors import InputError, UndecidedError
from intervalcert.execution.radii import Medians, summarised_radii
from intervalcert.model.evaluation import Evaluators
from intervalcert.numbers.float_formats import get_format
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.proof.counterexample import Counterexample, check_counterexample
from intervalcert.proof.decision import Status
from intervalcert.proof.program import Program, check_float_counterexample
from intervalcert.report.text import radius_table
from intervalcert.search.float_network import FloatNetwork
from intervalcert.search.nearest import brought_nearer
from intervalcert.verify import radius as module
from intervalcert.verify.complete import CompleteVerdict
from intervalcert.verify.deployed import as_deployed
from intervalcert.verify.falsify import distance_upper
from intervalcert.verify.jobs import Batch
from intervalcert.verify.points import PointVerifier
from intervalcert.verify.radius import RadiusVerifier

MODES = {"margins": {}, "local": {"local": True}, "complete": {"complete": True}}

WIDTH = Fraction(1, 100)


def floats(points):
    return np.array([[float(a) for a in x] for x in points])


def column(x):
    return RationalMatrix.from_fractions([[Fraction(a)] for a in x])


def changing(layers, hinge, random, count):
    """Points that another winner is near to, and the squared distances of that."""
    found = []
    for _ in range(12):
        x = point(random)
        truth = nearest_change(layers, hinge, x)
        if truth is not None and truth < 400:
            found.append((x, truth))
        if len(found) == count:
            break
    return zip(*found, strict=True)


def is_narrow(lower, upper, width):
    return np.isfinite(upper) and Fraction(upper) - Fraction(lower) <= width * Fraction(upper)


def holds(lower, upper, truth):
    """Whether lower < the root of truth <= upper. truth: the least squared distance of another winner, None if none."""
    if truth is None:
        return upper == np.inf
    if truth == 0:
        return lower == 0
    return Fraction(lower) ** 2 < truth and (upper == np.inf or truth <= Fraction(upper) ** 2)


# -- the truth -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", HINGES)
def test_the_truth_is_between_the_ends(kind):
    statuses = []
    for seed in (0, 10 if kind.startswith("clip") else 3):
        network, layers = drawn(seed, kind)
        bounds = compute_bounds(network, "float64")
        points, truths = changing(layers, HINGES[kind], Random(2000 + seed), 3)
        found = {
            mode: robust_radius(network, floats(points), bounds=bounds, scale=1, **how) for mode, how in MODES.items()
        }
        for mode, radii in found.items():
            for k, (x, truth) in enumerate(zip(points, truths, strict=True)):
                lower, upper = radii.lower[k], radii.upper[k]
                assert holds(lower, upper, truth), (mode, seed, x)
                assert radii.argmax[k] == winner_at(layers, HINGES[kind], x)
                assert (mode == "complete") or upper == np.inf
            assert (radii.lower >= found["margins"].lower).all()
        radii = found["complete"]
        statuses += radii.status.tolist()
        assert radii.status.tolist().count("tie") == sum(truth == 0 for truth in truths)
        for k, x in enumerate(points):
            assert (radii.status[k] == "bracketed") <= is_narrow(radii.lower[k], radii.upper[k], WIDTH)
            if radii.upper[k] < np.inf:
                delta = radii.counterexamples[k].delta.tolist()
                there = [a + Fraction(d) for a, d in zip(x, delta, strict=True)]
                logits = logits_at(layers, HINGES[kind], there)
                assert logits[radii.counterexamples[k].other] >= logits[radii.argmax[k]]
                assert sum(Fraction(d) ** 2 for d in delta) <= Fraction(radii.upper[k]) ** 2
    assert statuses.count("open") <= 1
    assert statuses.count("bracketed") >= 5


def test_a_lower_end_above_the_truth_would_be_noticed():
    """Of the tests: what they compare with is no empty phrase."""
    assert holds(0.5, 1.0, Fraction(1, 2))
    assert not holds(0.75, 1.0, Fraction(1, 2))
    assert not holds(0.5, 0.5, Fraction(1, 2))
    assert not holds(0.5, 1.0, Fraction(1, 4)), "certified is strict"
    assert not holds(0.5, 1.0, None)
    assert not holds(0.5, 1.0, Fraction(0))


def test_both_ends_are_what_they_say():
    """Certified at exactly the lower end, on its own; falsified at exactly the upper one, and not by a hair less."""
    network, _ = drawn(3)
    points = floats([point(Random(k)) for k in range(4)])
    radii = robust_radius(network, points, complete=True)
    evaluators = Evaluators(network, [layer.upper for layer in compute_bounds(network).layers])
    ladder = verification_job(network, None, None).ladder
    for x, lower, upper, found in zip(points, radii.lower, radii.upper, radii.counterexamples.values(), strict=True):
        (verdict,) = certify_inputs(network, x[None], Fraction(float(lower)), complete=True)
        assert verdict.certified
        at = column(x.tolist())
        assert check_counterexample(found, at, Fraction(float(upper)), 3, evaluators.finer(ladder))
        less = Fraction(float(np.nextafter(np.nextafter(upper, 0), 0)))
        with pytest.raises(UndecidedError, match="beyond eps"):
            check_counterexample(found, at, less, 3, evaluators.finer(ladder))


@pytest.mark.parametrize("width", ["0.2", "0.001"])
def test_the_width_is_reached(width):
    network, layers = drawn(4)
    points = [point(Random(50 + k)) for k in range(5)]
    radii = robust_radius(network, floats(points), complete=True, width=width)
    assert set(radii.status.tolist()) == {"bracketed"}
    for k, x in enumerate(points):
        assert is_narrow(radii.lower[k], radii.upper[k], Fraction(width))
        assert radii.relative_width[k] <= float(width) * (1 + 1e-9)
        assert holds(radii.lower[k], radii.upper[k], nearest_change(layers, HINGES["relu"], x))


def test_local_ends_are_near_to_what_is_not_certified():
    network, _ = drawn(2)
    x = floats([point(Random(7))])
    bounds = compute_bounds(network)
    for width in ("0.2", "0.01"):
        radii = robust_radius(network, x, bounds=bounds, local=True, width=width)
        assert (radii.status[0], radii.method[0], radii.upper[0]) == ("lower", "local", np.inf)
        lower = Fraction(float(radii.lower[0]))
        more = lower * (1 + Fraction(width) * Fraction(11, 10))
        found = [certify_inputs(network, x, eps, bounds=bounds, local=True)[0].certified for eps in (lower, more)]
        assert found == [True, False]


# -- what has no two ends --------------------------------------------------------------------------------------------


def test_a_tie_is_the_radius_zero():
    twice = Network.from_arrays([np.eye(2), np.array([[1.0, 0.0], [1.0, 0.0]])])
    x = np.array([[0.5, 0.25]])
    radii = robust_radius(twice, x, complete=True)
    assert (radii.status[0], radii.lower[0], radii.upper[0], radii.relative_width[0]) == ("tie", 0, 0, 0)
    assert not radii.counterexamples[0].delta.any()
    for how in ({}, {"local": True}):
        radii = robust_radius(twice, x, **how)
        assert (radii.status[0], radii.lower[0], radii.upper[0], radii.method[0]) == ("lower", 0, np.inf, "")


def test_what_nothing_can_change_is_unbounded():
    constant = Network.from_arrays([np.eye(2), np.zeros((2, 2))], [None, [1.0, 0.0]])
    for how in MODES.values():
        radii = robust_radius(constant, np.array([[0.5, 0.25]]), **how)
        assert (radii.status[0], radii.lower[0], radii.upper[0]) == ("unbounded", np.inf, np.inf)
        assert radii.relative_width[0] == 0


def test_an_upper_end_that_does_not_exist_is_not_invented():
    """The lead is 1 + max(u, 0), everywhere positive; the margins do not know that."""
    network = Network.from_arrays([np.array([[1.0]]), np.array([[1.0], [0.0]])], [None, [1.0, 0.0]])
    radii = robust_radius(network, np.array([[0.5]]), complete=True)
    assert (radii.status[0], radii.upper[0], radii.relative_width[0]) == ("open", np.inf, np.inf)
    assert radii.lower[0] > 1
    assert not radii.counterexamples


def test_where_the_search_ends_in_between_the_bracket_is_still_true():
    """Without splits, and hardly any steps."""
    network, layers = drawn(0)
    points = [point(Random(k)) for k in range(5)]
    radii = robust_radius(network, floats(points), complete=True, dual_steps=0, max_splits=0, width="0.0001")
    for k, x in enumerate(points):
        assert holds(radii.lower[k], radii.upper[k], nearest_change(layers, HINGES["relu"], x))
        assert (radii.status[k] == "open") == (not is_narrow(radii.lower[k], radii.upper[k], Fraction("0.0001")))
    assert not radii.ended[radii.status != "open"].any()
    assert "splits" in radii.ended.tolist()


def test_smooth_activations_have_margins_and_an_attack():
    rng = np.random.default_rng(0)
    network = Network.from_arrays([rng.normal(size=(6, 3)), rng.normal(size=(3, 6))], between="tanh")
    radii = robust_radius(network, rng.uniform(size=(4, 3)), complete=True)
    assert set(radii.method.tolist()) == {"margins"}
    assert set(radii.status.tolist()) <= {"open", "bracketed"}
    assert np.isfinite(radii.upper).any()
    assert (radii.lower < radii.upper).all()


@pytest.mark.parametrize("first", [2.0**-700, 2.0**-100, 2.0**500, 2.0**900])
def test_numbers_at_the_ends_of_the_floats(first):
    """No warning, no traceback."""
    rng = np.random.default_rng(0)
    network = Network.from_arrays([rng.normal(size=(5, 3)) * first, rng.normal(size=(3, 5)) * 2.0**-400])
    radii = robust_radius(network, rng.normal(size=(2, 3)), complete=True)
    assert (radii.lower <= radii.upper).all()


def test_distances_where_eps_is_measured():
    x = np.array([[4.0, 0.0]])
    plain, normalised = (
        robust_radius(Network.from_arrays([np.eye(2)], mean=0, std=4, eps_space=space), x, complete=True, scale=1)
        for space in ("input", "normalised")
    )
    assert (plain.eps_space, normalised.eps_space) == ("input", "normalised")
    for radii, truth in ((plain, 8), (normalised, Fraction(1, 2))):
        assert holds(radii.lower[0], radii.upper[0], Fraction(truth))
        assert radii.status[0] == "bracketed"


# -- a program -------------------------------------------------------------------------------------------------------


def test_a_program_in_floats():
    network, _ = drawn(4)
    points = floats([point(Random(60 + k)) for k in range(4)])
    radii = robust_radius(network, points, complete=True, deployed="float32")
    real = robust_radius(network, points, complete=True)
    assert radii.semantics == "float32"
    form = get_format("float32")
    program = Program(as_deployed(network, form), form)
    assert set(radii.status.tolist()) == {"bracketed"}
    assert np.allclose(radii.lower, real.lower, rtol=0.02)
    for k, x in enumerate(points):
        eps = Fraction(float(radii.lower[k]))
        (verdict,) = certify_inputs(network, x[None], eps, complete=True, deployed="float32")
        assert verdict.certified
        found, upper = radii.counterexamples[k], Fraction(float(radii.upper[k]))
        check_float_counterexample(found, column(x.tolist()), upper, program)
        with pytest.raises(UndecidedError, match="beyond eps"):
            check_float_counterexample(found, column(x.tolist()), upper * Fraction(2**52 - 2, 2**52), program)


# -- contradictions --------------------------------------------------------------------------------------------------


def false_verifier(network, factor):
    """With margins that claim too little, by that factor."""
    job = verification_job(network, None, None, "real", complete_budgets(True))
    return PointVerifier(replace(job, margins=tuple(tuple(x / factor for x in row) for row in job.margins)))


def test_false_margins_are_noticed():
    """A counterexample within what they certify ends the run."""
    network, _ = drawn(2)
    points = [point(Random(k)) for k in range(4)]
    made = RationalMatrix.from_fractions(list(map(list, zip(*points, strict=True))))
    batch = Batch(made, (Fraction(0),) * 4, 10)
    assert set(RadiusVerifier(false_verifier(network, 1)).verdicts(batch).status.tolist()) == {"bracketed"}
    with pytest.raises(SoundnessError, match=r"input 1\d is certified at .*, and falsified at"):
        RadiusVerifier(false_verifier(network, 50)).verdicts(batch)


def test_a_contradiction_in_either_order_ends_the_run():
    found = Counterexample(np.array([0.5, 0.0]), 0, 1)
    falsified = CompleteVerdict(Status.FALSIFIED, 0, counterexample=found)
    certified = CompleteVerdict(Status.CERTIFIED, 0)

    def ends():
        return module._Ends(0, column((1, 0)), "real")

    below = ends()
    below.learn(certified, 0.4999)
    below.learn(falsified, 1.0)
    assert (below.lower, below.falsified) == (0.4999, 0.5)
    for eps in (0.5, 0.75, np.inf):
        after, before = ends(), ends()
        after.learn(certified, eps)
        with pytest.raises(SoundnessError):
            after.learn(falsified, 1.0)
        before.learn(falsified, 1.0)
        with pytest.raises(SoundnessError):
            before.learn(certified, eps)
    winners = ends()
    winners.learn(certified, 0.25)
    with pytest.raises(SoundnessError, match="of class 0, and of 1"):
        winners.learn(CompleteVerdict(Status.CERTIFIED, 1), 0.25)
    tie = ends()
    tie.learn(CompleteVerdict(Status.FALSIFIED, 0, counterexample=replace(found, delta=np.zeros(2))), 0.0)
    assert tie.falsified == 0
    with pytest.raises(SoundnessError):
        tie.learn(certified, 0.0)


# -- what attacks find -----------------------------------------------------------------------------------------------


def test_a_distance_is_rounded_up():
    """By less than a unit in the last place. (Rounded to nearest, it would be too short every other time.)"""
    rng = np.random.default_rng(5)
    nearest_is_short = 0
    for _ in range(200):
        delta = np.trunc(rng.normal(size=3) * 2.0**24) / 2.0**24
        square = sum(Fraction(d) ** 2 for d in delta.tolist())
        found = distance_upper(Counterexample(delta, 0, 1), column((0, 0, 0)))
        assert Fraction(np.nextafter(found, 0)) ** 2 < square <= Fraction(found) ** 2
        nearest_is_short += Fraction(float(np.sqrt(float(square)))) ** 2 < square
    assert nearest_is_short > 20


def test_a_counterexample_is_brought_nearer():
    rng = np.random.default_rng(1)
    for seed in range(5):
        network, _ = drawn(seed)
        floating = FloatNetwork.of(network)
        x = rng.normal(size=2)
        winner = int(np.argmax(floating.logits(x[:, None])))
        for delta in 4 * rng.normal(size=(20, 2)):
            if np.argmax(floating.logits((x + delta)[:, None])) == winner:
                continue
            short = brought_nearer(floating, x, delta, winner)
            assert np.linalg.norm(short) <= np.linalg.norm(delta) * (1 + 1e-12)
            logits = floating.logits((x + short)[:, None])[:, 0]
            assert logits[winner] <= np.delete(logits, winner).max() + 1e-9
    plane = FloatNetwork.of(Network.from_arrays([np.eye(2)]))
    short = brought_nearer(plane, np.array([1.0, 0.0]), np.array([3.0, 6.0]), 0)
    assert np.allclose(short, [-0.5, 0.5], atol=1e-4)


# -- as it is asked for ----------------------------------------------------------------------------------------------


def same(one, two):
    columns = ("indices", "argmax", "lower", "upper", "status", "method", "proved_by", "ended", "fault")
    assert all((getattr(one, name) == getattr(two, name)).all() for name in columns)
    assert one.counterexamples.keys() == two.counterexamples.keys()
    assert all((one.counterexamples[k].delta == two.counterexamples[k].delta).all() for k in one.counterexamples)


def test_processes_find_the_same():
    network, _ = drawn(4)
    inputs = np.random.default_rng(1).integers(-8, 9, (20, 2)) / 8
    for how in ({}, {"complete": True, "width": "0.1"}):
        one, two = (robust_radius(network, inputs, scale=1, jobs=jobs, **how) for jobs in (1, 2))
        same(one, two)
        assert one.indices.tolist() == list(range(20))
        assert one.input_range == two.input_range == (inputs.min(), inputs.max())


def test_progress_counts_every_input_once():
    network, _ = drawn(4)
    inputs = RationalMatrix.from_fractions([[Fraction(k, 4) for k in range(3)], [Fraction(1)] * 3])
    seen = []
    for how in ({}, {"budgets": complete_budgets(True)}):
        radius_verifier(network, None, width=None, **how).verdicts(
            Batch(inputs, (Fraction(0),) * 3), lambda: seen.append(1)
        )
        assert len(seen) <= 3, "the rest is said when the batch is done"
        seen.clear()


def test_radii_are_frozen():
    network, _ = drawn(4)
    radii = robust_radius(network, np.array([[0.5, 0.25]]), complete=True)
    assert repr(radii) == "<1 radii, 1 bracketed, real semantics>"
    for found in (radii, pickle.loads(pickle.dumps(radii))):
        assert isinstance(found, Radii)
        for name in ("lower", "upper", "argmax"):
            with pytest.raises(ValueError, match="read-only"):
                getattr(found, name)[0] = 1


def test_medians_are_never_too_good():
    ends = np.array([1.0, 2.0, 3.0, 4.0])
    assert Medians.of(ends, ends, ends) == Medians(2.0, 3.0, 3.0)
    assert Medians.of(ends[:3], ends[:3], ends[:3]) == Medians(2.0, 2.0, 2.0)
    assert Medians.of(ends[:0], ends[:0], ends[:0]) is None


def test_what_does_not_go_together_is_refused():
    network, _ = drawn(1)
    x = np.array([[0.5, 0.25]])
    alone = ({"dual_steps": 5}, {"max_splits": 5}, {"width": "0.1"}, {"local_rounds": 5}, {"jobs": 0})
    widths = ({"width": width} for width in (0, 1, -1, "3/2", 2.0))
    for options in (*alone, *({"complete": True, **each} for each in widths)):
        with pytest.raises(UsageError):
            robust_radius(network, x, **options)
    with pytest.raises(InputError):
        robust_radius(network, x, complete=True, width="wide")
    smooth = Network.from_arrays([np.eye(2), np.eye(2)], between="tanh")
    with pytest.raises(InputError):
        robust_radius(smooth, x, local=True)


# -- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    network, _ = drawn(4)
    save_model(network, "m.npz")
    save_bounds(compute_bounds(network), "b.json")
    inputs = np.random.default_rng(1).integers(-8, 9, (9, 2)) / 8
    np.save("x.npy", inputs[[0, 2, 5, 6]])  # the last one is a tie
    np.save("y.npy", np.array([0, 1, 0, 0]))
    np.save("logits.npy", np.eye(3))
    return tmp_path


COMMAND = ("radius", "--model", "m.npz", "--inputs", "x.npy", "--input-scale", "1", "--jobs", "1")


def rows_of(path):
    names, *lines = path.read_text().splitlines()
    return [dict(zip(names.split(","), line.split(","), strict=True)) for line in lines]


def test_the_command_says_what_the_function_finds(folder, capsys):
    found = robust_radius("m.npz", np.load("x.npy"), complete=True, scale=1)
    right = found.argmax == np.load("y.npy")
    assert right.tolist() == [True, False, True, True]
    argv = (*COMMAND, "--complete", "--labels", "y.npy")
    code, out, err = ran(capsys, *argv, "-o", "r.csv", "--counterexamples", "c.npz")
    assert (code, err) == (0, "wrote c.npz\nwrote r.csv\n")
    assert max(map(len, out.splitlines())) <= 80
    for phrase in ("3 of 4", "bracketed", "tie", "accuracy", "median", "0.01"):
        assert phrase in out
    rows = rows_of(folder / "r.csv")
    names = ["index", "argmax", "radius_lower", "radius_upper", "status", "method", "ended", "semantics", "eps_space"]
    assert list(rows[0]) == [*names, "right"]
    for k, row in enumerate(rows):
        assert (int(row["index"]), int(row["argmax"]), row["status"]) == (k, found.argmax[k], found.status[k])
        assert Fraction(row["radius_lower"]) <= Fraction(float(found.lower[k]))
        assert Fraction(row["radius_upper"]) >= Fraction(float(found.upper[k]))
        assert np.isclose(float(row["radius_lower"]), found.lower[k], rtol=1e-15)
        assert np.isclose(float(row["radius_upper"]), found.upper[k], rtol=1e-15)
        assert row["method"] == found.method[k]
        assert (row["right"] == "yes") == right[k]
    with np.load("c.npz") as kept:
        assert (kept["delta"] == [found.counterexamples[k].delta for k in kept["index"]]).all()
    assert ran(capsys, *argv, "-o", "r.npy")[0] == ran(capsys, *argv, "-o", "r.jsonl")[0] == 0
    records = np.load("r.npy")
    assert records.dtype.names == (*names, "right")
    assert records["radius_lower"].tolist() == found.lower.tolist()
    assert records["radius_upper"].tolist() == found.upper.tolist()
    assert records["right"].tolist() == right.tolist()
    lines = [json.loads(line) for line in (folder / "r.jsonl").read_text().splitlines()]
    assert [{name: str(value) for name, value in line.items()} for line in lines] == rows
    shown = json.loads(ran(capsys, *argv, "--json")[1])
    assert (shown["total"], shown["bracketed"], shown["open"], shown["tie"]) == (4, 3, 0, 1)
    assert shown["accuracy"] == right.mean()
    assert shown["median"]["lower"] == np.sort(found.lower)[1]
    assert shown["median"]["upper"] == np.sort(found.upper)[2]
    assert 0 < shown["median"]["relative_width"] <= 0.0100001
    assert shown["median_of_right"]["lower"] in found.lower[right].tolist()
    assert sum(shown["decided_by"].values()) == 3
    assert shown["width"] == "0.01"


def test_without_complete_there_are_lower_ends_alone(folder, capsys):
    pq = pytest.importorskip("pyarrow.parquet")
    for how in ((), ("--local",)):
        code, out, _ = ran(capsys, *COMMAND, *how, "-o", "r.csv")
        assert code == 0
        assert "upper" not in out
        assert {(row["radius_upper"], row["status"]) for row in rows_of(folder / "r.csv")} == {("", "lower")}
    assert ran(capsys, *COMMAND, "b.json", "-o", "r.parquet")[0] == 0
    table = pq.read_table("r.parquet")
    assert set(table["radius_upper"].to_pylist()) == {np.inf}
    assert table["radius_lower"].to_pylist() == robust_radius("m.npz", np.load("x.npy"), scale=1).lower.tolist()
    shown = json.loads(ran(capsys, *COMMAND, "--json")[1])
    assert shown["median"]["upper"] is None
    assert shown["median_of_right"] is shown["accuracy"] is None


def test_what_has_no_end_is_written(folder, capsys):
    save_model(Network.from_arrays([np.eye(2), np.zeros((2, 2))], [None, [1.0, 0.0]]), folder / "m.npz")
    code, out, _ = ran(capsys, *COMMAND, "--complete", "-o", "r.csv")
    assert code == 0
    assert "unbounded" in out
    assert {(row["radius_lower"], row["radius_upper"]) for row in rows_of(folder / "r.csv")} == {("inf", "inf")}


def test_a_wide_table_of_faults_and_limits_fits(folder):
    network, _ = drawn(3)
    radii = robust_radius(network, np.array([[0.5, 0.25]]), complete=True)
    some = replace(radii, status=np.array(["open"]), ended=np.array(["splits"]), fault=np.array(["E: " + "x" * 20]))
    summary = summarised_radii([some], WIDTH, has_upper=True)
    assert summary.ended == {"splits": 1}
    assert len(radius_table(summary).columns) == 3


@pytest.mark.parametrize(
    ("more", "code", "phrase"),
    [
        (("--width", "0.1"), 2, "--complete"),
        (("--complete", "--width", "0"), 2, "between 0 and 1"),
        (("--complete", "--width", "1"), 2, "between 0 and 1"),
        (("--complete", "--width", "-1"), 2, "between 0 and 1"),
        (("--complete", "--width", "x"), 3, "--width"),
        (("--max-splits", "3"), 2, "goes with --complete"),
        (("--counterexamples", "c.npz"), 2, "goes with --complete"),
        (("--complete", "--counterexamples", "c.csv"), 2, ".npz"),
        (("--local-rounds", "3"), 2, "--local"),
        (("--jobs", "0"), 2, "--jobs 0"),
        (("--labels", "short.npy"), 3, "3 labels"),
        (("--labels", "long.npy"), 3, "12 labels"),
        (("b.json", "logits.npy"), 2, "exclude each other"),
        (("-o", "r.txt"), 2, ".csv"),
        (("-o", "x.npy"), 2, "x.npy"),
        (("--input-box", "0", "1"), 3, "not between 0 and 1"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, tuple) else "",
)
def test_what_makes_no_sense_is_refused(folder, capsys, more, code, phrase):
    for name, count in (("short", 3), ("long", 12)):
        np.save(f"{name}.npy", np.zeros(count, dtype=np.int64))
    found, _, err = ran(capsys, *COMMAND, *more)
    assert (found, phrase in err) == (code, True), err
    assert not (folder / "r.csv").exists()


@pytest.mark.parametrize(
    "more",
    [
        *(("--labels", "y.npy"), ("--json",), ("--width", "0.1"), ("--complete",), ("--local",), ("--jobs", "2")),
        *(("--model", "m.npz"), ("--deployed", "float32"), ("--input-scale", "1"), ("--eps-space", "input")),
        ("--input-box", "0", "1"),
    ],
    ids=lambda given: given[0],
)
def test_what_goes_with_inputs_alone(folder, capsys, more):
    assert ran(capsys, "radius", "b.json", "logits.npy")[0] == 0
    code, out, err = ran(capsys, "radius", "b.json", "logits.npy", *more)
    assert (code, out) == (2, "")
    assert more[0] in err


def test_radius_takes_something(folder, capsys):
    for words in ((), ("b.json",), ("--inputs", "x.npy")):
        code, _, err = ran(capsys, "radius", *words)
        assert code == 2, words
        assert "--model" in err


def test_false_bounds_end_the_command(folder, capsys):
    """A file that claims too little is refuted by a counterexample: exit code 4, and no file."""
    bounds = compute_bounds(drawn(4)[0], margins="product")
    smaller = tuple(tuple(x / 64 for x in row) for row in bounds.margins.matrix)
    save_bounds(replace(bounds, margins=replace(bounds.margins, matrix=smaller)), "false.json")
    code, _, err = ran(capsys, *COMMAND, "false.json", "--complete", "-o", "r.csv")
    assert code == 4
    assert "trust no result" in err
    assert not (folder / "r.csv").exists()
