"""One ball, and everything that is alive as a linear image of it: how differences go through a graph of layers.

Let two inputs differ by Δ_0. There is a vector η with ||η|| <= ||Δ_0||, and the change of each value that is still
needed is C·η, for a matrix C that is known. At first η = Δ_0 and C = I. A linear map T of a value has the image T·C, a
sum of values the sum of their images: layers that add up several others are nothing special. In the end a change of
dᵀC·η is at most ||Cᵀd||·||Δ_0||. Two things may be done besides.

TO BEND.  Some rows X of images, x = Xη, go through functions of one variable: the k-th gives m_k·x_k + ν_k, and
|ν_k| <= ρ_k·|x_k| with ρ_k > 0 (of other functions, those with ρ_k = 0, only the linear part is there). Let v, w be
positive with ρ_k <= v_k·w_k, and Y = V·X. Then

    ηᵀ(I - YᵀY)η + Σ (ν_k/w_k)² <= ||η||²,           because (ν_k/w_k)² <= (v_k·x_k)².                              (1)

So η and ν are images of another vector no longer than η. Its last part is (ν_k/w_k)_k: ν_k has the image w_k there. The
first part η' gives η, in one of two ways.

* Inside: G has as many rows and columns as η has entries, and Gᵀ(I - YᵀY)G >= I in the Loewner order. Then G is
  invertible; η' = G⁻¹η has ||η'||² <= η'ᵀGᵀ(I - YᵀY)Gη' = ηᵀ(I - YᵀY)η. So η = G·η', C becomes C·G.
* Outside: G has as many as there are rows in X, and Gᵀ(I - YYᵀ)G >= I. Let η' = (a, b), a = (I - YᵀY)η, b = G⁻¹Yη. Then
  a + YᵀG·b = η, so C becomes (C, C·YᵀG). And with Q = YᵀY, since I - YYᵀ >= (GGᵀ)⁻¹,

      ||a||² + ||b||² = ηᵀ(I - Q)²η + (Yη)ᵀ(GGᵀ)⁻¹(Yη) <= ηᵀ((I - Q)² + Yᵀ(I - YYᵀ)Y)η = ηᵀ((I - Q)² + Q - Q²)η,

  which is ηᵀ(I - Q)η. Where few rows bend, this is the shorter one.

Functions of several variables at once, with Σ ν_k² <= ρ²·Σ x_k², are covered if all v are equal, and all w are.

ANOTHER BALL.  Let N have the images of all that is alive as rows. If NNᵀ <= LLᵀ, there is an η' no longer than η with
Nη = Lη', so the rows of L may be the images from then on. Proof. LLᵀd = 0 implies NNᵀd = 0: every column of N is among
the images of L, so N = L·D with D = L⁺N (the pseudoinverse), and DDᵀ = L⁺NNᵀL⁺ᵀ <= L⁺LLᵀL⁺ᵀ, a projection, so
||D|| <= 1. Take η' = Dη. A square L has one column for each row that is alive; N may have had many more.

WITH PRODUCTS ALONE.  A >= B - r·I for symmetric A, B with ||A - B||_F <= r. So, for any G, L and numbers e, s,

    ||(1 + e)·I - Gᵀ(I - YᵀY)G||_F < e   proves  Gᵀ(I - YᵀY)G >= I,   and likewise outside,
    ||LLᵀ - NNᵀ - s·I||_F < s             proves  LLᵀ >= NNᵀ.

All guesses are floats with few bits; `search.images` makes them. L is a point: what was not known exactly of the images
is forgotten there. Before, each row is divided by a power of two near its size, `units`, so that s is as small for all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from intervalcert.backends.protocol import Backend, Floats, Indices, Matrix
from intervalcert.errors import UndecidedError
from intervalcert.proof.data import Witness
from intervalcert.proof.ellipsoids import are_finite, covers, is_below, multiple, point

__all__ = [
    "Bending",
    "Compression",
    "Head",
    "bending_residual",
    "beside",
    "check_bending",
    "check_compression",
    "compression_residual",
    "row_squares_upper",
]

_MOST_APART = 500
"""Units are between 2^-500 and 2^500."""

_ROWS_AT_ONCE = 64
"""Of which the products with each other are taken, for their own: little more work than that, and little more error."""


@dataclass(frozen=True, eq=False, repr=False)
class Bending(Witness):
    """v and w of the rows that bend, G (g) and e; inside: in which of the two ways."""

    v: Floats
    w: Floats
    g: Floats
    e: float
    inside: bool


@dataclass(frozen=True, eq=False, repr=False)
class Compression(Witness):
    """L (factor), s (slack), and the units of the rows. turn: when it is, of all times when it could be."""

    factor: Floats
    units: Floats
    slack: float
    turn: int = 0


@dataclass(frozen=True, eq=False)
class Head:
    """What becomes of images when rows bend: C·G inside (`turn`), (C, C·H) outside (`more`, H = YᵀG)."""

    turn: Matrix[Any] | None = None
    more: Matrix[Any] | None = None

    def of(self, image: Matrix[Any]) -> Matrix[Any]:
        """Of an image: what it is of η'."""
        if self.turn is not None:
            return image @ self.turn
        if self.more is None:
            return image
        return beside([image, image @ self.more])

    def width(self, before: int) -> int:
        """Entries of η', if η has so many."""
        return before if self.more is None else before + self.more.shape[1]


def beside(parts: Sequence[Matrix[Any]]) -> Matrix[Any]:
    """Columns after columns."""
    first, *others = (part.transposed() for part in parts)
    return first.stacked(others).transposed() if others else parts[0]


def row_squares_upper(rows: Matrix[Any]) -> Floats:
    """Floats that are at least the squared norm of each row."""
    found = []
    count, width = rows.shape
    every: Indices = np.arange(width)
    for start in range(0, count, _ROWS_AT_ONCE):
        part = rows.block(np.arange(start, min(start + _ROWS_AT_ONCE, count)), every)
        found.append((part @ part.transposed()).float_bounds()[1].diagonal())
    return np.concatenate(found)


def check_bending(step: Bending, spread: Floats, rows: Matrix[Any], backend: Backend[Any]) -> Head:
    """Proves that (η', ν/w) is no longer than η, for rows X that bend by `spread`, all above 0.

    Raises: UndecidedError unless it is proved.
    """
    residual, head = bending_residual(step, spread, rows, backend)
    if not is_below(residual, step.e, backend):
        raise UndecidedError("what bends is not proved to be bounded")
    return head


def bending_residual(
    step: Bending, spread: Floats, rows: Matrix[Any], backend: Backend[Any]
) -> tuple[Matrix[Any], Head]:
    """What must be below e, and what becomes of images if it is. Raises: UndecidedError for what is no such step."""
    count, width = rows.shape
    side = width if step.inside else count
    if step.g.shape != (side, side) or any(x.shape != (count,) for x in (step.v, step.w, spread)):
        raise UndecidedError("what bends is of other rows")
    if type(step.inside) is not bool or not are_finite(step.g, step.e, step.v, step.w, spread):
        raise UndecidedError("numbers of what bends are not finite")
    if not (covers(step.v, step.w, spread) and (spread > 0).all()):
        raise UndecidedError("numbers of what bends do not cover a sector")
    g, y = point(step.g, backend), rows.diag_scaled(step.v, np.ones(width))
    turned = g.transposed()
    moved = y @ g if step.inside else y.transposed() @ g  # YG, or YᵀG
    product = turned @ g - moved.transposed() @ moved  # Gᵀ(I - YᵀY)G, or Gᵀ(I - YYᵀ)G
    residual = multiple(1 + Fraction(step.e), side, backend) - product
    return residual, Head(turn=g) if step.inside else Head(more=moved)


def check_compression(step: Compression, rows: Matrix[Any], backend: Backend[Any]) -> Matrix[Any]:
    """The rows of L, times their units: proves that they may stand for the rows N. Raises: UndecidedError otherwise."""
    residual, images = compression_residual(step, rows, backend)
    if not is_below(residual, step.slack, backend):
        raise UndecidedError("another ball is not proved to be large enough")
    return images


def compression_residual(
    step: Compression, rows: Matrix[Any], backend: Backend[Any]
) -> tuple[Matrix[Any], Matrix[Any]]:
    """What must be below s, and the rows of L, times their units. Raises: UndecidedError for what is no such step."""
    count, width = rows.shape
    if step.factor.ndim != 2 or not step.factor.size or not len(step.factor) == len(step.units) == count:
        raise UndecidedError("another ball is of other rows")
    if step.units.ndim != 1 or not are_finite(step.factor, step.slack) or not _are_powers_of_two(step.units):
        raise UndecidedError("numbers of another ball are not finite, or no powers of two")
    scaled = rows.diag_scaled(1 / step.units, np.ones(width))
    factor = point(step.factor, backend)
    residual = factor @ factor.transposed() - scaled @ scaled.transposed() - multiple(step.slack, count, backend)
    return residual, factor.diag_scaled(step.units, np.ones(step.factor.shape[1]))


def _are_powers_of_two(units: Floats) -> bool:
    """Of a moderate size; so they are divided by exactly."""
    mantissas, exponents = np.frexp(units)
    return bool((mantissas == 0.5).all() and (np.abs(exponents) < _MOST_APART).all())
