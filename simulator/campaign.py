"""Many seeds, on all cores: what they reached, what fell, and how fast."""

from __future__ import annotations

import functools
import gc
import multiprocessing
import os
import time
import warnings
from collections.abc import Callable, Iterator

import msgspec

from holdfast.agent.conditions import checked
from simulator.draw import draw
from simulator.reach import Reach
from simulator.world import Journal, Report, simulate

BATCH = 20
BATCHES_PER_PROCESS = 5
FULL = 2_000
"""From so many seeds on a campaign has to have reached everything; fewer cannot be expected to."""


class Fallen(msgspec.Struct, frozen=True):
    """A seed that broke an invariant."""

    seed: int
    invariant: int
    what: str


class Part(msgspec.Struct):
    """What some seeds came to."""

    seeds: int = 0
    fallen: list[Fallen] = []
    reach: Reach = msgspec.field(default_factory=Reach)
    steps: int = 0
    points: int = 0
    virtual_ms: int = 0

    def add(self, other: Part) -> None:
        """Count other seeds in."""
        self.seeds += other.seeds
        self.fallen = sorted([*self.fallen, *other.fallen], key=lambda one: one.seed)
        self.reach.add(other.reach)
        self.steps += other.steps
        self.points += other.points
        self.virtual_ms += other.virtual_ms


class Campaign(Part):
    """All seeds of one campaign, and the seconds it took."""

    first: int = 0
    seconds: float = 0.0

    @property
    def per_hour(self) -> int:
        """Seeds in one hour at this speed."""
        return round(self.seeds * 3600 / self.seconds) if self.seconds else 0

    @property
    def holes(self) -> list[str]:
        """What a full campaign should have reached and did not."""
        return self.reach.holes() if self.seeds >= FULL else []


def run(
    seeds: range,
    *,
    jobs: int | None = None,
    tick: Callable[[int, int], None] | None = None,
    journal: Journal = "memory",
) -> Campaign:
    """Simulate all `seeds` over that kind of journal. `tick` hears how many are done, and how many of them fell."""
    started = time.perf_counter()
    campaign = Campaign(first=seeds.start)
    batches = [seeds[start : start + BATCH] for start in range(0, len(seeds), BATCH)]
    for part in _parts(batches, jobs or os.cpu_count() or 1, journal):
        campaign.add(part)
        if tick is not None:
            tick(campaign.seeds, len(campaign.fallen))
    campaign.seconds = time.perf_counter() - started
    return campaign


def _parts(batches: list[range], jobs: int, journal: Journal) -> Iterator[Part]:
    if jobs == 1:
        yield from map(functools.partial(_swept, journal=journal), batches)
        return
    _warm_up()
    # What dead processes leave behind is full of cycles, and to look for them takes a quarter of the time. Here nobody
    # does: a worker simulates for a few seconds, and its end gives everything back at once.
    with multiprocessing.get_context("fork").Pool(jobs, gc.disable, maxtasksperchild=BATCHES_PER_PROCESS) as pool:
        yield from pool.imap_unordered(functools.partial(batch, journal=journal), batches)


def _warm_up() -> None:
    """What is imported, compiled and kept by the first simulations is there before the first worker is forked."""
    checked("true", ())
    simulate(draw(0))


def batch(seeds: range, journal: Journal = "memory") -> Part:
    """Some seeds, one after the other."""
    part = Part()
    for seed in seeds:
        _count(part, seed, simulate(draw(seed), journal=journal))
    return part


def _swept(seeds: range, journal: Journal) -> Part:
    """A batch in a process that lives on: garbage is collected, once the batch is done."""
    gc.disable()
    try:
        part = batch(seeds, journal)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of coroutines that never began: their process died
            gc.collect()
    finally:
        gc.enable()
    return part


def _count(part: Part, seed: int, report: Report) -> None:
    part.seeds += 1
    part.reach.add(report.reach)
    part.steps += report.steps
    part.points += report.points
    part.virtual_ms += report.ms
    part.fallen += [Fallen(seed, broken.invariant, broken.what) for broken in report.violations[:1]]
