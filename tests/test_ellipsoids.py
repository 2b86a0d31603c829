"""One step of a chain: what is proved of an ellipsoid is true of every vector in it, and nothing else is proved."""

from dataclasses import replace
from fractions import Fraction
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import is_positive_semidefinite, minus, product, seeds, transposed

from intervalcert.backends.registry import backend_names, get_backend
from intervalcert.errors import InconclusiveError, UndecidedError
from intervalcert.proof.ellipsoids import LoewnerMajorant, Sector, check_majorant, check_step, covers, point
from intervalcert.search.ellipsoids import guess_majorant, guess_step

EXACT = get_backend("exact")
NAN, INF = float("nan"), float("inf")
SECTORS = [(0, 1), (-1, 1), (-0.5, 1), (0.25, 1), (1, 1), (-1, 0), (0.9, 1), (0, 0)]
"""The last one is that of a neuron that does not move; where none does, there is no step."""

NOTHING_PROVED = (InconclusiveError, ValueError, ArithmeticError, RuntimeWarning)
"""What is no number may end in any exception; but it must not be proved."""


def rational(array):
    return [[Fraction(x) for x in row] for row in np.asarray(array).tolist()]


def column(numbers):
    return [[Fraction(x)] for x in numbers]


def value(a, x, y):
    [[found]] = product(product(transposed(x), a), y)
    return found


def drawn_s(rng, side, rank):
    """A positive semidefinite matrix of few bits, so that floats hold it exactly; of rank 0 up to full."""
    a = rng.integers(-8, 9, (side, rank)) / 8 if rank else np.zeros((side, 1))
    return a @ a.T


def drawn_sector(rng, side, mixed):
    """The same for all neurons, or one of its own for each."""
    chosen = [rng.integers(len(SECTORS) - 1), *rng.integers(len(SECTORS), size=side - 1)][: side if mixed else 1]
    low, high = (np.resize([SECTORS[k][end] for k in chosen], side).astype(float) for end in (0, 1))
    return Sector((low + high) / 2, (high - low) / 2)


def guessed(seed, side=4, rank=4, mixed=True, part=None):
    """A matrix S, the guess above it, and a step from there; v² is a part of what K > 0 allows."""
    rng = np.random.default_rng(seed)
    s, sector = drawn_s(rng, side, rank), drawn_sector(rng, side, mixed)
    if not s.any():
        s = np.eye(side) * 2.0**-20
    majorant = guess_majorant(s)
    top = float(np.linalg.eigvalsh(majorant.above)[-1])
    relative = sector.spread / (np.abs(sector.middle) + sector.spread + 1e-9) if part is None else np.full(side, part)
    return s, majorant, guess_step(majorant.above, sector, np.sqrt(np.clip(relative, 0.01, 0.98) / top)).step


# -- the truth, in rationals -------------------------------------------------------------------------------------------


def escapes(step, s, random, count=25):
    """Vectors Δ that the step must hold and does not: from δ = S·x, for which the least q is xᵀSx.

    (dᵀδ)² = (dᵀSx)² <= dᵀSd·xᵀSx by Cauchy and Schwarz, so δ is in E(S, q); and Δ is in E(P', q) iff q·P' - ΔΔᵀ is
    positive semidefinite, which elimination decides exactly.
    """
    found, side = [], step.side
    s, after = rational(s), rational(step.after)
    sector = list(zip(*rational([step.sector.middle, step.sector.spread]), strict=True))
    for _ in range(count):
        x = column(random.randint(-9, 9) for _ in range(side))
        q, delta = value(s, x, x), product(s, x)
        parts = [random.choice([-1, 1, 0, Fraction(random.randint(-8, 8), 8)]) for _ in range(side)]
        moved = [[(m + part * r) * d] for (m, r), part, [d] in zip(sector, parts, delta, strict=True)]
        room = [
            [q * p - a * b for p, [b] in zip(row, moved, strict=True)] for row, [a] in zip(after, moved, strict=True)
        ]
        if not is_positive_semidefinite(room):
            found.append(moved)
    return found


@settings(max_examples=60)
@given(seed=seeds(), side=st.integers(4, 6), rank=st.integers(0, 6), mixed=st.booleans())
def test_a_proved_step_holds_all_that_it_must(seed, side, rank, mixed):
    s, majorant, step = guessed(seed, side, rank, mixed)
    check_step(step, check_majorant(point(s, EXACT), majorant, EXACT), EXACT)
    assert escapes(step, s, Random(seed)) == []


@pytest.mark.parametrize("side", [1, 2, 3])
def test_a_step_of_few_neurons_is_proved(side):
    """Its guesses are as good as those of many, and so is the proof."""
    unproved = []
    for seed in range(30):
        s, majorant, step = guessed(seed, side, side, mixed=False, part=0.5)
        try:
            check_step(step, check_majorant(point(s, EXACT), majorant, EXACT), EXACT)
        except UndecidedError:
            unproved.append(seed)
            continue
        assert escapes(step, s, Random(seed)) == []
    assert unproved == []


@settings(max_examples=20)
@given(seed=seeds())
def test_the_step_holds_whatever_v_is(seed):
    """Not only the closed form: any part of what keeps K positive definite, another for each neuron."""
    rng = np.random.default_rng(seed)
    s, majorant, step = guessed(seed, part=0.9)
    v = np.where(step.v > 0, step.v, 0.5) * rng.uniform(0.05, 1, step.side)
    other = guess_step(majorant.above, step.sector, v).step
    check_step(other, check_majorant(point(s, EXACT), majorant, EXACT), EXACT)
    assert escapes(other, s, Random(seed)) == []


def test_a_smaller_ellipsoid_is_convicted():
    """The check can fail: three tenths of what was proved do not hold all vectors, on many draws."""
    convicted = 0
    for seed in range(20):
        s, _, step = guessed(seed, mixed=False, part=0.5)
        convicted += bool(escapes(replace(step, after=step.after * 0.3), s, Random(seed), 40))
    assert convicted >= 5


def test_a_sector_that_is_narrower_than_the_activation_is_convicted():
    s, majorant, _ = guessed(3, mixed=False, part=0.5)
    sector = Sector(np.full(4, 0.5), np.full(4, 0.5))
    narrow = guess_step(majorant.above, Sector(sector.middle, sector.spread / 16), np.full(4, 0.05)).step
    assert escapes(replace(narrow, sector=sector), s, Random(3), 60)


@settings(max_examples=40)
@given(seed=seeds(), sector=st.sampled_from([x for x in SECTORS if sum(x)]))
def test_the_closed_form_is_never_worse_than_the_product(seed, sector):
    """||P'|| <= (|m| + ρ)²·||S||, up to the room that guesses leave."""
    rng = np.random.default_rng(seed)
    s = drawn_s(rng, 4, 4) + np.eye(4) / 8
    majorant = guess_majorant(s)
    top = float(np.linalg.eigvalsh(majorant.above)[-1]) * (1 + 2.0**-40)
    middle, spread = (sector[0] + sector[1]) / 2, (sector[1] - sector[0]) / 2
    v = np.sqrt(spread / (abs(middle) + spread) / top) if spread else 0.0
    step = guess_step(majorant.above, Sector(np.full(4, middle), np.full(4, spread)), np.full(4, v)).step
    most = (abs(middle) + spread) ** 2 * top * (1 + 2.0**-20)  # v has 20 bits
    room = minus(rational(np.eye(4) * most), rational(step.after))
    assert is_positive_semidefinite(room)


# -- the law -----------------------------------------------------------------------------------------------------------


@settings(max_examples=20)
@given(seed=seeds(), scale=st.sampled_from([0, -60, 60]))
def test_what_an_interval_proves_is_proved_exactly(seed, scale):
    """No number system proves what exact rationals do not, wrong by a hair or right."""
    s, majorant, step = guessed(seed)
    s = np.ldexp(s, scale)
    majorant = LoewnerMajorant(
        np.ldexp(majorant.near, scale), np.ldexp(majorant.above, scale), float(np.ldexp(majorant.lift, scale))
    )
    close = [replace(step, after=step.after - np.eye(4) * np.ldexp(step.slack, -k)) for k in (0, 3, 20)]
    close += [replace(step, slack=step.slack * x, e=step.e * y) for x, y in ((0.3, 1), (1, 0.3), (0.01, 0.01))]
    for name in backend_names():
        for tried in (step, *close) if scale == 0 else (None,):
            if not _proves(s, majorant, tried, get_backend(name)):
                continue
            assert _proves(s, majorant, tried, EXACT), name
        assert _proves(s, majorant, None, get_backend(name)), name


def _proves(s, majorant, step, backend):
    try:
        above = check_majorant(point(s, backend), majorant, backend)
        if step is not None:
            check_step(step, above, backend)
    except UndecidedError:
        return False
    return True


# -- wrong guesses -----------------------------------------------------------------------------------------------------


def touched(array, place, change):
    made = array.copy()
    made[place] = change(made[place])
    return made


def asymmetric(array):
    return touched(array, (0, 1), lambda x: x + 2.0**-30)


def lowered(step, by):
    """R and P' alike."""
    return replace(step, core=step.core - by * np.eye(4), after=step.after - by * np.eye(4))


WRONG_STEPS = {
    "P' as small as R": lambda s: replace(s, after=s.core),
    "P' small in one place": lambda s: replace(s, after=touched(s.after, (2, 2), lambda x: x - s.slack)),
    "P' below by half of s": lambda s: replace(s, after=touched(s.after, (0, 0), lambda x: x - s.slack / 2)),
    "P' halved": lambda s: replace(s, after=s.after / 2, core=s.core / 2),
    "R halved": lambda s: replace(s, core=s.core / 2, after=s.after - s.core / 2),
    "R and P' differ off the diagonal": lambda s: replace(s, after=asymmetric(asymmetric(s.after).T)),
    "not symmetric": lambda s: replace(s, core=asymmetric(s.core), after=asymmetric(s.after)),
    "not symmetric, by less than s": lambda s: replace(
        s, **{name: touched(getattr(s, name), (0, 1), lambda x: x + s.slack / 8) for name in ("core", "after")}
    ),
    "R off by more than s": lambda s: lowered(s, 2 * s.slack),
    "s too small": lambda s: replace(s, slack=s.slack * 1e-6),
    "s negative": lambda s: replace(s, slack=-1.0),
    "s zero": lambda s: replace(s, slack=0.0),
    "s huge, P' as before": lambda s: replace(s, slack=1e6),
    "G zero": lambda s: replace(s, g=s.g * 0),
    "G without its room": lambda s: replace(s, g=s.g / np.sqrt(1 + s.e)),
    "G too small": lambda s: replace(s, g=s.g * (1 - 2.0**-20)),
    "G of another matrix": lambda s: replace(s, g=np.eye(4) * 1.5),
    "G transposed": lambda s: replace(s, g=s.g.T.copy()),
    "e too large": lambda s: replace(s, e=0.5),
    "e zero": lambda s: replace(s, e=0.0),
    "e negative": lambda s: replace(s, e=-s.e),
    "e too small": lambda s: replace(s, e=s.e * 1e-6),
    "v·w below ρ": lambda s: replace(s, w=s.w * (1 - 2.0**-50)),
    "v·w below ρ in one place": lambda s: replace(s, w=touched(s.w, 1, lambda x: x / 2)),
    "w zero": lambda s: replace(s, w=s.w * 0),
    "v and w negative": lambda s: replace(s, v=-s.v, w=-s.w),
    "w larger, P' as before": lambda s: replace(s, w=s.w * 2),
    "v larger, K no longer positive": lambda s: replace(s, v=s.v * 4),
    "v smaller, w as before": lambda s: replace(s, v=s.v / 2),
    "ρ larger": lambda s: replace(s, sector=Sector(s.sector.middle, s.sector.spread * 2)),
    "ρ negative": lambda s: replace(s, sector=Sector(s.sector.middle, -s.sector.spread), v=s.v * 0, w=s.w),
    "m larger": lambda s: replace(s, sector=Sector(s.sector.middle + 0.5, s.sector.spread)),
    "v of one neuron": lambda s: replace(s, v=s.v[:1], g=s.g[:1, :1]),
    "v and w of one neuron": lambda s: replace(s, v=s.v[:1], w=s.w[:1], g=s.g[:1, :1]),
    "w of one neuron": lambda s: replace(s, w=s.w[:1]),
    "m of one neuron": lambda s: replace(s, sector=Sector(s.sector.middle[:1], s.sector.spread)),
    "ρ of one neuron": lambda s: replace(s, sector=Sector(s.sector.middle, s.sector.spread[:1])),
    "R and P' of one neuron": lambda s: replace(s, core=s.core[:1, :1], after=s.after[:1, :1]),
    "G of one neuron": lambda s: replace(s, g=s.g[:1, :1]),
}


@pytest.fixture(scope="module")
def good():
    s, majorant, step = guessed(7, mixed=False)
    assert (step.sector.spread > 0).all()
    return s, majorant, guess_step(majorant.above, Sector(np.full(4, 0.5), np.full(4, 0.5)), np.full(4, step.v[0])).step


def test_the_good_guess_is_proved(good, backend_name):
    """Otherwise every refusal below could have another reason."""
    assert _proves(*good, get_backend(backend_name))


@pytest.mark.parametrize("wrong", WRONG_STEPS)
def test_a_wrong_step_is_not_proved(good, backend_name, wrong):
    s, majorant, step = good
    assert not _proves(s, majorant, WRONG_STEPS[wrong](step), get_backend(backend_name))


@pytest.mark.parametrize("number", [NAN, INF, -INF])
@pytest.mark.parametrize("what", ["v", "w", "g", "core", "after", "e", "slack", "middle", "spread"])
def test_what_is_no_number_proves_nothing(good, backend_name, what, number):
    s, majorant, step = good
    backend = get_backend(backend_name)
    if what in ("middle", "spread"):
        broken = touched(getattr(step.sector, what), 1, lambda _: number)
        step = replace(step, sector=replace(step.sector, **{what: broken}))
    elif isinstance(getattr(step, what), float):
        step = replace(step, **{what: number})
    else:
        place = (1,) * getattr(step, what).ndim
        step = replace(step, **{what: touched(getattr(step, what), place, lambda _: number)})
    above = check_majorant(point(s, backend), majorant, backend)
    with pytest.raises(NOTHING_PROVED):
        check_step(step, above, backend)


WRONG_MAJORANTS = {
    "T and S' of one neuron": lambda x: replace(x, near=x.near[:1, :1], above=x.above[:1, :1]),
    "a lift that is no number": lambda x: replace(x, lift=INF),
    "S' as small as T": lambda x: replace(x, above=x.near),
    "S' small in one place": lambda x: replace(x, above=touched(x.above, (1, 1), lambda y: y - 8 * x.lift)),
    "different off the diagonal": lambda x: replace(x, above=asymmetric(asymmetric(x.above).T)),
    "not symmetric": lambda x: replace(x, near=asymmetric(x.near), above=asymmetric(x.above)),
    "not symmetric, by less than l": lambda x: replace(
        x, **{name: touched(getattr(x, name), (0, 1), lambda y: y + x.lift / 8) for name in ("near", "above")}
    ),
    "T too small": lambda x: replace(x, near=x.near - 2 * x.lift * np.eye(4), above=x.above - 2 * x.lift * np.eye(4)),
    "T halved": lambda x: replace(x, near=x.near / 2, above=x.above / 2),
    "T zero": lambda x: replace(x, near=x.near * 0, above=x.above),
    "l zero": lambda x: replace(x, lift=0.0),
    "l negative": lambda x: replace(x, lift=-1.0),
    "l huge, S' as before": lambda x: replace(x, lift=1e6),
}


@pytest.mark.parametrize("wrong", WRONG_MAJORANTS)
def test_a_wrong_bound_from_above_is_not_proved(good, backend_name, wrong):
    s, majorant, _ = good
    backend = get_backend(backend_name)
    with pytest.raises(UndecidedError):
        check_majorant(point(s + 2.0**-50 * np.eye(4), backend), WRONG_MAJORANTS[wrong](majorant), backend)


@pytest.mark.parametrize("number", [NAN, INF, -INF])
@pytest.mark.parametrize("what", ["near", "above", "lift"])
def test_a_bound_that_is_no_number_is_not_proved(good, backend_name, what, number):
    s, majorant, _ = good
    backend = get_backend(backend_name)
    broken = number if what == "lift" else touched(getattr(majorant, what), (1, 1), lambda _: number)
    with pytest.raises(NOTHING_PROVED):
        check_majorant(point(s, backend), replace(majorant, **{what: broken}), backend)


def test_what_is_below_is_a_larger_matrix():
    """S' - S is positive semidefinite, exactly."""
    for seed in range(10):
        s, majorant, _ = guessed(seed)
        check_majorant(point(s, EXACT), majorant, EXACT)
        assert is_positive_semidefinite(minus(rational(majorant.above), rational(s)))


def test_what_covers_a_sector_is_not_negative():
    """In each of several components: v, w and the spread; and v·w is compared exactly."""
    v, w, spread = np.array([0.5, 2.0]), np.array([4.0, 1.0]), np.array([2.0, 2.0])
    assert covers(v, w, spread)
    assert not covers(v, w, np.nextafter(spread, 9))
    for place in (0, 1):
        sign = np.where(np.arange(2) == place, -1.0, 1.0)
        assert not covers(sign * v, sign * w, spread)
        assert not covers(v, w, sign * spread)
        idle = np.where(sign < 0, 0.0, 1.0)
        assert not covers(sign * v, idle * w, idle * spread)
        assert not covers(idle * v, sign * w, idle * spread)
