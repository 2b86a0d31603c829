"""Points as duals see them: what the search begins with, and who checks, for chains of matrices and for graphs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

from intervalcert.backends.protocol import Backend, Floats
from intervalcert.model.evaluation import Evaluators, PointEvaluator
from intervalcert.model.network import Network
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.proof.dual import DualChecker, has_dual
from intervalcert.proof.graph_dual import GraphDualChecker
from intervalcert.proof.graph_local import GraphLocalChecker
from intervalcert.proof.graphs import Passage
from intervalcert.proof.local import LocalChecker, bent_layers
from intervalcert.proof.nominal import NominalDistance, nominal_network
from intervalcert.proof.unit_vectors import NearValues
from intervalcert.search.dual_witness import ChainLayout
from intervalcert.search.float_network import FloatNetwork
from intervalcert.search.graph_dual import GraphLayout
from intervalcert.search.graph_local import GraphLocalSearch
from intervalcert.search.local import LocalSearch
from intervalcert.search.plain import PlainBackend
from intervalcert.search.room import USUAL, room_near_point
from intervalcert.verify.branching import FLOATS_END
from intervalcert.verify.dual_cases import ChainCase, DualProver, GraphCase
from intervalcert.verify.local import can_be_refined

__all__ = ["FEW", "Duals", "duals_of"]

_ROUNDS = 3
"""Of the search for the chain that the ranges and the first multipliers come from."""

_SMALL = 512
"""Of a graph: inputs and neurons. With more of them the first number system alone is asked: others take minutes."""

FEW = 64
"""Inputs and neurons of a chain. With no more of them one form, as of a graph, takes less time than those of the first
layers, one after the other, which may lose many digits where it does not: they may be nearly flat.
"""


def duals_of(
    network: Network, norms: Sequence[Fraction], ladder: Sequence[Backend[Any]], evaluators: Evaluators
) -> Duals | None:
    """None for a network that has none: of a single layer, or with functions that are not piecewise linear.

    norms: of the network's branches. Requires: the last number system is exact.
    """
    if len(network.layers) == 1 or not can_be_refined(network):
        return None
    variables = network.inputs + sum(layer.shape[0] for layer in network.layers[:-1])
    if not has_dual(nominal_network(network)):
        return GraphDuals(network, norms, ladder, evaluators)
    return (ChainDuals if variables > FEW else SmallChainDuals)(network, norms, ladder, evaluators)


class Duals(ABC):
    """The duals of points of one network, and who checks them."""

    def __init__(
        self,
        network: Network,
        norms: Sequence[Fraction],
        ladder: Sequence[Backend[Any]],
        evaluators: Evaluators,
    ) -> None:
        self._network, self._nominal = network, nominal_network(network)
        self._norms, self._ladder, self._evaluators = norms, ladder, evaluators
        self._checkers: dict[Backend[Any], Any] = {}
        self.distance = NominalDistance(network, norms, ladder[-1])

    @abstractmethod
    def prover(
        self, x: RationalMatrix, eps: Fraction, deducted: Callable[[int], Sequence[Fraction]]
    ) -> DualProver | None:
        """Of a point; None if there is no dual to begin with, or a tie. deducted: of the leads of a winner."""

    @abstractmethod
    def _made(self, backend: Backend[Any]) -> Any:
        """Who checks chains and duals on a number system."""

    def _on(self, backend: Backend[Any]) -> Any:
        if backend not in self._checkers:
            self._checkers[backend] = self._made(backend)
        return self._checkers[backend]


class ChainDuals(Duals):
    """Of a chain of matrices. The values of all networks that uncertain scales allow are in the ranges."""

    @cached_property
    def _floats(self) -> FloatNetwork:
        return FloatNetwork.of(self._network)

    @cached_property
    def _layout(self) -> ChainLayout:
        near = [layer.weights.near_floats() for layer in self._network.layers]
        with np.errstate(all="ignore"):  # what is infinite is refused where it is used
            weights = [np.ldexp(each.values, each.exponent) for each in near]
        return ChainLayout(weights, [function for function, _ in bent_layers(self._network)])

    def prover(
        self, x: RationalMatrix, eps: Fraction, deducted: Callable[[int], Sequence[Fraction]]
    ) -> DualProver | None:
        points = self._evaluators.of_points(self._ladder[-1])
        values = points.at(x)
        ends = [value.float_bounds() for value in values]
        search = LocalSearch(self._network, self._floats, ends, eps)
        chains = search.best_chains(_ROUNDS)
        leads, less = points.leads(values[-1], search.winner)[0], deducted(search.winner)
        if chains is None or not _all_above(leads, less):
            return None
        case = ChainCase(self._layout, self._on, x, eps, search.winner, chains, ends[:-1], leads, less)
        return DualProver(case, self._ladder)

    def _made(self, backend: Backend[Any]) -> tuple[LocalChecker, DualChecker]:
        return LocalChecker(self._network, backend), DualChecker(self._nominal, backend, self._norms)


class GraphDuals(Duals):
    """Of a graph of layers. Values, chains and duals are all of the nominal network."""

    @cached_property
    def _points(self) -> PointEvaluator:
        of_nominal = self._evaluators if self._nominal is self._network else Evaluators(self._nominal, self._norms)
        return of_nominal.of_points(self._ladder[-1])

    @cached_property
    def _floats(self) -> FloatNetwork:
        return FloatNetwork.of(self._nominal)

    @cached_property
    def _passage(self) -> Passage:
        return Passage(self._nominal, PlainBackend())  # type: ignore[arg-type]

    def prover(
        self, x: RationalMatrix, eps: Fraction, deducted: Callable[[int], Sequence[Fraction]]
    ) -> DualProver | None:
        values = self._points.at(x)
        *inner, logits = [value.float_bounds() for value in values]
        search = GraphLocalSearch(self._nominal, self._floats, self._passage, [*inner, logits], eps)
        found = search.best_chains(_ROUNDS)
        leads, less = self._points.leads(values[-1], search.winner)[0], deducted(search.winner)
        if found is None or not _all_above(leads, less):
            return None
        local, _ = self._on(self._ladder[0])
        room = room_near_point(local.passage, found.chains, self._ladder[0], inner, eps, USUAL)
        if room is not None:
            found = search.best_chains(_ROUNDS, room) or found
        near = NearValues(found.sites, logits, found.contenders)
        layout = GraphLayout(self._passage, self._nominal, near)
        case = GraphCase(layout, self._on, eps, search.winner, found, inner, logits, leads, less)
        is_small = self._nominal.inputs + sum(len(site.reach) for site in found.sites) <= _SMALL
        return DualProver(case, self._ladder if is_small else self._ladder[:1])

    def _made(self, backend: Backend[Any]) -> tuple[GraphLocalChecker, GraphDualChecker]:
        local = GraphLocalChecker(self._nominal, backend, self._norms)
        return local, GraphDualChecker(self._nominal, backend, self._norms)


class SmallChainDuals(GraphDuals):
    """Of a small chain of matrices: as of a graph; or by layers, where floats find no chain through the graph."""

    @cached_property
    def _layered(self) -> ChainDuals:
        return ChainDuals(self._network, self._norms, self._ladder, self._evaluators)

    def prover(
        self, x: RationalMatrix, eps: Fraction, deducted: Callable[[int], Sequence[Fraction]]
    ) -> DualProver | None:
        found = None
        with suppress(*FLOATS_END):  # then the other one says what there is
            found = super().prover(x, eps, deducted)
        return self._layered.prover(x, eps, deducted) if found is None else found


def _all_above(leads: Floats, deducted: Sequence[Fraction]) -> bool:
    return all(Fraction(a) > b for a, b in zip(leads.tolist(), deducted, strict=True))
