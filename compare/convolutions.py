"""Convolutions: their norms beside those of another library; public models; the robust network that is shipped.

* Norms of layers as people have them, beside the largest singular value that scipy's `svds` finds in floats. A bound
  below it is a violation; so is one by lines that is more than 1e-8 above it, or any that is more than 1 % above it.
* Models of a public competition (VNN-COMP), where ``models/`` is beside the paper's files: each is read, evaluated
  beside onnxruntime, bounded, and ten inputs are certified locally, in a process of its own. Its images are not at
  hand: the inputs are made here. What takes more than a minute an input, or 3 GiB, is a violation.
* The shipped convolutional network: what is certified by the product of norms, by the circulant chain, by the chain of
  all neurons, by the best of them, locally; and what the attack leaves.

Uses the maps, the searches and the checks of the package itself: nothing public asks for one layer, or for one chain.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from compare.harness import Outcome, Setting, table
from compare.subjects import Subject, robust
from intervalcert import Bounds, Network, certify, certify_inputs, compute_bounds, evaluate, load_model
from intervalcert.backends.registry import precision_ladder
from intervalcert.bounds.margin_bounds import Margins, chain_margins
from intervalcert.bounds.norm_bounds import LayerBound, Plan, layer_bound
from intervalcert.model.linear_maps import Convolution
from intervalcert.model.windows import Window
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.search.attack import Campaign, attack
from intervalcert.search.chain import search_chains
from intervalcert.search.circulant_chain import search_circulant
from intervalcert.search.float_network import FloatNetwork

__all__ = ["LAYERS", "largest_singular_value", "run", "wrong_norms"]

Floats = npt.NDArray[np.float64]

WITHIN, WITHIN_BY_LINES = 1e-2, 1e-8
"""What a bound may be above the norm, as a part of it."""

MOST_SECONDS, MOST_BYTES = 60.0, 3 * 2**30
"""For one input of a public model."""


# -- norms -------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shape:
    """Channels before and after, the grid, and the window: size, stride, padding on all sides."""

    channels: tuple[int, int]
    grid: tuple[int, int]
    size: int
    stride: int
    pad: int
    backends: tuple[str, ...] = ("float64",)

    def __str__(self) -> str:
        stride = "" if self.stride == 1 else f" s{self.stride}"
        (before, after), (height, width) = self.channels, self.grid
        return f"{before}->{after} {self.size}x{self.size}{stride} on {height}x{width}"

    def made(self, seed: int = 3) -> Convolution:
        """With weights drawn from a fixed seed."""
        before, after = self.channels
        window = Window.padded(self.grid, (self.size,) * 2, (self.stride,) * 2, pads=(self.pad,) * 4)
        drawn = np.random.default_rng(seed).standard_normal((after, before * self.size**2))
        kernel = (drawn / (before * self.size**2) ** 0.5).astype(np.float32)
        return Convolution(RationalMatrix.from_floats(kernel), before, window)


_EVERY = ("float64", "arb", "exact")
LAYERS = (
    Shape((1, 16), (28, 28), 5, 2, 2, _EVERY),
    Shape((16, 32), (14, 14), 4, 2, 1, _EVERY),
    Shape((3, 32), (32, 32), 3, 1, 1),
    Shape((32, 32), (32, 32), 3, 1, 1),
    Shape((32, 64), (16, 16), 3, 1, 1),
    Shape((512, 512), (16, 16), 3, 1, 1),
)
SMALL_LAYERS = (Shape((1, 3), (6, 5), 3, 2, 1, _EVERY), Shape((2, 2), (5, 5), 3, 1, 1, _EVERY))
"""In short."""

_DENSE = 2_000
"""Maps with no more inputs and outputs are unrolled for numpy's SVD."""


def largest_singular_value(convolution: Convolution) -> float | None:
    """In floats, by numpy of the unrolled matrix, or by scipy of the map; None where scipy is absent."""
    if max(convolution.shape) <= _DENSE:
        near = convolution.dense().near_floats()
        return float(np.linalg.norm(np.ldexp(near.values, near.exponent), 2))
    try:
        from scipy.sparse.linalg import LinearOperator, svds
    except ImportError:
        return None
    plain, unit = convolution.near(), 2.0 ** convolution.kernel.near_floats().exponent

    def forth(x: Floats) -> Floats:
        return plain.apply(x.reshape(-1, 1))[:, 0]

    def back(y: Floats) -> Floats:
        return plain.adjoint(y.reshape(-1, 1))[:, 0]

    operator = LinearOperator(convolution.shape, matvec=forth, rmatvec=back, dtype=np.float64)
    found = svds(operator, k=1, return_singular_vectors=False, rng=np.random.default_rng(1))
    return float(found[0]) * unit


def wrong_norms(bound: LayerBound, truth: float) -> list[str]:
    """How a bound is beside a singular value that floats found: never below it, and not far above."""
    upper, lower = float(bound.upper), float(bound.lower)
    most = WITHIN_BY_LINES if bound.method == "banded" else WITHIN
    wrong = [f"{upper} is below {truth}, which is stretched to"] if bound.upper < Fraction(truth) else []
    if upper > truth * (1 + most):
        wrong.append(f"{upper} is more than {most:g} above {truth}")
    if lower > truth * (1 + 1e-9):  # of a bound from below, floats decide only so far
        wrong.append(f"the lower bound {lower} is above {truth}")
    return wrong


def _norms(setting: Setting, outcome: Outcome) -> None:
    columns = ("convolution", "on", "by", "s", "upper bound", "above svds", "above its lower bound", "svds, s")
    shown = table("Norms of convolutions", *columns)
    outcome.data["norms"] = []
    layers = SMALL_LAYERS if setting.short else LAYERS
    for shape in setting.progress(layers, "norms", len(layers)):
        convolution, start = shape.made(), perf_counter()
        truth = largest_singular_value(convolution)
        seconds = perf_counter() - start
        if truth is None:
            outcome.skipped.append(f"{shape}: scipy is absent")
            continue
        for name in shape.backends:
            start = perf_counter()
            bound = layer_bound(convolution, precision_ladder(name), Plan("auto"))
            taken = perf_counter() - start
            outcome.violations += [f"{shape}, {name}: {wrong}" for wrong in wrong_norms(bound, truth)]
            above = float(bound.upper / Fraction(truth)) - 1
            apart = float(bound.upper / bound.lower) - 1
            row = (name, bound.method, f"{taken:.1f}", f"{float(bound.upper):.9g}", f"{above:.1e}", f"{apart:.1e}")
            shown.add_row(str(shape), *row, f"{seconds:.1f}")
            outcome.data["norms"].append(
                {
                    "layer": str(shape),
                    "backend": name,
                    "method": bound.method,
                    "seconds": taken,
                    "upper": float(bound.upper),
                    "lower": float(bound.lower),
                    "svds": truth,
                    "svds_seconds": seconds,
                }
            )
    outcome.tables.append(shown)


# -- public models -----------------------------------------------------------------------------------------------------

INPUTS = 10
PUBLIC = {
    "cifar_base_kw.onnx": "0.2",
    "cifar_wide_kw.onnx": "0.2",
    "cifar_bias_field_0.onnx": "0.0001",
    "resnet_3b2_bn_mixup_adv_4.0_bs128_lr-1.onnx": "0.01",
}
"""With a radius that suits each."""


def _drawn(network: Network) -> Floats:
    """Images with some smoothness, and pixels between 0 and 1; or few numbers near 0."""
    rng = np.random.default_rng(0)
    if network.shape is None or len(network.shape) != 3:
        return (rng.random((INPUTS, network.inputs)) / 10).astype(np.float32).astype(np.float64)
    channels, height, width = network.shape
    coarse = rng.random((INPUTS, channels, height // 4, width // 4)).repeat(4, 2).repeat(4, 3)
    fine = rng.random((INPUTS, channels, height, width))
    return (0.8 * coarse + 0.2 * fine).astype(np.float32).astype(np.float64)


def _measured(path: Path, eps: str) -> dict[str, Any]:
    """In a process of its own: what is certified of ten inputs, and what that takes."""
    network = load_model(path)
    inputs = _drawn(network)
    start = perf_counter()
    bounds = compute_bounds(network)
    taken = perf_counter() - start
    seconds, margins, local = [], 0, 0
    for x in inputs:
        start = perf_counter()
        (found,) = certify_inputs(network, x[None], eps, bounds=bounds, local=True, jobs=1, scale=1)
        seconds.append(perf_counter() - start)
        margins += found.certified and not found.locally
        local += found.certified and found.locally
    return {
        "eps": eps,
        "bounds_seconds": taken,
        "margins": margins,
        "locally": local,
        "most_seconds": max(seconds),
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "outside": _outside(path, network, inputs),
        "said": list(bounds.margins.skipped_because),
    }


def _outside(path: Path, network: Network, inputs: Floats) -> float | None:
    """By how much onnxruntime's float32 logits are beyond the enclosures, over the largest; None where it is absent."""
    try:
        import onnxruntime
    except ImportError:
        return None
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    given = session.get_inputs()[0]
    sides = [side if isinstance(side, int) and side > 0 else 1 for side in given.shape]
    rows = [session.run(None, {given.name: x.astype(np.float32).reshape(sides)})[0].ravel() for x in inputs]
    found = evaluate(network, inputs, scale=1)
    lower, upper, logits = found.lower[-1], found.upper[-1], np.array(rows, dtype=np.float64)
    beyond = np.maximum(lower - logits, logits - upper).max()
    return float(max(beyond, 0.0) / np.abs(logits).max())


_FLOAT32 = 1e-4
"""What float32 may lose in such a network, as a part of the largest logit."""


def _public(setting: Setting, outcome: Outcome) -> None:
    columns = ("model", "eps", "by margins", "locally", "bounds, s", "most s an input", "GiB", "beyond, float32")
    shown = table(f"Public models, {INPUTS} inputs each", *columns)
    outcome.data["public"] = {}
    for name, eps in setting.progress(PUBLIC.items(), "public models", len(PUBLIC)):
        path = setting.shared / "models" / name
        if not path.is_file():
            outcome.skipped.append(f"{name} is absent (--shared)")
            continue
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as alone:
            found = alone.submit(_measured, path, eps).result()
        outcome.data["public"][name] = found
        if found["most_seconds"] > MOST_SECONDS or found["peak_bytes"] > MOST_BYTES:
            outcome.violations.append(f"{name}: an input took more than {MOST_SECONDS:g} s, or more than 3 GiB")
        outside = found["outside"]
        if outside is None:
            outcome.skipped.append(f"{name}: onnxruntime is absent")
        elif outside > _FLOAT32:
            outcome.violations.append(f"{name}: onnxruntime is {outside:.1e} beyond the enclosure")
        times = f"{found['bounds_seconds']:.1f}", f"{found['most_seconds']:.1f}", f"{found['peak_bytes'] / 2**30:.2f}"
        beyond = "" if outside is None else f"{outside:.0e}"
        shown.add_row(name, eps, str(found["margins"]), str(found["locally"]), *times, beyond)
    if outcome.data["public"]:
        outcome.tables.append(shown)


# -- the shipped network -----------------------------------------------------------------------------------------------

LOCAL = 1_000
"""Inputs at which local refinement is tried."""

LEAST_SHARE = 0.95
"""Of what the attack leaves, local refinement certifies at least so much."""


def _margins_by(network: Network) -> dict[str, Margins]:
    """By each way alone."""
    ladder = precision_ladder("float64")
    circulant = search_circulant(network)
    chains = {"circulant chain": circulant, "chain of all neurons": search_chains(network, 0)[0]}
    found = {name: chain_margins(network, ladder, chain) for name, chain in chains.items() if chain is not None}
    return {name: margins for name, margins in found.items() if margins is not None}


def _shipped(setting: Setting, outcome: Outcome) -> None:
    found = [subject for subject in robust(setting, outcome) if not subject.network.is_dense]
    if not found:
        return
    (subject,) = found
    start = perf_counter()
    product = compute_bounds(subject.network, margins="product")
    ways: dict[str, Bounds] = {"product": product}
    ways |= {name: _with(product, margins) for name, margins in _margins_by(subject.network).items()}
    ways["best"] = compute_bounds(subject.network)
    counts = {name: int(certify(each, subject.logits, subject.eps).certified.sum()) for name, each in ways.items()}
    outcome.data["shipped"] = _locally(subject, ways["best"], outcome) | {"margins": counts}
    local = outcome.data["shipped"]
    shown = table(f"The shipped convolutional network, eps {subject.eps}", "certified by", "of all", "of the first")
    for name, count in counts.items():
        shown.add_row(name, str(count), "")
    shown.add_row("inputs", str(len(subject.logits)), str(local["inputs"]))
    for name in ("by best margins", "and locally", "unbroken by the attack"):
        shown.add_row(name, "", str(local[name]))
    shown.caption = f"{perf_counter() - start:.0f} s"
    outcome.tables.append(shown)


def _with(bounds: Bounds, margins: Margins) -> Bounds:
    return replace(bounds, margins=margins)


def _locally(subject: Subject, bounds: Bounds, outcome: Outcome) -> dict[str, int]:
    """What is certified of some inputs, and what the attack leaves of them."""
    inputs = subject.numerators[:LOCAL]
    scale, jobs = Fraction(1, subject.unit), os.cpu_count() or 1
    verdicts = certify_inputs(subject.network, inputs, subject.eps, bounds=bounds, local=True, scale=scale, jobs=jobs)
    floats, broken = FloatNetwork.of(subject.network), 0
    for part in np.array_split(inputs / subject.unit, max(1, len(inputs) // 250)):
        broken += len(attack(floats, part, float(Fraction(subject.eps)), Campaign()))
    certified, unbroken = int(verdicts.certified.sum()), len(inputs) - broken
    if certified > unbroken:
        outcome.violations.append(f"{subject.name}: {certified} are certified, and the attack leaves {unbroken}")
    if certified < LEAST_SHARE * unbroken:
        outcome.violations.append(f"{subject.name}: {certified} are certified, less than {LEAST_SHARE} of {unbroken}")
    by_margins = certified - int(verdicts.locally.sum())
    return {
        "inputs": len(inputs),
        "by best margins": by_margins,
        "and locally": certified,
        "unbroken by the attack": unbroken,
    }


# -- the run -----------------------------------------------------------------------------------------------------------


def run(setting: Setting) -> Outcome:
    outcome = Outcome("convolutions")
    _norms(setting, outcome)
    if not setting.short:
        _public(setting, outcome)
        _shipped(setting, outcome)
    return outcome
