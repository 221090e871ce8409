"""Deaths until the poison one is set aside, and what they cost the healthy ones in flight beside it."""

import asyncio
import random
from datetime import timedelta
from typing import Any, NamedTuple

import pytest

from beforehand import Key, Run, agent, current_operation, tool
from beforehand.engine.crash_isolation import ALONE, IsolationGate
from beforehand.engine.settings import Settings
from beforehand.errors import RunStopped
from beforehand.journal.port import Lease, Worker, Write
from beforehand.model import records as r
from tests.commits import Commit, intercept
from tests.unit.engine.lab import Lab, Process, virtual


class Cost(NamedTuple):
    """What a supervisor saw: processes that died, deaths held against each healthy one, seconds until all were done."""

    deaths: int
    held_against: list[int]
    seconds: float
    set_aside: list[str]


class Desk:
    """An agent with one keyed call of a second, or one thought of a second, beside poison that dies half-way in it."""

    def __init__(self, lab: Lab, kind: str, poison: set[str]) -> None:
        self.lab = lab
        self.poison = poison
        self.done: set[str] = set()
        self.process: Process | None = None
        self.over: asyncio.Future[None] | None = None

        @tool(idempotency=Key.forever())
        async def pay(to: str) -> str:
            assert current_operation().key
            await self.work(to)
            return to

        @agent(run_id="{name}")
        async def acts(run: Run, name: str) -> str:
            return await pay(name)

        @agent(run_id="{name}")
        async def thinks(run: Run, name: str) -> str:
            return await run.decide(self.work, name)

        self.agent: Any = acts if kind == "operation" else thinks

    async def work(self, name: str) -> str:
        await self.lab.pass_time(seconds=0.5)
        if name in self.poison:
            self.die()
            await asyncio.get_running_loop().create_future()
        await self.lab.pass_time(seconds=0.5)
        self.done.add(name)
        return name

    def die(self) -> None:
        assert self.process is not None
        assert self.over is not None
        if not self.process.dead:
            self.process.die()
            self.over.set_result(None)

    async def live(self, names: list[str], at_once: int, dies_after: float = 0) -> bool:
        """Drive these in a process of its own; whether it died."""
        app = self.lab.make(self.agent)
        self.process, self.over = self.lab.processes[-1], asyncio.get_running_loop().create_future()
        await app.open()
        driving = asyncio.ensure_future(_all(app.map(self.agent, names, concurrency=at_once)))
        if dies_after:
            asyncio.get_running_loop().call_later(dies_after, self.die)
        await asyncio.wait({driving, self.over}, return_when=asyncio.FIRST_COMPLETED)
        if died := self.process.dead:
            await self.lab.bury(app, self.process)
        else:
            await app.aclose()
        await asyncio.gather(driving, return_exceptions=True)
        return died


class Thinker:
    """An agent whose first step takes longer than any process is given, until it is `quick`."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.quick = False

        @agent(run_id="{name}")
        async def thinks(run: Run, name: str) -> str:
            return await run.decide(self.think, name)

        self.agent: Any = thinks

    async def think(self, name: str) -> str:
        await self.lab.pass_time(hours=0 if self.quick else 1)
        return name

    async def taken(self, *, dies: bool) -> None:
        """A process takes the run and dies, or stands still and loses its lease while it is seen to live."""
        app = self.lab.make(self.agent)
        process = self.lab.processes[-1]
        await app.open()
        app.start(self.agent, "n")
        await self.lab.pass_time(seconds=2)
        if dies:
            await self.lab.bury(app, process)
        process.dead = True  # nothing of it goes through any more; only `bury` proves a death
        await self.lab.pass_time(minutes=1)


async def _all(done: Any) -> None:
    async for _ in done:
        pass


async def supervised(lab: Lab, kind: str, at_once: int, poison: set[str], *, kills: int = 0) -> Cost:
    """Fifty runs under a supervisor that starts the program again after each death; the first `kills` come by chance."""
    desk = Desk(lab, kind, poison)
    names = [f"n{number}" for number in range(50 - len(poison))] + sorted(poison)
    random.Random(7).shuffle(names)
    healthy = set(names) - poison
    begun = asyncio.get_running_loop().time()
    seconds, deaths = 0.0, 0
    while await desk.live(names, at_once, dies_after=0.7 if deaths < kills else 0):
        deaths += 1
        assert deaths < 40, "nothing is set aside"
        if healthy <= desk.done and not seconds:
            seconds = asyncio.get_running_loop().time() - begun
    seconds = seconds or asyncio.get_running_loop().time() - begun
    assert healthy <= desk.done
    held = [deaths_of(lab, name, kind) for name in sorted(healthy)]
    aside = [name for name in names if set_aside(lab, name)]
    return Cost(deaths, held, seconds, aside)


def deaths_of(lab: Lab, run: str, kind: str) -> int:
    if kind == "run":
        return max(claim.number for claim in lab.of(run, r.Claimed)) - 1
    return sum(1 for end in lab.of(run, r.AttemptEnded) if end.end.died)


def set_aside(lab: Lab, run: str) -> bool:
    stopped = any(one.reason == "quarantined" for one in lab.of(run, r.RunStoppedRecord))
    return stopped or any(
        one.why.endswith("processes died during an attempt of it") for one in lab.of(run, r.OperationParked)
    )


@pytest.mark.parametrize("kind", ["operation", "run"])
@pytest.mark.parametrize(
    ("poison", "at_once", "held", "seconds"),
    [
        ({"p"}, 1, 0, 54),
        ({"p"}, 8, 30, 14),
        ({"p"}, 20, 60, 12),
        ({"p"}, 50, 90, 25),
        ({"p", "q"}, 1, 0, 57),
        ({"p", "q"}, 8, 55, 19),
        ({"p", "q"}, 20, 85, 16),
        ({"p", "q"}, 50, 95, 26),
    ],
)
@virtual
async def test_poison_costs_the_healthy_ones_beside_it_few_claims_and_little_time(
    lab: Lab, kind: str, poison: set[str], at_once: int, held: int, seconds: float
):
    """`held` is the sum over all healthy ones. If only the last chance went alone, each bound above 1 would be broken.

    The figures of both are in the decision on narrowing.
    """
    cost = await supervised(lab, kind, at_once, poison)
    assert sorted(cost.set_aside) == sorted(poison)
    assert 5 <= cost.deaths <= 5 * len(poison)
    assert sum(cost.held_against) <= held, cost
    assert cost.seconds <= seconds, cost


@pytest.mark.parametrize("kind", ["operation", "run"])
@pytest.mark.parametrize(("at_once", "seconds"), [(8, 9), (20, 6), (50, 16)])
@virtual
async def test_processes_that_are_killed_by_chance_set_nothing_aside_and_go_on_fast(
    lab: Lab, kind: str, at_once: int, seconds: float
):
    cost = await supervised(lab, kind, at_once, set(), kills=2)
    assert (cost.deaths, cost.set_aside) == (2, [])
    assert cost.seconds <= seconds, cost


@virtual
async def test_suspects_that_wait_for_each_other_keep_no_other_run_waiting(lab: Lab):
    """Forty runs whose first step takes an hour are found after two deaths; nine of them may go at once."""

    @agent(run_id="{name}")
    async def thinks(run: Run, name: str) -> str:
        return await run.decide(think, name)

    async def think(name: str) -> str:
        await lab.pass_time(hours=1)
        return name

    @agent(run_id="{name}")
    async def sleeps(run: Run, name: str) -> str:
        await run.sleep(timedelta(minutes=2))
        return name

    async with lab.app(thinks, sleeps) as app:
        app.start(sleeps, "later")
        await lab.pass_time(minutes=1)
    for _ in range(2):
        app = lab.make(thinks)
        await app.open()
        for number in range(40):
            app.start(thinks, f"n{number}")
        await lab.pass_time(seconds=5)
        await lab.bury(app, lab.processes[-1])
    async with lab.app(thinks, sleeps, recover=True):
        await lab.pass_time(minutes=4)
        assert lab.of("later", r.RunCompleted)
        last = [lab.of(f"n{number}", r.Claimed)[-1].number for number in range(40)]
        assert 8 <= last.count(3) <= 9, "those that died twice go nine at once"


@virtual
async def test_a_run_that_kills_each_process_after_a_step_is_set_aside_and_no_healthy_one(lab: Lab):
    over = asyncio.get_running_loop().create_future()

    @tool(idempotency=Key.forever(stores="all"))
    async def call(seconds: float, number: int) -> str:
        assert current_operation().key
        await asyncio.sleep(seconds)
        return "done"

    @agent(run_id="{name}")
    async def poison(run: Run, name: str) -> None:
        asyncio.get_running_loop().call_later(0.3, lambda: over.done() or over.set_result(None))
        for page in range(1_000):
            await call(0.02, page)

    @agent(run_id="healthy-{number}")
    async def healthy(run: Run, number: int) -> str:
        for part in range(3):
            await call(1, part)
        return "ok"

    deaths = 0
    while deaths < 25:
        over = asyncio.get_running_loop().create_future()
        app = lab.make(poison, healthy, recover=True, recover_every_ms=500)
        await app.open()
        if not deaths:
            await app.submit(poison, "poison")
            for number in range(10):
                await app.submit(healthy, number)
        await asyncio.wait({over}, timeout=60)
        if not over.done():
            await app.aclose()
            break
        await lab.bury(app, lab.processes[-1])
        deaths += 1
    assert [one.reason for one in lab.of("poison", r.RunStoppedRecord)] == ["quarantined"]
    assert deaths <= Settings().claims_allowed + 1, "one death came in the second attempt of an operation"
    assert all(lab.of(f"healthy-{number}", r.RunCompleted) for number in range(10))


@virtual
async def test_a_run_on_its_last_chance_is_not_set_aside_for_the_deaths_of_its_operation(lab: Lab):
    """Three processes die of its code, and further ones in one call: a person is asked about the call."""
    in_call = False

    @tool(idempotency=Key.forever(stores="all"))
    async def burn(name: str) -> str:
        assert current_operation().key
        await lab.pass_time(hours=1)
        return name

    async def think(name: str) -> str:
        await lab.pass_time(hours=0 if in_call else 1)
        return name

    @agent(run_id="{name}", tools=[burn])
    async def work(run: Run, name: str) -> str:
        return await burn(await run.decide(think, name))

    for deaths in range(14):  # on its last chance it is suspended for each pause, so every second one makes an attempt
        in_call = deaths >= 3
        app, process = lab.make(work), lab.processes[-1]
        await app.open()
        app.start(work, "n")
        await lab.pass_time(seconds=5)
        await lab.bury(app, process)
        await lab.pass_time(minutes=1)
    assert not lab.of("n", r.RunStoppedRecord)
    (parked,) = lab.of("n", r.OperationParked)
    assert parked.why == "5 processes died during an attempt of it"


@virtual
async def test_a_process_that_was_told_to_end_and_is_killed_meanwhile_is_no_death_of_its_run(lab: Lab):
    @tool(idempotency=Key.forever(stores="all"))
    async def scan(name: str) -> str:
        assert current_operation().key
        await lab.pass_time(hours=1)
        return name

    @agent(run_id="{name}")
    async def desk(run: Run, name: str) -> str:
        return await scan(name)

    for _ in range(3):
        app = lab.make(desk)
        await app.open()
        app.start(desk, "n")
        await lab.pass_time(seconds=10)
        driving = list(app._running.values())  # pyright: ignore[reportPrivateUsage]  # what closing the app waits for
        ending = asyncio.ensure_future(app.engine.shut_down(driving))
        await lab.pass_time(seconds=1)
        assert not ending.done(), "it waits for the end of the call"
        await lab.bury(app, lab.processes[-1])
    assert [claim.number for claim in lab.of("n", r.Claimed)] == [1, 1, 1]


@pytest.mark.parametrize("paused", [0, 2, 5])
@virtual
async def test_a_process_that_is_paused_is_not_counted_as_a_death_of_its_run(lab: Lab, paused: int):
    """Four deaths are allowed, and the pauses come between them and after the last."""
    thinker, allowed = Thinker(lab), Settings().claims_allowed
    for number in range(allowed - 1):
        await thinker.taken(dies=True)
        if number < paused:
            await thinker.taken(dies=False)
    for _ in range(paused - allowed + 1):
        await thinker.taken(dies=False)
    thinker.quick = True
    async with lab.app(thinker.agent) as app:
        assert await app.run(thinker.agent, "n") == "n"
    assert lab.of("n", r.Claimed)[-1].number == allowed


@pytest.mark.parametrize("lived_on", [False, True])
@virtual
async def test_a_process_that_lived_on_without_a_run_did_not_die_of_it(lab: Lab, lived_on: bool):
    """It was paused, lost the run on its last chance to another process, went on, and died of something else."""
    thinker, allowed = Thinker(lab), Settings().claims_allowed
    for _ in range(allowed - 1):
        await thinker.taken(dies=True)
    await thinker.taken(dies=False)
    paused = lab.processes[-1]
    await thinker.taken(dies=False)  # the successor, which is seen to live to the end
    if lived_on:
        await lab.journal.beat(worker_of(lab, allowed), Settings().lease_ms)
        await lab.pass_time(minutes=1)
    paused.die()
    thinker.quick = True
    async with lab.app(thinker.agent) as app:
        if lived_on:
            assert await app.run(thinker.agent, "n") == "n"
        else:
            with pytest.raises(RunStopped, match="5 processes that drove it died or hang"):
                await app.run(thinker.agent, "n")


@pytest.mark.parametrize("kind", ["run", "operation"])
@virtual
async def test_code_of_a_run_that_was_lost_in_a_pause_has_ended_before_a_last_chance_begins(lab: Lab, kind: str):
    """It may kill the process after the pause, and beside a last chance its death would be charged to that."""
    events = list[str]()

    @tool(idempotency=Key.forever(stores="all"))
    async def call(name: str) -> str:
        assert current_operation().key
        return await think(name)

    async def think(name: str) -> str:
        events.append(f"{name} goes on")
        await lab.pass_time(hours=0 if lab.changed else 1)
        return name

    @agent(run_id="{name}", tools=[call])
    async def fragile(run: Run, name: str) -> str:
        return await (call(name) if kind == "operation" else run.decide(think, name))

    @agent(run_id="{name}")
    async def harmless(run: Run, name: str) -> None:
        await run.decide(think, name)
        try:
            await lab.pass_time(hours=1)
        finally:
            events.append(f"{name} ends")

    for _ in range(Settings().claims_allowed - 1):
        app, process = lab.make(fragile), lab.processes[-1]
        await app.open()
        app.start(fragile, "n")
        await lab.pass_time(seconds=40)
        await lab.bury(app, process)
    lab.changed = True
    async with lab.app(fragile, harmless) as app, lab.app(harmless) as other:
        app.start(harmless, "lost")
        await lab.pass_time(seconds=1)
        lab.processes[-2].awake.clear()
        await lab.pass_time(minutes=1)
        other.start(harmless, "lost")
        await lab.pass_time(seconds=1)
        lab.processes[-2].awake.set()
        assert await app.run(fragile, "n") == "n"
        assert deaths_of(lab, "n", kind) == Settings().claims_allowed - 1
        assert events[-3:] == ["lost goes on", "lost ends", "n goes on"]


def worker_of(lab: Lab, number: int) -> Worker:
    """The process that claimed run n as the `number`th."""
    claimed = [record.worker for record in lab.of("n", r.Claimed)]
    return lab.journal._workers[claimed[number - 1]][0]  # pyright: ignore[reportPrivateUsage]  # to renew its lease as it would


@virtual
async def test_a_process_that_hung_and_was_killed_is_a_death_of_its_run(lab: Lab):
    thinker, allowed = Thinker(lab), Settings().claims_allowed
    for _ in range(allowed):
        await thinker.taken(dies=False)
        lab.processes[-1].die()
    async with lab.app(thinker.agent) as app:
        with pytest.raises(RunStopped, match="5 processes that drove it died or hang"):
            await app.run(thinker.agent, "n")


@virtual
async def test_a_run_that_hangs_every_process_is_set_aside_in_the_end(lab: Lab):
    thinker, allowed = Thinker(lab), Settings().claims_allowed
    for _ in range(2 * allowed):
        await thinker.taken(dies=False)
    async with lab.app(thinker.agent) as app:
        with pytest.raises(RunStopped, match="10 processes that drove it died or hang"):
            await app.run(thinker.agent, "n")


@virtual
async def test_a_run_on_its_last_chance_runs_alone_until_its_progress_is_durable(lab: Lab):
    """On a busy disk, a death beside it would lose its progress and count against it: it would be set aside."""
    thinker, begun = Thinker(lab), list[str]()
    for _ in range(Settings().claims_allowed - 1):
        await thinker.taken(dies=True)

    @agent(run_id="{name}")
    async def other(run: Run, name: str) -> None:
        begun.append(name)

    flush, waits = lab.journal.flush, {"n": 10}

    async def slow_commit(write: Write, commit: Commit) -> None:
        await asyncio.sleep(waits.get(write.lease.run, 0))
        await commit(write)

    async def slow_flush(lease: Lease) -> None:
        await asyncio.sleep(waits.get(lease.run, 0))
        await flush(lease)

    intercept(lab.journal, Write, slow_commit)
    lab.journal.flush = slow_flush  # type: ignore[method-assign]  # a busy disk
    thinker.quick = True
    async with lab.app(thinker.agent, other) as app:
        last = app.start(thinker.agent, "n")
        await lab.pass_time(seconds=1)
        beside = app.start(other, "beside")
        await lab.pass_time(seconds=14)
        assert len(lab.of("n", r.Claimed)) == Settings().claims_allowed, "its claim is durable, and its progress is not"
        assert begun == []
        assert await last.result() == "n"
        await beside.result()
    assert lab.of("n", r.Claimed)[-1].number == Settings().claims_allowed


@virtual
async def test_a_branch_that_waits_for_another_goes_on_with_its_end_on_the_last_chance(lab: Lab):
    """The run is suspended as soon as all of it waits, and a wait for a branch that has ended would never be over."""
    thinker = Thinker(lab)

    @tool(idempotency=Key.forever(), claim="seat")
    async def book(seat: int) -> int:
        assert current_operation().key
        await lab.pass_time(seconds=0.5)
        return seat

    @agent(run_id="{name}")
    async def books(run: Run, name: str) -> list[int]:
        await run.decide(thinker.think, name)
        return await asyncio.gather(book(1), book(1))

    thinker.agent = books
    for _ in range(Settings().claims_allowed - 1):
        await thinker.taken(dies=True)
    thinker.quick = True
    async with lab.app(books) as app:
        assert await app.run(books, "n") == [1, 1]
    assert lab.of("n", r.Claimed)[-1].number == Settings().claims_allowed


@virtual
async def test_the_end_of_a_harmless_attempt_wakes_no_waiter_before_the_last(lab: Lab, monkeypatch: pytest.MonkeyPatch):
    gate, checks = IsolationGate(), [0]
    blocked = IsolationGate._blocked  # pyright: ignore[reportPrivateUsage]  # counted

    def counted(self: IsolationGate, run: str) -> bool:
        checks[0] += 1
        return blocked(self, run)

    monkeypatch.setattr(IsolationGate, "_blocked", counted)
    runs = [f"r-{number}" for number in range(100)]
    for run in runs:
        gate.enter(run)
    alone = asyncio.ensure_future(gate.wait_to_enter("poison", chances=ALONE))
    await asyncio.sleep(0)
    late = [asyncio.ensure_future(gate.wait_to_enter(f"late-{run}")) for run in runs]
    await asyncio.sleep(0)
    checks[0] = 0
    for run in runs[1:]:
        gate.exit(run)
        await asyncio.sleep(0)
    assert checks[0] == 0
    gate.exit(runs[0])
    await alone
    gate.exit("poison", chances=ALONE)
    await asyncio.gather(*late)
    assert checks[0] <= 3 * len(runs)
