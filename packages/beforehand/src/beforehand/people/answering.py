"""Answering inbox items: one function for the command line, the HTTP API and the web pages.

Several answers at once are each judged as if given alone, and collected instead of posted. Then all of them are
committed in one batch. The ledger refuses the whole batch if one of the items was answered meanwhile. A process that
dies before that commit has recorded nothing; after it the answers are final, and the driver of each run applies them.
So the same person may give the same answer again, as after a crash: it counts as accepted, and adds nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import msgspec
from msgspec.structs import replace

from beforehand.control.command_sink import CollectingSink, record_answer
from beforehand.control.input_checks import checked_by
from beforehand.control.service import ControlService
from beforehand.engine.commands import Applied, command_post
from beforehand.engine.engine import Engine
from beforehand.engine.recorded_operation import SharedState, recorded_inputs
from beforehand.engine.situation import situation_of
from beforehand.errors import UsageError
from beforehand.journal.entry_codec import read, written
from beforehand.journal.port import Post
from beforehand.model.commands import Command
from beforehand.model.decision.evidence import key_left_ms
from beforehand.model.decision.situation import Now
from beforehand.model.operation import OperationState
from beforehand.model.records import RunStoppedRecord
from beforehand.model.run_history import RunHistory
from beforehand.model.shell import to_type
from beforehand.model.transaction import TransactionState, around
from beforehand.model.waits import Item as Kind
from beforehand.people import answers as a
from beforehand.people.assignments import Handing, handing_post
from beforehand.people.contradictions import review_contradiction
from beforehand.people.earlier_answers import answer_on_record
from beforehand.people.loaded_item import LoadedItem, checked_shown, item_in, load_item, refresh_item

_MEANT: Final[dict[Kind, str]] = {
    "approval": "an approval",
    "question": "a reply",
    "handoff": "a handoff",
    "review": "a review",
    "unreadable": "a repair: a record or a ledger entry cannot be read",
}


async def answer(
    service: ControlService, item: str | LoadedItem, given: a.Answer, *, by: str, shown: str = ""
) -> Applied:
    """Give an answer to an item, loaded or by name (RUN/STEP). The first one is final, and every one is on record.

    `shown` is the digest of what that person was shown: if the question has changed since, the answer is refused.
    Raises `UnknownRun`, and `UsageError` where the answer does not fit, comes second, or is about what has changed.
    """
    now = await load_item(service.reader, item) if isinstance(item, str) else item
    checked_by(by, "an answer")
    checked_shown(now, shown)
    service = service.about(now, shown)
    if isinstance(given, a.Delegate | a.Snooze | a.Escalate):
        return await _hand_over(service, now, given, by)
    if not isinstance(given, a.fits(now)):
        waits = f"waits for {_MEANT[now.kind]}" if now.open else "is not an open item"
        known = f"it takes: {', '.join(a.fitting_answers(now))}" if now.open else ""
        raise UsageError(f"{now.item} {waits}, and does not take this answer", known=known)
    if isinstance(now.subject, RunStoppedRecord):
        return await _decide_stopped_run(service, now, given, by)
    if isinstance(given, a.ReplyAnswer):
        await service.answer(now.item, given.value, by=by)
        return Applied(now.run, at_once=True)
    if isinstance(given, a.TakeOver):
        return await service.take_over(now.item, by=by, why=given.why)
    if isinstance(given, a.Approve | a.Edit | a.Decline | a.StandIn | a.AskBack):
        return await _decide(service, now, given, by)
    assert not isinstance(given, a.Resume), now
    return await _review(service, now, given, by)


async def _decide(service: ControlService, now: LoadedItem, given: a.Verdict, by: str) -> Applied:
    match given:
        case a.Approve():
            return await service.approve(now.item, by=by, why=given.why, lasts=timedelta(hours=given.hours))
        case a.Edit():
            return await service.edit(now.item, given.arguments, by=by, why=given.why)
        case a.StandIn():
            return await service.stand_in(now.item, given.result, by=by, why=given.why)
        case a.Decline():
            return await service.decline(now.item, by=by, why=given.why)
        case a.AskBack():
            return await service.ask_back(now.item, by=by, question=given.question)


# --- reviews -------------------------------------------------------------------------------------------


async def _review(service: ControlService, now: LoadedItem, given: a.Review, by: str) -> Applied:
    if isinstance(now.subject, TransactionState):
        word, why = _decision(now, now.subject, given), getattr(given, "why", "") or getattr(given, "evidence", "")
        return await _decide_transaction(service, now.item, word, by, why)
    if now.contradicted:
        return await review_contradiction(service, now, given, by)
    match given:
        case a.HappenedTimes():
            return await _count(service, now, given, by)
        case a.CompensateAnswer():
            return await _compensate(service, now, given, by)
        case a.Abandon():
            return await service.cancel(now.run, by=by, why=a.command_of(given, now.subject, by).note)
        case a.RetrySameKey():
            _checked_key(service, now)
        case a.HappenedAnswer() | a.DidNotHappenAnswer():
            pass
    result = getattr(given, "result", None)
    return await service.resolve(now.item, a.word_of(given), by=by, evidence=given.evidence, result=result)


def _decision(now: LoadedItem, transaction: TransactionState, given: a.Review) -> a.DecisionWord:
    match given:
        case a.Abandon():
            return "accept"
        case a.CompensateAnswer() if not transaction.backward:
            return "abort"
        case a.CompensateAnswer() | a.RetrySameKey() | a.DidNotHappenAnswer(then="retry"):
            return "retry"
        case a.HappenedAnswer() | a.DidNotHappenAnswer() | a.HappenedTimes():
            raise UsageError(
                f"{now.item} is a transaction: the outcomes of its operations are stated one by one",
                known=f"it is stuck at: {', '.join(transaction.stuck) or 'nothing'}",
                next_step="compensate, retry or abandon it",
            )


async def _decide_transaction(
    service: ControlService, item: str, word: a.DecisionWord, by: str, why: str, shown: str = ""
) -> Applied:
    run, _, name = item.partition("/")  # no name: the undo of the whole run
    if word == "abort":
        return await service.call_off(run, name, by=by, why=why)
    return await service.resolve_transaction(run, name, word, by=by, why=why, shown=shown)


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
    here = engine.journal.clock()
    now = Now(here.epoch, here.earliest_ms, here.wall_ms, here.latest_ms)
    shared = SharedState(engine.journal, engine.identity, operation.intent.tool, now, engine.settings)
    situation = situation_of(operation, recorded_inputs(shared, history, operation))
    if (key := situation.contract.key) is None:
        return "its tool has no key"
    if operation.key_unread:
        return "its tool never read its key"
    if operation.verification.forgotten and key.ttl is not None:
        return "the time of its first send is not known"
    return "" if key_left_ms(operation, situation, now) > 0 else "the system may have forgotten it"


async def _compensate(service: ControlService, now: LoadedItem, given: a.CompensateAnswer, by: str) -> Applied:
    """Record that the effect happened and that the boundary around it compensates it: both answers, or none."""
    inside = [one for one in around(now.step, now.history.boundaries.by_name) if not one.over]
    if not inside:
        raise UsageError(
            f"{now.item} is in no transaction that could be called off",
            next_step=f"say that it happened, and once the run has ended: {to_type('undo', now.run)}",
        )
    both = [OneOf(now.item, a.HappenedAnswer(given.evidence, given.result), service.shown, now)]
    if not inside[-1].backward:
        off = a.CompensateAnswer(given.evidence or f"{now.step} is compensated")
        around_it = item_in(now.history, inside[-1].name)
        both.insert(0, OneOf(around_it.item, off, loaded=around_it))
    (applied,) = await answer_all(service, both, by=by)
    return applied


async def _count(service: ControlService, now: LoadedItem, given: a.HappenedTimes, by: str) -> Applied:
    """Record how many of the calls that are alike happened: all answers, or none."""
    if not service.shown:
        raise UsageError(
            f"counting calls that are like {now.item} needs the digest of what was shown",
            known="one of them may have been sent again since", next_step=to_type("inbox", "--item", now.item),
        )  # fmt: skip
    if given.times > len(now.alike):
        raise UsageError(f"{now.item} is one of {len(now.alike)} alike, and {given.times} are said to have happened")
    happened = a.HappenedAnswer(given.evidence, given.result)
    otherwise = a.DidNotHappenAnswer(given.then, given.evidence)
    each = [
        (item_in(now.history, step), happened if n < given.times else otherwise) for n, step in enumerate(now.alike)
    ]
    (applied,) = await answer_all(service, [OneOf(one.item, said, one.digest, one) for one, said in each], by=by)
    return applied


# --- stopped runs --------------------------------------------------------------------------------------


async def _decide_stopped_run(service: ControlService, now: LoadedItem, given: a.Answer, by: str) -> Applied:
    run, history = now.run, await service.history(now.run)
    if not now.open or history.lifecycle.stopped != now.subject:
        raise UsageError(f"{run} was answered before", next_step=to_type("show", run))
    command = service.stamped(a.command_of(given, now.subject, by))
    post = command_post(run, written(command), f"halted/{history.entry_seen}")
    return (await record_answer(service.sink, run, command, (post,)))[0]


# --- handing over --------------------------------------------------------------------------------------


async def _hand_over(service: ControlService, now: LoadedItem, given: a.Handover, by: str) -> Applied:
    if not now.open:
        raise UsageError(f"{now.item} is already answered", next_step=to_type("show", now.run))
    match given:
        case a.Delegate():
            one = Handing("delegate", by, given.to, given.queue, note=given.why)
        case a.Snooze():
            if given.until_ms <= service.engine.wall_ms():
                raise UsageError("the snooze time is in the past", next_step="choose a time in the future")
            one = Handing("snooze", by, until_ms=given.until_ms, note=given.why)
        case a.Escalate():
            one = Handing("escalate", by, given.to, given.queue, note=given.why)
    step = f"{now.step}/" if isinstance(now.subject, TransactionState) else now.step  # as the listing names it
    await service.sink.post(handing_post(now.run, step, service.stamped(one)))
    return Applied(now.run, at_once=True)


class OneOf(msgspec.Struct, frozen=True):
    """One answer of several. `shown` is the digest of what was shown; `loaded` is the item if it was read already."""

    item: str
    answer: a.Answer
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
    words = CollectingSink(service.engine.wall_ms())
    draft = service.over(words)
    for one in answers:
        try:
            await answer(draft, one.loaded or one.item, one.answer, by=by, shown=one.shown)
        except UsageError as error:
            known = "; ".join(filter(None, (error.known, "none of the answers was recorded")))
            raise UsageError(f"{one.item}: {error.message}", known=known, next_step=error.next_step) from error
    entry = await service.sink.post(*words.posts, *also)
    if not entry.fresh:
        raise UsageError(
            f"{read(entry, Command).by or 'another person'} answered one of them meanwhile",
            known="none of the answers was recorded", next_step="read it again: beforehand inbox",
        )  # fmt: skip
    return [await service.sink.apply(run, answered) for run, answered in words.runs.items()]


# --- the same answer again ------------------------------------------------------------------------------


async def answer_idempotently(
    service: ControlService, item: str | LoadedItem, given: a.Answer, *, by: str, shown: str = ""
) -> Applied:
    """Like `answer`, and the same answer of the same person may be given again: it ends alike, and adds nothing."""
    try:
        return await answer(service, item, given, by=by, shown=shown)
    except UsageError:
        if (applied := await _taken(service, item, given, by)) is None:
            raise
        return applied


async def answer_all_idempotently(service: ControlService, answers: Sequence[OneOf], *, by: str) -> list[Applied]:
    """As `answer_all`, and the same answers of the same person may be given again: all of them were taken, or none."""
    try:
        return await answer_all(service, answers, by=by)
    except UsageError:
        applied = list[Applied]()
        for one in answers:
            if (taken := await _taken(service, one.loaded or one.item, one.answer, by)) is None:
                raise
            applied.append(taken)
        return applied


async def _taken(service: ControlService, item: str | LoadedItem, given: a.Answer, by: str) -> Applied | None:
    """The result of an answer that was accepted before; None where it was not."""
    now = await (load_item(service.reader, item) if isinstance(item, str) else refresh_item(service.reader, item))
    applied = Applied(now.run, at_once=True)
    if by and now.open:  # its giver may have died before the run had it
        applied = replace(await service.sink.apply(now.run, ""), note="", alert=False)
        now = await refresh_item(service.reader, now)
    found = await answer_on_record(service.reader, now, [record async for _, record in service.reader.records(now.run)])
    again = now.open and isinstance(now.subject, OperationState)  # an order that is given again is a second one
    if found is None or (again and found.taken):
        return None
    return applied if a.repeats(given, now.subject, by, found.said) else None


async def decide_transaction_idempotently(
    service: ControlService, item: str, word: a.DecisionWord, *, by: str, why: str, shown: str = ""
) -> Applied:
    """Decide about a transaction. The same person may repeat the same decision, which adds nothing."""
    run, _, name = item.partition("/")
    try:
        return await _decide_transaction(service, item, word, by, why, shown)
    except UsageError:
        history = await service.history(run)
        if name not in history.boundaries.by_name:
            raise
        now = item_in(history, name)
        records = [record async for _, record in service.reader.records(run)]
        # What was aborted stays so, also where its compensation is stuck by now.
        found = await answer_on_record(service.reader, replace(now, open=now.open and word != "abort"), records)
        if found is None or not a.says_same(found.said, a.decision(name, word, by, why)):
            raise
        return Applied(run, at_once=True)
