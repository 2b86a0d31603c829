"""Graphs as programs in floats: convolutions, branches that are added up, means, maxima, sorting, concatenations.

As in `test_deployed` the programs are run, in the formats themselves: each layer's products in any order, branch by
branch or all at once, the bias anywhere, with and without FMA, means by division and by a rounded reciprocal. They are
compared with exact fractions. Beside random networks there are some whose errors are almost all that is claimed: with
any part of the claim left out, they exceed it, and each of these controls must be seen to.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import islice, zip_longest
from random import Random
from typing import Any

import graphs
import numpy as np
import pytest
from test_deployed import TYPES, UNITS, Tally, around, deviation_at, rounded
from test_deployed_rounding import at_least, exactly, magnitude

from intervalcert import InputError, Network, certify_inputs
from intervalcert.api import verification_job
from intervalcert.backends.registry import precision_ladder
from intervalcert.model.activations import MaxPool, activation
from intervalcert.model.evaluation import Evaluator
from intervalcert.model.layers import INPUT, Layer, Term, UncertainScale
from intervalcert.model.linear_maps import ChannelWise, Convolution, Dense, IndexMap, identity
from intervalcert.model.windows import Window
from intervalcert.numbers.float_formats import get_format
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.rounding import sqrt_lower, sqrt_upper
from intervalcert.verify import deployed as module
from intervalcert.verify.deployed import Deployment, Deviation, Extent, _Constants, _TermConstants, as_deployed

LADDER = precision_ladder("float64")
COARSE = ("float32", "float16", "bfloat16")

Array = np.ndarray[Any, Any]

# -- the program -----------------------------------------------------------------------------------------------------

Leaf = tuple[Array, Array | None]
"""A product that is not multiplied out yet, or a number that stands for itself."""


@dataclass(frozen=True)
class Way:
    """How sums are computed.

    by_branch: each term by itself, then these; else all products at once. tree: one after the other (forward, backward,
    shuffled), in pairs, or as a tree of any form. mean: what the sum is divided by, or multiplied with; or each number.
    bias: before all, behind all, anywhere.
    """

    by_branch: bool = False
    tree: str = "forward"
    fused: bool = False
    mean: str = "divide"
    bias: str = "last"
    seed: int = 0


def ways(seed: int, count: int) -> Iterator[Way]:
    random = Random(f"ways {seed}")
    for tree in ("forward", "pairs"):
        for mean in ("divide", "multiply", "each"):
            yield Way(tree == "pairs", tree, False, mean)
    for _ in range(count - 6):
        tree = random.choice(["forward", "backward", "shuffled", "shuffled", "pairs", "tree"])
        mean, bias = random.choice(["divide", "multiply", "each"]), random.choice(["first", "last", "anywhere"])
        yield Way(random.random() < 0.5, tree, random.random() < 0.4, mean, bias, random.randint(0, 10**6))


def _exact_fma(x: float, y: float, z: float) -> float:
    try:
        return float(Fraction(x) * Fraction(y) + Fraction(z))
    except OverflowError:
        return math.inf


def fma(name: str, x: Array, y: Array, z: Array) -> Array:
    """x·y + z, rounded once. In a narrow format the product is exact, and the sum is rounded to odd before the last."""
    if not (np.isfinite(x).all() and np.isfinite(y).all() and np.isfinite(z).all()):
        return x * y + z
    x, y, z = (np.asarray(each).astype(np.float64) for each in (x, y, z))
    if name == "float64":
        return np.frompyfunc(_exact_fma, 3, 1)(x, y, z).astype(np.float64)
    product = x * y
    total = product + z
    part = total - product
    off = (product - (total - part)) + (z - part)
    even = total.view(np.int64) % 2 == 0
    odd = np.where((off != 0) & even, np.nextafter(total, np.where(off > 0, np.inf, -np.inf)), total)
    return get_format(name).nearest(odd).astype(TYPES[name])


class Program:
    """A network whose numbers are those of the format, unrolled, and run in it."""

    def __init__(self, network: Network, name: str) -> None:
        self.network, self.name, self.kind = network, name, TYPES[name]
        self.exact_rows = [[_sparse(term.map.dense()) for term in layer.terms] for layer in network.layers]
        self.maps = [[self._unrolled(term.map) for term in layer.terms] for layer in network.layers]
        self.biases = [None if layer.bias is None else _floats(layer.bias) for layer in network.layers]

    def _unrolled(self, linear: Any) -> tuple[Array, int | None]:
        """Weights in the format; of a mean ones, and by what their sum is divided."""
        if isinstance(linear, Convolution) and linear.is_mean:
            ones = replace(linear, kernel=RationalMatrix.from_floats(np.ones(linear.kernel.shape)), is_mean=False)
            return _floats(ones.dense()).astype(self.kind), linear.kernel[0, 0].denominator
        weights = _floats(linear.dense())
        assert (rounded(self.name, weights) == weights).all()
        return weights.astype(self.kind), None

    def run(self, inputs: Array, way: Way) -> dict[int, Array]:
        """What each layer gives, at each column; of the last the logits."""
        rng = np.random.default_rng(way.seed)
        values = {INPUT: inputs.astype(self.kind)}
        with np.errstate(all="ignore"):
            for index, layer in enumerate(self.network.layers):
                parts = [
                    self._leaves(weights, count, values[term.source], way, rng)
                    for term, (weights, count) in zip(layer.terms, self.maps[index], strict=True)
                ]
                values[index] = self._bent(layer, self._total(parts, self.biases[index], way, rng))
        return values

    def _leaves(self, w: Array, count: int | None, h: Array, way: Way, rng: np.random.Generator) -> list[Leaf]:
        if count is not None and way.mean == "each":
            w = w * (self.kind(1) / self.kind(count))
        columns = np.flatnonzero((w != 0).any(axis=0))
        leaves: list[Leaf] = [(w[:, k, None], h[None, k]) for k in columns] or [(w[:, :1], h[None, 0])]
        if count is None or way.mean == "each":
            return leaves
        total = self._sum(leaves, way, rng)
        by = self.kind(count)
        return [(total / by if way.mean == "divide" else total * (self.kind(1) / by), None)]

    def _total(self, parts: list[list[Leaf]], bias: Array | None, way: Way, rng: np.random.Generator) -> Array:
        if way.by_branch:
            leaves: list[Leaf] = [(self._sum(each, way, rng), None) for each in parts]
        else:
            leaves = [leaf for each in parts for leaf in each]
        if bias is not None:
            place = {"first": 0, "last": len(leaves), "anywhere": int(rng.integers(0, len(leaves) + 1))}[way.bias]
            leaves.insert(place, (bias.astype(self.kind), None))
        return self._sum(leaves, way, rng)

    def _sum(self, leaves: list[Leaf], way: Way, rng: np.random.Generator) -> Array:
        """Each of them has as many rows as the layer, or one number in their place."""
        if way.tree == "backward":
            leaves = leaves[::-1]
        elif way.tree in {"shuffled", "tree"}:
            leaves = [leaves[k] for k in rng.permutation(len(leaves))]
        if way.tree in {"pairs", "tree"}:
            return self._tree([_value(leaf) for leaf in leaves], way, rng)
        total = _value(leaves[0])
        for x, y in leaves[1:]:
            if way.fused and y is not None:
                total = fma(self.name, *np.broadcast_arrays(x, y, total))
            else:
                total = total + _value((x, y))
        return total

    def _tree(self, values: list[Array], way: Way, rng: np.random.Generator) -> Array:
        while len(values) > 1:
            if way.tree == "pairs":
                odd = values[-1:] if len(values) % 2 else []
                values = [x + y for x, y in zip(values[::2], values[1::2], strict=False)] + odd
            else:
                x, y = (values.pop(int(rng.integers(0, len(values)))) for _ in range(2))
                values.append(x + y)
        return values[0]

    def _bent(self, layer: Layer, z: Array) -> Array:
        function = layer.activation
        assert z.dtype == self.kind
        if function is None:
            return z
        kind, *parameters = function.name.split(":")
        if kind == "leaky_relu":
            return np.where(z > 0, z, self.kind(float(Fraction(parameters[0]))) * z)
        if kind in {"clip", "hard_tanh"}:  # as sums of hinges they would round in float64
            low, high = parameters or ("-1", "1")
            ends = [float(x) if "inf" in x else float(Fraction(x)) for x in (low, high)]
            return np.clip(z.astype(np.float64), *ends).astype(self.kind)
        # All others compare and copy, and what they copy is the same in float64.
        return function.float_values(z.astype(np.float64)).astype(self.kind)

    def exact(self, x: list[Fraction]) -> dict[int, list[Fraction]]:
        """What each layer gives at one input, over the reals."""
        values = {INPUT: x}
        for index, layer in enumerate(self.network.layers):
            total = self.exact_inner(index, values)
            values[index] = total if layer.activation is None else graphs.applied(layer.activation, total)
        return values

    def exact_inner(self, index: int, values: dict[int, list[Fraction]]) -> list[Fraction]:
        layer = self.network.layers[index]
        bias = layer.bias
        total = [Fraction(0) if bias is None else bias[i, 0] for i in range(layer.shape[0])]
        for term, rows in zip(layer.terms, self.exact_rows[index], strict=True):
            h = values[term.source]
            total = [t + sum((w * h[k] for k, w in row), Fraction(0)) for t, row in zip(total, rows, strict=True)]
        return total

    def near(self, inputs: Array) -> Array:
        """The logits in float64, for finding boundaries."""
        values = {INPUT: inputs}
        for index, layer in enumerate(self.network.layers):
            total = sum(m @ values[term.source] for term, m in zip(layer.terms, self._matrices[index], strict=True))
            total = total + (0.0 if self.biases[index] is None else self.biases[index])
            values[index] = total if layer.activation is None else layer.activation.float_values(total)
        return values[len(self.network.layers) - 1]

    @cached_property
    def _matrices(self) -> list[list[Array]]:
        return [[_floats(term.map.dense()) for term in layer.terms] for layer in self.network.layers]


def _value(leaf: Leaf) -> Array:
    x, y = leaf
    return x if y is None else x * y


def _floats(data: RationalMatrix) -> Array:
    return np.array([[float(data[i, j]) for j in range(data.shape[1])] for i in range(data.shape[0])])


def _sparse(data: RationalMatrix) -> list[list[tuple[int, Fraction]]]:
    return [[(k, x) for k, x in enumerate(row) if x] for row in graphs.rows_of(data)]


# -- random networks -------------------------------------------------------------------------------------------------

KINDS = ("convolution", "residual", "merged", "two branches", "concatenation", "mean", "mean and identity", "scaling")


def mean_over(shape: tuple[int, ...], window: Window, count: int | None = None) -> Convolution:
    kernel = RationalMatrix.filled((shape[0], window.taps), Fraction(1, count or window.taps))
    return Convolution(kernel, shape[0], window, shape[0], is_mean=True)


def random_network(name: str, seed: int, classes: int = 3) -> Network:
    """A few layers on a grid, all numbers of them of the format."""
    random, rng = Random(f"network {seed}"), np.random.default_rng([seed, 41])
    shape = (random.randint(1, 2), random.randint(2, 4), random.randint(2, 4))
    shapes: dict[int, tuple[int, ...]] = {INPUT: shape}
    terms: list[tuple[Term, ...]] = []
    biases: list[RationalMatrix | None] = []
    names: list[str] = []

    def numbers(rows: int, columns: int, size: float = 1.0) -> RationalMatrix:
        made = rng.standard_normal((rows, columns)) * size * rng.choice([0.5, 1.0, 1.5])
        return RationalMatrix.from_floats(rounded(name, made))

    def filled(linear: Convolution) -> Convolution:
        rows, columns = linear.kernel.shape
        return replace(linear, kernel=numbers(rows, columns, 1 / math.sqrt(columns)))

    def add(*layer: Term, between: str | None = None, bias: bool = True) -> int:
        inner = layer[0].map.out_shape
        terms.append(layer)
        biases.append(numbers(math.prod(inner), 1) if bias and random.random() < 0.7 else None)
        names.append(between or graphs.activation_of(random, inner))
        shapes[len(terms) - 1] = activation(names[-1]).out_shape(inner)
        return len(terms) - 1

    last = add(Term(INPUT, filled(graphs.convolution(random, shape))))
    for _ in range(random.randint(1, 3)):
        now, kind = shapes[last], random.choice(KINDS)
        if kind == "concatenation":
            last = add(*graphs.concatenated((last, now), (0, shapes[0])), between="identity", bias=False)
        elif kind == "scaling" or len(now) < 3:
            count = math.prod(now)
            index = np.array([random.randint(-1, count - 1) for _ in range(count)])
            last = add(Term(last, IndexMap(index, now, now, numbers(count, 1))))
        elif kind == "residual":
            inner = add(Term(last, filled(graphs.same_size(random, now))), between="relu")
            last = add(Term(inner, filled(graphs.same_size(random, now))), Term(last, identity(now)))
        elif kind == "merged":
            last = add(Term(last, filled(graphs.same_size(random, now))), Term(last, identity(now)))
        elif kind == "two branches":
            made = filled(graphs.same_size(random, now))
            first = IndexMap(np.arange(math.prod(now)) % math.prod(shapes[0]), shapes[0], now)
            last = add(Term(last, made), Term(0, first), Term(last, filled(made)))
        elif kind == "mean":
            last = add(Term(last, mean_over(now, graphs.window(random, now[1:]))))
        elif kind == "mean and identity":
            window = Window.padded(now[1:], (3, 3), pads=(1, 1, 1, 1))
            last = add(Term(last, mean_over(now, window)), Term(last, identity(now)))
        else:
            last = add(Term(last, filled(graphs.convolution(random, now))))
    size = math.prod(shapes[last])
    head = Dense(numbers(classes, size, 1 / math.sqrt(size)))
    return Network.of_terms([*terms, (Term(last, head),)], [*biases, numbers(classes, 1)], between=names)


# -- deviations ------------------------------------------------------------------------------------------------------


def deployment_of(network: Network, name: str) -> tuple[Deployment, Evaluator]:
    task = verification_job(network, None, None, name)
    assert task.form is not None
    made = Deployment(task.network, task.norms, task.sigmas, task.form, task.ladder)
    return made, Evaluator(task.network, task.norms, task.ladder[0])


def check_deviation(network: Network, name: str, v: Array, eps: float, tally: Tally, tried: list[Way]) -> None:
    """|N̂(u) - N(u)| for u within eps of v, exactly: of the last inputs, of pairs of logits, of the last layer alone."""
    program = Program(network, name)
    deployment, evaluator = deployment_of(network, name)
    norm = sqrt_upper(sum(Fraction(x) ** 2 for x in v.tolist()), 60)
    found = [deviation_at(deployment, evaluator, v[:, None]), deployment.for_every(norm, evaluator)]
    found = [each for each in found if eps <= each.most[0]]
    inputs = around(name, v, eps, np.random.default_rng(len(v)), 2)[:, :8]
    runs = [program.run(inputs, way) for way in tried] if found else []
    for column in range(inputs.shape[1]):
        exact = program.exact([Fraction(float(x)) for x in inputs[:, column]])
        for run in runs:
            tally.runs += 1
            at_column = {k: x[:, column].astype(np.float64) for k, x in run.items()}
            tally.wrong += sum(_is_beyond(program, deployment, each, eps, exact, at_column) for each in found)


def _is_beyond(
    program: Program,
    deployment: Deployment,
    found: Deviation,
    eps: float,
    exact: dict[int, list[Fraction]],
    run: dict[int, Array],
) -> bool:
    if not all(np.isfinite(x).all() for x in run.values()):
        return True
    floats = {k: [Fraction(float(x)) for x in each] for k, each in run.items()}
    last = len(program.network.layers) - 1
    head = program.network.layers[last].terms[0].source
    shared = Fraction(float(found.shared[0])) + Fraction(found.shared_slope) * Fraction(eps)
    if sum((x - y) ** 2 for x, y in zip(floats[head], exact[head], strict=True)) > shared**2:
        return True
    own = [
        Fraction(float(a)) + Fraction(float(b)) * Fraction(eps)
        for a, b in zip(found.own[:, 0], found.own_slope, strict=True)
    ]
    alone = program.exact_inner(last, floats)
    if any(abs(x - y) > e for x, y, e in zip(floats[last], alone, own, strict=True)):
        return True
    off = [x - y for x, y in zip(floats[last], exact[last], strict=True)]
    for j in range(len(off)):
        pairs = deployment.errors_at(found, eps, np.full(1, j))[:, 0]
        if any(abs(x - off[j]) > Fraction(float(e)) for x, e in zip(off, pairs, strict=True)):
            return True
    return False


def deviations(name: str, seeds: range) -> Tally:
    tally = Tally()
    for seed in seeds:
        rng = np.random.default_rng([seed, 6])
        network = random_network(name, seed)
        v = rounded(name, rng.standard_normal(network.inputs) * rng.choice([0.05, 1.0, 4.0]))
        for eps in (0.0, float(rng.choice([1e-3, 0.1, 2.0]))):
            check_deviation(network, name, v, eps, tally, list(ways(seed, 12)))
    return tally


SEEDS = {"float32": range(24), "float16": range(100, 124), "bfloat16": range(200, 224), "float64": range(300, 306)}


@pytest.mark.parametrize("name", TYPES)
def test_the_program_is_never_further_from_the_reals_than_claimed(name: str) -> None:
    tally = deviations(name, SEEDS[name])
    assert tally.wrong == 0, tally
    assert tally.runs > 500, tally


def test_random_networks_have_everything() -> None:
    """Of all that is tried, something is drawn."""
    networks = [random_network(name, seed) for name, seeds in SEEDS.items() for seed in seeds]
    layers = [layer for network in networks for layer in network.layers]
    names = {layer.activation.name.partition(":")[0] for layer in layers if layer.activation is not None}
    assert names == {"relu", "leaky_relu", "hard_tanh", "identity", "clip", "group_sort", "max_pool"}
    means = [layer for layer in layers if any(module._mean_over(term.map) for term in layer.terms)]
    assert {len(layer.terms) for layer in means} == {1, 2}
    assert {layer.bias is None for layer in means} == {False, True}
    assert {len(layer.branches) for layer in layers} == {1, 2}
    assert max(len(layer.terms) for layer in layers) == 3
    assert any(float(layer.activation.lipschitz) > 1 for layer in layers if isinstance(layer.activation, MaxPool))
    assert any(module._is_copy(layer) for layer in layers)


@pytest.mark.parametrize("name", TYPES)
def test_what_is_added_and_multiplied_is_rounded_once(name: str) -> None:
    """`fma`, against fractions."""
    rng = np.random.default_rng(3)
    x, y, z = (rounded(name, rng.standard_normal(400) * np.exp2(rng.integers(-9, 3, 400))) for _ in range(3))
    z[:200] = rounded(name, -x[:200] * y[:200] * (1 + UNITS[name] * rng.integers(-3, 4, 200)))
    kind, form = TYPES[name], get_format(name)
    found = fma(name, x.astype(kind), y.astype(kind), z.astype(kind)).astype(np.float64)
    exact = [form._nearest(Fraction(a) * Fraction(b) + Fraction(c)) for a, b, c in zip(x, y, z, strict=True)]
    assert found.tolist() == exact


# -- networks whose errors are all that is claimed, or nearly so -----------------------------------------------------


def lost(name: str, count: int) -> Array:
    """1 and then numbers a little below u: added to the 1 one by one, all of them are lost."""
    below = float(rounded(name, UNITS[name] * (1 - 4 * UNITS[name])))
    return np.array([[1.0] + [below] * (count - 1)])


def matrix(x: Any) -> Dense:
    return Dense(RationalMatrix.from_floats(np.atleast_2d(np.array(x, dtype=float))))


TWO = matrix([[1.0], [-1.0]])


def with_branches(name: str) -> tuple[Network, Array]:
    """A sum of two branches; the numbers of the second one are lost in the first."""
    n = 12
    first, second = lost(name, n), lost(name, n + 1)[:, 1:]
    terms = [
        (Term(INPUT, identity((n,))),),
        (Term(INPUT, matrix(first)), Term(0, matrix(second))),
        (Term(1, TWO),),
    ]
    return Network.of_terms(terms, between=["identity", "relu"]), np.ones(n)


def with_a_pool(name: str) -> tuple[Network, Array]:
    """The middle of a grid of 3 x 3 is off, and is in all of four windows."""
    n, rows = 12, np.zeros((9, 12))
    rows[4] = lost(name, n)[0]
    pool = MaxPool.of(1, Window((3, 3), (2, 2), (2, 2)))
    first = Dense(RationalMatrix.from_floats(rows), (n,), (1, 3, 3))
    head = matrix([[1.0, 1.0, 1.0, 1.0], [-1.0, -1.0, -1.0, -1.0]])
    return Network.of_terms([(Term(INPUT, first),), (Term(0, head),)], between=[pool.name]), np.ones(n)


def with_a_residual(name: str) -> tuple[Network, Array]:
    """All of the error is in what goes past the second layer."""
    n = 24
    one = IndexMap(np.array([n - 1]), (n,), (1,))
    terms = [(Term(INPUT, matrix(lost(name, n))),), (Term(INPUT, one), Term(0, identity((1,)))), (Term(1, TWO),)]
    return Network.of_terms(terms, between=["relu", "relu"]), np.ones(n)


def with_a_concatenation(name: str) -> tuple[Network, Array]:
    """Two copies of a number that is off, side by side."""
    n = 12
    one = np.array([0, -1]), np.array([-1, 0])
    parts = tuple(Term(source, IndexMap(index, (1,), (2,))) for source, index in enumerate(one))
    first = (Term(INPUT, matrix(lost(name, n))),)
    terms = [first, first, parts, (Term(2, matrix([[1.0, 1.0], [-1.0, -1.0]])),)]
    return Network.of_terms(terms, between=["relu", "relu", "identity"]), np.ones(n)


def with_factors(name: str) -> tuple[Network, Array]:
    """Products of numbers with all their bits."""
    x = 1 + 2 * UNITS[name] * np.array([1.0, 3.0, 5.0])
    scaling = IndexMap(np.arange(3), (3,), (3,), RationalMatrix.from_floats(x[:, None]))
    return Network.of_terms([(Term(INPUT, scaling),), (Term(0, matrix(np.eye(3))),)], between=["relu"]), x


TIGHT: tuple[Callable[[str], tuple[Network, Array]], ...] = (
    with_branches,
    with_factors,
    with_a_pool,
    with_a_residual,
    with_a_concatenation,
)


def errors_of(make: Callable[[str], tuple[Network, Array]], name: str) -> Tally:
    network, v = make(name)
    tally = Tally()
    check_deviation(network, name, v, 0.0, tally, list(ways(1, 16)))
    return tally


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("make", TIGHT)
def test_the_worst_errors_are_within_the_claim(make: Callable[[str], tuple[Network, Array]], name: str) -> None:
    tally = errors_of(make, name)
    assert tally.wrong == 0, tally
    assert tally.runs > 10


def with_constants(monkeypatch: pytest.MonkeyPatch, change: Callable[[_Constants], _Constants]) -> None:
    of = _Constants.of
    monkeypatch.setattr(_Constants, "of", staticmethod(lambda *args: change(of(*args))))


@pytest.mark.parametrize("name", TYPES)
def test_a_branch_that_is_not_counted_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_summands", lambda layer: layer.terms[0].map.summands)
    assert errors_of(with_branches, name).wrong > 0


@pytest.mark.parametrize("name", TYPES)
def test_a_pool_that_is_taken_for_nonexpansive_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with_constants(monkeypatch, lambda found: replace(found, lipschitz=min(found.lipschitz, 1.0)))
    assert errors_of(with_a_pool, name).wrong > 0


@pytest.mark.parametrize("name", TYPES)
def test_errors_that_go_past_a_layer_are_looked_at(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with_constants(monkeypatch, lambda found: replace(found, norms=found.norms[:1]))
    assert errors_of(with_a_residual, name).wrong > 0


@pytest.mark.parametrize("name", TYPES)
def test_a_part_of_a_concatenation_that_is_left_out_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with_constants(monkeypatch, lambda found: replace(found, norms=found.norms[:1], apart=False))
    assert errors_of(with_a_concatenation, name).wrong > 0


@pytest.mark.parametrize("name", TYPES)
def test_what_is_computed_is_no_copy(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_is_copy", lambda layer: all(isinstance(t.map, IndexMap) for t in layer.terms))
    assert errors_of(with_factors, name).wrong > 0


# -- means -----------------------------------------------------------------------------------------------------------


def divided(c: int, bias: float | None = None, k: int = 1) -> Network:
    """The mean of k numbers, divided by c; with a bias."""
    window = Window((1, k), (1, 1), (1, k))
    biases = [None if bias is None else RationalMatrix.from_floats(np.array([[bias]])), None]
    terms = [(Term(INPUT, mean_over((1, 1, k), window, c)),), (Term(0, TWO),)]
    return Network.of_terms(terms, biases, between=["identity"])


def roundings_in_a_row() -> Tally:
    """In bfloat16 1/255 is rounded by almost u; so is its product with some numbers, and the sum with a bias."""
    tally, kind, u = Tally(), TYPES["bfloat16"], UNITS["bfloat16"]
    reciprocal = float(kind(1) / kind(255))
    worst = []
    for x in 1 + 2 * u * np.arange(128):
        product = float(kind(x) * kind(reciprocal))
        for part in (1.0, 1 + 2 * u, 1 + 4 * u, 2 - 2 * u):
            bias = float(rounded("bfloat16", part * u * 2.0 ** math.floor(math.log2(product))))
            total = float(kind(product) + kind(bias))
            worst.append((abs(total - (x / 255 + bias)) / (x / 255 + bias), x, bias))
    for _, x, bias in sorted(worst)[-4:]:
        for way in (Way(mean="multiply"), Way(mean="each"), Way(mean="divide")):
            check_deviation(divided(255, bias), "bfloat16", np.array([x]), 0.0, tally, [way])
    return tally


def test_a_mean_beside_a_bias_has_one_more_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    assert roundings_in_a_row().wrong == 0
    monkeypatch.setattr(module, "_roundings", lambda layer: module._summands(layer) + 1)
    assert roundings_in_a_row().wrong > 0


def test_means_as_the_book_says() -> None:
    form = get_format("float16")
    for k, bias in ((4, None), (9, None), (9, 0.5), (4, 0.5)):
        network = as_deployed(divided(k, bias, k), form)
        made = _Constants.of(network.layers[0], [Fraction(1)], form, LADDER)
        count = k + 1 + (bias is not None and k == 9)  # a quotient by 4 is exact
        kappa = (1 + form.unit) ** count - 1
        assert kappa <= Fraction(made.kappa) <= kappa * (1 + Fraction(1, 2**50))
        assert form.largest / k * (1 - Fraction(1, 2**50)) <= Fraction(made.largest) <= form.largest / k
        assert network.layers[0].terms[0].map.dense()[0, 0] == Fraction(1, k), "not rounded"


def test_a_mean_that_nobody_calls_one_is_one() -> None:
    """Whoever has lost the word has the numbers: 1/9 is no weight of a program, and 1/4 may be no weight of one."""
    form = get_format("float16")
    for k in (4, 9):
        network = divided(k, None, k)
        [term] = network.layers[0].terms
        assert isinstance(term.map, Convolution)
        silent = Network.of_terms(
            [(replace(term, map=replace(term.map, is_mean=False)),), network.layers[1].terms], between=["identity"]
        )
        for each in (network, silent):
            [made] = as_deployed(each, form).layers[0].terms
            assert isinstance(made.map, Convolution)
            assert made.map.is_mean
            assert made.map.kernel == term.map.kernel
    ones = replace(term.map, kernel=RationalMatrix.from_floats(np.ones((1, 9))), is_mean=False)
    assert module._mean_over(ones) is None
    third = replace(term.map, kernel=RationalMatrix.from_fractions([[Fraction(1, 3)] * 8 + [Fraction(1, 4)]]))
    with pytest.raises(InputError, match="do not count alike"):
        as_deployed(Network.of_terms([(Term(INPUT, third),), (Term(0, TWO),)], between=["identity"]), form)
    weights = as_deployed(
        Network.of_terms([(Term(INPUT, replace(third, is_mean=False)),), (Term(0, TWO),)], between=["identity"]), form
    )
    assert weights.layers[0].terms[0].map.dense()[0, 0] == Fraction(float(np.float16(1 / 3)))


@pytest.mark.parametrize("c", [4, 9, 64])
def test_a_mean_that_became_another_map_is_one(c: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of one channel over all of an image: a matrix. Of one channel among others: a convolution with zeros."""
    form = get_format("float16")
    row = RationalMatrix.from_fractions([[Fraction(1, c)] * c, [Fraction(0)] * c])
    some = RationalMatrix.from_fractions([[Fraction(1, c)] * c + [Fraction(0)] * c])
    parted = Convolution(some, 2, Window((1, c), (1, 1), (1, c)))
    for linear in (Dense(row), parted):
        assert module._mean_over(linear) == c
        head = Dense(RationalMatrix.from_floats(np.eye(2)[:, ::-1][:, -linear.shape[0] :]))
        network = Network.of_terms([(Term(INPUT, linear),), (Term(0, head),)], between=["identity"])
        if c == 9:
            with pytest.raises(InputError, match="a mean over 9 numbers that is part of another map"):
                as_deployed(network, form)
            continue
        layer = as_deployed(network, form).layers[0]
        assert module._gathered(layer) == c
        assert module._roundings(layer) == linear.summands + 1
        bias = RationalMatrix.from_floats(np.ones((linear.shape[0], 1)))
        assert module._roundings(replace(layer, bias=bias)) == linear.summands + 1, "a quotient by c is exact"
        # The sum of c such numbers overflows, their mean does not.
        large = np.full((1, linear.shape[1]), 30_000.0)
        assert not certify_inputs(network, large, 0, deployed="float16", scale=1).certified.any()
        with monkeypatch.context() as forgetful:
            forgetful.setattr(module, "_mean_over", lambda _: None)
            assert certify_inputs(network, large, 0, deployed="float16", scale=1).certified.all()


@pytest.mark.parametrize("c", [4, 9])
def test_a_mean_that_is_subtracted_is_one(c: int) -> None:
    """-1/9 is no weight of a program, and sums of numbers that are subtracted may overflow as well."""
    form = get_format("float16")
    negative = Convolution(RationalMatrix.from_fractions([[Fraction(-1, c)] * c]), 1, Window((1, c), (1, 1), (1, c)))
    head = Dense(RationalMatrix.from_floats(np.array([[0.0], [-1.0]])))
    network = Network.of_terms([(Term(INPUT, negative),), (Term(0, head),)], between=["identity"])
    layer = as_deployed(network, form).layers[0]
    [term] = layer.terms
    assert module._gathered(layer) == c
    assert term.map == replace(negative, is_mean=True)
    assert term.map.dense()[0, 0] == Fraction(-1, c)
    for size, sure in ((60_000.0, False), (100.0, True)):
        found = certify_inputs(network, np.full((1, c), size), 0, deployed="float16", scale=1)
        assert found.certified.tolist() == [sure]
    mixed = replace(negative, kernel=RationalMatrix.from_fractions([[Fraction((-1) ** i, 9) for i in range(c)]]))
    with pytest.raises(InputError, match="a mean over 9 numbers that is part of another map"):
        as_deployed(Network.of_terms([(Term(INPUT, mixed),), (Term(0, head),)], between=["identity"]), form)


def test_weights_that_are_no_mean() -> None:
    for values in ([[0.5, 0.25]], [[0.75]], [[0.0]], [[1.0, 0.0]], [[-0.5, -0.25]], [[2.0]]):
        assert module._mean_over(Dense(RationalMatrix.from_floats(np.array(values)))) is None


@pytest.mark.parametrize("threshold", [None, "1/4"])
def test_a_single_output_that_is_a_sum_keeps_its_terms(threshold: str | None) -> None:
    """The program adds up what each term gives: 3001·x - 3000.9995·x, each rounded."""
    rng = np.random.default_rng(1)
    flips = 0
    for _ in range(40):
        w, x = np.float32(rng.uniform(2000, 4000)), np.float32(rng.uniform(1, 2))
        v = np.float32(-w + np.float32(2.0**-11))
        computed = float(np.float32(w * x) + np.float32(v * x))
        real = (float(w) + float(v)) * float(x)
        between = float(np.float32((computed + real) / 2))
        if (computed > between) == (real > between):
            continue
        terms = [
            tuple(
                Term(INPUT, Dense(RationalMatrix.from_floats(np.array([[each]], dtype=np.float64)))) for each in (w, v)
            )
        ]
        network = Network.of_terms(terms, between=[]).deciding(threshold or between)
        assert len(network.layers[-1].terms) == len(network.model_layers[-1].terms) == 2
        assert network.model_layers[-1].shape[0] == 1
        if threshold is None:
            found = certify_inputs(network, np.array([[x]], dtype=np.float64), "1e-9", deployed="float32")
            assert not found.certified.any()
            flips += 1
    assert flips > 5 or threshold


def overflowing(name: str, k: int) -> tuple[Network, Array]:
    """Numbers whose mean is one of the format, and whose sum is not."""
    large = float(rounded(name, float(get_format(name).largest) * 0.7))
    terms = [(Term(INPUT, mean_over((1, 2, k), Window((2, k), (1, 1), (2, k)))),), (Term(0, TWO),)]
    return Network.of_terms(terms, between=["identity"]), np.full(2 * k, large)


@pytest.mark.parametrize("name", TYPES)
def test_sums_before_a_division_may_overflow(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """(Of float64 without the control: there nothing is claimed, because our own enclosures overflow as well.)"""
    network, v = overflowing(name, 2)
    less = rounded(name, v / 3)
    tally = Tally()
    for x in (v, less):
        check_deviation(network, name, x, 0.0, tally, list(ways(0, 8)))
    assert tally.wrong == 0
    assert tally.runs > 0, "of the smaller ones something is claimed"
    found = certify_inputs(network, np.stack([v, less]), 0, deployed=name, local=False, scale=1)
    assert found.certified.tolist() == [False, True]
    with np.errstate(all="ignore"):
        run = Program(network, name).run(v[:, None], Way())[0]
    assert not np.isfinite(run.astype(np.float64)).all()
    monkeypatch.setattr(module, "_gathered", lambda layer: 1)
    check_deviation(network, name, v, 0.0, tally, list(ways(0, 8)))
    assert tally.wrong > 0 or name == "float64", "the search does not see overflows"


def test_the_count_of_a_mean_is_what_overflows() -> None:
    """A window with padding, or a divisor that somebody chose: the sum is as large as the divisor says."""
    form = get_format("float16")
    for c in (2, 7, 64):
        made = _Constants.of(as_deployed(divided(c), form).layers[0], [Fraction(1)], form, LADDER)
        assert form.largest / c * (1 - Fraction(1, 2**50)) <= Fraction(made.largest) <= form.largest / c
    for c in (2**11, 2**11 + 1):
        if c > 2**form.bits:
            with pytest.raises(InputError, match="a mean over 2049 numbers"):
                as_deployed(divided(c), form)
        else:
            as_deployed(divided(c), form)


@pytest.mark.parametrize("name", COARSE)
def test_divisions_that_underflow(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """(η + 0)/2 is in the middle of two numbers."""
    eta = float(get_format(name).tiny)
    network, tally = divided(2, None, 2), Tally()
    points = [np.array([a * eta, b * eta]) for a in (1, 3, 7) for b in (0, 2, 6)]
    for v in points:
        check_deviation(network, name, v, 0.0, tally, list(ways(0, 8)))
    assert tally.wrong == 0
    with_constants(monkeypatch, lambda found: replace(found, underflow=0.0, absolute_underflow=0.0))
    for v in points:
        check_deviation(network, name, v, 0.0, tally, list(ways(0, 8)))
    assert tally.wrong > 0


# -- flips -----------------------------------------------------------------------------------------------------------


def near_boundaries(program: Program, rng: np.random.Generator, count: int) -> Array:
    """Points of the format, from well inside a class to within a rounding of its boundary."""
    tries = rng.standard_normal((program.network.inputs, 60)) * 2
    winners = np.argmax(program.near(tries), axis=0)
    others = np.flatnonzero(winners != winners[0])
    if not len(others):
        return rounded(program.name, tries[:, :1])
    inside, outside, low, high = tries[:, 0], tries[:, others[0]], 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        same = np.argmax(program.near((inside + middle * (outside - inside))[:, None])[:, 0]) == winners[0]
        low, high = (middle, high) if same else (low, middle)
    edge = inside + low * (outside - inside)
    parts = np.exp2(-rng.uniform(0, 3 - math.log2(UNITS[program.name]), count))
    return rounded(program.name, edge[:, None] + (inside - edge)[:, None] * parts)


def steepest(program: Program, v: Array, winner: int) -> Array:
    """Where the lead of the winner falls, by differences."""
    n, step = len(v), 2.0**-18
    logits = program.near(v[:, None])[:, 0]
    rival = int(np.argmax(np.where(np.arange(len(logits)) == winner, -np.inf, logits)))
    ahead, behind = (program.near(v[:, None] + sign * step * np.eye(n)) for sign in (1, -1))
    found: Array = (ahead - behind)[rival] - (ahead - behind)[winner]
    return found


def flips(name: str, seeds: range) -> Tally:
    """Programs at points within the radius that is certified: does another class win, or tie?"""
    tally = Tally()
    for seed in seeds:
        rng = np.random.default_rng([seed, 9])
        network = random_network(name, seed)
        program = Program(network, name)
        points = near_boundaries(program, rng, 8)
        found = certify_inputs(network, points.T, 0, deployed=name, local=False, scale=1)
        for verdict, v in zip(found, points.T, strict=True):
            if not verdict.certified:
                continue
            tally.certified += 1
            inputs = around(name, v, verdict.radius, rng, 8, steepest(program, v, verdict.argmax))
            for way in islice(ways(seed, 14), 14):
                if way.fused and name == "float64":
                    continue
                logits = program.run(inputs, way)[len(network.layers) - 1].astype(np.float64)
                tally.runs += inputs.shape[1]
                others = np.delete(logits, verdict.argmax, axis=0).max(axis=0)
                tally.wrong += not (logits[verdict.argmax] > others).all()  # a NaN is not above, either
    return tally


@pytest.mark.parametrize("name", TYPES)
def test_what_is_certified_never_flips(name: str) -> None:
    tally = flips(name, SEEDS[name])
    assert tally.wrong == 0, tally
    assert tally.certified >= 10, tally


@pytest.mark.parametrize("name", COARSE)
def test_without_the_error_terms_flips_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Deployment.deviation

    def nothing(self: Deployment, extent: Extent) -> Deviation:
        found = whole(self, extent)
        return Deviation(0 * found.own, 0 * found.own_slope, 0 * found.shared, 0.0, found.most)

    monkeypatch.setattr(Deployment, "deviation", nothing)
    assert flips(name, SEEDS[name]).wrong > 0


@pytest.mark.filterwarnings("ignore:TF32 acceleration")  # of which nobody asks, but torch says
def test_a_program_of_a_framework() -> None:
    """Convolutions of torch in float32, plain ones: within the claim, whatever order they have."""
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    channels, side = 6, 8
    kernels = [rounded("float32", rng.standard_normal((channels, c, 3, 3)) / math.sqrt(9 * c)) for c in (2, channels)]
    biases = [rounded("float32", rng.standard_normal(channels)) for _ in kernels]
    head = rounded("float32", rng.standard_normal((3, channels * 4)))
    window = Window.padded((side, side), (3, 3), pads=(1, 1, 1, 1))
    shape, halved = (channels, side, side), Window.padded((side, side), (3, 3), (2, 2), pads=(1, 1, 1, 1))
    maps = [Convolution(RationalMatrix.from_floats(k.reshape(channels, -1)), k.shape[1], window) for k in kernels]
    columns = [RationalMatrix.from_floats(np.repeat(b, side * side)[:, None]) for b in biases]
    quarter = mean_over((channels, 4, 4), Window.padded((4, 4), (2, 2), (2, 2)))
    network = Network.of_terms(
        [
            (Term(INPUT, maps[0]),),
            (Term(0, maps[1]), Term(0, identity(shape))),
            (Term(1, quarter),),
            (Term(2, matrix(head)),),
        ],
        [*columns, None, None],
        between=["relu", MaxPool.of(channels, halved).name, "identity"],
    )
    program, (deployment, evaluator) = Program(network, "float32"), deployment_of(network, "float32")
    weights = [torch.tensor(x, dtype=torch.float32) for x in (*kernels, *biases, head)]

    def run(x: Array) -> dict[int, Array]:
        with torch.no_grad(), torch.backends.mkldnn.flags(enabled=False):
            h = torch.relu(torch.conv2d(torch.tensor(x, dtype=torch.float32), weights[0], weights[2], padding=1))
            h = torch.conv2d(h, weights[1], weights[3], padding=1) + h
            h = torch.nn.functional.avg_pool2d(torch.max_pool2d(h, 3, 2, 1), 2).reshape(1, -1)
            return {2: h.numpy()[0].astype(float), 3: (h @ weights[4].T).numpy()[0].astype(float)}

    for seed in range(6):
        v = rounded("float32", np.random.default_rng(seed).standard_normal(2 * side * side))
        found = deviation_at(deployment, evaluator, v[:, None])
        exact = program.exact([Fraction(float(x)) for x in v])
        assert not _is_beyond(program, deployment, found, 0.0, exact, run(v.reshape(1, 2, side, side)))


# -- number by number ------------------------------------------------------------------------------------------------


def graph_of_constants(random: Random, layers: int, most: int) -> tuple[Deployment, Extent]:
    """A deployment made of numbers alone; each layer takes up to `most` terms of any layers before it."""
    made = object.__new__(Deployment)
    made.network = Network.from_arrays([np.eye(2)])
    made._layers = []
    for index in range(layers):
        count = 1 if index == layers - 1 else random.randint(1, most)
        sources = [random.randint(INPUT, index - 1) for _ in range(count)]
        rows = 2 if index == layers - 1 else random.choice([1, 2])
        terms = tuple(
            _TermConstants(
                source,
                np.zeros((rows, 1)),
                np.array([magnitude(random, -3, 0) for _ in range(rows)]),
                magnitude(random, -3, 0),
                1,
            )
            for source in sources
        )
        branches = dict.fromkeys(sources)  # terms of one source may be one
        made._layers.append(
            _Constants(
                terms=terms,
                norms=tuple((source, magnitude(random, -3, 0)) for source in branches),
                apart=len(branches) > 1 and random.random() < 0.3,
                bias=np.zeros((rows, 1)),
                kappa=magnitude(random, -50, -4) * random.choice([0, 1, 1]),
                underflow=random.choice([0.0, 2.0**-60]),
                absolute_underflow=random.choice([0.0, 2.0**-59]),
                lipschitz=magnitude(random, -1, 1),
                again=random.choice([0.0, magnitude(random, -50, -4)]),
                largest=random.choice([2.0**1000, magnitude(random, 8, 12)]),
            )
        )
    made._reach = made._reaches(())
    rows_of = [len(each.bias) for each in made._layers]
    return made, Extent(tuple(np.array([[magnitude(random, -3, 3)] for _ in range(rows)]) for rows in rows_of))


def _stretched(each: _Constants, of_sources: dict[int, Fraction]) -> Fraction:
    parts = [Fraction(norm) * of_sources[source] for source, norm in each.norms]
    return sqrt_lower(sum(x * x for x in parts), 200) if each.apart else sum(parts, Fraction(0))


def test_errors_on_graphs_are_at_least_those_of_the_book() -> None:
    limited = 0
    for seed in range(80):
        random = Random(f"book {seed}")
        made, extent = graph_of_constants(random, random.choice([2, 4, 9]), random.choice([2, 3, 200]))
        reach, alpha, beta = {INPUT: Fraction(1)}, {INPUT: Fraction(0)}, {INPUT: Fraction(0)}
        limits = []
        found = made.deviation(extent)
        for index, (each, rows) in enumerate(zip(made._layers, extent.rows, strict=True)):
            kappa, lipschitz = Fraction(each.kappa), Fraction(each.lipschitz)
            sizes = exactly(rows)
            norms = [exactly(term.rows) for term in each.terms]
            away = [reach[term.source] + beta[term.source] for term in each.terms]
            errors = [alpha[term.source] for term in each.terms]
            base = [
                size + sum(norm[i] * a for norm, a in zip(norms, errors, strict=True)) for i, size in enumerate(sizes)
            ]
            slope = [sum(norm[i] * s for norm, s in zip(norms, away, strict=True)) for i in range(len(sizes))]
            limits += [
                ((1 + kappa) * b + Fraction(each.underflow), (1 + kappa) * s, Fraction(each.largest))
                for b, s in zip(base, slope, strict=True)
            ]
            if index == len(made._layers) - 1:
                head = each.terms[0].source
                assert at_least([found.shared[0], found.shared_slope], [alpha[head], beta[head]]), seed
                assert at_least(found.own[:, 0], [kappa * b + Fraction(each.underflow) for b in base]), seed
                assert at_least(found.own_slope, [kappa * s for s in slope]), seed
                assert Fraction(found.shared_slope) <= beta[head] * (1 + Fraction(1, 2**30)) + Fraction(2) ** -900
                break
            reach[index] = lipschitz * _stretched(each, reach)
            assert reach[index] <= Fraction(made._reach[index]) <= reach[index] * (1 + Fraction(1, 2**30))
            part, factor = kappa + Fraction(each.again) * (1 + kappa), max(lipschitz, Fraction(1))
            absolute = [Fraction(term.absolute) for term in each.terms]
            size = sqrt_lower(sum(x * x for x in sizes), 200)
            grown = sum(a * e for a, e in zip(absolute, errors, strict=True))
            spread = sum(a * s for a, s in zip(absolute, away, strict=True))
            local = part * (size + grown) + Fraction(each.absolute_underflow)
            alpha[index] = lipschitz * _stretched(each, alpha) + factor * local
            beta[index] = lipschitz * _stretched(each, beta) + factor * part * spread
        most = float(found.most[0])
        if most >= 0:
            limited += most < 1e300
            assert all(base + slope * Fraction(min(most, 1e308)) <= largest for base, slope, largest in limits), seed
    assert limited > 10


MANY = [1.0] + [0.7 * 2.0**-53] * 249
"""Added up one by one, all but the first are lost; so are their products with a number a little above 1."""


def a_layer(
    source: int,
    norms: Sequence[float] = (0.0,),
    absolute: Sequence[float] = (),
    rows: Sequence[float] = (),
    kappa: float = 0.5,
) -> _Constants:
    """With a single row, and nothing but these numbers."""
    zero, count = np.zeros((1, 1)), max(len(absolute), len(rows), len(norms))
    pairs = [(*map(float, x),) for x in zip_longest(rows, absolute, [0.0] * count, fillvalue=0.0)]
    terms = tuple(_TermConstants(source, zero, np.array([of_row]), above, 1) for of_row, above, _ in pairs)
    return _Constants(terms, tuple((source, x) for x in norms), False, zero, kappa, 0.0, 0.0, 1.0, 0.0, 2.0**1000)


def deployed_of(*layers: _Constants) -> tuple[Deployment, Deviation]:
    """The first layer has values of the size 1, the others of 0."""
    made = object.__new__(Deployment)
    made.network, made._layers = Network.from_arrays([np.eye(2)]), list(layers)
    made._reach = made._reaches(())
    sizes = [np.ones((1, 1)), *[np.zeros((1, 1))] * (len(layers) - 1)]
    return made, made.deviation(Extent(tuple(sizes)))


def sums_of_many() -> dict[str, bool]:
    """Whether each number that is a sum of many terms is at least the exact one."""
    total, half = sum(map(Fraction, MANY)), Fraction(1, 2)
    first, last = a_layer(INPUT, [1.0], [1.0], kappa=2.0**-10), a_layer(1)
    _, before = deployed_of(first, a_layer(0))
    alpha, beta = Fraction(float(before.shared[0])), Fraction(before.shared_slope)
    reach = Fraction(deployed_of(first, a_layer(0))[0]._reach[0])
    by_norms, by_size = a_layer(0, MANY, kappa=0.0), a_layer(0, absolute=MANY)
    (stretched, passed), (_, grown) = deployed_of(first, by_norms, last), deployed_of(first, by_size, last)
    made, own = deployed_of(first, a_layer(0, rows=MANY))
    made._layers = [a_layer(INPUT, rows=MANY)]
    within = made.extent_within(Fraction(1), [(np.zeros((2, 1)), np.zeros((2, 1)))])
    found = {
        "reach": (stretched._reach[1], reach * total),
        "passed on": (passed.shared[0], alpha * total),
        "passed on, slope": (passed.shared_slope, beta * total),
        "grown": (grown.shared[0], half * alpha * total),
        "spread": (grown.shared_slope, half * (reach + beta) * total),
        "own": (own.own[0, 0], half * alpha * total),
        "own, slope": (own.own_slope[0], half * (reach + beta) * total),
        "within": (within.rows[0][0, 0], total),
    }
    return {what: Fraction(float(mine)) >= exact for what, (mine, exact) in found.items()}


def test_sums_of_many_terms_are_enlarged_by_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(sums_of_many().values()), sums_of_many()
    monkeypatch.setattr(_Constants, "sums", 0)
    assert not any(sums_of_many().values()), sums_of_many()


def maps_of_extreme_sizes() -> Iterator[Any]:
    """Beside a huge number another one vanishes on its scale, but not by itself."""
    window = Window.padded((2, 3), (2, 2), pads=(1, 1, 0, 0))
    for high, low in ((0, 0), (1000, -100), (900, -1000), (-1000, -1070), (600, 590)):
        kernel = np.ldexp([[1.5, -1.0, 0.0, 1.25], [1.0, -1.75, 1.5, 1.0]], [[high], [low]])
        yield Convolution(RationalMatrix.from_floats(kernel), 1, window)
        yield Dense(RationalMatrix.from_floats(np.hstack([kernel, -kernel[:, :2]])), (6,))
        factors = np.ldexp([[1.0], [-1.5], [1.25]], [[high], [low], [0]])
        yield IndexMap(np.array([1, 1, -1]), (6,), (3,), RationalMatrix.from_floats(factors))
    yield mean_over((1, 2, 3), window)


def test_sizes_of_all_maps_are_at_least_the_exact_ones() -> None:
    for seed, linear in enumerate(maps_of_extreme_sizes()):
        made = _TermConstants.of(Term(INPUT, linear), LADDER)
        rows = graphs.rows_of(linear.dense())
        for norm, row in zip(exactly(made.rows), rows, strict=True):
            square = sum(x * x for x in row)
            assert square <= norm**2 <= square * (1 + Fraction(1, 2**30)) + Fraction(2) ** -1900, linear
        for power in (0, 20, -900):
            sizes = np.ldexp(np.abs(np.random.default_rng(seed).standard_normal((6, 2))), power)
            with np.errstate(all="ignore"):
                found = module.enlarged(made.magnitudes(sizes), 6)
            for column in range(2):
                exact = graphs.times([[abs(x) for x in row] for row in rows], exactly(sizes[:, column]))
                assert at_least(found[:, column], exact), (linear, power)


def test_distances_of_rows_whose_sums_are_no_floats() -> None:
    """Two matrices of one source are one over the reals, of more bits than a float has."""
    rng = np.random.default_rng(5)
    one = rng.standard_normal((3, 4)) * [[1.0], [1.0], [2.0**-80]]
    one[1] = one[0]
    more = np.ldexp(rng.standard_normal((3, 4)), -60)
    network = Network.of_terms([(Term(INPUT, matrix(one)), Term(INPUT, matrix(more)))])
    heads = [network.head[0], network.layers[0].terms[0].map.dense(), RationalMatrix.from_integers([[1, 2], [2, 1]], 3)]
    for head in heads:
        found, rows = module._gaps(head), graphs.rows_of(head)
        for i, row in enumerate(rows):
            for j, other in enumerate(rows):
                square = sum((x - y) ** 2 for x, y in zip(row, other, strict=True))
                assert Fraction(float(found[i, j])) ** 2 >= square, (i, j)
    assert module._gaps(heads[0])[0, 1] > 0
    assert network.head[0].as_floats() is None, "the test tests nothing"
    check_deviation(network, "float64", rng.standard_normal(4), 0.0, tally := Tally(), list(ways(0, 9)))
    assert tally.wrong == 0
    assert tally.runs > 0


def test_copies_are_exact() -> None:
    form = get_format("float16")

    def kappa_of(*terms: Term, bias: RationalMatrix | None = None) -> float:
        layer = Layer(terms, bias, activation("relu"))
        return _Constants.of(layer, [Fraction(1)] * len(layer.branches), form, LADDER).kappa

    parts = graphs.concatenated((INPUT, (2,)), (0, (3,)))
    column = RationalMatrix.from_floats(np.ones((5, 1)))
    u = float(form.unit)
    assert kappa_of(*parts) == 0
    assert kappa_of(Term(INPUT, identity((5,)))) == 0
    assert kappa_of(*parts, bias=column) > 2 * u
    assert kappa_of(Term(INPUT, identity((5,))), Term(0, identity((5,)))) > 2 * u
    assert kappa_of(Term(INPUT, IndexMap(np.arange(5), (5,), (5,), column))) > u


# -- what is refused -------------------------------------------------------------------------------------------------


def test_what_is_not_known_in_floats_is_refused() -> None:
    form = get_format("float32")
    half = RationalMatrix.from_fractions([[Fraction(1, 2)] * 4])
    alike = ChannelWise(half, (1, 2, 2), (1, 1, 1))
    network = Network.of_terms([(Term(INPUT, alike),), (Term(0, TWO),)], between=["identity"])
    with pytest.raises(InputError, match="a pool whose means"):
        as_deployed(network, form)
    plain = divided(2, None, 2)
    with pytest.raises(InputError, match="biases of several branches"):
        as_deployed(replace(plain, folded=("biases of several branches",)), form)
    first, last = plain.layers
    half_or_more = UncertainScale(None, Fraction(1, 2))
    for layer in (replace(first, before=half_or_more), replace(first, after=half_or_more)):
        with pytest.raises(InputError, match="roots"):
            as_deployed(replace(plain, layers=(layer, last)), form)
    branches = Network.of_terms([(Term(INPUT, identity((1,))),), (Term(0, TWO), Term(INPUT, TWO))], between=["relu"])
    with pytest.raises(InputError, match="several branches"):
        as_deployed(branches, form)
    beyond = IndexMap(np.arange(1), (1,), (1,), RationalMatrix.from_floats(np.array([[1e39]])))
    with pytest.raises(InputError, match="beyond float32"):
        as_deployed(Network.of_terms([(Term(INPUT, beyond),), (Term(0, TWO),)], between=["relu"]), form)


def test_factors_are_weights() -> None:
    third = IndexMap(np.arange(1), (1,), (1,), RationalMatrix.from_fractions([[Fraction(1, 3)]]))
    network = Network.of_terms([(Term(INPUT, third),), (Term(0, TWO),)], between=["relu"])
    [term] = as_deployed(network, get_format("float16")).layers[0].terms
    assert term.map.dense()[0, 0] == Fraction(float(np.float16(1 / 3)))
