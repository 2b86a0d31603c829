"""The bounds of one layer's operator norm, from both sides: which method, on which number system."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from intervalcert.backends.escalation import describe, escalate, is_sharp
from intervalcert.backends.protocol import Backend
from intervalcert.errors import SoundnessError, UsageError
from intervalcert.model.layers import INPUT
from intervalcert.model.linear_maps import LinearMap
from intervalcert.numbers.rounding import round_up
from intervalcert.numbers.text import decimal_lower, decimal_upper, shortest_exact
from intervalcert.proof.layer_norms import CLAIMED, NormWitness, check_norm
from intervalcert.proof.norms import MAX_ITERATIONS, Iterations
from intervalcert.search.layer_norms import METHODS, NormMethod, search_norm

__all__ = ["CLAIMED", "METHODS", "LayerBound", "NormMethod", "Plan", "layer_bound", "prove_norm", "what_proved"]


@dataclass(frozen=True)
class Plan:
    """How a layer is to be bounded.

    auto: by Cholesky and, for small layers, also by Gram iteration; the smaller of the two.
    gram: so many steps. cholesky: or Gram iteration, where floats find no factor.
    """

    method: NormMethod = "gram"
    iterations: Iterations = "auto"

    def __post_init__(self) -> None:
        if self.method not in METHODS:
            raise UsageError(f"there is no method {self.method!r}: choose one of {', '.join(METHODS)}")
        count = self.iterations
        if count != "auto" and (type(count) is not int or not 0 <= count <= MAX_ITERATIONS):
            raise UsageError(f"{count!r} iterations: choose 0..{MAX_ITERATIONS}, or auto")


@dataclass(frozen=True)
class LayerBound:
    """lower <= ||T|| <= upper for a linear map of a network, and how it was found.

    `method` is one of `CLAIMED`; `iterations` counts Gram steps; `computed_by` names the number system that settled it,
    and `skipped_because` why the ones before it did not.
    layer, source: which branch of the network it is of (`network.Branch`); what: its kind, for people.
    """

    shape: tuple[int, int]
    lower: Fraction
    upper: Fraction
    method: str
    iterations: int
    computed_by: str
    skipped_because: tuple[str, ...] = ()
    layer: int = 0
    source: int = INPUT
    what: str = "dense"

    def __post_init__(self) -> None:
        if not 0 <= self.lower <= self.upper:
            raise SoundnessError(
                f"a {self.shape[0]} x {self.shape[1]} layer has the lower bound {shortest_exact(self.lower)} and the "
                f"upper bound {shortest_exact(self.upper)}: one of them is wrong, and so may be every other result"
            )

    def __repr__(self) -> str:
        rows, columns = self.shape
        norm = f"{decimal_lower(self.lower, 6)} to {decimal_upper(self.upper, 6)}"
        what = "weights" if self.what == "dense" else f"({self.what})"
        return f"<LayerBound of {rows} x {columns} {what}: norm {norm}, by {self.method}>"


def layer_bound(
    linear: LinearMap,
    ladder: Sequence[Backend[Any]],
    plan: Plan,
    on_step: Callable[[], None] = lambda: None,
) -> LayerBound:
    """Bounds of the operator norm of a linear map: a witness is searched for by the plan, and proved."""
    return prove_norm(linear, search_norm(linear, plan.method, plan.iterations), ladder, on_step)


def prove_norm(
    linear: LinearMap,
    witness: NormWitness,
    ladder: Sequence[Backend[Any]],
    on_step: Callable[[], None] = lambda: None,
) -> LayerBound:
    """What a witness shows of the operator norm of a map, on the first number system that gives a sharp bound.

    Guarantees: lower <= ||T|| <= upper, the latter a dyadic of `prec` bits. Raises: SoundnessError if they contradict;
    InconclusiveError if the witness shows nothing, on none of them.
    """
    found = escalate(
        ladder, lambda backend: check_norm(linear, witness, backend, on_step), lambda claim: is_sharp(claim.upper)
    )
    claim = found.value
    return LayerBound(
        shape=linear.shape,
        lower=claim.lower,
        # On `exact` the bound is a dyadic of prec bits already; rounding is monotone, so it stays on the safe side.
        upper=round_up(claim.upper.upper(), found.backend.prec),
        method=claim.method,
        iterations=claim.steps,
        computed_by=describe(found.backend),
        skipped_because=found.skipped_because,
        what=str(linear),
    )


def what_proved(witness: NormWitness, bound: LayerBound) -> NormWitness:
    """The part of a witness that proved this bound: whoever checks it again needs no other."""
    if bound.method == "gram":
        return replace(witness, factor=None, steps=bound.iterations)
    return replace(witness, steps=None)
