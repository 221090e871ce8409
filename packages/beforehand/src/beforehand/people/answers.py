"""The answers of people to inbox items: each is one class, in code as on the wire, and one record in the ledger."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from beforehand.errors import UsageError
from beforehand.model import records as r
from beforehand.model.commands import Command, CommandName
from beforehand.model.contradiction import note_of
from beforehand.model.names import same_person
from beforehand.model.operation import OperationState
from beforehand.model.outcome import ASKED_BACK
from beforehand.model.questions import Answered, Scalar
from beforehand.model.transaction import TransactionState, around
from beforehand.model.waits import Item as Kind
from beforehand.model.waits import sends_on_order, stored_contract
from beforehand.people.earlier_answers import Stated
from beforehand.people.loaded_item import LoadedItem, Subject, is_contradicted

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
    names = (str(one.__struct_config__.tag) for one in (*fits(now), Delegate, Snooze, Escalate))  # type: ignore[attr-defined]  # all are structs
    left_out = _left_out(now)
    return tuple(name for name in names if name not in left_out)


def is_stopped_run(kind: Kind, item: str) -> bool:
    """True if an item is a stopped run, and False if it is a step that a run waits at."""
    return kind == "handoff" and "/" not in item


def fits(now: LoadedItem) -> tuple[type[object], ...]:
    """The classes of the answers to items of its kind, without handing it over."""
    if now.contradicted:
        return _FITS_CONTRADICTED
    kinds = _FITS_HALTED if is_stopped_run(now.kind, now.item) else _FITS[now.kind]
    return (HappenedTimes, *kinds) if now.alike else kinds


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


# --- what is recorded for them -------------------------------------------------------------------------


ResolveWord = Literal["happened", "did_not_happen", "retry", "same_key"]
DecisionWord = Literal["retry", "accept", "abort"]
_ORDERS: Final[dict[str, CommandName]] = {"resume": "reopen", "take_over": "take_over", "abandon": "cancel"}
_MEANING: Final = ("word", "code", "reason", "changes", "result", "note", "evidence", "value", "over")


def command_of(given: Answer, subject: Subject, by: str) -> Command | Answered:
    """The entry of the ledger that holds an answer, without how its author's name is known."""
    why = str(getattr(given, "why", "") or getattr(given, "evidence", ""))
    match subject:
        case r.QuestionAsked():
            if isinstance(given, ReplyAnswer):
                return Answered(subject.question.answer_of(given.value), by)
            return Answered(None, by, over=True, note=why)
        case r.RunStoppedRecord():
            return Command(_ORDERS[name_of(given)], by, why)
        case TransactionState():
            return decision(subject.name, "accept" if isinstance(given, Abandon) else "retry", by, why)
        case OperationState() if isinstance(given, Approve | Edit | Decline | StandIn | AskBack):
            return verdict(given, subject, by)
        case OperationState() if isinstance(given, Abandon):
            return Command("cancel", by, f"{subject.step} is abandoned: {why}".rstrip(": "))
        case OperationState() if is_contradicted(subject):
            return Command("review", by, note_of(subject.step, name_of(given), why))
        case OperationState():
            stated = resolution(subject, word_of(given), by, why, getattr(given, "result", None))
            return Command("resolve", by, why, stated)


def verdict(given: Verdict, asked: OperationState, by: str, until: int = 0) -> Command:
    """The command that answers what an operation asks about now. A yes ends at the wall clock `until`."""
    about = asked.step, asked.approval.asked_digest, by
    match given:
        case Approve():
            return Command("approve", by, given.why, r.ApprovalGranted(*about, given.why, until))
        case Edit():
            changes = r.Raw(msgspec.json.encode(given.arguments))
            return Command("edit", by, given.why, r.ArgumentsEdited(*about, changes, given.why))
        case StandIn():
            result = r.Raw(msgspec.json.encode(given.result))
            return Command("stand_in", by, given.why, r.ResultGiven(*about, result, given.why))
        case Decline():
            return Command("decline", by, given.why, r.ApprovalRefused(*about, given.why))
        case AskBack():
            return Command("decline", by, given.question, r.ApprovalRefused(*about, given.question, code=ASKED_BACK))


def word_of(given: Answer) -> ResolveWord:
    """The word of the record that states what happened to an operation."""
    if isinstance(given, DidNotHappenAnswer):
        return "retry" if given.then == "retry" else "did_not_happen"
    return "same_key" if isinstance(given, RetrySameKey) else "happened"


def resolution(state: OperationState, word: ResolveWord, by: str, evidence: str, result: Any) -> r.Resolved:
    """The record that resolves an operation which no rule could decide."""
    stored = r.NOTHING if result is None else r.Raw(msgspec.json.encode(result))
    return r.Resolved(state.step, word, by, len(state.attempts), evidence, stored)


def decision(transaction: str, word: DecisionWord, by: str, why: str) -> Command:
    """The command that decides on a transaction."""
    if word == "abort":
        aborting = r.TransactionAborting(transaction=transaction, reason=why or f"called off by {by}", by=by)
        return Command("transaction", by, why, aborting)
    resolved = r.TransactionResolved(transaction=transaction, word=word, by=by, note=why)
    return Command("transaction", by, why, resolved)


def repeats(given: Answer, subject: Subject, by: str, said: Stated) -> bool:
    """True if a person gives the answer again that is on record in their name."""
    if isinstance(given, HappenedTimes):  # it was recorded for each of the calls that are alike
        words = {"happened", "retry" if given.then == "retry" else "did_not_happen"}
        alike = isinstance(said, r.Resolved) and said.word in words and said.evidence == given.evidence
        return alike and same_person(said.by, by)
    if isinstance(said, r.TransactionAborting) and not isinstance(given, Abandon):
        why = str(getattr(given, "evidence", ""))  # before its end, compensation calls it off
        return says_same(said, decision(said.transaction, "abort", by, why))
    try:
        return says_same(said, command_of(given, subject, by))
    except UsageError:  # it does not answer the question
        return False


def says_same(said: Stated, meant: Command | Answered) -> bool:
    """True if what is on record means the same as this answer of the same person."""
    if not said.by or not same_person(said.by, meant.by):
        return False
    record = meant if isinstance(meant, Answered) or meant.record is None else meant.record
    if isinstance(record, r.Resolved) and record.word == "retry" and getattr(said, "word", "") == "did_not_happen":
        record = replace(record, word="did_not_happen")  # where nothing is sent any more, a retry is recorded as that
    return _meaning(said) == _meaning(record)


def _meaning(said: object) -> list[Any]:
    """The fields in which two answers differ. A yes is the same yes for another reason, or for another time."""
    if isinstance(said, r.ApprovalGranted):
        return [r.ApprovalGranted]
    kind = Command if isinstance(said, r.CommandApplied) else type(said)
    values = [getattr(said, "command", ""), *(getattr(said, name, "") for name in _MEANING)]
    return [kind, *(msgspec.json.decode(one) if isinstance(one, r.Raw) else one for one in values if one != "")]
