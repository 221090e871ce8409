"""The edges of the ready loop: answers that are no answers, ids that name no step, a summary while a model is down."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from beforehand import Key, Run, agent, current_operation, tool
from beforehand.errors import DecisionFailed, LoopStopped, ModelError, ReplayDiverged, UsageError
from beforehand.knowledge.production_loop import Usage
from beforehand.loop import Chat, Compaction, LoopLimits, ModelCall, ModelLoop, ModelReply, Route
from beforehand.loop.model import steps_of
from beforehand.model import records as r
from beforehand.policies import Retry
from beforehand.testing import run_virtual
from beforehand.testing.services import ScriptedModel
from tests.unit.engine.lab import Lab

sent: list[str] = []


@pytest.fixture(autouse=True)
def nothing_sent():
    sent.clear()


@tool(idempotency=Key.forever())
async def refund(order: str) -> str:
    sent.append(f"{order}{current_operation().key[:0]}")
    return f"refunded {order}"


def call(given: str, order: str = "A") -> ModelCall:
    return ModelCall(given, "refund", f'{{"order": "{order}"}}')


async def talk(loop: ModelLoop) -> tuple[object, list[r.Record]]:
    @agent(run_id="edge-{text}", tools=[refund])
    async def support(run: Run, text: str) -> str:
        return await loop(run, text)

    async with Lab().app(support) as app:
        try:
            result: object = await app.run(support, "hello")
        except Exception as error:  # noqa: BLE001 - the test looks at it
            result = error
        return result, [record async for _, record in app.service.reader.records("edge-hello")]


def told(loop: ModelLoop) -> tuple[object, list[r.Record]]:
    return run_virtual(talk(loop))


def decisions(records: list[r.Record]) -> list[r.DecisionRecorded]:
    return [record for record in records if isinstance(record, r.DecisionRecorded)]


class Replying:
    """A model of the reader's own, which returns what it is given."""

    name = "own"

    def __init__(self, *replies: object) -> None:
        self.replies = list(replies)
        self.seen: list[tuple[str, ...]] = []

    async def answer(self, request, on_text):
        self.seen.append(tuple(message.answers for message in request.messages if message.role == "tool"))
        return self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]


# --- answers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("empty", [ModelReply("", (), "calls"), ModelReply("", (), "end"), ModelReply(" \n")])
def test_an_answer_that_says_nothing_does_not_complete_a_run(empty: ModelReply):
    result, records = told(ModelLoop(Replying(empty), retry=Retry(attempts=2)))
    assert isinstance(result, DecisionFailed)
    assert (decisions(records)[0].code, "no text and no call" in str(result)) == ("malformed", True)


@pytest.mark.parametrize("value", [None, "refunded"])
def test_what_is_no_reply_is_named(value: object):
    result, records = told(ModelLoop(Replying(value), retry=Retry(attempts=2)))
    assert decisions(records)[0].code == "malformed"
    assert f"answer() must return a ModelReply, and it returned {type(value).__name__}" in str(result)


# --- the names of calls -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "odd",
    [
        ModelReply(5),
        ModelReply("", None),
        ModelReply("", (5,)),
        ModelReply("", (ModelCall("a", "refund", {"cents": 5}),)),
        ModelReply("hi", stop="soon"),
        ModelReply("half of a character: \ud83d"),
        ModelReply("", (ModelCall("a", "\ud800"),)),
        ModelReply("hi", usage=Usage(5, "many")),
        ModelReply("hi", native={"seen": object()}),
    ],
)
def test_a_reply_with_parts_of_other_types_is_malformed(odd: ModelReply):
    result, records = told(ModelLoop(Replying(odd), retry=Retry(attempts=2)))
    assert isinstance(result, DecisionFailed)
    assert "a part that cannot be recorded" in str(result)
    assert decisions(records)[-1].code == "malformed"
    assert sent == []


def test_an_id_that_names_no_step_takes_no_name_of_another_call():
    result, records = told(ModelLoop(ScriptedModel((call("call-2", "A"), call("a/b", "B")), "done")))
    assert (result, sorted(sent)) == ("done", ["A", "B"])
    steps = {record.step for record in records if isinstance(record, r.AttemptStarted)}
    assert steps == {"turn/call-2/refund#1", "turn/call-2-2/refund#1"}


def test_names_are_unique_within_an_answer():
    ids = ["a/b", "call-1", "call-1-2", "x", "x", "", "call-5"]
    names = steps_of([call(one) for one in ids])
    assert names == ["call-1-3", "call-1", "call-1-2", "x", "call-5-2", "call-6", "call-5"]
    assert len(set(names)) == len(ids)


def test_empty_ids_are_replaced_by_their_places_on_record_too():
    model = Replying(ModelReply("", (call("", "A"), call("", "B"), call("call-1", "C")), "calls"), ModelReply("done"))
    result, _ = told(ModelLoop(model))
    assert (result, sorted(sent)) == ("done", ["A", "B", "C"])
    assert model.seen[-1] == ("call-1-2", "call-2", "call-1"), "each outcome answers one call"


# --- compaction -------------------------------------------------------------------------------------------------------


class DownAfterOne:
    """A model that answers once, and is unavailable from then on."""

    name = "big"

    def __init__(self, code: str = "unavailable") -> None:
        self.code = code
        self.asked = 0

    async def answer(self, request, on_text):
        self.asked += 1
        if self.asked == 1:
            return ModelReply("", (call("c1", "x" * 400),), "calls")
        raise ModelError("overloaded", code=self.code)


RULE = Compaction(above=50, keep=1)


def test_a_summary_is_made_by_the_next_model_of_a_route_where_the_first_is_down():
    healthy = Replying(ModelReply("they want a refund"), ModelReply("done"))
    result, records = told(ModelLoop(Route([DownAfterOne(), healthy]), compaction=RULE))
    assert result == "done"
    found = decisions(records)
    assert [one.step for one in found] == ["turn/model#1", "turn#2/summary#1", "turn#2/model#1"]
    assert "big failed (unavailable)" in found[1].why
    assert "big failed (unavailable)" in found[2].why, "each decision asks the first model again"


def test_a_summary_keeps_the_retry_and_the_timeout_of_the_loop():
    class Silent(DownAfterOne):
        async def answer(self, request, on_text):
            if self.asked:
                self.asked += 1
                await asyncio.sleep(3600)
            return await super().answer(request, on_text)

    loop = ModelLoop(Silent(), retry=Retry(attempts=2), timeout=timedelta(seconds=7), compaction=RULE)
    result, records = told(loop)
    assert isinstance(result, DecisionFailed)
    (summary,) = [one for one in decisions(records) if one.function == "summary"]
    assert 14_000 <= summary.ms < 20_000


def test_a_refusal_is_no_summary():
    model = Replying(ModelReply("", (call("c1", "x" * 400),), "calls"), ModelReply("I cannot", (), "refusal"))
    _, records = told(ModelLoop(model, compaction=RULE))
    assert b"(no summary could be made)" in bytes(decisions(records)[-1].seen)


def test_the_tokens_of_a_summary_count_against_the_limit():
    turn = ModelReply("", (call("c1", "x" * 400),), "calls", Usage(5, 5))
    model = Replying(turn, ModelReply("in short", usage=Usage(90, 10)), turn)
    result, _ = told(ModelLoop(model, compaction=RULE, limits=LoopLimits(tokens=115)))
    assert isinstance(result, LoopStopped)
    assert "used 120 tokens of 115" in result.message


# --- what a caller passes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "said", "advice"),
    [
        (lambda: ModelLoop("gpt-5"), "'gpt-5' is not a model", "ModelLoop(OpenAIChat('gpt-5'))"),
        (lambda: ModelLoop(Replying), "is not a model", "give a client"),
        (lambda: ModelLoop(Route([ScriptedModel("x"), "small"])), "'small' is not a model", "client"),
        (lambda: ModelLoop(ScriptedModel("x"), tools="refund"), "tools='refund'", "tools=('refund',)"),
        (lambda: ModelLoop(ScriptedModel("x"), tools=(refund,)), "names of tools", "tools=('refund',)"),
    ],
)
def test_a_loop_of_something_else_is_refused_when_it_is_made(wrong, said: str, advice: str):
    with pytest.raises(UsageError) as refused:
        wrong()
    assert said in str(refused.value)
    assert refused.value.known == "the model was not asked"
    assert advice in refused.value.next_step


def refused_in_a_run(code) -> UsageError:
    model = ScriptedModel("x")

    async def run() -> object:
        @agent(run_id="misuse-{text}", tools=[refund])
        async def misused(run: Run, text: str) -> str:
            await code(run, ModelLoop(model))
            return "not reached"

        async with Lab().app(misused) as app:
            with pytest.raises(UsageError) as refused:
                await app.run(misused, "x")
            return refused.value

    error = run_virtual(run())
    assert isinstance(error, UsageError)
    assert not model.asked
    assert error.known
    assert error.next_step
    return error


@pytest.mark.parametrize("said", [None, ["hi"], 5])
def test_a_conversation_begins_with_text_or_messages(said):
    error = refused_in_a_run(lambda run, loop: loop(run, said))
    assert f"not with {said!r}" in str(error)


class Plain:
    pass


@pytest.mark.parametrize("returns", [None, "Ruling", 5, Plain])
def test_an_answer_has_a_type(returns):
    error = refused_in_a_run(lambda run, loop: loop.ask(run, "x", returns))
    assert error.known == "the model was not asked"


def test_calls_are_performed_after_a_turn():
    error = refused_in_a_run(lambda run, loop: Chat(run, loop, "x").perform((call("c1"),)))
    assert "before turn()" in str(error)


def test_the_position_of_a_stream_is_a_number():
    @agent(run_id="stream-{text}")
    async def silent(run: Run, text: str) -> str:
        return text

    async def run() -> None:
        async with Lab().app(silent) as app:
            with pytest.raises(UsageError, match="after='x'"):
                app.stream(silent, "x", after="x")
            assert [event.kind async for event in app.stream(silent, "x")] == ["started", "completed"]

    run_virtual(run())


# --- what an error says -----------------------------------------------------------------------------------------------


def resumed(first: ModelLoop, then: ModelLoop) -> tuple[LoopStopped, object]:
    """The error of a run with the first loop, and what a resume with the other one ends with."""
    loops = [first, then]

    @agent(run_id="edge-{text}", tools=[refund])
    async def support(run: Run, text: str) -> str:
        return await loops[0](run, text)

    async def run() -> tuple[LoopStopped, object]:
        async with Lab().app(support) as app:
            with pytest.raises(LoopStopped) as stopped:
                await app.run(support, "hello")
            loops.pop(0)
            try:
                return stopped.value, await app.resume("edge-hello")
            except ReplayDiverged as error:
                return stopped.value, error

    return run_virtual(run())


@pytest.mark.parametrize("few", [LoopLimits(turns=1), LoopLimits(tokens=1)])
def test_a_conversation_at_its_limit_continues_with_a_higher_one(few: LoopLimits):
    model = ScriptedModel(call("c1"), "done")
    stopped, result = resumed(ModelLoop(model, limits=few), ModelLoop(model))
    assert (result, sent) == ("done", ["A"])
    assert stopped.known == "on record: 1 turn, and the outcome of every call"
    assert "and resume the run" in stopped.next_step


@pytest.mark.parametrize(
    ("reply", "then"),
    [
        (ModelReply("I", (), "length"), {"limits": LoopLimits(answer_tokens=9000)}),
        (ModelReply("I cannot", (), "refusal"), {"instructions": "Please."}),
    ],
)
def test_a_changed_question_holds_for_new_runs(reply: ModelReply, then: dict):
    model = Replying(reply)
    stopped, result = resumed(ModelLoop(model), ModelLoop(model, **then))
    assert isinstance(result, ReplayDiverged)
    assert "raise the limit" not in stopped.next_step
    assert "hold for new runs" in stopped.next_step


def test_a_model_over_its_time_names_the_limit():
    class Silent(Replying):
        async def answer(self, request, on_text):
            await asyncio.sleep(3600)

    _, records = told(ModelLoop(Silent(None), retry=Retry(attempts=1), timeout=timedelta(seconds=7)))
    assert decisions(records)[0].reason.startswith("TimeoutError: no answer within 7 s (timeout=)")
