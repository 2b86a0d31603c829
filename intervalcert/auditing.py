"""Checking a bounds file against its model with exact rationals, trusting nothing in the file but its claims."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from intervalcert.artifacts import Bounds
from intervalcert.errors import InputError
from intervalcert.layerwise import LayerBound, Plan
from intervalcert.lipschitz import MarginPlan, Margins, network_bounds
from intervalcert.network import Network
from intervalcert.protocol import Backend

__all__ = ["AuditReport", "Claim", "audit_bounds", "check_same_model"]


@dataclass(frozen=True)
class Claim:
    """One claimed bound beside what exact arithmetic gives; confirmed if the claim is on the safe side of it."""

    what: str
    claimed: Fraction
    exact: Fraction
    confirmed: bool


@dataclass(frozen=True)
class AuditReport:
    claims: tuple[Claim, ...]

    @property
    def unconfirmed(self) -> tuple[Claim, ...]:
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
    if bounds.network is None and network.normalisation is not None:
        raise InputError("the bounds file is older than the normalisation of inputs: compute the bounds anew")
    if bounds.network is not None and not is_same:
        raise InputError(
            "the bounds are of another network: the file is the same, but was read with other options (--layers, "
            "--mean, --std, --strip-softmax), or by another version of its reader"
        )


def audit_bounds(
    bounds: Bounds,
    network: Network,
    reference: Backend[Any],
    on_step: Callable[[int], None] = lambda _: None,
) -> AuditReport:
    """Recomputes every bound on the reference backend, by the method and with the iterations that each layer claims.

    A claimed upper bound is confirmed if the exact one is no larger; a claimed lower bound if the exact one is no
    smaller. By the law of `protocol` an honest file is always confirmed.
    """
    check_same_model(bounds, network)
    plans = [_plan(layer) for layer in bounds.layers]
    margins = MarginPlan(bounds.method.margins, multipliers=bounds.margins.multipliers, slack=Fraction(0))
    exact = network_bounds(network, (reference,), plans, on_step, margins=margins)
    claims: list[Claim] = []
    for index, (said, found) in enumerate(zip(bounds.layers, exact.layers, strict=True)):
        claims.append(Claim(f"layer {index}, upper", said.upper, found.upper, found.upper <= said.upper))
        claims.append(Claim(f"layer {index}, lower", said.lower, found.lower, said.lower <= found.lower))
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


def _sigma_claims(said: Margins, found: Margins) -> list[Claim]:
    """A file may leave them out. What it says must be found: a sigma without a chain is confirmed by nothing."""
    if said.sigmas and not found.sigmas:
        raise InputError("the bounds claim a sigma of each hidden layer, but floats guess no chain here to confirm it")
    return [
        Claim(f"layer {index}, sigma", claimed, exact, exact <= claimed)
        for index, (claimed, exact) in enumerate(zip(said.sigmas, found.sigmas, strict=False))
    ]


def _margin_claims(said: Sequence[Sequence[Fraction]], found: Sequence[Sequence[Fraction]]) -> list[Claim]:
    return [
        Claim(f"margin {i},{j}", said[i][j], found[i][j], found[i][j] <= said[i][j])
        for j in range(len(said))
        for i in range(j)
    ]
