"""exp and what is built from it: enclosures in integers and floats against mpmath, whose precision cannot matter."""

from fractions import Fraction
from random import Random

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from intervalcert import Network, evaluate
from intervalcert.backends.generic import GenericMatrix
from intervalcert.backends.registry import backend_names, get_backend
from intervalcert.errors import InputError, UnboundedError
from intervalcert.numbers.exponentials import (
    FLOAT_ERROR,
    expm1_neg_enclosure,
    floats_expm1_neg,
    floats_log1p_exp_neg,
    floats_sigmoid,
    log1p_exp_neg_enclosure,
    sigmoid_enclosure,
)
from intervalcert.numbers.matrices import RationalMatrix

BITS = 600


def exactly(x):
    return mpmath.mpf(x.numerator) / x.denominator


def logistic(x):
    return 1 / (1 + mpmath.exp(-x))


def decay(x):
    return mpmath.expm1(min(x, mpmath.mpf(0)))


def soft(x):
    return mpmath.log1p(mpmath.exp(min(x, mpmath.mpf(0))))


FUNCTIONS = {
    "sigmoid": (sigmoid_enclosure, floats_sigmoid, logistic),
    "expm1_neg": (expm1_neg_enclosure, floats_expm1_neg, decay),
    "log1p_exp_neg": (log1p_exp_neg_enclosure, floats_log1p_exp_neg, soft),
}
arguments = st.fractions(min_value=-800, max_value=800) | st.floats(-40, 40).map(Fraction) | st.just(Fraction(0))


@pytest.mark.parametrize("name", FUNCTIONS)
@given(x=arguments, bits=st.sampled_from([1, 8, 64, 300]))
def test_integers_enclose_the_value_and_no_more(name, x, bits):
    enclose, _, truth = FUNCTIONS[name]
    low, high = enclose(x, bits)
    with mpmath.workprec(BITS):
        assert exactly(low) <= truth(exactly(x)) <= exactly(high)
    assert high - low <= Fraction(1, 2**bits)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_floats_are_as_near_as_proved(name):
    """Everywhere: around zero, around the ends of the reduction by ln 2, far out, and at the ends of the floats."""
    _, approximate, truth = FUNCTIONS[name]
    rng = np.random.default_rng(1)
    edges = np.arange(-1020, 1021) * (np.log(2) / 2)
    x = np.concatenate(
        [rng.standard_normal(500), rng.normal(0, 50, 500), edges, np.nextafter(edges, 0), [0.0, 5e-324, -5e-324]]
    )
    far = np.array([1e3, -1e3, 1e308, -1e308, np.inf, -np.inf])
    with mpmath.workprec(BITS):
        worst = max(
            abs(mpmath.mpf(a) - truth(mpmath.mpf(b))) for a, b in zip(approximate(x).tolist(), x.tolist(), strict=True)
        )
        assert worst <= mpmath.mpf(FLOAT_ERROR) / 16, "the proof leaves room"
        for a, b in zip(approximate(far).tolist(), far.tolist(), strict=True):
            assert abs(mpmath.mpf(a) - truth(mpmath.mpf(b))) <= FLOAT_ERROR


@pytest.mark.parametrize("name", FUNCTIONS)
@given(seed=st.integers(0, 10**6), scale=st.sampled_from([-300, -2, 0, 3, 20, 2000]))
def test_matrices_enclose_the_values_of_all_members(name, seed, scale):
    """Points and wide sets, on every number system but exact rationals, which cannot hold the values."""
    random = Random(seed)
    points = [[Fraction(random.randint(-40, 40), 8) * Fraction(2) ** scale for _ in range(3)] for _ in range(2)]
    width = Fraction(random.choice([0, 1, 5]), 10)
    with mpmath.workprec(BITS):  # once: numbers of such sizes take long
        members = [
            (i, j, FUNCTIONS[name][2](exactly(x * part)))
            for part in dict.fromkeys((1 - width, Fraction(1), 1 + width))
            for i, row in enumerate(points)
            for j, x in enumerate(row)
        ]
    for backend_name in backend_names():
        backend = get_backend(backend_name)
        data = RationalMatrix.from_fractions(points)
        for made in (backend.matrix(data), GenericMatrix.of(backend, data)):
            if backend.working_bits is None:
                with pytest.raises(UnboundedError):
                    getattr(backend.matrix(data), name)()
                continue
            wide = made.scalar_mul(backend.hull(1 - width, 1 + width))
            low, high = getattr(wide, name)().float_bounds()
            with mpmath.workprec(BITS):
                for i, j, value in members:
                    assert mpmath.mpf(float(low[i, j])) <= value <= mpmath.mpf(float(high[i, j])), backend_name


@pytest.mark.parametrize("name", FUNCTIONS)
def test_an_error_that_is_forgotten_is_caught(name, monkeypatch):
    """The control: values off by the error that they are said to have at most leave an enclosure without it."""
    _, approximate, truth = FUNCTIONS[name]
    monkeypatch.setattr(f"intervalcert.backends.float64.floats_{name}", lambda x: approximate(x) + FLOAT_ERROR)
    monkeypatch.setattr("intervalcert.backends.float64.FLOAT_ERROR", 0.0)
    x = RationalMatrix.from_floats(np.linspace(-3, -0.5, 9)[None])
    low, _ = getattr(get_backend("float64").matrix(x), name)().float_bounds()
    with mpmath.workprec(BITS):
        assert any(mpmath.mpf(float(low[0, j])) > truth(exactly(x[0, j])) for j in range(9))


@pytest.mark.parametrize(
    ("between", "function"),
    [
        ("tanh", mpmath.tanh),
        ("sigmoid", logistic),
        ("elu:1", lambda x: x if x > 0 else mpmath.expm1(x)),
        ("elu:0.3", lambda x: x if x > 0 else mpmath.mpf("0.3") * mpmath.expm1(x)),
        ("softplus", lambda x: mpmath.log1p(mpmath.exp(x))),
    ],
)
@pytest.mark.parametrize("backend", ["float64", "arb", "mpmath"])
def test_networks_with_curves_are_enclosed(between, function, backend):
    rng = np.random.default_rng(3)
    weights = [rng.standard_normal(shape) for shape in ((5, 4), (5, 5), (3, 5))]
    biases = [rng.standard_normal(len(w)) for w in weights]
    inputs = rng.standard_normal((6, 4)) * 3
    found = evaluate(Network.from_arrays(weights, biases, between=between), inputs, backend=backend)
    with mpmath.workprec(BITS):
        for row, x in enumerate(inputs.tolist()):
            value = [mpmath.mpf(v) for v in x]
            for layer, (w, b) in enumerate(zip(weights, biases, strict=True)):
                value = [
                    mpmath.fsum(a * v for a, v in zip(r, value, strict=True)) + c
                    for r, c in zip(w.tolist(), b.tolist(), strict=True)
                ]
                ends = zip(found.lower[layer][row].tolist(), value, found.upper[layer][row].tolist(), strict=True)
                assert all(mpmath.mpf(low) <= v <= mpmath.mpf(high) for low, v, high in ends)
                value = [function(v) for v in value]
    assert max(float(np.max(high - low)) for low, high in zip(found.lower, found.upper, strict=True)) < 1e-9


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("backend", ["float64", "arb", "mpmath"])
@pytest.mark.parametrize("radius", [Fraction(1, 2**10), Fraction(1, 4), Fraction(3)])
def test_sets_are_enclosed_at_their_ends(name, backend, radius):
    """Where the functions are steepest, and elsewhere: a constant that is too small is seen at 0."""
    system, truth = get_backend(backend), FUNCTIONS[name][2]
    for middle in (Fraction(0), -radius, radius, Fraction(-5), Fraction(1, 3)):
        centre, one = (system.matrix(RationalMatrix.from_fractions([[x]])) for x in (middle, Fraction(1)))
        found = getattr(centre + one.scalar_mul(system.hull(-radius, radius)), name)()
        low, high = (mpmath.mpf(float(end[0, 0])) for end in found.float_bounds())
        with mpmath.workprec(BITS):
            for x in (middle - radius, middle, middle + radius):
                assert low <= truth(mpmath.mpf(x.numerator) / x.denominator) <= high


def test_groups_are_not_evaluated():
    with pytest.raises(InputError, match="group_sort"):
        evaluate(Network.from_arrays([np.eye(2), np.eye(2)], between="group_sort"), np.ones((1, 2)))
