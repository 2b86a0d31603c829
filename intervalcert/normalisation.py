"""Inputs that are normalised first: x -> (x - mean)/std, entry by entry.

Held as factor·C·(x - mean) with factor = 1/std. C is a diagonal matrix of which is only known that its entries are in
[least, 1]. As a rule it is 1. But the root of a variance is no rational, and quotients by many different numbers have a
common denominator with too many digits: those are rounded away from zero, and C makes up for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm, prod

from intervalcert.errors import InputError
from intervalcert.rational import MAX_MATRIX_BITS, RationalMatrix, round_down, round_up

__all__ = ["FACTOR_BITS", "FACTOR_LEAST", "Normalisation", "short_factors"]

FACTOR_BITS = 128
FACTOR_LEAST = 1 - Fraction(1, 2 ** (FACTOR_BITS - 1))
"""`round_up` and `sqrt_upper` to that many bits give at most 1 + 2^(1-bits) times too much; and 1/(1 + x) > 1 - x."""

_MAX_DENOMINATOR_BITS = 2**11


def short_factors(factors: Sequence[Fraction]) -> tuple[list[Fraction], Fraction]:
    """(near, least): each factor is the near one times a number in [least, 1].

    They are the same, and least is 1, unless their common denominator is long: it gets into every weight.
    """
    common = 1
    for denominator in {x.denominator for x in factors}:
        common = lcm(common, denominator)
        if common.bit_length() > _MAX_DENOMINATOR_BITS:
            of_each = {x: round_up(x, FACTOR_BITS) if x > 0 else round_down(x, FACTOR_BITS) for x in set(factors)}
            return [of_each[x] for x in factors], FACTOR_LEAST
    return list(factors), Fraction(1)


@dataclass(frozen=True)
class Normalisation:
    """One column of means, one of factors. Invariants: no factor is zero; 0 < least <= 1."""

    mean: RationalMatrix
    factor: RationalMatrix
    least: Fraction = Fraction(1)

    def __post_init__(self) -> None:
        if self.mean.shape != self.factor.shape or self.mean.shape[1] != 1:
            raise InputError("a normalisation has one mean and one std for each input")
        if not all(self.factor.numerators.ravel().tolist()):
            raise InputError("a normalisation multiplies with factors 1/std, none of which is zero")
        if not 0 < self.least <= 1:
            raise InputError("a normalisation has factors that are known but for a number in (0, 1]")

    @property
    def inputs(self) -> int:
        return self.mean.shape[0]

    @staticmethod
    def of(mean: Sequence[Fraction], std: Sequence[Fraction], inputs: int) -> Normalisation:
        """From one number for all inputs, or one for each."""
        for what, values in (("mean", mean), ("std", std)):
            if len(values) not in {1, inputs}:
                raise InputError(
                    f"the {what} has {len(values)} numbers: one is needed, or one per input ({inputs}), or one per "
                    "channel of a model that says which axis of its inputs that is"
                )
        if not all(std):
            raise InputError("a normalisation divides by a std, which must not be zero")
        factors, least = short_factors([1 / x for x in std])
        rows = ([[x] for x in values] * (inputs if len(values) == 1 else 1) for values in (mean, factors))
        column, factor = map(RationalMatrix.from_fractions, rows)
        return Normalisation(column, factor, least)

    def of_columns(self, inputs: RationalMatrix) -> RationalMatrix:
        """factor·(x - mean) of each column x of `inputs`; C is missing."""
        factor, mean = self.factor, self.mean
        moved = inputs.numerators * mean.denominator - mean.numerators * inputs.denominator
        return RationalMatrix(moved * factor.numerators, inputs.denominator * mean.denominator * factor.denominator)

    def into(self, weights: RationalMatrix) -> RationalMatrix:
        """V with W·factor·x = V·x for all x."""
        longest = max(map(int.bit_length, self.factor.numerators.ravel().tolist()))
        if longest * prod(weights.shape) > MAX_MATRIX_BITS:
            raise InputError(
                "the std of the inputs are of such different sizes that the first layer does not fit into memory as "
                "exact numbers: measure eps in the normalised space"
            )
        numerators = weights.numerators * self.factor.numerators.T
        return RationalMatrix(numerators, weights.denominator * self.factor.denominator)
