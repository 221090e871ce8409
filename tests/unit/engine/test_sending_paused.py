"""One switch for all sending: once a pause is on record, no attempt of any operation is, in whichever process."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from beforehand import Ambiguous, Beforehand, Happened, Key, NotSent, Operation, Run, agent, current_operation, tool
from beforehand.control.sending import OpenAttempt, open_attempts, switch_sending
from beforehand.engine.breaker import ALL
from beforehand.errors import RunSuspended, TransactionAborted, UsageError
from beforehand.journal.port import Post
from beforehand.model import records as r
from beforehand.policies import Retry, RunBudget
from beforehand.queues.modes import Restriction
from beforehand.testing.clock import EPOCH_MS
from tests.unit.engine.lab import Lab, virtual

SOON = {"poll_ms": 1000, "recover_every_ms": 1000}
LATE = {"poll_ms": 60_000, "lease_ms": 600_000}
"""Settings of a process that does not see for a minute what others have committed."""
SECOND = timedelta(seconds=1)


async def pause(app: Beforehand, why: str = "incident") -> None:
    restriction, changed = await switch_sending(app.engine, "pause", by="eve", why=why)
    assert (str(restriction), changed) == (f"by eve: {why}", True)


async def unpause(app: Beforehand) -> None:
    assert await switch_sending(app.engine, "unpause", by="eve") == (None, True)


def attempts(lab: Lab, run: str) -> list[int]:
    return [record.number for record in lab.of(run, r.AttemptStarted)]


def sender(lab: Lab, *, branches: int = 1, **settings: Any):
    """An agent that waits a while, and sends."""

    @tool(idempotency=Key.forever())
    async def send(to: str) -> str:
        await asyncio.sleep(1)
        assert current_operation().key
        lab.sent.append(f"{to} {current_operation().attempt}")
        return to

    @agent(run_id="r-{name}", **settings)
    async def desk(run: Run, name: str) -> list[str]:
        await run.sleep(5 * SECOND)
        return list(await run.gather(*(send(f"{name}{number}") for number in range(branches))))

    return desk


@virtual
async def test_a_process_that_knows_nothing_of_the_pause_records_no_attempt(lab: Lab):
    """Its decision was right when it was made. The run waits, as it does for a paused tool."""
    desk = sender(lab, budget=RunBudget(effects=1))
    async with lab.app(desk, **LATE) as app, lab.app() as other:
        handle = app.start(desk, "x")
        await lab.pass_time(seconds=1)
        await pause(other)
        assert app.engine.pauses == {}
        with pytest.raises(RunSuspended, match=r"paused: all sending, by eve since .* UTC: incident.*unpause --all"):
            await handle.result()
        assert attempts(lab, "r-x") == []
        history = await app.service.history("r-x")
        assert history.budget is not None
        assert history.budget.effects == 0
        await unpause(other)
        await lab.pass_time(minutes=1)
        assert await app.run(desk, "x") == ["x0"]
    assert lab.sent == ["x0 1"], "what was refused is no attempt"


@pytest.mark.parametrize("branches", [2, 3])
@virtual
async def test_what_other_branches_wrote_behind_a_refused_attempt_is_written_again(lab: Lab, *, branches: int):
    """The answers of the journal take a while, so that the branches chain on to each other before they are refused."""
    lab.lag_s = 0.01
    desk = sender(lab, branches=branches)
    async with lab.app(desk, recover=True, **LATE) as app:
        lab.lag_s = 0
        async with lab.app(desk, recover=True, **SOON) as other:
            app.start(desk, "x")
            await lab.pass_time(seconds=1)
            await pause(other)
            await lab.pass_time(seconds=30)
            assert attempts(lab, "r-x") == []
            assert {row.status for row in await lab.journal.runs()} == {"suspended"}
            assert lab.of("r-x", r.RunStoppedRecord) == []
            await unpause(other)
            await lab.pass_time(seconds=30)
            assert {row.status for row in await lab.journal.runs()} == {"completed"}
    assert sorted(lab.sent) == [f"x{number} 1" for number in range(branches)]


@virtual
async def test_code_of_another_branch_does_not_learn_of_the_refusal(lab: Lab):
    """It could go another way for it. What it recorded behind the refused attempt is recorded anew."""
    learned = list[str]()

    @tool(idempotency=Key.forever())
    async def send(to: str) -> str:
        return f"{to} {current_operation().key != ''}"

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> list[Any]:
        async def count() -> str:
            for number in range(20):
                try:
                    await run.sleep(0.01 * SECOND)
                    await run.now()
                except Exception as error:  # noqa: BLE001 - the code of an agent may do so
                    learned.append(f"{number} {error}")
            return "counted"

        return list(await run.gather(send(name), count()))

    lab.lag_s = 0.05
    async with lab.app(desk, recover=True, **LATE) as app:
        lab.lag_s = 0
        async with lab.app(desk, recover=True, **SOON) as other:
            await pause(other)
            app.start(desk, "x")
            await lab.pass_time(seconds=30)
            await unpause(other)
            await lab.pass_time(seconds=30)
            assert await app.run(desk, "x") == ["x True", "counted"]
    assert learned == []


@virtual
async def test_runs_go_on_by_themselves_after_the_pause_also_those_of_a_process_that_was_killed(lab: Lab):
    desk = sender(lab)
    dying = lab.make(desk, recover=True, **SOON)
    process = lab.processes[-1]
    await dying.open()
    dying.start(desk, "killed")
    await lab.pass_time(seconds=1)
    async with lab.app() as operator:
        await pause(operator)
        await lab.bury(dying, process)
    async with lab.app(desk, recover=True, **SOON) as app:
        app.start(desk, "suspended")
        await lab.pass_time(seconds=60)
        assert {row.status for row in await lab.journal.runs()} == {"suspended"}
        assert lab.sent == []
        async with lab.app() as operator:
            await unpause(operator)
        await lab.pass_time(seconds=3)
        assert {row.status for row in await lab.journal.runs()} == {"completed"}
    assert sorted(lab.sent) == ["killed0 1", "suspended0 1"]


@virtual
async def test_a_pause_that_ended_while_no_process_was_there_leaves_no_run_waiting(lab: Lab):
    """The process that ended it was killed before it could wake one."""
    desk = sender(lab)
    async with lab.app(desk) as app:
        await pause(app)
        with pytest.raises(RunSuspended):
            await app.run(desk, "x")
    entry = (await lab.journal.entries("pause/"))[-1]
    await lab.journal.commit(Post("pause/*", f"unpause/{entry.id}", b'{"word":"unpause","by":"eve"}'))
    async with lab.app(desk, recover=True, **SOON):
        await lab.pass_time(seconds=3)
    assert lab.sent == ["x0 1"]


@virtual
async def test_a_run_that_is_suspended_just_as_the_pause_ends_goes_on(lab: Lab):
    """Its process read of the end after it had decided to suspend the run, and before that was on record."""
    desk = sender(lab)
    async with lab.app(desk, recover=True, **SOON) as app:
        await pause(app)
        process = lab.processes[-1]

        async def commit(request: Any) -> Any:
            if getattr(request, "change", None) is not None and request.change.status == "suspended":
                del process.__dict__["commit"]  # once
                await unpause(app)
            return await lab.journal.commit(request)

        process.__dict__["commit"] = commit
        app.start(desk, "x")
        await lab.pass_time(seconds=30)
        assert lab.sent == ["x0 1"]


@virtual
async def test_attempts_under_way_are_listed_until_their_outcome_is_recorded(lab: Lab):
    desk = sender(lab)
    async with lab.app(desk) as app, lab.app() as other:
        handle = app.start(desk, "x")
        await lab.pass_time(seconds=5.5)
        await pause(other)
        since = lab.of("r-x", r.AttemptStarted)[0].at
        assert await open_attempts(other.service.reader) == (
            [OpenAttempt("r-x", "r-x/~1/send#1", "send", 1, since)],
            [],
        )
        assert await handle.result() == ["x0"], "outcomes are recorded meanwhile"
        assert await open_attempts(other.service.reader) == ([], [])
    assert lab.sent == ["x0 1"]


@virtual
async def test_an_operation_between_two_attempts_has_none_under_way(lab: Lab):
    @tool(retry=Retry(attempts=3, base=SECOND))
    async def send(to: str) -> str:
        raise NotSent("the line is dead")

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await send(name)

    async with lab.app(desk) as app:
        app.start(desk, "x")
        await lab.pass_time(milliseconds=1)
        assert attempts(lab, "r-x") == [1]
        assert await open_attempts(app.service.reader) == ([], [])


@virtual
async def test_an_attempt_of_a_killed_process_is_listed_and_read_back_meanwhile(lab: Lab):
    looked = list[str]()

    @tool(idempotency=Key.forever())
    async def send(to: str) -> str:
        await asyncio.sleep(1)
        lab.sent.append(to)
        raise Ambiguous("the answer was lost")

    @send.verify(settle_window=0 * SECOND)
    async def sent(operation: Operation[str], to: str) -> Happened:
        looked.append(to)
        return Happened(to)

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        return await send(name)

    dying = lab.make(desk)
    process = lab.processes[-1]
    await dying.open()
    dying.start(desk, "x")
    await lab.pass_time(seconds=0.5)
    async with lab.app() as operator:
        await pause(operator)
        await lab.bury(dying, process)
        assert [one.operation for one in (await open_attempts(operator.service.reader))[0]] == ["r-x/send#1"]
    async with lab.app(desk) as app:
        assert await app.run(desk, "x") == "x"
    assert (looked, attempts(lab, "r-x")) == (["x"], [1])


@virtual
async def test_compensations_wait_as_well_and_no_retry_is_counted(lab: Lab):
    @tool(idempotency=Key.forever())
    async def book(city: str) -> str:
        lab.sent.append("book")
        return city

    @book.compensate(restores=True)
    @tool(idempotency=Key.forever())
    async def unbook(operation: Operation[str], city: str) -> None:
        lab.sent.append("unbook")

    @agent(run_id="r-{city}", tools=[book])
    async def trip(run: Run, city: str) -> str:
        async with run.transaction("trip"):
            await book(city)
            await run.sleep(5 * SECOND)
            raise LookupError(city)

    async with lab.app(trip, **LATE) as app, lab.app() as other:
        handle = app.start(trip, "rome")
        await lab.pass_time(seconds=1)
        await pause(other)
        with pytest.raises(RunSuspended, match="paused: all sending"):
            await handle.result()
        assert lab.sent == ["book"]
        await unpause(other)
        await lab.pass_time(minutes=1)
        with pytest.raises((LookupError, TransactionAborted)):
            await app.run(trip, "rome")
        assert lab.sent == ["book", "unbook"]
        assert [record.number for record in lab.of("r-rome", r.AttemptStarted)] == [1, 1]


@virtual
async def test_reads_and_models_go_on_while_sending_is_paused(lab: Lab):
    @tool(effect="read")
    async def look(at: str) -> str:
        return f"seen {at}"

    async def ask(question: str) -> str:
        return f"answered {question}"

    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> list[str]:
        return [await look(name), await run.decide(ask, name)]

    async with lab.app(desk) as app:
        await pause(app)
        assert await app.run(desk, "x") == ["seen x", "answered x"]


@virtual
async def test_two_commands_at_once_are_one_and_the_first_is_named(lab: Lab):
    async with lab.app() as app, lab.app() as other:
        both = await asyncio.gather(
            switch_sending(app.engine, "pause", by="ann", why="one"),
            switch_sending(other.engine, "pause", by="ben", why="two"),
        )
        ann = Restriction("ann", EPOCH_MS, "one")
        assert both == [(ann, True), (ann, False)]
        assert await switch_sending(app.engine, "pause", by="cid") == (ann, False)
        assert await switch_sending(app.engine, "unpause", by="cid") == (None, True)
        assert await switch_sending(app.engine, "unpause", by="cid") == (None, False)
        assert await switch_sending(app.engine, "pause", by="cid") == (Restriction("cid", EPOCH_MS), True)
        assert len(await lab.journal.entries("pause/*")) == 3
        for command in (app.service.pause_tool(ALL, by="ann"), app.service.unpause_tool(ALL, by="ann")):
            with pytest.raises(UsageError, match="pause --all"):
                await command
        assert (await switch_sending(app.engine, "pause", by="ann"))[1] is False, "it is paused still"


@virtual
async def test_a_command_that_cannot_be_read_pauses_until_the_next_one(lab: Lab):
    desk = sender(lab)
    async with lab.app(desk) as app:
        await lab.journal.commit(Post("pause/*", "pause/0", b"7"))
        with pytest.raises(RunSuspended, match="cannot be read: beforehand unpause --all"):
            await app.run(desk, "x")
        await unpause(app)
        assert await app.run(desk, "x") == ["x0"]
