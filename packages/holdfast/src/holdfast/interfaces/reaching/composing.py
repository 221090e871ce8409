"""What a notice says about an item, read from the records right before it is sent: nothing, once it is answered."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from holdfast.control.undo import contract_of
from holdfast.errors import HoldfastError
from holdfast.inspect.reader import JournalReader
from holdfast.inspect.render_records import plain_input
from holdfast.interfaces.reaching.words import Letter, Line, harmless
from holdfast.model.contradiction import contradiction_text
from holdfast.model.names import remarks
from holdfast.model.notices import About, Sent
from holdfast.model.operation import OperationState
from holdfast.model.records import QuestionAsked, RunStopped
from holdfast.model.run_history import RunHistory
from holdfast.model.transaction import Transaction
from holdfast.model.waits import AMENDABLE, DISPUTED, HALT, answer_with, is_whole, question_of
from holdfast.people.asked import ENDED, Asked, Subject, as_answered, asked_in, split_item
from holdfast.people.dossier import dossier

LISTED: Final = 50
SHOWN: Final = 3
_LONG: Final = 240
Facts: TypeAlias = tuple[tuple[str, str], ...]


async def compose(looking: JournalReader, sent: Sent, now_ms: int) -> Letter | None:
    """The letter for a message; None where everything in it was answered meanwhile."""
    if sent.test:
        return Letter(now_ms, test=sent.test)
    lines: list[Line] = []
    looked = 0
    for about in sent.abouts:
        if len(lines) == LISTED:
            break
        looked += 1
        if (line := await line_of(looking, about)) is not None:
            lines.append(line)
    if len(lines) == 1:
        lines = [await _in_full(looking, lines[0])]
    return Letter(now_ms, tuple(lines), len(sent.abouts) - looked) if lines else None


async def _in_full(looking: JournalReader, line: Line) -> Line:
    """One thing alone is told with what its dossier knows beside the question."""
    found = await dossier(looking, line.item)
    more: list[tuple[str, str]] = [
        (f"Before, {one.name}", "nothing" if isinstance(one.before, msgspec.UnsetType) else _cut(bytes(one.before)))
        for one in found.changes
    ]
    more += [("Confidence", f"{found.confidence:g}")] if found.confidence is not None else []
    told = {value for _, value in line.facts}
    more += [("Risk", risk) for risk in [risk for risk in found.risks if risk not in told][:SHOWN]]
    more += [("Evidence", one) for one in found.evidence[:SHOWN]]
    more += [("Recommended", found.recommended)] if found.recommended else []
    more.append(("If nobody answers", found.default))
    return msgspec.structs.replace(line, facts=(*line.facts, *more))


async def still_asked(looking: JournalReader, sent: Sent) -> bool:
    """Whether anybody is still asked anything that the message is about."""
    if sent.test:
        return True
    for about in sent.abouts:
        if await line_of(looking, about) is not None:
            return True
    return False


async def line_of(looking: JournalReader, about: About) -> Line | None:
    """What is asked; None where it is answered, or something newer is asked instead."""
    run, step = split_item(about.item)
    try:
        history = await looking.history(run)
        now = await as_answered(looking, asked_in(history, step))
    except HoldfastError:
        return None  # the run is gone from this journal: nobody is asked
    outlives = now.contradicted or isinstance(now.subject, RunStopped)
    if not now.open or (history.status in ENDED and not outlives):
        return None
    line = _line(history, now, about)
    return line if line.asked_ms == int(about.identity.rpartition("@")[2]) else None


def _line(history: RunHistory, now: Asked, about: About) -> Line:
    match now.subject:
        case OperationState() as operation if now.contradicted:
            asks, facts = contradiction_text(operation.phase, operation.contradicted), _of_operation(operation)
            kind = AMENDABLE if contract_of(history, operation).compensates else DISPUTED
            answer, due, asked_ms = answer_with(now.run, kind, now.step), 0, now.asked_ms
        case OperationState() as operation:
            asks, facts, due = question_of(operation), _of_operation(operation), operation.asks_until
            kind = "approval" if operation.wants_approval else "person"
            answer = answer_with(
                now.run, kind, now.step, sent=operation.may_have_been_sent, shown=_shown(now, operation)
            )
            asked_ms = operation.asked_at
        case Transaction() as one:
            asks = f"partly {'undone' if one.backward else 'committed'}: {one.why}"
            facts, due, asked_ms = _of_transaction(one), one.asks_until, one.parked_at
            answer = answer_with(now.run, "person", f"{now.step}/")
        case RunStopped() as stopped:
            asks, facts, due, asked_ms = f"it cannot go on: {stopped.error}", (), stopped.until, stopped.at
            answer = answer_with(now.run, HALT, "").split(" | ")[0]
        case _ as asked:
            asks, facts, due, asked_ms = (
                f"{asked.question.text} ({asked.question.expected})", (), asked.until, asked.at,
            )  # fmt: skip
            answer = answer_with(now.run, now.kind, now.step)
    return Line(
        about.item, now.kind, about.word, asks, now.digest, (*facts, *_of_run(history)), asked_ms, due or None,
        _answer(answer, about.item), _waits_on(now.subject),
    )  # fmt: skip


def _shown(now: Asked, operation: OperationState) -> str:
    """The digest that the command in a notice may carry: none where the notice does not show all that it approves."""
    return now.digest if is_whole(bytes(operation.intent.arguments)) else ""


def _cut(value: bytes) -> str:
    """A value that every channel shows as it stands here: whole, or with a remark on how much is left out."""
    text = value.decode("utf-8", "replace")
    lines = text[_LONG:].count("\n")
    more = f"{lines} more lines" if lines else f"{len(text) - _LONG:,} more characters"
    return text if is_whole(value) else f"{text[:_LONG]}… ({more}, see the page)"


def _waits_on(subject: Subject) -> bool:
    """Whether somebody can still answer when its deadline is over."""
    if isinstance(subject, OperationState):
        return subject.on_expiry != "refuse"
    return not isinstance(subject, QuestionAsked)


def _of_operation(operation: OperationState) -> Facts:
    return (
        ("Tool", operation.intent.tool),
        ("Arguments", _cut(bytes(operation.intent.arguments))),
        *(("Careful", one) for one in remarks(bytes(operation.intent.arguments).decode("utf-8", "replace"))),
        *((("Attempts", f"{len(operation.attempts)}"),) if operation.attempts else ()),
        *((("Said yes", ", ".join(operation.approvers)),) if operation.approvers else ()),
    )


def _of_transaction(one: Transaction) -> Facts:
    return (
        ("Stuck at", ", ".join(one.stuck) or "nothing"),
        ("Undone", ", ".join(one.undone) or "nothing"),
        ("Still stands", ", ".join(one.still_standing) or "nothing"),
    )


def _of_run(history: RunHistory) -> Facts:
    if history.started is None:
        return ()
    return (("Agent", history.started.agent), ("Run's input", _cut(plain_input(history.started.input).encode())))


def _answer(command: str, item: str) -> str:
    """The command, where it can be copied as it stands: a name with odd signs is chosen from the inbox."""
    odd = harmless(item, 400) != item or set(item) & set(" \t'\"`$&;|<>(){}[]*?!\\#~") - {"#", "~"}
    return "holdfast inbox" if odd else command
