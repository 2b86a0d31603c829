"""Local refinement on graphs against the truth: no point that it certifies flips, every reach holds, and each fault put
into it on purpose is found by the same search. Then the prover alone: whatever of a witness is spoilt, it refuses.
"""

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from graph_networks import KINDS, Truth, drawn, some_inputs

from intervalcert import Network, certify_inputs, compute_bounds
from intervalcert.backends.registry import get_backend, precision_ladder
from intervalcert.errors import InconclusiveError, InputError, UndecidedError
from intervalcert.model.evaluation import PointEvaluator
from intervalcert.model.layers import UncertainScale
from intervalcert.model.linear_maps import Dense
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.proof import graph_local as proof_module
from intervalcert.proof import graphs as way
from intervalcert.proof.ellipsoids import Sector
from intervalcert.proof.graph_chain import Contenders, Functions
from intervalcert.proof.graph_local import GraphLocalChecker, GraphLocalWitness
from intervalcert.proof.graphs import Passage
from intervalcert.proof.images import Compression
from intervalcert.proof.local import Leads
from intervalcert.search import graph_guide
from intervalcert.search import graph_local as search_module
from intervalcert.search import images as images_search
from intervalcert.search.float_network import FloatNetwork
from intervalcert.search.graph_chain import search_graph_chains
from intervalcert.search.graph_guide import TooWideError
from intervalcert.search.graph_local import GraphLocalSearch
from intervalcert.search.plain import PlainBackend
from intervalcert.search.room import USUAL, Room
from intervalcert.verify import local as verifier_module
from intervalcert.verify.local import LocalVerifier

EXACT = get_backend("exact")
RADII = [Fraction(2) ** k * part for k in range(-4, 2) for part in (Fraction(1), Fraction(5, 4), Fraction(3, 2))]
PROVERS = ("float64", "arb", "exact")


def verifier(network, backend="float64", **extra):
    bounds = compute_bounds(network, "float64")
    return LocalVerifier(network, [layer.upper for layer in bounds.layers], precision_ladder(backend), **extra)


def column(x):
    return RationalMatrix.from_fractions([[a] for a in x])


def largest_certified(network, points, rounds=3, backend="float64"):
    """For each point that is certified somewhere: the largest radius, and the verdict there."""
    local, found = verifier(network, backend), []
    for x in points:
        sure = [(eps, local.certify(column(x), eps, rounds)) for eps in RADII]
        sure = [(eps, verdict) for eps, verdict in sure if verdict.certified]
        found += [(x, *sure[-1])] if sure else []
    return found


def flips_of(network, points, rounds=3):
    truth = Truth(network)
    certified = largest_certified(network, points, rounds)
    return [x for x, eps, verdict in certified if truth.flip(x, eps, verdict.winner)], len(certified)


# -- no certified point flips ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_no_certified_point_flips(kind):
    took = 0
    for seed in range(6):
        flips, certified = flips_of(drawn(kind, seed), some_inputs(seed, 2, 3))
        assert flips == [], (kind, seed)
        took += certified
    assert took >= 6


@pytest.mark.parametrize("kind", KINDS)
def test_every_reach_holds(kind):
    """No argument of a function changes by more than was proved, at exact points all over the ball."""
    rng = np.random.default_rng(5)
    looked = 0
    for seed in range(4):
        case = Case(kind, seed, Fraction(1, 2))
        truth, (links,) = Truth(case.network), case.witness.chains
        guide = proof_module.NearPoint(links, EXACT, case.eps, {})
        Passage(case.network, EXACT).images(guide, case.inner)
        at = truth.inner(case.x)
        for _ in range(12):
            angle, part = rng.uniform(0, 2 * np.pi), rng.choice([1.0, 0.8, 0.4])
            step = float(case.eps) * part * (1 - 2.0**-40) * np.array([np.cos(angle), np.sin(angle)])
            there = truth.inner([a + Fraction(float(b)) for a, b in zip(case.x, step, strict=True)])
            looked += check_reaches(case.network, guide.facts, at, there)
    assert looked


def check_reaches(network, facts, at, there):
    """Of all functions of one entry, and of the first comparisons of a layer; how many were looked at."""
    count = 0
    for index, (layer, z, moved) in enumerate(zip(network.layers[:-1], at, there, strict=False)):
        change, link = [b - a for a, b in zip(z, moved, strict=True)], facts.get((index, 0))
        if link is None:
            assert not any(change), "what has no link does not change"
            continue
        if isinstance(link, Contenders):
            windows, _ = way.slots_of(layer.activation)
            assert len(link.places) + len(link.reach) == len(windows)
            continue
        if layer.activation.slopes is None:
            first = next(iter(way.rounds_of_sorting(layer.activation, len(z))))
            change = [change[a] - change[b] for a, b in zip(first.left, first.right, strict=True)]
        for moved_by, reach in zip(change, link.reach.tolist(), strict=True):
            assert abs(moved_by) <= Fraction(reach)
            count += 1
    return count


@pytest.mark.parametrize("kind", ["residuals", "pairs", "windows", "convolutions"])
@pytest.mark.parametrize("backend", ["arb", "exact"])
def test_other_number_systems_prove_it_too(kind, backend):
    network = drawn(kind, 1)
    found = largest_certified(network, some_inputs(1, 2, 2), backend=backend)
    assert found
    assert all(verdict.proved_by == backend for *_, verdict in found)


def test_uncertain_scales_widen_what_is_known():
    """Certified means: for all factors. With the least of them and with ones, no point flips."""
    took = 0
    for kind, seed in (("residuals", 3), ("pairs", 1), ("windows", 2), ("fours", 3)):
        network = drawn(kind, seed)
        least = Fraction(31, 32)
        uncertain = [
            replace(layer, before=UncertainScale(None, least), after=UncertainScale(None, least))
            if layer.activation
            else layer
            for layer in network.layers
        ]
        unsure = Network(tuple(uncertain), network.sources)
        rng = np.random.default_rng(seed)
        certified = largest_certified(unsure, some_inputs(seed, 2, 4))
        took += len(certified)
        for _ in range(6):
            known = Network(tuple(scaled(layer, rng, least) for layer in network.layers), network.sources)
            truth = Truth(known)
            assert [x for x, eps, verdict in certified if truth.flip(x, eps, verdict.winner)] == []
    assert took


def scaled(layer, rng, least):
    """The layer, with some factors before its bias."""
    if layer.activation is None:
        return layer
    some = [Fraction(int(k), 64) for k in rng.integers(int(least * 64), 65, layer.shape[0])]
    terms = []
    for term in layer.terms:
        matrix = term.map.dense()
        rows = [[c * matrix[i, j] for j in range(matrix.shape[1])] for i, c in enumerate(some)]
        made = Dense(RationalMatrix.from_fractions(rows), term.map.in_shape, term.map.out_shape)
        terms.append(replace(term, map=made))
    return replace(layer, terms=tuple(terms))


# -- faults put in on purpose ----------------------------------------------------------------------------------------


def caught(kind, seeds, points=4, rounds=3):
    return sum(len(flips_of(drawn(kind, seed), some_inputs(seed, 2, points), rounds)[0]) for seed in seeds)


def patched_inner(change):
    original = Passage._inner

    def inner(self, layer, ball):
        operators = self._operators
        self._operators = change(operators, layer)
        try:
            return original(self, layer, ball)
        finally:
            self._operators = operators

    return inner


class Turned:
    """-T in the place of T."""

    def __init__(self, operator):
        self._operator = operator

    def apply(self, x):
        made = self._operator.apply(x)
        return made - made - made


def test_a_residual_that_is_left_out_is_caught(monkeypatch):
    def without(operators, layer):
        own = [pair for pair in operators if pair[0].layer == layer]
        return [pair for pair in operators if pair[0].layer != layer or pair is own[0]]

    monkeypatch.setattr(Passage, "_inner", patched_inner(without))
    assert caught("a block", range(6)) + caught("residuals", range(6))


def test_a_residual_of_the_wrong_sign_is_caught(monkeypatch):
    def turned(operators, layer):
        own = [pair for pair in operators if pair[0].layer == layer]
        return [
            (branch, Turned(operator)) if len(own) > 1 and branch is own[1][0] else (branch, operator)
            for branch, operator in operators
        ]

    monkeypatch.setattr(Passage, "_inner", patched_inner(turned))
    assert caught("a block", range(8)) + caught("residuals", range(8))


def test_slopes_of_a_relu_for_differences_are_caught(monkeypatch):
    from intervalcert.model.activations import ACTIVATIONS

    monkeypatch.setattr(way, "MODULUS", ACTIVATIONS["relu"])
    assert caught("pairs", range(8)) + caught("fours", range(8))


def test_a_function_that_bends_and_is_taken_for_linear_is_caught(monkeypatch):
    original = Passage._opened

    def opened(self, images, rows, spread, ball, guide):
        original(self, images[:1], rows, spread, _Nothing(ball), guide)
        return list(images), None

    class _Nothing:
        def __init__(self, ball):
            self.ball = ball

        def bend(self, head, count, backend):
            pass

    monkeypatch.setattr(Passage, "_opened", opened)
    assert caught("convolutions", range(8), rounds=0) + caught("residuals", range(8), rounds=0)


def test_a_champion_that_is_never_overtaken_is_caught(monkeypatch):
    """Windows of which only the champion is looked at, whatever the others do."""

    def alone(self, rows, windows, ends):
        return np.unique(proof_module.champions(np.arange(len(windows)), windows, ends[0]))

    monkeypatch.setattr(proof_module.NearPoint, "contenders", alone)
    monkeypatch.setattr(search_module._Near, "contenders", alone)
    assert caught("windows", range(8)) + caught("windows of two", range(8))


def test_reaches_that_are_believed_are_caught(monkeypatch):
    def believed(self, link, rows):
        self._at = self._at[0], self._at[1] + 1

    original = search_module._Near._reach
    monkeypatch.setattr(proof_module.NearPoint, "_learns", believed)
    monkeypatch.setattr(search_module._Near, "_reach", lambda self, rows: original(self, rows) / 8)
    assert caught("convolutions", range(6)) + caught("residuals", range(6))


# -- the prover alone ------------------------------------------------------------------------------------------------


class Case:
    """A witness that is proved, and all that it takes."""

    def __init__(self, kind, seed, eps, rounds=0):
        self.network, self.eps = drawn(kind, seed), Fraction(eps)
        (self.x,) = some_inputs(seed, 2, 1)
        bounds = compute_bounds(self.network, "float64")
        points = PointEvaluator(self.network, [layer.upper for layer in bounds.layers], EXACT)
        values = points.at(column(self.x))
        ends = [value.float_bounds() for value in values]
        passage = Passage(self.network, PlainBackend())
        self.search = GraphLocalSearch(self.network, FloatNetwork.of(self.network), passage, ends, self.eps)
        self.inner = ends[:-1]
        first = self.search._chain({}, None)
        chains = [first]
        if rounds:
            moved = self.search._moved(first, first.guide.multipliers(), first)
            assert moved is not None
            chains.append(moved[0])
        self.witness = GraphLocalWitness(self.search.winner, tuple(chain.guide.links for chain in chains))
        # leads as large as one likes: what is proved then is every step but the last comparison
        self.leads = np.full(self.network.outputs - 1, 1e6)

    def proves(self, witness, name="exact", **other):
        given = {"leads": self.leads, "deductions": None, "of": witness.winner, "eps": self.eps} | other
        leads = Leads(given.pop("of"), given.pop("leads"), given.pop("deductions"))
        try:
            GraphLocalChecker(self.network, get_backend(name)).check(
                witness, given.pop("inner", self.inner), leads, **given
            )
        except InconclusiveError:
            return False
        return True

    def with_link(self, place, change, chain=0):
        chains = [list(links) for links in self.witness.chains]
        chains[chain][place] = change(chains[chain][place])
        return replace(self.witness, chains=tuple(map(tuple, chains)))

    def places(self, kind, chain=0):
        return [k for k, link in enumerate(self.witness.chains[chain]) if isinstance(link, kind)]


@pytest.fixture(scope="module")
def cases():
    return {
        kind: Case(kind, seed, eps)
        for kind, seed, eps in (("residuals", 3, 1), ("pairs", 1, "3/2"), ("windows", 4, 1), ("convolutions", 3, 2))
    }


@pytest.mark.parametrize("name", PROVERS)
def test_good_witnesses_are_proved(cases, name):
    """Otherwise every refusal below could have another reason. Together they have all kinds of links."""
    kinds = set()
    for case in cases.values():
        assert case.proves(case.witness, name)
        kinds |= {type(link) for chain in case.witness.chains for link in chain}
        kinds |= {"bends" for k in case.places(Functions) if case.witness.chains[0][k].bending is not None}
    assert kinds == {Functions, Compression, Contenders, "bends"}


def less(array, place=0, factor=0.5):
    made = np.array(array)
    made[place] = made[place] * factor
    return made


def narrower(sector, place):
    spread = sector.spread.copy()
    spread[place] = spread[place] * 0.5
    return Sector(sector.middle, spread)


WRONG_FUNCTIONS = {
    "a smaller reach": lambda x, k: replace(x, reach=less(x.reach, k)),
    "reaches of one": lambda x, k: replace(x, reach=x.reach[:1]),
    "reaches that are none": lambda x, k: replace(x, reach=less(x.reach, k, np.nan)),
    "a narrower sector": lambda x, k: replace(x, sector=narrower(x.sector, k)),
    "another middle": lambda x, k: replace(x, sector=Sector(x.sector.middle + 0.25, x.sector.spread)),
    "a sector of one": lambda x, k: replace(x, sector=Sector(x.sector.middle[:1], x.sector.spread[:1])),
    "a neuron left out": lambda x, k: replace(
        x, sector=Sector(less(x.sector.middle, k, 0.0), less(x.sector.spread, k, 0.0)), bending=None
    ),
    "negative spreads": lambda x, k: replace(x, sector=Sector(x.sector.middle, -x.sector.spread)),
    "nothing bends": lambda x, k: replace(x, bending=None),
    "G halved": lambda x, k: replace(x, bending=replace(x.bending, g=x.bending.g / 2)),
    "G of zeros": lambda x, k: replace(x, bending=replace(x.bending, g=x.bending.g * 0)),
    "G of one": lambda x, k: replace(x, bending=replace(x.bending, g=x.bending.g[:1, :1])),
    "G that is none": lambda x, k: replace(x, bending=replace(x.bending, g=x.bending.g * np.nan)),
    "e of zero": lambda x, k: replace(x, bending=replace(x.bending, e=0.0)),
    "a negative e": lambda x, k: replace(x, bending=replace(x.bending, e=-1.0)),
    "a larger e": lambda x, k: replace(x, bending=replace(x.bending, e=0.5)),
    "e that is none": lambda x, k: replace(x, bending=replace(x.bending, e=np.inf)),
    "smaller w": lambda x, k: replace(x, bending=replace(x.bending, w=x.bending.w * (1 - 2.0**-40))),
    "w of zero": lambda x, k: replace(x, bending=replace(x.bending, w=x.bending.w * 0)),
    "larger v": lambda x, k: replace(x, bending=replace(x.bending, v=x.bending.v * 8)),
    "v of one": lambda x, k: replace(x, bending=replace(x.bending, v=x.bending.v[:1])),
    "v and w negative": lambda x, k: replace(x, bending=replace(x.bending, v=-x.bending.v, w=-x.bending.w)),
    "the other way": lambda x, k: replace(x, bending=replace(x.bending, inside=not x.bending.inside)),
}


@pytest.mark.parametrize("wrong", WRONG_FUNCTIONS)
@pytest.mark.parametrize("kind", ["residuals", "pairs", "windows", "convolutions"])
def test_wrong_functions_are_refused(cases, kind, wrong):
    case = cases[kind]
    seen = 0
    for place in case.places(Functions):
        link = case.witness.chains[0][place]
        if link.bending is None or len(link.sector.spread) < 2:
            continue
        many = len(link.bending.w) > 1 or "of one" not in wrong
        if not many or (wrong == "the other way" and len({*link.bending.g.shape, *link.bending.w.shape}) == 1):
            continue
        neuron = int(np.flatnonzero(link.sector.spread > 0)[0])
        spoilt = case.with_link(place, lambda x, k=neuron: WRONG_FUNCTIONS[wrong](x, k))
        assert not case.proves(spoilt), (kind, wrong, place)
        assert not case.proves(spoilt, "float64"), (kind, wrong, place)
        seen += 1
    assert seen or "of one" in wrong or wrong == "the other way"


WRONG_BALLS = {
    "L halved": lambda x: replace(x, factor=x.factor / 2),
    "L of zeros": lambda x: replace(x, factor=x.factor * 0),
    "L a little smaller": lambda x: replace(x, factor=x.factor * (1 - 2.0**-10)),
    "L of one row": lambda x: replace(x, factor=x.factor[:1]),
    "L that is none": lambda x: replace(x, factor=x.factor * np.inf if x.factor.all() else x.factor + np.nan),
    "L without columns": lambda x: replace(x, factor=x.factor[:, :0]),
    "s of zero": lambda x: replace(x, slack=0.0),
    "a negative s": lambda x: replace(x, slack=-1.0),
    "a larger s": lambda x: replace(x, slack=1.0),
    "s that is none": lambda x: replace(x, slack=np.nan),
    "units that are no powers of two": lambda x: replace(x, units=x.units * 1.5),
    "other units": lambda x: replace(x, units=x.units / 2),
    "units of zero": lambda x: replace(x, units=x.units * 0),
    "negative units": lambda x: replace(x, units=-x.units),
    "units of one": lambda x: replace(x, units=x.units[:1]),
    "another turn": lambda x: replace(x, turn=x.turn + 1),
    "an earlier turn": lambda x: replace(x, turn=x.turn - 1),
}


@pytest.mark.parametrize("wrong", WRONG_BALLS)
def test_wrong_balls_are_refused(cases, wrong):
    seen = 0
    for case in cases.values():
        for place in case.places(Compression):
            spoilt = case.with_link(place, WRONG_BALLS[wrong])
            assert not case.proves(spoilt)
            assert not case.proves(spoilt, "float64")
            seen += 1
    assert seen


WRONG_CONTENDERS = {
    "one less": lambda x: replace(x, places=x.places[:-1]),
    "the first one missing": lambda x: replace(x, places=x.places[1:]),
    "one twice": lambda x: replace(x, places=np.sort(np.append(x.places, x.places[-1]))),
    "none": lambda x: replace(x, places=x.places[:0]),
    "beyond": lambda x: replace(x, places=np.append(x.places, 10**6)),
    "negative": lambda x: replace(x, places=np.insert(x.places, 0, -1)),
    "in another order": lambda x: replace(x, places=x.places[::-1]),
    "floats": lambda x: replace(x, places=x.places.astype(float)),
    "smaller reaches": lambda x: replace(x, reach=x.reach / 2),
    "larger reaches": lambda x: replace(x, reach=x.reach * 1e6),
    "fewer reaches": lambda x: replace(x, reach=x.reach[1:]),
    "reaches that are none": lambda x: replace(x, reach=x.reach * np.nan),
}


@pytest.mark.parametrize("wrong", WRONG_CONTENDERS)
def test_wrong_contenders_are_refused(cases, wrong):
    case = cases["windows"]
    (place,) = case.places(Contenders)
    assert len(case.witness.chains[0][place].reach), "some place is no contender"
    spoilt = case.with_link(place, WRONG_CONTENDERS[wrong])
    assert not case.proves(spoilt)
    assert not case.proves(spoilt, "float64")


def test_other_chains_are_refused(cases):
    for case in cases.values():
        (links,) = case.witness.chains
        last = case.places(Functions)[-1]
        for chain in (links[:last], links[1:], (*links, links[last]), links[::-1], ()):
            assert not case.proves(replace(case.witness, chains=(chain,)))
        for winner in (-1, 3):
            assert not case.proves(replace(case.witness, winner=winner))
        assert not case.proves(replace(case.witness, chains=()))


def test_other_values_are_refused(cases):
    for case in cases.values():
        assert not case.proves(case.witness, eps=case.eps * 2)
        assert not case.proves(case.witness, eps=-case.eps)
        assert not case.proves(case.witness, leads=case.leads[1:])
        assert not case.proves(case.witness, leads=case.leads * np.nan)
        assert not case.proves(case.witness, leads=case.leads * 0)
        assert not case.proves(case.witness, deductions=case.leads)
        assert not case.proves(case.witness, deductions=-case.leads)
        assert not case.proves(case.witness, of=1 - case.witness.winner), "leads of another class"
        assert not case.proves(case.witness, inner=case.inner[:-1])
        for k, (low, high) in enumerate(case.inner):
            inner = list(case.inner)
            inner[k] = low[:1], high[:1]
            assert not case.proves(case.witness, inner=inner)
            inner[k] = low * np.nan, high
            assert not case.proves(case.witness, inner=inner)


def test_a_second_chain_uses_what_the_first_proved(cases):
    """Its reaches may be those of the first, but not shorter; without the first it is another thing."""
    case = Case("residuals", 3, 1, rounds=1)
    assert case.proves(case.witness)
    place = case.places(Functions, 1)[-1]
    link = case.witness.chains[1][place]
    spoilt = case.with_link(place, lambda x: replace(x, reach=x.reach * 0.5), chain=1)
    assert not case.proves(spoilt)
    assert link.reach.shape


def test_chains_of_other_contenders_are_refused(cases):
    """Reaches of tournaments are those of other rows then."""
    case = cases["windows"]
    (links,) = case.witness.chains
    (place,) = case.places(Contenders)
    assert case.proves(replace(case.witness, chains=(links, links)))
    contenders = links[place]
    windows, _ = way.slots_of(case.network.layers[0].activation)
    everyone = replace(contenders, places=np.arange(len(windows)), reach=np.zeros(0))
    other = (*links[:place], everyone, *links[place + 1 :])
    assert not case.proves(replace(case.witness, chains=(other, links)))
    assert not case.proves(replace(case.witness, chains=(links, other)))


# -- beside the dense code -------------------------------------------------------------------------------------------


def test_dense_networks_give_about_the_same_ratios():
    """Of the first chain, before multipliers are searched for: the same mathematics."""
    from intervalcert.search.local import LocalSearch

    rng = np.random.default_rng(0)
    widths = [6, 12, 10, 4]
    arrays = [rng.integers(-16, 17, (b, a)) / 16 for a, b in pairwise(widths)]
    network = Network.from_arrays(arrays, [rng.integers(-8, 9, len(w)) / 16 for w in arrays])
    bounds = compute_bounds(network, "float64")
    points = PointEvaluator(network, [layer.upper for layer in bounds.layers], EXACT)
    floats, passage = FloatNetwork.of(network), Passage(network, PlainBackend())
    compared = 0
    for x in some_inputs(7, 6, 8):
        ends = [value.float_bounds() for value in points.at(column(x))]
        for eps in (Fraction(1, 16), Fraction(1, 4)):
            one = LocalSearch(network, floats, ends, eps)
            other = GraphLocalSearch(network, floats, passage, ends, eps)
            if not (one._leads > 0).all():
                continue
            dense, _ = one._estimated_ratio(one._chain(None, None))
            graph = other._chain({}, None).ratio
            assert graph == pytest.approx(dense, rel=1e-6)
            compared += 1
    assert compared >= 8


# -- sizes -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("search", ["chain", "local"])
def test_many_functions_of_few_numbers_are_too_wide(search):
    """What bends adds a dimension each, however few there were: 10,000 of them are not attempted."""
    rng = np.random.default_rng(0)
    network = Network.from_arrays([rng.standard_normal((10_000, 2)), rng.standard_normal((3, 10_000)) / 100])
    ends = [(np.zeros(10_000) - 1e-9, np.zeros(10_000)), (np.array([5.0, 0, 0]), np.array([5.0, 0, 0]))]
    near = GraphLocalSearch(
        network, FloatNetwork.of(network), Passage(network, PlainBackend()), ends, Fraction(1, 10**6)
    )
    searches = {"chain": lambda: search_graph_chains(network, 0), "local": lambda: near.search(0)}
    with pytest.raises(TooWideError, match="layer 0 is too wide"):
        searches[search]()


def test_what_is_too_wide_is_not_attempted(monkeypatch):
    """It is said, and counted as a fault."""
    network = drawn("convolutions", 3)
    (x,) = some_inputs(3, 2, 1)
    monkeypatch.setattr(graph_guide, "_MOST_ENTRIES", 4)
    found = verifier(network).certify(column(x), Fraction(1, 100))
    assert not found.certified
    assert found.fault.startswith("layer 0 is too wide for local refinement: 4 neurons")


def test_curves_are_refused():
    network = Network.from_arrays([[[1.0, 0], [0, 1]], [[1, 0], [0, 1]]], between="tanh")
    with pytest.raises(InputError, match="piecewise linear"):
        verifier(network)


def test_it_is_asked_for_as_ever():
    """By the public functions, on a graph."""
    network = drawn("residuals", 3)
    points = some_inputs(3, 2, 6)
    found = list(certify_inputs(network, points, Fraction(1, 4), local=True))
    alone = list(certify_inputs(network, points, Fraction(1, 4)))
    assert sum(v.certified for v in found) > sum(v.certified for v in alone)
    assert any(v.locally for v in found)


# -- room for rounding errors ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["residuals", "pairs", "convolutions", "windows"])
def test_room_is_made_where_a_proof_fails_for_want_of_it(kind, monkeypatch):
    """Floats that guess leave less than float64 needs; it is asked alone."""
    network = drawn(kind, 3)
    proved = largest_certified(network, some_inputs(3, 2, 4))

    def certified():
        local = LocalVerifier(network, norms, precision_ladder("float64")[:1])
        return [local.certify(column(x), eps, 3).certified for x, eps, _ in proved]

    norms = [layer.upper for layer in compute_bounds(network, "float64").layers]
    assert proved
    assert all(certified())
    monkeypatch.setattr(images_search, "_SLACK", 2.0**-80)
    monkeypatch.setattr(images_search, "_ROUNDING", 2.0**-80)
    assert all(certified())
    monkeypatch.setattr(verifier_module, "room_near_point", lambda *_: None)
    assert not all(certified())


def test_a_proof_that_takes_much_is_asked_of_the_first_number_system_alone(monkeypatch):
    network = drawn("residuals", 3)
    (x, eps, _), *_ = largest_certified(network, some_inputs(3, 2, 4))
    local = verifier(network)
    asked = []

    def refuses(self, *_):
        asked.append(self._backend.name)
        raise UndecidedError("not here")

    monkeypatch.setattr(GraphLocalChecker, "check", refuses)
    monkeypatch.setattr(verifier_module, "_MOST_WORK", 0.0)
    assert not local.certify(column(x), eps).certified
    assert set(asked) == {"float64"}
    monkeypatch.setattr(verifier_module, "_MOST_WORK", 1e9)
    assert not local.certify(column(x), eps).certified
    assert {"float64", "arb", "exact"} <= set(asked)


def test_room_is_never_less_than_before():
    room = Room((4.0,), 2.0**-20)
    assert room.extended([3.0, 0.1, 10.0], 0.0) == Room((24.0, 1.0, 20.0), 2.0**-20)
    assert room.extended([0.0], 1.0).reach == 2.0
    assert USUAL.of(7) == 1.0
