"""Timelines from records: what becomes a line, what becomes a note below it, and what is no news."""

import msgspec
import pytest

from beforehand.inspect.render_records import end_text, plain_input, verdict_text
from beforehand.inspect.timeline import Timeline, timeline, timeline_entries
from beforehand.model import records as r
from beforehand.model.facts import Correction, Fact, Weighed
from beforehand.model.outcome import RETURNED, Basis
from beforehand.model.plan import Call, Chosen, Plan, PlanStep
from beforehand.model.usage import Usage

INTENT = r.Intent("pay", r.Raw(b'{"order":"1"}'), "d", "c")
START = (
    r.RunStarted(agent="desk", input=r.Raw(b'{"input":1}'), digest="d", at=1000),
    r.Claimed(worker="w1", token=1, boot="b", at=1000),
)


def story(*records: r.Record) -> Timeline:
    return timeline("run-1", [*START, *records])


def paid(at: int = 1010, **fields: object) -> r.OperationSettled:
    settled = r.OperationSettled(
        step="pay#1", status="succeeded", basis=RETURNED, result=r.Raw(b'"r1"'), at=at, number=1, end=r.End("returned")
    )
    return msgspec.structs.replace(settled, **fields)


def test_a_clean_success_is_one_line():
    told = story(r.AttemptStarted(step="pay#1", number=1, token=1, send_by=10, intent=INTENT, at=1001), paid())
    (entry,) = told.entries
    assert (entry.kind, entry.name, entry.mark, entry.text, entry.notes) == ("write", "pay", "ok", '"r1"', [])


def test_a_decision_that_is_asked_again_names_what_is_on_record_of_the_call_before():
    befores = (Usage(), Usage(model="m-1"), Usage(model="m-2", refused=True), Usage(refused=True), Usage())
    told = story(
        *(r.DecisionStarted("model#1", "model", number, before, at=1001) for number, before in enumerate(befores, 1))
    )
    assert [(note.label, note.text) for note in told.entries[0].notes] == [
        ("attempt 2", "asked again: m-1 gave no usable answer"),
        ("attempt 3", "asked again: m-2 refused, or was not reached"),
        ("attempt 4", "asked again: the model refused, or was not reached"),
        ("attempt 5", "asked again"),
    ]


def test_attempts_waits_and_verdicts_stand_below_in_order():
    lost = r.End("ambiguous", why="timeout")
    told = story(
        r.AttemptStarted(step="pay#1", number=1, token=1, send_by=10, intent=INTENT, at=1001),
        r.AttemptEnded(step="pay#1", number=1, end=lost, at=1031),
        r.Verified(step="pay#1", verdict="did_not_happen", at=1040),
        r.WaitScheduled(step="pay#1", ms=1500, until=2540, why="verify", rule="until the next reading", at=1041),
        r.Verified(step="pay#1", verdict="happened", evidence="found it", result=r.Raw(b'"r1"'), at=2550),
        r.OperationSettled(
            step="pay#1",
            status="succeeded",
            basis=Basis("evidence", "read back"),
            rule="found by verification",
            result=r.Raw(b'"r1"'),
            at=2551,
        ),
    )
    (entry,) = told.entries
    assert [(note.label, note.text, note.took_ms) for note in entry.notes] == [
        ("attempt 1", "may have landed: timeout", 30),
        ("read back", "not there yet, too early to believe", None),
        ("wait", "1.5 s: until the next reading", None),
        ("read back", "it is there: found it", None),
        ("decided", "succeeded: found by verification", None),
    ]
    assert entry.text == '"r1" (proven by evidence: read back)'


def test_a_late_answer_is_told_where_it_came():
    told = story(
        r.AttemptStarted(step="pay#1", number=1, token=1, send_by=10, intent=INTENT, at=1001),
        r.AttemptEnded(step="pay#1", number=1, end=r.End("ambiguous", why="timeout"), over=False, at=1031),
        r.LateReport(step="pay#1", number=1, end=r.End("returned", result=r.Raw(b"1")), at=1500),
    )
    assert [note.text for note in told.entries[0].notes] == [
        "may have landed: timeout",
        "attempt 1 after all: returned",
    ]


def test_being_taken_up_and_put_down_for_the_same_reason_is_no_news():
    waits = r.RunSuspendedRecord(reason="waits for bea")
    again = (r.Claimed(worker="w2", token=2, boot="b"), waits)
    told = story(
        waits, *again, *again, r.Claimed(worker="w3", token=4, boot="b"), r.RunSuspendedRecord(reason="waits for eve")
    )
    assert [(entry.step, entry.text) for entry in told.entries] == [
        ("suspended", "waits for bea"),
        ("taken up", "again, by process number 3"),
        ("suspended", "waits for eve"),
    ]


def test_reads_decisions_values_and_timers_have_lines_of_their_own():
    told = story(
        r.ReadRecorded(step="look#1", tool="look", arguments=r.Raw(b"{}"), digest="d", result=r.Raw(b"7"), attempts=2),
        r.DecisionStarted(step="rule#1", function="rule"),
        r.DecisionRecorded(
            step="rule#1",
            function="rule",
            digest="d",
            result=r.Raw(b"5"),
            why="policy",
            confidence=0.5,
            cost=0.25,
            input_tokens=9,
            output_tokens=1,
        ),
        r.ValueRecorded(step="now#1", what="now", value=r.Raw(b"12")),
        r.TimerSet(step="sleep#1", until=60_000),
        r.TimerSet(step="wait_for:ok#1", until=0, event="ok", key="k"),
        r.EventReceived(step="wait_for:ok#1", event="ok", key="k", payload=r.Raw(b"true"), entry=1),
        r.CommandApplied(command="pause", by="bea", entry=2, note="lunch"),
        r.RunStoppedRecord(reason="error", error="ValueError: x"),
    )
    assert [(entry.kind, entry.mark, entry.text) for entry in told.entries] == [
        ("read", "ok", "7 (attempt 2)"),
        ("decision", "ok", "5"),
        ("value", "info", "12"),
        ("timer", "open", "waits for its time, until 1970-01-01 00:01:00 UTC"),
        ("event", "ok", "ok k came from a program: true"),
        ("run", "info", "by bea: lunch"),
        ("run", "failed", "error: ValueError: x"),
    ]
    assert [(note.label, note.text) for note in told.entries[1].notes] == [
        ("why", "policy"),
        ("model", "confidence 0.5, 9 + 1 tokens, cost 0.25"),
    ]


def value(what: str, given: object) -> r.ValueRecorded:
    return r.ValueRecorded(step=f"{what}#1", what=what, value=r.Raw(msgspec.json.encode(given)))


def test_facts_and_what_was_chosen_in_a_plan_are_told_with_their_reasons():
    trip = Plan(
        goal="fly",
        name="trip",
        steps=(
            PlanStep(id="look", primary=Call("search")),
            PlanStep(id="seat", primary=Call("book"), fallbacks=(Call("wait"),)),
        ),
    )
    told = story(
        value("weighed:airport", Weighed("airport", "infer", 1, 0.9, 0.7)),
        value("weighed:city", Weighed("city", "ask", 1, None)),
        value("fact:airport", Fact("airport", "JFK", "two earlier trips", 5, 0.7, ("city",), True)),
        value("corrected:city", Correction("city", ("airport",), ("seat",), ("look",))),
        value("plan:trip", msgspec.json.encode(trip).decode()),
        value("chose", msgspec.json.encode(Chosen("seat", "fallback 1", "wait", "book failed: sold out")).decode()),
        value("chose:", msgspec.json.encode(Chosen("seat", "failed", why="nothing is left")).decode()),
        value("grounds", {"corrected": ["airport"]}),
    )
    assert [(entry.mark, entry.text, [(note.label, note.text) for note in entry.notes]) for entry in told.entries] == [
        ("info", "infer", [("why", "a question costs 1, guessing 0.9")]),
        ("info", "ask", [("why", "there is nothing to infer it from")]),
        ("info", '"JFK", inferred (70%)', [("source", "two earlier trips"), ("follows from", "city")]),
        ("info", "corrected", [("unknown now", "airport"), ("dropped", "seat"), ("was executed", "look")]),
        ("info", "look (search), seat (book or wait)", [("goal", "fly")]),
        ("info", "fallback 1: wait", [("why", "book failed: sold out")]),
        ("failed", "failed", [("why", "nothing is left")]),
        ("info", "it relies on what was corrected: airport", []),
    ]
    assert bytes(told.entries[4].result or b"") == msgspec.json.encode(trip)


def test_what_only_replay_needs_is_no_part_of_the_story():
    told = story(value("over", "seat"), value("grounds", {"corrected": []}), value("now", 5))
    assert [entry.text for entry in told.entries] == ["5"]


def test_a_reuse_says_where_the_outcome_is_from():
    told = story(
        r.OutcomeReused(
            step="pay#1", source="run-0/pay#1", why="claim met a success", result=r.Raw(b'"r0"'), intent=INTENT
        )
    )
    assert told.entries[0].text == '"r0" (from run-0/pay#1; nothing was sent)'
    assert told.entries[0].mark == "ok"


ENDS = [
    (r.End("returned", lost=True), "returned, but its result could not be stored"),
    (r.End("returned", key_read=False), "returned (the tool never read its key)"),
    (r.End("rejected", why="no", code="402"), "refused: no [402]"),
    (r.End("not_sent", why="refused the connection"), "nothing was sent: refused the connection"),
    (r.End("key_in_progress"), "the system is working on our key"),
    (r.End("lost"), "may have landed: its process died"),
    (r.End("lost", why="its owner lost the lease"), "may have landed: its owner lost the lease"),
]


@pytest.mark.parametrize(("end", "text"), ENDS)
def test_how_calls_end(end: r.End, text: str):
    assert end_text(end) == text


@pytest.mark.parametrize(
    ("record", "text"),
    [
        (r.Verified(step="x", verdict="did_not_happen", believable=True), "it is not there"),
        (r.Verified(step="x", verdict="cannot_tell", evidence="down"), "cannot tell: down"),
        (r.Verified(step="x", verdict="conflict", evidence="theirs"), "something else is there: theirs"),
        (r.Verified(step="x", verdict="happened", missing=("a", "b")), "it is there (missing: a, b)"),
    ],
)
def test_verdicts(record: r.Verified, text: str):
    assert verdict_text(record) == text


def test_a_lost_result_is_said():
    told = story(
        r.AttemptStarted(step="pay#1", number=1, token=1, send_by=10, intent=INTENT), paid(lost=True, result=r.NOTHING)
    )
    assert told.entries[0].text == "done, its result was lost"


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        (
            b'{"input":{"$object":["Ticket",{"id":"1","who":{"$object":["Person",{"name":"x"}]}}]}}',
            '{"id":"1","who":{"name":"x"}}',
        ),
        (b'{"input":[1,{"a":2}]}', '[1,{"a":2}]'),
        (b'{"input":"text"}', '"text"'),
    ],
)
def test_inputs_are_shown_as_a_person_would_write_them(stored: bytes, shown: str):
    assert plain_input(r.Raw(stored)) == shown


def test_the_tokens_of_all_calls_are_summed_up():
    told = story(
        r.DecisionStarted(step="rule#1", function="rule"),
        r.DecisionStarted(step="rule#1", function="rule", number=2, before=Usage(40, 2)),
        r.DecisionRecorded(
            step="rule#1", function="rule", digest="d", input_tokens=50, output_tokens=5, cached_tokens=9
        ),
    )
    assert told.tokens == 97


def test_a_page_of_a_run_names_earlier_messages_only_where_code_received_some():
    nothing, earlier = r.MessageHeard(step="turn~1/messages#1", at=1001), r.MessageHeard("ask#1", (7,), at=1002)
    told = timeline_entries("run-1", enumerate([nothing, earlier], 201), 201, 202, to_end=True)
    assert [(entry.step, entry.status, entry.text) for entry in told] == [
        ("ask#1", "heard", "a message that arrived earlier")
    ]
