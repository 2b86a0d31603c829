"""The public functions: they choose the number systems, run the core, and give plain frozen objects back."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from os import PathLike
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from intervalcert.backends.registry import AUTO, DEFAULT_PREC, get_backend, precision_ladder
from intervalcert.bounds.audit import AuditReport, audit_bounds, check_same_model
from intervalcert.bounds.margin_bounds import MAX_ROUNDS, MarginMethod, MarginPlan, layer_bounds, network_bounds
from intervalcert.bounds.norm_bounds import NormMethod, Plan
from intervalcert.bounds.results import Bounds, Method
from intervalcert.errors import InputError, InputWarning, UsageError
from intervalcert.execution.radii import bracketed_inputs
from intervalcert.execution.streaming import outputs_of, table_of, verified_inputs
from intervalcert.io.bounds_file import witnesses_of
from intervalcert.io.models import load_model
from intervalcert.model.evaluation import check_evaluable, is_rational
from intervalcert.model.network import Network
from intervalcert.model.single import Single
from intervalcert.numbers.float_formats import get_format
from intervalcert.numbers.parsing import as_fraction, is_flat, is_listed, plain_array
from intervalcert.proof.norms import Iterations
from intervalcert.verify.branching import DEFAULT_DUAL_STEPS, DEFAULT_SPLITS, MAX_DUAL_STEPS, MAX_SPLITS, Budgets
from intervalcert.verify.deployed import as_deployed
from intervalcert.verify.enclosures import Evaluation, evaluations
from intervalcert.verify.jobs import Job, batches_of
from intervalcert.verify.local import DEFAULT_ROUNDS, can_be_refined
from intervalcert.verify.number_table import Epsilons, NumberTable
from intervalcert.verify.points import PointVerifier
from intervalcert.verify.program_logits import LogitVerifier
from intervalcert.verify.radius import DEFAULT_WIDTH, Radii, RadiusVerifier, check_bracket_width
from intervalcert.verify.units import PROBABILITIES, Units, are_probabilities, units_of
from intervalcert.verify.vectorised import VectorisedCertifier
from intervalcert.verify.verdicts import Verdicts

__all__ = [
    "audit",
    "certified_radius",
    "certify",
    "certify_deployed",
    "certify_inputs",
    "compute_bounds",
    "evaluate",
    "evaluate_table",
    "radius_verifier",
    "robust_radius",
    "vectorised_certifier",
    "verification_job",
]

Number = str | int | float | Fraction


class Module(Protocol):
    """A ``torch.nn.Module``; torch is not imported for its name."""

    training: bool


Model = Network | str | PathLike[str] | Module
"""A network; the path of a model file, as `load_model` reads it; or a module, as `from_torch` does."""


def compute_bounds(
    network: Model,
    backend: str = AUTO,
    iterations: Iterations = "auto",
    *,
    method: NormMethod | None = None,
    margins: MarginMethod = "best",
    tuning_rounds: int | None = None,
    prec: int = DEFAULT_PREC,
    on_step: Callable[[int], None] = lambda _: None,
    effort: int | None = None,
) -> Bounds:
    """Sound bounds of every layer's operator norm and of every margin's Lipschitz constant.

    Guarantees: layers[l].lower <= ||W_l|| <= layers[l].upper, and margins.matrix[i][j] bounds the change of
    N(x)_j - N(x)_i per unit of L2 distance, for all inputs x. With equal `prec`, `iterations`, `method` and `margins`,
    the bounds of any backend are at least those of ``exact``.

    Args:
        network: a `Network`, the path of a model file, or a ``torch.nn.Module``; with other options than the default
            ones, load it by `load_model` or `from_torch`.
        backend: ``auto``, which is ``float64`` (floats, every error bounded), then ``arb`` (balls), then ``exact``
            (rationals) for what is left; or one of them, or ``mpmath`` (independent, slow), to begin with.
        iterations: Gram steps per layer; ``auto`` stops when a step gains less than 1e-5 of the bound.
        method: how norms are bounded: ``gram`` iteration; ``cholesky``, tight to 1e-9 and better; ``auto``, the tighter
            of both for small layers, else ``cholesky``. By default ``gram`` if a number of iterations is given.
        margins: ``product`` of the norms, ``chain`` (tighter: one ellipsoid through all layers), or ``best``, the
            smaller of both for each pair of classes.
        tuning_rounds: of tuning the chain in floats before it is proved; 0, the default, takes a closed form.
        prec: bits of the grid and the square roots of the algorithm.
        on_step: called with the layer's index after each Gram step.
        effort: the old word for tuning_rounds.
    """
    rounds = _rounds("tuning_rounds", tuning_rounds, effort, 0)
    network = _as_network(network)
    ladder = precision_ladder(backend, prec)
    asked = MarginPlan(margins, rounds)
    plan = Plan(method or ("auto" if iterations == "auto" else "gram"), iterations)
    found = network_bounds(network, ladder, [plan] * len(network.branches), on_step, margins=asked)
    how = Method(backend, prec, ladder[0].working_bits, str(iterations), plan.method, margins, rounds)
    return Bounds.of(network, found, how)


def _rounds(name: str, given: int | None, effort: int | None, default: int) -> int:
    """A number of rounds that has two names. Raises: UsageError if both are used."""
    if given is not None and effort is not None:
        raise UsageError(f"effort is the old word for {name}: give one of them")
    found = effort if given is None else given
    if found is not None:
        _check_rounds(name, found)
    return default if found is None else found


def _check_rounds(name: str, rounds: object) -> None:
    if type(rounds) is not int or not 0 <= rounds <= MAX_ROUNDS:
        raise UsageError(f"{rounds!r} {name.replace('_', ' ')}: choose 0..{MAX_ROUNDS}")


def _as_network(model: Model) -> Network:
    """Raises: UsageError for what is none."""
    if isinstance(model, Network):
        return model
    if isinstance(model, str | PathLike):
        return load_model(Path(model))
    torch = sys.modules.get("torch")  # who has a module of it has imported it
    if torch is not None and isinstance(model, torch.nn.Module):
        from intervalcert.io.models.torch_modules import from_torch

        return from_torch(model)
    raise UsageError(
        f"{type(model).__name__} is no model: give a Network (of arrays, Network.from_arrays makes one), the path of a "
        "model file, or a torch.nn.Module"
    )


def certify(
    bounds: Bounds, outputs: npt.ArrayLike, eps: Number | Sequence[Number] | npt.NDArray[np.floating]
) -> Verdicts:
    """A verdict for each output: does every input within L2 distance eps have the same winner?

    Guarantees: `certified` only if y_j - y_i > eps·L[i][j] holds in exact arithmetic for every i but the winner j.

    Args:
        outputs: logits, one row per output (or a single one); floats are taken at their exact binary value. An array
            is decided at the speed of numpy; a list is read number by number. Of a model with a single output one
            number per output, flat or in rows.
        eps: one for all, or one per output. The text "0.3" is 3/10; the float 0.3 is its binary value.
    """
    certifier = vectorised_certifier(bounds)
    rows = _table(_one_per_row(outputs, bounds.single), "the outputs")
    _remark_probabilities(rows)
    return certifier.verdicts(rows, _epsilons(eps, len(rows)))


def _one_per_row(outputs: npt.ArrayLike, single: Single | None) -> npt.ArrayLike:
    """Flat numbers of a model with a single output are many outputs; of others they are one, and stay as they are."""
    if single is None:
        return outputs
    array = plain_array(outputs)
    if array is not None:
        return array.reshape(-1, 1) if array.ndim < 2 else array
    listed: Any = outputs
    return [[x] for x in listed] if is_flat(listed, "the outputs") else listed


def _remark_probabilities(rows: NumberTable) -> None:
    if are_probabilities(rows):
        warnings.warn(f"{rows.what}: {PROBABILITIES}", InputWarning, stacklevel=3)


def _epsilons(eps: Number | Sequence[Number] | npt.NDArray[np.floating], count: int) -> Epsilons:
    array = plain_array(eps)
    given: Any = eps if array is None else array
    if isinstance(given, np.ndarray) and not given.ndim:
        given = given[()]
    if not is_listed(given):
        return Epsilons.all_equal(as_fraction(given))
    if len(given) != count:
        raise InputError(f"{count} outputs, but {len(given)} values of eps")
    plain = array is not None and array.ndim == 1 and array.dtype.kind == "f" and array.dtype.itemsize <= 8
    if array is not None and plain and np.isfinite(array).all():
        return Epsilons.of_floats(array.astype(np.float64))
    return Epsilons.of([as_fraction(x) for x in given])


def certify_inputs(
    network: Model,
    inputs: npt.ArrayLike,
    eps: Number | Sequence[Number] | npt.NDArray[np.floating],
    *,
    bounds: Bounds | None = None,
    local: bool = False,
    local_rounds: int | None = None,
    complete: bool = False,
    dual_steps: int | None = None,
    max_splits: int | None = None,
    time_per_input: float | None = None,
    deployed: str = "real",
    scale: Number | None = None,
    jobs: int = 1,
    effort: int | None = None,
) -> Verdicts:
    """A verdict for each input: does every input within L2 distance eps of it have the same winner?

    Guarantees: `certified` only if that is proved. The logits are enclosed by a rigorous forward pass; nobody's float
    logits are used.

    Args:
        inputs: one row per input (or a single one), each number at its exact value: inputs of the model, before any
            normalisation, wherever eps is measured. If the model says which shape its inputs have, arrays may have it.
        bounds: those of this network; computed here if there are none.
        local: try again, at the input itself, what the bounds leave open (some milliseconds an input, more for those
            that come close).
        local_rounds: of the search for each of them; 10 by default.
        complete: decide every point, if that can be: what `local` leaves open is certified by a quadratic dual, or
            falsified by a counterexample (`Verdicts.counterexamples`). It implies `local`.
        dual_steps: of the search for the dual of a class, where a short one is not enough; 200 by default.
        max_splits: of an input into cases, where no dual is enough; 1000 by default.
        time_per_input: seconds after which the search for an input ends, in any case (`Bracket.ended` says so). By
            default there is no such end: verdicts do not depend on how fast a machine is.
        deployed: which network that is: ``real``, the function over the reals; or ``float32``, ``float16``,
            ``bfloat16``, ``float64``: the program in that format, its weights rounded to it, with any order of
            summation, for all inputs within eps that the format can represent (see `deployed`).
        scale: what every number is multiplied with, exactly, such as "1/255"; needed if all of them are whole, and
            some beyond ±1 (1 takes them as they are).
        jobs: processes to work in.
        effort: the old word for local_rounds.
    """
    rounds = _rounds("local_rounds", local_rounds, effort, DEFAULT_ROUNDS)
    _check_jobs(jobs)
    network = _as_network(network)
    rows, units = _input_table(network, inputs, scale)
    budgets = complete_budgets(complete, dual_steps=dual_steps, max_splits=max_splits, time_per_input=time_per_input)
    wanted = rounds if local or (complete and can_be_refined(network)) else None
    verifier = PointVerifier(verification_job(network, bounds, wanted, deployed, budgets))
    found = verified_inputs(verifier, [rows], units, _epsilons(eps, len(rows)), jobs=jobs)
    return Verdicts.joined([verdicts for verdicts, _ in found], units.floats)


def _check_jobs(jobs: object) -> None:
    if type(jobs) is not int or jobs < 1:
        raise UsageError(f"{jobs!r} jobs: at least one process must work")


def robust_radius(
    network: Model,
    inputs: npt.ArrayLike,
    *,
    bounds: Bounds | None = None,
    local: bool = False,
    local_rounds: int | None = None,
    complete: bool = False,
    width: Number | None = None,
    dual_steps: int | None = None,
    max_splits: int | None = None,
    time_per_input: float | None = None,
    deployed: str = "real",
    scale: Number | None = None,
    jobs: int = 1,
) -> Radii:
    """Of each input, how far the nearest input is with another winner: between two floats, as near as they get.

    Guarantees: lower <= radius <= upper. Certified at exactly `lower`, unless that is 0; falsified at exactly `upper`,
    by a counterexample that was checked (`Radii.counterexamples`), unless that is inf.

    Args:
        local: lower ends that local refinement certifies at the input itself, found by bisection; without it they are
            those of the bounds. There are no upper ends.
        complete: both ends, by all that `certify_inputs` has to decide a point.
        width: a bracket is narrow enough if upper - lower <= width·upper; 0.01 by default. With local, how near to a
            lower end an eps is that is not certified.
        dual_steps, max_splits, time_per_input: as in `certify_inputs`, of each eps that is tried.

    All others are as in `certify_inputs`.
    """
    _check_jobs(jobs)
    network = _as_network(network)
    rows, units = _input_table(network, inputs, scale)
    budgets = complete_budgets(complete, dual_steps=dual_steps, max_splits=max_splits, time_per_input=time_per_input)
    asked = None if width is None else as_fraction(width)
    verifier = radius_verifier(
        network, bounds, local=local, local_rounds=local_rounds, width=asked, deployed=deployed, budgets=budgets
    )
    return Radii.joined(list(bracketed_inputs(verifier, [rows], units, jobs=jobs)), units.floats)


def radius_verifier(
    network: Network,
    bounds: Bounds | None,
    *,
    local: bool = False,
    local_rounds: int | None = None,
    width: Fraction | None = None,
    deployed: str = "real",
    budgets: Budgets | None = None,
) -> RadiusVerifier:
    """What brackets the radii of inputs; both ends of them, if there are budgets.

    Raises: UsageError for what does not go together; and as `verification_job` does.
    """
    if not local and budgets is None:
        for name, value in (("width", width), ("local_rounds", local_rounds)):
            if value is not None:
                raise UsageError(f"{name} is of a search at the input itself: say local or complete")
    wanted = None
    if local or (budgets is not None and can_be_refined(network)):
        wanted = DEFAULT_ROUNDS if local_rounds is None else local_rounds
    asked = DEFAULT_WIDTH if width is None else width
    check_bracket_width(asked)
    return RadiusVerifier(PointVerifier(verification_job(network, bounds, wanted, deployed, budgets)), asked)


def complete_budgets(
    complete: bool,
    *,
    dual_steps: int | None = None,
    max_splits: int | None = None,
    time_per_input: float | None = None,
) -> Budgets | None:
    """Of the search, if every point is to be decided. Raises: UsageError for what does not go together."""
    if not complete:
        given = {"dual_steps": dual_steps, "max_splits": max_splits, "time_per_input": time_per_input}
        for name, value in given.items():
            if value is not None:
                raise UsageError(f"{name} is of the search that decides every point: say complete")
        return None
    steps = DEFAULT_DUAL_STEPS if dual_steps is None else dual_steps
    splits = DEFAULT_SPLITS if max_splits is None else max_splits
    for value, most, what in ((steps, MAX_DUAL_STEPS, "dual steps"), (splits, MAX_SPLITS, "splits")):
        if type(value) is not int or not 0 <= value <= most:
            raise UsageError(f"{value!r} {what}: choose 0..{most}")
    if time_per_input is not None and not (isinstance(time_per_input, int | float) and time_per_input > 0):
        raise UsageError(f"{time_per_input!r} seconds for an input: there must be some")
    return Budgets(steps, splits, time_per_input)


def verification_job(
    network: Network,
    bounds: Bounds | None,
    local_rounds: int | None,
    deployed: str = "real",
    budgets: Budgets | None = None,
) -> Job:
    """What a `PointVerifier` needs to know; bounds are computed if there are none.

    Raises: InputError if the bounds are of another model, or of weights that are rounded when deployed; for regression.
    """
    _check_classes(network.single)
    check_evaluable(network)
    if local_rounds is not None:
        _check_rounds("local_rounds", local_rounds)
    form = None if deployed == "real" else get_format(deployed)
    run = network if form is None else as_deployed(network, form)
    if bounds is None:
        bounds = compute_bounds(run)
    else:
        check_same_model(bounds, network)
        if not _same_maps(run, network) or run.activations != network.activations:
            raise InputError(
                f"the bounds are of weights that are not {deployed} numbers, but rounded when they are deployed: leave "
                "the bounds out, and those of the rounded weights are computed"
            )
    norms = tuple(layer.upper for layer in bounds.layers)
    margins = bounds.margins
    return Job(run, norms, margins.matrix, precision_ladder(AUTO), local_rounds, form, margins.sigmas, budgets)


def _same_maps(one: Network, other: Network) -> bool:
    """Whether their linear maps have the same numbers: bounds depend on no others."""
    pairs = zip(one.branches, other.branches, strict=True)
    return all(a.map is b.map or a.map.identity_parts == b.map.identity_parts for a, b in pairs)


def certify_deployed(
    network: Model,
    outputs: npt.ArrayLike,
    eps: Number | Sequence[Number] | npt.NDArray[np.floating],
    *,
    deployed: str,
    input_norm: Number,
    bounds: Bounds | None = None,
) -> Verdicts:
    """A verdict for each output of a program in floats, whose input is only known to have at most some norm.

    Guarantees: `certified` only if it is proved, for every input v of at most that norm at which the program gives
    these logits (or the network with the rounded weights does, over the reals), that the program keeps its winner for
    all inputs within eps of v that the format can represent. The worst case over all such v: from inputs,
    `certify_inputs` proves more.
    """
    network = _as_network(network)
    rows = _table(_one_per_row(outputs, network.single), "the outputs")
    _remark_probabilities(rows)
    certifier = LogitVerifier(verification_job(network, bounds, None, deployed), as_fraction(input_norm))
    return certifier.verdicts(rows, _epsilons(eps, len(rows)))


def _input_table(network: Network, inputs: npt.ArrayLike, scale: Number | None) -> tuple[NumberTable, Units]:
    """What a caller gives as inputs of the network, and how it is read."""
    rows = _table(inputs, "the inputs", network.shape or (network.inputs,))
    units = units_of([rows], network, None if scale is None else as_fraction(scale))
    if units.doubt is not None:
        warnings.warn(units.doubt, InputWarning, stacklevel=3)
    return rows, units


def _table(values: npt.ArrayLike, what: str, shape: tuple[int, ...] | None = None) -> NumberTable:
    """An array, or a list whose numbers are read one by one."""
    rows = table_of(values, what, shape)
    return NumberTable.of_exact(outputs_of(values, what).rows, what) if rows is None else rows


def evaluate(network: Model, inputs: npt.ArrayLike, *, scale: Number | None = None, backend: str = AUTO) -> Evaluation:
    """Enclosures of what every layer of the network over the reals computes at each input.

    Guarantees: lower[l][r, k] <= (W·h + b)_k of layer l at input r <= upper[l][r, k]; the last layer's are the logits.
    Inputs and their scale are as in `certify_inputs`, backends as in `compute_bounds`.
    """
    network = _as_network(network)
    rows, units = _input_table(network, inputs, scale)
    found = Evaluation.joined([found for found, _ in evaluate_table(network, [rows], units.scale, backend)])
    return replace(found, input_range=units.floats)


def evaluate_table(
    network: Network, chunks: Iterable[NumberTable], scale: Fraction, backend: str
) -> Iterator[tuple[Evaluation, int]]:
    """The enclosures of a table of inputs, batch by batch, each with its part of the work."""
    check_evaluable(network)
    if backend == "exact" and not is_rational(network):
        raise UsageError("exact rationals cannot hold the values of exp, of which an activation is made: use arb")
    if backend == "exact" and not network.is_exact:
        raise UsageError("exact rationals cannot hold the roots of which a normalisation is made: use arb")
    plans = [Plan("auto")] * len(network.branches)
    norms = tuple(bound.upper for bound in layer_bounds(network, precision_ladder(AUTO), plans))
    nothing = Epsilons.all_equal(Fraction(0))
    batches = (batch for rows in chunks for batch in batches_of(rows, network, scale, nothing))
    return evaluations(network, norms, precision_ladder(backend), batches)


def certified_radius(bounds: Bounds, outputs: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """The largest certified radius of each output, rounded down (see `Verdict.radius`); nobody writes to it."""
    return certify(bounds, outputs, 0).radius


def vectorised_certifier(bounds: Bounds) -> VectorisedCertifier:
    """What decides many outputs against these bounds. Raises: InputError for those of a regression."""
    if not isinstance(bounds, Bounds):
        raise UsageError(f"{type(bounds).__name__} is no Bounds: compute_bounds makes them, load_bounds reads a file")
    _check_classes(bounds.single)
    threshold = None if bounds.single is None else bounds.single.threshold
    return VectorisedCertifier(bounds.margins.matrix, get_backend("exact"), threshold, bounds.eps_space)


def _check_classes(single: Single | None) -> None:
    if single is not None and single.threshold is None:
        raise InputError(
            "the model was read as a regression: its output is a number, and there are no classes to be certified. Its "
            "bounds give the Lipschitz constant. If it is a classifier with a single output, read it without "
            "--regression, and with --threshold if that is not 0"
        )


def audit(
    bounds: Bounds,
    network: Model,
    on_step: Callable[[int], None] = lambda _: None,
    *,
    budget: float | None = None,
    on_estimate: Callable[[float], None] = lambda _: None,
) -> AuditReport:
    """Checks every claim of the bounds of `network` with exact rationals.

    The witnesses that the bounds carry, or that are stored beside their file, are proved; without any, others are
    searched for, by the methods that the bounds claim.

    Raises: InputError if the bounds were computed from another model, or if that takes longer than it may.

    Args:
        budget: seconds that it may take, as estimated beforehand from the shapes and from what the bounds claim; by
            default a minute, or twice what default bounds of this model take if that is more.
        on_estimate: called with that estimate, in seconds, if the budget suffices.
    """
    try:
        reference = get_backend("exact", bounds.method.prec)
    except UsageError as error:
        raise InputError(f"the bounds claim what cannot be recomputed: {error}") from None
    return audit_bounds(bounds, _as_network(network), reference, *witnesses_of(bounds), on_step, budget, on_estimate)
