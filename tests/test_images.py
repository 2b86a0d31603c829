"""The steps of images of a ball, against exact vectors: what a proved step says holds; wrong ones are refused."""

from dataclasses import replace
from fractions import Fraction
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intervalcert.backends.registry import backend_names, get_backend
from intervalcert.errors import InconclusiveError
from intervalcert.model.activations import MaxPool, activation
from intervalcert.model.windows import Window
from intervalcert.proof.comparators import difference, kept_of, rounds_of_sorting, slots_of, tournament
from intervalcert.proof.ellipsoids import point
from intervalcert.proof.images import beside, check_bending, check_compression, row_squares_upper
from intervalcert.search.images import first_weights, guess_ball, guess_bend

EXACT = get_backend("exact")
PROVERS = ("float64", "arb", "exact")


def fractions(values):
    return [[Fraction(float(x)) for x in row] for row in np.atleast_2d(values)]


def matrix_of(found):
    """The exact entries of a matrix on exact numbers."""
    low, high = found.float_bounds()
    assert (np.isfinite(low) & np.isfinite(high)).all()
    return low


def eighths(rng, *shape):
    return rng.integers(-8, 9, shape) / 8


def solved_inside(g, eta):
    """G⁻¹·η, in rationals."""
    size = len(g)
    rows = [[*row, value] for row, value in zip(fractions(g), eta, strict=True)]
    for k in range(size):
        pivot = next(i for i in range(k, size) if rows[i][k] != 0)
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [x / rows[k][k] for x in rows[k]]
        for i in range(size):
            if i != k:
                rows[i] = [a - rows[i][k] * b for a, b in zip(rows[i], rows[k], strict=True)]
    return [row[-1] for row in rows]


def square(values):
    return sum((x * x for x in values), Fraction(0))


def times(rows, x):
    return [sum(a * b for a, b in zip(row, x, strict=True)) for row in rows]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), inside=st.booleans(), count=st.integers(1, 4), width=st.integers(1, 4))
def test_a_proved_bend_holds_all_that_it_must(seed, inside, count, width):
    """(η', ν/w) is no longer than η, in rationals, with η' from the proof in `images`."""
    rng = np.random.default_rng(seed)
    rows, spread = eighths(rng, count, width), rng.integers(1, 9, count) / 8
    rows[:, 0] += (rows == 0).all(axis=1)
    found = guess_bend(rows, spread, first_weights(rows, spread), inside=inside)
    check_bending(found.step, spread, point(rows, EXACT), EXACT)
    step = found.step
    y = [[Fraction(float(v)) * x for x in row] for v, row in zip(step.v, fractions(rows), strict=True)]
    for _ in range(4):
        eta = [Fraction(int(k), 8) for k in rng.integers(-8, 9, width)]
        x = times(fractions(rows), eta)
        nu = [Fraction(float(r)) * Fraction(int(rng.integers(-8, 9)), 8) * z for r, z in zip(spread, x, strict=True)]
        tail = [n / Fraction(float(w)) for n, w in zip(nu, step.w, strict=True)]
        if inside:
            first = solved_inside(step.g, eta)
        else:
            ye = times(y, eta)
            a = [e - sum(y[i][k] * ye[i] for i in range(count)) for k, e in enumerate(eta)]
            b = solved_inside(step.g, ye)
            h = [
                [sum(y[i][k] * Fraction(float(step.g[i, j])) for i in range(count)) for j in range(count)]
                for k in range(width)
            ]
            assert [p + q for p, q in zip(a, times(h, b), strict=True)] == eta
            first = [*a, *b]
        assert square(first) + square(tail) <= square(eta)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), count=st.integers(1, 4), width=st.integers(1, 6))
def test_a_proved_ball_holds_all_that_it_must(seed, count, width):
    """(dᵀNη)² <= ||Lᵀd||²·||η||² for all d and η: exactly what it is used for."""
    rng = np.random.default_rng(seed)
    rows = eighths(rng, count, width) * 4.0 ** rng.integers(-3, 4, (count, 1))
    rows[0, 0] += not rows.any()
    found = guess_ball(rows).step
    check_compression(found, point(rows, EXACT), EXACT)
    made = [[Fraction(float(u)) * x for x in row] for u, row in zip(found.units, fractions(found.factor), strict=True)]
    for _ in range(6):
        d = [Fraction(int(k), 8) for k in rng.integers(-8, 9, count)]
        old = times(list(map(list, zip(*fractions(rows), strict=True))), d)
        new = times(list(map(list, zip(*made, strict=True))), d)
        assert square(old) <= square(new)
        assert (
            float(square(new))
            <= float(square(old)) * (1 + 1e-6)
            + 1e-6 * sum(float(abs(a)) * u for a, u in zip(d, found.units, strict=True)) ** 2
        )


def test_smaller_steps_are_convicted():
    """The tests above can fail: a G, or an L, that is too small does not hold some vector, and is refused."""
    rng = np.random.default_rng(1)
    rows, spread = eighths(rng, 3, 3) + 0.25, np.full(3, 0.5)
    found = guess_bend(rows, spread, first_weights(rows, spread), inside=True).step
    with pytest.raises(InconclusiveError):
        check_bending(replace(found, g=found.g * 0.99), spread, point(rows, EXACT), EXACT)
    eta = [Fraction(1), Fraction(0), Fraction(0)]
    assert square(solved_inside(found.g / 2, eta)) > square(eta)
    ball = guess_ball(rows).step
    with pytest.raises(InconclusiveError):
        check_compression(replace(ball, factor=ball.factor * 0.999), point(rows, EXACT), EXACT)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_what_an_interval_proves_is_proved_exactly(seed):
    """No number system proves what exact rationals do not, wrong by a hair or right."""
    rng = np.random.default_rng(seed)
    rows, spread = eighths(rng, 3, 4) + 2.0**-4, np.full(3, 0.25)
    good = guess_bend(rows, spread, first_weights(rows, spread), inside=bool(seed % 2)).step
    ball = guess_ball(rows).step
    close = [good, *(replace(good, e=good.e * x, g=good.g * y) for x, y in ((0.2, 1), (1, 1 - 1e-13), (1e-3, 1)))]
    balls = [ball, *(replace(ball, slack=ball.slack * x) for x in (0.3, 1e-3, 3.0))]
    for name in backend_names():
        backend = get_backend(name)
        for tried in close:
            if proves(check_bending, tried, spread, point(rows, backend), backend):
                assert proves(check_bending, tried, spread, point(rows, EXACT), EXACT), name
        for tried in balls:
            if proves(check_compression, tried, point(rows, backend), backend):
                assert proves(check_compression, tried, point(rows, EXACT), EXACT), name
        assert proves(check_bending, good, spread, point(rows, backend), backend), name
        assert proves(check_compression, ball, point(rows, backend), backend), name


def proves(check, *given):
    try:
        check(*given)
    except InconclusiveError:
        return False
    return True


@pytest.mark.parametrize("name", PROVERS)
def test_squares_of_rows_are_upper_bounds(name):
    rng = np.random.default_rng(2)
    rows = eighths(rng, 130, 5) / 3
    found = row_squares_upper(point(rows, get_backend(name)))
    for row, upper in zip(fractions(rows), found.tolist(), strict=True):
        assert square(row) <= Fraction(upper) <= square(row) + Fraction(1, 10**9)


def test_columns_after_columns():
    one, other = np.arange(6.0).reshape(2, 3), np.arange(4.0).reshape(2, 2)
    made = beside([point(one, EXACT), point(other, EXACT)])
    assert (matrix_of(made) == np.concatenate([one, other], axis=1)).all()


# -- comparisons -----------------------------------------------------------------------------------------------------


def compared(values, steps):
    """What the steps make of some numbers."""
    values = list(values)
    for step in steps:
        for a, b in zip(step.left, step.right, strict=True):
            values[a], values[b] = sorted((values[a], values[b]))
        values = [values[k] for k in step.keep]
    return values


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6])
def test_groups_are_sorted(size):
    """All zeros and ones, which is enough for whatever compares pairs; and all orders of a few."""
    function = activation(f"group_sort:{size}:1")
    cases = [*product((0, 1), repeat=size), *(permutations(range(size)) if size < 6 else ())]
    for values in cases:
        assert compared(values, rounds_of_sorting(function, size)) == sorted(values)


@pytest.mark.parametrize("name", ["group_sort:3:2", "group_sort:2:3:descending", "group_sort:4:1:descending"])
def test_groups_are_those_of_the_function(name):
    function, rng = activation(name), np.random.default_rng(0)
    values = rng.standard_normal(12)
    assert compared(values, rounds_of_sorting(function, 12)) == function.float_values(values[:, None])[:, 0].tolist()


@pytest.mark.parametrize("pads", [(0, 0, 0, 0), (1, 0, 0, 1)])
@pytest.mark.parametrize("stride", [1, 2])
def test_windows_leave_their_largest(pads, stride):
    function = MaxPool.of(2, Window.padded((4, 3), (2, 3), (stride, 1), pads=pads))
    values = np.random.default_rng(0).standard_normal(24)
    windows, seen = slots_of(function)
    assert compared(values[seen], tournament(windows)) == function.float_values(values[:, None])[:, 0].tolist()


def test_tournaments_of_few():
    """Windows of one, two, three and five, in their order."""
    windows = np.repeat([0, 1, 2, 3], [1, 2, 3, 5])
    values = np.random.default_rng(1).permutation(11)
    expected = [int(values[windows == k].max()) for k in range(4)]
    assert compared(values.tolist(), tournament(windows)) == expected


def test_ends_of_comparisons_hold():
    rng = np.random.default_rng(3)
    low = rng.standard_normal(6)
    high = low + rng.uniform(0, 1, 6)
    (step,) = tournament(np.repeat([0, 1, 2], 2))
    apart, kept = difference((low, high), step.left, step.right), kept_of((low, high), step)
    for _ in range(50):
        x = [
            Fraction(float(a)) + Fraction(float(t)) * (Fraction(float(b)) - Fraction(float(a)))
            for a, b, t in zip(low, high, rng.uniform(0, 1, 6), strict=True)
        ]
        for k, (a, b) in enumerate(zip(step.left, step.right, strict=True)):
            assert apart[0][k] <= x[a] - x[b] <= apart[1][k]
        for value, least, most in zip(compared(x, [step]), *kept, strict=True):
            assert least <= value <= most
