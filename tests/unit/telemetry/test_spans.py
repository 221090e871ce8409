"""Spans as tables: which record begins and ends each, and a wall clock that is set back."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from beforehand import Run, RunSuspended, agent, tool
from beforehand.engine.deferred import ArrivedAnswer
from beforehand.errors import Deferred
from beforehand.model import records as r
from beforehand.model.questions import Question
from beforehand.telemetry.spans import RunSpans, SpanKind, SpanValue
from tests.unit.engine.lab import Lab, virtual
from tests.unit.engine.test_deferred import DAY, booking, result
from tests.unit.telemetry.tracing import Traced, text


@pytest.mark.parametrize(("began", "ended", "shown"), [(1000, 1500, 1500), (1000, 1000, 1000), (1000, 400, 1000)])
def test_a_span_never_ends_before_it_begins(began: int, ended: int, shown: int):
    spans = RunSpans("r-ann")
    spans.add(r.DecisionStarted(step="ask#1", function="ask", at=began, up=0))
    (span,) = spans.add(r.DecisionStarted(step="ask#1", function="ask", number=2, at=ended, up=0))
    assert (span.start_ms, span.end_ms) == (began, shown)


@virtual
async def test_a_call_that_is_answered_later_is_an_attempt_and_a_wait(lab: Lab):
    desk, traced = booking(lab), Traced()
    async with lab.app(desk, telemetry=traced.follower()) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
    await lab.pass_time(hours=3)
    async with lab.app(desk, telemetry=traced.follower()) as app:
        await app.service.deliver("B-7", ArrivedAnswer("m1", result=result("room 12")))
        assert await app.run(desk, "ann") == "room 12"
    attempt, wait = traced.one("execute_tool book"), traced.one("wait book")
    assert attempt.end_time - attempt.start_time < 10**9
    assert (wait.end_time - wait.start_time) // 10**9 == 3 * 3600
    assert (text(attempt, "beforehand.attempt.end"), text(wait, "beforehand.reason")) == ("deferred", "deferred")


@virtual
async def test_a_call_of_which_a_model_is_told_that_it_is_pending_waits_until_it_is_answered(lab: Lab):
    """The model goes on at once, and the call waits on."""

    @tool
    async def book(room: str) -> str:
        raise Deferred("the hotel confirms by mail", within=DAY, key="B-7")

    @agent(run_id="r-{name}", tools=[book])
    async def desk(run: Run, name: str) -> str:
        told = await run.call("book", {"room": name})
        await run.sleep(timedelta(hours=2))
        return told.status

    traced = Traced()
    async with lab.app(desk, telemetry=traced.follower()) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "ann")
        assert traced.spans("wait book") == []
        await lab.pass_time(hours=3)
        await app.service.deliver("B-7", ArrivedAnswer("m1", result=result("room 12")))
        assert await app.run(desk, "ann") == "pending"
    wait = traced.one("wait book")
    assert (wait.end_time - wait.start_time) // 10**9 == 3 * 3600


# --- every record that begins or ends a span, and what the span says ---------------------------------------------------

ARGUMENTS, REPLY = r.Raw(b'{"n":7}'), b'{"text":"hi","stop":"end"}'
PAY = r.Intent(tool="pay", arguments=ARGUMENTS, digest="", contract="")
ANSWERED = r.Raw(b'"ok"')
OWN = {"attempt": "execute_tool", "chat": "chat", "verify": "verify", "wait": "wait", "person": "ask_person"}
NUMBER, END, WHY, FUNCTION = (
    "beforehand.attempt",
    "beforehand.attempt.end",
    "beforehand.reason",
    "beforehand.decision.function",
)
GIVEN, TAKEN, SAID = "gen_ai.tool.call.arguments", "gen_ai.tool.call.result", "gen_ai.output.messages"


def begins(number: int = 1, at: int = 1, step: str = "pay#1", intent: r.Intent | None = PAY) -> r.AttemptStarted:
    return r.AttemptStarted(step=step, number=number, intent=intent, at=at)


def ends(kind: r.EndKind, code: str = "", number: int = 1, at: int = 5, result: r.Raw = r.NOTHING) -> r.AttemptEnded:
    return r.AttemptEnded(step="pay#1", number=number, end=r.End(kind, code=code, result=result), at=at)


def settles(status: Any = "succeeded", at: int = 9, **fields: Any) -> r.OperationSettled:
    return r.OperationSettled(step="pay#1", status=status, at=at, **fields)


def decides(at: int = 9, **fields: Any) -> r.DecisionRecorded:
    return r.DecisionRecorded(**{"step": "ask#1", "function": "ask", "digest": "", "at": at, **fields})


def reads(**fields: Any) -> r.ReadRecorded:
    return r.ReadRecorded(step="look#1", tool="look", arguments=ARGUMENTS, digest="", at=9, **fields)


def shown(
    kind: SpanKind, step: str, times: tuple[int, int], more: dict[str, Any], *, tool: str = "", name: str = "", error: str = "",
    number: int | None = None,
) -> SpanValue:  # fmt: skip
    """A span with what all spans say of their run, their step and their tool."""
    common = {"gen_ai.operation.name": OWN[kind], "beforehand.run": "r-ann", "beforehand.step": step}
    if tool:
        common |= {"gen_ai.tool.name": tool, "gen_ai.tool.call.id": f"r-ann/{step}"}
    name = name or f"{OWN[kind]} {tool}".strip()
    return SpanValue(kind, name, *times, {**common, **more}, error, None if number is None else (step, number))


def paid(more: dict[str, Any], times: tuple[int, int] = (1, 5), number: int = 1, error: str = "") -> SpanValue:
    return shown("attempt", "pay#1", times, {NUMBER: number, **more}, tool="pay", error=error, number=number)


def waited(why: str, times: tuple[int, int]) -> SpanValue:
    return shown("wait", "pay#1", times, {WHY: why}, tool="pay")


def asked(why: str, times: tuple[int, int]) -> SpanValue:
    return shown("person", "pay#1", times, {WHY: why}, tool="pay")


def chatted(more: dict[str, Any], times: tuple[int, int], name: str = "chat ask", error: str = "") -> SpanValue:
    return shown(
        "chat", "ask#1", times, {FUNCTION: "ask", "gen_ai.provider.name": "_OTHER", **more}, name=name, error=error
    )


def looked(status: str, attempts: int, error: str = "") -> SpanValue:
    more = {NUMBER: attempts, END: status}
    return shown("attempt", "look#1", (9, 9), more, tool="look", error=error, number=attempts)


PARKED = r.OperationParked(step="pay#1", why="why", rule="the policy asks", at=6)
BOUNDARY = r.TransactionParked(transaction="trip", why="why", at=2)
QUESTION = r.QuestionAsked(step="ask#1", question=Question("may I?"), at=2)
SLEEP = r.TimerSet(step="sleep#1", until=9, at=2)
AGAIN = r.WaitScheduled(step="pay#1", ms=4, until=9, why="why", rule="retry", at=5)
ASKED = shown("person", "ask#1", (2, 8), {WHY: "question"})
TRIP = shown("person", "trip", (2, 8), {WHY: "transaction"})
DEFERRED = r.OperationDeferred(step="pay#1", number=1, until=99, at=3)
ACCEPTED = [paid({END: "deferred"}, (1, 3)), waited("deferred", (3, 9))]

ROWS: dict[str, tuple[list[r.Record], list[SpanValue]]] = {
    "returned, and settled at once": ([begins(), settles(end=r.End("returned"), at=5)], [paid({END: "returned"})]),
    "returned": ([begins(), ends("returned")], [paid({END: "returned"})]),
    "rejected": ([begins(), ends("rejected", "sold_out")], [paid({END: "rejected"}, error="sold_out")]),
    "ambiguous": ([begins(), ends("ambiguous")], [paid({END: "ambiguous"}, error="ambiguous")]),
    "its end is on record twice": ([begins(), ends("returned"), ends("returned")], [paid({END: "returned"})]),
    "its beginning is not on record": ([ends("returned")], []),
    "two attempts and the wait between": (
        [begins(), ends("not_sent"), AGAIN, begins(2, 9, intent=None), ends("returned", number=2, at=12)],
        [paid({END: "not_sent"}, error="not_sent"), waited("retry", (5, 9)), paid({END: "returned"}, (9, 12), 2)],
    ),
    "a wait without a rule": ([begins(), replace(AGAIN, rule=""), settles()], [waited("wait", (5, 9))]),
    "accepted, and answered later": ([begins(), DEFERRED, settles()], ACCEPTED),
    "accepted, and told so": (
        [begins(), DEFERRED, r.Delivered(step="pay#1", told="pending", at=4), settles()], ACCEPTED,
    ),
    "a look": (
        [begins(), r.Verified(step="pay#1", verdict="absent", at=7)],
        [shown("verify", "pay#1", (7, 7), {"beforehand.verification.verdict": "absent"}, tool="pay")],
    ),
    "unknown, and resolved": (
        [begins(), settles("unknown", 5, rule="no look", end=r.End("ambiguous")), settles("failed")],
        [paid({END: "ambiguous"}, error="ambiguous"), asked("no look", (5, 9))],
    ),
    "unknown without a rule": ([begins(), settles("unknown", 5), settles("failed")], [asked("unknown", (5, 9))]),
    "parked, and settled": ([begins(), PARKED, settles()], [asked("the policy asks", (6, 9))]),
    "parked twice": ([begins(), PARKED, replace(PARKED, at=7), settles()], [asked("the policy asks", (6, 9))]),
    "parked without a rule": ([begins(), replace(PARKED, rule=""), settles()], [asked("question", (6, 9))]),
    "a question": (
        [QUESTION, r.EventReceived(step="ask#1", event="", key="", payload=ANSWERED, entry=1, at=8)], [ASKED],
    ),
    "a transaction": ([BOUNDARY, r.TransactionResolved(transaction="trip", word="retry", by="ann", at=8)], [TRIP]),
    "asleep": ([SLEEP, r.TimerFired(step="sleep#1", at=8)], [shown("wait", "sleep#1", (2, 8), {WHY: "sleep"})]),
    "waits for an event": (
        [replace(SLEEP, event="paid"), r.TimerFired(step="sleep#1", at=8)],
        [shown("wait", "sleep#1", (2, 8), {WHY: "event"})],
    ),
    "a read": ([reads(attempts=3)], [looked("succeeded", 3)]),
    "a read that failed": ([reads(status="failed", code="gone")], [looked("failed", 1, "gone")]),
    "a read that failed without a code": ([reads(status="failed")], [looked("failed", 1, "failed")]),
    "a decision": ([decides(ms=3)], [chatted({}, (6, 9))]),
    "a decision that was announced": (
        [r.DecisionStarted(step="ask#1", function="ask", at=2), decides(ms=3, model="large")],
        [chatted({"gen_ai.response.model": "large"}, (2, 9), "chat large")],
    ),
    "a decision with all that it used": (
        [decides(input_tokens=1, output_tokens=2, cached_tokens=3, cache_write_tokens=4, reasoning_tokens=5,
                 model="large", service="example", request="q-1")],
        [chatted({
            "gen_ai.usage.input_tokens": 1, "gen_ai.usage.output_tokens": 2, "gen_ai.usage.cache_read.input_tokens": 3,
            "gen_ai.usage.cache_creation.input_tokens": 4, "gen_ai.usage.reasoning.output_tokens": 5,
            "gen_ai.response.model": "large", "gen_ai.provider.name": "example", "gen_ai.response.id": "q-1",
        }, (9, 9), "chat large")],
    ),
    "a decision that failed": ([decides(status="failed", code="busy")], [chatted({}, (9, 9), error="busy")]),
    "a decision that failed without a code": ([decides(status="failed")], [chatted({}, (9, 9), error="failed")]),
    "a process that was lost": (
        [r.DecisionStarted(step="ask#1", function="ask", at=2), begins(), r.Claimed(worker="w", token=2, boot="", at=8)],
        [shown("chat", "ask#1", (2, 8), {}, error="lost")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("row", ROWS)
def test_each_record_begins_and_ends_the_spans_of_its_row(row: str):
    records, expected = ROWS[row]
    spans = RunSpans("r-ann")
    assert [span for record in records for span in spans.add(record)] == expected


@pytest.mark.parametrize(
    "beside",
    [
        r.Reobserved(step="pay#1", reading="same", at=7),
        r.Contradicted(step="pay#1", evidence="", at=7),
        r.LateReport(step="pay#1", number=1, end=r.End("returned"), at=7),
        r.CallerLeft(step="pay#1", at=7),
        r.Delivered(step="pay#1", told="pending", at=7),
    ],
    ids=lambda beside: type(beside).__name__,
)
def test_what_is_learned_of_a_call_that_waits_does_not_end_the_wait(beside: r.Record):
    spans = RunSpans("r-ann")
    assert [span for one in (begins(), AGAIN, beside, settles()) for span in spans.add(one)] == [
        waited("retry", (5, 9))
    ]


@pytest.mark.parametrize(
    "answer",
    [
        r.ApprovalGranted(step="pay#1", approval="", by="ann", at=9),
        r.ApprovalRefused(step="pay#1", approval="", by="ann", at=9),
        r.ArgumentsEdited(step="pay#1", approval="", by="ann", changes=ARGUMENTS, at=9),
        r.ResultGiven(step="pay#1", approval="", by="ann", result=ANSWERED, at=9),
        r.Resolved(step="pay#1", word="retry", by="ann", attempts=1, at=9),
        r.EventReceived(step="pay#1", event="", key="", payload=ANSWERED, entry=1, at=9),
    ],
    ids=lambda answer: type(answer).__name__,
)
def test_every_answer_of_a_person_ends_the_span_of_its_question(answer: r.Record):
    spans = RunSpans("r-ann")
    assert [span for one in (begins(), PARKED, answer) for span in spans.add(one)] == [asked("the policy asks", (6, 9))]


MESSAGE = '[{"role":"assistant","parts":[{"type":"text","content":"hi"}],"finish_reason":"end"}]'
CONTENTS: dict[str, tuple[list[r.Record], dict[str, str]]] = {
    "the end has the result": ([begins(), ends("returned", result=ANSWERED)], {GIVEN: '{"n":7}', TAKEN: '"ok"'}),
    "the outcome has the result": (
        [begins(), settles(end=r.End("returned"), result=ANSWERED)], {GIVEN: '{"n":7}', TAKEN: '"ok"'},
    ),
    "no result": ([begins(), ends("rejected")], {GIVEN: '{"n":7}'}),
    "a later attempt has the arguments of the first": ([begins(intent=None), ends("ambiguous")], {}),
    "a read": ([reads(result=ANSWERED)], {GIVEN: '{"n":7}', TAKEN: '"ok"'}),
    "a model in the loop": ([decides(function="model", result=r.Raw(REPLY))], {SAID: MESSAGE}),
    "a model that gave no answer": ([decides(function="model", status="failed")], {}),
    "a decision": ([decides(result=ANSWERED)], {}),
    "too long": ([begins(), ends("returned", result=r.Raw(b"x" * 20_000))], {GIVEN: '{"n":7}', TAKEN: "x" * 16_384}),
}  # fmt: skip


@pytest.mark.parametrize("row", CONTENTS)
def test_contents_are_attributes_where_they_are_wanted_and_nowhere_else(row: str):
    """A span with contents is the one without them, and what it says more are the contents."""
    records, expected = CONTENTS[row]
    (bare,), (full,) = (
        [span for record in records for span in spans.add(record)]
        for spans in (RunSpans("r-ann"), RunSpans("r-ann", contents=True))
    )
    assert {GIVEN, TAKEN, SAID}.isdisjoint(bare.attributes)
    assert full == replace(bare, attributes=bare.attributes | expected)


@pytest.mark.parametrize(
    ("record", "ending"),
    [
        (None, ("", "")),
        (r.RunCompleted(result=ANSWERED), ("completed", "")),
        (r.RunSuspendedRecord(reason="waits"), ("suspended", "")),
        (r.RunStoppedRecord(reason="failed", error="the text of a user"), ("stopped", "failed")),
        (r.RunUndone(by="ann"), ("undone", "")),
    ],
    ids=["nothing", "completed", "suspended", "stopped", "undone"],
)
def test_a_run_ends_as_its_last_record_says(record: r.Record | None, ending: tuple[str, str]):
    spans = RunSpans("r-ann")
    if record is not None:
        assert spans.add(record) == []
    assert spans.ending == ending
