"""A failing simulation: its story for a person, and a smaller plan that fails in the same way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from simulator.plan import Plan
from simulator.world import Journal, Report

INVARIANTS = {
    1: "nothing is sent unrecorded",
    2: "no effect happens twice, and no repeat undoes the work of others",
    3: "nothing is recorded as succeeded that did not happen",
    4: "nothing is recorded as failed that happened",
    5: "an unknown stays honest, and absence is believed only when nothing can land any more",
    6: "only declared transitions, and what is final stays",
    7: "a late owner writes nothing",
    8: "what is sent is what was recorded",
    9: "nothing that needs a yes is sent without a valid yes to exactly this",
    10: "attempts and send-by deadlines are kept",
    11: "a transaction is whole, undone, or parked with the exact list, and a plan keeps its order",
    12: "the agent receives true outcomes",
    13: "no decision that is on record is asked again",
    14: "records, listing and answers agree",
    15: "the chain of records holds",
    16: "each webhook counts once",
    17: "one business key, one effect",
    18: "what kills its workers is set aside, and nothing else is",
    19: "everything ends, or waits for a person",
    20: "what was acknowledged is there",
    23: "no secret is stored",
    25: "no limit of a queue is exceeded, and no run of a queue is driven without a slot",
    26: "slots are given in the declared order, and nothing starves",
    27: "a submission is stored once, or refused and not stored",
    28: "each moment of a schedule fires as declared, once, by a run of its own",
    29: "no call begins at or above a limit of a budget",
    30: "the reservations of a budget are what is used and what is open",
    31: "a run goes on once its budget was raised",
    32: "a child is stored once, joined as it ended, and sends nothing after its time or its parent",
    33: "a route keeps to what it declares, and its answers to what was given",
}
"""The invariants that the checker knows, in one line each; the numbers are those of the documentation."""


def repeat(seed: int, journal: Journal = "memory") -> str:
    """The command that tells the story of a seed."""
    return f"make deep ONLY=sim SEED={seed}" + (' ARGS="--journal sqlite"' if journal == "sqlite" else "")


def tell(report: Report) -> str:
    """What happened, in order, with the plan behind it and the command that repeats it."""
    plan, broken = report.plan, report.violations
    lines = [f"seed {plan.seed}: {len(plan.faults)} faults, {plan.schedule} schedule, {report.ms / 1000:.0f} s"]
    lines += [f"  fault: {_fault(fault.kind, fault.at, fault.service, fault.ms)}" for fault in plan.faults]
    lines += [f"  {script.id}: {', '.join(f'{s.kind}({s.thing})' for s in script.steps)}" for script in plan.scripts]
    lines += [f"  submitted: {plan.scripts[one.script].id} {_fields(one)}" for one in plan.submissions]
    lines += [f"  declared: {_fields(one)}" for one in plan.declarations]
    lines += [f"  ordered: {_fields(one)}" for one in plan.orders]
    lines += [f"  timetable: {_fields(one)}" for one in plan.timetables]
    lines += [f"  ordered: {_fields(one)}" for one in plan.schedule_orders]
    lines += ["", *report.log]
    for one in broken:
        lines += ["", f"invariant {one.invariant} ({INVARIANTS.get(one.invariant, '')}):", f"  {one.what}"]
    if not broken:
        lines += ["", "every invariant held"]
    return "\n".join(lines)


def _fault(kind: str, at: int, service: str, ms: int) -> str:
    where = f"call {at} of {service}" if service else f"point {at}"
    return f"{kind} at {where}" + (f" for {ms} ms" if ms else "")


def _fields(one: msgspec.Struct) -> str:
    return msgspec.json.encode(one).decode()


def save(plan: Plan) -> bytes:
    """A plan as JSON: a regression test."""
    return msgspec.json.format(msgspec.json.encode(plan), indent=1)


def load(text: bytes) -> Plan:
    """A saved plan. Raises `msgspec.ValidationError` where it is none."""
    return msgspec.json.decode(text, type=Plan)


# --- a smaller plan that still fails ----------------------------------------------------------------------------------


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
    yield replace(plan, undeclared=())
    for field in ("orders", "schedule_orders", "tellings", "permits"):
        yield from _one_less(plan, field)
    for field in ("declarations", "submissions", "timetables"):
        yield from _one_less(plan, field, first=1)
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


def _one_less(plan: Plan, field: str, first: int = 0) -> Iterator[Plan]:
    """The plan without one of the values of a field, each from the one of the number `first` on."""
    values: tuple[object, ...] = getattr(plan, field)
    for number in range(first, len(values)):
        yield replace(plan, **{field: values[:number] + values[number + 1 :]})


def _first_that_fails(plan: Plan, candidates: Iterator[Plan], fails: Callable[[Plan], bool]) -> Plan:
    """Each candidate once, each from the plan as it is by then where it still fits."""
    for candidate in candidates:
        if candidate != plan and fails(candidate):
            return candidate
    return plan
