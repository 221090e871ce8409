"""One run folded from its records: its state, what its code was told and in which order."""

from __future__ import annotations

import msgspec
import pytest

from beforehand.model import records as r
from beforehand.model.outcome import Basis
from beforehand.model.run_history import RunHistory
from beforehand.model.transitions import IllegalTransition

INTENT = r.Intent("charge", r.Raw(b"{}"), "digest", "contract")
RETURNED = Basis("returned")


def history(*records: r.Record) -> RunHistory:
    told = RunHistory("desk")
    for record in records:
        told.add(record)
    return told


STARTED = r.RunStarted(agent="desk", input=r.Raw(b"1"), digest="d", version="v1")
CLAIMED = r.Claimed(worker="w1", token=4, boot="monday")


def planned(step: str = "charge#1") -> r.OperationPlanned:
    return r.OperationPlanned(step=step, intent=INTENT)


def settled(step: str = "charge#1") -> r.OperationSettled:
    return r.OperationSettled(step=step, status="succeeded", basis=RETURNED)


def test_a_run_that_nobody_started_is_new():
    assert (history().lifecycle.status, history().records) == ("new", 0)


def test_a_run_starts_and_its_owner_is_known():
    told = history(STARTED, CLAIMED)
    assert (told.lifecycle.status, told.lifecycle.started, told.ownership.owners, told.ownership.boot) == (
        "running",
        STARTED,
        {4: CLAIMED},
        "monday",
    )
    assert (told.ownership.number_of_claim, told.records) == (1, 2)


def test_a_claim_wakes_what_was_suspended_and_nothing_else():
    told = history(STARTED, r.RunSuspendedRecord(reason="a person"))
    assert (told.lifecycle.status, told.lifecycle.reason) == ("suspended", "a person")
    told.add(CLAIMED)
    assert told.lifecycle.status == "running"
    stopped = history(STARTED, r.RunStoppedRecord(reason="error"), CLAIMED)
    assert stopped.lifecycle.status == "stopped"


@pytest.mark.parametrize(
    "progress",
    [
        r.ReadRecorded(step="look#1", tool="look", arguments=r.Raw(b"{}"), digest="d"),
        r.DecisionRecorded(step="rule#1", function="rule", digest="d"),
        r.ValueRecorded(step="now#1", what="now", value=r.Raw(b"1")),
        r.TimerFired(step="sleep#1"),
        r.EventReceived(step="wait#1", event="paid", key="k", payload=r.Raw(b"{}"), entry=9),
    ],
    ids=lambda record: type(record).__name__,
)
def test_progress_ends_no_claim_that_may_have_killed_its_process(progress):
    second = msgspec.structs.replace(CLAIMED, worker="w2", token=5, number=2)
    told = history(STARTED, CLAIMED, second)
    assert (told.ownership.number_of_claim, told.ownership.fruitless) == (2, (CLAIMED, second))
    told.add(progress)
    assert (told.ownership.unended, told.ownership.fruitless) == ((CLAIMED, second), ())


@pytest.mark.parametrize(
    ("end", "left"),
    [
        (r.RunSuspendedRecord(reason="it waits"), 0),
        (r.RunReopened(by="ann"), 0),
        (r.RunSuspendedRecord(reason="it waits", last_chance=True), 1),
    ],
)
def test_an_orderly_end_absolves_the_run_and_on_its_last_chance_only_the_present_owner(end, left):
    second = msgspec.structs.replace(CLAIMED, worker="w2", token=5, number=2)
    told = history(STARTED, CLAIMED, second, end)
    assert (told.ownership.number_of_claim, told.ownership.fruitless) == (left, ())


def test_a_second_death_in_one_operation_is_charged_to_the_operation():
    died = r.End("lost", why="its process died", died=True)
    second = msgspec.structs.replace(CLAIMED, worker="w2", token=5, number=2)
    third = msgspec.structs.replace(CLAIMED, worker="w3", token=6, number=3)
    told = history(
        STARTED,
        CLAIMED,
        r.AttemptStarted(step="charge#1", number=1, token=4, send_by=1, intent=INTENT),
        second,
        r.AttemptEnded(step="charge#1", number=1, end=died),
        r.AttemptStarted(step="charge#1", number=2, token=5, send_by=1, intent=INTENT),
        third,
    )
    assert told.ownership.unended == (CLAIMED, second, third)
    told.add(r.AttemptEnded(step="charge#1", number=2, end=died))
    assert told.ownership.unended == (CLAIMED, third)


def test_the_end_of_an_attempt_is_progress_its_start_is_not():
    started = r.AttemptStarted(step="charge#1", number=1, token=4, send_by=1, intent=INTENT)
    told = history(STARTED, CLAIMED, started)
    assert told.ownership.fruitless == (CLAIMED,)
    told.add(r.AttemptEnded(step="charge#1", number=1, end=r.End("returned")))
    assert told.ownership.fruitless == ()
    told = history(STARTED, CLAIMED, started, settled())
    assert told.ownership.fruitless == ()


def test_attempts_carry_the_boot_of_the_last_claim():
    started = r.AttemptStarted(step="charge#1", number=1, token=4, send_by=1, intent=INTENT)
    told = history(STARTED, CLAIMED, started)
    assert told.operations["charge#1"].attempts[0].boot == "monday"


def test_answers_are_told_once_in_the_order_of_their_records():
    first = r.ValueRecorded(step="now#1", what="now", value=r.Raw(b"1"))
    told = history(STARTED, planned(), first, settled(), r.TimerFired(step="sleep#1"))
    assert [(one.index, one.step) for one in told.delivered.by_step.values()] == [
        (0, "now#1"),
        (1, "charge#1"),
        (2, "sleep#1"),
    ]
    assert told.steps.answers["now#1"] == first


def test_a_failed_decision_is_asked_again_though_the_call_beside_it_was_cancelled_and_settled_after_it():
    told = history(
        STARTED,
        r.DecisionStarted(step="rule#1", function="rule"),
        r.DecisionStarted(step="rule#2", function="rule"),
        r.DecisionRecorded(step="rule#1", function="rule", digest="d", status="failed", reason="no"),
        r.ReservationSettled(step="rule#2"),
        r.RunStoppedRecord(reason="error", error="DecisionFailed"),
        r.RunReopened(by="eve"),
    )
    assert "rule#1" not in told.steps.answers


def test_an_event_is_taken_once():
    told = history(r.EventReceived(step="wait#1", event="paid", key="k", payload=r.Raw(b"{}"), entry=9))
    assert told.steps.events_taken.keys() == {9}


def test_what_the_code_was_told_first_is_what_it_is_told_again():
    told = history(planned(), r.Delivered(step="charge#1", told="unknown", detail="d"), settled())
    assert [(one.step, one.kind, one.detail) for one in told.delivered.by_step.values()] == [
        ("charge#1", "unknown", "d")
    ]


def test_a_caller_that_left_was_told_that():
    told = history(planned(), settled(), r.CallerLeft(step="charge#1"), r.CallerLeft(step="other#1"))
    assert [(one.step, one.kind) for one in told.delivered.by_step.values()] == [
        ("charge#1", "left"),
        ("other#1", "left"),
    ]


def test_an_outcome_after_its_caller_left_is_told_to_nobody():
    told = history(planned(), r.CallerLeft(step="charge#1"), settled())
    assert [(one.step, one.kind) for one in told.delivered.by_step.values()] == [("charge#1", "left")]


def test_a_settled_step_that_was_told_is_forgotten_an_open_one_never():
    told = history(planned("a#1"), settled("a#1"), planned("b#1"), r.TimerSet(step="c#1", until=1))
    for step in ("a#1", "b#1", "c#1"):
        told.forget(step)
    assert (set(told.operations), told.steps.timers) == ({"b#1"}, {})


def test_what_comes_after_an_outcome_tells_nothing_again():
    told = history(planned(), settled())
    del told.delivered.by_step["charge#1"]
    told.add(r.Contradicted(step="charge#1", evidence="a webhook"))
    assert told.delivered.by_step == {}


def test_amends_are_told_to_nobody():
    intent = r.Intent("refund", r.Raw(b"{}"), "d", "c", compensates="charge#1")
    record = r.OperationPlanned(step="refund#1", intent=intent)
    done = r.OperationSettled(step="refund#1", status="succeeded", basis=RETURNED)
    assert history(record, done).delivered.by_step == {}


def test_an_unknown_outcome_is_no_delivery():
    started = r.AttemptStarted(step="charge#1", number=1, token=4, send_by=1, intent=INTENT)
    told = history(started, r.OperationSettled(step="charge#1", status="unknown", basis=Basis("rule")))
    assert told.delivered.by_step == {}
    assert [operation.phase for operation in told.open_operations()] == ["unknown"]


def test_open_operations_are_those_without_a_final_outcome():
    told = history(planned("a#1"), planned("b#1"), settled("a#1"))
    assert [operation.step for operation in told.open_operations()] == ["b#1"]


def test_timers_decisions_and_contracts_are_kept_by_name():
    timer = r.TimerSet(step="sleep#1", until=5)
    stored = r.ContractStored(digest="c", clauses=r.Raw(b"{}"))
    told = history(timer, stored, r.DecisionStarted(step="rule#1", function="rule", number=2))
    assert (told.steps.timers, told.contracts, told.steps.decisions_begun) == (
        {"sleep#1": timer},
        {"c": stored},
        {"rule#1": 2},
    )


def test_commands_from_outside_are_taken_once_each():
    cancel = r.CommandApplied(command="cancel", by="ann", entry=3)
    pause = r.CommandApplied(command="pause", by="ann", entry=5)
    told = history(STARTED, cancel, pause)
    assert (told.lifecycle.cancelled, told.lifecycle.paused, told.entry_seen) == (cancel, pause, 5)
    told.add(r.CommandApplied(command="unpause", by="ann", entry=4))
    assert (told.lifecycle.paused, told.entry_seen) == (None, 5)
    told.add(r.CommandApplied(command="interrupt", by="ann", entry=6, note="LaGuardia"))
    assert (told.lifecycle.reason, told.entry_seen) == ("LaGuardia", 6)


def test_a_fork_says_where_it_comes_from():
    told = history(STARTED, r.CommandApplied(command="fork", by="ann", entry=7, run="old", note="from charge#2"))
    assert (told.lifecycle.forked_from, told.lifecycle.reason, told.entry_seen) == ("old", "from charge#2", 7)


def test_a_run_that_was_undone_names_who_wanted_it():
    told = history(STARTED, r.RunUndone(by="ann"))
    assert (told.lifecycle.status, told.lifecycle.reason) == ("undone", "undone by ann")


@pytest.mark.parametrize("others", [(), ("mail#1",)], ids=["the only one", "one of two"])
def test_a_first_record_that_could_not_be_stored_takes_its_contract_back_unless_another_uses_it(others):
    stored = r.ContractStored(digest="contract", clauses=r.Raw(b"{}"))
    told = history(stored, *(planned(step) for step in others), planned("charge#1"))
    told.withdraw("charge#1", None)
    assert set(told.operations) == set(others)
    assert told.contracts == ({"contract": stored} if others else {})


def test_a_later_record_that_could_not_be_stored_leaves_the_operation_as_it_was():
    told = history(planned())
    before = told.operations["charge#1"]
    told.add(r.WaitScheduled(step="charge#1", ms=1, until=1, why="retry"))
    told.withdraw("charge#1", before)
    assert told.operations == {"charge#1": before}


def test_a_person_s_word_moves_the_ledger_mark():
    started = r.AttemptStarted(step="charge#1", number=1, token=4, send_by=1, intent=INTENT)
    unknown = r.OperationSettled(step="charge#1", status="unknown", basis=Basis("rule"))
    told = history(started, unknown, r.Resolved(step="charge#1", word="happened", by="ann", attempts=1, entry=8))
    assert told.entry_seen == 8


def test_a_run_completes():
    completed = r.RunCompleted(result=r.Raw(b"1"))
    told = history(STARTED, completed)
    assert (told.lifecycle.status, told.lifecycle.completed) == ("completed", completed)


def test_a_stopped_run_can_be_reopened():
    stopped = r.RunStoppedRecord(reason="diverged", error="ReplayDiverged")
    told = history(STARTED, r.CommandApplied(command="cancel", by="ann", entry=1), stopped)
    assert (told.lifecycle.status, told.lifecycle.reason, told.lifecycle.stopped) == ("stopped", "diverged", stopped)
    told.add(r.RunReopened(by="ann"))
    assert (told.lifecycle.status, told.lifecycle.reason, told.lifecycle.stopped, told.lifecycle.cancelled) == (
        "running",
        "",
        None,
        None,
    )


def test_records_that_do_not_fit_are_refused_before_they_are_taken():
    told = history(STARTED, CLAIMED)
    with pytest.raises(IllegalTransition):
        told.check([STARTED, planned(), settled(), settled()])
    told.check([planned(), settled()])
    assert told.operations == {}
    assert told.records == 2


@pytest.mark.parametrize("told", ["promise", "pending", "unknown"])
def test_a_caller_that_has_left_is_delivered_nothing_more(told: str):
    """Its branch takes no second delivery, so one would keep every later one waiting."""
    before = history(STARTED, CLAIMED, planned(), r.CallerLeft(step="charge#1"))
    before.add(r.Delivered(step="charge#1", told=told))
    assert (before.delivered.count, before.delivered.by_step["charge#1"].kind) == (1, "left")
    assert not before.delivered.promised | before.delivered.told_unknown
