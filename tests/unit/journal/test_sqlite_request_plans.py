"""What a decided request reads: every statement seeks in an index, and a release reads the one slot that it frees."""

import asyncio
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

from beforehand.journal import port as p
from beforehand.journal.sqlite.driver import StandardDatabase, Value
from beforehand.journal.sqlite.journal import SqliteJournal
from beforehand.journal.sqlite.opening import Parts
from beforehand.model.shared_use import Charge
from beforehand.queues.call_limits import CallLimit
from beforehand.queues.limits import Declaration, DeclaredLimits, QueueLimits

HOLDERS = 1000
LIMIT = CallLimit(at_once=2000).cell("charge")
DRIVEN = {  # read as a whole, in partial indexes of the runs that processes drive just now
    "SCAN run USING COVERING INDEX run_held",
    "SCAN run USING COVERING INDEX run_slot",
}


class Heard(StandardDatabase):
    """The connection that writes keeps its statements, with the number of rows that each of them read."""

    said: ClassVar[dict[str, int]] = {}

    def __init__(self, path: Path, read_only: bool, *, alone: bool = False) -> None:
        super().__init__(path, read_only, alone=alone)
        if read_only:
            self.said = {}  # type: ignore[misc]  # among them are those of the housekeeping, which counts all rows

    def rows(self, sql: str, values: Sequence[Value] = ()) -> list[tuple[Value, ...]]:
        answer = super().rows(sql, values)
        self.said[sql] = max(len(answer), self.said.get(sql, 0))
        return answer

    def change(self, sql: str, values: Sequence[Value] = ()) -> int:
        self.said.setdefault(sql, 0)
        return super().change(sql, values)


async def decided(path: Path, *requests: p.CommitRequest[Any]) -> dict[str, int]:
    """The statements with which requests are decided where a limit has a thousand holders."""
    journal = SqliteJournal(path, parts=Parts(connect=Heard, commits="loop"))
    await journal.open()
    with closing(sqlite3.connect(path)) as database:
        database.execute(
            "with recursive n(i) as (select 1 union all select i + 1 from n where i < ?)"
            " insert into cell select 'slot', ?, 'alice ' || i, '[\"o\",1,1]' from n",
            (HOLDERS, LIMIT.name),
        )
        database.commit()
    Heard.said.clear()
    for request in requests:
        await journal.commit(request)
    said = dict(Heard.said)
    await journal.close()
    return said


def requests() -> list[p.CommitRequest[Any]]:
    permit = p.Permit("alice", 7)
    limits = Declaration(DeclaredLimits({"mail": QueueLimits(concurrency=2)}))
    queued = p.NewRun("desk", (), p.RunChange("queued", due_ms=1, release=True), "", p.QueuePlace("mail"))
    lease = p.Lease("r", 1, 1, "alice")
    return [
        p.ClaimRequest("r", "alice", p.NewRun("desk")),
        p.Write(lease, (), p.RunChange("running", "x"), (p.Post("s", "k", b"1"),), (Charge("b", "day", "n", 1, 0),)),
        p.ClaimRequest("q", "alice", queued),
        p.TakeRequest("alice", frozenset({("desk", "")}), 9, limits),
        p.PermitRequest(permit, (LIMIT,), 0),
        p.ReleaseRequest(permit, {LIMIT.name: 1}),
        p.HintRequest("h", b"1", None),
        p.Post("s", "l", b"1"),
    ]


def test_every_statement_of_a_decided_request_seeks(journal_path: Path) -> None:
    said = asyncio.run(decided(journal_path, *requests()))
    statements = [sql for sql in said if sql.split()[0] in {"select", "insert", "update", "delete"}]
    assert len(statements) > 20
    with closing(sqlite3.connect(journal_path)) as database:
        for sql in statements:
            plan = database.execute(f"explain query plan {sql}", [None] * sql.count("?")).fetchall()
            scans = {row[3] for row in plan if row[3].startswith("SCAN ")} - DRIVEN
            scans = {step for step in scans if not step.startswith(("SCAN (subquery", "SCAN CONSTANT"))}
            assert not scans, (sql, scans)


def test_a_release_reads_one_slot_however_many_hold_its_limit(journal_path: Path) -> None:
    said = asyncio.run(decided(journal_path, p.ReleaseRequest(p.Permit("alice", 7), {LIMIT.name: None})))
    assert {rows for sql, rows in said.items() if "from cell" in sql} == {0, 1}
