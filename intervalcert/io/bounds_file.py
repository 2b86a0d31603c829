"""The bounds file: the result of the first stage, with everything that is needed to use it and to check it again.

Versioned JSON. A bound stands there twice: ``exact``, the very rational (``m*2^e``, m odd), and ``decimal``, rounded
outward, for people. Only ``exact`` is used; on reading, the decimals must agree with it, so that a file damaged in
either is refused. Margins are rows of such numbers in a text: row j has those of class j with the classes 0 to j - 1.
Those of more than `MOST_READ` classes are not for reading: a hash takes the place of the decimals.
What proves the bounds is in a file beside it (`witness_file`), which the bounds file names with its hash.
Whoever did not make the file should `audit` it: it is only as true as its maker.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from intervalcert.bounds.margin_bounds import MARGIN_METHODS, MAX_ROUNDS, MAX_WITNESS_BYTES, MarginMethod, Margins
from intervalcert.bounds.norm_bounds import CLAIMED, LayerBound
from intervalcert.bounds.results import MOST_READ, Bounds, Method, StoredWitnesses
from intervalcert.errors import InputError, SoundnessError, error_context, shortened
from intervalcert.io.files import (
    MAX_FILE_BYTES,
    atomic_writer,
    check_output,
    is_plain,
    open_input,
    parse_json,
    read_text,
    sha256_of,
    size_of,
    unpacked,
)
from intervalcert.io.witness_file import WITNESS_ENDING, load_witnesses, packed_witnesses, witness_path
from intervalcert.model.activations import activation
from intervalcert.model.layers import INPUT
from intervalcert.model.network import EPS_SPACES, MAX_LAYERS, Source
from intervalcert.model.single import Single
from intervalcert.numbers.pairs import Dyadics, PairMatrix, first_of_row
from intervalcert.numbers.parsing import MAX_BINARY_EXPONENT, parse_rational
from intervalcert.numbers.text import decimal_lower, decimal_upper, format_exact
from intervalcert.proof.norms import MAX_ITERATIONS
from intervalcert.proof.witnesses import Witnesses

__all__ = ["FORMAT_VERSION", "load_bounds", "save_bounds", "witnesses_of"]


FORMAT = "intervalcert bounds"


FORMAT_VERSION = 7
"""The only one that is read: bounds are computed anew in less time than it takes to think about an older file."""


_DYADIC = re.compile(r"(0|[1-9][0-9]{0,1499})\*2\^(0|-?[1-9][0-9]{0,5})")


def save_bounds(bounds: Bounds, path: str | Path) -> Path | None:
    """Writes the bounds file, and its witnesses beside it; each is replaced as a whole or not at all, one at once after
    the other.

    The file of witnesses is returned; None if there are none to be stored.
    """
    path = Path(path)
    _check_sizes(bounds)
    witnesses, _ = witnesses_of(bounds)
    packed = None if witnesses is None else packed_witnesses(witnesses)
    beside = witness_path(path)
    check_output(path)
    stored = None
    if packed is not None:
        check_output(beside)
        stored = {"name": beside.name, "sha256": hashlib.sha256(packed).hexdigest()}
    text = json.dumps({**_as_json(bounds), "witnesses": stored}, indent=1, allow_nan=False)
    if len(text) >= MAX_FILE_BYTES:
        raise InputError(f"the bounds of {bounds.classes} classes take more than a bounds file may hold")
    with atomic_writer(path) as file:
        file.write(text.encode() + b"\n")
        if packed is not None:
            with atomic_writer(beside) as other:
                other.write(packed)
    return None if packed is None else beside


def witnesses_of(bounds: Bounds) -> tuple[Witnesses | None, str]:
    """Those that bounds carry, or that are stored beside their file; or None, and why there are none.

    A file of another name, or of other bounds, is none of theirs: the hash decides.
    Raises: InputError if the file is theirs, and not complete.
    """
    found = bounds.witnesses
    if not isinstance(found, StoredWitnesses):
        return found, "" if found is not None else "none are stored with the bounds"
    there = [path for path in found.places if is_plain(path) and size_of(path) <= 2 * MAX_WITNESS_BYTES]
    for path in there:
        if sha256_of(path) == found.sha256:
            return load_witnesses(path), ""
    if there:
        return None, f"{there[0]} is not the file that the bounds name: it is damaged, or of other bounds"
    return None, f"there is no file {found.places[0]}, or none that could hold them"


def _check_sizes(bounds: Bounds) -> None:
    """Raises: InputError if a bound could not be read back."""
    few = [x for layer in bounds.layers for x in (layer.lower, layer.upper)] + list(bounds.margins.sigmas)
    sizes = [max(x.numerator.bit_length(), x.denominator.bit_length()) - 1 for x in few]
    largest = max(*sizes, int(np.abs(_matrix_of(bounds.margins).entries.exponents).max()))
    if largest > MAX_BINARY_EXPONENT:
        raise InputError(f"a bound near 2^±{largest} is beyond what a bounds file can hold: rescale the model's layers")


def _matrix_of(margins: Margins) -> PairMatrix:
    try:
        return PairMatrix.of(margins.matrix)
    except ValueError as error:
        raise InputError(f"these margins cannot be written: {error}") from None


def _margin_rows(matrix: PairMatrix) -> tuple[list[str], dict[str, Any]]:
    """The rows of the file, and what guards them: decimals or a hash."""
    parts = [matrix.entries[first_of_row(j) : first_of_row(j + 1)] for j in range(len(matrix))]
    exact = [" ".join(f"{m}*2^{e}" for m, e in row.parts()) for row in parts]
    if len(matrix) > MOST_READ:
        return exact, {"sha256": _digest(exact)}
    return exact, {"decimal": [" ".join(map(decimal_upper, row)) for row in parts]}


def _digest(rows: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(rows).encode()).hexdigest()


def _as_json(bounds: Bounds) -> dict[str, Any]:
    exact, guard = _margin_rows(_matrix_of(bounds.margins))
    return {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "semantics": bounds.semantics,
        "eps_space": bounds.eps_space,
        "model": [{"name": source.name, "sha256": source.sha256} for source in bounds.sources],
        "network": bounds.network,
        "single": None if bounds.single is None else {"exact": bounds.single.text, "classes": str(bounds.single)},
        "method": {
            "backend": bounds.method.backend,
            "prec": bounds.method.prec,
            "working_bits": bounds.method.working_bits,
            "iterations": bounds.method.iterations,
            "norms": bounds.method.norms,
            "margins": bounds.method.margins,
            "tuning_rounds": bounds.method.tuning_rounds,
        },
        "versions": dict(bounds.versions),
        "layers": [
            {
                "layer": layer.layer,
                "source": layer.source,
                "map": layer.what,
                "rows": layer.shape[0],
                "columns": layer.shape[1],
                "activation": bounds.activations[layer.layer],
                "lower": {"exact": format_exact(layer.lower), "decimal": decimal_lower(layer.lower)},
                "upper": {"exact": format_exact(layer.upper), "decimal": decimal_upper(layer.upper)},
                "method": layer.method,
                "iterations": layer.iterations,
                "computed_by": layer.computed_by,
                "skipped_because": list(layer.skipped_because),
                "sigma": _sigma(bounds.margins, layer.layer),
            }
            for layer in bounds.layers
        ],
        "margins": {
            "exact": exact,
            **guard,
            "computed_by": bounds.margins.computed_by,
            "skipped_because": list(bounds.margins.skipped_because),
        },
    }


def _sigma(margins: Margins, layer: int) -> dict[str, str] | None:
    if layer >= len(margins.sigmas):
        return None
    sigma = margins.sigmas[layer]
    return {"exact": format_exact(sigma), "decimal": decimal_upper(sigma)}


def load_bounds(path: str | Path) -> Bounds:
    """Reads a bounds file. Raises: InputError if it is damaged, incomplete, or of another version."""
    path = Path(path)
    with unpacked(path) as inner:
        _refuse_another_kind(inner)
        text = read_text(inner)
    try:
        data = parse_json(text)
    except ValueError as error:
        raise InputError(f"{path} is not a complete bounds file: {error}") from None
    try:
        with error_context(str(path)):
            return replace(_from_json(data), witnesses=_stored(data["witnesses"], path))
    except SoundnessError as error:
        raise InputError(f"{path} contradicts itself: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise InputError(f"{path} is not a bounds file of version {FORMAT_VERSION}: {what}") from None


def _refuse_another_kind(path: Path) -> None:
    """Raises: InputError for what begins like no JSON object: a model, as a rule, or a table."""
    if not is_plain(path):
        return
    with open_input(path) as file:
        start = file.read(64).removeprefix(b"\xef\xbb\xbf").lstrip()
    if path.name.endswith(WITNESS_ENDING):
        raise InputError(f"{path} holds the witnesses of a bounds file: give that, {path.name[: -len(WITNESS_ENDING)]}")
    if start and not start.startswith(b"{"):
        raise InputError(
            f"{path} is not a bounds file. If it is a model, compute its bounds first: intervalcert bounds {path} -o "
            "bounds.json"
        )


def _from_json(data: Any) -> Bounds:
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InputError("this is not a bounds file (make one with: intervalcert bounds MODEL -o bounds.json)")
    found = _typed(data["version"], int, "version")
    if found > FORMAT_VERSION:
        shown = found if found < 10**6 else "a huge number"
        raise InputError(f"it has version {shown}, newer than {FORMAT_VERSION}: upgrade intervalcert to read it")
    if found < FORMAT_VERSION:
        raise InputError(f"it has version {found}, older than {FORMAT_VERSION}: compute the bounds anew")
    space = data["eps_space"]
    if space not in EPS_SPACES:
        raise InputError(f"bounds for distances in the space {space!r}; only {' and '.join(EPS_SPACES)} are understood")
    if data["semantics"] != "real":
        raise InputError(f"bounds for {data['semantics']!r} semantics; only 'real' is understood")
    layers = tuple(_layer(item, index) for index, item in enumerate(_typed(data["layers"], list, "layers")))
    method = data["method"]
    return Bounds(
        layers=layers,
        margins=_margins(data, layers),
        activations=_activations(_of_each_layer(data["layers"], layers, "activation")),
        sources=_sources(_typed(data["model"], list, "model")),
        method=Method(
            backend=_typed(method["backend"], str, "backend"),
            prec=_natural(method["prec"], "precision"),
            working_bits=None if method["working_bits"] is None else _natural(method["working_bits"], "working_bits"),
            iterations=_asked(method["iterations"]),
            norms=_typed(method["norms"], str, "norms"),
            margins=_margin_method(method["margins"]),
            tuning_rounds=_rounds(method["tuning_rounds"]),
        ),
        semantics="real",
        eps_space=space,
        network=_hash(data["network"], "network"),
        versions=tuple(
            (name, _typed(number, str, f"version of {name}"))
            for name, number in _typed(data["versions"], dict, "versions").items()
        ),
        single=_single(data["single"], layers),
    )


def _single(value: Any, layers: tuple[LayerBound, ...]) -> Single | None:
    """A damaged threshold would turn classes round: it is there twice, as every bound is."""
    if value is None:
        return None
    if layers[-1].shape[0] != 2:
        raise InputError(f"single: the last layer has {layers[-1].shape[0]} outputs, not a threshold and one more")
    found = Single.of_text(_typed(value["exact"], str, "single"))
    if value["classes"] != str(found):
        exact = shortened(value["exact"])
        raise InputError(f"single: {exact!r} does not agree with the classes that are told beside it")
    return found


def _typed(value: Any, kind: type, what: str) -> Any:
    if not isinstance(value, kind) or isinstance(value, bool):
        raise InputError(f"{what}: {type(value).__name__} found where {kind.__name__} is expected")
    return value


def _natural(value: Any, what: str) -> int:
    if _typed(value, int, what) < 1:
        raise InputError(f"{what}: a positive number is expected")
    return int(value)


def _asked(value: Any) -> str:
    """The iterations that were asked for: a number or auto, as text."""
    text: str = _typed(value, str, "iterations")
    if text != "auto" and not (text.isascii() and text.isdecimal() and len(text) < 4):
        raise InputError("iterations: a number or 'auto' is expected")
    return text


def _margin_method(value: Any) -> MarginMethod:
    if value not in MARGIN_METHODS:
        raise InputError(f"margins: {value!r} is no method of bounding them")
    found: MarginMethod = value
    return found


def _rounds(value: Any) -> int:
    if not 0 <= _typed(value, int, "tuning_rounds") <= MAX_ROUNDS:
        raise InputError(f"tuning_rounds: a number up to {MAX_ROUNDS} is expected")
    return int(value)


def _texts(value: Any, what: str) -> tuple[str, ...]:
    return tuple(_typed(item, str, what) for item in _typed(value, list, what))


def _sources(items: list[Any]) -> tuple[Source, ...]:
    if not items:
        raise InputError("model: no file is named")
    found = tuple(Source(_typed(item["name"], str, "name"), _typed(item["sha256"], str, "sha256")) for item in items)
    for source in found:
        _hash(source.sha256, "model")
    return found


def _hash(text: Any, what: str) -> str:
    if re.fullmatch("[0-9a-f]{64}", _typed(text, str, what)) is None:
        raise InputError(f"{what}: a sha256 has 64 hexadecimal digits")
    return str(text)


def _of_each_layer(items: list[Any], layers: Sequence[LayerBound], name: str) -> list[Any]:
    """What entries say of their layer: those of one layer the same. Raises: InputError unless all layers are there."""
    found: list[Any] = []
    for item, bound in zip(items, layers, strict=True):
        if bound.layer == len(found):
            found.append(item[name])
        elif bound.layer != len(found) - 1 or found[-1] != item[name]:
            raise InputError(f"{name}: layers are missing or not in their order, or the branches of one disagree")
    return found


def _layer(item: Any, index: int) -> LayerBound:
    where, method = f"layer {index}", item["method"]
    if method not in CLAIMED:
        raise InputError(f"{where}: {method!r} is no method of bounding a norm")
    layer, source = _typed(item["layer"], int, where), _typed(item["source"], int, where)
    if not INPUT <= source < layer <= MAX_LAYERS:
        raise InputError(f"{where}: layer {layer} takes what layer {source} gives, which makes no sense")
    shape = (_typed(item["rows"], int, where), _typed(item["columns"], int, where))
    iterations = _typed(item["iterations"], int, where)
    if min(shape) < 1 or not 0 <= iterations <= MAX_ITERATIONS:
        raise InputError(f"{where}: a shape of {shape} and {iterations} iterations make no sense")
    return LayerBound(
        shape=shape,
        lower=_bound(item["lower"]["exact"], item["lower"]["decimal"], decimal_lower, f"{where}, lower"),
        upper=_bound(item["upper"]["exact"], item["upper"]["decimal"], decimal_upper, f"{where}, upper"),
        method=method,
        iterations=iterations,
        computed_by=_typed(item["computed_by"], str, where),
        skipped_because=_texts(item["skipped_because"], where),
        layer=layer,
        source=source,
        what=_typed(item["map"], str, where),
    )


def _activations(names: Iterable[Any]) -> tuple[str | None, ...]:
    *between, last = names
    for index, name in enumerate(between):
        try:
            activation(_typed(name, str, "activation"))
        except InputError as error:
            raise InputError(f"layer {index}: {error}") from None
    if last is not None:
        raise InputError(f"the last layer gives logits, but has the activation {last!r}")
    return (*between, None)


def _margins(data: Any, layers: tuple[LayerBound, ...]) -> Margins:
    item = data["margins"]
    exact = _texts(item["exact"], "margins")
    classes = layers[-1].shape[0] if layers else 0
    if classes < 2 or len(exact) != classes:
        raise InputError(f"the margins must be {classes} rows, one per class of the last layer")
    matrix = PairMatrix(Dyadics.of(_margin(text, i, j) for j, row in enumerate(exact) for i, text in _cells(row, j)))
    if classes > MOST_READ:
        if _digest(exact) != _hash(item["sha256"], "margins"):
            raise InputError("the margins and their hash disagree: the file is damaged or was edited")
    else:
        decimal = _texts(item["decimal"], "margins")
        if len(decimal) != classes:
            raise InputError(f"the decimals of the margins must be {classes} rows")
        for j, row in enumerate(decimal):
            for i, text in _cells(row, j):
                _check_decimal(matrix[i][j], text, decimal_upper, f"margin {i},{j}")
    return Margins(
        matrix,
        _typed(item["computed_by"], str, "margins"),
        _texts(item["skipped_because"], "margins"),
        _sigmas(_of_each_layer(data["layers"], layers, "sigma")),
    )


def _cells(row: str, j: int) -> Iterator[tuple[int, str]]:
    """The numbers of row j of the margins, one for each class before j."""
    texts = row.split(" ") if row else []
    if len(texts) != j:
        raise InputError(f"row {j} of the margins has {len(texts)} numbers, not {j}: one for each class before it")
    return enumerate(texts)


def _margin(text: str, i: int, j: int) -> tuple[int, int]:
    """(m, e) of a margin m·2^e, written as `save_bounds` does."""
    found = _DYADIC.fullmatch(text)
    if found is None:
        what = "must not be negative" if text.startswith("-") else "is m*2^e, with m odd"
        raise InputError(f"margin {i},{j}: {shortened(text)!r} is none; a bound {what}")
    mantissa, exponent = int(found[1]), int(found[2])
    if abs(exponent) > MAX_BINARY_EXPONENT:
        raise InputError(f"margin {i},{j}: the exponent {exponent} is beyond ±{MAX_BINARY_EXPONENT}")
    if not mantissa & 1 and (mantissa or exponent):
        raise InputError(f"margin {i},{j}: {shortened(text)!r} is m*2^e, but m is even")
    return mantissa, exponent


def _sigmas(items: list[Any]) -> tuple[Fraction, ...]:
    """Of all hidden layers, or of none."""
    *hidden, last = items
    if last is not None or (None in hidden and any(item is not None for item in hidden)):
        raise InputError("sigma: every hidden layer has one, or none has")
    return tuple(
        _bound(item["exact"], item["decimal"], decimal_upper, f"layer {index}, sigma")
        for index, item in enumerate(hidden)
        if item is not None
    )


def _stored(value: Any, path: Path) -> StoredWitnesses | None:
    if value is None:
        return None
    name = _typed(value["name"], str, "witnesses")
    if name != Path(name).name or not name.isprintable() or len(name) > 255 or name in {"", ".", ".."}:
        raise InputError(f"witnesses: {shortened(name)!r} is not the name of a file beside this one")
    folder, resolved = path.absolute(), path.resolve()  # a link may be elsewhere than what it leads to
    places = (folder.with_name(name), witness_path(folder), resolved.with_name(name), witness_path(resolved))
    return StoredWitnesses(tuple(dict.fromkeys(places)), _hash(value["sha256"], "witnesses"))


def _bound(exact: Any, decimal: Any, people: Callable[[Fraction], str], where: str) -> Fraction:
    """The exact value, after checking that the decimal beside it says the same."""
    with error_context(where):
        value = parse_rational(_typed(exact, str, where))
    if value < 0:
        raise InputError(f"{where}: a bound must not be negative")
    _check_decimal(value, decimal, people, where)
    return value


def _check_decimal(value: Fraction, decimal: Any, people: Callable[[Fraction], str], where: str) -> None:
    if people(value) != decimal:
        raise InputError(f"{where}: the exact value and its decimal disagree: the file is damaged or was edited")
