"""A chain of matrices W·x + b with activations between them: all numbers are integers over a denominator.

Its exact values at an input, the slopes of its activations, and a hash of its numbers, whatever file they came from.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm
from typing import NamedTuple

__all__ = ["Activation", "Hinge", "Layer", "Malformed", "Model", "Rows", "activation", "values_at"]

Rows = Sequence[Sequence[int]]

MAX_DIGITS, MAX_EXPONENT = 1000, 1000
"""Of a parameter of an activation."""

_DECIMAL = re.compile(r"-?(\d+/\d+|(\d+\.?\d*|\.\d+)(e(?P<power>[+-]?\d{1,4}))?)", re.ASCII)
_SORTING = re.compile(r"min_max(:halves|:neighbours)?|group_sort(:\d{1,9}:\d{1,9}(:descending)?)?", re.ASCII)


class Malformed(Exception):  # noqa: N818 - what it says of a file
    """A file that cannot be understood: nothing is said about what it claims."""


class Hinge(NamedTuple):
    """A term weight·max(z - kink, 0) of a piecewise linear function."""

    weight: Fraction
    kink: Fraction


@dataclass(frozen=True)
class Activation:
    """f with f(u) - f(v) = θ·(u - v), low <= θ <= high, entry by entry; without slopes, ||f(u) - f(v)|| <= ||u - v||.

    slope, offset, hinges: f(z) = slope·z + offset + Σ weight·max(z - kink, 0), if hinges is not None.
    """

    kind: str
    parameters: tuple[Fraction, ...] = ()
    slopes: tuple[Fraction, Fraction] | None = None
    slope: Fraction = Fraction(0)
    offset: Fraction = Fraction(0)
    hinges: tuple[Hinge, ...] | None = None

    @property
    def lipschitz(self) -> Fraction:
        return Fraction(1) if self.slopes is None else max(abs(self.slopes[0]), abs(self.slopes[1]))

    @property
    def name(self) -> str:
        """The same for the same function, however it was written."""
        return ":".join([self.kind, *map(str, self.parameters)])

    def at(self, z: Fraction) -> Fraction:
        """Requires: hinges."""
        return self.slope * z + self.offset + sum(w * max(z - k, Fraction(0)) for w, k in self.hinges or ())


_ZERO, _ONE = Fraction(0), Fraction(1)


def _clip(kind: str, parameters: tuple[Fraction, ...], low: Fraction, high: Fraction | None) -> Activation:
    """min(max(z, low), high)."""
    hinges = (Hinge(_ONE, low), *(() if high is None else (Hinge(-_ONE, high),)))
    return Activation(kind, parameters, (_ZERO, _ONE), _ZERO, low, hinges)


def activation(name: str) -> Activation:
    """By its name, such as ``relu`` or ``leaky_relu:0.01``. Raises: Malformed for one that is not known here."""
    kind, *words = name.split(":")
    if kind in ("relu", "hard_tanh", "identity", "tanh", "sigmoid", "softplus") and not words:
        if kind == "relu":
            return _clip(kind, (), _ZERO, None)
        if kind == "hard_tanh":
            return _clip(kind, (), -_ONE, _ONE)
        if kind == "identity":
            return Activation(kind, (), (_ONE, _ONE), _ONE, _ZERO, ())
        return Activation(kind, (), (_ZERO, Fraction(1, 4) if kind == "sigmoid" else _ONE))
    if _SORTING.fullmatch(name):  # each sorts groups of its arguments, whichever: no distance grows
        return Activation(name)
    if kind == "clip" and len(words) == 2 and words[1] == "inf":
        low = _number(words[0])
        return _clip(kind, (low,), low, None)
    if kind == "clip" and len(words) == 2:
        low, high = map(_number, words)
        if low < high:
            return _clip(kind, (low, high), low, high)
    if kind in ("leaky_relu", "elu") and len(words) == 1:
        slope = _number(words[0])
        ends = min(slope, _ONE), max(slope, _ONE)
        if kind == "leaky_relu":
            return Activation(kind, (slope,), ends, slope, _ZERO, (Hinge(1 - slope, _ZERO),))
        if slope >= 0:
            return Activation(kind, (slope,), (_ZERO, ends[1]))
    raise Malformed(f"the activation {name[:60]!r} is not understood")


def _number(word: str) -> Fraction:
    """A decimal or a fraction. Raises: Malformed."""
    match = _DECIMAL.fullmatch(word) if len(word) <= MAX_DIGITS else None
    if match is None or abs(int(match["power"] or 0)) > MAX_EXPONENT:
        raise Malformed(f"the parameter {word[:60]!r} is no number, or beyond all sizes that are read")
    try:
        return Fraction(word)
    except (ValueError, ZeroDivisionError):
        raise Malformed(f"the parameter {word[:60]!r} is no number") from None


@dataclass(frozen=True)
class Layer:
    """activation(W·x + b) with W = rows/unit, outputs x inputs, and b = bias/bias_unit; no activation for the last one.

    Invariants: rows of one length, at least one of each; units are positive; one entry of the bias for each row.
    """

    rows: Rows
    unit: int
    bias: Sequence[int]
    bias_unit: int
    activation: Activation | None

    def __post_init__(self) -> None:
        """Raises: Malformed unless that is so."""
        if not self.rows or not self.rows[0] or any(len(row) != len(self.rows[0]) for row in self.rows):
            raise Malformed("a layer is a matrix, with rows of one length")
        if len(self.bias) != len(self.rows) or self.unit < 1 or self.bias_unit < 1:
            raise Malformed("a layer has one bias for each output, and positive denominators")

    @property
    def inputs(self) -> int:
        return len(self.rows[0])

    @property
    def outputs(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class Model:
    """Layers that fit each other; at least two outputs."""

    layers: tuple[Layer, ...]

    def __post_init__(self) -> None:
        """Raises: Malformed unless that is so."""
        if not self.layers or self.outputs < 2:
            raise Malformed("a model has a layer, and at least two outputs")
        for index, layer in enumerate(self.layers):
            if (layer.activation is None) != (index == len(self.layers) - 1):
                raise Malformed("every layer but the last has an activation, the last has none")
            if index and layer.inputs != self.layers[index - 1].outputs:
                raise Malformed(f"layer {index} takes {layer.inputs} numbers, the one before it gives another count")

    @property
    def inputs(self) -> int:
        return self.layers[0].inputs

    @property
    def outputs(self) -> int:
        return self.layers[-1].outputs

    def completed(self, output: Sequence[Fraction]) -> Sequence[Fraction]:
        """An output of the model: of one with a single number, with the threshold, a constant, before it."""
        last = self.layers[-1]
        if len(output) == 1 and self.outputs == 2 and not any(last.rows[0]):
            return [Fraction(last.bias[0], last.bias_unit), *output]
        return output

    @property
    def sha256(self) -> str:
        """Of its numbers in lowest terms, and the names of its activations."""
        digest = hashlib.sha256(b"intervalcert model 1\n")
        for layer in self.layers:
            for what, rows, unit in (("W", layer.rows, layer.unit), ("b", [layer.bias], layer.bias_unit)):
                common = gcd(unit, *(entry for row in rows for entry in row))
                digest.update(f"{what} {len(rows)} {len(rows[0])} {unit // common:x}\n".encode())
                for row in rows:
                    digest.update((" ".join(f"{entry // common:x}" for entry in row) + "\n").encode())
            digest.update(f"{'' if layer.activation is None else layer.activation.name}\n".encode())
        return digest.hexdigest()


def values_at(model: Model, x: Sequence[Fraction]) -> list[list[Fraction]]:
    """Exactly W·h + b of each layer at the input x; the last ones are the logits.

    Raises: Malformed for an input of another length, or activations without rational values.
    """
    if len(x) != model.inputs:
        raise Malformed(f"an input has {len(x)} numbers, the model takes {model.inputs}")
    found: list[list[Fraction]] = []
    given = list(x)
    for layer in model.layers:
        common = lcm(*(entry.denominator for entry in given))
        column = [entry.numerator * (common // entry.denominator) for entry in given]
        over = layer.unit * common
        inner = [
            Fraction(sum(map(int.__mul__, row, column)), over) + Fraction(b, layer.bias_unit)
            for row, b in zip(layer.rows, layer.bias, strict=True)
        ]
        found.append(inner)
        if layer.activation is not None:
            if layer.activation.hinges is None:
                raise Malformed(f"{layer.activation.name} has no rational values: nothing is decided from inputs")
            given = [layer.activation.at(z) for z in inner]
    return found
