"""Plant every bug of the catalogue, and see which seed and which invariant finds it.

    python -m simulator.mutations.planting --seconds 600

`kept_seeds.json` keeps, for each bug, the seed that found it last. Each bug is planted there first, which takes a
moment; one that is not found there is looked for in other seeds. With the time that is left, bugs are planted in seeds
that are drawn from `--draw`.

A seed counts as a find only where the product without the bug passes it.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

import click
import msgspec

from simulator.generator.budgets import BUDGETED
from simulator.generator.plans import draw
from simulator.generator.queues import QUEUED
from simulator.mutations.catalogue import MUTANTS
from simulator.mutations.mutation import Mutant, planted
from simulator.mutations.tested import its_test_finds
from simulator.world import Conditions, Journal, simulate

MOST: Final = 20_000
ROUNDS: Final = (50, 500, 3_000, MOST)
"""Seeds that are tried for each bug in one round, so that one that hides well does not delay the others."""
KEPT: Final = Path(__file__).with_name("kept_seeds.json")
FRESH: Final = 300_000
"""Fresh hunts begin at a seed below this one, beyond all that tests name and far below the next kind of plan."""
SHORT: Final = Conditions(most_steps=100_000)
"""Some bugs let a process loop without end. A plan without a bug takes at most half as many steps as this allows."""
REPEAT: Final = "make deep ONLY=mutants ARGS='--only \"{}\"'"

Verdict = Literal["found", "missed", "not reached"]


class Find(msgspec.Struct, frozen=True):
    """The result of one hunt. `seed` found the bug, as the simulator takes it; `tried` counts the seeds before it."""

    name: str
    breaks: str
    verdict: Verdict
    tried: int = 0
    seed: int = 0
    invariant: int = 0
    what: str = ""

    @property
    def ended(self) -> bool:
        return self.verdict != "not reached"


class Hunt(msgspec.Struct, frozen=True):
    """A search for one bug in the seeds of its kind from `first` up to `last`, given up at `until` (monotonic)."""

    mutant: int
    first: int
    last: int
    until: float


def kept_seeds() -> dict[str, int]:
    """The seed that found each bug last, counted from the first seed of its kind."""
    kept: dict[str, int] = json.loads(KEPT.read_text(encoding="utf-8"))
    return kept


def hunt(mutant: Mutant, seeds: range, until: float = float("inf")) -> Find:
    """Try seeds of the bug's kind until one finds it, or run the test that finds it."""
    if mutant.test:
        found = its_test_finds(mutant)
        what = f"{mutant.test} fails" if found else ""
        return Find(mutant.name, mutant.breaks, "found" if found else "missed", 1, seeds.start, what=what)
    for tried, seed in enumerate(seeds, 1):
        if time.monotonic() > until:
            return Find(mutant.name, mutant.breaks, "not reached", tried - 1)
        plan = draw(mutant.from_seed + seed)
        # Bugs of queues and schedules are in the statements of the journal in a file.
        journal: Journal = "sqlite" if QUEUED <= plan.seed < BUDGETED else "memory"
        with planted(mutant):
            broken = simulate(plan, journal=journal, conditions=SHORT).violations
        if broken and not simulate(plan, journal=journal, conditions=SHORT).violations:
            return Find(mutant.name, mutant.breaks, "found", tried, plan.seed, broken[0].invariant, broken[0].what)
    return Find(mutant.name, mutant.breaks, "missed", len(seeds))


def _hunt(job: Hunt) -> Find:
    return hunt(MUTANTS[job.mutant], range(job.first, job.last), job.until)


def plant(
    mutants: Sequence[int], until: float, jobs: int, seeds: Mapping[str, int], say: Callable[[Find], None]
) -> list[Find]:
    """Plant each bug at its seed, then those that were not found in more and more seeds, until the time is over."""
    finds: dict[int, Find] = {}
    at_their_seed = [
        Hunt(number, seed, seed + 1, until)
        for number in mutants
        if (seed := seeds.get(MUTANTS[number].name)) is not None
    ]
    first = 0
    rounds = [at_their_seed]
    for last in ROUNDS:
        rounds.append([Hunt(number, first, last, until) for number in mutants])
        first = last
    for hunts in rounds:
        left = [job for job in hunts if job.mutant not in finds or finds[job.mutant].verdict == "missed"]
        for job, find in zip(left, _in_processes(left, jobs), strict=True):
            finds[job.mutant] = find
            if find.verdict == "found":
                say(find)
    return [finds[number] for number in mutants]


def plant_afresh(mutants: Sequence[int], until: float, jobs: int, chance: random.Random) -> list[Find]:
    """Plant bugs in seeds that are drawn, a few seeds each, round by round until time is over."""
    finds: dict[int, Find] = {}
    size = 25
    by_seeds = [number for number in mutants if not MUTANTS[number].test]
    while time.monotonic() < until and (left := [number for number in by_seeds if number not in finds]):
        hunts: list[Hunt] = []
        for number in left:
            first = chance.randrange(FRESH)
            hunts.append(Hunt(number, first, first + size, until))
        for job, find in zip(hunts, _in_processes(hunts, jobs), strict=True):
            if find.verdict == "found":
                finds[job.mutant] = find
        size *= 4
    return list(finds.values())


def _in_processes(hunts: Sequence[Hunt], jobs: int) -> Iterator[Find]:
    """A process for each hunt: the simulated processes that died stay in its memory."""
    if not hunts:
        return
    with multiprocessing.get_context("fork").Pool(jobs, maxtasksperchild=1) as pool:
        yield from pool.imap(_hunt, hunts)


@click.command(epilog="Example: python -m simulator.mutations.planting --only 'key per attempt'")
@click.option("--seconds", type=click.FloatRange(1), default=1200.0, show_default=True, help="When to stop.")
@click.option("--draw", "drawn", type=int, default=1, show_default=True, help="What fresh seeds are drawn from.")
@click.option("--only", multiple=True, help="Bugs by name; all by default.")
@click.option("--jobs", type=click.IntRange(1), default=None, help="Processes; one for each core by default.")
@click.option("--keep", is_flag=True, help="Store the seeds that found the bugs, for the next time.")
@click.option("--json", "as_json", is_flag=True, help="Print the finds as one JSON object.")
def main(seconds: float, drawn: int, only: tuple[str, ...], jobs: int | None, *, keep: bool, as_json: bool) -> None:
    """Plant bugs in the product, one at a time, and let the simulator find them. Fails where one is missed."""
    number_of = {mutant.name: number for number, mutant in enumerate(MUTANTS)}
    if strange := [name for name in only if name not in number_of]:
        raise click.UsageError(f"no planted bug is called {strange[0]!r}; there are: {', '.join(number_of)}")
    until, cores = time.monotonic() + seconds, jobs or os.cpu_count() or 1
    chosen, kept = [number_of[name] for name in only or number_of], kept_seeds()
    chance = random.Random(drawn)  # noqa: S311 -- a draw that has to be repeatable
    chance.shuffle(chosen)
    finds = plant(chosen, until, cores, kept, lambda find: None if as_json else click.echo(_line(find, kept)))
    fresh = plant_afresh(chosen, until, cores, chance) if all(find.ended for find in finds) else []
    if keep:
        _keep(kept, finds)
    if as_json:
        click.echo(msgspec.json.encode({"mutants": finds, "fresh": fresh}))
    else:
        _say(finds, fresh, len(chosen))
    sys.exit(1 if any(find.verdict == "missed" for find in finds) else 0)


def _keep(kept: Mapping[str, int], finds: Sequence[Find]) -> None:
    start = {mutant.name: mutant.from_seed for mutant in MUTANTS}
    new = {find.name: find.seed - start[find.name] for find in finds if find.verdict == "found"}
    all_of_them = {name: seed for name, seed in {**kept, **new}.items() if name in start}
    KEPT.write_text(json.dumps(all_of_them, indent=0, sort_keys=True) + "\n", encoding="utf-8")


def _line(find: Find, kept: Mapping[str, int]) -> str:
    if not find.invariant:
        return f"found: {find.what}: {find.name}: {find.breaks}"
    moved = "" if find.tried == 1 and find.name in kept else ", not at its kept seed"
    return f"found: invariant {find.invariant} at seed {find.seed}{moved}: {find.name}: {find.breaks}"


def _say(finds: Sequence[Find], fresh: Sequence[Find], chosen: int) -> None:
    for find in finds:
        if find.verdict == "missed":
            click.echo(f"MISSED: {find.name}: {find.breaks}\n  repeat: {REPEAT.format(find.name)}")
    if late := [find.name for find in finds if find.verdict == "not reached"]:
        click.echo(f"not reached: {len(late)} planted bugs: {', '.join(late)}")
    if fresh:
        click.echo(f"in drawn seeds, too: {len(fresh)} of {chosen}, after {sum(find.tried for find in fresh)} seeds")
    found = sum(find.verdict == "found" for find in finds)
    click.echo(f"{found} planted bugs found, {sum(find.verdict == 'missed' for find in finds)} missed")


if __name__ == "__main__":
    main()
