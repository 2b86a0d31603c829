"""Margin bounds tighter than the product of norms: one quadratic bound is carried through all layers.

Let Δ_l be the difference of the outputs of layer l for two inputs, Δ_0 that of the inputs. The chain keeps a positive
definite matrix P_l with

    (*)    Δ_lᵀ P_l⁻¹ Δ_l  <=  ||Δ_0||²          for all pairs of inputs;           P_0 = I.

The lead of class j over class i changes by dᵀΔ with d = W_n[j] - W_n[i], and (dᵀΔ)² <= (dᵀPd)·(ΔᵀP⁻¹Δ) by Cauchy and
Schwarz, so L[i][j] = sqrt(dᵀ P d) bounds it. The product bound is the chain with P_l = ||W_l||²·…·||W_1||²·I; for a
single layer both are ||d||.

One step, for an activation whose difference quotients lie in [0, 1] in each component (ReLU, tanh, …; quotients in
[0, b] are b times such). With S = W P Wᵀ for the P before the layer, and any positive diagonal Λ, let X = Λ - ¼ΛSΛ.

    If X is positive definite, (*) holds after the layer for every P' >= X⁻¹ in the Loewner order.

Proof. Let v = Δ_{l-1}, Δ = Δ_l. Each component of Δ is that of Wv times a number in [0, 1], so (Wv - Δ)ᵀΛΔ >= 0. Hence
||Δ_0||² >= vᵀP⁻¹v >= vᵀP⁻¹v - (Wv - Δ)ᵀΛΔ. The right side is convex in v and least at v = ½PWᵀΛΔ, where it is
ΔᵀΛΔ - ¼ΔᵀΛSΛΔ = ΔᵀXΔ >= Δᵀ(P')⁻¹Δ. Nothing is asked of the shape or the rank of W.
For another activation of constant b, ||Δ|| <= b·||Wv|| and ||Wv||² <= ||S||·||Δ_0||²: P' = b²·t·I with t >= ||S||, as
in the product. With Λ = (2/σ)·I for σ >= ||S||, X >= (1/σ)·I: never worse than the product, up to rounding.

With products alone. Floats guess Λ, P', a number e, and a triangular L with L·Lᵀ ~ X - m·I. With R = P' - e·I,
    X >= (m - ||X - m·I - L·Lᵀ||_F)·I =: x·I;    if ||I - X·R||_F < e·x, then x > 0 and X⁻¹ <= R + e·I = P',
because X⁻¹ - R = X⁻¹(I - XR) is symmetric and of norm at most ||I - XR||/x. This is checked on the number system at
hand. The guesses are the same for all of them, and P' is a point again: no error is carried from layer to layer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from intervalcert.errors import UndecidedError
from intervalcert.network import Layer, Network
from intervalcert.norms import frobenius_upper
from intervalcert.protocol import Backend, Scalar
from intervalcert.rational import RationalMatrix, dyadic_value

__all__ = ["Chain", "chain_squares", "guess_chain"]

Floats = npt.NDArray[np.float64]

_SHRINK = 2.0**-40
"""m is below the least eigenvalue of X by this part of it, times the side: enough for Cholesky's method to succeed."""

_SLACK = 2.0**-43
"""e is this part of 1/m, times the square of the side: more than float64 loses in the products above."""


@dataclass(frozen=True, eq=False)
class _Step:
    """The guesses of one hidden layer. S is on the scale 2^exponent, P' without the constant of the activation.

    For a sector Λ = factor·I, and least, slack are m, e. Otherwise P' = factor·I, and L·Lᵀ ~ least·I - S.
    """

    exponent: int
    factor: float
    least: float
    slack: float
    triangle: Floats
    after: Floats

    @property
    def side(self) -> int:
        return len(self.after)


Chain = tuple[_Step, ...]


# -- guessing --------------------------------------------------------------------------------------------------------


def guess_chain(network: Network) -> Chain | None:
    """Floats for every hidden layer; None if they break down somewhere (a zero layer, say)."""
    steps: list[_Step] = []
    for layer in network.layers[:-1]:
        try:
            steps.append(_guess(layer, steps[-1].after if steps else None))
        except (np.linalg.LinAlgError, FloatingPointError):
            return None
    return tuple(steps)


def _guess(layer: Layer, before: Floats | None) -> _Step:
    near = layer.weights.near_floats()
    w, side = near.values, near.values.shape[0]
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        s = w @ w.T if before is None else w @ before @ w.T
        s = (s + s.T) / 2
        top = float(np.linalg.eigvalsh(s)[-1])
        if not 0 < top < math.inf:
            raise FloatingPointError("no positive eigenvalue")
        power = math.frexp(top)[1]
        s, top = np.ldexp(s, -power), math.ldexp(top, -power) * (1 + side * _SHRINK)
        exponent, eye = power + 2 * near.exponent, np.eye(side)
        if not _is_sector(layer):
            size = top * (1 + side * side * _SLACK)
            triangle = np.linalg.cholesky(top * eye - s)
            if not np.isfinite(triangle).all():
                raise FloatingPointError("not a matrix of numbers")
            return _Step(exponent, size, top, 0.0, triangle, size * eye)
        factor = 2 / top
        x = factor * eye - factor * factor / 4 * s
        least = (1 - side * _SHRINK) / top
        slack = side * side * _SLACK / least
        inverse = np.linalg.inv(x)
        after = (inverse + inverse.T) / 2 + slack * eye  # symmetric, whatever `inv` did: the proof needs that
        triangle = np.linalg.cholesky(x - least * eye)
        if not (np.isfinite(after).all() and np.isfinite(triangle).all()):
            raise FloatingPointError("not a matrix of numbers")
        return _Step(exponent, factor, least, slack, triangle, after)


def _is_sector(layer: Layer) -> bool:
    return layer.activation is not None and layer.activation.is_sector


# -- proving ---------------------------------------------------------------------------------------------------------


def chain_squares(
    network: Network, chain: Chain, pairs: Sequence[tuple[int, int]], backend: Backend[Any]
) -> list[Scalar]:
    """L[i][j]² for the pairs (i, j).

    Guarantees: each encloses the value of the exact run with the same guesses, whose root bounds that margin's rate.
    Raises: UndecidedError if a guess is not proved here.
    """
    gain = Fraction(1)
    for index, (layer, step) in enumerate(zip(network.layers[:-1], chain, strict=True)):
        _check(layer, step, chain[index - 1] if index else None, backend)
        gain *= dyadic_value(1, step.exponent) * (layer.activation.lipschitz**2 if layer.activation else 1)
    leads = backend.matrix(_differences(network.layers[-1].weights, pairs))
    moved = leads @ backend.matrix(RationalMatrix.from_floats(chain[-1].after)) if chain else leads
    scale = backend.scalar(gain)
    # dᵀPd is not negative, and the root of the square of a 1 x 1 matrix.
    return [frobenius_upper(moved.row(k) @ leads.row(k).transposed(), backend) * scale for k in range(len(pairs))]


def _check(layer: Layer, step: _Step, before: _Step | None, backend: Backend[Any]) -> None:
    """Raises: UndecidedError unless P' is proved to be as large as it must be."""

    def multiple(number: float) -> Any:
        return backend.matrix(RationalMatrix.from_floats(number * np.eye(step.side)))

    w = backend.matrix(layer.weights)
    s = w if before is None else w @ backend.matrix(RationalMatrix.from_floats(before.after))
    s = (s @ w.transposed()).scaled(-step.exponent)
    remainder = backend.matrix(RationalMatrix.from_floats(step.triangle)).gram()
    least = backend.scalar(Fraction(step.least))
    if not _is_sector(layer):  # ||S|| <= m + ||m·I - S - L·Lᵀ||_F < factor
        norm = least + frobenius_upper(multiple(step.least) - s - remainder, backend)
        proved = norm.less(backend.scalar(Fraction(step.factor)))
    else:
        x = multiple(step.factor) - s.times(backend.scalar(Fraction(step.factor) ** 2 / 4))
        smallest = least - frobenius_upper(x - multiple(step.least) - remainder, backend)
        r = backend.matrix(RationalMatrix.from_floats(step.after)) - multiple(step.slack)
        off = frobenius_upper(multiple(1.0) - x @ r, backend)
        # A norm is not negative and the slack is positive: this proves x > 0, too.
        proved = off.less(backend.scalar(Fraction(step.slack)) * smallest)
    if not proved.certainly():
        raise UndecidedError("a chain's matrix is not proved to be large enough")


def _differences(weights: RationalMatrix, pairs: Sequence[tuple[int, int]]) -> RationalMatrix:
    """The rows W[j] - W[i], exactly."""
    numerators = weights.numerators
    lower, upper = (np.array([pair[side] for pair in pairs]) for side in (0, 1))
    return RationalMatrix(numerators[upper] - numerators[lower], weights.denominator)
