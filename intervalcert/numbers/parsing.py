"""Numbers as they come in: text, Python and numpy numbers, lists; each read at its exact value, within limits.

A float is its binary value, a decimal is what it says; ``1e999999999`` cannot eat the machine.
"""

from __future__ import annotations

import math
import numbers
import re
from array import array
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from intervalcert.errors import InputError, shortened
from intervalcert.numbers.rounding import dyadic_value

__all__ = [
    "MAX_BINARY_EXPONENT",
    "MAX_DIGITS",
    "MAX_EXPONENT",
    "as_fraction",
    "as_row",
    "as_rows",
    "is_flat",
    "is_listed",
    "parse_decimal",
    "parse_rational",
    "plain_array",
]


MAX_DIGITS = 1_500
"""Digits of one number in a file. The exact decimal of any float64 needs at most 309 before the point, 1,074 after."""


MAX_EXPONENT = 1_000
"""Largest decimal exponent in a file, either sign. float64 needs 324."""


MAX_BINARY_EXPONENT = 20_000
"""Largest binary exponent of an ``m*2^e`` in a bounds file. Layers that scale by 2^±60 each, which no float32 network
does for long, make a hundred of them 2^±6000, and squares 2^±12000; six layers of 10^±1000, 2^±19932."""


_DECIMAL = re.compile(r"([+-]?)(\d*)(?:\.(\d*))?(?:[eE]([+-]?\d+))?", re.ASCII)


_DYADIC = re.compile(r"(-?\d+)\*2\^(-?\d+)", re.ASCII)


@lru_cache(maxsize=2**16)  # weights and logits of few digits repeat; so do zeros in a hostile file
def parse_decimal(text: str) -> tuple[int, int]:
    """Reads a decimal as ``(mantissa, exponent)``, worth exactly mantissa·10^exponent.

    Raises:
        InputError: not a decimal (``nan`` and ``inf`` are not), too many digits, or too large an exponent.
    """
    if len(text) > 10**5:
        raise InputError(f"a number of {len(text)} characters")
    match = _DECIMAL.fullmatch(text.strip())
    if match is None or not (match[2] or match[3]):
        shown = text.strip()
        if shown.lower().lstrip("+-") in {"nan", "inf", "infinity"}:
            raise InputError(f"{shown!r} is not a finite number")
        raise InputError(f"{shortened(shown)!r} is not a decimal number")
    sign, whole, part, exponent = match[1], match[2], match[3] or "", match[4]
    if len(whole) + len(part) > MAX_DIGITS:
        raise InputError(f"a number of {len(whole) + len(part)} digits (at most {MAX_DIGITS} are read)")
    shift = 0
    if exponent is not None:
        digits = exponent.lstrip("+-").lstrip("0") or "0"
        if len(digits) > 6 or int(digits) > MAX_EXPONENT:
            raise InputError(f"the exponent of {shortened(text.strip())!r} is beyond ±{MAX_EXPONENT}")
        shift = -int(digits) if exponent[0] == "-" else int(digits)
    mantissa = int(whole + part)
    return (-mantissa if sign == "-" else mantissa), shift - len(part)


def parse_rational(text: str) -> Fraction:
    """Reads ``0.3``, ``1e-5``, ``36/255`` or ``m*2^e`` as the exact rational that it denotes."""
    stripped = text.strip()
    dyadic = _DYADIC.fullmatch(stripped) if len(stripped) <= MAX_DIGITS else None
    if dyadic is not None:
        if len(dyadic[2]) > 9 or abs(int(dyadic[2])) > MAX_BINARY_EXPONENT:
            raise InputError(f"the exponent of {shortened(stripped)!r} is beyond ±{MAX_BINARY_EXPONENT}")
        return dyadic_value(int(dyadic[1]), int(dyadic[2]))
    top, slash, bottom = stripped.partition("/")
    value = _decimal_fraction(top)
    if not slash:
        return value
    divisor = _decimal_fraction(bottom)
    if divisor == 0:
        raise InputError(f"{shortened(stripped)!r} divides by zero")
    return value / divisor


def as_fraction(value: object) -> Fraction:
    """The exact rational of a string, an int, a Fraction, or a (numpy) float: a float is its binary value."""
    if isinstance(value, str):
        return parse_rational(value)
    if isinstance(value, bool | np.bool_):
        raise InputError(f"{value!r} is a truth value, not a number")
    if isinstance(value, numbers.Rational):
        return Fraction(int(value.numerator), int(value.denominator))
    if isinstance(value, np.floating):
        # An 80-bit float does not fit into Python's: as_integer_ratio is exact for every numpy float.
        if not np.isfinite(value):
            raise InputError(f"{value} is not a finite number")
        return Fraction(*value.as_integer_ratio())
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InputError(f"{value} is not a finite number")
        return Fraction(value)
    raise InputError(f"{shortened(repr(value))!r} of type {type(value).__name__} is not a real number")


def plain_array(values: object) -> npt.NDArray[Any] | None:
    """The array that `values` already is; None for lists and arrays of Python objects, which `as_rows` reads.

    A tensor of PyTorch is one, too: its numbers alone are taken, not how they depend on others (`detach`).
    """
    if isinstance(values, np.ma.MaskedArray):
        raise InputError("a masked array: fill in or take out what is masked first")
    if not hasattr(values, "__array__"):
        return None
    try:
        found = np.asarray(values.detach() if hasattr(values, "detach") else values)
    except (TypeError, RuntimeError, ValueError) as error:  # it is on another device, or of a kind that numpy has not
        raise InputError(
            f"a {type(values).__name__} that gives no array: {error} (numbers are read in main memory, as float16, "
            "float32, float64 or integers: a tensor of bfloat16 is exactly its .float(), and .cpu() brings it here)"
        ) from None
    return None if found.dtype.kind == "O" else found


def is_listed(values: object) -> bool:
    """Whether this is a list of things, each to be read by itself.

    Text is not, nor is anything that lends out bytes: its items would be the codes of characters, or parts of numbers.
    (numpy's arrays know what their bytes mean; those of the module `array` are easily made such.)
    """
    if isinstance(values, np.ndarray):
        return values.ndim > 0
    return isinstance(values, Sequence) and not isinstance(values, str | bytes | bytearray | memoryview | array)


def as_rows(values: object, what: str) -> list[list[Fraction]]:
    """A list of rows of numbers, all equally long, each number read by itself.

    numpy must not see such a list first: of ``[2**53 + 1, 0.5]`` it makes floats, and of ``["0.1", 0.1]`` texts.
    """
    rows = [as_row(row, f"{what}, row {index}") for index, row in enumerate(_listed(values, what))]
    for index, row in enumerate(rows):
        if len(row) != len(rows[0]):
            raise InputError(f"{what}: row {index} has {len(row)} numbers, row 0 has {len(rows[0])}")
    return rows


def as_row(values: object, what: str) -> list[Fraction]:
    """A list of numbers, each read by itself."""
    row = []
    for index, value in enumerate(_listed(values, what)):
        if is_listed(value):
            raise InputError(f"{what}, entry {index}: a list where a number is expected (only arrays have more sides)")
        try:
            row.append(as_fraction(value))
        except InputError as error:
            raise InputError(f"{what}, entry {index}: {error}") from None
    return row


def is_flat(values: object, what: str) -> bool:
    """Whether a list holds numbers rather than rows."""
    return not any(map(is_listed, _listed(values, what)))


def _listed(values: Any, what: str) -> list[Any]:
    if not is_listed(values) or not len(values):
        kind = type(values).__name__
        raise InputError(f"{what}: {kind} {shortened(repr(values))!r} found where a non-empty list is expected")
    return list(values)


def _decimal_fraction(text: str) -> Fraction:
    mantissa, exponent = parse_decimal(text)
    return Fraction(mantissa * 10**exponent) if exponent >= 0 else Fraction(mantissa, 10**-exponent)
