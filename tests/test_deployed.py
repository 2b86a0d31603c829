"""The program in floats: what is certified never flips, whatever the order of its sums, and the error bounds hold.

The searches run the program itself: in float32, float16, bfloat16 and float64, in many orders of summation, with and
without FMA, with wider accumulators. Each search has a control: the same one, with the error terms taken out or halved,
must find what it is looking for.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from intervalcert import (
    Bounds,
    InputError,
    Network,
    UsageError,
    certify,
    certify_deployed,
    certify_inputs,
    compute_bounds,
    load_model,
)
from intervalcert.api import verification_job
from intervalcert.model.evaluation import Evaluator
from intervalcert.numbers.float_formats import get_format
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.verify import deployed as module
from intervalcert.verify.deployed import Deployment, Deviation, as_deployed, too_coarse

SHARED = Path(__file__).resolve().parents[2] / "shared"
PAPER = SHARED / "paper"
IMAGES = SHARED / "data" / "mnist.npz"

TYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float64": np.float64}
UNITS = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8, "float64": 2.0**-53}
WIDER = {"float32": np.float64, "float16": np.float32, "bfloat16": np.float32, "float64": np.longdouble}

Array = np.ndarray[Any, Any]

# -- the program -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Program:
    """Weights, biases and slope are numbers of the format, kept as float64."""

    name: str
    weights: tuple[Array, ...]
    biases: tuple[Array | None, ...]
    between: str = "relu"

    @property
    def kind(self) -> Any:
        return TYPES[self.name]

    @property
    def slope(self) -> float:
        return float(Fraction(self.between.partition(":")[2]))

    def network(self) -> Network:
        return Network.from_arrays(list(self.weights), list(self.biases), between=self.between)

    def bent(self, z: Array) -> Array:
        """The activation, in the type of z."""
        if self.between == "relu":
            return np.maximum(z, z.dtype.type(0))
        if self.between == "hard_tanh":
            return np.minimum(np.maximum(z, z.dtype.type(-1)), z.dtype.type(1))
        if self.between.startswith("clip"):
            low, high = map(z.dtype.type, map(float, self.between.split(":")[1:]))
            return np.minimum(np.maximum(z, low), high)
        if self.between.startswith("leaky_relu"):
            return np.where(z > 0, z, z.dtype.type(self.slope) * z)
        return z

    def run(self, inputs: Array, order: Order) -> tuple[Array, Array]:
        """The input of the last layer, and the logits; one column per input."""
        value = inputs.astype(self.kind)
        with np.errstate(all="ignore"):
            for index, (w, b) in enumerate(zip(self.weights, self.biases, strict=True)):
                before = value
                bias = None if b is None else b.astype(self.kind)[:, None]
                value = order(w.astype(self.kind), bias, before)
                assert value.dtype == self.kind
                if index < len(self.weights) - 1:
                    value = self.bent(value)
        return before, value

    def near(self, inputs: Array) -> Array:
        """The logits in float64, for finding boundaries."""
        value = inputs
        for index, (w, b) in enumerate(zip(self.weights, self.biases, strict=True)):
            value = w @ value + (0.0 if b is None else b[:, None])
            if index < len(self.weights) - 1:
                value = self.bent(value)
        return value

    def slopes(self, x: Array) -> Array:
        """The Jacobian at x, in float64."""
        found, value = np.eye(len(x)), x
        for index, (w, b) in enumerate(zip(self.weights, self.biases, strict=True)):
            found, value = w @ found, w @ value + (0.0 if b is None else b)
            if index < len(self.weights) - 1:
                step = 2.0**-20 * max(1.0, float(np.max(np.abs(value))))
                found = (self.bent(value + step) - self.bent(value - step))[:, None] / (2 * step) * found
                value = self.bent(value)
        return found


Order = Callable[[Array, Array | None, Array], Array]


def terms_of(w: Array, b: Array | None, h: Array, place: int) -> list[Array]:
    """The products, rounded, with the bias among them."""
    found = [w[:, k, None] * h[None, k] for k in range(w.shape[1])]
    if b is not None:
        found.insert(place % (len(found) + 1), np.broadcast_to(b, found[0].shape))
    return found


def one_after_another(permute: Callable[[int], Any], place: int) -> Order:
    def order(w: Array, b: Array | None, h: Array) -> Array:
        chosen = permute(w.shape[1])
        first, *rest = terms_of(w[:, chosen], b, h[chosen], place)
        for term in rest:
            first = first + term
        return first

    return order


def pairwise(w: Array, b: Array | None, h: Array) -> Array:
    terms = terms_of(w, b, h, -1)
    while len(terms) > 1:
        odd = terms[-1:] if len(terms) % 2 else []
        terms = [x + y for x, y in zip(terms[::2], terms[1::2], strict=False)] + odd
    return terms[0]


def lanes(w: Array, b: Array | None, h: Array) -> Array:
    """Eight partial sums, as vector units do it, and the bias at the end."""
    terms = terms_of(w, None, h, 0)
    parts = []
    for k in range(min(8, len(terms))):
        part = terms[k]
        for term in terms[k + 8 :: 8]:
            part = part + term
        parts.append(part)
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total if b is None else total + b


def matmul(w: Array, b: Array | None, h: Array) -> Array:
    found = (w @ h).astype(w.dtype)
    return found if b is None else found + b


def fused(name: str, backward: bool, bias_first: bool) -> Order:
    """Product and sum rounded together."""
    wide, kind = (np.longdouble if name == "float64" else np.float64), TYPES[name]

    def order(w: Array, b: Array | None, h: Array) -> Array:
        count = w.shape[1]
        total = np.zeros((len(w), h.shape[1]), dtype=kind)
        if bias_first and b is not None:
            total = total + b
        for k in range(count)[::-1] if backward else range(count):
            total = (w[:, k, None].astype(wide) * h[None, k].astype(wide) + total.astype(wide)).astype(kind)
        return total if bias_first or b is None else total + b

    return order


def wide(name: str) -> Order:
    """A wider accumulator, rounded once."""
    kind = WIDER[name]

    def order(w: Array, b: Array | None, h: Array) -> Array:
        found = w.astype(kind) @ h.astype(kind)
        return (found if b is None else found + b.astype(kind)).astype(TYPES[name])

    return order


def orders(name: str, seed: int = 0, shuffles: int = 4) -> dict[str, Order]:
    found: dict[str, Order] = {
        "forward, bias last": one_after_another(range, -1),
        "forward, bias first": one_after_another(range, 0),
        "backward, bias last": one_after_another(lambda n: range(n)[::-1], -1),
        "backward, bias first": one_after_another(lambda n: range(n)[::-1], 0),
        "pairwise": pairwise,
        "lanes": lanes,
        "matmul": matmul,
        "wide": wide(name),
    }
    for backward in (False, True):
        for first in (False, True):
            found[f"fused {backward} {first}"] = fused(name, backward, first)
    for k in range(shuffles):
        rng = np.random.default_rng([seed, k])
        found[f"shuffled {k}"] = one_after_another(rng.permutation, int(rng.integers(0, 70)))
    return found


def rounded(name: str, x: Any) -> Array:
    """Numbers of the format, as float64."""
    return np.asarray(x).astype(TYPES[name]).astype(np.float64)


# -- exact arithmetic ------------------------------------------------------------------------------------------------


def integers(x: Array, places: int = 0) -> tuple[Array, int]:
    """(n, e) with x = n·2^-e exactly, n integers of any size, e >= places."""
    mantissas, exponents = np.frexp(np.asarray(x, dtype=np.float64))
    whole = np.ldexp(mantissas, 53).astype(np.int64).astype(object)
    shifts = exponents.astype(np.int64) - 53
    used = shifts[np.asarray(x) != 0]
    e = max(places, -int(used.min()) if used.size else 0, 0)
    return whole << np.where(np.asarray(x) != 0, shifts + e, 0).astype(object), e


def exact(program: Program, inputs: Array) -> list[tuple[Array, int]]:
    """W·h + b of each layer in exact arithmetic, and at the end the last layer's inputs: integers and their places."""
    value, places = integers(inputs)
    found = []
    for index, (w, b) in enumerate(zip(program.weights, program.biases, strict=True)):
        last = value, places
        whole, more = integers(w)
        value, places = whole.dot(value), places + more
        if b is not None:
            added, least = integers(b[:, None], places)
            value, places = (value << (least - places)) + added, least
        found.append((value, places))
        if index == len(program.weights) - 1:
            break
        if program.between == "relu":
            value = np.maximum(value, 0)
        elif program.between == "hard_tanh":
            value = np.minimum(np.maximum(value, -(1 << places)), 1 << places)
        elif program.between.startswith("clip"):
            low, high = (int(end) * 2**places for end in program.between.split(":")[1:])
            value = np.minimum(np.maximum(value, low), high)
        elif program.between.startswith("leaky_relu"):
            factor, more = integers(np.array([program.slope]))
            value, places = np.where(value > 0, value << more, value * factor[0]), places + more
    return [*found, last]


def difference(floats: Array, value: tuple[Array, int]) -> tuple[Array, int]:
    """Floats minus the exact value."""
    whole, places = integers(floats.astype(np.float64), value[1])
    return whole - (value[0] << (places - value[1])), places


def exceeds(value: Array, places: int, bound: Array) -> bool:
    """Whether any |value·2^-places| is above its bound, exactly."""
    limits, more = integers(bound)
    return bool(((abs(value) << more) > (limits << places)).any())


# -- networks --------------------------------------------------------------------------------------------------------

ACTIVATIONS = (
    *("relu", "leaky_relu:1/4", "leaky_relu:0.01", "hard_tanh", "identity"),
    *("leaky_relu:-1.5", "clip:2:5", "clip:-3:-1"),
)


def random_program(name: str, seed: int) -> Program:
    """1 to 8 or 30 to 60 inputs, none to three hidden layers of 1 to 8, biases of no, usual or large size."""
    rng = np.random.default_rng([seed, 77])
    inputs = int(rng.integers(1, 9)) if rng.random() < 0.3 else int(rng.integers(30, 61))
    sides = [inputs, *(int(k) for k in rng.integers(1, 9, rng.integers(0, 4))), int(rng.integers(2, 5))]
    between = ACTIVATIONS[seed % len(ACTIVATIONS)]
    if between == "leaky_relu:0.01":
        between = f"leaky_relu:{Fraction(float(rounded(name, 0.01)))}"
    weights, biases = [], []
    large = {"float32": 1e6, "float16": 500.0, "bfloat16": 1e6, "float64": 1e12}[name]
    size = rng.choice(["none", "usual", "large", "mixed"])
    for before, after in itertools.pairwise(sides):
        w = rng.standard_normal((after, before)) * rng.choice([0.3, 1.0, 2.0]) / math.sqrt(before)
        if rng.random() < 0.2:
            w *= rng.random((after, before)) < 0.5  # zeros
        if rng.random() < 0.2:
            w = np.ldexp(w, rng.integers(-8, 4, (after, 1)))
        scale = {"none": 0.0, "usual": 0.5, "large": large, "mixed": float(rng.choice([0.5, large]))}[str(size)]
        b = rng.standard_normal(after) * 0.5 + rng.standard_normal() * scale * (rng.random(after) < 0.7)
        weights.append(rounded(name, w))
        biases.append(None if size == "none" else rounded(name, b))
    return Program(name, tuple(weights), tuple(biases), between)


def saturating(name: str, inputs: int, lead: int) -> tuple[Program, Array]:
    """Two classes whose float sums, one term after another, are off by almost all that they can be.

    With unit roundoff u: 1 + 2·lead·u, then terms a little below u, which are all lost; against 1, then terms a little
    above u, each of which counts twice. The exact lead is 2·lead·u or hardly less, the float one 2·(lead - n + 1)·u.
    """
    u = UNITS[name]
    below, above = (float(rounded(name, u * (1 + 4 * sign * u))) for sign in (-1, 1))
    w = np.array([[1 + 2 * lead * u] + [below] * (inputs - 1), [1.0] + [above] * (inputs - 1)])
    assert (rounded(name, w) == w).all()
    return Program(name, (w,), (None,)), np.ones((inputs, 1))


def vanishing(name: str, inputs: int) -> tuple[Program, Array]:
    """Products that all lie in the middle between two numbers, because there are none below: each is off by η/2."""
    eta = float(get_format(name).tiny)
    w = np.array([[eta] * inputs, [3 * eta] * inputs, [2 * eta] * inputs])
    return Program(name, (w,), (None,)), np.full((inputs, 1), 0.5)


# -- deviations ------------------------------------------------------------------------------------------------------


def deployment_of(program: Program) -> tuple[Deployment, Evaluator]:
    task = verification_job(program.network(), None, None, program.name)
    assert task.form is not None
    made = Deployment(task.network, task.norms, task.sigmas, task.form, task.ladder)
    return made, Evaluator(task.network, task.norms, task.ladder[0])


def deviation_at(deployment: Deployment, evaluator: Evaluator, points: Array) -> Deviation:
    data = RationalMatrix.from_floats(points)
    before = [value.float_bounds() for value in evaluator.before_activations(data)]
    return deployment.deviation(deployment.extent_at(evaluator.backend.matrix(data).float_bounds(), before))


def within(v: Array, u: Array, eps: float) -> Array:
    """Whether each column of u is within eps of v; nearly exactly, on the safe side."""
    away = u - v[:, None]
    return (np.sqrt((away * away).sum(axis=0)) <= eps * (1 - 1e-12)) | ~away.any(axis=0)


def around(
    name: str, v: Array, eps: float, rng: np.random.Generator, count: int, towards: Array | None = None
) -> Array:
    """Numbers of the format within eps of v: v itself, neighbours in single entries, random ones, those in directions.

    v: one vector of such numbers; the result has one column each.
    """
    found = [v[:, None]]
    if eps > 0:
        n = len(v)
        for ulps in (1, 2, 5):
            place = rng.integers(0, n, max(2, count // 12))
            for sign in (-1, 1):
                moved = np.repeat(v[:, None], len(place), axis=1)
                step = np.abs(v[place]) * 2 * UNITS[name] + float(get_format(name).tiny)
                moved[place, np.arange(len(place))] += sign * ulps * step
                found.append(moved)
        directions = rng.standard_normal((n, count))
        if towards is not None and towards.any():
            steep = towards[:, None] / np.linalg.norm(towards)
            directions = np.concatenate([steep, -steep, steep + 0.1 * directions / math.sqrt(n), directions], axis=1)
        directions /= np.linalg.norm(directions, axis=0)
        parts = rng.random(directions.shape[1]) ** 0.25
        parts[:2] = 1.0
        found += [v[:, None] + eps * part * directions for part in (parts, 0.999 * np.ones_like(parts))]
    made = np.concatenate(found, axis=1)
    with np.errstate(over="ignore"):
        made = rounded(name, made)
    made = made[:, np.isfinite(made).all(axis=0)]
    return made[:, within(v, made, eps)]


@dataclass
class Tally:
    """Inputs, runs of the program at them, certified points, and what was wrong."""

    points: int = 0
    runs: int = 0
    wrong: int = 0
    certified: int = 0


def check_deviation(program: Program, v: Array, eps: float, tally: Tally, seed: int) -> None:
    """|N̂(u) - N(u)| for u within eps of v, exactly, in all orders: for single logits, pairs, and the last inputs."""
    rng = np.random.default_rng([seed, 5])
    deployment, evaluator = deployment_of(program)
    at_v = deviation_at(deployment, evaluator, v[:, None])
    everywhere = deployment.for_every(Fraction(float(np.linalg.norm(v)) * (1 + 1e-12)), evaluator)
    inputs = around(program.name, v, eps, rng, 8)
    *_, logits, last = exact(program, inputs)
    classes, count = len(program.weights[-1]), inputs.shape[1]
    tally.points += count
    columns = np.arange(count)
    for found in (at_v, everywhere):
        if not eps <= found.most[0]:
            continue
        own, shared = found.own[:, :1] + found.own_slope[:, None] * eps, found.shared[:1] + found.shared_slope * eps
        pairs = [deployment.errors_at(found, eps, np.full(1, j))[:, :1] for j in range(classes)]
        for order in orders(program.name, seed, 2).values():
            tally.runs += count
            hidden, computed = program.run(inputs, order)
            if not (np.isfinite(hidden.astype(float)).all() and np.isfinite(computed.astype(float)).all()):
                tally.wrong += 1
                continue
            off, places = difference(hidden, last)
            limits, more = integers(shared)  # squared as integers: as floats a square might vanish
            if (((off * off).sum(axis=0) << (2 * more)) > (limits * limits << (2 * places))).any():
                tally.wrong += 1
            off, places = difference(computed, logits)
            for j in range(classes):
                if exceeds(off - off[j, columns][None], places, np.repeat(pairs[j], count, axis=1)):
                    tally.wrong += 1
            # The last layer alone, at the inputs that it really got.
            alone = replace(program, weights=program.weights[-1:], biases=program.biases[-1:])
            off, places = difference(computed, exact(alone, hidden.astype(np.float64))[0])
            if exceeds(off, places, np.repeat(own, count, axis=1)):
                tally.wrong += 1


def by_the_book(program: Program, deployment: Deployment, v: Array, eps: float) -> tuple[float, Array]:
    """D of the last layer's inputs and the errors of single logits, as the module's docstring says, in plain floats."""
    form, deviation, size, reach = get_format(program.name), 0.0, np.abs(v), 1.0
    for index, (w, b) in enumerate(zip(program.weights, program.biases, strict=True)):
        n, m = w.shape[1], len(w)
        kappa = float((1 + form.unit) ** (n + 1) - 1)
        underflow = n * float(form.tiny) / 2 * (1 + kappa)
        rows = np.abs(w) @ size + (0 if b is None else np.abs(b))
        away = reach * eps + deviation
        if index == len(program.weights) - 1:
            return deviation, kappa * (rows + np.linalg.norm(w, axis=1) * away) + underflow
        local = kappa * (np.linalg.norm(rows) + np.linalg.norm(np.abs(w), 2) * away) + np.sqrt(m) * underflow
        deviation = float(np.linalg.norm(w, 2) * deviation + local)
        reach = deployment._reach[index]
        v = np.maximum(w @ v + (0 if b is None else b), 0.0)
        size = v
    raise ValueError("a network without layers")


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "float64"])
def test_errors_are_those_of_the_book(name: str) -> None:
    """No term is left out, none is counted twice: also those that only matter where a format is coarse."""
    for seed in range(12):
        rng = np.random.default_rng([seed, 9])
        sides = (30, 12, 9, 3)
        weights = [rounded(name, rng.standard_normal((m, n)) / math.sqrt(n)) for n, m in itertools.pairwise(sides)]
        biases = [rounded(name, rng.standard_normal(len(w))) for w in weights]
        program = Program(name, tuple(weights), tuple(biases))
        deployment, evaluator = deployment_of(program)
        v = rounded(name, rng.standard_normal(30))
        found = deviation_at(deployment, evaluator, v[:, None])
        for eps in (0.0, 0.25):
            shared, own = by_the_book(program, deployment, v, eps)
            mine = found.shared[0] + found.shared_slope * eps
            assert shared * (1 - 1e-9) <= mine <= shared * (1 + 1e-2)  # sqrt(m) is taken as a whole number
            mine = found.own[:, 0] + found.own_slope * eps
            assert (own * (1 - 1e-9) <= mine).all()
            assert (mine <= own * (1 + 1e-2)).all()


def test_given_logits_pay_for_the_errors_at_the_input_too() -> None:
    """They may be the program's own: then N(v) is as far from them as the program can be from N at v."""
    rng = np.random.default_rng(4)
    weights = tuple(rounded("float16", rng.standard_normal(shape) / 4) for shape in ((8, 20), (3, 8)))
    deployment, evaluator = deployment_of(Program("float16", weights, (None, None)))
    found = deployment.for_every(Fraction(2), evaluator)
    logits, margins, winners = np.array([[40.0], [3.0], [1.0]]), np.ones((3, 3)), np.zeros(1, dtype=np.intp)
    once, twice = (deployment.radii(found, logits, logits, winners, margins, twice=flag)[0] for flag in (False, True))
    errors = deployment.errors_at(found, 0.0, winners)[1:, 0]
    leads = logits[0, 0] - logits[1:, 0]
    slopes = (leads - errors) / once
    assert 0 < twice <= np.max((leads - 2 * errors) / slopes.min()) * (1 + 1e-9)
    assert twice < once


def deviations(name: str, seeds: range) -> Tally:
    """The search, on random networks and on saturating ones."""
    tally = Tally()
    for seed in seeds:
        rng = np.random.default_rng([seed, 6])
        program = random_program(name, seed)
        v = rounded(name, rng.standard_normal(program.weights[0].shape[1]) * rng.choice([0.05, 1.0, 4.0]))
        for eps in (0.0, float(rng.choice([1e-3, 0.1, 2.0]))):
            check_deviation(program, v, eps, tally, seed)
    for inputs in (4, 8, 30, 60):
        program, v = saturating(name, inputs, 3)
        check_deviation(program, v[:, 0], 0.0, tally, inputs)
        program, v = vanishing(name, inputs)
        check_deviation(program, v[:, 0], 0.0, tally, inputs)
    return tally


SEEDS = {"float32": range(42), "float16": range(42), "bfloat16": range(100, 130), "float64": range(200, 224)}


@pytest.mark.parametrize("name", TYPES)
def test_the_program_is_never_further_from_the_reals_than_claimed(name: str) -> None:
    tally = deviations(name, SEEDS[name])
    assert tally.wrong == 0, tally
    assert tally.runs > 10_000, tally


def with_constants(monkeypatch: pytest.MonkeyPatch, change: Callable[[Any], Any]) -> None:
    """Every layer's constants, changed."""
    of = module._Constants.of
    monkeypatch.setattr(module._Constants, "of", staticmethod(lambda *args: change(of(*args))))


@pytest.mark.parametrize("name", TYPES)
def test_half_the_bound_is_caught(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The very same search, with half of κ: the bound is not twice what it needs to be."""
    with_constants(monkeypatch, lambda found: replace(found, kappa=found.kappa / 2))
    assert deviations(name, range(0)).wrong > 0


@pytest.mark.parametrize("name", TYPES)
def test_errors_of_hidden_layers_are_looked_at(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Deployment.deviation

    def without(self: Deployment, extent: Any) -> Deviation:
        found = whole(self, extent)
        return replace(found, shared=0 * found.shared, shared_slope=0.0)

    monkeypatch.setattr(Deployment, "deviation", without)
    assert deviations(name, SEEDS[name][:6]).wrong > 0


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
def test_underflow_is_looked_at(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """(That of float64 is below what float64 arithmetic is enlarged by.)"""
    with_constants(monkeypatch, lambda found: replace(found, underflow=found.underflow * 0.9))
    assert deviations(name, range(0)).wrong > 0


# -- flips -----------------------------------------------------------------------------------------------------------


def near_boundaries(program: Program, rng: np.random.Generator, count: int) -> Array:
    """Points of the format, one per column, from well inside a class to within a rounding of its boundary."""
    n = program.weights[0].shape[1]
    tries = rng.standard_normal((n, 40)) * rng.choice([0.3, 1.0, 3.0])
    winners = np.argmax(program.near(tries), axis=0)
    others = np.flatnonzero(winners != winners[0])
    if not len(others):
        return rounded(program.name, tries[:, :1])
    inside, outside = tries[:, 0], tries[:, others[0]]
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        same = np.argmax(program.near((inside + middle * (outside - inside))[:, None])[:, 0]) == winners[0]
        low, high = (middle, high) if same else (low, middle)
    edge = inside + low * (outside - inside)
    bits = -math.log2(UNITS[program.name])
    parts = np.exp2(-rng.uniform(0, bits + 3, count))
    return rounded(program.name, edge[:, None] + (inside - edge)[:, None] * parts * rng.choice([1.0, -1.0], count))


def search(program: Program, v: Array, winner: int, eps: float, tally: Tally, seed: int) -> None:
    """Runs the program around a certified point, in all orders: does another class win, or tie?"""
    rng = np.random.default_rng([seed, 8])
    logits = program.near(v[:, None])[:, 0]
    rival = int(np.argmax(np.where(np.arange(len(logits)) == winner, -np.inf, logits)))
    jacobian = program.slopes(v)
    inputs = around(program.name, v, eps, rng, 16, jacobian[rival] - jacobian[winner])
    tally.points += inputs.shape[1]
    for order in orders(program.name, seed).values():
        tally.runs += inputs.shape[1]
        computed = program.run(inputs, order)[1].astype(np.float64)
        others = np.delete(computed, winner, axis=0).max(axis=0)
        if not (computed[winner] > others).all():  # a NaN is not above, either
            tally.wrong += 1


def flips_from_inputs(name: str, seeds: range, local: bool = False) -> Tally:
    """Points near boundaries, certified at the largest radius that is claimed for them; or locally, beyond that."""
    tally = Tally()
    for seed in seeds:
        rng = np.random.default_rng([seed, 9])
        program = random_program(name, seed)
        network = program.network()
        points = near_boundaries(program, rng, 10)
        options: dict[str, Any] = {"deployed": name, "bounds": compute_bounds(network, "float64")}
        found = certify_inputs(network, points.T, 0, local=False, **options)
        radii = [verdict.radius * (1 if not local else rng.choice([1.02, 1.1, 1.5])) for verdict in found]
        at_radius = certify_inputs(network, points.T, radii, local=local, **options)
        for index, (verdict, eps) in enumerate(zip(at_radius, radii, strict=True)):
            if not local and found[index].radius > 0:
                assert verdict.certified, "a radius that is claimed is certified"
            if not verdict.certified or (local and not verdict.locally):
                continue
            tally.certified += 1
            search(program, points[:, index], verdict.argmax, eps, tally, seed)
    for lead in range(1, 70) if not local else ():
        program, v = saturating(name, 30, lead)
        [verdict] = certify_inputs(program.network(), v.T, 0, local=False, deployed=name)
        if verdict.certified:
            tally.certified += 1
            search(program, v[:, 0], verdict.argmax, verdict.radius, tally, lead)
    return tally


def flips_from_logits(name: str, seeds: range) -> Tally:
    """The same, if only the program's own logits are known, from any order, and the norm of the input."""
    tally = Tally()
    for seed in seeds:
        rng = np.random.default_rng([seed, 10])
        program = random_program(name, seed)
        points = near_boundaries(program, rng, 8)
        runs = list(orders(name, seed).values())
        logits = np.array([program.run(points[:, [k]], runs[k % len(runs)])[1][:, 0] for k in range(points.shape[1])])
        logits = logits.astype(np.float64)
        if not np.isfinite(logits).all():
            continue
        for index in range(points.shape[1]):
            norm = Fraction(float(np.linalg.norm(points[:, index])) * (1 + 1e-12))
            [found] = certify_deployed(program.network(), logits[index], 0, deployed=name, input_norm=norm)
            if found.certified:
                tally.certified += 1
                search(program, points[:, index], found.argmax, found.radius, tally, seed)
    return tally


FLIP_SEEDS = {"float32": range(60), "float16": range(300, 360), "bfloat16": range(610, 630), "float64": range(700, 715)}


def without_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a certifier over the reals takes for certain."""
    whole = Deployment.deviation

    def nothing(self: Deployment, extent: Any) -> Deviation:
        found = whole(self, extent)
        return Deviation(0 * found.own, 0 * found.own_slope, 0 * found.shared, 0.0, found.most)

    monkeypatch.setattr(Deployment, "deviation", nothing)


@pytest.mark.parametrize("name", TYPES)
def test_what_is_certified_from_inputs_never_flips(name: str) -> None:
    tally = flips_from_inputs(name, FLIP_SEEDS[name])
    assert tally.wrong == 0, tally
    assert tally.certified > 30, tally


@pytest.mark.parametrize("name", TYPES)
def test_what_is_certified_from_logits_never_flips(name: str) -> None:
    tally = flips_from_logits(name, FLIP_SEEDS[name][: 30 if name == "float32" else 60])
    assert tally.wrong == 0, tally
    assert tally.certified >= 5, tally


@pytest.mark.parametrize("name", ["float32", "float16"])
def test_what_is_certified_locally_never_flips(name: str) -> None:
    tally = flips_from_inputs(name, FLIP_SEEDS[name], local=True)
    assert tally.wrong == 0, tally
    assert tally.certified > 10, tally


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("find", [flips_from_inputs, flips_from_logits])
def test_without_the_error_terms_flips_are_found(
    name: str, find: Callable[[str, range], Tally], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same searches find what there is to be found."""
    without_errors(monkeypatch)
    assert find(name, FLIP_SEEDS[name][:12]).wrong > 0


@pytest.mark.parametrize("name", ["float32", "float16"])
def test_without_the_error_terms_local_flips_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    without_errors(monkeypatch)
    assert flips_from_inputs(name, FLIP_SEEDS[name][:20], local=True).wrong > 0


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
def test_with_half_of_kappa_flips_are_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """(In float64 the enclosure of the logits has an error of the same size, and hides it.)"""
    with_constants(monkeypatch, lambda found: replace(found, kappa=found.kappa / 2))
    assert flips_from_inputs(name, range(0)).wrong > 0


# -- overflow and underflow ------------------------------------------------------------------------------------------


def verdict_of(network: Network, x: Any, eps: Any, name: str, **options: Any) -> Any:
    inputs = np.atleast_2d(np.array(x, dtype=float))
    [found] = certify_inputs(network, inputs, eps, deployed=name, scale=1, **options)
    return found


@pytest.mark.parametrize(("name", "large"), [("float16", 6e4), ("float32", 3e38), ("bfloat16", 3e38)])
def test_a_partial_sum_that_overflows_in_one_order_only(name: str, large: float) -> None:
    """The exact sum is small, and one term after another is fine in the order + - + -, but not in + + - -."""
    w = rounded(name, np.array([[large, large, -large, -large], [0, 0, 0, 0]]))
    program = Program(name, (w,), (np.array([1.0, 0.0]),))
    v = np.ones((4, 1))
    runs = [
        program.run(v, one_after_another(lambda _, order=order: order, -1))[1] for order in ([0, 2, 1, 3], range(4))
    ]
    finite = [bool(np.isfinite(computed.astype(float)).all()) for computed in runs]
    assert finite == [True, False]
    assert verdict_of(program.network(), v.T, 0, "real").certified
    found = verdict_of(program.network(), v.T, 0, name)
    assert (found.certified, found.radius) == (False, 0.0)
    less = replace(program, weights=(rounded(name, w / 5),), biases=(rounded(name, [large / 16, 0.0]),))
    assert verdict_of(less.network(), v.T, 0, name).certified, "and not because of its size alone"


@pytest.mark.parametrize("local", [False, True])
def test_a_hidden_value_that_overflows_somewhere_in_the_ball(local: bool) -> None:
    """2·u is beyond float16 from 32752 on: at 30000 nothing is certified from about 2720 on."""
    program = Program("float16", (np.array([[2.0]]), rounded("float16", [[0.001], [-0.001]])), (None, None))
    network = program.network()
    assert verdict_of(network, 30000, 20000, "real").certified
    assert verdict_of(network, 30000, 2700, "float16", local=local).certified
    assert not verdict_of(network, 30000, 2800, "float16", local=local).certified
    assert verdict_of(network, 30000, 0, "float16").radius < 2752
    computed = program.run(np.array([[30000.0, 32700.0, 32768.0]]), matmul)[1].astype(float)
    assert np.isfinite(computed).tolist() == [[True, True, False]] * 2


@pytest.mark.parametrize("local", [False, True])
@pytest.mark.parametrize("slope", [100, -100])
def test_an_activation_that_overflows(local: bool, slope: int) -> None:
    """leaky_relu with a slope beyond 1 can leave the format although its argument and the next sums do not."""
    program = Program(
        "float16", (np.eye(1), rounded("float16", [[0.001], [-0.001]])), (None, None), f"leaky_relu:{slope}"
    )
    v = np.array([[-1000.0]])
    assert not np.isfinite(program.run(v, matmul)[1].astype(float)).all()
    assert verdict_of(program.network(), v, 1, "real").certified
    assert not verdict_of(program.network(), v, 1, "float16", local=local).certified
    [given] = certify_deployed(program.network(), [-100.0, 100.0], 1, deployed="float16", input_norm=1000)
    assert not given.certified


def test_logits_that_overflow() -> None:
    network = Network.from_arrays([np.array([[65504.0], [-65504.0]])])
    found = verdict_of(network, 0.9, 0, "float16")
    assert 0 < found.radius < 0.1
    assert not verdict_of(network, 1.0, 0, "float16").certified
    for norm, certified in ((0.9, True), (1, False), (10**300, False)):
        [given] = certify_deployed(network, [50000.0, -50000.0], 0, deployed="float16", input_norm=norm)
        assert given.certified == certified, norm


def near_overflow(seeds: range) -> Tally:
    """Random networks in float16 at points where hidden values come close to the largest number."""
    tally = Tally()
    for seed in seeds:
        rng = np.random.default_rng([seed, 11])
        plain = random_program("float16", seed)
        if len(plain.weights) < 2:
            continue
        v = rounded("float16", np.abs(rng.standard_normal(plain.weights[0].shape[1])) + 0.1)
        first, second, *rest = plain.weights
        first = np.abs(first) + 0.01
        factor = 65504 / float((first @ v).max()) * rng.choice([0.3, 0.7, 0.9, 0.97, 1.01])
        first, second = (rounded("float16", np.minimum(w, 65504)) for w in (first * factor, second / factor))
        biases = (None, *plain.biases[1:])
        program = replace(plain, weights=(first, second, *rest), biases=biases)
        found = verdict_of(program.network(), v, 0, "float16", local=False)
        if found.certified:
            tally.certified += 1
            search(program, v, found.argmax, found.radius, tally, seed)
    return tally


def test_what_is_certified_never_overflows(monkeypatch: pytest.MonkeyPatch) -> None:
    tally = near_overflow(range(80))
    assert tally.wrong == 0, tally
    assert tally.certified > 10, tally
    radii = Deployment.radii

    def unlimited(self: Deployment, found: Deviation, *rest: Any, **options: Any) -> Any:
        return radii(self, replace(found, most=np.full_like(found.most, 1e300)), *rest, **options)

    monkeypatch.setattr(Deployment, "radii", unlimited)
    assert near_overflow(range(80)).wrong > 0, "the search does not see overflows"


def test_products_that_vanish_in_float16() -> None:
    """Weights of 2^-20 and 2^-22 times inputs of 2^-4: the products are 2^-24 and, in the middle of 0 and that, 0.

    The exact logits 2^-24·n against 2^-25·(2n - 1) differ by 2^-25; the program has n against 0 or what order gives.
    """
    for n in (1, 8, 40):
        w = np.array([[2.0**-20] * n, [2.0**-21] * n, [3 * 2.0**-21] * n])
        program = Program("float16", (w,), (None,))
        v = np.full((n, 1), 2.0**-4)
        logits = program.run(v, pairwise)[1][:, 0].astype(float)
        assert logits.tolist() == [n * 2.0**-24, 0.0, 2 * n * 2.0**-24], "the middles go to even neighbours"
        assert verdict_of(program.network(), v.T, 0, "real").certified
        found = verdict_of(program.network(), v.T, 0, "float16")
        assert not found.certified, "errors of n·η/2 in each of two classes, and a lead of n·η/2"
    # Ten times the input, ten times the lead, and the same errors.
    assert verdict_of(program.network(), 16 * v.T, 0, "float16").certified


def test_the_smallest_weights() -> None:
    """±η·u rounds to ±η for 1/2 < u < 3/2, and to 0 at 1/2, where both logits are equal."""
    for name in ("float32", "float16", "bfloat16"):
        eta = float(get_format(name).tiny)
        found = verdict_of(Network.from_arrays([np.array([[eta], [-eta]])]), 1.0, 0, name)
        assert 0.4 < found.radius < 0.5, name


def tiny_in_float64(seed: int) -> tuple[Program, Array, list[Array]]:
    """Weights whose squares vanish in float64, at an input where the order of summation decides."""
    rng = np.random.default_rng(seed)
    while True:
        w = rng.standard_normal((2, 60)) * 2.0**-600
        d = np.ldexp(w[0] - w[1], 600)
        v = rng.standard_normal(60)
        v -= d * (d @ v) / (d @ d)
        program = Program("float64", (w,), (None,))
        runs = [program.run(v[:, None], order)[1][:, 0] for order in orders("float64", seed).values()]
        leads = [y[0] - y[1] for y in runs]
        if min(leads) < 0 < max(leads):
            return program, v, runs


def test_weights_whose_squares_vanish() -> None:
    for seed in range(5):
        program, v, runs = tiny_in_float64(seed)
        norm = float(np.linalg.norm(v)) * (1 + 1e-12)
        for logits in runs:
            [given] = certify_deployed(program.network(), logits, 0, deployed="float64", input_norm=norm)
            assert not given.certified, "another order gives the other class"
        assert not verdict_of(program.network(), v, 0, "float64").certified


def test_bounds_hold_for_numbers_of_extreme_sizes() -> None:
    """The deviations of float64 programs whose layers are tiny or huge, and cancel each other out."""
    tally = Tally()
    for seed, power in ((1, 560), (2, -560), (4, 300), (5, -300)):
        rng = np.random.default_rng(seed)
        first, last = rng.standard_normal((3, 40)), rng.standard_normal((3, 3))
        program = Program("float64", (np.ldexp(first, power), np.ldexp(last, -power)), (None, None))
        with np.errstate(all="ignore"):
            check_deviation(program, rng.standard_normal(40), 0.0, tally, seed)
    assert tally.wrong == 0, tally


# -- what else could go wrong ----------------------------------------------------------------------------------------


def test_huge_and_zero_radii() -> None:
    network = Network.from_arrays([np.eye(2), np.eye(2)])
    for name in TYPES:
        for eps in (0, "0", 0.0, "1e-300"):
            assert verdict_of(network, [1.0, 0.5], eps, name).certified
        for eps in (1, 10**5, "1e300", "1e400", 1e308):
            assert not verdict_of(network, [1.0, 0.5], eps, name).certified
        for eps in (-1, "-1e-9", float("nan"), float("inf"), "nan"):
            with pytest.raises(InputError):
                verdict_of(network, [1.0, 0.5], eps, name)


def test_ties_are_never_certified() -> None:
    for name in TYPES:
        for network in (
            Network.from_arrays([np.ones((2, 2))]),
            Network.from_arrays([np.zeros((2, 2))]),
            Network.from_arrays([np.zeros((3, 2))], [[1.0, 1.0, 0.0]]),
            Network.from_arrays([np.eye(2), np.zeros((2, 2))]),
        ):
            found = verdict_of(network, [1.0, 0.5], 0, name)
            assert (found.certified, found.radius) == (False, 0.0)
            logits = np.ones(network.outputs)
            [given] = certify_deployed(network, logits, 0, deployed=name, input_norm=0)
            assert not given.certified


def test_zero_layers() -> None:
    """Nothing reaches the logits but the biases: they are certified if they differ by more than a rounding."""
    for layers, biases in (
        ([np.zeros((2, 2))], [[3.0, 1.0]]),
        ([np.zeros((2, 2)), np.eye(2)], [[1.0, 2.0], [3.0, 0.0]]),
        ([np.eye(2), np.zeros((2, 2))], [[1.0, 2.0], [3.0, 0.0]]),
    ):
        network = Network.from_arrays(layers, biases)
        for name in TYPES:
            assert verdict_of(network, [1.0, 0.5], 0.5, name).certified
    near = Network.from_arrays([np.zeros((2, 2))], [[1.0, 1 - 2.0**-24]])
    assert not verdict_of(near, [1.0, 0.5], 0, "float32").certified


def test_large_biases_cost_what_they_should() -> None:
    """A lead of 0.01 beside biases of 10^6 means nothing in float32, whose numbers are 0.06 apart there."""
    network = Network.from_arrays([np.eye(2)], [[1e6, 1e6]])
    x = [0.02, 0.01]
    assert verdict_of(network, x, "0.001", "real").certified
    assert verdict_of(network, x, "0.001", "float64").certified
    assert not verdict_of(network, x, 0, "float32").certified
    assert verdict_of(network, [2.0, 0.0], "0.1", "float32").certified


def test_in_a_format_too_coarse_nothing_is_certified() -> None:
    wide = np.concatenate([np.ones((1, 256)), -np.ones((1, 256))])
    for name, layers in (
        ("bfloat16", [wide]),
        ("bfloat16", [np.ones((256, 1)), wide]),
        ("float16", [np.tile(wide, (1, 8))]),
    ):
        network = Network.from_arrays(layers)
        index, width = len(layers) - 1, layers[-1].shape[1]
        says = too_coarse(network, get_format(name))
        assert says is not None
        assert re.match(rf"layer {index} has {width} inputs: {name}.*too coarse", says)
        assert not verdict_of(network, np.ones(network.inputs), 0, name).certified
        given = certify_deployed(network, np.array([[1e6, 0.0]]), 0, deployed=name, input_norm=1)
        assert not given.certified.any()
    verdict_of(Network.from_arrays([wide[:, 1:]]), np.ones(255), 0, "bfloat16")


def test_inputs_beyond_the_format_are_refused() -> None:
    """The program could not even read them."""
    network = Network.from_arrays([np.array([[1e-3], [-1e-3]])])
    for name, x in (("float16", 1e6), ("float16", -70000.0), ("float32", 1e39), ("bfloat16", -1e39)):
        with pytest.raises(InputError, match=f"beyond {name}"):
            verdict_of(network, x, 0, name)
    for name, x in (("float16", 65504.0), ("float32", 3.4e38), ("bfloat16", -3.38e38)):
        assert verdict_of(network, x, 0, name).certified


def test_bounds_of_unrounded_weights_are_refused() -> None:
    """The norms and margins are those of other weights; as float64 they are what they are."""
    network = Network.from_arrays([np.array([[0.1], [-0.1]])])
    bounds = compute_bounds(network)
    with pytest.raises(InputError, match="not float32 numbers"):
        verdict_of(network, 1, 0, "float32", bounds=bounds)
    with pytest.raises(InputError, match="not float32 numbers"):
        certify_deployed(network, [0.1, -0.1], 0, deployed="float32", input_norm=1, bounds=bounds)
    assert verdict_of(network, 1, 0, "float64", bounds=bounds).certified
    single = Network.from_arrays([np.array([[0.1], [-0.1]], dtype=np.float32)])
    assert verdict_of(single, 1, 0, "float32", bounds=compute_bounds(single)).certified
    with pytest.raises(InputError):
        verdict_of(single, 1, 0, "float32", bounds=bounds)


def test_bounds_of_an_unrounded_slope_are_refused() -> None:
    """1.005 is 1.0078125 in bfloat16: margins by the former do not hold for the latter."""
    network = Network.from_arrays([np.eye(1), np.array([[1.0], [-1.0]])], between="leaky_relu:1.005")
    with pytest.raises(InputError, match="bfloat16"):
        verdict_of(network, -1, 0, "bfloat16", bounds=compute_bounds(network))
    same = Network.from_arrays([np.eye(1), np.array([[1.0], [-1.0]])], between="leaky_relu:0.25")
    assert verdict_of(same, -1, 0, "bfloat16", bounds=compute_bounds(same)).certified


@pytest.mark.parametrize("between", ["tanh", "sigmoid", "elu:1", "group_sort", "min_max"])
def test_activations_of_unknown_rounding_are_refused(between: str) -> None:
    network = Network.from_arrays([np.eye(2), np.eye(2)], between=between)
    with pytest.raises(InputError, match="layer 0"):
        verdict_of(network, [1, 0], 0, "float32")
    with pytest.raises(InputError, match="layer 0"):
        certify_deployed(network, [1.0, 0.0], 0, deployed="float32", input_norm=1)


# -- given logits ----------------------------------------------------------------------------------------------------


def test_a_larger_norm_certifies_less() -> None:
    rng = np.random.default_rng(0)
    weights = tuple(rounded("float32", rng.standard_normal(shape)) for shape in ((6, 5), (3, 6)))
    program = Program("float32", weights, (None, None))
    logits = rng.standard_normal((200, 3)) * 1e-3
    counts, before = [], np.ones(200, dtype=bool)
    for norm in ("1e-3", 1, 10, 100, "1e4", "1e30", "1e60"):
        found = certify_deployed(program.network(), logits, 0, deployed="float32", input_norm=norm)
        assert not (found.certified & ~before).any()
        before = found.certified
        counts.append(int(found.certified.sum()))
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > counts[3] > counts[-1] == 0


def test_logits_alone_prove_no_more_than_inputs() -> None:
    for seed in range(12):
        program = random_program("float32", seed)
        points = near_boundaries(program, np.random.default_rng(seed), 20)
        logits = program.run(points, matmul)[1].T.astype(np.float64)
        norm = Fraction(float(np.linalg.norm(points, axis=0).max()) * (1 + 1e-12))
        given = certify_deployed(program.network(), logits, 0, deployed="float32", input_norm=norm)
        known = certify_inputs(program.network(), points.T, 0, deployed="float32", local=False)
        for one, other in zip(given, known, strict=True):
            assert not one.certified or other.certified
            assert not one.certified or one.argmax == other.argmax


def test_norms_that_are_none() -> None:
    network = Network.from_arrays([np.eye(2)])
    for norm in (-1, "-1e-9", float("nan"), float("inf"), "x", None, True):
        with pytest.raises(InputError):
            certify_deployed(network, [1.0, 0.0], 0, deployed="float32", input_norm=norm)  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        certify_deployed(network, [1.0, 0.0], 0, deployed="real", input_norm=1)
    with pytest.raises(UsageError):
        certify_deployed(network, [1.0, 0.0], 0, deployed="float8", input_norm=1)
    for logits in ([1.0, float("nan")], [1.0, 2.0, 3.0], np.array([[np.inf, 0.0]])):
        with pytest.raises(InputError):
            certify_deployed(network, logits, 0, deployed="float32", input_norm=1)


def test_logits_of_all_kinds_are_read_alike() -> None:
    """Arrays of floats, of integers, lists of texts: the verdict is the same, the radius up to a rounding."""
    network = Network.from_arrays([np.eye(3)])
    kinds: list[Any] = [
        np.array([[3.0, 1.0, -2.0]]),
        np.array([[3, 1, -2]]),
        [["3", "1.0", "-2"]],
        [[3, Fraction(1), -2.0]],
        np.array([[3.0, 1.0, -2.0]], dtype=np.float16),
        np.array([[3.0, 1.0, -2.0]], dtype=ml_dtypes.bfloat16),
    ]
    for values in kinds:
        [found] = certify_deployed(network, values, "0.5", deployed="float32", input_norm=4)
        assert (found.certified, found.argmax) == (True, 0)
        assert found.radius == pytest.approx(math.sqrt(2), rel=1e-5)
        assert found.radius < math.sqrt(2)


# -- the published counterexamples -----------------------------------------------------------------------------------

needs_paper = pytest.mark.skipif(
    not PAPER.is_dir(), reason="the source paper's files (shared/paper) are not beside this repository"
)
SETS = {"mnist": 120, "mnist_biased": 39}


@cache
def published(name: str) -> tuple[Network, Bounds, list[dict[str, Any]], Array]:
    """The model in float32, its bounds, the cases, and their inputs x1."""
    biases = PAPER / "mnist_biases_1e6_end.txt" if name == "mnist_biased" else None
    network = as_deployed(load_model(PAPER / "mnist_8x128.txt", biases), get_format("float32"))
    cases = json.loads((PAPER / f"{name}_float32_counterexamples.json").read_text())
    with np.load(PAPER / f"{name}_float32_counterexamples.npz") as arrays:
        return network, compute_bounds(network, "float64"), cases, arrays["x1"]


@needs_paper
@pytest.mark.parametrize("name", SETS)
def test_no_published_counterexample_is_certified_from_its_input(name: str) -> None:
    network, bounds, cases, inputs = published(name)
    assert len(cases) == len(inputs) == SETS[name]
    eps = [case["max_eps"] for case in cases]
    for local in (False, True):
        found = certify_inputs(network, inputs, eps, deployed="float32", bounds=bounds, local=local)
        assert int(found.certified.sum()) == 0


@needs_paper
@pytest.mark.parametrize("name", SETS)
def test_no_published_counterexample_is_certified_from_its_logits(name: str) -> None:
    """Over the reals all are: that is what is published."""
    network, bounds, cases, inputs = published(name)
    eps, logits = [case["max_eps"] for case in cases], np.array([case["y1"] for case in cases])
    norm = Fraction(float(np.linalg.norm(inputs, axis=1).max()))
    found = certify_deployed(network, logits, eps, deployed="float32", input_norm=norm, bounds=bounds)
    assert int(found.certified.sum()) == 0
    assert int(certify(bounds, logits, eps).certified.sum()) == SETS[name]


@needs_paper
def test_the_published_two_logits() -> None:
    network = load_model(PAPER / "two_logit_network.txt")
    [case] = json.loads((PAPER / "two_logit_counterexample.json").read_text())
    x, y, eps = np.array([case["x1"]]), np.array([case["y1"]]), case["max_eps"]
    assert not certify_inputs(network, x, eps, deployed="float32")[0].certified
    assert not certify_deployed(network, y, eps, deployed="float32", input_norm=abs(case["x1"][0]))[0].certified
    # Two weights one step apart: from the input's own norm on, float32 says nothing at all.
    assert not certify_inputs(network, x, 0, deployed="float32")[0].certified
    assert certify_inputs(network, x, "0.19", deployed="real")[0].certified


@needs_paper
@pytest.mark.skipif(
    not IMAGES.is_file(), reason="the MNIST digits (shared/data/mnist.npz) are not beside this repository"
)
@pytest.mark.parametrize(("margins", "least"), [("product", 9_560), ("best", 9_580)])
def test_the_digits_of_the_test_set_in_float32(margins: Any, least: int) -> None:
    network, *_ = published("mnist")
    with np.load(IMAGES) as data:
        images = data["x_test"].reshape(10_000, 784).astype(np.float32) / np.float32(255)
    bounds = compute_bounds(network, "float64", margins=margins)
    found = certify_inputs(network, images, "0.3", deployed="float32", bounds=bounds, local=False)
    reals = certify_inputs(network, images, "0.3", bounds=bounds, local=False)
    assert int(found.certified.sum()) >= least
    assert not (found.certified & ~reals.certified).any()
    assert int(reals.certified.sum()) > int(found.certified.sum())
