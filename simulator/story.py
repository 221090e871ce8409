"""A failing simulation, told so that a person can follow it."""

from __future__ import annotations

import msgspec

from simulator.plan import Plan
from simulator.world import Report

INVARIANTS = {
    1: "nothing is sent unrecorded",
    2: "no effect happens twice, and no repeat undoes what somebody else did",
    3: "nothing is recorded as succeeded that did not happen",
    4: "nothing is recorded as failed that happened",
    5: "an unknown stays honest, and absence is believed only when nothing can land any more",
    6: "only declared transitions, and what is final stays",
    7: "a late owner writes nothing",
    8: "what is sent is what was recorded",
    9: "nothing that needs a yes is sent without one that is about exactly this, and alive",
    10: "attempts and send-by deadlines are kept",
    11: "a transaction is whole, undone, or parked with the exact list, and a plan keeps its order",
    12: "the agent hears the truth",
    13: "no decision that is on record is asked again",
    14: "records, listing and answers agree",
    15: "the chain of records holds",
    16: "each webhook counts once",
    17: "one business key, one effect",
    18: "what kills its workers is set aside, and nothing else is",
    19: "everything comes to an end, or to a person",
    20: "what was acknowledged is there",
    23: "no secret is stored",
}
"""The invariants that the checker knows, in one line each; the numbers are those of the documentation."""


def tell(report: Report) -> str:
    """What happened, in order, with the plan behind it and the command that repeats it."""
    plan, broken = report.plan, report.violations
    lines = [f"seed {plan.seed}: {len(plan.faults)} faults, {plan.schedule} schedule, {report.ms / 1000:.0f} s"]
    lines += [f"  fault: {_fault(fault.kind, fault.at, fault.service, fault.ms)}" for fault in plan.faults]
    lines += [f"  {script.id}: {', '.join(f'{s.kind}({s.thing})' for s in script.steps)}" for script in plan.scripts]
    lines += ["", *report.log]
    for one in broken:
        lines += ["", f"invariant {one.invariant} ({INVARIANTS.get(one.invariant, '')}):", f"  {one.what}"]
    if not broken:
        lines += ["", "every invariant held"]
    return "\n".join(lines)


def _fault(kind: str, at: int, service: str, ms: int) -> str:
    where = f"call {at} of {service}" if service else f"point {at}"
    return f"{kind} at {where}" + (f" for {ms} ms" if ms else "")


def save(plan: Plan) -> bytes:
    """A plan as JSON: a regression test."""
    return msgspec.json.format(msgspec.json.encode(plan), indent=1)


def load(text: bytes) -> Plan:
    """A saved plan. Raises `msgspec.ValidationError` where it is none."""
    return msgspec.json.decode(text, type=Plan)
