"""model.weights.h5 of a Keras model: the variables of its layers, and nothing that nobody asked for."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, Sequence, Set
from typing import Any

import numpy as np

from intervalcert.errors import InputError
from intervalcert.io.models.keras_config import KerasLayer
from intervalcert.io.models.keras_hdf5 import Member, PlainFile
from intervalcert.io.models.keras_kinds import KINDS, WITH_VARIABLES
from intervalcert.io.models.keras_values import Array, shown

__all__ = ["Wanted", "WeightStore"]

Wanted = tuple[str, tuple[int, ...], str]
"""A variable: what it is, its shape, the name of its type (or "int")."""

_FAULTS = (
    OSError,
    RuntimeError,
    LookupError,
    ValueError,
    TypeError,
    AttributeError,
    ArithmeticError,
    MemoryError,
)
"""What h5py raises for damaged files."""


class WeightStore:
    """An open file. h5py reads the numbers, of what has been looked through before (`PlainFile`)."""

    def __init__(self, data: bytes) -> None:
        self._plain = PlainFile(data)
        self._known: dict[Member, dict[str, Member]] = {}
        self._root = self._members(self._plain.root, "the file")
        self._file: Any = None

    @staticmethod
    @contextlib.contextmanager
    def of(h5py: Any, data: bytes) -> Iterator[WeightStore]:
        store = WeightStore(data)
        with _understood():
            store._file = h5py.File(io.BytesIO(data), "r")
        try:
            yield store
        finally:
            with contextlib.suppress(*_FAULTS):
                store._file.close()

    @property
    def size(self) -> int:
        """In bytes."""
        return len(self._plain.data)

    def check(self, layers: Sequence[KerasLayer]) -> None:
        """Raises: InputError for groups that belong to no layer. What is of training only is left alone."""
        _check_names(self._root, {"layers", "vars", "optimizer", "metrics"}, "the file")
        self._check_empty(self._root, "vars", "vars")
        if "layers" not in self._root:
            raise InputError("model.weights.h5 has no layers: the model was saved before it had weights")
        groups = self._group("layers")
        _check_names(groups, {layer.stored for layer in layers}, "layers")
        for layer in layers:
            place = f"layers/{layer.stored}"
            group, inner = self._group(place), {"activation"} if layer.activation else set()
            _check_names(group, {"vars"} | KINDS[layer.kind].beside | inner, place)
            if layer.kind not in WITH_VARIABLES:
                self._check_empty(group, "vars", f"{place}/vars")
            if "activation" in group:
                own = self._group(f"{place}/activation")
                _check_names(own, {"vars"}, f"{place}/activation")
                self._check_empty(own, "vars", f"{place}/activation/vars")

    def arrays(self, layer: KerasLayer, wanted: Sequence[Wanted]) -> list[Array]:
        """The variables of a layer, which has just these."""
        place = f"layers/{layer.stored}/vars"
        group = self._group(place)
        found = [self._array(group.get(str(index)), f"{place}/{index}", item) for index, item in enumerate(wanted)]
        _check_names(group, {str(index) for index in range(len(wanted))}, place)
        return found

    def _members(self, member: Member, place: str) -> dict[str, Member]:
        if member not in self._known:
            found = self._plain.members(member)
            if found is None:
                raise InputError(
                    f"model.weights.h5: {shown(place)} is no group as Keras writes them, or has links to other places"
                )
            self._known[member] = found
        return self._known[member]

    def _group(self, place: str) -> dict[str, Member]:
        """What is in it; nothing if it is not there."""
        found = self._root
        for name in place.split("/"):
            if name not in found:
                return {}
            found = self._members(found[name], place)
        return found

    def _check_empty(self, group: dict[str, Member], name: str, place: str) -> None:
        if name in group:
            _check_names(self._members(group[name], place), set(), place)

    def _array(self, member: Member | None, place: str, wanted: Wanted) -> Array:
        kind, shape, dtype = wanted
        what = f"its {kind} ({place})"
        if member is None:
            raise InputError(f"{what} is not in model.weights.h5")
        stored = self._plain.array(member)
        if stored is None:
            raise InputError(
                f"{what} is not stored as Keras stores it: it is no array of plain numbers of the type {dtype}, or "
                "compressed, in pieces, in another file or not stored at all. Save the model again"
            )
        if stored.dtype.name not in ({"int32", "int64"} if dtype == "int" else {dtype}):
            raise InputError(f"{what} has the type {stored.dtype.name}, where the configuration asks for {dtype}")
        if stored.shape != shape:
            raise InputError(
                f"{what} has the shape {list(stored.shape)}, where the configuration asks for {list(shape)}"
            )
        with _understood():
            values: Array = np.asarray(self._file[place])
        same = np.frombuffer(self._plain.data, stored.dtype, values.size, stored.start).tobytes() == values.tobytes()
        if (values.shape, values.dtype) != (shape, stored.dtype) or not same:
            raise InputError(f"{what} is not where h5py finds it: the file is damaged")
        return values


def _check_names(group: dict[str, Member], known: Set[str], place: str) -> None:
    for name in group:
        if name not in known:
            raise InputError(
                f"model.weights.h5 has {shown(name)} in {place}, which belongs to no layer of the configuration"
            )


@contextlib.contextmanager
def _understood() -> Iterator[None]:
    """Turns whatever h5py raises for a damaged file into an error that says so."""
    try:
        yield
    except _FAULTS as error:
        text = " ".join(str(error).split())
        raise InputError(f"model.weights.h5 is damaged: {shown(text or type(error).__name__)}") from None
