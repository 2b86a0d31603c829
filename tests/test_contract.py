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
from functools import cache
from itertools import chain
from itertools import product as pairs
from random import Random

import flint
import mpmath
import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from strategies import (
    Segment,
    divided,
    excludes_zero,
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
    reciprocal,
    seeds,
    segments,
    segments_around_zero,
    segments_without_zero,
    shapes,
    smaller_gram,
    sum_of_squares,
    to_rows,
)

from intervalcert.backends.float64 import Float64Matrix
from intervalcert.backends.generic import GenericMatrix
from intervalcert.backends.protocol import Truth, is_wider
from intervalcert.backends.registry import backend_names, get_backend, precision_ladder
from intervalcert.errors import UnboundedError
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.rounding import round_down, round_up, sqrt_upper

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
    return excludes_zero(found)


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


class _Inward(GenericMatrix):
    """Ends that are the nearest floats, not those around."""

    def float_bounds(self):
        rows = [[(float(x.lower()), float(x.upper())) for x in row] for row in self.rows]
        return np.array(rows)[..., 0], np.array(rows)[..., 1]


def test_the_check_notices_ends_that_round_inward(backends):
    some = [[Fraction(1, 3), Fraction(2, 3), Fraction(-1, 10)]]
    for backend in backends:
        # Where enclosures are wider than a float's last bit, rounding them to the nearest float loses nothing.
        if (backend.working_bits or 64) > 60:
            rows = GenericMatrix.of(backend, RationalMatrix.from_fractions(some)).rows
            assert missed(_Inward(backend, rows).float_bounds(), some)
            assert not missed(GenericMatrix(backend, rows).float_bounds(), some)


def test_the_check_notices_what_float64_forgets():
    """A product without its rounding, a positive part and a block without the radius, a norm that is none, and more."""
    system = System(get_backend("float64"), generic=False)
    full = Fraction(2**53 - 1, 2**52)
    made, weight = system.of([[full]]), np.array([float(full)])
    careless = Float64Matrix(made.centre * weight[:, None] * weight, made.exponent, 0.0)
    assert outside(system, careless, weigh([[full]], weight, weight))
    assert not outside(system, made.diag_scaled(weight, weight), weigh([[full]], weight, weight))

    wide = system.of([[Fraction(1)]]).scalar_mul(system.backend.hull(Fraction(1, 2), Fraction(2)))
    two = [[Fraction(2)]]
    for forgetful in (np.maximum(wide.centre, 0), wide.centre):
        assert outside(system, Float64Matrix(forgetful, wide.exponent, 0.0), two)
    assert not outside(system, wide.positive_part(), two)

    # Rows named twice, halves with an error each, factors that have one, a middle that is taken for the set.
    for found, forgetful in (
        (wide.rows_at(np.array([0, 0])), Float64Matrix(wide.centre[[0, 0]], wide.exponent, wide.error)),
        (wide.stacked([wide]), Float64Matrix(wide.centre[[0, 0]], wide.exponent, wide.error)),
    ):
        assert outside(system, forgetful, two * 2)
        assert not outside(system, found, two * 2)
    four = [[Fraction(4)]]
    careless = Float64Matrix(wide.centre * wide.centre, 2 * wide.exponent, wide.error * float(wide.centre[0, 0]))
    assert outside(system, careless, four)
    assert not outside(system, wide.row_scaled(wide), four)
    middle, apart = wide.recentred()
    assert outside(system, middle, two)
    assert not outside(system, middle.blurred(apart), two)

    one = system.of([[Fraction(1)]])
    assert outside(system, one.with_norm_bound(Fraction(1, 8)) @ wide, two)
    assert not outside(system, one.with_norm_bound(Fraction(1)) @ wide, two)


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
        found = a.on(system).scalar_mul(factor.on(system.backend, point))
        expected = [[x * point for x in row] for row in a.point]
        check_inside(system, found, expected, "times", a=a, factor=factor, point=point)


ENDS = Fraction(1, 2), Fraction(1)


@cache
def alternating(wide):
    """Signs, factors row by row in turn, and the products of both; exactly."""
    signs = [[Fraction((-1) ** (i + j)) for j in range(wide)] for i in range(wide)]
    scaled = [[ENDS[i % 2]] * wide for i in range(wide)]
    return signs, scaled, product(signs, scaled), product(transpose(scaled), signs)


@pytest.mark.parametrize("wide", [2, 70])
def test_every_entry_has_a_factor_of_its_own(systems, wide):
    """Factors at the two ends, row by row in turn, and then a product that sees the difference: it must not cancel."""
    signs, scaled, after, before = alternating(wide)
    large = {"arb", "float64"}  # what has a way of its own with large products
    for system in systems:
        if system.of_points or (wide > 2 and (system.generic or system.backend.name not in large)):
            continue
        made = system.of([[Fraction(1)] * wide] * wide).scalar_mul(system.backend.hull(*ENDS))
        check_inside(system, made, scaled, "times", wide=wide)
        check_inside(system, system.of(signs) @ made, after, "times, then @", wide=wide)
        check_inside(system, made.transposed() @ system.of(signs), before, "@", wide=wide)


def test_matrices_of_different_shapes_have_no_sum(systems):
    """What numpy would repeat proves nothing about the rest."""
    for system in systems:
        small, large = system.of([[Fraction(1)]]), system.of([[Fraction(1)] * 2] * 2)
        for one, other in ((small, large), (large, small), (system.of([[Fraction(1)] * 2]), large)):
            for operation in (operator.add, operator.sub):
                with pytest.raises(ValueError):  # noqa: PT011 - whoever says so
                    operation(one, other)


def transpose(rows):
    return [list(column) for column in zip(*rows, strict=True)]


@given(data=rational_matrices(), factor=positive())
def test_multiples_of_points_are_tight(systems, data, factor):
    exact = sum_of_squares(to_rows(data)) * factor**2
    for system in systems:
        found = system.matrix(data).scalar_mul(system.backend.scalar(factor)).frobenius_squared()
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
def test_multiples_by_a_quotient(systems, a, divisor):
    for system, point in pairs(systems, divisor.points):
        found = a.on(system).scalar_mul(reciprocal(system.backend, divisor.on(system.backend, point)))
        check_inside(system, found, divided(a.point, point), "quotient", a=a, divisor=divisor, point=point)


@given(a=matrix_sets(), exponent=st.integers(-3000, 3000))
def test_scaling_by_a_power_of_two(systems, a, exponent):
    """There and back again it is the same set, up to a rounding of the radius."""
    factor = Fraction(2) ** exponent
    for system in systems:
        made = a.on(system)
        found = made.ldexp(exponent)
        check_inside(system, found, [[x * factor for x in row] for row in a.point], "scaled", a=a, exponent=exponent)
        squares, again = made.frobenius_squared(), found.ldexp(-exponent).frobenius_squared()
        slack = 0 if system.of_points else (squares.upper() + abs(squares.lower())) / 2**20
        least = max(squares.lower(), Fraction(0))  # no square is below zero, wherever an end sticks out to
        assert squares.lower() - slack <= again.lower() <= least, explain("not the same", a=a)
        assert squares.upper() <= again.upper() <= squares.upper() + slack, explain("not the same", a=a)


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


@settings(max_examples=30)
@given(data=rational_matrices(kinds=("decimal", "integer", "gaussian")), bits=st.integers(0, 20))
def test_rounding_of_products(rounding_systems, data, bits):
    """What a product is made of may have a way to round of its own."""
    for rows in (to_rows(data), [[round_down(x, 24) / 8 for x in row] for row in to_rows(data)]):
        exact = smaller_gram(rows)
        moved = moved_to_grid(exact, bits)
        movement = sum_of_squares(minus(exact, moved))
        for system in rounding_systems:
            found, error = system.of(rows).gram().rounded(bits)
            check_inside(system, found, moved, "rounded", data=data, bits=bits)
            check_scalar(system.backend, error, movement, "the movement", data=data, bits=bits)


@given(a=matrix_sets())
def test_sum_of_squares(systems, a):
    expected = sum_of_squares(a.point)
    for system in systems:
        check_scalar(system.backend, a.on(system).frobenius_squared(), expected, "frobenius_squared", a=a)


@given(x=segments_around_zero())
def test_squares_of_sets_around_zero(systems, x):
    """Of one entry, and of two that vary together: of all points, and of both ends the larger one counts."""
    for system, point in pairs(systems, x.points):
        made = system.of([[Fraction(1), Fraction(-1, 2)]]).scalar_mul(x.on(system.backend, point))
        check_scalar(system.backend, made.frobenius_squared(), point**2 * Fraction(5, 4), "squares", x=x, point=point)
        single = made.block(np.array([0]), np.array([0]))
        check_scalar(system.backend, single.frobenius_squared(), point**2, "a square", x=x, point=point)


@given(data=rational_matrices())
def test_sum_of_squares_of_points_is_tight(systems, data):
    exact = sum_of_squares(to_rows(data))
    for system in systems:
        found = system.matrix(data).frobenius_squared()
        allowed = 0 if system.of_points else exact * Fraction(2) ** (8 - system.backend.working_bits)
        assert found.upper() - found.lower() <= allowed, explain("a wide result of points", data=data, found=found)


def distances(rows, metric=None):
    """(x - y)ᵀP(x - y) of all pairs of rows, in the order of the protocol."""
    found = []
    for j, x in enumerate(rows):
        for y in rows[:j]:
            apart = minus([x], [y])
            moved = apart if metric is None else product(apart, metric)
            found.append(sum((a * b for a, b in zip(moved[0], apart[0], strict=True)), Fraction(0)))
    return found


def check_vector(system, found, expected, what, **operands):
    assert len(found) == len(expected), explain(f"{what}: a wrong length", **operands)
    for place, value in enumerate(expected):
        check_scalar(system.backend, found[place], value, what, place=place, **operands)


@given(
    sets=st.tuples(st.integers(1, 5), st.integers(1, 4)).flatmap(
        lambda sides: st.tuples(matrix_sets(sides), st.one_of(st.none(), matrix_sets((sides[1], sides[1]))))
    )
)
def test_distances_of_rows(systems, sets):
    a, metric = sets
    expected = distances(a.point, None if metric is None else metric.point)
    for system in systems:
        found = a.on(system).distances_squared(None if metric is None else metric.on(system))
        check_vector(system, found, expected, "distances_squared", a=a, metric=metric)


@given(data=rational_matrices(kinds=("decimal", "integer", "gaussian", "rank one", "equal rows", "zero")))
def test_distances_of_points_are_tight(systems, data):
    """As a part of the squares of all rows: what is near zero by cancellation alone is no wider than that."""
    rows = to_rows(data)
    expected, size = distances(rows), sum_of_squares(rows)
    for system in systems:
        found = system.matrix(data).distances_squared()
        allowed = 0 if system.of_points else size * Fraction(2) ** (10 - system.backend.working_bits)
        wide = [place for place in range(len(expected)) if found[place].upper() - found[place].lower() > allowed]
        assert wide == [], explain("a wide distance", data=data)


@given(a=matrix_sets(), factor=segments(), seed=seeds(), bits=st.integers(1, 70))
def test_what_is_done_with_vectors(systems, a, factor, seed, bits):
    """Multiples, roots, ends rounded up, and other entries in some places; one after the other."""
    random, squares = Random(seed), distances(a.point)
    for system, point in pairs(systems, factor.points):
        backend = system.backend
        made, operands = a.on(system).distances_squared(), {"a": a, "factor": factor}
        scaled = [x * point for x in squares]
        multiple = made.scalar_mul(factor.on(backend, point))
        check_vector(system, multiple, scaled, "times", **operands)
        roots = [sqrt_upper(x, backend.prec) for x in squares]
        found = made.roots(backend)
        check_vector(system, found, roots, "roots", **operands)
        sums = [x + y for x, y in zip(scaled, roots, strict=True)]
        check_vector(system, multiple + found, sums, "plus", **operands)
        others = {place: random_fraction(random) for place in range(len(squares)) if random.random() < 0.5}
        replaced = found.replaced({place: backend.scalar(x) for place, x in others.items()})
        mixed = [others.get(place, x) for place, x in enumerate(roots)]
        check_vector(system, replaced, mixed, "replaced", **operands)
        check_vector(system, found, roots, "replaced changes the vector itself", **operands)
        for vector, values in ((multiple, scaled), (replaced, mixed)):
            upper = list(vector.upper(bits))
            assert all(x >= round_up(y, bits) for x, y in zip(upper, values, strict=True)), explain("below", **operands)
            fits = all(x == round_up(x, bits) for x in upper)
            assert fits, explain("more bits than asked for", bits=bits, **operands)
            blunt = set(vector.blunt(20))
            for place in range(len(values)):
                assert place in blunt or not is_wider(vector[place], 19), explain("a wide one is sharp", **operands)
                assert place not in blunt or is_wider(vector[place], 21), explain("a sharp one is wide", **operands)


def test_equal_rows_have_no_distance(systems):
    """Not a small one: then everything after it is sharp, and a margin of 0 limits nothing."""
    data = RationalMatrix.from_integers([[1, 5], [1, 5], [3, 7], [1, 5]], 4)
    metric = RationalMatrix.from_integers([[2, 1], [1, 3]], 8)
    for system in systems:
        backend = system.backend
        for found in (
            system.matrix(data).distances_squared(),
            system.matrix(data).distances_squared(system.matrix(metric)),
        ):
            for vector in (found, found.scalar_mul(backend.scalar(Fraction(7))).roots(backend)):
                assert [vector[k].upper() for k in (0, 3, 4)] == [0, 0, 0]
                assert vector[1].lower() > 0
                assert list(vector.blunt(20)) == []
                assert [x == 0 for x in vector.upper(16)] == [True, False, False, True, True, False]


@given(a=matrix_sets(), seed=seeds())
def test_blocks(systems, a, seed):
    """Some rows and columns, in any order; a row or column alone, and all of them."""
    random, (most, width) = Random(seed), a.data.shape
    chosen = [random.sample(range(side), random.randint(1, side)) for side in (most, width)]
    for system in systems:
        made = a.on(system)
        for rows, columns in (chosen, ([most - 1], range(width)), (range(most), [0]), (range(most), range(width))):
            expected = [[a.point[i][j] for j in columns] for i in rows]
            found = made.block(np.array(rows), np.array(columns))
            check_inside(system, found, expected, f"block {rows}, {columns}", a=a)


def test_a_block_takes_nothing_twice(systems):
    """A ball around a part is no larger than the one around all, but not if the part is repeated."""
    for system in systems:
        made = system.of([[Fraction(1), Fraction(2)]])
        for rows, columns in (([0, 0], [0]), ([0], [1, 1]), ([0, -1], [0]), ([0], [-1])):
            with pytest.raises(ValueError, match="once"):
                made.block(np.array(rows), np.array(columns))


def named(rows, index):
    """The rows of an index, zeros where it is -1."""
    return [list(rows[i]) if i >= 0 else [Fraction(0)] * len(rows[0]) for i in index]


def random_index(random, rows):
    """Some rows more than once, some not at all, some of zeros; now and then each once, or none."""
    kind = random.randrange(6)
    if kind == 0:
        return random.sample(range(rows), rows)
    if kind == 1:
        return [-1] * random.randint(1, 3)
    return [random.randint(-1, rows - 1) for _ in range(random.randint(1, 2 * rows + 1))]


def and_as_product(system, a):
    """The set, and once more as a product with the unit matrix: what products are made of may be held otherwise."""
    side = range(a.data.shape[1])
    made = a.on(system)
    return made, made @ system.of([[Fraction(i == j) for j in side] for i in side])


@given(a=matrix_sets(), seed=seeds())
def test_rows_that_are_named(systems, a, seed):
    """As they are, and in a product with each other, where a row that is there twice is so in both."""
    index = random_index(Random(seed), a.data.shape[0])
    expected = named(a.point, index)
    for system in systems:
        for made in and_as_product(system, a):
            found = made.rows_at(np.array(index))
            check_inside(system, found, expected, f"rows_at {index}", a=a)
            check_inside(system, found.gram(), smaller_gram(expected), f"rows_at {index}, gram", a=a)
            check_inside(system, made, a.point, "rows_at changes the matrix itself", a=a)


@pytest.mark.parametrize("index", [[2], [-2], [0, 1, 2], [-2, 0], [], [[0]]])
def test_rows_that_are_not_there_are_refused(systems, index):
    for system in systems:
        with pytest.raises(ValueError, match="rows are named"):
            system.of([[Fraction(1)], [Fraction(2)]]).rows_at(np.array(index, dtype=np.intp))


@given(a=matrix_sets(), seed=seeds())
def test_other_shapes(systems, a, seed):
    """Of a matrix, of its transpose, whose order is another one, and of a product."""
    entries, turned = (list(chain(*rows)) for rows in (a.point, transpose(a.point)))
    columns = Random(seed).choice([k for k in range(1, len(entries) + 1) if len(entries) % k == 0])
    shape = len(entries) // columns, columns
    for system in systems:
        made, again = and_as_product(system, a)
        for found, order in (
            (made, entries),
            (made.transposed(), turned),
            (again, entries),
            (again.transposed(), turned),
        ):
            expected = [order[k : k + columns] for k in range(0, len(order), columns)]
            check_inside(system, found.reshaped(shape), expected, f"reshaped {shape}", a=a)


@pytest.mark.parametrize("shape", [(1, 5), (7, 1), (-1, 6), (-2, -3), (0, 6), (6, 0)])
def test_shapes_of_other_sizes_are_refused(systems, shape):
    for system in systems:
        with pytest.raises(ValueError, match="shape"):
            system.of([[Fraction(1), Fraction(2), Fraction(3)]] * 2).reshaped(shape)


@given(
    sets=st.tuples(st.lists(st.integers(1, 3), min_size=1, max_size=3), st.integers(1, 3)).flatmap(
        lambda sides: st.tuples(*(matrix_sets((rows, sides[1])) for rows in sides[0]))
    )
)
def test_matrices_one_above_the_other(systems, sets):
    """Of unequal scales, and of the same: a set above itself, whose two halves are as they are."""
    expected = [row for a in sets for row in a.point]
    for system in systems:
        first, *others = (a.on(system) for a in sets)
        check_inside(system, first.stacked(others), expected, "stacked", sets=sets)
        again = and_as_product(system, sets[0])[1]
        check_inside(system, first.stacked([first, again]), sets[0].point * 3, "stacked on itself", a=sets[0])
        check_inside(system, again.stacked([first]), sets[0].point * 2, "a product stacked", a=sets[0])
        check_inside(system, first.stacked([]), sets[0].point, "stacked alone", a=sets[0])


def test_matrices_of_other_widths_are_not_stacked(systems):
    for system in systems:
        wide, narrow = system.of([[Fraction(1), Fraction(2)]]), system.of([[Fraction(1)]])
        for first, others in ((wide, [narrow]), (narrow, [wide]), (wide, [wide, narrow])):
            with pytest.raises(ValueError, match="one above the other"):
                first.stacked(others)


@given(sets=shapes().flatmap(lambda shape: st.tuples(matrix_sets(shape), matrix_sets((shape[0], 1)))))
def test_a_factor_for_each_row(systems, sets):
    a, column = sets
    expected = [[x * factor for x in row] for row, (factor,) in zip(a.point, column.point, strict=True)]
    for system in systems:
        for made, factors in zip(and_as_product(system, a), and_as_product(system, column), strict=True):
            check_inside(system, made.row_scaled(factors), expected, "row_scaled", a=a, column=column)


def test_factors_for_other_rows_are_refused(systems):
    """What numpy would repeat is no factor of the other rows."""
    for system in systems:
        made = system.of([[Fraction(1), Fraction(2)]] * 2)
        for rows in ([[1]], [[1, 2]], [[1, 2], [3, 4]], [[1]] * 3):
            with pytest.raises(ValueError, match="factors"):
                made.row_scaled(system.of([[Fraction(x) for x in row] for row in rows]))


def sorted_rows(rows, size):
    """Each column of each group of rows, ascending."""
    groups = [rows[k : k + size] for k in range(0, len(rows), size)]
    return [row for group in groups for row in transpose([sorted(column) for column in transpose(group)])]


@given(
    sets=st.tuples(st.integers(1, 3), st.integers(1, 4), st.integers(1, 3)).flatmap(
        lambda sides: st.tuples(st.just(sides[1]), *[matrix_sets((sides[0] * sides[1], sides[2])) for _ in range(2)])
    )
)
def test_sorting(systems, sets):
    """Of sets that are apart, that overlap, and of a difference, whose scale may have another sign."""
    size, a, b = sets
    for system in systems:
        first, second = a.on(system), b.on(system)
        for made in and_as_product(system, a):
            check_inside(system, made.sorted_within(size), sorted_rows(a.point, size), f"sorted_within {size}", a=a)
        apart, exact = (first - second).sorted_within(size), sorted_rows(minus(a.point, b.point), size)
        check_inside(system, apart, exact, f"sorted_within {size} of -", a=a, b=b)
        turned = first.scalar_mul(system.backend.scalar(Fraction(-1))).sorted_within(size)
        expected = sorted_rows([[-x for x in row] for row in a.point], size)
        check_inside(system, turned, expected, f"sorted_within {size} of the negative", a=a)


@settings(max_examples=30)
@given(seed=seeds(), size=st.integers(2, 4), factor=segments())
def test_sorting_contains_every_choice_of_ends(wide_systems, seed, size, factor):
    """Each entry is multiplied by one or another end of a set, each its own: all of those come out sorted."""
    random = Random(seed)
    rows = [[random_fraction(random)] for _ in range(size)]
    for system in wide_systems:
        made = system.of(rows).scalar_mul(factor.on(system.backend, factor.inner)).sorted_within(size)
        for ends in pairs((factor.lower, factor.upper), repeat=size):
            expected = sorted_rows([[x * end] for (x,), end in zip(rows, ends, strict=True)], size)
            check_inside(system, made, expected, "sorted_within", entries=rows, factor=factor, ends=ends)


@pytest.mark.parametrize("size", [0, -1, 3, 5])
def test_groups_that_do_not_divide_the_rows_are_refused(systems, size):
    for system in systems:
        with pytest.raises(ValueError, match="groups"):
            system.of([[Fraction(k)] for k in range(4)]).sorted_within(size)


def moved_by(rows, random, distance):
    """Another matrix, at that distance or a little less: in one entry alone, or in all."""
    direction = [[random_fraction(random) for _ in row] for row in rows]
    if random.random() < 0.5:
        i, j = random.randrange(len(rows)), random.randrange(len(rows[0]))
        direction = [[Fraction((u, v) == (i, j)) for v in range(len(rows[0]))] for u in range(len(rows))]
    length = sqrt_upper(sum_of_squares(direction), 100)
    step = distance / length * random.choice([-1, 1]) if length else Fraction(0)
    return [[x + step * y for x, y in zip(*pair, strict=True)] for pair in zip(rows, direction, strict=True)]


@given(a=matrix_sets(), apart=segments(), seed=seeds())
def test_blurred_sets_contain_what_is_near_a_member(systems, a, apart, seed):
    """The upper end counts; what is below zero is none of a distance."""
    random, distance = Random(seed), max(apart.upper, Fraction(0))
    near = [moved_by(a.point, random, distance * Fraction(part, 4)) for part in (0, 3, 4, 4)]
    for system in systems:
        made, backend = a.on(system), system.backend
        if system.of_points:
            if distance:
                with pytest.raises(UnboundedError):
                    made.blurred(backend.scalar(apart.upper))
            check_inside(system, made.blurred(backend.scalar(Fraction(0))), a.point, "not blurred", a=a)
            continue
        found = made.blurred(backend.hull(apart.lower, apart.upper))
        for rows in near:
            check_inside(system, found, rows, "blurred", a=a, apart=apart)


@given(data=rational_matrices(), apart=positive())
def test_blurred_points_are_tight(wide_systems, data, apart):
    """As far as that in every direction and no further: in an entry, and in the whole where sets are balls."""
    rows = to_rows(data)
    size = sqrt_upper(sum_of_squares(rows), 64)
    for system in wide_systems:
        found = system.matrix(data).blurred(system.backend.scalar(apart))
        beyond = [list(row) for row in rows]
        beyond[-1][0] += apart * Fraction(65, 64) + size / 2 ** (system.backend.working_bits - 10)
        assert outside(system, found, beyond), explain("too wide", data=data, apart=apart)
        if not system.generic and system.backend.name in {"arb", "float64"}:
            most = (size + apart) * Fraction(65, 64)
            assert found.frobenius_squared().upper() <= most**2, explain("too wide", data=data, apart=apart)


@pytest.mark.parametrize("scale", [Fraction(1), Fraction(-3, 7), Fraction(2) ** -200])
def test_members_on_the_border_are_kept(wide_systems, scale):
    """Balls of a radius r around a point: members that use it up in one entry, and what is then made of them.

    Sixteen times the same row, or sixteen balls: four times r in all, more than any check could mistake for r.
    """
    rows = [[Fraction(i + j) for j in range(9)] for i in range(4)]
    r, most = Fraction(1, 2), abs(scale)
    for system in wide_systems:

        def scaled(exact, system=system):
            return system.of(exact).scalar_mul(system.backend.scalar(scale))

        def times(exact):
            return [[x * scale for x in row] for row in exact]

        distance = system.backend.scalar(r * most)
        made, member = scaled(rows).blurred(distance), [list(row) for row in rows]
        member[3][8] += r
        index = [3] * 16 + [-1, 0]
        check_inside(system, made, times(member), "blurred")
        check_inside(system, made.rows_at(np.array(index)), times(named(member, index)), "rows_at")
        check_inside(system, made.stacked([made] * 15), times(member * 16), "stacked")
        many = [scaled(rows).ldexp(-k).blurred(distance) for k in range(16)]  # on unequal scales
        halved = [[[x / 2**k for x in row] for row in rows] for k in range(16)]
        for exact in halved:
            exact[3][8] += r
        check_inside(system, many[0].stacked(many[1:]), times(chain(*halved)), "stacked")
        flat = list(chain(*member))
        check_inside(system, made.reshaped((9, 4)), times([flat[k : k + 4] for k in range(0, 36, 4)]), "reshaped")
        factors = [Fraction(1), Fraction(2), Fraction(3), Fraction(-64)]
        column = system.of([[x] for x in factors])
        expected = times([[x * y for x in row] for row, y in zip(member, factors, strict=True)])
        check_inside(system, made.row_scaled(column), expected, "row_scaled")
        factors[3] += r  # of the longest row
        wide = column.blurred(system.backend.scalar(r))
        expected = times([[x * y for x in row] for row, y in zip(rows, factors, strict=True)])
        check_inside(system, scaled(rows).row_scaled(wide), expected, "row_scaled by a ball")
        expected = times([[x * y for x in row] for row, y in zip(member, factors, strict=True)])
        check_inside(system, made.row_scaled(wide), expected, "row_scaled by a ball")
        check_inside(system, made.sorted_within(4), sorted_rows(times(member), 4), "sorted_within")
        check_inside(system, made.sorted_within(2), sorted_rows(times(member), 2), "sorted_within")


@given(
    sets=st.tuples(*[st.integers(1, 3)] * 3).flatmap(
        lambda sides: st.tuples(
            rational_matrices(sides[:2], ("decimal", "integer", "gaussian")), matrix_sets(sides[1:])
        )
    )
)
def test_what_a_map_makes_of_a_set_is_near_what_it_makes_of_its_middle(systems, sets):
    """The middle is as near as it says; and whoever maps it and blurs by norm times distance has lost no member."""
    weights, a = sets
    rows = to_rows(weights)
    norm = sqrt_upper(sum_of_squares(rows), 64)
    for system in systems:
        made, backend = a.on(system), system.backend
        middle, apart = made.recentred()
        assert middle.shape == made.shape
        assert apart.lower() >= 0, explain("a negative distance", a=a, apart=apart)
        assert apart.upper() == 0 or not system.of_points
        off = middle
        for piece in pieces(a.point, backend.working_bits):
            off = off - system.of(piece)
        assert off.frobenius_squared().lower() <= apart.upper() ** 2, explain("too far", a=a, apart=apart)
        check_inside(system, middle.blurred(apart), a.point, "recentred, blurred", a=a)
        found = (system.matrix(weights) @ middle).blurred(apart * backend.scalar(norm))
        check_inside(system, found, product(rows, a.point), "a map of the middle, blurred", a=a, weights=weights)


@given(data=rational_matrices(), seed=seeds())
def test_what_only_moves_entries_of_points_is_tight(systems, data, seed):
    """Entries in other places, above each other and sorted: the sum of squares is that of the entries there are."""
    random, rows = Random(seed), to_rows(data)
    index = random_index(random, len(rows))
    size = random.choice([k for k in range(1, len(rows) + 1) if len(rows) % k == 0])
    for system in systems:
        made = system.matrix(data)
        for found, expected in (
            (made.rows_at(np.array(index)), named(rows, index)),
            (made.reshaped((1, len(rows) * len(rows[0]))), rows),
            (made.stacked([made, made]), rows * 3),
            (made.sorted_within(size), rows),
            (made.recentred()[0], rows),
        ):
            squares, exact = found.frobenius_squared(), sum_of_squares(expected)
            allowed = (
                0 if system.of_points else sum_of_squares(rows) * Fraction(2) ** (10 - system.backend.working_bits)
            )
            width = squares.upper() - squares.lower()
            assert width <= allowed * len(expected), explain("a wide result", data=data, index=index, size=size)
            assert squares.lower() <= exact <= squares.upper(), explain("a wrong one", data=data, index=index)


@given(
    sets=shapes().flatmap(
        lambda shape: st.tuples(rational_matrices(shape), rational_matrices((shape[0], 1), ("decimal", "gaussian")))
    )
)
def test_factors_of_points_are_tight(systems, sets):
    data, column = sets
    rows = to_rows(data)
    most = sum_of_squares(rows) * max(x * x for (x,) in to_rows(column))
    for system in systems:
        found = system.matrix(data).row_scaled(system.matrix(column)).frobenius_squared()
        allowed = 0 if system.of_points else most * Fraction(2) ** (10 - system.backend.working_bits)
        allowed += sum_of_squares(rows) / 2**200  # a factor of zero leaves what underflow might have been
        assert found.upper() - found.lower() <= allowed, explain("a wide result", data=data, column=column)


def weights(random, count, largest):
    """Floats of either sign, some of them zero, powers of two, or full of bits; at most 2^±largest."""
    choices = (
        lambda: 0.0,
        lambda: 1.0,
        lambda: random.choice([-1, 1]) * 2.0 ** random.randint(-largest, largest - 1),
        lambda: random.gauss(0, 1),
        lambda: random.uniform(-1, 1) * 2.0 ** random.randint(-largest, largest),
    )
    return np.array([random.choice(choices)() for _ in range(count)])


def weigh(rows, left, right):
    return [
        [x * Fraction(u) * Fraction(v) for x, v in zip(row, right.tolist(), strict=True)]
        for row, u in zip(rows, left.tolist(), strict=True)
    ]


@given(a=matrix_sets(), seed=seeds())
def test_weights(systems, a, seed):
    """Weights of a reasonable size always have a result."""
    random = Random(seed)
    left, right = (weights(random, side, 60) for side in a.data.shape)
    for system in systems:
        expected = weigh(a.point, left, right)
        check_inside(system, a.on(system).diag_scaled(left, right), expected, "weighted", a=a, left=left, right=right)


EXTREMES = [0.0, 5e-324, -(2.0**-1030), 1e-308, -1e-160, 1.0, 3e160, -1e308, 1.7e308]


def check_weights_or_unbounded(systems, a, left, right):
    left, right = np.array(left), np.array(right)
    for system in systems:
        try:
            found = a.on(system).diag_scaled(left, right)
        except UnboundedError:
            assert system.backend.name == "float64"
            assert not system.generic
            continue
        check_inside(system, found, weigh(a.point, left, right), "weighted", a=a, left=left, right=right)


@pytest.mark.filterwarnings("ignore:overflow")  # see the test after the next
@given(a=matrix_sets(), seed=seeds())
def test_weights_at_the_ends_of_the_floats(systems, a, seed):
    """There a number system may say that it cannot tell; what it does say is true."""
    random = Random(seed)
    left, right = ([random.choice(EXTREMES) for _ in range(side)] for side in a.data.shape)
    check_weights_or_unbounded(systems, a, left, right)


@pytest.mark.parametrize(
    ("a", "left", "right"),
    [
        (point_set([[1, -1], [1, 1]]), [1e308, 0.0], [1e308, 1e-308]),  # infinity times zero, on the way
        (point_set([[1, 3]], 2**60), [5e-324], [5e-324, 1e308]),
        (point_set([[3]], 2**1074), [0.75], [0.5]),
        (point_set([[3, 5]]), [5e-324], [2.0**1000, 0.5]),  # what the first product loses, the second enlarges
        (point_set([[3, 5]], 2**3), [5e-324], [1e308, 1e308]),
        (point_set([[0, 0]]), [1e308], [-1e308, 0.0]),
    ],
)
def test_weights_that_overflow_or_vanish_on_the_way(systems, a, left, right):
    check_weights_or_unbounded(systems, a, left, right)


def test_weights_whose_squares_overflow_warn_nobody(systems):
    check_weights_or_unbounded(systems, point_set([[1]]), [3e160], [1.0])


@given(data=rational_matrices(), seed=seeds())
def test_weighted_points_are_tight(systems, data, seed):
    random = Random(seed)
    left, right = (weights(random, side, 20) for side in data.shape)
    rows = to_rows(data)
    most = sum_of_squares(rows) * Fraction(max(map(abs, left))) ** 2 * Fraction(max(map(abs, right))) ** 2
    for system in systems:
        found = system.matrix(data).diag_scaled(left, right).frobenius_squared()
        allowed = 0 if system.of_points else most * Fraction(2) ** (10 - system.backend.working_bits)
        allowed += sum_of_squares(rows) / 2**200  # a weight of zero leaves what underflow might have been
        assert found.upper() - found.lower() <= allowed, explain("a wide result", data=data, left=left, right=right)


def positive_part(rows):
    return [[max(x, Fraction(0)) for x in row] for row in rows]


@given(sets=shapes().flatmap(lambda shape: st.tuples(matrix_sets(shape), matrix_sets(shape))))
def test_positive_parts(systems, sets):
    """Of sets above, below and around zero: differences of sets, and of a set with itself."""
    a, b = sets
    for system in systems:
        first, second = a.on(system), b.on(system)
        check_inside(system, first.positive_part(), positive_part(a.point), "positive_part", a=a)
        apart = (first - second).positive_part()
        check_inside(system, apart, positive_part(minus(a.point, b.point)), "positive_part", a=a, b=b)
        zero = [[Fraction(0)] * len(row) for row in a.point]
        check_inside(system, (first - first).positive_part(), zero, "positive_part of a - a", a=a)


@given(data=rational_matrices())
def test_positive_parts_of_points_are_tight(systems, data):
    """What is below zero ends there, and what is above stays."""
    rows = to_rows(data)
    squares, size = sum_of_squares(positive_part(rows)), sum_of_squares(rows)
    for system in systems:
        found = system.matrix(data).positive_part().frobenius_squared()
        allowed = 0 if system.of_points else size * Fraction(2) ** (10 - system.backend.working_bits)
        assert squares - allowed <= found.lower() <= found.upper() <= squares + allowed, explain("wide", data=data)
        negative = system.of([[-abs(x) for x in row] for row in rows]).positive_part()
        assert not excludes_zero(negative), explain("zero is lost", data=data)


def missed(ends, rows):
    """Whether an entry is not between its ends, exactly; an infinite end is where floats end."""
    lower, upper = ends
    assert lower.shape == upper.shape == (len(rows), len(rows[0]))
    assert lower.dtype == upper.dtype == np.float64
    assert not np.isnan(lower).any()
    assert not np.isnan(upper).any()
    return any(
        (low > -np.inf and (low == np.inf or Fraction(low) > x)) or (high < np.inf and Fraction(high) < x)
        for x, low, high in zip(chain.from_iterable(rows), lower.ravel().tolist(), upper.ravel().tolist(), strict=True)
    )


@example(a=point_set([[10**400, -(10**400), 1, 0]]))
@example(a=point_set([[1, -1, 0]], 10**400))
@example(a=point_set([[3, -3], [1, -1]], 2**1075))
@example(a=point_set([[2**1024 - 1, 2**1024, 1 - 2**1024, -(2**1024)]]))
@given(a=matrix_sets())
def test_ends(systems, a):
    for system in systems:
        assert not missed(a.on(system).float_bounds(), a.point), explain(f"ends on {system}", a=a, point=a.point)


@given(sets=shapes().flatmap(lambda shape: st.tuples(matrix_sets(shape), matrix_sets(shape))), seed=seeds())
def test_ends_of_results(systems, sets, seed):
    """Of sets that are results: with a radius, a scale, and zero inside."""
    a, b = sets
    random = Random(seed)
    left, right = (weights(random, side, 30) for side in a.data.shape)
    for system in systems:
        first, second = a.on(system), b.on(system)
        apart = minus(a.point, b.point)
        assert not missed((first - second).float_bounds(), apart), explain(f"ends of - on {system}", a=a, b=b)
        found = (first - second).diag_scaled(left, right).float_bounds()
        assert not missed(found, weigh(apart, left, right)), explain(f"ends of weighted on {system}", a=a, b=b)
        found = (first - second).positive_part().float_bounds()
        assert not missed(found, positive_part(apart)), explain(f"ends of positive_part on {system}", a=a, b=b)


@given(data=rational_matrices(kinds=("decimal", "integer", "gaussian", "rank one", "zero")))
def test_ends_of_points_are_tight(systems, data):
    """As near as floats and the arithmetic's bits allow, next to the largest entry."""
    size = max(abs(x) for row in to_rows(data) for x in row)
    for system in systems:
        lower, upper = system.matrix(data).float_bounds()
        bits = min(system.backend.working_bits or 53, 53)
        allowed = size * Fraction(2) ** (6 - bits) + Fraction(2) ** -1070
        assert Fraction(float((upper - lower).max())) <= allowed, explain(f"wide ends on {system}", data=data)


def test_what_ends_gives_is_not_the_set_itself(systems):
    """Whoever writes to the arrays does not change the matrix."""
    rows = [[Fraction(1), Fraction(-2)]]
    for system in systems:
        made = system.of(rows)
        for end in made.float_bounds():
            if end.flags.writeable:
                end[:] = 7
        check_inside(system, made, rows, "after writing to its ends")
        assert not missed(made.float_bounds(), rows)


@given(
    sets=st.tuples(*[st.integers(1, 4)] * 3).flatmap(
        lambda sides: st.tuples(matrix_sets(sides[:2]), matrix_sets(sides[1:]))
    )
)
def test_what_is_known_of_a_norm_changes_no_answer(systems, sets):
    """A bound of the operator norm that holds for the point keeps the point, in products from both sides."""
    a, b = sets
    norm = sqrt_upper(sum_of_squares(a.point), 64)
    expected = product(a.point, b.point)
    for system in systems:
        first, second = a.on(system).with_norm_bound(norm), b.on(system)
        check_inside(system, first, a.point, "within", a=a)
        check_inside(system, first @ second, expected, "within, @", a=a, b=b)
        check_inside(system, (second.transposed() @ first.transposed()).transposed(), expected, "transposed", a=a, b=b)


@given(a=matrix_sets())
def test_whether_a_set_may_be_zero_never_contradicts_the_point(systems, a):
    """By its sum of squares, and by its ends."""
    zero = not any(map(any, a.point))
    for system in systems:
        made = a.on(system)
        squares = made.frobenius_squared()
        lower, upper = made.float_bounds()
        assert zero or squares.upper() > 0, explain(f"zero on {system}", a=a, point=a.point)
        assert zero or (lower < 0).any() or (upper > 0).any(), explain(f"ends of zero on {system}", a=a, point=a.point)
        assert not (zero and excludes_zero(made)), explain(f"not zero on {system}", a=a, point=a.point)
        assert not system.of_points or excludes_zero(made) is not zero


@given(data=rational_matrices())
def test_points_are_told_from_zero(systems, data):
    """Rounding is relative, so that no rational but zero looks like zero, however small, at any precision."""
    zero = not any(map(any, to_rows(data)))
    for system in systems:
        squares = system.matrix(data).frobenius_squared()
        assert (squares.lower() == 0 == squares.upper()) is zero, explain(f"not decided on {system}", data=data)
        assert (squares.lower() > 0) is not zero, explain(f"not decided on {system}", data=data)


@pytest.mark.parametrize("shape", [(1, 1), (2, 3)])
def test_a_set_around_zero_may_be_zero(wide_systems, shape):
    rows, columns = shape
    for system in wide_systems:
        ones = system.of([[Fraction(1)] * columns] * rows)
        around = ones.scalar_mul(system.backend.hull(Fraction(1, 2), Fraction(2))) - ones
        assert not excludes_zero(around)
        assert around.frobenius_squared().lower() <= 0 < around.frobenius_squared().upper()
        last = system.of([[Fraction(5 * (i + j == rows + columns - 2)) for j in range(columns)] for i in range(rows)])
        assert excludes_zero(around - last), "one entry away from zero refutes it for the whole matrix"


@settings(max_examples=30)
@given(a=matrix_sets(kinds=("decimal", "rank one", "gaussian", "subnormal", "huge", "mixed scales")))
def test_three_steps_of_gram_iteration_enclose_the_exact_ones(rounding_systems, a):
    """The composition that the bounds are made of: gram, on another scale (by its norm, the worst), on the grid."""
    for system in rounding_systems:
        backend = system.backend
        rows, made = a.point, a.on(system)
        for step in range(3):
            rows, made = smaller_gram(rows), made.gram()
            check_inside(system, made, rows, f"gram of step {step}", a=a)
            norm = sqrt_upper(sum_of_squares(rows), backend.prec)
            if norm == 0:
                break
            rows, made = divided(rows, norm), made.scalar_mul(reciprocal(backend, backend.scalar(norm)))
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
        weight = [np.resize([0.75, -3.1, 0.0], side) for side in a.shape]
        some = [a, a - b, a.gram(), a.gram() @ b.gram(), a.scalar_mul(c.on(system.backend, c.inner))]
        some += [(a - b).positive_part(), a.diag_scaled(*weight)]
        last = a.shape[0] - 1
        some += [a.rows_at(np.array([last, -1, last])), a.reshaped(a.shape[::-1]), a.stacked([b, a])]
        some += [a.row_scaled(b.block(np.arange(last + 1), np.array([0]))), (a - b).sorted_within(last + 1)]
        middle, apart = a.recentred()
        some.append(middle.blurred(apart))
        for made in some:
            yield made.shape, made.frobenius_squared()
            every = np.arange(made.shape[1])
            rows = [made.block(np.array([i]), every) for i in range(made.shape[0])]
            yield from ((row.shape, row.frobenius_squared()) for row in rows)

    for backend in backends:
        native, generic = System(backend, generic=False), System(backend, generic=True)
        for (shape, x), (other_shape, y) in zip(results(native), results(generic), strict=True):
            assert shape == other_shape
            common = max(x.lower(), y.lower()) <= min(x.upper(), y.upper())
            assert common, explain(f"apart on {backend}", native=x, generic=y, sets=sets, divisor=c)
            if backend.working_bits is None:
                assert x.lower() == y.lower(), explain("unequal points", native=x, generic=y, sets=sets, divisor=c)
        both = [(sets[0].on(system) - sets[1].on(system)).float_bounds() for system in (native, generic)]
        (lower, upper), (low, high) = both
        assert (np.maximum(lower, low) <= np.minimum(upper, high)).all(), explain("ends apart", sets=sets)
        if backend.working_bits is None:
            assert (lower == low).all(), explain("unequal ends", sets=sets)
            assert (upper == high).all(), explain("unequal ends", sets=sets)
        zeros = [excludes_zero(system.matrix(sets[0].data)) for system in (native, generic)]
        assert zeros[0] is zeros[1], explain("zero for one of them", data=sets[0].data)


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
    ladder = precision_ladder(backend_name, 32)
    assert ladder[0] == get_backend(backend_name, 32)
    assert {rung.prec for rung in ladder} == {32}
    assert [rung.working_bits is None for rung in ladder] == [False] * (len(ladder) - 1) + [True]


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
        made = [first - second, first.gram(), second.gram() @ first, first.scalar_mul(right)]
        made += [
            second.block(np.array([1]), np.array([2, 0])),
            second.diag_scaled(np.array([0.3, -7]), np.full(3, 1e-9)),
        ]
        made.append((first - second).positive_part())
        made += [first.rows_at(np.array([1, -1, 1])), second.reshaped((3, 2)), first.stacked([second])]
        made += [first.row_scaled(second.block(np.array([0, 1]), np.array([0]))), (first - second).sorted_within(2)]
        middle, apart = first.recentred()
        made += [middle, middle.blurred(apart * right * right)]
        scalars.append(apart)
        if system.rounds:
            moved, error = first.rounded(backend.prec)
            made.append(moved)
            scalars.append(error)
        scalars += [matrix.frobenius_squared() for matrix in made]
        answers = [left.less(right), right.less(left), *map(excludes_zero, made)]
        answers += [end.tolist() for matrix in made for end in matrix.float_bounds()]
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
