"""A run is handed over: to people, with its state, or to another agent. Run, operations and records stay what they are."""

from datetime import timedelta
from typing import Any

import pytest

from beforehand import Run, TransactionAborted, agent
from beforehand.engine.durable_waits import answer_post
from beforehand.errors import Interrupted, ReplayDiverged, RunStopped, RunSuspended, UnknownTool, UsageError
from beforehand.inspect.run_state import state_of
from beforehand.inspect.timeline import timeline
from beforehand.model import records as r
from beforehand.model.questions import DEEPEST, Answered
from beforehand.people.answering import answer
from beforehand.people.answers import ReplyAnswer, TakeOver
from beforehand.people.dossier import dossier
from beforehand.people.items import ItemFilter, items
from tests.unit.engine.interruptions import agrees, writer
from tests.unit.engine.lab import Lab, virtual

ITEM = "trip-ann/hand_off#1"


def stuck(lab: Lab, **options: Any) -> Any:
    """Books, then hands over to people, and books what comes back."""
    book = writer(lab)

    @agent(run_id="trip-{name}", tools=[book])
    async def desk(run: Run, name: str) -> str:
        await run.facts.learn("city", "Rome", source="the ticket")
        await book("Rome")
        said = await run.hand_off("travel", why="the airline wants a signature", state={"form": 7}, **options)
        return str(await book(str(said)))

    return desk


async def handed(app: Any, desk: Any) -> None:
    with pytest.raises(RunSuspended, match="take-over trip-ann/hand_off#1"):
        await app.run(desk, "ann")


@virtual
async def test_a_run_is_handed_to_people_with_its_state_and_goes_on_with_what_they_say(lab: Lab):
    desk = stuck(lab)
    async with lab.app(desk) as app:
        await handed(app, desk)
        (item,) = await items(app.service.reader)
        assert (item.kind, item.item, item.due_ms) == ("handoff", ITEM, lab.clock.wall_ms() + 7 * 86_400_000)
        assert (item.queue, await items(app.service.reader, ItemFilter(queue="travel"))) == ("travel", [item])
        assert await items(app.service.reader, ItemFilter(queue="money")) == []
        assert item.answers == (
            f"beforehand take-over {ITEM} --look",
            f"beforehand answer {ITEM} VALUE --by NAME",
            f"beforehand take-over {ITEM} --by NAME",
        )
        state = await state_of(app.service.reader, "trip-ann", "hand_off#1")
        assert (state.why, state.queue, bytes(state.given)) == (
            "the airline wants a signature",
            "travel",
            b'{"form":7}',
        )
        assert [(fact.name, fact.value, fact.source) for fact in state.facts] == [("city", "Rome", "the ticket")]
        assert [(done.operation, done.tool) for done in state.done] == [("trip-ann/book#1", "book")]
        assert (await dossier(app.service, ITEM)).kind == "handoff"
        await answer(app.service, ITEM, ReplyAnswer("Oslo"), by="bea")
        assert await items(app.service.reader) == []
        assert await app.run(desk, "ann") == "book Oslo"
    assert lab.sent == ["book Rome", "book Oslo"]
    await agrees(lab, desk)


@virtual
async def test_whoever_takes_it_over_ends_it(lab: Lab):
    desk = stuck(lab)
    async with lab.app(desk) as app:
        await handed(app, desk)
        await answer(app.service, ITEM, TakeOver("I call them"), by="bea")
        assert await items(app.service.reader) == []
        for word in (ReplyAnswer("Oslo"), TakeOver()):
            with pytest.raises(UsageError):
                await answer(app.service, ITEM, word, by="cid")
        with pytest.raises(RunStopped, match="bea took it over: I call them") as stopped:
            await app.run(desk, "ann")
        assert stopped.value.reason == "handed_over"
        with pytest.raises(UsageError, match="is no longer driven by this process: bea took it over"):
            await app.resume("trip-ann")
    assert lab.sent == ["book Rome"]
    (record,) = lab.of("trip-ann", r.RunStoppedRecord)
    assert (record.reason, record.open) == ("handed_over", ())
    told = [(entry.step, entry.text) for entry in timeline("trip-ann", lab.records("trip-ann")).entries]
    assert ("taken over", "by bea: I call them") in told


@virtual
async def test_a_take_over_whose_order_was_lost_is_found_where_the_code_waits(lab: Lab):
    """Earlier versions recorded the answer first, and their process could die before the order."""
    desk = stuck(lab)
    async with lab.app(desk) as app:
        await handed(app, desk)
        taken = Answered(None, "bea", over=True)
        await app.engine.journal.commit(answer_post("trip-ann", "hand_off#1", taken))
        with pytest.raises(RunStopped, match="bea took it over"):
            await app.run(desk, "ann")
    assert lab.sent == ["book Rome"]


@virtual
async def test_nobody_answers_and_the_default_stands_in(lab: Lab):
    desk = stuck(lab, within=timedelta(hours=1), default="Riga")
    async with lab.app(desk) as app:
        await handed(app, desk)
        await lab.pass_time(hours=2)
        assert await app.run(desk, "ann") == "book Riga"


@virtual
async def test_nobody_answers_and_there_is_no_default(lab: Lab):
    desk = stuck(lab, within=timedelta(hours=1))
    async with lab.app(desk) as app:
        await handed(app, desk)
        await lab.pass_time(hours=2)
        with pytest.raises(TimeoutError):
            await app.run(desk, "ann")


@virtual
async def test_a_run_that_is_handed_over_can_be_called_off_or_told(lab: Lab):
    desk = stuck(lab)
    async with lab.app(desk) as app:
        await handed(app, desk)
        await app.service.cancel("trip-ann", by="bea", why="no need")
        assert await items(app.service.reader) == []
        with pytest.raises(RunStopped, match="no need"):
            await app.run(desk, "ann")
        with pytest.raises(UsageError):
            await app.service.take_over(ITEM, by="cid")
        with pytest.raises(RunSuspended):
            await app.run(desk, "bob")
        await app.service.tell("trip-bob", "it is settled", by="bob")
        with pytest.raises(Interrupted, match="it is settled"):
            await app.run(desk, "bob")
    assert lab.sent == ["book Rome", "book Rome"]


@virtual
async def test_what_is_open_in_a_transaction_is_called_off_when_it_is_taken_over(lab: Lab):
    book = writer(lab)

    @book.compensate(restores=True)
    async def give_back(operation: Any) -> None:
        lab.sent.append(f"give back {operation.arguments['city']}")

    @agent(run_id="trip-{name}", tools=[book])
    async def desk(run: Run, name: str) -> str:
        async with run.transaction("trip"):
            await book("Rome")
            return str(await run.hand_off("person", why="stuck"))

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        await app.service.take_over("trip-ann/trip/hand_off#1", by="bea")
        with pytest.raises(RunStopped):
            await app.run(desk, "ann")
    assert lab.sent == ["book Rome", "give back Rome"]


@virtual
async def test_what_is_no_hand_off_is_not_taken_over(lab: Lab):
    @agent(run_id="trip-{name}", tools=[])
    async def desk(run: Run, name: str) -> str:
        return str(await run.ask("Which city?"))

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        with pytest.raises(UsageError, match="is a question"):
            await app.service.take_over("trip-ann/ask#1", by="bea")
        with pytest.raises(UsageError, match="does not take this answer"):
            await answer(app.service, "trip-ann/ask#1", TakeOver(), by="bea")
        with pytest.raises(UsageError, match="was not handed over"):
            await state_of(app.service.reader, "trip-ann", "ask#1")


@virtual
async def test_state_that_cannot_be_stored_is_refused(lab: Lab):
    @agent(run_id="trip-{name}", tools=[])
    async def desk(run: Run, name: str) -> str:
        return str(await run.hand_off("person", why="stuck", state={"what": object()}))

    async with lab.app(desk) as app:
        with pytest.raises(UsageError, match="no JSON form"):
            await app.run(desk, "ann")


# --- to another agent -------------------------------------------------------------------------------------------


def two(lab: Lab, *, given: Any = "Oslo", extra: bool = False) -> tuple[Any, Any]:
    """A desk that hands over to a specialist, and goes on with what that returns."""
    book, mail = writer(lab), writer(lab, "mail")

    @agent(run_id="s-{name}", tools=[book, mail] if extra else [book])
    async def specialist(run: Run, name: str) -> list[str]:
        await run.facts.learn("city", name, source="the specialist")
        return [await book(name), run.id, *(tool["name"] for tool in run.tools.schemas())]

    @agent(run_id="trip-{name}", tools=[book])
    async def desk(run: Run, name: str) -> list[str]:
        await book("Rome")
        found = await run.hand_off(specialist, why="abroad", state=given)
        return [*found, await book(str(run.facts.values()["city"]))]

    return desk, specialist


@virtual
async def test_another_agent_goes_on_in_the_same_run(lab: Lab):
    desk, specialist = two(lab)
    async with lab.app(desk, specialist) as app:
        assert await app.run(desk, "ann") == ["book Oslo", "trip-ann", "book", "book Oslo"]
        assert [row.run for row in await app.service.runs()] == ["trip-ann"]
    steps = [record.step for record in lab.of("trip-ann", r.AttemptStarted)]
    assert steps == ["book#1", "hand_off:specialist#1/book#1", "book#2"]
    (record,) = lab.of("trip-ann", r.HandedOff)
    assert (record.agent, record.why) == ("specialist", "abroad")
    told = [(entry.step, entry.text) for entry in timeline("trip-ann", lab.records("trip-ann")).entries]
    assert ("hand_off:specialist#1", "the agent specialist goes on: abroad") in told
    await agrees(lab, desk)


@virtual
async def test_it_need_not_be_an_agent_of_the_app(lab: Lab):
    desk, _ = two(lab)
    async with lab.app(desk) as app:
        assert (await app.run(desk, "ann"))[0] == "book Oslo"


@virtual
async def test_it_gains_no_tools_by_that(lab: Lab):
    """It is offered only what both may use, and what it calls beyond that is refused before anything is sent."""
    desk, specialist = two(lab, extra=True)
    async with lab.app(desk, specialist) as app:
        assert await app.run(desk, "ann") == ["book Oslo", "trip-ann", "book", "book Oslo"]
    mail, book = writer(lab, "mail"), writer(lab)

    @agent(tools=[mail])
    async def mailer(run: Run, city: str) -> str:
        outcome = await run.call("mail", {"city": city})
        assert outcome.code == "unknown_tool"
        return str(await mail(city))

    @agent(run_id="trip-{name}", tools=[book])
    async def plain(run: Run, name: str) -> str:
        return str(await run.hand_off(mailer, state="Oslo"))

    async with lab.app(plain, mailer) as app:
        with pytest.raises(UnknownTool, match="mail is not a tool that mailer may use in this run"):
            await app.run(plain, "bob")
    assert "mail Oslo" not in lab.sent


@virtual
async def test_branches_and_transactions_of_the_other_agent_are_bound_as_well(lab: Lab):
    mail, book = writer(lab, "mail"), writer(lab)

    @agent(tools=[mail, book])
    async def mailer(run: Run, where: str) -> str:
        match where:
            case "gather":
                return str(await run.gather(mail("Oslo"), book("Oslo")))
            case "transaction":
                async with run.transaction("trip"):
                    return str(await mail.options(hold=False)("Oslo"))
            case _:
                with run.branch("inner"):
                    return str(await mail("Oslo"))

    @agent(run_id="trip-{where}", tools=[book])
    async def desk(run: Run, where: str) -> str:
        try:
            return await run.hand_off(mailer, state=where)
        except (UnknownTool, TransactionAborted) as error:
            return repr(error)

    async with lab.app(desk, mailer) as app:
        for where in ("gather", "transaction", "branch"):
            assert "mail is not a tool" in await app.run(desk, where)
    assert "mail Oslo" not in lab.sent


@virtual
async def test_hand_offs_within_hand_offs_come_to_an_end(lab: Lab):
    @agent(run_id="trip-{depth}", tools=[])
    async def desk(run: Run, depth: int) -> int:
        if depth == 0:
            return 0
        return 1 + await run.hand_off(desk, state=depth - 1)

    async with lab.app(desk) as app:
        assert await app.run(desk, DEEPEST) == DEEPEST
        with pytest.raises(UsageError, match="handed over 8 times"):
            await app.run(desk, DEEPEST + 1)


@virtual
async def test_another_input_on_replay_is_no_silent_replay(lab: Lab):
    book = writer(lab, gate="true")

    @agent(tools=[book])
    async def specialist(run: Run, name: str) -> str:
        return str(await book(name))

    @agent(run_id="trip-{name}", tools=[book])
    async def desk(run: Run, name: str) -> str:
        return await run.hand_off(specialist, state="Riga" if lab.changed else "Oslo")

    async with lab.app(desk, specialist) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        lab.changed = True
        with pytest.raises(ReplayDiverged, match="another input"):
            await app.run(desk, "ann")


@pytest.mark.slow
@virtual
async def test_what_the_other_agent_waits_for_is_kept_and_its_errors_are_errors(lab: Lab):
    book = writer(lab)

    @agent(tools=[book])
    async def specialist(run: Run, name: str) -> str:
        await run.sleep(timedelta(hours=3))
        if await run.hand_off("person", why="what now?", returns=bool):
            return str(await book(name))
        raise LookupError(name)

    @agent(run_id="trip-{name}", tools=[book])
    async def desk(run: Run, name: str) -> str:
        try:
            return await run.hand_off(specialist, state=name)
        except LookupError as error:
            return f"lost: {error}"

    async with lab.app(desk, specialist) as app:
        for name, said, ended in (("ann", "yes", "book ann"), ("bob", "no", "lost: bob")):
            with pytest.raises(RunSuspended):
                await app.run(desk, name)
            await lab.pass_time(hours=3)
            with pytest.raises(RunSuspended):
                await app.run(desk, name)
            await app.service.answer(f"trip-{name}/hand_off:specialist#1/hand_off#1", said, by="bea")
            assert await app.run(desk, name) == ended


@virtual
async def test_a_run_may_be_handed_over_in_a_branch(lab: Lab):
    @agent(run_id="r-{name}")
    async def desk(run: Run, name: str) -> str:
        both = run.gather(run.hand_off("billing", why="a bill"), run.hand_off("shipping", why="a box"))
        return ", ".join(await both)

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        for asked in lab.of("r-ann", r.QuestionAsked):
            await app.service.answer(f"r-ann/{asked.step}", f"done: {asked.question.text}", by="bea")
        assert await app.run(desk, "ann") == "done: a bill, done: a box"
