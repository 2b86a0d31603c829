"""Certifying from inputs: the verdicts are those of exact rationals wherever floats can hold a lead, the same in any
number of processes and blocks, and whatever is wrong with the inputs is said.
"""

import csv
import itertools
import json
import os
import re
import subprocess
import sys
import threading
import time
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path

import ml_dtypes
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import ran
from hypothesis import given, settings
from hypothesis import strategies as st

from intervalcert import (
    InputError,
    InputWarning,
    Network,
    UsageError,
    certify_inputs,
    compute_bounds,
    evaluate,
    load_model,
    save_bounds,
    save_model,
)
from intervalcert.api import verification_job
from intervalcert.execution.processes import verify_batches
from intervalcert.execution.streaming import surveyed
from intervalcert.io.tables import open_rows
from intervalcert.numbers.matrices import RationalMatrix, RationalVector
from intervalcert.numbers.parsing import as_fraction
from intervalcert.numbers.rounding import float_enclosure
from intervalcert.verify.jobs import batches_of
from intervalcert.verify.number_table import Epsilons, NumberTable
from intervalcert.verify.points import PointVerifier
from intervalcert.verify.units import units_of
from intervalcert.verify.verdicts import Verdicts

HINGES = ("relu", "leaky_relu:0.5", "leaky_relu:-0.5", "leaky_relu:2", "hard_tanh", "identity", "clip:0.1:0.5")


def bend(name, x):
    kind, _, parameter = name.partition(":")
    if kind == "hard_tanh":
        return max(Fraction(-1), min(Fraction(1), x))
    if kind == "clip":
        low, high = (None if end.endswith("inf") else Fraction(end) for end in parameter.split(":"))
        x = x if low is None else max(x, low)
        return x if high is None else min(x, high)
    return x if kind == "identity" or x > 0 else x * Fraction(parameter or 0)


def exact_logits(network, x):
    value = list(x)
    for layer in network.layers:
        rows = range(layer.weights.shape[0])
        value = [sum(layer.weights[i, j] * v for j, v in enumerate(value)) for i in rows]
        value = [z + (0 if layer.bias is None else layer.bias[i, 0]) for i, z in enumerate(value)]
        if layer.activation is not None:
            value = [bend(layer.activation.name, z) for z in value]
    return value


def exact_verdict(network, margins, x, eps):
    """The winner, and whether its lead over every other class exceeds what the margins allow."""
    logits = exact_logits(network, x)
    top = logits.index(max(logits))
    return top, all(logits[top] - y > eps * margins[i][top] for i, y in enumerate(logits) if i != top)


def drawn(seed, between="relu", widths=(3, 4, 3), biases=True):
    """Multiples of 1/8: at inputs that are multiples of 1/16, every lead is a float."""
    rng = np.random.default_rng(seed)
    layers = [rng.integers(-16, 17, (rows, columns)) / 8 for columns, rows in itertools.pairwise(widths)]
    return Network.from_arrays(
        layers, [rng.integers(-16, 17, len(w)) / 8 for w in layers] if biases else None, between=between
    )


def some_inputs(seed, width, count):
    return np.random.default_rng(seed).integers(-32, 33, (count, width)) / 16


def as_fractions(array):
    return [[Fraction(float(a)) for a in row] for row in array]


# -- the truth -------------------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    between=st.sampled_from(HINGES),
    hidden=st.lists(st.integers(1, 5), max_size=2),
    eps=st.sampled_from([Fraction(0), Fraction(1, 100), Fraction(1, 8), Fraction(1, 3), Fraction(1)]),
)
def test_the_verdicts_are_those_of_exact_rationals(seed, between, hidden, eps):
    network = drawn(seed, between, (3, *hidden, 3))
    bounds = compute_bounds(network, "float64")
    inputs = some_inputs(seed, 3, 5)
    found = certify_inputs(network, inputs, eps, bounds=bounds, local=False)
    refined = certify_inputs(network, inputs, eps, bounds=bounds, local=True, local_rounds=1)
    for x, plain, local in zip(as_fractions(inputs), found, refined, strict=True):
        top, certified = exact_verdict(network, bounds.margins.matrix, x, eps)
        assert (plain.argmax, plain.certified) == (top, certified)
        assert local.argmax == top
        assert local.certified >= certified
        assert local.locally == (local.certified and not certified)
        if local.locally:
            assert local.radius <= eps, "what was proved is about this radius"


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6), between=st.sampled_from(HINGES))
def test_the_radius_is_certified(seed, between):
    network = drawn(seed, between)
    bounds = compute_bounds(network, "float64")
    inputs = some_inputs(seed, 3, 3)
    found = certify_inputs(network, inputs, 0, bounds=bounds, local=False)
    for x, verdict in zip(as_fractions(inputs), found, strict=True):
        if verdict.certified and np.isfinite(verdict.radius):
            assert exact_verdict(network, bounds.margins.matrix, x, Fraction(verdict.radius))[1]


@pytest.mark.parametrize("between", HINGES)
def test_ties_are_never_certified(between):
    """Two classes with the same weights; two that meet at the input alone; and all of them."""
    same = Network.from_arrays([np.eye(2), [[1.0, 2.0], [1.0, 2.0], [-9.0, 0.0]]], between=between)
    meet = Network.from_arrays([np.eye(2), [[1.0, 0.0], [0.0, 1.0]]], between=between)
    zero = Network.from_arrays([np.zeros((2, 2)), np.ones((3, 2))], between=between)
    for network in (same, meet, zero):
        for eps in ("0", "1e-400", "0.1", "100"):
            found = certify_inputs(network, [[Fraction(1, 2), Fraction(1, 2)]], eps, local=True)[0]
            assert (found.certified, found.radius) == (False, 0.0)


def test_a_lead_that_the_margin_meets_is_not_enough():
    """L = ||(3, 4)|| = 5, found exactly. At (1, 1/2) the lead is 5, so that at eps = 1 it may be gone."""
    network = Network.from_arrays([[[3.0, 4.0], [0.0, 0.0]]])
    bounds = compute_bounds(network, "exact")
    assert bounds.margins.matrix[0][1] == 5
    tiny = Fraction(1, 10**30)
    for eps, certified in ((1 - tiny, True), (Fraction(1), False), (1 + tiny, False)):
        assert certify_inputs(network, [[1, 0.5]], eps, bounds=bounds)[0].certified is certified
    just_above = [[Fraction(1), Fraction(1, 2) + Fraction(1, 2**40)]]
    just_below = [[Fraction(1), Fraction(1, 2) - Fraction(1, 2**40)]]
    assert certify_inputs(network, just_above, 1, bounds=bounds)[0].certified
    assert not certify_inputs(network, just_below, 1, bounds=bounds)[0].certified


def test_a_knife_edge_of_local_refinement():
    """Affine within 10 of (10, 10): the lead is 5 there, its slope 5, and at distance 1 exactly there is a tie."""
    network = Network.from_arrays([np.eye(2) * 1.0, [[3.0, 4.0], [0.0, 0.0]]], [None, [0.0, 65.0]])
    for eps, certified in ((Fraction(999, 1000), True), (Fraction(1), False), (1 + Fraction(1, 10**12), False)):
        assert certify_inputs(network, [[10.0, 10.0]], eps, local=True, scale=1)[0].certified is certified


@pytest.mark.parametrize(
    "biases",
    [
        [2**60 + 1, 2**60 + 2],
        ["1", "1.00000000000000000001"],
        [Fraction(1, 3), Fraction(1, 3) + Fraction(1, 10**30)],
        ["1e400", "2e400"],
        ["0", "1e-400"],
    ],
)
def test_the_winner_is_that_of_exact_rationals(biases):
    """Logits that no float tells apart, or beyond the floats: exact rationals know the winner."""
    network = Network.from_arrays([np.zeros((2, 1), dtype=int)], [biases])
    assert certify_inputs(network, [[0]], 0, local=True)[0].argmax == 1


# -- blocks and processes --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("effort", [None, 2])
def test_blocks_of_any_size_give_the_same(effort):
    """Leads that are not within an error bound of any limit: each verdict is its own."""
    network = drawn(1, "leaky_relu:0.5", (3, 6, 5, 3))
    verifier = PointVerifier(verification_job(network, compute_bounds(network, "float64"), effort))
    rows = NumberTable(some_inputs(1, 3, 23), first=7, work=100)
    epsilons = Epsilons.of([Fraction(k, 40) for k in range(23)], 7)
    found = []
    for step in (1, 2, 7, 23, 64):
        judged = list(verify_batches(verifier, batches_of(rows, network, Fraction(1), epsilons, step)))
        assert sum(block.work for block, _ in judged) == 100
        found.append(Verdicts.joined([verdicts for _, verdicts in judged]))
    for verdicts in found:
        assert verdicts.indices.tolist() == list(range(7, 30))
        assert verdicts.certified.tolist() == found[0].certified.tolist()
        assert verdicts.locally.tolist() == found[0].locally.tolist()
        assert verdicts.argmax.tolist() == found[0].argmax.tolist()
    assert 0 < found[0].certified.sum() < 23
    assert effort is None or found[0].locally.any()


def test_two_processes_give_the_same():
    network = drawn(2, widths=(3, 6, 5, 3))
    inputs, radii = some_inputs(2, 3, 150), [Fraction(k % 40, 60) for k in range(150)]
    alone, together = (certify_inputs(network, inputs, radii, local=True, local_rounds=2, jobs=jobs) for jobs in (1, 2))
    assert alone == together
    assert alone.locally.any()
    assert together.indices.tolist() == list(range(150))


def test_each_input_has_its_own_radius():
    network, inputs = drawn(3), some_inputs(3, 3, 4)
    radii = ["0", "0.1", Fraction(1, 3), 1000]
    found = certify_inputs(network, inputs, radii)
    singly = [certify_inputs(network, x, eps)[0] for x, eps in zip(inputs, radii, strict=True)]
    assert [v.certified for v in found] == [v.certified for v in singly]
    with pytest.raises(InputError, match="4 outputs, but 2 values of eps"):
        certify_inputs(network, inputs, ["0.1", "0.2"])


@pytest.mark.parametrize("fault", ["sums are not rounded to nearest", "BLAS does not round to nearest"])
def test_without_trust_in_floats_the_answers_are_the_same(monkeypatch, fault):
    """Balls and rationals take over. (The true fault cannot be had without changing the process.)"""
    network, inputs = drawn(4, widths=(3, 5, 3)), some_inputs(4, 3, 6)
    bounds = compute_bounds(network, "exact", 5)
    expected = [certify_inputs(network, inputs, "0.2", bounds=bounds, local=local) for local in (False, True)]
    name = "arithmetic_fault" if "sums" in fault else "product_fault"
    monkeypatch.setattr(f"intervalcert.backends.float64.{name}", lambda: fault)
    if "sums" in fault:
        monkeypatch.setattr("intervalcert.verify.vectorised.arithmetic_fault", lambda: fault)
    found = [certify_inputs(network, inputs, "0.2", bounds=bounds, local=local) for local in (False, True)]
    for mine, theirs in zip(found, expected, strict=True):
        assert mine.certified.tolist() == theirs.certified.tolist()
        assert mine.argmax.tolist() == theirs.argmax.tolist()
    margins = bounds.margins.matrix
    exact = [exact_verdict(network, margins, x, Fraction(1, 5)) for x in as_fractions(inputs)]
    assert [(v.argmax, v.certified) for v in found[0]] == exact


# -- what inputs may be ----------------------------------------------------------------------------------------------


def test_bytes_with_a_scale_are_exact():
    """k/255 is no float: with the scale the verdicts are those of the very rationals."""
    network = drawn(5)
    bounds = compute_bounds(network, "float64")
    images = np.random.default_rng(5).integers(0, 256, (20, 3)).astype(np.uint8)
    rationals = [[Fraction(int(k), 255) for k in row] for row in images]
    radii = [Fraction(k, 20) for k in range(20)]
    scaled = certify_inputs(network, images, radii, scale="1/255", bounds=bounds)
    assert scaled == certify_inputs(network, rationals, radii, bounds=bounds)
    assert scaled == certify_inputs(network, images.tolist(), radii, scale=Fraction(1, 255), bounds=bounds)
    assert scaled == certify_inputs(network, images.astype(np.int64), radii, scale="1/255", bounds=bounds)
    assert 0 < scaled.certified.sum() < 20


def test_a_knife_edge_that_only_the_exact_scale_meets():
    """51/255 is 1/5: the logits are equal there, and with the float 0.2 in its place they are not."""
    network = Network.from_arrays([[[5], [0]]], [[0, 1]])
    assert not certify_inputs(network, np.array([[51]]), 0, scale="1/255")[0].certified
    assert certify_inputs(network, np.array([[0.2]]), 0)[0].certified


DTYPES = (np.uint8, np.int8, np.int32, np.int64, np.uint64, np.float16, np.float32, np.float64)
KINDS = {
    **{np.dtype(dtype).name: lambda x, dtype=dtype: np.array(x).astype(dtype) for dtype in DTYPES},
    "objects": lambda x: np.array(x, dtype=object),
    "ints": lambda x: x,
    "floats": lambda x: [list(map(float, row)) for row in x],
    "mixed": lambda x: [[float(row[0]), *row[1:]] for row in x],
    "texts": lambda x: [[f"{value}.0" for value in row] for row in x],
    "fractions": lambda x: [[Fraction(2 * value, 2) for value in row] for row in x],
    "tensor": lambda x: pytest.importorskip("torch").tensor(x, dtype=pytest.importorskip("torch").float32),
}


@pytest.mark.parametrize("kind", KINDS)
def test_whole_numbers_need_a_scale(kind):
    """However they are held. Zeros and ones alone may be anything; with one number that is not whole, none is asked."""
    network, made = drawn(6), KINDS[kind]
    for use in (lambda x, **options: certify_inputs(network, x, "0.1", **options), partial(evaluate, network)):
        for pixels in ([[0, 2, 1], [1, 1, 0]], [[100, 101, 102]], [0, 1, 2]):
            if isinstance(pixels[0], int) and kind not in {"ints", "uint8", "float32", "tensor"}:
                continue
            with pytest.raises(InputError, match=r"whole numbers, from \d+ to \d+\. .*scale"):
                use(made(pixels))
            assert use(made(pixels), scale=1).input_range == (np.min(pixels), np.max(pixels))
        assert use(made([[0, 1, 1], [1, 0, 0]])).input_range == (0, 1)
    if kind not in {"ints", "uint8", "uint64"}:
        with pytest.raises(InputError, match="whole numbers, from -2 to 1"):
            evaluate(network, made([[0, -2, 1]]))


def test_one_number_that_is_not_whole_is_enough():
    half = "100000000000000000000.5"  # the float next to it is whole
    for x in (
        [[200, 3, 0.5]],
        [["200", "3", "1/3"]],
        [[200, 3, half]],
        np.array([[200, 3, 0.5]]),
        [[2**60, Fraction(1, 2**80), 1]],
    ):
        assert evaluate(drawn(6), x).input_range is not None


@pytest.mark.parametrize("x", [2**53 + 1, 2**60, 2**200, 10**400])
def test_large_whole_numbers_need_a_scale_too(x):
    """Beyond 2^53 they are held in another way, beyond 2^1024 they are no floats: which must not make a difference."""
    with pytest.raises(InputError, match="scale"):
        certify_inputs(drawn(6), [[x, 0, 0]], "0.1")
    if x < 2**63:
        with pytest.raises(InputError, match="scale"):
            certify_inputs(drawn(6), np.full((2, 3), x), "0.1")


def test_numbers_that_were_scaled_before_give_a_warning():
    network, x = drawn(6), np.array([[0.5, 0.25, 1.0]], dtype=np.float32)
    for use in (lambda **options: certify_inputs(network, x, "0.1", **options), partial(evaluate, network, x)):
        with pytest.warns(InputWarning, match="255 times smaller: were they scaled before"):
            found = use(scale="1/255")
        assert found.input_range == float_enclosure(Fraction(1, 4 * 255), Fraction(1, 255))
        assert use(scale="1/2").input_range == (0.125, 0.5)
    with pytest.warns(InputWarning, match="makes all numbers 0"):
        evaluate(network, x, scale=0)
    assert evaluate(network, np.zeros((1, 3), dtype=np.uint8), scale="1/255").input_range == (0, 0)
    assert evaluate(network, x * 2, scale="1/255").input_range is not None


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.lists(
            st.sampled_from(["0", "1e-400", "-1e-400", "1e400", "0.1", "1/3", "-7", "2", "1e22"]),
            min_size=2,
            max_size=2,
        ),
        min_size=1,
        max_size=4,
    ),
    st.sampled_from([Fraction(1), Fraction(1, 255), Fraction(-3, 2)]),
)
def test_the_range_is_exact(rows, scale):
    """Of numbers that no float holds, too; and its floats are rounded outward."""
    network = Network.from_arrays([np.eye(2)])
    numbers = [[as_fraction(x) for x in row] for row in rows]
    exact = [x * scale for row in numbers for x in row]
    table = NumberTable(
        np.array([[float_enclosure(x, x)[0] for x in row] for row in numbers]),
        None,
        lambda row, columns: RationalVector.from_fractions([numbers[row][k] for k in columns]),
    )
    found = units_of([table, table], network, scale)
    assert (found.scale, found.low, found.high) == (scale, min(exact), max(exact))
    assert found.floats[0] <= found.low <= found.high <= found.floats[1]


def test_large_whole_numbers_are_exact():
    network = Network.from_arrays([[[1, 0], [0, 1]]])
    found = certify_inputs(network, np.array([[2**62 + 1, 2**62]]), "0.5", scale=1)[0]
    assert (found.argmax, found.certified) == (0, True)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floats_are_their_exact_values(dtype):
    network = Network.from_arrays([[[1], [0]]], [[0, Fraction(1, 10)]])
    tenth = np.array([[0.1]], dtype=dtype)
    assert certify_inputs(network, tenth, 0)[0].argmax == (0 if Fraction(float(tenth[0, 0])) > Fraction(1, 10) else 1)


IMAGE = (1, 2, 3)
IMAGES = np.random.default_rng(8).integers(1, 100, (5, *IMAGE)) / 128


def of_images(shape=IMAGE):
    return replace(drawn(8, widths=(6, 4, 3)), shape=shape)


def test_images_are_taken_as_they_are():
    """One after the other, the last index running fastest, as the model flattens them. (The last digits of a radius
    depend on the block.)
    """
    flat = IMAGES.reshape(5, 6)
    expected = certify_inputs(of_images(), flat, "0.1")
    logits = evaluate(of_images(), flat)
    for images in (IMAGES, np.asfortranarray(IMAGES), IMAGES.astype(np.float32), IMAGES[::-1][::-1], flat):
        assert certify_inputs(of_images(), images, "0.1") == expected
        assert (evaluate(of_images(), images).lower[-1] == logits.lower[-1]).all()
    for one in (IMAGES[2], IMAGES[2:3], flat[2], flat[2:3]):
        assert certify_inputs(of_images(), one, "0.1")[0].radius == pytest.approx(expected[2].radius, rel=1e-9)
    pixels = (IMAGES * 128).astype(np.uint8)
    assert certify_inputs(of_images(), pixels, "0.1", scale="1/128") == expected
    lying = replace(of_images(), shape=(6, 1))
    assert certify_inputs(lying, flat[..., None], "0.1") == expected
    assert certify_inputs(lying, flat[2][:, None], "0.1")[0].radius == pytest.approx(expected[2].radius, rel=1e-9)


@pytest.mark.parametrize(
    "shape",
    [(5, 2, 3), (2, 3), (5, 1, 3, 2), (5, 6, 1), (1, 1, 1, 2, 3), (5, 1, 1, 2, 3), (0, 1, 2, 3), (5, 7), (6, 5), ()],
)
def test_images_of_another_shape_are_refused(shape, folder):
    """Both shapes are named."""
    images = np.full(shape, 0.5)
    expected = re.escape(f"an array of shape {shape} where (n, 1, 2, 3) or (n, 6) is expected")
    for use in (lambda: certify_inputs(of_images(), images, "0.1"), lambda: evaluate(of_images(), images)):
        with pytest.raises(InputError, match=expected):
            use()
    save_model(of_images(), "images.npz")
    np.save("images.npy", images)
    code, _, err = folder("certify", "--model", "images.npz", "--inputs", "images.npy", "--eps", "0.1", "--jobs", "1")
    assert code == 3
    assert re.search(expected if shape and 0 not in shape else "non-empty", err)
    with pytest.raises(InputError, match=r"shape \(5, 1, 2, 3\) where \(n, 6\) is expected"):
        certify_inputs(of_images(None), IMAGES, "0.1")
    with pytest.raises(InputError, match=r"row 0, entry 0: a list where a number is expected"):
        certify_inputs(of_images(), IMAGES.tolist(), "0.1")


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["float64", "float32", "uint8", "bfloat16"])
def test_files_of_images(folder, monkeypatch, order, dtype):
    monkeypatch.setattr("intervalcert.io.tables.numpy_rows.CHUNK_CELLS", 12)
    save_model(of_images(), "images.npz")
    options = ("--input-scale", "1/128") if dtype == "uint8" else ("--dtype", "bfloat16") if dtype == "bfloat16" else ()
    made = IMAGES * 128 if dtype == "uint8" else IMAGES
    made = made.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)
    expected = certify_inputs(of_images(), IMAGES, "0.1")
    for images, some in ((made, expected), (made[1], expected[1:2]), (made.reshape(5, 6), expected)):
        np.save("images.npy", np.asarray(images, order=order))
        command = ("certify", "--model", "images.npz", "--inputs", "images.npy", "--eps", "0.1", "--jobs", "1")
        assert folder(*command, *options, "-o", "found.npy")[0] == 0
        found = np.load("found.npy")
        assert found["argmax"].tolist() == some.argmax.tolist()
        assert found["radius"] == pytest.approx(some.radius, rel=1e-9)
        code, out, _ = folder("evaluate", "images.npz", "images.npy", *options)
        assert (code, len(out.splitlines())) == (0, len(some) + 1)


def test_tensors_are_their_numbers():
    """With or without a gradient; what numpy cannot read is refused with what to do."""
    torch = pytest.importorskip("torch")
    network, expected = of_images(), certify_inputs(of_images(), IMAGES, "0.1")
    tensor = torch.tensor(IMAGES)
    for images in (tensor, tensor.clone().requires_grad_(), torch.nn.Parameter(tensor), tensor.requires_grad_() * 1):
        assert certify_inputs(network, images, "0.1") == expected
        assert certify_inputs(network, images, torch.full((5,), 0.1)).certified.shape == (5,)
        assert (evaluate(network, images).lower[-1] == evaluate(network, IMAGES).lower[-1]).all()
    weights = torch.eye(2, requires_grad=True)
    assert Network.from_arrays([weights]).inputs == 2
    for images in (torch.zeros((5, *IMAGE), device="meta"), tensor.bfloat16(), torch.eye(6).to_sparse()):
        with pytest.raises(InputError, match=r"a Tensor that gives no array: .*\.cpu\(\)"):
            certify_inputs(network, images, "0.1")


REFUSED = [
    (np.zeros((2, 4)), "4 numbers per input, but the model takes 3"),
    (np.zeros(4), "4 numbers per input, but the model takes 3"),
    ([[1, 2]], "2 numbers per input, but the model takes 3"),
    ([[1, 2, 3], [1, 2]], "row 1 has 2 numbers"),
    (np.array([[0.0, 1.0, 2.0], [0.0, np.nan, 1.0]]), "nan in row 1, column 1; every number must be finite"),
    (np.array([[0.0, 1.0, -np.inf]]), "-inf in row 0, column 2; every number must be finite"),
    ([[1.0, float("nan"), 2.0]], "nan is not a finite number"),
    (np.zeros((0, 3)), r"shape \(0, 3\)"),
    (np.zeros((3, 0)), r"shape \(3, 0\)"),
    (np.zeros((2, 3, 1)), r"shape \(2, 3, 1\)"),
    ([], "non-empty list"),
    (np.array([["a", "b", "c"]]), "numbers of type"),
    (np.ones((1, 3), dtype=bool), "numbers of type bool"),
    (np.ones((1, 3), dtype=complex), "numbers of type complex"),
    (np.ma.masked_array(np.zeros((1, 3)), mask=True), "masked"),
    ([[True, 1, 2]], "truth value"),
]


@pytest.mark.parametrize(("inputs", "says"), REFUSED, ids=[str(k) for k in range(len(REFUSED))])
def test_inputs_that_are_refused(inputs, says):
    with pytest.raises(InputError, match=says) as caught:
        certify_inputs(drawn(7), inputs, "0.1")
    assert "logits" not in str(caught.value)


@pytest.mark.parametrize("inputs", [np.zeros((0, 3)), np.zeros((2, 3, 1)), [], [[1, 2, "x"]]])
def test_a_refusal_speaks_of_inputs(inputs):
    with pytest.raises(InputError, match="input"):
        certify_inputs(drawn(7), inputs, "0.1")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"eps": "-0.1"}, "must not be negative"),
        ({"eps": "nan"}, "not a finite number"),
        ({"eps": float("inf")}, "not a finite number"),
        ({"scale": "0.1.2"}, "not a decimal"),
        ({"scale": float("nan")}, "not a finite"),
        ({"scale": True}, "truth value"),
    ],
)
def test_numbers_that_are_refused(options, says):
    with pytest.raises(InputError, match=says):
        certify_inputs(drawn(7), np.zeros((1, 3)), **{"eps": "0.1", **options})


@pytest.mark.parametrize("rounds", [-1, 1001, 2.0, "3", True])
@pytest.mark.parametrize("word", ["local_rounds", "effort"])
def test_local_rounds_that_are_none(rounds, word):
    with pytest.raises(UsageError, match="local rounds"):
        certify_inputs(drawn(7), np.zeros((1, 3)), "0.1", local=True, **{word: rounds})


def test_local_rounds_have_an_old_word():
    network, inputs = drawn(2, widths=(3, 6, 5, 3)), some_inputs(2, 3, 40)
    by_word = [certify_inputs(network, inputs, "0.4", local=True, **{word: 2}) for word in ("local_rounds", "effort")]
    assert by_word[0] == by_word[1]
    assert by_word[0].locally.any()
    with pytest.raises(UsageError, match="effort is the old word for local_rounds"):
        certify_inputs(network, inputs, "0.4", local=True, local_rounds=2, effort=2)


def test_bounds_of_another_model_are_refused():
    with pytest.raises(InputError, match="of another model"):
        certify_inputs(drawn(8), np.zeros((1, 3)), "0.1", bounds=compute_bounds(drawn(9), "float64"))
    leaky = compute_bounds(drawn(8, "leaky_relu:0.5"), "float64")
    with pytest.raises(InputError):
        certify_inputs(drawn(8), np.zeros((1, 3)), "0.1", bounds=leaky)


@pytest.mark.parametrize("scale", [1e-300, 1e-150, 1e150, 1e300])
@pytest.mark.parametrize("biases", [True, False])
def test_sizes_at_the_ends_of_the_floats(scale, biases):
    """Verdicts as of exact rationals, or none; no exception, no warning. (Of positive homogeneous networks it is known:
    without biases, they are the ones of the same network at another scale.)
    """
    plain = drawn(10, widths=(3, 4, 4, 3), biases=biases)
    factor = Fraction(scale)
    weights = [
        RationalMatrix(w.numerators * factor.numerator, w.denominator * factor.denominator) for w in weights_of(plain)
    ]
    network = Network.of(weights, [layer.bias for layer in plain.layers] if biases else None)
    bounds = compute_bounds(network, "float64")
    inputs = some_inputs(10, 3, 4)
    for eps in ("0", "0.01", "1e300", "1e-400", "1e400"):
        found = certify_inputs(network, inputs, eps, bounds=bounds, local=True)
        for x, verdict in zip(as_fractions(inputs), found, strict=True):
            top, _ = exact_verdict(network, bounds.margins.matrix, x, Fraction(0))
            assert not verdict.certified or verdict.argmax == top


def weights_of(network):
    return [layer.weights for layer in network.layers]


@pytest.mark.parametrize("x", ["1e400", "-1e308", "1e-400"])
def test_inputs_at_the_ends_of_the_floats(x):
    assert len(certify_inputs(drawn(11), [[x, x, "1"]], "0.1", local=True, scale=1)) == 1


def test_networks_that_hardly_are_ones():
    """Zero layers, zero rows, dead layers, one neuron: verdicts as exact rationals have them, at every radius."""
    nothing = np.zeros((2, 2))
    cases = [
        Network.from_arrays([nothing, np.eye(2)], [None, [1.0, 0.0]]),
        Network.from_arrays([np.eye(2), nothing, np.eye(2)], [None, [0.0, 0.0], [0.0, 1.0]]),
        Network.from_arrays([np.eye(2), nothing]),
        Network.from_arrays([[[1.0, 0.0], [0.0, 0.0]], [[1.0, 1.0], [0.0, 0.0]]], [None, [0.0, 0.25]]),
        Network.from_arrays([np.eye(2), np.eye(2)], [[-100.0, -100.0], [1.0, 0.0]]),
        Network.from_arrays([[[1.0, 1.0]], [[1.0]], [[1.0], [-1.0]]], [[0.5], [0.25], None]),
        Network.from_arrays([[[1.0, 0.0], [0.0, 1.0]]], [[1e300, -1e300]]),
    ]
    for network in cases:
        bounds = compute_bounds(network, "float64")
        inputs = some_inputs(1, 2, 3)
        for eps in (Fraction(0), Fraction(1, 10), Fraction(10), Fraction(10) ** 6):
            found = certify_inputs(network, inputs, eps, bounds=bounds, local=True)
            for x, verdict in zip(as_fractions(inputs), found, strict=True):
                top, certified = exact_verdict(network, bounds.margins.matrix, x, eps)
                assert verdict.argmax == top
                assert verdict.certified >= certified
                if verdict.locally:  # the two extreme inputs along each axis, and across
                    steps = itertools.product((-eps, 0, eps), repeat=2)
                    near = [[a + d * Fraction(7, 10) for a, d in zip(x, step, strict=True)] for step in steps]
                    for u in near:
                        logits = exact_logits(network, u)
                        assert all(logits[top] > y for i, y in enumerate(logits) if i != top)


# -- the command line ------------------------------------------------------------------------------------------------

MODEL = "[[1.0,2.0],[3.0,4.0]],[[0.5,0.25,-1],[1,1,2]]"


@pytest.fixture
def folder(tmp_path, monkeypatch, capsys):
    """A model, its bounds, inputs as floats, bytes and text, and labels; and a way to run a command among them."""
    monkeypatch.chdir(tmp_path)
    Path("model.txt").write_text(MODEL)
    network = load_model("model.txt")
    save_bounds(compute_bounds(network, "float64"), "bounds.json")
    inputs = np.array([[1.0, 2.0], [-1.0, 0.5], [0.0, 0.0], [3.0, -1.0]])
    np.save("x.npy", inputs)
    np.save("bytes.npy", np.arange(8, dtype=np.uint8).reshape(4, 2) * 30)
    np.savetxt("x.csv", inputs, delimiter=",", fmt="%.3f")
    Path("labels.txt").write_text("2\n2\n0\n1\n")
    np.save("y.npy", np.ones((4, 3)))

    def run(*argv):
        code, out, err = ran(capsys, *argv)
        assert "Traceback" not in err, err
        return code, out, err

    return run


FROM_INPUTS = ("certify", "--model", "model.txt", "--inputs")

USAGE = {
    "local without inputs": (("certify", "bounds.json", "y.npy", "--eps", "0.1", "--local"), "--local"),
    "outputs and inputs": (("certify", "bounds.json", "y.npy", "--inputs", "x.npy", "--model", "model.txt"), "exclude"),
    "inputs without a model": (("certify", "--inputs", "x.npy", "--eps", "0.1"), "--model"),
    "model without inputs": (("certify", "bounds.json", "y.npy", "--model", "model.txt"), "--inputs"),
    "rounds without inputs": (("certify", "bounds.json", "y.npy", "--local-rounds", "3"), "--local-rounds goes with"),
    "effort without inputs": (("certify", "bounds.json", "y.npy", "--effort", "3"), "--inputs"),
    "jobs without inputs": (("certify", "bounds.json", "y.npy", "--jobs", "2"), "--inputs"),
    "scale without inputs": (("certify", "bounds.json", "y.npy", "--input-scale", "1"), "--inputs"),
    "biases without inputs": (("certify", "bounds.json", "y.npy", "--biases", "b.txt"), "--inputs"),
    "nothing": (("certify",), "BOUNDS and OUTPUTS"),
    "bounds alone": (("certify", "bounds.json"), "BOUNDS and OUTPUTS"),
    "no radius": ((*FROM_INPUTS, "x.npy"), "--eps"),
    "effort of a word": ((*FROM_INPUTS, "x.npy", "--eps", "1", "--effort", "much"), "whole number"),
    "negative jobs": ((*FROM_INPUTS, "x.npy", "--eps", "1", "--jobs", "-2"), ""),
    "rounds without local": ((*FROM_INPUTS, "x.npy", "--eps", "1", "--local-rounds", "3"), "say --local"),
    "both words": (
        (*FROM_INPUTS, "x.npy", "--eps", "1", "--local", "--local-rounds", "3", "--effort", "3"),
        "--effort",
    ),
    "too many rounds": ((*FROM_INPUTS, "x.npy", "--eps", "1", "--local", "--local-rounds", "5000"), "local rounds"),
    "too much effort": ((*FROM_INPUTS, "x.npy", "--eps", "1", "--local", "--effort", "5000"), "local rounds"),
}


@pytest.mark.parametrize("case", USAGE)
def test_usage(folder, case):
    argv, says = USAGE[case]
    code, out, err = folder(*argv)
    assert (code, out) == (2, "")
    assert says in err


REFUSED_FILES = {
    "bytes without a scale": (("bytes.npy", "--eps", "1"), "scale"),
    "a scale of a word": (("bytes.npy", "--eps", "1", "--input-scale", "x"), "--input-scale"),
    "a scale over zero": (("bytes.npy", "--eps", "1", "--input-scale", "1/0"), "--input-scale"),
    "a negative radius": (("x.npy", "--eps", "-1"), "negative"),
    "logits for inputs": (("y.npy", "--eps", "1"), "3 numbers per input, but the model takes 2"),
    "no such file": (("nowhere.npy", "--eps", "1"), "nowhere.npy"),
    "groups": (("x.npy", "--eps", "1", "--activation", "group_sort"), "certify given logits instead"),
    "not piecewise linear": (("x.npy", "--eps", "1", "--local", "--activation", "tanh"), "piecewise linear"),
    "too few labels": (("x.npy", "--eps", "1", "--labels", "few.txt"), "labels"),
    "nan": (("nan.npy", "--eps", "1"), "row 1, column 0"),
    "empty": (("empty.npy", "--eps", "1"), "empty.npy"),
}


@pytest.mark.parametrize("case", REFUSED_FILES)
def test_files_that_are_refused(folder, case):
    np.save("nan.npy", np.array([[1.0, 1.0], [np.nan, 1.0]]))
    np.save("empty.npy", np.zeros((0, 2)))
    Path("few.txt").write_text("1\n")
    argv, says = REFUSED_FILES[case]
    code, out, err = folder(*FROM_INPUTS, *argv, "--jobs", "1", "-o", "out.csv")
    assert (code, out) == (3, "")
    assert says in err
    assert err.count("\n") == 1
    assert not Path("out.csv").exists()


def test_bounds_of_another_model_on_the_command_line(folder):
    Path("other.txt").write_text(MODEL.replace("4.0", "5.0"))
    code, _, err = folder("certify", "bounds.json", "--model", "other.txt", "--inputs", "x.npy", "--eps", "0.1")
    assert code == 3
    assert "another model" in err


def test_all_it_prints_and_writes(folder):
    """The same numbers as from the function, by whatever way they come out; with and without the bounds file."""
    expected = certify_inputs(load_model("model.txt"), np.load("x.npy"), "0.2", local=True)
    options = (
        "--eps",
        "0.2",
        "--local",
        "--local-rounds",
        "5",
        "--jobs",
        "1",
        "--labels",
        "labels.txt",
        "--json",
        "-o",
        "v.csv",
    )
    for argv in (
        (*FROM_INPUTS, "x.npy"),
        (*FROM_INPUTS, "x.csv"),
        ("certify", "bounds.json", *FROM_INPUTS[1:], "x.npy"),
    ):
        code, out, err = folder(*argv, *options)
        assert (code, err) == (0, "wrote v.csv\n")
        found = json.loads(out)
        assert found["certified"] == expected.certified.sum()
        assert found["certified_locally"] == expected.locally.sum()
        assert (found["total"], found["eps"], found["semantics"]) == (4, "0.2", "real")
        right = expected.argmax == [2, 2, 0, 1]
        assert found["accuracy"] == right.sum() / 4
        assert found["vra"] == (right & expected.certified).sum() / 4
        rows = list(csv.DictReader(Path("v.csv").read_text().splitlines()))
        assert [row["verdict"] == "certified" for row in rows] == expected.certified.tolist()
        assert [int(row["argmax"]) for row in rows] == expected.argmax.tolist()


def test_check_and_the_table(folder):
    code, out, err = folder(*FROM_INPUTS, "x.npy", "--eps", "1000", "--jobs", "1", "--check")
    assert (code, err) == (1, "")
    assert "0 of 4" in out
    np.save("one.npy", np.array([[1.0, 2.5]]))
    assert folder(*FROM_INPUTS, "one.npy", "--eps", "1e-9", "--jobs", "1", "--check")[0] == 0


def test_a_scale_on_the_command_line(folder):
    _, out, _ = folder(*FROM_INPUTS, "bytes.npy", "--eps", "0.05", "--input-scale", "1/255", "--jobs", "1", "--json")
    rationals = [[Fraction(int(k), 255) for k in row] for row in np.load("bytes.npy")]
    expected = certify_inputs(load_model("model.txt"), rationals, "0.05", local=False)
    assert json.loads(out)["certified"] == expected.certified.sum()


@pytest.mark.parametrize("eps", ["1e400", "1e-400", "0", "1e308"])
def test_any_radius_on_the_command_line(folder, eps):
    """As many digits as are read; a fault of the program would be 70."""
    code, out, _ = folder(*FROM_INPUTS, "x.npy", "--eps", eps, "--local", "--jobs", "1", "--json")
    assert code == 0
    assert json.loads(out)["total"] == 4


def test_a_first_line_of_names_is_said_to_be_one(folder):
    """As of outputs: a line that is left out is not left out in silence."""
    Path("named.csv").write_text("width,height\n1,2\n-1,0.5\n")
    code, out, err = folder(*FROM_INPUTS, "named.csv", "--eps", "0.1", "--jobs", "1", "--json")
    assert code == 0
    assert json.loads(out)["total"] == 2
    assert "taken for a header" in err


def test_two_processes_on_the_command_line(folder):
    """A whole run in a process of its own, whose workers are gone with it."""
    np.save("many.npy", np.random.default_rng(0).standard_normal((200, 2)))
    argv = (*FROM_INPUTS, "many.npy", "--eps", "0.2", "--local", "--json")
    done = subprocess.run(
        [sys.executable, "-m", "intervalcert", *argv, "--jobs", "2"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    code, out, _ = folder(*argv, "--jobs", "1")
    assert code == 0
    assert json.loads(done.stdout) == json.loads(out)
    assert done.stderr == ""


def saved(array, ending):
    """A table of that kind. Decimals of csv files have a point if the numbers are floats."""
    path = Path(f"table{ending}")
    if ending == ".csv":
        path.write_text("".join(",".join(map(str, row)) + "\n" for row in array.tolist()))
    elif ending == ".npy":
        np.save(path, array)
    else:
        pq.write_table(pa.table({f"c{k}": array[:, k] for k in range(array.shape[1])}), path)
    return path


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float32", "float64"])
@pytest.mark.parametrize("ending", [".csv", ".parquet", ".npy"])
def test_whole_numbers_of_every_kind_of_table_need_a_scale(folder, monkeypatch, ending, dtype):
    """Pixels that are read as they stand would be certified at a radius of no meaning. All are looked at first."""
    for module in ("numpy_rows", "parquet_rows"):
        monkeypatch.setattr(f"intervalcert.io.tables.{module}.CHUNK_CELLS", 4)
    monkeypatch.setattr("intervalcert.io.tables.text_rows.BLOCK_BYTES", 16)
    pixels = np.array([[0, 1], [1, 1], [1, 0], [0, 0], [128, 255], [3, 200]] * 3).astype(dtype)
    path = saved(pixels, ending)
    for command in ((*FROM_INPUTS, path, "--eps", "0.1", "--jobs", "1"), ("evaluate", "model.txt", path)):
        code, out, err = folder(*command, "-o", "out.csv")
        assert (code, out, err.count("\n")) == (3, "", 1)
        assert "whole numbers, from 0 to 255" in err
        assert "--input-scale" in err
        assert not Path("out.csv").exists()
        assert folder(*command, "--input-scale", "1")[0] == 0
    for scale, ends in (("1/255", [0, 1]), ("1", [0, 255]), ("-1/3", [-85, 0])):
        code, out, _ = folder(*FROM_INPUTS, path, "--eps", "0.1", "--jobs", "1", "--json", "--input-scale", scale)
        assert code == 0
        assert (json.loads(out)["total"], json.loads(out)["input_range"]) == (18, ends)
    for place in (0, -1):  # one number of all decides
        changed = pixels.astype(float)
        changed[place, place] = 0.5
        assert folder(*FROM_INPUTS, saved(changed, ending), "--eps", "0.1", "--jobs", "1")[0] == 0


def test_the_range_of_the_inputs_is_printed(folder):
    _, out, _ = folder(*FROM_INPUTS, "x.npy", "--eps", "0.1", "--jobs", "1")
    assert re.search(r"inputs +-1 to 3 +as they are given", out)
    _, out, err = folder(*FROM_INPUTS, "bytes.npy", "--eps", "0.1", "--jobs", "1", "--input-scale", "1/256")
    assert re.search(r"inputs +0 to 0\.820313 +after scaling by 0\.00390625", out)
    assert err == ""
    _, _, err = folder("evaluate", "model.txt", "x.csv")
    assert err == "inputs from -1 to 3, as they are given\n"
    Path("large.csv").write_text("1e400,0.5\n0,-1e-400\n")
    _, out, _ = folder(*FROM_INPUTS, "large.csv", "--eps", "0.1", "--jobs", "1", "--json")
    assert json.loads(out)["input_range"] == [-5e-324, None]
    _, out, _ = folder("certify", "bounds.json", "y.npy", "--eps", "0.1", "--json")
    assert json.loads(out)["input_range"] is None


def test_inputs_that_were_scaled_before_are_remarked(folder):
    np.save("scaled.npy", np.array([[0.5, 1.0], [0.25, 0.0]], dtype=np.float32))
    for command in (
        (*FROM_INPUTS, "scaled.npy", "--eps", "0.1", "--jobs", "1"),
        ("evaluate", "model.txt", "scaled.npy"),
    ):
        code, _, err = folder(*command, "--input-scale", "1/255")
        assert code == 0
        assert "scaled.npy: no number is beyond ±1, and the scale makes them all 255 times smaller" in err
        assert "smaller" not in folder(*command)[2]


@pytest.mark.parametrize(
    "command", [(*FROM_INPUTS, "f.npy", "--eps", "0.1", "--jobs", "1"), ("evaluate", "model.txt", "f.npy")]
)
def test_a_box_is_met_exactly(folder, command):
    """The float32 next to 1/10 is above it, and the one next to 3/10, too; twice it is above 6/10."""
    np.save("f.npy", np.array([[0.25, 0.125], [0.1, 0.3], [0.2, 0.2]], dtype=np.float32))
    for box in (("0.1", "0.31"), ("0", "1"), ("-1", "1e400"), ("1/10", "3/8")):
        assert folder(*command, "--input-box", *box)[0] == 0
    for box, options, place in (
        (("0.1", "0.3"), (), "row 1, column 1"),
        (("0.101", "0.31"), (), "row 1, column 0"),
        (("0.2", "0.25"), (), "row 0, column 1"),
        (("0", "0.6"), ("--input-scale", "2"), "row 1, column 1"),
        (("0", "1"), ("--input-scale", "-1"), "row 0, column 0"),
    ):
        code, out, err = folder(*command, "--input-box", *box, *options, "-o", "out.csv")
        assert (code, out) == (3, "")
        assert place in err
        assert "is not between" in err
        assert not Path("out.csv").exists()
    for box in (("1", "0"), ("x", "1"), ("0", "nan")):
        assert folder(*command, "--input-box", *box)[0] == 3


def test_a_box_is_met_by_decimals_that_no_float_holds(folder):
    Path("x.csv").write_text("0.1,1e-400\n0.30000000000000000000001,0\n")
    command = (*FROM_INPUTS, "x.csv", "--eps", "0.1", "--jobs", "1", "--input-box", "0")
    assert folder(*command, "0.30000000000000000000001")[0] == 0
    code, _, err = folder(*command, "0.3")
    assert code == 3
    assert "30000000000000000000001/100000000000000000000000 in row 1, column 0 is not between 0 and 0.3" in err
    assert folder(*command[:-1], "1e-401", "1")[0] == 3
    Path("x.csv").write_text(f"0.{'3' * 1400},0\n-1e400,2\n")
    for box in (("1e-999", "1"), ("0", "0.2"), ("-1", "1")):
        code, _, err = folder(*command[:-1], *box)
        assert code == 3
        assert len(err) < 200, "a long number is shortened"


def piped(text):
    """A pipe with that text in it."""
    os.mkfifo("pipe")
    threading.Thread(target=Path("pipe").write_text, args=(text,), daemon=True).start()


def test_a_pipe_is_read_once(folder, monkeypatch):
    text = Path("x.csv").read_text()
    command = (*FROM_INPUTS, "pipe", "--eps", "0.2", "--jobs", "1", "--json")
    expected = folder(*FROM_INPUTS, "x.csv", *command[5:])
    piped(text)
    assert folder(*command) == expected
    Path("pipe").unlink()
    piped("1,2\n3,4\n")
    code, out, err = folder(*command)
    assert (code, out) == (3, "")
    assert "whole numbers" in err
    Path("pipe").unlink()
    monkeypatch.setattr("intervalcert.execution.streaming.MAX_HELD", 7)
    piped(text)
    code, _, err = folder(*command)
    assert code == 3
    assert "write them to a file" in err


def test_a_file_that_changes_between_the_two_looks_is_refused(folder):
    network = load_model("model.txt")
    source, units = surveyed(Path("x.npy"), lambda: open_rows("x.npy", shape=(2,)), network, None)
    assert (units.low, units.high) == (-1, 3)
    np.save("x.npy", np.full((4, 2), 255.0))
    with pytest.raises(InputError, match="changed while it was read"):
        list(source.chunks)


def test_the_winner_is_proved_even_where_nothing_can_be_certified():
    """A value that only exact rationals tell from zero decides who wins."""
    layers = [[[2**300], [1]], [[1, 0], [0, 2], [0, 0]]]
    network = Network.from_arrays(layers, [[0, 0], [0, 1, "0.5"]], between="hard_tanh")
    assert certify_inputs(network, [["0.9"]], "0.1")[0].argmax == 1


def test_verdicts_say_what_they_are_about():
    network, x = drawn(6), np.ones((2, 3)) / 4
    found = {name: certify_inputs(network, x, "0.01", deployed=name) for name in ("real", "float32")}
    assert {name: verdicts.semantics for name, verdicts in found.items()} == {"real": "real", "float32": "float32"}
    assert found["float32"][:1].semantics == "float32"
    assert found["float32"].eps_space == "input"


def test_workers_end_with_a_parent_that_is_killed(tmp_path):
    """It cannot tell them; they would hold its files and its pipes for ever."""
    np.savez(tmp_path / "model.npz", W0=np.eye(40), W1=np.ones((2, 40)) * np.array([[1.0], [-1.0]]))
    np.save(tmp_path / "x.npy", np.random.default_rng(1).standard_normal((200_000, 40)) / 50)
    command = [sys.executable, "-m", "intervalcert", "certify", "--model", "model.npz", "--inputs", "x.npy"]
    started = subprocess.Popen(
        [*command, "--eps", "0.1", "--local", "--jobs", "2"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    time.sleep(4)
    assert started.poll() is None, "it is to be killed while it works"
    started.kill()
    started.communicate(timeout=20)  # returns when nobody holds the pipes any more
