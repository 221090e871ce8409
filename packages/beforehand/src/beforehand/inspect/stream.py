"""`app.stream`: a run as its caller watches it. Finished events come from the records, each with its position.

A record is durable before its event is given, so a reader that passes the position of the last event it has seen
receives every later event once, in whichever process it asks. Text deltas are provisional and have no position of
their own: an `answer` event replaces them, and `turn_restarted` says that those of its step are void.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final, Literal, TypeAlias

import msgspec

from beforehand.engine.engine import Engine
from beforehand.engine.environment import checked_loop
from beforehand.engine.process import Piece
from beforehand.inspect.reader import JournalReader
from beforehand.loop.model import ModelCall, ModelReply
from beforehand.model import records as r

StreamKind: TypeAlias = Literal[
    "started", "turn_started", "turn_restarted", "text_delta", "answer", "decision", "tool_call", "outcome", "question",
    "answered", "message", "suspended", "completed", "stopped",
]  # fmt: skip
LOOK_S: Final = 0.05
"""The time between two looks for records, where this process commits none of the run."""
MODEL: Final = "model"
"""The name of the function that asks a model in a loop; other decisions are those of agent code."""


class StreamEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """One event of a run. `position` is that of its record; a delta has the position of the previous event.

    `step` is the step or operation of the event, and `tool` its tool. `text` is a part of an answer, an answer, a
    question, or the reason of an outcome. `status` and `value` are those of an outcome or a result.
    """

    kind: StreamKind
    position: int
    step: str = ""
    text: str = ""
    tool: str = ""
    status: str = ""
    value: Any = None
    calls: tuple[ModelCall, ...] = ()


async def events_of(
    engine: Engine, run: str, conclude: Callable[[], Awaitable[Any]], after: int = 0
) -> AsyncGenerator[StreamEvent]:
    """The events of a run after that position, until `conclude` is done and every record has been read."""
    checked_loop()
    ended = asyncio.ensure_future(conclude())
    ended.add_done_callback(lambda done: done.cancelled() or done.exception())  # on record: asyncio must not warn
    stream = _Stream(engine, run, after)
    remove = engine.live_text.read(run, stream.take)
    try:
        while True:
            last = ended.done()  # asked before the records are read: those of its end are among them
            async for event in stream.recorded() if last else stream.due():
                yield event
            if last:
                ended.result()
                return
            await stream.news(ended)
            async for event in stream.events():
                yield event
    finally:
        remove()


class _Stream:
    """One reader of a run: what it has read of the records, and the pieces of text that it has not given yet."""

    def __init__(self, engine: Engine, run: str, after: int) -> None:
        self._engine = engine
        self._run = run
        self._after = after
        self._records = JournalReader(engine.journal, engine.identity)
        self._reader = EventReader()
        self._pieces: deque[Piece] = deque()
        self._came = asyncio.Event()
        self._speaking = 0
        self._looked_s = -LOOK_S

    async def due(self) -> AsyncGenerator[StreamEvent]:
        """As `recorded`, if it is time to look: not for each piece of text, which would wait for the look."""
        now = asyncio.get_running_loop().time()
        if now - self._looked_s < LOOK_S:
            return
        self._looked_s = now
        async for event in self.recorded():
            yield event

    def take(self, piece: Piece | None) -> None:
        """Take a piece of text that a model says now, or the news that this process has committed records."""
        if piece is None:
            self._looked_s = -LOOK_S
        else:
            self._pieces.append(piece)
        self._came.set()

    async def news(self, ended: asyncio.Future[Any]) -> None:
        """Return when text has come, after a while, or when the run has ended."""
        came = asyncio.ensure_future(self._came.wait())
        pause = asyncio.ensure_future(self._engine.environment.clock.sleep(LOOK_S))
        try:
            await asyncio.wait({came, pause, ended}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            came.cancel()
            pause.cancel()
        self._came.clear()

    async def recorded(self) -> AsyncGenerator[StreamEvent]:
        """The events of the records that were not read yet."""
        async for row, record in self._records.records(self._run, self._reader.position):
            event = self._reader.event(row.seq, record)
            if event is not None and event.position > self._after:
                yield event

    async def events(self) -> AsyncGenerator[StreamEvent]:
        """The deltas of what came, each after the events before it. Those of an answer that was given are left out."""
        while self._pieces:
            piece = self._pieces.popleft()
            if piece.speaker != self._speaking:
                self._speaking = piece.speaker
                async for event in self._begun():
                    yield event
            if piece.step not in self._reader.answered:
                yield StreamEvent("text_delta", max(self._reader.position, self._after), piece.step, piece.text)

    async def _begun(self) -> AsyncGenerator[StreamEvent]:
        """The events before the first piece of an answer. Its start is durable then, so a crash does not hide it."""
        active = self._engine.active_runs.get(self._run)
        if active is not None:
            await active.log.flush()
        async for event in self.recorded():
            yield event


class EventReader:
    """Makes events of the records of one run, in their order."""

    def __init__(self) -> None:
        self._tools: dict[str, str] = {}
        self._tried: set[str] = set()
        self.answered: set[str] = set()
        self.position = 0

    def event(self, position: int, record: r.Record) -> StreamEvent | None:
        """The event of the record; None where it is the runtime's own business."""
        self.position = position
        make = _EVENTS.get(type(record))
        event = None if make is None else make(self, record)
        return None if event is None else msgspec.structs.replace(event, position=position)

    def call(self, step: str, intent: r.Intent | None) -> StreamEvent | None:
        """The call of a tool, when its first record comes."""
        if intent is None or step in self._tools:
            return None
        self._tools[step] = intent.tool
        return StreamEvent("tool_call", 0, step, tool=intent.tool, value=msgspec.json.decode(intent.arguments))

    def about(self, record: Any, kind: StreamKind, text: str, status: str = "", value: Any = None) -> StreamEvent:
        """An event about the operation of a record, with its tool."""
        return StreamEvent(kind, 0, record.step, text, self._tools.get(record.step, ""), status, value)

    def turn(self, step: str) -> StreamEvent:
        """The start of a call of a model: the first one of its step, or another one, after an error or a crash."""
        again = step in self._tried
        self._tried.add(step)
        return StreamEvent("turn_restarted" if again else "turn_started", 0, step)


def _decision(reader: EventReader, record: r.DecisionRecorded) -> StreamEvent:
    reader.answered.add(record.step)
    if record.function != MODEL:
        return StreamEvent("decision", 0, record.step, record.reason, status=record.status, value=_value(record.result))
    if record.status == "failed":
        return StreamEvent("answer", 0, record.step, record.reason, status="failed")
    reply = msgspec.json.decode(record.result, type=ModelReply)
    return StreamEvent("answer", 0, record.step, reply.text, status="succeeded", calls=reply.calls)


def _resolved(reader: EventReader, record: r.Resolved) -> StreamEvent:
    """The word of a person about a call: what became of it, or that it is attempted again."""
    if record.orders:
        return reader.about(record, "answered", record.evidence, value=record.word)
    status = "succeeded" if record.word == "happened" else "failed"
    return reader.about(record, "outcome", record.evidence, status, _value(record.result))


def _reused(reader: EventReader, record: r.OutcomeReused) -> StreamEvent:
    event = reader.about(record, "outcome", f"{record.source} did it already", "reused", _value(record.result))
    return event if record.intent is None else msgspec.structs.replace(event, tool=record.intent.tool)


def _refused(_: EventReader, record: r.ValueRecorded) -> StreamEvent | None:
    """A call that was refused before it became an operation: an unknown tool, arguments that do not fit."""
    if record.what != "refused":
        return None
    value: dict[str, str] = msgspec.json.decode(record.value)
    return StreamEvent("outcome", 0, record.step, value["reason"], status="failed")


def _value(result: r.Raw) -> Any:
    return msgspec.json.decode(result)


_EVENTS: Final[dict[type, Callable[[EventReader, Any], StreamEvent | None]]] = {
    r.RunStarted: lambda _, record: StreamEvent("started", 0, text=record.agent),
    r.DecisionStarted: lambda reader, record: reader.turn(record.step),
    r.DecisionRecorded: _decision,
    r.OperationPlanned: lambda reader, record: reader.call(record.step, record.intent),
    r.AttemptStarted: lambda reader, record: reader.call(record.step, record.intent),
    r.OperationHeld: lambda reader, record: reader.call(record.step, record.intent),
    r.ReadRecorded: lambda _, one: StreamEvent(
        "outcome", 0, one.step, one.reason, one.tool, one.status, _value(one.result)
    ),
    r.OperationSettled: lambda reader, one: reader.about(  # where it is unknown, a person is asked
        one, "question" if one.status == "unknown" else "outcome", one.reason, one.status, _value(one.result)
    ),
    r.OutcomeReused: _reused,
    r.OperationDeferred: lambda reader, one: reader.about(one, "outcome", one.evidence, "pending"),
    r.Resolved: _resolved,
    r.ApprovalGranted: lambda reader, one: reader.about(one, "answered", one.note, value="approved"),
    r.ApprovalRefused: lambda reader, one: reader.about(one, "outcome", one.reason, "failed"),
    r.ResultGiven: lambda reader, one: reader.about(one, "outcome", one.note, "succeeded", _value(one.result)),
    r.OperationParked: lambda reader, one: reader.about(one, "question", one.why),
    r.ValueRecorded: _refused,
    r.QuestionAsked: lambda _, record: StreamEvent("question", 0, record.step, record.question.text),
    r.EventReceived: lambda _, record: StreamEvent("answered", 0, record.step, value=_value(record.payload)),
    r.MessageReceived: lambda _, record: StreamEvent("message", 0, text=record.text, value=record.by),
    r.RunSuspendedRecord: lambda _, record: StreamEvent("suspended", 0, text=record.reason),
    r.RunCompleted: lambda _, record: StreamEvent("completed", 0, value=_value(record.result)),
    r.RunStoppedRecord: lambda _, record: StreamEvent("stopped", 0, text=record.error, status=record.reason),
}
