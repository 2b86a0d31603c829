"""One layer: linear maps of what came before, summed; a bias; an activation; and factors that no rational holds.

The layers of a network are the nodes of its graph, in an order in which each takes only what came before it:

    layer(…) = f(Σ T_k·x_k + bias),      x_k the output of another layer, or the input.

A chain has one term everywhere, that of the layer before. A residual connection is a second term with the identity; a
concatenation has a term for each part, which puts it at its place; a pool of means is a linear map and the identity, a
maximum over windows is an activation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import prod

import numpy as np

from intervalcert.errors import InputError, shortened
from intervalcert.model.activations import Activation
from intervalcert.model.linear_maps import Dense, IndexMap, LinearMap, Shape, sum_of
from intervalcert.model.merging import merged
from intervalcert.model.normalisation import Normalisation
from intervalcert.numbers.matrices import RationalMatrix

__all__ = ["INPUT", "Layer", "Term", "UncertainScale", "are_apart"]

INPUT = -1
"""The source of a term that takes the input of the network."""


@dataclass(frozen=True)
class UncertainScale:
    """Factors that no rational holds, such as the 1/sqrt(variance) of batch normalisation: x -> C·(x + offset).

    C is a diagonal matrix of which is only known that its entries are in [least, 1]. Whatever is proved is proved for
    every such C. offset: one column, or None for zero.
    """

    offset: RationalMatrix | None
    least: Fraction


@dataclass(frozen=True)
class Term:
    """T·x, x being the output of the layer with the index `source`, or the input of the network (`INPUT`)."""

    source: int
    map: LinearMap


@dataclass(frozen=True)
class Layer:
    """terms: at least one; bias: one column, or None for zero; activation: None after the last layer.

    before, after: uncertain scales of the sum of the terms, before the bias is added, and of what the activation gives.
    """

    terms: tuple[Term, ...]
    bias: RationalMatrix | None
    activation: Activation | None
    before: UncertainScale | None = None
    after: UncertainScale | None = None

    def __post_init__(self) -> None:
        if not self.terms or len({term.map.shape[0] for term in self.terms}) != 1:
            raise InputError("a layer sums up terms of one size, at least one of them")

    @staticmethod
    def dense(
        source: int,
        weights: RationalMatrix,
        bias: RationalMatrix | None,
        activation: Activation | None,
        before: UncertainScale | None = None,
        after: UncertainScale | None = None,
    ) -> Layer:
        """With a single term, a matrix of outputs x inputs."""
        return Layer((Term(source, Dense(weights)),), bias, activation, before, after)

    def __repr__(self) -> str:
        rows, columns = self.shape
        maps = " + ".join(str(term.map) for term in self.terms[:3]) + (" + …" if len(self.terms) > 3 else "")
        what = "weights" if self.is_dense else f"({maps})"
        name = "none" if self.activation is None else shortened(self.activation.name, 60)
        return f"<Layer of {rows} x {columns} {what}, bias {'yes' if self.columns else 'no'}, activation {name}>"

    @property
    def shape(self) -> tuple[int, int]:
        """(numbers before the activation, numbers that the terms take, together)."""
        return self.terms[0].map.shape[0], sum(term.map.shape[1] for term in self.terms)

    @property
    def inner_shape(self) -> Shape:
        """Of the numbers before the activation."""
        return self.terms[0].map.out_shape

    @property
    def out_shape(self) -> Shape:
        """Of what the layer gives."""
        return self.inner_shape if self.activation is None else self.activation.out_shape(self.inner_shape)

    @property
    def is_dense(self) -> bool:
        """Whether it has a single term, and that a matrix."""
        return len(self.terms) == 1 and isinstance(self.terms[0].map, Dense)

    @property
    def weights(self) -> RationalMatrix:
        """The matrix of a dense layer. Raises: ValueError for another one."""
        first = self.terms[0].map
        if len(self.terms) > 1 or not isinstance(first, Dense):
            raise ValueError(f"{self!r} is not dense")
        return first.matrix

    @cached_property
    def branches(self) -> tuple[Term, ...]:
        """The terms over the reals: what several of them make of one source is one map, where such maps are added up.

        (A program adds what they give, and rounds.)
        """
        found: list[Term] = []
        for term in self.terms:
            for place, other in enumerate(found):
                both = merged(other.map, term.map) if other.source == term.source else None
                if both is not None:
                    found[place] = Term(term.source, both)
                    break
            else:
                found.append(term)
        return tuple(found)

    @property
    def columns(self) -> tuple[RationalMatrix, ...]:
        """All that is added anywhere."""
        offsets = (uncertain.offset for uncertain in (self.before, self.after) if uncertain)
        return tuple(column for column in (self.bias, *offsets) if column is not None)

    @property
    def parameters(self) -> int:
        """Numbers in weights and biases; of a bias that is the same all over a channel, one for each channel."""
        return sum(term.map.parameters for term in self.terms) + sum(map(self._different, self.columns))

    def _different(self, column: RationalMatrix) -> int:
        channels = self.inner_shape[0]
        if len(self.inner_shape) < 2 or column.shape[0] != prod(self.inner_shape):
            return column.shape[0]
        floats = column.near_floats().values.reshape(channels, -1)
        return channels if bool((floats == floats[:, :1]).all()) else column.shape[0]

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

    def behind(self, normalisation: Normalisation) -> Layer | None:
        """The layer that computes of an input what this one does of the normalised input; exactly.

        If the factors are not known exactly, it computes that of C·(x - mean): see `Network.uncertain_input_scale`.
        None if a map does not take the factors up.
        """
        terms, shift = [], None
        for term in self.terms:
            if term.source != INPUT:
                terms.append(term)
                continue
            made = normalisation.into(term.map)
            if made is None:
                return None
            terms.append(Term(INPUT, made))
            if normalisation.least == 1:
                shift = sum_of(made.exactly(normalisation.mean), shift)
        layer = replace(self, terms=tuple(terms))
        if shift is None:
            return layer
        shift = RationalMatrix(-shift.numerators, shift.denominator)
        if self.before is None:
            return replace(layer, bias=sum_of(shift, self.bias))
        return replace(layer, before=replace(self.before, offset=sum_of(shift, self.before.offset)))


def are_apart(maps: Sequence[LinearMap]) -> bool:
    """Whether no output is reached by two of them: index maps, as in a concatenation."""
    if not all(isinstance(each, IndexMap) for each in maps):
        return False
    reached = sum((each.index >= 0).astype(np.int64) for each in maps if isinstance(each, IndexMap))
    return bool(np.max(reached) <= 1)
