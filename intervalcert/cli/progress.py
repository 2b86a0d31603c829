"""What a person sees while something runs: messages and bars on stderr, and nothing where nobody looks."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from intervalcert.io.cleanup import cleared_away

__all__ = ["is_watched", "layer_progress", "print_message", "row_progress"]


def print_message(message: str) -> None:
    with contextlib.suppress(OSError):  # nobody is there to be told
        print(message, file=sys.stderr)


def is_watched() -> bool:
    """Whether somebody sees stderr."""
    return sys.stderr.isatty()


@contextlib.contextmanager
def row_progress(what: str, size: int | None) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr with rate and remaining time; nothing at all if stderr is not a terminal."""
    if not is_watched():
        yield lambda *_: None
        return
    from time import monotonic

    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[at]}"), TimeRemainingColumn())
    console = Console(stderr=True)  # stdout is data: it must not be drawn above the bar
    progress = Progress(*columns, console=console, transient=True, redirect_stdout=False)
    with cleared_away(progress.stop), progress:
        task = progress.add_task(what, total=size, at="")
        start, done = monotonic(), 0

        def on_rows(rows: int, work: int) -> None:
            nonlocal done
            done += rows
            rate = done / max(monotonic() - start, 1e-3)
            progress.update(task, advance=work, at=f"{done:,} done, {rate:,.0f}/s")

        yield on_rows


@contextlib.contextmanager
def layer_progress(what: str, layers: int) -> Iterator[Callable[[int], None]]:
    """A bar that counts layers and names the step within the layer."""
    if not is_watched():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[at]}"), TimeElapsedColumn())
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    with cleared_away(progress.stop), progress:
        task = progress.add_task(what, total=layers, at=f"layer 0 of {layers}")
        steps: dict[int, int] = {}

        def on_step(layer: int) -> None:
            steps[layer] = steps.get(layer, 0) + 1
            progress.update(task, completed=layer, at=f"layer {layer} of {layers}, step {steps[layer]}")

        yield on_step
