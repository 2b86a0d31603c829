"""A frozen description of a model: normalised inputs, affine layers, activations between them. No files.

Layer l computes activation(W·x + b), the last one W·x + b alone: its outputs are the logits. W is outputs x inputs.
An input of several dimensions is one long vector, its last index running fastest: flattening and reshaping are nothing.

Distances are measured in one of two spaces. In the space of the model's ``input`` (the default) a normalisation of the
inputs is part of the first layer; in the ``normalised`` space it comes before it, and the first layer is the model's.
Either way `layers` is what a distance is about, and the mathematics looks at nothing else.

A model with a single output is one of two here: see `Single`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import gcd, lcm, prod
from typing import Any, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from intervalcert.activations import Activation, activation
from intervalcert.errors import InputError, UsageError, about
from intervalcert.normalisation import Normalisation
from intervalcert.rational import (
    RationalMatrix,
    as_fraction,
    as_row,
    as_rows,
    format_exact,
    is_listed,
    parse_rational,
    plain_array,
    shortest_exact,
)

__all__ = [
    "EPS_SPACES",
    "IN_MEMORY",
    "EpsSpace",
    "Layer",
    "Network",
    "Shrinkage",
    "Single",
    "Source",
    "check_eps_space",
    "exact_bias",
    "exact_matrix",
    "read_single",
]

T = TypeVar("T")

EpsSpace = Literal["input", "normalised"]
EPS_SPACES: tuple[EpsSpace, ...] = ("input", "normalised")

IN_MEMORY = "(in memory)"
"""The name of the source of a network that came from no file."""


MAX_CLASSES = 1_024
"""Margins are kept for each pair of classes: half a million pairs are the limit."""

MAX_LAYERS = 1_024
"""Much is computed for each of them, however small they are."""

MAX_ENTRIES = 2**26
"""Weights of one layer. As exact integers they take some 40 bytes each."""

MAX_THRESHOLD_BITS = 4_000
"""Of either part of a threshold: files hold it in digits. Those of a float64 have at most 1,075."""


@dataclass(frozen=True)
class Source:
    """Where a model came from: a file's name (without folders) and the sha256 of its bytes."""

    name: str
    sha256: str


@dataclass(frozen=True)
class Shrinkage:
    """Factors that no rational holds, such as the 1/sqrt(variance) of batch normalisation: x -> C·(x + offset).

    C is a diagonal matrix of which is only known that its entries are in [least, 1]. Whatever is proved is proved for
    every such C. offset: one column, or None for zero.
    """

    offset: RationalMatrix | None
    least: Fraction


@dataclass(frozen=True)
class Layer:
    """weights: outputs x inputs; bias: one column, or None for zero; activation: None after the last layer.

    before, after: shrinkages of W·x, before the bias is added, and of what the activation gives.
    """

    weights: RationalMatrix
    bias: RationalMatrix | None
    activation: Activation | None
    before: Shrinkage | None = None
    after: Shrinkage | None = None

    def __repr__(self) -> str:
        rows, columns = self.weights.shape
        name = "none" if self.activation is None else self.activation.name[:60]
        return f"<Layer of {rows} x {columns} weights, bias {'yes' if self.columns else 'no'}, activation {name}>"

    @property
    def columns(self) -> tuple[RationalMatrix, ...]:
        """All that is added anywhere."""
        offsets = (shrinkage.offset for shrinkage in (self.before, self.after) if shrinkage)
        return tuple(column for column in (self.bias, *offsets) if column is not None)

    @property
    def parameters(self) -> int:
        """Numbers in weights and biases."""
        return prod(self.weights.shape) + sum(column.shape[0] for column in self.columns)

    @property
    def least_factor(self) -> Fraction:
        """What the shrinkages leave of a change, at least; 1 if there is none."""
        return prod((shrinkage.least for shrinkage in (self.before, self.after) if shrinkage), start=Fraction(1))

    @property
    def slopes(self) -> tuple[Fraction, Fraction] | None:
        """Ends of all quotients between a change of what the layer gives and of W·x, if it acts entry by entry.

        Those of the activation, times the factors of shrinkages, which bring a slope nearer to zero.
        """
        if self.activation is None or self.activation.slopes is None:
            return None
        low, high = self.activation.slopes
        return min(low, low * self.least_factor), max(high, high * self.least_factor)

    def behind(self, normalisation: Normalisation) -> Layer:
        """The layer that computes of an input what this one does of the normalised input; exactly.

        If the factors are not known exactly, it computes that of C·(x - mean) instead: see `Network.entrance`.
        """
        weights = normalisation.into(self.weights)
        if normalisation.least < 1:
            return replace(self, weights=weights)
        mean = normalisation.mean
        shift = RationalMatrix(-weights.numerators.dot(mean.numerators), weights.denominator * mean.denominator)
        if self.before is None:
            return replace(self, weights=weights, bias=_sum(shift, self.bias))
        return replace(self, weights=weights, before=replace(self.before, offset=_sum(shift, self.before.offset)))


@dataclass(frozen=True)
class Single:
    """How the single output y of a model is read: class 1 if y > threshold, else class 0.

    threshold None: y is a number, and there are no classes (regression).
    The network of such a model has two outputs, the constant threshold (0 without classes) and y. So the lead of class
    1 is y - threshold, the first largest logit is that of class 0 where y <= threshold, y = threshold is a tie, and the
    bound of the one margin is a Lipschitz bound of y: all the mathematics is that of two classes.
    """

    threshold: Fraction | None = Fraction(0)

    def __post_init__(self) -> None:
        x = self.constant
        if max(x.numerator.bit_length(), x.denominator.bit_length()) > MAX_THRESHOLD_BITS:
            raise InputError(f"a threshold whose parts have more than {MAX_THRESHOLD_BITS} bits")

    @property
    def constant(self) -> Fraction:
        """The output beside y."""
        return Fraction(0) if self.threshold is None else self.threshold

    @property
    def text(self) -> str:
        """As files hold it, and `of_text` reads it."""
        return "regression" if self.threshold is None else format_exact(self.threshold)

    @staticmethod
    def of_text(text: str) -> Single:
        with about("how a single output is read"):
            return Single(None if text == "regression" else parse_rational(text))

    def __str__(self) -> str:
        if self.threshold is None:
            return "none, the single output is a number (regression)"
        return f"class 1 if the single output y > {shortest_exact(self.threshold)}, else class 0"


def read_single(layers: tuple[Layer, ...]) -> tuple[tuple[Layer, ...], Single | None]:
    """Layers with a single output as those of two, the threshold 0 and it; others as they are."""
    biases = layers[-1].bias if layers else None
    if not layers or layers[-1].weights.shape[0] != 1 or (biases is not None and biases.shape != (1, 1)):
        return layers, None
    return (*layers[:-1], _beside(Fraction(0), layers[-1])), Single()


def _beside(constant: Fraction, layer: Layer) -> Layer:
    """A layer with a single output, with that constant before it: weights of zeros, and a bias."""
    bias = layer.bias
    if bias is not None or constant:
        own = Fraction(0) if bias is None else bias[0, 0]
        bias = RationalMatrix.from_fractions([[constant], [own]])
    return replace(layer, weights=_arranged(layer.weights, lambda x: np.vstack([np.zeros_like(x), x])), bias=bias)


def _without_first(rows: RationalMatrix) -> RationalMatrix:
    return _arranged(rows, lambda x: x[1:])


def _arranged(matrix: RationalMatrix, arrange: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> RationalMatrix:
    """With its rows arranged anew. Floats stay floats: as integers they would take many times the memory."""
    floats = matrix.as_floats()
    if floats is not None:
        return RationalMatrix.from_floats(arrange(floats))
    return RationalMatrix(arrange(matrix.numerators), matrix.denominator)


def _sum(x: RationalMatrix, y: RationalMatrix | None) -> RationalMatrix:
    if y is None:
        return x
    common = lcm(x.denominator, y.denominator)
    numerators = x.numerators * (common // x.denominator) + y.numerators * (common // y.denominator)
    return RationalMatrix(numerators, common)


def check_eps_space(name: str) -> EpsSpace:
    """Raises: UsageError for a name that is none."""
    for space in EPS_SPACES:
        if name == space:
            return space
    raise UsageError(f"there is no eps space {name!r}: distances are measured in {' or '.join(EPS_SPACES)}")


@dataclass(frozen=True)
class Network:
    """A non-empty chain of layers that fit each other.

    normalisation: what the model does to its inputs first. eps_space: where distances are measured; in the space of the
    ``input`` the normalisation is in layers[0] already, in the ``normalised`` one `entered` carries it out. Either way
    `entrance` comes between them, if the factors of the normalisation are not known exactly.
    shape: of an input, if the model says it. folded: what the model does besides and is in the layers here, for people.
    The numbers of such layers are not those of the file, and a program in floats computes something else.
    single: how the output of a model with a single one is read; None if there is one for each class.

    Invariants, checked on construction: the columns of each layer are the rows of the one before; biases have one entry
    per row; every layer but the last has an activation, the last has none and no shrinkage; at least two outputs;
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
        for index, layer in enumerate(self.layers):
            rows, columns = layer.weights.shape
            if index and columns != self.layers[index - 1].weights.shape[0]:
                raise InputError(
                    f"layer {index} takes {columns} inputs, but layer {index - 1} gives "
                    f"{self.layers[index - 1].weights.shape[0]} outputs (weights are outputs x inputs; the text format "
                    "is written inputs x outputs)"
                )
            for bias in layer.columns:
                if bias.shape != (rows, 1):
                    raise InputError(f"layer {index} has {rows} outputs, but {bias.shape[0]} biases")
            if (layer.activation is None) != (index == len(self.layers) - 1):
                raise InputError(f"layer {index}: every layer but the last has an activation, the last has none")
            for shrinkage in filter(None, (layer.before, layer.after)):
                if layer.activation is None or not 0 < shrinkage.least < 1:
                    raise InputError(f"layer {index}: unknown factors are between 0 and 1, and the last layer has none")
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

    def _is_single(self, single: Single) -> bool:
        last = self.layers[-1]
        constant = Fraction(0) if last.bias is None else last.bias[0, 0]
        floats = last.weights.as_floats()
        first = (last.weights.numerators if floats is None else floats)[0]
        return self.outputs == 2 and not first.any() and constant == single.constant

    def __repr__(self) -> str:
        widths = [str(layer.weights.shape[0]) for layer in self.model_layers]
        shown = widths if len(widths) <= 12 else [*widths[:5], "…", *widths[-5:]]
        names = ", ".join(source.name[:60] for source in self.sources[:2])
        return f"<Network {'-'.join([str(self.inputs), *shown])} from {names}, eps in the {self.eps_space} space>"

    @property
    def inputs(self) -> int:
        return self.layers[0].weights.shape[1]

    @property
    def outputs(self) -> int:
        return self.layers[-1].weights.shape[0]

    @property
    def model_layers(self) -> tuple[Layer, ...]:
        """The layers as the model has them: of a single output without the constant beside it."""
        if self.single is None:
            return self.layers
        *before, last = self.layers
        bias = None if last.bias is None else _without_first(last.bias)
        return (*before, replace(last, weights=_without_first(last.weights), bias=bias))

    def of_weights(self, make: Callable[[RationalMatrix], T]) -> list[T]:
        """What is made of the weights of each layer; of a matrix that several of them share it is made once."""
        made = {key: make(weights) for key, weights in {id(x.weights): x.weights for x in self.layers}.items()}
        return [made[id(layer.weights)] for layer in self.layers]

    @property
    def activations(self) -> tuple[str | None, ...]:
        """The name of each layer's activation; None for the last."""
        return tuple(None if layer.activation is None else layer.activation.name for layer in self.layers)

    @property
    def content(self) -> str:
        """A hash of the exact numbers and functions, whatever file they came from: all that bounds depend on.

        It is of the layers, of the entrance, and in the normalised space of the normalisation before them, too.
        """
        return _content(self.layers, self.entrance, None if self.eps_space == "input" else self.normalisation)

    @cached_property
    def entrance(self) -> Shrinkage | None:
        """What becomes of `entered` inputs before the first layer, if a normalisation has factors not known exactly.

        factor·C·(x - mean) is C·(factor·(x - mean)), all of them being diagonal matrices; and C·(x - mean), with the
        factors in the first layer. No distance grows by C: a Lipschitz constant of the layers is one of the model.
        """
        if self.normalisation is None or self.normalisation.least == 1:
            return None
        mean = self.normalisation.mean
        offset = RationalMatrix(-mean.numerators, mean.denominator) if self.eps_space == "input" else None
        return Shrinkage(offset, self.normalisation.least)

    @property
    def is_exact(self) -> bool:
        """Whether all of its numbers are known exactly; else it is proved for all factors of the shrinkages."""
        return self.entrance is None and not any(layer.before or layer.after for layer in self.layers)

    def entered(self, inputs: RationalMatrix) -> RationalMatrix:
        """What the first layer gets of inputs of the model, one per column; exactly, and before the `entrance`."""
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
        layers = (self.layers[0].behind(self.normalisation), *self.layers[1:])
        folded = dict.fromkeys((*self.folded, "the normalisation of its inputs"))
        return replace(self, layers=layers, eps_space="input", folded=tuple(folded))

    def after(self, mean: object, std: object) -> Network:
        """The model with a normalisation before it, in whose space distances are then measured.

        Each is a number, a list with one for each input, or for images one for each channel, as `rational.as_fraction`
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

        threshold: as `rational.as_fraction` reads it. Raises: InputError if there are several outputs.
        """
        if threshold is None and not regression:
            return self
        if threshold is not None and regression:
            raise UsageError("a threshold makes classes, and regression has none: give one or the other")
        if self.single is None:
            what = "regression" if regression else "a threshold"
            raise InputError(f"{what} is for a model with a single output, and this one has {self.outputs}")
        with about("the threshold"):
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
        if biases is not None and len(biases) != len(weights):
            raise InputError(f"{len(weights)} layers, but {len(biases)} bias vectors: there must be one per layer")
        last = max(len(weights) - 1, 0)
        listed = isinstance(between, list | tuple)
        functions = [activation(x) for x in between] if listed else [activation(str(between))] * last
        if len(functions) != last:
            raise InputError(f"{last + 1} layers, but {len(functions)} activations: there must be one between any two")
        layers, single = read_single(
            tuple(
                Layer(w, biases[i] if biases is not None else None, functions[i] if i < last else None)
                for i, w in enumerate(weights)
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


def exact_matrix(values: npt.ArrayLike, what: str) -> RationalMatrix:
    """A two-dimensional array of finite floats (16, 32, 64 bits) or integers, or a list of rows, as exact rationals."""
    array = plain_array(values)
    if array is None:
        return RationalMatrix.from_fractions(as_rows(values, what))
    if array.dtype.kind not in "fiu" or array.dtype.itemsize > 8:
        raise InputError(f"{what}: numbers of type {array.dtype} (float16, float32, float64 or integers are read)")
    if array.ndim != 2 or 0 in array.shape:
        raise InputError(f"{what}: an array of shape {array.shape} where a non-empty matrix is expected")
    if array.size > MAX_ENTRIES:
        raise InputError(f"{what}: {array.size} numbers; at most {MAX_ENTRIES} are held as exact ones")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        row, column = np.argwhere(~np.isfinite(array))[0]
        raise InputError(f"{what}: {array[row, column]} in row {row}, column {column}; every number must be finite")
    return RationalMatrix.from_floats(array)


def exact_bias(values: npt.ArrayLike, what: str) -> RationalMatrix:
    """A vector of biases as one exact column."""
    array = plain_array(values)
    if array is None:
        return RationalMatrix.from_fractions([as_row(values, what)]).transposed()
    if array.ndim != 1:
        raise InputError(f"{what}: an array of shape {array.shape} where a vector is expected")
    return exact_matrix(array[:, None], what)


def _content(
    layers: Sequence[Layer], entrance: Shrinkage | None = None, normalisation: Normalisation | None = None
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

    def add_shrinkage(name: str, shrinkage: Shrinkage | None) -> None:
        if shrinkage is not None:
            least = shrinkage.least
            add(f"{name} {least.numerator:x}/{least.denominator:x}", shrinkage.offset)

    if normalisation is not None:
        add("mean", normalisation.mean)
        add("factor", normalisation.factor)
    add_shrinkage("entrance", entrance)
    for layer in layers:
        add("weights", layer.weights)
        add("bias", layer.bias)
        add_shrinkage("before", layer.before)
        add_shrinkage("after", layer.after)
        digest.update(f"{layer.activation and layer.activation.name}|".encode())
    return digest.hexdigest()
