"""The network itself, over the reals: enclosures of what every layer computes at given inputs.

The same law as everywhere: each value found contains the one that exact arithmetic gives. Nobody's float logits are
trusted. Evaluated are the activations that `Activation` describes: piecewise linear ones, and those built from exp.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from intervalcert.activations import Curve, Hinges
from intervalcert.errors import InputError
from intervalcert.network import Network, Shrinkage
from intervalcert.protocol import Backend, Matrix
from intervalcert.rational import RationalMatrix

__all__ = ["Evaluator", "check_evaluable"]

_Held = tuple[Matrix[Any] | None, Fraction]
"""A `Shrinkage` on one number system: the offset, and the least factor."""


def check_evaluable(network: Network) -> None:
    """Raises: InputError if an activation cannot be evaluated here."""
    for index, layer in enumerate(network.layers):
        if layer.activation is not None and layer.activation.hinges is None and layer.activation.curve is None:
            raise InputError(
                f"layer {index}: the activation {layer.activation.name!r} cannot be evaluated at an input (its groups "
                "are not known): certify given logits instead"
            )


class Evaluator:
    """A network on one number system, its weights converted once."""

    def __init__(self, network: Network, norms: Sequence[Fraction], backend: Backend[Any]) -> None:
        """Requires: `norms` are upper bounds of the layers' operator norms."""
        check_evaluable(network)
        self.network, self.backend = network, backend
        used = [(id(layer.weights), norm) for layer, norm in zip(network.layers, norms, strict=True)]
        of_each = dict(zip(used, network.layers, strict=True))  # a matrix of several layers is converted once
        held = {key: backend.matrix(layer.weights).within(key[1]) for key, layer in of_each.items()}
        self.weights = [held[key] for key in used]
        self._entrance = self._held(network.entrance)
        self._columns = [
            (
                self._held(layer.before),
                None if layer.bias is None else backend.matrix(layer.bias),
                self._held(layer.after),
            )
            for layer in network.layers
        ]

    def _held(self, shrinkage: Shrinkage | None) -> _Held | None:
        if shrinkage is None:
            return None
        return None if shrinkage.offset is None else self.backend.matrix(shrinkage.offset), shrinkage.least

    def before_activations(self, inputs: RationalMatrix) -> list[Matrix[Any]]:
        """W·x + b of each layer, the last one the logits; one column per column of `inputs`.

        Requires: inputs of the first layer (`Network.entered`). Guarantees: each encloses the exact one.
        """
        value = self._shrunk(self.backend.matrix(inputs), self._entrance)
        found: list[Matrix[Any]] = []
        for layer, weights, (before, bias, after) in zip(self.network.layers, self.weights, self._columns, strict=True):
            value = self._shrunk(weights @ value, before)
            value = self._moved(value, bias)
            found.append(value)
            if layer.activation is not None and layer.activation.hinges is not None:
                value = self._bent(value, layer.activation.hinges)
            elif layer.activation is not None and layer.activation.curve is not None:
                value = self._curved(value, layer.activation.curve)
            value = self._shrunk(value, after)
        return found

    def _shrunk(self, value: Matrix[Any], by: _Held | None) -> Matrix[Any]:
        """C·(value + offset) for every C."""
        if by is None:
            return value
        offset, least = by
        return self._moved(value, offset).times(self.backend.hull(least, Fraction(1)))

    def _moved(self, value: Matrix[Any], column: Matrix[Any] | None) -> Matrix[Any]:
        """Every column of `value` plus that one."""
        if column is None:
            return value
        count = value.shape[1]
        return value + (column if count == 1 else column @ self._filled(1, count, Fraction(1)))

    def _curved(self, x: Matrix[Any], curve: Curve) -> Matrix[Any]:
        if curve.kind == "sigmoid":
            return x.logistic()
        if curve.kind == "elu":
            return x.positive_part() + self._times(x.decay(), curve.alpha)
        if curve.kind == "softplus":  # ln(1 + exp(x)): of s(x) and s(-x), s as `soft`, one is s(0)
            nothing = self._filled(*x.shape, Fraction(0))
            return x.positive_part() + x.soft() + (nothing - x).soft() - nothing.soft()
        return x.scaled(1).logistic().scaled(1) - self._filled(*x.shape, Fraction(1))  # tanh(x) = 2/(1 + exp(-2x)) - 1

    def _bent(self, x: Matrix[Any], function: Hinges) -> Matrix[Any]:
        """The piecewise linear function, entry by entry."""
        parts: list[Matrix[Any]] = []
        if function.slope:
            parts.append(self._times(x, function.slope))
        for weight, kink in function.hinges:
            moved = x if not kink else x - self._filled(*x.shape, kink)
            parts.append(self._times(moved.positive_part(), weight))
        if function.offset or not parts:
            parts.append(self._filled(*x.shape, function.offset))
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total

    def _times(self, x: Matrix[Any], factor: Fraction) -> Matrix[Any]:
        return x if factor == 1 else x.times(self.backend.scalar(factor))

    def _filled(self, rows: int, columns: int, value: Fraction) -> Matrix[Any]:
        numerators = np.full((rows, columns), value.numerator, dtype=object)
        return self.backend.matrix(RationalMatrix(numerators, value.denominator))
