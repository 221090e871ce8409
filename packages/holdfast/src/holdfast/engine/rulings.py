"""Rulings: the policy of the app decides about an operation, and the ruling is on record before anything is sent.

The ruling rides with the attempt that it lets through, so a policy costs no sync of its own, but for its text, once.
A process that goes on with the operation later finds it there: nothing is judged again by other facts.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from holdfast.engine.operation_driver import plan
from holdfast.engine.tool_protocol import PolicyCode
from holdfast.journal.entry_codec import read, written
from holdfast.journal.port import Post
from holdfast.model import records as r
from holdfast.model.canonical.plain import plain_arguments
from holdfast.model.ids import operation_id
from holdfast.model.operation import OperationState
from holdfast.model.policy import WEEKDAYS, Past, PolicyFacts, Ruling, asked_before, chance, policy_stream
from holdfast.model.shadow import Left, Traits, asked_afterwards, shadow_stream
from holdfast.model.tool_history import Deed, deed_of, deeds_stream, past_of

if TYPE_CHECKING:
    from holdfast.engine.operation_driver import OperationDriver
    from holdfast.engine.process import Process
    from holdfast.model.operation import OperationState


async def judge(driver: OperationDriver) -> None:
    """Gather the facts, let the policy choose, and record both."""
    log, operation = driver.log, driver.operation
    policy, secret = log.process.policy, log.process.identity.secret
    assert policy is not None, "a move to judge comes from a policy"
    arguments = plain_arguments(bytes(operation.intent.arguments))
    facts = await _facts(driver, policy, arguments, log.now().wall)
    ruling = policy.ruling(facts, arguments, lambda what: chance(secret, driver.id, what))
    if operation.approval.asks:
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
    entries = await journal.entries(deeds_stream(driver.operation.intent.tool, subject))
    return past_of((read(entry, Deed) for entry in entries), since_ms)


# --- history for later operations ---------------------------------------------------------------------------------


def sent_posts(driver: OperationDriver, at: int) -> tuple[Post, ...]:
    """The ledger entries that go with the first attempt: it was sent."""
    operation = driver.operation
    return (
        _history_posts(operation, deed_of(operation.judgement.facts, "sent", driver.id, at))
        if not operation.attempts
        else ()
    )


def decision_posts(operation: OperationState, record: r.Record, run: str) -> tuple[Post, ...]:
    """The ledger entries that go with a person's final decision about an operation: approved, or declined."""
    name = operation_id(run, operation.step)
    match record:
        case r.ApprovalGranted() if len(operation.approval.approvers) + 1 >= operation.approval.people:
            return _history_posts(operation, deed_of(operation.judgement.facts, "approved", name, record.at))
        case r.ApprovalRefused(code=""):
            return _history_posts(operation, deed_of(operation.judgement.facts, "declined", name, record.at))
        case _:
            return ()


def _history_posts(operation: OperationState, deed: Deed | None) -> tuple[Post, ...]:
    facts = operation.judgement.facts
    if deed is None or facts is None:
        return ()
    return (Post(deeds_stream(facts.tool, facts.subject), "", written(deed)),)


_TEXT: Final = "text"


async def archive_policy(process: Process, policy: PolicyCode) -> None:
    """Put the policy into the ledger before its first ruling. Once it is there this costs nothing."""
    if policy.version in process.policies_archived:
        return
    name = policy_stream(policy.version)
    if not await process.journal.entries(name):
        await process.journal.post(Post(name, _TEXT, policy.text))
    process.policies_archived.add(policy.version)
