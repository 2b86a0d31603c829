"""What may stand between two layers: one type for each function, which holds all that anybody asks of it.

A type says, or says that it has none:

    lipschitz, slopes         what the norms and the chain of ellipsoids use
    piecewise_linear          its hinges, from which `proof.sectors` finds how far it bends near a known point
    enclosure                 its value on any number system (`evaluation`)
    float_values, float_slopes    the same in plain floats, for those who guess
    in_format, float_error, size_upper    what becomes of it in the floats of a program (`verify.deployed`)

A new activation is a class here, and a line in `ACTIVATIONS` or `PARAMETRISED`. An unknown function is refused, never
guessed. Names are parsed here and nowhere else.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np

from intervalcert.backends.protocol import Backend, Floats, Matrix
from intervalcert.errors import InputError, shortened
from intervalcert.numbers.float_formats import FloatFormat
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.parsing import parse_rational
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
    "PiecewiseLinear",
    "ReLU",
    "Sigmoid",
    "Softplus",
    "Sorting",
    "Tanh",
    "activation",
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
    def float_slopes(self, x: Floats) -> Floats:
        """Near f' of each entry, at a kink that of the piece before: nothing is proved. Requires: it is evaluable."""

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


class Componentwise(Activation):
    """One function R -> R, applied to every entry."""

    @property
    @abstractmethod
    def slopes(self) -> tuple[Fraction, Fraction]: ...

    @property
    def lipschitz(self) -> Fraction:
        return max(map(abs, self.slopes))


# -- piecewise linear ------------------------------------------------------------------------------------------------

_Hinges = tuple[tuple[Fraction, Fraction], ...]


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
        parts: list[Matrix[Any]] = []
        if self.slope:
            parts.append(_multiple(x, self.slope, backend))
        for weight, kink in self.hinges:
            moved = x if not kink else x - _filled(x, kink, backend)
            parts.append(_multiple(moved.positive_part(), weight, backend))
        if self.offset or not parts:
            parts.append(_filled(x, self.offset, backend))
        total = parts[0]
        for part in parts[1:]:
            total = total + part
        return total

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


class Sorting(Activation):
    """Sorts within groups of components, which moves no two vectors apart. Which groups these are is not known here."""

    @property
    def lipschitz(self) -> Fraction:
        return _ONE

    @property
    def not_evaluable(self) -> str:
        return (
            f"the activation {self.name!r} cannot be evaluated at an input (its groups are not known): certify given "
            "logits instead"
        )

    def enclosure(self, x: Matrix[Any], backend: Backend[Any]) -> Matrix[Any]:  # noqa: ARG002
        raise InputError(self.not_evaluable)

    def float_values(self, x: Floats) -> Floats:  # noqa: ARG002
        raise InputError(self.not_evaluable)

    def float_slopes(self, x: Floats) -> Floats:  # noqa: ARG002
        raise InputError(self.not_evaluable)


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
PARAMETRISED: dict[str, type[LeakyReLU | ELU | Clip]] = {"leaky_relu": LeakyReLU, "elu": ELU, "clip": Clip}

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


def _parameter(text: str, name: str) -> Fraction:
    value = parse_rational(text)
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        raise InputError(
            f"the activation {shortened(name)!r} has a parameter of more than {MAX_BITS} bits, which no float has"
        )
    return value


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
