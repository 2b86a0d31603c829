"""What must not outlive the program: temporary files, processes, a bar on the terminal.

Each is cleared away where it was made. If the program ends before that, because a signal says so, then from here.
"""

from __future__ import annotations

import atexit
import contextlib
from collections.abc import Callable, Iterator

__all__ = ["clear_away", "cleared_away"]

_pending: list[Callable[[], None]] = []


@contextlib.contextmanager
def cleared_away(clear: Callable[[], None]) -> Iterator[None]:
    """Calls it in the end, whatever ends the block or the program. Requires: it may be called twice, and at once."""
    _pending.append(clear)
    atexit.register(clear)  # a generator that is never resumed does not end
    try:
        yield
    finally:
        clear()
        atexit.unregister(clear)
        _pending.remove(clear)


def clear_away() -> None:
    """Everything, as far as possible; for a program that is not going on."""
    for clear in reversed(_pending):
        with contextlib.suppress(Exception):
            clear()
