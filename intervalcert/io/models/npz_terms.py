"""The terms of a layer in our own model file: a line of words for each, and its numbers in arrays.

    SOURCE dense IN OUT                        W: outputs x inputs
    SOURCE convolution IN OUTPUTS SIZE STRIDE DILATION BEFORE GROUPS    W: output channels x channels of a group·places
    SOURCE mean IN OUTPUTS SIZE STRIDE DILATION BEFORE GROUPS           the same, of a pool of means
    SOURCE identity IN
    SOURCE index IN OUT                        I: the index of each output, or -1; W: factors, if there are any
    SOURCE channels IN OUT                     W: outputs of a channel x inputs of a channel

SOURCE is the number of a layer, or -1 for the input; shapes and pairs are written as 3x32x32 and 2x2.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
import numpy.typing as npt

from intervalcert.errors import InputError, shortened
from intervalcert.model.layers import INPUT, Term
from intervalcert.model.linear_maps import (
    ChannelWise,
    Convolution,
    Dense,
    IndexMap,
    LinearMap,
    Shape,
    identity,
    shape_text,
)
from intervalcert.model.windows import Window
from intervalcert.numbers.matrices import RationalMatrix

__all__ = ["MAX_TERMS", "read_term", "term_arrays", "term_words"]

MAX_TERMS = 64
"""Of one layer."""

MAX_NUMBERS = 2**26
"""That a shape may stand for."""

Numbers = Callable[[], RationalMatrix | None]
Index = Callable[[], npt.NDArray[np.int64] | None]


def term_words(term: Term) -> str:
    """The line of a term."""
    linear = term.map
    shapes = [shape_text(linear.in_shape), shape_text(linear.out_shape)]
    if isinstance(linear, Convolution):
        window = linear.window
        pairs = (window.outputs, window.size, window.stride, window.dilation, window.before)
        words = ["mean" if linear.is_mean else "convolution", shapes[0], *map(shape_text, pairs), str(linear.groups)]
    elif isinstance(linear, IndexMap):
        words = ["identity", shapes[0]] if linear.is_identity else ["index", *shapes]
    else:
        words = ["dense" if isinstance(linear, Dense) else "channels", *shapes]
    return " ".join([str(term.source), *words])


def term_arrays(linear: LinearMap) -> tuple[RationalMatrix | None, npt.NDArray[np.int64] | None]:
    """W and I of a term, where it has them."""
    if isinstance(linear, Dense | ChannelWise):
        return linear.matrix, None
    if isinstance(linear, Convolution):
        return linear.kernel, None
    if isinstance(linear, IndexMap):
        return linear.factors, None if linear.is_identity else linear.index.astype(np.int64)
    raise ValueError(f"{linear!r} is no map that is written")


def read_term(line: str, numbers: Numbers, index: Index) -> Term:
    """The term of a line. numbers, index: its W and I, or None where there is none.

    Raises: InputError for what is no such line, or does not fit its numbers.
    """
    words = line.split(" ")
    if len(words) < 3 or not words[0].removeprefix("-").isdecimal() or len(words[0]) > 9:
        raise InputError(f"{shortened(line)!r} is no term of a layer")
    source, kind, *rest = int(words[0]), words[1], *words[2:]
    if source < INPUT or _COUNTS.get(kind) != len(rest):
        raise InputError(f"{shortened(line)!r} is no term of a layer")
    if kind == "identity":
        return Term(source, identity(_shape(rest[0])))
    if kind == "index":
        return Term(source, _index_map(rest, numbers(), index()))
    found = numbers()
    if found is None:
        raise InputError(f"{shortened(line)!r} is without its numbers")
    if kind in {"convolution", "mean"}:
        return Term(source, _convolution(rest, found, is_mean=kind == "mean"))
    shapes = _shape(rest[0]), _shape(rest[1])
    return Term(source, Dense(found, *shapes) if kind == "dense" else ChannelWise(found, *shapes))


_COUNTS = {"dense": 2, "convolution": 7, "mean": 7, "identity": 1, "index": 2, "channels": 2}
"""Words after the kind."""


def _convolution(words: list[str], kernel: RationalMatrix, *, is_mean: bool) -> Convolution:
    channels, *inputs = _shape(words[0])
    outputs, size, stride, dilation = (_shape(word) for word in words[1:5])
    before, groups = _shape(words[5], least=0), _shape(words[6])
    pairs = (tuple(inputs), outputs, size, stride, dilation, before)
    if any(len(pair) != 2 for pair in pairs) or len(groups) != 1:
        raise InputError("a convolution goes over a grid of channels, height and width")
    return Convolution(kernel, channels, Window(*((pair[0], pair[1]) for pair in pairs)), groups[0], is_mean)


def _index_map(words: list[str], factors: RationalMatrix | None, index: npt.NDArray[np.int64] | None) -> IndexMap:
    inputs, outputs = _shape(words[0]), _shape(words[1])
    if index is None or index.dtype.kind not in "iu" or index.shape != (prod(outputs),):
        raise InputError("an index map is without its indices")
    if int(index.min()) < -1 or int(index.max()) >= prod(inputs):
        raise InputError("an index map looks beyond its inputs")
    return IndexMap(index.astype(np.intp), inputs, outputs, factors)


def _shape(text: str, least: int = 1) -> Shape:
    parts = text.split("x")
    if not all(part.isascii() and part.isdecimal() and len(part) <= 9 for part in parts) or len(parts) > 8:
        raise InputError(f"{shortened(text)!r} is no shape")
    found = tuple(map(int, parts))
    if min(found) < least or prod(found) > MAX_NUMBERS:
        raise InputError(f"{shortened(text)!r} is no shape of 1 to {MAX_NUMBERS} numbers")
    return found
