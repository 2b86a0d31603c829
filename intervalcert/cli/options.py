"""The options of the command line: what may be said, and what does not go together. Nothing is run here."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from intervalcert import __version__
from intervalcert.errors import UsageError

if TYPE_CHECKING:
    from intervalcert.proof.norms import Iterations

__all__ = ["check_radius", "check_sources", "parsed"]

_ACTIVATIONS = (
    "relu, tanh, hard_tanh, sigmoid, softplus, identity, leaky_relu:SLOPE, elu:ALPHA, clip:LO:HI, min_max:halves, "
    "min_max:neighbours, group_sort:SIZE:neighbours, or min_max and group_sort for bounds alone"
)


_NUMBERS = ("--eps", "--width", "--input-scale", "--input-norm", "--mean", "--std", "--threshold")


def parsed(words: Sequence[str]) -> argparse.Namespace:
    """What a command line says; `command` is the name of the command. Ends the program on a word that is not known."""
    return _parser().parse_args(_with_negative_numbers(words))


def _with_negative_numbers(words: Sequence[str]) -> list[str]:
    """Joins ``--eps -1e-3`` to one word: argparse would take the number for an option."""
    joined: list[str] = []
    for word in words:
        if joined and joined[-1] in _NUMBERS and word.startswith("-"):
            joined[-1] = f"{joined[-1]}={word}"
        elif "--input-box" in joined[-2:] and word.startswith("-") and not word.startswith("--"):
            joined.append(f" {word}")  # what contains a blank is no option, and blanks around numbers do not count
        else:
            joined.append(word)
    return joined


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="intervalcert",
        description="Proves, with rigorous arithmetic, that a small change of the input cannot change a neural "
        "network's answer. Try: intervalcert demo",
        epilog="Exit codes: 0 ran, 1 --check and something is not certified, 2 usage, 3 input refused, "
        "4 a soundness self-check failed, or an audit did not confirm a claim.",
    )
    parser.add_argument("--version", action="version", version=f"intervalcert {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    bounds = commands.add_parser("bounds", help="bound a model's layers and margins (once per model)")
    _add_model(bounds)
    _add_backend(bounds)
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
    _add_rounds(
        bounds,
        "--tuning-rounds",
        "of tuning the chain, in floats, before it is proved (default 0: a closed form); 5 to 20 help",
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
    bounds.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="write the bounds file (JSON), and beside it FILE.witnesses.npz, which proves it",
    )
    _add_certificate(bounds)
    bounds.set_defaults(command="bounds")

    certify = commands.add_parser(
        "certify",
        help="certify outputs against a bounds file, or inputs of a model",
        description="Certifies given logits (BOUNDS OUTPUTS); or inputs (--model MODEL --inputs FILE, with the model's "
        "BOUNDS if they are computed already), whose logits are then enclosed by a rigorous forward pass; or given "
        "logits of a program in floats (OUTPUTS --model MODEL --deployed FORMAT --input-norm R).",
    )
    _add_outputs(certify, optional=True)
    _add_inputs(certify, "the model, for --inputs or --deployed")
    _add_format(certify)
    certify.add_argument(
        "--input-norm", metavar="R", help="for given logits of a program in floats: the largest L2 norm of its inputs"
    )
    certify.add_argument(
        "--input-box",
        nargs=2,
        metavar=("LO", "HI"),
        help="the same, for inputs whose entries are between LO and HI; --inputs outside of it are refused",
    )
    certify.add_argument("--eps", metavar="E", help="how far an input may move, read exactly: 0.3, 1e-2 or 36/255")
    _add_labels(certify)
    certify.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write verdicts: .csv, .jsonl, .npy or .parquet"
    )
    _add_certificate(certify)
    certify.add_argument("--json", action="store_true", help="print one JSON object (accuracy and vra as parts of 1)")
    certify.add_argument("--check", action="store_true", help="exit with 1 if any output is not certified")
    certify.set_defaults(command="certify")

    evaluate = commands.add_parser(
        "evaluate",
        help="enclose the logits of inputs by a rigorous forward pass",
        description="Encloses what the network over the reals computes at each input: lower and upper ends of all "
        "logits, rounded outward.",
    )
    _add_model(evaluate, eps_space=False)
    evaluate.add_argument("inputs", type=Path, metavar="INPUTS", help="one input per row: .npy, .parquet or .csv")
    _add_dtype(evaluate)
    _add_scale(evaluate)
    evaluate.add_argument(
        "--input-box", nargs=2, metavar=("LO", "HI"), help="refuse inputs whose entries are not between LO and HI"
    )
    _add_backend(evaluate)
    evaluate.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="write to .csv or .npy (inputs x classes x 2), not stdout; or to .npz (lower0, upper0, …: of all layers)",
    )
    evaluate.set_defaults(command="evaluate")

    radius = commands.add_parser(
        "radius",
        allow_abbrev=False,  # --eps is no --eps-space
        help="the largest certified radius of each output, or a bracket of the robust radius of each input",
        description="The largest certified radius of each of given logits (BOUNDS OUTPUTS); or of inputs (--model "
        "MODEL --inputs FILE, with the model's BOUNDS if they are computed already): with --complete a bracket of the "
        "robust radius, certified at its lower end and falsified at its upper one.",
    )
    _add_outputs(radius, optional=True)
    _add_inputs(radius, "the model, for --inputs")
    _add_format(radius)
    radius.add_argument(
        "--input-box", nargs=2, metavar=("LO", "HI"), help="refuse inputs whose entries are not between LO and HI"
    )
    radius.add_argument(
        "--width",
        metavar="W",
        help="what a bracket may be wide, as a part of its upper end (with --complete); with --local, how near to a "
        "lower end an eps is that is not certified (default 0.01)",
    )
    _add_labels(radius)
    radius.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="write to .csv, .jsonl, .npy or .parquet; without it radii of outputs go to stdout",
    )
    radius.add_argument("--json", action="store_true", help="print the summary of --inputs as one JSON object")
    radius.set_defaults(command="radius")

    audit = commands.add_parser(
        "audit",
        help="check a bounds file, or a certificate, against its model with exact rationals",
        description="Checks every claim of a bounds file by the witnesses beside it, or of a certificate by the "
        "checker that stands alone (python -m intervalcert.checker, which reads .npz and text models).",
    )
    audit.add_argument(
        "bounds", type=Path, metavar="FILE", help="a bounds file, whose witnesses are beside it, or a certificate"
    )
    for what in ("outputs", "inputs"):
        audit.add_argument(
            f"--{what}", type=Path, metavar="FILE", help=f"the {what} that a certificate is about: .npy or text"
        )
    _add_scale(audit)
    audit.add_argument("--model", type=Path, required=True, metavar="MODEL", help="the model that it is of")
    audit.add_argument(
        "--budget",
        type=_natural,
        metavar="SECONDS",
        help="refuse what is estimated to take longer (default: 60, or twice what the model's default bounds take)",
    )
    _add_model_options(audit)
    audit.set_defaults(command="audit")

    inspect = commands.add_parser(
        "inspect",
        help="show what was understood of a model",
        description="Shows what was understood of a model: layers, shapes, activations, normalisation, hashes, and in "
        "which space eps is measured. Whatever is not understood exactly is refused.",
    )
    _add_model(inspect)
    inspect.set_defaults(command="inspect")

    convert = commands.add_parser(
        "convert",
        help="write the exact network that is certified to one .npz file",
        description="Writes what was understood of a model, exactly, to one .npz file, which all commands read. "
        "Numbers that are no floats are written as texts such as 1/3.",
    )
    _add_model(convert, eps_space=False)
    convert.add_argument("output", type=Path, metavar="OUT.npz", help="the file to write")
    convert.set_defaults(command="convert")

    demo = commands.add_parser("demo", help="a tour on a small model that comes with the program")
    demo.set_defaults(command="demo")
    return parser


def _add_model(parser: argparse.ArgumentParser, *, eps_space: bool = True) -> None:
    parser.add_argument(
        "model",
        type=Path,
        metavar="MODEL",
        help=".onnx, .keras, .pt (a state dict), .safetensors, .npz (W0, W1, … outputs x inputs; b0, …), .npy, or the "
        "text format",
    )
    _add_model_options(parser, eps_space=eps_space)


def _add_model_options(parser: argparse.ArgumentParser, *, eps_space: bool = True) -> None:
    group = parser.add_argument_group("what a model file may not say itself")
    group.add_argument("--biases", type=Path, metavar="FILE", help="biases in the text format: […],[…]")
    group.add_argument(
        "--activation",
        metavar="NAME",
        help=f"what stands between the layers (default relu): {_ACTIVATIONS}",
    )
    group.add_argument(
        "--layers", type=_names, metavar="A,B,…", help="the layers in their order, by name (.pt, .safetensors)"
    )
    group.add_argument(
        "--strip-softmax",
        action="store_true",
        help="leave out a softmax or a sigmoid at the end: margins live on the logits before it",
    )
    single = group.add_mutually_exclusive_group()
    single.add_argument(
        "--threshold",
        metavar="T",
        help="of a single output y: class 1 if y > T, else class 0 (default 0; on the logit, if a sigmoid is stripped)",
    )
    single.add_argument(
        "--regression",
        action="store_true",
        help="a single output is a number without classes: bounds of its Lipschitz constant, nothing to certify",
    )
    for name in ("mean", "std"):
        group.add_argument(
            f"--{name}",
            type=_listed,
            metavar="X",
            help=f"{name} by which inputs are normalised before the model: one number, or one per channel or entry",
        )
    if eps_space:
        _add_eps_space(group)


def _add_eps_space(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--eps-space",
        choices=("input", "normalised"),
        help="where eps is measured: before the normalisation of the inputs (default), or after it",
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(","))


def _listed(text: str) -> list[str]:
    return text.split(",")


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
        help="logits: .npy, .parquet, .csv, or lines 'y0,y1,… eps' with their own eps; one column for a single output",
    )
    _add_dtype(parser)


def _add_inputs(parser: argparse.ArgumentParser, text: str) -> None:
    """Inputs of a model, and how hard each of them is looked at. text: what the model is for."""
    parser.add_argument("--model", type=Path, metavar="MODEL", help=text)
    _add_model_options(parser)
    parser.add_argument(
        "--inputs",
        type=Path,
        metavar="FILE",
        help="inputs in the place of OUTPUTS, one per row: .npy, .parquet or .csv",
    )
    _add_scale(parser)
    parser.add_argument(
        "--local", action="store_true", help="look at the input itself where the bounds leave it uncertified"
    )
    _add_rounds(parser, "--local-rounds", "of the local search for each input that comes close (default 10)")
    parser.add_argument(
        "--complete",
        action="store_true",
        help="decide every input: what --local leaves open (this implies it) is certified by a dual, or falsified by a "
        "counterexample",
    )
    parser.add_argument(
        "--dual-steps", type=_natural, metavar="N", help="of the search for the dual of a class (default 200)"
    )
    parser.add_argument(
        "--max-splits",
        type=_natural,
        metavar="N",
        help="of an input into cases, where no dual is enough (default 1000)",
    )
    parser.add_argument(
        "--time-per-input",
        type=_seconds,
        metavar="S",
        help="end the search for an input after so many seconds (default: by steps and splits alone)",
    )
    parser.add_argument(
        "--counterexamples", type=Path, metavar="FILE.npz", help="writes the changes that falsify (with --complete)"
    )
    parser.add_argument("--jobs", type=_natural, metavar="N", help="processes for --inputs (default: one per core)")


def _add_certificate(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--certificate",
        type=Path,
        metavar="FILE.cert",
        help="write what is claimed, and what proves it: audit FILE.cert, or python -m intervalcert.checker",
    )


def _add_format(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--deployed",
        choices=("real", "float32", "float16", "bfloat16", "float64"),
        default="real",
        help="which network is certified: over the reals (default), or the program in that format, in any order of "
        "summation; its weights are rounded to the format first",
    )


def _add_labels(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--labels", type=Path, metavar="FILE", help="true classes: one per line, or .npy")


def _add_dtype(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--dtype", choices=["bfloat16"], help="what the two-byte numbers of a .npy file are, which does not say it"
    )


def _add_backend(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--backend",
        default="auto",
        metavar="NAME",
        help="auto (default): float64 with every error bounded, then arb, then exact for what is left; or begin with "
        "arb (narrower), float64, exact or mpmath",
    )


def _add_rounds(parser: argparse.ArgumentParser, name: str, text: str) -> None:
    """A number of rounds, and the old word for it."""
    either, dest = parser.add_mutually_exclusive_group(), name.removeprefix("--").replace("-", "_")
    either.add_argument(name, type=_natural, metavar="N", help=f"rounds {text}")
    either.add_argument("--effort", type=_natural, dest=dest, help=argparse.SUPPRESS)


def _add_scale(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--input-scale",
        metavar="S",
        help="what the inputs are multiplied with, exactly: 1/255 for images of bytes, 1 for whole numbers as they are",
    )


def _natural(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or len(text) > 9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def _seconds(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = 0.0
    if not 0 < found < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return found


def _iterations(text: str) -> Iterations:
    return "auto" if text == "auto" else _natural(text)


_OF_MODEL = ("model", "biases", "activation", "layers", "strip_softmax", "threshold", "regression", "mean", "std")

_OF_COMPLETE = ("dual_steps", "max_splits", "time_per_input", "counterexamples")
"""Options that go with --complete."""


def check_sources(arguments: argparse.Namespace) -> None:
    """Logits with bounds, or inputs with a model, or logits of a program in floats with its model and inputs' norm."""
    if arguments.inputs is not None:
        _check_inputs(arguments)
        if arguments.input_norm is not None:
            raise UsageError("--input-norm is for given logits: the inputs tell their norm themselves")
        return
    _check_no_inputs(arguments)
    known = arguments.input_norm is not None or arguments.input_box is not None
    if arguments.deployed == "real":
        for name in _OF_MODEL if arguments.certificate is None else ():
            if getattr(arguments, name) not in (None, False):
                raise UsageError(f"--{name.replace('_', '-')} goes with --inputs, or with --deployed FORMAT")
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


def _check_inputs(arguments: argparse.Namespace) -> None:
    """Inputs with a model, and what goes with them."""
    _check_jobs(arguments)
    if arguments.outputs is not None:
        raise UsageError("OUTPUTS and --inputs exclude each other: the logits follow from the inputs")
    if arguments.model is None:
        raise UsageError("--inputs needs the model: --model MODEL")
    if arguments.local_rounds is not None and not (arguments.local or arguments.complete):
        raise UsageError("--local-rounds is for the local search: say --local")
    for name in _OF_COMPLETE:
        if getattr(arguments, name) is not None and not arguments.complete:
            raise UsageError(f"--{name.replace('_', '-')} goes with --complete")


def _check_no_inputs(arguments: argparse.Namespace) -> None:
    """What goes with inputs alone."""
    _check_jobs(arguments)
    for name in ("input_scale", "local_rounds", "jobs", *_OF_COMPLETE):
        if getattr(arguments, name) is not None:
            raise UsageError(f"--{name.replace('_', '-')} goes with --inputs")
    for name in ("local", "complete"):
        if getattr(arguments, name):
            raise UsageError(f"--{name} looks at inputs: say --model MODEL --inputs FILE in the place of OUTPUTS")


def _check_jobs(arguments: argparse.Namespace) -> None:
    if arguments.jobs == 0:
        raise UsageError("--jobs 0: at least one process must work")


def check_radius(arguments: argparse.Namespace) -> None:
    """Logits with bounds, or inputs with a model."""
    if arguments.inputs is not None:
        _check_inputs(arguments)
        if arguments.width is not None and not (arguments.local or arguments.complete):
            raise UsageError("--width is of a search at the input itself: say --complete, or --local")
        return
    _check_no_inputs(arguments)
    for name in (*_OF_MODEL, "eps_space", "width", "labels", "json", "input_box"):
        if getattr(arguments, name) not in (None, False):
            raise UsageError(f"--{name.replace('_', '-')} goes with --inputs")
    if arguments.deployed != "real":
        raise UsageError("--deployed goes with --inputs")
    if arguments.bounds is None or arguments.outputs is None:
        raise UsageError("radius takes BOUNDS and OUTPUTS, or --model MODEL --inputs FILE")
