"""One run as its records describe it: folded record by record, from the records alone.

`delivered` holds the answers that agent code received, in order; replay delivers them in that order. The first
record that answers a step is its delivery, whatever is learned later. What was delivered again is taken
out, and settled steps are then forgotten, so that a long run needs no more memory than a short one.
The file is long because one record may change several parts of the fold.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from copy import copy
from functools import partial
from typing import Any, Final, Literal, NamedTuple, TypeAlias, TypeGuard, get_args

import msgspec
from msgspec.structs import replace

from beforehand.model import records as r
from beforehand.model.children import Children
from beforehand.model.contract import Contract
from beforehand.model.contradiction import read_note
from beforehand.model.decision.situation import Now
from beforehand.model.messages import Messages
from beforehand.model.operation import OperationState
from beforehand.model.outcome import FINAL, SETTLED, WITHHELD
from beforehand.model.questions import Answered
from beforehand.model.records.transaction import TransactionRecord
from beforehand.model.run_budget import BudgetState
from beforehand.model.shared_use import PREFIX, TREE, Charge, Place, SharedUse, charges_so_far, operation_charges
from beforehand.model.stop_reasons import STOP_REASONS, TAKE_OVER, reason_of
from beforehand.model.transaction import WHOLE_RUN, TransactionState, around, base_of, encloses, follow
from beforehand.model.transitions import TRANSITIONS, apply, ended_at_once, is_only_start

Answer: TypeAlias = (
    r.ReadRecorded
    | r.DecisionRecorded
    | r.ValueRecorded
    | r.TimerFired
    | r.EventReceived
    | r.HandedOff
    | r.MessageHeard
    | r.ChildStarted
    | r.ChildJoined
)

REFUSED: Final = "host:refused"
ABANDONED: Final = "host:cancelled"
NOTES: Final = frozenset({REFUSED, ABANDONED})
"""Values that note what became of a host's call: code never takes them."""
TOLD, CLAIMED = "told_unproven", "claimed"
"""The values that note which unproven claims a model was told of, and which `on_error` received."""
JOINED: Final = "joined"
"""The value that notes that branches were joined under a time limit."""

ANSWERS: Final = (
    r.ReadRecorded, r.DecisionRecorded, r.ValueRecorded, r.TimerFired, r.EventReceived, r.HandedOff, r.ChildStarted,
    r.ChildJoined,
)  # fmt: skip
"""The records that answer a step other than a write: what they hold is what code receives."""


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """The answer that one step received: its `outcome`, `unknown`, or nothing because its caller had `left`.

    `attempts` is how many there were where it received something before its outcome.
    """

    index: int
    step: str
    kind: str = "outcome"
    detail: str = ""
    attempts: int = 0


class Span(NamedTuple):
    """From which record of the run to which one an operation went; `ended` is 0 while it goes on."""

    begun: int
    ended: int = 0


def turned_out_otherwise(before: OperationState | None, after: OperationState) -> bool:
    """True if there is an unexpected effect, or an expected one is missing."""
    if before is None:
        return False
    found = after.phase == "succeeded" and (before.phase == "unknown" or bool(after.links.overtaken))
    return before.links.contradicted != after.links.contradicted or (found and not before.final)


RunState = Literal["new", "queued", "running", "suspended", "completed", "stopped", "undone"]
_PROGRESS: Final = {r.AttemptEnded, r.OperationSettled, *ANSWERS}
_FROM_PEOPLE: Final = {r.OperationParked, r.ResultGiven, r.ArgumentsEdited, r.OutcomeReused, r.LateReport, r.Resolved}
_BOUNDARY: Final = frozenset(get_args(TransactionRecord))
PROMISE: Final = "promise"
PENDING: Final = "pending"


def is_about_operation(record: r.Record) -> TypeGuard[r.OperationRecord]:
    """True if the record is about one operation, rather than about the run."""
    return type(record) in TRANSITIONS


def exit_of(transaction: str) -> str:
    """The name under which code receives the end of a boundary; no step ends like that."""
    return transaction + "/"


class Lifecycle(msgspec.Struct, eq=False):
    """The state of a run: the records that began and ended it, and the commands that hold now."""

    status: RunState = "new"
    reason: str = ""
    started: r.RunStarted | None = None
    completed: r.RunCompleted | None = None
    stopped: r.RunStoppedRecord | None = None
    halted: r.RunStoppedRecord | None = None  # the last stop about which a person was asked
    cancelled: r.CommandApplied | None = None
    undo: r.CommandApplied | None = None  # the order to undo the run
    undone: r.RunUndone | None = None
    paused: r.CommandApplied | None = None
    forked_from: str = ""
    voices: tuple[str, ...] = ()
    """Who gave its code something, in order: an answer, a message, an event, a result, arguments, a new beginning."""
    told_claims: dict[str, None] = {}
    """The steps at which a model was told what the run claims and nothing proves, since the run was last reopened."""
    heard_before: dict[str, int] = {}
    """How many voices there were when a person was last asked about an operation. Clocks of two processes differ."""

    @property
    def told(self) -> tuple[str, ...]:
        """The voices of this run, after those of the runs above it when it was started."""
        parent = self.started.parent if self.started is not None else None
        return self.voices if parent is None else (*parent.voices, *self.voices)

    def heard(self, *names: str) -> None:
        """People gave the run something that its code may act on."""
        self.voices = tuple(dict.fromkeys((*self.voices, *filter(None, names))))

    def command(self, record: r.CommandApplied) -> None:
        """A command to the run."""
        if record.command in {TAKE_OVER, "fork"} and not record.refused:
            self.heard(*record.voices, record.by)
        match record.command:
            case "pause":
                self.paused = record
            case "unpause":
                self.paused = None
            case "undo" if not record.refused:
                self.undo, self.reason = record, record.summary
            case "review" | "child_ended":
                pass  # an answer about one outcome, and the end of a child, say nothing about the state of the run
            case "fork":
                self.forked_from, self.reason = record.run, record.note
            case word if reason_of(word) is not None:
                self.cancelled = record
            case _:
                self.reason = record.summary

    def after_undo(self, end: r.RunUndone) -> Literal["completed", "stopped", "undone"]:
        """The status of the run once it was undone. Where an effect stands, it keeps the one that it had."""
        if not (end.still_standing or end.below):
            return "undone"
        return "stopped" if self.completed is None else "completed"


class Ownership(msgspec.Struct, eq=False):
    """The processes that claimed a run, by fencing token, and the clock that measures time for it."""

    owners: dict[int, r.Claimed] = {}
    boot: str = ""
    boot_up: int = 0
    """When the run was first taken on the present boot: from then on that boot's clock measures everything."""
    fruitless: tuple[r.Claimed, ...] = ()
    """The claims since the run last made progress."""
    unended: tuple[r.Claimed, ...] = ()
    """The claims that did not end in order. Progress ends none of them: a run may record a step, and then kill."""
    restored: str = ""  # as the last claim has it

    @property
    def number_of_claim(self) -> int:
        """How many processes this run may have killed, the present one included; 0 where no process drives it."""
        return self.unended[-1].number if self.unended else 0

    def claim(self, record: r.Claimed, operations: dict[str, OperationState]) -> None:
        """A process takes the run. What was read before a restore says nothing of what the restore forgot."""
        if record.restored != self.restored:
            for step, operation in operations.items():
                if operation.phase not in FINAL:
                    operations[step] = replace(operation, verification=operation.verification.after_restore())
        self.owners[record.token], self.restored = record, record.restored
        if record.boot != self.boot:
            self.boot, self.boot_up = record.boot, record.up
        self.fruitless += (record,)
        self.unended += (record,)

    def died_in(self, operation: OperationState, number: int) -> None:
        """Charge the death of a process to the operation, and not to the run, where one had died in it before."""
        if operation.deaths > 1:
            token = operation.attempts[number - 1].token
            self.unended = tuple(claim for claim in self.unended if claim.token != token)

    def end_in_order(self, *, last_chance: bool = False) -> None:
        """Note that the owner ended on its own, without a death. On the last chance earlier deaths still count."""
        self.fruitless, self.unended = (), self.unended[:-1] if last_chance else ()

    def measured_since(self, now: Now, *, trusted: bool, worker: str = "") -> int:
        """Since when the present boot's clock has measured time for this run, on that clock (`Now.up`).

        Every owner on this boot waited on the same clock, so a window need not begin anew with each of them.
        What a restored journal says about its last owners is old: there, only since this process first had the run.
        """
        if trusted:
            return self.boot_up if self.boot == now.boot else now.up
        ours = [one.up for one in self.owners.values() if one.worker == worker and one.boot == now.boot]
        return min(ours, default=now.up)


class Steps(msgspec.Struct, eq=False):
    """The recorded steps that are not operations: what answered them, and what they wait for."""

    answers: dict[str, Answer] = {}
    timers: dict[str, r.TimerSet] = {}
    questions: dict[str, r.QuestionAsked] = {}
    decisions_begun: dict[str, int] = {}
    unanswered: dict[str, int] = {}
    """Failed decisions that can be asked again, with the numbers of their deliveries: no record depends on them."""
    events_taken: dict[int, None] = {}

    def moved_on(self, step: str) -> None:
        """Drop failed decisions of branches that went on: `step` is in the same branch, or in one above or below it."""
        at = _branch(step)
        for failed in [one for one in self.unanswered if one != step]:
            if at.startswith(_branch(failed)) or _branch(failed).startswith(at):
                del self.unanswered[failed]

    def forget(self, step: str) -> None:
        """Forget a step that was delivered."""
        self.answers.pop(step, None)
        self.timers.pop(step, None)
        self.questions.pop(step, None)
        self.decisions_begun.pop(step, None)

    def forget_within(self, transaction: str) -> None:
        """Forget the steps of a transaction that begins anew."""
        for steps in (self.answers, self.timers, self.questions, self.decisions_begun):
            for step in [step for step in steps if encloses(transaction, step)]:
                del steps[step]


class Deliveries(msgspec.Struct, eq=False):
    """The answers that agent code received, in order: replay delivers them in that order.

    Sets that mostly stay empty are dicts: Python's garbage collector visits every set of every live run.
    """

    by_step: dict[str, Delivery] = {}
    count: int = 0
    left: dict[str, None] = {}
    """Steps whose callers were cancelled: nothing more is delivered to them."""
    told_unknown: dict[str, None] = {}
    promised: dict[str, None] = {}
    """Held effects for which code was given a promise: their outcomes are not delivered separately."""
    dropped: dict[int, None] = {}
    """Deliveries inside transactions that began anew: no code takes them any more."""
    apart: dict[int, None] = {}
    """Deliveries that came to another branch than the one before, and at a later moment."""
    branch: str = ""
    at: int = 0
    """To which branch the newest delivery came, and when."""

    def deliver(self, step: str, record: r.Record, kind: str = "outcome", detail: str = "", attempts: int = 0) -> None:
        """The next thing that code receives, by this record. Note whether it comes apart from the one before."""
        self.by_step[step] = Delivery(self.count, step, kind, detail, attempts)
        name: str = getattr(record, "step", "") or getattr(record, "transaction", "")
        branch = name.rpartition("/")[0]
        # A value that code recorded in passing did not come from outside.
        if branch != self.branch and record.at != self.at and not isinstance(record, r.ValueRecorded):
            self.apart[self.count] = None
        self.branch, self.at, self.count = branch, record.at, self.count + 1

    def drop(self, step: str) -> None:
        """No code takes this delivery any more."""
        self.dropped[self.by_step.pop(step).index] = None

    def leave(self, record: r.CallerLeft) -> None:
        """The caller of this step was cancelled."""
        self.left[record.step] = None
        if (before := self.by_step.get(record.step)) is not None:
            self.by_step[record.step] = replace(before, kind="left")  # the outcome was there, the caller was not
        else:
            self.deliver(record.step, record, "left")


class Boundaries(msgspec.Struct, eq=False):
    """The transactions of a run, and what reopening and closing them changed."""

    by_name: dict[str, TransactionState] = {}
    exits: dict[str, TransactionState] = {}
    """Each boundary as of its first end: what code receives about it, whatever is learned later."""
    spans: dict[str, Span] = {}
    renewed: dict[str, int] = {}
    """How often a transaction of that name began anew after a reopening."""
    former: dict[str, OperationState] = {}
    """The operations of transactions that began anew."""
    raised: set[str] = set()
    """Operations that turned out otherwise since their transaction was called off."""

    def called_off(self, step: str) -> TransactionState | None:
        """The outermost boundary around `step` that is being called off, or was."""
        if not self.by_name:
            return None
        return next((one for one in around(step, self.by_name) if one.backward), None)


class RunHistory:
    """The fold of one run. Mutable, and a function of the records alone.

    `whole` keeps what only a review of the whole run needs: in which order its operations began and ended.
    """

    __slots__ = (
        "boundaries", "budget", "children", "contracts", "delivered", "entry_seen", "given_up", "lifecycle", "messages",
        "operations", "ownership", "partial", "records", "run", "shared", "steps", "tree", "whole",
    )  # fmt: skip

    def __init__(self, run: str, *, whole: bool = False) -> None:
        self.run = run
        self.whole = whole
        self.lifecycle = Lifecycle()
        self.ownership = Ownership()
        self.operations: dict[str, OperationState] = {}
        self.steps = Steps()
        self.delivered = Deliveries()
        self.boundaries = Boundaries()
        self.given_up: dict[str, None] = {}
        """Steps of plans that were dropped: what is open below them is not sent any more."""
        self.partial: dict[str, None] = {}
        """Operations with parts whose end comes later: these are still asked about the whole."""
        self.contracts: dict[str, r.ContractStored] = {}
        self.messages: Messages | None = None
        self.budget: BudgetState | None = None
        self.shared: SharedUse | None = None
        """Its reservations of budgets that it shares with other runs; None where no call was charged to one."""
        self.tree: Place | None = None
        """The budget of its tree, where the run has one, and has started a child."""
        self.children: Children | None = None
        self.entry_seen = 0
        self.records = 0

    @property
    def undo_state(self) -> Literal["", "ordered", "begun", "over"]:
        """How far the undo of the whole run has come. One that was only ordered begins when the run has ended."""
        if self.lifecycle.undone is not None:
            return "over"
        if WHOLE_RUN in self.boundaries.by_name:
            return "begun"
        return "" if self.lifecycle.undo is None else "ordered"

    def proposers(self, operation: OperationState) -> tuple[str, ...]:
        """The people who cannot approve it: who started its run, edited it, or told its code something before.

        Of a compensation also who ordered it, with a boundary around it: it is sent because of that order.
        """
        lifecycle = self.lifecycle
        later = len(lifecycle.voices) - lifecycle.heard_before.get(operation.step, len(lifecycle.voices))
        before = lifecycle.told[: len(lifecycle.told) - later]
        starter = lifecycle.started.by if lifecycle.started is not None else ""
        within = around(operation.step, self.boundaries.by_name) if operation.intent.compensates else ()
        names = (starter, *operation.editing.editors, *before, *(one.by for one in within))
        return tuple(dict.fromkeys(name for name in names if name))

    def add(self, record: r.Record) -> None:
        """Take one more record. Raises `IllegalTransition` where it does not fit."""
        self.records += 1
        kind = type(record)
        # A call that is cancelled is settled by the failure beside it: its branch has not gone on.
        goes_on = self.steps.unanswered and kind is not r.ReservationSettled
        if goes_on and (name := getattr(record, "step", "") or getattr(record, "transaction", "")):
            self.steps.moved_on(name)
        if kind in _PROGRESS:
            self.ownership.fruitless = ()
        if kind in TRANSITIONS:
            self._operation(record)  # type: ignore[arg-type]  # the table's keys are the records of operations
            if type(record) is r.AttemptEnded and record.end.died:
                self.ownership.died_in(self.operations[record.step], record.number)
        elif kind in _BOUNDARY:
            self._transaction(record)  # type: ignore[arg-type]  # the members of that union
        elif kind is r.DecisionRecorded:
            self._decision(record)  # type: ignore[arg-type]  # as its kind says
        elif isinstance(record, ANSWERS):
            self.steps.answers[record.step] = record
            self.delivered.deliver(record.step, record)
            if kind is not r.ReadRecorded:
                self._learn(record)
        else:
            self._run(record)  # type: ignore[arg-type]  # what is neither is about the run
        if self.shared is not None:
            self.shared.take(record, self.tree)

    def add_all(self, records: Iterable[r.Record]) -> None:
        """Take records of the past: the same as `add` for each in turn, in less than half the time for ordinary writes.

        Raises `IllegalTransition` where one does not fit.
        """
        begun: dict[str, r.AttemptStarted] = {}  # first attempts that are not in the fold yet
        operations, known, ordinary = self.operations, False, False
        delivered = self.delivered
        for record in records:
            if type(record) is r.AttemptStarted:
                step = record.step
                if not known:
                    known, ordinary = True, self._is_ordinary()
                if ordinary and step not in operations and step not in begun and is_only_start(record):
                    begun[step] = record
                    continue
            elif begun and type(record) is r.OperationSettled and (started := begun.get(record.step)) is not None:
                ended = ended_at_once(started, record, self.ownership.boot)
                if ended is not None:
                    del begun[record.step]
                    operations[record.step] = ended
                    self.records += 2
                    self.ownership.fruitless = ()
                    delivered.deliver(record.step, record)
                    continue
            if begun:
                self._begin_all(begun)  # before another record can ask for them, and in their order
            known = False
            self.add(record)
        self._begin_all(begun)

    def _is_ordinary(self) -> bool:
        """True if nothing but its own two records decides what becomes of a write that is sent once and ends."""
        delivered = self.delivered
        return not (
            self.boundaries.by_name or self.whole or self.steps.unanswered or delivered.told_unknown or delivered.left
            or self.messages is not None or self.budget is not None
        )  # fmt: skip

    def _begin_all(self, begun: dict[str, r.AttemptStarted]) -> None:
        for started in begun.values():
            self.add(started)
        begun.clear()

    def copy(self) -> RunHistory:
        """An independent history of the same records: adding to one leaves the other as it is."""
        twin = RunHistory(self.run, whole=self.whole)
        for name in self.__slots__:
            setattr(twin, name, _own(getattr(self, name)))
        return twin

    def check(self, records: Iterable[r.Record]) -> None:
        """Raise `IllegalTransition` if these records do not fit, without taking them."""
        list(self._tried(records))

    def _tried(self, records: Iterable[r.Record]) -> Iterator[tuple[OperationState | None, OperationState]]:
        """The operations of these records, before and after each of them, without taking them."""
        trial: dict[str, OperationState] = {}
        for record in filter(is_about_operation, records):
            before = trial.get(record.step, self.operations.get(record.step))
            trial[record.step] = after = apply(before, record, self.ownership.boot)
            yield before, after

    def charges(self, records: Sequence[r.Record]) -> tuple[Charge, ...]:
        """The charges to shared budgets of records that are about to be added, without taking them."""
        use = SharedUse() if self.shared is None else self.shared.copy()
        found = [charge for record in records for charge in use.take(record, self.tree)]
        if any(map(self.begins_tree, records)):
            found += self._tree_charges(use)
        tried = self._tried(records)
        return (*found, *(one for before, after in tried for one in operation_charges(before, after, self.tree)))

    def begins_tree(self, record: r.Record) -> bool:
        """True for the first child of a run with a budget: from then on the runs below it share that."""
        return type(record) is r.ChildStarted and self.children is None and self.budget is not None

    def _tree_charges(self, use: SharedUse) -> list[Charge]:
        """The charges to the tree that begins of what the run used and reserved; `use` has its calls from then on."""
        assert self.budget is not None
        tree = (PREFIX + self.run, TREE)
        return [*charges_so_far(tree, self.budget, self.open_operations()), *use.join(tree, self.budget.open)]

    def withdraw(self, step: str, before: OperationState | None) -> None:
        """Take back a record that could not be stored, where it was added and began or went on with `step`.

        `before` is the operation as it was, None where that record was its first: a contract that came with it is
        then unknown again, unless another operation uses it.
        """
        if step not in self.operations:
            return  # one that the ledger may refuse is added once it is stored
        if self.budget is not None:
            self.budget.change(self.operations[step], before)
        if before is not None:
            self.operations[step] = before
            return
        contract = self.operations.pop(step).contract
        self.boundaries.spans.pop(step, None)
        if all(operation.contract != contract for operation in self.operations.values()):
            self.contracts.pop(contract, None)

    def open_operations(self) -> list[OperationState]:
        """Operations without a final outcome, in order of their first record."""
        return [operation for operation in self.operations.values() if operation.phase not in FINAL]

    def forget(self, step: str) -> None:
        """Forget a settled step that was delivered: it never comes back under this name."""
        operation = self.operations.get(step)
        if (self.boundaries.by_name or self.partial) and self._kept(step):
            return
        if operation is not None:
            if operation.phase in FINAL:
                del self.operations[step]
            return  # what is an operation is nothing else
        self.steps.forget(step)

    def _kept(self, step: str) -> bool:
        """True if a delivered step is still needed: a promise points to it, or it may have to be compensated."""
        if step in self.delivered.promised or step in self.partial:
            return True
        return any(not one.over for one in around(step, self.boundaries.by_name))

    def forget_within(self, transaction: str, keep: Container[str] = ()) -> None:
        """Forget what an outermost boundary that is over was kept for, except what promises still point to."""
        for step in [step for step in self.operations if encloses(transaction, step)]:
            if step in self.delivered.promised or step in self.delivered.by_step or step in self.partial:
                continue
            if step in self.boundaries.raised or step in keep:
                continue
            if self.operations[step].final and not self.operations[step].intent.completes:
                del self.operations[step]
                self.boundaries.spans.pop(step, None)

    def _learn(self, record: Answer) -> None:
        """Take what an answer changes besides the step that receives it."""
        if isinstance(record, r.EventReceived):
            self.steps.events_taken[record.entry] = None
            self.lifecycle.heard(record.by)
            if record.step in self.steps.questions:
                self.lifecycle.heard(msgspec.json.decode(record.payload, type=Answered).by)
        elif isinstance(record, r.ValueRecorded) and record.what in NOTES:
            self.delivered.drop(record.step)
        elif isinstance(record, r.ValueRecorded) and record.what == TOLD:
            self.lifecycle.told_claims[record.step] = None
        elif isinstance(record, r.ValueRecorded) and record.what == CLAIMED:
            self.steps.unanswered[record.step] = self.delivered.count - 1
        elif isinstance(record, (r.ChildStarted, r.ChildJoined)):
            self._child(record)

    def _child(self, record: r.ChildStarted | r.ChildJoined) -> None:
        if self.begins_tree(record):
            self.shared = self.shared or SharedUse()
            self._tree_charges(self.shared)
            self.tree = (PREFIX + self.run, TREE)
        self.children = self.children or Children()
        if isinstance(record, r.ChildStarted):
            self.children.start(record)
            return
        self.children.join(record)
        self.lifecycle.heard(*record.voices)
        if record.status != "completed":  # the child may continue: a run that is reopened joins it anew
            self.steps.unanswered[record.step] = self.delivered.count - 1

    def _decision(self, record: r.DecisionStarted | r.ReservationSettled | r.DecisionRecorded) -> None:
        if isinstance(record, r.DecisionStarted):
            self.steps.decisions_begun[record.step] = record.number
            if record.shared and self.shared is None:
                self.shared = SharedUse()
        elif isinstance(record, r.DecisionRecorded):
            self.steps.answers[record.step] = record
            self.delivered.deliver(record.step, record)
            if record.status == "failed":
                self.steps.unanswered[record.step] = self.delivered.count - 1
        if self.budget is not None:
            self.budget.take(record)

    def _operation(self, record: r.OperationRecord) -> None:
        step = record.step
        before = self.operations.get(step)
        operation = apply(before, record, self.ownership.boot)
        self.operations[step] = operation
        if self.boundaries.by_name or self.whole or self.budget is not None:
            self._measure(before, operation)
        if operation.shared and self.shared is None:
            self.shared = SharedUse()
        if type(record) in _FROM_PEOPLE:
            self._hear(record)
        if before is None and (operation.intent.completes or operation.intent.covered or self.messages is not None):
            self._begin(operation)
        elif self.messages is not None and type(record) is r.AttemptEnded and record.end.code == WITHHELD:
            self.messages.withhold(operation)
        if operation.phase not in FINAL or (before is not None and before.phase in FINAL):
            return
        delivered = self.delivered
        if delivered.told_unknown or delivered.left or self.boundaries.by_name or operation.intent.serves:
            if step in delivered.told_unknown or step in delivered.left or step in delivered.promised:
                return
            if operation.intent.serves or self.boundaries.called_off(step) is not None:
                return
        delivered.deliver(step, record)

    def _hear(self, record: r.OperationRecord) -> None:
        """A person's result or arguments may shape what code does next; a yes or a no alone proposes nothing."""
        match record:
            case r.OperationParked():
                self.lifecycle.heard_before[record.step] = len(self.lifecycle.voices)
            case r.ResultGiven() | r.ArgumentsEdited() | r.OutcomeReused() | r.LateReport():
                self.lifecycle.heard(record.by)
            case _:
                assert isinstance(record, r.Resolved), record
                self.entry_seen = max(self.entry_seen, record.entry)
                self.lifecycle.heard(record.by if record.result != r.NOTHING else "")

    def _begin(self, operation: OperationState) -> None:
        """The first record of an operation that is a part of another, or that a message may block."""
        if operation.intent.completes:
            self.partial[operation.intent.completes] = None
        if operation.intent.covered:  # no question of its own says what its caller had heard before it
            self.lifecycle.heard_before.setdefault(operation.step, len(self.lifecycle.voices))
        if self.messages is not None:
            self.messages.begin(operation)

    def _raise(self, news: OperationState) -> None:
        """Note news about an operation of code, or about a part of one after its compensation had begun."""
        step = news.intent.completes or news.step
        whole = self.operations.get(step)
        if whole is None or whole.intent.serves or (gone := self.boundaries.called_off(step)) is None:
            return
        if news.intent.completes:
            if not whole.links.compensated_by:
                return
            links = replace(whole.links, overtaken=whole.links.compensated_by)
            self.operations[step] = replace(whole, links=links)
        self.boundaries.raised |= {step} - set(gone.accepted)

    def _measure(self, before: OperationState | None, operation: OperationState) -> None:
        if self.budget is not None:
            self.budget.change(before, operation)
        if not (self.boundaries.by_name or self.whole):
            return
        step = operation.step
        span = self.boundaries.spans.get(step) or Span(self.records)
        if not span.ended and operation.phase in SETTLED:
            span = Span(span.begun, self.records)
        self.boundaries.spans[step] = span
        if turned_out_otherwise(before, operation):
            self._raise(operation)
        forward = self.operations.get(operation.intent.compensates) if operation.phase == "succeeded" else None
        if forward is not None and forward.phase == "unknown":
            # Without this, proof that has yet to be settled, or that a verifier may still find, would reach no person.
            stored = self.contracts.get(forward.contract)
            reads = stored is not None and msgspec.json.decode(stored.clauses, type=Contract).verifies
            to_come = reads or forward.returned or forward.verification.found is not None
            amended = forward.links.amended or not to_come
            self.operations[forward.step] = replace(forward, links=replace(forward.links, amended=amended))

    # --- transactions ------------------------------------------------------------------------------------

    def recall(self, whole: RunHistory, wanted: Callable[[str], bool]) -> None:
        """Take back from the `whole` history the forgotten operations that are wanted again."""
        inside = {step: one for step, one in whole.operations.items() if wanted(step)}
        self.operations = {**inside, **self.operations}
        spans = {step: span for step, span in whole.boundaries.spans.items() if step in inside}
        self.boundaries.spans = {**spans, **self.boundaries.spans}

    def _settle_raised(self, record: TransactionRecord) -> None:
        """The boundary is over: what its end reports correctly is not news any more."""
        for step in [step for step in self.boundaries.raised if encloses(record.transaction, step)]:
            operation = self.operations[step]
            if isinstance(record, r.TransactionAbortedRecord):
                undone = step in record.undone and operation.links.overtaken != operation.links.compensated_by
                truly = undone or step in record.still_standing or not operation.landed
            else:
                truly = all(one.over for one in around(step, self.boundaries.by_name))
            if truly:
                self.boundaries.raised.discard(step)

    def expected_steps(self) -> set[str]:
        """The recorded operations that code receives."""
        if self.boundaries.by_name:
            return {step for step in self.operations if not self.never_delivered(step)}
        return {step for step, operation in self.operations.items() if not operation.intent.serves}

    def never_delivered(self, step: str) -> bool:
        """True if code never receives this recorded operation."""
        if self.operations[step].intent.serves:
            return True
        delivered = self.delivered
        return self.boundaries.called_off(step) is not None and not (
            step in delivered.by_step or step in delivered.left
            or step in delivered.told_unknown or step in delivered.promised
        )  # fmt: skip

    def _transaction(self, record: TransactionRecord) -> None:
        name = record.transaction
        before = self.boundaries.by_name.get(name)
        after = self.boundaries.by_name[name] = follow(before, record, self.delivered.count)
        if isinstance(record, r.TransactionResolved):
            self.entry_seen = max(self.entry_seen, record.entry)
        if after.over and self.boundaries.raised:
            self._settle_raised(record)
        if name == WHOLE_RUN:
            self.lifecycle.status = "running"
        elif after.over and exit_of(name) not in self.boundaries.exits:
            self.boundaries.exits[exit_of(name)] = after
            if exit_of(name) not in self.delivered.left:
                self.delivered.deliver(exit_of(name), record)

    def _renew(self, names: Iterable[str]) -> None:
        """These transactions begin anew: their steps are history, and code takes new ones."""
        for name in names:
            boundaries = self.boundaries
            boundaries.renewed[base_of(name)] = boundaries.renewed.get(base_of(name), 1) + 1
            for step in [step for step in self.delivered.by_step if encloses(name, step)]:
                self.delivered.drop(step)
            for step in [step for step in self.operations if encloses(name, step)]:
                boundaries.former[step] = self.operations.pop(step)
            if self.messages is not None:
                self.messages.forget_those(partial(encloses, name))
            self.steps.forget_within(name)

    def _ask_again(self) -> None:
        """The run is reopened: a decision that failed, and after which its branch recorded nothing, is made anew.

        Branches that its failure cancelled are not cancelled again: what they left is theirs as any other step.
        """
        delivered = self.delivered
        failed, self.steps.unanswered = self.steps.unanswered, {}
        for step, index in failed.items():
            delivered.dropped[index] = None
            for kept in (delivered.by_step, self.steps.answers, self.steps.decisions_begun):
                kept.pop(step, None)
        first = min(failed.values(), default=delivered.count)
        for step in [
            one for one in delivered.left if (delivery := delivered.by_step.get(one)) and delivery.index > first
        ]:
            del delivered.left[step]
            ended = step not in self.operations or self.operations[step].final
            if ended and (not step.endswith("/") or step in self.boundaries.exits):
                delivered.by_step[step] = replace(delivered.by_step[step], kind="outcome")
            else:
                delivered.drop(step)

    def _delivered(self, record: r.Delivered) -> None:
        """Code receives something before there is an outcome."""
        delivered = self.delivered
        if record.step in delivered.left:
            return  # the caller has left and takes nothing more: a second delivery would keep all later ones waiting
        (delivered.promised if record.told == PROMISE else delivered.told_unknown)[record.step] = None
        delivered.deliver(record.step, record, record.told, record.detail, len(self.operations[record.step].attempts))

    def _run(self, record: r.RunRecord) -> None:
        """A record about the run: what its code receives, or the state of the run."""
        match record:
            case r.ContractStored():
                self.contracts[record.digest] = record
            case r.DecisionStarted() | r.ReservationSettled():
                self._decision(record)
            case r.TimerSet():
                self.steps.timers[record.step] = record
            case r.QuestionAsked():
                self.steps.questions[record.step] = record
            case r.Delivered():
                self._delivered(record)
            case r.CallerLeft():
                self._left(record)
            case r.StepsDropped():
                self.given_up.update(dict.fromkeys(record.steps))
            case r.MessageReceived() | r.MessageHeard():
                self._message(record)
            case r.CommandApplied():
                self._command(record)
            case _:
                self._change_state(record)

    def _change_state(self, record: r.RunRecord) -> None:
        """A record that moves the run from one state to another."""
        lifecycle = self.lifecycle
        match record:
            case r.RunStarted():
                lifecycle.started, lifecycle.status = record, "queued" if record.queue else "running"
                self.budget = None if record.budget is None else BudgetState(record.budget)
            case r.Claimed():
                self.ownership.claim(record, self.operations)
                if self.budget is not None:
                    self.budget.take(record)
                lifecycle.status = "running" if lifecycle.status in {"queued", "suspended"} else lifecycle.status
            case r.RunSuspendedRecord():
                lifecycle.status, lifecycle.reason = "suspended", record.reason
                self.ownership.end_in_order(last_chance=record.last_chance)
            case r.RunReopened():
                self._reopen()
            case r.BudgetRaised():
                self.entry_seen = max(self.entry_seen, record.entry)
                if self.budget is not None:
                    self.budget.take(record)
            case r.RunCompleted():
                lifecycle.status, lifecycle.completed = "completed", record
            case r.RunStoppedRecord():
                lifecycle.status, lifecycle.reason, lifecycle.stopped = "stopped", record.reason, record
                lifecycle.halted = record if STOP_REASONS[record.reason].asks_person else lifecycle.halted
            case _:
                assert isinstance(record, r.RunUndone), record
                lifecycle.status, lifecycle.reason = lifecycle.after_undo(record), record.summary
                lifecycle.undone, lifecycle.stopped = record, None

    def _reopen(self) -> None:
        lifecycle = self.lifecycle
        self._renew(lifecycle.stopped.renews if lifecycle.stopped is not None else ())
        self._ask_again()
        lifecycle.status, lifecycle.reason, lifecycle.stopped, lifecycle.cancelled = "running", "", None, None
        lifecycle.told_claims = {}
        self.ownership.end_in_order()
        if self.children is not None:
            self.children.reopen()

    def _message(self, record: r.MessageRecord) -> None:
        if isinstance(record, r.MessageReceived):
            self.messages = self.messages or Messages()
            self.entry_seen = max(self.entry_seen, record.entry)
            self.messages.receive(record, self.operations.values())
            self.lifecycle.heard(record.by)
            return
        if record.messages and self.messages is not None:  # a look that found none changes nothing for later steps
            self.messages.deliver(record)
        if record.step not in self.operations:  # an operation's outcome is what its code receives
            self.steps.answers[record.step] = record
            self.delivered.deliver(record.step, record)

    def _left(self, record: r.CallerLeft) -> None:
        if self.messages is not None:
            self.messages.forget(record.step)
        self.delivered.leave(record)

    def _command(self, record: r.CommandApplied) -> None:
        self.entry_seen = max(self.entry_seen, record.entry)
        self.lifecycle.command(record)
        if record.command == "review":
            step, denied = read_note(record.note)
            if (about := self.operations.get(step)) is not None:
                links = replace(about.links, doubt="stands" if denied else "")
                self.operations[step] = replace(about, links=links)
        if record.command == "fork":
            self.children = self.tree = self.shared = None  # those before it belong to the run it was forked from
        if self.children is not None and not record.refused and reason_of(record.command) is not None:
            self.children.cancel()


_PARTS: Final = (
    Lifecycle, Ownership, Steps, Deliveries, Boundaries, Messages, BudgetState, SharedUse, Children,
)  # fmt: skip


def _own(part: Any) -> Any:
    """The same part with containers of its own; what they contain is frozen."""
    if isinstance(part, dict | set):
        return part.copy()  # pyright: ignore[reportUnknownVariableType]  # of whatever the field contains
    if not isinstance(part, _PARTS):
        return part
    twin = copy(part)
    for name in part.__struct_fields__ if isinstance(part, msgspec.Struct) else vars(part):
        setattr(twin, name, _own(getattr(part, name)))
    return twin


def _branch(step: str) -> str:
    """The path of the branch in which a step is; empty for the first branch of the run."""
    return step[: step.rfind("/") + 1]


# --- the transactions of a run, and their members -------------------------------------------------------------------


def open_boundaries(history: RunHistory) -> list[TransactionState]:
    """Boundaries that have not come to their end and lie in no other such one."""
    return _outermost(one for one in history.boundaries.by_name.values() if not one.over)


def closing_boundaries(history: RunHistory) -> list[TransactionState]:
    """Boundaries that began to close and have not ended, and that lie in no other such one."""
    return _outermost(one for one in history.boundaries.by_name.values() if not one.over and one.phase != "open")


def members_of(history: RunHistory, transaction: str) -> list[OperationState]:
    """The operations of code inside a boundary, in order of start.

    Operations of inner boundaries that were called off belong to those, unless they turned out otherwise since.
    """
    gone = [
        one.name
        for one in history.boundaries.by_name.values()
        if one.backward and one.over and one.name != transaction and encloses(transaction, one.name)
    ]
    return [
        operation
        for step, operation in history.operations.items()
        if not operation.intent.serves
        and encloses(transaction, step)
        and (step in history.boundaries.raised or not any(encloses(inner, step) for inner in gone))
    ]


def compensated(history: RunHistory, step: str) -> Literal["", "undone", "asked", "stands"]:
    """The state of an effect that was compensated (`Links.doubt`); empty if it was not, or turned out otherwise."""
    operation = history.operations.get(step)
    by = None if operation is None else history.operations.get(operation.links.compensated_by)
    if operation is None or by is None or by.phase != "succeeded" or operation.links.overtaken == by.step:
        return ""
    return by.links.doubt or "undone"


def standing_inside(history: RunHistory) -> tuple[str, ...]:
    """The effects that aborted boundaries of the run left standing: an undo of the run leaves them, too.

    Also those of which it is in doubt since whether they were compensated.
    """
    gone = [one for one in history.boundaries.by_name.values() if one.backward and one.over and one.name != WHOLE_RUN]
    doubted = [step for one in gone for step in one.undone if compensated(history, step) in {"asked", "stands"}]
    return tuple(dict.fromkeys([step for one in gone for step in (*one.still_standing, *one.accepted)] + doubted))


def reopened(history: RunHistory) -> list[TransactionState]:
    """Boundaries that were called off, and have to be closed once more for what turned out otherwise since."""
    found: dict[str, TransactionState] = {}
    for step in sorted(history.boundaries.raised):
        if (
            all(one.over for one in around(step, history.boundaries.by_name))
            and (gone := history.boundaries.called_off(step)) is not None
        ):
            found[gone.name] = gone
    return list(found.values())


def _outermost(boundaries: Iterable[TransactionState]) -> list[TransactionState]:
    found = list(boundaries)
    return [one for one in found if not any(other is not one and encloses(other.name, one.name) for other in found)]
