"""A round of the hunt: points of a small program in floats, certified or falsified, and the program itself run.

In formats with few bits, all inputs of the format within eps are tried, each in several orders of summation: no
certified point may be among those that one of them flips. In others many inputs are tried, the most dangerous ones
among them. What falsifies is run once more. The arithmetic is numpy's, or written here, and distances are
compared in rationals. Uses the pipeline of the package itself, and shares nothing with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import inf
from time import process_time
from typing import Any

import numpy as np
import numpy.typing as npt

from compare.hunt_points import BATCH, Found, roots
from compare.regions import PlainNetwork
from intervalcert import Network
from intervalcert.api import verification_job
from intervalcert.proof.decision import Status, Verdict
from intervalcert.verify.branching import Budgets
from intervalcert.verify.jobs import batches_of
from intervalcert.verify.number_table import Epsilons, NumberTable
from intervalcert.verify.points import PointVerifier

__all__ = ["FORMATS", "Program", "programs_round"]

Floats = npt.NDArray[np.float64]
Rng = np.random.Generator


@dataclass(frozen=True)
class Format:
    """bits: of the mantissa; least: the exponent of the smallest normal number. kind: numpy's type, if it has one."""

    name: str
    bits: int
    least: int
    most: int
    kind: Any = None

    def rounded(self, x: Floats) -> Any:
        """Floats as numbers of the format, in its own type. Of what numpy does not have: floats with fewer bits."""
        with np.errstate(over="ignore", under="ignore"):
            if self.kind is not None:
                return x.astype(self.kind)
            drop = 53 - self.bits  # ties to even: half a step less one, and one more if the last bit that stays is odd
            whole = np.ascontiguousarray(x, dtype=np.float64).view(np.int64)
            odd = (whole >> drop) & 1
            near = (((whole + (1 << (drop - 1)) - 1 + odd) >> drop) << drop).view(np.float64)
            small = np.ldexp(1.5, 52 + self.least - self.bits + 1)  # adding it leaves multiples of the smallest number
            found = np.where(np.abs(x) < 2.0**self.least, (x + small) - small, near)
            return np.where(np.abs(found) >= 2.0 ** (self.most + 1), np.copysign(np.inf, found), found)

    def times(self, a: Any, b: Any) -> Any:
        with np.errstate(all="ignore"):
            return a * b if self.kind is not None else self.rounded(a * b)

    def plus(self, a: Any, b: Any) -> Any:
        """Of fewer bits: rounded twice, which is innocuous, since 53 >= 2·bits + 2."""
        with np.errstate(all="ignore"):
            return a + b if self.kind is not None else self.rounded(a + b)

    def between(self, low: float, high: float) -> Floats:
        """All numbers of the format in an interval, but one more on each side."""
        first, last = self._ordinal(low) - 1, self._ordinal(high) + 1
        return self._of_ordinals(np.arange(first, last + 1))

    def count(self, low: float, high: float) -> int:
        return self._ordinal(high) - self._ordinal(low) + 3

    def _ordinal(self, x: float) -> int:
        """Of the number next to it: they are counted from zero on."""
        size, half = abs(float(self.rounded(np.array([x]))[0])), 1 << (self.bits - 1)
        exponent = int(np.frexp(size)[1])
        shift = max(exponent - 1 - self.least, 0) if size else 0
        found = shift * half + int(np.ldexp(size, self.bits - 1 - self.least - shift))
        return found if x >= 0 else -found

    def _of_ordinals(self, ordinals: npt.NDArray[np.int64]) -> Floats:
        size, half = np.abs(ordinals), 1 << (self.bits - 1)
        shift = np.maximum(size // half - 1, 0)
        found: Floats = np.ldexp((size - shift * half).astype(float), shift + self.least - self.bits + 1)
        return np.where(ordinals < 0, -found, found)


FORMATS = {
    made.name: made
    for made in (
        Format("bfloat16", 8, -126, 127),
        Format("float16", 11, -14, 15, np.float16),
        Format("float32", 24, -126, 127, np.float32),
        Format("float64", 53, -1022, 1023, np.float64),
    )
}
SHARES = (0.35, 0.35, 0.2, 0.1)

MOST = 3_000
"""Inputs that are tried for a point; where there are more, some of them."""

Order = Callable[[Format, list[Any]], Any]


def _one_by_one(places: Sequence[int] | None) -> Order:
    """places: the order; None for that in which they are."""

    def order(form: Format, terms: list[Any]) -> Any:
        total, *rest = terms if places is None else [terms[k] for k in places if k < len(terms)]
        for term in rest:
            total = form.plus(total, term)
        return total

    return order


def _pairwise(form: Format, terms: list[Any]) -> Any:
    while len(terms) > 1:
        odd = terms[-1:] if len(terms) % 2 else []
        terms = [form.plus(a, b) for a, b in zip(terms[::2], terms[1::2], strict=False)] + odd
    return terms[0]


SEQUENTIAL = _one_by_one(None)


@dataclass(frozen=True)
class Program:
    """A network whose numbers are of a format, as floats."""

    form: Format
    weights: list[Floats]
    biases: list[Floats | None]
    between: str

    def logits(self, inputs: Floats, order: Order) -> Floats:
        """One column per input; in the format, and given as floats."""
        form, value = self.form, self.form.rounded(inputs)
        for index, (w, b) in enumerate(zip(self.weights, self.biases, strict=True)):
            own = form.rounded(w)
            terms = [form.times(own[:, k, None], value[None, k]) for k in range(w.shape[1])]
            if b is not None:
                terms.append(np.broadcast_to(form.rounded(b)[:, None], terms[0].shape))
            value = order(form, terms)
            if index < len(self.weights) - 1:
                value = self._bent(value)
        return value.astype(np.float64)

    def _bent(self, z: Any) -> Any:
        kind, *words = self.between.split(":")
        if kind == "relu":
            return np.where(z > 0, z, z.dtype.type(0))
        if kind == "leaky_relu":
            slope = self.form.rounded(np.array([float(Fraction(words[0]))]))
            return np.where(z > 0, z, self.form.times(slope, z))
        if kind == "clip":
            low, high = (z.dtype.type(float(word)) for word in words)
            return np.minimum(np.maximum(z, low), high)
        if kind == "group_sort":
            return np.sort(z.reshape(-1, 2, z.shape[1]), axis=1).reshape(z.shape)
        raise ValueError(f"the activation {self.between!r} is none that is known here")


def _orders(rng: Rng) -> list[Order]:
    most = 8
    permuted = [_one_by_one(rng.permutation(most).tolist()) for _ in range(3)]
    return [SEQUENTIAL, _one_by_one(range(most - 1, -1, -1)), _pairwise, *permuted]


# -- what is tried -----------------------------------------------------------------------------------------------------


def _drawn(rng: Rng) -> Program:
    form = FORMATS[str(rng.choice(list(FORMATS), p=SHARES))]
    between = str(rng.choice(("relu", "leaky_relu:1/4", "leaky_relu:-1/2", "clip:-1:1", "group_sort:2:1")))
    hidden = ((3,), (4,), (3, 3), (2, 2))[rng.integers(4)]
    if between.startswith("group_sort"):
        hidden = tuple(2 * ((n + 1) // 2) for n in hidden)
    sizes = (int(rng.integers(1, 3)), *hidden, int(rng.integers(2, 4)))
    reach = 8 if form.name == "float16" else 100
    small = int(rng.integers(-reach, 3)) if rng.random() < 0.3 else 0
    powers = [0, *(0 if between.startswith("clip") else small for _ in hidden), small]
    weights, biases = [], []
    with_biases = rng.random() < 0.8
    for k in range(len(sizes) - 1):
        w = rng.standard_normal((sizes[k + 1], sizes[k])) / np.sqrt(sizes[k])
        if rng.random() < 0.2:
            w = np.rint(w * 4) / 4
        b = rng.standard_normal(len(w)) / 2
        weights.append(form.rounded(np.ldexp(w, powers[k + 1] - powers[k])).astype(np.float64))
        biases.append(form.rounded(np.ldexp(b, powers[k + 1])).astype(np.float64) if with_biases else None)
    return Program(form, weights, biases, between)


def _points(rng: Rng, plain: PlainNetwork, program: Program, count: int) -> Iterator[Floats]:
    """Some steps of the format away from where the winner changes."""
    form, inputs = program.form, program.weights[0].shape[1]
    for _ in range(count):
        low, high = rng.standard_normal((2, inputs))
        winner = plain.winner(_exact(low))
        for _ in range(30):
            middle = (low + high) / 2
            low, high = (middle, high) if plain.winner(_exact(middle)) == winner else (low, middle)
        direction = rng.standard_normal(inputs)
        step = np.abs(low).max() * 2.0 ** (1 - min(form.bits, 40)) * rng.uniform(1, 40)
        x = low + step * direction / np.linalg.norm(direction)
        yield form.rounded(x).astype(np.float64) if rng.random() < 0.7 else x


def _exact(x: Floats) -> list[Fraction]:
    return [Fraction(v) for v in x.tolist()]


def _distance(u: Floats, x: Floats) -> Fraction:
    """Squared."""
    return sum(((a - b) ** 2 for a, b in zip(_exact(u), _exact(x), strict=True)), Fraction(0))


def _inputs(rng: Rng, program: Program, x: Floats, eps: Fraction) -> tuple[Floats, bool]:
    """Inputs of the format within eps, and maybe a hair beyond, one per column; and whether these are all."""
    form, near = program.form, float(eps)
    counts = [form.count(v - near, v + near) for v in x.tolist()]
    if np.prod([float(n) for n in counts]) <= 4 * MOST:
        axes = [form.between(v - near, v + near) for v in x.tolist()]
        every = np.array(list(product(*axes))).T
        return every[:, np.linalg.norm(every - x[:, None], axis=0) <= near * (1 + 1e-9)], True
    centre, reach = x, near
    found = [form.rounded(x).astype(np.float64)[:, None]]
    for _ in range(4):  # where the winner leads by the least, once more
        directions = rng.standard_normal((len(x), MOST // 8))
        apart = centre[:, None] - x[:, None] + reach * directions
        size = np.linalg.norm(apart, axis=0)
        apart *= np.where(size > 0, np.minimum(1, near * (1 - 1e-9) / np.maximum(size, 1e-300)), 1.0)
        found.append(form.rounded(x[:, None] + apart).astype(np.float64))
        logits = np.sort(program.logits(found[-1], SEQUENTIAL), axis=0)
        centre, reach = found[-1][:, int(np.argmin(np.nan_to_num(logits[-1] - logits[-2])))], reach / 8
    return np.concatenate(found, axis=1), False


# -- a round -----------------------------------------------------------------------------------------------------------


def programs_round(number: int, seconds: float = inf) -> Found:
    """All that is drawn depends on the number alone. seconds: of the processor, after which the rest is left out."""
    end = process_time() + seconds
    rng, found = np.random.default_rng([number, 17, 2]), Found()
    program = _drawn(rng)
    name = program.form.name
    plain = PlainNetwork(program.weights, program.biases, program.between)
    record = {"format": name, "between": program.between, "sizes": [w.shape for w in program.weights]}
    asked = []
    for x in _points(rng, plain, program, 6):
        truth = plain.nearest_change(_exact(x), most=Fraction(100))
        low, high = roots(truth) if truth else (Fraction(1, 8), Fraction(1, 8))
        parts = [float(t) for t in rng.choice((0.02, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 0.97), 4, replace=False)]
        asked += [(x, low * Fraction(part)) for part in parts]
        asked += [
            (x, high * Fraction(part)) for part in rng.choice((1, 1.01, 1.1, 1.5, 3.0), 2, replace=False).tolist()
        ]
    budgets = Budgets(int(rng.choice((0, 30))), 0) if rng.random() < 0.8 else None
    local = [None, 5][rng.integers(2)] if budgets is None else 5
    try:
        network = Network.from_arrays(program.weights, program.biases, between=program.between)
        verifier = PointVerifier(verification_job(network, None, local, name, budgets))
        rows, distances = np.array([x for x, _ in asked]), Epsilons.of([eps for _, eps in asked])
        for batch in batches_of(NumberTable(rows), verifier.job.network, Fraction(1), distances, BATCH):
            if process_time() > end:
                break
            part = slice(batch.first, batch.first + len(batch))
            for (x, eps), verdict in zip(asked[part], verifier.verdicts(batch), strict=True):
                how, what = _judged(rng, program, x, eps, verdict)
                place = {"x": x.tolist(), "eps": str(eps), "index": verdict.index}
                found.counted(verdict, f"{name} {verdict.status.value}, {how}", what, record | place)
    except Exception as error:
        found.fails(error, record)
    return found


def _judged(rng: Rng, program: Program, x: Floats, eps: Fraction, verdict: Verdict) -> tuple[str, str]:
    """How it was looked at, and what is wrong about it."""
    if verdict.status is Status.FALSIFIED:
        return "run again", _wrong_counterexample(program, x, eps, verdict)
    if verdict.status is Status.UNKNOWN:
        return "", ""
    inputs, are_all = _inputs(rng, program, x, eps)
    if not inputs.shape[1]:
        return "no input within eps", ""
    what = _flipped(program, inputs, x, eps, verdict.argmax, _orders(rng))
    return "all inputs tried" if are_all else "some inputs tried", what


def _flipped(program: Program, inputs: Floats, x: Floats, eps: Fraction, winner: int, orders: Sequence[Order]) -> str:
    """Whether, at one of the inputs that is truly within eps, that class does not lead all others in one order."""
    for index, order in enumerate(orders):
        logits = program.logits(inputs, order)
        others = np.delete(logits, winner, axis=0)
        for k in np.flatnonzero(~(logits[winner] > others).all(axis=0)).tolist():
            if _distance(inputs[:, k], x) <= eps**2:
                return f"certified, but order {index} flips at {inputs[:, k].tolist()}"
    return ""


def _wrong_counterexample(program: Program, x: Floats, eps: Fraction, verdict: Verdict) -> str:
    shown = verdict.counterexample
    both = np.stack([shown.near, shown.changed], axis=1)
    if (program.form.rounded(both).astype(np.float64) != both).any():
        return "a counterexample that is no input of the format"
    if any(_distance(u, x) > eps**2 for u in both.T):
        return "a counterexample beyond eps"
    here, there = program.logits(both, SEQUENTIAL).T
    if int(np.argmax(here)) != shown.winner or verdict.argmax != shown.winner:
        return "a counterexample of another winner"
    return "" if there[shown.other] >= there[shown.winner] else "a counterexample that changes nothing"
