"""Hosts as a nemesis: they spawn tasks, forget, call twice, cancel and swallow, and no invariant breaks."""

import pytest

from simulator.agents.hosts import LATE
from simulator.generator.hosts import HOSTED
from simulator.generator.plans import draw
from simulator.mutations.hosts import HOSTS
from simulator.mutations.mutation import Mutant
from simulator.mutations.planting import hunt
from simulator.plan import HostCall, Plan, Script, Step, WorkerPlan
from simulator.world import simulate


@pytest.mark.parametrize("first", range(0, 40, 8))
def test_no_invariant_breaks(first: int):
    for seed in range(HOSTED + first, HOSTED + first + 8):
        report = simulate(draw(seed))
        assert not report.violations, f"make sim SEED={seed}: {report.violations[0]}"


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


@pytest.mark.parametrize("seed", FOUND)
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


BY_SEED = {
    "named by tasks": 0, "answers not recorded": 0, "control is a result": 3, "control drawn anew": 3,
    "helpers keep the run": 3, "numbered with the host": 8, "the body is not handed over": 0,
    "refusals forgotten": 28, "cancelled calls made twice": 1, "no patience in a replay": 3,
    "a cancelled turn stays": 1, "no time to come back": 48,
}  # fmt: skip


@pytest.mark.parametrize("mutant", HOSTS, ids=lambda mutant: mutant.name)
def test_a_planted_bug_is_found_at_its_seed(mutant: Mutant):
    seed = BY_SEED[mutant.name]
    assert hunt(mutant, seed + 1, first=seed).invariant, f"seed {seed} does not find {mutant.name!r} any more"
