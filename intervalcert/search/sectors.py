"""Sectors for neurons around a known point, as floats: what `proof.sectors` checks."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from intervalcert.backends.protocol import Floats
from intervalcert.model.activations import PiecewiseLinear
from intervalcert.proof.ellipsoids import Sector
from intervalcert.proof.sectors import GRID, quotient_bounds

__all__ = ["sector_around"]


def sector_around(
    function: PiecewiseLinear, low: Floats, high: Floats, reach: Floats, least_factor: Fraction = Fraction(1)
) -> Sector:
    """A sector that holds the quotients, as floats on the grid of the proof.

    Raises: FloatingPointError for numbers beyond the floats.
    """
    if not all(np.isfinite(x).all() for x in (low, high, reach)):
        raise FloatingPointError("values, or reaches, beyond the floats")
    least, most, denominator = quotient_bounds(function, low, high, reach, least_factor)
    unit = denominator >> GRID
    floor, ceiling = (least // unit).astype(np.float64), (-(-most // unit)).astype(np.float64)
    scale = 2.0 ** -(GRID + 1)
    return Sector((floor + ceiling) * scale, (ceiling - floor) * scale)
