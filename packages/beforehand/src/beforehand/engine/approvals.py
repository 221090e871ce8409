"""Approvals: people who are asked, standing permissions, edits, and the rulings of the policy of the app.

An approval is bound to its question by a digest (`approval_asked`); `send_rules._approved` compares it before a send.
It is used up by the record of the attempt that it permits (`_started` in `model/transitions.py`); the use of a standing
permission is posted in the same commit (`permission_use_post`). Another digest, changed preconditions (`_reobserved`
there) or its expiry make it void. An attempt that is recorded and then withheld gives it back (`Approval.unused`).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from beforehand.engine.conflicts import fields_of_call
from beforehand.engine.exceptions.call_end import clean
from beforehand.engine.operation_driver import CoveringPermission, decoded, plan, tool_of
from beforehand.engine.tool_protocol import PolicyCode, ToolCode
from beforehand.errors import ArgumentError, UsageError
from beforehand.journal.entry_codec import read, values_in, written
from beforehand.journal.port import JournalReads, LedgerEntry, Post
from beforehand.model import records as r
from beforehand.model.canonical.encode import forms
from beforehand.model.canonical.plain import plain_arguments
from beforehand.model.commands import Verdict
from beforehand.model.decision import moves as m
from beforehand.model.ids import operation_id
from beforehand.model.names import is_among
from beforehand.model.operation import OTHERWISE, OperationState
from beforehand.model.policy import WEEKDAYS, Past, PolicyFacts, Ruling, asked_before, chance, policy_stream, terms
from beforehand.model.shadow import Left, Traits, asked_afterwards, shadow_stream
from beforehand.model.standing_permission import GIVEN, Spent, StandingPermission, Use, spent_by, uses_stream, why_not
from beforehand.model.tool_history import HistoryEntry, history_entry, history_stream, past_of
from beforehand.model.wording import asked_about

if TYPE_CHECKING:
    from beforehand.engine.operation_driver import OperationDriver
    from beforehand.engine.process import Process


def what_is_asked(driver: OperationDriver, move: m.RequestApproval) -> str:
    """The question to a person, with the rule that requires the approval."""
    gate, guard = driver.contract().gate, driver.found.ledger.other
    ruling = driver.operation.judgement.ruling
    because = "" if gate is None or gate.when == "true" else gate.when
    if ruling is not None and ruling.asks and not driver.found.gate:
        because = f"its rule {ruling.rule!r}" + (f", which could not be judged: {ruling.why}" if ruling.why else "")
    if guard is not None and guard.then == "ask":
        because = f"{guard.source} did the same"
    if driver.operation.edits:
        because = f"{driver.operation.editing.editors[-1]} proposed these, and another person has to approve them"
    if driver.operation.approval.orders:
        because = driver.operation.reason
    return f"{asked_about(driver.operation.intent)} {move.rule}" + (f": {because}" if because else "")


async def ask(driver: OperationDriver, move: m.RequestApproval) -> None:
    """Ask people to approve it, on the terms of the tool's gate and of the policy."""
    operation, stamp = driver.operation, driver.log.stamp()
    otherwise_ms = driver.log.process.settings.answer_within_ms
    on = terms(driver.contract().gate, operation.judgement.ruling, otherwise_ms, escalated=move.escalated)
    record = r.OperationParked(
        step=driver.step,
        why=what_is_asked(driver, move),
        rule=move.rule,
        asks=driver.asks(driver.operation),
        people=on.people,
        until=stamp["at"] + on.within_ms if on.within_ms else 0,
        queue=on.queue,
        on_expiry=on.on_expiry,
        require=on.require,
        **stamp,
    )
    await _note(driver, record)


async def park(driver: OperationDriver, move: m.Park) -> None:
    """Ask a person, who checks the outside system. A missing answer decides nothing: the wait goes on past its time."""
    stamp = driver.log.stamp()
    until = driver.log.process.settings.answer_by(stamp["at"])
    record = r.OperationParked(
        step=driver.step, why=move.why, rule=move.rule, forgotten=move.forgotten, until=until, on_expiry="hold", **stamp
    )
    await _note(driver, record)


async def _note(driver: OperationDriver, record: r.OperationParked) -> None:
    await driver.record(*plan(driver, "a person"), record)
    driver.settled()


# --- standing permissions ------------------------------------------------------------------------------------------
# They are checked where a person would be asked, and counted where they allow a send. The count is a ledger entry under
# the next number, in the commit of the record that uses it (the first attempt, or the hold). The second process finds
# the number taken and checks again; a revocation takes a number as well. So no two processes overspend one, and nothing
# is sent under one after it was revoked.


async def standing_permissions(journal: JournalReads) -> list[StandingPermission]:
    """Every permission that was ever given, the oldest first."""
    return await values_in(journal, GIVEN, StandingPermission)


async def permission_usage(journal: JournalReads, permission: str) -> Spent:
    """The use of one permission so far."""
    entries = await journal.entries(uses_stream(permission))
    return spent_by([read(entry, Use) for entry in entries])


def use_post(permission: str, spent: Spent, use: Use) -> Post:
    """The ledger entry that takes the next number."""
    return Post(uses_stream(permission), str(spent.number + 1), written(use))


async def find_permission(driver: OperationDriver) -> bool:
    """True if a standing permission covers this; then the driver has it, and no approval is asked for."""
    driver.found.permission = None
    operation = driver.operation
    if not driver.journaled or not _one_approval_suffices(driver):
        return False
    as_called = operation.intent.executable and not operation.intent.asks_only and not operation.edits
    if driver.found.ledger.other is not None or operation.phase == "gated" or not as_called:
        return False
    for permission in await standing_permissions(driver.log.process.journal):
        if (covering := _fitting(driver, permission)) is not None and await permission_use_post(
            driver, covering
        ) is not None:
            driver.found.permission = covering
            return True
    return False


def _one_approval_suffices(driver: OperationDriver) -> bool:
    """True if one approval is enough, and it is not for a sample or because the policy could not judge."""
    gate, ruling = driver.contract().gate if driver.found.gate else None, driver.operation.judgement.ruling
    if ruling is not None and ruling.asks and not ruling.may_be_allowed:
        return False
    on = terms(gate, ruling)
    if on.require is not None:
        return False  # who gave the permission may have signed in long ago, or not at all
    return on.people == 1 and (gate is not None or (ruling is not None and ruling.asks))


async def permission_use_post(driver: OperationDriver, covering: CoveringPermission) -> Post | None:
    """The ledger entry that uses the permission now; None if it no longer covers this."""
    engine = driver.log.process
    spent = await permission_usage(engine.journal, covering.permission.id)
    now_ms = engine.wall_ms() + engine.settings.clock_error_ms
    if covering.arguments != driver.operation.intent.arguments or why_not(
        covering.permission, spent, covering.cost, now_ms
    ):
        return None
    return use_post(covering.permission.id, spent, Use(driver.id, covering.cost, spent.sum + covering.cost))


def _fitting(driver: OperationDriver, permission: StandingPermission) -> CoveringPermission | None:
    """The permission and its cost, if tool and condition match. A condition that cannot be judged does not match."""
    tool, intent = driver.tool, driver.operation.intent
    proposers = driver.log.history.proposers(driver.operation)
    if tool is None or permission.tool != intent.tool or is_among(permission.by, proposers):
        return None
    try:
        arguments = decoded(driver)
        if not tool.gated(permission.where, arguments):
            return None
    except (ArgumentError, ValueError):
        return None
    cost = _number(arguments.get(permission.amount)) if permission.amount else 0.0
    return None if cost is None else CoveringPermission(permission, cost, intent.arguments)


def _number(value: object) -> float | None:
    """The value as an amount; None if it is not a number."""
    return float(value) if isinstance(value, (int, float, Decimal)) and not isinstance(value, bool) else None


class AnswerContext(msgspec.Struct, frozen=True):
    """The means to check a person's answer: the code of the tools of this process, and the journal's secret."""

    tools: Mapping[str, ToolCode]
    secret: bytes


def came_late(operation: OperationState, word: LedgerEntry) -> bool:
    """True if the time for an answer was over when this answer reached the ledger."""
    return operation.approval.expired(word.at_ms)


def verdict_of(operation: OperationState, record: Verdict, codes: AnswerContext) -> Verdict:
    """The record of this answer. Raises `UsageError` if it does not fit the present question."""
    if record.approval != operation.approval.asked_digest or operation.approval.asked_digest == OTHERWISE:
        raise UsageError(f"what {record.step} asks about has changed since")
    if isinstance(record, r.ApprovalGranted) and is_among(record.by, operation.approval.approvers):
        raise UsageError(f"{record.by} approved {record.step} already")
    tool = tool_of(operation.intent, codes.tools)
    if isinstance(record, r.ArgumentsEdited):
        _checked_editable(operation)
        assert tool is not None, "an edit waits for its tool's code"
        return replace(record, intent=edited_intent(operation, record.changes, tool, codes.secret))
    if isinstance(record, r.ResultGiven):
        assert tool is not None or operation.intent.late, "a result waits for its tool's code"
        checked_result(operation, record, tool)
    return record


def checked_result(operation: OperationState, record: r.ResultGiven, tool: ToolCode | None) -> None:
    """Refuse an answer that the tool could not have given. Raises `UsageError` saying what it gives."""
    if operation.may_have_been_sent or operation.intent.asks_only:
        why = "nothing is sent of it" if operation.intent.asks_only else "it may have been sent before"
        raise UsageError(why, next_step="approve it, or decline it")
    if tool is not None and (misfit := tool.codec.misfit(bytes(record.result))):
        text = clean(bytes(record.result).decode("utf-8", "replace"))
        raise UsageError(f"{text} is not what {operation.intent.tool} returns", known=misfit)


# --- edited arguments ----------------------------------------------------------------------------------------------
# The operation stays the same one, and what is sent is what that person wrote. Arguments that identify the effect
# cannot be edited: another business key, or other `once` parameters, mean another effect. Neither can arguments that
# the record does not hold, because it would be unknown what is sent.


def edited_intent(operation: OperationState, changes: r.Raw, tool: ToolCode, secret: bytes) -> r.Intent:
    """The intent with these changes: a JSON object with the parameters that are different.

    Raises `UsageError` (`ArgumentError` where a value does not fit its parameter), saying what is wrong.
    """
    intent = operation.intent
    arguments = tool.spec.edited(bytes(intent.arguments), bytes(changes))
    both = forms(arguments, tool.spec.redact)
    if both.stored == bytes(intent.arguments):
        raise ArgumentError("nothing is different", next_step="approve it as it is")
    if not both.executable:
        raise ArgumentError("what would be sent could not be stored", next_step="decline it, and say what is wanted")
    edited = replace(intent, **fields_of_call(tool, arguments, both, secret))
    if edited.claim != intent.claim:
        raise _names_another(", ".join(tool.contract.claim) or "its business key")
    if edited.words != intent.words:
        raise _names_another(", ".join(tool.contract.once.parameters) if tool.contract.once else "its words")
    return edited


def _checked_editable(operation: OperationState) -> None:
    if operation.intent.asks_only:
        raise UsageError(
            f"a {operation.intent.tool} is not edited in place", known="it was made for all of its steps together",
            next_step="decline it and say what is wanted: who made it makes another one, which is asked about again",
        )  # fmt: skip
    if operation.may_have_been_sent:
        raise UsageError(
            "it may have been sent before with these arguments", next_step="approve it as it is, or decline it"
        )
    if operation.intent.late:
        raise UsageError(
            "its host sends the arguments itself, so they cannot be edited here",
            next_step="approve it as it is, or decline it and say what is wanted",
        )
    if not operation.intent.executable:
        raise UsageError(
            "some of its arguments are not stored, so the edited call cannot be shown in full",
            next_step="approve it as it is, or decline it and say what is wanted",
        )


def _names_another(names: str) -> UsageError:
    return UsageError(
        f"{names}: that would be another effect",
        known="what names the effect is kept when the rest is edited",
        next_step="decline it, and let the agent propose the other one",
    )


# --- rulings -------------------------------------------------------------------------------------------------------
# The policy of the app decides about an operation, and the ruling is on record before anything is sent. The ruling
# rides with the attempt that it lets through, so a policy costs no sync of its own, but for its text, once. A process
# that goes on with the operation later finds it there: nothing is judged again by other facts.


async def judge(driver: OperationDriver) -> None:
    """Gather the facts, let the policy choose, and record both."""
    log, operation = driver.log, driver.operation
    policy, secret = log.process.policy, log.process.identity.secret
    assert policy is not None, "a move to judge comes from a policy"
    arguments = plain_arguments(bytes(operation.intent.arguments))
    facts = await _facts(driver, policy, arguments, log.now().wall)
    ruling = policy.ruling(facts, arguments, lambda what: chance(secret, driver.id, what))
    if operation.approval.asked_digest:
        ruling = asked_before(ruling)
    first = plan(driver, "its policy")
    await archive_policy(log.process, policy)
    record = r.Ruled(step=driver.step, policy=policy.version, ruling=ruling, facts=facts, **log.stamp())
    await driver.record(*first, record, ride=True, posts=_looked_at(driver, ruling, facts))


def _looked_at(driver: OperationDriver, ruling: Ruling, facts: PolicyFacts) -> tuple[Post, ...]:
    """The ledger entries for an operation that was drawn for a later review: they go with the ruling."""
    if not ruling.shadow:
        return ()
    run, step, intent = driver.log.run, driver.step, driver.operation.intent
    traits = Traits(intent.tool, facts.agent, facts.confidence, facts.amount, ruling.stratum, ruling.rule)
    left = Left(run, step, asked_afterwards(intent.tool, bytes(intent.arguments).decode()), traits)
    return (Post(shadow_stream(run, step), "", written(left)),)


async def _facts(
    driver: OperationDriver, policy: PolicyCode, arguments: Mapping[str, Any], wall_ms: int
) -> PolicyFacts:
    log, intent, contract = driver.log, driver.operation.intent, driver.contract()
    started, moment = log.history.lifecycle.started, datetime.fromtimestamp(wall_ms / 1000, UTC)
    subject = policy.subject(intent.tool, arguments)
    return PolicyFacts(
        tool=intent.tool,
        agent=started.agent if started is not None else "",
        hour=moment.hour,
        weekday=WEEKDAYS[moment.weekday()],
        effect=contract.effect,
        amount=policy.amount(intent.tool, arguments),
        confidence=intent.confidence,
        reversible=contract.restores,
        taint=intent.taint,
        origin=intent.origin,
        subject=subject,
        history=await _past(driver, subject, wall_ms - policy.remembers_ms) if subject else None,
        queue=await log.process.inbox_depth.queue(wall_ms) if policy.asks_queue else None,
    )


async def _past(driver: OperationDriver, subject: str, since_ms: int) -> Past:
    journal = driver.log.process.journal
    entries = await journal.entries(history_stream(driver.operation.intent.tool, subject))
    return past_of((read(entry, HistoryEntry) for entry in entries), since_ms)


# --- history for later operations ---------------------------------------------------------------------------------


def sent_posts(driver: OperationDriver, at: int) -> tuple[Post, ...]:
    """The ledger entries that go with the first attempt: it was sent."""
    operation = driver.operation
    return (
        _history_posts(operation, history_entry(operation.judgement.facts, "sent", driver.id, at))
        if not operation.attempts
        else ()
    )


def decision_posts(operation: OperationState, record: r.Record, run: str) -> tuple[Post, ...]:
    """The ledger entries that go with a person's final decision about an operation: approved, or declined."""
    name = operation_id(run, operation.step)
    match record:
        case r.ApprovalGranted() if len(operation.approval.approvers) + 1 >= operation.approval.people_needed:
            return _history_posts(operation, history_entry(operation.judgement.facts, "approved", name, record.at))
        case r.ApprovalRefused(code=""):
            return _history_posts(operation, history_entry(operation.judgement.facts, "declined", name, record.at))
        case _:
            return ()


def _history_posts(operation: OperationState, deed: HistoryEntry | None) -> tuple[Post, ...]:
    facts = operation.judgement.facts
    if deed is None or facts is None:
        return ()
    return (Post(history_stream(facts.tool, facts.subject), "", written(deed)),)


_TEXT: Final = "text"


async def archive_policy(process: Process, policy: PolicyCode) -> None:
    """Put the policy into the ledger before its first ruling. Once it is there this costs nothing."""
    if policy.version in process.policies_archived:
        return
    name = policy_stream(policy.version)
    if not await process.journal.entries(name):
        await process.journal.commit(Post(name, _TEXT, policy.text))
    process.policies_archived.add(policy.version)
