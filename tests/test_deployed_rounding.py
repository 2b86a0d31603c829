"""The error bounds of deployed programs, number by number: each float is at least what exact arithmetic gives.

`test_deployed` runs programs and looks for errors beyond the bounds; those have room to spare, which would hide a
rounding that goes the wrong way. Here every quantity is computed a second time in fractions, from the same constants:
usual ones, ones at which floats underflow on the way, and long chains of layers, in which roundings add up.
"""

import math
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from itertools import product as pairs
from random import Random

import numpy as np
import pytest
from strategies import at_least_the_norm

from intervalcert import Network
from intervalcert.backends.registry import precision_ladder
from intervalcert.bounds.norm_bounds import Plan, layer_bound
from intervalcert.errors import SoundnessError
from intervalcert.model.activations import activation
from intervalcert.model.layers import INPUT, Layer
from intervalcert.model.linear_maps import Dense
from intervalcert.numbers.float_formats import get_format
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.rounding import float_enclosure, round_down, sqrt_lower, sqrt_upper
from intervalcert.verify import deployed as module
from intervalcert.verify.deployed import Deployment, Deviation, Extent, _Constants, _TermConstants

LADDER = precision_ladder("float64")
ZERO, ONE = Fraction(0), Fraction(1)


SEVERAL = Network.from_arrays([np.eye(2)])
"""Of which is only asked whether it has a single output: it has not."""


def magnitude(random: Random, least: int, most: int) -> float:
    part = random.choice(
        [1 + random.random(), 1 + random.randint(0, 3) * 2.0**-52, 2 - random.randint(1, 4) * 2.0**-52]
    )
    return math.ldexp(part, random.randint(least, most))


def down(x: Fraction) -> Fraction:
    """A lower bound, short: so that fractions do not grow from layer to layer."""
    return round_down(x, 300)


def exactly(x) -> list[Fraction]:
    return [Fraction(y) for y in np.ravel(x).tolist()]


def at_least(found, exact) -> bool:
    """Entry by entry. What is infinite or not a number certifies nothing."""
    return all(not math.isfinite(x) or Fraction(x) >= y for x, y in zip(np.ravel(found).tolist(), exact, strict=True))


# -- the steps ---------------------------------------------------------------------------------------------------------


def test_floats_are_the_very_numbers():
    for powers in ([0], [-1000], [1000], [0, -1000], [1000, -1060]):
        x = np.array([[3.0 * 2.0 ** powers[0], -5.0 * 2.0 ** powers[-1]], [0.0, 2.0 ** powers[0]]])
        exact = RationalMatrix.from_floats(x)
        for data in (exact, RationalMatrix(exact.numerators, exact.denominator)):
            assert np.array_equal(module._floats(data), x)


def test_kappa_is_at_least_its_definition():
    unit = get_format("float32").unit
    for terms in (1, 2, 100, 9_999, 10_000, 10_001, 30_000):
        assert module._kappa(terms, unit) >= (1 + unit) ** terms - 1
        assert module._kappa(terms, unit) <= terms * unit * (1 + terms * unit)
    half = get_format("float16")
    assert [module._is_too_wide(n, half) for n in (2047, 2048)] == [False, True]


ACTIVATIONS = (
    "relu", "identity", "hard_tanh", "leaky_relu:1/4", "leaky_relu:-3/2", "leaky_relu:7", "clip:2:5", "clip:-3:-1",
    "clip:-1:4", "clip:-inf:-2", "clip:3:inf", "clip:-5:-5",
)  # fmt: skip


def bent(name: str, z: Fraction) -> Fraction:
    kind, *parameters = name.split(":")
    if kind == "relu":
        return max(z, ZERO)
    if kind == "leaky_relu":
        return z if z > 0 else Fraction(parameters[0]) * z
    if kind == "identity":
        return z
    low, high = parameters if kind == "clip" else ("-1", "1")
    z = z if low == "-inf" else max(z, Fraction(low))
    return z if high == "inf" else min(z, Fraction(high))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_sizes_after_an_activation(name):
    """|f(z)| for z between the ends: also far from zero where |z| is nearly nothing (clip:-3:-1)."""
    function = activation(name)
    for seed in range(300):
        random = Random(seed)
        low, high = sorted(
            random.choice([-1, 1]) * magnitude(random, -60, 4) * random.choice([0, 1, 1]) for _ in range(2)
        )
        [[size]] = function.size_upper(np.array([[low]]), np.array([[high]])).tolist()
        for z in (
            Fraction(low),
            Fraction(high),
            (Fraction(low) + Fraction(high)) / 2,
            min(max(ZERO, Fraction(low)), Fraction(high)),
        ):
            assert Fraction(size) >= abs(bent(name, z)), (low, high)


# -- the constants of a layer ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "float64"])
def test_constants_are_at_least_the_exact_ones(name):
    form = get_format(name)
    for seed in range(16):
        random = Random(seed)
        rows, inputs = random.choice([(1, 1), (2, 3), (3, 2), (5, 4), (35, 1)])
        kind = random.choice([None, "relu", "leaky_relu:1/4", "leaky_relu:-10/3", "clip:-3:-1"])
        numbers = np.array([random.choice([-1, 1]) * magnitude(random, -4, 2) for _ in range(rows * inputs)])
        weights = form.rounded(RationalMatrix.from_floats(numbers.reshape(rows, inputs)), "w")
        bias = None if seed % 3 == 0 else form.rounded(RationalMatrix.from_floats(-numbers[:rows, None]), "b")
        layer = Layer.dense(-1, weights, bias, None if kind is None else activation(kind))
        norm = layer_bound(Dense(weights), LADDER, Plan("auto")).upper
        made = _Constants.of(layer, [norm], form, LADDER)
        [term], [(source, above)] = made.terms, made.norms
        assert (term.source, source, term.summands) == (INPUT, INPUT, inputs)
        exact = [[abs(weights[i, j]) for j in range(inputs)] for i in range(rows)]
        assert [exactly(row) for row in term.floats] == exact
        assert exactly(made.bias) == [ZERO if bias is None else abs(bias[i, 0]) for i in range(rows)]
        assert all(
            Fraction(x) ** 2 >= sum(y * y for y in row) for x, row in zip(term.rows.tolist(), exact, strict=True)
        )
        assert Fraction(above) >= norm
        assert rows == 35 or at_least_the_norm(Fraction(term.absolute), exact)
        absolute = Dense(RationalMatrix.from_fractions(exact))
        assert Fraction(term.absolute) >= layer_bound(absolute, LADDER, Plan("auto")).upper
        kappa = (1 + form.unit) ** (inputs + 1) - 1
        assert kappa <= Fraction(made.kappa) <= kappa * (1 + Fraction(1, 2**50))
        underflow = inputs * form.tiny / 2 * (1 + kappa)
        assert Fraction(made.underflow) >= underflow
        lipschitz = ZERO if layer.activation is None else layer.activation.lipschitz
        assert Fraction(made.lipschitz) >= lipschitz
        leaky = kind is not None and kind.startswith("leaky")
        # The product with a slope that is rounded, or is not: (1 + u)² - 1 of it, and η/2 where it underflows.
        again = ((1 + form.unit) ** 2 - 1) * lipschitz if leaky else ZERO
        assert Fraction(made.again) >= again
        hidden = underflow * (1 + again) + (form.tiny / 2 if leaky else ZERO)
        assert Fraction(made.absolute_underflow) ** 2 >= hidden**2 * rows
        assert Fraction(made.absolute_underflow) <= 5 * max(hidden * rows, form.tiny / 2**60) + Fraction(2) ** -1073
        most = Fraction(made.largest)
        assert most <= form.largest
        if leaky:
            assert most * lipschitz * (1 + form.unit) ** 2 + form.tiny <= form.largest


# -- from layer to layer -----------------------------------------------------------------------------------------------


def constants(random: Random, rows: int, inputs: int, far: int, source: int) -> _Constants:
    """Any numbers, of a layer with one term; with `far`, of sizes such that products underflow.

    (A factor behind them brings them back.)
    """

    def some(least: int = -3, most: int = 3) -> float:
        power = random.choice([0, -far, far])
        return math.ldexp(magnitude(random, least, most), power)

    tiny = random.choice([0.0, 2.0**-1074, 2.0**-149, 2.0**-60, 2.0**-12])
    floats = np.array([[some() for _ in range(inputs)] for _ in range(rows)])
    bias = np.array([[some() * random.choice([0, 1])] for _ in range(rows)])
    norms_of_rows = np.array([some() for _ in range(rows)])
    norm, absolute = some(-1, 0), some(-1, 0)
    return _Constants(
        terms=(_TermConstants(source, floats, norms_of_rows, absolute, inputs),),
        norms=((source, norm),),
        apart=False,
        bias=bias,
        kappa=magnitude(random, -50, -4),
        underflow=tiny,
        absolute_underflow=2 * tiny,
        lipschitz=some(-1, 0) if far else magnitude(random, -1, 0),
        again=random.choice([0.0, magnitude(random, -50, -4)]),
        largest=random.choice([2.0**1000, magnitude(random, 10, 15)]),
    )


def deployment(random: Random, layers: int, far: int) -> tuple[Deployment, Extent]:
    """One made of numbers alone, and the sizes of rows at two points."""
    made = object.__new__(Deployment)
    made.network = SEVERAL
    sides = [random.choice([1, 2]) for _ in range(layers + 1)]
    made._layers = [constants(random, m, n, far, index - 1) for index, (n, m) in enumerate(pairwise(sides))]
    made._reach = {index - 1: magnitude(random, -3, 3) for index in range(layers)}
    classes = sides[-1]
    made.gaps = np.array(
        [[magnitude(random, -3, 3) * 2.0 ** random.choice([0, far]) for _ in range(classes)]] * classes
    )
    scale = 2.0 ** -random.choice([0, 40, far])
    rows = [np.array([[magnitude(random, -3, 3) * scale for _ in range(2)] for _ in range(side)]) for side in sides[1:]]
    if random.random() < 0.5:  # the first layer next to its largest number: a few steps above it or below
        first = made._layers[0]
        edge = (
            float(np.max(rows[0]))
            * (1 + first.kappa)
            * (1 + random.randint(-9, 9) * random.choice([2.0**-52, 2.0**-40]))
        )
        made._layers[0] = replace(first, largest=edge)
    return made, Extent(tuple(rows))


CASES = (
    [(seed, 3, 0) for seed in range(60)] + [(seed, 4, 600) for seed in range(60)] + [(seed, 80, 0) for seed in range(6)]
)


def drawn():
    for seed, layers, far in CASES:
        random = Random(f"{seed}-{far}-{layers}")
        yield random, far, *deployment(random, layers, far)


def test_reaches_are_at_least_the_exact_ones():
    for random, far, made, _ in drawn():
        count = random.choice([0, 1, 2])
        sigmas = [Fraction(magnitude(random, -3, 3)) / random.choice([1, 3]) for _ in range(count)]
        with np.errstate(all="ignore"):
            found = made._reaches(sigmas)
        exact = ONE
        assert found.pop(INPUT) == 1
        assert list(found) == list(range(len(made._layers) - 1))
        for index, (each, mine) in enumerate(zip(made._layers[:-1], found.values(), strict=True)):
            [(_, norm)] = each.norms
            inner = Fraction(norm) * exact
            if index < count:
                inner = min(inner, sqrt_lower(sigmas[index], 200))
            exact = down(Fraction(each.lipschitz) * inner)
            assert mine == math.inf or Fraction(mine) >= exact, (index, made._layers)
            if not far:  # no underflow: nothing is added but the roundings
                assert Fraction(mine) <= exact * (1 + Fraction(1, 2**30)), (index, made._layers)


def by_the_book(made: Deployment, extent: Extent, point: int):
    """Alpha and beta of the last layer's inputs, errors of the logits, and what limits the radius: from below."""
    alpha = beta = ZERO
    limits = []
    for each, rows, reach in zip(made._layers, extent.rows, map(Fraction, made._reach.values()), strict=True):
        [term], [(_, norm)] = each.terms, each.norms
        kappa, underflow, norms = Fraction(each.kappa), Fraction(each.underflow), exactly(term.rows)
        sizes = exactly(rows[:, point])
        base = [size + of_row * alpha for size, of_row in zip(sizes, norms, strict=True)]
        slope = [of_row * (reach + beta) for of_row in norms]
        limits += [
            ((1 + kappa) * b + underflow, (1 + kappa) * s, Fraction(each.largest))
            for b, s in zip(base, slope, strict=True)
        ]
        own, own_slope = [kappa * b + underflow for b in base], [kappa * s for s in slope]
        shared = alpha, beta
        lipschitz, absolute = Fraction(each.lipschitz), Fraction(term.absolute)
        part = kappa + Fraction(each.again) * (1 + kappa)
        size = sqrt_lower(sum(x * x for x in sizes), 300)
        local = part * (size + absolute * alpha) + Fraction(each.absolute_underflow)
        factor, stretched = max(lipschitz, ONE), lipschitz * Fraction(norm)
        alpha, beta = (
            down(stretched * alpha + factor * local),
            down(stretched * beta + factor * part * absolute * (reach + beta)),
        )
    return shared, own, own_slope, limits


def test_deviations_are_at_least_the_exact_ones():
    open_radii = 0
    for _, _, made, extent in drawn():
        found = made.deviation(extent)
        for point in range(2):
            (alpha, beta), own, own_slope, limits = by_the_book(made, extent, point)
            assert at_least([found.shared[point], found.shared_slope], [alpha, beta])
            assert at_least(found.own[:, point], own)
            assert at_least(found.own_slope, own_slope)
            most = found.most[point]
            if most >= 0:
                open_radii += 1
                assert all(base + slope * Fraction(min(most, 1e308)) <= largest for base, slope, largest in limits)
    assert open_radii > 50


def test_errors_grow_in_long_chains():
    """Times 1 + 2^-52, four hundred times over: of the mantissa 1.4 a product drops 0.4 of its last bit each time."""
    random = Random(1)
    made, _ = deployment(random, 1, 0)
    one, still = np.ones(1), np.zeros((1, 1))
    term = _TermConstants(INPUT, still, one, 0.7, 1)
    first = replace(*made._layers, terms=(term,), norms=((INPUT, 1.0),), bias=still, kappa=2.0**-10, underflow=0.0)
    first = replace(first, absolute_underflow=0.0, lipschitz=1.0, again=0.0, largest=2.0**1000)
    made._layers = [first]
    for source in range(400):
        each = replace(term, source=source, absolute=0.0)
        made._layers.append(replace(first, terms=(each,), norms=((source, 1 + 2.0**-52),)))
    made._reach = dict.fromkeys(range(-1, 400), 1.0)
    extent = Extent((np.full((1, 2), 1.4), *[np.zeros((1, 2))] * 400))
    found, ((alpha, beta), *_) = made.deviation(extent), by_the_book(made, extent, 0)
    assert alpha <= Fraction(float(found.shared[0])) <= alpha * (1 + Fraction(1, 2**30))
    assert beta <= Fraction(found.shared_slope) <= beta * (1 + Fraction(1, 2**30))


def test_errors_and_radii_are_on_the_safe_side():
    """At a radius that is found the lead is more than all errors; and where rounding up left nothing, there is none."""
    positive = 0
    for random, _, made, extent in drawn():
        classes = len(made.gaps)
        if classes < 2:
            continue
        found = made.deviation(extent)
        if not np.isfinite(found.own).all() or random.random() < 0.5:
            tiny = 2.0 ** -random.choice([0, 30, 600])
            found = Deviation(
                own=np.array([[magnitude(random, -3, 3) * tiny for _ in range(2)] for _ in range(classes)]),
                own_slope=np.array([magnitude(random, -3, 3) * tiny for _ in range(classes)]),
                shared=np.array([magnitude(random, -3, 3) * tiny * random.choice([0, 1]) for _ in range(2)]),
                shared_slope=magnitude(random, -3, 3) * tiny,
                most=np.full(2, random.choice([np.inf, 0.25, 2.0**-300])),
            )
        winners = np.array([0, 1])
        gaps, shared = [exactly(row) for row in made.gaps], exactly(found.shared)
        own, slopes, shared_slope = (
            [exactly(row) for row in found.own],
            exactly(found.own_slope),
            Fraction(found.shared_slope),
        )

        def error(
            i: int, point: int, eps: Fraction, gaps=gaps, own=own, slopes=slopes, shared=shared, more=shared_slope
        ):
            j = point
            return (
                gaps[i][j] * (shared[point] + more * eps)
                + own[i][point]
                + own[j][point]
                + (slopes[i] + slopes[j]) * eps
            )

        for eps in (0.0, magnitude(random, -3, 3), 2.0**-600):
            total = made.errors_at(found, eps, winners)
            assert at_least(total, [error(i, point, Fraction(eps)) for i in range(classes) for point in range(2)])
        margins = np.array([[magnitude(random, -3, 3) for _ in range(classes)]] * classes)
        for twice in (False, True):
            # Leads beside the errors: a few steps above them, where the difference is all rounding, and far above.
            need = made.errors_at(found, 0.0, winners) * (2 if twice else 1)
            lead = float(np.max(need)) * random.choice([1 + random.randint(0, 9) * 2.0**-52, 1 + 2.0**-30, 3.0, 1e9])
            low = np.full((classes, 2), random.choice([0.0, magnitude(random, -3, 3) * lead]))
            high = low.copy()
            low[winners, [0, 1]] += lead
            high[winners, [0, 1]] += lead
            radii = made.radii(found, low, high, winners, margins, twice=twice)
            for point, radius in enumerate(radii.tolist()):
                if radius < 0:
                    continue
                positive += 1
                eps, j = Fraction(radius), point
                assert 0 < radius <= found.most[point]
                for i in {0, 1} - {j}:
                    apart = Fraction(float(low[j, point])) - Fraction(float(high[i, point]))
                    exact = error(i, point, eps) + Fraction(float(margins[i, j])) * eps
                    assert apart > exact + (error(i, point, ZERO) if twice else 0)
    assert positive > 60


def test_slopes_that_vanish_limit_the_radius_all_the_same():
    """The product of gap and slope is no float, but not zero either: at a large radius it outweighs a small lead."""
    made = object.__new__(Deployment)
    made.network = SEVERAL
    made.gaps = np.full((2, 2), 2.0**-600)
    nothing = np.zeros((2, 1))
    found = Deviation(nothing, np.zeros(2), np.zeros(1), 2.0**-600, np.full(1, np.inf))
    low = np.array([[2.0**-990], [0.0]])
    [radius] = made.radii(found, low, low, np.array([0]), np.zeros((2, 2))).tolist()
    assert 0 < Fraction(radius) * Fraction(2) ** -1200 < Fraction(2) ** -990


# -- the sizes of values -----------------------------------------------------------------------------------------------


def network(random: Random, layers: int) -> Network:
    sides = [3] + [random.choice([2, 3]) for _ in range(layers)]
    weights = [
        np.array([[random.choice([-1, 1]) * magnitude(random, -2, 0) for _ in range(n)] for _ in range(m)])
        for n, m in pairwise(sides)
    ]
    biases = [np.array([random.choice([-1, 0, 1]) * magnitude(random, -2, 1) for _ in w]) for w in weights]
    between = random.choice(["relu", "clip:-3:-1", "clip:2:5", "leaky_relu:1/4", "hard_tanh"])
    return Network.from_arrays(weights, biases, between=between)


def test_sizes_at_points_and_in_balls_are_at_least_the_exact_ones():
    """|W||h| + |b| of each layer, at a point and, of the same point, as one of those within its norm."""
    for seed in range(40):
        random = Random(seed)
        model = network(random, random.choice([1, 2, 3]))
        norms = [layer_bound(Dense(layer.weights), LADDER, Plan("auto")).upper for layer in model.layers]
        made = Deployment(model, norms, (), get_format("float64"), LADDER)
        x = [random.choice([-1, 1]) * magnitude(random, -3, 1) for _ in range(3)]
        last = model.layers[-1].weights
        for i, j in pairs(range(last.shape[0]), repeat=2):
            square = sum((last[i, k] - last[j, k]) ** 2 for k in range(last.shape[1]))
            assert (
                square
                <= Fraction(float(made.gaps[i, j])) ** 2
                <= square * (1 + Fraction(1, 2**30)) + Fraction(2) ** -1990
            )

        def before(values: list[Fraction], model=model):
            """W·h + b of each layer and |W||h| + |b|, exactly."""
            sums, sizes = [], []
            for layer in model.layers:
                rows, columns = layer.weights.shape
                entries = [[layer.weights[i, j] for j in range(columns)] for i in range(rows)]
                bias = [layer.bias[i, 0] for i in range(rows)]
                sums.append(
                    [
                        sum(w * v for w, v in zip(row, values, strict=True)) + b
                        for row, b in zip(entries, bias, strict=True)
                    ]
                )
                sizes.append(
                    [
                        sum(abs(w * v) for w, v in zip(row, values, strict=True)) + abs(b)
                        for row, b in zip(entries, bias, strict=True)
                    ]
                )
                if layer.activation is not None:
                    values = [bent(layer.activation.name, z) for z in sums[-1]]
            return sums, sizes

        def ends(sums):
            return [tuple(np.array([float_enclosure(z, z) for z in each]).T[:, :, None]) for each in sums]

        point = [Fraction(v) for v in x]
        sums, sizes = before(point)
        column = np.array(x)[:, None]
        found = made.extent_at((column, column), ends(sums))
        within = made.extent_within(sqrt_upper(sum(v * v for v in point), 100), ends(before([ZERO] * 3)[0]))
        size = norm = sqrt_upper(sum(v * v for v in point), 100)
        for index, exact in enumerate(sizes):
            assert at_least(found.rows[index], exact), (seed, index)
            each = made._layers[index]
            norms_of_rows = each.terms[0].rows.tolist()
            book = [Fraction(r) * size + b for r, b in zip(norms_of_rows, exactly(each.bias), strict=True)]
            assert at_least(within.rows[index], book), (seed, index)
            if index < len(sizes) - 1:
                still = model.layers[index].activation.size_upper(*ends(before([ZERO] * 3)[0])[index])
                size = sqrt_lower(sum(v * v for v in exactly(still)), 200) + Fraction(made._reach[index]) * norm
            assert at_least(within.rows[index], exact), (seed, index)
        first = model.layers[0]
        rows = range(first.weights.shape[0])
        exact = [sum(abs(first.weights[i, j] * point[j]) for j in range(3)) + abs(first.bias[i, 0]) for i in rows]
        for low, high in ((-abs(column), 0 * column), (0 * column, abs(column))):  # the larger end counts
            assert at_least(made.extent_at((low, high), ends(sums)).rows[0], exact)


def test_a_long_sum_is_enlarged_by_its_length():
    """One term after another, each of them lost: as numpy does it where the columns are not next to each other."""
    inputs = 4000
    weights = np.full((2, inputs), 2.0**-53)
    weights[:, 0] = 1.0
    model = Network.from_arrays([weights[:, :1]])
    made = object.__new__(Deployment)
    made.network = SEVERAL
    whole = _Constants.of(model.layers[0], [ONE], get_format("float64"), LADDER)
    apart = np.repeat(weights, 2, axis=1)[:, ::2]
    made._layers, made.network = [replace(whole, terms=(replace(*whole.terms, floats=apart),))], model
    ones = np.ones((inputs, 1))
    assert (apart @ ones).max() < 1 + (inputs - 1) * 2.0**-53, "the terms are not lost here: the test tests nothing"
    [rows] = made.extent_at((ones, ones), [(np.ones((2, 1)), np.ones((2, 1)))]).rows
    assert Fraction(float(rows.min())) >= 1 + (inputs - 1) * Fraction(1, 2**53)


@pytest.mark.parametrize("check", ["arithmetic_fault", "product_fault"])
def test_floats_that_cannot_be_trusted_are_not(check, monkeypatch):
    monkeypatch.setattr(module, check, lambda: "broken")
    model = network(Random(0), 1)
    with pytest.raises(SoundnessError, match="broken"):
        Deployment(model, [ONE], (), get_format("float64"), LADDER)
