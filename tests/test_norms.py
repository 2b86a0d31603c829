"""Square roots and operator norms: on the right side of the truth, decided exactly, and not far from it.

Whether a number is at least an operator norm is decided with no tolerance: bound²·I - A·Aᵀ must have no negative
eigenvalue (`strategies.at_least_the_norm`, by exact elimination). The last part are negative controls: each of three
plausible mistakes makes one of these checks fail on an example.
"""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from strategies import (
    at_least_the_norm,
    below_dyadic,
    explain,
    is_dyadic,
    non_negative,
    positive,
    rational_matrices,
    sum_of_squares,
    to_rows,
)

from intervalcert.backends.arb import ArbBackend
from intervalcert.backends.escalation import is_sharp
from intervalcert.backends.exact import ExactBackend, ExactMatrix, ExactScalar
from intervalcert.backends.generic import GenericMatrix
from intervalcert.backends.registry import backend_names, get_backend, precision_ladder
from intervalcert.bounds.norm_bounds import LayerBound, Plan, layer_bound
from intervalcert.errors import SoundnessError, UndecidedError, UsageError
from intervalcert.model.linear_maps import Dense
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.rounding import sqrt_lower, sqrt_upper
from intervalcert.proof import layer_norms
from intervalcert.proof.norms import AUTO_GAIN, MAX_ITERATIONS, frobenius_upper, norm_lower, norm_upper
from intervalcert.search.factors import FloatGram

EXACT = get_backend("exact", 64)
BITS = st.integers(1, 130)

# -- square roots ----------------------------------------------------------------------------------------------------


@given(x=positive(), bits=BITS)
@example(x=Fraction(4) - Fraction(1, 2**300), bits=8)  # carries to a power of two
@example(x=Fraction(4) + Fraction(1, 2**300), bits=8)
@example(x=Fraction(1, 3), bits=1)
def test_roots_are_the_nearest_dyadics_on_their_side(x, bits):
    up, down = sqrt_upper(x, bits), sqrt_lower(x, bits)
    said = explain("roots", x=x, bits=bits, up=up, down=down)
    assert is_dyadic(up, bits), said
    assert is_dyadic(down, bits), said
    assert down**2 <= x <= up**2, said
    assert below_dyadic(up, bits) ** 2 < x, said  # nothing smaller would do
    assert below_dyadic(up, bits) <= down <= up, said  # and nothing larger from below
    assert up**2 <= x * (1 + Fraction(2, 2**bits)) ** 2, said  # relative, at any scale


@given(x=non_negative(), y=non_negative(), bits=BITS)
def test_roots_are_monotone(x, y, bits):
    x, y = sorted([x, y])
    for larger in (y, x * (1 + Fraction(1, 2**bits))):
        assert sqrt_upper(x, bits) <= sqrt_upper(larger, bits), explain("upper", x=x, y=larger, bits=bits)
        assert sqrt_lower(x, bits) <= sqrt_lower(larger, bits), explain("lower", x=x, y=larger, bits=bits)


@given(mantissa=st.integers(0, 2**40), exponent=st.integers(-3000, 3000))
def test_roots_of_squares_are_exact(mantissa, exponent):
    root = mantissa * Fraction(2) ** exponent
    assert sqrt_upper(root**2, 41) == sqrt_lower(root**2, 41) == root


def test_the_root_of_zero_is_zero():
    assert sqrt_upper(Fraction(0), 53) == sqrt_lower(Fraction(0), 53) == 0


@pytest.mark.parametrize("root", [sqrt_upper, sqrt_lower])
@pytest.mark.parametrize("x", [Fraction(-1), Fraction(-1, 10**400)])
def test_there_is_no_root_below_zero(root, x):
    with pytest.raises(ValueError, match="negative"):
        root(x, 53)


def test_a_tiny_root_is_not_lost_in_an_absolute_tolerance():
    """An absolute tolerance of 1e-11 would give 7e-12 here, 26 orders of magnitude too much."""
    root = sqrt_upper(Fraction(6, 10**76), 64)
    assert Fraction(24, 10**39) < root < Fraction(25, 10**39)


# -- from above ------------------------------------------------------------------------------------------------------


def matrix_of(rows, denominator=1):
    return RationalMatrix.from_integers(rows, denominator)


HADAMARD_4 = [[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]
KNOWN = {  # name: matrix, square of its norm, rank
    "one number": (matrix_of([[-7]]), 49, 1),
    "diagonal": (matrix_of([[3, 0, 0], [0, -5, 0], [0, 0, 1]], 10), Fraction(1, 4), 3),
    "diagonal, equal": (matrix_of([[2, 0], [0, 2]]), 4, 2),
    "diagonal, wide": (matrix_of([[3, 0, 0, 0], [0, 2, 0, 0]]), 9, 2),
    "rank one": (matrix_of([[9, 12], [12, 16]]), 625, 1),
    "rank one, tall": (matrix_of([[3], [4], [12]]), 169, 1),
    "rank one, wide": (matrix_of([[1, 1]]), 2, 1),
    "rotation": (matrix_of([[3, -4], [4, 3]], 5), 1, 2),
    "hadamard": (matrix_of(HADAMARD_4), 4, 4),
    "permutation": (matrix_of([[0, 1, 0], [0, 0, 1], [1, 0, 0]]), 1, 3),
    "equal rows": (matrix_of([[1, 2, 2]] * 4), 36, 1),
    "tiny": (
        RationalMatrix.from_fractions([[Fraction(3, 10**200), 0], [0, Fraction(4, 10**200)]]),
        Fraction(16, 10**400),
        2,
    ),
    "huge": (RationalMatrix.from_fractions([[Fraction(10**200), 0], [0, Fraction(10**200)]]), 10**400, 2),
    "unequal scales": (RationalMatrix.from_fractions([[Fraction(10**30), 0], [0, Fraction(1, 10**30)]]), 10**60, 2),
}


@pytest.mark.parametrize("iterations", [0, 1, 2, 5])
@pytest.mark.parametrize("known", KNOWN)
def test_the_overestimate_is_as_small_as_promised(backend_name, known, iterations):
    """||M|| <= v, and v/||M|| <= rank^(1/2^(n+1)) up to the rounding: both compared as powers, exactly."""
    weights, norm_squared, rank = KNOWN[known]
    backend = get_backend(backend_name, 64)
    found, steps = norm_upper(backend.matrix(weights), backend, iterations)
    assert steps == iterations
    assert found.upper() ** 2 >= norm_squared, explain(known, found=found)
    excess = found.upper() ** 2 / norm_squared / (1 + Fraction(1, 2**40)) ** 2
    assert excess ** (2**iterations) <= rank, explain(known, found=found, iterations=iterations)


@settings(max_examples=40)
@given(weights=rational_matrices(), iterations=st.integers(0, 4))
def test_the_upper_bound_of_any_matrix_is_at_least_its_norm(weights, iterations):
    rows = to_rows(weights)
    found = norm_upper(EXACT.matrix(weights), EXACT, iterations)[0].upper()
    assert at_least_the_norm(found, rows), explain("below the norm", weights=weights, found=found, n=iterations)


@settings(max_examples=25)
@given(weights=rational_matrices(kinds=("decimal", "gaussian", "integer")), iterations=st.integers(0, 3))
def test_a_coarse_grid_costs_tightness_not_soundness(weights, iterations):
    """With 2 to 8 bits the rounding of the matrix is most of the matrix; its error must carry the bound."""
    for prec in (2, 4, 8):
        backend = ExactBackend(prec)
        found = norm_upper(backend.matrix(weights), backend, iterations)[0].upper()
        assert at_least_the_norm(found, to_rows(weights)), explain("below", weights=weights, found=found, prec=prec)


@settings(max_examples=25)
@given(weights=rational_matrices(), iterations=st.integers(0, 3), prec=st.sampled_from([16, 64]))
def test_every_backend_encloses_the_exact_bound(backend_name, weights, iterations, prec):
    """The theorem of `protocol`, with no tolerance."""
    exact, backend = get_backend("exact", prec), get_backend(backend_name, prec)
    expected = norm_upper(exact.matrix(weights), exact, iterations)[0].upper()
    found = norm_upper(backend.matrix(weights), backend, iterations)[0]
    assert found.lower() <= expected <= found.upper(), explain("not enclosed", weights=weights, n=iterations)


@settings(max_examples=30)
@given(weights=rational_matrices())
def test_no_iterations_is_the_frobenius_norm(backend_name, weights):
    backend = get_backend(backend_name, 64)
    found, steps = norm_upper(backend.matrix(weights), backend, 0)
    expected = sqrt_upper(sum_of_squares(to_rows(weights)), 64)
    assert steps == 0
    assert found.lower() <= expected <= found.upper(), explain("not the Frobenius norm", weights=weights, found=found)
    direct = frobenius_upper(backend.matrix(weights), backend)
    assert (direct.lower(), direct.upper()) == (found.lower(), found.upper())


@pytest.mark.parametrize("iterations", [0, 1, 3, "auto"])
def test_a_zero_matrix_has_norm_zero(backend_name, iterations):
    bound = layer_bound(
        Dense(matrix_of([[0, 0], [0, 0], [0, 0]])), precision_ladder(backend_name, 64), Plan("gram", iterations)
    )
    assert (bound.lower, bound.upper, bound.shape) == (0, 0, (3, 2))


def test_more_iterations_are_tighter():
    weights = matrix_of([[3, 1, 4], [1, 5, 9], [2, 6, 5]])
    bounds = [norm_upper(EXACT.matrix(weights), EXACT, n)[0].upper() for n in range(5)]
    assert all(later < earlier for earlier, later in pairwise(bounds))


def test_auto_stops_when_a_step_gains_too_little(backend_name):
    weights = matrix_of([[3, 1, 4], [1, 5, 9], [2, 6, 5]])
    bound = layer_bound(Dense(weights), precision_ladder(backend_name, 64), Plan("gram", "auto"))
    steps = bound.iterations
    assert 1 <= steps < MAX_ITERATIONS
    fixed = [
        layer_bound(Dense(weights), precision_ladder(backend_name, 64), Plan("gram", n)).upper
        for n in (steps - 2, steps - 1, steps)
    ]
    assert bound.upper == fixed[-1]  # the steps reported are the ones made
    assert fixed[1] <= fixed[2] * (1 + AUTO_GAIN) * (1 + Fraction(1, 2**60))  # the last gained too little
    assert fixed[0] > fixed[1] * (1 + AUTO_GAIN)  # the one before enough
    assert bound.upper <= bound.lower * (1 + 10 * AUTO_GAIN)


def test_auto_keeps_the_frobenius_norm_where_nothing_can_be_gained():
    assert norm_upper(EXACT.matrix(matrix_of([[5]])), EXACT, "auto") == (EXACT.scalar(Fraction(5)), 0)


@pytest.mark.parametrize("name", [name for name in backend_names() if name != "exact"])
def test_auto_near_its_threshold_is_still_at_least_the_exact_one(name):
    """Where a step gains almost exactly `AUTO_GAIN`, an enclosure must not go on further than the exact run does."""
    threshold = Fraction(
        5639412849131855716157689372711349775731176694213420309,
        2522015791327477760000000000000000000000000000000000000000,
    )
    for nudge in range(-20, 21):
        t = threshold * (1 + Fraction(nudge, 2**60))
        cosine, sine = (1 - t * t) / (1 + t * t), 2 * t / (1 + t * t)
        moved = RationalMatrix.from_fractions([[cosine, Fraction(0)], [Fraction(0), sine]])
        backend = get_backend(name, 64)
        found, steps = norm_upper(backend.matrix(moved), backend, "auto")
        exact, made = norm_upper(EXACT.matrix(moved), EXACT, "auto")
        assert found.upper() >= exact.upper(), (nudge, steps, made)


def test_the_refined_backend_does_not_widen():
    """On the second rung the width must shrink, else asking it is a waste: more steps than the first can bear."""
    weights = matrix_of([[3, 1, 4], [1, 5, 9], [2, 6, 5]])
    first = get_backend("arb", 16)
    refined = first.refined()
    wide, narrow = (norm_upper(b.matrix(weights), b, 6)[0] for b in (first, refined))
    assert not is_sharp(wide)
    assert is_sharp(narrow)
    exact = norm_upper(ExactBackend(16).matrix(weights), ExactBackend(16), 6)[0].upper()
    assert wide.upper() >= narrow.upper() >= exact


def test_each_step_is_reported():
    calls = []
    norm_upper(EXACT.matrix(matrix_of([[1, 2]])), EXACT, 3, lambda: calls.append(1))
    assert len(calls) == 3


# -- from below ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("known", KNOWN)
def test_the_lower_bound_is_below_the_norm_and_near_it(backend_name, known):
    weights, norm_squared, _ = KNOWN[known]
    backend = get_backend(backend_name, 64)
    found = norm_lower(
        backend.matrix(weights),
        backend.matrix(RationalMatrix.from_floats(FloatGram(weights).direction()[:, None])),
        backend,
    )
    assert found**2 <= norm_squared, explain(known, found=found)
    assert found**2 >= norm_squared * (1 - Fraction(1, 2**30)), explain(known, found=found)


@settings(max_examples=40)
@given(weights=rational_matrices(), direction=st.lists(st.integers(-5, 5), min_size=4, max_size=4))
def test_any_direction_gives_a_lower_bound(backend_name, weights, direction):
    """A bad direction is a loss, never a lie."""
    backend = get_backend(backend_name, 32)
    columns = weights.shape[1]
    chosen = direction[:columns] if any(direction[:columns]) else [1] * columns
    found = norm_lower(backend.matrix(weights), backend.matrix(matrix_of([[k] for k in chosen])), backend)
    smaller = found * (1 - Fraction(1, 2**400))  # below the norm if found is at most the norm, also if it is equal
    assert found == 0 or not at_least_the_norm(smaller, to_rows(weights)), explain(
        "above the norm", weights=weights, direction=chosen, found=found
    )


@settings(max_examples=40)
@given(weights=rational_matrices())
def test_the_guessed_direction_is_never_zero(weights):
    direction = FloatGram(weights).direction()
    assert direction.shape == (weights.shape[1],)
    assert direction.any()
    assert (direction == np.rint(direction)).all()


# -- both, for a layer -----------------------------------------------------------------------------------------------


@settings(max_examples=20)
@given(weights=rational_matrices(), iterations=st.integers(0, 3))
def test_a_layer_is_bounded_from_both_sides(backend_name, weights, iterations):
    bound = layer_bound(Dense(weights), precision_ladder(backend_name, 32), Plan("gram", iterations))
    rows = to_rows(weights)
    assert at_least_the_norm(bound.upper, rows), explain("below the norm", weights=weights, bound=bound)
    assert bound.lower <= bound.upper
    assert is_dyadic(bound.upper, 32)
    assert is_dyadic(bound.lower, 64)  # however coarse the grid
    exact = layer_bound(Dense(weights), precision_ladder("exact", 32), Plan("gram", iterations))
    assert bound.upper >= exact.upper, explain("below the exact run", weights=weights, bound=bound, exact=exact)


@pytest.mark.parametrize("bits", [4, 8, 16])
def test_a_backend_that_is_too_coarse_is_refused_and_the_exact_one_answers(bits):
    weights = matrix_of([[3, 1, 4], [1, 5, 9], [2, 6, 5]], 7)
    coarse = ArbBackend(64, working_bits=bits)
    bound = layer_bound(Dense(weights), (coarse, EXACT), Plan("gram", 4))
    exact = layer_bound(Dense(weights), (EXACT,), Plan("gram", 4))
    assert bound.computed_by == exact.computed_by == "exact"
    assert exact.skipped_because == ()
    assert len(bound.skipped_because) == 1
    assert bound.skipped_because[0].startswith(f"arb, {bits} bits: ")
    assert (bound.lower, bound.upper, bound.iterations) == (exact.lower, exact.upper, exact.iterations)


def test_a_backend_that_is_fine_enough_is_not_refused(backend_name):
    bound = layer_bound(Dense(matrix_of([[3, 1], [1, 5]])), precision_ladder(backend_name, 64), Plan("gram", 4))
    assert bound.skipped_because == ()
    assert bound.computed_by.split(",")[0] == backend_name


@pytest.mark.parametrize("iterations", [-1, MAX_ITERATIONS + 1])
def test_a_senseless_number_of_iterations_is_refused(iterations):
    with pytest.raises(UsageError, match=str(iterations)):
        layer_bound(Dense(matrix_of([[1]])), (EXACT,), Plan("gram", iterations))


def test_a_lower_bound_above_the_upper_is_an_alarm():
    LayerBound((1, 1), Fraction(2), Fraction(2), "gram", 0, "exact")
    with pytest.raises(SoundnessError, match="lower bound"):
        LayerBound((1, 1), Fraction(2) + Fraction(1, 10**100), Fraction(2), "gram", 0, "exact")


def test_a_negative_bound_is_an_alarm():
    with pytest.raises(SoundnessError):
        LayerBound((1, 1), Fraction(-1), Fraction(2), "gram", 0, "exact")


def test_the_alarm_goes_off_when_the_upper_bound_is_wrong(monkeypatch):
    def too_small(*arguments):
        upper, steps = norm_upper(*arguments)
        return upper * EXACT.scalar(Fraction(9, 10)), steps

    monkeypatch.setattr(layer_norms, "norm_upper", too_small)
    with pytest.raises(SoundnessError):
        layer_bound(Dense(matrix_of([[3, 1], [1, 5]])), (EXACT,), Plan("gram", 11))


# -- negative controls: the checks above can fail --------------------------------------------------------------------


def test_dropping_the_truncation_error_is_caught(monkeypatch):
    weights, backend = matrix_of([[28, -1], [-6, -2]]), ExactBackend(16)

    def bound():
        return norm_upper(backend.matrix(weights), backend, 2)[0].upper()

    assert at_least_the_norm(bound(), to_rows(weights))
    honest = ExactMatrix.rounded
    monkeypatch.setattr(ExactMatrix, "rounded", lambda self, bits: (honest(self, bits)[0], ExactScalar(Fraction(0))))
    assert not at_least_the_norm(bound(), to_rows(weights))


def test_rounding_the_root_down_is_caught(monkeypatch):
    weights = matrix_of([[1, 1]])
    monkeypatch.setattr(ExactBackend, "sqrt_upper", lambda self, x: ExactScalar(sqrt_lower(x.value, self.prec)))
    for iterations in (0, 1, 2):
        assert not at_least_the_norm(norm_upper(EXACT.matrix(weights), EXACT, iterations)[0].upper(), to_rows(weights))


class _Unwidened(GenericMatrix):
    """Leaves the rounding to the grid out instead of enclosing it."""

    def gram(self):
        return _Unwidened(self.backend, super().gram().rows)

    def ldexp(self, exponent):
        return _Unwidened(self.backend, super().ldexp(exponent).rows)

    def rounded(self, bits):
        return self, self.backend.scalar(Fraction(0))


@pytest.mark.parametrize(
    ("rows", "iterations"), [([[5, -8], [-9, 9]], 2), ([[8, -8], [-6, 9]], 2), ([[9, 9], [-7, -6]], 2)]
)
def test_rounding_without_widening_is_caught(rows, iterations):
    """The result is then above the norm still, but below that of the exact run: no enclosure, no theorem."""
    weights = matrix_of(rows)
    exact, balls = get_backend("exact", 16), get_backend("arb", 16)
    expected = norm_upper(exact.matrix(weights), exact, iterations)[0].upper()
    honest = GenericMatrix.of(balls, weights)
    broken = _Unwidened(balls, honest.rows)
    assert norm_upper(honest, balls, iterations)[0].upper() >= expected
    assert norm_upper(broken, balls, iterations)[0].upper() < expected


def test_a_matrix_that_may_be_zero_is_not_guessed_about():
    """Whether to divide depends on it; a set around zero is neither."""
    backend = get_backend("arb", 64)
    ones = backend.matrix(matrix_of([[1, 1]]))
    around = ones.scalar_mul(backend.hull(Fraction(1, 2), Fraction(2))) - ones
    squares = around.gram().frobenius_squared()
    assert squares.lower() <= 0 < squares.upper()
    with pytest.raises(UndecidedError):
        norm_upper(around, backend, 2)
