"""``python -m intervalcert.checker run.cert --model model.npz``: says what is accepted, line by line, or refuses it.

Exit codes: 0 all claims are proved, 2 usage, 3 a file that cannot be understood, 4 a claim that is not proved.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path

from .claims import Tables, check_certificate
from .core import Refused
from .model import Malformed
from .reading import file_sha256, read_model, read_table

MALFORMED, NOT_PROVED = 3, 4


def tables_of(outputs: Path | None, inputs: Path | None) -> Tables:
    """Of files. Raises: Malformed."""

    def rows(scale: Fraction) -> Iterator[Sequence[Fraction]]:
        return read_table(inputs or Path(), scale)

    return Tables(
        None if outputs is None else lambda: read_table(outputs, Fraction(1)),
        "" if outputs is None else file_sha256(outputs),
        None if inputs is None else rows,
        "" if inputs is None else file_sha256(inputs),
    )


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="checker", description=__doc__, allow_abbrev=False)
    parser.add_argument("certificate", type=Path)
    parser.add_argument("--model", type=Path, required=True, help="our .npz, or the text format")
    parser.add_argument("--activation", metavar="NAME", help="between the layers of a text file (default relu)")
    parser.add_argument("--outputs", type=Path, metavar="FILE", help="the logits that it is about: .npy or text")
    parser.add_argument("--inputs", type=Path, metavar="FILE", help="the inputs that it is about: .npy or text")
    given = parser.parse_args(words)
    try:
        model = read_model(given.model, given.activation)
        check_certificate(given.certificate, model, tables_of(given.outputs, given.inputs), said)
    except Malformed as error:
        return failed(f"not understood: {error}", MALFORMED)
    except Refused as error:
        return failed(f"NOT PROVED: {error}", NOT_PROVED)
    print("all claims are proved: certificate accepted")
    return 0


def said(line: str) -> None:
    print(f"accepted  {line}", flush=True)


def failed(line: str, code: int) -> int:
    print(line, file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
