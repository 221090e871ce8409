"""Run the simulator: `python -m simulator --seeds 2000`, or one seed with its story.

Exit status: 0 where every invariant held and everything was reached, 1 where not, 2 for wrong usage.
"""

from __future__ import annotations

import contextlib
import functools
import math
import sys
import time
from collections.abc import Callable, Generator
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from simulator import campaign, failure
from simulator.failure import shrink
from simulator.generator.plans import RANGES, draw
from simulator.plan import Plan
from simulator.world import Journal, simulate

SEEDS = click.option("--seeds", type=click.IntRange(1), default=campaign.FULL, show_default=True, help="How many.")
FIRST = click.option("--first", type=click.IntRange(0), default=0, show_default=True, help="The first of them.")
SECONDS = click.option("--seconds", type=click.FloatRange(1), default=math.inf, help="Begin no seed after this time.")
JOURNAL = click.option(
    "--journal", type=click.Choice(["memory", "sqlite"]), default="memory", show_default=True,
    help="Where records are kept: a simulated disk in memory, or real SQLite files.",
)  # fmt: skip


@click.group()
def main() -> None:
    """Simulate many processes of Beforehand in a hostile world, and check every invariant after every event."""


@main.command(epilog="Example: python -m simulator many --seeds 2000 --report sim.html")
@SEEDS
@FIRST
@SECONDS
@click.option("--report", type=click.Path(path_type=Path), help="Write a page about what was reached and what fell.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as one JSON object.")
@JOURNAL
def many(seeds: int, first: int, seconds: float, report: Path | None, *, as_json: bool, journal: Journal) -> None:
    """Simulate many seeds. The last line says how many broke an invariant, and how fast it went."""
    with _progress("simulating", seeds) as tick:
        until = time.monotonic() + seconds
        done = campaign.run(*_of_all_kinds(first, seeds), tick=tick, journal=journal, until=until)
    if report is not None:
        report.write_text(campaign.page(done), encoding="utf-8")
    if as_json:
        click.echo(msgspec.json.encode(_figures(done)))
    else:
        _say(done, journal)
    sys.exit(1 if done.fallen or done.holes else 0)


@main.command(epilog="Example: python -m simulator one 42")
@click.argument("seed", type=click.IntRange(0), required=False)
@click.option("--plan", type=click.Path(path_type=Path, exists=True), help="A saved plan instead of a seed.")
@click.option("--save", type=click.Path(path_type=Path), help="Where to save the plan, as a regression test.")
@click.option("--whole", is_flag=True, help="Do not make a failing plan smaller.")
@JOURNAL
def one(seed: int | None, plan: Path | None, save: Path | None, *, whole: bool, journal: Journal) -> None:
    """Tell the story of one seed; one that breaks an invariant is made small first."""
    if (seed is None) == (plan is None):
        raise click.UsageError("give a seed, or --plan FILE")
    chosen = _loaded(plan) if plan is not None else draw(seed or 0)
    sys.exit(_tell(chosen, save, journal, whole=whole or plan is not None))


def _loaded(saved: Path) -> Plan:
    try:
        return failure.load(saved.read_bytes())
    except msgspec.DecodeError as error:
        raise click.UsageError(f"{saved} is not a saved plan: {error}") from error


def _tell(plan: Plan, save: Path | None, journal: Journal, *, whole: bool) -> int:
    told = simulate(plan, story=True, journal=journal)
    if told.violations and not whole:
        click.echo(f"seed {plan.seed} breaks invariant {told.violations[0].invariant}; making it small ...", err=True)
        plan = shrink(plan, functools.partial(simulate, journal=journal))
        told = simulate(plan, story=True, journal=journal)
    click.echo(failure.tell(told))
    if save is not None:
        save.write_bytes(failure.save(plan))
        click.echo(f"saved to {save}", err=True)
    return 1 if told.violations else 0


def _of_all_kinds(first: int, seeds: int) -> list[range]:
    """Seeds of every kind of plan: three fifths ordinary ones, and as many of each other kind as of the next."""
    kinds = [start + first for name, start in RANGES.items() if name != "ordinary"]
    share = seeds * 2 // 5 // len(kinds)
    return [range(first, first + seeds - share * len(kinds)), *(range(kind, kind + share) for kind in kinds)]


@contextlib.contextmanager
def _progress(what: str, total: int) -> Generator[Callable[[int, int], None]]:
    """A bar on standard error. It is given the number of seeds so far, and of those that fell."""
    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[fell]}"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as progress:
        task = progress.add_task("", total=total, fell="")

        def tick(done: int, fell: int) -> None:
            progress.update(task, completed=done, fell=f"{fell} fell" if fell else "")

        yield tick


def _say(done: campaign.Campaign, journal: Journal) -> None:
    for one in done.fallen:
        click.echo(f"invariant {one.invariant}: {one.what}\n  repeat: {failure.repeat(one.seed, journal)}")
    for hole in done.holes:
        click.echo(f"never reached: {hole}")
    click.echo(
        f"{done.virtual_ms / 3_600_000:,.0f} h of simulated time: {done.points:,} points, "
        f"{sum(done.reach.faults.values()):,} faults, {done.reach.records['AttemptStarted']:,} attempts"
    )
    click.echo(f"{done.seeds} seeds, {len(done.fallen)} violations, {done.per_hour} seeds/hour")


def _figures(done: campaign.Campaign) -> dict[str, object]:
    return {
        "seeds": done.seeds, "violations": len(done.fallen), "seeds_per_hour": done.per_hour,
        "fallen": done.fallen, "holes": done.holes, "points": done.points, "seconds": round(done.seconds, 1),
        "reach": done.reach,
    }  # fmt: skip


if __name__ == "__main__":
    main()
