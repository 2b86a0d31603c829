"""The smaller and the larger one of each pair of entries, where both have one origin: MinMax, of halves of a value.

Pairs are sorted where they are, which moves no two arrays apart; then the smaller ones and the larger ones are taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from intervalcert.backends.protocol import Indices
from intervalcert.io.models.assembly_values import Value

if TYPE_CHECKING:
    from intervalcert.io.models.assembly_graph import Graph

__all__ = ["sorted_pairs"]


def sorted_pairs(graph: Graph, a: Value, b: Value) -> tuple[Value, Value] | None:
    """(min(a, b), max(a, b)), if both take their entries from one origin; else None. Requires: one width."""
    if a.origin is not b.origin:
        return None
    first, second = (value.origin.indices if value.post.index is None else value.post.index for value in (a, b))
    if a.origin.has_all(np.concatenate([first, second])):
        whole = _whole(graph, a, b, first, second)
        if (second < first).all():
            first, second = second, first
        inner = int(second[0] - first[0])
        alternate = inner > 0 and (second - first == inner).all() and not (first // inner % 2).any()
        if whole is not None and alternate:
            return _sorted(graph, whole, first, second, inner)
    if a.post.least < 1 or b.post.least < 1:
        return None
    first, second = np.arange(a.width), np.arange(a.width, 2 * a.width)
    return _sorted(graph, graph.join([a, b], [first, second], (2 * a.width,)), first, second, a.width)


def _sorted(graph: Graph, whole: Value, first: Indices, second: Indices, inner: int) -> tuple[Value, Value]:
    """Those at these places of pairs, the first of which are before the second."""
    found = graph.sort(whole, 2, inner)
    return graph.take(found, first, (len(first),)), graph.take(found, second, (len(second),))


def _whole(graph: Graph, a: Value, b: Value, first: Indices, second: Indices) -> Value | None:
    """The value of which these two have the entries at these places; None if they have factors of their own each."""
    origin, before = a.origin, a.post.moved_from
    if before is not None and b.post.moved_from is before:
        return Value(origin, before, origin.shape)
    if a.post.least < 1 or b.post.least < 1:
        return None
    return graph.join([a, b], [first, second], origin.shape)
