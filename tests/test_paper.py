"""The source paper's own MNIST model: its published bounds and verdicts against ours.

The files are not part of this repository; without them these tests are skipped. The reference bounds come from a
formally verified program, so agreeing with all of its 10,000 verdicts is evidence that no test of ours could invent.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from intervalcert import Bounds, Network, Verdict, audit, certify_inputs, compute_bounds, load_model
from intervalcert.backends.registry import precision_ladder
from intervalcert.execution.streaming import Outputs, read_outputs, summarise
from intervalcert.proof.decision import Certifier

SHARED = Path(__file__).resolve().parents[2] / "shared"
PAPER = SHARED / "paper"
BACKENDS = ("arb", "exact", "float64")
CLASSES = range(10)
GRAM_STEPS = 11
TIGHT = 1 + Fraction(1, 10**9)

pytestmark = pytest.mark.skipif(
    not PAPER.is_dir(), reason="the source paper's files (shared/paper) are not beside this repository"
)


@cache
def model() -> Network:
    return load_model(PAPER / "mnist_8x128.txt")


@cache
def outputs() -> Outputs:
    return read_outputs(PAPER / "mnist_outputs_eps0.3.txt")


@cache
def bounds_of(backend: str, iterations: int | str = GRAM_STEPS) -> Bounds:
    """By the product of norms: that is what is published."""
    return compute_bounds(model(), backend, iterations, margins="product")


@cache
def verdicts_of(backend: str, iterations: int | str = GRAM_STEPS) -> tuple[Verdict, ...]:
    return verdicts_by(Certifier(bounds_of(backend, iterations).margins.matrix, precision_ladder("arb")))


def verdicts_by(certifier: Certifier) -> tuple[Verdict, ...]:
    rows = zip(outputs().rows, outputs().epsilons or (), strict=True)
    return tuple(certifier.verdict(row, eps, index) for index, (row, eps) in enumerate(rows))


@cache
def svd_margins() -> list[list[Fraction]]:
    """The product bound in float64: what the margins are up to rounding and the excess of Gram iteration."""
    weights = [(layer.weights.numerators / layer.weights.denominator).astype(float) for layer in model().layers]
    body = np.prod([np.linalg.norm(w, 2) for w in weights[:-1]])
    margins = body * np.linalg.norm(weights[-1][:, None, :] - weights[-1][None, :, :], axis=2)
    return [[Fraction(float(x)) for x in row] for row in margins]


def test_the_files_are_those_of_the_paper() -> None:
    network, found = model(), outputs()
    assert [layer.weights.shape for layer in network.layers] == [(128, 784), *[(128, 128)] * 7, (10, 128)]
    assert len(found.rows) == 10_000
    assert set(found.epsilons or ()) == {Fraction(3, 10)}


def check_margins(bounds: Bounds) -> None:
    """From below with 1e-12 for the float SVD, from above with 1e-9 for a grid coarser than the reference's.

    The balls of float64 grow from step to step: 1e-7.
    """
    tight = TIGHT if bounds.method.backend != "float64" else 1 + Fraction(1, 10**7)
    reference = json.loads((PAPER / "mnist_reference_bounds_gram11.json").read_text())
    assert reference["gram_iterations"] == GRAM_STEPS
    for i, j in product(CLASSES, CLASSES):
        published, found = Fraction(reference["lipschitz_bounds"][i][j]), bounds.margins.matrix[i][j]
        assert svd_margins()[i][j] * (1 - Fraction(1, 10**12)) <= found <= published * tight, (i, j, found, published)
        assert (found == 0) == (i == j)


def check_verdicts(verdicts: Sequence[Verdict]) -> None:
    """Line by line those of the verified certifier."""
    published = [json.loads(line) for line in (PAPER / "mnist_certified_gram11.txt").read_text().split()]
    found = [verdict.certified for verdict in verdicts]
    assert sum(found) == sum(published) == 9_574
    assert [index for index, pair in enumerate(zip(found, published, strict=True)) if pair[0] is not pair[1]] == []


def check_accuracy(verdicts: Sequence[Verdict]) -> None:
    """The table of the paper: 98.4 % right, 95.40 % right and certified."""
    archive = SHARED / "data" / "mnist.npz"
    if not archive.is_file():
        pytest.skip("bounds and verdicts agree; the labels (shared/data/mnist.npz) are not beside this repository")
    with np.load(archive) as data:
        labels = [int(label) for label in data["y_test"]]
    summary = summarise(verdicts, labels)
    assert (summary.certified, summary.total, summary.vra) == (9_574, 10_000, 0.954)
    assert summary.accuracy is not None
    assert round(summary.accuracy, 3) == 0.984


@pytest.mark.parametrize("backend", BACKENDS)
def test_chain_margins_certify_more(backend: str) -> None:
    """9,589 of 10,000, and no margin is larger than the product's."""
    plain, chain = (compute_bounds(model(), backend, margins=m) for m in ("product", "chain"))
    for i, j in product(CLASSES, CLASSES):
        assert chain.margins.matrix[i][j] <= plain.margins.matrix[i][j]
    certifier = Certifier(chain.margins.matrix, precision_ladder("arb"))
    assert sum(v.certified for v in verdicts_by(certifier)) == 9_589


@pytest.mark.parametrize("backend", BACKENDS)
def test_bounds_verdicts_and_accuracy_are_the_published_ones(backend: str) -> None:
    check_margins(bounds_of(backend))
    check_verdicts(verdicts_of(backend))
    check_accuracy(verdicts_of(backend))


@pytest.mark.parametrize("backend", BACKENDS)
def test_auto_certifies_at_least_as_many(backend: str) -> None:
    """It takes more steps on this model, so its margins lie between the float norms and the reference too."""
    check_margins(bounds_of(backend, "auto"))
    published = [json.loads(line) for line in (PAPER / "mnist_certified_gram11.txt").read_text().split()]
    found = [verdict.certified for verdict in verdicts_of(backend, "auto")]
    assert sum(found) >= 9_574
    assert [index for index, pair in enumerate(zip(found, published, strict=True)) if pair[1] and not pair[0]] == []


def test_arb_is_at_least_exact_everywhere_and_the_audit_says_so() -> None:
    """The audit recomputes with exact rationals; its numbers are compared here once more, not only its answer."""
    arb = bounds_of("arb")
    assert [layer.iterations for layer in arb.layers] == [GRAM_STEPS] * 9
    assert [layer.skipped_because for layer in arb.layers] == [()] * 9, "arb is to settle this model by itself"
    report = audit(arb, model())
    claimed = [bound for layer in arb.layers for bound in (layer.upper, layer.lower)]
    claimed += [arb.margins.matrix[i][j] for j in CLASSES for i in range(j)]
    assert [claim.claimed for claim in report.claims] == claimed
    for claim in report.claims:
        if claim.what.endswith("lower"):
            assert claim.claimed <= claim.exact, claim
        else:
            assert claim.exact <= claim.claimed <= claim.exact * TIGHT, claim
    assert report.confirmed, report.unconfirmed


def test_biases_change_no_margin() -> None:
    """Not even the published adversarial ones, of the size 1e6: over the reals they cancel in every difference."""
    biased = load_model(PAPER / "mnist_8x128.txt", PAPER / "mnist_biases_1e6_end.txt")
    biases = [layer.bias for layer in biased.layers if layer.bias is not None]
    assert len(biases) == len(biased.sources) + 7 == 9
    assert max(abs(Fraction(x, b.denominator)) for b in biases for x in b.numerators.ravel()) >= 10**5
    assert compute_bounds(biased, "arb", GRAM_STEPS, margins="product").margins == bounds_of("arb").margins


@pytest.mark.skipif(
    not (SHARED / "data" / "mnist.npz").is_file(), reason="the MNIST digits (shared/data/mnist.npz) are absent"
)
def test_local_refinement_certifies_what_the_margins_leave_open() -> None:
    """At 0.3, from the images themselves: 9,645 at least, of which 9,589 by margins alone."""
    with np.load(SHARED / "data" / "mnist.npz", allow_pickle=False) as archive:
        images = archive["x_test"].reshape(10_000, 784)
    bounds = compute_bounds(model(), "float64")
    by_margins = certify_inputs(model(), images, "0.3", bounds=bounds, scale="1/255").certified
    assert by_margins.sum() >= 9_589
    found = certify_inputs(model(), images[~by_margins], "0.3", bounds=bounds, scale="1/255", local=True)
    assert found.locally.sum() == found.certified.sum()
    assert by_margins.sum() + found.certified.sum() >= 9_645
