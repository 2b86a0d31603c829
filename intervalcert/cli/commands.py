"""The commands. No mathematics. Everything heavy is imported inside the command that needs it: --help is instant."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING

from intervalcert.cli.certificates import (
    audit_certificate,
    certificate,
    check_certifiable,
    check_file,
    check_network,
    recorded,
    write_points,
)
from intervalcert.cli.options import check_radius, check_sources
from intervalcert.cli.progress import is_watched, layer_progress, print_message, row_progress
from intervalcert.errors import InputError, SoundnessError, UsageError, error_context, shortened

if TYPE_CHECKING:
    from fractions import Fraction

    from intervalcert.execution.radii import Medians, RadiusSummary
    from intervalcert.execution.streaming import Summary
    from intervalcert.io.tables import LabelSource, RowSource
    from intervalcert.io.tables.writers import Write, WriteRows
    from intervalcert.model.network import Network
    from intervalcert.proof.decision import Bracket
    from intervalcert.verify.falsify import AnyCounterexample
    from intervalcert.verify.jobs import Job
    from intervalcert.verify.number_table import Epsilons, NumberTable
    from intervalcert.verify.program_logits import LogitVerifier
    from intervalcert.verify.radius import Radii
    from intervalcert.verify.units import Box, Units
    from intervalcert.verify.vectorised import VectorisedCertifier
    from intervalcert.verify.verdicts import Verdicts


_LONG_AUDIT = 10.0
"""Seconds from which on an audit is announced."""


def _bounds(arguments: argparse.Namespace) -> int:
    from intervalcert.api import compute_bounds
    from intervalcert.backends.registry import DEFAULT_PREC, precision_ladder
    from intervalcert.io.bounds_file import save_bounds
    from intervalcert.io.files import check_output
    from intervalcert.io.witness_file import witness_path
    from intervalcert.report.text import bounds_tables, print_data

    prec = DEFAULT_PREC if arguments.prec is None else arguments.prec
    precision_ladder(arguments.backend, prec)  # refuse a wrong name before reading a large model
    check_file(arguments, arguments.model, arguments.biases, arguments.output)
    if arguments.output is not None:
        for file in (arguments.output, witness_path(arguments.output)):
            check_output(file, arguments.model, arguments.biases)
    network = _load(arguments)
    check_network(arguments, network)
    with layer_progress("bounds", network) as on_step:
        found = compute_bounds(
            network,
            arguments.backend,
            arguments.iterations,
            method=arguments.method,
            margins=arguments.margins,
            tuning_rounds=arguments.tuning_rounds,
            prec=prec,
            on_step=on_step,
        )
    witnesses = None if arguments.output is None else save_bounds(found, arguments.output)
    print_data(bounds_tables(found))
    if arguments.output is not None:
        proof = f"and what proves it, {witnesses}" if witnesses else "without witnesses (too large to be stored)"
        print_message(f"wrote {arguments.output}, {proof}")
    if arguments.certificate is not None:
        with certificate(arguments, network, found):
            pass
    return 0


def _certify(arguments: argparse.Namespace) -> int:
    from fractions import Fraction

    from intervalcert.api import vectorised_certifier
    from intervalcert.bounds.audit import check_same_model
    from intervalcert.io.bounds_file import load_bounds
    from intervalcert.io.tables.writers import VERDICT_COLUMNS
    from intervalcert.numbers.parsing import parse_rational
    from intervalcert.numbers.text import shortest_exact

    check_sources(arguments)
    _check_output(arguments)
    check_certifiable(arguments)
    if arguments.inputs is not None:
        summary = _certify_inputs(arguments)
    elif arguments.deployed != "real":
        summary = _certify_deployed(arguments)
    else:
        bounds = load_bounds(arguments.bounds)
        if arguments.eps_space not in {None, bounds.eps_space}:
            raise InputError(
                f"{arguments.bounds} is for distances in the {bounds.eps_space} space, not in that of --eps-space"
            )
        certifier = vectorised_certifier(bounds)
        network = None if arguments.certificate is None else _load(arguments)
        if network is not None:
            check_same_model(bounds, network)
            check_network(arguments, network)
        with _sink(arguments, VERDICT_COLUMNS) as write:
            found, seen = recorded(arguments, write)
            summary = replace(_run("certify", arguments, certifier, _epsilons(arguments), seen), single=bounds.single)
        if found is not None and network is not None:
            write_points(arguments, network, bounds, "outputs", parse_rational(arguments.eps), Fraction(1), found)
    eps = arguments.eps or (None if summary.eps is None else shortest_exact(summary.eps))
    if arguments.json:
        shown = {
            "certified": summary.certified,
            "total": summary.total,
            "eps": eps,
            "accuracy": summary.accuracy,
            "vra": summary.vra,
            "decided_exactly": summary.exactly,
            "certified_locally": summary.locally,
            "falsified": summary.falsified,
            "unknown": summary.total - summary.certified - summary.falsified,
            "right_and_falsified": summary.right_and_falsified,
            "falsified_within_box": summary.within_box,
            "open": [{"index": index, **_bracket(bracket)} for index, bracket in sorted(summary.brackets.items())],
            "decided_by": dict(summary.methods.most_common()),
            "proved_by": dict(summary.proved_by.most_common()),
            "faults": dict(summary.faults.most_common()),
            "input_range": _range(summary.units),
            "semantics": summary.semantics,
            "eps_space": summary.eps_space,
            "norm": "L2",
            "threshold": None if summary.single is None else shortest_exact(summary.single.constant),
        }
        print(json.dumps(shown))
    else:
        from intervalcert.report.text import print_data, summary_table

        given_logits = arguments.inputs is None
        shown_eps = eps or "each output's own"
        table = summary_table(summary, shown_eps, given_logits=given_logits, is_complete=arguments.complete)
        print_data(table)
    if arguments.output is not None:
        print_message(f"wrote {arguments.output}")
    return 1 if arguments.check and summary.certified < summary.total else 0


def _bracket(bracket: Bracket) -> dict[str, object]:
    """For JSON."""
    ends = {"lead_lower": bracket.lower, "lead_upper": bracket.upper}
    shown = {name: x if isfinite(x) else None for name, x in ends.items()}
    return {"winner": bracket.winner, "other": bracket.other, **shown, "ended": bracket.ended}


def _range(units: Units | None) -> list[float | None] | None:
    """For JSON, which has no infinity: null stands for an end beyond the floats."""
    return None if units is None else [x if isfinite(x) else None for x in units.floats]


def _certify_inputs(arguments: argparse.Namespace) -> Summary:
    from intervalcert.api import complete_budgets, compute_bounds, verification_job
    from intervalcert.execution.streaming import certify_inputs_of
    from intervalcert.io.bounds_file import load_bounds
    from intervalcert.io.counterexamples import save_counterexamples
    from intervalcert.io.tables.writers import COMPLETE_COLUMNS, VERDICT_COLUMNS
    from intervalcert.numbers.parsing import parse_rational
    from intervalcert.verify.local import DEFAULT_ROUNDS, can_be_refined
    from intervalcert.verify.points import PointVerifier

    epsilons, unit = _epsilons(arguments), _unit(arguments)
    network = _load(arguments)
    bounds = load_bounds(arguments.bounds) if arguments.bounds is not None else None
    check_network(arguments, network)
    if bounds is None and arguments.certificate is not None:
        bounds = compute_bounds(network)
    source, units = _survey_inputs(arguments, network, *unit)
    rounds = DEFAULT_ROUNDS if arguments.local_rounds is None else arguments.local_rounds
    budgets = complete_budgets(
        arguments.complete,
        dual_steps=arguments.dual_steps,
        max_splits=arguments.max_splits,
        time_per_input=arguments.time_per_input,
    )
    is_local = arguments.local or (arguments.complete and can_be_refined(network))
    job = verification_job(network, bounds, rounds if is_local else None, arguments.deployed, budgets)
    _print_coarse(job)
    verifier = PointVerifier(replace(job, keeps_chains=arguments.certificate is not None))
    falsified: dict[int, AnyCounterexample] = {}
    box, within = unit[1], 0
    jobs = (os.cpu_count() or 1) if arguments.jobs is None else arguments.jobs
    with (
        _sink(arguments, COMPLETE_COLUMNS if arguments.complete else VERDICT_COLUMNS) as write,
        _labels(arguments, network.outputs) as labels,
        row_progress("certify", source.size) as on_rows,
    ):
        found, told = recorded(arguments, write)

        def seen(verdicts: Verdicts) -> None:
            nonlocal within
            if arguments.counterexamples is not None:
                falsified.update(verdicts.counterexamples)
            if box is not None:
                within += sum(box[0] <= low and high <= box[1] for low, high in verdicts.spans.values())
            if told is not None:
                told(verdicts)

        summary = certify_inputs_of(
            verifier, source, units, epsilons, jobs=jobs, labels=labels, write=seen, on_rows=on_rows
        )
    if arguments.counterexamples is not None:
        save_counterexamples(falsified, network.inputs, arguments.counterexamples, job.semantics)
        print_message(f"wrote {arguments.counterexamples}")
    if found is not None and bounds is not None:
        write_points(arguments, network, bounds, "inputs", parse_rational(arguments.eps), units.scale, found)
    is_told = arguments.complete and box is not None and network.eps_space == "input"
    return replace(summary, single=network.single, within_box=within if is_told else None)


@contextlib.contextmanager
def _labels(arguments: argparse.Namespace, classes: int) -> Iterator[LabelSource | None]:
    """The true classes, if a file was named for them; its header is said when all is done."""
    from intervalcert.io.tables import open_labels

    path = getattr(arguments, "labels", None)
    headers: list[tuple[str, bool]] = []
    yield None if path is None else open_labels(path, classes, lambda *line: headers.append(line))
    if path is not None:
        _print_headers(path, headers)


def _unit(arguments: argparse.Namespace) -> tuple[Fraction | None, Box | None]:
    """What the options say of the inputs: their scale, and between what they are then."""
    box = None if arguments.input_box is None else _box(arguments.input_box)
    return _number(arguments.input_scale, "--input-scale"), box


def _box(texts: Sequence[str]) -> Box:
    low, high = (_number(text, "--input-box") for text in texts)
    if low is None or high is None or low > high:
        raise InputError("--input-box: the lower end must not be above the upper one")
    return low, high


def _survey_inputs(
    arguments: argparse.Namespace, network: Network, scale: Fraction | None, box: Box | None
) -> tuple[RowSource, Units]:
    """The table of inputs, all of which has been looked at; what is remarkable is said."""
    from intervalcert.execution.streaming import surveyed
    from intervalcert.io.tables import open_rows

    headers: list[tuple[str, bool]] = []
    shape = network.shape or (network.inputs,)

    def opened() -> RowSource:
        bfloat16 = arguments.dtype == "bfloat16"
        return open_rows(arguments.inputs, bfloat16=bfloat16, on_header=lambda *line: headers.append(line), shape=shape)

    source, units = surveyed(arguments.inputs, opened, network, scale, box)
    _print_headers(arguments.inputs, headers)
    if units.doubt is not None:
        print_message(f"intervalcert: {units.doubt}")
    return source, units


def _print_headers(path: Path, headers: Sequence[tuple[str, bool]]) -> None:
    for line, taken in headers:
        what = "taken for a header" if taken else "read as numbers; if it is a header, take it out"
        print_message(f"{path}: the first line is {what}: {shortened(line, 60)}")


def _certify_deployed(arguments: argparse.Namespace) -> Summary:
    """Given logits of a program in floats, by the worst case over inputs of some norm."""
    from intervalcert.api import verification_job
    from intervalcert.io.bounds_file import load_bounds
    from intervalcert.io.tables.writers import VERDICT_COLUMNS
    from intervalcert.numbers.rounding import sqrt_upper
    from intervalcert.verify.program_logits import LogitVerifier

    epsilons, norm = _epsilons(arguments), _number(arguments.input_norm, "--input-norm")
    network = _load(arguments)
    if norm is None:
        norm = sqrt_upper(network.inputs * max(map(abs, _box(arguments.input_box))) ** 2, 64)
    bounds = load_bounds(arguments.bounds) if arguments.bounds is not None else None
    job = verification_job(network, bounds, None, arguments.deployed)
    _print_coarse(job)
    certifier = LogitVerifier(job, norm)
    with _sink(arguments, VERDICT_COLUMNS) as write:
        return replace(_run("certify", arguments, certifier, epsilons, write), single=network.single)


def _load(arguments: argparse.Namespace) -> Network:
    """The model, with distances measured where the options say."""
    return _read(arguments).measured_in(arguments.eps_space or "input")


def _read(arguments: argparse.Namespace) -> Network:
    """The model as it is, with what the options say of it."""
    from intervalcert.io.files import check_output
    from intervalcert.io.models import read_model
    from intervalcert.io.models.interface import Hints

    hints = Hints(
        arguments.biases,
        arguments.activation,
        arguments.layers,
        arguments.strip_softmax,
        _number(arguments.threshold, "--threshold"),
        arguments.regression,
    )
    network = read_model(arguments.model, hints, arguments.mean, arguments.std)
    if getattr(arguments, "output", None) is not None:  # what lies beside the model is known now
        check_output(arguments.output, *(arguments.model.parent / source.name for source in network.sources))
    return network


def _print_coarse(job: Job) -> None:
    from intervalcert.verify.deployed import too_coarse

    reason = None if job.form is None else too_coarse(job.network, job.form)
    if reason is not None:
        print_message(f"intervalcert: {reason}")


def _number(text: str | None, what: str) -> Fraction | None:
    from intervalcert.numbers.parsing import parse_rational

    if text is None:
        return None
    with error_context(what):
        return parse_rational(text)


def _evaluate(arguments: argparse.Namespace) -> int:
    from intervalcert.api import evaluate_table
    from intervalcert.backends.registry import precision_ladder
    from intervalcert.io.files import check_output
    from intervalcert.io.tables.enclosures import check_enclosure_ending, enclosure_sink, enclosure_text
    from intervalcert.report.text import outward_text, scaling_text

    precision_ladder(arguments.backend)  # refuse a wrong name before reading a large model
    if arguments.output is not None:
        check_enclosure_ending(arguments.output)
        check_output(arguments.output, arguments.model, arguments.biases, arguments.inputs)
    unit = _unit(arguments)
    network = _read(arguments)
    source, units = _survey_inputs(arguments, network, *unit)
    with contextlib.ExitStack() as stack:
        file = arguments.output
        single = network.single
        write = enclosure_text(print, single) if file is None else stack.enter_context(enclosure_sink(file, single))
        on_rows = stack.enter_context(row_progress("evaluate", source.size, prints=file is None))
        for found, work in evaluate_table(network, source.chunks, units.scale, arguments.backend):
            write(found)
            on_rows(len(found.lower[-1]), work)
    print_message(f"inputs from {outward_text(units.low, units.high)}, {scaling_text(units.scale)}")
    if arguments.output is not None:
        print_message(f"wrote {arguments.output}")
    return 0


def _radius(arguments: argparse.Namespace) -> int:
    check_radius(arguments)
    _check_output(arguments)
    if arguments.inputs is None:
        _radius_of_outputs(arguments)
    else:
        summary = _radius_of_inputs(arguments)
        if arguments.json:
            print(json.dumps(_radius_json(summary)))
        else:
            from intervalcert.report.text import print_data, radius_table

            print_data(radius_table(summary))
    if arguments.output is not None:
        print_message(f"wrote {arguments.output}")
    return 0


def _radius_of_outputs(arguments: argparse.Namespace) -> None:
    from fractions import Fraction

    from intervalcert.api import vectorised_certifier
    from intervalcert.io.bounds_file import load_bounds
    from intervalcert.io.tables.writers import RADIUS_COLUMNS
    from intervalcert.verify.number_table import Epsilons

    certifier = vectorised_certifier(load_bounds(arguments.bounds))
    with _sink(arguments, RADIUS_COLUMNS) as write:
        shown = write or _to_stdout(RADIUS_COLUMNS)
        _run("radius", arguments, certifier, Epsilons.all_equal(Fraction(0)), shown)


def _radius_of_inputs(arguments: argparse.Namespace) -> RadiusSummary:
    from intervalcert.api import complete_budgets, radius_verifier
    from intervalcert.execution.radii import bracketed_inputs, radii_of, summarised_radii
    from intervalcert.io.bounds_file import load_bounds
    from intervalcert.io.counterexamples import save_counterexamples
    from intervalcert.io.tables.writers import BRACKET_COLUMNS, RIGHT
    from intervalcert.verify.radius import DEFAULT_WIDTH, check_bracket_width

    width, unit = _number(arguments.width, "--width"), _unit(arguments)
    if width is not None:
        check_bracket_width(width)
    network = _load(arguments)
    bounds = load_bounds(arguments.bounds) if arguments.bounds is not None else None
    source, units = _survey_inputs(arguments, network, *unit)
    verifier = radius_verifier(
        network,
        bounds,
        local=arguments.local,
        local_rounds=arguments.local_rounds,
        width=width,
        deployed=arguments.deployed,
        budgets=complete_budgets(
            arguments.complete,
            dual_steps=arguments.dual_steps,
            max_splits=arguments.max_splits,
            time_per_input=arguments.time_per_input,
        ),
    )
    _print_coarse(verifier.job)
    falsified: dict[int, AnyCounterexample] = {}
    jobs = (os.cpu_count() or 1) if arguments.jobs is None else arguments.jobs
    columns = BRACKET_COLUMNS if arguments.labels is None else (*BRACKET_COLUMNS, RIGHT)
    with (
        _sink(arguments, columns) as write,
        _labels(arguments, network.outputs) as labels,
        row_progress("radius", source.size) as on_rows,
    ):

        def seen(radii: Radii) -> None:
            if arguments.counterexamples is not None:
                falsified.update(radii.counterexamples)
            if write is not None:
                write(radii)

        parts = bracketed_inputs(verifier, source.chunks, units, jobs=jobs, on_rows=on_rows)
        found = radii_of(parts, labels, seen)
    if arguments.counterexamples is not None:
        save_counterexamples(falsified, network.inputs, arguments.counterexamples, verifier.job.semantics)
        print_message(f"wrote {arguments.counterexamples}")
    summary = summarised_radii(found, DEFAULT_WIDTH if width is None else width, has_upper=arguments.complete)
    return replace(summary, units=units, single=network.single)


def _radius_json(summary: RadiusSummary) -> dict[str, object]:
    from intervalcert.numbers.text import shortest_exact
    from intervalcert.verify.radius import RadiusStatus

    return {
        "total": summary.total,
        **{status.value: summary.statuses[status.value] for status in RadiusStatus},
        "median": _medians(summary.medians),
        "width": shortest_exact(summary.width),
        "accuracy": summary.accuracy,
        "median_of_right": _medians(summary.medians_right),
        "decided_by": dict(summary.methods.most_common()),
        "proved_by": dict(summary.proved_by.most_common()),
        "ended_by": dict(summary.ended.most_common()),
        "faults": dict(summary.faults.most_common()),
        "input_range": _range(summary.units),
        "semantics": summary.semantics,
        "eps_space": summary.eps_space,
        "norm": "L2",
        "threshold": None if summary.single is None else shortest_exact(summary.single.constant),
    }


def _medians(medians: Medians | None) -> dict[str, float | None] | None:
    """For JSON: null where there is no end."""
    if medians is None:
        return None
    found = {"lower": medians.lower, "upper": medians.upper, "relative_width": medians.relative_width}
    return {name: x if isfinite(x) else None for name, x in found.items()}


def _run(
    what: str,
    arguments: argparse.Namespace,
    certifier: VectorisedCertifier | LogitVerifier,
    epsilons: Epsilons | None,
    write: Write | None,
) -> Summary:
    """Certifies the outputs of a file, with progress."""
    from intervalcert.execution.streaming import certify_source
    from intervalcert.io.tables import open_rows
    from intervalcert.verify.units import PROBABILITIES, are_probabilities

    headers: list[tuple[str, bool]] = []
    bfloat16 = arguments.dtype == "bfloat16"
    source = open_rows(
        arguments.outputs, certifier.columns, bfloat16=bfloat16, on_header=lambda *line: headers.append(line)
    )
    probable: list[bool] = []

    def watched() -> Iterator[NumberTable]:
        for rows in source.chunks:
            probable.append(are_probabilities(rows))
            yield rows

    watching = replace(source, chunks=watched())
    prints = write is not None and arguments.output is None
    with _labels(arguments, certifier.classes) as labels, row_progress(what, source.size, prints=prints) as on_rows:
        summary = certify_source(certifier, watching, epsilons, labels=labels, write=write, on_rows=on_rows)
    _print_headers(arguments.outputs, headers)
    if all(probable):
        print_message(f"intervalcert: {arguments.outputs}: {PROBABILITIES}")
    return summary


def _check_output(arguments: argparse.Namespace) -> None:
    """Refuses at once an output file that cannot be written."""
    from intervalcert.io.files import check_output
    from intervalcert.io.tables.writers import check_ending

    if arguments.output is not None:
        check_ending(arguments.output)
        others = (getattr(arguments, name, None) for name in ("model", "biases", "inputs", "labels"))
        check_output(arguments.output, arguments.bounds, arguments.outputs, *others)
    more = getattr(arguments, "counterexamples", None)
    if more is not None:
        from intervalcert.io.counterexamples import check_counterexample_ending

        check_counterexample_ending(more)
        others = (getattr(arguments, name, None) for name in ("model", "biases", "inputs", "labels", "output"))
        check_output(more, arguments.bounds, arguments.outputs, *others)


@contextlib.contextmanager
def _sink(arguments: argparse.Namespace, columns: Sequence[str]) -> Iterator[WriteRows | None]:
    """What takes the verdicts, or radii, if a file was named for them."""
    from intervalcert.io.tables.writers import verdict_sink

    if arguments.output is None:
        yield None
        return
    with verdict_sink(arguments.output, columns) as write:
        yield write


def _to_stdout(columns: Sequence[str]) -> Write:
    from intervalcert.io.tables.writers import csv_pieces

    piece = csv_pieces(columns)
    return lambda verdicts: print(piece(verdicts), end="")


def _epsilons(arguments: argparse.Namespace) -> Epsilons | None:
    """The eps of all outputs; None if each carries its own."""
    from intervalcert.numbers.parsing import parse_rational
    from intervalcert.verify.number_table import Epsilons

    if arguments.eps is None:
        return None
    try:
        eps = parse_rational(arguments.eps)
    except InputError as error:
        raise InputError(f"--eps: {error}") from None
    if eps < 0:
        raise InputError(f"--eps must not be negative, and this one is {arguments.eps}")
    return Epsilons.all_equal(eps)


def _audit(arguments: argparse.Namespace) -> int:
    from intervalcert.api import audit
    from intervalcert.bounds.audit import seconds_text
    from intervalcert.checker.archive import is_certificate
    from intervalcert.io.bounds_file import load_bounds
    from intervalcert.report.text import audit_table, print_data

    if is_certificate(arguments.bounds):
        return audit_certificate(arguments, _load(arguments))
    for name in ("outputs", "inputs", "input_scale"):
        if getattr(arguments, name) is not None:
            option = f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} goes with a certificate, and {arguments.bounds} is none")
    bounds = load_bounds(arguments.bounds)
    network = _load(arguments)

    def on_estimate(seconds: float) -> None:
        if seconds > _LONG_AUDIT:
            print_message(f"checking {arguments.bounds} with exact rationals takes about {seconds_text(seconds)}")

    with layer_progress("audit", network) as on_step:
        report = audit(bounds, network, on_step, budget=arguments.budget, on_estimate=on_estimate)
    print_data(audit_table(report, bounds.eps_space))
    if not report.confirmed:
        names = ", ".join(claim.what for claim in report.unconfirmed)
        if report.recomputed:
            raise SoundnessError(
                f"without its witnesses {arguments.bounds} is not confirmed: {names}. Those that were found here prove "
                "less; the file that bounds wrote beside it decides"
            )
        raise SoundnessError(f"{arguments.bounds} claims what exact arithmetic does not confirm: {names}")
    return 0


def _inspect(arguments: argparse.Namespace) -> int:
    from intervalcert.report.text import network_tables, print_data

    print_data(network_tables(_read(arguments), arguments.eps_space or "input"))
    return 0


def _convert(arguments: argparse.Namespace) -> int:
    from intervalcert.io.files import check_output
    from intervalcert.io.models import save_model

    check_output(arguments.output, arguments.model, arguments.biases)
    network = _read(arguments)
    content = network.measured_in("input").content
    save_model(network, arguments.output)
    print(content)
    print_message(f"wrote {arguments.output}; above is the hash of the network, as inspect shows it")
    return 0


def _demo(_: argparse.Namespace) -> int:
    from intervalcert.cli.demo import run_demo
    from intervalcert.report.text import print_data

    for part in run_demo(print_message if is_watched() else lambda _: None):
        print_data(part)
        sys.stdout.flush()  # each part as soon as it is there, also in a pipe
    return 0


_COMMANDS = {
    "bounds": _bounds,
    "certify": _certify,
    "evaluate": _evaluate,
    "radius": _radius,
    "audit": _audit,
    "inspect": _inspect,
    "convert": _convert,
    "demo": _demo,
}
