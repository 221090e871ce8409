"""From the records of one run to spans. Pure: no clock, no library, no context.

A span ends with the record that ends what it stands for, and each record is added once, so no span is made twice. A
process that takes a run over adds the earlier records first: what was open when its predecessor died ends here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias

import msgspec

from beforehand.loop.model import ModelReply
from beforehand.model import records as r
from beforehand.model.ids import operation_id
from beforehand.model.usage import Usage
from beforehand.telemetry import conventions as c

SpanKind: TypeAlias = Literal["attempt", "chat", "verify", "wait", "person"]
Value: TypeAlias = str | int | float | bool
LOOP: Final = "model"
"""The name of the function that asks a model in the ready loop; its answer has the form of a message."""
LONGEST: Final = 16_384
"""The length in characters from which a content is cut."""


class SpanValue(msgspec.Struct, frozen=True):
    """A span that has ended. `error` is its `error.type`, empty where it ended well.

    `call` is the step and number of the attempt for which it stands.
    """

    kind: SpanKind
    name: str
    start_ms: int
    end_ms: int
    attributes: dict[str, Value]
    error: str = ""
    call: tuple[str, int] | None = None


class _Begun(msgspec.Struct, frozen=True):
    """A span that has begun, without what its end tells."""

    name: str
    start_ms: int
    attributes: dict[str, Value]


class RunSpans:
    """The open spans of one run. With `contents`, arguments and results are attributes, as they are stored.

    `ending` is the status that the last record left the run in, and the class of its error. `seq` is kept
    by the caller: the number of the newest record that it has taken up.
    """

    def __init__(self, run: str, *, contents: bool = False) -> None:
        self.run: Final = run
        self.contents: Final = contents
        self.seq = 0
        self.ending: tuple[str, str] = ("", "")
        self._tools: dict[str, str] = {}
        self._open: dict[tuple[SpanKind, str, int], _Begun] = {}
        self._ended: list[SpanValue] = []

    def add(self, record: r.Record) -> list[SpanValue]:
        """The spans that this record ends."""
        self._ended = []
        step: str = getattr(record, "step", "")
        intent: r.Intent | None = getattr(record, "intent", None)
        if intent is not None:
            self._tools[step] = intent.tool
        if step and not isinstance(record, _ASIDE):
            self._end("wait", step, record.at)
        add = _ADD.get(type(record))
        if add is not None:
            add(self, record)
        return self._ended

    # --- begin and end -------------------------------------------------------------------------------------------

    def begin(self, kind: SpanKind, step: str, at: int, attributes: dict[str, Value] | None = None, n: int = 0) -> None:
        """Begin a span, unless it has begun."""
        self._open.setdefault((kind, step, n), _Begun(self.name(kind, step), at, attributes or {}))

    def name(self, kind: SpanKind, step: str) -> str:
        """The name of a span: its operation, and the tool if it is about one."""
        return f"{_OPERATIONS[kind]} {self._tools.get(step, '')}".rstrip()

    def _end(
        self, kind: SpanKind, step: str, at: int, more: dict[str, Value] | None = None, *, n: int = 0, error: str = ""
    ) -> None:
        begun = self._open.pop((kind, step, n), None)
        if begun is None:
            return
        attributes: dict[str, Value] = {c.OPERATION: _OPERATIONS[kind], c.RUN: self.run, c.STEP: step}
        if (tool := self._tools.get(step)) is not None:
            attributes[c.TOOL_NAME] = tool
            attributes[c.TOOL_CALL_ID] = operation_id(self.run, step)
        attributes |= begun.attributes
        attributes |= more or {}
        call = (step, n) if kind == "attempt" else None
        # A wall clock may be set back between two records; a span never ends before it begins.
        end_ms = max(begun.start_ms, at)
        self._ended.append(SpanValue(kind, begun.name, begun.start_ms, end_ms, attributes, error, call))

    def content(self, name: str, stored: r.Raw) -> dict[str, Value]:
        """A content as an attribute, if contents are wanted."""
        return {name: bytes(stored).decode()[:LONGEST]} if self.contents else {}

    # --- one method for the records of each kind -------------------------------------------------------------------

    def claimed(self, record: r.Claimed) -> None:
        """A process takes the run: calls of models that were under way are lost with the process before."""
        for step in [step for kind, step, _ in self._open if kind == "chat"]:
            self._end("chat", step, record.at, error="lost")

    def attempt_started(self, record: r.AttemptStarted) -> None:
        """A call of a tool is about to begin."""
        arguments = {} if record.intent is None else self.content(c.TOOL_ARGUMENTS, record.intent.arguments)
        self.begin("attempt", record.step, record.at, {c.ATTEMPT: record.number, **arguments}, record.number)

    def attempt_over(self, step: str, number: int, at: int, end: r.End, result: r.Raw | None = None) -> None:
        """A call of a tool is over. The record of an outcome has its result beside the end."""
        found = self.content(c.TOOL_RESULT, result or end.result) if end.kind == "returned" else {}
        error = "" if end.kind == "returned" else end.code or end.kind
        self._end("attempt", step, at, {c.END: end.kind, **found}, n=number, error=error)

    def settled(self, record: r.OperationSettled) -> None:
        """The outcome, often with the end of the last call. An unknown one is a question to a person."""
        if record.end is not None:
            self.attempt_over(record.step, record.number, record.at, record.end, record.result)
        if record.status == "unknown":
            self.asks(record.step, record, record.rule or "unknown")
            return
        self.answered(record.step, record)
        self._tools.pop(record.step, None)

    def deferred(self, record: r.OperationDeferred) -> None:
        """The system accepted the call, and answers later."""
        self._end("attempt", record.step, record.at, {c.END: "deferred"}, n=record.number)
        self.waits(record, "deferred")

    def read(self, record: r.ReadRecorded) -> None:
        """A read. Its record tells only when it was over; the process that made the call knows when it began."""
        self._tools[record.step] = record.tool
        error = "" if record.status == "succeeded" else record.code or "failed"
        more: dict[str, Value] = {c.ATTEMPT: record.attempts, c.END: record.status}
        more |= self.content(c.TOOL_ARGUMENTS, record.arguments) | self.content(c.TOOL_RESULT, record.result)
        self.begin("attempt", record.step, record.at, more, record.attempts)
        self._end("attempt", record.step, record.at, n=record.attempts, error=error)
        del self._tools[record.step]

    def verified(self, record: r.Verified) -> None:
        """The effect was looked up. The record has the moment of the answer, so the span has no length."""
        self.begin("verify", record.step, record.at, {c.VERDICT: record.verdict})
        self._end("verify", record.step, record.at)

    def waits(self, record: Any, reason: str) -> None:
        """The operation waits for its next attempt, or the run for a time or an event."""
        self.begin("wait", record.step, record.at, {c.REASON: reason})

    def asks(self, about: str, record: Any, reason: str) -> None:
        """A person is asked about a step or a transaction."""
        self.begin("person", about, record.at, {c.REASON: reason})

    def answered(self, about: str, record: Any) -> None:
        """A person has answered, or their time is over."""
        self._end("person", about, record.at)

    def decision_started(self, record: r.DecisionStarted) -> None:
        """A model is asked; the call before it failed."""
        usage, error = usage_attributes(record.before), "refused" if record.before.refused else "failed"
        self._end("chat", record.step, record.at, usage, error=error)
        self.begin("chat", record.step, record.at)

    def decision_recorded(self, record: r.DecisionRecorded) -> None:
        """A model has answered, or is given up."""
        failed = record.status == "failed"
        self.begin("chat", record.step, record.at - record.ms)
        more = usage_attributes(record.usage) | {c.FUNCTION: record.function}
        if self.contents and not failed and record.function == LOOP:
            more[c.OUTPUT_MESSAGES] = c.message_text(msgspec.json.decode(record.result, type=ModelReply))[:LONGEST]
        self._end("chat", record.step, record.at, more, error=(record.code or "failed") if failed else "")
        name = f"{c.CHAT} {record.model or record.function}"
        self._ended[-1] = msgspec.structs.replace(self._ended[-1], name=name)

    def status(self, record: r.Record) -> None:
        """The run ends, or is suspended."""
        reason = record.reason if isinstance(record, r.RunStoppedRecord) else ""
        self.ending = _STATUS[type(record)], reason


def usage_attributes(usage: Usage) -> dict[str, Value]:
    """The usage of one call of a model. Counts that are zero are left out: they may be unknown."""
    found: dict[str, Value] = {name: count for key, name in c.USAGE.items() if (count := getattr(usage, key))}
    texts = {c.RESPONSE_MODEL: usage.model, c.RESPONSE_ID: usage.request, c.PROVIDER: usage.service or c.OTHER}
    return found | {name: text for name, text in texts.items() if text}


_OPERATIONS: Final[dict[SpanKind, str]] = {
    "attempt": c.EXECUTE_TOOL, "chat": c.CHAT, "verify": c.VERIFY, "wait": c.WAIT, "person": c.ASK_PERSON,
}  # fmt: skip
_STATUS: Final[dict[type, str]] = {
    r.RunCompleted: "completed",
    r.RunStoppedRecord: "stopped",
    r.RunSuspendedRecord: "suspended",
    r.RunUndone: "undone",
}
_ANSWERS: Final[tuple[type, ...]] = (
    r.EventReceived, r.ApprovalGranted, r.ApprovalRefused, r.ArgumentsEdited, r.ResultGiven, r.Resolved,
)  # fmt: skip
_ASIDE: Final = (r.Reobserved, r.Contradicted, r.LateReport, r.CallerLeft, r.Delivered)
"""Records about a step after which it still waits as before."""
_ADD: Final[dict[type, Callable[[RunSpans, Any], None]]] = {
    r.Claimed: RunSpans.claimed,
    r.AttemptStarted: RunSpans.attempt_started,
    r.AttemptEnded: lambda spans, one: spans.attempt_over(one.step, one.number, one.at, one.end),
    r.OperationSettled: RunSpans.settled,
    r.OperationDeferred: RunSpans.deferred,
    r.ReadRecorded: RunSpans.read,
    r.Verified: RunSpans.verified,
    r.WaitScheduled: lambda spans, one: spans.waits(one, one.rule or "wait"),
    r.TimerSet: lambda spans, one: spans.waits(one, "event" if one.event else "sleep"),
    r.QuestionAsked: lambda spans, one: spans.asks(one.step, one, "question"),
    r.OperationParked: lambda spans, one: spans.asks(one.step, one, one.rule or "question"),
    r.TransactionParked: lambda spans, one: spans.asks(one.transaction, one, "transaction"),
    r.TransactionResolved: lambda spans, one: spans.answered(one.transaction, one),
    **dict.fromkeys(_ANSWERS, lambda spans, one: spans.answered(one.step, one)),
    r.DecisionStarted: RunSpans.decision_started,
    r.DecisionRecorded: RunSpans.decision_recorded,
    **dict.fromkeys(_STATUS, RunSpans.status),
}
