"""The command line: parsing, progress, exit codes. No mathematics.

stdout is data, stderr is progress and messages. Exit codes: 0 ran; 1 with --check if something is not certified;
2 usage; 3 input refused; 4 a soundness self-check failed; 70 a fault of the program;
130 interrupted; 129 and 143 ended by SIGHUP or SIGTERM.

Everything heavy is imported inside the command that needs it, so that --help is instant.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from intervalcert import __version__
from intervalcert.errors import InconclusiveError, InputError, IntervalcertError, SoundnessError, UsageError

if TYPE_CHECKING:
    from fractions import Fraction

    from intervalcert.batch import Summary
    from intervalcert.bulk import BulkCertifier, Radii
    from intervalcert.inputs import LogitCertifier, Task
    from intervalcert.norms import Iterations
    from intervalcert.tables import RowSource
    from intervalcert.tables.writers import Write

__all__ = ["main"]

_ACTIVATIONS = "relu, tanh, hard_tanh, sigmoid, identity, group_sort, min_max, leaky_relu:SLOPE or elu:ALPHA"
_EXIT = {UsageError: 2, InputError: 3, SoundnessError: 4, InconclusiveError: 4}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; every foreseen failure is a message and an exit code, never a traceback."""
    for stream in (sys.stdout, sys.stderr):  # an ASCII terminal gets question marks, not an exception
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        _clean_up_when_ended()
        _calm_threads()
        arguments = _parser().parse_args(_with_negative_numbers(sys.argv[1:] if argv is None else argv))
        code: int = arguments.run(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
        return code
    except IntervalcertError as error:
        _say(f"intervalcert: {error}")
        return next(code for kind, code in _EXIT.items() if isinstance(error, kind))
    except KeyboardInterrupt:
        _say("intervalcert: interrupted")
        return 130
    except BrokenPipeError:  # the reader of our output has gone: that is its right
        _abandon_stdout()
        return 0
    except OSError as error:  # files have errors of their own: this is stdout
        _abandon_stdout()
        _say(f"intervalcert: standard output cannot be written: {error.strerror or error}")
        return 3
    except MemoryError:
        _say("intervalcert: this input needs more memory than there is")
        return 3
    except Exception as error:  # a fault of ours; Python's own exit code would say "not certified"
        _say("".join(traceback.format_exception(error)) + "intervalcert: a fault of the program; please report it")
        return 70


def _clean_up_when_ended() -> None:
    """A polite end (SIGTERM, or SIGHUP when a terminal closes) goes the way of an interrupt: files are cleared away."""
    if threading.current_thread() is not threading.main_thread():
        return
    signals = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]

    def end(number: int, _: object) -> None:
        for each in signals:
            signal.signal(each, signal.SIG_IGN)  # once is enough
        sys.exit(128 + number)

    for each in signals:
        if signal.getsignal(each) is not signal.SIG_IGN:  # nohup
            signal.signal(each, end)


def _calm_threads() -> None:
    """One thread for BLAS, unless the user says otherwise; read when numpy is imported, which is after this.

    Layers are small: sharing their products out costs more than it gains, and on a busy machine many times as much.
    """
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ.setdefault(name, "1")


def _with_negative_numbers(words: Sequence[str]) -> list[str]:
    """Joins ``--eps -1e-3`` to one word: argparse would take the number for an option."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1] in {"--eps", "--input-scale", "--input-norm"} and word.startswith("-"):
            joined[-1] = f"{joined[-1]}={word}"
        elif "--input-box" in joined[-2:] and word.startswith("-") and not word.startswith("--"):
            joined.append(f" {word}")  # what contains a blank is no option, and blanks around numbers do not count
        else:
            joined.append(word)
    return joined


def _abandon_stdout() -> None:
    """Sends what is still buffered nowhere, so that the interpreter does not fail on it at exit."""
    with contextlib.suppress(AttributeError, ValueError, OSError):  # there may be none, or one without a descriptor
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(message: str) -> None:
    if sys.stderr is not None:  # print would turn to stdout
        print(message, file=sys.stderr)


def _is_watched() -> bool:
    """Whether somebody sees stderr."""
    return sys.stderr is not None and sys.stderr.isatty()


# -- the parser ------------------------------------------------------------------------------------------------------


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="intervalcert",
        description="Proves, with rigorous arithmetic, that a small change of the input cannot change a neural "
        "network's answer. Try: intervalcert demo",
        epilog="Exit codes: 0 ran, 1 --check and something is not certified, 2 usage, 3 input refused, "
        "4 a soundness self-check failed.",
    )
    parser.add_argument("--version", action="version", version=f"intervalcert {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    bounds = commands.add_parser("bounds", help="bound a model's layers and margins (once per model)")
    _add_model(bounds)
    bounds.add_argument(
        "--backend", default="arb", metavar="NAME", help="arb (default), float64 (fastest), exact, or mpmath"
    )
    bounds.add_argument(
        "--method",
        choices=("auto", "gram", "cholesky"),
        help="how norms are bounded: gram iteration; cholesky, tight to 1e-9 and better; auto, the tighter of both for "
        "small layers, else cholesky (default: gram if --iterations is a number, else auto)",
    )
    bounds.add_argument(
        "--margins",
        choices=("product", "chain", "best"),
        default="best",
        help="margins from the product of the norms, from a chain through all layers (tighter), or the best of both "
        "for each pair of classes (default)",
    )
    bounds.add_argument(
        "--effort",
        type=_natural,
        default=0,
        metavar="ROUNDS",
        help="rounds of tuning the chain, in floats, before it is proved (default 0: a closed form); 5 to 20 help",
    )
    bounds.add_argument(
        "--prec", type=_natural, metavar="BITS", help="bits of the grid and the square roots (default 64)"
    )
    bounds.add_argument(
        "--iterations",
        type=_iterations,
        default="auto",
        metavar="N",
        help="Gram steps per layer, or auto (default): until a step gains less than 1e-5 of the bound",
    )
    bounds.add_argument("-o", "--output", type=Path, metavar="FILE", help="write the bounds file (JSON)")
    bounds.set_defaults(run=_bounds)

    certify = commands.add_parser(
        "certify",
        help="certify outputs against a bounds file, or inputs of a model",
        description="Certifies given logits (BOUNDS OUTPUTS), or inputs (--model MODEL --inputs FILE, with the model's "
        "BOUNDS if they are computed already): their logits are then enclosed by a rigorous forward pass.",
    )
    _add_outputs(certify, optional=True)
    certify.add_argument("--model", type=Path, metavar="MODEL", help="the model, for --inputs")
    _add_model_options(certify)
    certify.add_argument(
        "--inputs",
        type=Path,
        metavar="FILE",
        help="inputs in the place of OUTPUTS, one per row: .npy, .parquet or .csv",
    )
    _add_scale(certify)
    certify.add_argument(
        "--local", action="store_true", help="look at the input itself where the bounds leave it uncertified"
    )
    certify.add_argument(
        "--effort",
        type=_natural,
        metavar="ROUNDS",
        help="rounds of the local search for each input that comes close (default 10)",
    )
    certify.add_argument("--jobs", type=_natural, metavar="N", help="processes for --inputs (default: one per core)")
    certify.add_argument(
        "--deployed",
        choices=("real", "float32", "float16", "bfloat16", "float64"),
        default="real",
        help="which network is certified: over the reals (default), or the program in that format, in any order of "
        "summation; its weights are rounded to the format first",
    )
    certify.add_argument(
        "--input-norm", metavar="R", help="for given logits of a program in floats: the largest L2 norm of its inputs"
    )
    certify.add_argument(
        "--input-box", nargs=2, metavar=("LO", "HI"), help="the same, for inputs whose entries are between LO and HI"
    )
    certify.add_argument("--eps", metavar="E", help="radius, read exactly: 0.3, 1e-2 or 36/255")
    certify.add_argument("--labels", type=Path, metavar="FILE", help="true classes: one per line, or .npy")
    certify.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write verdicts: .csv, .jsonl, .npy or .parquet"
    )
    certify.add_argument("--json", action="store_true", help="print one JSON object (accuracy and vra as parts of 1)")
    certify.add_argument("--check", action="store_true", help="exit with 1 if any output is not certified")
    certify.set_defaults(run=_certify)

    evaluate = commands.add_parser(
        "evaluate",
        help="enclose the logits of inputs by a rigorous forward pass",
        description="Encloses what the network over the reals computes at each input: lower and upper ends of all "
        "logits, rounded outward.",
    )
    _add_model(evaluate)
    evaluate.add_argument("inputs", type=Path, metavar="INPUTS", help="one input per row: .npy, .parquet or .csv")
    _add_dtype(evaluate)
    _add_scale(evaluate)
    evaluate.add_argument(
        "--backend",
        default="float64",
        metavar="NAME",
        help="float64 (default), arb (narrower), exact or mpmath",
    )
    evaluate.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="write to .csv or .npy (inputs x classes x 2), not stdout; or to .npz (lower0, upper0, …: of all layers)",
    )
    evaluate.set_defaults(run=_evaluate)

    radius = commands.add_parser("radius", help="the largest certified radius of each output")
    _add_outputs(radius)
    radius.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write to .csv, .jsonl, .npy or .parquet, not stdout"
    )
    radius.set_defaults(run=_radius)

    audit = commands.add_parser("audit", help="check a bounds file against its model with exact rationals")
    audit.add_argument("bounds", type=Path, metavar="BOUNDS", help="the bounds file")
    audit.add_argument("--model", type=Path, required=True, metavar="MODEL", help="the model that it is of")
    _add_model_options(audit)
    audit.set_defaults(run=_audit)

    demo = commands.add_parser("demo", help="a tour on a small model that comes with the program")
    demo.set_defaults(run=_demo)
    return parser


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", type=Path, metavar="MODEL", help=".npz (W0, W1, … outputs x inputs; b0, …), .npy, or the text format"
    )
    _add_model_options(parser)


def _add_model_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--biases", type=Path, metavar="FILE", help="biases in the text format: […],[…]")
    parser.add_argument(
        "--activation",
        metavar="NAME",
        help=f"what stands between the layers (default relu): {_ACTIVATIONS}",
    )


def _add_outputs(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    count = "?" if optional else None
    parser.add_argument(
        "bounds", type=Path, nargs=count, metavar="BOUNDS", help="a bounds file made by intervalcert bounds"
    )
    parser.add_argument(
        "outputs",
        type=Path,
        nargs=count,
        metavar="OUTPUTS",
        help="logits: .npy, .parquet, .csv, or lines 'y0,y1,… eps' with their own radius",
    )
    _add_dtype(parser)


def _add_dtype(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dtype", choices=["bfloat16"], help="what the two-byte numbers of a .npy file are, which does not say it"
    )


def _add_scale(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--input-scale", metavar="S", help="what the inputs are multiplied with, exactly: 1/255 for images of bytes"
    )


def _natural(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > 9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def _iterations(text: str) -> Iterations:
    return "auto" if text == "auto" else _natural(text)


# -- the commands ----------------------------------------------------------------------------------------------------


def _bounds(arguments: argparse.Namespace) -> int:
    from intervalcert.api import compute_bounds
    from intervalcert.artifacts import save_bounds
    from intervalcert.backends import DEFAULT_PREC, get_backend
    from intervalcert.files import check_output
    from intervalcert.loaders import load_model
    from intervalcert.report import bounds_tables, print_data

    prec = DEFAULT_PREC if arguments.prec is None else arguments.prec
    get_backend(arguments.backend, prec)  # refuse a wrong name before reading a large model
    if arguments.output is not None:
        check_output(arguments.output, arguments.model, arguments.biases)
    network = load_model(arguments.model, arguments.biases, activation=_activation(arguments))
    with _layer_progress("bounds", len(network.layers)) as on_step:
        found = compute_bounds(
            network,
            arguments.backend,
            arguments.iterations,
            method=arguments.method,
            margins=arguments.margins,
            effort=arguments.effort,
            prec=prec,
            on_step=on_step,
        )
    if arguments.output is not None:
        save_bounds(found, arguments.output)
    print_data(bounds_tables(found))
    if arguments.output is not None:
        _say(f"wrote {arguments.output}")
    return 0


def _certify(arguments: argparse.Namespace) -> int:
    from intervalcert.api import bulk_certifier
    from intervalcert.artifacts import load_bounds
    from intervalcert.batch import VERDICT_COLUMNS
    from intervalcert.rational import shortest_exact

    _check_sources(arguments)
    _check_output(arguments)
    semantics = arguments.deployed
    if arguments.inputs is not None:
        summary = _certify_inputs(arguments)
    elif semantics != "real":
        summary = _certify_deployed(arguments)
    else:
        bounds = load_bounds(arguments.bounds)
        certifier = bulk_certifier(bounds)
        with _sink(arguments, VERDICT_COLUMNS) as write:
            summary = _run("certify", arguments, certifier, _radii(arguments), write)
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
            "semantics": semantics,
            "eps_space": "input",
            "norm": "L2",
        }
        print(json.dumps(shown))
    else:
        from intervalcert.report import print_data, summary_table

        print_data(summary_table(summary, eps or "each output's own", semantics, given_logits=arguments.inputs is None))
    if arguments.output is not None:
        _say(f"wrote {arguments.output}")
    return 1 if arguments.check and summary.certified < summary.total else 0


def _check_sources(arguments: argparse.Namespace) -> None:
    """Logits with bounds, or inputs with a model, or logits of a program in floats with its model and inputs' norm."""
    known = arguments.input_norm is not None or arguments.input_box is not None
    if arguments.inputs is not None:
        if arguments.outputs is not None:
            raise UsageError("OUTPUTS and --inputs exclude each other: the logits follow from the inputs")
        if arguments.model is None:
            raise UsageError("--inputs needs the model: --model MODEL")
        if known:
            raise UsageError("--input-norm and --input-box are for given logits: the inputs tell their norm themselves")
        if arguments.effort is not None and not arguments.local:
            raise UsageError("--effort is for the local search: say --local")
        return
    for name in ("input_scale", "effort", "jobs"):
        if getattr(arguments, name) is not None:
            raise UsageError(f"--{name.replace('_', '-')} goes with --inputs")
    if arguments.effort is not None and not arguments.local:
        raise UsageError("--effort is for the local search: say --local")
    if arguments.local:
        raise UsageError("--local looks at inputs: say --model MODEL --inputs FILE in the place of OUTPUTS")
    if arguments.deployed == "real":
        for name in ("model", "biases", "activation"):
            if getattr(arguments, name) is not None:
                raise UsageError(f"--{name} goes with --inputs, or with --deployed FORMAT")
        if known:
            raise UsageError("--input-norm and --input-box go with --deployed FORMAT")
        if arguments.bounds is None or arguments.outputs is None:
            raise UsageError("certify takes BOUNDS and OUTPUTS, or --model MODEL --inputs FILE")
        return
    if arguments.outputs is None:  # a single file: bounds may be left out, logits may not
        arguments.bounds, arguments.outputs = None, arguments.bounds
    if arguments.model is None or arguments.outputs is None:
        raise UsageError("--deployed FORMAT takes --model MODEL, and OUTPUTS or --inputs FILE")
    if (arguments.input_norm is None) == (arguments.input_box is None):
        raise UsageError("given logits say nothing of the inputs: say --input-norm R, or --input-box LO HI")


def _certify_inputs(arguments: argparse.Namespace) -> Summary:
    from intervalcert.api import input_task
    from intervalcert.artifacts import load_bounds
    from intervalcert.batch import VERDICT_COLUMNS, certify_inputs_of
    from intervalcert.loaders import load_model
    from intervalcert.local import DEFAULT_EFFORT
    from intervalcert.tables import open_labels

    radii, scale = _radii(arguments), _number(arguments.input_scale, "--input-scale")
    network = load_model(arguments.model, arguments.biases, activation=_activation(arguments))
    bounds = load_bounds(arguments.bounds) if arguments.bounds is not None else None
    effort = DEFAULT_EFFORT if arguments.effort is None else arguments.effort
    task = input_task(network, bounds, effort if arguments.local else None, arguments.deployed)
    _say_coarse(task)
    headers: list[tuple[str, bool]] = []
    source = _open_inputs(arguments, headers)
    labels = None if arguments.labels is None else open_labels(arguments.labels, network.outputs)
    jobs = arguments.jobs or os.cpu_count() or 1
    with _sink(arguments, VERDICT_COLUMNS) as write, _row_progress("certify", source.size) as on_rows:
        summary = certify_inputs_of(
            task, source, radii, scale=scale, jobs=jobs, labels=labels, write=write, on_rows=on_rows
        )
    _say_headers(arguments.inputs, headers)
    return summary


def _open_inputs(arguments: argparse.Namespace, headers: list[tuple[str, bool]]) -> RowSource:
    from intervalcert.tables import open_rows

    bfloat16 = arguments.dtype == "bfloat16"
    return open_rows(arguments.inputs, bfloat16=bfloat16, on_header=lambda *line: headers.append(line))


def _say_headers(path: Path, headers: Sequence[tuple[str, bool]]) -> None:
    for line, taken in headers:
        what = "taken for a header" if taken else "read as numbers; if it is a header, take it out"
        _say(f"{path}: the first line is {what}: {line[:60]}")


def _certify_deployed(arguments: argparse.Namespace) -> Summary:
    """Given logits of a program in floats, by the worst case over inputs of some norm."""
    from intervalcert.api import input_task
    from intervalcert.artifacts import load_bounds
    from intervalcert.batch import VERDICT_COLUMNS
    from intervalcert.inputs import LogitCertifier
    from intervalcert.loaders import load_model
    from intervalcert.rational import sqrt_upper

    radii, norm = _radii(arguments), _number(arguments.input_norm, "--input-norm")
    network = load_model(arguments.model, arguments.biases, activation=_activation(arguments))
    if norm is None:
        low, high = (_number(text, "--input-box") for text in arguments.input_box)
        if low is None or high is None or low > high:
            raise InputError("--input-box: the lower end must not be above the upper one")
        norm = sqrt_upper(network.inputs * max(abs(low), abs(high)) ** 2, 64)
    bounds = load_bounds(arguments.bounds) if arguments.bounds is not None else None
    task = input_task(network, bounds, None, arguments.deployed)
    _say_coarse(task)
    certifier = LogitCertifier(task, norm)
    with _sink(arguments, VERDICT_COLUMNS) as write:
        return _run("certify", arguments, certifier, radii, write)


def _activation(arguments: argparse.Namespace) -> str:
    return "relu" if arguments.activation is None else str(arguments.activation)


def _say_coarse(task: Task) -> None:
    from intervalcert.deployed import too_coarse

    reason = None if task.form is None else too_coarse(task.network, task.form)
    if reason is not None:
        _say(f"intervalcert: {reason}")


def _number(text: str | None, what: str) -> Fraction | None:
    from intervalcert.rational import parse_rational

    if text is None:
        return None
    try:
        return parse_rational(text)
    except InputError as error:
        raise InputError(f"{what}: {error}") from None


def _evaluate(arguments: argparse.Namespace) -> int:
    from intervalcert.api import evaluate_table
    from intervalcert.backends import get_backend
    from intervalcert.files import check_output
    from intervalcert.loaders import load_model
    from intervalcert.tables.enclosures import check_enclosure_ending, enclosure_sink, enclosure_text

    get_backend(arguments.backend)
    if arguments.output is not None:
        check_enclosure_ending(arguments.output)
        check_output(arguments.output, arguments.model, arguments.biases, arguments.inputs)
    scale = _number(arguments.input_scale, "--input-scale")
    network = load_model(arguments.model, arguments.biases, activation=_activation(arguments))
    headers: list[tuple[str, bool]] = []
    source = _open_inputs(arguments, headers)
    with contextlib.ExitStack() as stack:
        file = arguments.output
        write = enclosure_text(print) if file is None else stack.enter_context(enclosure_sink(file))
        on_rows = stack.enter_context(_row_progress("evaluate", source.size))
        for found, work in evaluate_table(network, source.chunks, scale, arguments.backend):
            write(found)
            on_rows(len(found.lower[-1]), work)
    _say_headers(arguments.inputs, headers)
    if arguments.output is not None:
        _say(f"wrote {arguments.output}")
    return 0


def _radius(arguments: argparse.Namespace) -> int:
    from fractions import Fraction

    from intervalcert.api import bulk_certifier
    from intervalcert.artifacts import load_bounds
    from intervalcert.batch import RADIUS_COLUMNS
    from intervalcert.bulk import Radii

    _check_output(arguments)
    bounds = load_bounds(arguments.bounds)
    certifier = bulk_certifier(bounds)
    with _sink(arguments, RADIUS_COLUMNS) as write:
        _run("radius", arguments, certifier, Radii.all_equal(Fraction(0)), write or _to_stdout(RADIUS_COLUMNS))
    if arguments.output is not None:
        _say(f"wrote {arguments.output}")
    return 0


def _run(
    what: str,
    arguments: argparse.Namespace,
    certifier: BulkCertifier | LogitCertifier,
    radii: Radii | None,
    write: Write | None,
) -> Summary:
    """Certifies the outputs of a file, with progress."""
    from intervalcert.batch import certify_source
    from intervalcert.tables import open_labels, open_rows

    headers: list[tuple[str, bool]] = []
    bfloat16 = arguments.dtype == "bfloat16"
    source = open_rows(
        arguments.outputs, certifier.classes, bfloat16=bfloat16, on_header=lambda *line: headers.append(line)
    )
    path = getattr(arguments, "labels", None)
    labels = None if path is None else open_labels(path, certifier.classes)
    with _row_progress(what, source.size) as on_rows:
        summary = certify_source(certifier, source, radii, labels=labels, write=write, on_rows=on_rows)
    _say_headers(arguments.outputs, headers)
    return summary


def _check_output(arguments: argparse.Namespace) -> None:
    """Refuses at once an output file that cannot be written."""
    from intervalcert.batch import check_ending
    from intervalcert.files import check_output

    if arguments.output is not None:
        check_ending(arguments.output)
        others = (getattr(arguments, name, None) for name in ("model", "biases", "inputs", "labels"))
        check_output(arguments.output, arguments.bounds, arguments.outputs, *others)


@contextlib.contextmanager
def _sink(arguments: argparse.Namespace, columns: Sequence[str]) -> Iterator[Write | None]:
    """What takes the verdicts, if a file was named for them."""
    from intervalcert.batch import Meaning, verdict_sink

    if arguments.output is None:
        yield None
        return
    with verdict_sink(arguments.output, columns, Meaning(getattr(arguments, "deployed", "real"))) as write:
        yield write


def _to_stdout(columns: Sequence[str]) -> Write:
    from intervalcert.batch import csv_pieces

    piece = csv_pieces(columns)
    return lambda verdicts: print(piece(verdicts), end="")


def _radii(arguments: argparse.Namespace) -> Radii | None:
    """The radius of all outputs; None if each carries its own."""
    from intervalcert.bulk import Radii
    from intervalcert.rational import parse_rational

    if arguments.eps is None:
        return None
    try:
        eps = parse_rational(arguments.eps)
    except InputError as error:
        raise InputError(f"--eps: {error}") from None
    if eps < 0:
        raise InputError(f"--eps: a radius must not be negative, and this one is {arguments.eps}")
    return Radii.all_equal(eps)


def _audit(arguments: argparse.Namespace) -> int:
    from intervalcert.api import audit
    from intervalcert.artifacts import load_bounds
    from intervalcert.loaders import load_model
    from intervalcert.report import audit_table, print_data

    bounds = load_bounds(arguments.bounds)
    network = load_model(arguments.model, arguments.biases, activation=_activation(arguments))
    with _layer_progress("audit", len(network.layers)) as on_step:
        report = audit(bounds, network, on_step)
    print_data(audit_table(report))
    if not report.confirmed:
        names = ", ".join(claim.what for claim in report.unconfirmed)
        raise SoundnessError(f"{arguments.bounds} claims what exact arithmetic does not confirm: {names}")
    return 0


def _demo(_: argparse.Namespace) -> int:
    from intervalcert.demo import run_demo
    from intervalcert.report import print_data

    print_data(run_demo(_say if _is_watched() else lambda _: None))
    return 0


# -- progress --------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _row_progress(what: str, size: int | None) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr with rate and remaining time; nothing at all if stderr is not a terminal."""
    if not _is_watched():
        yield lambda *_: None
        return
    from time import monotonic

    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[at]}"), TimeRemainingColumn())
    console = Console(stderr=True)  # stdout is data: it must not be drawn above the bar
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as progress:
        task = progress.add_task(what, total=size, at="")
        start, done = monotonic(), 0

        def on_rows(rows: int, work: int) -> None:
            nonlocal done
            done += rows
            rate = done / max(monotonic() - start, 1e-3)
            progress.update(task, advance=work, at=f"{done:,} outputs, {rate:,.0f}/s")

        yield on_rows


@contextlib.contextmanager
def _layer_progress(what: str, layers: int) -> Iterator[Callable[[int], None]]:
    """A bar that counts layers and names the step within the layer."""
    if not _is_watched():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[at]}"), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(what, total=layers, at=f"layer 0 of {layers}")
        steps: dict[int, int] = {}

        def on_step(layer: int) -> None:
            steps[layer] = steps.get(layer, 0) + 1
            progress.update(task, completed=layer, at=f"layer {layer} of {layers}, step {steps[layer]}")

        yield on_step
