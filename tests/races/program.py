"""Agents that are paused, overtaken, timed out, suspended and terminated in the middle of a step.

A job names the agent, its input, and settings; it answers how the run stands.
"""

import asyncio
import os
import signal
import traceback
from datetime import timedelta
from pathlib import Path

import msgspec

from beforehand import (
    Beforehand,
    DidNotHappen,
    Happened,
    Key,
    Natural,
    Operation,
    Rejected,
    Run,
    RunSuspended,
    Verdict,
    agent,
    current_operation,
    tool,
)
from beforehand.engine.environment import system_environment
from beforehand.engine.settings import Settings
from beforehand.policies import Retry
from tests.crash.calls import Line, identity
from tests.crash.points import Points, WatchedJournal

SOON = Retry(attempts=6, base=timedelta(milliseconds=1), cap=timedelta(milliseconds=5))
SHORT = timedelta(milliseconds=400)
LONG = timedelta(seconds=30)
DAY = Key(ttl=timedelta(hours=24))
READS = 20  # so many reads of another branch show that a write which is not there yet is waiting
line = Line()


@tool(effect="read")
async def look(item: str) -> str:
    return await line.send("read", item, **identity())


@tool(timeout=SHORT, retry=SOON)
async def letter(to: str) -> str:
    """Fetches a token, then sends; right before sending it asks whether it still may."""
    await line.send("token", to)
    current_operation().check_send()
    found = {**identity(), "key": current_operation().marker}
    return await line.send("mail", to, **found)


@tool(timeout=SHORT, retry=SOON)
def letter_from_a_thread(to: str) -> str:
    """The same, where it cannot be cancelled."""
    line.send_and_block("token", to)
    current_operation().check_send()
    found = {**identity(), "key": current_operation().marker}
    return line.send_and_block("mail", to, **found)


@tool(timeout=SHORT, retry=SOON)
def letter_past_the_check(to: str) -> str:
    """Between the last check and the first byte there is a gap, and here a test can stop the process in it."""
    current_operation().check_send()
    line.send_and_block("token", to)
    found = {**identity(), "key": current_operation().marker}
    return line.send_and_block("mail", to, **found)


@tool(idempotency=DAY, timeout=SHORT, retry=SOON)
def charge_past_the_check(order: str) -> str:
    """The same, to a system that honours our key."""
    current_operation().check_send()
    line.send_and_block("token", order)
    return line.send_and_block("keyed", order, **identity(key=True))


@letter_past_the_check.verify(settle_window=timedelta(milliseconds=50), every=timedelta(milliseconds=20))
@letter.verify(settle_window=timedelta(milliseconds=50), every=timedelta(milliseconds=20))
@letter_from_a_thread.verify(settle_window=timedelta(milliseconds=50), every=timedelta(milliseconds=20))
async def in_sent_mail(operation: Operation[str], to: str) -> Verdict[str]:
    found = await line.send("search", to, key=operation.marker)
    return Happened(f"mail-{to}") if found else DidNotHappen()


@tool(timeout=LONG)
async def restock(sku: str) -> str:
    return await line.send("plain", sku, **identity())


@tool(idempotency=DAY, timeout=LONG, retry=SOON)
async def charge(order: str) -> str:
    return await line.send("keyed", order, **identity(key=True))


@tool(idempotency=DAY, timeout=SHORT, retry=SOON)
def slow_charge(order: str) -> str:
    """Synchronous: when its time is over its thread lives on."""
    return line.send_and_block("keyed", order, **identity(key=True))


@tool(idempotency=Natural(settle_window=timedelta(milliseconds=60)), timeout=LONG, retry=SOON)
async def put(name: str, value: str) -> str:
    """Its outcome is durable before its caller is told: a replay has no reason to send it again."""
    return await line.send("natural", name, value=value, **identity())


@tool(timeout=LONG)
async def refuse(what: str) -> str:
    await line.send("refused", what)
    raise Rejected("no", code="refused")


@tool(idempotency=DAY, timeout=LONG, retry=SOON)
async def deadly(what: str) -> str:
    """Kills whatever process attempts it; a "crowd" does so when two others have made the same attempt beside it."""
    found = identity(key=True)
    await line.send("deadly", what, **found)
    if what == "crowd" and found["attempt"] <= 4:
        await line.send("await", of="keyed", count=2 * found["attempt"])
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


@agent()
async def writes(_run: Run, given: str) -> str:
    return await letter(given)


@agent()
async def writes_from_a_thread(_run: Run, given: str) -> str:
    return await letter_from_a_thread(given)


@agent()
async def writes_past_the_check(_run: Run, given: str) -> str:
    return await letter_past_the_check(given)


@agent()
async def charges_past_the_check(_run: Run, given: str) -> str:
    return await charge_past_the_check(given)


@agent()
async def stocks(_run: Run, given: str) -> str:
    return await restock(given)


@agent()
async def waits_on_a_thread(run: Run, given: str) -> list[str]:
    async def meanwhile() -> str:
        for _ in range(READS):
            last = await look("meanwhile")
        return last

    return list(await run.gather(slow_charge(given), meanwhile()))


async def _goes_on(run: Run, why: str) -> list[str]:
    """Reads go on while a write is in flight; the next write has to wait for it."""

    async def meanwhile() -> str:
        for _ in range(READS):
            last = await look("meanwhile")
        return last

    done, _ = await run.gather(put("next", "done"), meanwhile())
    return [why, done]


@agent()
async def limits_itself(run: Run, given: str) -> list[str]:
    try:
        async with asyncio.timeout(0.15):
            return [await charge(given)]
    except TimeoutError:
        return await _goes_on(run, "timed out")


@agent()
async def is_limited(run: Run, given: str) -> list[str]:
    try:
        async with run.timeout(timedelta(milliseconds=150)):
            return [await charge(given)]
    except TimeoutError:
        return await _goes_on(run, "timed out")


@agent()
async def loses_a_sibling(run: Run, given: str) -> list[str]:
    try:
        async with run.task_group() as group:
            group.create_task(charge(given))
            group.create_task(refuse(given))
    except* Rejected:
        pass  # the refusal is the point: it cancels the sibling in mid-flight
    return await _goes_on(run, "a sibling failed")


@agent()
async def cleans_up(run: Run, given: str) -> str:
    try:
        await look(given)
        await run.wait_for("go")
        return await charge(given)
    finally:
        await charge("cleanup")


@agent()
async def cleans_up_after_a_write(_run: Run, given: str) -> str:
    try:
        return await restock(given)
    finally:
        await charge("cleanup")


@agent(run_id="{given}")
async def may_be_poisoned(_run: Run, given: str) -> str:
    return await deadly(given) if given.startswith(("poison", "crowd")) else await charge(given)


@agent(run_id="{given}")
async def dies_before_any_step(_run: Run, given: str) -> str:
    if given.startswith("poison"):
        os.kill(os.getpid(), signal.SIGKILL)
    return await charge(given)


AGENTS = {
    found.name: found
    for found in (
        writes, writes_from_a_thread, writes_past_the_check, charges_past_the_check, stocks, waits_on_a_thread, limits_itself, is_limited, loses_a_sibling, cleans_up,
        cleans_up_after_a_write, may_be_poisoned, dies_before_any_step,
    )
}  # fmt: skip


_WATCHING = set()  # asyncio keeps no task alive by itself


async def main(job):
    """A run (or several, with `inputs`) as an application drives it, ended by SIGTERM as applications are."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asyncio.current_task().cancel)
    points = Points(job.get("kill"))
    line.connect(job["port"], job["case"], points)
    environment = msgspec.structs.replace(system_environment(), crash=points)
    settings = Settings(**{"poll_ms": 20, "margin_ms": 100, **job.get("settings", {})})
    code = AGENTS[job["agent"]]
    try:
        async with Beforehand(
            WatchedJournal(job["journal"], points), agents=[code], environment=environment, settings=settings
        ) as app:
            _WATCHING.add(asyncio.create_task(_say_when_sealed(app.engine, Path(job["out"]).with_suffix(".sealed"))))
            if "inputs" in job:
                done = app.map(code, job["inputs"], concurrency=job.get("concurrency", 1))
                return {one.run: [one.status, one.result] async for one in done}
            return await _answer(app, code, job)
    except asyncio.CancelledError:
        return {"status": "terminated"}


async def _say_when_sealed(engine, sign):
    """Leave a sign as soon as an instance is sealed: from then on its code can do nothing more."""
    while not any(instance.sealed for instance in engine.active_runs.values()):  # noqa: ASYNC110 - the engine has no event for it
        await asyncio.sleep(0.001)
    sign.touch()


async def _answer(app, code, job):
    try:
        return {"status": "completed", "result": await app.run(code, job["input"], run_id="run")}
    except RunSuspended as error:
        return {"status": "suspended", "why": str(error)}
    except Exception as error:  # noqa: BLE001  # whatever it is, the test shows it
        return {"status": "error", "why": "".join(traceback.format_exception(error))}
