"""Typed answers: the words that fit an item, and what each means."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

import msgspec

from beforehand.control.approvals import decided_text
from beforehand.errors import UsageError
from beforehand.model.alike import nearest
from beforehand.model.operation import OperationState
from beforehand.model.records import NOTHING, QuestionAsked, Raw
from beforehand.model.shell import to_type
from beforehand.model.transaction import TransactionState
from beforehand.people import answers as a
from beforehand.people.loaded_item import LoadedItem


class Typed(msgspec.Struct, frozen=True):
    """A word, with what may go with it: a reason, how long a yes holds, the evidence, and the result of the call.

    `sent` says how many of several calls that are alike were sent.
    """

    word: str
    why: str = ""
    hours: float = a.HOURS
    evidence: str = ""
    result: Raw = NOTHING
    sent: int | None = None


Words: TypeAlias = Mapping[str, Callable[[Typed], a.Answer]]
"""Each word, with its meaning."""

TAKE_OVER: Final = "take-over"

_APPROVAL: Final[Words] = {
    "yes": lambda typed: a.Approve(typed.why, typed.hours),
    "no": lambda typed: a.Decline(typed.why),
}
_REVIEW: Final[Words] = {
    "happened": lambda typed: a.HappenedAnswer(typed.evidence, typed.result),
    "did-not-happen": lambda typed: a.DidNotHappenAnswer("give_up", typed.evidence),
    "retry": lambda typed: a.DidNotHappenAnswer("retry", typed.evidence),
    "give-up": lambda typed: a.DidNotHappenAnswer("give_up", typed.evidence),
    "same-key": lambda typed: a.RetrySameKey(typed.evidence),
    "compensate": lambda typed: a.CompensateAnswer(typed.evidence, typed.result),
    "abandon": lambda typed: a.Abandon(typed.why),
}
_TRANSACTION: Final[Words] = {
    "accept": lambda typed: a.Abandon(typed.why),
    "retry": lambda typed: a.DidNotHappenAnswer("retry", typed.why),
    "compensate": lambda typed: a.CompensateAnswer(typed.why),
}
_HALTED: Final[Words] = {
    "resume": lambda typed: a.Resume(typed.why),
    TAKE_OVER: lambda typed: a.TakeOver(typed.why),
    "cancel": lambda typed: a.Abandon(typed.why),
}
_ALSO: Final = {"true": "yes", "false": "no"}


def words_that_fit(now: LoadedItem) -> tuple[str, ...]:
    """The words that answer this item now, in the order of the help; none where it is answered."""
    if not now.open:
        return ()
    if isinstance(now.subject, QuestionAsked):
        values = tuple(map(str, now.subject.question.choices)) or ("VALUE",)
        return (*values, TAKE_OVER) if _may_take_over(now.subject) else values
    fits, refused = a.fitting_answers(now), _refused_words(now)
    return tuple(
        word for word, make in _words(now).items() if a.name_of(make(Typed(word))) in fits and word not in refused
    )


def review_answer(typed: Typed) -> a.Answer:
    """The answer that a word about an operation means."""
    return _REVIEW[typed.word](typed)


def answer_from_words(now: LoadedItem, typed: Typed) -> a.Answer:
    """The answer that was typed. Raises `UsageError` with the words that fit where this one does not."""
    if isinstance(now.subject, QuestionAsked):
        if typed.word == TAKE_OVER and _may_take_over(now.subject):
            return a.TakeOver(typed.why)
        return a.ReplyAnswer(now.subject.question.read(typed.word))
    word = _normalized(typed.word)
    word = _ALSO.get(word, word) if now.kind == "approval" else word
    make = _words(now).get(word)
    if make is None:
        raise _refused(now, typed.word, words_that_fit(now))
    if typed.sent is not None:
        return _counted(now, msgspec.structs.replace(typed, word=word))
    if typed.result != NOTHING and word not in {"happened", "compensate"}:
        raise UsageError("--result is what a call returned", next_step="it goes with: happened, compensate")
    return make(msgspec.structs.replace(typed, word=word))


def _counted(now: LoadedItem, typed: Typed) -> a.HappenedTimes:
    """How many of the calls that are alike were sent; `retry` sends the others once more."""
    if not now.alike or typed.sent is None or typed.word not in {"happened", "did-not-happen", "retry"}:
        raise UsageError(
            "--sent counts calls that are alike, and goes with: happened, did-not-happen, retry",
            known=f"{now.item} is one of {len(now.alike)} alike" if now.alike else f"there is none like {now.item}",
        )
    return a.HappenedTimes(typed.sent, "retry" if typed.word == "retry" else "give_up", typed.evidence, typed.result)


def says_yes(typed: str) -> bool:
    """True if a word approves, where the item is an approval."""
    return _normalized(typed) in {"yes", "true"}


def _normalized(typed: str) -> str:
    return typed.strip().lower().replace("_", "-")


def _words(now: LoadedItem) -> Words:
    if a.is_stopped_run(now.kind, now.item):
        return _HALTED
    match now.kind:
        case "approval":
            return _APPROVAL
        case "review":
            return _TRANSACTION if isinstance(now.subject, TransactionState) else _REVIEW
        case _:
            return {}


def _may_take_over(asked: QuestionAsked) -> bool:
    """True if the word takes the run over. It does not where the question offers that word as a choice."""
    return asked.handoff is not None and TAKE_OVER not in asked.question.choices


def _refused_words(now: LoadedItem) -> set[str]:
    """The words that mean a fitting answer in a form that this item refuses: it is not sent again."""
    if now.contradicted:
        return {"retry", "give-up"}
    completes = isinstance(now.subject, OperationState) and now.kind == "review" and bool(now.subject.intent.completes)
    return {"retry"} if completes else set()


def _refused(now: LoadedItem, typed: str, words: tuple[str, ...]) -> UsageError:
    """The error for a word that does not fit: the words that do, and a suggestion where one is spelled alike."""
    if not words:
        known = decided_text(now.subject) if isinstance(now.subject, OperationState) else ""
        return UsageError(f"{now.item} takes no answer now", known=known, next_step=to_type("show", now.run))
    near = nearest(typed.lower(), words)
    meant = f": did you mean {near}?" if near else ""
    return UsageError(
        f"{typed!r} does not answer {now.item}{meant}", known=f"it takes: {', '.join(words)}",
        next_step=to_type("inbox", "--item", now.item),
    )  # fmt: skip
