"""The use cases: what a person can do with a journal. The file is long because every other interface calls these."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final, Literal, TypeVar

import msgspec

from beforehand.control.approvals import (
    LASTS,
    asked_about,
    asks_nothing,
    checked_in_time,
    checked_other,
    checked_proof,
    checked_statement,
    checked_verdict,
    held_until,
)
from beforehand.control.budgets import raised_budget
from beforehand.control.command_sink import CommandSink, DirectSink, record_answer
from beforehand.control.input_checks import checked_by, validated
from beforehand.control.messages import checked_accepts_message, message_from, with_end_noted
from beforehand.control.undo import (
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
from beforehand.model.commands import DELIVERIES, AnswerNotice, Command, CommandName, command_stream
from beforehand.model.ids import split_operation_id
from beforehand.model.names import plain_name, shows_something
from beforehand.model.operation import OperationState
from beforehand.model.questions import Answered, Scalar
from beforehand.model.run_history import RunHistory, exit_of
from beforehand.model.shell import to_type
from beforehand.model.stop_reasons import TAKE_OVER
from beforehand.model.transaction import WHOLE_RUN
from beforehand.people import answers as a
from beforehand.people.assignments import Handing
from beforehand.people.loaded_item import LoadedItem, checked_named, checked_shown, item_in

G = TypeVar("G", bound=Command | Answered | Handing)
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
        self.engine: Final = engine
        self.proven_ms: Final = proven_ms
        self.via: Final = via
        self.shown: Final = shown
        self._loaded: Final = loaded
        self._applied: dict[str, tuple[int, int]] = {}  # per run: records read, and the last entry among them
        self.sink: Final[CommandSink] = sink or DirectSink(engine)

    @property
    def proof(self) -> tuple[str, int, int]:
        """How the person's name is known, when a password was given, and the wall clock."""
        return self.via, self.proven_ms, self.engine.wall_ms()

    def stamped(self, given: G) -> G:
        """Add to an answer how its author's name is known."""
        return msgspec.structs.replace(given, via=self.via, proven_ms=self.proven_ms)

    def about(self, loaded: LoadedItem | None, shown: str, sink: CommandSink | None = None) -> ControlService:
        """The same use cases for an item that was loaded, with the same sink or another one."""
        sink, via, ms = sink or self.sink, self.via, self.proven_ms
        return ControlService(self.engine, sink, via=via, proven_ms=ms, shown=shown, loaded=loaded)

    def over(self, sink: CommandSink) -> ControlService:
        """The same use cases with another sink."""
        return self.about(self._loaded, self.shown, sink)

    # --- reading -----------------------------------------------------------------------------------------

    @property
    def reader(self) -> JournalReader:
        """The reader of the journal."""
        return JournalReader(self.engine.journal, self.engine.identity, self.engine.recent_histories)

    async def runs(self, *, status: RunStatus | None = None, limit: int = 1000, after: str = "") -> list[RunRow]:
        """List the runs, by run id."""
        return await self.engine.journal.runs(status=status, limit=limit, after=after)

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
        self, operation: str, word: a.ResolveWord, *, by: str, evidence: str = "", result: Any = None, shown: str = ""
    ) -> Applied:
        """Resolve an operation that no rule could decide. The answer is final once it is in the ledger.

        `shown` is as for `approve`: it is required once a person has had the operation sent again.
        A `result` has to fit what the tool returns. If this process does not have the tool's code, the answer waits for
        a process that has it. That process refuses a result that does not fit. Raises `UsageError`.
        """
        history, state = await self.operation(operation)
        step = state.step
        checked_shown(item_in(history, step), shown or self.shown)
        record = a.resolution(state, word, by, evidence, result)
        checked_resolution(history, record, self.engine.tools)
        checked_named(operation, state, shown or self.shown)
        checked_statement(history, state, by, evidence, self.proof)
        key = f"resolve/{step}/{len(state.attempts)}/{state.verification.checks}/{history.entry_seen}"
        return await self._record(operation, Command("resolve", by, evidence, record), key)

    async def approve(
        self, operation: str, *, by: str, why: str = "", lasts: timedelta = LASTS, shown: str = ""
    ) -> Applied:
        """Approve exactly what the operation asks about now. The first answer is final; a second one is only recorded.

        `shown` is the digest of what the person read (`Dossier.digest`), or the beginning of that digest. It is
        required if the question has changed. If anything changes before the call is sent, or the time `lasts` passes, a
        person is asked again. Raises `UsageError`.
        """
        until = held_until(self.engine, lasts)
        return await self._decide(operation, a.Approve(why), by, shown, until)

    async def edit(self, operation: str, changes: Mapping[str, Any], *, by: str, why: str = "") -> Applied:
        """Propose other arguments for the operation: `changes` names those that are different.

        The new arguments have to fit the tool's parameters, and another person has to approve them, whatever the gate
        and the policy say. The agent receives the arguments that were sent. Arguments that name the effect cannot be
        changed. Raises `UsageError`.
        """
        return await self._decide(operation, a.Edit(dict(changes), why), by)

    async def stand_in(self, operation: str, result: Any, *, by: str, why: str = "") -> Applied:
        """Give the result in place of the tool; nothing is sent. Raises `UsageError` if it does not fit the tool."""
        return await self._decide(operation, a.StandIn(result, why), by)

    async def decline(self, operation: str, *, by: str, why: str = "") -> Applied:
        """Decline the operation: nothing is sent, and the agent receives `Declined` with `why`. Raises `UsageError`."""
        return await self._decide(operation, a.Decline(why), by)

    async def ask_back(self, operation: str, *, by: str, question: str) -> Applied:
        """Answer with a question to the agent: nothing is sent, and the agent can propose another call.

        The agent receives `Declined` with the code `asked_back` and the question. Raises `UsageError`.
        """
        if not question.strip():
            raise UsageError("the question is empty", next_step="say what you want to know")
        return await self._decide(operation, a.AskBack(question), by)

    async def _decide(self, operation: str, given: a.Verdict, by: str, shown: str = "", until: int = 0) -> Applied:
        """Give this answer to what the operation asks about now. The first is final."""
        run, step = split_operation_id(operation)
        history, shown = await self.history(run), shown or self.shown
        asked = asked_about(history, step)
        checked_shown(item_in(history, step), shown)
        if isinstance(given, a.Approve | a.StandIn):
            checked_other(history, asked, by)
        if isinstance(given, a.Approve | a.StandIn | a.Edit):
            checked_in_time(history, asked, self.engine.wall_ms())
        if isinstance(given, a.Approve | a.StandIn):
            checked_proof(operation, asked, *self.proof)
        if isinstance(given, a.Approve):
            checked_named(operation, asked, shown)
        command = self.stamped(a.verdict(given, asked, by, until))
        checked_verdict(asked, command, AnswerContext(self.engine.tools, self.engine.identity.secret))
        voice = plain_name(command.by) if asked.approval.people_needed > 1 else ""
        key = f"approval/{asked.step}/{asked.approval.asked_digest}/{history.entry_seen}/{voice}"
        # An answered operation gets no second answer under its key; the command is recorded all the same.
        post = command_post(run, written(command), key if asked.phase == "gated" else "")
        applied, entry = await record_answer(self.sink, operation, command, (post,))
        if asked.phase != "gated":
            raise asks_nothing(operation, asked)
        if came_late(asked, entry):
            raise UsageError(f"the time to answer {operation} was over", next_step=to_type("resume", run))
        return applied

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
        told = written(self.stamped(Command("tell", by, record=message)))
        entry = await self.sink.post(command_post(run, told, f"tell/{once}" if once else ""))
        if not entry.fresh and read(entry, Command).record != message:
            raise UsageError(f"run {run} has another message with the id {once}")
        return with_end_noted(await self.sink.apply(run, ""), await self.row(run))

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
        return await self._record(run, Command("budget", by, why, raised))

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
        key = f"transaction/{transaction}/{parked.tries}/{len(parked.accepted)}"
        given = a.decision(transaction, word, by, why)
        return await self._record(f"{run}/{transaction}", given, key, exit_of(transaction))

    async def call_off(self, run: str, transaction: str, *, by: str, why: str) -> Applied:
        """Abort a transaction that has not committed, and compensate its effects. Raises `UsageError`."""
        checked_open(await self.history(run), transaction)
        return await self._record(run, a.decision(transaction, "abort", by, why))

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
        return await self._record(run, Command("undo", by, why, record))

    async def pause_tool(self, tool: str, *, by: str, why: str = "") -> None:
        """Pause a tool: no run sends through it until it is unpaused."""
        await self.engine.journal.commit(pause_post(tool, ToolPause("pause", by, why or f"paused by {by}")))
        await self.engine.look()

    async def unpause_tool(self, tool: str, *, by: str) -> None:
        """Unpause a tool: runs may send through it again."""
        await self.engine.journal.commit(pause_post(tool, ToolPause("unpause", by)))
        await self.engine.look()

    async def signal(
        self, run: str, event: str, *, key: str = "", payload: Any = None, once: str = "", by: str = ""
    ) -> LedgerEntry:
        """Send an event to a run. It is kept until the run waits for it. With `once`, a repeat has no effect.

        `by` is the person who sends it, who then cannot approve what comes of it; empty: a program sends it.
        """
        await self.row(run)
        sent = r.EventReceived("", event, key, r.Raw(written(payload, Any)), 0, by)
        entry = await self.engine.journal.commit(Post(event_stream(run, event, key), once, written(sent)))
        await self.sink.apply(run, "")
        return entry

    async def answer(self, question: str, value: Scalar, *, by: str) -> Scalar:
        """Answer a run's question (RUN/STEP). The first answer is final, including the default at the deadline.

        Text is read as the question's type. Raises `UsageError` for an invalid answer, and for a second one.
        """
        run, step = split_operation_id(question)
        asked = question_in(await self.history(run), step)
        answer = asked.question.answer_of(value)
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
        return (await record_answer(self.sink, question, answer, (answer_post(run, step, answer), *also), step))[0]

    async def deliver(self, key: str, arrival: ArrivedAnswer) -> DeliveryResult:
        """Deliver the answer that an operation awaits under `key`. The answer is durable on return, and wakes the run.

        Delivering the same message again changes nothing. A message that no operation awaits yet is kept until one
        does. Raises `UsageError` if another message has the same id, and for a person whose statement about the
        operation would not count, and `NotAllowed` if the sender is bound to other tools than that of the operation.
        """
        journal = self.engine.journal
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
        applied = await self.sink.apply(split_operation_id(operation)[0], "") if operation else None
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
        operation = await forward(self.engine.journal, key)
        return not operation or await self.apply_pending(split_operation_id(operation)[0])

    async def apply_pending(self, run: str) -> bool:
        """Apply pending entries to a run that no process drives.

        Return False while a process drives the run, or is about to, and has not applied them. The process may end the
        run without reading them, so the caller has to try again.
        """
        row, journal = await self.row(run), self.engine.journal
        if not await journal.entries(command_stream(run), await self._last_applied(run)):
            return True
        due = row.due_ms is not None and row.due_ms <= self.engine.wall_ms()
        if row.status == "running" or (row.status == "suspended" and due):
            return False
        await self.sink.apply(run, "")
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
        return await self._record(run, Command(word, by, why))

    async def _record(self, item: str, command: Command, key: str = "", answered: str = "") -> Applied:
        given = self.stamped(command)
        post = command_post(item.partition("/")[0], written(given), key)
        return (await record_answer(self.sink, item, given, (post,), answered))[0]
