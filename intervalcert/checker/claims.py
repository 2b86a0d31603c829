"""What a certificate claims, and the proof of each claim, one after the other; nothing is accepted that is not proved.

The manifest, and the arrays beside it, are those of docs/file-formats.md. Claims are about the function over the reals
that the weights define, and L2 distances between inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from itertools import zip_longest
from pathlib import Path
from typing import Any

from .archive import Archive, fields, integers
from .core import (
    Chain,
    Factor,
    Refused,
    Step,
    chain_squares,
    check_counterexample,
    check_local,
    is_certified,
    norm_squared,
    product_squares,
    scaled,
    winner_of,
)
from .model import Malformed, Model, values_at

__all__ = ["FORMAT", "VERSION", "Accepted", "Tables", "check_certificate"]

FORMAT, VERSION = "intervalcert certificate", 1

UNKNOWN, MARGINS, LOCAL, FALSIFIED = range(4)
STATUSES = ("unknown", "certified by margins", "certified at the input itself", "falsified by a counterexample")

RADIUS, CHANGE = -50, -24
"""Exponents: radii are multiples of 2^-50, changes of inputs of 2^-24."""

POINTS = ("eps", "kind", "sha256", "scale", "count", "local", "falsified")
MOST_EXPONENT, MOST_OF_LAYER = 20_000, 4096
"""Exponents; of the factor of one layer: others multiply."""

MOST_CHAINS = 4


@dataclass(frozen=True)
class Accepted:
    """All that was proved. norms, margins: squares, of hidden layers, and of each class j and i < j.

    eps, counts: of points, by their status; None and empty if there are none. (Inputs are taken times `Tables.scale`.)
    """

    norms: tuple[Fraction, ...]
    margins: tuple[tuple[Fraction, ...], ...]
    eps: Fraction | None = None
    counts: tuple[int, ...] = ()


@dataclass(frozen=True)
class Tables:
    """Where the rows of outputs and inputs are read, and their hashes; None for what is not given.

    scale: what inputs are multiplied with. Whoever asks says so, not the certificate.
    """

    outputs: Callable[[], Iterator[Sequence[Fraction]]] | None = None
    outputs_sha256: str = ""
    inputs: Callable[[Fraction], Iterator[Sequence[Fraction]]] | None = None
    inputs_sha256: str = ""
    scale: Fraction = Fraction(1)


def check_certificate(
    path: Path, model: Model, tables: Tables, say: Callable[[str], None] = lambda _: None
) -> Accepted:
    """All claims of the certificate, proved. say: is told each that is.

    Raises: Malformed for a file that is none, or of another model or table; Refused for a claim that is not proved.
    """
    archive = Archive(path)
    try:
        return _checked(archive, model, tables, say)
    finally:
        archive.close()


def _checked(archive: Archive, model: Model, tables: Tables, say: Callable[[str], None]) -> Accepted:
    names = ("format", "version", "semantics", "norm", "eps_space", "model", "norms", "chains", "margins", "points")
    manifest = fields(archive.manifest, names, "the manifest")
    words = manifest["format"], manifest["version"], manifest["semantics"], manifest["norm"], manifest["eps_space"]
    if words != (FORMAT, VERSION, "real", "L2", "input") or type(manifest["version"]) is not int:
        raise Malformed(f"{archive.path} is no {FORMAT} of version {VERSION} over the reals, in L2, of the input space")
    if manifest["model"] != model.sha256:
        raise Malformed(f"{archive.path} is a certificate of another model: its numbers have another hash")
    say(f"model: {model.sha256[:16]}..., {'-'.join(map(str, [model.inputs, *(x.outputs for x in model.layers)]))}")
    about = _about(archive, manifest["points"], tables)
    norms = _norms(archive, manifest["norms"], model, say)
    margins = _margins(archive, manifest["margins"], model, norms, _chains(archive, manifest["chains"], model), say)
    counts = () if about is None else _points(archive, about, model, margins, say)
    if archive.left_over is not None:
        raise Malformed(f"{archive.path}: {archive.left_over[:60]!r} is of no claim")
    return Accepted(tuple(norms), tuple(map(tuple, margins)), None if about is None else about.eps, counts)


def _dyadic(values: Any, what: str) -> Fraction:
    """[n, e] for n·2^e."""
    number, exponent = integers(values, 2, what, 1 << 512)
    return scaled(number, _exponent(exponent, what))


def _exponent(value: Any, what: str, most: int = MOST_EXPONENT) -> int:
    (found,) = integers([value], 1, what, most)
    return found


def _norms(archive: Archive, listed: Any, model: Model, say: Callable[[str], None]) -> list[Fraction]:
    """Squares of norms of all layers but the last."""
    found = []
    if not isinstance(listed, list) or len(listed) != len(model.layers) - 1:
        raise Malformed(f"{archive.path}: norms of another number of layers")
    for index, (each, layer) in enumerate(zip(listed, model.layers, strict=False)):
        what = f"norm {index}"
        given = fields(each, ("upper", "shift", "exponent"), what)
        side = min(layer.inputs, layer.outputs)
        flat = archive.numbers(f"norm{index}.factor", side * (side + 1) // 2)
        rows = [flat[k * (k + 1) // 2 : (k + 1) * (k + 2) // 2] for k in range(side)]
        factor = Factor(_dyadic(given["shift"], what), rows, _exponent(given["exponent"], what, MOST_OF_LAYER))
        square, claimed = norm_squared(layer, factor), _dyadic(given["upper"], what)
        if not (claimed >= 0 and square <= claimed * claimed):
            raise Refused(f"the norm of layer {index} is not proved to be at most what is claimed")
        say(f"norm of layer {index}: at most {_shown(claimed)}")
        found.append(min(square, claimed * claimed))
    return found


def _chains(archive: Archive, listed: Any, model: Model) -> Iterator[Chain]:
    if not isinstance(listed, list) or len(listed) > MOST_CHAINS:
        raise Malformed(f"{archive.path}: chains are a list of at most {MOST_CHAINS}")
    for place, steps in enumerate(listed):
        yield _chain(archive, f"chain{place}", steps, model, whole=True)


def _chain(archive: Archive, name: str, listed: Any, model: Model, *, whole: bool) -> Chain:
    """whole: all neurons of each layer are kept, and no list of them is held."""
    if not isinstance(listed, list) or len(listed) > len(model.layers):
        raise Malformed(f"{archive.path}: {name} is no list of steps")
    found = []
    for index, (each, layer) in enumerate(zip(listed, model.layers, strict=False)):
        names = ("v", "g", "bent") if whole else ("v", "g", "bent", "kept")
        given, what = fields(each, names, f"{name}.{index}"), f"{name}.{index}"
        bent, count = integers([given["bent"], layer.outputs if whole else given["kept"]], 2, what, layer.outputs)
        if not 0 <= bent <= count:
            raise Malformed(f"{archive.path}: {what} has {bent} neurons that bend, of {count}")
        kept = range(count) if whole else archive.numbers(f"{what}.kept", count)
        v, g = archive.numbers(f"{what}.v", count), archive.numbers(f"{what}.g", bent * bent)
        columns = [g[k * bent : (k + 1) * bent] for k in range(bent)]
        found.append(Step(kept, v, _exponent(given["v"], what), columns, _exponent(given["g"], what)))
    return found


def _margins(
    archive: Archive,
    exponent: Any,
    model: Model,
    norms: Sequence[Fraction],
    chains: Iterator[Chain],
    say: Callable[[str], None],
) -> list[list[Fraction]]:
    """The squares of what is claimed: by the product, or by one of the chains."""
    flat = archive.numbers("margins", model.outputs * (model.outputs - 1) // 2)
    unit = _exponent(exponent, "margins")
    proved = [product_squares(model, norms), *(chain_squares(model, chain) for chain in chains)]
    found: list[list[Fraction]] = []
    for j in range(model.outputs):
        claimed = [scaled(n, unit) for n in flat[j * (j - 1) // 2 : j * (j + 1) // 2]]
        found.append([each * each for each in claimed])
        for i, each in enumerate(claimed):
            if not (each >= 0 and min(squares[j][i] for squares in proved) <= each * each):
                raise Refused(f"the margin of the classes {i} and {j} is not proved to be at most what is claimed")
    say(f"margins: all {len(flat)} Lipschitz bounds, by the product and {len(proved) - 1} chains")
    return found


@dataclass(frozen=True)
class _About:
    """What the points are: so many outputs or inputs, times a scale; their rows; what proves some of them."""

    kind: str
    eps: Fraction
    scale: Fraction
    count: int
    rows: Iterator[Sequence[Fraction]]
    local: dict[int, Any]
    falsified: dict[int, Any]


def _about(archive: Archive, given: Any, tables: Tables) -> _About | None:
    """None without points. Raises: Malformed unless they are those of the tables that are given, and no others are."""
    kind = None if given is None else fields(given, POINTS, "points")["kind"]
    for name, table in (("outputs", tables.outputs), ("inputs", tables.inputs)):
        if table is not None and kind != name:
            raise Malformed(f"{archive.path} says nothing about {name}: leave them out (--{name})")
    if given is None:
        return None
    eps, scale, count = _fraction(given["eps"], "eps"), _fraction(given["scale"], "the scale"), given["count"]
    if type(count) is not int or not 0 <= count < 1 << 40 or kind not in ("outputs", "inputs"):
        raise Malformed(f"{archive.path}: points are so many outputs or inputs, with an eps")
    local, falsified = (_by_index(given[name], name) for name in ("local", "falsified"))
    if (tables.outputs if kind == "outputs" else tables.inputs) is None:
        raise Malformed(f"{archive.path} is about {kind}: say in which file they are (--{kind} FILE)")
    if given["sha256"] != (tables.outputs_sha256 if kind == "outputs" else tables.inputs_sha256):
        raise Malformed(f"{archive.path} is about other {kind}: the file has another hash")
    if scale != (1 if kind == "outputs" else tables.scale):
        raise Malformed(f"{archive.path} takes its {kind} times {scale}: say so, if it is so (--input-scale)")
    if tables.inputs is not None:
        return _About(kind, eps, scale, count, tables.inputs(scale), local, falsified)
    return _About(kind, eps, scale, count, iter(()) if tables.outputs is None else tables.outputs(), local, falsified)


def _points(
    archive: Archive,
    about: _About,
    model: Model,
    margins: Sequence[Sequence[Fraction]],
    say: Callable[[str], None],
) -> tuple[int, ...]:
    """How many there are of each status, all of them proved."""
    eps, count, is_inputs = about.eps, about.count, about.kind == "inputs"
    local, falsified = dict(about.local), dict(about.falsified)
    status, winners = archive.numbers("points.status", count), archive.numbers("points.winner", count)
    radii = archive.numbers("points.radius", count)
    if min(radii, default=0) < 0:
        raise Malformed(f"{archive.path}: a radius is not negative")
    counts = [0] * len(STATUSES)
    for index, (row, known) in enumerate(zip_longest(about.rows, status)):
        if row is None or known is None:
            raise Malformed(f"{archive.path} is about {count} {about.kind}, and the file has another number")
        row = row if is_inputs else model.completed(row)
        if not 0 <= known < len(STATUSES) or (known > MARGINS and not is_inputs):
            raise Malformed(f"{archive.path}: point {index} has no status that is known")
        if len(row) != (model.inputs if is_inputs else model.outputs):
            raise Malformed(f"{about.kind} {index}: {len(row)} numbers, which the model has not")
        logits = values_at(model, row)[-1] if is_inputs else row
        winner, radius = winners[index], scaled(radii[index], RADIUS)
        try:
            if winner_of(logits) != winner:
                raise Refused("another class wins")
            if known == LOCAL:
                chains = _local(archive, index, local.pop(index, None), model)
                check_local(model, row, eps, winner, chains)
            elif known == FALSIFIED:
                delta = [scaled(n, CHANGE) for n in archive.numbers(f"falsified{index}", model.inputs)]
                (other,) = integers([falsified.pop(index, -1)], 1, f"falsified {index}")
                check_counterexample(model, row, delta, eps, winner, other)
            elif known == MARGINS and not is_certified(logits, margins, eps):
                raise Refused(f"its leads are not proved to last within {_shown(eps)}")
            most = eps if known == LOCAL else Fraction(0)
            if radius > most and not is_certified(logits, margins, radius):
                raise Refused(f"its leads are not proved to last within the radius {_shown(radius)}")
        except Refused as error:
            raise Refused(f"{about.kind[:-1]} {index}: {error}") from None
        counts[known] += 1
    if local or falsified:
        raise Malformed(f"{archive.path}: proofs of points that are not said to be proved so")
    for name, number in zip(STATUSES, counts, strict=True):
        if number:
            times = f" times {about.scale}" if is_inputs else ""
            say(f"{about.kind}{times}, within {eps}: {number} of {count} {name}")
    return tuple(counts)


def _local(archive: Archive, index: int, listed: Any, model: Model) -> list[Chain]:
    if not isinstance(listed, list) or not 0 < len(listed) <= MOST_CHAINS:
        raise Malformed(f"{archive.path}: point {index} has no chains")
    return [_chain(archive, f"local{index}.{place}", steps, model, whole=False) for place, steps in enumerate(listed)]


def _by_index(values: Any, what: str) -> dict[int, Any]:
    if isinstance(values, dict) and all(key.isascii() and key.isdecimal() and len(key) < 20 for key in values):
        found = {int(key): value for key, value in values.items()}
        if list(map(str, found)) == list(values):
            return found
    raise Malformed(f"{what}: an object with the numbers of points is expected")


def _fraction(text: Any, what: str) -> Fraction:
    """Of the form 3/10."""
    if not (isinstance(text, str) and len(text) < 200 and text.isascii() and text.replace("/", "", 1).isdecimal()):
        raise Malformed(f"{what}: a fraction is expected, such as 3/10")
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise Malformed(f"{what}: {text[:40]!r} is no fraction") from None


def _shown(number: Fraction) -> str:
    """A decimal that is at least that, of six digits. Requires: it is not negative."""
    if not number:
        return "0"
    power = (number.numerator.bit_length() - number.denominator.bit_length()) * 30103 // 100000 - 6
    while number >= Fraction(10) ** (power + 6):
        power += 1
    digits = -(-number // Fraction(10) ** power)
    return f"{Decimal(int(digits)).scaleb(power).normalize():g}"
