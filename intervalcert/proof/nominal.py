"""The nominal network: that one, of all that uncertain scales allow, whose factors are one; and how far others are off.

An uncertain scale is x -> C·(x + offset) with a diagonal C in [least, 1] that nobody knows exactly. With C = I all of
it is exact. Let u be within eps of v, h the value somewhere in the nominal network, h' that with any other factors:

    ||h(u) - h(v)|| <= s·eps,        ||h'(u) - h(u)|| <= d,

where s, d are 1, 0 at the input; a linear map T takes them to ||T||·s, ||T||·d; sums add up; an activation multiplies
both with its Lipschitz constant; and C takes d to d + (1 - least)·(||h(v) + offset|| + s·eps), since
C(h' + offset) - (h + offset) = C(h' - h) + (C - I)(h + offset). A difference of two logits is then off by at most
sqrt(2)·d. So what leads by more than (3/2)·d in the nominal network leads in all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from intervalcert.backends.protocol import Backend
from intervalcert.model.evaluation import Near, PointEvaluator
from intervalcert.model.layers import INPUT, Layer, UncertainScale
from intervalcert.model.linear_maps import sum_of
from intervalcert.model.network import Network
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.numbers.rounding import round_up, sqrt_upper

__all__ = ["NominalDistance", "nominal_network"]

_BITS = 32
"""Of what bounds an error; always rounded up."""


def nominal_network(network: Network) -> Network:
    """With all uncertain factors one. It takes what the network takes behind its normalisation (`Network.entered`)."""
    if network.is_exact:
        return network
    added: dict[int, RationalMatrix | None] = {INPUT: _offset(network.uncertain_input_scale)}
    layers = []
    for index, layer in enumerate(network.layers):
        bias = sum_of(layer.bias, _offset(layer.before)) if layer.bias is not None else _offset(layer.before)
        for term in layer.terms:
            offset = added[term.source]
            if offset is not None:
                bias = sum_of(term.map.exactly(offset), bias)
        layers.append(Layer(layer.terms, bias, layer.activation))
        added[index] = _offset(layer.after)
    return replace(network, layers=tuple(layers), normalisation=None, eps_space="input", single=None)


def _offset(scale: UncertainScale | None) -> RationalMatrix | None:
    return None if scale is None else scale.offset


@dataclass(frozen=True)
class _Off:
    """s·eps, and d."""

    away: Fraction
    distance: Fraction

    def times(self, factor: Fraction) -> _Off:
        return _Off(_up(self.away * factor), _up(self.distance * factor))


class NominalDistance:
    """How far leads of a network are from those of its nominal network."""

    def __init__(self, network: Network, norms: Sequence[Fraction], exact: Backend[Any]) -> None:
        """norms: upper bounds of the operator norms of the network's branches. exact: whose values are points.

        Requires: rational activations.
        """
        self._network, self._norms = network, network.by_layer(list(norms))
        self._nominal = PointEvaluator(nominal_network(network), norms, exact)

    def deduction(self, x: RationalMatrix, eps: Fraction) -> Fraction:
        """What a nominal lead must be more than, at any input within eps, for the lead to be positive with any factors.

        x: a column (`Network.entered`).
        """
        if self._network.is_exact:
            return Fraction(0)
        inner = self._nominal.at(x)
        size = _norm(self._nominal.backend.matrix(x)) + _scale_offset_norm(self._network.uncertain_input_scale)
        values = {INPUT: _scaled(_Off(eps, Fraction(0)), self._network.uncertain_input_scale, size)}
        for index, layer in enumerate(self._network.layers):
            total = self._summed(layer, values, self._norms[index])
            # ||T·h + offset|| at v, h being nominal: the inner value less the bias.
            size = _size(inner[index]) + (_norm_of(layer.bias) if layer.bias is not None else 0)
            total = _scaled(total, layer.before, size)
            if layer.activation is None:
                return _up(total.distance * Fraction(3, 2))
            function = layer.activation
            given = _norm(function.enclosure(inner[index].value, self._nominal.backend))
            given += function.lipschitz * inner[index].error + _scale_offset_norm(layer.after)
            values[index] = _scaled(total.times(function.lipschitz), layer.after, given)
        raise ValueError("a network without logits")

    def _summed(self, layer: Layer, values: Mapping[int, _Off], norms: Sequence[Fraction]) -> _Off:
        parts = [values[term.source].times(norm) for term, norm in zip(layer.branches, norms, strict=True)]
        return _Off(
            sum((part.away for part in parts), Fraction(0)), sum((part.distance for part in parts), Fraction(0))
        )


def _scaled(value: _Off, by: UncertainScale | None, size: Fraction) -> _Off:
    """size: at least ||h(v) + offset||. C moves nothing apart."""
    if by is None:
        return value
    return _Off(value.away, _up(value.distance + (1 - by.least) * (size + value.away)))


def _size(value: Near) -> Fraction:
    return _norm(value.value) + value.error


def _norm(column: Any) -> Fraction:
    found: Fraction = sqrt_upper(column.frobenius_squared().upper(), _BITS)
    return found


def _norm_of(column: RationalMatrix) -> Fraction:
    squares = sum(x * x for x in column.numerators.ravel().tolist())
    return sqrt_upper(Fraction(squares, column.denominator**2), _BITS)


def _scale_offset_norm(scale: UncertainScale | None) -> Fraction:
    return Fraction(0) if scale is None or scale.offset is None else _norm_of(scale.offset)


def _up(x: Fraction) -> Fraction:
    return round_up(x, _BITS)
