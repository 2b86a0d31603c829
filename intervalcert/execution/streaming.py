"""Many outputs: arrays and files of logits in, verdicts out, and what they come to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import numpy.typing as npt

from intervalcert.errors import InputError, UsageError
from intervalcert.execution.processes import OnRows, verify_batches
from intervalcert.io.files import is_plain, stamp_of
from intervalcert.io.tables import LabelSource, RowSource, open_labels, open_rows
from intervalcert.io.tables.writers import Write
from intervalcert.model.network import Network
from intervalcert.model.single import Single
from intervalcert.numbers.matrices import RationalVector
from intervalcert.numbers.parsing import as_row, as_rows, is_flat, plain_array
from intervalcert.proof.decision import Bracket, Verdict
from intervalcert.verify.jobs import Batch, batches_of
from intervalcert.verify.number_table import Epsilons, NumberTable, input_sides
from intervalcert.verify.points import PointVerifier
from intervalcert.verify.program_logits import LogitVerifier
from intervalcert.verify.units import Box, Units, units_of
from intervalcert.verify.vectorised import VectorisedCertifier
from intervalcert.verify.verdicts import EXACT, Verdicts, is_one_for_all

__all__ = [
    "Outputs",
    "Summary",
    "certify_inputs_of",
    "certify_source",
    "outputs_of",
    "read_labels",
    "read_outputs",
    "summarise",
    "surveyed",
    "table_of",
    "verified_inputs",
]


MAX_HELD = 2**24
"""Numbers of a table that can be read only once: 128 MiB as floats."""


@dataclass(frozen=True)
class Outputs:
    """Logits, one row per output, all equally long; the eps of each and the header line, where the file has them."""

    rows: tuple[RationalVector, ...]
    epsilons: tuple[Fraction, ...] | None = None
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
    epsilons: list[Fraction] = []
    for chunk in open_rows(path, classes, on_header=lambda line, taken: headers.extend([line] * taken)).chunks:
        rows += map(chunk.row, range(len(chunk)))
        epsilons += [] if chunk.epsilons is None else map(chunk.epsilons.exact, range(len(chunk)))
    return Outputs(tuple(rows), tuple(epsilons) or None, headers[0] if headers else None)


def read_labels(path: str | Path, count: int, classes: int) -> tuple[int, ...]:
    """One class number per output: a ``.npy`` vector, or one per line."""
    source = open_labels(path, classes)
    found = source.take(count)
    source.check_count(count)
    return tuple(found.tolist())


# -- through ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Summary:
    """Counts over a set of outputs. accuracy and vra (verified robust accuracy) are parts of 1, None without labels.

    semantics, eps_space: what the verdicts are about. eps: of all outputs; None if they differ.
    exactly: outputs that the filter left to exact rationals.
    locally: how many of the certified ones are so by local refinement alone.
    falsified: how many are. methods: how many were decided by which; both, where every point was to be decided.
    proved_by: how many certificates each number system proved. faults: how many attempts ended by what.
    single: how a single output was read.
    units: how inputs were read; None where logits were given.
    right_and_falsified: None without labels. within_box: of those that are falsified, by an input that is in the box
    that was named; None without one. brackets: what is known of those that are open, by index, where that is something.
    """

    certified: int
    total: int
    exactly: int
    semantics: str
    eps_space: str
    right: int | None = None
    right_and_certified: int | None = None
    eps: Fraction | None = None
    locally: int = 0
    falsified: int = 0
    methods: Counter[str] = field(default_factory=Counter)
    proved_by: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    single: Single | None = None
    units: Units | None = None
    right_and_falsified: int | None = None
    within_box: int | None = None
    brackets: Mapping[int, Bracket] = field(default_factory=dict)

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
        semantics=found.semantics,
        eps_space=found.eps_space,
        right=None if right is None else int(right.sum()),
        right_and_certified=None if right is None else int((right & found.certified).sum()),
        locally=int(found.locally.sum()),
        falsified=int(found.falsified.sum()),
        methods=_methods(found),
        proved_by=_provers(found),
        faults=_faults(found),
        right_and_falsified=None if right is None else int((right & found.falsified).sum()),
        brackets=found.brackets,
    )


def _provers(found: Verdicts) -> Counter[str]:
    """How many of the certified ones each number system proved."""
    if not is_one_for_all(found.decided_by):
        return Counter(found.proved_by[found.certified].tolist())
    exactly = int((found.exactly & found.certified).sum())
    return +Counter({str(found.decided_by[0]): int(found.certified.sum()) - exactly, EXACT: exactly})


def _methods(found: Verdicts) -> Counter[str]:
    """How many were decided by which; of what is left open none."""
    decided = found.certified | found.falsified
    if is_one_for_all(found.method):
        return +Counter({str(found.method[0]): int(decided.sum())})
    return Counter(found.method[decided].tolist())


def _faults(found: Verdicts) -> Counter[str]:
    """How often each occurs."""
    if is_one_for_all(found.fault):  # as a rule there is none
        return +Counter({str(found.fault[0]): len(found) if found.fault[0] else 0})
    return Counter(found.fault[found.fault != ""].tolist())


def certify_source(
    certifier: VectorisedCertifier | LogitVerifier,
    source: RowSource,
    epsilons: Epsilons | None,
    *,
    labels: LabelSource | None = None,
    write: Write | None = None,
    on_rows: OnRows = lambda *_: None,
) -> Summary:
    """Verdicts for the outputs of a file, at one eps or (None) at each one's own, chunk by chunk.

    write: takes the verdicts; without it only their number is wanted, and radii may be left out.
    on_rows: called with the rows of each chunk and its part of source.size.
    """

    def verified() -> Iterator[tuple[Verdicts, Fraction | None]]:
        for rows in source.chunks:
            own = _own(epsilons, rows)
            verdicts = certifier.verdicts(rows, own, with_radius=write is not None)
            yield verdicts, own.common
            on_rows(len(verdicts), rows.work)

    return _summed(verified(), labels, write)


def verified_inputs(
    verifier: PointVerifier,
    chunks: Iterable[NumberTable],
    units: Units,
    epsilons: Epsilons | None,
    *,
    jobs: int = 1,
    on_rows: OnRows = lambda *_: None,
) -> Iterator[tuple[Verdicts, Fraction | None]]:
    """The verdicts of a table of inputs, batch by batch, in so many processes; each with the eps that they share.

    units: those of the whole table. epsilons: as in `certify_source`.
    """

    def batches() -> Iterator[Batch]:
        for rows in chunks:
            yield from batches_of(rows, verifier.job.network, units.scale, _own(epsilons, rows))

    for batch, verdicts in verify_batches(verifier, batches(), jobs, on_rows):
        yield verdicts, batch.common_eps


def certify_inputs_of(
    verifier: PointVerifier,
    source: RowSource,
    units: Units,
    epsilons: Epsilons | None,
    *,
    jobs: int = 1,
    labels: LabelSource | None = None,
    write: Write | None = None,
    on_rows: OnRows = lambda *_: None,
) -> Summary:
    """What a file of inputs that was `surveyed` comes to."""
    found = verified_inputs(verifier, source.chunks, units, epsilons, jobs=jobs, on_rows=on_rows)
    return replace(_summed(found, labels, write), units=units)


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


def _own(epsilons: Epsilons | None, rows: NumberTable) -> Epsilons:
    own = epsilons or rows.epsilons
    if own is None:
        raise UsageError(f"{rows.what} carries no eps of its own: say --eps E")
    return own


def _summed(
    verified: Iterable[tuple[Verdicts, Fraction | None]], labels: LabelSource | None, write: Write | None
) -> Summary:
    """What verdicts, each with the eps that they share, come to. Requires: some."""
    total: Summary | None = None
    for verdicts, eps in verified:
        if write is not None:
            write(verdicts)
        found = summarise(verdicts, None)
        if labels is not None:
            known = labels.take(len(verdicts))
            found = summarise(verdicts[: len(known)], known)
        found = replace(found, total=len(verdicts), eps=eps)
        total = found if total is None else _added(total, found)
    if total is None:
        raise ValueError("a table without rows")
    if labels is not None:
        labels.check_count(total.total)
    return total


def _added(one: Summary, other: Summary) -> Summary:
    return replace(
        one,
        certified=one.certified + other.certified,
        total=one.total + other.total,
        exactly=one.exactly + other.exactly,
        right=None if one.right is None else one.right + (other.right or 0),
        right_and_certified=(
            None if one.right_and_certified is None else one.right_and_certified + (other.right_and_certified or 0)
        ),
        eps=other.eps if one.eps == other.eps else None,
        locally=one.locally + other.locally,
        falsified=one.falsified + other.falsified,
        methods=one.methods + other.methods,
        proved_by=one.proved_by + other.proved_by,
        faults=one.faults + other.faults,
        right_and_falsified=(
            None if one.right_and_falsified is None else one.right_and_falsified + (other.right_and_falsified or 0)
        ),
        brackets={**one.brackets, **other.brackets},
    )
