"""PyTorch models in memory with windows and branches: what torch computes, over the reals, or a refusal."""

import numpy as np
import pytest

from intervalcert import InputError, evaluate, from_torch, load_model

torch = pytest.importorskip("torch", reason="torch is not installed")
nn, F = torch.nn, torch.nn.functional

IMAGE = (2, 6, 4)


def drawn(module, seed=0):
    """With numbers k/64 in all its tensors, in float64, for evaluation."""
    rng = np.random.default_rng(seed)
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        if tensor.is_floating_point():
            numbers = torch.from_numpy(rng.integers(-64, 65, tuple(tensor.shape)) / 64)
            tensor.data = numbers.abs() + 0.25 if "running_var" in name else numbers
    return module.double().eval()


def inputs(shape, seed=3):
    return torch.from_numpy(np.random.default_rng(seed).integers(-128, 129, (4, *shape)) / 64)


def check(model, shape=IMAGE):
    """The enclosures are narrow, and what torch computes in float64 is next to them."""
    x = inputs(shape)
    network = from_torch(model, shape=shape)
    found = evaluate(network, x.reshape(len(x), -1).numpy(), backend="arb")
    low, high = found.lower[-1], found.upper[-1]
    with torch.no_grad():
        expected = model(x.clone()).reshape(len(x), -1).numpy()
    room = 1e-11 * (1 + np.abs(expected).max())
    assert low.shape == expected.shape
    assert np.abs(low - expected).max() <= room
    assert np.abs(high - expected).max() <= room
    return network


class Own(nn.Module):
    """A forward that a test says, with some modules at hand."""

    def __init__(self, function, **parts):
        super().__init__()
        self.function = function
        for name, part in parts.items():
            setattr(self, name, part)

    def forward(self, x):
        return self.function(self, x)


MODULES = {
    "convolution": lambda: nn.Conv2d(2, 3, 3),
    "convolution, no bias": lambda: nn.Conv2d(2, 3, (3, 2), bias=False),
    "convolution, padded": lambda: nn.Conv2d(2, 3, 3, padding=(2, 1)),
    "convolution, strides": lambda: nn.Conv2d(2, 3, 3, stride=(2, 1), padding=1),
    "convolution, dilated": lambda: nn.Conv2d(2, 3, (3, 2), dilation=(2, 3)),
    "convolution, groups": lambda: nn.Conv2d(2, 4, 3, groups=2),
    "convolution, same": lambda: nn.Conv2d(2, 3, (4, 3), padding="same", dilation=(1, 2)),
    "convolution, same, even": lambda: nn.Conv2d(2, 3, (2, 4), padding="same"),
    "convolution, valid": lambda: nn.Conv2d(2, 3, 3, padding="valid"),
    "max pool": lambda: nn.MaxPool2d(2),
    "max pool, all settings": lambda: nn.MaxPool2d((3, 2), stride=(2, 3), padding=1, dilation=(2, 1), ceil_mode=True),
    "max pool, ceil": lambda: nn.MaxPool2d(4, stride=3, ceil_mode=True),
    "average pool": lambda: nn.AvgPool2d(2),
    "average pool, padded": lambda: nn.AvgPool2d(3, stride=2, padding=1),
    "average pool, without pads": lambda: nn.AvgPool2d(3, stride=2, padding=1, count_include_pad=False),
    "average pool, ceil": lambda: nn.AvgPool2d(4, stride=3, padding=1, ceil_mode=True),
    "average pool, ceil, without pads": lambda: nn.AvgPool2d(4, 3, 1, ceil_mode=True, count_include_pad=False),
    "average pool, divisor": lambda: nn.AvgPool2d(3, stride=2, padding=1, divisor_override=7),
    "adaptive pool": lambda: nn.AdaptiveAvgPool2d((3, 2)),
    "adaptive pool to one": lambda: nn.AdaptiveAvgPool2d(1),
    "adaptive pool, a side stays": lambda: nn.AdaptiveAvgPool2d((None, 2)),
    "adaptive maxima": lambda: nn.AdaptiveMaxPool2d((2, 1)),
    "zeros around": lambda: nn.ZeroPad2d((1, 0, 2, 3)),
    "a part": lambda: nn.ZeroPad2d((-1, 1, 0, -2)),
    "constants around": lambda: nn.ConstantPad2d((1, 2, 0, 1), 0.75),
    "batch normalisation": lambda: nn.BatchNorm2d(2),
    "prelu": nn.PReLU,
    "prelu of each channel": lambda: nn.PReLU(2),
    "unflatten": lambda: nn.Sequential(nn.Flatten(), nn.Unflatten(1, (4, 3, -1)), nn.Conv2d(4, 2, 2)),
    "flatten two axes": lambda: nn.Sequential(nn.Flatten(2), nn.Conv1d(2, 3, 3, padding=1, stride=2), nn.MaxPool1d(3)),
    "flatten others": lambda: nn.Sequential(nn.Flatten(1, 2), nn.AvgPool1d(2), nn.AdaptiveAvgPool1d(1)),
}


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel")
@pytest.mark.parametrize("case", MODULES)
def test_every_module_is_that_of_torch(case):
    check(drawn(MODULES[case]()))
    check(drawn(nn.Sequential(nn.Conv2d(2, 2, 1), nn.ReLU(), MODULES[case](), nn.Flatten())))


def min_max(_, x):
    a, b = x.chunk(2, dim=1)
    return torch.cat([torch.min(a, b), torch.max(a, b)], dim=1)


def in_pairs(_, x):
    a, b = x[:, ::2], x[:, 1::2]
    return torch.cat((torch.maximum(a, b), torch.minimum(a, b)), 1)


def along(_, x):
    pairs = x.view(x.size(0), x.size(1) // 2, 2, x.shape[2], x.shape[3])
    return torch.cat([pairs.max(2)[0], pairs.min(dim=2)[0]], dim=1)


def changed(module, x):
    y = module.conv(x)
    y += x
    y = y.mul_(2)
    return F.relu(y, inplace=True)


FUNCTIONS = {
    "a residual": lambda m, x: torch.relu(m.conv(x) + x),
    "a difference": lambda m, x: m.conv(x) - x.relu(),
    "minus": lambda m, x: 1 - (-m.conv(x)),
    "scalings": lambda m, x: (0.5 * m.conv(x) + 3) / 4 - 1.25,
    "named": lambda m, x: torch.add(x, other=m.conv(x)).sub(torch.neg(x)),
    "a parameter": lambda m, x: m.conv(x) * m.factor + m.factor,
    "a parameter in front": lambda m, x: m.factor * x - m.conv(x),
    "in place": changed,
    "joined": lambda m, x: torch.cat([x, m.conv(x), x], 1),
    "joined below": lambda m, x: torch.cat((m.conv(x), x), dim=-2),
    "channels": lambda m, x: m.conv(x)[:, 1:] + x[:, :1],
    "a channel": lambda m, x: m.conv(x)[:, 0],
    "the middle": lambda m, x: m.conv(x)[..., 1:3],
    "min max": min_max,
    "min max of pairs": in_pairs,
    "min max along an axis": along,
    "group sort": lambda m, x: m.conv(x).view(x.shape[0], 4, 3, 4).sort(dim=2)[0].reshape(x.size(0), -1),
    "sorted downwards": lambda m, x: torch.sort(m.conv(x).flatten(1), 1, descending=True)[0],
    "parts": lambda m, x: torch.split(m.conv(x), [1, 1], 1)[0] - x.split(1, dim=1)[1],
    "flattened": lambda m, x: m.last(torch.flatten(m.conv(x), 1)),
    "viewed": lambda m, x: m.last(m.conv(x).view(x.size(0), -1)),
    "viewed by its width": lambda m, x: m.last(m.conv(x).contiguous().view(-1, 48)),
    "turned": lambda m, x: m.last(m.conv(x).permute(0, 2, 3, 1).reshape(x.shape[0], -1)),
    "swapped": lambda m, x: m.conv(x.transpose(2, 3)),
    "means": lambda m, x: m.conv(x).mean([2, 3]),
    "means that stay": lambda m, x: m.conv(x).mean(dim=(-1,), keepdim=True).squeeze(3).unsqueeze(1),
    "functions": lambda m, x: F.elu(F.leaky_relu(m.conv(x), 0.25), 0.5) + F.relu6(x) + F.hardtanh(x, -0.5, 1.0),
    "smooth functions": lambda m, x: torch.tanh(m.conv(x)) + torch.sigmoid(x) + F.softplus(x, threshold=40),
    "pools": lambda m, x: F.max_pool2d(m.conv(x), 2) + F.avg_pool2d(x, 2),
    "pools with settings": lambda m, x: F.max_pool2d(x, 3, stride=2, padding=1) - F.avg_pool2d(m.conv(x), 3, 2, 1),
    "pools to one": lambda m, x: F.adaptive_avg_pool2d(m.conv(x), (1, 1)).flatten(1),
    "dropout": lambda m, x: F.dropout(m.conv(x), 0.5, training=m.training),
    "a Sequential inside": lambda m, x: m.net(x) + x,
    "own modules inside": lambda m, x: m.inner(m.inner(x)),
}


def own(function):
    inner = Own(lambda m, x: F.relu(m.conv(x)) + x, conv=nn.Conv2d(2, 2, 3, padding=1))
    parts = {"conv": nn.Conv2d(2, 2, 3, padding=1), "last": nn.Linear(48, 3), "inner": inner}
    net = nn.Sequential(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2), nn.ReLU(inplace=True))
    model = Own(function, **parts, net=net, factor=nn.Parameter(torch.ones(2, 1, 1)))
    return drawn(model)


@pytest.mark.parametrize("case", FUNCTIONS)
def test_every_function_is_that_of_torch(case):
    check(own(FUNCTIONS[case]))


@pytest.mark.parametrize("case", ["min max", "min max of pairs", "min max along an axis", "group sort"])
def test_pairs_are_sorted(case):
    network = check(own(lambda m, x: FUNCTIONS[case](m, m.conv(x))))
    assert any("sort" in str(name) for name in network.activations), network.activations


def test_the_comparison_notices_another_number():
    """A negative control: of the last bit of one weight torch would say the same, of a thousandth not."""
    model, other = own(FUNCTIONS["a residual"]), own(FUNCTIONS["a residual"])
    with torch.no_grad():
        other.conv.weight[0, 0, 1, 1] += 1e-3
    x = inputs(IMAGE)
    low = evaluate(from_torch(other, shape=IMAGE), x.reshape(len(x), -1).numpy()).lower[-1]
    assert np.abs(low - model(x).detach().reshape(len(x), -1).numpy()).max() > 1e-4


class Block(nn.Module):
    """As in residual networks, with changes in place."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.down = nn.Conv2d(inputs, outputs, 1, stride) if stride > 1 or inputs != outputs else None

    def forward(self, x):
        y = self.conv2(self.relu(self.bn1(self.conv1(x))))
        y += x if self.down is None else self.down(x)
        return self.relu(y)


def random_net(seed):
    rng = np.random.default_rng(seed)
    channels, blocks, side = 2, [], 6
    for _ in range(rng.integers(1, 3)):
        match rng.integers(0, 4):
            case 0 if side % 2 == 0:
                pool = (nn.MaxPool2d, nn.AvgPool2d)[rng.integers(0, 2)]
                blocks.append(pool(3, stride=2, padding=1))
                side = (side + 1) // 2
            case 1:
                blocks.append(Own(min_max))
            case _:
                stride, outputs = int(rng.integers(1, 3)), 2 * int(rng.integers(1, 3))
                blocks.append(Block(channels, outputs, stride))
                channels, side = outputs, (side - 1) // stride + 1
    end = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 3)]
    return drawn(nn.Sequential(nn.Conv2d(2, 2, 3, padding=1), *blocks, *end), seed)


@pytest.mark.parametrize("seed", range(12))
def test_random_residual_networks(seed):
    network = check(random_net(seed), (2, 6, 6))
    assert network.shape == (2, 6, 6)


def test_a_flat_model_of_ones_own():
    model = drawn(Own(lambda m, x: m.b(F.relu(m.a(x.view(-1, 5)))), a=nn.Linear(5, 4), b=nn.Linear(4, 3)))
    assert check(model, (5,)).content == from_torch(nn.Sequential(model.a, nn.ReLU(), model.b)).content
    with pytest.raises(InputError, match="say the shape"):
        from_torch(model)


def test_a_subclass_of_sequential_is_traced():
    class Silent(nn.Sequential):
        pass

    plain = drawn(nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)))
    assert from_torch(Silent(*plain), shape=(5,)).content == from_torch(plain).content


@pytest.mark.filterwarnings("ignore")
def test_an_exported_model_is_the_same_network(tmp_path):
    pytest.importorskip("onnx")
    model = nn.Sequential(nn.Conv2d(2, 2, 1), Block(2, 2, 1), nn.MaxPool2d(2), Own(min_max), nn.Flatten())
    model = drawn(model.append(nn.Linear(12, 3))).float()
    model[1].bn1 = nn.Identity()  # exporters fold it, with rounding
    file = tmp_path / "model.onnx"
    torch.onnx.export(model, (inputs(IMAGE)[:1].float(),), file, dynamo=False)
    assert load_model(file).content == from_torch(model, shape=IMAGE).content


# -- changes in place --------------------------------------------------------------------------------------------------


def stale(module, x):
    y = module.conv(x)
    z = F.relu(y, inplace=True)
    return y + z


def stale_view(module, x):
    y = module.conv(x)
    part = y[:, :1]
    y += 1
    return part


def stale_sum(module, x):
    y = z = module.conv(x)
    y += 1
    return y + z


def stale_statement(module, x):
    y = module.conv(x)
    y.mul_(2)
    return y


def stale_argument(module, x):
    return module.inner(x) + x


@pytest.mark.parametrize(
    "function", [stale, stale_view, stale_sum, stale_statement, stale_argument], ids=lambda f: f.__name__
)
def test_what_was_changed_in_place_is_not_taken_for_what_it_was(function):
    """Torch.fx alone would not see it: that its graph computes something else is the control."""
    inner = Own(lambda m, x: m.conv(m.relu(x)), relu=nn.ReLU(inplace=True), conv=nn.Conv2d(2, 2, 1))
    model = drawn(Own(function, conv=nn.Conv2d(2, 2, 3, padding=1), inner=inner))
    with pytest.raises(InputError, match="changed in place"):
        from_torch(model, shape=IMAGE)
    x = inputs(IMAGE)
    if function is stale_sum:
        assert not torch.equal(torch.fx.symbolic_trace(model)(x.clone()), model(x.clone()))


# -- refusals ----------------------------------------------------------------------------------------------------------

REFUSED = {
    "indices": (lambda: nn.MaxPool2d(2, return_indices=True), "return_indices"),
    "circular": (lambda: nn.Conv2d(2, 2, 3, padding=1, padding_mode="circular"), "padding_mode is 'circular'"),
    "uneven": (lambda: nn.AdaptiveAvgPool2d(4), r"\[4, 4\] of \[6, 4\].*evenly"),
    "too much padding": (lambda: changed_pool(), "half of the window"),
    "pads that cut off more than there is": (lambda: nn.ZeroPad2d((-5, 3, 0, 0)), r"pads of .* around the shape"),
    "slopes": (lambda: nn.PReLU(3), r"3 slopes, and is applied to .*2"),
    "training": (lambda: nn.BatchNorm2d(2).train(), r"model\.eval\(\)"),
    "no statistics": (lambda: nn.BatchNorm2d(2, track_running_stats=False), "depends on the batch"),
    "other channels": (lambda: nn.BatchNorm2d(3).double().eval(), "for 3 numbers, but there are 2"),
    "other inputs": (lambda: nn.Conv2d(3, 2, 1), "for 2 channels"),
    "a linear map of images": (lambda: nn.Linear(4, 2), "several axes"),
    "three dimensions": (lambda: nn.Conv3d(2, 2, 1), "Conv3d, which is not understood"),
    "hooks inside": (lambda: hooked(), r"the module 1\.net\.0.*hooks"),
    "unknown inside": (lambda: Own(lambda m, x: m.act(x), act=nn.GELU()), r"the module 1\.act \(GELU\)"),
    "a function": (lambda: Own(lambda _, x: torch.exp(x)), "its operation exp.*exp is not understood"),
    "a method": (lambda: Own(lambda _, x: x.abs()), "abs is not understood"),
    "a product": (lambda: Own(lambda _, x: x * x), "depend on the input"),
    "a quotient": (lambda: Own(lambda _, x: 1 / x), "truediv.*division by what depends|division"),
    "a condition": (lambda: Own(lambda _, x: x if x.sum([1, 2, 3]) > 0 else -x), "gt is not understood"),
    "a truth value": (lambda: Own(lambda _, x: x if x else -x), r"the module 1 \(Own\): a condition on what depends"),
    "a condition on the batch": (lambda: Own(lambda _, x: x if x.size(0) > 1 else -x), r"\(Own\): .*size of the batch"),
    "a computed constant": (lambda: Own(lambda _, x: x + torch.ones(1).double()), "no parameter and no buffer"),
    "the batch": (lambda: Own(lambda _, x: x.view(-1)), "mixes samples|change of shape"),
    "the batch, flattened": (lambda: Own(lambda _, x: torch.flatten(x)), "the axes 0 to -1"),
    "the batch, joined": (lambda: Own(lambda _, x: torch.cat([x, x])), "mixes samples"),
    "one of the batch": (lambda: Own(lambda _, x: x[0]), "mix samples"),
    "a mean over the batch": (lambda: Own(lambda _, x: x.mean(0)), "mixes samples"),
    "other shapes": (lambda: Own(lambda _, x: x + x[:, :1]), "one would be repeated"),
    "random": (lambda: Own(lambda _, x: F.dropout(x)), "training mode"),
    "two outputs": (lambda: Own(lambda _, x: (x, x)), "something else than one tensor"),
    "another type": (lambda: Own(lambda m, x: x + m.k, k=nn.Parameter(torch.ones(1).half())), "float16"),
    "a setting": (lambda: Own(lambda _, x: torch.add(x, x, alpha=2)), "alpha is 2"),
    "own call": (lambda: Calling(), "__call__ of its own"),
    "a softmax inside": (lambda: Own(lambda _, x: F.softmax(x.flatten(1), dim=1)), "margins live on the logits"),
}


class Calling(nn.Module):
    def __call__(self, x):
        return 2 * super().__call__(x)

    def forward(self, x):
        return x


def changed_pool():
    module = nn.MaxPool2d(2)
    module.padding = 2
    return module


def hooked():
    net = nn.Sequential(nn.Conv2d(2, 2, 1))
    net[0].register_forward_hook(lambda *_: None)
    return Own(lambda m, x: m.net(x), net=net)


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_say_the_place_and_the_reason(case):
    make, said = REFUSED[case]
    model = nn.Sequential(nn.Conv2d(2, 2, 1, dtype=torch.float64), make())
    for module in model.modules():
        if not isinstance(module, nn.BatchNorm2d) and case != "another type":
            module.double()
    with pytest.raises(InputError, match=said):
        from_torch(model, shape=IMAGE)


def test_a_softmax_at_the_end_can_be_left_out():
    plain = own(FUNCTIONS["flattened"])
    model = Own(lambda m, x: F.log_softmax(m.net(x), dim=-1), net=plain).eval()
    network = from_torch(model, shape=IMAGE, strip_softmax=True)
    assert network.content == from_torch(plain, shape=IMAGE).content
    again = Own(lambda m, x: torch.relu(m.net(x)), net=model)
    with pytest.raises(InputError, match="follows a softmax"):
        from_torch(again.eval(), shape=IMAGE, strip_softmax=True)


def test_tracing_changes_nothing_in_the_model():
    model = own(FUNCTIONS["in place"])
    before, names = {k: v.clone() for k, v in model.state_dict().items()}, sorted(vars(model))
    from_torch(model, shape=IMAGE)
    assert sorted(vars(model)) == names
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16, torch.float32])
def test_numbers_beside_tensors_are_rounded_as_torch_does(kind):
    model = drawn(Own(lambda m, x: m.conv(x) * 0.5 + 1, conv=nn.Conv2d(2, 2, 1))).to(kind)
    assert from_torch(model, shape=IMAGE).outputs == 48
    tenth = drawn(Own(lambda m, x: m.conv(x) * 0.1, conv=nn.Conv2d(2, 2, 1))).to(kind)
    if kind is torch.float32:
        assert from_torch(tenth, shape=IMAGE).outputs == 48
        return
    with pytest.raises(InputError, match="it depends how torch rounds it"):
        from_torch(tenth, shape=IMAGE)
