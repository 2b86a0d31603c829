"""Certificates on the command line: what is written beside the results, and what an audit says of one."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from intervalcert.cli.progress import print_message, row_progress
from intervalcert.errors import InputError, SoundnessError, UsageError

if TYPE_CHECKING:
    from fractions import Fraction

    from intervalcert.bounds.results import Bounds
    from intervalcert.io.certificate import CertificateWriter, FoundPoints
    from intervalcert.io.tables.writers import Write
    from intervalcert.model.network import Network
    from intervalcert.verify.verdicts import Verdicts

__all__ = [
    "audit_certificate",
    "certificate",
    "check_certifiable",
    "check_file",
    "check_network",
    "recorded",
    "write_points",
]


def check_file(arguments: argparse.Namespace, *others: Path | None) -> None:
    """Refuses at once a certificate that cannot be written."""
    from intervalcert.io.files import check_output

    if arguments.certificate is not None:
        check_output(arguments.certificate, *others)


def check_network(arguments: argparse.Namespace, network: Network) -> None:
    """Before anything takes long. Raises: InputError for a network that no certificate is of."""
    if arguments.certificate is not None:
        from intervalcert.io.certificate import checked_model

        checked_model(network)


@contextlib.contextmanager
def certificate(arguments: argparse.Namespace, network: Network, bounds: Bounds) -> Iterator[CertificateWriter]:
    """What writes the certificate, with all that is claimed of the bounds; the points are to come."""
    from intervalcert.io.certificate import CertificateWriter
    from intervalcert.io.files import atomic_writer

    with atomic_writer(arguments.certificate) as file, CertificateWriter(file, network, bounds) as writer:
        yield writer
    print_message(f"wrote {arguments.certificate}")


def write_points(
    arguments: argparse.Namespace,
    network: Network,
    bounds: Bounds,
    kind: str,
    eps: Fraction,
    scale: Fraction,
    found: FoundPoints,
) -> None:
    """The certificate of outputs or inputs. What it cannot show is said."""
    from intervalcert.checker.model import Malformed
    from intervalcert.checker.reading import file_sha256, read_table
    from intervalcert.io.certificate import PointsAbout

    path = arguments.inputs if kind == "inputs" else arguments.outputs
    about = PointsAbout(kind, file_sha256(path), eps, scale)
    with certificate(arguments, network, bounds) as writer, row_progress("certificate", None) as on_rows:

        def rows() -> Iterator[Sequence[Fraction]]:
            for row in read_table(path, scale):
                yield row
                on_rows(1, 0)

        try:
            counts = writer.write_points(about, rows(), found)
        except Malformed as error:
            raise InputError(f"{error} (a certificate is about tables that the checker reads)") from None
    shown = f"{counts[1]} by margins, {counts[2]} at the input itself, {counts[3]} counterexamples"
    print_message(f"{arguments.certificate} shows {shown}; {counts[0]} of {sum(counts)} are unknown there")


def check_certifiable(arguments: argparse.Namespace) -> None:
    """Refuses at once what no certificate is of. Raises: UsageError, InputError."""
    if arguments.certificate is None:
        return
    if arguments.deployed != "real":
        raise UsageError("--certificate is about the network over the reals: there is none yet of programs in floats")
    if arguments.model is None:
        raise UsageError("--certificate proves the bounds again, from the model: say --model MODEL")
    if arguments.eps is None:
        raise UsageError("--certificate is about one eps for all: say --eps E")
    names = ("model", "biases", "inputs", "labels", "output", "counterexamples", "bounds", "outputs")
    check_file(arguments, *(getattr(arguments, name) for name in names))


def recorded(arguments: argparse.Namespace, write: Write | None) -> tuple[FoundPoints | None, Write | None]:
    """What the verdicts come to, if a certificate is asked for, and what is to be told of each of them."""
    if arguments.certificate is None:
        return None, write
    from intervalcert.io.certificate import FoundPoints

    found = FoundPoints()

    def seen(verdicts: Verdicts) -> None:
        found.add(verdicts)
        if write is not None:
            write(verdicts)

    return found, seen


def audit_certificate(arguments: argparse.Namespace, network: Network) -> int:
    """By the checker that stands alone; the model may be of any format."""
    from intervalcert.checker.__main__ import said, tables_of
    from intervalcert.checker.claims import check_certificate
    from intervalcert.checker.core import Refused
    from intervalcert.checker.model import Malformed
    from intervalcert.io.certificate import checked_model

    model = checked_model(network)
    try:
        tables = tables_of(arguments.outputs, arguments.inputs, arguments.input_scale)
        check_certificate(arguments.bounds, model, tables, said)
    except Malformed as error:
        raise InputError(str(error)) from None
    except Refused as error:
        raise SoundnessError(f"{arguments.bounds} claims what is not proved: {error}") from None
    print("all claims are proved: certificate accepted")
    return 0
