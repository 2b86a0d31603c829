"""The program itself, in one order of summation that has a name: what it computes, bit by bit; and what that falsifies.

SEQUENTIAL is this program. Each number of a layer is a sum: the products in the order of the layer's terms, and in each
of these in that of its inputs (of a convolution: channel by channel, its places row by row), each rounded, added up one
after the other, each sum rounded; then the bias. A mean adds up its numbers, and divides by their count. Activations
compare and copy; below zero a leaky ReLU takes one more rounded product. No fused operations, no overflow.

Rounding by way of float64. Let a format have p <= 24 bits, and its exponents those of float32 at the most. A product of
two of its numbers is a float64 number. A sum that is rounded to 53 bits and then to p is the rounded sum, since
53 >= 2p + 1 (Figueroa, "When is double rounding innocuous?", 1995), and where it is subnormal it is a multiple of the
smallest number, and exact. So is a quotient, since 53 >= 2p, unless it is subnormal: that is refused. float64 itself is
the arithmetic of this process, which is tested (`numbers.float_environment`).

FALSIFIED. Certified means: at all inputs within eps that are numbers of the format the program, in whatever order it
sums, has the same winner, which leads strictly. Two such inputs at which SEQUENTIAL has winners that differ, or at the
second of which another class is as high as the winner at the first, refute that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod

import numpy as np

from intervalcert.backends.protocol import Floats
from intervalcert.errors import UndecidedError
from intervalcert.model.layers import INPUT, Layer
from intervalcert.model.linear_maps import Convolution, Dense, IndexMap, LinearMap
from intervalcert.model.network import Network
from intervalcert.numbers.float_environment import arithmetic_fault
from intervalcert.numbers.float_formats import FloatFormat
from intervalcert.numbers.matrices import RationalMatrix, exact_integers
from intervalcert.proof.data import Witness

__all__ = ["SEQUENTIAL", "FloatCounterexample", "Program", "check_float_counterexample", "distance_squared"]

SEQUENTIAL = "sequential"
"""The name of the order."""


@dataclass(frozen=True, eq=False, repr=False)
class FloatCounterexample(Witness):
    """Two inputs that a program in floats can be given, both within eps: `near`, where `winner` wins, and `changed`,
    where the class `other` is at least as high, both by the program that sums in that order.
    """

    near: Floats
    changed: Floats
    winner: int
    other: int
    order: str = SEQUENTIAL


_AT_ONCE = 256
"""Products of a row that are rounded together."""


class Program:
    """A network in a format, as SEQUENTIAL computes it."""

    def __init__(self, network: Network, form: FloatFormat) -> None:
        """network: as deployed: all its numbers are of the format."""
        self.form, self._network = form, network

    def logits(self, inputs: Floats) -> Floats:
        """Of inputs that are numbers of the format, one per column.

        Raises: UndecidedError for others, where floats are not to be trusted, or where something overflows.
        """
        fault = arithmetic_fault()
        if fault is not None:
            raise UndecidedError(f"float64 arithmetic cannot be trusted in this process: {fault}")
        if inputs.ndim != 2 or len(inputs) != self._network.inputs or not self._are_of_format(inputs):
            raise UndecidedError("an input that the program cannot be given")
        values = {INPUT: inputs}
        with np.errstate(all="ignore"):  # what overflows is refused
            for index, layer in enumerate(self._network.layers):
                inner = self._checked(self._inner(layer, values))
                if layer.activation is None:
                    return inner
                values[index] = self._checked(layer.activation.in_program(inner, self.form))
        raise ValueError("a network without logits")

    def _are_of_format(self, x: Floats) -> bool:
        return x.dtype == np.float64 and bool((self._checked(x) == self.form.nearest(x)).all())

    def _checked(self, x: Floats) -> Floats:
        if not (np.abs(x) <= float(self.form.largest)).all():  # nor is it nan
            raise UndecidedError(f"a number beyond {self.form.name}")
        return x

    def _inner(self, layer: Layer, values: dict[int, Floats]) -> Floats:
        total: Floats | None = None
        for term in layer.terms:
            total = self._added(total, term.map, values[term.source])
        bias = None if layer.bias is None else _exact_floats(layer.bias)
        if total is None:
            raise ValueError("a layer without terms")
        return total if bias is None else self.form.nearest(total + bias)

    def _added(self, total: Floats | None, linear: LinearMap, x: Floats) -> Floats:
        """The products of one map, added to what there is."""
        if isinstance(linear, Convolution) and linear.is_mean:
            return self._sum(total, [self._mean(linear, x)])
        return self._sum(total, self._products(linear, x))

    def _sum(self, total: Floats | None, parts: Iterator[Floats] | Sequence[Floats]) -> Floats:
        for part in parts:
            total = part if total is None else self._checked(self.form.nearest(total + part))
        if total is None:
            raise UndecidedError("a sum of nothing")
        return total

    def _mean(self, linear: Convolution, x: Floats) -> Floats:
        weights = set(linear.kernel.numerators.ravel().tolist())
        count = Fraction(linear.kernel.denominator, weights.pop())
        if weights or count.denominator != 1 or float(count) != count:
            raise UndecidedError("a mean of numbers that do not count alike")
        found = self._sum(None, _means(linear, x)) / float(count)
        if self.form.bits < 53 and ((found != 0) & (np.abs(found) < 2.0**self.form.emin)).any():
            raise UndecidedError("a subnormal quotient")
        return self.form.nearest(found)

    def _products(self, linear: LinearMap, x: Floats) -> Iterator[Floats]:
        """Rounded, in their order; each has the rows of what the map gives."""
        if isinstance(linear, IndexMap):
            taken = np.where(linear.index[:, None] >= 0, x[linear.index], 0.0)
            yield taken if linear.factors is None else self.form.nearest(_exact_floats(linear.factors) * taken)
        elif isinstance(linear, Dense):
            matrix = _exact_floats(linear.matrix)
            for start in range(0, len(x), _AT_ONCE):
                part = slice(start, start + _AT_ONCE)
                yield from self.form.nearest(matrix.T[part, :, None] * x[part, None])
        elif isinstance(linear, Convolution):
            kernel = _exact_floats(linear.kernel)
            outputs = kernel.shape[0] // linear.groups
            for column, seen in zip(kernel.T, _seen(linear, x), strict=True):
                each = column.reshape(linear.groups, outputs, 1, 1) * seen[:, None]
                yield self.form.nearest(each.reshape(-1, x.shape[1]))
        else:
            raise UndecidedError("a map whose program is not known")


def _seen(linear: Convolution, x: Floats) -> Iterator[Floats]:
    """What the windows of each group see, place by place (groups x windows x columns); zeros beyond the input."""
    table = linear.window.table
    grid = x.reshape(linear.groups, linear.channels // linear.groups, prod(linear.window.inputs), x.shape[1])
    for channel in range(grid.shape[1]):
        for place in table:
            yield np.where(place[:, None] >= 0, grid[:, channel, place], 0.0)


def _means(linear: Convolution, x: Floats) -> Iterator[Floats]:
    """What a mean adds up. Its kernel has one number everywhere: who sees nothing of another channel has a group."""
    outputs = linear.kernel.shape[0] // linear.groups
    for seen in _seen(linear, x):
        yield np.repeat(seen[:, None], outputs, axis=1).reshape(-1, x.shape[1])


def _exact_floats(numbers: RationalMatrix) -> Floats:
    """Raises: UndecidedError for numbers that are no floats: then the network is not as deployed."""
    found = numbers.as_floats()
    if found is None:
        raise UndecidedError("weights that are no floats")
    return found


def check_float_counterexample(found: FloatCounterexample, x: RationalMatrix, eps: Fraction, program: Program) -> None:
    """Proves that it falsifies. x: the input, a column.

    Raises: UndecidedError unless both inputs are numbers of the format and within eps of x, the winner is the first of
    the largest logits at the one, and the other class is at least as high at the other.
    """
    both = (found.near, found.changed)
    if found.order != SEQUENTIAL or any(u.shape != (x.shape[0],) for u in both) or x.shape[1] != 1:
        raise UndecidedError("another program, or inputs of another one")
    logits = program.logits(np.stack(both, axis=1))
    outputs = len(logits)
    if not (0 <= found.winner < outputs and 0 <= found.other < outputs and found.winner != found.other):
        raise UndecidedError("a change from no class, or to none")
    if not all(distance_squared(u, x) <= eps**2 for u in both):
        raise UndecidedError("a change beyond eps")
    here, there = logits.T
    if int(np.argmax(here)) != found.winner or not there[found.other] >= there[found.winner]:
        raise UndecidedError("no change of the winner")


def distance_squared(u: Floats, x: RationalMatrix) -> Fraction:
    """Of floats from a column, exactly."""
    numbers, unit = exact_integers(u)
    apart = numbers * x.denominator - x.numerators[:, 0] * unit
    return Fraction(int((apart * apart).sum()), (unit * x.denominator) ** 2)
