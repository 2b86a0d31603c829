"""A graph of values -> layers: what the output depends on, each of it once, and exactly.

A sum of linear maps goes into the layer that takes it, if nobody else does: into that of an activation, with all that
is done to its entries on the way; into another sum. It is a layer of its own, with the identity for its activation, if
it is taken more than once, if another linear map takes it, or a concatenation, or if factors that no rational holds
come between (they belong to one layer, and never to a sum with others). What is done to entries before a linear map is
multiplied into it, where there is such a map; else it is a layer, too.

What all that take the input do to its entries first is the normalisation of the inputs.

Layers are numbered from the output backwards, so that the order of operations in a file makes no difference.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod

import numpy as np

from intervalcert.errors import InputError, error_context
from intervalcert.io.models.assembly_maps import Entries, Numbers, TensorMap, Weights
from intervalcert.io.models.assembly_values import NOTHING, Applied, Linear, Origin, Part, Post, Shrunk, Value
from intervalcert.io.models.assembly_vectors import aligned, product, spread, taken, total
from intervalcert.io.models.tensors import MAX_COMPUTED, Tensor
from intervalcert.model.activations import IDENTITY, Activation, MaxPool
from intervalcert.model.layers import INPUT, Layer, Term, UncertainScale
from intervalcert.model.linear_maps import Shape
from intervalcert.model.network import MAX_LAYERS
from intervalcert.model.normalisation import FACTOR_LEAST, Normalisation, are_long

__all__ = ["MAX_TERMS", "layers_of"]

MAX_TERMS = 256
"""Of one layer. Each of them is compared with the others."""

SCALED = "a scaling or a shift before a layer"

_FEW_TERMS = 16
"""A sum with more of them is not added to another one, but a layer of its own."""

_Term = tuple[int, TensorMap]
"""A source, and a map of what it gives."""


def layers_of(output: Value, notes: list[str], numbers: Numbers) -> tuple[tuple[Layer, ...], Normalisation | None]:
    """The layers whose last one gives that value, and the normalisation before them.

    notes: where to say what the last layer had folded in.
    """
    made = _Layers(output, notes, numbers)
    return made.in_order(), made.normalisation


@dataclass(frozen=True, eq=False)
class _Use:
    """Somebody takes a value. whole: as it is, for an activation or the output. added: for a sum. Else under a map."""

    value: Value
    notes: list[str]
    whole: bool = False
    added: bool = False


@dataclass(frozen=True, eq=False)
class _Form:
    """C·(Σ T_k·x_k + bias + offset) + shift: a layer before its activation. shape: of its numbers."""

    terms: tuple[_Term, ...]
    bias: Tensor | None
    offset: Tensor | None
    shift: Tensor | None
    least: Fraction
    shape: Shape


@dataclass(frozen=True, eq=False)
class _Source:
    """What a layer gives, or the input. instead: what is left of some of the things that were done to its entries."""

    index: int
    shape: Shape
    instead: dict[int, Post]

    def post(self, value: Value) -> Post:
        return self.instead.get(id(value.post), value.post)


class _Layers:
    """The origins that the output depends on, one after the other, each as a source or as a form."""

    def __init__(self, output: Value, notes: list[str], numbers: Numbers) -> None:
        self._numbers = numbers
        self._layers: list[Layer] = []
        self._known: dict[Origin, _Source | _Form] = {}
        self._own: dict[tuple[int, int], tuple[Post, int]] = {}
        self.normalisation: Normalisation | None = None
        origins = _needed(output)
        self._uses = _uses(origins, output, notes)
        self._is_dense = all(map(self._is_of_matrices, origins))
        for origin in origins:
            with error_context(origin.where) if origin.where else nullcontext():
                self._known[origin] = self._become(origin)
        last = self._form_of(output, notes)
        if last.least < 1:  # the last layer must be known exactly
            source = _Source(self._append(last, IDENTITY, notes), last.shape, {})
            last = self._of_source(source, NOTHING, last.shape, notes)
        self._append(last, None, notes)

    def _is_of_matrices(self, origin: Origin) -> bool:
        """Whether it is one step in a chain of matrices and of functions of as many numbers."""
        (use, *others) = self._uses[origin]
        if others or use.value.post.index is not None:
            return False
        if isinstance(origin, Linear):
            return len(origin.parts) == 1 and isinstance(origin.parts[0].map, Weights)
        return not (isinstance(origin, Applied) and isinstance(origin.function, MaxPool))

    def _become(self, origin: Origin) -> _Source | _Form:
        if isinstance(origin, Linear):
            return self._linear(origin)
        if isinstance(origin, Applied):
            form = self._form_of(origin.value, origin.notes)
            return _Source(self._append(form, origin.function, origin.notes), origin.shape, {})
        if isinstance(origin, Shrunk):
            return self._shrunk(origin)
        return self._entered(origin)

    # -- the input -----------------------------------------------------------------------------------------------------

    def _entered(self, origin: Origin) -> _Source:
        """What is done first becomes the normalisation, if all do the same and no input is lost in it.

        C·(scale·x + offset) = scale·C·(x - mean) with mean = -offset/scale; the shift is left to the first layers. If C
        is 1, the shift may be in the mean as well, and is if that makes no long numbers.
        """
        source = _Source(INPUT, origin.shape, {})
        posts = {id(use.value.post): use.value.post for use in self._uses[origin]}
        first, *others = (post.unmoved(origin.width) for post in posts.values())
        if first is None or any(other is not first for other in others):
            return source
        if first.scale is None and first.shift is None:
            return source
        budget = self._numbers.budget
        factor = Tensor(np.ones(1, dtype=np.int64), budget=budget) if first.scale is None else first.scale
        if not all(factor.exact()[0].tolist()):
            return source
        offset, shift = (first.shift, None) if first.least == 1 else (first.offset, first.shift)
        means = [Fraction(0)] if offset is None else _over(-offset, factor)
        if are_long(means):
            if first.least < 1:
                return source
            means, shift = [Fraction(0)], offset
        mean = Tensor.of_fractions(means, (len(means),), budget)
        columns = [spread(x, origin.width).column() for x in (mean, factor)]
        self.normalisation = Normalisation(columns[0], columns[1], first.least)
        if shift is not None and not any(shift.exact()[0].tolist()):
            shift = None
        left = NOTHING if shift is None else Post(shift=shift)
        for key, post in posts.items():
            source.instead[key] = left if post.index is None else left.at(post.index, origin.width, origin.width)
        return source

    # -- sums of linear maps -------------------------------------------------------------------------------------------

    def _linear(self, origin: Linear) -> _Source | _Form:
        terms: list[_Term] = []
        biases = [] if origin.bias is None else [origin.bias]
        for part in origin.parts:
            more, bias = self._part(part, origin.notes)
            terms += more
            biases += [] if bias is None else [bias]
        if len(terms) > MAX_TERMS:
            raise InputError(f"a sum of {len(terms)} linear maps; at most {MAX_TERMS} are added up in one layer")
        if len(biases) > 1 and len(origin.parts) > 1:
            origin.notes.append("biases of several branches")
        bias = None
        for each in biases:
            bias = total(each, bias)
        first, *others = self._uses[origin]
        post = first.value.post
        if not others and (first.whole or (first.added and post.least == 1 and len(terms) <= _FEW_TERMS)):
            form = _folded(terms, bias, post, origin.width, first.value.shape)
            if form is not None:
                return form
        if post.index is None and all(use.value.post is post for use in others):
            form = _folded(terms, bias, post, origin.width, origin.shape)
            if form is not None:
                return _Source(self._append(form, IDENTITY, first.notes), origin.shape, {id(post): NOTHING})
        form = _Form(tuple(terms), bias, None, None, Fraction(1), origin.shape)
        return _Source(self._append(form, IDENTITY, first.notes), origin.shape, {})

    def _part(self, part: Part, notes: list[str]) -> tuple[tuple[_Term, ...], Tensor | None]:
        """Terms and a bias that make up T·value."""
        known = self._known[part.value.origin]
        if isinstance(known, _Form):
            return known.terms, _bias(known, notes)
        post = known.post(part.value)
        linear = Entries(part.value.shape, part.value.shape) if part.map is None else part.map
        found = _before(linear, post, known.shape) if post.least == 1 else None
        if found is None:
            return ((self._layer_for(known, post, part.value.shape, notes), linear),), None
        signs = part.map is None and post.shift is None and (post.scale is None or _are_signs(post.scale))
        if not signs and (post.scale is not None or post.shift is not None):
            notes.append(SCALED)
        linear, bias = found
        return ((known.index, linear),), bias

    # -- layers --------------------------------------------------------------------------------------------------------

    def _shrunk(self, origin: Shrunk) -> _Source:
        inner = origin.value.origin
        known = self._known[inner]
        if not isinstance(known, _Source):
            raise ValueError("only what an activation gives is multiplied with factors after it")
        if len(self._uses[inner]) > 1:
            post = Post(offset=origin.offset, least=FACTOR_LEAST)
            return _Source(self._layer_for(known, post, origin.shape, origin.notes), origin.shape, {})
        uncertain = UncertainScale(self._numbers.column(origin.offset, origin.width), FACTOR_LEAST)
        self._layers[known.index] = replace(self._layers[known.index], after=uncertain)
        return known

    def _layer_for(self, known: _Source, post: Post, shape: Shape, notes: list[str]) -> int:
        """A layer, with the identity for its activation, that does no more than that to a source; one for each."""
        key = known.index, id(post)
        if key not in self._own:  # what was done is kept, so that nothing else comes to be in its place
            self._own[key] = post, self._append(self._of_source(known, post, shape, notes), IDENTITY, notes)
        return self._own[key][1]

    def _form_of(self, value: Value, notes: list[str]) -> _Form:
        known = self._known[value.origin]
        if isinstance(known, _Form):
            return known
        return self._of_source(known, known.post(value), value.shape, notes)

    def _of_source(self, known: _Source, post: Post, shape: Shape, notes: list[str]) -> _Form:
        width = prod(known.shape)
        if known.index == INPUT and post.scale is not None:  # with zeros among the factors: no normalisation
            notes.append("a scaling")
        linear: TensorMap = Entries(known.shape, known.shape)
        if self._is_dense and width**2 <= MAX_COMPUTED:
            self._numbers.budget.spend((width, width), 64)
            linear = Weights(Tensor(np.eye(width), budget=self._numbers.budget))
        form = _folded([(known.index, linear)], None, post, width, shape)
        if form is None:
            raise ValueError("entries may be scaled and moved")
        return form

    def _append(self, form: _Form, function: Activation | None, notes: list[str]) -> int:
        """The number of a new layer."""
        if len(self._layers) >= MAX_LAYERS:
            raise InputError(f"the model has more than {MAX_LAYERS} layers; at most {MAX_LAYERS} are bounded")
        width, column = prod(form.shape), self._numbers.column
        terms = tuple(Term(source, linear.made(self._numbers)) for source, linear in form.terms)
        if form.least < 1:
            uncertain = UncertainScale(column(total(form.bias, form.offset), width), form.least)
            layer = Layer(terms, column(form.shift, width), function, uncertain)
        else:
            layer = Layer(terms, column(_bias(form, notes), width), function)
        self._layers.append(layer)
        return len(self._layers) - 1

    def in_order(self) -> tuple[Layer, ...]:
        """As the last one takes them: each after those that it takes, the first term's first."""
        place: dict[int, int] = {INPUT: INPUT}
        order: list[int] = []
        waiting: list[tuple[int, Iterator[Term]]] = []

        def enter(index: int) -> None:
            waiting.append((index, iter(self._layers[index].terms)))

        enter(len(self._layers) - 1)
        while waiting:
            index, terms = waiting[-1]
            term = next(terms, None)
            if term is None:
                waiting.pop()
                place[index] = len(order)
                order.append(index)
            elif term.source not in place:
                enter(term.source)
        return tuple(
            replace(
                self._layers[index],
                terms=tuple(replace(term, source=place[term.source]) for term in self._layers[index].terms),
            )
            for index in order
        )


def _needed(output: Value) -> list[Origin]:
    """All origins that a value depends on, each after those that it takes."""
    found, waiting = set[Origin](), [output.origin]
    while waiting:
        origin = waiting.pop()
        if origin not in found:
            found.add(origin)
            waiting += [value.origin for value in _values_of(origin)]
    return sorted(found, key=lambda origin: origin.serial)


def _values_of(origin: Origin) -> list[Value]:
    if isinstance(origin, Linear):
        return [part.value for part in origin.parts]
    return [origin.value] if isinstance(origin, Applied | Shrunk) else []


def _uses(origins: list[Origin], output: Value, notes: list[str]) -> dict[Origin, list[_Use]]:
    found: dict[Origin, list[_Use]] = {origin: [] for origin in origins}
    for origin in origins:
        if isinstance(origin, Linear):
            for part in origin.parts:
                found[part.value.origin].append(_Use(part.value, origin.notes, added=part.map is None))
        elif isinstance(origin, Applied | Shrunk):
            found[origin.value.origin].append(_Use(origin.value, origin.notes, whole=True))
    found[output.origin].append(_Use(output, notes, whole=True))
    return found


def _folded(terms: list[_Term], bias: Tensor | None, post: Post, width: int, shape: Shape) -> _Form | None:
    """A sum of `width` numbers, and what is done to its entries, in one; None if a map does not take that up."""
    made = []
    for source, each in terms:
        linear: TensorMap | None = each
        if linear is not None and post.index is not None:
            linear = linear.rows_at(post.index)
        if linear is not None and post.scale is not None:
            linear = linear.rows_scaled(post.scale)
        if linear is None:
            return None
        made.append((source, replace(linear, shape=shape) if isinstance(linear, Entries) else linear))
    if bias is not None and post.index is not None:
        bias = taken(bias, post.index, width, 0)
    bias = None if bias is None else product(bias, post.scale)
    return _Form(tuple(made), bias, post.offset, post.shift, post.least, shape)


def _before(linear: TensorMap, post: Post, shape: Shape) -> tuple[TensorMap, Tensor | None] | None:
    """A map of what a source of that shape gives, and a bias, after what is done to its entries."""
    bias, made = None, linear
    if post.shift is not None:
        bias = linear.of(post.shift)
        if bias is None:
            return None
    if post.scale is not None:
        scaled = made.columns_scaled(post.scale)
        if scaled is None:
            return None
        made = scaled
    if post.index is not None:
        moved = made.columns_at(post.index, prod(shape))
        if moved is None:
            return None
        made = moved
    return replace(made, in_shape=shape) if isinstance(made, Entries) else made, bias


def _bias(form: _Form, notes: list[str]) -> Tensor | None:
    """All that is added. Requires: known factors."""
    if form.bias is not None and form.shift is not None:
        notes.append("a shift after a bias")
    return total(form.bias, form.shift)


def _are_signs(factors: Tensor) -> bool:
    return (factors * factors).holds_only(1)


def _over(x: Tensor, y: Tensor) -> list[Fraction]:
    a, b = aligned(x, y)
    return a.over(b)
