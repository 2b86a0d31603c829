"""Local refinement against the truth: no point that it certifies flips, whoever looks for it, and every fault put into
it on purpose is found by the very same search. Then the prover alone: whatever of a guess is spoilt, it refuses.

The networks are small, with weights that are multiples of 1/8, so that the truth is within reach: on two inputs the
least lead over a ball is attained where kinks cross, where a kink meets the circle, or where one affine piece is lowest
on the circle. All these points of all patterns are looked at (`Search`); on more inputs, samples and descents. A flip
counts only if exact rationals confirm it: within eps, and another class at least as large.
"""

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from intervalcert import Network, certify_inputs, compute_bounds
from intervalcert.api import verification_job
from intervalcert.backends.registry import backend_names, get_backend, precision_ladder
from intervalcert.errors import InconclusiveError, InputError
from intervalcert.execution import processes as workers
from intervalcert.execution.streaming import summarise
from intervalcert.model.evaluation import PointEvaluator
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.rounding import float_enclosure, sqrt_upper
from intervalcert.proof import local as proof_module
from intervalcert.proof.ellipsoids import Sector
from intervalcert.proof.local import Leads, LocalChecker, LocalWitness
from intervalcert.report.text import summary_table
from intervalcert.search import local as search_module
from intervalcert.search.ellipsoids import guess_step
from intervalcert.search.float_network import FloatNetwork
from intervalcert.verify import local as module
from intervalcert.verify.jobs import batches_of
from intervalcert.verify.local import LocalVerifier
from intervalcert.verify.number_table import Epsilons, NumberTable
from intervalcert.verify.points import PointVerifier

ACTIVATIONS = ("relu", "leaky_relu:0.1", "leaky_relu:-0.5", "leaky_relu:3", "hard_tanh", "identity", "clip:1/4:1")
PROVERS = ("float64", "arb", "exact")

# -- the truth -------------------------------------------------------------------------------------------------------


def pieces_of(name):
    """The (slope, offset) of each linear piece of an activation, and the kinks between them: not the program's own."""
    kind, _, parameter = name.partition(":")
    if kind == "hard_tanh":
        return [(0, -1), (1, 0), (0, 1)], [-1, 1]
    if kind == "clip":
        low, high = map(Fraction, parameter.split(":"))
        return [(0, low), (1, 0), (0, high)], [low, high]
    if kind == "identity":
        return [(1, 0)], []
    return [(Fraction(parameter or 0), 0), (1, 0)], [0]


def bend(name, x):
    kind, _, parameter = name.partition(":")
    if kind == "hard_tanh":
        return max(-1, min(1, x))
    if kind == "clip":
        low, high = map(Fraction, parameter.split(":"))
        return max(low, min(high, x))
    return x if kind == "identity" or x > 0 else x * Fraction(parameter or 0)


def table_of(matrix):
    return [[matrix[i, j] for j in range(matrix.shape[1])] for i in range(matrix.shape[0])]


def exact_logits(network, x):
    value = list(x)
    for layer in network.layers:
        made = [sum(w * v for w, v in zip(row, value, strict=True)) for row in table_of(layer.weights)]
        if layer.bias is not None:
            made = [z + layer.bias[i, 0] for i, z in enumerate(made)]
        value = made if layer.activation is None else [bend(layer.activation.name, z) for z in made]
    return value


def changes(network, x, u, eps, winner):
    """Whether u is within eps of x, and some other class is at least as large there; in exact rationals."""
    if sum((a - b) ** 2 for a, b in zip(x, u, strict=True)) > eps**2:
        return False
    logits = exact_logits(network, u)
    return any(y >= logits[winner] for i, y in enumerate(logits) if i != winner)


class Search:
    """Looks for inputs near a given one at which a network's winner is another. Prepared once for a network."""

    def __init__(self, network, seed=0):
        self.network = network
        self.layers = [
            (
                np.array(table_of(layer.weights), dtype=float),
                np.zeros(layer.weights.shape[0])
                if layer.bias is None
                else np.array(table_of(layer.bias), dtype=float)[:, 0],
                None if layer.activation is None else layer.activation.name,
            )
            for layer in network.layers
        ]
        self.rng = np.random.default_rng(seed)
        count = np.prod([len(pieces_of(name)[0]) ** len(w) for w, _, name in self.layers[:-1]])
        self.is_exhaustive = network.inputs == 2 and count <= 800
        if self.is_exhaustive:
            lines, self.slopes = zip(*self._patterns(np.eye(2), np.zeros(2), 0, []), strict=True)
            self.lines = np.unique(np.concatenate(lines).round(12), axis=0)
            self.vertices = np.unique(np.concatenate([crossings(some) for some in lines]).round(12), axis=0)
            self.slopes = np.unique(np.array(self.slopes).round(12), axis=0)

    def _patterns(self, a, c, index, lines):
        """For each choice of a linear piece for every neuron: the kinks' lines a·u + c = 0, and the logits' slopes."""
        w, b, name = self.layers[index]
        inner, start = w @ a, w @ c + b
        if name is None:
            yield np.array(lines).reshape(-1, 3), inner
            return
        pieces, kinks = pieces_of(name)
        lines = lines + [[*row, z - kink] for row, z in zip(inner, start, strict=True) for kink in kinks]
        for chosen in itertools.product(pieces, repeat=len(w)):
            slope, offset = np.array(chosen, dtype=float).T
            yield from self._patterns(slope[:, None] * inner, slope * start + offset, index + 1, lines)

    def logits(self, points):
        """In floats, and the slopes there: of inputs, one per row."""
        value, slopes = points.T, np.broadcast_to(np.eye(points.shape[1]), (len(points), *[points.shape[1]] * 2))
        for w, b, name in self.layers:
            value, slopes = w @ value + b[:, None], w @ slopes
            if name is not None:
                pieces, kinks = pieces_of(name)
                which = np.searchsorted(np.array(kinks, dtype=float), value) if kinks else np.zeros(value.shape, int)
                slope, offset = (np.array([float(piece[k]) for piece in pieces])[which] for k in (0, 1))
                value, slopes = slope * value + offset, slope.T[:, :, None] * slopes
        return value.T, slopes

    def candidates(self, x, eps, winner):
        """Where a lead may be least, or just some points."""
        directions = self.rng.standard_normal((400, len(x)))
        directions /= np.linalg.norm(directions, axis=1)[:, None]
        found = [x + eps * part * directions for part in (1.0, 0.6, 0.2)]
        if self.is_exhaustive:
            found += [self.vertices, on_circle(self.lines, x, eps)]
            found += [lowest(x, eps, self.slopes[:, winner] - self.slopes[:, i]) for i in range(self.network.outputs)]
        start = found[0][:100]
        for rival in range(self.network.outputs):
            points = start
            for _ in range(4 if rival != winner else 0):  # to where the present affine piece is lowest, and again
                _, slopes = self.logits(points)
                points = lowest(x, eps, slopes[:, winner] - slopes[:, rival])
                found.append(points)
        return np.concatenate(found)

    def flip(self, x, eps, winner):
        """An input within eps at which the winner does not win, confirmed exactly; None if none was found."""
        centre, radius = np.array([float(a) for a in x]), float(eps)
        points = self.candidates(centre, radius, winner) - centre
        size = np.linalg.norm(points, axis=1)
        points = points[size <= radius * (1 + 1e-9)] * (1 - 2.0**-30)  # well inside
        logits, _ = self.logits(centre + points)
        leads = logits[:, [winner]] - np.delete(logits, winner, axis=1)
        for index in np.argsort(leads.min(axis=1))[:2].tolist():
            u = [a + Fraction(float(step)) for a, step in zip(x, points[index], strict=True)]
            if changes(self.network, x, u, eps, winner):
                return u
        return None


def crossings(lines):
    """Where two of the lines meet."""
    pairs = np.array(list(itertools.combinations(range(len(lines)), 2)), dtype=int).reshape(-1, 2)
    one, other = lines[pairs[:, 0]], lines[pairs[:, 1]]
    det = one[:, 0] * other[:, 1] - one[:, 1] * other[:, 0]
    one, other, det = (some[np.abs(det) > 1e-9] for some in (one, other, det))
    across = (one[:, 1] * other[:, 2] - one[:, 2] * other[:, 1]) / det
    along = (one[:, 2] * other[:, 0] - one[:, 0] * other[:, 2]) / det
    return np.stack([across, along], axis=1)


def on_circle(lines, x, eps):
    """Where the lines meet the circle, and their points next to its centre."""
    lines = lines[np.linalg.norm(lines[:, :2], axis=1) > 1e-9]
    norm = np.linalg.norm(lines[:, :2], axis=1)[:, None]
    normal, distance = lines[:, :2] / norm, (lines[:, :2] @ x + lines[:, 2])[:, None] / norm
    middle, half = x - distance * normal, np.sqrt(np.maximum(eps**2 - distance**2, 0.0))
    along = np.stack([-normal[:, 1], normal[:, 0]], axis=1)
    return np.concatenate([middle, middle + half * along, middle - half * along])


def lowest(x, eps, slopes):
    """Where affine functions with these slopes are lowest in the ball."""
    norm = np.linalg.norm(slopes, axis=1)[:, None]
    return x - eps * slopes / np.where(norm > 0, norm, 1.0)


# -- networks and points ---------------------------------------------------------------------------------------------


def drawn(seed, between="relu", widths=(2, 4, 3), biases=True):
    rng = np.random.default_rng(seed)
    layers = [rng.integers(-16, 17, (rows, columns)) / 8 for columns, rows in itertools.pairwise(widths)]
    return Network.from_arrays(
        layers, [rng.integers(-16, 17, len(w)) / 8 for w in layers] if biases else None, between=between
    )


def through_kinks(network, x):
    """The same with biases of the first hidden layer such that some neurons stand exactly at a kink of theirs at x."""
    first = network.layers[0]
    _, kinks = pieces_of(first.activation.name)
    inner = [sum(w * v for w, v in zip(row, x, strict=True)) for row in table_of(first.weights)]
    moved = [[(kinks[i % len(kinks)] if kinks else 0) - z if i % 2 else Fraction(1, 8)] for i, z in enumerate(inner)]
    return Network((replace(first, bias=RationalMatrix.from_fractions(moved)), *network.layers[1:]), network.sources)


def some_inputs(seed, width, count):
    rng = np.random.default_rng(seed)
    return [[Fraction(int(k), 16) for k in row] for row in rng.integers(-32, 33, (count, width))]


RADII = [Fraction(2) ** k * part for k in range(-5, 3) for part in (Fraction(1), Fraction(4, 3))]


def largest_certified(network, points, effort=3):
    """For each point the largest radius of RADII at which it is certified, its winner, and whether it took a look."""
    bounds = compute_bounds(network, "float64")
    rows = [x for x in points for _ in RADII]
    verdicts = list(certify_inputs(network, rows, RADII * len(points), bounds=bounds, local=True, effort=effort))
    found = []
    for index, x in enumerate(points):
        some = verdicts[index * len(RADII) : (index + 1) * len(RADII)]
        sure = [(eps, v) for eps, v in zip(RADII, some, strict=True) if v.certified]
        if sure:
            eps, verdict = sure[-1]
            found.append((x, eps, verdict.argmax, verdict.locally))
    return found


def flips_of(network, points, seed=0, effort=3):
    """The certified points that flip all the same, and how many points were certified by looking at them."""
    search = Search(network, seed)
    certified = largest_certified(network, points, effort)
    return [x for x, eps, top, _ in certified if search.flip(x, eps, top)], sum(took for *_, took in certified)


# -- the search itself -----------------------------------------------------------------------------------------------


def test_the_search_knows_the_network():
    """Its floats are the exact logits, and on two inputs no point of a fine grid has a lesser lead than it finds."""
    for seed, between in enumerate(ACTIVATIONS):
        network = drawn(seed, between, (2, 3, 2, 3))
        search = Search(network)
        assert search.is_exhaustive
        (x,) = some_inputs(seed, 2, 1)
        centre = np.array([float(a) for a in x])
        exact = exact_logits(network, x)
        found = search.logits(centre[None])[0][0]
        assert np.abs(found - np.array([float(y) for y in exact])).max() < 1e-9
        angles, parts = np.linspace(0, 2 * np.pi, 721), np.linspace(0, 1, 40)
        circle = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        grid = centre + (0.7 * parts[:, None, None] * circle).reshape(-1, 2)
        for winner, rival in itertools.permutations(range(3), 2):
            points = search.candidates(centre, 0.7, winner)
            points = points[np.linalg.norm(points - centre, axis=1) <= 0.7 * (1 + 1e-9)]
            (mine, _), (others, _) = search.logits(points), search.logits(grid)
            assert (mine[:, winner] - mine[:, rival]).min() <= (others[:, winner] - others[:, rival]).min() + 1e-9


def test_a_flip_is_a_flip():
    """|x| >= 1 by two ReLUs: from 0 the nearest other winner is at distance 1, and at 1 there is a tie."""
    network = Network.from_arrays([[[1.0, 0.0], [-1.0, 0.0]], [[-1.0, -1.0], [0.0, 0.0]]], [None, [1.0, 0.0]])
    search, x = Search(network), [Fraction(0), Fraction(0)]
    assert search.flip(x, Fraction(999, 1000), 0) is None
    assert search.flip(x, Fraction(1001, 1000), 0) is not None
    assert changes(network, x, [Fraction(1), Fraction(0)], Fraction(1), 0)
    assert not changes(network, x, [Fraction(1), Fraction(0)], Fraction(999, 1000), 0)


# -- no certified point flips ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("between", ACTIVATIONS)
def test_no_certified_point_flips(between):
    """On two inputs, where every pattern of activations is looked at."""
    took = 0
    shapes = [(2, 4, 3), (2, 5, 2), (2, 3, 3, 3), (2, 2, 2, 2, 3)]
    for seed, widths in enumerate(shapes * 2):
        network = drawn(seed, between, widths, biases=seed % 3 > 0)
        flips, local = flips_of(network, some_inputs(seed, 2, 4), seed)
        assert flips == [], (seed, between, widths)
        took += local
    assert took >= 8 or between == "identity", "it must be local refinement that is tested"


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    between=st.sampled_from(ACTIVATIONS),
    widths=st.tuples(st.integers(2, 4), st.lists(st.integers(2, 6), min_size=1, max_size=3), st.integers(2, 4)),
    at_kinks=st.booleans(),
)
def test_no_certified_point_flips_whatever_the_network(seed, between, widths, at_kinks):
    network = drawn(seed, between, (widths[0], *widths[1], widths[2]))
    points = some_inputs(seed, widths[0], 2)
    if at_kinks:
        network = through_kinks(network, points[0])
    assert flips_of(network, points, seed)[0] == []


@pytest.mark.parametrize("between", ["relu", "leaky_relu:-0.5", "hard_tanh"])
def test_points_next_to_the_decision_boundary(between):
    """Between two points of different winners, closer and closer to where they meet."""
    network = drawn(11, between, (2, 4, 4, 2))
    points = some_inputs(5, 2, 40)
    winners = [int(np.argmax([float(y) for y in exact_logits(network, x)])) for x in points]
    one, other = points[winners.index(0)], points[winners.index(1)]
    near = []
    for _ in range(14):
        middle = [(a + b) / 2 for a, b in zip(one, other, strict=True)]
        logits = exact_logits(network, middle)
        one, other = (middle, other) if logits[0] > logits[1] else (one, middle)
        near.append(middle)
    bounds = compute_bounds(network, "float64")
    search, found = Search(network), 0
    for x in near:
        for eps in (Fraction(1, 2**k) for k in range(1, 16)):
            verdict = certify_inputs(network, [x], eps, bounds=bounds, local=True, local_rounds=2)[0]
            if verdict.certified:
                assert search.flip(x, eps, verdict.argmax) is None
                found += 1
                break
    assert found >= 8


def test_what_it_certifies_beyond_the_global_bound_is_much():
    """Otherwise the tests above would test nothing: far from kinks a network is affine, and the true radius is met."""
    network = Network.from_arrays([[[1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]])
    x = [[Fraction(3), Fraction(1)]]  # the lead is u_0 - u_1 = 2: changed at distance sqrt(2)
    verdicts = [certify_inputs(network, x, eps, local=True, scale=1)[0] for eps in ("0.99", "1.4", "1.42")]
    assert [v.certified for v in verdicts] == [True, True, False]
    dead = Network.from_arrays([np.eye(2) * 100, np.eye(2)], [[-1000.0, -1000.0], [1.0, 0.0]])
    (verdict,) = certify_inputs(dead, [[Fraction(0), Fraction(0)]], 9, local=True)
    assert (verdict.certified, verdict.locally, verdict.radius) == (True, True, 9.0)
    assert not certify_inputs(dead, [[Fraction(0), Fraction(0)]], 11, local=True)[0].certified


# -- faults on purpose -----------------------------------------------------------------------------------------------

CONTROLS = [drawn(seed, between, (2, 4, 4, 2)) for seed, between in enumerate(("relu", "hard_tanh", "relu", "relu"))]


def caught():
    """How many certified points of the control networks flip."""
    found = 0
    for seed, network in enumerate(CONTROLS):
        found += len(flips_of(network, some_inputs(seed, 2, 8), seed)[0])
    return found


def test_the_controls_are_sound_without_a_fault():
    assert caught() == 0


@pytest.mark.parametrize("part", [0.0, 0.3, 0.6, 0.8])
def test_sectors_too_narrow_are_caught(monkeypatch, part):
    """Spreads taken for a part of what they are, and believed."""
    right = search_module.sector_around

    def narrow(*argv):
        sector = right(*argv)
        return Sector(sector.middle, sector.spread * part)

    monkeypatch.setattr(search_module, "sector_around", narrow)
    monkeypatch.setattr(proof_module, "holds_sector", lambda *_: True)
    assert caught() > 0


def test_reaches_too_small_are_caught(monkeypatch):
    """Sectors of half the reach: neurons that switch are taken for ones that cannot."""
    right, proved = search_module.sector_around, proof_module.holds_sector
    monkeypatch.setattr(
        search_module, "sector_around", lambda f, low, high, reach, *c: right(f, low, high, reach / 2, *c)
    )
    monkeypatch.setattr(
        proof_module, "holds_sector", lambda f, low, high, reach, *s: proved(f, low, high, reach / 2, *s)
    )
    assert caught() > 0


def test_an_ellipsoid_too_small_is_caught(monkeypatch):
    """P' half of what was proved."""
    right = search_module.guess_step

    def halved(*argv):
        found = right(*argv)
        return replace(found, step=replace(found.step, after=found.step.after / 2))

    monkeypatch.setattr(search_module, "guess_step", halved)
    monkeypatch.setattr(proof_module, "check_step", lambda *_: None)
    assert caught() > 0


def test_a_layer_without_its_activation_is_caught(monkeypatch):
    """Every neuron taken for one that stays where it is: the chain of an affine network."""
    right = search_module.sector_around

    def stays(function, low, high, reach, *least):
        return right(function, low, high, reach * 0, *least)

    monkeypatch.setattr(search_module, "sector_around", stays)
    monkeypatch.setattr(proof_module, "holds_sector", lambda *_: True)
    assert caught() > 0


# -- the prover alone ------------------------------------------------------------------------------------------------

GOOD = drawn(0, "relu", (2, 12, 12, 2))
AT, EPS = [Fraction(-3, 4), Fraction(-15, 8)], Fraction(19, 15)


def column(x):
    return RationalMatrix.from_fractions([[a] for a in x])


def guessed(network, x, eps, effort=5):
    """The estimated ratio of a guess, its chains, and the winner."""
    ends, _ = enclosed(network, x, 0)
    search = search_module.LocalSearch(network, FloatNetwork.of(network), ends, eps)
    ratio, witness = search.search(effort)
    return ratio, () if witness is None else witness.chains, search.winner


def enclosed(network, x, winner):
    """The ends of what every layer computes, and the winner's leads from below."""
    points = PointEvaluator(network, norms_of(network), get_backend("exact"))
    values = points.at(column(x))
    return [value.float_bounds() for value in values], points.leads(values[-1], winner)[0]


_PROVERS = {}


_NORMS = {}


def norms_of(network):
    if network.sources not in _NORMS:
        _NORMS[network.sources] = [layer.upper for layer in compute_bounds(network, "float64").layers]
    return _NORMS[network.sources]


def prover(network, name):
    """Made once for a network, which its content identifies."""
    key = network.sources, name
    if key not in _PROVERS:
        _PROVERS[key] = LocalChecker(network, get_backend(name))
    return _PROVERS[key]


def proves(network, chains, x, eps, winner, name):
    """Whether a number system proves the guess; one that cannot tell proves nothing."""
    ends, leads = enclosed(network, x, winner)
    return proved(prover(network, name), chains, ends, leads, eps, winner)


def proved(checker, chains, ends, leads, eps, winner, deductions=None, of=None):
    witness = LocalWitness(winner, tuple(map(tuple, chains)))
    try:
        claim = checker.check(witness, ends[:-1], Leads(winner if of is None else of, leads, deductions), eps)
    except InconclusiveError:
        return False
    assert (claim.winner, claim.eps) == (winner, eps)
    return True


@pytest.fixture(scope="module")
def chains():
    """A guess of two chains, the second one better, in which neurons of both layers may switch."""
    estimated_ratio, found, winner = guessed(GOOD, AT, EPS)
    assert estimated_ratio > 1
    assert winner == 1
    assert [len(links) for links in found] == [2, 2]
    assert all((link.step.sector.spread > 0).any() for links in found for link in links)
    assert all(len(link.kept) < 12 for link in found[0]), "some neurons are left out"
    return found


@pytest.mark.parametrize("name", backend_names())
def test_the_good_guess_is_proved(chains, name):
    assert proves(GOOD, chains, AT, EPS, 1, name)


@pytest.mark.parametrize("name", ["float64", "arb", "exact"])
def test_deductions_are_taken_off_the_lead(chains, name):
    """A lead that is owed is none; and what is no number is no debt."""
    made, classes = prover(GOOD, name), GOOD.outputs - 1
    ends, leads = enclosed(GOOD, AT, 1)
    for debt, expected in ((0.0, True), (1e-12, True), (1e3, False), (-1.0, False), (np.nan, False), (np.inf, False)):
        assert proved(made, chains, ends, leads, EPS, 1, np.full(classes, debt)) is expected, debt


def in_step(**changed):
    return lambda link: replace(link, step=replace(link.step, **{k: f(link.step) for k, f in changed.items()}))


def in_majorant(**changed):
    return lambda link: replace(link, s=replace(link.s, **{k: f(link.s) for k, f in changed.items()}))


def in_sector(change):
    """Both sectors of a link, so that they still agree."""

    def spoil(link):
        sector = change(link.sector)
        inner = Sector(sector.middle[link.kept], sector.spread[link.kept])
        return replace(link, sector=sector, step=replace(link.step, sector=inner))

    return spoil


def without_one(link):
    """The neuron that is kept first is left out, and everything else is made to fit."""
    rest = np.arange(1, len(link.kept))
    block = np.ix_(rest, rest)
    sector = Sector(link.step.sector.middle[rest], link.step.sector.spread[rest])
    majorant = replace(link.s, near=link.s.near[block], above=link.s.above[block])
    step = guess_step(majorant.above, sector, link.step.v[rest]).step
    return replace(link, kept=link.kept[rest], s=majorant, step=step)


def first_changed(array, by):
    made = array.copy()
    made.flat[0] += by
    return made


def lopsided(array):
    made = array.copy()
    made[0, -1] += 1e-3
    return made


SPOILT = {
    "reach of one neuron": lambda link: replace(link, reach=link.reach.max(keepdims=True)),
    "sector of one neuron": lambda link: replace(
        link, sector=Sector(link.sector.middle[:1] * 0 + 0.5, link.sector.spread[:1] * 0 + 0.5)
    ),
    "reach halved": lambda link: replace(link, reach=link.reach / 2),
    "one reach halved": lambda link: replace(link, reach=link.reach * np.r_[np.ones(11), 0.5]),
    "reach just too small": lambda link: replace(link, reach=link.reach * (1 - 2.0**-20)),
    "reach zero": lambda link: replace(link, reach=link.reach * 0),
    "reach negative": lambda link: replace(link, reach=-link.reach),
    "reach nan": lambda link: replace(link, reach=link.reach * np.nan),
    "sector too narrow": in_sector(lambda s: Sector(s.middle, s.spread * 0.99)),
    "sector just too narrow": in_sector(lambda s: Sector(s.middle, np.maximum(s.spread - 2.0**-20, 0))),
    "sector moved up": in_sector(lambda s: Sector(s.middle + 2.0**-20, s.spread)),
    "sector moved down": in_sector(lambda s: Sector(s.middle - 2.0**-20, s.spread)),
    "sector negative": in_sector(lambda s: Sector(s.middle, -s.spread)),
    "sector nan": in_sector(lambda s: Sector(s.middle * np.nan, s.spread)),
    "spread nan": in_sector(lambda s: Sector(s.middle, s.spread * np.nan)),
    "sector of nothing": in_sector(lambda s: Sector(s.middle * 0, s.spread * 0)),
    "step of another sector": in_step(sector=lambda s: Sector(s.sector.middle, s.sector.spread / 2)),
    "step of another middle": in_step(sector=lambda s: Sector(s.sector.middle / 2, s.sector.spread)),
    "neuron left out": without_one,
    "all neurons left out": lambda link: search_module._still(link.reach, link.sector)[0],
    "S' below S": in_majorant(near=lambda s: s.near * 0.9, above=lambda s: s.above * 0.9),
    "S' not raised": in_majorant(above=lambda s: s.near),
    "S' not raised enough": in_majorant(above=lambda s: s.near + 0.5 * (s.above - s.near)),
    "S' another": in_majorant(above=lambda s: s.above + np.ones_like(s.above)),
    "S' lopsided": in_majorant(near=lambda s: lopsided(s.near), above=lambda s: lopsided(s.above)),
    "no lift": in_majorant(lift=lambda _: 0.0),
    "negative lift": in_majorant(lift=lambda s: -s.lift),
    "v too small": in_step(v=lambda s: s.v / 2),
    "v too large": in_step(v=lambda s: s.v * 2),
    "v negative": in_step(v=lambda s: -s.v),
    "v and w negative": in_step(v=lambda s: -s.v, w=lambda s: -s.w),
    "w too small": in_step(w=lambda s: s.w / 2),
    "w a little too small": in_step(w=lambda s: s.w * (1 - 2.0**-40)),
    "w zero": in_step(w=lambda s: s.w * 0),
    "G too small": in_step(g=lambda s: s.g / 2),
    "G zero": in_step(g=lambda s: s.g * 0),
    "G of another": in_step(g=lambda s: lopsided(s.g)),
    "no room in G": in_step(e=lambda s: 0.0),
    "negative room in G": in_step(e=lambda s: -s.e),
    "core too small": in_step(core=lambda s: s.core * 0.99, after=lambda s: s.after - 0.01 * s.core),
    "core of nothing": in_step(core=lambda s: s.core * 0, after=lambda s: s.after - s.core),
    "core lopsided": in_step(core=lambda s: lopsided(s.core), after=lambda s: lopsided(s.after)),
    "core nan": in_step(core=lambda s: s.core * np.nan),
    "after too small": in_step(after=lambda s: s.after * 0.99),
    "after not raised": in_step(after=lambda s: s.core),
    "after another": in_step(after=lambda s: s.after + np.ones_like(s.after)),
    "after nan": in_step(after=lambda s: s.after * np.nan),
    "no slack": in_step(slack=lambda s: 0.0),
    "negative slack": in_step(slack=lambda s: -s.slack),
    "another scale": lambda link: replace(link, exponent=link.exponent - 1),
}


@pytest.mark.parametrize("spoilt", SPOILT)
@pytest.mark.parametrize("layer", [0, 1])
@pytest.mark.parametrize("chain", [0, 1])
def test_a_spoilt_guess_is_refused(chains, spoilt, layer, chain):
    """One field of one link at a time, in the chain that gives reaches or in the one that gives slopes.

    What is not a number must be refused as well, with or without a warning of numpy's.
    """
    made = [list(links) for links in chains]
    made[chain][layer] = SPOILT[spoilt](made[chain][layer])
    with np.errstate(invalid="ignore"):
        for name in PROVERS:
            assert not proves(GOOD, made, AT, EPS, 1, name), name


@pytest.mark.parametrize("name", PROVERS)
def test_other_ways_to_be_wrong(chains, name):
    first, second = chains
    wrong = [
        ([first[:1]], AT, EPS, 1),  # ends too early
        ([[]], AT, EPS, 1),
        ([], AT, EPS, 1),
        ([first, second[:1]], AT, EPS, 1),
        ([second], AT, EPS, 1),  # reaches of a chain that is not there
        (chains, AT, EPS, 0),  # another winner
        (chains, AT, EPS * Fraction(101, 100), 1),  # another radius
        (chains, [AT[0], AT[1] + Fraction(1, 4)], EPS, 1),  # another point
        ([[second[1], second[0]]], AT, EPS, 1),
    ]
    for guess, x, eps, winner in wrong:
        assert not proves(GOOD, guess, x, eps, winner, name)
    other = drawn(1, "relu", (2, 12, 12, 2))
    assert not proves(other, chains, AT, EPS, 1, name)


def slopes_squared(network, links, winner):
    """eps²·dᵀPd over eps² for each other class, exactly, of the ellipsoid that the chain ends with."""
    last, scale = links[-1], Fraction(2) ** sum(link.exponent for link in links)
    p = [[Fraction(x) for x in row] for row in last.step.after.tolist()]
    weights = network.layers[-1].weights
    for other in range(network.outputs):
        if other != winner:
            d = [weights[winner, k] - weights[other, k] for k in last.kept.tolist()]
            yield scale * sum(a * x * b for a, row in zip(d, p, strict=True) for x, b in zip(row, d, strict=True))


@pytest.mark.parametrize("name", PROVERS)
def test_a_lead_that_is_a_hair_too_small_is_refused(chains, name):
    """Of the exact slope: the end of its enclosure that counts is the upper one."""
    ends, _ = enclosed(GOOD, AT, 1)
    (square,) = slopes_squared(GOOD, chains[-1], 1)
    least = EPS * sqrt_upper(square, 200)
    for part, expected in ((1 - Fraction(1, 2**51), False), (Fraction(3, 4), False), (1 + Fraction(1, 2**30), True)):
        lead = np.array([float_enclosure(least * part, least * part)[0]])
        assert proved(prover(GOOD, name), chains, ends, lead, EPS, 1) is expected, part


@pytest.mark.parametrize("name", PROVERS)
def test_a_reach_that_is_a_hair_too_small_is_refused(chains, name):
    """eps·sqrt(S_kk) of the first layer, which exact rationals know; its sector holds what a shorter reach allows."""
    first, second = (list(links) for links in chains)
    weights, (ends, leads) = GOOD.layers[0].weights, enclosed(GOOD, AT, 1)
    true = [EPS * sqrt_upper(sum(weights[k, j] ** 2 for j in range(2)), 200) for k in range(12)]
    for part, expected in ((1 - Fraction(1, 2**51), False), (1 + Fraction(1, 2**40), True)):
        for k in range(12):
            reach = first[0].reach.copy()
            reach[k] = float_enclosure(true[k] * part, true[k] * part)[0]
            links = [replace(first[0], reach=reach), first[1]]
            found = proved(prover(GOOD, name), [links, second], ends, leads, EPS, 1)
            assert found is expected or (expected and reach[k] > second[0].reach[k]), (k, part)


@pytest.mark.parametrize("name", PROVERS)
def test_links_that_fit_nothing_are_refused(chains, name):
    """Numpy would repeat what is too short, or fail: neither is an answer."""
    first, second = (list(links) for links in chains)
    link = second[0]
    cases = {
        "too many links": [*second, second[-1]],
        "neurons that are not there": [replace(link, kept=np.array([99])), second[1]],
        "neurons from the end": [replace(link, kept=link.kept - 12), second[1]],
        "neurons that are no indices": [replace(link, kept=link.kept.astype(float)), second[1]],
        "no indices at all": [replace(link, kept=np.zeros(0)), second[1]],
        "a neuron twice": [replace(link, kept=np.repeat(link.kept, 2)), second[1]],
        "neurons in disorder": [replace(link, kept=link.kept[::-1].copy()), second[1]],
        "no reach": [replace(link, reach=np.zeros(0)), second[1]],
        "a reach of sixteen bits": [replace(link, reach=(link.reach / 2).astype(np.float16)), second[1]],
        "a huge scale": [replace(link, exponent=10**9), second[1]],
        "a step of other neurons": [
            replace(link, step=replace(link.step, sector=Sector(np.ones(1), np.ones(1)))),
            second[1],
        ],
        "v of nothing": [replace(link, step=replace(link.step, v=np.zeros(()))), second[1]],
    }
    for what, links in cases.items():
        assert not proves(GOOD, [first, links], AT, EPS, 1, name), what
    ended = [search_module._still(first[0].reach, Sector(np.zeros(12), np.zeros(12)))[0]]
    with pytest.MonkeyPatch.context() as patch:  # believed: nothing changes after the first layer
        patch.setattr(proof_module, "holds_sector", lambda *_: True)
        assert not proves(GOOD, [ended, second], AT, EPS, 1, name), "reaches of layers that a shorter chain has not"
    ends, leads = enclosed(GOOD, AT, 1)
    for winner, eps in ((-1, EPS), (2, EPS), (1, -EPS)):
        assert not proved(prover(GOOD, name), chains, ends, leads, eps, winner)
    assert not proved(prover(GOOD, name), chains, ends, leads, EPS, 1, of=0), "leads of another class"
    for deductions in (np.zeros(()), np.zeros(2), np.zeros((1, 1))):
        assert not proved(prover(GOOD, name), chains, ends, leads, EPS, 1, deductions)


@pytest.mark.parametrize("side", [1, 2, 3, 4, 8])
def test_a_promising_guess_is_proved_however_small_the_layer(side):
    """What floats round in a guess must be less than the room that they leave for it."""
    promising = proved = 0
    for seed in range(6):
        network = drawn(seed, "relu", (2, side, side, 2))
        for x in some_inputs(seed, 2, 4):
            radius = certify_inputs(network, [x], 0, local=False)[0].radius
            if 0 < radius < 1e9:
                eps = Fraction(radius * 1.25)
                estimated_ratio, guess, winner = guessed(network, x, eps)
                if estimated_ratio >= search_module.WORTH_PROVING:
                    promising += 1
                    proved += proves(network, guess, x, eps, winner, "exact")
    assert promising > 3
    assert proved == promising


def test_what_float64_proves_exact_proves():
    """The law: the same guess, on every other number system. And what exact refutes, nobody proves."""
    proved = 0
    for seed, between in enumerate(ACTIVATIONS * 2):
        network = drawn(seed, between, (2, 4, 3, 2))
        for x in some_inputs(seed, 2, 3):
            radius = certify_inputs(network, [x], 0, local=False)[0].radius
            for factor in (Fraction(11, 10), Fraction(3, 2)):
                if not 0 < radius < 1e9:
                    continue
                eps = Fraction(radius) * factor
                _, guess, winner = guessed(network, x, eps, 2)
                if not guess:
                    continue
                for moved in (eps, eps * 2):  # the second is another radius: mostly wrong
                    exact = proves(network, guess, x, moved, winner, "exact")
                    for name in ("float64", "arb", "mpmath"):
                        assert exact or not proves(network, guess, x, moved, winner, name)
                    proved += exact
    assert proved > 10


# -- edges -----------------------------------------------------------------------------------------------------------


def certifier_of(network, names="float64"):
    return LocalVerifier(network, norms_of(network), precision_ladder(names))


def test_a_single_layer_has_no_chain():
    network = Network.from_arrays([[[1.0, 0.0], [0.0, 1.0]]])
    assert not certifier_of(network).certify(column([1, 0]), Fraction(1, 100)).certified


@pytest.mark.parametrize("between", ACTIVATIONS)
def test_a_tie_is_not_certified(between):
    """Not at any radius, and not if the two classes are one and the same."""
    network = drawn(3, between, (2, 3, 2))
    equal = Network.of(
        [network.layers[0].weights, RationalMatrix.from_integers([[1, 2, 3]] * 2)],
        [network.layers[0].bias, RationalMatrix.from_integers([[1]] * 2)],
        between=between,
    )
    for eps in (0, Fraction(1, 10**6)):
        assert not certifier_of(equal).certify(column([1, 1]), Fraction(eps)).certified


def test_nothing_that_moves_up_to_the_kink():
    """A dead neuron at distance 1 from its kink, weighed with 10^6: certified up to there, and beyond it is not."""
    network = Network.from_arrays([[[1.0]], [[0.0], [1.0e6]]], [[-1.0], [1.0, 0.0]])
    certifier, x = certifier_of(network), column([0])
    found = [certifier.certify(x, eps).certified for eps in (Fraction(99, 100), Fraction(1) + Fraction(1, 10**5))]
    assert found == [True, False]
    search = Search(network)
    assert search.flip([Fraction(0)], Fraction(1) + Fraction(1, 10**5), 0)
    assert search.flip([Fraction(0)], Fraction(99, 100), 0) is None


def test_an_activation_that_is_not_piecewise_linear_is_refused():
    for name in ("tanh", "sigmoid", "group_sort", "min_max", "elu:1"):
        with pytest.raises(InputError, match=r"piecewise linear|given logits"):
            certifier_of(drawn(1, name))


@pytest.mark.parametrize("exponent", [-200, -60, 60, 200])
def test_the_answer_does_not_depend_on_the_unit(exponent):
    """Weights, inputs and radius times powers of two: the same network in other units."""
    scale = Fraction(2) ** exponent
    for seed in range(4):
        network = drawn(seed, "relu", (2, 4, 2))
        moved = Network.of(
            [
                RationalMatrix.from_fractions([[w * scale for w in row] for row in table_of(layer.weights)])
                for layer in network.layers
            ],
            [
                RationalMatrix.from_fractions([[b[0] * scale**k] for b in table_of(layer.bias)])
                for k, layer in enumerate(network.layers, 1)
            ],
        )
        for x in some_inputs(seed, 2, 3):
            eps = Fraction(1, 4)
            here, there = (certifier_of(n).certify(column(x), eps) for n in (network, moved))
            assert here.certified == there.certified
            assert not here.certified or here.winner == there.winner


def test_the_end_of_the_floats_is_no_end():
    """Where floats cannot guess, nothing is certified, and nothing is raised."""
    plain = drawn(2, "relu", (2, 3, 3, 2))
    huge = Network.of([RationalMatrix(layer.weights.numerators * 10**150, 1) for layer in plain.layers])
    tiny = Network.of([RationalMatrix(layer.weights.numerators, 10**150) for layer in plain.layers])
    steep = drawn(2, "leaky_relu:1e300", (2, 3, 3, 2))
    steeper = drawn(2, "leaky_relu:1e500", (2, 3, 3, 2))
    points = [[1, 2], [Fraction(10) ** 400] * 2, [Fraction(1, 10**400)] * 2, [Fraction(10) ** 300] * 2]
    for network in (plain, huge, tiny, steep, steeper):
        certifier = certifier_of(network)
        for x, eps in itertools.product(points, (Fraction(0), Fraction(1, 10**400), Fraction(1), Fraction(10) ** 400)):
            found = certifier.certify(column(x), eps)
            logits = exact_logits(network, x)
            assert not found.certified or all(logits[found.winner] > y for y in np.delete(logits, found.winner))
            assert not (found.certified and eps > 10**6), "no ball so large has one winner"


# -- attempts that end by a fault ------------------------------------------------------------------------------------


def broken(*_):
    raise OverflowError("Python int too large to convert to C long")


def test_a_fault_in_an_attempt_is_raised_in_tests(monkeypatch):
    monkeypatch.setattr(search_module, "sector_around", broken)
    with pytest.raises(OverflowError):
        certify_inputs(GOOD, [AT], EPS, local=True)


def test_a_fault_in_an_attempt_is_counted_elsewhere(monkeypatch):
    """The others are judged all the same, and nothing is certified by an attempt that failed."""
    monkeypatch.delenv(module.RAISE_FAULTS)
    whole = certify_inputs(GOOD, [AT, [1000.5, 1000]], EPS, local=True)
    assert whole.certified.tolist() == [True, True]
    assert whole.locally.tolist() == [True, False]
    assert whole.proved_by.tolist() == ["float64", "float64"]
    assert not whole.fault.any()
    monkeypatch.setattr(search_module, "sector_around", broken)
    found = certify_inputs(GOOD, [AT, [1000.5, 1000]], EPS, local=True)
    assert found.certified.tolist() == [False, True]
    assert found.fault.tolist() == ["OverflowError: Python int too large to convert to C long", ""]


def test_faults_and_number_systems_are_summed_up(monkeypatch):
    monkeypatch.delenv(module.RAISE_FAULTS)
    some = [certify_inputs(GOOD, [AT, [1000.5, 1000]], EPS, local=True)]
    monkeypatch.setattr(search_module, "sector_around", broken)
    some += [certify_inputs(GOOD, [AT, [1000.5, 1000]], EPS, local=True)] * 2
    first, second = summarise(some[0], None), summarise(some[1], None)
    assert (first.proved_by, first.faults) == ({"float64": 2}, {})
    assert (second.proved_by, second.faults) == ({"float64": 1}, {broken_text(): 1})
    shown = text_of(summary_table(second, "1", given_logits=False))
    assert "proved by" in shown
    assert "float64 1" in shown
    assert "ended early" in shown
    assert broken_text() in shown
    assert "ended early" not in text_of(summary_table(first, "1", given_logits=False))


def broken_text():
    return "OverflowError: Python int too large to convert to C long"


def text_of(table):
    console = Console(width=200)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


@pytest.mark.parametrize("jobs", [1, 2])
def test_progress_is_told_of_every_input(monkeypatch, jobs):
    """And the parts of the work add up, in whatever portions."""
    monkeypatch.setattr(workers, "_REPORT_SECONDS", 0.0)
    verifier = PointVerifier(verification_job(GOOD, None, 3))
    rows = NumberTable(np.full((70, 2), 0.25), work=1000)
    told = []
    blocks = batches_of(rows, GOOD, Fraction(1), Epsilons.all_equal(EPS))
    found = list(workers.verify_batches(verifier, blocks, jobs, lambda *more: told.append(more)))
    assert [len(verdicts) for _, verdicts in found] == [64, 6]
    assert (sum(count for count, _ in told), sum(work for _, work in told)) == (70, 1000)
    if jobs == 1:
        assert [count for count, _ in told if count] == [1] * 70


def test_where_floats_end_is_said():
    """Weights that no chain of floats can hold: the attempt certifies nothing, and says why."""
    weights = [np.array([[1e200, 1e-200], [-1e200, 1e-200]]), np.array([[1e200, 0], [0, 1e200]])]
    found = LocalVerifier(Network.from_arrays(weights), [Fraction(10) ** 201] * 2, precision_ladder("float64")).certify(
        column([Fraction(1), Fraction(0)]), Fraction(10)
    )
    assert not found.certified
    assert found.fault.startswith("FloatingPointError: ")
