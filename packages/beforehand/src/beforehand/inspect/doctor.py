"""Care of a journal: facts about it, rebuilding its listing from records, and trusting it again."""

from __future__ import annotations

from collections import Counter
from typing import Final

import msgspec

from beforehand.engine.engine import Engine
from beforehand.engine.suspension import stopped_change, unreadable_change
from beforehand.errors import ChainBroken, JournalError, Unreadable, UsageError
from beforehand.inspect.counters import LOST, MEND, wrong_counters
from beforehand.inspect.ledger_kinds import unreadable as unreadable_in
from beforehand.inspect.reader import JournalReader, waits_of
from beforehand.journal.port import LeaseGranted, Reader, RunChange, RunRow, RunStatus, Storage
from beforehand.model.ids import operation_id
from beforehand.model.run_history import RunHistory
from beforehand.model.system import HEALTH, troubles_in
from beforehand.model.waits import UNREADABLE, ListedWait, has_to_name

_ENDED: Final = frozenset({"completed", "stopped", "undone"})


class JournalFacts(msgspec.Struct, frozen=True):
    """A journal at a glance."""

    storage: Storage
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

    def document(self) -> dict[str, object]:
        """The facts as one JSON object, those of the back end first."""
        rest: dict[str, object] = msgspec.to_builtins(self)
        del rest["storage"]
        stored = self.storage
        size = {} if stored.bytes is None else {"bytes": stored.bytes}
        return {"path": stored.location, **size, **stored.details, **rest}


class Rebuilt(msgspec.Struct, frozen=True):
    """The result of rebuilding the listing. `busy` runs have a living process, whose own writes keep them right.

    `counters` are those of shared budgets that differed from the records.
    """

    runs: int
    changed: list[str]
    busy: list[str]
    counters: list[str] = []


async def facts(reader: JournalReader, raw_reader: Reader) -> JournalFacts:
    """Examine an open journal."""
    counts: Counter[str] = Counter()
    operations: list[str] = []
    unreadable: list[str] = []
    async for row in reader.every_run():
        counts[row.status] += 1
        if row.status not in {"completed", "undone"}:
            try:
                history = await reader.history(row.run)
            except JournalError as error:
                unreadable.append(f"{row.run}: {error.message}")
                continue
            operations += [operation_id(row.run, operation.step) for operation in history.open_operations()]
    abandoned = [row.run for row in await reader.journal.runs(wakeable=True)]
    entries, set_aside = 0, list[str]()
    async for entry in raw_reader.ledger():
        entries += 1
        set_aside += [f"{one.entry} ({one.stream}): {one.why}" for one in unreadable_in((entry,))]
    failing: list[str] = []
    for note in await raw_reader.cells("hint", below=HEALTH):
        worker = note.name.removeprefix(HEALTH)
        if (await reader.journal.fate(worker)).fate != "dead":  # a process that may live
            failing += [f"process {worker}: {one.task}: {one.error}" for one in troubles_in(note.body)]
    identity = reader.identity
    return JournalFacts(
        storage=await raw_reader.storage(),
        namespace=identity.namespace,
        incarnation=identity.incarnation,
        trust=identity.trust,
        reason=identity.reason,
        notices=list(identity.notices),
        runs=dict(sorted(counts.items())),
        open_operations=operations,
        unreadable=unreadable,
        refused_entries=set_aside,
        housekeeping=failing,
        abandoned=abandoned,
        paused_tools=await reader.pauses(),
        ledger_entries=entries,
    )


async def rebuild(engine: Engine) -> Rebuilt:
    """Recompute the listing of every idle run, and shared budgets, from records. Nothing is sent or recorded."""
    reader = JournalReader(engine.journal, engine.identity)
    names = [row.run async for row in reader.every_run()]
    changed: list[str] = []
    busy: list[str] = []
    wrong, mended = await wrong_counters(reader), list[str]()
    for run in names:
        claimed = await engine.leases.claim(run)
        if not isinstance(claimed, LeaseGranted):
            busy.append(run)
            continue
        with engine.leases.idle(claimed) as log:
            wall_ms = engine.wall_ms()
            try:
                wanted = _listing(await reader.history(run), claimed.row, wall_ms)
            except (ChainBroken, Unreadable) as error:  # it is listed as such, and the others are rebuilt
                wanted = unreadable_change(error, wall_ms)
            await log.append((), wanted, charges=tuple(one.mend for one in wrong))
            mended, wrong = [*mended, *(one.name for one in wrong)], []
        listed = claimed.row.status, claimed.row.reason, claimed.row.waits
        if listed != (wanted.status, wanted.reason, wanted.waits):
            changed.append(run)
    return Rebuilt(len(names), changed, busy, mended)


def _listing(history: RunHistory, row: RunRow, wall_ms: int) -> RunChange:
    """The listing of a run from its records. A waiting run is due now: its next owner finds out for what."""
    status: RunStatus = "running" if history.lifecycle.status == "new" else history.lifecycle.status
    if row.status == "queued":
        return RunChange(row.status, row.reason, row.due_ms, row.waits, release=True)
    if status == "suspended" and history.lifecycle.paused is not None:
        return RunChange(status, f"paused by {history.lifecycle.paused.by}", None, row.waits, release=True)
    if status in {"completed", "stopped"} and history.undo_state == "ordered":
        return RunChange("suspended", history.lifecycle.reason[:500], wall_ms, release=True)
    if status == "stopped" and history.lifecycle.stopped is not None:
        return stopped_change(history.lifecycle.stopped, row.agent, row.due_ms if row.status == status else None)
    if status != "suspended":
        undone = history.lifecycle.undone
        return RunChange(status, "" if undone is None else undone.summary, release=True)
    waits = [
        ListedWait(
            "person", one.step, f"{operation_id(history.run, one.step)}: {one.reason}", shown=has_to_name(history, one)
        )
        for one in history.open_operations()
        if one.asks and history.lifecycle.cancelled is None  # as in `waits_left`
    ]
    kept = row.status == "suspended" and any(one.kind != UNREADABLE for one in waits_of(row))
    due, listed = (row.due_ms, row.waits) if kept else (wall_ms, msgspec.json.encode(waits))
    return RunChange(status, history.lifecycle.reason[:500], due, listed, release=True)


def listing_fault(history: RunHistory, row: RunRow) -> str:
    """The fault that no process of ours leaves in the line of a run; empty if there is none.

    A run that goes on may be listed as running or suspended whatever its last record says: a process may have died.
    """
    wanted, waits = _listing(history, row, 0), waits_of(row)
    if any(one.kind == UNREADABLE for one in waits):
        return ""
    if row.status != wanted.status and not _ENDED.isdisjoint((row.status, wanted.status)):
        advice = LOST if row.status == "undone" or wanted.status not in _ENDED else MEND
        return f"it says {row.status}, and the records say {wanted.status}; {advice}"
    if row.status == wanted.status != "running" and not waits and wanted.waits != b"[]":
        return f"it does not say what the run waits for; {MEND}"
    return ""


async def trust(engine: Engine, by: str, *, newest: bool) -> str:
    """Trust a journal that looks copied or restored. Returns its present trust. Raises `UsageError`."""
    if engine.identity.trust == "trusted":
        raise UsageError("this journal is trusted already", next_step="nothing needs to be done")
    identity = await engine.journal.confirm("trusted" if newest else "doubtful", by)
    return identity.trust
