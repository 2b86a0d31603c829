"""Roots of unity as dyadic numbers: against mpmath, whose precision cannot matter."""

from fractions import Fraction

import mpmath
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from intervalcert.numbers import roots_of_unity
from intervalcert.numbers.roots_of_unity import MAX_BITS, root_of_unity

PRECISION = 1400

turns = st.fractions(min_value=-3, max_value=3) | st.builds(Fraction, st.integers(-500, 500), st.integers(1, 80))


def distance(turn, bits):
    """How far the given numbers are from the root, in units of 2^-bits."""
    cosine, sine = root_of_unity(turn, bits)
    with mpmath.workprec(PRECISION):
        root = mpmath.expjpi(2 * mpmath.mpf(turn.numerator) / turn.denominator)
        return abs(mpmath.mpc(cosine, sine) - root * 2**bits)


@given(turn=turns, bits=st.sampled_from([1, 2, 5, 53, 60, 200, MAX_BITS]))
@example(turn=Fraction(1, 8), bits=60)
@example(turn=Fraction(-1, 8), bits=60)
@example(turn=Fraction(1, 10**30), bits=60)
def test_they_are_nearer_than_a_unit(turn, bits):
    assert distance(turn, bits) < mpmath.mpf(4) / 5, "the proof says 0.8"


@pytest.mark.parametrize("bits", [1, 60, MAX_BITS])
def test_quarter_turns_are_exact(bits):
    one = 1 << bits
    for k in range(-9, 10):
        assert root_of_unity(Fraction(k, 4), bits) == [(one, 0), (0, one), (-one, 0), (0, -one)][k % 4]


@given(turn=turns)
def test_whole_turns_make_no_difference_and_opposites_are_conjugate(turn):
    cosine, sine = root_of_unity(turn)
    assert root_of_unity(turn + 1) == (cosine, sine)
    other = root_of_unity(-turn)
    assert abs(other[0] - cosine) <= 1
    assert abs(other[1] + sine) <= 1


def test_pi_is_as_near_as_proved():
    with mpmath.workprec(PRECISION):
        for working in (17, 20, 76, 300, MAX_BITS + 16):
            apart = abs(roots_of_unity._pi(working) - mpmath.pi * 2**working)
            assert apart <= 5 * working + 40


def test_other_numbers_of_bits_are_refused():
    for bits in (0, -1, MAX_BITS + 1):
        with pytest.raises(ValueError, match="bits"):
            root_of_unity(Fraction(1, 3), bits)


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("_pi", lambda working: 22 * (1 << working) // 7),
        ("_arctan", lambda n, working: (1 << working) // n),  # one term
        ("_GUARD", 1),
    ],
)
def test_a_wrong_step_is_seen(name, broken, monkeypatch):
    """The control: an error where the proof counts on none leaves the distance that is proved."""
    roots_of_unity._pi.cache_clear()
    root_of_unity.cache_clear()
    monkeypatch.setattr(roots_of_unity, name, broken)
    try:
        worst = max(distance(Fraction(k, 97), 60) for k in range(97))
    finally:
        monkeypatch.undo()
        root_of_unity.cache_clear()
        roots_of_unity._pi.cache_clear()
    assert worst > mpmath.mpf(4) / 5
