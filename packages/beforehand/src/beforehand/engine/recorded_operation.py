"""An operation as its journal describes it, for readers that drive nothing.

It gives `situation.judge` the inputs that a process has. So a reader sees the move that the next owner of the run
would make, if it has the same code and time left for the run. `inspect/explain.py` names what else that owner reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from beforehand.engine.breaker import ALL, BreakerStates, paused_tools
from beforehand.engine.caches import PendingIndex
from beforehand.engine.call_limits import limited_call
from beforehand.engine.calls import fate_of
from beforehand.engine.conflicts import Claimant, find_conflict, may_conflict
from beforehand.engine.operation_driver import LedgerFindings, approval_asked
from beforehand.engine.settings import Settings
from beforehand.engine.situation import Inputs
from beforehand.journal.cells import limit_uses
from beforehand.model import records as r
from beforehand.model.decision.situation import Now
from beforehand.model.ids import operation_id
from beforehand.model.operation import OperationState
from beforehand.model.transitions import apply
from beforehand.model.waits import stored_contract

if TYPE_CHECKING:
    from beforehand.engine.call_limits import RecordedLimits
    from beforehand.journal.cells import LimitUse
    from beforehand.journal.port import Identity, JournalReads
    from beforehand.model.run_history import RunHistory


class RecordedOperation(msgspec.Struct, frozen=True):
    """A recorded operation as the next owner of its run will find it, and the inputs of its next decision."""

    operation: OperationState
    inputs: Inputs


class SharedState:
    """The state that all runs of a journal share, as the process that drives the next one of them will read it."""

    def __init__(self, journal: JournalReads, identity: Identity, tool: str, now: Now, settings: Settings) -> None:
        self.journal: Final = journal
        self.identity: Final = identity
        self.now: Final = now
        self.settings: Final = settings
        self.breakers: Final = BreakerStates(self.journal, lambda: now.wall, (tool,))
        self.pending_index: Final = PendingIndex()
        self.limits: RecordedLimits | None = None
        self.pauses: dict[str, str] = {}

    async def read(self) -> SharedState:
        """Read it from the journal, and return it."""
        self.pauses = await paused_tools(self.journal)
        if uses := await limit_uses(self.journal, self.settings.pause_bound_ms):
            await self._read_limits(uses)
        await self.breakers.refresh()
        await self.pending_index.refresh(self.journal)
        return self

    async def _read_limits(self, uses: list[LimitUse]) -> None:
        from beforehand.engine.call_limits import RecordedLimits  # noqa: PLC0415 - few journals have limits of calls
        from beforehand.engine.process import newest_limits  # noqa: PLC0415 - as above

        if (newest := await newest_limits(self.journal)) is not None:
            self.limits = RecordedLimits(newest.limits, uses, self.journal.clock(), self.settings.poll_ms)


async def read_operation(shared: SharedState, history: RunHistory, operation: OperationState) -> RecordedOperation:
    """Read what the next owner of the run will find out about the operation."""
    journal, live, hung = shared.journal, set[int](), ""
    row = next(iter(await journal.runs(run=history.run)), None)
    present = "" if row is None else row.owner or ""
    held = present != "" and not (await journal.fate(present)).gone
    claimed_up = _measured_since(shared, history, present if held else "")
    for attempt in operation.attempts:  # those whose process is gone are ended; the present owner's calls still run
        owner = history.ownership.owners.get(attempt.token)
        if attempt.over_up is not None or owner is None:
            continue
        state = await journal.fate(owner.worker)
        if row is not None and (row.token, row.owner) == (attempt.token, owner.worker) and not state.gone:
            if attempt.end is None:
                live.add(attempt.number)
            continue
        fate = fate_of(state, shared.settings.pause_bound_ms)
        hung = fate.hung or hung
        if (ended := fate.ends(attempt)) is not None:
            step, now = operation.step, shared.now
            end = r.AttemptEnded(step=step, number=attempt.number, end=ended, over=fate.over, at=now.wall, up=now.up)
            operation = apply(operation, end, now.boot)
    ledger = LedgerFindings()
    if may_conflict(history, shared.pending_index, operation):
        claimant = Claimant(
            id=operation_id(history.run, operation.step),
            operation=operation,
            contract=stored_contract(history, operation),
            history=history,
            claimed_up=claimed_up,
            journal=journal,
            claim_wait_ms=shared.settings.claim_wait_ms,
            now=lambda: shared.now,
            ancestors={},
        )
        ledger = await find_conflict(claimant, ledger)
    inputs = recorded_inputs(shared, history, operation)
    inputs = replace(
        inputs, claimed_up=claimed_up, live=frozenset(live), hung=hung, other=ledger.other, key_age_ms=ledger.key_age_ms
    )
    return RecordedOperation(operation, with_asked(inputs, operation))


def _measured_since(shared: SharedState, history: RunHistory, worker: str) -> int:
    """Since when this owner measures time: in a restored journal it counts from its own first claim."""
    return history.ownership.measured_since(shared.now, trusted=shared.identity.trust == "trusted", worker=worker)


def recorded_inputs(shared: SharedState, history: RunHistory, operation: OperationState) -> Inputs:
    """The inputs under the recorded clauses, before code brings arguments, and before other runs are read.

    What a person would be asked to approve is left out: it depends on these runs.
    The condition of a gate is a part of the code: it requires an approval unless an attempt without one is on record.
    """
    stopped, approval, tool = history.lifecycle.stopped, operation.approval, operation.intent.tool
    contract = stored_contract(history, operation)
    on_record = bool(approval.asked_digest or approval.approved_digest) or not operation.attempts
    return Inputs(
        history=history,
        identity=shared.identity,
        settings=shared.settings,
        contract=contract,
        claimed_up=_measured_since(shared, history, ""),
        present=True,
        journaled=True,
        past_deadline=False,  # the deadline of an agent is a part of its code
        cut_off=False,
        unheard=False,
        correcting=history.messages is not None and any(message.facts for message in history.messages.undelivered),
        gated=contract.gate is not None and on_record,
        permitted=False,
        policy="",
        asks="",
        paused=shared.pauses.get(tool) or shared.pauses.get(ALL, ""),
        breaker_ms=shared.breakers.wait_ms(tool, retry=bool(operation.attempts)) if shared.breakers.states else 0,
        limit=None if shared.limits is None else shared.limits.wait(limited_call(history, tool)),
        at_hand=False,
        live=frozenset(),
        stopped_ms=0 if stopped is None else shared.now.wall - stopped.at,
        other=None,
        misfit="",
        reading="unread",
        key_age_ms=0,
        hung="",
        spent=None,
    )


def with_asked(inputs: Inputs, operation: OperationState) -> Inputs:
    """The inputs with the digest of what a person would be asked to approve."""
    name = operation_id(inputs.history.run, operation.step)
    conflicts = inputs.gated or inputs.other is not None
    asks = approval_asked(inputs.identity.namespace, name, operation, operation.contract, conflicts=conflicts)
    return replace(inputs, asks=asks)
