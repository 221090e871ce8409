"""A synchronous tool whose time is over while its thread lives on: no further attempt, and its answer counts."""

from beforehand.model import records as r
from tests.crash.checks import check
from tests.crash.stage import until
from tests.races.program import READS


def test_no_attempt_starts_while_the_thread_lives(case):
    case.ask("rule", of="keyed", rule={"hold": "before"})
    worker = case.start(agent="waits_on_a_thread", input="order")
    given_up(case)
    case.ask("await", of="read", count=READS)
    assert sum(request["kind"] == "keyed" for request in case.world()["requests"]) == 1
    case.ask("release", of="keyed")
    ended = case.wait(worker)
    assert ended.answer.get("status") == "completed", (ended.answer, ended.log)
    history, _ = check(case.stored(), case.world(), "run")
    assert len(history.operations["~1/slow_charge#1"].attempts) == 1
    kinds = [
        type(record)
        for record in case.stored().records("run")
        if getattr(record, "step", "") == "~1/slow_charge#1"
        and not isinstance(record, r.WaitScheduled)  # between the end of the thread and the record of its answer
    ]
    assert kinds == [r.AttemptStarted, r.AttemptEnded, r.LateReport, r.OperationSettled]


def test_a_thread_that_dies_with_its_process_is_tried_again_under_its_key(case):
    case.ask("rule", of="keyed", rule={"hold": "before"})
    worker = case.start(agent="waits_on_a_thread", input="order")
    given_up(case)
    case.signal(worker, "SIGKILL")
    assert case.wait(worker).killed
    case.ask("release", of="keyed")
    ended = case.work(agent="waits_on_a_thread", input="order")
    assert ended.answer.get("status") == "completed", (ended.answer, ended.log)
    history, testimony = check(case.stored(), case.world(), "run")
    assert testimony.effects("run/~1/slow_charge#1") == 1
    assert [attempt.number for attempt in history.operations["~1/slow_charge#1"].attempts] == [1, 2]


def given_up(case):
    """Return when the record says that the caller has given up while the call lives."""
    case.ask("await", of="keyed", count=1)
    until(
        lambda: any(isinstance(record, r.AttemptEnded) and not record.over for record in case.stored().records("run"))
    )
