"""Margin bounds of convolutional networks: one ellipsoid is carried through all layers, wave by wave.

`circulant_levels` puts the layers on nested tori: what is proved there of all slopes in their sectors holds for the
network. Here the chain of `ellipsoids` is made on these tori. Its matrices would be huge; but if the multipliers are
the same at all positions, they are block diagonal in waves, and each block has the side of a layer's channels, or twice
that.

WAVES.  Let a torus have the sides N and the half turns p, n = N_1·N_2. Its frequencies are b = (b_1, b_2) modulo 1,
with b_k = (2·m + p_k)/(2·N_k): then x_j = Re(e^{2πi·b·j}·z), z in C^c, obeys the continuation. b and -b give the same
functions; b is *real* if b = -b, that is if 2b = 0; then e^{2πi·b·j} is 1 or -1. Coordinates: for a real b, α in R^c
stands for n^{-1/2}·e^{2πi·b·j}·α; for another, (α, β) in R^2c for (2/n)^{1/2}·Re(e^{2πi·b·j}·(α + iβ)). Taking one of
each pair b, -b, these are orthonormal coordinates of all functions on the torus: waves of different frequencies are
orthogonal, the sum of cos² over all j is n/2 if 2b is not 0, and n·c is the number of coordinates.

A CONVOLUTION from the sides s·N to the sides N takes Re(e^{2πi·b·j}·z) to Re(e^{2πi·a·i}·K(b)·z), where a = s·b modulo
1 along each axis, and K(b) = Σ_o K_o·e^{2πi·b·o}: the wave at s·i + o is e^{2πi·b·o} times e^{2πi·s·b·i}. In
coordinates, with r = (s_1·s_2)^{-1/2}, U = Re K(b), V = Im K(b), it is the matrix

    r·U                                for real b, and then a is real, and V = 0;
    r·√2·(U, -V)                       for other b, and real a;
    r·((U, -V), (V, U)), two by two    for other a.

For the sides s·N have s_1·s_2 times the positions: r is the quotient of the two n^{-1/2}, and √2 that of the factors.
If P is block diagonal with the blocks P_b, then so is S = C·P·Cᵀ, with the blocks

    S_a = Σ_b A_b·P_b·A_bᵀ     over the frequencies b of the torus before with s·b = a, the *aliases* of a,          (1)

A_b being that matrix. The aliases are b_k = (a_k + m)/s_k for m = 0 … s_k - 1, along each axis. If a is not real, none
is real, no two of them are opposite, and those of -a are the opposite ones: if one of a, -a is taken, these are, too.
If a is real, they are opposite to each other, or real: one of each pair is taken. So whoever begins with the last
torus, and takes the aliases of what was taken before, takes each pair b, -b of each torus once.

THE STEP of `ellipsoids` has diagonal matrices M, V, W with numbers that a channel has at all positions: in coordinates
they are M for a real frequency, and diag(M, M) for others. So K and Q are block diagonal; K > 0 and Q <= P' are proved
block by block. The blocks P'_b may be any symmetric matrices.

ONLY A CONSTANT c is known of the activation at the end of a segment. Let v and w be the same for all channels, v·w >=
c, and the middle zero. ||Δ||² <= c²·||δ||² (δ' on the torus is δ on the grid, and something beyond) gives Σ Δ_k²/w² <=
Σ v²·δ'_k²; with that in the place of the sum over sectors, the proof of the step shows Δ in E(w²·I, q). And this is Δ
in E(I, q·w²): the next segment begins, as the first, with P = I and the length of Δ, which is zero beyond its grid.

ROOTS OF UNITY are only known within δ: let B_b be A_b with numbers z_o for the roots, |z_o - e^{2πi·b·o}| <= δ. Then E
= A_b - B_b has ||E||² <= κ_b² := r²·ω_b·δ²·m·||K||_F², with m offsets, ||K||_F² = Σ_o ||K_o||_F², ω_b = 2 in the second
case above and 1 otherwise: an entry of K(b) is off by at most Σ_o |(K_o)_ij|·δ, the square of which is at most δ²·m·Σ_o
(K_o)_ij² by Cauchy and Schwarz; and the real matrix of two by two blocks has the norm of the complex one. For any τ > 0
and P >= 0,  (B + E)·P·(B + E)ᵀ <= (1 + τ)·B·P·Bᵀ + (1 + 1/τ)·E·P·Eᵀ  (what is missing is the square of √τ·B - E/√τ,
with P between). With τ = δ, and E·P·Eᵀ <= κ²·||P||·I, which is no less,

    S_a <= (1 + δ)·( Σ_b B_b·P_b·B_bᵀ + δ·m·||K||_F²·r²·Σ_b ω_b·||P_b||·I ).                                      (2)

At quarters of a turn roots are exact; δ = 0 if all offsets are 0.

THE END.  The last layer's S is a matrix of classes x classes, and (dᵀΔ)² <= q·dᵀSd for d = e_j - e_i: it is L[i][j]².
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import product
from math import lcm
from operator import add
from typing import Any

import numpy as np

from intervalcert.backends.protocol import Backend, Floats, Indices, Matrix, Vector
from intervalcert.errors import UndecidedError
from intervalcert.model.network import Network
from intervalcert.model.windows import Pair
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.roots_of_unity import root_of_unity
from intervalcert.numbers.rounding import dyadic_value
from intervalcert.proof.chain import distances_squared
from intervalcert.proof.circulant_levels import Level, Segment, segments_of
from intervalcert.proof.data import Witness
from intervalcert.proof.ellipsoids import LoewnerMajorant, Sector, Step, check_majorant, check_step, point
from intervalcert.proof.norms import frobenius_upper

__all__ = [
    "CirculantLink",
    "CirculantStep",
    "CirculantWitness",
    "Frequency",
    "aliases",
    "check_circulant",
    "interleaved",
    "is_real",
    "root_error",
]

Frequency = tuple[Fraction, Fraction]
"""In turns, along each axis."""

ROOT_BITS = 60

_MOST_APART = 500
"""Bits between the scale of S and that of the kernel, squared: farther apart, exact numbers would be long."""


@dataclass(frozen=True, eq=False, repr=False)
class CirculantLink(Witness):
    """Of one hidden layer, for all frequencies: S is on the scale 2^exponent; m, ρ (sector), v, w of each channel."""

    exponent: int
    sector: Sector
    v: Floats
    w: Floats


@dataclass(frozen=True, eq=False, repr=False)
class CirculantStep(Witness):
    """Of one frequency: S from above; G (g), R (core), P' (after), e and s (slack) of its step."""

    s: LoewnerMajorant
    g: Floats
    core: Floats
    after: Floats
    e: float
    slack: float


@dataclass(frozen=True, eq=False, repr=False)
class CirculantWitness(Witness):
    """half_turns: p, along each axis. links: one for each hidden layer.

    steps: one for each frequency of each hidden layer, in the order in which `check_circulant` goes: segment after
    segment, from the last torus down to the aliases, and each after those of its aliases. They may be made as they are
    asked for; whoever asks again begins anew.
    """

    half_turns: tuple[int, int]
    links: tuple[CirculantLink, ...]
    steps: Iterable[CirculantStep]


# -- frequencies: from the geometry alone -----------------------------------------------------------------------------


def is_real(frequency: Frequency) -> bool:
    return all((2 * b).denominator == 1 for b in frequency)


def aliases(frequency: Frequency, stride: Pair) -> list[tuple[Frequency, int]]:
    """Those of a frequency, or their opposites if it is real; each with its ω, 1 or 2."""
    (a, c), (s, t) = frequency, stride
    found = product([(a + m) / s for m in range(s)], [(c + m) / t for m in range(t)])
    if not is_real(frequency):
        return [(b, 1) for b in found]
    return [(b, 1 if is_real(b) else 2) for b in found if b <= _opposite(b)]


def _opposite(b: Frequency) -> Frequency:
    return -b[0] % 1, -b[1] % 1


# -- the check --------------------------------------------------------------------------------------------------------


def check_circulant(
    network: Network,
    witness: CirculantWitness,
    backend: Backend[Any],
    on_step: Callable[[], None] = lambda: None,
) -> Vector[Any]:
    """L[i][j]² for all pairs (i, j), in the order of `pairs.PairMatrix`. `on_step` is called after each frequency.

    Guarantees: each number encloses that of the exact run with the same witness, which is a squared margin Lipschitz
    bound, whatever the witness is.
    Raises: UndecidedError unless the witness is proved on this number system, or if the network is none of this kind.
    """
    segments = segments_of(network)
    count = sum(len(segment.levels) for segment in segments) - 1
    turns = witness.half_turns
    if len(turns) != 2 or not all(type(p) is int and p in (0, 1) for p in turns):
        raise UndecidedError(f"tori twisted by {turns!r}")
    if len(witness.links) != count or not all(isinstance(link, CirculantLink) for link in witness.links):
        raise UndecidedError("a chain of another number of layers")
    links, given = iter(witness.links), iter(witness.steps)
    top = Fraction(turns[0], 2), Fraction(turns[1], 2)
    gain = Fraction(1)
    for segment in segments:
        own = [next(links) for level in segment.levels if level.slopes is not None or level.constant is not None]
        gain *= _gain(segment, own)
        chain = _Chain(segment, own, given, backend, on_step)
        if len(own) < len(segment.levels):  # the last layer: its torus has one position
            return chain.margins(top).scalar_mul(backend.scalar(gain))
        for frequency, _ in aliases(top, segment.sides):
            chain.ellipsoid(len(own), frequency)
    raise UndecidedError("a chain without an end")


def _gain(segment: Segment, links: Sequence[CirculantLink]) -> Fraction:
    """What all that follows is to be multiplied by: the scales, and w² where only a constant is known."""
    for level, link in zip(segment.levels, links, strict=False):
        _check_link(level, link)
    found = dyadic_value(1, sum(link.exponent for link in links))
    if segment.levels[-1].constant is not None:
        found *= Fraction(float(links[-1].w[0])) ** 2
    return found


def _check_link(level: Level, link: CirculantLink) -> None:
    """Raises: UndecidedError unless it has a sector for each channel, which holds the slopes; exactly."""
    vectors = link.sector.middle, link.sector.spread, link.v, link.w
    if not all(_is_numbers(x, (level.side,)) for x in vectors) or type(link.exponent) is not int:
        raise UndecidedError("a chain's numbers are not one for each channel")
    if abs(link.exponent - 2 * level.kernel.near_floats().exponent) > _MOST_APART:
        raise UndecidedError("a chain on a scale far from that of the layer")
    middle, spread = link.sector.middle.tolist(), link.sector.spread.tolist()
    if level.slopes is not None:
        held = all(_holds(*each) for each in set(zip(middle, spread, level.slopes, strict=True)))
    else:
        constant = Fraction(0) if level.constant is None else level.constant
        same = bool((link.v == link.v[0]).all() and (link.w == link.w[0]).all())
        held = same and not any(middle) and min(map(Fraction, spread)) >= constant
    if not held:
        raise UndecidedError("a sector does not hold the slopes of the activation")


def _holds(middle: float, spread: float, slopes: tuple[Fraction, Fraction]) -> bool:
    low, high = slopes
    return Fraction(middle) - Fraction(spread) <= low and high <= Fraction(middle) + Fraction(spread)


def _is_numbers(x: Any, shape: tuple[int, ...]) -> bool:
    is_array = isinstance(x, np.ndarray) and x.shape == shape and x.dtype == np.float64
    return is_array and bool(np.isfinite(x).all())


class _Chain:
    """The ellipsoids of one segment, from the frequencies of its last torus down to those of its first, in depth first.

    Nothing is kept but what is needed on the way up: matrices of one frequency of each level.
    """

    def __init__(
        self,
        segment: Segment,
        links: Sequence[CirculantLink],
        steps: Iterator[CirculantStep],
        backend: Backend[Any],
        on_step: Callable[[], None],
    ) -> None:
        self._levels, self._links, self._steps = segment.levels, links, steps
        self._backend, self._on_step = backend, on_step
        self._kernels = [backend.matrix(level.kernel) for level in segment.levels]

    def margins(self, top: Frequency) -> Vector[Any]:
        """dᵀSd for all pairs of classes, on the scale of the levels before.

        Without a grid S is W·P·Wᵀ, and differences of rows of W are taken first. Equal rows have no distance.
        """
        last, depth = self._levels[-1], len(self._levels)
        weights = _rows(last)
        if len(last.offsets) == 1:
            return distances_squared(weights, self.ellipsoid(depth - 1, top), self._backend)
        s = self._spread(depth, top, 0)
        found = point(np.eye(last.side), self._backend).distances_squared(s)
        rows = {place: self._backend.scalar(Fraction(0)) for place in _equal_rows(weights)}
        return found.replaced(rows) if rows else found

    def ellipsoid(self, depth: int, frequency: Frequency) -> Matrix[Any] | None:
        """P of a frequency after so many levels, its coordinates `interleaved`; None for I, before the first."""
        if not depth:
            return None
        link = self._links[depth - 1]
        s = self._spread(depth, frequency, link.exponent)
        step = _checked(next(self._steps, None), s.shape[0])
        times = 1 if is_real(frequency) else 2
        middle, spread, v, w = (np.tile(x, times) for x in (link.sector.middle, link.sector.spread, link.v, link.w))
        above = check_majorant(s, step.s, self._backend)
        proved = Step(Sector(middle, spread), v, w, step.g, step.core, step.after, step.e, step.slack)
        check_step(proved, above, self._backend)
        self._on_step()
        return point(step.after if times == 1 else interleaved(step.after), self._backend)

    def _spread(self, depth: int, frequency: Frequency, exponent: int) -> Matrix[Any]:
        """The right side of (2), over 2^exponent: at least S_a."""
        level, backend = self._levels[depth - 1], self._backend
        terms, sizes = [], []
        for b, omega in aliases(frequency, level.stride):
            p = self.ellipsoid(depth - 1, b)
            symbol = self._symbol(depth, b, omega == 1)
            term = (symbol if p is None else symbol @ p) @ symbol.transposed()
            size = backend.scalar(Fraction(1)) if p is None else frobenius_upper(p, backend)
            terms.append(term if omega == 1 else term.ldexp(1))
            sizes.append(size * backend.scalar(Fraction(omega)))
        total, delta = reduce(add, terms), root_error(level)
        if delta:
            squares = self._kernels[depth - 1].frobenius_squared()
            lost = squares * reduce(add, sizes) * backend.scalar(delta * len(level.offsets))
            total = total + point(np.eye(total.shape[0]), backend).scalar_mul(lost)
        return total.scalar_mul(backend.scalar((1 + delta) / (level.stride[0] * level.stride[1]))).ldexp(-exponent)

    def _symbol(self, depth: int, b: Frequency, is_whole: bool) -> Matrix[Any]:
        """U for a real b, else (U, -V), and (V, U) below it if `is_whole`; its columns `interleaved`."""
        level, kernel = self._levels[depth - 1], self._kernels[depth - 1]
        rows, columns = level.side, level.channels[1]
        roots = _roots(b, level.offsets)
        numbers = [[c] for c, _ in roots] if is_real(b) else [[c, -s] for c, s in roots]
        made = kernel @ self._backend.matrix(RationalMatrix.from_integers(numbers, 1 << ROOT_BITS))
        upper = made.reshaped((rows, columns * len(numbers[0])))
        if is_real(b) or not is_whole:
            return upper
        swapped = upper.transposed().rows_at(np.arange(2 * columns).reshape(-1, 2)[:, ::-1].ravel()).transposed()
        return upper.stacked([swapped.diag_scaled(np.ones(rows), np.tile([-1.0, 1.0], columns))])


def _roots(b: Frequency, offsets: Sequence[Pair]) -> list[tuple[int, int]]:
    """Numbers near e^(2πi·b·o) for all offsets o, in units of 2^-ROOT_BITS, from the turns b·o, which are exact."""
    parts = lcm(b[0].denominator, b[1].denominator)
    along, across = int(b[0] * parts), int(b[1] * parts)
    turns = [(along * y + across * x) % parts for y, x in offsets]
    found = {turn: root_of_unity(Fraction(turn, parts), ROOT_BITS) for turn in set(turns)}
    return [found[turn] for turn in turns]


def _rows(level: Level) -> RationalMatrix:
    """The kernel as a matrix, with a row for each channel of its outputs."""
    near = level.kernel.near_floats()
    if near.exact:
        return RationalMatrix.from_floats(near.values.reshape(level.side, -1), near.exponent)
    return RationalMatrix(level.kernel.numerators.reshape(level.side, -1), level.kernel.denominator)


def _equal_rows(matrix: RationalMatrix) -> list[int]:
    """The places, among all pairs, of those of equal rows."""
    named: dict[tuple[int, ...], int] = {}
    rows = np.array([named.setdefault(tuple(row), k) for k, row in enumerate(matrix.numerators.tolist())])
    upper, lower = np.tril_indices(len(rows), -1)
    return np.flatnonzero(rows[upper] == rows[lower]).tolist()


def root_error(level: Level) -> Fraction:
    """δ of `root_of_unity`; it is exact at 0."""
    return Fraction(1, 1 << ROOT_BITS) if any(map(any, level.offsets)) else Fraction(0)


def interleaved(matrix: Floats) -> Floats:
    """With the coordinates (α_1, β_1, α_2, β_2, …) in the place of (α, β): rows and columns in another order."""
    order = _order(len(matrix))
    found: Floats = matrix[np.ix_(order, order)]
    return found


def _order(count: int) -> Indices:
    return np.arange(count).reshape(2, -1).T.ravel()


def _checked(step: CirculantStep | None, side: int) -> CirculantStep:
    """Raises: UndecidedError unless it is there, with matrices of that side; what else they are, the step checks."""
    if isinstance(step, CirculantStep) and isinstance(step.s, LoewnerMajorant):
        squares = step.s.near, step.s.above, step.core, step.after
        fits = all(_is_numbers(x, (side, side)) for x in squares) and isinstance(step.g, np.ndarray)
        if fits and step.g.dtype == np.float64 and all(type(x) is float for x in (step.e, step.slack, step.s.lift)):
            return step
    raise UndecidedError("a step is missing, or of another shape")
