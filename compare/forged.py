"""Proofs of what is false, each made for one line of the checkers: with that line broken, it would be believed.

Uses the checkers of the package itself (`intervalcert.proof`), and breaks them: a function, or a piece of its text. A
forgery is as it should be if the honest checker refuses it, the broken one accepts it, and an exact point shows that
what it claims is false.
"""

from __future__ import annotations
import __future__

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from textwrap import dedent
from typing import Any
from unittest.mock import patch

import numpy as np

from compare.regions import PlainNetwork
from intervalcert import Network
from intervalcert.backends.registry import get_backend, precision_ladder
from intervalcert.errors import InconclusiveError, UndecidedError
from intervalcert.model.evaluation import Evaluators
from intervalcert.numbers.float_formats import get_format
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.proof import counterexample, dual, program, trees
from intervalcert.proof.counterexample import Counterexample
from intervalcert.proof.dual import DualChecker, DualStep
from intervalcert.proof.ellipsoids import LoewnerMajorant, Sector, Step
from intervalcert.proof.hinges import ETA, DualClaim, DualPoint, DualWitness, Goal, Hinge, Range, Splits
from intervalcert.proof.local import LocalChecker, LocalLink
from intervalcert.proof.program import FloatCounterexample, Program
from intervalcert.proof.trees import Split
from intervalcert.search.ellipsoids import guess_inner, guess_majorant

__all__ = ["FORGERIES", "Forgery", "with_text"]

Broken = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Forgery:
    """accepts: whether the checker, as it is just then, accepts the proof. is_false: whether its claim is refuted."""

    accepts: Callable[[], bool]
    broken: Broken
    is_false: Callable[[], bool]

    def verdict(self) -> str:
        """What is not as it should be; empty if all is."""
        if not self.is_false():
            return "what it claims is not refuted"
        if self.accepts():
            return "the checker accepts it"
        with self.broken():
            return "" if self.accepts() else "the broken checker refuses it, too"


@contextmanager
def with_text(owner: Any, name: str, old: str, new: str) -> Iterator[None]:
    """A function of a module, or of a class, with a piece of its text replaced.

    Raises: ValueError unless that piece is in it, and once: a control of what is no longer there controls nothing.
    """
    honest = getattr(owner, name)
    text = dedent(inspect.getsource(honest))
    if text.count(old) != 1:
        raise ValueError(f"{name} has {text.count(old)} times the text {old!r}: this control must be written anew")
    room = dict(vars(sys.modules[honest.__module__]))
    flags = __future__.annotations.compiler_flag
    exec(compile(text.replace(old, new), f"<{name}, broken>", "exec", flags, dont_inherit=True), room)
    with patch.object(owner, name, room[honest.__name__]):
        yield


def _text(owner: Any, name: str, old: str, new: str) -> Broken:
    return lambda: with_text(owner, name, old, new)


# -- a small network, and duals of it ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Small:
    """One input, one hidden layer of ReLU, two classes, of which the first one leads at zero."""

    weights: tuple[Any, Any]
    biases: tuple[Any, Any]

    @property
    def network(self) -> Network:
        return Network.from_arrays(list(self.weights), list(self.biases))

    def is_lost(self, eps: str, at: str = "0") -> bool:
        """Whether it is not robust there, exactly."""
        plain = PlainNetwork(self.weights, self.biases, "relu")
        nearest = plain.nearest_change([Fraction(at)])
        return plain.winner([Fraction(at)]) == 0 and nearest is not None and nearest <= Fraction(eps) ** 2

    def steps(self, witness: DualWitness, eta: float = float(ETA)) -> tuple[DualStep]:
        """What shows that a form is convex, as floats guess it. Raises: LinAlgError where they find nothing."""
        alpha, middle, three = witness.numbers[0][0][:3]
        kept = np.flatnonzero((middle != 0) | (alpha > 0))
        if not len(kept):
            none, empty = np.zeros(0), np.zeros((0, 0))
            nothing = Step(Sector(none, none), none, none, empty, empty, empty, 0.0, 0.0)
            return (DualStep(kept, 0, LoewnerMajorant(empty, empty, 0.0), nothing, none, empty),)
        majorant = guess_majorant(
            (self.weights[0] @ self.weights[0].T / (witness.gamma * (1 - eta)))[np.ix_(kept, kept)]
        )
        bends = np.maximum(alpha * middle**2 - three, 0.0)[kept]
        v = np.where(bends > 0, np.sqrt(bends) * (1 + 2.0**-50), 0.0)
        drop, gain = np.zeros(len(kept)), np.zeros((len(kept), 0))
        return (DualStep(kept, 0, majorant, guess_inner(majorant.above, v), drop, gain),)

    def proves(
        self,
        witness: DualWitness,
        at: DualPoint,
        ranges: Range,
        eps: str,
        x: str = "0",
        steps: Any = None,
        splits: Splits | None = None,
    ) -> bool:
        return self.claim(witness, at, ranges, eps, x, steps, splits) is not None

    def claim(
        self,
        witness: DualWitness,
        at: DualPoint,
        ranges: Range,
        eps: str,
        x: str = "0",
        steps: Any = None,
        splits: Splits | None = None,
    ) -> DualClaim | None:
        norms = [Fraction(float(np.linalg.norm(w))) * 2 for w in self.weights]
        checker = DualChecker(self.network, get_backend("exact"), norms)
        column = RationalMatrix.filled((1, 1), Fraction(x))
        try:
            found = self.steps(witness) if steps is None else steps
            return checker.check(witness, found, at, column, [ranges], Fraction(eps), splits=splits)
        except (InconclusiveError, np.linalg.LinAlgError):
            return None


LINE = _Small((np.ones((1, 1)), np.array([[0.0], [1.0]])), (np.zeros(1), np.array([1.0, 0.0])))
"""The lead is 1 - max(u, 0): a tie at 1, and lost beyond."""

LEAD = Goal(1, 0, 1)


def _dual(gamma: float, **rows: float) -> DualWitness:
    """Of one hinge."""
    numbers = np.zeros((7, 1))
    for name, value in rows.items():
        numbers[("alpha", "middle", "lambda3", "lambda4", "lambda5", "lambda6", "split").index(name)] = value
    return DualWitness(LEAD, gamma, ((numbers,),))


def _at(delta: float, *nu: float) -> DualPoint:
    return DualPoint(np.array([delta]), ((np.array(nu),),))


def _within(low: float, high: float) -> Range:
    return np.array([float(low)]), np.array([float(high)])


# -- signs -------------------------------------------------------------------------------------------------------------


def _negative_multiplier() -> bool:
    """λ4 = -1 adds y, which is the term that takes the lead away."""
    return LINE.proves(_dual(2.0**-4, alpha=2.0**-6, middle=0.5, lambda4=-1.0), _at(0.0, 0.0), _within(-2, 2), "2")


def _wrong_sign() -> bool:
    """λ4 = 1 takes y off: with the other sign it would be added."""
    return LINE.proves(_dual(2.0**-4, alpha=2.0**-6, middle=0.5, lambda4=1.0), _at(0.0, 0.0), _within(-2, 2), "2")


def _adding_y() -> AbstractContextManager[Any]:
    honest = dual.checked_hinge

    def checked(kink: Fraction, weight: Fraction, numbers: Any, *others: Any) -> Hinge:
        own = honest(kink, weight, numbers, *others)
        rows = [[own.p[k, 0] + 2 * Fraction(four)] for k, four in enumerate(numbers[3].tolist())]
        return replace(own, p=RationalMatrix.from_fractions(rows))

    return patch.object(dual, "checked_hinge", checked)


def _negative_lambda2() -> bool:
    """λ2 = α·(1 - 2M) = -1/10, and -λ2·u·y is y at u = 10."""
    return LINE.proves(_dual(0.2, alpha=0.1, middle=1.0), _at(0.0, 0.0), _within(-10, 10), "2")


# -- ranges ------------------------------------------------------------------------------------------------------------

_DEAD = _dual(2.0**-6)
"""Of a hinge that does not bend, and is zero."""


def _narrow_chain() -> bool:
    """At -1/2 the neuron is said to change by 1/4 at the most, within 2."""
    none, empty = np.zeros(0), np.zeros((0, 0))
    step = Step(Sector(none, none), none, none, empty, empty, empty, 0.0, 0.0)
    still = Sector(np.zeros(1), np.zeros(1))
    kept = np.zeros(0, dtype=np.intp)
    link = LocalLink(kept, np.array([0.25]), still, LoewnerMajorant(empty, empty, 0.0), step, 0)
    ends = (np.array([-0.5]), np.array([-0.5]))
    try:
        (reach,) = LocalChecker(LINE.network, get_backend("exact")).reaches(((link,),), [ends], Fraction(2))
    except InconclusiveError:
        return False
    return LINE.proves(_DEAD, _at(0.0, 0.0), (ends[0] - reach, ends[1] + reach), "2", "-0.5")


def _believing_chains() -> AbstractContextManager[Any]:
    return patch.object(LocalChecker, "reaches", lambda _, chains, *__: [link.reach for link in chains[-1]])


def _narrower() -> bool:
    """Of the negative of the argument it is proved that it is more than -5/2, and claimed that it is more than 1/4."""
    claim = DualClaim(Goal(0, -1, 0), Fraction(-5, 2), frozenset(), "exact")
    try:
        (ranges,) = trees.narrower([_within(-2.5, 2.5)], claim, 0.25)
    except InconclusiveError:
        return False
    return LINE.proves(_DEAD, _at(0.0, 0.0), ranges, "2", "-0.5")


# -- convexity, and how far from the least value one is ----------------------------------------------------------------


def _nearly_flat(kappa: float) -> tuple[_Small, DualWitness, DualPoint]:
    """Φ = κ·(1 - δ)² + 4·(ν - 1/2)², at eps = 1: at δ = 1, where the lead is lost, it is 0, and at δ = -1 it is 4κ.

    The lead is 4·(1 - max(u, 0)) - (2 - 2κ)·(1 - u), the multipliers α = 4, M = 1/2 and γ = 1 + κ, so D = 1.
    """
    b = 2 - 2 * kappa
    small = _Small(
        (np.ones((2, 1)), np.array([[-4.0, b], [0.0, 0.0]])), (np.array([0.0, 10.0]), np.array([4 - 11 * b, 0.0]))
    )
    numbers = np.zeros((7, 2))
    numbers[0, 0], numbers[1] = 4.0, (0.5, 1.0)
    return small, DualWitness(LEAD, 1 + kappa, ((numbers,),)), _at(-1.0, 0.5, 0.0)


_FLAT = (np.array([-1.0, 9.0]), np.array([1.0, 11.0]))
_LITTLE, _MORE = 2.0**-31, 2.0**-4


def _convex_by_a_hair() -> bool:
    """κ is less than η, so that K > 0 alone does not show (2)."""
    small, witness, at = _nearly_flat(_LITTLE)
    return small.proves(witness, at, _FLAT, "1", steps=small.steps(witness, 0.0))


def _far_from_the_least_value() -> bool:
    small, witness, at = _nearly_flat(_MORE)
    return small.proves(witness, at, _FLAT, "1")


def _without_gradient() -> bool:
    """Any point, the further away the better."""
    return LINE.proves(_dual(1.0, alpha=1.0, middle=0.5), _at(1e3, 0.5), _within(-2, 2), "2")


def _not_convex() -> bool:
    """γ = 1/8 is less than D = 1/4: a saddle, whose gradient is zero where Φ is 3/4. The steps are of a convex form."""
    steps = LINE.steps(_dual(1.0, alpha=1.0, middle=0.5))
    return LINE.proves(_dual(0.125, alpha=1.0, middle=0.5), _at(-2.0, 0.5), _within(-2, 2), "2", steps=steps)


# -- splits ------------------------------------------------------------------------------------------------------------


def _half_a_tree() -> bool:
    """Where u <= 0 the lead is 1; of the other half there is no proof."""

    def check(witness: DualWitness, splits: Splits) -> DualClaim:
        found = LINE.claim(witness, _at(0.0, 0.0), _within(-2, 2), "2", splits=splits)
        if found is None:
            raise UndecidedError("no proof")
        return found

    try:
        claim = trees.proved_tree(Split((0, 0, 0), _DEAD, _DEAD), check)
    except InconclusiveError:
        return False
    return not claim.splits and claim.goal == LEAD


@contextmanager
def _forgetting_a_half() -> Iterator[None]:
    name, old = "proved_tree", "above = proved_tree(tree.above, check, {**known, tree.place: -1})"
    with (
        with_text(trees, name, old, "above = below"),
        patch.dict(trees.proved_tree.__globals__, resolved=_of_one_half),
    ):
        yield


def _of_one_half(place: Any, _: DualClaim, below: DualClaim) -> DualClaim:
    return replace(below, splits=below.splits - {(place, 1)})


# -- counterexamples ---------------------------------------------------------------------------------------------------

_AHEAD = (np.eye(2), np.array([0.0, 0.0]))
_HAIR = Fraction(1, 2**30)


def _falsifies(weights: Any, biases: Any, found: Counterexample, x: list[Fraction], eps: Fraction) -> bool:
    network = Network.from_arrays([weights], [biases])
    column = RationalMatrix.from_fractions([[a] for a in x])
    enclosures = Evaluators(network, [Fraction(2)]).finer(precision_ladder("auto"))
    try:
        counterexample.check_counterexample(found, column, eps, len(weights), enclosures)
    except InconclusiveError:
        return False
    return True


_CLOSE = np.ones((2, 1)), np.array([0.0, 2.0**-60])
"""Class 1 leads by 2^-60 everywhere; floats take it for a tie, which class 0 wins."""


def _winner_of_floats() -> bool:
    (w, b), x = _CLOSE, Fraction(1)
    values = w[:, 0] * float(x) + b
    first = int(np.argmax(values))
    return _falsifies(w, b, Counterexample(np.zeros(1), first, 1 - first), [x], Fraction(1, 2))


def _is_robust(weights: Any, biases: Any, x: Fraction, eps: Fraction) -> bool:
    nearest = PlainNetwork([weights], [biases], "relu").nearest_change([x])
    return nearest is None or nearest > eps**2


_HALF_LINE = np.array([[1.0], [0.0]]), np.zeros(2)
"""The lead is u: a tie at 0."""


def _beyond_eps() -> bool:
    return _falsifies(*_HALF_LINE, Counterexample(np.array([-1.0]), 0, 1), [Fraction(1)], 1 - _HAIR)


def _program_beyond_eps() -> bool:
    made = Program(Network.from_arrays([_HALF_LINE[0]], [_HALF_LINE[1]]), get_format("float32"))
    found = FloatCounterexample(np.array([1.0]), np.array([0.0]), 0, 1)
    try:
        program.check_float_counterexample(found, RationalMatrix.filled((1, 1), Fraction(1)), 1 - _HAIR, made)
    except InconclusiveError:
        return False
    return True


_CLOSE_PROGRAM = np.array([[1.0, 2.0**-30], [1.0, 0.0]]), None


def _winner_of_another_program() -> bool:
    """Of float64: in float32 both logits are equal at this input, the first class wins, and nobody else does."""
    w, _ = _CLOSE_PROGRAM
    made = Program(Network.from_arrays([w]), get_format("float32"))
    near = np.array([1.0, -1.0])
    found = FloatCounterexample(near, near, int(np.argmax(w @ near)), 0)
    try:
        column = RationalMatrix.from_fractions([[Fraction(a)] for a in near.tolist()])
        program.check_float_counterexample(found, column, Fraction(0), made)
    except InconclusiveError:
        return False
    return True


def _has_another_winner() -> bool:
    """By numpy's own float32."""
    w, _ = _CLOSE_PROGRAM
    near = np.array([1.0, -1.0], dtype=np.float32)
    products = w.astype(np.float32) * near
    return int(np.argmax(products[:, 0] + products[:, 1])) == 0


FORGERIES: dict[str, Forgery] = {
    "a multiplier of the wrong sign": Forgery(
        _negative_multiplier,
        _text(dual, "checked_hinge", "(numbers[2:6] < 0).any() or ", ""),
        lambda: LINE.is_lost("2"),
    ),
    "a constraint with the wrong sign": Forgery(_wrong_sign, _adding_y, lambda: LINE.is_lost("2")),
    "lambda2 not checked": Forgery(
        _negative_lambda2, _text(dual, "checked_hinge", "(two < 0).any()", "False"), lambda: LINE.is_lost("2")
    ),
    "a range too narrow: a chain believed": Forgery(
        _narrow_chain, _believing_chains, lambda: LINE.is_lost("2", "-0.5")
    ),
    "a range too narrow: more than a dual proves": Forgery(
        _narrower,
        _text(trees, "narrower", "claim.above >= Fraction(end)", "True"),
        lambda: LINE.is_lost("2", "-0.5"),
    ),
    "eta dropped in the convexity": Forgery(
        _convex_by_a_hair,
        _text(DualChecker, "_check_convex", "gamma * (1 - ETA)", "gamma"),
        lambda: _nearly_flat(_LITTLE)[0].is_lost("1"),
    ),
    "eta dropped in the correction": Forgery(
        _far_from_the_least_value,
        _text(DualChecker, "_correction", "1 / (4 * ETA)", "Fraction(1, 4)"),
        lambda: _nearly_flat(_MORE)[0].is_lost("1"),
    ),
    "the gradient dropped": Forgery(
        _without_gradient,
        _text(DualChecker, "_correction", "return total * backend.scalar(1 / (4 * ETA))", "return total - total"),
        lambda: LINE.is_lost("2"),
    ),
    "K of the last hidden layer not proved": Forgery(
        _not_convex,
        _text(DualChecker, "_check_convex", "zip(hinges, steps, strict=True)", "zip(hinges[:-1], steps[:-1])"),
        lambda: LINE.is_lost("2"),
    ),
    "the other half of a split forgotten": Forgery(_half_a_tree, _forgetting_a_half, lambda: LINE.is_lost("2")),
    "the winner at x taken from floats": Forgery(
        _winner_of_floats,
        _text(counterexample, "check_counterexample", "_is_first(here, found.winner) and ", ""),
        lambda: _is_robust(*_CLOSE, Fraction(1), Fraction(1, 2)),
    ),
    "a counterexample beyond eps by 2^-30": Forgery(
        _beyond_eps,
        _text(counterexample, "check_counterexample", "> eps**2", "> (eps + Fraction(1, 2**30)) ** 2"),
        lambda: _is_robust(*_HALF_LINE, Fraction(1), 1 - _HAIR),
    ),
    "a counterexample of a program beyond eps by 2^-30": Forgery(
        _program_beyond_eps,
        _text(program, "check_float_counterexample", "<= eps**2", "<= (eps + Fraction(1, 2**30)) ** 2"),
        lambda: _is_robust(*_HALF_LINE, Fraction(1), 1 - _HAIR),
    ),
    "the winner of a program taken from other floats": Forgery(
        _winner_of_another_program,
        _text(program, "check_float_counterexample", "int(np.argmax(here)) != found.winner or ", ""),
        _has_another_winner,
    ),
}
"""By the line of the checkers that each is made for."""
