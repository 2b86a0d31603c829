"""Small graphs of layers with weights that are multiples of 1/8, and the truth about them: not the program's own."""

import itertools
from fractions import Fraction
from math import prod

import numpy as np

from intervalcert import Network
from intervalcert.model.activations import MaxPool, Sorting
from intervalcert.model.layers import INPUT, Term
from intervalcert.model.linear_maps import ChannelWise, Convolution, Dense, IndexMap, identity
from intervalcert.model.windows import Window
from intervalcert.numbers.matrices import RationalMatrix


def eighths(rng, *shape, most=12):
    return RationalMatrix.from_floats(rng.integers(-most, most + 1, shape) / 8)


def dense(rng, rows, columns, in_shape=(), out_shape=()):
    return Dense(eighths(rng, rows, columns), in_shape, out_shape)


def convolution(rng, channels, outputs, window, groups=1):
    return Convolution(eighths(rng, outputs, channels // groups * window.taps), channels, window, groups)


def network_of(rng, terms, between, biases=True):
    made = [eighths(rng, each[0].map.shape[0], 1, most=8) if biases else None for each in terms]
    return Network.of_terms(terms, made, between=between)


def with_convolutions(rng, function="relu"):
    """2 x 2 x 1 pixels, two convolutions, one of them in groups, and a matrix."""
    first = convolution(rng, 1, 2, Window.padded((1, 2), (1, 2), pads=(0, 1, 0, 0)))
    second = convolution(rng, 2, 2, Window.padded((1, 2), (1, 2), pads=(0, 0, 0, 1)), groups=2)
    return network_of(rng, [(Term(-1, first),), (Term(0, second),), (Term(1, dense(rng, 3, 4)),)], [function] * 2)


def with_residuals(rng, function="relu"):
    """Layers that take the input again, and what came two layers before."""
    terms = [
        (Term(INPUT, dense(rng, 3, 2)),),
        (Term(0, dense(rng, 3, 3)), Term(INPUT, dense(rng, 3, 2))),
        (Term(1, dense(rng, 3, 3)), Term(0, identity((3,)))),
        (Term(2, dense(rng, 3, 3)), Term(1, dense(rng, 3, 3))),
    ]
    return network_of(rng, terms, [function] * 3)


def with_block(rng, function="relu"):
    """X + W·f(V·x), then f, then a matrix: a residual connection over the identity."""
    terms = [
        (Term(INPUT, dense(rng, 2, 2)),),
        (Term(INPUT, identity((2,))), Term(0, dense(rng, 2, 2))),
        (Term(1, dense(rng, 3, 2)),),
    ]
    return network_of(rng, terms, [function] * 2)


def with_parts(rng, function="relu"):
    """Two branches, put one after the other."""
    there = [IndexMap(np.array(x), (2,), (4,)) for x in ([0, 1, -1, -1], [-1, -1, 1, 0])]
    terms = [
        (Term(INPUT, dense(rng, 2, 2)),),
        (Term(INPUT, dense(rng, 2, 2)),),
        (Term(0, there[0]), Term(1, there[1])),
        (Term(2, dense(rng, 3, 4)),),
    ]
    return network_of(rng, terms, [function, "identity", function])


def with_sorting(rng, function="group_sort:2:1"):
    sorting = (Term(INPUT, dense(rng, 4, 2)),), (Term(0, dense(rng, 4, 4)),), (Term(1, dense(rng, 3, 4)),)
    return network_of(rng, list(sorting), [function] * 2)


def with_sorted_residual(rng, function="group_sort:2:2"):
    terms = [
        (Term(INPUT, dense(rng, 4, 2)),),
        (Term(0, dense(rng, 4, 4)), Term(0, identity((4,)))),
        (Term(1, dense(rng, 3, 4)), Term(INPUT, dense(rng, 3, 2))),
    ]
    return network_of(rng, terms, [function, "relu"])


def with_pool(rng, window=None):
    """Overlapping windows over 1 x 4 numbers; then a ReLU."""
    window = window or Window.padded((1, 4), (1, 3), pads=(0, 1, 0, 0))
    count = prod(window.outputs)
    terms = [
        (Term(INPUT, dense(rng, 4, 2, (2,), (1, 1, 4))),),
        (Term(0, dense(rng, 3, count, (1, 1, count))),),
        (Term(1, dense(rng, 3, 3)),),
    ]
    return network_of(rng, terms, [MaxPool.of(1, window).name, "relu"])


def with_channels(rng, function="relu"):
    """A pool of means whose weights differ, for each channel alike."""
    means = ChannelWise(RationalMatrix.from_floats(np.array([[1.0, 0], [0.5, 0.5]])), (2, 1, 2), (2, 1, 2))
    terms = [
        (Term(INPUT, dense(rng, 4, 2, (2,), (2, 1, 2))),),
        (Term(0, means),),
        (Term(1, dense(rng, 3, 4, (2, 1, 2))),),
    ]
    return network_of(rng, terms, [function, "leaky_relu:-0.5"])


KINDS = {
    "convolutions": with_convolutions,
    "leaky convolutions": lambda rng: with_convolutions(rng, "leaky_relu:0.1"),
    "clipped residuals": lambda rng: with_residuals(rng, "clip:-1/4:1"),
    "residuals": with_residuals,
    "a block": with_block,
    "parts": with_parts,
    "pairs": with_sorting,
    "pairs apart, descending": lambda rng: with_sorting(rng, "group_sort:2:2:descending"),
    "fours": lambda rng: with_sorting(rng, "group_sort:4:1"),
    "sorted residual": with_sorted_residual,
    "windows": with_pool,
    "windows of two": lambda rng: with_pool(rng, Window.padded((1, 4), (1, 2), (1, 2))),
    "channels": with_channels,
}


def drawn(kind, seed):
    return KINDS[kind](np.random.default_rng(seed))


# -- the truth -------------------------------------------------------------------------------------------------------


def table_of(matrix):
    return [[matrix[i, j] for j in range(matrix.shape[1])] for i in range(matrix.shape[0])]


def activated(function, z):
    """In rationals."""
    if isinstance(function, Sorting):
        grid = np.array(z, dtype=object).reshape(-1, function.size, function.inner)
        ordered = np.sort(grid, axis=1)
        return list((ordered if function.ascending else ordered[:, ::-1]).ravel())
    if isinstance(function, MaxPool):
        grid = np.array(z, dtype=object).reshape(function.channels, -1)
        return [max(c[p] for p in column if p >= 0) for c in grid for column in function.window.table.T]
    kind, _, parameter = function.name.partition(":")
    if kind == "clip":
        low, high = map(Fraction, parameter.split(":"))
        return [max(low, min(high, x)) for x in z]
    return [x if kind == "identity" or x > 0 else x * Fraction(parameter or 0) for x in z]


def float_values(function, z):
    """The same for a function of each entry, near it, for those who look for a place."""
    kind, _, parameter = function.name.partition(":")
    if kind == "clip":
        return np.clip(z, *(float(Fraction(end)) for end in parameter.split(":")))
    return z if kind == "identity" else np.where(z > 0, z, z * float(Fraction(parameter or 0)))


class Truth:
    """Exact values of a network, and floats beside them for those who look for a place."""

    def __init__(self, network):
        self.network = network
        self.tables = [[table_of(term.map.dense()) for term in layer.terms] for layer in network.layers]
        self.floats = [[np.array(table, dtype=float) for table in tables] for tables in self.tables]

    def inner(self, x):
        """Inner values of all layers, the last one the logits; in rationals."""
        values, found = {INPUT: list(x)}, []
        for index, (layer, tables) in enumerate(zip(self.network.layers, self.tables, strict=True)):
            z = [Fraction(0)] * layer.shape[0] if layer.bias is None else [row[0] for row in table_of(layer.bias)]
            for term, table in zip(layer.terms, tables, strict=True):
                taken = values[term.source]
                z = [a + sum(w * v for w, v in zip(row, taken, strict=True)) for a, row in zip(z, table, strict=True)]
            found.append(z)
            if layer.activation is not None:
                values[index] = activated(layer.activation, z)
        return found

    def logits(self, x):
        return self.inner(x)[-1]

    def jacobian(self, x):
        """Logits and slopes in floats, of the piece that x is in."""
        x = np.asarray(x, dtype=float)
        values = {INPUT: (x, np.eye(len(x)))}
        for index, (layer, tables) in enumerate(zip(self.network.layers, self.floats, strict=True)):
            z = np.zeros(layer.shape[0]) if layer.bias is None else np.array(table_of(layer.bias), dtype=float)[:, 0]
            slopes = np.zeros((layer.shape[0], len(x)))
            for term, table in zip(layer.terms, tables, strict=True):
                z, slopes = z + table @ values[term.source][0], slopes + table @ values[term.source][1]
            if layer.activation is None:
                return z, slopes
            values[index] = self._bent(layer.activation, z, slopes)
        raise AssertionError

    @staticmethod
    def _bent(function, z, slopes):
        if isinstance(function, Sorting):
            places = np.arange(len(z)).reshape(-1, function.size, function.inner)
            order = np.take_along_axis(places, np.argsort(z[places], axis=1), axis=1)
            order = (order if function.ascending else order[:, ::-1]).ravel()
            return z[order], slopes[order]
        if isinstance(function, MaxPool):
            side = prod(function.window.inputs)
            windows = [
                [c * side + p for p in column if p >= 0]
                for c in range(function.channels)
                for column in function.window.table.T
            ]
            order = [window[int(np.argmax(z[window]))] for window in windows]
            return z[order], slopes[order]
        step = 1e-7
        values, moved = float_values(function, z), float_values(function, z + step)
        return values, np.round((moved - values) / step, 3)[:, None] * slopes

    def changes(self, x, u, eps, winner):
        """Whether u is within eps of x, and some other class is at least as large there; in exact rationals."""
        if sum((a - b) ** 2 for a, b in zip(x, u, strict=True)) > eps**2:
            return False
        logits = self.logits(u)
        return any(y >= logits[winner] for i, y in enumerate(logits) if i != winner)

    def flip(self, x, eps, winner, seed=0, count=24):
        """An input within eps at which the winner does not win, confirmed exactly; None if none was found."""
        rng = np.random.default_rng(seed)
        centre, radius = np.array([float(a) for a in x]), float(eps) * (1 - 2.0**-30)
        angles = rng.uniform(0, 2 * np.pi, count)
        starts = np.stack([np.cos(angles), np.sin(angles)], axis=1) * rng.choice([1.0, 0.7, 0.3], (count, 1))
        starts = [radius * start for start in starts] + [np.zeros(2)]
        best = []
        for start, rival in itertools.product(starts, range(self.network.outputs)):
            step = start
            for _ in range(3 if rival != winner else 0):
                logits, slopes = self.jacobian(centre + step)
                best.append((min(np.delete(logits[winner] - logits, winner)), tuple(step)))
                slope = slopes[winner] - slopes[rival]
                size = np.linalg.norm(slope)
                if size < 1e-12:
                    break
                step = -radius * slope / size
        for _, step in sorted(best)[:3]:
            u = [a + Fraction(float(b)) for a, b in zip(x, step, strict=True)]
            if self.changes(x, u, eps, winner):
                return u
        return None


def some_inputs(seed, width, count):
    rng = np.random.default_rng(seed)
    return [[Fraction(int(k), 16) for k in row] for row in rng.integers(-32, 33, (count, width))]
