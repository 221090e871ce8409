"""A message reaches a run before its next write: its code hears it there, and a replay hears it at the same place."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from beforehand import NotSent, Run, agent, current_operation, tool
from beforehand.errors import Interrupted, RunSuspended, UsageError
from beforehand.model import records as r
from beforehand.policies import Retry
from tests.unit.engine.interruptions import STEADY, agrees, heard, writer
from tests.unit.engine.lab import DAY, Lab, virtual

HOUR = timedelta(hours=1)


def traveller(lab: Lab, gate: str | None = None) -> Any:
    """Waits for an event, then books; hears where it has to book somewhere else."""
    book = writer(lab, gate=gate)

    @agent(run_id="trip-{name}", tools=[book])
    async def desk(run: Run, name: str) -> str:
        await run.facts.learn("city", "JFK", source="the ticket")
        await run.now()
        try:
            return str(await book("JFK"))
        except Interrupted as message:
            known = run.facts.values()["city"]
            return f"{await book(known)}, since {message.sender} said {message.text} {message.facts}"

    return desk


@virtual
async def test_the_next_write_is_not_begun_before_the_code_has_heard(lab: Lab):
    book = writer(lab)
    told = asyncio.Event()

    @agent(run_id="trip-{name}", tools=[book])
    async def desk(run: Run, name: str) -> str:
        await book("Rome")
        await told.wait()
        try:
            await book("JFK")
        except Interrupted as interrupted:
            return f"{interrupted}"
        return "not heard"

    async with lab.app(desk) as app:
        running = asyncio.ensure_future(app.run(desk, "ann"))
        await lab.pass_time(seconds=1)
        await app.service.tell("trip-ann", "I wanted LaGuardia", by="ann")
        told.set()
        said = await running
    assert said == "ann told run trip-ann: I wanted LaGuardia. Known: nothing new was sent since."
    assert lab.sent == ["book Rome"]
    assert heard(lab, "trip-ann") == [("book#2", 1)]


@virtual
async def test_an_approval_that_is_open_is_called_off_and_asked_anew_for_what_is_wanted_now(lab: Lab):
    desk = traveller(lab, gate="true")
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        applied = await app.service.tell("trip-ann", "LaGuardia", by="ann", facts={"city": "LGA"})
        assert applied.at_once
        with pytest.raises(RunSuspended, match=r"book.*LGA"):
            await app.run(desk, "ann")
        with pytest.raises(UsageError, match="cancelled"):
            await app.service.approve("trip-ann/book#1", by="bea")
        await app.service.approve("trip-ann/book#2", by="bea")
        assert await app.run(desk, "ann") == "book LGA, since ann said LaGuardia {'city': 'LGA'}"
    assert lab.sent == ["book LGA"]
    assert heard(lab, "trip-ann") == [("book#1", 1)]


@virtual
async def test_a_replay_hears_it_at_the_same_place(lab: Lab):
    desk = traveller(lab, gate="true")
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await app.service.tell("trip-ann", "LaGuardia", by="ann", facts={"city": "LGA"})
        for _ in range(3):
            with pytest.raises(RunSuspended):
                await app.run(desk, "ann")
        await app.service.approve("trip-ann/book#2", by="bea")
        await app.run(desk, "ann")
    await agrees(lab, desk)
    assert len(heard(lab, "trip-ann")) == 1


@virtual
async def test_an_approval_given_before_the_message_does_not_send_after_it(lab: Lab):
    desk = traveller(lab, gate="true")
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await app.service.approve("trip-ann/book#1", by="bea")
        await app.service.tell("trip-ann", "LaGuardia", by="ann", facts={"city": "LGA"})
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
    assert lab.sent == []


@virtual
async def test_what_was_sent_is_settled_first(lab: Lab):
    """A call that may have landed goes on: a message is not heard in the middle of a write."""
    attempts, begun = 0, asyncio.Event()

    @tool(idempotency=STEADY, retry=Retry(attempts=5))
    async def book(city: str) -> str:
        nonlocal attempts
        attempts += 1
        begun.set()
        assert current_operation().key
        if attempts == 1:
            raise ConnectionResetError("the line dropped")
        lab.sent.append(city)
        return city

    @agent(run_id="trip-{name}", tools=[book])
    async def desk(run: Run, name: str) -> str:
        first = await book("Rome")
        try:
            await book("Oslo")
        except Interrupted as message:
            return f"{first}, then {message.text}"
        return "not heard"

    async with lab.app(desk) as app:
        running = asyncio.ensure_future(app.run(desk, "ann"))
        await begun.wait()
        await app.service.tell("trip-ann", "stay at home", by="ann")
        assert await running == "Rome, then stay at home"
    assert lab.sent == ["Rome"]


@virtual
async def test_a_call_that_nothing_came_of_is_not_tried_again(lab: Lab):
    busy = True

    @tool(idempotency=STEADY, retry=Retry(attempts=50, elapsed=DAY))
    async def book(city: str) -> str:
        if busy:
            raise NotSent("too busy", retry_after=3600)
        return city

    @agent(run_id="trip-{name}", tools=[book])
    async def desk(run: Run, name: str) -> str:
        try:
            return str(await book("JFK"))
        except Interrupted as message:
            return message.text

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        busy = False
        await app.service.tell("trip-ann", "never mind", by="ann")
        assert await app.run(desk, "ann") == "never mind"


@pytest.mark.parametrize("wait", ["sleep", "event", "question"])
@virtual
async def test_code_that_waits_hears_at_once(lab: Lab, wait: str):
    @agent(run_id="trip-{name}", tools=[])
    async def desk(run: Run, name: str) -> str:
        try:
            match wait:
                case "sleep":
                    await run.sleep(3 * DAY)
                case "event":
                    await run.wait_for("payment", timeout=3 * DAY)
                case _:
                    await run.ask("Which city?")
        except Interrupted as message:
            return f"{message.text} after {wait}"
        return "not heard"

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await app.service.tell("trip-ann", "LaGuardia", by="ann")
        assert await app.run(desk, "ann") == f"LaGuardia after {wait}"
        assert await app.run(desk, "ann") == f"LaGuardia after {wait}"
    assert len(heard(lab, "trip-ann")) == 1
    await agrees(lab, desk)


@virtual
async def test_a_question_that_was_called_off_takes_no_answer(lab: Lab):
    @agent(run_id="trip-{name}", tools=[])
    async def desk(run: Run, name: str) -> str:
        try:
            return str(await run.ask("Which city?"))
        except Interrupted:
            return str(await run.ask("Which city, then?"))

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await app.service.tell("trip-ann", "not there", by="ann")
        with pytest.raises(RunSuspended, match="then"):
            await app.run(desk, "ann")
        with pytest.raises(UsageError, match="a message arrived"):
            await app.service.answer("trip-ann/ask#1", "Rome", by="bea")
        await app.service.answer("trip-ann/ask#2", "Oslo", by="bea")
        assert await app.run(desk, "ann") == "Oslo"


@virtual
async def test_with_stop_no_new_write_begins_however_often_code_tries(lab: Lab):
    book = writer(lab)

    @agent(run_id="trip-{name}", tools=[book])
    async def desk(run: Run, name: str) -> list[str]:
        said: list[str] = []
        for city in ("Rome", "Oslo", "Riga"):
            try:
                await run.wait_for("go")
                await book(city)
            except Interrupted as message:
                said.append(f"{city}: {message.text} {message.stop}")
        return said

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await app.service.tell("trip-ann", "", by="ann", stop=True)
        for number in (1, 2):
            with pytest.raises(RunSuspended):
                await app.run(desk, "ann")
            await app.service.signal("trip-ann", "go", key="", payload=number)
        assert await app.run(desk, "ann") == ["Rome: stop True", "Oslo: stop True", "Riga: stop True"]
    assert lab.sent == []


@virtual
async def test_an_uncaught_message_stops_the_run_and_says_so(lab: Lab):
    book = writer(lab, gate="true")

    @agent(run_id="trip-{name}", tools=[book])
    async def desk(run: Run, name: str) -> str:
        return str(await book("JFK"))

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await app.service.tell("trip-ann", "stop it", by="ann")
        with pytest.raises(Interrupted, match="stop it"):
            await app.run(desk, "ann")
    (stopped,) = lab.of("trip-ann", r.RunStoppedRecord)
    assert "ann told run trip-ann: stop it" in stopped.error


@virtual
async def test_the_same_message_under_one_name_counts_once(lab: Lab):
    desk = traveller(lab, gate="true")
    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        for _ in range(2):
            await app.service.tell("trip-ann", "LaGuardia", by="ann", once="m1")
        with pytest.raises(UsageError, match="has another message"):
            await app.service.tell("trip-ann", "Newark", by="ann", once="m1")
        with pytest.raises(UsageError, match="name"):
            await app.service.tell("trip-ann", "Newark", by="")
        with pytest.raises(UsageError, match="the message is empty"):
            await app.service.tell("trip-ann", "", by="ann")
        with pytest.raises(UsageError, match="at most 4,000 characters"):
            await app.service.tell("trip-ann", "x" * 4001, by="ann")
        with pytest.raises(UsageError, match="cannot name a fact"):
            await app.service.tell("trip-ann", "", by="ann", facts={"a/b": 1})
        with pytest.raises(UsageError, match="JSON"):
            await app.service.tell("trip-ann", "", by="ann", facts={"a": object()})
    assert len(lab.of("trip-ann", r.MessageReceived)) == 1


@virtual
async def test_a_run_that_has_ended_is_told_nothing(lab: Lab):
    desk = traveller(lab)
    async with lab.app(desk) as app:
        await app.run(desk, "ann")
        with pytest.raises(UsageError, match="no longer accepts messages"):
            await app.service.tell("trip-ann", "too late", by="ann")
