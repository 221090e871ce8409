"""A process that is stopped for good in the middle of a call: its run is taken over, and a person is asked to look."""

import pytest

from tests import forked
from tests.crash.checks import check
from tests.races.test_pauses import LEASE, assert_fenced, requests, stopped

HASTY = {**LEASE, "hung_owner_ms": 400, "hold_ms": 1_000, "slow_verify_ms": 2_000}
"""A call that hangs for 0.4 s is asked about; what waits for longer than a second is suspended."""
AGENT = "writes_past_the_check"


@pytest.fixture
def hung(case):
    """The owner is stopped between its last check and its first byte, and another process has asked a person."""
    case.ask("rule", of="token", rule={"hold": "after"})
    stale = stopped(case, AGENT, "token")
    fresh = case.work(agent=AGENT, input="bob", settings=HASTY)
    assert fresh.answer.get("status") == "suspended", (fresh.status, fresh.answer, fresh.log)
    assert not requests(case, "mail"), "an absence was believed while the first process could still send"
    history, _ = check(case.stored(), case.world(), "run")
    (operation,) = history.operations.values()
    assert operation.phase == "unknown"
    return stale


def listed(case):
    return forked.run(["-m", "beforehand", "inbox", "--journal", str(case.journal)]).stdout


def goes_on(case):
    """A further process keeps the run in memory until it goes on by itself."""
    return case.work(agent=AGENT, input="bob", settings={**HASTY, "hold_ms": 60_000})


def test_the_inbox_names_the_process_and_the_command_that_ends_it(case, hung):
    shown = " ".join(listed(case).split())
    assert f"process {hung} on this machine still lives" in shown, shown
    assert f"kill -9 {hung}" in shown, shown


def test_it_goes_on_by_itself_once_the_owner_wakes(case, hung):
    case.ask("release", of="token")
    case.signal(hung, "SIGCONT")
    woken, other = case.wait(hung), goes_on(case)
    assert other.answer == {"status": "completed", "result": "mail-bob"}, (other.answer, other.log, woken.log)
    history, _ = check(case.stored(), case.world(), "run")
    (operation,) = history.operations.values()
    assert operation.settlement.basis.by in {"returned", "evidence"}
    assert [request["attempt"] for request in requests(case, "mail")] == [1]
    assert_fenced(case)


def test_it_goes_on_by_itself_once_the_owner_is_proven_dead(case, hung):
    case.signal(hung, "SIGKILL")
    assert case.wait(hung).killed
    other = goes_on(case)
    assert "it did not happen" in other.answer.get("why", ""), (other.status, other.answer, other.log)
    history, _ = check(case.stored(), case.world(), "run")
    (operation,) = history.operations.values()
    assert (operation.phase, operation.deaths) == ("failed", 1)
    assert not requests(case, "mail"), "it was sent again although a person was asked"
    assert_fenced(case)
