"""Duals of graphs: MinMax, convolutions, residuals, windows. Never wrong, and near the truth on both sides."""

from dataclasses import replace
from fractions import Fraction

import graph_networks
import numpy as np
import pytest
from graph_networks import KINDS, Truth, some_inputs

from intervalcert import Network, certify_inputs, compute_bounds
from intervalcert.backends.registry import get_backend, precision_ladder
from intervalcert.errors import InconclusiveError
from intervalcert.model.evaluation import Evaluators
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.proof import graph_dual
from intervalcert.proof.graph_dual import Convexity, GraphDualChecker
from intervalcert.proof.graph_local import Site
from intervalcert.proof.hinges import DualPoint, DualWitness, Goal
from intervalcert.proof.unit_vectors import NearValues
from intervalcert.verify.branching import Budgets
from intervalcert.verify.complete import CompleteVerifier
from intervalcert.verify.duals import GraphDuals


def edge(network, truth, x):
    """Floats between which the distance to the nearest other winner is, as far as attacks tell; None if it is far."""
    logits = truth.logits(x)
    winner = logits.index(max(logits))
    low, high = 0.0, 4.0
    if truth.flip(x, Fraction(high), winner) is None or sorted(logits)[-2] == max(logits):
        return None
    while high - low > 1e-3 * high:
        middle = (low + high) / 2
        if truth.flip(x, Fraction(middle), winner, count=12) is None:
            low = middle
        else:
            high = middle
    return low, high


@pytest.mark.parametrize("kind", KINDS)
def test_graphs_are_decided_on_both_sides_of_the_edge(kind):
    """What an attack does not break 3 % below the edge is certified, what it breaks is not; never the wrong way."""
    counts = {"certified": 0, "falsified": 0, "unknown": 0}
    for seed in range(3):
        network = graph_networks.drawn(kind, seed)
        truth, bounds = Truth(network), compute_bounds(network, "float64")
        for x in some_inputs(seed, 2, 2):
            between = edge(network, truth, x)
            if between is None:
                continue
            winner = truth.logits(x).index(max(truth.logits(x)))
            low, high = map(Fraction, between)
            for eps in (low / 2, low * Fraction(97, 100), high * Fraction(103, 100)):
                inputs = np.array([[float(a) for a in x]]).reshape(1, *(network.shape or (2,)))
                (found,) = certify_inputs(network, inputs, eps, bounds=bounds, complete=True)
                counts[found.status] += 1
                if found.status == "certified":
                    assert found.argmax == winner
                    assert truth.flip(x, eps, winner, seed=1, count=60) is None, (seed, x, eps)
                elif found.status == "falsified":
                    u = [a + Fraction(d) for a, d in zip(x, found.counterexample.delta.ravel().tolist(), strict=True)]
                    assert truth.changes(x, u, eps, found.argmax)
    assert counts["unknown"] <= 1, counts
    assert min(counts["certified"], counts["falsified"]) > 0, counts


# -- the proof -------------------------------------------------------------------------------------------------------


class Made:
    """A point of a graph, and duals that are proved there."""

    def __init__(self, kind, seed, part=0.8, number=0):
        self.network, self.kind = graph_networks.drawn(kind, seed), kind
        self.truth = Truth(self.network)
        self.at = some_inputs(seed, 2, 4)[number]
        self.edge = edge(self.network, self.truth, self.at)
        self.eps = Fraction(self.edge[0] * part)
        self.x = RationalMatrix.from_fractions([[a] for a in self.at])
        self.norms = [layer.upper for layer in compute_bounds(self.network, "float64", margins="product").layers]
        nothing = [[Fraction(10**9)] * 3 for _ in range(3)]  # margins that settle no class
        evaluators, ladder = Evaluators(self.network, self.norms), precision_ladder("auto")
        verifier = CompleteVerifier(self.network, self.norms, nothing, ladder, evaluators)
        assert isinstance(verifier._duals, GraphDuals)
        pursuits = verifier._pursued(self.x, self.eps, Budgets().begun(), None, None)
        self.case = pursuits._case
        climbed = [each for each in pursuits._left if each.climbs((1e-4, 1e-5, 1e-6), 40)]
        self.found = [each._root.proved for each in climbed]
        self.pursuits = pursuits

    def proves(self, name="float64", which=0, **other):
        found = self.found[which]
        given = {"witness": found.witness, "steps": found.steps, "at": found.at} | other
        checker = GraphDualChecker(self.network, get_backend(name), self.norms)
        near, ranges = given.pop("near", self.case._proved), given.pop("ranges", self.case.ranges)
        eps = given.pop("eps", self.eps)
        try:
            checker.check(given.pop("witness"), given.pop("steps"), given.pop("at"), near, ranges, eps, **given)
        except InconclusiveError:
            return False
        return True


SOME = [
    ("residuals", 0, 0),
    ("pairs", 4, 0),
    ("fours", 5, 1),
    ("clipped residuals", 3, 0),
    ("windows of two", 5, 3),
    ("leaky convolutions", 2, 2),
]


@pytest.fixture(scope="module", params=SOME, ids=lambda each: each[0])
def made(request):
    kind, seed, number = request.param
    found = Made(kind, seed, number=number)
    assert len(found.found) == 2
    assert bending(found.found[0].witness)
    return found


def bending(witness):
    """Places (site, hinge, neuron) of all variables."""
    return [
        (site, hinge, k)
        for site, of_site in enumerate(witness.numbers)
        for hinge, numbers in enumerate(of_site)
        for k in np.flatnonzero(numbers[0] > 0).tolist()
    ]


def changed(witness, place, row, value):
    site, hinge, k = place
    numbers = [list(each) for each in witness.numbers]
    array = np.array(numbers[site][hinge])
    array[row, k] = value
    numbers[site][hinge] = array
    return replace(witness, numbers=tuple(map(tuple, numbers)))


@pytest.mark.parametrize("name", ["float64", "arb"])
def test_a_good_dual_is_proved(made, name):
    assert all(made.proves(name, which) for which in range(len(made.found)))


def test_what_is_no_dual_is_refused(made):
    witness, steps, at = made.found[0].witness, made.found[0].steps, made.found[0].at
    place = bending(witness)[0]
    for row in range(2, 6):
        assert not made.proves(witness=changed(witness, place, row, -1e-3))
    for row, value in ((0, -1.0), (0, np.nan), (0, np.inf), (1, 2.0), (6, 1.0), (0, 0.0)):
        assert not made.proves(witness=changed(witness, place, row, value))
    for gamma in (0.0, -1.0, np.nan, np.inf):
        assert not made.proves(witness=replace(witness, gamma=gamma))
    assert not made.proves(eps=-made.eps)
    assert not made.proves(eps=made.eps * 100)
    assert not made.proves(above=Fraction(1000))
    assert not made.proves(ranges=made.case.ranges[:-1])
    sites = len(made.case.ranges)
    for goal in (Goal(sites, 0, 0), Goal(sites, -1, -1), Goal(sites, 3, 0), Goal(sites + 1, 0, 1), Goal(-1, 0, 1)):
        assert not made.proves(witness=replace(witness, goal=goal))
    for other in (
        replace(steps, e=0.0),
        replace(steps, e=-steps.e),
        replace(steps, e=np.nan),
        replace(steps, factor=steps.factor * 1.1),
        replace(steps, factor=steps.factor[:-1, :-1]),
        replace(steps, factor=steps.factor[0]),
        replace(steps, scales=-steps.scales),
        replace(steps, scales=steps.scales[:1]),
        replace(steps, scales=0 * steps.scales),
    ):
        assert not made.proves(steps=other)
    for delta in (at.delta[:1], at.delta * np.nan, at.delta + 100.0):
        assert not made.proves(at=replace(at, delta=delta))
    near = made.case._proved
    assert not made.proves(near=replace(near, sites=near.sites[:-1]))
    assert not made.proves(near=replace(near, logits=(near.logits[0] - 100, near.logits[1] + 100)))
    assert not made.proves(near=replace(near, logits=(near.logits[0] * np.nan, near.logits[1])))


def test_what_a_shaken_dual_proves_is_true(made):
    """At radii far beyond the truth, with ranges that hold there: whatever is claimed is not refuted by an attack."""
    rng, proved = np.random.default_rng(1), {True: 0, False: 0}
    logits = made.truth.logits(made.at)
    winner = logits.index(max(logits))
    for found in made.found:
        for part in (0.5, 0.9, 1.2, 3.0):
            eps = Fraction(made.edge[1] * part)
            wide = [(low - 100 * float(eps), high + 100 * float(eps)) for low, high in made.case.ranges]
            near = made.case._proved
            if near.contenders:  # those hold for the eps of the case alone
                wide, eps = made.case.ranges, min(eps, made.eps)
            for _ in range(6):
                numbers = tuple(tuple(shaken(each, rng) for each in of_site) for of_site in found.witness.numbers)
                gamma = found.witness.gamma * float(np.exp(rng.normal() / 2))
                witness = replace(found.witness, numbers=numbers, gamma=gamma)
                ranges = made.case.ranges if part == 0.5 else wide
                holds = made.proves(witness=witness, ranges=ranges, eps=eps)
                proved[holds] += 1
                if holds and part > 1:
                    assert made.truth.flip(made.at, eps, winner, count=60) is None
    assert sum(proved.values()) > 10


def shaken(numbers, rng):
    made, some = np.array(numbers), numbers[0] > 0
    made[[0, 2, 3, 4, 5]] *= np.exp(rng.normal(size=(5, made.shape[1])) / 8)
    made[1, some] = np.minimum(made[1, some], np.floor(2.0**20 * (made[0] + made[2])[some] / made[0][some]) / 2.0**21)
    return made


LINE = Network.from_arrays([np.ones((1, 1)), np.array([[0.0], [1.0]])], [np.zeros(1), np.array([1.0, 0.0])])
"""The lead of class 0 over class 1 is 1 - max(u, 0): at 0 it is 1, at 1 there is a tie."""


def on_the_line(gamma, delta, y, scale=1.0, eps=Fraction(2), reach=2.0, alpha=1.0, splits=None):
    """Whether it is proved that class 0 leads within eps of 0, with α, M = 1/2 and γ alone; then it is by Φ(δ, y)."""
    zero = np.zeros(1)
    function = LINE.layers[0].activation.piecewise_linear
    site = Site((0, 0), function, (zero, zero), np.array([reach]))
    near = NearValues([site], (np.array([1.0, 0.0]), np.array([1.0, 0.0])), {})
    numbers = np.array([[alpha], [0.5], [0.0], [0.0], [0.0], [0.0], [0.0]])
    witness = DualWitness(Goal(1, 0, 1), gamma, ((numbers,),))
    h = np.array([[gamma, -alpha / 2], [-alpha / 2, alpha]])
    e = 2.0**-30
    try:
        factor = np.linalg.cholesky(h - 2 * e * np.eye(2))
    except np.linalg.LinAlgError:
        factor = np.linalg.cholesky(h + np.eye(2))
    steps = Convexity(factor * scale, np.ones(2), e)
    at = DualPoint(np.array([delta]), ((np.array([y]),),))
    checker = GraphDualChecker(LINE, get_backend("exact"), [Fraction(1), Fraction(1)])
    try:
        checker.check(witness, steps, at, near, [(zero - reach, zero + reach)], eps, splits=splits)
    except InconclusiveError:
        return False
    return True


def test_without_its_checks_it_would_prove_what_is_false():
    """Controls. Φ = 1 - y + γ(δ² - 4) + (y - δ/2)² - δ²/4; at γ = 1/8 it has no least value."""
    assert on_the_line(1.0, 1 / 3, 2 / 3, eps=Fraction(1, 2), reach=0.5), "what is true is proved"
    assert not on_the_line(0.125, -2.0, -0.5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph_dual._CheckedForm, "check_convex", lambda *_: None)
        assert on_the_line(0.125, -2.0, -0.5), "convexity"
    assert not on_the_line(1.0, 1e3, 0.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(graph_dual._CheckedForm, "_correction", lambda self, *_: self._backend.scalar(Fraction(0)))
        assert on_the_line(1.0, 1e3, 0.0), "the gradient"


def test_masked_arrays_are_read_as_what_they_hold():
    """A mask would hide negative multipliers from the check that looks for them, and not from the sums."""
    zero = np.zeros(1)
    numbers = np.array([[1.0], [0.5], [0.0], [-2.0], [-2.0], [-1.0], [0.0]])
    mask = np.zeros((7, 1), dtype=bool)
    mask[3:6] = True
    witness = DualWitness(Goal(1, 0, 1), 2.0, ((np.ma.masked_array(numbers, mask),),))
    (kept,) = witness.numbers[0]
    assert type(kept) is np.ndarray
    assert not kept.flags.writeable
    function = LINE.layers[0].activation.piecewise_linear
    site = Site((0, 0), function, (zero, zero), np.array([2.0]))
    near = NearValues([site], (np.array([1.0, 0.0]), np.array([1.0, 0.0])), {})
    h, e = np.array([[2.0, -0.5], [-0.5, 1.0]]), 2.0**-30
    steps = Convexity(np.linalg.cholesky(h - 2 * e * np.eye(2)), np.ones(2), e)
    at = DualPoint(np.array([-2.0]), ((np.array([-2.0]),),))
    checker = GraphDualChecker(LINE, get_backend("exact"), [Fraction(1), Fraction(1)])
    for ranges in ([], [(zero - 2, zero + 2)] * 2):
        with pytest.raises(InconclusiveError):
            checker.check(witness, steps, at, near, ranges, Fraction(2))
    with pytest.raises(InconclusiveError, match="other sites"):
        checker.check(witness, steps, at, near, [(zero - 2, zero + 2)] * 2, Fraction(2))
    with pytest.raises(InconclusiveError, match="wrong sign"):
        checker.check(witness, steps, at, near, [(zero - 2, zero + 2)], Fraction(2))


def test_windows_with_one_contender_each_have_a_dual():
    """Then there is nothing that bends, and the lead is linear: the edge is decided to many digits."""
    window = graph_networks.Window.padded((1, 4), (1, 2), (1, 2))
    found = set()
    for seed in range(8):
        rng = np.random.default_rng(seed)
        terms = [
            (graph_networks.Term(-1, graph_networks.dense(rng, 4, 2, (2,), (1, 1, 4))),),
            (graph_networks.Term(0, graph_networks.dense(rng, 3, 2, (1, 1, 2))),),
        ]
        network = graph_networks.network_of(rng, terms, [graph_networks.MaxPool.of(1, window).name])
        for x in some_inputs(seed, 2, 2):
            inputs = np.array([[float(a) for a in x]])
            for eps in ("1/1000", "1/4", "1/2"):
                (verdict,) = certify_inputs(network, inputs, eps, complete=True)
                assert not verdict.fault
                found.add(verdict.status)
    assert found >= {"certified", "falsified"}


def test_a_neuron_without_weights_at_its_kink_does_not_end_the_search():
    """Through the graph floats find no chain for it; by layers they do."""
    first = [[0.25, 0.0], [0.3125, 0.0], [0.375, 0.0], [0.0625, 0.0], [0.125, 0.0], [0.0, 0.0]]
    second = [[2.0, -0.25, 0.5, -0.75, 1.25, -0.5], [-1.25, 0.25, 2.0, -1.0, 1.75, -2.0]]
    second += [[2.0, 2.0, 0.75, -0.25, -2.0, -1.25], [-1.0, -1.0, -1.0, -1.0, -0.25, 1.5]]
    second += [[-0.75, 2.0, -1.25, 1.75, -0.25, -1.0]]
    third = [[0.75, 1.5, 0.25, 1.5, 1.5], [0.25, 1.0, 1.25, 0.75, 0.5], [2.0, 1.75, 0.25, 1.5, 1.75]]
    biases = [[1.0, -0.875, -0.125, 0.125, -0.375, 1.0], [-1.0, 0.5, 0.375, 0.75, -0.625], [0.75, -0.125, -0.625]]
    network = Network.from_arrays([first, second, third], biases, between="clip:-1:1")
    (verdict,) = certify_inputs(network, np.array([[1.578125, 0.65625]]), "2457/2176", complete=True)
    assert verdict.fault == ""
    assert verdict.certified
