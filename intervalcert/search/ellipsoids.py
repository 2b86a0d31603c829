"""Floats for one layer of a chain: witnesses that `proof.ellipsoids` checks, names as there. Nothing here is trusted.

All are multiples of a power of two, with few bits, the same on all number systems.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from intervalcert.backends.protocol import Floats
from intervalcert.proof.ellipsoids import LoewnerMajorant, Sector, Step

__all__ = ["GuessedStep", "guess_inner", "guess_majorant", "guess_step"]

_SLACK = 2.0**-43
"""e is this, times the side, times ||G||_F²; l and s are the same part of norms. More than float64 loses in products,
and more than the grids below lose."""

_SMALL = 16
"""Narrower layers get the slack of this side: the grids below are as coarse for them."""

_MOST = 2.0**-2
"""No e beyond this is tried."""

_GRID = 44
"""S', R and P' are multiples of 2^-44 of a power of two near their size, and G of 2^-41: of 45 bits or so."""

_BITS = 20
"""So many bits has v."""


@dataclass(frozen=True, eq=False)
class GuessedStep:
    """A step, and what else floats know of it, for better multipliers: S', and H of the bending neurons."""

    step: Step
    s: Floats
    h: Floats


def guess_majorant(s: Floats) -> LoewnerMajorant:
    """For the S that floats take for `s`."""
    lift = float(np.linalg.norm(s)) * max(len(s), _SMALL) ** 2 * _SLACK
    return LoewnerMajorant(*_raised(_symmetric(s), np.full(len(s), lift)), lift)


def _raised(x: Floats, by: Floats) -> tuple[Floats, Floats]:
    """The matrix on a grid, and the same with the diagonal raised by as much at least."""
    unit = _unit(max(float(np.max(np.abs(x))), float(np.max(by))), _GRID)
    near: Floats = np.rint(x / unit) * unit
    above = near.copy()
    above.flat[:: len(x) + 1] = (np.ceil((near.diagonal() + by) / unit) + 1) * unit
    return near, above


def guess_step(s: Floats, sector: Sector, v: Floats) -> GuessedStep:
    """The guesses that go with S' and a v. Raises: LinAlgError if K is not positive definite, as far as floats tell."""
    side = len(s)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        v, w = np.where(sector.spread > 0, v, 0.0), np.zeros(side)
        v = _short(v)
        np.divide(sector.spread, v, out=w, where=sector.spread > 0)
        w = np.where(w > 0, np.nextafter(np.nextafter(w, np.inf), np.inf), 0.0)  # v·w >= ρ must hold exactly
        some = np.flatnonzero(v)
        g, e = _guess_inverse(s[np.ix_(some, some)], v[some])
        h = s[:, some] @ (v[some, None] * g)
        core = _symmetric(sector.middle[:, None] * (s + h @ h.T) * sector.middle)
        slack = max(float(np.linalg.norm(core)), float(np.max(w * w))) * max(side, _SMALL) ** 2 * _SLACK
        core, after = _raised(core, w * w + slack)
    if not all(np.isfinite(x).all() for x in (after, g, v, w)):
        raise FloatingPointError("not a matrix of numbers")
    return GuessedStep(Step(sector, v, w, g, core, after, e, slack), s, h)


def guess_inner(s: Floats, v: Floats) -> Step:
    """That K > 0, and B, alone: the step for slopes of 1 and no spread. Raises: as `guess_step`."""
    side = len(s)
    some = np.flatnonzero(v)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        g, e = _guess_inverse(s[np.ix_(some, some)], v[some])
        h = s[:, some] @ (v[some, None] * g)
        core = _symmetric(s + h @ h.T)
        slack = float(np.linalg.norm(core)) * max(side, _SMALL) ** 2 * _SLACK
        core, after = _raised(core, np.full(side, slack))
    nothing = np.zeros(side)
    return Step(Sector(np.ones(side), nothing), v, nothing, g, core, after, e, slack)


def _guess_inverse(s: Floats, v: Floats) -> tuple[Floats, float]:
    """G and e, of the bending neurons."""
    side = len(v)
    if not side:
        return np.zeros((0, 0)), 0.0
    g = np.linalg.inv(np.linalg.cholesky(np.eye(side) - v[:, None] * s * v)).T
    wide = max(side, _SMALL)
    e = wide * max(float((g * g).sum()), wide) * _SLACK
    if not e < _MOST:
        raise FloatingPointError("a matrix too far from well conditioned for the chain")
    unit = _unit(float(np.max(np.abs(g))), _GRID - 3)
    return np.rint(g * math.sqrt(1 + e) / unit) * unit, e


def _symmetric(x: Floats) -> Floats:
    """The proof needs this, whatever the library did."""
    found: Floats = (x + x.T) / 2
    return found


def _unit(largest: float, bits: int) -> float:
    """The power of two that is 2^-bits of the one above `largest`; multiplying by it is exact."""
    if not 2.0**-900 < largest < 2.0**900:
        raise FloatingPointError("numbers at the ends of the floats, or none")
    return 2.0 ** (math.frexp(largest)[1] - bits)


def _short(x: Floats) -> Floats:
    """Rounded to few bits."""
    mantissa, exponent = np.frexp(x)
    found: Floats = np.ldexp(np.rint(mantissa * 2.0**_BITS), exponent - _BITS)
    return found
