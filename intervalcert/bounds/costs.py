"""How long exact arithmetic takes, known beforehand: an audit does what the file that it checks asks for.

An estimate from the shapes of the layers, the bits of their numbers, and what is claimed to have been done with them.
The constants are those of one core of an ordinary machine; it is off by a factor of two or three, and that is enough to
tell seconds from hours.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from intervalcert.model.linear_maps import ChannelWise, Convolution, Dense, LinearMap
from intervalcert.model.network import Network
from intervalcert.numbers.matrices import RationalMatrix
from intervalcert.proof.circulant_chain import CirculantWitness
from intervalcert.proof.data import arrays_of
from intervalcert.proof.layer_norms import NormWitness
from intervalcert.proof.norms import MAX_ITERATIONS
from intervalcert.proof.witnesses import AnyChain, Witnesses

__all__ = ["exact_seconds", "tuning_seconds", "usual_seconds"]

_LIMB, _MOST_LIMBS = 22, 40
"""As in `backends.integers`: so many bits are multiplied at once, and numbers of more limbs by Python itself."""

_MULTIPLIED, _CARRIED = 4e-11, 8e-9
"""Seconds for a product of two limbs within a matrix product, and for carrying what such products sum up to."""

_LONG = 1.3e-6
"""Seconds for a product of two Python integers of 1024 bits."""

_TOUCHED = 4e-6
"""Seconds for an entry of a matrix that is made of floats, compared and rounded on the way of a proof."""

_PAIR = 2.5e-5
"""Seconds for a pair of classes: a root, a product, two roundings."""

_LAYER, _STEP = 4e-3, 3e-4
"""Seconds that a layer, and a step of Gram iteration, take at least."""

_ROUND, _SEARCHED = 1e-3, 2e-8
"""Seconds that a layer takes in a round of tuning: at least, and for each of side³."""

_USUALLY_APART = 250
"""Bits from the largest, or 1, to the least of the numbers that floats guess, with their own 53."""

_GUESSED = 64
"""Bits of what floats guess, with room."""

_USUAL_PREC = 64


def exact_seconds(network: Network, witnesses: Witnesses, prec: int) -> float:
    """The time that exact rationals take to check these witnesses, and for all pairs of classes."""
    norms = sum(
        _norm(branch.map, _steps(witness), prec, _guessed_bits(witness))
        for branch, witness in zip(network.branches, witnesses.norms, strict=False)
    )
    return norms + _margins(network, prec, [_chain_seconds(network, chain) for chain in witnesses.chains])


def usual_seconds(network: Network) -> float:
    """The same for default bounds: all norms by Cholesky, one chain."""
    norms = sum(_norm(branch.map, 0, _USUAL_PREC) for branch in network.branches)
    usual = _chain(network, _GUESSED) if network.is_dense else _graph_chain(_usual_shapes(network), _GUESSED)
    return norms + _margins(network, _USUAL_PREC, [usual])


def tuning_seconds(network: Network, rounds: int) -> float:
    """The time that floats take to tune a chain in so many rounds."""
    return rounds * sum(_ROUND + _SEARCHED * max(layer.shape) ** 3 for layer in network.layers[:-1])


def _steps(witness: NormWitness) -> int:
    """The most steps of Gram iteration."""
    if witness.steps is None:
        return 0
    return MAX_ITERATIONS if witness.steps == "auto" else witness.steps


def _guessed_bits(witness: Any) -> int:
    """Of the numbers in it, as exact integers: few, unless somebody made them of very different sizes."""
    arrays = [array for array in arrays_of(witness) if array.ndim == 2]
    sizes = np.concatenate([np.zeros(0), *(np.abs(array[array != 0]) for array in arrays)])
    if not sizes.size:
        return _GUESSED
    # As integers over one denominator: also the way from 1 counts.
    apart = max(int(np.frexp(sizes.max())[1]), 0) - min(int(np.frexp(sizes.min())[1]), 0) + 53
    return _GUESSED if apart <= _USUALLY_APART else apart


def _norm(linear: LinearMap, steps: int, prec: int, guessed: int = _GUESSED) -> float:
    if isinstance(linear, Convolution):
        return _convolution(linear, guessed)
    if not isinstance(linear, Dense | ChannelWise):
        return _LAYER
    weights = linear.matrix
    short, long, bits = *sorted(weights.shape), _bits(weights)
    gram = _product(short, long, short, bits, bits)
    factor = _product(short, short, short, guessed, guessed) + short**2 * _TOUCHED
    return _LAYER + gram + factor + steps * (_STEP + _product(short, short, short, prec, prec))


def _convolution(linear: Convolution, guessed: int) -> float:
    """Of the largest matrix that it may be cut into lines of: as many products as there are lines and places."""
    window, bits = linear.window, _bits(linear.kernel)
    outputs, channels = linear.kernel.shape[0] // linear.groups, linear.channels // linear.groups
    lines = min((window.outputs[0], outputs * window.outputs[1]), (window.inputs[0], channels * window.inputs[1]))
    count, side = lines
    near = window.size[0]
    gram = near**2 * _product(side, side, side, bits, bits)
    factor = count * (near + 1) * (_product(side, near * side, side, guessed, guessed) + side**2 * _TOUCHED)
    return _LAYER + len(linear.blocks()) * (gram + factor)


def _margins(network: Network, prec: int, chains: Sequence[float]) -> float:
    """chains: what each of them takes, but for the pairs."""
    heads = 0.0
    for matrix in network.head:
        classes, width, bits = *matrix.shape, _bits(matrix)
        heads += _product(classes, width, classes, bits, bits) + classes**2 / 2 * _PAIR * (1 + prec / 1024)
    return heads + sum(heads + chain for chain in chains)


def _chain_seconds(network: Network, chain: AnyChain) -> float:
    guessed = _guessed_bits(chain)
    if network.is_dense and not isinstance(chain, CirculantWitness):
        return _chain(network, guessed)
    return _graph_chain([array.shape for array in arrays_of(chain) if array.ndim == 2], guessed)


def _graph_chain(shapes: Iterable[tuple[int, ...]], guessed: int) -> float:
    """From the matrices of its witness: each is multiplied some six times, with others of its size."""
    return sum(6 * _product(rows, max(rows, columns), columns, 2 * guessed, guessed) for rows, columns in shapes)


def _usual_shapes(network: Network) -> list[tuple[int, int]]:
    """Of the matrices of a chain through a graph: as wide as the layer, but hardly wider than twice the inputs."""
    sides = (min(layer.shape[0], 2 * network.inputs) for layer in network.layers[:-1])
    return [(side, side) for side in sides]


def _chain(network: Network, guessed: int) -> float:
    *hidden, last = network.layers
    classes, width = last.weights.shape
    seconds = _product(classes, width, width, _bits(last.weights), guessed) if hidden else 0.0
    for index, layer in enumerate(hidden):
        (rows, columns), bits = layer.weights.shape, _bits(layer.weights)
        before = guessed if index else 0
        seconds += _product(rows, columns, columns, bits, before) if index else 0.0
        seconds += _product(rows, columns, rows, bits + before, bits)
        seconds += 6 * _product(rows, rows, rows, 2 * guessed, guessed) + rows**2 * _TOUCHED
    return seconds


def _product(rows: int, inner: int, columns: int, left: int, right: int) -> float:
    """Seconds for an exact product of matrices whose entries have so many bits."""
    limbs = [-(-bits // _LIMB) + 1 for bits in (left, right)]
    if max(limbs) <= _MOST_LIMBS:
        return limbs[0] * limbs[1] * rows * columns * (inner * _MULTIPLIED + _CARRIED)
    return rows * inner * columns * _LONG * math.pow(left * right / 1024**2, 0.8)


def _bits(weights: RationalMatrix) -> int:
    return max(map(int.bit_length, weights.numerators.ravel().tolist()))
