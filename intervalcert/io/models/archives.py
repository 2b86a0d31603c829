"""Zip archives that nobody vouches for: listed and read without unpacking anything to disk."""

from __future__ import annotations

import contextlib
import lzma
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from intervalcert.errors import InputError
from intervalcert.io.files import check_growth, open_input, size_of

__all__ = ["MAX_UNPACKED_BYTES", "open_archive"]

MAX_UNPACKED_BYTES = 2**31
"""What an archive may unpack to: 2 GiB, so that a small file cannot fill the memory."""

MAX_MEMBERS = 20_000

_FAULTS = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    UnicodeError,
    NotImplementedError,
    RuntimeError,
)


@contextlib.contextmanager
def open_archive(path: Path, kind: str, origin: Path | None = None) -> Iterator[zipfile.ZipFile]:
    """An archive whose members have different, plain names and unpack to no more than the limits.

    origin: the file that it was itself unpacked from.
    Raises: InputError for another, and for a damaged one, also while it is read.
    """
    with open_input(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                _check(archive, path)
                check_growth(path, sum(info.file_size for info in archive.infolist()), size_of(origin or path))
                yield archive
        except _FAULTS as error:
            raise InputError(f"{path} is not a complete {kind} file: {error}") from None


def _check(archive: zipfile.ZipFile, path: Path) -> None:
    members = archive.infolist()
    if len(members) > MAX_MEMBERS:
        raise InputError(f"{path} has {len(members)} members; a model has at most {MAX_MEMBERS}")
    seen: set[str] = set()
    for info in members:
        name = info.filename
        if name in seen:
            raise InputError(f"{path} contains {name!r} twice")
        seen.add(name)
        parts = name.replace("\\", "/").split("/")
        hidden = info.orig_filename != name  # which is cut at a zero byte
        if hidden or name.startswith(("/", "\\")) or ".." in parts or ":" in parts[0]:
            raise InputError(f"{path} contains {name!r}, a name that points out of the archive")
        if info.flag_bits & 1:
            raise InputError(f"{path}: {name!r} is encrypted")
    if sum(info.file_size for info in members) > MAX_UNPACKED_BYTES:
        raise InputError(f"{path} unpacks to more than {MAX_UNPACKED_BYTES // 2**20} MiB")
