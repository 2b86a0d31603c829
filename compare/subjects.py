"""The networks that are measured, each with its test inputs: trained to be certified, or for accuracy alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from compare.corpus import MODELS, bundled, bundled_cnn, small_model
from compare.exact_networks import ExactNetwork
from compare.graphs import KINDS, TIGHT
from compare.harness import Outcome, Setting
from compare.ordinary import CLUSTER_UNIT, clusters, logits, trained
from intervalcert import Network, load_model

__all__ = ["Subject", "ordinary", "random_graphs", "robust", "tight_graphs"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

WIDTHS = ((64, 64), (128, 128, 128), (256, 128))
"""Hidden layers of the ordinary networks on MNIST."""

GRAPHS = {
    "plain CNN": (1, "0.2"),
    "residual": (7, "0.12"),
    "MinMax": (6, "0.25"),
    "max pools": (11, "0.1"),
    "means, side by side": (9, "0.2"),
}
"""Seeds with which at least two classes win often, and radii at which some points are certified by margins, some
locally, and some fall."""

GRAPH_UNIT, GRAPH_POINTS = 16, 60


@dataclass(frozen=True, eq=False)
class Subject:
    """A network; test inputs, one per row, as integers over `unit`; their classes; and a radius that suits it.

    few: so many inputs are looked at where each of them takes long; None for as many as of others.
    """

    name: str
    network: Network
    numerators: Integers
    unit: int
    labels: Integers
    eps: str
    few: int | None = None

    def first(self, count: int | None = None) -> Integers:
        """The first test inputs, so many or all; of a network that is slow no more than `few`."""
        counts = [each for each in (count, self.few) if each is not None]
        return self.numerators[: min(counts)] if counts else self.numerators

    @property
    def inputs(self) -> Floats:
        return self.numerators / self.unit

    @property
    def logits(self) -> Floats:
        return logits(self.network, self.inputs)


def robust(setting: Setting, outcome: Outcome) -> Iterator[Subject]:
    """The small model always; the MNIST models unless in short, where their files are. The CNN is the last."""
    pixels = np.load(MODELS / "segments_inputs.npy").astype(np.int64)
    labels = np.array((MODELS / "segments_labels.txt").read_text().split(), dtype=np.int64)
    yield Subject("small model", small_model(), pixels, 16, labels, "0.25")
    if setting.short:
        return
    digits = _digits(setting, outcome)
    if digits is None:
        return
    x, y = digits["x_test"], digits["y_test"]
    yield Subject("bundled MNIST model", bundled(), x, 255, y, "0.3")
    path = setting.paper_file("mnist_8x128.txt")
    if path is None:
        outcome.skipped.append("the paper's MNIST model is absent (--shared)")
    else:
        yield Subject("the paper's MNIST model", load_model(path), x, 255, y, "0.3")
    yield Subject("bundled CNN", bundled_cnn(), x, 255, y, "0.3", few=200)


def random_graphs() -> Iterator[Subject]:
    """Small networks of convolutions, pools and branches with random weights; a label is what wins, exactly."""
    for name, (seed, eps) in GRAPHS.items():
        yield _drawn(f"random: {name}", KINDS[name](seed), eps)


def tight_graphs() -> Iterator[Subject]:
    """Those whose margins are attained by gradients."""
    for name, make in TIGHT.items():
        yield _drawn(f"tight: {name}", make(), "0.1")


def _drawn(name: str, network: Network, eps: str) -> Subject:
    x = np.random.default_rng(1).integers(-32, 33, (GRAPH_POINTS, network.inputs))
    return Subject(name, network, x, GRAPH_UNIT, _winners(network, x), eps)


def _winners(network: Network, numerators: Integers) -> Integers:
    exact = ExactNetwork(network)
    logits = [exact.logits([Fraction(int(n), GRAPH_UNIT) for n in row]) for row in numerators]
    return np.array([y.index(max(y)) for y in logits], dtype=np.int64)


def ordinary(setting: Setting, outcome: Outcome) -> Iterator[Subject]:
    """One on points made here, always; those on MNIST unless in short."""
    x, y = clusters(1_000, seed=1)
    yield Subject("ordinary 20-32-32-5", _on_clusters(), x, CLUSTER_UNIT, y, "0.25")
    if setting.short:
        return
    digits = _digits(setting, outcome)
    if digits is None:
        return
    for widths in WIDTHS:
        name = "ordinary " + "-".join(map(str, (784, *widths, 10)))
        network = _on_digits(setting.shared / "data" / "mnist.npz", widths)
        yield Subject(name, network, digits["x_test"], 255, digits["y_test"], "0.1")


def _digits(setting: Setting, outcome: Outcome) -> dict[str, Integers] | None:
    path = setting.shared / "data" / "mnist.npz"
    if path.is_file():
        return _read(path)
    reason = "the MNIST images are absent (--shared)"
    if reason not in outcome.skipped:
        outcome.skipped.append(reason)
    return None


@lru_cache(maxsize=1)
def _read(path: Path) -> dict[str, Integers]:
    with np.load(path, allow_pickle=False) as archive:
        found = {name: archive[name].astype(np.int64) for name in ("x_train", "y_train", "x_test", "y_test")}
    return {name: x.reshape(len(x), -1) if name.startswith("x") else x for name, x in found.items()}


@lru_cache(maxsize=1)
def _on_clusters() -> Network:
    x, y = clusters(10_000, seed=0)
    return trained((x / CLUSTER_UNIT).astype(np.float32), y, (32, 32), epochs=10, seed=0)


@lru_cache(maxsize=len(WIDTHS))
def _on_digits(path: Path, widths: tuple[int, ...]) -> Network:
    digits = _read(path)
    x = (digits["x_train"] / 255).astype(np.float32)
    return trained(x, digits["y_train"], widths, epochs=4, seed=0)
