"""Keras layers of images and graphs of them, computed by numpy in float64 apart from the readers; and their files."""

import copy
import itertools

import numpy as np

from tests.test_keras import USUAL, drawn, initializer, sequential, tensor
from tests.test_keras import layer as plain_layer

TRAINING = {
    f"{name}_{what}": initializer("Zeros") if what == "initializer" else None
    for name in ("kernel", "bias", "depthwise")
    for what in ("initializer", "regularizer", "constraint")
}
WINDOW = {"strides": [1, 1], "padding": "valid", "data_format": "channels_last"}
IMAGES = {
    "Conv2D": {
        **WINDOW,
        "dilation_rate": [1, 1],
        "groups": 1,
        "activation": "linear",
        "use_bias": True,
        **{key: value for key, value in TRAINING.items() if "depthwise" not in key},
    },
    "DepthwiseConv2D": {
        **WINDOW,
        "dilation_rate": [1, 1],
        "depth_multiplier": 1,
        "activation": "linear",
        "use_bias": True,
        **{key: value for key, value in TRAINING.items() if "kernel" not in key},
    },
    "MaxPooling2D": {**WINDOW, "pool_size": [2, 2], "strides": [2, 2]},
    "AveragePooling2D": {**WINDOW, "pool_size": [2, 2], "strides": [2, 2]},
    "GlobalAveragePooling2D": {"data_format": "channels_last", "keepdims": False},
    "GlobalMaxPooling2D": {"data_format": "channels_last", "keepdims": False},
    "ZeroPadding2D": {"padding": [[1, 1], [1, 1]], "data_format": "channels_last"},
    "Concatenate": {"axis": -1},
}


def layer(kind, **config):
    return plain_layer(kind, **{**IMAGES.get(kind, {}), **config})


# -- what they compute -------------------------------------------------------------------------------------------------


def same(side, size, stride, dilation=1, *, at_end=True):
    """Padding before and behind. at_end: where an odd one goes."""
    total = max((-(-side // stride) - 1) * stride + (size - 1) * dilation + 1 - side, 0)
    return (total // 2, total - total // 2) if at_end else (total - total // 2, total // 2)


def windows(x, size, config, value, *, at_end=True):
    """Outputs x outputs x channels x size x size, of an image with its channels last; padding is that value."""
    strides, dilation = config["strides"], config.get("dilation_rate", [1, 1])
    around = [(0, 0)] * 3
    if config["padding"] == "same":
        for axis in range(2):
            around[axis] = same(x.shape[axis], size[axis], strides[axis], dilation[axis], at_end=at_end)
    x = np.pad(x, around, constant_values=value)
    spans = [(size[axis] - 1) * dilation[axis] + 1 for axis in range(2)]
    found = np.lib.stride_tricks.sliding_window_view(x, spans, axis=(0, 1))
    return found[:: strides[0], :: strides[1], :, :: dilation[0], :: dilation[1]]


def convolved(x, config, kernel, bias=None, *, at_end=True):
    groups = config.get("groups", 1)
    seen = windows(x, kernel.shape[:2], config, 0.0, at_end=at_end)
    parts = [
        np.einsum("abcyx,yxcf->abf", part, weights)
        for part, weights in zip(np.split(seen, groups, axis=2), np.split(kernel, groups, axis=3), strict=True)
    ]
    return np.concatenate(parts, axis=2) + (0 if bias is None else bias)


def depthwise(x, config, kernel, bias=None):
    found = np.einsum("abcyx,yxcm->abcm", windows(x, kernel.shape[:2], config, 0.0), kernel)
    return found.reshape(*found.shape[:2], -1) + (0 if bias is None else bias)


def largest(x, config):
    return windows(x, config["pool_size"], config, -np.inf).max(axis=(3, 4))


def mean(x, config, *, counts_padding=False):
    return (np.mean if counts_padding else np.nanmean)(
        windows(x, config["pool_size"], config, 0.0 if counts_padding else np.nan), axis=(3, 4)
    )


def in_first(function):
    """The same of an image with its channels first."""
    return lambda x: np.moveaxis(function(np.moveaxis(x, 0, -1)), -1, 0)


FUNCTIONS = {"linear": lambda x: x, "relu": lambda x: np.maximum(x, 0), "hard_tanh": lambda x: np.clip(x, -1, 1)}


# -- graphs ------------------------------------------------------------------------------------------------------------


class Model:
    """A Functional model that is built step by step, and computed on the way. Layers are listed as they are made."""

    def __init__(self, shape, x):
        self.shape, self.layers, self.sources, self.weights, self.used = shape, [], [], [], {}
        self.values = {"input": x}

    def add(self, kind, sources, value, weights=(), **config):
        """Its name."""
        name = f"{kind} {len(self.layers)}"
        self.layers.append(layer(kind, name=name, **config))
        self.sources.append([sources] if isinstance(sources, str) else list(sources))
        self.weights.append([np.asarray(each, np.float32) for each in weights])
        self.values[name] = value
        return name

    def conv(self, source, filters, size, activation="linear", seed=0, **config):
        x = self.values[source]
        kernel = drawn(*size, x.shape[-1] // config.get("groups", 1), filters, seed=seed)
        bias = drawn(filters, seed=seed + 1)
        config = {"activation": activation, "filters": filters, "kernel_size": list(size), **config}
        y = FUNCTIONS[activation](convolved(x, {**IMAGES["Conv2D"], **config}, kernel, bias))
        return self.add("Conv2D", source, y, [kernel, bias], **config)

    def dense(self, source, units, seed=0):
        kernel = drawn(self.values[source].size, units, seed=seed)
        return self.add("Dense", source, self.values[source] @ kernel, [kernel], units=units, use_bias=False)

    def document(self, last):
        """config.json; and the weights of each group, in the order in which the layers are listed."""
        listed = sequential(copy.deepcopy(self.layers), self.shape)["config"]["layers"]
        listed[0] |= {"name": "input", "inbound_nodes": []}
        for data, sources in zip(listed[1:], self.sources, strict=True):
            tensors = [tensor(name) for name in sources]
            given = [tensors] if data["class_name"] in ("Add", "Subtract", "Concatenate") else tensors
            data |= {"name": data["config"]["name"], "inbound_nodes": [{"args": given, "kwargs": {}}]}
        ends = {"input_layers": [["input", 0, 0]], "output_layers": [[last, 0, 0]]}
        config = {"name": "model", "trainable": True, "layers": listed, **ends}
        return {"module": "keras", "class_name": "Functional", "config": config, "registered_name": "Functional"}

    def stored(self):
        found, used = {}, {}
        for data, arrays in zip(self.layers, self.weights, strict=True):
            stem = GROUPS.get(data["class_name"], data["class_name"].lower())
            used[stem] = used.get(stem, -1) + 1
            if arrays:
                found[f"{stem}_{used[stem]}" if used[stem] else stem] = arrays
        return found


GROUPS = {"Conv2D": "conv2d", "DepthwiseConv2D": "depthwise_conv2d", "BatchNormalization": "batch_normalization"}


def random_model(seed):
    """A stem, blocks with one or two branches each that are combined, and an end. As (model, name of the output).

    Each branch is as long as the other, so that the list is in the order of Keras: by depth, then by the search.
    """
    rng = np.random.default_rng(seed)
    height, width, channels = int(rng.integers(3, 7)), int(rng.integers(3, 7)), int(rng.integers(1, 4))
    model = Model((height, width, channels), drawn(height, width, channels, seed=seed).astype(float))
    at = model.conv("input", 4, (3, 2), "relu", seed, padding="same")
    for block in range(int(rng.integers(1, 4))):
        at = _block(model, at, rng, seed + 10 * block)
    kind = rng.choice(["flatten", "mean", "largest"])
    x = model.values[at]
    if kind == "flatten":
        at = model.add("Flatten", at, x.ravel())
    elif kind == "mean":
        at = model.add("GlobalAveragePooling2D", at, x.mean(axis=(0, 1)))
    else:
        at = model.add("GlobalMaxPooling2D", at, x.max(axis=(0, 1)))
    return model, model.dense(at, 3, seed)


def _block(model, at, rng, seed):
    filters, x = model.values[at].shape[-1], model.values[at]
    strides = [int(rng.integers(1, 3)), int(rng.integers(1, 3))]
    kind = rng.choice(["residual", "difference", "together", "pool", "normal", "padded"])
    if kind == "pool":
        config = {"pool_size": [2, 2], "strides": strides, "padding": "same"}
        return model.add("MaxPooling2D", at, largest(x, config), **config)
    if kind == "padded":
        around = rng.integers(0, 2, (2, 2)).tolist()
        return model.add("ZeroPadding2D", at, np.pad(x, [*around, (0, 0)]), padding=around)
    if kind == "normal":
        gamma, beta, means = (drawn(filters, seed=seed + i).astype(float) for i in range(3))
        variance = np.float32([0.75, 3.75, 1.5, 2] * filters)[:filters]
        y = gamma * (x - means) / np.sqrt(variance.astype(float) + 0.25) + beta
        return model.add("BatchNormalization", at, y, [gamma, beta, means, variance], epsilon=0.25)
    settings = {"strides": strides, "padding": "same"}
    a = model.conv(at, 4, (3, 3), "relu", seed + 3, **settings)
    b = model.conv(at, 4, (1, 2), "linear", seed + 5, **settings)
    left, right = model.values[a] / 8, model.values[b]
    scaled = model.add("Rescaling", a, left, scale=0.125, offset=0.0)
    other = model.add("Activation", b, np.maximum(right, 0), activation="relu")
    x, y = model.values[scaled], model.values[other]
    if kind == "together":
        return model.add("Concatenate", [scaled, other], np.concatenate([x, y], axis=2))
    total = model.add(
        *(("Add", [scaled, other], x + y) if kind == "residual" else ("Subtract", [scaled, other], x - y))
    )
    return model.add("Activation", total, np.maximum(model.values[total], 0), activation="relu")


def settings(sides, sizes, strides):
    """All of them, with another one across: (height, width), (size, size), (stride, stride), padding."""
    for padding, n, k, s in itertools.product(("valid", "same"), sides, sizes, strides):
        m, j, t = 9 - n, k % len(sizes) + 1, s % len(strides) + 1
        if padding == "same" or (k <= n and j <= m):
            yield (n, m), [k, j], [s, t], padding


assert not set(IMAGES) & set(USUAL)
