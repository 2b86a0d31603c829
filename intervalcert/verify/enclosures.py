"""Enclosures of what every layer computes at many inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from intervalcert.backends.escalation import escalate
from intervalcert.backends.protocol import Backend, Floats
from intervalcert.model.evaluation import (
    Evaluators,
)
from intervalcert.model.network import Network
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.verify.jobs import Batch

__all__ = ["Evaluation", "evaluations"]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Ends of what each layer computes before its activation, one row per input; the last layer's are the logits.

    Those of the model: a single output is alone. input_range: of the inputs themselves, after scaling; rounded outward.
    """

    lower: tuple[Floats, ...]
    upper: tuple[Floats, ...]
    input_range: tuple[float, float] | None = None

    def __repr__(self) -> str:
        inputs, logits = self.lower[-1].shape
        return f"<Evaluation of {inputs} inputs: {len(self.lower)} layers, {logits} logits>"

    @staticmethod
    def joined(parts: Sequence[Evaluation]) -> Evaluation:
        lower = zip(*(part.lower for part in parts), strict=True)
        upper = zip(*(part.upper for part in parts), strict=True)
        return Evaluation(tuple(map(np.concatenate, lower)), tuple(map(np.concatenate, upper)))


def evaluations(
    network: Network, norms: Sequence[Fraction], ladder: Sequence[Backend[Any]], batches: Iterator[Batch]
) -> Iterator[tuple[Evaluation, int]]:
    """Of each batch, on the first number system that gives one, with its part of the work."""
    evaluators = Evaluators(network, norms)

    def ends(inputs: RationalMatrix) -> list[tuple[Floats, Floats]]:
        found = escalate(ladder, lambda backend: evaluators.on(backend).before_activations(inputs))
        *hidden, (low, high) = (value.float_bounds() for value in found.value)
        own = slice(0 if network.single is None else 1, None)
        return [*hidden, (low[own], high[own])]

    for batch in batches:
        found = ends(batch.inputs)
        yield Evaluation(tuple(low.T for low, _ in found), tuple(high.T for _, high in found)), batch.work
