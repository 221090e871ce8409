"""Executing a plan: deterministic, durable, and without asking the model that made it.

Every step is a branch of the run, named by its id; so its operations have stable names whatever the order in which
steps end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.agent.conditions import steps_used
from holdfast.agent.course import AnyTool, Course, PlanResult, approved
from holdfast.agent.grounds import Grounds, Relied
from holdfast.agent.offering import offered_tools
from holdfast.agent.transactions import Transaction
from holdfast.engine import steps
from holdfast.engine.scopes import SCOPE, Scope
from holdfast.engine.suspension import Ending
from holdfast.errors import PlanAborted, PlanRefused
from holdfast.model.facts import Known as KnownFacts
from holdfast.model.plan import Plan
from holdfast.model.plan_checks import Given, Known, faults_of
from holdfast.model.transaction import WHOLE_RUN, around

if TYPE_CHECKING:
    from holdfast.agent.tool import Tool


class Manner(msgspec.Struct, frozen=True):
    """How a plan is executed: what conditions know as `input`, the facts, and whether a person approves it first."""

    given: Any
    known: KnownFacts
    relies_on: Relied = ()
    approve: bool = False


def check_plan(
    plan: Plan, tools: Mapping[str, AnyTool], facts: Mapping[str, Any] | None = None, *, inside: bool = False
) -> None:
    """Raise `PlanRefused` with everything that is wrong with the plan. Nothing is recorded or sent.

    `facts` are the run's facts by name; without them, what the plan says about facts is not checked. `inside`: it will
    be executed inside a transaction of code.
    """
    known = {name: known_of(tool) for name, tool in tools.items() if not tool.serves}
    faults = faults_of(plan, Given(known, facts, inside), steps_used)
    if faults:
        listed = tuple(map(str, faults))
        reasons = "1 reason" if len(listed) == 1 else f"{len(listed)} reasons"
        raise PlanRefused(f"the plan {plan.name!r} is refused for {reasons}: {'; '.join(listed)}", faults=listed)


def known_of(tool: Tool[Any, Any]) -> Known:
    """What checking has to know about a tool."""
    return Known(tool.contract, tool.shape.types, tool.shape.required, tool.shape.returns)


async def execute(scope: Scope, plan: Plan, how: Manner) -> PlanResult:
    """Perform a plan as a part of this run. See `Run.execute`."""
    tools = offered_tools(scope)
    grounds = Grounds(how.known, plan, how.given, how.relies_on)
    boundaries = around(scope.path, scope.instance.history.transactions)
    check_plan(plan, tools, grounds.facts, inside=any(one.name != WHOLE_RUN for one in boundaries))
    await _same_plan(scope, plan)
    if how.approve and not await approved(scope, grounds.digest, f"the plan {plan.name} ({grounds.told})"):
        raise PlanAborted(f"the plan {plan.name} was not approved", run=scope.instance.run, plan=plan.name)
    if not plan.together:
        return await Course(scope.boundary(plan.name), plan, tools, how.given, grounds).perform()
    async with Transaction(scope, plan.name, "one"):
        section = SCOPE.get()
        assert section is not None, "a transaction has a section of its own"
        return await Course(section, plan, tools, how.given, grounds).perform()


async def _same_plan(scope: Scope, plan: Plan) -> None:
    """The plan is on record whole: a replay that comes back with another one is no silent replay."""
    text = msgspec.json.encode(plan, order="deterministic").decode()
    recorded = await steps.value(scope, f"plan:{plan.name}", lambda: text)
    if recorded != text:
        scope.instance.end(Ending("diverged", f"the plan {plan.name} came back as another one"))
        raise scope.instance.divergence(f"the plan {plan.name} differs from the recorded one")
