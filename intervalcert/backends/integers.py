"""Exact integer matrices at the speed of floating-point BLAS.

An integer is cut into limbs of 22 bits, little end first; the top limb carries the sign. Limb matrices are multiplied
in float64. Each entry of such a product is a sum of at most 512 terms of at most 2^44, so every partial sum, in any
order, with or without FMA, is an integer of at most 2^53 and hence exact. (Strassen-like schemes form differences of
limbs and products of those; none of the BLAS libraries that numpy is built with uses them for `dgemm`.)
The sums of products of equal weight are then added in int64 and carried. Results stay in limbs, so that a chain of
products makes no Python integers: those are for numbers that are too long, and for whoever asks for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from intervalcert.numbers.matrices import IntegerArray

__all__ = ["Integers", "Limbs", "gram", "in_limbs", "product", "python_integers", "reshaped", "rows_at"]

_LIMB = 22
_BASE = 1 << _LIMB
_INNER = 1 << (53 - 2 * _LIMB)
"""The most terms of a sum in float64."""

_MAX_SUMS = 512
"""The most products, of at most 2^53 each, that meet in one sum in int64: 2^62, with room for a carry below 2^42."""

_MAX_LIMBS = 40
"""Beyond this many limbs (880 bits) Python's own multiplication is no slower than the square of the limb count."""

Words = npt.NDArray[np.int64]
Places = npt.NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class Limbs:
    """A matrix of integers: the entry at (r, c) is the sum over i of words[i, r, c]·2^(22 i).

    Invariants: words[i] is in [0, 2^22), but for the top one, which is in [-2^21, 2^21); there is no superfluous top
    limb; nobody writes to `words`.
    """

    words: Words

    @property
    def shape(self) -> tuple[int, int]:
        _, rows, columns = self.words.shape
        return rows, columns

    @property
    def T(self) -> Limbs:  # noqa: N802 - as in numpy
        return Limbs(self.words.transpose(0, 2, 1))

    def __getitem__(self, place: tuple[Places, Places]) -> Limbs:
        return _trimmed(list(self.words[(slice(None), *place)]))

    def sum_of_squares(self) -> int:
        return _sum_of_squares(self.words)

    def rounded(self, shift: int) -> tuple[Limbs, int]:
        """Every entry x as q = floor(x/2^shift + 1/2), and the sum of all (x - q·2^shift)². Requires: shift >= 1.

        With half = 2^(shift-1) and y = x + half: q is y without its last `shift` bits, and x - q·2^shift = low - half,
        `low` being those bits. The sum of (low - half)² is expanded, so that it needs no negative limbs.
        """
        whole, part = divmod(shift, _LIMB)
        half = 1 << (shift - 1)
        count, (rows, columns) = len(self.words), self.shape
        sums = np.zeros((max(count, whole + 1), rows, columns), dtype=np.int64)
        sums[:count] = self.words
        sums[(shift - 1) // _LIMB] += 1 << ((shift - 1) % _LIMB)
        y = _carried(sums)
        low = np.stack([*y[:whole], y[whole] & ((1 << part) - 1)])
        # A limb above `whole` weighs 2^(22-part) times as much as the limb of the quotient below it.
        upper = [limb << (_LIMB - part) for limb in y[whole + 1 :]]
        upper[0] = upper[0] + (y[whole] >> part)
        linear = sum(int(limb.sum()) << (_LIMB * i) for i, limb in enumerate(low))
        moved = _sum_of_squares(low) - 2 * half * linear + rows * columns * half**2
        return _trimmed(_carried(upper)), moved


Integers = IntegerArray | Limbs


def gram(a: Integers) -> Integers:
    """The exact product a·aᵀ, with half the work: limb products i, j and j, i are each other's transposes."""
    limbs = _limbs(a)
    if limbs is None or not _summable(limbs, limbs):
        integers = python_integers(a)
        return np.asarray(integers @ integers.T)
    rows, inner = limbs.shape
    parts = limbs.words.astype(np.float64)
    sums = np.zeros((2 * len(parts) - 1, rows, rows), dtype=np.int64)
    for start in range(0, inner, _INNER):
        some = parts[:, :, start : start + _INNER]
        for i, left in enumerate(some):
            sums[2 * i] += (left @ left.T).astype(np.int64)
            for j, right in enumerate(some[:i]):
                mixed = (left @ right.T).astype(np.int64)
                sums[i + j] += mixed + mixed.T
    return _trimmed(_carried(sums))


def product(a: Integers, b: Integers) -> Integers:
    """The exact product a·b."""
    first, second = _limbs(a), _limbs(b)
    if first is None or second is None or not _summable(first, second):
        # numpy's object product: Python integers throughout
        return np.asarray(python_integers(a) @ python_integers(b))
    left, right = first.words.astype(np.float64), second.words.astype(np.float64)
    shape = (len(left) + len(right) - 1, first.shape[0], second.shape[1])
    sums = np.zeros(shape, dtype=np.int64)
    for start in range(0, first.shape[1], _INNER):
        some = slice(start, start + _INNER)
        for i, x in enumerate(left):
            for j, y in enumerate(right):
                sums[i + j] += (x[:, some] @ y[some]).astype(np.int64)
    return _trimmed(_carried(sums))


def python_integers(a: Integers) -> IntegerArray:
    """As an array of Python's integers, which know no limit."""
    if not isinstance(a, Limbs):
        return a
    # Two limbs at a time, in machine words: arithmetic of Python's integers is what takes the time.
    pairs = [a.words[i] + (a.words[i + 1] << _LIMB) for i in range(0, len(a.words) - 1, 2)]
    pairs += [a.words[-1]] if len(a.words) % 2 else []
    total: IntegerArray = pairs[-1].astype(object)
    for pair in pairs[-2::-1]:
        total = (total << (2 * _LIMB)) + pair.astype(object)
    return total


def rows_at(a: Integers, index: Places) -> Integers:
    """The rows named by an index, zeros where it is -1. Requires: no index below that or beyond, and at least one."""
    if isinstance(a, Limbs):
        words = a.words[:, index]
        words[:, index < 0] = 0
        return _trimmed(list(words))
    rows: IntegerArray = a[index]
    rows[index < 0] = 0
    return rows


def reshaped(a: Integers, shape: tuple[int, int]) -> Integers:
    """The same entries, row by row. Requires: as many."""
    return Limbs(a.words.reshape(-1, *shape)) if isinstance(a, Limbs) else a.reshape(shape)


def in_limbs(a: Integers) -> Integers:
    """In limbs, if they are not too many: what is multiplied more than once is converted once."""
    limbs = _limbs(a)
    return a if limbs is None else limbs


def _limbs(a: Integers) -> Limbs | None:
    """In limbs; None if they would be too many."""
    if isinstance(a, Limbs):
        return a if len(a.words) <= _MAX_LIMBS else None
    lower: list[Words] = []
    rest: IntegerArray = a
    while len(lower) < _MAX_LIMBS:
        try:
            return _trimmed(_carried([*lower, rest.astype(np.int64)]))
        except OverflowError:  # two limbs at a time, until what is left fits into a word
            low = np.bitwise_and(rest, _BASE**2 - 1).astype(np.int64)
            lower += [low & (_BASE - 1), low >> _LIMB]
            rest = np.right_shift(rest, 2 * _LIMB)
    return None


def _summable(a: Limbs, b: Limbs) -> bool:
    """Whether so few products meet in one sum that it fits into int64."""
    return min(len(a.words), len(b.words)) * -(-a.shape[1] // _INNER) <= _MAX_SUMS


def _carried(sums: Sequence[Words] | Words) -> list[Words]:
    """The limbs of the sum over i of sums[i]·2^(22 i): as many in [0, 2^22), then a signed one for all the rest.

    Requires: |sums[i]| <= 2^63 - 2^42, or for the last of them, if those below are limbs already, any int64.
    """
    limbs: list[Words] = []
    carry = np.zeros_like(sums[0])
    for each in sums:
        carry = carry + each
        limbs.append(carry & (_BASE - 1))  # two's complement: the floor remainder, also for negative numbers
        carry >>= _LIMB  # floor division by 2^22
    return [*limbs, carry]


def _trimmed(limbs: list[Words]) -> Limbs:
    """As few limbs as hold the signed top one."""
    *lower, top = limbs
    while not _is_top(top):
        lower.append(top & (_BASE - 1))
        top = top >> _LIMB
    while lower and _is_top(wider := (top << _LIMB) + lower[-1]):
        lower.pop()
        top = wider
    return Limbs(np.stack([*lower, top]))


def _is_top(limb: Words) -> bool:
    return bool(limb.min() >= -_BASE // 2 and limb.max() < _BASE // 2)


def _sum_of_squares(words: Words) -> int:
    """The sum over all entries of (sum over i of words[i]·2^(22 i))². Requires: |words| <= 2^22."""
    count = len(words)
    flat = words.reshape(count, -1)
    flat = np.pad(flat, ((0, 0), (0, -flat.shape[1] % _INNER))).astype(np.float64)
    blocks = flat.reshape(count, -1, _INNER).transpose(1, 0, 2)
    products = (blocks @ blocks.transpose(0, 2, 1)).astype(np.int64)  # exact: each a sum of 512 products
    low, high = (products & 0xFFFFFFFF).sum(axis=0), (products >> 32).sum(axis=0)  # halves, so that none overflows
    return sum(
        ((int(high[i, j]) << 32) + int(low[i, j])) << (_LIMB * (i + j)) for i in range(count) for j in range(count)
    )
