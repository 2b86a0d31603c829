"""The contract of a number system: the law of inclusion, operation by operation, for every registered backend.

Each test draws exact points inside the operands, computes with plain fractions, and asks whether the result is inside.
Nothing here knows a particular backend. The one distinction is that of the protocol: where `working_bits` is None the
sets are points, so wide operands shrink to the point drawn and every answer is decided.

Matrices run twice where a backend has native ones: its own, and `GenericMatrix` over its scalars.
"""

import operator
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from itertools import product as pairs
from random import Random

import flint
import mpmath
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from strategies import (
    Segment,
    divided,
    explain,
    fractions,
    matrix_sets,
    minus,
    moved_to_grid,
    pieces,
    point_set,
    positive,
    product,
    random_fraction,
    rational_matrices,
    seeds,
    segments,
    segments_without_zero,
    shapes,
    smaller_gram,
    sum_of_squares,
    to_rows,
)

from intervalcert.backends import backend_names, get_backend, ladder
from intervalcert.backends.generic import GenericMatrix
from intervalcert.errors import UnboundedError
from intervalcert.protocol import Truth
from intervalcert.rational import RationalMatrix, sqrt_upper

PRECISIONS = (16, 64)  # the coarsest that is allowed, where everything rounds; and the default
OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}


@dataclass(frozen=True)
class System:
    """A number system with one of its ways to hold matrices."""

    backend: object
    generic: bool

    def matrix(self, data):
        return GenericMatrix.of(self.backend, data) if self.generic else self.backend.matrix(data)

    def of(self, rows):
        return self.matrix(RationalMatrix.from_fractions(rows))

    @property
    def of_points(self):
        return self.backend.working_bits is None

    @property
    def rounds(self):
        """The generic way to round widens each entry, which a point cannot be: such a backend has its own way."""
        return not (self.generic and self.of_points)

    def __str__(self):
        return f"{self.backend.name}-{self.backend.prec}{'-generic' if self.generic else ''}"


def _systems():
    """Every way to hold matrices, each at all precisions (one test runs through them: drawing is the dear part)."""
    one = RationalMatrix.from_integers([[1]])
    for name in backend_names():
        backends = [get_backend(name, prec) for prec in PRECISIONS]
        yield [System(backend, generic=False) for backend in backends]
        if not isinstance(backends[0].matrix(one), GenericMatrix):
            yield [System(backend, generic=True) for backend in backends]


SYSTEMS = tuple(_systems())
WIDE = tuple(group for group in SYSTEMS if not group[0].of_points)
ROUNDING = tuple(group for group in SYSTEMS if group[0].rounds)


def _name(group):
    return group[0].backend.name + ("-generic" if group[0].generic else "")


@pytest.fixture(scope="session")
def backends(backend_name):
    """One number system at all precisions."""
    return [get_backend(backend_name, prec) for prec in PRECISIONS]


@pytest.fixture(scope="session", params=SYSTEMS, ids=_name)
def systems(request):
    return request.param


@pytest.fixture(scope="session", params=WIDE, ids=_name)
def wide_systems(request):
    """Those whose sets may be more than points."""
    return request.param


@pytest.fixture(scope="session", params=ROUNDING, ids=_name)
def rounding_systems(request):
    """Those that can round: not the generic matrix over points, which cannot widen."""
    return request.param


def outside(system, found, rows):
    """Whether the set of matrices `found` excludes the matrix `rows`: then zero is refuted in the difference.

    The point is subtracted in pieces that are exact at the working precision, so that no rounding of the check itself
    hides a set that misses the point by less than the last bit.
    """
    assert found.shape == (len(rows), len(rows[0])), explain("a wrong shape", found=found.shape, expected=rows)
    for piece in pieces(rows, system.backend.working_bits):
        found = found - system.of(piece)
    return found.is_zero() is Truth.FALSE or found.frobenius_squared().lower() > 0


def check_inside(system, found, rows, what, **operands):
    assert not outside(system, found, rows), explain(
        f"{what} on {system}: the exact result is not in the enclosure", expected=rows, **operands
    )


# -- scalars ---------------------------------------------------------------------------------------------------------


def check_scalar(backend, found, expected, what, **operands):
    lower, upper = found.lower(), found.upper()
    assert type(lower) is Fraction, explain("an end that is not an exact rational", lower=lower, **operands)
    assert type(upper) is Fraction, explain("an end that is not an exact rational", upper=upper, **operands)
    assert lower <= expected <= upper, explain(
        f"{what} on {backend}: the exact result is not in the enclosure", found=found, expected=expected, **operands
    )
    if backend.working_bits is None:
        assert lower == upper, explain("a number system of points gave a wider set", found=found, **operands)


@given(value=fractions())
def test_scalar_contains_its_value(backends, value):
    for backend in backends:
        check_scalar(backend, backend.scalar(value), value, "scalar", value=value)


@given(segment=segments())
def test_hull_contains_both_ends(backends, segment):
    for backend in backends:
        if backend.working_bits is None and segment.lower < segment.upper:
            with pytest.raises(UnboundedError):
                backend.hull(segment.lower, segment.upper)
            continue
        for point in segment.points:
            check_scalar(backend, backend.hull(segment.lower, segment.upper), point, "hull", segment=segment)


@given(x=segments(), y=segments(), z=segments_without_zero())
def test_arithmetic_contains_the_exact_result(backends, x, y, z):
    """All nine pairs of points; where a divisor is away from zero there must be a result."""
    for backend, (sign, operation) in pairs(backends, OPERATIONS.items()):
        second = z if sign == "/" else y
        for a, b in pairs(x.points, second.points):
            found = operation(x.on(backend, a), second.on(backend, b))
            check_scalar(backend, found, operation(a, b), sign, x=x, y=second, a=a, b=b)


@given(x=fractions(), y=positive())
def test_arithmetic_on_points_is_tight(backends, x, y):
    """The law alone would allow the whole line. A point gives a set whose width is a rounding error, no more."""
    for backend, (sign, operation) in pairs(backends, OPERATIONS.items()):
        found = operation(backend.scalar(x), backend.scalar(y))
        size = max(abs(x), abs(y)) if sign in "+-" else abs(operation(x, y))
        allowed = 0 if backend.working_bits is None else size * Fraction(2) ** (6 - backend.working_bits)
        assert found.upper() - found.lower() <= allowed, explain(f"a wide {sign} of points", x=x, y=y, found=found)


@given(x=segments(), end=fractions())
def test_division_by_a_set_with_zero_is_refused(backends, x, end):
    for backend in backends:
        zero = backend.scalar(Fraction(0))
        divisors = [zero]
        if backend.working_bits is not None:
            divisors += [backend.hull(min(end, 0), max(end, 0)), backend.hull(-abs(end), abs(end)), zero * zero]
        for divisor in divisors:
            with pytest.raises(UnboundedError):
                x.on(backend, x.inner) / divisor


@given(x=segments(), y=segments())
def test_less_never_contradicts_a_pair_of_points(backends, x, y):
    for backend in backends:
        for a, b in pairs(x.points, y.points):
            answer = x.on(backend, a).less(y.on(backend, b))
            assert isinstance(answer, Truth)
            wrong = Truth.FALSE if a < b else Truth.TRUE
            assert answer is not wrong, explain(f"less on {backend} says {answer}", x=x, y=y, a=a, b=b)
            if backend.working_bits is None:
                assert answer is not Truth.UNKNOWN, explain("points are always comparable", a=a, b=b)


@given(x=fractions(), gap=positive())
def test_less_decides_what_is_apart(backends, x, gap):
    """Sets apart by a hundredth of their size are told apart at every precision, both ways round."""
    y = x + gap + abs(x) / 100
    for backend in backends:
        low, high = backend.scalar(x), backend.scalar(y)
        assert low.less(high) is Truth.TRUE, explain(f"not decided on {backend}", x=x, y=y)
        assert high.less(low) is Truth.FALSE, explain(f"not decided on {backend}", x=y, y=x)


@given(x=segments(), part=st.integers(0, 7), beyond=positive())
def test_less_of_overlapping_sets_is_unknown(wide_systems, x, part, beyond):
    """Some pairs are less and some are not: neither TRUE nor FALSE would be the truth."""
    assume(x.lower < x.upper)
    start = x.lower + part * (x.upper - x.lower) / 8
    for backend in (system.backend for system in wide_systems):
        first, second = backend.hull(x.lower, x.upper), backend.hull(start, x.upper + beyond)
        assert first.less(second) is Truth.UNKNOWN, explain("overlapping sets", x=first, y=second)
        assert second.less(first) is Truth.UNKNOWN, explain("overlapping sets", x=second, y=first)
        assert first.less(first) is Truth.UNKNOWN, explain("a wide set and itself", x=first)


@given(x=fractions())
def test_a_point_is_not_less_than_itself(backends, x):
    """The comparison is strict: this is what keeps equal logits from being certified at radius 0."""
    for backend in backends:
        same = backend.scalar(x)
        assert same.less(same) is not Truth.TRUE
        if same.lower() == same.upper():
            assert same.less(same) is Truth.FALSE


def random_tree(random, depth):
    """A segment, or (sign, tree, tree)."""
    if depth == 0 or random.random() < 0.2:
        inner = random_fraction(random)
        width = random.choice([0, abs(inner) / 2**40, abs(inner) / 3, abs(random_fraction(random))])
        return Segment(inner - width, inner, inner + width)
    return random.choice("+-*/"), random_tree(random, depth - 1), random_tree(random, depth - 1)


@given(x=segments())
def test_roots_contain_those_of_all_members(backends, x):
    """Rounded up to `prec` bits, as the exact run rounds them; what lies below zero counts as zero."""
    for backend in backends:
        for point in x.points:
            if backend.working_bits is None and point < 0:
                continue
            found = backend.sqrt_upper(x.on(backend, point))
            expected = sqrt_upper(max(point, Fraction(0)), backend.prec)
            check_scalar(backend, found, expected, "sqrt_upper", x=x, point=point)


@given(seed=seeds())
def test_expressions_contain_the_exact_result(backends, seed):
    """The induction over the law: operands that are results themselves, of unequal widths and scales."""
    tree = random_tree(Random(seed), depth=4)

    def evaluate(node, backend):
        if isinstance(node, Segment):
            return node.on(backend, node.inner), node.inner
        sign, left, right = node
        (x, a), (y, b) = evaluate(left, backend), evaluate(right, backend)
        if sign == "/" and y.lower() <= 0 <= y.upper():
            with pytest.raises(UnboundedError):
                x / y
            sign = "*"
        found, expected = OPERATIONS[sign](x, y), OPERATIONS[sign](a, b)
        check_scalar(backend, found, expected, sign, x=x, y=y, a=a, b=b, node=node)
        return found, expected

    for backend in backends:
        evaluate(tree, backend)


# -- matrices: can the check fail? -----------------------------------------------------------------------------------


@settings(max_examples=30)
@given(data=rational_matrices())
def test_matrix_contains_its_data_and_nothing_far_away(systems, data):
    """The second half proves that the containment check of this file is not vacuous, on this very system."""
    rows = to_rows(data)
    size = max(abs(x) for row in rows for x in row) or Fraction(1)
    for system in systems:
        made = system.matrix(data)
        check_inside(system, made, rows, "matrix", data=data)
        for i, j in pairs(range(len(rows)), range(len(rows[0]))):
            moved = [list(row) for row in rows]
            moved[i][j] += size / 2**10 * (-1) ** (i + j)
            assert outside(system, made, moved), explain("the check misses a point outside", data=data, moved=moved)


@given(seed=seeds())
def test_the_check_notices_a_lost_last_bit(wide_systems, seed):
    """A point beside an exact one by far less than a unit in the last place is seen to be outside."""
    for system in wide_systems:
        bits = system.backend.working_bits
        odd = Random(seed).getrandbits(bits) | 1  # representable at the working precision, and filling it
        beside = [[Fraction(odd) + Fraction(1, 4**bits), Fraction(-odd)]]
        assert outside(system, system.of([[Fraction(odd), Fraction(-odd)]]), beside)


class _Unwidened(GenericMatrix):
    """The mistake that `protocol` warns of: the rounding step is left out instead of enclosed."""

    def rounded(self, bits):
        return self, self.backend.scalar(Fraction(0))


def test_the_check_notices_rounding_that_is_left_out(backends):
    third = RationalMatrix.from_fractions([[Fraction(1, 3)]])
    for backend in backends:
        broken = _Unwidened(backend, GenericMatrix.of(backend, third).rows)
        found, error = broken.rounded(4)
        assert outside(System(backend, generic=True), GenericMatrix(backend, found.rows), [[Fraction(5, 16)]])
        assert error.upper() < (Fraction(1, 3) - Fraction(5, 16)) ** 2


# -- matrices: the operations ----------------------------------------------------------------------------------------


@given(sets=shapes().flatmap(lambda shape: st.tuples(matrix_sets(shape), matrix_sets(shape))))
def test_difference(systems, sets):
    a, b = sets
    expected = minus(a.point, b.point)
    for system in systems:
        check_inside(system, a.on(system) - b.on(system), expected, "-", a=a, b=b)


@given(sets=shapes().flatmap(lambda shape: st.tuples(matrix_sets(shape), matrix_sets(shape))))
def test_sum(systems, sets):
    a, b = sets
    expected = [[x + y for x, y in zip(*rows, strict=True)] for rows in zip(a.point, b.point, strict=True)]
    for system in systems:
        check_inside(system, a.on(system) + b.on(system), expected, "+", a=a, b=b)


@given(a=matrix_sets(), factor=segments())
def test_multiples(systems, a, factor):
    for system, point in pairs(systems, factor.points):
        found = a.on(system).times(factor.on(system.backend, point))
        expected = [[x * point for x in row] for row in a.point]
        check_inside(system, found, expected, "times", a=a, factor=factor, point=point)


@given(data=rational_matrices(), factor=positive())
def test_multiples_of_points_are_tight(systems, data, factor):
    exact = sum_of_squares(to_rows(data)) * factor**2
    for system in systems:
        found = system.matrix(data).times(system.backend.scalar(factor)).frobenius_squared()
        allowed = 0 if system.of_points else exact * Fraction(2) ** (10 - system.backend.working_bits)
        assert found.upper() - found.lower() <= allowed, explain("a wide multiple", data=data, factor=factor)


@given(a=matrix_sets())
def test_transpose(systems, a):
    expected = [list(column) for column in zip(*a.point, strict=True)]
    for system in systems:
        check_inside(system, a.on(system).transposed(), expected, "transposed", a=a)


@given(
    sets=st.tuples(*[st.integers(1, 4)] * 3).flatmap(
        lambda sides: st.tuples(matrix_sets(sides[:2]), matrix_sets(sides[1:]))
    )
)
def test_product(systems, sets):
    a, b = sets
    expected = product(a.point, b.point)
    for system in systems:
        check_inside(system, a.on(system) @ b.on(system), expected, "@", a=a, b=b)


@example(a=point_set([[1, 2, 3]]))
@example(a=point_set([[1], [2], [3]]))
@given(a=matrix_sets())
def test_gram_is_the_product_on_the_smaller_side(systems, a):
    expected = smaller_gram(a.point)
    side = min(a.data.shape)
    for system in systems:
        found = a.on(system).gram()
        assert found.shape == (side, side)
        check_inside(system, found, expected, "gram", a=a)


@given(a=matrix_sets(), divisor=segments_without_zero())
def test_division_by_a_scalar(systems, a, divisor):
    for system, point in pairs(systems, divisor.points):
        found = a.on(system).divided(divisor.on(system.backend, point))
        check_inside(system, found, divided(a.point, point), "divided", a=a, divisor=divisor, point=point)


@given(a=matrix_sets(), exponent=st.integers(-3000, 3000))
def test_scaling_by_a_power_of_two(systems, a, exponent):
    """There and back again it is the same set, up to a rounding of the radius."""
    factor = Fraction(2) ** exponent
    for system in systems:
        made = a.on(system)
        found = made.scaled(exponent)
        check_inside(system, found, [[x * factor for x in row] for row in a.point], "scaled", a=a, exponent=exponent)
        squares, again = made.frobenius_squared(), found.scaled(-exponent).frobenius_squared()
        slack = 0 if system.of_points else (squares.upper() + abs(squares.lower())) / 2**20
        assert squares.lower() - slack <= again.lower() <= squares.lower(), explain("not the same", a=a)
        assert squares.upper() <= again.upper() <= squares.upper() + slack, explain("not the same", a=a)


@given(a=matrix_sets(), end=positive())
def test_division_of_a_matrix_by_a_set_with_zero_is_refused(systems, a, end):
    for system in systems:
        divisors = [system.backend.scalar(Fraction(0))]
        if not system.of_points:
            divisors += [system.backend.hull(-end, end), system.backend.hull(Fraction(0), end)]
        for divisor in divisors:
            with pytest.raises(UnboundedError):
                a.on(system).divided(divisor)


@example(a=point_set([[-3, -1, 1, 3]], 8), bits=2)  # ties go upwards, also below zero
@given(a=matrix_sets(), bits=st.integers(0, 70))
def test_rounding_encloses_the_grid_point_and_the_movement(rounding_systems, a, bits):
    moved = moved_to_grid(a.point, bits)
    movement = sum_of_squares(minus(a.point, moved))
    most = Fraction(len(moved) * len(moved[0]), 4 ** (bits + 1))
    assert 0 <= movement <= most
    for system in rounding_systems:
        found, error = a.on(system).rounded(bits)
        check_inside(system, found, moved, "rounded", a=a, bits=bits)
        check_scalar(system.backend, error, movement, "the movement", a=a, bits=bits)
        slack = 0 if system.of_points else most / 2**20  # an enclosure of [0, most] sticks out by its rounding
        assert -slack <= error.lower() <= error.upper() <= most + slack, explain("too wide", error=error, most=most)


@given(a=matrix_sets())
def test_sum_of_squares(systems, a):
    expected = sum_of_squares(a.point)
    for system in systems:
        check_scalar(system.backend, a.on(system).frobenius_squared(), expected, "frobenius_squared", a=a)


@given(data=rational_matrices())
def test_sum_of_squares_of_points_is_tight(systems, data):
    exact = sum_of_squares(to_rows(data))
    for system in systems:
        found = system.matrix(data).frobenius_squared()
        allowed = 0 if system.of_points else exact * Fraction(2) ** (8 - system.backend.working_bits)
        assert found.upper() - found.lower() <= allowed, explain("a wide result of points", data=data, found=found)


@given(a=matrix_sets())
def test_rows(systems, a):
    for system in systems:
        made = a.on(system)
        for index, row in enumerate(a.point):
            check_inside(system, made.row(index), [row], f"row {index}", a=a)


@given(a=matrix_sets())
def test_is_zero_never_contradicts_the_point(systems, a):
    wrong = Truth.TRUE if any(map(any, a.point)) else Truth.FALSE
    for system in systems:
        answer = a.on(system).is_zero()
        assert isinstance(answer, Truth)
        assert answer is not wrong, explain(f"is_zero on {system} says {answer}", a=a, point=a.point)
        if system.of_points:
            assert answer is not Truth.UNKNOWN


@given(data=rational_matrices())
def test_is_zero_decides_points(systems, data):
    """Rounding is relative, so that no rational but zero looks like zero, however small, at any precision."""
    expected = Truth.FALSE if any(map(any, to_rows(data))) else Truth.TRUE
    for system in systems:
        assert system.matrix(data).is_zero() is expected, explain(f"not decided on {system}", data=data)


@pytest.mark.parametrize("shape", [(1, 1), (2, 3)])
def test_is_zero_of_a_set_around_zero_is_unknown(wide_systems, shape):
    rows, columns = shape
    for system in wide_systems:
        ones = system.of([[Fraction(1)] * columns] * rows)
        around = ones.divided(system.backend.hull(Fraction(1, 2), Fraction(2))) - ones
        assert around.is_zero() is Truth.UNKNOWN
        last = system.of([[Fraction(5 * (i + j == rows + columns - 2)) for j in range(columns)] for i in range(rows)])
        assert (around - last).is_zero() is Truth.FALSE, "one entry away from zero refutes it for the whole matrix"


@settings(max_examples=30)
@given(a=matrix_sets(kinds=("decimal", "rank one", "gaussian", "subnormal", "huge", "mixed scales")))
def test_three_steps_of_gram_iteration_enclose_the_exact_ones(rounding_systems, a):
    """The composition that the bounds are made of: gram, divided by its norm, rounded to the grid."""
    for system in rounding_systems:
        backend = system.backend
        rows, made = a.point, a.on(system)
        for step in range(3):
            rows, made = smaller_gram(rows), made.gram()
            check_inside(system, made, rows, f"gram of step {step}", a=a)
            norm = sqrt_upper(sum_of_squares(rows), backend.prec)
            if norm == 0:
                break
            rows, made = divided(rows, norm), made.divided(backend.scalar(norm))
            check_inside(system, made, rows, f"quotient of step {step}", a=a)
            rows, made = moved_to_grid(rows, backend.prec), made.rounded(backend.prec)[0]
            check_inside(system, made, rows, f"grid of step {step}", a=a)


# -- native against generic ------------------------------------------------------------------------------------------


@given(
    sets=shapes().flatmap(lambda shape: st.tuples(matrix_sets(shape), matrix_sets(shape))), c=segments_without_zero()
)
def test_native_and_generic_matrices_agree(backends, sets, c):
    """The same numbers from both: equal where sets are points, else with a point in common; the same answers."""

    def results(system):
        a, b = (item.on(system) for item in sets)
        for made in (a, a - b, a.gram(), a.gram() @ b.gram(), a.divided(c.on(system.backend, c.inner))):
            yield made.shape, made.frobenius_squared()
            yield from (((1, made.shape[1]), made.row(i).frobenius_squared()) for i in range(made.shape[0]))

    for backend in backends:
        native, generic = System(backend, generic=False), System(backend, generic=True)
        for (shape, x), (other_shape, y) in zip(results(native), results(generic), strict=True):
            assert shape == other_shape
            common = max(x.lower(), y.lower()) <= min(x.upper(), y.upper())
            assert common, explain(f"apart on {backend}", native=x, generic=y, sets=sets, divisor=c)
            if backend.working_bits is None:
                assert x.lower() == y.lower(), explain("unequal points", native=x, generic=y, sets=sets, divisor=c)
        data = sets[0].data
        assert native.matrix(data).is_zero() is generic.matrix(data).is_zero(), explain("is_zero", data=data)


# -- the backend object ----------------------------------------------------------------------------------------------


def test_names_are_those_of_the_registry(backend_name):
    assert get_backend(backend_name).name == backend_name


def test_equal_precision_means_equal_so_the_certifier_may_use_it_as_a_key(backends):
    for backend in backends:
        again = get_backend(backend.name, backend.prec)
        assert again == backend
        assert hash(again) == hash(backend)
        assert get_backend(backend.name, backend.prec + 1) != backend
        assert backend not in [get_backend(other, backend.prec) for other in backend_names() if other != backend.name]


def test_refined_keeps_the_grid_and_doubles_the_bits(backends):
    """Rungs of one `prec` are comparable; that is what makes the fallback's answers the same answers."""
    for backend in backends:
        finer = backend.refined()
        if finer is None:
            assert backend.name in {"exact", "float64"}  # points, and the machine's own precision
            continue
        assert (finer.name, finer.prec, finer.working_bits) == (backend.name, backend.prec, 2 * backend.working_bits)
        assert finer != backend
        coarse, fine = backend.scalar(Fraction(1, 3)), finer.scalar(Fraction(1, 3))
        assert 0 < fine.upper() - fine.lower() < (coarse.upper() - coarse.lower()) / 2 ** (backend.working_bits - 4)


def test_a_ladder_ends_in_points(backend_name):
    """Whatever is asked last is never undecided."""
    rungs = ladder(backend_name, 32)
    assert rungs[0] == get_backend(backend_name, 32)
    assert {rung.prec for rung in rungs} == {32}
    assert [rung.working_bits is None for rung in rungs] == [False] * (len(rungs) - 1) + [True]


def test_a_backend_cannot_be_changed(backends):
    with pytest.raises(AttributeError):
        backends[0].prec = 7


# -- process-wide settings -------------------------------------------------------------------------------------------


@contextmanager
def global_precision(bits):
    """What another user of the same libraries in this process may have set."""
    before = flint.ctx.prec, mpmath.mp.prec, mpmath.iv.prec
    flint.ctx.prec = mpmath.mp.prec = mpmath.iv.prec = bits
    try:
        yield
        assert (flint.ctx.prec, mpmath.mp.prec, mpmath.iv.prec) == (bits,) * 3, "a global precision was left changed"
    finally:
        flint.ctx.prec, mpmath.mp.prec, mpmath.iv.prec = before


@settings(max_examples=20)
@given(
    x=segments(),
    y=segments_without_zero(),
    a=matrix_sets((2, 3)),
    b=matrix_sets((2, 3)),
    bits=st.sampled_from([2, 10, 1000]),
)
def test_results_do_not_depend_on_process_wide_precision(systems, x, y, a, b, bits):
    """Not only sound: the very same sets, made and used under any global precision, which is as it was afterwards."""

    def results(system):
        backend = system.backend
        left, right = x.on(backend, x.inner), y.on(backend, y.inner)
        first, second = a.on(system), b.on(system)
        scalars = [operation(left, right) for operation in OPERATIONS.values()]
        made = [first - second, first.gram(), second.gram() @ first, first.divided(right), second.row(1)]
        if system.rounds:
            moved, error = first.rounded(backend.prec)
            made.append(moved)
            scalars.append(error)
        scalars += [matrix.frobenius_squared() for matrix in made]
        answers = [left.less(right), right.less(left), *(matrix.is_zero() for matrix in made)]
        return [(scalar.lower(), scalar.upper()) for scalar in scalars], answers

    for system in systems:
        expected = results(system)
        with global_precision(bits):
            found = results(system)
            inside = not outside(system, a.on(system).gram(), smaller_gram(a.point))
        assert found == expected, explain(f"changed under {bits} bits on {system}", x=x, y=y, a=a, b=b)
        assert inside, explain(f"gram under {bits} bits on {system}", a=a)
        for (sign, operation), (lower, upper) in zip(OPERATIONS.items(), found[0], strict=False):
            exact = operation(x.inner, y.inner)
            assert lower <= exact <= upper, explain(f"{sign} under {bits} bits on {system}", x=x, y=y, exact=exact)
