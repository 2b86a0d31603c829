"""Inputs that are normalised first: x -> (x - mean)/std, entry by entry.

Held as factor·C·(x - mean) with factor = 1/std. C is a diagonal matrix of which is only known that its entries are in
[least, 1]. As a rule it is 1. But the root of a variance is no rational, and quotients by many different numbers have a
common denominator with too many digits: those are rounded away from zero, and C makes up for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

from intervalcert.errors import InputError
from intervalcert.model.linear_maps import LinearMap
from intervalcert.numbers.matrices import MAX_MATRIX_BITS, RationalMatrix
from intervalcert.numbers.rounding import dyadic_value

__all__ = [
    "FACTOR_BITS",
    "FACTOR_LEAST",
    "LONG_DENOMINATOR",
    "Normalisation",
    "are_long",
    "away_from_zero",
    "short_factors",
]

FACTOR_BITS = 128
FACTOR_LEAST = 1 - Fraction(1, 2 ** (FACTOR_BITS - 1))
"""`away_from_zero` and `sqrt_upper` give at most 1 + 2^(1-bits) times too much, and 1/(1 + x) > 1 - x."""

LONG_DENOMINATOR = 2**11
"""Bits of a common denominator that is multiplied into every weight, and so must be no longer."""

_MAX_DENOMINATOR = 2**13
"""Bits of the denominators of a normalisation: what they are after rounding, for numbers of very different sizes."""


def are_long(values: Sequence[Fraction]) -> bool:
    """Whether their common denominator is."""
    common = 1
    for denominator in {x.denominator for x in values}:
        common = lcm(common, denominator)
        if common.bit_length() > LONG_DENOMINATOR:
            return True
    return False


def short_factors(factors: Sequence[Fraction]) -> tuple[list[Fraction], Fraction]:
    """(near, least): each factor is the near one times a number in [least, 1]; the same and 1, unless they are long."""
    if are_long(factors):
        return [away_from_zero(x.numerator, x.denominator) for x in factors], FACTOR_LEAST
    return list(factors), Fraction(1)


def away_from_zero(top: int, bottom: int) -> Fraction:
    """top/bottom, at most 1 + 2^-127 times too large: a dyadic number, found without common divisors.

    Proof. The exact quotient |top|·2^shift/bottom is at least 2^(bits-1), and rounding up adds less than 1.
    """
    shift = FACTOR_BITS + bottom.bit_length() - top.bit_length()
    mantissa = -(-(abs(top) << max(shift, 0)) // (bottom << max(-shift, 0)))
    return dyadic_value(mantissa if top > 0 else -mantissa, -shift)


@dataclass(frozen=True)
class Normalisation:
    """One column of means, one of factors. Invariants: no factor is zero; 0 < least <= 1; no long denominators."""

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
        for name, column in (("means", self.mean), ("factors 1/std", self.factor)):
            if column.denominator.bit_length() > _MAX_DENOMINATOR:
                raise InputError(
                    f"the {name} of the inputs have a common denominator of {column.denominator.bit_length()} bits, "
                    f"where at most {_MAX_DENOMINATOR} are carried along: write them as decimals or floats"
                )

    @property
    def inputs(self) -> int:
        return self.mean.shape[0]

    @property
    def is_identity(self) -> bool:
        """Whether it subtracts zeros and multiplies with ones: no normalisation at all."""
        one = self.factor.denominator
        factors, means = self.factor.numerators.ravel().tolist(), self.mean.numerators.ravel().tolist()
        return self.least == 1 and not any(means) and all(x == one for x in factors)

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
        """factor·(x - mean) of each column x of `points`; C is missing."""
        factor, mean = self.factor, self.mean
        moved = inputs.numerators * mean.denominator - mean.numerators * inputs.denominator
        return RationalMatrix(moved * factor.numerators, inputs.denominator * mean.denominator * factor.denominator)

    def into(self, linear: LinearMap) -> LinearMap | None:
        """V with T·factor·x = V·x for all x; None if there is none of the kind of T."""
        longest = max(map(int.bit_length, self.factor.numerators.ravel().tolist()))
        if longest * linear.parameters > MAX_MATRIX_BITS:
            raise InputError(
                "the factors 1/std of the inputs are so long, as exact numbers, that the first layer does not fit into "
                "memory with them: measure eps in the normalised space"
            )
        return linear.scaled(self.factor)
