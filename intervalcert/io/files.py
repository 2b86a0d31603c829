"""Reading what one was not promised, and writing all or nothing.

A file whose name ends with ``.gz`` is read as what is in it, a file with the rest of the name (`unpacked`). What a
compressed file may grow to has one limit everywhere (`check_growth`), so that a small one cannot fill the memory.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from intervalcert.errors import InputError, IntervalcertError, UsageError, shortened
from intervalcert.io.cleanup import cleared_away

__all__ = [
    "MAX_FILE_BYTES",
    "Stamp",
    "atomic_writer",
    "check_growth",
    "check_output",
    "is_plain",
    "open_input",
    "parse_json",
    "read_text",
    "sha256_of",
    "size_of",
    "stamp_of",
    "unpacked",
]

Stamp = tuple[int, ...]
"""What changes when somebody writes to a file."""

MAX_FILE_BYTES = 2**27
"""Text, JSON and compressed files are read whole, so there is a limit: 128 MiB."""

FREE_BYTES, MAX_GROWTH = 2**24, 64
"""A compressed file may unpack to 16 MiB, or to so many times its size. Weights of which 98 of 100 are zero, as 32-bit
floats, grow less than 50 times; what grows more was made to fill the memory."""

_PIECE = 2**20


@contextlib.contextmanager
def open_input(path: Path) -> Iterator[IO[bytes]]:
    """Opens a file that a user named; anything that prevents it is an `InputError` that says what."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise InputError(f"{path}: there is no such file") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder, not a file") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
    except ValueError as error:  # a name with a zero byte in it
        raise InputError(f"{str(path)!r} cannot be the name of a file: {error}") from None
    with file:
        try:
            yield file
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror or error}") from None
        except MemoryError:
            raise InputError(f"{path} needs more memory than there is") from None


def is_plain(path: Path) -> bool:
    """Whether there is such a file, and it can be read twice: it is no pipe. What else is wrong, reading it tells."""
    with contextlib.suppress(OSError, ValueError):
        return path.is_file()
    return False


def size_of(path: Path) -> int:
    """In bytes."""
    with open_input(path) as file:
        return os.fstat(file.fileno()).st_size


def check_growth(path: Path, unpacked: int, packed: int) -> None:
    """Raises: InputError if so many bytes, out of a file of that size, are more than such a file can need."""
    if unpacked > max(FREE_BYTES, MAX_GROWTH * packed):
        raise InputError(
            f"{path} has {packed} bytes and unpacks to more than {MAX_GROWTH} times as many ({unpacked} or more): that "
            "much is not read from a compressed file. If it is what you want, save it uncompressed"
        )


@contextlib.contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """The file itself; or, if its name ends with ``.gz``, what is in it, in a file that is there for the while.

    Messages that name that file are changed to name the one that the user knows.
    Raises: InputError unless it is one complete gzip file that grows within the limit.
    """
    if path.suffix.lower() != ".gz":
        yield path
        return
    # Named before it is made: whenever an interrupt comes, it is known what to remove.
    folder = Path(tempfile.gettempdir()) / f"intervalcert-{secrets.token_hex(8)}"
    with cleared_away(lambda: shutil.rmtree(folder, ignore_errors=True)):
        inner = folder / (path.stem or "unpacked")
        try:
            folder.mkdir(mode=0o700)
        except OSError as error:
            raise InputError(f"{path} cannot be unpacked to {folder}: {error.strerror or error}") from None
        with open_input(path) as packed, inner.open("wb") as file:
            _unpack(path, packed, file)
        try:
            yield inner
        except IntervalcertError as error:
            raise type(error)(str(error).replace(str(inner), str(path))) from None


def _unpack(path: Path, packed: IO[bytes], file: IO[bytes]) -> None:
    """Piece by piece. zlib compares the checksum and the length at the end."""
    stream, size = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS), os.fstat(packed.fileno()).st_size
    written = 0
    try:
        while not stream.eof:
            piece = stream.unconsumed_tail or packed.read(_PIECE)
            found = stream.decompress(piece, _PIECE)
            if not piece and not found:
                raise InputError(f"{path} is not a complete gzip file: it ends too early (is it truncated?)")
            written += file.write(found)
            check_growth(path, written, size)
    except zlib.error as error:
        raise InputError(f"{path} is not a complete gzip file: {error}") from None
    if stream.unused_data or packed.read(1):
        raise InputError(f"{path}: something follows after the gzip file in it; one alone is read: compress it again")


def _read_limited(path: Path) -> bytes:
    """The bytes of a file that is not empty and not larger than `MAX_FILE_BYTES`."""
    with unpacked(path) as inner, open_input(inner) as file:
        # One byte beyond the limit tells; the size that a pipe or a device reports would not.
        size = os.fstat(file.fileno()).st_size
        data = file.read(MAX_FILE_BYTES + 1) if size <= MAX_FILE_BYTES else b""
    if size > MAX_FILE_BYTES or len(data) > MAX_FILE_BYTES:
        limit = MAX_FILE_BYTES // 2**20
        raise InputError(f"{path} is larger than {limit} MiB: text of that size is not read, numpy files are")
    if not data.strip():
        raise InputError(f"{path} is empty")
    return data


def read_text(path: Path) -> str:
    """A text file in UTF-8 (ASCII is), refused if it is something else."""
    data = _read_limited(path)
    if b"\0" in data:
        raise InputError(f"{path} is not a text file (it contains zero bytes)")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not a text file (byte {error.start} is not UTF-8)") from None


def parse_json(data: str | bytes) -> Any:
    """JSON that can be read in one way only: UTF-8, no key twice in an object, finite numbers.

    Raises: ValueError.
    """
    try:
        text = data if isinstance(data, str) else data.decode("utf-8")
        return json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys are all different: a second value of a name could hide from a reader what is used."""
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise ValueError(f"the key {shortened(key, 80)!r} occurs twice in one object")
        made[key] = value
    return made


def _refuse_constant(name: str) -> None:
    raise ValueError(f"it contains {name}; every number must be finite")


def stamp_of(path: Path) -> Stamp:
    """As the file is now."""
    with open_input(path) as file:
        found = os.fstat(file.fileno())
        return found.st_ino, found.st_size, found.st_mtime_ns


def sha256_of(path: Path) -> str:
    """The hash of a file, read piece by piece."""
    with open_input(path) as file:
        digest = hashlib.sha256()
        while chunk := file.read(2**20):
            digest.update(chunk)
        return digest.hexdigest()


def check_output(path: Path, *inputs: Path | None) -> None:
    """Refuses at once, before hours of work, an output that could not be written or would replace an input."""
    try:
        if path.absolute().parts[1:2] in {("dev",), ("proc",)}:
            raise InputError(f"{path} cannot be written: it is not a regular file")
        path.resolve()
        for other in inputs:
            if other is not None and path.exists() and other.exists() and path.samefile(other):
                raise UsageError(f"{path} is an input of this command: writing the result there would replace it")
        if path.is_dir():
            raise InputError(f"{path} cannot be written: it is a folder")
        if path.exists() and not path.is_file():
            raise InputError(f"{path} cannot be written: it is not a regular file")
        if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
            raise InputError(f"{path} cannot be written: {path.parent} is not a folder that one may write to")
    except (OSError, ValueError, RuntimeError) as error:  # a name that no file can have, or a link to itself
        raise InputError(f"{str(path)!r} cannot be written: {error}") from None


@contextlib.contextmanager
def atomic_writer(path: Path) -> Iterator[IO[bytes]]:
    """A file that appears under its name complete, or not at all.

    It is written beside its place under a temporary name and moved there at the end; if anything is raised meanwhile
    (an interrupt too) it is removed, and a file that stood there before is untouched. A link is followed.
    """
    check_output(path)
    path = path.resolve()
    # Named before it is made: whenever an interrupt comes, it is known what to remove.
    temporary = path.with_name(f".intervalcert-{secrets.token_hex(8)}.part")
    with cleared_away(lambda: temporary.unlink(missing_ok=True)):
        try:
            with open(temporary, "xb", opener=_private) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.chmod(temporary, _usual_mode(path))
            os.replace(temporary, path)
        except OSError as error:
            raise InputError(f"{path} cannot be written: {error.strerror or error}") from None


def _private(name: str, flags: int) -> int:
    return os.open(name, flags, 0o600)


def _usual_mode(path: Path) -> int:
    """The mode of the file that is replaced, or what a new file would get (ours is private)."""
    with contextlib.suppress(OSError):
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
