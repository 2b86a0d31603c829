"""The float64 kernel: products against exact ones on matrices made to hurt, and what the proof needs of the machine.

The contract (`test_contract`) and the law (`test_cross_backend`) hold float64 to the same tests as every backend.
"""

import copy
import pickle
import platform
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intervalcert import Network, compute_bounds
from intervalcert.api import vectorised_certifier, verification_job
from intervalcert.backends import float64
from intervalcert.backends.float64 import Float64Backend, Float64Matrix
from intervalcert.backends.float64_scalars import Float64Scalar, Float64Vector
from intervalcert.backends.integers import product, python_integers
from intervalcert.backends.registry import get_backend, precision_ladder
from intervalcert.bounds.norm_bounds import Plan, layer_bound
from intervalcert.errors import UnboundedError
from intervalcert.model.arrays import exact_matrix
from intervalcert.model.linear_maps import Dense
from intervalcert.numbers.float_environment import arithmetic_fault, product_fault
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.rounding import round_up, sqrt_lower, sqrt_upper
from intervalcert.verify.jobs import batches_of
from intervalcert.verify.number_table import Epsilons, NumberTable
from intervalcert.verify.points import PointVerifier
from intervalcert.verify.program_logits import LogitVerifier

BACKEND = get_backend("float64")


def matmul(a, b):
    return python_integers(product(a, b))


# -- products --------------------------------------------------------------------------------------------------------


def cancelling(rng, shape):
    """Rows whose products are large and whose sums are nearly nothing."""
    half = rng.standard_normal((shape[0], (shape[1] + 1) // 2)) * 10.0 ** rng.integers(-8, 8, (shape[0], 1))
    return np.concatenate([half, -half * (1 + 2.0**-50)], axis=1)[:, : shape[1]]


ADVERSARIAL = {
    "gaussian": lambda rng, shape: rng.standard_normal(shape),
    "cancellation": cancelling,
    "all alike": lambda rng, shape: np.full(shape, 1 / 3),
    "ones and halves of an ulp": lambda rng, shape: 1 + rng.integers(0, 2, shape) * 2.0**-52,
    "1e300": lambda rng, shape: rng.standard_normal(shape) * 1e300,
    "1e-300": lambda rng, shape: rng.standard_normal(shape) * 1e-300,
    "subnormal": lambda rng, shape: rng.integers(-99, 100, shape) * 5e-324,
    "subnormal beside normal": lambda rng, shape: (
        rng.integers(-99, 100, shape) * 2.0 ** rng.choice([-1074, -540], shape)
    ),
    "products that underflow": lambda rng, shape: (
        rng.standard_normal(shape) * 2.0 ** rng.choice([0, -537, -530], shape)
    ),
    "mixed": lambda rng, shape: rng.standard_normal(shape) * 10.0 ** rng.integers(-300, 300, shape),
    "one huge entry": lambda rng, shape: np.where(np.arange(shape[0] * shape[1]).reshape(shape) == 1, 1e308, 1e-10),
    "zero": lambda rng, shape: np.zeros(shape),
    "a third": lambda rng, shape: RationalMatrix.from_integers(rng.integers(-99, 100, shape).tolist(), 3),
}
SHAPES = ((1, 1), (3, 200), (70, 5), (33, 64), (64, 130))


def made(kind, shape, seed=0):
    found = ADVERSARIAL[kind](np.random.default_rng([seed, *shape]), shape)
    return found if isinstance(found, RationalMatrix) else exact_matrix(found, kind)


def distance_squared(ball: Float64Matrix, numerators, denominator) -> tuple[Fraction, Fraction]:
    """The squared Frobenius distance of a matrix from the centre of the ball, and the squared radius. Exactly."""
    centre = RationalMatrix.from_floats(ball.centre, ball.exponent)
    off = centre.numerators * denominator - numerators * centre.denominator
    return (
        Fraction(int((off * off).sum()), (centre.denominator * denominator) ** 2),
        Fraction(ball.error) ** 2 * Fraction(4) ** ball.exponent,
    )


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", ADVERSARIAL)
def test_float_products_respect_the_bound(kind, shape):
    """Of gram and product, against exact integers; the norm of the centre too."""
    data = made(kind, shape)
    ball = BACKEND.matrix(data)
    smaller = data.numerators if shape[0] <= shape[1] else data.numerators.T
    off, allowed = distance_squared(ball.gram(), matmul(smaller, smaller.T), data.denominator**2)
    assert off <= allowed
    other = made("gaussian", (shape[1], 7), 1)
    off, allowed = distance_squared(
        ball @ BACKEND.matrix(other), matmul(data.numerators, other.numerators), data.denominator * other.denominator
    )
    assert off <= allowed
    squares = ball.frobenius_squared()
    flat = data.numerators.ravel()
    assert squares.lower() <= Fraction(int(flat @ flat), data.denominator**2) <= squares.upper()


@pytest.mark.parametrize("shape", SHAPES[1:])
@pytest.mark.parametrize("kind", ["gaussian", "cancellation", "all alike", "mixed"])
def test_squares_of_balls_contain_those_of_their_members(kind, shape):
    """A second product, of a ball that is no point any more: exact gram of the exact gram."""
    data = made(kind, shape)
    smaller = data.numerators if shape[0] <= shape[1] else data.numerators.T
    gram = matmul(smaller, smaller.T)
    off, allowed = distance_squared(BACKEND.matrix(data).gram().gram(), matmul(gram, gram), data.denominator**4)
    assert off <= allowed


def missed_distances(data, metric=None):
    """Pairs of rows whose exact distance, squared, is not in the float64 enclosure."""
    rows, unit = data.numerators, data.denominator**2
    weights = np.identity(rows.shape[1], dtype=object) if metric is None else metric.numerators
    unit *= 1 if metric is None else metric.denominator
    ball = None if metric is None else BACKEND.matrix(metric)
    found = BACKEND.matrix(data).distances_squared(ball)
    inner = matmul(matmul(rows, weights), rows.T)  # (x - y)ᵀW(x - y) = xᵀWx + yᵀWy - xᵀWy - yᵀWx
    missed = []
    for place, (j, i) in enumerate(zip(*np.tril_indices(len(rows), -1), strict=True)):
        exact = Fraction(int(inner[j, j] + inner[i, i] - inner[i, j] - inner[j, i]), unit)
        if not found[place].lower() <= exact <= found[place].upper():
            missed.append((i, j))
    return missed


@pytest.mark.parametrize("shape", [(2, 1), (9, 5), (12, 130)])
@pytest.mark.parametrize("kind", ADVERSARIAL)
def test_distances_respect_the_bound(kind, shape):
    """With a metric and without, against exact integers."""
    data, side = made(kind, shape), shape[1]
    gaussian = np.random.default_rng(side).standard_normal((side, side))
    assert missed_distances(data) == []
    assert missed_distances(data, exact_matrix(gaussian @ gaussian.T, "a metric")) == []
    assert missed_distances(data, made(kind, (side, side), 2)) == []


NEAR = {
    "a step apart": lambda rng: 1 + rng.integers(0, 2, (8, 40)) * 2.0**-52,
    "a long common part": lambda rng: rng.standard_normal(40) * 1e8 + rng.standard_normal((8, 40)),
    "nothing but rounding": lambda rng: np.full((8, 40), 1 / 3) * (1 + np.arange(8)[:, None] * 2.0**-52),
    "differences that vanish": lambda rng: np.ones((8, 40)) + np.eye(8, 40) * 2.0**-52,
    "squares that vanish": lambda rng: np.eye(40)[0] + rng.integers(0, 2, (8, 40)) * 2.0**-538 * (np.arange(40) > 0),
}


@pytest.mark.parametrize("kind", NEAR)
def test_distances_of_rows_that_are_near_each_other(kind):
    rng = np.random.default_rng(4)
    gaussian = rng.standard_normal((40, 40))
    data = exact_matrix(NEAR[kind](rng), kind)
    assert missed_distances(data) == []
    assert missed_distances(data, exact_matrix(gaussian @ gaussian.T, "a metric")) == []


def some_number(rng, near):
    """A float, or what is none and has an error as a float; around `near`, at some distance."""
    step = Fraction(int(rng.integers(-(2**53), 2**53)), 2 ** int(rng.choice([53, 60, 80, 100])))
    return [near + step, Fraction(float(near + step)), near + step / 3][rng.integers(3)]


@pytest.mark.parametrize("seed", range(60))
def test_distances_of_single_numbers(seed):
    """Rows of one number: each rounding of difference, product and metric shows, and so does each error brought along.

    The rows have no error, all have one, or the metric has: as a part of what matters each is the largest somewhere.
    """
    rng = np.random.default_rng(seed)
    near = Fraction(int(rng.choice([0, 1, 1000])))
    exact = rng.random() < 0.5
    rows = [[Fraction(float(x)) if exact else x] for x in (some_number(rng, near) for _ in range(12))]
    data = RationalMatrix.from_fractions(rows)
    assert missed_distances(data) == []
    for metric in (Fraction(1, 3), Fraction(float(rng.random())), Fraction(2**60 + 1, 2**60)):
        assert missed_distances(data, RationalMatrix.from_fractions([[metric]])) == []


def test_distances_whose_products_vanish_are_held():
    """Short rows beside one that keeps the scale, and a small metric: every product of their differences underflows."""
    bits = np.random.default_rng(6).integers(0, 2, (8, 40))
    rows = np.vstack([np.eye(40)[0], bits * 2.0**-508])
    assert missed_distances(exact_matrix(rows, "rows"), exact_matrix(np.eye(40) * 2.0**-60, "a metric")) == []


@pytest.mark.parametrize("gap", [0.0, 1.0])
@pytest.mark.parametrize(("off", "apart"), [(0.25, 0.0), (0.0, 0.25), (0.25, 0.25)])
def test_distances_reach_as_far_as_the_balls(gap, off, apart):
    """The worst members: two rows moved by off/sqrt(2) each, in a metric that is larger, or smaller, by `apart`."""
    rows, metric = Float64Matrix(np.array([[0.0], [gap]]), 0, off), Float64Matrix(np.array([[1.0]]), 0, apart)
    found = rows.distances_squared(metric)[0]
    moved = sqrt_lower(Fraction(2) * Fraction(off) ** 2, 60)
    assert found.upper() >= (Fraction(gap) + moved) ** 2 * (1 + Fraction(apart))
    assert found.lower() <= max(Fraction(gap) - moved, Fraction(0)) ** 2 * (1 - Fraction(apart))
    if not apart:
        plain = rows.distances_squared()[0]
        assert plain.lower() <= found.lower() + Fraction(1, 2**40)
        assert plain.upper() >= (Fraction(gap) + moved) ** 2


def test_distances_without_their_rounding_terms_are_caught(monkeypatch):
    data = made("gaussian", (12, 130))
    monkeypatch.setattr(float64, "gamma_up", lambda k: 0.0)
    monkeypatch.setattr(float64, "U", 0.0)
    assert missed_distances(data)


def test_a_bound_without_its_rounding_term_is_caught(monkeypatch):
    """The checks above can fail: nothing for rounding, and a matrix is found that was rounded."""
    monkeypatch.setattr(float64, "gamma_up", lambda k: 0.0)
    caught = 0
    for kind in ("gaussian", "cancellation", "all alike"):
        data = made(kind, (33, 64))
        off, allowed = distance_squared(
            BACKEND.matrix(data).gram(), matmul(data.numerators, data.numerators.T), data.denominator**2
        )
        caught += off > allowed
    assert caught == 3


# -- vectors ---------------------------------------------------------------------------------------------------------


def some_vector(rng):
    """Points and intervals, of either sign and around zero, some of them near the ends of the floats."""
    ends = np.sort(rng.standard_normal((2, 60)) * 2.0 ** rng.choice([0, -30, 900, -1040], 60), axis=0)
    ends[0, ::4] = ends[1, ::4]
    ends[:, 0] = 0.0
    vector = Float64Vector(ends[0], ends[1], rng.integers(-9, 9, 60))
    return vector, [(vector[k].lower(), vector[k].upper()) for k in range(60)]


@pytest.mark.parametrize("seed", range(20))
def test_multiples_of_vectors_hold_those_of_their_ends(seed):
    """With factors of 100 bits, as points and as intervals, in fractions."""
    rng = np.random.default_rng(seed)
    vector, ends = some_vector(rng)
    for shift in (0, 3, 2000, -2000):
        one, other = sorted(Fraction(int(x) * 2**50 + 1, 2**112) for x in rng.integers(-(2**62), 2**62, 2))
        for low, high in ((one, one), (one, other)):
            size = Fraction(2) ** shift
            found = vector.scalar_mul(BACKEND.hull(low * size, high * size))
            for k, pair in enumerate(ends):
                products = [x * y * size for x in pair for y in (low, high)]
                assert found[k].lower() <= min(products)
                assert found[k].upper() >= max(products)
    assert (found.low[0], found.high[0]) == (0, 0)


@pytest.mark.parametrize("seed", range(20))
def test_sums_of_vectors_hold_those_of_their_ends(seed):
    """Of all scales, in fractions; the sum of zeros is zero. Other lengths are refused."""
    rng = np.random.default_rng(seed)
    (one, ends), (other, others) = some_vector(rng), some_vector(rng)
    for apart in (0, 1, 60, 1100, 3000):
        moved = Float64Vector(other.low, other.high, other.exponents - apart)
        found = one + moved
        for k, ((a, b), (c, d)) in enumerate(zip(ends, others, strict=True)):
            scale = Fraction(1, 2**apart)
            assert found[k].lower() <= a + c * scale
            assert found[k].upper() >= b + d * scale
        assert (found.low[0], found.high[0]) == (0, 0)
        assert ((moved + one).low == found.low).all()
    with pytest.raises(ValueError, match="60 and 1"):
        _ = one + Float64Vector(np.zeros(1), np.zeros(1), np.zeros(1, dtype=np.int64))


@pytest.mark.parametrize("prec", [16, 30, 52, 53, 64])
def test_roots_of_vectors_hold_those_of_their_ends(prec):
    vector, ends = some_vector(np.random.default_rng(prec))
    found = vector.roots(get_backend("float64", prec))
    for k, pair in enumerate(ends):
        low, high = (sqrt_upper(max(x, Fraction(0)), prec) for x in pair)
        assert found[k].lower() <= low
        assert found[k].upper() >= high
        assert found[k].upper() <= high * (1 + Fraction(1, 2**51))


@pytest.mark.parametrize("bits", [1, 16, 30, 52, 53, 64])
def test_upper_ends_of_vectors_are_rounded_up(bits):
    vector, ends = some_vector(np.random.default_rng(bits))
    assert list(vector.upper(bits)) == [round_up(high, bits) for _, high in ends]


@pytest.mark.parametrize("seed", range(5))
def test_entries_put_into_vectors_are_held(seed):
    rng = np.random.default_rng(seed)
    vector, _ = some_vector(rng)
    some = {
        k: Fraction(int(x) * 2**50 + 1, 2**112) * Fraction(2) ** int(rng.integers(-3000, 3000))
        for k, x in enumerate(rng.integers(-(2**62), 2**62, 60))
    }
    found = vector.replaced({k: BACKEND.scalar(x) for k, x in some.items()})
    for k, x in some.items():
        assert found[k].lower() <= x <= found[k].upper()
        assert found[k].upper() - found[k].lower() <= abs(x) / 2**50
    zero = vector.replaced({5: BACKEND.scalar(Fraction(0))})[5]
    assert zero.lower() == zero.upper() == 0


def test_a_vector_beyond_the_floats_is_refused():
    with pytest.raises(UnboundedError):
        Float64Vector(np.zeros(1), np.array([np.inf]), np.zeros(1, dtype=np.int64))


def test_a_bound_without_its_underflow_term_is_caught(monkeypatch):
    """Every product underflows to nothing; only the underflow term knows of them."""
    entries = np.full((2, 4096), 2.0**-540)
    exact = np.full((2, 2), 4096, dtype=object)
    tiny = Float64Matrix(entries, 0, 0.0)
    off, allowed = distance_squared(tiny.gram(), exact, 2**1080)
    assert off <= allowed
    monkeypatch.setattr(float64, "ETA", 0.0)
    blind = Float64Matrix(entries, 0, 0.0, norm=2.0**-533)
    off, allowed = distance_squared(blind.gram(), exact, 2**1080)
    assert off > allowed


def test_a_multiple_by_a_point_covers_its_own_rounding():
    """Between equal ends nothing but the roundings of the products is there to be covered."""
    entries = np.random.default_rng(2).standard_normal((9, 9))
    r = 1 / 3
    ball = Float64Matrix(entries, 0, 0.0)._times_between(r, r, 0)
    data = RationalMatrix.from_floats(entries)
    top, bottom = r.as_integer_ratio()
    off, allowed = distance_squared(ball, data.numerators * top, data.denominator * bottom)
    assert 0 < off <= allowed


@pytest.mark.parametrize("shift", [900, 1100, 3000])
def test_what_vanishes_on_a_larger_scale_is_in_the_radius(shift):
    entries = np.array([[1.0, -3.0, 2.0**-500], [2.0**-1074, 0.1, 1e-300]])
    ball = Float64Matrix(entries, 0, 0.0)._moved_to(shift)
    data = RationalMatrix.from_floats(entries)
    off, allowed = distance_squared(ball, data.numerators, data.denominator)
    assert 0 < off <= allowed


@settings(max_examples=60)
@given(
    kind=st.sampled_from(sorted(ADVERSARIAL)),
    shape=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    seed=st.integers(0, 10**6),
    iterations=st.integers(0, 14),
)
def test_bounds_are_those_of_exact_or_above(kind, shape, seed, iterations):
    """On float64 alone where it answers, at any scale. (The law, once more, on the matrices of this file.)"""
    data = made(kind, shape, seed)
    plan = Plan("gram", iterations)
    found = layer_bound(Dense(data), precision_ladder("float64"), plan)
    assert found.upper >= layer_bound(Dense(data), precision_ladder("exact"), plan).upper


def test_no_scale_needs_another_number_system():
    for kind in ADVERSARIAL:
        found = layer_bound(Dense(made(kind, (9, 12))), precision_ladder("float64"), Plan("gram", 11))
        assert found.computed_by == "float64, 53 bits", (kind, found.skipped_because)
        assert found.skipped_because == ()


# -- when it is not enough -------------------------------------------------------------------------------------------


def test_a_ball_too_fat_to_be_useful_falls_back_and_says_so():
    """Each step doubles the error at least: after 40 a flat spectrum is lost in it."""
    signs = np.array([[1.0]])
    for _ in range(5):
        signs = np.block([[signs, signs], [signs, -signs]])
    weights = exact_matrix(signs / 3, "a Hadamard matrix")
    found = layer_bound(Dense(weights), precision_ladder("float64"), Plan("gram", 40))
    assert found.computed_by != "float64, 53 bits"
    assert found.skipped_because[0].startswith("float64, 53 bits: ")
    assert found.upper >= layer_bound(Dense(weights), precision_ladder("exact"), Plan("gram", 40)).upper


def test_the_way_down_is_arb_then_exact():
    assert [rung.name for rung in precision_ladder("float64")] == ["float64", "arb", "arb", "exact"]


def test_inner_products_beyond_the_proof_are_refused():
    with pytest.raises(UnboundedError):
        float64.gamma_up(2**52)
    assert float64.gamma_up(2**51 - 2) <= 0.34


def test_decimals_enter_as_balls():
    tenth = BACKEND.matrix(RationalMatrix.from_integers([[1]], 10))
    assert 0 < tenth.error <= 2.0**-56
    half = BACKEND.matrix(RationalMatrix.from_integers([[1]], 2))
    assert half.error == 0


def test_scalars_are_rounded_outward_at_any_size():
    third = Float64Scalar.around(Fraction(1, 3), Fraction(1, 3))
    assert third.lower() < Fraction(1, 3) < third.upper()
    tower = third
    for _ in range(12):
        tower = tower * tower
        assert max(tower.low[0].bit_length(), tower.high[0].bit_length()) <= 129
    assert tower.lower() < Fraction(1, 3) ** 4096 < tower.upper()


# -- the machine -----------------------------------------------------------------------------------------------------


def test_this_machine_is_as_the_proof_assumes():
    assert arithmetic_fault() is None
    assert product_fault() is None


CHANGE = """
import ctypes, ctypes.util, pickle, sys
libm = ctypes.CDLL(ctypes.util.find_library("m"))
import numpy as np
from intervalcert.numbers.float_environment import arithmetic_fault, product_fault
assert arithmetic_fault() is None
def change():
    if sys.argv[1] == "flush":
        environment = ctypes.create_string_buffer(64)
        libm.fegetenv(environment)
        word = ctypes.c_uint32.from_buffer(environment, 28)   # the control word of SSE arithmetic on x86-64
        word.value |= int(sys.argv[2], 16)
        libm.fesetenv(environment)
    else:
        libm.fesetround(int(sys.argv[2], 16))
"""

CHANGED = """
from intervalcert import Network, certify, compute_bounds
network = Network.from_arrays([np.eye(3) / 3, np.eye(3)])
change()
print(arithmetic_fault())
print(product_fault())
bounds = compute_bounds(network, "float64", 3)
layers = bounds.layers
assert all(verdict.exactly for verdict in certify(bounds, np.eye(3), "0.1"))
print(layers[0].computed_by, "|", layers[0].skipped_because[0] if layers[0].skipped_because else "")
"""


SETTABLE = pytest.mark.skipif(
    not sys.platform.startswith("linux") or "x86_64" not in platform.machine(),
    reason="the settings of arithmetic are changed through the C library of Linux on x86-64",
)


def run_changed(what, code, program, data=b""):
    """Standard output of a program in a process whose arithmetic is changed where it calls `change`."""
    argv = [sys.executable, "-c", CHANGE + program, what, code]
    done = subprocess.run(argv, capture_output=True, input=data, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@SETTABLE
@pytest.mark.parametrize(
    ("what", "code", "fault"),
    [
        ("flush", "8000", "flushed to zero"),
        ("flush", "0040", "zero"),
        ("flush", "8040", "zero"),
        ("upward", "800", "nearest"),
        ("downward", "400", "nearest"),
        ("toward zero", "c00", "nearest"),
    ],
)
def test_a_process_with_other_arithmetic_is_found_out(what, code, fault):
    """Then float64 refuses, arb answers, and the result says why."""
    first, product, second = run_changed(what, code, CHANGED).decode().splitlines()
    assert fault in first
    assert fault.split()[-1] in product
    by, reason = second.split(" | ")
    assert by.startswith("arb")
    assert "cannot be trusted in this process" in reason
    assert first in reason


ARRIVED = """
from fractions import Fraction
from intervalcert.verify.number_table import Epsilons, NumberTable
from intervalcert.errors import SoundnessError, UnboundedError
from intervalcert.numbers.matrices import RationalMatrix
backend, bulk, by_input, *floats = pickle.load(sys.stdin.buffer)
change()
try:
    pickle.loads(backend).matrix(RationalMatrix.from_floats(np.eye(2)))
except UnboundedError as error:
    print(error)
radii = Epsilons.all_equal(Fraction(1, 10))
assert all(verdict.exactly for verdict in pickle.loads(bulk).verdicts(NumberTable(np.eye(3)), radii))
certifier, block = pickle.loads(by_input)
assert all(verdict.exactly for verdict in certifier.verdicts(block))
for each in floats:
    try:
        pickle.loads(each)
    except SoundnessError as error:
        print(error)
"""


def travellers():
    """All that tests the float environment when it is made: and something to judge."""
    network = Network.from_arrays([np.eye(3) / 3, np.eye(3)])
    real, single = (verification_job(network, None, None, name) for name in ("real", "float32"))
    (block,) = batches_of(NumberTable(np.eye(3)), network, Fraction(1), Epsilons.all_equal(Fraction(1, 10)))
    certifier = PointVerifier(real)
    assert not any(verdict.exactly for verdict in certifier.verdicts(block))
    return (
        real.ladder[0],
        vectorised_certifier(compute_bounds(network)),
        (certifier, block),
        PointVerifier(single),
        LogitVerifier(single, Fraction(2)),
    )


@SETTABLE
@pytest.mark.parametrize(("what", "code"), [("flush", "8040"), ("upward", "800")])
def test_what_arrives_in_a_process_with_other_arithmetic_finds_it_out(what, code):
    """The sender's own test says nothing of it."""
    sent = [pickle.dumps(each) for each in travellers()]
    said = run_changed(what, code, ARRIVED, pickle.dumps(sent)).decode().splitlines()
    assert len(said) == 3
    assert all("float64 arithmetic cannot be trusted in this process" in line for line in said)


SENT = """
from fractions import Fraction
from intervalcert.backends.registry import get_backend
from intervalcert.verify.number_table import Epsilons, NumberTable
from intervalcert.verify.vectorised import VectorisedCertifier
change()
bulk = VectorisedCertifier(((Fraction(0), Fraction(3, 7)), (Fraction(3, 7), Fraction(0))), get_backend("exact"))
assert bulk.verdicts(NumberTable(np.eye(2)), Epsilons.all_equal(Fraction(1)))[0].exactly
sys.stdout.buffer.write(pickle.dumps((get_backend("float64"), bulk)))
"""


@SETTABLE
@pytest.mark.parametrize(("what", "code"), [("flush", "8040"), ("upward", "800")])
def test_what_arrives_from_a_process_with_other_arithmetic_does_not_mind(what, code):
    """Nor does it bring floats that were computed there."""
    backend, bulk = pickle.loads(run_changed(what, code, SENT))
    assert backend.matrix(RationalMatrix.from_floats(np.eye(2))).error == 0
    assert bulk._tables == {}
    assert not bulk.verdicts(NumberTable(np.eye(2)), Epsilons.all_equal(Fraction(1)))[0].exactly


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, replace, lambda x: pickle.loads(pickle.dumps(x))])
def test_every_copy_of_the_number_system_tests_again(monkeypatch, copied):
    backend = Float64Backend(100)
    monkeypatch.setattr(float64, "product_fault", lambda: "a fault")
    with pytest.raises(UnboundedError, match="a fault"):
        copied(backend).matrix(RationalMatrix.from_floats(np.eye(2)))
    assert copied(backend) == backend


def test_bounds_through_the_api_name_the_backend():
    network = Network.from_arrays([np.array([[0.5, 0.25], [1.0, -1.0]]), np.eye(2)])
    bounds = compute_bounds(network, "float64", 6)
    assert (bounds.method.backend, bounds.method.working_bits) == ("float64", 53)
    exact = compute_bounds(network, "exact", 6)
    for mine, reference in zip(bounds.layers, exact.layers, strict=True):
        assert reference.upper <= mine.upper <= reference.upper * (1 + Fraction(1, 2**44))


def test_rows_that_are_too_long_have_no_distances(monkeypatch):
    """The bound of their rounding is for so many terms."""
    monkeypatch.setattr("intervalcert.backends.float64.LONGEST", 3)
    made = Float64Backend(64).matrix(RationalMatrix.from_floats(np.ones((2, 4))))
    with pytest.raises(UnboundedError, match="too long"):
        made.distances_squared()
