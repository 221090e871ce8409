"""The dossier of one item: the facts a person needs to answer it, from the records alone.

Texts hold what tools, models and people wrote, as it was recorded. A caller that shows them has to sanitize them first.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Final, get_args

import msgspec

from beforehand.control.service import ControlService
from beforehand.inspect.comparison import Change
from beforehand.inspect.contracts import clauses
from beforehand.inspect.contradictions import relied_on
from beforehand.inspect.model_text import WholeInput, said_text, seen_text
from beforehand.inspect.reader import JournalReader, waits_of
from beforehand.inspect.render_records import end_text, record_note, ruling_text, stored, verdict_text, written_text
from beforehand.inspect.run_state import RunState, spent, state_of
from beforehand.inspect.text import moment
from beforehand.inspect.timeline import timeline
from beforehand.model import records as r
from beforehand.model.commands import Command
from beforehand.model.contract import Contract
from beforehand.model.contradiction import contradiction_text
from beforehand.model.ids import operation_id
from beforehand.model.names import remarks
from beforehand.model.operation import OperationState
from beforehand.model.questions import Answered, Scalar
from beforehand.model.run_history import RunHistory, exit_of
from beforehand.model.shell import NAME, to_type
from beforehand.model.stop_reasons import STOP_REASONS
from beforehand.model.system import shown_agent
from beforehand.model.transaction import TransactionState, around
from beforehand.model.waits import (
    AMENDABLE,
    DISPUTED,
    HALT,
    HUNG,
    after_deadline,
    answers_with,
    brief,
    statements_on,
    stored_contract,
    then_of,
)
from beforehand.model.waits import Item as Kind
from beforehand.model.wording import question_of, reason_to_ask
from beforehand.people.answers import fitting_answers
from beforehand.people.assignments import Handed, handed
from beforehand.people.contradictions import undone_together
from beforehand.people.earlier_answers import (
    ENDS,
    AnswerOnRecord,
    Earlier,
    Precedents,
    Word,
    answer_on_record,
    changes_from,
    earlier_answers,
    precedents,
)
from beforehand.people.items import asked_by
from beforehand.people.loaded_item import LoadedItem, load_item
from beforehand.people.policy.archive import facts_text
from beforehand.people.standing_permissions import list_standing
from beforehand.people.typed_answers import words_that_fit
from beforehand.policies import Require, milliseconds

LAST: Final = 6
"""How many of the last steps of a stopped run are shown."""
SEEN: Final = 2000
"""How many characters of what a model saw, and of what it said, are shown."""
THOUGHTS: Final = 5
"""Number of decisions before the question that are shown, the last ones."""
AGREED: Final = 5
"""Number of equal answers in similar cases from which on the same answer is recommended."""


_ASKS: Final = (r.OperationParked, r.QuestionAsked, r.TransactionParked, r.Contradicted)
"""The records with which an item begins to wait for a person."""
_READ: Final = (*_ASKS, r.TransactionResolved, r.TransactionAborting, r.DecisionRecorded, r.Verified, *get_args(Word))
_SPENT: Final = ("cost", "before")
"""The fields of what a call spent, and of the usage of a model's call whose answer was not used."""


class PriorDecision(msgspec.Struct, frozen=True, omit_defaults=True):
    """One decision of a model before the question: its new input, its output, the reason, and its confidence."""

    step: str
    function: str
    seen: str
    said: str
    why: str = ""
    confidence: float | None = None
    at_ms: int = 0


class Cost(msgspec.Struct, frozen=True, omit_defaults=True):
    """The cost of the run so far: of models and of its tools, in the units that they report."""

    models: float = 0
    tokens: int = 0
    tools: float = 0


class GivenAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The answer that an item has: what `by` said, and when (0: not known). `by` is empty for its deadline.

    `taken` is false while it is in the ledger and its run has not taken it.
    """

    by: str
    says: str
    at_ms: int = 0
    taken: bool = True


class Dossier(msgspec.Struct, frozen=True):
    """Everything about one item. Times are wall clocks in milliseconds; `digest` is what an answer names as shown.

    `changes` says how the arguments differ from the version before, `earlier` what was said about that one. `choices`
    and `expected` are about questions. `default` is what happens at the deadline, `blocked` what waits for the answer,
    and `recommended` an answer with its reason, where there is one. `standing` are the permissions for its tool that do
    not cover it, and why; `state` is the state of a run that was handed over. Of one that cannot go on, `last` is what
    it did last, `difference` what its code did otherwise than its record, and `frames` the lines of its code that an
    exception came through, the innermost last. `contradicted` is the evidence against a final outcome, `relied` what
    relied on that outcome, and `undoes` what the answer `compensate` undoes. `fits` names the answers that it takes
    now, and `decided` is the answer that it has.
    """

    item: str
    kind: Kind
    run: str
    agent: str
    tool: str
    asks: str
    why: str
    digest: str
    open: bool
    title: str
    arguments: r.Raw
    changes: tuple[Change, ...]
    earlier: tuple[Earlier, ...]
    thoughts: tuple[PriorDecision, ...]
    confidence: float | None
    risks: tuple[str, ...]
    evidence: tuple[str, ...]
    cost: Cost
    blocked: tuple[str, ...]
    similar: Precedents
    recommended: str
    since_ms: int
    due_ms: int | None
    default: str
    handed: Handed
    answers: tuple[str, ...]
    words: tuple[str, ...] = ()  # what `beforehand answer ITEM WORD` takes
    standing: tuple[str, ...] = ()
    choices: tuple[Scalar, ...] = ()
    expected: str = ""
    state: RunState | None = None
    last: tuple[str, ...] = ()
    difference: str = ""
    contradicted: tuple[str, ...] = ()
    relied: tuple[str, ...] = ()
    undoes: tuple[str, ...] = ()
    fits: tuple[str, ...] = ()
    decided: GivenAnswer | None = None
    frames: tuple[str, ...] = ()
    alike: tuple[str, ...] = ()  # the other calls that a reviewer could take for this one


async def _records_of(reader: JournalReader, about: LoadedItem) -> list[r.Record]:
    """The records of its run that a dossier reads: for a stopped run and a contradicted outcome all of them.

    Those appended since the item was loaded are left out: an answer names this state.
    """
    whole = isinstance(about.subject, r.RunStoppedRecord) or about.contradicted
    texts = () if whole else tuple(filter(None, (*_SPENT, about.step, about.tool)))
    found: list[r.Record] = []
    async for row, record in reader.records(about.run, 0, *(() if whole else _READ), naming=texts):
        if row.seq > about.history.records:
            break
        found.append(record)
    return found


async def dossier(source: ControlService | JournalReader, item: str) -> Dossier:
    """The dossier of this item. Raises `UnknownRun`, and `UsageError` where the run never asked that."""
    return (await read_dossier(source, item))[0]


async def read_dossier(source: ControlService | JournalReader, item: str) -> tuple[Dossier, LoadedItem]:
    """The dossier of an item, and the item as loaded: what is shown and answered is read once."""
    reader = source.reader if isinstance(source, ControlService) else source
    about = await load_item(reader, item)
    return await dossier_of(reader, about), about


async def dossier_of(reader: JournalReader, about: LoadedItem) -> Dossier:
    """The dossier of an item that was loaded."""
    run, step, history, subject = about.run, about.step, about.history, about.subject
    records = await _records_of(reader, about)
    begun = next((index for index, record in enumerate(records) if step_of(record) == step), 0) if step else 0
    asked = [one.at for one in records if isinstance(one, _ASKS) and step_of(one) == step]
    since_ms = asked[-1] if asked else 0
    operation = subject if isinstance(subject, OperationState) else None
    agent = shown_agent(history.lifecycle.started.agent) if history.lifecycle.started is not None else ""
    similar = await precedents(reader, agent, about.tool, about.item) if about.kind == "approval" else Precedents()
    before = records[:begun] if begun else records
    thoughts = _thoughts(before)
    sure = [one.confidence for one in thoughts if one.confidence is not None]
    if operation is not None and operation.intent.confidence is not None:
        sure.append(operation.intent.confidence)  # what the policy went by
    contract = stored_contract(history, operation) if operation is not None else None
    asks, why = _question(about)
    if operation is not None and not (about.open or operation.final):
        asks = await _hung(reader, about) or asks
    listed = exit_of(step) if isinstance(subject, TransactionState) else step
    halted = subject if isinstance(subject, r.RunStoppedRecord) else None
    return Dossier(
        item=about.item,
        kind=about.kind,
        run=run,
        agent=agent,
        tool=about.tool,
        asks=asks,
        why=why,
        digest=about.digest,
        open=about.open,
        title=operation.intent.title if operation is not None else "",
        arguments=operation.intent.arguments if operation is not None else r.NOTHING,
        changes=changes_from(operation, before) if operation is not None else (),
        earlier=earlier_answers(operation, records) if operation is not None else (),
        thoughts=thoughts,
        confidence=sure[-1] if sure else None,
        risks=(*_one_of(about), *_marks(about, asks), *_proposed(about), *_risks(operation, contract)),
        evidence=_evidence(about, records),
        cost=_cost(records),
        blocked=_blocked(history, step),
        similar=similar,
        recommended=_recommended(about, similar, contract),
        since_ms=since_ms if halted is None else halted.at,
        due_ms=_due(about),
        default=_default(about),
        handed=await handed(reader.journal, run, listed),
        answers=_commands(about, listed),
        words=words_that_fit(about),
        standing=await _standing(reader, about, since_ms) if about.kind == "approval" else (),
        choices=subject.question.choices if isinstance(subject, r.QuestionAsked) else (),
        expected=subject.question.expected if isinstance(subject, r.QuestionAsked) else "",
        state=await state_of(reader, run, step) if about.kind == "handoff" else None,
        last=_last_steps(run, records) if halted is not None else (),
        difference=halted.detail if halted is not None and halted.reason == "diverged" else "",
        contradicted=operation.links.contradicted if operation is not None and about.contradicted else (),
        fits=fitting_answers(about),
        decided=_decided(await answer_on_record(reader, about, records)),
        relied=await relied_on(reader, history, records, step) if about.contradicted else (),
        undoes=undone_together(history, operation) if about.contradicted and operation is not None else (),
        frames=tuple(map(str, halted.frames)) if halted is not None else (),
        alike=tuple(operation_id(run, one) for one in about.alike if one != step),
    )


def _decided(found: AnswerOnRecord | None) -> GivenAnswer | None:
    """The answer that an item has, in words."""
    if found is None:
        return None
    note = str(getattr(found.said, "note", ""))
    reason = f": {note}" if note else ""
    match found.said:
        case Answered() as reply:
            says = f"takes it over{reason}" if reply.over else f"answers {reply.value}"
        case Command():
            says = note
        case r.CommandApplied() as order:
            says = ENDS[order.command] + reason
        case r.TransactionAborting() as aborting:
            says = f"aborts it: {aborting.reason}"
        case record:
            says = record_note(record)[1]
    return GivenAnswer(found.said.by, says, found.at_ms, found.taken)


def _last_steps(run: str, records: Sequence[r.Record]) -> tuple[str, ...]:
    """The last steps of the run, a line for each."""
    steps = [one for one in timeline(run, records).entries if one.kind not in {"run", "value"}]
    return tuple(f"{one.step or one.name}: {one.status} {one.text}".rstrip() for one in steps[-LAST:])


async def _standing(reader: JournalReader, about: LoadedItem, at_ms: int) -> tuple[str, ...]:
    """The permissions for this tool, and why each did not cover the operation."""
    listed = await list_standing(reader, at_ms, about.tool)
    return tuple(f"{one.standing.id} of {one.standing.by}: {one.ended or 'it does not fit'}" for one in listed)


def step_of(record: r.Record) -> str:
    """The step or transaction that a record is about."""
    return str(getattr(record, "step", "") or getattr(record, "transaction", ""))


async def _hung(reader: JournalReader, about: LoadedItem) -> str:
    """The process that keeps a call waiting, from the listing; empty without one."""
    waits = [wait for row in await reader.journal.runs(run=about.run) for wait in waits_of(row)]
    return next((asked_by(about.run, wait) for wait in waits if (wait.kind, wait.step) == (HUNG, about.step)), "")


def _question(about: LoadedItem) -> tuple[str, str]:
    """The question, and the rule or the reason behind it."""
    match about.subject:
        case OperationState() as operation if about.contradicted:
            return contradiction_text(
                operation.phase, operation.links.contradicted
            ), f"recorded: {written_text(operation)}"
        case OperationState() as operation:
            if about.kind != "approval":
                return question_of(operation), operation.rule
            ruling = operation.judgement.ruling
            why = reason_to_ask(operation) if ruling is None else ruling_text(ruling, operation.judgement.policy)
            return question_of(operation), why
        case r.QuestionAsked() as question:
            return question.question.text, "the agent asks" if question.handoff is None else "the agent cannot go on"
        case r.RunStoppedRecord() as stopped:
            return stopped.error, f"{stopped.reason}: {STOP_REASONS[stopped.reason].meaning}"
        case TransactionState() as transaction:
            return transaction.why or transaction.phase, transaction.reason


def _thoughts(before: Sequence[r.Record]) -> tuple[PriorDecision, ...]:
    """The last decisions: the first of them with the conversation up to there, each later one with what is new."""
    made = [record for record in before if isinstance(record, r.DecisionRecorded)]
    whole, shown = WholeInput(), made[-THOUGHTS:]
    begins = [whole.of(record) for record in made][-THOUGHTS:][:1]
    return tuple(
        PriorDecision(
            one.step,
            one.function,
            seen_text(seen or one.seen, one.function, SEEN),
            said_text(one.result, one.function, SEEN) if one.status == "succeeded" else one.reason,
            one.why,
            one.confidence,
            one.at,
        )
        for one, seen in zip_longest(shown, begins)
    )


def required_text(require: Require) -> str:
    """The sign-in that approvers need, in words."""
    fresh = require.fresh_sign_in
    parts = ["a person who signed in" if require.person else "a sign-in"]
    if fresh is not None:
        parts.append(f"with a password in the last {milliseconds(fresh) // 1000} s")
    return f"to approve it takes {' '.join(parts)}"


def _one_of(about: LoadedItem) -> tuple[str, ...]:
    """A sentence about the calls that a reviewer could take for this one: two wrong answers would send a third."""
    others = ", ".join(operation_id(about.run, step) for step in about.alike if step != about.step)
    count = len(about.alike)
    return (f"one of {count} like this: {others} is unknown, too; say how many were sent",) if others else ()


def _marks(about: LoadedItem, asks: str) -> tuple[str, ...]:
    """Look-alike letters in the text that a person decides about."""
    operation = about.subject if isinstance(about.subject, OperationState) else None
    return remarks(bytes(operation.intent.arguments).decode("utf-8", "replace") if operation is not None else asks)


def _proposed(about: LoadedItem) -> tuple[str, ...]:
    """A sentence that names the people who cannot answer the item; none where no person proposed it."""
    names = ", ".join(about.proposers)
    return (f"proposed by {names}: another person has to approve it, or say what happened",) if names else ()


def _risks(operation: OperationState | None, contract: Contract | None) -> tuple[str, ...]:
    """The risks of the operation, from the contract that it was begun under."""
    if operation is None or contract is None:
        return ()
    found = list(clauses(contract).dangers)
    if contract.gate is not None and contract.gate.when != "true" and contract.gate.when not in operation.reason:
        found.insert(0, f"its tool asks a person where {contract.gate.when}")
    if not operation.intent.executable:
        found.append("some of its arguments are not stored, and cannot be shown")
    if operation.approval.require is not None:
        found.insert(0, required_text(operation.approval.require))
    if operation.intent.hold:
        found.append(f"it is sent with the commit of {operation.intent.hold}")
    return tuple(found)


def _evidence(about: LoadedItem, records: Sequence[r.Record]) -> tuple[str, ...]:
    """The attempts, verifications and observations, in order."""
    found: list[str] = []
    if isinstance(about.subject, OperationState):
        operation = about.subject
        if operation.judgement.facts is not None:
            found.append(f"the policy knew: {facts_text(operation.judgement.facts)}")
        if operation.observed != r.NOTHING:
            found.append(f"it relies on: {stored(operation.observed)}")
        found.extend(
            f"attempt {one.number} at {moment(one.at)}: {end_text(one.end) if one.end else 'no end on record'}"
            for one in operation.attempts
        )
    if isinstance(about.subject, TransactionState):
        found.append(f"undone: {', '.join(about.subject.undone) or 'nothing'}")
        found.append(f"still standing: {', '.join(about.subject.still_standing) or 'nothing'}")
    found.extend(
        f"read back at {moment(one.at)}: {verdict_text(one)}"
        for one in records
        if isinstance(one, r.Verified) and one.step == about.step
    )
    return tuple(found)


def _cost(records: Sequence[r.Record]) -> Cost:
    found = spent(records)
    return Cost(found.get("models", 0), int(found.get("tokens", 0)), found.get("tools", 0))


def _blocked(history: RunHistory, step: str) -> tuple[str, ...]:
    """Work that waits for the answer: the run, its boundaries, and its other open operations."""
    found = [f"run {history.run}"] if history.lifecycle.status not in {"completed", "undone"} else []
    found.extend(
        f"transaction {one.name}" for one in around(step, history.boundaries.by_name) if one.name and not one.over
    )
    found.extend(f"{one.step} ({one.phase})" for one in history.open_operations() if one.step != step)
    return tuple(found)


def _recommended(about: LoadedItem, similar: Precedents, contract: Contract | None) -> str:
    """A recommended answer with its reason; empty where the evidence is not clear."""
    if isinstance(about.subject, r.RunStoppedRecord):
        return STOP_REASONS[about.subject.reason].advice
    if isinstance(about.subject, r.QuestionAsked):
        default = about.subject.default
        return "" if default is None else f"{default}: what the agent continues with if no answer comes"
    if about.kind == "approval" and similar.answered >= AGREED:
        for word, count in (("approve", similar.approved), ("decline", similar.declined)):
            if count == similar.answered:
                return f"{word}: all {count} calls of {about.tool} that people answered ended so"
    operation = about.subject if isinstance(about.subject, OperationState) else None
    keyed = contract is not None and contract.key is not None and contract.key.ttl is None
    if (
        about.kind == "review"
        and about.open
        and operation is not None
        and keyed
        and not (operation.final or operation.key_unread)
    ):
        return "retry with the same key: the system never forgets it, and does nothing twice"
    return ""


def _due(about: LoadedItem) -> int | None:
    """The deadline for an answer. The evidence against a final outcome has none."""
    if about.contradicted:
        return None
    match about.subject:
        case OperationState() as operation:
            return operation.approval.answer_by or None
        case TransactionState() as transaction:
            return transaction.asks_until or None
        case r.QuestionAsked() | r.RunStoppedRecord() as subject:
            return subject.until or None


def _default(about: LoadedItem) -> str:
    """The outcome if no answer comes in time."""
    if about.contradicted:
        return "the outcome stays as recorded, and the question stays open"
    timed = _due(about) is not None
    match about.subject:
        case r.QuestionAsked() as asked:
            then = then_of(asked.default) if timed else ""
            return after_deadline(then) if then != "default" else f"the answer is {asked.default}"
        case r.RunStoppedRecord():
            return f"{after_deadline('hold')}; nothing more is sent" if timed else "it stays, and nothing more is sent"
        case OperationState() as operation if about.kind == "approval" and operation.may_have_landed:
            return "nothing is sent again, and what happened stays unknown"
        case OperationState() as operation if about.kind == "approval":
            return after_deadline(operation.approval.on_expiry if timed else "")
        case _:
            waits = after_deadline("hold") if timed else "it waits"
            return f"{waits}: only evidence or a person's answer ends it"


def _commands(about: LoadedItem, listed: str) -> tuple[str, ...]:
    if not about.open:
        return ()
    if isinstance(about.subject, r.QuestionAsked):
        return answers_with(about.run, about.kind, listed)
    if isinstance(about.subject, r.RunStoppedRecord):
        return answers_with(about.run, HALT, "")
    if about.contradicted and isinstance(about.subject, OperationState):
        return answers_with(about.run, AMENDABLE if "compensate" in fitting_answers(about) else DISPUTED, listed)
    if about.kind == "approval":
        fits = fitting_answers(about)
        ways = ((f"--{name.replace('_', '-')}", "JSON") for name in ("edit", "stand_in") if name in fits)
        named = ("--shown", brief(about.digest), "--by", NAME)
        return (
            *answers_with(about.run, "approval", listed, shown=about.digest),
            *(to_type("answer", about.item, *way, *named) for way in (("--ask", "TEXT"), *ways)),
        )
    if isinstance(about.subject, TransactionState):
        return answers_with(about.run, "person", listed, shown=about.digest)
    count = ("retry", "--sent", "NUMBER", "--evidence", "TEXT", "--shown", brief(about.digest))
    counted = (to_type("answer", about.item, *count),) if about.alike else ()
    return (*counted, *statements_on(about.history, about.subject))
