"""What proofs about floats assume of the process that they run in, tested.

Rounding modes and the flushing of subnormal numbers are settings of a thread, which any library may change.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["arithmetic_fault", "product_fault"]

_U, _ETA = 2.0**-53, 2.0**-1074

_ROUNDED = ((_U, 1.0), (0.75 * _U, 1.0), (1.5 * _U, 1.0 + 2 * _U), (_U + _U / 2**12, 1.0 + 2 * _U))
"""y, and what 1 + y rounds to: a tie goes to the even neighbour; the last is wrong if rounded twice, as on an x87."""


def arithmetic_fault() -> str | None:
    """What Python's floats or numpy's loops do otherwise than IEEE-754 double precision; None if nothing is found."""
    for y, nearest in _ROUNDED:
        for sign in (1.0, -1.0):
            if sign + sign * y != sign * nearest or (np.full(9, sign) + sign * y != sign * nearest).any():
                return "sums are not rounded to nearest"
    # Where subnormal numbers are read as zero, comparisons do so too: so their bits are compared. Those of η are 1.
    if (_bits(np.full(9, 2.0**-537) * 2.0**-537) != 1).any():
        return "numbers below 2^-1022 are flushed to zero"
    single = np.full(9, 2.0**-149, dtype=np.float32).astype(np.float64)
    if (_bits(np.full(9, _ETA) + _ETA) != 2).any() or (single == 0).any():
        return "subnormal numbers are read as zero"
    return None


def product_fault() -> str | None:
    """The same of BLAS, on matrices large enough to be shared out among its threads."""
    ones, tiny = np.ones((64, 64)), np.full((64, 64), 2.0**-537)
    for y, nearest in _ROUNDED:
        left = np.zeros((64, 64))
        left[:, 0], left[:, 1] = 1.0, y  # the other terms of each sum are zero, in whatever order
        if (left @ ones != nearest).any() or (-left @ ones != -nearest).any():
            return "BLAS does not round to nearest"
    if (_bits(np.diag(tiny[0]) @ tiny) != 1).any():
        return "BLAS flushes numbers below 2^-1022 to zero"
    if (_bits(np.eye(64) @ np.full((64, 64), _ETA)) != 1).any():
        return "BLAS reads subnormal numbers as zero"
    return None


def _bits(x: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    return x.view(np.int64)
