"""Processes that are stopped past their lease and their send-by deadline, overtaken, and woken up again."""

from datetime import timedelta

import pytest

from beforehand.model import records as r
from tests.crash.checks import check
from tests.crash.stage import until
from tests.races.program import SHORT

LEASE = {"lease_ms": 300, "margin_ms": 100}


def stopped(case, agent, kind):
    """A worker that stands still while the witness holds its request."""
    worker = case.start(agent=agent, input="bob", settings=LEASE)
    case.ask("await", of=kind, count=1)
    case.pause(worker)
    return worker


def overtaking(case, agent):
    """Another worker on the same run: it has the run once the lease of the first is over."""
    worker = case.start(agent=agent, input="bob", settings=LEASE)
    wait_for_owner(case, 2)
    return worker


def wait_for_owner(case, token):
    """Return when the run has been claimed with this token, as the file shows it."""
    until(
        lambda: any(isinstance(record, r.Claimed) and record.token >= token for record in case.stored().records("run"))
    )


def requests(case, kind):
    return [request for request in case.world()["requests"] if request["kind"] == kind]


def results(*ended):
    for one in ended:
        assert one.answer.get("status") == "completed", (one.status, one.answer, one.log)
    return {str(one.answer["result"]) for one in ended}


@pytest.mark.parametrize("agent", ["writes", "writes_from_a_thread"])
def test_a_stale_owner_sends_nothing_after_its_deadline(case, agent):
    """Stopped between fetching a token and sending: it wakes up when it may not send any more."""
    case.ask("rule", of="token", rule={"hold": "after"})
    stale = stopped(case, agent, "token")
    fresh = overtaking(case, agent)
    started = next(record for record in case.stored().records("run") if isinstance(record, r.AttemptStarted))
    deadline = started.at + SHORT // timedelta(milliseconds=1)
    until(lambda: any(request["at"] > deadline for request in requests(case, "search")))
    assert not requests(case, "mail"), "an absence was believed while the first process could still send"
    case.ask("release", of="token")
    case.signal(stale, "SIGCONT")
    told = results(case.wait(fresh), case.wait(stale))
    history, _ = check(case.stored(), case.world(), "run")
    assert told == {"mail-bob"}
    (sent,) = requests(case, "mail")
    assert sent["attempt"] > 1, "the first one was not sent; on a busy machine the time of the second may pass, too"
    (operation,) = history.operations.values()
    # A coroutine may be cancelled for its time before it can say that it did not send; a thread always says it.
    told_late = operation.attempts[0].end.kind
    assert told_late in ({"not_sent"} if "thread" in agent else {"not_sent", "ambiguous"}), operation.attempts
    assert_fenced(case)


def test_a_stale_owner_that_had_sent_is_found_out(case):
    """Stopped after its letter landed: the next owner reads it back, and both tell the same."""
    case.ask("rule", of="mail", rule={"hold": "after"})
    stale = stopped(case, "writes", "mail")
    fresh = case.wait(overtaking(case, "writes"))
    case.ask("release", of="mail")
    case.signal(stale, "SIGCONT")
    assert results(fresh, case.wait(stale)) == {"mail-bob"}
    check(case.stored(), case.world(), "run")
    assert len(requests(case, "mail")) == 1
    assert_fenced(case)


def test_a_gap_after_the_last_check_sends_late_and_is_waited_for(case):
    """That send cannot be stopped; but while the process lives its call counts as open, so nothing is sent again."""
    case.ask("rule", of="token", rule={"hold": "after"})
    stale = stopped(case, "writes_past_the_check", "token")
    fresh = overtaking(case, "writes_past_the_check")
    searches = len(requests(case, "search"))
    until(lambda: len(requests(case, "search")) > searches + 10)  # many absences, long after the settle window
    assert not requests(case, "mail"), "an absence was believed while the first process could still send"
    case.ask("release", of="token")
    case.signal(stale, "SIGCONT")
    assert results(case.wait(fresh), case.wait(stale)) == {"mail-bob"}
    check(case.stored(), case.world(), "run")
    assert [request["attempt"] for request in requests(case, "mail")] == [1]
    assert_fenced(case)


def test_a_gap_after_the_last_check_is_closed_by_a_system_that_honours_the_key(case):
    """The next owner does not wait: it asks under the same key, and the late request meets the stored answer."""
    case.ask("rule", of="token", rule={"hold": "after"})
    stale = stopped(case, "charges_past_the_check", "token")
    fresh = overtaking(case, "charges_past_the_check")
    until(lambda: len(requests(case, "token")) > 1)
    case.ask("release", of="token")
    told = results(case.wait(fresh))
    case.signal(stale, "SIGCONT")
    assert results(case.wait(stale)) == told
    until(lambda: len(requests(case, "keyed")) > 1)
    check(case.stored(), case.world(), "run")
    assert min(request["attempt"] for request in requests(case, "keyed")) == 1
    assert len({request["key"] for request in requests(case, "keyed")}) == 1
    assert_fenced(case)


def test_what_a_stale_owner_knows_settles_a_plain_write(case):
    """The next owner could only call it unknown; the first one comes back and knows that it returned."""
    case.ask("rule", of="plain", rule={"hold": "after"})
    stale = stopped(case, "stocks", "plain")
    fresh = case.wait(overtaking(case, "stocks"))
    assert fresh.answer.get("status") == "suspended", (fresh.answer, fresh.log)
    history, _ = check(case.stored(), case.world(), "run")
    assert history.operations["restock#1"].phase == "unknown"
    case.ask("release", of="plain")
    case.signal(stale, "SIGCONT")
    case.wait(stale)
    assert results(case.work(agent="stocks", input="bob", settings=LEASE)) == {"plain-bob-1"}
    history, _ = check(case.stored(), case.world(), "run")
    assert history.operations["restock#1"].settlement.basis.by == "returned"
    assert len(requests(case, "plain")) == 1
    assert_fenced(case)


def assert_fenced(case):
    """Once a run was claimed anew, no record of an earlier owner follows."""
    tokens = [row.token for row in case.stored().rows["run"]]
    assert tokens == sorted(tokens)
    assert len(set(tokens)) >= 2


def test_one_of_many_processes_drives_and_all_are_told(case):
    case.ask("rule", of="plain", rule={"hold": "after"})
    workers = [case.start(agent="stocks", input="bob") for _ in range(4)]
    case.ask("await", of="plain", count=1)
    case.ask("release", of="plain")
    assert results(*(case.wait(worker) for worker in workers)) == {"plain-bob-1"}
    assert len(requests(case, "plain")) == 1
    history, _ = check(case.stored(), case.world(), "run")
    assert len(history.operations["restock#1"].attempts) == 1
