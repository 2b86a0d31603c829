"""A network built operation by operation, as a file lists them: matrices, scalings, shifts, roots, activations.

Whatever stands between two activations becomes one layer, computed exactly. While it grows it is

    C·(scale·(W·x + bias) + offset) + shift          (C as in `layers.UncertainScale`; what is missing is 1 or 0)

Roots right after an activation belong to the layer before, and what they are multiplied with to the next one.
A shift by zeros and a factor of ones are nothing: x + 0, x·1 and x/1 are x, also in floats.

A scaling and a shift before the first matrix are the normalisation of the inputs; before another one they are
multiplied into it. Two matrices without an activation between them stay two layers, with the identity between them.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from intervalcert.errors import InputError
from intervalcert.io.models.interface import Hints
from intervalcert.io.models.tensors import MAX_COMPUTED, Budget, Tensor
from intervalcert.model.activations import IDENTITY, Activation, Sigmoid, activation
from intervalcert.model.arrays import MAX_ENTRIES
from intervalcert.model.layers import Layer, UncertainScale
from intervalcert.model.network import EpsSpace, Network
from intervalcert.model.normalisation import (
    FACTOR_BITS,
    FACTOR_LEAST,
    LONG_DENOMINATOR,
    Normalisation,
    are_long,
    away_from_zero,
    short_factors,
)
from intervalcert.model.single import read_single
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.rounding import sqrt_upper

__all__ = ["Assembly"]


class Assembly:
    """What was read so far. `width`: how many numbers there are at this point; `budget`: what they may take."""

    def __init__(self, inputs: int) -> None:
        if inputs < 1:
            raise InputError("the model has no inputs")
        self.width, self.budget = inputs, Budget()
        self._layers: list[Layer] = []
        self._normalisation: Normalisation | None = None
        self._folded: list[str] = []
        self._matrices: dict[tuple[object, ...], tuple[Tensor, RationalMatrix]] = {}
        self._softened = False
        self._begin()

    def _begin(self) -> None:
        self._weights: Tensor | None = None
        self._bias: Tensor | None = None
        self._scale: Tensor | None = None
        self._offset: Tensor | None = None
        self._shift: Tensor | None = None
        self._least = Fraction(1)

    def tensor(self, array: npt.NDArray[Any]) -> Tensor:
        """Numbers that are stored in the file: the more there are, the more may be computed."""
        self.budget.earn(array.size)
        return Tensor(array, budget=self.budget)

    # -- what files list -----------------------------------------------------------------------------------------

    def affine(self, weights: Tensor, bias: Tensor | None) -> None:
        """X -> W·x + bias. weights: outputs x inputs."""
        outputs, inputs = weights.shape
        if inputs != self.width:
            raise InputError(f"a matrix for {inputs} inputs (it is {outputs} x {inputs}), but there are {self.width}")
        if not outputs or weights.size > MAX_ENTRIES:
            raise InputError(f"a matrix of {weights.size} numbers; 1 to {MAX_ENTRIES} are held as exact ones")
        if bias is not None and bias.shape != (outputs,):
            raise InputError(f"{outputs} outputs, but biases of shape {list(bias.shape)}")
        self._note_computed(weights, bias)
        self._normalise()
        if self._weights is not None or self._least < 1:
            self._end(IDENTITY)
        elif self._scale is not None or self._shift is not None:
            self.note("a scaling or a shift before a layer")
            if self._shift is not None:
                moved = (weights @ self._shift.broadcast((inputs,)).reshaped((inputs, 1))).reshaped((outputs,))
                bias = moved if bias is None else moved + bias
            if self._scale is not None:
                weights = weights * self._scale
        self._begin()
        self._weights, self._bias, self.width = weights, bias, outputs

    def scale(self, factors: Tensor) -> None:
        """X -> factors·x, entry by entry. Requires: a vector of `width`, or of 1."""
        if self._is_nothing(factors, 1):
            return
        numerators, denominator = factors.exact()
        if denominator.bit_length() <= LONG_DENOMINATOR:
            self._note_scaling()
            self._stretch(factors)
        else:
            of_each = {x: away_from_zero(x, denominator) for x in set(numerators.tolist())}
            self._scale_nearly([of_each[x] for x in numerators.tolist()], FACTOR_LEAST)

    def divide(self, by: Tensor) -> None:
        """X -> x/by, entry by entry. Requires: a vector of `width`, or of 1."""
        if self._is_nothing(by, 1):
            return
        self._scale_nearly(*short_factors(self._one().over(by)))

    def _scale_nearly(self, near: list[Fraction], least: Fraction) -> None:
        """By factors that are these, times numbers in [least, 1]."""
        self._note_scaling()
        if least < 1:
            self._make_room()
            self._shrink()
        self._stretch(Tensor.of_fractions(near, (len(near),), self.budget))

    def _note_scaling(self) -> None:
        """What comes before everything else is the normalisation, as a rule, and shown as such."""
        if self._weights is not None or self._layers:
            self.note("a scaling")

    def _is_nothing(self, constants: Tensor, neutral: int) -> bool:
        """Whether all of them leave everything as it is. (Those that a program computes in floats may not quite.)"""
        if not constants.holds_only(neutral):
            return False
        self._note_computed(constants)
        return True

    def _one(self) -> Tensor:
        return Tensor(np.ones(1, dtype=np.int64), budget=self.budget)

    def _stretch(self, factors: Tensor) -> None:
        self._scale = factors if self._scale is None else self._scale * factors
        if self._offset is not None:
            self._offset = self._offset * factors
        if self._shift is not None:
            self._shift = self._shift * factors

    def shift(self, by: Tensor) -> None:
        """X -> x + by. Requires: a vector of `width`, or of 1."""
        if self._is_nothing(by, 0):
            return
        if self._weights is not None or self._layers:
            self._note_computed(by)
            if self._shift is not None:
                self.note("several shifts")
        self._move(by)

    def _move(self, by: Tensor) -> None:
        self._shift = by if self._shift is None else self._shift + by

    def batch_normalise(self, gamma: Tensor, beta: Tensor, mean: Tensor, variance: Tensor) -> None:
        """X -> gamma·(x - mean)/sqrt(variance) + beta, entry by entry; the epsilon is in the variance. Vectors.

        The root is rounded up to 128 bits, so that the true factor is that times a number in [1 - 2^-127, 1].
        """
        numerators, denominator = variance.exact()
        squares = [Fraction(x, denominator) for x in numerators.tolist()]
        if not all(x > 0 for x in squares):
            raise InputError("a variance (with epsilon) that is not positive: there is no root of it")
        self.note("batch normalisation")  # also of the identity: a program's root of 1 need not be 1
        if all(x.holds_only(1) for x in (gamma, variance)) and all(x.holds_only(0) for x in (beta, mean)):
            return
        of_each = {x: sqrt_upper(1 / x, FACTOR_BITS) for x in set(squares)}
        is_exact = all(root * root * x == 1 for x, root in of_each.items())
        if not is_exact:
            self._make_room()
        self._move(-mean)
        if not is_exact:
            self._shrink()
        self._stretch(gamma * Tensor.of_fractions([of_each[x] for x in squares], (len(squares),), self.budget))
        self._move(beta)

    def _make_room(self) -> None:
        """For factors that are not known exactly: one layer holds them once."""
        if self._least < 1:
            self._end(IDENTITY)

    def _shrink(self) -> None:
        """What is pending is multiplied with factors in [FACTOR_LEAST, 1]."""
        if self._weights is None and self._scale is None and self._layers:  # just after an activation
            after = UncertainScale(self._column(self._shift), FACTOR_LEAST)
            self._layers[-1] = replace(self._layers[-1], after=after)
            self._begin()
        else:
            self._least = FACTOR_LEAST
            self._offset, self._shift = self._shift, None

    def activate(self, name: str) -> None:
        """The activation of that name."""
        function = activation(name)
        if function != IDENTITY:
            self._end(function)

    def soften(self) -> None:
        """A softmax over all numbers, which is left out: it keeps their order. Requires: it is the end."""
        if self.width == 1:
            raise InputError("a softmax of a single output is the same for every input: take it out of the model")
        self.note("a softmax")  # in floats it can make two classes equal
        self._softened = True

    def note(self, what: str) -> None:
        """Something that a program in floats does besides its layers, and that is no part of the network."""
        self._folded.append(what)

    def _note_computed(self, *constants: Tensor | None) -> None:
        """A program may compute them in floats, and get others."""
        if any(constant is not None and constant.stored is None for constant in constants):
            self.note("constants that are computed")

    # -- what they become ----------------------------------------------------------------------------------------

    def network(self, shape: tuple[int, ...] | None = None, hints: Hints | None = None) -> Network:
        """The network, with distances in the normalised space if there is one; whoever knows the file adds sources."""
        self._check_end(hints or Hints())
        self._normalise()
        if self._least < 1:  # the last layer must be known exactly
            self._end(IDENTITY)
        if not self._layers or self._layers[-1].activation is not None:
            self._end(None)
        space: EpsSpace = "input" if self._normalisation is None else "normalised"
        folded = tuple(dict.fromkeys(self._folded))
        layers, single = read_single(tuple(self._layers))
        return Network(layers, (), self._normalisation, space, shape, folded, single)

    def _check_end(self, hints: Hints) -> None:
        """What is to be stripped is there, and is stripped; a single output does not end with a sigmoid unawares."""
        if self._softened:  # the logits are what it takes
            return
        last = self._layers[-1] if self._layers else None
        pending = self._weights is not None or self._scale is not None or self._shift is not None or self._least < 1
        if last is None or pending or not isinstance(last.activation, Sigmoid) or last.after is not None:
            if hints.strip_softmax:
                raise InputError(
                    "there is no softmax at the end to be stripped, nor a sigmoid: leave --strip-softmax out"
                )
        elif hints.strip_softmax:
            self.note("a sigmoid")  # in floats it can make two numbers equal
            self._layers[-1] = replace(last, activation=None if last.before is None else IDENTITY)
            if self.width == 1 and self._ends_with_a_sigmoid() and not hints.says_single:
                raise InputError(
                    "the model ends with several sigmoids: without the last one its output is still above 0 whatever "
                    "the input. Say the threshold (--threshold), or export the model without them"
                )
        elif self.width == 1 and not hints.says_single:
            raise InputError(
                "the model ends with a sigmoid, which is above 0 whatever the input. Say --strip-softmax to compare "
                "the logit before it with a threshold (0 there is a probability of 1/2), which gives the better "
                "margins, or --threshold 1/2 to compare the probability itself"
            )

    def _ends_with_a_sigmoid(self) -> bool:
        """Before a last layer that changes nothing, which stands where another activation was."""
        *before, last = self._layers
        same = last.weights.shape == (1, 1) and last.weights[0, 0] == 1 and not last.columns
        return bool(before) and same and isinstance(before[-1].activation, Sigmoid)

    def _normalise(self) -> None:
        """What is pending becomes the normalisation, if it comes before everything else and no input is lost in it.

        C·(scale·x + offset) = scale·C·(x - mean) with mean = -offset/scale; the shift is left to the first layer. If C
        is 1, the shift may be in the mean as well, and is if that makes no long numbers.
        """
        if self._layers or self._normalisation is not None or self._weights is not None:
            return
        if self._scale is None and self._shift is None:
            return
        one = self._one()
        factor = one if self._scale is None else self._scale
        if not all(factor.exact()[0].tolist()):
            return
        least, offset, shift = self._least, self._offset, self._shift
        if least == 1:
            offset, shift = shift, None
        means = [Fraction(0)] if offset is None else (-offset).over(factor)
        if are_long(means):
            if least < 1:
                return
            means, shift = [Fraction(0)], offset
        mean = Tensor.of_fractions(means, (len(means),), self.budget)
        in_full = [x.broadcast((self.width,)).column() for x in (mean, factor)]
        self._normalisation = Normalisation(in_full[0], in_full[1], least)
        self._begin()
        if shift is not None and any(shift.exact()[0].tolist()):
            self._shift = shift

    def _end(self, function: Activation | None) -> None:
        """What is pending becomes a layer with that activation."""
        self._normalise()
        weights, bias = self._weights, self._bias
        if weights is None:
            if self.width**2 > MAX_COMPUTED:
                raise InputError(
                    f"a function of {self.width} numbers without a matrix before it, which would need one of "
                    f"{self.width} x {self.width}: that is too large"
                )
            self.budget.spend((self.width, self.width), 64)
            weights = Tensor(np.eye(self.width), budget=self.budget)
        if self._scale is not None:
            if self._weights is None and not self._layers:  # with zeros among the factors: no normalisation
                self.note("a scaling")
            weights = weights * self._scale.reshaped((self._scale.size, 1))
            bias = None if bias is None else bias * self._scale
        if self._least < 1:
            inner = _sum(bias, self._offset)
            uncertain = UncertainScale(self._column(inner), self._least)
            self._layers.append(Layer(self._matrix(weights), self._column(self._shift), function, uncertain))
        else:
            if bias is not None and self._shift is not None:
                self.note("a shift after a bias")
            self._layers.append(Layer(self._matrix(weights), self._column(_sum(bias, self._shift)), function))
        self._begin()

    def _matrix(self, weights: Tensor) -> RationalMatrix:
        """The exact matrix: one for all layers that have the same numbers, so that what is made of it is made once."""
        if weights.place in self._matrices:
            self.budget.repeat(weights.shape)
        else:  # the tensor is kept, so that no other one comes to be in its place
            self._matrices[weights.place] = weights, weights.matrix()
        return self._matrices[weights.place][1]

    def _column(self, values: Tensor | None) -> RationalMatrix | None:
        return None if values is None else values.broadcast((self.width,)).column()


def _sum(x: Tensor | None, y: Tensor | None) -> Tensor | None:
    return y if x is None else x if y is None else x + y
