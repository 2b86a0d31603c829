"""Enclosures of logits to files and to standard output, rounded outward in text."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from intervalcert.errors import UsageError
from intervalcert.io.files import atomic_writer
from intervalcert.model.single import Single
from intervalcert.verify.enclosures import Evaluation

__all__ = ["check_enclosure_ending", "enclosure_sink", "enclosure_text"]

WriteEnclosures = Callable[[Evaluation], None]

_DOWN, _UP = Context(prec=17, rounding=ROUND_FLOOR), Context(prec=17, rounding=ROUND_CEILING)


def check_enclosure_ending(path: Path) -> None:
    """Raises: UsageError if enclosures cannot be written to a file of that name."""
    if path.suffix.lower() not in {".csv", ".npy", ".npz"}:
        raise UsageError(f"{path}: enclosures are written as .csv, .npy or .npz; choose one of these endings")


def enclosure_text(write: Callable[[str], object], single: Single | None = None) -> WriteEnclosures:
    """Lines of text: index, argmax (empty where the ends do not tell it), lower and upper end of each logit.

    single: how a single output is read; where it makes no classes there is no argmax.
    """
    count = -1
    classes = ["argmax"] if single is None or single.threshold is not None else []

    def take(found: Evaluation) -> None:
        nonlocal count
        low, high = found.lower[-1], found.upper[-1]
        if count < 0:
            names = (f"lower{k},upper{k}" for k in range(low.shape[1]))
            write(",".join(("index", *classes, *names)))
        for lower, upper in zip(low, high, strict=True):
            count += 1
            ends = (f"{_text(a, _DOWN)},{_text(b, _UP)}" for a, b in zip(lower.tolist(), upper.tolist(), strict=True))
            winner = [_winner(lower, upper, single) for _ in classes]
            write(",".join((str(count), *winner, *ends)))

    return take


def _text(x: float, context: Context) -> str:
    """A decimal on the safe side of the float; `decimal` converts it exactly and rounds once."""
    return str(context.create_decimal_from_float(x)).replace("Infinity", "inf").lower()


def _winner(lower: npt.NDArray[np.float64], upper: npt.NDArray[np.float64], single: Single | None) -> str:
    """The class that is proved to have the largest logit, or to be on its side of the threshold."""
    if single is not None:
        above, below = float(lower[0]) > single.constant, float(upper[0]) <= single.constant
        return "1" if above else "0" if below else ""
    best = int(np.argmax(lower))
    others = np.delete(upper, best)
    return str(best) if (lower[best] > others).all() else ""


@contextlib.contextmanager
def enclosure_sink(path: Path, single: Single | None = None) -> Iterator[WriteEnclosures]:
    """Takes enclosures and writes them to a file that appears complete, or not at all."""
    check_enclosure_ending(path)
    with atomic_writer(path) as file:
        if path.suffix.lower() == ".csv":
            yield enclosure_text(lambda line: file.write(line.encode() + b"\n"), single)
            return
        parts: list[Evaluation] = []
        yield parts.append
        _save(file, Evaluation.joined(parts), all_layers=path.suffix.lower() == ".npz")


def _save(file: IO[bytes], found: Evaluation, *, all_layers: bool) -> None:
    if all_layers:
        named = {f"lower{index}": ends for index, ends in enumerate(found.lower)}
        named |= {f"upper{index}": ends for index, ends in enumerate(found.upper)}
        np.savez(file, **named)  # type: ignore[arg-type]
    else:
        np.save(file, np.stack([found.lower[-1], found.upper[-1]], axis=2), allow_pickle=False)
