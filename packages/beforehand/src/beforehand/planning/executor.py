"""Executing a plan: deterministic, durable, and without asking the model that made it.

Every step is a branch of the run, named by its id; so its operations have stable names whatever the order in which
steps end.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, cast

import msgspec

from beforehand.agent.conditions import ConditionError, holds, reads_result_of
from beforehand.agent.run_context import RunContext
from beforehand.errors import ArgumentError, Interrupted, NewPlanNeeded, PlanAborted, PlanRefused, PlanStepFailed
from beforehand.model.contract import Contract
from beforehand.model.errors import Shaken
from beforehand.model.outcome import ASKED_BACK, DECLINED, EXPIRED, Outcome, message_basis
from beforehand.model.plan import JUDGED, Call, Chosen, JudgedConditions, Plan, PlanStep, references, resolved
from beforehand.planning.checks import Given, faults_of, parse_planned
from beforehand.planning.dependencies import APPROVE, NamedFacts, PlanDependencies

AnyTool = Any  # an app's tools are `Tool[Any, Any]`; this module only passes them on


class ExecuteOptions(msgspec.Struct, frozen=True):
    """How a plan is executed: the `input` of conditions, the facts, and whether it needs approval first."""

    given: Any
    relies_on: NamedFacts = ()
    approve: bool = False


def check_plan(
    plan: Plan, tools: Mapping[str, AnyTool], facts: Mapping[str, Any] | None = None, *, inside: bool = False
) -> None:
    """Raise `PlanRefused` with all faults of the plan. Nothing is recorded or sent.

    `facts` are the run's facts by name; without them, the plan's statements on facts are not checked. Set `inside` if
    the plan will be executed inside a transaction of code.
    """
    known = {name: tool for name, tool in tools.items() if not tool.serves}
    faults = faults_of(plan, Given(known, facts, inside))
    if faults:
        listed = tuple(map(str, faults))
        reasons = "1 reason" if len(listed) == 1 else f"{len(listed)} reasons"
        raise PlanRefused(f"the plan {plan.name!r} is refused for {reasons}: {'; '.join(listed)}", faults=listed)


async def execute(context: RunContext, plan: Plan, how: ExecuteOptions) -> PlanResult:
    """Perform a plan as part of this run. See `Run.execute`."""
    tools = context.tools()
    dependencies = PlanDependencies(context.facts, plan, how.given, how.relies_on)
    check_plan(plan, tools, dependencies.facts, inside=context.in_transaction())
    text = msgspec.json.encode(plan, order="deterministic").decode()
    recorded = await context.value(f"plan:{plan.name}", lambda: text)
    if recorded != text:  # a replay with a different plan diverges visibly
        raise context.diverge(
            f"the plan {plan.name} is another plan than the recorded one",
            f"the plan {plan.name} differs from the recorded one",
        )
    if how.approve:
        await _approval(context, plan, tools, dependencies)
    if not plan.together:
        return await PlanExecution(context.section(plan.name), plan, tools, how, dependencies).perform()
    async with context.transaction(plan.name):
        return await PlanExecution(RunContext.current(), plan, tools, how, dependencies).perform()


async def _approval(
    context: RunContext, plan: Plan, tools: Mapping[str, AnyTool], dependencies: PlanDependencies
) -> None:
    """Wait until people have approved exactly this plan, as they approve a call. Raises `PlanAborted` for a no.

    The question has the facts that the plan names in their places, and nothing that a tool redacts.
    """
    shown = {"plan": plan.name, "goal": plan.goal, "together": plan.together, **dependencies.shown(tools)}
    used = {call.tool for step in plan.steps for call in step.calls}
    contracts = {name: tools[name].digest for name in sorted(used)}
    asked = await context.value(f"contracts:{plan.name}", lambda: contracts)
    outcome = await context.approval("plan", shown, f"{APPROVE}-{dependencies.digest}")
    if message_basis(outcome) is not None:
        raise outcome.error()
    if outcome.status != "succeeded":
        raise PlanAborted(f"the plan {plan.name} was not approved: {outcome.reason}", run=context.run, plan=plan.name)
    # The yes is to these tools, and for its time: a deployment, or days, may lie between it and the first step.
    begun = await context.value(f"contracts:{plan.name}", lambda: contracts)
    now_ms = await context.value("now", context.now_ms)
    over = 0 < (outcome.value or 0) <= now_ms
    if begun != asked or over:
        why = "the time of its approval is over" if over else "its tools have changed since"
        raise NewPlanNeeded(
            f"the plan {plan.name} has to be approved again: {why}", run=context.run, plan=plan.name, results={}
        )


# --- a running plan ---------------------------------------------------------------------------------------------------


PRIMARY: Final = "primary"
SKIPPED: Final = "skipped"
STALE: Final = "stale"
DROPPED: Final = "dropped"
ABORTED: Final = "aborted"
NOT_APPROVED: Final = frozenset({DECLINED, ASKED_BACK, EXPIRED})
"""The codes of a call that people did not approve."""


class PlanResult(msgspec.Struct, frozen=True):
    """The result of a plan: the stored result of each step that was performed, and the choices made."""

    plan: str
    results: Mapping[str, Any]
    chosen: tuple[Chosen, ...]


class PlanExecution:
    """One running plan. `facts` are those known when it was given."""

    def __init__(
        self, context: RunContext, plan: Plan, tools: Mapping[str, AnyTool], how: ExecuteOptions,
        dependencies: PlanDependencies,
    ) -> None:  # fmt: skip
        self._context = context
        self._plan = plan
        self._tools = tools
        self._given = how.given
        self._approved = how.approve
        self._dependencies = dependencies
        self._results: dict[str, Any] = {}
        self._chosen: dict[str, Chosen] = {}
        self._stopped = False

    async def perform(self) -> PlanResult:
        """Begin every step as soon as the steps that it waits for have ended.

        After a failure no step begins, and running steps are awaited: their effects may happen, and which
        of them do must not depend on how fast the failure was noticed. The order of the ends is journaled.
        """
        self._dependencies.begin(self._context.path)
        self._context.drop_open_steps()
        try:
            failure = await self._steps()
            corrected = isinstance(failure, NewPlanNeeded) and bool(failure.corrected)
            if failure is None or isinstance(failure, Interrupted) or corrected:
                failure = await self._whole(failure)
            if failure is not None:
                raise failure
            self._dependencies.kept(step.id for step in self._plan.steps if step.hold and step.id in self._results)
        finally:
            self._dependencies.end()
        return PlanResult(self._plan.name, self._results, tuple(self._chosen[step.id] for step in self._plan.steps))

    async def _whole(self, failure: BaseException | None) -> BaseException | None:
        """The effect of corrections on the plan as a whole, including corrections that came with a message."""
        shaken = await self._dependencies.shaken(self._context)
        if shaken is None:
            return failure
        needed = self._new_plan(shaken)
        needed.__cause__ = failure if isinstance(failure, Interrupted) else None
        return needed

    async def _steps(self) -> BaseException | None:
        """Perform the steps; return the first failure, if there is one, or the messages that steps received."""
        over: set[str] = set()
        running: dict[str, asyncio.Task[None]] = {}
        ended: asyncio.Queue[str] = asyncio.Queue()
        failures: list[BaseException] = []
        try:
            self._begin(over, running, ended)
            while running:
                name = await self._next(running, ended)
                over.add(name)
                error = running.pop(name).exception()
                failures += [error] if error is not None else []
                self._stopped = bool(failures)
                if not failures:
                    self._begin(over, running, ended)
        finally:
            for task in running.values():
                task.cancel()
            if running:
                await asyncio.wait(running.values())
        return _foremost(failures)

    def _begin(self, over: set[str], running: dict[str, asyncio.Task[None]], ended: asyncio.Queue[str]) -> None:
        for step in self._plan.steps:
            if step.id not in over | running.keys() and over.issuperset(self._plan.waits_for(step)):
                task = self._context.start(step.id, self._step(step))
                task.add_done_callback(functools.partial(_report_end, ended, step.id))
                running[step.id] = task

    async def _next(self, running: Mapping[str, asyncio.Task[None]], ended: asyncio.Queue[str]) -> str:
        """The step that ended next, in the recorded order, however fast the others are this time."""
        first = await ended.get()
        while first not in running:  # already taken: the record named it before it ended here
            first = await ended.get()
        name = await self._context.value("over", lambda: first)
        if name != first:
            ended.put_nowait(first)
            await asyncio.wait([running[name]])
        return name

    # --- one step ----------------------------------------------------------------------------------------------

    async def _step(self, step: PlanStep) -> None:
        await self._still_grounded(step)
        if step.when and not self._holds(step, step.when):
            self._results[step.id] = None
            await self._chose(Chosen(step.id, SKIPPED, why=f"not needed: {step.when}"))
            return
        before, after = parted(step)
        if held := await self._aborts(step, before, after=False):
            await self._chose(Chosen(step.id, ABORTED, why=f"called off before it was sent: {held}"))
            raise self._aborted(step, f": {held}")
        await self._try_in_order(step, asks=bool(step.ask_if) and self._holds(step, step.ask_if))
        if held := await self._aborts(step, after, after=True):
            await self._chose(msgspec.structs.replace(self._chosen[step.id], why=f"called off: {held}"))
            raise self._aborted(step, f": {held}")

    async def _aborts(self, step: PlanStep, conditions: tuple[str, ...], *, after: bool) -> str:
        """The first of these conditions that is true; empty if none is. The judgement is recorded."""
        if not conditions:
            return ""

        def judged() -> dict[str, Any]:
            held = next((one for one in conditions if self._holds(step, one, after=after)), "")
            return msgspec.to_builtins(JudgedConditions(conditions, after, held))  # type: ignore[no-any-return]  # a struct: a dict

        moment = "after" if after else "before"
        return msgspec.convert(await RunContext.current().value(f"{JUDGED}:{moment}", judged), JudgedConditions).held

    async def _still_grounded(self, step: PlanStep, *reasons: str) -> None:
        """Raise `NewPlanNeeded` if a fact that this step relies on was corrected since the plan was given."""
        wrong = await self._dependencies.wrong(RunContext.current(), step.id)
        if wrong:
            why = f"relied on what was corrected: {', '.join(wrong)}"
            await self._chose(Chosen(step.id, DROPPED, why="; ".join([*reasons, why])))
            raise self._new_plan(Shaken(wrong))

    def _holds(self, step: PlanStep, condition: str, *, after: bool = False) -> bool:
        names = self._plan.before(step) | ({step.id} if after else frozenset[str]())
        seen = {"results": {name: self._results[name] for name in sorted(names)}, "input": self._given}
        try:
            return holds(condition, seen)
        except ConditionError as error:
            raise self._failed(step, str(error)) from error

    async def _try_in_order(self, step: PlanStep, *, asks: bool) -> None:
        """Perform the primary; then a fallback, only if all calls before it are proven to have failed."""
        reasons: list[str] = []
        for number, call in enumerate(step.calls):
            if reasons and await RunContext.current().value("stopped", lambda: int(self._stopped)):
                reasons.append("no fallback was tried, since another step has failed")
                break
            chosen = PRIMARY if number == 0 else f"fallback {number}"
            try:
                tool, arguments = self._ready(step, call, asks=asks)
            except ArgumentError as error:  # nothing was sent: the next call may be tried
                reasons.append(error.message)
                continue
            if step.hold:
                self._results[step.id] = None
                await RunContext.current().hold(tool, arguments)
                await self._chose(Chosen(step.id, chosen, call.tool, "; ".join([*reasons, "held until the commit"])))
                return
            outcome = await self._call(step, tool, arguments)
            if outcome.status == "succeeded":
                stored, _ = self._tools[call.tool].codec.round_trip(outcome.value)
                self._results[step.id] = msgspec.json.decode(stored)  # plain JSON, for references and conditions
                await self._chose(Chosen(step.id, chosen, call.tool, "; ".join(reasons)))
                return
            if asks and outcome.code in NOT_APPROVED:
                await self._still_grounded(step)
                raise self._aborted(step, f" was not approved: {outcome.reason}")
            reasons.append(f"{call.tool} {outcome.status}: {outcome.reason}")
            await self._after_failure(step, call, outcome, reasons)
        await self._fail(step, reasons)

    async def _call(self, step: PlanStep, tool: AnyTool, arguments: dict[str, Any]) -> Outcome[Any]:
        self._dependencies.sending(step.id)
        outcome = await RunContext.current().call(tool, arguments)
        if message_basis(outcome) is not None:
            self._dependencies.sent(step.id, done=False, effect=False)
            raise outcome.error()
        effect = tool.contract.effect == "write" and outcome.status not in {"failed", "cancelled"}
        self._dependencies.sent(step.id, done=outcome.status == "succeeded", effect=effect)
        return outcome

    async def _after_failure(self, step: PlanStep, call: Call, outcome: Outcome[Any], reasons: list[str]) -> None:
        """Return if the next call may be tried: this one is proven to have failed, and its facts are unchanged."""
        if outcome.status not in {"failed", "cancelled"}:
            await self._fail(step, [*reasons, "no fallback is tried while the outcome is unknown"])
        await self._still_grounded(step, *reasons)
        if outcome.code == "stale":
            await self._chose(Chosen(step.id, STALE, call.tool, "; ".join(reasons)))
            raise NewPlanNeeded(
                f"step {step.id}: what {call.tool} relies on has changed", run=self._context.run,
                plan=self._plan.name, step=step.id, results=dict(self._results),
            )  # fmt: skip

    async def _fail(self, step: PlanStep, reasons: list[str]) -> None:
        await self._chose(Chosen(step.id, "failed", why="; ".join(reasons)))
        raise self._failed(step, "; ".join(reasons))

    def _aborted(self, step: PlanStep, why: str) -> PlanAborted:
        return PlanAborted(f"step {step.id}{why}", run=self._context.run, plan=self._plan.name, step=step.id)

    def _failed(self, step: PlanStep, why: str) -> PlanStepFailed:
        return PlanStepFailed(f"step {step.id}: {why}", run=self._context.run, plan=self._plan.name, step=step.id)

    def _new_plan(self, shaken: Shaken) -> NewPlanNeeded:
        return NewPlanNeeded(
            f"the plan {self._plan.name} relied on what was corrected: {', '.join(shaken.facts)}",
            run=self._context.run, plan=self._plan.name, results=dict(self._results),
            shaken=shaken,
        )  # fmt: skip

    def _ready(self, step: PlanStep, call: Call, *, asks: bool) -> tuple[AnyTool, dict[str, Any]]:
        tool = _within_limits(self._tools[call.tool], step)
        # An approval of the plan covers what was shown: a result was not known then.
        unknown = self._approved and any(references(call.arguments))
        if tool.contract.effect == "write" and (asks or unknown):
            tool = tool.asking("" if asks else call.within)
        if self._approved and tool.contract.effect == "write":
            tool = tool.options()
            tool.about = msgspec.structs.replace(tool.about, covered=True)
        try:
            sent = cast("dict[str, Any]", resolved(call.arguments, self._results, self._dependencies.facts))
        except (LookupError, TypeError) as error:
            raise ArgumentError(f"{call.tool}: a result has no such part: {error}") from error
        arguments: dict[str, Any] = tool.spec.bind((), parse_planned(sent, tool.spec.types, tool.spec.required))
        return tool, arguments

    async def _chose(self, chosen: Chosen) -> None:
        self._chosen[chosen.step] = chosen
        text = msgspec.json.encode(chosen).decode()
        recorded = await RunContext.current().value("chose", lambda: text)
        self._chosen[chosen.step] = msgspec.json.decode(recorded, type=Chosen)


def parted(step: PlanStep) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The `abort_if` of a step: those judged before the step sends anything, and those that read its own result."""
    after = tuple(one for one in step.abort_if if reads_result_of(one, step.id))
    return tuple(one for one in step.abort_if if one not in after), after


def _within_limits(tool: AnyTool, step: PlanStep) -> AnyTool:
    """The tool with the limits of this step. A plan can only tighten the limits that the tool declares."""
    contract: Contract = tool.contract
    timeout = retry = None
    if step.timeout_s is not None and step.timeout_s * 1000 < contract.timeout_ms:
        timeout = timedelta(seconds=step.timeout_s)
    if step.attempts is not None and step.attempts < contract.retries.attempts:
        retry = msgspec.structs.replace(contract.retries, attempts=step.attempts)
    return tool if timeout is None and retry is None else tool.options(timeout=timeout, retry=retry)


def _foremost(failures: list[BaseException]) -> BaseException | None:
    """The failure that the code receives: messages first, as steps have received them and none delivers them again."""
    heard = [one for one in failures if isinstance(one, Interrupted)]
    if not heard:
        return failures[0] if failures else None
    told = heard[0] if len(heard) == 1 else _together(heard)
    if not isinstance(failures[0], Interrupted):
        told.__cause__ = failures[0]
    return told


def _together(heard: list[Interrupted]) -> Interrupted:
    """One error that delivers what several steps received."""
    first, *_ = heard
    facts = {name: value for one in heard for name, value in one.facts.items()}
    senders = ", ".join(dict.fromkeys(one.sender for one in heard))
    text = "; ".join(dict.fromkeys(one.text for one in heard))
    return Interrupted(text, run=first.run, sender=senders, facts=facts, stop=any(one.stop for one in heard))


def _report_end(ended: asyncio.Queue[str], name: str, _task: asyncio.Task[None]) -> None:
    ended.put_nowait(name)
