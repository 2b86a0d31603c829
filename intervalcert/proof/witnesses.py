"""All that proves the bounds of one network: plain frozen data, to be sent, stored and checked by others."""

from __future__ import annotations

from dataclasses import dataclass

from intervalcert.proof.chain import ChainWitness
from intervalcert.proof.circulant_chain import CirculantWitness
from intervalcert.proof.data import Witness
from intervalcert.proof.graph_chain import GraphChain
from intervalcert.proof.layer_norms import NormWitness

__all__ = ["AnyChain", "Witnesses"]

AnyChain = ChainWitness | GraphChain | CirculantWitness


@dataclass(frozen=True, eq=False, repr=False)
class Witnesses(Witness):
    """norms: one for each layer. chains: some or none, each of which bounds all margins; the first gives the sigmas."""

    norms: tuple[NormWitness, ...]
    chains: tuple[AnyChain, ...] = ()
