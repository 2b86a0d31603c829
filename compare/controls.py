"""Certifiers that are broken on purpose, each in one place. A harness that does not catch them is worth nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from unittest.mock import patch

from intervalcert import Network, cholesky
from intervalcert.backends.exact import ExactBackend, ExactMatrix, ExactScalar
from intervalcert.backends.generic import GenericMatrix, hull_of_roots
from intervalcert.layerwise import Plan
from intervalcert.lipschitz import NetworkBounds, network_bounds
from intervalcert.protocol import Truth
from intervalcert.rational import RationalMatrix, RationalVector, sqrt_lower

__all__ = ["BOUND_CONTROLS", "VERDICT_CONTROLS"]

Matrix = tuple[tuple[Fraction, ...], ...]


# -- numbers that are rounded toward zero, as floats without directed rounding would be ------------------------------


def _toward_zero(x: Fraction, bits: int) -> Fraction:
    if x == 0:
        return x
    scale = Fraction(2) ** (bits - x.numerator.bit_length() + x.denominator.bit_length())
    return Fraction(int(x * scale)) / scale


@dataclass(frozen=True)
class _Truncated:
    """A number of `bits` bits; every operation forgets what does not fit."""

    value: Fraction
    bits: int

    def _of(self, value: Fraction) -> _Truncated:
        return _Truncated(_toward_zero(value, self.bits), self.bits)

    def __add__(self, other: _Truncated) -> _Truncated:
        return self._of(self.value + other.value)

    def __sub__(self, other: _Truncated) -> _Truncated:
        return self._of(self.value - other.value)

    def __mul__(self, other: _Truncated) -> _Truncated:
        return self._of(self.value * other.value)

    def __truediv__(self, other: _Truncated) -> _Truncated:
        return self._of(self.value / other.value)

    def lower(self) -> Fraction:
        return self.value

    def upper(self) -> Fraction:
        return self.value

    def less(self, other: _Truncated) -> Truth:
        return Truth.of(proved=self.value < other.value, refuted=self.value >= other.value)


@dataclass(frozen=True)
class _TruncatingBackend:
    prec: int
    name = "rounds toward zero"
    working_bits = None

    def refined(self) -> None:
        return None

    def scalar(self, value: Fraction) -> _Truncated:
        return _Truncated(_toward_zero(value, self.prec), self.prec)

    def hull(self, lower: Fraction, upper: Fraction) -> _Truncated:
        return self.scalar((lower + upper) / 2)

    def sqrt_upper(self, x: _Truncated) -> _Truncated:
        return hull_of_roots(x, self)

    def matrix(self, data: RationalMatrix) -> GenericMatrix[_Truncated]:
        return GenericMatrix.of(self, data)


# -- an exact backend whose rounding step is broken ------------------------------------------------------------------


class _WithoutError(ExactMatrix):
    """Cuts entries off toward zero and reports that nothing was lost."""

    def rounded(self, bits: int) -> tuple[ExactMatrix, ExactScalar]:
        cut = abs(self.numerators << bits) // self.denominator
        signs = (self.numerators > 0).astype(int) - (self.numerators < 0).astype(int)
        return _WithoutError(cut * signs.astype(object), 1 << bits), ExactScalar(Fraction(0))

    def gram(self) -> ExactMatrix:
        product = super().gram()
        return _WithoutError(product.numerators, product.denominator)

    def scaled(self, exponent: int) -> ExactMatrix:
        moved = super().scaled(exponent)
        return _WithoutError(moved.numerators, moved.denominator)


class _WithoutWidening(ExactMatrix):
    """Leaves the rounding step out: more digits than the reference keeps, so it falls below it."""

    def rounded(self, bits: int) -> tuple[ExactMatrix, ExactScalar]:
        return super().rounded(bits + 40)

    def gram(self) -> ExactMatrix:
        product = super().gram()
        return _WithoutWidening(product.numerators, product.denominator)

    def scaled(self, exponent: int) -> ExactMatrix:
        moved = super().scaled(exponent)
        return _WithoutWidening(moved.numerators, moved.denominator)


@dataclass(frozen=True)
class _WithMatrix(ExactBackend):
    """The exact backend with another kind of matrix."""

    kind: type[ExactMatrix] = ExactMatrix

    def matrix(self, data: RationalMatrix) -> ExactMatrix:
        return self.kind(data.numerators, data.denominator)


def _run(network: Network, backend: object, plan: Plan) -> NetworkBounds:
    return network_bounds(network, (backend,), [plan] * len(network.layers))  # type: ignore[arg-type]


def _truncating(network: Network, prec: int, plan: Plan) -> NetworkBounds:
    return _run(network, _TruncatingBackend(prec), plan)


def _without_error(network: Network, prec: int, plan: Plan) -> NetworkBounds:
    return _run(network, _WithMatrix(prec, _WithoutError), plan)


def _without_widening(network: Network, prec: int, plan: Plan) -> NetworkBounds:
    return _run(network, _WithMatrix(prec, _WithoutWidening), plan)


def _roots_from_below(network: Network, prec: int, plan: Plan) -> NetworkBounds:
    with patch.object(ExactBackend, "sqrt_upper", lambda self, x: ExactScalar(sqrt_lower(x.value, self.prec))):
        return _run(network, ExactBackend(prec), plan)


def _without_residual(network: Network, prec: int, plan: Plan) -> NetworkBounds:
    with patch.object(cholesky, "frobenius_upper", lambda _, backend: backend.scalar(Fraction(0))):
        return _run(network, ExactBackend(prec), plan)


_GRAM, _CHOLESKY = Plan("gram", 5), Plan("cholesky", 5)
BOUND_CONTROLS: dict[str, tuple[int, Plan, Callable[[Network, int, Plan], NetworkBounds]]] = {
    "rounding toward zero": (16, _GRAM, _truncating),
    "dropping the truncation error": (16, _GRAM, _without_error),
    "dropping the widening": (16, _GRAM, _without_widening),
    "a square root from below": (16, _GRAM, _roots_from_below),
    "a Cholesky factor that is believed": (64, _CHOLESKY, _without_residual),
}
"""(prec, plan, the broken computation)"""


# -- verdicts --------------------------------------------------------------------------------------------------------


def _winner_by_value(margins: Matrix, logits: RationalVector, eps: Fraction) -> bool:
    """Leaves out every class whose logit equals the largest: the tie-masking fault of a published certifier."""
    y = [Fraction(n, logits.denominator) for n in logits.numerators]
    j = y.index(max(y))
    return all(y[j] - y[i] > eps * margins[i][j] for i in range(len(y)) if y[i] != y[j])


def _eps_as_float(margins: Matrix, logits: RationalVector, eps: Fraction) -> bool:
    """Reads 0.3 as the float next to it, which is below."""
    y = [Fraction(n, logits.denominator) for n in logits.numerators]
    j = y.index(max(y))
    return all(y[j] - y[i] > Fraction(float(eps)) * margins[i][j] for i in range(len(y)) if i != j)


VERDICT_CONTROLS = {"excluding the winner by value": _winner_by_value, "eps read as a float": _eps_as_float}
