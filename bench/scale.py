"""Build a journal with a million operations, and measure what must not slow down as work grows: `make scale`.

The journal is built by the product itself in a few minutes, on tmpfs where nothing else is named. Exit status 0 when
every goal is met, 1 when one is missed or could not be measured, 2 when there is no room for the journal.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from disk import MEMORY, Disk, open_disk

SUBJECTS: Final = Path(__file__).parent / "subjects"
BYTES_PER_OPERATION: Final = 1_600  # measured, with a third more
BYTES_PER_RUN: Final = 8_000
SYNC_US: Final = 150
TURNS: Final = 9
Figures = Mapping[str, float]


@dataclass(frozen=True)
class Growth:
    """One line of the table: a figure, and the bound that it must keep as work grows."""

    name: str
    says: str
    unit: str
    probe: "Callable[[Scale], float]"
    at_most: float | None = None
    at_least: float | None = None

    def met_by(self, figure: float) -> bool:
        if self.at_least is not None:
            return figure >= self.at_least
        assert self.at_most is not None, self
        return figure <= self.at_most

    @property
    def bound(self) -> str:
        return f"at least {self.at_least:g}" if self.at_least is not None else f"at most {self.at_most:g}"


@dataclass(frozen=True)
class Scale:
    """The grown journal, and how a subject is run beside it: each in a fresh process."""

    disk: Disk
    root: Path
    operations: int
    runs: int

    @property
    def journal(self) -> Path:
        return self.root / "grown.db"

    def subject(self, script: str, *arguments: str, delayed: bool = True, quiet: bool = True) -> Figures:
        """Run a subject in a directory of its own; the last line that it prints are its figures."""
        with tempfile.TemporaryDirectory(dir=self.root) as directory:
            return self._run(script, Path(directory), arguments, delayed=delayed, quiet=quiet)

    def grown(self, *arguments: str, delayed: bool = True, quiet: bool = True) -> Figures:
        """Run a subject on the grown journal."""
        sizes = "--operations", str(self.operations), "--runs", str(self.runs)
        return self._run("scaled.py", self.root, (*arguments, *sizes), delayed=delayed, quiet=quiet)

    def _run(self, script: str, directory: Path, arguments: tuple[str, ...], *, delayed: bool, quiet: bool) -> Figures:
        command = [sys.executable, str(SUBJECTS / script), *arguments, "--directory", str(directory)]
        errors = subprocess.PIPE if quiet else None
        environment = self.disk.environment(delayed=delayed)
        ended = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment, check=False, timeout=3600
        )
        if ended.returncode:
            raise SubjectFailed(f"{script} {' '.join(arguments)}: {(ended.stderr or '').strip()[-300:]}")
        figures: Figures = json.loads(ended.stdout.splitlines()[-1])
        return figures


class SubjectFailed(Exception):
    """A subject ended with an error."""


# --- the figures -------------------------------------------------------------------------------------------------


def step_among_many(gc_threshold: int) -> "Callable[[Scale], float]":
    """Processor time of a step among 5,000 live runs to that among 100: medians of turns."""

    def measure(scale: Scale) -> float:
        tuned = "--gc-threshold", str(gc_threshold)
        few = [scale.subject("live.py", "--runs", "100", "--steps", "20", *tuned) for _ in range(3)]
        many = [scale.subject("live.py", "--runs", "5000", "--steps", "4", *tuned) for _ in range(3)]
        cost = "cpu_us_per_step"
        return statistics.median(one[cost] for one in many) / statistics.median(one[cost] for one in few)

    return measure


def memory(scale: Scale) -> float:
    return scale.subject("live.py", "--runs", "1000", "--memory")["kib_per_run"]


def empty_run(scale: Scale) -> float:
    """The time of a run without steps in raw steps: median of pairs."""
    return statistics.median(
        scale.subject("raw.py", "--commits", "2", "--steps", "600")["steps_per_s"]
        / scale.subject("live.py", "--empty", "--runs", "600")["runs_per_s"]
        for _ in range(3)
    )


def recovered(scale: Scale) -> float:
    return statistics.median(scale.subject("recovering.py")["recovered_per_s"] for _ in range(3))


def reading_command(*command: str) -> "Callable[[Scale], float]":
    """The processor time of a command that only looks to that of `--help`: medians of turns."""

    def measure(scale: Scale) -> float:
        given = [*command, "--journal", str(scale.journal)]
        with tempfile.TemporaryDirectory() as bytecode:
            environment = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode}
            environment.pop("PYTHONDONTWRITEBYTECODE", None)
            turns = [
                (_processor_time(["--help"], environment), _processor_time(given, environment)) for _ in range(TURNS)
            ]
        return statistics.median(one for _, one in turns[1:]) / statistics.median(one for one, _ in turns[1:])

    return measure


def _processor_time(arguments: list[str], environment: Mapping[str, str]) -> float:
    before = os.times()
    ended = subprocess.run(
        [sys.executable, "-m", "beforehand", *arguments], capture_output=True, text=True, env=environment, check=False
    )
    if ended.returncode:
        raise SubjectFailed(f"beforehand {' '.join(arguments)}: {ended.stderr.strip()[-300:]}")
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


GROWTHS: Final = (
    Growth("live-step", "processor time of a step at 5,000 live runs, to 100", "x", step_among_many(0), at_most=1.25),
    Growth("live-step-gc", "the same with the gc_threshold of `beforehand worker`", "x", step_among_many(50_000),
           at_most=1.25),
    Growth("live-memory", "memory of a live run", "KiB", memory, at_most=25),
    Growth("empty-run", "a run without steps, in raw steps", "x", empty_run, at_most=1.5),
    Growth("recovery", "abandoned runs recovered, one process", "1/s", recovered, at_least=400),
    Growth("answers", "delivered answers taken, one process", "1/s",
           lambda s: s.grown("answers")["per_s"], at_least=400),
    Growth("due", "a due run behind 10,000 due runs of another program: time to its start", "s",
           lambda s: s.grown("behind")["seconds"], at_most=1),
    Growth("due-agent", "the same behind 10,000 due runs of another agent of its program", "s",
           lambda s: s.grown("behind", "--same-program")["seconds"], at_most=1),
    Growth("ps", "beforehand ps, to --help", "x", reading_command("ps"), at_most=1.8),
    Growth("show", "beforehand show, to --help", "x", reading_command("show", "ended-0000000"), at_most=1.8),
    Growth("why", "beforehand why, to --help", "x", reading_command("why", "ended-0000000/charge#1"), at_most=1.8),
    Growth("approval", "an approval at 5,000 recorded steps, to one in a new run", "x",
           lambda s: s.grown("approval")["ratio"], at_most=3),
    Growth("step", "steps a second with all these operations stored, to none", "x",
           lambda s: s.grown("steps")["ratio"], at_least=0.95),
    Growth("idle", "an idle process with 1,000 waiting runs", "statements/s",
           lambda s: s.grown("idle")["statements_per_s"], at_most=3),
    Growth("monitors", "a worker's look for silent failures, with 10,000 new records", "s",
           lambda s: s.grown("monitors")["seconds"], at_most=1),
    Growth("effect", "an effect found by its business key", "ms", lambda s: s.grown("effect")["ms"], at_most=50),
)  # fmt: skip


# --- the driver --------------------------------------------------------------------------------------------------


def main() -> int:
    options = parse()
    chosen = [one for one in GROWTHS if not options.only or one.name in options.only]
    need = options.operations * BYTES_PER_OPERATION + options.runs * BYTES_PER_RUN
    place = options.directory or MEMORY
    if (obstacle := no_room(place, need)) is not None:
        print(f"make scale: {obstacle}", file=sys.stderr)
        return 2
    with ExitStack() as stack:
        disk = stack.enter_context(open_disk(options.sync_us))
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="beforehand-scale-", dir=place)))
        scale = Scale(disk, root, options.operations, options.runs)
        print(f"building {options.operations:,} operations in {options.runs:,} runs in {place}", file=sys.stderr)
        built = scale.grown("build", delayed=False, quiet=False)
        print(f"built in {built['seconds']:.0f} s: {built['bytes'] / 2**20:,.0f} MiB", file=sys.stderr)
        results = [measure(one, scale, as_json=options.json) for one in chosen]
    if options.json:
        print(json.dumps({"built": dict(built), "figures": results}, indent=2))
    return 0 if all(one["met"] for one in results) else 1


def no_room(place: Path, need: int) -> str | None:
    """Why the journal cannot be built there; None if it can."""
    if not place.is_dir():
        return f"{place} does not exist. Next: name a directory with --directory"
    free = shutil.disk_usage(place).free
    if free >= need:
        return None
    return (
        f"the journal needs about {need / 2**30:.1f} GiB, and {place} has {free / 2**30:.1f} GiB free. "
        "Next: name another directory with --directory, or give a smaller size with --operations and --runs"
    )


def measure(growth: Growth, scale: Scale, *, as_json: bool) -> dict[str, object]:
    """Measure one figure, and print its line."""
    begun, figure, reason = time.monotonic(), None, ""
    try:
        figure = growth.probe(scale)
    except (SubjectFailed, subprocess.TimeoutExpired) as error:
        reason = str(error)
    met = figure is not None and growth.met_by(figure)
    sign, shown = ("ok" if met else "MISSED"), (f"{figure:.3g}" if figure is not None else f"not measured: {reason}")
    line = f"{sign:<7}{growth.name:<12}{shown:>9} {growth.unit:<13}{growth.bound:<15}{growth.says}"
    print(line, file=sys.stderr if as_json else sys.stdout, flush=True)
    found = {"name": growth.name, "figure": figure, "unit": growth.unit, "bound": growth.bound, "met": met}
    return {**found, "says": growth.says, "reason": reason, "seconds": round(time.monotonic() - begun, 1)}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--operations", type=int, default=1_000_000, help="ended operations in the journal")
    parser.add_argument("--runs", type=int, default=100_000, help="runs; a tenth waits, a tenth has deferred outcomes")
    parser.add_argument("--only", action="append", choices=[one.name for one in GROWTHS], metavar="FIGURE")
    parser.add_argument("--directory", type=Path, help=f"where the journal is built; {MEMORY} unless named")
    parser.add_argument("--sync-us", type=int, default=SYNC_US, help="what one sync takes; 0: the real disk")
    parser.add_argument("--json", action="store_true", help="one JSON object on standard output")
    options = parser.parse_args()
    if options.runs < 10 or options.operations < options.runs:
        parser.error("give at least 10 runs, and at least as many operations as runs")
    return options


if __name__ == "__main__":
    sys.exit(main())
