"""One layer: an affine map, its activation, and factors that no rational holds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from math import lcm, prod

from intervalcert.errors import shortened
from intervalcert.model.activations import Activation
from intervalcert.model.normalisation import Normalisation
from intervalcert.numbers.matrices import RationalMatrix

__all__ = ["Layer", "UncertainScale"]


@dataclass(frozen=True)
class UncertainScale:
    """Factors that no rational holds, such as the 1/sqrt(variance) of batch normalisation: x -> C·(x + offset).

    C is a diagonal matrix of which is only known that its entries are in [least, 1]. Whatever is proved is proved for
    every such C. offset: one column, or None for zero.
    """

    offset: RationalMatrix | None
    least: Fraction


@dataclass(frozen=True)
class Layer:
    """weights: outputs x inputs; bias: one column, or None for zero; activation: None after the last layer.

    before, after: uncertain scales of W·x, before the bias is added, and of what the activation gives.
    """

    weights: RationalMatrix
    bias: RationalMatrix | None
    activation: Activation | None
    before: UncertainScale | None = None
    after: UncertainScale | None = None

    def __repr__(self) -> str:
        rows, columns = self.weights.shape
        name = "none" if self.activation is None else shortened(self.activation.name, 60)
        return f"<Layer of {rows} x {columns} weights, bias {'yes' if self.columns else 'no'}, activation {name}>"

    @property
    def columns(self) -> tuple[RationalMatrix, ...]:
        """All that is added anywhere."""
        offsets = (uncertain.offset for uncertain in (self.before, self.after) if uncertain)
        return tuple(column for column in (self.bias, *offsets) if column is not None)

    @property
    def parameters(self) -> int:
        """Numbers in weights and biases."""
        return prod(self.weights.shape) + sum(column.shape[0] for column in self.columns)

    @property
    def least_factor(self) -> Fraction:
        """What the uncertain scales leave of a change, at least; 1 if there is none."""
        return prod((uncertain.least for uncertain in (self.before, self.after) if uncertain), start=Fraction(1))

    @property
    def slopes(self) -> tuple[Fraction, Fraction] | None:
        """Ends of all quotients between a change of what the layer gives and of W·x, if it acts entry by entry.

        Those of the activation, times the factors of uncertain scales, which bring a slope nearer to zero.
        """
        if self.activation is None or self.activation.slopes is None:
            return None
        low, high = self.activation.slopes
        return min(low, low * self.least_factor), max(high, high * self.least_factor)

    def behind(self, normalisation: Normalisation) -> Layer:
        """The layer that computes of an input what this one does of the normalised input; exactly.

        If the factors are not known exactly, it computes that of C·(x - mean): see `Network.uncertain_input_scale`.
        """
        weights = normalisation.into(self.weights)
        if normalisation.least < 1:
            return replace(self, weights=weights)
        mean = normalisation.mean
        shift = RationalMatrix(-weights.numerators.dot(mean.numerators), weights.denominator * mean.denominator)
        if self.before is None:
            return replace(self, weights=weights, bias=_sum(shift, self.bias))
        return replace(self, weights=weights, before=replace(self.before, offset=_sum(shift, self.before.offset)))


def _sum(x: RationalMatrix, y: RationalMatrix | None) -> RationalMatrix:
    if y is None:
        return x
    common = lcm(x.denominator, y.denominator)
    numerators = x.numerators * (common // x.denominator) + y.numerators * (common // y.denominator)
    return RationalMatrix(numerators, common)
