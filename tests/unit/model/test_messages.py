"""Messages to a run, folded from its records: who has heard which, and what was called off by them."""

from __future__ import annotations

import msgspec

from beforehand.errors import Interrupted, Rejected
from beforehand.model import records as r
from beforehand.model.facts import Fact, Known
from beforehand.model.messages import Messages, message_of, was_interrupted
from beforehand.model.outcome import INTERRUPTED, Basis, Outcome
from beforehand.model.run_history import RunHistory

INTENT = r.Intent("charge", r.Raw(b"{}"), "digest", "contract")
STARTED = r.RunStarted(agent="desk", input=r.Raw(b"1"), digest="d")


def history(*records: r.Record) -> RunHistory:
    told = RunHistory("desk")
    for record in (STARTED, *records):
        told.add(record)
    return told


def messages(told: RunHistory) -> Messages:
    assert told.messages is not None
    return told.messages


def came(entry: int, text: str = "", *, stop: bool = False) -> r.MessageReceived:
    return r.MessageReceived(text=text or f"message {entry}", by="ann", stop=stop, entry=entry)


def planned(step: str = "charge#1", **intent: str) -> r.OperationPlanned:
    return r.OperationPlanned(step=step, intent=msgspec.structs.replace(INTENT, **intent))


def heard(step: str, *entries: int) -> r.MessageHeard:
    return r.MessageHeard(step=step, messages=entries)


def ended(kind: r.EndKind) -> tuple[r.AttemptStarted, r.AttemptEnded]:
    return r.AttemptStarted(step="charge#1", number=1, token=1, intent=INTENT), r.AttemptEnded(
        step="charge#1", number=1, end=r.End(kind)
    )


def test_a_message_is_unheard_until_code_is_told():
    told = history(came(7), came(9))
    assert told.entry_seen == 9
    assert [one.entry for one in messages(told).undelivered] == [7, 9]
    told.add(heard("sleep#1", 7))
    assert [one.entry for one in messages(told).undelivered] == [9]
    assert messages(told).delivered_at("sleep#1") == (came(7),)
    assert (told.delivered.by_step["sleep#1"].index, told.steps.answers["sleep#1"]) == (0, heard("sleep#1", 7))


def test_a_message_calls_off_what_cannot_have_landed():
    told = history(planned(), came(7))
    assert messages(told).called_off == {"charge#1": 7}
    told.add(came(8))
    assert messages(told).called_off == {"charge#1": 7}, "the first one did"
    assert messages(history(*ended("not_sent"), came(7))).called_off == {"charge#1": 7}


def test_it_does_not_call_off_what_may_have_landed_or_is_over():
    assert messages(history(*ended("ambiguous"), came(7))).called_off == {}
    done = r.OperationSettled(step="charge#1", status="cancelled", basis=Basis("rule"))
    assert messages(history(planned(), done, came(7))).called_off == {}


def test_it_does_not_call_off_what_nobody_waits_for():
    held = (planned(hold="trip"), r.OperationHeld(step="charge#1", transaction="trip"))
    assert messages(history(r.TransactionOpened(transaction="trip"), *held, came(7))).called_off == {}
    released = (*held, r.HoldReleased(step="charge#1"))
    assert messages(history(r.TransactionOpened(transaction="trip"), *released, came(7))).called_off == {}
    for serves in ("compensates", "confirms"):
        assert messages(history(planned(**{serves: "charge#1"}), came(7))).called_off == {}
    assert messages(history(came(7), planned("charge#1/undo", compensates="charge#1"))).called_off == {}
    part = (
        planned(),
        r.AttemptStarted(step="charge#1", number=1, token=1),
        planned("charge#1/eve", completes="charge#1"),
    )
    assert messages(history(*part, came(7))).called_off == {}


def test_what_is_recorded_while_nobody_has_heard_is_called_off_as_well():
    told = history(came(7), planned())
    assert messages(told).called_off == {"charge#1": 7}
    told.add(heard("charge#1", 7))
    assert "charge#1" not in told.steps.answers, "its outcome is what its code is told"
    told.add(planned("charge#2"))
    assert messages(told).called_off == {"charge#1": 7}


def test_what_only_the_branch_beside_it_has_heard_is_news_to_it_as_well():
    first, second = (planned(f"~{branch}/charge#1") for branch in (1, 2))
    told = history(came(3), heard("~2/hand_off#1", 3), came(6), first, second)
    assert messages(told).called_off == {"~1/charge#1": 3, "~2/charge#1": 6}


def test_after_a_stop_everything_new_is_called_off():
    told = history(came(7, stop=True), came(8, stop=True), heard("sleep#1", 7, 8), planned())
    assert (messages(told).stop, messages(told).called_off) == (7, {"charge#1": 9})
    assert messages(told).since(8) == (7,), "it is told again"
    assert messages(history(came(7))).since(7) == ()


def test_what_begins_after_a_stop_that_was_heard_tells_of_the_stop_and_of_no_other_message_again():
    told = history(came(7, stop=True), came(9), heard("sleep#1", 7, 9), planned())
    first = messages(told).called_off["charge#1"]
    assert messages(told).since(first - 1) == (7,)
    told.add(came(12))
    assert messages(told).since(first - 1) == (12,)


def test_whoever_left_has_heard_nothing():
    told = history(planned(), came(7), heard("charge#1", 7), r.CallerLeft(step="charge#1"))
    assert [one.entry for one in messages(told).undelivered] == [7]


def test_what_was_heard_in_a_transaction_that_begins_anew_is_heard_again():
    told = history(
        r.TransactionOpened(transaction="trip"), came(7), came(8), heard("sleep#1", 8), heard("trip/sleep#1", 7),
        r.TransactionAborting(transaction="trip", reason="r"), r.TransactionAbortedRecord(transaction="trip"),
        r.RunStoppedRecord(reason="error", renews=("trip",)), r.RunReopened(by="bea"),
    )  # fmt: skip
    assert [one.entry for one in messages(told).undelivered] == [7]


def test_a_message_as_code_reads_it():
    record = r.MessageReceived(text="there", by="ann", facts=(r.Reported("city", r.Raw(b'"LGA"')),), stop=True, at=5)
    message = message_of(record)
    assert (message.text, message.sender, message.facts, message.stop) == ("there", "ann", {"city": "LGA"}, True)
    assert message.at_ms == 5


def test_a_refusal_that_has_the_same_code_is_none_of_a_message():
    for basis, interrupted in ((Basis("rule"), True), (Basis("returned"), False)):
        told = history(
            planned(), r.OperationSettled(step="charge#1", status="cancelled", basis=basis, code=INTERRUPTED)
        )
        assert was_interrupted(told.operations["charge#1"]) is interrupted
    assert not was_interrupted(history(planned()).operations["charge#1"])


def test_the_last_message_is_the_newest():
    assert messages(history(came(7), came(9))).last == 9


def test_what_rests_on_a_fact_rests_on_what_was_inferred_from_it():
    known = Known()
    known.learn(Fact("city", "JFK", "ann", 1))
    known.learn(Fact("fare", 9, "a model", 1, inferred_from=("city",), inferred=True))
    known.plan("trip/fly", ("city",), {"city": "JFK"})
    known.plan("trip/pay", ("fare",), {"fare": 9})
    known.rely("later", ("city",))
    assert known.resting_on("city", "LGA") == {"trip/fly", "trip/pay"}, "what no plan does is for the code to look at"
    assert known.resting_on("fare", 8) == {"trip/pay"}
    assert known.resting_on("city", "JFK") == known.resting_on("age", 3) == set()


def test_what_a_message_called_off_is_told_as_the_message():
    said = Basis("person", "ann", "LaGuardia")
    for code, stop, do in (
        ("interrupted", False, "Decide again"), ("stopped", True, "Do not call tools that change anything any more"),
    ):  # fmt: skip
        outcome = Outcome[str]("cancelled", "trip/book#1", "book", said, code=code, facts={"city": "LGA"})
        error = outcome.error()
        assert isinstance(error, Interrupted)
        assert (error.text, error.sender, error.facts, error.stop, error.run) == (
            "LaGuardia", "ann", {"city": "LGA"}, stop, "trip",
        )  # fmt: skip
        assert outcome.as_text() == f"Not sent: ann says: LaGuardia. {do}.\ncity is now LGA."
    refused = Outcome[str]("failed", "trip/book#1", "book", Basis("returned"), "closed", code="stopped")
    assert isinstance(refused.error(), Rejected)
    assert refused.as_text() == "Failed [stopped]: closed. Nothing was changed."


def test_what_came_while_it_might_have_landed_is_told_with_what_calls_it_off():
    started, unsent = ended("not_sent")
    told = history(planned(), started, came(7), unsent, came(9))
    assert messages(told).called_off == {"charge#1": 7}
