"""Partial success: what is done is done, what is queued is awaited part by part, and nothing is sent again."""

from datetime import timedelta

import msgspec
import pytest

from beforehand import (
    CannotTell,
    Happened,
    Key,
    Once,
    Operation,
    Run,
    TransactionAborted,
    Verdict,
    agent,
    current_operation,
    tool,
)
from beforehand.engine.deferred import ArrivedAnswer
from beforehand.errors import RunSuspended, UsageError
from beforehand.model import records as r
from tests.unit.engine.lab import Lab, virtual

HOUR = timedelta(hours=1)
FIVE = ["ann", "bob", "cid", "dan", "eve"]


def mailing(lab: Lab, *queued: str, there: tuple[str, ...] | None = None, again: str | None = None):
    """A mailer that sends all but the queued ones at once; `there`: what its outbox shows when it is asked."""

    @tool(idempotency=Key.forever())
    async def send(to: list[str]) -> list[str]:
        lab.sent.append(current_operation().key)
        for name in queued:
            current_operation().pending(name, within=HOUR, key=f"mail-{name}")
        return [name for name in to if name not in queued]

    if there is not None:

        @send.verify(settle_window=timedelta(0))
        async def outbox(operation: Operation[list[str]], to: list[str]) -> Verdict[list[str]]:
            assert operation.key in lab.sent
            return Happened([], missing=tuple(name for name in to if name not in there))

    @agent(run_id="m-{name}", tools=[send])
    async def desk(run: Run, name: str) -> dict[str, str]:
        sent = await send.options(again=again).outcome(FIVE)
        assert sent.result == [one for one in FIVE if one not in queued]
        assert sent.pending == queued
        ends = await run.wait_pending(sent)
        return {name: f"{end.status} {end.reason or end.value}" for name, end in ends.items()}

    return desk


@virtual
async def test_three_of_five_are_sent_and_two_are_awaited_each_under_its_own_key(lab: Lab):
    desk = mailing(lab, "dan", "eve")
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended, match=r"answer later: dan(.|\n)*beforehand deliver mail-dan"):
            await app.run(desk, "a")
        await app.service.deliver("mail-eve", ArrivedAnswer("m1", "failed", why="no such mailbox"))
        with pytest.raises(RunSuspended):
            await app.run(desk, "a")
        done = await app.service.deliver("mail-dan", ArrivedAnswer("m2", result=r.Raw(b'"read"')))
        assert done.operation == "m-a/send#1/part#1"
        assert await app.run(desk, "a") == {"dan": "succeeded read", "eve": "failed no such mailbox"}
        _, whole = await app.service.operation("m-a/send#1")
    assert whole.phase == "succeeded"
    assert len(lab.sent) == 1


@virtual
async def test_the_whole_and_its_parts_are_one_commit(lab: Lab):
    desk = mailing(lab, "eve")
    await lab.until_suspended(desk, "a")
    kinds = [type(record) for record in lab.records("m-a")]
    settled = kinds.index(r.OperationSettled)
    assert kinds[settled + 1 : settled + 3] == [r.AttemptStarted, r.OperationDeferred]


@pytest.mark.parametrize("there", [True, False])
@virtual
async def test_at_the_deadline_the_verifier_of_the_whole_says_which_parts_are_missing(lab: Lab, there: bool):
    desk = mailing(lab, "eve", there=tuple(FIVE if there else FIVE[:4]))
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "a")
        await lab.pass_time(hours=1, seconds=10)
        ends = await app.run(desk, "a")
    assert ends["eve"].startswith("succeeded" if there else "failed")
    assert len(lab.sent) == 1


@virtual
async def test_without_proof_a_person_says_what_became_of_a_part_and_never_sends_it_again(lab: Lab):
    desk = mailing(lab, "eve")
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "a")
        await lab.pass_time(hours=2)
        with pytest.raises(RunSuspended, match="beforehand resolve m-a/send#1/part#1"):
            await app.run(desk, "a")
        with pytest.raises(UsageError, match="never sent by itself"):
            await app.service.resolve("m-a/send#1/part#1", "retry", by="bea")
        await app.service.resolve("m-a/send#1/part#1", "did_not_happen", by="bea")
        assert await app.run(desk, "a") == {"eve": "failed bea says that it did not happen"}
    assert len(lab.sent) == 1


@virtual
async def test_a_process_that_dies_afterwards_leaves_them_to_the_next(lab: Lab):
    desk = mailing(lab, "dan", "eve")
    first = lab.make(desk)
    process = lab.processes[-1]
    await first.open()
    with pytest.raises(RunSuspended):
        await first.run(desk, "a")
    await lab.bury(first, process)
    async with lab.app(desk, recover=True) as app:
        for name in ("dan", "eve"):
            await app.service.deliver(f"mail-{name}", ArrivedAnswer(name))
        await lab.pass_time(seconds=30)
        assert (await app.service.row("m-a")).status == "completed"
        assert await app.run(desk, "a") == {"dan": "succeeded None", "eve": "succeeded None"}
    assert len(lab.sent) == 1


@virtual
async def test_a_key_that_somebody_waits_for_already_is_not_taken(lab: Lab):
    desk = mailing(lab, "eve", again="to see which key the second one has")
    async with lab.app(desk) as app:
        for name in ("a", "b"):
            with pytest.raises(RunSuspended):
                await app.run(desk, name)
        await app.service.deliver("mail-eve", ArrivedAnswer("m1"))
        assert await app.run(desk, "a") == {"eve": "succeeded None"}
        with pytest.raises(RunSuspended):
            await app.run(desk, "b")
        _, part = await app.service.operation("m-b/send#1/part#1")
    assert (part.phase, part.deferral.key) == ("awaiting", "")


@virtual
async def test_what_is_said_before_a_call_fails_awaits_nothing(lab: Lab):
    @tool
    async def send(to: str) -> str:
        current_operation().pending("the rest")
        raise ValueError("the line broke")

    @agent(run_id="m-{name}", tools=[send])
    async def desk(run: Run, name: str) -> str:
        return await send(name)

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "a")
        history = await app.service.history("m-a")
    assert list(history.operations) == ["send#1"]


@virtual
async def test_a_model_is_told_what_is_pending_and_so_is_its_prompt(lab: Lab):
    @tool(idempotency=Key.forever(), once=Once("to", within=HOUR))
    async def send(to: list[str]) -> int:
        lab.sent.append("mail")
        current_operation().pending("bob", key="mail-bob")
        return len(to) - 1

    heard: list[str] = []

    @agent(run_id="m-{name}", tools=[send])
    async def chat(run: Run, name: str) -> str:
        first = await run.call("send", {"to": ["ann", "bob"]})
        again = await run.call("send", {"to": ["ann", "bob"]})
        heard[:] = [first.as_text(), again.as_text(), await run.digest()]
        return "over"

    async with lab.app(chat) as app:
        with pytest.raises(RunSuspended):
            await app.run(chat, "a")
        await app.service.deliver("mail-bob", ArrivedAnswer("m1"))
        assert await app.run(chat, "a") == "over"
    assert heard[0] == "1\nNot finished yet: bob. Do not repeat them: their outcomes are delivered later."
    assert heard[1].startswith("Not sent: bob of m-a/send#1 is pending since 2026-01-01 00:00:00 UTC. Do not repeat it")
    assert "bob, a part of send#1: awaiting" in heard[2]
    assert lab.sent == ["mail"]


@virtual
async def test_a_verifier_that_does_not_know_the_whole_proves_nothing_about_a_part(lab: Lab):
    @tool
    async def send(to: str) -> str:
        current_operation().pending("bob", within=HOUR)
        return to

    @send.verify(settle_window=timedelta(0), deadline=timedelta(minutes=1))
    async def outbox(operation: Operation[str]) -> Verdict[str]:
        return CannotTell("the outbox cannot be read")

    @agent(run_id="m-{name}", tools=[send])
    async def desk(run: Run, name: str) -> str:
        return await send(name)

    async with lab.app(desk, recover=True) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "a")
        await lab.pass_time(hours=2)
        _, part = await app.service.operation("m-a/send#1/part#1")
    assert part.phase == "unknown"


@virtual
async def test_odd_words_of_a_tool_never_make_its_effect_doubtful(lab: Lab):
    class Odd:
        def __str__(self) -> str:
            raise RuntimeError("no text")

    @tool
    async def send(to: str) -> str:
        said = current_operation()
        said.pending("")
        said.pending("a/b#c", key="\ud800", within=timedelta(days=-1))
        said.report("\0", Odd())
        said.report("ratio", float("inf"))
        return to

    @agent(run_id="m-{name}", tools=[send])
    async def desk(run: Run, name: str) -> str:
        return await send(name)

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "a")
        history = await app.service.history("m-a")
    assert history.operations["send#1"].phase == "succeeded"
    assert [part.intent.item for part in history.operations.values()][1:] == ["the rest", "a/b#c"]
    assert msgspec.json.decode(history.operations["send#1"].settlement.result) == "a"


@pytest.mark.parametrize("word", ["happened", "did_not_happen", ""])
@virtual
async def test_a_transaction_that_is_called_off_waits_for_the_parts_before_it_makes_amends(lab: Lab, word: str):
    @tool(idempotency=Key.forever())
    async def send(to: str) -> str:
        current_operation().pending("copy", within=HOUR, key="copy")
        return to

    @send.compensate(restores=True)
    @tool(idempotency=Key.forever())
    async def call_back(operation: Operation[str]) -> None:
        lab.sent.append(f"called back {operation.result}")

    @agent(run_id="t-{name}", tools=[send])
    async def desk(run: Run, name: str) -> str:
        async with run.transaction("mailing") as mailing:
            await send(name)
            mailing.abort("changed my mind")
        return "never"

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended, match="beforehand deliver copy"):
            await app.run(desk, "ann")
        assert lab.sent == []
        if not word:
            await app.service.deliver("copy", ArrivedAnswer("m1"))
        else:
            await lab.pass_time(hours=2)
            with pytest.raises(RunSuspended, match="it is not known whether mailing/send#1/part#1 happened"):
                await app.run(desk, "ann")
            assert lab.sent == []
            await app.service.resolve("t-ann/mailing/send#1/part#1", word, by="bea")
        with pytest.raises(TransactionAborted):
            await app.run(desk, "ann")
    assert lab.sent == ["called back ann"]


@virtual
async def test_a_part_may_come_after_its_transaction_has_committed(lab: Lab):
    @tool(idempotency=Key.forever())
    async def send(to: str) -> str:
        current_operation().pending("copy", within=HOUR, key="copy")
        return to

    @agent(run_id="t-{name}", tools=[send])
    async def desk(run: Run, name: str) -> str:
        async with run.transaction("mailing"):
            sent = await send.options(hold=False).outcome(name)
        return (await run.wait_pending(sent))["copy"].status

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        assert lab.of("t-ann", r.TransactionCommitted)
        await app.service.deliver("copy", ArrivedAnswer("m1"))
        assert await app.run(desk, "ann") == "succeeded"


@pytest.mark.parametrize("found", [True, False])
@virtual
async def test_what_a_reading_misses_after_a_death_is_looked_for_as_a_part(lab: Lab, found: bool):
    """The process died in the middle of its mails, so what was queued was not reported: the outbox shows it."""
    there = ["ann", "bob"]

    @tool
    async def send(to: list[str]) -> list[str]:
        lab.sent.append("mails")
        raise TimeoutError("no answer")

    @send.verify(settle_window=timedelta(0), every=timedelta(minutes=1), deadline=timedelta(minutes=10))
    async def outbox(operation: Operation[list[str]], to: list[str]) -> Verdict[list[str]]:
        return Happened(list(there), missing=tuple(name for name in to if name not in there))

    @agent(run_id="m-{name}", tools=[send])
    async def desk(run: Run, name: str) -> list[str]:
        sent = await send.outcome(["ann", "bob", "cid"])
        ends = await run.wait_pending(sent)
        return [*sent.pending, *(end.status for end in ends.values())]

    async with lab.app(desk, recover=True) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "a")
        await lab.pass_time(minutes=3)
        if found:
            there.append("cid")
        await lab.pass_time(minutes=15)
        assert await app.run(desk, "a") == ["cid", "succeeded" if found else "failed"]
    assert lab.sent == ["mails"]


@virtual
async def test_a_repeat_in_the_same_run_has_the_parts_of_what_it_met(lab: Lab):
    """What is pending of the first call is pending of the second, which sent nothing, and both receive its end."""

    @tool(idempotency=Key.forever(), claim="subject")
    async def send(subject: str) -> str:
        lab.sent.append(current_operation().key)
        current_operation().pending("dan", within=HOUR, key="mail-dan")
        return subject

    @agent(run_id="m-{name}", tools=[send])
    async def desk(run: Run, name: str) -> list[str]:
        first, second = await send.outcome("offer"), await send.outcome("offer")
        assert (second.reused, first.pending, second.pending) == ("m-a/send#1", ("dan",), ("dan",))
        ends = [await run.wait_pending(one) for one in (first, second)]
        return [end["dan"].status for end in ends]

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "a")
        await app.service.deliver("mail-dan", ArrivedAnswer("m1", result=r.Raw(b'"read"')))
        assert await app.run(desk, "a") == ["succeeded", "succeeded"]
    assert len(lab.sent) == 1
