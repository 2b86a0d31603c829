"""Train a globally robust dense ReLU network on MNIST: a model that is worth certifying.

The network N(x) = W_n relu(W_{n-1} … relu(W_1 x)) has no biases. With σ_l = ||W_l||_2 its margins obey

    |(N(v)_j - N(v)_i) - (N(u)_j - N(u)_i)| <= L_ij ||v - u||_2,    L_ij = (Π_{l<n} σ_l) · ||W_n[j] - W_n[i]||_2,

and training minimises the GloRo loss (Leino, Wang, Fredrikson: "Globally-Robust Neural Networks", ICML 2021):
for logits y = N(x) with winner j an eleventh logit, "not robust at eps", joins the ten,

    y_⊥ = max_{i != j} (y_i + eps · L_ij),      loss = -log softmax(y_0, …, y_9, y_⊥)[label].

y_⊥ < y_j says just that j is certified at eps; so the loss is small where the label wins *and* is certified.
The σ_l come from power iteration on W_lᵀW_l, a few steps for every batch from where the last batch left the vector v;
their gradient is the one of ||W_l v|| at fixed v. eps grows linearly from 0 over the first part of training, the rate
of Adam falls along a half cosine, the matrices start orthogonal.

**Nothing here is trusted.** Power iteration bounds a norm from below, sums are floats, the printed figures are
estimates. `intervalcert` bounds the finished weights afterwards and knows nothing of how they came to be.

    python -m compare.train mnist.npz -o model.npz --augment
    python -m compare.train mnist.npz -o better.npz --augment --start model.npz --ramp 0 --rate 1e-3

`mnist.npz` holds x_train, y_train, x_test, y_test (uint8, images 28 x 28); the network takes x/255, flattened.
The result holds W0, W1, … (outputs x inputs, float32), rounded to multiples of 2^-14 (--grid-bits), so that exact
arithmetic on them is cheap. The test images are never trained on; they are only reported on.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from pathlib import Path

import numpy as np
import numpy.typing as npt

try:
    import torch
except ImportError as error:
    raise SystemExit(
        "compare.train needs PyTorch, which the extra [train] installs: pip install 'intervalcert[train]'"
    ) from error

Float64Array = npt.NDArray[np.float64]
SIDE = 28
CLASSES = 10


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

    def matrices(self) -> list[npt.NDArray[np.float32]]:
        return [tensor.detach().numpy() for tensor in (self.first, *self.hidden.unbind(), self.last)]


def _power_step(stack: torch.Tensor, vectors: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.normalize(torch.bmm(stack.mT, torch.bmm(stack, vectors)), dim=1)


def gloro_logits(logits: torch.Tensor, margin_lipschitz: torch.Tensor, eps: float) -> torch.Tensor:
    """The logits with y_⊥ = max_{i != j} (y_i + eps · L_ij) as a last column, j the winner of each row."""
    winners = logits.argmax(1, keepdim=True)
    rivals = (logits + eps * margin_lipschitz[winners[:, 0]]).scatter(1, winners, -math.inf)
    return torch.cat([logits, rivals.amax(1, keepdim=True)], dim=1)


def orthogonal_start(depth: int, width: int, generator: torch.Generator) -> list[torch.Tensor]:
    shapes = [(width, SIDE * SIDE), *[(width, width)] * (depth - 1), (CLASSES, width)]
    return [torch.nn.init.orthogonal_(torch.empty(shape), generator=generator) for shape in shapes]


def estimated_shares(
    matrices: list[npt.NDArray[np.float32]], images: npt.NDArray[np.uint8], labels: npt.NDArray[np.uint8], eps: float
) -> tuple[float, float, float]:
    """Estimates of accuracy, certified share and VRA (right and certified) at eps: float64, norms by SVD."""
    weights = [matrix.astype(np.float64) for matrix in matrices]
    values: Float64Array = images.reshape(len(images), -1) / 255.0
    for matrix in weights[:-1]:
        values = np.maximum(values @ matrix.T, 0.0)
    logits = values @ weights[-1].T
    product = math.prod(float(np.linalg.norm(matrix, 2)) for matrix in weights[:-1])
    lipschitz = product * np.linalg.norm(weights[-1][:, None] - weights[-1][None], axis=2)
    winners = logits.argmax(1)
    slack = logits.max(1, keepdims=True) - logits - eps * lipschitz[winners]
    slack[np.arange(len(slack)), winners] = np.inf
    certified, right = (slack > 0).all(1), winners == labels
    return float(right.mean()), float(certified.mean()), float((certified & right).mean())


def save_rounded(path: Path, matrices: list[npt.NDArray[np.float32]], grid_bits: int) -> list[npt.NDArray[np.float32]]:
    """Round the weights to multiples of 2^-grid_bits, replace the file at once, and return what it holds."""
    scale = 2.0**grid_bits
    rounded = [(np.rint(matrix * scale) / scale + 0.0).astype(np.float32) for matrix in matrices]
    partial = path.with_name(f".partial-{path.name}")
    np.savez_compressed(partial, **{f"W{index}": matrix for index, matrix in enumerate(rounded)})
    os.replace(partial, path)
    return rounded


def read_matrices(path: Path) -> list[torch.Tensor]:
    with np.load(path) as archive:
        return [torch.from_numpy(archive[f"W{index}"].astype(np.float32)) for index in range(len(archive.files))]


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

    start = read_matrices(options.start) if options.start else orthogonal_start(options.depth, options.width, generator)
    network = RobustNetwork(start, generator)
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
            extended = gloro_logits(network.logits(images), network.margin_lipschitz(), eps)
            loss = torch.nn.functional.cross_entropy(extended, labels[rows])
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
            saved = save_rounded(options.output, network.matrices(), options.grid_bits)
            accuracy, certified, vra = estimated_shares(saved, x_test, y_test, options.eps_test)
            line += f"  test accuracy {accuracy:.4f} certified {certified:.4f} VRA {vra:.4f} at {options.eps_test}"
        print(f"{line}  {time.monotonic() - began:.0f} s", flush=True)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m compare.train", description="Train a globally robust dense ReLU network on MNIST."
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
    add("--depth", type=int, default=8, help="hidden layers (default %(default)s)")
    add("--width", type=int, default=128, help="neurons of each (default %(default)s)")
    add("--power-steps", type=int, default=8, help="power iterations for every batch (default %(default)s)")
    add("--grid-bits", type=int, default=14, help="weights are multiples of 2^-GRID_BITS (default %(default)s)")
    add("--save-every", type=int, default=10, help="epochs between checkpoints (default %(default)s)")
    add("--seed", type=int, default=0)
    add("--threads", type=int, default=1)
    options = parser.parse_args(arguments)
    if options.output.suffix != ".npz":
        parser.error("the output's name must end in .npz")
    if min(options.epochs, options.batch, options.power_steps, options.save_every) < 1 or options.depth < 2:
        parser.error("--epochs, --batch, --power-steps and --save-every are at least 1, --depth at least 2")
    if not 0 <= options.ramp <= 1:
        parser.error("--ramp is a share of training, between 0 and 1")
    return options


if __name__ == "__main__":
    train(parse())
