"""Exact constants of a file: hashes of them, which are floats, and what they may take to compute."""

import tracemalloc
from fractions import Fraction

import numpy as np
import pytest

from intervalcert import InputError, Network
from intervalcert.io.models.tensors import Tensor
from intervalcert.numbers.matrices import RationalMatrix


def test_the_hash_does_not_depend_on_how_numbers_are_held():
    """Floats, decimals, fractions over any denominator; a mix of sizes that no common grid of 53 bits holds."""
    values = [[1.5, 2.0**-300], [2.0**300, -0.0]]
    exact = [[Fraction(x) for x in row] for row in values]
    same = [
        Network.of([RationalMatrix.from_floats(np.array(values))]),
        Network.of([RationalMatrix.from_fractions(exact)]),
        Network.of([RationalMatrix.from_integers([[int(x * 3 * 2**400) for x in row] for row in exact], 3 * 2**400)]),
        Network.of([RationalMatrix.from_floats(np.ldexp(values, 5), -5)]),
    ]
    assert len({network.content for network in same}) == 1
    other = Network.of([RationalMatrix.from_fractions([[Fraction(3, 2), Fraction(1, 3)], [1, 2]])])
    scaled = Network.of([RationalMatrix.from_integers([[9, 2], [6, 12]], 6)])
    assert other.content == scaled.content != same[0].content


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint32", "int64", "uint64"])
@pytest.mark.parametrize("exponent", [0, 3, -3])
def test_integers_are_their_values(dtype, exponent):
    """As floats while they are floats: Python's integers take five times as much."""
    ends = np.iinfo(dtype)
    for values in ([[ends.min, ends.max]], [[0, 1]], [[2**53, 1]] if ends.bits == 64 else [[1, 1]]):
        made = RationalMatrix.from_floats(np.array(values, dtype=dtype), exponent)
        exact = [[x * Fraction(2) ** exponent for x in row] for row in values]
        assert made == RationalMatrix.from_fractions(exact)
        assert made.transposed() == RationalMatrix.from_fractions([list(row) for row in zip(*exact, strict=True)])
    assert tracked(lambda: RationalMatrix.from_floats(np.ones((500, 500), dtype=dtype))) < 500 * 500 * 20


def tracked(make):
    """The most memory that it takes meanwhile."""
    tracemalloc.start()
    try:
        made = make()
        return tracemalloc.get_traced_memory()[1] if made else 0
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("rows", "floats"),
    [
        ([[Fraction(1, 3)]], False),
        ([[Fraction(2) ** 1023]], True),
        ([[Fraction(2) ** 1024]], False),
        ([[Fraction(1, 2**1074)]], True),
        ([[Fraction(1, 2**1075)]], False),
        ([[Fraction(2**53 + 1)]], False),
        ([[Fraction(2**53 - 1), Fraction(1, 2**60)]], True),
        ([[Fraction(0)]], True),
    ],
)
def test_which_rationals_are_floats(rows, floats):
    found = RationalMatrix.from_fractions(rows).as_floats()
    assert (found is not None) == floats
    if found is not None:
        assert [[Fraction(x) for x in row] for row in found.tolist()] == rows


def test_sizes_are_bounded_before_memory_is_taken():
    big = Tensor(np.broadcast_to(np.float32(1), (4096, 4096)))
    for compute in (lambda: big + big, lambda: big * big, lambda: big @ big, lambda: -big, lambda: big / big):
        with pytest.raises(InputError, match="too large"):
            compute()


def test_numbers_do_not_grow_without_bounds():
    def grow(change):
        wide = Tensor(np.array([[2.0**1000, 3 * 2.0**-1000], [1, 5]]))
        for _ in range(200):
            wide = change(wide)

    for change in (
        lambda x: x * x,
        lambda x: (x * x * x * x) / x,
        lambda x: x @ x,
    ):
        with pytest.raises(InputError, match="too large"):
            grow(change)
