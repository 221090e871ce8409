"""Plans as data: a model proposes them, a person approves them, and the runtime executes them without either."""

from beforehand.errors import NewPlanNeeded, PlanAborted, PlanError, PlanRefused, PlanStepFailed
from beforehand.model.plan import Call, Chosen, Plan, PlanStep
from beforehand.planning.executor import PlanResult, check_plan
from beforehand.planning.schema import plan_schema

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
