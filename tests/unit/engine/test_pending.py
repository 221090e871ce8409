"""What is pending: looked for meanwhile, told to a model at once, and not repeated."""

import itertools
from datetime import timedelta

import pytest

from beforehand import (
    CannotTell,
    DidNotHappen,
    Happened,
    Key,
    Once,
    Operation,
    Run,
    Verdict,
    agent,
    current_operation,
    tool,
)
from beforehand.engine.deferred import ArrivedAnswer
from beforehand.errors import Deferred, RunSuspended
from beforehand.model import records as r
from tests.unit.engine.lab import Lab, virtual

DAY = timedelta(days=1)


@virtual
async def test_it_is_looked_for_meanwhile_where_that_is_declared(lab: Lab):
    looks: list[float] = []

    @tool
    async def deploy(version: str) -> str:
        raise Deferred("queued", within=DAY, every=timedelta(minutes=30))

    @deploy.verify(settle_window=timedelta(0))
    async def deployed(operation: Operation[str]) -> Verdict[str]:
        looks.append(lab.loop.time())
        return Happened("v2 is live") if len(looks) > 4 else CannotTell()

    @agent(run_id="d-{given}", tools=[deploy])
    async def deployer(run: Run, given: str) -> str:
        return await deploy(given)

    async with lab.app(deployer) as app:
        for _ in range(5):
            with pytest.raises(RunSuspended):
                await app.run(deployer, "2")
            await lab.pass_time(minutes=31)
        assert await app.run(deployer, "2") == "v2 is live"
    assert len(looks) == 5
    assert all(later - earlier > 1700 for earlier, later in itertools.pairwise(looks))


@virtual
async def test_looking_never_makes_it_failed_before_its_time(lab: Lab):
    @tool
    async def deploy(version: str) -> str:
        raise Deferred("queued", within=2 * timedelta(hours=1), every=timedelta(minutes=30), key="job")

    @deploy.verify(settle_window=timedelta(0))
    async def deployed(operation: Operation[str]) -> Verdict[str]:
        return CannotTell()

    @agent(run_id="d-{given}", tools=[deploy])
    async def deployer(run: Run, given: str) -> str:
        return await deploy(given)

    async with lab.app(deployer) as app:
        for _ in range(3):
            with pytest.raises(RunSuspended):
                await app.run(deployer, "2")
            await lab.pass_time(minutes=31)
        assert lab.of("d-2", r.OperationSettled) == []
        await app.service.deliver("job", ArrivedAnswer("m1", result=r.Raw(b'"live"')))
        assert await app.run(deployer, "2") == "live"


@virtual
async def test_a_model_is_told_that_it_is_pending_and_its_repeat_sends_nothing(lab: Lab):
    @tool(idempotency=Key.forever(), once=Once("order", within=DAY))
    async def refund(order: str) -> str:
        lab.sent.append(f"refund {order}")
        raise Deferred("accepted by the bank", within=DAY, key=f"bank-{order}")

    heard: list[str] = []

    @agent(run_id="m-{given}", tools=[refund])
    async def chat(run: Run, given: str) -> str:
        first = await run.call("refund", {"order": given})
        heard.append(first.as_text())
        second = await run.call("refund", {"order": given})
        return f"{first.status} {second.status} {second.as_text()}"

    async with lab.app(chat) as app:
        with pytest.raises(RunSuspended):
            await app.run(chat, "A")
        await app.service.deliver("bank-A", ArrivedAnswer("m1", result=r.Raw(b'"R-1"')))
        said = await app.resume("m-A")
    assert heard[0].startswith("Accepted (accepted by the bank), and not finished yet. Do not repeat it")
    assert said.startswith("pending pending Not sent: m-A/refund#1 (accepted by the bank) is pending since 2026-01-01")
    assert lab.sent == ["refund A"]


@pytest.mark.slow
@virtual
async def test_forty_seven_follow_ups_are_one(lab: Lab):
    """A mailbox that is behind shows no answer, and the model asks for a follow-up every time it looks."""
    seen = itertools.count(1)

    @tool(effect="read")
    async def crm(lead: str) -> str:
        return "answered" if next(seen) > 47 else "no response"

    @tool(idempotency=Key.forever(), once=Once("lead", within=DAY))
    async def follow_up(lead: str) -> str:
        lab.sent.append(f"mail {lead}")
        raise Deferred("sent; the CRM is behind", within=DAY, key=f"mail-{lead}")

    @agent(run_id="f-{given}", tools=[crm, follow_up])
    async def seller(run: Run, given: str) -> int:
        asked = 0
        while await crm.options(step=f"look-{asked}")(given) == "no response":
            await run.call("follow_up", {"lead": given})
            asked += 1
            await run.sleep(timedelta(minutes=5))
        return asked

    async with lab.app(seller, hold_ms=10**9) as app:
        handle = app.start(seller, "ann")
        await lab.pass_time(hours=5)
        await app.service.deliver("mail-ann", ArrivedAnswer("m1", result=r.Raw(b'"delivered"')))
        assert await handle.result() == 47
    assert lab.sent == ["mail ann"]


@virtual
async def test_forty_seven_follow_ups_in_ever_other_words_are_one(lab: Lab):
    """It was sent, its answer is on its way through the CRM, and a model finds new words each time it looks."""

    @tool(idempotency=Key.forever(), once=Once("lead", within=DAY, reworded=True))
    async def follow_up(lead: str, text: str) -> str:
        lab.sent.append(f"mail {lead}: {text}")
        _ = current_operation().key
        current_operation().pending("the answer in the CRM", within=DAY, key=f"crm-{lead}")
        return "sent"

    @agent(run_id="f-{given}", tools=[follow_up])
    async def seller(run: Run, given: str) -> list[str]:
        heard: list[str] = []
        for number in range(47):
            told = await run.call("follow_up", {"lead": given, "text": f"Just checking in, {number}"})
            heard.append(told.as_text())
        heard.extend(await run.wait_pending(told))
        return heard

    async with lab.app(seller, hold_ms=10**9) as app:
        handle = app.start(seller, "ann")
        await lab.pass_time(minutes=1)
        await app.service.deliver("crm-ann", ArrivedAnswer("m1", result=r.Raw(b'"answered"')))
        heard = await handle.result()
    assert lab.sent == ["mail ann: Just checking in, 0"]
    assert "the answer in the CRM" in heard[0]
    assert len(set(heard[1:-1])) == 1
    assert heard[-1] == "the answer in the CRM"
    assert heard[1].startswith("Not sent: the answer in the CRM of f-ann/follow_up#1 is pending since")
    assert "Do not repeat" in heard[1]


@virtual
async def test_other_words_wait_for_what_is_deferred(lab: Lab):
    @tool(idempotency=Key.forever(), once=Once("lead", within=DAY, reworded=True))
    async def follow_up(lead: str, text: str) -> str:
        lab.sent.append(text)
        _ = current_operation().key
        raise Deferred("queued", within=DAY, key=f"mail-{lead}")

    @agent(run_id="f-{given}", tools=[follow_up])
    async def seller(run: Run, given: str) -> str:
        await run.call("follow_up", {"lead": given, "text": "hello"})
        again = await run.call("follow_up", {"lead": given, "text": "hello again"})
        other = await run.call("follow_up", {"lead": "bob", "text": "hello"})
        return f"{again.as_text()} {other.status}"

    async with lab.app(seller, hold_ms=10**9) as app:
        handle = app.start(seller, "ann")
        await lab.pass_time(minutes=1)
        for lead in ("ann", "bob"):
            await app.service.deliver(f"mail-{lead}", ArrivedAnswer(f"m-{lead}", result=r.Raw(b'"delivered"')))
        said = await handle.result()
    assert said.startswith("Not sent: f-ann/follow_up#1 (queued) is pending since")
    assert lab.sent == ["hello", "hello"]


@virtual
async def test_that_it_is_not_there_yet_is_believed_only_once_its_time_is_over(lab: Lab):
    @tool
    async def deploy(version: str) -> str:
        raise Deferred("queued", within=timedelta(hours=2), every=timedelta(minutes=30))

    @deploy.verify(settle_window=timedelta(0))
    async def deployed(operation: Operation[str]) -> Verdict[str]:
        return DidNotHappen()

    @agent(run_id="d-{given}", tools=[deploy])
    async def deployer(run: Run, given: str) -> str:
        return (await deploy.outcome(given)).status

    async with lab.app(deployer) as app:
        for _ in range(3):
            with pytest.raises(RunSuspended):
                await app.run(deployer, "2")
            await lab.pass_time(minutes=35)
        assert [one.believable for one in lab.of("d-2", r.Verified)] == [False, False]
        await lab.pass_time(minutes=30)
        assert await app.run(deployer, "2") == "failed"
