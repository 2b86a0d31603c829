"""PyTorch models in memory: the function that torch computes, over the reals, or a refusal."""

import copy
import math
import sys
from collections import OrderedDict
from fractions import Fraction
from pathlib import Path

import mpmath
import numpy as np
import pytest

from intervalcert import InputError, UsageError, certify_inputs, evaluate, from_torch, load_model
from intervalcert.io.models import torch_modules

torch = pytest.importorskip("torch", reason="torch is not installed")
nn = torch.nn

FIXTURES = Path(__file__).parent / "fixtures"
KINDS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
TOLERANCE = {torch.float16: 2e-2, torch.bfloat16: 1e-1, torch.float32: 1e-5, torch.float64: 1e-12}


def numbers(seed, *shape):
    """k/64, smaller than 2: every type holds them."""
    return torch.from_numpy(np.random.default_rng(seed).integers(-127, 128, shape) / 64)


def linear(outputs, inputs, seed=0, *, bias=True):
    made = nn.Linear(inputs, outputs, bias=bias, dtype=torch.float64)
    made.weight = nn.Parameter(numbers([seed, 0], outputs, inputs))
    if bias:
        made.bias = nn.Parameter(numbers([seed, 1], outputs))
    return made


def around(*modules, width=4):
    """The modules between two layers, for evaluation."""
    return nn.Sequential(linear(width, 3, 1), *modules, linear(3, width, 2)).eval()


def fractions(matrix):
    rows, columns = matrix.shape
    return [[matrix[i, j] for j in range(columns)] for i in range(rows)]


def exact(tensor):
    return [Fraction(float(x)) for x in tensor.detach().double().ravel()]


def affine(module, x):
    """W·x + b in rationals, by plain loops."""
    rows = [exact(row) for row in module.weight]
    bias = [Fraction(0)] * len(rows) if module.bias is None else exact(module.bias)
    return [sum((a * b for a, b in zip(row, x, strict=True)), c) for row, c in zip(rows, bias, strict=True)]


def enclosure(network, x, backend="float64"):
    """Of the logits, as two arrays of floats with one row per input."""
    found = evaluate(network, x, backend=backend)
    return found.lower[-1], found.upper[-1]


# -- every module ----------------------------------------------------------------------------------------------------


def high(function):
    """A function of mpmath, at 60 digits: more than the enclosures could tell apart."""

    def of(x):
        with mpmath.workdps(60):
            value = function(mpmath.mpf(x.numerator) / x.denominator)
            sign, mantissa, exponent, _ = value._mpf_
            return (-1) ** sign * Fraction(int(mantissa)) * Fraction(2) ** exponent

    return of


def rounded(value, kind):
    """As torch keeps it in functions that it computes in float32 at least."""
    return Fraction(float(value if kind is torch.float64 else np.float32(value)))


def leaky(slope):
    return lambda kind: lambda x: x if x > 0 else rounded(slope, kind) * x


def clip(low, high, kind):
    least, most = (float(torch.tensor(end, dtype=kind)) for end in (low, high))
    return lambda x: Fraction(most) if x > most else Fraction(least) if x < least else x


FUNCTIONS = {
    "relu": (nn.ReLU, lambda _: lambda x: max(x, 0)),
    "relu in place": (lambda: nn.ReLU(inplace=True), lambda _: lambda x: max(x, 0)),
    "relu6": (nn.ReLU6, lambda kind: clip(0, 6, kind)),
    "hard tanh": (nn.Hardtanh, lambda kind: clip(-1, 1, kind)),
    "hard tanh, other ends": (lambda: nn.Hardtanh(-0.1, 1.7), lambda kind: clip(-0.1, 1.7, kind)),
    "hard tanh, one end": (lambda: nn.Hardtanh(-math.inf, 0.3), lambda kind: clip(-math.inf, 0.3, kind)),
    "hard tanh, no end": (lambda: nn.Hardtanh(-math.inf, math.inf), lambda _: lambda x: x),
    "leaky": (nn.LeakyReLU, leaky(0.01)),
    "leaky, steep": (lambda: nn.LeakyReLU(1.7), leaky(1.7)),
    "leaky, falling": (lambda: nn.LeakyReLU(-0.3), leaky(-0.3)),
    "leaky, whole": (lambda: nn.LeakyReLU(0), leaky(0)),
    "prelu": (lambda: nn.PReLU(init=0.375), lambda _: lambda x: x if x > 0 else Fraction(3, 8) * x),
    "identity": (nn.Identity, lambda _: lambda x: x),
    "dropout": (lambda: nn.Dropout(0.9), lambda _: lambda x: x),
    "dropout 1": (lambda: nn.Dropout1d(0.9), lambda _: lambda x: x),
    "alpha dropout": (lambda: nn.AlphaDropout(0.9), lambda _: lambda x: x),
    "flatten": (nn.Flatten, lambda _: lambda x: x),
    "tanh": (nn.Tanh, lambda _: high(mpmath.tanh)),
    "sigmoid": (nn.Sigmoid, lambda _: high(lambda x: 1 / (1 + mpmath.exp(-x)))),
    "softplus": (lambda: nn.Softplus(threshold=40), lambda _: high(lambda x: mpmath.log(1 + mpmath.exp(x)))),
    "elu": (nn.ELU, lambda _: high(lambda x: x if x > 0 else mpmath.expm1(x))),
    "elu, other alpha": (
        lambda: nn.ELU(0.3),
        lambda kind: lambda x: x if x > 0 else rounded(0.3, kind) * high(mpmath.expm1)(x),
    ),
}


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("case", FUNCTIONS)
def test_every_function_is_the_one_of_torch(case, kind):
    """Enclosed: what rationals, or many digits, give for the numbers of the modules. Close by: what torch computes."""
    make, reference = FUNCTIONS[case]
    model = around(make()).to(kind)
    x = numbers(5, 6, 3).to(kind)
    network = from_torch(model)
    low, high = enclosure(network, x.double().numpy(), "arb")
    function = reference(kind)
    for row, least, most in zip(x, low, high, strict=True):
        expected = affine(model[-1], [function(h) for h in affine(model[0], exact(row))])
        for value, below, above in zip(expected, least, most, strict=True):
            assert Fraction(below) <= value <= Fraction(above), (case, row, value, below, above)
            assert above - below <= 1e-12 * (1 + abs(value))
    with torch.no_grad():
        found = model(x).double().numpy()
    assert np.abs(found - low).max() <= TOLERANCE[kind] * (1 + np.abs(low).max())
    assert network.folded == ()


def test_a_linear_alone_is_a_model():
    module = linear(3, 4)
    network = from_torch(module)
    (layer,) = network.layers
    assert [x for row in fractions(layer.weights) for x in row] == exact(module.weight)
    assert [x for (x,) in fractions(layer.bias)] == exact(module.bias)
    assert network.activations == (None,)


def test_a_missing_bias_is_none():
    network = from_torch(nn.Sequential(linear(4, 3, bias=False), nn.ReLU(), linear(2, 4)))
    assert network.layers[0].bias is None
    assert network.layers[1].bias is not None


def test_the_fixtures_are_the_same_network():
    """The model of a state dict, and the file with it."""
    model = nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))
    model.load_state_dict(torch.load(FIXTURES / "mlp.pt"))
    network = from_torch(model)
    assert network.content == load_model(FIXTURES / "mlp.npz").content
    assert network.folded == ()
    assert [source.name for source in network.sources] == ["(in memory)"]
    expected = np.load(FIXTURES / "expected.npz")
    low, high = enclosure(network, expected["mlp__x"])
    assert np.abs(expected["mlp__y"] - low).max() < 1e-5
    assert (high - low).max() < 1e-9


# -- batch normalisation ---------------------------------------------------------------------------------------------


def normalisation(width, seed=0, **options):
    made = nn.BatchNorm1d(width, dtype=torch.float64, **options).eval()
    made.running_mean.copy_(numbers([seed, 2], width))
    made.running_var.copy_(numbers([seed, 3], width).abs() + 0.25)
    if made.affine:
        made.weight = nn.Parameter(numbers([seed, 4], width))
        made.bias = nn.Parameter(numbers([seed, 5], width))
    return made


def normalised(module, kind):
    """Of one vector, to 60 digits, from the definition."""
    mean, variance = exact(module.running_mean), exact(module.running_var)
    gamma = [Fraction(1)] * len(mean) if module.weight is None else exact(module.weight)
    beta = [Fraction(0)] * len(mean) if module.bias is None else exact(module.bias)
    epsilon = rounded(module.eps, kind)
    root = high(lambda x: 1 / mpmath.sqrt(x))
    parts = list(zip(mean, variance, gamma, beta, strict=True))
    return lambda x: [g * (h - m) * root(v + epsilon) + b for h, (m, v, g, b) in zip(x, parts, strict=True)]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("options", [{}, {"affine": False}, {"eps": 0.1}, {"momentum": None}], ids=str)
def test_batch_normalisation_before_an_activation(options, kind):
    model = around(normalisation(4, **options), nn.ReLU()).to(kind)
    network, x = from_torch(model), numbers(6, 5, 3).to(kind)
    low, high = enclosure(network, x.double().numpy(), "arb")
    of = normalised(model[1], kind)
    for row, least, most in zip(x, low, high, strict=True):
        expected = affine(model[-1], [max(h, 0) for h in of(affine(model[0], exact(row)))])
        for value, below, above in zip(expected, least, most, strict=True):
            assert Fraction(below) - Fraction(1, 10**15) <= value <= Fraction(above) + Fraction(1, 10**15)
            assert above - below <= 1e-12 * (1 + abs(value))
    with torch.no_grad():
        found = model(x).double().numpy()
    assert np.abs(found - low).max() <= TOLERANCE[kind] * (1 + np.abs(low).max())
    assert "batch normalisation" in network.folded


@pytest.mark.parametrize(
    "modules",
    [
        lambda: [normalisation(3), linear(4, 3, 1), nn.ReLU(), linear(3, 4, 2)],
        lambda: [linear(4, 3, 1), nn.ReLU(), normalisation(4), linear(3, 4, 2)],
        lambda: [linear(4, 3, 1), nn.Tanh(), linear(3, 4, 2), normalisation(3)],
        lambda: [linear(4, 3, 1), normalisation(4), normalisation(4, 1), nn.ReLU(), linear(3, 4, 2)],
        lambda: [linear(4, 3, 1), nn.ReLU(), normalisation(4), nn.ReLU(), normalisation(4, 1), linear(3, 4, 2)],
        lambda: [normalisation(3), nn.ReLU(), linear(4, 3, 1)],
    ],
    ids=["first", "after an activation", "last", "twice", "between activations", "alone before an activation"],
)
def test_batch_normalisation_in_other_places(modules):
    model = nn.Sequential(*modules()).eval()
    x = numbers(7, 5, 3)
    network = from_torch(model)
    low, high = enclosure(network, x.numpy(), "arb")
    with torch.no_grad():
        found = model(x).numpy()
    assert np.abs(found - low).max() <= 1e-12 * (1 + np.abs(found).max())
    assert (high - low).max() <= 1e-12 * (1 + np.abs(found).max())
    assert "batch normalisation" in network.folded
    with pytest.raises(InputError, match="deployed"):
        certify_inputs(network, x.numpy(), "1/10", deployed="float32")


@pytest.mark.parametrize("module", [nn.ReLU(), nn.Dropout(), nn.Identity(), nn.Flatten(), nn.LeakyReLU(0.25)])
def test_plain_layers_can_be_certified_as_deployed(module):
    network = from_torch(around(module).float())
    assert network.folded == ()
    assert len(certify_inputs(network, numbers(8, 2, 3).numpy(), "1/1000", deployed="float32").certified) == 2


# -- what torch rounds -----------------------------------------------------------------------------------------------


def parameter(network):
    return [Fraction(text) for text in network.activations[0].split(":")[1:]]


TINY = {torch.float16: 2.0**-24, torch.bfloat16: 2.0**-149, torch.float32: 2.0**-149, torch.float64: 2.0**-1074}


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_slopes_are_rounded_as_torch_does(kind):
    """0.6 times the smallest number of a type is rounded to that number, or is not: one sees which."""
    slope, x = 0.6 * TINY[kind], -(2.0**15 if kind is torch.float16 else 2.0**30)
    found = float(nn.LeakyReLU(slope)(torch.tensor([x], dtype=kind))[0])
    (taken,) = parameter(from_torch(around(nn.LeakyReLU(slope)).to(kind)))
    assert abs(found / x / float(taken) - 1) < 0.01
    assert taken == (Fraction(float(np.float32(slope))) if kind is torch.float16 else Fraction(TINY[kind]))


@pytest.mark.parametrize("kind", KINDS[:3], ids=str)
def test_alphas_are_numbers_of_32_bits(kind):
    """70000 is none of 16 bits, but is taken; 3.5e38 is none of 32 bits, and torch refuses it, too."""
    x = torch.full((1,), -(2.0**-7), dtype=kind)
    assert abs(float(nn.ELU(70000.0)(x)[0]) / (70000 * math.expm1(-(2.0**-7))) - 1) < 0.01
    assert parameter(from_torch(around(nn.ELU(70000.0)).to(kind))) == [70000]
    with pytest.raises(RuntimeError, match="type float without overflow"):
        nn.ELU(3.5e38)(x)
    with pytest.raises(InputError, match="too large"):
        from_torch(around(nn.ELU(3.5e38)).to(kind))


def test_alphas_of_64_bits_are_taken_as_they_are():
    assert float(nn.ELU(3.5e38)(torch.tensor([-100.0]).double())[0]) == -3.5e38
    assert parameter(from_torch(around(nn.ELU(3.5e38)))) == [Fraction(3.5e38)]


@pytest.mark.parametrize("end", [1 + 2.0**-12, 1 + 2.0**-26, 1 + 3 * 2.0**-9, 0.1, 1.7, 1])
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_ends_are_rounded_to_the_type_of_the_model(kind, end):
    found = [float(nn.Hardtanh(-end, end)(torch.tensor([x], dtype=kind))[0]) for x in (-9.0, 9.0)]
    name = from_torch(around(nn.Hardtanh(-end, end)).to(kind)).activations[0]
    assert (
        found == [-1, 1]
        if name == "hard_tanh"
        else [Fraction(x) for x in found] == [Fraction(x) for x in name.split(":")[1:]]
    )


def test_an_end_that_the_type_does_not_hold_is_refused():
    with pytest.raises(RuntimeError, match="overflow"):
        nn.Hardtanh(-1, 70000)(torch.ones(1).half())
    with pytest.raises(InputError, match="too large for numbers of type float16"):
        from_torch(around(nn.Hardtanh(-1, 70000)).half())


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_epsilons_are_rounded_as_torch_does(kind):
    """Of a variance that is zero, only epsilon is left."""
    tiny = {torch.float64: 2.0**-1060}.get(kind, TINY[kind])
    module = nn.BatchNorm1d(2, eps=0.6 * tiny).eval()
    module.running_var.zero_()
    model = nn.Sequential(nn.Linear(2, 2), module).to(kind)
    with torch.no_grad():
        model[0].weight.copy_(torch.eye(2))
        model[0].bias.zero_()
        x = 2.0**-10 * torch.ones(1, 2, dtype=kind)
        found = model(x).double().numpy()
    low, _ = enclosure(from_torch(model), x.double().numpy(), "arb")
    assert np.isfinite(found).all()
    assert np.abs(found / low - 1).max() < 0.01, "the root of 0.6 is 23 % off"


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_above_its_threshold_softplus_is_rounded_only(kind):
    """In float64 exp(-20) is half a million units in the last place of 20."""
    least = 40 if kind is torch.float64 else 20
    with mpmath.workdps(60):
        off = mpmath.exp(-least)
    assert off * 1000 < least * torch.finfo(kind).eps
    assert from_torch(around(nn.Softplus(threshold=least)).to(kind)).activations == ("softplus", None)
    with pytest.raises(InputError, match=rf"threshold.*Set \.threshold = {least}"):
        from_torch(around(nn.Softplus(threshold=least - 1)).to(kind))


# -- models as people have them --------------------------------------------------------------------------------------


def same(model, other):
    return from_torch(model).content == from_torch(other).content


def test_sequentials_may_have_names_and_be_nested():
    plain = around(nn.ReLU(), linear(4, 4, 7), nn.Tanh())
    first, relu, second, tanh, third = plain
    named = nn.Sequential(OrderedDict([("z", first), ("b", relu), ("a", second), ("10", tanh), ("9", third)]))
    nested = nn.Sequential(
        nn.Sequential(first, nn.Sequential(relu)), nn.Sequential(), nn.Sequential(second, tanh, third)
    )
    assert same(plain, named.eval())
    assert same(plain, nested.eval())
    with pytest.raises(InputError, match=r"the module z\.bad \(GELU\)"):
        from_torch(nn.Sequential(OrderedDict(z=nn.Sequential(OrderedDict(bad=nn.GELU())))))


def test_a_module_that_stands_twice_is_called_twice():
    layer, relu = linear(3, 3), nn.ReLU()
    model = nn.Sequential(layer, relu, layer, relu, layer)
    network = from_torch(model)
    assert len(network.layers) == 3
    assert same(model, nn.Sequential(linear(3, 3), nn.ReLU(), linear(3, 3), nn.ReLU(), linear(3, 3)))


def test_tied_weights_are_two_layers():
    first, second = linear(3, 3), linear(3, 3, 1)
    second.weight = first.weight
    network = from_torch(nn.Sequential(first, nn.ReLU(), second))
    assert network.layers[0].weights == network.layers[1].weights
    assert network.layers[0].bias != network.layers[1].bias


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.requires_grad_(False),
        lambda model: model.train().eval(),
        lambda model: copy.deepcopy(model),
        lambda model: model.double().float().double(),
        lambda model: model.to(memory_format=torch.preserve_format),
        lambda model: model.share_memory(),
        lambda model: setattr(model, "comment", "mine") or model,
        lambda model: model.register_full_backward_hook(lambda *_: None) and model,
    ],
    ids=["no gradient", "trained", "copied", "converted", "moved", "shared", "with a note", "with a backward hook"],
)
def test_what_does_not_change_the_function_is_no_matter(change):
    assert same(around(nn.ReLU()), change(around(nn.ReLU())))


def test_dropout_and_identity_disappear():
    model = around(nn.Dropout(), nn.ReLU(), nn.Dropout1d(), nn.Identity(), nn.Dropout2d(), nn.FeatureAlphaDropout())
    assert same(model, around(nn.ReLU()))


def test_two_layers_without_an_activation_stay_two():
    network = from_torch(nn.Sequential(linear(4, 3), linear(2, 4)))
    assert network.activations == ("identity", None)


def test_an_activation_may_stand_at_either_end():
    model = nn.Sequential(nn.ReLU(), linear(4, 3), nn.Tanh())
    x = numbers(9, 4, 3)
    low, high = enclosure(from_torch(model), x.numpy())
    found = model(x).detach().numpy()
    assert np.abs(found - low).max() < 1e-12
    assert np.abs(found - high).max() < 1e-12


WEIGHTS = {
    "transposed": lambda: numbers(1, 3, 4).t(),
    "a part": lambda: numbers(1, 8, 9)[2:6, 3:6],
    "backwards": lambda: numbers(1, 4, 3).flip(0),
    "overlapping": lambda: numbers(1, 12).as_strided((4, 3), (1, 2)),
    "negated when it is read": lambda: torch._neg_view(numbers(1, 4, 3)),
    "a part of complex numbers": lambda: torch.complex(numbers(1, 4, 3), numbers(2, 4, 3)).conj().imag,
    "computed": lambda: numbers(1, 4, 3).requires_grad_() * 2,
}


@pytest.mark.parametrize("case", WEIGHTS)
def test_weights_of_any_layout_are_the_numbers_that_torch_uses(case):
    layer = linear(4, 3)
    del layer.weight
    layer.weight = WEIGHTS[case]()
    x = numbers(3, 5, 3)
    low, high = enclosure(from_torch(layer), x.numpy())
    found = layer(x).detach().numpy()
    assert np.abs(found - low).max() < 1e-12
    assert np.abs(found - high).max() < 1e-12


def test_the_network_does_not_change_with_the_model():
    model = around(nn.ReLU())
    network = from_torch(model)
    before = network.content
    with torch.no_grad():
        for weights in model.parameters():
            weights.zero_()
    assert network.content == before
    assert from_torch(model).content != before


def test_attributes_are_read_as_they_are_now():
    """As forward does: not as they were when the module was made."""
    module = nn.LeakyReLU(0.25)
    module.negative_slope = 0.5
    assert from_torch(around(module)).activations == ("leaky_relu:1/2", None)
    layer = linear(4, 3)
    layer.weight, layer.in_features = nn.Parameter(numbers(1, 4, 2)), 99
    assert from_torch(layer).inputs == 2


def test_a_pruned_model_is_read_when_the_mask_is_in_the_weights():
    from torch.nn.utils import prune

    model = around(nn.ReLU())
    prune.l1_unstructured(model[0], "weight", 5)
    with pytest.raises(InputError, match="hooks"):
        from_torch(model)
    prune.remove(model[0], "weight")
    assert sum(x == 0 for row in fractions(from_torch(model).layers[0].weights) for x in row) >= 5


def random_model(rng):
    """A Sequential of known modules in any order, some nested, some twice."""
    width, modules = int(rng.integers(1, 6)), []
    inputs = width
    for _ in range(rng.integers(1, 8)):
        match rng.integers(0, 6):
            case 0 | 1:
                outputs = int(rng.integers(1, 6))
                modules.append(linear(outputs, width, int(rng.integers(0, 99)), bias=bool(rng.integers(0, 2))))
                width = outputs
            case 2:
                modules.append(normalisation(width, int(rng.integers(0, 99)), affine=bool(rng.integers(0, 2))))
            case _:
                make, _ = list(FUNCTIONS.values())[rng.integers(0, len(FUNCTIONS))]
                modules.append(make())
        if rng.random() < 0.2:
            modules.append(nn.Sequential(nn.ReLU(inplace=bool(rng.integers(0, 2))), nn.Sequential(modules[-1])))
            if isinstance(modules[-2], nn.Linear) and modules[-2].in_features != modules[-2].out_features:
                modules.pop()
    return nn.Sequential(linear(inputs, inputs), *modules, linear(3, width, 5)).double().eval(), inputs


@pytest.mark.parametrize("seed", range(40))
def test_random_models_compute_what_torch_computes(seed):
    rng = np.random.default_rng(seed)
    model, inputs = random_model(rng)
    x = numbers([seed, 9], 3, inputs)
    with torch.no_grad():
        found = model(x.clone()).numpy()
    network = from_torch(model)
    low, high = enclosure(network, x.numpy(), "arb")
    room = 1e-10 * (1 + np.abs(found).max()) * 10 ** len(network.layers)
    assert np.abs(found - low).max() <= room, model
    assert (high - low).max() <= room, model


# -- shapes ----------------------------------------------------------------------------------------------------------


def test_images_are_flattened_with_their_last_axis_fastest():
    model = nn.Sequential(nn.Flatten(), linear(3, 12))
    x = numbers(4, 2, 2, 3, 2)
    network = from_torch(model, shape=(2, 3, 2))
    assert network.shape == (2, 3, 2)
    low, _ = enclosure(network, x.reshape(2, 12).numpy())
    found = model(x).detach().numpy()
    assert np.abs(found - low).max() < 1e-12
    assert network.content == from_torch(model).content


def test_functions_of_single_numbers_may_come_before_flattening():
    model = nn.Sequential(nn.Tanh(), nn.Dropout2d(), nn.Flatten(), linear(3, 12)).eval()
    assert from_torch(model, shape=[3, 2, 2]).activations == ("tanh", None)


@pytest.mark.parametrize(
    "modules",
    [
        lambda: [linear(6, 2), nn.Flatten(), linear(3, 6)],
        lambda: [linear(3, 2)],
        lambda: [normalisation(6), nn.Flatten(), linear(3, 6)],
        lambda: [nn.Softmax(dim=1), nn.Flatten(), linear(3, 6)],
    ],
)
def test_what_acts_on_one_axis_needs_flat_inputs(modules):
    with pytest.raises(InputError, match=r"several axes.*Flatten"):
        from_torch(nn.Sequential(*modules()).eval(), shape=(3, 2), strip_softmax=True)


@pytest.mark.parametrize(
    ("shape", "error"),
    [
        ((5,), InputError),
        ((2, 2), InputError),
        *((shape, UsageError) for shape in ((), (0, 2), (2.0, 3), (True, 6), "23", 6, (-2, -3))),
    ],
    ids=str,
)
def test_a_shape_that_is_none_is_refused(shape, error):
    with pytest.raises(error):
        from_torch(nn.Sequential(nn.Flatten(), linear(3, 6)), shape=shape)


def test_inputs_may_be_normalised_before():
    model = around(nn.ReLU())
    network = from_torch(model, mean="1/2", std=["1/4", 1, 2])
    x = numbers(4, 5, 3)
    low, _ = enclosure(network, x.numpy())
    found = model((x - 0.5) / torch.tensor([0.25, 1, 2])).detach().numpy()
    assert np.abs(found - low).max() < 1e-12
    assert network.eps_space == "input"
    assert from_torch(model, mean="1/2", std=["1/4", 1, 2], eps_space="normalised").eps_space == "normalised"
    with pytest.raises(UsageError, match="eps space"):
        from_torch(model, eps_space="output")


# -- softmax ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", [nn.Softmax(dim=1), nn.Softmax(dim=-1), nn.LogSoftmax(dim=1)], ids=str)
def test_a_softmax_at_the_end_can_be_left_out(module):
    plain = around(nn.ReLU())
    model = nn.Sequential(plain, module, nn.Dropout(), nn.Identity()).eval()
    with pytest.raises(InputError, match=r"the module 1 .*logits before it.*strip_softmax=True"):
        from_torch(model)
    network = from_torch(model, strip_softmax=True)
    assert network.content == from_torch(plain).content
    assert network.folded == ("a softmax",), "in floats it can make two classes equal"
    assert from_torch(plain).folded == ()
    with pytest.raises(InputError, match="there is no softmax"):
        from_torch(plain, strip_softmax=True)


@pytest.mark.parametrize("module", [nn.Softmax(dim=0), nn.Softmax(dim=2), nn.Softmax(), nn.LogSoftmax(dim=0)], ids=str)
def test_a_softmax_over_something_else_is_refused(module):
    """Over the batch, for one."""
    with pytest.raises(InputError, match="its dim is"):
        from_torch(nn.Sequential(linear(3, 3), module), strip_softmax=True)


@pytest.mark.parametrize(
    "module", [linear(3, 3), nn.ReLU(), nn.Softmax(dim=1), nn.Sigmoid(), normalisation(3)], ids=str
)
def test_a_softmax_elsewhere_is_refused(module):
    with pytest.raises(InputError, match="follows a softmax"):
        from_torch(nn.Sequential(linear(3, 3), nn.Softmax(dim=1), module).eval(), strip_softmax=True)


# -- what is refused -------------------------------------------------------------------------------------------------


class Subclass(nn.Linear):
    """What it computes, nobody knows."""

    def forward(self, x):
        return 2 * super().forward(x)


class Silent(nn.Sequential):
    """A Sequential, as far as one sees."""


class OptimizedModule(nn.Module):
    """Named as what torch.compile makes: to make one takes seconds."""


class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = around(nn.ReLU())

    def forward(self, x):
        return self.net(x) + 1


class Plain(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function, types, arguments=(), options=None):
        return super().__torch_function__(function, types, arguments, options)


def having(**attributes):
    """A layer with attributes that are set by hand."""
    layer = linear(3, 3)
    for name, value in attributes.items():
        if name in layer._parameters:
            del layer._parameters[name]
        setattr(layer, name, value)
    return layer


def swapped():
    layer = linear(3, 3)
    layer.__class__ = Subclass
    return layer


def hooked(where):
    model = around(nn.ReLU())
    target = model if where == "model" else model[1] if where == "relu" else model[0]
    if where == "before":
        target.register_forward_pre_hook(lambda _, x: (2 * x[0],))
    else:
        target.register_forward_hook(lambda _, __, y: 2 * y)
    return model


def replaced(name):
    model = around(nn.ReLU())
    setattr(model[1], name, lambda x: 2 * x)
    return model


def compiled():
    """As module.compile() leaves it."""
    model = around(nn.ReLU())
    model._compiled_call_impl = model._call_impl
    return model


def parametrised():
    layer = linear(3, 3)
    torch.nn.utils.parametrize.register_parametrization(layer, "weight", nn.Tanh())
    return layer


def statistics(**values):
    module = normalisation(3)
    for name, value in values.items():
        setattr(module, name, value)
    return nn.Sequential(linear(3, 3), module)


UNKNOWN = {
    "convolution": (lambda: nn.Conv2d(1, 2, 3), r"\(Conv2d\).*shape=\(channels, height, width\)"),
    "convolution in one dimension": (lambda: nn.Sequential(nn.Conv1d(1, 2, 3)), "the module 0.*say the shape"),
    "transposed convolution": (lambda: nn.ConvTranspose2d(1, 2, 3), "ConvTranspose2d, which is not understood"),
    "lazy": (lambda: nn.LazyLinear(3), "LazyLinear.*ONNX"),
    "subclass": (lambda: Subclass(3, 3), "Subclass, which is not understood.*no subclasses"),
    "another class put in": (swapped, "Subclass"),
    "subclass of Sequential without a shape": (lambda: Silent(linear(3, 3)), "Silent.*say the shape"),
    "own module without a shape": (Own, "Own.*say the shape"),
    "list": (lambda: nn.ModuleList([linear(3, 3)]), "ModuleList"),
    "dict": (lambda: nn.ModuleDict({"0": linear(3, 3)}), "ModuleDict"),
    "function": (lambda: torch.relu, "no torch.nn.Module"),
    "tensor": (lambda: torch.ones(2, 2), "no torch.nn.Module"),
    "state dict": (lambda: linear(3, 3).state_dict(), "no torch.nn.Module"),
    "nothing inside": (lambda: having_none(), r"the module 0 \(NoneType\)"),
    "bilinear": (lambda: nn.Bilinear(2, 2, 2), "Bilinear"),
    "embedding": (lambda: nn.Sequential(nn.Embedding(3, 3), linear(3, 3)), "Embedding"),
    "layer normalisation": (lambda: around(nn.LayerNorm(4)), "LayerNorm"),
    "batch normalisation of images": (lambda: around(nn.BatchNorm2d(4)), "BatchNorm2d"),
    "gelu": (lambda: around(nn.GELU()), "the module 1.*GELU"),
    "hard sigmoid": (lambda: around(nn.Hardsigmoid()), "Hardsigmoid"),
    "softsign": (lambda: around(nn.Softsign()), "Softsign"),
    "random leaky": (lambda: around(nn.RReLU()), "RReLU"),
    "unflatten": (lambda: around(nn.Unflatten(1, (2, 3))), "Unflatten.*4 numbers"),
    "max pool": (lambda: around(nn.MaxPool1d(2)), "MaxPool1d"),
    "parallel": (lambda: nn.DataParallel(around(nn.ReLU())), r"DataParallel\) has the model in it.*\.module"),
    "compiled": (lambda: OptimizedModule(), r"OptimizedModule\) has the model in it.*\._orig_mod"),
    "scripted": (lambda: torch.jit.script(around(nn.ReLU())), "RecursiveScriptModule"),
    "traced": (lambda: torch.fx.symbolic_trace(around(nn.ReLU())), "GraphModule"),
    "quantised": (
        lambda: torch.ao.nn.quantized.dynamic.Linear(3, 3),
        r"torch\.ao\.nn.*Linear, which is not understood",
    ),
    "to be quantised": (lambda: torch.ao.nn.qat.Linear(3, 3, qconfig=torch.ao.quantization.default_qat_qconfig), "qat"),
}


def having_none():
    model = nn.Sequential(linear(3, 3))
    model._modules["0"] = None
    return model


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", UNKNOWN)
def test_unknown_modules_are_refused_with_their_names(case):
    make, said = UNKNOWN[case]
    with pytest.raises(InputError, match=said):
        from_torch(make())


CHANGED = {
    "hook": (lambda: hooked("first"), "the module 0.*hooks"),
    "hook on a function": (lambda: hooked("relu"), "the module 1.*hooks"),
    "hook on the model": (lambda: hooked("model"), "the model .*hooks"),
    "hook before": (lambda: hooked("before"), "hooks"),
    "old weight norm": (lambda: torch.nn.utils.weight_norm(linear(3, 3)), "hooks"),
    "old spectral norm": (lambda: torch.nn.utils.spectral_norm(linear(3, 3)), "hooks"),
    "weight norm": (lambda: torch.nn.utils.parametrizations.weight_norm(linear(3, 3)), "ParametrizedLinear"),
    "spectral norm": (lambda: torch.nn.utils.parametrizations.spectral_norm(linear(3, 3)), "ParametrizedLinear"),
    "orthogonal": (lambda: torch.nn.utils.parametrizations.orthogonal(linear(3, 3)), "ParametrizedLinear"),
    "parametrised": (parametrised, "ParametrizedLinear"),
    "own forward": (lambda: replaced("forward"), "the module 1.*'forward' other than its class"),
    "own call": (lambda: replaced("_call_impl"), "'_call_impl' other than its class"),
    "compiled in place": (compiled, "compiled in place"),
    "training": (lambda: around(nn.Dropout()).train(), r"the module 1 .*training mode.*model\.eval\(\)"),
    "training of statistics": (lambda: around(normalisation(4)).train(), r"training mode.*model\.eval\(\)"),
    "no statistics": (lambda: around(nn.BatchNorm1d(4, track_running_stats=False)).double(), "depends on the batch"),
    "no mean": (lambda: statistics(running_mean=None), "depends on the batch"),
    "no variance": (lambda: statistics(running_var=None), "depends on the batch"),
    "a variance of zero": (lambda: statistics(running_var=torch.zeros(3).double(), eps=0.0), "not positive"),
    "a variance below zero": (lambda: statistics(running_var=-torch.ones(3).double()), "not positive"),
    "statistics of another width": (
        lambda: nn.Sequential(linear(4, 3), normalisation(3)),
        "for 3 numbers.*there are 4",
    ),
    "an epsilon that is none": (lambda: statistics(eps="1e-5"), "not a real number"),
    "no weight": (lambda: having(weight=None), "there is no Linear|no weight"),
    "mixed types": (lambda: nn.Sequential(linear(3, 3), nn.ReLU(), linear(3, 3).float()), "float32.*of float64"),
    "mixed in a layer": (lambda: having(bias=torch.ones(3)), "its bias is of type float32"),
    "integers": (lambda: having(weight=torch.ones(3, 3, dtype=torch.int64)), "int64"),
    "complex": (lambda: having(weight=torch.ones(3, 3, dtype=torch.complex64)), "complex64"),
    "eight bits": (lambda: having(weight=torch.ones(3, 3).to(torch.float8_e4m3fn)), "float8_e4m3fn"),
    "sparse": (lambda: having(weight=torch.eye(3).double().to_sparse()), "sparse_coo"),
    "of another library": (lambda: having(weight=torch.eye(3).to_mkldnn()), "_mkldnn"),
    "quantised": (lambda: having(weight=torch.quantize_per_tensor(torch.eye(3), 0.1, 0, torch.qint8)), "qint8"),
    "nested": (lambda: having(weight=torch.nested.nested_tensor([torch.ones(3)] * 3)), "nested"),
    "without numbers": (lambda: around(nn.ReLU()).to("meta"), "float64 on the device meta"),
    "a subclass of tensors": (
        lambda: having(weight=numbers(1, 3, 3).as_subclass(Plain)),
        "is a Plain, no plain tensor",
    ),
    "repeated": (lambda: having(weight=torch.ones(1).double().expand(3, 3)), "repeats its numbers"),
    "nan": (lambda: having(weight=torch.full((3, 3), math.nan).double()), r"its weight: nan at \[0, 0\]"),
    "infinite": (lambda: having(bias=torch.full((3,), math.inf).double()), r"its bias: inf at \[0\]"),
    "a vector of weights": (lambda: having(weight=torch.ones(3).double()), "there is no Linear|the shape"),
    "one bias for all": (lambda: having(bias=torch.ones(1).double()), "3 outputs, but biases of shape"),
    "a matrix of biases": (lambda: having(bias=torch.ones(1, 3).double()), r"its bias has the shape \[1, 3\]"),
    "widths": (lambda: nn.Sequential(linear(4, 3), nn.ReLU(), linear(2, 3)), "the module 2 .*for 3 inputs"),
    "no layer": (lambda: nn.Sequential(nn.ReLU()), "nothing says how wide"),
    "empty": (lambda: nn.Sequential(), "nothing says how wide"),
    "many slopes": (lambda: around(nn.PReLU(5)).double(), "5 slopes"),
    "a slope that is nan": (lambda: around(nn.LeakyReLU(math.nan)), "not a real number"),
    "an infinite slope": (lambda: around(nn.LeakyReLU(math.inf)), "not finite"),
    "a slope that is a tensor": (lambda: around(nn.LeakyReLU(torch.tensor(0.5))), "not a real number"),
    "a slope that is none": (lambda: around(nn.LeakyReLU(True)), "not a real number"),
    "a negative alpha": (lambda: around(nn.ELU(-1.0)), "alpha must not be negative"),
    "ends the wrong way": (lambda: turned(), "lower end"),
    "softplus of another beta": (lambda: around(nn.Softplus(beta=2, threshold=40)), "its beta is 2"),
    "softplus with a low threshold": (lambda: around(nn.Softplus(threshold=5)).float(), "its threshold is 5"),
    "softplus in float64": (lambda: around(nn.Softplus()), "threshold is 20.*below 40"),
    "flattening all": (lambda: around(nn.Flatten(0, -1)), "the axes 0 to -1"),
    "flattening some": (lambda: around(nn.Flatten(2)), "the axes 2 to -1"),
    "flattening up to one": (lambda: around(nn.Flatten(1, 1)), "the axes 1 to 1"),
}


def turned():
    module = nn.Hardtanh()
    module.min_val, module.max_val = 1.0, -1.0
    return around(module)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CHANGED)
def test_changed_models_are_refused(case):
    make, said = CHANGED[case]
    with pytest.raises(InputError, match=said):
        from_torch(make())


def test_hooks_for_all_modules_are_refused():
    for register in (
        nn.modules.module.register_module_forward_hook,
        nn.modules.module.register_module_forward_pre_hook,
    ):
        hook = register(lambda *_: None)
        try:
            with pytest.raises(InputError, match="hooks for all modules"):
                from_torch(around(nn.ReLU()))
        finally:
            hook.remove()
    assert from_torch(around(nn.ReLU())).outputs == 3


PATCHES = {
    "forward": (nn.ReLU, "forward"),
    "forward of a layer": (nn.Linear, "forward"),
    "forward of a parent": (nn.Hardtanh, "forward"),
    "forward of a Sequential": (nn.Sequential, "forward"),
    "call": (nn.Module, "__call__"),
    "call of one class": (nn.ReLU, "__call__"),
    "what call calls": (nn.Module, "_call_impl"),
    "compiled for all": (nn.Module, "_compiled_call_impl"),
    "the order": (nn.Sequential, "__iter__"),
}


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("case", PATCHES)
def test_functions_of_torch_that_were_replaced_are_seen(monkeypatch, case, wrapped):
    from functools import wraps

    owner, name = PATCHES[case]
    original = getattr(owner, name)

    def other(self, *arguments):
        return original(self, *arguments)

    model = around(nn.ReLU(), nn.ReLU6())
    assert from_torch(model).outputs == 3
    monkeypatch.setattr(owner, name, wraps(original)(other) if wrapped and original else other)
    with pytest.raises(InputError, match=f"somebody replaced {owner.__name__}.{name}"):
        from_torch(model)


def test_functions_of_torch_that_changed_places_are_seen(monkeypatch):
    monkeypatch.setattr(nn.ReLU, "forward", nn.Tanh.forward)
    with pytest.raises(InputError, match=r"somebody replaced ReLU\.forward"):
        from_torch(around(nn.ReLU()))


class ReLU(nn.Module):
    """Named as one of torch's."""

    def forward(self, x):
        return 2 * x


def test_functions_that_are_called_alike_are_seen(monkeypatch):
    assert ReLU.forward.__code__.co_qualname == nn.ReLU.forward.__code__.co_qualname
    network = from_torch(around(ReLU()))  # by what it does, not by its name
    assert network.activations == ("identity", None)
    assert network.content != from_torch(around(nn.ReLU())).content
    monkeypatch.setattr(nn.ReLU, "forward", ReLU.forward)
    with pytest.raises(InputError, match=r"somebody replaced ReLU\.forward"):
        from_torch(around(nn.ReLU()))


@pytest.mark.parametrize("name", ["Linear", "Sequential"])
def test_classes_of_torch_that_were_replaced_are_seen(monkeypatch, name):
    """As libraries do that put their own layers in the place of torch's; the functions may be inherited."""
    original = getattr(nn, name)
    monkeypatch.setattr(nn, name, type(name, (original,), {"__module__": __name__}))
    model = around(nn.ReLU())
    with pytest.raises(InputError, match=rf"somebody replaced a class of torch by .*\.{name}"):
        from_torch(model)


@pytest.mark.filterwarnings("ignore")
def test_tensors_of_function_transforms_are_refused():
    """Their memory holds other numbers, or none: within functionalize one would read whatever is there."""
    seen = []

    def read(weights):
        layer = linear(3, 3)
        del layer.weight
        layer.weight = weights
        with pytest.raises(InputError, match="within a function transform"):
            from_torch(layer)
        seen.append(weights)
        return weights.sum()

    weights = numbers(1, 3, 3)
    torch.func.grad(read)(weights)
    torch.func.vmap(read, randomness="same")(numbers(1, 2, 3, 3))
    torch.func.functionalize(read)(weights)
    torch.func.jvp(read, (weights,), (weights,))
    assert len(seen) == 4


def test_modes_that_compute_only_shapes_are_refused():
    from torch._subclasses import FakeTensorMode

    model = around(nn.ReLU())
    with FakeTensorMode(allow_non_fake_inputs=True), pytest.raises(InputError, match="not in the memory"):
        from_torch(model)
    with FakeTensorMode(), pytest.raises(InputError, match="FakeTensor"):
        from_torch(around(nn.ReLU()))
    with torch.device("meta"):
        assert from_torch(model).outputs == 3


def test_other_defaults_of_torch_change_nothing():
    model, expected = around(nn.LeakyReLU(0.1)).float(), from_torch(around(nn.LeakyReLU(0.1)).float()).content
    torch.set_default_dtype(torch.float64)
    try:
        assert from_torch(model).content == expected
    finally:
        torch.set_default_dtype(torch.float32)
    with torch.autocast("cpu", torch.bfloat16), torch.inference_mode():
        assert from_torch(model).content == expected


def test_models_that_never_end_are_refused(monkeypatch):
    endless = nn.Sequential(linear(3, 3))
    endless.append(endless)
    with pytest.raises(InputError, match="Sequentials within Sequentials"):
        from_torch(endless)
    monkeypatch.setattr(torch_modules, "_MAX_MODULES", 3)
    double = nn.Sequential(linear(3, 3))
    for _ in range(60):
        double = nn.Sequential(double, double)
    with pytest.raises(InputError, match="more than 3 modules"):
        from_torch(double)
    assert from_torch(around(nn.ReLU())).outputs == 3
    with pytest.raises(InputError, match="more than 3 modules"):
        from_torch(around(nn.ReLU(), nn.ReLU()))


def test_a_missing_torch_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UsageError, match=r"pip install 'intervalcert\[torch\]'"):
        from_torch(None)
