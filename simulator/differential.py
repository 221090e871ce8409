"""One seed, simulated twice: with the fast path of the product and without it. Both sides have to do the same.

Compared are, one by one and with their times: the requests that reached services and the effects there; the records of
each run and the entries of each stream of the ledger, byte for byte; the listing; the places where faults struck; and,
as one digest, all that agents, callers and reviewers received, in order.

The fast path takes fewer passes of the event loop for a step, and that alone must not count as a difference. So this
simulation depends on time and order only where the product does. Numbers are drawn by their purpose (`draws.py`): one
request more or less, or another order of two, changes no other number. The order of processes is fixed, and each acts
until it has to wait for time. The second side is struck where the first one was: at the n-th point of that name that
this process reaches.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from beforehand.engine.driven_operation import DrivenOperation
from beforehand.journal.port import Row
from beforehand.testing.world.stage import without_warnings
from simulator.campaign import in_turn, on_all_cores
from simulator.generator.bodies import BODIES
from simulator.generator.plans import draw
from simulator.generator.queues import HELD
from simulator.mutations.mutation import Mutant, planted
from simulator.plan import Fault, Plan
from simulator.processes.nemesis import Place
from simulator.services.network import STOPS
from simulator.world import Conditions, Report, World

BATCH: Final = 3
STEADY: Final = 2
"""A difference counts when it is there in so many further comparisons."""
CONTEXT: Final = 12
"""Lines of a story that are shown before the first line in which the two sides differ."""

Side = Literal["fast", "slow", "both"]
"""Where a bug is planted: on the side with the fast path, on the side without it, or on both."""


class Traces(msgspec.Struct, frozen=True):
    """The traces of one simulation: named lists of comparable things."""

    report: Report
    taken: int
    parts: Mapping[str, Sequence[Any]]
    struck: Mapping[Place, Fault]


class Difference(msgspec.Struct, frozen=True):
    """The first difference in one part, as each side has it. `number` counts from one."""

    part: str
    number: int
    fast: str
    slow: str


class Comparison(msgspec.Struct, frozen=True):
    """The comparison of both sides of one seed. A violation of an invariant on either side counts as well."""

    seed: int
    differences: tuple[Difference, ...] = ()
    violation: str = ""
    taken: int = 0
    requests: int = 0
    effects: int = 0
    records: int = 0
    log: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())

    @property
    def differs(self) -> bool:
        """True if the sides differ, or if one of them broke an invariant."""
        return bool(self.differences or self.violation)


def plan_of(seed: int) -> Plan:
    """The plan of a seed. Odd seeds drive one run of it in one worker, even ones all its runs in all its workers.

    So do odd ones whose plan stops a process in a call: it takes another process to notice that. No bodies are compared
    that do several things at once: of parts that are cancelled together, another one may leave first on the other side.
    """
    plan = draw(seed if not BODIES <= seed < HELD else seed - BODIES)
    if seed % 2 == 0 or any(fault.kind in STOPS for fault in plan.faults):
        return plan
    # Where runs are submitted, a submitted one is driven: the world has queues only for those.
    submitted = plan.submissions[seed % len(plan.submissions) :][:1] if plan.submissions else ()
    script = plan.scripts[submitted[0].script if submitted else seed % len(plan.scripts)]
    worker = replace(plan.workers[0], contained=False, scripts=() if submitted else (0,))
    return replace(
        plan, scripts=(script,), workers=(worker,), undeclared=(),
        tellings=tuple(telling for telling in plan.tellings if telling.run == script.id),
        orders=tuple(order for order in plan.orders if order.run.partition("~")[0] == script.id),
        submissions=tuple(replace(one, script=0, workers=(0,) * len(one.workers)) for one in submitted),
    )  # fmt: skip


def compare(plan: Plan, mutant: Mutant | None = None, side: Side = "both", *, story: bool = False) -> Comparison:
    """Simulate a plan on both sides. A bug may be planted on one side only."""
    fast = _traces(plan, Conditions(by_purpose=True), mutant if side != "slow" else None, story=story)
    conditions = Conditions(fast_path=False, by_purpose=True, strikes=fast.struck)
    slow = _traces(plan, conditions, mutant if side != "fast" else None, story=story)
    sides = (("with the fast path", fast), ("without it", slow))
    broken = [f"{name}: invariant {one.invariant}: {one.what}" for name, traces in sides
              for one in traces.report.violations[:1]]  # fmt: skip
    return Comparison(
        plan.seed, tuple(_differences(fast, slow)), broken[0] if broken else "", fast.taken,
        requests=len(fast.parts["requests"]), effects=_count(fast, "effects at "), records=_count(fast, "records of "),
        log=(fast.report.log, slow.report.log),
    )  # fmt: skip


def _count(traces: Traces, prefix: str) -> int:
    return sum(len(part) for name, part in traces.parts.items() if name.startswith(prefix))


def _traces(plan: Plan, conditions: Conditions, mutant: Mutant | None, *, story: bool) -> Traces:
    taken: Counter[str] = Counter()
    counted = Mutant("counted", "", "beforehand.engine.fast_path:attempt_at_once", functools.partial(_counting, taken))
    with planted(mutant) if mutant is not None else contextlib.nullcontext(), planted(counted), without_warnings():
        world = World(plan, story=story, conditions=conditions)
        report = world.simulate()
    stored = world.store.backup()
    streams: defaultdict[str, list[object]] = defaultdict(list)
    for entry in stored.ledger:
        streams[entry.stream].append(entry)
    parts: dict[str, Sequence[Any]] = {"requests": world.requests}
    parts |= {f"effects at {name}": service.effects for name, service in world.services.items()}
    parts |= {f"records of {run}": rows for run, (_, rows) in stored.runs.items()}
    parts |= {f"listing of {run}": [listing] for run, (listing, _) in stored.runs.items()}
    parts |= {f"ledger entries of {stream}": entries for stream, entries in streams.items()}
    parts["places where faults struck"] = list(world.nemesis.places.items())
    parts["digest of all that was received"] = [report.digest]
    return Traces(report, taken.total(), parts, world.nemesis.places)


def _counting(taken: Counter[str], attempt_at_once: Any) -> Any:
    """The fast path, which counts the attempts that it makes."""

    @functools.wraps(attempt_at_once)
    async def counting(driver: DrivenOperation, *arguments: Any) -> None:
        try:
            await attempt_at_once(driver, *arguments)
        finally:
            known = driver.active.history.operations.get(driver.step)
            taken[driver.id] += known is not None and bool(known.attempts)

    return counting


def _differences(fast: Traces, slow: Traces) -> Iterator[Difference]:
    for name in dict.fromkeys((*fast.parts, *slow.parts)):
        one, other = fast.parts.get(name, ()), slow.parts.get(name, ())
        if one != other:
            number = _first_difference(one, other)
            yield Difference(name, number + 1, _shown(one, number), _shown(other, number))


def _first_difference(one: Sequence[Any], other: Sequence[Any]) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((number for number, (left, right) in pairs if left != right), min(len(one), len(other)))


def _shown(part: Sequence[Any], number: int) -> str:
    if number >= len(part):
        return "nothing more"
    return part[number].body.decode() if isinstance(part[number], Row) else str(part[number])


# --- many seeds -------------------------------------------------------------------------------------------------------


class Figures(msgspec.Struct):
    """The figures of many seeds."""

    seeds: int = 0
    taken: int = 0
    requests: int = 0
    effects: int = 0
    records: int = 0
    seconds: float = 0.0
    different: list[Comparison] = []

    @property
    def per_hour(self) -> int:
        """Seeds in one hour at this speed, each simulated twice."""
        return round(self.seeds * 3600 / self.seconds) if self.seconds else 0

    def add(self, other: Figures) -> None:
        """Count other seeds in."""
        self.seeds += other.seeds
        self.taken += other.taken
        self.requests += other.requests
        self.effects += other.effects
        self.records += other.records
        self.different = sorted([*self.different, *other.different], key=lambda one: one.seed)


def run(
    *seeds: range,
    jobs: int | None = None,
    tick: Callable[[int, int], None] | None = None,
    until: float = math.inf,
) -> Figures:
    """Compare both sides of `seeds`, and begin none after `until` (on the monotonic clock).

    `tick` receives the number of seeds so far, and of those that differ.
    """
    started, figures = time.perf_counter(), Figures()
    for part in on_all_cores(batch, in_turn(seeds, BATCH), jobs or os.cpu_count() or 1, until):
        figures.add(part)
        if tick is not None:
            tick(figures.seeds, len(figures.different))
    figures.seconds = time.perf_counter() - started
    return figures


def batch(seeds: Iterable[int]) -> Figures:
    """Compare some seeds, one after the other."""
    figures = Figures()
    for seed in seeds:
        found = compare(plan_of(seed))
        again = 0
        # Python keeps tasks in sets by their address, so about one plan in a thousand ends a millisecond earlier or
        # later from one comparison to the next. What the fast path does differently differs each time.
        while found.differs and not found.violation and again < STEADY:
            found, again = compare(plan_of(seed)), again + 1
        different = [found] if found.differs else []
        figures.add(Figures(1, found.taken, found.requests, found.effects, found.records, different=different))
    return figures


def find(mutant: Mutant, seeds: Iterable[int]) -> Comparison | None:
    """The first of these seeds that shows the bug, and does not differ without it."""
    for seed in seeds:
        found = compare(plan_of(seed), mutant)
        if found.differs and not compare(plan_of(seed)).differs:
            return found
    return None


# --- for a person -----------------------------------------------------------------------------------------------------


def lines_about(figures: Figures) -> list[str]:
    """The summary of many seeds, after each of those that differ."""
    return [
        *map(tell, figures.different),
        f"{figures.taken:,} first attempts took the fast path",
        f"compared one by one: {figures.requests:,} requests, {figures.effects:,} effects, {figures.records:,} records",
        f"{figures.seeds} seeds, each simulated twice: {len(figures.different)} differ, {figures.per_hour} seeds/hour",
    ]


def tell(found: Comparison) -> str:
    """The differences of one seed, and the command that repeats them with both stories."""
    lines = [f"seed {found.seed}: {found.violation or 'the two sides differ'}"]
    for one in found.differences:
        lines += [f"  {one.part}, number {one.number}:", f"    with the fast path: {one.fast}"]
        lines += [f"    without it:         {one.slow}"]
    lines += _stories(*found.log)
    return "\n".join([*lines, f"  repeat: make deep ONLY=differential SEED={found.seed}"])


def _stories(fast: tuple[str, ...], slow: tuple[str, ...]) -> Iterator[str]:
    """Both stories from a little before the line in which they part."""
    if fast == slow:
        return
    number = _first_difference(fast, slow)
    yield "  the stories agree up to:"
    yield from (f"    {line}" for line in fast[max(0, number - CONTEXT) : number])
    for name, log in (("with the fast path", fast), ("without it", slow)):
        yield f"  then, {name}:"
        yield from (f"    {line}" for line in log[number : number + CONTEXT])
