"""What the `forward` of somebody's own module does: torch.fx calls it with stand-ins, and each step is read at once.

Trusted is the tracing itself: that `forward` does the same whenever it is called, and with tensors what it does with
the stand-ins. Shapes are known numbers to it, but for the size of the batch (`Batch`), which may only be handed on. A
`forward` that asks for the class of its argument by `isinstance` is refused; one that asks by `type(x)`, or for the
class of a shape or a size, or draws random numbers with Python, is not read as what it is.

Arguments that are no tensors are what they are, and those that are not given have their defaults, because Python itself
calls the function. Modules that it calls are looked at one by one. A change in place is an operation of its own, where
torch.fx would take `y += x` for `y = y + x`.

Whatever was refused once stays refused, also if `forward` catches the exception.
"""

from __future__ import annotations

import inspect
import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from intervalcert.errors import InputError, shortened

__all__ = ["Batch", "Run", "check_own", "module_for", "module_functions", "traced"]

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
    "adaptive_max_pool1d": ("AdaptiveMaxPool1d", "output_size return_indices"),
    "adaptive_max_pool2d": ("AdaptiveMaxPool2d", "output_size return_indices"),
    "softmax": ("Softmax", "dim"),
    "log_softmax": ("LogSoftmax", "dim"),
    "flatten": ("Flatten", "start_dim end_dim"),
    "unflatten": ("Unflatten", "dim unflattened_size"),
    "dropout": ("Dropout", "p training inplace"),
}
"""Functions of torch, torch.nn.functional and of tensors: the module that does the same, and what they take."""

_WITH_PLACES = ("adaptive_max_pool1d", "adaptive_max_pool2d")
"""Those that give places, too, if they are torch's and not torch.nn.functional's."""

Run = Callable[[str, Any, str, list[Any], dict[str, Any]], Any]
"""What an operation gives: its kind and target (as of a torch.fx.Node), its name, and values as arguments."""


class Batch:
    """The size of the batch, of which is known only that it is the same everywhere.

    Raises: InputError for whatever is asked of it. touched: whether anything was.
    """

    def __init__(self) -> None:
        self.touched = False

    def _refuse(self, *_: object) -> Any:
        self.touched = True
        raise InputError(_TOUCHED)

    def __index__(self) -> int:
        """Torch asks whether it has one, before it asks who else knows a function of it."""
        raise InputError(_TOUCHED)

    @classmethod
    def __torch_function__(cls, *_: object, **__: object) -> Any:
        return NotImplemented  # the stand-ins beside it know

    def __repr__(self) -> str:
        return "the size of the batch"


_TOUCHED = "it computes with the size of the batch, or compares it, which may only be handed on (as to view)"

_ASKED = (
    "eq ne lt le gt ge hash bool int float len iter neg pos abs invert round trunc floor ceil "
    "add sub mul truediv floordiv mod pow divmod lshift rshift and or xor matmul "
    "radd rsub rmul rtruediv rfloordiv rmod rpow rdivmod rlshift rrshift rand ror rxor rmatmul"
)
for _name in _ASKED.split():
    setattr(Batch, f"__{_name}__", Batch._refuse)


def _is_asked_here() -> bool:
    """Whether it is this package, or torch.fx, that asks for the class of a stand-in."""
    names = str(sys._getframe(2).f_globals.get("__name__", "")).split(".")
    return names[:2] == ["torch", "fx"] or names[:1] == __name__.split(".")[:1]


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


def traced(
    torch: Any, module: Any, where: str, run: Run, batch: Batch, arguments: Sequence[Any], named: dict[str, Any]
) -> Any:
    """What its forward makes of these values; `run` carries out each operation.

    Raises: InputError if it cannot be traced, or something in it is refused.
    """
    try:
        inspect.signature(type(module).forward).bind(module, *arguments, **named)
    except TypeError as error:
        raise InputError(
            f"{where}: its forward is called with other arguments than it takes ({error}); a model has one input"
        ) from None
    tracer = _tracer(torch, where, run, arguments, named)
    try:
        tracer.trace(module)
    except Exception as error:
        if isinstance(tracer.failed or error, RecursionError):
            raise InputError(f"{where}: modules within modules, too deep to be traced") from None
        if tracer.failed is not None:
            raise tracer.failed from None
        if batch.touched:
            raise InputError(f"{where}: {_TOUCHED}") from None
        text = shortened(" ".join(str(error).split()), 300)
        raise InputError(
            f"{where}: torch.fx cannot trace its forward ({type(error).__name__}: {text}): what it does must not "
            "depend on the numbers of its input, nor on the size of the batch"
        ) from error
    if tracer.failed is not None:
        raise tracer.failed
    if batch.touched:
        raise InputError(f"{where}: {_TOUCHED}")
    return tracer.found


def _tracer(torch: Any, where: str, run: Run, arguments: Sequence[Any], named: dict[str, Any]) -> Any:
    """With every module that is called as one step, and no tensors but those of the module."""
    usual = torch.nn.Module.__call__, torch.nn.Module.__getattr__

    class Tracer(torch.fx.Tracer):  # type: ignore[misc]
        """failed: what was raised first while something was read. found: what forward gives."""

        def __init__(self) -> None:
            super().__init__()
            self.failed: BaseException | None = None
            self.found: Any = None
            self.values: dict[Any, Any] = {}

        def create_args_for_root(self, root_fn: Any, *_: object) -> tuple[Any, list[Any]]:
            def forward() -> None:
                shown = [self.shown(value, "placeholder", "input") for value in arguments]
                options = {name: self.shown(value, "placeholder", name) for name, value in named.items()}
                found = root_fn(self.root, *shown, **options)
                with self._kept():
                    self.found = self.value(found)

            return forward, []

        def is_leaf_module(self, *_: object) -> bool:
            return True

        def create_proxy(self, kind: str, target: Any, args: Any, kwargs: Any, *_: object, **__: object) -> Any:
            """Torch.fx calls it for each operation."""
            with self._kept(), _as_usual(torch, usual):
                node = self.create_node(kind, target, (), {})
                if len(self.graph.nodes) > MAX_NODES:
                    raise InputError(f"{where}: its forward has more than {MAX_NODES} operations")
                given = [self.value(value) for value in args]
                options = {name: self.value(value) for name, value in kwargs.items()}
                return self.shown(run(kind, target, node.name, given, options), kind, target, node)

        @contextmanager
        def _kept(self) -> Iterator[None]:
            try:
                yield
            except Exception as error:
                self.failed = self.failed or error
                raise

        def refuse(self, text: str) -> Any:
            with self._kept():
                raise InputError(f"{where}: {text}")

        def shown(self, value: Any, kind: str, target: Any, node: Any = None) -> Any:
            """As forward sees it: stand-ins for what depends on the input, and for constants; else what it is."""
            if value is None or isinstance(value, bool | int | float | str | Batch):
                return value
            if isinstance(value, tuple | list):
                return _rebuilt(value, [self.shown(item, "call_function", operator.getitem) for item in value])
            if isinstance(value, dict):
                return {name: self.shown(item, "call_function", operator.getitem) for name, item in value.items()}
            node = node or self.create_node(kind, target, (), {})
            self.values[node] = value
            return stand_in(node, self)

        def value(self, given: Any) -> Any:
            """What a stand-in stands for, also within lists."""
            if isinstance(given, torch.fx.Proxy):
                if given.tracer is not self:
                    raise InputError(f"{where}: it takes something that was kept from another call")
                if given.node not in self.values:
                    raise InputError(f"{where}: it takes a copy of what stands for a tensor")
                return self.values[given.node]
            if isinstance(given, torch.Tensor):
                for name, own in (*self.root.named_parameters(), *self.root.named_buffers()):
                    if own is given:
                        return run("get_attr", name, name, [], {})
                raise InputError(
                    f"{where}: it computes with a tensor that is no parameter and no buffer of it: register it"
                )
            if isinstance(given, slice):
                return slice(*(self.value(end) for end in (given.start, given.stop, given.step)))
            if isinstance(given, dict):
                return {name: self.value(item) for name, item in given.items()}
            return _rebuilt(given, map(self.value, given)) if isinstance(given, tuple | list) else given

        def to_bool(self, _: Any) -> bool:
            return bool(self.refuse("a condition on what depends on the input"))

        def iter(self, _: Any) -> Iterator[Any]:
            return iter(self.refuse("it goes through the entries of what depends on the input"))

        def keys(self, _: Any) -> Any:
            return self.refuse("it unpacks what depends on the input, as a dictionary")

    stand_in = _stand_in(torch)
    return Tracer()


def _stand_in(torch: Any) -> type:
    """The class of what forward sees in the place of tensors."""

    def kind(self: Any) -> type:
        """Somebody asks by isinstance(x, ...), and would hear another answer of a tensor."""
        if _is_asked_here():
            return type(self)
        asked: type = self.tracer.refuse("it asks what class a tensor has (isinstance): leave that out of the forward")
        return asked

    class StandIn(torch.fx.Proxy):  # type: ignore[misc]
        """Where x += y changes x, as it does with tensors, and attributes are known at once."""

        __class__ = property(kind)

        def __getattr__(self, name: str) -> Any:
            if name.startswith("_") or callable(getattr(torch.Tensor, name, None)):
                return torch.fx.Proxy.__getattr__(self, name)  # a method, which is called, as a rule
            return self.tracer.create_proxy("call_function", getattr, (self, name), {})

        def __len__(self) -> int:
            side = self.tracer.create_proxy("call_method", "size", (self, 0), {})
            return side if isinstance(side, int) else int(self.tracer.refuse(_TOUCHED))

    def change(name: str) -> Any:
        function = getattr(operator, name)
        return lambda self, other: self.tracer.create_proxy("call_function", function, (self, other), {})

    for name in _CHANGES:
        setattr(StandIn, f"__{name}__", change(name))
    return StandIn


@contextmanager
def _as_usual(torch: Any, usual: tuple[Any, Any]) -> Iterator[None]:
    """Without what torch.fx puts into the place of functions of all modules while it traces."""
    kind = torch.nn.Module
    replaced = kind.__call__, kind.__getattr__
    kind.__call__, kind.__getattr__ = usual
    try:
        yield
    finally:
        kind.__call__, kind.__getattr__ = replaced


def _rebuilt(like: Any, items: Any) -> Any:
    """A list, a tuple, or a tuple with names."""
    if hasattr(like, "_fields"):
        return type(like)(*items)
    return list(items) if isinstance(like, list) else tuple(items)


# -- functions that are modules ----------------------------------------------------------------------------------------


def module_functions(torch: Any) -> dict[Any, str]:
    """The functions that do what a module of torch.nn does, and their names."""
    found = {getattr(torch, name): name for name in _MODULES if hasattr(torch, name) and name not in _WITH_PLACES}
    of_nn = torch.nn.functional
    return found | {getattr(of_nn, name): name for name in _MODULES if hasattr(of_nn, name)}


def module_for(torch: Any, name: str, arguments: list[Any], named: dict[str, Any]) -> tuple[Any, Any] | None:
    """What the function of that name is applied to, and the module that does the same; None if there is none.

    Raises: InputError for arguments that are not known.
    """
    if name not in _MODULES:
        return None
    kind, text = _MODULES[name]
    names = ["input", *text.split()]
    if name == "unflatten":
        named = {"unflattened_size" if key == "sizes" else key: value for key, value in named.items()}
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
    except (TypeError, ValueError, AssertionError) as error:
        raise InputError(f"its arguments are not understood: {error}") from None
    made.training = training
    return x, made


def _is_plain(value: object) -> bool:
    if isinstance(value, tuple | list):
        return all(_is_plain(item) for item in value)
    return value is None or isinstance(value, bool | int | float)
