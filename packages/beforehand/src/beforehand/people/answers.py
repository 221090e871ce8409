"""Answers to inbox items: one function for the command line, the HTTP API and the web pages.

Several answers at once are each judged as if given alone, and collected instead of posted. Then all of them are
committed in one batch. The ledger refuses the whole batch if one of the items was answered meanwhile. A process that
dies before that commit has recorded nothing; after it the answers are final, and the driver of each run applies them.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from beforehand.control.command_sink import CollectingSink
from beforehand.control.input_checks import checked_by
from beforehand.control.service import ControlService
from beforehand.engine.commands import Applied
from beforehand.engine.engine import Engine
from beforehand.engine.recorded_operation import SharedState, recorded_inputs
from beforehand.engine.situation import situation_of
from beforehand.errors import UsageError
from beforehand.journal.entry_codec import read
from beforehand.journal.port import Post
from beforehand.model.commands import Command
from beforehand.model.decision.evidence import key_left_ms
from beforehand.model.decision.situation import Now
from beforehand.model.ids import operation_id
from beforehand.model.operation import OperationState
from beforehand.model.questions import Scalar
from beforehand.model.records import RunStoppedRecord
from beforehand.model.run_history import RunHistory
from beforehand.model.shell import to_type
from beforehand.model.transaction import TransactionState, around
from beforehand.model.waits import Item as Kind
from beforehand.model.waits import sends_on_order, stored_contract
from beforehand.people.assignments import Handing, handing_post
from beforehand.people.contradictions import review_contradiction
from beforehand.people.loaded_item import LoadedItem, checked_shown, item_in, load_item
from beforehand.people.stopped_runs import WAYS, decide_stopped_run

HOURS: Final = 24.0
"""Default lifetime of an approval, in hours: the operation has to be sent within it."""
Hours: TypeAlias = Annotated[float, Meta(gt=0, le=8784)]
Moment: TypeAlias = Annotated[int, Meta(ge=0, le=253_402_300_799_000)]
"""A wall clock in milliseconds, up to the year 9999: a value from outside has to be a date that can be displayed."""


class Approve(msgspec.Struct, frozen=True, tag="approve", omit_defaults=True):
    """Approve exactly what is asked. The approval ends after `hours` if nothing was sent by then."""

    why: str = ""
    hours: Hours = HOURS


class Edit(msgspec.Struct, frozen=True, tag="edit", omit_defaults=True):
    """Propose other `arguments` instead: those that are different, by name. Another person has to approve them."""

    arguments: dict[str, Any]
    why: str = ""


class StandIn(msgspec.Struct, frozen=True, tag="stand_in", omit_defaults=True):
    """The result of the tool, given by a person: nothing is sent. It has to be of the tool's return type, as JSON."""

    result: Any
    why: str = ""


class Decline(msgspec.Struct, frozen=True, tag="decline", omit_defaults=True):
    """Decline: nothing is sent, and the agent receives `why`."""

    why: str = ""


class AskBack(msgspec.Struct, frozen=True, tag="ask_back", omit_defaults=True):
    """Decline and ask: nothing is sent, and the agent receives a `question`, so that it can propose anew."""

    question: str


class ReplyAnswer(msgspec.Struct, frozen=True, tag="reply", omit_defaults=True):
    """The answer to a question. Text is read as the question's type."""

    value: Scalar


class TakeOver(msgspec.Struct, frozen=True, tag="take_over", omit_defaults=True):
    """Take over: the person continues in place of the run, which ends; nothing more is sent for it."""

    why: str = ""


class Resume(msgspec.Struct, frozen=True, tag="resume", omit_defaults=True):
    """The obstacle is removed: the stopped run continues from its record, where its code is."""

    why: str = ""


class HappenedAnswer(msgspec.Struct, frozen=True, tag="happened", omit_defaults=True):
    """It happened, and `evidence` says how that is known. `result` is what the call would have returned."""

    evidence: str = ""
    result: Any = None


class DidNotHappenAnswer(msgspec.Struct, frozen=True, tag="did_not_happen", omit_defaults=True):
    """It did not happen: it is sent once more, or given up."""

    then: Literal["retry", "give_up"] = "give_up"
    evidence: str = ""


class HappenedTimes(msgspec.Struct, frozen=True, tag="happened_times", omit_defaults=True):
    """Of the calls that are alike, so many happened: the first ones in the order of records count as those.

    The others did not happen: they are sent once more, or given up. `result` is what each would have returned.
    """

    times: Annotated[int, Meta(ge=0)]
    then: Literal["retry", "give_up"] = "give_up"
    evidence: str = ""
    result: Any = None


class RetrySameKey(msgspec.Struct, frozen=True, tag="retry_same_key", omit_defaults=True):
    """Send it once more, whether it happened or not: the system dedupes on the same key."""

    evidence: str = ""


class CompensateAnswer(msgspec.Struct, frozen=True, tag="compensate", omit_defaults=True):
    """It happened, and is to be compensated: the transaction around it is called off."""

    evidence: str = ""
    result: Any = None


class Abandon(msgspec.Struct, frozen=True, tag="abandon", omit_defaults=True):
    """Close the question. A run is called off with unknown outcomes left unknown; a transaction stays as it is."""

    why: str = ""


class Delegate(msgspec.Struct, frozen=True, tag="delegate", omit_defaults=True):
    """Delegate to another person, or to the reviewers of a queue."""

    to: str = ""
    queue: str = ""
    why: str = ""


class Snooze(msgspec.Struct, frozen=True, tag="snooze", omit_defaults=True):
    """Not now. `until_ms` is a wall clock; its deadline stays where it is."""

    until_ms: Moment
    why: str = ""


class Escalate(msgspec.Struct, frozen=True, tag="escalate", omit_defaults=True):
    """Mark as urgent, and optionally assign to another person or queue."""

    to: str = ""
    queue: str = ""
    why: str = ""


Verdict: TypeAlias = Approve | Edit | Decline | StandIn | AskBack
Review: TypeAlias = HappenedAnswer | DidNotHappenAnswer | HappenedTimes | RetrySameKey | CompensateAnswer | Abandon
Handover: TypeAlias = Delegate | Snooze | Escalate
Answer: TypeAlias = Verdict | ReplyAnswer | TakeOver | Resume | Review | Handover
"""Every answer there is; on the wire its `type` says which."""

_FITS: Final[dict[Kind, tuple[type[object], ...]]] = {
    "approval": (Approve, Edit, Decline, StandIn, AskBack),
    "question": (ReplyAnswer,),
    "handoff": (ReplyAnswer, TakeOver),
    "review": (HappenedAnswer, DidNotHappenAnswer, RetrySameKey, CompensateAnswer, Abandon),
    "unreadable": (),
}
_FITS_HALTED: Final = (Resume, TakeOver, Abandon)
_FITS_CONTRADICTED: Final = (HappenedAnswer, DidNotHappenAnswer, CompensateAnswer)
_MEANT: Final[dict[Kind, str]] = {
    "approval": "an approval",
    "question": "a reply",
    "handoff": "a handoff",
    "review": "a review",
    "unreadable": "a repair: a record or a ledger entry cannot be read",
}


def name_of(answer: object) -> str:
    """The name of an answer in every interface; what is no answer has no name."""
    config: Any = getattr(type(answer), "__struct_config__", None)
    return str(getattr(config, "tag", ""))


def fitting_answers(now: LoadedItem) -> tuple[str, ...]:
    """The answers that this item takes now: what is recommended for it first, handing it over last.

    None where it is answered. What would be refused is left out, so that no page, mail or program offers it.
    """
    if not now.open or now.kind == "unreadable":
        return ()
    names = (str(one.__struct_config__.tag) for one in (*_fits(now), Delegate, Snooze, Escalate))  # type: ignore[attr-defined]  # all are structs
    left_out = _left_out(now)
    return tuple(name for name in names if name not in left_out)


def is_stopped_run(kind: Kind, item: str) -> bool:
    """True if an item is a stopped run, and False if it is a step that a run waits at."""
    return kind == "handoff" and "/" not in item


def _fits(now: LoadedItem) -> tuple[type[object], ...]:
    if now.contradicted:
        return _FITS_CONTRADICTED
    fits = _FITS_HALTED if is_stopped_run(now.kind, now.item) else _FITS[now.kind]
    return (HappenedTimes, *fits) if now.alike else fits


def _left_out(now: LoadedItem) -> set[str]:
    """The answers to items of its kind that this item refuses."""
    if isinstance(now.subject, TransactionState):  # the outcomes of its operations are stated one by one
        return {"happened", "retry_same_key"} | ({"compensate"} if now.subject.backward else set[str]())
    if not isinstance(now.subject, OperationState):
        return set()
    operation = now.subject
    if now.kind == "approval":
        if operation.may_have_been_sent or operation.intent.asks_only:
            return {"edit", "stand_in"}
        return set() if operation.intent.executable and not operation.intent.late else {"edit"}
    contract = stored_contract(now.history, operation)
    if now.contradicted:
        return set() if contract.compensates else {"compensate"}
    found = set[str]()
    if not operation.may_have_been_sent:
        found |= {"happened", "compensate"}
    if contract.key is None or operation.key_unread or not sends_on_order(now.history, operation):
        found.add("retry_same_key")
    if all(one.over for one in around(operation.step, now.history.boundaries.by_name)):
        found.add("compensate")
    return found


async def answer(
    service: ControlService, item: str | LoadedItem, given: Answer, *, by: str, shown: str = ""
) -> Applied:
    """Give an answer to an item, loaded or by name (RUN/STEP). The first one is final, and every one is on record.

    `shown` is the digest of what that person was shown: if the question has changed since, the answer is refused.
    Raises `UnknownRun`, and `UsageError` where the answer does not fit, comes second, or is about what has changed.
    """
    now = await load_item(service.reader, item) if isinstance(item, str) else item
    checked_by(by, "an answer")
    checked_shown(now, shown)
    service = service.about(now, shown)
    if isinstance(given, Delegate | Snooze | Escalate):
        return await _hand_over(service, now, given, by)
    if not isinstance(given, _fits(now)):
        waits = f"waits for {_MEANT[now.kind]}" if now.open else "is not an open item"
        known = f"it takes: {', '.join(fitting_answers(now))}" if now.open else ""
        raise UsageError(f"{now.item} {waits}, and does not take this answer", known=known)
    if isinstance(now.subject, RunStoppedRecord):
        assert isinstance(given, Resume | TakeOver | Abandon), given
        return await decide_stopped_run(service, now, WAYS[name_of(given)], by=by, why=given.why)
    if isinstance(given, ReplyAnswer):
        await service.answer(now.item, given.value, by=by)
        return Applied(now.run, at_once=True)
    if isinstance(given, TakeOver):
        return await service.take_over(now.item, by=by, why=given.why)
    if isinstance(given, Approve | Edit | Decline | StandIn | AskBack):
        return await _decide(service, now, given, by)
    assert not isinstance(given, Resume), now
    return await _review(service, now, given, by)


async def _decide(service: ControlService, now: LoadedItem, given: Verdict, by: str) -> Applied:
    match given:
        case Approve():
            return await service.approve(now.item, by=by, why=given.why, lasts=timedelta(hours=given.hours))
        case Edit():
            return await service.edit(now.item, given.arguments, by=by, why=given.why)
        case StandIn():
            return await service.stand_in(now.item, given.result, by=by, why=given.why)
        case Decline():
            return await service.decline(now.item, by=by, why=given.why)
        case AskBack():
            return await service.ask_back(now.item, by=by, question=given.question)


# --- reviews -------------------------------------------------------------------------------------------


async def _review(service: ControlService, now: LoadedItem, given: Review, by: str) -> Applied:
    if isinstance(now.subject, TransactionState):
        return await _review_transaction(service, now, given, by)
    if now.contradicted:
        return await _review_contradicted(service, now, given, by)
    match given:
        case HappenedAnswer():
            return await service.resolve(now.item, "happened", by=by, evidence=given.evidence, result=given.result)
        case DidNotHappenAnswer():
            word: Literal["retry", "did_not_happen"] = "retry" if given.then == "retry" else "did_not_happen"
            return await service.resolve(now.item, word, by=by, evidence=given.evidence)
        case RetrySameKey():
            _checked_key(service, now)
            return await service.resolve(now.item, "same_key", by=by, evidence=given.evidence)
        case HappenedTimes():
            return await _count(service, now, given, by)
        case CompensateAnswer():
            return await _compensate(service, now, given, by)
        case Abandon():
            return await service.cancel(now.run, by=by, why=f"{now.step} is abandoned: {given.why}".rstrip(": "))


async def _review_contradicted(service: ControlService, now: LoadedItem, given: Review, by: str) -> Applied:
    assert isinstance(now.subject, OperationState), now
    if isinstance(given, DidNotHappenAnswer) and given.then == "retry":
        raise UsageError(
            f"{now.item} has a final outcome, and is not sent again",
            next_step="say what is true; a new call of the tool is a new operation",
        )
    assert isinstance(given, HappenedAnswer | DidNotHappenAnswer | CompensateAnswer), given
    return await review_contradiction(
        service,
        now.item,
        word=name_of(given),
        by=by,
        evidence=given.evidence,
        shown=len(now.subject.links.contradicted),
    )


async def _review_transaction(service: ControlService, now: LoadedItem, given: Review, by: str) -> Applied:
    transaction = now.subject
    assert isinstance(transaction, TransactionState), now
    match given:
        case Abandon():
            return await service.resolve_transaction(now.run, now.step, "accept", by=by, why=given.why)
        case CompensateAnswer() if not transaction.backward:
            return await service.call_off(now.run, now.step, by=by, why=given.evidence)
        case CompensateAnswer() | RetrySameKey() | DidNotHappenAnswer(then="retry"):
            return await service.resolve_transaction(now.run, now.step, "retry", by=by, why=given.evidence)
        case HappenedAnswer() | DidNotHappenAnswer() | HappenedTimes():
            raise UsageError(
                f"{now.item} is a transaction: the outcomes of its operations are stated one by one",
                known=f"it is stuck at: {', '.join(transaction.stuck) or 'nothing'}",
                next_step="compensate, retry or abandon it",
            )


def _checked_key(service: ControlService, now: LoadedItem) -> None:
    """Refuse to send again an operation that no system recognises by its key. Raises `UsageError`."""
    operation = now.subject
    assert isinstance(operation, OperationState), now.item
    if not (why := _not_recognised(service.engine, now.history, operation)):
        return
    raise UsageError(
        f"{now.item} cannot be sent again under the same key: {why}",
        known="a second send would be a second effect, unless the first one did not happen",
        next_step="find out, and say that it happened or that it did not",
    )


def _not_recognised(engine: Engine, history: RunHistory, operation: OperationState) -> str:
    """The reason why no system recognises this operation by its key; empty where one does."""
    here = engine.journal.now()
    now = Now(here.boot, here.ms, engine.wall_ms())
    shared = SharedState(engine.journal, engine.identity, operation.intent.tool, now, engine.settings)
    situation = situation_of(operation, recorded_inputs(shared, history, operation))
    if (key := situation.contract.key) is None:
        return "its tool has no key"
    if operation.key_unread:
        return "its tool never read its key"
    if operation.verification.forgotten and key.ttl is not None:
        return "the time of its first send is not known"
    return "" if key_left_ms(operation, situation, now) > 0 else "the system may have forgotten it"


async def _compensate(service: ControlService, now: LoadedItem, given: CompensateAnswer, by: str) -> Applied:
    """Record that the effect happened and that the boundary around it compensates it: both answers, or none."""
    inside = [one for one in around(now.step, now.history.boundaries.by_name) if not one.over]
    if not inside:
        raise UsageError(
            f"{now.item} is in no transaction that could be called off",
            next_step=f"say that it happened, and once the run has ended: {to_type('undo', now.run)}",
        )
    words = CollectingSink(service.engine.environment.clock.wall_ms())
    draft = service.over(words)
    if not inside[-1].backward:
        why = given.evidence or f"{now.step} is compensated"
        await draft.call_off(now.run, inside[-1].name, by=by, why=why)
    await draft.resolve(now.item, "happened", by=by, evidence=given.evidence, result=given.result)
    return await _together(service, now, words)


async def _count(service: ControlService, now: LoadedItem, given: HappenedTimes, by: str) -> Applied:
    """Record how many of the calls that are alike happened: all answers, or none."""
    if not service.shown:
        raise UsageError(
            f"counting calls that are like {now.item} needs the digest of what was shown",
            known="one of them may have been sent again since", next_step=to_type("inbox", "--item", now.item),
        )  # fmt: skip
    if given.times > len(now.alike):
        raise UsageError(f"{now.item} is one of {len(now.alike)} alike, and {given.times} are said to have happened")
    words = CollectingSink(service.engine.environment.clock.wall_ms())
    otherwise: Literal["retry", "did_not_happen"] = "retry" if given.then == "retry" else "did_not_happen"
    for number, step in enumerate(now.alike):
        draft = service.about(now, item_in(now.history, step).digest).over(words)
        name = operation_id(now.run, step)
        if number < given.times:
            await draft.resolve(name, "happened", by=by, evidence=given.evidence, result=given.result)
        else:
            await draft.resolve(name, otherwise, by=by, evidence=given.evidence)
    return await _together(service, now, words)


async def _together(service: ControlService, now: LoadedItem, words: CollectingSink) -> Applied:
    if not (await service.sink.post(*words.posts)).fresh:
        raise UsageError(f"{now.item} was answered meanwhile", next_step=to_type("why", now.item))
    return await service.sink.apply(now.run, "")


# --- handing over --------------------------------------------------------------------------------------


async def _hand_over(service: ControlService, now: LoadedItem, given: Handover, by: str) -> Applied:
    if not now.open:
        raise UsageError(f"{now.item} is already answered", next_step=to_type("show", now.run))
    match given:
        case Delegate():
            one = Handing("delegate", by, given.to, given.queue, note=given.why)
        case Snooze():
            if given.until_ms <= service.engine.environment.clock.wall_ms():
                raise UsageError("the snooze time is in the past", next_step="choose a time in the future")
            one = Handing("snooze", by, until_ms=given.until_ms, note=given.why)
        case Escalate():
            one = Handing("escalate", by, given.to, given.queue, note=given.why)
    await service.sink.post(handing_post(now.run, _stream_step(now), service.stamped(one)))
    return Applied(now.run, at_once=True)


def _stream_step(now: LoadedItem) -> str:
    """The step as the listing names it: that of a transaction ends in `/`."""
    return f"{now.step}/" if isinstance(now.subject, TransactionState) else now.step


class OneOf(msgspec.Struct, frozen=True):
    """One answer of several. `shown` is the digest of what was shown; `loaded` is the item if it was read already."""

    item: str
    answer: Answer
    shown: str = ""
    loaded: LoadedItem | None = None


async def answer_all(
    service: ControlService, answers: Sequence[OneOf], *, by: str, also: tuple[Post, ...] = ()
) -> list[Applied]:
    """Give all these answers in the name of `by`, or none of them. One `Applied` for each run that has an answer.

    `also` are ledger entries that are committed with them, or not at all. Raises `UsageError` naming the first answer
    that does not fit, or whose item was answered meanwhile.
    """
    if twice := sorted({one.item for one in answers if [each.item for each in answers].count(one.item) > 1}):
        raise UsageError(f"{twice[0]} is answered twice", known="none of the answers was recorded")
    words = CollectingSink(service.engine.environment.clock.wall_ms())
    draft = service.over(words)
    for one in answers:
        try:
            await answer(draft, one.loaded or one.item, one.answer, by=by, shown=one.shown)
        except UsageError as error:
            known = (
                f"{error.known}; none of the answers was recorded"
                if error.known
                else "none of the answers was recorded"
            )
            raise UsageError(f"{one.item}: {error.message}", known=known, next_step=error.next_step) from error
    entry = await service.sink.post(*words.posts, *also)
    if not entry.fresh:
        raise UsageError(
            f"{read(entry, Command).by or 'another person'} answered one of them meanwhile",
            known="none of the answers was recorded", next_step="read it again: beforehand inbox",
        )  # fmt: skip
    return [await service.sink.apply(run, answered) for run, answered in words.runs.items()]
