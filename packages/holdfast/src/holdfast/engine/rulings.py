"""Judging: the policy of the app says what becomes of an operation, and that is on record before anything is sent.

The ruling rides with the attempt that it lets through, so a policy costs no sync of its own, but for its text, once.
Whoever goes on with the operation later, in whatever process, finds it there: nothing is judged again by other facts.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from holdfast.journal.entry_codec import read, written
from holdfast.journal.port import Post
from holdfast.model import records as r
from holdfast.model.canonical.plain import plain_arguments
from holdfast.model.ids import operation_id, parts_of, stream
from holdfast.model.operation import OperationState
from holdfast.model.policy import WEEKDAYS, Draw, Facts, Past, Queue, Ruling, asked_before, chance
from holdfast.model.shadow import Left, Traits, asked_afterwards, shadow_stream
from holdfast.model.system import is_system
from holdfast.model.tool_history import Deed, deed_of, deeds_stream, past_of
from holdfast.model.waits import PEOPLE

if TYPE_CHECKING:
    from holdfast.engine.engine import Engine
    from holdfast.engine.operation_driver import OperationDriver
    from holdfast.model.operation import OperationState


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


async def judge(flight: OperationDriver) -> None:
    """Gather the facts, let the policy choose, and record both."""
    instance, operation = flight.instance, flight.operation
    policy, secret = instance.engine.judge, instance.engine.identity.secret
    assert policy is not None, "a move to judge comes from a policy"
    arguments = plain_arguments(bytes(operation.intent.arguments))
    facts = await _facts(flight, policy, arguments, instance.now().wall)
    ruling = policy.ruling(facts, arguments, lambda what: chance(secret, flight.id, what))
    if operation.approval.asks:
        ruling = asked_before(ruling)
    first = () if flight.recorded else (flight.planned("its policy"),)
    await archive_policy(instance.engine, policy)
    record = r.Ruled(step=flight.step, policy=policy.version, ruling=ruling, facts=facts, **instance.stamp())
    await flight.note(*first, record, ride=True, posts=_looked_at(flight, ruling, facts))


def _looked_at(flight: OperationDriver, ruling: Ruling, facts: Facts) -> tuple[Post, ...]:
    """Where it was drawn for a look afterwards, that is on record with the ruling."""
    if not ruling.shadow:
        return ()
    run, step, intent = flight.instance.run, flight.step, flight.operation.intent
    traits = Traits(intent.tool, facts.agent, facts.confidence, facts.amount, ruling.stratum, ruling.rule)
    left = Left(run, step, asked_afterwards(intent.tool, bytes(intent.arguments).decode()), traits)
    return (Post(shadow_stream(run, step), "", written(left)),)


async def _facts(flight: OperationDriver, policy: PolicyCode, arguments: Mapping[str, Any], wall_ms: int) -> Facts:
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


async def _past(flight: OperationDriver, subject: str, since_ms: int) -> Past:
    journal = flight.instance.engine.journal
    entries = await journal.entries(deeds_stream(flight.operation.intent.tool, subject))
    return past_of((read(entry, Deed) for entry in entries), since_ms)


# --- what later operations know of this one -----------------------------------------------------------------------


def sent_posts(flight: OperationDriver, at: int) -> tuple[Post, ...]:
    """What goes with the first attempt: it was sent."""
    operation = flight.operation
    return (
        _history_posts(operation, deed_of(operation.judgement.facts, "sent", flight.id, at))
        if not operation.attempts
        else ()
    )


def decision_posts(operation: OperationState, record: r.Record, run: str) -> tuple[Post, ...]:
    """What goes with a person's last word about an operation: that it was approved, or declined."""
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


# Keeping the text of each policy that rules here, once for each version: a ruling names a rule, and rules change.


POLICIES: Final = "policies/"
_TEXT: Final = "text"


def policy_stream(version: str) -> str:
    """The ledger stream that holds what this version says."""
    return stream("policies", version)


def version_of_stream(name: str) -> str:
    """The other way round."""
    return parts_of(name)[1]


async def archive_policy(engine: Engine, policy: PolicyCode) -> None:
    """Put it into the ledger before the first ruling by it. Once it is there it costs nothing."""
    if policy.version in engine.policies_kept:
        return
    name = policy_stream(policy.version)
    if not await engine.journal.entries(name):
        await engine.journal.post(Post(name, _TEXT, policy.text))
    engine.policies_kept.add(policy.version)


# How much waits for people: counted from the listing, and believed for some seconds.


_PAGE: Final = 1000
_HOUR_MS: Final = 3_600_000
CACHED_MS: Final = 10_000
"""How long a count is used: people answer in minutes, and counting reads every resting run."""


class _Wait(msgspec.Struct, frozen=True):
    """The one field of a wait in the listing that counts here."""

    kind: str


class InboxDepth:
    """What waits for people in this journal, as this process knows it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._known = Queue()
        self._counted_ms: int | None = None

    async def queue(self, now_ms: int) -> Queue:
        """How many things wait for people, in runs that rest, and since when the oldest of them does."""
        if self._counted_ms is None or not 0 <= now_ms - self._counted_ms < CACHED_MS:
            self._known, self._counted_ms = await self._count(now_ms), now_ms
        return self._known

    async def _count(self, now_ms: int) -> Queue:
        depth, oldest, after = 0, now_ms, ""
        while rows := await self._engine.journal.runs(status="suspended", limit=_PAGE, after=after):
            for row in rows:
                waits = [] if is_system(row.agent) else msgspec.json.decode(row.waits, type=list[_Wait])
                asked = sum(one.kind in PEOPLE for one in waits)
                depth += asked
                oldest = min(oldest, row.updated_ms) if asked else oldest
            after = rows[-1].run
        return Queue(depth, (now_ms - oldest) / _HOUR_MS)
