"""Networks that are graphs: what they compute, the bounds of their margins, and the files that hold them."""

import hashlib
import itertools
from dataclasses import replace
from fractions import Fraction
from random import Random

import numpy as np
import pytest
from graphs import column, concatenated, convolution, exact_inner, graph, rationals, rows_of, same_size, times
from hypothesis import given, settings
from strategies import seeds

from intervalcert import audit, compute_bounds, evaluate, load_bounds, load_model, save_bounds, save_model
from intervalcert.backends.registry import backend_names, precision_ladder
from intervalcert.bounds import margin_bounds
from intervalcert.bounds.norm_bounds import Plan, layer_bound
from intervalcert.errors import InputError
from intervalcert.io.models import npz_model
from intervalcert.model import layers as layers_module
from intervalcert.model.activations import MaxPool, activation
from intervalcert.model.layers import INPUT, Layer, Term
from intervalcert.model.linear_maps import ChannelWise, Convolution, Dense, IndexMap, identity
from intervalcert.model.merging import merged
from intervalcert.model.network import Network
from intervalcert.model.windows import Window
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.search.float_network import FloatNetwork

GRAPHS = range(40)


def points(network, count=3, seed=0):
    """Inputs, in rows, of multiples of 1/4."""
    random = Random(seed)
    return [[Fraction(random.randint(-8, 8), 4) for _ in range(network.inputs)] for _ in range(count)]


# -- the graph ---------------------------------------------------------------------------------------------------------


def test_what_does_not_fit_is_refused():
    random = Random(0)
    first, head = convolution(random, (1, 4, 4), groups=1), lambda n: Term(0, Dense(rationals(random, 2, n)))
    inner = first.shape[0]
    with pytest.raises(InputError, match="which does not come before it"):
        Network.of_terms([(Term(0, first),), (head(inner),)])
    with pytest.raises(InputError, match="layer 1 takes"):
        Network.of_terms([(Term(INPUT, first),), (head(inner + 1),)])
    with pytest.raises(InputError, match="terms of one size"):
        Layer((Term(INPUT, first), Term(INPUT, Dense(rationals(random, inner + 1, 16)))), None, None)
    with pytest.raises(InputError, match="layer 0 is taken by no other layer"):
        Network.of_terms([(Term(INPUT, first),), (Term(INPUT, Dense(rationals(random, 2, 16))),)])
    both = (head(inner), Term(INPUT, Dense(rationals(random, 2, 17))))
    with pytest.raises(InputError, match="the input has 16 numbers"):
        Network.of_terms([(Term(INPUT, first),), both])


def test_a_dense_layer_is_one_with_a_single_matrix():
    random = Random(0)
    network = graph(3)
    assert not network.is_dense
    with pytest.raises(ValueError, match="is not dense"):
        _ = next(layer for layer in network.layers if not layer.is_dense).weights
    weights = rationals(random, 2, 3)
    assert Layer.dense(INPUT, weights, None, None).weights is weights


def test_what_it_says_of_itself():
    random = Random(1)
    shape = (2, 3, 3)
    terms = [
        (Term(INPUT, same_size(random, shape)),),
        (Term(0, same_size(random, shape)), Term(INPUT, identity(shape))),
    ]
    network = Network.of_terms([*terms, (Term(1, Dense(rationals(random, 2, 18))),)])
    assert "18-2x3x3-2x3x3-2, with branches," in repr(network)
    assert "(convolution 3x3 + identity)" in repr(network.layers[1])
    assert network.layers[0].parameters == 2 * 2 * 9


# -- what it computes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", GRAPHS)
def test_floats_are_near_the_exact_values(seed):
    network = graph(seed)
    x = points(network)
    found = FloatNetwork.of(network).before_activations(np.array(x, dtype=float).T)
    for row, point in enumerate(x):
        for some, exact in zip(found, exact_inner(network, point), strict=True):
            assert np.allclose(some[:, row], np.array(exact, dtype=float), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", backend_names())
@pytest.mark.parametrize("seed", range(16))
def test_every_number_system_encloses_the_exact_values(name, seed):
    network = graph(seed)
    x = points(network, 2)
    found = evaluate(network, x, scale=1, backend=name)
    for row, point in enumerate(x):
        for lower, upper, exact in zip(found.lower, found.upper, exact_inner(network, point), strict=True):
            for low, value, high in zip(lower[row], exact, upper[row], strict=True):
                assert low <= value <= high, (seed, name, low, value, high)


@pytest.mark.parametrize("seed", range(12))
def test_gradients_are_those_of_differences(seed):
    """Where nothing bends within a small step, the change along a direction is the gradient's."""
    network = graph(seed, between=("leaky_relu:0.25", "identity"))
    floats, rng = FloatNetwork.of(network), np.random.default_rng(seed)
    x, direction = rng.standard_normal((network.inputs, 1)), rng.standard_normal((network.inputs, 1))
    inner = floats.before_activations(x)
    found = floats.gradients(inner, np.eye(network.outputs))
    step = 1e-6
    change = (floats.logits(x + step * direction) - floats.logits(x - step * direction)) / (2 * step)
    assert np.allclose(found.T @ direction, change, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["group_sort:2:1", "group_sort:2:3:descending", "group_sort:3:2", "pool"])
def test_gradients_of_what_mixes_entries(name):
    function = (
        activation(name)
        if name != "pool"
        else MaxPool.of(1, Window.padded((3, 4), (2, 3), (1, 2), (1, 1), (1, 0, 0, 1)))
    )
    x = np.random.default_rng(0).standard_normal((12, 2))
    g = np.random.default_rng(1).standard_normal((len(function.float_values(x)), 2))
    found = function.float_adjoint(x, g)
    for place in range(12):
        moved = np.zeros_like(x)
        moved[place] = 1e-7
        change = ((function.float_values(x + moved) - function.float_values(x - moved)) * g).sum(axis=0) / 2e-7
        assert np.allclose(found[place], change, atol=1e-6)
    one = function.float_adjoint(x[:, :1], np.hstack([g[:, :1], g[:, :1]]))
    assert np.allclose(one, function.float_adjoint(x[:, :1], g[:, :1]))


# -- maps that are added up --------------------------------------------------------------------------------------------


@given(seeds())
@settings(max_examples=60)
def test_merged_maps_do_what_both_do_together(seed):
    random = Random(seed)
    shape = (random.randint(1, 2), random.randint(1, 4), random.randint(1, 4))
    one = convolution(random, shape, groups=1)
    window = one.window
    other = random.choice(
        [
            Convolution(
                rationals(random, one.out_shape[0], shape[0] * size[0] * size[1]),
                shape[0],
                Window(window.inputs, window.outputs, size, window.stride, dilation, before),
            )
            for size in [(random.randint(1, 3), random.randint(1, 3))]
            for dilation in [(random.randint(1, 2), random.randint(1, 2))]
            for before in [(random.randint(0, 2), random.randint(0, 2))]
        ]
        + [Dense(rationals(random, *one.shape), one.in_shape, one.out_shape)]
    )
    both = merged(one, other)
    assert both is not None
    assert isinstance(both, type(other))
    assert both.dense() == layers_module.sum_of(one.dense(), other.dense())


def test_the_identity_beside_a_convolution_is_a_place_of_its_window():
    random = Random(0)
    shape = (2, 3, 3)
    one = same_size(random, shape)
    for pair in ((one, identity(shape)), (identity(shape), one)):
        both = merged(*pair)
        assert isinstance(both, Convolution)
        assert both.window == one.window
        assert both.dense() == layers_module.sum_of(one.dense(), identity(shape).dense())


def test_what_is_not_added_up_stays_apart():
    random = Random(0)
    one, other = (Convolution(rationals(random, 2, 2), 2, Window((2, 2), (2, 2), (1, 1)), groups) for groups in (1, 1))
    grouped = Convolution(rationals(random, 2, 1), 2, Window((2, 2), (2, 2), (1, 1)), 2)
    assert merged(one, other) is not None
    assert merged(one, grouped) is None
    wide = (1, 20_000)
    far = [
        Convolution(
            RationalMatrix.from_floats(np.ones((1, 2))), 1, Window(wide, wide, (1, 2), (1, 1), (1, d), (0, 4000))
        )
        for d in (8001, 8000)
    ]
    assert merged(*far) is None, "a window of 8,002 places over 20,000"
    assert merged(far[0], far[0]) is not None
    index = IndexMap(np.array([1, 0, 2, 3, 4, 5, 6, 7]), (2, 2, 2), (2, 2, 2))
    assert merged(index, identity((2, 2, 2))) is None
    twice = merged(index, index)
    assert twice is not None
    assert twice.dense() == layers_module.sum_of(index.dense(), index.dense())


# -- margins -----------------------------------------------------------------------------------------------------------


def quotients(network, seed):
    """The largest squared quotients of differences of leads some pairs of inputs show, of all pairs of classes."""
    random = Random(seed)
    found = {}
    for x in points(network, 3, seed):
        for scale in (Fraction(1, 64), 2):
            u = [a + scale * Fraction(random.randint(-4, 4), 4) for a in x]
            distance = sum((a - b) ** 2 for a, b in zip(x, u, strict=True))
            if not distance:
                continue
            one, other = exact_inner(network, x)[-1], exact_inner(network, u)[-1]
            for i, j in itertools.combinations(range(network.outputs), 2):
                change = (one[j] - one[i]) - (other[j] - other[i])
                found[i, j] = max(found.get((i, j), Fraction(0)), change**2 / distance)
    return found


@pytest.mark.parametrize("name", backend_names())
@pytest.mark.parametrize("seed", range(10))
def test_margins_hold_for_all_pairs_of_inputs(name, seed):
    network = graph(seed)
    bounds = compute_bounds(network, name, margins="product")
    for (i, j), square in quotients(network, seed).items():
        assert bounds.margins.matrix[i][j] ** 2 >= square, (seed, name, i, j)


@pytest.mark.parametrize("seed", range(10))
def test_every_number_system_is_above_the_exact_one(seed):
    network = graph(seed)
    exact = compute_bounds(network, "exact", margins="product")
    for name in backend_names():
        found = compute_bounds(network, name, margins="product")
        assert all(a.upper >= b.upper for a, b in zip(found.layers, exact.layers, strict=True))
        pairs = itertools.combinations(range(network.outputs), 2)
        assert all(found.margins.matrix[i][j] >= exact.margins.matrix[i][j] for i, j in pairs)


def residual(sign=1):
    """The map x + sign·x, which doubles, or gives nothing."""
    shape = (1, 2, 2)
    kernel = RationalMatrix.from_integers([[sign]])
    conv = Convolution(kernel, 1, Window((2, 2), (2, 2), (1, 1)))
    head = Dense(RationalMatrix.from_integers([[1, 0, 0, 0], [0, 0, 0, 0]]))
    return Network.of_terms([(Term(INPUT, conv), Term(INPUT, identity(shape))), (Term(0, head),)])


def test_a_residual_connection_is_added_up():
    found = compute_bounds(residual(), margins="product").margins.matrix[0][1]
    assert 2 <= found < 2 + Fraction(1, 10**9)
    assert compute_bounds(residual(-1), margins="product").margins.matrix[0][1] == 0


def test_control_a_residual_merged_with_the_wrong_sign_is_caught(monkeypatch):
    """The points that show the slope 2 convict a bound of 0."""
    monkeypatch.setattr(layers_module, "merged", lambda one, other: merged(negative(one), other))
    network = residual()
    bounds = compute_bounds(network, margins="product")
    assert any(bounds.margins.matrix[i][j] ** 2 < s for (i, j), s in quotients(network, 0).items())


def negative(linear):
    kernel = linear.kernel
    return replace(linear, kernel=RationalMatrix(-kernel.numerators, kernel.denominator))


def pooled():
    """The maximum over all 2 x 2 windows of a 3 x 3 image, in four of which its middle is. Their sum is the lead."""
    function = MaxPool.of(1, Window((3, 3), (2, 2), (2, 2)))
    head = Dense(RationalMatrix.from_integers([[1, 1, 1, 1], [0, 0, 0, 0]]))
    return Network.of_terms([(Term(INPUT, identity((1, 3, 3))),), (Term(0, head),)], between=[function.name])


def test_a_pool_counts_an_input_as_often_as_it_is_seen():
    """||Δ'||² = 4·||Δ||² where the middle alone changes, and the head has the norm 2: 4 is attained."""
    network = pooled()
    x, u = [Fraction(0)] * 9, [Fraction(k == 4) for k in range(9)]
    assert exact_inner(network, u)[-1][0] - exact_inner(network, x)[-1][0] == 4
    assert 4 <= compute_bounds(network, margins="product").margins.matrix[0][1] < 4 + Fraction(1, 10**9)


def test_control_a_pool_whose_windows_overlap_unseen_is_caught(monkeypatch):
    monkeypatch.setattr(MaxPool, "lipschitz", Fraction(1))
    assert compute_bounds(pooled(), margins="product").margins.matrix[0][1] < 4


def test_a_concatenation_is_the_root_of_a_sum_of_squares(monkeypatch):
    """Of the input twice: sqrt(2), where a sum of norms would be 2. Control: parts that overlap are not apart."""
    flat = (Term(INPUT, identity((2,))),)
    parts = concatenated((0, (2,)), (1, (2,)))
    head = Dense(RationalMatrix.from_integers([[1, 1, 1, 1], [0, 0, 0, 0]]))
    terms = [flat, flat, tuple(parts), (Term(2, head),)]
    found = compute_bounds(Network.of_terms(terms, between="identity"), margins="product").margins.matrix[0][1]
    assert 8 <= found**2 < 8 + Fraction(1, 10**6)  # sqrt(2)·||(1, 1, 1, 1)||
    overlapping = [parts[0], Term(1, IndexMap(parts[0].map.index, (2,), (4,)))]
    terms[2] = tuple(overlapping)
    two = compute_bounds(Network.of_terms(terms, between="identity"), margins="product").margins.matrix[0][1]
    assert 4 <= two < 4 + Fraction(1, 10**9)  # the sum of both
    monkeypatch.setattr(margin_bounds, "are_apart", lambda _: True)
    assert compute_bounds(Network.of_terms(terms, between="identity"), margins="product").margins.matrix[0][1] < 4


def test_a_head_of_several_branches():
    """Its rows are differences in each of them: the lead changes by at most the sum."""
    random = Random(4)
    first = Dense(rationals(random, 3, 4))
    heads = [Term(0, Dense(rationals(random, 3, 3))), Term(INPUT, Dense(rationals(random, 3, 4)))]
    network = Network.of_terms([(Term(INPUT, first),), tuple(heads)], between="relu")
    for name in backend_names():
        bounds = compute_bounds(network, name, margins="product")
        for seed in range(5):
            for (i, j), square in quotients(network, seed).items():
                assert bounds.margins.matrix[i][j] ** 2 >= square


# -- normalisation -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_a_normalisation_before_a_convolution_is_folded_in_exactly(seed, per_channel):
    """Or becomes a layer of its own, where the factors differ all over a channel."""
    random = Random(seed)
    network = graph(seed)
    channels, size = network.layers[0].terms[0].map.in_shape[0], network.inputs
    count = channels if per_channel else size
    mean, std = ([Fraction(random.randint(1, 9), 4) for _ in range(count)] for _ in range(2))
    if per_channel:
        mean, std = ([x for x in each for _ in range(size // channels)] for each in (mean, std))
    after = network.after(mean, std)
    folded = after.measured_in("input")
    assert folded.content != after.content
    for x in points(network, 2, seed):
        normalised = [(a - m) / s for a, m, s in zip(x, mean, std, strict=True)]
        assert exact_inner(folded, x)[-1] == exact_inner(network, normalised)[-1]


# -- files -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", GRAPHS)
def test_a_graph_comes_back_from_its_file(seed, tmp_path):
    network = replace(graph(seed), folded=("something",))
    save_model(network, tmp_path / "m.npz")
    found = load_model(tmp_path / "m.npz")
    assert found.content == network.content
    assert (found.layers, found.folded) == (network.layers, network.folded)


def test_the_same_network_gives_the_same_bytes(tmp_path):
    for name in ("one.npz", "two.npz"):
        save_model(graph(5), tmp_path / name)
    hashes = {hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() for name in ("one.npz", "two.npz")}
    assert len(hashes) == 1


def test_contents_tell_networks_apart():
    """A stride, a padding, a source, an order: each is another network."""
    random = Random(0)
    kernel, shape = rationals(random, 1, 4), (1, 4, 4)

    def one(window, source=INPUT):
        first = (Term(INPUT, identity(shape)),)
        conv = Convolution(kernel, 1, window)
        head = Dense(RationalMatrix.from_integers([[1] * conv.shape[0], [2] * conv.shape[0]]))
        keep = (Term(0, IndexMap(np.full(conv.shape[0], -1), shape, conv.out_shape)),) if source == INPUT else ()
        return Network.of_terms([first, (Term(source, conv), *keep), (Term(1, head),)], between="identity")

    windows = [
        Window((4, 4), (2, 2), (2, 2), (2, 2)),
        Window((4, 4), (2, 2), (2, 2), (1, 1)),
        Window((4, 4), (2, 2), (2, 2), (1, 1), (2, 2)),
        Window((4, 4), (2, 2), (2, 2), (1, 1), (1, 1), (1, 0)),
        Window((4, 4), (4, 1), (2, 2)),
    ]
    networks = [one(window, source) for window in windows for source in (INPUT, 0)]
    assert len({network.content for network in networks}) == len(networks)
    assert one(windows[0]).content == one(windows[0]).content


BAD_TERMS = {
    "": "is no term",
    "-1": "is no term",
    "-2 identity 4": "is no term",
    "x identity 4": "is no term",
    "-1 something 4": "is no term",
    "-1 identity 0": "no shape",
    "-1 identity 4x": "no shape",
    "-1 identity 99999999x99999999": "no shape",
    "-1 identity 4 4": "is no term",
    "0 identity 4": "does not come before it",
    "-1 dense 4 2": "without its numbers",
    "-1 index 4 2": "without its indices",
    "-1 convolution 1x2x2 1x1 2x2 1x1 1x1 0x0 1": "without its numbers",
    "; ".join(["-1 identity 4"] * 65): "at most 64",
}


@pytest.mark.parametrize("text", BAD_TERMS)
def test_terms_that_are_none_are_refused(text, tmp_path):
    np.savez(tmp_path / "m.npz", terms=np.array([text.encode(), b"0 dense 4 2"]), W1=np.ones((2, 4)))
    with pytest.raises(InputError, match=BAD_TERMS[text]):
        load_model(tmp_path / "m.npz")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"I0": np.array([0, 1, 2, 4])}, "looks beyond its inputs"),
        ({"I0": np.array([0, 1, 2, -2])}, "looks beyond its inputs"),
        ({"I0": np.array([0, 1, 2])}, "without its indices"),
        ({"I0": np.array([0.0, 1, 2, 3])}, "without its indices"),
        ({"I0": np.arange(4), "W0": np.ones(3)}, "one factor for each"),
        ({"I0": np.arange(4), "W0_1": np.ones(4)}, "no term that it is of"),
        ({"I0": np.arange(4), "W2": np.ones(4)}, "no term that it is of"),
        ({"I0": np.arange(4), "b2": np.ones(4)}, "no layer W2"),
        ({"I0": np.arange(4), "I1": np.arange(4)}, "no term that it is of"),
    ],
)
def test_arrays_that_do_not_fit_their_terms_are_refused(arrays, message, tmp_path):
    np.savez(tmp_path / "m.npz", terms=np.array([b"-1 index 4 4", b"0 dense 4 2"]), W1=np.ones((2, 4)), **arrays)
    with pytest.raises(InputError, match=message):
        load_model(tmp_path / "m.npz")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("1x2x2 1x1 2x2 0x1 1x1 0x0 1", "no shape"),
        ("4 1x1 2x2 1x1 1x1 0x0 1", "over a grid"),
        ("1x2x2 1x1x1 2x2 1x1 1x1 0x0 1", "over a grid"),
        ("1x2x2 1x1 2x2 1x1 1x1 0x0 1x1", "over a grid"),
        ("1x2x2 1x1 2x1 1x1 1x1 0x0 1", "a kernel of 1 x 4 numbers"),
        ("1x2x2 1x1 2x2 1x1 1x1 0x0 2", "do not divide"),
        ("1x2x2 1x1 2x2 9999999x1 1x1 0x9999999 1", "too large"),
        ("1x8000x8000 8000x8000 2x2 1x1 1x1 0x0 1", "that many positions"),
    ],
)
def test_convolutions_that_are_none_are_refused(words, message, tmp_path):
    terms = np.array([f"-1 convolution {words}".encode(), b"0 dense 1 2"])
    np.savez(tmp_path / "m.npz", terms=terms, W0=np.ones((1, 4)), W1=np.ones((2, 1)))
    with pytest.raises(InputError, match=message):
        load_model(tmp_path / "m.npz")


def test_indices_without_terms_are_refused(tmp_path):
    np.savez(tmp_path / "m.npz", W0=np.ones((2, 4)), I0=np.arange(4))
    with pytest.raises(InputError, match="no terms that say"):
        load_model(tmp_path / "m.npz")


def test_a_bias_of_each_channel(tmp_path):
    random = Random(0)
    conv = same_size(random, (2, 2, 2))
    bias = RationalMatrix.from_floats(np.repeat([[1.5], [-2.5]], 4, axis=0))
    head = (Term(0, Dense(rationals(random, 2, 8))),)
    network = Network.of_terms([(Term(INPUT, conv),), head], [bias, None])
    save_model(network, tmp_path / "m.npz")
    with np.load(tmp_path / "m.npz") as archive:
        assert archive["b0"].tolist() == [1.5, -2.5]
    assert load_model(tmp_path / "m.npz").content == network.content
    assert npz_model.read  # what reads it is what `load_model` asks


@pytest.mark.parametrize("seed", range(8))
def test_bounds_of_a_graph_are_written_read_and_audited(seed, tmp_path):
    network = graph(seed)
    bounds = compute_bounds(network, "float64")
    save_bounds(bounds, tmp_path / "b.json")
    found = load_bounds(tmp_path / "b.json")
    assert found == bounds
    report = audit(found, network)
    assert report.confirmed
    assert not report.recomputed


def test_an_audit_catches_a_norm_that_is_too_small(tmp_path):
    network = graph(2)
    bounds = compute_bounds(network, "float64")
    for place, layer in enumerate(bounds.layers):
        smaller = replace(layer, upper=layer.upper * Fraction(999, 1000), lower=Fraction(0))
        layers = (*bounds.layers[:place], smaller, *bounds.layers[place + 1 :])
        assert not audit(replace(bounds, layers=layers), network).confirmed


def test_helpers_know_their_arithmetic():
    assert rows_of(RationalMatrix.from_integers([[1, 2]], 2)) == [[Fraction(1, 2), Fraction(1)]]
    assert column(Random(0), 2) is None or column(Random(0), 2).shape == (2, 1)


@pytest.mark.parametrize("name", sorted(set(backend_names()) - {"auto"}))
def test_control_a_mean_that_does_not_count_its_padding_is_no_convolution(name):
    """Its norm is larger: what is proved of the convolution by the same window is below the truth, and caught."""
    window = Window.padded((3, 3), (3, 3), pads=(1, 1, 1, 1))
    matrix = [[Fraction(0)] * 9 for _ in range(9)]
    for place, places in enumerate(window.table.T):
        seen = [int(p) for p in places if p >= 0]
        for p in seen:
            matrix[place][p] = Fraction(1, len(seen))
    mean = ChannelWise(RationalMatrix.from_fractions(matrix), (1, 3, 3), (1, 3, 3))
    taps = Convolution(RationalMatrix.from_fractions([[Fraction(1, 9)] * 9]), 1, window)
    norms = [layer_bound(linear, precision_ladder(name), Plan("auto")) for linear in (mean, taps)]
    ones = [Fraction(1)] * 9  # means of ones are ones
    assert times(matrix, ones) == ones
    truth = np.linalg.norm(np.array(matrix, dtype=float), 2)
    assert truth > 1.05
    assert 1.05 < norms[0].lower <= norms[0].upper < truth * (1 + 1e-9)
    assert norms[1].upper < 1 < norms[0].lower, "taken for taps, it is caught"
