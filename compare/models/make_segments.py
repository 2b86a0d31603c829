"""Makes the demo that ships with the package: a small network that reads noisy seven-segment digits.

Why: a certificate should be tried on something one can look at. The images are drawn here, from a fixed seed; the
network is dense, ReLU, without biases, and trained to be certifiably robust, so that some outputs are certified at EPS
and some are not. Written beside this file:

    segments.txt          the weights, one matrix per line, inputs x outputs, 3 decimals
    segments_inputs.npy   the test images: uint8, one row of 35 pixels each; pixel = value / 16
    segments_labels.txt   the digit of each image
    segments_outputs.txt  the logits of each image, then EPS

Everything is exact: the weights are multiples of 1/1000 and the pixels of 1/16, so the logits of the network over the
real numbers are finite decimals. They are computed in integers and written with all their digits.

Training is floating point: another build of numpy may round differently and end at other weights. Whatever the
weights are, the outputs written are exactly theirs.
"""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Floats = NDArray[np.float64]
Bytes = NDArray[np.uint8]
Labels = NDArray[np.int64]
Integers = NDArray[np.object_]  # Python integers: they never overflow

SEED = 7
EPS = 0.25

ROWS, COLUMNS, DIGITS = 7, 5, 10
SEGMENTS = {  # the pixels (rows, columns) of each segment
    "a": (slice(0, 1), slice(1, 4)),
    "b": (slice(1, 3), slice(4, 5)),
    "c": (slice(4, 6), slice(4, 5)),
    "d": (slice(6, 7), slice(1, 4)),
    "e": (slice(4, 6), slice(0, 1)),
    "f": (slice(1, 3), slice(0, 1)),
    "g": (slice(3, 4), slice(1, 4)),
}
LIT = ("abcdef", "bc", "abdeg", "abcdg", "bcfg", "acdfg", "acdefg", "abc", "abcdefg", "abcdfg")

BACKGROUND = (0.0, 0.25)  # brightness of a dark pixel
CONTRAST = (0.3, 0.75)  # what a lit segment adds to it
NOISE = 0.12  # standard deviation, per pixel

WIDTHS = (ROWS * COLUMNS, 24, 24, DIGITS)
TRAIN_SIZE, TEST_SIZE, BATCH = 10_000, 200, 200
EPOCHS, RATE = 60, 3e-3

PIXEL_SCALE = 16  # pixels are multiples of 1/16
WEIGHT_PLACES = 3  # weights have 3 decimals


def glyphs() -> Floats:
    """The ten digits without noise: 1 where a segment is lit, 0 elsewhere; one flat image per row."""
    images = np.zeros((DIGITS, ROWS, COLUMNS))
    for image, lit in zip(images, LIT, strict=True):
        for segment in lit:
            image[SEGMENTS[segment]] = 1.0
    return images.reshape(DIGITS, -1)


def draw(rng: np.random.Generator, count: int) -> tuple[Bytes, Labels]:
    """Noisy images of random digits, in sixteenths, and the digits."""
    labels = rng.integers(DIGITS, size=count)
    background = rng.uniform(*BACKGROUND, size=(count, 1))
    contrast = rng.uniform(*CONTRAST, size=(count, 1))
    noise = rng.normal(0.0, NOISE, size=(count, ROWS * COLUMNS))
    pixels = np.clip(background + contrast * glyphs()[labels] + noise, 0.0, 1.0)
    return np.rint(PIXEL_SCALE * pixels).astype(np.uint8), labels


def forward(weights: list[Array], inputs: Array) -> list[Array]:
    """What each layer receives, and at last the logits. Works on floats and on Python integers alike."""
    values = [inputs]
    for weight in weights[:-1]:
        values.append(np.maximum(values[-1] @ weight.T, 0))
    return [*values, values[-1] @ weights[-1].T]


def row_distances(matrix: Floats) -> Floats:
    """D[i, j] = ||row j - row i||."""
    return np.asarray(np.linalg.norm(matrix[None, :] - matrix[:, None], axis=2))


def margin_bounds(weights: list[Floats]) -> Floats:
    """L[i, j] = (product of the hidden layers' spectral norms) · ||W_n[j] - W_n[i]||: bounds the slope of y_j - y_i."""
    hidden = np.prod([np.linalg.norm(weight, 2) for weight in weights[:-1]])
    return np.asarray(hidden * row_distances(weights[-1]))


def margin_bounds_gradient(weights: list[Floats], upstream: Floats) -> list[Floats]:
    """The gradient of sum(upstream · L) by each weight matrix.

    By a hidden W it is the sum times (u v^T) / s, with W's top singular value s and vectors u, v.
    By the last, D[i, j] = ||W[j] - W[i]|| pulls row j along (W[j] - W[i]) / D[i, j], and row i the other way.
    """
    bounds = margin_bounds(weights)
    gradients = []
    for weight in weights[:-1]:
        left, singular, right = np.linalg.svd(weight, full_matrices=False)
        gradients.append(np.sum(upstream * bounds) / singular[0] * np.outer(left[:, 0], right[0]))
    distances = row_distances(weights[-1]) + np.eye(DIGITS)  # no division by zero on the diagonal
    pull = upstream * bounds / distances**2
    pull = pull + pull.T
    gradients.append(pull.sum(axis=1)[:, None] * weights[-1] - pull @ weights[-1])
    return gradients


def loss_gradient(weights: list[Floats], inputs: Floats, labels: Labels, eps: float) -> list[Floats]:
    """The gradient of the mean cross entropy of the worst logits within eps.

    The worst logits for label j are y_i + eps · L[i, j]: j still wins among them iff the image is certified.
    """
    values = forward(weights, inputs)
    worst = values[-1] + eps * margin_bounds(weights)[labels]  # L is symmetric, and zero on the diagonal
    exponentials = np.exp(worst - worst.max(axis=1, keepdims=True))
    onehot = np.eye(DIGITS)[labels]
    error = (exponentials / exponentials.sum(axis=1, keepdims=True) - onehot) / len(labels)
    gradients = margin_bounds_gradient(weights, eps * error.T @ onehot)
    for layer in reversed(range(len(weights))):  # backpropagation
        gradients[layer] += error.T @ values[layer]
        error = (error @ weights[layer]) * (values[layer] > 0)
    return gradients


def initial_weights(rng: np.random.Generator) -> list[Floats]:
    """Each outputs x inputs, of variance 2 / inputs."""
    return [rng.normal(0.0, (2 / n) ** 0.5, size=(m, n)) for n, m in pairwise(WIDTHS)]


def train(rng: np.random.Generator, inputs: Floats, labels: Labels) -> list[Floats]:
    """Adam. Over the first half eps rises from 0 to EPS; over the second the rate falls to 0."""
    weights = initial_weights(rng)
    means = [np.zeros_like(weight) for weight in weights]
    squares = [np.zeros_like(weight) for weight in weights]
    batches = [batch for _ in range(EPOCHS) for batch in rng.permutation(len(labels)).reshape(-1, BATCH)]
    for step, batch in enumerate(batches, start=1):
        progress = step / len(batches)
        eps = EPS * min(1.0, 2 * progress)
        rate = RATE * min(1.0, 2 - 2 * progress)
        gradients = loss_gradient(weights, inputs[batch], labels[batch], eps)
        for weight, mean, square, gradient in zip(weights, means, squares, gradients, strict=True):
            mean += 0.1 * (gradient - mean)
            square += 0.001 * (gradient**2 - square)
            weight -= rate * (mean / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.999**step)) + 1e-8)
    return weights


def to_integers(weights: list[Floats]) -> list[Integers]:
    """The weights in thousandths, rounded."""
    return [np.rint(10**WEIGHT_PLACES * weight).astype(np.int64).astype(object) for weight in weights]


def exact_logits(weights: list[Integers], images: Bytes) -> tuple[Integers, int]:
    """Integers and a number of places: the logits are integers / 10^places, exactly.

    A product over the layers of thousandths, times sixteenths; and 1/16 = 625/10^4.
    """
    scaled = forward(weights, images.astype(object))[-1]
    return 10**4 // PIXEL_SCALE * scaled, 4 + WEIGHT_PLACES * len(weights)


def decimals(integers: Integers, places: int) -> str:
    """Each integer / 10^places, with all places, separated by commas."""
    return ",".join(f"{Decimal(integer).scaleb(-places):f}" for integer in integers)


def network_text(weights: list[Integers]) -> str:
    """[[...],[...]],[[...]],... with each matrix transposed: inputs x outputs."""
    matrices = ([f"[{decimals(row, WEIGHT_PLACES)}]" for row in weight.T] for weight in weights)
    return ",\n".join(f"[{','.join(rows)}]" for rows in matrices) + "\n"


def is_certified(logits: Floats, bounds: Floats, eps: float) -> NDArray[np.bool_]:
    """Whether y_j - y_i > eps · L[i, j] for the winner j and every i != j, in floating point."""
    winners = logits.argmax(axis=1)
    slack = logits.max(axis=1, keepdims=True) - logits - eps * bounds[winners]
    slack[np.arange(len(logits)), winners] = np.inf
    return np.asarray((slack > 0).all(axis=1))


def main() -> None:
    """Draw, train, round, and write the files beside this one."""
    rng = np.random.default_rng(SEED)
    train_images, train_labels = draw(rng, TRAIN_SIZE)
    images, labels = draw(rng, TEST_SIZE)
    weights = to_integers(train(rng, train_images / PIXEL_SCALE, train_labels))
    logits, places = exact_logits(weights, images)

    here = Path(__file__).parent
    (here / "segments.txt").write_text(network_text(weights))
    np.save(here / "segments_inputs.npy", images)
    (here / "segments_labels.txt").write_text("".join(f"{label}\n" for label in labels))
    (here / "segments_outputs.txt").write_text("".join(f"{decimals(row, places)} {EPS}\n" for row in logits))

    rounded = [weight.astype(float) / 10**WEIGHT_PLACES for weight in weights]
    floats = logits.astype(float) / 10**places
    print(f"accuracy {np.mean(floats.argmax(axis=1) == labels):.1%}")
    print(f"certified at {EPS}: {np.mean(is_certified(floats, margin_bounds(rounded), EPS)):.1%}")


if __name__ == "__main__":
    main()
