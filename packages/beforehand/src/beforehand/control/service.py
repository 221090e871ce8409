"""The use cases: what a person can do with a journal. The file is long because every other interface calls these."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, Literal, TypeVar

import msgspec

from beforehand.control.approvals import (
    LASTS,
    asked_about,
    checked_asked,
    checked_in_time,
    checked_other,
    checked_proof,
    checked_statement,
    command_of,
    held_until,
)
from beforehand.control.budgets import raised_budget
from beforehand.control.command_sink import CommandSink, DirectSink, Recorded, record_answer
from beforehand.control.input_checks import checked_by, validated
from beforehand.control.messages import checked_accepts_message, message_from, with_end_noted
from beforehand.control.undo import (
    call_off_reason,
    checked_finished,
    checked_open,
    checked_parked,
    checked_retry,
    checked_undoable,
    tree_of,
)
from beforehand.engine.approvals import AnswerContext, came_late
from beforehand.engine.breaker import ToolPause, pause_post
from beforehand.engine.commands import Applied, checked_resolution, command_post
from beforehand.engine.deferred import ArrivedAnswer, AwaitingOperation, arrived_stream, forward, owner_of
from beforehand.engine.durable_waits import answer_post, event_stream
from beforehand.engine.engine import Engine
from beforehand.errors import NotAllowed, UsageError
from beforehand.inspect.reader import JournalReader, operation_in, question_in
from beforehand.journal.entry_codec import read, written
from beforehand.journal.port import LedgerEntry, Post, RunRow, RunStatus
from beforehand.model import records as r
from beforehand.model.commands import DELIVERIES, AnswerNotice, Command, CommandName, Verdict, command_stream
from beforehand.model.ids import split_operation_id
from beforehand.model.names import plain_name, shows_something
from beforehand.model.operation import OperationState
from beforehand.model.outcome import ASKED_BACK
from beforehand.model.questions import Answered, Scalar
from beforehand.model.run_history import RunHistory, exit_of
from beforehand.model.shell import to_type
from beforehand.model.stop_reasons import TAKE_OVER
from beforehand.model.transaction import WHOLE_RUN
from beforehand.people.assignments import Handing
from beforehand.people.loaded_item import LoadedItem, checked_named, checked_shown, item_in

G = TypeVar("G", Command, Answered, Handing)
REMEMBERED: Final = 1000
_FROM_ENTRIES: Final = (r.BudgetRaised, r.CommandApplied, r.MessageReceived, r.Resolved, r.TransactionResolved)
"""The records that `RunHistory.entry_seen` is made of."""


class DeliveryResult(msgspec.Struct, frozen=True):
    """The result of a delivery. `fresh`: the message is new. `operation` is empty while no operation awaits it."""

    key: str
    fresh: bool
    operation: str = ""
    applied: Applied | None = None


@validated
class ControlService:
    """The use cases over one open engine. With another `sink`, commands are checked in the same way and sent there.

    `via` is how the people who give commands were identified, and `proven_ms` the time at which they gave a password.
    Both are stored with each command. `loaded` is an item that was read for authorization. Commands on its run are
    checked against that history and the records since then, so the run is not read again.
    """

    def __init__(
        self,
        engine: Engine,
        sink: CommandSink | None = None,
        *,
        via: str = "",
        proven_ms: int = 0,
        shown: str = "",
        loaded: LoadedItem | None = None,
    ) -> None:
        self._engine = engine
        self.proven_ms: Final = proven_ms
        self.via: Final = via
        self.shown: Final = shown
        self._loaded: Final = loaded
        self._applied: dict[str, tuple[int, int]] = {}  # per run: records read, and the last entry among them
        self._sink: CommandSink = sink or DirectSink(engine)

    @property
    def sink(self) -> CommandSink:
        """The destination of the commands."""
        return self._sink

    @property
    def engine(self) -> Engine:
        """The engine that applies the commands."""
        return self._engine

    @property
    def proof(self) -> tuple[str, int, int]:
        """How the person's name is known, when a password was given, and the wall clock."""
        return self.via, self.proven_ms, self._engine.environment.clock.wall_ms()

    def stamped(self, given: G) -> G:
        """Add to an answer how its author's name is known."""
        return msgspec.structs.replace(given, via=self.via, proven_ms=self.proven_ms)

    def about(self, loaded: LoadedItem, shown: str) -> ControlService:
        """The same use cases for an item that was loaded."""
        return ControlService(
            self._engine, self._sink, via=self.via, proven_ms=self.proven_ms, shown=shown, loaded=loaded
        )

    def over(self, sink: CommandSink) -> ControlService:
        """The same use cases with another sink."""
        shown, loaded = self.shown, self._loaded
        return ControlService(self._engine, sink, via=self.via, proven_ms=self.proven_ms, shown=shown, loaded=loaded)

    # --- reading -----------------------------------------------------------------------------------------

    @property
    def reader(self) -> JournalReader:
        """The reader of the journal."""
        return JournalReader(self._engine.journal, self._engine.identity, self._engine.recent_histories)

    async def runs(self, *, status: RunStatus | None = None, limit: int = 1000, after: str = "") -> list[RunRow]:
        """List the runs, by run id."""
        return await self.reader.runs(status=status, limit=limit, after=after)

    async def row(self, run: str) -> RunRow:
        """The row of a run in the listing. Raises `UnknownRun`."""
        return await self.reader.row(run)

    async def history(self, run: str) -> RunHistory:
        """The history of a run, from its records. Raises `UnknownRun`."""
        if self._loaded is not None and self._loaded.run == run:
            # What was recorded meanwhile is read, so that a command is checked against the state that it is bound to.
            return await self.reader.catch_up(self._loaded.history)
        return await self.reader.history(run)

    async def operation(self, operation: str) -> tuple[RunHistory, OperationState]:
        """One operation by its full name. Raises `UnknownRun` or `UsageError`."""
        run, step = split_operation_id(operation)
        history = await self.history(run)
        return history, operation_in(history, step)

    # --- deciding ------------------------------------------------------------------------------------------

    async def resolve(
        self,
        operation: str,
        word: Literal["happened", "did_not_happen", "retry", "same_key"],
        *,
        by: str,
        evidence: str = "",
        result: Any = None,
        shown: str = "",
    ) -> Applied:
        """Resolve an operation that no rule could decide. The answer is final once it is in the ledger.

        `shown` is as for `approve`: it is required once a person has had the operation sent again.
        A `result` has to fit what the tool returns. If this process does not have the tool's code, the answer waits for
        a process that has it. That process refuses a result that does not fit. Raises `UsageError`.
        """
        run, step = split_operation_id(operation)
        history, state = await self.operation(operation)
        checked_shown(item_in(history, step), shown or self.shown)
        stored = r.NOTHING if result is None else r.Raw(msgspec.json.encode(result))
        record = r.Resolved(step, word, by, len(state.attempts), evidence, stored)
        checked_resolution(history, record, self._engine.tools)
        checked_named(operation, state, shown or self.shown)
        checked_statement(history, state, by, evidence, self.proof)
        key = f"resolve/{step}/{len(state.attempts)}/{state.verification.checks}/{history.entry_seen}"
        recorded = await self._record(run, Command("resolve", by, evidence, record), key)
        if (first := recorded.first) is not None:
            earlier = first.record.word if isinstance(first.record, r.Resolved) else first.word
            raise UsageError(
                f"{operation} was already resolved by {first.by}",
                known=f"the first answer counts: {earlier.replace('_', ' ')}",
                next_step=to_type("why", operation),
            )
        return recorded.applied

    async def approve(
        self, operation: str, *, by: str, why: str = "", lasts: timedelta = LASTS, shown: str = ""
    ) -> Applied:
        """Approve exactly what the operation asks about now. The first answer is final; a second one is only recorded.

        `shown` is the digest of what the person read (`Dossier.digest`), or the beginning of that digest. It is
        required if the question has changed. If anything changes before the call is sent, or the time `lasts` passes, a
        person is asked again. Raises `UsageError`.
        """
        history, state = await self._asked(operation, by, yes=True, shown=shown)
        checked_named(operation, state, shown or self.shown)
        until = held_until(self._engine, lasts)
        yes = r.ApprovalGranted(state.step, state.approval.asked_digest, by, why, until)
        return await self._decide(history, state, yes)

    async def edit(self, operation: str, changes: Mapping[str, Any], *, by: str, why: str = "") -> Applied:
        """Propose other arguments for the operation: `changes` names those that are different.

        The new arguments have to fit the tool's parameters, and another person has to approve them, whatever the gate
        and the policy say. The agent receives the arguments that were sent. Arguments that name the effect cannot be
        changed. Raises `UsageError`.
        """
        history, state = await self._asked(operation, by)
        checked_in_time(history, state, self._engine.environment.clock.wall_ms())
        edited = r.Raw(msgspec.json.encode(changes))
        record = r.ArgumentsEdited(state.step, state.approval.asked_digest, by, edited, why)
        return await self._decide(history, state, record)

    async def stand_in(self, operation: str, result: Any, *, by: str, why: str = "") -> Applied:
        """Give the result in place of the tool; nothing is sent. Raises `UsageError` if it does not fit the tool."""
        history, state = await self._asked(operation, by, yes=True)
        stored = r.Raw(msgspec.json.encode(result))
        record = r.ResultGiven(state.step, state.approval.asked_digest, by, stored, why)
        return await self._decide(history, state, record)

    async def decline(self, operation: str, *, by: str, why: str = "") -> Applied:
        """Decline the operation: nothing is sent, and the agent receives `Declined` with `why`. Raises `UsageError`."""
        history, state = await self._asked(operation, by)
        return await self._decide(history, state, r.ApprovalRefused(state.step, state.approval.asked_digest, by, why))

    async def ask_back(self, operation: str, *, by: str, question: str) -> Applied:
        """Answer with a question to the agent: nothing is sent, and the agent can propose another call.

        The agent receives `Declined` with the code `asked_back` and the question. Raises `UsageError`.
        """
        if not question.strip():
            raise UsageError("the question is empty", next_step="say what you want to know")
        history, state = await self._asked(operation, by)
        no = r.ApprovalRefused(state.step, state.approval.asked_digest, by, question, code=ASKED_BACK)
        return await self._decide(history, state, no)

    async def _asked(
        self, operation: str, by: str, *, yes: bool = False, shown: str = ""
    ) -> tuple[RunHistory, OperationState]:
        run, step = split_operation_id(operation)
        history = await self.history(run)
        asked = asked_about(history, step)
        checked_shown(item_in(history, step), shown or self.shown)
        if yes:
            checked_other(history, asked, by)
            checked_in_time(history, asked, self._engine.environment.clock.wall_ms())
            checked_proof(operation, asked, *self.proof)
        return history, asked

    async def _decide(self, history: RunHistory, asked: OperationState, answer: Verdict) -> Applied:
        codes = AnswerContext(self._engine.tools, self._engine.identity.secret)
        run, command = history.run, command_of(asked, answer, codes)
        voice = plain_name(command.by) if asked.approval.people_needed > 1 else ""
        key = f"approval/{asked.step}/{asked.approval.asked_digest}/{history.entry_seen}/{voice}"
        # An answered operation gets no second answer under its key; the command is recorded all the same.
        recorded, name = await self._record(run, command, key if asked.phase == "gated" else ""), f"{run}/{asked.step}"
        if recorded.first is None and asked.phase == "gated":
            if came_late(asked, recorded.entry):
                raise UsageError(f"the time to answer {name} was over", next_step=to_type("resume", run))
            return recorded.applied
        checked_asked(history, (await self.reader.operation(name))[1])  # as it is now that the command is applied
        first = "" if recorded.first is None else recorded.first.by
        raise UsageError(f"{name} was answered before, by {first}", next_step=to_type("why", name))

    async def cancel(self, run: str, *, by: str, why: str = "") -> Applied:
        """Cancel the run. Nothing more is sent, and unsent operations are cancelled."""
        return await self._order(run, "cancel", by, why)

    async def tell(
        self,
        run: str,
        text: str,
        *,
        by: str,
        facts: Mapping[str, Any] | None = None,
        stop: bool = False,
        once: str = "",
    ) -> Applied:
        """Send a run a message. Its code receives it before it begins a new write; with `stop`, no new write begins.

        `facts` correct the facts of the run. `once` names the message, so that sending it again changes nothing. The
        message is durable on return, and wakes a suspended run. Raises `UsageError` if the run has ended, or another
        message has the name.
        """
        message = message_from(text, by, facts or {}, stop=stop)
        checked_accepts_message(await self.row(run))
        entry = await self._post(run, Command("tell", by, record=message), f"tell/{once}" if once else "")
        if not entry.fresh and read(entry, Command).record != message:
            raise UsageError(f"run {run} has another message with the id {once}")
        return with_end_noted(await self._apply(run), await self.row(run))

    async def pause(self, run: str, *, by: str, why: str = "") -> Applied:
        """Pause the run before its next step."""
        return await self._order(run, "pause", by, why)

    async def unpause(self, run: str, *, by: str) -> Applied:
        """Continue a paused run."""
        return await self._order(run, "unpause", by, "")

    async def raise_budget(self, run: str, amounts: Mapping[str, int | str], *, by: str, why: str = "") -> Applied:
        """Raise limits of the run's budget by these amounts: `{"tokens": 20_000, "cost": "1.50 EUR"}`.

        A run that its budget has stopped goes on. Raises `UsageError` for a run that has ended or has no budget, for a
        limit that it does not have, and for an amount that is not a whole number above 0, or not money of its currency.
        """
        history = await self.history(run)
        raised = raised_budget(history, amounts, by=by, note=why)
        await self._post(run, Command("budget", by, why, raised), "")
        return await self._apply(run)

    async def resolve_transaction(
        self, run: str, transaction: str, word: Literal["retry", "accept"], *, by: str, why: str = "", shown: str = ""
    ) -> Applied:
        """Decide on a parked transaction: retry the stuck steps, or accept it as it is. Raises `UsageError`.

        `shown` is the digest of what the person saw. Where a person decided before and it is stuck again, it is needed.
        """
        history = await self.history(run)
        parked = checked_parked(history, transaction)
        item = item_in(history, transaction)
        checked_shown(item, shown or self.shown)
        checked_named(item.item, parked, shown or self.shown)
        if word == "retry":
            checked_retry(history, parked)
        record = r.TransactionResolved(transaction=transaction, word=word, by=by, note=why)
        key = f"transaction/{transaction}/{parked.tries}/{len(parked.accepted)}"
        recorded = await self._record(run, Command("transaction", by, why, record), key, exit_of(transaction))
        if (first := recorded.first) is not None:
            raise UsageError(f"{run}/{transaction} was already answered by {first.by}", known=f"{first.record}")
        return recorded.applied

    async def call_off(self, run: str, transaction: str, *, by: str, why: str) -> Applied:
        """Abort a transaction that has not committed, and compensate its effects. Raises `UsageError`."""
        checked_open(await self.history(run), transaction)
        record = r.TransactionAborting(transaction=transaction, reason=call_off_reason(why, by), by=by)
        await self._post(run, Command("transaction", by, why, record), "")
        return await self._apply(run)

    async def undo(self, run: str, *, by: str, why: str = "") -> Applied:
        """Undo a finished run and the runs below it: compensate the effects of each in reverse order.

        Runs below it that are under way are cancelled first. Raises `UsageError` for an unfinished run, and `RunError`
        where nothing of them can be undone: they keep their status. Drive the runs afterwards, because the
        compensations are operations of them. A second command begins nothing.
        """
        history = await self.history(run)
        if not checked_finished(history):
            return Applied(run, at_once=True, note=f"run {run} is undone, or is being undone")
        checked_undoable(await tree_of(self.reader, run))
        record = r.TransactionAborting(transaction=WHOLE_RUN, reason=why or f"undone by {by}", by=by)
        await self._post(run, Command("undo", by, why, record), "")
        return await self._apply(run)

    async def pause_tool(self, tool: str, *, by: str, why: str = "") -> None:
        """Pause a tool: no run sends through it until it is unpaused."""
        await self._engine.journal.commit(pause_post(tool, ToolPause("pause", by, why or f"paused by {by}")))
        await self._engine.look()

    async def unpause_tool(self, tool: str, *, by: str) -> None:
        """Unpause a tool: runs may send through it again."""
        await self._engine.journal.commit(pause_post(tool, ToolPause("unpause", by)))
        await self._engine.look()

    async def signal(
        self, run: str, event: str, *, key: str = "", payload: Any = None, once: str = "", by: str = ""
    ) -> LedgerEntry:
        """Send an event to a run. It is kept until the run waits for it. With `once`, a repeat has no effect.

        `by` is the person who sends it, who then cannot approve what comes of it; empty: a program sends it.
        """
        await self.row(run)
        sent = r.EventReceived("", event, key, r.Raw(written(payload, Any)), 0, by)
        entry = await self._engine.journal.commit(Post(event_stream(run, event, key), once, written(sent)))
        await self._apply(run)
        return entry

    async def answer(self, question: str, value: Scalar, *, by: str) -> Scalar:
        """Answer a run's question (RUN/STEP). The first answer is final, including the default at the deadline.

        Text is read as the question's type. Raises `UsageError` for an invalid answer, and for a second one.
        """
        run, step = split_operation_id(question)
        asked = question_in(await self.history(run), step)
        answer = asked.question.read(value) if isinstance(value, str) else asked.question.checked(value)
        await self._reply(question, Answered(answer, by))
        return answer

    async def take_over(self, item: str, *, by: str, why: str = "") -> Applied:
        """Take over a run that was handed over (RUN/STEP). The run ends, and nothing more is sent for it.

        Raises `UsageError` if the run was not handed over there, or the hand-off was already answered.
        """
        run, step = split_operation_id(item)
        asked = question_in(await self.history(run), step)
        if asked.handoff is None:
            raise UsageError(f"{item} is a question", next_step=to_type("answer", item, "VALUE", "--by", "NAME"))
        order = written(self.stamped(Command(TAKE_OVER, by, why)))
        also = command_post(run, order, f"{TAKE_OVER}/{step}")
        return await self._reply(item, Answered(None, by, over=True, note=why), also)

    async def _reply(self, question: str, answer: Answered, *also: Post) -> Applied:
        """Record an answer to a question, and `also` with it if it is the first. Raises `UsageError` for a second."""
        run, step = split_operation_id(question)
        answer = self.stamped(answer)
        recorded = await record_answer(self._sink, run, answer, (answer_post(run, step, answer), *also), step)
        if (first := recorded.first) is None:
            return recorded.applied
        raise UsageError(
            f"{question} was already answered by {first.by or 'its deadline'}",
            known="they took it over" if first.over else f"the answer: {first.value}",
            next_step=to_type("show", run),
        )

    async def deliver(self, key: str, arrival: ArrivedAnswer) -> DeliveryResult:
        """Deliver the answer that an operation awaits under `key`. The answer is durable on return, and wakes the run.

        Delivering the same message again changes nothing. A message that no operation awaits yet is kept until one
        does. Raises `UsageError` if another message has the same id, and for a person whose statement about the
        operation would not count, and `NotAllowed` if the sender is bound to other tools than that of the operation.
        """
        journal = self._engine.journal
        owner = await owner_of(journal, key) if arrival.tools or arrival.person else None
        if owner is not None and (refused := arrival.refusal(owner)):
            raise NotAllowed(refused, next_step="bind the sender to this tool as well, if it may settle it")
        if arrival.person:
            await self._checked_bringer(owner, arrival)
        await journal.commit(Post(DELIVERIES, "", written(AnswerNotice(key, arrival.entry))))
        entry = await journal.commit(Post(arrived_stream(key), arrival.entry, written(arrival)))
        if not entry.fresh and read(entry, ArrivedAnswer) != arrival:
            raise UsageError(
                f"another message came under the id {arrival.id} for {key}; this one is refused",
                next_step="a sender gives each message an id of its own, and repeats it unchanged",
            )
        operation = await forward(journal, key)
        applied = await self._apply(split_operation_id(operation)[0]) if operation else None
        return DeliveryResult(key, entry.fresh, operation, applied)

    async def _checked_bringer(self, owner: AwaitingOperation | None, arrival: ArrivedAnswer) -> None:
        """Refuse an answer from a person who may not say what happened. Its id, by which others find it, is evidence.

        A delivery carries no proof of who brought it: where a question takes a person who signed in, a sender signs.
        """
        checked_by(arrival.person, "an answer")
        if not shows_something(arrival.id):
            raise UsageError("an answer needs an id, by which others find it", next_step="give the id of its sender")
        if owner is not None and arrival.status != "pending":
            history, state = await self.operation(owner.operation)
            checked_statement(history, state, arrival.person, arrival.id, ("", 0, 0))

    async def bring(self, key: str) -> bool:
        """Finish an interrupted delivery: the run that waits for `key` receives the message. See `apply_pending`."""
        operation = await forward(self._engine.journal, key)
        return not operation or await self.apply_pending(split_operation_id(operation)[0])

    async def apply_pending(self, run: str) -> bool:
        """Apply pending entries to a run that no process drives.

        Return False while a process drives the run, or is about to, and has not applied them. The process may end the
        run without reading them, so the caller has to try again.
        """
        row, journal = await self.row(run), self._engine.journal
        if not await journal.entries(command_stream(run), await self._last_applied(run)):
            return True
        due = row.due_ms is not None and row.due_ms <= self._engine.environment.clock.wall_ms()
        if row.status == "running" or (row.status == "suspended" and due):
            return False
        await self._apply(run)
        return True

    async def _last_applied(self, run: str) -> int:
        """The last ledger entry that the run has on record. Housekeeping asks repeatedly: only new records are read."""
        seq, last = self._applied.pop(run, (0, 0))
        async for row, record in self.reader.records(run, after=seq):
            seq, last = row.seq, max(last, record.entry if isinstance(record, _FROM_ENTRIES) else 0)
        self._applied[run] = seq, last  # the newest at the end
        if len(self._applied) > REMEMBERED:
            del self._applied[next(iter(self._applied))]
        return last

    # --- inside --------------------------------------------------------------------------------------------

    async def _order(self, run: str, word: CommandName, by: str, why: str) -> Applied:
        await self.row(run)
        await self._post(run, Command(word, by, why), "")
        return await self._apply(run)

    async def _record(self, run: str, command: Command, key: str, answered: str = "") -> Recorded[Command]:
        given = self.stamped(command)
        return await record_answer(self._sink, run, given, (command_post(run, written(given), key),), answered)

    async def _post(self, run: str, command: Command, key: str) -> LedgerEntry:
        return await self._sink.post(command_post(run, written(self.stamped(command)), key))

    async def _apply(self, run: str, answered: str = "") -> Applied:
        return await self._sink.apply(run, answered)
