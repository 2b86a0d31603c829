"""Numbers of a PyTorch model in memory: its tensors at their exact values, its parameters as torch rounds them."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from intervalcert.errors import InputError, error_context
from intervalcert.io.models.assembly_graph import Graph
from intervalcert.io.models.named import FLOAT_KINDS
from intervalcert.io.models.tensors import Tensor
from intervalcert.io.models.torch_file import array_of, kind_of
from intervalcert.model.arrays import MAX_ENTRIES

__all__ = ["INSTEAD", "Numbers"]

INSTEAD = "export the model to ONNX (torch.onnx.export) and load that"

_NAMES = ("weight", "bias", "running_mean", "running_var")
_MAX_WHOLE = 2**53


class Numbers:
    """All numbers of one model. kind: their common type, once one was seen."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.kind: str | None = None

    def see(self, module: Any) -> None:
        """Raises: InputError unless the numbers of a module of torch are of the type of all others."""
        for name in _NAMES:
            tensor = getattr(module, name, None)
            if tensor is not None:
                self._see(tensor, name)

    def _see(self, tensor: Any, name: str) -> None:
        if type(tensor) not in {self.torch.Tensor, self.torch.nn.Parameter}:
            raise InputError(f"its {name} is a {type(tensor).__name__}, no plain tensor: {INSTEAD}")
        kind = kind_of(self.torch, self._here(tensor))
        if kind not in FLOAT_KINDS:
            raise InputError(f"its {name} is of type {kind} ({', '.join(FLOAT_KINDS)} are read)")
        if self.kind not in {None, kind}:
            raise InputError(f"its {name} is of type {kind}, other numbers of the model are of {self.kind}")
        self.kind = kind

    def _here(self, tensor: Any) -> Any:
        return tensor if tensor.device.type == "meta" else tensor.detach().cpu()

    def tensor(self, graph: Graph, module: Any, name: str, dimensions: int) -> Tensor:
        """An attribute of a module of torch."""
        if getattr(module, name) is None:
            raise InputError(f"it has no {name}")
        if getattr(module, name).dim() != dimensions:
            raise InputError(f"its {name} has the shape {list(getattr(module, name).shape)}")
        return self._read(graph, getattr(module, name), name)

    def constant(self, graph: Graph, tensor: Any, name: str) -> Tensor:
        """A tensor of somebody's own module, of any shape."""
        self._see(tensor, name)
        return self._read(graph, tensor, name)

    def _read(self, graph: Graph, tensor: Any, name: str) -> Tensor:
        here = self._here(tensor)
        if not 0 < math.prod(here.shape) <= MAX_ENTRIES:
            raise InputError(f"its {name} has the shape {list(here.shape)}")
        array: npt.NDArray[Any] = array_of(self.torch, here, f"its {name}")
        with error_context(f"its {name}"):
            return graph.tensor(array)

    def rounded(self, value: object, dtype: Any) -> float:
        """A number as torch computes with it in that type."""
        if type(value) not in {int, float} or value != value:
            raise InputError(f"{value!r} is not a real number")
        try:
            made = self.torch.tensor(float(value), dtype=dtype, device="cpu").item()  # type: ignore[arg-type]
        except (RuntimeError, OverflowError):
            made = math.inf
        if math.isinf(made) and abs(value) != math.inf:  # type: ignore[arg-type]
            raise InputError(f"{value!r} is too large for numbers of type {self.kind}")
        return float(made)

    def parameter(self, value: object) -> Fraction:
        """That of a function which torch computes in float32 for shorter types."""
        made = self.rounded(value, self.torch.float64 if self.kind == "float64" else self.torch.float32)
        if math.isinf(made):
            raise InputError(f"{value!r} is not finite")
        return Fraction(made)

    def end(self, value: object) -> float:
        """One that is rounded to the type of the model; may be infinite."""
        return self.rounded(value, getattr(self.torch, self.kind or "float32"))

    def scalar(self, graph: Graph, value: object) -> Tensor:
        """A number that stands beside tensors, as in 2·x.

        Raises: InputError if it is none that all ways of computing with 16 bits round alike.
        """
        made = float(self.parameter(value))
        if isinstance(value, int) and abs(value) > _MAX_WHOLE:
            raise InputError(f"{value!r} is too large a whole number to stand beside floats")
        if self.kind in {"float16", "bfloat16"} and self.end(value) != made:
            raise InputError(f"{value!r} is no number of type {self.kind}, and it depends how torch rounds it")
        return Tensor(np.array(made), budget=graph.budget)
