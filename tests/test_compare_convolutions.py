"""The comparison of convolutions, in short: its own checks are seen to fail."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from compare import convolutions, liresnet
from compare.convolutions import LAYERS, SMALL_LAYERS, largest_singular_value, wrong_norms
from compare.harness import Setting
from intervalcert.backends.registry import precision_ladder
from intervalcert.bounds.norm_bounds import Plan, layer_bound

SHARED = Path(__file__).resolve().parents[1].parent / "shared"


def test_norms_of_small_layers(tmp_path):
    outcome = convolutions.run(Setting(SHARED, tmp_path, short=True))
    assert outcome.violations == []
    assert len(outcome.data["norms"]) == 3 * len(SMALL_LAYERS)


def test_a_norm_that_is_too_small_or_too_large_is_noticed():
    convolution = SMALL_LAYERS[0].made()
    truth = largest_singular_value(convolution)
    bound = layer_bound(convolution, precision_ladder("float64"), Plan("auto"))
    assert wrong_norms(bound, truth) == []
    low = replace(bound, upper=bound.lower * Fraction(999, 1000), lower=Fraction(0))
    assert [wrong for wrong in wrong_norms(low, truth) if "is below" in wrong]
    high = replace(bound, upper=bound.upper * (1 + Fraction(1, 10**7)))
    assert [wrong for wrong in wrong_norms(high, truth) if "above" in wrong]
    assert wrong_norms(replace(high, method="torus"), truth) == []
    assert wrong_norms(replace(bound, upper=bound.upper * Fraction(102, 100), method="torus"), truth)
    assert wrong_norms(replace(bound, lower=bound.upper, upper=bound.upper * 2), truth * 0.9)


def test_both_ways_to_a_singular_value_agree(monkeypatch):
    pytest.importorskip("scipy")
    for shape in SMALL_LAYERS:
        convolution = shape.made()
        unrolled = largest_singular_value(convolution)
        monkeypatch.setattr(convolutions, "_DENSE", 0)
        assert largest_singular_value(convolution) == pytest.approx(unrolled, rel=1e-9)
        monkeypatch.undo()


def test_layers_of_the_table():
    assert [str(shape) for shape in LAYERS][:2] == ["1->16 5x5 s2 on 28x28", "16->32 4x4 s2 on 14x14"]
    assert [shape.made().out_shape for shape in LAYERS][:2] == [(16, 14, 14), (32, 7, 7)]


def test_public_models_are_read_and_certified(tmp_path):
    """One of them, with few inputs: the rest is for `python -m compare convolutions`."""
    path = SHARED / "models" / "cifar_base_kw.onnx"
    if not path.is_file():
        pytest.skip("the public models (../shared/models) are not on this machine")
    network = convolutions.load_model(path)
    inputs = convolutions._drawn(network)
    assert convolutions._outside(path, network, inputs[:3]) < convolutions._FLOAT32
    wrong = replace(network, layers=(*network.layers[:-1], replace(network.layers[-1], bias=None)))
    assert convolutions._outside(path, wrong, inputs[:3]) > convolutions._FLOAT32


def test_liresnet_in_short(tmp_path, monkeypatch):
    outcome = liresnet.run(Setting(SHARED, tmp_path, short=True))
    assert outcome.violations == []
    assert 0 < outcome.data["chain"]["median_of_product"] < 1
    monkeypatch.setattr(liresnet, "power_method", lambda _: (np.inf, 1.0))
    assert liresnet.run(Setting(SHARED, tmp_path, short=True)).violations
