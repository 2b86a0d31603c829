"""One mathematics, several number systems: what must hold between them, and against oracles that share no code.

Every check of soundness here is exact: rationals, no tolerance. A check is a function that returns the violations it
found, as text with the operands, so that the same code that finds nothing on the package is shown to find something
on deliberately broken variants of it (the last part of this file).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
import tempfile
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from intervalcert import Bounds, Network, SoundnessError, api, certify, compute_bounds, load_bounds, save_bounds
from intervalcert.backends import generic as generic_module
from intervalcert.backends.arb import ArbBackend, ArbMatrix, ArbScalar
from intervalcert.backends.exact import ExactBackend, ExactMatrix, ExactScalar
from intervalcert.backends.float64 import Float64Backend, Float64Matrix
from intervalcert.backends.float64_scalars import Float64Scalar
from intervalcert.backends.generic import GenericMatrix
from intervalcert.backends.protocol import Truth
from intervalcert.backends.registry import get_backend, precision_ladder
from intervalcert.bounds.margin_bounds import MarginMethod, MarginPlan, NetworkBounds, network_bounds
from intervalcert.bounds.norm_bounds import Plan, layer_bound
from intervalcert.errors import InconclusiveError
from intervalcert.model.activations import ACTIVATIONS
from intervalcert.model.linear_maps import Dense
from intervalcert.numbers.matrices import RationalMatrix, RationalVector
from intervalcert.numbers.rounding import round_down, sqrt_lower, sqrt_upper
from intervalcert.proof import decision as certifier_module
from intervalcert.proof import norms as norms_module
from intervalcert.proof.decision import Certifier, Verdict
from intervalcert.proof.norms import norm_upper

INTERVALS = ("arb", "float64", "mpmath")
LADDERS = ("arb", "exact", "float64", "mpmath")
PRECISIONS = (16, 24, 64, 128)

NumberTable = list[list[Fraction]]


def deterministic(examples: int) -> settings:
    """The same examples on every run and every machine, however slow it is."""
    return settings(
        derandomize=True,
        deadline=None,
        database=None,
        max_examples=examples,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )


# -- strategies ------------------------------------------------------------------------------------------------------

SUBNORMAL = Fraction(1, 2**1074)
TINY32 = Fraction(1, 2**126)
small = st.integers(-9, 9)

ENTRIES: dict[str, st.SearchStrategy[Fraction]] = {
    "integer": small.map(Fraction),
    "large integer": st.integers(-(2**90), 2**90).map(Fraction),
    "decimal": st.integers(-99_999, 99_999).map(lambda n: Fraction(n, 10**5)),
    "ratio": st.builds(Fraction, small, st.sampled_from([3, 7, 11])),
    "tiny": small.map(lambda n: n * TINY32),
    "huge": small.map(lambda n: n * Fraction(2) ** 1000),
    "subnormal": small.map(lambda n: n * SUBNORMAL),
    "float": st.floats(allow_nan=False, allow_infinity=False).map(Fraction),
}
ENTRIES["mixed"] = st.one_of(list(ENTRIES.values()))
SHAPES_OF_CONTENT = ("plain", "plain", "zero", "sparse", "rank one", "duplicated", "orthogonal")


@st.composite
def matrices(draw: st.DrawFn, rows: int, columns: int) -> RationalMatrix:
    """One layer of one of the awkward kinds."""
    entry = ENTRIES[draw(st.sampled_from(sorted(ENTRIES)))]
    content = draw(st.sampled_from(SHAPES_OF_CONTENT))

    def block(height: int, width: int) -> NumberTable:
        return [[draw(entry) for _ in range(width)] for _ in range(height)]

    if content == "zero":
        data = [[Fraction(0)] * columns for _ in range(rows)]
    elif content == "sparse":
        data = [[x if draw(st.booleans()) else Fraction(0) for x in row] for row in block(rows, columns)]
    elif content == "rank one":
        left, right = block(1, rows)[0], [Fraction(draw(small)) for _ in range(columns)]
        data = [[x * y for y in right] for x in left]
    elif content == "duplicated":
        [first] = block(1, columns)
        data = [list(first) for _ in range(rows)]
    elif content == "orthogonal":  # equal singular values: the worst case of the Frobenius norm
        scale = draw(entry)
        data = [[scale if i % columns == j % rows else Fraction(0) for j in range(columns)] for i in range(rows)]
    else:
        data = block(rows, columns)
    return RationalMatrix.from_fractions(data)


@st.composite
def networks(draw: st.DrawFn, max_layers: int = 3, max_width: int = 4) -> Network:
    count = draw(st.integers(1, max_layers))
    widths = [draw(st.integers(1, max_width)) for _ in range(count)] + [draw(st.integers(2, max_width))]
    return Network.of([draw(matrices(widths[i + 1], widths[i])) for i in range(count)])


def entries(matrix: RationalMatrix) -> NumberTable:
    rows, columns = matrix.shape
    return [[matrix[i, j] for j in range(columns)] for i in range(rows)]


def shown(network: Network) -> str:
    return " | ".join(str([[str(x) for x in row] for row in entries(layer.weights)]) for layer in network.layers)


# -- the law: intervals against exact --------------------------------------------------------------------------------


def law_violations(
    network: Network, ladder: Sequence[Any], iterations: int | str, margins: MarginMethod = "product"
) -> list[str] | None:
    """What these rungs claim beyond the exact run of the same precision and steps. None if they claim nothing.

    Of the product of norms by default: a chain proves nothing on one number system of few bits, and claims nothing.
    """
    plans = [Plan("gram", iterations)] * len(network.layers)
    try:
        found = network_bounds(network, ladder, plans, margins=MarginPlan(margins))
    except InconclusiveError:
        return None
    except SoundnessError as error:
        return [f"{shown(network)}: {error}"]
    return beyond_exact(network, found, ladder[0].prec, margins)


def beyond_exact(
    network: Network, found: NetworkBounds | Bounds, prec: int, margins: MarginMethod = "best"
) -> list[str]:
    """Every upper bound below, and every lower bound above, the one of exact rationals with as many steps."""
    plans = [Plan("gram", layer.iterations) for layer in found.layers]
    exact = network_bounds(network, (get_backend("exact", prec),), plans, margins=MarginPlan(margins))
    wrong = []
    for index, (mine, reference) in enumerate(zip(found.layers, exact.layers, strict=True)):
        where = f"layer {index} of {shown(network)} by {mine.computed_by}, {mine.iterations} steps, {prec} bits"
        if not mine.upper >= reference.upper:
            wrong.append(f"{where}: the upper bound {mine.upper} is below the exact one {reference.upper}")
        if not mine.lower <= reference.lower:
            wrong.append(f"{where}: the lower bound {mine.lower} is above the exact one {reference.lower}")
        if not mine.lower <= mine.upper:
            wrong.append(f"{where}: lower {mine.lower} above upper {mine.upper}")
    for i, j in itertools.product(range(network.outputs), repeat=2):
        mine, reference = found.margins.matrix[i][j], exact.margins.matrix[i][j]
        if not mine >= reference:
            wrong.append(f"margin {i},{j} of {shown(network)}: {mine} is below the exact {reference}")
    return wrong


def chosen_rungs(name: str, prec: int, which: str) -> tuple[Any, ...]:
    """`alone`: the number system without fallback, so that its own arithmetic is what is checked."""
    whole = precision_ladder(name, prec)
    return {"alone": whole[:1], "refined": whole[1:2], "ladder": whole}[which]


@pytest.mark.parametrize("prec", PRECISIONS)
@pytest.mark.parametrize("name", INTERVALS)
@given(network=networks(), iterations=st.integers(0, 12), which=st.sampled_from(["alone", "refined", "ladder"]))
@deterministic(60)
def test_every_interval_bound_is_at_least_the_exact_one(
    name: str, prec: int, network: Network, iterations: int, which: str
) -> None:
    violations = law_violations(network, chosen_rungs(name, prec, which), iterations)
    assert not law_violations(network, chosen_rungs(name, prec, which), iterations, "best")
    if which == "ladder":
        assert violations == []
    else:
        assert not violations, violations


@pytest.mark.parametrize("name", INTERVALS)
@given(network=networks(), prec=st.sampled_from(PRECISIONS))
@deterministic(40)
def test_auto_is_at_least_exact_with_as_many_steps(name: str, network: Network, prec: int) -> None:
    assert law_violations(network, precision_ladder(name, prec), "auto") == []
    assert law_violations(network, precision_ladder(name, prec), "auto", "best") == []


@pytest.mark.parametrize("name", INTERVALS)
@given(
    weights=st.tuples(st.integers(1, 4), st.integers(1, 4)).flatmap(lambda shape: matrices(*shape)),
    prec=st.sampled_from(PRECISIONS),
    iterations=st.integers(0, 12),
)
@deterministic(120)
def test_the_enclosure_of_a_norm_contains_the_exact_run(
    name: str, weights: RationalMatrix, prec: int, iterations: int
) -> None:
    """Stronger than an upper end on the safe side: both ends enclose the reference, as the law says."""
    exact, interval = get_backend("exact", prec), get_backend(name, prec)
    point = norm_upper(exact.matrix(weights), exact, iterations)[0].value
    try:
        enclosure = norm_upper(interval.matrix(weights), interval, iterations)[0]
    except InconclusiveError:
        return
    assert enclosure.lower() <= point <= enclosure.upper(), (enclosure.lower(), point, enclosure.upper())


def fixed_networks(kinds: str = "all") -> Iterator[Network]:
    """A corpus without chance, one family after the other; `nonzero`: without a layer that is zero."""
    generator = random.Random(20)

    def dense(rows: int, columns: int, unit: Fraction, top: int = 999) -> RationalMatrix:
        return RationalMatrix.from_fractions(
            [
                [unit * generator.randint(1, top) * generator.choice([1, -1]) for _ in range(columns)]
                for _ in range(rows)
            ]
        )

    for unit in (Fraction(1), Fraction(1, 1000), Fraction(1, 7), TINY32, SUBNORMAL, Fraction(2) ** 1000):
        yield Network.of([dense(3, 2, unit), dense(4, 3, unit), dense(3, 4, unit)])
        yield Network.of([dense(1, 5, unit), dense(2, 1, unit)])
    for size in (2, 3, 5):
        ones = RationalMatrix.from_integers([[1] * size] * size)
        diagonal = RationalMatrix.from_integers([[i + 1 if i == j else 0 for j in range(size)] for i in range(size)])
        yield Network.of([ones, diagonal, dense(2, size, Fraction(1))])
        yield Network.of([diagonal, ones, dense(2, size, Fraction(1, 3))])
    for _ in range(30):
        yield Network.of([dense(1, 1, Fraction(1)), dense(2, 1, Fraction(1, 10**5), 10**5)])
    if kinds == "all":
        yield Network.of([RationalMatrix.from_integers([[0, 0], [0, 0]]), dense(2, 2, Fraction(1))])
        yield Network.of([RationalMatrix.from_integers([[0], [0]])])


@pytest.mark.parametrize("name", INTERVALS)
def test_intervals_answer_by_themselves(name: str) -> None:
    """The law would be empty if every result came from the rational fallback."""
    for network in fixed_networks("nonzero"):
        bounds = compute_bounds(network, name, 6)
        for part in (*bounds.layers, bounds.margins):
            assert part.computed_by.startswith(name), (shown(network), part)
            assert part.skipped_because == (), (shown(network), part)


@pytest.mark.parametrize("name", INTERVALS)
def test_a_zero_layer_has_the_norm_zero(name: str) -> None:
    """Where an interval cannot tell zero from tiny, the fallback must end at exactly zero."""
    network = Network.of([RationalMatrix.from_integers([[0, 0, 0]]), RationalMatrix.from_integers([[1], [-1]])])
    for iterations in (0, 1, 2, 11, "auto"):
        bounds = compute_bounds(network, name, iterations)
        reference = compute_bounds(network, "exact", bounds.layers[0].iterations)
        assert bounds.layers[0].upper == reference.layers[0].upper == 0
        assert bounds.margins.matrix == ((0, 0), (0, 0))


# -- the truth: an oracle that knows nothing of the package ----------------------------------------------------------


def pivots(symmetric: NumberTable) -> Iterator[Fraction | None]:
    """Of exact symmetric elimination; None where a zero pivot stands in a row that is not zero (then: indefinite)."""
    a = [list(row) for row in symmetric]
    n = len(a)
    for k in range(n):
        if a[k][k] == 0:
            yield None if any(a[k][j] for j in range(k + 1, n)) else Fraction(0)
            continue
        yield a[k][k]
        for i in range(k + 1, n):
            factor = a[i][k] / a[k][k]
            for j in range(k + 1, n):
                a[i][j] -= factor * a[k][j]


def shifted_gram(matrix: RationalMatrix, bound: Fraction) -> NumberTable:
    """bound²·I - M·Mᵀ (or MᵀM, on the smaller side): semidefinite iff bound >= ||M||, definite iff bound > ||M||."""
    rows = entries(matrix)
    if len(rows) > len(rows[0]):
        rows = [list(column) for column in zip(*rows, strict=True)]
    return [
        [(bound**2 if i == j else 0) - sum(x * y for x, y in zip(u, v, strict=True)) for j, v in enumerate(rows)]
        for i, u in enumerate(rows)
    ]


def is_at_least_norm(bound: Fraction, matrix: RationalMatrix) -> bool:
    return all(pivot is not None and pivot >= 0 for pivot in pivots(shifted_gram(matrix, bound)))


def is_above_norm(bound: Fraction, matrix: RationalMatrix) -> bool:
    return all(pivot is not None and pivot > 0 for pivot in pivots(shifted_gram(matrix, bound)))


def untrue_bounds(network: Network, ladder: Sequence[Any], iterations: int | str) -> list[str]:
    """Bounds that are false, whatever any backend says. Margins by the product of the norms: it can be told exactly."""
    plans = [Plan("gram", iterations)] * len(network.layers)
    try:
        found = network_bounds(network, ladder, plans, margins=MarginPlan("product"))
    except SoundnessError as error:
        return [f"{shown(network)}: {error}"]
    wrong = []
    for index, (layer, bound) in enumerate(zip(network.layers, found.layers, strict=True)):
        where = f"layer {index} of {shown(network)}, {iterations} steps, {ladder[0].prec} bits"
        if not is_at_least_norm(bound.upper, layer.weights):
            wrong.append(f"{where}: {bound.upper} is below the norm")
        if is_above_norm(bound.lower, layer.weights):
            wrong.append(f"{where}: the lower bound {bound.lower} is above the norm")
    body_squared = math.prod((bound.upper**2 for bound in found.layers[:-1]), start=Fraction(1))
    last = entries(network.layers[-1].weights)
    for i, j in itertools.product(range(network.outputs), repeat=2):
        apart = body_squared * sum((x - y) ** 2 for x, y in zip(last[i], last[j], strict=True))
        if not found.margins.matrix[i][j] ** 2 >= apart:
            wrong.append(f"margin {i},{j} of {shown(network)}: {found.margins.matrix[i][j]} squared is below {apart}")
    return wrong


def test_the_oracle_tells_norms_apart() -> None:
    """3-4-5: [[3, 4]] has the norm 5; the oracle must be sharp there, and see that zero is the norm of zero."""
    five = RationalMatrix.from_integers([[3, 4]])
    just_below, just_above = 5 - Fraction(1, 10**50), 5 + Fraction(1, 10**50)
    assert [is_at_least_norm(x, five) for x in (just_below, Fraction(5), just_above)] == [False, True, True]
    assert [is_above_norm(x, five) for x in (just_below, Fraction(5), just_above)] == [False, False, True]
    swap = RationalMatrix.from_integers([[0, 2], [2, 0]])
    assert is_at_least_norm(Fraction(2), swap)
    assert not is_at_least_norm(Fraction(199, 100), swap)
    zero = RationalMatrix.from_integers([[0, 0], [0, 0]])
    assert is_at_least_norm(Fraction(0), zero)
    assert not is_above_norm(Fraction(0), zero)


@pytest.mark.parametrize("name", LADDERS)
@given(
    network=networks(),
    prec=st.sampled_from(PRECISIONS),
    iterations=st.one_of(st.integers(0, 12), st.just("auto")),
)
@deterministic(80)
def test_bounds_are_true(name: str, network: Network, prec: int, iterations: int | str) -> None:
    assert untrue_bounds(network, precision_ladder(name, prec), iterations) == []


@pytest.mark.parametrize("name", LADDERS)
@given(
    weights=st.tuples(st.integers(1, 4), st.integers(1, 4)).flatmap(lambda shape: matrices(*shape)),
    iterations=st.integers(0, 12),
)
@deterministic(60)
def test_bounds_are_as_tight_as_promised(name: str, weights: RationalMatrix, iterations: int) -> None:
    """At most rank^(1/2^(n+1)) too large. Not about soundness: the float root and the 2^-40 only loosen the claim."""
    bound = layer_bound(Dense(weights), precision_ladder(name), Plan("gram", iterations))
    excess = Fraction(min(weights.shape) ** (1 / 2 ** (iterations + 1))) * (1 + Fraction(1, 2**40))
    assert not is_above_norm(bound.upper / excess, weights), (entries(weights), bound)


@pytest.mark.parametrize("name", LADDERS)
@given(weights=st.tuples(st.integers(1, 4), st.integers(1, 4)).flatmap(lambda shape: matrices(*shape)))
@deterministic(40)
def test_float_svd_agrees_roughly(name: str, weights: RationalMatrix) -> None:
    """A sanity check with slack, for people who distrust oracles; soundness is checked exactly above."""
    bound = layer_bound(Dense(weights), precision_ladder(name), Plan("gram", 12))
    largest = max(abs(x) for row in entries(weights) for x in row) or Fraction(1)
    scaled_down = np.array([[float(x / largest) for x in row] for row in entries(weights)])
    estimate = float(np.linalg.norm(scaled_down, 2))
    assert float(bound.lower / largest) <= estimate * (1 + 1e-9) + 1e-300
    assert float(bound.upper / largest) >= estimate * (1 - 1e-9)
    assert float(bound.upper / largest) <= estimate * (1 + 1e-3)
    assert float(bound.lower / largest) >= estimate * (1 - 1e-6)


# -- symmetries ------------------------------------------------------------------------------------------------------


def scaled(matrix: RationalMatrix, factor: Fraction) -> RationalMatrix:
    return RationalMatrix.from_fractions([[x * factor for x in row] for row in entries(matrix)])


@pytest.mark.parametrize("name", LADDERS)
@given(
    network=networks(),
    which=st.integers(0, 2),
    power=st.integers(-1000, 1000),
    iterations=st.one_of(st.integers(0, 8), st.just("auto")),
)
@deterministic(40)
def test_scaling_a_layer_by_a_power_of_two_scales_its_bounds(
    name: str, network: Network, which: int, power: int, iterations: int | str
) -> None:
    """Nothing in the algorithm has a scale of its own: no absolute tolerance, no additive guard against zero."""
    which %= len(network.layers)
    factor = Fraction(2) ** power
    weights = [layer.weights for layer in network.layers]
    other = Network.of([scaled(w, factor) if index == which else w for index, w in enumerate(weights)])
    before, after = compute_bounds(network, name, iterations), compute_bounds(other, name, iterations)
    for index, (old, new) in enumerate(zip(before.layers, after.layers, strict=True)):
        expected = factor if index == which else 1
        assert (new.lower, new.upper, new.iterations) == (old.lower * expected, old.upper * expected, old.iterations)
    assert after.margins.matrix == tuple(tuple(x * factor for x in row) for row in before.margins.matrix)


def permuted_hidden(network: Network, order: random.Random) -> Network:
    """The same function: hidden neurons in another order, rows of a layer and columns of the next alike."""
    weights = [entries(layer.weights) for layer in network.layers]
    for layer in range(len(weights) - 1):
        places = list(range(len(weights[layer])))
        order.shuffle(places)
        weights[layer] = [weights[layer][p] for p in places]
        weights[layer + 1] = [[row[p] for p in places] for row in weights[layer + 1]]
    return Network.of([RationalMatrix.from_fractions(rows) for rows in weights])


@given(network=networks(), order=st.randoms(use_true_random=False), iterations=st.integers(0, 10))
@deterministic(25)
def test_the_order_of_hidden_neurons_does_not_matter(network: Network, order: random.Random, iterations: int) -> None:
    """Exactly equal upper bounds on exact, where sums have no order; at least those on the intervals.

    So it is for products of norms. A chain rests on floats, whose sums have an order.
    """
    other = permuted_hidden(network, order)
    mine, theirs = (compute_bounds(x, "exact", iterations, margins="product") for x in (network, other))
    assert [layer.upper for layer in mine.layers] == [layer.upper for layer in theirs.layers]
    assert mine.margins.matrix == theirs.margins.matrix
    for name in INTERVALS:
        # beyond_exact compares lower bounds too, whose direction is guessed: so the exact run is that of `other`.
        found = compute_bounds(other, name, iterations)
        assert beyond_exact(other, found, 64) == []
        assert all(f.upper >= m.upper for f, m in zip(found.layers, mine.layers, strict=True)), (found, mine)


@pytest.mark.parametrize("name", LADDERS)
@given(
    weights=st.tuples(st.integers(1, 4), st.integers(1, 4)).flatmap(lambda shape: matrices(*shape)),
    prec=st.sampled_from(PRECISIONS),
    iterations=st.integers(0, 12),
)
@deterministic(60)
def test_a_matrix_and_its_transpose_have_one_norm(
    name: str, weights: RationalMatrix, prec: int, iterations: int
) -> None:
    """Each of the two bounds holds for both matrices; without steps the two are the same sum of squares."""
    here = layer_bound(Dense(weights), precision_ladder(name, prec), Plan("gram", iterations))
    there = layer_bound(Dense(weights.transposed()), precision_ladder(name, prec), Plan("gram", iterations))
    for bound in (here, there):
        assert is_at_least_norm(bound.upper, weights), (entries(weights), bound)
        assert is_at_least_norm(bound.upper, weights.transposed()), (entries(weights), bound)
        assert not is_above_norm(bound.lower, weights), (entries(weights), bound)
    assert max(here.lower, there.lower) <= min(here.upper, there.upper), (entries(weights), here, there)
    if name == "exact" and (iterations == 0 or weights.shape[0] != weights.shape[1]):
        assert here.upper == there.upper


@pytest.mark.parametrize("name", LADDERS)
@given(data=st.data(), network=networks())
@deterministic(40)
def test_duplicated_classes_have_margin_zero_and_are_never_told_apart(
    name: str, data: st.DataObject, network: Network
) -> None:
    """Equal rows give equal logits: L = 0 is right, and still nothing may be certified, at no radius."""
    weights = [layer.weights for layer in network.layers]
    last = entries(weights[-1])
    source = data.draw(st.integers(0, len(last) - 1))
    place = data.draw(st.integers(0, len(last)))
    last.insert(place, list(last[source]))
    twin = source if source < place else source + 1
    doubled = Network.of([*weights[:-1], RationalMatrix.from_fractions(last)])
    bounds = compute_bounds(doubled, name, 5)
    assert bounds.margins.matrix[place][twin] == bounds.margins.matrix[twin][place] == 0
    logits = [Fraction(-1)] * len(last)
    logits[place] = logits[twin] = Fraction(10**6)
    for eps in (0, "1e-300", 1, "1e300"):
        [verdict] = certify(bounds, logits, eps)
        assert (verdict.certified, verdict.radius, verdict.argmax) == (False, 0.0, min(place, twin)), (logits, eps)


@pytest.mark.parametrize("name", LADDERS)
@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
@given(network=networks(), iterations=st.integers(0, 4))
@deterministic(10)
def test_an_activation_enters_once_per_hidden_layer(
    name: str, activation: str, network: Network, iterations: int
) -> None:
    weights = [layer.weights for layer in network.layers]
    constant = Fraction(1, 4) if activation == "sigmoid" else Fraction(1)
    """Into the product of norms, that is, which knows nothing else of it."""
    plain, found = (
        compute_bounds(Network.of(weights, between=between), name, iterations, margins="product")
        for between in ("identity", activation)
    )
    factor = constant ** (len(weights) - 1)
    assert found.margins.matrix == tuple(tuple(x * factor for x in row) for row in plain.margins.matrix)
    assert [layer.upper for layer in found.layers] == [layer.upper for layer in plain.layers]


# -- verdicts --------------------------------------------------------------------------------------------------------

Margins = Sequence[Sequence[Fraction]]
magnitudes = st.one_of(
    st.just(Fraction(0)),
    st.integers(1, 1000).map(lambda n: Fraction(n, 64)),
    st.integers(1, 9).map(lambda n: n * TINY32),
    st.integers(1, 9).map(lambda n: Fraction(n) / 7),
    st.integers(1, 9).map(lambda n: n * Fraction(2) ** 1500),
)
radii = st.one_of(
    st.just(Fraction(0)),
    st.sampled_from([Fraction("0.3"), Fraction(36, 255), Fraction(0.3), Fraction("1.58"), Fraction(1, 10**30)]),
    st.integers(1, 10**6).map(lambda n: Fraction(n, 997)),
    st.integers(1, 99).map(lambda n: n * Fraction(2) ** 300),
)
hairs = st.builds(Fraction, st.just(1), st.integers(1, 400).map(lambda k: 10**k))


@st.composite
def margin_matrices(draw: st.DrawFn) -> tuple[tuple[Fraction, ...], ...]:
    classes = draw(st.integers(2, 5))
    upper = {(i, j): draw(magnitudes) for j in range(classes) for i in range(j)}
    return tuple(
        tuple(Fraction(0) if i == j else upper[min(i, j), max(i, j)] for j in range(classes)) for i in range(classes)
    )


logit = st.one_of(
    small.map(Fraction),
    st.integers(-(10**7), 10**7).map(lambda n: Fraction(n, 10**5)),
    st.floats(-1e6, 1e6).map(Fraction),
    st.integers(-9, 9).map(lambda n: n * TINY32),
)


def by_definition(margins: Margins, logits: Sequence[Fraction], eps: Fraction) -> tuple[int, bool]:
    """The first index of the maximum, and whether it leads each other index by more than eps·L."""
    top = max(range(len(logits)), key=lambda i: (logits[i], -i))
    return top, all(logits[top] - y > eps * margins[i][top] for i, y in enumerate(logits) if i != top)


def verdict_on(name: str, margins: Margins, logits: Sequence[Fraction], eps: Fraction) -> Verdict:
    return Certifier(margins, precision_ladder(name)).verdict(RationalVector.from_fractions(logits), eps)


def verdict_violations(margins: Margins, logits: Sequence[Fraction], eps: Fraction) -> list[str]:
    """The ladders whose winner or verdict is not the one of the definition."""
    expected = by_definition(margins, logits, eps)
    wrong = []
    for name in LADDERS:
        found = verdict_on(name, margins, logits, eps)
        if (found.argmax, found.certified) != expected:
            wrong.append(f"{name}: {found}, not {expected}, for {list(map(str, logits))} at {eps} with {margins}")
    return wrong


@given(data=st.data(), margins=margin_matrices(), eps=radii)
@deterministic(150)
def test_every_ladder_gives_the_verdict_of_the_definition(data: st.DataObject, margins: Margins, eps: Fraction) -> None:
    logits = [data.draw(logit) for _ in margins]
    assert verdict_violations(margins, logits, eps) == []


def row_with_slack(margins: Margins, top: int, eps: Fraction, slack: Sequence[Fraction]) -> list[Fraction]:
    """Logits whose leads are eps·L + slack exactly (the winner's own slack is not used)."""
    best = Fraction(5, 3)
    return [best if i == top else best - eps * margins[i][top] - slack[i] for i in range(len(margins))]


@given(data=st.data(), margins=margin_matrices(), eps=radii, hair=hairs)
@deterministic(150)
def test_the_boundary_itself_is_not_certified(
    data: st.DataObject, margins: Margins, eps: Fraction, hair: Fraction
) -> None:
    """A hair above the limit certifies; exactly on it, or a hair below, does not. On every ladder."""
    classes = len(margins)
    top = data.draw(st.integers(0, classes - 1))
    rival = data.draw(st.sampled_from([i for i in range(classes) if i != top]))
    above = [data.draw(st.sampled_from([hair, Fraction(1), Fraction(10**9)])) for _ in range(classes)]

    def with_rival(slack: Fraction) -> list[Fraction]:
        return row_with_slack(margins, top, eps, [slack if i == rival else s for i, s in enumerate(above)])

    on, just_above, just_below = with_rival(Fraction(0)), with_rival(hair), with_rival(-hair)
    for name in LADDERS:
        assert verdict_on(name, margins, just_above, eps).certified, (name, just_above, eps)
        assert not verdict_on(name, margins, on, eps).certified, (name, on, eps)
        below = verdict_on(name, margins, just_below, eps)  # the rival may lead there, and then rightly be certified
        assert not (below.certified and below.argmax == top), (name, just_below, eps)
    for row in (on, just_above, just_below):
        assert verdict_violations(margins, row, eps) == []


@given(data=st.data(), margins=margin_matrices(), pair=st.tuples(radii, radii))
@deterministic(100)
def test_certified_is_monotone_in_the_radius(
    data: st.DataObject, margins: Margins, pair: tuple[Fraction, Fraction]
) -> None:
    logits = [data.draw(logit) for _ in margins]
    smaller, larger = sorted(pair)
    for name in LADDERS:
        at_larger, at_smaller = (verdict_on(name, margins, logits, eps) for eps in (larger, smaller))
        assert at_smaller.certified or not at_larger.certified, (name, logits, smaller, larger)
        assert at_smaller.radius == at_larger.radius, "the radius of an output does not depend on eps"


@given(data=st.data(), margins=margin_matrices(), hair=hairs, factor=st.integers(1, 1000))
@deterministic(150)
def test_the_radius_is_certified_and_its_supremum_is_not(
    data: st.DataObject, margins: Margins, hair: Fraction, factor: int
) -> None:
    logits = [data.draw(logit) for _ in margins]
    top = by_definition(margins, logits, Fraction(0))[0]
    leads = [(logits[top] - y, margins[i][top]) for i, y in enumerate(logits) if i != top]
    tie = any(lead == 0 for lead, _ in leads)
    limited = [lead / bound for lead, bound in leads if bound]
    for name in LADDERS:

        def certified(eps: Fraction, name: str = name) -> bool:
            return verdict_on(name, margins, logits, eps).certified

        radius = verdict_on(name, margins, logits, Fraction(0)).radius
        if tie:
            assert radius == 0.0
            assert not certified(Fraction(0))
            continue
        assert certified(Fraction(0)), (name, logits)
        if not limited:
            assert radius == math.inf
            assert certified(factor / hair)
            continue
        supremum = min(limited)
        assert 0 <= Fraction(radius) < supremum <= Fraction(math.nextafter(radius, math.inf)) or (
            radius == np.finfo(np.float64).max and supremum > Fraction(radius)
        ), (radius, supremum)
        assert certified(Fraction(radius)), (name, logits, radius)
        assert certified(supremum * (1 - hair)), (name, logits, supremum, hair)
        assert not certified(supremum), (name, logits, supremum)
        assert not certified(supremum + hair * factor), (name, logits, supremum, hair)


@given(data=st.data(), network=networks(), eps=radii, backend=st.sampled_from(LADDERS))
@deterministic(40)
def test_one_bounds_file_gives_one_verdict(data: st.DataObject, network: Network, eps: Fraction, backend: str) -> None:
    """Through the file and back, the bounds are the same rationals, and every ladder reads the same answer in them."""
    bounds = compute_bounds(network, backend, 3)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bounds.json"
        save_bounds(bounds, path)
        margins = load_bounds(path).margins.matrix
    assert margins == bounds.margins.matrix
    logits = [data.draw(logit) for _ in margins]
    assert verdict_violations(margins, logits, eps) == []
    top = data.draw(st.integers(0, len(margins) - 1))
    on_the_limit = row_with_slack(margins, top, eps, [Fraction(0)] * len(margins))
    assert verdict_violations(margins, on_the_limit, eps) == []
    assert not any(verdict_on(name, margins, on_the_limit, eps).certified for name in LADDERS)


def misread(bounds: Bounds, logits: Sequence[Any], eps: Any, exact_eps: Fraction) -> list[str]:
    """Whether the public `certify` answers for other numbers than it was given."""
    expected = by_definition(bounds.margins.matrix, [Fraction(y) for y in logits], exact_eps)
    [found] = certify(bounds, logits, eps)
    return [] if (found.argmax, found.certified) == expected else [f"{found}, not {expected}, for {logits} at {eps}"]


TWO_CLASSES = Network.from_arrays([np.array([[1.0], [-1.0]])])  # L = 2 exactly


def test_a_decimal_radius_is_read_as_it_is_written() -> None:
    """0.6 = 2·0.3 in decimals is on the limit; the float 0.3 lies below 3/10, so there the row is certified."""
    bounds = compute_bounds(TWO_CLASSES, "exact", 0)
    assert bounds.margins.matrix[0][1] == 2
    assert misread(bounds, ["0.6", "0"], "0.3", Fraction(3, 10)) == []
    assert misread(bounds, ["0.6", "0"], 0.3, Fraction(0.3)) == []
    assert misread(bounds, [Fraction(24, 85), Fraction(0)], "36/255", Fraction(36, 255)) == []


@pytest.mark.parametrize(
    "logits",
    [
        pytest.param([2**80 + 1, 2**80 + 3, -1], id="integers beyond 64 bits"),
        pytest.param([2**62 + 1, 2**62 + 3, -1], id="integers of 64 bits"),
        pytest.param([2**63 + 1023, 2**63 + 1025, -1], id="integers, some signed, some beyond the signed range"),
        pytest.param([2**53 + 1, 2**53 + 3, 0.5], id="integers and floats"),
        pytest.param([2**80 + 1, 2**80 + 3, 0.5], id="huge integers and floats"),
        pytest.param([Fraction(1, 3), Fraction(7, 3), 0.5], id="fractions and floats"),
    ],
)
def test_a_list_of_logits_is_read_exactly(logits: list[Any]) -> None:
    """The lead is 2 and eps·L is 3. numpy makes floats of some such lists: 2^53 + 1, 2^53 + 3 become 4 apart."""
    bounds = compute_bounds(Network.from_arrays([np.array([[1.0], [-1.0], [0.0]])]), "exact", 0)
    assert bounds.margins.matrix[0][1] == 2
    assert misread(bounds, logits, "1.5", Fraction("1.5")) == []


def test_a_list_of_texts_and_floats_is_read_exactly() -> None:
    """Such a list becomes texts in numpy: the float 0.1 (above 1/10) becomes the decimal 0.1."""
    bounds = compute_bounds(TWO_CLASSES, "exact", 0)
    assert misread(bounds, ["0.1", 0.1], 0, Fraction(0)) == []


def test_weights_of_integers_and_floats_are_read_exactly() -> None:
    network = Network.from_arrays([[[2**53 + 1, 0.5], [0, 0]]])
    assert network.layers[0].weights[0, 0] == 2**53 + 1


# -- the network itself, evaluated exactly ---------------------------------------------------------------------------


def evaluate(network: Network, point: Sequence[Fraction]) -> list[Fraction]:
    """The real function, in rationals."""
    functions: dict[str, Callable[[list[Fraction]], list[Fraction]]] = {
        "relu": lambda h: [max(x, Fraction(0)) for x in h],
        "leaky_relu:1/2": lambda h: [x if x > 0 else x / 2 for x in h],
        "leaky_relu:-3": lambda h: [x if x > 0 else -3 * x for x in h],
        "hard_tanh": lambda h: [min(max(x, Fraction(-1)), Fraction(1)) for x in h],
        "identity": lambda h: h,
        "clip:1/3:2": lambda h: [min(max(x, Fraction(1, 3)), Fraction(2)) for x in h],
        "min_max": lambda h: [x for k in range(0, len(h), 2) for x in sorted(h[k : k + 2])],
        "group_sort": sorted,
    }
    values = list(point)
    for layer in network.layers:
        rows = entries(layer.weights)
        values = [sum((w * x for w, x in zip(row, values, strict=True)), Fraction(0)) for row in rows]
        if layer.bias is not None:
            values = [x + layer.bias[i, 0] for i, x in enumerate(values)]
        if layer.activation is not None:
            values = functions[layer.activation.name](values)
    return values


def lipschitz_violations(network: Network, margins: Margins, points: Sequence[Sequence[Fraction]]) -> list[str]:
    """Pairs of points between which some lead changes by more than L times their distance; squares, so no roots."""
    outputs = [evaluate(network, point) for point in points]
    wrong = []
    for (u, y), (v, z) in itertools.combinations(zip(points, outputs, strict=True), 2):
        distance_squared = sum((a - b) ** 2 for a, b in zip(u, v, strict=True))
        for i, j in itertools.combinations(range(len(y)), 2):
            change_squared = ((y[j] - y[i]) - (z[j] - z[i])) ** 2
            if change_squared > margins[i][j] ** 2 * distance_squared:
                wrong.append(f"{shown(network)}: margin {i},{j} = {margins[i][j]} between {u} and {v}")
    return wrong


coordinates = st.integers(-24, 24).map(lambda n: Fraction(n, 8))
weight_units = st.sampled_from([Fraction(1), Fraction(1, 10), Fraction(1, 7), Fraction(1, 10**5), TINY32])


@st.composite
def evaluable_networks(draw: st.DrawFn) -> Network:
    """Two or three inputs, one to three layers, biases, and an activation that rationals can compute."""
    widths = [draw(st.integers(2, 3))] + [draw(st.integers(1, 4)) for _ in range(draw(st.integers(0, 2)))]
    widths.append(draw(st.integers(2, 3)))
    between = draw(
        st.sampled_from(
            ["relu", "relu", "leaky_relu:1/2", "leaky_relu:-3", "hard_tanh", "identity", "clip:1/3:2", "min_max"]
        )
    )
    weights, biases = [], []
    for columns, rows in itertools.pairwise(widths):
        unit = draw(weight_units)
        weights.append(
            RationalMatrix.from_fractions([[unit * draw(small) for _ in range(columns)] for _ in range(rows)])
        )
        biases.append(RationalMatrix.from_fractions([[draw(coordinates)] for _ in range(rows)]))
    return Network.of(weights, biases if draw(st.booleans()) else None, between=between)


def worst_directions(network: Network) -> list[list[Fraction]]:
    """Where a lead moves fastest while every neuron is active: the rows of W_n[j] - W_n[i] pulled back to the input."""
    total = entries(network.layers[0].weights)
    for layer in network.layers[1:]:
        total = [
            [
                sum((w * row[k] for w, row in zip(weights, total, strict=True)), Fraction(0))
                for k in range(network.inputs)
            ]
            for weights in entries(layer.weights)
        ]
    return [[a - b for a, b in zip(total[j], total[i], strict=True)] for j in range(len(total)) for i in range(j)]


@pytest.mark.parametrize("name", LADDERS)
@given(data=st.data(), network=evaluable_networks(), iterations=st.integers(0, 8), prec=st.sampled_from(PRECISIONS))
@deterministic(50)
def test_no_two_points_exceed_the_lipschitz_bound(
    name: str, data: st.DataObject, network: Network, iterations: int, prec: int
) -> None:
    point = st.lists(coordinates, min_size=network.inputs, max_size=network.inputs)
    points = [*data.draw(st.lists(point, min_size=6, max_size=10)), *worst_directions(network)]
    margins = compute_bounds(network, name, iterations, prec=prec).margins.matrix
    assert lipschitz_violations(network, margins, points) == []


@pytest.mark.parametrize("name", LADDERS)
@given(data=st.data(), network=evaluable_networks(), part=st.integers(0, 99))
@deterministic(50)
def test_within_a_certified_radius_the_winner_stays(
    name: str, data: st.DataObject, network: Network, part: int
) -> None:
    """The promise itself: no point of the certified ball has another argmax. The points are of norm <= 1, exactly."""
    centre = data.draw(st.lists(coordinates, min_size=network.inputs, max_size=network.inputs))
    logits = evaluate(network, centre)
    bounds = compute_bounds(network, name, 8)
    [verdict] = certify(bounds, logits, 0)
    if not 0 < verdict.radius < math.inf:
        assert verdict.radius == 0.0 or verdict.certified
        return
    [at_radius] = certify(bounds, logits, verdict.radius)
    assert at_radius.certified
    moves = data.draw(st.lists(st.lists(coordinates, min_size=len(centre), max_size=len(centre)), min_size=4))
    for move in (*moves, *worst_directions(network), *([-x for x in d] for d in worst_directions(network))):
        length = sqrt_upper(sum((x * x for x in move), Fraction(0)), 64)
        if length:
            step = Fraction(verdict.radius) * (1 if part == 99 else Fraction(part, 100))
            moved = [c + x / length * step for c, x in zip(centre, move, strict=True)]
            found = evaluate(network, moved)
            assert found.index(max(found)) == verdict.argmax, (shown(network), centre, moved, verdict)


# -- negative controls: the checks above find what they are there to find -------------------------------------------

COARSE = ((16, 0), (16, 1), (16, 3), (24, 2))
"""(prec, iterations): few bits, so that one forgotten rounding is a large part of the result."""


def law_over_corpus(name: str, which: str = "alone") -> Iterator[str]:
    for network in fixed_networks():
        for prec, iterations in COARSE:
            yield from law_violations(network, chosen_rungs(name, prec, which), iterations) or ()


def truth_over_corpus() -> Iterator[str]:
    for network in fixed_networks():
        for iterations in (0, 1, 3):
            yield from untrue_bounds(network, (get_backend("exact", 16),), iterations)


def verdicts_over_corpus() -> list[str]:
    """Rows on, just above and just below the limit, ties at the top, and plain ones."""
    third = Fraction(1, 3)
    margins = ((Fraction(0), Fraction(2), third), (Fraction(2), Fraction(0), Fraction(5)), (third, Fraction(5), 0))
    hair = Fraction(1, 10**60)
    found = []
    for eps in (Fraction(0), Fraction("0.3"), Fraction(1, 7)):
        for top, slack in itertools.product(range(3), (Fraction(0), hair, -hair, Fraction(1))):
            found += verdict_violations(margins, row_with_slack(margins, top, eps, [slack] * 3), eps)
        for tie in ([0, 0, 0], [1, 1, 0], [0, 1, 1], [7, -1, 7]):
            found += verdict_violations(margins, [Fraction(y) for y in tie], eps)
    return found


@pytest.mark.parametrize("name", INTERVALS)
def test_the_corpus_obeys_the_law_on_the_package_itself(name: str) -> None:
    """Otherwise the controls below would prove nothing. And it obeys by answering, not by keeping silent."""
    assert list(law_over_corpus(name)) == []
    for network in itertools.islice(fixed_networks("nonzero"), 12):
        assert law_violations(network, chosen_rungs(name, 16, "alone"), 3) is not None, shown(network)


def test_the_corpus_is_true_on_the_package_itself() -> None:
    assert list(truth_over_corpus()) == []
    assert verdicts_over_corpus() == []


def _no_rounding_arb(self: ArbMatrix, bits: int) -> tuple[ArbMatrix, ArbScalar]:
    return self, ArbBackend(bits, self.bits).scalar(Fraction(0))


def _no_rounding_generic(self: GenericMatrix[Any], bits: int) -> tuple[GenericMatrix[Any], Any]:
    return self, self.backend.scalar(Fraction(0))


def _no_rounding_float64(self: Float64Matrix, bits: int) -> tuple[Float64Matrix, Float64Scalar]:
    return self, Float64Backend(bits).scalar(Fraction(0))


def test_control_rounding_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ArbMatrix, "rounded", _no_rounding_arb)
    monkeypatch.setattr(Float64Matrix, "rounded", _no_rounding_float64)
    monkeypatch.setattr(GenericMatrix, "rounded", _no_rounding_generic)
    for name in INTERVALS:
        assert any("below the exact" in violation for violation in law_over_corpus(name)), name


def test_control_rounding_that_does_not_widen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The movement is bounded as it should be, but the moved entries are not enclosed."""
    arb, float64, generic = ArbMatrix.rounded, Float64Matrix.rounded, GenericMatrix.rounded
    monkeypatch.setattr(ArbMatrix, "rounded", lambda self, bits: (self, arb(self, bits)[1]))
    monkeypatch.setattr(Float64Matrix, "rounded", lambda self, bits: (self, float64(self, bits)[1]))
    monkeypatch.setattr(GenericMatrix, "rounded", lambda self, bits: (self, generic(self, bits)[1]))
    for name in INTERVALS:
        assert any("below the exact" in violation for violation in law_over_corpus(name)), name


def test_control_rounding_that_forgets_the_movement(monkeypatch: pytest.MonkeyPatch) -> None:
    """The moved entries are enclosed, but the movement is said to be zero.

    On a rung that widens, the widening mostly makes up for it: arb is convicted on the one that moves entries sharply.
    """
    arb, float64, generic = ArbMatrix.rounded, Float64Matrix.rounded, GenericMatrix.rounded
    monkeypatch.setattr(ArbMatrix, "rounded", lambda self, bits: (arb(self, bits)[0], _no_rounding_arb(self, bits)[1]))
    monkeypatch.setattr(
        Float64Matrix, "rounded", lambda self, bits: (float64(self, bits)[0], _no_rounding_float64(self, bits)[1])
    )
    monkeypatch.setattr(
        GenericMatrix, "rounded", lambda self, bits: (generic(self, bits)[0], _no_rounding_generic(self, bits)[1])
    )
    for name, which in (("arb", "refined"), ("float64", "alone"), ("mpmath", "alone")):
        assert any("below the exact" in violation for violation in law_over_corpus(name, which)), name


def test_control_interval_roots_rounded_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the intervals only, so the exact run convicts them."""

    def wrong(backend: Any, x: Any) -> Any:
        return backend.hull(
            sqrt_lower(max(x.lower(), Fraction(0)), backend.prec), sqrt_lower(max(x.upper(), Fraction(0)), backend.prec)
        )

    for name in INTERVALS:
        monkeypatch.setattr(type(get_backend(name)), "sqrt_upper", wrong)
    for name in INTERVALS:
        assert any(law_over_corpus(name)), name


def test_control_upper_end_rounded_through_a_float(monkeypatch: pytest.MonkeyPatch) -> None:
    """`float(arb)` rounds to nearest. At 53 bits and more that is below the upper end as often as above it."""
    monkeypatch.setattr(ArbScalar, "upper", lambda self: Fraction(float(self.ball.mid())))
    assert any(
        law_violations(network, (get_backend("arb", 64),), iterations)
        for network in itertools.islice(fixed_networks(), 4)
        for iterations in (0, 3)
    )


def test_control_all_roots_rounded_down(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the core, so every backend is wrong alike: only the oracle can tell."""
    monkeypatch.setattr(ExactBackend, "sqrt_upper", lambda self, x: ExactScalar(sqrt_lower(x.value, self.prec)))
    assert any(map(is_below_the_norm, truth_over_corpus()))


def is_below_the_norm(violation: str) -> bool:
    """The oracle says so, or the lower bound did before."""
    return "below the norm" in violation or "one of them is wrong" in violation


def test_control_roots_of_margins_rounded_down(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(vector: Any, backend: Any) -> Any:
        ends = (max(x.lower(), Fraction(0)) for x in vector.entries)
        return generic_module.GenericVector(tuple(backend.scalar(sqrt_lower(x, backend.prec)) for x in ends))

    monkeypatch.setattr(generic_module.GenericVector, "roots", wrong)
    assert any("squared is below" in violation for violation in truth_over_corpus())


def test_control_the_movement_dropped_on_the_way_back(monkeypatch: pytest.MonkeyPatch) -> None:
    right = norms_module._unwound

    def without_movement(steps: Sequence[tuple[Any, Any]], last: Any, backend: Any) -> Any:
        return right([(scale, backend.scalar(Fraction(0))) for scale, _ in steps], last, backend)

    monkeypatch.setattr(norms_module, "_unwound", without_movement)
    assert any(map(is_below_the_norm, truth_over_corpus()))


def test_control_margins_rounded_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generic_module, "round_up", round_down)
    assert any("squared is below" in violation for violation in truth_over_corpus())


def test_control_a_guard_added_to_the_divisor(monkeypatch: pytest.MonkeyPatch) -> None:
    """The seed's second finding: dividing by r + 1e-9 but multiplying by r afterwards. Tiny layers make it visible."""
    monkeypatch.setattr(
        ExactMatrix,
        "ldexp",
        lambda self, exponent: self.scalar_mul(ExactScalar(1 / (Fraction(2) ** -exponent + Fraction(1, 10**9)))),
    )
    assert any(truth_over_corpus())


def test_control_winner_excluded_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """The seed's third finding: every logit equal to the winner's is left out, so [0, 0] is certified."""
    right = certifier_module._leads
    monkeypatch.setattr(
        certifier_module, "_leads", lambda logits, top: ((i, lead) for i, lead in right(logits, top) if lead != 0)
    )
    assert len(verdicts_over_corpus()) >= len(LADDERS)


def test_control_limit_certified(monkeypatch: pytest.MonkeyPatch) -> None:
    """<= in place of <, in the rationals that have the last word."""
    monkeypatch.setattr(
        ExactScalar, "less", lambda self, other: Truth.TRUE if self.value <= other.value else Truth.FALSE
    )
    assert len(verdicts_over_corpus()) >= len(LADDERS)


def test_control_unknown_read_as_true(monkeypatch: pytest.MonkeyPatch) -> None:
    right = ArbScalar.less
    monkeypatch.setattr(
        ArbScalar, "less", lambda self, other: Truth.FALSE if right(self, other) is Truth.FALSE else Truth.TRUE
    )
    assert any(violation.startswith("arb:") for violation in verdicts_over_corpus())


def test_control_radius_read_as_a_float(monkeypatch: pytest.MonkeyPatch) -> None:
    """float("0.3") is below 3/10: a row on the limit would be certified."""
    bounds = compute_bounds(TWO_CLASSES, "exact", 0)
    monkeypatch.setattr(api, "as_fraction", lambda value: Fraction(float(value)))
    assert misread(bounds, ["0.6", "0"], "0.3", Fraction(3, 10))


@pytest.mark.parametrize("name", LADDERS)
def test_control_lipschitz_bounds_a_little_too_small(name: str) -> None:
    """The search must be sharp: a part in 10^12 less, and a pair of points of this affine map convicts the bound."""
    network = Network.of([RationalMatrix.from_fractions([[Fraction(3), Fraction(1, 7)], [Fraction(-1), Fraction(2)]])])
    bounds = compute_bounds(network, name, 3)
    points = [[Fraction(0), Fraction(0)], *worst_directions(network)]
    assert lipschitz_violations(network, bounds.margins.matrix, points) == []
    less = tuple(tuple(x * (1 - Fraction(1, 10**12)) for x in row) for row in bounds.margins.matrix)
    smaller = dataclasses.replace(bounds, margins=dataclasses.replace(bounds.margins, matrix=less))
    assert len(lipschitz_violations(network, smaller.margins.matrix, points)) == 1
