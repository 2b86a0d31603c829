"""The truth about small networks with two inputs: how near the nearest other winner is, exactly.

A piecewise linear network is affine on each of its linear regions: polygons, cut out by the lines at which a neuron
reaches its kink. Where another class is at least as high as the winner is a polygon, too. The point of it that is
nearest to x is x itself, its projection onto one of the lines, or a corner: all are tried, with rationals. Nothing of
the program's own is used.
"""

from fractions import Fraction
from itertools import combinations, product


def affine(weights, rows, shift):
    """W·(rows·u + shift): of each entry the coefficients of u and the constant."""
    found = [
        [sum((w * r[k] for w, r in zip(line, rows, strict=True)), Fraction(0)) for k in range(len(rows[0]))]
        for line in weights
    ]
    return found, [sum((w * s for w, s in zip(line, shift, strict=True)), Fraction(0)) for line in weights]


def logits_at(layers, hinge, u):
    """layers: (W, b) of each, as fractions. hinge: slope, weight and kink of slope·z + weight·max(z - kink, 0)."""
    x = list(u)
    for index, (weights, bias) in enumerate(layers):
        x = [sum((a * b for a, b in zip(row, x, strict=True)), c) for row, c in zip(weights, bias, strict=True)]
        if index < len(layers) - 1:
            slope, weight, kink = hinge
            x = [slope * z + weight * max(z - kink, Fraction(0)) for z in x]
    return x


def winner_at(layers, hinge, u):
    found = logits_at(layers, hinge, u)
    return found.index(max(found))


def nearest_change(layers, hinge, x, target=None):
    """The least squared distance from x of a point at which the winner of x does not lead all others, or the target.

    None if there is none.
    """
    j = winner_at(layers, hinge, x)
    least = None
    for lines, (rows, shift) in _regions(layers, hinge):
        for t in range(len(rows)):
            if t == j or target not in (None, t):
                continue
            lead = [a - b for a, b in zip(rows[j], rows[t], strict=True)], shift[j] - shift[t]
            found = _nearest([*lines, lead], x)
            if found is not None and (least is None or found < least):
                least = found
    return least


def _regions(layers, hinge):
    """For each pattern of pieces: the half planes g·u + c <= 0 that it is in, and the logits as affine functions."""
    slope, weight, kink = hinge
    widths = [len(weights) for weights, _ in layers[:-1]]
    for pattern in product((False, True), repeat=sum(widths)):
        rows, shift = [[Fraction(1), Fraction(0)], [Fraction(0), Fraction(1)]], [Fraction(0), Fraction(0)]
        lines, at = [], 0
        for weights, bias in layers[:-1]:
            rows, shift = affine(weights, rows, shift)
            shift = [s + b for s, b in zip(shift, bias, strict=True)]
            for k in range(len(rows)):
                above, c = pattern[at + k], shift[k] - kink
                lines.append(([-g for g in rows[k]], -c) if above else (list(rows[k]), c))
                gain = slope + weight * above
                rows[k], shift[k] = [gain * g for g in rows[k]], gain * shift[k] - weight * kink * above
            at += len(weights)
        weights, bias = layers[-1]
        rows, shift = affine(weights, rows, shift)
        yield lines, (rows, [s + b for s, b in zip(shift, bias, strict=True)])


def _nearest(lines, x):
    """The squared distance from x of the nearest point with g·u + c <= 0 for all lines; None if there is none."""
    if all(c <= 0 for g, c in lines if not any(g)):
        lines = [(g, c) for g, c in lines if any(g)]
    else:
        return None
    candidates = [tuple(x)]
    for g, c in lines:
        over = (g[0] * x[0] + g[1] * x[1] + c) / (g[0] ** 2 + g[1] ** 2)
        candidates.append((x[0] - over * g[0], x[1] - over * g[1]))
    for (g, c), (h, d) in combinations(lines, 2):
        det = g[0] * h[1] - g[1] * h[0]
        if det:
            candidates.append(((g[1] * d - h[1] * c) / det, (h[0] * c - g[0] * d) / det))
    distances = sorted(((u[0] - x[0]) ** 2 + (u[1] - x[1]) ** 2, u) for u in candidates)
    for distance, u in distances:
        if all(g[0] * u[0] + g[1] * u[1] + c <= 0 for g, c in lines):
            return distance
    return None
