"""Plant every mutant, and see which seed and which invariant finds it: `python -m simulator.mutations.planting`.

A seed counts as a find only where the product without the bug passes it.
"""

from __future__ import annotations

import multiprocessing
import os
import statistics
import sys
import time
from collections.abc import Mapping
from typing import Final

import click
import msgspec
from msgspec.structs import replace
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from simulator.generator.budgets import BUDGETED
from simulator.generator.plans import draw
from simulator.generator.queues import QUEUED
from simulator.mutations.catalogue import MUTANTS
from simulator.mutations.mutation import Mutant, planted
from simulator.world import ORDINARY, Conditions, Journal, simulate

MOST: Final = 20_000
ROUNDS: Final = (50, 500, 3_000)
NO_HINTS: Final[Mapping[int, int]] = {}


class Find(msgspec.Struct, frozen=True):
    """How a mutant fared. `seeds` is how many were tried; `invariant` is 0 where none found it.

    `seed` is the one that found it, as `make sim SEED=` takes it.
    """

    name: str
    breaks: str
    seeds: int
    invariant: int = 0
    what: str = ""
    seed: int = 0


def hunt(
    mutant: Mutant, most: int, until: float | None = None, *, first: int = 0, conditions: Conditions = ORDINARY
) -> Find:
    """Try the seeds of its kind from `first` on until one finds it, or until the clock says `until` (`monotonic`)."""
    for seed in range(first, most):
        if until is not None and time.monotonic() > until:
            return Find(mutant.name, mutant.breaks, seed)
        plan = draw(mutant.from_seed + seed)
        # Bugs of queues and schedules are in the statements of the journal in a file.
        journal: Journal = "sqlite" if QUEUED <= plan.seed < BUDGETED else "memory"
        with planted(mutant):
            broken = simulate(plan, conditions=conditions, journal=journal).violations
        if broken and not simulate(plan, conditions=conditions, journal=journal).violations:
            return Find(mutant.name, mutant.breaks, seed + 1, broken[0].invariant, broken[0].what, plan.seed)
    return Find(mutant.name, mutant.breaks, most)


class Hunt(msgspec.Struct, frozen=True):
    """One search for one mutant: `hint` is a seed that is tried first, below zero if there is none."""

    mutant: int
    first: int
    last: int
    until: float
    conditions: Conditions = ORDINARY
    hint: int = -1


def _hunt(job: Hunt) -> Find:
    mutant, conditions = MUTANTS[job.mutant], job.conditions
    if job.first == 0 <= job.hint:
        hinted = hunt(mutant, job.hint + 1, job.until, first=job.hint, conditions=conditions)
        if hinted.invariant:
            return hinted
    return hunt(mutant, job.last, job.until, first=job.first, conditions=conditions)


@click.command(epilog="Example: python -m simulator.mutations.planting --only 'key per attempt'")
@click.option("--most", type=click.IntRange(1), default=MOST, show_default=True, help="Seeds to try for each mutant.")
@click.option("--minutes", type=float, default=18.0, show_default=True, help="When to give up what is not found.")
@click.option("--only", multiple=True, help="Mutants by name; all unless told.")
@click.option("--jobs", type=click.IntRange(1), default=None, help="Processes; all cores unless told.")
@click.option(
    "--fast-path",
    type=click.Choice(["on", "off", "both"]),
    default="on",
    show_default=True,
    help="Whether the product may take its fast path. With `both`, a seed that found a mutant is tried first without.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the finds as one JSON object.")
def main(  # one parameter for each option
    most: int, minutes: float, only: tuple[str, ...], jobs: int | None, fast_path: str, *, as_json: bool
) -> None:
    """Plant bugs in the product, one at a time, and let the simulator find them. Fails where one is missed."""
    known = {mutant.name: number for number, mutant in enumerate(MUTANTS)}
    if strange := [name for name in only if name not in known]:
        raise click.UsageError(f"no mutant is called {strange[0]!r}; there are: {', '.join(known)}")
    until = time.monotonic() + minutes * 60
    chosen, cores = [known[name] for name in only or known], jobs or os.cpu_count() or 1
    finds = plant(chosen, most, until, cores) if fast_path != "off" else []
    if fast_path != "on":
        finds += without_fast_path(chosen, most, until, cores, finds)
    missed = [find for find in finds if not find.invariant]
    if as_json:
        click.echo(msgspec.json.encode({"caught": len(finds) - len(missed), "missed": len(missed), "mutants": finds}))
    else:
        _say(finds)
    sys.exit(1 if missed else 0)


def without_fast_path(mutants: list[int], most: int, until: float, jobs: int, known: list[Find]) -> list[Find]:
    """Plant all but the bugs of the fast path in the product without it. Seeds that found one are tried first."""
    seeds = {find.name: find.seeds - 1 for find in known if find.invariant}
    hints = {number: seeds[MUTANTS[number].name] for number in mutants if MUTANTS[number].name in seeds}
    left = [number for number in mutants if not MUTANTS[number].fast_only]
    finds = plant(left, most, until, jobs, Conditions(fast_path=False), hints)
    return [replace(find, name=f"{find.name} (without the fast path)") for find in finds]


def plant(
    mutants: list[int],
    most: int,
    until: float,
    jobs: int,
    conditions: Conditions = ORDINARY,
    hints: Mapping[int, int] = NO_HINTS,
) -> list[Find]:
    """In rounds, so that one that hides well does not keep the others from being looked for."""
    finds: dict[int, Find] = {}
    console = Console(stderr=True)
    with (
        Progress(TextColumn("planting"), BarColumn(), MofNCompleteColumn(), console=console) as progress,
        # A process for each search: the simulated processes that died stay in its memory.
        multiprocessing.get_context("fork").Pool(jobs, maxtasksperchild=1) as pool,
    ):
        task, first = progress.add_task("", total=len(mutants)), 0
        for last in sorted({min(size, most) for size in (*ROUNDS, most)}):
            left = [number for number in mutants if number not in finds or not finds[number].invariant]
            work = [Hunt(number, first, last, until, conditions, hints.get(number, -1)) for number in left]
            for number, find in zip(left, pool.imap(_hunt, work), strict=True):
                finds[number] = find
                progress.advance(task, 1 if find.invariant else 0)
            first = last
    return sorted(finds.values(), key=lambda find: (find.invariant == 0, find.seeds, find.name))


def _say(finds: list[Find]) -> None:
    for find in finds:
        found = f"invariant {find.invariant:2} at seed {find.seed}" if find.invariant else "MISSED"
        click.echo(f"{found:<28} {find.name}: {find.breaks}")
    caught = [find.seeds for find in finds if find.invariant]
    if caught:
        click.echo(f"median {statistics.median(caught):.0f} seeds, at most {max(caught)}")
    click.echo(f"{len(caught)} caught, {len(finds) - len(caught)} missed")


if __name__ == "__main__":
    main()
