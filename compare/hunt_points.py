"""A round of the hunt: points of a small random network, decided by the pipeline, compared with the exact answer.

Uses the pipeline of the package itself: one `PointVerifier` for all points of a round, on a drawn number system; in
every other round chains have duals by layers, as large ones do. The truth is that of `regions`. A network that is
multiplied with powers of two, layer by layer, has the same truth but for a power of two: so it is asked at scales up to
the ends of the floats.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from math import inf, isqrt
from time import process_time
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from compare.regions import PlainNetwork, TooManyRegionsError
from intervalcert import Network
from intervalcert.api import verification_job
from intervalcert.backends.registry import precision_ladder
from intervalcert.proof.decision import Status, Verdict
from intervalcert.verify import duals
from intervalcert.verify.branching import Budgets
from intervalcert.verify.jobs import batches_of
from intervalcert.verify.number_table import Epsilons, NumberTable
from intervalcert.verify.points import PointVerifier

__all__ = ["Drawn", "Found", "Wrong", "network_of", "points_round", "random_network", "roots", "wrong_verdict"]

Floats = npt.NDArray[np.float64]
Rng = np.random.Generator

SIZES = ((4,), (6,), (3, 3), (4, 3), (6, 4), (4, 3, 2), (8, 6), (20,), (10, 10))
SHARES = (22, 14, 20, 20, 9, 10, 3, 1, 1)
"""Of hidden layers: most networks are so small that their truth takes next to no time."""

KINDS = ("relu", "leaky_relu:1/4", "leaky_relu:-1/2", "clip:-1:1", "clip:1/2:inf", "group_sort:2:1", "identity")
KIND_SHARES = (40, 12, 10, 14, 8, 12, 4)

STYLES = ("gaussian", "grid", "sparse", "repeated", "wide", "line", "short", "decimal")
"""Of weights: `line` looks in one direction alone, of rational length; `wide` has rows of very different sizes; the
numbers of `decimal` are no floats.
"""

LENGTHS: dict[int, tuple[tuple[int, ...], ...]] = {2: ((3, 4), (5, 12), (1, 0)), 3: ((1, 2, 2), (2, 3, 6), (0, 1, 0))}
LADDERS = ("auto", "arb", "exact", "float64", "mpmath")
LADDER_SHARES = (80, 9, 5, 5, 1)
FEW = 6
"""Neurons up to which the slow number systems are asked."""

BATCH = 16

PATIENCE = 20_000
"""Parts of regions that are looked at for a point: a second. With 20 neurons and nothing near there are millions."""

DEEP = 0.12
"""Of rounds: those that ask so near to the nearest change that duals and splits are needed, which takes long."""

HASTY = 0.8
"""Of the other rounds: those whose points get no time for duals, so that there are many of them."""


@dataclass(frozen=True)
class Drawn:
    """A network at scale one. scales: exponents of the powers of two that the input and what each layer gives are
    multiplied with.
    """

    weights: list[Floats]
    biases: list[Floats | None]
    between: str
    style: str
    scales: tuple[int, ...] = ()

    @property
    def plain(self) -> PlainNetwork:
        return PlainNetwork(self.weights, self.biases, self.between)

    def scaled(self) -> tuple[list[Floats], list[Floats | None]]:
        """The arrays times powers of two: scales[0] of the input, scales[k] of what layer k gives.

        Raises: OverflowError if something is lost.
        """
        weights, biases = [], []
        for index, (w, b) in enumerate(zip(self.weights, self.biases, strict=True)):
            before, after = self.scales[index], self.scales[index + 1]
            weights.append(_exactly(w, after - before))
            biases.append(None if b is None else _exactly(b, after))
        return weights, biases


@dataclass(frozen=True)
class Wrong:
    """A wrong answer, and all that it takes to see it again. about: a verdict, a bracket, or an error in its place."""

    what: str
    record: dict[str, Any]
    about: Literal["verdict", "bracket", "error"] = "verdict"


@dataclass
class Found:
    """What a round found. trials: points that were decided, by the way; open: points that were not, of which faults:
    because floats end there, or by a fault of the program.
    """

    trials: Counter[str] = field(default_factory=Counter)
    open: int = 0
    faults: int = 0
    wrong: list[Wrong] = field(default_factory=list)

    def counted(self, verdict: Verdict, way: str, what: str, record: dict[str, Any]) -> None:
        """One verdict. way: how it was decided, if it was; what: is wrong about it."""
        if what:
            about: Literal["verdict", "bracket"] = "bracket" if what.startswith("a bracket") else "verdict"
            more = {"method": verdict.method, "bracket": str(verdict.bracket)}
            self.wrong.append(Wrong(what, record | more, about))
        if verdict.status is Status.UNKNOWN:
            self.open += 1
            self.faults += bool(verdict.fault)
        else:
            self.trials[way] += 1

    def fails(self, error: Exception, record: dict[str, Any]) -> None:
        """An error in the place of verdicts."""
        self.wrong.append(Wrong(f"{type(error).__name__}: {error}", record, "error"))


# -- networks ----------------------------------------------------------------------------------------------------------


def random_network(rng: Rng) -> Drawn:
    inputs = int(rng.choice((2, 3), p=(0.7, 0.3)))
    hidden = SIZES[rng.choice(len(SIZES), p=np.array(SHARES) / sum(SHARES))]
    between = KINDS[rng.choice(len(KINDS), p=np.array(KIND_SHARES) / sum(KIND_SHARES))]
    if between.startswith("group_sort"):
        hidden = tuple(2 * ((n + 1) // 2) for n in hidden)
    style = str(rng.choice(STYLES))
    sizes = (inputs, *hidden, int(rng.choice((2, 3, 4), p=(0.3, 0.5, 0.2))))
    made = network_of(rng, sizes, between, style)
    return replace(made, scales=_drawn_scales(rng, made))


def network_of(rng: Rng, sizes: Sequence[int], between: str, style: str) -> Drawn:
    """At scale one."""
    weights, biases = [], []
    with_biases = rng.random() < 0.8
    for index in range(len(sizes) - 1):
        w = rng.standard_normal((sizes[index + 1], sizes[index])) / np.sqrt(sizes[index])
        b = rng.standard_normal(len(w)) / 2
        if style in {"grid", "line"}:
            w, b = rng.integers(-8, 9, w.shape) / 4, rng.integers(-8, 9, len(w)) / 8
        elif style == "short":
            w, b = np.rint(w * 32) / 32, np.rint(b * 32) / 32
        elif style == "sparse":
            w = np.where(rng.random(w.shape) < 0.4, 0.0, w)
        elif style == "wide":
            powers = rng.integers(-40, 41, len(w)) if index < len(sizes) - 2 else rng.integers(-8, 1, len(w))
            w, b = np.ldexp(w, powers[:, None]), np.ldexp(b, powers)
        elif style == "decimal":
            w, b = _decimals(w), _decimals(b)
        elif style == "repeated" and len(w) > 1:
            of = rng.integers(0, len(w), len(w) // 2)
            w[rng.permutation(len(w))[: len(of)]] = w[of]
            b = np.rint(b)
        if style == "line" and not index:
            w = np.outer(w[:, 0], LENGTHS[sizes[0]][rng.integers(3)]) / 4
        weights.append(w)
        biases.append(b if with_biases or style == "line" else None)
    return Drawn(weights, biases, between, style, (0,) * (len(sizes)))


def _decimals(x: Floats) -> Any:
    made = np.empty(x.shape, dtype=object)
    made.flat = [Fraction(round(v * 1000), 1000) for v in x.ravel().tolist()]
    return made


def _drawn_scales(rng: Rng, made: Drawn) -> tuple[int, ...]:
    """Powers of two that change nothing but the scale."""
    layers = len(made.weights)
    none = (0,) * (layers + 1)
    if rng.random() < 0.5 or made.style == "decimal":
        return none
    reach = int(rng.choice((3, 30, 300, 1000), p=(0.5, 0.3, 0.12, 0.08)))
    most = reach if rng.random() < 0.2 else 6  # of the input: counterexamples are multiples of 2^-24
    for _ in range(5):
        found = [int(rng.integers(-most, most + 1)), *map(int, rng.integers(-reach, reach + 1, layers))]
        if made.between.startswith("clip"):  # the ends of a clip are not scaled
            found[1:-1] = [0] * (layers - 1)
        try:
            replace(made, scales=tuple(found)).scaled()
        except OverflowError:
            continue
        return tuple(found)
    return none


def _exactly(x: Floats, power: int) -> Floats:
    if not power:
        return x
    with np.errstate(all="ignore"):
        made: Floats = np.ldexp(x, power)
        back = np.ldexp(made, -power)
    if not (np.isfinite(made).all() and (back == x).all()):
        raise OverflowError("beyond the floats")
    return made


# -- points ------------------------------------------------------------------------------------------------------------


def _points(rng: Rng, made: Drawn, count: int) -> list[Floats]:
    """Ordinary ones, ones with few digits, zero, and ones where a neuron is at its kink or nearly so."""
    found = []
    inputs = made.weights[0].shape[1]
    for _ in range(count):
        kind = rng.integers(6)
        x = rng.standard_normal(inputs) * 2.0 ** int(rng.integers(-3, 3))
        if kind <= 1:
            x = np.rint(x * 8) / 8
        elif kind == 2:
            x = np.zeros(inputs)
        elif kind == 3:
            w, b = made.weights[0].astype(np.float64), made.biases[0]
            k = int(rng.integers(len(w)))
            size = float(w[k] @ w[k])
            value = float(w[k] @ x) + (0.0 if b is None else float(b[k]))
            x = x - (value / size if size else 0.0) * w[k]
        found.append(x)
    return found


def roots(square: Fraction, bits: int = 80) -> tuple[Fraction, Fraction]:
    """Rationals next to the root of a positive number: both are the root if it is rational, else one on each side."""
    top, bottom = square.numerator, square.denominator
    if isqrt(top) ** 2 == top and isqrt(bottom) ** 2 == bottom:
        exactly = Fraction(isqrt(top), isqrt(bottom))
        return exactly, exactly
    shift = max(0, bits - (top.bit_length() - bottom.bit_length()) // 2)
    low = isqrt((top << 2 * shift) // bottom)
    return Fraction(low, 1 << shift), Fraction(low + 1, 1 << shift)


def _distances(rng: Rng, truth: Fraction | None, x: Floats, deep: bool) -> list[tuple[str, Fraction]]:
    """Where to ask: at the nearest change itself, where that is rational, a little on each side of it, and far off."""
    size = Fraction(float(np.abs(x).max())) or Fraction(1)
    far = [("zero", Fraction(0)), ("tiny", size / 2**200), ("huge", size * 2**100)]
    if not truth:
        return [far[rng.integers(3)], ("some", size / 8), ("more", size * 2)]
    low, high = roots(truth)
    k, tie = int(rng.integers(1, 13)), [("tie" if low == high else "hair above", high)]
    if not deep:
        parts = [Fraction(float(t)) for t in rng.uniform(0.02, 0.6, 4)]
        found = [("far", low * part) for part in parts] + [far[rng.integers(3)]]
        beyond = [1 + Fraction(1, 10 ** min(k, 4)), *(Fraction(float(t)) for t in rng.uniform(1.01, 4, 4))]
        return found + [("beyond", high * part) for part in beyond] + (tie if rng.random() < 0.1 else [])
    found = [("above", high * (1 + Fraction(1, 10**k))), ("below", low * (1 - Fraction(1, 10**k))), *tie]
    found += [("below", low * Fraction(float(rng.uniform(0.6, 0.97)))), ("above", high * 3)]
    return found + ([("hair below", low * (1 - Fraction(1, 2**60)))] if low < high and rng.random() < 0.5 else [])


# -- a round -----------------------------------------------------------------------------------------------------------


def points_round(number: int, seconds: float = inf) -> Found:
    """All that is drawn depends on the number alone. seconds: of the processor, after which the rest is left out."""
    rng, found = np.random.default_rng([number, 17, 1]), Found()
    deep = rng.random() < DEEP
    made = random_network(rng)
    neurons = sum(len(w) for w in made.weights[:-1])
    ladder = LADDERS[rng.choice(len(LADDERS), p=np.array(LADDER_SHARES) / 100)] if neurons <= FEW else "auto"
    if ladder == "exact" and any(abs(k) > 300 for k in made.scales):
        ladder = "auto"  # rationals of thousands of bits take minutes
    local = [None, 3, 10, 10, 10][rng.integers(5)]
    hasty, budgets = not deep and rng.random() < HASTY, None
    if hasty and rng.random() < 0.9:
        budgets = Budgets(0, 0, 1e-9)
    elif not hasty:
        splits = rng.choice((0, 2, 8, 30), p=(0.84, 0.1, 0.04, 0.02))
        budgets = Budgets(int(rng.choice((0, 16, 48, 200), p=(0.3, 0.4, 0.25, 0.05))), int(splits))
    record = {"network": made.style, "between": made.between, "scales": list(made.scales), "ladder": ladder}
    asked = _asked(rng, made, 2 if deep else 16 if hasty else 8, deep)
    plain, power, end = made.plain, Fraction(2) ** made.scales[0], process_time() + seconds
    try:
        weights, biases = made.scaled()
        network = Network.from_arrays(weights, biases, between=made.between)
        job = verification_job(network, None, local, "real", budgets)
        with _duals_by_layers(number % 2 > 0):
            verifier = PointVerifier(replace(job, ladder=precision_ladder(ladder)))
        rows = np.array([np.ldexp(x, made.scales[0]) for x, *_ in asked])
        distances = Epsilons.of([eps * power for *_, eps in asked])
        for batch in batches_of(NumberTable(rows), job.network, Fraction(1), distances, BATCH):
            if process_time() > end:
                break
            part = slice(batch.first, batch.first + len(batch))
            for (x, truth, way, eps), verdict in zip(asked[part], verifier.verdicts(batch), strict=True):
                what = wrong_verdict(plain, [Fraction(v) for v in x.tolist()], truth, eps, verdict, made.scales[0])
                place = {"x": x.tolist(), "eps": str(eps), "way": way, "truth": str(truth), "index": verdict.index}
                found.counted(verdict, f"{verdict.status.value} by {verdict.method}", what, record | place)
    except Exception as error:
        found.fails(error, record)
    return found


@contextmanager
def _duals_by_layers(wanted: bool) -> Iterator[None]:
    """Looks inside: such small chains have duals of one form, and those of large ones are to be hunted, too."""
    few, duals.FEW = duals.FEW, 0 if wanted else duals.FEW
    try:
        yield
    finally:
        duals.FEW = few


def _asked(rng: Rng, made: Drawn, points: int, deep: bool) -> list[tuple[Floats, Fraction | None, str, Fraction]]:
    """Points, their truth, and an eps, at scale one; all of them exact at their own scale."""
    plain, asked = made.plain, []
    for x in _points(rng, made, points):
        try:
            _exactly(x, made.scales[0])
        except OverflowError:
            continue
        exactly = [Fraction(v) for v in x.tolist()]
        limit = 4 * max((v * v for v in exactly), default=Fraction(1)) + 10**6
        try:  # what is further away takes long, and is asked for nowhere
            truth = plain.nearest_change(exactly, most=limit, patience=PATIENCE)
        except TooManyRegionsError:
            continue
        for way, eps in _distances(rng, truth, x, deep):
            if truth is not None or eps**2 <= limit:
                asked.append((x, truth, way, eps))
    return asked


def wrong_verdict(
    plain: PlainNetwork, x: Sequence[Fraction], truth: Fraction | None, eps: Fraction, verdict: Verdict, power: int = 0
) -> str:
    """What is wrong about a verdict; empty if nothing is.

    truth: the squared distance of the nearest change; None if there is none as near as eps. power: of two, by which the
    inputs that the verdict is about are larger.
    """
    within = truth is not None and truth <= eps**2
    scale = Fraction(2) ** power
    if verdict.status is Status.CERTIFIED and within:
        return "certified, but there is another winner within eps"
    if verdict.status is Status.FALSIFIED and not within:
        return "falsified, but there is no other winner within eps"
    if verdict.status is not Status.UNKNOWN and verdict.argmax != plain.winner(x):
        return "another winner than the exact one"
    if truth is not None and 0 < verdict.radius < np.inf and (Fraction(verdict.radius) / scale) ** 2 >= truth:
        return "a radius within which there is another winner"
    if truth is not None and verdict.radius == np.inf:
        return "an infinite radius, but there is another winner"
    if (verdict.status is Status.FALSIFIED) != (verdict.counterexample is not None):
        return "falsified without a counterexample, or the other way round"
    if verdict.status is Status.FALSIFIED:
        return _wrong_counterexample(plain, x, eps, verdict, scale)
    bracket = verdict.bracket
    if bracket is not None and bracket.upper < bracket.lower:
        return "a bracket that contradicts itself"
    if bracket is not None and bracket.upper <= 0 and not within:
        return "a bracket whose lead is lost within eps, but it is not"
    return ""


def _wrong_counterexample(
    plain: PlainNetwork, x: Sequence[Fraction], eps: Fraction, verdict: Verdict, scale: Fraction
) -> str:
    shown = verdict.counterexample
    change = [Fraction(d) / scale for d in shown.delta.tolist()]
    if sum(d * d for d in change) > eps**2:
        return "a counterexample beyond eps"
    if shown.winner != plain.winner(x):
        return "a counterexample of another winner"
    logits = plain.logits([a + d for a, d in zip(x, change, strict=True)])
    return "" if logits[shown.other] >= logits[shown.winner] else "a counterexample that changes nothing"
