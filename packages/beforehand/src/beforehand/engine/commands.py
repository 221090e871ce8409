"""Commands from outside: final once they are in the ledger, and applied by the process that holds the run's lease.

`take_commands` applies them: for the driver of a busy run between two steps, and for `apply_commands`, which claims an
idle run for this. Each command adds the records that `records_for` makes, and the posts of `posts_for`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec.structs import replace

from beforehand.engine.active_run.log import load
from beforehand.engine.active_run.run import ActiveRun
from beforehand.engine.active_run.waiters import wake_all
from beforehand.engine.approvals import AnswerContext, came_late, decision_posts, verdict_of
from beforehand.engine.conflicts import outcome_posts
from beforehand.engine.environment import Stamp
from beforehand.engine.exceptions.call_end import clean
from beforehand.engine.operation_driver import tool_of
from beforehand.engine.process import Process
from beforehand.engine.relatives import posts_of_command, receivers
from beforehand.engine.suspension import (
    Ending,
    ended_by,
    notify_owner,
    records_on_stopped,
    release_post,
    stopped_change,
)
from beforehand.engine.tool_protocol import ToolCode
from beforehand.engine.verification import by_report, opening_posts
from beforehand.errors import LeaseLost, LedgerTaken, Unreadable, UsageError
from beforehand.journal.entry_codec import read, set_aside
from beforehand.journal.port import LeaseGranted, LedgerEntry, Post, RunChange, RunRow, Worker
from beforehand.journal.record_codec import encode
from beforehand.model import records as r
from beforehand.model.children import CHILD_ENDED
from beforehand.model.commands import VERDICTS, YES, Command, RunCommandRecord, command_stream
from beforehand.model.ids import operation_id
from beforehand.model.names import is_among, shows_something
from beforehand.model.operation import OperationState
from beforehand.model.run_history import RunHistory, members_of
from beforehand.model.shared_use import Charge
from beforehand.model.shell import lines, to_type
from beforehand.model.stop_reasons import reason_of
from beforehand.model.system import is_planted
from beforehand.model.transaction import TRANSACTION_TRANSITIONS, WHOLE_RUN
from beforehand.model.transitions import TRANSITIONS, apply
from beforehand.model.waits import needs_result, sends_on_order, sent_again_by, stored_contract, waits_left

_LOG: Final = logging.getLogger("beforehand")
NO_EVIDENCE: Final = "how do you know? what a person approved is settled on evidence"
ANSWER_KEY: Final = "arrived/"
"""Key prefix of a command that carries an answer from outside, rather than a report of one of our processes."""


def command_post(run: str, body: bytes, key: str = "") -> Post:
    """The ledger entry of a command. A second command with the same `key` is refused."""
    return Post(command_stream(run), key, body)


def records_for(history: RunHistory, entry: LedgerEntry, stamp: Stamp, codes: AnswerContext) -> tuple[r.Record, ...]:
    """The records that one command adds to the run. A command that no longer fits is recorded as refused."""
    try:
        command = read(entry, Command)
    except Unreadable as unread:
        return (refused_unread(entry, unread, stamp),)
    applied = r.CommandApplied(command=command.word, by=command.by, entry=entry.id, note=command.note, **stamp)
    record = command.record
    if command.after or command.refused:  # without a record a command acts by its name: a second one gets another
        name = command.word if record is not None else "late"
        return (replace(applied, command=name, refused=clean(command.refused or f"{command.after} answered first")),)
    if record is None:
        return records_on_stopped(history, applied, stamp)
    if isinstance(record, (r.TransactionResolved, r.TransactionAborting, r.MessageReceived, r.BudgetRaised)):
        return _about_run(history, record, applied, stamp)
    operation = history.operations.get(record.step)
    if operation is None or operation.phase not in TRANSITIONS[type(record)][0]:
        state = "not in this run" if operation is None else operation.phase
        return (replace(applied, refused=f"{record.step} is {state}"),)
    if isinstance(record, VERDICTS) and came_late(operation, entry):
        return (replace(applied, refused=f"the time to answer {record.step} was over"),)
    if why := _not_theirs(history, operation, command, entry):
        return (replace(applied, refused=why),)
    if isinstance(record, r.LateReport):
        return _reported(operation, record, applied, entry, codes)
    try:
        fits = (
            _resolution_of(history, operation, record, codes.tools)
            if isinstance(record, r.Resolved)
            else verdict_of(operation, record, codes)
        )
    except UsageError as misfit:
        return (replace(applied, refused=clean(misfit.message)),)
    return (applied, replace(fits, entry=entry.id, **stamp))


def refused_unread(entry: LedgerEntry, unread: Unreadable, stamp: Stamp) -> r.CommandApplied:
    """The record of a command that cannot be read: it is refused, and the commands after it are applied."""
    why = clean(f"{unread.message}")
    return r.CommandApplied(command="unreadable", by="", entry=entry.id, refused=why, **stamp)


def _not_theirs(history: RunHistory, operation: OperationState, command: Command, entry: LedgerEntry) -> str:
    """Why the approval of this person, or what they say happened, does not count; empty if it does."""
    operation = history.operations.get(operation.intent.completes, operation)  # a part was approved with the whole
    states = isinstance(command.record, r.Resolved) or (isinstance(command.record, r.LateReport) and command.record.by)
    if not (isinstance(command.record, YES) or (states and operation.needed_yes)):
        return ""
    if is_among(command.by, history.proposers(operation)):
        return f"{command.by} proposed it"
    if isinstance(command.record, r.Resolved) and not shows_something(command.record.evidence):
        return NO_EVIDENCE
    return operation.approval.lacks_proof(command.via, command.proven_ms, entry.at_ms)


def _resolution_of(
    history: RunHistory, operation: OperationState, record: r.Resolved, tools: Mapping[str, ToolCode]
) -> r.Resolved:
    """The decision on an operation that no rule could decide. Raises `UsageError` if it no longer fits."""
    if operation.wants_approval:
        raise UsageError(f"{record.step} waits for an approval")
    if record.attempts != len(operation.attempts):
        raise UsageError(f"{record.step} was sent again since")
    if misfit := _misfit(operation, record, tools):
        raise UsageError(f"{_no_result(operation, record)}; {misfit}")
    return _as_followed(history, operation, record)


def _as_followed(history: RunHistory, operation: OperationState, record: r.Resolved) -> r.Resolved:
    """The decision as far as it is followed.

    Where nothing is sent any more, `retry` has a verifier read it again; without one, it says that it did not happen.
    """
    if not record.orders or sends_on_order(history, operation):
        return record
    if record.word == "retry":
        return record if stored_contract(history, operation).verifies else replace(record, word="did_not_happen")
    name, ended = operation_id(history.run, record.step), "run was cancelled"
    if history.boundaries.called_off(record.step) is not None:
        ended = "transaction was called off"
    raise UsageError(
        f"{name} is not sent again: its {ended}",
        next_step=lines(to_type("answer", name, "happened"), to_type("answer", name, "give-up")),
    )


def _is_of_recorded_attempt(operation: OperationState, report: r.LateReport) -> bool:
    """True if the reported attempt is the one on record. A former owner may report one that it could not record."""
    if not 1 <= report.number <= len(operation.attempts):
        return False
    return report.token in {0, operation.attempts[report.number - 1].token}


def _reported(
    operation: OperationState, report: r.LateReport, applied: r.CommandApplied, entry: LedgerEntry, codes: AnswerContext
) -> tuple[r.Record, ...]:
    """The records of an answer that came after its call was given up, or from outside."""
    if not _is_of_recorded_attempt(operation, report):
        return (replace(applied, refused=f"attempt {report.number} of {report.step} was made by another owner"),)
    report, stamp = _read(operation, report, entry, codes.tools), Stamp(at=applied.at, up=applied.up)
    return (applied, _restamped(report, stamp), *by_report(operation, report, stamp))


def _about_run(
    history: RunHistory, record: RunCommandRecord, applied: r.CommandApplied, stamp: Stamp
) -> tuple[r.Record, ...]:
    """A higher budget, a message, a decision on a parked transaction, or a command to abort one or the whole run."""
    if isinstance(record, r.MessageReceived):
        return (replace(record, entry=applied.entry, **stamp),)
    if isinstance(record, r.BudgetRaised):
        return _raised(history, record, applied, stamp)
    before = history.boundaries.by_name.get(record.transaction)
    phase: str = before.phase if before is not None else "new"
    possible = phase in TRANSACTION_TRANSITIONS[type(record)][0]
    if record.transaction == WHOLE_RUN and isinstance(record, r.TransactionAborting):
        lifecycle, phase = history.lifecycle, "being undone" if history.undo_state else history.lifecycle.status
        possible = lifecycle.status in {"completed", "stopped"} and not history.undo_state
        if lifecycle.cancelled is not None and not possible and not history.undo_state:
            return (applied,)  # it begins when the run has ended
    if not possible:
        return (replace(applied, refused=f"{record.transaction or 'the run'} is {phase}"),)
    if isinstance(record, r.TransactionResolved):
        again = sent_again_by(history, before.stuck) if before is not None and record.word == "retry" else ()
        orders = (
            r.Resolved(one.step, "same_key", record.by, len(one.attempts), record.note, entry=applied.entry, **stamp)
            for one in again
        )
        return (applied, replace(record, entry=applied.entry, **stamp), *orders)
    members = tuple(operation.step for operation in members_of(history, record.transaction))
    return (applied, replace(record, participants=members, **stamp))


def _raised(
    history: RunHistory, record: r.BudgetRaised, applied: r.CommandApplied, stamp: Stamp
) -> tuple[r.Record, ...]:
    """The records of a higher budget. A run that its budget has stopped goes on."""
    if history.budget is None and (history.lifecycle.started is None or history.lifecycle.started.parent is None):
        return (replace(applied, refused="the run has no budget"),)
    raised, stopped = replace(record, entry=applied.entry, **stamp), history.lifecycle.stopped
    if history.lifecycle.status != "stopped" or stopped is None or stopped.reason != "budget":
        return (raised,)
    return (raised, r.RunReopened(by=record.by, note="its budget was raised", **stamp))


def _restamped(report: r.LateReport, stamp: Stamp) -> r.LateReport:
    """The report with our time stamp: one of another process carries that process's clock."""
    return replace(report, **stamp)


def posts_for(history: RunHistory, records: tuple[r.Record, ...]) -> tuple[Post, ...]:
    """The ledger entries that go with contradictions, and with a person's command, as other runs may wait for it."""
    posts = list(opening_posts(history, records))
    for record in records:
        if isinstance(record, r.Resolved) and not record.orders:
            settled = apply(history.operations[record.step], record)
            posts.extend(outcome_posts(operation_id(history.run, record.step), settled))
        elif isinstance(record, (r.ApprovalGranted, r.ApprovalRefused)):
            posts.extend(decision_posts(history.operations[record.step], record, history.run))
        elif isinstance(record, (r.CommandApplied, r.BudgetRaised, r.RunStoppedRecord)):
            posts.extend(posts_of_command(history, record))
    return tuple(posts)


NOT_APPLIED: Final = "the process that drives the run has not applied it yet"


class Applied(msgspec.Struct, frozen=True):
    """The result of a command. It was applied at once, or the process that drives the run applies it (`elsewhere`).

    `lacks` names the tool whose code has to check the command first, if this process does not have it, or the agent of
    a planted case. With `alert`, the note is important to the person who gave the command, for example because the
    command was refused after all.
    """

    run: str
    at_once: bool
    note: str = ""
    lacks: str = ""
    alert: bool = False
    elsewhere: bool = False
    owner: Worker | None = None  # the process that has to apply it, if it was passed to one


async def apply_commands(
    process: Process, active_runs: Mapping[str, ActiveRun], run: str, answered: str = ""
) -> Applied:
    """Apply the pending commands of a run: here if it is idle or ours, otherwise by notifying its owner.

    `answered` is a step whose question has its answer, so that the inbox no longer lists it.
    """
    applied: Applied | None = None
    while True:
        active = active_runs.get(run)
        ours = active is not None and active.sealed is None
        if active is not None and ours:
            with contextlib.suppress(LeaseLost):  # the present owner of the run is notified below
                await take_commands(active)
        found = await process.leases.claim(run)
        if isinstance(found, LeaseGranted):
            done, missed = await _apply_claimed(process, found, answered)
            applied = applied or done
            if missed:
                continue
            return applied
        # An owner that released the run just before the notification does not read the command: then the claim is
        # tried again, so that the command does not wait for the next poll.
        if found is None or await notify_owner(process.journal, run, found.row.token):
            if applied is not None:
                return applied
            if ours or found is None:
                return Applied(run, at_once=ours, elsewhere=not ours)
            return Applied(run, at_once=False, note=NOT_APPLIED, elsewhere=True, owner=found.owner)


async def _apply_claimed(process: Process, claimed: LeaseGranted, answered: str) -> tuple[Applied, bool]:
    """Apply the commands of a run whose lease we hold, and give the lease back.

    Also return whether further commands came whose senders rely on this process.
    """
    run, row = claimed.lease.run, claimed.row
    with process.leases.idle(claimed) as log:
        if is_planted(row.agent):  # never applied here: an approval that is on record would let the call be sent
            await log.append((), RunChange(row.status, row.reason, row.due_ms, row.waits, release=True))
            return Applied(run, at_once=False, lacks=row.agent), False
        history = await process.recent_histories.read(run, process.identity.namespace, claimed.last)
        return await _apply_idle(ActiveRun(process, history, log), row, answered)


class Added(msgspec.Struct):
    """Additions of commands to an idle run, for the commit that releases it; `lacks`: the tool whose code one needs."""

    records: list[r.Record] = []
    posts: list[Post] = []
    charges: list[Charge] = []
    lacks: str = ""


async def _apply_idle(idle: ActiveRun, row: RunRow, answered: str) -> tuple[Applied, bool]:
    """Apply the commands in turn, up to one that needs the code of a tool, and release the run."""
    added, process, log = Added(), idle.process, idle.log.journal_log
    release: tuple[Post, ...] = (release_post(row.run, log.lease.token),)
    while True:
        await take_commands(idle, added)
        change = _after(idle, row, answered, reported=any(isinstance(record, r.LateReport) for record in added.records))
        try:
            await log.append([*map(encode, added.records)], change, (*added.posts, *release), tuple(added.charges))
            break
        except LedgerTaken:  # a command came meanwhile, and its sender relies on this process
            if not release:
                raise
            release = ()
    idle.seal("its commands are applied")  # what its replay has scheduled finds nothing to do any more
    process.bring(receivers(added.posts))
    if change.status == "running" or (change.status == "suspended" and change.due_ms is not None):
        process.came_due.set()
    # Where one has come, the senders of further ones rely on this process as well; later ones find the run released.
    missed = not release and bool(await pending_commands(idle)) and not added.lacks
    commands = (record for record in added.records if isinstance(record, r.CommandApplied) and record.refused)
    refused = "; ".join(f"the answer of {one.by} was {one.summary}" if one.by else one.summary for one in commands)
    note = refused or (f"it is checked and applied where the code of {added.lacks} is" if added.lacks else "")
    return Applied(row.run, at_once=not added.lacks, note=note, lacks=added.lacks, alert=bool(refused)), missed


def _after(idle: ActiveRun, row: RunRow, answered: str, *, reported: bool) -> RunChange:
    """The row of the listing after the commands: a waiting run is due now, an ended one stays as it is.

    A stopped run is due as well if it was `reported` how a call ended: recovery settles that operation.
    """
    history, lifecycle, now = idle.history, idle.history.lifecycle, idle.process.wall_ms()
    undone = history.undo_state in {"ordered", "begun"}
    if row.status not in {"suspended", "running"} and not undone:
        if row.status == "stopped" and lifecycle.status == "running":
            return RunChange("running", release=True)
        if lifecycle.status == "stopped" and lifecycle.stopped is not None:
            return stopped_change(lifecycle.stopped, row.agent, now if reported else row.due_ms)
        sooner = row.status == "queued" and lifecycle.cancelled is not None  # it ends as soon as it has a slot
        due = min(now, row.due_ms or now) if sooner else row.due_ms  # it keeps the age that it has
        return RunChange(row.status, row.reason, due, row.waits, release=True)
    waits = waits_left(row.waits, history, answered)
    if lifecycle.paused is not None and not undone:
        return RunChange("suspended", f"paused by {lifecycle.paused.by}", None, waits, release=True)
    return RunChange("suspended", row.reason, now, waits, release=True, leaves_queue=undone)


async def take_commands(active: ActiveRun, added: Added | None = None) -> None:
    """Apply every command that came since the last call, each once, even if several tasks do so at the same time.

    A driven run commits each command, because its drivers act on it next. An idle run is released in the same commit,
    so what they add is kept in `added`: a crash between two commits would leave it without an owner.
    """
    before = active.history.entry_seen
    try:
        async with active.log.command_lock:
            await _take_new(active, added)
    finally:
        if active.history.entry_seen > before:
            active.waiters.wake()  # even if the last command raised: the ones before it are in the history
        active.waiters.consider_rest()  # suspension is considered afterwards: not while commands are applied


async def pending_commands(active: ActiveRun) -> list[LedgerEntry]:
    """The commands to the run that its records do not have yet, in order."""
    return await active.process.journal.entries(command_stream(active.run), active.history.entry_seen)


async def _take_new(active: ActiveRun, added: Added | None) -> None:
    entries = await pending_commands(active)
    try:
        for entry in entries:
            if added is not None and (lacks := waits_for_code(active.history, entry, active.process.tools)):
                added.lacks = lacks  # the process that drives a run has its code, one that only commands it may not
                return
            if entry.id > active.history.entry_seen and active.sealed is None:
                await _take(active, entry, added)
    finally:
        # Once all are applied: a run that was paused and continued since would be suspended with nothing to wake it.
        if (paused := active.history.lifecycle.paused) is not None:
            active.end(Ending("suspended", f"paused by {paused.by}: {to_type('unpause', active.run)}"))


async def _take(active: ActiveRun, entry: LedgerEntry, added: Added | None) -> None:
    history, process = active.history, active.process
    await _recall(active, entry)
    codes = AnswerContext(process.tools, process.identity.secret)
    async with active.log.between_attempts():
        records = records_for(history, entry, active.log.stamp(), codes)
        posts = posts_for(history, records)
        if added is not None:  # nothing waits in an idle run, so nothing is woken
            added.charges += history.charges(records)
            history.add_all(records)
            added.records += records
            added.posts += posts
            return
        await active.log.append(*records, posts=posts)
    process.bring(receivers(posts))
    for record in records:
        if isinstance(record, r.CommandApplied):
            _act(active, record)
        elif isinstance(record, (r.Resolved, r.LateReport, *VERDICTS)):
            active.waiters.settled(record.step)
        elif isinstance(record, r.MessageReceived):
            active.facts.drop_resting_on(record)
            active.waiters.wake_everything()
        elif isinstance(record, r.BudgetRaised):
            active.waiters.budget_changed()
        elif isinstance(record, r.TransactionAborting):
            now = process.wall_ms()
            active.end(Ending("suspended", f"{record.transaction} is called off: {record.reason}", now))


async def _recall(active: ActiveRun, entry: LedgerEntry) -> None:
    """Read back from the records an operation that was delivered and dropped, if the command is about one."""
    try:
        record = read(entry, Command).record
    except Unreadable as error:
        await set_aside(active.process.journal, entry, error)
        return
    if not isinstance(record, (r.Resolved, r.LateReport)):
        return
    # Before the look: code may receive the outcome before the command is recorded.
    active.replay.kept[record.step] = None
    if record.step in active.history.operations:
        return
    await active.log.flush()
    whole = await load(active.process, active.run, whole=True)
    active.history.recall(whole, record.step.__eq__)


def _act(active: ActiveRun, command: r.CommandApplied) -> None:
    match command.command:
        case "resolve" | "late" if command.refused:
            _LOG.warning("run %s: the answer of %s was %s", active.run, command.by, command.summary)
        case word if reason_of(word) is not None:
            active.end(ended_by(command))
        case "child_ended":
            wake_all(child_watchers(active, command.note))
        case _:
            return


def child_watchers(active: ActiveRun, child: str) -> list[asyncio.Future[None]]:
    """The waiters of this process for the end of a child. No step has such a name."""
    return active.waiters.watchers.setdefault(f"({CHILD_ENDED} {child})", [])


def checked_resolution(history: RunHistory, record: r.Resolved, tools: Mapping[str, ToolCode]) -> None:
    """Refuse a person's decision that cannot apply. Raises `UsageError` saying what can."""
    step, word = record.step, record.word
    name = f"{history.run}/{step}"
    operation = history.operations.get(step)
    if operation is None:
        known = ", ".join(sorted(history.operations)) or "none"
        raise UsageError(f"run {history.run} has no operation {step}", known=f"its operations: {known}")
    if operation.phase not in {"unknown", "gated"}:
        basis = f" ({operation.settlement.basis})" if operation.settlement.basis else ""
        raise UsageError(
            f"{name} is {operation.phase}{basis}; only one that waits for a person can be resolved",
            next_step=to_type("why", name),
        )
    if operation.wants_approval:
        raise UsageError(
            f"{name} waits for an approval, and nothing of it was sent",
            next_step=to_type("inbox", "--item", name),
        )
    if record.orders and operation.intent.completes:
        raise UsageError(
            f"{name} is a part of {operation.intent.completes}, and a part is never sent by itself",
            next_step=lines(to_type("answer", name, "happened"), to_type("answer", name, "give-up")),
        )
    _as_followed(history, operation, record)
    if word == "happened" and not operation.may_have_been_sent:
        raise UsageError(
            f"{name} was never attempted, so it cannot have happened through this run",
            next_step=lines(to_type("answer", name, "retry"), to_type("answer", name, "give-up")),
        )
    happened = to_type("answer", name, "happened", "--result", "JSON")
    if misfit := _misfit(operation, record, tools):
        raise UsageError(
            f"{name}: {_no_result(operation, record)}",
            known=misfit,
            next_step=f"give what the tool would have returned: {happened}",
        )
    if word == "happened" and record.result == r.NOTHING and needs_result(history, operation):
        raise UsageError(
            f"{name}: the agent needs the result of {operation.intent.tool}, which is not recorded",
            next_step=f"give what the tool would have returned: {happened}",
        )


def waits_for_code(history: RunHistory, entry: LedgerEntry, tools: Mapping[str, ToolCode]) -> str:
    """The tool whose code has to check a result from outside; empty if the command need not wait for one."""
    try:
        command = read(entry, Command)
    except Unreadable:  # no code is needed to refuse it
        return ""
    record = command.record
    if command.after or not isinstance(record, (r.Resolved, r.LateReport, r.ArgumentsEdited, r.ResultGiven)):
        return ""
    operation = history.operations.get(record.step)
    if operation is None or operation.intent.completes or operation.intent.tool in tools or operation.intent.late:
        return ""  # a host's tool returns any JSON value, and no app holds its code
    if isinstance(record, (r.ArgumentsEdited, r.ResultGiven)):
        return operation.intent.tool if record.approval == operation.approval.asked_digest else ""
    if isinstance(record, r.Resolved):
        return "" if record.result == r.NOTHING else operation.intent.tool
    end = record.end
    if operation.final or end.kind != "returned" or not entry.key.startswith(ANSWER_KEY):
        return ""
    return "" if end.result == r.NOTHING and not needs_result(history, operation) else operation.intent.tool


def _read(
    operation: OperationState, report: r.LateReport, entry: LedgerEntry, tools: Mapping[str, ToolCode]
) -> r.LateReport:
    """A report with an answer from outside, marked if the tool could not have returned it."""
    tool, end = tool_of(operation.intent, tools), report.end
    brought = entry.key.startswith(ANSWER_KEY) and end.kind == "returned" and not operation.intent.completes
    misfit = tool.codec.misfit(bytes(end.result)) if brought and tool is not None else ""
    if not misfit:
        return report
    text = clean(bytes(end.result).decode("utf-8", "replace"))
    why = clean(f"{end.why}, and {text} is not what {operation.intent.tool} returns; {misfit}")
    return replace(report, end=replace(end, unfit=True, why=why))


def _misfit(operation: OperationState, record: r.Resolved, tools: Mapping[str, ToolCode]) -> str:
    """Why the tool could not have returned a person's result; empty if it fits, or this process cannot tell."""
    tool = tool_of(operation.intent, tools)
    if record.word != "happened" or record.result == r.NOTHING or tool is None or operation.intent.completes:
        return ""
    return tool.codec.misfit(bytes(record.result))


def _no_result(operation: OperationState, record: r.Resolved) -> str:
    return f"{clean(bytes(record.result).decode())} is not what {operation.intent.tool} returns"
