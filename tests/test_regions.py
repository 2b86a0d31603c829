"""The reference that verdicts on small networks are judged by, itself held against brute force and against samples."""

from fractions import Fraction
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from regions import logits_at, nearest_change

from compare.regions import PlainNetwork

HINGES = {
    "relu": (Fraction(0), Fraction(1), Fraction(0)),
    "leaky_relu:1/4": (Fraction(1, 4), Fraction(3, 4), Fraction(0)),
    "leaky_relu:-1/2": (Fraction(-1, 2), Fraction(3, 2), Fraction(0)),
}
KINDS = (*HINGES, "clip:-1:1", "clip:1/2:inf", "clip:-inf:1/3", "hard_tanh", "group_sort:2:1", "identity")


def drawn(seed, sizes, whole=False):
    rng = np.random.default_rng([seed, *sizes])
    weights = [rng.standard_normal((b, a)) for a, b in pairwise(sizes)]
    biases = [rng.standard_normal(b) / 2 for b in sizes[1:]]
    return [[np.rint(4 * x) / 4 if whole else x for x in each] for each in (weights, biases)]


@pytest.mark.parametrize("kind", HINGES)
def test_as_all_patterns_of_all_neurons_have_it(kind):
    for seed in range(4):
        weights, biases = drawn(seed, (2, 3, 2, 3), whole=True)
        layers = [
            ([[Fraction(x) for x in row] for row in w.tolist()], [Fraction(x) for x in b.tolist()])
            for w, b in zip(weights, biases, strict=True)
        ]
        plain, random = PlainNetwork(weights, biases, kind), Random(seed)
        for _ in range(3):
            x = [Fraction(random.randint(-64, 64), 32) for _ in range(2)]
            assert plain.logits(x) == logits_at(layers, HINGES[kind], x)
            for target in (None, *range(3)):
                if target != plain.winner(x):
                    found = plain.nearest_change(x, target)
                    assert found == nearest_change(layers, HINGES[kind], x, target), (seed, x, target)
                    for most in (found, 0 if found is None else found * Fraction(999, 1000)):
                        within = found is not None and most is not None and found <= most
                        assert plain.nearest_change(x, target, most) == (found if within or most is None else None)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", [(1, 4, 3), (2, 20, 3), (2, 6, 6, 4), (3, 8, 3), (3, 6, 4, 3)])
def test_as_samples_have_it(kind, sizes):
    """No sample that is nearer has another winner; and some have one that are hardly further away."""
    seen = 0
    for seed in range(3):
        weights, biases = drawn(seed, sizes)
        plain, rng = PlainNetwork(weights, biases, kind), np.random.default_rng(seed)
        x = rng.standard_normal(sizes[0])
        exactly = [Fraction(v) for v in x.tolist()]
        assert np.allclose(list(map(float, plain.logits(exactly))), in_floats(weights, biases, kind, x[:, None])[:, 0])
        truth, winner = plain.nearest_change(exactly, most=Fraction(400)), plain.winner(exactly)
        distance = 20.0 if truth is None else float(truth) ** 0.5
        directions = rng.standard_normal((sizes[0], 20_000))
        directions /= np.linalg.norm(directions, axis=0)
        inside = x[:, None] + distance * (1 - 1e-9) * rng.random(20_000) ** (1 / sizes[0]) * directions
        assert (np.argmax(in_floats(weights, biases, kind, inside), axis=0) == winner).all()
        if truth is not None:
            some = np.zeros(sizes[0])
            best = np.inf
            for step in (1.0, 0.1, 0.03, 0.01, 0.003):  # to where another class leads by the most
                near = some[:, None] + step * directions
                near /= np.linalg.norm(near, axis=0)
                logits = in_floats(weights, biases, kind, x[:, None] + distance * (1 + 1e-3) * near)
                leads = logits[winner] - np.delete(logits, winner, axis=0).max(axis=0)
                if leads.min() < best:
                    best, some = leads.min(), near[:, np.argmin(leads)]
            assert best < 0, (seed, distance)
            seen += 1
    assert seen or kind == "identity"


def in_floats(weights, biases, kind, x):
    for index, (w, b) in enumerate(zip(weights, biases, strict=True)):
        x = w @ x + b[:, None]
        if index == len(weights) - 1:
            return x
        name, *words = kind.split(":")
        if name == "group_sort":
            x = np.sort(x.reshape(-1, 2, x.shape[1]), axis=1).reshape(x.shape)
        elif name in {"clip", "hard_tanh"}:
            low, high = (float(Fraction(w)) if "inf" not in w else float(w) for w in words or ("-1", "1"))
            x = np.clip(x, low, high)
        elif name != "identity":
            x = np.where(x > 0, x, float(Fraction(words[0])) * x if words else 0.0)
    return None


def test_ties_and_what_cannot_change():
    two = [np.eye(2)], [np.zeros(2)]
    plain = PlainNetwork(*two, "relu")
    assert plain.nearest_change([Fraction(1), Fraction(1)]) == 0
    assert plain.winner([Fraction(1), Fraction(1)]) == 0
    assert plain.nearest_change([Fraction(2), Fraction(0)]) == 2
    assert plain.nearest_change([Fraction(2), Fraction(0)], most=Fraction(2)) == 2
    assert plain.nearest_change([Fraction(2), Fraction(0)], most=Fraction(199, 100)) is None
    constant = PlainNetwork([np.zeros((2, 2))], [np.array([1.0, 0.0])], "relu")
    assert constant.nearest_change([Fraction(0), Fraction(0)]) is None
    same = PlainNetwork([np.ones((2, 2))], [None], "relu")
    assert same.nearest_change([Fraction(5), Fraction(0)]) == 0
    with pytest.raises(ValueError, match="none that is known"):
        PlainNetwork([np.eye(2), np.eye(2)], [None, None], "tanh")


@pytest.mark.parametrize("power", [-300, 300])
def test_at_the_ends_of_the_floats(power):
    weights, biases = drawn(2, (2, 4, 3))
    x = [Fraction(1, 3), Fraction(-1, 7)]
    truth = PlainNetwork(weights, biases, "relu").nearest_change(x)
    moved = [np.ldexp(weights[0], -power), weights[1]]
    scaled = PlainNetwork(moved, biases, "relu").nearest_change([v * Fraction(2) ** power for v in x])
    assert truth is not None
    assert scaled == truth * Fraction(4) ** power
    smaller = [np.ldexp(w, -power) for w in weights]
    both = PlainNetwork(smaller, [np.ldexp(biases[0], -power), np.ldexp(biases[1], -2 * power)], "relu")
    assert both.nearest_change(x) == truth
