"""Tensors with names -> a chain of layers: what a PyTorch state dict says, and what it does not.

It holds ``X.weight`` (outputs x inputs) and ``X.bias`` of every linear layer X, but neither their order nor what stands
between them. The order is taken from the names only where they state one; the activation is what the user says, or relu
between all layers. Whatever else is among the tensors is refused: a state dict does not tell where it belongs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from intervalcert.errors import InputError, error_context
from intervalcert.io.models.assembly import Assembly
from intervalcert.io.models.interface import Hints
from intervalcert.io.models.tensors import MAX_NUMBERS, Tensor
from intervalcert.model.activations import activation_of
from intervalcert.model.network import Network

__all__ = ["FLOAT_KINDS", "Stored", "from_bfloat16", "network_of"]

FLOAT_KINDS = ("float16", "float32", "float64", "bfloat16")
"""The types of numbers that are read."""

_MAX_NAME = 256
_WRAPPERS = re.compile(r"^(?:(?:module|_orig_mod)\.)+")
"""What DataParallel and torch.compile put before the names of the model that is in them."""

_BATCH_NORMALISATION = ("running_mean", "running_var", "num_batches_tracked")
_INSTEAD = "export the model to ONNX, or give the torch.nn.Sequential itself to from_torch"


@dataclass(frozen=True)
class Stored:
    """A tensor of a file, not yet looked at. kind: its type, as torch calls it; bfloat16 is read as float32."""

    kind: str
    shape: tuple[int, ...]
    read: Callable[[], npt.NDArray[Any]]


def from_bfloat16(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """The same numbers: a bfloat16 is the upper half of a float32."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def network_of(found: Mapping[str, Stored], hints: Hints) -> Network:
    """The chain of linear layers whose weights and biases these are. All of them are used.

    Raises: InputError, naming the tensor, for anything else.
    """
    names = _layer_names(found)
    order = _ordered(names, hints)
    assembly = Assembly(found[_weight(order[0])].shape[1])
    for index, name in enumerate(order):
        try:
            weights = _tensor(assembly, found, _weight(name))
            bias = _tensor(assembly, found, _bias(name)) if _bias(name) in found else None
            assembly.affine(weights, bias)
        except InputError as error:
            by_name = index and hints.layers is None
            advice = " (the order is that of the numbers in the names: another is given with --layers)"
            raise InputError(f"layer {name!r}: {error}{advice if by_name else ''}") from None
        if index < len(order) - 1:
            assembly.activate(activation_of(hints.activation or "relu", (assembly.width,)).name)
    return assembly.network()


def _tensor(assembly: Assembly, found: Mapping[str, Stored], key: str) -> Tensor:
    with error_context(repr(key)):
        return assembly.tensor(found[key].read())


def _weight(layer: str) -> str:
    return f"{layer}.weight" if layer else "weight"


def _bias(layer: str) -> str:
    return f"{layer}.bias" if layer else "bias"


# -- which layers there are ------------------------------------------------------------------------------------------


def _layer_names(found: Mapping[str, Stored]) -> list[str]:
    """Of all layers, sorted: the order of the file means nothing."""
    if not found:
        raise InputError("there are no tensors in it")
    if any(len(name) > _MAX_NAME for name in found):
        raise InputError(f"a tensor whose name is longer than {_MAX_NAME} characters")
    # Batch normalisation has weights and biases as well, vectors: its other tensors tell what they are.
    for name, stored in sorted(found.items(), key=lambda item: not _is_batch_normalisation(item[0])):
        if not _is_of_a_layer(name, stored, found):
            raise _refusal(name, stored)
    if sum(math.prod(stored.shape) for stored in found.values()) > MAX_NUMBERS:
        raise InputError(f"its tensors have more than {MAX_NUMBERS} numbers together: that many are not held")
    return sorted(name.removesuffix("weight").removesuffix(".") for name in found if _last(name) == "weight")


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _is_batch_normalisation(name: str) -> bool:
    return _last(name) in _BATCH_NORMALISATION


def _is_of_a_layer(name: str, stored: Stored, found: Mapping[str, Stored]) -> bool:
    prefix, dot, last = name.rpartition(".")
    if stored.kind not in FLOAT_KINDS or (dot and not prefix):
        return False
    if last == "weight":
        return len(stored.shape) == 2
    return last == "bias" and len(stored.shape) == 1 and f"{prefix}{dot}weight" in found


def _refusal(name: str, stored: Stored) -> InputError:
    what = f"{name!r} ({stored.kind}, shape {_shown(stored.shape, 8)})"
    if _is_batch_normalisation(name):
        reason = "belongs to batch normalisation, whose place among the activations a state dict does not tell"
    elif _last(name) in {"weight", "bias"} and stored.kind not in FLOAT_KINDS:
        reason = f"is of another type than {', '.join(FLOAT_KINDS)}"
    elif _last(name) == "bias" and len(stored.shape) == 1:
        reason = "is the bias of a layer without a weight"
    else:
        reason = (
            "is neither the weight (X.weight, a matrix, outputs x inputs) nor the bias (X.bias, a vector) of a linear "
            "layer, and a state dict does not tell what is done with it"
        )
    return InputError(f"the tensor {what} {reason}: {_INSTEAD}")


def _shown(values: Iterable[object], most: int = 20) -> str:
    listed = list(values)
    more = f", … ({len(listed)} in all)" if len(listed) > most else ""
    return f"[{', '.join(map(repr, listed[:most]))}{more}]"


# -- in which order --------------------------------------------------------------------------------------------------


def _ordered(names: Sequence[str], hints: Hints) -> list[str]:
    wanted = hints.layers
    if wanted is None:
        return _by_number(names, said=hints.activation is not None)
    for name in wanted:
        if name not in names:
            raise InputError(f"--layers: there is no layer {name!r}; there are {_shown(names)}")
    if len(set(wanted)) < len(wanted):
        raise InputError(f"--layers names a layer twice; there are {_shown(names)}")
    missing = [name for name in names if name not in set(wanted)]
    if missing:
        raise InputError(f"--layers leaves out {_shown(missing)}: all layers are needed")
    return list(wanted)


def _by_number(names: Sequence[str], *, said: bool) -> list[str]:
    """By the one number in which the names differ. said: that there is an activation, and which.

    Raises: InputError if there is none, and where the numbers speak against an activation between any two layers.
    """
    if len(names) == 1:
        return list(names)
    advice = f"say it with --layers, first to last: {_shown(names)}"
    parts = [re.split("([0-9]+)", name) for name in names]
    places = [place for place, texts in enumerate(zip(*parts, strict=False)) if len(set(texts)) > 1]
    if len(set(map(len, parts))) > 1 or len(places) != 1 or places[0] % 2 == 0:
        raise InputError(f"the names of the layers do not say their order: {advice}")
    place = places[0]
    numbers = [int(split[place]) for split in parts]
    if len(set(numbers)) < len(numbers):
        raise InputError(f"two layers have the same number, so the names do not say their order: {advice}")
    by_number = dict(zip(numbers, names, strict=True))
    before, after = _WRAPPERS.sub("", "".join(parts[0][:place])), "".join(parts[0][place + 1 :])
    if not after and (not before or before.endswith(".")):
        _check_indices(by_number, listed=bool(before), said=said, advice=advice)
    return [by_number[number] for number in sorted(numbers)]


def _check_indices(by_number: Mapping[int, str], *, listed: bool, said: bool, advice: str) -> None:
    """Numbers that are names themselves are places in a Sequential, or in a list of modules, which has a name.

    In a Sequential the activations have places too: layers in neighbouring places have none between them. If all are
    neighbours it may be either, and the activation must be said.
    """
    steps = [(b - a, by_number[a], by_number[b]) for a, b in pairwise(sorted(by_number))]
    beside = next(((x, y) for step, x, y in steps if step == 1), None)
    if beside is None:
        return
    what = (
        f"the layers {beside[0]!r} and {beside[1]!r} stand side by side: in a torch.nn.Sequential there is no "
        "activation between them"
    )
    if not (listed and all(step == 1 for step, _, _ in steps)):
        raise InputError(f"{what}. If there is the same one between all layers, {advice}. Else {_INSTEAD}")
    if not said:
        raise InputError(
            f"{what}, in a torch.nn.ModuleList there can be one. Say which with --activation (identity for none)"
        )
