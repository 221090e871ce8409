"""Reading a journal without taking part: runs, their records, one operation."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final, NoReturn, TypeAlias

import msgspec

from beforehand.errors import ChainBroken, UnknownRun, Unreadable, UsageError
from beforehand.journal.backend_rules import FOREVER_MS
from beforehand.journal.cells import last_firing, read_hint
from beforehand.journal.entry_codec import read, readable, set_aside
from beforehand.journal.port import (
    EVERY_BODY,
    BodyFilter,
    Identity,
    JournalReads,
    Row,
    RunRow,
    RunStatus,
    RunWaits,
    StatusFilter,
)
from beforehand.model.contradiction import ANSWERED, CONTRADICTED, Opened, contradiction_stream
from beforehand.model.ids import CHILD_FIELD, CHILD_MARK, split_operation_id
from beforehand.model.shell import to_type
from beforehand.model.system import HEALTH, Trouble, is_system, troubles_in
from beforehand.model.waits import UNREADABLE, ListedWait, decode_waits

if TYPE_CHECKING:
    from beforehand.engine.caches import RecentHistories
    from beforehand.model import records as r
    from beforehand.model.operation import OperationState
    from beforehand.model.records import Record
    from beforehand.model.run_history import RunHistory
    from beforehand.queues.schedules import KnownSchedule, ScheduleBook, ScheduleEntry

PAGE: Final = 1000
WHOLE: Final = 10_000
"""How many lines of the listing are read at once where all are wanted."""
ReadRecord: TypeAlias = "tuple[Row, Record]"


class Listing(msgspec.Struct, frozen=True):
    """Filter of runs. `since_ms`: begun then or later; `everything`: those of the runtime itself, too.

    Without `children`, runs that other runs started are left out.
    """

    status: RunStatus | None = None
    agent: str = ""
    since_ms: int = 0
    search: str = ""
    everything: bool = False
    children: bool = True

    def fits(self, row: RunRow) -> bool:
        """True if the run matches; the query checks its status."""
        return (
            self.agent in ("", row.agent)
            and row.created_ms >= self.since_ms
            and (not self.search or self.search.lower() in f"{row.run}\n{row.reason}".lower())
            and (self.everything or not is_system(row.agent))
        )


class JournalReader:
    """Questions to an open journal. Nothing here writes.

    With `recent`, the cache of an engine, the history of a run is read once, and verified.
    """

    def __init__(self, journal: JournalReads, identity: Identity, recent: RecentHistories | None = None) -> None:
        self.journal: Final = journal
        self.identity: Final = identity
        self._recent: Final = recent

    async def page(self, status: RunStatus | None, limit: int, after: str, *, everything: bool) -> list[RunRow]:
        """The next `limit` lines of the listing; `everything`: those of the system itself, too."""
        found: list[RunRow] = []
        while len(found) < limit and (rows := await self.journal.runs(status=status, limit=PAGE, after=after)):
            found.extend(row for row in rows if everything or not is_system(row.agent))
            after = rows[-1].run
        return found[:limit]

    async def newest(self, only: Listing, limit: int, after: str = "") -> list[RunRow]:
        """The next `limit` runs that match, the newest first; `after`: those begun before that run."""
        found: list[RunRow] = []
        while len(found) < limit:
            rows = await self.journal.runs(status=only.status, limit=PAGE, after=after, newest=True)
            fitting = [row for row in rows if only.fits(row)]
            found.extend([row for row in fitting if only.children or not await self.is_child(row.run)])
            if len(rows) < PAGE or rows[-1].created_ms < only.since_ms:
                break
            after = rows[-1].run
        return found[:limit]

    async def is_child(self, run: str) -> bool:
        """True if another run started this one."""
        if CHILD_MARK not in run:  # the name of a child has it; a person may use it as well
            return False
        rows = await self.journal.read(run, limit=1)
        return bool(rows) and CHILD_FIELD in rows[0].body

    async def every_run(self, *, status: StatusFilter | None = None, wakeable: bool = False) -> AsyncIterator[RunRow]:
        """The whole listing, read page by page."""
        after, more = "", True
        while more:
            rows = await self.journal.runs(status=status, wakeable=wakeable, limit=WHOLE, after=after)
            for row in rows:
                yield row
            if more := len(rows) == WHOLE:  # a page that is not full is the last one
                after = rows[-1].run

    async def row(self, run: str) -> RunRow:
        """The row of a run in the listing. Raises `UnknownRun`."""
        rows = await self.journal.runs(run=run)
        if not rows:
            raise UnknownRun(f"run {run} is not in this journal", next_step="see the runs: beforehand ps")
        return rows[0]

    async def records(
        self, run: str, after: int = 0, *kinds: type[msgspec.Struct], naming: tuple[str, ...] = ()
    ) -> AsyncIterator[ReadRecord]:
        """The records of a run in order, from number `after` + 1 on, each with the row that holds it.

        Given `kinds` or `naming`, only records of these kinds and those that contain one of these texts (as a value or
        as the name of a field) are read.
        """
        from beforehand.journal.record_codec import decode, prefixes_of  # noqa: PLC0415 - a list is read without records

        texts = tuple(msgspec.json.encode(one) for one in naming)
        only = BodyFilter(prefixes_of(*kinds), texts) if kinds or texts else EVERY_BODY
        while rows := await self.journal.read(run, after, PAGE, only=only):
            for row in rows:
                if only.fits(row.body):
                    yield row, decode(row.body)
            after = rows[-1].seq

    async def records_between(self, run: str, after: int, last: int) -> list[ReadRecord]:
        """The records of a run from number `after` + 1 to `last`."""
        return _decoded(await self.journal.read(run, after, last - after))

    async def newest_records(self, run: str, limit: int) -> list[ReadRecord]:
        """The newest records of a run, in order. Raises `ChainBroken` where it has none."""
        return _decoded(await self.journal.read(run, 0, limit, newest=True)) or _raise_missing(run)

    async def readable_records(self, run: str, *kinds: type[msgspec.Struct]) -> AsyncIterator[ReadRecord]:
        """As `records`, up to the first unreadable one: for counts over many runs."""
        with contextlib.suppress(Unreadable):
            async for one in self.records(run, 0, *kinds):
                yield one

    async def all_records(self, run: str) -> list[ReadRecord]:
        """All records of a run at once. Raises `UnknownRun`, and `ChainBroken` where they were removed."""
        await self.row(run)
        return [all_records async for all_records in self.records(run)] or _raise_missing(run)

    async def history(self, run: str) -> RunHistory:
        """Everything in the records of a run. Raises `UnknownRun`, and `ChainBroken` over an engine's cache."""
        from beforehand.model.run_history import RunHistory  # noqa: PLC0415 - as above

        await self.row(run)
        if self._recent is not None:
            return await self._recent.read(run, self.identity.namespace)
        history = RunHistory(run)
        async for _, record in self.records(run):
            history.add(record)
        return history

    async def catch_up(self, history: RunHistory) -> RunHistory:
        """Add the records that were appended since this history was read; only these are read."""
        async for _, record in self.records(history.run, after=history.records):
            history.add(record)
        return history

    async def operation(self, operation: str) -> tuple[RunHistory, OperationState]:
        """One operation by its full name. Raises `UnknownRun` or `UsageError`."""
        run, step = split_operation_id(operation)
        history = await self.history(run)
        return history, operation_in(history, step)

    async def has_used(self, tool: str, *, runs: int = 200) -> bool:
        """True if one of the first `runs` of the listing has used a tool of that name."""
        seen = 0
        async for row in self.every_run():
            seen += 1
            async for _, record in self.readable_records(row.run):
                intent = getattr(record, "intent", None)
                if tool in (getattr(record, "tool", ""), intent.tool if intent is not None else ""):
                    return True
            if seen >= runs:
                break
        return False

    async def contradictions(self, stream: str = CONTRADICTED) -> list[Opened]:
        """The newest contradiction of each operation that has one without an answer, the oldest first."""
        newest: dict[str, Opened] = {}
        for entry in await self.journal.entries(stream):
            if not entry.key.startswith(ANSWERED):
                for _, one in await readable(self.journal, (entry,), Opened):
                    newest[entry.stream] = one
            elif (opened := newest.get(entry.stream)) is not None and opened.number <= int(entry.key[len(ANSWERED) :]):
                del newest[entry.stream]
        return list(newest.values())

    async def contradicted_steps(self) -> dict[str, list[str]]:
        """The steps with a contradiction without an answer, by run."""
        found: dict[str, list[str]] = {}
        for one in await self.contradictions():
            found.setdefault(one.run, []).append(one.step)
        return found

    async def is_contradicted(self, run: str, step: str) -> bool:
        """True if an operation has a contradiction without an answer."""
        return bool(await self.contradictions(contradiction_stream(run, step)))

    async def pauses(self) -> dict[str, str]:
        """Tools that are paused, and why."""
        from beforehand.engine.breaker import paused_tools  # noqa: PLC0415 - as above

        return await paused_tools(self.journal)


def _decoded(rows: list[Row]) -> list[ReadRecord]:
    from beforehand.journal.record_codec import decode  # noqa: PLC0415 - a list is read without records

    return [(row, decode(row.body)) for row in rows]


def _raise_missing(run: str) -> NoReturn:
    raise ChainBroken(
        f"run {run}: its records are missing",
        known="a run is stored together with its first records, so they were removed",
        next_step="keep a copy of the file, compare it with a backup, and check it: beforehand verify",
    )


def operation_in(history: RunHistory, step: str) -> OperationState:
    """The operation of that step. Raises `UsageError` with those that the run has."""
    if step in history.operations:
        return history.operations[step]
    run = history.run
    raise UsageError(
        f"run {run} has no operation {step}",
        known=f"its operations: {', '.join(history.operations) or 'none'}",
        next_step=to_type("show", run, "--at", step) if step in history.steps.answers else to_type("show", run),
    )


def question_in(history: RunHistory, step: str) -> r.QuestionAsked:
    """The question of that step, while an answer can reach it. Raises `UsageError`."""
    from beforehand.model.records import MessageHeard  # noqa: PLC0415 - a list is read without the records behind it

    run = history.run
    if step not in history.steps.questions:
        open_ones = [one for one in history.steps.questions if one not in history.steps.answers]
        raise UsageError(
            f"run {run} asks no question {step}",
            known=f"its open questions: {', '.join(open_ones) or 'none'}",
            next_step=to_type("show", run),
        )
    if history.lifecycle.status in {"completed", "stopped", "undone"}:
        raise UsageError(
            f"run {run} is {history.lifecycle.status} and no longer waits for an answer",
            next_step=to_type("show", run),
        )
    if isinstance(history.steps.answers.get(step), MessageHeard):
        raise UsageError(f"{run}/{step} was withdrawn: a message arrived for the run", next_step=to_type("show", run))
    return history.steps.questions[step]


def waits_of(row: RunRow | RunWaits) -> list[ListedWait]:
    """The waits of a run, from the listing. Where another program has changed them, a person is asked about that."""
    try:
        return decode_waits(row.waits)
    except msgspec.DecodeError:
        return [ListedWait(UNREADABLE, asks="its entry in the listing cannot be read: beforehand doctor --rebuild")]


async def troubles_of(journal: JournalReads, worker: str) -> list[Trouble]:
    """The house-keeping failures of a process, as far as it could publish them."""
    note = await read_hint(journal, HEALTH + worker)
    return [] if note is None else troubles_in(note)


async def schedule_clock(journal: JournalReads, name: str, known: KnownSchedule, now_ms: int) -> str:
    """The trace that a wrong clock has left on a schedule; empty: it has left none, or the schedule is paused."""
    from beforehand.queues.schedules import clock_fault  # noqa: PLC0415 - few commands need them

    newest = await last_firing(journal, name, FOREVER_MS)
    return "" if known.paused else clock_fault(known, 0 if newest is None else newest.moment_ms, now_ms)


async def read_schedules(journal: JournalReads) -> ScheduleBook:
    """The schedules as the ledger has them."""
    from beforehand.queues.schedules import STREAM, ScheduleEntry, book_of  # noqa: PLC0415 - few commands need them

    found: list[tuple[int, int, ScheduleEntry | None]] = []
    for entry in await journal.entries(STREAM):
        try:
            found.append((entry.id, entry.at_ms, read(entry, ScheduleEntry)))
        except Unreadable as error:
            await set_aside(journal, entry, error)
            found.append((entry.id, entry.at_ms, None))
    return book_of(found)
