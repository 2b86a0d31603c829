"""A PyTorch model in memory -> `Network`: Sequentials of modules whose classes are known, and nothing else.

The class of a module must be exactly the one that is known: a subclass may compute anything, and so may hooks. What a
module does is read from its attributes as they are now, as its `forward` does.

The network is the model over the reals. Numbers that torch rounds before it computes with them, such as the slope of a
LeakyReLU or the epsilon of a batch normalisation, are the rounded ones: to float32 in models of 16 or 32 bits (torch
computes those functions in float32), to float64 in others. Softplus is ln(1 + exp(x)); above its threshold torch takes
x for that, which is rounding as well: from 20 on the difference is below 2.1e-9, a thousandth of an ulp of a float32
there. (It is many ulps of a float64: what a float64 program does there is not what the network does.)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from intervalcert.errors import InputError, UsageError
from intervalcert.loaders.assembly import Assembly
from intervalcert.loaders.tensors import Tensor
from intervalcert.loaders.torch_file import array_of, import_torch, kind_of
from intervalcert.network import IN_MEMORY, MAX_ENTRIES, Network, Source, check_eps_space

__all__ = ["from_torch"]

_MAX_DEPTH = 100
_LEAST_THRESHOLD = 20
_KINDS = ("float16", "float32", "float64", "bfloat16")
_INSTEAD = "export the model to ONNX (torch.onnx.export) and load that"


def from_torch(
    model: Any,
    *,
    shape: Sequence[int] | None = None,
    strip_softmax: bool = False,
    mean: object = None,
    std: object = None,
    eps_space: str = "input",
) -> Network:
    """The network that a ``torch.nn.Sequential`` (or one ``Linear``) in evaluation mode computes, over the reals.

    Args:
        shape: of one input, without the batch; a flat one if it is not said.
        strip_softmax: leave out a softmax at the end: margins live on the logits before it.
        mean, std: of inputs that are normalised before the model sees them: a number, or one for each entry.
        eps_space: where distances are measured: ``input``, before any normalisation, or ``normalised``, after it.

    Raises: InputError, with the place and the reason, for every module that is not exactly understood.
    """
    space = check_eps_space(eps_space)
    sides = None if shape is None else _sides(shape)
    torch = import_torch()
    modules = list(_flattened(torch, model, "", 0))
    network = _Translation(torch, modules, sides, strip_softmax).network
    network = replace(network, sources=(Source(IN_MEMORY, network.content),))
    return network.after(mean, std).measured_in(space)


def _sides(shape: Sequence[int]) -> tuple[int, ...]:
    if isinstance(shape, str | bytes) or not isinstance(shape, Sequence) or not shape:
        raise UsageError(f"the shape of an input is a list of its sides, not {shape!r}")
    if not all(isinstance(side, int) and not isinstance(side, bool) and side > 0 for side in shape):
        raise UsageError(f"the shape of an input is a list of its sides, at least 1 each, not {shape!r}")
    return tuple(int(side) for side in shape)


def _flattened(torch: Any, module: Any, place: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Every module with its place, in the order in which they are called; one that is called twice comes twice."""
    where = f"the module {place} ({type(module).__name__})" if place else f"the model ({type(module).__name__})"
    if not isinstance(module, torch.nn.Module):
        raise InputError(f"{where} is no torch.nn.Module: from_torch reads a torch.nn.Sequential")
    changed = module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module)
    general = torch.nn.modules.module
    if changed or general._global_forward_hooks or general._global_forward_pre_hooks:
        raise InputError(f"{where} has hooks, or a forward function of its own, which may compute anything: {_INSTEAD}")
    if type(module) is not torch.nn.Sequential:
        yield where, module
        return
    if depth > _MAX_DEPTH:
        raise InputError(f"{where}: Sequentials within Sequentials, {depth} deep")
    for index, part in enumerate(module):  # not children(), which skip a module that they had before
        yield from _flattened(torch, part, f"{place}.{index}" if place else str(index), depth + 1)


class _Translation:
    """Goes through the modules; `network` is what they compute."""

    def __init__(
        self, torch: Any, modules: Sequence[tuple[str, Any]], shape: tuple[int, ...] | None, strip_softmax: bool
    ) -> None:
        self._torch, self._strip_softmax = torch, strip_softmax
        self._flat = shape is None or len(shape) == 1
        self._softened = False
        self._kind: str | None = None
        self._known = self._table()
        steps = [(where, module, self._step(where, module)) for where, module in modules]
        for where, module in modules:
            try:
                self._see(module)
            except InputError as error:
                raise InputError(f"{where}: {error}") from None
        self._assembly = Assembly(self._width(modules))
        for where, module, step in steps:
            try:
                step(module)
            except InputError as error:
                raise InputError(f"{where}: {error}") from None
        self.network = self._assembly.network(shape)

    def _table(self) -> dict[type, Callable[[Any], None]]:
        nn = self._torch.nn
        dropouts = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
        return {
            nn.Linear: self._linear,
            nn.BatchNorm1d: self._batch_normalisation,
            nn.Flatten: self._flatten,
            nn.Identity: lambda _: None,
            **dict.fromkeys(dropouts, self._dropout),
            nn.ReLU: lambda _: self._activate("relu"),
            nn.Tanh: lambda _: self._activate("tanh"),
            nn.Sigmoid: lambda _: self._activate("sigmoid"),
            nn.ReLU6: self._hard_tanh,
            nn.Hardtanh: self._hard_tanh,
            nn.LeakyReLU: lambda module: self._activate(f"leaky_relu:{self._parameter(module.negative_slope)}"),
            nn.PReLU: self._prelu,
            nn.ELU: lambda module: self._activate(f"elu:{self._parameter(module.alpha)}"),
            nn.Softplus: self._softplus,
            nn.Softmax: self._softmax,
            nn.LogSoftmax: self._softmax,
        }

    def _step(self, where: str, module: Any) -> Callable[[Any], None]:
        step = self._known.get(type(module))
        if step is None:
            known = ", ".join(kind.__name__ for kind in (self._torch.nn.Sequential, *self._known))
            raise InputError(f"{where} is not understood (only {known}, and no subclasses): {_INSTEAD}")
        return step

    # -- numbers -------------------------------------------------------------------------------------------------

    def _see(self, module: Any) -> None:
        """All numbers of the model must be of one type."""
        for name in ("weight", "bias", "running_mean", "running_var"):
            tensor = getattr(module, name, None)
            if tensor is None:
                continue
            if type(tensor) not in {self._torch.Tensor, self._torch.nn.Parameter}:
                raise InputError(f"its {name} is a {type(tensor).__name__}, no plain tensor: {_INSTEAD}")
            kind = kind_of(self._torch, self._here(tensor))
            if kind not in _KINDS:
                raise InputError(f"its {name} is of type {kind} ({', '.join(_KINDS)} are read)")
            if self._kind not in {None, kind}:
                raise InputError(f"its {name} is of type {kind}, other numbers of the model are of {self._kind}")
            self._kind = kind

    def _here(self, tensor: Any) -> Any:
        return tensor if tensor.device.type == "meta" else tensor.detach().cpu()

    def _array(self, module: Any, name: str, dimensions: int) -> npt.NDArray[Any]:
        if getattr(module, name) is None:
            raise InputError(f"it has no {name}")
        tensor = self._here(getattr(module, name))
        if tensor.dim() != dimensions or not 0 < math.prod(tensor.shape) <= MAX_ENTRIES:
            raise InputError(f"its {name} has the shape {list(tensor.shape)}")
        return array_of(self._torch, tensor, f"its {name}")

    def _tensor(self, module: Any, name: str, dimensions: int) -> Tensor:
        try:
            return Tensor(self._array(module, name, dimensions))
        except InputError as error:
            raise InputError(f"{name}: {error}") from None

    def _rounded(self, value: object, dtype: Any) -> float:
        """A number as torch computes with it."""
        if type(value) not in {int, float} or value != value:
            raise InputError(f"{value!r} is not a real number")
        try:
            made = float(self._torch.tensor(float(value), dtype=dtype, device="cpu").item())  # type: ignore[arg-type]
        except (RuntimeError, OverflowError):
            made = math.inf
        if math.isinf(made) and abs(value) != math.inf:  # type: ignore[arg-type]
            raise InputError(f"{value!r} is too large for numbers of type {self._kind}")
        return made

    def _parameter(self, value: object) -> Fraction:
        """That of a function which torch computes in float32 for shorter types."""
        made = self._rounded(value, self._torch.float64 if self._kind == "float64" else self._torch.float32)
        if math.isinf(made):
            raise InputError(f"{value!r} is not finite")
        return Fraction(made)

    def _width(self, modules: Sequence[tuple[str, Any]]) -> int:
        """Of the inputs: that of the first module which has one."""
        for _, module in modules:
            if type(module) is self._torch.nn.Linear and module.weight is not None and module.weight.dim() == 2:
                return int(module.weight.shape[1])
            if type(module) is self._torch.nn.BatchNorm1d and module.running_mean is not None:
                return int(module.running_mean.numel())
        raise InputError("there is no Linear in the model, so that nothing says how wide its inputs are")

    # -- modules -------------------------------------------------------------------------------------------------

    def _check(self, *, flat: bool = False) -> None:
        if self._softened:
            raise InputError("it follows a softmax: only one at the very end can be stripped")
        if flat and not self._flat:
            raise InputError("inputs of that shape have several axes here, and it would act on one: add a Flatten")

    def _linear(self, module: Any) -> None:
        self._check(flat=True)
        bias = None if module.bias is None else self._tensor(module, "bias", 1)
        self._assembly.affine(self._tensor(module, "weight", 2), bias)

    def _batch_normalisation(self, module: Any) -> None:
        self._check(flat=True)
        if module.training:
            raise InputError("it is in training mode, where it depends on the batch: call model.eval() first")
        if module.running_mean is None or module.running_var is None:
            raise InputError("it has no running statistics, so that it depends on the batch")
        width = self._assembly.width
        mean, variance = (self._tensor(module, name, 1) for name in ("running_mean", "running_var"))
        gamma = Tensor(np.ones(width)) if module.weight is None else self._tensor(module, "weight", 1)
        beta = Tensor(np.zeros(width)) if module.bias is None else self._tensor(module, "bias", 1)
        for vector in (mean, variance, gamma, beta):
            if vector.shape != (width,):
                raise InputError(f"it is for {vector.size} numbers, but there are {width}")
        epsilon = Tensor(np.array([float(self._parameter(module.eps))]))
        self._assembly.batch_normalise(gamma, beta, mean, variance + epsilon)

    def _flatten(self, module: Any) -> None:
        if (module.start_dim, module.end_dim) != (1, -1):
            raise InputError(f"it flattens the axes {module.start_dim} to {module.end_dim}; only 1 to -1 is understood")
        self._flat = True

    def _dropout(self, module: Any) -> None:
        if module.training:
            raise InputError("it is in training mode, where it is random: call model.eval() first")

    def _activate(self, name: str) -> None:
        self._check()
        self._assembly.activate(name)

    def _hard_tanh(self, module: Any) -> None:
        dtype = getattr(self._torch, self._kind or "float32")
        low, high = (self._rounded(end, dtype) for end in (module.min_val, module.max_val))
        texts = [str(end) if math.isinf(end) else str(Fraction(end)) for end in (low, high)]
        self._activate("hard_tanh" if texts == ["-1", "1"] else f"clip:{':'.join(texts)}")

    def _prelu(self, module: Any) -> None:
        slopes = self._tensor(module, "weight", 1)
        if slopes.size != 1:
            raise InputError(f"it has {slopes.size} slopes; only one for all numbers is understood: {_INSTEAD}")
        numerators, denominator = slopes.exact()
        self._activate(f"leaky_relu:{Fraction(numerators.tolist()[0], denominator)}")

    def _softplus(self, module: Any) -> None:
        if self._rounded(module.beta, self._torch.float64) != 1:
            raise InputError(f"its beta is {module.beta!r}; only 1 is understood: {_INSTEAD}")
        if self._rounded(module.threshold, self._torch.float64) < _LEAST_THRESHOLD:
            raise InputError(
                f"its threshold is {module.threshold!r}, where torch jumps from ln(1 + exp(x)) to x: below "
                f"{_LEAST_THRESHOLD} that is more than a rounding error"
            )
        self._activate("softplus")

    def _softmax(self, module: Any) -> None:
        self._check(flat=True)
        if module.dim not in {1, -1} or isinstance(module.dim, bool):
            raise InputError(f"its dim is {module.dim!r}; that of the classes is 1 (or -1)")
        if not self._strip_softmax:
            raise InputError(
                "margins live on the logits before it: take it out of the model, or say strip_softmax=True to leave it "
                "out (it keeps the order of the logits)"
            )
        self._softened = True
