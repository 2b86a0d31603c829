"""Small files that ask for much: what each of them takes, time and memory, in a process of its own.

Each is below a megabyte. Reading it, or refusing it, must stay below `SECONDS` of processor time and `MEGABYTES`.

Uses the main function of the package itself, which the command calls: so that the process can measure what it took.
"""

from __future__ import annotations

import gzip
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from intervalcert import Network, compute_bounds, save_bounds

__all__ = ["MEGABYTES", "SECONDS", "measured"]

SECONDS, MEGABYTES = 60, 2_000

_SCRIPT = (
    "import resource, sys; from intervalcert.cli.program import main; from compare.bench import peak_kilobytes;"
    "resource.setrlimit(resource.RLIMIT_AS, (8 * 2**30,) * 2); code = main(sys.argv[1:]);"
    "own = resource.getrusage(resource.RUSAGE_SELF);"
    "print(f'took {code} {own.ru_utime + own.ru_stime} {peak_kilobytes()}')"
)


def _zeros(folder: Path) -> list[str]:
    """Of one byte each, in an archive: a thousand times smaller."""
    np.savez_compressed(folder / "zeros.npz", **{f"W{i}": np.zeros((8192, 8192), np.int8) for i in range(4)})
    return ["bounds", "zeros.npz"]


def _twice(folder: Path) -> list[str]:
    """The same, compressed once more."""
    _zeros(folder)
    (folder / "zeros.npz.gz").write_bytes(gzip.compress((folder / "zeros.npz").read_bytes()))
    return ["bounds", "zeros.npz.gz"]


def _allowed(folder: Path) -> list[str]:
    """Nearly as many weights as are taken from 0.9 MB: half of them cost no bytes."""
    noise = np.random.default_rng(0).integers(0, 256, (920, 950)).astype(np.uint8)
    np.savez_compressed(folder / "allowed.npz", W0=np.ones((950, 900), np.int8), W1=noise, W2=np.ones((10, 920)))
    return ["bounds", "allowed.npz"]


def _text(folder: Path) -> list[str]:
    """As many numbers as are read from a compressed text of 0.9 MB, before they are found to be too many."""
    digits = np.random.default_rng(0).integers(0, 10, (1_500, 1_000)).tolist()
    rows = [",".join(map(str, row)) for row in [*digits, *[[0] * 1_000] * 22_000]]
    (folder / "zeros.txt.gz").write_bytes(gzip.compress(("[[" + "],[".join(rows) + "]]").encode()))
    return ["inspect", "zeros.txt.gz"]


def _page(folder: Path) -> list[str]:
    """One page of zeros for each of ten columns of a Parquet table."""
    import pyarrow as pa
    from pyarrow import parquet

    rows = 40_000_000
    table = pa.table({f"c{i}": np.zeros(rows) for i in range(10)})
    whole = dict.fromkeys(("row_group_size", "write_batch_size", "max_rows_per_page"), rows)
    path = folder / "page.parquet"
    parquet.write_table(table, path, compression="zstd", data_page_size=2**31 - 1, use_dictionary=False, **whole)
    save_bounds(compute_bounds(Network.from_arrays([np.eye(10)]), "float64"), folder / "bounds.json")
    return ["certify", "bounds.json", "page.parquet", "--eps", "0.1"]


def _slopes(folder: Path) -> list[str]:
    """400 layers with slopes of 2^50000."""
    layers = {f"W{i}": np.ones((2, 2), np.float32) for i in range(400)}
    np.savez_compressed(folder / "slopes.npz", **layers, activations=np.array([b"leaky_relu:1*2^50000"] * 399))
    return ["bounds", "slopes.npz"]


def _longest(folder: Path) -> list[str]:
    """400 layers whose constants multiply to the largest number that is allowed."""
    layers = {f"W{i}": np.ones((2, 2), np.float32) for i in range(400)}
    np.savez_compressed(folder / "longest.npz", **layers, activations=np.array([b"leaky_relu:1*2^48"] * 399))
    return ["bounds", "longest.npz"]


def _tied(folder: Path, name: str, places: int) -> list[str]:
    """One matrix of 128 x 128 at so many places of an ONNX file."""
    from onnx import helper, numpy_helper

    rng = np.random.default_rng(0)
    arrays = {"W": rng.standard_normal((128, 128)) / 12, "V": rng.standard_normal((128, 10))}
    nodes = [helper.make_node("Identity", ["x"], ["r0"])]
    for i in range(places):
        nodes.append(helper.make_node("MatMul", [f"r{i}", "W"], [f"z{i}"]))
        nodes.append(helper.make_node("Relu", [f"z{i}"], [f"r{i + 1}"]))
    nodes.append(helper.make_node("MatMul", [f"r{places}", "V"], ["y"]))
    ends = (helper.make_tensor_value_info("x", 1, ["N", 128]), helper.make_tensor_value_info("y", 1, None))
    stored = [numpy_helper.from_array(array.astype(np.float32), key) for key, array in arrays.items()]
    graph = helper.make_graph(nodes, "g", [ends[0]], [ends[1]], stored)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (folder / name).write_bytes(made.SerializeToString())
    return ["bounds", name, "--backend", "float64"]


_FILES: dict[str, tuple[str, Callable[[Path], list[str]]]] = {
    "2^28 zeros, int8": ("zeros.npz", _zeros),
    "the same, compressed twice": ("zeros.npz.gz", _twice),
    "as many zeros as are read": ("allowed.npz", _allowed),
    "as long a text as is read": ("zeros.txt.gz", _text),
    "pages of 320 MB": ("page.parquet", _page),
    "400 slopes of 2^50000": ("slopes.npz", _slopes),
    "the longest product that is read": ("longest.npz", _longest),
    "one matrix at 4,000 places": ("tied.onnx", lambda folder: _tied(folder, "tied.onnx", 4_000)),
    "one matrix at as many as are read": ("repeated.onnx", lambda folder: _tied(folder, "repeated.onnx", 257)),
}
_QUICK = ("400 slopes of 2^50000", "the same, compressed twice")


def measured(folder: Path, *, short: bool) -> list[dict[str, Any]]:
    """For each file: its size, what was made of it, seconds of processor time, megabytes at the most."""
    rows = []
    for what, (name, make) in _FILES.items():
        if short and what not in _QUICK:
            continue
        argv = make(folder)
        command = [sys.executable, "-c", _SCRIPT, *argv]
        try:
            found = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600, check=False)
            said = found.stdout.rpartition("took ")[2].split()
        except subprocess.TimeoutExpired:
            said = []
        code, seconds, kilobytes = (int(said[0]), float(said[1]), int(said[2])) if len(said) == 3 else (None, 600.0, 0)
        outcome = {0: "read", 3: "refused"}.get(code, "neither read nor refused") if code is not None else "no end"
        size = (folder / name).stat().st_size
        rows.append({"what": what, "bytes": size, "outcome": outcome, "seconds": seconds, "MB": kilobytes // 1024})
    return rows
