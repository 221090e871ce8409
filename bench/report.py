"""Writes the measured figures into docs/explanation/performance.md, between two markers."""

import platform
import sqlite3
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from disk import Disk
from goals import CASES, Goal
from sampling import Samples

PAGE: Final = Path(__file__).parent.parent / "docs" / "explanation" / "performance.md"
BEGIN: Final = "<!-- figures: begin (written by bench/compare.py --write-docs) -->"
END: Final = "<!-- figures: end -->"


def line(goal: Goal, figure: float | None, *, met: bool) -> str:
    """One row of the table of goals."""
    shown = "not measured" if figure is None else f"{figure:.3g} {goal.unit}"
    return f"| `{goal.name}` | {goal.says} | {goal.bound} | {shown} | {'yes' if met else '**no**'} |"


def write(rows: Sequence[str], samples: Samples, disk: Disk) -> None:
    """Replace what stands between the markers; raises `ValueError` when the page has lost them."""
    before, found, rest = PAGE.read_text().partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise ValueError(f"{PAGE.name} has no pair of figure markers to write between")
    body = "\n".join([_machine(disk), "", _goals(rows), "", _cases(samples)])
    PAGE.write_text(f"{before}{BEGIN}\n\n{body}\n\n{END}{after}")


def _machine(disk: Disk) -> str:
    versions = f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    return f"Measured with {versions} on {platform.system()} {platform.machine()}, on {disk.description}."


def _goals(rows: Sequence[str]) -> str:
    return "\n".join(["| goal | what | bound | measured | met |", "|---|---|---|---|---|", *rows])


def _cases(samples: Samples) -> str:
    """What each subject did: the rate is this machine's, the ratio is what carries over."""
    head = ("subject", "of raw", "(lowest to highest)", "steps/s", "CPU us/step", "waited for a processor")
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    for name, relative in samples.relative.items():
        spread = f"{min(relative):.2f} to {max(relative):.2f}"
        rate, cpu = samples.median(name, "steps_per_s"), samples.median(name, "cpu_us_per_step")
        middle, queued = statistics.median(relative), samples.median(name, "queued")
        lines.append(f"| {CASES[name].says} | {middle:.2f} | {spread} | {rate:,.0f} | {cpu:,.0f} | {queued:.0%} |")
    return "\n".join(lines)
