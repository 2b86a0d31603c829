"""Exact products of integer matrices at the speed of floating-point BLAS.

An integer is cut into limbs of 16 bits, little end first; the top limb carries the sign. Limb matrices are multiplied
in float64. Each entry of such a product is a sum of k terms of at most 2^32, so for k <= 2^21 every partial sum, in any
order, with or without FMA, is an integer of at most 2^53 and hence exact. (Strassen-like schemes form differences
of limbs and products of those; none of the BLAS libraries that numpy is built with uses them for `dgemm`.)
The sums of products of equal weight are then added in int64 and carried.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from intervalcert.rational import IntegerArray

__all__ = ["gram", "matmul"]

_LIMB = 16
_MAX_INNER = 1 << (53 - 2 * _LIMB)
_MAX_LIMBS = 48
"""Beyond this many limbs (768 bits) Python's own multiplication is no slower than the square of the limb count."""


def matmul(a: IntegerArray, b: IntegerArray) -> IntegerArray:
    """The exact product a·b."""
    limbs_a, limbs_b = _limbs(a), _limbs(b)
    if max(limbs_a, limbs_b) > _MAX_LIMBS or a.shape[1] > _MAX_INNER:
        product: IntegerArray = a @ b  # numpy's object product: Python integers throughout
        return product
    left, right = _split(a, limbs_a), _split(b, limbs_b)
    sums = np.zeros((limbs_a + limbs_b - 1, a.shape[0], b.shape[1]), dtype=np.int64)
    for i in range(limbs_a):
        for j in range(limbs_b):
            # |entry| <= 2^53 and at most 48 of them meet in one sum: below 2^59.
            sums[i + j] += (left[i] @ right[j]).astype(np.int64)
    return _join(sums)


def gram(a: IntegerArray) -> IntegerArray:
    """The exact product a·aᵀ, with half the work: limb products i, j and j, i are each other's transposes."""
    limbs = _limbs(a)
    if limbs > _MAX_LIMBS or a.shape[1] > _MAX_INNER:
        product: IntegerArray = a @ a.T
        return product
    parts = _split(a, limbs)
    sums = np.zeros((2 * limbs - 1, a.shape[0], a.shape[0]), dtype=np.int64)
    for i in range(limbs):
        sums[2 * i] += (parts[i] @ parts[i].T).astype(np.int64)
        for j in range(i):
            mixed = (parts[i] @ parts[j].T).astype(np.int64)
            sums[i + j] += mixed + mixed.T
    return _join(sums)


def _limbs(a: IntegerArray) -> int:
    """How many limbs hold every entry with its sign: one bit more than the largest magnitude has."""
    return max(map(int.bit_length, a.ravel().tolist())) // _LIMB + 1


def _split(a: IntegerArray, limbs: int) -> npt.NDArray[np.float64]:
    """Limb matrices: a = sum over i of result[i]·2^(16 i), the top one signed, the others in [0, 2^16)."""
    size = 2 * limbs
    data = b"".join([x.to_bytes(size, "little", signed=True) for x in a.ravel().tolist()])
    words = np.frombuffer(data, dtype="<u2").reshape(*a.shape, limbs)
    result = np.ascontiguousarray(np.moveaxis(words, -1, 0), dtype=np.float64)
    result[-1] = np.frombuffer(data, dtype="<i2").reshape(*a.shape, limbs)[..., -1]
    return result


def _join(sums: npt.NDArray[np.int64]) -> IntegerArray:
    """The integers sum over i of sums[i]·2^(16 i)."""
    count, rows, columns = sums.shape
    limbs = count + 4  # the top carry is below 2^63 in magnitude: four more limbs hold it with its sign
    words = np.empty((rows, columns, limbs), dtype="<u2")
    carry = np.zeros((rows, columns), dtype=np.int64)
    for i in range(limbs):
        if i < count:
            carry = carry + sums[i]  # |sums| < 2^59 and |carry| < 2^47: no overflow
        words[..., i] = carry & 0xFFFF  # two's complement: the floor remainder, also for negative numbers
        carry >>= _LIMB  # floor division by 2^16
    data, size = words.tobytes(), 2 * limbs
    joined = np.empty(rows * columns, dtype=object)
    joined[:] = [int.from_bytes(data[k : k + size], "little", signed=True) for k in range(0, len(data), size)]
    return joined.reshape(rows, columns)
