"""Runs the sides and counts, at the services, the fate of each effect that a customer asked for.

It starts the witness and the workers, kills workers when the witness says so, and restarts them. Each side has a few
worker processes, and each worker has its own customers, in file order and one at a time. So the faults that a worker
meets do not depend on how fast the others are, and a seed repeats.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeVar, get_args

import httpx2
import msgspec

from beforehand.demo.scenario import LANES, SERVICES, Spot, lane_of
from beforehand.demo.shop import ENVIRONMENT, Addresses
from beforehand.demo.witness import Dead, KillNow, Ready, Told, WitnessedEffect
from beforehand.demo.world import ServiceEffect

T = TypeVar("T")
TIME_LIMIT_S: Final = 120.0
PYTHON: Final = (sys.executable, "-P", "-m")  # -P: a file in the viewer's directory shadows nothing


class Handled(msgspec.Struct, frozen=True, tag="handled"):
    """A worker has finished a request; one line on its standard output."""

    request: int


class Progress(msgspec.Struct, frozen=True):
    """`Handled`, with the side it belongs to."""

    side: str
    request: int


News = WitnessedEffect | KillNow | Progress


class Side(Protocol):
    """One of the two ways to run the desk."""

    @property
    def name(self) -> str: ...

    def command(self, lane: int) -> Sequence[str]:
        """The arguments after `python -m` that start, or restart, the worker of a lane."""
        ...

    async def report(self) -> Mapping[Spot, Reported]:
        """The side's report at the end, after its workers have finished."""
        ...


@dataclass(frozen=True)
class Result:
    """The effects of a side as the witness saw them, its report, and the number of times its workers were killed."""

    effects: Counter[Spot]
    report: Mapping[Spot, Reported]
    kills: int


class DemoError(Exception):
    """An error of the demo itself: the message says which of its processes failed, and where its output is."""


@dataclass
class Contest:
    """All processes of one demo. `folder` holds their files; `watch` receives the news."""

    seed: int
    requests: Path
    folder: Path
    sides: Sequence[Side]
    watch: Callable[[News], None]
    _workers: dict[tuple[str, int], asyncio.Task[Process]] = field(
        default_factory=dict[tuple[str, int], asyncio.Task[Process]]
    )
    _shot: set[Process] = field(default_factory=set[Process])
    _kills: Counter[str] = field(default_factory=Counter[str])

    async def run(self) -> dict[str, Result]:
        """Run all sides at the same time. Raises `DemoError`."""
        try:
            async with asyncio.timeout(TIME_LIMIT_S), self._witness() as (witness, addresses):
                return await self._play_all(witness, addresses)
        except TimeoutError:
            raise DemoError(f"not through after {TIME_LIMIT_S:.0f} s; see the logs in {self.folder}") from None

    async def _play_all(self, witness: Process, addresses: Mapping[str, Addresses]) -> dict[str, Result]:
        listening = asyncio.create_task(self._listen(witness))
        playing = asyncio.create_task(_together([self._play(side, addresses[side.name]) for side in self.sides]))
        try:
            await asyncio.wait({listening, playing}, return_when=asyncio.FIRST_COMPLETED)
            if not playing.done():
                await listening  # raises: it never ends by itself
            return {side.name: result for side, result in zip(self.sides, await playing, strict=True)}
        finally:
            await _cancelled(listening, playing)

    async def _play(self, side: Side, addresses: Addresses) -> Result:
        self._addresses(side).parent.mkdir(parents=True, exist_ok=True)
        self._addresses(side).write_bytes(msgspec.json.encode(addresses))
        await _together([self._work(side, lane) for lane in range(LANES)])
        async with httpx2.AsyncClient(trust_env=False) as client:
            answer = await client.get(f"{addresses.http}/effects", timeout=TIME_LIMIT_S)
        effects = msgspec.json.decode(answer.content, type=list[ServiceEffect])
        counted = Counter[Spot]((effect.service, effect.request) for effect in effects)
        return Result(counted, await side.report(), self._kills[side.name])

    async def _work(self, side: Side, lane: int) -> None:
        """Start the worker of a lane, and restart it after each kill, until it has finished."""
        while True:
            starting = self._start(f"{side.name}-{lane}", side.command(lane), self._addresses(side))
            # Noted before it starts: it may have sent its first request before this process hears that it has begun.
            self._workers[side.name, lane] = asyncio.create_task(starting)
            worker = await self._workers[side.name, lane]
            async with _ended(worker):
                async for line in _lines(worker):
                    self.watch(Progress(side.name, msgspec.json.decode(line, type=Handled).request))
                code = await worker.wait()
            if code == 0:
                return
            if worker not in self._shot:
                raise DemoError(f"worker {side.name}-{lane} ended with status {code}; see the logs in {self.folder}")

    @contextlib.asynccontextmanager
    async def _witness(self) -> AsyncGenerator[tuple[Process, dict[str, Addresses]]]:
        sides = [option for side in self.sides for option in ("--side", side.name)]
        command = ("beforehand.demo.witness", "--seed", str(self.seed), "--requests", str(self.requests), *sides)
        witness = await self._start("witness", command)
        async with _ended(witness):
            ready = await anext(_lines(witness), None)
            if ready is None:
                raise DemoError(f"the services did not start; see the logs in {self.folder}")
            yield witness, msgspec.json.decode(ready, type=Ready).addresses

    async def _listen(self, witness: Process) -> None:
        async for line in _lines(witness):
            news = msgspec.json.decode(line, type=Told)
            if isinstance(news, KillNow):
                await self._kill(news, witness)
            if not isinstance(news, Ready):
                self.watch(news)
        raise DemoError(f"the services ended early; see the logs in {self.folder}")

    async def _kill(self, order: KillNow, witness: Process) -> None:
        """Kill the worker that handles this request, and notify the witness when it is gone."""
        worker = await self._workers[order.side, lane_of(order.request)]
        if worker.returncode is None:
            self._shot.add(worker)
            self._kills[order.side] += 1
            worker.send_signal(signal.SIGKILL)
            await worker.wait()
        assert witness.stdin is not None
        witness.stdin.write(msgspec.json.encode(Dead(order.side, order.event)) + b"\n")

    async def _start(self, name: str, command: Sequence[str], addresses: Path | None = None) -> Process:
        starting = asyncio.create_task(self._spawn(name, command, addresses))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            async with _ended(await starting):  # without this, a half-started process would have no owner
                raise

    async def _spawn(self, name: str, command: Sequence[str], addresses: Path | None) -> Process:
        with (self.folder / f"{name}.log").open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *PYTHON,
                *command,
                stdin=DEVNULL if addresses else PIPE,
                stdout=PIPE,
                stderr=log,
                env=os.environ | ({ENVIRONMENT: str(addresses)} if addresses else {}),
                start_new_session=True,  # only this process handles Ctrl-C
            )

    def _addresses(self, side: Side) -> Path:
        return self.folder / side.name / "services.json"


async def _together(work: Sequence[Coroutine[None, None, T]]) -> list[T]:
    """Run all at once; the first error ends the rest, and is raised when the rest has ended.

    Unlike `asyncio.gather` it cancels no task twice, so that each has the time to end its process.
    """
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one) for one in work]
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return [task.result() for task in tasks]


async def _cancelled(*tasks: asyncio.Task[Any]) -> None:
    """Cancel unfinished tasks, and wait until all have ended; the caller raises the error that matters."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@contextlib.asynccontextmanager
async def _ended(process: Process) -> AsyncGenerator[None]:
    """End the process at the end of the block."""
    try:
        yield
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()  # waits until it has ended and its pipes are closed


async def _lines(process: Process) -> AsyncGenerator[bytes]:
    assert process.stdout is not None
    async for line in process.stdout:
        yield line


# --- the count: what the witness saw, compared with what a side finally reports --------------------------------------


Reported = Literal["done", "failed", "waiting"]
"""A side's final statement about an effect; an effect without a statement is not in its report."""

Fate = Literal["once", "twice", "never", "waiting", "refused"]


class Counts(msgspec.Struct, frozen=True):
    """One side's row of the table: `requested = once + twice + never + waiting + refused`.

    twice: it happened more than once, whatever else is true. waiting: a person is asked. once: it
    happened once. refused: it did not happen, and the side reports that it failed. never: it did not
    happen, and the side does not say so. Apart from these, misreported: not waiting, and the side says done
    where nothing happened, or failed or nothing where something did.
    """

    requested: int
    once: int
    twice: int
    never: int
    waiting: int
    refused: int
    misreported: int


def count(requests: Iterable[int], effects: Counter[Spot], report: Mapping[Spot, Reported]) -> Counts:
    wanted: list[Spot] = [(service, request) for request in requests for service in SERVICES]
    fates = Counter(fate(effects[one], report.get(one)) for one in wanted)
    return Counts(
        requested=len(wanted),
        **{one: fates[one] for one in get_args(Fate)},
        misreported=sum(misreported(effects[one], report.get(one)) for one in wanted),
    )


def refunded_twice(prices: Mapping[int, int], effects: Counter[Spot]) -> int:
    """The cents that customers received beyond their refund. `prices` has the refund due for each request."""
    return sum(cents * max(0, effects["payments", request] - 1) for request, cents in prices.items())


def fate(times: int, reported: Reported | None) -> Fate:
    """The column in which one effect is counted. The first line that fits decides."""
    if times > 1:
        return "twice"
    if reported == "waiting":
        return "waiting"
    if times == 1:
        return "once"
    return "refused" if reported == "failed" else "never"


def misreported(times: int, reported: Reported | None) -> bool:
    """True if the final report differs from the service. An effect that waits for a person claims nothing."""
    if reported == "waiting":
        return False
    return (reported == "done") != (times > 0)
