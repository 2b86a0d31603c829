"""The network itself, over the reals: enclosures of what every layer computes at given inputs.

The same law as everywhere: each value found contains the one that exact arithmetic gives. Nobody's float logits are
trusted. Evaluated are the activations that `Activation` describes: piecewise linear ones, and those built from exp.

Two ways. `Evaluator` runs all layers on one number system. An enclosure of float64 is wide where a network is deep:
each layer multiplies its radius by a norm. `PointEvaluator` follows a single point instead, with exact rationals that
are cut to `KEPT_BITS` bits after each layer; how far that is from the truth is one number, carried along by the norms:

    ||W·x - W'·x'|| <= ||W||·||x - x'|| + ||W - W'||·||x'||,     ||f(z) - f(z')|| <= lipschitz(f)·||z - z'||.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from intervalcert.backends.protocol import Backend, Floats, Matrix
from intervalcert.errors import InputError
from intervalcert.model.activations import PiecewiseLinear, Smooth
from intervalcert.model.layers import UncertainScale
from intervalcert.model.network import Network
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.rounding import dyadic_value, float_enclosure, round_up, sqrt_upper

__all__ = [
    "KEPT_BITS",
    "Ends",
    "Evaluator",
    "Near",
    "PointEvaluator",
    "check_evaluable",
    "is_piecewise_linear",
    "leads_of",
]

KEPT_BITS = 80
"""Of weights and values, below the largest of a layer. (The exact ones grow by some 50 bits a layer.)"""

_ERROR_BITS = 32
"""Of what bounds an error; always rounded up."""

Ends = tuple[Floats, Floats]
"""Arrays of floats, the first at most, the second at least what they are about."""

_Held = tuple[Matrix[Any] | None, Fraction]
"""A `UncertainScale` on one number system: the offset, and the least factor."""


def check_evaluable(network: Network) -> None:
    """Raises: InputError if an activation cannot be evaluated here."""
    for index, layer in enumerate(network.layers):
        if (
            layer.activation is not None
            and layer.activation.piecewise_linear is None
            and layer.activation.smooth is None
        ):
            raise InputError(
                f"layer {index}: the activation {layer.activation.name!r} cannot be evaluated at an input (its groups "
                "are not known): certify given logits instead"
            )


def is_piecewise_linear(network: Network) -> bool:
    """Whether all activations are."""
    return all(layer.activation is None or layer.activation.piecewise_linear is not None for layer in network.layers)


def leads_of(logits: Matrix[Any], winner: int, backend: Backend[Any]) -> Ends:
    """Of the leads of one class over the others, in their order. logits: one column."""
    unit = np.eye(logits.shape[0], dtype=np.int64)
    pairs = backend.matrix(RationalMatrix.from_floats(np.delete(unit[winner] - unit, winner, axis=0)))
    low, high = (end[:, 0] for end in (pairs @ logits).float_bounds())
    return low, high


class Evaluator:
    """A network on one number system, its weights converted once."""

    def __init__(self, network: Network, norms: Sequence[Fraction], backend: Backend[Any]) -> None:
        """Requires: `norms` are upper bounds of the layers' operator norms."""
        check_evaluable(network)
        self.network, self.backend = network, backend
        self.weights = self._converted(norms)
        self._input_scale = self._held(network.uncertain_input_scale)
        self._columns = [
            (
                self._held(layer.before),
                None if layer.bias is None else backend.matrix(layer.bias),
                self._held(layer.after),
            )
            for layer in network.layers
        ]

    def _converted(self, norms: Sequence[Fraction]) -> list[Matrix[Any]]:
        """Within their norms."""
        pairs = list(zip(self.network.of_weights(self.backend.matrix), norms, strict=True))
        made = {(id(weights), norm): weights.with_norm_bound(norm) for weights, norm in pairs}
        return [made[id(weights), norm] for weights, norm in pairs]

    def _held(self, uncertain: UncertainScale | None) -> _Held | None:
        if uncertain is None:
            return None
        return None if uncertain.offset is None else self.backend.matrix(uncertain.offset), uncertain.least

    def before_activations(self, inputs: RationalMatrix) -> list[Matrix[Any]]:
        """W·x + b of each layer, the last one the logits; one column per column of `points`.

        Requires: inputs of the first layer (`Network.entered`). Guarantees: each encloses the exact one.
        """
        value = self._shrunk(self.backend.matrix(inputs), self._input_scale)
        found: list[Matrix[Any]] = []
        for layer, weights, (before, bias, after) in zip(self.network.layers, self.weights, self._columns, strict=True):
            value = self._shrunk(weights @ value, before)
            value = self._moved(value, bias)
            found.append(value)
            if layer.activation is not None and layer.activation.piecewise_linear is not None:
                value = self._bent(value, layer.activation.piecewise_linear)
            elif layer.activation is not None and layer.activation.smooth is not None:
                value = self._curved(value, layer.activation.smooth)
            value = self._shrunk(value, after)
        return found

    def _shrunk(self, value: Matrix[Any], by: _Held | None) -> Matrix[Any]:
        """C·(value + offset) for every C."""
        if by is None:
            return value
        offset, least = by
        return self._moved(value, offset).scalar_mul(self.backend.hull(least, Fraction(1)))

    def _moved(self, value: Matrix[Any], column: Matrix[Any] | None) -> Matrix[Any]:
        """Every column of `value` plus that one."""
        if column is None:
            return value
        count = value.shape[1]
        return value + (column if count == 1 else column @ self._filled(1, count, Fraction(1)))

    def _curved(self, x: Matrix[Any], curve: Smooth) -> Matrix[Any]:
        if curve.kind == "sigmoid":
            return x.sigmoid()
        if curve.kind == "elu":
            return x.positive_part() + self._times(x.expm1_neg(), curve.alpha)
        if curve.kind == "softplus":  # ln(1 + exp(x)): of s(x) and s(-x), s as `soft`, one is s(0)
            nothing = self._filled(*x.shape, Fraction(0))
            return x.positive_part() + x.log1p_exp_neg() + (nothing - x).log1p_exp_neg() - nothing.log1p_exp_neg()
        return x.ldexp(1).sigmoid().ldexp(1) - self._filled(*x.shape, Fraction(1))  # tanh(x) = 2/(1 + exp(-2x)) - 1

    def _bent(self, x: Matrix[Any], function: PiecewiseLinear) -> Matrix[Any]:
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
        return x if factor == 1 else x.scalar_mul(self.backend.scalar(factor))

    def _filled(self, rows: int, columns: int, value: Fraction) -> Matrix[Any]:
        numerators = np.full((rows, columns), value.numerator, dtype=object)
        return self.backend.matrix(RationalMatrix(numerators, value.denominator))


@dataclass(frozen=True, eq=False)
class Near:
    """Vectors within a distance of a known one: { x : ||x - value|| <= error }, for one column."""

    value: Matrix[Any]
    error: Fraction

    def float_bounds(self) -> Ends:
        """Floats with lower <= entry <= upper."""
        lower, upper = (end[:, 0] for end in self.value.float_bounds())
        return _widened(lower, upper, self.error)


def _widened(lower: Floats, upper: Floats, error: Fraction) -> Ends:
    """Ends of all that is within `error` of what these are ends of."""
    apart = float_enclosure(error, error)[1]
    if not apart:
        return lower, upper
    with np.errstate(over="ignore"):  # infinity is an end, too
        # A float sum is at most half a step off: the next float is on the safe side.
        return np.nextafter(lower - apart, -np.inf), np.nextafter(upper + apart, np.inf)


class PointEvaluator(Evaluator):
    """The same for single inputs of networks with piecewise linear activations, on exact rationals that are cut."""

    def __init__(self, network: Network, norms: Sequence[Fraction], exact: Backend[Any]) -> None:
        """Requires: as `Evaluator`; a number system whose values are points; piecewise linear activations."""
        self._norms = tuple(norms)
        self._lost: list[Fraction] = []
        super().__init__(network, norms, exact)

    def _converted(self, norms: Sequence[Fraction]) -> list[Matrix[Any]]:  # noqa: ARG002 - a point has its own
        cut = self.network.of_weights(lambda weights: self._cut(self.backend.matrix(weights)))
        self._lost = [lost for _, lost in cut]
        return [weights for weights, _ in cut]

    def at(self, x: RationalMatrix) -> list[Near]:
        """W·x + b of each layer, the last one the logits. x: one column, as in `before_activations`.

        Guarantees: each contains the exact one.
        """
        near = self._cut_further(self._shrunk_near(Near(self.backend.matrix(x), Fraction(0)), self._input_scale))
        found: list[Near] = []
        layers = zip(self.network.layers, self.weights, self._columns, self._norms, self._lost, strict=True)
        for layer, weights, (before, bias, after), norm, lost in layers:
            error = _raised(norm * near.error + (lost * _size(near.value) if lost else 0))
            near = self._shrunk_near(Near(weights @ near.value, error), before)
            near = Near(self._moved(near.value, bias), near.error)
            found.append(near)
            if layer.activation is not None and layer.activation.piecewise_linear is not None:
                bent = self._bent(near.value, layer.activation.piecewise_linear)
                near = self._shrunk_near(Near(bent, _raised(layer.activation.lipschitz * near.error)), after)
                near = self._cut_further(near)
        return found

    def leads(self, logits: Near, winner: int) -> Ends:
        """Of the leads of the winner over the other classes, in their order. logits: of `at`.

        A difference of two entries of x - x' is at most sqrt(2)·||x - x'||, and sqrt(2) < 3/2.
        """
        low, high = leads_of(logits.value, winner, self.backend)
        return _widened(low, high, logits.error * Fraction(3, 2))

    def _shrunk_near(self, near: Near, by: _Held | None) -> Near:
        """C·(x + offset) for every C with factors in [least, 1]:

        C·(x + offset) - (x' + offset) = C·(x - x') + (C - I)·(x' + offset).
        """
        if by is None:
            return near
        offset, least = by
        moved = self._moved(near.value, offset)
        return Near(moved, _raised(near.error + (1 - least) * _size(moved)))

    def _cut_further(self, near: Near) -> Near:
        value, moved = self._cut(near.value)
        return Near(value, _raised(near.error + moved))

    def _cut(self, matrix: Matrix[Any]) -> tuple[Matrix[Any], Fraction]:
        """With `KEPT_BITS` bits below its size, and by how much that moved it at the most, in the Frobenius norm."""
        top = matrix.frobenius_squared().upper()
        size = (top.numerator.bit_length() - top.denominator.bit_length()) // 2
        cut, moved_squared = matrix.ldexp(-size).rounded(KEPT_BITS)
        moved = sqrt_upper(moved_squared.upper(), _ERROR_BITS) * dyadic_value(1, size)
        return cut.ldexp(size), moved


def _size(column: Matrix[Any]) -> Fraction:
    """An upper bound of its norm."""
    return sqrt_upper(column.frobenius_squared().upper(), _ERROR_BITS)


def _raised(error: Fraction) -> Fraction:
    return round_up(error, _ERROR_BITS)
