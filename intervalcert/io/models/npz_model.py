"""Our own model file, a numpy archive (``.npz``): read, and written by ``intervalcert convert``.

W0, W1, … (outputs x inputs) and b0, b1, …; everything else may be missing. ``terms``, for what is no chain of
matrices: a text for each layer, with a line for each of its terms (`npz_terms`); W3 and I3 are then of the first term
of layer 3, W3_1 and I3_1 of the second; a bias may have one entry for each channel. ``activations``, a name between any
two layers; ``mean`` and ``factor`` (1/std) of the inputs, ``factor_least`` if the factors are not known exactly
(`normalisation`; without ``factor`` they are in the first layer already); ``before0``, ``before_least0``, ``after0``,
``after_least0``, … of layers with such factors (`UncertainScale`); ``shape`` of an input; ``folded``, names of what
was no layer; ``single``, how a single output is read: its threshold, or ``regression`` (`single.Single`). Numbers
that are no floats are written as texts: ``1/3``, ``5*2^-200``.
"""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from math import prod
from pathlib import Path
from string import ascii_letters
from typing import Any

import numpy as np
import numpy.typing as npt

from intervalcert.errors import InputError, error_context
from intervalcert.io.array_archive import Arrays, read_arrays, write_arrays
from intervalcert.io.files import atomic_writer
from intervalcert.io.models.interface import Hints, Reading
from intervalcert.io.models.npz_terms import MAX_TERMS, read_term, term_arrays, term_words
from intervalcert.io.models.numpy_files import MAX_TEXT
from intervalcert.io.models.tensors import FREE_NUMBERS, Budget, Tensor
from intervalcert.io.models.text import read_biases
from intervalcert.model.arrays import exact_bias, exact_matrix
from intervalcert.model.layers import Layer, Term, UncertainScale
from intervalcert.model.linear_maps import Dense, IndexMap, Shape
from intervalcert.model.network import MAX_LAYERS, Network
from intervalcert.model.normalisation import Normalisation
from intervalcert.model.single import Single
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.parsing import parse_rational
from intervalcert.numbers.text import format_exact

__all__ = ["read", "write_network"]

_MEMBER = re.compile(
    r"(?:(?:[WI](?:0|[1-9]\d{0,3})(?:_[1-9]\d?)?|(?:b|(?:before|after)(?:_least)?)(?:0|[1-9]\d{0,3}))"
    r"|terms|activations|mean|factor(?:_least)?|shape|folded|single)\.npy"
)
_MAX_BITS = 14_000
"""Of integers that Python writes in digits."""


def read(path: Path, hints: Hints) -> Reading:
    """The network in an archive."""
    arrays = read_arrays(path, _refused, texts=True, origin=hints.origin)
    return Reading(_network(arrays, path, hints))


def _refused(member: str) -> str | None:
    return None if _MEMBER.fullmatch(member) else "only W0, W1, … and b0, b1, … are understood"


def _network(arrays: Arrays, path: Path, hints: Hints) -> Network:
    budget = Budget()
    terms = _terms(arrays, path, budget) if "terms" in arrays else _matrices(arrays, path, budget)
    for name in arrays:
        index = name.lstrip(ascii_letters + "_").partition("_")[0]
        if index and int(index) >= len(terms):
            raise InputError(f"{path} has {name}, but no layer W{index}")
    biases: list[RationalMatrix | None] | None = [
        _column(arrays.get(f"b{i}"), f"{path}: the bias b{i}", budget, each[0].map.out_shape)
        for i, each in enumerate(terms)
    ]
    if hints.biases is not None:
        if any(bias is not None for bias in biases or ()):
            raise InputError(
                f"{path} has biases of its own, so {hints.biases} would replace them: give one or the other"
            )
        biases = read_biases(hints.biases)
    between: str | list[str] = hints.between
    if "activations" in arrays:
        if hints.activation is not None:
            raise InputError(f"{path} names its activations itself: leave --activation out")
        between = _texts(arrays["activations"], f"{path}: activations")
    made = Network.of_terms(terms, biases, between=between, sources=())
    network = _decided(made, arrays.get("single"), path, hints)
    shape = arrays.get("shape")

    def uncertain(name: str, index: int) -> UncertainScale | None:
        return _uncertain_scale(name, index, arrays, path, budget)

    return replace(
        network,
        layers=tuple(
            replace(layer, before=uncertain("before", i), after=uncertain("after", i))
            for i, layer in enumerate(network.layers)
        ),
        sources=(),
        **_normalised(arrays, path, network.inputs, budget),
        shape=None if shape is None else tuple(_sizes(shape, f"{path}: shape")),
        folded=tuple(_texts(arrays["folded"], f"{path}: folded")) if "folded" in arrays else (),
    )


def _matrices(arrays: Arrays, path: Path, budget: Budget) -> list[tuple[Term, ...]]:
    """A chain of matrices."""
    count = sum(name[0] == "W" for name in arrays)
    if not count or not all(f"W{i}" in arrays for i in range(count)):
        have = ", ".join(name for name in arrays if name[0] == "W") or "no weights"
        raise InputError(f"{path} must contain W0, W1, … without gaps, but has {have}")
    if beside := next((name for name in arrays if name[0] == "I"), None):
        raise InputError(f"{path} has {beside}, but no terms that say what it is of")
    weights = (_exact(arrays[f"W{i}"], f"{path}: W{i}", budget) for i in range(count))
    return [(Term(i - 1, Dense(w)),) for i, w in enumerate(weights)]


def _terms(arrays: Arrays, path: Path, budget: Budget) -> list[tuple[Term, ...]]:
    """A graph. Arrays that no term asks for are refused."""
    texts = _texts(arrays["terms"], f"{path}: terms")
    if len(texts) > MAX_LAYERS:
        raise InputError(f"{path} has {len(texts)} layers; at most {MAX_LAYERS} are bounded")
    asked: set[str] = set()

    def term(line: str, place: str) -> Term:
        def numbers() -> RationalMatrix | None:
            asked.add(f"W{place}")
            found = arrays.get(f"W{place}")
            if found is not None and found.ndim == 1:  # factors
                return _column(found, f"{path}: W{place}", budget)
            return None if found is None else _exact(found, f"{path}: W{place}", budget)

        def index() -> npt.NDArray[Any] | None:
            asked.add(f"I{place}")
            return arrays.get(f"I{place}")

        with error_context(f"{path}: layer {place.partition('_')[0]}"):
            return read_term(line, numbers, index)

    found = []
    for layer, text in enumerate(texts):
        lines = text.split("; ")
        if len(lines) > MAX_TERMS:
            raise InputError(f"{path}: layer {layer} has {len(lines)} terms; at most {MAX_TERMS} are read")
        found.append(tuple(term(line, f"{layer}_{k}" if k else str(layer)) for k, line in enumerate(lines)))
    unasked = next((name for name in arrays if name[0] in "WI" and name not in asked), None)
    if unasked is not None:
        raise InputError(f"{path} has {unasked}, but no term that it is of")
    return found


def _decided(network: Network, array: npt.NDArray[Any] | None, path: Path, hints: Hints) -> Network:
    """The network with its single output read as the file says, if it does."""
    if array is None:
        return network
    if hints.says_single:
        raise InputError(f"{path} says itself how its output is read: leave --threshold and --regression out")
    with error_context(f"{path}: single"):
        texts = _texts(array, "what it says")
        if len(texts) != 1:
            raise InputError(f"{len(texts)} texts, where a threshold is expected, or 'regression'")
        single = Single.of_text(texts[0])
        return network.deciding(single.threshold, regression=single.threshold is None)


def _uncertain_scale(name: str, index: int, arrays: Arrays, path: Path, budget: Budget) -> UncertainScale | None:
    least = _column(arrays.get(f"{name}_least{index}"), f"{path}: {name}_least{index}", budget)
    offset = _column(arrays.get(f"{name}{index}"), f"{path}: {name}{index}", budget)
    if least is None:
        if offset is not None:
            raise InputError(f"{path} has {name}{index}, but no {name}_least{index}")
        return None
    return UncertainScale(offset, _single(least, f"{path}: {name}_least{index}"))


def _normalised(arrays: Arrays, path: Path, inputs: int, budget: Budget) -> dict[str, Any]:
    """Without ``factor`` the factors are in the first layer, and distances are those of the inputs."""
    names = ("mean", "factor", "factor_least")
    mean, factor, least = (_column(arrays.get(name), f"{path}: {name}", budget) for name in names)
    if mean is None and factor is None and least is None:
        return {}
    known = Fraction(1) if least is None else _single(least, f"{path}: factor_least")
    if mean is None or (factor is None and known == 1):
        raise InputError(f"{path} must have a mean and a factor of the inputs, or neither")
    if factor is not None:
        made = Normalisation(mean, factor, known)
        return {} if made.is_identity and made.inputs == inputs else {"normalisation": made, "eps_space": "normalised"}
    return {"normalisation": Normalisation(mean, _ones(inputs), known)}


def _ones(count: int) -> RationalMatrix:
    return RationalMatrix.from_floats(np.ones((count, 1)))


def _single(column: RationalMatrix, what: str) -> Fraction:
    if column.shape != (1, 1):
        raise InputError(f"{what} is one number")
    return column[0, 0]


def _texts(array: npt.NDArray[Any], where: str) -> list[str]:
    if array.dtype.kind != "S" or array.ndim != 1:
        raise InputError(f"{where}: a list of names is expected")
    try:
        return [item.decode("ascii") for item in array.tolist()]
    except UnicodeDecodeError:
        raise InputError(f"{where}: a name that is not ASCII") from None


def _sizes(array: npt.NDArray[Any], where: str) -> list[int]:
    if array.dtype.kind not in "iu" or array.ndim != 1 or (array < 1).any():
        raise InputError(f"{where}: a list of sizes is expected")
    return [int(x) for x in array.tolist()]


def _exact(array: npt.NDArray[Any], where: str, budget: Budget) -> RationalMatrix:
    if array.dtype.kind != "S":
        return exact_matrix(array, where)
    if array.ndim != 2:
        raise InputError(f"{where}: an array of shape {array.shape} where a non-empty matrix is expected")
    try:
        listed = array.ravel().tolist()
        of_each = {item: parse_rational(item.decode("ascii")) for item in set(listed)}
        return Tensor.of_fractions([of_each[item] for item in listed], array.shape, budget).matrix()
    except (InputError, UnicodeDecodeError) as error:
        raise InputError(f"{where}: {error}") from None


def _column(
    array: npt.NDArray[Any] | None, where: str, budget: Budget, shape: Shape | None = None
) -> RationalMatrix | None:
    """shape: of an array whose channels may have one number each."""
    if array is None:
        return None
    if array.ndim != 1:
        raise InputError(f"{where}: an array of shape {array.shape} where a vector is expected")
    if shape is not None and len(shape) > 1 and array.shape == (shape[0],) != (prod(shape),):
        budget.spend(shape, 64)
        array = np.repeat(array, prod(shape[1:]))
    return exact_bias(array, where) if array.dtype.kind != "S" else _exact(array[:, None], where, budget)


# -- writing ---------------------------------------------------------------------------------------------------------


def write_network(network: Network, path: Path) -> None:
    """Writes the exact network; `read` gives the same one back. The same network gives the same bytes."""
    if path.suffix.lower() != ".npz":
        raise InputError(f"{path}: a network is written as .npz; choose that ending")
    arrays: Arrays = {}
    if not network.is_dense:
        lines = ["; ".join(map(term_words, layer.terms)) for layer in network.model_layers]
        arrays["terms"] = np.array([line.encode() for line in lines])
    for index, layer in enumerate(network.model_layers):
        for k, term in enumerate(layer.terms):
            place = f"{index}_{k}" if k else str(index)
            numbers, indices = term_arrays(term.map)
            if numbers is not None:
                made = _array(numbers, f"the weights of layer {index}")
                arrays[f"W{place}"] = made[:, 0] if isinstance(term.map, IndexMap) else made
            if indices is not None:
                arrays[f"I{place}"] = indices
        if layer.bias is not None:
            arrays[f"b{index}"] = _per_channel(_array(layer.bias, f"the bias of layer {index}")[:, 0], layer)
        for name, uncertain in (("before", layer.before), ("after", layer.after)):
            if uncertain is not None:
                arrays[f"{name}_least{index}"] = np.array([format_exact(uncertain.least).encode()])
                if uncertain.offset is not None:
                    arrays[f"{name}{index}"] = _array(uncertain.offset, f"the offsets of layer {index}")[:, 0]
    names = [name.encode() for name in network.activations if name is not None]
    if names:
        arrays["activations"] = np.array(names)
    normalisation = network.normalisation
    if normalisation is not None and (network.eps_space == "normalised" or network.uncertain_input_scale is not None):
        arrays["mean"] = _array(normalisation.mean, "the mean")[:, 0]
        if network.eps_space == "normalised":
            arrays["factor"] = _array(normalisation.factor, "the factors 1/std")[:, 0]
        if network.uncertain_input_scale is not None:
            arrays["factor_least"] = np.array([format_exact(normalisation.least).encode()])
    if network.shape is not None:
        arrays["shape"] = np.array(network.shape, dtype=np.int64)
    if network.folded:
        arrays["folded"] = np.array([what.encode() for what in network.folded])
    if network.single is not None:
        arrays["single"] = np.array([network.single.text.encode()])
    # Large ones are not compressed: a compressed file is not believed to hold too many numbers.
    large = sum(array.size for array in arrays.values()) > FREE_NUMBERS
    with atomic_writer(path) as file:
        write_arrays(file, arrays, compressed=not large)


def _per_channel(bias: npt.NDArray[Any], layer: Layer) -> npt.NDArray[Any]:
    """One number for each channel, if that says it all."""
    shape = layer.inner_shape
    grid = bias.reshape(shape[0], -1)
    is_repeated = len(shape) > 1 and grid.shape[1] > 1 and bool((grid == grid[:, :1]).all())
    return grid[:, 0] if is_repeated else bias


def _array(data: RationalMatrix, what: str) -> npt.NDArray[Any]:
    """The smallest type of floats that holds all the numbers exactly, else texts."""
    values = data.as_floats()
    if values is not None:
        with np.errstate(over="ignore", under="ignore"):
            for kind in (np.float16, np.float32):
                if np.array_equal(values.astype(kind).astype(np.float64), values):
                    return values.astype(kind)
        return values
    of_each = {x: _text(Fraction(x, data.denominator), what) for x in set(data.numerators.ravel().tolist())}
    return np.array([[of_each[x] for x in row] for row in data.numerators.tolist()])


def _text(x: Fraction, what: str) -> bytes:
    """As `read` reads it."""
    if max(x.numerator.bit_length(), x.denominator.bit_length()) < _MAX_BITS:
        text = format_exact(x)
        try:
            if len(text) <= MAX_TEXT and parse_rational(text) == x:
                return text.encode()
        except InputError:
            pass
    raise InputError(f"{what} are rationals that are too long to be written")
