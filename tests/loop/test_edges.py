"""The edges of the ready loop: answers that are no answers, ids that name no step, a summary while a model is down."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from holdfast import Key, Run, agent, current_operation, tool
from holdfast.errors import DecisionFailed, ModelError
from holdfast.loop import Compaction, Fallback, ModelCall, ModelLoop, ModelReply
from holdfast.loop.model import steps_of
from holdfast.model import records as r
from holdfast.policies import Retry
from holdfast.testing import run_virtual
from holdfast.testing.services import ScriptedModel
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
        return result, [record async for _, record in app.service.looking.records("edge-hello")]


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


def test_a_summary_is_made_by_the_fallback_where_the_model_is_down():
    healthy = Replying(ModelReply("they want a refund"), ModelReply("done"))
    result, records = told(ModelLoop(DownAfterOne(), fallbacks=(Fallback(healthy),), compaction=RULE))
    assert result == "done"
    found = decisions(records)
    assert [one.step for one in found][1:3] == ["turn#2/summary#1", "turn#2/summary#2"]
    assert "big failed (unavailable)" in found[2].why
    begun = [one for one in records if isinstance(one, r.DecisionStarted) and one.step == "turn#2/summary#1"]
    assert len(begun) <= 3
    assert found[1].ms <= 30_000, "as long as a model with a fallback is tried"


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
