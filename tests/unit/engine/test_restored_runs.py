"""Runs of a journal that was restored from a backup: nothing is sent before an operator has confirmed it, and then with care."""

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace

from beforehand import (
    DidNotHappen,
    Happened,
    Key,
    NotSent,
    Operation,
    Run,
    RunSuspended,
    Verdict,
    agent,
    current_operation,
    tool,
)
from beforehand.engine.recorded_operation import SharedState, read_operation
from beforehand.engine.settings import Settings
from beforehand.errors import UsageError
from beforehand.inspect.reader import JournalReader
from beforehand.model import records as r
from beforehand.model.decision.situation import Now
from beforehand.people import answers as a
from beforehand.people.answering import answer
from beforehand.policies import Retry
from tests.unit.engine.lab import Lab, virtual


def restored(lab: Lab) -> None:
    """An operator said that an old copy is to be used."""
    lab.journal.identity = replace(lab.journal.identity, incarnation="2", trust="doubtful", reason="an operator")


@virtual
async def test_a_caller_that_left_what_was_not_sent_yet_leaves_it_again(lab: Lab):
    @tool(idempotency=Key.forever())
    async def pay(to: str) -> str:
        lab.sent.append(to)
        return current_operation().key

    @agent(run_id="r-{name}", tools=[pay])
    async def desk(run: Run, name: str) -> str:
        try:
            async with run.timeout(timedelta(seconds=3)):
                return await pay(name)
        except TimeoutError:
            return "gave up"

    trusted = lab.journal.identity
    lab.journal.identity = replace(trusted, trust="distrustful", reason="it is old")
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended, match="not trusted"):
            await app.run(desk, "ann")
    assert lab.sent == []
    lab.journal.identity = trusted
    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "gave up"
    assert lab.sent == ["ann"], "it goes on without its caller"
    assert len(lab.of("r-ann", r.CallerLeft)) == 1


@virtual
async def test_a_window_of_an_old_journal_does_not_begin_anew_with_each_rest(lab: Lab):
    """The pauses between two readings are longer than a run is kept, and the window is longer than a pause."""

    @tool
    async def mail(to: str) -> str:
        lab.sent.append(to)
        return f"to {to}"

    @mail.verify(settle_window=timedelta(minutes=5), every=timedelta(minutes=1))
    async def in_sent_mail(operation: Operation[str], to: str) -> Verdict[str]:
        return DidNotHappen()

    @agent(run_id="r-{name}", tools=[mail])
    async def desk(run: Run, name: str) -> str:
        return await mail(name)

    restored(lab)
    async with lab.app(desk, recover=True) as app:
        with pytest.raises(RunSuspended, match="until the next reading"):
            await app.run(desk, "ann")
        await lab.pass_time(minutes=4)
        assert lab.sent == [], "absence cannot be believed yet"
        await lab.pass_time(minutes=5)
        assert (await app.service.row("r-ann")).status == "completed"
    assert lab.sent == ["ann"]


@virtual
async def test_what_was_read_before_a_backup_says_nothing_of_what_was_sent_after_it(lab: Lab):
    """The copy knows that nothing was there and that the tool was paused. It was sent after that, and this is lost."""
    readings: list[int] = []

    @tool
    async def mail(to: str) -> str:
        lab.sent.append(to)
        return f"to {to}"

    @mail.verify(settle_window=timedelta(0), check_first=True)
    async def in_sent_mail(operation: Operation[str], to: str) -> Verdict[str]:
        readings.append(len(lab.sent))
        return Happened("in the folder") if to in lab.sent else DidNotHappen()

    @agent(run_id="r-{name}", tools=[mail])
    async def desk(run: Run, name: str) -> str:
        return await mail(name)

    async with lab.app(desk) as app:
        await app.service.pause_tool("mail", by="bea")
        with pytest.raises(RunSuspended, match="paused"):
            await app.run(desk, "ann")
        await app.service.unpause_tool("mail", by="bea")
    assert readings == [0], "it was read, and the pause came after that"
    lab.sent.append("ann")  # by the process that the copy does not know
    restored(lab)
    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "in the folder"
    assert lab.sent == ["ann"]
    assert readings == [0, 1]


@virtual
async def test_an_attempt_that_was_never_sent_does_not_vouch_for_those_that_are_forgotten(lab: Lab):
    """The copy knows of a first attempt that was turned away; the second one, which landed, is not in it."""

    @tool(retry=Retry(attempts=3, elapsed=timedelta(hours=1)))
    async def ship(box: str) -> str:
        raise NotSent("busy", retry_after=600)

    @agent(run_id="r-{name}", tools=[ship])
    async def desk(run: Run, name: str) -> str:
        return await ship(name)

    await lab.until_suspended(desk, "ann")
    restored(lab)
    await lab.pass_time(minutes=11)
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended, match="before the journal was restored"):
            await app.run(desk, "ann")
    assert len(lab.of("r-ann", r.AttemptStarted)) == 1


@virtual
async def test_what_is_cancelled_in_a_restored_journal_is_not_called_unsent_and_a_person_may_say_that_it_happened(
    lab: Lab,
):
    """The refund was paid before the copy was made to serve; the copy knows of neither the attempt nor the call."""

    @tool
    async def refund(order: str) -> str:
        lab.sent.append(order)
        return f"paid {order}"

    @agent(run_id="r-{name}", tools=[refund])
    async def desk(run: Run, name: str) -> str:
        return await refund(name)

    restored(lab)
    async with lab.app(desk, recover=True) as app:
        with pytest.raises(RunSuspended, match="before the journal was restored"):
            await app.run(desk, "ann")
        await app.service.cancel("r-ann", by="bea")
        await lab.pass_time(minutes=1)
        assert (await app.service.row("r-ann")).status == "stopped"
        _, operation = await app.service.operation("r-ann/refund#1")
        assert operation.phase == "unknown"
        await app.service.resolve(
            "r-ann/refund#1", "happened", by="bea", evidence="the bank shows it", result='"paid ann"'
        )
        _, operation = await app.service.operation("r-ann/refund#1")
    assert (operation.phase, str(operation.settlement.basis)) == ("succeeded", "person(bea): the bank shows it")
    assert lab.sent == []


@virtual
async def test_attempts_that_were_all_turned_away_do_not_say_that_nothing_happened_before_the_restore(lab: Lab):
    @tool(idempotency=Key.forever(), retry=Retry(attempts=3, elapsed=timedelta(hours=1)))
    async def pay(order: str) -> str:
        assert current_operation().key
        raise NotSent("busy")

    @agent(run_id="r-{name}", tools=[pay])
    async def desk(run: Run, name: str) -> str:
        return await pay(name)

    restored(lab)
    async with lab.app(desk, recover=True) as app:
        with pytest.raises(RunSuspended, match="before the journal was restored"):
            await app.run(desk, "ann")
        _, operation = await app.service.operation("r-ann/pay#1")
    assert (operation.phase, len(operation.attempts)) == ("unknown", 3)


@virtual
async def test_a_key_of_unknown_age_is_no_reason_to_send_again(lab: Lab):
    @tool(idempotency=Key(ttl=timedelta(days=1)))
    async def pay(order: str) -> str:
        lab.sent.append(current_operation().key)
        return "paid"

    @agent(run_id="r-{name}", tools=[pay])
    async def desk(run: Run, name: str) -> str:
        return await pay(name)

    restored(lab)
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended, match="before the journal was restored"):
            await app.run(desk, "ann")
        with pytest.raises(UsageError, match="the time of its first send is not known"):
            await answer(app.service, "r-ann/pay#1", a.RetrySameKey("the bank is down"), by="bea")
        await answer(app.service, "r-ann/pay#1", a.HappenedAnswer("the bank shows it", result="paid"), by="bea")
        assert await app.run(desk, "ann") == "paid"
    assert lab.sent == []


@virtual
async def test_a_reader_measures_time_as_the_present_owner_of_a_run_does(lab: Lab):
    """`why` names the move of the process that has the run now; the next owner would count from its own claim."""

    @tool
    async def mail(to: str) -> str:
        return f"to {to}"

    @mail.verify(settle_window=timedelta(minutes=5), every=timedelta(seconds=1))
    async def in_sent_mail(operation: Operation[str], to: str) -> Verdict[str]:
        return DidNotHappen()

    @agent(run_id="r-{name}", tools=[mail])
    async def desk(run: Run, name: str) -> str:
        return await mail(name)

    async def measured_since() -> int:
        reader = JournalReader(lab.journal, lab.journal.identity)
        history, instant = await reader.history("r-ann"), lab.journal.clock()
        now = Now(instant.epoch, instant.earliest_ms, instant.wall_ms, instant.latest_ms)
        shared = await SharedState(lab.journal, lab.journal.identity, "mail", now, Settings()).read()
        return (await read_operation(shared, history, history.operations["mail#1"])).inputs.claimed_up

    restored(lab)
    async with lab.app(desk) as app:
        running = asyncio.create_task(app.run(desk, "ann"))
        await lab.pass_time(seconds=50)
        (claim,) = lab.of("r-ann", r.Claimed)
        assert await measured_since() == claim.up
        await lab.bury(app, lab.processes[-1])
        assert running.cancelled()
        assert await measured_since() == lab.journal.clock().earliest_ms
        assert lab.journal.clock().earliest_ms > claim.up
