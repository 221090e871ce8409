"""Looking after a journal: what it is, rebuilding its listing from records, and trusting it again."""

from __future__ import annotations

import sqlite3
from collections import Counter
from pathlib import Path

import msgspec

from holdfast.engine.engine import Engine
from holdfast.engine.housekeeping import HEALTH, troubles_in
from holdfast.engine.suspension import stopped_change, unreadable_change
from holdfast.errors import JournalError, UsageError
from holdfast.inspect.ledger_kinds import unreadable as unreadable_in
from holdfast.inspect.reader import JournalReader, Waiting
from holdfast.journal.log import RunLog, genesis
from holdfast.journal.port import Claimed, RunChange, RunRow, RunStatus
from holdfast.journal.sqlite.ledger import all_entries
from holdfast.journal.sqlite.reading import view_of
from holdfast.model.ids import operation_id
from holdfast.model.run_history import RunHistory


class Facts(msgspec.Struct, frozen=True):
    """A journal at a glance."""

    path: str
    bytes: int
    mode: str
    sqlite: str
    namespace: str
    incarnation: str
    trust: str
    reason: str
    notices: list[str]
    runs: dict[str, int]
    open_operations: list[str]
    unreadable: list[str]
    refused_entries: list[str]
    housekeeping: list[str]
    abandoned: list[str]
    paused_tools: dict[str, str]
    ledger_entries: int


class Rebuilt(msgspec.Struct, frozen=True):
    """What became of the listing. `busy` runs are driven by a living process, whose own writes keep them right."""

    runs: int
    changed: list[str]
    busy: list[str]


async def facts(looking: JournalReader, path: Path) -> Facts:
    """Examine an open journal."""
    where, size = _on_disk(path)
    counts: Counter[str] = Counter()
    operations: list[str] = []
    unreadable: list[str] = []
    async for row in looking.every_run():
        counts[row.status] += 1
        if row.status not in {"completed", "undone"}:
            try:
                history = await looking.history(row.run)
            except JournalError as error:
                unreadable.append(f"{row.run}: {error.message}")
                continue
            operations += [operation_id(row.run, operation.step) for operation in history.open_operations()]
    abandoned = [row.run for row in await looking.journal.runs(wakeable=True)]
    database = view_of(path).database
    try:
        ((mode,),) = database.rows("pragma journal_mode")
        ((entries,),) = database.rows("select count(*) from ledger")
        notes = database.rows("select name, cast(body as blob) from hint where name like 'health/%'")
        set_aside = [f"{one.entry} ({one.stream}): {one.why}" for one in unreadable_in(all_entries(database))]
    finally:
        database.close()
    identity = looking.identity
    assert isinstance(entries, int)
    return Facts(
        path=where,
        bytes=size,
        mode=str(mode),
        sqlite=sqlite3.sqlite_version,
        namespace=identity.namespace,
        incarnation=identity.incarnation,
        trust=identity.trust,
        reason=identity.reason,
        notices=list(identity.notices),
        runs=dict(sorted(counts.items())),
        open_operations=operations,
        unreadable=unreadable,
        refused_entries=set_aside,
        housekeeping=await _failing(looking, [(str(name), body) for name, body in notes if isinstance(body, bytes)]),
        abandoned=abandoned,
        paused_tools=await looking.pauses(),
        ledger_entries=entries,
    )


async def _failing(looking: JournalReader, notes: list[tuple[str, bytes]]) -> list[str]:
    """The house-keeping that fails in processes that may live."""
    found: list[str] = []
    for name, body in notes:
        worker = name.removeprefix(HEALTH)
        if (await looking.journal.fate(worker)).fate != "dead":
            found += [f"process {worker}: {one.task}: {one.error}" for one in troubles_in(body)]
    return found


def _on_disk(path: Path) -> tuple[str, int]:
    return str(path.absolute()), path.stat().st_size


async def rebuild(engine: Engine) -> Rebuilt:
    """Recompute the listing of every idle run from its records. Nothing is sent, no record is written."""
    looking = JournalReader(engine.journal, engine.identity)
    names = [row.run async for row in looking.every_run()]
    changed: list[str] = []
    busy: list[str] = []
    for run in names:
        claimed = await engine.leases.claim(run)
        if not isinstance(claimed, Claimed):
            busy.append(run)
            continue
        try:
            wanted = await _wanted(looking, claimed.row, engine.environment.clock.wall_ms())
            log = RunLog(engine.journal, claimed.lease, claimed.last, genesis(engine.identity.namespace, run))
            await log.append((), wanted)
        finally:
            engine.leases.let_go(run)
        if _differs(claimed.row, wanted):
            changed.append(run)
    return Rebuilt(len(names), changed, busy)


async def _wanted(looking: JournalReader, row: RunRow, wall_ms: int) -> RunChange:
    """How one run has to be listed. One that cannot be read is listed as such, and the others are rebuilt."""
    try:
        return _listing(await looking.history(row.run), row, wall_ms)
    except JournalError as error:
        return unreadable_change(error, wall_ms)


def _listing(history: RunHistory, row: RunRow, wall_ms: int) -> RunChange:
    """How a run stands by its records. A run that waits is due now: who drives it next finds out for what."""
    status: RunStatus = "running" if history.status == "new" else history.status
    if status == "suspended" and history.paused is not None:
        return RunChange(status, f"paused by {history.paused.by}", None, row.waits, release=True)
    if status == "stopped" and history.stopped is not None:
        return stopped_change(history.stopped, row.agent, row.due_ms if row.status == status else None)
    if status != "suspended":
        return RunChange(status, release=True)
    waits = [
        Waiting("person", operation.step, f"{operation_id(history.run, operation.step)}: {operation.reason}")
        for operation in history.open_operations()
        if operation.phase in {"unknown", "gated"}
    ]
    due = row.due_ms if row.status == "suspended" and row.waits != b"[]" else wall_ms
    kept = row.waits if row.status == "suspended" and row.waits != b"[]" else msgspec.json.encode(waits)
    return RunChange(status, history.reason[:500], due, kept, release=True)


def _differs(row: RunRow, wanted: RunChange) -> bool:
    return (row.status, row.reason, row.waits) != (wanted.status, wanted.reason, wanted.waits)


async def trust(engine: Engine, by: str, *, newest: bool) -> str:
    """An operator's word on a journal that looks copied or restored. The trust it has now. Raises `UsageError`."""
    if engine.identity.trust == "trusted":
        raise UsageError("this journal is trusted already", next_step="nothing needs to be done")
    identity = await engine.journal.confirm("trusted" if newest else "doubtful", by)
    return identity.trust
