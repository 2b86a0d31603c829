"""Time as a ratio to what a user would run instead, in the same process, interleaved, best of several; and memory.

Bounds are measured against `numpy.linalg.norm(W, 2)` of the same layers: the upper bound alone, which answers the same
question, and with the lower bound that comes with it. Certify is measured against the plain float formula. BLAS is held
to one thread (`compare/__init__.py`). Peak memory is that of a fresh process that does nothing else. At last come small
files that were made to take much of both (`hostile`).

Uses parts of the package itself where one part is timed alone: the upper bound of a layer, with and without its lower
bound, from matrices that are exact already; one local attempt; a command, in the process whose memory is measured.
"""

from __future__ import annotations

import gc
import math
import resource
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from compare import hostile, pictures
from compare.harness import Outcome, Setting, table
from intervalcert import Bounds, Network, certify, compute_bounds, save_bounds
from intervalcert.backends.registry import get_backend, precision_ladder
from intervalcert.bounds.norm_bounds import Plan, layer_bound
from intervalcert.model.arrays import exact_matrix
from intervalcert.model.linear_maps import Dense
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.proof.cholesky import cholesky_upper
from intervalcert.proof.norms import norm_upper
from intervalcert.search.factors import FloatGram
from intervalcert.verify.local import LocalVerifier

__all__ = ["ARCHITECTURES", "interleaved", "run"]

Shape = tuple[int, int]
ARCHITECTURES: dict[str, tuple[tuple[Shape, ...], int]] = {
    "MNIST 784-8x128": (((128, 784), *[(128, 128)] * 7), 11),
    "Fashion 784-256-11x128": (((256, 784), (128, 256), *[(128, 128)] * 10), 12),
    "CIFAR 3072-512-256-6x128": (((512, 3072), (256, 512), (128, 256), *[(128, 128)] * 5), 12),
}
"""The hidden layers of the source paper's models, and their Gram steps."""

SHAPES: tuple[Shape, ...] = ((128, 128), (256, 784), (512, 512), (512, 3072), (1024, 1024), (2048, 2048))
LONGEST = 100.0
"""A shape is left out where the time of the one before, scaled by the cube of the side, exceeds this many seconds."""


def interleaved(tasks: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """The best wall time of each task over rounds that run all of them in turn.

    Without collections of garbage meanwhile, as in `timeit`: what else lives in this process is none of their business.
    """
    best = dict.fromkeys(tasks, math.inf)
    gc.collect()
    gc.disable()
    try:
        for _ in range(repeats):
            for name, task in tasks.items():
                start = perf_counter()
                task()
                best[name] = min(best[name], perf_counter() - start)
    finally:
        gc.enable()
    return best


# -- bounds ----------------------------------------------------------------------------------------------------------


def _layers(shapes: Sequence[Shape]) -> list[npt.NDArray[np.float32]]:
    rng = np.random.default_rng(3)
    return [(rng.standard_normal(shape) / math.sqrt(shape[1])).astype(np.float32) for shape in shapes]


def _tasks(shapes: Sequence[Shape], iterations: int, wanted: Sequence[str]) -> dict[str, Callable[[], object]]:
    """What numpy does, and each of the wanted: ``float64`` (Gram iteration), ``float64 cholesky``, …"""
    floats = _layers(shapes)
    wide = [w.astype(np.float64) for w in floats]
    exact = [exact_matrix(w, "weights") for w in floats]
    tasks = {name: _task(name, exact, iterations) for name in wanted}
    return {"numpy": lambda: [np.linalg.norm(w, 2) for w in wide], **tasks}


def _task(name: str, layers: Sequence[RationalMatrix], iterations: int) -> Callable[[], object]:
    backend_name, _, method = name.partition(" ")
    backend, ladder = get_backend(backend_name), precision_ladder(backend_name)
    if method == "":
        return lambda: [norm_upper(backend.matrix(w), backend, iterations) for w in layers]
    if method == "cholesky":
        return lambda: [_by_factor(w, backend) for w in layers]
    plan = Plan("gram", iterations) if method == "both sides" else Plan("cholesky")
    return lambda: [layer_bound(Dense(w), ladder, plan) for w in layers]


def _by_factor(weights: RationalMatrix, backend: Any) -> object:
    factor = FloatGram(weights).factor()
    if factor is None:
        raise RuntimeError("no factor was found")
    return cholesky_upper(backend.matrix(weights), factor, backend)


FAST = ("float64", "float64 cholesky", "float64 both sides", "float64 cholesky, both sides")
SLOW = ("arb", "arb cholesky", "exact", "exact cholesky")
METHODS: tuple[Literal["gram", "cholesky"], ...] = ("gram", "cholesky")


def _networks(setting: Setting) -> list[dict[str, Any]]:
    """The fast ones are repeated until the machine's noise is out of them, beside the same numpy."""
    chosen = list(ARCHITECTURES.items())[: 1 if setting.short else None]
    rows = []
    for name, (shapes, iterations) in setting.progress(chosen, "bench: networks", len(chosen)):
        slow = interleaved(_tasks(shapes, iterations, SLOW), 2)
        fast = interleaved(_tasks(shapes, iterations, FAST), 5 if setting.short else 15)
        seconds = {**slow, **fast}  # numpy's time is the one beside the fast ones
        rows.append(
            {
                "network": name,
                "iterations": iterations,
                "seconds": seconds,
                "excess": {method: _excess(shapes, iterations, method) for method in METHODS},
                "bounds": _whole(shapes, iterations, 2 if setting.short else 3),
            }
        )
    return rows


def _whole(shapes: Sequence[Shape], iterations: int, repeats: int) -> dict[str, float]:
    """All bounds of a network of ten classes, margins included, as a user asks for them: arb beside exact."""
    network = Network.from_arrays(_layers([*shapes, (10, shapes[-1][0])]))
    tasks: dict[str, Callable[[], object]] = {}
    for name in ("exact", "arb"):
        tasks[name] = lambda name=name: compute_bounds(network, name)  # type: ignore[misc]
        tasks[f"{name} gram"] = lambda name=name: compute_bounds(network, name, iterations)  # type: ignore[misc]
    return interleaved(tasks, repeats)


def _excess(shapes: Sequence[Shape], iterations: int, method: Literal["gram", "cholesky"]) -> float:
    """By which part a float64 bound is above the lower bound of its layer, at most."""
    network = Network.from_arrays(_layers(shapes))
    bounds = compute_bounds(network, "float64", iterations, method=method, margins="product")
    return max(float(bound.upper / bound.lower - 1) for bound in bounds.layers)


def _shapes(setting: Setting, outcome: Outcome) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    shapes = SHAPES[: 1 if setting.short else None]
    last: dict[str, tuple[Shape, float]] = {}
    for shape in setting.progress(shapes, "bench: shapes", len(shapes)):
        feasible = []
        for name in ("float64", "float64 cholesky", "arb", "exact"):
            before, seconds = last.get(name, ((1, 1), 0.0))
            expected = seconds * (min(shape) / min(before)) ** 3
            if expected <= LONGEST:
                feasible.append(name)
            else:
                outcome.skipped.append(f"{name} on {shape[0]} x {shape[1]}: about {expected:.0f} s expected")
        best = interleaved(_tasks([shape], 11, feasible), 1 if min(shape) > 500 else 3)
        last |= {name: (shape, best[name]) for name in feasible}
        rows.append({"shape": list(shape), "seconds": best})
    return rows


def growth_exponent(rows: Sequence[dict[str, Any]], name: str) -> float | None:
    """The slope of log time over log side, on the square shapes."""
    points = [
        (row["shape"][0], row["seconds"][name])
        for row in rows
        if len(set(row["shape"])) == 1 and name in row["seconds"]
    ]
    if len(points) < 2:
        return None
    (small, fast), (large, slow) = points[0], points[-1]
    return math.log(slow / fast) / math.log(large / small)


# -- certify ---------------------------------------------------------------------------------------------------------


def _certify(setting: Setting) -> list[dict[str, Any]]:
    """Ordinary float32 logits against the plain formulas that a user would write in numpy.

    intervalcert finds verdict and radius at once, so each formula is compared with the same run.
    """
    bounds = compute_bounds(Network.from_arrays(_layers([(64, 100), (10, 64)])), "arb", 8)
    margins = np.array([[float(x) for x in row] for row in bounds.margins.matrix])
    rows = []
    for count in (1_000,) if setting.short else (10_000, 1_000_000):
        logits = np.random.default_rng(4).standard_normal((count, 10)).astype(np.float32) * 4

        def leads(logits: npt.NDArray[np.float32] = logits) -> tuple[Any, Any, Any]:
            top = np.argmax(logits, axis=1)
            return top, np.take_along_axis(logits, top[:, None], axis=1) - logits, margins[:, top].T

        def verdict() -> object:
            top, lead, margin = leads()
            lead = lead - 0.3 * margin
            lead[np.arange(len(lead)), top] = np.inf
            return (lead > 0).all(axis=1)

        def radius() -> object:
            top, lead, margin = leads()
            with np.errstate(invalid="ignore"):
                lead = lead / margin
            lead[np.arange(len(lead)), top] = np.inf
            return lead.min(axis=1)

        def ours(logits: npt.NDArray[np.float32] = logits) -> object:
            return certify(bounds, logits, "0.3")

        tasks = {"numpy": verdict, "numpy radius": radius, "intervalcert": ours}
        seconds = interleaved(tasks, 7 if count > 10_000 else 50)
        rows.append(
            {"outputs": count, "seconds": seconds, "exactly": int(certify(bounds, logits, "0.3").exactly.sum())}
        )
    rows[-1]["streamed"] = _streamed(bounds, 100_000 if setting.short else 5_000_000)
    return rows


def _streamed(bounds: Bounds, count: int) -> dict[str, Any]:
    """Time and peak memory of the command line on a .npy file."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        save_bounds(bounds, folder / "bounds.json")
        np.save(folder / "y.npy", np.random.default_rng(5).standard_normal((count, 10), dtype=np.float32) * 4)
        argv = ["radius", str(folder / "bounds.json"), str(folder / "y.npy"), "-o", str(folder / "r.npy")]
        return {"outputs": count, **_command(argv)}


# -- memory ----------------------------------------------------------------------------------------------------------


def peak_kilobytes() -> int:
    """The peak of this program. (`getrusage` also counts what the process was before it was started as this one.)"""
    status = Path("/proc/self/status")
    if status.is_file():
        return int(next(line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM")))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _memory(setting: Setting) -> list[dict[str, Any]]:
    script = (
        "import sys; from compare.bench import _tasks, peak_kilobytes;"
        "shape = int(sys.argv[1]), int(sys.argv[2]); _tasks([shape], 11, [sys.argv[3]])[sys.argv[3]]();"
        "print(peak_kilobytes())"
    )
    rows = []
    for shape in ((128, 128),) if setting.short else ((128, 128), (256, 784), (512, 3072)):
        for name in ("float64", "arb", "exact"):
            command = [sys.executable, "-c", script, str(shape[0]), str(shape[1]), name]
            found = subprocess.run(command, check=True, capture_output=True, text=True)
            rows.append({"shape": list(shape), "backend": name, "MB": int(found.stdout) // 1024})
    return rows


# -- local refinement ------------------------------------------------------------------------------------------------

LOCAL: dict[str, tuple[tuple[int, ...], bool, str]] = {
    "ordinary 784-6x256-10": ((784, *[256] * 6, 10), False, "0.1"),
    "robust 784-256-11x128-10": ((784, 256, *[128] * 11, 10), True, "1/4"),
    "robust 3072-512-256-6x128-10": ((3072, 512, 256, *[128] * 6, 10), True, "0.141"),
}
"""Widths, whether all norms are 1 (orthogonal weights; else as a training starts), and a radius."""


def _random_network(widths: Sequence[int], orthogonal: bool) -> Network:
    rng = np.random.default_rng(5)
    weights = []
    for inputs, outputs in pairwise(widths):
        made = rng.standard_normal((outputs, inputs))
        made = np.linalg.qr(made.T)[0].T if orthogonal else made * math.sqrt(2 / inputs)
        weights.append(made.astype(np.float32))
    return Network.from_arrays(weights, [np.full(m, 0.01, dtype=np.float32) for m in widths[1:]])


def _locally(setting: Setting) -> list[dict[str, Any]]:
    """Attempts at random inputs, on one core: what each takes, and which number system proves it.

    The radius is the one named, times 4/5 until some of the first attempts succeed: at larger ones they are all given
    up at once. (Random weights lead by less than trained ones.)
    """
    rows = []
    chosen = list(LOCAL.items())[: 1 if setting.short else None]
    for name, (widths, orthogonal, radius) in setting.progress(chosen, "bench: local", len(chosen)):
        network = _random_network(widths, orthogonal)
        norms = [layer.upper for layer in compute_bounds(network, "float64").layers]
        certifier = LocalVerifier(network, norms, precision_ladder("float64"))
        drawn = np.random.default_rng(6).integers(0, 256, size=(8 if setting.short else 40, widths[0]))
        inputs = [RationalMatrix(x[:, None].astype(object), 255) for x in drawn]
        eps = Fraction(radius)
        while not any(certifier.certify(x, eps).certified for x in inputs[:4]):
            eps *= Fraction(4, 5)
        seconds, proved = [], Counter[str]()
        for x in inputs:
            start = process_time()
            found = certifier.certify(x, eps)
            seconds.append(process_time() - start)
            proved[found.proved_by or "not certified"] += 1
        rows.append(
            {"network": name, "eps": float(eps), "mean": sum(seconds) / len(seconds), "most": max(seconds), **proved}
        )
    return rows


def _local_table(rows: Sequence[dict[str, Any]]) -> Any:
    shown = table("Local refinement, one attempt, one core", "network", "eps", "mean", "most", "proved by float64")
    for row in rows:
        times = (f"{1000 * row[which]:.0f} ms" for which in ("mean", "most"))
        total = sum(count for name, count in row.items() if isinstance(count, int))
        shown.add_row(row["network"], f"{row['eps']:.3g}", *times, f"{row.get('float64', 0)} of {total}")
    return shown


# -- many classes ----------------------------------------------------------------------------------------------------

MANY: dict[str, tuple[int, ...]] = {"784-256-1000": (784, 256, 1000), "784-3x512-1000": (784, 512, 512, 512, 1000)}


def _many_classes(setting: Setting) -> list[dict[str, Any]]:
    """The whole commands on float64: bounds with their file, and the radii of 10,000 outputs from that file."""
    rows = []
    for name, sides in {"10-8-40": (10, 8, 40)}.items() if setting.short else MANY.items():
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            weights = _layers([(after, before) for before, after in pairwise(sides)])
            np.savez(folder / "m.npz", **{f"W{index}": w for index, w in enumerate(weights)})
            logits = np.random.default_rng(5).standard_normal((100 if setting.short else 10_000, sides[-1]))
            np.save(folder / "y.npy", logits.astype(np.float32) * 4)
            file, outputs = str(folder / "b.json"), [str(folder / "y.npy"), "-o", str(folder / "r.npy")]
            bounds = _command(["bounds", str(folder / "m.npz"), "--backend", "float64", "-o", file])
            radius = _command(["radius", file, *outputs])
            size = Path(file).stat().st_size / 1e6
            rows.append({"network": name, "outputs": len(logits), "bounds": bounds, "file MB": size, "radius": radius})
    return rows


def _command(argv: Sequence[str]) -> dict[str, Any]:
    """Time and peak memory of one command, in a process of its own."""
    imports = "import sys; from intervalcert.cli.program import main; from compare.bench import peak_kilobytes"
    command = [sys.executable, "-c", f"{imports}; main(sys.argv[1:]); print(peak_kilobytes())", *argv]
    start = perf_counter()
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    return {"seconds": perf_counter() - start, "MB": int(found.stdout.splitlines()[-1]) // 1024}


# -- the run ---------------------------------------------------------------------------------------------------------


def run(setting: Setting) -> Outcome:
    outcome = Outcome("bench")
    outcome.data = {"networks": _networks(setting), "shapes": _shapes(setting, outcome)}
    outcome.data |= {"certify": _certify(setting), "memory": _memory(setting)}
    outcome.data |= {"many classes": _many_classes(setting), "local": _locally(setting)}
    with tempfile.TemporaryDirectory() as folder:
        outcome.data["hostile"] = hostile.measured(Path(folder), short=setting.short)
    for row in outcome.data["hostile"]:
        if (
            row["outcome"] not in {"read", "refused"}
            or row["seconds"] > hostile.SECONDS
            or row["MB"] > hostile.MEGABYTES
        ):
            outcome.violations.append(f"a small file takes too much: {row}")
    outcome.tables = _tables(outcome.data)
    picture = pictures.growth(setting, outcome.data["shapes"])
    if picture is None:
        outcome.skipped.append("pictures: matplotlib is not installed (pip install '.[compare]')")
    else:
        outcome.pictures.append(picture)
    return outcome


def _ratio(seconds: dict[str, float], name: str, base: str = "numpy") -> str:
    if name not in seconds:
        return "not run"
    ratio = seconds[name] / seconds[base]
    return f"{seconds[name]:.4f} s ({ratio:.{0 if ratio >= 10 else 2}f}x)"


_LABELS = {
    "numpy": "numpy SVD norm",
    "float64": "float64, gram",
    "float64 both sides": "float64, gram, with lower bound",
    "float64 cholesky, both sides": "float64, cholesky, with lower bound",
    "arb": "arb, gram",
    "exact": "exact, gram",
}


def _tables(data: dict[str, Any]) -> list[Any]:
    networks = table("Bounds of all hidden layers, one core", "", *(row["network"] for row in data["networks"]))
    networks.add_row("Gram steps", *(str(row["iterations"]) for row in data["networks"]))
    for name in ("numpy", *FAST, *SLOW):
        networks.add_row(_LABELS.get(name, name), *(_ratio(row["seconds"], name) for row in data["networks"]))
    for method in METHODS:
        networks.add_row(f"excess, {method}", *(f"{row['excess'][method]:.1e}" for row in data["networks"]))
    whole = table("All bounds of ten classes, one core", "", *(row["network"] for row in data["networks"]))
    for label, kind in (("default options", ""), ("Gram steps as above", " gram")):
        for name in ("exact", "arb"):
            ratios = (_ratio(row["bounds"], name + kind, "exact" + kind) for row in data["networks"])
            whole.add_row(f"{name}, {label}", *ratios)
    compared = ("float64", "float64 cholesky", "arb", "exact")
    shapes = table("One layer, 11 steps", "shape", "numpy SVD norm", *compared)
    for row in data["shapes"]:
        seconds = row["seconds"]
        shown = (_ratio(seconds, name) for name in compared)
        shapes.add_row("{} x {}".format(*row["shape"]), f"{seconds['numpy']:.4f} s", *shown)
    exponents = {name: growth_exponent(data["shapes"], name) for name in ("numpy", *compared)}
    if None not in exponents.values():
        shapes.add_row("growth: time ~ side^", *(f"{value:.1f}" for value in exponents.values()))
    certified = table(
        "Certify, float32 logits of 10 classes", "outputs", "numpy verdict", "numpy radius", "intervalcert"
    )
    for row in data["certify"]:
        seconds = row["seconds"]
        ratios = " and ".join(f"{seconds['intervalcert'] / seconds[name]:.2f}x" for name in ("numpy", "numpy radius"))
        plain = (f"{seconds[name]:.4f} s" for name in ("numpy", "numpy radius"))
        certified.add_row(str(row["outputs"]), *plain, f"{seconds['intervalcert']:.4f} s ({ratios})")
    streamed = data["certify"][-1]["streamed"]
    rate = f"{streamed['outputs'] / streamed['seconds']:,.0f} outputs/s, peak {streamed['MB']} MB"
    certified.add_row(str(streamed["outputs"]), "", "", f"{streamed['seconds']:.1f} s, .npy to .npy: {rate}")
    memory = table("Peak memory of a process, 11 steps", "shape", "backend", "MB")
    for row in data["memory"]:
        memory.add_row("{} x {}".format(*row["shape"]), row["backend"], str(row["MB"]))
    small = table("Small files that ask for much", "", "KB", "outcome", "seconds of CPU", "peak MB")
    for row in data["hostile"]:
        small.add_row(
            row["what"], f"{row['bytes'] / 1000:.0f}", row["outcome"], f"{row['seconds']:.1f}", str(row["MB"])
        )
    many = table("Many classes, float64, whole commands", "network", "bounds", "file", "radius")
    for row in data["many classes"]:
        bounds, radius = ("{seconds:.1f} s, peak {MB} MB".format(**row[name]) for name in ("bounds", "radius"))
        many.add_row(row["network"], bounds, f"{row['file MB']:.1f} MB", f"{row['outputs']} outputs: {radius}")
    return [networks, whole, shapes, certified, memory, many, _local_table(data["local"]), small]
