"""The chain bound: true on networks evaluated exactly, never below the exact run, tighter than the product, and proved
or given up whatever floats guess.
"""

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from intervalcert import InputError, Network, audit, compute_bounds, load_bounds, save_bounds
from intervalcert.backends import backend_names, get_backend, ladder
from intervalcert.chain import chain_squares, guess_chain
from intervalcert.errors import UndecidedError, UsageError
from intervalcert.lipschitz import chain_margins, margins_by
from intervalcert.network import activation
from intervalcert.rational import sqrt_upper

EXACT = get_backend("exact")


def drawn(seed, widths=(4, 6, 5, 3), between="relu", scale=1.0):
    rng = np.random.default_rng(seed)
    layers = [rng.standard_normal((rows, columns)) * scale for columns, rows in itertools.pairwise(widths)]
    return Network.from_arrays(layers, [rng.standard_normal(len(w)) for w in layers], between=between)


def pairs_of(network):
    return [(i, j) for j in range(network.outputs) for i in range(j)]


# -- the truth, in rationals ------------------------------------------------------------------------------------------


def gradients(network, x):
    """The gradient of each lead at a point where a ReLU network is differentiable, exactly. None elsewhere."""
    value, jacobian = list(x), None
    for layer in network.layers:
        w = [[Fraction(n, layer.weights.denominator) for n in row] for row in layer.weights.numerators.tolist()]
        b = [Fraction(0)] * len(w) if layer.bias is None else [layer.bias[i, 0] for i in range(len(w))]
        z = [sum((a * v for a, v in zip(row, value, strict=True)), start) for row, start in zip(w, b, strict=True)]
        slopes = [Fraction(1)] * len(z)
        if layer.activation is not None:
            if 0 in z:
                return None
            slopes = [Fraction(v > 0) for v in z]
        before = jacobian
        columns = range(len(x))
        if before is None:
            jacobian = [[s * a for a in row] for s, row in zip(slopes, w, strict=True)]
        else:
            jacobian = [
                [s * sum(a * before[k][c] for k, a in enumerate(row)) for c in columns]
                for s, row in zip(slopes, w, strict=True)
            ]
        value = [s * v for s, v in zip(slopes, z, strict=True)]
    return {
        (i, j): [a - b for a, b in zip(jacobian[j], jacobian[i], strict=True)]
        for j in range(network.outputs)
        for i in range(j)
    }


def steeper_than(network, margins, points):
    """Pairs whose lead is steeper somewhere than its margin bound allows."""
    found = []
    for x in points:
        for (i, j), gradient in (gradients(network, x) or {}).items():
            if sum(g * g for g in gradient) > margins[i][j] ** 2:
                found.append((i, j))
    return found


def some_points(network, seed, count=12):
    rng = np.random.default_rng(seed)
    return [[Fraction(int(k), 64) for k in rng.integers(-200, 200, network.inputs)] for _ in range(count)]


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), depth=st.integers(1, 3), wide=st.booleans())
def test_no_gradient_exceeds_the_bound(seed, depth, wide):
    """A rigorous lower bound of the constant, wherever the network is differentiable."""
    widths = (3, *[7 if wide else 3] * depth, 3)
    network = drawn(seed, widths)
    found = chain_margins(network, (EXACT,), Fraction(0))
    assert steeper_than(network, found.matrix, some_points(network, seed)) == []


def test_a_chain_that_skips_the_first_layer_is_caught():
    """The published fault: the bound is then that of another network."""
    network = drawn(3, scale=2.0)
    rest = Network(network.layers[1:], network.sources)
    skipped = chain_margins(rest, (EXACT,), Fraction(0))
    assert steeper_than(network, skipped.matrix, some_points(network, 3, 40))


def test_a_chain_with_too_large_a_sector_step_is_caught(monkeypatch):
    """P' taken for half of what was proved: the gradient check convicts a shrunken bound."""
    network = drawn(5)
    found = chain_margins(network, (EXACT,), Fraction(0))
    steepest = {
        pair: max(sqrt_upper(sum(g * g for g in gradients(network, x)[pair]), 64) for x in some_points(network, 5, 60))
        for pair in pairs_of(network)
    }
    shrunk = [[x / 5 for x in row] for row in found.matrix]
    assert any(steepest[i, j] > shrunk[i][j] for i, j in pairs_of(network))
    assert steeper_than(network, shrunk, some_points(network, 5, 60))


# -- the law -----------------------------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    between=st.sampled_from(["relu", "tanh", "sigmoid", "leaky_relu:0.1", "leaky_relu:-0.5", "elu:2", "group_sort"]),
    scale=st.sampled_from([1.0, 1e-200, 1e150]),
)
def test_every_backend_is_at_least_exact(seed, between, scale):
    network = drawn(seed, between=between, scale=scale)
    guess, pairs = guess_chain(network), pairs_of(network)
    exact = chain_squares(network, guess, pairs, EXACT)
    for name in backend_names():
        found = chain_squares(network, guess, pairs, get_backend(name))
        assert all(mine.upper() >= theirs.upper() for mine, theirs in zip(found, exact, strict=True)), name


@pytest.mark.parametrize("name", backend_names())
@pytest.mark.parametrize("between", ["relu", "tanh", "sigmoid", "leaky_relu:0.1", "elu:2", "identity"])
def test_it_is_no_looser_than_the_product(name, between):
    for seed in range(4):
        network = drawn(seed, between=between)
        product, chain = (compute_bounds(network, name, margins=m).margins.matrix for m in ("product", "chain"))
        best = compute_bounds(network, name, margins="best").margins.matrix
        for i, j in pairs_of(network):
            assert chain[i][j] <= product[i][j] * (1 + Fraction(1, 10**8))
            assert best[i][j] == min(chain[i][j], product[i][j])


def test_it_is_tighter_where_norms_are_attained_in_different_directions():
    network = drawn(1, (10, 20, 20, 20, 3))
    product, chain = (compute_bounds(network, "float64", margins=m).margins.matrix for m in ("product", "chain"))
    assert all(chain[i][j] < product[i][j] * Fraction(95, 100) for i, j in pairs_of(network))


@pytest.mark.parametrize("between", ["group_sort", "min_max", "leaky_relu:-0.5"])
def test_activations_outside_the_sector_take_the_step_of_the_product(between):
    network = drawn(2, between=between)
    product, chain = (compute_bounds(network, "exact", margins=m).margins.matrix for m in ("product", "chain"))
    for i, j in pairs_of(network):
        assert abs(chain[i][j] / product[i][j] - 1) < Fraction(1, 10**8)


def test_which_activations_are_sectors():
    yes = ("relu", "tanh", "hard_tanh", "sigmoid", "identity", "leaky_relu:0.01", "leaky_relu:3", "elu:1", "elu:4")
    assert all(activation(name).is_sector for name in yes)
    assert not any(activation(name).is_sector for name in ("group_sort", "min_max", "leaky_relu:-0.1"))


# -- edges -------------------------------------------------------------------------------------------------------------


def test_a_single_layer_has_one_bound():
    network = Network.from_arrays([np.array([[3.0, 0.0], [0.0, 4.0]])])
    found = [compute_bounds(network, "exact", margins=m).margins.matrix[0][1] for m in ("product", "chain", "best")]
    assert found == [5, 5, 5]


def test_a_zero_layer_makes_every_margin_zero():
    network = Network.from_arrays([np.ones((3, 2)), np.zeros((3, 3)), np.ones((2, 3))])
    assert guess_chain(network) is None
    for method in ("chain", "best"):
        assert compute_bounds(network, "float64", margins=method).margins.matrix == ((0, 0), (0, 0))


@pytest.mark.parametrize("rank", [1, 2])
def test_layers_without_full_rank(rank):
    rng = np.random.default_rng(rank)
    low = rng.standard_normal((6, rank)) @ rng.standard_normal((rank, 6))
    network = Network.from_arrays([low, rng.standard_normal((6, 6)), rng.standard_normal((3, 6))])
    found = chain_margins(network, ladder("float64"))
    assert steeper_than(network, found.matrix, some_points(network, rank)) == []


@pytest.mark.parametrize(
    ("routine", "broken"),
    [
        ("inv", lambda a: a * 0),
        ("inv", lambda a: np.full_like(a, np.nan)),
        ("inv", lambda a: np.full_like(a, np.inf)),
        ("cholesky", lambda a: np.full_like(a, np.nan)),
        ("inv", lambda a: np.linalg.pinv(a) * 0.5),
        ("cholesky", lambda a: a * 0),
        ("cholesky", lambda a: np.eye(len(a)) * 1e3),
        ("eigvalsh", lambda a: np.full(len(a), 1e-3)),
    ],
)
def test_a_wrong_guess_proves_nothing(monkeypatch, routine, broken):
    """Then the product is given: a bound is proved or not used."""
    network = drawn(4)
    product = compute_bounds(network, "exact", 5)
    monkeypatch.setattr(np.linalg, routine, broken)
    guess = guess_chain(network)
    if guess is not None:
        for name in ("exact", "arb", "float64"):
            with pytest.raises(UndecidedError):
                chain_squares(network, guess, pairs_of(network), get_backend(name))
    assert margins_by("best", network, product.layers, ladder("exact")).matrix == product.margins.matrix


@pytest.mark.parametrize(
    ("routine", "broken"), [("cholesky", lambda a: a * 0), ("eigvalsh", lambda a: np.full(len(a), 1e-3))]
)
def test_a_wrong_guess_proves_nothing_outside_the_sector_either(monkeypatch, routine, broken):
    """Here a norm is claimed, and the residual must leave it standing."""
    network = drawn(4, between="group_sort")
    monkeypatch.setattr(np.linalg, routine, broken)
    guess = guess_chain(network)
    assert guess is not None or routine == "eigvalsh"
    for name in ("exact", "arb", "float64") if guess is not None else ():
        with pytest.raises(UndecidedError):
            chain_squares(network, guess, pairs_of(network), get_backend(name))


def test_a_norm_outside_the_sector_must_be_proved():
    """A claimed norm just below the true one, with a good factor of what is left of it."""
    network = drawn(4, between="group_sort")
    guess = guess_chain(network)
    small = (replace(guess[0], factor=guess[0].factor / 2, after=guess[0].after / 2), *guess[1:])
    for name in backend_names():
        with pytest.raises(UndecidedError):
            chain_squares(network, small, pairs_of(network), get_backend(name))


@pytest.mark.parametrize("name", ["arb", "mpmath"])
@pytest.mark.parametrize("between", ["relu", "group_sort"])
def test_undecided_is_not_proved(name, between):
    """Numbers of 32 bits can neither prove nor refute a good guess, which exact rationals prove."""
    network = drawn(4, between=between)
    guess, pairs = guess_chain(network), pairs_of(network)
    with pytest.raises(UndecidedError):
        chain_squares(network, guess, pairs, get_backend(name, 16))
    assert chain_squares(network, guess, pairs, get_backend("exact", 16))


@pytest.mark.parametrize("name", backend_names())
def test_a_matrix_that_is_not_positive_definite_is_not_inverted(name):
    """Lambda four times as large: X has negative eigenvalues, and no slack makes up for it."""
    network = drawn(4)
    first, *rest = guess_chain(network)
    wrong = replace(first, factor=first.factor * 4, slack=1e6, after=first.after + 1e6 * np.eye(len(first.after)))
    with pytest.raises(UndecidedError):
        chain_squares(network, (wrong, *rest), pairs_of(network), get_backend(name))


# -- files and audits --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", backend_names())
@pytest.mark.parametrize("method", ["chain", "best"])
def test_an_audit_confirms_it(tmp_path, name, method):
    network = drawn(6)
    bounds = compute_bounds(network, name, margins=method)
    save_bounds(bounds, tmp_path / "b.json")
    again = load_bounds(tmp_path / "b.json")
    assert again == bounds
    assert again.method.margins == method
    assert audit(again, network).unconfirmed == ()


def test_an_audit_elsewhere_confirms_it(monkeypatch):
    """Another machine's floats differ in their last bits."""
    network = drawn(7)
    bounds = compute_bounds(network, "exact", margins="chain")
    right = np.linalg.inv
    monkeypatch.setattr(np.linalg, "inv", lambda a: right(a) * (1 + 2.0**-48))
    assert audit(bounds, network).unconfirmed == ()


def test_a_margin_that_is_too_small_is_not_confirmed():
    network = drawn(8)
    bounds = compute_bounds(network, "exact", margins="chain")
    shrunk = tuple(tuple(x * Fraction(999, 1000) for x in row) for row in bounds.margins.matrix)
    report = audit(replace(bounds, margins=replace(bounds.margins, matrix=shrunk)), network)
    assert len(report.unconfirmed) == 3


def test_an_unknown_method_is_refused(tmp_path):
    network = drawn(9)
    with pytest.raises(UsageError, match="product, chain, best"):
        compute_bounds(network, "exact", margins="sum")
    save_bounds(compute_bounds(network, "exact"), tmp_path / "b.json")
    text = (tmp_path / "b.json").read_text()
    (tmp_path / "b.json").write_text(text.replace('"margins": "product"', '"margins": "sum"'))
    with pytest.raises(InputError, match="'sum' is no method"):
        load_bounds(tmp_path / "b.json")
