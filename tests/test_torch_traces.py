"""What a forward does when torch.fx calls it: its functions, arguments, shapes; and activations that are said."""

import copy
import math

import numpy as np
import pytest

from intervalcert import InputError, UsageError, evaluate, from_torch
from intervalcert.io.models import torch_trace

torch = pytest.importorskip("torch", reason="torch is not installed")
nn, F = torch.nn, torch.nn.functional

from tests.test_torch_graphs import IMAGE, Own, check, drawn, inputs, own  # noqa: E402 - after torch


def refused(said, model, shape=IMAGE, **options):
    with pytest.raises(InputError, match=said):
        from_torch(drawn(model), shape=shape, **options)


# -- functions ---------------------------------------------------------------------------------------------------------


@torch.fx.wrap
def add(x, y):
    return x + 2 * y


@torch.fx.wrap
def mean(x, dim):
    return x.sum(dim)


@torch.fx.wrap
def relu(x):
    return -x


@pytest.mark.parametrize(
    ("function", "name"),
    [(lambda _, x: add(x, x), "add"), (lambda _, x: mean(x, [2, 3]), "mean"), (lambda _, x: relu(x), "relu")],
)
def test_functions_are_known_as_objects_not_by_their_names(function, name):
    refused(rf"its operation {name}.*test_torch_traces\.{name} is not understood", Own(function))


MORE = {
    "padding": lambda m, x: F.pad(m.conv(x), (1, 0, 2, -1)),
    "padding with numbers": lambda m, x: F.pad(m.conv(x), [1, 2], value=0.75),
    "padding of channels": lambda m, x: F.pad(m.conv(x), (0, 0, 0, 0, 1, 1), "constant", 0),
    "clamped": lambda m, x: torch.clamp(m.conv(x), -0.5, 0.75),
    "clamped from below": lambda m, x: m.conv(x).clamp(min=0.25),
    "clamped from above": lambda m, x: torch.clamp(m.conv(x), max=0.25),
    "clamped at zero": lambda m, x: m.conv(x).clamp(min=0),
    "clamped by one end": lambda m, x: m.conv(x).clamp_min(-0.25) + torch.clamp_max(x, 0.5),
    "clamped in place": lambda m, x: m.conv(x).clamp_(-1, 1),
    "clipped": lambda m, x: m.conv(x).clip(-0.5, 0.5),
    "hard tanh": lambda m, x: F.hardtanh(m.conv(x)) + F.relu6(x),
    "sums": lambda m, x: m.conv(x).sum((2, 3)),
    "a sum": lambda m, x: torch.sum(m.conv(x), dim=1, keepdim=True),
    "means by another word": lambda m, x: m.conv(x).mean(axis=(2, 3), keepdims=True),
    "stacked": lambda m, x: torch.stack([m.conv(x), x], dim=2),
    "stacked at the end": lambda m, x: torch.stack((m.conv(x), x, x), -1),
    "a convolution": lambda m, x: F.conv2d(x, m.conv.weight, m.conv.bias, padding=1),
    "a convolution with settings": lambda m, x: F.conv2d(x, m.conv.weight, stride=(2, 1), padding="valid"),
    "a convolution in one dimension": lambda m, x: F.conv1d(m.conv(x).flatten(2), m.short, None, 2, 1, 2),
    "a linear map": lambda m, x: F.linear(m.conv(x).flatten(1), m.last.weight, m.last.bias),
    "a linear map, no bias": lambda m, x: F.linear(m.conv(x).flatten(1), m.last.weight),
    "batch normalisation": lambda m, x: F.batch_norm(
        m.conv(x), m.bn.running_mean, m.bn.running_var, m.bn.weight, m.bn.bias, m.bn.training, 0.1, m.bn.eps
    ),
    "batch normalisation, bare": lambda m, x: F.batch_norm(m.conv(x), m.bn.running_mean, m.bn.running_var),
    "modules' own forwards": lambda m, x: m.bn.forward(m.conv.forward(x)),
    "adaptive maxima": lambda m, x: F.adaptive_max_pool2d(m.conv(x), (3, 2)),
    "largest ones": lambda m, x: m.conv(x).amax((2, 3)) - torch.amin(x, dim=(2, 3)),
    "largest along an axis": lambda m, x: m.conv(x).max(dim=2).values + x.min(2, keepdim=False)[0],
    "sorted": lambda m, x: m.conv(x).sort(dim=1).values,
    "sorted, unpacked": lambda m, x: torch.sort(m.conv(x), dim=2, descending=True, stable=True)[0],
    "halves": lambda m, x: torch.max(*m.conv(x).chunk(2, 1)),
    "halves, in a loop": lambda m, x: sum(part.relu() for part in m.conv(x).split(1, dim=1)),
    "copied": lambda m, x: m.conv(x).clone() + x.detach(),
    "taken apart": lambda m, x: m.conv(x).unflatten(2, (3, -1)).flatten(1),
    "its rank": lambda m, x: m.conv(x) if x.dim() == 4 and x.ndim == 4 and len(x.shape) == 4 else x,
    "its sides": lambda m, x: m.conv(x) / (x.shape[2] * x.size(-1)) if x.shape[1] % 2 == 0 else x,
    "equal shapes": lambda m, x: m.conv(x) + x if m.conv(x).shape == x.shape else x,
    "the shape of a parameter": lambda m, x: m.conv(x).flatten(1)[:, : m.last.weight.shape[0]],
    "shapes in functions": lambda m, x: torch.reshape(m.conv(x), (x.size(0), -1)) + torch.flatten(x, 1),
    "all its shape": lambda m, x: m.conv(x).view(x.shape[0], x.shape[1] // 2, 2, *x.shape[2:]).sort(2)[0].view(x.shape),
}


@pytest.mark.parametrize("case", MORE)
def test_every_function_is_that_of_torch(case):
    inner = own(MORE[case])
    inner.bn, inner.short = nn.BatchNorm2d(2), nn.Parameter(torch.ones(3, 2, 3))
    check(drawn(inner))


WRONG = {
    "a mean over all": (lambda _, x: x.mean(), "mean is understood with more arguments only.*'dim'"),
    "a sum over all": (lambda _, x: x.sum(), "sum is understood with more arguments only.*'dim'"),
    "a mean over no axis": (lambda _, x: x.mean(()), r"it reduces along \(\)"),
    "all sides of 1": (lambda _, x: x.squeeze(), "squeeze is understood with more arguments only.*'dim'"),
    "half a transposition": (lambda _, x: x.transpose(1), "transpose is understood with more arguments only.*'dim1'"),
    "a view of nothing": (lambda _, x: x.view(), "view is understood with more arguments only.*'shape'"),
    "a shape of another kind": (lambda _, x: x.reshape(shape=3), "a change of shape to 3"),
    "no ends": (lambda _, x: x.clamp(), "it has no ends"),
    "ends that flow": (lambda _, x: x.clamp(x, None), "is not a real number"),
    "ends the wrong way": (lambda _, x: x.clamp(1, -1), "lower end"),
    "ends that are nan": (lambda _, x: x.clamp(math.nan), "is not a real number"),
    "no range": (lambda _, x: F.hardtanh(x, 1.0, 1.0), "its arguments are not understood"),
    "another padding": (lambda _, x: F.pad(x, (1, 1), mode="reflect"), "only 'constant' is understood"),
    "pads of the batch": (lambda _, x: F.pad(x, [1] * 8), "it pads axis 0.*mixes samples"),
    "pads that cut too much": (lambda _, x: F.pad(x, (-5, 3)), "pads of"),
    "pads by halves": (lambda _, x: F.pad(x, (1, 1, 1)), "3 pads for 4 axes"),
    "stacked in front": (lambda _, x: torch.stack([x, x]), "a change of shape"),
    "statistics of the batch": (lambda _, x: F.batch_norm(x, None, None, training=True), "training mode"),
    "no statistics": (lambda _, x: F.batch_norm(x, None, None), "running_mean is no parameter"),
    "weights that flow": (lambda m, x: F.linear(x.flatten(1), x), "its weight is no parameter"),
    "maxima with places": (lambda _, x: torch.adaptive_max_pool1d(x[:, 0], 2)[0], "is not understood"),
    "the larger one of a number": (lambda _, x: x.maximum(1), "with 1, which is no tensor"),
    "places": (lambda _, x: x + x.sort(1)[1], "places that depend on the input"),
    "an attribute": (lambda _, x: x if x.is_cuda else -x, "the attribute 'is_cuda' of a tensor"),
    "whether it has an attribute": (lambda _, x: x if hasattr(x, "other") else -x, "the attribute 'other' of a tensor"),
    "its type": (lambda _, x: x if x.dtype is torch.float64 else -x, "the attribute 'dtype'"),
    "its class": (lambda _, x: -x if isinstance(x, torch.Tensor) else x, r"\(Own\): it asks what class a tensor has"),
    "whether it is a tensor": (lambda _, x: -x if torch.is_tensor(x) else x, "it asks what class a tensor has"),
    "a copy": (lambda _, x: copy.deepcopy(x) + x, "class a tensor has"),
    "its length": (lambda _, x: x * len(x), r"\(Own\): it computes with the size of the batch"),
    "its entries": (lambda _, x: torch.cat(list(x)), r"\(Own\): it goes through the entries"),
    "a number of samples": (lambda _, x: x / x.shape[0], "size of the batch"),
    "twice the batch": (lambda _, x: x.view(x.size(0) * 2, -1), "size of the batch"),
    "as often as the batch": (lambda _, x: sum(x for _ in range(x.size(0))), "size of the batch"),
    "one of some batches": (lambda _, x: x if x.size(0) in (1, 4) else -x, "size of the batch"),
    "batches that are there": (lambda _, x: x if x.size(0) else -x, "size of the batch"),
    "the batch in a text": (lambda _, x: x if f"{x.size(0):d}" == "4" else -x, "cannot trace"),
    "shapes without a batch": (lambda _, x: x if x.shape == (1, 2, 6, 4) else -x, "size of the batch"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_not_understood_is_refused(case):
    function, said = WRONG[case]
    refused(said, Own(function))


def test_forwards_that_never_end_are_refused(monkeypatch):
    monkeypatch.setattr(torch_trace, "MAX_NODES", 20)

    def endless(_, x):
        while True:
            x = x + 1

    refused(r"\(Own\): its forward has more than 20 operations", Own(endless))


def test_methods_that_were_replaced_are_seen(monkeypatch):
    monkeypatch.setattr(torch.Tensor, "relu", lambda x: -x)
    refused("somebody replaced relu of tensors", Own(lambda _, x: x.relu()))


def test_modules_within_modules_may_be_deep():
    for depth, known in ((20, True), (400, False)):
        model = Own(lambda _, x: 2 * x)
        for _ in range(depth):
            model = Own(lambda m, x: m.inner(x), inner=model)
        if known:
            check(model.double(), (3,))
        else:
            with pytest.raises(InputError, match="modules within modules"):
                from_torch(model, shape=(3,))


STEPS = [
    lambda m, x: m.conv(x),
    lambda m, x: m.conv(x) + x,
    lambda _, x: F.relu(x),
    lambda _, x: x.clamp(-0.5, 1),
    lambda _, x: x.clamp_min(-0.25) - x.clamp(max=0.5),
    lambda _, x: torch.cat([torch.min(*x.chunk(2, 1)), torch.max(*x.chunk(2, 1))], 1),
    lambda _, x: x.view(x.size(0), x.shape[1] // 2, 2, *x.shape[2:]).sort(2, descending=True).values.view(x.shape),
    lambda _, x: F.pad(x, (1, -1, -1, 1)),
    lambda _, x: F.pad(x, (0, 0, 1, -1, -1, 1), value=0.5),
    lambda _, x: torch.stack([x[:, 1::2], x[:, ::2]], dim=2).flatten(1, 2),
    lambda _, x: x.transpose(2, 3).contiguous().view(x.shape),
    lambda _, x: x.unsqueeze(2).squeeze(2) / x.shape[2],
    lambda _, x: torch.cat([x.amax(2, keepdim=True), x[:, :, 1:]], 2),
    lambda _, x: torch.cat([x[..., :-1], x.sum(-1, keepdim=True)], -1),
    lambda _, x: torch.cat([x[..., 1:], x.mean(axis=3, keepdims=True)], dim=3),
    lambda m, x: F.conv2d(x, m.conv.weight, None, 1, 1, 1, 1),
    lambda m, x: F.batch_norm(x, m.bn.running_mean, m.bn.running_var, m.bn.weight),
    lambda _, x: x.unflatten(2, (-1, 1)).sort(dim=1)[0].flatten(2, 3),
    lambda _, x: F.max_pool2d(x, 3, 1, 1),
    lambda _, x: torch.cat([F.adaptive_max_pool2d(x, (x.shape[2], 1)), x[..., 1:]], -1),
    lambda _, x: x.clone().add_(x).mul_(0.5).clamp_(-1, 2),
]


@pytest.mark.parametrize("seed", range(40))
def test_random_forwards(seed):
    rng = np.random.default_rng(seed)
    steps = [STEPS[i] for i in rng.integers(0, len(STEPS), rng.integers(2, 6))]

    def forward(module, x):
        for step in steps:
            x = step(module, x)
        return module.last(x.flatten(1))

    parts = {"conv": nn.Conv2d(4, 4, 3, padding=1), "bn": nn.BatchNorm2d(4), "last": nn.Linear(48, 3)}
    check(drawn(Own(forward, **parts), seed), (4, 3, 4))


# -- arguments that are not given --------------------------------------------------------------------------------------


class Optional(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 2, 1)

    def forward(self, x, noise=None, flag=False, *, scale=2, **more):
        y = self.conv(x)
        if noise is not None:
            y = y + 100 * noise
        if flag is not False:
            y = -y
        return y * scale if not more else -y


@pytest.mark.parametrize(
    "function",
    [
        lambda m, x: m.inner(x),
        lambda m, x: m.inner(x, None, False),
        lambda m, x: m.inner(x, x),
        lambda m, x: m.inner(x, noise=m.inner(x), flag=None),
        lambda m, x: m.inner(x, flag=True, scale=3),
        lambda m, x: m.inner(x=x, noise=x, scale=0.5, other=1),
    ],
)
def test_arguments_that_are_not_given_have_their_defaults(function):
    check(drawn(Own(function, inner=Optional())))


def test_the_model_itself_is_called_with_its_input_alone():
    check(drawn(Optional()))


class Two(nn.Module):
    def forward(self, x, y):
        return x + y


def test_a_model_has_one_input():
    refused(r"the model \(Two\): .*missing a required argument: 'y'.*a model has one input", Two())
    refused(r"the module two \(Two\): .*too many positional arguments", Own(lambda m, x: m.two(x, x, x), two=Two()))
    check(drawn(Own(lambda m, x: m.two(x, y=x), two=Two())))


# -- what was refused stays refused ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "ask",
    [
        lambda x: torch.exp(x),
        lambda x: bool(x),
        lambda x: bool(x.size(0)),
        lambda x: isinstance(x, torch.Tensor),
        lambda x: len(x),
        lambda x: x.is_cuda,
    ],
)
def test_a_refusal_cannot_be_caught(ask):
    """With tensors it takes the other branch."""

    def forward(_, x):
        try:
            ask(x[:, :1, :1, :1])
        except Exception:
            return -x
        return x

    refused("understood|depends on|the batch|class|attribute", Own(forward))


def test_functions_of_modules_are_as_they_were_after_it():
    before = nn.Module.__call__, nn.Module.__getattr__
    check(own(lambda m, x: m.inner(m.net(x))))
    refused("exp", Own(lambda m, x: m.inner(x), inner=Own(lambda _, x: x.exp())))
    assert (nn.Module.__call__, nn.Module.__getattr__) == before


def test_what_is_kept_from_another_call_is_refused():
    kept = []

    def forward(_, x):
        kept.append(x)
        return x + kept[0]

    first = Own(forward)
    assert from_torch(first, shape=(3,)).outputs == 3
    refused("kept from another call", first, (3,))


# -- activations of libraries ------------------------------------------------------------------------------------------


class GroupSort2(nn.Module):
    """In the manner of libraries for robust training."""

    def forward(self, x):
        if x.shape[1] % 2:
            raise ValueError("an odd number of channels")
        a, b = x.split(x.size(1) // 2, 1)
        a, b = torch.max(a, b), torch.min(a, b)
        return torch.cat([a, b], dim=1)


class MinMax(nn.Module):
    def forward(self, z):
        axis = 1 if z.dim() == 2 else -3
        return torch.cat([torch.min(*z.chunk(2, axis)), torch.max(*z.chunk(2, axis))], dim=axis)


class GroupSort(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size = size

    def forward(self, x):
        s = x.shape
        if s[1] % self.size:
            raise ValueError(f"{s[1]} channels in groups of {self.size}")
        return x.view(s[0], s[1] // self.size, self.size, *s[2:]).sort(dim=2).values.view(s)


class MaxMin(nn.Module):
    """Neighbours, by an axis more."""

    def forward(self, x):
        pairs = torch.stack([x[:, ::2], x[:, 1::2]], dim=2)
        return torch.stack([pairs.max(dim=2)[0], pairs.min(dim=2)[0]], dim=2).flatten(1, 2)


class Keeping(nn.Module):
    """Neighbours, by shapes that are put together; along an axis that may be said."""

    def forward(self, x, dim=1):
        if len(x.shape) < dim or x.shape[dim] % 2 != 0:
            raise ValueError("no pairs")
        pairs = x.view(x.shape[:dim] + (x.shape[dim] // 2, 2) + x.shape[dim + 1 :])  # noqa: RUF005 - as one writes it
        least, most = torch.min(pairs, dim + 1, keepdim=True)[0], torch.max(pairs, dim + 1, keepdim=True)[0]
        return torch.cat([least, most], dim=dim + 1).view(x.shape) * 1.0


SORTS = [Keeping, GroupSort2, MinMax, lambda: GroupSort(2), lambda: GroupSort(4), MaxMin]


@pytest.mark.parametrize("make", SORTS)
@pytest.mark.parametrize("shape", [(4, 3, 2), (8,)], ids=str)
def test_sorts_of_libraries_are_read_by_their_forwards(make, shape):
    first = nn.Conv2d(4, 4, 1) if len(shape) == 3 else nn.Linear(8, 8)
    network = check(drawn(nn.Sequential(first, make(), nn.Flatten(), nn.Linear(math.prod(shape), 3))), shape)
    assert str(network.activations[0]).startswith("group_sort:")


def test_a_sort_by_pools_is_read():
    """Maxima and minima over pairs of channels, which become an axis of a grid."""

    def forward(m, x):
        turned = torch.transpose(m.conv(x), 1, 2)
        most, least = (s * F.max_pool2d(s * turned, kernel_size=(2, 1), stride=(2, 1)) for s in (1, -1))
        return torch.transpose(torch.cat([least, most], dim=2), 1, 2)

    check(drawn(Own(forward, conv=nn.Conv2d(4, 4, 1))), (4, 3, 2))


def test_an_odd_number_of_channels_is_said():
    refused("ValueError: an odd number of channels", nn.Sequential(nn.Conv2d(2, 3, 1), GroupSort2()))


class Hidden(nn.Module):
    """A sort that torch.fx cannot see."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return torch.from_numpy(self.function(x.detach().numpy()))


def halves(x):
    pairs = np.sort(x.reshape(len(x), 2, -1), axis=1)
    return pairs.reshape(x.shape)


def neighbours(size):
    return lambda x: np.sort(x.reshape(len(x), x.shape[1] // size, size, -1), axis=2).reshape(x.shape)


def downwards(function):
    return lambda x: -function(-x)


SAID = {
    "min_max:halves": halves,
    "min_max:halves:descending": downwards(halves),
    "min_max:neighbours": neighbours(2),
    "min_max:neighbours:descending": downwards(neighbours(2)),
    "group_sort:2:neighbours": neighbours(2),
    "group_sort:4:neighbours": neighbours(4),
    "group_sort:4:neighbours:descending": downwards(neighbours(4)),
    "relu": lambda x: np.maximum(x, 0),
    "ReLU": lambda x: np.maximum(x, 0),
    "clip:-1/2:3/4": lambda x: np.clip(x, -0.5, 0.75),
}


@pytest.mark.parametrize("name", SAID)
@pytest.mark.parametrize("shape", [(4, 3, 2), (8,)], ids=str)
def test_activations_that_are_said(name, shape):
    first = nn.Conv2d(4, 4, 1) if len(shape) == 3 else nn.Linear(8, 8)
    hidden = Own(lambda m, x: m.act(x) + x, act=Hidden(SAID[name]))
    model = drawn(nn.Sequential(first, hidden, nn.Flatten(), nn.Linear(math.prod(shape), 3)))
    x = inputs(shape)
    expected = model(x).detach().numpy()
    for key in (Hidden, "Hidden", f"{__name__}.Hidden"):
        network = from_torch(model, shape=shape, activations={key: name})
        found = evaluate(network, x.reshape(len(x), -1).numpy(), backend="arb").lower[-1]
        assert np.abs(found - expected).max() < 1e-11
    with pytest.raises(InputError, match=r"the module 1\.act \(Hidden\)"):
        from_torch(model, shape=shape)


def test_groups_that_are_not_said_are_not_known():
    model = drawn(nn.Sequential(nn.Linear(3, 4), Hidden(halves), nn.Linear(4, 2)))
    network = from_torch(model, activations={"Hidden": "min_max"})
    assert network.activations == ("min_max", None)
    with pytest.raises(InputError, match="its groups are not known"):
        evaluate(network, np.zeros((1, 3)))


def test_groups_that_do_not_fit_are_refused():
    model = drawn(nn.Sequential(nn.Linear(3, 5), Hidden(halves), nn.Linear(5, 2)))
    for name in ("min_max:halves", "min_max:neighbours", "group_sort:3:neighbours"):
        with pytest.raises(InputError, match=r"the module 1 \(Hidden\): .*5 channels are no groups of"):
            from_torch(model, activations={"Hidden": name})
    for name in ("min_max:thirds", "group_sort:0:neighbours", "group_sort:neighbours", "max_pool:1:2x2:2x2", "gelu"):
        with pytest.raises(InputError):
            from_torch(model, activations={"Hidden": name})


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"Hiden": "relu"}, "no module of the model is of the class 'Hiden'"),
        ({MinMax: "min_max"}, "no module of the model"),
        ({"Linear": "relu"}, "Linear of torch.nn is read as what it is"),
        ({nn.Sequential: "relu"}, "Sequential of torch.nn"),
        ({"Hidden": 3}, "the name of an activation is expected"),
        ({3: "relu"}, "a dictionary"),
        (["relu"], "a dictionary"),
    ],
)
def test_what_is_said_of_no_module_is_refused(said, message):
    model = drawn(nn.Sequential(nn.Linear(3, 4), Hidden(halves), nn.Linear(4, 2)))
    with pytest.raises(UsageError, match=message):
        from_torch(model, activations=said)


def test_hooks_are_refused_whatever_is_said():
    model = drawn(nn.Sequential(nn.Linear(3, 4), Hidden(halves), nn.Linear(4, 2)))
    model[1].register_forward_hook(lambda *_: None)
    with pytest.raises(InputError, match="hooks"):
        from_torch(model, activations={"Hidden": "min_max:halves"})
