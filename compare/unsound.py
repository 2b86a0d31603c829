"""What users run today, in a few lines each, and where it is wrong.

A rule is caught in one of two ways, both settled in rationals by the network itself, without our bounds: two inputs
exceed a bound that it reports, or a perturbation within the radius flips an output that it certifies. Ours must hold
on the very same inputs. A rule that is caught nowhere fails the run: the demonstration would be an empty claim.

Uses the network in plain floats of the package itself: gradients, to know where to look; they settle nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from compare.corpus import MODELS, bundled, halved_and_doubled, seed_networks, small_model
from compare.harness import Outcome, Setting, table
from compare.rationals import decimal_lower, decimal_upper, sqrt_lower
from intervalcert import Bounds, Network, certify, compute_bounds
from intervalcert.search.float_network import FloatNetwork

__all__ = ["BOUNDS", "FIGURES", "GUARDED", "NORMS", "TIES", "certified", "exact_logits", "run"]

F32 = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]
Point = npt.NDArray[np.object_]
"""Of Fractions."""
Norm = Callable[[F32], np.float32]
Margins = Callable[[Sequence[F32]], F32]

GUARDED, CHAIN = "power iteration + 1e-9", "chain, first layer skipped"
FIGURES = {
    ("seed: first layer 1e-5", "norm of layer 0"): "9.434563e-06",
    ("seed: first layer 1e-5", "margin 0,1"): "1.8869127e-05",
    ("seed: tiny weights", "margin 0,1"): "0.0",
}
"""What the source paper's appendices report of Leino et al.'s program, as float32 is written."""


# -- the rules: bounds -----------------------------------------------------------------------------------------------


def guarded_power_iteration(weights: F32) -> np.float32:
    """Leino, Wang and Fredrikson (ICML 2021), their program before its repair: at most 10 steps, then on from there
    until two runs agree.

    The fault: 1e-9 is added to all that is divided by, against division by zero. Where ||W·Wᵀ·x|| is smaller than
    that, a step shrinks x instead of normalising it, until ||x||² is itself lost against the 1e-9. Besides, it stops
    when x moves little, before the norm is reached.
    """
    guard, x, estimate = np.float32(1e-9), _start(weights.shape[0]), np.float32(np.inf)
    for _ in range(100):
        x = x / (np.sqrt(np.sum(x * x)) + guard)
        for _ in range(10):
            before, x = x, weights @ (weights.T @ x)
            x = x / (np.sqrt(np.sum(x * x)) + guard)
            if np.sum((x - before) ** 2) <= np.float32(1e-5):
                break
        previous, estimate = estimate, np.sqrt(np.sum((weights.T @ x) ** 2) / (np.sum(x * x) + guard))
        if abs(previous - estimate) <= np.float32(1e-4):
            break
    return np.float32(estimate)


def few_power_steps(weights: F32, x: F32, steps: int = 5) -> np.float32:
    """Power iteration from x, as for spectral normalisation (Miyato et al., ICLR 2018), which makes a single step.

    The fault: ||Wx||/||x|| is a *lower* bound of the norm, whatever x is. It is the norm in the limit only, and not
    even there if the start has no part in the first singular direction.
    """
    for _ in range(steps):
        x = weights.T @ (weights @ x)
        x = x / np.max(np.abs(x))
    return np.float32(np.sqrt(np.sum((weights @ x) ** 2) / np.sum(x * x)))


def _start(size: int) -> F32:
    return np.random.default_rng(size).standard_normal(size).astype(np.float32)


def _unlucky(weights: F32) -> F32:
    """The second singular direction (the first, if there is no other)."""
    return np.asarray(np.linalg.svd(weights)[2][:2][-1])


def svd_norm(weights: F32) -> np.float32:
    """``numpy.linalg.norm(W, 2)``. The fault: it is near the norm, on either side; nothing rounds it up."""
    return np.float32(np.linalg.norm(weights, 2))


def product_of(norm: Norm) -> Margins:
    """Leino et al.: the norms of differences of rows of k·W_n, where k is the product of the hidden norms.

    The fault: float32 rounds to nearest, and squares of tiny differences are 0.
    """

    def margins(weights: Sequence[F32]) -> F32:
        rows = np.prod([norm(w) for w in weights[:-1]], dtype=np.float32) * weights[-1]
        differences = rows[:, None, :] - rows
        return np.asarray(np.sqrt(np.sum(differences * differences, axis=-1)))

    return margins


def chain_without_its_first_layer(weights: Sequence[F32]) -> F32:
    """The closed form ECLipsE-Fast (Xu and Sivaranjani, NeurIPS 2024) as its first Python port had it, for margins.

    X_l = λ·I - ¼·λ²·S with S = W_l·X_{l-1}⁻¹·W_lᵀ and λ = 2/||S||; L[i][j]² = dᵀ·X⁻¹·d.
    The fault: ``i > 1`` where ``i > 0`` is meant. The second layer starts from X = I again, and the first is forgotten;
    a single hidden layer is not.
    """
    *hidden, last = (w.astype(np.float64) for w in weights)
    inverse = np.eye(weights[0].shape[1])
    for index, w in enumerate(hidden):
        s = w @ (inverse if index > 1 else np.eye(w.shape[1])) @ w.T
        slope = 2 / np.linalg.norm(s, 2)
        inverse = np.linalg.inv(slope * np.eye(len(s)) - slope**2 / 4 * s)
    d = last[:, None, :] - last
    return np.asarray(np.sqrt(np.einsum("ijk,kl,ijl->ij", d, inverse, d)), dtype=np.float32)


NORMS: dict[str, Norm] = {
    GUARDED: guarded_power_iteration,
    "power iteration, 5 steps, random start": lambda w: few_power_steps(w, _start(w.shape[1])),
    "power iteration, 5 steps, unlucky start": lambda w: few_power_steps(w, _unlucky(w)),
    "float32 SVD": svd_norm,
}
BOUNDS: dict[str, Margins] = {name: product_of(norm) for name, norm in NORMS.items()}
BOUNDS[CHAIN] = chain_without_its_first_layer
FEWEST_LAYERS = dict.fromkeys(BOUNDS, 2) | {GUARDED: 1, "float32 SVD": 1, CHAIN: 3}
"""A rule is tried where its own fault can show; in a single layer that is float32 alone."""


# -- the rules: verdicts ---------------------------------------------------------------------------------------------


def certified(logits: F32, margins: F32, eps: np.float32, *, mask_ties: bool = False) -> bool:
    """The definition, in float32: where it is wrong, the margins are. With `mask_ties`, Leino et al. before the repair.

    The fault: what *equals* the winner is left out, not the winner alone. Equal logits are certified at every radius.
    """
    j = int(np.argmax(logits))
    left_out = logits == logits[j] if mask_ties else np.arange(len(logits)) == j
    return bool(np.max(np.where(left_out, -np.inf, logits + eps * margins[:, j])) < logits[j])


# -- the truth, in rationals -----------------------------------------------------------------------------------------


def exact_logits(network: Network, x: Point) -> Point:
    """N(x), for a ReLU or linear network without biases."""
    for layer, activation in zip(network.layers, network.activations, strict=True):
        if layer.bias is not None or activation not in {None, "identity", "relu"}:
            raise ValueError("only ReLU and linear networks without biases are evaluated exactly")
        x = layer.weights.numerators @ x * Fraction(1, layer.weights.denominator)
        x = np.array([max(a, Fraction(0)) for a in x]) if activation == "relu" else x
    return x


def _exact(x: npt.NDArray[Any]) -> Point:
    return np.array([Fraction(float(a)) for a in x])


def norm_witness(network: Network, index: int) -> Fraction:
    """A lower bound of ||W|| of a layer: ||Wx||/||x|| for an x near the first singular direction, rounded down."""
    weights = network.layers[index].weights
    x = _exact(np.linalg.svd(weights.near_floats().values)[2][0])
    image = weights.numerators @ x
    return sqrt_lower(image @ image / (x @ x) / weights.denominator**2)


def margin_witness(network: Network, i: int, j: int, u: Point, v: Point) -> Fraction:
    """A lower bound of the Lipschitz constant of N_j - N_i: its change from u to v over ||u - v||, rounded down."""
    change = exact_logits(network, u) - exact_logits(network, v)
    return sqrt_lower((change[j] - change[i]) ** 2 / ((u - v) @ (u - v)))


@dataclass(frozen=True)
class Perturbation:
    """Two inputs, their logits, and the least float32 radius that is at least their distance."""

    x: Point
    perturbed: Point
    logits: Point
    logits_perturbed: Point
    eps: np.float32

    @staticmethod
    def of(network: Network, x: Point, perturbed: Point) -> Perturbation:
        squared = (x - perturbed) @ (x - perturbed)
        eps = np.float32(float(squared) ** 0.5 * (1 - 1e-6))
        while Fraction(float(eps)) ** 2 < squared:
            eps = np.nextafter(eps, np.float32(np.inf))
        return Perturbation(x, perturbed, exact_logits(network, x), exact_logits(network, perturbed), eps)

    @property
    def winners(self) -> tuple[int, int]:
        return int(np.argmax(self.logits)), int(np.argmax(self.logits_perturbed))

    def record(self) -> dict[str, Any]:
        exactly = {name: list(map(str, x)) for name, x in vars(self).items() if name != "eps"}
        return {"eps": float(self.eps), "winners": list(self.winners), **exactly}


# -- where to look, in floats ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A network whose weights are float32 numbers, so that all speak of the same one; inputs to try; our bounds."""

    name: str
    network: Network
    inputs: Floats
    bounds: Bounds
    weights: list[F32]
    floats: FloatNetwork

    @staticmethod
    def of(name: str, network: Network, inputs: Floats) -> Case:
        return Case(name, network, inputs, compute_bounds(network), _float32(network), FloatNetwork.of(network))

    def jacobian(self, x: Floats) -> Floats:
        """The logits at x are this times x."""
        *inner, _ = self.floats.before_activations(x[:, None])
        return self.floats.gradients(inner, np.eye(self.network.outputs)).T

    def winner(self, x: Floats) -> int:
        return int(np.argmax(self.jacobian(x) @ x))


def _float32(network: Network) -> list[F32]:
    return [np.asarray(w.weights.numerators / w.weights.denominator, dtype=np.float32) for w in network.layers]


def cases(short: bool) -> Iterator[Case]:
    for name, network in seed_networks().items():  # in the paper they are linear: a negative input gives class 1
        linear = Network.of([layer.weights for layer in network.layers], between="identity")
        yield Case.of(f"seed: {name}", linear, np.array([[1.0], [-1.0], [3.0]]))
    model, images = Network.from_arrays(_float32(small_model())), np.load(MODELS / "segments_inputs.npy")[:12] / 16
    for times in (0, 20) if short else (0, 18, 20, 40):
        yield Case.of(f"small model, {times} halvings", halved_and_doubled(model, times), images)
    if not short:
        shipped, point = Network.from_arrays(_float32(bundled())), np.random.default_rng(8).random((1, 784))
        yield Case.of("bundled MNIST model, 20 halvings", halved_and_doubled(shipped, 20), point)
    for seed in range(2 if short else 12):
        rng = np.random.default_rng([seed, 6])
        w = [rng.standard_normal(shape).astype(np.float32) for shape in ((12, 6), (12, 12), (4, 12), (4, 6))]
        inputs, network = rng.standard_normal((8, 6)), Network.from_arrays(w[:3])
        yield Case.of(f"random #{seed}", network, inputs)
        yield Case.of(f"random, 20 halvings #{seed}", halved_and_doubled(network, 20), inputs)
        yield Case.of(f"random, one layer #{seed}", Network.from_arrays(w[3:]), inputs)


def _steepest(case: Case, margins: F32) -> tuple[int, int, Point, Point]:
    """Two classes and two inputs between which their lead changes fast, compared with the margin reported."""
    best, found = -1.0, (0, 1, case.inputs[0], -case.inputs[0])
    for (i, j), x in ((pair, x) for pair in combinations(range(case.network.outputs), 2) for x in case.inputs):
        point = x
        for _ in range(4):  # without biases the gradient itself is a promising next point
            jacobian = case.jacobian(point)
            gradient = jacobian[j] - jacobian[i]
            steepness = float(np.linalg.norm(gradient))
            if not steepness:
                break
            ratio = steepness / float(margins[i, j]) if margins[i, j] else np.inf
            if ratio > best:
                best, found = ratio, (i, j, point, point + gradient * (np.linalg.norm(point) / steepness / 64))
            point = gradient / steepness
    i, j, u, v = found
    return i, j, _exact(u), _exact(v)


def _attacks(case: Case) -> Iterator[Perturbation]:
    """Inputs, each with one just beyond the boundary to the second best class (DeepFool, Moosavi-Dezfooli et al.)."""
    for x in case.inputs:
        other, top = np.argsort(case.jacobian(x) @ x)[-2:]
        y = x
        for _ in range(8):
            jacobian = case.jacobian(y)
            gradient = jacobian[other] - jacobian[top]
            lead = -float(gradient @ y)
            if lead < 0 or not gradient.any():
                break
            y = y + gradient * (lead / float(gradient @ gradient) * (1 + 1e-9))
        yield Perturbation.of(case.network, _exact(x), _exact(y))


def _from_zero(case: Case) -> Iterator[Perturbation]:
    """From zero, where all logits are equal, to an input."""
    return (Perturbation.of(case.network, _exact(0 * x), _exact(x)) for x in case.inputs)


def _from_ties(case: Case) -> Iterator[Perturbation]:
    """From points between two inputs, where the two best logits are equal, to where the second of them wins.

    Between ends so near that the network is linear from one to the other, the rational crossing is an exact tie.
    """
    for u, v in pairwise(case.inputs):
        low, high = 0.0, 1.0
        for _ in range(6):
            middle = (low + high) / 2
            low, high = (middle, high) if case.winner(u + middle * (v - u)) == case.winner(u) else (low, middle)
        ends = [_exact(u + t * (v - u)) for t in (low, high)]
        before, after = (exact_logits(case.network, end) for end in ends)
        a, b = np.argmax(before), np.argmax(after)
        if a != b:
            t = (before[a] - before[b]) / (before[a] - before[b] + after[b] - after[a])
            yield Perturbation.of(case.network, ends[0] + t * (ends[1] - ends[0]), ends[int(a < b)])


TIES = {"ties masked, two best equal": _from_ties, "ties masked, all equal": _from_zero}


# -- what was found --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Finding:
    """What a rule does on a network."""

    rule: str
    where: str

    @property
    def kind(self) -> str:
        """The network without its number."""
        return self.where.partition(" #")[0]


@dataclass(frozen=True)
class AuditedClaim(Finding):
    """A bound that a rule reports, and the truth from both sides: a witness below, ours above."""

    what: str
    reported: np.float32
    lower: Fraction
    upper: Fraction

    @property
    def unsound(self) -> bool:
        return bool(self.reported < np.inf) and Fraction(float(self.reported)) < self.lower

    @property
    def factor(self) -> float:
        """How many times too small the bound is."""
        return float(self.lower / Fraction(float(self.reported))) if self.reported else float("inf")

    def record(self) -> dict[str, str]:
        truth = {"at_least": decimal_lower(self.lower, 9), "at_most": decimal_upper(self.upper, 9)}
        reported = {"reported": str(self.reported), **truth, "too_small_by": f"{self.factor:.9g}"}
        return {"rule": self.rule, "network": self.where, "bound_of": self.what, **reported}


@dataclass(frozen=True)
class Flip(Finding):
    """An output that a rule certifies at eps although a perturbation within eps has another winner; one of so many."""

    found: Perturbation
    outputs: int
    tried: int

    def record(self) -> dict[str, Any]:
        counts = {"outputs": self.outputs, "tried": self.tried}
        return {"rule": self.rule, "network": self.where, **counts, **self.found.record()}


def _applicable(case: Case) -> dict[str, Margins]:
    return {rule: margins for rule, margins in BOUNDS.items() if len(case.weights) >= FEWEST_LAYERS[rule]}


def claims(case: Case) -> Iterator[AuditedClaim]:
    for index, (weights, ours) in enumerate(zip(case.weights[:-1], case.bounds.layers[:-1], strict=True)):
        lower = norm_witness(case.network, index)
        for rule, norm in NORMS.items():
            yield AuditedClaim(rule, case.name, f"norm of layer {index}", norm(weights), lower, ours.upper)
    for rule, margins in _applicable(case).items():
        reported = margins(case.weights)
        i, j, u, v = _steepest(case, reported)
        lower, upper = margin_witness(case.network, i, j, u, v), case.bounds.margins.matrix[i][j]
        yield AuditedClaim(rule, case.name, f"margin {i},{j}", reported[i, j], lower, upper)


def flips(case: Case) -> Iterator[Flip]:
    """The first one of each rule, and how many there are."""
    ours = np.nextafter(np.array(case.bounds.margins.matrix, dtype=np.float32), np.float32(np.inf))
    attacks = list(_attacks(case))
    trials = [(rule, margins(case.weights), attacks) for rule, margins in _applicable(case).items()]
    trials += [(rule, ours, list(perturbations(case))) for rule, perturbations in TIES.items()]
    for rule, margins, tried in trials:
        changed = (p for p in tried if p.winners[0] != p.winners[1])
        wrong = [p for p in changed if certified(p.logits.astype(np.float32), margins, p.eps, mask_ties=rule in TIES)]
        if wrong:
            yield Flip(rule, case.name, wrong[0], len(wrong), len(tried))


# -- the run ---------------------------------------------------------------------------------------------------------


def run(setting: Setting) -> Outcome:
    outcome = Outcome("unsound")
    tried = list(cases(setting.short))
    made: list[AuditedClaim] = []
    flipped: list[Flip] = []
    for case in setting.progress(tried, "unsound", len(tried)):
        made += (here := list(claims(case)))
        flipped += (there := list(flips(case)))
        outcome.violations += [f"{c.where}, {c.what}: our bound is too small" for c in here if c.upper < c.lower]
        outcome.violations += [
            f"{case.name}: we certify an output that is flipped within {flip.found.eps}"
            for flip in there
            if certify(case.bounds, [list(flip.found.logits)], float(flip.found.eps))[0].certified
        ]
    figures = {(c.where, c.what): str(c.reported) for c in made if c.rule == GUARDED}
    for (where, what), published in FIGURES.items():
        outcome.data.setdefault("figures", {})[f"{where}, {what}"] = figures[where, what]
        if figures[where, what] != published:
            outcome.violations.append(f"{where}, {what}: {figures[where, what]}, but the paper reports {published}")
    _report(outcome, len(tried), [claim for claim in made if claim.unsound], flipped)
    return outcome


def _report(outcome: Outcome, networks: int, caught: list[AuditedClaim], flipped: list[Flip]) -> None:
    """All of it as data; as tables, the counts, and the worst of each rule on each kind of network."""
    counts = table(f"{networks} networks", "rule", "bound too small on", "certified, yet flipped on")
    below = table(
        "Bounds below the truth", "rule", "network", "bound of", "says", "at least", "at most", "too small by"
    )
    turned = table("Certified at eps, yet flipped within eps", "rule", "network", "outputs", "eps", "winner", "becomes")
    for rule in (*BOUNDS, *TIES):
        small, wrong = [c for c in caught if c.rule == rule], [f for f in flipped if f.rule == rule]
        if not small and not wrong:
            outcome.violations.append(f"the demonstration failed: '{rule}' was caught nowhere")
        counts.add_row(rule, str(len({c.where for c in small})), str(len(wrong)))
        for kind in dict.fromkeys(c.kind for c in small):
            below.add_row(*max((c for c in small if c.kind == kind), key=lambda c: c.factor).record().values())
        for kind in dict.fromkeys(f.kind for f in wrong):
            flip = max((f for f in wrong if f.kind == kind), key=lambda f: f.outputs)
            winners = map(str, flip.found.winners)
            turned.add_row(rule, flip.where, f"{flip.outputs} of {flip.tried}", str(flip.found.eps), *winners)
    turned.caption = "eps is that of the first output; its input, perturbation and exact logits are in the data."
    outcome.data |= {"networks": networks, "claims": [c.record() for c in caught]}
    outcome.data |= {"flips": [f.record() for f in flipped]}
    outcome.tables += [counts, below, turned]
