"""The architecture of LiResNet: how long proved margins take; and, in the same run, what that project does instead.

(Hu, Zou, Wang, Leino, Fredrikson: "Unlocking Deterministic Robustness Certification on ImageNet", NeurIPS 2023; the
network of the best published certified accuracy on CIFAR-10 when it appeared.)

A stem of 5x5, stride 2, 3 -> 512 channels; 12 linear residual convolutions x + conv(x), 512 -> 512, 3x3 on 16 x 16; a
neck of 4x4, stride 4, and a dense layer to 2048; 8 dense layers of 2048; a head of 10; MinMax between them (channels of
one half with those of the other). Weights are synthetic: what is measured does not depend on them.

That project takes 500 steps of the power method in floats for the norm of each convolution when it validates, and
`torch.linalg.matrix_norm` for matrices. The power method is a lower bound: what is certified with it may be false.
Here the same number of steps is taken, in float32, with the convolution of PyTorch where that is installed, else with
that of numpy. Times are shown as a ratio.

Margins by the circulant chain take the cube of the width for each frequency of each layer, an hour or more at 512
channels: their time and gain are those of the same architecture with a quarter of the channels and neurons, beside its
own product.

On one core, in float64; not a part of ``all``. Uses the maps of the package itself, to make the network.
"""

from __future__ import annotations

import os
import resource
from time import perf_counter
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from compare.harness import Outcome, Setting, table
from intervalcert import Network, compute_bounds
from intervalcert.cli.progress import layer_progress
from intervalcert.model.layers import INPUT, Term
from intervalcert.model.linear_maps import Convolution, Dense, LinearMap, identity
from intervalcert.model.windows import Window
from intervalcert.numbers.matrices import RationalMatrix

__all__ = ["liresnet", "power_method", "run"]

Floats = npt.NDArray[np.float64]

WAYS: tuple[Literal["product", "chain"], ...] = ("product", "chain")

STEPS = 500
"""Of the power method, as in that project's validation."""

MOST_SECONDS, MOST_BYTES = 600, 3 * 2**30
"""What the margins by the product of norms may take on one core."""


def liresnet(width: int = 512, depth: int = 12, dense: int = 2048, layers: int = 8, side: int = 32) -> Network:
    """The network, with weights drawn from a fixed seed; smaller ones for a quick look."""
    rng = np.random.default_rng(7)
    half = side // 2
    terms: list[tuple[Term, ...]] = [
        (Term(INPUT, _convolution(rng, 3, width, 1.0, Window.padded((side, side), (5, 5), (2, 2), (1, 1), (2,) * 4))),)
    ]
    grid = Window.padded((half, half), (3, 3), pads=(1,) * 4)
    for index in range(depth):
        shape = (width, half, half)
        part = _convolution(rng, width, width, 0.5 * depth**-0.5, grid)
        terms.append((Term(index, part), Term(index, identity(shape))))
    neck = _convolution(rng, width, width, 0.6, Window.padded((half, half), (4, 4), (4, 4)))
    terms.append((Term(depth, neck),))
    inputs = neck.shape[0]
    for index in range(layers + 1):
        terms.append((Term(depth + 1 + index, Dense(_orthogonal(rng, dense, inputs))),))
        inputs = dense
    head = rng.standard_normal((10, dense))
    head /= np.linalg.norm(head, axis=1, keepdims=True)
    terms.append((Term(len(terms) - 1, Dense(_float32(head))),))
    between = [_min_max(each[0].map) for each in terms[:-1]]
    between[depth + 1] = "identity"  # the neck has none between its convolution and its matrix
    return Network.of_terms(terms, between=between)


def _min_max(linear: LinearMap) -> str:
    """The larger ones of both halves first."""
    return f"group_sort:2:{linear.shape[0] // 2}:descending"


def _float32(values: Floats) -> RationalMatrix:
    return RationalMatrix.from_floats(values.astype(np.float32))


def _convolution(rng: np.random.Generator, inputs: int, outputs: int, scale: float, window: Window) -> Convolution:
    fan = inputs * window.taps
    return Convolution(_float32(rng.standard_normal((outputs, fan)) * (scale / fan**0.5)), inputs, window)


def _orthogonal(rng: np.random.Generator, rows: int, columns: int) -> RationalMatrix:
    """Near an orthogonal matrix, as that project's dense layers are."""
    q = np.linalg.qr(rng.standard_normal((columns, rows)))[0].T
    return _float32(np.asarray(q))


# -- what that project does --------------------------------------------------------------------------------------------


def power_method(network: Network, steps: int = STEPS) -> tuple[float, float]:
    """The product of all norms but the head's, by floats from below; and the seconds that it took."""
    start = perf_counter()
    product = 1.0
    for layer in network.layers[:-1]:
        (term,) = layer.branches
        product *= _norm(term.map, steps)
    return product, perf_counter() - start


def _norm(linear: LinearMap, steps: int) -> float:
    if isinstance(linear, Dense):
        return float(np.linalg.norm(linear.matrix.near_floats().values.astype(np.float32), 2))
    if not isinstance(linear, Convolution):
        raise ValueError(f"{linear!r} is no layer of this architecture")
    forth, back = _both_ways(linear)
    x = np.ones((linear.channels, *linear.window.inputs), dtype=np.float32)
    for _ in range(steps):
        x = back(forth(x))
        x /= np.linalg.norm(x)
    return float(np.linalg.norm(forth(x)))


def _both_ways(linear: Convolution) -> tuple[Any, Any]:
    """T and its adjoint on images of float32."""
    try:
        import torch
        from torch.nn import functional
    except ImportError:
        near = linear.near()
        return (
            lambda x: near.apply(x.reshape(-1, 1)).reshape(linear.out_shape).astype(np.float32),
            lambda y: near.adjoint(y.reshape(-1, 1)).reshape(linear.in_shape).astype(np.float32),
        )
    window = linear.window
    shape = (linear.kernel.shape[0], linear.channels, *window.size)
    kernel = torch.from_numpy(linear.kernel.near_floats().values.astype(np.float32).reshape(shape))
    setting = {"stride": window.stride, "padding": window.before}
    missing = [
        n - ((m - 1) * s - 2 * p + k)
        for n, m, s, p, k in zip(window.inputs, window.outputs, window.stride, window.before, window.size, strict=True)
    ]

    def forth(x: Any) -> Any:
        with torch.no_grad():
            return functional.conv2d(torch.from_numpy(x)[None], kernel, **setting)[0].numpy()

    def back(y: Any) -> Any:
        with torch.no_grad():
            made = functional.conv_transpose2d(torch.from_numpy(y)[None], kernel, output_padding=missing, **setting)
            return made[0].numpy()

    return forth, back


# -- the run -----------------------------------------------------------------------------------------------------------

NARROW = (128, 12, 512, 8, 32)
"""The network whose chain is measured: a quarter of the width."""

SMALL = (16, 2, 32, 2, 16)
"""In short."""


def run(setting: Setting) -> Outcome:
    outcome = Outcome("liresnet")
    if os.environ.get("OPENBLAS_NUM_THREADS") != "1":
        outcome.skipped.append("one core was not asked for (OPENBLAS_NUM_THREADS=1): times are those of all")
    _product(liresnet(*SMALL) if setting.short else liresnet(), setting, outcome)
    _chain(liresnet(*(SMALL if setting.short else NARROW)), outcome)
    return outcome


def _product(network: Network, setting: Setting, outcome: Outcome) -> None:
    """Margins by the product; what they take is that of the process so far. Then the power method."""
    start = perf_counter()
    with layer_progress("liresnet", network) as on_step:
        bounds = compute_bounds(network, "float64", margins="product", on_step=on_step)
    proved, peak = perf_counter() - start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    upper, lower = (
        float(np.prod([float(getattr(layer, end)) for layer in bounds.layers[:-1]])) for end in ("upper", "lower")
    )
    product, seconds = power_method(network)
    if product > upper:  # floats from below may be above the truth by their rounding, but not above a bound
        outcome.violations.append(f"the power method finds {product}, above the bound {upper}")
    if not setting.short and (proved > MOST_SECONDS or peak > MOST_BYTES):
        outcome.violations.append(f"margins by the product took {proved:.0f} s and {peak / 2**30:.2f} GiB")
    shown = table("LiResNet's architecture, proved and not", "what", "seconds", "of the proof's", "product of norms")
    shown.add_row("proved from above", f"{proved:.1f}", "1.00", f"{upper:.9g}")
    shown.add_row("proved from below", "", "", f"{lower:.9g}")
    name = f"power method, {STEPS} steps, float32, from below"
    shown.add_row(name, f"{seconds:.1f}", f"{seconds / proved:.2f}", f"{product:.9g}")
    shown.caption = f"{sum(layer.parameters for layer in network.layers):,} parameters; at most {peak / 2**30:.2f} GiB"
    outcome.tables.append(shown)
    methods = sorted({layer.method for layer in bounds.layers})
    outcome.data |= {
        "peak_bytes": peak,
        "product": {"seconds": proved, "upper": upper, "lower": lower, "methods": methods},
        "power method": {"seconds": seconds, "product": product, "steps": STEPS},
    }


def _chain(network: Network, outcome: Outcome) -> None:
    """What the chain takes, and gains."""
    seconds, bounds = {}, {}
    for way in WAYS:
        start = perf_counter()
        bounds[way] = compute_bounds(network, "float64", margins=way)
        seconds[way] = perf_counter() - start
    ratios = bounds["chain"].margins.floats_upper, bounds["product"].margins.floats_upper
    gain = float(np.median((ratios[0] / np.where(ratios[1] > 0, ratios[1], 1.0))[ratios[1] > 0]))
    width = network.layers[0].out_shape[0]
    shown = table(f"The circulant chain, {width} channels", "margins by", "seconds", "of the product's (median)")
    shown.add_row("product", f"{seconds['product']:.1f}", "1")
    shown.add_row("chain", f"{seconds['chain']:.1f}", f"{gain:.4f}")
    outcome.tables.append(shown)
    outcome.data["chain"] = {"channels": width, "seconds": seconds, "median_of_product": gain}
    outcome.data["chain"]["said"] = list(bounds["chain"].margins.skipped_because)
