"""Local refinement of a point: a witness is searched for in floats (`search.local`), and proved (`proof.local`).

Of a network that is no chain of matrices, by `search.graph_local` and `proof.graph_local`: there a search that would
take too much time or memory is not made; a proof that fails for want of room for rounding errors is tried again with
more of it; and one that only the first number system has the time for is not asked of the others.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property, partial
from typing import Any

import numpy as np

from intervalcert.backends.escalation import escalate
from intervalcert.backends.protocol import Backend, Floats
from intervalcert.errors import InconclusiveError, InputError, shortened
from intervalcert.model.activations import Activation, MaxPool, Sorting
from intervalcert.model.evaluation import Evaluators, FloatBounds, PointEvaluator, is_piecewise_linear
from intervalcert.model.network import Network
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.proof.graph_local import GraphLocalChecker, GraphLocalWitness
from intervalcert.proof.graphs import Passage
from intervalcert.proof.local import Leads, LocalChecker, LocalClaim, LocalWitness
from intervalcert.search.float_network import FloatNetwork
from intervalcert.search.graph_guide import TooWideError
from intervalcert.search.graph_local import GraphLocalSearch
from intervalcert.search.local import LocalSearch
from intervalcert.search.plain import PlainBackend
from intervalcert.search.room import USUAL, room_near_point

__all__ = ["DEFAULT_ROUNDS", "RAISE_FAULTS", "LocalVerdict", "LocalVerifier", "can_be_refined"]

DEFAULT_ROUNDS = 10
"""Rounds of better multipliers. Most of the gain comes with the first three."""

RAISE_FAULTS = "INTERVALCERT_RAISE_FAULTS"
"""A variable of the environment: if it is set, a fault in an attempt is raised, not counted. Tests set it."""

_AGAIN = 2
"""How often more room for rounding errors is made, where a proof through a graph fails for want of it."""

_MOST_WORK, _MOST_ENTRIES = 1e9, 2**22
"""Of a proof through a graph: beyond these only the first number system is asked. The others would take minutes, and
gigabytes.
"""


AnySearch = LocalSearch | GraphLocalSearch
AnyWitness = LocalWitness | GraphLocalWitness


@dataclass(frozen=True)
class LocalVerdict:
    """estimated_ratio: the least lead over eps times its slope, as floats have it; beyond 1 was tried to be proved.

    proved_by: the number system that did, from this witness. fault: what ended the attempt before it proved anything.
    """

    certified: bool
    estimated_ratio: float
    winner: int = 0
    proved_by: str = ""
    fault: str = ""
    witness: AnyWitness | None = field(default=None, compare=False, repr=False)


class LocalVerifier:
    """Tries to certify single inputs of one network on a ladder of number systems."""

    def __init__(
        self,
        network: Network,
        norms: Sequence[Fraction],
        ladder: Sequence[Backend[Any]],
        evaluators: Evaluators | None = None,
    ) -> None:
        """Requires: `norms` are upper bounds of the layers' operator norms; the last number system is exact.

        evaluators: of this network, if somebody has them already.

        Raises: InputError if an activation is not piecewise linear.
        """
        if not can_be_refined(network):
            raise InputError(
                "local refinement is for piecewise linear activations (relu, leaky_relu:SLOPE, clip:LO:HI, hard_tanh, "
                "identity), sorting in groups that are known, and largest numbers in windows: leave it out"
            )
        self._network, self._norms, self._ladder = network, norms, ladder
        self._evaluators = Evaluators(network, norms) if evaluators is None else evaluators
        self._floats = FloatNetwork.of(network)
        self._is_dense = network.is_dense and is_piecewise_linear(network)
        self._checkers: dict[Backend[Any], LocalChecker | GraphLocalChecker] = {}

    @cached_property
    def _passage(self) -> Passage:
        """Through the graph, on plain floats."""
        return Passage(self._network, PlainBackend())  # type: ignore[arg-type]

    @property
    def points(self) -> PointEvaluator:
        """What follows a point through the network; its weights are converted when they are needed."""
        return self._evaluators.of_points(self._ladder[-1])

    def certify(
        self, x: RationalMatrix, eps: Fraction, rounds: int = DEFAULT_ROUNDS, margin_deductions: Floats | None = None
    ) -> LocalVerdict:
        """x: the input, one column. `certified` only if it is proved that every u within eps has the winner of x.

        margin_deductions: what is to be taken off the winner's lead over each class first (for errors of another kind).
        An attempt that ends by a fault, whatever it is, certifies nothing, and says so.
        """
        try:
            return self._attempt(x, eps, rounds, margin_deductions)
        except TooWideError as error:  # not attempted
            return LocalVerdict(False, 0.0, fault=str(error))
        except (np.linalg.LinAlgError, FloatingPointError) as error:  # floats end here
            return LocalVerdict(False, 0.0, fault=_said(error))
        except Exception as error:
            if os.environ.get(RAISE_FAULTS):
                raise
            return LocalVerdict(False, 0.0, fault=_said(error))

    def _attempt(self, x: RationalMatrix, eps: Fraction, rounds: int, margin_deductions: Floats | None) -> LocalVerdict:
        *inner, logits = self.points.at(x)
        ends = [value.float_bounds() for value in (*inner, logits)]
        with np.errstate(over="raise", invalid="raise"):
            search = self._search(ends, eps, margin_deductions)
            ratio, witness = search.search(rounds)
        if witness is None:
            return LocalVerdict(False, ratio)
        leads = Leads(witness.winner, self.points.leads(logits, witness.winner)[0], search.margin_deductions)

        def check(backend: Backend[Any], shown: Any) -> LocalClaim:
            claim: LocalClaim = self._on(backend).check(shown, ends[:-1], leads, eps)
            return claim

        for shown, ladder in self._tries(search, witness, ends[:-1], eps, rounds):
            try:
                proved = escalate(ladder, partial(check, shown=shown))
            except InconclusiveError:
                continue
            return LocalVerdict(True, ratio, witness.winner, proved.value.proved_by, witness=shown)
        return LocalVerdict(False, ratio)

    def _tries(
        self, search: AnySearch, witness: AnyWitness, inner: Sequence[FloatBounds], eps: Fraction, rounds: int
    ) -> Iterator[tuple[AnyWitness, Sequence[Backend[Any]]]]:
        """Witnesses, and the number systems that are asked about each, in this order."""
        if not (isinstance(search, GraphLocalSearch) and isinstance(witness, GraphLocalWitness)):
            yield witness, self._ladder
            return
        first, others = self._ladder[:1], self._ladder[1:]
        is_short = search.work <= _MOST_WORK and search.largest <= _MOST_ENTRIES
        yield witness, first
        for roomier in self._roomier(search, witness, inner, eps, rounds):
            yield roomier, first
        if is_short and others:
            yield witness, others

    def _roomier(
        self,
        search: GraphLocalSearch,
        witness: GraphLocalWitness,
        inner: Sequence[FloatBounds],
        eps: Fraction,
        rounds: int,
    ) -> Iterator[GraphLocalWitness]:
        """Witnesses with as much room for rounding errors as the first number system needs."""
        first, room = self._ladder[0], USUAL
        for _ in range(_AGAIN):
            more = room_near_point(self._on(first).passage, witness.chains, first, inner, eps, room)
            found = None
            if more is not None:
                # So much room that floats find nothing is no fault: a finer number system may need less.
                with contextlib.suppress(np.linalg.LinAlgError, FloatingPointError), np.errstate(over="raise"):
                    found = search.search(rounds, more)[1]
            if more is None or found is None:
                return
            yield found
            witness, room = found, more

    def _search(self, ends: Sequence[FloatBounds], eps: Fraction, margin_deductions: Floats | None) -> AnySearch:
        if self._is_dense:
            return LocalSearch(self._network, self._floats, ends, eps, margin_deductions)
        return GraphLocalSearch(self._network, self._floats, self._passage, ends, eps, margin_deductions)

    def _on(self, backend: Backend[Any]) -> Any:
        """Who checks witnesses of this network's kind."""
        if backend not in self._checkers:
            self._checkers[backend] = (
                LocalChecker(self._network, backend)
                if self._is_dense
                else GraphLocalChecker(self._network, backend, self._norms)
            )
        return self._checkers[backend]


def can_be_refined(network: Network) -> bool:
    """Whether all its activations are known near a point."""
    return all(layer.activation is None or _is_known_near_points(layer.activation) for layer in network.layers)


def _is_known_near_points(function: Activation) -> bool:
    is_sorting = isinstance(function, Sorting) and function.size is not None
    return function.piecewise_linear is not None or isinstance(function, MaxPool) or is_sorting


def _said(error: Exception) -> str:
    return shortened(f"{type(error).__name__}: {error}", 100)
