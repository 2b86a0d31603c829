"""Every point decided: certified by a dual, falsified by a counterexample. Never wrong, and seldom open."""

import json
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from commands import ran
from regions import logits_at, nearest_change, winner_at

from intervalcert import Network, UsageError, certify_inputs, compute_bounds, save_model
from intervalcert.backends.registry import backend_names, get_backend, precision_ladder
from intervalcert.errors import InconclusiveError, UndecidedError
from intervalcert.model.evaluation import Evaluators
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.proof import dual as proof_module
from intervalcert.proof.counterexample import Counterexample, check_counterexample
from intervalcert.proof.dual import DualChecker, has_dual
from intervalcert.proof.hinges import DualPoint, DualWitness, Goal
from intervalcert.search.dual import ChainForm
from intervalcert.search.dual_witness import ChainLayout
from intervalcert.search.hinges import Bends
from intervalcert.verify import duals
from intervalcert.verify.branching import Budgets
from intervalcert.verify.complete import CompleteVerifier

FEW = duals.FEW
HINGES = {
    "relu": (Fraction(0), Fraction(1), Fraction(0)),
    "leaky_relu:1/4": (Fraction(1, 4), Fraction(3, 4), Fraction(0)),
    "leaky_relu:-1/2": (Fraction(-1, 2), Fraction(3, 2), Fraction(0)),
    "clip:1/2:inf": (Fraction(0), Fraction(1), Fraction(1, 2)),
}
"""Slope, weight and kink; a clip has its lower end for an offset, which the truth takes into the next bias."""


def drawn(seed, kind="relu", sizes=(2, 4, 3, 3)):
    """(network, layers as lists of fractions)."""
    random = Random(seed)
    layers = []
    for inputs, outputs in pairwise(sizes):
        weights = [[Fraction(random.randint(-8, 8), 4) for _ in range(inputs)] for _ in range(outputs)]
        layers.append((weights, [Fraction(random.randint(-8, 8), 8) for _ in range(outputs)]))
    arrays = [np.array([[float(x) for x in row] for row in weights]) for weights, _ in layers]
    network = Network.from_arrays(arrays, [[float(x) for x in bias] for _, bias in layers], between=kind)
    if kind.startswith("clip"):  # the least value of the function is no zero
        low = HINGES[kind][2]
        for weights, bias in layers[1:]:
            bias[:] = [b + low * sum(row) for row, b in zip(weights, bias, strict=True)]
    return network, layers


def point(random):
    return [Fraction(random.randint(-64, 64), 32) for _ in range(2)]


@pytest.mark.parametrize("kind", HINGES)
def test_the_truth_about_small_networks(kind):
    """Certified only if no other winner is within eps, falsified only if one is."""
    statuses = {"certified": 0, "falsified": 0, "unknown": 0}
    methods = set()
    for seed in range(3):
        random = Random(1000 + seed)
        network, layers = drawn(seed, kind)
        bounds = compute_bounds(network, "float64")
        for _ in range(3):
            x = point(random)
            truth = nearest_change(layers, HINGES[kind], x)
            edge = Fraction(1) if truth is None else Fraction(float(truth) ** 0.5)
            for part in (Fraction(1, 2), Fraction(99, 100), Fraction(101, 100), Fraction(2)):
                eps = edge * part + (0 if edge else part)
                (found,) = certify_inputs(network, np.array([list(map(float, x))]), eps, bounds=bounds, complete=True)
                within = truth is not None and truth <= eps**2
                assert found.status == "unknown" or found.status == ("falsified" if within else "certified"), (seed, x)
                statuses[found.status] += 1
                methods.add(found.method)
                if found.status == "falsified":
                    there = [a + Fraction(d) for a, d in zip(x, found.counterexample.delta.tolist(), strict=True)]
                    logits, j = logits_at(layers, HINGES[kind], there), winner_at(layers, HINGES[kind], x)
                    assert sum((a - b) ** 2 for a, b in zip(there, x, strict=True)) <= eps**2
                    assert (found.counterexample.winner, found.argmax) == (j, j)
                    assert logits[found.counterexample.other] >= logits[j]
    assert methods >= {"split", "attack"}
    assert statuses["unknown"] <= 1


# -- the search ------------------------------------------------------------------------------------------------------


def form(seed):
    """Two layers of hinges, one neuron with two of them, and positive multipliers at which Φ is convex."""
    rng = np.random.default_rng(seed)
    weights, sites = [], []
    for inputs, outputs, neuron, cut in ((4, 5, [0, 1, 3, 3], [4]), (5, 4, [0, 2, 3], [1, 1])):
        at = rng.normal(size=len(neuron))
        weights.append(rng.normal(size=(outputs, inputs)) / 2)
        sites.append(
            Bends(
                rng.uniform(0, 1, outputs),
                np.array(neuron),
                rng.choice([1.0, -0.5, 0.75], len(neuron)),
                at,
                np.minimum(at, 0) - rng.uniform(0.5, 2, len(neuron)),
                np.maximum(at, 0) + rng.uniform(0.5, 2, len(neuron)),
                np.array(cut),
                rng.choice([1.0, -1.0], len(cut)),
                rng.normal(size=len(cut)),
            )
        )
    made = ChainForm([*weights, np.eye(4)], sites, weights[0] @ weights[0].T, 0.3)
    parts = [np.array([200.0])]
    for site in sites:
        alpha = rng.uniform(10, 30, site.count)
        rest = np.exp(rng.normal(size=(3, site.count)))
        parts.append(np.concatenate([[alpha, alpha * 0.1, alpha * rng.uniform(0.6, 1.1, site.count)], rest]).ravel())
        parts.append(rng.uniform(0.5, 1, len(site.cut)))
    return made, np.concatenate(parts), rng.normal(size=4)


def test_derivatives_of_what_stays_on_one_side():
    """Its multiplier makes the form more convex, and its term is that of the range."""
    made, at, direction = form(0)
    site = made.sites[0]
    stays = replace(site, still=np.array([1, 2]), edge=np.array([0.7, -0.4]), still_at=np.array([0.3, -0.1]))
    more = ChainForm([*made._weights], [stays, made.sites[1]], made._gram, 0.3)
    start = 1 + site.size
    at = np.concatenate([at[:start], [2.0, 3.0], at[start:]])
    found, mu = more.solved(at, direction, 1.0, 1e-2), 1e-2
    for k in (start, start + 1):
        step = 2e-2 * np.eye(len(at))[k]
        up, down = (more.solved(at + sign * step, direction, 1.0, mu) for sign in (1, -1))
        heights = [each.value + mu * each.log_det for each in (up, down)]
        now = found.value + mu * found.log_det
        assert (heights[0] - heights[1]) / 4e-2 == pytest.approx(found.gradient[k], rel=1e-4)
        assert -(heights[0] + heights[1] - 2 * now) / 4e-4 == pytest.approx(found.curvature[k], rel=1e-2)


@pytest.mark.parametrize("seed", range(3))
def test_derivatives_are_those_of_differences(seed):
    """Of the least value and of log det; the second ones of neurons with one hinge, which are exact."""
    made, at, direction = form(seed)
    mu = 1e-2

    def height(multipliers):
        found = made.solved(multipliers, direction, 1.0, mu)
        return found.value + mu * found.log_det

    found, steps = made.solved(at, direction, 1.0, mu), 1e-4 * at
    sides = [(height(at + e), height(at - e)) for e in np.diag(steps)]
    slopes = np.array([(up - down) / (2 * h) for (up, down), h in zip(sides, steps, strict=True)])
    assert np.abs(slopes - found.gradient).max() <= 1e-5 * np.abs(found.gradient).max()
    curves = np.array([-(up + down - 2 * height(at)) / h**2 for (up, down), h in zip(sides, steps, strict=True)])
    assert np.abs(curves[0] - found.curvature[0]) <= 1e-2 * np.abs(curves[0])
    assert np.median(np.abs(curves - found.curvature) / (np.abs(curves) + 1e-6)) <= 1e-2


def test_a_form_without_a_least_value_is_said():
    made, at, direction = form(0)
    for site, part in zip(made.sites, made.parts(at), strict=True):  # views
        site.split(part)[0][2] = 1e-9  # λ3 next to nothing, and the distance costs nothing
    with pytest.raises(np.linalg.LinAlgError):
        made.solved(np.concatenate([[1e-6], at[1:]]), direction, 1.0, 0.0)


# -- the proof -------------------------------------------------------------------------------------------------------


class Case:
    """A dual that is proved, and all that it takes. truth: the squared distance of the nearest other winner."""

    def __init__(self, seed, part=Fraction(1, 2), sizes=(2, 4, 3, 3)):
        self.network, self.layers = drawn(seed, sizes=sizes)
        self.at = point(Random(seed))
        self.truth = nearest_change(self.layers, HINGES["relu"], self.at)
        self.x = RationalMatrix.from_fractions([[a] for a in self.at])
        self.eps = Fraction(float(self.truth) ** 0.5) * part
        bounds = compute_bounds(self.network, "float64", margins="product")
        self.norms = [layer.upper for layer in bounds.layers]
        nothing = [[Fraction(10**9)] * 3 for _ in range(3)]  # margins that settle no class
        evaluators = Evaluators(self.network, self.norms)
        self.verifier = CompleteVerifier(self.network, self.norms, nothing, precision_ladder("auto"), evaluators)
        pursuits = self.verifier._pursued(self.x, self.eps, Budgets().begun(), None, None)
        self.case = pursuits._case
        climbed = [each for each in pursuits._left if each.climbs((1e-4, 1e-5, 1e-6), 40)]
        self.found = [each._root.proved for each in climbed]

    def steps(self, witness):
        return self.verifier._duals._layout.steps(witness, None, np.zeros(0))

    def proves(self, name="exact", which=0, **other):
        found = self.found[which]
        given = {"witness": found.witness, "at": found.at, "ranges": self.case.ranges, "eps": self.eps} | other
        try:
            steps = given.pop("steps") if "steps" in given else self.steps(given["witness"])
        except (np.linalg.LinAlgError, FloatingPointError):  # floats find none
            return False
        checker = DualChecker(self.network, get_backend(name), self.norms)
        more = {key: given.pop(key) for key in ("above", "splits") if key in given}
        witness, at, ranges, eps = (given[key] for key in ("witness", "at", "ranges", "eps"))
        try:
            checker.check(witness, steps, at, self.x, ranges, eps, **more)
        except InconclusiveError:
            return False
        return True


@pytest.fixture(scope="module", autouse=True)
def layered():
    """Chains of any size have duals by layers here. (Those of the one form of a graph: test_graph_dual.py.)"""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(duals, "FEW", 0)
        yield


@pytest.fixture(scope="module")
def cases(layered):
    made = [Case(3), Case(34), Case(16)]
    assert all(len(each.found) == 2 for each in made)
    return made


@pytest.fixture(scope="module")
def case(cases):
    return cases[0]


@pytest.mark.parametrize("name", backend_names())
def test_a_good_dual_is_proved(case, name):
    for which in range(len(case.found)):
        assert case.proves(name, which)


def changed(witness, layer, change):
    numbers = [list(hinges) for hinges in witness.numbers]
    made = np.array(numbers[layer][0])
    change(made)
    numbers[layer][0] = made
    return replace(witness, numbers=tuple(map(tuple, numbers)))


def bending(case, layer):
    return np.flatnonzero(case.found[0].witness.numbers[layer][0][0] > 0)


def test_what_is_no_dual_is_refused(case):
    """With the steps of the good one: each refusal is about the numbers themselves."""
    witness, at = case.found[0].witness, case.found[0].at
    steps = case.steps(witness)
    layer = next(k for k in range(2) if len(bending(case, k)))
    k = bending(case, layer)[0]

    def refuses(change, **other):
        assert not case.proves(witness=changed(witness, layer, change), steps=steps, **other)

    for row in range(2, 6):
        refuses(lambda made, row=row: made.__setitem__((row, k), -1e-3))
    refuses(lambda made: made.__setitem__((0, k), -1.0))
    refuses(lambda made: made.__setitem__((0, k), np.nan))
    refuses(lambda made: made.__setitem__((1, k), 2.0))  # λ2 < 0
    refuses(lambda made: made.__setitem__((6, k), 1.0))  # a halfspace of none
    refuses(lambda made: made.__setitem__((slice(0, 6), k), 0.0))  # taken for a line or for zero
    refuses(lambda made: (made.__setitem__((slice(0, 6), k), 0.0), made.__setitem__((1, k), 1.0)))
    assert not case.proves(witness=replace(witness, gamma=0.0), steps=steps)
    assert not case.proves(witness=replace(witness, gamma=float("nan")), steps=steps)
    winner = case.case.winner
    for plus, minus in ((winner, winner), (winner, 3), (3, winner), (-2, winner), (-1, -1), (True, 0)):
        assert not case.proves(witness=replace(witness, goal=Goal(2, plus, minus)), steps=steps)
    for site in (-1, 0, 1, 3, True):
        assert not case.proves(witness=replace(witness, goal=witness.goal._replace(site=site)), steps=steps)
    assert not case.proves(eps=-case.eps)
    assert not case.proves(above=Fraction(100))
    assert not case.proves(steps=steps[:1])
    kept = np.ones(len(steps[0].kept))
    for drop, gain in ((kept, np.zeros((len(kept), len(kept)))), (kept[:1], steps[0].gain), (-kept, steps[0].gain)):
        assert not case.proves(steps=(replace(steps[0], drop=drop, gain=gain), steps[1]))
    assert not case.proves(steps=(replace(steps[0], gain=np.zeros((len(kept), 7))), steps[1]))
    assert not case.proves(steps=(steps[0], replace(steps[1], exponent=steps[1].exponent + 40)))
    assert not case.proves(at=replace(at, delta=at.delta[:1]))
    assert not case.proves(at=replace(at, delta=at.delta + 0.5)), "a point far from the least value proves little"
    wide = [(low - 50, high + 50) for low, high in case.case.ranges]
    assert case.proves(ranges=wide) in (True, False)
    assert not case.proves(ranges=case.case.ranges[:1])


def shaken(witness, random):
    """Multipliers times something, M where λ2 is not negative."""
    numbers = []
    for (hinge,) in witness.numbers:
        made, some = np.array(hinge), hinge[0] > 0
        made[[0, 2, 3, 4, 5]] *= np.exp(random.normal(size=(5, made.shape[1])) / 4)
        made[1, some] = np.minimum(
            made[1, some], np.floor(2.0**20 * (made[0] + made[2])[some] / made[0][some]) / 2.0**21
        )
        numbers.append((made,))
    return replace(witness, numbers=tuple(numbers), gamma=witness.gamma * float(np.exp(random.normal())))


def test_what_a_shaken_dual_proves_is_true(cases):
    """At all radii up to far beyond the truth, with ranges that hold there: a claim is about one class alone."""
    proved = {True: 0, False: 0}
    for seed, made in enumerate(cases):
        random = np.random.default_rng(seed)
        j = winner_at(made.layers, HINGES["relu"], made.at)
        for found in made.found:
            truth = nearest_change(made.layers, HINGES["relu"], made.at, found.witness.goal.minus)
            for part in (Fraction(1, 4), Fraction(1, 2), Fraction(9, 10), Fraction(11, 10), Fraction(3)):
                eps = Fraction(float(made.truth) ** 0.5) * part
                radius = float(eps) * 1.01
                wide = [(low - radius * 50, high + radius * 50) for low, high in made.case.ranges]
                for witness in (found.witness, *(shaken(found.witness, random) for _ in range(3))):
                    ranges = made.case.ranges if part <= Fraction(1, 2) else wide
                    holds = made.proves(witness=witness, at=found.at, ranges=ranges, eps=eps)
                    proved[holds] += 1
                    assert not holds or truth is None or truth > eps**2, (j, found.witness.goal, eps)
    assert min(proved.values()) > 10


LINE = Network.from_arrays([np.ones((1, 1)), np.array([[0.0], [1.0]])], [np.zeros(1), np.array([1.0, 0.0])])
"""The lead of class 0 over class 1 is 1 - max(u, 0): at 0 it is 1, at 1 there is a tie."""

LAYOUT = ChainLayout([np.ones((1, 1)), np.array([[0.0], [1.0]])], [LINE.layers[0].activation.piecewise_linear])


def on_the_line(gamma, delta, reach=2.0, eps=2, alpha=1.0, middle=0.5):
    """Whether it is proved that class 0 leads within eps of 0: with α, M and γ alone, D = α·M², ν = 1/2."""
    numbers = np.array([[alpha], [middle], [0.0], [0.0], [0.0], [0.0], [0.0]])
    witness = DualWitness(Goal(1, 0, 1), gamma, ((numbers,),))
    at = DualPoint(np.array([delta]), ((np.array([0.5]),),))
    try:
        steps = LAYOUT.steps(witness, None, np.zeros(0))
    except np.linalg.LinAlgError:
        steps = ()
    try:
        DualChecker(LINE, get_backend("exact"), [Fraction(1), Fraction(1)]).check(
            witness,
            steps or (None,),
            at,
            RationalMatrix.filled((1, 1), Fraction(0)),
            [(np.array([-reach]), np.array([reach]))],
            Fraction(eps),
        )
    except (InconclusiveError, AttributeError):
        return False
    return True


def test_without_its_checks_it_would_prove_what_is_false():
    """Controls: Φ = 1 - y + γ(δ² - 4) + ν² - δ²/4 has a saddle with a value of 3/4 at γ = 1/8, and grows with δ."""
    assert on_the_line(1.0, 1 / 3, reach=0.5, eps="1/2"), "what is true is proved"
    assert not on_the_line(0.125, -2.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DualChecker, "_check_convex", lambda *_: None)
        assert on_the_line(0.125, -2.0), "convexity, of the last hidden layer too"
    assert not on_the_line(1.0, 1e3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DualChecker, "_correction", lambda self, *_: self._backend.scalar(Fraction(0)))
        assert on_the_line(1.0, 1e3), "the gradient"
    assert not on_the_line(0.25 + 2.0**-34, -2.0), "K > 0 for what is left of the distance without η"
    assert not on_the_line(1.0, 1 / 3, reach=0.5, eps="1/2", middle=0.75), "λ2 is negative"


def test_a_layer_beyond_which_nothing_changes_has_nothing_free(case):
    """Else the hinges behind it would be free variables that nobody proved to be bounded."""
    witness, at = case.found[0].witness, case.found[0].at
    dead = changed(witness, 0, lambda made: made.__setitem__(slice(None), 0.0))
    below = np.full(4, -2.0), np.full(4, -1.0)
    still = replace(at, nu=((np.zeros(4),), at.nu[1]))
    steps = case.steps(dead)
    checker = DualChecker(case.network, get_backend("exact"), case.norms)

    def convexity(witness, nu, second):
        ranges = [below, second]
        hinges = [checker._hinges(k, witness.numbers[k], nu[k], ranges[k], {}) for k in range(2)]
        checker._check_convex(Fraction(witness.gamma), hinges, steps)

    assert not len(steps[0].kept)
    assert len(bending(case, 1))
    with pytest.raises(UndecidedError, match="of which nothing that changes is known"):
        convexity(dead, still.nu, case.case.ranges[1])
    nothing = changed(dead, 1, lambda made: made.__setitem__(slice(None), 0.0))
    convexity(nothing, ((np.zeros(4),), (np.zeros(3),)), (np.full(3, -2.0), np.full(3, -1.0)))


def test_what_is_scaled_is_never_less():
    """Also where floats end: a spread that vanished would be a change that nobody counts."""
    x = np.array([0.0, 2.0**-1074, 3 * 2.0**-1074, 1.0, 1e308])
    for exponent in (-2000, -1080, -1, 0, 3):
        found = proof_module._scaled_up(x, exponent)
        assert not found[0]
        for a, b in zip(x[1:].tolist(), found[1:].tolist(), strict=True):
            assert b == np.inf or Fraction(b) >= Fraction(a) * Fraction(2) ** exponent


@pytest.mark.parametrize("beta", [0.0, 0.25])
def test_halfspaces(beta):
    """The lead 1 - max(u, 0) is 1 where u <= 0, at any distance; and falls beyond 1 where u >= 0."""
    checker = DualChecker(LINE, get_backend("exact"), [Fraction(1), Fraction(1)])
    ends = [(np.array([-2.0]), np.array([2.0]))]

    def proves(sign, splits, middle, split=None, gamma=2.0**-6):
        numbers = np.zeros((7, 1))
        numbers[1], numbers[6] = middle, sign * beta if split is None else split
        witness = DualWitness(Goal(1, 0, 1), gamma, ((numbers,),))
        delta = np.array([(middle - numbers[6, 0]) / (2 * gamma)])  # where the gradient is zero
        at = DualPoint(delta, ((np.zeros(1),),))
        x = RationalMatrix.filled((1, 1), Fraction(0))
        steps = LAYOUT.steps(witness, None, np.zeros(0))
        try:
            checker.check(witness, steps, at, x, ends, Fraction(2), splits=splits)
        except InconclusiveError:
            return False
        return True

    assert proves(1, {(0, 0, 0): 1}, 0.0, gamma=2.0**-4)
    assert proves(1, {(0, 0, 0): 1}, 0.0, 0.0)
    assert not proves(-1, {(0, 0, 0): -1}, 1.0), "the other half falls"
    assert not proves(1, {}, 0.0, 0.0), "without the halfspace the hinge may bend"
    assert not proves(1, {(0, 0, 0): 1}, 1.0, 0.0), "a line in the half where it is zero"
    assert not proves(1, {(0, 0, 0): 1}, 0.0, -0.25), "on the wrong side"
    assert not proves(1, {(0, 0, 0): 2}, 0.0, 0.0)
    assert not proves(1, {(0, 0, -1): 1}, 0.0, 0.0)
    assert not proves(1, {(0, 0, 1): 1}, 0.0, 0.0)
    assert not proves(1, {(1, 0, 0): 1}, 0.0, 0.0), "of another layer"


# -- counterexamples -------------------------------------------------------------------------------------------------


def judged(delta, winner, other, eps, x=(Fraction(0), Fraction(0))):
    """For y = (u_0, u_1): class 0 wins on one side of the diagonal."""
    network = Network.from_arrays([np.eye(2)])
    evaluators = Evaluators(network, [Fraction(1)])
    found = Counterexample(np.array(delta), winner, other)
    column = RationalMatrix.from_fractions([[a] for a in x])
    try:
        return check_counterexample(found, column, Fraction(eps), 2, evaluators.finer(precision_ladder("auto")))
    except UndecidedError:
        return None


def test_a_counterexample_is_checked_in_every_part():
    one, unit = Fraction(1), 2.0**-24
    at = (one, Fraction(0))
    assert judged([-0.5, 0.5], 0, 1, "0.75", at), "a tie falsifies"
    assert judged([-0.5, 0.625], 0, 1, "1", at)
    assert not judged([-0.5, 0.5 - unit], 0, 1, "0.75", at), "not quite a tie"
    assert not judged([-0.5, 0.625], 1, 0, "1", at), "another winner"
    assert not judged([-0.5, 0.625], 0, 0, "1", at)
    assert not judged([-0.5, 0.625], 0, 2, "1", at)
    assert not judged([-0.5, 0.625], 2, 1, "1", at)
    assert judged([-1.0, 0.0], 0, 1, "1", at), "at eps itself"
    assert not judged([-1.0, 0.0], 0, 1, 1 - Fraction(1, 2**30), at), "outside of the ball by 2^-30"
    assert not judged([-0.5, 0.5 + unit / 2], 0, 1, "1", at), "off the grid"
    assert not judged([-0.5, 0.5, 0.0], 0, 1, "1", at)
    assert not judged([-0.5, np.nan], 0, 1, "1", at)
    assert judged([0.0, 0.0], 0, 1, "0", (one, one)), "a tie at the input itself"
    assert not judged([0.0, 0.0], 1, 0, "0", (one, one)), "of equal logits the first one wins"


def test_ties_at_the_input_are_falsified():
    network, _ = drawn(3)
    twice = Network.from_arrays([np.eye(2), np.array([[1.0, 0.0], [1.0, 0.0]])])
    (found,) = certify_inputs(twice, np.array([[0.5, 0.25]]), "0", complete=True)
    assert (found.status, found.argmax, found.method) == ("falsified", 0, "attack")
    assert not found.counterexample.delta.any()
    assert has_dual(network)


# -- as it is asked for ----------------------------------------------------------------------------------------------


def test_smooth_activations_are_attacked():
    rng = np.random.default_rng(0)
    network = Network.from_arrays([rng.normal(size=(6, 3)), rng.normal(size=(3, 6))], between="tanh")
    found = certify_inputs(network, rng.uniform(size=(6, 3)), 5, complete=True)
    assert set(found.status.tolist()) <= {"certified", "falsified", "unknown"}
    assert found.falsified.any()
    assert set(found.proved_by[found.falsified].tolist()) == {"arb"}, "no rational holds these logits"
    assert not found.proofs


@pytest.mark.parametrize("first", [2.0**-700, 2.0**-100, 2.0**500, 2.0**900])
@pytest.mark.parametrize("eps", ["0", "1e-300", "0.1", "1e400"])
def test_numbers_at_the_ends_of_the_floats(first, eps):
    """No warning, no traceback: what floats cannot search for is open, and says so."""
    rng = np.random.default_rng(0)
    network = Network.from_arrays([rng.normal(size=(5, 3)) * first, rng.normal(size=(3, 5)) * 2.0**-400])
    found = certify_inputs(network, rng.normal(size=(2, 3)), eps, complete=True)
    assert set(found.status.tolist()) <= {"certified", "falsified", "unknown"}
    assert eps != "1e400" or all("beyond the floats" in fault for fault in found.fault.tolist())


def test_processes_find_the_same(monkeypatch):
    monkeypatch.setattr(duals, "FEW", FEW)  # as in other processes
    network, _ = drawn(1)
    inputs = np.random.default_rng(1).integers(-8, 9, (70, 2)) / 8
    one, two = (certify_inputs(network, inputs, "0.25", complete=True, scale=1, jobs=jobs) for jobs in (1, 2))
    assert one == two
    assert one.counterexamples.keys() == two.counterexamples.keys() == set(np.flatnonzero(one.falsified).tolist())
    assert all((one.counterexamples[k].delta == two.counterexamples[k].delta).all() for k in one.counterexamples)
    assert {len(part.counterexamples) for part in (one[:0], one)} == {0, int(one.falsified.sum())}


def test_scipy_is_imported_where_a_dual_is_searched_for_alone():
    """It takes as long as a small command."""
    code = "import sys, intervalcert; intervalcert.certify_inputs; print('scipy.linalg' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n"


def test_what_does_not_go_together_is_refused():
    network, _ = drawn(1)
    x = np.array([[0.5, 0.25]])
    alone = ({"dual_steps": 5}, {"max_splits": 5}, {"time_per_input": 5})
    wrong = ({"time_per_input": 0}, {"max_splits": -1}, {"dual_steps": -1}, {"time_per_input": "5"})
    for options in (*alone, *({"complete": True, **each} for each in wrong)):
        with pytest.raises(UsageError):
            certify_inputs(network, x, "0.1", **options)


def test_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    network, layers = drawn(1)
    save_model(network, tmp_path / "m.npz")
    inputs = np.random.default_rng(1).integers(-8, 9, (40, 2)) / 8
    np.save(tmp_path / "x.npy", inputs)
    np.save(tmp_path / "y.npy", np.zeros(40, dtype=np.int64))
    argv = ["certify", "--model", "m.npz", "--inputs", "x.npy", "--input-scale", "1", "--eps", "0.25", "--jobs", "1"]
    complete = [*argv, "--complete"]
    code, out, _ = ran(capsys, *complete, "--counterexamples", "c.npz", "-o", "v.csv", "--labels", "y.npy")
    assert code == 0
    assert "falsified" in out
    words = [line.split(",")[2] for line in (tmp_path / "v.csv").read_text().splitlines()[1:]]
    with np.load(tmp_path / "c.npz") as kept:
        assert kept["index"].tolist() == [k for k, word in enumerate(words) if word == "falsified"]
        for k, delta, j, t in zip(*(kept[name] for name in ("index", "delta", "winner", "other")), strict=True):
            u = [Fraction(a) + Fraction(d) for a, d in zip(inputs[k].tolist(), delta.tolist(), strict=True)]
            logits = logits_at(layers, HINGES["relu"], u)
            assert logits[t] >= logits[j]
    shown = json.loads(ran(capsys, *complete, "--json")[1])
    assert shown["falsified"] == words.count("falsified") > 0
    assert shown["certified"] + shown["falsified"] + shown["unknown"] == 40
    assert sum(shown["decided_by"].values()) == shown["certified"] + shown["falsified"]
    assert ran(capsys, *complete, "--check")[0] == 1
    for options in (["--dual-steps", "3"], ["--counterexamples", "c.npz"]):
        assert ran(capsys, *argv, *options)[0] == 2
    assert ran(capsys, *complete, "--counterexamples", "c.csv")[0] == 2
    for options in (["--max-splits", "x"], ["--time-per-input", "0"], ["--time-per-input", "nan"]):
        assert ran(capsys, *complete, *options)[0] == 2
