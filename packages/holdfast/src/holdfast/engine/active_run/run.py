"""One instance of a run: the records, who waits for what, and the order in which code is told things.

An instance lives from a claim of the run to its end, suspension or loss. It is the only thing that
appends to the run, and once it is sealed nothing goes through it any more. A long file, since every method reads or
changes the state of that one instance.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypedDict, TypeGuard

import msgspec

from holdfast.engine.active_run.delivery import DeliveryOrder, wake_all
from holdfast.engine.masking import Masks
from holdfast.engine.scopes import Scope
from holdfast.engine.suspension import Ending, Pause, ending_at_rest
from holdfast.engine.tool_protocol import ToolCode
from holdfast.errors import (
    JournalError,
    JournalUnavailable,
    LeaseLost,
    LedgerTaken,
    RecordRefused,
    ReplayDiverged,
    Sealed,
)
from holdfast.journal.port import Lease, Post, RunChange
from holdfast.journal.record_codec import encode
from holdfast.journal.run_log import RunLog
from holdfast.model import records as r
from holdfast.model.decision.situation import Now
from holdfast.model.facts import Known
from holdfast.model.operation import OperationState
from holdfast.model.run_history import Delivery, RunHistory, is_about_operation

if TYPE_CHECKING:
    from holdfast.engine.engine import Engine
    from holdfast.engine.operation_driver import OperationDriver


PASSES: Final = 24
_MAY_TROUBLE: Final = {r.OperationSettled, r.OperationParked, r.CallerLeft}


class Stamp(TypedDict):
    """The two clocks of a record: the wall for people, the journal's own for windows."""

    at: int
    up: int


class ActiveRun:
    """A run as this process drives it."""

    def __init__(self, engine: Engine, history: RunHistory, log: RunLog) -> None:
        self.engine: Final = engine
        self.run: Final = history.run
        self.history: Final = history
        self.log: Final = log
        self.lease: Final[Lease] = log.lease
        trusted = engine.identity.trust == "trusted"
        self.claimed_up = history.measured_since(self.now(), trusted=trusted, worker=engine.worker.id)
        self.root: Final = Scope(self)
        self.sealed: Sealed | None = None
        self.failure: JournalError | None = None
        self.draining = False
        self.abandoned = False  # some of its code did not end, and was left where it is
        self.ending: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        self.turns: Final = DeliveryOrder(history.dropped)
        self._recorded: Final = history.given  # how much was delivered before this process took the run
        self.never_sent: set[tuple[str, int]] = set()  # attempts of ours that were given up before their call
        self.late: set[str] = set()  # operations with a call that outlived its attempt
        self.expected: set[str] = {step for step in history.operations if not history.unheard(step)}
        self.drivers: dict[str, asyncio.Task[None]] = {}
        self.flights: dict[str, OperationDriver] = {}  # what the drivers drive
        self.closing: dict[str, None] = {}  # the exits of transactions that are being closed, in the order of begin
        self.troubled: set[str] = {
            *(step for step, operation in history.operations.items() if operation.phase == "unknown"),
            *history.left,
        }
        # Pauses and decisions that are on record without an answer, and that code has not come back to.
        self.begun: set[str] = (set(history.timers) | set(history.questions) | set(history.decisions_begun)) - set(
            history.answers
        )
        self.seen_by_models: dict[str, bytes] = {}
        self.resting: dict[str, Pause] = {}
        self.pauses: dict[asyncio.Future[Any], Pause] = {}
        self.limits: dict[str, int] = {}  # time limits around what waits, by step: the wall clock at which each ends
        self.wakers: dict[str, asyncio.Future[None]] = {}
        self.watchers: dict[str, list[asyncio.Future[None]]] = {}
        self._gate: list[asyncio.Future[None]] = []
        self._rest_scheduled = False
        self.checking: Final[set[asyncio.Future[None]]] = set()  # appends that the ledger may still refuse
        self.receiving: asyncio.Future[None] | None = None  # a message is about to be recorded
        self.taking_orders: Final = asyncio.Lock()
        self._stored_contracts: set[str] = set(history.contracts)
        self.changes: Final[dict[str, set[str]]] = {}  # operations with news, for whoever looks; "": something else
        self.raised: Callable[[ActiveRun], None] | None = None  # told when something turned out otherwise
        self.evicted: Sealed | None = None
        self.suspected = True  # until it records progress, a death of this process counts against it
        self.left: set[str] = set()  # transactions whose end code was told
        self.known: Final = Known()
        self.masks: Final = Masks()
        self.learned: Final[set[int]] = set()  # messages whose facts the run knows

    # --- time and records ------------------------------------------------------------------------------

    def now(self) -> Now:
        """The present moment on the journal's clock and on the wall."""
        instant = self.engine.journal.now()
        return Now(instant.boot, instant.ms, self.engine.environment.clock.wall_ms())

    def stamp(self) -> Stamp:
        """The two clocks, for a record that is being made."""
        return Stamp(at=self.engine.environment.clock.wall_ms(), up=self.engine.journal.now().ms)

    async def append(self, *records: r.Record, change: RunChange | None = None, posts: tuple[Post, ...] = ()) -> None:
        """Record durably. Raises `LedgerTaken` where a post is refused: then nothing was recorded."""
        while self.log.alone is not None:
            await asyncio.shield(self.log.alone)
        records = self.masks.records(records)
        try:
            if posts:
                records = self._plan_ahead(records)
                # In a task of its own: a cancelled caller must not lose track of what the ledger said.
                checked = asyncio.ensure_future(self._append_checked(records, change, posts))
                self.checking.add(checked)
                checked.add_done_callback(self._checked)
                await asyncio.shield(checked)
            else:
                bodies = list(map(encode, records))
                self._add(records)
                await self.log.append(bodies, change)
        except (LeaseLost, JournalUnavailable) as error:
            self.fail(error)
            raise

    def _plan_ahead(self, records: tuple[r.Record, ...]) -> tuple[r.Record, ...]:
        """What follows a plan. That rides ahead, once.

        The ledger answers late: who leaves meanwhile, or is refused and comes again, finds the operation on record.
        """
        for at, record in enumerate(records, 1):
            if type(record) is r.OperationPlanned:
                if record.step not in self.history.operations:
                    self.ride(*records[:at])
                return records[at:]
        return records

    async def _append_checked(
        self, records: tuple[r.Record, ...], change: RunChange | None, posts: tuple[Post, ...]
    ) -> None:
        self.history.check(records)
        try:
            await self.log.append(list(map(encode, records)), change, posts)
        except LedgerTaken:
            self._stored_contracts &= self.history.contracts.keys()  # what came with them was not stored either
            raise
        self._add(records)

    def _checked(self, future: asyncio.Future[None]) -> None:
        """The ledger answered. A caller that left does not ask how: asyncio would log a refusal as forgotten."""
        self.checking.discard(future)
        if not future.cancelled():
            future.exception()

    def withdraw(self, step: str, before: OperationState | None) -> None:
        """The journal refused an attempt of `step`, so there is none: the history is as it was before."""
        self.history.withdraw(step, before)
        self._changed({step})
        self._stored_contracts &= self.history.contracts.keys()

    async def settle_writes(self) -> None:
        """Return when everything that this instance has recorded is durable."""
        if self.checking:
            await asyncio.wait(self.checking)
        await self.log.flush()

    def ride(self, *records: r.Record) -> None:
        """Record with the next thing that waits; order is kept."""
        records = self.masks.records(records)
        bodies = list(map(encode, records))  # first: what cannot be read back must not be in the history either
        self._add(records)  # then: a record that does not fit must never reach the journal
        self.log.ride(bodies)

    def _add(self, records: Iterable[r.Record]) -> None:
        for record in records:
            self.history.add(record)
            if type(record) in _MAY_TROUBLE and _troubles(record):
                self.troubled.add(record.step)
        if self.suspected and not self.history.fruitless:
            self.clear()
        if self.changes:
            self._changed({record.step if is_about_operation(record) else "" for record in records})
        if self.history.raised and self.raised is not None:
            self.raised(self)

    def clear(self) -> None:
        """The run has got somewhere, or waits: a death of this process is not held against its claim any more."""
        self.suspected = False
        self.engine.company.exit(self.run)

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

    # --- the end of the instance ---------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Whether nothing of agent code may go through this instance any more."""
        return self.sealed is not None or self.evicted is not None

    def check(self) -> None:
        """Raise `Sealed` once nothing may go through this instance any more."""
        if (sealed := self.sealed or self.evicted) is not None:
            raise sealed

    def seal(self, reason: str) -> None:
        """From here on every step of agent code refuses at once and does nothing."""
        if self.sealed is None:
            self.sealed = Sealed(f"run {self.run}: {reason}")

    def evict(self, reason: str) -> None:
        """Agent code may do nothing here any more; what the record has begun is still finished."""
        self.evicted = Sealed(f"run {self.run}: {reason}")
        self.root.alive = False
        self.ending = asyncio.get_running_loop().create_future()

    def fail(self, error: JournalError) -> Sealed:
        """The journal failed us, or the lease is lost: end, and tell agent code nothing else."""
        self.failure = self.failure or error
        self.end(Ending("lost" if isinstance(error, LeaseLost) else "unavailable", str(error)))
        self.seal(str(error))
        assert self.sealed is not None
        return self.sealed

    def break_off(self, error: BaseException) -> Sealed:
        """Stop the run with an error of the runtime, or of a declaration, that no record holds.

        Agent code does not receive it: it could catch it and go another way than after the repair, when the run is
        resumed. A refused record stops the run as well; after any other error of the journal the run is claimed anew.
        """
        if isinstance(error, JournalError) and not isinstance(error, (LedgerTaken, RecordRefused)):
            return self.fail(error)
        self.end(Ending("failed", str(error), error=error))
        self.seal(str(error))
        assert self.sealed is not None
        return self.sealed

    def end(self, ending: Ending) -> None:
        """Ask for the instance to be torn down; the first reason counts."""
        if not self.ending.done():
            self.ending.set_result(ending)

    # --- the order in which code is told things ----------------------------------------------------------

    def reach(self, step: str) -> None:
        """Agent code came back to a recorded operation."""
        self.expected.discard(step)
        if not (self.expected or self.catching_up):
            self._caught_up()

    def _caught_up(self) -> None:
        wake_all(self._gate)
        if self.history.messages is not None:
            self.wake()

    async def may_write(self, scope: Scope) -> None:
        """Return once every recorded write of the run has been come back to: only then a new one may leave."""
        while self.catching_up:
            await self.wait(scope, self._gate, Pause("replay"))

    @property
    def catching_up(self) -> bool:
        """Whether something on record has not come back yet: a write, or anything that code was told."""
        return bool(self.expected) or self.turns.at < self._recorded

    async def reach_turn(self, scope: Scope, step: str) -> None:
        """Wait until everything that was delivered before this has been taken."""
        while (delivery := self.history.deliveries.get(step)) is not None and delivery.index > self.turns.at:
            await self.wait(scope, self.turns.before(delivery.index), Pause("replay", step))

    async def take_turn(self, scope: Scope | None, step: str) -> Delivery:
        """Wait until everything that was delivered earlier has been taken; then take this delivery."""
        index = self.history.deliveries[step].index
        while index > self.turns.at:
            await self.wait(scope, self.turns.before(index), Pause("replay", step))
        return self.take(step)

    def forgo(self, step: str) -> None:
        """The caller is gone: nobody will take this delivery, so its turn is over."""
        if step in self.history.deliveries:
            self.take(step)

    def take(self, step: str) -> Delivery:
        """Take this delivery: code is being told it. Its turn has come, or is given up."""
        delivery = self.history.deliveries.pop(step)
        self.turns.take(delivery.index)
        if (self._gate or self.history.messages is not None) and not self.catching_up:
            self._caught_up()
        return delivery

    def forget(self, step: str) -> None:
        """A settled step was told: let go of it, unless a call of it still runs."""
        if step not in self.late:
            self.history.forget(step)

    def replaying(self) -> bool:
        """Whether the record goes on past the point that code has reached."""
        return self.turns.at < self.history.given or bool(self.expected) or bool(self.begun)

    def blocker(self) -> str | None:
        """An operation that every new write has to wait for: unknown, or left by its caller in mid-flight."""
        history = self.history
        for step in self.troubled:
            operation = history.operations.get(step)
            if operation is None or operation.final or operation.phase == "held":
                continue  # what is held waits for the end of the code that would wait for it here
            if operation.phase == "unknown" and step not in history.told_unknown:
                return step
            if operation.phase != "unknown" and step in history.left:
                return step
        return None

    # --- waiting -----------------------------------------------------------------------------------------------

    async def wait(self, scope: Scope | None, waiters: list[asyncio.Future[None]], pause: Pause) -> None:
        """Let a branch of agent code wait; the run may come to rest meanwhile."""
        future = asyncio.get_running_loop().create_future()
        waiters.append(future)
        await self.wait_for(scope, future, pause)

    async def wait_for(self, scope: Scope | None, future: asyncio.Future[Any], pause: Pause) -> None:
        """Wait for `future` as a branch of agent code. Raises `Sealed` if the instance is sealed meanwhile."""
        self.pauses[future] = pause
        if scope is not None:
            scope.host.waiting += 1
        if self.resting or pause.kind != "operation":
            self.consider_rest()
        try:
            await future
        finally:
            self.pauses.pop(future, None)
            if scope is not None:
                scope.host.waiting -= 1
        self.check()

    async def rest(self, step: str, pause: Pause, seconds: float | None, scope: Scope | None) -> None:
        """A driver waits until it is woken or `seconds` have passed; the run may come to rest meanwhile.

        `scope` is the branch of agent code whose own task drives, if one does.
        """
        waker = self.wakers.get(step)
        if waker is None or waker.done():
            waker = self.wakers[step] = asyncio.get_running_loop().create_future()
        self.resting[step] = pause
        if scope is not None:
            scope.host.waiting += 1
        self.consider_rest()
        try:
            await asyncio.wait({waker}, timeout=seconds)
        finally:
            self.resting.pop(step, None)
            if scope is not None:
                scope.host.waiting -= 1
            if waker.done():
                self.wakers.pop(step, None)

    def wake(self, step: str | None = None) -> None:
        """Let the drivers (or one of them) look at their situation again."""
        for name, waker in list(self.wakers.items()):
            if (step is None or name == step) and not waker.done():
                waker.set_result(None)

    def settled(self, step: str) -> None:
        """Tell whoever waits for this operation that something about it is final."""
        if self.watchers:
            wake_all(self.watchers.pop(step, []))
        for closing in self.closing:
            self.wake(closing)

    def at_rest(self) -> bool:
        """Whether every branch of agent code and every driver waits."""
        return self.root.at_rest() and all(step in self.resting for step in self.drivers)

    # --- rest: when every branch waits ---------------------------------------------------------------------------

    def consider_rest(self) -> None:
        """Look, after this pass of the loop, whether everything waits."""
        if not self._rest_scheduled and self.sealed is None:
            self._rest_scheduled = True
            asyncio.get_running_loop().call_soon(self._check_rest, 0)

    def _check_rest(self, passes: int) -> None:
        """End the instance if everything rests, and still does some passes of the loop later.

        What a branch ended with reaches the code that awaits it (through groups and nested gathers) only then.
        """
        self._rest_scheduled = False
        if self.suspected and self.at_rest():
            self.clear()
        ending = ending_at_rest(self)
        if ending is None:
            return
        if passes == PASSES:
            self.end(ending)
            return
        self._rest_scheduled = True
        asyncio.get_running_loop().call_soon(self._check_rest, passes + 1)

    def diverge(self, why: str, difference: str = "", cause: Exception | None = None) -> NoReturn:
        """End the instance because its code went another way than the record. Raises `ReplayDiverged`.

        The error is kept with the ending: raised in a branch, it may never reach the code that awaits the branch.
        """
        error = self.divergence(why, difference)
        self.end(Ending("diverged", why, error=error))
        raise error from cause

    def divergence(self, why: str, difference: str = "") -> ReplayDiverged:
        """The error that shows `difference`, or else what the record holds and the code did not come back to."""
        missing = sorted(self.expected) or list(self.history.deliveries)
        shown = difference or "\n".join(f"- recorded, not reached: {self._shown(step)}" for step in missing[:20])
        return ReplayDiverged(
            f"run {self.run}: {why}",
            run=self.run,
            difference=shown,
            next_step=f"holdfast replay {self.run} shows where; restore the code (or add a version marker), "
            f"then holdfast resume {self.run}",
        )

    def _shown(self, step: str) -> str:
        """A recorded step with the call that it was, where it was one."""
        operation = self.history.operations.get(step)
        call = (
            f": {operation.intent.tool} {bytes(operation.intent.arguments).decode()}" if operation is not None else ""
        )
        return f"{self.run}/{step}{call}"


def _troubles(record: r.Record) -> TypeGuard[r.OperationSettled | r.OperationParked | r.CallerLeft]:
    """Whether what it is about became unknown, or was left by its caller."""
    return not isinstance(record, r.OperationSettled) or record.status == "unknown"
