"""A laboratory: one journal in memory, the processes that share it, and the world they act on, in virtual time.

@virtual
async def test_something(lab: Lab):
    async with lab.app(desk) as app:
        await app.run(desk, "ann")
    assert lab.sent == ["mail to ann"]
"""

import asyncio
import contextlib
import inspect
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Iterator
from datetime import timedelta
from typing import Any, Final

import pytest

from beforehand import Beforehand, RunSuspended
from beforehand.engine.active_run.scopes import stop_numbering
from beforehand.engine.environment import CrashPoints, Environment, NoCrash, Threads
from beforehand.engine.settings import Settings
from beforehand.journal.cells import BudgetUse, use_of
from beforehand.journal.memory import MemoryJournal
from beforehand.journal.port import Identity, Worker
from beforehand.journal.record_codec import decode
from beforehand.model import records as r
from beforehand.model.run_history import RunHistory
from beforehand.model.shared_use import Charge
from beforehand.testing.clock import (
    HeldThreads,
    SeededRng,
    VirtualClock,
    run_virtual,
    ticks_ms,
    virtual_loop,
)
from beforehand.testing.loop import DAY

DAYS: Final = {"poll_ms": 60_000, "recover_every_ms": 60_000, "lease_ms": 600_000}
"""Settings for an app that stays open for days. By default it looks more than 100,000 times a day."""


_ASYNC = frozenset(name for name, method in vars(MemoryJournal).items() if inspect.iscoroutinefunction(method))


class Died(BaseException):
    """The process of this app is gone; what is left of it in memory must not act any more."""


class Process:
    """One process's way to the shared journal. Once it is dead every call hangs for ever.

    `lag_s` is how long each answer takes: with it, others get in between. What was asked is in order.
    While it is not `awake`, as a stopped process, its calls wait, and so does what they bring.
    """

    def __init__(self, journal: MemoryJournal, worker: str) -> None:
        self.journal = journal
        self.worker = worker
        self.dead = False
        self.lag_s = 0.0
        self.awake = asyncio.Event()
        self.awake.set()

    def __getattr__(self, name: str) -> Any:
        if name not in _ASYNC:
            method = getattr(self.journal, name)
            return method if not self.dead or name == "clock" else lambda *_: None

        async def call(*args: Any, **kwargs: Any) -> Any:
            if self.dead:
                await asyncio.get_running_loop().create_future()
            await self.awake.wait()
            try:
                return await getattr(self.journal, name)(*args, **kwargs)
            finally:
                await self.awake.wait()
                if self.lag_s:
                    await asyncio.sleep(self.lag_s)
                    if self.dead:
                        await asyncio.get_running_loop().create_future()

        self.__dict__[name] = call
        return call

    async def open(self) -> Identity:
        self.journal._open = True
        return await self.journal.open()

    async def close(self) -> None:
        """The journal stays open for the other processes."""
        self.journal._settle()

    def die(self) -> None:
        """Nothing goes through any more, and everybody can prove that the process is dead."""
        self.dead = True
        self.journal.kill(self.worker)


class Lab:
    """What one test holds: `sent` is the world, as a list of the effects that landed."""

    def __init__(self) -> None:
        self.loop = virtual_loop()
        self.loop.set_exception_handler(_told)
        self.clock = VirtualClock(self.loop)
        self.journal = MemoryJournal(lambda: ticks_ms(self.loop), self.clock.wall_ms)
        self.sent: list[str] = []
        self.processes: list[Process] = []
        self.lag_s = 0.0
        self.changed = False  # a switch for agents whose code changes between two drives

    def environment(
        self, seed: int = 1, crash: CrashPoints | None = None, threads: Threads | None = None
    ) -> Environment:
        return Environment(self.clock, SeededRng(seed), threads or HeldThreads(self.loop), crash or NoCrash())

    @contextlib.asynccontextmanager
    async def app(
        self, *agents: Any, tools: Any = (), crash: CrashPoints | None = None, threads: Threads | None = None,
        recover: bool = False, reach: Any = None, policy: Any = None, telemetry: Any = (), queues: Any = None,
        prices: Any = None, **settings: int,
    ) -> AsyncGenerator[Beforehand]:  # fmt: skip
        """An app in a process of its own. Its process is `lab.processes[-1]` while it opens."""
        app = self.make(
            *agents,
            tools=tools,
            crash=crash,
            threads=threads,
            recover=recover,
            reach=reach,
            policy=policy,
            telemetry=telemetry,
            queues=queues,
            prices=prices,
            **settings,
        )
        process = self.processes[-1]
        await app.open()
        try:
            yield app
        finally:
            if not process.dead:
                await app.aclose()

    async def until_suspended(self, agent: Any, given: object) -> None:
        """Run the agent in an app of its own, which is closed once the run is suspended."""
        async with self.app(agent) as app:
            with pytest.raises(RunSuspended):
                await app.run(agent, given)

    def make(
        self, *agents: Any, tools: Any = (), crash: CrashPoints | None = None, threads: Threads | None = None,
        recover: bool = False, reach: Any = None, policy: Any = None, telemetry: Any = (), queues: Any = None,
        prices: Any = None, **settings: int,
    ) -> Beforehand:  # fmt: skip
        number = len(self.processes) + 1
        process = Process(self.journal, f"w{number}")
        process.lag_s = self.lag_s
        settings.setdefault("poll_ms", 5000)
        self.processes.append(process)
        return Beforehand(
            process, agents=agents, tools=tools, settings=Settings(**settings), recover=recover, reach=reach,
            policy=policy, telemetry=telemetry, queues=queues, prices=prices,
            environment=self.environment(number, crash, threads), worker=lambda _: Worker(process.worker, machine="test"),
        )  # fmt: skip

    async def bury(self, app: Beforehand, process: Process) -> None:
        """The process of `app` dies now: what it holds in memory is dropped without a last word."""
        process.die()
        await app.engine.housekeeping.close()
        mine = asyncio.current_task()
        while loose := [task for task in asyncio.all_tasks() if task is not mine and not task.done()]:
            for task in loose:
                task.cancel()
            await asyncio.wait(loose, timeout=1)  # a boundary that is cancelled asks the journal first: cancelled again
        stop_numbering(self.loop)
        app._running.clear()

    def records(self, run: str) -> list[r.Record]:
        """What the journal holds of one run, what still rides included."""
        self.journal._settle()
        found = self.journal._runs.get(run)
        return [decode(row.body) for row in found.rows] if found else []

    def of(self, run: str, kind: type[Any]) -> list[Any]:
        return [record for record in self.records(run) if isinstance(record, kind)]

    def uses(self) -> list[BudgetUse]:
        """The counters of all shared budgets."""
        places = ((name.rpartition(" "), stored) for name, stored in self.journal._cells["counter"].items())
        return [
            use_of(budget, period, *counter) for (budget, _, period), stored in places for counter in stored.items()
        ]

    def durable(self, run: str) -> list[r.Record]:
        """What would be left of one run if the process died now."""
        return [decode(row.body) for row in self.journal._runs[run].rows]

    def everything(self) -> bytes:
        """Every byte that the journal stores."""
        self.journal._settle()
        rows = [row.body for found in self.journal._runs.values() for row in found.rows]
        listings = [repr(found.listing).encode() for found in self.journal._runs.values()]
        ledger = [entry.stream.encode() + entry.body for entry in self.journal._ledger]
        return b"\n".join(
            [
                *rows,
                *listings,
                *ledger,
                *(body for stored in self.journal._cells["hint"].values() for body in stored.values()),
            ]
        )

    def forget_what_rides(self) -> None:
        self.journal._riding.clear()

    def keep_back_what_rides(self) -> Callable[[], None]:
        """What rides is not stored before the returned function is called, as if its process were stopped."""
        riding = self.journal._riding
        self.journal._riding = []
        return lambda: self.journal._riding.extend(riding)

    async def exit(self, app: Beforehand) -> None:
        """The app closes and its process ends."""
        process = next(process for process in self.processes if process is app._journal)
        await app.aclose()
        process.die()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Let threads be heard until `condition` holds; no time passes meanwhile."""
        with self.loop.held():
            while not condition():  # noqa: ASYNC110 - a thread will make it true, and the loop has to look
                await asyncio.sleep(0)

    async def pass_time(self, **duration: float) -> None:
        await asyncio.sleep(timedelta(**duration).total_seconds())


def charges_in(run: str, records: Iterable[r.Record]) -> Iterator[Charge]:
    """The charges to shared budgets that the records of a run make, one after the other."""
    history = RunHistory(run)
    for record in records:
        yield from history.charges([record])
        history.add(record)


def _told(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """What a dead process leaves behind in memory is ignored."""
    if not isinstance(context.get("exception"), Died):
        loop.default_exception_handler(context)


def virtual(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test in virtual time, with a new laboratory as its first argument."""

    def run(**parameters: Any) -> None:
        async def main() -> None:
            await test(Lab(), **parameters)

        run_virtual(main(), limit=7 * DAY)

    signature = inspect.signature(test)
    run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
    run.__signature__ = signature.replace(parameters=list(signature.parameters.values())[1:])
    return run
