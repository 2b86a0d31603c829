"""Sectors: every difference quotient within reach lies in them, exactly; and nothing narrower is believed.

Quotients are taken in rationals at points next to the kinks and at the ends of the reach, where they are extreme: a
piecewise linear function has its extreme quotients from z at z itself, at a kink, or at an end.
"""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from intervalcert.model.activations import PiecewiseLinear, activation
from intervalcert.proof.ellipsoids import Sector
from intervalcert.proof.sectors import holds_sector, is_within_reach
from intervalcert.search.sectors import sector_around

GRID = Fraction(1, 2**40)
NAMES = ("relu", "hard_tanh", "identity", "leaky_relu:0.01", "leaky_relu:1/3", "leaky_relu:-0.5", "leaky_relu:2")
RELU = activation("relu").piecewise_linear

small = st.fractions(min_value=-4, max_value=4, max_denominator=24)
floats = st.one_of(
    st.floats(-8, 8),
    st.sampled_from(
        [0.0, 1.0, -1.0, 0.5, -0.5, 5e-324, -5e-324, 1e-300, 1.0 - 2.0**-53, 1.0 + 2.0**-52, 1e300, -1e300]
    ),
)
reaches = st.one_of(st.floats(0, 16), st.sampled_from([0.0, 5e-324, 1e-300, 2.0**-60, 1.0, 1e300]))
functions = st.one_of(
    st.sampled_from(NAMES).map(lambda name: activation(name).piecewise_linear),
    st.builds(
        PiecewiseLinear, st.just("drawn"), small, small, st.lists(st.tuples(small, small), max_size=4).map(tuple)
    ),
)


def value(function, x):
    return function.offset + function.slope * x + sum(w * max(x - k, 0) for w, k in function.hinges)


def quotients(function, z, reach):
    """At the ends of the reach, at the kinks within, next to them, and next to z: all the extreme ones."""
    tiny = Fraction(1, 2**200)
    steps = {reach, -reach, reach / 3, -reach / 3, min(reach, tiny), -min(reach, tiny)}
    for _, kink in function.hinges:
        steps |= {kink - z + part * tiny for part in (-1, 0, 1)}
    steps = [d for d in steps if d and abs(d) <= reach]
    return [(value(function, z + d) - value(function, z)) / d for d in steps]


def one(x):
    return np.array([float(x)])


def ends(sector):
    middle, spread = Fraction(float(sector.middle[0])), Fraction(float(sector.spread[0]))
    return middle - spread, middle + spread


@settings(max_examples=300)
@given(function=functions, z=floats, reach=reaches)
@example(function=RELU, z=0.0, reach=1.0)
@example(function=RELU, z=1.0, reach=1.0)
@example(function=RELU, z=-1.0, reach=1.0)
@example(function=RELU, z=-5e-324, reach=5e-324)
@example(function=activation("hard_tanh").piecewise_linear, z=1.0, reach=2.0)
@example(function=activation("hard_tanh").piecewise_linear, z=-1.0, reach=2.5)
def test_all_quotients_lie_in_the_sector(function, z, reach):
    sector = sector_around(function, one(z), one(z), one(reach))
    low, high = ends(sector)
    for q in quotients(function, Fraction(z), Fraction(reach)):
        assert low <= q <= high
    assert holds_sector(function, one(z), one(z), one(reach), sector)


@settings(max_examples=200)
@given(function=functions, z=st.floats(-8, 8), width=st.floats(0, 2), reach=st.floats(0, 16), part=st.floats(0, 1))
def test_wherever_in_its_interval_the_value_is(function, z, width, reach, part):
    """And for whatever smaller reach."""
    high = z + width
    sector = sector_around(function, one(z), one(high), one(reach))
    low_end, high_end = ends(sector)
    inner = Fraction(z) + (Fraction(high) - Fraction(z)) * Fraction(part)
    for within in (Fraction(reach), Fraction(reach) / 2):
        for q in quotients(function, inner, within):
            assert low_end <= q <= high_end


@settings(max_examples=200)
@given(function=functions, z=st.floats(-8, 8), reach=st.floats(2.0**-10, 16), less=st.integers(0, 30))
def test_nothing_narrower_is_believed(function, z, reach, less):
    """A part taken off either side is refused wherever a quotient lies in it: no more than two steps too wide."""
    sector = sector_around(function, one(z), one(z), one(reach))
    low, high = ends(sector)
    cut = 2.0**-less
    for middle, spread in (
        (sector.middle, sector.spread - cut),
        (sector.middle + cut / 2, sector.spread - cut / 2),
        (sector.middle - cut / 2, sector.spread - cut / 2),
    ):
        narrower = Sector(middle, spread)
        believed = holds_sector(function, one(z), one(z), one(reach), narrower)
        low, high = ends(narrower)
        missed = [q for q in quotients(function, Fraction(z), Fraction(reach)) if not low <= q <= high]
        assert not (believed and missed)


@settings(max_examples=100)
@given(name=st.sampled_from(["relu", "leaky_relu:0.01", "leaky_relu:-0.5", "leaky_relu:2"]), z=st.floats(-4, 4))
def test_it_is_no_wider_than_it_must_be(name, z):
    """For one kink the quotients at the ends of the reach fill the sector up to two steps of the grid."""
    function = activation(name).piecewise_linear
    low, high = ends(sector_around(function, one(z), one(z), one(3.0)))
    found = quotients(function, Fraction(z), Fraction(3))
    assert min(found) - low <= 8 * GRID
    assert high - max(found) <= 8 * GRID


def test_a_sector_is_refused_a_step_too_narrow():
    """At 1 above the kink with a reach of 4 the quotients fill [1/4, 1], which is on the grid."""
    exact = Sector(one(5 / 8), one(3 / 8))
    assert holds_sector(RELU, one(1), one(1), one(4), exact)
    step = 2.0**-50
    for middle, spread in ((0, -step), (step, 0), (-step, 0), (step, -step), (0, -1), (0, -2 * 3 / 8)):
        assert not holds_sector(RELU, one(1), one(1), one(4), Sector(exact.middle + middle, exact.spread + spread))
    assert holds_sector(RELU, one(1), one(1), one(4), Sector(exact.middle, exact.spread + step))


def test_one_neuron_that_fails_is_enough():
    sector = Sector(np.array([1.0, 0.5, 0.0]), np.array([0.0, 0.5, 0.0]))
    z, reach = np.array([2.0, 0.0, -2.0]), np.ones(3)
    assert holds_sector(RELU, z, z, reach, sector)
    for index in range(3):
        wrong = sector.middle.copy()
        wrong[index] += 2.0**-40
        assert not holds_sector(RELU, z, z, reach, Sector(wrong, sector.spread))


def test_at_a_kink_the_neuron_may_do_either():
    found = sector_around(RELU, one(0), one(0), one(1e-9))
    assert ends(found) == (0, 1)
    assert not holds_sector(RELU, one(0), one(0), one(5e-324), Sector(one(1), one(0)))
    assert not holds_sector(RELU, one(0), one(0), one(5e-324), Sector(one(0), one(0)))


def test_up_to_the_kink_and_not_beyond():
    """At the distance of the kink exactly the neuron does not switch; one float further it does."""
    for z, stays in ((1.0, 1), (-1.0, 0)):
        assert ends(sector_around(RELU, one(z), one(z), one(1.0))) == (stays, stays)
        flat = Sector(one(stays), one(0))
        assert holds_sector(RELU, one(z), one(z), one(1.0), flat)
        assert not holds_sector(RELU, one(z), one(z), one(np.nextafter(1.0, 2)), flat)
        assert not holds_sector(RELU, one(z - 2.0**-52), one(z + 2.0**-52), one(1.0), flat)


def test_without_reach_nothing_changes():
    for name in NAMES:
        function = activation(name).piecewise_linear
        for z in (0.3, -0.3, 3.0, -3.0):
            low, high = ends(sector_around(function, one(z), one(z), one(0)))
            slope = quotients(function, Fraction(z), Fraction(1, 2**100))[0]
            assert low <= slope <= high
            assert high - low <= 2 * GRID


def test_opposite_hinges_do_not_cancel():
    """hard_tanh from the middle of its slope, over both kinks: down to 1/2, up to 1."""
    function = activation("hard_tanh").piecewise_linear
    low, high = ends(sector_around(function, one(0), one(0), one(2)))
    assert low <= Fraction(1, 2)
    assert high >= 1


@pytest.mark.parametrize("wrong", [-1.0, np.nan, np.inf, -np.inf])
def test_a_reach_that_is_no_distance_is_refused(wrong):
    """Whatever sector comes with it. Infinity is not a large number here: sectors are made of integers."""
    z, flat = one(1), Sector(one(1), one(0))
    with np.errstate(invalid="ignore"):
        far_enough = is_within_reach(one(wrong), one(4), Fraction(1)).all()
        assert not (far_enough and holds_sector(RELU, z, z, one(wrong), flat))


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("which", range(5))
@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_one_neuron_that_is_not_finite_refuses_all(wrong, which, place):
    """Its low or high end, its reach, the middle or the spread of its sector; the other neuron is fine."""
    arrays = [np.full(2, x) for x in (1.0, 1.0, 0.5, 1.0, 0.0)]
    low, high, reach, middle, spread = arrays
    assert holds_sector(RELU, low, high, reach, Sector(middle, spread))
    arrays[which][place] = wrong
    assert not holds_sector(RELU, low, high, reach, Sector(middle, spread))


@pytest.mark.parametrize("place", [0, 1])
def test_one_negative_reach_refuses_all(place):
    reach = np.full(2, 0.5)
    reach[place] = -0.5
    assert not holds_sector(RELU, np.ones(2), np.ones(2), reach, Sector(np.ones(2), np.zeros(2)))


# -- reaches -----------------------------------------------------------------------------------------------------------

positive = st.one_of(
    st.floats(0, 1e3), st.floats(allow_nan=False, allow_infinity=False, min_value=0), st.sampled_from([0.0, 5e-324])
)


@settings(max_examples=300)
@given(reach=positive, square=positive, factor=st.fractions(min_value=0, max_value=100, max_denominator=1000))
def test_reaches_are_compared_exactly(reach, square, factor):
    found = is_within_reach(one(reach), one(square), factor)
    assert found.dtype == bool
    assert bool(found[0]) == (Fraction(reach) ** 2 >= factor * Fraction(square))


def test_a_knife_edge_of_reaches():
    """3² = 9·1 holds, and the float below 3 does not reach; nor does 3 a square one float larger."""
    reach = np.array([3.0, np.nextafter(3.0, 0), 3.0, np.nextafter(3.0, 4)])
    squares = np.array([1.0, 1.0, np.nextafter(1.0, 2), np.nextafter(1.0, 2)])
    assert is_within_reach(reach, squares, Fraction(9)).tolist() == [True, False, False, True]


def test_what_is_not_finite_is_never_within_reach():
    squares = np.array([np.inf, np.nan, -np.inf, 1.0])
    assert is_within_reach(np.full(4, 1e300), squares, Fraction(1)).tolist() == [False, False, False, True]
    assert is_within_reach(np.array([-2.0]), np.array([1.0]), Fraction(1)).tolist() == [False]
    assert is_within_reach(np.array([0.0]), np.array([5e-324]), Fraction(1, 10**400)).tolist() == [False]
    assert is_within_reach(np.array([0.0]), np.array([1.0]), Fraction(0)).tolist() == [True]
