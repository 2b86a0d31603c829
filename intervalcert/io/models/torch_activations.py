"""Modules of somebody's own that are activations, because the caller says so: which one, and which numbers it groups.

A name is that of an activation (`activation`), or says groups along the channels, the axis behind the batch (of flat
inputs: the numbers themselves):

    min_max:halves              channel c of the first half with c of the second: the smaller ones come first
    min_max:neighbours          channels 2c and 2c + 1: the smaller one becomes 2c
    group_sort:SIZE:neighbours  channels c·SIZE to c·SIZE + SIZE - 1, in ascending order

each with :descending for the other order. At each place of an image its own numbers are compared. Nothing of this is
checked against the module: it is trusted, as --activation is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from intervalcert.errors import InputError, UsageError
from intervalcert.io.models.onnx_values import Flow, shown
from intervalcert.model.activations import Componentwise, Sorting, activation

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
    kind, *parts = said.split(":")
    order = ":descending" if parts[-1:] == ["descending"] else ""
    groups = parts[:-1] if order else parts
    channels, inner = x.sides[1], math.prod(x.sides[2:])
    match kind, groups:
        case "min_max", ["halves"]:
            size, inner = 2, inner * (channels // 2)
        case "min_max", ["neighbours"]:
            size = 2
        case "group_sort", [text, "neighbours"] if text.isascii() and text.isdecimal() and int(text) > 0:
            size = int(text)
        case _:
            return _checked(said)
    if channels % size:
        raise InputError(f"{said!r} of the shape {shown(x.shape)}, whose {channels} channels are no groups of {size}")
    return _checked(f"group_sort:{size}:{inner}{order}")
