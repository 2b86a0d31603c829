"""An ONNX graph -> a chain of layers, by carrying it out: constants exactly, the input as a value that flows through.

Understood are chains: one input, one output, and each value that depends on the input used once. (Its shape may be
asked for as often as one likes.) Nodes that the output does not depend on are left alone; every other one must be
understood by `onnx_operators`, or the model is refused with the node's name, its operator and what to do.
"""

from __future__ import annotations

from typing import Any

from intervalcert.errors import InputError
from intervalcert.loaders.assembly import Assembly
from intervalcert.loaders.interface import Hints
from intervalcert.loaders.onnx_operators import FLOAT_TYPES, Node, Operators, ReadArray, tensor_of
from intervalcert.loaders.onnx_values import Flow, Size, Value, shown
from intervalcert.network import MAX_ENTRIES, Network

__all__ = ["read_graph"]

FIRST_OPSET, LAST_OPSET = 7, 28
"""Before 7 operators broadcast in another way; what comes after 28 is not known yet."""

MAX_NODES = 10_000


def read_graph(model: Any, array: ReadArray, hints: Hints) -> Network:
    """The network of a ModelProto; `array` reads the numbers of a TensorProto.

    Raises: InputError for everything that is not exactly understood.
    """
    graph, opset = model.graph, _opset(model)
    if not graph.node:
        raise InputError("not an ONNX model: there is no graph with nodes in it")
    if len(graph.node) > MAX_NODES:
        raise InputError(f"a graph of {len(graph.node)} nodes; at most {MAX_NODES} are read")
    if model.functions:
        raise InputError("the model defines functions of its own: export it with them inlined")
    if graph.sparse_initializer:
        raise InputError("the model has sparse initialisers, which are not read: export it with dense ones")
    initialisers = {item.name: item for item in graph.initializer}
    if len(initialisers) < len(graph.initializer):
        raise InputError("two initialisers have the same name")
    start, flow, shape = _input(graph, initialisers)
    output = _output(graph)

    assembly = Assembly(flow.width)
    operators = Operators(assembly, opset, array, strip_softmax=hints.strip_softmax)
    values: dict[str, Value] = {start: flow}

    def value(name: str) -> Value:
        if name not in values:
            where = f"the initialiser {name[:100]!r}"
            values[name] = tensor_of(array(initialisers[name], where), where)
        return values[name]

    for node in _needed(graph, initialisers, start, output):
        try:
            values[node.outputs[0]] = operators.run(node, [value(name) if name else None for name in node.inputs])
        except InputError as error:
            raise InputError(f"{node.where}: {error}") from None
    found = values[output]
    if not isinstance(found, Flow):
        raise InputError(f"the output {output!r} does not depend on the input")
    if hints.strip_softmax and not operators.stripped:
        raise InputError("there is no softmax at the end to be stripped: leave --strip-softmax out")
    if sum(side != 1 for side in found.sides) > 1:
        raise InputError(
            f"the output has the shape {shown(found.shape)} where one number per class is expected (was the model "
            "exported for a batch of a fixed size? Export it for one input, or for any number of them)"
        )
    return assembly.network(shape)


def _opset(model: Any) -> int:
    versions = [item.version for item in model.opset_import if item.domain in {"", "ai.onnx"}]
    if len(versions) != 1:
        raise InputError("the model does not say which version of the operators it uses (is the file truncated?)")
    if not FIRST_OPSET <= versions[0] <= LAST_OPSET:
        raise InputError(
            f"operators of version {versions[0]}; {FIRST_OPSET} to {LAST_OPSET} are understood: export the model again"
        )
    return int(versions[0])


def _input(graph: Any, initialisers: dict[str, Any]) -> tuple[str, Flow, tuple[int, ...]]:
    """The name of the input, what flows from it, and the shape of one sample."""
    given = [item for item in graph.input if item.name not in initialisers]
    if len(given) != 1:
        names = ", ".join(repr(item.name[:50]) for item in given[:5]) or "none"
        raise InputError(f"a model with one input is expected, and this one has {len(given)}: {names}")
    name, declared = given[0].name, given[0].type.tensor_type
    if not given[0].type.HasField("tensor_type") or not declared.HasField("shape"):
        raise InputError(f"the input {name!r} is declared without a shape: export the model with one")
    if declared.elem_type not in FLOAT_TYPES:
        raise InputError(
            f"the input {name!r} is declared with numbers of type {declared.elem_type}; floats are expected: leave the "
            "conversion out of the model"
        )
    sides: list[Size] = [side.dim_value if side.HasField("dim_value") else None for side in declared.shape.dim]
    text = ", ".join(str(side.dim_param[:50] or side.dim_value or "?") for side in list(declared.shape.dim)[:10])
    if None in sides[1:] or sides in ([], [None]):
        raise InputError(
            f"the input {name!r} has the shape [{text}]: its widths must be known (only the first side, the batch, may "
            "be dynamic)"
        )
    flow = Flow(tuple(sides))
    if not all(side > 0 for side in flow.sides) or flow.width > MAX_ENTRIES:
        raise InputError(f"the input {name!r} is declared with the shape [{text}]")
    is_batch = sides[0] in {None, 1} and len(sides) > 1
    return name, flow, flow.sides[1:] if is_batch else flow.sides


def _output(graph: Any) -> str:
    if len(graph.output) != 1:
        names = ", ".join(repr(item.name[:50]) for item in list(graph.output)[:5]) or "none"
        raise InputError(f"a model with one output is expected, and this one has {len(graph.output)}: {names}")
    return str(graph.output[0].name)


def _needed(graph: Any, initialisers: dict[str, Any], start: str, output: str) -> list[Node]:
    """The nodes that the output depends on, in their order, which must be one in which they can be carried out.

    Raises: InputError if a value is defined twice, missing, or, if it depends on the input, used twice.
    """
    makers: dict[str, int] = {}
    for index, node in enumerate(graph.node):
        for name in filter(None, node.output):
            if name in makers or name in initialisers or name == start:
                raise InputError(f"the value {name[:100]!r} is defined twice")
            makers[name] = index
    wanted, names = set[int](), [output]
    while names:
        index = makers.get(names.pop(), -1)
        if index >= 0 and index not in wanted:
            wanted.add(index)
            names += graph.node[index].input
    nodes = [Node(graph.node[index], index) for index in sorted(wanted)]
    known, flowing = {start, *initialisers}, {start}
    users: dict[str, str] = {}
    for node in nodes:
        for name in filter(None, node.inputs):
            if name not in known:
                what = "used before it is computed (a cycle?)" if name in makers else "missing"
                raise InputError(f"{node.where}: the value {name[:100]!r} is {what}")
            if name in flowing and node.op != "Shape":
                if name in users:
                    raise InputError(
                        f"the value {name[:100]!r} goes to {users[name]} and to {node.where}: a branch, and only "
                        "chains of layers are understood"
                    )
                users[name] = node.where
                flowing.add(node.outputs[0])
        known.add(node.outputs[0])
    if output in users:
        raise InputError(f"the output {output!r} goes on to {users[output]}: a branch")
    if output not in known:
        raise InputError(f"nothing computes the output {output!r}")
    return nodes
