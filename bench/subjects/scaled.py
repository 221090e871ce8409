"""A journal that has grown: builds one by the product itself, and measures what must not slow down as it grows.

The runs that wait, for an event or for a deferred outcome, are driven. One ended run of each length is driven, too; the
others are its records under their own names, appended through the journal's port and chained by it. Nothing is written
by SQL.
"""

import argparse
import asyncio
import contextlib
import statistics
import sys
import time
from collections.abc import Coroutine, Iterable, Iterator
from datetime import timedelta
from itertools import count, islice, product
from pathlib import Path
from typing import Any, Final, TypeVar

from measure import payload, report, settled_size

from beforehand import Beforehand, Deferred, Key, Run, RunSuspended, agent, current_operation, tool
from beforehand.cli.config import existing_journal
from beforehand.engine.deferred import ArrivedAnswer
from beforehand.engine.settings import Settings
from beforehand.inspect.effects import EffectQuery, find_effects
from beforehand.inspect.monitors.counting import PORTION, RecordTallies
from beforehand.inspect.monitors.passes import present, watch
from beforehand.inspect.monitors.rules import MonitorSettings
from beforehand.inspect.reader import JournalReader
from beforehand.journal.port import ClaimRequest, LeaseGranted, RunChange
from beforehand.journal.run_log import beginning
from beforehand.journal.sqlite.driver import StandardDatabase
from beforehand.model.records import Raw
from beforehand.people import answering, answers
from beforehand.people.dossier import dossier
from beforehand.policies import Gate

T = TypeVar("T")
QUIET: Final = Settings(poll_ms=600_000, recover_every_ms=600_000, lease_ms=36_000_000)
AT_ONCE: Final = 250
FOREIGN: Final = "another-program"
CROWD: Final = 10_000
IDLE: Final = 1_000
IDLE_S: Final = 20
LONG: Final = 5_000
PAIRS: Final = 12
STEPS_A_PAIR: Final = 100
LOOKED_FOR: Final = 50
PROBES: Final = "build", "answers", "behind", "steps", "idle", "approval", "monitors", "effect"


class Reached:
    """What agent code has reached, and the moment when it was reached so many times."""

    def __init__(self) -> None:
        self.missing = 0
        self.all = asyncio.Event()

    def note(self) -> None:
        self.missing -= 1
        if not self.missing:
            self.all.set()


settled, begun = Reached(), Reached()


@tool(idempotency=Key.forever())
async def charge(index: int) -> dict[str, object]:
    assert current_operation().key
    return payload(index)


@tool
async def transfer(number: int) -> str:
    raise Deferred("accepted by the bank", within=timedelta(days=365), key=f"bank-{number}")


@tool(effect="read")
async def look(index: int) -> int:
    return index


@tool(gate=Gate("true", within=timedelta(days=1)))
async def pay(cents: int) -> int:
    return cents


@tool(claim="number")
async def refund(number: str) -> str:
    return f"refunded {number}"


@agent(run_id="refunds-{many}")
async def refunds(_run: Run, many: int) -> int:
    for number in range(many):
        await refund(f"ORDER-{number}")
    return many


@agent(run_id="order-{steps}")
async def order(_run: Run, steps: int) -> int:
    for index in range(steps):
        await charge(index)
    return steps


@agent(run_id="waits-{number}")
async def waits(run: Run, number: int) -> str:
    return f"{number}: {await run.wait_for('paid')}"


@agent(run_id="deferred-{number}")
async def deferred(_run: Run, number: int) -> str:
    answer = await transfer(number)
    settled.note()
    return answer


@agent(run_id="due-{number}")
async def due(_run: Run, number: int) -> int:
    begun.note()
    return number


@agent(run_id="approved-{steps}")
async def approved(_run: Run, steps: int) -> int:
    for index in range(steps):
        await look(index)
    return await pay(steps)


@agent(run_id="idle-{number}")
async def idle(run: Run, number: int) -> str:
    return f"{number}: {await run.wait_for('paid', timeout=timedelta(hours=1))}"


def app(path: Path, *agents: Any, settings: Settings = QUIET, recover: bool = False) -> Beforehand:
    return Beforehand(path, agents=agents or ALL, settings=settings, recover=recover)


ALL: Final = [order, waits, deferred, due, approved, idle, refunds]


# --- building ----------------------------------------------------------------------------------------------------


async def build(path: Path, operations: int, runs: int) -> dict[str, float]:
    """Runs that wait, runs with deferred outcomes (a tenth of all each), and ended runs with the operations."""
    start, each = time.perf_counter(), runs // 10
    ended = runs - 2 * each
    async with app(path) as desk:
        for kind in (waits, deferred):
            jobs = (resting(desk.run(kind, number)) for number in range(each))
            await in_batches(f"{each:,} runs that are driven until they wait ({kind.name})", jobs, each)
        short, longer = divmod(operations, ended)
        await append_ended(desk, ended - longer, short, 0)
        await append_ended(desk, longer, short + 1, ended - longer)
        counts = await desk.engine.journal.counts()
    assert sum(counts.values()) == runs, counts
    assert counts["order", "completed"] == ended, counts
    return {"runs": runs, "operations": operations, "seconds": time.perf_counter() - start, "bytes": settled_size(path)}


async def resting(run: Coroutine[Any, Any, object]) -> None:
    with contextlib.suppress(RunSuspended):
        await run


async def append_ended(desk: Beforehand, runs: int, steps: int, first: int) -> None:
    """Drive one run of so many steps, and append its records under `runs - 1` other names."""
    if not runs:
        return
    await desk.run(order, steps)
    journal, engine = desk.engine.journal, desk.engine
    bodies = [row.body for row in await journal.read(f"order-{steps}", 0, 10**6)]
    (row,) = await journal.runs(run=f"order-{steps}")
    change = RunChange("completed", row.reason, None, row.waits, release=True)

    async def one(number: int) -> None:
        run = f"ended-{number:07}"
        new = beginning(engine.identity.namespace, run, row.agent, bodies, change, row.program)
        claimed = await journal.commit(ClaimRequest(run, engine.worker.id, new))
        assert isinstance(claimed, LeaseGranted), run
        assert claimed.fresh, run

    jobs = (one(first + number) for number in range(runs - 1))
    await in_batches(f"{runs * steps:,} ended operations in {runs:,} runs", jobs, runs - 1)


def batched(items: Iterable[T]) -> Iterator[tuple[T, ...]]:
    """The items in turns of `AT_ONCE`."""
    rest = iter(items)
    while batch := tuple(islice(rest, AT_ONCE)):
        yield batch


async def in_batches(what: str, jobs: Iterator[Coroutine[Any, Any, None]], total: int) -> None:
    done, shown = 0, time.monotonic()
    for batch in batched(jobs):
        await asyncio.gather(*batch)
        done += len(batch)
        if time.monotonic() - shown > 5 or done == total:
            shown = time.monotonic()
            print(f"{what}: {done:,} of {total:,}", file=sys.stderr, flush=True)


# --- measuring ---------------------------------------------------------------------------------------------------


async def delivered(path: Path, wanted: int) -> dict[str, float]:
    """Answers that one process takes a second: delivered, recorded by their runs, and these driven to their end."""
    async with app(path, recover=True, settings=Settings()) as desk:
        settled.missing, start = wanted, time.perf_counter()
        for numbers in batched(range(wanted)):
            answer = ArrivedAnswer("only", result=Raw(b'"done"'))
            await asyncio.gather(*(desk.service.deliver(f"bank-{number}", answer) for number in numbers))
        await settled.all.wait()
        return {"per_s": wanted / (time.perf_counter() - start)}


async def behind(path: Path, crowd: int, *, same_program: bool) -> dict[str, float]:
    """Seconds from opening the app until a due run starts that has a crowd of another agent before it."""
    name = "waits" if same_program else "foreign"
    async with app(path) as desk:
        journal, engine = desk.engine.journal, desk.engine
        change = RunChange("suspended", "due", 1, release=True)
        with contextlib.suppress(RunSuspended):
            await desk.run(due, 1)
        with contextlib.suppress(RunSuspended):
            await desk.run(waits, 10**7)
        for source, agent_name, total in ((f"waits-{10**7}", name, crowd), ("due-1", "due", 1)):
            (row,) = await journal.runs(run=source)
            bodies = [one.body for one in (await journal.read(source))[:2]]
            program = row.program if agent_name != "foreign" else FOREIGN
            stamp = change if total > 1 else RunChange("suspended", "due", int(time.time() * 1000), release=True)

            async def one(number: int, agent_name: str = agent_name, program: str = program,
                          bodies: list[bytes] = bodies, stamp: RunChange = stamp) -> None:  # fmt: skip
                run = f"a-{agent_name}-{same_program}-{number:05}"
                new = beginning(engine.identity.namespace, run, agent_name, bodies, stamp, program)
                await journal.commit(ClaimRequest(run, engine.worker.id, new))

            await in_batches(f"{total:,} due runs of {agent_name}", (one(number) for number in range(total)), total)
    begun.missing, begun.all = 1, asyncio.Event()
    start = time.perf_counter()
    async with app(path, recover=True, settings=Settings()):
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(begun.all.wait(), 60)
        return {"seconds": time.perf_counter() - start}


async def stepping(path: Path, empty: Path) -> dict[str, float]:
    """Steps a second in the grown journal to those in an empty one: pairs in turn, in one process."""
    ratios: list[float] = []
    numbers = count(10**6)
    async with app(path) as grown, app(empty) as fresh:
        for pair in range(PAIRS + 1):
            spent: list[float] = []
            for desk in (grown, fresh) if pair % 2 else (fresh, grown):
                start = time.perf_counter()
                await desk.run(order, STEPS_A_PAIR, run_id=f"step-{next(numbers)}")
                spent.append(time.perf_counter() - start)
            if pair:  # the first one warms up
                ratios.append(spent[1] / spent[0] if pair % 2 else spent[0] / spent[1])
    return {"ratio": statistics.median(ratios)}


async def idling(path: Path, runs: int, seconds: float) -> dict[str, float]:
    """Statements a second of a process in which so many runs wait and nothing happens."""
    counter = [0]
    rows, change = StandardDatabase.rows, StandardDatabase.change

    # Counted here: a trace in SQLite would block where two threads share a connection.
    def counted_rows(self: StandardDatabase, sql: str, values: Any = ()) -> Any:  # rows, as they are
        counter[0] += 1
        return rows(self, sql, values)

    def counted_change(self: StandardDatabase, sql: str, values: Any = ()) -> int:
        counter[0] += 1
        return change(self, sql, values)

    StandardDatabase.rows = counted_rows  # type: ignore[method-assign]  # counted
    StandardDatabase.change = counted_change  # type: ignore[method-assign]  # counted
    async with app(path, idle, recover=True, settings=Settings(hold_ms=86_400_000, grace_ms=0)) as desk:
        for number in range(runs):
            desk.start(idle, number)
        active = desk.engine.active_runs
        while len(active) < runs or not all(one.waiters.at_rest() for one in active.values()):  # noqa: ASYNC110 - no event says so
            await asyncio.sleep(0.1)
        await asyncio.sleep(6)  # what was written is durable, and the anchor is kept
        counter[0], start = 0, time.perf_counter()
        await asyncio.sleep(seconds)
        return {"statements_per_s": counter[0] / (time.perf_counter() - start)}


async def approving(path: Path, steps: int) -> dict[str, float]:
    """The time of an approval, shown and answered, in a run of so many recorded steps, to that in a new run."""
    times: dict[int, list[float]] = {steps: [], 0: []}
    async with app(path) as desk:
        for turn, length in product(range(3), times):
            name = f"approved-{length}-{turn}"
            with contextlib.suppress(RunSuspended):
                await desk.run(approved, length, run_id=name)
            start = time.perf_counter()
            shown = (await dossier(desk.service.reader, f"{name}/pay#1")).digest
            await answering.answer(desk.service, f"{name}/pay#1", answers.Approve(), by="ann", shown=shown)
            times[length].append(time.perf_counter() - start)
    return {"ratio": statistics.median(times[steps]) / statistics.median(times[0])}


async def monitored(path: Path, operations: int) -> dict[str, float]:
    """Seconds of a worker's look for silent failures, once all is counted: the slowest of some with many new records.

    Also of the first count of everything, and of a process that begins after it.
    """
    settings, tallies, looks = MonitorSettings(), RecordTallies(), list[float]()
    async with app(path) as desk:
        reader, start = desk.service.reader, time.perf_counter()
        while not await tallies.count(reader, int(time.time() * 1000), settings, stores=True):
            pass
        counted = time.perf_counter() - start
        for turn in range(5):
            await desk.run(order, min(operations, PORTION // 2 - 100), run_id=f"watched-{turn}")
            start = time.perf_counter()
            while not await watch(reader, desk.engine.outbox, int(time.time() * 1000), settings, tallies):
                pass
            looks.append(time.perf_counter() - start)
        start = time.perf_counter()
        await present(reader, int(time.time() * 1000), settings)
        begun = time.perf_counter() - start
    return {"seconds": max(looks), "counting_s": counted, "begun_s": begun}


async def found(path: Path) -> dict[str, float]:
    """Milliseconds until an effect is found by its business key: the slowest of many, each looked for once."""
    spent: list[float] = []
    async with app(path) as desk:
        await desk.run(refunds, LOOKED_FOR)
    journal = existing_journal(str(path)).reader()
    reader = JournalReader(journal, await journal.open())
    for number in range(LOOKED_FOR):
        start = time.perf_counter()
        effects = await find_effects(reader, journal, EffectQuery(key=f"ORDER-{number}"), 20)
        spent.append((time.perf_counter() - start) * 1000)
        assert [one.key for one in effects.effects], number
    await journal.close()
    return {"ms": max(spent), "median_ms": statistics.median(spent)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=list(PROBES))
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--operations", type=int, default=1_000_000)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=IDLE_S)
    parser.add_argument("--same-program", action="store_true")
    options = parser.parse_args()
    path = options.directory / "grown.db"
    small = options.runs // 10
    match options.what:
        case "build":
            story = build(path, options.operations, options.runs)
        case "answers":
            story = delivered(path, min(1_000, small))
        case "behind":
            story = behind(path, min(CROWD, small), same_program=options.same_program)
        case "steps":
            story = stepping(path, options.directory / f"empty-{time.time_ns()}.db")
        case "idle":
            story = idling(options.directory / f"idle-{time.time_ns()}.db", min(IDLE, small), options.seconds)
        case "monitors":
            story = monitored(path, options.operations)
        case "effect":
            story = found(path)
        case _:
            story = approving(path, min(LONG, options.operations // 20))
    report(**asyncio.run(story))


if __name__ == "__main__":
    main()
