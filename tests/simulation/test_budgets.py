"""Budgets in the simulator: limits hold over crashes, branches and runs, and planted bugs are found."""

import pytest

from simulator.agents.budgets import QUERY
from simulator.generator.budgets import BUDGETED, MIDNIGHTS
from simulator.generator.plans import draw
from simulator.world import simulate


@pytest.mark.parametrize("seed", [5_000_257, 5_000_259, 5_004_046])
def test_a_call_under_no_limit_need_not_be_on_record_when_its_run_comes_under_one(seed: int):
    """5000259: the disk is full, so that its calls are lost with their records. 5000257: a stopped process calls late.

    5004046: the budget that covered the run has gone, and a call that it covered is open.
    """
    assert not simulate(draw(seed)).violations


def test_a_run_is_given_back_where_the_journal_fails_while_other_limits_wake_it():
    assert not simulate(draw(5_007_254)).violations


def test_a_process_that_stands_still_while_it_wakes_runs_goes_on_without_those_that_others_took():
    assert not simulate(draw(5_000_218)).violations


def test_the_own_budget_is_compared_after_the_attempts_that_a_reservation_lets_go_first():
    assert not simulate(draw(5_004_763)).violations


def test_branches_that_begin_effects_at_once_do_not_both_take_the_last_one_of_their_run():
    assert not simulate(draw(5_008_358)).violations


def test_plans_draw_all_that_budgets_offer():
    plans = [draw(seed) for seed in range(BUDGETED, BUDGETED + 60)]
    own = [one.budget for plan in plans for one in plan.submissions if one.budget is not None]
    shared = [one for plan in plans for declared in plan.declarations for one in declared.limits.budgets.values()]
    assert {one.then for one in own} == {"ask", "stop"}
    assert {one.then for one in shared} == {"wait", "stop"}
    assert {(bool(one.agent), bool(one.tenant)) for one in shared} == {
        (a, b) for a in (True, False) for b in (True, False)
    }
    assert {one.effects for one in shared} == {None, 0, 1, 2, 3, 5, 10**4}
    assert {zone for zone, _ in MIDNIGHTS} == {one.zone for one in shared}
    steps = [step for plan in plans for script in plan.scripts for step in script.steps]
    assert any(step.kind == QUERY and step.group for step in steps)
    assert {fault.kind for plan in plans for fault in plan.faults if fault.service == QUERY} == {
        "refused", "lost", "silent", "slow",
    }  # fmt: skip


@pytest.mark.deep
def test_simulations_reach_what_the_invariants_are_about():
    reached = set()
    for seed in range(BUDGETED, BUDGETED + 6):
        reached |= {name for name in simulate(draw(seed)).reach.endings if name.startswith("budget: ")}
    assert reached == {
        "budget: a call under a limit", "budget: a call under none", "budget: a call under a shared limit",
        "budget: an effect under a limit", "budget: an effect under a shared limit", "budget: a lost call",
        "budget: stopped", "budget: raised",
    }  # fmt: skip


def test_the_same_seed_does_the_same_to_the_last_byte():
    first, second = (simulate(draw(BUDGETED), story=True) for _ in range(2))
    assert first.log == second.log
    assert first.digest == second.digest
