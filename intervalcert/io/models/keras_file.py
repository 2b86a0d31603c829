"""Keras 3 models (``.keras``), read without Keras: the layers in config.json, the weights in model.weights.h5.

Nothing of the file is run, and nothing is unpacked to disk. What is read is listed in `keras_kinds`, one layer is in
`keras_config`, how they hang together in `keras_graph`, the weights in `keras_weights`, what they compute in
`keras_layers`.
"""

from __future__ import annotations

import zipfile
from pathlib import Path

from intervalcert.errors import InputError
from intervalcert.io.files import parse_json
from intervalcert.io.models.archives import MAX_UNPACKED_BYTES, open_archive
from intervalcert.io.models.interface import Hints, Reading, needed
from intervalcert.io.models.keras_graph import layers_of
from intervalcert.io.models.keras_layers import network_of
from intervalcert.io.models.keras_values import shown
from intervalcert.io.models.keras_weights import WeightStore

__all__ = ["read"]

MAX_JSON_BYTES = 2**23

_MEMBERS = ("metadata.json", "config.json", "model.weights.h5")


def read(path: Path, hints: Hints) -> Reading:
    """The network in an archive of Keras 3."""
    h5py = needed("h5py", "keras")
    with open_archive(path, ".keras", hints.origin) as archive:
        for name in archive.namelist():
            if name not in _MEMBERS:
                raise InputError(f"it contains {shown(name)}, which the layers that are read do not need")
        _check_version(_parsed(archive, "metadata.json"))
        layers = layers_of(_parsed(archive, "config.json"))
        weights = _unpacked(archive, "model.weights.h5", MAX_UNPACKED_BYTES)
    with WeightStore.of(h5py, weights) as store:
        return Reading(network_of(layers, store, hints))


def _unpacked(archive: zipfile.ZipFile, name: str, limit: int) -> bytes:
    try:
        info = archive.getinfo(name)
    except KeyError:
        raise InputError(f"there is no {name} in it: it is no complete Keras 3 model") from None
    size = info.file_size
    if size > limit:
        raise InputError(f"{name} unpacks to {size} bytes, more than such a file can need")
    with archive.open(info) as member:
        data = member.read(size)
    if len(data) != size:
        raise InputError(f"{name} has {len(data)} bytes, where the archive says {size}: it is damaged")
    return data


def _parsed(archive: zipfile.ZipFile, name: str) -> object:
    data = _unpacked(archive, name, MAX_JSON_BYTES)
    try:
        return parse_json(data)
    except ValueError as error:  # also integers of too many digits
        raise InputError(f"{name} is not JSON: {str(error).partition('.')[0]}") from None


def _check_version(metadata: object) -> None:
    version = metadata.get("keras_version") if isinstance(metadata, dict) else None
    if not isinstance(version, str) or not version.startswith("3."):
        raise InputError(
            f"it was saved by Keras {shown(version)}; the models of Keras 3 are read: load it there and save it again"
        )
