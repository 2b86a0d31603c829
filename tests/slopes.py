"""How steep the leads of a network are somewhere, in rationals: no bound of a margin may be less."""

from fractions import Fraction

import numpy as np


def pairs_of(network):
    return [(i, j) for j in range(network.outputs) for i in range(j)]


def gradients(network, x):
    """The gradient of each lead where a network of piecewise linear functions is differentiable, exactly. Else None."""
    value, jacobian = list(x), None
    for layer in network.layers:
        w = [[Fraction(n, layer.weights.denominator) for n in row] for row in layer.weights.numerators.tolist()]
        b = [Fraction(0)] * len(w) if layer.bias is None else [layer.bias[i, 0] for i in range(len(w))]
        z = [sum((a * v for a, v in zip(row, value, strict=True)), start) for row, start in zip(w, b, strict=True)]
        slopes = [Fraction(1)] * len(z)
        if layer.activation is not None:
            if 0 in z:
                return None
            leak = layer.activation.piecewise_linear.slope
            slopes = [Fraction(1) if v > 0 else leak for v in z]
        before = jacobian
        columns = range(len(x))
        if before is None:
            jacobian = [[s * a for a in row] for s, row in zip(slopes, w, strict=True)]
        else:
            jacobian = [
                [s * sum(a * before[k][c] for k, a in enumerate(row)) for c in columns]
                for s, row in zip(slopes, w, strict=True)
            ]
        value = [s * v for s, v in zip(slopes, z, strict=True)]
    return {
        (i, j): [a - b for a, b in zip(jacobian[j], jacobian[i], strict=True)]
        for j in range(network.outputs)
        for i in range(j)
    }


def steeper_than(network, margins, points):
    """Pairs whose lead is steeper somewhere than its margin bound allows."""
    found = []
    for x in points:
        for (i, j), gradient in (gradients(network, x) or {}).items():
            if sum(g * g for g in gradient) > margins[i][j] ** 2:
                found.append((i, j))
    return found


def some_points(network, seed, count=12):
    rng = np.random.default_rng(seed)
    return [[Fraction(int(k), 64) for k in rng.integers(-200, 200, network.inputs)] for _ in range(count)]
