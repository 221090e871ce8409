"""The virtual loop: when time jumps, what works outside of it, and what is left of a dead process."""

import asyncio
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta

import pytest

from beforehand import Run, agent
from beforehand.engine.environment import DaemonThreads
from beforehand.errors import JournalUnavailable, UsageError
from beforehand.journal.port import Journal
from beforehand.testing import VirtualLoop, run_virtual
from beforehand.testing.clock import HeldThreads, virtual_loop
from beforehand.testing.loop import Actor, Died, Stuck
from beforehand.testing.world.outside import Outside
from beforehand.testing.world.stage import Before, InMemory, Stage, Task

WORK_S = 0.05


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    for end in (ours, theirs):
        end.setblocking(False)
    yield ours, theirs
    ours.close()
    theirs.close()


def work() -> None:
    time.sleep(WORK_S)


def test_the_clock_stops_while_a_thread_works() -> None:
    rang: list[str] = []

    async def main() -> float:
        loop = virtual_loop()
        loop.call_later(0.001, rang.append, "early")
        await HeldThreads(loop).call(work)
        return loop.time()

    assert (run_virtual(main()), rang) == (0, [])


def test_time_jumps_while_a_thread_only_waits() -> None:
    async def main() -> float:
        loop = virtual_loop()
        rang = asyncio.Event()
        loop.call_later(60, rang.set)

        def waits() -> None:
            with loop.passing():
                asyncio.run_coroutine_threadsafe(rang.wait(), loop).result(timeout=10)

        await HeldThreads(loop).call(waits)
        return loop.time()

    assert run_virtual(main()) == 60


def test_the_clock_may_run_with_the_real_time_while_a_thread_works() -> None:
    rang: list[str] = []
    loop = VirtualLoop(outside="runs")

    async def main() -> float:
        loop.call_later(WORK_S / 5, rang.append, "soon")
        loop.call_later(3600, rang.append, "late")
        with loop.held():
            await DaemonThreads().call(work)
        return loop.time()

    worked_s = loop.simulate(main())
    assert worked_s is not None
    assert WORK_S / 2 < worked_s < 3600
    assert rang == ["soon"]


@pytest.mark.parametrize("what", ["a timer", "a socket"])
def test_callbacks_that_never_pause_starve_nobody(what: str, pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair

    async def main() -> str:
        loop = asyncio.get_running_loop()
        heard: list[str] = []
        if what == "a timer":
            loop.call_later(0, heard.append, what)
        else:
            loop.add_reader(ours, heard.append, what)
            theirs.send(b"x")
        while not heard:  # noqa: ASYNC110 - an event would let the loop rest
            await asyncio.sleep(0)
        loop.remove_reader(ours)
        return heard[0]

    assert run_virtual(main()) == what


def test_the_end_of_the_allowed_time_is_an_error() -> None:
    with pytest.raises(Stuck, match="1:00:00 of virtual time passed"):
        run_virtual(asyncio.sleep(3601), limit=timedelta(hours=1))


def test_a_loop_without_an_outside_is_stuck_where_nothing_is_scheduled() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Stuck, match="nothing is scheduled"):
        VirtualLoop(outside="none").simulate(main())


@pytest.mark.parametrize(
    "reach",
    [
        lambda loop, end: loop.create_connection(asyncio.Protocol, "127.0.0.1", 9),
        lambda loop, end: loop.sock_connect(end, ("127.0.0.1", 9)),
        lambda loop, end: loop.sock_recv(end, 1),
    ],
)
def test_a_loop_without_an_outside_refuses_sockets(
    reach: Callable[..., object], pair: tuple[socket.socket, socket.socket]
) -> None:
    loop = VirtualLoop(outside="none")

    async def main() -> None:
        await reach(loop, pair[0])

    with pytest.raises(UsageError, match="no network for async clients"):
        loop.simulate(main())


def test_a_dead_process_holds_no_time_and_its_sockets_wake_nobody(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    loop = VirtualLoop(outside="runs")
    heard: list[str] = []

    async def lives() -> None:
        loop.add_reader(ours, heard.append, "heard")
        with loop.held():
            await asyncio.Event().wait()

    async def main() -> float:
        process = loop.spawn("worker", lives)
        await asyncio.sleep(0)
        process.die()
        theirs.send(b"x")
        await asyncio.sleep(3600)
        return loop.time()

    began = time.monotonic()
    assert loop.simulate(main()) == 3600
    assert time.monotonic() - began < 60
    assert heard == []


def test_cleanup_code_of_a_dead_process_runs_when_it_is_buried() -> None:
    loop = VirtualLoop(outside="none")
    lock = asyncio.Lock()

    async def lives() -> None:
        async with lock:
            await asyncio.Event().wait()

    async def main() -> list[bool]:
        process = loop.spawn("worker", lives)
        await asyncio.sleep(1)
        process.die()
        await asyncio.sleep(1)
        dead = lock.locked()
        loop.bury(process)
        return [dead, lock.locked()]

    assert loop.simulate(main()) == [True, False]


def test_a_death_is_no_accident() -> None:
    told: list[object] = []
    loop = VirtualLoop(outside="none")
    loop.set_exception_handler(lambda _, context: told.append(context["exception"]))

    def fails(error: BaseException) -> None:
        raise error

    accident = ValueError("a bug")

    async def main() -> None:
        loop.call_soon(fails, Died())
        loop.call_soon(fails, accident)
        await asyncio.sleep(1)

    loop.simulate(main())
    assert told == [accident]


def test_a_task_that_closes_a_generator_is_closed_at_the_end() -> None:
    async def numbers() -> AsyncIterator[int]:
        yield 1

    async def main() -> None:
        generator = numbers()
        await anext(generator)
        asyncio.get_running_loop().create_task(generator.aclose())  # as asyncio does with one that was collected

    loop = VirtualLoop(outside="none")
    loop.simulate(main())
    assert loop.is_closed()


def test_ctrl_c_waits_for_the_end_of_a_step_and_a_second_one_does_not() -> None:
    reached: list[str] = []

    async def main(times: int) -> None:
        for _ in range(times):
            signal.raise_signal(signal.SIGINT)
        reached.append(f"the end of the step after {times}")
        await asyncio.sleep(0)
        reached.append("the next step")

    for times in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            VirtualLoop().simulate(main(times))
    assert reached == ["the end of the step after 1"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@agent
async def idle(run: Run, _: str) -> None:
    """Does nothing."""


class NoDisk(InMemory):
    """Fails before a process begins to drive."""

    def disk(self, actor: Actor) -> Journal:
        raise JournalUnavailable(f"no disk for {actor.name}", next_step="mount it")


def test_a_process_that_cannot_begin_ends_the_stage() -> None:
    with pytest.raises(JournalUnavailable, match="no disk for worker"):
        Stage(Task(idle, ""), Outside(), (), NoDisk, Before()).perform()
