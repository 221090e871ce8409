"""People are asked at once, also while other parts of the run are at work, and no wait ends in silence."""

import asyncio
from datetime import timedelta

import pytest

from beforehand import Beforehand, CannotTell, Key, Operation, Run, Verdict, agent, current_operation, tool
from beforehand.errors import OutcomeUnknown, RunSuspended
from beforehand.people.items import items
from beforehand.policies import Retry
from beforehand.testing.clock import EPOCH_MS
from tests.unit.engine.lab import Lab, virtual

MAIL = "r-ann/~1/mail#1"


def slow_desk(lab: Lab, seconds: float):
    """A mail whose answer is lost, beside a report that takes its time."""

    @tool
    async def mail(to: str) -> str:
        lab.sent.append(f"mail {to}")
        raise ConnectionResetError("the line went dead")

    @tool(idempotency=Key.forever())
    async def report(name: str) -> str:
        lab.sent.append(f"report {current_operation().key[:4]}")
        await asyncio.sleep(seconds)
        return name

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> list[str]:
        return list(await run.gather(mail(name), report(name)))

    return desk


async def asked(app: Beforehand) -> list[str]:
    return [one.item for one in await items(app.service.reader, now_ms=EPOCH_MS)]


@virtual
async def test_an_unknown_outcome_beside_a_slow_call_is_in_the_inbox_at_once(lab: Lab):
    desk = slow_desk(lab, seconds=40)
    async with lab.app(desk, grace_ms=1) as app:
        running = app.start(desk, "ann")
        await lab.pass_time(seconds=1)
        assert await asked(app) == [MAIL]
        await app.service.resolve(MAIL, "happened", by="eve", evidence="seen", result="m1")
        await lab.pass_time(seconds=2)
        assert await asked(app) == []
        assert (await app.service.row("r-ann")).status == "running"
        await lab.pass_time(seconds=40)
        assert await running.result() == ["m1", "ann"]
    assert len(lab.sent) == 2


@virtual
async def test_what_is_listed_survives_the_process(lab: Lab):
    desk = slow_desk(lab, seconds=40)
    app = lab.make(desk)
    await app.open()
    app.start(desk, "ann")
    await lab.pass_time(seconds=1)
    await lab.bury(app, lab.processes[0])
    desk = slow_desk(lab, seconds=1)
    async with lab.app(desk, recover=True) as other:
        assert (await other.service.row("r-ann")).status == "suspended"
        await lab.pass_time(minutes=10)
        await other.service.resolve(MAIL, "happened", by="eve", evidence="seen", result="m1")
        assert await other.run(desk, "ann") == ["m1", "ann"]
    assert [one.split()[0] for one in lab.sent].count("mail") == 1


def twice_desk(lab: Lab, *, on_unknown: str = "suspend"):
    """Two calls at once under one business key; the answer of the first is lost."""

    @tool(claim="order", on_unknown=on_unknown)
    async def ship(order: str) -> str:
        lab.sent.append(order)
        raise ConnectionResetError("the line went dead")

    return ship


@virtual
async def test_a_run_whose_call_waits_for_an_unknown_one_of_its_own_is_suspended(lab: Lab):
    ship = twice_desk(lab)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> list[str]:
        return list(await run.gather(ship("17"), ship("17")))

    async with lab.app(desk, claim_wait_ms=60_000) as app:
        began = lab.loop.time()
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        assert lab.loop.time() - began < 5, "and not once the wait for the key was over"
        (item,) = await asked(app)
        await lab.pass_time(hours=1)
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        assert await asked(app) == [item], "the second call asks nothing: the first one is asked about"
        await app.service.resolve(item, "happened", by="eve", evidence="seen", result="done")
        assert await app.run(desk, "ann") == ["done", "done"]
    assert lab.sent == ["17"]


@virtual
async def test_an_unknown_outcome_that_the_code_was_told_of_is_asked_about(lab: Lab):
    ship = twice_desk(lab, on_unknown="raise")

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        with pytest.raises(OutcomeUnknown):
            await ship("17")
        return await ship("17")

    async with lab.app(desk, claim_wait_ms=60_000) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        assert await asked(app) == ["r-ann/ship#1"]
    assert lab.sent == ["17"]


@virtual
async def test_a_question_stays_listed_while_the_world_is_read_back(lab: Lab):
    @tool(retry=Retry(attempts=1))
    async def mail(to: str) -> str:
        raise ConnectionResetError("the line went dead")

    @mail.verify(settle_window=timedelta(seconds=1), every=timedelta(seconds=1), deadline=timedelta(seconds=3))
    async def look(operation: Operation[str], to: str) -> Verdict[str]:
        lab.sent.append("look")
        await asyncio.sleep(2)
        return CannotTell("the mailbox does not say")

    @tool(idempotency=Key.forever(), timeout=timedelta(hours=1))
    async def report(name: str) -> str:
        assert current_operation().key
        await asyncio.sleep(600)
        return name

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> list[str]:
        return list(await run.gather(mail(name), report(name)))

    async with lab.app(desk, slow_verify_ms=5_000, grace_ms=1) as app:
        app.start(desk, "ann")
        while not await asked(app):
            await lab.pass_time(seconds=1)
        looks = len(lab.sent)
        for _ in range(200):
            assert await asked(app) == [MAIL]
            await lab.pass_time(seconds=0.3)
        assert len(lab.sent) > looks, "it is read back meanwhile"


@virtual
async def test_a_question_stays_listed_while_the_code_comes_back_to_it(lab: Lab):
    @tool(idempotency=Key.forever(), timeout=timedelta(hours=1))
    async def report(name: str) -> str:
        assert current_operation().key
        await asyncio.sleep(600)
        return name

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> list[object]:
        await asyncio.sleep(5)  # the code takes its time to come to its question
        return list(await run.gather(run.ask("Which one?", choices=("a", "b")), report(name)))

    app = lab.make(desk)
    await app.open()
    app.start(desk, "ann")
    await lab.pass_time(seconds=10)
    (item,) = await asked(app)
    await lab.bury(app, lab.processes[0])
    async with lab.app(desk, grace_ms=1) as other:
        other.start(desk, "ann")
        for _ in range(100):
            assert await asked(other) == [item]
            await lab.pass_time(seconds=0.1)
