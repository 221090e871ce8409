"""Many seeds on all cores: what they reached, which invariants failed, how fast, and the report page about it."""

from __future__ import annotations

import functools
import gc
import itertools
import math
import multiprocessing
import os
import threading
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import TypeVar

import msgspec

from beforehand.agent.conditions import checked
from simulator.coverage import Reach
from simulator.failure import INVARIANTS, repeat
from simulator.generator.plans import draw
from simulator.world import Journal, Report, simulate

BATCH = 5
BATCHES_PER_PROCESS = 20
FULL = 3_400
"""From this number of seeds on a campaign has to have reached everything; three fifths of them are ordinary ones."""


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
    *seeds: range,
    jobs: int | None = None,
    tick: Callable[[int, int], None] | None = None,
    journal: Journal = "memory",
    until: float = math.inf,
) -> Campaign:
    """Simulate `seeds` over that kind of journal, and begin none after `until` (on the monotonic clock).

    The ranges are taken in turn, so that a campaign that ends early has seeds of each. `tick` receives the number of
    seeds so far, and of those that broke an invariant.
    """
    started = time.perf_counter()
    campaign = Campaign(first=seeds[0].start)
    work = functools.partial(batch, journal=journal)
    for part in on_all_cores(work, in_turn(seeds, BATCH), jobs or os.cpu_count() or 1, until):
        campaign.add(part)
        if tick is not None:
            tick(campaign.seeds, len(campaign.fallen))
    campaign.seconds = time.perf_counter() - started
    return campaign


def in_turn(seeds: Sequence[range], size: int) -> list[range]:
    """All seeds in batches: a batch of each range in proportion to its length, then the next ones."""
    placed = [
        ((start + size) / len(part), part[start : start + size])
        for part in seeds
        for start in range(0, len(part), size)
    ]
    return [batch for _, batch in sorted(placed, key=lambda pair: pair[0])]


Done = TypeVar("Done")
Seeds = TypeVar("Seeds")


def on_all_cores(
    work: Callable[[range], Done], batches: Sequence[range], jobs: int, until: float = math.inf
) -> Iterator[Done]:
    """The results of `work` for each batch of seeds, in any order; in this process for one job, else in `jobs` others.

    No batch begins after `until`, on the monotonic clock.
    """
    if jobs == 1:
        in_time = itertools.takewhile(lambda _: time.monotonic() < until, batches)
        yield from map(functools.partial(swept, work), in_time)
        return
    free = threading.Semaphore(2 * jobs)

    def as_they_are_taken() -> Iterator[range]:
        """The pool takes all that it is offered at once, so each batch is offered when an earlier one has ended."""
        for batch in batches:
            free.acquire()
            if time.monotonic() > until:
                return
            yield batch

    _warm_up()
    # What dead processes leave behind is full of cycles, and to look for them takes a quarter of the time. Here no run
    # does: a worker simulates for a few seconds, and its end gives everything back at once.
    with multiprocessing.get_context("fork").Pool(jobs, gc.disable, maxtasksperchild=BATCHES_PER_PROCESS) as pool:
        for done in pool.imap_unordered(work, as_they_are_taken()):
            free.release()
            yield done


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


def swept(work: Callable[[Seeds], Done], seeds: Seeds) -> Done:
    """A batch in a process that lives on: garbage is collected, once the batch is done."""
    gc.disable()
    try:
        part = work(seeds)
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


# --- the report page --------------------------------------------------------------------------------------------------


_STYLE = """
:root { color-scheme: light dark; --line: #8884; --bar: #4a7dbd; --bad: #c0392b; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2.2rem; }
table { border-collapse: collapse; width: 100%; } td, th { padding: .15rem .6rem; border-bottom: 1px solid var(--line);
text-align: left; } td.n { text-align: right; font-variant-numeric: tabular-nums; } td.b { width: 45%; }
.bar { background: var(--bar); height: .7rem; border-radius: 2px; min-width: 2px; }
.bad { color: var(--bad); font-weight: 600; } code { font-size: .9em; }
.grid td { text-align: right; font-variant-numeric: tabular-nums; } .grid th { font-weight: 500; }
"""


def page(done: Campaign) -> str:
    """The page as HTML."""
    verdict = "every invariant held" if not done.fallen else f"{len(done.fallen)} seeds broke an invariant"
    bad = ' class="bad"' if done.fallen or done.holes else ""
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Simulated: {done.seeds} seeds</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style><h1{bad}>{done.seeds:,} seeds from '
        f"{done.first}: {verdict}</h1><p>{done.points:,} points reached, {sum(done.reach.faults.values()):,} faults, "
        f"{done.virtual_ms / 3_600_000:,.0f} hours of simulated time in {done.seconds:,.0f} s "
        f"({done.per_hour:,} seeds an hour).</p>"
        + _fallen(done)
        + _holes(done)
        + _bars("How operations ended", done.reach.endings)
        + _bars("Records written", done.reach.records)
        + _bars("Faults that struck", _by_kind(done.reach.faults))
        + _meetings(done)
        + _bars("Points reached", done.reach.points)
        + "</html>\n"
    )


def _fallen(done: Campaign) -> str:
    if not done.fallen:
        return ""
    rows = "".join(
        f"<tr><td>{one.invariant} {escape(INVARIANTS.get(one.invariant, ''))}</td><td>{escape(one.what)}</td>"
        f"<td><code>{escape(repeat(one.seed))}</code></td></tr>"
        for one in done.fallen
    )
    return f'<h2 class="bad">What fell</h2><table>{rows}</table>'


def _holes(done: Campaign) -> str:
    if not done.holes:
        return ""
    return f'<h2 class="bad">Never reached</h2><ul>{"".join(f"<li>{escape(hole)}" for hole in done.holes)}</ul>'


def _bars(title: str, counts: Counter[str]) -> str:
    most = max(counts.values(), default=1)
    rows = "".join(
        f'<tr><td>{escape(name)}</td><td class="n">{count:,}</td>'
        f'<td class="b"><div class="bar" style="width:{100 * count / most:.1f}%"></div></td></tr>'
        for name, count in counts.most_common()
    )
    return f"<h2>{escape(title)}</h2><table>{rows}</table>"


def _by_kind(faults: Counter[str]) -> Counter[str]:
    kinds: Counter[str] = Counter()
    for name, count in faults.items():
        kinds[name.partition(" @ ")[0]] += count
    return kinds


def _meetings(done: Campaign) -> str:
    """Which fault found which kind of write with an attempt open."""
    table: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for meeting, count in done.reach.meetings.items():
        fault, state, tool = meeting.split(" x ")
        if state == "running":
            table[fault][tool] += count
    tools = sorted({tool for row in table.values() for tool in row})
    head = "".join(f"<th>{escape(tool)}" for tool in tools)
    rows = "".join(
        f"<tr><th>{escape(fault)}" + "".join(f"<td>{row[tool]:,}" for tool in tools)
        for fault, row in sorted(table.items())
    )
    return f'<h2>Faults that found an attempt open</h2><table class="grid"><tr><th>{head}</tr>{rows}</table>'
