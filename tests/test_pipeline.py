"""One pipeline for a point, wherever it runs; and verdicts that say themselves what they are about."""

import json
import pickle
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from intervalcert import Network, Verdict, Verdicts, certify, certify_deployed, certify_inputs, compute_bounds
from intervalcert.api import vectorised_certifier, verification_job
from intervalcert.backends.registry import precision_ladder
from intervalcert.cli.program import main
from intervalcert.errors import InputError
from intervalcert.execution.streaming import Summary, summarise
from intervalcert.numbers.matrices import RationalVector
from intervalcert.proof.decision import Certifier, Status, check_logits
from intervalcert.verify import jobs as jobs_module
from intervalcert.verify.jobs import batches_of
from intervalcert.verify.local import LocalVerdict, LocalVerifier
from intervalcert.verify.number_table import Epsilons, NumberTable
from intervalcert.verify.points import PointVerifier
from intervalcert.verify.program_logits import LogitVerifier
from intervalcert.verify.verdicts import status_codes

RNG = np.random.default_rng(4)
WEIGHTS = [(RNG.standard_normal(shape) / 2).astype(np.float32).astype(np.float64) for shape in [(8, 4), (6, 8), (3, 6)]]
NETWORK = Network.from_arrays(WEIGHTS)
INPUTS = RNG.standard_normal((90, 4)).astype(np.float32)
EPS = Fraction(1, 5)


def normalised():
    return NETWORK.after([0.5], [2.0])


# -- constants are computed once, and sent ---------------------------------------------------------------------------


@pytest.fixture
def made(monkeypatch):
    """How often the constants of a program are computed in this process."""
    found = []

    def counted(*arguments):
        found.append(arguments)
        return honest(*arguments)

    honest = jobs_module.Deployment
    monkeypatch.setattr(jobs_module, "Deployment", counted)
    return found


@pytest.mark.parametrize("jobs", [1, 2])
def test_constants_are_computed_once(made, jobs):
    found = certify_inputs(NETWORK, INPUTS, EPS, deployed="float32", local=True, jobs=jobs)
    assert len(made) == 1
    assert found.locally.any()
    assert not certify_inputs(NETWORK, INPUTS, EPS, jobs=jobs).locally.any()
    assert len(made) == 1, "over the reals there are none"


def test_constants_are_computed_once_on_the_command_line(made, tmp_path, capsys):
    np.savez(tmp_path / "m.npz", **{f"W{i}": w for i, w in enumerate(WEIGHTS)})
    np.save(tmp_path / "x.npy", INPUTS)
    words = ("certify", "--model", tmp_path / "m.npz", "--inputs", tmp_path / "x.npy", "--eps", "0.2", "--jobs", "1")
    assert main([*map(str, words), "--deployed", "float32", "--json"]) == 0
    assert len(made) == 1
    shown = json.loads(capsys.readouterr().out)
    assert shown["certified"] == certify_inputs(NETWORK, INPUTS, EPS, deployed="float32").certified.sum()


@pytest.mark.parametrize("deployed", ["real", "float32"])
def test_what_is_sent_judges_the_same_without_computing_constants_anew(made, deployed):
    verifier = PointVerifier(verification_job(NETWORK, None, 2, deployed))
    (batch,) = batches_of(NumberTable(INPUTS[:40]), NETWORK, Fraction(1), Epsilons.all_equal(EPS))
    before = verifier.verdicts(batch)  # it may have been used: what is made of the weights stays here
    count = len(made)
    arrived = pickle.loads(pickle.dumps(verifier))
    assert arrived.verdicts(batch) == before
    assert len(made) == count == (deployed != "real")
    assert before.locally.any()


WORKER = """
import sys
import numpy as np
from intervalcert import certify_inputs, load_model, SoundnessError
from intervalcert.verify import deployed
if __name__ == "__mp_main__":  # in a worker
    if sys.argv[1] == "receives":
        deployed.Deployment.__init__ = None  # who calls it fails
    else:
        deployed.arithmetic_fault = lambda: "a fault in the worker"
if __name__ == "__main__":
    try:
        found = certify_inputs(load_model("m.npz"), np.load("x.npy"), "0.2", deployed="float32", local=True, jobs=2)
        print(found.certified.sum(), found.locally.sum(), found.semantics)
    except SoundnessError as error:
        print(error)
"""


def ran(folder, what):
    np.savez(folder / "m.npz", **{f"W{i}": w for i, w in enumerate(WEIGHTS)})
    np.save(folder / "x.npy", INPUTS)
    (folder / "worker.py").write_text(WORKER)
    done = subprocess.run([sys.executable, "worker.py", what], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_worker_receives_the_constants(tmp_path):
    expected = certify_inputs(NETWORK, INPUTS, EPS, deployed="float32", local=True)
    assert ran(tmp_path, "receives").split() == [
        str(expected.certified.sum()),
        str(expected.locally.sum()),
        "float32",
    ]


def test_a_worker_with_other_arithmetic_says_so(tmp_path):
    said = ran(tmp_path, "tests")
    assert "cannot be trusted in this process" in said
    assert "a fault in the worker" in said


# -- what verdicts say of themselves ---------------------------------------------------------------------------------


def about(verdicts):
    return {(v.semantics, v.eps_space) for v in verdicts} | {(verdicts.semantics, verdicts.eps_space)}


@pytest.mark.parametrize("network", [NETWORK, normalised()], ids=["input", "normalised"])
def test_status_and_method_are_those_of_the_prover_over_the_reals(network):
    space = network.eps_space
    bounds = compute_bounds(network, "float64")
    logits = RNG.standard_normal((50, 3)) * 3
    for given in (logits, logits.tolist()):
        found = certify(bounds, given, EPS)
        assert about(found) == {("real", space)}
        assert set(found.method.tolist()) == {"margins"}
        assert set(found.status.tolist()) == {"certified", "unknown"}
    one = Certifier(bounds.margins.matrix, precision_ladder("arb"), space).verdict(RationalVector((9, 0, 0), 1), EPS)
    assert (one.semantics, one.eps_space, one.method, one.proved_by) == ("real", space, "margins", "arb")
    for jobs in (1, 2):
        found = certify_inputs(network, INPUTS, EPS, bounds=bounds, local=True, jobs=jobs)
        assert about(found) == {("real", space)}
        assert set(found.method.tolist()) == {"margins", "local"}
        assert (found.locally == (found.method == "local")).all()
        assert (found.certified == (found.status == "certified")).all()
        assert {v.proved_by for v in found if v.certified} == {"float64"}


def test_status_and_method_are_those_of_the_prover_of_a_program():
    found = certify_inputs(NETWORK, INPUTS, EPS, local=True, deployed="float32")
    assert about(found) == {("float32", "input")}
    assert set(found.method.tolist()) == {"margins", "local"}
    logits = NumberTable(RNG.standard_normal((20, 3)) * 9)
    verifier = LogitVerifier(verification_job(NETWORK, None, None, "bfloat16"), Fraction(1))
    assert about(verifier.verdicts(logits, Epsilons.all_equal(EPS))) == {("bfloat16", "input")}
    found = certify_deployed(NETWORK, logits.values, EPS, deployed="float32", input_norm=3)
    assert about(found) == {("float32", "input")}
    assert set(found.method.tolist()) == {"margins"}


def test_every_verdict_is_a_word_that_is_a_status():
    found = certify_inputs(NETWORK, INPUTS, EPS, local=True)
    for verdict, word in zip(found, found.status.tolist(), strict=True):
        assert verdict.status == word
        assert verdict.status is Status(word)
        assert verdict.certified == (verdict.status is Status.CERTIFIED)
        assert verdict.locally == (verdict.method == "local")
    assert status_codes(np.array([True, False])).dtype == np.int8


def test_falsified_is_neither_certified_nor_unknown():
    """Nobody finds that yet, but a table can hold it."""
    listed = [Verdict(i, 0, status, 0.0, "real", "input") for i, status in enumerate(Status)]
    found = Verdicts.of(listed)
    assert found == listed
    assert found.status.tolist() == ["unknown", "certified", "falsified"]
    assert found.certified.tolist() == [v.certified for v in listed] == [False, True, False]
    assert summarise(found, None).certified == 1


def test_verdicts_about_different_networks_are_different_and_are_not_mixed():
    one = Verdict(0, 1, Status.CERTIFIED, 0.5, "real", "input")
    for other in (replace(one, semantics="float32"), replace(one, eps_space="normalised")):
        assert one != other
        assert Verdicts.of([one]) != Verdicts.of([other])
        for mixed in (
            lambda other=other: Verdicts.of([one, other]),
            lambda other=other: Verdicts.joined([Verdicts.of([one]), Verdicts.of([other])]),
        ):
            with pytest.raises(ValueError, match="about one network"):
                mixed()


def test_joined_verdicts_are_those_of_the_parts():
    whole = certify_inputs(NETWORK, INPUTS, EPS, local=True)
    parts = [whole[:10], whole[10:11], whole[11:]]
    again = Verdicts.joined(parts, (-1.0, 1.0))
    assert again == whole
    assert again.exactly.tolist() == whole.exactly.tolist()
    assert again.proved_by.tolist() == whole.proved_by.tolist()
    assert again.input_range == (-1.0, 1.0)
    for name in ("indices", "argmax", "codes", "radius", "method", "certified", "locally"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(again, name)[0] = getattr(again, name)[1]
    arrived = pickle.loads(pickle.dumps(again))
    assert arrived == whole
    with pytest.raises(ValueError, match="read-only"):
        arrived.certified[0] = True


def test_a_summary_says_what_the_verdicts_are_about():
    found = summarise(certify_inputs(NETWORK, INPUTS[:3], EPS, deployed="float16"), None)
    assert isinstance(found, Summary)
    assert (found.semantics, found.eps_space) == ("float16", "input")


# -- one check of logits per output ----------------------------------------------------------------------------------

BOUNDS = compute_bounds(NETWORK, "float64")
TWO = np.ones((2, 2))


@pytest.mark.parametrize(
    "judge",
    [
        lambda: certify(BOUNDS, TWO, 0),
        lambda: certify(BOUNDS, TWO.tolist(), 0),
        lambda: vectorised_certifier(BOUNDS).verdicts(NumberTable(TWO), Epsilons.all_equal(EPS)),
        lambda: certify_deployed(NETWORK, TWO, 0, deployed="float32", input_norm=1),
        lambda: certify_deployed(NETWORK, TWO.tolist(), 0, deployed="float32", input_norm=1),
        lambda: Certifier(BOUNDS.margins.matrix, precision_ladder("exact")).verdict(RationalVector((1, 2), 1), EPS),
    ],
)
def test_logits_of_another_number_are_refused_in_the_same_words(judge):
    with pytest.raises(InputError, match=r": 2 logits per output, but the model has 3 classes$"):
        judge()


def test_a_single_output_is_named():
    check_logits(1, 1, "y")
    with pytest.raises(InputError, match=r"^y: 2 logits per output, but the model has a single output$"):
        check_logits(2, 1, "y")


def test_what_proved_a_given_output_is_known_too():
    """The filter in floats, or exact rationals where that cannot tell; nothing where nothing is proved."""
    bounds = compute_bounds(Network.from_arrays([np.eye(3)]), "exact")
    limit = Fraction(bounds.margins.matrix[0][1])
    logits = [[9, 0, 0], [0, 0, 9], [1, 1, 0], [limit * (1 + Fraction(1, 10**40)), 0, 0], [limit, 0, 0]]
    found = certify(bounds, logits, 1)
    expected = ["float64", "float64", "", "exact", ""]
    assert found.status.tolist() == ["certified", "certified", "unknown", "certified", "unknown"]
    again = pickle.loads(pickle.dumps(found))
    for some in (found, again, Verdicts.joined([found]), Verdicts.of(list(found))):
        assert some.proved_by.tolist() == expected
        assert [verdict.proved_by for verdict in some] == expected
        assert [some[place].proved_by for place in range(5)] == expected
        assert summarise(some, None).proved_by == {"float64": 2, "exact": 1}
    assert found[1:4].proved_by.tolist() == expected[1:4]


# -- programs: every direction -----------------------------------------------------------------------------------------


def a_hair_above(radius):
    """No float is between the two: whoever rounds eps down takes it for the radius."""
    return Fraction(radius) + Fraction(1, 2**300)


def test_an_eps_a_hair_above_the_radius_of_a_program_is_not_certified():
    looked_at = 0
    for x in INPUTS[:10]:
        radius = certify_inputs(NETWORK, [x.tolist()], 0, deployed="float32")[0].radius
        at, above = (
            certify_inputs(NETWORK, [x.tolist()], eps, deployed="float32")[0].certified
            for eps in (Fraction(radius), a_hair_above(radius))
        )
        assert (at, above) == (radius > 0, False)
        looked_at += at
    assert looked_at


def test_nor_is_it_for_given_logits():
    logits = np.array([[9.0, 0.0, -3.0], [0.0, 4.0, 1.0]], dtype=np.float32)
    for deployed in ("float32", "float16"):
        options = {"deployed": deployed, "input_norm": 2}
        for row, verdict in zip(logits, certify_deployed(NETWORK, logits, 0, **options), strict=True):
            assert verdict.radius > 0
            at, above = (
                certify_deployed(NETWORK, row, eps, **options)[0].certified
                for eps in (Fraction(verdict.radius), a_hair_above(verdict.radius))
            )
            assert (at, above) == (True, False)


def test_given_logits_may_be_those_of_the_program():
    """They are off from the network's as much as those at a neighbour are: a lead must outweigh both errors."""
    verifier = LogitVerifier(verification_job(NETWORK, None, None, "float16"), Fraction(2))
    owed = verifier._deployment.errors_at(verifier._worst, 0.0, np.array([0]))[1, 0]
    assert owed > 0
    for part, expected in ((0.9, False), (1.5, False), (1.99, False), (2.5, True)):
        rows = NumberTable(np.array([[part * owed, 0.0, -100.0]]))
        assert bool(verifier.verdicts(rows, Epsilons.all_equal(Fraction(0))).certified[0]) is expected, part


def test_decimals_are_enclosed_before_they_are_judged(monkeypatch):
    """Their floats are only near them."""
    verifier = LogitVerifier(verification_job(NETWORK, None, None, "float64"), Fraction(2))
    seen, right = [], type(verifier._deployment).radii

    def radii(self, worst, low, high, *rest, **options):
        seen.append((low, high))
        return right(self, worst, low, high, *rest, **options)

    monkeypatch.setattr(type(verifier._deployment), "radii", radii)
    exact = [[Fraction(1, 3), Fraction(-1, 10), Fraction(10**6) + Fraction(1, 10**9)]]
    tenths = NumberTable(np.array([[3.0, -1.0, 7.0]]), 1)
    for rows, numbers in (
        (NumberTable.of_exact([RationalVector.from_fractions(exact[0])], "y"), exact[0]),
        (tenths, [Fraction(3, 10), Fraction(-1, 10), Fraction(7, 10)]),
    ):
        verifier.verdicts(rows, Epsilons.all_equal(Fraction(0)))
        low, high = (end[:, 0].tolist() for end in seen[-1])
        for a, x, b in zip(low, numbers, high, strict=True):
            assert Fraction(a) < x < Fraction(b)


def certified_locally(monkeypatch, winner):
    """Local attempts at a program that all succeed, for that winner; what is taken off the leads, and at which eps."""
    seen = []

    def certify_(self, x, eps, rounds, margin_deductions=None):
        seen.append((eps, margin_deductions))
        return LocalVerdict(True, 2.0, winner, "exact")

    monkeypatch.setattr(LocalVerifier, "certify", certify_)
    eps = Fraction(1, 3)
    found = certify_inputs(NETWORK, INPUTS, eps, deployed="float32", local=True)
    return found, seen, eps


@pytest.mark.parametrize("winner", [0, 1, 2])
def test_another_winner_certifies_nothing_of_a_program(monkeypatch, winner):
    """The errors that are taken off are those of the leads of the class that the enclosure names."""
    plain = certify_inputs(NETWORK, INPUTS, Fraction(1, 3), deployed="float32")
    found, _, _ = certified_locally(monkeypatch, winner)
    assert (found.argmax == plain.argmax).all()
    assert (found.certified == (plain.certified | (plain.argmax == winner))).all()
    assert (found.argmax != winner).any()


def test_the_errors_of_a_program_are_those_at_eps(monkeypatch):
    _, seen, eps = certified_locally(monkeypatch, 0)
    assert seen
    job = verification_job(NETWORK, None, 1, "float32")
    deployment, still = job.deployment(), []
    for asked, deductions in seen:
        assert asked == eps
        assert (deductions >= 0).all()
        still.append(deductions)
    monkeypatch.undo()
    # What grows with eps is taken off, too: at eps = 0 there is less of it, for every input.
    right = type(deployment).errors_at
    monkeypatch.setattr(type(deployment), "errors_at", lambda self, d, _, w: right(self, d, 0.0, w))
    _, less, _ = certified_locally(monkeypatch, 0)
    for (_, small), large in zip(less, still, strict=False):
        assert (small < large).any()
