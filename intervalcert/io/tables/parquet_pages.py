"""How large the pages of a Parquet file are when they are unpacked, told without unpacking them.

The library allocates what the header of a page says before it looks at anything else, and what the end of the file says
of the same pages may be untrue. Headers are structures of Thrift's compact protocol: fields of a type, each with the
distance of its number from the last one; whole numbers in groups of seven bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, Any

__all__ = ["page_bytes"]

_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LIST, _SET, _STRUCT = 1, 2, 3, 7, 8, 9, 10, 12
_INTEGERS = {4, 5, 6}
_UNPACKED, _PACKED = 2, 3
"""Fields of a header: bytes of the page, after it was unpacked and before."""

_MAX_HEADER, _MAX_DEPTH = 2**24, 8
"""Statistics are in it: the least and the largest number of the page."""


def page_bytes(file: IO[bytes], column: Any) -> Iterator[int]:
    """Bytes of each page of a column chunk, by its header. Raises: ValueError if there is none where one should be."""
    start = min(filter(None, (column.dictionary_page_offset, column.data_page_offset)), default=0)
    end = start + column.total_compressed_size
    while start < end:
        file.seek(start)
        fields = _Header(file).structure()
        packed, unpacked = fields.get(_PACKED, -1), fields.get(_UNPACKED, -1)
        if packed < 0 or unpacked < 0:
            raise ValueError(f"no header of a page at byte {start}")
        yield unpacked
        start = file.tell() + packed


class _Header:
    """Reads one structure from where the file is, and leaves it just behind."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._left = file, _MAX_HEADER

    def structure(self, depth: int = 0) -> dict[int, int]:
        """Its fields that are whole numbers."""
        if depth > _MAX_DEPTH:
            raise ValueError("a header of a page that is nested too deeply")
        found: dict[int, int] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._whole()
            value = self._value(head & 15, depth)
            if value is not None:
                found[number] = value
        return found

    def _value(self, kind: int, depth: int) -> int | None:
        if kind in _INTEGERS:
            return self._whole()
        if kind in {_BYTE, _DOUBLE}:
            self._skip(1 if kind == _BYTE else 8)
        elif kind == _BINARY:
            self._skip(self._natural())
        elif kind == _STRUCT:
            self.structure(depth + 1)
        elif kind in {_LIST, _SET}:
            head = self._byte()
            for _ in range(self._natural() if head >> 4 == 15 else head >> 4):
                if head & 15 in {_TRUE, _FALSE}:
                    self._skip(1)
                else:
                    self._value(head & 15, depth + 1)
        elif kind not in {_TRUE, _FALSE}:
            raise ValueError(f"a header of a page with a field of type {kind}")
        return None

    def _byte(self) -> int:
        return self._skip(1)[0]

    def _skip(self, count: int) -> bytes:
        self._left -= count
        data = self._file.read(count) if self._left >= 0 else b""
        if len(data) < count:
            raise ValueError("a header of a page that does not end")
        return data

    def _natural(self) -> int:
        number = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            number |= (byte & 127) << shift
            if byte < 128:
                return number
        raise ValueError("a header of a page with a number that does not end")

    def _whole(self) -> int:
        """Zigzag: 0, -1, 1, -2, … are written as 0, 1, 2, 3, …"""
        number = self._natural()
        return (number >> 1) ^ -(number & 1)
