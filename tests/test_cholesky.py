"""Norms by a Cholesky factor: true whatever the factor is, tight when it is good, and checked again by audits."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import at_least_the_norm, rational_matrices, to_rows

from intervalcert import Network, audit, compute_bounds
from intervalcert.backends.registry import backend_names, get_backend, precision_ladder
from intervalcert.bounds.norm_bounds import Plan, layer_bound
from intervalcert.errors import UsageError
from intervalcert.model.arrays import exact_matrix
from intervalcert.model.linear_maps import Dense
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.proof import cholesky as cholesky_module
from intervalcert.proof.cholesky import Factor, cholesky_upper
from intervalcert.proof.norms import frobenius_upper
from intervalcert.search.factors import FloatGram

EXACT = get_backend("exact", 64)


def orthogonal(rng, shape):
    return np.linalg.qr(rng.standard_normal((max(shape), max(shape))))[0][: shape[0], : shape[1]]


SPECTRA = {
    "gaussian": lambda rng, shape: rng.standard_normal(shape),
    "orthogonal": orthogonal,
    "rank one": lambda rng, shape: np.outer(rng.standard_normal(shape[0]), rng.standard_normal(shape[1])),
    "rank three": lambda rng, shape: rng.standard_normal((shape[0], 3)) @ rng.standard_normal((3, shape[1])),
    "float32": lambda rng, shape: rng.standard_normal(shape).astype(np.float32),
    "1e-200": lambda rng, shape: rng.standard_normal(shape) * 1e-200,
    "1e200": lambda rng, shape: rng.standard_normal(shape) * 1e200,
    "rows of many sizes": lambda rng, shape: rng.standard_normal(shape) * 2.0 ** rng.integers(-200, 0, (shape[0], 1)),
}


# -- tight -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["arb", "exact", "float64"])
@pytest.mark.parametrize("kind", SPECTRA)
def test_the_excess_is_below_a_billionth(name, kind):
    """Between a rigorous lower and a rigorous upper bound, so of the true norm."""
    weights = exact_matrix(SPECTRA[kind](np.random.default_rng(4), (40, 60)), kind)
    bound = layer_bound(Dense(weights), precision_ladder(name), Plan("cholesky"))
    assert bound.method == "cholesky"
    assert bound.computed_by.startswith(name)
    assert bound.upper / bound.lower - 1 < Fraction(1, 10**9)
    assert layer_bound(Dense(weights), precision_ladder("exact"), Plan("gram", 4)).upper >= bound.lower


def test_it_is_tighter_than_eleven_steps_of_gram_iteration():
    weights = exact_matrix(orthogonal(np.random.default_rng(5), (64, 64)), "a flat spectrum")
    by_factor, by_gram = (
        layer_bound(Dense(weights), precision_ladder("float64"), Plan(m, 11)) for m in ("cholesky", "gram")
    )
    assert by_factor.upper < by_gram.upper * (1 - Fraction(1, 10**5))


# -- true ------------------------------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(weights=rational_matrices())
def test_the_bound_is_true_and_intervals_enclose_the_exact_one(weights):
    factor = FloatGram(weights).factor()
    if factor is None:
        assert not any(map(any, to_rows(weights)))  # only zero has none
        return
    exact = cholesky_upper(EXACT.matrix(weights), factor, EXACT).upper()
    assert at_least_the_norm(exact, to_rows(weights))
    for name in backend_names():
        backend = get_backend(name, 64)
        assert cholesky_upper(backend.matrix(weights), factor, backend).upper() >= exact


def garbage(random, side):
    """A factor of nothing in particular: any number, any square matrix."""
    shift = random.randint(-5, 50) / random.choice([1, 7, 10**6])
    rows = [[random.randint(-9, 9) / 4 for _ in range(side)] for _ in range(side)]
    return Factor(shift, np.array(rows), random.choice([0, 0, 1, -3]))


@settings(max_examples=100)
@given(weights=rational_matrices(kinds=("decimal", "rank one", "gaussian")), random=st.randoms(use_true_random=False))
def test_the_bound_is_true_whatever_the_factor(weights, random):
    factor = garbage(random, min(weights.shape))
    assert at_least_the_norm(cholesky_upper(EXACT.matrix(weights), factor, EXACT).upper(), to_rows(weights))


def without_residual(matrix, factor, backend):
    return backend.sqrt_upper(backend.scalar(max(factor.c, Fraction(0))))


def without_triangle(matrix, factor, backend):
    """Takes the residual of c·I alone, and subtracts it."""
    multiple = np.diag(np.full(len(factor.triangle), factor.shift))
    residual = backend.matrix(RationalMatrix.from_floats(multiple, 2 * factor.exponent)) - matrix.gram()
    found = backend.scalar(factor.c) - frobenius_upper(residual, backend)
    return backend.sqrt_upper(backend.scalar(max(found.upper(), Fraction(0))))


@pytest.mark.parametrize("broken", [without_residual, without_triangle])
def test_a_proof_with_a_gap_is_caught(broken):
    from random import Random

    weights = exact_matrix(np.array([[3.0, 1.0], [1.0, 5.0]]), "weights")
    found = [broken(EXACT.matrix(weights), garbage(Random(seed), 2), EXACT).upper() for seed in range(20)]
    assert not all(at_least_the_norm(bound, to_rows(weights)) for bound in found)


@pytest.mark.parametrize(
    "broken",
    [
        lambda a: np.zeros_like(a),
        lambda a: np.eye(len(a)) * 1e9,
        lambda a: np.full_like(a, np.nan),
        lambda a: np.full_like(a, 1e300),
        lambda a: np.random.default_rng(0).standard_normal(a.shape),
    ],
    ids=["zeros", "huge", "nan", "overflow", "noise"],
)
@pytest.mark.parametrize("name", backend_names())
def test_a_broken_library_costs_tightness_alone(monkeypatch, name, broken):
    """`auto` then finds the bound too loose, and takes that of Gram iteration."""
    weights = exact_matrix(np.random.default_rng(6).standard_normal((20, 20)), "weights")
    honest = layer_bound(Dense(weights), precision_ladder("exact"), Plan("cholesky"))
    monkeypatch.setattr(np.linalg, "cholesky", broken)
    for method in ("cholesky", "auto"):
        bound = layer_bound(Dense(weights), precision_ladder(name), Plan(method, 8))
        assert bound.upper >= honest.lower
    assert bound.method == "gram"
    assert bound.upper <= honest.upper * Fraction(102, 100)


@pytest.mark.parametrize("routine", ["cholesky", "eigvalsh", "solve"])
def test_a_library_that_fails_is_not_needed(monkeypatch, routine):
    def fails(*_):
        raise np.linalg.LinAlgError("no")

    weights = exact_matrix(np.random.default_rng(7).standard_normal((20, 24)), "weights")
    honest = layer_bound(Dense(weights), precision_ladder("exact"), Plan("gram", 10))
    monkeypatch.setattr(np.linalg, routine, fails)
    bound = layer_bound(Dense(weights), precision_ladder("float64"), Plan("cholesky", 10))
    assert bound.method == ("gram" if routine == "cholesky" else "cholesky")
    assert honest.lower * Fraction(1, 2) < bound.lower <= honest.upper
    assert bound.upper >= honest.lower


def test_zero_falls_back_to_gram_iteration():
    bound = layer_bound(Dense(exact_matrix(np.zeros((20, 20)), "zero")), precision_ladder("float64"), Plan("cholesky"))
    assert (bound.method, bound.lower, bound.upper) == ("gram", 0, 0)


# -- auto ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", backend_names())
def test_auto_is_never_looser_than_either(name):
    for kind, make in SPECTRA.items():
        weights = exact_matrix(make(np.random.default_rng(8), (6, 9)), kind)
        auto, gram, factor = (
            layer_bound(Dense(weights), precision_ladder(name), Plan(m, 12)) for m in ("auto", "gram", "cholesky")
        )
        assert auto.upper == min(gram.upper, factor.upper), kind


def test_auto_gives_exact_norms_exactly():
    bound = layer_bound(Dense(exact_matrix(np.array([[3.0, 4.0]]), "a row")), precision_ladder("arb"), Plan("auto"))
    assert (bound.method, bound.upper) == ("gram", 5)


def test_auto_stops_where_nothing_is_to_be_gained(monkeypatch):
    monkeypatch.setattr(
        "intervalcert.proof.layer_norms.norm_upper", lambda *_: pytest.fail("Gram iteration was run as well")
    )
    weights = exact_matrix(np.random.default_rng(9).standard_normal((30, 30)), "weights")
    assert layer_bound(Dense(weights), precision_ladder("float64"), Plan("auto")).method == "cholesky"


def test_a_number_of_iterations_means_gram_iteration():
    network = Network.from_arrays([np.random.default_rng(1).standard_normal((20, 20)), np.eye(20)])
    assert compute_bounds(network, "float64", 5).layers[0].method == "gram"
    assert compute_bounds(network, "float64").layers[0].method == "cholesky"
    assert compute_bounds(network, "float64", method="gram").layers[0].method == "gram"
    with pytest.raises(UsageError, match="auto, gram, cholesky"):
        compute_bounds(network, "float64", method="power")


# -- audits ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def network():
    rng = np.random.default_rng(10)
    return Network.from_arrays([rng.standard_normal(s) / 5 for s in ((24, 30), (20, 24), (3, 20))])


@pytest.mark.parametrize("prec", [16, 64])
@pytest.mark.parametrize("name", backend_names())
def test_what_cholesky_gave_is_confirmed(network, name, prec):
    bounds = compute_bounds(network, name, method="cholesky", prec=prec)
    assert {layer.method for layer in bounds.layers} == {"cholesky"}
    assert audit(bounds, network).unconfirmed == ()


def test_another_machine_confirms_it_too(network, monkeypatch):
    """Its floats differ in their last bits: the claim is proved, not computed again."""
    bounds = compute_bounds(network, "exact", method="cholesky")
    right = np.linalg.cholesky

    def elsewhere(a):
        found = right(a)
        return found * (1 + 2.0**-51 * np.random.default_rng(3).integers(-2, 3, found.shape))

    monkeypatch.setattr(np.linalg, "cholesky", elsewhere)
    assert audit(bounds, network).unconfirmed == ()


@pytest.mark.parametrize("part", [Fraction(1, 10**6), Fraction(1, 10**10)])
def test_a_claim_below_the_norm_is_not_confirmed(network, part):
    from dataclasses import replace

    bounds = compute_bounds(network, "exact", method="cholesky")
    small = replace(bounds.layers[0], lower=Fraction(0), upper=bounds.layers[0].lower * (1 - part))
    report = audit(replace(bounds, layers=(small, *bounds.layers[1:])), network)
    assert [claim.what for claim in report.unconfirmed if claim.what.startswith("layer")] == ["layer 0, upper"]


def test_the_module_says_what_it_rests_on():
    assert "Proof." in cholesky_module.cholesky_upper.__doc__
    assert "Rump" in cholesky_module.cholesky_upper.__doc__
