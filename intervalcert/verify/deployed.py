"""The network as it is deployed: in floats of some format, summed in an order that nobody knows.

Let N be the network over the reals and N̂ the program: the same weights, which are numbers of the format; every layer
one sum of the products of all its terms and of its bias, in any order, with or without FMA, the bias anywhere in the
sum; inputs u that the format can represent. With u the unit roundoff, η the smallest number, n products in each sum,
and κ = (1 + u)^(n+1) - 1, each output of a layer is off from W·ĥ + b by at most

    κ·(|W||ĥ| + |b|) + n·(η/2)·(1 + κ)        (Higham, Accuracy and Stability of Numerical Algorithms, 3.1 and 4.2:
                                               a term meets one product and at most n sums; products may underflow)

as long as nothing overflows: no partial sum exceeds (1 + κ)·(|W||ĥ| + |b|) + n·(η/2)·(1 + κ).

What is n? Whatever adds up n products and a bias, two at a time, is a tree with n + 1 leaves, none of which is deeper
than n: it makes no difference whether each term of the layer is summed up first, nor in which order they are added.
    a matrix          its inputs
    a convolution     channels of a group · places of the window. Zeros that pad are multiplied and added exactly.
    an index map      one, with or without a factor: the factors are weights, numbers of the format as all others
    several terms     n is the sum of theirs; |W||ĥ| is that of |W_k||ĥ_k|, and ||W_k·x|| as of one matrix in pieces
    copies            a layer that only puts numbers to their places (a concatenation, the identity) is exact: n = κ = 0
    a mean            over k places, each of which is multiplied by 1/c (c = k, but for odd paddings): a program adds up
                      and divides by c, or multiplies with a rounded 1/c, the sum or each number. Its 1/c is no number
                      of the format: N has the true one, and its rounding is one more for each product; n = k, and
                      beside a bias n + 2 in the place of n + 1 (without one there is a sum less). The division
                      underflows as a product does. But the sums before it are c times as large, and may overflow: the
                      bound of partial sums above, times c, must not. (c is at most 2^bits: it is a number of the
                      format, and its reciprocal is not subnormal.)
Whatever computes other sums of other products is excluded: the convolutions of Winograd and of Fourier, Strassen's
matrix products, means of means; TF32 is another format, and flushing subnormal numbers to zero another arithmetic.

For all inputs u within eps of v at once: let h_l be the values of N after layer l, ĥ_l those of N̂, and Σ the sum over
the terms k of a layer, each of which takes what its source gives, layer l_k. (Over the reals terms of one source may be
added up to one, and ||W_k|| is the norm of that; what a program rounds are the terms.)
    ||h_l(u) - h_l(v)|| <= s_l·eps,       s_0 = 1, s_l = b_l·min(Σ ||W_k||·s_{l_k}, sqrt(σ_l))     (σ_l of the chain)
    ||ĥ_l(u) - h_l(u)|| <= D_l,           D_0 = 0,
    D_l = b_l·(Σ ||W_k||·D_{l_k} + ||local error||) + ||error of the activation||
    Σ |W_k||ĥ_{l_k}| <= Σ |W_k||h_{l_k}(v)| + Σ |W_k||ĥ_{l_k} - h_{l_k}(v)|
where the last term has at most the norm Σ || |W_k| ||·(s_{l_k}·eps + D_{l_k}), and in row i Σ ||W_k[i]||·(…). Of terms
that reach different outputs, as in a concatenation, Σ ||W_k||·… is the root of the sum of squares instead.
b_l is the Lipschitz constant of the activation: that of a maximum over windows that overlap is more than 1.
So D_l, and every other error, is a linear function of eps, D_l = α_l + β_l·eps, in which α depends on v and β does not.
The lead of j over i in N̂ at u is positive if, with the rows' errors e_i,

    N(v)_j - N(v)_i  >  eps·L[i][j] + ||W_n[j] - W_n[i]||·D_{n-1} + e_i + e_j,

which holds for all eps below a quotient. All of it is computed in float64, in sums and products of non-negative numbers
which are enlarged by more than their rounding (`upward`).

What an activation adds to that it says itself (`Activation.float_error`): ReLU, identity, hard_tanh, clip, sorting and
maxima nothing, for they compare and copy; leaky_relu one more product. Others are refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from operator import add
from typing import Any

import numpy as np

from intervalcert.backends.protocol import Backend, Floats, Indices
from intervalcert.bounds.norm_bounds import Plan, layer_bound
from intervalcert.errors import InputError, SoundnessError
from intervalcert.model.activations import FloatError
from intervalcert.model.evaluation import Evaluator
from intervalcert.model.layers import INPUT, Layer, Term, are_apart
from intervalcert.model.linear_maps import MAX_MEAN, Convolution, Dense, FloatMap, IndexMap, LinearMap
from intervalcert.model.network import Network
from intervalcert.numbers.float_environment import arithmetic_fault, product_fault
from intervalcert.numbers.float_formats import FloatFormat
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.rounding import float_enclosure, float_near, sqrt_upper
from intervalcert.numbers.text import shortest_exact
from intervalcert.numbers.upward import ETA, enlarged, float_up, norms_up

__all__ = ["Deployment", "Deviation", "Extent", "as_deployed", "too_coarse"]

_quietly = np.errstate(all="ignore")
"""For methods in which numbers may overflow: what is infinite or not a number certifies nothing."""


def as_deployed(network: Network, form: FloatFormat) -> Network:
    """The network whose weights, biases and slopes are rounded to the format: the one that is run. Means stay means.

    Raises: InputError for a number beyond the format, an activation or a map whose rounding is not known, or a model
    that does more than its layers: normalises, or had something folded into them.
    """
    folded = (*network.folded, *(("the normalisation of its inputs",) if network.normalisation else ()))
    folded += () if network.is_exact else ("roots",)
    if folded:
        raise InputError(
            f"how the program computes {folded[0]} in {form.name} is not known, so it cannot be certified as deployed: "
            "certify the model over the reals, or export one that consists of its layers alone"
        )
    if len(network.layers[-1].branches) > 1:
        raise InputError("a last layer with several branches is not certified as deployed: put a layer after it")
    threshold = Fraction(0) if network.single is None else network.single.constant
    if form.rounded(RationalMatrix.from_fractions([[threshold]]), "the threshold")[0, 0] != threshold:
        raise InputError(
            f"the threshold {shortest_exact(threshold)} is not a number of {form.name}: the program compares with "
            "another one; say which (--threshold)"
        )
    layers = []
    for index, layer in enumerate(network.layers):
        terms = (Term(term.source, _in_format(term.map, form, index)) for term in layer.terms)
        bias = None if layer.bias is None else form.rounded(layer.bias, f"the bias of layer {index}")
        function = None if layer.activation is None else layer.activation.in_format(form, f"layer {index}")
        layers.append(Layer(tuple(terms), bias, function))
    return Network(tuple(layers), network.sources, single=network.single)


def too_coarse(network: Network, form: FloatFormat) -> str | None:
    """Why nothing can be certified in this format; None if that is not so."""
    for index, layer in enumerate(network.layers):
        inputs = _summands(layer)
        if _is_too_wide(inputs, form):
            return (
                f"layer {index} has {inputs} inputs: {form.name}, with {form.bits} bits, is too coarse to say anything "
                "of sums of so many terms, and nothing is certified"
            )
    return None


def _kappa(terms: int, unit: Fraction) -> Fraction:
    """(1 + u)^terms - 1; or, where that has too many digits, x/(1 - x/2) >= e^x - 1 >= it, for x = terms·u < 2."""
    x = terms * unit
    return (1 + unit) ** terms - 1 if terms < 10_000 else x / (1 - x / 2)


def _in_format(linear: LinearMap, form: FloatFormat, index: int) -> LinearMap:
    """The map that a program has: a mean, or one with rounded numbers. Raises: InputError if that is not known."""
    count = _mean_over(linear)
    if count is None:
        return linear.rounded(form, f"the weights of layer {index}")
    is_power = count.bit_count() == 1
    if count > (form.largest if is_power else 2**form.bits):  # is it a number of the format?
        raise InputError(f"layer {index}: how a mean over {count} numbers is rounded in {form.name} is not known")
    if isinstance(linear, Convolution) and _are_all_equal(linear.kernel):
        return replace(linear, is_mean=True)
    if not is_power:  # 1/c is no float: this was a mean, before something else was made of it
        raise InputError(
            f"layer {index}: a mean over {count} numbers that is part of another map is not certified as deployed"
        )
    return linear.rounded(form, f"the weights of layer {index}")


def _mean_over(linear: LinearMap) -> int | None:
    """The c of a map with 1/c or -1/c everywhere, or zeros; 1 < c <= MAX_MEAN whole. None of another map.

    Whoever has lost that it is a mean (`Convolution.is_mean`) has one nevertheless: as a matrix, if its window is all
    of an image; with zeros, if it is of some channels; negative, if it is subtracted. And a map whose weights happen to
    be such numbers is none the worse for it: the bounds of a mean hold for its program, too.
    Raises: InputError for what is said to be a mean and has other numbers.
    """
    is_mean = isinstance(linear, Convolution) and linear.is_mean
    if isinstance(linear, Dense | Convolution):
        weight = _only_weight(linear.matrix if isinstance(linear, Dense) else linear.kernel)
        if weight is not None and weight.numerator == 1 and (is_mean or 1 < weight.denominator <= MAX_MEAN):
            return weight.denominator
    if is_mean:
        raise InputError("a mean of numbers that do not count alike")
    return None


def _only_weight(numbers: RationalMatrix) -> Fraction | None:
    """The size that all numbers have, or they are zero; None if there are several sizes, or none."""
    entries = abs(_entries(numbers))
    places = np.flatnonzero(entries)
    if not len(places) or (entries[places] != entries[places[0]]).any():
        return None
    row, column = divmod(int(places[0]), numbers.shape[1])
    return abs(numbers[row, column])


def _are_all_equal(numbers: RationalMatrix) -> bool:
    entries = _entries(numbers)
    return bool((entries == entries[0]).all())


def _entries(numbers: RationalMatrix) -> Any:
    """All of them in a row: floats where they are floats, else integers over one denominator."""
    floats = numbers.as_floats()
    return (numbers.numerators if floats is None else floats).ravel()


def _is_copy(layer: Layer) -> bool:
    """Whether a program computes nothing: all that the layer does is to put numbers to their places."""
    maps = [term.map for term in layer.terms]
    copies = (isinstance(each, IndexMap) and each.factors is None for each in maps)
    return layer.bias is None and all(copies) and are_apart(maps)


def _summands(layer: Layer) -> int:
    """The most products that one of its outputs is a sum of; none if nothing is computed."""
    return 0 if _is_copy(layer) else sum(term.map.summands for term in layer.terms)


def _roundings(layer: Layer) -> int:
    """The most roundings that a product of a layer meets, its own among them."""
    if _is_copy(layer):
        return 0
    # A mean's sum has one rounding less than a sum of products; then 1/c and the product with it, or the quotient, have
    # two at the most, and none but underflow if c is a power of two; and then a bias has one.
    counts = [_mean_over(term.map) or 1 for term in layer.terms]
    beside_a_bias = layer.bias is not None and any(count.bit_count() > 1 for count in counts)
    return _summands(layer) + (2 if beside_a_bias else 1)


def _gathered(layer: Layer) -> int:
    """By what the sums of a program may exceed what they are about: a mean is divided at the end."""
    return max(_mean_over(term.map) or 1 for term in layer.terms)


def _is_too_wide(inputs: int, form: FloatFormat) -> bool:
    return inputs * form.unit >= 1


def _floats(data: RationalMatrix) -> Floats:
    """The very numbers. Requires: they are floats, as those of a deployed network are."""
    near = data.near_floats()
    if near.exact and not near.exponent:
        return near.values
    rows, columns = data.shape
    return np.array([[float(data[i, j]) for j in range(columns)] for i in range(rows)])


def _gaps(head: RationalMatrix) -> Floats:
    """Floats above the distances of its rows."""
    if head.as_floats() is not None:
        last = _floats(head)
        # Each difference is off by u: what `norms_up` is enlarged by outweighs that.
        return np.stack([norms_up(row - last, axis=1) for row in last])
    numerators, denominator = head.numerators.tolist(), head.denominator
    last = np.array([[float_near(x, denominator) for x in row] for row in numerators])
    off = norms_up(last, axis=1) * 2.0**-52  # each number is off by u: twice that, of the whole row
    return np.stack([enlarged(norms_up(row - last, axis=1) + off + more) for row, more in zip(last, off, strict=True)])


def _roots_up(squares: RationalMatrix) -> Floats:
    """Floats above the roots of a column."""
    numerators, denominator = squares.numerators[:, 0].tolist(), squares.denominator
    roots = {x: float_up(sqrt_upper(Fraction(x, denominator), 64)) for x in set(numerators)}
    return np.array([roots[x] for x in numerators])


@dataclass(frozen=True, eq=False)
class Extent:
    """How large the values at v are, for p points: bounds of |W||h| + |b| of each layer, entry by entry (rows x p)."""

    rows: tuple[Floats, ...]


@dataclass(frozen=True, eq=False)
class Deviation:
    """How far the program can be from the reals, for p points: errors base + eps·slope of the logits.

    own: of each logit by itself, at v (classes x p); own_slope: per eps (classes).
    shared, shared_slope: of the input of the last layer; it counts times ||W[j] - W[i]||.
    most: the eps up to which nothing overflows (p).
    """

    own: Floats
    own_slope: Floats
    shared: Floats
    shared_slope: float
    most: Floats


def _check_arithmetic() -> None:
    """Raises: SoundnessError if float64 is not to be trusted in this process."""
    fault = arithmetic_fault() or product_fault()
    if fault is not None:
        raise SoundnessError(f"float64 arithmetic cannot be trusted in this process: {fault}")


class Deployment:
    """What all points share: norms of the layers and of their absolute values, and the format's constants."""

    @_quietly
    def __init__(
        self,
        network: Network,
        norms: Sequence[Fraction],
        sigmas: Sequence[Fraction],
        form: FloatFormat,
        ladder: Sequence[Backend[Any]],
    ) -> None:
        """network: as deployed. norms: bounds of its branches. sigmas: of its layers, if it is a chain; or none.

        If the format is too coarse (`too_coarse`) the errors are infinite, and nothing is certified.
        Raises: SoundnessError if float64 is not to be trusted in this process.
        """
        _check_arithmetic()
        self.network, self.form = network, form
        layers = zip(network.layers, network.by_layer(norms), strict=True)
        self._layers = [_Constants.of(layer, each, form, ladder) for layer, each in layers]
        self._reach = self._reaches(sigmas)
        (head,) = network.head
        self.gaps: Floats = _gaps(head)

    def __setstate__(self, state: dict[str, Any]) -> None:
        """What arrives in another process tests that process. Raises: as `__init__`."""
        _check_arithmetic()
        self.__dict__.update(state)

    def _reaches(self, sigmas: Sequence[Fraction]) -> dict[int, float]:
        """The s of what each layer gives, by the layer's index, and of the input."""
        found = {INPUT: 1.0}
        for index, constants in enumerate(self._layers[:-1]):
            inner = float(enlarged(constants.stretched(found), constants.sums))
            if index < len(sigmas):
                inner = min(inner, math.sqrt(float_up(sigmas[index])))  # a root is off by u: the next line covers it
            found[index] = float(enlarged(constants.lipschitz * inner))
        return found

    @_quietly
    def extent_at(self, inputs: tuple[Floats, Floats], before: Sequence[tuple[Floats, Floats]]) -> Extent:
        """At points: ends of the inputs, and of W·h + b of each layer (rows x p)."""
        sizes = {INPUT: np.maximum(-inputs[0], inputs[1])}
        rows = []
        for index, (constants, layer) in enumerate(zip(self._layers, self.network.layers, strict=True)):
            total = reduce(add, (term.magnitudes(sizes[term.source]) for term in constants.terms))
            summed = sum(len(sizes[term.source]) for term in constants.terms)
            rows.append(enlarged(total + constants.bias, summed))
            if layer.activation is not None:
                sizes[index] = layer.activation.size_upper(*before[index])
        return Extent(tuple(rows))

    @_quietly
    def extent_within(self, norm: Fraction, at_zero: Sequence[tuple[Floats, Floats]]) -> Extent:
        """For every input with ||v|| <= norm: ||h_l(v)|| <= ||h_l(0)|| + s_l·||v||. at_zero: ends of W·h + b at 0."""
        most = float_up(norm)
        sizes, rows = {INPUT: most}, []
        for index, (constants, layer) in enumerate(zip(self._layers, self.network.layers, strict=True)):
            total = reduce(add, (term.rows[:, None] * sizes[term.source] for term in constants.terms))
            rows.append(enlarged(total + constants.bias, constants.sums))
            if layer.activation is not None:
                still = float(norms_up(layer.activation.size_upper(*at_zero[index]), axis=0)[0])
                sizes[index] = still + self._reach[index] * most
        return Extent(tuple(rows))

    @_quietly
    def deviation(self, extent: Extent) -> Deviation:
        """Errors of the logits around points of that extent."""
        points = extent.rows[0].shape[1]
        alphas, betas, away = {INPUT: np.zeros(points)}, {INPUT: 0.0}, {INPUT: self._reach[INPUT]}
        most = np.full(points, np.inf)
        for index, (constants, rows) in enumerate(zip(self._layers, extent.rows, strict=True)):
            lipschitz, kappa, sums = constants.lipschitz, constants.kappa, constants.sums
            # |W||ĥ| + |b| of each row is at most rows + Σ ||W_k||·(alpha + (reach + beta)·eps), over its terms.
            base = rows + reduce(add, (term.rows[:, None] * alphas[term.source] for term in constants.terms))
            slope = reduce(add, (term.rows * away[term.source] for term in constants.terms))
            # A part of 2^-40 of the largest number outweighs all roundings from here to the quotient.
            room = constants.largest / (1 + kappa) * (1 - 2.0**-40) - constants.underflow - base
            limit = np.where(room > 0, room / slope[:, None], -1.0)  # where a slope vanishes, beyond all floats
            most = np.minimum(most, limit.min(axis=0))
            if index == len(self._layers) - 1:
                own, own_slope = enlarged(kappa * base + constants.underflow, sums), enlarged(kappa * slope, sums)
                if self.network.single is not None:
                    own[0] = own_slope[0] = 0.0  # the threshold, which no program computes
                head = constants.terms[0].source
                return Deviation(own, own_slope, alphas[head], betas[head], most)
            size = norms_up(rows, axis=0)
            grown = reduce(add, (term.absolute * alphas[term.source] for term in constants.terms))
            spread = reduce(add, (term.absolute * away[term.source] for term in constants.terms))
            # Of the sums, then of the activation: `again` is what its own product adds, relatively.
            part, factor = kappa + constants.again * (1 + kappa), max(lipschitz, 1.0)
            local = part * (size + grown) + constants.absolute_underflow
            alphas[index] = enlarged(constants.stretched(alphas, lipschitz) + factor * local, sums)
            betas[index] = float(enlarged(constants.stretched(betas, lipschitz) + factor * (part * spread), sums))
            away[index] = self._reach[index] + betas[index]
        raise ValueError("a network without layers")

    def for_every(self, norm: Fraction, evaluator: Evaluator) -> Deviation:
        """For all inputs v with ||v|| <= norm. Requires: an evaluator of this network."""
        zero = RationalMatrix.from_floats(np.zeros((self.network.inputs, 1)))
        at_zero = evaluator.before_activations(zero)
        return self.deviation(self.extent_within(norm, [value.float_bounds() for value in at_zero]))

    @_quietly
    def errors_at(self, found: Deviation, eps: float, winners: Indices) -> Floats:
        """What is to be taken off the leads of the winners over each class, at this eps (classes x p)."""
        shared = enlarged(found.shared + found.shared_slope * eps)
        own = np.broadcast_to(found.own + found.own_slope[:, None] * eps, (len(self.gaps), len(winners)))
        total: Floats = enlarged(self.gaps[:, winners] * shared + own + own[winners, np.arange(len(winners))])
        return total

    @_quietly
    def radii(
        self, found: Deviation, low: Floats, high: Floats, winners: Indices, margins: Floats, twice: bool = False
    ) -> Floats:
        """A radius, rounded down, within which the program keeps the winner, for each of p points; -1 if there is none.

        low, high: ends of N(v) (classes x p). margins: L as floats from above.
        twice: if low, high are of the program's own logits, so that they are off from N(v) as well.
        """
        columns = np.arange(len(winners))
        base = self.errors_at(found, 0.0, winners) * (2.0 if twice else 1.0)
        slope = margins[:, winners] + self.gaps[:, winners] * found.shared_slope
        slope = enlarged(slope + found.own_slope[:, None] + found.own_slope[winners])
        # Leads are off by u of themselves: less than `base` is enlarged by, or, where that is small, than `slope` is.
        room = low[winners, columns] - high - base
        quotients = np.where(room > 0, room / slope, -1.0)
        quotients[winners, columns] = np.inf  # left out by index
        least: Floats = np.minimum(np.minimum(quotients.min(axis=0), found.most), np.finfo(np.float64).max)
        return np.where(least > 0, least, -1.0)


@dataclass(frozen=True, eq=False)
class _TermConstants:
    """Of one term T of a layer: |T| in floats, and floats above the norms of its rows, and above || |T| ||.

    floats: a matrix holds the very numbers; another map is on a scale (`FloatMap`). summands: products in an output.
    """

    source: int
    floats: Floats | FloatMap
    rows: Floats
    absolute: float
    summands: int

    @staticmethod
    def of(term: Term, ladder: Sequence[Backend[Any]]) -> _TermConstants:
        absolute, floats, rows = term.map.absolute(), None, None
        if isinstance(term.map, Dense):
            floats = np.abs(_floats(term.map.matrix))
            rows = norms_up(floats, axis=1)
        bound = layer_bound(absolute, ladder, Plan("auto"))
        return _TermConstants(
            source=term.source,
            floats=absolute.near() if floats is None else floats,
            rows=_roots_up(absolute.row_squares()) if rows is None else rows,
            absolute=float_up(bound.upper),
            summands=term.map.summands,
        )

    def magnitudes(self, sizes: Floats) -> Floats:
        """|T|·sizes, but for as many roundings as there are summands, and one; and for underflow.

        What underflows is less than `enlarged` adds; but on a scale it may become more. There each number is off by at
        most η/2, and each product by as much: that is added before the scale is left.
        """
        if isinstance(self.floats, np.ndarray):
            found: Floats = self.floats @ sizes
            return found
        found, exponent = self.floats.apply(sizes), self.floats.exponent
        if not exponent:
            return found
        lost = self.summands * ETA * (1 + sizes.max(axis=0))
        scaled: Floats = np.ldexp(found + lost, exponent)
        return scaled


@dataclass(frozen=True, eq=False)
class _Constants:
    """Of one layer: floats above the true numbers. `bias` is a column. norms: of its branches, with their sources.

    apart: whether no output is reached by two branches. again: what the activation adds, as a part of the sum
    (`FloatError`). largest: what a sum may be at most, so that neither it, nor what the activation makes of it, nor the
    sum that becomes a mean overflows.
    """

    terms: tuple[_TermConstants, ...]
    norms: tuple[tuple[int, float], ...]
    apart: bool
    bias: Floats
    kappa: float
    underflow: float
    absolute_underflow: float
    lipschitz: float
    again: float
    largest: float

    @property
    def sums(self) -> int:
        """How often its terms are added up: roundings beside those of a single term."""
        return len(self.terms) - 1

    def stretched(self, of_sources: Mapping[int, Any], factor: float = 1.0) -> Any:
        """Σ factor·||W_k||·x_k with the x of its source, but for roundings; of branches apart the root of squares."""
        parts = [factor * norm * of_sources[source] for source, norm in self.norms]
        return norms_up(np.stack(parts), axis=0) if self.apart else reduce(add, parts)

    @staticmethod
    def of(layer: Layer, norms: Sequence[Fraction], form: FloatFormat, ladder: Sequence[Backend[Any]]) -> _Constants:
        """norms: of the branches of the layer."""
        rows, inputs = layer.shape[0], _summands(layer)
        wide = _is_too_wide(inputs, form)
        kappa = Fraction(1) if wide else _kappa(_roundings(layer), form.unit)
        underflow = inputs * form.tiny / 2 * (1 + kappa)
        lipschitz, error = Fraction(0), FloatError(Fraction(0), Fraction(0), form.largest)
        if layer.activation is not None:
            lipschitz, error = layer.activation.lipschitz, layer.activation.float_error(form)
        largest = error.largest / _gathered(layer)
        return _Constants(
            terms=tuple(_TermConstants.of(term, ladder) for term in layer.terms),
            norms=tuple((term.source, float_up(norm)) for term, norm in zip(layer.branches, norms, strict=True)),
            apart=len(layer.branches) > 1 and are_apart([term.map for term in layer.branches]),
            bias=np.zeros((rows, 1)) if layer.bias is None else np.abs(_floats(layer.bias)),
            kappa=math.inf if wide else float_up(kappa),
            underflow=float_up(underflow),
            absolute_underflow=float_up((underflow * (1 + error.relative) + error.absolute) * (math.isqrt(rows) + 1)),
            lipschitz=float_up(lipschitz),
            again=float_up(error.relative),
            largest=float_enclosure(largest, largest)[0],
        )
