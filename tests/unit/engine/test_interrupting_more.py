"""Messages where several things go on: branches, transactions, models, and code that looks by itself."""

import asyncio
from datetime import timedelta

import pytest

from beforehand import Run, TransactionAborted, agent, tool
from beforehand.errors import Interrupted, NotSent, RunSuspended
from beforehand.policies import Retry
from tests.unit.engine.interruptions import STEADY, agrees, heard, writer
from tests.unit.engine.lab import DAY, Lab, virtual

HOUR = timedelta(hours=1)


@virtual
async def test_an_effect_held_for_the_commit_does_not_leave_unheard(lab: Lab):
    mail = writer(lab, "mail")

    @agent(run_id="trip-{name}", tools=[mail])
    async def desk(run: Run, name: str) -> str:
        try:
            async with run.transaction("trip") as trip:
                await trip.on_commit(mail, "JFK")
                told.set()
                await asyncio.sleep(5)
        except TransactionAborted as gone:
            return f"called off: {getattr(gone.__cause__, 'text', gone)}"
        return "committed"

    told = asyncio.Event()
    async with lab.app(desk) as app:
        running = asyncio.ensure_future(app.run(desk, "ann"))
        await told.wait()
        await app.service.tell("trip-ann", "no mail", by="ann")
        assert await running == "called off: no mail"
    assert lab.sent == []
    await agrees(lab, desk)


@virtual
async def test_a_boundary_in_which_nothing_waits_to_leave_commits(lab: Lab):
    book = writer(lab)

    @agent(run_id="trip-{name}", tools=[book])
    async def desk(run: Run, name: str) -> str:
        async with run.transaction("trip"):
            await book.options(hold=False)("Rome")
            told.set()
            await asyncio.sleep(5)
        return "committed"

    told = asyncio.Event()
    async with lab.app(desk) as app:
        running = asyncio.ensure_future(app.run(desk, "ann"))
        await told.wait()
        await app.service.tell("trip-ann", "hurry", by="ann")
        assert await running == "committed"
        history = await app.service.history("trip-ann")
    assert history.messages is not None
    assert [message.text for message in history.messages.undelivered] == ["hurry"]


@virtual
async def test_every_branch_hears_and_whoever_joins_them_knows(lab: Lab):
    """Calls that were chosen together are not sent one after the other has heard: each of them hears."""
    book = writer(lab)
    go = asyncio.Event()

    @agent(run_id="trip-{name}", tools=[book])
    async def desk(run: Run, name: str) -> list[str]:
        async def one(city: str) -> str:
            await go.wait()
            try:
                return str(await book(city))
            except Interrupted as message:
                return message.text

        said = await run.gather(*(one(city) for city in ("Rome", "Oslo", "Riga")))
        return [*said, await book("Bern")]

    async with lab.app(desk) as app:
        running = asyncio.ensure_future(app.run(desk, "ann"))
        await lab.pass_time(seconds=1)
        await app.service.tell("trip-ann", "wait", by="ann")
        go.set()
        assert await running == ["wait", "wait", "wait", "book Bern"]
    assert lab.sent == ["book Bern"]
    await agrees(lab, desk)


@virtual
async def test_a_step_that_code_named_may_be_taken_again(lab: Lab):
    book = writer(lab, gate="true")

    @agent(run_id="trip-{name}", tools=[book])
    async def desk(run: Run, name: str) -> str:
        try:
            return str(await book.options(step="flight")("JFK"))
        except Interrupted:
            return str(await book.options(step="flight")("LGA"))

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await app.service.tell("trip-ann", "LaGuardia", by="ann")
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await app.service.approve("trip-ann/flight~2", by="bea")
        assert await app.run(desk, "ann") == "book LGA"


@virtual
async def test_code_may_look_by_itself(lab: Lab):
    book = writer(lab)
    told = asyncio.Event()

    @agent(run_id="trip-{name}", tools=[book])
    async def desk(run: Run, name: str) -> str:
        assert await run.messages() == ()
        await told.wait()
        (message,) = await run.messages()
        assert await run.messages() == ()
        return f"{await book(message.facts['city'])} {message.sender} {message.stop}"

    async with lab.app(desk) as app:
        running = asyncio.ensure_future(app.run(desk, "ann"))
        await lab.pass_time(seconds=1)
        await app.service.tell("trip-ann", "there", by="ann", facts={"city": "LGA"})
        told.set()
        assert await running == "book LGA ann False"
    await agrees(lab, desk)


@virtual
async def test_a_model_reads_what_was_said_and_decides_again(lab: Lab):
    book = writer(lab)
    go = asyncio.Event()

    @agent(run_id="trip-{name}", tools=[book])
    async def desk(run: Run, name: str) -> list[str]:
        await go.wait()
        said = [(await run.call("book", {"city": city})).as_text() for city in ("JFK", "LGA")]
        return [*said, (await run.call("book", {"city": "Bern"})).as_text()]

    async with lab.app(desk) as app:
        running = asyncio.ensure_future(app.run(desk, "ann"))
        await lab.pass_time(seconds=1)
        await app.service.tell("trip-ann", "LaGuardia", by="ann", facts={"city": "LGA"})
        go.set()
        first, second, third = await running
    assert first == "Not sent: ann says: LaGuardia. Decide again.\ncity is now LGA."
    assert (second, third) == ("book LGA", "book Bern")


@virtual
async def test_a_model_that_was_told_to_stop_is_refused_every_change(lab: Lab):
    book = writer(lab)

    @agent(run_id="trip-{name}", tools=[book])
    async def desk(run: Run, name: str) -> list[str]:
        with pytest.raises(Interrupted):
            await run.wait_for("go")
        return [(await run.call("book", {"city": city})).as_text() for city in ("JFK", "LGA")]

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await app.service.tell("trip-ann", "enough", by="ann", stop=True)
        refused = "Not sent: ann says: enough. Do not call tools that change anything any more."
        assert await app.run(desk, "ann") == [refused, refused]
    assert lab.sent == []


@virtual
async def test_a_caller_that_was_cancelled_has_heard_nothing(lab: Lab):
    """The branch that waited for the call is gone when the message comes: another branch hears it."""
    book = writer(lab, gate="city == 'JFK'")

    @agent(run_id="trip-{name}", tools=[book])
    async def desk(run: Run, name: str) -> str:
        with pytest.raises(TimeoutError):
            async with run.timeout(HOUR):
                await book("JFK")
        await run.wait_for("go")
        return str(await book("LGA"))

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await lab.pass_time(hours=2)
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await app.service.tell("trip-ann", "not there", by="ann")
        with pytest.raises(Interrupted):
            await app.run(desk, "ann")
    assert lab.sent == []
    assert heard(lab, "trip-ann") == [("wait_for:go#1", 1)]


@virtual
async def test_a_run_that_ends_unheard_says_so(lab: Lab, caplog: pytest.LogCaptureFixture):
    told = asyncio.Event()

    @agent(run_id="trip-{name}", tools=[])
    async def desk(run: Run, name: str) -> str:
        await told.wait()
        return "done"

    async with lab.app(desk) as app:
        running = asyncio.ensure_future(app.run(desk, "ann"))
        await lab.pass_time(seconds=1)
        await app.service.tell("trip-ann", "too late", by="ann")
        told.set()
        assert await running == "done"
    assert "run trip-ann ended before its code received the message of ann: too late" in caplog.text


@virtual
async def test_what_was_said_during_a_call_is_heard_with_what_calls_it_off_later(lab: Lab):
    """The first message came while the call might land, so it was let go on; the second found that nothing had come."""
    on_its_way, go = asyncio.Event(), asyncio.Event()

    @tool(idempotency=STEADY, retry=Retry(attempts=50, elapsed=DAY))
    async def book(city: str) -> str:
        on_its_way.set()
        await go.wait()
        raise NotSent("too busy", retry_after=3600)

    @agent(run_id="trip-{name}", tools=[book])
    async def desk(run: Run, name: str) -> str:
        try:
            return str(await book("JFK"))
        except Interrupted as message:
            return message.text

    async with lab.app(desk) as app:
        running = asyncio.ensure_future(app.run(desk, "ann"))
        await on_its_way.wait()
        await app.service.tell("trip-ann", "I wanted LaGuardia", by="ann")
        go.set()
        with pytest.raises(RunSuspended):
            await running
        await app.service.tell("trip-ann", "and a window", by="ann")
        assert await app.run(desk, "ann") == "I wanted LaGuardia; and a window"
    assert heard(lab, "trip-ann") == [("book#1", 2)]
    await agrees(lab, desk)


@virtual
async def test_a_write_after_a_look_without_messages_is_sent(lab: Lab):
    book = writer(lab)

    @agent(run_id="trip-{name}", tools=[book])
    async def desk(run: Run, name: str) -> str:
        assert await run.messages() == ()
        return str(await book("LGA"))

    async with lab.app(desk) as app:
        assert await app.run(desk, "ann") == "book LGA"
    await agrees(lab, desk)
