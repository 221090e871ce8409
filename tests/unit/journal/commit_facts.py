"""The facts of a commit in a few dictionaries, and a store that does no more than apply what was decided."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from beforehand.journal.cells import worker_of
from beforehand.journal.port import (
    CellKind,
    ClockReading,
    CommitRequest,
    Lease,
    LedgerEntry,
    Row,
    RunRow,
    Worker,
    WorkerState,
)
from beforehand.journal.requests import CellAddress, Changes, decide, numbered

NOW = ClockReading("b", 500, 500, 0)
UNKNOWN = WorkerState("unknown", 2**53 - 1)


@dataclass
class DictFacts:
    """What a store knows. It raises `KeyError` for what no request may ask."""

    wall_ms: int = 1_000
    now: ClockReading = NOW
    lines: dict[str, RunRow] = field(default_factory=dict[str, RunRow])
    records: dict[int, list[Row]] = field(default_factory=dict[int, list[Row]])
    workers: dict[str, WorkerState] = field(default_factory=dict[str, WorkerState])
    ledger: list[LedgerEntry] = field(default_factory=list[LedgerEntry])
    stored: dict[CellAddress, bytes] = field(default_factory=dict[CellAddress, bytes])
    queued: dict[str, int] = field(default_factory=dict[str, int])

    def run(self, name: str) -> RunRow | None:
        return self.lines.get(name)

    def leased(self, lease: Lease) -> RunRow | None:
        return next((line for line in self.lines.values() if line.row == lease.row), None)

    def last(self, row: int) -> Row | None:
        return self.records[row][-1] if self.records.get(row) else None

    def next_seq(self, lease: Lease) -> int:
        return len(self.records.get(lease.row, [])) + 1

    def worker(self, name: str) -> tuple[Worker, WorkerState]:
        return Worker(name, pid=7), self.workers.get(name, UNKNOWN)

    def newest(self, stream: str) -> int:
        return max((entry.id for entry in self.ledger if entry.stream == stream), default=0)

    def newest_key(self, stream: str) -> str:
        return next((entry.key for entry in reversed(self.ledger) if entry.stream == stream), "")

    def entry(self, stream: str, key: str) -> LedgerEntry | None:
        assert key, "an entry without a key is found by its id alone"
        return next((entry for entry in self.ledger if (entry.stream, entry.key) == (stream, key)), None)

    def new_entry(self) -> int:
        return max((entry.id for entry in self.ledger), default=0) + 1

    def cells(self, kind: CellKind, name: str, key: str | None = None) -> dict[str, bytes]:
        return {key: body for (k, n, key), body in self.stored.items() if (k, n) == (kind, name)}

    def holders(self, name: str) -> dict[str, int]:
        return Counter(map(worker_of, self.cells("slot", name)))

    def last_key(self, kind: CellKind, name: str, until: str) -> str:
        return max((key for key in self.cells(kind, name) if key <= until), default="")

    def waiting(self, queue: str) -> int:
        waits = (line for line in self.lines.values() if line.status == "queued" and line.queue == queue)
        return self.queued.get(queue, 0) + sum(1 for _ in waits)

    def commit(self, request: CommitRequest[Any]) -> Any:
        """Decide a request and apply what it changes. Raises its refusal."""
        answer, changes = decide(request, self)
        if changes.created is not None:
            answer = numbered(answer, len(self.lines) + 1)
            self.lines[answer.row.run] = answer.row
            changes.lease = answer.lease
        self._apply(changes)
        return answer

    def _apply(self, changes: Changes) -> None:
        if changes.rows:
            assert changes.lease is not None
            self.records.setdefault(changes.lease.row, []).extend(changes.rows)
        for line in (changes.taken, changes.listed):
            if line is not None:
                self.lines[line.run] = line
        self.ledger += changes.entries
        for address, body in changes.cells.items():
            if body is None:
                del self.stored[address]
            else:
                self.stored[address] = body
