"""Counterexamples to a file: what was falsified, and by which change of the input."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from intervalcert.errors import UsageError
from intervalcert.io.array_archive import write_arrays
from intervalcert.io.files import atomic_writer
from intervalcert.proof.counterexample import Counterexample

__all__ = ["check_counterexample_ending", "save_counterexamples"]


def check_counterexample_ending(path: Path) -> None:
    """Raises: UsageError for a file of another kind."""
    if path.suffix.lower() != ".npz":
        raise UsageError(f"{path}: counterexamples are written as .npz")


def save_counterexamples(found: Mapping[int, Counterexample], inputs: int, path: Path) -> None:
    """By the index of the input, in order: index, delta (one row each), winner, other. inputs: numbers per input.

    The input is x + delta, x being the scaled input, exactly; there the logit of `other` is at least that of `winner`,
    who wins at x.
    """
    check_counterexample_ending(path)
    order = sorted(found)
    arrays = {
        "index": np.array(order, dtype=np.int64),
        "delta": np.array([found[index].delta for index in order]).reshape(len(order), inputs),
        "winner": np.array([found[index].winner for index in order], dtype=np.int64),
        "other": np.array([found[index].other for index in order], dtype=np.int64),
    }
    with atomic_writer(path) as file:
        write_arrays(file, arrays, compressed=True)
