"""The network itself, over the reals: enclosures of what every layer computes at given inputs.

The same law as everywhere: each value found contains the one that exact arithmetic gives. Nobody's float logits are
trusted. What an activation gives, it says itself (`Activation.enclosure`).

There is one pass through the layers (`_ForwardPass`), and two ways to carry a value. `Evaluator` carries an enclosure
on one number system. That of float64 is wide where a network is deep: each layer multiplies its error by a norm.
`PointEvaluator` follows a single point instead, with exact rationals that are cut to `KEPT_BITS` bits before each
product; how far that is from the truth is one number, carried along by the norms:

    ||W·x - W'·x'|| <= ||W||·||x - x'|| + ||W - W'||·||x'||,     ||f(z) - f(z')|| <= lipschitz(f)·||z - z'||.

`Evaluators` holds those of one network, each made once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial, reduce
from itertools import accumulate
from operator import add
from typing import Any, Generic, TypeVar

import numpy as np

from intervalcert.backends.protocol import Backend, Floats, Matrix
from intervalcert.errors import InputError
from intervalcert.model.activations import Activation
from intervalcert.model.layers import INPUT, UncertainScale
from intervalcert.model.linear_maps import LinearMap, Operator
from intervalcert.model.network import Network
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.rounding import dyadic_value, float_enclosure, round_up, sqrt_upper

__all__ = [
    "KEPT_BITS",
    "EnclosedLogits",
    "Evaluator",
    "Evaluators",
    "FloatBounds",
    "Near",
    "PointEvaluator",
    "check_evaluable",
    "is_piecewise_linear",
    "is_rational",
    "leads_of",
]

KEPT_BITS = 80
"""Of weights and values, below the largest of a layer. (The exact ones grow by some 50 bits a layer.)"""

_ERROR_BITS = 32
"""Of what bounds an error; always rounded up."""

FloatBounds = tuple[Floats, Floats]
"""Arrays of floats, the first at most, the second at least what they are about."""

_Held = tuple[Matrix[Any] | None, Fraction]
"""A `UncertainScale` on one number system: the offset, and the least factor."""

_Value = TypeVar("_Value")


def check_evaluable(network: Network) -> None:
    """Raises: InputError if an activation cannot be evaluated here."""
    for index, layer in enumerate(network.layers):
        if layer.activation is not None and layer.activation.not_evaluable is not None:
            raise InputError(f"layer {index}: {layer.activation.not_evaluable}")


def is_piecewise_linear(network: Network) -> bool:
    """Whether all activations are."""
    return all(layer.activation is None or layer.activation.piecewise_linear is not None for layer in network.layers)


def is_rational(network: Network) -> bool:
    """Whether exact rationals hold its values at rational inputs, but for uncertain scales."""
    return all(layer.activation is None or layer.activation.is_rational for layer in network.layers)


def leads_of(logits: Matrix[Any], winner: int, backend: Backend[Any]) -> FloatBounds:
    """Of the leads of one class over the others, in their order. logits: one column."""
    unit = np.eye(logits.shape[0], dtype=np.int64)
    pairs = backend.matrix(RationalMatrix.from_floats(np.delete(unit[winner] - unit, winner, axis=0)))
    low, high = (end[:, 0] for end in (pairs @ logits).float_bounds())
    return low, high


class _ForwardPass(ABC, Generic[_Value]):
    """A network whose layers are gone through once, whatever carries a value from one to the next.

    A value denotes a set of matrices, one column per input. Each step below keeps the law: if the exact matrix is in
    the set before, the one that the step makes of it is in the set after. So it is in all that `before_activations`
    gives, by induction over the layers.
    """

    def __init__(self, network: Network, backend: Backend[Any]) -> None:
        check_evaluable(network)
        self.network, self.backend = network, backend
        self._first_branch = list(accumulate((len(layer.branches) for layer in network.layers), initial=0))
        last = {branch.source: branch.layer for branch in network.branches}
        self._last_used = [[x for x, at in last.items() if at == index] for index in range(len(network.layers))]
        self._input_scale = self._held(network.uncertain_input_scale)
        self._columns = [
            (
                self._held(layer.before),
                None if layer.bias is None else backend.matrix(layer.bias),
                self._held(layer.after),
            )
            for layer in network.layers
        ]

    def _held(self, uncertain: UncertainScale | None) -> _Held | None:
        if uncertain is None:
            return None
        return None if uncertain.offset is None else self.backend.matrix(uncertain.offset), uncertain.least

    def before_activations(self, inputs: RationalMatrix) -> list[_Value]:
        """W·x + b of each layer, the last one the logits; one column per column of `inputs`.

        Requires: inputs of the first layer (`Network.entered`). Guarantees: each contains the exact one.
        """
        values = {INPUT: self._scaled(self._entered(inputs), self._input_scale)}
        found: list[_Value] = []
        for index, (layer, (before, bias, after)) in enumerate(zip(self.network.layers, self._columns, strict=True)):
            total = self._sum_of([self._product(*taken) for taken in self._taken(index, values)])
            value = self._plus(self._scaled(total, before), bias)
            found.append(value)
            if layer.activation is not None:
                values[index] = self._scaled(self._activated(value, layer.activation), after)
            for source in self._last_used[index]:
                del values[source]
        return found

    def _taken(self, index: int, values: Mapping[int, _Value]) -> list[tuple[int, _Value]]:
        """The branches of a layer, as places in `Network.branches`, with what each takes."""
        first = self._first_branch[index]
        return [(first + k, values[term.source]) for k, term in enumerate(self.network.layers[index].branches)]

    @abstractmethod
    def _entered(self, inputs: RationalMatrix) -> _Value:
        """The inputs themselves."""

    @abstractmethod
    def _product(self, branch: int, value: _Value) -> _Value:
        """T·x, of that branch."""

    @abstractmethod
    def _sum_of(self, parts: Sequence[_Value]) -> _Value:
        """Of one or more."""

    @abstractmethod
    def _plus(self, value: _Value, column: Matrix[Any] | None) -> _Value:
        """Every column of it plus that one; None for zero."""

    @abstractmethod
    def _scaled(self, value: _Value, by: _Held | None) -> _Value:
        """C·(x + offset) for every diagonal C with factors in [least, 1]; x if there is none."""

    @abstractmethod
    def _activated(self, value: _Value, function: Activation) -> _Value:
        """f(x), entry by entry."""

    def _sum(self, value: Matrix[Any], column: Matrix[Any] | None) -> Matrix[Any]:
        """Every column of a matrix plus that one; None for zero."""
        if column is None:
            return value
        count = value.shape[1]
        if count == 1:
            return value + column
        return value + column @ self.backend.matrix(RationalMatrix.filled((1, count), Fraction(1)))


class Evaluator(_ForwardPass[Matrix[Any]]):
    """Enclosures on one number system, the weights converted once."""

    def __init__(self, network: Network, norms: Sequence[Fraction], backend: Backend[Any]) -> None:
        """Requires: `norms` are upper bounds of the operator norms of the network's branches."""
        super().__init__(network, backend)
        pairs = [(branch.map, norm) for branch, norm in zip(network.branches, norms, strict=True)]
        made = {key: each.on(backend, norm) for key, (each, norm) in {(x.key, n): (x, n) for x, n in pairs}.items()}
        self._operators = [made[each.key, norm] for each, norm in pairs]

    def _entered(self, inputs: RationalMatrix) -> Matrix[Any]:
        return self.backend.matrix(inputs)

    def _product(self, branch: int, value: Matrix[Any]) -> Matrix[Any]:
        return self._operators[branch].apply(value)

    def _sum_of(self, parts: Sequence[Matrix[Any]]) -> Matrix[Any]:
        return reduce(add, parts)

    def _plus(self, value: Matrix[Any], column: Matrix[Any] | None) -> Matrix[Any]:
        return self._sum(value, column)

    def _scaled(self, value: Matrix[Any], by: _Held | None) -> Matrix[Any]:
        if by is None:
            return value
        offset, least = by
        return self._sum(value, offset).scalar_mul(self.backend.hull(least, Fraction(1)))

    def _activated(self, value: Matrix[Any], function: Activation) -> Matrix[Any]:
        return function.enclosure(value, self.backend)


@dataclass(frozen=True, eq=False)
class Near:
    """Vectors within a distance of a known one: { x : ||x - value|| <= error }, for one column."""

    value: Matrix[Any]
    error: Fraction

    def float_bounds(self) -> FloatBounds:
        """Floats with lower <= entry <= upper."""
        lower, upper = (end[:, 0] for end in self.value.float_bounds())
        return _widened(lower, upper, self.error)


def _widened(lower: Floats, upper: Floats, error: Fraction) -> FloatBounds:
    """Ends of all that is within `error` of what these are ends of."""
    apart = float_enclosure(error, error)[1]
    if not apart:
        return lower, upper
    with np.errstate(over="ignore"):  # infinity is an end, too
        # A float sum is at most half a step off: the next float is on the safe side.
        return np.nextafter(lower - apart, -np.inf), np.nextafter(upper + apart, np.inf)


class PointEvaluator(_ForwardPass[Near]):
    """A single input of a network with rational activations, followed on exact rationals that are cut."""

    def __init__(self, network: Network, norms: Sequence[Fraction], exact: Backend[Any]) -> None:
        """Requires: as `Evaluator`; a number system whose values are points; rational activations."""
        super().__init__(network, exact)
        cut = network.of_branches(self._cut_map)
        self._branches = [(operator, lost, norm) for (operator, lost), norm in zip(cut, norms, strict=True)]

    def at(self, x: RationalMatrix) -> list[Near]:
        """`before_activations` at one input, a column."""
        return self.before_activations(x)

    def leads(self, logits: Near, winner: int) -> FloatBounds:
        """Of the leads of the winner over the other classes, in their order. logits: of `at`.

        A difference of two entries of x - x' is at most sqrt(2)·||x - x'||, and sqrt(2) < 3/2.
        """
        low, high = leads_of(logits.value, winner, self.backend)
        return _widened(low, high, logits.error * Fraction(3, 2))

    def _entered(self, inputs: RationalMatrix) -> Near:
        return Near(self.backend.matrix(inputs), Fraction(0))

    def _product(self, branch: int, value: Near) -> Near:
        """Of the cut map T' and the cut value x'."""
        operator, lost, norm = self._branches[branch]
        cut, moved = self._cut(value.value)
        error = _raised(value.error + moved)
        return Near(operator.apply(cut), _raised(norm * error + (lost * _size(cut) if lost else 0)))

    def _sum_of(self, parts: Sequence[Near]) -> Near:
        if len(parts) == 1:
            return parts[0]
        error = sum((part.error for part in parts), Fraction(0))
        return Near(reduce(add, (part.value for part in parts)), _raised(error))

    def _plus(self, value: Near, column: Matrix[Any] | None) -> Near:
        return Near(self._sum(value.value, column), value.error)

    def _scaled(self, value: Near, by: _Held | None) -> Near:
        """C·(x + offset) - (x' + offset) = C·(x - x') + (C - I)·(x' + offset)."""
        if by is None:
            return value
        offset, least = by
        moved = self._sum(value.value, offset)
        return Near(moved, _raised(value.error + (1 - least) * _size(moved)))

    def _activated(self, value: Near, function: Activation) -> Near:
        return Near(function.enclosure(value.value, self.backend), _raised(function.lipschitz * value.error))

    def _cut_map(self, linear: LinearMap) -> tuple[Operator, Fraction]:
        """T' with cut numbers, and a bound of ||T - T'||."""
        lost: list[Fraction] = []

        def convert(numbers: RationalMatrix) -> Matrix[Any]:
            cut, moved = self._cut(self.backend.matrix(numbers))
            lost.append(moved)
            return cut

        operator = linear.on(self.backend, convert=convert)
        return operator, _raised(linear.stretch * sum(lost, Fraction(0)))

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


@dataclass(frozen=True, eq=False)
class EnclosedLogits:
    """Of one input. leads: ends of the leads of a class over the others, in their order."""

    ends: FloatBounds
    leads: Callable[[int], FloatBounds]


class Evaluators:
    """Those of one network, each made when it is asked for first."""

    def __init__(self, network: Network, norms: Sequence[Fraction]) -> None:
        """Requires: `norms` are upper bounds of the operator norms of the network's branches."""
        self._network, self._norms = network, tuple(norms)
        self._on: dict[Backend[Any], Evaluator] = {}
        self._of_points: dict[Backend[Any], PointEvaluator] = {}

    def on(self, backend: Backend[Any]) -> Evaluator:
        """Of enclosures on this number system."""
        if backend not in self._on:
            self._on[backend] = Evaluator(self._network, self._norms, backend)
        return self._on[backend]

    def of_points(self, exact: Backend[Any]) -> PointEvaluator:
        """Of single points. Requires: as `PointEvaluator`."""
        if exact not in self._of_points:
            self._of_points[exact] = PointEvaluator(self._network, self._norms, exact)
        return self._of_points[exact]

    def finer(self, ladder: Sequence[Backend[Any]]) -> Iterator[tuple[str, Callable[[RationalMatrix], EnclosedLogits]]]:
        """What encloses the logits of one input, a column, where the first number system cannot tell; with its name.

        First the point that is followed exactly, or nearly so; then all number systems but the first.
        """
        if is_rational(self._network):
            yield ladder[-1].name, partial(self._followed, exact=ladder[-1])
        for backend in ladder[1:] or ladder:
            yield backend.name, partial(self._enclosed, backend=backend)

    def _followed(self, x: RationalMatrix, exact: Backend[Any]) -> EnclosedLogits:
        points = self.of_points(exact)
        logits = points.at(x)[-1]
        return EnclosedLogits(logits.float_bounds(), lambda winner: points.leads(logits, winner))

    def _enclosed(self, x: RationalMatrix, backend: Backend[Any]) -> EnclosedLogits:
        logits = self.on(backend).before_activations(x)[-1]
        low, high = (end[:, 0] for end in logits.float_bounds())
        return EnclosedLogits((low, high), lambda winner: leads_of(logits, winner, backend))
