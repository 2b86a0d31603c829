"""What the first stage gives: sound bounds of one network, and where they come from."""

from __future__ import annotations

import platform
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from intervalcert.bounds.margin_bounds import MarginMethod, Margins, NetworkBounds
from intervalcert.bounds.norm_bounds import LayerBound
from intervalcert.errors import shortened
from intervalcert.model.network import EpsSpace, Network, Source
from intervalcert.model.single import Single
from intervalcert.proof.witnesses import Witnesses

__all__ = ["MOST_READ", "Bounds", "Method", "StoredWitnesses"]


MOST_READ = 16
"""Margins of up to so many classes are written as decimals, too."""


_LIBRARIES = ("intervalcert", "numpy", "python-flint", "mpmath")


@dataclass(frozen=True)
class Method:
    """How the bounds were asked for. `iterations` is a number or ``auto``; each layer says how many it took."""

    backend: str
    prec: int
    working_bits: int | None
    iterations: str
    norms: str = "gram"
    margins: MarginMethod = "product"
    tuning_rounds: int = 0


@dataclass(frozen=True)
class StoredWitnesses:
    """Witnesses in a file: where it may be, and the hash of its bytes."""

    places: tuple[Path, ...]
    sha256: str

    def __repr__(self) -> str:
        return f"<StoredWitnesses {shortened(self.places[0].name, 100)}>"


@dataclass(frozen=True)
class Bounds:
    """Sound bounds of one network, and where they come from.

    semantics: ``real``: the network is the function over the reals that its weights define, not its float execution.
    eps_space: margins are per unit of L2 distance between inputs of the model, or between normalised ones.
    network: `Network.content`.
    single: how a single output is read; None if there is one for each class.
    witnesses: what proves the bounds, or where that is stored; None if it is not kept. Equal bounds may differ in this.
    """

    layers: tuple[LayerBound, ...]
    margins: Margins
    activations: tuple[str | None, ...]
    sources: tuple[Source, ...]
    method: Method
    semantics: str = "real"
    eps_space: EpsSpace = "input"
    network: str = ""
    versions: tuple[tuple[str, str], ...] = ()
    single: Single | None = None
    witnesses: Witnesses | StoredWitnesses | None = field(default=None, compare=False)

    def __repr__(self) -> str:
        names = ", ".join(shortened(source.name, 60) for source in self.sources[:2])
        outputs = f"{self.classes} classes"
        if self.single is not None and self.single.threshold is None:
            outputs = "regression"
        what = f"{len(self.activations)} layers, {outputs}"
        return f"<Bounds of {names}: {what}, eps in the {self.eps_space} space>"

    @property
    def classes(self) -> int:
        return len(self.margins.matrix)

    @staticmethod
    def of(network: Network, found: NetworkBounds, method: Method) -> Bounds:
        return Bounds(
            layers=found.layers,
            margins=found.margins,
            activations=network.activations,
            sources=network.sources,
            method=method,
            eps_space=network.eps_space,
            network=network.content,
            versions=_versions(),
            single=network.single,
            witnesses=found.witnesses,
        )


def _versions() -> tuple[tuple[str, str], ...]:
    return (("python", platform.python_version()), *((name, _version_of(name)) for name in _LIBRARIES))


def _version_of(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
