"""The formats that networks are deployed in: binary floats of IEEE-754 and their kin, and exact rounding to them.

A format of p bits: every operation whose result is in the normal range is off by at most u = 2^-p of it; below, numbers
are multiples of η, and a product is off by at most η/2 (gradual underflow is assumed: subnormals are not flushed).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from intervalcert.errors import InputError, UsageError
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.rounding import dyadic_value

__all__ = ["FORMATS", "FloatFormat", "get_format"]


@dataclass(frozen=True)
class FloatFormat:
    """bits: of the mantissa, with the hidden one; emin, emax: the exponents of the smallest and the largest power."""

    name: str
    bits: int
    emin: int
    emax: int

    @property
    def unit(self) -> Fraction:
        """u: half the distance from 1 to the next number."""
        return dyadic_value(1, -self.bits)

    @property
    def tiny(self) -> Fraction:
        """η: the smallest positive number."""
        return dyadic_value(1, self.emin - self.bits + 1)

    @property
    def largest(self) -> Fraction:
        """The largest finite number."""
        return (2 - 2 * self.unit) * dyadic_value(1, self.emax)

    def rounded(self, data: RationalMatrix, what: str) -> RationalMatrix:
        """Each number rounded to nearest, ties to even, as a conversion does it. Exactly, not by way of a wider float.

        Raises: InputError for what is beyond the format.

        A number that was rounded to 53 bits before is rounded to fewer rightly unless it became a tie of the format:
        ties are float64 numbers, and rounding is monotone. So only those are looked at exactly.
        """
        near = data.near_floats()
        scale = near.exponent
        with np.errstate(over="ignore"):
            x = np.ldexp(near.values, scale)
        if self.bits == 53:
            made = x if near.exact or not scale else _one_by_one(self, data)
        elif scale and not np.array_equal(np.ldexp(x, -scale), near.values):
            made = _one_by_one(self, data)
        else:
            made = self.nearest(x)
            if not near.exact:
                for row, column in np.argwhere(self._is_tie(x)).tolist():
                    made[row, column] = self._nearest(data[row, column])
        if not (np.abs(made) <= float(self.largest)).all():
            row, column = np.argwhere(~(np.abs(made) <= float(self.largest)))[0].tolist()
            raise InputError(f"{what}: the number in row {row}, column {column} is beyond {self.name}")
        return RationalMatrix.from_floats(made)

    def _step(self, x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The distance of the format's numbers around each x."""
        exponent = np.maximum(np.frexp(x)[1] - self.bits, self.emin - self.bits + 1)
        found: npt.NDArray[np.float64] = np.ldexp(1.0, exponent)
        return found

    def nearest(self, x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Each float rounded to nearest, ties to even, as if the format had no largest number."""
        if self.bits == 53:
            return x
        step = self._step(x)
        with np.errstate(over="ignore"):  # what is beyond is refused
            # rint takes ties to even, and powers of two are exact.
            found: npt.NDArray[np.float64] = np.rint(x / step) * step
        return found

    def _is_tie(self, x: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
        parts = x / self._step(x)
        found: npt.NDArray[np.bool_] = np.abs(parts - np.floor(parts)) == 0.5
        return found

    def _nearest(self, x: Fraction) -> float:
        """One number, exactly; infinite if it is beyond."""
        if x == 0:
            return 0.0
        size = abs(x)
        exponent = size.numerator.bit_length() - size.denominator.bit_length()
        if size < dyadic_value(1, exponent):
            exponent -= 1  # now 2^exponent <= |x| < 2^(exponent + 1)
        step = max(exponent - self.bits + 1, self.emin - self.bits + 1)
        found = round(size / dyadic_value(1, step))  # Python rounds ties of fractions to even
        try:
            return math.ldexp(float(found if x > 0 else -found), step)
        except OverflowError:
            return math.inf  # of whichever sign: it is refused


def _one_by_one(form: FloatFormat, data: RationalMatrix) -> npt.NDArray[np.float64]:
    rows, columns = data.shape
    return np.array([[form._nearest(data[i, j]) for j in range(columns)] for i in range(rows)])


FORMATS = {
    made.name: made
    for made in (
        FloatFormat("float32", 24, -126, 127),
        FloatFormat("float16", 11, -14, 15),
        FloatFormat("bfloat16", 8, -126, 127),
        FloatFormat("float64", 53, -1022, 1023),
    )
}


def get_format(name: str) -> FloatFormat:
    if name not in FORMATS:
        raise UsageError(f"there is no format {name!r}: choose one of {', '.join(FORMATS)}")
    return FORMATS[name]
