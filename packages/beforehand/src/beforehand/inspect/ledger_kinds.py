"""The type of the entries of each ledger stream, by the first part of the stream's name.

`beforehand doctor` decodes the whole ledger with it and names an entry that cannot be read before it is needed.
Streams of other distributions are added by the entry points `beforehand.ledger_kinds`; streams that no installed
distribution knows are passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Final

from beforehand.engine.breaker import ToolPause
from beforehand.engine.caches import PendingParameters
from beforehand.engine.conflicts import PendingNote
from beforehand.engine.deferred import ArrivedAnswer, AwaitingOperation
from beforehand.engine.operation_driver import ClaimNote
from beforehand.errors import Unreadable
from beforehand.extensions import extensions
from beforehand.inspect.monitors import FINDINGS, TALLIES
from beforehand.inspect.monitors.counting import PortionTallies
from beforehand.inspect.monitors.findings import FindingEntry
from beforehand.journal.entry_codec import REFUSED, SetAside, read
from beforehand.journal.port import LedgerEntry
from beforehand.model.commands import DELIVERIES, AnswerNotice, Command
from beforehand.model.contradiction import ANSWERED, CONTRADICTED, Opened
from beforehand.model.lessons import STREAM as AGENT_LESSONS
from beforehand.model.lessons import LessonEntry
from beforehand.model.memory import Heeded, Remembered, Spoken
from beforehand.model.pending import WAYS
from beforehand.model.policy import Policy
from beforehand.model.questions import Answered
from beforehand.model.shadow import Left
from beforehand.model.standing_permission import GIVEN, StandingPermission, Use
from beforehand.model.thresholds import Move
from beforehand.model.tool_history import HistoryEntry
from beforehand.model.webhooks import ENDPOINTS, OUTBOX, Note, Notice
from beforehand.people.assignments import Handing
from beforehand.queues.limits import STREAM, DeclaredLimits
from beforehand.queues.modes import QueueCommand, queue_of
from beforehand.queues.schedules import STREAM as SCHEDULES
from beforehand.queues.schedules import ScheduleEntry
from beforehand.webhooks.access_log import Access

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
    FINDINGS: FindingEntry,
    "history": HistoryEntry,
    "items": Handing,
    "journal": dict[str, str],
    AGENT_LESSONS: LessonEntry,
    "lessons": Heeded,
    "memory": Remembered,
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
    GIVEN: (StandingPermission, Use),
    TALLIES: PortionTallies,
    "thresholds": Move,
}
PLAIN: Final = frozenset({"reused"})
"""Streams whose bodies are names, not JSON."""


@cache
def kinds() -> Mapping[str, Any]:
    """The types of all streams that the installed distributions know."""
    found = dict(KINDS)
    for one in extensions("beforehand.ledger_kinds"):
        found |= one.load()
    return found


def kind_of(entry: LedgerEntry) -> Any:
    """The type of an entry; None for a stream that this version does not know."""
    name = entry.stream.partition("/")[0]
    if name == CONTRADICTED.rstrip("/"):
        return Command if entry.key.startswith(ANSWERED) else Opened
    if name == "shadow" and not entry.key:  # the call; the reviews of it are the console's
        return Left
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
