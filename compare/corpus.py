"""Networks and matrices that have a way of breaking numerical code, from fixed seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt

import intervalcert
from compare import graphs
from intervalcert import Network, load_model

__all__ = ["MODELS", "Item", "bundled", "bundled_cnn", "corpus", "halved_and_doubled", "seed_networks", "small_model"]

MODELS = Path(__file__).parent / "models"

Floats = npt.NDArray[np.float64]
Rows = list[list[Fraction]]
Shape = tuple[int, int]


@dataclass(frozen=True)
class Item:
    """A network, and whether it is small enough for every backend and every setting (of graphs: nearly)."""

    name: str
    network: Network
    small: bool = True


def _orthogonal(rng: np.random.Generator, shape: Shape) -> Floats:
    q = np.linalg.qr(rng.standard_normal((max(shape), max(shape))))[0]
    return np.asarray(q[: shape[0], : shape[1]])


def _hilbert(_: np.random.Generator, shape: Shape) -> Rows:
    rows, columns = shape
    return [[Fraction(1, i + j + 1) for j in range(columns)] for i in range(rows)]


def _hadamard(_: np.random.Generator, shape: Shape) -> Floats:
    rows, columns = np.indices(shape)
    bits = np.bitwise_count(rows & columns)
    return np.where(bits % 2, -1.0, 1.0)


def _duplicated(rng: np.random.Generator, shape: Shape) -> Floats:
    return np.repeat(rng.standard_normal((1, shape[1])), shape[0], axis=0)


def _mixed(rng: np.random.Generator, shape: Shape) -> Floats:
    return np.asarray(rng.standard_normal(shape) * 10.0 ** rng.integers(-250, 250, shape))


KINDS: dict[str, Callable[[np.random.Generator, Shape], Floats | Rows]] = {
    "gaussian": lambda rng, shape: rng.standard_normal(shape),
    "float32": lambda rng, shape: rng.standard_normal(shape).astype(np.float32).astype(np.float64),
    "orthogonal": _orthogonal,
    "rank one": lambda rng, shape: np.outer(rng.standard_normal(shape[0]), rng.standard_normal(shape[1])),
    "zero": lambda _, shape: np.zeros(shape),
    "Hilbert": _hilbert,
    "Hadamard": _hadamard,
    "integers": lambda rng, shape: rng.integers(-9, 10, shape).astype(float),
    "powers of two": lambda rng, shape: 2.0 ** rng.integers(-30, 30, shape) * rng.choice([-1, 1], shape),
    "subnormal": lambda rng, shape: rng.integers(-9, 10, shape) * 5e-324,
    "1e-300": lambda rng, shape: rng.standard_normal(shape) * 1e-300,
    "1e300": lambda rng, shape: rng.standard_normal(shape) * 1e300,
    "duplicated rows": _duplicated,
    "mixed scales": _mixed,
}
ACTIVATIONS = ("identity", "leaky_relu:0.1", "leaky_relu:-2", "tanh", "hard_tanh", "sigmoid", "elu:3", "group_sort")
SHAPES: tuple[Shape, ...] = ((2, 2), (3, 5), (6, 3), (1, 4), (5, 1))
_FROM_ABOVE = ("gaussian", "zero", "Hilbert", "integers", "1e-300", "1e300", "duplicated rows", "mixed scales")
GRAPH_DRAWS = {name: KINDS[name] for name in _FROM_ABOVE} | {"ones": lambda _, shape: np.ones(shape)}
"""How the numbers of all maps of a graph are drawn."""


def corpus(paper_model: Network | None, *, short: bool) -> Iterator[Item]:
    """At least 200 items; the short version draws every eleventh of the generated ones, and one graph of each kind."""
    generated = list(_generated())
    yield from generated[::11] if short else generated
    yield from (item for item in _graphs() if not short or item.name.startswith(("gaussian", "ones graph: on a line")))
    yield from (Item(f"seed: {name}", network) for name, network in seed_networks().items())
    model = small_model()
    yield Item("small model", model, small=False)
    yield Item("small model, 40 halvings and doublings", halved_and_doubled(model, 40), small=False)
    if not short:
        yield Item("bundled MNIST model", bundled(), small=False)
        yield Item("bundled CNN", bundled_cnn(), small=False)
    if paper_model is not None and not short:
        yield Item("the paper's MNIST model", paper_model, small=False)


def _generated() -> Iterator[Item]:
    """Each kind as a hidden layer under a gaussian head, and as the head itself; deep, wide; every activation."""
    for (kind, make), shape, seed in product(KINDS.items(), SHAPES, range(2)):
        rng = np.random.default_rng([seed, *shape, *kind.encode()])
        head = rng.standard_normal((3, shape[0]))
        yield Item(f"{kind} {shape[0]}x{shape[1]} #{seed}", _network(make(rng, shape), head))
    for (kind, make), seed in product(KINDS.items(), range(4)):
        rng = np.random.default_rng([seed, *kind.encode()])
        yield Item(f"{kind} as the head #{seed}", _network(rng.standard_normal((4, 3)), make(rng, (3, 4))))
    for seed in range(6):
        rng = np.random.default_rng([seed, 77])
        yield Item(f"deep and narrow #{seed}", _network(*(rng.standard_normal((2, 2)) for _ in range(12))))
        wide = (rng.standard_normal((3, 120)), rng.standard_normal((2, 3)))
        yield Item(f"wide #{seed}", _network(*wide))
    for between, seed in product(ACTIVATIONS, range(2)):
        rng = np.random.default_rng([seed, *between.encode()])
        layers = (rng.standard_normal(shape) for shape in ((5, 4), (6, 5), (4, 6), (3, 4)))
        yield Item(f"{between} #{seed}", _network(*layers, between=between))


def _graphs() -> Iterator[Item]:
    """Convolutions, branches, sorting and pools with numbers of every sort, on grids of 4 x 4."""
    for name, draw in GRAPH_DRAWS.items():
        yield Item(f"{name} graph: on a line", graphs.line(0, draw))
        for kind, make in graphs.KINDS.items():
            yield Item(f"{name} graph: {kind}", make(0, draw, (1, 4, 4)))


def _network(*layers: Floats | Rows, between: str = "relu") -> Network:
    return Network.from_arrays(layers, between=between)


def seed_networks() -> dict[str, Network]:
    """The toy networks of the source paper's appendices, on which published certifiers were wrong."""
    tiny = float(np.finfo(np.float32).tiny)
    signs = [[1.0], [-1.0]]
    return {
        "tiny weights": Network.from_arrays([np.array([[tiny], [-tiny]])]),
        "first layer 1e-5": Network.from_arrays([np.array([[np.float32(1e-5)]]), np.array(signs)]),
        "first layer 0.9": Network.from_arrays([np.array([[np.float32(0.9)]]), np.array(signs)]),
    }


def small_model() -> Network:
    """A trained reader of seven-segment digits, small enough for every backend; `models/make_segments.py` made it."""
    return load_model(MODELS / "segments.txt")


def bundled() -> Network:
    """The MNIST model that comes with the package."""
    return load_model(Path(intervalcert.__file__).parent / "data" / "mnist.npz")


def bundled_cnn() -> Network:
    """The convolutional MNIST model that comes with the package."""
    return load_model(Path(intervalcert.__file__).parent / "data" / "mnist_cnn.npz")


def halved_and_doubled(network: Network, times: int) -> Network:
    """The last hidden layer over 2^times, the head times 2^times: the same function, the same margins."""
    factors = [*[Fraction(1)] * (len(network.layers) - 2), Fraction(1, 2**times), Fraction(2**times)]
    return Network.from_arrays(
        [
            [[factor * Fraction(x, layer.weights.denominator) for x in row] for row in layer.weights.numerators]
            for layer, factor in zip(network.layers, factors, strict=True)
        ]
    )
