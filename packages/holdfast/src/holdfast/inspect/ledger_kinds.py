"""The type of the entries of each ledger stream, by the first part of the stream's name.

`holdfast doctor` decodes the whole ledger with it and names an entry that cannot be read before it is needed.
Streams of other distributions are added by the entry points `holdfast.ledger_kinds`; streams that no installed
distribution knows are passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final

from holdfast.engine.breaker import ToolPause
from holdfast.engine.caches import PendingParameters
from holdfast.engine.conflicts import ClaimNote, PendingNote
from holdfast.engine.deferred import ArrivedAnswer, AwaitingOperation
from holdfast.errors import Unreadable
from holdfast.extensions import extensions
from holdfast.inspect.monitors.passes import STREAM as MONITORS
from holdfast.inspect.monitors.passes import Acknowledgement
from holdfast.journal.entry_codec import REFUSED, SetAside, read
from holdfast.journal.port import LedgerEntry
from holdfast.model.commands import DELIVERIES, AnswerNotice, Command
from holdfast.model.contradiction import ANSWERED, CONTRADICTED, Opened
from holdfast.model.lessons import STREAM as AGENT_LESSONS
from holdfast.model.lessons import LessonEntry
from holdfast.model.memory import Heeded, Remembered, Spoken
from holdfast.model.pending import WAYS
from holdfast.model.policy import Policy
from holdfast.model.questions import Answered
from holdfast.model.shadow import Judged, Left
from holdfast.model.shadow_calls import ANSWERS, CALLS, ShadowAnswered, ShadowAsked
from holdfast.model.standing_permission import GIVEN, StandingPermission, Use
from holdfast.model.thresholds import Move
from holdfast.model.tool_history import HistoryEntry
from holdfast.model.webhooks import ENDPOINTS, OUTBOX, Note, Notice
from holdfast.people.assignments import Handing
from holdfast.queues.limits import STREAM, DeclaredLimits
from holdfast.queues.modes import QueueCommand, queue_of
from holdfast.queues.schedules import STREAM as SCHEDULES
from holdfast.queues.schedules import ScheduleEntry
from holdfast.webhooks.access_log import Access

KINDS: Final[Mapping[str, Any]] = {
    "access": Access,
    "arrived": ArrivedAnswer,
    "awaited": AwaitingOperation,
    "claim": ClaimNote,
    CONTRADICTED.rstrip("/"): (Opened, Command),
    "conversation": Spoken,
    DELIVERIES: AnswerNotice,
    "door": str,
    ENDPOINTS: Note,
    "event": Any,
    "history": HistoryEntry,
    "items": Handing,
    "journal": dict[str, str],
    AGENT_LESSONS: LessonEntry,
    "lessons": Heeded,
    "memory": Remembered,
    MONITORS: Acknowledgement,
    "once": ClaimNote,
    OUTBOX: Notice,
    "pause": ToolPause,
    "pending": PendingNote,
    WAYS.rstrip("/"): PendingParameters,
    "policies": Policy,
    "question": Answered,
    STREAM: (DeclaredLimits, QueueCommand),
    REFUSED: SetAside,
    "run": Command,
    SCHEDULES: ScheduleEntry,
    "shadow": (Left, Judged),
    ANSWERS: ShadowAnswered,
    CALLS: ShadowAsked,
    GIVEN: (StandingPermission, Use),
    "thresholds": Move,
}
PLAIN: Final = frozenset({"reused"})
"""Streams whose bodies are names, not JSON."""


@cache
def kinds() -> Mapping[str, Any]:
    """The types of all streams that the installed distributions know."""
    found = dict(KINDS)
    for one in extensions("holdfast.ledger_kinds"):
        found |= one.load()
    return found


def kind_of(entry: LedgerEntry) -> Any:
    """The type of an entry; None for a stream that this version does not know."""
    name = entry.stream.partition("/")[0]
    if name == CONTRADICTED.rstrip("/"):
        return Command if entry.key.startswith(ANSWERED) else Opened
    if name == "shadow":
        return Judged if entry.key else Left
    if name == STREAM:
        return QueueCommand if queue_of(entry.key) else DeclaredLimits
    if name == GIVEN:
        return StandingPermission if entry.stream == GIVEN else Use
    return kinds().get(name)


def unreadable(entries: Iterable[LedgerEntry]) -> list[SetAside]:
    """The entries that their readers refuse, and why."""
    found: list[SetAside] = []
    for entry in entries:
        try:
            if (kind := kind_of(entry)) is not None:
                read(entry, kind)
        except Unreadable as error:
            found.append(SetAside(entry.id, entry.stream, str(error.__cause__ or error.message)))
    return found
