"""An operation as its journal describes it, for readers that drive nothing.

`situation.next_move` takes it like a `OperationDriver`. So a reader sees the move that the next owner of the run would
make, if it has the same code and time left for the run. `inspect/explain.py` names what else that owner reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from beforehand.engine.breaker import Breakers, paused_tools
from beforehand.engine.caches import PendingIndex
from beforehand.engine.calls import fate_of
from beforehand.engine.operation_driver import Findings, approval_asked
from beforehand.engine.settings import Settings
from beforehand.model import records as r
from beforehand.model.contract import Contract
from beforehand.model.decision.situation import Now
from beforehand.model.ids import operation_id
from beforehand.model.operation import OperationState
from beforehand.model.transitions import apply
from beforehand.model.waits import stored_contract

if TYPE_CHECKING:
    from collections.abc import Callable

    from beforehand.engine.call_limits import RecordedLimits
    from beforehand.journal.port import Identity, Journal, LimitUse
    from beforehand.model.run_history import RunHistory


class RecordedOperation:
    """One recorded operation, as `situation_of` and `find_conflict` read it."""

    journaled: Final = True
    scope: Final = None
    started: Final = None
    arguments: Final = None  # the next owner drives it before its code brings them

    def __init__(self, active: RecordedRun, operation: OperationState) -> None:
        self.active: Final = active
        self.log: Final = active
        self.step = operation.step
        self.id: Final = operation_id(active.run, operation.step)
        self.operation = operation
        self.tool: Final = _RecordedTool(stored_contract(active.history, operation), operation.contract)
        self.calls: Final[dict[int, _OpenCall]] = {}
        self.found = Findings()

    def contract(self, operation: OperationState | None = None) -> Contract:
        """The clauses under which it was recorded."""
        del operation
        return self.tool.contract

    def gated(self, condition: str) -> bool:
        """True unless an attempt without an approval is on record: the condition is a part of the code."""
        del condition
        approval = self.operation.approval
        return bool(approval.asked_digest or approval.approved_digest) or not self.operation.attempts

    def asks(self, operation: OperationState) -> str:
        """The digest of exactly what a person would be asked to approve now; empty if no approval is needed."""
        namespace, conflicts = self.active.process.identity.namespace, bool(self.found.gate or self.found.other)
        return approval_asked(namespace, self.id, operation, self.tool.digest, conflicts=conflicts)

    async def account_for_owners(self) -> None:
        """End the attempts whose process is gone, as the next owner will; the present owner's calls still run."""
        journal, history = self.active.process.journal, self.active.history
        owned = next((row for row in await journal.runs(run=history.run)), None)
        if owned is not None and owned.owner and not (await journal.fate(owned.owner)).gone:
            self.active.measure_for(owned.owner)
        for attempt in self.operation.attempts:
            owner = history.ownership.owners.get(attempt.token)
            if attempt.over_up is not None or owner is None:
                continue
            state = await journal.fate(owner.worker)
            if owned is not None and (owned.token, owned.owner) == (attempt.token, owner.worker) and not state.gone:
                if attempt.end is None:
                    self.calls[attempt.number] = _OpenCall()
                continue
            fate = fate_of(state, self.active.process.settings.pause_bound_ms)
            self.found.hung = fate.hung or self.found.hung
            if (ended := fate.ends(attempt)) is not None:
                now = self.active.now()
                record = r.AttemptEnded(
                    step=self.step, number=attempt.number, end=ended, over=fate.over, at=now.wall, up=now.up
                )
                self.operation = apply(self.operation, record, now.boot)


class _OpenCall:
    """A call that the owner of the run still makes. No event loop is needed to look at it."""

    def done(self) -> bool:
        """False, as far as the journal knows."""
        return False


class _RecordedTool(msgspec.Struct, frozen=True):
    """The tool as it was declared when the operation was recorded; `digest` is that of its contract."""

    contract: Contract
    digest: str
    gone: Callable[[], bool] = bool  # only the process that runs its code knows


class RecordedRun:
    """The run of a recorded operation."""

    def __init__(self, history: RunHistory, process: RecordedProcess) -> None:
        self.run: Final = history.run
        self.history: Final = history
        self.process: Final = process
        self.measure_for("")

    def measure_for(self, worker: str) -> None:
        """Measure time as this process would: in a restored journal it counts from its own first claim."""
        trusted = self.process.identity.trust == "trusted"
        self.claimed_up = self.history.ownership.measured_since(self.process.now, trusted=trusted, worker=worker)

    def now(self) -> Now:
        """The moment for which it is judged."""
        return self.process.now

    def may_correct(self) -> bool:
        """True if there is a message with facts that code has never received."""
        messages = self.history.messages
        return messages is not None and any(one.facts for one in messages.undelivered)


class RecordedProcess:
    """The process that would drive the run next, as far as its journal knows it."""

    def __init__(self, journal: Journal, identity: Identity, tool: str, now: Now, settings: Settings) -> None:
        self.journal: Final[Journal] = journal
        self.identity: Identity = identity
        self.now: Final = now
        self.settings: Final = settings
        self.breakers: Final = Breakers(self.journal, _StoppedClock(now.wall), (tool,))
        self.pending_index: Final = PendingIndex()
        self.limits: RecordedLimits | None = None
        self.pauses: dict[str, str] = {}
        self.policy: AnyPolicy | None = None

    async def read(self) -> None:
        """Read the state that all runs of a journal share."""
        self.pauses = await paused_tools(self.journal)
        if uses := await self.journal.permits(self.settings.pause_bound_ms):
            await self._read_limits(uses)
        await self.breakers.refresh()
        await self.pending_index.refresh(self.journal)

    async def _read_limits(self, uses: list[LimitUse]) -> None:
        from beforehand.engine.call_limits import RecordedLimits  # noqa: PLC0415 - few journals have limits of calls
        from beforehand.engine.process import newest_limits  # noqa: PLC0415 - as above

        if (newest := await newest_limits(self.journal)) is not None:
            self.limits = RecordedLimits(newest.limits, uses, self.journal.now(), self.settings.poll_ms)

    def deadline_of(self, history: RunHistory) -> None:
        """None: the deadline of an agent is a part of its code."""

    def wall_ms(self) -> int:
        """The wall clock of the moment for which it is judged."""
        return self.now.wall


class AnyPolicy(msgspec.Struct, frozen=True):
    """A policy that has not ruled yet."""

    version: str = "unread"


class _StoppedClock:
    """The wall clock at the moment for which an operation is judged."""

    def __init__(self, wall_ms: int) -> None:
        self._wall_ms = wall_ms

    def wall_ms(self) -> int:
        return self._wall_ms

    async def sleep(self, seconds: float) -> None:
        raise AssertionError(f"a reader does not wait for {seconds} s")
