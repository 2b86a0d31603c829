"""The archive of a certificate: a zip of a manifest in JSON and of plain arrays of integers. Limits before allocation.

A member ``name.iW`` holds integers of W bytes (1, 2, 4 or 8), with a sign, the least significant byte first.
"""

from __future__ import annotations

import json
import struct
import sys
import zipfile
import zlib
from array import array
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

from .model import Malformed

__all__ = ["Archive", "fields", "integers", "is_certificate"]

MANIFEST = "manifest.json"
CODES = {1: "b", 2: "h", 4: "i", 8: "q"}
MOST_DIRECTORY, MOST_MANIFEST, MOST_BYTES = 1 << 24, 1 << 24, 1 << 28
LEAST_ROOM, MOST_GROWTH = 1 << 26, 64
"""Of all members together, unpacked: so many bytes, or so many times those of the file."""

_END, _LARGE, _LOCATOR = struct.Struct("<4s4H2IH"), struct.Struct("<4sQ2H2I4Q"), 20
"""The last record of a zip; that of large ones, and what is between both."""

_DAMAGED = (
    OSError,
    EOFError,
    ValueError,
    OverflowError,
    MemoryError,
    RuntimeError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)
"""What reading a zip may end with (NotImplementedError is a RuntimeError, UnicodeError a ValueError)."""


class Archive:
    """An open certificate. Each member is read when it is asked for, once; what nobody asked for is left over."""

    def __init__(self, path: Path) -> None:
        """Raises: Malformed."""
        self.path = path
        try:
            _check_directory(path)
            self._file = zipfile.ZipFile(path)
            size = path.stat().st_size
        except _DAMAGED as error:
            raise Malformed(f"{path} is no certificate that can be read ({error!s:.99})") from None
        members = self._file.infolist()
        unpacked = sum(member.file_size for member in members)
        if unpacked > max(LEAST_ROOM, MOST_GROWTH * size):
            raise Malformed(f"{path} says that it takes {unpacked} bytes, unpacked, which is too much")
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
        if member.file_size > most:
            raise Malformed(f"{self.path}: {name[:60]!r} says that it takes {member.file_size} bytes: too much")
        try:
            with self._file.open(member) as file:
                found = file.read(member.file_size + 1)  # no more, whatever is in it
        except _DAMAGED as error:
            raise Malformed(f"{self.path}: {name[:60]!r} is damaged ({error!s:.99})") from None
        if len(found) != member.file_size:
            raise Malformed(f"{self.path}: {name[:60]!r} is damaged")
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
            raise Malformed(f"{self.path}: the manifest is not to be understood ({error!s:.99})") from None

    def has(self, name: str) -> bool:
        return name in self._arrays

    def numbers(self, name: str, count: int) -> array[int]:
        """Raises: Malformed unless there is an array of so many integers. It is gone then."""
        if name not in self._arrays:
            raise Malformed(f"{self.path} has no array {name} (or it is used twice)")
        member = self._arrays.pop(name)
        width = member.removeprefix(name + ".i")
        if width not in map(str, CODES):
            raise Malformed(f"{self.path}: {member[:60]!r} is no array of integers of 1, 2, 4 or 8 bytes")
        size = int(width)
        if self._members[member].file_size != count * size:
            raise Malformed(f"{self.path}: {member[:60]!r} does not hold {count} integers")
        found = array(CODES[size])
        if found.itemsize != size:
            raise Malformed(f"integers of {size} bytes are of another size on this machine")
        found.frombytes(self._bytes(member, MOST_BYTES))
        if sys.byteorder == "big":
            found.byteswap()
        return found

    @property
    def left_over(self) -> str | None:
        """A member that nobody asked for; None if there is none."""
        return next(iter(self._arrays.values()), None)


def is_certificate(path: Path) -> bool:
    """Whether it is a zip with a manifest, as far as its directory says."""
    try:
        _check_directory(path)
        with zipfile.ZipFile(path) as file:
            return MANIFEST in file.namelist()
    except _DAMAGED:
        return False


def _check_directory(path: Path) -> None:
    """Before all of it is read. Raises: OSError, struct.error, ValueError if the directory is too large, or not at the
    end.
    """
    with path.open("rb") as file:
        file.seek(-min(_END.size, path.stat().st_size), 2)
        mark, *_, size, _, comment = _END.unpack(file.read())
        if mark != b"PK\x05\x06" or comment:
            raise ValueError("something is behind its directory")
        before = file.seek(0, 2) - _END.size - _LOCATOR
        if before >= _LARGE.size:
            file.seek(before)
            if file.read(4) == b"PK\x06\x07":  # of a large zip: another record counts
                file.seek(before - _LARGE.size)
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
