"""The network as it is deployed: in floats of some format, summed in an order that nobody knows.

Let N be the network over the reals and N̂ the program: the same weights, which are numbers of the format; every layer a
matrix product and a bias, summed in any order, with or without FMA, the bias anywhere in the sum; inputs u that the
format can represent. With u the unit roundoff, η the smallest number, n inputs, and κ = (1 + u)^(n+1) - 1, each output
of a layer is off from W·ĥ + b by at most

    κ·(|W||ĥ| + |b|) + n·(η/2)·(1 + κ)        (Higham, Accuracy and Stability of Numerical Algorithms, 3.1 and 4.2:
                                               a term meets one product and at most n sums; products may underflow)

as long as nothing overflows: no partial sum exceeds (1 + κ)·(|W||ĥ| + |b|) + n·(η/2)·(1 + κ).

For all inputs u within eps of v at once: let h_l be the values of N after layer l, ĥ_l those of N̂.
    ||h_l(u) - h_l(v)|| <= s_l·eps,       s_0 = 1, s_l = b_l·min(||W_l||·s_{l-1}, sqrt(σ_l))     (σ_l of the chain)
    ||ĥ_l(u) - h_l(u)|| <= D_l,           D_0 = 0,
    D_l = b_l·(||W_l||·D_{l-1} + ||local error||) + ||error of the activation||
    |W||ĥ_{l-1}| <= |W||h_{l-1}(v)| + |W||ĥ_{l-1} - h_{l-1}(v)|
where the last term has at most the norm || |W| ||·(s_{l-1}·eps + D_{l-1}), and in row k ||W_k||·(…). So D_l, and every
other error, is a linear function of eps, D_l = α_l + β_l·eps, in which α depends on v and β does not. The lead of j
over i in N̂ at u is positive if, with the rows' errors e_i,

    N(v)_j - N(v)_i  >  eps·L[i][j] + ||W_n[j] - W_n[i]||·D_{n-1} + e_i + e_j,

which holds for all eps below a quotient. All of it is computed in float64, in sums and products of non-negative numbers
which are enlarged by more than their rounding (`upward`).

What an activation adds to that it says itself (`Activation.float_error`): ReLU, identity, hard_tanh and clip nothing,
leaky_relu one more product. Others are refused.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from intervalcert.backends.protocol import Backend, Floats, Indices
from intervalcert.bounds.norm_bounds import Plan, layer_bound
from intervalcert.errors import InputError, SoundnessError
from intervalcert.model.activations import FloatError
from intervalcert.model.evaluation import Evaluator
from intervalcert.model.layers import Layer
from intervalcert.model.network import Network
from intervalcert.numbers.float_environment import arithmetic_fault, product_fault
from intervalcert.numbers.float_formats import FloatFormat
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.rounding import float_enclosure
from intervalcert.numbers.text import shortest_exact
from intervalcert.numbers.upward import enlarged, float_up, norms_up

__all__ = ["Deployment", "Deviation", "Extent", "as_deployed", "too_coarse"]

_quietly = np.errstate(all="ignore")
"""For methods in which numbers may overflow: what is infinite or not a number certifies nothing."""


def as_deployed(network: Network, form: FloatFormat) -> Network:
    """The network whose weights, biases and slopes are rounded to the format: the one that is run.

    Raises: InputError for a number beyond the format, an activation whose rounding is not known, or a model that does
    more than its layers: normalises, or had something folded into them.
    """
    folded = (*network.folded, *(("the normalisation of its inputs",) if network.normalisation else ()))
    folded += () if network.is_exact else ("roots",)
    if folded:
        raise InputError(
            f"how the program computes {folded[0]} in {form.name} is not known, so it cannot be certified as deployed: "
            "certify the model over the reals, or export one that consists of its layers alone"
        )
    threshold = Fraction(0) if network.single is None else network.single.constant
    if form.rounded(RationalMatrix.from_fractions([[threshold]]), "the threshold")[0, 0] != threshold:
        raise InputError(
            f"the threshold {shortest_exact(threshold)} is not a number of {form.name}: the program compares with "
            "another one; say which (--threshold)"
        )
    layers = []
    for index, layer in enumerate(network.layers):
        weights = form.rounded(layer.weights, f"the weights of layer {index}")
        bias = None if layer.bias is None else form.rounded(layer.bias, f"the bias of layer {index}")
        function = None if layer.activation is None else layer.activation.in_format(form, f"layer {index}")
        layers.append(Layer(weights, bias, function))
    return Network(tuple(layers), network.sources, single=network.single)


def too_coarse(network: Network, form: FloatFormat) -> str | None:
    """Why nothing can be certified in this format; None if that is not so."""
    for index, layer in enumerate(network.layers):
        inputs = layer.weights.shape[1]
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


def _is_too_wide(inputs: int, form: FloatFormat) -> bool:
    return inputs * form.unit >= 1


def _floats(data: RationalMatrix) -> Floats:
    """The very numbers. Requires: they are floats, as those of a deployed network are."""
    near = data.near_floats()
    if near.exact and not near.exponent:
        return near.values
    rows, columns = data.shape
    return np.array([[float(data[i, j]) for j in range(columns)] for i in range(rows)])


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
        """network: as deployed. norms, sigmas: bounds of its layers (sigmas may be none).

        If the format is too coarse (`too_coarse`) the errors are infinite, and nothing is certified.
        Raises: SoundnessError if float64 is not to be trusted in this process.
        """
        _check_arithmetic()
        self.network, self.form = network, form
        layers = zip(network.layers, norms, strict=True)
        self._layers = [_Constants.of(layer, norm, form, ladder) for layer, norm in layers]
        self._reach = self._reaches(sigmas)
        last = _floats(network.layers[-1].weights)
        # Each difference is off by u: what `norms_up` is enlarged by outweighs that.
        self.gaps: Floats = np.stack([norms_up(row - last, axis=1) for row in last])

    def __setstate__(self, state: dict[str, Any]) -> None:
        """What arrives in another process tests that process. Raises: as `__init__`."""
        _check_arithmetic()
        self.__dict__.update(state)

    def _reaches(self, sigmas: Sequence[Fraction]) -> list[float]:
        """s_0, s_1, …: of the inputs of each layer."""
        found = [1.0]
        for index, constants in enumerate(self._layers[:-1]):
            inner = float(enlarged(constants.norm * found[-1]))
            if index < len(sigmas):
                inner = min(inner, math.sqrt(float_up(sigmas[index])))  # a root is off by u: the next line covers it
            found.append(float(enlarged(constants.lipschitz * inner)))
        return found

    @_quietly
    def extent_at(self, inputs: tuple[Floats, Floats], before: Sequence[tuple[Floats, Floats]]) -> Extent:
        """At points: ends of the inputs, and of W·h + b of each layer (rows x p)."""
        sizes = np.maximum(-inputs[0], inputs[1])
        rows = []
        for constants, layer, (low, high) in zip(self._layers, self.network.layers, before, strict=True):
            rows.append(enlarged(constants.magnitudes @ sizes + constants.bias, len(sizes)))
            if layer.activation is not None:
                sizes = layer.activation.size_upper(low, high)
        return Extent(tuple(rows))

    @_quietly
    def extent_within(self, norm: Fraction, at_zero: Sequence[tuple[Floats, Floats]]) -> Extent:
        """For every input with ||v|| <= norm: ||h_l(v)|| <= ||h_l(0)|| + s_l·||v||. at_zero: ends of W·h + b at 0."""
        size = most = float_up(norm)
        rows = []
        for index, (constants, layer, (low, high)) in enumerate(
            zip(self._layers, self.network.layers, at_zero, strict=True)
        ):
            rows.append(enlarged(constants.rows[:, None] * size + constants.bias))
            if layer.activation is not None:
                still = float(norms_up(layer.activation.size_upper(low, high), axis=0)[0])
                size = still + self._reach[index + 1] * most
        return Extent(tuple(rows))

    @_quietly
    def deviation(self, extent: Extent) -> Deviation:
        """Errors of the logits around points of that extent."""
        points = extent.rows[0].shape[1]
        alpha, beta = np.zeros(points), 0.0
        most = np.full(points, np.inf)
        for index, (constants, rows) in enumerate(zip(self._layers, extent.rows, strict=True)):
            stretched, factor = constants.lipschitz * constants.norm, max(constants.lipschitz, 1.0)
            kappa, reach = constants.kappa, self._reach[index]
            # |W||ĥ| + |b| of each row is at most rows + ||W_k||·(alpha + (reach + beta)·eps).
            base, slope = rows + constants.rows[:, None] * alpha, constants.rows * (reach + beta)
            # A part of 2^-40 of the largest number outweighs all roundings from here to the quotient.
            room = constants.largest / (1 + kappa) * (1 - 2.0**-40) - constants.underflow - base
            limit = np.where(room > 0, room / slope[:, None], -1.0)  # where a slope vanishes, beyond all floats
            most = np.minimum(most, limit.min(axis=0))
            if index == len(self._layers) - 1:
                own, own_slope = enlarged(kappa * base + constants.underflow), enlarged(kappa * slope)
                if self.network.single is not None:
                    own[0] = own_slope[0] = 0.0  # the threshold, which no program computes
                return Deviation(own, own_slope, alpha, beta, most)
            size = norms_up(rows, axis=0)
            spread = constants.absolute * (reach + beta)
            # Of the sums, then of the activation: `again` is what its own product adds, relatively.
            part = kappa + constants.again * (1 + kappa)
            local = part * (size + constants.absolute * alpha) + constants.absolute_underflow
            alpha = enlarged(stretched * alpha + factor * local)
            beta = float(enlarged(stretched * beta + factor * (part * spread)))
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
class _Constants:
    """Of one layer: floats above the true numbers. `bias` is a column.

    again: what the activation adds, as a part of the sum (`FloatError`). largest: what a sum may be at most, so that
    neither it nor what the activation makes of it overflows.
    """

    magnitudes: Floats
    bias: Floats
    rows: Floats
    norm: float
    absolute: float
    kappa: float
    underflow: float
    absolute_underflow: float
    lipschitz: float
    again: float
    largest: float

    @staticmethod
    def of(layer: Layer, norm: Fraction, form: FloatFormat, ladder: Sequence[Backend[Any]]) -> _Constants:
        rows, inputs = layer.weights.shape
        wide = _is_too_wide(inputs, form)
        kappa = Fraction(1) if wide else _kappa(inputs + 1, form.unit)
        underflow = inputs * form.tiny / 2 * (1 + kappa)
        magnitudes = np.abs(_floats(layer.weights))
        absolute = RationalMatrix(abs(layer.weights.numerators), layer.weights.denominator)
        bound = layer_bound(absolute, ladder, Plan("auto"))
        lipschitz, error = Fraction(0), FloatError(Fraction(0), Fraction(0), form.largest)
        if layer.activation is not None:
            lipschitz, error = layer.activation.lipschitz, layer.activation.float_error(form)
        return _Constants(
            magnitudes=magnitudes,
            bias=np.zeros((rows, 1)) if layer.bias is None else np.abs(_floats(layer.bias)),
            rows=norms_up(magnitudes, axis=1),
            norm=float_up(norm),
            absolute=float_up(bound.upper),
            kappa=math.inf if wide else float_up(kappa),
            underflow=float_up(underflow),
            absolute_underflow=float_up((underflow * (1 + error.relative) + error.absolute) * (math.isqrt(rows) + 1)),
            lipschitz=float_up(lipschitz),
            again=float_up(error.relative),
            largest=float_enclosure(error.largest, error.largest)[0],
        )
