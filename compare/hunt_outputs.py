"""A round of the hunt: many outputs, decided at once, and compared with the definition in integers.

Uses `VectorisedCertifier` of the package itself. Logits, margins and eps are integers over common denominators:
y_i = n_i/s, L_ij = m_ij/t, eps = p/q. So an output is certified if and only if (n_j - n_i)·t·q > p·m_ij·s for every
i != j, j being the first index of the largest logit. The products, of up to 2^124, are compared as pairs of 64-bit
integers; s and t may have any power of two beside, which is the same on both sides. Leads are drawn around those at
which an output is just certified: ties, and a unit less or more.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from compare.hunt_points import Found, Wrong
from intervalcert.backends.registry import get_backend
from intervalcert.numbers.matrices import RationalVector
from intervalcert.numbers.pairs import PairMatrix
from intervalcert.verify.number_table import Epsilons, NumberTable
from intervalcert.verify.vectorised import VectorisedCertifier

__all__ = ["outputs_round", "plainly_certified"]

Integers = npt.NDArray[np.int64]
Rng = np.random.Generator

ROWS = 2**16
FEW = 2**8
"""Rows where floats decide next to nothing: exact rationals take them one by one."""

WAYS = ("floats", "floats, eps of each", "float32", "integers", "decimals", "large integers", "texts")
SHARES = (0.32, 0.32, 0.1, 0.1, 0.1, 0.04, 0.02)


def plainly_certified(logits: Integers, margins: Integers, left: int, right: npt.NDArray[np.int64]) -> Any:
    """Of each row whether (n_j - n_i)·left > right·m_ij for every i but the winner j; and j.

    Requires: left and right positive and below 2^62, right one for each row; differences of logits and margins, too.
    """
    rows = np.arange(len(logits))
    winners = np.argmax(logits, axis=1)  # the first one
    certified = np.ones(len(logits), dtype=bool)
    for i in range(logits.shape[1]):
        lead, bound = logits[rows, winners] - logits[:, i], margins[i, winners]
        holds = _is_less(_times(right, bound), _times(np.full(len(lead), left), lead))
        certified &= holds | (winners == i)
    return certified, winners


def _times(a: Integers, b: Integers) -> tuple[Any, Any]:
    """a·b as high·2^64 + low. Requires: both from 0 to 2^62."""
    x, y = a.astype(np.uint64), b.astype(np.uint64)
    half, mask = np.uint64(32), np.uint64(2**32 - 1)
    (xh, xl), (yh, yl) = ((v >> half, v & mask) for v in (x, y))
    middle = xh * yl + ((xl * yl) >> half)  # below 2^63
    other = xl * yh + (middle & mask)
    return xh * yh + (middle >> half) + (other >> half), (other << half) | ((xl * yl) & mask)


def _is_less(a: tuple[Any, Any], b: tuple[Any, Any]) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = (a[0] < b[0]) | ((a[0] == b[0]) & (a[1] < b[1]))
    return found


# -- a round -----------------------------------------------------------------------------------------------------------


def outputs_round(number: int, seconds: float = 0) -> Found:  # noqa: ARG001 - it takes a fraction of one
    """All that is drawn depends on the number alone."""
    rng, found = np.random.default_rng([number, 17, 3]), Found()
    way = WAYS[rng.choice(len(WAYS), p=SHARES)]
    classes = int(rng.choice((2, 3, 5, 10, 40), p=(0.25, 0.25, 0.2, 0.25, 0.05)))
    power = 0
    if way.startswith("floats") and rng.random() < 0.3:
        power = int(rng.choice((-900, -290, -100, 60, 200, 800)))
    rows = FEW if abs(power) > 250 or way in ("large integers", "texts") else ROWS
    logit_bits = 24 if way == "float32" else int(rng.choice((8, 20, 40, 52))) if way != "large integers" else 60
    places = int(rng.integers(1, 8)) if way == "decimals" else 0
    # eps = p/q, as a float of its own for each row or one rational for all of them.
    if way == "floats, eps of each":
        q, p = 1, np.maximum(np.ldexp(rng.random(rows), int(rng.integers(8, 53))).astype(np.int64), 1)
    else:
        q, p = int(rng.choice((1, 10, 255, 2**10))), np.full(rows, rng.choice((1, 3, 36, 77, 1000)))
    margin_bits, right = int(rng.choice((3, 20, 30, 53))), p * 10**places
    margins = _margins(rng, classes, margin_bits)
    # t: such that leads of the size of the logits are just certified, as far as that can be.
    unit = int(rng.choice((1, 1, 3, 1000, 10**6)))
    used = (unit * q).bit_length()
    unit <<= min(max(0, margin_bits + int(right.max()).bit_length() - logit_bits + 1 - used), 62 - used)
    logits = _logits(rng, rows, margins, right, unit * q, logit_bits)
    certified, winners = plainly_certified(logits, margins, unit * q, right)
    exact = np.array([[Fraction(m, unit) for m in row] for row in margins.tolist()])
    scaled = exact * Fraction(2) ** power
    given: Any = scaled.tolist()
    if unit.bit_count() == 1 and rng.random() < 0.5:
        given = PairMatrix.of(given)
    record = {"way": way, "classes": classes, "power": power, "unit": unit, "bits": logit_bits, "places": places}
    try:
        certifier = VectorisedCertifier(given, get_backend("exact"))
        table, distances = _table(way, logits, places, power), _distances(way, p, q)
        verdicts = certifier.verdicts(table, distances, with_radius=bool(rng.random() < 0.7))
    except Exception as error:
        found.fails(error, record)
        return found
    wrong = (verdicts.certified != certified) | (verdicts.argmax != winners)
    scale = ", scaled" if power else ""
    found.trials = Counter(
        {f"{way}{scale}, certified": int(certified.sum()), f"{way}{scale}, not": int((~certified).sum())}
    )
    for index in np.flatnonzero(wrong)[:3].tolist():
        says = "certified" if verdicts.certified[index] else "not certified"
        place = {"index": index, "logits": logits[index].tolist(), "eps": f"{p[index]}/{q}"}
        found.wrong.append(Wrong(f"{says}, with the winner {verdicts.argmax[index]}: not so", record | place))
    if way.startswith("floats"):
        _check_radii(certifier, table, verdicts.radius, found, record)
    return found


def _margins(rng: Rng, classes: int, bits: int) -> Integers:
    """Symmetric, with zeros on the diagonal, some elsewhere, and equal ones."""
    found = np.floor(rng.random((classes, classes)) * 2.0**bits).astype(np.int64)
    if rng.random() < 0.3:
        found[rng.random(found.shape) < 0.3] = 0
    if rng.random() < 0.3:
        found[rng.random(found.shape) < 0.5] = found[0, -1]
    found = np.maximum(found, found.T)
    np.fill_diagonal(found, 0)
    return found


def _logits(rng: Rng, rows: int, margins: Integers, right: Integers, left: int, bits: int) -> Integers:
    """Leads near right·m/left, where that fits into so many bits, or any."""
    classes = len(margins)
    winners = rng.integers(0, classes, rows)
    lead = np.floor(rng.random((rows, classes)) * 2.0 ** rng.uniform(0, bits)).astype(np.int64)
    edge = (right[:, None].astype(float) * margins[:, winners].T) / left
    near = np.rint(edge) + rng.integers(-2, 3, lead.shape)
    fits = (edge < 2.0 ** (bits - 1)) & (rng.random(lead.shape) < 0.8)
    lead = np.where(fits, np.maximum(near, 0), lead).astype(np.int64)
    lead[rng.random(lead.shape) < 0.02] = 0
    top = np.floor(rng.random(rows) * 2.0 ** (bits - 1)).astype(np.int64)
    found = top[:, None] - np.minimum(lead, 2 ** (bits - 1))
    found[np.arange(rows), winners] = top
    return found


def _table(way: str, logits: Integers, places: int, power: int) -> NumberTable:
    if way == "large integers":
        return NumberTable.of_array(logits)
    if way == "integers":
        return NumberTable.of_array(logits.astype(np.int64 if np.abs(logits).max() >= 2**31 else np.int32))
    if way == "texts":
        return NumberTable.of_exact([RationalVector(tuple(row), 1) for row in logits.tolist()])
    if way == "decimals":
        return NumberTable(logits.astype(np.float64), places)
    return NumberTable(np.ldexp(logits.astype(np.float32 if way == "float32" else np.float64), power))


def _distances(way: str, p: Integers, q: int) -> Epsilons:
    if way == "floats, eps of each":
        return Epsilons.of_floats(p.astype(np.float64))
    return Epsilons.all_equal(Fraction(int(p[0]), q))


def _check_radii(
    certifier: VectorisedCertifier, table: NumberTable, radius: npt.NDArray[np.float64], found: Found, record: Any
) -> None:
    """Certified at the radius itself, where it is one, and not at the next float above it."""
    some = np.flatnonzero((radius > 0) & np.isfinite(radius))[:FEW]
    if not len(some):
        return
    rows = NumberTable(table.values[some])
    for distance, expected in ((radius[some], True), (np.nextafter(radius[some], np.inf), False)):
        if not np.isfinite(distance).all():
            continue
        again = certifier.verdicts(rows, Epsilons.of_floats(distance))
        found.trials["at the radius, and next to it"] += len(some)
        for index in np.flatnonzero(again.certified != expected)[:3].tolist():
            place = {"index": int(some[index]), "radius": radius[some[index]].hex()}
            found.wrong.append(Wrong(f"not {expected} at the radius, or next to it", record | place))
