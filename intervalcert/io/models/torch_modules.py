"""A PyTorch model in memory -> `Network`: Sequentials of modules whose classes are known, and nothing else.

The class of a module must be exactly the one that is known, with the functions that torch gave it: a subclass may
compute anything, and so may hooks. What a module does is read from its attributes as they are now, as its `evaluation`
does.

The network is the model over the reals, as it computes by itself: without autocast. Numbers that torch rounds before it
computes with them are the rounded ones. The slope of a LeakyReLU, the alpha of an ELU and the epsilon of a batch
normalisation are rounded to float32 in models of 16 or 32 bits (torch computes those functions in float32), to float64
in others; the ends of a Hardtanh to the type of the model. Softplus is ln(1 + exp(x)); above its threshold torch takes
x for that. Where the difference, exp(-x), is below a thousandth of an ulp, that is rounding; a lower threshold is
refused.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from intervalcert.errors import InputError, UsageError, error_context
from intervalcert.io.models.assembly import Assembly
from intervalcert.io.models.interface import Hints
from intervalcert.io.models.named import FLOAT_KINDS
from intervalcert.io.models.tensors import Tensor
from intervalcert.io.models.torch_file import array_of, import_torch, kind_of
from intervalcert.model.arrays import MAX_ENTRIES
from intervalcert.model.network import IN_MEMORY, Network, Source, check_eps_space
from intervalcert.numbers.parsing import is_listed

__all__ = ["from_torch"]

_MAX_DEPTH = 100
_MAX_MODULES = 10_000
_LEAST_THRESHOLD = {"float64": 40}
"""Of a Softplus: exp(-40) < 4.3e-18 and an ulp of a float64 there is 7.1e-15. For shorter types it is 20."""

_INSTEAD = "export the model to ONNX (torch.onnx.export) and load that"
_WRAPPERS = {"OptimizedModule": "_orig_mod", "DataParallel": "module", "DistributedDataParallel": "module"}
"""Classes that hold a model, and under which name."""


def from_torch(
    model: Any,
    *,
    shape: Sequence[int] | None = None,
    strip_softmax: bool = False,
    mean: object = None,
    std: object = None,
    eps_space: str = "input",
    threshold: object = None,
    regression: bool = False,
) -> Network:
    """The network that a ``torch.nn.Sequential`` (or one ``Linear``) in evaluation mode computes, over the reals.

    Args:
        shape: of one input, without the batch; a flat one if it is not said.
        strip_softmax: leave out a softmax or a sigmoid at the end: margins live on the logits before it.
        mean, std: of inputs that are normalised before the model sees them: a number, or one for each entry.
        eps_space: where distances are measured: ``input``, before any normalisation, or ``normalised``, after it.
        threshold: of a single output y, which is class 1 if y > threshold, else class 0 (0 if not said).
        regression: a single output is a number, without classes: for bounds of its Lipschitz constant.

    Raises: InputError, with the place and the reason, for every module that is not exactly understood.
    """
    space = check_eps_space(eps_space)
    sides = None if shape is None else _sides(shape)
    torch = import_torch()
    modules = list(islice(_flattened(torch, model, "", 0), _MAX_MODULES + 1))
    if len(modules) > _MAX_MODULES:
        raise InputError(f"the model has more than {_MAX_MODULES} modules")
    hints = Hints(strip_softmax=strip_softmax, threshold=threshold, regression=regression)
    network = _Translation(torch, modules, sides, hints).network.deciding(threshold, regression=regression)
    network = replace(network, sources=(Source(IN_MEMORY, network.content),))
    return network.after(mean, std).measured_in(space)


def _sides(shape: Sequence[int]) -> tuple[int, ...]:
    if not is_listed(shape) or not len(shape):
        raise UsageError(f"the shape of an input is a list of its sides, not {shape!r}")
    if not all(isinstance(side, int) and not isinstance(side, bool) and side > 0 for side in shape):
        raise UsageError(f"the shape of an input is a list of its sides, at least 1 each, not {shape!r}")
    return tuple(int(side) for side in shape)


def _flattened(torch: Any, module: Any, place: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Every module with its place, in the order in which they are called; one that is called twice comes twice."""
    where = f"the module {place} ({type(module).__name__})" if place else f"the model ({type(module).__name__})"
    if not isinstance(module, torch.nn.Module):
        raise InputError(f"{where} is no torch.nn.Module: from_torch reads a torch.nn.Sequential")
    if type(module).__name__ in _WRAPPERS:
        raise InputError(f"{where} has the model in it: give from_torch its .{_WRAPPERS[type(module).__name__]}")
    general = torch.nn.modules.module
    if general._global_forward_hooks or general._global_forward_pre_hooks:
        raise InputError(f"there are hooks for all modules, which may compute anything: {_INSTEAD}")
    if module._forward_hooks or module._forward_pre_hooks:
        raise InputError(f"{where} has hooks, which may compute anything: {_INSTEAD}")
    hidden = sorted(set(vars(module)) & set(dir(type(module))))
    if "_compiled_call_impl" in hidden:
        raise InputError(f"{where} was compiled in place: give from_torch a model that was not")
    if hidden:
        raise InputError(f"{where} has a {hidden[0]!r} other than its class, which may compute anything: {_INSTEAD}")
    if type(module) is not torch.nn.Sequential:
        yield where, module
        return
    _check_class(type(module), where)
    if depth > _MAX_DEPTH:
        raise InputError(f"{where}: Sequentials within Sequentials, {depth} deep")
    for name, part in module._modules.items():  # not children(), which skip a module that they had before
        yield from _flattened(torch, part, f"{place}.{name}" if place else name, depth + 1)


def _check_class(kind: type, where: str) -> None:
    """Raises: InputError if somebody replaced the class, or what is called when a module is."""
    if not kind.__module__.startswith("torch.nn.modules."):
        raise InputError(f"{where}: somebody replaced a class of torch by {kind.__module__}.{kind.__qualname__}")
    names = {"__call__": "_wrapped_call_impl"}
    for name in ("__call__", "_call_impl", "_compiled_call_impl", "forward", "__iter__"):
        owner = next((base for base in kind.__mro__ if name in vars(base)), None)
        found = None if owner is None else vars(owner)[name]
        if owner is None or found is None:
            continue
        code = getattr(found, "__code__", None)
        own = getattr(found, "__globals__", None) is vars(sys.modules[owner.__module__])
        if not own or code is None or code.co_qualname != f"{owner.__qualname__}.{names.get(name, name)}":
            raise InputError(
                f"{where}: somebody replaced {owner.__name__}.{name} of torch, so that it may compute anything"
            )


class _Translation:
    """Goes through the modules; `network` is what they compute."""

    def __init__(
        self, torch: Any, modules: Sequence[tuple[str, Any]], shape: tuple[int, ...] | None, hints: Hints
    ) -> None:
        self._torch, self._strip_softmax = torch, hints.strip_softmax
        self._flat = shape is None or len(shape) == 1
        self._softened = False
        self._kind: str | None = None
        self._known = self._table()
        steps = [(where, module, self._step(where, module)) for where, module in modules]
        for where, module in modules:
            with error_context(where):
                self._see(module)
        self._assembly = Assembly(self._width(modules))
        for where, module, step in steps:
            with error_context(where):
                step(module)
        self.network = self._assembly.network(shape, hints)

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
        kind = type(module)
        step = self._known.get(kind)
        if step is not None:
            _check_class(kind, where)
            return step
        if isinstance(module, self._torch.nn.modules.conv._ConvNd):
            raise InputError(f"{where} is a convolution, which is not read yet")
        known = ", ".join(known.__name__ for known in (self._torch.nn.Sequential, *self._known))
        raise InputError(
            f"{where} is a {kind.__module__}.{kind.__qualname__}, which is not understood (only torch.nn's {known}, "
            f"and no subclasses): {_INSTEAD}"
        )

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
            if kind not in FLOAT_KINDS:
                raise InputError(f"its {name} is of type {kind} ({', '.join(FLOAT_KINDS)} are read)")
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
        array = self._array(module, name, dimensions)
        with error_context(f"its {name}"):
            return self._assembly.tensor(array)

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
        gamma = self._assembly.tensor(np.ones(width)) if module.weight is None else self._tensor(module, "weight", 1)
        beta = self._assembly.tensor(np.zeros(width)) if module.bias is None else self._tensor(module, "bias", 1)
        for vector in (mean, variance, gamma, beta):
            if vector.shape != (width,):
                raise InputError(f"it is for {vector.size} numbers, but there are {width}")
        epsilon = self._assembly.tensor(np.array([float(self._parameter(module.eps))]))
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
        least = _LEAST_THRESHOLD.get(str(self._kind), 20)
        if self._rounded(module.threshold, self._torch.float64) < least:
            raise InputError(
                f"its threshold is {module.threshold!r}, where torch jumps from ln(1 + exp(x)) to x: in {self._kind} "
                f"that is more than a rounding error below {least}. Set .threshold = {least}"
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
        self._assembly.soften()
        self._softened = True
