"""Small tools of the journal's tests: claims, logs, a driver that fails on demand, another machine."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from msgspec.structs import replace

from beforehand.journal.host import HostFacts
from beforehand.journal.port import ClaimRequest, Fate, Journal, LeaseGranted, NewRun, Worker
from beforehand.journal.run_log import RunLog, genesis
from beforehand.journal.sqlite.driver import Database, DatabaseFailure, StandardDatabase, Value
from beforehand.journal.sqlite.journal import SqliteJournal
from beforehand.journal.sqlite.opening import Parts

LONG_MS = 3_600_000


def body(value: int) -> bytes:
    return b'{"n":%d}' % value


async def start_log(journal: Journal, run: str = "r", worker: str = "w") -> RunLog:
    await journal.beat(Worker(worker), LONG_MS)
    claimed = await journal.commit(ClaimRequest(run, worker, NewRun("desk")))
    assert isinstance(claimed, LeaseGranted), claimed
    return RunLog(journal, claimed.lease, claimed.last, genesis("n", run))


async def stored(journal: Journal, run: str = "r") -> list[bytes]:
    return [row.body for row in await journal.read(run)]


async def error_of(call: Awaitable[object]) -> BaseException | None:
    try:
        await call
    except Exception as error:  # noqa: BLE001 -- the test looks at it
        return error
    return None


@dataclass
class Plan:
    """When a driver fails: asked with each statement of the writer, before and after it runs."""

    before: Callable[[str], DatabaseFailure | None] = lambda _: None
    after: Callable[[str], DatabaseFailure | None] = lambda _: None
    statements: list[str] = field(default_factory=list[str])

    def connect(self, path: Path, read_only: bool) -> Database:
        database = StandardDatabase(path, read_only)
        return database if read_only else _Failing(database, self)


@dataclass
class _Failing:
    """A connection that fails as planned, and otherwise works on the real file."""

    database: StandardDatabase
    plan: Plan

    @property
    def in_transaction(self) -> bool:
        return self.database.in_transaction

    def rows(self, sql: str, values: Sequence[Value] = ()) -> list[tuple[Value, ...]]:
        self._ask(self.plan.before, sql)
        found = self.database.rows(sql, values)
        self._ask(self.plan.after, sql)
        return found

    def change(self, sql: str, values: Sequence[Value] = ()) -> int:
        self._ask(self.plan.before, sql)
        changed = self.database.change(sql, values)
        self._ask(self.plan.after, sql)
        return changed

    def close(self) -> None:
        self.database.close()

    def _ask(self, when: Callable[[str], DatabaseFailure | None], sql: str) -> None:
        if when is self.plan.before:
            self.plan.statements.append(sql)
        failure = when(sql)
        if failure is not None:
            raise failure


def once(code: int, statement: str) -> Callable[[str], DatabaseFailure | None]:
    """Fail the first statement that begins like this."""
    left = [code]

    def ask(sql: str) -> DatabaseFailure | None:
        return DatabaseFailure(left.pop(), "planned") if left and sql.startswith(statement) else None

    return ask


def always(code: int, statement: str) -> Callable[[str], DatabaseFailure | None]:
    return lambda sql: DatabaseFailure(code, "planned") if sql.startswith(statement) else None


@dataclass
class Machine:
    """A machine for tests: its clock, its boot, and who of its workers died."""

    boot: str = "boot-1"
    name: str = "machine-1"
    dead: set[str] = field(default_factory=set[str])
    now_ms: int = 1_000_000

    def here(self) -> HostFacts:
        return HostFacts(self.name, self.boot, lambda: self.now_ms, lambda: self.now_ms, self._fate)

    def _fate(self, worker: Worker) -> Fate:
        return "dead" if worker.id in self.dead else "unknown"


def sqlite(
    place: Path, plan: Plan | None = None, machine: Machine | None = None, parts: Parts | None = None
) -> SqliteJournal:
    parts = parts or Parts()
    numbers = itertools.count(1)
    if plan is not None:
        parts = replace(parts, connect=plan.connect)
    if machine is not None:
        parts = replace(parts, here=machine.here(), entropy=lambda size: f"{next(numbers):0{2 * size}x}")
    return SqliteJournal(place / "journal.db", parts=parts)
