"""`app.stream`: the events of a run, their positions, and the text that is not on record yet."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

import pytest

from beforehand import Beforehand, Key, Run, agent, current_operation, tool
from beforehand.engine.process import LiveText
from beforehand.errors import ArgumentError
from beforehand.inspect.stream import StreamEvent
from beforehand.loop import ModelCall, ModelLoop, ModelReply
from beforehand.policies import RunBudget
from beforehand.testing import run_virtual
from beforehand.testing.services import ScriptedModel
from tests.unit.engine.lab import Lab, virtual


@tool(idempotency=Key.forever())
async def refund(order_id: str) -> str:
    return f"{current_operation().key[:0]}refunded {order_id}"


class SlowModel(ScriptedModel):
    """Says a word a second."""

    async def answer(self, request, on_text=lambda _: None):
        reply = await super().answer(request)
        for word in reply.text.split():
            await asyncio.sleep(1)
            on_text(f"{word} ")
        await asyncio.sleep(1)
        return reply


CALL = ModelCall("c1", "refund", '{"order_id": "A"}')


def desk(model):
    @agent(run_id="talk-{text}", tools=[refund])
    async def talk(run: Run, text: str) -> str:
        return await ModelLoop(model)(run, text)

    return talk


async def events(app, talk, after: int = 0, most: int = 99) -> list[StreamEvent]:
    found: list[StreamEvent] = []
    async for event in app.stream(talk, "x", after=after):
        found.append(event)
        if len(found) == most:
            break
    return found


def kinds(found: list[StreamEvent]) -> list[str]:
    return [event.kind for event in found]


@virtual
async def test_a_run_as_its_caller_watches_it(lab: Lab):
    talk = desk(SlowModel(ModelReply("Let me see.", (CALL,), "calls"), "All done."))
    async with lab.app(talk) as app:
        found = await events(app, talk)
    assert kinds(found) == [
        "started", "turn_started", "text_delta", "text_delta", "text_delta", "answer", "tool_call", "outcome",
        "turn_started", "text_delta", "text_delta", "answer", "completed",
    ]  # fmt: skip
    assert [event.text for event in found if event.kind == "text_delta"] == ["Let ", "me ", "see. ", "All ", "done. "]
    answer = found[5]
    assert (answer.text, answer.calls, answer.step) == ("Let me see.", (CALL,), "turn/model#1")
    assert (found[6].tool, found[6].value) == ("refund", {"order_id": "A"})
    assert (found[7].tool, found[7].status, found[7].value) == ("refund", "succeeded", "refunded A")
    assert found[-1].value == "All done."
    finished = [event.position for event in found if event.kind != "text_delta"]
    assert finished == sorted(set(finished)), "each event has its own position, and they rise"


@virtual
async def test_a_reader_that_passes_its_position_gets_every_later_event_once(lab: Lab):
    talk = desk(ScriptedModel(CALL, "done"))
    async with lab.app(talk) as app:
        whole = await events(app, talk)
        for seen in range(len(whole)):
            again = await events(app, talk, after=whole[seen].position)
            assert again == [event for event in whole if event.position > whole[seen].position]


@virtual
async def test_a_reader_that_leaves_does_not_end_the_run_and_comes_back_to_the_text_so_far(lab: Lab):
    talk = desk(SlowModel("one two three four"))
    async with lab.app(talk) as app:
        first = await events(app, talk, most=4)
        assert [event.text for event in first[2:]] == ["one ", "two "]
        second = await events(app, talk, after=first[-1].position)
    assert kinds(second) == ["text_delta", "text_delta", "text_delta", "answer", "completed"]
    assert second[0].text == "one two ", "a reader that joins receives all that was said so far"


@virtual
async def test_after_a_crash_the_reader_is_told_that_the_turn_begins_again(lab: Lab):
    model = SlowModel(CALL, ["one two three", "uno due tre"])
    talk = desk(model)
    async with lab.app(talk) as app:
        before = await events(app, talk, most=8)
        assert before[-1].kind == "text_delta"
        lab.processes[-1].die()
    async with lab.app(talk) as app:
        after = await events(app, talk, after=before[-1].position)
    assert kinds(after) == ["turn_restarted", "text_delta", "text_delta", "text_delta", "answer", "completed"]
    assert after[0].step == before[-1].step
    assert (after[-2].text, after[-1].value) == ("uno due tre", "uno due tre")
    assert [event.text for event in after if event.kind == "text_delta"] == ["uno ", "due ", "tre "]


@virtual
async def test_a_question_ends_the_stream_and_its_answer_goes_on(lab: Lab):
    @agent(run_id="ask-{text}", tools=[refund])
    async def asks(run: Run, text: str) -> str:
        city = await run.ask("Which city?")
        return await ModelLoop(ScriptedModel(f"to {city}"))(run, text)

    async with lab.app(asks) as app:
        first = await events(app, asks)
        assert kinds(first) == ["started", "question", "suspended"]
        assert (first[1].text, first[1].step) == ("Which city?", "ask#1")
        await app.service.answer("ask-x/ask#1", "Rome", by="ann")
        second = await events(app, asks, after=first[-1].position)
    assert [kind for kind in kinds(second) if kind != "text_delta"] == [
        "answered",
        "turn_started",
        "answer",
        "completed",
    ]


@tool(gate="true")
async def wire(to: str) -> str:
    return f"wired to {to}"


@tool
async def mail(to: str) -> str:
    raise TimeoutError("no answer")


def one_call(called) -> Any:
    call = ModelCall("c1", called.name, '{"to": "ann"}')

    @agent(run_id="one-{text}", tools=[called])
    async def asks(run: Run, text: str) -> str:
        return await ModelLoop(ScriptedModel(call, lambda request: request.messages[-1].text))(run, text)

    return asks


@pytest.mark.parametrize("said", ["yes", "no"])
@virtual
async def test_a_call_that_waits_for_an_approval(lab: Lab, said: str):
    asks = one_call(wire)
    async with lab.app(asks) as app:
        first = await events(app, asks)
        assert kinds(first)[-3:] == ["tool_call", "question", "suspended"]
        assert (first[-2].tool, first[-2].step) == ("wire", "turn/c1/wire#1")
        if said == "yes":
            await app.service.approve("one-x/turn/c1/wire#1", by="ann")
        else:
            await app.service.decline("one-x/turn/c1/wire#1", by="ann", why="too much")
        second = await events(app, asks, after=first[-1].position)
    found = [(event.kind, event.status) for event in second if event.kind in {"answered", "outcome"}]
    assert found == ([("answered", ""), ("outcome", "succeeded")] if said == "yes" else [("outcome", "failed")])
    assert second[-1].kind == "completed"


@virtual
async def test_an_outcome_that_is_unknown_is_a_question(lab: Lab):
    asks = one_call(mail)
    async with lab.app(asks) as app:
        first = await events(app, asks)
        assert kinds(first)[-3:] == ["tool_call", "question", "suspended"]
        assert (first[-2].status, first[-2].tool) == ("unknown", "mail")
        await app.service.resolve("one-x/turn/c1/mail#1", "happened", by="ann", result="sent")
        second = await events(app, asks, after=first[-1].position)
    (outcome,) = [event for event in second if event.kind == "outcome"]
    assert (outcome.status, outcome.value, second[-1].value) == ("succeeded", "sent", "sent")


@virtual
async def test_a_run_that_stops_says_why(lab: Lab):
    talk = desk(ScriptedModel(ModelReply("no", (), "refusal")))
    async with lab.app(talk) as app:
        found = await events(app, talk)
    assert found[-1].kind == "stopped"
    assert "the model refused: no" in found[-1].text


@virtual
async def test_a_stream_begins_its_run_with_a_budget_and_says_that_it_is_spent(lab: Lab):
    talk = desk(ScriptedModel(CALL, "done"))
    async with lab.app(talk) as app:
        found = [event async for event in app.stream(talk, "x", budget=RunBudget(model_calls=1))]
        assert (found[-1].kind, found[-1].status) == ("stopped", "budget")
        assert "the limit of model calls is reached" in found[-1].text
        with pytest.raises(ArgumentError, match="budget="):
            app.stream(talk, "y", budget=5)  # type: ignore[arg-type]  # the mistake under test
        assert await app.engine.journal.runs(run="talk-y") == []
        await app.service.raise_budget("talk-x", {"model_calls": 1}, by="eve")
        again = app.stream(talk, "x", after=found[-1].position, budget=RunBudget(model_calls=1))
        assert [event.kind async for event in again][-1] == "completed"  # a run keeps the budget that it has


@virtual
async def test_records_are_not_read_for_each_piece_of_text(lab: Lab):
    class Fast(ScriptedModel):
        async def answer(self, request, on_text=lambda _: None):
            for _ in range(200):
                await asyncio.sleep(0.0001)
                on_text("x")
            return ModelReply("x" * 200)

    talk = desk(Fast("x"))
    async with lab.app(talk) as app:
        reads: list[str] = []
        read = lab.processes[-1].journal.read

        async def counted(run: str, *more: Any, **options: Any):
            reads.append(run)
            return await read(run, *more, **options)

        lab.processes[-1].journal.read = counted
        found = await events(app, talk)
    assert kinds(found).count("text_delta") > 50, "an answer that is on record replaces the pieces that wait"
    assert reads.count("talk-x") < 20


def test_a_script_reads_the_stream_without_a_loop(tmp_path):
    talk = desk(ScriptedModel(CALL, "done"))
    with Beforehand(tmp_path / "x.db", agents=[talk]) as app:
        found = list(app.stream(talk, "x"))
        assert kinds(found)[-1] == "completed"
        assert list(app.stream(talk, "x", after=found[-1].position)) == []


def test_text_that_nobody_reads_is_not_kept():
    async def run() -> int:
        lab, talk = Lab(), desk(SlowModel("one two"))
        async with lab.app(talk) as app:
            await app.run(talk, "x")
            return len(app.engine.live_text._so_far) + len(app.engine.live_text._readers)

    assert run_virtual(run()) == 0


def test_a_long_answer_costs_the_same_for_each_piece():
    live, pieces = LiveText(), 200_000
    got: list[str] = []
    with live.speaker("r", "turn/model#1") as say:
        before = time.process_time()
        for _ in range(pieces):
            say("a word of twenty, or ")
        spent = time.process_time() - before
        live.read("r", lambda piece: got.append(piece.text if piece is not None else ""))()
    assert [len(text) for text in got] == [21 * pieces]
    assert spent < 2, "text that is joined for each piece takes many times as long"


@virtual
async def test_an_event_of_this_process_is_given_when_it_is_on_record(lab: Lab):
    """Without waiting for the next look: the tool that takes an hour begins after its event was given."""
    loop, at = asyncio.get_running_loop(), dict[str, float]()

    @tool(idempotency=Key.forever())
    async def slow() -> str:
        at["called"] = loop.time()
        await asyncio.sleep(3600)
        return f"{current_operation().key[:0]}done"

    @agent(run_id="talk-{text}", tools=[slow])
    async def talk(run: Run, text: str) -> str:
        await run.sleep(timedelta(seconds=10))
        return await slow()

    async with lab.app(talk) as app:
        async for event in app.stream(talk, "x"):
            at.setdefault(event.kind, loop.time())
    assert at["tool_call"] == at["called"]
