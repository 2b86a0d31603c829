"""A PyTorch model in memory -> `Network`: modules of torch.nn whose classes are known, and what is made of them.

The class of a module must be exactly the one that is known, with the functions that torch gave it: a subclass may
compute anything, and so may hooks. What a module does is read from its attributes as they are now, as its `evaluation`
does. A Sequential is gone through; a module of somebody's own is read by the operations that torch.fx meets in its
`forward`, and by nothing else, as its name, unless the caller says which activation its class is. Of that the tracing
itself is trusted (`torch_trace`). Nothing is computed with torch but the rounding of single numbers.

What changes a tensor in place changes all that is at its place in the memory: whatever was taken from there before, and
is used after it, is refused.

The network is the model over the reals, as it computes by itself: without autocast. Numbers that torch rounds before it
computes with them are the rounded ones. The slope of a LeakyReLU, the alpha of an ELU and the epsilon of a batch
normalisation are rounded to float32 in models of 16 or 32 bits (torch computes those functions in float32), to float64
in others; the ends of a Hardtanh to the type of the model. Softplus is ln(1 + exp(x)); above its threshold torch takes
x for that. Where the difference, exp(-x), is below a thousandth of an ulp, that is rounding; a lower threshold is
refused.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from operator import attrgetter
from typing import Any

from intervalcert.errors import InputError, UsageError, error_context
from intervalcert.io.models.assembly_graph import Graph
from intervalcert.io.models.interface import Hints
from intervalcert.io.models.onnx_values import Flow
from intervalcert.io.models.torch_activations import Said, activation_for
from intervalcert.io.models.torch_file import import_torch
from intervalcert.io.models.torch_functions import CHANGING, STRUCTURAL, VIEWS, Extremes, Functions, named_functions
from intervalcert.io.models.torch_numbers import INSTEAD, Numbers
from intervalcert.io.models.torch_operators import SHAPE_ADVICE, Modules
from intervalcert.io.models.torch_trace import check_own, module_for, module_functions, traced
from intervalcert.model.network import IN_MEMORY, Network, Source, check_eps_space
from intervalcert.numbers.parsing import is_listed

__all__ = ["from_torch"]

_MAX_DEPTH = 100
_MAX_MODULES = 10_000

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
    activations: Mapping[type | str, str] | None = None,
) -> Network:
    """The network that a ``torch.nn.Module`` in evaluation mode computes, over the reals.

    It is made of known modules of torch.nn, in Sequentials or in modules of your own, which torch.fx traces.

    Args:
        shape: of one input, without the batch, as (channels, height, width). If it is not said, inputs are flat, and
            the model is a Sequential that begins with a Linear.
        strip_softmax: leave out a softmax or a sigmoid at the end: margins live on the logits before it.
        mean, std: of inputs that are normalised before the model sees them: a number, or one for each entry.
        eps_space: where distances are measured: ``input``, before any normalisation, or ``normalised``, after it.
        threshold: of a single output y, which is class 1 if y > threshold, else class 0 (0 if not said).
        regression: a single output is a number, without classes: for bounds of its Lipschitz constant.
        activations: which activation a module class of your own is, as ``{"MinMax": "min_max:halves"}``: the class or
            its name, and a name as in `torch_activations`. It is believed, and the module is not looked into.

    Raises: InputError, with the place and the reason, for every module that is not exactly understood.
    """
    space = check_eps_space(eps_space)
    sides = None if shape is None else _sides(shape)
    torch = import_torch()
    hints = Hints(strip_softmax=strip_softmax, threshold=threshold, regression=regression)
    network = _network(torch, model, sides, hints, activations).deciding(threshold, regression=regression)
    network = replace(network, sources=(Source(IN_MEMORY, network.content),))
    return network.after(mean, std).measured_in(space)


def _sides(shape: Sequence[int]) -> tuple[int, ...]:
    if not is_listed(shape) or not len(shape):
        raise UsageError(f"the shape of an input is a list of its sides, not {shape!r}")
    if not all(isinstance(side, int) and not isinstance(side, bool) and side > 0 for side in shape):
        raise UsageError(f"the shape of an input is a list of its sides, at least 1 each, not {shape!r}")
    return tuple(int(side) for side in shape)


def _network(torch: Any, model: Any, shape: tuple[int, ...] | None, hints: Hints, activations: object) -> Network:
    where = _where("", model)
    _check_module(torch, model, where)
    numbers = Numbers(torch)
    graph = Graph((1,) if shape is None else shape)
    known = Modules(numbers, graph, strip_softmax=hints.strip_softmax).known
    said = Said.of(activations, model, (torch.nn.Sequential, *known))
    if type(model) not in known and type(model) is not torch.nn.Sequential and said.name_for(model) is None:
        check_own(torch, model, (torch.nn.Sequential, *known), where)
    for place, module in model.named_modules():
        if type(module) in known:
            with error_context(_where(place, module)):
                numbers.see(module)
    sides = (_width(torch, model, known),) if shape is None else shape
    walk = _Walk(numbers, Graph(sides), hints, said)
    return walk.graph.network(walk.all_of(model), shape and sides, hints)


def _where(place: str, module: Any) -> str:
    return f"the module {place} ({type(module).__name__})" if place else f"the model ({type(module).__name__})"


def _check_module(torch: Any, module: Any, where: str) -> None:
    """Raises: InputError for what may compute something else than its class says."""
    if not isinstance(module, torch.nn.Module):
        raise InputError(f"{where} is no torch.nn.Module: from_torch reads a torch.nn.Sequential")
    if type(module).__name__ in _WRAPPERS:
        raise InputError(f"{where} has the model in it: give from_torch its .{_WRAPPERS[type(module).__name__]}")
    general = torch.nn.modules.module
    if general._global_forward_hooks or general._global_forward_pre_hooks:
        raise InputError(f"there are hooks for all modules, which may compute anything: {INSTEAD}")
    if module._forward_hooks or module._forward_pre_hooks:
        raise InputError(f"{where} has hooks, which may compute anything: {INSTEAD}")
    of_torch = type(module).__module__.startswith("torch.")
    hidden = sorted(set(vars(module)) & set(dir(type(module) if of_torch else torch.nn.Module)))
    if "_compiled_call_impl" in hidden:
        raise InputError(f"{where} was compiled in place: give from_torch a model that was not")
    if hidden:
        raise InputError(f"{where} has a {hidden[0]!r} other than its class, which may compute anything: {INSTEAD}")


def _width(torch: Any, model: Any, known: dict[type, Any]) -> int:
    """Of flat inputs: that of the first module which has one."""
    for where, module in _leaves(torch, model, "", count(1)):
        kind = type(module)
        if kind is torch.nn.Linear and module.weight is not None and module.weight.dim() == 2:
            return int(module.weight.shape[1])
        if kind is torch.nn.BatchNorm1d and module.running_mean is not None:
            return int(module.running_mean.numel())
        if kind not in known:
            check_own(torch, module, (torch.nn.Sequential, *known), where)
        if kind not in known or (kind.__name__.endswith(("1d", "2d")) and "Dropout" not in kind.__name__):
            raise InputError(f"{where} does not say what inputs look like: {SHAPE_ADVICE}")
    raise InputError("there is no Linear in the model, so that nothing says how wide its inputs are")


def _leaves(torch: Any, module: Any, place: str, counted: Iterator[int], depth: int = 0) -> Iterator[tuple[str, Any]]:
    """The modules of Sequentials within Sequentials."""
    where = _where(place, module)
    _check_module(torch, module, where)
    if type(module) is not torch.nn.Sequential:
        if next(counted) > _MAX_MODULES:
            raise InputError(f"the model has more than {_MAX_MODULES} modules")
        yield where, module
        return
    for name, part in _parts(module, place, depth):
        yield from _leaves(torch, part, name, counted, depth + 1)


def _parts(sequential: Any, place: str, depth: int) -> Iterator[tuple[str, Any]]:
    """Every part with its place; one that is called twice comes twice."""
    where = _where(place, sequential)
    _check_class(type(sequential), where)
    if depth > _MAX_DEPTH:
        raise InputError(f"{where}: Sequentials within Sequentials, {depth} deep")
    for name, part in sequential._modules.items():  # not children(), which skip a module that they had before
        yield f"{place}.{name}" if place else name, part


def _check_class(kind: type, where: str) -> None:
    """Raises: InputError if somebody replaced the class, or what is called when a module is."""
    if not kind.__module__.startswith("torch.nn.modules."):
        raise InputError(f"{where}: somebody replaced a class of torch by {kind.__module__}.{kind.__qualname__}")
    names = {"__call__": "_wrapped_call_impl"}
    for name in ("__call__", "_call_impl", "_compiled_call_impl", "forward", "__iter__", "_conv_forward"):
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


class _Memory:
    """A place in the memory, where tensors are: how often it was changed."""

    changes = 0


@dataclass(frozen=True)
class _Held:
    """What flows, at a place in the memory, as it was after so many changes."""

    flow: Flow
    memory: _Memory
    changes: int

    @staticmethod
    def at(flow: Flow, memory: _Memory | None = None) -> _Held:
        memory = memory or _Memory()
        return _Held(flow, memory, memory.changes)

    def now(self) -> Flow:
        if self.changes != self.memory.changes:
            raise InputError(
                "it takes what was changed in place since (as by +=, or a module with inplace=True), so that it is no "
                "longer what it was: do not change it in place"
            )
        return self.flow


class _Walk:
    """Goes through the modules in the order in which they are called, and makes the graph of what they compute."""

    def __init__(self, numbers: Numbers, graph: Graph, hints: Hints, said: Said) -> None:
        self.graph, self._said = graph, said
        self._torch, self._numbers = numbers.torch, numbers
        self._modules = Modules(numbers, graph, strip_softmax=hints.strip_softmax)
        self._functions = Functions(numbers, graph, self._modules)
        self._named = named_functions(self._torch)
        self._as_modules = module_functions(self._torch)
        self._counted = count(1)

    def all_of(self, model: Any) -> Any:
        """What the model makes of the input."""
        sides = self.graph.input.shape
        found = self._module(model, "", 0, [_Held.at(Flow((None, *sides), self.graph.input))], {})
        if not isinstance(found, _Held):
            raise InputError("the model gives something else than one tensor")
        return found.now().numbers

    # -- modules ---------------------------------------------------------------------------------------------------

    def _module(self, module: Any, place: str, depth: int, arguments: Sequence[Any], named: dict[str, Any]) -> Any:
        where = _where(place, module)
        _check_module(self._torch, module, where)
        if type(module) is self._torch.nn.Sequential:
            value = self._single(where, arguments, named)
            for name, part in _parts(module, place, depth):
                value = self._module(part, name, depth + 1, [value], {})
            return value
        if next(self._counted) > _MAX_MODULES:
            raise InputError(f"the model has more than {_MAX_MODULES} modules")
        if type(module) in self._modules.known:
            _check_class(type(module), where)
            with error_context(where):
                self.graph.where = where
                return self._known(module, self._single(where, arguments, named))
        said = self._said.name_for(module)
        if said is not None:
            with error_context(where):
                self.graph.where = where
                return self._activation(said, self._single(where, arguments, named))
        check_own(self._torch, module, (self._torch.nn.Sequential, *self._modules.known), where)
        if depth > _MAX_DEPTH:
            raise InputError(f"{where}: modules within modules, {depth} deep")
        return self._own(module, place, depth, arguments, named)

    def _single(self, where: str, arguments: Sequence[Any], named: dict[str, Any]) -> _Held:
        if len(arguments) == 1 and not named and isinstance(arguments[0], _Held):
            return arguments[0]
        raise InputError(f"{where} is called with something else than one tensor that depends on the input")

    def _known(self, module: Any, held: _Held) -> _Held:
        """A module of torch; in place, if it says so."""
        kind, x = type(module), held.now()
        if x.softened and kind not in self._modules.structural:
            raise InputError("it follows a softmax: only one at the very end can be stripped")
        found = self._modules.known[kind](module, x)
        if kind in self._modules.views:
            return _Held.at(found, held.memory)
        return self._changed(found, held) if getattr(module, "inplace", False) else _Held.at(found)

    def _activation(self, name: str, held: _Held) -> _Held:
        """One that the caller says."""
        x = held.now()
        if x.softened:
            raise InputError("it follows a softmax: only one at the very end can be stripped")
        return _Held.at(self._modules.activate(x, activation_for(name, x)))

    @staticmethod
    def _changed(found: Flow, held: _Held) -> _Held:
        held.memory.changes += 1
        return _Held.at(found, held.memory)

    # -- graphs of somebody's own modules ----------------------------------------------------------------------------

    def _own(self, module: Any, place: str, depth: int, arguments: Sequence[Any], named: dict[str, Any]) -> Any:
        where = _where(place, module)

        def run(kind: str, target: Any, name: str, given: list[Any], options: dict[str, Any]) -> Any:
            if kind == "call_module":
                part = f"{place}.{target}" if place else target
                return self._module(module.get_submodule(target), part, depth + 1, given, options)
            step = f"{where}, its operation {name}"
            with error_context(step):
                self.graph.where = step
                if kind == "get_attr":
                    return self._numbers.constant(self.graph, attrgetter(target)(module), target)
                return self._operation(kind, target, given, options)

        return traced(self._torch, module, where, run, self._functions.batch, arguments, named)

    def _operation(self, kind: str, target: Any, arguments: list[Any], named: dict[str, Any]) -> Any:
        """Methods are torch's own of tensors, by their names; functions are known as objects."""
        if kind == "call_method":
            method = getattr(self._torch.Tensor, target, None)
            if not str(getattr(method, "__module__", None) or "torch").startswith("torch"):
                raise InputError(f"somebody replaced {target} of tensors, so that it may compute anything")
            name = as_module = target
        else:
            name, as_module = self._named.get(target, ""), self._as_modules.get(target, "")
        found = module_for(self._torch, as_module, arguments, named)
        if found is not None:
            x, made = found
            if not isinstance(x, _Held):
                raise InputError("it is applied to something that does not depend on the input")
            return self._known(made, x)
        if not name:
            raise InputError(
                f"{getattr(target, '__module__', None)}.{getattr(target, '__name__', target)} is not understood: write "
                f"it with what is, or {INSTEAD}"
            )
        return self._function(name, arguments, named)

    def _function(self, name: str, arguments: list[Any], named: dict[str, Any]) -> Any:
        first = arguments[0] if arguments else next(iter(named.values()), None)
        flows: list[Flow] = []
        arguments, named = _now(arguments, flows), _now(named, flows)
        if name not in STRUCTURAL and any(flow.softened for flow in flows):
            raise InputError("it follows a softmax: only one at the very end can be stripped")
        found = self._functions.run(CHANGING.get(name, name), arguments, named)
        if name in CHANGING:
            if not isinstance(first, _Held):
                raise InputError("it changes something in place that does not depend on the input")
            return self._changed(found, first)
        memory = first.memory if name in VIEWS and isinstance(first, _Held) else None
        return _held(found, memory)


def _now(value: Any, flows: list[Flow]) -> Any:
    """With what flows in the place of what holds it; all of them are listed, too."""
    if isinstance(value, _Held):
        flows.append(value.now())
        return flows[-1]
    if isinstance(value, dict):
        return {name: _now(item, flows) for name, item in value.items()}
    return type(value)(_now(item, flows) for item in value) if type(value) in {list, tuple} else value


def _held(value: Any, memory: _Memory | None) -> Any:
    if isinstance(value, Flow):
        return _Held.at(value, memory)
    if isinstance(value, Extremes):
        return Extremes(_held(value.values, memory), value.indices)
    return tuple(_held(item, memory) for item in value) if isinstance(value, tuple) else value
