"""Tables for people. Numbers are rounded outward, also here: a table must not say less than the bound."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from decimal import MAX_EMAX, MIN_EMIN, ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from math import isfinite

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from intervalcert.backends.protocol import Floats
from intervalcert.bounds.audit import AuditReport
from intervalcert.bounds.margin_bounds import Margins
from intervalcert.bounds.results import Bounds
from intervalcert.execution.radii import Medians, RadiusSummary
from intervalcert.execution.streaming import Summary
from intervalcert.model.activations import activation
from intervalcert.model.layers import INPUT, Layer
from intervalcert.model.linear_maps import shape_text
from intervalcert.model.network import EpsSpace, Network
from intervalcert.model.single import Single
from intervalcert.numbers.parsing import MAX_BINARY_EXPONENT, parse_rational
from intervalcert.numbers.rounding import sqrt_upper
from intervalcert.numbers.text import decimal_lower, decimal_upper, shortest_exact
from intervalcert.proof.decision import Bracket

__all__ = [
    "audit_table",
    "bounds_tables",
    "distance_text",
    "excess_text",
    "network_tables",
    "outward_text",
    "percent",
    "plain_table",
    "print_data",
    "radius_table",
    "scaling_text",
    "summary_table",
]


_MARGINS = {
    "product": "the product of norms",
    "chain": "a chain through all layers",
    "best": "the product of norms or a chain through all layers, whichever is smaller",
}


_COLUMNS = 80

_CLASSES_SHOWN = 12
"""So many classes' margins fit into 80 columns; of more only the least and the largest are shown."""


def print_data(renderable: RenderableType) -> None:
    """To standard output: 80 columns in a pipe, or as many as a terminal has."""
    console = Console()
    # A column that is too narrow would cut digits off: rather let the terminal wrap the lines.
    needed = Measurement.get(console, console.options.update(width=10_000), renderable).minimum
    console = Console(width=max(console.width, needed))
    with console.capture() as captured:  # rich would end the program itself if the reader has gone
        console.print(renderable)
    print("\n".join(line.rstrip() for line in captured.get().split("\n")), end="")


def plain_table(title: str, names: Iterable[str], texts: Container[str] = ()) -> Table:
    """A table with few lines, so that more fits into 80 columns: numbers to the right, `texts` to the left.

    Cells that are too long are folded between their words, and no number is ever cut (`print_data`).
    """
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in names:
        table.add_column(name, justify="left" if name in texts else "right")
    return table


def percent(part: int, total: int) -> str:
    """Rounded down: 9,999 of 10,000 and a bit is not 100 %."""
    hundredths = 10_000 * part // total
    return f"{hundredths // 100}.{hundredths % 100:02d} %"


def excess_text(upper: Fraction, lower: Fraction) -> str:
    """How far the upper bound is above the lower one, as a part of it: the true norm lies between them."""
    if upper == lower:
        return "exact"
    if lower == 0:
        return "unknown"
    return "+" + decimal_upper(upper / lower - 1, 2)


def bounds_tables(bounds: Bounds) -> Group:
    """Layers, margins, and whatever a reader must know about how they were found."""
    parts: list[RenderableType] = [_norms(bounds)]
    if bounds.single is None:
        parts.append(_margins(bounds.margins))
    else:
        parts.append(Text(f"Lipschitz bound of the output: {decimal_upper(bounds.margins.matrix[0][1], 10)}"))
        parts.append(Text(f"Classes: {bounds.single}"))
    notes = [f"layer {layer.layer}: {reason}" for layer in bounds.layers for reason in layer.skipped_because]
    notes += [f"margins: {reason}" for reason in bounds.margins.skipped_because]
    if notes:
        parts.append(Text("What was not used, and why:\n  " + "\n  ".join(notes)))
    names = ", ".join(source.name for source in bounds.sources)
    without_chain = any(reason.startswith("chain:") for reason in bounds.margins.skipped_because)
    how = _MARGINS["product" if without_chain else bounds.method.margins]
    parts.append(Text(f"Bounds of {names} over the reals, {distance_text(bounds.eps_space)}, margins by {how}"))
    return Group(*parts)


def _norms(bounds: Bounds) -> Group:
    """Of each layer; below the table, which number systems computed them."""
    kinds = any(layer.what != "dense" for layer in bounds.layers)
    reached = bool(bounds.margins.sigmas)
    names = ["layer", "map" if kinds else "shape", "lower", "upper", "tightness", "method"]
    names += ["from input"] if reached else []
    table = plain_table("Operator norm of each layer", names, texts={"map", "method"})
    rows = [layer.shape[0] for layer in bounds.layers]
    rows[-1] -= bounds.single is not None  # the threshold is no output of the model
    by: dict[str, list[str]] = {}
    for index, layer in enumerate(bounds.layers):
        sigmas = bounds.margins.sigmas[layer.layer : layer.layer + 1]
        name = (
            str(layer.layer) if layer.source == layer.layer - 1 else f"{layer.layer}, of {_source_text(layer.source)}"
        )
        by.setdefault(layer.computed_by, []).append(name)
        table.add_row(
            name,
            layer.what if kinds else f"{rows[index]} x {layer.shape[1]}",
            decimal_lower(layer.lower, 9),
            decimal_upper(layer.upper, 9),
            excess_text(layer.upper, layer.lower),
            layer.method if layer.method != "gram" else f"gram, {layer.iterations} steps",
            *map(_slope, sigmas),
        )
    lines = [name if len(by) == 1 else f"{name}: layer {'; '.join(layers)}" for name, layers in by.items()]
    return Group(table, Text(f"Computed by {'; '.join(lines)}\n"))


def _source_text(source: int) -> str:
    return "input" if source == INPUT else str(source)


def _activation_text(name: str | None, single: Single | None) -> str:
    """Its name; beside a long fraction the decimal that people know it by."""
    if name is None:
        return "(logits)" if single is None or single.threshold is not None else "(output)"
    kind, *parameters = activation(name).parts
    if "/" not in name or len(":".join(parameters)) < 10:
        return name
    near = (x if x in {"-inf", "inf"} else _near_text(parse_rational(x)) for x in parameters)
    return f"{name} (≈ {':'.join((kind, *near))})"


def _slope(sigma: Fraction) -> str:
    """The Lipschitz bound from the input to a layer's inner values, by the chain."""
    return decimal_upper(sqrt_upper(sigma, 64), 6)


def _margins(margins: Margins) -> RenderableType:
    """A table; of many classes a line instead."""
    matrix, classes = margins.matrix, len(margins.matrix)
    if classes > _CLASSES_SHOWN:
        upper, lower = np.tril_indices(classes, -1)
        floats = margins.floats_upper[upper, lower]
        # Rounding is monotone: the least and the largest are among those whose floats are.
        some = [(matrix[lower[k]][upper[k]], int(lower[k]), int(upper[k])) for k in _ends(floats)]
        (least, i, j), (most, k, m) = min(some), max(some)
        return Text(
            f"Margin Lipschitz bounds of {len(floats)} pairs of classes: from {decimal_upper(least, 6)} ({i}, {j}) "
            f"to {decimal_upper(most, 6)} ({k}, {m})"
        )
    table = plain_table("Margin Lipschitz bound of each pair of classes", ("", *map(str, range(classes))))
    texts = next(
        found for digits in (4, 3, 2, 1) if (found := _texts(matrix, digits)) and (_fits(found) or digits == 1)
    )
    for i, row in enumerate(texts):
        table.add_row(str(i), *row)
    return table


def _texts(matrix: Sequence[Sequence[Fraction]], digits: int) -> list[list[str]]:
    return [["·" if i == j else decimal_upper(x, digits) for j, x in enumerate(row)] for i, row in enumerate(matrix)]


def _fits(rows: Sequence[Sequence[str]]) -> bool:
    """Whether a table of them, each row with its number, is at most as wide as a terminal."""
    return 4 + sum(1 + max(map(len, column)) for column in zip(*rows, strict=True)) <= _COLUMNS


def _ends(floats: Floats) -> list[int]:
    return np.flatnonzero((floats == floats.min()) | (floats == floats.max())).tolist()


def distance_text(space: str) -> str:
    """What eps is."""
    return "L2 distance of inputs" if space == "input" else "L2 distance of normalised inputs"


_OPEN_SHOWN = 5
"""Points that are open are shown, at the most."""


def summary_table(summary: Summary, eps: str, *, given_logits: bool = True, is_complete: bool = False) -> Table:
    """What a run of certify found. is_complete: whether every point was to be decided."""
    semantics = summary.semantics
    table = Table(show_header=False, box=None)
    table.add_row("certified", f"{summary.certified} of {summary.total}", percent(summary.certified, summary.total))
    if is_complete:
        unknown = summary.total - summary.certified - summary.falsified
        table.add_row("falsified", str(summary.falsified), percent(summary.falsified, summary.total))
        table.add_row("unknown", str(unknown), percent(unknown, summary.total))
        if summary.within_box is not None and summary.falsified:
            table.add_row("  within the box", str(summary.within_box), "of the inputs that falsify")
        for index, bracket in sorted(summary.brackets.items())[:_OPEN_SHOWN]:
            table.add_row("", f"input {index}", _bracket_text(bracket))
        shown = ", ".join(f"{name} {count}" for name, count in summary.methods.most_common())
        table.add_row("decided by", shown, "")
    elif summary.locally:
        table.add_row("  locally", str(summary.locally), "of them at the input itself")
    if summary.proved_by:
        shown = ", ".join(f"{name} {count}" for name, count in summary.proved_by.most_common())
        table.add_row("proved by", shown, "number systems")
    if summary.faults:
        table.add_row("ended early", str(summary.faults.total()), "attempts at an input, because:")
        for fault, count in summary.faults.most_common(3):
            table.add_row("", str(count), fault)
    if summary.right is not None and summary.right_and_certified is not None:
        table.add_row("accuracy", "", percent(summary.right, summary.total))
        table.add_row("VRA", "right and certified", percent(summary.right_and_certified, summary.total))
        if is_complete and summary.right_and_falsified is not None:
            table.add_row("", "right and falsified", percent(summary.right_and_falsified, summary.total))
    table.add_row("eps", eps, f"L2, {summary.eps_space} space")
    if summary.units is not None:
        units = summary.units
        table.add_row("inputs", outward_text(units.low, units.high), scaling_text(units.scale))
    how = "logits enclosed by a rigorous forward pass"
    if given_logits:
        how = "given logits are taken as exact" if semantics == "real" else "given logits may be the program's own"
    table.add_row("semantics", semantics, how)
    if summary.single is not None:
        table.add_row("classes", "", str(summary.single))
    table.add_row("decided exactly", str(summary.exactly), "too close for the filter")
    return table


_RADIUS_ROWS = (
    ("bracketed", "both ends, as near as wanted"),
    ("open", "undecided in between"),
    ("tie", "at the input: the radius is 0"),
    ("unbounded", "nothing can change the winner"),
)
"""Of a status: what is said beside it, where it can occur."""


def radius_table(summary: RadiusSummary) -> Table:
    """What a run of radius on inputs found."""
    table = Table(show_header=False, box=None)
    table.add_row("inputs", str(summary.total), "")
    _add_medians(table, "median", summary.medians, summary.has_upper)
    for status, meaning in _RADIUS_ROWS:
        count = summary.statuses[status]
        if count or (summary.has_upper and status in {"bracketed", "open"}):
            table.add_row(status, f"{count} of {summary.total}", meaning)
    if summary.has_upper:
        table.add_row("width", shortest_exact(summary.width), "wanted, as a part of the upper end")
    if summary.ended:
        shown = ", ".join(f"{name} {count}" for name, count in summary.ended.most_common())
        table.add_row("  ended by", shown, "limits, of what is open")
    if summary.methods:
        shown = ", ".join(f"{name} {count}" for name, count in summary.methods.most_common())
        table.add_row("decided by", shown, "the lower ends")
    if summary.proved_by:
        shown = ", ".join(f"{name} {count}" for name, count in summary.proved_by.most_common())
        table.add_row("proved by", shown, "number systems")
    if summary.faults:
        table.add_row("ended early", str(summary.faults.total()), "inputs had such attempts, because:")
        for fault, count in summary.faults.most_common(3):
            table.add_row("", str(count), fault)
    if summary.right is not None:
        table.add_row("accuracy", f"{summary.right} right", percent(summary.right, summary.total))
        if summary.medians_right is not None:
            _add_medians(table, "  of these", summary.medians_right, summary.has_upper)
    table.add_row("norm", "L2", f"{summary.eps_space} space")
    if summary.units is not None:
        units = summary.units
        table.add_row("range", outward_text(units.low, units.high), scaling_text(units.scale))
    table.add_row("semantics", summary.semantics, "logits enclosed rigorously")
    if summary.single is not None:
        table.add_row("classes", "", str(summary.single))
    return table


def _add_medians(table: Table, name: str, medians: Medians, has_upper: bool) -> None:
    table.add_row(name, _end_text(medians.lower, ROUND_FLOOR), "lower end: certified")
    if has_upper:
        table.add_row("", _end_text(medians.upper, ROUND_CEILING), "upper end: falsified")
        table.add_row("", _end_text(medians.relative_width, ROUND_CEILING, 3), "relative width of the bracket")


def _end_text(x: float, rounding: str, digits: int = 6) -> str:
    return _some_digits(Fraction(x), rounding, digits) if isfinite(x) else "inf"


def _bracket_text(bracket: Bracket) -> str:
    """What is known of a point that is open."""
    low = _six_digits(Fraction(bracket.lower), ROUND_FLOOR) if isfinite(bracket.lower) else "?"
    high = _six_digits(Fraction(bracket.upper), ROUND_CEILING) if isfinite(bracket.upper) else "?"
    ended = f", ended by {bracket.ended}" if bracket.ended else ""
    return f"least lead over {bracket.other}: {low} to {high}{ended}"


def outward_text(low: Fraction, high: Fraction) -> str:
    """From where to where, with six digits: what lies beyond an end must not seem to be at it."""
    return f"{_six_digits(low, ROUND_FLOOR)} to {_six_digits(high, ROUND_CEILING)}"


def scaling_text(scale: Fraction) -> str:
    """What a range of inputs is of."""
    return "as they are given" if scale == 1 else f"after scaling by {shortest_exact(scale)}"


def _six_digits(x: Fraction, rounding: str) -> str:
    return _some_digits(x, rounding, 6)


def _some_digits(x: Fraction, rounding: str, digits: int) -> str:
    context = Context(prec=digits, rounding=rounding, Emax=MAX_EMAX, Emin=MIN_EMIN)
    return f"{context.divide(Decimal(x.numerator), Decimal(x.denominator)).normalize(context):g}"


def network_tables(network: Network, space: EpsSpace) -> Group:
    """What was understood of a model. Requires: it is as it was read."""
    content = network.measured_in(space).content
    dense = network.is_dense
    names = ("layer", *(("outputs", "inputs") if dense else ("of", "map", "outputs")), "bias", "activation", "slopes")
    texts = {"of", "map", "bias", "activation", "slopes"}
    layers = plain_table("Layers", (*names, "numbers"), texts)
    for index, layer in enumerate(network.model_layers):
        for place, term in enumerate(layer.terms):
            sizes = map(str, term.map.shape)
            what = tuple(sizes) if dense else (_source_text(term.source), str(term.map), shape_text(term.map.out_shape))
            if place:  # one more branch of the same layer
                layers.add_row("", *what, "", "", "", "")
                continue
            bias = "yes" if layer.columns else "no"
            name = _activation_text(network.activations[index], network.single)
            layers.add_row(str(index), *what, bias, name, _slopes_text(layer), f"{layer.parameters:,}")
    facts = Table(show_header=False, box=None)
    shape = "" if network.shape is None else f" of the shape {' x '.join(map(str, network.shape))}"
    facts.add_row("input", f"{network.inputs} numbers{shape}")
    facts.add_row("normalisation", _normalisation_text(network))
    facts.add_row("eps", f"{distance_text(space)} ({space} space)")
    facts.add_row("classes", str(network.single or network.outputs))
    facts.add_row("parameters", f"{sum(layer.parameters for layer in network.model_layers):,}")
    if network.folded:
        facts.add_row("folded in", ", ".join(network.folded))
    if not network.is_exact:
        uncertain = [
            network.uncertain_input_scale,
            *(x for layer in network.layers for x in (layer.before, layer.after)),
        ]
        width = 1 - min(uncertain.least for uncertain in uncertain if uncertain)
        facts.add_row(
            "factors",
            f"roots are no rationals, and long quotients are rounded: what is proved holds for all within a part of "
            f"{decimal_upper(width, 2)}",
        )
    for source in network.sources:
        facts.add_row("file", source.name)
        facts.add_row("  sha256", source.sha256)
    facts.add_row("network", f"{content}\nthe hash of its exact numbers, whatever the file")
    return Group(layers, facts)


def _slopes_text(layer: Layer) -> str:
    """What the proofs use of the activation."""
    if layer.activation is None:
        return ""
    if layer.activation.slopes is None:
        return f"Lipschitz {_range_text([layer.activation.lipschitz])}"
    return f"{_range_text(layer.activation.slopes)}"


def _normalisation_text(network: Network) -> str:
    if network.normalisation is None:
        return "none"
    columns = (network.normalisation.mean, network.normalisation.factor)
    mean, factor = ([Fraction(x, column.denominator) for x in column.numerators.ravel().tolist()] for column in columns)
    if network.eps_space == "input":
        return f"x - mean, mean {_range_text(mean)}; what x is divided by is in the first layer"
    return f"(x - mean)/std, mean {_range_text(mean)}, std {_range_text([1 / x for x in factor])}"


def _range_text(values: Sequence[Fraction]) -> str:
    """One number, or from where to where; rounded to nearest, for people."""
    ends = sorted({min(values), max(values)})
    return " to ".join(map(_near_text, ends))


def _near_text(x: Fraction) -> str:
    """Six digits, rounded to nearest; of any size."""
    if x == 0 or 2.0**-1000 < abs(x) < 2.0**1000:
        return f"{float(x):.6g}"
    return _six_digits(x, ROUND_HALF_EVEN)


def audit_table(report: AuditReport, eps_space: str) -> Group:
    """All claims counted; the ones that failed by name."""
    confirmed = len(report.claims) - len(report.unconfirmed)
    counted = f"{confirmed} of {len(report.claims)} claims confirmed by exact arithmetic, {distance_text(eps_space)}"
    parts: list[RenderableType] = [Text(counted)]
    if report.recomputed:
        parts.append(Text(f"Without the witnesses of the bounds, by others that were found here: {report.recomputed}"))
    if report.unconfirmed:
        table = plain_table("Not confirmed", ("claim", "claimed", "exact"), texts={"claim"})
        for claim in report.unconfirmed:
            if claim.exact is None or claim.exact > 2**MAX_BINARY_EXPONENT:
                shown_exact = "not proved" if claim.exact is None else f"beyond 2^{MAX_BINARY_EXPONENT}"
                table.add_row(claim.what, decimal_lower(claim.claimed), shown_exact)
                continue
            # Rounded apart: a claimed upper bound is too small, a claimed lower bound too large.
            down, up = (claim.exact, claim.claimed) if claim.exact < claim.claimed else (claim.claimed, claim.exact)
            shown = {down: decimal_lower(down), up: decimal_upper(up)}
            table.add_row(claim.what, shown[claim.claimed], shown[claim.exact])
        parts.append(table)
    return Group(*parts)
