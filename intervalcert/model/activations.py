"""What may stand between two layers: one type for each function, which holds all that anybody asks of it.

A type says, or says that it has none:

    lipschitz, slopes         what the norms and the chain of ellipsoids use
    piecewise_linear          its hinges, from which `proof.sectors` finds how far it bends near a known point
    enclosure                 its value on any number system (`evaluation`)
    float_values, float_adjoint    the same in plain floats, for those who guess
    in_format, float_error, size_upper    what becomes of it in the floats of a program (`verify.deployed`)

A new activation is a class here, and a line in `ACTIVATIONS` or `PARAMETRISED`. An unknown function is refused, never
guessed. Names are parsed here and nowhere else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np

from intervalcert.backends.protocol import Backend, Floats, Indices, Matrix
from intervalcert.errors import InputError, shortened
from intervalcert.model.windows import Window
from intervalcert.numbers.float_formats import FloatFormat
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.parsing import parse_rational
from intervalcert.numbers.rounding import float_enclosure, sqrt_upper
from intervalcert.numbers.upward import enlarged, float_up

__all__ = [
    "ACTIVATIONS",
    "ELU",
    "IDENTITY",
    "PARAMETRISED",
    "Activation",
    "Clip",
    "Componentwise",
    "FloatError",
    "HardTanh",
    "LeakyReLU",
    "MaxPool",
    "PiecewiseLinear",
    "ReLU",
    "Sigmoid",
    "Softplus",
    "Sorting",
    "Tanh",
    "activation",
    "activation_of",
]

MAX_BITS = 8_400
"""Of either part of a parameter, as a fraction. A float64 has at most 1,075, a decimal that is read (of 1,500 digits,
with an exponent of 1,000) fewer than that: larger ones would only make every product of bounds as long."""

_ZERO, _ONE = Fraction(0), Fraction(1)


@dataclass(frozen=True)
class FloatError:
    """How far a program is from f: |f̂(z) - f(z)| <= relative·|z| + absolute, and nothing overflows, if |z| <= largest.

    f is the function whose parameters are numbers of the format (`Activation.in_format`).
    """

    relative: Fraction
    absolute: Fraction
    largest: Fraction


@dataclass(frozen=True, repr=False)
class Activation(ABC):
    """A function f: R^k -> R^k with ||f(u) - f(v)|| <= lipschitz·||u - v|| for all u, v.

    `name` says all that the rest depends on: ``relu``, or with a parameter ``leaky_relu:0.01``. It is in the content
    of a network and in files, as it was written.
    """

    name: str

    def __repr__(self) -> str:
        return f"<Activation {shortened(self.name, 60)}>"

    @property
    def parts(self) -> tuple[str, ...]:
        """Of the name: the kind, and the parameters as they were written."""
        return tuple(self.name.split(":"))

    @property
    @abstractmethod
    def lipschitz(self) -> Fraction: ...

    def out_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Of what it makes of an array of that shape. Raises: InputError for one that it does not take."""
        return shape

    @property
    def slopes(self) -> tuple[Fraction, Fraction] | None:
        """The ends of an interval that holds all difference quotients; None unless f acts component by component."""
        return None

    @property
    def piecewise_linear(self) -> PiecewiseLinear | None:
        """Itself, if each component is piecewise linear."""
        return None

    # -- its values --------------------------------------------------------------------------------------------------

    @property
    def is_rational(self) -> bool:
        """Whether its values at rational numbers are rational, so that exact numbers hold them."""
        return self.piecewise_linear is not None

    @property
    def not_evaluable(self) -> str | None:
        """Why it has no values here; None if it has."""
        return None

    @abstractmethod
    def enclosure(self, x: Matrix[Any], backend: Backend[Any]) -> Matrix[Any]:
        """A set that contains f(M), entry by entry, for each M in x. Requires: it is evaluable."""

    @abstractmethod
    def float_values(self, x: Floats) -> Floats:
        """Near f of each entry: nothing is proved of them. Requires: it is evaluable."""

    @abstractmethod
    def float_adjoint(self, x: Floats, g: Floats) -> Floats:
        """Near the gradient of <g, f> at x, column by column; g may have more columns than x, which has one then.

        At a kink that of the piece before; nothing is proved. Requires: it is evaluable.
        """

    # -- in a program ------------------------------------------------------------------------------------------------

    def in_format(self, form: FloatFormat, where: str) -> Activation:
        """The function that a program in this format has, whose parameters are rounded. where: ``layer 3``.

        Raises: InputError if that is not known, or a parameter is beyond the format.
        """
        raise InputError(
            f"{where}: how {self.name!r} is rounded in {form.name} is not known (relu, leaky_relu, "
            "clip, hard_tanh and identity are)"
        )

    def float_error(self, form: FloatFormat) -> FloatError:
        """Requires: made by `in_format`."""
        raise ValueError(f"{self.name!r} is not known in {form.name}")

    def size_upper(self, low: Floats, high: Floats) -> Floats:  # noqa: ARG002 - of what it has not
        """Floats at least |f(z)| for every z between the ends. Requires: made by `in_format`."""
        raise ValueError(f"{self.name!r} is not evaluated in floats")

    def in_program(self, x: Floats, form: FloatFormat) -> Floats:  # noqa: ARG002 - of what it has not
        """What a program makes of numbers of the format, bit by bit. Requires: made by `in_format`."""
        raise ValueError(f"{self.name!r} is not evaluated in floats")


class Componentwise(Activation):
    """One function R -> R, applied to every entry."""

    @property
    @abstractmethod
    def slopes(self) -> tuple[Fraction, Fraction]: ...

    @property
    def lipschitz(self) -> Fraction:
        return max(map(abs, self.slopes))

    @abstractmethod
    def float_slopes(self, x: Floats) -> Floats:
        """Near f' of each entry, at a kink that of the piece before: nothing is proved. Requires: it is evaluable."""

    def float_adjoint(self, x: Floats, g: Floats) -> Floats:
        return self.float_slopes(x) * g


# -- piecewise linear ------------------------------------------------------------------------------------------------

_Hinges = tuple[tuple[Fraction, Fraction], ...]

_FAR = 2**30
"""Kinks so far away are seldom meant: ends of a Clip that stand for none."""


@dataclass(frozen=True, repr=False)
class PiecewiseLinear(Componentwise):
    """offset + slope·x + the sum of weight·max(x - kink, 0) over its hinges (weight, kink)."""

    offset: Fraction
    slope: Fraction
    hinges: _Hinges

    @property
    def slopes(self) -> tuple[Fraction, Fraction]:
        """Of the pieces, the least and the largest: a difference quotient is a mean of some of them."""
        ordered = sorted(self.hinges, key=lambda hinge: hinge[1])
        pieces = list(accumulate((weight for weight, _ in ordered), initial=self.slope))
        return min(pieces), max(pieces)

    @property
    def piecewise_linear(self) -> PiecewiseLinear:
        return self

    def enclosure(self, x: Matrix[Any], backend: Backend[Any]) -> Matrix[Any]:
        slope, offset, hinges = self._around(x)
        parts: list[Matrix[Any]] = []
        if slope:
            parts.append(_multiple(x, slope, backend))
        for weight, kink in hinges:
            moved = x if not kink else x - _filled(x, kink, backend)
            parts.append(_multiple(moved.positive_part(), weight, backend))
        if offset or not parts:
            parts.append(_filled(x, offset, backend))
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total

    def _around(self, x: Matrix[Any]) -> tuple[Fraction, Fraction, _Hinges]:
        """Slope, offset and hinges of the same function, for all M in x: without kinks that none of them reaches.

        Only kinks far away are looked at: x - kink would be as inexact as they are large, where x itself is not.
        """
        slope, offset, near = self.slope, self.offset, []
        for weight, kink in self.hinges:
            low, high = x.float_bounds() if abs(kink) >= _FAR else (np.array(-np.inf), np.array(np.inf))
            if high.max() <= float_enclosure(kink, kink)[0]:  # all of them are below it: the hinge is 0
                continue
            if low.min() >= float_enclosure(kink, kink)[1]:  # all are above it: the hinge is a line
                slope, offset = slope + weight, offset - weight * kink
            else:
                near.append((weight, kink))
        return slope, offset, tuple(near)

    def float_values(self, x: Floats) -> Floats:
        total = np.full(x.shape, float(self.offset))
        if self.slope:
            total += float(self.slope) * x
        for weight, kink in self.hinges:
            total += float(weight) * np.maximum(x - float(kink), 0.0)
        return total

    def float_slopes(self, x: Floats) -> Floats:
        total = np.full(x.shape, float(self.slope))
        for weight, kink in self.hinges:
            total = total + float(weight) * (x > float(kink))
        return total

    def size_upper(self, low: Floats, high: Floats) -> Floats:
        """|f(z)| <= |f(0)| + lipschitz·|z|."""
        at_zero = abs(self.offset + sum(weight * max(-kink, _ZERO) for weight, kink in self.hinges))
        return enlarged(float_up(at_zero) + float_up(self.lipschitz) * np.maximum(-low, high))


class Clip(PiecewiseLinear):
    """min(max(x, low), high), of which either end may be missing: its kinks are its ends.

    A program compares and copies: with ends that are numbers of the format it is exact.
    """

    depends_on = "its ends, of which one may be infinite: clip:0:6, clip:-inf:1"

    @staticmethod
    def named(name: str, parameters: str) -> Clip:
        low, _, high = parameters.partition(":")
        least = None if low == "-inf" else _parameter(low, name)
        most = None if high == "inf" else _parameter(high, name)
        if least is not None and most is not None and least > most:
            raise InputError(f"the activation {name!r}: its lower end must not be above the upper one")
        return Clip(name, *_clipped(least, most))

    def in_format(self, form: FloatFormat, where: str) -> Activation:
        for _, end in self.hinges:
            if _rounded(end, form, f"the end of {where}'s clip") != end:
                raise InputError(f"{where}: an end of {self.name!r} is not a number of {form.name}")
        return self

    def float_error(self, form: FloatFormat) -> FloatError:
        return FloatError(_ZERO, _ZERO, form.largest)

    def in_program(self, x: Floats, form: FloatFormat) -> Floats:  # noqa: ARG002 - it compares and copies
        for weight, end in self.hinges:
            x = np.maximum(x, float(end)) if weight > 0 else np.minimum(x, float(end))
        return x


def _clipped(low: Fraction | None, high: Fraction | None) -> tuple[Fraction, Fraction, _Hinges]:
    """offset, slope and hinges. Above the lower end the slope is 1: without one, everywhere below the upper end."""
    hinges: _Hinges = () if low is None else ((_ONE, low),)
    hinges += () if high is None else ((-_ONE, high),)
    return (_ZERO, _ONE, hinges) if low is None else (low, _ZERO, hinges)


class ReLU(Clip):
    """max(x, 0)."""

    def size_upper(self, low: Floats, high: Floats) -> Floats:  # noqa: ARG002 - what is below counts for nothing
        return np.maximum(high, 0.0)


class HardTanh(Clip):
    """min(max(x, -1), 1)."""

    def size_upper(self, low: Floats, high: Floats) -> Floats:
        return np.minimum(super().size_upper(low, high), 1.0)


class LeakyReLU(PiecewiseLinear):
    """x above zero, slope·x below. A program takes one more product there, by a slope that it may round or not."""

    depends_on = "the slope below zero: leaky_relu:0.01"

    @staticmethod
    def named(name: str, parameter: str) -> LeakyReLU:
        slope = _parameter(parameter, name)
        return LeakyReLU(name, _ZERO, slope, ((_ONE - slope, _ZERO),))

    def in_format(self, form: FloatFormat, where: str) -> Activation:
        rounded = _rounded(self.slope, form, f"the slope of {where}")
        if rounded == self.slope:
            return self
        return activation(f"leaky_relu:{rounded.numerator}/{rounded.denominator}")

    def float_error(self, form: FloatFormat) -> FloatError:
        """The product is off by u, the slope by another, u² is less than u; and the product may underflow.

        |slope·z|·(1 + 3u) + η must not overflow; twice the constant, which is at least 1, leaves room for all of it.
        """
        return FloatError(3 * form.unit * self.lipschitz, form.tiny, form.largest / (2 * self.lipschitz))

    def in_program(self, x: Floats, form: FloatFormat) -> Floats:
        """By the rounded slope. (A product of two numbers of a narrower format is a float64 number.)"""
        return np.where(x > 0, x, form.nearest(float(self.slope) * x))


# -- built from exp --------------------------------------------------------------------------------------------------
# In floats they are refused: the accuracy of library functions is not known.


class Sigmoid(Componentwise):
    """s(x) = 1/(1 + exp(-x)), the logistic function: s' = s·(1 - s) <= 1/4."""

    @property
    def slopes(self) -> tuple[Fraction, Fraction]:
        return _ZERO, Fraction(1, 4)

    def enclosure(self, x: Matrix[Any], backend: Backend[Any]) -> Matrix[Any]:  # noqa: ARG002 - the matrix knows it
        return x.sigmoid()

    def float_values(self, x: Floats) -> Floats:
        return _sigmoid_of(x)

    def float_slopes(self, x: Floats) -> Floats:
        return _sigmoid_of(x) * _sigmoid_of(-x)


class Tanh(Componentwise):
    """tanh(x) = 2/(1 + exp(-2x)) - 1."""

    @property
    def slopes(self) -> tuple[Fraction, Fraction]:
        return _ZERO, _ONE

    def enclosure(self, x: Matrix[Any], backend: Backend[Any]) -> Matrix[Any]:
        return x.ldexp(1).sigmoid().ldexp(1) - _filled(x, _ONE, backend)

    def float_values(self, x: Floats) -> Floats:
        return np.tanh(x)

    def float_slopes(self, x: Floats) -> Floats:
        return 4 * _sigmoid_of(2 * x) * _sigmoid_of(-2 * x)


class Softplus(Componentwise):
    """ln(1 + exp(x)). Its slope is the sigmoid.

    With s(x) = ln(1 + exp(min(x, 0))) it is max(x, 0) + s(x) + s(-x) - s(0): one of s(x) and s(-x) is s(0).
    """

    @property
    def slopes(self) -> tuple[Fraction, Fraction]:
        return _ZERO, _ONE

    def enclosure(self, x: Matrix[Any], backend: Backend[Any]) -> Matrix[Any]:
        nothing = _filled(x, _ZERO, backend)
        return x.positive_part() + x.log1p_exp_neg() + (nothing - x).log1p_exp_neg() - nothing.log1p_exp_neg()

    def float_values(self, x: Floats) -> Floats:
        return np.logaddexp(0.0, x)

    def float_slopes(self, x: Floats) -> Floats:
        return _sigmoid_of(x)


@dataclass(frozen=True, repr=False)
class ELU(Componentwise):
    """max(x, 0) + alpha·(exp(min(x, 0)) - 1), alpha >= 0: its slope is 1 above zero, below alpha·exp(x) <= alpha."""

    alpha: Fraction

    depends_on = "its alpha: elu:1"

    @staticmethod
    def named(name: str, parameter: str) -> ELU:
        alpha = _parameter(parameter, name)
        if alpha < 0:
            raise InputError(f"the activation {name!r}: alpha must not be negative")
        return ELU(name, alpha)

    @property
    def slopes(self) -> tuple[Fraction, Fraction]:
        return _ZERO, max(_ONE, self.alpha)

    def enclosure(self, x: Matrix[Any], backend: Backend[Any]) -> Matrix[Any]:
        return x.positive_part() + _multiple(x.expm1_neg(), self.alpha, backend)

    def float_values(self, x: Floats) -> Floats:
        found: Floats = np.maximum(x, 0.0) + float(self.alpha) * np.expm1(np.minimum(x, 0.0))
        return found

    def float_slopes(self, x: Floats) -> Floats:
        return np.where(x > 0, 1.0, float(self.alpha) * np.exp(np.minimum(x, 0.0)))


# -- others ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Sorting(Activation):
    """Sorts within groups, which moves no two vectors apart.

    size, inner: the numbers are read as an array (groups, size, inner), and sorted along its middle axis: with inner 1
    neighbours make a group; in images of h x w, inner = h·w makes groups of neighbouring channels, and inner = half of
    all numbers (size 2) pairs of a channel of the first half with one of the second. ascending: the smallest first.
    Without a size it is not known which groups these are.
    """

    size: int | None = None
    inner: int = 1
    ascending: bool = True

    depends_on = "its groups: group_sort:SIZE:INNER, or group_sort:SIZE:INNER:descending"

    @staticmethod
    def named(name: str, parameters: str) -> Sorting:
        size, _, rest = parameters.partition(":")
        inner, _, order = rest.partition(":")
        if order not in {"", "descending"}:
            raise InputError(f"the activation {shortened(name)!r}: groups are sorted upwards, or 'descending'")
        numbers = [_natural(text, name) for text in (size, inner or "1")]
        return Sorting(name, numbers[0], numbers[1], not order)

    def out_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if self.size is not None and prod(shape) % (self.size * self.inner):
            raise InputError(f"the activation {self.name!r} of {prod(shape)} numbers, which are no such groups")
        return shape

    @property
    def lipschitz(self) -> Fraction:
        return _ONE

    @property
    def not_evaluable(self) -> str | None:
        if self.size is not None:
            return None
        return (
            f"the activation {self.name!r} cannot be evaluated at an input (its groups are not known): certify given "
            "logits instead, or say the groups, as group_sort:2:1"
        )

    @property
    def is_rational(self) -> bool:
        return self.size is not None

    def _order(self, count: int) -> Indices:
        """Where each number is once groups are neighbours, the one that becomes the smallest first."""
        if self.size is None:
            raise InputError(self.not_evaluable or "")
        places = np.arange(count).reshape(-1, self.size, self.inner).transpose(0, 2, 1)
        return (places if self.ascending else places[:, :, ::-1]).ravel()

    def enclosure(self, x: Matrix[Any], backend: Backend[Any]) -> Matrix[Any]:  # noqa: ARG002 - the matrix knows it
        order = self._order(x.shape[0])
        return x.rows_at(order).sorted_within(self.size or 1).rows_at(np.argsort(order))

    def float_values(self, x: Floats) -> Floats:
        order = self._order(len(x))
        made = np.empty_like(x)
        made[order] = np.sort(x[order].reshape(-1, self.size or 1, x.shape[1]), axis=1).reshape(x.shape)
        return made

    def float_adjoint(self, x: Floats, g: Floats) -> Floats:
        order, size = self._order(len(x)), self.size or 1
        ranks = np.argsort(x[order].reshape(-1, size, x.shape[1]), axis=1, kind="stable")
        made = np.empty_like(g)
        moved = np.empty((len(ranks), size, g.shape[1]))
        np.put_along_axis(moved, np.broadcast_to(ranks, moved.shape), g[order].reshape(moved.shape), axis=1)
        made[order] = moved.reshape(g.shape)
        return made

    def in_format(self, form: FloatFormat, where: str) -> Activation:
        """A program compares and copies: it is exact."""
        return super().in_format(form, where) if self.size is None else self

    def float_error(self, form: FloatFormat) -> FloatError:
        return super().float_error(form) if self.size is None else FloatError(_ZERO, _ZERO, form.largest)

    def in_program(self, x: Floats, form: FloatFormat) -> Floats:  # noqa: ARG002 - it compares and copies
        return self.float_values(x)

    def size_upper(self, low: Floats, high: Floats) -> Floats:
        """The k-th smallest of some numbers lies between the k-th smallest lower and the k-th smallest upper end."""
        if self.size is None:
            return super().size_upper(low, high)
        ends = [self.float_values(end) for end in (low, high)]
        return np.maximum(np.abs(ends[0]), np.abs(ends[1]))


@dataclass(frozen=True, repr=False)
class MaxPool(Activation):
    """The largest number in each window, channel by channel; what is beyond the input does not count.

    Two inputs differ by Δ; the maximum of a window by at most the largest |Δ| in it, so its square by at most the sum
    of their squares; and each of those counts in as many windows as it is in: ||Δ'||² <= windows·||Δ||².
    """

    channels: int
    window: Window

    depends_on = "its window: max_pool:CHANNELSxHxW:SIZE:STRIDE:DILATION:BEFORE:OUTPUTS, pairs as 2x2"

    @staticmethod
    def named(name: str, parameters: str) -> MaxPool:
        first, *pairs = parameters.split(":")
        sides = [_naturals(text, name) for text in (first, *pairs)]
        if [len(side) for side in sides] != [3, 2, 2, 2, 2, 2]:
            raise InputError(f"the activation {shortened(name)!r} depends on {MaxPool.depends_on}")
        (channels, *inputs), size, stride, dilation, before, outputs = sides
        window = Window(*((pair[0], pair[1]) for pair in (inputs, outputs, size, stride, dilation, before)))
        return MaxPool.of(channels, window)

    @staticmethod
    def of(channels: int, window: Window) -> MaxPool:
        """Raises: InputError for a window that sees nothing, or channels that are none."""
        if channels < 1 or (window.table < 0).all(axis=0).any():
            raise InputError(f"a maximum over windows of {window}, of which one sees nothing at all")
        pairs = (window.size, window.stride, window.dilation, window.before, window.outputs)
        text = ":".join("x".join(map(str, pair)) for pair in ((channels, *window.inputs), *pairs))
        return MaxPool(f"max_pool:{text}", channels, window)

    def out_shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        if prod(shape) != self.channels * prod(self.window.inputs):
            raise InputError(f"the activation {self.name!r} of an array of the shape {shape}")
        return (self.channels, *self.window.outputs)

    @property
    def lipschitz(self) -> Fraction:
        """Above the root of the number of windows, by 2^-64 at the most."""
        return sqrt_upper(Fraction(self.window.most_windows), 64)

    @property
    def is_rational(self) -> bool:
        return True

    def _seen(self) -> Indices:
        """Of channels x outputs x places: what each window sees; in the place of what is beyond, something it sees."""
        table = self.window.table.T
        inside = np.argmax(table >= 0, axis=1)
        table = np.where(table >= 0, table, table[np.arange(len(table)), inside][:, None])
        return (np.arange(self.channels)[:, None, None] * prod(self.window.inputs) + table).astype(np.intp)

    def enclosure(self, x: Matrix[Any], backend: Backend[Any]) -> Matrix[Any]:
        """A ball around the columns is not spread with them."""
        seen, places = self._seen(), self.window.taps
        point, apart = x.recentred()
        largest = point.rows_at(seen.ravel()).sorted_within(places).rows_at(np.arange(places - 1, seen.size, places))
        return largest.blurred(apart * backend.scalar(self.lipschitz))

    def float_values(self, x: Floats) -> Floats:
        seen = self._seen()
        found: Floats = x[seen.reshape(-1, self.window.taps)].max(axis=1)
        return found

    def float_adjoint(self, x: Floats, g: Floats) -> Floats:
        seen = self._seen().reshape(-1, self.window.taps)
        winners = seen[np.arange(len(seen))[:, None], np.argmax(x[seen], axis=1)]  # outputs x columns
        made = np.zeros((len(x), g.shape[1]))
        np.add.at(made, (np.broadcast_to(winners, g.shape), np.arange(g.shape[1])), g)
        return made

    def in_format(self, form: FloatFormat, where: str) -> Activation:  # noqa: ARG002 - it compares and copies
        return self

    def float_error(self, form: FloatFormat) -> FloatError:
        return FloatError(_ZERO, _ZERO, form.largest)

    def in_program(self, x: Floats, form: FloatFormat) -> Floats:  # noqa: ARG002 - it compares and copies
        return self.float_values(x)

    def size_upper(self, low: Floats, high: Floats) -> Floats:
        return np.maximum(np.abs(self.float_values(low)), np.abs(self.float_values(high)))


# -- their names -----------------------------------------------------------------------------------------------------

IDENTITY: Activation = Clip("identity", *_clipped(None, None))

ACTIVATIONS: dict[str, Activation] = {
    made.name: made
    for made in (
        ReLU("relu", *_clipped(_ZERO, None)),
        Tanh("tanh"),
        HardTanh("hard_tanh", *_clipped(-_ONE, _ONE)),
        Sigmoid("sigmoid"),
        Softplus("softplus"),
        IDENTITY,
        Sorting("group_sort"),
        Sorting("min_max"),
    )
}
PARAMETRISED: dict[str, type[LeakyReLU | ELU | Clip | Sorting | MaxPool]] = {
    "leaky_relu": LeakyReLU,
    "elu": ELU,
    "clip": Clip,
    "group_sort": Sorting,
    "max_pool": MaxPool,
}

_SPELLINGS = {kind.replace("_", ""): kind for kind in (*ACTIVATIONS, *PARAMETRISED)}


def activation(name: str) -> Activation:
    """The activation of that name. An unknown one is an error: there is no Lipschitz constant by default.

    Names are as others write them, too: ReLU, LeakyReLU:0.01, HardTanh.
    """
    kind, colon, parameters = str(name).partition(":")
    kind = _SPELLINGS.get(kind.replace("_", "").lower(), kind)
    name = f"{kind}{colon}{parameters}"
    if name in ACTIVATIONS:
        return ACTIVATIONS[name]
    if kind in PARAMETRISED and colon:
        return PARAMETRISED[kind].named(name, parameters)
    if kind in PARAMETRISED:
        raise InputError(f"the constant of the activation {name!r} depends on {PARAMETRISED[kind].depends_on}")
    known = ", ".join((*ACTIVATIONS, *(f"{kind}:VALUE" for kind in PARAMETRISED)))
    raise InputError(f"no Lipschitz constant is known for the activation {name!r}: use {known}")


_BY_CHANNELS = ("halves", "neighbours")


def activation_of(name: str, shape: tuple[int, ...]) -> Activation:
    """The activation of that name for numbers of that shape, channels first; also of names that group the channels:

        min_max:halves              channel c of the first half with c of the second: the smaller ones come first
        min_max:neighbours          channels 2c and 2c + 1: the smaller one becomes 2c
        group_sort:SIZE:neighbours  channels c·SIZE to c·SIZE + SIZE - 1, in ascending order

    each with :descending for the other order. At each place of an image its own numbers are compared.
    Raises: InputError if the channels are no such groups.
    """
    kind, *parts = name.split(":")
    kind = _SPELLINGS.get(kind.replace("_", "").lower(), kind)
    order = ":descending" if parts[-1:] == ["descending"] else ""
    groups = parts[:-1] if order else parts
    if not groups or groups[-1] not in _BY_CHANNELS:
        return activation(name)
    channels, inner = shape[0], prod(shape[1:])
    match kind, groups:
        case "min_max", ["halves"]:
            size, inner = 2, inner * (channels // 2)
        case "min_max", ["neighbours"]:
            size = 2
        case "group_sort", [text, "neighbours"]:
            size = _natural(text, name)
        case _:
            return activation(name)
    if channels % size:
        sides = "x".join(map(str, shape))
        raise InputError(f"{name!r} of the shape {sides}, whose {channels} channels are no groups of {size}")
    return activation(f"group_sort:{size}:{inner}{order}")


def _parameter(text: str, name: str) -> Fraction:
    value = parse_rational(text)
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise InputError(
            f"the activation {shortened(name)!r} has a parameter of more than {MAX_BITS} bits, which no float has"
        )
    return value


def _natural(text: str, name: str) -> int:
    """A number of numbers in a name."""
    if not (text.isascii() and text.isdecimal() and len(text) <= 9 and int(text)):
        what = f"counts in whole numbers from 1 on, not {shortened(text)!r}"
        raise InputError(f"the activation {shortened(name)!r} {what}")
    return int(text)


def _naturals(text: str, name: str) -> list[int]:
    """Those of 2x3, say; of which 0 may be one."""
    return [0 if part == "0" else _natural(part, name) for part in text.split("x")]


# -- what they share -------------------------------------------------------------------------------------------------


def _multiple(x: Matrix[Any], factor: Fraction, backend: Backend[Any]) -> Matrix[Any]:
    return x if factor == 1 else x.scalar_mul(backend.scalar(factor))


def _filled(like: Matrix[Any], value: Fraction, backend: Backend[Any]) -> Matrix[Any]:
    """A matrix of that shape with one number in all places."""
    return backend.matrix(RationalMatrix.filled(like.shape, value))


def _sigmoid_of(x: Floats) -> Floats:
    """Of any float, without overflow."""
    found: Floats = 0.5 + 0.5 * np.tanh(0.5 * x)
    return found


def _rounded(value: Fraction, form: FloatFormat, what: str) -> Fraction:
    return form.rounded(RationalMatrix.from_fractions([[value]]), what)[0, 0]
