"""In which unit the inputs of a table are: all of them are looked at before anything is proved of one.

A table does not say its unit, and results do not show a wrong one: given pixels 0..255, a model that takes x/255 is
hardly less accurate, and every radius is 255 times too large. So

* numbers that are all whole, some of them beyond ±1, are refused without a scale: 1/255, or 1 for "as they are";
* numbers outside of a box that the user states are refused;
* numbers within ±1 with a scale of a hundredth or less, as if they had been scaled before, give a warning;
* the range after scaling belongs to every result.

It makes no difference how the numbers are held: integers, floats, decimals or rationals.
Logits are no inputs, but may be something else, too: `are_probabilities`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from intervalcert.errors import InputError
from intervalcert.model.network import Network
from intervalcert.numbers.rounding import float_enclosure
from intervalcert.numbers.text import decimal_upper, shortest_exact
from intervalcert.verify.jobs import check_width
from intervalcert.verify.number_table import NumberTable

__all__ = ["PROBABILITIES", "Box", "Units", "are_probabilities", "units_of"]

Box = tuple[Fraction, Fraction]
"""Ends of an interval."""

_SMALL_SCALE = Fraction(1, 100)
"""What is scaled by less was large before: bytes, percents."""

_ROUNDING = 0.01
"""By so much may a sum of rounded probabilities be off: in bfloat16, or with three decimals."""

PROBABILITIES = (
    "every row consists of numbers in [0, 1] that sum to 1, as probabilities do: margins live on the logits before a "
    "softmax, whose leads are larger. Give those"
)


@dataclass(frozen=True)
class Units:
    """How a table of inputs is read: every number times `scale`. They then are in [low, high], and no smaller interval.

    doubt: what speaks against this scale, for people; None if nothing does.
    """

    scale: Fraction
    low: Fraction
    high: Fraction
    doubt: str | None = None

    @property
    def floats(self) -> tuple[float, float]:
        """The range, rounded outward."""
        low, high = float_enclosure(self.low, self.high)
        return low + 0.0, high + 0.0  # zero has no sign


def units_of(chunks: Iterable[NumberTable], network: Network, scale: Fraction | None, box: Box | None = None) -> Units:
    """What the whole table is, by a look at every number of it. None for a scale that nobody gave.

    Raises: InputError for whole numbers beyond ±1 without a scale; for what is not finite, not as long as an input of
    the network, or after scaling outside of the box.
    """
    factor = Fraction(1) if scale is None else scale
    what, all_integers = "the inputs", True
    seen: list[Fraction] = []
    outside: InputError | None = None
    for rows in chunks:
        check_width(rows, network)
        what, ends = rows.what, _ends(rows)
        seen = [min(*seen, *ends), max(*seen, *ends)]
        all_integers = all_integers and _are_integers(rows)
        if box is not None and outside is None and not all(box[0] <= end * factor <= box[1] for end in ends):
            outside = _outside(rows, factor, box)
    least, most = seen
    if scale is None and all_integers and max(-least, most) > 1:
        raise InputError(
            f"{what}: whole numbers, from {_text(least)} to {_text(most)}. What is their unit? "
            "Say it as a scale (--input-scale): 1/255 for images of bytes that the model takes as x/255, 1 if it takes "
            "them as they are"
        )
    if outside is not None:
        raise outside
    low, high = sorted((least * factor, most * factor))
    return Units(factor, low, high, _doubt(what, max(-least, most), factor))


def _doubt(what: str, size: Fraction, scale: Fraction) -> str | None:
    if scale == 0:
        return f"{what}: the scale makes all numbers 0"
    if not 0 < size <= 1 or abs(scale) > _SMALL_SCALE:
        return None
    return (
        f"{what}: no number is beyond ±{_text(size)}, and the scale makes them all "
        f"{_text(1 / abs(scale))} times smaller: were they scaled before?"
    )


def _text(x: Fraction) -> str:
    """For messages: exactly, unless that is long."""
    text = shortest_exact(x)
    return text if len(text) <= 60 else f"≈{'-' if x < 0 else ''}{decimal_upper(abs(x))}"


def _ends(rows: NumberTable) -> tuple[Fraction, Fraction]:
    """The least and the greatest number, exactly. Raises: InputError unless all are finite."""
    least, most = rows.values.min(), rows.values.max()
    if rows.read_exact is None:
        if not (np.isfinite(least) and np.isfinite(most)):  # min and max of what holds a nan are nan
            raise rows.not_finite(rows.values)
        unit = 10 ** (rows.decimal_places or 0)
        return Fraction(least.item()) / unit, Fraction(most.item()) / unit

    def end(near: float, choose: Callable[[Iterable[Any]], Any]) -> Fraction:
        """Rounding is monotone: the extreme number is in a row with the extreme float."""
        some = map(rows.row, np.flatnonzero((rows.values == near).any(axis=1)).tolist())
        found: Fraction = choose(Fraction(choose(row.numerators), row.denominator) for row in some)
        return found

    return end(least, min), end(most, max)


def _are_integers(rows: NumberTable) -> bool:
    """Whether every number is an integer."""
    if rows.read_exact is None:
        # The remainder of floats is exact, and 10^places is one, up to 10^22.
        return rows.values.dtype.kind in "iu" or not np.fmod(rows.values, 10.0 ** (rows.decimal_places or 0)).any()
    if not (np.rint(rows.values) == rows.values).all():  # the float next to an integer is one, or infinite
        return False
    exact = map(rows.row, range(len(rows)))
    return all(numerator % row.denominator == 0 for row in exact for numerator in row.numerators)


def _outside(rows: NumberTable, scale: Fraction, box: Box) -> InputError:
    """The first number that is. Requires: there is one."""
    low, high = map(_text, box)
    for index in range(len(rows)):
        row = rows.row(index)
        for column, numerator in enumerate(row.numerators):
            x = Fraction(numerator, row.denominator) * scale
            if not box[0] <= x <= box[1]:
                place = f"row {rows.first + index}, column {column}"
                return InputError(f"{rows.what}: {_text(x)} in {place} is not between {low} and {high}")
    raise ValueError("all numbers are in the box")


def are_probabilities(rows: NumberTable) -> bool:
    """Whether every row of these logits is in [0, 1] and sums to 1, up to rounding, and they are not all 0 and 1."""
    return _sum_to_one(rows, 1) and _sum_to_one(rows, len(rows))  # as a rule, one row tells


def _sum_to_one(rows: NumberTable, count: int) -> bool:
    values = rows.values[:count] / 10.0 ** (rows.decimal_places or 0)
    inside = (values >= 0) & (values <= 1)
    if not inside.all() or np.abs(values.sum(axis=1, dtype=np.float64) - 1).max() > _ROUNDING:
        return False
    return count < len(rows) or bool(((values > 0) & (values < 1)).any())
