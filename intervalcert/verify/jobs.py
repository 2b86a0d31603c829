"""What is to be verified: a network with its bounds, and batches of inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from intervalcert.backends.protocol import Backend
from intervalcert.errors import InputError
from intervalcert.model.network import Network
from intervalcert.numbers.float_formats import FloatFormat
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.verify.branching import Budgets
from intervalcert.verify.deployed import Deployment
from intervalcert.verify.number_table import Epsilons, NumberTable

__all__ = ["BATCH", "Batch", "Job", "batches_of", "check_width"]

BATCH = 64
"""Inputs in a batch. The error of a float64 batch is one number for all of them: it grows with their norm together."""


@dataclass(frozen=True)
class Job:
    """What is to be done with every input.

    norms: upper bounds of the layers' operator norms; margins: of the margins' rates; ladder: number systems, the last
    exact. local_rounds: of the local search; None for no local refinement.
    form: the format that the network is run in, to whose numbers its weights are rounded already; None for the reals.
    sigmas: of the chain, or none.
    budgets: of the search, where every point is to be decided; None if not.
    keeps_chains: whether verdicts carry what certifies points locally (`Verdicts.proofs`), which takes memory.
    """

    network: Network
    norms: tuple[Fraction, ...]
    margins: Sequence[Sequence[Fraction]]
    ladder: tuple[Backend[Any], ...]
    local_rounds: int | None = None
    form: FloatFormat | None = None
    sigmas: tuple[Fraction, ...] = ()
    budgets: Budgets | None = None
    keeps_chains: bool = False

    @property
    def semantics(self) -> str:
        """Which network verdicts are about."""
        return "real" if self.form is None else self.form.name

    def deployment(self) -> Deployment | None:
        """What all points share in a program of that format."""
        if self.form is None:
            return None
        return Deployment(self.network, self.norms, self.sigmas, self.form, self.ladder)


@dataclass(frozen=True)
class Batch:
    """Inputs of the first layer, one per column, the eps of each, the index of the first, their part of the work."""

    inputs: RationalMatrix
    eps: tuple[Fraction, ...]
    first: int = 0
    work: int = 0

    def __len__(self) -> int:
        return len(self.eps)

    def column(self, index: int) -> RationalMatrix:
        return RationalMatrix(self.inputs.numerators[:, index : index + 1], self.inputs.denominator)

    def part(self, places: Sequence[int], eps: Sequence[Fraction]) -> Batch:
        """Some of these inputs, each with another eps."""
        inputs = RationalMatrix(self.inputs.numerators[:, list(places)], self.inputs.denominator)
        return Batch(inputs, tuple(eps), self.first)

    def work_of(self, done: int, more: int) -> int:
        """The part of the work that so many inputs are, after those that are done."""
        return self.work * (done + more) // len(self) - self.work * done // len(self)

    @property
    def common_eps(self) -> Fraction | None:
        """The eps of all of them, if it is one."""
        return self.eps[0] if len(set(self.eps)) == 1 else None


def check_width(rows: NumberTable, network: Network) -> None:
    """Raises: InputError unless every row has as many numbers as the network takes."""
    found = rows.values.shape[1]
    if found != network.inputs:
        raise InputError(f"{rows.what}: {found} numbers per input, but the model takes {network.inputs}")


def batches_of(
    rows: NumberTable, network: Network, scale: Fraction, epsilons: Epsilons, step: int = BATCH
) -> Iterator[Batch]:
    """The rows of a table as batches of inputs of the first layer: each number times `scale`, then `Network.entered`.

    Requires: the scale that `units` finds for the whole table.
    Raises: InputError unless every row has as many finite numbers as the network takes.
    """
    check_width(rows, network)
    count = len(rows)
    for start in range(0, count, step):
        part = range(start, min(start + step, count))
        if rows.read_exact is None:
            values = rows.values[part.start : part.stop]
            if not np.isfinite(values).all():
                raise rows.not_finite(values, start)
            made = RationalMatrix.from_floats(values.T)
            divisor = 10 ** (rows.decimal_places or 0) * scale.denominator
            if scale.numerator != 1 or divisor != 1:
                made = RationalMatrix(made.numerators * scale.numerator, made.denominator * divisor)
        else:
            exact = [rows.row(index) for index in part]
            lists = [[Fraction(n, row.denominator) * scale for n in row.numerators] for row in exact]
            made = RationalMatrix.from_fractions(lists).transposed()
        work = rows.work * part.stop // count - rows.work * part.start // count
        yield Batch(network.entered(made), tuple(map(epsilons.exact, part)), rows.first + start, work)
