"""The records of a run as its owner writes them: durably, or buffered until the next commit."""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, TypeGuard, TypeVar

import msgspec
from msgspec.structs import replace

from beforehand.engine.caches import StoredHistory
from beforehand.engine.environment import Stamp
from beforehand.engine.masking import Masks
from beforehand.engine.process import Process
from beforehand.engine.tool_protocol import ToolCode
from beforehand.errors import JournalError, JournalUnavailable, LeaseLost, SendingPaused
from beforehand.journal.port import Post, RunChange
from beforehand.journal.record_codec import encode
from beforehand.journal.run_log import RunLog
from beforehand.model import records as r
from beforehand.model.decision.situation import Now
from beforehand.model.operation import OperationState
from beforehand.model.run_history import RunHistory, is_about_operation
from beforehand.model.shared_use import Charge
from beforehand.model.usage import CallCost, Usage
from beforehand.queues.limits import SharedBudget

Answer = TypeVar("Answer")
_MAY_BLOCK: Final = {r.OperationSettled, r.OperationParked, r.CallerLeft}


class RunRecorder:
    """Everything that is recorded in a run goes through here; the history is changed with it.

    `on_failure` receives the error where the journal fails or the lease is lost.
    """

    def __init__(
        self, process: Process, history: RunHistory, journal_log: RunLog, on_failure: Callable[[JournalError], object]
    ) -> None:
        self.process: Final = process
        self.run: Final = history.run
        self.history: Final = history
        self.journal_log: Final = journal_log
        self.masks: Final = Masks()
        self.checking: Final[dict[asyncio.Future[None], set[str]]] = {}
        """Appends that the ledger may still refuse, with the steps that they are about."""
        self.reserving: Final[set[asyncio.Future[Any]]] = set()  # model calls that a shared budget may still refuse
        self.reserving_turn: Final = asyncio.Lock()  # held from the comparison with the run's own budget to the record
        self.receiving: asyncio.Future[None] | None = None  # a message is about to be recorded
        self._waiting: dict[asyncio.Future[None], None] = {}  # attempts that wait until they are next
        self.command_lock: Final = asyncio.Lock()
        # Attempts of ours that were given up before their call.
        self.never_sent: Final[dict[tuple[str, int], None]] = {}
        self.changes: Final[dict[str, set[str]]] = {}  # changed operations, by their reader; "": another change
        self.on_raised: Callable[[], None] | None = None  # called when a final outcome is contradicted
        self.counted = True  # by the gate of crash isolation
        self.blocking: Final[set[str]] = {
            *(step for step, operation in history.operations.items() if operation.phase == "unknown"),
            *history.delivered.left,
        }
        self._on_failure: Final = on_failure
        trusted = process.identity.trust == "trusted"
        self.claimed_up: Final = history.ownership.measured_since(self.now(), trusted=trusted, worker=process.worker.id)
        self._stored_contracts: set[str] = set(history.contracts)

    # --- time ------------------------------------------------------------------------------------------------

    def now(self) -> Now:
        """The present moment on the journal's clock and on the wall."""
        reading = self.process.journal.clock()
        return Now(reading.epoch, reading.earliest_ms, reading.wall_ms, reading.latest_ms)

    def stamp(self) -> Stamp:
        """The two clocks, for a record that is being made."""
        reading = self.process.journal.clock()
        return Stamp(at=reading.wall_ms, up=reading.latest_ms)

    # --- records ---------------------------------------------------------------------------------------------

    async def append(
        self,
        *records: r.Record,
        change: RunChange | None = None,
        posts: tuple[Post, ...] = (),
        declared: int | None = None,
        limits: SharedLimits | None = None,
    ) -> None:
        """Record durably. Raises `LedgerTaken` where a post is refused: then nothing was recorded.

        With `declared`, the entry of the limits of queues, `LimitsChanged` if others are in force; with `limits` these
        are compared, and `BudgetSpent` is raised where one is reached. The record that begins an attempt comes last:
        `SendingPaused` is raised while all sending is paused. What was chained on to it is refused with it, and the run
        is claimed anew.
        """
        # A run that ends settles what it has reserved, and the first child charges it to the tree.
        settles = (change is not None and change.release) or (
            self.history.budget is not None and any(map(self.history.begins_tree, records))
        )
        while (settles and (self.checking or self.reserving)) or self.journal_log.alone is not None:
            if self.journal_log.alone is not None:
                await asyncio.shield(self.journal_log.alone)
            else:
                await asyncio.wait({*self.checking, *self.reserving})
        records = self.masks.records(records)
        try:
            if posts or limits is not None:
                records = self._buffer_plan(records)
                # In a task of its own: a cancelled caller must not lose track of what the ledger answered.
                checked = _begin(self._append_checked(records, change, posts, declared, limits))
                self.checking[checked] = {record.step for record in records if is_about_operation(record)}
                checked.add_done_callback(self._checked)
                await asyncio.shield(checked)
            else:
                bodies, charges = tuple(map(encode, records)), self._charges(records)
                self._add(records)
                sends = bool(records) and type(records[-1]) is r.AttemptStarted
                await self.journal_log.append(bodies, change, (), charges, None, sends)
            self.process.live_text.recorded(self.run)
        except (LeaseLost, JournalUnavailable, SendingPaused) as error:
            if type(error) is not SendingPaused or not self.journal_log.usable:
                self._on_failure(error)
            raise

    def _buffer_plan(self, records: tuple[r.Record, ...]) -> tuple[r.Record, ...]:
        """The records after a plan; the plan itself is buffered before them, once.

        The ledger answers late: a caller that is cancelled meanwhile, or refused and comes again, finds the operation
        on record.
        """
        for at, record in enumerate(records, 1):
            if type(record) is r.OperationPlanned:
                if record.step not in self.history.operations:
                    self.buffer(*records[:at])
                return records[at:]
        return records

    async def _append_checked(
        self,
        records: tuple[r.Record, ...],
        change: RunChange | None,
        posts: tuple[Post, ...],
        declared: int | None,
        limits: SharedLimits | None,
    ) -> None:
        self.history.check(records)
        try:
            bodies, charges = list(map(encode, records)), self._charges(records)
            if limits is not None:
                charges, declared = limits.compared(self.history.charges(records)), limits.declared
            sends = bool(records) and type(records[-1]) is r.AttemptStarted
            await self.journal_log.append(bodies, change, posts, charges, declared, sends)
        except JournalError:
            self._stored_contracts &= self.history.contracts.keys()  # what came with them was not stored either
            raise
        self._add(records)

    async def reserve(self, started: r.DecisionStarted, limits: SharedLimits) -> bool:
        """Record a model call that is charged to shared budgets, durably. False if the run's own budget has no room.

        Raises `BudgetSpent` and `LimitsChanged`: then nothing was recorded.
        """
        # In a task of its own, as a write with posts: a cancelled caller must not lose track of the answer.
        (started,) = self.masks.records((started,))
        reserving = _begin(self._reserve(started, limits))
        self.reserving.add(reserving)
        reserving.add_done_callback(self._checked)
        try:
            return await asyncio.shield(reserving)
        except (LeaseLost, JournalUnavailable, SendingPaused) as error:
            self._on_failure(error)
            raise
        except asyncio.CancelledError:
            reserving.add_done_callback(lambda _: self.settle_reservation(started.step, Usage(refused=True)))
            raise

    async def _reserve(self, started: r.DecisionStarted, limits: SharedLimits) -> bool:
        if earlier := [*self._waiting, *([] if self.receiving is None else [self.receiving])]:
            await asyncio.wait(earlier)  # once: many branches that reserve keep no command and no attempt from its turn
        while self.journal_log.alone is not None:  # first: what is added meanwhile may settle what this reserves over
            await asyncio.shield(self.journal_log.alone)
        own = self.history.budget  # compared now: what came before may have used more than it had reserved
        if own is not None and own.refusal(started.step, started.before):
            return False
        charges = limits.compared(self.history.charges((started,)))
        await self.journal_log.append([encode(started)], None, (), charges, limits.declared)
        self._add((started,))
        return True

    def _charges(self, records: tuple[r.Record, ...]) -> tuple[Charge, ...]:
        """The charges of these records to shared budgets. A run that never reserved of one settles nothing."""
        if self.history.shared is None and r.ChildStarted not in map(type, records):
            return ()
        return self.history.charges(records)

    def settle_reservation(self, step: str, usage: Usage, price: CallCost | None = None) -> None:
        """Settle what the last model call of this step reserved, if that is open: its answer is not used."""
        uses = (self.history.budget, self.history.shared)
        if any(use is not None and step in use.open for use in uses):
            self.buffer(r.ReservationSettled(step=step, usage=usage, price=price, **self.stamp()))

    def _checked(self, future: asyncio.Future[Any]) -> None:
        """Retrieve the ledger's answer: asyncio would log a refusal that a cancelled caller no longer awaits."""
        self.checking.pop(future, None)
        self.reserving.discard(future)
        if not future.cancelled():
            future.exception()

    def withdraw(self, step: str, before: OperationState | None) -> None:
        """Restore the history to its state before an attempt of `step` that the journal refused."""
        self.history.withdraw(step, before)
        self._changed({step})
        self._stored_contracts &= self.history.contracts.keys()

    async def flush(self) -> None:
        """Return when everything that was recorded here is durable."""
        if begun := {*self.checking, *self.reserving}:
            await asyncio.wait(begun)
        await self.journal_log.flush()

    def buffer(self, *records: r.Record) -> None:
        """Record with the next commit; the order is kept."""
        records = self.masks.records(records)
        bodies = list(map(encode, records))  # first: what cannot be read back must not be in the history either
        charges = self._charges(records)
        self._add(records)  # then: a record that does not fit must never reach the journal
        self.journal_log.ride(bodies, charges)

    def _add(self, records: Iterable[r.Record]) -> None:
        for record in records:
            self.history.add(record)
            if type(record) in _MAY_BLOCK and _blocks(record):
                self.blocking.add(record.step)
        if self.counted and not self.history.ownership.fruitless and not self.process.isolation.suspects(self.run):
            self.leave_gate()
        if self.changes:
            self._changed({record.step if is_about_operation(record) else "" for record in records})
        if self.history.boundaries.raised and self.on_raised is not None:
            self.on_raised()

    def leave_gate(self) -> None:
        """The run has made progress and is no suspect, or it waits: it takes no room of other suspects any more."""
        self.counted = False
        self.process.isolation.exit_run(self.run)

    def _changed(self, steps: set[str]) -> None:
        for seen in self.changes.values():
            seen.update(steps)

    def contract_record(self, tool: ToolCode) -> tuple[r.ContractStored, ...]:
        """The record that stores a tool's clauses, the first time this run uses them."""
        if tool.digest in self._stored_contracts:
            return ()
        self._stored_contracts.add(tool.digest)
        clauses = msgspec.Raw(msgspec.json.encode(tool.contract))
        return (r.ContractStored(digest=tool.digest, clauses=clauses),)

    def blocker(self) -> str | None:
        """An operation that every new write has to wait for: unknown, or in flight after its caller was cancelled."""
        history = self.history
        for step in self.blocking:
            operation = history.operations.get(step)
            if operation is None or operation.final or operation.phase == "held" or operation.links.amended:
                continue  # a held operation waits for the end of the code that would wait for it here
            if operation.phase == "unknown" and step not in history.delivered.told_unknown:
                return step
            if operation.phase != "unknown" and step in history.delivered.left:
                return step
        return None

    # --- commands and messages between attempts --------------------------------------------------------------

    def may_have_news(self) -> bool:
        """True if a message came, or a command may come before this attempt because other appends are queued."""
        return self.history.messages is not None or self.journal_log.alone is not None or self.receiving is not None

    async def after_pending(self) -> None:
        """Return when the next record comes after everything that was begun, and after a command that is coming."""
        if not self._begun():
            return
        waiting = asyncio.get_running_loop().create_future()
        self._waiting[waiting] = None
        try:
            while begun := self._begun():
                await asyncio.wait(begun)
        finally:
            del self._waiting[waiting]
            waiting.set_result(None)

    def _begun(self) -> set[asyncio.Future[None]]:
        """Everything that is recorded before another attempt."""
        return {*self.checking, *(one for one in (self.receiving, self.journal_log.alone) if one is not None)}

    def checks(self, step: str) -> list[asyncio.Future[None]]:
        """The appends about this step that the ledger may still refuse."""
        return [checked for checked, steps in self.checking.items() if step in steps]

    @asynccontextmanager
    async def between_attempts(self) -> AsyncGenerator[None]:
        """Hold attempts back: those that the ledger may still refuse end first, and no other one begins inside.

        Otherwise an attempt that was decided before a command could be recorded after it.
        """
        self.receiving = asyncio.get_running_loop().create_future()
        try:
            while begun := {*self.checking, *filter(None, (self.journal_log.alone,))}:
                await asyncio.wait(begun)
            yield
        finally:
            self.receiving.set_result(None)
            self.receiving = None


class SharedLimits(msgspec.Struct, frozen=True):
    """The limits with which a record is compared that begins a call, and the ledger entry that declares them."""

    budgets: Mapping[str, SharedBudget]
    declared: int | None

    def compared(self, charges: Iterable[Charge]) -> tuple[Charge, ...]:
        """The charges; those of a new call with the limit that they must not find reached.

        A reservation of nothing is one of them: a free model is not asked at a limit either.
        """
        return tuple(
            replace(charge, most=self.budgets[charge.budget].most(charge.limit)) if self._concern(charge) else charge
            for charge in charges
        )

    def _concern(self, charge: Charge) -> bool:
        begins = charge.reserved >= 0 and (not charge.used or charge.limit == "effects")
        return begins and charge.budget in self.budgets


def _begin(append: Coroutine[None, None, Answer]) -> asyncio.Future[Answer]:
    """Begin an append that may be refused. It is no branch of agent code, and not cancelled with one."""
    return asyncio.get_running_loop().create_task(append, context=contextvars.Context())


def _blocks(record: r.Record) -> TypeGuard[r.OperationSettled | r.OperationParked | r.CallerLeft]:
    """True if its operation became unknown, or its caller was cancelled."""
    return not isinstance(record, r.OperationSettled) or record.status == "unknown"


async def load(process: Process, run: str, *, whole: bool = False) -> RunHistory:
    """The history of a run, for its driver. Raises `ChainBroken` where records were changed or taken out.

    `whole` keeps the order of its operations as well, for readers of the complete history.
    """
    stored = StoredHistory(RunHistory(run, whole=whole), process.identity.namespace)
    await stored.read_on(process.journal)
    return stored.history
