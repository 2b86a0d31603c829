"""Points of the unit circle at rational turns, as dyadic numbers with a proved distance: in integers alone.

A turn is an angle over 2π: e^(2πi·turn) has the period 1 in `turn`, and a Fraction names it exactly. What is given for
it are two integers over 2^bits: the same numbers on every number system, so that results stay comparable.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

__all__ = ["MAX_BITS", "root_of_unity"]

MAX_BITS = 1000
"""Of a root; the proof below counts with no more."""

_GUARD = 16
"""Bits beyond those of the result, for what is lost on the way to it."""


@lru_cache(maxsize=2**14)
def root_of_unity(turn: Fraction, bits: int = 60) -> tuple[int, int]:
    """Integers (c, s) with |(c + i·s)/2^bits - e^(2πi·turn)| < 2^-bits; equal at multiples of a quarter turn.

    Requires: 1 <= bits <= `MAX_BITS` (ValueError otherwise).

    Proof. Let q be the integer nearest to 4·turn and r = turn - q/4, |r| <= 1/8: the root is i^q·e^(ix), x = 2πr, and
    multiplying by i^q changes two numbers and a sign, exactly. In units of 2^-w, w = bits + 16 <= 1016:
    * π is off by at most 5w + 40 (`_pi`), so 2π|r| by at most a quarter of that, and its floor X by one more;
    * |x| <= π/4 < 0.79, and a change of x by d changes cosine and sine by at most d;
    * the terms X^k/k! are taken one from the other, rounded down: the first two are exact, and an error e of one is
      less than 0.79·e/k + 1 of the next, so all are less than 2. From k = 16 on a term has less than a twentieth of the
      one before: it is 0 before k = 16 + w/4, and then truly less than 2, those thereafter less than 2 together.
      Cosine and sine have at most half of the terms each: they are off by less than (16 + w/4) + 4.
    Together less than (5w + 40)/4 + 1 + w/4 + 20 < 2w + 40 < 2^12 units, that is 2^-4·2^-bits. Rounding to the nearest
    multiple of 2^-bits moves by half of it at most. So each part is off by at most 9/16·2^-bits, and the modulus of the
    difference is below 0.8·2^-bits. If r = 0, then X = 0, and nothing is rounded.
    """
    if not 1 <= bits <= MAX_BITS:
        raise ValueError(f"a root of unity with {bits} bits")
    quarters = (8 * turn + 1) // 2  # the floor of 4·turn + 1/2
    rest = turn - Fraction(quarters, 4)
    working = bits + _GUARD
    x = 2 * _pi(working) * abs(rest.numerator) // rest.denominator
    parts = [0, 0]
    term, k = 1 << working, 0
    while term:
        parts[k % 2] += -term if k % 4 > 1 else term  # 1, x, -x²/2, -x³/6, …
        k += 1
        term = (term * x >> working) // k
    half = 1 << (_GUARD - 1)
    cosine, sine = ((part + half) >> _GUARD for part in parts)
    if rest < 0:
        sine = -sine
    for _ in range(quarters % 4):
        cosine, sine = -sine, cosine
    return cosine, sine


@lru_cache(maxsize=8)
def _pi(working: int) -> int:
    """π in units of 2^-working, off by at most 5·working + 40 of them: 16·arctan(1/5) - 4·arctan(1/239) (Machin).

    Proof. The series of `_arctan` have n <= w/4 + 1 and n <= w/15 + 1 terms, since 5² > 2^4 and 239² > 2^15, and are
    off by less than n + 1 each: 16·(w/4 + 2) + 4·(w/15 + 2) < 5w + 40.
    """
    return 16 * _arctan(5, working) - 4 * _arctan(239, working)


def _arctan(n: int, working: int) -> int:
    """arctan(1/n) in units of 2^-working: the sum of (-1)^k/((2k + 1)·n^(2k+1)).

    Each term is rounded down once, by less than a unit, because a floor of a floor is the floor. What follows the first
    power below a unit has alternating signs and falls: it is less than a unit altogether.
    """
    total, k = 0, 0
    power = (1 << working) // n
    while power:
        term = power // (2 * k + 1)
        total += -term if k % 2 else term
        power //= n * n
        k += 1
    return total
