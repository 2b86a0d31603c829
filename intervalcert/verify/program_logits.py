"""Given logits of a program in floats: the worst case over all inputs of at most some norm."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from intervalcert.errors import InputError, UsageError
from intervalcert.model.evaluation import (
    Evaluators,
)
from intervalcert.numbers.pairs import floats_above
from intervalcert.numbers.text import shortest_exact
from intervalcert.proof.decision import check_logits
from intervalcert.verify.jobs import Job
from intervalcert.verify.number_table import Epsilons, NumberTable
from intervalcert.verify.points import likely_winners
from intervalcert.verify.verdicts import Verdicts, status_codes

__all__ = ["LogitVerifier"]


class LogitVerifier:
    """Judges given logits of a program in floats, by the worst case over all inputs of at most some norm."""

    def __init__(self, job: Job, norm: Fraction) -> None:
        """Requires: a job with a format. Raises: InputError for a negative norm."""
        deployment = job.deployment()
        if deployment is None:
            raise UsageError("over the reals the norm of the inputs does not matter: certify against the bounds")
        if norm < 0:
            raise InputError(f"a norm must not be negative, and this one is {shortest_exact(norm)}")
        single = job.network.single
        self._threshold = None if single is None else single.constant
        self._semantics, self._eps_space = job.semantics, job.network.eps_space
        self.classes = len(job.margins)
        self.columns = self.classes if single is None else 1
        self._deployment = deployment
        self._worst = deployment.for_every(norm, Evaluators(job.network, job.norms).on(job.ladder[0]))
        self._margins = floats_above(job.margins)

    def verdicts(self, rows: NumberTable, epsilons: Epsilons, *, with_radius: bool = True) -> Verdicts:  # noqa: ARG002 - as in `vectorised`
        """A verdict per row. Raises: InputError unless there are as many logits as `columns`, all finite."""
        count, columns = rows.values.shape
        check_logits(columns, self.columns, rows.what)
        values = rows.values.astype(np.float64)
        if not np.isfinite(values).all():
            raise rows.not_finite(values)
        if self._threshold is not None:
            rows = rows.with_first(self._threshold)
            values = rows.values
        low = high = values.T
        if rows.decimal_places is None or rows.decimal_places:  # the floats next to values·10^-places
            near = values.T / 10.0 ** (rows.decimal_places or 0)
            with np.errstate(all="ignore"):
                near_by = 4 * np.spacing(np.abs(near))
                low, high = near - near_by, near + near_by
        winners = likely_winners(low, high)
        found = self._deployment.radii(self._worst, low, high, winners, self._margins, twice=True)
        return Verdicts(
            np.arange(rows.first, rows.first + count),
            winners,
            status_codes(epsilons.upper <= found),
            np.maximum(found, 0.0),
            np.zeros(count, dtype=bool),
            self._semantics,
            self._eps_space,
        )
