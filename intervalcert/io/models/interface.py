"""What every reader of model files is: a function of a path and of what the file itself does not say."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from intervalcert.errors import UsageError
from intervalcert.io.files import Stamp
from intervalcert.model.network import Network

__all__ = ["Hints", "Reader", "Reading", "needed"]


@dataclass(frozen=True)
class Hints:
    """What a user says about a file.

    biases: a text file with them. activation: between all layers. layers: their names, in order.
    strip_softmax: leave out a softmax or a sigmoid at the end, which keeps the order of the logits.
    threshold, regression: how a single output is read (`single.Single`); None and False if nothing is said.
    origin: the file that the user named, if what is read was unpacked from it (see `files.unpacked`).
    """

    biases: Path | None = None
    activation: str | None = None
    layers: tuple[str, ...] | None = None
    strip_softmax: bool = False
    threshold: object = None
    regression: bool = False
    origin: Path | None = None

    @property
    def says_single(self) -> bool:
        """Whether it is said how a single output is read."""
        return self.threshold is not None or self.regression

    @property
    def between(self) -> str:
        """The activation, relu if none was named."""
        return "relu" if self.activation is None else self.activation


@dataclass(frozen=True)
class Reading:
    """What a reader gives: the network, still without sources, and the other files that belong to it, as they were."""

    network: Network
    beside: tuple[tuple[Path, Stamp], ...] = ()


Reader = Callable[[Path, Hints], Reading]
"""Raises: InputError, with the place and the reason, for everything that is not exactly understood."""


def needed(module: str, extra: str) -> Any:
    """An optional package, imported when a file needs it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        missing = error.name or module
        raise UsageError(
            f"this needs the package {missing.partition('.')[0]}: pip install 'intervalcert[{extra}]'"
        ) from None
