"""A run as a story: one entry per effect, read, decision and wait, with its events below.

Texts hold what tools, models and people wrote, as it was recorded. Sanitize them before showing them in a terminal or a
browser.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from beforehand.inspect.family import Family
from beforehand.inspect.model_text import said_text
from beforehand.inspect.render_records import (
    SHORT,
    answer_text,
    answered_text,
    decision_notes,
    end_text,
    is_bookkeeping,
    message_text,
    read_text,
    record_note,
    render_value,
    report_notes,
    retried_text,
    stored,
    verdict_text,
    written_text,
)
from beforehand.inspect.text import moment
from beforehand.model import records as r
from beforehand.model.operation import OperationState
from beforehand.model.questions import Answered
from beforehand.model.run_history import RunHistory, exit_of, is_about_operation
from beforehand.model.transaction import WHOLE_RUN
from beforehand.model.transitions import IllegalTransition, apply
from beforehand.model.waits import answers_with

Kind = Literal["write", "read", "decision", "value", "timer", "event", "question", "child", "run"]
Mark = Literal["ok", "failed", "unknown", "open", "asks", "off", "info"]

_PAUSES: Final = {"suspended", "stopped", "taken up", "reopened"}
_ENDS: Final[dict[type, Mark]] = {r.RunStoppedRecord: "failed", r.RunCompleted: "ok"}
_TOLD: Final = {"promise": "held, and sent at the commit"}
_MARKS: Final[dict[str, Mark]] = {"succeeded": "ok", "failed": "failed", "unknown": "unknown", "cancelled": "off",
                                  "gated": "asks"}  # fmt: skip


class TimelineNote(msgspec.Struct, omit_defaults=True):
    """One event of an entry. `took_ms` is how long a call lasted."""

    at: int
    label: str
    text: str = ""
    took_ms: int | None = None


class TimelineEntry(msgspec.Struct, omit_defaults=True):
    """One line of the story, and the notes below it.

    A step that continues after its run was suspended or resumed has another line there: lines are in order of
    time, and the last one of a step has its result. `took_ms` is how long the last call lasted.
    """

    at: int
    kind: Kind
    step: str
    mark: Mark = "info"
    name: str = ""
    status: str = ""
    text: str = ""
    title: str = ""
    arguments: r.Raw | None = None
    result: r.Raw | None = None
    notes: list[TimelineNote] = []
    took_ms: int | None = None


class Timeline(msgspec.Struct, omit_defaults=True):
    """A run from its first record to its last (or to the one that was asked for), `ended` being the time of that one.

    `cost` is what its model calls and tools reported to have spent, in their own unit, and `tokens` what the services
    of models counted. `stopped` is its reason in `model/stop_reasons.py`, empty unless it stopped. `family` are the run
    that started it and its child runs, where they were read.
    """

    run: str
    agent: str
    status: str
    reason: str
    started: int
    input: r.Raw
    records: int
    entries: list[TimelineEntry]
    ended: int = 0
    cost: float = 0
    program: str = ""
    stopped: str = ""
    tokens: int = 0
    family: Family | None = None


def timeline(run: str, records: Iterable[r.Record]) -> Timeline:
    """The story that these records tell."""
    builder = _TimelineBuilder(run)
    for record in records:
        builder.add(record)
    return builder.timeline()


def timeline_entries(
    run: str, records: Iterable[tuple[int, r.Record]], first: int, last: int, *, to_end: bool
) -> list[TimelineEntry]:
    """The entries to which one of the records `first` to `last` belongs.

    `records` may begin in the middle of the run, and end there unless `to_end`. A step that began before them has an
    entry without its arguments, and one that is open after them a note that it goes on.
    """
    builder = _TimelineBuilder(run, whole=False)
    at = 0
    for seq, record in records:
        before = len(builder.entries)
        builder.add(record)
        at = record.at
        if first <= seq <= last:
            builder.keep(record, before)
    found = builder.kept(to_end=to_end)
    for entry in () if to_end else found:
        if entry.mark in {"open", "asks"} and entry.step:
            entry.mark = "open"
            entry.notes.append(TimelineNote(at, "later", "it goes on after these records"))
    return found


class _TimelineBuilder:
    """Goes through the records once. `entries` are in order of their first record.

    `whole`: the records begin with the first one of the run. Otherwise a record about something that began earlier
    is shown and does not enter the fold.
    """

    def __init__(self, run: str, *, whole: bool = True) -> None:
        self.whole: Final = whole
        self.history = RunHistory(run)
        self.wanted: set[int] = set()  # the identities of the entries that are kept
        self.entries: list[TimelineEntry] = []
        self.steps: dict[str, TimelineEntry] = {}
        self.calls: dict[tuple[str, int], TimelineNote] = {}
        self.messages: dict[int, TimelineEntry] = {}
        self.deferred: set[str] = set()
        self.began: dict[str, int] = {}
        self.last_pause = -1  # the index of the last entry at which the run was suspended, stopped or resumed
        self.places: dict[str, int] = {}
        self.ended = 0
        self.cost = 0.0
        self.tokens = 0

    def add(self, record: r.Record) -> None:
        self._go_on(record)
        if self.whole or _is_known(self.history, record):
            self.history.add(record)
        self.ended = max(self.ended, record.at)
        self.cost += _cost_of(record)
        self.tokens += tokens_of(record)
        if is_about_operation(record):
            self._operation(record)
        else:
            self._rest(record)  # type: ignore[arg-type]  # a record without an operation is about the run

    def timeline(self) -> Timeline:
        started, stopped = self.history.lifecycle.started, self.history.lifecycle.stopped
        self._finish_all()
        return Timeline(
            self.history.run,
            started.agent if started else "",
            self.history.lifecycle.status,
            self.history.lifecycle.reason,
            started.at if started else 0,
            started.input if started else r.NOTHING,
            self.history.records,
            self.entries,
            self.ended,
            self.cost,
            started.program if started else "",
            stopped.reason if stopped else "",
            self.tokens,
        )

    def keep(self, record: r.Record, before: int) -> None:
        """Keep the entry of this record, and those that it added after the first `before`."""
        self.wanted.update(map(id, self.entries[before:]))
        if (entry := self.steps.get(getattr(record, "step", ""))) is not None:
            self.wanted.add(id(entry))

    def kept(self, *, to_end: bool) -> list[TimelineEntry]:
        """The entries that are kept, in order. A message is reported as undelivered only where no record follows."""
        self._finish_all(to_end=to_end)
        return [entry for entry in self.entries if id(entry) in self.wanted]

    def _finish_all(self, *, to_end: bool = True) -> None:
        messages = self.history.messages
        for message in messages.undelivered if to_end and messages is not None else ():
            text = "its code has not received it"
            self.messages[message.entry].notes.append(TimelineNote(message.at, "unheard", text))
        for step, operation in {**self.history.boundaries.former, **self.history.operations}.items():
            self._finish(self.steps[step], operation)

    def _go_on(self, record: r.Record) -> None:
        """Begin another line for a step whose run was paused in between; the earlier line keeps its state."""
        step = getattr(record, "step", "")
        if (
            step not in self.steps
            or self.places[step] > self.last_pause
            or isinstance(record, (r.AttemptEnded, r.MessageHeard))
        ):
            return
        before = self.steps.pop(step)
        if (operation := self.history.operations.get(step)) is not None:
            self._finish(before, operation)

    # --- operations --------------------------------------------------------------------------------------

    def _operation(self, record: r.OperationRecord) -> None:
        entry = self._entry(record.step, record.at, "write")
        match record:
            case r.AttemptStarted():
                self._started(entry, record)
            case r.AttemptEnded() | r.LateReport():
                self._ended(record.step, record.number, record.end, record.at)
            case r.OperationDeferred():
                self._accepted(record)
            case r.OperationSettled():
                if record.step not in self.history.operations:
                    entry.status, entry.mark = record.status, _MARKS.get(record.status, "open")
                    entry.result = record.result if record.status == "succeeded" else None
                if record.end is not None:
                    self._ended(record.step, record.number, record.end, record.at)
                if record.rule:
                    entry.notes.append(TimelineNote(record.at, "decided", f"{record.status}: {record.rule}"))
            case r.Verified():
                entry.notes.append(TimelineNote(record.at, "read back", verdict_text(record)))
            case _:
                label, text = record_note(record)
                if text:
                    entry.notes.append(TimelineNote(record.at, label, text))

    def _started(self, entry: TimelineEntry, record: r.AttemptStarted) -> None:
        note = self.calls[record.step, record.number] = TimelineNote(record.at, f"attempt {record.number}", "started")
        entry.notes.append(note)
        if record.intent is not None and record.intent.again:
            entry.notes.append(TimelineNote(record.at, "again", f"on purpose: {record.intent.again}"))
        if record.standing:
            entry.notes.append(TimelineNote(record.at, "allowed", f"on the standing permission {record.standing}"))

    def _accepted(self, record: r.OperationDeferred) -> None:
        """Note an accepted call: it is over, and its answer comes later."""
        notes = self.steps[record.step].notes
        self.deferred.add(record.step)
        if (note := self.calls.get((record.step, record.number))) is not None:
            note.text, note.took_ms = "accepted", max(0, record.at - note.at)
        notes.append(TimelineNote(record.at, *record_note(record)))
        notes.extend(TimelineNote(record.at, label, text) for label, text in report_notes(r.End(facts=record.facts)))

    def _ended(self, step: str, number: int, end: r.End, at: int) -> None:
        note = self.calls.get((step, number))
        if note is None:
            if not self.whole:  # the call was sent before the records that are told
                self.steps[step].notes.append(TimelineNote(at, f"attempt {number}", end_text(end)))
            return
        self.steps[step].notes.extend(TimelineNote(at, label, text) for label, text in report_notes(end))
        if note.took_ms is None:
            note.text, note.took_ms = end_text(end), max(0, at - note.at)
        elif step in self.deferred and end.kind in {"returned", "rejected"}:
            self.steps[step].notes.append(TimelineNote(at, "answered", answer_text(end)))
        else:
            by = f" (by {end.source})" if end.source else ""
            self.steps[step].notes.append(TimelineNote(at, "late", f"attempt {number} after all: {end_text(end)}{by}"))

    def _finish(self, entry: TimelineEntry, operation: OperationState) -> None:
        """The line itself, from the final state; a clean single attempt needs no lines below it."""
        entry.name, entry.status = operation.intent.tool, operation.phase
        entry.title, entry.arguments = operation.intent.title, operation.intent.arguments
        entry.mark = "ok" if operation.links.reused else _MARKS.get(operation.phase, "open")
        entry.text = written_text(operation)
        if operation.links.contradicted:
            entry.mark, entry.text = "asks", f"contradicted: {operation.links.contradicted[-1]}; recorded: {entry.text}"
        if operation.phase == "ready" and operation.approval.approved_digest:
            entry.text = "approved" + (", waits for a worker" if self.history.lifecycle.status == "suspended" else "")
        if entry.title:
            for note in entry.notes:
                note.text = note.text.removeprefix(f"a person: {entry.title}: ") if note.label == "asked" else note.text
        if operation.phase in {"gated", "unknown"}:  # the line itself has the question
            entry.notes = [note for note in entry.notes if note.label != "asked"]
        entry.took_ms = next((note.took_ms for note in reversed(entry.notes) if note.took_ms is not None), None)
        if operation.phase == "succeeded" or operation.links.reused:
            entry.result = operation.settlement.result
        if operation.phase == "succeeded" and [note.label for note in entry.notes] == ["attempt 1"]:
            entry.notes = []

    # --- everything else ---------------------------------------------------------------------------------

    def _rest(self, record: r.RunRecord | r.ReadRecorded) -> None:
        match record:
            case r.ReadRecorded():
                entry = self._entry(record.step, record.at, "read")
                entry.name, entry.status = record.tool, record.status
                entry.mark = "ok" if record.status == "succeeded" else "failed"
                entry.text, entry.arguments, entry.result = read_text(record), record.arguments, record.result
                notes = report_notes(r.End(facts=record.facts))
                entry.notes.extend(TimelineNote(record.at, label, text) for label, text in notes)
            case r.DecisionRecorded():
                self._decided(record)
            case r.DecisionStarted():
                entry = self._entry(record.step, record.at, "decision")
                entry.name, entry.mark, entry.status = record.function, "open", "asked"
                if record.number > 1:
                    text = f"asked again{retried_text(record.before)}"
                    entry.notes.append(TimelineNote(record.at, f"attempt {record.number}", text))
            case r.ValueRecorded():
                self._value(record)
            case r.TimerSet() | r.TimerFired() | r.EventReceived():
                self._timer(record)
            case r.QuestionAsked():
                self._asked(record)
            case r.Delivered() | r.CallerLeft():
                self._delivery(record)
            case r.MessageHeard() | r.HandedOff() | r.ChildStarted() | r.ChildJoined():
                self._came(record)
            case _:
                self._of_run(record)

    def _decided(self, record: r.DecisionRecorded) -> None:
        entry = self._entry(record.step, record.at, "decision")
        entry.name, entry.status, entry.result = record.function, record.status, record.result
        entry.mark = "ok" if record.status == "succeeded" else "failed"
        entry.text = said_text(record.result, record.function, SHORT) if record.status == "succeeded" else record.reason
        entry.arguments = None if record.seen == r.NOTHING else record.seen
        entry.notes.extend(TimelineNote(record.at, label, text) for label, text in decision_notes(record))

    def _value(self, record: r.ValueRecorded) -> None:
        if is_bookkeeping(record):
            return
        rendered = render_value(record)
        entry = self._entry(record.step, record.at, "value")
        entry.name, entry.text, entry.result = record.what, rendered.text, rendered.value or record.value
        entry.mark = "failed" if rendered.failed else "info"
        entry.notes.extend(TimelineNote(record.at, label, text) for label, text in rendered.below)

    def _timer(self, record: r.TimerSet | r.TimerFired | r.EventReceived) -> None:
        kind: Kind = "event" if getattr(record, "event", "") else "timer"
        if record.step in self.history.steps.questions:
            kind = "question"
        entry = self._entry(record.step, record.at, kind)
        match record:
            case r.TimerSet():
                entry.mark, entry.status = "open", "waiting"
                entry.text = f"waits for {record.event} {record.key}".rstrip() if record.event else "waits for its time"
                if record.until:
                    entry.text += f", until {moment(record.until)}"
            case r.TimerFired():
                entry.mark, entry.status = "ok", "over"
                entry.text = "the time was over"
                if record.step in self.history.steps.timers:
                    entry.text += f", after {max(0, record.at - self.began[record.step]) / 1000:.1f} s"
            case r.EventReceived() if record.step in self.history.steps.questions:
                answer = msgspec.json.decode(record.payload, type=Answered)
                entry.mark, entry.status, entry.notes = "ok", "answered", []
                entry.text = f"{self.history.steps.questions[record.step].question.text} {answered_text(answer)}"
            case r.EventReceived():
                entry.mark, entry.status, entry.result = "ok", "received", record.payload
                what, sender = f"{record.event} {record.key}".rstrip(), record.by or "a program"
                entry.text = f"{what} came from {sender}: {stored(record.payload)}"

    def _asked(self, record: r.QuestionAsked) -> None:
        entry = self._entry(record.step, record.at, "question")
        entry.mark, entry.status = "asks", "asked"
        entry.text = f"{record.question.text} ({record.question.expected})"
        if record.handoff is not None:
            entry.status, entry.text = "handed over", f"to {record.handoff.queue or 'people'}: {entry.text}"
        if record.until:
            entry.text += f", until {moment(record.until)}"
        kind = "question" if record.handoff is None else "handoff"
        commands = answers_with(self.history.run, kind, record.step)
        entry.notes.extend(TimelineNote(record.at, "answer with", command) for command in commands)

    def _delivery(self, record: r.Delivered | r.CallerLeft) -> None:
        if record.step.endswith("/"):  # the end of a transaction
            self._of_run(record)
            return
        kind: Kind = "write" if record.step in self.history.operations else "value"
        if isinstance(record, r.Delivered):
            label, text = "told", f"that it is {_TOLD.get(record.told, record.told)}"
        elif kind == "write":
            label, text = "left", "the caller was cancelled; the call went on without it"
        else:
            label, text = "left", "the caller was cancelled before it received this"
        self._entry(record.step, record.at, kind).notes.append(TimelineNote(record.at, label, text))

    def _came(self, record: r.MessageHeard | r.HandedOff | r.ChildStarted | r.ChildJoined) -> None:
        if isinstance(record, r.MessageHeard):
            self._delivered_messages(record)
            return
        if not isinstance(record, r.HandedOff):
            self._child(record)
            return
        entry = self._entry(record.step, record.at, "value")
        entry.name, entry.status, entry.arguments = record.agent, "handed over", record.given
        entry.text = f"the agent {record.agent} goes on" + (f": {record.why}" if record.why else "")

    def _child(self, record: r.ChildStarted | r.ChildJoined) -> None:
        entry = self._entry(record.step, record.at, "child")
        entry.name = record.run
        if isinstance(record, r.ChildStarted):
            where = f" in the queue {record.queue}" if record.queue else ""
            entry.mark, entry.status, entry.text = "info", "started", f"starts {record.run}{where}"
            return
        entry.mark, entry.status = "ok" if record.status == "completed" else "failed", record.status
        entry.result = record.result if record.status == "completed" else None
        why = stored(record.result) if record.status == "completed" else f"{record.reason or 'undone'}: {record.error}"
        entry.text = f"{record.run} {record.status}: {why}"

    def _delivered_messages(self, record: r.MessageHeard) -> None:
        messages = self.history.messages
        delivered = messages.delivered_at(record.step) if messages is not None else ()
        text = " and ".join(map(message_text, delivered))
        if not text and record.messages:  # they came before the records that are told
            text = "a message that arrived earlier"
        if not text:
            return
        if (entry := self.steps.get(record.step)) is None:
            entry = self._entry(record.step, record.at, "event")
            entry.status, entry.text = "heard", text
            return
        if record.step not in self.history.operations:
            entry.mark, entry.status = "off", "called off"
        entry.notes.append(TimelineNote(record.at, "heard", text))

    def _of_run(self, record: r.RunRecord) -> None:
        label, text = record_note(record)
        if isinstance(record, r.MessageReceived):
            self.messages[record.entry] = entry = TimelineEntry(record.at, "run", label, text=text, notes=[])
            self.entries.append(entry)
            return
        if isinstance(record, r.Claimed):
            claims = len(self.history.ownership.owners)
            label, text = ("taken up", f"again, by process number {claims}") if claims > 1 else ("", "")
            if not self.whole and record.token > 1:
                label, text = "taken up", "again"
        if isinstance(record, r.RunSuspendedRecord):
            text = self._without_question(text)
            if self._still_waits(text):
                return
        if label:
            mark = _ENDS.get(type(record), "info")
            if label in _PAUSES:
                self.last_pause = len(self.entries)
            frames = record.frames if isinstance(record, r.RunStoppedRecord) else ()
            notes = [TimelineNote(record.at, "in", str(frame)) for frame in frames]
            result = record.result if isinstance(record, r.RunCompleted) else None
            self.entries.append(TimelineEntry(record.at, "run", label, mark, text=text, result=result, notes=notes))

    def _without_question(self, reason: str) -> str:
        """The reason of the suspension; the question to a person is already in the line of its step."""
        for question, record in self.history.steps.questions.items():
            if question in self.steps and f"{record.question.text} ({record.question.expected})" in reason:
                return f"waits for a person's answer to {question}"
        step = reason.removeprefix(f"{self.history.run}/").partition(": ")[0]
        operation = self.history.operations.get(step)
        asked = operation is not None and operation.asks and step in self.steps
        return f"waits for a person's answer about {step}" if asked else reason

    def _still_waits(self, reason: str) -> bool:
        """True if the run was resumed and suspended again for the same reason, which needs no line."""
        if len(self.entries) < 2:
            return False
        before, between = self.entries[-2:]
        if (before.step, before.text, between.step) != ("suspended", reason, "taken up"):
            return False
        self.entries.pop()
        self.last_pause = len(self.entries) - 1
        return True

    def _entry(self, step: str, at: int, kind: Kind) -> TimelineEntry:
        found = self.steps.get(step)
        if found is None:
            found = self.steps[step] = TimelineEntry(at, kind, step, notes=[])
            self.began.setdefault(step, at)
            self.places[step] = len(self.entries)
            self.entries.append(found)
        return found


def _is_known(history: RunHistory, record: r.Record) -> bool:
    """True if everything that this record goes on with is in this history."""
    match record:
        case r.Delivered():
            return record.step in history.operations
        case r.CallerLeft():
            ends = map(exit_of, history.boundaries.by_name)
            return record.step in history.operations or record.step in history.steps.answers or record.step in ends
        case r.MessageHeard():
            return history.messages is not None and set(record.messages) <= history.messages.received.keys()
        case r.TransactionOpened():
            return True
        case r.TransactionAborting():
            return record.transaction in (WHOLE_RUN, *history.boundaries.by_name)
        case _ if is_about_operation(record):
            return record.step in history.operations or _begins(record)
        case _:
            return getattr(record, "transaction", None) in (None, *history.boundaries.by_name)


def _begins(record: r.OperationRecord) -> bool:
    """True if an operation may begin with this record."""
    try:
        apply(None, record)
    except IllegalTransition:
        return False
    return True


def _cost_of(record: r.Record) -> float:
    """The cost that a model or a tool reported with this record."""
    end = getattr(record, "end", None)
    return (getattr(record, "cost", None) or 0.0) + ((end.cost or 0.0) if end is not None else 0.0)


def tokens_of(record: r.Record) -> int:
    """The tokens of the model's calls that this record holds the usage of."""
    match record:
        case r.DecisionRecorded():
            return record.input_tokens + record.output_tokens
        case r.DecisionStarted():
            return record.before.input_tokens + record.before.output_tokens
        case _:
            return 0
