"""An ONNX graph -> layers, by carrying it out: constants exactly, the input as a value that flows through.

It has one input and one output. Nodes that the output does not depend on are left alone; every other one must be
understood by `onnx_operators`, or the model is refused with the node's name, its operator and what to do.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy.typing as npt

from intervalcert.errors import InputError, error_context, shortened
from intervalcert.io.models.assembly_graph import Graph
from intervalcert.io.models.interface import Hints
from intervalcert.io.models.onnx_node import Node, check_texts
from intervalcert.io.models.onnx_operators import FLOAT_TYPES, Operators
from intervalcert.io.models.onnx_values import Flow, Size, Value, check_rank, shown
from intervalcert.io.models.tensors import MAX_NUMBERS, Tensor
from intervalcert.model.network import Network

__all__ = ["read_graph"]

FIRST_OPSET, LAST_OPSET = 7, 28
"""Before 7 operators broadcast in another way; what comes after 28 is not known yet."""

FIRST_IR, LAST_IR = 3, 14
"""Versions of the file format itself."""

MAX_NODES = 10_000

MAX_INPUTS = 2**21
"""Numbers of one input. Much is computed for each of them."""

ReadArray = Callable[[Any, str], npt.NDArray[Any]]
"""Reads the numbers of a TensorProto, which is at a place."""


def read_graph(model: Any, array: ReadArray, hints: Hints) -> Network:
    """The network of a ModelProto; `array` reads the numbers of a TensorProto.

    Raises: InputError for everything that is not exactly understood.
    """
    _check_model(model)
    graph, opset = model.graph, _opset(model)
    initialisers = {item.name: item for item in graph.initializer}
    if len(initialisers) < len(graph.initializer):
        raise InputError("two initialisers have the same name")
    start, sides, shape, kind = _input(graph, initialisers)
    output = _output(graph)

    assembly = Graph(shape)
    operators = Operators(assembly, kind, strip_softmax=hints.strip_softmax)
    values: dict[str, Value] = {start: Flow(sides, assembly.input)}
    count = 0

    def tensor(proto: Any, where: str) -> Tensor:
        nonlocal count
        found = array(proto, where)
        count += found.size
        if count > MAX_NUMBERS:
            raise InputError(f"the model has more than {MAX_NUMBERS} numbers together: that many are not held")
        with error_context(where):
            return assembly.tensor(found)

    def value(name: str) -> Value:
        if name not in values:
            values[name] = tensor(initialisers[name], f"the initialiser {shortened(name, 100)!r}")
        return values[name]

    def given(node: Node) -> list[Value | None]:
        return [
            None if not name or _is_no_end(node, place, initialisers.get(name), array) else value(name)
            for place, name in enumerate(node.inputs)
        ]

    nodes = [Node(graph.node[index], index, opset, tensor, assembly.budget) for index in _wanted(graph, output)]
    for node in nodes:
        if len(node.outputs) > 1:  # before it is said that its second one is missing
            with error_context(node.where):
                operators.check(node)
    _check_names(graph, nodes, {start, *initialisers}, output)
    for node in nodes:
        with error_context(node.where):
            values |= operators.run(node, given(node))
    found = value(output)
    if not isinstance(found, Flow):
        raise InputError(f"the output {shortened(output, 100)!r} does not depend on the input")
    if sum(side != 1 for side in found.sides) > 1:
        raise InputError(
            f"the output has the shape {shown(found.shape)} where one number per class is expected (was the model "
            "exported for a batch of a fixed size? Export it for one input, or for any number of them)"
        )
    return assembly.network(found.numbers, shape, hints)


def _is_no_end(node: Node, place: int, initialiser: Any, array: ReadArray) -> bool:
    """Whether that input is an infinite end of a Clip, as if it were left out."""
    if node.op != "Clip" or place not in {1, 2} or initialiser is None or math.prod(initialiser.dims) != 1:
        return False
    found = array(initialiser, f"the initialiser {shortened(initialiser.name, 100)!r}")
    return found.dtype.kind == "f" and found.item() == (-math.inf if place == 1 else math.inf)


def _check_model(model: Any) -> None:
    """Raises: InputError for what is not read at first sight."""
    if not model.graph.node:
        raise InputError("not an ONNX model: there is no graph with nodes in it")
    if not FIRST_IR <= model.ir_version <= LAST_IR:
        raise InputError(
            f"a file of version {model.ir_version} of ONNX; {FIRST_IR} to {LAST_IR} are understood: export the model "
            "again"
        )
    check_texts(*(item.name for item in (*model.graph.initializer, *model.graph.input, *model.graph.output)))
    if len(model.graph.node) > MAX_NODES:
        raise InputError(f"a graph of {len(model.graph.node)} nodes; at most {MAX_NODES} are read")
    if model.functions:
        raise InputError("the model defines functions of its own: export it with them inlined")
    if model.graph.sparse_initializer:
        raise InputError("the model has sparse initialisers, which are not read: export it with dense ones")


def _opset(model: Any) -> int:
    versions = {item.version for item in model.opset_import if item.domain in {"", "ai.onnx"}}
    if len(versions) != 1:
        what = f"names {len(versions)} versions" if versions else "does not say which version"
        raise InputError(f"the model {what} of the operators that it uses (is the file truncated?)")
    (version,) = versions
    if not FIRST_OPSET <= version <= LAST_OPSET:
        raise InputError(
            f"operators of version {version}; {FIRST_OPSET} to {LAST_OPSET} are understood: export the model again"
        )
    return int(version)


def _input(graph: Any, initialisers: dict[str, Any]) -> tuple[str, tuple[Size, ...], tuple[int, ...], int]:
    """The name of the input, its shape, that of one sample, and the type of its numbers."""
    given = [item for item in graph.input if item.name not in initialisers]
    if len(given) != 1:
        names = ", ".join(repr(shortened(item.name, 50)) for item in given[:5]) or "none"
        raise InputError(
            f"a model with one input is expected, and this one has {len(given)}: {names} (what stays the same can be "
            "a constant: export the model again)"
        )
    name, declared = given[0].name, given[0].type.tensor_type
    what = f"the input {shortened(name, 100)!r}"
    if not given[0].type.HasField("tensor_type") or not declared.HasField("shape"):
        raise InputError(f"{what} is declared without a shape: export the model with one")
    if declared.elem_type not in FLOAT_TYPES:
        raise InputError(
            f"{what} is declared with numbers of type {declared.elem_type}; floats are expected: "
            "leave the conversion out of the model"
        )
    sides: list[Size] = [side.dim_value if side.HasField("dim_value") else None for side in declared.shape.dim]
    some = list(declared.shape.dim)[:10]
    text = ", ".join(shortened(str(side.dim_param or side.dim_value or "?"), 50) for side in some)
    if None in sides[1:] or sides in ([], [None]):
        raise InputError(
            f"{what} has the shape [{text}]: its widths must be known (only the first side, the "
            "batch, may be dynamic): export the model for inputs of one size"
        )
    check_rank(sides)
    known = tuple(1 if side is None else side for side in sides)
    if min(known) < 1 or math.prod(known) > MAX_INPUTS:
        raise InputError(f"{what} is declared with the shape [{text}]; 1 to {MAX_INPUTS} numbers are expected")
    is_batch = known[0] == 1 and len(known) > 1
    return name, tuple(sides), known[1:] if is_batch else known, declared.elem_type


def _output(graph: Any) -> str:
    if len(graph.output) != 1:
        names = ", ".join(repr(shortened(item.name, 50)) for item in list(graph.output)[:5]) or "none"
        raise InputError(f"a model with one output is expected, and this one has {len(graph.output)}: {names}")
    return str(graph.output[0].name)


def _wanted(graph: Any, output: str) -> list[int]:
    """Places of the nodes that the output depends on, in their order."""
    makers: dict[str, int] = {}
    for index, node in enumerate(graph.node):
        makers.update((name, index) for name in node.output if name)
    wanted, names = set[int](), [output]
    while names:
        index = makers.get(names.pop(), -1)
        if index >= 0 and index not in wanted:
            wanted.add(index)
            names += graph.node[index].input
    return sorted(wanted)


def _check_names(graph: Any, nodes: list[Node], given: set[str], output: str) -> None:
    """Raises: InputError if a value is defined twice, missing, or used too early."""
    made: set[str] = set()
    for node in graph.node:
        for name in filter(None, node.output):
            if name in made or name in given:
                raise InputError(f"the value {shortened(name, 100)!r} is defined twice")
            made.add(name)
    known = set(given)
    for node in nodes:
        for name in filter(None, node.inputs):
            if name not in known:
                what = "used before it is computed (a cycle?), or the mask of a Dropout" if name in made else "missing"
                raise InputError(f"{node.where}: the value {shortened(name, 100)!r} is {what}")
        known.update(Operators.given(node))
    if not output or output not in known:
        raise InputError(f"nothing computes the output {shortened(output, 100)!r}")
