"""Plans as data: a model proposes them, a person approves them, and the runtime executes them without either."""

from holdfast.errors import NewPlanNeeded, PlanAborted, PlanError, PlanRefused, PlanStepFailed
from holdfast.model.plan import Call, Chosen, Plan, PlanStep
from holdfast.planning.executor import PlanResult, check_plan
from holdfast.planning.schema import plan_schema

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
