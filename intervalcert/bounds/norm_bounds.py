"""The bounds of one layer's operator norm, from both sides: which method, on which number system."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal, get_args

from intervalcert.backends.escalation import describe, escalate, is_sharp
from intervalcert.backends.protocol import Backend, Matrix, Scalar
from intervalcert.errors import InconclusiveError, SoundnessError, UsageError
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.rounding import round_down, round_up
from intervalcert.numbers.text import decimal_lower, decimal_upper, shortest_exact
from intervalcert.proof.cholesky import Factor, cholesky_upper
from intervalcert.proof.norms import LOWER_BITS, MAX_ITERATIONS, Iterations, norm_lower, norm_upper
from intervalcert.search.factors import Guess

__all__ = ["METHODS", "LayerBound", "NormMethod", "Plan", "layer_bound"]

NormMethod = Literal["auto", "gram", "cholesky"]
METHODS: tuple[NormMethod, ...] = get_args(NormMethod)

LOWER_SLACK = Fraction(1, 2**40)
"""Lower bounds are published this part below what was found. They rest on a vector guessed in floats, which differs
from machine to machine by some 1e-15: with the slack, an audit elsewhere confirms them."""

SMALL = 16
"""Up to this side Gram iteration costs next to nothing, and often gives the very norm: `auto` tries both. Beyond it,
Cholesky alone: a factor is only kept if floats find it good, and then no other bound is noticeably tighter. (The choice
depends on shapes and on guesses, which all backends share: so each makes the one that exact rationals make.)"""


@dataclass(frozen=True)
class Plan:
    """How a layer is to be bounded.

    auto: by Cholesky and, for small layers, also by Gram iteration; the smaller of the two.
    gram: so many steps. cholesky: falls back to Gram iteration if there is no factor.
    claimed: prove this upper bound if possible, in place of the least one (for audits of what Cholesky gave).
    """

    method: NormMethod = "gram"
    iterations: Iterations = "auto"
    claimed: Fraction | None = None

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise UsageError(f"there is no method {self.method!r}: choose one of {', '.join(METHODS)}")
        count = self.iterations
        if count != "auto" and (type(count) is not int or not 0 <= count <= MAX_ITERATIONS):
            raise UsageError(f"{count!r} iterations: choose 0..{MAX_ITERATIONS}, or auto")


@dataclass(frozen=True)
class LayerBound:
    """lower <= ||W|| <= upper, and how it was found.

    `method` is gram or cholesky; `iterations` counts Gram steps; `computed_by` names the number system that settled it,
    and `refused` says why the ones before it did not.
    """

    shape: tuple[int, int]
    lower: Fraction
    upper: Fraction
    method: str
    iterations: int
    computed_by: str
    skipped_because: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.lower <= self.upper:
            raise SoundnessError(
                f"a {self.shape[0]} x {self.shape[1]} layer has the lower bound {shortest_exact(self.lower)} and the "
                f"upper bound {shortest_exact(self.upper)}: one of them is wrong, and so may be every other result"
            )

    def __repr__(self) -> str:
        rows, columns = self.shape
        norm = f"{decimal_lower(self.lower, 6)} to {decimal_upper(self.upper, 6)}"
        return f"<LayerBound of {rows} x {columns} weights: norm {norm}, by {self.method}>"

    def stated(self) -> LayerBound:
        """As it is published: the lower bound with its slack."""
        return replace(self, lower=round_down(self.lower * (1 - LOWER_SLACK), LOWER_BITS))


@dataclass(frozen=True)
class _Found:
    """What one number system gave."""

    upper: Scalar
    method: str
    iterations: int
    lower: Fraction


def layer_bound(
    weights: RationalMatrix,
    ladder: Sequence[Backend[Any]],
    plan: Plan,
    on_step: Callable[[], None] = lambda: None,
) -> LayerBound:
    """Bounds of the operator norm of a weight matrix from both sides, on the first number system with a sharp one.

    Guarantees: lower <= ||W|| <= upper, the latter a dyadic of `prec` bits. Raises: SoundnessError if they contradict.
    """
    guess = Guess(weights)
    direction = guess.direction()

    def compute(backend: Backend[Any]) -> _Found:
        matrix = backend.matrix(weights)
        lower = norm_lower(matrix, backend.matrix(direction), backend)
        by_factor = None if plan.method == "gram" else _by_factor(matrix, guess, plan.claimed, backend, lower)
        if by_factor is not None:
            on_step()
            if plan.method == "cholesky" or min(weights.shape) > SMALL:
                return by_factor
        try:
            upper, steps = norm_upper(matrix, backend, plan.iterations, on_step)
        except InconclusiveError:
            if by_factor is None:
                raise
            return by_factor
        by_gram = _Found(upper, "gram", steps, lower)
        return by_factor if by_factor and by_factor.upper.upper() <= upper.upper() else by_gram

    settled = escalate(ladder, compute, is_useful=lambda found: is_sharp(found.upper))
    found = settled.value
    return LayerBound(
        shape=weights.shape,
        lower=found.lower,
        # On `exact` the bound is a dyadic of prec bits already; rounding is monotone, so it stays on the safe side.
        upper=round_up(found.upper.upper(), settled.backend.prec),
        method=found.method,
        iterations=found.iterations,
        computed_by=describe(settled.backend),
        skipped_because=settled.skipped_because,
    )


def _by_factor(
    matrix: Matrix[Any], guess: Guess, claimed: Fraction | None, backend: Backend[Any], lower: Fraction
) -> _Found | None:
    """What Cholesky's method proves: the least that it can, or the claim if there is one and it can be proved."""

    def proved(factor: Factor | None) -> _Found | None:
        return None if factor is None else _Found(cholesky_upper(matrix, factor, backend), "cholesky", 0, lower)

    if claimed is not None:
        found = proved(guess.factor(claimed))
        if found is not None and found.upper.upper() <= claimed:
            return found
    return proved(guess.factor())
