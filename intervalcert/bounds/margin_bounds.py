"""Margin Lipschitz bounds: how fast the lead of one class over another can shrink.

L[i][j] >= sup over u != v of |(N(v)_j - N(v)_i) - (N(u)_j - N(u)_i)| / ||v - u||. Biases cancel in the differences.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property, reduce
from operator import add
from typing import Any, Literal, get_args

from intervalcert.backends.escalation import SHARP_BITS, Escalated, describe, escalate
from intervalcert.backends.protocol import Backend, Floats, Scalar, Vector
from intervalcert.bounds.norm_bounds import LayerBound, Plan, prove_norm, what_proved
from intervalcert.errors import InconclusiveError, InputError, UsageError
from intervalcert.model.layers import INPUT, Layer, are_apart
from intervalcert.model.network import Network
from intervalcert.numbers.pairs import PairMatrix, floats_above
from intervalcert.numbers.parsing import MAX_BINARY_EXPONENT
from intervalcert.numbers.rounding import round_up
from intervalcert.numbers.text import decimal_upper
from intervalcert.proof.chain import check_chain, distances_squared, has_ellipsoids
from intervalcert.proof.circulant_chain import CirculantWitness, check_circulant
from intervalcert.proof.data import is_plain, size_of
from intervalcert.proof.layer_norms import NormWitness
from intervalcert.proof.witnesses import AnyChain, Witnesses
from intervalcert.search.chain import search_chains
from intervalcert.search.circulant_chain import not_circulant, search_circulant
from intervalcert.search.graph_guide import TooWideError
from intervalcert.search.layer_norms import search_norm

__all__ = [
    "MARGIN_METHODS",
    "MAX_ROUNDS",
    "MAX_WITNESS_BYTES",
    "MarginMethod",
    "MarginPlan",
    "Margins",
    "NetworkBounds",
    "chain_margins",
    "check_size",
    "found_chains",
    "layer_bounds",
    "margins_by",
    "network_bounds",
    "product_margins",
]

MarginMethod = Literal["product", "chain", "best"]
MARGIN_METHODS: tuple[MarginMethod, ...] = get_args(MarginMethod)

MAX_ROUNDS = 1000

MAX_WITNESS_BYTES = 2**28
"""Witnesses that take more are not kept: 256 MiB hold those of five layers of a thousand neurons."""

NO_CHAIN = "chain: floats find none that is proved (a layer of zeros, or sizes beyond them): the product stands"

TOO_WIDE = "chain: {}: the product stands"

_MOST_BYTES = 2**23
"""Larger witnesses of chains through graphs are shown to the first number system alone: others would take hours."""


@dataclass(frozen=True)
class MarginPlan:
    """How margins are to be bounded.

    method: the product of norms; the chain; or best, the smaller of both for each pair of classes.
    tuning_rounds: of the multipliers of the chain, in floats; the chain with the closed form is kept beside it.
    """

    method: MarginMethod = "best"
    tuning_rounds: int = 0

    def __post_init__(self) -> None:
        if self.method not in MARGIN_METHODS:
            raise UsageError(f"there are no margins by {self.method!r}: choose one of {', '.join(MARGIN_METHODS)}")
        if type(self.tuning_rounds) is not int or not 0 <= self.tuning_rounds <= MAX_ROUNDS:
            raise UsageError(f"{self.tuning_rounds!r} tuning rounds: choose 0..{MAX_ROUNDS}")
        if self.tuning_rounds and self.method == "product":
            raise UsageError("rounds tune the chain, and margins by the product have none: choose chain or best")


@dataclass(frozen=True)
class Margins:
    """The symmetric matrix of margin bounds (zero on the diagonal), and how it was found.

    matrix: exact, `matrix[i][j]`; a `PairMatrix` from whoever computes or reads one.
    sigmas: bounds of ||S_l|| for the hidden layers, by the chain in its closed form; none without a chain.
    """

    matrix: Sequence[Sequence[Fraction]]
    computed_by: str
    skipped_because: tuple[str, ...] = ()
    sigmas: tuple[Fraction, ...] = ()

    def __repr__(self) -> str:
        most = float(self.floats_upper.max())
        shown = decimal_upper(Fraction(most), 6) if math.isfinite(most) else "something beyond the floats"
        return f"<Margins of {len(self.matrix)} classes, at most {shown}>"

    @cached_property
    def floats_upper(self) -> Floats:
        """The matrix as floats: the least ones that are not below, infinite beyond the floats. Not to be written to."""
        return floats_above(self.matrix)


@dataclass(frozen=True)
class NetworkBounds:
    """What the first stage gives: a bound of each branch (of a chain: of each layer), the margins, and their witnesses.

    witnesses: None if they take more than `MAX_WITNESS_BYTES`.
    """

    layers: tuple[LayerBound, ...]
    margins: Margins
    witnesses: Witnesses | None = field(default=None, compare=False, repr=False)


def layer_bounds(
    network: Network,
    ladder: Sequence[Backend[Any]],
    plans: Sequence[Plan],
    on_step: Callable[[int], None] = lambda _: None,
) -> tuple[LayerBound, ...]:
    """A bound of the operator norm of every branch; there is one plan for each. What several share is bounded once."""
    return tuple(bound for bound, _ in _proved_norms(network, ladder, plans, on_step))


def _proved_norms(
    network: Network,
    ladder: Sequence[Backend[Any]],
    plans: Sequence[Plan],
    on_step: Callable[[int], None],
) -> list[tuple[LayerBound, NormWitness | None]]:
    """Each with its witness; none from where on they take too much memory."""
    known: dict[tuple[object, Plan], tuple[LayerBound, NormWitness | None]] = {}
    room = MAX_WITNESS_BYTES
    for index, (branch, plan) in enumerate(zip(network.branches, plans, strict=True)):
        key = branch.map.key, plan
        if key in known:
            on_step(index)
            continue
        witness = search_norm(branch.map, plan.method, plan.iterations)
        bound = prove_norm(branch.map, witness, ladder, lambda index=index: on_step(index))  # type: ignore[misc]
        part = what_proved(witness, bound)
        room -= size_of(part)
        known[key] = bound, part if room >= 0 and is_plain(part) else None
    pairs = ((branch, *known[branch.map.key, plan]) for branch, plan in zip(network.branches, plans, strict=True))
    return [(replace(bound, layer=branch.layer, source=branch.source), part) for branch, bound, part in pairs]


def check_size(network: Network, layers: Sequence[LayerBound]) -> None:
    """Raises: InputError if the product of the norms and constants is so far from 1 that no bounds file holds it."""
    constants = [layer.activation.lipschitz for layer in network.layers if layer.activation is not None]
    bits = sum(max(x.numerator.bit_length(), x.denominator.bit_length()) for x in constants)
    bits += sum(abs(x.numerator.bit_length() - x.denominator.bit_length()) for x in (bound.upper for bound in layers))
    if bits > MAX_BINARY_EXPONENT:
        raise InputError(
            f"the layers and slopes of the model multiply to a number of some {bits} bits, and at most "
            f"{MAX_BINARY_EXPONENT} are held: rescale the model's layers"
        )


def product_margins(network: Network, layers: Sequence[LayerBound], ladder: Sequence[Backend[Any]]) -> Margins:
    """L[i][j] = Σ l_s·||W_s[j] - W_s[i]|| over the branches of the last layer, W_s of what layer s gives; and

        l_k = lipschitz(activation)·Σ ||T_s||·l_s        over the branches of layer k, l = 1 for the input.

    (In a chain: the product of all norms and constants, times ||W_n[j] - W_n[i]||.) Of branches that reach different
    outputs, as in a concatenation, it is the root of the sum of squares in the place of the sum.

    Guarantees: each entry is a margin Lipschitz bound, a dyadic of `prec` bits.
    Requires: `layers` are sound bounds of this network's branches.

    Proof. Let two inputs differ by 1. If what layer s gives differs by at most l_s, a map of it differs by at most
    ||T||·l_s, a sum by at most the sum of these, which an activation multiplies by at most its constant. The lead of j
    over i is a sum of inner products of what the last layer takes with W_s[j] - W_s[i], up to a constant; Cauchy and
    Schwarz. All factors are non-negative, so the upper ends of the norms may stand for the norms.
    """
    norms = network.by_layer([bound.upper for bound in layers])

    def compute(backend: Backend[Any]) -> Vector[Any]:
        rates = {INPUT: backend.scalar(Fraction(1))}
        for index, (layer, uppers) in enumerate(zip(network.layers[:-1], norms, strict=False)):
            rates[index] = _rate(layer, uppers, rates, backend)
        parts = (
            distances_squared(matrix, None, backend).roots(backend).scalar_mul(rates[term.source])
            for term, matrix in zip(network.layers[-1].branches, network.head, strict=True)
        )
        return reduce(add, parts)

    escalated = escalate(ladder, compute, is_useful=_is_sharp)
    # Rounding up to prec bits happens on every backend, is monotone, and keeps the file small.
    return _margins(escalated.value, escalated)


def _rate(layer: Layer, norms: Sequence[Fraction], rates: Mapping[int, Any], backend: Backend[Any]) -> Any:
    """How much what a layer gives can differ for inputs that differ by 1. rates: the same of the layers before it."""
    parts = [rates[term.source] * backend.scalar(norm) for term, norm in zip(layer.branches, norms, strict=True)]
    total = reduce(add, parts)
    if len(parts) > 1 and are_apart([term.map for term in layer.branches]):
        total = backend.sqrt_upper(reduce(add, (part * part for part in parts)))
    return total if layer.activation is None else total * backend.scalar(layer.activation.lipschitz)


def _is_sharp(found: Vector[Any]) -> bool:
    return not found.blunt(SHARP_BITS)


def chain_margins(network: Network, ladder: Sequence[Backend[Any]], witness: AnyChain) -> Margins | None:
    """The margins that a chain shows; None if exact rationals refute it, or nobody has the time to do either.

    Guarantees: each entry is a margin Lipschitz bound, a dyadic of `prec` bits. Raises: InconclusiveError if the last
    number system can neither prove the witness nor, being exact, refute it.
    """

    def compute(backend: Backend[Any]) -> tuple[Vector[Any], tuple[Scalar, ...]]:
        if isinstance(witness, CirculantWitness):
            return check_circulant(network, witness, backend).roots(backend), ()
        claim = check_chain(network, witness, backend)
        return claim.squares.roots(backend), claim.sigmas

    is_long = not is_plain(witness) or (not has_ellipsoids(network) and size_of(witness) > _MOST_BYTES)
    try:
        escalated = escalate(ladder[:1] if is_long else ladder, compute, is_useful=lambda found: _is_sharp(found[0]))
    except InconclusiveError:
        if ladder[-1].working_bits is not None and not is_long:
            raise  # finer numbers might prove it: then the exact run would take the chain, and so must this one
        return None
    roots, sigmas = escalated.value
    upper = (round_up(sigma.upper(), escalated.backend.prec) for sigma in sigmas)
    return replace(_margins(roots, escalated), sigmas=tuple(upper))


def _margins(found: Vector[Any], escalated: Escalated[Any]) -> Margins:
    matrix = PairMatrix(found.upper(escalated.backend.prec))
    return Margins(matrix, describe(escalated.backend), escalated.skipped_because)


def _smaller(one: Margins, other: Margins) -> Margins:
    """The smaller of both, pair by pair; what else `one` says stays."""
    matrix = PairMatrix(PairMatrix.of(one.matrix).entries.smaller(PairMatrix.of(other.matrix).entries))
    skipped = tuple(dict.fromkeys(one.skipped_because + other.skipped_because))
    return replace(one, matrix=matrix, skipped_because=skipped)


def found_chains(network: Network, rounds: int) -> tuple[tuple[AnyChain, ...], str]:
    """Chains by all methods that there are for such a network, and what is said if there is none."""
    chains: tuple[AnyChain, ...] = ()
    why_none = NO_CHAIN
    try:
        chains = search_chains(network, rounds)
    except TooWideError as error:
        why_none = TOO_WIDE.format(error)
    if has_ellipsoids(network) or not_circulant(network) is not None:
        return chains, why_none
    circulant = search_circulant(network, rounds)
    return (chains if circulant is None else (*chains, circulant)), why_none


def margins_by(
    method: MarginMethod,
    network: Network,
    layers: Sequence[LayerBound],
    chains: Sequence[AnyChain],
    ladder: Sequence[Backend[Any]],
    why_none: str = NO_CHAIN,
) -> Margins:
    """The product, the chains, or the smallest of all, pair by pair. Without a chain or a hidden layer: the product.

    A chain that was asked for and not found, or not proved, is among what was skipped. why_none: said in its place.
    """
    if method == "product" or len(network.layers) == 1:
        return product_margins(network, layers, ladder)
    proved = [found for found in (chain_margins(network, ladder, chain) for chain in chains) if found is not None]
    if proved and method == "chain":
        return reduce(_smaller, proved)
    product = product_margins(network, layers, ladder)
    if not proved:
        return replace(product, skipped_because=(*product.skipped_because, why_none))
    return reduce(_smaller, (*proved, product))


def network_bounds(
    network: Network,
    ladder: Sequence[Backend[Any]],
    plans: Sequence[Plan],
    on_step: Callable[[int], None] = lambda _: None,
    *,
    margins: MarginPlan | None = None,
) -> NetworkBounds:
    """The whole first stage on one ladder of number systems. Raises: InputError for margins too large to be written."""
    plan = margins or MarginPlan()
    found = _proved_norms(network, ladder, plans, on_step)
    layers, norms = tuple(bound for bound, _ in found), tuple(witness for _, witness in found if witness is not None)
    check_size(network, layers)
    chained = plan.method != "product" and len(network.layers) > 1
    chains, why_none = found_chains(network, plan.tuning_rounds) if chained else ((), NO_CHAIN)
    witnesses = Witnesses(norms, chains) if len(norms) == len(layers) else None
    if witnesses is not None and size_of(witnesses) > MAX_WITNESS_BYTES:
        witnesses = None
    return NetworkBounds(layers, margins_by(plan.method, network, layers, chains, ladder, why_none), witnesses)
