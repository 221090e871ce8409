"""Executing a plan: deterministic, durable, and without asking the model that made it.

Every step is a branch of the run, named by its id; so its operations have stable names whatever the order in which
steps end. What was chosen, and why, is a journaled value (`flight/chose#1`). Conditions see only what is known
before their step for certain, so they give the same answer on replay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from holdfast.agent.calling import outcome_of
from holdfast.agent.conditions import holds, steps_used
from holdfast.agent.transactions import Held, Transaction, on_commit
from holdfast.engine import timers, values
from holdfast.engine.rest import Ending
from holdfast.engine.scopes import SCOPE, Scope, branch_task
from holdfast.errors import ArgumentError, NewPlanNeeded, PlanAborted, PlanRefused, PlanStepFailed
from holdfast.model.outcome import Outcome
from holdfast.model.plan import Call, Plan, PlanStep, resolved
from holdfast.model.plan_checking import Known, faults_of
from holdfast.model.values_parameters import parse_arguments
from holdfast.policies import Retry

if TYPE_CHECKING:
    from holdfast.agent.tool import Tool

AnyTool = Any  # an app's tools are `Tool[Any, Any]`; this module only passes them on
PRIMARY: Final = "primary"
SKIPPED: Final = "skipped"


class Chosen(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was done about one step: `primary`, `fallback 1`, ... or `skipped`, and why."""

    step: str
    chosen: str
    tool: str = ""
    why: str = ""


class PlanResult(msgspec.Struct, frozen=True):
    """What came of a plan: the stored result of each step that was performed, and what was chosen."""

    plan: str
    results: Mapping[str, Any]
    chosen: tuple[Chosen, ...]


def check_plan(plan: Plan, tools: Mapping[str, AnyTool]) -> None:
    """Raise `PlanRefused` with everything that is wrong with the plan. Nothing is recorded or sent."""
    known = {name: known_of(tool) for name, tool in tools.items() if not tool.serves}
    faults = faults_of(plan, known, steps_used)
    if faults:
        listed = "\n".join(f"- {fault}" for fault in faults)
        raise PlanRefused(f"the plan {plan.name!r} has {len(faults)} faults:\n{listed}", faults=tuple(map(str, faults)))


def known_of(tool: Tool[Any, Any]) -> Known:
    """What checking has to know about a tool."""
    return Known(tool.contract, tool.shape.types, tool.shape.required, tool.shape.returns)


async def execute(scope: Scope, plan: Plan, given: Any, *, approve: bool) -> PlanResult:
    """Perform a plan as a part of this run. See `Run.execute`."""
    tools = cast("Mapping[str, AnyTool]", scope.instance.engine.tools)
    check_plan(plan, tools)
    await _same_plan(scope, plan)
    if approve:
        await _approved(scope, plan, plan.digest, f"the plan {plan.name} ({plan.digest})")
    course = _Course(scope, plan, tools, given)
    if not plan.together:
        return await course.perform()
    async with Transaction(scope, plan.name, "one"):
        return await course.perform()


async def _same_plan(scope: Scope, plan: Plan) -> None:
    """The plan is on record whole: a replay that comes back with another one is no silent replay."""
    text = msgspec.json.encode(plan, order="deterministic").decode()
    recorded = await values.value(scope, "plan", lambda: text, f"plan:{plan.name}")
    if recorded != text:
        scope.instance.end(Ending("diverged", f"the plan {plan.name} came back as another one"))
        raise scope.instance.divergence(f"the plan {plan.name} differs from the recorded one")


async def _approved(scope: Scope, plan: Plan, key: str, what: str) -> None:
    """Wait for a person's word on exactly this. Raises `PlanAborted` where it is no."""
    received = await timers.wait_for_event(scope, "approve", key, None, f"approve:{key}")
    assert received is not None, key
    if msgspec.json.decode(received.payload) is not True:
        raise PlanAborted(f"{what} was not approved", run=scope.instance.run, plan=plan.name)


class _Course:
    """One plan under way."""

    def __init__(self, scope: Scope, plan: Plan, tools: Mapping[str, AnyTool], given: Any) -> None:
        self._scope = scope
        self._plan = plan
        self._tools = tools
        self._given = given
        self._results: dict[str, Any] = {}
        self._chosen: dict[str, Chosen] = {}
        self._held: dict[str, Held[Any]] = {}

    async def perform(self) -> PlanResult:
        """Begin every step as soon as what it waits for is over; the first failure ends the others."""
        plan = self._plan
        over: set[str] = set()
        running: dict[asyncio.Task[None], str] = {}
        try:
            while len(over) < len(plan.steps):
                self._begin(over, running)
                done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                for task in sorted(done, key=lambda one: running[one]):
                    over.add(running.pop(task))
                    task.result()
        finally:
            for task in running:
                task.cancel()
            if running:
                await asyncio.wait(running)
        return PlanResult(plan.name, self._results, tuple(self._chosen[step.id] for step in plan.steps))

    def _begin(self, over: set[str], running: dict[asyncio.Task[None], str]) -> None:
        scope = SCOPE.get() or self._scope
        for step in self._plan.steps:
            begun = step.id in over or step.id in running.values()
            if not begun and set(self._plan.waits_for(step)) <= over:
                running[branch_task(scope.child(step.id), self._step(step))] = step.id

    # --- one step ----------------------------------------------------------------------------------------------

    async def _step(self, step: PlanStep) -> None:
        if step.when and not holds(step.when, self._seen(step)):
            await self._chose(Chosen(step.id, SKIPPED, why=f"not needed: {step.when}"))
            self._results[step.id] = None
            return
        if step.ask_if and holds(step.ask_if, self._seen(step)):
            await _approved(_here(), self._plan, step.id, f"step {step.id}")
        await self._try_in_order(step)
        for condition in step.abort_if:
            if holds(condition, self._seen(step, after=True)):
                raise PlanAborted(f"step {step.id}: {condition}", run=self._scope.instance.run, plan=self._plan.name)

    async def _try_in_order(self, step: PlanStep) -> None:
        """The primary; then a fallback, only where what came before is proven to have failed."""
        reasons: list[str] = []
        for number, call in enumerate(step.calls):
            chosen = PRIMARY if number == 0 else f"fallback {number}"
            if step.hold:
                await self._hold(step, call)
                await self._chose(Chosen(step.id, chosen, call.tool, "held until the commit"))
                return
            outcome = await self._call(step, call)
            if outcome.status == "succeeded":
                self._results[step.id] = self._stored(call, outcome)
                await self._chose(Chosen(step.id, chosen, call.tool, "; ".join(reasons)))
                return
            reasons.append(f"{call.tool} {outcome.status}: {outcome.reason}")
            if outcome.code == "stale":
                raise NewPlanNeeded(
                    f"step {step.id}: what {call.tool} relies on has changed", run=self._scope.instance.run,
                    plan=self._plan.name, step=step.id, results=dict(self._results),
                )  # fmt: skip
        await self._chose(Chosen(step.id, "failed", why="; ".join(reasons)))
        raise PlanStepFailed(
            f"step {step.id}: {'; '.join(reasons)}", run=self._scope.instance.run, plan=self._plan.name, step=step.id
        )

    async def _call(self, step: PlanStep, call: Call) -> Outcome[Any]:
        tool = self._configured(step, call)
        return await outcome_of(tool, self._arguments(tool, call), None)

    async def _hold(self, step: PlanStep, call: Call) -> None:
        tool = self._configured(step, call)
        self._held[step.id] = await on_commit(_here(), tool, self._arguments(tool, call))
        self._results[step.id] = None

    def _configured(self, step: PlanStep, call: Call) -> AnyTool:
        tool = self._tools[call.tool]
        if step.timeout_s is None and step.attempts is None:
            return tool
        timeout = None if step.timeout_s is None else timedelta(seconds=step.timeout_s)
        retry = None if step.attempts is None else Retry(attempts=step.attempts)
        return tool.options(timeout=timeout, retry=retry)

    def _arguments(self, tool: AnyTool, call: Call) -> dict[str, Any]:
        try:
            sent = cast("dict[str, Any]", resolved(call.arguments, self._results))
        except (LookupError, TypeError) as error:
            raise ArgumentError(f"{call.tool}: a result has no such part: {error}") from error
        arguments: dict[str, Any] = tool.shape.bind((), parse_arguments(sent, tool.shape.types, tool.shape.required))
        return arguments

    def _stored(self, call: Call, outcome: Outcome[Any]) -> Any:
        """The result as it is stored: plain JSON, for references and conditions."""
        stored, _ = self._tools[call.tool].codec.round_trip(outcome.value)
        return msgspec.json.decode(stored)

    def _seen(self, step: PlanStep, *, after: bool = False) -> dict[str, Any]:
        """What a condition of this step may use."""
        names = self._plan.before(step) | ({step.id} if after else frozenset[str]())
        return {"results": {name: self._results[name] for name in sorted(names)}, "input": self._given}

    async def _chose(self, chosen: Chosen) -> None:
        self._chosen[chosen.step] = chosen
        text = msgspec.json.encode(chosen).decode()
        recorded = await values.value(_here(), "chose", lambda: text)
        self._chosen[chosen.step] = msgspec.json.decode(recorded, type=Chosen)


def _here() -> Scope:
    scope = SCOPE.get()
    assert scope is not None, "a step of a plan is a branch of its run"
    return scope
