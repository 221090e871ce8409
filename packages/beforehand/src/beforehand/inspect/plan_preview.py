"""Looking at a plan: its steps, the contract of each tool, and what may go wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from beforehand.agent.agent import AnyAgent, AnyTool, gather_tools
from beforehand.errors import UsageError
from beforehand.inspect.contracts import Danger, clauses
from beforehand.model.plan import Call, Plan, PlanStep, facts_named, references, resolved
from beforehand.planning.checks import Given, PlanFault, faults_of, parse_planned
from beforehand.planning.executor import parted


class PlannedCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """One call as it would be made. `budget` is the most it may cost; `answer` is what a read answered just now."""

    tool: str
    arguments: str
    effect: str = ""
    danger: Danger = "none"
    undone_by: str = ""
    budget: float | None = None
    within: str = ""
    answer: str = ""


class ShownStep(msgspec.Struct, frozen=True, omit_defaults=True):
    """One step: its dependencies, and the calls that are tried in order.

    `abort_if` are the conditions that are judged before anything of it is sent, `abort_after` those that read its own
    result.
    """

    id: str
    waits_for: tuple[str, ...]
    calls: list[PlannedCall]
    when: str = ""
    abort_if: tuple[str, ...] = ()
    abort_after: tuple[str, ...] = ()
    ask_if: str = ""
    hold: bool = False
    relies_on: tuple[str, ...] = ()


class ShownPlan(msgspec.Struct, frozen=True):
    """A plan, and all its faults."""

    name: str
    goal: str
    digest: str
    together: bool
    steps: list[ShownStep]
    faults: list[PlanFault]


def read_plan(text: bytes) -> Plan:
    """A plan from JSON. Raises `UsageError` naming the place that does not fit."""
    try:
        return msgspec.json.decode(text, type=Plan)
    except (msgspec.MsgspecError, ValueError) as error:
        raise UsageError(
            f"this is not a plan: {error}", next_step="see its form: beforehand plan schema TARGET"
        ) from error


def tools_of(agent: AnyAgent) -> Mapping[str, AnyTool]:
    """The tools that a plan of this agent may use."""
    return {name: tool for name, tool in gather_tools([agent], ()).items() if not tool.serves}


def shown(plan: Plan, tools: Mapping[str, AnyTool]) -> ShownPlan:
    """The plan with the contracts of its tools. Nothing is called."""
    return _plan(plan, tools, faults_of(plan, Given(tools)), {})


async def dry_run(plan: Plan, tools: Mapping[str, AnyTool]) -> ShownPlan:
    """As `shown`, and reads that depend on nothing but reads are made now. Nothing is written or recorded."""
    faults, answers = faults_of(plan, Given(tools)), dict[str, Any]()
    for step in () if faults else _in_order(plan):
        tool = tools[step.primary.tool]
        known = all(name in answers for name, _ in references(step.primary.arguments))
        known = known and not any(facts_named(step.primary.arguments))  # which only a run has
        if tool.contract.effect == "read" and known:
            answers[step.id] = await _read(tool, step.primary, answers)
    return _plan(plan, tools, faults, answers)


def _in_order(plan: Plan) -> list[PlanStep]:
    over: list[PlanStep] = []
    names: set[str] = set()
    while len(over) < len(plan.steps):
        over += [step for step in plan.steps if step.id not in names and set(plan.waits_for(step)) <= names]
        names = {step.id for step in over}
    return over


async def _read(tool: AnyTool, call: Call, answers: Mapping[str, Any]) -> Any:
    sent = resolved(call.arguments, answers, {})
    arguments = tool.spec.bind((), parse_planned(sent, tool.spec.types, tool.spec.required))
    answer = tool.body.function(**arguments)
    stored, _ = tool.codec.round_trip(await answer if tool.body.is_async else answer)
    return msgspec.json.decode(stored)


def _plan(plan: Plan, tools: Mapping[str, AnyTool], faults: list[PlanFault], answers: Mapping[str, Any]) -> ShownPlan:
    steps: list[ShownStep] = []
    for step in plan.steps:
        calls = [_call(call, tools.get(call.tool), answers) for call in step.calls]
        if step.id in answers:
            calls[0] = msgspec.structs.replace(calls[0], answer=msgspec.json.encode(answers[step.id]).decode())
        named = {name for call in step.calls for name in facts_named(call.arguments)}  # those besides are declared
        facts = tuple(sorted({*step.relies_on, *named}))
        waits, aborts = tuple(plan.waits_for(step)), parted(step)
        steps.append(ShownStep(step.id, waits, calls, step.when, *aborts, step.ask_if, step.hold, facts))
    return ShownPlan(plan.name, plan.goal, plan.digest, plan.together, steps, faults)


def _call(call: Call, tool: AnyTool | None, answers: Mapping[str, Any]) -> PlannedCall:
    try:
        arguments = resolved(call.arguments, answers, {})
    except (LookupError, TypeError):
        arguments = call.arguments  # what it refers to is known only when it runs
    text = msgspec.json.encode(arguments).decode()
    if tool is None:
        return PlannedCall(call.tool, text, within=call.within)
    contract = tool.contract
    budget = contract.budget.cost if contract.budget.cost != float("inf") else None
    undone_by = contract.amends if contract.restores else ""
    return PlannedCall(call.tool, text, contract.effect, clauses(contract).danger, undone_by, budget, call.within)
