"""Counterexamples to a file: what was falsified, and by which input."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from intervalcert.errors import UsageError
from intervalcert.io.array_archive import write_arrays
from intervalcert.io.files import atomic_writer
from intervalcert.proof.counterexample import Counterexample
from intervalcert.proof.program import SEQUENTIAL, FloatCounterexample
from intervalcert.verify.falsify import AnyCounterexample

__all__ = ["check_counterexample_ending", "save_counterexamples"]


def check_counterexample_ending(path: Path) -> None:
    """Raises: UsageError for a file of another kind."""
    if path.suffix.lower() != ".npz":
        raise UsageError(f"{path}: counterexamples are written as .npz")


def save_counterexamples(found: Mapping[int, AnyCounterexample], inputs: int, path: Path, semantics: str) -> None:
    """By the index of the input, in order: index, winner, other, semantics, and what changes. inputs: numbers of each.

    Over the reals: delta (one row each). The input is x + delta, x being the scaled input, exactly; there the logit of
    `other` is at least that of `winner`, who wins at x.
    Of a program in floats: near and changed (one row each), numbers of its format. `winner` wins at `near`, and at
    `changed` `other` is at least as high, as the program computes it that sums in that `order`.
    """
    check_counterexample_ending(path)
    order = sorted(found)
    arrays = {
        "index": np.array(order, dtype=np.int64),
        "winner": np.array([found[index].winner for index in order], dtype=np.int64),
        "other": np.array([found[index].other for index in order], dtype=np.int64),
        "semantics": np.array(semantics),
    }
    if semantics == "real":
        rows = {"delta": [each.delta for each in map(found.__getitem__, order) if isinstance(each, Counterexample)]}
    else:
        some = map(found.__getitem__, order)
        both = [(each.near, each.changed) for each in some if isinstance(each, FloatCounterexample)]
        rows = {"near": [near for near, _ in both], "changed": [changed for _, changed in both]}
        arrays["order"] = np.array(SEQUENTIAL)
    for name, each_row in rows.items():
        arrays[name] = np.array(each_row).reshape(len(order), inputs)
    with atomic_writer(path) as file:
        write_arrays(file, arrays, compressed=True)
