"""Records as text: one short line for each kind of event, facts and plans included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

import msgspec

from beforehand.model import records as r
from beforehand.model.facts import Correction, Fact, Weighed
from beforehand.model.lessons import ADVICE, ShownLessons
from beforehand.model.operation import OperationState
from beforehand.model.outcome import Basis
from beforehand.model.plan import DEPENDENCIES, JUDGED, Chosen, JudgedConditions, Plan
from beforehand.model.policy import Ruling
from beforehand.model.questions import Answered
from beforehand.model.run_budget import words_of
from beforehand.model.run_history import JOINED
from beforehand.model.usage import Usage
from beforehand.policies import COUNTED_LIMITS

SHORT: Final = 300
_BESIDE: Final = {"resolve", "late", "transaction", "undo", "approve", "decline", "edit", "stand_in"}

_WORDS: Final = {
    "happened": "says that it happened",
    "did_not_happen": "says that it did not happen",
    "retry": "says that it did not happen, and asks for one more attempt",
    "same_key": "asks for one more attempt under the same key, whether it happened or not",
}


def stored(raw: r.Raw, limit: int = SHORT) -> str:
    """A stored value, cut where it is long."""
    text = bytes(raw).decode("utf-8", "replace")
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def plain_input(raw: r.Raw) -> str:
    """The input of a run as a person would write it: without the wrapping that keeps types apart."""
    value = msgspec.json.decode(raw, type=dict[str, object])
    return msgspec.json.encode(_plain(value.get("input", value))).decode()


def _plain(value: object) -> object:
    match value:
        case dict():
            fields = cast("dict[str, object]", value)
            typed = fields.get("$object") if len(fields) == 1 else None
            if isinstance(typed, list):  # the name of a class, and its fields
                return _plain(cast("list[object]", typed)[-1])
            return {name: _plain(item) for name, item in fields.items()}
        case list():
            return [_plain(item) for item in cast("list[object]", value)]
        case _:
            return value


def written_text(operation: OperationState) -> str:
    """The known state of a write."""
    return f"{operation.intent.item}: {_known(operation)}" if operation.intent.completes else _known(operation)


def _known(operation: OperationState) -> str:
    match operation.phase:
        case "succeeded":
            basis = operation.settlement.basis
            extra = "" if basis is None or basis.by == "returned" else f" ({basis_text(basis)})"
            extra += ", not read back in time" if operation.settlement.unverified else ""
            extra += f", incomplete: {', '.join(operation.settlement.missing)}" if operation.settlement.missing else ""
            shown = "done" if bytes(operation.settlement.result) == b"null" else stored(operation.settlement.result)
            serves = operation.intent.compensates or operation.intent.confirms
            shown = f"{operation.intent.tool}: {shown}" if serves else shown
            return ("done, its result was lost" if operation.settlement.lost else shown) + extra
        case "cancelled" if operation.links.reused:
            return f"{stored(operation.settlement.result)} (from {operation.links.reused}; nothing was sent)"
        case "unknown" if operation.links.amended:
            return f"compensated by {operation.links.compensated_by}, whether it happened or not"
        case "unknown" | "gated":
            title = operation.intent.title
            reason = operation.reason.removeprefix(f"{title}: " if title else "")  # the title stands before this
            return reason if operation.wants_approval else f"a person is asked: {reason or operation.phase}"
        case "failed" | "cancelled":
            code = f" [{operation.settlement.code}]" if operation.settlement.code else ""
            return f"{operation.phase}: {operation.reason}{code}"
        case _:
            return f"{operation.phase}{': waits for ' + operation.waits_for if operation.waits_for else ''}"


def basis_text(basis: Basis) -> str:
    """The source of the proof of an outcome."""
    match basis.by:
        case "returned":
            return "the call returned"
        case "evidence":
            return f"proven by evidence: {basis.name}" if basis.name else "proven by evidence"
        case "person":
            return f"{basis.name} said so" + (f": {basis.note}" if basis.note else "")
        case "rule":
            return "decided by rule"


def end_text(end: r.End) -> str:
    """The end of one call."""
    why = f": {end.why}" if end.why else ""
    match end.kind:
        case "returned" if end.unfit:
            return f"may have landed{why}"
        case "returned":
            return "returned" + (", but its result could not be stored" if end.lost else "") + _unread(end)
        case "rejected":
            return f"refused{why}" + (f" [{end.code}]" if end.code else "")
        case "not_sent":
            return f"nothing was sent{why}"
        case "key_in_progress":
            return f"the system is working on our key{why}"
        case "lost":
            return f"may have landed{why or ': its process died'}"
        case "ambiguous":
            return f"may have landed{why}" + _unread(end)


def answer_text(end: r.End) -> str:
    """The end of a call, from an answer that came later."""
    summary = "may have succeeded" if end.unfit else "succeeded" if end.kind == "returned" else "failed"
    by = f" (by {end.source})" if end.source else ""
    return f"{summary}: {end.why}{by}" if end.why else f"{summary}{by}"


def _unread(end: r.End) -> str:
    return "" if end.key_read else " (the tool never read its key)"


def report_notes(end: r.End) -> list[tuple[str, str]]:
    """Notes beside the end of a call: facts, and parts that are still to come."""
    facts = [("reported", f"{fact.name} is {stored(fact.value, 100)}") for fact in end.facts]
    return [*facts, *(("pending", item.name) for item in end.pending)]


def verdict_text(record: r.Verified) -> str:
    """The result of a verification, and whether it counts."""
    evidence = f": {record.evidence}" if record.evidence else ""
    match record.verdict:
        case "happened":
            return f"it is there{evidence}" + (f" (missing: {', '.join(record.missing)})" if record.missing else "")
        case "did_not_happen":
            return ("it is not there" if record.believable else "not there yet, too early to believe") + evidence
        case "cannot_tell":
            return f"cannot tell{evidence}"
        case "conflict":
            return f"something else is there{evidence}"


def read_text(record: r.ReadRecorded) -> str:
    """The result of a read."""
    if record.status == "failed":
        return f"failed: {record.reason}" + (f" [{record.code}]" if record.code else "")
    return stored(record.result) + (f" (attempt {record.attempts})" if record.attempts > 1 else "")


def decision_notes(record: r.DecisionRecorded) -> list[tuple[str, str]]:
    """The reason for a model's decision, the model, its confidence, and its usage."""
    notes = [("why", record.why)] if record.why else []
    facts = [record.model] if record.model else []
    facts += [f"confidence {record.confidence:g}"] if record.confidence is not None else []
    if record.input_tokens:  # otherwise the usage is unknown
        parts = (("cached", record.cached_tokens), ("of reasoning", record.reasoning_tokens))
        shown = ", ".join(f"{number} {name}" for name, number in parts if number)
        facts.append(f"{record.input_tokens} + {record.output_tokens} tokens" + (f" ({shown})" if shown else ""))
    if record.cost:
        facts.append(f"cost {record.cost:g}")
    if record.ms >= 1000:
        facts.append(f"{record.ms / 1000:.1f} s")
    return [*notes, ("model", ", ".join(facts))] if facts else notes


def retried_text(before: Usage) -> str:
    """The end of the call before, as far as it is on record: its model, and that the service refused it."""
    end = "refused, or was not reached" if before.refused else "gave no usable answer"
    return f": {before.model or 'the model'} {end}" if before.model or before.refused else ""


def message_text(record: r.MessageReceived) -> str:
    """The sender and the text of a message."""
    facts = ", ".join(f"{fact.name} is {stored(fact.value, 100)}" for fact in record.facts)
    return f"{record.by}: {record.text}" + (f" ({facts})" if facts else "") + (", and to stop" if record.stop else "")


def answered_text(answer: Answered) -> str:
    """The answer to a question, and its giver."""
    if answer.over:
        return f"{answer.by} took it over" + (f": {answer.note}" if answer.note else "")
    if answer.by:
        return f"{answer.value}, says {answer.by}"
    return "no answer came in time" if answer.late else f"{answer.value}: no answer came in time"


def record_note(record: r.OperationRecord | r.RunRecord | r.ReadRecorded) -> tuple[str, str]:
    """A label and a text for records that are shown as they are; empty for those that need no line."""
    match record:
        case r.OperationPlanned():
            return "planned", f"waits for {record.waits_for}" if record.waits_for else ""
        case r.WaitScheduled():
            return "wait", f"{record.ms / 1000:.1f} s: {record.rule or record.why}"
        case r.Reobserved():
            return "observed", f"the preconditions are {record.reading}: {stored(record.observed, 100)}"
        case r.OperationHeld():
            return "held", f"until {record.transaction} commits{standing_text(record.standing)}"
        case r.HoldReleased():
            return "released", "the transaction commits"
        case r.OperationDeferred():
            return "accepted", f"the answer comes later: {record.evidence}"
        case r.Contradicted():
            return "contradicted", record.evidence
        case r.OutcomeReused():
            return "reused", f"{record.source}: {record.why}"
        case r.CompensationLinked():
            return "compensation", f"made by {record.by}"
        case _:
            return transaction_note(record) or _person_note(record) or _run_note(record)


def standing_text(permission: str) -> str:
    """A remark that an operation was sent under a standing permission, if it was."""
    return f", on the standing permission {permission}" if permission else ""


def transaction_note(record: r.Record) -> tuple[str, str] | None:
    """A label and a text about a boundary; None for other records."""
    name = getattr(record, "transaction", "") or "the whole run"
    match record:
        case r.TransactionOpened():
            return "opened", name
        case r.TransactionCommitting():
            return "committing", name
        case r.CallerLeft() if record.step.endswith("/"):
            return "left", f"{record.step[:-1]}: the caller was cancelled before it ended; it is closed without it"
        case r.TransactionCommitted():
            return "committed", name
        case r.TransactionAborting():
            return "calls off", f"{name}: {record.reason}"
        case r.TransactionAbortedRecord():
            return "called off", f"{name}: {_undone_text(record)}"
        case r.TransactionParked():
            return "parked", f"{name}: {record.why}; {_undone_text(record)}"
        case r.TransactionResolved():
            what = "has what is stuck tried again" if record.word == "retry" else "accepts what is stuck as it is"
            return record.by, f"{what} in {name}" + (f": {record.note}" if record.note else "")
        case _:
            return None


def _undone_text(record: r.TransactionAbortedRecord | r.TransactionParked) -> str:
    undone, still = ", ".join(record.undone) or "nothing", ", ".join(record.still_standing) or "nothing"
    return f"undone: {undone}; still standing: {still}"


def ruling_text(ruling: Ruling, policy: str) -> str:
    """The ruling of a policy on an operation, and the rule behind it."""
    match ruling.word:
        case "auto":
            verdict = "it is sent without approval"
        case "sample":
            verdict = f"{'it was' if ruling.sampled else 'not'} drawn from {ruling.stratum!r}"
        case "refuse":
            verdict = "it is refused"
        case _:
            verdict = "a person is asked" if ruling.people == 1 else f"{ruling.people} people are asked"
    later = ", and reviewed afterwards" if ruling.shadow else ""
    why = f"; {ruling.why}" if ruling.why else ""
    return f"{verdict}{later}, by the rule {ruling.rule!r} of {policy}{why}"


def _person_note(record: r.OperationRecord | r.RunRecord | r.ReadRecorded) -> tuple[str, str] | None:
    match record:
        case r.Ruled():
            return "policy", ruling_text(record.ruling, record.policy)
        case r.OperationParked():
            return "asked", f"a person: {record.why}"
        case r.ApprovalGranted():
            return record.by, "approves it" + (f": {record.note}" if record.note else "")
        case r.ApprovalRefused(code="asked_back"):
            return record.by, f"asks back: {record.reason}"
        case r.ArgumentsEdited():
            note = f": {record.note}" if record.note else ""
            return record.by, f"proposes {stored(record.changes, 200)} instead{note}"
        case r.ResultGiven():
            note = f": {record.note}" if record.note else ""
            return record.by, f"answers in its place, and nothing is sent{note}"
        case r.ApprovalRefused():
            return record.by, "declines it" + (f": {record.reason}" if record.reason else "")
        case r.Resolved():
            return record.by, _WORDS[record.word] + (f": {record.evidence}" if record.evidence else "")
        case r.CommandApplied() if record.command in _BESIDE and not record.refused:
            return "", ""  # the ruling is on record beside it
        case _:
            return None


def _run_note(record: r.OperationRecord | r.RunRecord | r.ReadRecorded) -> tuple[str, str]:
    match record:
        case r.RunSuspendedRecord():
            return "suspended", record.reason
        case r.MessageReceived():
            return "told", message_text(record)
        case r.BudgetRaised():
            added = [f"{amount:,} {words_of(name)}" for name in COUNTED_LIMITS if (amount := getattr(record, name))]
            more = ", ".join([*added, *([record.money] if record.money else [])])
            return "budget", f"raised by {record.by}: {more} more" + (f"; {record.note}" if record.note else "")
        case r.StepsDropped():
            return "dropped", f"{', '.join(record.steps)}: {record.why}"
        case r.RunUndone():
            return "undone", record.summary.removeprefix("undone ")
        case r.RunReopened():
            return "reopened", f"by {record.by}" + (f": {record.note}" if record.note else "")
        case r.RunCompleted():
            return "completed", stored(record.result)
        case r.RunStoppedRecord():
            return "stopped", f"{record.reason}: {record.error}"
        case r.CommandApplied():
            label = {"take_over": "taken over", "child_ended": "child ended"}.get(record.command, record.command)
            by = f"by {record.by}" if record.by else ""
            return label, ": ".join(filter(None, (by, record.summary)))
        case _:
            return "", ""


class RenderedValue(msgspec.Struct, frozen=True):
    """One line about a value, labelled lines below it, whether it is a failure, and the value where a text wraps it."""

    text: str
    below: tuple[tuple[str, str], ...] = ()
    failed: bool = False
    value: r.Raw | None = None


class _Grounds(msgspec.Struct, frozen=True):
    corrected: tuple[str, ...] = ()


def is_bookkeeping(record: r.ValueRecorded) -> bool:
    """True if only replay needs it: the order in which steps ended, no corrected fact, and no lesson."""
    if record.what == DEPENDENCIES:
        return not msgspec.json.decode(record.value, type=_Grounds).corrected
    if record.what == ADVICE:
        return not msgspec.json.decode(record.value, type=ShownLessons).lessons
    return record.what in {"over", JOINED}


def render_value(record: r.ValueRecorded) -> RenderedValue:
    """A journaled value for a reader. One that is not about facts or plans is shown as it is stored."""
    known = _TELLERS.get(record.what.partition(":")[0])
    if known is None:
        return RenderedValue(stored(record.value))
    kind, tell = known
    return tell(msgspec.json.decode(record.value, type=kind))


def _fact(fact: Fact) -> RenderedValue:
    shown = stored(r.Raw(msgspec.json.encode(fact.value)))
    sure = f", inferred ({fact.confidence:.0%})" if fact.confidence < 1 else ""
    grounds = (("follows from", ", ".join(fact.inferred_from)),) if fact.inferred_from else ()
    return RenderedValue(f"{shown}{sure}", (("source", fact.source), *grounds))


def _weighed(weighed: Weighed) -> RenderedValue:
    why = "there is nothing to infer it from"
    if weighed.inferring is not None:
        why = f"a question costs {weighed.asking:g}, guessing {weighed.inferring:g}"
    return RenderedValue(weighed.chosen, (("why", why),))


def _correction(done: Correction) -> RenderedValue:
    parts = (
        ("unknown now", done.invalidated), ("dropped", done.dropped), ("under way", done.underway),
        ("was executed", done.executed),
    )  # fmt: skip
    return RenderedValue("corrected", tuple((label, ", ".join(names)) for label, names in parts if names))


def _plan(text: str) -> RenderedValue:
    plan = msgspec.json.decode(text, type=Plan)
    steps = (f"{step.id} ({' or '.join(call.tool for call in step.calls)})" for step in plan.steps)
    return RenderedValue(", ".join(steps), (("goal", plan.goal),), value=r.Raw(text.encode()))


def _chose(text: str) -> RenderedValue:
    chosen = msgspec.json.decode(text, type=Chosen)
    what = f"{chosen.chosen}: {chosen.tool}" if chosen.tool else chosen.chosen
    below = (("why", chosen.why),) if chosen.why else ()
    return RenderedValue(what, below, chosen.chosen == "failed", r.Raw(text.encode()))


def _judged(judged: JudgedConditions) -> RenderedValue:
    moment = "after its calls" if judged.after else "before its calls"
    held = f"{judged.held} holds" if judged.held else "no condition of abort_if holds"
    return RenderedValue(f"{moment}: {held}", (("judged", ", ".join(judged.conditions)),))


def _advice(shown: ShownLessons) -> RenderedValue:
    below = tuple((one.kind, one.text) for one in shown.lessons)
    return RenderedValue(f"lessons shown: {', '.join(one.id for one in shown.lessons)}", below)


_TELLERS: Final[dict[str, tuple[Any, Callable[[Any], RenderedValue]]]] = {
    ADVICE: (ShownLessons, _advice),
    "fact": (Fact, _fact),
    "weighed": (Weighed, _weighed),
    "corrected": (Correction, _correction),
    DEPENDENCIES: (
        _Grounds, lambda one: RenderedValue(f"it relies on what was corrected: {', '.join(one.corrected)}")
    ),
    "plan": (str, _plan),
    "chose": (str, _chose),
    JUDGED: (JudgedConditions, _judged),
}  # fmt: skip
