"""The graph of operations of somebody's own module, as torch.fx traces its `forward`; and functions in such graphs.

Trusted is the tracing itself: that `forward` does the same whenever it is called, and with tensors what it does with
the stand-ins of torch.fx. (A `forward` that asks what class its argument has, or draws random numbers with Python, is
not read as what it is.) Modules that it calls are not traced with it: they are looked at one by one. A change in place
is an operation of its own (`ChangingProxy`), where torch.fx would take `y += x` for `y = y + x`.
"""

from __future__ import annotations

import operator
from typing import Any

from intervalcert.errors import InputError, shortened

__all__ = ["check_own", "module_for", "module_functions", "traced"]

MAX_NODES = 10_000

_CHANGES = ("iadd", "isub", "imul", "itruediv", "ifloordiv", "imod", "ipow", "imatmul", "iand", "ior", "ixor")

_MODULES = {
    "relu": ("ReLU", "inplace"),
    "relu_": ("ReLU", ""),
    "relu6": ("ReLU6", "inplace"),
    "hardtanh": ("Hardtanh", "min_val max_val inplace"),
    "leaky_relu": ("LeakyReLU", "negative_slope inplace"),
    "elu": ("ELU", "alpha inplace"),
    "softplus": ("Softplus", "beta threshold"),
    "tanh": ("Tanh", ""),
    "sigmoid": ("Sigmoid", ""),
    "max_pool1d": ("MaxPool1d", "kernel_size stride padding dilation ceil_mode return_indices"),
    "max_pool2d": ("MaxPool2d", "kernel_size stride padding dilation ceil_mode return_indices"),
    "avg_pool1d": ("AvgPool1d", "kernel_size stride padding ceil_mode count_include_pad"),
    "avg_pool2d": ("AvgPool2d", "kernel_size stride padding ceil_mode count_include_pad divisor_override"),
    "adaptive_avg_pool1d": ("AdaptiveAvgPool1d", "output_size"),
    "adaptive_avg_pool2d": ("AdaptiveAvgPool2d", "output_size"),
    "softmax": ("Softmax", "dim"),
    "log_softmax": ("LogSoftmax", "dim"),
    "flatten": ("Flatten", "start_dim end_dim"),
    "dropout": ("Dropout", "p training inplace"),
}
"""Functions of torch, torch.nn.functional and of tensors: the module that does the same, and what they take."""


def check_own(torch: Any, module: Any, known: tuple[type, ...], where: str) -> None:
    """Raises: InputError unless it is a module of somebody's own, with a forward that torch calls as it is."""
    kind = type(module)
    names = ", ".join(one.__name__ for one in known)
    parent = next((base for base in kind.__mro__ if base in known and base is not torch.nn.Sequential), None)
    if kind.__module__.partition(".")[0] == "torch" or isinstance(module, torch.jit.ScriptModule) or parent:
        raise InputError(
            f"{where} is a {kind.__module__}.{kind.__qualname__}, which is not understood (only torch.nn's {names}, "
            "and no subclasses; and modules of one's own that are made of them): export the model to ONNX "
            "(torch.onnx.export) and load that"
        )
    for name in ("__call__", "_call_impl", "_compiled_call_impl", "_wrapped_call_impl", "__getattr__"):
        if getattr(kind, name, None) is not getattr(torch.nn.Module, name, None):
            raise InputError(f"{where} has a {name} of its own, which may compute anything")
    if kind.forward is torch.nn.Module.forward:
        raise InputError(f"{where} has no forward")


def traced(torch: Any, module: Any, where: str) -> Any:
    """Its graph (torch.fx.Graph). Raises: InputError if it cannot be traced."""
    try:
        graph = _tracer(torch).trace(module)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    except Exception as error:
        text = shortened(" ".join(str(error).split()), 300)
        raise InputError(
            f"{where}: torch.fx cannot trace its forward ({type(error).__name__}: {text}): what it does must not "
            "depend on the numbers or the shape of its input"
        ) from error
    if len(graph.nodes) > MAX_NODES:
        raise InputError(f"{where}: its forward has more than {MAX_NODES} operations")
    return graph


def _tracer(torch: Any) -> Any:
    """With every module that is called as one step, and no tensors but those of the module."""

    class ChangingProxy(torch.fx.Proxy):  # type: ignore[misc]
        """Where x += y changes x, as it does with tensors."""

    def change(name: str) -> Any:
        function = getattr(operator, name)
        return lambda self, other: self.tracer.create_proxy("call_function", function, (self, other), {})

    for name in _CHANGES:
        setattr(ChangingProxy, f"__{name}__", change(name))

    class Tracer(torch.fx.Tracer):  # type: ignore[misc]
        def is_leaf_module(self, *_: object) -> bool:
            return True

        def proxy(self, node: Any) -> Any:
            return ChangingProxy(node, self)

        def create_arg(self, value: Any) -> Any:
            """Torch.fx would add to the module what is no part of it."""
            if isinstance(value, torch.Tensor) and not any(value is own for own in _tensors(self.root)):
                raise InputError("it computes with a tensor that is no parameter and no buffer of it: register it")
            return super().create_arg(value)

    return Tracer()


def _tensors(module: Any) -> list[Any]:
    return [*module.parameters(), *module.buffers()]


# -- functions that are modules ----------------------------------------------------------------------------------------


def module_functions(torch: Any) -> dict[Any, str]:
    """The functions that do what a module of torch.nn does, and their names."""
    places = (torch, torch.nn.functional)
    return {getattr(place, name): name for name in _MODULES for place in places if hasattr(place, name)}


def module_for(torch: Any, name: str, arguments: list[Any], named: dict[str, Any]) -> tuple[Any, Any] | None:
    """What the function of that name is applied to, and the module that does the same; None if there is none.

    Raises: InputError for arguments that are not known.
    """
    if name not in _MODULES:
        return None
    kind, text = _MODULES[name]
    names = ["input", *text.split()]
    options = {key: value for key, value in named.items() if key != "_stacklevel" and (key, value) != ("dtype", None)}
    if len(arguments) > len(names) or set(options) - set(names[len(arguments) :]):
        raise InputError(f"{name} is understood with the arguments {', '.join(names)} only")
    options |= dict(zip(names, arguments, strict=False))
    x = options.pop("input", None)
    if name == "flatten":
        options = {"start_dim": 0} | options
    training = options.pop("training", True)
    if not all(_is_plain(value) for value in options.values()) or not isinstance(training, bool):
        raise InputError("its settings depend on the input, or are no numbers")
    if name == "relu_":
        options["inplace"] = True
    try:
        made = getattr(torch.nn, kind)(**options)
    except (TypeError, ValueError) as error:
        raise InputError(f"its arguments are not understood: {error}") from None
    made.training = training
    return x, made


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple | list):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, bool | int | float)
