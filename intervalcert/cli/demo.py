"""A tour without files: the models in ``intervalcert/data``, the first on two number systems that share no arithmetic.

They are globally robust readers of MNIST digits, one of matrices and one with convolutions; `data/mnist_README.md` and
`data/mnist_cnn_README.md` say how they were trained.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from time import perf_counter

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from intervalcert.api import certify, compute_bounds
from intervalcert.bounds.results import Bounds
from intervalcert.errors import SoundnessError
from intervalcert.execution.streaming import read_labels, summarise
from intervalcert.io.models import load_model
from intervalcert.io.models.numpy_files import open_array
from intervalcert.numbers.text import decimal_lower, decimal_upper
from intervalcert.report.text import excess_text, percent, plain_table

__all__ = ["DATA", "run_demo"]

DATA = Path(__file__).parents[1] / "data"
_BACKENDS = ("exact", "arb")
_ITERATIONS = 11
_EPS = "0.3"


def run_demo(announce: Callable[[str], None] = lambda _: None) -> Iterator[RenderableType]:
    """Bounds and verdicts on both backends, part by part as they are there.

    Raises: SoundnessError if arb does not upper-bound exact.
    """
    network = load_model(DATA / "mnist.npz")
    widths = " - ".join(str(n) for n in (network.inputs, *(layer.shape[0] for layer in network.layers)))
    yield Text(f"A reader of handwritten digits (MNIST): a ReLU network\n{widths}, {_ITERATIONS} Gram steps a layer.\n")
    bounds: dict[str, Bounds] = {}
    seconds: dict[str, float] = {}
    for name in _BACKENDS:
        announce(f"computing bounds on {name} (some seconds)")
        start = perf_counter()
        bounds[name] = compute_bounds(network, name, _ITERATIONS)
        seconds[name] = perf_counter() - start
    yield _comparison(bounds["exact"], bounds["arb"])
    yield _verdicts(bounds, seconds)
    announce("computing bounds of a convolutional network (some seconds)")
    yield from _convolutional()
    yield Text("Next: intervalcert bounds MODEL -o bounds.json")
    yield Text("      intervalcert certify bounds.json OUTPUTS --eps 0.3")


def _convolutional() -> tuple[Table, Table]:
    """The norms of a convolutional network's layers, and what its margins certify."""
    network = load_model(DATA / "mnist_cnn.npz")
    norms = plain_table(
        "A reader with convolutions: the operator norm of each layer",
        ("layer", "outputs", "at least", "at most", "method"),
        texts={"layer", "method"},
    )
    verdicts = plain_table(
        f"Its outputs for the same images, at eps = {_EPS}",
        ("margins", "certified", "accuracy", "VRA"),
        texts={"margins"},
    )
    outputs = open_array(DATA / "mnist_cnn_outputs.npy")
    labels = read_labels(DATA / "mnist_labels.npy", len(outputs), network.outputs)
    by_product = compute_bounds(network, margins="product")
    for layer in by_product.layers:
        ends = decimal_lower(layer.lower, 8), decimal_upper(layer.upper, 8)
        norms.add_row(layer.what, f"{layer.shape[0]:,}", *ends, layer.method)
    for name, bounds in (("product of norms", by_product), ("best of all chains", compute_bounds(network))):
        found = summarise(certify(bounds, outputs, _EPS), labels)
        shares = (percent(n or 0, found.total) for n in (found.certified, found.right, found.right_and_certified))
        verdicts.add_row(name, *shares)
    return norms, verdicts


def _comparison(exact: Bounds, arb: Bounds) -> Table:
    table = plain_table(
        "Every arb bound is at least the exact one",
        ("bound", "exact", "arb", "excess", "holds"),
        texts={"bound", "holds"},
    )
    pairs = [
        (f"norm of layer {i}", e.upper, a.upper) for i, (e, a) in enumerate(zip(exact.layers, arb.layers, strict=True))
    ]
    margins = [(e, a) for i in range(exact.classes) for j in range(i) for e, a in [_pair(exact, arb, i, j)]]
    worst = max(margins, key=lambda pair: pair[1] / pair[0] if pair[0] else 1)
    pairs += [("largest margin", *max(margins)), ("margin of largest excess", *worst)]
    for what, e, a in pairs:
        table.add_row(what, decimal_upper(e, 15), decimal_upper(a, 15), excess_text(a, e), "yes" if e <= a else "NO")
    wrong = [what for what, e, a in pairs if e > a] + ["a margin" for e, a in margins if e > a]
    if wrong:
        raise SoundnessError(f"arb is below exact: {', '.join(wrong)}")
    return table


def _pair(exact: Bounds, arb: Bounds, i: int, j: int) -> tuple[Fraction, Fraction]:
    return exact.margins.matrix[i][j], arb.margins.matrix[i][j]


def _verdicts(bounds: dict[str, Bounds], seconds: dict[str, float]) -> Table:
    outputs = open_array(DATA / "mnist_outputs.npy")
    labels = read_labels(DATA / "mnist_labels.npy", len(outputs), bounds["exact"].classes)
    table = plain_table(
        f"{len(outputs)} test outputs at eps = {_EPS} (L2, input space)",
        ("backend", "bounds computed in", "certified", "accuracy", "VRA"),
        texts={"backend"},
    )
    certified = []
    for name in _BACKENDS:
        verdicts = certify(bounds[name], outputs, _EPS)
        found = summarise(verdicts, labels)
        share = f"{found.certified} ({percent(found.certified, found.total)})"
        table.add_row(
            name,
            f"{seconds[name]:.2f} s",
            share,
            *(percent(n or 0, found.total) for n in (found.right, found.right_and_certified)),
        )
        certified.append({v.index for v in verdicts if v.certified})
    if not certified[1] <= certified[0]:
        raise SoundnessError("arb certifies an output that exact does not")
    return table
