"""Halfspaces before any hinge that bends are linear in the change of the input: what floats say of them at once.

Where they have nothing in common within eps, some of their terms show it (Farkas' lemma, with a ball): everything is
proved there. Where no hinge bends at all, the lead is linear, too, and the best multipliers are found. Then
Φ = c + gᵀδ + γ·(||δ||² - eps²) + Σ β·(h + Gδ), and for each γ the best β >= 0 are those of the point of a polyhedron
that is nearest to -g/(2γ): "least distance programming", by non-negative least squares (Lawson and Hanson, Solving
Least Squares Problems, 1974, chapter 23). Over γ the value is concave. Nothing here is trusted.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from intervalcert.backends.protocol import Floats, Indices
from intervalcert.search.hinges import MULTIPLIERS, Form

__all__ = ["best_multipliers", "nothing_there"]

_LEAST, _SPAN = 1e-8, 40.0
"""Of γ·eps², as a part of what is large: where the least lead is inside the ball γ should be zero, and floats end
before that. The logarithm of γ is looked for so far above it.
"""

_FAR = 4.0
"""Where the halfspaces have nothing in common, multipliers may grow: until the value is so many times what it need be.
"""

_SURELY = 1e-6
"""Of how far a halfspace is from the input: so much farther than eps it is, if floats are to tell."""

_NOTHING = 1e-10
"""What is left of 1 where there is no such point, as far as floats tell."""


def nothing_there(form: Form, eps: float, size: float) -> Floats | None:
    """γ and β, if these show that the halfspaces have nothing in common within eps: then their terms are at least
    `size` everywhere. None if floats do not tell. Only of halfspaces before any hinge that bends.

    Requires: a direction was asked for. Raises: LinAlgError, FloatingPointError where floats fail.
    """
    betas, rows, at_zero = _halfspaces(form)
    beta = _apart(rows, at_zero, eps, size)
    if beta is None:
        return None
    found = np.zeros(form.size)
    found[0], found[betas] = float(np.linalg.norm(rows.T @ beta)) / (2 * eps), beta
    return found


def best_multipliers(form: Form, direction: Any, value: float, eps: float) -> Floats:
    """γ and β. value: of the goal at the input, as for `Form.solved`. Requires: sites without hinges that bend.

    Raises: LinAlgError, FloatingPointError where floats fail.
    """
    from scipy.optimize import minimize_scalar

    betas, rows, at_zero = _halfspaces(form)
    found = np.zeros(form.size)
    found[0] = 0.5
    solved = form.solved(found, direction, value, 0.0)  # the least value is attained at δ = -g
    g = -solved.delta
    constant = solved.value + eps**2 / 2 + float(g @ g) / 2
    basis = np.linalg.qr(np.vstack([g, rows]).T)[0]
    g, rows = basis.T @ g, rows @ basis
    size = abs(value) + abs(constant) + eps * float(np.linalg.norm(g))
    least = float(np.log(_LEAST * max(size, 1e-300) / eps**2))
    if not np.isfinite(least):
        raise FloatingPointError("numbers beyond the floats")
    beta = _apart(rows, at_zero, eps, _FAR * size)
    if beta is not None:
        found[0], found[betas] = max(float(np.linalg.norm(g + rows.T @ beta)) / (2 * eps), np.exp(least)), beta
        return found
    some = at_zero + eps * np.linalg.norm(rows, axis=1) > 0  # all within eps is in the others: no row is zero
    betas, rows, at_zero = betas[some], rows[some], at_zero[some]

    def at(log_gamma: float) -> tuple[float, Floats]:
        gamma = float(np.exp(log_gamma))
        beta = _beta(gamma, g, rows, at_zero, size)
        slope = g + rows.T @ beta
        return constant + float(at_zero @ beta) - float(slope @ slope) / (4 * gamma) - gamma * eps**2, beta

    best = minimize_scalar(lambda x: -at(x)[0], bounds=(least, least + _SPAN), options={"xatol": 1e-9})
    beta = at(best.x)[1]
    gained = float(at_zero @ beta) - eps * float(np.linalg.norm(g + rows.T @ beta))
    beta *= min(1.0, _FAR * size / max(gained, 1e-300))  # the value is concave: a part of β gives as much of it
    found[0], found[betas] = max(float(np.linalg.norm(g + rows.T @ beta)) / (2 * eps), np.exp(least)), beta
    return found


def _halfspaces(form: Form) -> tuple[Indices, Floats, Floats]:
    """Where their β are among all multipliers, and h + Gδ <= 0, as G and h.

    Those of what stays on one side are zero: its halfspace says more.
    """
    places, start, known = [np.zeros(0, dtype=np.intp)], 1, form.halfspaces()
    for site, _ in zip(form.sites, known, strict=False):
        places.append(start + MULTIPLIERS * site.count + np.arange(len(site.cut)))
        start += site.size
    return np.concatenate(places), np.vstack([rows for rows, _ in known]), np.concatenate([at for _, at in known])


def _apart(rows: Floats, at_zero: Floats, eps: float, size: float) -> Floats | None:
    """β of which hᵀβ - eps·||Gᵀβ|| is `size`; None if there is none as far as floats tell."""
    lengths, beta = np.linalg.norm(rows, axis=1), np.zeros(len(rows))
    if not (at_zero > 0).any():
        return None
    alone = np.where(at_zero > 0, at_zero - eps * lengths, -np.inf) / np.where(at_zero > 0, at_zero, 1.0)
    if alone.max() > _SURELY:
        beta[int(np.argmax(alone))] = 1.0
    else:
        some = at_zero + eps * lengths > 0
        beta[some] = _beta(0.5, np.zeros(rows.shape[1]), rows[some], at_zero[some], size)
    gained = float(at_zero @ beta) - eps * float(np.linalg.norm(rows.T @ beta))
    return beta * (size / gained) if gained > _SURELY * float(np.abs(at_zero) @ beta) else None


def _beta(gamma: float, g: Floats, rows: Floats, at_zero: Floats, size: float) -> Floats:
    """The best β for this γ. size: of a value that is large. Requires: no row is zero."""
    from scipy.optimize import nnls

    count = len(rows)
    if not count:
        return np.zeros(0)
    wanted = at_zero - rows @ g / (2 * gamma)
    lengths = np.linalg.norm(rows, axis=1)  # each halfspace as a unit normal and a distance
    unit = max(float(np.abs(wanted / lengths).max()), 1e-300)
    system = np.vstack([-(rows / lengths[:, None]).T, wanted / lengths / unit])
    try:
        u, _ = nnls(system, np.append(np.zeros(rows.shape[1]), 1.0))
    except RuntimeError as error:  # it went on for too long
        raise np.linalg.LinAlgError(str(error)) from error
    rest = 1.0 - float(system[-1] @ u)
    if rest > _NOTHING:
        found: Floats = 2 * gamma * unit / rest * u / lengths
        return found
    found = u / lengths  # nothing is in all of them: Gᵀβ is next to nothing, and hᵀβ is positive
    return _FAR * size / max(float(wanted @ found), 1e-300) * found
