"""``python -m intervalcert.checker run.cert --model model.npz``: says what is accepted, line by line, or refuses it.

Exit codes: 0 all claims are proved, 2 usage, 3 a file that cannot be understood, 4 a claim that is not proved.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path

from .claims import Tables, check_certificate
from .core import Refused
from .model import Malformed
from .reading import file_sha256, read_model, read_table

MALFORMED, NOT_PROVED = 3, 4


def tables_of(outputs: Path | None, inputs: Path | None, scale: str | None) -> Tables:
    """Of files. scale: what inputs are multiplied with, in words; 1 if nothing is said. Raises: Malformed."""
    try:
        times = Fraction(1) if scale is None else Fraction(scale) if len(scale) < 200 else Fraction(0)
    except (ValueError, ZeroDivisionError):
        times = Fraction(0)
    if times <= 0:
        raise Malformed("--input-scale: a positive number is expected, such as 1/255")

    def rows(scale: Fraction) -> Iterator[Sequence[Fraction]]:
        return read_table(inputs or Path(), scale)

    return Tables(
        None if outputs is None else lambda: read_table(outputs, Fraction(1)),
        "" if outputs is None else file_sha256(outputs),
        None if inputs is None else rows,
        "" if inputs is None else file_sha256(inputs),
        times,
    )


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="checker", description=__doc__, allow_abbrev=False)
    parser.add_argument("certificate", type=Path)
    parser.add_argument("--model", type=Path, required=True, help="our .npz, or the text format")
    parser.add_argument("--activation", metavar="NAME", help="between the layers of a text file (default relu)")
    parser.add_argument("--outputs", type=Path, metavar="FILE", help="the logits that it is about: .npy or text")
    parser.add_argument("--inputs", type=Path, metavar="FILE", help="the inputs that it is about: .npy or text")
    parser.add_argument("--input-scale", metavar="S", help="what the inputs are multiplied with, such as 1/255")
    given = parser.parse_args(words)
    try:
        model = read_model(given.model, given.activation)
        check_certificate(given.certificate, model, tables_of(given.outputs, given.inputs, given.input_scale), said)
    except Malformed as error:
        return failed(f"not understood: {error}", MALFORMED)
    except Refused as error:
        return failed(f"NOT PROVED: {error}", NOT_PROVED)
    except BrokenPipeError:  # nobody reads what is accepted
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return MALFORMED
    print("all claims are proved: certificate accepted")
    return 0


def said(line: str) -> None:
    print(f"accepted  {line}", flush=True)


def failed(line: str, code: int) -> int:
    print(line, file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
