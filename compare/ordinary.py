"""Ordinary networks: trained for accuracy alone, by Adam on the cross-entropy, with biases, in plain numpy.

Models that were trained to be certified have layers whose norms are attained in few directions, near the product of
norms; most networks in use are not of that kind. These are made on the spot, within seconds, from fixed seeds.
Training is floating point: another build of numpy may end at other weights, and at figures a little different.

Uses the network in plain floats of the package itself: for logits as users have them, which nobody encloses.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from intervalcert import Network
from intervalcert.search.float_network import FloatNetwork

__all__ = ["CLUSTER_UNIT", "clusters", "logits", "trained"]

F32 = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

BATCH, RATE = 128, 1e-3
CLUSTER_UNIT = 64
"""The inputs of `clusters` are multiples of 1/64."""


def trained(x: F32, labels: Integers, widths: Sequence[int], *, epochs: int, seed: int) -> Network:
    """A ReLU network with these widths between the inputs and the classes; its weights and biases are float32."""
    rng = np.random.default_rng(seed)
    sides = [x.shape[1], *widths, int(labels.max()) + 1]
    weights = [(rng.standard_normal((m, n)) * (2 / n) ** 0.5).astype(np.float32) for n, m in pairwise(sides)]
    parameters = [*weights, *(np.zeros(m, dtype=np.float32) for m in sides[1:])]
    means, squares = ([np.zeros_like(p) for p in parameters] for _ in range(2))
    step = 0
    for _ in range(epochs):
        order = rng.permutation(len(x))
        for batch in np.array_split(order, max(1, len(x) // BATCH)):
            step += 1
            slopes = _gradients(parameters, x[batch], labels[batch])
            for p, g, mean, square in zip(parameters, slopes, means, squares, strict=True):
                mean += np.float32(0.1) * (g - mean)
                square += np.float32(0.001) * (g * g - square)
                ahead = np.sqrt(square / np.float32(1 - 0.999**step)) + np.float32(1e-8)
                p -= np.float32(RATE / (1 - 0.9**step)) * mean / ahead
    depth = len(weights)
    return Network.from_arrays(parameters[:depth], parameters[depth:])


def _gradients(parameters: Sequence[F32], x: F32, labels: Integers) -> list[F32]:
    """Of the mean cross-entropy by each weight matrix, then by each bias."""
    depth = len(parameters) // 2
    weights, biases = parameters[:depth], parameters[depth:]
    values = [x]
    for w, b in zip(weights[:-1], biases, strict=False):
        values.append(np.maximum(values[-1] @ w.T + b, 0))
    y = values[-1] @ weights[-1].T + biases[-1]
    back = np.exp(y - y.max(axis=1, keepdims=True))
    back /= back.sum(axis=1, keepdims=True)
    back[np.arange(len(x)), labels] -= 1
    back /= np.float32(len(x))
    by_weights: list[F32] = []
    by_biases: list[F32] = []
    for index in reversed(range(depth)):
        by_weights.insert(0, back.T @ values[index])
        by_biases.insert(0, back.sum(axis=0))
        if index:
            back = (back @ weights[index]) * (values[index] > 0)
    return by_weights + by_biases


def logits(network: Network, x: Floats) -> Floats:
    """The outputs of a network, in float64: what a user would hand over."""
    return FloatNetwork.of(network).logits(x.T).T


def clusters(count: int, seed: int) -> tuple[Integers, Integers]:
    """Points of 20 coordinates in 5 classes, each of two clusters, and their classes; in units of 1/64."""
    centres = np.random.default_rng(11).standard_normal((10, 20)) * 1.2
    rng = np.random.default_rng([seed, 12])
    drawn = rng.integers(10, size=count)
    points = centres[drawn] + rng.standard_normal((count, 20))
    return np.rint(points * CLUSTER_UNIT).astype(np.int64), drawn % 5
