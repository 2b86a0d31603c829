"""A model with a single output, read as one of two classes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from intervalcert.errors import InputError, error_context
from intervalcert.model.layers import Layer, Term
from intervalcert.model.linear_maps import Dense
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.parsing import parse_rational
from intervalcert.numbers.text import format_exact, shortest_exact

__all__ = ["Single", "read_single"]

Arrange = Callable[[npt.NDArray[Any]], npt.NDArray[Any]]


MAX_THRESHOLD_BITS = 4_000
"""Of either part of a threshold: files hold it in digits. Those of a float64 have at most 1,075."""


@dataclass(frozen=True)
class Single:
    """How the single output y of a model is read: class 1 if y > threshold, else class 0.

    threshold None: y is a number, and there are no classes (regression).
    The network of such a model has two outputs, the constant threshold (0 without classes) and y. So the lead of class
    1 is y - threshold, the first largest logit is that of class 0 where y <= threshold, y = threshold is a tie, and the
    bound of the one margin is a Lipschitz bound of y: all the mathematics is that of two classes.
    """

    threshold: Fraction | None = Fraction(0)

    def __post_init__(self) -> None:
        x = self.constant
        if max(x.numerator.bit_length(), x.denominator.bit_length()) > MAX_THRESHOLD_BITS:
            raise InputError(f"a threshold whose parts have more than {MAX_THRESHOLD_BITS} bits")

    @property
    def constant(self) -> Fraction:
        """The output beside y."""
        return Fraction(0) if self.threshold is None else self.threshold

    @property
    def text(self) -> str:
        """As files hold it, and `of_text` reads it."""
        return "regression" if self.threshold is None else format_exact(self.threshold)

    @staticmethod
    def of_text(text: str) -> Single:
        with error_context("how a single output is read"):
            return Single(None if text == "regression" else parse_rational(text))

    def __str__(self) -> str:
        if self.threshold is None:
            return "none, the single output is a number (regression)"
        return f"class 1 if the single output y > {shortest_exact(self.threshold)}, else class 0"


def read_single(layers: tuple[Layer, ...]) -> tuple[tuple[Layer, ...], Single | None]:
    """Layers with a single output as those of two, the threshold 0 and it; others as they are."""
    last = layers[-1] if layers else None
    if last is None or last.shape[0] != 1 or (last.bias is not None and last.bias.shape != (1, 1)):
        return layers, None
    return (*layers[:-1], _beside(Fraction(0), last)), Single()


def _beside(constant: Fraction, layer: Layer) -> Layer:
    """A layer with a single output, with that constant before it: weights of zeros, and a bias."""
    bias = layer.bias
    if bias is not None or constant:
        own = Fraction(0) if bias is None else bias[0, 0]
        bias = RationalMatrix.from_fractions([[constant], [own]])
    if len(layer.branches) > 1:
        raise InputError("a single output that is a sum of several branches is not read: put a layer of 1 after it")
    return _with_rows(layer, lambda x: np.vstack([np.zeros_like(x), x]), bias)


def _without_constant(layer: Layer) -> Layer:
    """The layer that `_beside` has put a constant before."""
    bias = None if layer.bias is None else _arranged(layer.bias, lambda x: x[1:])
    return _with_rows(layer, lambda x: x[1:], bias)


def _with_rows(layer: Layer, arrange: Arrange, bias: RationalMatrix | None) -> Layer:
    """Each of its terms as a matrix with rows arranged anew. Terms stay apart: a program adds up what each gives."""
    terms = (Term(term.source, Dense(_arranged(term.map.dense(), arrange))) for term in layer.terms)
    return replace(layer, terms=tuple(terms), bias=bias)


def _arranged(matrix: RationalMatrix, arrange: Arrange) -> RationalMatrix:
    """With its rows arranged anew. Floats stay floats: as integers they would take many times the memory."""
    floats = matrix.as_floats()
    if floats is not None:
        return RationalMatrix.from_floats(arrange(floats))
    return RationalMatrix(arrange(matrix.numerators), matrix.denominator)
