"""Agents with `finally:` blocks that would send: a suspended, a fenced and a terminated run sends nothing there."""

import pytest

from tests.crash.checks import check
from tests.races.test_pauses import LEASE, overtaking, stopped

HOLD_NOTHING = {"hold_ms": 0}


def assert_nothing_was_cleaned_up(case):
    names = [request["name"] for request in case.world()["requests"]]
    assert "cleanup" not in names
    assert not any("charge" in step for step in case.stored().history("run").operations)


def test_suspended(case):
    ended = case.work(agent="cleans_up", input="item", settings=HOLD_NOTHING)
    assert ended.answer.get("status") == "suspended", (ended.answer, ended.log)
    assert_nothing_was_cleaned_up(case)
    assert case.stored().history("run").lifecycle.status == "suspended"


def test_suspended_for_a_person(case):
    case.ask("rule", of="plain", rule={"hold": "after"})
    worker = case.start(agent="cleans_up_after_a_write", input="item")
    case.ask("await", of="plain", count=1)
    case.signal(worker, "SIGKILL")
    assert case.wait(worker).killed
    ended = case.work(agent="cleans_up_after_a_write", input="item")
    assert ended.answer.get("status") == "suspended", (ended.answer, ended.log)
    assert_nothing_was_cleaned_up(case)


@pytest.mark.parametrize("name", ["SIGTERM"])
def test_terminated_while_it_waits(case, name):
    worker = case.start(agent="cleans_up", input="item")
    case.ask("await", of="read", count=1)
    case.signal(worker, name)
    ended = case.wait(worker)
    assert ended.answer.get("status") == "terminated", (ended.answer, ended.log)
    assert_nothing_was_cleaned_up(case)


def test_terminated_in_the_middle_of_a_call(case):
    """The call in flight may end and is recorded; what comes after it is left to the next process."""
    case.ask("rule", of="plain", rule={"hold": "after"})
    worker = case.start(agent="cleans_up_after_a_write", input="item")
    case.ask("await", of="plain", count=1)
    case.signal(worker, "SIGTERM")
    case.await_seal(worker)
    case.ask("release", of="plain")
    ended = case.wait(worker)
    assert ended.answer.get("status") == "terminated", (ended.answer, ended.log)
    assert_nothing_was_cleaned_up(case)
    check(case.stored(), case.world(), "run")
    last = case.work(agent="cleans_up_after_a_write", input="item")
    assert last.answer.get("result") == "plain-item-1", (last.answer, last.log)
    names = [request["name"] for request in case.world()["requests"]]
    assert names == ["item", "cleanup"], "the next process goes on from what was recorded, and cleans up itself"


def test_fenced(case):
    """The one who was overtaken comes back to find itself sealed; only the new owner cleans up, and only once."""
    case.ask("rule", of="plain", rule={"hold": "after"})
    stale = stopped(case, "cleans_up_after_a_write", "plain")
    fresh = case.wait(overtaking(case, "cleans_up_after_a_write"))
    assert fresh.answer.get("status") == "suspended", (fresh.answer, fresh.log)
    assert_nothing_was_cleaned_up(case)
    case.ask("release", of="plain")
    case.signal(stale, "SIGCONT")
    woken = case.wait(stale)
    last = case.work(agent="cleans_up_after_a_write", input="bob", settings=LEASE)
    assert last.answer.get("result") == "plain-bob-1", (last.answer, last.log, woken.answer, woken.log)
    check(case.stored(), case.world(), "run")
    names = [request["name"] for request in case.world()["requests"]]
    assert names == ["bob", "cleanup"]
