"""Judging: the policy of the app says what becomes of an operation, and that is on record before anything is sent.

The ruling rides with the attempt that it lets through, so a policy costs no sync of its own, but for its text, once.
Whoever goes on with the operation later, in whatever process, finds it there: nothing is judged again by other facts.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.engine.keeping import keep_text
from holdfast.journal.bodies import read, written
from holdfast.journal.port import Post
from holdfast.model import records as r
from holdfast.model.canonical.plain import plain_arguments
from holdfast.model.ids import operation_id
from holdfast.model.operation import OperationState
from holdfast.model.policy import WEEKDAYS, Draw, Facts, Past, Ruling, asked_before, chance
from holdfast.model.shadow import Left, Traits, asked_afterwards, shadow_stream
from holdfast.model.tool_history import Deed, deed_of, deeds_stream, past_of

if TYPE_CHECKING:
    from holdfast.engine.flight import Flight


class PolicyCode(Protocol):
    """A policy, as an app holds it."""

    @property
    def version(self) -> str:
        """The name of exactly these rules, in records and approvals."""
        ...

    @property
    def text(self) -> bytes:
        """Everything that they say: what the version is a digest of."""
        ...

    @property
    def asks_queue(self) -> bool:
        """Whether some rule wants to know how much waits for people."""
        ...

    @property
    def remembers_ms(self) -> int:
        """How far back the history of a subject goes."""
        ...

    def subject(self, tool: str, arguments: Mapping[str, Any], /) -> str:
        """Whom a call concerns; empty where that is not declared, or has no answer."""
        ...

    def amount(self, tool: str, arguments: Mapping[str, Any], /) -> float | None:
        """How much a call is worth; None where that is not declared, or has no answer."""
        ...

    def ruling(self, facts: Facts, arguments: Mapping[str, Any], draw: Draw, /) -> Ruling:
        """What it says. Total: what cannot be judged is asked."""
        ...


async def judge(flight: Flight) -> None:
    """Gather the facts, let the policy choose, and record both."""
    instance, operation = flight.instance, flight.operation
    policy, secret = instance.engine.judge, instance.engine.identity.secret
    assert policy is not None, "a move to judge comes from a policy"
    arguments = plain_arguments(bytes(operation.intent.arguments))
    facts = await _facts(flight, policy, arguments, instance.now().wall)
    ruling = policy.ruling(facts, arguments, lambda what: chance(secret, flight.id, what))
    if operation.asks:
        ruling = asked_before(ruling)
    first = () if flight.recorded else (flight.planned("its policy"),)
    await keep_text(instance.engine, policy)
    record = r.Ruled(step=flight.step, policy=policy.version, ruling=ruling, facts=facts, **instance.stamp())
    await flight.note(*first, record, ride=True, posts=_looked_at(flight, ruling, facts))


def _looked_at(flight: Flight, ruling: Ruling, facts: Facts) -> tuple[Post, ...]:
    """Where it was drawn for a look afterwards, that is on record with the ruling."""
    if not ruling.shadow:
        return ()
    run, step, intent = flight.instance.run, flight.step, flight.operation.intent
    traits = Traits(intent.tool, facts.agent, facts.confidence, facts.amount, ruling.stratum, ruling.rule)
    left = Left(run, step, asked_afterwards(intent.tool, bytes(intent.arguments).decode()), traits)
    return (Post(shadow_stream(run, step), "", written(left)),)


async def _facts(flight: Flight, policy: PolicyCode, arguments: Mapping[str, Any], wall_ms: int) -> Facts:
    instance, intent, contract = flight.instance, flight.operation.intent, flight.contract()
    started, moment = instance.history.started, datetime.fromtimestamp(wall_ms / 1000, UTC)
    subject = policy.subject(intent.tool, arguments)
    return Facts(
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
        history=await _past(flight, subject, wall_ms - policy.remembers_ms) if subject else None,
        queue=await instance.engine.crowd.queue(wall_ms) if policy.asks_queue else None,
    )


async def _past(flight: Flight, subject: str, since_ms: int) -> Past:
    journal = flight.instance.engine.journal
    entries = await journal.entries(deeds_stream(flight.operation.intent.tool, subject))
    return past_of((read(entry, Deed) for entry in entries), since_ms)


# --- what later operations know of this one -----------------------------------------------------------------------


def sent_posts(flight: Flight, at: int) -> tuple[Post, ...]:
    """What goes with the first attempt: it was sent."""
    operation = flight.operation
    return _posts(operation, deed_of(operation.judged_by, "sent", flight.id, at)) if not operation.attempts else ()


def word_posts(operation: OperationState, record: r.Record, run: str) -> tuple[Post, ...]:
    """What goes with a person's last word about an operation: that it was approved, or declined."""
    name = operation_id(run, operation.step)
    match record:
        case r.ApprovalGranted() if len(operation.approvers) + 1 >= operation.asks_people:
            return _posts(operation, deed_of(operation.judged_by, "approved", name, record.at))
        case r.ApprovalRefused(code=""):
            return _posts(operation, deed_of(operation.judged_by, "declined", name, record.at))
        case _:
            return ()


def _posts(operation: OperationState, deed: Deed | None) -> tuple[Post, ...]:
    facts = operation.judged_by
    if deed is None or facts is None:
        return ()
    return (Post(deeds_stream(facts.tool, facts.subject), "", written(deed)),)
