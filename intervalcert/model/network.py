"""A frozen description of a model: normalised inputs, a graph of layers (`layers`), activations. No files.

A layer computes activation(Σ T·x + b) of outputs of layers before it, or of the input; the last one has no activation:
its outputs are the logits. In a chain each layer takes what the one before it gives, and nothing else.
An input of several dimensions is one long vector, its last index running fastest: flattening and reshaping are nothing.

Distances are measured in one of two spaces. In the space of the model's ``input`` (the default) a normalisation of the
inputs is part of the first layer; in the ``normalised`` space it comes before it, and the first layer is the model's.
Either way `layers` is what a distance is about, and the mathematics looks at nothing else.

A model with a single output is one of two here: see `Single`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import gcd, prod
from typing import Literal, TypeVar

import numpy.typing as npt

from intervalcert.errors import InputError, UsageError, error_context, shortened
from intervalcert.model.activations import IDENTITY, activation_of
from intervalcert.model.arrays import exact_bias, exact_matrix
from intervalcert.model.layers import INPUT, Layer, Term, UncertainScale
from intervalcert.model.linear_maps import Dense, LinearMap, identity, shape_text
from intervalcert.model.normalisation import Normalisation
from intervalcert.model.single import Single, _beside, _without_constant, read_single
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.parsing import as_fraction, as_row, is_listed

__all__ = ["EPS_SPACES", "IN_MEMORY", "Branch", "EpsSpace", "Network", "Source", "check_eps_space"]


T = TypeVar("T")


EpsSpace = Literal["input", "normalised"]


EPS_SPACES: tuple[EpsSpace, ...] = ("input", "normalised")


IN_MEMORY = "(in memory)"
"""The name of the source of a network that came from no file."""


MAX_CLASSES = 1_024
"""Margins are kept for each pair of classes: half a million pairs are the limit."""


MAX_LAYERS = 1_024
"""Much is computed for each of them, however small they are."""


@dataclass(frozen=True)
class Source:
    """Where a model came from: a file's name (without folders) and the sha256 of its bytes."""

    name: str
    sha256: str


def check_eps_space(name: str) -> EpsSpace:
    """Raises: UsageError for a name that is none."""
    for space in EPS_SPACES:
        if name == space:
            return space
    raise UsageError(f"there is no eps space {name!r}: distances are measured in {' or '.join(EPS_SPACES)}")


@dataclass(frozen=True)
class Branch:
    """One of the linear maps of a network, over the reals: what layer `layer` makes of `source` (`Layer.branches`)."""

    layer: int
    source: int
    map: LinearMap


@dataclass(frozen=True)
class Network:
    """A non-empty graph of layers that fit each other, each after those that it takes; the last gives the logits.

    normalisation: what the model does to its inputs first. eps_space: where distances are measured; in the space of the
    ``input`` the normalisation is in the layers already, in the ``normalised`` one `entered` carries it out. Either way
    `uncertain_input_scale` comes between them, if the factors of the normalisation are not known exactly.
    shape: of an input, if the model says it. folded: what the model does besides and is in the layers here, for people.
    The numbers of such layers are not those of the file, and a program in floats computes something else.
    single: how the output of a model with a single one is read; None if there is one for each class.

    Invariants, checked on construction: each map takes as many numbers as its source gives; each layer but the last is
    taken by another; biases have one entry per number; every layer but the last has an activation, the last has none
    and no uncertain scale, and its maps can be held as matrices; at least two outputs;
    distances are measured in a normalised space only if there is a normalisation; with `single` there are two outputs,
    the first of them the constant that it says.
    """

    layers: tuple[Layer, ...]
    sources: tuple[Source, ...]
    normalisation: Normalisation | None = None
    eps_space: EpsSpace = "input"
    shape: tuple[int, ...] | None = None
    folded: tuple[str, ...] = ()
    single: Single | None = None

    def __post_init__(self) -> None:
        if not self.layers:
            raise InputError("the model has no layers")
        if len(self.layers) > MAX_LAYERS:
            raise InputError(f"the model has {len(self.layers)} layers; at most {MAX_LAYERS} are bounded")
        sizes = {INPUT: self.layers[0].terms[0].map.shape[1]}
        for index, layer in enumerate(self.layers):
            self._check_layer(index, layer, sizes)
            sizes[index] = prod(layer.out_shape)
        unused = set(range(len(self.layers) - 1)) - {term.source for layer in self.layers for term in layer.terms}
        if unused:
            raise InputError(f"layer {min(unused)} is taken by no other layer")
        if self.normalisation is None and self.eps_space != "input":
            raise InputError("the model does not normalise its inputs: distances are those of its inputs (eps space)")
        if self.normalisation is not None and self.normalisation.inputs != self.inputs:
            raise InputError(f"{self.normalisation.inputs} inputs are normalised, but the model takes {self.inputs}")
        if self.shape is not None and prod(self.shape) != self.inputs:
            raise InputError(f"an input has the shape {self.shape}, but the first layer takes {self.inputs} numbers")
        if self.outputs > MAX_CLASSES:
            raise InputError(f"the model has {self.outputs} outputs; margins are computed for at most {MAX_CLASSES}")
        if self.outputs < 2:
            raise InputError("the model has a single output: there is no other class to be told apart from")
        if self.single is not None and not self._is_single(self.single):
            raise InputError("of a model with a single output the first of two must be the threshold, a constant")

    def _check_layer(self, index: int, layer: Layer, sizes: dict[int, int]) -> None:
        """sizes: of the input and of what the layers before it give."""
        for term in layer.terms:
            if term.source not in sizes:
                raise InputError(f"layer {index} takes what layer {term.source} gives, which does not come before it")
            columns, given = term.map.shape[1], sizes[term.source]
            if columns != given:
                source = "the input has" if term.source == INPUT else f"layer {term.source} gives"
                what = "outputs" if term.source != INPUT else "numbers"
                raise InputError(
                    f"layer {index} takes {columns} inputs, but {source} {given} {what} (weights are outputs x inputs; "
                    "the text format is written inputs x outputs)"
                )
        rows = layer.shape[0]
        for bias in (layer.bias, None if layer.before is None else layer.before.offset):
            if bias is not None and bias.shape != (rows, 1):
                raise InputError(f"layer {index} has {rows} outputs, but {bias.shape[0]} biases")
        after = None if layer.after is None else layer.after.offset
        if after is not None and after.shape != (prod(layer.out_shape), 1):
            count = prod(layer.out_shape)
            raise InputError(f"layer {index} gives {count} numbers, but has {after.shape[0]} biases after that")
        if (layer.activation is None) != (index == len(self.layers) - 1):
            raise InputError(f"layer {index}: every layer but the last has an activation, the last has none")
        if layer.activation is None and not all(term.map.is_small for term in layer.terms):
            raise InputError(f"layer {index} gives the logits, and is too large to be held as a matrix")
        for uncertain in filter(None, (layer.before, layer.after)):
            if layer.activation is None or not 0 < uncertain.least < 1:
                raise InputError(f"layer {index}: unknown factors are between 0 and 1, and the last layer has none")

    def _is_single(self, single: Single) -> bool:
        last = self.layers[-1]
        constant = Fraction(0) if last.bias is None else last.bias[0, 0]
        if self.outputs != 2 or constant != single.constant:
            return False
        return all(isinstance(term.map, Dense) and _begins_with_zeros(term.map.matrix) for term in last.terms)

    def __repr__(self) -> str:
        widths = [shape_text(layer.out_shape) for layer in self.model_layers]
        shown = widths if len(widths) <= 12 else [*widths[:5], "…", *widths[-5:]]
        names = ", ".join(shortened(source.name, 60) for source in self.sources[:2])
        inputs = str(self.inputs) if self.is_dense or self.shape is None else shape_text(self.shape)
        graph = "" if self.is_chain else ", with branches,"
        return f"<Network {'-'.join([inputs, *shown])}{graph} from {names}, eps in the {self.eps_space} space>"

    @property
    def inputs(self) -> int:
        return self.layers[0].terms[0].map.shape[1]

    @property
    def outputs(self) -> int:
        return self.layers[-1].shape[0]

    @cached_property
    def is_chain(self) -> bool:
        """Whether each layer takes what the one before gives, and nothing else."""
        return all([term.source for term in layer.branches] == [i - 1] for i, layer in enumerate(self.layers))

    @cached_property
    def is_dense(self) -> bool:
        """Whether it is a chain of matrices."""
        return self.is_chain and all(layer.is_dense for layer in self.layers)

    @cached_property
    def branches(self) -> tuple[Branch, ...]:
        """All linear maps, layer by layer; of a chain one for each layer."""
        return tuple(
            Branch(index, term.source, term.map) for index, layer in enumerate(self.layers) for term in layer.branches
        )

    def by_layer(self, of_branches: Sequence[T]) -> list[tuple[T, ...]]:
        """What there is one of for each branch, put together layer by layer."""
        found: list[list[T]] = [[] for _ in self.layers]
        for branch, each in zip(self.branches, of_branches, strict=True):
            found[branch.layer].append(each)
        return [tuple(each) for each in found]

    @cached_property
    def head(self) -> tuple[RationalMatrix, ...]:
        """The matrices of the last layer, one for each of its branches."""
        return tuple(term.map.dense() for term in self.layers[-1].branches)

    @property
    def model_layers(self) -> tuple[Layer, ...]:
        """The layers as the model has them: of a single output without the constant beside it."""
        if self.single is None:
            return self.layers
        *before, last = self.layers
        return (*before, _without_constant(last))

    def of_branches(self, make: Callable[[LinearMap], T]) -> list[T]:
        """What is made of the map of each branch; of one that several of them share it is made once."""
        made = {key: make(linear) for key, linear in {x.map.key: x.map for x in self.branches}.items()}
        return [made[branch.map.key] for branch in self.branches]

    @property
    def activations(self) -> tuple[str | None, ...]:
        """The name of each layer's activation; None for the last."""
        return tuple(None if layer.activation is None else layer.activation.name for layer in self.layers)

    @property
    def content(self) -> str:
        """A hash of the exact numbers and functions, whatever file they came from: all that bounds depend on.

        Of the layers, of an uncertain input scale, and in the normalised space of the normalisation before them, too.
        """
        return _content(
            self.layers, self.uncertain_input_scale, None if self.eps_space == "input" else self.normalisation
        )

    @cached_property
    def uncertain_input_scale(self) -> UncertainScale | None:
        """What becomes of `entered` inputs before the first layer, if a normalisation has factors not known exactly.

        factor·C·(x - mean) is C·(factor·(x - mean)), all of them being diagonal matrices; and C·(x - mean), with the
        factors in the first layer. No distance grows by C: a Lipschitz constant of the layers is one of the model.
        """
        if self.normalisation is None or self.normalisation.least == 1:
            return None
        mean = self.normalisation.mean
        offset = RationalMatrix(-mean.numerators, mean.denominator) if self.eps_space == "input" else None
        return UncertainScale(offset, self.normalisation.least)

    @property
    def is_exact(self) -> bool:
        """Whether all of its numbers are known exactly; else it is proved for all factors of uncertain scales."""
        return self.uncertain_input_scale is None and not any(layer.before or layer.after for layer in self.layers)

    def entered(self, inputs: RationalMatrix) -> RationalMatrix:
        """What the first layer gets of the model's inputs, one per column, exactly (before `uncertain_input_scale`)."""
        if self.normalisation is None or self.eps_space == "input":
            return inputs
        return self.normalisation.of_columns(inputs)

    def measured_in(self, space: EpsSpace) -> Network:
        """The same model, with distances measured in that space.

        Raises: InputError for the ``normalised`` one unless they are measured there already.
        """
        if space == self.eps_space:
            return self
        if self.normalisation is None:
            raise InputError(
                "the model does not normalise its inputs, as far as it says: there is no eps space 'normalised' (if "
                "they are normalised before, say so with --mean and --std)"
            )
        if space == "normalised":
            raise InputError("the normalisation is in the first layer already: load the model in the normalised space")
        layers = [layer.behind(self.normalisation) for layer in self.layers]
        behind = [layer for layer in layers if layer is not None]
        if len(behind) < len(layers):
            behind = list(_after_scaling(self.layers, self.normalisation))
        folded = dict.fromkeys((*self.folded, "the normalisation of its inputs"))
        return replace(self, layers=tuple(behind), eps_space="input", folded=tuple(folded))

    def after(self, mean: object, std: object) -> Network:
        """The model with a normalisation before it, in whose space distances are then measured.

        Each is a number, a list with one for each input, or for images one for each channel, as `parsing.as_fraction`
        reads them; None for a mean of 0. A mean of 0 and a std of 1 change nothing: the model is then the same.
        Raises: UsageError for a mean without a std, which is easily forgotten.
        """
        if mean is None and std is None:
            return self
        if self.normalisation is not None:
            raise InputError("the model normalises its inputs itself: another mean and std beside that are refused")
        if std is None:
            raise UsageError("a mean without a std: say by what x - mean is divided (std, --std), or 1 if by nothing")
        values = (("the mean", 0 if mean is None else mean), ("the std", std))
        rows = [self._per_input(as_row(x if is_listed(x) else [x], what)) for what, x in values]
        normalisation = Normalisation.of(rows[0], rows[1], self.inputs)
        if normalisation.is_identity:
            return self
        made = replace(self, normalisation=normalisation, eps_space="normalised")
        return made._identified()

    def deciding(self, threshold: object = None, *, regression: bool = False) -> Network:
        """The model with its single output read as is said: by that threshold, or without classes. Or as it is.

        threshold: as `parsing.as_fraction` reads it. Raises: InputError if there are several outputs.
        """
        if threshold is None and not regression:
            return self
        if threshold is not None and regression:
            raise UsageError("a threshold makes classes, and regression has none: give one or the other")
        if self.single is None:
            what = "regression" if regression else "a threshold"
            raise InputError(f"{what} is for a model with a single output, and this one has {self.outputs}")
        with error_context("the threshold"):
            single = Single(None if regression else as_fraction(threshold))
        *before, last = self.model_layers
        return replace(self, layers=(*before, _beside(single.constant, last)), single=single)._identified()

    def _identified(self) -> Network:
        """What came from no file is identified by its content."""
        if [source.name for source in self.sources] != [IN_MEMORY]:
            return self
        return replace(self, sources=(Source(IN_MEMORY, self.content),))

    def _per_input(self, values: list[Fraction]) -> list[Fraction]:
        """One number for each channel of an image becomes one for each input.

        Only if it is clear which axis that is: the first or the last, and shorter than the two others.
        """
        if self.shape is None or len(self.shape) != 3 or len(values) in {1, self.inputs}:
            return values
        first, middle, last = self.shape
        if len(values) == first < min(middle, last):
            return [x for x in values for _ in range(self.inputs // first)]
        return values * (self.inputs // last) if len(values) == last < min(first, middle) else values

    @staticmethod
    def of(
        weights: Sequence[RationalMatrix],
        biases: Sequence[RationalMatrix | None] | None = None,
        *,
        between: str | Sequence[str] = "relu",
        sources: Sequence[Source] = (),
    ) -> Network:
        """A chain with the same activation between all layers, or a list. Without sources its content identifies it."""
        maps = {id(w): Dense(w) for w in weights}
        terms = [(Term(i - 1, maps[id(w)]),) for i, w in enumerate(weights)]
        return Network.of_terms(terms, biases, between=between, sources=sources)

    @staticmethod
    def of_terms(
        terms: Sequence[tuple[Term, ...]],
        biases: Sequence[RationalMatrix | None] | None = None,
        *,
        between: str | Sequence[str] = "relu",
        sources: Sequence[Source] = (),
    ) -> Network:
        """A graph: the terms of each layer. The rest is as in `of`; of a list, one activation for each but the last."""
        if biases is not None and len(biases) != len(terms):
            raise InputError(f"{len(terms)} layers, but {len(biases)} bias vectors: there must be one per layer")
        last = max(len(terms) - 1, 0)
        listed = isinstance(between, list | tuple)
        names = list(between) if listed else [str(between)] * last
        if len(names) != last:
            raise InputError(f"{last + 1} layers, but {len(names)} activations: there must be one between any two")
        functions = [activation_of(x, each[0].map.out_shape) for x, each in zip(names, terms, strict=False)]
        layers, single = read_single(
            tuple(
                Layer(each, biases[i] if biases is not None else None, functions[i] if i < last else None)
                for i, each in enumerate(terms)
            )
        )
        return Network(layers, tuple(sources) or (Source(IN_MEMORY, _content(layers)),), single=single)

    @staticmethod
    def from_arrays(
        weights: Sequence[npt.ArrayLike],
        biases: Sequence[npt.ArrayLike | None] | None = None,
        *,
        between: str | Sequence[str] = "relu",
        mean: object = None,
        std: object = None,
        eps_space: str = "input",
        threshold: object = None,
        regression: bool = False,
    ) -> Network:
        """From numpy arrays or lists of rows (outputs x inputs), each entry taken at its exact value.

        Args:
            between: the activation between all layers, or a list of them.
            mean, std: an input x is taken to (x - mean)/std first: a number for all entries, or one for each.
            eps_space: where distances are measured: in the space of the ``input``, or the ``normalised`` one.
            threshold: of a single output y, which is class 1 if y > threshold, else class 0 (0 if not said).
            regression: a single output is a number, without classes: for bounds of its Lipschitz constant.
        """
        made = Network.of(
            [exact_matrix(w, f"the weights of layer {i}") for i, w in enumerate(weights)],
            None
            if biases is None
            else [None if b is None else exact_bias(b, f"the bias of layer {i}") for i, b in enumerate(biases)],
            between=between,
        )
        made = made.deciding(threshold, regression=regression)
        return made.after(mean, std).measured_in(check_eps_space(eps_space))


def _begins_with_zeros(matrix: RationalMatrix) -> bool:
    """Whether the first row is zero."""
    floats = matrix.as_floats()
    return not (matrix.numerators if floats is None else floats)[0].any()


def _after_scaling(layers: Sequence[Layer], normalisation: Normalisation) -> Iterator[Layer]:
    """The layers, with one before them that carries the normalisation out (of C·(x - mean), if C is not known)."""
    shape = next(term.map.in_shape for layer in layers for term in layer.terms if term.source == INPUT)
    first = Layer((Term(INPUT, identity(shape)),), None, IDENTITY).behind(normalisation)
    if first is None:
        raise ValueError("an index map takes any factors up")
    yield first
    for layer in layers:
        yield replace(layer, terms=tuple(replace(term, source=term.source + 1) for term in layer.terms))


def _content(
    layers: Sequence[Layer], input_scale: UncertainScale | None = None, normalisation: Normalisation | None = None
) -> str:
    """A hash of the exact numbers and of the names of the activations."""
    digest = hashlib.sha256()

    def add(name: str, numbers: RationalMatrix | None) -> None:
        """As floats, if all of them are; else in lowest terms, together. How they are held makes no difference."""
        if numbers is None:
            digest.update(f"{name} none;".encode())
            return
        if (floats := numbers.as_floats()) is not None:
            digest.update(f"{name} {numbers.shape} floats:".encode() + (floats + 0.0).astype("<f8").tobytes())
            return
        listed, denominator = numbers.numerators.ravel().tolist(), numbers.denominator
        if (common := gcd(denominator, *listed)) > 1:
            listed, denominator = [x // common for x in listed], denominator // common
        digest.update(f"{name} {numbers.shape} {denominator:x}: {' '.join(map(hex, listed))};".encode())

    def add_uncertain(name: str, uncertain: UncertainScale | None) -> None:
        if uncertain is not None:
            least = uncertain.least
            add(f"{name} {least.numerator:x}/{least.denominator:x}", uncertain.offset)

    if normalisation is not None:
        add("mean", normalisation.mean)
        add("factor", normalisation.factor)
    add_uncertain("entrance", input_scale)
    for index, layer in enumerate(layers):
        for term in layer.terms:
            words, numbers = term.map.identity_parts
            if not layer.is_dense or term.source != index - 1:  # not as in a chain of matrices
                digest.update(f"{len(layer.terms)} terms, from {term.source}:".encode())
            digest.update(b"" if numbers else words.encode())
            for table in numbers:
                add(words, table)
        add("bias", layer.bias)
        add_uncertain("before", layer.before)
        add_uncertain("after", layer.after)
        digest.update(f"{layer.activation and layer.activation.name}|".encode())
    return digest.hexdigest()
