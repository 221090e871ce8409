"""Drawn agent code: branches, time limits, `finally`, errors, deaths of the process. A replay does what the run did.

The code is a tree of statements, which a seed draws. It runs once or is killed on the way, and is then replayed twice,
the second time hours later. Each time it must tell the same, and no mail is sent twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Iterable
from datetime import timedelta
from typing import Final, TypeAlias

import pytest

from beforehand import Key, Run, agent, current_operation, tool
from beforehand.errors import RunSuspended
from beforehand.testing.clock import run_virtual
from tests.unit.engine.lab import Lab

Statement: TypeAlias = "tuple[str, float, tuple[Statement, ...], tuple[Statement, ...]]"
"""What it does, for how many seconds, the statements in it, and those on its way out or after an error."""

SIMPLE: Final = ("mail", "mail", "mail", "sleep", "read", "decide", "now", "fail")
COMPOUND: Final = (
    "gather", "gather", "group", "limit", "limit", "block", "block", "finally", "finally", "cancelled", "caught",
)  # fmt: skip
SECONDS: Final = (0, 0.5, 1, 2, 2.995, 3, 5, 20)
LIMITS: Final = (0.5, 1, 3, 3, 10)
DEEPEST: Final = 4
END: Final = "end"


class Wrong(Exception):
    """An error of the drawn code."""


def drawn(chance: random.Random, depth: int = 0) -> Statement:
    kind = chance.choice(SIMPLE + COMPOUND if depth < DEEPEST else SIMPLE)
    if kind in SIMPLE:
        return kind, chance.choice(SECONDS), (), ()
    least = 2 if kind in {"gather", "group", "block"} else 1
    inside = tuple(drawn(chance, depth + 1) for _ in range(chance.choice((least, least, least + 1))))
    after = (drawn(chance, depth + 1),) if kind in {"finally", "cancelled", "caught"} else ()
    return kind, chance.choice(LIMITS), inside, after


class DrawnCode:
    """The code, and what each of its executions has told."""

    def __init__(self, lab: Lab, statement: Statement) -> None:
        self.told: Final[list[list[str]]] = []
        sent: set[str] = set()

        @tool(idempotency=Key.forever(stores="all"))
        async def mail(text: str, takes: float) -> str:
            key = current_operation().key
            await asyncio.sleep(takes)
            if key not in sent:  # as the service would
                sent.add(key)
                lab.sent.append(text)
            return text

        @tool(effect="read")
        async def look(text: str, takes: float) -> str:
            await asyncio.sleep(takes)
            return text

        @agent(run_id="r-{name}", tools=[mail, look])
        async def desk(run: Run, name: str) -> str:
            told: list[str] = []
            self.told.append(told)
            try:
                await self._do(run, statement, told, "x")
            except (Wrong, TimeoutError, ExceptionGroup) as error:
                told.append(f"raised {type(error).__name__}")
            told.append(END)
            await run.sleep(timedelta(hours=5))
            return name

        self.agent: Final = desk
        self._mail: Final = mail
        self._look: Final = look

    async def _do(self, run: Run, statement: Statement, told: list[str], place: str) -> None:
        kind, seconds, inside, after = statement
        match kind:
            case "gather":
                await run.gather(*(self._do(run, one, told, f"{place}.{n}") for n, one in enumerate(inside)))
            case "group":
                async with run.task_group() as group:
                    for n, one in enumerate(inside):
                        group.create_task(self._do(run, one, told, f"{place}.{n}"))
            case "limit":
                with contextlib.suppress(TimeoutError):
                    async with run.timeout(timedelta(seconds=seconds)):
                        await self._all(run, inside, told, place)
            case "block":
                await self._all(run, inside, told, place)
            case "finally" | "cancelled" | "caught":
                await self._guarded(run, statement, told, place)
            case _:
                told.append(await self._simple(run, kind, seconds, place))
        told.append(f"{place} {kind} {len(after)}")

    async def _all(self, run: Run, statements: tuple[Statement, ...], told: list[str], place: str) -> None:
        for n, one in enumerate(statements):
            await self._do(run, one, told, f"{place}.{n}")

    async def _guarded(self, run: Run, statement: Statement, told: list[str], place: str) -> None:
        kind, _, inside, after = statement
        try:
            await self._all(run, inside, told, place)
        except asyncio.CancelledError:
            if kind != "caught":
                await self._all(run, after, told, f"{place}.out")
            raise
        except (Wrong, TimeoutError, ExceptionGroup):
            if kind == "cancelled":
                raise
            await self._all(run, after, told, f"{place}.error")

    async def _simple(self, run: Run, kind: str, seconds: float, place: str) -> str:
        async def model(text: str) -> str:
            await asyncio.sleep(seconds)
            return text

        match kind:
            case "mail":
                return await self._mail(place, seconds)
            case "read":
                return await self._look(place, seconds)
            case "decide":
                return await run.decide(model, place)
            case "sleep":
                await run.sleep(timedelta(seconds=seconds))
            case "now":
                await run.now()
            case _:
                raise Wrong(place)
        return place


async def played(seed: int) -> None:
    lab, chance = Lab(), random.Random(seed)
    lab.lag_s = chance.choice((0, 0, 0.01, 0.3))
    code = DrawnCode(lab, ("block", 0, tuple(drawn(chance) for _ in range(chance.choice((1, 2, 3)))), ()))
    for after_s in [chance.uniform(0, 12) for _ in range(chance.choice((0, 0, 1, 2)))]:
        async with lab.app(code.agent) as app:
            running = asyncio.create_task(app.run(code.agent, "ann"))
            await lab.pass_time(seconds=after_s)
            await lab.bury(app, lab.processes[-1])
            running.cancel()
            await asyncio.wait({running})
            if not running.cancelled():
                running.exception()  # of a process that is dead
    code.told.clear()
    for hours in (0, 0, 6):
        await lab.pass_time(hours=hours)
        async with lab.app(code.agent) as app:
            with contextlib.suppress(RunSuspended):
                assert await app.run(code.agent, "ann") == "ann"
    whole = [sorted(told) for told in code.told if told and told[-1] == END]
    assert len(whole) > 1
    assert all(told == whole[0] for told in whole)
    assert len(lab.sent) == len(set(lab.sent))


ONCE_WRONG: Final = (2507, 3947, 4017, 4769, 6315, 6544, 7220, 10101, 13130)
"""Branches that cancel each other about when both have answers: they told something else on replay."""


@pytest.mark.parametrize("seeds", [*(range(first, first + 20) for first in range(0, 200, 20)), ONCE_WRONG])
def test_a_replay_does_what_the_run_did(seeds: Iterable[int], caplog: pytest.LogCaptureFixture):
    caplog.set_level("CRITICAL", logger="beforehand")  # that keys go unread, processes die, and branches are left
    for seed in seeds:
        try:
            run_virtual(played(seed), limit=timedelta(days=30))
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
