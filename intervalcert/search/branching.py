"""Where a dual that is not good enough gains most: which hinge to split, which range to narrow; nothing is trusted.

At the best multipliers the least value of Φ is attained where y·w = 0 for every hinge (y = max(z, 0), w = y - z),
unless Φ is nearly flat there: that is the gap, and the hinges with the largest y·w make it. By the envelope theorem the
least value changes with an end of a range as Φ itself does there.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from intervalcert.backends.protocol import Floats
from intervalcert.proof.hinges import Place
from intervalcert.search.dual_witness import DualSetting
from intervalcert.search.hinges import Bends, Solution

__all__ = ["ends_that_matter", "widest", "worth_splitting"]


def worth_splitting(setting: DualSetting, multipliers: Floats, solution: Solution) -> Place | None:
    """The hinge that a split helps most; None if none bends."""
    best: tuple[float, float, Place] | None = None
    for index, site, (alpha, two, three, *_), y, w in _at(setting, multipliers, solution):
        if not site.count:
            continue
        score = np.abs(alpha - two - three) * np.abs(y * w)
        # Where that says nothing: how far its argument may be on both sides.
        room = alpha * np.minimum(-site.low, site.high) * np.maximum(np.abs(site.at), 1e-3 * (site.high - site.low))
        column = int(np.argmax(score)) if score.max() > 1e-12 * room.max() else int(np.argmax(room))
        found = float(score[column]), float(room[column])
        if best is None or found > best[:2]:
            best = *found, setting.place_of(index, column)
    return None if best is None else best[2]


def widest(setting: DualSetting) -> Place | None:
    """The hinge whose argument may be farthest on both sides of its kink; None if none bends."""
    best: tuple[float, Place] | None = None
    for index, site in enumerate(setting.form.sites):
        if site.count:
            room = np.minimum(-site.low, site.high)
            column = int(np.argmax(room))
            if best is None or room[column] > best[0]:
                best = float(room[column]), setting.place_of(index, column)
    return None if best is None else best[1]


def ends_that_matter(setting: DualSetting, multipliers: Floats, solution: Solution) -> list[tuple[float, Place, int]]:
    """Of each end of a range that may be narrowed: what the least value may gain, the place, and -1 for the lower one.

    The largest gain comes first. Those of the first site are known as well as can be.
    """
    found = []
    for index, site, (_, two, three, _, _, six), y, w in _at(setting, multipliers, solution):
        if index:
            by_low, by_high = three * w + six * (site.high - y), six * (w + site.low) - two * y
            for column in range(site.count):
                place = setting.place_of(index, column)
                found.append((float(abs(by_low[column]) * -site.low[column]), place, -1))
                found.append((float(abs(by_high[column]) * site.high[column]), place, 1))
    return sorted(found, key=lambda each: (-each[0], each[1], each[2]))


def _at(
    setting: DualSetting, multipliers: Floats, solution: Solution
) -> Iterator[tuple[int, Bends, Floats, Floats, Floats]]:
    """Of each site its multipliers, and y and w of each hinge where the least value is attained."""
    form = setting.form
    for index, (site, part) in enumerate(zip(form.sites, form.parts(multipliers), strict=True)):
        own = site.split(part)[0]
        alpha, two, three = own[:3]
        middle = (alpha - two + three) / (2 * alpha)
        zeta = solution.zeta[index][site.neuron]
        y = np.maximum(site.at, 0.0) + middle * zeta + solution.nu[index]
        yield index, site, own, y, y - (site.at + zeta)
