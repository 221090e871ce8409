"""The content of a notice, before a channel puts it in its own form; foreign text in it is made harmless.

A model or a tool may have written anything into a question. In a notice none of it can be clicked, hides anything,
or is obeyed by a mail program or a chat: what looks like an address is broken up, and says so.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final, TypeAlias

import msgspec

from beforehand.errors import BeforehandError
from beforehand.inspect.monitors.findings import shown_findings
from beforehand.inspect.reader import JournalReader
from beforehand.inspect.render_records import plain_input
from beforehand.inspect.text import safe, short, without_commands
from beforehand.model.contradiction import contradiction_text
from beforehand.model.names import remarks
from beforehand.model.operation import OperationState
from beforehand.model.records import QuestionAsked, RunStoppedRecord
from beforehand.model.run_history import RunHistory
from beforehand.model.shell import to_type
from beforehand.model.transaction import TransactionState
from beforehand.model.waits import AMENDABLE, DISPUTED, HALT, answers_with, statements_on, stored_contract
from beforehand.model.wording import is_whole, question_of
from beforehand.people.dossier import dossier
from beforehand.people.loaded_item import ENDED, LoadedItem, Subject, item_in, split_item, with_ledger_answer
from beforehand_console.notify.schedule import FINDING, NoticeReason, NotifiableKind, NotifiedItem, Sent

BROKEN_UP: Final = "Addresses in these texts are broken up with [.] and [:], so that nothing in them can be clicked."
LONGEST: Final = 1500
_DOTS: Final = "[.\u3002\uff0e\uff61]"
_DOT_IN_NAME: Final = re.compile(rf"(?<=[\w\])-]){_DOTS}(?=[^\W\d_]|xn--|\d+{_DOTS}\d+)|(?<=\d){_DOTS}(?=\d+{_DOTS}\d)")
_SCHEME: Final = re.compile(
    r"\b(mailto|tel|sms|callto|skype|xmpp|magnet|file|data|javascript|slack|msteams):", re.IGNORECASE
)
_WORDS: Final[dict[NoticeReason, str]] = {
    "new": "",
    "reminder": "Reminder: ",
    "escalated": "Still unanswered: ",
    "again": "Perhaps once more: ",
}
_ASKED: Final[dict[NotifiableKind, str]] = {
    "finding": "silent failure,",
    "approval": "approval",
    "question": "question",
    "review": "review",
    "handoff": "run to take over",
}


class LetterLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """One question in a notice. `facts` are names and values; `answers` are the commands that answer it.

    `digest` is of exactly what is asked: the link in the notice is bound to it. `waits_on`: also after its deadline.
    """

    item: str
    kind: NotifiableKind
    word: NoticeReason
    asks: str
    digest: str
    facts: tuple[tuple[str, str], ...] = ()
    asked_ms: int = 0
    due_ms: int | None = None
    answers: tuple[str, ...] = ()
    waits_on: bool = False


class Letter(msgspec.Struct, frozen=True, omit_defaults=True):
    """One notice for one channel. `more`: how many wait beside the listed ones. `test`: who asked for a trial."""

    at_ms: int
    lines: tuple[LetterLine, ...] = ()
    more: int = 0
    test: str = ""


def title(letter: Letter) -> str:
    """The subject, on one line; it contains no text of a model."""
    if letter.test:
        return f"Beforehand: a test notice, asked for by {harmless(letter.test, 60)}"
    if len(letter.lines) + letter.more != 1:
        return f"Beforehand: {len(letter.lines) + letter.more} things wait for an answer"
    line = letter.lines[0]
    return f"Beforehand: {_WORDS[line.word]}{_ASKED[line.kind]} {harmless(line.item, 150)}"


def harmless(text: str, limit: int = LONGEST) -> str:
    """A foreign text on one line: without control or invisible signs, or what programs make links of."""
    line = safe(short(text, limit))
    line = _SCHEME.sub(r"\1[:]", line.replace("://", "[:]//"))
    return _DOT_IN_NAME.sub("[.]", line)


def when(line: LetterLine) -> tuple[tuple[str, str], ...]:
    """Since when it waits, and until when."""
    if line.kind == "finding":
        return (("Found", moment(line.asked_ms)),)
    since = (("Asked", moment(line.asked_ms)),) if line.asked_ms else ()
    return (*since, ("Deadline", moment(line.due_ms) if line.due_ms is not None else "none"))


def moment(ms: int) -> str:
    """A wall clock in milliseconds, in UTC, to the minute."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")


# The content of a notice about an item, read from the records right before it is sent; empty once it is answered.


LISTED: Final = 50
SHOWN: Final = 3
_LONG: Final = 240
Facts: TypeAlias = tuple[tuple[str, str], ...]


async def compose(reader: JournalReader, sent: Sent, now_ms: int) -> Letter | None:
    """The letter for a message; None where everything in it was answered meanwhile."""
    if sent.test:
        return Letter(now_ms, test=sent.test)
    lines: list[LetterLine] = []
    looked = 0
    for about in sent.abouts:
        if len(lines) == LISTED:
            break
        looked += 1
        if (line := await _open_line(reader, about)) is not None:
            lines.append(line)
    if len(lines) == 1:
        lines = [await _in_full(reader, lines[0])]
    return Letter(now_ms, tuple(lines), len(sent.abouts) - looked) if lines else None


async def _in_full(reader: JournalReader, line: LetterLine) -> LetterLine:
    """Add what the dossier of a single item knows beside the question."""
    if line.kind == "finding":
        return line
    found = await dossier(reader, line.item)
    more: list[tuple[str, str]] = [
        (f"Before, {one.name}", "nothing" if isinstance(one.before, msgspec.UnsetType) else _cut(bytes(one.before)))
        for one in found.changes
    ]
    more += [("Confidence", f"{found.confidence:g}")] if found.confidence is not None else []
    shown = {value for _, value in line.facts}
    more += [("Risk", risk) for risk in [risk for risk in found.risks if risk not in shown][:SHOWN]]
    more += [("Evidence", one) for one in found.evidence[:SHOWN]]
    more += [("Recommended", found.recommended)] if found.recommended else []
    more.append(("If nobody answers", found.default))
    return msgspec.structs.replace(line, facts=(*line.facts, *more))


async def still_asked(reader: JournalReader, sent: Sent) -> bool:
    """True if anything in the message is still open."""
    if sent.test:
        return True
    for about in sent.abouts:
        if await _open_line(reader, about) is not None:
            return True
    return False


async def _open_line(reader: JournalReader, about: NotifiedItem) -> LetterLine | None:
    """The line of an item or a finding; None if it needs no person any more."""
    if about.item.startswith(FINDING):
        return await _line_of_finding(reader, about)
    return await line_of(reader, about)


async def line_of(reader: JournalReader, about: NotifiedItem) -> LetterLine | None:
    """The line of an item; None if it is answered, or something newer is asked instead."""
    run, step = split_item(about.item)
    try:
        history = await reader.history(run)
        now = await with_ledger_answer(reader, item_in(history, step))
    except BeforehandError:
        return None  # the run is gone from this journal: nothing is asked
    outlives = now.contradicted or isinstance(now.subject, RunStoppedRecord)
    if not now.open or (history.lifecycle.status in ENDED and not outlives):
        return None
    line = _line(history, now, about)
    return line if line.asked_ms == int(about.identity.rpartition("@")[2]) else None


async def _line_of_finding(reader: JournalReader, about: NotifiedItem) -> LetterLine | None:
    """The line of a finding; None if a person has acknowledged it, or it is over."""
    shown, since_ms = await shown_findings(reader.journal), int(about.identity.rpartition("@")[2])
    raised = next((raised for raised in shown if FINDING + raised.id == about.item), None)
    if raised is None or raised.since_ms != since_ms:
        return None
    one = raised.finding
    evidence = tuple(("Evidence", text) for text in one.evidence[:SHOWN])
    facts = (("Agent", one.agent), ("Rule", one.rule), *evidence, ("Look", one.command))
    return LetterLine(
        about.item, "finding", about.word, one.what, "", facts, since_ms, answers=(to_type("monitors", "ack", one.id),),
    )  # fmt: skip


def _line(history: RunHistory, now: LoadedItem, about: NotifiedItem) -> LetterLine:
    match now.subject:
        case OperationState() as operation if now.contradicted:
            asks, facts = contradiction_text(operation.phase, operation.links.contradicted), _of_operation(operation)
            kind = AMENDABLE if stored_contract(history, operation).compensates else DISPUTED
            answers, due, asked_ms = answers_with(now.run, kind, now.step), 0, now.asked_ms
        case OperationState() as operation:
            asks, facts, due = question_of(operation), _of_operation(operation), operation.approval.answer_by
            answers = statements_on(history, operation)
            if operation.wants_approval:
                answers = answers_with(now.run, "approval", now.step, shown=_shown(now, operation))
            asked_ms = operation.approval.asked_at
        case TransactionState() as one:
            asks = f"partly {'undone' if one.backward else 'committed'}: {one.why}"
            facts, due, asked_ms = _of_transaction(one), one.asks_until, one.parked_at
            answers = answers_with(now.run, "person", f"{now.step}/", shown=now.digest)
        case RunStoppedRecord() as stopped:
            asks = f"it cannot go on: {without_commands(stopped.error)}"
            facts, due, asked_ms = (), stopped.until, stopped.at
            answers = answers_with(now.run, HALT, "")[:1]
        case _ as asked:
            asks, facts, due, asked_ms = (
                f"{asked.question.text} ({asked.question.expected})", (), asked.until, asked.at,
            )  # fmt: skip
            answers = answers_with(now.run, now.kind, now.step)
    return LetterLine(
        about.item, now.kind, about.word, asks, now.digest, (*facts, *_of_run(history)), asked_ms, due or None,
        answers, _waits_on(now.subject),
    )  # fmt: skip


def _shown(now: LoadedItem, operation: OperationState) -> str:
    """The digest that the command in a notice may carry: empty if the notice does not show all that it approves."""
    return now.digest if is_whole(bytes(operation.intent.arguments)) else ""


def _cut(value: bytes) -> str:
    """A value as every channel shows it: whole, or with a remark on how much is left out."""
    text = value.decode("utf-8", "replace")
    lines = text[_LONG:].count("\n")
    more = f"{lines} more lines" if lines else f"{len(text) - _LONG:,} more characters"
    return text if is_whole(value) else f"{text[:_LONG]}… ({more}, see the page)"


def _waits_on(subject: Subject) -> bool:
    """True if it can still be answered after its deadline."""
    if isinstance(subject, OperationState):
        return subject.approval.on_expiry != "refuse"
    return not isinstance(subject, QuestionAsked)


def _of_operation(operation: OperationState) -> Facts:
    return (
        ("Tool", operation.intent.tool),
        ("Arguments", _cut(bytes(operation.intent.arguments))),
        *(("Careful", one) for one in remarks(bytes(operation.intent.arguments).decode("utf-8", "replace"))),
        *((("Attempts", f"{len(operation.attempts)}"),) if operation.attempts else ()),
        *((("Said yes", ", ".join(operation.approval.approvers)),) if operation.approval.approvers else ()),
    )


def _of_transaction(one: TransactionState) -> Facts:
    return (
        ("Stuck at", ", ".join(one.stuck) or "nothing"),
        ("Undone", ", ".join(one.undone) or "nothing"),
        ("Still stands", ", ".join(one.still_standing) or "nothing"),
    )


def _of_run(history: RunHistory) -> Facts:
    if history.lifecycle.started is None:
        return ()
    return (
        ("Agent", history.lifecycle.started.agent),
        ("Run's input", _cut(plain_input(history.lifecycle.started.input).encode())),
    )
