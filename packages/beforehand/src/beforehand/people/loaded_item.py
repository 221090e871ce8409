"""The question that a person is asked now: its kind, its subject, and the digest that an answer names."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from beforehand.errors import UsageError
from beforehand.inspect.reader import JournalReader
from beforehand.inspect.text import count
from beforehand.model import records as r
from beforehand.model.ids import operation_id
from beforehand.model.operation import OperationState
from beforehand.model.questions import question_stream
from beforehand.model.run_history import RunHistory
from beforehand.model.shell import to_type
from beforehand.model.transaction import WHOLE_RUN, TransactionState
from beforehand.model.waits import BRIEF, alike_in, digest_of, review_digest, transaction_digest
from beforehand.model.waits import Item as Kind

Subject: TypeAlias = OperationState | r.QuestionAsked | r.RunStoppedRecord | TransactionState
SHORTEST = 8
"""Shortest digest that is accepted, in digits."""
ENDED = {"completed", "stopped", "undone"}


class LoadedItem(msgspec.Struct, frozen=True):
    """One inbox item with the run history it was read from. `open` is false once it is answered.

    It is loaded once and carried through authorisation, the checks, and the command that answers it. The only other
    load of the run is under its lease, where the command is applied. `tool` is empty if the item is not about a tool.
    `digest` is of exactly what is asked: an answer that names another one is refused. `proposers` are the people who
    started the run of an approval or edited its arguments: they cannot approve it. `queue` is where a policy put an
    approval, or code a hand-off; later assignments are in the ledger. `asked_ms` is the wall clock at which an approval
    was asked for. `alike` are the calls of one tool with equal arguments that are unknown together, in the order of
    records, where there are several.
    """

    item: str
    kind: Kind
    run: str
    step: str
    tool: str
    digest: str
    open: bool
    subject: Subject
    history: RunHistory
    proposers: tuple[str, ...] = ()
    queue: str = ""
    asked_ms: int = 0
    alike: tuple[str, ...] = ()

    @property
    def contradicted(self) -> bool:
        """True if it is a review of a final outcome that was contradicted."""
        return self.kind == "review" and isinstance(self.subject, OperationState) and is_contradicted(self.subject)


def is_contradicted(operation: OperationState) -> bool:
    """True if there is evidence against the outcome of this operation, or against its compensation."""
    return bool(operation.links.contradicted)


def split_item(item: str) -> tuple[str, str]:
    """The run, and the step or transaction; the latter is empty where it is about the whole run."""
    run, _, step = item.partition("/")
    if not run:
        raise UsageError(
            f"{item!r} does not name an inbox item", next_step="name it as RUN/STEP, as `beforehand inbox` does"
        )
    return run, step.rstrip("/")


async def load_item(reader: JournalReader, item: str) -> LoadedItem:
    """Load an item. Raises `UnknownRun`, or `UsageError` where the run never asked that."""
    run, _ = split_item(item)
    return await item_from(reader, item, await reader.history(run))


async def refresh_item(reader: JournalReader, now: LoadedItem) -> LoadedItem:
    """The same item with the records that were appended since it was loaded; only these are read."""
    return await item_from(reader, now.item, await reader.catch_up(now.history))


async def item_from(reader: JournalReader, item: str, history: RunHistory) -> LoadedItem:
    """An item of a run whose history was read. Raises `UsageError` where the run never asked that."""
    _, step = split_item(item)
    return await with_ledger_answer(reader, item_in(history, step))


async def with_ledger_answer(reader: JournalReader, about: LoadedItem) -> LoadedItem:
    """The same item, closed if the ledger has its answer already and the run has not asked again since."""
    if about.contradicted:
        return replace(about, open=await reader.is_contradicted(about.run, about.step))
    if not isinstance(about.subject, r.QuestionAsked) or not about.open:
        return about
    given = await reader.journal.entries(question_stream(about.run, about.step))
    return replace(about, open=not given)


def item_in(history: RunHistory, step: str) -> LoadedItem:
    """The same, from the records of its run."""
    found = _about(history, step)
    if not isinstance(found.subject, OperationState) or not (found.kind == "approval" or found.subject.needed_yes):
        return found
    return replace(found, proposers=history.proposers(found.subject))


def _about(history: RunHistory, step: str) -> LoadedItem:
    if (operation := history.operations.get(step)) is not None:
        return _about_operation(history, operation)
    if (question := history.steps.questions.get(step)) is not None:
        is_open = (
            step not in history.steps.answers
            and history.lifecycle.status not in ENDED
            and history.lifecycle.cancelled is None
        )
        digest = digest_of(question.question, question.until)
        kind: Literal["question", "handoff"] = "question" if question.handoff is None else "handoff"
        queue = "" if question.handoff is None else question.handoff.queue
        name = operation_id(history.run, step)
        return LoadedItem(name, kind, history.run, step, "", digest, is_open, question, history, queue=queue)
    transaction = history.boundaries.by_name.get(step)
    if transaction is None and not step and history.lifecycle.halted is not None:
        return _about_halted(history, history.lifecycle.halted)
    if transaction is None:
        where = f"{history.run}/{step}" if step else f"run {history.run}"
        raise UsageError(f"the inbox has no item {where}", next_step="see what waits for people: beforehand inbox")
    name = history.run if step == WHOLE_RUN else operation_id(history.run, step)
    digest = transaction_digest(transaction)
    return LoadedItem(
        name, "review", history.run, step, "", digest, transaction.phase == "parked", transaction, history
    )


def _about_halted(history: RunHistory, halted: r.RunStoppedRecord) -> LoadedItem:
    """A run that cannot continue: open until a person resumes it, takes it over or calls it off."""
    standing = [(one.step, one.phase, one.reason) for one in history.open_operations()]
    digest = digest_of(halted.reason, halted.error, halted.detail, halted.at, standing)
    return LoadedItem(
        history.run, "handoff", history.run, "", "", digest, history.lifecycle.stopped is halted, halted, history
    )


def _about_operation(history: RunHistory, operation: OperationState) -> LoadedItem:
    if is_contradicted(operation):
        digest = digest_of("contradicted", operation.phase, operation.links.contradicted)
        name, at = operation_id(history.run, operation.step), operation.links.contradicted_at
        return LoadedItem(
            name, "review", history.run, operation.step, operation.intent.tool, digest, True, operation, history,
            asked_ms=at,
        )  # fmt: skip
    approval = operation.wants_approval or (bool(operation.approval.asked_digest) and not operation.may_have_landed)
    kind: Literal["approval", "review"] = "approval" if approval else "review"
    digest = operation.approval.asked_digest if approval else review_digest(history, operation)
    return LoadedItem(
        operation_id(history.run, operation.step), kind, history.run, operation.step, operation.intent.tool,
        digest, operation.asks, operation, history,
        queue=operation.approval.queue if approval else "", asked_ms=operation.approval.asked_at,
        alike=tuple(one.step for one in alike_in(history, operation)),
    )  # fmt: skip


def checked_shown(now: LoadedItem, shown: str) -> None:
    """Refuse an answer to an outdated question: `shown` begins the digest of what was shown. Raises `UsageError`."""
    if shown and len(shown) < SHORTEST:
        raise UsageError(
            f"{shown!r} is too short to say what was shown",
            next_step=f"give the digest, or its first {BRIEF} digits: {to_type('inbox', '--item', now.item)}",
        )
    if shown and not now.digest.startswith(shown):
        raise UsageError(
            f"{now.item} has changed since it was shown, and your answer was not recorded",
            known="it was answered, or something that it relies on has changed",
            next_step=f"read it again: {to_type('inbox', '--item', now.item)}",
        )


def checked_named(name: str, asked: OperationState | TransactionState, shown: str) -> None:
    """Refuse an answer without a digest, if the question has changed since it was first asked.

    Raises `UsageError`.
    """
    if (asked.approval if isinstance(asked, OperationState) else asked).question_changed and not shown:
        known = "a person decided about it before, and it is stuck again"
        if isinstance(asked, OperationState):
            known = "it was edited or sent again, or something that it relies on is different"
            known += f"; {count(len(asked.attempts), 'send')} on record"
        raise UsageError(
            f"what {name} asks has changed since it was first asked, and this answer does not say what was shown",
            known=known,
            next_step=f"read it, and give the digest that is shown: {to_type('inbox', '--item', name)}",
        )
