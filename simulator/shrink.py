"""From a failing plan to a small one that still fails: what is left is the story.

Delta debugging (Zeller and Hildebrandt, 2002): take away ever smaller parts as long as the same invariant breaks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

from msgspec.structs import replace

from simulator.plan import Plan
from simulator.world import Report

T = TypeVar("T")


def shrink(plan: Plan, simulate: Callable[[Plan], Report], most: int = 400) -> Plan:
    """A smaller plan that breaks the same invariant, after at most `most` simulations."""
    first = simulate(plan).violations
    if not first:
        return plan
    wanted = first[0].invariant
    left = [most]

    def fails(smaller: Plan) -> bool:
        left[0] -= 1
        broken = simulate(smaller).violations if left[0] > 0 else ()
        return bool(broken) and broken[0].invariant == wanted

    before = None
    while before != plan and left[0] > 0:
        before = plan
        plan = _fewer_faults(plan, fails)
        plan = _first_that_fails(plan, _simpler(plan), fails)
    return plan


def _fewer_faults(plan: Plan, fails: Callable[[Plan], bool]) -> Plan:
    """Take away halves, then quarters, then single faults."""
    size = max(1, len(plan.faults) // 2)
    while True:
        start = 0
        while start < len(plan.faults):
            smaller = replace(plan, faults=plan.faults[:start] + plan.faults[start + size :])
            if fails(smaller):
                plan = smaller
            else:
                start += size
        if size == 1:
            return plan
        size = max(1, size // 2)


def _simpler(plan: Plan) -> Iterator[Plan]:
    """Plans with one thing less: a schedule in order, plain settings, a permission, a step, a shorter delay..."""
    yield replace(plan, schedule="fifo")
    yield replace(plan, settings={})
    yield replace(plan, skew_ms=0, disk_ms=1)
    yield replace(plan, policy=False)
    yield replace(plan, reviews=False)
    yield replace(plan, strangers=0)
    for number in range(len(plan.tellings)):
        yield replace(plan, tellings=plan.tellings[:number] + plan.tellings[number + 1 :])
    for number in range(len(plan.permits)):
        yield replace(plan, permits=plan.permits[:number] + plan.permits[number + 1 :])
    for number, script in enumerate(plan.scripts):
        for position in range(len(script.steps)):
            steps = script.steps[:position] + script.steps[position + 1 :]
            scripts = (*plan.scripts[:number], replace(script, steps=steps), *plan.scripts[number + 1 :])
            yield replace(plan, scripts=scripts)
    for number, worker in enumerate(plan.workers):
        simple = replace(worker, contained=False, restart_ms=1_000)
        yield replace(plan, workers=(*plan.workers[:number], simple, *plan.workers[number + 1 :]))
    for number, fault in enumerate(plan.faults):
        shorter = replace(fault, ms=fault.ms // 2)
        yield replace(plan, faults=(*plan.faults[:number], shorter, *plan.faults[number + 1 :]))


def _first_that_fails(plan: Plan, candidates: Iterator[Plan], fails: Callable[[Plan], bool]) -> Plan:
    """Each candidate once, each from the plan as it is by then where it still fits."""
    for candidate in candidates:
        if candidate != plan and fails(candidate):
            return candidate
    return plan
