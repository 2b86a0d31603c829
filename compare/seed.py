"""The source paper's algorithm, literally, in integers and rationals: a reference that shares no code with the package.

Tobler, Syeda and Murray verified their certifier in Dafny; its published margin bounds for their MNIST model are
matched here digit for digit. What the digits settle beyond the paper's text: entries are cut to 16 decimals away from
zero, a positive one up, a negative one to one unit below its floor; each Heron step is rounded up to 16 decimals.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.table import Table

from compare import pictures
from compare.harness import Outcome, Setting, table
from intervalcert import Bounds, Network, Verdicts, certify, compute_bounds, load_model

__all__ = ["Outputs", "SeedLayer", "heron_upper", "read_outputs", "run", "seed_layer", "seed_margins"]

UNIT = 10**16
STOP = Fraction(1, 10**11)
Matrix = list[list[Fraction]]
Integers = npt.NDArray[np.object_]


# -- the algorithm ---------------------------------------------------------------------------------------------------


def heron_upper(x: Fraction) -> Fraction:
    """Heron's iteration from 1 (or x, if x >= 1), each step rounded up to 16 decimals, until it falls by <= 1e-11."""
    if x == 0:
        return Fraction(0)
    r = Fraction(1) if x < 1 else x
    while True:
        before = r
        r = (r + x / r) / 2
        r = Fraction(-(-r.numerator * UNIT // r.denominator), UNIT)
        if before - r <= STOP:
            return r


def _frobenius_upper(numerators: Integers, denominator: int) -> Fraction:
    flat = numerators.ravel()
    return heron_upper(Fraction(int(np.dot(flat, flat)), denominator**2))


@dataclass(frozen=True)
class SeedLayer:
    """The bound of a layer after each number of Gram steps: bounds[n] for n >= 1."""

    bounds: dict[int, Fraction]


def seed_layer(numerators: Integers, denominator: int, most: int) -> SeedLayer:
    """Gram iteration on MᵀM, the full side, up to `most` steps."""
    matrix, steps, bounds = numerators, [], {}
    for n in range(1, most + 1):
        gram, below = _gram(matrix), denominator**2
        r = _frobenius_upper(gram, below) if gram.any() else Fraction(1)
        # gram/below divided by r, in units of 1e-16: top/bottom.
        top, bottom = gram * (r.denominator * UNIT), below * r.numerator
        matrix = np.where(gram >= 0, -(-top // bottom), top // bottom - 1)
        error = _frobenius_upper(top - matrix * bottom, bottom * UNIT)
        denominator = UNIT
        steps.append((r, error))
        v = _frobenius_upper(matrix, UNIT)
        for r, e in reversed(steps):
            v = heron_upper(r * (v + e))
        bounds[n] = v
    return SeedLayer(bounds)


def _gram(a: Integers) -> Integers:
    """Exactly aᵀ·a. Entries of up to 54 bits are cut into three limbs, whose products float64 holds exactly.

    A limb has 19 bits and a sum k < 2^15 terms, so no sum exceeds 2^53.
    """
    if max(abs(int(a.max())), abs(int(a.min()))) >= 2**56 or a.shape[0] >= 2**15:
        return np.asarray(a.T @ a)
    whole = a.astype(np.int64)
    limbs = [(whole & 0x7FFFF).astype(float), ((whole >> 19) & 0x7FFFF).astype(float), (whole >> 38).astype(float)]
    total = np.zeros((a.shape[1], a.shape[1]), dtype=object)
    for i, left in enumerate(limbs):
        for j, right in enumerate(limbs):
            total += (left.T @ right).astype(np.int64).astype(object) << (19 * (i + j))
    return total


def seed_margins(network: Network, layers: Sequence[SeedLayer], n: int) -> Matrix:
    """The product of the hidden bounds and of the norms of differences of the last rows."""
    body = Fraction(1)
    for layer in layers:
        body *= layer.bounds[n]
    last = network.layers[-1].weights
    rows = last.numerators.tolist()

    def margin(i: int, j: int) -> Fraction:
        squares = sum((a - b) ** 2 for a, b in zip(rows[i], rows[j], strict=True))
        return body * heron_upper(Fraction(squares, last.denominator**2))

    return [
        [Fraction(0) if i == j else margin(min(i, j), max(i, j)) for j in range(len(rows))] for i in range(len(rows))
    ]


# -- the outputs -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outputs:
    """Logits, one row per output, and the eps of each; all exactly as they are written."""

    rows: list[list[Fraction]]
    epsilons: list[Fraction]

    def verdicts(self, bounds: Bounds) -> Verdicts:
        return certify(bounds, self.rows, self.epsilons)


def read_outputs(path: Path) -> Outputs:
    """The lines of the paper's format: decimals with commas between them, a space, eps."""
    lines = [line.split(" ") for line in path.read_text().splitlines()]
    return Outputs([[Fraction(y) for y in row.split(",")] for row, _ in lines], [Fraction(eps) for _, eps in lines])


# -- the run ---------------------------------------------------------------------------------------------------------


def run(setting: Setting) -> Outcome:
    outcome = Outcome("seed")
    names = ("mnist_8x128.txt", "mnist_reference_bounds_gram11.json", "mnist_outputs_eps0.3.txt", "figures.json")
    paths = {name: setting.paper_file(name) for name in names}
    if None in paths.values():
        outcome.skipped.append(f"the paper's files are absent: {', '.join(n for n, p in paths.items() if p is None)}")
        return outcome
    model, reference, outputs, figures = (Path(str(path)) for path in paths.values())
    network = load_model(model)
    published = json.loads(reference.read_text())["lipschitz_bounds"]
    if setting.short:
        _digits_of_one_layer(network, published, outcome)
        return outcome
    start = perf_counter()
    hidden = [layer.weights for layer in network.layers[:-1]]
    layers = [seed_layer(w.numerators, w.denominator, 12) for w in setting.progress(hidden, "seed", len(hidden))]
    seconds = perf_counter() - start
    _digits(seed_margins(network, layers, 11), published, outcome)
    read = read_outputs(outputs)
    curve = _curve(setting, network, layers, read, outcome)
    paper = json.loads(figures.read_text())
    _report(setting, outcome, curve, paper, seconds)
    outcome.tables.append(_paper_table(setting, network, read, curve, paper, outcome))
    return outcome


def _digits(margins: Matrix, published: list[list[str]], outcome: Outcome) -> None:
    """Every margin equals the published one, digit for digit."""
    equal = 0
    for i, row in enumerate(margins):
        for j, value in enumerate(row):
            if value == Fraction(published[i][j]):
                equal += 1
            else:
                outcome.violations.append(f"our literal seed differs from the published margin {i},{j}")
    outcome.data["digits"] = {"equal": equal, "of": len(margins) ** 2}


def _digits_of_one_layer(network: Network, published: list[list[str]], outcome: Outcome) -> None:
    """The published margins are products of 16-decimal numbers: the bound of each layer must divide them, in units.

    A quick check of one 128 x 128 layer: a wrong digit anywhere would leave a remainder.
    """
    rows = network.layers[-1].weights
    squares = sum((a - b) ** 2 for a, b in zip(rows.numerators[0], rows.numerators[1], strict=True))
    body = Fraction(published[0][1]) / heron_upper(Fraction(squares, rows.denominator**2))
    units = body * UNIT ** (len(network.layers) - 1)
    layer = network.layers[1].weights
    bound = seed_layer(layer.numerators, layer.denominator, 11).bounds[11] * UNIT
    if units.denominator != 1 or units.numerator % bound.numerator:
        outcome.violations.append("our literal seed differs from the published bound of layer 1")
    outcome.data["digits"] = {"layer": 1, "divides": not outcome.violations}


@dataclass(frozen=True)
class Point:
    """One number of Gram steps: who certifies how many, in which time."""

    n: int
    seed: int
    arb: int
    exact: int
    seconds: dict[str, float]


def _curve(
    setting: Setting, network: Network, layers: Sequence[SeedLayer], outputs: Outputs, outcome: Outcome
) -> list[Point]:
    points = []
    for n in setting.progress(range(1, 13), "curve", 12):
        margins = seed_margins(network, layers, n)
        counts, seconds = {}, {}
        for name in ("arb", "exact"):
            start = perf_counter()
            bounds = compute_bounds(network, name, n, margins="product")
            seconds[name] = perf_counter() - start
            outcome.violations += [
                f"{name} at {n} steps is looser than the seed at margin {i},{j}"
                for i, row in enumerate(bounds.margins.matrix)
                for j, value in enumerate(row)
                if value > margins[i][j]
            ]
            counts[name] = int(outputs.verdicts(bounds).certified.sum())
        literal = replace(bounds, margins=replace(bounds.margins, matrix=margins))
        counts["seed"] = int(outputs.verdicts(literal).certified.sum())
        points.append(Point(n, counts["seed"], counts["arb"], counts["exact"], seconds))
    return points


def _paper_table(
    setting: Setting,
    network: Network,
    outputs: Outputs,
    curve: Sequence[Point],
    paper: dict[str, Any],
    outcome: Outcome,
) -> Table:
    """The paper's table beside ours: MNIST in full, the CIFAR-10 shapes with random weights for the time alone."""
    theirs = {row["data"]: row for row in paper["table1"]}
    shown = table("The paper's table, and ours", "model", "steps", "who", "time, s", "certified", "VRA")
    mnist = theirs["MNIST"]
    shown.add_row("MNIST", "11", "paper", _seconds(mnist["time"]), f"{mnist['robust']} %", f"{mnist['vra']} %")
    labels = setting.shared / "data" / "mnist.npz"
    for name in ("arb", "exact"):
        verdicts = outputs.verdicts(compute_bounds(network, name, 11, margins="product"))
        vra = "no labels"
        if labels.is_file():
            with np.load(labels, allow_pickle=False) as archive:
                vra = f"{100 * (verdicts.certified & (verdicts.argmax == archive['y_test'])).mean():.2f} %"
        share = f"{100 * verdicts.certified.mean():.2f} %"
        shown.add_row("", "11", name, f"{curve[10].seconds[name]:.1f}", share, vra)
    cifar = theirs["CIFAR-10"]
    shown.add_row("CIFAR-10", "12", "paper", _seconds(cifar["time"]), f"{cifar['robust']} %", f"{cifar['vra']} %")
    rng = np.random.default_rng(0)
    shapes = [(512, 3072), (256, 512), (128, 256), *[(128, 128)] * 5, (10, 128)]
    random = Network.from_arrays([rng.standard_normal(s).astype(np.float32) / np.float32(s[1] ** 0.5) for s in shapes])
    for name in setting.progress(("arb", "exact"), "CIFAR-10 shapes", 2):
        start = perf_counter()
        compute_bounds(random, name, 12, margins="product")
        outcome.data[f"cifar_shapes_{name}_seconds"] = round(perf_counter() - start, 1)
        shown.add_row("", "12", f"{name}, random weights", f"{outcome.data[f'cifar_shapes_{name}_seconds']}", "", "")
    return shown


def _seconds(clock: str) -> str:
    """``19:02:32`` in seconds."""
    hours, minutes, seconds = map(int, clock.split(":"))
    return str(3600 * hours + 60 * minutes + seconds)


def _report(setting: Setting, outcome: Outcome, curve: list[Point], paper: dict[str, Any], seconds: float) -> None:
    published = {point["gram"]: point for point in paper["mnist_curve"]}
    shown = table(
        "Certified of 10,000 and seconds, by Gram steps",
        *("steps", "paper", "literal seed", "arb", "exact", "paper, s", "arb, s", "exact, s"),
    )
    for point in curve:
        theirs = published[point.n]
        shown.add_row(
            str(point.n),
            f"{theirs['robust'] * 10_000:.0f}",
            *(str(count) for count in (point.seed, point.arb, point.exact)),
            str(theirs["seconds"]),
            *(f"{point.seconds[name]:.2f}" for name in ("arb", "exact")),
        )
    shown.caption = (
        "The digits at 11 steps settle what the verified program does; its plotted curve differs at 3 and 8."
    )
    outcome.tables.append(shown)
    outcome.data |= {"curve": [vars(point) for point in curve], "literal_seconds": round(seconds, 1)}
    picture = pictures.curve(setting, curve, published)
    if picture is None:
        outcome.skipped.append("pictures: matplotlib is not installed (pip install '.[compare]')")
    else:
        outcome.pictures.append(picture)
