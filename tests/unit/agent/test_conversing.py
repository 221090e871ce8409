"""A conversation is said once, shown the same on replay, and loses no receipt when it is cut short."""

from typing import Any

import pytest

from beforehand import Key, Run, agent, current_operation, tool
from beforehand.conversation import Conversation, History
from beforehand.errors import RunSuspended, UsageError
from beforehand.inspect.export import export
from beforehand.inspect.replay import replay_records
from beforehand.model import records as r
from beforehand.model.memory import Spoken, conversation_stream, view_of
from beforehand.testing.world import World
from tests.unit.engine.lab import Lab, virtual


@tool(idempotency=Key.forever())
async def send_invoice(order: str) -> str:
    return f"INV-{order}-{current_operation().key[-2:]}"


async def think(history: History, tools: list[dict[str, Any]]) -> str:
    return f"answer {len(history.messages)}: {history.messages[-1]['content'][:9]} {len(history.preface) > 0}"


async def sum_up(history: History) -> str:
    return f"{len(history.messages)} messages"


def said(text: str, role: str = "user") -> dict[str, str]:
    return {"role": role, "content": text}


@agent(run_id="chat-{given}", tools=[send_invoice])
async def chat(run: Run, given: str) -> list[Any]:
    talk = run.conversation()
    for text in ("hello, this is a long question " * 20, "send it, please", "and again"):
        await talk.append(said(text))
        answer = await run.decide(think, await talk.history(), run.tools.schemas())
        await talk.append(said(answer, "assistant"))
        if text.startswith("send"):
            await send_invoice("17")
    before = await talk.history()
    await talk.compact(await run.decide(sum_up, before), before, keep=2)
    await talk.append(said("did you send it?"))
    after = await talk.history()
    await run.decide(think, after, [])
    return [[one["content"] for one in after.messages], after.summary, after.preface]


def test_what_was_said_is_the_same_whichever_boundary_a_run_died_at(world: World):
    ran = world.run(chat, "a")
    assert ran.error is None
    assert ran.result is not None
    messages, summary, preface = ran.result
    assert messages == ["and again", "answer 5: and again False", "did you send it?"]
    assert summary == "6 messages"
    assert "send_invoice" in preface
    assert "INV-17" in preface
    assert preface.endswith("in short:\n6 messages")
    world.explore(chat, "a")


@virtual
async def test_no_message_is_stored_again_when_a_model_is_shown_it(lab: Lab):
    async with lab.app(chat) as app:
        await app.run(chat, "a")
        records = lab.records("chat-a")
        bodies = [bytes(row.body) for row in lab.journal._runs["chat-a"].rows]
        assert not [body for body in bodies if b"long question" in body], "it is in the stream of the conversation"
        entries = await app.engine.journal.entries(conversation_stream("chat-a"))
        assert sum(b"long question" in entry.body for entry in entries) == 1
        assert len(entries) == 8
        assert await app.run(chat, "a")
        fixture, _ = await export(app.service.reader, "chat-a")
    seen = [one for one in records if isinstance(one, r.DecisionRecorded)]
    assert b'"through"' in bytes(seen[0].seen)
    for replayed in (
        await replay_records(await lab.journal.open(), "chat-a", records, [chat]),
        await replay_records(fixture.identity, "chat-a", fixture.decoded(), [chat]),
    ):
        assert replayed.agrees, replayed


@virtual
async def test_a_message_with_an_id_is_said_once_whoever_brings_it(lab: Lab):
    @agent(run_id="{given}", tools=[])
    async def hook(run: Run, given: str) -> list[Any]:
        talk = run.conversation("ann")
        new = [await talk.append(said(given), id="m-1"), await talk.append(said("again"), id="m-1")]
        await talk.append(said(f"bye from {given}"))
        return [new, [one["content"] for one in (await talk.history()).messages]]

    async with lab.app(hook) as app:
        assert await app.run(hook, "first") == [[True, False], ["first", "bye from first"]]
        assert await app.run(hook, "second") == [[False, False], ["first", "bye from first", "bye from second"]]
        assert await app.run(hook, "first") == [[True, False], ["first", "bye from first"]]


@virtual
async def test_what_another_run_says_meanwhile_is_heard_at_the_next_reading_and_outlives_a_compaction(lab: Lab):
    @agent(run_id="{given}", tools=[send_invoice])
    async def desk(run: Run, given: str) -> list[Any]:
        talk = run.conversation("ann")
        await talk.append(said(f"{given} begins"))
        if given == "second":
            await send_invoice("4")
            return []
        first = await talk.history()
        await run.wait_for("go")
        await talk.compact("it began", first)
        later = await talk.history()
        return [[one["content"] for one in later.messages], later.preface]

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "first")
        await app.run(desk, "second")
        await app.service.signal("first", "go")
        messages, preface = await app.resume("first")
        assert messages == ["second begins"], "it was said after what was summed up"
        assert "[second/send_invoice#1]" in preface, "what the other run did is proven by its records"
        assert await app.resume("first") == [messages, preface]


@virtual
async def test_what_becomes_proven_is_stored_as_it_comes(lab: Lab):
    @agent(run_id="p-{given}", tools=[send_invoice])
    async def busy(run: Run, given: str) -> int:
        talk: Conversation = run.conversation()
        await talk.append(said("go"))
        await talk.compact("it went", await talk.history())
        for number in range(20):
            await send_invoice(f"order-{number}")
            history = await talk.history()
        return history.proven.count("INV-")

    async with lab.app(busy) as app:
        assert await app.run(busy, "x") == 20
    read = [bytes(one.value) for one in lab.of("p-x", r.ValueRecorded) if one.what == "history"]
    assert sum(body.count(b"INV-order-3-") for body in read) == 1
    replayed = await replay_records(await lab.journal.open(), "p-x", lab.records("p-x"), [busy])
    assert replayed.agrees, replayed


def test_the_summary_that_covers_most_is_shown_and_nothing_falls_between_two():
    lines = {number: Spoken("r", "s", f"m{number}") for number in (1, 2, 3, 4)}
    wide, narrow = Spoken("r", "s", None, "one to three", 3), Spoken("q", "s", None, "one to two", 2)
    shown = view_of({**lines, 5: wide, 6: narrow}, 6)
    assert (shown.summary, [message for _, message in shown.messages]) == ("one to three", ["m4"])
    assert [message for _, message in view_of({**lines, 5: wide}, 2).messages] == ["m1", "m2"], "as it was then"


@virtual
async def test_what_cannot_be_said_is_refused(lab: Lab):
    @agent(run_id="x-{given}", tools=[])
    async def wrong(run: Run, given: str) -> list[str]:
        problems: list[str] = []
        talk = run.conversation()
        await talk.append("plain text is a message too")
        history = await talk.history()
        for bad in (
            lambda: run.conversation("a/b").history(),
            lambda: talk.append(None),
            lambda: talk.compact(" ", history),
            lambda: talk.compact("x", history, keep=-1),
        ):
            try:
                await bad()
            except UsageError as error:
                problems.append(error.message)
        await talk.compact("all of it", history, keep=7)
        return [*problems, *(await talk.history()).messages]

    async with lab.app(wrong) as app:
        *problems, kept = await app.run(wrong, "y")
    assert len(problems) == 4
    assert kept == "plain text is a message too"
