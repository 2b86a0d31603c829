"""The text network of the source paper, its biases, and its outputs. Decimals are read exactly.

A network is ``[[1.0,2.0],[3.0,4.0]],[[…]]``: one matrix per layer, each written inputs x outputs, so it is transposed
here. Biases are ``[…],[…]``, one vector per layer.
"""

from __future__ import annotations

import re
from pathlib import Path

from intervalcert.errors import InputError, shortened
from intervalcert.io.files import read_text
from intervalcert.io.models.interface import Hints, Reading
from intervalcert.model.network import Network
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.parsing import parse_decimal

__all__ = ["read", "read_biases"]

_TOKEN = re.compile(r"\s*([\[\],]|[^\[\],\s]+)")

Decimals = list[tuple[int, int]]


def read(path: Path, hints: Hints) -> Reading:
    """The network, with biases from another file if one is named."""
    biases = None if hints.biases is None else read_biases(hints.biases)
    return Reading(Network.of(_read_network(path), biases, between=hints.between))


def _read_network(path: Path) -> list[RationalMatrix]:
    """The weight matrices, outputs x inputs."""
    return [_matrix(rows, layer, path).transposed() for layer, rows in enumerate(_Parser(path).matrices())]


def read_biases(path: Path) -> list[RationalMatrix | None]:
    """One column per layer."""
    return [RationalMatrix.from_decimals([[x] for x in vector]) for vector in _Parser(path).vectors()]


def _matrix(rows: list[Decimals], layer: int, path: Path) -> RationalMatrix:
    for index, row in enumerate(rows):
        if len(row) != len(rows[0]):
            raise InputError(
                f"{path}: layer {layer} is ragged: row {index} has {len(row)} numbers, row 0 has {len(rows[0])}"
            )
    try:
        return RationalMatrix.from_decimals(rows)
    except InputError as error:
        raise InputError(f"{path}: layer {layer}: {error}") from None


class _Parser:
    """Recursive descent over brackets, commas and numbers; it stops at the first thing that does not belong."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._text = read_text(path).rstrip()
        self._at = 0

    def matrices(self) -> list[list[Decimals]]:
        found = [self._bracketed_vectors()]
        while self._at < len(self._text):
            self._expect(",")
            found.append(self._bracketed_vectors())
        return found

    def vectors(self) -> list[Decimals]:
        found = [self._vector()]
        while self._at < len(self._text):
            self._expect(",")
            found.append(self._vector())
        return found

    def _bracketed_vectors(self) -> list[Decimals]:
        self._expect("[")
        rows = [self._vector()]
        while self._next("',' or ']'") == ",":
            rows.append(self._vector())
        self._was("]")
        return rows

    def _vector(self) -> Decimals:
        self._expect("[")
        # A vector holds no brackets, so its end is the next one: split it as a whole, which is fast.
        end = self._text.find("]", self._at)
        if end < 0:
            raise self._error("the file ends inside a row (is it truncated?)")
        inside = self._text[self._at : end]
        if "[" in inside:
            self._at += inside.index("[")
            raise self._error("'[' found where a number is expected")
        numbers: Decimals = []
        for item in inside.split(","):
            try:
                numbers.append(parse_decimal(item))
            except InputError as error:
                self._at += len(item) - len(item.lstrip())
                raise self._error(str(error)) from None
            self._at += len(item) + 1
        return numbers

    def _next(self, wanted: str) -> str:
        match = _TOKEN.match(self._text, self._at)
        if match is None:
            raise self._error(f"the file ends where {wanted} is expected (is it truncated?)")
        self._last, self._at = match[1], match.end()
        return self._last

    def _expect(self, token: str) -> None:
        self._next(repr(token))
        self._was(token)

    def _was(self, token: str) -> None:
        if self._last != token:
            self._at -= len(self._last)
            raise self._error(f"{shortened(self._last, 20)!r} found where {token!r} is expected")

    def _error(self, what: str) -> InputError:
        line = self._text.count("\n", 0, self._at) + 1
        column = self._at - self._text.rfind("\n", 0, self._at)
        return InputError(f"{self._path}, line {line}, column {column}: {what}")
