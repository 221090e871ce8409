"""Callers that leave in mid-flight: the call goes on, its effect is settled, and replay takes the same way."""

import pytest

from tests.crash.checks import check
from tests.races.program import READS

LEAVERS = pytest.mark.parametrize("agent", ["limits_itself", "is_limited", "loses_a_sibling"])


def writes(case):
    return [request["name"] for request in case.world()["requests"] if request["kind"] in {"keyed", "natural"}]


def left(case, agent, **job):
    """A worker whose caller has left a charge that the witness holds: its next write waits, its reads go on."""
    case.ask("rule", of="keyed", rule={"hold": "before"})
    worker = case.start(agent=agent, input="order", **job)
    case.ask("await", of="keyed", count=1)
    case.ask("await", of="read", count=READS)
    assert writes(case) == ["order"], "another write left while one was in flight"
    return worker


def settled(case, ended, why):
    assert ended.answer.get("status") == "completed", (ended.answer, ended.log)
    assert ended.answer["result"] == [why, "done"]
    history, _ = check(case.stored(), case.world(), "run")
    charge = next(operation for step, operation in history.operations.items() if operation.step.endswith("charge#1"))
    assert charge.phase == "succeeded"
    assert history.lifecycle.status == "completed"


WHY = {"limits_itself": "timed out", "is_limited": "timed out", "loses_a_sibling": "a sibling failed"}


@LEAVERS
def test_the_next_write_waits_for_the_one_that_was_left(case, agent):
    worker = left(case, agent)
    case.ask("release", of="keyed")
    settled(case, case.wait(worker), WHY[agent])
    assert writes(case) == ["order", "next"]


@LEAVERS
def test_replay_leaves_at_the_same_point(case, agent):
    worker = left(case, agent, kill=["before_end", 1])
    case.ask("release", of="keyed")
    assert case.wait(worker).killed
    requests = case.world()["requests"]
    settled(case, case.work(agent=agent, input="order"), WHY[agent])
    assert case.world()["requests"] == requests


@LEAVERS
def test_a_left_call_whose_process_dies_is_settled_by_the_next_one(case, agent):
    worker = left(case, agent)
    case.signal(worker, "SIGKILL")
    assert case.wait(worker).killed
    case.ask("release", of="keyed")
    settled(case, case.work(agent=agent, input="order"), WHY[agent])
    assert writes(case)[-1] == "next"
    assert set(writes(case)) == {"order", "next"}
