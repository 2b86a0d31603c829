"""The classes of layers that are read from Keras models, and the keys that their configurations may have.

A key that is not listed here is refused, whatever it says: it might change what the layer computes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["ACTIVATION_LAYERS", "KINDS", "MERGES", "OF_ALL", "WITH_VARIABLES", "Kind"]


@dataclass(frozen=True)
class Kind:
    """A class of layers, by the keys of its configuration.

    needs: those that must be there, and are read. may: those that are read if they are there.
    fixed: those that may be missing, or have just that value. ignored: those of training.
    beside: what its group of the weights may hold besides its variables, all of training.
    """

    needs: frozenset[str] = frozenset()
    may: frozenset[str] = frozenset()
    fixed: Mapping[str, bool | None] = field(default_factory=dict)
    ignored: frozenset[str] = frozenset()
    beside: frozenset[str] = frozenset()


def _keys(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _noise(keys: str) -> Kind:
    """What only training changes."""
    return Kind(ignored=_keys(keys), beside=_keys("seed_generator"))


def _weighted(keys: str, weights: str, **fixed: bool | None) -> Kind:
    """With weights of that name, and biases. fixed: as of `Kind`."""
    names = [f"{name}_{what}" for name in (weights, "bias") for what in ("initializer", "regularizer", "constraint")]
    return Kind(_keys(keys) | _keys("activation use_bias"), fixed=fixed, ignored=frozenset(names))


_WINDOW = "strides padding data_format "

OF_ALL = _keys("name dtype trainable activity_regularizer")
"""The keys of every layer; of these the name and the dtype must be there."""

KINDS = {
    "InputLayer": Kind(_keys("batch_shape"), fixed={"sparse": False, "ragged": False, "optional": False}),
    "Dense": _weighted("units", "kernel", quantization_config=None, lora_rank=None, lora_alpha=None),
    "Conv2D": _weighted(
        _WINDOW + "filters kernel_size dilation_rate groups",
        "kernel",
        quantization_config=None,
        lora_rank=None,
        lora_alpha=None,
    ),
    "DepthwiseConv2D": _weighted(_WINDOW + "depth_multiplier kernel_size dilation_rate", "depthwise"),
    "MaxPooling2D": Kind(_keys(_WINDOW + "pool_size")),
    "AveragePooling2D": Kind(_keys(_WINDOW + "pool_size")),
    "GlobalAveragePooling2D": Kind(_keys("data_format keepdims")),
    "GlobalMaxPooling2D": Kind(_keys("data_format keepdims")),
    "ZeroPadding2D": Kind(_keys("padding data_format")),
    "Add": Kind(),
    "Subtract": Kind(),
    "Concatenate": Kind(_keys("axis")),
    "Flatten": Kind(_keys("data_format")),
    "Reshape": Kind(_keys("target_shape")),
    "Permute": Kind(_keys("dims")),
    "Identity": Kind(),
    "Activation": Kind(_keys("activation")),
    "ReLU": Kind(_keys("max_value negative_slope threshold")),
    "LeakyReLU": Kind(_keys("negative_slope")),
    "ELU": Kind(may=_keys("alpha")),  # early versions write it only if the user named it; it is 1 otherwise
    "Softmax": Kind(_keys("axis")),
    "Rescaling": Kind(_keys("scale offset")),
    "Normalization": Kind(_keys("axis mean variance"), fixed={"invert": False}),
    "BatchNormalization": Kind(
        _keys("axis epsilon center scale"),
        fixed={"renorm": False, "renorm_clipping": None},
        ignored=_keys("momentum renorm_momentum synchronized beta_initializer gamma_initializer")
        | _keys("moving_mean_initializer moving_variance_initializer beta_regularizer gamma_regularizer")
        | _keys("beta_constraint gamma_constraint"),
    ),
    "Dropout": _noise("rate seed noise_shape"),
    "AlphaDropout": _noise("rate seed noise_shape"),
    "GaussianDropout": _noise("rate seed"),
    "GaussianNoise": _noise("stddev seed"),
    "ActivityRegularization": Kind(ignored=_keys("l1 l2")),
}

WITH_VARIABLES = _keys("Dense Conv2D DepthwiseConv2D Normalization BatchNormalization")
ACTIVATION_LAYERS = _keys("ReLU LeakyReLU ELU Softmax")
"""What another layer may have as its activation: ``Dense(8, activation=LeakyReLU(0.1))``."""

MERGES = _keys("Add Subtract Concatenate")
"""What is applied to a list of arrays."""
