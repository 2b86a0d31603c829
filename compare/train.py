"""Train a globally robust network on MNIST, dense or convolutional: a model that is worth certifying.

The dense network N(x) = W_n relu(W_{n-1} … relu(W_1 x)) has no biases. With σ_l = ||W_l||_2 its margins obey

    |(N(v)_j - N(v)_i) - (N(u)_j - N(u)_i)| <= L_ij ||v - u||_2,    L_ij = (Π_{l<n} σ_l) · ||W_n[j] - W_n[i]||_2,

and training minimises the GloRo loss (Leino, Wang, Fredrikson: "Globally-Robust Neural Networks", ICML 2021):
for logits y = N(x) with winner j an eleventh logit, "not robust at eps", joins the ten,

    y_⊥ = max_{i != j} (y_i + eps · L_ij),      loss = -log softmax(y_0, …, y_9, y_⊥)[label].

y_⊥ < y_j says just that j is certified at eps; so the loss is small where the label wins *and* is certified.
The σ_l come from power iteration on W_lᵀW_l, a few steps for every batch from where the last batch left the vector v;
their gradient is the one of ||W_l v|| at fixed v. eps grows linearly from 0 over the first part of training, the rate
of Adam falls along a half cosine, the matrices start orthogonal.

With --architecture the network has convolutions, linear residual blocks, ReLU or MinMax, and biases if wanted. Its σ_l
are bounds of the norms of these layers, the rest is the same (`compare.train_convolutions`).

With --loss emma the loss is EMMA (Hu, Zou, Wang, Leino, Fredrikson: "Unlocking deterministic robustness certification
on ImageNet", NeurIPS 2023). It lifts all rivals i of the label j, each until it draws level, or as far as eps allows:

    loss = -log softmax(z)[j],   z_j = y_j,   z_i = y_i + eps_i · L_ij,   eps_i = min(max((y_j - y_i)/L_ij, 0), eps),

where the gradient takes eps_i for a constant. Where the label is certified, every eps_i is eps.

**Nothing here is trusted.** Power iteration bounds a norm from below, sums are floats, the printed figures are
estimates. `intervalcert` bounds the finished weights afterwards and knows nothing of how they came to be.

    python -m compare.train mnist.npz -o model.npz --augment
    python -m compare.train mnist.npz -o better.npz --augment --start model.npz --ramp 0 --rate 1e-3
    python -m compare.train mnist.npz -o convolutional.npz --augment --architecture "c16k5s2p2 c32k4s2p1 d100"

`mnist.npz` holds x_train, y_train, x_test, y_test (uint8, images 28 x 28); the network takes x/255, flattened.
The result holds W0, W1, … (outputs x inputs, float32), rounded to multiples of 2^-14 (--grid-bits), so that exact
arithmetic on them is cheap; with --architecture also what `intervalcert` needs to know of the layers: `terms`,
`activations`, `shape`, b0, b1, …. The test images are never trained on; they are only reported on.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt

try:
    import torch
except ImportError as error:
    raise SystemExit(
        "compare.train needs PyTorch, which the extra [train] installs: pip install 'intervalcert[train]'"
    ) from error

from compare.train_convolutions import ACTIVATIONS, CLASSES, ConvolutionalNetwork, Float64Array, plans

SIDE = 28


class Trained(Protocol):
    """What the loop below trains."""

    @property
    def parameters(self) -> list[torch.Tensor]: ...

    def logits(self, images: torch.Tensor) -> torch.Tensor:
        """Of flattened images, one in each row."""

    def advance_norms(self, steps: int) -> None:
        """Bring the estimates of norms nearer to those of the weights."""

    def margin_lipschitz(self) -> torch.Tensor:
        """Estimates of L_ij for i != j, differentiable in the weights. The diagonal means nothing."""

    def save(self, path: Path, grid_bits: int) -> None:
        """Round the numbers to multiples of 2^-grid_bits and replace the file at once."""

    def saved_estimates(self, path: Path, images: npt.NDArray[np.uint8]) -> tuple[Float64Array, Float64Array]:
        """The logits and L_ij of the saved file: float64, norms by SVD."""


class RobustNetwork:
    """A dense ReLU network without biases, and a running estimate of its layers' norms.

    The square hidden matrices lie in one stack, so that one batched product advances all their power iterations.
    """

    def __init__(self, matrices: list[torch.Tensor], generator: torch.Generator) -> None:
        self.first = matrices[0].clone().requires_grad_()
        self.hidden = torch.stack(matrices[1:-1]).requires_grad_()
        self.last = matrices[-1].clone().requires_grad_()
        self._first_vector = torch.randn(1, self.first.shape[1], 1, generator=generator)
        self._hidden_vectors = torch.randn(*self.hidden.shape[:2], 1, generator=generator)
        self.advance_norms(50)

    @property
    def parameters(self) -> list[torch.Tensor]:
        return [self.first, self.hidden, self.last]

    def logits(self, images: torch.Tensor) -> torch.Tensor:
        values = torch.relu(images @ self.first.T)
        for matrix in self.hidden.unbind():
            values = torch.relu(values @ matrix.T)
        return values @ self.last.T

    @torch.no_grad()
    def advance_norms(self, steps: int) -> None:
        """Move every vector v towards the leading right singular vector of its W: v <- WᵀWv / ||WᵀWv||."""
        for _ in range(steps):
            self._first_vector = _power_step(self.first[None], self._first_vector)
            self._hidden_vectors = _power_step(self.hidden, self._hidden_vectors)

    def margin_lipschitz(self) -> torch.Tensor:
        """Estimates of L_ij for i != j, differentiable in the weights. The diagonal means nothing."""
        norms = torch.linalg.vector_norm(torch.bmm(self.hidden, self._hidden_vectors), dim=(1, 2))
        product = torch.linalg.vector_norm(self.first @ self._first_vector[0]) * norms.prod()
        squares = (self.last[:, None] - self.last[None]).square().sum(2)
        distances = (squares + torch.eye(CLASSES)).sqrt()  # 1 on the diagonal: a root has no gradient at 0
        estimates: torch.Tensor = product * distances
        return estimates

    def save(self, path: Path, grid_bits: int) -> None:
        scale = 2.0**grid_bits
        found = [tensor.detach().numpy() for tensor in (self.first, *self.hidden.unbind(), self.last)]
        rounded = [(np.rint(matrix * scale) / scale + 0.0).astype(np.float32) for matrix in found]
        partial = path.with_name(f".partial-{path.name}")
        np.savez_compressed(partial, **{f"W{index}": matrix for index, matrix in enumerate(rounded)})
        os.replace(partial, path)

    def saved_estimates(self, path: Path, images: npt.NDArray[np.uint8]) -> tuple[Float64Array, Float64Array]:
        weights = [matrix.numpy().astype(np.float64) for matrix in read_matrices(path)]
        values: Float64Array = images.reshape(len(images), -1) / 255.0
        for matrix in weights[:-1]:
            values = np.maximum(values @ matrix.T, 0.0)
        product = math.prod(float(np.linalg.norm(matrix, 2)) for matrix in weights[:-1])
        lipschitz = product * np.linalg.norm(weights[-1][:, None] - weights[-1][None], axis=2)
        return values @ weights[-1].T, lipschitz


def _power_step(stack: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.normalize(torch.bmm(stack.mT, torch.bmm(stack, vectors)), dim=1)


def gloro_logits(logits: torch.Tensor, margin_lipschitz: torch.Tensor, eps: float) -> torch.Tensor:
    """The logits with y_⊥ = max_{i != j} (y_i + eps · L_ij) as a last column, j the winner of each row."""
    winners = logits.argmax(1, keepdim=True)
    rivals = (logits + eps * margin_lipschitz[winners[:, 0]]).scatter(1, winners, -math.inf)
    return torch.cat([logits, rivals.amax(1, keepdim=True)], dim=1)


def emma_logits(logits: torch.Tensor, labels: torch.Tensor, margin_lipschitz: torch.Tensor, eps: float) -> torch.Tensor:
    """y_i + eps_i · L_ij, eps_i = min(max((y_j - y_i)/L_ij, 0), eps) a constant, j the label of each row."""
    lipschitz = margin_lipschitz[labels]
    with torch.no_grad():
        reach = ((logits.gather(1, labels[:, None]) - logits) / lipschitz).clamp(0.0, eps)
    return logits + reach * lipschitz


def orthogonal_start(depth: int, width: int, generator: torch.Generator) -> list[torch.Tensor]:
    shapes = [(width, SIDE * SIDE), *[(width, width)] * (depth - 1), (CLASSES, width)]
    return [torch.nn.init.orthogonal_(torch.empty(shape), generator=generator) for shape in shapes]


def shares(
    logits: Float64Array, lipschitz: Float64Array, labels: npt.NDArray[np.uint8], eps: float
) -> tuple[float, float, float]:
    """Accuracy, certified share and VRA (right and certified) at eps."""
    winners = logits.argmax(1)
    slack = logits.max(1, keepdims=True) - logits - eps * lipschitz[winners]
    slack[np.arange(len(slack)), winners] = np.inf
    certified, right = (slack > 0).all(1), winners == labels
    return float(right.mean()), float(certified.mean()), float((certified & right).mean())


def read_matrices(path: Path) -> list[torch.Tensor]:
    with np.load(path) as archive:
        return [torch.from_numpy(archive[f"W{index}"].astype(np.float32)) for index in range(len(archive.files))]


def make_network(options: argparse.Namespace, start: Path | None, generator: torch.Generator) -> Trained:
    """start: the file to go on from."""
    if options.architecture is None:
        matrices = read_matrices(start) if start else orthogonal_start(options.depth, options.width, generator)
        return RobustNetwork(matrices, generator)
    return ConvolutionalNetwork.make(
        options.architecture, options.activation, generator, biased=options.biases, start=start
    )


def train(options: argparse.Namespace) -> None:
    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    generator = torch.Generator().manual_seed(options.seed)
    with np.load(options.mnist) as archive:
        x_train, y_train, x_test, y_test = (archive[name] for name in ("x_train", "y_train", "x_test", "y_test"))
    reach = 1 if options.augment else 0  # pixels
    padded = torch.nn.functional.pad(torch.from_numpy(x_train), (reach,) * 4)
    windows = padded.unfold(1, SIDE, 1).unfold(2, SIDE, 1)  # [image, down, right] is the image shifted; a view
    labels = torch.from_numpy(y_train).long()

    network = make_network(options, options.start, generator)
    optimiser = torch.optim.Adam(network.parameters, lr=options.rate, fused=True)
    batches = len(labels) // options.batch
    total_steps, step, began = options.epochs * batches, 0, time.monotonic()
    for epoch in range(1, options.epochs + 1):
        order = torch.randperm(len(labels), generator=generator)
        shifts = torch.randint(2 * reach + 1, (2, len(labels)), generator=generator)
        loss_sum, right, robust, eps = 0.0, 0, 0, 0.0
        for batch in range(batches):
            progress = step / total_steps
            eps = options.eps_train * (min(1.0, progress / options.ramp) if options.ramp else 1.0)
            for group in optimiser.param_groups:
                group["lr"] = options.rate * (0.5 * (1 + math.cos(math.pi * progress)) + 1e-4)
            chosen = slice(batch * options.batch, (batch + 1) * options.batch)
            rows = order[chosen]
            images = windows[rows, shifts[0, chosen], shifts[1, chosen]].reshape(-1, SIDE * SIDE).float() / 255
            network.advance_norms(options.power_steps)
            logits, lipschitz = network.logits(images), network.margin_lipschitz()
            extended = gloro_logits(logits, lipschitz, eps)
            lifted = extended if options.loss == "gloro" else emma_logits(logits, labels[rows], lipschitz, eps)
            loss = torch.nn.functional.cross_entropy(lifted, labels[rows])
            optimiser.zero_grad()
            torch.autograd.backward(loss)
            optimiser.step()
            step += 1
            loss_sum += loss.item()
            right += int((extended[:, :-1].argmax(1) == labels[rows]).sum())
            robust += int((extended.argmax(1) == labels[rows]).sum())
        seen = batches * options.batch
        line = f"epoch {epoch:4d}  eps {eps:.3f}  loss {loss_sum / batches:.4f}"
        line += f"  train accuracy {right / seen:.4f} VRA {robust / seen:.4f}"
        if epoch % options.save_every == 0 or epoch == options.epochs:
            network.save(options.output, options.grid_bits)
            found, bounds = network.saved_estimates(options.output, x_test)
            accuracy, certified, vra = shares(found, bounds, y_test, options.eps_test)
            line += f"  test accuracy {accuracy:.4f} certified {certified:.4f} VRA {vra:.4f} at {options.eps_test}"
        print(f"{line}  {time.monotonic() - began:.0f} s", flush=True)
    report(options, x_test)


def report(options: argparse.Namespace, images: npt.NDArray[np.uint8]) -> None:
    """The size of the file, and how far its logits in torch are from those in numpy."""
    network = make_network(options, options.output, torch.Generator())
    expected, _ = network.saved_estimates(options.output, images)
    with torch.no_grad():
        rows = torch.from_numpy(images).reshape(len(images), -1).float() / 255
        logits = torch.cat([network.logits(part) for part in rows.split(1000)]).numpy()
    numbers = sum(tensor.numel() for tensor in network.parameters)
    print(f"{options.output}: {numbers} numbers, {options.output.stat().st_size} bytes")
    print(f"logits in float32 (torch) and float64 (numpy) differ by at most {np.abs(logits - expected).max():.1e}")


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m compare.train", description="Train a globally robust network on MNIST."
    )
    add = parser.add_argument
    add("mnist", type=Path, help="an .npz with x_train, y_train, x_test, y_test")
    add("-o", "--output", type=Path, required=True, help="the .npz to write, replaced at every checkpoint")
    add("--start", type=Path, help="an .npz of an earlier stage to go on from (default: orthogonal matrices)")
    add("--epochs", type=int, default=250)
    add("--batch", type=int, default=512)
    add("--rate", type=float, default=2e-3, help="Adam's first rate; it falls to nearly 0 (default %(default)s)")
    add("--eps-train", type=float, default=0.45, help="the eps of the loss after the ramp (default %(default)s)")
    add("--eps-test", type=float, default=0.3, help="the eps of the figures printed (default %(default)s)")
    add("--ramp", type=float, default=0.5, help="share of training in which eps grows (default %(default)s)")
    add("--augment", action="store_true", help="shift every image by up to one pixel each way, anew in every epoch")
    add("--loss", choices=("gloro", "emma"), default="gloro", help="(default %(default)s)")
    add("--depth", type=int, help="hidden layers of a dense network (default 8)")
    add("--width", type=int, help="neurons of each (default 128)")
    add("--architecture", help='the layers of another one: "c16k5s2p2 rk3 d100"')
    add("--activation", choices=tuple(ACTIVATIONS), help="of such a network (default relu)")
    add("--biases", action="store_true", help="biases for such a network, which start at 0")
    add("--power-steps", type=int, default=8, help="power iterations for every batch (default %(default)s)")
    add("--grid-bits", type=int, default=14, help="weights are multiples of 2^-GRID_BITS (default %(default)s)")
    add("--save-every", type=int, default=10, help="epochs between checkpoints (default %(default)s)")
    add("--seed", type=int, default=0)
    add("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    if options.architecture is None and (options.activation is not None or options.biases):
        parser.error("--activation and --biases belong to an --architecture")
    if options.architecture is not None and (options.depth is not None or options.width is not None):
        parser.error("--depth and --width belong to dense networks, without an --architecture")
    for name, default in (("activation", "relu"), ("depth", 8), ("width", 128)):
        if getattr(options, name) is None:
            setattr(options, name, default)
    if options.architecture is not None:
        try:
            plans(options.architecture, options.activation)
        except ValueError as error:
            parser.error(f"--architecture: {error}")
    if options.output.suffix != ".npz":
        parser.error("the output's name must end in .npz")
    if min(options.epochs, options.batch, options.power_steps, options.save_every) < 1 or options.depth < 2:
        parser.error("--epochs, --batch, --power-steps and --save-every are at least 1, --depth at least 2")
    if not 0 <= options.ramp <= 1:
        parser.error("--ramp is a share of training, between 0 and 1")
    return options


if __name__ == "__main__":
    train(parse())
