"""Every margin against gradients: where a network is differentiable, no bound may be below the norm of a gradient.

A gradient of the lead of class j over class i is a lower bound of its Lipschitz constant that shares nothing with the
way margins are found: no norm, no ellipsoid, no sector. It is evaluated with proof. Which neurons are active at a point
is decided in exact rationals; a point at which one of them is neither is left out, and counted. With that pattern the
network is linear around the point, and its Jacobian a product of matrices with some rows left out: an enclosure of it
in float64 gives a lower bound of the norm of each difference of two of its rows. The sigmas of a chain are checked
alike: along a direction, the values inside a layer may not change faster than they allow.

Of a graph (convolutions, branches, pools, sorting) it is also decided which of the numbers that are compared is the
largest; a tie leaves the point out. Its Jacobian is a composition of linear maps and selections (`jacobians`), in exact
rationals for small networks. Some of them are made such that gradients attain the margins. There are no sigmas.

Chains, norms and branches that are broken on purpose must be convicted by the same points.

Uses the matrices of float64 of the package itself: nothing public encloses a Jacobian.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from compare.controls import GRADIENT_CONTROLS, GRAPH_CONTROLS
from compare.exact_networks import ExactNetwork
from compare.harness import Asked, Outcome, Setting, table
from compare.jacobians import GraphJacobian
from compare.rationals import sqrt_lower
from compare.subjects import Subject, ordinary, random_graphs, robust, tight_graphs
from intervalcert import Bounds, Network, evaluate
from intervalcert.backends.protocol import Backend, Matrix
from intervalcert.backends.registry import get_backend
from intervalcert.errors import InconclusiveError
from intervalcert.numbers.matrices import RationalMatrix

__all__ = [
    "MARGINS",
    "Steepest",
    "active_neurons",
    "gradient_squares_lower",
    "inner_squares_lower",
    "run",
    "steepest",
    "too_small",
]

Pair = tuple[int, int]
Floats = npt.NDArray[np.float64]
Signs = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]
Control = Callable[[Network], Bounds | None]

MARGINS = {
    "product": Asked(64, "auto", "auto", "product"),
    "chain": Asked(64, "auto", "auto", "chain"),
    "chain, tuned": Asked(64, "auto", "auto", "chain", 10),
    "best": Asked(64, "auto", "auto", "best", 10),
}
"""What is checked, on `exact`: no other number system gives less. (Of a slow network on `float64`, the first that a
user gets; and without the tuned chain by itself: `best` is the smallest of all.)"""

POINTS, FEW = 1_000, 100
"""FEW: in short."""

_FINER = 64
"""Points near those that are given are off by less than a unit, in so many parts."""


# -- the truth ---------------------------------------------------------------------------------------------------------


def active_neurons(network: Network, numerators: Integers, unit: int) -> tuple[list[Signs], Signs]:
    """Which neurons of each hidden layer are active at the points, and at which points all of them are proved.

    numerators: the points, in rows, over `unit`. A neuron whose value before the activation is exactly zero is neither
    active nor not: there the network has a kink.
    """
    if set(network.activations[:-1]) - {"relu"}:
        raise ValueError("gradients are found for ReLU networks")
    found = evaluate(network, numerators, scale=Fraction(1, unit), backend="exact")
    active, proved = [], np.ones(len(numerators), dtype=bool)
    for lower, upper in zip(found.lower[:-1], found.upper[:-1], strict=True):
        active.append(lower > 0)
        proved &= ((lower > 0) | (upper < 0)).all(axis=1)
    return active, proved


def gradient_squares_lower(
    weights: Sequence[Matrix[Any]], masks: Sequence[Signs], pairs: Sequence[Pair]
) -> Iterator[Fraction]:
    """Lower bounds of ||∇(N_j - N_i)||² for the pairs (i, j), where just these neurons are active.

    weights: enclosures of the layers' weights. Raises: InconclusiveError where an enclosure has no finite bounds.
    """
    jacobian = weights[-1]
    ones = np.ones(jacobian.shape[0])
    for w, mask in zip(reversed(weights[:-1]), reversed(masks), strict=True):
        jacobian = jacobian.diag_scaled(ones, mask.astype(float)) @ w
    every = np.arange(jacobian.shape[1])
    rows = [jacobian.block(np.array([k]), every) for k in range(jacobian.shape[0])]
    for i, j in pairs:
        yield (rows[j] - rows[i]).frobenius_squared().lower()


def inner_squares_lower(
    weights: Sequence[Matrix[Any]], masks: Sequence[Signs], direction: Matrix[Any]
) -> Iterator[Fraction]:
    """Lower bounds of ||J_l·x||²/||x||² for the Jacobians J_l of the hidden layers' values before the activation."""
    length, one = direction.frobenius_squared().upper(), np.ones(1)
    for w, mask in zip(weights[:-1], masks, strict=True):
        direction = w @ direction
        yield direction.frobenius_squared().lower() / length
        direction = direction.diag_scaled(mask.astype(float), one)


def stretched(floats: Sequence[Floats], masks: Sequence[Signs]) -> Floats:
    """A direction in which the last of those Jacobians stretches much: power iteration. Any direction would do.

    Along the pattern that is proved, as all here: no forward pass in floats has a say in it.
    """
    x: Floats = np.ones(floats[0].shape[1])
    for _ in range(5):
        for w, mask in zip(floats, (*masks[:-1], np.ones(len(floats[-1]))), strict=True):
            x = (w @ x) * mask
        for w, mask in zip(reversed(floats), (*reversed(masks[:-1]), np.ones(1)), strict=True):
            x = (w.T @ x) * mask
        largest = np.max(np.abs(x))
        x = x / largest if largest else np.ones(len(x))
    return x[:, None]


@dataclass
class Steepest:
    """The largest lower bounds that were found, each with its point.

    squares: of the squared norm of the gradient of each pair's lead. inner: of the squared stretch of the values of
    each hidden layer. kinks: points left out because the network is not proved to be differentiable there.
    """

    points: int = 0
    kinks: int = 0
    inconclusive: int = 0
    squares: dict[Pair, tuple[Fraction, int]] = field(default_factory=dict)
    inner: dict[int, tuple[Fraction, int]] = field(default_factory=dict)

    def take(self, squares: dict[Pair, Fraction], inner: Iterable[Fraction], point: int) -> None:
        self.points += 1
        nothing = Fraction(-1), -1
        self.squares |= {pair: max(self.squares.get(pair, nothing), (s, point)) for pair, s in squares.items()}
        self.inner |= {layer: max(self.inner.get(layer, nothing), (s, point)) for layer, s in enumerate(inner)}


def steepest(
    network: Network, numerators: Integers, unit: int, backend: Backend[Any], progress: Callable[..., Any] = iter
) -> Steepest:
    """Over all points (rows of integers over `unit`)."""
    active, proved = active_neurons(network, numerators, unit)
    weights = [backend.matrix(layer.weights) for layer in network.layers]
    floats = [layer.weights.near_floats().values for layer in network.layers[:-1]]
    pairs = [(i, j) for j in range(network.outputs) for i in range(j)]
    found = Steepest(kinks=int((~proved).sum()))
    for point in progress(np.flatnonzero(proved).tolist()):
        masks = [mask[point] for mask in active]
        direction = backend.matrix(RationalMatrix.from_floats(stretched(floats, masks)))
        try:
            squares = dict(zip(pairs, gradient_squares_lower(weights, masks, pairs), strict=True))
            inner = list(inner_squares_lower(weights, masks, direction))
        except InconclusiveError:
            found.inconclusive += 1
            continue
        found.take(squares, inner, point)
    return found


def steepest_of_graph(
    network: Network, numerators: Integers, unit: int, backend: Backend[Any], progress: Callable[..., Any] = iter
) -> Steepest:
    """The same for any graph of layers that `exact_networks` knows."""
    exact, jacobian = ExactNetwork(network), GraphJacobian(network, backend)
    pairs = [(i, j) for j in range(network.outputs) for i in range(j)]
    found = Steepest()
    for point in progress(list(range(len(numerators)))):
        _, pieces = exact.followed([Fraction(int(n), unit) for n in numerators[point]])
        if not all(piece.smooth for piece in pieces):
            found.kinks += 1
            continue
        try:
            squares = dict(zip(pairs, jacobian.squares_lower(pieces, pairs), strict=True))
        except InconclusiveError:
            found.inconclusive += 1
            continue
        found.take(squares, (), point)
    return found


def too_small(bounds: Bounds, found: Steepest) -> list[str]:
    """Margins and sigmas that are exceeded; exactly, without tolerance."""
    margins = bounds.margins
    wrong = [
        f"margin {i},{j} is exceeded by the gradient at point {point}"
        for (i, j), (square, point) in found.squares.items()
        if margins.matrix[i][j] ** 2 < square
    ]
    return wrong + [
        f"sigma of layer {layer} is exceeded at point {point}"
        for layer, sigma in enumerate(margins.sigmas)
        for square, point in [found.inner[layer]]
        if sigma < square
    ]


def nearest(bounds: Bounds, found: Steepest) -> tuple[float, float | None]:
    """The largest part of a margin that a gradient attains, and of the root of the last sigma that a stretch does."""
    margins = bounds.margins
    leads = ((square, margins.matrix[i][j] ** 2) for (i, j), (square, _) in found.squares.items())
    last = len(margins.sigmas) - 1
    inner = float(sqrt_lower(found.inner[last][0] / margins.sigmas[last])) if margins.sigmas else None
    return max(float(sqrt_lower(square / most)) for square, most in leads if most), inner


# -- the run -----------------------------------------------------------------------------------------------------------


def run(setting: Setting) -> Outcome:
    outcome = Outcome("gradients")
    shown = table(
        "Steepest gradients as parts of margins, and of the last sigma's root",
        *("network", "points", "left out", *MARGINS, "sigma"),
    )
    subjects = [*robust(setting, outcome), *ordinary(setting, outcome), *random_graphs(), *tight_graphs()]
    controls: dict[str, Control] = {**GRADIENT_CONTROLS, **GRAPH_CONTROLS}
    caught: dict[str, dict[str, int]] = {name: {} for name in controls}
    outcome.data["networks"] = []
    for subject in subjects:
        found = _steepest_of(setting, subject)
        _check(subject, found, outcome, shown)
        for name, broken in (GRADIENT_CONTROLS if subject.network.is_dense else GRAPH_CONTROLS).items():
            bounds = None if subject.few else broken(subject.network)
            if bounds is not None:
                caught[name][subject.name] = len(too_small(bounds, found))
    _controls(caught, outcome)
    outcome.tables.insert(0, shown)
    return outcome


def _points(subject: Subject, count: int) -> tuple[Integers, int]:
    """The first test inputs; where there are fewer, others besides, drawn between the least and the largest of them.

    Of a slow network points near them, and the unit of those: where an image is black, and a bias zero, is a kink.
    """
    rng = np.random.default_rng(9)
    if subject.few:
        inputs = subject.first(count)
        return _FINER * inputs + rng.integers(1, _FINER, inputs.shape), _FINER * subject.unit
    inputs = subject.numerators[:count]
    missing = (count - len(inputs), inputs.shape[1])
    return np.concatenate([inputs, rng.integers(inputs.min(), inputs.max() + 1, missing)]), subject.unit


def _steepest_of(setting: Setting, subject: Subject) -> Steepest:
    def progress(points: list[int]) -> Iterator[int]:
        return setting.progress(points, f"gradients: {subject.name}", len(points))

    numerators, unit = _points(subject, FEW if setting.short else POINTS)
    if subject.network.is_dense:
        return steepest(subject.network, numerators, unit, get_backend("float64"), progress)
    backend = get_backend("float64" if subject.few else "exact")
    return steepest_of_graph(subject.network, numerators, unit, backend, progress)


def _bounds_of(subject: Subject) -> Iterator[tuple[str, Bounds]]:
    for name, asked in MARGINS.items():
        if not subject.few:
            yield name, asked.bounds(subject.network, "exact")
        elif name != "chain, tuned":
            yield name, asked.bounds(subject.network, "float64")


def _check(subject: Subject, found: Steepest, outcome: Outcome, shown: Any) -> None:
    if not found.points:
        outcome.violations.append(f"{subject.name}: no gradient was found at any point")
        return
    parts = {}
    for name, bounds in _bounds_of(subject):
        outcome.violations += [f"{subject.name}, {name}: {wrong}" for wrong in too_small(bounds, found)]
        parts[name], inner = nearest(bounds, found)
        if inner is not None:
            parts["sigma"] = inner
    left_out = found.kinks + found.inconclusive
    shares = (f"{parts[name]:.6f}" if name in parts else "" for name in (*MARGINS, "sigma"))
    shown.add_row(subject.name, str(found.points), str(left_out), *shares)
    outcome.data["networks"].append(
        {
            "network": subject.name,
            "points": found.points,
            "at_a_kink": found.kinks,
            "inconclusive": found.inconclusive,
            "steepest_part_of": parts,
        }
    )


def _controls(caught: dict[str, dict[str, int]], outcome: Outcome) -> None:
    """How many bounds of each broken computation are exceeded; one that is caught nowhere is a violation."""
    shown = table("Negative controls: margins and sigmas exceeded", "control", "networks", "caught on", "exceeded")
    for name, counts in caught.items():
        shown.add_row(name, str(len(counts)), str(sum(map(bool, counts.values()))), str(sum(counts.values())))
    outcome.violations += [f"the control '{name}' was not caught" for name in caught if not any(caught[name].values())]
    outcome.data["controls"] = caught
    outcome.tables.append(shown)
