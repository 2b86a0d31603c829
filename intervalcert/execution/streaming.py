"""Many outputs: arrays and files of logits in, verdicts out, and what they come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt

from intervalcert.errors import InputError, UsageError
from intervalcert.execution.processes import verify_batches
from intervalcert.io.files import is_plain, stamp_of
from intervalcert.io.tables import LabelSource, RowSource, open_labels, open_rows
from intervalcert.io.tables.writers import (
    RADIUS_COLUMNS,
    VERDICT_COLUMNS,
    Meaning,
    Write,
    check_ending,
    csv_pieces,
    radius_text,
    verdict_sink,
)
from intervalcert.model.network import Network
from intervalcert.model.single import Single
from intervalcert.numbers.matrices import RationalVector
from intervalcert.numbers.parsing import as_row, as_rows, is_flat, plain_array
from intervalcert.proof.decision import Certifier, Verdict
from intervalcert.verify.filter import Bools
from intervalcert.verify.number_table import Epsilons, NumberTable, input_sides
from intervalcert.verify.points import Batch, Job, LogitVerifier, batches_of
from intervalcert.verify.units import Box, Units, units_of
from intervalcert.verify.vectorised import VectorisedCertifier
from intervalcert.verify.verdicts import Texts, Verdicts

__all__ = [
    "RADIUS_COLUMNS",
    "VERDICT_COLUMNS",
    "Meaning",
    "Outputs",
    "Summary",
    "certify_all",
    "certify_inputs_of",
    "certify_source",
    "check_ending",
    "csv_pieces",
    "outputs_of",
    "radius_text",
    "read_labels",
    "read_outputs",
    "summarise",
    "surveyed",
    "table_of",
    "verdict_sink",
]


MAX_HELD = 2**24
"""Numbers of a table that can be read only once: 128 MiB as floats."""


@dataclass(frozen=True)
class Outputs:
    """Logits, one row per output, all equally long; the radii and the header line, where the file has them."""

    rows: tuple[RationalVector, ...]
    radii: tuple[Fraction, ...] | None = None
    header: str | None = None


# -- in: exact rows, all at once -------------------------------------------------------------------------------------


def table_of(
    array: npt.ArrayLike, what: str = "the outputs", shape: tuple[int, ...] | None = None
) -> NumberTable | None:
    """An array of logits, one output per row, or a single output; None for a list: its numbers are read one by one.

    shape: these are inputs, each of that shape or flat.
    """
    found = plain_array(array)
    if found is None:
        return None
    found = np.atleast_2d(found) if shape is None else found.reshape(input_sides(found.shape, shape, what))
    if found.ndim != 2 or 0 in found.shape:
        raise InputError(f"{what}: an array of shape {found.shape} where a non-empty matrix is expected")
    return NumberTable.of_array(found, what)


def outputs_of(array: npt.ArrayLike, what: str = "the outputs") -> Outputs:
    """From an array or a list: one output per row, or a single output. Each number is taken at its exact value."""
    found = table_of(array, what)
    if found is not None:
        return Outputs(tuple(map(found.row, range(len(found)))))
    rows = [as_row(array, what.removesuffix("s"))] if is_flat(array, what) else as_rows(array, what)
    return Outputs(tuple(map(RationalVector.from_fractions, rows)))


def read_outputs(path: str | Path, classes: int | None = None) -> Outputs:
    """All outputs of a file, exactly: for few. See `certify_source` for many."""
    headers: list[str] = []
    rows: list[RationalVector] = []
    radii: list[Fraction] = []
    for chunk in open_rows(path, classes, on_header=lambda line, taken: headers.extend([line] * taken)).chunks:
        rows += map(chunk.row, range(len(chunk)))
        radii += [] if chunk.radii is None else map(chunk.radii.exact, range(len(chunk)))
    return Outputs(tuple(rows), tuple(radii) or None, headers[0] if headers else None)


def read_labels(path: str | Path, count: int, classes: int) -> tuple[int, ...]:
    """One class number per output: a ``.npy`` vector, or one per line."""
    source = open_labels(path, classes)
    found = source.take(count)
    source.check_count(count)
    return tuple(found.tolist())


# -- through ---------------------------------------------------------------------------------------------------------


def certify_all(
    certifier: Certifier,
    outputs: Outputs,
    radii: Sequence[Fraction],
    on_output: Callable[[], None] = lambda: None,
) -> tuple[Verdict, ...]:
    """A verdict for each output at its radius, one by one."""
    verdicts = []
    for index, (row, eps) in enumerate(zip(outputs.rows, radii, strict=True)):
        verdicts.append(certifier.verdict(row, eps, index))
        on_output()
    return tuple(verdicts)


@dataclass(frozen=True)
class Summary:
    """Counts over a set of outputs. accuracy and vra (verified robust accuracy) are parts of 1, None without labels.

    exactly: outputs that the filter left to exact rationals. eps: the radius of all outputs; None if they differ.
    locally: how many of the certified ones are so by local refinement alone.
    proved_by: how many certificates from inputs each number system proved. faults: how many attempts ended by what.
    single: how a single output was read.
    units: how inputs were read; None where logits were given.
    """

    certified: int
    total: int
    exactly: int
    right: int | None = None
    right_and_certified: int | None = None
    eps: Fraction | None = None
    locally: int = 0
    proved_by: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    single: Single | None = None
    units: Units | None = None

    @property
    def accuracy(self) -> float | None:
        return None if self.right is None else self.right / self.total

    @property
    def vra(self) -> float | None:
        return None if self.right_and_certified is None else self.right_and_certified / self.total


def summarise(verdicts: Sequence[Verdict], labels: Sequence[int] | npt.NDArray[np.int64] | None) -> Summary:
    """VRA: the share of outputs that are both right and certified."""
    found = Verdicts.of(verdicts)
    right = None if labels is None else found.argmax == np.asarray(labels)
    return Summary(
        certified=int(found.certified.sum()),
        total=len(found),
        exactly=int(found.exactly.sum()),
        right=None if right is None else int(right.sum()),
        right_and_certified=None if right is None else int((right & found.certified).sum()),
        locally=int(found.locally.sum()),
        proved_by=_counted(found.proved_by, found.certified),
        faults=_counted(found.fault, np.True_),
    )


def _counted(texts: Texts, where: Bools | np.bool_) -> Counter[str]:
    """How often each occurs there; nothing is not counted."""
    if not any(texts.strides):  # one text for all, which is nothing: given logits, of which there may be many
        return Counter()
    return Counter(texts[where & (texts != "")].tolist())


def certify_source(
    certifier: VectorisedCertifier | LogitVerifier,
    source: RowSource,
    radii: Epsilons | None,
    *,
    labels: LabelSource | None = None,
    write: Write | None = None,
    on_rows: Callable[[int, int], None] = lambda *_: None,
) -> Summary:
    """Verdicts for the outputs of a file, at one radius or (None) at each one's own, chunk by chunk.

    write: takes the verdicts; without it only their number is wanted, and radii may be left out.
    on_rows: called with the rows of each chunk and its part of source.size.
    """

    def judged() -> Iterator[tuple[Verdicts, Fraction | None, int]]:
        for rows in source.chunks:
            own = _own(radii, rows, source)
            yield certifier.verdicts(rows, own, with_radius=write is not None), own.common, rows.work

    return _summed(judged(), labels, write, on_rows)


def certify_inputs_of(
    job: Job,
    source: RowSource,
    units: Units,
    radii: Epsilons | None,
    *,
    jobs: int = 1,
    labels: LabelSource | None = None,
    write: Write | None = None,
    on_rows: Callable[[int, int], None] = lambda *_: None,
) -> Summary:
    """The same for a file of inputs that was `surveyed`, in so many processes."""

    def batches() -> Iterator[Batch]:
        for rows in source.chunks:
            yield from batches_of(rows, job.network, units.scale, _own(radii, rows, source))

    judged = ((verdicts, batch.common, batch.work) for batch, verdicts in verify_batches(job, batches(), jobs, on_rows))
    return replace(_summed(judged, labels, write), units=units)


def surveyed(
    path: Path, opened: Callable[[], RowSource], network: Network, scale: Fraction | None, box: Box | None = None
) -> tuple[RowSource, Units]:
    """A table of inputs, to be read now, and what all of it is: it has been read before.

    A file is read twice, and must not change; what can be read only once (a pipe) is held in memory.
    Raises: InputError as `units_of` does; for a pipe that holds too much.
    """
    if not is_plain(path):
        source = opened()
        held = list(_within_memory(source))
        return replace(source, chunks=iter(held)), units_of(held, network, scale, box)
    before = stamp_of(path)
    units = units_of(opened().chunks, network, scale, box)
    source = opened()

    def unchanged() -> Iterator[NumberTable]:
        yield from source.chunks
        if stamp_of(path) != before:
            raise InputError(f"{path} was changed while it was read: try again when nobody writes to it")

    return replace(source, chunks=unchanged()), units


def _within_memory(source: RowSource) -> Iterator[NumberTable]:
    count = 0
    for rows in source.chunks:
        count += rows.values.size
        if count > MAX_HELD:
            raise InputError(
                f"{source.path} can be read only once, and more than {MAX_HELD} numbers are not held in memory for a "
                "second look: write them to a file"
            )
        yield rows


def _own(radii: Epsilons | None, rows: NumberTable, source: RowSource) -> Epsilons:
    own = radii or rows.radii
    if own is None:
        raise UsageError(f"{source.path} carries no radii: say --eps E")
    return own


def _summed(
    judged: Iterable[tuple[Verdicts, Fraction | None, int]],
    labels: LabelSource | None,
    write: Write | None,
    on_rows: Callable[[int, int], None] = lambda *_: None,
) -> Summary:
    """What verdicts, each with the radius that they share and their part of the work, come to."""
    total = Summary(0, 0, 0, *((0, 0) if labels is not None else (None, None)))
    for verdicts, eps, work in judged:
        if write is not None:
            write(verdicts)
        found = summarise(verdicts, None)
        if labels is not None:
            known = labels.take(len(verdicts))
            found = summarise(verdicts[: len(known)], known)
        total = _added(total, replace(found, total=len(verdicts), eps=eps))
        on_rows(len(verdicts), work)
    if labels is not None:
        labels.check_count(total.total)
    return total


def _added(one: Summary, other: Summary) -> Summary:
    return Summary(
        one.certified + other.certified,
        one.total + other.total,
        one.exactly + other.exactly,
        None if one.right is None else one.right + (other.right or 0),
        None if one.right_and_certified is None else one.right_and_certified + (other.right_and_certified or 0),
        other.eps if not one.total or one.eps == other.eps else None,
        one.locally + other.locally,
        one.proved_by + other.proved_by,
        one.faults + other.faults,
    )
