"""Constants of a model file: arrays of floats as they are stored, or exact rationals where something was computed.

What can be computed with them is exact. What it takes is bounded beforehand: all tensors of a file spend one `Budget`,
so that a small file takes neither hours nor all the memory.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from intervalcert.errors import InputError
from intervalcert.model.arrays import MAX_ENTRIES
from intervalcert.numbers.matrices import IntegerArray, RationalMatrix, exact_integers

__all__ = ["FREE_NUMBERS", "MAX_COMPUTED", "MAX_NUMBERS", "Budget", "Tensor"]

MAX_NUMBERS = 4 * MAX_ENTRIES
"""Of all arrays of a file together: as floats of 64 bits they take 2 GiB."""

FREE_NUMBERS = 2**20
"""Weights that a model may have however small its file is."""

MAX_COMPUTED = 2**23
"""Entries of an array that was computed, not stored."""

MAX_BITS = 2**32
"""What the integers of one such array may take: half a gigabyte."""

MAX_LENGTH = 2**17
"""Bits of one of them: products of longer ones take too long."""

MAX_WORK = 2**26
"""Words that the constants of one file may take to compute, besides `_PER_STORED` for each number that is stored."""

MAX_REPEATED = 2**22
"""Numbers of matrices that stand at more than one place, counted at each place but the first; at least `_PLACE` each.

They are held once, but what is computed for a layer is computed and held at each."""

_PLACE = 2**12
_STEP = 2**10
_PER_STORED = 16
_LONG = 2**13


class Budget:
    """What is left of the work that one file may take, in words of 64 bits.

    Numbers of more than some thousand bits count more often: products and common divisors take more than their length.
    """

    def __init__(self) -> None:
        self._left, self._places = MAX_WORK, MAX_REPEATED

    def earn(self, entries: int) -> None:
        """So many numbers are stored in the file."""
        self._left += _PER_STORED * entries

    def repeat(self, shape: tuple[int, ...]) -> None:
        """A matrix stands at one more place. Raises: InputError if that is too much after others."""
        self._places -= max(math.prod(shape), _PLACE)
        if self._places < 0:
            raise InputError(
                f"a matrix of shape {list(shape)} is used at so many places that their layers are too much to be "
                "computed: only networks that repeat their matrices less often are read"
            )

    def hold(self, count: int) -> None:
        """A list of so many positions is to be made, or a map that gives so many numbers is to stand at some place.

        Raises: InputError if that is too large, or too much after others.
        """
        if count > MAX_COMPUTED:
            raise InputError(f"{count} numbers or positions at one place; at most {MAX_COMPUTED} are computed with")
        self._left -= max(count, _STEP)
        if self._left < 0:
            raise InputError(
                f"{count} numbers at one more place, after all before, are too much: a graph with fewer or smaller "
                "branches is read"
            )

    def count(self, numbers: int) -> None:
        """So many numbers of 64 bits are to be taken up, however large their array is."""
        for start in range(0, numbers, MAX_COMPUTED):
            self.spend((min(numbers - start, MAX_COMPUTED),), 64)

    def spend(self, shape: tuple[int, ...], bits: int, times: int = 1) -> None:
        """An array of that shape is to be computed. Raises: InputError if it is too large, or too much after others.

        times: how much longer it takes than a product.
        """
        entries = math.prod(shape)
        if entries > MAX_COMPUTED or bits > MAX_LENGTH or entries * bits > MAX_BITS:
            raise InputError(
                f"constants of shape {list(shape)} and {bits} bits each are too large to be computed exactly"
            )
        self._left -= entries * -(-bits // 64) * max(1, bits // _LONG) * times
        if self._left < 0:
            raise InputError(
                f"constants of shape {list(shape)} and {bits} bits each, after all before, are too much to be computed "
                "exactly: let the exporter fold constants, and multiply where it divides by many different numbers"
            )


class Tensor:
    """Exact numbers in an array of any dimension. Immutable.

    Either `stored` (finite floats or integers of at most 64 bits), or integers over one denominator >= 1.
    """

    __slots__ = ("_budget", "_exact", "stored")

    def __init__(
        self,
        stored: npt.NDArray[Any] | None,
        exact: tuple[IntegerArray, int] | None = None,
        budget: Budget | None = None,
    ) -> None:
        """Requires: one of the two. Raises: InputError for numbers that are not finite, or no real numbers.

        budget: that of the file; without one the tensor, and what is computed from it, has a budget of its own.
        """
        self._budget = Budget() if budget is None else budget
        if stored is not None:
            if stored.dtype.kind not in "fiu" or stored.dtype.itemsize > 8:
                raise InputError(f"numbers of type {stored.dtype} (float16, float32, float64 or integers are read)")
            if stored.dtype.kind == "f" and not np.isfinite(stored).all():
                place = tuple(np.argwhere(~np.isfinite(stored))[0].tolist())
                raise InputError(f"{stored[place]} at {list(place)}; every number must be finite")
        self.stored, self._exact = stored, exact

    @property
    def shape(self) -> tuple[int, ...]:
        found: tuple[int, ...] = (self._exact[0] if self.stored is None else self.stored).shape  # type: ignore[index]
        return found

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def budget(self) -> Budget:
        """That of its file."""
        return self._budget

    @property
    def is_whole(self) -> bool:
        """Stored as integers: sizes and indices."""
        return self.stored is not None and self.stored.dtype.kind in "iu"

    def holds_only(self, number: int) -> bool:
        """Whether every entry is that number."""
        if self.stored is not None:
            return bool((self.stored == number).all())
        numerators, denominator = self.exact()
        return all(x == number * denominator for x in numerators.ravel().tolist())

    def exact(self) -> tuple[IntegerArray, int]:
        """(numerators, denominator)."""
        if self._exact is not None:
            return self._exact
        stored = self.stored
        if stored is None:
            raise ValueError("a tensor without numbers")
        self._spend(stored.shape, 64)
        if stored.dtype.kind in "iu":
            return stored.astype(object), 1
        numerators, denominator = exact_integers(stored.astype(np.float64).ravel())
        return numerators.reshape(stored.shape), denominator

    def reshaped(self, shape: tuple[int, ...]) -> Tensor:
        return self._moved(lambda array: array.reshape(shape))

    def transposed(self, order: tuple[int, ...]) -> Tensor:
        return self._moved(lambda array: array.transpose(order))

    def part(self, cuts: tuple[slice, ...]) -> Tensor:
        """One slice for each dimension."""
        return self._moved(lambda array: array[cuts])

    def broadcast(self, shape: tuple[int, ...]) -> Tensor:
        """Raises: InputError if it does not broadcast to just that shape, or is too large there."""
        self._spend(shape, 1)
        try:
            return self._moved(lambda array: np.broadcast_to(array, shape))
        except ValueError:
            raise InputError(f"an array of shape {list(self.shape)} does not broadcast to {list(shape)}") from None

    def at(self, index: npt.NDArray[np.intp], otherwise: int = 0) -> Tensor:
        """The entries at these places, counted in C order, in the shape of `index`; that number where it is negative.

        Each of them is a stored one still, if these are: zeros and ones are what they are in any format.
        """
        self._spend(index.shape, 1)
        made = Tensor.__new__(Tensor)
        made.stored = made._exact = None
        made._budget = self._budget
        if self.stored is not None:
            made.stored = _taken(self.stored, index, otherwise)
        elif self._exact is not None:
            numerators, denominator = self._exact
            made._exact = _taken(numerators, index, otherwise * denominator), denominator
        return made

    def summed(self, axis: int) -> Tensor:
        """Over one axis."""
        numerators, denominator = self.exact()
        self._spend(numerators.shape, _bits(numerators) + numerators.shape[axis].bit_length())
        return self._reduced(numerators.sum(axis=axis), denominator)

    @staticmethod
    def joined(parts: Sequence[Tensor]) -> Tensor:
        """Vectors, one after the other; stored, if all of them are, and of one type."""
        budget = parts[0]._budget
        budget.spend((sum(part.size for part in parts),), 1)
        kinds = {None if part.stored is None else part.stored.dtype for part in parts}
        if len(kinds) == 1 and None not in kinds:
            return Tensor(np.concatenate([part.stored for part in parts if part.stored is not None]), budget=budget)
        exact = [part.exact() for part in parts]
        common = math.lcm(*(denominator for _, denominator in exact))
        bits = max(_bits(numerators) + _bits(common // denominator) for numerators, denominator in exact)
        budget.spend((sum(part.size for part in parts),), bits)
        made = np.concatenate([numerators * (common // denominator) for numerators, denominator in exact])
        return Tensor(None, (made, common), budget)

    def _moved(self, change: Callable[[Any], Any]) -> Tensor:
        made = Tensor.__new__(Tensor)  # the same numbers: they were checked
        made.stored = None if self.stored is None else change(self.stored)
        made._exact = None if self._exact is None else (change(self._exact[0]), self._exact[1])
        made._budget = self._budget
        return made

    # -- arithmetic ----------------------------------------------------------------------------------------------

    def __add__(self, other: Tensor) -> Tensor:
        (a, p), (b, q), shape = self._both(other)
        common = math.lcm(p, q)
        self._spend(shape, max(_bits(a) + _bits(common // p), _bits(b) + _bits(common // q)) + 1)
        return self._reduced(a * (common // p) + b * (common // q), common)

    def __neg__(self) -> Tensor:
        if self.stored is not None and self.stored.dtype.kind == "f":
            self._spend(self.stored.shape, 64)
            return self._moved(np.negative)  # exact, also in a program
        numerators, denominator = self.exact()
        return Tensor(None, (_objects(-numerators), denominator), self._budget)

    def __sub__(self, other: Tensor) -> Tensor:
        return self + -other

    def __mul__(self, other: Tensor) -> Tensor:
        (a, p), (b, q), shape = self._both(other)
        self._spend(shape, _bits(a) + _bits(b))
        self._spend((1,), _bits(p) + _bits(q))
        return self._reduced(a * b, p * q)

    def over(self, other: Tensor) -> list[Fraction]:
        """The quotients, in the order of the entries of both, broadcast. Raises: InputError for a division by zero."""
        (a, p), (b, q), shape = self._both(other)
        if not all(b.ravel().tolist()):
            raise InputError("a division by zero")
        self._spend(shape, _bits(a) + _bits(b) + _bits(p) + _bits(q), times=4)  # greatest common divisors
        pairs = list(zip(*(np.broadcast_to(x, shape).ravel().tolist() for x in (a, b)), strict=True))
        known = {(x, y): Fraction(x * q, y * p) for x, y in set(pairs)}
        return [known[pair] for pair in pairs]

    def __truediv__(self, other: Tensor) -> Tensor:
        """Each quotient is in lowest terms before there is a common denominator."""
        quotients = self.over(other)
        return Tensor.of_fractions(quotients, np.broadcast_shapes(self.shape, other.shape), self._budget)

    def __matmul__(self, other: Tensor) -> Tensor:
        """Of two matrices."""
        (m, k), (rows, n) = self.shape, other.shape
        if k != rows:
            raise InputError(f"a product of arrays of shapes {list(self.shape)} and {list(other.shape)}")
        self._spend((m, k, n), 1)  # as many products
        (a, p), (b, q) = self.exact(), other.exact()
        self._spend((m, k, n), _bits(a) + _bits(b) + k.bit_length())
        self._spend((1,), _bits(p) + _bits(q))
        return self._reduced(a.dot(b), p * q)

    def _both(self, other: Tensor) -> tuple[tuple[IntegerArray, int], tuple[IntegerArray, int], tuple[int, ...]]:
        try:
            shape = np.broadcast_shapes(self.shape, other.shape)
        except ValueError:
            raise InputError(f"arrays of shapes {list(self.shape)} and {list(other.shape)} do not fit") from None
        self._spend(shape, 1)
        return self.exact(), other.exact(), shape

    def _spend(self, shape: tuple[int, ...], bits: int, times: int = 1) -> None:
        """Raises: InputError for what would be too large."""
        self._budget.spend(shape, bits, times)

    def _reduced(self, numerators: Any, denominator: int) -> Tensor:
        """In lowest terms, together: what is a float again is seen to be one."""
        numerators = _objects(numerators)
        listed = numerators.ravel().tolist()
        if denominator & (denominator - 1) == 0:  # a power of two: the lowest bit of any of them
            union = functools.reduce(operator.or_, listed, denominator)
            common = union & -union
        else:
            if _bits(denominator) > _LONG:
                self._spend(numerators.shape, _bits(denominator), times=4)
            common = math.gcd(denominator, *listed)
        if common > 1:
            numerators, denominator = _objects(numerators // common), denominator // common
        return Tensor(None, (numerators, denominator), self._budget)

    # -- what layers are made of ---------------------------------------------------------------------------------

    @property
    def place(self) -> tuple[object, ...]:
        """Where its numbers are in memory, and how they are read there: the same for two views of the same numbers."""
        array, denominator = (self.stored, 1) if self.stored is not None else self.exact()
        return array.__array_interface__["data"][0], array.shape, array.strides, array.dtype.str, denominator

    def matrix(self) -> RationalMatrix:
        """Requires: two dimensions, neither empty."""
        if self.stored is not None:
            return RationalMatrix.from_floats(self.stored)
        return RationalMatrix(*self.exact())

    def column(self) -> RationalMatrix:
        """All entries, in their order, as one column."""
        return self.reshaped((self.size, 1)).matrix()

    @staticmethod
    def of_fractions(values: Sequence[Fraction], shape: tuple[int, ...], budget: Budget) -> Tensor:
        """Over one common denominator, as long as the budget allows. Requires: as many as the shape has entries."""
        common = 1
        for denominator in {x.denominator for x in values}:
            common = math.lcm(common, denominator)
            budget.spend((1,), _bits(common))
        budget.spend(shape, _bits(common) + max((_bits(x.numerator) for x in values), default=0))
        flat = np.empty(len(values), dtype=object)
        flat[:] = [x.numerator * (common // x.denominator) for x in values]
        return Tensor(None, (flat.reshape(shape), common), budget)


def _bits(x: IntegerArray | int) -> int:
    """Of the largest of them."""
    if isinstance(x, int):
        return x.bit_length()
    return max(map(int.bit_length, x.ravel().tolist()), default=0)


def _taken(array: Any, index: npt.NDArray[np.intp], otherwise: int) -> Any:
    flat = array.reshape(-1)
    found = flat[np.maximum(index, 0)]
    if (missing := index < 0).any():
        found[missing] = otherwise
    return found


def _objects(array: Any) -> IntegerArray:
    """Numpy makes a plain number of what has no dimension."""
    if isinstance(array, np.ndarray):
        return array
    made = np.empty((), dtype=object)
    made[()] = array
    return made
