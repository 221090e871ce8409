"""Planted bugs: each takes one safeguard out of the product, and the simulator has to notice.

`make deep ONLY=mutants` plants them all.
"""

from __future__ import annotations

from typing import Final

from simulator.mutations.approvals import APPROVALS
from simulator.mutations.budgets import BUDGET_BUGS
from simulator.mutations.executor import EXECUTOR
from simulator.mutations.families import FAMILY_BUGS
from simulator.mutations.hosts import HOSTS
from simulator.mutations.models import MODEL_BUGS
from simulator.mutations.operations import OPERATIONS
from simulator.mutations.policies import POLICY
from simulator.mutations.queues import QUEUE_BUGS
from simulator.mutations.reviews import REVIEWS
from simulator.mutations.schedules import SCHEDULE_BUGS
from simulator.mutations.tables import TABLE_BUGS
from simulator.mutations.timing_and_processes import PROCESSES, TIMING
from simulator.mutations.transactions_and_plans import TOGETHER

MUTANTS: Final = (
    *OPERATIONS,
    *TOGETHER,
    *APPROVALS,
    *REVIEWS,
    *POLICY,
    *TIMING,
    *PROCESSES,
    *EXECUTOR,
    *HOSTS,
    *QUEUE_BUGS,
    *SCHEDULE_BUGS,
    *BUDGET_BUGS,
    *FAMILY_BUGS,
    *MODEL_BUGS,
    *TABLE_BUGS,
)
"""The planted bugs, by the promise that they break."""
