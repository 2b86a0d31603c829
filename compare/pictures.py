"""Pictures, where one would rather look. matplotlib is optional: without it there are none, and the caller says so."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from compare.harness import Setting, require_folder

if TYPE_CHECKING:
    from compare.seed import Point

__all__ = ["axes", "curve", "growth", "save"]


def axes(width: float = 7.0, height: float = 4.2) -> Any:
    """A figure and its axes, or None without matplotlib; drawn without a display."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure.subplots()


def save(ax: Any, setting: Setting, name: str) -> Path:
    path = require_folder(setting.out) / name
    ax.figure.savefig(path, dpi=120)
    return path


def curve(setting: Setting, points: list[Point], published: dict[int, dict[str, float]]) -> Path | None:
    """Certified share and time against Gram steps, the paper's and ours."""
    ax = axes()
    if ax is None:
        return None
    steps = [point.n for point in points]
    ax.plot(steps, [published[n]["robust"] * 100 for n in steps], "o-", color="0.6", label="certified: paper")
    ax.plot(steps, [point.arb / 100 for point in points], "x", color="C0", label="certified: arb, exact (the same)")
    ax.set_xlabel("Gram steps")
    ax.set_ylabel("certified outputs, %")
    ax.set_ylim(0, 100)
    time = ax.twinx()
    time.semilogy(steps, [published[n]["seconds"] for n in steps], "s--", color="0.6", label="seconds: paper")
    time.semilogy(steps, [point.seconds["arb"] for point in points], "^--", color="C1", label="seconds: arb")
    time.semilogy(steps, [point.seconds["exact"] for point in points], "v--", color="C2", label="seconds: exact")
    time.set_ylabel("seconds for all bounds (log)")
    lines = [*ax.get_lines(), *time.get_lines()]
    ax.legend(lines, [line.get_label() for line in lines], loc="center right", fontsize=8)
    ax.set_title("The paper's MNIST model at eps = 0.3")
    return save(ax, setting, "seed_curve.png")


def growth(setting: Setting, rows: list[dict[str, Any]]) -> Path | None:
    """Seconds against the side of a square layer, double logarithmic."""
    ax = axes()
    if ax is None:
        return None
    for name, marker in (("numpy", "o"), ("float64", "s"), ("float64 cholesky", "d"), ("arb", "^"), ("exact", "v")):
        points = [
            (r["shape"][0], r["seconds"][name]) for r in rows if len(set(r["shape"])) == 1 and name in r["seconds"]
        ]
        ax.loglog([p[0] for p in points], [p[1] for p in points], marker + "-", label=name)
    ax.set_xlabel("side of a square layer")
    ax.set_ylabel("seconds, 11 steps, one core")
    ax.legend()
    return save(ax, setting, "bench_growth.png")
