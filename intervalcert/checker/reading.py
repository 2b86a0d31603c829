"""Models, outputs and inputs from files, each number at its exact value: our ``.npz``, ``.npy``, and text.

A float is taken apart (`float.as_integer_ratio` is exact); nothing is ever computed with one. Nobody vouches for the
files: sizes are compared with limits before memory is taken, and whatever is wrong with a file is `Malformed`.
"""

from __future__ import annotations

import ast
import hashlib
import io
import os
import re
import struct
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from math import lcm, prod
from operator import mul
from pathlib import Path
from typing import IO, Any

from .model import Layer, Malformed, Model, Rows, activation

__all__ = ["file_sha256", "read_model", "read_table"]

MAX_MODEL, MAX_TABLE, MAX_LINE, MAX_ROW, MAX_MEMBERS, MAX_HEADER = 2**28, 2**31, 2**22, 2**20, 2**12, 2**12
"""Bytes of a model, unpacked (it has fewer numbers), of a table in text, of a line; numbers of a row, or bytes if they
are texts; members of an archive, and layers; bytes of the header of an array."""
MAX_DIGITS, MAX_EXPONENT, MAX_BINARY, MAX_UNIT, MAX_BITS = 1500, 1000, 20_000, 2**16, 2**32
"""Of a decimal; of m*2^e; bits of a common denominator, and of what a normalisation adds."""

Pair = tuple[int, int]  # a number: its numerator, and its denominator, which is positive

_DECIMAL = re.compile(r"([+-]?+)(\d*+)(?:\.(\d*+))?+(?:[eE]([+-]?+)(?=\d)0*+(\d*+))?+", re.ASCII)
_DYADIC = re.compile(r"(-?\d+)\*2\^(-?\d{1,9})", re.ASCII)
_ROW = re.compile(r"\s*+(,?+)\s*+((?:\[\s*+(?=\[))?+)\[([^\[\]]++)\]\s*+(\]?+)\s*+")
_TYPE = re.compile(r"[<>]([fiu][1248])|\|([iu]1|S[1-9]\d{0,3})", re.ASCII)
_CODES = dict(zip(["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"], "efdbhiqBHIQ", strict=True))
_MEMBER = re.compile(r"([Wb](0|[1-9]\d{0,3})|activations|mean|factor|single|shape|folded)\.npy", re.ASCII)
_NOT_YET = re.compile(r"(terms|factor_least|I\d+(_\d+)?|W\d+_\d+|(before|after)(_least)?\d+)\.npy", re.ASCII)
_NO_NAMES = {"nan", "inf", "infinity", "na", "n/a", "none", "null", "nil", "missing"}


@contextmanager
def _named(where: object) -> Iterator[None]:
    """Whatever goes wrong meanwhile is Malformed, and says where."""
    try:
        yield
    except Malformed as error:
        raise Malformed(f"{where}: {error}") from None
    except Exception as error:
        raise Malformed(f"{where} is damaged, or not plain: renew it ({type(error).__name__}: {error!s:.99})") from None


@contextmanager
def _opened(path: Path) -> Iterator[tuple[io.BufferedReader, int, bytes]]:
    """A file, its size, and its first bytes."""
    with _named(path):
        if not path.is_file():
            raise Malformed("there is no such file, or it is not a regular one")
        with path.open("rb") as file:
            yield file, os.fstat(file.fileno()).st_size, file.peek(6)[:6]


def file_sha256(path: Path) -> str:
    """The hash of a file, read piece by piece. Raises: Malformed."""
    with _opened(path) as (file, _, _):
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_model(path: Path, activation_name: str | None = None) -> Model:
    """The model of our ``.npz`` or of a text file, in the space of its inputs. Raises: Malformed.

    activation_name: what is between the layers, if the file does not say it; ``relu`` by default.
    A single output becomes two, the threshold (0 by default) and it: class 1 wins if it is above the threshold.
    """
    with _opened(path) as (file, size, start):
        if start.startswith(b"PK"):
            return _archived(file, size, activation_name)
        _check_text(path, size, start, MAX_MODEL)
        return _model(list(_text_layers(file.read().decode("utf-8-sig"))), activation_name, None, None)


def read_table(path: Path, scale: Fraction) -> Iterator[list[Fraction]]:
    """The rows of a ``.npy`` or a text file, one after the other, times scale. Raises: Malformed, perhaps in the end.

    The first index of an array is that of the row, the others run through it, the last one fastest.
    """
    top, bottom = scale.as_integer_ratio()
    with _opened(path) as (file, size, start):
        is_array = start == b"\x93NUMPY"
        for row in map(_pairs, _array(file, size, None)[1]) if is_array else _text_rows(path, file, size, start):
            yield [Fraction(n * top, d * bottom) for n, d in row]


def _decimal(text: str) -> Pair:
    """What a decimal says, exactly. Raises: Malformed for anything else, and for one that is too long."""
    match = _DECIMAL.fullmatch(text)
    if match is None or not (match[2] or match[3]):
        raise Malformed(f"{text[:40]!r} is not a (finite) decimal number")
    whole, part, power = match[2], match[3] or "", match[5] or "0"
    if len(whole) + len(part) > MAX_DIGITS or len(power) > 4 or int(power) > MAX_EXPONENT:
        raise Malformed(f"{text[:40]!r}… has over {MAX_DIGITS} digits, or an exponent beyond ±{MAX_EXPONENT}")
    number, shift = int(f"{match[1]}{whole}{part}"), int(f"{match[4] or ''}{power}") - len(part)
    return (number * 10**shift, 1) if shift >= 0 else (number, 10**-shift)


def _rational(text: str) -> Pair:
    """``1/3``, ``5*2^-200`` or a decimal. Raises: Malformed; ZeroDivisionError."""
    dyadic = _DYADIC.fullmatch(text.strip()) if len(text) <= MAX_DIGITS else None
    if dyadic is not None and abs(int(dyadic[2])) <= MAX_BINARY:
        return int(dyadic[1]) << max(int(dyadic[2]), 0), 1 << max(-int(dyadic[2]), 0)
    top, slash, bottom = text.partition("/")
    (n, d), (m, e) = _decimal(top.strip()), _decimal(bottom.strip()) if slash else (1, 1)
    return Fraction(n * e, d * m).as_integer_ratio()


def _pairs(items: Iterable[Any]) -> list[Pair]:
    """Of what is in an array. Raises: Malformed; ValueError and OverflowError for nan and inf."""
    return [_rational(x.rstrip(b"\0").decode()) if isinstance(x, bytes) else x.as_integer_ratio() for x in items]


def _over_one(blocks: Iterable[Sequence[Pair]], size: int) -> tuple[list[list[int]], int]:
    """Numerators over one denominator, and that. Raises: Malformed for far more bits than their bytes in the file."""
    made: list[tuple[list[int], int]] = []
    common, count, bits = 1, 0, 0
    for block in blocks:
        unit = lcm(*{d for _, d in block})
        common, count = lcm(common, unit), count + len(block)
        bits += 2**10 + sum(n.bit_length() - d.bit_length() for n, d in block)
        if common.bit_length() > MAX_UNIT or bits + count * common.bit_length() > 2**20 + 2**8 * size:
            raise Malformed("over one denominator these numbers are too long: save floats of less different sizes")
        factors = {d: unit // d for d in {d for _, d in block}}
        made.append(([n * factors[d] for n, d in block], unit))
    return [x if unit == common else [n * (common // unit) for n in x] for x, unit in made], common


def _check_text(path: Path, size: int, start: bytes, most: int) -> None:
    """Raises: Malformed for what is not text, or too much."""
    if path.suffix.lower() == ".gz" or start.startswith(b"\x1f\x8b"):
        raise Malformed("compressed files are not read here: unpack it first, by gunzip")
    if size > most or any(byte < 9 or 13 < byte < 32 for byte in start):
        raise Malformed(f"neither a numpy file nor text of at most {most} bytes: save it as one (intervalcert convert)")


def _text_rows(path: Path, file: IO[bytes], size: int, start: bytes) -> Iterator[list[Pair]]:
    """The lines of a table, of which the first one may be a header, and blank ones are nothing."""
    _check_text(path, size, start, MAX_TABLE)
    width, number, begun = 0, 0, False
    while data := file.readline(MAX_LINE + 1):
        line = data.decode("utf-8" if number else "utf-8-sig")
        cells, number, blank = line.strip().split(","), number + 1, not line.strip()
        if not blank and (begun or not all(map(_is_name, cells))):
            with _named(f"line {number}"):
                if len(data) > MAX_LINE or len(cells) > MAX_ROW or len(cells) != (width or len(cells)):
                    raise Malformed(f"{len(cells)} numbers in {len(data)} bytes: unlike the others, or too many")
                if len(cells[-1].split()) > 1:
                    raise Malformed("a blank where a comma is expected, or before an eps, which is not read: cut it")
                row = [_decimal(cell.strip(" \t")) for cell in cells]
            yield row
            width = len(cells)
        begun = begun or not blank
    if not width:
        raise Malformed("it contains no rows")


def _is_name(cell: str) -> bool:
    bare = cell.strip().strip('"').strip().lower()
    return (bare[:1].isalpha() or bare[:1] == "_") and cell.isprintable() and bare not in _NO_NAMES


def _text_layers(text: str) -> Iterator[Layer]:
    """``[[1.0,2.0],[3.0,4.0]],[[…]]``: a matrix for each layer, with a row for each input."""
    rows: list[str] = []
    at, layer = 0, 0
    while match := _ROW.match(text, at):
        comma, opens, row, closes = match.groups()
        is_placed = bool(opens) != bool(rows) and bool(comma) == bool(rows or layer)
        if not is_placed or len(row) > MAX_LINE or layer == MAX_MEMBERS:
            break
        at = match.end()
        rows.append(row)
        if closes:
            with _named(f"layer {layer}"):
                numbers = ([_decimal(x.strip()) for x in each.split(",")] for each in rows)
                columns, unit = _over_one(numbers, sum(len(x) + 3 for x in rows))
                yield Layer(list(zip(*columns, strict=True)), unit, [0] * len(columns[0]), 1, None)
            rows, layer = [], layer + 1
    if rows or at < len(text) or not layer:
        raise Malformed(f"layer {layer}: {text[at : at + 40]!r} where another row, layer or the end is expected")


def _array(file: IO[bytes], size: int, sides: int | None) -> tuple[bool, Iterator[tuple[Any, ...]]]:
    """The rows of a matrix, or (True) its columns; a vector, as one row; or (sides None) the rows of a table.

    Raises: Malformed unless it has so many sides, and its items (numbers or texts) fill the rest of so many bytes.
    """
    start = file.read(8)
    length = int.from_bytes(file.read(2 if start[6:7] == b"\1" else 4), "little")
    if start not in (b"\x93NUMPY\1\0", b"\x93NUMPY\2\0") or length > MAX_HEADER:
        raise Malformed("it is no array with a short header: save it by numpy.save or numpy.savez")
    said = ast.literal_eval(file.read(length).decode("ascii"))
    shape, is_fortran, match = said["shape"], said["fortran_order"], _TYPE.fullmatch(str(said["descr"]))
    if match is None:
        raise Malformed(f"type {str(said['descr'])[:40]!r}: float16, float32, float64 or integers are read: save those")
    is_plain = len(said) == 3 and type(is_fortran) is bool and all(type(x) is int and x > 0 for x in shape)
    if not is_plain or not shape or len(shape) != (sides or len(shape)) or (is_fortran and sides is None):
        raise Malformed(f"shape {str(shape)[:40]}, where {sides or 'some'} sides are expected (of a table in C order)")
    code = f"{match[2][1:]}s" if match[0][1] == "S" else _CODES[match[1] or match[2]]
    count = 1 if sides == 1 else shape[-1 if is_fortran else 0]
    width = prod(shape) // count
    each = width * struct.calcsize(f"<{code}")
    if file.tell() + count * each != size or (each if "s" in code else width) > MAX_ROW:
        raise Malformed(f"it does not hold what its header says, or more than {MAX_ROW} in a row: is it truncated?")
    form = match[0][0].replace("|", "<") + (code * width if "s" in code else f"{width}{code}")
    return is_fortran and sides == 2, (struct.unpack(form, file.read(each)) for _ in range(count))


def _archived(file: IO[bytes], size: int, activation_name: str | None) -> Model:
    file.seek(max(size - 42, 0))
    tail = file.read(42).rjust(42)  # what is there in larger kinds of archives alone; the end, without a comment
    if tail[:4] == b"PK\6\7" or tail[20:24] != b"PK\5\6" or int.from_bytes(tail[32:36], "little") > MAX_MEMBERS << 8:
        raise Malformed("it is no complete .npz of few members: is it truncated?")
    with zipfile.ZipFile(file) as archive:
        members = _members(archive.infolist(), int.from_bytes(tail[30:32], "little"), size)

        def array(name: str, sides: int) -> tuple[Rows, int]:
            with _named(name), archive.open(members[name]) as member:
                has_columns, rows = _array(member, members[name].file_size, sides)
                found, unit = _over_one(map(_pairs, rows), members[name].file_size)
                return list(zip(*found, strict=True)) if has_columns else found, unit

        def names(name: str) -> list[str]:
            with _named(name), archive.open(members[name]) as member:
                (found,) = _array(member, members[name].file_size, 1)[1]
                return [x.rstrip(b"\0").decode("ascii") for x in found]

        layers: list[Layer] = []
        while (place := str(len(layers))) and f"W{place}" in members:
            rows, unit = array(f"W{place}", 2)
            (bias,), bias_unit = array(f"b{place}", 1) if f"b{place}" in members else ([[0] * len(rows)], 1)
            layers.append(Layer(rows, unit, bias, bias_unit, None))
        if "mean" in members:
            layers[0] = _behind(layers[0], array("mean", 1), array("factor", 1))
        between, single = (names(x) if x in members else None for x in ("activations", "single"))
        return _model(layers, activation_name, between, single)


def _members(infos: Iterable[zipfile.ZipInfo], listed: int, size: int) -> dict[str, zipfile.ZipInfo]:
    """By their names. Raises: Malformed for one that is not read here, is missing, or too large."""
    found: dict[str, zipfile.ZipInfo] = {}
    for info in infos:
        name, label = info.orig_filename[:-4], repr(info.orig_filename[:60])
        if _NOT_YET.fullmatch(info.orig_filename):
            raise Malformed(f"{label}: no certificates yet of convolutions, branches, unsure scales: give matrices")
        if not _MEMBER.fullmatch(info.orig_filename) or name in found or len(found) == MAX_MEMBERS:
            raise Malformed(f"{label} is not known, there twice, or too much: save W0, W1, … and b0, b1, … alone")
        if info.compress_type not in (0, 8) or info.file_size > max(2**20, 1000 * min(info.compress_size, size)):
            raise Malformed(f"{label} unpacks to far too much, or in an unusual way: save it by numpy.savez")
        found[name] = info
    count = sum(name[0] == "W" for name in found)
    beyond = [name for name in found if name[0] in "Wb" and int(name[1:]) >= count]
    if not count or beyond or ("mean" in found) != ("factor" in found):
        raise Malformed(f"it has {[*found][:9]}, not W0, W1, … without gaps, their biases, mean and factor or neither")
    most = min(MAX_MODEL, max(9 * 2**20, 16 * size))
    if len(found) != listed or sum(info.file_size for info in found.values()) > most:
        raise Malformed(f"not the {listed} members it lists, or over {most} bytes unpacked: save it by numpy.savez")
    return found


def _behind(layer: Layer, mean: tuple[Rows, int], factor: tuple[Rows, int]) -> Layer:
    """W·factor·(x - mean) + b as one layer. Raises: Malformed for other counts, zeros, or too much."""
    ((means,), mean_unit), ((factors,), factor_unit) = mean, factor
    longest = max(map(int.bit_length, [*means, *factors, mean_unit, factor_unit]))
    is_long = longest * layer.inputs * layer.outputs > MAX_BITS
    if not len(means) == len(factors) == layer.inputs or 0 in factors or is_long:
        raise Malformed(f"mean and factor must be {layer.inputs} numbers each, none too long, and no factor zero")
    rows = [list(map(mul, row, factors)) for row in layer.rows]
    shift = [sum(map(mul, row, means)) for row in rows]
    unit, over = layer.unit * factor_unit, layer.unit * factor_unit * mean_unit
    bias = [b * over - s * layer.bias_unit for b, s in zip(layer.bias, shift, strict=True)]
    return replace(layer, rows=rows, unit=unit, bias=bias, bias_unit=layer.bias_unit * over)


def _model(layers: list[Layer], usual: str | None, between: list[str] | None, single: list[str] | None) -> Model:
    """With the activations of the file, or the usual one. Raises: Malformed if these do not fit each other."""
    *before, last = layers
    if between is not None and (usual is not None or len(between) != len(before)):
        raise Malformed(f"it names {len(between)} activations: {len(before)}, and no other beside them, are expected")
    if single is not None and (last.outputs > 1 or len(single) != 1 or single == ["regression"]):
        raise Malformed("'single' is the threshold of a single output: without classes nothing can be certified")
    if last.outputs == 1:
        top, bottom = _rational(single[0]) if single else (0, 1)
        bias = [top * last.bias_unit, last.bias[0] * bottom]
        last = replace(last, rows=[[0] * last.inputs, *last.rows], bias=bias, bias_unit=last.bias_unit * bottom)
    names = [usual or "relu"] * len(before) if between is None else between
    return Model((*(replace(x, activation=activation(name)) for x, name in zip(before, names, strict=True)), last))
