"""An operation as its journal describes it, for readers that drive nothing.

It gives `situation.move_of` the inputs that a process has. So a reader sees the move that the next owner of the run
would make, if it has the same code and time left for the run. `inspect/explain.py` names what else that owner reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from beforehand.engine.breaker import Breakers, paused_tools
from beforehand.engine.caches import PendingIndex
from beforehand.engine.call_limits import limited_call
from beforehand.engine.calls import fate_of
from beforehand.engine.operation_driver import Findings, approval_asked
from beforehand.engine.settings import Settings
from beforehand.engine.situation import Inputs
from beforehand.model import records as r
from beforehand.model.contract import Contract
from beforehand.model.decision.situation import Now
from beforehand.model.ids import operation_id
from beforehand.model.operation import OperationState
from beforehand.model.transitions import apply
from beforehand.model.waits import stored_contract

if TYPE_CHECKING:
    from beforehand.engine.call_limits import RecordedLimits
    from beforehand.journal.port import Identity, Journal, LimitUse
    from beforehand.model.run_history import RunHistory


class RecordedOperation:
    """One recorded operation, as `find_conflict` reads it, and the inputs of its next decision."""

    journaled: Final = True

    def __init__(self, active: RecordedRun, operation: OperationState) -> None:
        self.active: Final = active
        self.log: Final = active
        self.step = operation.step
        self.id: Final = operation_id(active.run, operation.step)
        self.operation = operation
        self.tool: Final = _RecordedTool(stored_contract(active.history, operation), operation.contract)
        self.live: Final = set[int]()
        self.found = Findings()

    def inputs(self, *, gate_flipped: bool = False, policy: str = "") -> Inputs:
        """The inputs under the recorded clauses, before code brings arguments; `policy` is one that may be in force.

        The condition of a gate is a part of the code: it requires an approval unless an attempt without one is on
        record, or the other way round if `gate_flipped`.
        """
        active, operation, found, contract = self.active, self.operation, self.found, self.tool.contract
        process, history = active.process, active.history
        stopped, approval, tool = history.lifecycle.stopped, operation.approval, operation.intent.tool
        on_record = bool(approval.asked_digest or approval.approved_digest) or not operation.attempts
        gated = contract.gate is not None and on_record != gate_flipped
        conflicts = gated or found.other is not None
        namespace, digest = process.identity.namespace, self.tool.digest
        return Inputs(
            history=history,
            identity=process.identity,
            settings=process.settings,
            contract=contract,
            claimed_up=active.claimed_up,
            present=True,
            journaled=True,
            past_deadline=False,  # the deadline of an agent is a part of its code
            cut_off=False,
            unheard=False,
            correcting=history.messages is not None and any(message.facts for message in history.messages.undelivered),
            gated=gated,
            permitted=False,
            policy=policy,
            asks=approval_asked(namespace, self.id, operation, digest, conflicts=conflicts),
            paused=process.pauses.get(tool, ""),
            breaker_ms=process.breakers.wait_ms(tool, retry=bool(operation.attempts)) if process.breakers.states else 0,
            limit=None if process.limits is None else process.limits.wait(limited_call(history, tool)),
            at_hand=False,
            live=frozenset(self.live),
            stopped_ms=0 if stopped is None else process.now.wall - stopped.at,
            other=found.other,
            misfit="",
            reading="unread",
            key_age_ms=found.key_age_ms,
            hung=found.hung,
            spent=None,
        )

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
                    self.live.add(attempt.number)
                continue
            fate = fate_of(state, self.active.process.settings.pause_bound_ms)
            self.found.hung = fate.hung or self.found.hung
            if (ended := fate.ends(attempt)) is not None:
                now = self.active.now()
                record = r.AttemptEnded(
                    step=self.step, number=attempt.number, end=ended, over=fate.over, at=now.wall, up=now.up
                )
                self.operation = apply(self.operation, record, now.boot)


class _RecordedTool(msgspec.Struct, frozen=True):
    """The tool as it was declared when the operation was recorded; `digest` is that of its contract."""

    contract: Contract
    digest: str


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


class _StoppedClock:
    """The wall clock at the moment for which an operation is judged."""

    def __init__(self, wall_ms: int) -> None:
        self._wall_ms = wall_ms

    def wall_ms(self) -> int:
        return self._wall_ms

    async def sleep(self, seconds: float) -> None:
        raise AssertionError(f"a reader does not wait for {seconds} s")
