"""The Jacobian of a graph of layers at a point, with proof: linear maps, and what each activation selects there.

Which piece of the network a point is in is decided by `exact_networks`, in rationals. There each activation is a linear
map that takes each number from one place, times a slope; so the gradients of the logits are those of the last layer's
outputs, pulled back through all maps.

Uses the linear maps of the package itself, on one of its number systems: nothing public encloses a Jacobian.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from compare.exact_networks import Piece
from intervalcert import Network
from intervalcert.backends.protocol import Backend, Matrix
from intervalcert.model.layers import INPUT, Layer
from intervalcert.model.linear_maps import IndexMap
from intervalcert.numbers.matrices import RationalMatrix

__all__ = ["GraphJacobian"]


class GraphJacobian:
    """A network whose maps are on a number system, converted once. They are taken term by term: none is merged."""

    def __init__(self, network: Network, backend: Backend[Any]) -> None:
        self._layers, self._backend = network.layers, backend
        self._operators = [[(term.source, term.map.on(backend)) for term in layer.terms] for layer in network.layers]
        self._unit = backend.matrix(RationalMatrix.from_floats(np.eye(network.outputs)))

    def gradients(self, pieces: Sequence[Piece]) -> Matrix[Any]:
        """Of each logit by the inputs, in columns, in that piece of the network."""
        last = len(self._layers) - 1
        found = {last: self._unit}
        for index in range(last, -1, -1):
            above = found.pop(index)
            if index < last:
                above = _selection(self._layers[index], pieces[index]).on(self._backend).adjoint(above)
            for source, operator in self._operators[index]:
                part = operator.adjoint(above)
                found[source] = found[source] + part if source in found else part
        return found[INPUT]

    def squares_lower(self, pieces: Sequence[Piece], pairs: Sequence[tuple[int, int]]) -> Iterator[Fraction]:
        """Lower bounds of ||∇(N_j - N_i)||² for the pairs (i, j). Raises: InconclusiveError where there are none."""
        rows = self.gradients(pieces).transposed()
        every = np.arange(rows.shape[1])
        each = [rows.block(np.array([k]), every) for k in range(rows.shape[0])]
        for i, j in pairs:
            yield (each[j] - each[i]).frobenius_squared().lower()


def _selection(layer: Layer, piece: Piece) -> IndexMap:
    """What the activation of a layer does in that piece, as a linear map."""
    index = np.array([at if slope else -1 for at, slope in zip(piece.sources, piece.slopes, strict=True)])
    plain = all(slope in (0, 1) for slope in piece.slopes)
    factors = None if plain else RationalMatrix.from_fractions([[slope] for slope in piece.slopes])
    return IndexMap(index, layer.inner_shape, layer.out_shape, factors)
