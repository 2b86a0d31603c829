"""What a person sees while something runs: messages and bars on stderr, and nothing where nobody looks."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from intervalcert.io.cleanup import cleared_away

if TYPE_CHECKING:
    from intervalcert.model.network import Network

__all__ = ["is_watched", "layer_progress", "print_message", "row_progress"]


def print_message(message: str) -> None:
    with contextlib.suppress(OSError):  # nobody is there to be told
        print(message, file=sys.stderr)


def is_watched() -> bool:
    """Whether somebody sees stderr."""
    return sys.stderr.isatty()


@contextlib.contextmanager
def row_progress(what: str, size: int | None, *, prints: bool = False) -> Iterator[Callable[[int, int], None]]:
    """A bar on stderr with rate and remaining time; nothing at all if stderr is not a terminal.

    prints: data are printed meanwhile. Where they go to the same terminal, they are progress enough.
    """
    if not is_watched() or (prints and sys.stdout.isatty()):
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
def layer_progress(what: str, network: Network) -> Iterator[Callable[[int], None]]:
    """A bar with the remaining time of all norms of a network, by what each is estimated to take; then the margins."""
    if not is_watched():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    from intervalcert.search.layer_norms import norm_cost

    costs = [norm_cost(branch.map) for branch in network.branches]
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[at]}"), TimeRemainingColumn())
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    with cleared_away(progress.stop), progress:
        task = progress.add_task(what, total=sum(seconds for seconds, _ in costs), at=f"map 1 of {len(costs)}")
        steps = [0] * len(costs)

        def on_step(index: int) -> None:
            steps[index] += 1
            seconds, expected = costs[index]
            part = min(1.0, steps[index] / max(expected, 1))
            done = sum(each for each, _ in costs[:index]) + part * seconds
            at = f"map {index + 1} of {len(costs)}, step {steps[index]}"
            progress.update(task, completed=done, at="margins" if (index, part) == (len(costs) - 1, 1.0) else at)

        yield on_step
