"""Floats for what `proof.images` checks, names as there: rows that bend, another ball. Nothing here is trusted.

Backwards: for a direction d at the end, the vector η that changes dᵀC·η most is along Cᵀd. What it was before each step
follows from there (`Bend.before`, `Ball.before`), and so do the two sides of (1) for each row that bends: the way to
better multipliers is that of `multipliers`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from intervalcert.backends.protocol import Floats
from intervalcert.proof.images import Bending, Compression

__all__ = ["Ball", "Bend", "first_weights", "guess_ball", "guess_bend"]

_SLACK = 2.0**-43
_SMALL = 256
_MOST = 2.0**-2
"""e is the first, times the side of G (not less than the second), times ||G||_F²; none beyond the third is tried.

Rows carry rounding errors of all that they are made of: what few of them lose does not depend on how few they are.
"""

_ROUNDING = 2.0**-43
"""s is this, times the longer side of N, ||N||_F², and how far its units are apart: more than float64 loses."""

_GRID = 44
"""L and G are multiples of 2^-44 of a power of two near their size; so many bits has v: """
_BITS = 20

_NORM, _FEW = 0.4, 32
"""The norm of YYᵀ that first weights aim at; so few rows have matrices small enough for their norms themselves."""

_SHORT, _SHORTEST = 2.0**-14, 2.0**-4
"""Rows are taken for at least so long, as parts of the longest: when they bend, and in another ball. What rounding
loses is known of all rows together, and divided by their units.
"""

_BLOCK = 128
"""Rows that are solved for at once."""


@dataclass(frozen=True, eq=False)
class Bend:
    """A step, and what floats know of it besides: Y = V·X."""

    step: Bending
    y: Floats

    @property
    def head(self) -> Floats:
        """What takes η' to η inside; outside H = YᵀG."""
        found: Floats = self.step.g if self.step.inside else self.y.T @ self.step.g
        return found

    def before(self, after: Floats) -> tuple[Floats, Floats, Floats]:
        """η from (η', ν/w), in columns; and of each row that bends the sums of both sides of (1)."""
        count, width = self.y.shape
        tail = after[len(after) - count :]
        if self.step.inside:
            eta = self.step.g @ after[:width]
        else:
            eta = after[:width] + self.y.T @ (self.step.g @ after[width : width + count])
        return eta, ((self.y @ eta) ** 2).sum(axis=1), (tail**2).sum(axis=1)


@dataclass(frozen=True, eq=False)
class Ball:
    """Another ball: the witness, and the rows N over their units."""

    step: Compression
    rows: Floats

    def before(self, after: Floats) -> Floats:
        """η = Nᵀ·L⁻ᵀ·η': then Nη is near Lη', and η as long as η'."""
        return self.rows.T @ _solved(self.step.factor.T, after)


def _solved(upper: Floats, right: Floats) -> Floats:
    """U⁻¹·x for an upper triangular U, from the end backwards."""
    made = right.copy()
    for stop in range(len(upper), 0, -_BLOCK):
        part = slice(max(0, stop - _BLOCK), stop)
        made[part] -= upper[part, stop:] @ made[stop:]
        made[part] = np.linalg.solve(upper[part, part], made[part])
    return made


def first_weights(rows: Floats, spread: Floats) -> Floats:
    """v² = c·ρ/||row|| with ||YYᵀ|| ~ 0.4; rows that are next to nothing beside others count for a little more."""
    sizes = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    v: Floats = np.sqrt(spread / np.maximum(sizes, float(sizes.max()) * _SHORT + 2.0**-50))
    if len(v) <= _FEW:
        y = v[:, None] * rows
        norm = float(np.linalg.norm(y @ y.T, 2))
        return v * math.sqrt(_NORM / max(norm, 2.0**-500))
    x, norm = v.copy(), 1.0
    for _ in range(12):  # power iteration: a guess is enough, but for few rows, where it may miss by much
        size = float(np.linalg.norm(x))
        if not size:
            return v
        x = v * (rows @ (rows.T @ (v * (x / size))))
        norm = float(np.linalg.norm(x))
    return v * math.sqrt(_NORM / max(norm, 2.0**-500))


def guess_bend(rows: Floats, spread: Floats, v: Floats, *, inside: bool, room: float = 1.0) -> Bend:
    """room: how many times the usual e. Raises: LinAlgError if nothing is positive definite, as far as floats tell."""
    v = _short(v)
    w = np.nextafter(np.nextafter(spread / v, np.inf), np.inf)  # v·w >= ρ must hold exactly
    y = v[:, None] * rows
    product = y.T @ y if inside else y @ y.T
    side = len(product)
    g = np.linalg.inv(np.linalg.cholesky(np.eye(side) - product)).T
    wide = max(side, _SMALL)
    e = wide * max(float((g * g).sum()), wide) * _SLACK * room
    if not e < _MOST:
        raise FloatingPointError("a matrix too far from well conditioned for the chain")
    unit = _unit(float(np.max(np.abs(g))), _GRID - 3)
    return Bend(Bending(v, w, np.rint(g * math.sqrt(1 + e) / unit) * unit, e, inside), y)


def guess_ball(rows: Floats, room: float = 1.0) -> Ball:
    """room: how many times the usual s. Raises: LinAlgError if floats find none."""
    sizes = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    units = np.ldexp(1.0, np.frexp(np.maximum(sizes, float(sizes.max()) * _SHORTEST + 2.0**-200))[1])
    scaled = rows / units[:, None]
    gram = scaled @ scaled.T
    apart = float(units.max() / units.min())
    slack = max(*rows.shape, _SMALL) * float(np.trace(gram)) * _ROUNDING * apart * room
    gram.flat[:: len(gram) + 1] += slack
    factor = np.linalg.cholesky(gram)
    unit = _unit(float(np.max(np.abs(factor))), _GRID)
    return Ball(Compression(np.rint(factor / unit) * unit, units, slack), scaled)


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
