"""Modules of somebody's own that are activations, because the caller says so: which one, and which numbers it groups.

A name is that of an activation (`activation_of`), which may say groups along the channels: the axis behind the batch,
of flat inputs the numbers themselves. Nothing of this is checked against the module: it is trusted, as --activation is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from intervalcert.errors import InputError, UsageError
from intervalcert.io.models.onnx_values import Flow
from intervalcert.model.activations import Componentwise, Sorting, activation, activation_of

__all__ = ["Said", "activation_for"]


@dataclass(frozen=True)
class Said:
    """Activations by classes of modules, or by their names."""

    names: Mapping[type | str, str]

    @staticmethod
    def of(given: object, model: Any, known: tuple[type, ...]) -> Said:
        """Raises: UsageError for what is no such mapping, or names no class of the model; InputError for a name."""
        if given is None:
            return Said({})
        if not isinstance(given, Mapping) or not all(isinstance(key, type | str) for key in given):
            raise UsageError("activations: a dictionary from classes of modules, or their names, to names is expected")
        said = Said(dict(given))
        kinds = {type(module) for module in model.modules()}
        for key, name in said.names.items():
            found = [kind for kind in kinds if key in _keys(kind)]
            if not found:
                raise UsageError(f"activations: no module of the model is of the class {key!r}")
            if read := [kind for kind in found if kind in known]:
                raise UsageError(f"activations: {read[0].__name__} of torch.nn is read as what it is")
            if not isinstance(name, str):
                raise UsageError(f"activations: the name of an activation is expected, not {name!r}")
            if not name.partition(":")[2].removesuffix(":descending").endswith(("halves", "neighbours")):
                _checked(name)
        return said

    def name_for(self, module: Any) -> str | None:
        """What is said of its class."""
        return next((self.names[key] for key in _keys(type(module)) if key in self.names), None)


def _keys(kind: type) -> tuple[type | str, ...]:
    return kind, f"{kind.__module__}.{kind.__qualname__}", kind.__qualname__, kind.__name__


def _checked(name: str) -> str:
    """Raises: InputError unless it is that of an activation that keeps shapes."""
    found = activation(name)
    if not isinstance(found, Componentwise | Sorting):
        raise InputError(f"{name!r} changes the shape: write it with modules of torch.nn")
    return found.name


def activation_for(said: str, x: Flow) -> str:
    """The name of the activation, for what has that shape. Raises: InputError if that has no such groups."""
    return _checked(activation_of(said, tuple(x.sides[1:])).name)
