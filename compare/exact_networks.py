"""A network in exact rationals, by plain loops over integers: what it computes, and which linear piece a point is in.

Written once more on purpose: it judges verdicts and margins, and shares nothing with what found them. Of the package
it takes the numbers of a network alone: matrices, kernels, windows, names of activations.

Uses the kinds of linear maps of the package itself: to tell them apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import gcd, lcm
from operator import mul

from intervalcert import Network
from intervalcert.model.linear_maps import ChannelWise, Convolution, Dense, IndexMap, LinearMap
from intervalcert.numbers.matrices import RationalMatrix

__all__ = ["ExactNetwork", "Piece", "exact_logits"]

Product = Callable[[list[int]], list[int]]


@dataclass(frozen=True)
class Values:
    """Numbers with one denominator."""

    numerators: list[int]
    denominator: int

    def fractions(self) -> list[Fraction]:
        return [Fraction(n, self.denominator) for n in self.numerators]


@dataclass(frozen=True)
class Piece:
    """What an activation does around a point: output k is slopes[k] times the number sources[k] before it.

    smooth: whether it does so all around it; not at a kink, nor where two numbers that are compared are equal.
    """

    sources: list[int]
    slopes: list[Fraction]
    smooth: bool


def exact_logits(network: Network, x: Sequence[Fraction]) -> list[Fraction]:
    """The real-number network at x. Raises: ValueError for an activation or a map that is not known here."""
    return ExactNetwork(network).logits(x)


class ExactNetwork:
    """A network whose numbers are read once."""

    def __init__(self, network: Network) -> None:
        if any(layer.before or layer.after for layer in network.layers) or network.uncertain_input_scale:
            raise ValueError("a network with factors that no rational holds")
        self._names = network.activations
        self._terms = [[(term.source, *_product(term.map)) for term in layer.terms] for layer in network.layers]
        self._biases = [None if layer.bias is None else _column(layer.bias) for layer in network.layers]

    def logits(self, x: Sequence[Fraction]) -> list[Fraction]:
        return self.followed(x)[0].fractions()

    def followed(self, x: Sequence[Fraction]) -> tuple[Values, list[Piece]]:
        """The logits, and what the activation of each hidden layer does there."""
        denominator = lcm(*(v.denominator for v in x))
        given = {-1: Values([v.numerator * (denominator // v.denominator) for v in x], denominator)}
        pieces: list[Piece] = []
        for index, (terms, bias, name) in enumerate(zip(self._terms, self._biases, self._names, strict=True)):
            parts = [
                Values(times(given[source].numerators), over * given[source].denominator)
                for source, times, over in terms
            ]
            total = _sum(parts if bias is None else [*parts, bias])
            if name is None:
                return total, pieces
            piece = _piece(name, total.numerators)
            given[index] = _carried_out(piece, total)
            pieces.append(piece)
        raise ValueError("a network whose last layer has an activation")


def _sum(parts: Sequence[Values]) -> Values:
    common = lcm(*(part.denominator for part in parts))
    scaled = [[n * (common // part.denominator) for n in part.numerators] for part in parts]
    return _shortened([sum(each) for each in zip(*scaled, strict=True)], common)


def _shortened(numerators: list[int], denominator: int) -> Values:
    common = gcd(denominator, *numerators)
    return Values([n // common for n in numerators], denominator // common)


def _carried_out(piece: Piece, before: Values) -> Values:
    common = lcm(*(slope.denominator for slope in piece.slopes))
    pairs = zip(piece.sources, piece.slopes, strict=True)
    made = [before.numerators[at] * slope.numerator * (common // slope.denominator) for at, slope in pairs]
    return _shortened(made, before.denominator * common)


def _column(matrix: RationalMatrix) -> Values:
    return Values([row[0] for row in matrix.numerators.tolist()], matrix.denominator)


# -- linear maps -------------------------------------------------------------------------------------------------------


def _product(linear: LinearMap) -> tuple[Product, int]:
    """What makes T·x of integers x, up to a denominator; and that."""
    if isinstance(linear, Dense):
        rows = linear.matrix.numerators.tolist()
        return lambda x: [_dot(row, x) for row in rows], linear.matrix.denominator
    if isinstance(linear, Convolution):
        return _convolution(linear), linear.kernel.denominator
    if isinstance(linear, ChannelWise):
        return _each_channel(linear), linear.matrix.denominator
    if isinstance(linear, IndexMap):
        ones = Values([1] * len(linear.index), 1)
        factors = ones if linear.factors is None else _column(linear.factors)
        pairs = list(zip(linear.index.tolist(), factors.numerators, strict=True))
        return lambda x: [0 if at < 0 else n * x[at] for at, n in pairs], factors.denominator
    raise ValueError(f"{linear} is no map that is known here")


def _dot(row: Sequence[int], x: Sequence[int]) -> int:
    if len(row) != len(x):
        raise ValueError("a row of another length")
    return sum(map(mul, row, x))


def _convolution(linear: Convolution) -> Product:
    window, (height, width) = linear.window, linear.window.inputs
    rows = linear.kernel.numerators.tolist()
    of_group, per_group = linear.channels // linear.groups, len(rows) // linear.groups
    looks = []  # at each place of the output: where each place of the window looks, or None
    for i, j in product(*map(range, window.outputs)):
        ys = [window.stride[0] * i + window.dilation[0] * u - window.before[0] for u in range(window.size[0])]
        zs = [window.stride[1] * j + window.dilation[1] * v - window.before[1] for v in range(window.size[1])]
        looks.append([y * width + z if 0 <= y < height and 0 <= z < width else None for y, z in product(ys, zs)])

    def times(x: list[int]) -> list[int]:
        found: list[int] = []
        for group in range(linear.groups):
            channels = range(group * of_group, (group + 1) * of_group)
            seen = [
                [0 if at is None else x[c * height * width + at] for c, at in product(channels, places)]
                for places in looks
            ]
            own = rows[group * per_group : (group + 1) * per_group]
            found += [_dot(row, numbers) for row, numbers in product(own, seen)]
        return found

    return times


def _each_channel(linear: ChannelWise) -> Product:
    rows, size = linear.matrix.numerators.tolist(), linear.matrix.shape[1]
    starts = [c * size for c in range(linear.in_shape[0])]
    return lambda x: [_dot(row, x[start : start + size]) for start, row in product(starts, rows)]


# -- activations -------------------------------------------------------------------------------------------------------


def _piece(name: str, z: Sequence[int]) -> Piece:
    """z: the numbers before the activation, up to a positive factor."""
    kind, *parameters = name.split(":")
    if kind == "group_sort" and len(parameters) in (2, 3):
        return _sorted(z, int(parameters[0]), int(parameters[1]), parameters[2:] == ["descending"])
    if kind == "max_pool":
        return _largest(z, [tuple(map(int, text.split("x"))) for text in parameters])
    sources = list(range(len(z)))
    if kind == "identity":
        return Piece(sources, [Fraction(1)] * len(z), True)
    if kind not in {"relu", "leaky_relu"}:
        raise ValueError(f"the activation {name!r} is none that is known here")
    below = Fraction(parameters[0]) if parameters else Fraction(0)
    return Piece(sources, [Fraction(1) if n > 0 else below for n in z], below == 1 or all(z))


def _sorted(z: Sequence[int], size: int, inner: int, descending: bool) -> Piece:
    sources, smooth = list(range(len(z))), True
    for start, k in product(range(0, len(z), size * inner), range(inner)):
        places = [start + k + inner * each for each in range(size)]
        ordered = sorted(places, key=lambda place: -z[place] if descending else z[place])
        smooth = smooth and len({z[place] for place in places}) == size
        for place, source in zip(places, ordered, strict=True):
            sources[place] = source
    return Piece(sources, [Fraction(1)] * len(z), smooth)


def _largest(z: Sequence[int], sides: Sequence[tuple[int, ...]]) -> Piece:
    """sides: channels and inputs, size, stride, dilation, before, outputs; as in the name of the activation."""
    (channels, height, width), size, stride, dilation, before, outputs = sides
    sources, smooth = [], True
    for c, i, j in product(range(channels), *map(range, outputs)):
        seen = []
        for u, v in product(*map(range, size)):
            y, x = stride[0] * i + dilation[0] * u - before[0], stride[1] * j + dilation[1] * v - before[1]
            if 0 <= y < height and 0 <= x < width:
                seen.append((c * height + y) * width + x)
        most = max(z[place] for place in seen)
        best = [place for place in seen if z[place] == most]
        smooth = smooth and len(best) == 1
        sources.append(best[0])
    return Piece(sources, [Fraction(1)] * len(sources), smooth)
