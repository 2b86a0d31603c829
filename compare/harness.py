"""What every part of the comparison shares: its setting, its outcome, and how both are shown and stored."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

from rich.console import Console
from rich.progress import track
from rich.table import Table

from intervalcert import Bounds, InputError, Network, compute_bounds

__all__ = ["Asked", "Outcome", "Setting", "machine", "require_folder", "store", "table"]

T = TypeVar("T")
_MESSAGES = Console(stderr=True)


@dataclass(frozen=True)
class Setting:
    """Where the paper's files are, where results go, and whether a quick look suffices.

    minutes, replay: of the hunt: how long, and the one round that is to be run again.
    """

    shared: Path
    out: Path
    short: bool = False
    minutes: float | None = None
    replay: str | None = None

    def paper_file(self, name: str) -> Path | None:
        """A file of the paper, or None where it is absent: the part is then skipped, not passed."""
        path = self.shared / "paper" / name
        return path if path.is_file() else None

    def progress(self, items: Iterable[T], what: str, total: int | None = None) -> Iterator[T]:
        """The items, with a bar on stderr if that is a terminal."""
        if not _MESSAGES.is_terminal:
            yield from items
            return
        yield from track(items, what, total=total, console=_MESSAGES, transient=True)


@dataclass(frozen=True)
class Asked:
    """What the first stage is asked for: bits of the grid, how to bound norms, how to bound margins."""

    prec: int
    method: Literal["gram", "cholesky", "auto"]
    iterations: int | Literal["auto"]
    margins: Literal["product", "chain", "best"]
    tuning_rounds: int = 0

    def __str__(self) -> str:
        tuned = f", {self.tuning_rounds} rounds" if self.tuning_rounds else ""
        return f"prec {self.prec}, {self.method}, {self.iterations} steps, {self.margins}{tuned}"

    def bounds(self, network: Network, backend: str) -> Bounds:
        """The answer, asked first of the number system of that name."""
        return compute_bounds(
            network,
            backend,
            self.iterations,
            method=self.method,
            margins=self.margins,
            tuning_rounds=self.tuning_rounds,
            prec=self.prec,
        )


@dataclass
class Outcome:
    """What a part found. A violation is a wrong result of ours, or a control that was not caught; one fails the run."""

    name: str
    violations: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    data: dict[str, Any] = field(default_factory=dict)
    pictures: list[Path] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        if self.violations:
            return f"FAILED: {len(self.violations)} violations"
        return "passed" + (f", {len(self.skipped)} skipped" if self.skipped else "")


def table(title: str, *columns: str) -> Table:
    """A table whose first column is text and whose others are numbers."""
    made = Table(title=title, title_justify="left")
    for index, name in enumerate(columns):
        made.add_column(name, justify="right" if index else "left")
    return made


def machine() -> str:
    """The kind of machine, for the record beside a figure."""
    model = platform.processor() or platform.machine()
    for line in _lines(Path("/proc/cpuinfo")):
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    return f"{model}, Python {platform.python_version()}"


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.is_file() else []


def require_folder(path: Path) -> Path:
    """The folder, made if need be; anything else in its place is an error."""
    if path.exists() and not path.is_dir():
        raise InputError(f"{path} is a file, but results are written to a folder")
    path.mkdir(parents=True, exist_ok=True)
    return path


def store(outcome: Outcome, setting: Setting) -> Path:
    """Writes the outcome as JSON, with the date and the machine."""
    path = require_folder(setting.out) / f"{outcome.name}.json"
    record = {
        "part": outcome.name,
        "verdict": outcome.verdict,
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine(),
        "short": setting.short,
        "violations": outcome.violations,
        "skipped": outcome.skipped,
        "pictures": [picture.name for picture in outcome.pictures],
        **outcome.data,
    }
    path.write_text(json.dumps(record, indent=1) + "\n")
    return path
