"""Reading a journal file: what a process that drives runs and one that only looks at them ask in the same way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from pathlib import Path
from typing import TypeVar

from beforehand.journal.port import (
    EVERY_BODY,
    AgentKey,
    BodyFilter,
    Cell,
    CellKind,
    FoundRecord,
    LedgerEntry,
    LedgerNews,
    QueueState,
    Row,
    RunRow,
    RunStatus,
    RunWaits,
    StatusFilter,
    Storage,
    WorkerState,
)
from beforehand.journal.sqlite import ledger, runs
from beforehand.journal.sqlite.driver import Database, size_of
from beforehand.journal.sqlite.runs import Query, RunTables

T = TypeVar("T")


class SqliteReads(ABC):
    """The methods of the port that read, over one way to read."""

    path: Path
    _roll: RunTables

    @abstractmethod
    def _read(self, query: Callable[[Database], T]) -> T:
        """Read on the calling thread."""

    async def fate(self, worker: str) -> WorkerState:
        return self._read(lambda database: self._roll.fate(database, worker))

    async def read(
        self, run: str, after: int = 0, limit: int = 1000, *, newest: bool = False, only: BodyFilter = EVERY_BODY
    ) -> list[Row]:
        return self._read(lambda database: runs.read(database, run, after, limit, newest=newest, only=only))

    async def search(self, text: str, numbers: range, limit: int) -> list[FoundRecord]:
        return self._read(lambda database: runs.search(database, text, numbers, limit))

    async def runs(
        self,
        *,
        run: str | None = None,
        status: StatusFilter | None = None,
        wakeable: bool = False,
        limit: int = 1000,
        after: str = "",
        newest: bool = False,
    ) -> list[RunRow]:
        query = Query(run, status, wakeable, limit, after, newest)
        return self._read(lambda database: self._roll.list(database, query))

    async def due(self, agents: Collection[AgentKey], limit: int, skip: Collection[str] = frozenset()) -> list[RunRow]:
        return self._read(lambda database: self._roll.due(database, agents, limit, skip))

    async def queues(self) -> list[QueueState]:
        from beforehand.journal.sqlite.queues import QueueTables  # noqa: PLC0415 - few commands that only read need it

        return self._read(QueueTables(self._roll).states)

    async def cells(
        self, kind: CellKind, names: Collection[str] | None = None, *, below: str = "", until: str | None = None
    ) -> list[Cell]:
        return self._read(lambda database: ledger.read_cells(database, kind, names, below, until))

    async def counts(self) -> dict[tuple[str, RunStatus], int]:
        return self._read(runs.counts)

    async def waiting(self, status: StatusFilter) -> list[RunWaits]:
        return self._read(lambda database: runs.waiting(database, status))

    async def entries(self, stream: str, after: int = 0) -> list[LedgerEntry]:
        return self._read(lambda database: ledger.entries(database, stream, after))

    async def news(self, after: int | None) -> LedgerNews:
        return self._read(lambda database: ledger.news(database, after))

    async def storage(self) -> Storage:
        ((mode,),) = self._read(lambda database: database.rows("pragma journal_mode"))
        ((version,),) = self._read(lambda database: database.rows("select sqlite_version()"))
        details = {"mode": str(mode), "sqlite": str(version)}
        return Storage(str(self.path), f"SQLite {version!s}, {mode!s} mode", size_of(self.path), details)
