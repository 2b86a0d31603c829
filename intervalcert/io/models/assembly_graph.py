"""A network built operation by operation, as a file lists them: linear maps, scalings, shifts, roots, activations.

Operations take values and give new ones (`assembly_values`); a value may be taken as often as one likes, and what the
output does not depend on costs nothing. Layers are made at the end (`assembly_layers`): whatever stands between two
activations becomes one, computed exactly.

Roots right after an activation belong to its layer, and what they are multiplied with to the next one. A shift by zeros
and a factor of ones are nothing: x + 0, x·1 and x/1 are x, also in floats.

A scaling and a shift of the input before everything else are its normalisation; before another map they are multiplied
into it. Two matrices without an activation between them stay two layers, with the identity between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import chain
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from intervalcert.backends.protocol import Indices
from intervalcert.errors import InputError
from intervalcert.io.models.assembly_layers import MAX_TERMS, layers_of
from intervalcert.io.models.assembly_maps import Alike, Entries, Numbers, TensorMap, Weights, convolution
from intervalcert.io.models.assembly_pairs import sorted_pairs
from intervalcert.io.models.assembly_values import NOTHING, Applied, Input, Linear, Part, Post, Shrunk, Value
from intervalcert.io.models.assembly_vectors import joined, product
from intervalcert.io.models.interface import Hints
from intervalcert.io.models.tensors import MAX_COMPUTED, Budget, Tensor
from intervalcert.model.activations import IDENTITY, Activation, Componentwise, MaxPool, Sigmoid, Sorting, activation
from intervalcert.model.arrays import MAX_ENTRIES
from intervalcert.model.layers import Layer
from intervalcert.model.linear_maps import MAX_MEAN, Shape
from intervalcert.model.network import EpsSpace, Network
from intervalcert.model.normalisation import (
    FACTOR_BITS,
    FACTOR_LEAST,
    LONG_DENOMINATOR,
    away_from_zero,
    short_factors,
)
from intervalcert.model.single import read_single
from intervalcert.model.windows import Window
from intervalcert.numbers.rounding import sqrt_upper

__all__ = ["Graph"]


class Graph:
    """What was read so far. input: the value to begin with. budget: what the constants and maps of a file may take.

    where: the place in the file that is being read, for messages that come once layers are made.
    Constants for each entry are vectors: one number for all of them, one for each, or for runs that are equally long,
    as those of the channels of an image (`assembly_vectors`).
    """

    def __init__(self, shape: Shape) -> None:
        if prod(shape) < 1:
            raise InputError("the model has no inputs")
        self.budget, self.where = Budget(), ""
        self._notes: list[list[str]] = []
        self._serial = 0
        self._softened = False
        self._functions: dict[tuple[object, ...], Applied] = {}
        self._pairs: dict[tuple[int, ...], tuple[Value, Value, Value, Value]] = {}
        self.input = Value(Input(0, shape, "", []), NOTHING, shape)

    def tensor(self, array: npt.NDArray[Any]) -> Tensor:
        """Numbers that are stored in the file: the more there are, the more may be computed."""
        self.budget.earn(array.size)
        return Tensor(array, budget=self.budget)

    def note(self, what: str) -> None:
        """Something that a program in floats does besides its layers, and that is no part of the network."""
        self._notes.append([what])

    def _note_computed(self, *constants: Tensor | None) -> None:
        """A program may compute them in floats, and get others."""
        if any(constant is not None and constant.stored is None for constant in constants):
            self.note("constants that are computed")

    def _next(self, shape: Shape) -> tuple[int, Shape, str, list[str]]:
        """What a new origin begins with."""
        self._serial += 1
        self._notes.append([])
        return self._serial, shape, self.where, self._notes[-1]

    # -- linear maps -----------------------------------------------------------------------------------------------

    def affine(self, x: Value, weights: Tensor, bias: Tensor | None) -> Value:
        """W·x + bias, a vector. weights: outputs x inputs."""
        outputs, inputs = weights.shape
        if inputs != x.width:
            raise InputError(f"a matrix for {inputs} inputs (it is {outputs} x {inputs}), but there are {x.width}")
        if not outputs or weights.size > MAX_ENTRIES:
            raise InputError(f"a matrix of {weights.size} numbers; 1 to {MAX_ENTRIES} are held as exact ones")
        if bias is not None and bias.shape != (outputs,):
            raise InputError(f"{outputs} outputs, but biases of shape {list(bias.shape)}")
        self._note_computed(weights, bias)
        return self._mapped(x, Weights(weights), bias, (outputs,))

    def convolve(self, x: Value, kernel: Tensor, window: Window, groups: int, bias: Tensor | None) -> Value:
        """A window that goes over the grids of an image, and a bias for each of its outputs' channels.

        kernel: output channels x input channels of a group x height x width of the window.
        Raises: InputError if it does not fit what there is, or is too large.
        """
        outputs, channels = kernel.shape[0], kernel.shape[1] * groups
        if kernel.shape[2:] != window.size or not kernel.size or kernel.size > MAX_ENTRIES:
            raise InputError(f"a kernel of the shape {list(kernel.shape)} for a window of {window}")
        if channels * prod(window.inputs) != x.width:
            raise InputError(
                f"a convolution of {channels} channels of {window.inputs}, but there are {x.width} numbers"
            )
        if bias is not None and bias.shape != (outputs,):
            raise InputError(f"{outputs} channels, but biases of shape {list(bias.shape)}")
        self._check_window(outputs, window)
        self._note_computed(kernel, bias)
        flat = kernel.reshaped((outputs, kernel.size // outputs))
        made = convolution(flat, channels, window, groups)
        return self._mapped(x, made, bias, (outputs, *window.outputs))

    def average(self, x: Value, channels: int, window: Window, count: int) -> Value:
        """The sums over windows, channel by channel, over a count: a mean, if that is how many each window sees."""
        self._check_window(channels, window)
        if count > MAX_MEAN:  # else its weights tell whoever asks how floats round it
            self.note(f"a mean over {count} numbers")
        weight = Tensor.of_fractions([Fraction(1, count)], (1, 1), self.budget)
        kernel = weight.broadcast((channels, window.taps))
        return self._mapped(x, convolution(kernel, channels, window, channels), None, (channels, *window.outputs))

    def mix(self, x: Value, matrix: Tensor, in_shape: Shape, shape: Shape) -> Value:
        """The same matrix for each channel: outputs of a channel x inputs of a channel."""
        self.budget.hold(prod(shape))
        return self._mapped(x, Alike(matrix, in_shape, shape), None, shape)

    def _check_window(self, channels: int, window: Window) -> None:
        self.budget.hold(channels * prod(window.outputs))
        self.budget.hold(window.taps * prod(window.outputs))

    def _mapped(self, x: Value, linear: TensorMap, bias: Tensor | None, shape: Shape) -> Value:
        if linear.inputs != x.width:
            raise InputError(f"a map of {linear.inputs} numbers, but there are {x.width}")
        return Value(Linear(*self._next(shape), (Part(linear, x),), bias), NOTHING, shape)

    # -- several values ----------------------------------------------------------------------------------------------

    def add(self, values: Sequence[Value]) -> Value:
        """Their sum. Requires: at least one, and all of one width."""
        if len(values) > MAX_TERMS:
            raise InputError(f"a sum of {len(values)} values; at most {MAX_TERMS} are added up")
        first, *others = values
        if not others:
            return first
        for value in values:
            self.budget.hold(value.width)
        parts = tuple(Part(None, value.reshaped(first.shape)) for value in values)
        return Value(Linear(*self._next(first.shape), parts, None), NOTHING, first.shape)

    def negative(self, x: Value) -> Value:
        """-x, which is exact in floats, too."""
        minus = Tensor(np.array([-1], dtype=np.int64), budget=self.budget)
        return replace(x, post=x.post.times(minus))

    def join(self, values: Sequence[Value], places: Sequence[Indices], shape: Shape) -> Value:
        """An array of that shape, with each value at its places, which together are all of them, and each once."""
        if len(values) > MAX_TERMS:
            raise InputError(f"{len(values)} values are put together; at most {MAX_TERMS} are")
        width = prod(shape)
        self.budget.hold(width)
        origin = values[0].origin
        if all(value.origin is origin and value.post.least == 1 for value in values):
            return self._joined(values, places, shape)
        parts = []
        for value, place in zip(values, places, strict=True):
            self.budget.hold(width)
            index = np.full(width, -1, dtype=np.intp)
            index[place] = np.arange(value.width)
            parts.append(Part(Entries(value.shape, shape, index), value))
        return Value(Linear(*self._next(shape), tuple(parts), None), NOTHING, shape)

    def _joined(self, values: Sequence[Value], places: Sequence[Indices], shape: Shape) -> Value:
        """Of entries of one origin: they are its entries still."""
        origin, posts = values[0].origin, [value.post for value in values]
        together = Post(
            np.concatenate([origin.indices if post.index is None else post.index for post in posts]),
            joined([(value.post.scale, value.width) for value in values], 1),
            None,
            joined([(value.post.shift, value.width) for value in values], 0),
        )
        back = np.argsort(np.concatenate(places), kind="stable")
        return self._tidied(Value(origin, together.at(back, prod(shape), origin.width), shape))

    def take(self, x: Value, index: Indices, shape: Shape) -> Value:
        """An array of that shape with the entries at these places, counted in C order, and zero where it is -1.

        Raises: InputError unless there are as many places as the shape says, all of them within the value.
        """
        if index.shape != (prod(shape),) or (len(index) and not -1 <= index.min() <= index.max() < x.width):
            raise InputError(f"{index.size} places in {x.width} numbers do not make the shape {list(shape)}")
        self.budget.hold(len(index))
        post = x.post.at(index, x.width, x.origin.width)
        return self._tidied(Value(x.origin, post, shape))

    def _tidied(self, x: Value) -> Value:
        """Groups that are sorted upwards and then turned round are sorted downwards."""
        origin, index = x.origin, x.post.index
        if index is None or not isinstance(origin, Applied) or not isinstance(origin.function, Sorting):
            return x
        function = origin.function
        if function.size is None or not function.ascending or len(index) != origin.width:
            return x
        turned = np.arange(origin.width).reshape(-1, function.size, function.inner)[:, ::-1]
        if not np.array_equal(index, turned.ravel()):
            return x
        downwards = activation(f"group_sort:{function.size}:{function.inner}:descending")
        made = self._applied(downwards, origin.value)
        return Value(made, replace(x.post, index=None, moved_from=None), x.shape)

    # -- entry by entry --------------------------------------------------------------------------------------------

    def scale(self, x: Value, factors: Tensor) -> Value:
        """factors·x, entry by entry. Requires: a vector."""
        self._check_vector(x, factors)
        if self._is_nothing(factors, 1):
            return x
        numerators, denominator = factors.exact()
        if denominator.bit_length() <= LONG_DENOMINATOR:
            self._note_scaling(x)
            return replace(x, post=x.post.times(factors))
        of_each = {number: away_from_zero(number, denominator) for number in set(numerators.tolist())}
        return self._scale_nearly(x, [of_each[number] for number in numerators.tolist()], FACTOR_LEAST)

    def divide(self, x: Value, by: Tensor) -> Value:
        """x/by, entry by entry. Requires: a vector."""
        self._check_vector(x, by)
        if self._is_nothing(by, 1):
            return x
        one = Tensor(np.ones(1, dtype=np.int64), budget=self.budget)
        return self._scale_nearly(x, *short_factors(one.over(by)))

    def _scale_nearly(self, x: Value, near: list[Fraction], least: Fraction) -> Value:
        """By factors that are these, times numbers in [least, 1]."""
        self._note_scaling(x)
        if least < 1:
            x = self._shrunk(self._with_room(x))
        return replace(x, post=x.post.times(Tensor.of_fractions(near, (len(near),), self.budget)))

    def _note_scaling(self, x: Value) -> None:
        """What comes before everything else is the normalisation, as a rule, and shown as such."""
        if not x.is_input:
            self.note("a scaling")

    def _is_nothing(self, constants: Tensor, neutral: int) -> bool:
        """Whether all of them leave everything as it is. (Those that a program computes in floats may not quite.)"""
        if not constants.holds_only(neutral):
            return False
        self._note_computed(constants)
        return True

    def shift(self, x: Value, by: Tensor) -> Value:
        """The sum x + by. Requires: a vector."""
        self._check_vector(x, by)
        if self._is_nothing(by, 0):
            return x
        if not x.is_input:
            self._note_computed(by)
            if x.post.shift is not None:
                self.note("several shifts")
        return replace(x, post=x.post.plus(by))

    @staticmethod
    def _check_vector(x: Value, constants: Tensor) -> None:
        if len(constants.shape) != 1 or not constants.size or x.width % constants.size:
            raise InputError(f"constants of shape {list(constants.shape)} for {x.width} numbers")

    def batch_normalise(self, x: Value, gamma: Tensor, beta: Tensor, mean: Tensor, variance: Tensor) -> Value:
        """gamma·(x - mean)/sqrt(variance) + beta, entry by entry; the epsilon is in the variance. Vectors.

        The root is rounded up to 128 bits, so that the true factor is that times a number in [1 - 2^-127, 1].
        """
        for vector in (gamma, beta, mean, variance):
            self._check_vector(x, vector)
        numerators, denominator = variance.exact()
        squares = [Fraction(number, denominator) for number in numerators.tolist()]
        if not all(square > 0 for square in squares):
            raise InputError("a variance (with epsilon) that is not positive: there is no root of it")
        self.note("batch normalisation")  # also of the identity: a program's root of 1 need not be 1
        if all(each.holds_only(1) for each in (gamma, variance)) and all(each.holds_only(0) for each in (beta, mean)):
            return x
        of_each = {square: sqrt_upper(1 / square, FACTOR_BITS) for square in set(squares)}
        is_exact = all(root * root * square == 1 for square, root in of_each.items())
        if not is_exact:
            x = self._with_room(x)
        x = replace(x, post=x.post.plus(-mean))
        if not is_exact:
            x = self._shrunk(x)
        roots = Tensor.of_fractions([of_each[square] for square in squares], (len(squares),), self.budget)
        return replace(x, post=x.post.times(product(gamma, roots)).plus(beta))

    def _with_room(self, x: Value) -> Value:
        """For factors that are not known exactly: one layer holds them once."""
        return x if x.post.least == 1 else self._of(IDENTITY, x)

    def _shrunk(self, x: Value) -> Value:
        """Multiplied with factors in [FACTOR_LEAST, 1]. Requires: room for them."""
        post = x.post
        if not isinstance(x.origin, Applied) or post.scale is not None or post.index is not None:
            return replace(x, post=post.shrunk())
        before = replace(x, post=NOTHING)  # just after an activation
        return Value(Shrunk(*self._next(x.shape), before, post.shift), NOTHING, x.shape)

    # -- functions -------------------------------------------------------------------------------------------------

    def activate(self, x: Value, name: str) -> Value:
        """The activation of that name. What does the same to each entry may as well come before they are moved."""
        function = activation(name)
        if function == IDENTITY:
            return x
        if x.is_input and x.shape == (x.width,) and x.width**2 > MAX_COMPUTED:
            raise InputError(
                f"a function of {x.width} numbers without a matrix before it, which would need one of "
                f"{x.width} x {x.width}: that is too large"
            )
        index, before = x.post.index, x.post.unmoved(x.origin.width)
        if index is None or before is None or not isinstance(function, Componentwise) or not x.origin.has_all(index):
            return self._of(function, x)
        made = self._applied(function, Value(x.origin, before, x.origin.shape))
        return Value(made, NOTHING.at(index, x.width, x.width), x.shape)

    def leaky(self, x: Value, slopes: Tensor) -> Value:
        """The sum max(x, 0) + slopes·min(x, 0), entry by entry, as slopes·x + (1 - slopes)·max(x, 0) where they differ.

        Requires: a vector. (With slopes in [0, 1] its norm is at most 1 + the largest less the smallest of them.)
        """
        self._check_vector(x, slopes)
        numerators, denominator = slopes.exact()
        found = [Fraction(number, denominator) for number in numerators.tolist()]
        if len(set(found)) == 1:
            return self.activate(x, f"leaky_relu:{found[0]}" if found[0] else "relu")
        above = Tensor.of_fractions([1 - slope for slope in found], (len(found),), self.budget)
        return self.add([self.scale(x, slopes), self.scale(self.activate(x, "relu"), above)])

    def max_pool(self, x: Value, channels: int, window: Window) -> Value:
        """The largest number in each window, channel by channel."""
        if channels * prod(window.inputs) != x.width:
            raise InputError(f"windows over {channels} channels of {window.inputs}, but there are {x.width} numbers")
        self.budget.hold(channels * window.taps * prod(window.outputs))
        return self._of(MaxPool.of(channels, window), x.reshaped((channels, *window.inputs)))

    def sort(self, x: Value, size: int, inner: int, *, ascending: bool = True) -> Value:
        """Read as an array of groups x size x inner, and sorted along the middle axis."""
        self.budget.hold(x.width)
        name = f"group_sort:{size}:{inner}" + ("" if ascending else ":descending")
        return self._of(activation(name), x)

    def _of(self, function: Activation, x: Value) -> Value:
        made = self._applied(function, x)
        return Value(made, NOTHING, made.shape)

    def _applied(self, function: Activation, x: Value) -> Applied:
        """One for the same function of the same value."""
        key = id(x.origin), id(x.post), x.shape, function.name
        if key not in self._functions:
            self._functions[key] = Applied(*self._next(function.out_shape(x.shape)), function, x)
        return self._functions[key]

    def extremes(self, a: Value, b: Value) -> tuple[Value, Value] | None:
        """(min(a, b), max(a, b)), if both take their entries from one value, as two halves of it; else None."""
        if a.width != b.width:
            raise InputError(f"pairs of {a.width} and {b.width} numbers")
        key = id(a.origin), id(a.post), id(b.origin), id(b.post)
        if key not in self._pairs:
            found = sorted_pairs(self, a, b)
            if found is None:
                return None
            self._pairs[key] = self._pairs[key[2:] + key[:2]] = (*found, a, b)
        least, most, *_ = self._pairs[key]
        return least.reshaped(a.shape), most.reshaped(a.shape)

    def soften(self, x: Value) -> Value:
        """A softmax over all numbers, which is left out: it keeps their order. Requires: it is the end."""
        if x.width == 1:
            raise InputError("a softmax of a single output is the same for every input: take it out of the model")
        self.note("a softmax")  # in floats it can make two classes equal
        self._softened = True
        return x

    # -- what they become ------------------------------------------------------------------------------------------

    def network(self, x: Value, shape: tuple[int, ...] | None = None, hints: Hints | None = None) -> Network:
        """The network with that output, with distances in the normalised space if there is one.

        shape: of an input, as people know it. Whoever knows the file adds sources.
        """
        hints = hints or Hints()
        stripped = self._without_sigmoid(x, hints)
        notes: list[str] = []
        self._notes.append(notes)
        layers, normalisation = layers_of(stripped, notes, Numbers(self.budget))
        if stripped is not x and x.width == 1 and _end_with_a_sigmoid(layers) and not hints.says_single:
            raise InputError(
                "the model ends with several sigmoids: without the last one its output is still above 0 whatever "
                "the input. Say the threshold (--threshold), or export the model without them"
            )
        space: EpsSpace = "input" if normalisation is None else "normalised"
        folded = tuple(dict.fromkeys(chain.from_iterable(self._notes)))
        layers, single = read_single(layers)
        return Network(layers, (), normalisation, space, shape, folded, single)

    def _without_sigmoid(self, x: Value, hints: Hints) -> Value:
        """What is to be stripped is there, and is stripped; a single output does not end with a sigmoid unawares."""
        if self._softened:  # the logits are what it takes
            return x
        origin = x.origin
        if not isinstance(origin, Applied) or not isinstance(origin.function, Sigmoid) or x.post.changes_numbers:
            if hints.strip_softmax:
                raise InputError(
                    "there is no softmax at the end to be stripped, nor a sigmoid: leave --strip-softmax out"
                )
        elif hints.strip_softmax:
            self.note("a sigmoid")  # in floats it can make two numbers equal
            return origin.value if x.post.index is None else self.take(origin.value, x.post.index, x.shape)
        elif x.width == 1 and not hints.says_single:
            raise InputError(
                "the model ends with a sigmoid, which is above 0 whatever the input. Say --strip-softmax to compare "
                "the logit before it with a threshold (0 there is a probability of 1/2), which gives the better "
                "margins, or --threshold 1/2 to compare the probability itself"
            )
        return x


def _end_with_a_sigmoid(layers: Sequence[Layer]) -> bool:
    """Before a last layer that changes nothing, which stands where another activation was."""
    *before, last = layers
    (first, *others) = last.terms
    same = not others and first.map.shape == (1, 1) and first.map.dense()[0, 0] == 1 and not last.columns
    return bool(before) and same and isinstance(before[-1].activation, Sigmoid)
