"""Many outputs at once: rows of logits, the filter over them, exact rationals for what it leaves; arrays of verdicts.

Nothing here is written per row but the exact path, which few rows take.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from intervalcert.backends.protocol import Backend
from intervalcert.numbers.float_environment import arithmetic_fault
from intervalcert.proof.decision import Certifier, check_logits
from intervalcert.verify.filter import TILE_CELLS, MarginTables, filter_exact, filter_rounded, scratch
from intervalcert.verify.number_table import Epsilons, NumberTable
from intervalcert.verify.verdicts import Verdicts, status_codes

__all__ = ["VectorisedCertifier"]


_LEAST_ROWS = 1_024
"""A tile has at least so many rows, however many classes: fewer would cost more in calls than in arithmetic."""


class VectorisedCertifier:
    """Decides rows against one margin matrix: floats first, exact rationals for the rest.

    Guarantees: the verdicts and radii of `Certifier` on exact rationals, for every row.
    """

    def __init__(
        self,
        margins: Sequence[Sequence[Fraction]],
        exact: Backend[Any],
        threshold: Fraction | None = None,
        eps_space: str = "input",
    ) -> None:
        """threshold: of a model with a single output, of which rows hold one logit. Otherwise one for each class.

        eps_space: where the distances are measured that the margins are per unit of.
        Requires: `exact` decides every comparison.
        """
        self.classes, self._threshold = len(margins), threshold
        self.columns = self.classes if threshold is None else 1
        self._one_by_one = Certifier(margins, (exact,), eps_space)
        self._margins, self._exact, self._eps_space = margins, exact, eps_space
        self._tables: dict[int, MarginTables] = {}
        self._trusted = arithmetic_fault() is None  # else floats decide nothing

    def __reduce__(self) -> tuple[type[VectorisedCertifier], tuple[Any, Backend[Any], Fraction | None, str]]:
        """What arrives in another process tests that process, and takes over no floats from this one."""
        return VectorisedCertifier, (self._margins, self._exact, self._threshold, self._eps_space)

    def verdicts(self, rows: NumberTable, epsilons: Epsilons, *, with_radius: bool = True) -> Verdicts:
        """A verdict per row. Without `with_radius` a radius may be left at 0: logits in text then cost much less.

        Raises: InputError unless there are as many logits as `columns`, all finite.
        """
        count, columns = rows.values.shape
        check_logits(columns, self.columns, rows.what)
        if self._threshold is not None:
            rows = rows.with_first(self._threshold)
        argmax, rival, radius = np.zeros(count, dtype=np.intp), np.zeros(count, dtype=np.intp), np.zeros(count)
        certified, settled = np.zeros(count, dtype=bool), np.zeros(count, dtype=bool)
        decide = filter_rounded if rows.decimal_places is None else filter_exact
        by_rival = rows.decimal_places is None and with_radius
        tables = self._tables_for(rows.decimal_places or 0)
        step = min(count, max(_LEAST_ROWS, TILE_CELLS // self.classes))
        for start in range(0, count, step):
            part = slice(start, start + step)
            tile = scratch("tile", (self.classes, min(step, count - start)))
            tile[...] = rows.values[part].T
            if rows.decimal_places is not None and not np.isfinite(tile).all():
                raise rows.not_finite(tile.T, start)
            if self._trusted:
                found = decide(tables, tile, *epsilons.float_bounds(part))
                argmax[part], rival[part], radius[part] = found.argmax, found.rival, found.radius
                certified[part], settled[part] = found.certified, found.settled
        # A rival that is known and alone: its pair of logits, read exactly, gives verdict and radius.
        known = rival >= 0 if by_rival and self._trusted else np.zeros(count, dtype=bool)
        for index in np.flatnonzero(known).tolist():
            lead, unit = rows.lead(index, argmax[index], rival[index])
            eps = epsilons.exact(index)
            certified[index], radius[index] = self._against(lead, unit, argmax[index], rival[index], eps)
        for index in np.flatnonzero(~(known if by_rival else settled)).tolist():
            verdict = self._one_by_one.verdict(rows.row(index), epsilons.exact(index), rows.first + index)
            argmax[index], radius[index], certified[index] = verdict.argmax, verdict.radius, verdict.certified
        indices = np.arange(rows.first, rows.first + count)
        return Verdicts(indices, argmax, status_codes(certified), radius, ~settled, "real", self._eps_space)

    def _tables_for(self, places: int) -> MarginTables:
        if places not in self._tables:
            self._tables[places] = MarginTables(self._margins, 10**places)
        return self._tables[places]

    def _against(self, lead: int, unit: int, argmax: int, rival: int, eps: Fraction) -> tuple[bool, float]:
        """Verdict and radius of an output whose supremum is x = (lead/unit)/L, with its rival alone."""
        margin = self._margins[rival][argmax]
        top, bottom = lead * margin.denominator, unit * margin.numerator
        nearest = top / bottom  # correctly rounded; the filter has seen that it is within 2^±300
        above, below = nearest.as_integer_ratio()
        radius = nearest if above * bottom < top * below else math.nextafter(nearest, 0.0)
        return eps.numerator * bottom < top * eps.denominator, radius
