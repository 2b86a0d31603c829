"""Inputs that are normalised first: x -> (x - mean)/std, entry by entry, exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod

from intervalcert.errors import InputError
from intervalcert.rational import MAX_MATRIX_BITS, RationalMatrix

__all__ = ["Normalisation"]


@dataclass(frozen=True)
class Normalisation:
    """One column of means, one of standard deviations. Invariant: no std is zero."""

    mean: RationalMatrix
    std: RationalMatrix

    def __post_init__(self) -> None:
        if self.mean.shape != self.std.shape or self.mean.shape[1] != 1:
            raise InputError("a normalisation has one mean and one std for each input")
        if not all(self.std.numerators.ravel().tolist()):
            raise InputError("a normalisation divides by a std, which must not be zero")

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
        columns = ([[x] for x in values] * (inputs if len(values) == 1 else 1) for values in (mean, std))
        return Normalisation(*map(RationalMatrix.from_fractions, columns))

    def of_columns(self, inputs: RationalMatrix) -> RationalMatrix:
        """Each column of `inputs`, normalised."""
        factor, mean = self._factor(), self.mean
        moved = inputs.numerators * mean.denominator - mean.numerators * inputs.denominator
        return RationalMatrix(moved * factor.numerators, inputs.denominator * mean.denominator * factor.denominator)

    def into(self, weights: RationalMatrix) -> tuple[RationalMatrix, RationalMatrix]:
        """V and c with W·(x - mean)/std = V·x + c for all x."""
        factor, mean = self._factor(), self.mean
        longest = max(map(int.bit_length, factor.numerators.ravel().tolist()))
        if longest * prod(weights.shape) > MAX_MATRIX_BITS:
            raise InputError(
                "inputs are divided by so many different numbers that the first layer does not fit into memory: "
                "multiply by their reciprocals in the place of dividing, or measure eps in the normalised space"
            )
        numerators = weights.numerators * factor.numerators.T
        denominator = weights.denominator * factor.denominator
        shift = RationalMatrix(-numerators.dot(mean.numerators), denominator * mean.denominator)
        return RationalMatrix(numerators, denominator), shift

    def _factor(self) -> RationalMatrix:
        """1/std."""
        std = self.std
        return RationalMatrix.from_fractions([[Fraction(std.denominator, x)] for x in std.numerators.ravel().tolist()])
