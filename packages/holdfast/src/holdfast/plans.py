"""Plans as data: what a model proposes, a person approves, and the runtime executes without either."""

from holdfast.agent.course import Chosen, PlanResult
from holdfast.agent.plan_schema import plan_schema
from holdfast.agent.planning import check_plan
from holdfast.errors import NewPlanNeeded, PlanAborted, PlanError, PlanRefused, PlanStepFailed
from holdfast.model.plan import Call, Plan, PlanStep

__all__ = [
    "Call",
    "Chosen",
    "NewPlanNeeded",
    "Plan",
    "PlanAborted",
    "PlanError",
    "PlanRefused",
    "PlanResult",
    "PlanStep",
    "PlanStepFailed",
    "check_plan",
    "plan_schema",
]
