"""All that proves the bounds of one network: plain frozen data, to be sent, stored and checked by others."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from intervalcert.proof.chain import ChainWitness
from intervalcert.proof.layer_norms import NormWitness

__all__ = ["Witnesses", "size_of"]


@dataclass(frozen=True, eq=False)
class Witnesses:
    """norms: one for each layer. chains: some or none, each of which bounds all margins; the first gives the sigmas."""

    norms: tuple[NormWitness, ...]
    chains: tuple[ChainWitness, ...] = ()


def size_of(witness: Any) -> int:
    """Bytes that the arrays in it take."""
    if isinstance(witness, np.ndarray):
        return witness.nbytes
    if isinstance(witness, tuple):
        return sum(map(size_of, witness))
    if is_dataclass(witness):
        return sum(size_of(getattr(witness, each.name)) for each in fields(witness))
    return 0
