"""Checking a bounds file against its model with exact rationals, trusting nothing in the file but its claims."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from intervalcert.backends.protocol import Backend
from intervalcert.bounds.costs import exact_seconds, usual_seconds
from intervalcert.bounds.margin_bounds import MarginPlan, Margins, network_bounds
from intervalcert.bounds.norm_bounds import LayerBound, Plan
from intervalcert.bounds.results import Bounds
from intervalcert.errors import InputError
from intervalcert.model.network import Network

__all__ = [
    "LEAST_BUDGET",
    "AuditReport",
    "AuditedClaim",
    "audit_bounds",
    "audit_seconds",
    "check_same_model",
    "seconds_text",
]

LEAST_BUDGET = 60.0
"""Seconds that every audit may take."""


@dataclass(frozen=True)
class AuditedClaim:
    """One claimed bound beside what exact arithmetic gives; confirmed if the claim is on the safe side of it."""

    what: str
    claimed: Fraction
    exact: Fraction
    confirmed: bool

    def __repr__(self) -> str:
        return f"<AuditedClaim {self.what}: {'' if self.confirmed else 'not '}confirmed>"


@dataclass(frozen=True)
class AuditReport:
    claims: tuple[AuditedClaim, ...]

    def __repr__(self) -> str:
        return f"<AuditReport: {len(self.claims) - len(self.unconfirmed)} of {len(self.claims)} claims confirmed>"

    @property
    def unconfirmed(self) -> tuple[AuditedClaim, ...]:
        return tuple(claim for claim in self.claims if not claim.confirmed)

    @property
    def confirmed(self) -> bool:
        return not self.unconfirmed


def check_same_model(bounds: Bounds, network: Network) -> None:
    """Whether the bounds are of this network: the hash of its exact numbers and functions decides, not that of a file.

    Raises: InputError unless they are, with distances in the same space; it says what is different.
    """
    if bounds.eps_space != network.eps_space:
        raise InputError(
            f"the bounds are for distances in the {bounds.eps_space} space, the model was read for the "
            f"{network.eps_space} one (see --eps-space)"
        )
    is_same = bounds.network == network.content
    claimed, found = ([source.sha256 for source in sources] for sources in (bounds.sources, network.sources))
    if not is_same and claimed != found:
        if claimed[:1] == found:  # text with biases: models of other formats name themselves what lies beside them
            missing = bounds.sources[1].name
            raise InputError(f"the bounds were computed with biases from {missing}: give that file too (--biases)")
        given, recorded = (", ".join(source.name for source in each.sources) for each in (network, bounds))
        raise InputError(
            f"the bounds are of another model: the network in {given} is not the one recorded for {recorded}. "
            "Give that model, or compute the bounds anew"
        )
    shapes = [layer.weights.shape for layer in network.layers]
    if [layer.shape for layer in bounds.layers] != shapes:
        raise InputError(f"the bounds list layers of other shapes than the model's {shapes}")
    if bounds.activations != network.activations:
        raise InputError(
            f"the bounds are for the activations {bounds.activations}, the model was read with {network.activations} "
            "(see --activation)"
        )
    if bounds.single != network.single:
        there, here = (single or "one output for each" for single in (bounds.single, network.single))
        raise InputError(
            f"the bounds are for the classes: {there}; the model was read with: {here} (see --threshold, --regression)"
        )
    if not is_same:
        raise InputError(
            "the bounds are of another network: the file is the same, but was read with other options (--layers, "
            "--mean, --std, --strip-softmax), or by another version of its reader"
        )


def audit_seconds(bounds: Bounds, network: Network) -> float:
    """About how long `audit_bounds` takes with exact rationals; see `costs`. Requires: the bounds are of this model."""
    chains = 0 if bounds.method.margins == "product" else 1 + bool(bounds.margins.multipliers)
    return exact_seconds(network, bounds.layers, bounds.method.prec, chains)


def seconds_text(seconds: float) -> str:
    """For people."""
    if seconds < 120:
        return f"{seconds:.1g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.0f} hours"


def audit_bounds(
    bounds: Bounds,
    network: Network,
    reference: Backend[Any],
    on_step: Callable[[int], None] = lambda _: None,
    budget: float | None = None,
    on_estimate: Callable[[float], None] = lambda _: None,
) -> AuditReport:
    """Recomputes every bound on the reference backend, by the method and with the iterations that each layer claims.

    Raises: InputError if the bounds are of another model, or if that is estimated to take more seconds than `budget`;
    by default `LEAST_BUDGET`, or twice what default bounds of the model take if that is more.

    A claimed upper bound is confirmed if the exact one is no larger; a claimed lower bound if the exact one is no
    smaller. By the law of `protocol` an honest file is always confirmed.
    """
    check_same_model(bounds, network)
    seconds = audit_seconds(bounds, network)
    most = max(LEAST_BUDGET, 2 * usual_seconds(network)) if budget is None else budget
    if not seconds <= most:
        raise InputError(
            f"checking the bounds takes about {seconds_text(seconds)}, with their {bounds.method.prec} bits and up to "
            f"{max(layer.iterations for layer in bounds.layers)} iterations; the budget is {seconds_text(most)}: "
            f"give it a larger one (--budget {math.ceil(2 * seconds)}), or compute the bounds anew with the defaults"
        )
    on_estimate(seconds)
    plans = [_plan(layer) for layer in bounds.layers]
    margins = MarginPlan(bounds.method.margins, multipliers=bounds.margins.multipliers, slack=Fraction(0))
    exact = network_bounds(network, (reference,), plans, on_step, margins=margins)
    claims: list[AuditedClaim] = []
    for index, (said, found) in enumerate(zip(bounds.layers, exact.layers, strict=True)):
        claims.append(AuditedClaim(f"layer {index}, upper", said.upper, found.upper, found.upper <= said.upper))
        claims.append(AuditedClaim(f"layer {index}, lower", said.lower, found.lower, said.lower <= found.lower))
    claims += _sigma_claims(bounds.margins, exact.margins)
    claims += _margin_claims(bounds.margins.matrix, exact.margins.matrix)
    return AuditReport(tuple(claims))


def _plan(said: LayerBound) -> Plan:
    """How a claim is checked. What Cholesky gave rests on floats that differ from machine to machine: so not the same
    bound is computed again, but the claimed one is proved.
    """
    if said.method == "cholesky":
        return Plan("cholesky", claimed=said.upper)
    return Plan("gram", said.iterations)


def _sigma_claims(said: Margins, found: Margins) -> list[AuditedClaim]:
    """A file may leave them out. What it says must be found: a sigma without a chain is confirmed by nothing."""
    if said.sigmas and not found.sigmas:
        raise InputError("the bounds claim a sigma of each hidden layer, but floats guess no chain here to confirm it")
    return [
        AuditedClaim(f"layer {index}, sigma", claimed, exact, exact <= claimed)
        for index, (claimed, exact) in enumerate(zip(said.sigmas, found.sigmas, strict=False))
    ]


def _margin_claims(said: Sequence[Sequence[Fraction]], found: Sequence[Sequence[Fraction]]) -> list[AuditedClaim]:
    return [
        AuditedClaim(f"margin {i},{j}", said[i][j], found[i][j], found[i][j] <= said[i][j])
        for j in range(len(said))
        for i in range(j)
    ]
