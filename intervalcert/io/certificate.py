"""Certificates: what was found, with the guesses that prove it, for the checker that stands alone (`checker`).

Whatever is claimed in a certificate was proved by that checker's own code when it was written. Of witnesses it takes
what it cannot compute itself: of a norm the factor, of a step through a layer v and G.
"""

from __future__ import annotations

import json
import math
import zipfile
from array import array
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import zip_longest
from types import TracebackType
from typing import IO, Any

import numpy as np

from intervalcert.backends.protocol import Floats
from intervalcert.bounds.results import Bounds
from intervalcert.checker import claims, core, model
from intervalcert.errors import InputError
from intervalcert.io.bounds_file import witnesses_of
from intervalcert.model.network import Network
from intervalcert.numbers.rounding import dyadic_value
from intervalcert.proof.chain import ChainLink
from intervalcert.proof.cholesky import Factor
from intervalcert.proof.counterexample import Counterexample
from intervalcert.proof.local import ShortChains, ShortLink
from intervalcert.proof.witnesses import AnyChain
from intervalcert.search.factors import FloatGram
from intervalcert.verify.verdicts import Verdicts

__all__ = ["CertificateWriter", "FoundPoints", "PointsAbout", "checked_model"]

_DATE = (1980, 1, 1, 0, 0, 0)
_BITS, _FINE = 62, 46
"""Of the largest number of an array: of what may be any float, and of G, which is on a grid."""

_ROOT_BITS = 80


def checked_model(network: Network) -> model.Model:
    """The network, as the checker sees it. Raises: InputError for one that no certificate is of."""
    if not network.is_dense or not network.is_exact or network.eps_space != "input":
        raise InputError(
            "certificates are of chains of matrices whose numbers are known exactly, with eps in the space of the "
            "inputs: of this model there is none"
        )
    if network.single is not None and network.single.threshold is None:
        raise InputError("certificates are of classifiers, and this model was read as a regression")
    try:
        return model.Model(
            tuple(
                model.Layer(
                    layer.weights.numerators.tolist(),
                    layer.weights.denominator,
                    [0] * layer.shape[0] if layer.bias is None else layer.bias.numerators.ravel().tolist(),
                    1 if layer.bias is None else layer.bias.denominator,
                    None if layer.activation is None else model.activation(layer.activation.name),
                )
                for layer in network.layers
            )
        )
    except model.Malformed as error:
        raise InputError(f"certificates are not of such models: {error}") from None


class CertificateWriter:
    """Writes one certificate, claim by claim, to a file that is open. It is complete once it was closed.

    Raises: InputError where there is nothing that proves a claim.
    """

    def __init__(self, file: IO[bytes], network: Network, bounds: Bounds) -> None:
        self._model = checked_model(network)
        self._zip = zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED)
        self._manifest: dict[str, Any] = {
            "format": claims.FORMAT,
            "version": claims.VERSION,
            "semantics": "real",
            "norm": "L2",
            "eps_space": "input",
            "model": self._model.sha256,
            "points": None,
        }
        try:
            self._write_bounds(network, bounds)
        except BaseException:
            self._zip.close()
            raise

    def __enter__(self) -> CertificateWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._write_member(
                "manifest.json", json.dumps(self._manifest, sort_keys=True, separators=(",", ":")).encode("ascii")
            )
        self._zip.close()

    def _write_member(self, name: str, content: bytes) -> None:
        info = zipfile.ZipInfo(name, _DATE)
        info.compress_type, info.external_attr = zipfile.ZIP_DEFLATED, 0o600 << 16
        self._zip.writestr(info, content, compresslevel=9)

    def _write(self, name: str, numbers: Sequence[int]) -> None:
        most = max(max(numbers, default=0), -min(numbers, default=0) - 1)
        width = next(width for width in (1, 2, 4, 8) if most < 1 << 8 * width - 1)
        self._write_member(f"{name}.i{width}", np.array(numbers, dtype=f"<i{width}").tobytes())

    # -- bounds ------------------------------------------------------------------------------------------------------

    def _write_bounds(self, network: Network, bounds: Bounds) -> None:
        witnesses, missing = witnesses_of(bounds)
        if witnesses is None:
            raise InputError(f"bounds without witnesses have no certificate ({missing}): compute them anew")
        norms: list[dict[str, Any]] = []
        squares: list[Fraction] = []
        for index, layer in enumerate(self._model.layers[:-1]):
            factor = witnesses.norms[index].factor or FloatGram(network.layers[index].weights).factor()
            if not any(map(any, layer.rows)):
                factor = Factor(0.0, np.zeros((min(layer.inputs, layer.outputs),) * 2))
            if factor is None:
                raise InputError(f"floats find nothing that proves the norm of layer {index}")
            made, flat = _factor(factor)
            square = core.norm_squared(layer, made)
            upper = _claimed(bounds.layers[index].upper, square)
            self._write(f"norm{index}.factor", flat)
            shift = _pair(made.shift)
            norms.append({"upper": _pair(upper), "shift": shift, "exponent": made.exponent})
            squares.append(min(square, upper * upper))
        proved = [core.product_squares(self._model, squares)]
        chains: list[Any] = []
        for chain in witnesses.chains:
            steps = _steps(network, chain)
            if steps is None:
                continue
            try:
                proved.append(core.chain_squares(self._model, steps))
            except core.Refused:
                continue  # the product stands
            chains.append(self._write_chain(f"chain{len(chains)}", steps, whole=True))
        self._manifest |= {"norms": norms, "chains": chains}
        self._write_margins(bounds, proved)

    def _write_margins(self, bounds: Bounds, proved: Sequence[Sequence[Sequence[Fraction]]]) -> None:
        wanted = [
            _claimed(bounds.margins.matrix[j][i], min(squares[j][i] for squares in proved))
            for j in range(self._model.outputs)
            for i in range(j)
        ]
        largest = max(wanted)
        exponent = largest.numerator.bit_length() - largest.denominator.bit_length() - _BITS + 1
        numbers = [core.ceiling(each, exponent) for each in wanted]
        self._write("margins", numbers)
        self._manifest["margins"] = exponent
        margins = [core.scaled(n, exponent) ** 2 for n in numbers]
        self._margins = [margins[j * (j - 1) // 2 : j * (j + 1) // 2] for j in range(self._model.outputs)]

    def _write_chain(self, name: str, steps: core.Chain, *, whole: bool) -> list[dict[str, int]]:
        listed = []
        for index, step in enumerate(steps):
            if not whole:
                self._write(f"{name}.{index}.kept", list(step.kept))
            self._write(f"{name}.{index}.v", step.v)
            self._write(f"{name}.{index}.g", [entry for column in step.g for entry in column])
            about = {"v": step.v_exponent, "g": step.g_exponent, "bent": len(step.g)}
            listed.append(about if whole else about | {"kept": len(step.kept)})
        return listed

    # -- points ------------------------------------------------------------------------------------------------------

    def write_points(self, about: PointsAbout, rows: Iterable[Sequence[Fraction]], found: FoundPoints) -> list[int]:
        """What was found of points, each with its row: an output, or a scaled input.

        Returns: how many there are of each status of `claims`. Raises: InputError for another number of rows.
        """
        status, radii = array("q"), array("q")
        listed: dict[str, dict[str, Any]] = {"local": {}, "falsified": {}}
        for index, (row, winner, radius) in enumerate(zip_longest(rows, found.winners, found.radii)):
            if row is None or winner is None or radius is None:
                raise InputError(f"{about.kind} {index}: the file has changed since it was looked at")
            logits = model.values_at(self._model, row)[-1] if about.kind == "inputs" else self._model.completed(row)
            if core.winner_of(logits) != winner:
                raise InputError(f"{about.kind} {index}: class {winner} is said to win, and does not")
            status.append(self._proved(about, index, row, logits, winner, found, listed))
            radii.append(self._radius(about.eps if status[-1] == claims.LOCAL else None, radius, logits))
        for name, numbers in (("status", status), ("winner", found.winners), ("radius", radii)):
            self._write(f"points.{name}", numbers)
        shown = {"kind": about.kind, "sha256": about.sha256, "eps": str(about.eps), "scale": str(about.scale)}
        self._manifest["points"] = shown | {"count": len(status)} | listed
        return [status.count(each) for each in range(len(claims.STATUSES))]

    def _proved(
        self,
        about: PointsAbout,
        index: int,
        row: Sequence[Fraction],
        logits: Sequence[Fraction],
        winner: int,
        found: FoundPoints,
        listed: dict[str, dict[str, Any]],
    ) -> int:
        """The status that the checker gives a point; its proof is written, and named in `listed`."""
        if core.is_certified(logits, self._margins, about.eps):
            return claims.MARGINS
        change = found.changes.get(index)
        if change is not None:
            numbers = [int(x) for x in np.ldexp(change.delta, -claims.CHANGE).tolist()]
            delta = [core.scaled(n, claims.CHANGE) for n in numbers]
            with suppress(core.Refused):
                core.check_counterexample(self._model, row, delta, about.eps, winner, change.other)
                self._write(f"falsified{index}", numbers)
                listed["falsified"][str(index)] = change.other
                return claims.FALSIFIED
        if index in found.chains:
            chains = [_local_steps(links) for links in found.chains[index]]
            with suppress(core.Refused):
                core.check_local(self._model, row, about.eps, winner, chains)
                named = (self._write_chain(f"local{index}.{k}", chain, whole=False) for k, chain in enumerate(chains))
                listed["local"][str(index)] = list(named)
                return claims.LOCAL
        return claims.UNKNOWN

    def _radius(self, eps: Fraction | None, radius: float, logits: Sequence[Fraction]) -> int:
        """That of margins, a little less if need be; eps where that is proved otherwise."""
        if eps is not None:
            return core.floor(eps, claims.RADIUS)
        n = core.floor(Fraction(radius), claims.RADIUS) if radius < 2**12 else 2**62
        for less in (n, n - 1):  # margins here may be a little more than those of the bounds
            if less > 0 and core.is_certified(logits, self._margins, core.scaled(less, claims.RADIUS)):
                return less
        return 0


@dataclass(frozen=True)
class PointsAbout:
    """kind: `outputs` or `inputs`; sha256: of their file; scale: what inputs are multiplied with."""

    kind: str
    sha256: str
    eps: Fraction
    scale: Fraction = Fraction(1)


@dataclass(eq=False)
class FoundPoints:
    """What was found of points, in their order; by index what certifies some locally, and what falsifies some."""

    winners: array[int] = field(default_factory=lambda: array("q"))
    radii: array[float] = field(default_factory=lambda: array("d"))
    chains: dict[int, ShortChains] = field(default_factory=dict)
    changes: dict[int, Counterexample] = field(default_factory=dict)

    def add(self, verdicts: Verdicts) -> None:
        self.winners.extend(verdicts.argmax.tolist())
        self.radii.extend(verdicts.radius.tolist())
        self.chains |= {index: proof for index, proof in verdicts.proofs.items() if isinstance(proof, tuple)}
        self.changes |= {
            index: found for index, found in verdicts.counterexamples.items() if isinstance(found, Counterexample)
        }


def _pair(number: Fraction) -> list[int]:
    """[n, e] for n·2^e. Requires: a dyadic."""
    exponent = 1 - number.denominator.bit_length()
    n = number.numerator
    twos = (n & -n).bit_length() - 1 if n and not exponent else 0
    return [n >> twos, exponent + twos]


def _claimed(known: Fraction, square: Fraction) -> Fraction:
    """What is claimed: the bound that is known, if its square is proved; else the root of what is, rounded up."""
    is_dyadic = known.denominator & (known.denominator - 1) == 0
    if is_dyadic and known.numerator.bit_length() < 512 and square <= known * known:
        return known
    exponent = (square.numerator.bit_length() - square.denominator.bit_length()) // 2 - core.BITS
    return core.scaled(core.root_above(core.ceiling(square, 2 * exponent)), exponent)


def _on_grid(values: Floats, bits: int) -> tuple[list[Any], int]:
    """Integers n of so many bits, and e, with n·2^e near the values."""
    largest = float(np.abs(values).max()) if values.size else 0.0
    exponent = math.frexp(largest)[1] - bits
    return np.rint(np.ldexp(values, -exponent)).astype(np.int64).tolist(), exponent


def _factor(factor: Factor) -> tuple[core.Factor, list[int]]:
    rows, exponent = _on_grid(factor.triangle, _BITS)
    lower = [row[: k + 1] for k, row in enumerate(rows)]
    made = core.Factor(Fraction(factor.shift) * dyadic_value(1, -2 * exponent), lower, factor.exponent + exponent)
    return made, [entry for row in lower for entry in row]


def _steps(network: Network, chain: AnyChain) -> core.Chain | None:
    """In the units of the network; None for a chain of another kind."""
    if not isinstance(chain, tuple) or not chain:
        return None
    gain, found = Fraction(1), []
    for layer, link in zip(network.layers, chain, strict=False):
        if not isinstance(link, ChainLink) or link.step is None or layer.activation is None:
            return None
        gain *= dyadic_value(1, link.exponent)
        found.append(_step(np.arange(len(link.step.v)), link.step.v, link.step.g, gain))
        gain *= layer.activation.lipschitz**2
    return found


def _local_steps(links: Sequence[ShortLink]) -> core.Chain:
    total, found = 0, []
    for link in links:
        total += link.exponent
        found.append(_step(link.kept, link.v, link.g, dyadic_value(1, total)))
    return found


def _step(kept: Any, v: Floats, g: Floats, gain: Fraction) -> core.Step:
    """With v over the root of the gain: S is that many times larger in the units of the network."""
    exponent = (gain.denominator.bit_length() - gain.numerator.bit_length()) // 2 - _ROOT_BITS
    root = core.scaled(math.isqrt(core.floor(1 / gain, 2 * exponent)), exponent)
    wanted = [Fraction(each) * root for each in v.tolist()]
    largest = max(wanted, default=Fraction(0)) or Fraction(1)
    v_exponent = largest.numerator.bit_length() - largest.denominator.bit_length() - _BITS + 1
    numbers = [max(core.floor(each, v_exponent), int(each > 0)) for each in wanted]
    columns, g_exponent = _on_grid(g.T, _FINE)
    return core.Step(np.asarray(kept).tolist(), numbers, v_exponent, columns, g_exponent)
