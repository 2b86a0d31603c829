"""The checker's roundings, each against fractions, on grids so coarse that every one of them matters."""

from fractions import Fraction
from itertools import combinations
from random import Random

import pytest

from intervalcert.checker import core, model


@pytest.fixture
def coarse(monkeypatch):
    """Three bits where there are 64, and slopes that are multiples of 1/8."""
    monkeypatch.setattr(core, "BITS", 3)
    monkeypatch.setattr(core, "GRID", 3)
    monkeypatch.setattr(core, "_ONE", 8)


def determinant(rows):
    if not rows:
        return Fraction(1)
    first, *others = rows
    minors = ([row[:k] + row[k + 1 :] for row in others] for k in range(len(first)))
    return sum(
        (-1) ** k * entry * determinant(minor) for k, (entry, minor) in enumerate(zip(first, minors, strict=True))
    )


def is_below(one, other):
    """Whether other - one is positive semidefinite: by all principal minors."""
    apart = [[b - a for a, b in zip(x, y, strict=True)] for x, y in zip(one, other, strict=True)]
    places = range(len(apart))
    some = (each for size in range(1, len(apart) + 1) for each in combinations(places, size))
    return all(determinant([[apart[i][j] for j in each] for i in each]) >= 0 for each in some)


def product(a, b):
    return [[sum(x * y for x, y in zip(row, column, strict=True)) for column in zip(*b, strict=True)] for row in a]


def transposed(a):
    return [list(column) for column in zip(*a, strict=True)]


def inverse(a):
    """By cofactors. Requires: it has one."""
    whole, places = determinant(a), range(len(a))
    return [
        [
            (-1) ** (i + j) * determinant([[a[r][c] for c in places if c != i] for r in places if r != j]) / whole
            for j in places
        ]
        for i in places
    ]


def values(s):
    return [[core.scaled(entry, s.exponent) for entry in row] for row in s.rows]


def gram(random, side, most=40):
    factor = [[random.randint(-most, most) for _ in range(side)] for _ in range(side)]
    return product(factor, transposed(factor))


def test_whole_numbers_and_roots():
    random = Random(1)
    for _ in range(500):
        number = Fraction(random.randint(-(10**6), 10**6), random.randint(1, 10**6))
        exponent = random.randint(-30, 30)
        low, high = core.floor(number, exponent), core.ceiling(number, exponent)
        step = core.scaled(1, exponent)
        assert low * step <= number < (low + 1) * step
        assert (high - 1) * step < number <= high * step
        square = random.randint(0, 10**6)
        root = core.root_above(square)
        assert root**2 >= square
        assert root == 0 or (root - 1) ** 2 < square
        assert abs(number) <= core.rounded_up(abs(number)) <= abs(number) * (1 + Fraction(1, 2**60))


def test_a_matrix_above_is_above(coarse):
    random, moved = Random(2), 0
    for _ in range(300):
        side, unit, exponent = random.randint(1, 3), random.randint(1, 50), random.randint(-9, 9)
        rows = gram(random, side)
        below = [row[: k + 1] for k, row in enumerate(rows)]
        exact = [[Fraction(entry, unit) * core.scaled(1, exponent) for entry in row] for row in rows]
        found = values(core.above(below, unit, exponent))
        assert is_below(exact, found)
        moved += found != exact
    assert moved > 200


def test_inner_values(coarse):
    random = Random(3)
    for _ in range(150):
        rows, columns = random.randint(1, 3), random.randint(1, 3)
        w = [[random.randint(-9, 9) for _ in range(columns)] for _ in range(rows)]
        layer, kept = (
            model.Layer(w, 7, [0] * rows, 1, None),
            sorted(random.sample(range(columns), random.randint(1, columns))),
        )
        part = [[Fraction(row[k], 7) for k in kept] for row in w]
        p = core.Symmetric(gram(random, len(kept), 5), -2)
        assert is_below(product(product(part, values(p)), transposed(part)), values(core.inner(layer, p, kept)))
        whole = [[Fraction(entry, 7) for entry in row] for row in w]
        assert is_below(product(whole, transposed(whole)), values(core.inner(layer, None, ())))


def test_a_step_covers_what_it_says(coarse):
    """P' >= M·(S + SV·K⁻¹·VS)·M + W² for the least w, by exact inverses."""
    random, accepted = Random(4), 0
    for _ in range(600):
        side = random.randint(1, 2)
        s = core.Symmetric(gram(random, side, 6), -8)
        sectors = [tuple(sorted((random.randint(-4, 12), random.randint(-4, 12)))) for _ in range(side)]
        v = [random.randint(1, 9) for _ in range(side)]
        g = [
            [random.choice([16, 18, 20]) if i == j else random.randint(-2, 2) for j in range(side)] for i in range(side)
        ]
        try:
            found = values(core.through(s, sectors, core.Step(list(range(side)), v, -3, g, -4)))
        except core.Refused:
            continue
        accepted += 1
        exact, numbers = values(s), [Fraction(x, 8) for x in v]
        k = [[(i == j) - numbers[i] * exact[i][j] * numbers[j] for j in range(side)] for i in range(side)]
        assert all(determinant([row[:n] for row in k[:n]]) > 0 for n in range(1, side + 1))
        sv = [[entry * numbers[j] for j, entry in enumerate(row)] for row in exact]
        more = product(product(sv, inverse(k)), transposed(sv))
        m = [Fraction(low + high, 16) for low, high in sectors]
        rho = [Fraction(high - low, 16) for low, high in sectors]
        least = [
            [m[i] * (exact[i][j] + more[i][j]) * m[j] + (i == j) * rho[i] ** 2 / numbers[i] ** 2 for j in range(side)]
            for i in range(side)
        ]
        assert is_below(least, found), (s, sectors, v, g)
    assert accepted > 100


@pytest.mark.parametrize(
    "name", ["relu", "leaky_relu:1/3", "leaky_relu:-2/3", "clip:-1/3:5/7", "identity", "hard_tanh"]
)
def test_sectors_hold_all_quotients(coarse, name):
    random, function = Random(5), model.activation(name)
    for _ in range(300):
        z, reach = Fraction(random.randint(-30, 30), 13), Fraction(random.randint(1, 40), 17)
        low, high = (Fraction(end, 8) for end in core.sector_near(function, z, reach**2))
        for part in (-1, -Fraction(3, 7), -Fraction(1, 9), Fraction(1, 9), Fraction(3, 7), 1):
            quotient = (function.at(z + part * reach) - function.at(z)) / (part * reach)
            assert low <= quotient <= high
        for kink in (hinge.kink for hinge in function.hinges):
            if 0 < abs(kink - z) <= reach:
                assert low <= (function.at(kink) - function.at(z)) / (kink - z) <= high


def test_norms_whose_factor_is_coarse():
    """||W||² is known exactly for W = [[a, b], [b, a]]: (|a| + |b|)²."""
    random, sharp = Random(6), 0
    for _ in range(300):
        a, b = random.randint(-9, 9), random.randint(-9, 9)
        layer = model.Layer([[a, b], [b, a]], 3, [0, 0], 1, None)
        shift, rows = Fraction(random.randint(-50, 400), 7), [[random.randint(-9, 9)], [random.randint(-9, 9)] * 2]
        try:
            found = core.norm_squared(layer, core.Factor(shift, rows, random.choice([-1, 0, 1])))
        except core.Refused:
            continue
        truth = Fraction((abs(a) + abs(b)) ** 2, 9)
        assert found >= truth
        sharp += found <= truth * 2
    assert sharp > 0


def test_leads_that_only_reach():
    """y_j - y_i = eps·L_ij is not enough; equal logits are none; the first of equal ones wins."""
    squares = [[], [Fraction(4)]]
    one, two = [Fraction(3), Fraction(1)], [Fraction(1), Fraction(1)]
    assert not core.is_certified(one, squares, Fraction(1))
    assert core.is_certified(one, squares, 1 - Fraction(1, 10**9))
    assert not core.is_certified(two, [[], [Fraction(0)]], Fraction(0))
    assert core.winner_of(two) == 0


IDENTITY = model.Model(
    (
        model.Layer([[1, 0], [0, 1]], 1, [0, 0], 1, model.activation("identity")),
        model.Layer([[1, 0], [0, 1]], 1, [0, 0], 1, None),
    )
)


def test_a_lead_that_only_reaches_is_not_certified_locally(monkeypatch):
    """The lead of x_0 over x_1 at (1, 0) is lost at the distance 1/√2: with bits enough the square of eps decides."""
    step = core.Step([0, 1], [0, 0], 0, [], 0)
    x = [Fraction(1), Fraction(0)]
    core.check_local(IDENTITY, x, Fraction(7, 10), 0, [[step]])
    for eps in (Fraction(708, 1000), Fraction(1), Fraction(10)):
        with pytest.raises(core.Refused):
            core.check_local(IDENTITY, x, eps, 0, [[step]])
    monkeypatch.setattr(core, "above", _exactly)  # at a distance that is a rational: x_0 alone changes
    only = model.Model((IDENTITY.layers[0], model.Layer([[1, 0], [0, 0]], 1, [0, 0], 1, None)))
    with pytest.raises(core.Refused):
        core.check_local(only, x, Fraction(1), 0, [[step]])
    core.check_local(only, x, 1 - Fraction(1, 10**9), 0, [[step]])


def _exactly(below, unit, exponent):
    """In the place of `above`, where nothing is rounded."""
    assert unit == 1
    return core.Symmetric(core.mirrored(below), exponent)


def test_changes_that_only_reach():
    x, half = [Fraction(1), Fraction(0)], Fraction(1, 2)
    core.check_counterexample(IDENTITY, x, [-half, half], Fraction(708, 1000), 0, 1)  # a tie falsifies
    core.check_counterexample(IDENTITY, x, [Fraction(-1), Fraction(0)], Fraction(1), 0, 1)  # at eps itself
    for delta, eps, winner, other in (
        ([-half, half], Fraction(707, 1000), 0, 1),  # farther than eps
        ([-half, half - Fraction(1, 2**30)], Fraction(1), 0, 1),  # the winner still leads
        ([-half, half], Fraction(1), 1, 0),  # another winner
        ([-half, half], Fraction(1), 0, 0),
        ([-half, half], Fraction(1), 0, 2),
        ([-half, half], Fraction(1), 0, -1),
        ([-half], Fraction(1), 0, 1),
    ):
        with pytest.raises(core.Refused):
            core.check_counterexample(IDENTITY, x, delta, eps, winner, other)


def test_what_a_step_rounds_goes_up(coarse, monkeypatch):
    """As above, but nothing else is rounded: each rounding of the step itself must be upward; all eigenvalues count."""
    monkeypatch.setattr(core, "above", _exactly)
    random, accepted, sides = Random(7), 0, set()
    for _ in range(900):
        side = random.randint(1, 3)
        even = random.randint(-3, 60)
        rows = (
            gram(random, side, 6)
            if random.random() < 0.5
            else [[even + 61 * (i == j) for j in range(side)] for i in range(side)]
        )
        s, numbers = core.Symmetric(rows, -8), [Fraction(random.randint(1, 9), 8) for _ in range(side)]
        exact = values(s)
        k = [[(i == j) - numbers[i] * exact[i][j] * numbers[j] for j in range(side)] for i in range(side)]
        sectors = [tuple(sorted((random.randint(-4, 12), random.randint(-4, 12)))) for _ in range(side)]
        one = [[16 if i == j else 0 for j in range(side)] for i in range(side)]
        step = core.Step(list(range(side)), [int(8 * v) for v in numbers], -3, one, -4)
        try:
            found = values(core.through(s, sectors, step))
        except core.Refused:
            continue
        accepted += 1
        sides.add(side)
        # With G = I: K >= (mean of its diagonal - the norm of the rest)·I, and K⁻¹ is no more than one over that.
        mean = sum(k[i][i] for i in range(side)) / side
        rest = sum((k[i][j] - mean * (i == j)) ** 2 for i in range(side) for j in range(side))
        sv = [[entry * numbers[j] for j, entry in enumerate(row)] for row in exact]
        width, m = Fraction((sectors[0][1] - sectors[0][0]) ** 2, 256) / numbers[0] ** 2, sum(sectors[0])
        if not m:
            assert found[0][0] >= width
        if not m or not any(sv[0]):
            continue
        times = (found[0][0] - width) * 256
        times = (times / m**2 - exact[0][0]) / sum(entry**2 for entry in sv[0])  # what GGᵀ was multiplied with
        assert times > 0
        assert (mean - 1 / times) >= 0
        assert (mean - 1 / times) ** 2 >= rest
    assert accepted > 100
    assert sides == {1, 2, 3}


def test_a_step_names_each_neuron_once():
    s, wide = core.Symmetric([[8, 0], [0, 8]], -10), (0, 1 << core.GRID)
    core.through(s, [wide, wide], core.Step([0, 1], [512, 512], -10, [[1 << 40, 0], [0, 1 << 40]], -40))
    for kept, v in (([0, 0], [512, 512]), ([1, 0], [512, 512]), ([-1, 0], [512, 512]), ([0, 2], [512, 512])):
        with pytest.raises(core.Refused, match="in order"):
            core.through(s, [wide, wide], core.Step(kept, v, -10, [[1 << 40, 0], [0, 1 << 40]], -40))
    for v in ([512], [512, -512], [512, 512, 512]):
        with pytest.raises(core.Refused):
            core.through(s, [wide, wide], core.Step([0, 1], v, -10, [[1 << 40, 0], [0, 1 << 40]], -40))
    with pytest.raises(core.Refused, match="bends"):
        core.through(s, [wide, wide], core.Step([0, 1], [512, 0], -10, [[1 << 40]], -40))


def line(name, w=1):
    """Of one number: w·f(x), and zero beside it."""
    return model.Model(
        (model.Layer([[1]], 1, [0], 1, model.activation(name)), model.Layer([[0], [w]], 1, [0, 0], 1, None))
    )


def test_slopes_are_rounded_outward_in_chains(coarse, monkeypatch):
    """4/3 is no multiple of 1/8."""
    monkeypatch.setattr(core, "above", _exactly)
    step = core.Step([0], [2], -3, [[1 << 10]], -10)
    ((), (square,)) = core.chain_squares(line("leaky_relu:4/3"), [step])
    assert square >= Fraction(16, 9)


@pytest.mark.parametrize(("name", "slope"), [("leaky_relu:3", 3), ("leaky_relu:-2", 2), ("elu:5", 5), ("relu", 1)])
def test_products_have_the_constants_of_activations(name, slope):
    ((), (square,)) = core.product_squares(line(name, 7), [Fraction(1)])
    assert square >= (7 * slope) ** 2


def test_chains_of_another_length_are_refused():
    first = IDENTITY.layers[0]
    deep = model.Model((first, first, IDENTITY.layers[1]))
    step = core.Step([0, 1], [0, 0], 0, [], 0)
    x, eps = [Fraction(1), Fraction(0)], Fraction(1, 2)
    core.check_local(deep, x, eps, 0, [[step, step]])
    for chains in ([], [[]], [[step]], [[step] * 3], [[step, step], [step]]):
        with pytest.raises(core.Refused):
            core.check_local(deep, x, eps, 0, chains)
    for chain in ([], [step], [step] * 3):
        with pytest.raises(core.Refused):
            core.chain_squares(deep, chain)
    with pytest.raises(core.Refused):
        core.check_local(deep, x, eps, 1, [[step, step]])


def test_the_hash_is_that_of_the_numbers():
    one, two = (model.Layer([[n, 2 * n], [3 * n, 0]], n, [0, n], n, None) for n in (1, 6))
    other = model.Layer([[1, 2], [3, 1]], 1, [0, 1], 1, None)
    assert model.Model((one,)).sha256 == model.Model((two,)).sha256 != model.Model((other,)).sha256
