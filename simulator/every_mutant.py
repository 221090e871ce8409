"""Planted bugs: each takes one safeguard out of the product, and the simulator has to notice.

`make mutants` plants them all, one process each.
"""

from __future__ import annotations

from typing import Final

from simulator.mutants import OPERATIONS
from simulator.mutants_approvals import APPROVALS
from simulator.mutants_policy import POLICY
from simulator.mutants_processes import PROCESSES
from simulator.mutants_reviews import REVIEWS
from simulator.mutants_timing import TIMING
from simulator.mutants_together import TOGETHER

MUTANTS: Final = (*OPERATIONS, *TOGETHER, *APPROVALS, *REVIEWS, *POLICY, *TIMING, *PROCESSES)
"""The planted bugs, by the promise that they break."""
