"""Hosts as a nemesis: they spawn tasks, forget, call twice, cancel and swallow, and no invariant breaks."""

import pytest

from simulator.agents.hosts import LATE
from simulator.generator.hosts import HOSTED
from simulator.generator.plans import draw
from simulator.plan import HostCall, Plan, Script, Step, WorkerPlan
from simulator.world import simulate
from tests.draws import daily

FOUND = {
    1: "a call that is made twice at once is refused, and is not sent in a replay either",
    8: "branches of agent code are not numbered with the tasks of a host",
    28: "a read that the host cancelled is cancelled again in a replay, and no later delivery waits for it",
    40: "a host that works for seconds before its next call is not called diverged",
    48: "a call that the host does not await has time to come back",
    99: "a call that the host cancels and makes again is told an outcome that is durable",
    196: "a run that is suspended while such a call comes back is not called diverged",
    1168: "a host has time to bring the body of a call that it does not await, before its run is suspended",
}


@pytest.mark.parametrize("seed", daily(FOUND, len(FOUND) // 2))
def test_what_a_seed_found_stays_mended(seed: int):
    report = simulate(draw(HOSTED + seed))
    assert not report.violations, f"{FOUND[seed]}: {report.violations[0]}"


def test_hosts_do_all_that_makes_them_a_nemesis():
    calls = [
        call
        for seed in range(HOSTED, HOSTED + 40)
        for script in draw(seed).scripts
        for step in script.steps
        for turn in step.turns
        for call in turn
    ]
    assert {call.again for call in calls} == {"", "after", "beside", "cancelled"}
    assert any(call.dropped for call in calls)
    assert any(call.forgotten for call in calls)
    assert {call.tool for call in calls} > LATE.keys()


def test_a_plan_without_faults_ends_with_every_call_made_once():
    calls = (HostCall("lend"), HostCall("fund", again="cancelled"), HostCall("ship", ms=20))
    plan = Plan(
        7, (Script("run", (Step("host", "h", turns=(calls, (HostCall("mail"),))),)),), (WorkerPlan("A", scripts=(0,)),)
    )
    report = simulate(plan)
    assert not report.violations, report.violations[0]
    assert report.reach.records["AttemptStarted"] == 4
