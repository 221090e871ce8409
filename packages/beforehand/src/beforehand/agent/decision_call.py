"""`DecisionCall`: the decision for which a model is being asked, for the code that asks it, such as a route.

`run.decide` makes one for each decision and sets it around each try. It does not depend on the tasks and threads in
which an agent framework asks its models.
"""

from __future__ import annotations

import contextlib
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Final

from beforehand.engine.shared_budgets import budget_left
from beforehand.errors import JournalError
from beforehand.model.run_budget import BudgetLeft

if TYPE_CHECKING:
    from beforehand.engine.active_run.run import ActiveRun


class DecisionCall:
    """One decision of a run, with all its tries in this process. Each may take `limit_s` seconds.

    `memory` is for the code that asks: what it knows from earlier tries, under a key of its own. `why` and `model` are
    recorded where the answer states none.
    """

    def __init__(self, active: ActiveRun, step: str, limit_s: float) -> None:
        self.active: Final = active
        self.run: Final = active.run
        self.step: Final = step
        self.limit_s: Final = limit_s
        self.memory: Final[dict[object, Any]] = {}
        self.why = ""
        self.model = ""

    @classmethod
    def current(cls) -> DecisionCall | None:
        """The decision for which this code asks a model; None for code that asks without one."""
        return CALL.get()

    def now_ms(self) -> int:
        """The wall clock."""
        return self.active.process.wall_ms()

    async def budget_left(self) -> BudgetLeft | None:
        """The limit with the least left for the model calls of the run; None without one, or if it cannot be read."""
        with contextlib.suppress(JournalError):  # the answer cannot be recorded either, and that ends the run
            return await budget_left(self.active, self.step)
        return None


CALL: Final[ContextVar[DecisionCall | None]] = ContextVar("beforehand_decision", default=None)
