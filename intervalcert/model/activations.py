"""What may stand between two layers, and what the proofs use of it. An unknown function is refused, never guessed."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from intervalcert.errors import InputError
from intervalcert.numbers.parsing import parse_rational

__all__ = ["ACTIVATIONS", "PARAMETRISED", "Activation", "PiecewiseLinear", "Smooth", "activation"]

MAX_BITS = 8_400
"""Of either part of a parameter, as a fraction. A float64 has at most 1,075, a decimal that is read (of 1,500 digits,
with an exponent of 1,000) fewer than that: larger ones would only make every product of bounds as long."""


@dataclass(frozen=True)
class PiecewiseLinear:
    """A piecewise linear function: offset + slope·x + the sum of weight·max(x - kink, 0) over its (weight, kink)."""

    offset: Fraction
    slope: Fraction
    hinges: tuple[tuple[Fraction, Fraction], ...]


@dataclass(frozen=True)
class Smooth:
    """tanh; sigmoid, the logistic function; softplus, ln(1 + exp(x)); elu, max(x, 0) + alpha·(exp(min(x, 0)) - 1)."""

    kind: Literal["tanh", "sigmoid", "softplus", "elu"]
    alpha: Fraction = Fraction(1)


@dataclass(frozen=True)
class Activation:
    """A function R^k -> R^k with ||f(u) - f(v)|| <= lipschitz·||u - v|| for all u, v.

    `name` says all that the rest depends on: ``relu``, or with a parameter ``leaky_relu:0.01``.
    slopes: if it acts component by component, the ends of an interval that holds all its difference quotients.
    piecewise_linear: if besides each component is piecewise linear, which one.
    smooth: if each component is built from exp, how.
    """

    name: str
    lipschitz: Fraction
    slopes: tuple[Fraction, Fraction] | None = None
    piecewise_linear: PiecewiseLinear | None = None
    smooth: Smooth | None = None

    def __repr__(self) -> str:
        return f"<Activation {self.name[:60]}>"


def _sector(
    name: str,
    low: Fraction,
    high: Fraction,
    piecewise_linear: PiecewiseLinear | None = None,
    smooth: Smooth | None = None,
) -> Activation:
    return Activation(name, max(abs(low), abs(high)), (low, high), piecewise_linear, smooth)


_ZERO, _ONE = Fraction(0), Fraction(1)

ACTIVATIONS = {
    made.name: made
    for made in (
        _sector("relu", _ZERO, _ONE, PiecewiseLinear(_ZERO, _ZERO, ((_ONE, _ZERO),))),
        _sector("tanh", _ZERO, _ONE, smooth=Smooth("tanh")),
        _sector("hard_tanh", _ZERO, _ONE, PiecewiseLinear(-_ONE, _ZERO, ((_ONE, -_ONE), (-_ONE, _ONE)))),
        _sector("sigmoid", _ZERO, Fraction(1, 4), smooth=Smooth("sigmoid")),  # s' = s·(1 - s) <= 1/4
        _sector("softplus", _ZERO, _ONE, smooth=Smooth("softplus")),  # its slope is the sigmoid
        _sector("identity", _ONE, _ONE, PiecewiseLinear(_ZERO, _ONE, ())),
        # Sorting within groups moves no two vectors apart:
        Activation("group_sort", _ONE),
        Activation("min_max", _ONE),
    )
}
PARAMETRISED = {
    "leaky_relu": "the slope below zero: leaky_relu:0.01",
    "elu": "its alpha: elu:1",
    "clip": "its ends, of which one may be infinite: clip:0:6, clip:-inf:1",
}


_SPELLINGS = {kind.replace("_", ""): kind for kind in (*ACTIVATIONS, *PARAMETRISED)}


def activation(name: str) -> Activation:
    """The activation of that name. An unknown one is an error: there is no Lipschitz constant by default.

    Names are as others write them, too: ReLU, LeakyReLU:0.01, HardTanh.
    """
    kind, colon, parameter = str(name).partition(":")
    kind = _SPELLINGS.get(kind.replace("_", "").lower(), kind)
    name = f"{kind}{colon}{parameter}"
    if name in ACTIVATIONS:
        return ACTIVATIONS[name]
    if kind == "clip" and colon:
        return _clip(name, *parameter.partition(":")[::2])
    if kind in PARAMETRISED and colon:
        value = _parameter(parameter, name)
        if kind == "leaky_relu":
            leaky = PiecewiseLinear(_ZERO, value, ((_ONE - value, _ZERO),))
            return _sector(name, min(_ONE, value), max(_ONE, value), leaky)
        if value < 0:
            raise InputError(f"the activation {name!r}: alpha must not be negative")
        # The slope is 1 above zero, and alpha·exp(x) <= alpha below.
        return _sector(name, _ZERO, max(_ONE, value), smooth=Smooth("elu", value))
    if kind in PARAMETRISED:
        raise InputError(f"the constant of the activation {name!r} depends on {PARAMETRISED[kind]}")
    known = ", ".join((*ACTIVATIONS, *(f"{kind}:VALUE" for kind in PARAMETRISED)))
    raise InputError(f"no Lipschitz constant is known for the activation {name!r}: use {known}")


def _parameter(text: str, name: str) -> Fraction:
    value = parse_rational(text)
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        shown = name if len(name) <= 40 else name[:30] + "…"
        raise InputError(f"the activation {shown!r} has a parameter of more than {MAX_BITS} bits, which no float has")
    return value


def _clip(name: str, low: str, high: str) -> Activation:
    """min(max(x, low), high)."""
    least = None if low == "-inf" else _parameter(low, name)
    most = None if high == "inf" else _parameter(high, name)
    if least is not None and most is not None and least > most:
        raise InputError(f"the activation {name!r}: its lower end must not be above the upper one")
    kinks = [] if least is None else [(_ONE, least)]
    kinks += [] if most is None else [(-_ONE, most)]
    # Above the lower end the slope is 1: without a lower end, everywhere below the upper one.
    start = (_ZERO, _ONE) if least is None else (least, _ZERO)
    return _sector(name, _ONE if not kinks else _ZERO, _ONE, PiecewiseLinear(*start, tuple(kinks)))
