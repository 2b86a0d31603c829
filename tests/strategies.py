"""What hypothesis draws: exact numbers of all scales, sets with points inside, matrices, networks.

Below them stands the arithmetic that results are checked with: plain loops over `Fraction`, too slow to be clever, and
independent of the package's own matrix code.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from itertools import pairwise
from operator import mul
from random import Random

from hypothesis import strategies as st

from intervalcert.backends.generic import GenericMatrix
from intervalcert.model.network import Network
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.rounding import round_down

Rows = list[list[Fraction]]

# -- numbers ---------------------------------------------------------------------------------------------------------


@cache  # hypothesis looks at a strategy once, if it stays the same
def powers_of_two(lowest=-1100, highest=1100):
    return st.integers(lowest, highest).map(lambda e: Fraction(2) ** e)


@cache
def decimals(digits=5, whole=3):
    """Numbers as text files hold them: few digits after the point."""
    limit = 10 ** (digits + whole)
    return st.integers(-limit, limit).map(lambda k: Fraction(k, 10**digits))


@cache
def subnormals():
    return st.integers(-(2**20), 2**20).map(lambda k: k * Fraction(2) ** -1074)


@cache
def extremes():
    """Near 10^300 and 10^-300: products and squares leave the range of floats."""
    return st.builds(
        lambda k, e: k * Fraction(10) ** e, st.integers(-999, 999), st.sampled_from([-320, -300, -290, 290, 300, 305])
    )


@cache
def near_powers():
    """2^e·(1 ± 2^-k): where mantissas carry and borrow."""
    return st.builds(
        lambda power, sign, k: power * (1 + sign * Fraction(1, 2**k)),
        powers_of_two(-70, 70),
        st.sampled_from([-1, 1]),
        st.integers(1, 140),
    )


@cache
def fractions():
    """Exact rationals of many scales and kinds, of either sign."""
    return st.one_of(
        st.just(Fraction(0)),
        st.integers(-10, 10).map(Fraction),
        st.builds(mul, st.sampled_from([-1, 1]), powers_of_two()),
        decimals(),
        st.builds(Fraction, st.integers(-(10**6), 10**6), st.integers(1, 10**6)),
        near_powers(),
        st.floats(allow_nan=False, allow_infinity=False).map(Fraction),
        subnormals(),
        extremes(),
    )


@cache
def non_negative():
    return fractions().map(abs)


@cache
def positive():
    return non_negative().filter(bool)


# -- sets of numbers -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Segment:
    """lower <= inner <= upper: a set of numbers with three points of it."""

    lower: Fraction
    inner: Fraction
    upper: Fraction

    @property
    def points(self):
        return self.lower, self.inner, self.upper

    def on(self, backend, point):
        """The set as a value of `backend`; the point alone where values are points."""
        return backend.scalar(point) if backend.working_bits is None else backend.hull(self.lower, self.upper)


@cache
def segments():
    """Points, sets that are narrow next to their magnitude, and sets of any width, perhaps across zero."""
    width = st.one_of(  # a part of the point's magnitude, or a number of its own
        st.sampled_from([(Fraction(0), None), (Fraction(1), None)]),
        st.integers(1, 140).map(lambda k: (Fraction(1, 2**k), None)),
        non_negative().map(lambda own: (None, own)),
    )

    def segment(inner, below, above):
        left, right = (abs(inner) * part if own is None else own for part, own in (below, above))
        return Segment(inner - left, inner, inner + right)

    return st.builds(segment, fractions(), width, width)


@cache
def segments_around_zero():
    """With zero inside, both ends of any size."""
    parts = st.fractions(0, 1, max_denominator=100)
    return st.builds(lambda a, b, part: Segment(-a, part * b, b), non_negative(), non_negative(), parts)


@cache
def segments_without_zero():
    """For divisors, of either sign."""
    return seeds().map(lambda seed: random_divisor(Random(seed)))


# -- matrices --------------------------------------------------------------------------------------------------------
#
# hypothesis draws the kind, the shape and a seed; the entries come from the seed. Drawing every entry would cost ten
# times as much as all the arithmetic that is tested, and failures print their operands anyway.


def random_decimal(random: Random) -> Fraction:
    digits = random.randint(0, 6)
    return Fraction(random.randint(-(10 ** (digits + 1)), 10 ** (digits + 1)), 10**digits)


def random_fraction(random: Random) -> Fraction:
    """The kinds of `fractions`, from a seed."""
    sign = random.choice([-1, 1])
    return random.choice(
        [
            lambda: Fraction(0),
            lambda: Fraction(random.randint(-10, 10)),
            lambda: sign * Fraction(2) ** random.randint(-1100, 1100),
            lambda: random_decimal(random),
            lambda: Fraction(random.randint(-(10**6), 10**6), random.randint(1, 10**6)),
            lambda: sign * Fraction(2) ** random.randint(-70, 70) * (1 - Fraction(1, 2 ** random.randint(1, 140))),
            lambda: Fraction(random.gauss(0, 1)),
            lambda: random.randint(-(2**20), 2**20) * Fraction(2) ** -1074,
            lambda: random.randint(-999, 999) * Fraction(10) ** random.choice([-320, -300, 300, 305]),
        ]
    )()


def _entries(entry):
    def rows(random, shape):
        return [[entry(random) for _ in range(shape[1])] for _ in range(shape[0])]

    return rows


def _rank_one(random, shape):
    left, right = [random_decimal(random) for _ in range(shape[0])], [random_decimal(random) for _ in range(shape[1])]
    return [[x * y for y in right] for x in left]


def _equal_rows(random, shape):
    return [[random_decimal(random) for _ in range(shape[1])]] * shape[0]


def _diagonal(random, shape):
    return [[random_fraction(random) if i == j else Fraction(0) for j in range(shape[1])] for i in range(shape[0])]


MATRIX_KINDS = {
    "decimal": _entries(random_decimal),
    "zero": _entries(lambda _: Fraction(0)),
    "rank one": _rank_one,
    "equal rows": _equal_rows,
    "integer": _entries(lambda random: Fraction(random.randint(-100, 100))),
    "diagonal": _diagonal,
    "gaussian": _entries(lambda random: Fraction(random.gauss(0, 1))),
    "subnormal": _entries(lambda random: random.randint(-(2**20), 2**20) * Fraction(2) ** -1074),
    "huge": _entries(lambda random: Fraction(random.uniform(-1, 1) * 1e308)),
    "mixed scales": _entries(random_fraction),
}


@cache
def shapes(most=4):
    return st.tuples(st.integers(1, most), st.integers(1, most))


@cache
def seeds():
    return st.integers(0, 2**32)


@cache
def rational_matrices(shape=None, kinds=tuple(MATRIX_KINDS)):
    """`RationalMatrix` of the kinds named; `shape` is a pair, a strategy of pairs, or None for up to 4 x 4."""
    pairs = shapes() if shape is None else st.just(shape) if isinstance(shape, tuple) else shape
    return st.builds(
        lambda kind, sides, seed: RationalMatrix.from_fractions(MATRIX_KINDS[kind](Random(seed), sides)),
        st.sampled_from(kinds),
        pairs,
        seeds(),
    )


@dataclass(frozen=True)
class MatrixSet:
    """A recipe for a set of matrices, and one matrix that the law puts inside.

    The set is data / divisor; then, if `grid` is not None, that moved to multiples of 2^-grid; then, if there is one,
    less another set.
    """

    data: RationalMatrix
    divisor: Segment
    grid: int | None
    less: "MatrixSet | None" = None

    @property
    def point(self) -> Rows:
        made = divided(to_rows(self.data), self.divisor.inner)
        made = made if self.grid is None else moved_to_grid(made, self.grid)
        return made if self.less is None else minus(made, self.less.point)

    def on(self, system):
        """The set on a `system` (a backend, and its way to hold matrices); the point alone where values are points."""
        backend = system.backend
        if backend.working_bits is None:
            return system.matrix(RationalMatrix.from_fractions(self.point))
        made = system.matrix(self.data)
        if not self.divisor.lower == self.divisor.upper == 1:
            made = made.scalar_mul(reciprocal(backend, backend.hull(self.divisor.lower, self.divisor.upper)))
        made = made if self.grid is None else made.rounded(self.grid)[0]
        return made if self.less is None else made - self.less.on(system)


def reciprocal(backend, divisor):
    """A factor that divides."""
    return backend.scalar(Fraction(1)) / divisor


def point_set(integers, denominator=1) -> MatrixSet:
    """One matrix, given by integers over a denominator: for examples."""
    return MatrixSet(RationalMatrix.from_integers(integers, denominator), Segment(*[Fraction(1)] * 3), None)


def random_divisor(random: Random) -> Segment:
    """A set of positive or of negative numbers: a point, narrow, or as wide as it can be."""
    inner = Fraction(0)
    while inner == 0:
        inner = abs(random_fraction(random))
    part = random.choice([Fraction(0), Fraction(1, 2**100), Fraction(1, 2**20), Fraction(1, 3), Fraction(9, 10)])
    lower, upper = inner * (1 - part), inner * (1 + random.randint(0, 5) * part)
    return Segment(lower, inner, upper) if random.random() < 0.5 else Segment(-upper, -inner, -lower)


@cache
def matrix_sets(shape=None, kinds=tuple(MATRIX_KINDS)):
    """Sets of matrices from points to very wide ones, and differences of such, which often have zero inside."""
    one = Segment(Fraction(1), Fraction(1), Fraction(1))
    divisors = st.one_of(st.just(one), segments_without_zero())
    grids = st.one_of(st.none(), st.integers(0, 12))

    def with_less(made, apart, seed, divisor, grid):
        """Less a multiple of itself, which may well cancel, or less any other set of its shape."""
        if not apart:
            return made
        kind = kinds[seed // 2 % len(kinds)]
        rows = MATRIX_KINDS[kind](Random(seed), made.data.shape)
        return replace(
            made, less=MatrixSet(RationalMatrix.from_fractions(rows) if seed % 2 else made.data, divisor, grid)
        )

    some = st.builds(MatrixSet, rational_matrices(shape, kinds), divisors, grids)
    return st.builds(with_less, some, st.sampled_from([False, False, True]), seeds(), divisors, grids)


@st.composite
def networks(draw, most_layers=3, most_side=4):
    """Small networks of decimals, with and without biases, over several activations."""
    sides = draw(st.lists(st.integers(1, most_side), min_size=1, max_size=most_layers))
    sides.append(draw(st.integers(2, most_side)))  # a classifier has at least two outputs
    kinds = ("decimal", "integer", "rank one", "equal rows", "zero")
    weights = [draw(rational_matrices((after, before), kinds)) for before, after in pairwise(sides)]
    biases = None
    if draw(st.booleans()):
        biases = [draw(rational_matrices((side, 1), ("decimal",))) for side in sides[1:]]
    return Network.of(weights, biases, between=draw(st.sampled_from(["relu", "tanh", "sigmoid", "group_sort"])))


# -- plain exact arithmetic ------------------------------------------------------------------------------------------


def to_rows(matrix: RationalMatrix) -> Rows:
    rows, columns = matrix.shape
    return [[matrix[i, j] for j in range(columns)] for i in range(rows)]


def transposed(a: Rows) -> Rows:
    return [list(column) for column in zip(*a, strict=True)]


def product(a: Rows, b: Rows) -> Rows:
    columns = transposed(b)
    return [[sum((x * y for x, y in zip(row, column, strict=True)), Fraction(0)) for column in columns] for row in a]


def smaller_gram(a: Rows) -> Rows:
    return product(a, transposed(a)) if len(a) <= len(a[0]) else product(transposed(a), a)


def minus(a: Rows, b: Rows) -> Rows:
    return [[x - y for x, y in zip(u, v, strict=True)] for u, v in zip(a, b, strict=True)]


def divided(a: Rows, divisor: Fraction) -> Rows:
    return [[x / divisor for x in row] for row in a]


def moved_to_grid(a: Rows, bits: int) -> Rows:
    """Each entry to the nearest multiple of 2^-bits, ties upwards."""
    return [[((x * 2**bits + Fraction(1, 2)) // 1) / Fraction(2**bits) for x in row] for row in a]


def sum_of_squares(a: Rows) -> Fraction:
    return sum((x * x for row in a for x in row), Fraction(0))


def is_positive_semidefinite(a: Rows) -> bool:
    """By symmetric elimination: no pivot is negative, and a zero pivot has a zero row."""
    rest = [list(row) for row in a]
    while rest:
        pivot, *right = rest[0]
        if pivot < 0 or (pivot == 0 and any(right)):
            return False
        rest = [
            [x - (row[0] * y / pivot if pivot else 0) for x, y in zip(row[1:], right, strict=True)] for row in rest[1:]
        ]
    return True


def at_least_the_norm(bound: Fraction, a: Rows) -> bool:
    """Whether bound >= ||A||, decided exactly: bound²·I - A·Aᵀ has no negative eigenvalue."""
    gram = smaller_gram(a)
    return bound >= 0 and is_positive_semidefinite(
        [[(bound**2 if i == j else 0) - x for j, x in enumerate(row)] for i, row in enumerate(gram)]
    )


def below_dyadic(x: Fraction, bits: int) -> Fraction:
    """The greatest `bits`-bit dyadic strictly below a positive `bits`-bit dyadic x."""
    top, bottom = x.numerator, x.denominator
    step = Fraction(2) ** (
        top.bit_length() - bottom.bit_length() + 1 - bits
    )  # an ulp of x; half of it at a power of two
    return x - (step / 2 if top & (top - 1) == 0 else step)


def is_dyadic(x: Fraction, bits: int) -> bool:
    """Whether x is an integer of at most `bits` bits times a power of two."""
    odd = abs(x.numerator) // (x.numerator & -x.numerator) if x else 0
    return x.denominator & (x.denominator - 1) == 0 and odd.bit_length() <= bits


def pieces(a: Rows, bits: int | None, count: int = 5) -> list[Rows]:
    """Matrices whose sum is `a`, all but the last with entries of `bits` bits: each can be subtracted exactly."""
    if bits is None:
        return [a]
    parts = []
    while len(parts) < count and any(map(any, a)):
        parts.append([[round_down(x, bits) for x in row] for row in a])
        a = minus(a, parts[-1])
    return [*parts, a]


def excludes_zero(made) -> bool:
    """Whether no member of a set of matrices is zero: its norm, or both ends of some entry, are on one side of zero.

    The ends are taken as they are, and beside 1: floats end, and what is below them has no sign.
    """
    if isinstance(made, GenericMatrix):
        return any(x.lower() > 0 or x.upper() < 0 for row in made.rows for x in row)
    squares = made.frobenius_squared()
    if squares.lower() > 0 or squares.upper() <= 0:
        return squares.lower() > 0
    exponent = (squares.upper().numerator.bit_length() - squares.upper().denominator.bit_length()) // 2
    ends = made.float_bounds(), made.ldexp(-exponent).float_bounds()
    return any(bool((lower > 0).any() or (upper < 0).any()) for lower, upper in ends)


def show(value: object) -> str:
    """Any operand in full: a set by its ends, a matrix by its entries."""
    if isinstance(value, RationalMatrix):
        return show(to_rows(value))
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(show, value)) + "]"
    if hasattr(value, "lower") and callable(value.lower) and not isinstance(value, str):
        return f"[{value.lower()} .. {value.upper()}]"
    return str(value)


def explain(what: str, **operands: object) -> str:
    """The message of a failed check: every operand, exactly."""
    return "\n".join([what, *(f"  {name} = {show(value)}" for name, value in operands.items())])
