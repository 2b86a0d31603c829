"""HDF5 files in the one form that Keras gives them, looked through before h5py sees them.

The library behind h5py trusts a file: pointers that run in a circle fill its memory, or end the whole process. So
all that it will come across is checked here first, and everything that h5py does not write by itself is refused:
groups are trees of names (superblock 0, object headers 1), arrays are plain numbers in one piece.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from intervalcert.errors import InputError

__all__ = ["Member", "PlainFile", "StoredArray"]

MAX_RANK, MAX_MESSAGES = 8, 64
"""Of an array; of one object header."""

MAX_NAME_BYTES, MAX_NAMES_BYTES = 255, 2**20
"""Of one name; of all in one group."""

MAX_FREE_PLACES = 64
"""Where names were removed from a group, which Keras never does."""

_SIGNATURE = b"\x89HDF\r\n\x1a\n"
_NOWHERE = 2**64 - 1
_LEAF_ENTRIES, _NODE_ENTRIES = 8, 32  # two times the usual K of symbol tables and of trees
_NODE_BYTES, _LEAF_BYTES = 24 + 16 * _NODE_ENTRIES + 8, 8 + 40 * _LEAF_ENTRIES

_NIL, _SPACE, _TYPE, _FILL, _LAYOUT, _ATTRIBUTE, _CONTINUED, _TABLE, _TIME = 0, 1, 3, 5, 8, 12, 16, 17, 18
_NO_FILL = b"\2\2\2\1" + bytes(4)  # no value of its own for entries that were never written
_TYPES: dict[bytes, np.dtype[Any]] = {
    struct.pack("<IIHHBBBBI", 0x0F2011, 2, 0, 16, 10, 5, 0, 10, 15): np.dtype("<f2"),
    struct.pack("<IIHHBBBBI", 0x1F2011, 4, 0, 32, 23, 8, 0, 23, 127): np.dtype("<f4"),
    struct.pack("<IIHHBBBBI", 0x3F2011, 8, 0, 64, 52, 11, 0, 52, 1023): np.dtype("<f8"),
    struct.pack("<IIHH", 0x0810, 4, 0, 32): np.dtype("<i4"),
    struct.pack("<IIHH", 0x0810, 8, 0, 64): np.dtype("<i8"),
}
"""How the types of plain numbers are written: floats of IEEE 754 and signed integers, little-endian."""


@dataclass(frozen=True)
class Member:
    """A name in a group leads to the header of an object. table: what is repeated beside the name, if it is a group."""

    header: int
    table: tuple[int, int] | None


@dataclass(frozen=True)
class StoredArray:
    """Numbers of one type from `start` on, in the order of C."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    start: int


class PlainFile:
    """The bytes of a file. Addresses are places in them; whatever does not lie in them is an InputError."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        if not data.startswith(_SIGNATURE):
            raise InputError("model.weights.h5 is no HDF5 file")
        versions, sizes, counts = data[8:13], data[13:15], data[16:20]
        if versions != bytes(5) or sizes != b"\x08\x08" or counts != struct.pack("<HH", 4, 16) or any(data[24:32]):
            raise InputError("model.weights.h5 has another form of HDF5 than Keras writes: save the model again")
        self.root = self._member(56)[1]

    def _fields(self, form: str, place: int) -> Any:
        try:
            return struct.unpack_from(form, self.data, place)
        except (struct.error, OverflowError):
            raise _damaged("the file ends before it does", place) from None

    def _piece(self, place: int, size: int) -> bytes:
        if place + size > len(self.data):
            raise _damaged("the file ends before it does", place)
        return self.data[place : place + size]

    def members(self, member: Member) -> dict[str, Member] | None:
        """The names in a group, or None for an object that is none."""
        messages = dict(self._messages(member.header, {_NIL, _ATTRIBUTE, _TABLE, _TIME}) or ())
        if _TABLE not in messages:
            return None
        if len(messages[_TABLE]) != 16:
            raise _damaged("no table of names", member.header)
        tree, heap = struct.unpack("<QQ", messages[_TABLE])
        if member.table not in {None, (tree, heap)}:
            raise _damaged("two tables of names", member.header)
        names, found, last = self._names(heap), {}, b""
        for place in self._leaves(tree, len(names)):
            offset, entry = self._member(place)
            end = names.find(b"\0", offset, offset + MAX_NAME_BYTES + 1)
            name = names[offset:end]
            if end < 0 or name <= last:
                raise _damaged("names of another form", place)
            last = name
            found[name.decode("utf-8", "surrogateescape")] = entry
        return found

    def array(self, member: Member) -> StoredArray | None:
        """An array of plain numbers, or None for any other object."""
        found = dict(self._messages(member.header, {_NIL, _SPACE, _TYPE, _FILL, _LAYOUT, _TIME}) or ())
        if member.table is not None or not {_SPACE, _TYPE, _LAYOUT} <= set(found):
            return None
        shape = _shape(found[_SPACE])
        dtype = next((kind for text, kind in _TYPES.items() if _is_padded(found[_TYPE], text)), None)
        if shape is None or dtype is None or found.get(_FILL, _NO_FILL) != _NO_FILL or len(found[_LAYOUT]) < 18:
            return None
        form, start, size = struct.unpack_from("<HQQ", found[_LAYOUT])
        if form != 0x0103 or start == _NOWHERE:  # in one piece
            return None
        if size != math.prod(shape) * dtype.itemsize or start + size > len(self.data):
            raise _damaged("an array that is not complete", member.header)
        return StoredArray(shape, dtype, start)

    # -- what they are made of -----------------------------------------------------------------------------------

    def _member(self, place: int) -> tuple[int, Member]:
        """An entry of a symbol table: where its name begins, and what it leads to."""
        name, header, kind, _, tree, heap = self._fields("<QQIIQQ", place)
        if kind > 1:
            raise InputError("model.weights.h5 has a link to another place, which is not followed")
        return name, Member(header, (tree, heap) if kind else None)

    def _messages(self, header: int, known: set[int]) -> list[tuple[int, bytes]] | None:
        """The parts of an object header, each kind at most once; None if there are others than those known."""
        version, total, size = self._fields("<BxH4xI4x", header)
        if version != 1:
            if self._piece(header, 4) == b"OHDR":  # of another form
                return None
            raise _damaged("no object", header)
        pieces, found, count = [(header + 16, size)], [], 0
        for start, length in pieces:  # which grow meanwhile
            place = start
            while place < start + length:
                kind, size, flags = self._fields("<HHB3x", place)
                body = self._piece(place + 8, size)
                place, count = place + 8 + size, count + 1
                if size % 8 or flags > 1 or place > start + length or count > min(total, MAX_MESSAGES):
                    raise _damaged("a header of another form", header)
                if kind == _CONTINUED and size == 16:
                    pieces.append(struct.unpack("<QQ", body))
                elif kind in known:
                    found.append((kind, body))
                else:
                    return None
        used = [kind for kind, _ in found if kind not in {_NIL, _ATTRIBUTE}]
        if count != total or len(set(used)) < len(used):
            raise _damaged("a header of another form", header)
        return found

    def _names(self, heap: int) -> bytes:
        """The bytes in which names of a group begin, each ended by a zero."""
        signature, size, free, start = self._fields("<8sQQQ", heap)
        if signature != b"HEAP\0\0\0\0" or size > MAX_NAMES_BYTES:
            raise _damaged("no names", heap)
        found = self._piece(start, size)
        for _ in range(MAX_FREE_PLACES):
            if free == 1:  # the end of the list
                break
            if not 1 < free <= size - 16:
                raise _damaged("a list of free places that leads nowhere", heap)
            (free,) = struct.unpack_from("<Q", found, free)
        else:
            raise _damaged("a list of free places that does not end", heap)
        if not found.endswith(b"\0"):
            raise _damaged("a name that does not end", heap)
        return found

    def _leaves(self, tree: int, names: int) -> Iterator[int]:
        """Places of all entries of symbol tables under the root of a tree, which has one or two levels."""
        level, children = self._node(tree, names, _NOWHERE, _NOWHERE)
        if level > 1:
            raise _damaged("more names than a model can need", tree)
        if level:
            nodes, children = [_NOWHERE, *children, _NOWHERE], []
            for left, node, right in zip(nodes, nodes[1:], nodes[2:], strict=False):
                level, more = self._node(node, names, left, right)
                if level:
                    raise _damaged("a tree that runs in a circle", node)
                children += more
        for leaf in children:
            signature, count = self._fields("<6sH", leaf)
            self._piece(leaf, _LEAF_BYTES)
            if signature != b"SNOD\1\0" or not 0 < count <= _LEAF_ENTRIES:
                raise _damaged("no table of names", leaf)
            yield from range(leaf + 8, leaf + 8 + 40 * count, 40)

    def _node(self, node: int, names: int, left: int, right: int) -> tuple[int, list[int]]:
        """Its level and its children."""
        signature, level, count, *siblings = self._fields("<5sBHQQ", node)
        self._piece(node, _NODE_BYTES)
        if signature != b"TREE\0" or count > _NODE_ENTRIES or siblings != [left, right]:
            raise _damaged("no tree of names", node)
        places = self._fields(f"<{2 * count + 1}Q", node + 24)
        keys, children = places[::2], list(places[1::2])
        if max(keys) >= names or len(set(children)) < len(children):
            raise _damaged("a tree of other names", node)
        return level, children


def _damaged(what: str, place: int) -> InputError:
    return InputError(f"model.weights.h5 is damaged: {what} (at byte {place})")


def _is_padded(body: bytes, text: bytes) -> bool:
    """Whether it is that text, and zeros."""
    return body.startswith(text) and not any(body[len(text) :])


def _shape(body: bytes) -> tuple[int, ...] | None:
    """Of a simple dataspace that cannot grow."""
    version, rank, limited = body[:3] if len(body) >= 8 else bytes(3)
    if version != 1 or rank > MAX_RANK or limited > 1 or len(body) != 8 + 8 * rank * (1 + limited):
        return None
    sizes = struct.unpack_from(f"<{rank * (1 + limited)}Q", body, 8)
    return sizes[:rank] if sizes[rank:] in {(), sizes[:rank]} else None
