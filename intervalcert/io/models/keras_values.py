"""Values in the configuration of a Keras model: what they must be, and which numbers Keras makes of them.

Constants (slopes, scales, epsilon) are decimals there. Keras rounds them to the type of the layer, float32 as a rule,
and so does this reader. In float16 and float64 layers the backends of Keras round some constants in different ways;
such are read only if all ways lead to one number.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from intervalcert.errors import InputError, shortened

__all__ = [
    "DTYPES",
    "Array",
    "array",
    "flag",
    "mapping",
    "number",
    "numbers",
    "parameter",
    "rounded",
    "sequence",
    "shown",
    "whole",
]

Array = npt.NDArray[Any]

DTYPES = {name: np.dtype(name) for name in ("float16", "float32", "float64")}

MAX_NESTED = 8
"""Of lists of numbers."""


def shown(value: object) -> str:
    """For messages: one short line, whatever it is."""
    return shortened(repr(value), 80)


def mapping(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError(f"{what} is {shown(value)}, where an object is expected")
    return value


def sequence(value: object, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise InputError(f"{what} is {shown(value)}, where a list is expected")
    return value


def whole(value: object, what: str) -> int:
    if type(value) is not int:
        raise InputError(f"{what} is {shown(value)}, where a whole number is expected")
    return value


def flag(value: object, what: str) -> bool:
    if not isinstance(value, bool):
        raise InputError(f"{what} is {shown(value)}, where true or false is expected")
    return value


def number(value: object, what: str) -> float:
    """A finite decimal, as the double that JSON makes of it."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{what} is {shown(value)}, where a number is expected")
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found) or found != value:
        raise InputError(f"{what} is {shown(value)}, a number too large to be read")
    return found


def numbers(value: object, what: str) -> Array:
    """A number or nested lists of them, as doubles."""
    shape: list[int] = []
    level: list[Any] = [value]
    while any(isinstance(item, list) for item in level):
        if len(shape) == MAX_NESTED or len({len(x) if isinstance(x, list) else -1 for x in level}) > 1 or not level[0]:
            raise InputError(f"{what} is {shown(value)}, where a number, or lists of the same lengths are expected")
        shape.append(len(level[0]))
        level = [item for part in level for item in part]
    return np.array([number(item, what) for item in level]).reshape(shape)


def array(value: object, what: str) -> Array:
    """The same, or a numpy array as Keras writes it, whose numbers were rounded to its type before."""
    match value:
        case {"class_name": "__numpy__", "config": {"value": inner, "dtype": str(name)}} if name in DTYPES:
            with np.errstate(over="ignore", under="ignore"):
                made = numbers(inner, what).astype(DTYPES[name]).astype(np.float64)
            if not np.isfinite(made).all():
                raise InputError(f"{what} is too large for {name}")
            return made
    return numbers(value, what)


def rounded(values: Array, dtype: np.dtype[Any], what: str) -> Array:
    """Numbers that become a tensor of that type: at once, or (TensorFlow; Normalization) by way of float32."""
    with np.errstate(over="ignore", under="ignore"):
        found: Array = values.astype(dtype)
        other = values.astype(np.float32).astype(dtype)
    return _agreed(found, other, what, dtype)


def parameter(value: object, dtype: np.dtype[Any], what: str) -> Fraction:
    """A number that a function takes beside its tensor: in float32 (TensorFlow, say), or in the layer's type (JAX)."""
    given = np.array(number(value, what))
    with np.errstate(over="ignore", under="ignore"):
        found, other = given.astype(dtype), given.astype(np.float32)
    return Fraction(float(_agreed(found, other.astype(np.float64), what, dtype)))


def _agreed(found: Array, other: Array, what: str, dtype: np.dtype[Any]) -> Array:
    if not np.isfinite(found).all():
        raise InputError(f"{what} is too large for {dtype}")
    if not np.array_equal(found, other):
        raise InputError(
            f"{what} is rounded in different ways by the backends of Keras in a layer of {dtype}: use float32, "
            "or a number that both types hold"
        )
    return found
