"""Exact numbers: how they are read, held, rounded in a stated direction, and written.

Everything that enters the program (weights, logits, radii, bounds) is an exact rational from here on: a float is
its binary value, a decimal is what it says. Nothing in this module approximates without saying in its name which way.

* parsing:   `parse_rational`, `parse_decimal`, `as_fraction` — bounded, so that ``1e999999999`` cannot eat the machine
* holding:   `RationalMatrix`, integers over one common denominator
* rounding:  `round_up`, `round_down` to p-bit dyadics, `sqrt_upper`, `sqrt_lower` for roots; `float_below`;
             `decimal_upper`, `decimal_lower` for people
* writing:   `format_exact`, read back by `parse_rational`
"""

from __future__ import annotations

import math
import numbers
import re
import sys
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, Context, Decimal, InvalidOperation, Overflow
from fractions import Fraction
from functools import lru_cache, reduce
from operator import or_
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from intervalcert.errors import InputError, UndecidedError

__all__ = [
    "MAX_BINARY_EXPONENT",
    "MAX_DIGITS",
    "MAX_EXPONENT",
    "IntegerArray",
    "NearFloats",
    "RationalMatrix",
    "RationalVector",
    "as_fraction",
    "as_row",
    "as_rows",
    "decimal_lower",
    "decimal_upper",
    "dyadic_value",
    "exact_integers",
    "float_at_least",
    "float_below",
    "float_enclosure",
    "float_near",
    "format_exact",
    "is_flat",
    "is_listed",
    "parse_decimal",
    "parse_rational",
    "plain_array",
    "root_upper",
    "round_down",
    "round_up",
    "shortest_exact",
    "sqrt_lower",
    "sqrt_upper",
]

IntegerArray = npt.NDArray[np.object_]
"""An object array whose entries are Python ints: numpy's shape and slicing, unlimited size."""

MAX_DIGITS = 1_500
"""Digits of one number in a file. The exact decimal of any float64 needs at most 309 before the point, 1,074 after."""

MAX_EXPONENT = 1_000
"""Largest decimal exponent in a file, either sign. float64 needs 324."""

MAX_BINARY_EXPONENT = 20_000
"""Largest binary exponent of an ``m*2^e`` in a bounds file. Layers that scale by 2^±60 each, which no float32 network
does for long, make a hundred of them 2^±6000, and squares 2^±12000; six layers of 10^±1000, 2^±19932."""

MAX_MATRIX_BITS = 2**32
"""What the numerators of one matrix of decimals may take: half a gigabyte."""

_DECIMAL = re.compile(r"([+-]?)(\d*)(?:\.(\d*))?(?:[eE]([+-]?\d+))?", re.ASCII)
_DYADIC = re.compile(r"(-?\d+)\*2\^(-?\d+)", re.ASCII)


# -- parsing ---------------------------------------------------------------------------------------------------------


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
        raise InputError(f"{_shorten(shown)} is not a decimal number")
    sign, whole, part, exponent = match[1], match[2], match[3] or "", match[4]
    if len(whole) + len(part) > MAX_DIGITS:
        raise InputError(f"a number of {len(whole) + len(part)} digits (at most {MAX_DIGITS} are read)")
    shift = 0
    if exponent is not None:
        digits = exponent.lstrip("+-").lstrip("0") or "0"
        if len(digits) > 6 or int(digits) > MAX_EXPONENT:
            raise InputError(f"the exponent of {_shorten(text.strip())} is beyond ±{MAX_EXPONENT}")
        shift = -int(digits) if exponent[0] == "-" else int(digits)
    mantissa = int(whole + part)
    return (-mantissa if sign == "-" else mantissa), shift - len(part)


def parse_rational(text: str) -> Fraction:
    """Reads ``0.3``, ``1e-5``, ``36/255`` or ``m*2^e`` as the exact rational that it denotes."""
    stripped = text.strip()
    dyadic = _DYADIC.fullmatch(stripped) if len(stripped) <= MAX_DIGITS else None
    if dyadic is not None:
        if len(dyadic[2]) > 9 or abs(int(dyadic[2])) > MAX_BINARY_EXPONENT:
            raise InputError(f"the exponent of {_shorten(stripped)} is beyond ±{MAX_BINARY_EXPONENT}")
        return dyadic_value(int(dyadic[1]), int(dyadic[2]))
    top, slash, bottom = stripped.partition("/")
    value = _decimal_fraction(top)
    if not slash:
        return value
    divisor = _decimal_fraction(bottom)
    if divisor == 0:
        raise InputError(f"{_shorten(stripped)} divides by zero")
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
    raise InputError(f"{_shorten(repr(value))} of type {type(value).__name__} is not a real number")


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
        raise InputError(f"{what}: {kind} {_shorten(repr(values))} found where a non-empty list is expected")
    return list(values)


def _decimal_fraction(text: str) -> Fraction:
    mantissa, exponent = parse_decimal(text)
    return Fraction(mantissa * 10**exponent) if exponent >= 0 else Fraction(mantissa, 10**-exponent)


def dyadic_value(mantissa: int, exponent: int) -> Fraction:
    """mantissa·2^exponent."""
    return Fraction(mantissa << exponent) if exponent >= 0 else Fraction(mantissa, 1 << -exponent)


def _shorten(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:30] + "…")


# -- directed rounding -----------------------------------------------------------------------------------------------


def round_up(x: Fraction, bits: int) -> Fraction:
    """The least dyadic with a `bits`-bit mantissa that is >= x.

    Guarantees: x <= result <= x·(1 + 2^(1-bits)) for x >= 0; monotone in x, because the set of `bits`-bit dyadics does
    not depend on x.
    """
    return x if _fits(x, bits) else -round_down(-x, bits)


def round_down(x: Fraction, bits: int) -> Fraction:
    """The greatest dyadic with a `bits`-bit mantissa that is <= x; monotone in x."""
    if _fits(x, bits):
        return x
    # bit lengths bracket log2|x| within 1, so the quotient below has `bits` or bits + 1 bits; cut the superfluous one.
    shift = bits - (x.numerator.bit_length() - x.denominator.bit_length())
    top, bottom = x.numerator, x.denominator
    mantissa = (top << shift) // bottom if shift >= 0 else top // (bottom << -shift)
    excess = mantissa.bit_length() - bits
    # Floor of a floor is the floor. A carry to 2^bits (negative x) leaves a power of two, which has a 1-bit mantissa.
    return dyadic_value(mantissa >> excess, excess - shift)


def _fits(x: Fraction, bits: int) -> bool:
    """Whether x is a dyadic with a mantissa of at most so many bits, as a glance tells (0 is)."""
    bottom = x.denominator
    return x.numerator.bit_length() <= bits and bottom & (bottom - 1) == 0


def sqrt_upper(x: Fraction, bits: int) -> Fraction:
    """The least dyadic with a `bits`-bit mantissa that is >= sqrt(x).

    Guarantees: result² >= x; result <= sqrt(x)·(1 + 2^(1-bits)), at any scale; monotone in x; exact if sqrt(x) is
    itself such a dyadic; 0 at 0.
    Requires: x >= 0 (ValueError otherwise).

    Proof. Choose e so that q = x/4^e has a root of `bits` bits, i.e. 4^(bits-1) <= q < 4^bits. The least integer m with
    m² >= q is the least with m² >= ceil(q), which is isqrt(ceil(q) - 1) + 1, `isqrt` being the integer floor of the
    root. m·2^e is then the least element, above sqrt(x), of a set that does not depend on x: hence monotone.
    """
    return dyadic_value(*root_upper(x.numerator, x.denominator, bits))


def root_upper(top: int, bottom: int, bits: int) -> tuple[int, int]:
    """(m, e) with m·2^e = sqrt_upper(top/bottom, bits)."""
    floor, exact, e = _normalised(top, bottom, bits)
    return (math.isqrt(floor - exact) + 1, e) if floor else (0, 0)


def sqrt_lower(x: Fraction, bits: int) -> Fraction:
    """The greatest dyadic with a `bits`-bit mantissa that is <= sqrt(x). Requires: x >= 0."""
    floor, _, e = _normalised(x.numerator, x.denominator, bits)
    return dyadic_value(math.isqrt(floor), e)


def _normalised(top: int, bottom: int, bits: int) -> tuple[int, bool, int]:
    """(floor(q), whether q is an integer, e) with x = top/bottom = q·4^e and 4^(bits-1) <= q < 4^bits; zeros for 0."""
    if top <= 0:
        if top:
            raise ValueError(f"the square root of a negative number: {top}/{bottom}")
        return 0, True, 0
    # x lies between 2^(s-1) and 2^(s+1): q is at most a factor of 4 too small.
    e = (top.bit_length() - bottom.bit_length()) // 2 + 1 - bits
    while True:
        floor, rest = divmod(top << max(-2 * e, 0), bottom << max(2 * e, 0))
        if floor.bit_length() >= 2 * bits - 1:
            return floor, not rest, e
        e -= 1


def float_below(x: Fraction) -> float:
    """The greatest float64 strictly below x > 0, at least 0.0; and 0.0 for x <= 0.

    Strict, so that a radius reported this way satisfies the strict inequality that defines "certified".
    """
    if x <= 0:
        return 0.0
    try:
        nearest = x.numerator / x.denominator  # correctly rounded by Python, also for huge integers
    except OverflowError:
        nearest = math.inf
    return nearest if nearest < x else math.nextafter(nearest, 0.0)


def float_enclosure(lower: Fraction, upper: Fraction) -> tuple[float, float]:
    """The greatest float64 <= lower, and the least >= upper; infinite where there is none."""
    return -float_at_least(-lower.numerator, lower.denominator), float_at_least(upper.numerator, upper.denominator)


def float_at_least(top: int, bottom: int) -> float:
    """The least float64 >= top/bottom; infinite if there is none. Requires: bottom >= 1."""
    try:
        nearest = top / bottom  # correctly rounded, also for huge integers
    except OverflowError:
        return math.inf if top > 0 else -sys.float_info.max
    over, under = nearest.as_integer_ratio()
    return nearest if over * bottom >= top * under else math.nextafter(nearest, math.inf)


def float_near(top: int, bottom: int) -> float:
    """The float64 nearest to top/bottom: integers are divided with one rounding. Infinite beyond the floats."""
    try:
        return top / bottom
    except OverflowError:
        return math.inf if top > 0 else -math.inf


def decimal_upper(x: Fraction, digits: int = 17) -> str:
    """A decimal of `digits` significant digits, >= x >= 0: for people to read."""
    return _decimal(x, digits, ROUND_CEILING)


def decimal_lower(x: Fraction, digits: int = 17) -> str:
    """A decimal of `digits` significant digits, <= x, for x >= 0."""
    return _decimal(x, digits, ROUND_FLOOR)


def _decimal(x: Fraction, digits: int, rounding: str) -> str:
    if x < 0:
        raise ValueError("decimals for people are written of bounds, which are not negative")
    # Conversion of integers is exact, and `decimal` rounds the quotient correctly in the direction of its context.
    context = Context(prec=digits, rounding=rounding, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[InvalidOperation, Overflow])
    value = context.divide(Decimal(x.numerator), Decimal(x.denominator))
    text = f"{value:f}" if value == 0 or -5 <= value.adjusted() < digits else f"{value:e}"
    mantissa, e, exponent = text.partition("e")
    return (mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa) + e + exponent


def format_exact(x: Fraction) -> str:
    """The exact value as ``m*2^e`` if it is dyadic, else as ``p/q``; `parse_rational` reads both back."""
    bottom = x.denominator
    if bottom & (bottom - 1):
        return f"{x.numerator}/{bottom}"
    if x == 0:
        return "0*2^0"
    zeros = (x.numerator & -x.numerator).bit_length() - 1
    return f"{x.numerator >> zeros}*2^{zeros - (bottom.bit_length() - 1)}"


def shortest_exact(x: Fraction) -> str:
    """The exact value as people write it: a short decimal, else ``p/q``; ``≈`` marks what is too long to write."""
    if max(abs(x.numerator), x.denominator).bit_length() > 13_000:
        return f"≈{'-' if x < 0 else ''}{decimal_upper(abs(x))}"
    for digits in range(20):
        if (x * 10**digits).denominator == 1:
            whole = str(abs((x * 10**digits).numerator)).rjust(digits + 1, "0")
            text = f"{whole[: len(whole) - digits]}.{whole[len(whole) - digits :]}" if digits else whole
            return f"-{text}" if x < 0 else text
    return f"{x.numerator}/{x.denominator}"


# -- exact matrices --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RationalVector:
    """Rationals over one common denominator >= 1, at least one of them: the logits of one output."""

    numerators: tuple[int, ...]
    denominator: int

    def __len__(self) -> int:
        return len(self.numerators)

    def with_first(self, constant: Fraction) -> RationalVector:
        """That number, and then these."""
        unit = constant.denominator
        first, others = constant.numerator * self.denominator, (x * unit for x in self.numerators)
        return RationalVector((first, *others), unit * self.denominator)

    @staticmethod
    def from_decimals(items: Sequence[tuple[int, int]]) -> RationalVector:
        """From the ``(mantissa, exponent)`` pairs of `parse_decimal`."""
        lowest = min(0, min(exponent for _, exponent in items))
        return RationalVector(tuple(m * 10 ** (e - lowest) for m, e in items), 10**-lowest)

    @staticmethod
    def from_fractions(items: Sequence[Fraction]) -> RationalVector:
        denominator = math.lcm(*(x.denominator for x in items))
        return RationalVector(tuple(x.numerator * (denominator // x.denominator) for x in items), denominator)


@dataclass(frozen=True, eq=False)
class NearFloats:
    """Floats beside rationals: each entry of values·2^exponent is its rational rounded to nearest, or equal if `exact`.

    Invariants: `values` is a finite float64 array that nobody writes to, its largest magnitude 0 or in [2^-64, 2^64].
    So an entry v is within 2^-53·|v| of its rational over 2^exponent, or within 2^-1075 where v is subnormal.
    """

    values: npt.NDArray[np.float64]
    exponent: int
    exact: bool


class RationalMatrix:
    """A matrix of rationals: an integer array over one common denominator. Immutable.

    Invariants: `numerators` is a two-dimensional, non-empty object array of Python ints that nobody writes to;
    `denominator` >= 1. Entry (i, j) is numerators[i, j] / denominator.
    A matrix of floats, or of integers that are floats, is kept as such: Python's integers, which take five times as
    much, are made when somebody asks for them.
    """

    __slots__ = ("_floats", "_integers", "_near", "_shape")

    def __init__(self, numerators: IntegerArray, denominator: int) -> None:
        self._shape: tuple[int, int] = numerators.shape
        self._integers: tuple[IntegerArray, int] | None = (numerators, denominator)
        self._floats: tuple[npt.NDArray[np.float64], int] | None = None  # the very values: array·2^exponent
        self._near: NearFloats | None = None

    @property
    def shape(self) -> tuple[int, int]:
        return self._shape

    @property
    def numerators(self) -> IntegerArray:
        return self._as_integers()[0]

    @property
    def denominator(self) -> int:
        return self._as_integers()[1]

    def _as_integers(self) -> tuple[IntegerArray, int]:
        if self._integers is None:
            floats, exponent = cast("tuple[npt.NDArray[np.float64], int]", self._floats)  # one of the two is there
            self._integers = _float_integers(floats, exponent)
        return self._integers

    def __repr__(self) -> str:
        """All of it if that is short: for people."""
        rows, columns = self.shape
        few = rows * columns <= 16 and all(x.bit_length() <= 64 for x in (*self.numerators.flat, self.denominator))
        text = f"RationalMatrix({self.numerators.tolist()!r}, {self.denominator})" if few else ""
        return text if 0 < len(text) <= 100 else f"<RationalMatrix of {rows} x {columns}>"

    def __getitem__(self, index: tuple[int, int]) -> Fraction:
        return Fraction(self.numerators[index], self.denominator)

    def __eq__(self, other: object) -> bool:
        """The same rationals, however they are scaled."""
        if not isinstance(other, RationalMatrix):
            return NotImplemented
        return self.shape == other.shape and bool(
            np.all(self.numerators * other.denominator == other.numerators * self.denominator)
        )

    __hash__ = None  # type: ignore[assignment]

    def transposed(self) -> RationalMatrix:
        if self._integers is None and self._floats is not None:
            return RationalMatrix.from_floats(self._floats[0].T, self._floats[1])
        return RationalMatrix(self.numerators.T, self.denominator)

    def near_floats(self) -> NearFloats:
        """The nearest floats, on a scale on which they neither overflow nor all vanish. Computed once."""
        if self._near is None:
            self._near = _near(*self._floats, True) if self._floats is not None else _near(*_quotients(self))
        return self._near

    def as_floats(self) -> npt.NDArray[np.float64] | None:
        """These very numbers, if every one of them is a finite float64."""
        if self._floats is not None and self._floats[1] == 0:
            return self._floats[0]
        near = self.near_floats()
        if near.exact:
            with np.errstate(over="ignore"):
                made = np.ldexp(near.values, near.exponent)
            # What became infinite, or lost bits among the subnormals, does not come back.
            return made if np.array_equal(np.ldexp(made, -near.exponent), near.values) else None
        numerators, denominator = self.numerators.ravel().tolist(), self.denominator
        if (denominator // math.gcd(denominator, *numerators)).bit_count() != 1:
            return None
        try:
            found = [x / denominator for x in numerators]  # integers are divided with one rounding
        except OverflowError:
            return None
        if any(x * denominator != y for x, y in zip(map(Fraction, found), numerators, strict=True)):
            return None
        return np.array(found).reshape(self.shape)

    @staticmethod
    def from_floats(array: npt.NDArray[Any], exponent: int = 0) -> RationalMatrix:
        """The exact binary values of a two-dimensional float or integer array, times 2^exponent.

        Requires: every entry finite (the caller has the better error message).
        """
        if array.dtype.kind in "iu" and not _fit_floats(array):
            return RationalMatrix(_frozen(array.astype(object) << max(exponent, 0)), 1 << max(-exponent, 0))
        made = RationalMatrix.__new__(RationalMatrix)
        floats = np.array(array, dtype=np.float64, order="C")  # a copy: the caller may write to its own
        rows, columns = floats.shape
        made._shape, made._integers, made._floats, made._near = (rows, columns), None, (_frozen(floats), exponent), None
        return made

    @staticmethod
    def from_decimals(rows: Sequence[Sequence[tuple[int, int]]]) -> RationalMatrix:
        """From rows of ``(mantissa, exponent)`` pairs of `parse_decimal`, all rows equally long."""
        lowest = min(0, min(exponent for row in rows for _, exponent in row))
        largest = max(m.bit_length() + 4 * (e - lowest) for row in rows for m, e in row)
        if largest * len(rows) * len(rows[0]) > MAX_MATRIX_BITS:
            raise InputError("numbers of so different sizes that they do not fit into memory exactly")
        powers = {exponent: 10 ** (exponent - lowest) for exponent in {e for row in rows for _, e in row}}
        return RationalMatrix.from_integers(
            [[mantissa * powers[exponent] for mantissa, exponent in row] for row in rows], 10**-lowest
        )

    @staticmethod
    def from_fractions(rows: Sequence[Sequence[Fraction]]) -> RationalMatrix:
        denominator = math.lcm(*(x.denominator for row in rows for x in row))
        return RationalMatrix.from_integers(
            [[x.numerator * (denominator // x.denominator) for x in row] for row in rows], denominator
        )

    @staticmethod
    def from_integers(rows: Sequence[Iterable[int]], denominator: int = 1) -> RationalMatrix:
        listed = [list(row) for row in rows]
        numerators = np.empty((len(listed), len(listed[0])), dtype=object)
        for index, row in enumerate(listed):
            numerators[index, :] = row
        return RationalMatrix(_frozen(numerators), denominator)


def exact_integers(x: npt.NDArray[np.float64]) -> tuple[IntegerArray, int]:
    """A vector of floats as integers over a common denominator. Raises: UndecidedError unless all are finite."""
    if not np.isfinite(x).all():
        raise UndecidedError("a number that is not finite")
    numerators, denominator = _float_integers(x, 0)
    return numerators, denominator


def _fit_floats(integers: npt.NDArray[Any]) -> bool:
    """Whether each of them is a float64, as those of at most 53 bits are."""
    return integers.dtype.itemsize < 8 or (int(integers.max()) <= 2**53 and int(integers.min()) >= -(2**53))


def _frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array.setflags(write=False)
    return array


def _float_integers(floats: npt.NDArray[np.float64], exponent: int) -> tuple[IntegerArray, int]:
    """floats·2^exponent as integers over a power of two, exactly."""
    mantissas, exponents = np.frexp(floats)
    integers = np.ldexp(mantissas, 53).astype(np.int64)  # exact: |mantissa| < 1 has 53 bits
    exponents = exponents.astype(np.int64) - 53 + exponent
    nonzero = integers != 0
    if not nonzero.any():
        return _frozen(integers.astype(object)), 1
    low_bit = (integers & -integers)[nonzero]
    zeros = np.frexp(low_bit.astype(np.float64))[1] - 1  # a power of two is exact in float64
    lowest = min(0, int((exponents[nonzero] + zeros).min()))
    shifts = np.where(nonzero, exponents - lowest, 0)
    if int((exponents[nonzero] + 53).max()) - lowest <= 62:  # all of them fit into machine words
        small = np.where(shifts >= 0, integers << np.maximum(shifts, 0), integers >> np.maximum(-shifts, 0))
        return _frozen(small.astype(object)), 1 << -lowest
    # A negative shift drops only trailing zero bits: lowest is at most exponent + zeros.
    numerators = np.where(
        shifts >= 0,
        integers.astype(object) << np.maximum(shifts, 0).astype(object),
        integers.astype(object) >> np.maximum(-shifts, 0).astype(object),
    )
    return _frozen(numerators), 1 << -lowest


def _quotients(matrix: RationalMatrix) -> tuple[npt.NDArray[np.float64], int, bool]:
    """(values, exponent, exact): each value is its rational over 2^exponent, rounded to nearest."""
    numerators, denominator = matrix.numerators, matrix.denominator
    bits = max(map(int.bit_length, numerators.ravel().tolist()))
    if denominator & (denominator - 1) == 0:
        together = reduce(or_, map(abs, numerators.ravel().tolist()))
        zeros = (together & -together).bit_length() - 1 if together else 0  # trailing ones that all entries share
        if bits - zeros <= 53:
            return (numerators >> zeros).astype(np.float64), zeros + 1 - denominator.bit_length(), True
    if bits <= 53 and denominator < 1 << 53:  # both are floats, and division of floats is correctly rounded
        return numerators.astype(np.float64) / float(denominator), 0, False
    exponent = bits - denominator.bit_length()
    top, bottom = (numerators << max(-exponent, 0)), denominator << max(exponent, 0)
    # Python's division of integers is correctly rounded, however large they are; the quotients are below 2.
    return np.asarray(top / bottom, dtype=np.float64), exponent, False


def _near(values: npt.NDArray[np.float64], exponent: int, exact: bool) -> NearFloats:
    """Moves the scale by a power of two if need be. Scaling rounds only where it ends among the subnormals."""
    largest = float(np.max(np.abs(values)))
    if largest == 0 or 2.0**-64 <= largest <= 2.0**64:
        return NearFloats(_frozen(values), exponent, exact)
    shift = math.frexp(largest)[1]
    scaled = np.ldexp(values, -shift)
    exact = exact and bool(np.array_equal(np.ldexp(scaled, shift), values))
    return NearFloats(_frozen(scaled), exponent + shift, exact)
