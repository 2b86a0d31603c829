"""The chain bound: true on networks evaluated exactly, never below the exact run, tighter than the product, and proved
or given up whatever floats guess.
"""

import itertools
import json
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from slopes import gradients, pairs_of, some_points, steeper_than
from strategies import at_least_the_norm, is_positive_semidefinite, minus, product, to_rows, transposed

from intervalcert import InputError, Network, audit, compute_bounds, load_bounds, save_bounds
from intervalcert.backends.float64 import Float64Matrix
from intervalcert.backends.registry import backend_names, get_backend, precision_ladder
from intervalcert.bounds.margin_bounds import NO_CHAIN, MarginPlan, chain_margins, margins_by, network_bounds
from intervalcert.bounds.norm_bounds import Plan
from intervalcert.errors import UndecidedError, UsageError
from intervalcert.model.activations import activation
from intervalcert.model.layers import INPUT, Layer
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.rounding import sqrt_upper
from intervalcert.numbers.text import decimal_upper, format_exact
from intervalcert.proof.chain import check_chain, distances_squared
from intervalcert.search.chain import search_chain, tuned_multipliers

EXACT = get_backend("exact")


def drawn(seed, widths=(4, 6, 5, 3), between="relu", scale=1.0):
    rng = np.random.default_rng(seed)
    layers = [rng.standard_normal((rows, columns)) * scale for columns, rows in itertools.pairwise(widths)]
    return Network.from_arrays(layers, [rng.standard_normal(len(w)) for w in layers], between=between)


@settings(max_examples=40)
@given(seed=st.integers(0, 10**6), depth=st.integers(1, 3), wide=st.booleans())
def test_no_gradient_exceeds_the_bound(seed, depth, wide):
    """A rigorous lower bound of the constant, wherever the network is differentiable."""
    widths = (3, *[7 if wide else 3] * depth, 3)
    network = drawn(seed, widths)
    found = margins_of_chain(network, (EXACT,))
    assert steeper_than(network, found.matrix, some_points(network, seed)) == []


def test_a_chain_that_skips_the_first_layer_is_caught():
    """The published fault: the bound is then that of another network."""
    network = drawn(3, scale=2.0)
    rest = Network.of([layer.weights for layer in network.layers[1:]], between=network.activations[1:-1])
    skipped = margins_of_chain(rest, (EXACT,))
    assert steeper_than(network, skipped.matrix, some_points(network, 3, 40))


def test_a_chain_with_too_large_a_sector_step_is_caught(monkeypatch):
    """P' taken for half of what was proved: the gradient check convicts a shrunken bound."""
    network = drawn(5)
    found = margins_of_chain(network, (EXACT,))
    steepest = {
        pair: max(sqrt_upper(sum(g * g for g in gradients(network, x)[pair]), 64) for x in some_points(network, 5, 60))
        for pair in pairs_of(network)
    }
    shrunk = [[x / 5 for x in row] for row in found.matrix]
    assert any(steepest[i, j] > shrunk[i][j] for i, j in pairs_of(network))
    assert steeper_than(network, shrunk, some_points(network, 5, 60))


def margins_of_chain(network, ladder, multipliers=None):
    """By a chain that floats find with these multipliers, or in its closed form; None if there is none."""
    witness = search_chain(network, multipliers)
    return None if witness is None else chain_margins(network, ladder, witness)


# -- the law -----------------------------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    between=st.sampled_from(["relu", "tanh", "sigmoid", "leaky_relu:0.1", "leaky_relu:-0.5", "elu:2", "group_sort"]),
    scale=st.sampled_from([1.0, 1e-200, 1e150]),
)
def test_every_backend_is_at_least_exact(seed, between, scale):
    network = drawn(seed, between=between, scale=scale)
    guess = search_chain(network)
    exact = check_chain(network, guess, EXACT)
    for name in backend_names():
        found = check_chain(network, guess, get_backend(name))
        for mine, theirs in ((found.squares, exact.squares), (found.sigmas, exact.sigmas)):
            assert len(mine) == len(theirs)
            assert all(mine[k].upper() >= theirs[k].upper() for k in range(len(mine))), name


@pytest.mark.parametrize("name", backend_names())
@pytest.mark.parametrize(
    "between",
    [
        "relu",
        "tanh",
        "hard_tanh",
        "sigmoid",
        "leaky_relu:0.1",
        "leaky_relu:-0.5",
        "elu:2",
        "identity",
        "softplus",
        "clip:0:6",
    ],
)
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


@pytest.mark.parametrize("between", ["group_sort", "min_max"])
def test_activations_outside_the_sector_take_the_step_of_the_product(between):
    network = drawn(2, between=between)
    product, chain = (compute_bounds(network, "exact", margins=m).margins.matrix for m in ("product", "chain"))
    for i, j in pairs_of(network):
        assert abs(chain[i][j] / product[i][j] - 1) < Fraction(1, 10**8)


def test_which_activations_have_sectors():
    slopes = {
        "relu": (0, 1),
        "tanh": (0, 1),
        "hard_tanh": (0, 1),
        "sigmoid": (0, Fraction(1, 4)),
        "identity": (1, 1),
        "leaky_relu:0.01": (Fraction(1, 100), 1),
        "leaky_relu:3": (1, 3),
        "leaky_relu:-0.1": (Fraction(-1, 10), 1),
        "leaky_relu:-2": (-2, 1),
        "elu:1": (0, 1),
        "elu:4": (0, 4),
        "softplus": (0, 1),
        "clip:0:6": (0, 1),
        "clip:-inf:0": (0, 1),
        "clip:-inf:inf": (1, 1),
        "group_sort": None,
        "min_max": None,
    }
    assert {name: activation(name).slopes for name in slopes} == slopes
    for name in slopes:
        low, high = activation(name).slopes or (0, 1)
        assert activation(name).lipschitz == max(abs(low), abs(high))


@pytest.mark.parametrize(
    "between", ["leaky_relu:-0.5", "leaky_relu:-1", "leaky_relu:-3", "leaky_relu:0.25", "leaky_relu:3"]
)
def test_a_sector_with_a_leak_of_any_sign_is_true(between):
    for seed in range(3):
        network = drawn(seed, between=between)
        found = margins_of_chain(network, (EXACT,))
        assert steeper_than(network, found.matrix, some_points(network, seed)) == []


def test_the_sector_of_another_activation_is_not_used():
    """What was guessed for one activation proves nothing of another with the same weights."""
    relu, leaky = drawn(4), drawn(4, between="leaky_relu:-0.5")
    for name in backend_names():
        with pytest.raises(UndecidedError, match="sector"):
            check_chain(leaky, search_chain(relu), get_backend(name))


@pytest.mark.parametrize("name", backend_names())
def test_the_identity_loses_nothing(name):
    """Its spread is zero, P = WWᵀ: the margin is the norm of the product of all weights."""
    network = drawn(3, between="identity")
    a, b, c = (to_rows(layer.weights) for layer in network.layers)
    whole = product(c, product(b, a))
    found = compute_bounds(network, name, margins="chain").margins.matrix
    for i, j in pairs_of(network):
        true = sum((x - y) ** 2 for x, y in zip(whole[i], whole[j], strict=True))
        assert true <= found[i][j] ** 2 <= true * (1 + Fraction(1, 10**8))


# -- edges -------------------------------------------------------------------------------------------------------------


def test_a_single_layer_has_one_bound():
    network = Network.from_arrays([np.array([[3.0, 0.0], [0.0, 4.0]])])
    found = [compute_bounds(network, "exact", margins=m).margins.matrix[0][1] for m in ("product", "chain", "best")]
    assert found == [5, 5, 5]


def test_a_zero_layer_makes_every_margin_zero():
    network = Network.from_arrays([np.ones((3, 2)), np.zeros((3, 3)), np.ones((2, 3))])
    assert search_chain(network) is None
    for margins, said in (("product", ()), ("chain", (NO_CHAIN,)), ("best", (NO_CHAIN,))):
        assert compute_bounds(network, "float64", margins=margins).margins.skipped_because == said, "a fallback is said"
    for method in ("chain", "best"):
        assert compute_bounds(network, "float64", margins=method).margins.matrix == ((0, 0), (0, 0))


@pytest.mark.parametrize("rank", [1, 2])
def test_layers_without_full_rank(rank):
    rng = np.random.default_rng(rank)
    low = rng.standard_normal((6, rank)) @ rng.standard_normal((rank, 6))
    network = Network.from_arrays([low, rng.standard_normal((6, 6)), rng.standard_normal((3, 6))])
    found = margins_of_chain(network, precision_ladder("float64"))
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
    product = compute_bounds(network, "exact", 5, margins="product")
    monkeypatch.setattr(np.linalg, routine, broken)
    guess = search_chain(network)
    if guess is not None:
        for name in ("exact", "arb", "float64"):
            with pytest.raises(UndecidedError):
                check_chain(network, guess, get_backend(name))
    chains = () if guess is None else (guess,)
    found = margins_by("best", network, product.layers, chains, precision_ladder("exact"))
    assert found.matrix == product.margins.matrix


@pytest.mark.parametrize(
    ("routine", "broken"), [("cholesky", lambda a: a * 0), ("eigvalsh", lambda a: np.full(len(a), 1e-3))]
)
def test_a_wrong_guess_proves_nothing_outside_the_sector_either(monkeypatch, routine, broken):
    """Here a norm is claimed, and the residual must leave it standing."""
    network = drawn(4, between="group_sort")
    monkeypatch.setattr(np.linalg, routine, broken)
    guess = search_chain(network)
    for name in ("exact", "arb", "float64") if guess is not None else ():
        with pytest.raises(UndecidedError):
            check_chain(network, guess, get_backend(name))


def test_a_norm_outside_the_sector_must_be_proved():
    """A claimed norm just below the true one."""
    network = drawn(4, between="group_sort")
    first, *rest = search_chain(network)
    for size in (first.size * (1 - 2.0**-20), first.size / 2, 0.0, -1.0):
        small = (replace(first, size=size), *rest)
        for name in backend_names():
            with pytest.raises(UndecidedError):
                check_chain(network, small, get_backend(name))


def test_a_norm_with_a_wrong_factor_is_not_proved():
    """Whatever the factor is, the residual counts: here all of c·I - S, or of what a wrong c leaves."""
    network = drawn(4, between="group_sort")
    first, *rest = search_chain(network)
    side = len(first.after)
    other = ({"triangle": np.zeros((side, side))}, {"exponent": 1}, {"shift": 0.0}, {"shift": first.factor.shift + 1})
    odd = ({"triangle": np.zeros((1, 1))}, {"triangle": np.full((side, side), np.nan)}, {"shift": np.inf})
    for wrong in (*other, *odd):
        broken = replace(first, factor=replace(first.factor, **wrong))
        for name in backend_names():
            with pytest.raises(UndecidedError):
                check_chain(network, (broken, *rest), get_backend(name))


@pytest.mark.parametrize("between", ["relu", "group_sort"])
def test_what_a_layer_hands_on_is_what_was_proved(backend_name, between):
    """A link that claims another ellipsoid than the one that its own numbers prove."""
    network = drawn(4, between=between)
    *rest, last = search_chain(network)
    small = replace(last, size=last.size / 100, step=last.step and replace(last.step, after=last.step.after / 100))
    assert (small.after == last.after / 100).all(), "what it hands on follows from these alone"
    small = (*rest, small)
    with pytest.raises(UndecidedError):
        check_chain(network, small, get_backend(backend_name))


@pytest.mark.parametrize("name", ["arb", "mpmath"])
@pytest.mark.parametrize("between", ["relu", "group_sort"])
def test_undecided_is_not_proved(name, between):
    """Numbers of 32 bits can neither prove nor refute a good guess, which exact rationals prove."""
    network = drawn(4, between=between)
    guess = search_chain(network)
    with pytest.raises(UndecidedError):
        check_chain(network, guess, get_backend(name, 16))
    assert check_chain(network, guess, get_backend("exact", 16))


@pytest.mark.parametrize("name", backend_names())
def test_a_matrix_that_is_not_positive_definite_is_not_inverted(name):
    """With a v four times as large K has negative eigenvalues, and no slack makes up for it."""
    network = drawn(4)
    first, *rest = search_chain(network)
    step = first.step
    after = step.after + 1e6 * np.eye(len(step.after))
    wrong = replace(first, step=replace(step, v=step.v * 4, slack=1e5, after=after))
    with pytest.raises(UndecidedError):
        check_chain(network, (wrong, *rest), get_backend(name))


@pytest.mark.parametrize("widths", [(5, 1, 3), (5, 2, 4, 3), (1, 6, 3), (3, 12, 2, 9, 3), (2, 2, 2), (7, 3, 2)])
def test_wide_and_narrow_layers(widths):
    """True whatever the shapes, and with a chain or without one."""
    network = drawn(1, widths)
    bounds = compute_bounds(network, "float64")
    assert steeper_than(network, bounds.margins.matrix, some_points(network, 1)) == []
    assert audit(bounds, network).unconfirmed == ()


def test_narrow_layers_have_a_chain():
    """Few neurons are nothing special."""
    networks = [drawn(seed, (5, width, 3)) for seed in range(10) for width in (1, 2, 3)]
    assert [shape_of(x) for x in networks if margins_of_chain(x, precision_ladder("float64")) is None] == []


def shape_of(network):
    return [layer.weights.shape for layer in network.layers]


# -- sigmas ------------------------------------------------------------------------------------------------------------


def inner_matrices(network, chain):
    """S of each hidden layer, exactly, from the ellipsoids that the chain hands on."""
    before, gain = None, Fraction(1)
    for layer, link in zip(network.layers, chain, strict=False):
        w = to_rows(layer.weights)
        s = product(w if before is None else product(w, before), transposed(w))
        yield [[x * gain for x in row] for row in s]
        gain *= Fraction(2) ** link.exponent * layer.activation.lipschitz**2
        before = [[Fraction(x) for x in row] for row in link.after.tolist()]


@settings(max_examples=20)
@given(
    seed=st.integers(0, 10**6), between=st.sampled_from(["relu", "sigmoid", "leaky_relu:-2", "group_sort", "identity"])
)
def test_sigma_is_at_least_the_norm(seed, between):
    """sigma·I - S has no negative eigenvalue, decided exactly; and a hundredth less has one."""
    network = drawn(seed, (3, 4, 5, 3), between=between)
    chain = search_chain(network)
    found = margins_of_chain(network, precision_ladder("float64"))
    assert len(found.sigmas) == 2
    for sigma, s in zip(found.sigmas, inner_matrices(network, chain), strict=True):
        for part, expected in ((Fraction(1), True), (Fraction(99, 100), False)):
            room = minus([[sigma * part * (i == j) for j in range(len(s))] for i in range(len(s))], s)
            assert is_positive_semidefinite(room) is expected


def test_the_first_sigma_is_the_square_of_the_norm():
    network = drawn(2)
    sigma = compute_bounds(network, "arb").margins.sigmas[0]
    weights = to_rows(network.layers[0].weights)
    assert at_least_the_norm(sqrt_upper(sigma, 200), weights)
    assert not at_least_the_norm(sqrt_upper(sigma, 200) * Fraction(999, 1000), weights)


def test_without_a_chain_there_is_no_sigma():
    zero = Network.from_arrays([np.ones((3, 2)), np.zeros((3, 3)), np.ones((2, 3))])
    single = Network.from_arrays([np.eye(3)])
    assert compute_bounds(zero, "exact").margins.sigmas == ()
    assert compute_bounds(single, "exact").margins.sigmas == ()
    assert compute_bounds(drawn(2), "exact", margins="product").margins.sigmas == ()


def test_an_understated_sigma_is_not_confirmed():
    network = drawn(8)
    bounds = compute_bounds(network, "exact")
    for index, part in itertools.product(range(2), (Fraction(999, 1000), 1 - Fraction(1, 10**9), Fraction(0))):
        sigmas = tuple(x * part if k == index else x for k, x in enumerate(bounds.margins.sigmas))
        report = audit(replace(bounds, margins=replace(bounds.margins, sigmas=sigmas)), network)
        assert [claim.what for claim in report.unconfirmed] == [f"layer {index}, sigma"]


def test_a_sigma_without_a_chain_is_not_confirmed():
    network = drawn(8)
    bounds = compute_bounds(network, "exact", margins="product")
    claimed = replace(bounds.margins, sigmas=(Fraction(10**9),) * 2)
    report = audit(replace(bounds, margins=claimed), network)
    assert [(claim.what, claim.exact) for claim in report.unconfirmed] == [(f"layer {k}, sigma", None) for k in (0, 1)]


# -- tuned multipliers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("between", ["relu", "leaky_relu:-0.5", "sigmoid", "elu:2"])
def test_effort_never_loosens_a_margin(between):
    network = drawn(1, (6, 10, 10, 4), between=between)
    closed, tuned = (compute_bounds(network, "float64", margins="chain", tuning_rounds=n) for n in (0, 6))
    assert tuned.method.tuning_rounds == 6
    assert tuned.margins.sigmas == closed.margins.sigmas, "they are those of the closed form"
    assert [len(found.witnesses.chains) for found in (closed, tuned)] == [1, 2]
    assert all(tuned.margins.matrix[i][j] <= closed.margins.matrix[i][j] for i, j in pairs_of(network))
    assert any(tuned.margins.matrix[i][j] < closed.margins.matrix[i][j] for i, j in pairs_of(network))


@settings(max_examples=15)
@given(seed=st.integers(0, 10**6), between=st.sampled_from(["relu", "leaky_relu:-0.5"]), effort=st.integers(1, 8))
def test_no_gradient_exceeds_a_tuned_bound(seed, between, effort):
    network = drawn(seed, (3, 6, 5, 3), between=between)
    multipliers = tuned_multipliers(network, effort)
    if multipliers is not None:
        found = margins_of_chain(network, (EXACT,), multipliers)
        assert steeper_than(network, found.matrix, some_points(network, seed)) == []


@settings(max_examples=25)
@given(seed=st.integers(0, 10**6), size=st.sampled_from([0, 3, 30]))
def test_multipliers_of_any_size_prove_a_true_bound_or_none(seed, size):
    network = drawn(seed, (3, 6, 5, 3))
    rng = np.random.default_rng(seed)
    some = tuple(np.exp2(rng.uniform(-1 - size, 0, len(layer.weights.numerators))) for layer in network.layers[:-1])
    found = margins_of_chain(network, (EXACT,), some)
    if found is not None:
        assert steeper_than(network, found.matrix, some_points(network, seed)) == []


@pytest.mark.parametrize("between", ["group_sort", "identity"])
def test_effort_where_there_is_nothing_to_tune(between):
    network = drawn(1, between=between)
    closed, tuned = (compute_bounds(network, "float64", tuning_rounds=n) for n in (0, 3))
    assert tuned.margins == closed.margins


@pytest.mark.parametrize(
    ("layers", "between", "effort"),
    [
        ([[[1, 2], [0, 0]], [[0, 2.6e60], [0, 0]]], "leaky_relu:-1", 5),
        ([[[0, 2.6e8], [-0.4076574062463151, -1.2604848235258506]], [[0, 0.4568806531029687], [0, 0]]], "relu", 100),
    ],
)
def test_tuning_ends_where_floats_end(layers, between, effort):
    """In silence (a warning of numpy is an error in these tests), and with what was found until then."""
    network = Network.from_arrays([np.array(rows, dtype=float) for rows in layers], between=between)
    closed, tuned = (compute_bounds(network, "float64", margins="chain", tuning_rounds=n).margins for n in (0, effort))
    assert all(t <= c for t, c in zip(*(itertools.chain(*some.matrix) for some in (tuned, closed)), strict=True))


@pytest.mark.parametrize("rounds", [-1, 1001, 1.5, True, "3"])
def test_rounds_that_make_no_sense_are_refused(rounds):
    with pytest.raises(UsageError, match="tuning rounds"):
        compute_bounds(drawn(1), "exact", tuning_rounds=rounds)


@pytest.fixture(scope="module")
def tuned_file(tmp_path_factory):
    """A network, its bounds with some effort, and their file."""
    network = drawn(11, (4, 6, 5, 3))
    bounds = compute_bounds(network, "arb", margins="chain", tuning_rounds=5)
    path = tmp_path_factory.mktemp("tuned") / "b.json"
    save_bounds(bounds, path)
    return network, bounds, path


def test_an_audit_confirms_tuned_margins_from_the_file(tmp_path, tuned_file):
    """From the witnesses that are stored beside it: the closed form alone confirms less."""
    network, bounds, path = tuned_file
    again = load_bounds(path)
    assert again == bounds
    report = audit(again, network)
    assert report.unconfirmed == ()
    assert not report.recomputed
    closed = replace(bounds, witnesses=replace(bounds.witnesses, chains=bounds.witnesses.chains[:1]))
    assert audit(closed, network).unconfirmed


def test_a_tuned_margin_that_is_too_small_is_not_confirmed(tuned_file):
    network, bounds, _ = tuned_file
    shrunk = tuple(tuple(x * Fraction(999, 1000) for x in row) for row in bounds.margins.matrix)
    assert len(audit(replace(bounds, margins=replace(bounds.margins, matrix=shrunk)), network).unconfirmed) == 3


def test_a_sigma_changed_by_hand(tmp_path, tuned_file):
    network, bounds, path = tuned_file
    data = json.loads(path.read_text())
    smaller = bounds.margins.sigmas[1] / 2
    data["layers"][1]["sigma"] = {"exact": format_exact(smaller), "decimal": decimal_upper(smaller)}
    (tmp_path / "b.json").write_text(json.dumps(data))
    report = audit(load_bounds(tmp_path / "b.json"), network)
    assert [claim.what for claim in report.unconfirmed] == ["layer 1, sigma"]


@pytest.mark.parametrize(
    "sigma",
    [None, {}, {"exact": "1"}, {"exact": "1*2^0", "decimal": "2"}, {"exact": "-1", "decimal": "-1"}, "1", 1, []],
)
@pytest.mark.parametrize("layer", [0, 2])
def test_a_damaged_sigma_is_refused(tmp_path, tuned_file, layer, sigma):
    """Each hidden layer has one, or none has; and the last layer has none."""
    if layer == 2 and sigma is None:
        pytest.skip("so it is")
    data = json.loads(tuned_file[2].read_text())
    data["layers"][layer]["sigma"] = sigma
    (tmp_path / "b.json").write_text(json.dumps(data))
    with pytest.raises(InputError):
        load_bounds(tmp_path / "b.json")


def test_a_tuned_network_with_a_linear_layer_is_read_back(tmp_path):
    """Nothing is tuned in the linear layer, but in the other there is."""
    first, second, last = drawn(0, (4, 5, 5, 3)).layers
    layers = (
        Layer.dense(INPUT, first.weights, None, activation("relu")),
        Layer.dense(0, second.weights, None, activation("identity")),
        last,
    )
    network = Network(layers, drawn(0).sources)
    bounds = compute_bounds(network, "float64", tuning_rounds=5)
    assert len(bounds.witnesses.chains) == 2
    save_bounds(bounds, tmp_path / "b.json")
    assert load_bounds(tmp_path / "b.json") == bounds
    assert audit(load_bounds(tmp_path / "b.json"), network).unconfirmed == ()


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


@pytest.mark.parametrize("stored", [True, False])
def test_an_audit_elsewhere_confirms_what_was_proved_here(tmp_path, monkeypatch, stored):
    """Another machine's floats differ in their last bits; witnesses do not, and nothing is guessed anew."""
    network = drawn(7, (5, 20, 20, 4))
    bounds = compute_bounds(network, "exact", margins="chain", tuning_rounds=2)
    if stored:
        save_bounds(bounds, tmp_path / "b.json")
        bounds = load_bounds(tmp_path / "b.json")
    inverse, eigenvalues = np.linalg.inv, np.linalg.eigvalsh
    monkeypatch.setattr(np.linalg, "inv", lambda a: inverse(a) * (1 + 2.0**-48))
    monkeypatch.setattr(np.linalg, "eigvalsh", lambda a: eigenvalues(a) * (1 + 2.0**-48))
    assert audit(bounds, network).unconfirmed == ()
    found = audit(replace(bounds, witnesses=None), network)
    assert found.recomputed
    assert found.unconfirmed, "without them the last digits differ: the test above can fail"


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
    (tmp_path / "b.json").write_text(text.replace('"margins": "best"', '"margins": "sum"'))
    with pytest.raises(InputError, match="'sum' is no method"):
        load_bounds(tmp_path / "b.json")


@pytest.mark.parametrize(
    "slope", ["0.999999999999", "1.0000000000000000001", "0.3333333333333333333", "1e-30", "-0.99999999"]
)
def test_a_sector_of_any_width_is_found_at_once(slope):
    """A narrow one beside a middle that is no float: its spread reaches from the float that stands for the middle."""
    network = drawn(3, between=f"leaky_relu:{slope}")
    found = margins_of_chain(network, (EXACT,))
    assert found is not None
    low, high = (x / network.layers[0].activation.lipschitz for x in network.layers[0].activation.slopes)
    for link in search_chain(network):
        middle, spread = (Fraction(float(x[0])) for x in (link.step.sector.middle, link.step.sector.spread))
        assert middle - spread <= low <= high <= middle + spread
        assert spread <= (high - low) / 2 + Fraction(1, 2**52)


def test_tuning_a_deep_network_of_large_weights_warns_nobody():
    """Its gradients are beyond the floats, and only their directions matter."""
    rng = np.random.default_rng(2)
    network = Network.from_arrays([rng.standard_normal((3, 3)) * 1e18 for _ in range(24)])
    closed, tuned = (compute_bounds(network, "float64", margins="chain", tuning_rounds=n).margins for n in (0, 5))
    assert all(x <= y for a, b in zip(tuned.matrix, closed.matrix, strict=True) for x, y in zip(a, b, strict=True))
    assert tuned.matrix[0][1] < closed.matrix[0][1]


# -- distances of rows -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", backend_names())
def test_rows_near_each_other_and_equal_ones_keep_sharp_margins(name):
    """Decimals, which no float is: a difference of 1e-30 beside rows of size 1, and rows that are the same."""
    rows = [["1/3", "2/3"], ["1/3", "2/3"], [Fraction(1, 3) + Fraction(1, 10**30), "2/3"], ["0.1", "-1"]]
    last = RationalMatrix.from_fractions([[Fraction(x) for x in row] for row in rows])
    first = RationalMatrix.from_fractions([[Fraction(1, 7), Fraction(2)], [Fraction(1), Fraction(-3, 10)]])
    network = Network.of([first, last])
    for method in ("product", "chain"):
        exact = compute_bounds(network, "exact", margins=method).margins
        found = network_bounds(network, (get_backend(name), EXACT), [Plan("cholesky")] * 2, margins=MarginPlan(method))
        assert found.margins.skipped_because == (), "no other number system was needed"
        assert found.margins.matrix[0][1] == 0
        for i, j in pairs_of(network):
            assert exact.matrix[i][j] <= found.margins.matrix[i][j] <= exact.matrix[i][j] * (1 + Fraction(1, 2**20))


def test_a_metric_too_wild_for_floats_is_given_up_at_once(monkeypatch):
    """Then differences by themselves do not help, and half a million of them would take minutes."""
    weights = RationalMatrix.from_floats(np.random.default_rng(1).standard_normal((30, 4)))
    backend, looks = get_backend("float64"), []
    wild = backend.matrix(RationalMatrix.from_floats(np.eye(4))).scalar_mul(backend.hull(Fraction(1), Fraction(2)))
    right = Float64Matrix.distances_squared
    monkeypatch.setattr(Float64Matrix, "distances_squared", lambda *given: looks.append(1) or right(*given))
    found = distances_squared(weights, wild, backend)
    assert len(found.blunt(20)) == len(found) == 435
    assert len(looks) == 2
