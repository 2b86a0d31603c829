"""What is proved: norms, margins, decisions, and what holds near one input. Each inequality has its reason beside it.

All numbers are integers and fractions; a symmetric matrix is integers times a power of two (`Symmetric`). What is
rounded is rounded upward: a larger matrix, in the sense xᵀAx <= xᵀBx for all x, written A <= B. For a symmetric E,
-||E||_F·I <= E <= ||E||_F·I; this is the only fact about norms that is used, besides Cauchy and Schwarz.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import isqrt
from operator import mul

from .model import Activation, Layer, Model, Rows, values_at

__all__ = [
    "Chain",
    "Factor",
    "Refused",
    "Step",
    "Symmetric",
    "chain_squares",
    "check_counterexample",
    "check_local",
    "is_certified",
    "norm_squared",
    "product_squares",
]

BITS = 64
"""Of what is rounded: the largest number of a matrix has about so many."""

GRID = 40
"""Slopes of activations are rounded, outward, to multiples of 2^-40."""

_ONE = 1 << GRID
_FAR = 1 << 12
"""Bits: scales that are farther apart are refused, or integers would be long."""


class Refused(Exception):  # noqa: N818 - what it says of a claim
    """A claim that is not proved."""


def dot(x: Sequence[int], y: Sequence[int]) -> int:
    return sum(map(mul, x, y))


def scaled(number: int, exponent: int) -> Fraction:
    """number·2^exponent."""
    return Fraction(number << exponent) if exponent >= 0 else Fraction(number, 1 << -exponent)


def root_above(square: int) -> int:
    """The least integer whose square is at least that."""
    root = isqrt(square)
    return root + (root * root < square)


def rounded_up(number: Fraction) -> Fraction:
    """At least that number, with `BITS` bits. Requires: it is not negative."""
    exponent = number.numerator.bit_length() - number.denominator.bit_length() - BITS
    return scaled(ceiling(number, exponent), exponent)


def ceiling(number: Fraction, exponent: int) -> int:
    """The least n with n·2^exponent >= number."""
    return -floor(-number, exponent)


def floor(number: Fraction, exponent: int) -> int:
    """The largest n with n·2^exponent <= number."""
    top, bottom = number.numerator << max(-exponent, 0), number.denominator << max(exponent, 0)
    return top // bottom


@dataclass(frozen=True)
class Symmetric:
    """The matrix rows·2^exponent. Invariant: rows[i][j] == rows[j][i]."""

    rows: Rows
    exponent: int

    @property
    def side(self) -> int:
        return len(self.rows)

    def form(self, x: Sequence[int]) -> Fraction:
        """xᵀAx."""
        return scaled(dot(x, [dot(row, x) for row in self.rows]), self.exponent)

    def of(self, some: Sequence[int]) -> Symmetric:
        """The rows and columns of that numbers."""
        return Symmetric([[self.rows[i][j] for j in some] for i in some], self.exponent)


def mirrored(below: Rows) -> list[list[int]]:
    """The symmetric matrix whose rows up to the diagonal these are."""
    side = len(below)
    return [[below[i][j] if j <= i else below[j][i] for j in range(side)] for i in range(side)]


def above(below: Rows, unit: int, exponent: int) -> Symmetric:
    """A matrix A >= below·2^exponent/unit, with `BITS` bits. below: rows up to the diagonal.

    Each entry is rounded down to a multiple of a step, which changes it by less than a step; n·n such changes have a
    Frobenius norm below n steps. So n steps are added to the diagonal.
    """
    largest = max(below[i][i] for i in range(len(below)))
    step = max(largest.bit_length() - unit.bit_length() + exponent - BITS, -_FAR) if largest > 0 else -_FAR
    shift = exponent - step
    rows = [[(entry << shift) // unit if shift >= 0 else entry // (unit << -shift) for entry in row] for row in below]
    for index, row in enumerate(rows):
        row[index] += len(rows)
    return Symmetric(mirrored(rows), step)


# -- norms -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Factor:
    """c = shift·2^(2·exponent), and the lower triangle L = rows·2^exponent: row i has i + 1 entries."""

    shift: Fraction
    rows: Rows
    exponent: int


def norm_squared(layer: Layer, factor: Factor) -> Fraction:
    """A number that ||W||² is at most: c + ||c·I - G - L·Lᵀ||_F for the smaller of G = W·Wᵀ and G = Wᵀ·W.

    Proof. ||W||² is the largest xᵀGx with ||x|| = 1, and xᵀGx = c - ||Lᵀx||² - xᵀEx <= c + ||E||_F.
    Raises: Refused for a factor of another side.
    """
    w = layer.rows if layer.outputs <= layer.inputs else list(zip(*layer.rows, strict=True))
    side, lower, exponent = len(w), factor.rows, factor.exponent
    if [len(row) for row in lower] != list(range(1, side + 1)):
        raise Refused(f"a factor of {len(lower)} rows for a layer whose Gram matrix has {side}")
    # E·unit²·2^(-2e), in integers times 1/denominator of the shift: all three terms on one scale.
    c, down, up = factor.shift, max(-2 * exponent, 0), max(2 * exponent, 0)
    square = layer.unit**2
    total = 0
    for i in range(side):
        for j in range(i + 1):
            entry = (
                -(dot(w[i], w[j]) << down) * c.denominator
                - (dot(lower[i][: j + 1], lower[j]) * square << up) * c.denominator
            )
            if i == j:
                entry += c.numerator * square << up
            total += entry * entry * (1 if i == j else 2)
    left = Fraction(root_above(total), square * c.denominator << down)
    bound = c * scaled(1, 2 * exponent) + left
    if bound < 0:
        raise Refused("a factor of no norm")
    return rounded_up(bound)


# -- margins ---------------------------------------------------------------------------------------------------------


def product_squares(model: Model, norms: Sequence[Fraction]) -> list[list[Fraction]]:
    """Of each class j and i < j a number that L_ij² is at most: Π norm²·lipschitz², times ||W_n[j] - W_n[i]||².

    norms: squares of those of all layers but the last. L_ij bounds how much the lead of j over i changes, per distance:
    a layer makes no difference longer than its norm says, an activation than its constant; Cauchy and Schwarz.
    """
    total = Fraction(1)
    for layer, norm in zip(model.layers[:-1], norms, strict=True):
        lipschitz = Fraction(1) if layer.activation is None else layer.activation.lipschitz
        total = rounded_up(total * norm * lipschitz**2)
    last = model.layers[-1]
    gram = [[dot(last.rows[j], last.rows[i]) for i in range(j + 1)] for j in range(last.outputs)]
    return [[total * apart / last.unit**2 for apart in row] for row in _distances(gram)]


def _distances(gram: Rows) -> list[list[int]]:
    """Of rows with these products: ||row j - row i||² for i < j."""
    return [[gram[j][j] + gram[i][i] - 2 * gram[j][i] for i in range(j)] for j in range(len(gram))]


@dataclass(frozen=True)
class Step:
    """What shows one step through a layer. kept: neurons that go on, in order. v·2^v_exponent: a number for each of
    them, not negative; g: the columns of G, numbers·2^g_exponent, with a row and a column for each v > 0.
    """

    kept: Sequence[int]
    v: Sequence[int]
    v_exponent: int
    g: Rows
    g_exponent: int


Chain = Sequence[Step]
Sector = tuple[int, int]
"""low and high, multiples of 2^-40 between which all difference quotients of a neuron are."""


def through(s: Symmetric, sectors: Sequence[Sector], step: Step) -> Symmetric:
    """P' of the neurons that are kept, if differences δ of all inner values are below S.

    "x is below P" says: (dᵀx)² <= q·dᵀPd for all d, with one q >= 0. If δ is below S, and Δ_k = θ_k·δ_k with θ_k in
    the sector [m_k - ρ_k, m_k + ρ_k], then Δ is below M·B·M + W², where W = diag(w), V = diag(v), ρ_k <= v_k·w_k,
    K = I - V·S·V > 0 and B = S + S·V·K⁻¹·V·S. Proof. Let S > 0 first: δᵀS⁻¹δ <= q. For Δ' = Δ - Mδ, |Δ'_k| <=
    w_k·v_k·|δ_k|, so δᵀ(S⁻¹ - V²)δ + Σ Δ'_k²/w_k² <= q; B is the inverse of S⁻¹ - V², and Δ = Mδ + Δ'. A singular S
    is the limit of S + ηI.

    With X = GᵀKG and any μ: X >= λ·I for λ = μ - ||X - μ·I||_F. If λ > 0, then K > 0, and K⁻¹ = G·X⁻¹·Gᵀ <= GGᵀ/λ.
    Then B <= S + HHᵀ/λ for H = S·V·G.
    Raises: Refused unless all that is so.
    """
    kept = step.kept
    if not kept or list(kept) != sorted(set(kept)) or not all(0 <= k < s.side for k in kept):
        raise Refused("neurons that are kept are named once, in order")
    left_out = set(range(s.side)) - set(kept)
    if any(sectors[k] != (0, 0) for k in left_out):
        raise Refused("a neuron that may change was left out")
    if len(step.v) != len(kept) or min(step.v, default=0) < 0:
        raise Refused("a step has a number v >= 0 for each neuron that is kept")
    bent = [k for k, v in enumerate(step.v) if v]
    if len(step.g) != len(bent) or any(len(column) != len(bent) for column in step.g):
        raise Refused("a step has a matrix G of the neurons with v > 0")
    s, v, g = s.of(kept), [step.v[k] for k in bent], step.g
    ends = [sectors[k] for k in kept]
    middle, spread = [low + high for low, high in ends], [high - low for low, high in ends]  # over 2·2^40
    widths = []  # w² >= ρ²/v²
    for rho, number in zip(spread, step.v, strict=True):
        if rho and not number:
            raise Refused("a neuron bends, and its v is zero")
        widths.append(Fraction(rho * rho, number * number) * scaled(1, -2 * (GRID + 1 + step.v_exponent)) if rho else 0)

    sv = [[row[k] * number for k, number in zip(bent, v, strict=True)] for row in s.rows]
    h = [[dot(row, column) for column in g] for row in sv]  # on the scale s + v + g
    power = s.exponent + 2 * step.v_exponent  # K·G on the scale power + g: G, less V·H
    if not -_FAR < power <= 0 or abs(step.g_exponent) > _FAR:
        raise Refused("a step on a scale far from that of the layer")
    one_exponent = -(power + 2 * step.g_exponent)
    if one_exponent < 0:
        raise Refused("a step on a scale that is too coarse")
    turned = [
        [(entry << -power) - number * h[k][c] for entry, number, k in zip(g[c], v, bent, strict=True)]
        for c in range(len(g))
    ]
    one = 1 << one_exponent
    x = [[dot(g[i], turned[j]) for j in range(i + 1)] for i in range(len(g))]
    mu = sum(row[-1] for row in x) // len(x) if x else one
    total = sum(
        (entry - (mu if i == j else 0)) ** 2 * (1 if i == j else 2)
        for i, row in enumerate(x)
        for j, entry in enumerate(row)
    )
    least = mu - root_above(total)  # GᵀKG >= least/one·I
    if least <= 0:
        raise Refused("K is not shown to be positive definite")
    times = ceiling(Fraction(one, least), -BITS)  # K⁻¹ <= GGᵀ·times·2^-64

    scale = 2 * (s.exponent + step.v_exponent + step.g_exponent) - BITS  # of HHᵀ·times
    exponent = min(scale, s.exponent)
    below: list[list[int]] = []
    for i, (row, own) in enumerate(zip(s.rows, h, strict=True)):
        below.append([])
        for j in range(i + 1):
            b = (row[j] << s.exponent - exponent) + (dot(own, h[j]) * times << scale - exponent)
            below[-1].append(middle[i] * middle[j] * b)
    exponent -= 2 * (GRID + 1)
    for i, width in enumerate(widths):
        below[i][i] += ceiling(Fraction(width), exponent) if width else 0
    return above(below, 1, exponent)


def inner(layer: Layer, before: Symmetric | None, kept: Sequence[int]) -> Symmetric:
    """S >= W·P·Wᵀ: differences below P of what W takes become differences below S. None stands for P = I.

    kept: the inputs that P is of; the others do not change.
    """
    if before is None:
        w = layer.rows
        below = [[dot(w[i], w[j]) for j in range(i + 1)] for i in range(len(w))]
        return above(below, layer.unit**2, 0)
    w = [[row[k] for k in kept] for row in layer.rows]
    wp = [[dot(row, column) for column in before.rows] for row in w]
    below = [[dot(wp[i], w[j]) for j in range(i + 1)] for i in range(len(w))]
    return above(below, layer.unit**2, before.exponent)


def chain_squares(model: Model, chain: Chain) -> list[list[Fraction]]:
    """As `product_squares`, by a chain of steps: the differences of the input are below I, with q = ||Δ||².

    At the end the lead of j over i changes by dᵀΔ, d = W_n[j] - W_n[i], and (dᵀΔ)² <= q·dᵀPd.
    Raises: Refused.
    """
    if len(chain) != len(model.layers) - 1 or not chain:
        raise Refused("a chain of another number of layers")
    before: Symmetric | None = None
    kept: Sequence[int] = ()
    for layer, step in zip(model.layers[:-1], chain, strict=True):
        s = inner(layer, before, kept)
        if layer.activation is None or layer.activation.slopes is None:
            raise Refused("a chain through an activation that mixes neurons")
        low, high = layer.activation.slopes
        sector = floor(low, -GRID), ceiling(high, -GRID)
        before, kept = through(s, [sector] * s.side, step), step.kept
    last = model.layers[-1]
    w = [[row[k] for k in kept] for row in last.rows]
    wp = [[dot(row, column) for column in before.rows] for row in w] if before is not None else []
    gram = [[dot(wp[j], w[i]) for i in range(j + 1)] for j in range(len(w))]
    exponent = 0 if before is None else before.exponent
    return [[Fraction(apart, last.unit**2) * scaled(1, exponent) for apart in row] for row in _distances(gram)]


# -- outputs and inputs ----------------------------------------------------------------------------------------------


def winner_of(logits: Sequence[Fraction]) -> int:
    """The first index of the largest."""
    return max(range(len(logits)), key=lambda k: (logits[k], -k))


def is_certified(logits: Sequence[Fraction], squares: Sequence[Sequence[Fraction]], eps: Fraction) -> bool:
    """Whether the lead of the winner j over every i != j is positive, and its square more than eps²·L_ij².

    Then y_j - y_i > eps·L_ij, and within eps no lead falls by more than that.
    """
    j = winner_of(logits)
    for i, logit in enumerate(logits):
        lead = logits[j] - logit
        if i != j and not (lead > 0 and lead * lead > eps * eps * squares[max(i, j)][min(i, j)]):
            return False
    return True


def check_counterexample(
    model: Model, x: Sequence[Fraction], delta: Sequence[Fraction], eps: Fraction, winner: int, other: int
) -> None:
    """That `winner` wins at x, and that `other` is at least as high at x + δ, where ||δ|| <= eps.

    Raises: Refused.
    """
    if len(delta) != len(x) or sum(change * change for change in delta) > eps * eps:
        raise Refused("a change that is longer than eps")
    there = values_at(model, [a + b for a, b in zip(x, delta, strict=True)])[-1]
    if winner_of(values_at(model, x)[-1]) != winner or not 0 <= other < len(there) or other == winner:
        raise Refused("a counterexample of another winner")
    if there[other] < there[winner]:
        raise Refused("a change at which the winner still leads")


def sector_near(function: Activation, z: Fraction, reach_squared: Fraction) -> Sector:
    """Between which (f(z + δ) - f(z))/δ lies for all 0 < δ² <= reach².

    Of a hinge max(z - k, 0), with t = min(1, |z - k|/reach): in [t, 1] if z > k, for from z its slope is 1 up to the
    kink, at least t of the way; in [0, 1 - t] if z < k; and in [0, 1]. t is rounded down, which widens both.
    """
    low = high = function.slope
    for weight, kink in function.hinges or ():
        apart = z - kink
        t = _ONE
        if reach_squared:
            ratio = apart * apart / reach_squared
            t = min(isqrt((ratio.numerator << 2 * GRID) // ratio.denominator), _ONE)
        part = Fraction(t, _ONE)
        ends = part if apart > 0 else Fraction(0), 1 - part if apart < 0 else Fraction(1)
        least, most = (weight * end for end in (ends if weight > 0 else ends[::-1]))
        low, high = low + least, high + most
    return floor(low, -GRID), ceiling(high, -GRID)


def check_local(model: Model, x: Sequence[Fraction], eps: Fraction, winner: int, chains: Sequence[Chain]) -> None:
    """That `winner` leads every other class at every u with ||u - x|| <= eps.

    As `chain_squares`, from x: Δ_0 = u - x is below I with q = eps². An inner value changes by at most eps·sqrt(S_kk)
    (take d = e_k); with its value at x known exactly, that bounds its difference quotients (`sector_near`). Later
    chains may use how far the values reach by earlier ones. A neuron whose quotients are all 0 does not change.
    Raises: Refused.
    """
    if eps < 0 or not chains or len(model.layers) < 2:
        raise Refused("no chain, or no eps")
    functions = [layer.activation for layer in model.layers[:-1] if layer.activation is not None]
    if any(function.hinges is None for function in functions):
        raise Refused("an activation that is not piecewise linear")
    *values, logits = values_at(model, x)
    if winner_of(logits) != winner:
        raise Refused("another class wins at the input")
    reaches: list[list[Fraction]] = []
    before: Symmetric | None = None
    kept: Sequence[int] = ()
    for chain in chains:
        if len(chain) > len(functions):
            raise Refused("a chain of more layers than there are")
        before, kept, known, reaches = None, (), reaches, []
        for index, (layer, step, function) in enumerate(zip(model.layers, chain, functions, strict=False)):
            s = inner(layer, before, kept)
            reach = [eps * eps * scaled(s.rows[k][k], s.exponent) for k in range(s.side)]
            if index < len(known):
                reach = list(map(min, reach, known[index]))
            reaches.append(reach)
            sectors = [sector_near(function, z, most) for z, most in zip(values[index], reach, strict=True)]
            kept = step.kept
            if not kept:
                if any(ends != (0, 0) for ends in sectors):
                    raise Refused("a neuron that may change was left out")
                break
            before = through(s, sectors, step)
        else:
            if len(chain) != len(functions):
                raise Refused("a chain that ends too early")
        if not kept:  # nothing changes from there on
            break
    last = model.layers[-1]
    for i, logit in enumerate(logits):
        lead = logits[winner] - logit
        change = Fraction(0)
        if kept and before is not None:
            d = [last.rows[winner][k] - last.rows[i][k] for k in kept]
            change = eps * eps * before.form(d) / last.unit**2
        if i != winner and not (lead > 0 and lead * lead > change):
            raise Refused(f"the lead over class {i} is not proved to last")
