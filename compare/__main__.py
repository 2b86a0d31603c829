"""``python -m compare NAME …``: runs the parts that are named, in that order, or all of them.

Exits with 1 on any violation, 2 on usage, 3 on refused input.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from math import inf
from pathlib import Path
from time import perf_counter

from rich.console import Console

from compare.harness import Outcome, Setting, store
from intervalcert.errors import InputError, IntervalcertError

PARTS = ("cross", "seed", "unsound", "attack", "gradients", "gains", "convolutions", "bench")
APART = ("liresnet", "edges", "hunt")
"""Parts that take long, or as long as one likes, and are not in ``all``."""


_HELP = f"{', '.join(PARTS)}; or all of these; or {', '.join(APART)}, which take longer"


def main(argv: list[str] | None = None) -> int:
    here = Path(__file__).parent
    parser = argparse.ArgumentParser(prog="python -m compare", description=__doc__)
    parser.add_argument("names", nargs="+", choices=(*PARTS, *APART, "all"), metavar="NAME", help=_HELP)
    parser.add_argument("--shared", type=Path, metavar="DIR", help="folder of the paper's files (default: ../shared)")
    parser.add_argument("--out", type=Path, default=here / "out", metavar="DIR", help="results (default: compare/out)")
    parser.add_argument("--short", action="store_true", help="a quick version of each part, as in the tests")
    parser.add_argument("--minutes", type=_minutes, metavar="N", help="how long to hunt (default: 10)")
    parser.add_argument("--replay", metavar="KIND:NUMBER", help="one round of the hunt once more")
    arguments = parser.parse_args(argv)
    if (arguments.minutes is not None or arguments.replay is not None) and arguments.names != ["hunt"]:
        parser.error("--minutes and --replay are of the hunt")
    if "all" in arguments.names and len(arguments.names) > 1:
        parser.error("all stands alone: it has every part in it")
    names = PARTS if "all" in arguments.names else tuple(dict.fromkeys(arguments.names))
    try:
        shared = _shared(arguments.shared, here)
        setting = Setting(shared, arguments.out, arguments.short, arguments.minutes, arguments.replay)
        outcomes = [_run(name, setting) for name in names]
    except IntervalcertError as error:
        print(f"compare: {error}", file=sys.stderr)
        return 3
    except KeyboardInterrupt:
        print("compare: interrupted", file=sys.stderr)
        return 130
    return 1 if any(outcome.violations for outcome in outcomes) else 0


def _minutes(text: str) -> float:
    found = float(text)
    if not 0 <= found < inf:
        raise ValueError(text)
    return found


def _shared(named: Path | None, here: Path) -> Path:
    """The named folder must exist; the default one may be absent, and what needs it is then skipped."""
    if named is not None and not named.is_dir():
        raise InputError(f"{named} is not a folder: --shared names the folder that holds paper/ and data/")
    return named or here.parent.parent / "shared"


def _run(name: str, setting: Setting) -> Outcome:
    console = Console() if Console().is_terminal else Console(width=160)
    start = perf_counter()
    outcome: Outcome = import_module(f"compare.{name}").run(setting)
    outcome.data["seconds"] = round(perf_counter() - start, 1)
    for shown in outcome.tables:
        console.print(shown)
    for reason in outcome.skipped:
        console.print(f"skipped: {reason}", markup=False)
    for violation in outcome.violations:
        console.print(f"VIOLATION: {violation}", markup=False)
    path = store(outcome, setting)
    console.print(f"{name}: {outcome.verdict} ({outcome.data['seconds']} s; {path})\n", markup=False)
    return outcome


if __name__ == "__main__":
    raise SystemExit(main())
