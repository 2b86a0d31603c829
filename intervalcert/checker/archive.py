"""The archive of a certificate: a zip of a manifest in JSON and of plain arrays of integers. Limits before allocation.

A member ``name.iW`` holds integers of W bytes (1, 2, 4 or 8), with a sign, the least significant byte first.
"""

from __future__ import annotations

import json
import struct
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

from .model import Malformed

__all__ = ["Archive", "fields", "integers", "is_certificate"]

MANIFEST = "manifest.json"
CODES = {1: "b", 2: "h", 4: "i", 8: "q"}
MOST_DIRECTORY, MOST_MANIFEST, MOST_BYTES, MOST_GROWTH = 1 << 24, 1 << 26, 1 << 28, 1000

_END, _LARGE, _LOCATOR = struct.Struct("<4s4H2IH"), struct.Struct("<4sQ2H2I4Q"), 20
"""The last record of a zip; that of large ones, and what is between both."""


class Archive:
    """An open certificate. Each member is read when it is asked for, once; what nobody asked for is left over."""

    def __init__(self, path: Path) -> None:
        """Raises: Malformed."""
        self.path = path
        try:
            _check_directory(path)
            self._file = zipfile.ZipFile(path)
        except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError, struct.error) as error:
            raise Malformed(f"{path} is no certificate that can be read ({error})") from None
        members = self._file.infolist()
        if any(member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED) for member in members):
            raise Malformed(f"{path} is compressed in another way than certificates are")
        self._members = {member.filename: member for member in members}
        if len(self._members) < len(members):
            raise Malformed(f"{path} has a member twice")
        self._arrays = {name.rpartition(".i")[0]: name for name in self._members if name != MANIFEST}
        if len(self._arrays) != len(members) - 1:
            raise Malformed(f"{path} has no manifest, or an array twice")
        self.manifest: Any = self._json()

    def close(self) -> None:
        self._file.close()

    def _bytes(self, name: str, most: int) -> bytes:
        member = self._members[name]
        if member.file_size > min(most, MOST_GROWTH * max(member.compress_size, 1024)):
            raise Malformed(f"{self.path}: {name} says that it takes {member.file_size} bytes, which is too much")
        try:
            with self._file.open(member) as file:
                found = file.read(member.file_size + 1)  # no more, whatever is in it
        except (OSError, EOFError, RuntimeError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
            raise Malformed(f"{self.path}: {name} is damaged ({error})") from None
        if len(found) != member.file_size:
            raise Malformed(f"{self.path}: {name} is damaged")
        return found

    def _json(self) -> Any:
        def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            found = dict(pairs)
            if len(found) < len(pairs):
                raise ValueError("a key stands there twice")
            return found

        def refused(word: str) -> NoReturn:
            raise ValueError(f"{word[:20]} is no integer")

        try:
            text = self._bytes(MANIFEST, MOST_MANIFEST).decode("ascii")
            return json.loads(text, object_pairs_hook=once, parse_float=refused, parse_constant=refused)
        except (ValueError, RecursionError) as error:
            raise Malformed(f"{self.path}: the manifest is not to be understood ({error})") from None

    def has(self, name: str) -> bool:
        return name in self._arrays

    def numbers(self, name: str, count: int) -> tuple[int, ...]:
        """Raises: Malformed unless there is an array of so many integers. It is gone then."""
        if name not in self._arrays:
            raise Malformed(f"{self.path} has no array {name} (or it is used twice)")
        member = self._arrays.pop(name)
        width = member.removeprefix(name + ".i")
        if width not in map(str, CODES):
            raise Malformed(f"{self.path}: {member} is no array of integers of 1, 2, 4 or 8 bytes")
        size = int(width)
        if self._members[member].file_size != count * size:
            raise Malformed(f"{self.path}: {member} does not hold {count} integers")
        return struct.unpack(f"<{count}{CODES[size]}", self._bytes(member, MOST_BYTES))

    @property
    def left_over(self) -> str:
        """An array that nobody asked for; empty if there is none."""
        return next(iter(self._arrays), "")


def is_certificate(path: Path) -> bool:
    """Whether it is a zip with a manifest, as far as its directory says."""
    try:
        _check_directory(path)
        with zipfile.ZipFile(path) as file:
            return MANIFEST in file.namelist()
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError, struct.error):
        return False


def _check_directory(path: Path) -> None:
    """Before all of it is read. Raises: OSError, struct.error, ValueError if the directory is too large, or not at the
    end.
    """
    with path.open("rb") as file:
        file.seek(-min(_END.size, path.stat().st_size), 2)
        mark, *_, count, size, _, comment = _END.unpack(file.read())
        if mark != b"PK\x05\x06" or comment:
            raise ValueError("something is behind its directory")
        if count == 0xFFFF or size == 0xFFFFFFFF:
            file.seek(-_END.size - _LOCATOR - _LARGE.size, 2)
            size = _LARGE.unpack(file.read(_LARGE.size))[-2]
        if size > MOST_DIRECTORY:
            raise ValueError(f"its directory takes {size} bytes")


def integers(values: Any, count: int | None, what: str, largest: int = 1 << 62) -> list[int]:
    """A list of so many integers of the manifest. Raises: Malformed for anything else."""
    if not isinstance(values, list) or (count is not None and len(values) != count):
        raise Malformed(f"{what}: a list of integers is expected")
    for each in values:
        if type(each) is not int or abs(each) > largest:
            raise Malformed(f"{what}: an integer is expected, and not {str(each)[:40]!r}")
    return values


def fields(values: Any, names: Iterable[str], what: str) -> dict[str, Any]:
    """An object of the manifest with just these keys. Raises: Malformed for anything else."""
    wanted = set(names)
    if not isinstance(values, dict) or set(values) != wanted:
        raise Malformed(f"{what}: an object with {', '.join(sorted(wanted))} is expected")
    return values
