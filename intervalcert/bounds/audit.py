"""Checking a bounds file against its model with exact rationals, trusting nothing in the file but its claims."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from intervalcert.backends.protocol import Backend
from intervalcert.bounds.costs import exact_seconds, tuning_seconds, usual_seconds
from intervalcert.bounds.margin_bounds import MARGIN_METHODS, Margins, check_size, found_chains, margins_by
from intervalcert.bounds.norm_bounds import LayerBound, prove_norm
from intervalcert.bounds.results import Bounds
from intervalcert.errors import InconclusiveError, InputError
from intervalcert.model.linear_maps import LinearMap
from intervalcert.model.network import Network
from intervalcert.numbers.pairs import PairMatrix
from intervalcert.proof.layer_norms import NormWitness
from intervalcert.proof.witnesses import Witnesses
from intervalcert.search.layer_norms import search_norm

__all__ = [
    "LEAST_BUDGET",
    "AuditReport",
    "AuditedClaim",
    "audit_bounds",
    "check_same_model",
    "seconds_text",
]

LEAST_BUDGET = 60.0
"""Seconds that every audit may take."""


@dataclass(frozen=True)
class AuditedClaim:
    """One claimed bound beside what exact arithmetic gives; confirmed if the claim is on the safe side of it.

    exact: None if nothing was proved.
    """

    what: str
    claimed: Fraction
    exact: Fraction | None
    confirmed: bool

    def __repr__(self) -> str:
        return f"<AuditedClaim {self.what}: {'' if self.confirmed else 'not '}confirmed>"


@dataclass(frozen=True)
class AuditReport:
    """What exact arithmetic says of every claim of some bounds.

    recomputed: why other witnesses were searched for; empty if those of the bounds were checked.
    """

    claims: tuple[AuditedClaim, ...]
    recomputed: str = ""

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
    shapes = [branch.map.shape for branch in network.branches]
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


def seconds_text(seconds: float) -> str:
    """For people."""
    if seconds < 120:
        return f"{seconds:.1g} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.0f} hours"


def audit_bounds(
    bounds: Bounds,
    network: Network,
    reference: Backend[Any],
    witnesses: Witnesses | None = None,
    missing: str = "",
    on_step: Callable[[int], None] = lambda _: None,
    budget: float | None = None,
    on_estimate: Callable[[float], None] = lambda _: None,
) -> AuditReport:
    """Checks the witnesses of every bound on the reference backend; without any, others are searched for.

    missing: why there are none.

    Raises: InputError if the bounds are of another model, or if that is estimated to take more seconds than `budget`;
    by default `LEAST_BUDGET`, or twice what default bounds of the model take if that is more.

    A claimed upper bound is confirmed if the exact one is no larger; a claimed lower bound if the exact one is no
    smaller. By the law of `protocol` an honest file is always confirmed by its witnesses. (Others, found on another
    machine, may show a bound that differs in its last digits.)
    """
    check_same_model(bounds, network)
    _check_margins(bounds, network)
    most = max(LEAST_BUDGET, 2 * usual_seconds(network)) if budget is None else budget
    if witnesses is not None:
        missing = ""
    else:
        missing = missing or "none are stored with the bounds"
        _check_budget(bounds, tuning_seconds(network, bounds.method.tuning_rounds), most)
        witnesses = _searched(bounds, network)
    seconds = exact_seconds(network, witnesses, bounds.method.prec)
    _check_budget(bounds, seconds, most)
    on_estimate(seconds)
    layers = _proved_layers(network, witnesses, reference, on_step)
    margins = _proved_margins(bounds, network, layers, witnesses, reference)
    claims: list[AuditedClaim] = []
    for index, (said, found) in enumerate(zip(bounds.layers, layers, strict=True)):
        upper, lower = (None, None) if found is None else (found.upper, found.lower)
        confirmed = upper is not None and upper <= said.upper
        claims.append(AuditedClaim(f"layer {index}, upper", said.upper, upper, confirmed))
        confirmed = lower is not None and said.lower <= lower
        claims.append(AuditedClaim(f"layer {index}, lower", said.lower, lower, confirmed))
    claims += _sigma_claims(bounds.margins, margins)
    claims += _margin_claims(bounds.margins, margins)
    return AuditReport(tuple(claims), missing)


def _check_margins(bounds: Bounds, network: Network) -> None:
    """Raises: InputError unless there is one number for each pair of classes: only then is each of them checked."""
    matrix, classes = bounds.margins.matrix, range(network.outputs)
    if len(matrix) != len(classes) or any(len(row) != len(classes) for row in matrix):
        raise InputError(f"the margins are none of {len(classes)} classes, which the model has")
    if not isinstance(matrix, PairMatrix) and any(matrix[i][j] != matrix[j][i] for j in classes for i in range(j)):
        raise InputError("the margins are not the same in both directions")
    if bounds.method.margins not in MARGIN_METHODS:
        raise InputError(f"{bounds.method.margins!r} is no method of bounding margins")


def _check_budget(bounds: Bounds, seconds: float, most: float) -> None:
    if not seconds <= most:
        steps, rounds = max(layer.iterations for layer in bounds.layers), bounds.method.tuning_rounds
        raise InputError(
            f"checking the bounds takes about {seconds_text(seconds)}, with their {bounds.method.prec} bits, up to "
            f"{steps} iterations and, without witnesses, {rounds} rounds to tune; the budget is {seconds_text(most)}: "
            f"give it a larger one (--budget {math.ceil(2 * seconds)}), or compute the bounds anew with the defaults"
        )


def _searched(bounds: Bounds, network: Network) -> Witnesses:
    """Witnesses by the methods that the bounds claim."""
    norms = tuple(
        search_norm(branch.map, "gram", said.iterations)
        if said.method == "gram"
        else search_norm(branch.map, "cholesky", "auto")
        for branch, said in zip(network.branches, bounds.layers, strict=True)
    )
    chained = bounds.method.margins != "product" and len(network.layers) > 1
    return Witnesses(norms, found_chains(network, bounds.method.tuning_rounds)[0] if chained else ())


def _proved_layers(
    network: Network, witnesses: Witnesses, reference: Backend[Any], on_step: Callable[[int], None]
) -> list[LayerBound | None]:
    """None where a witness proves nothing. A matrix of several layers is checked once, if its witness is one."""
    if len(witnesses.norms) != len(network.branches):
        raise InputError(f"the witnesses are of {len(witnesses.norms)} layers; the model has {len(network.branches)}")
    known: dict[tuple[object, int], LayerBound | None] = {}
    found = []
    for index, (branch, witness) in enumerate(zip(network.branches, witnesses.norms, strict=True)):
        key = branch.map.key, id(witness)
        if key not in known:
            known[key] = _proved_norm(branch.map, witness, reference)
        on_step(index)
        found.append(known[key])
    return found


def _proved_norm(linear: LinearMap, witness: NormWitness, reference: Backend[Any]) -> LayerBound | None:
    try:
        return prove_norm(linear, witness, (reference,))
    except InconclusiveError:
        return None


def _proved_margins(
    bounds: Bounds,
    network: Network,
    layers: Sequence[LayerBound | None],
    witnesses: Witnesses,
    reference: Backend[Any],
) -> Margins | None:
    known = [layer for layer in layers if layer is not None]
    if len(known) < len(layers):
        return None
    try:
        check_size(network, known)
    except InputError:  # norms so large, by whatever witness, that no margins can be told from them
        return None
    return margins_by(bounds.method.margins, network, known, witnesses.chains, (reference,))


def _sigma_claims(said: Margins, found: Margins | None) -> list[AuditedClaim]:
    """A file may leave them out. What it says must be found: a sigma without a chain is confirmed by nothing."""
    sigmas: list[Fraction | None] = [None] * len(said.sigmas)
    if found is not None and len(found.sigmas) == len(said.sigmas):
        sigmas = list(found.sigmas)
    return [
        AuditedClaim(f"layer {index}, sigma", claimed, exact, exact is not None and exact <= claimed)
        for index, (claimed, exact) in enumerate(zip(said.sigmas, sigmas, strict=True))
    ]


def _margin_claims(said: Margins, found: Margins | None) -> list[AuditedClaim]:
    claims = []
    for j in range(len(said.matrix)):
        for i in range(j):
            claimed, exact = said.matrix[i][j], None if found is None else found.matrix[i][j]
            claims.append(AuditedClaim(f"margin {i},{j}", claimed, exact, exact is not None and exact <= claimed))
    return claims
