"""Asking a person, standing permissions, verdicts and edits.

An approval is used up in `model/transitions.py` (`_started`), by the record of the attempt that it permits. The use of
a standing permission is posted in the same commit (`permit_use_post`).
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from holdfast.engine.exceptions.call_end import clean
from holdfast.engine.operation_driver import asks_of, decoded, plan
from holdfast.engine.tool_protocol import ToolCode, words_of
from holdfast.errors import ArgumentError, UsageError
from holdfast.journal.entry_codec import read, values_in, written
from holdfast.journal.port import Journal, LedgerEntry, Post
from holdfast.model import records as r
from holdfast.model.canonical.encode import digest, forms
from holdfast.model.commands import Verdict
from holdfast.model.decision import moves as m
from holdfast.model.names import is_among, same_person
from holdfast.model.operation import OTHERWISE, OperationState
from holdfast.model.policy import terms
from holdfast.model.standing_permission import GIVEN, Spent, StandingPermission, Use, spent_by, uses_stream, why_not
from holdfast.model.waits import call_text

if TYPE_CHECKING:
    from holdfast.engine.operation_driver import OperationDriver


def what_is_asked(driver: OperationDriver, move: m.RequestApproval) -> str:
    """The question to a person, with the call and the rule that requires the approval."""
    intent, gate, guard = driver.operation.intent, driver.contract().gate, driver.found.elsewhere
    ruling = driver.operation.judgement.ruling
    because = "" if gate is None else gate.when
    if ruling is not None and ruling.asks and not driver.found.gate:
        because = f"its rule {ruling.rule!r}" + (f", which could not be judged: {ruling.why}" if ruling.why else "")
    if guard is not None and guard.then == "ask":
        because = f"{guard.source} did the same"
    if driver.operation.edits:
        because = f"{driver.operation.editing.editors[-1]} proposed these, and another person has to approve them"
    call = call_text(intent.tool, bytes(intent.arguments), driver.id)
    return f"may {call} be sent? {move.rule}" + (f": {because}" if because else "")


async def ask(driver: OperationDriver, move: m.RequestApproval) -> None:
    """Ask people to approve it, on the terms of the tool's gate and of the policy."""
    operation, stamp = driver.operation, driver.log.stamp()
    otherwise_ms = driver.log.process.settings.answer_within_ms
    on = terms(driver.contract().gate, operation.judgement.ruling, otherwise_ms, escalated=move.escalated)
    record = r.OperationParked(
        step=driver.step,
        why=what_is_asked(driver, move),
        rule=move.rule,
        asks=asks_of(driver, driver.operation),
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


# Standing permissions in use: checked where a person would be asked, and counted where they allow a send.
#
# The count is a ledger entry under the next number, in the commit of the record that uses it (the first attempt, or the
# hold). The second process finds the number taken and checks again; a revocation takes a number as well. So no two
# processes overspend one, and nothing is sent under one after it was revoked.


class CoveringPermission(msgspec.Struct, frozen=True):
    """A standing permission that covers an operation, as this process last read it. `cost` is the cost of one use."""

    standing: StandingPermission
    cost: float
    arguments: msgspec.Raw


async def standing_permissions(journal: Journal) -> list[StandingPermission]:
    """Every permission that was ever given, the oldest first."""
    return await values_in(journal, GIVEN, StandingPermission)


async def permission_usage(journal: Journal, permission: str) -> Spent:
    """The use of one permission so far."""
    entries = await journal.entries(uses_stream(permission))
    return spent_by([read(entry, Use) for entry in entries])


def use_post(permission: str, spent: Spent, use: Use) -> Post:
    """The ledger entry that takes the next number."""
    return Post(uses_stream(permission), str(spent.number + 1), written(use))


async def find_permit(driver: OperationDriver) -> bool:
    """True if a standing permission covers this; then the driver has a permit, and no approval is asked for."""
    driver.found.permit = None
    operation = driver.operation
    if not driver.journaled or not _one_approval_suffices(driver):
        return False
    if (
        driver.found.elsewhere is not None
        or operation.phase == "gated"
        or operation.edits
        or not operation.intent.executable
    ):
        return False
    for standing in await standing_permissions(driver.log.process.journal):
        if (permit := _fitting(driver, standing)) is not None and await permit_use_post(driver, permit) is not None:
            driver.found.permit = permit
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


async def permit_use_post(driver: OperationDriver, permit: CoveringPermission) -> Post | None:
    """The ledger entry that uses a permit now; None if it no longer covers this."""
    engine = driver.log.process
    spent = await permission_usage(engine.journal, permit.standing.id)
    now_ms = engine.environment.clock.wall_ms() + engine.settings.clock_error_ms
    if permit.arguments != driver.operation.intent.arguments or why_not(permit.standing, spent, permit.cost, now_ms):
        return None
    return use_post(permit.standing.id, spent, Use(driver.id, permit.cost, spent.sum + permit.cost))


def _fitting(driver: OperationDriver, standing: StandingPermission) -> CoveringPermission | None:
    """The permit, if tool and condition match. A condition that cannot be judged does not match."""
    tool, intent = driver.tool, driver.operation.intent
    if tool is None or standing.tool != intent.tool or same_person(_proposed_by(driver), standing.by):
        return None
    try:
        arguments = decoded(driver)
        if not tool.gated(standing.where, arguments):
            return None
    except (ArgumentError, ValueError):
        return None
    cost = _number(arguments.get(standing.amount)) if standing.amount else 0.0
    return None if cost is None else CoveringPermission(standing, cost, intent.arguments)


def _proposed_by(driver: OperationDriver) -> str:
    started = driver.log.history.lifecycle.started
    return "" if started is None else started.by


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
    if record.approval != operation.approval.asks or operation.approval.asks == OTHERWISE:
        raise UsageError(f"what {record.step} asks about has changed since")
    if isinstance(record, r.ApprovalGranted) and is_among(record.by, operation.approval.approvers):
        raise UsageError(f"{record.by} approved {record.step} already")
    tool = codes.tools.get(operation.intent.tool)
    if isinstance(record, r.ArgumentsEdited):
        assert tool is not None, "an edit waits for its tool's code"
        return replace(record, intent=edited_intent(operation, record.changes, tool, codes.secret))
    if isinstance(record, r.ResultGiven):
        assert tool is not None, "a result waits for its tool's code"
        checked_result(operation, record, tool)
    return record


def checked_result(operation: OperationState, record: r.ResultGiven, tool: ToolCode) -> None:
    """Refuse an answer that the tool could not have given. Raises `UsageError` saying what it gives."""
    if operation.attempts:
        raise UsageError("it was attempted before", next_step="approve it, or decline it")
    if misfit := tool.codec.misfit(bytes(record.result)):
        text = clean(bytes(record.result).decode("utf-8", "replace"))
        raise UsageError(f"{text} is not what {operation.intent.tool} returns", known=misfit)


# Editing what a person approves: the operation stays the same one, and what is sent is what that person wrote.
#
# Arguments that identify the effect cannot be edited: another business key, or other `once` parameters, mean another
# effect. Neither can arguments that the record does not hold, because it would be unknown what is sent.


def edited_intent(operation: OperationState, changes: r.Raw, tool: ToolCode, secret: bytes) -> r.Intent:
    """The intent with these changes: a JSON object with the parameters that are different.

    Raises `UsageError` (`ArgumentError` where a value does not fit its parameter), saying what is wrong.
    """
    intent = operation.intent
    _checked_editable(operation)
    arguments = tool.edited(bytes(intent.arguments), bytes(changes))
    written = forms(arguments, tool.redact)
    if written.stored == bytes(intent.arguments):
        raise ArgumentError("nothing is different", next_step="approve it as it is")
    if not written.executable:
        raise ArgumentError("what would be sent could not be stored", next_step="decline it, and say what is wanted")
    if (tool.business_key(arguments) if tool.claims else "") != intent.claim:
        raise _names_another(", ".join(tool.contract.claim) or "its business key")
    if words_of(tool, arguments, secret) != intent.words:
        raise _names_another(", ".join(tool.contract.once.parameters) if tool.contract.once else "its words")
    return replace(
        intent,
        arguments=r.Raw(written.stored),
        digest=digest(secret, written.identity),
        title=tool.title_of(written.stored),
        expected=tool.expected(arguments) if tool.contract.expects else r.NOTHING,
    )


def _checked_editable(operation: OperationState) -> None:
    if operation.attempts:
        raise UsageError("it was attempted before with other arguments", next_step="approve it as it is, or decline it")
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
