"""Small networks that are graphs: convolutions, pools, sorting, residual connections, concatenations.

Beside them the plain arithmetic that they are checked with, over fractions, by unrolled matrices.
"""

from fractions import Fraction
from random import Random

import numpy as np

from intervalcert.model.activations import MaxPool, activation
from intervalcert.model.layers import INPUT, Term
from intervalcert.model.linear_maps import ChannelWise, Convolution, Dense, IndexMap, identity
from intervalcert.model.network import Network
from intervalcert.model.windows import Window
from intervalcert.numbers.matrices import RationalMatrix

POINTWISE = ("relu", "leaky_relu:0.25", "hard_tanh", "identity", "clip:-1/2:3/4")


def rationals(random, rows, columns):
    """Multiples of 1/8, some of them zero; now and then thirds."""
    over = random.choice([8, 8, 8, 3])
    return RationalMatrix.from_integers(
        [[random.choice([0, *range(-9, 10)]) for _ in range(columns)] for _ in range(rows)], over
    )


def column(random, rows):
    return random.choice([None, rationals(random, rows, 1)])


def window(random, inputs, most=3):
    """A window over a grid, with at least one output: any stride, dilation, padding before and behind."""
    while True:
        size = tuple(random.randint(1, most) for _ in range(2))
        stride, dilation = (tuple(random.choice([1, 1, 2, 3]) for _ in range(2)) for _ in range(2))
        before = tuple(random.randint(0, 2) for _ in range(2))
        outputs = tuple(random.randint(1, 3) for _ in range(2))
        made = Window(inputs, outputs, size, stride, dilation, before)
        if (made.table >= 0).any():
            return made


def convolution(random, shape, groups=None):
    channels = shape[0]
    groups = groups or random.choice([g for g in (1, 1, channels) if channels % g == 0])
    outputs = groups * random.randint(1, 2)
    made = window(random, shape[1:])
    return Convolution(rationals(random, outputs, channels // groups * made.taps), channels, made, groups)


def same_size(random, shape):
    """A convolution from a grid to itself."""
    made = Window.padded(shape[1:], (3, 3), pads=(1, 1, 1, 1))
    return Convolution(rationals(random, shape[0], shape[0] * 9), shape[0], made)


def pool(random, shape):
    while True:
        made = window(random, shape[1:])
        if not (made.table < 0).all(axis=0).any():
            return MaxPool.of(shape[0], made)


def activation_of(random, shape):
    count = int(np.prod(shape))
    names = list(POINTWISE)
    if count % 2 == 0:
        names.append(f"group_sort:2:{random.choice([1, count // 2])}" + random.choice(["", ":descending"]))
    if count % 3 == 0:
        names.append("group_sort:3:1")
    if len(shape) == 3:
        names.append(pool(random, shape).name)
    return random.choice(names)


def graph(seed, between=None, classes=3):
    """A network of a few layers on a grid; between: the activations to choose from, in the place of all."""
    random = Random(seed)
    shape = (random.randint(1, 2), random.randint(2, 4), random.randint(2, 4))
    shapes, terms, biases, names = {INPUT: shape}, [], [], []

    def add(*layer, name=None):
        inner = layer[0].map.out_shape
        terms.append(layer)
        biases.append(column(random, int(np.prod(inner))))
        names.append(name or (random.choice(between) if between else activation_of(random, inner)))
        shapes[len(terms) - 1] = activation(names[-1]).out_shape(inner)
        return len(terms) - 1

    last = add(Term(INPUT, convolution(random, shape)))
    for _ in range(random.randint(1, 3)):
        now = shapes[last]
        kind = random.choice(["convolution", "residual", "merged", "concatenation", "mean", "scaling"])
        if kind == "concatenation":
            last = add(*concatenated((last, now), (0, shapes[0])), name="identity")
        elif kind == "scaling" or len(now) < 3:
            count = int(np.prod(now))
            index = np.array([random.randint(-1, count - 1) for _ in range(count)])
            last = add(Term(last, IndexMap(index, now, now, rationals(random, count, 1))))
        elif kind == "residual":
            inner = add(Term(last, same_size(random, now)))
            skip = [Term(last, identity(now))] if shapes[inner] == now else []
            last = add(Term(inner, same_size(random, shapes[inner])), *skip)
        elif kind == "merged":
            last = add(Term(last, same_size(random, now)), Term(last, identity(now)))
        elif kind == "mean":
            last = add(Term(last, ChannelWise(rationals(random, 2, now[1] * now[2]), now, (now[0], 2, 1))))
        else:
            last = add(Term(last, convolution(random, now)))
    head = Dense(rationals(random, classes, int(np.prod(shapes[last]))))
    return Network.of_terms([*terms, (Term(last, head),)], [*biases, column(random, classes)], between=names)


def concatenated(*parts):
    """Terms that put (source, shape) one behind the other, flat."""
    sizes = [int(np.prod(shape)) for _, shape in parts]
    terms = []
    for place, ((source, shape), size) in enumerate(zip(parts, sizes, strict=True)):
        index = np.full(sum(sizes), -1)
        index[sum(sizes[:place]) :][:size] = np.arange(size)
        terms.append(Term(source, IndexMap(index, shape, (sum(sizes),))))
    return terms


# -- plain arithmetic --------------------------------------------------------------------------------------------------


def rows_of(matrix):
    return [[Fraction(x, matrix.denominator) for x in row] for row in matrix.numerators.tolist()]


def times(rows, x):
    return [sum((a * b for a, b in zip(row, x, strict=True) if a), Fraction(0)) for row in rows]


def exact_inner(network, x):
    """Σ T·x + b of each layer at one input, a list of fractions; over the reals, with factors of scales 1."""
    values, found = {INPUT: x}, []
    for index, layer in enumerate(network.layers):
        total = [Fraction(0)] * layer.shape[0]
        for term in layer.terms:
            total = [t + y for t, y in zip(total, times(rows_of(term.map.dense()), values[term.source]), strict=True)]
        if layer.bias is not None:
            total = [t + b for t, (b,) in zip(total, rows_of(layer.bias), strict=True)]
        found.append(total)
        if layer.activation is not None:
            values[index] = applied(layer.activation, total)
    return found


def applied(function, z):
    """The value of an activation, by its definition."""
    kind, *parameters = function.name.split(":")
    if kind == "relu":
        return [max(x, Fraction(0)) for x in z]
    if kind == "leaky_relu":
        return [x if x > 0 else Fraction(parameters[0]) * x for x in z]
    if kind == "hard_tanh":
        return [min(max(x, Fraction(-1)), Fraction(1)) for x in z]
    if kind == "clip":
        return [min(max(x, Fraction(parameters[0])), Fraction(parameters[1])) for x in z]
    if kind == "group_sort":
        size, inner = int(parameters[0]), int(parameters[1])
        made = list(z)
        for start in range(0, len(z), size * inner):
            for k in range(inner):
                places = range(start + k, start + size * inner, inner)
                ordered = sorted((z[p] for p in places), reverse=parameters[-1] == "descending")
                for place, x in zip(places, ordered, strict=True):
                    made[place] = x
        return made
    if kind == "max_pool":
        channels, window = function.channels, function.window
        size = window.inputs[0] * window.inputs[1]
        return [
            max(z[c * size + place] for place in window.table[:, i] if place >= 0)
            for c in range(channels)
            for i in range(window.table.shape[1])
        ]
    assert kind == "identity", kind
    return list(z)
