"""Permits on SQLite: counted, judged and stored in one transaction, so that no two processes take the last one."""

from __future__ import annotations

from typing import Final, cast

from holdfast.journal.backend_rules import call_is_over
from holdfast.journal.port import Instant, Permit, PermitAnswer, PermitRequest, ToolUse
from holdfast.journal.sqlite.driver import Database
from holdfast.journal.sqlite.ledger import check_limits
from holdfast.journal.sqlite.runs import RunTables
from holdfast.queues.tool_limits import ToolPace, judge, slowed

HELD: Final = "select tool, worker, number, operation from permit where tool = ?"
_PACE: Final = "select boot, due_us, closed_ms from pace where tool = ?"
_KEEP: Final = "insert or replace into pace (tool, boot, due_us, closed_ms) values (?, ?, ?, ?)"


def grant(database: Database, roll: RunTables, request: PermitRequest, now: Instant) -> PermitAnswer:
    """Judge the request, and store what was granted. Permits of processes that are proven dead are deleted."""
    check_limits(database, request.declared)
    asked, before = request.permit, _pace(database, request.permit.tool)
    for (worker,) in database.rows("select distinct worker from permit where tool = ?", (asked.tool,)):
        if worker != asked.worker and roll.fate(database, str(worker)).fate == "dead":
            database.change("delete from permit where tool = ? and worker = ?", (asked.tool, worker))
    in_use = len(counted(database, roll, asked.tool, request.pause_bound_ms, asked.worker))
    verdict = judge(request.limit, in_use, before, now.boot, now.ms)
    if verdict.pace != before:
        _store(database, asked.tool, verdict.pace)
    if verdict.granted:
        database.change(
            "insert into permit (tool, worker, number, operation) values (?, ?, ?, ?)",
            (asked.tool, asked.worker, asked.number, asked.operation),
        )
    return PermitAnswer(verdict.granted, verdict.full, verdict.wait_ms)


def release(database: Database, permit: Permit) -> None:
    """Delete a permit, if it is there."""
    values = permit.tool, permit.worker, permit.number
    database.change("delete from permit where tool = ? and worker = ? and number = ?", values)


def slow(database: Database, tool: str, wait_ms: int, now: Instant) -> None:
    """Grant no permit for this tool for so long."""
    _store(database, tool, slowed(_pace(database, tool), now.boot, now.ms + wait_ms))


def use(database: Database, roll: RunTables, pause_bound_ms: int) -> list[ToolUse]:
    """The use of each tool, by name."""
    tools = database.rows("select tool from pace union select tool from permit order by 1")
    return [
        ToolUse(tool, counted(database, roll, tool, pause_bound_ms), _pace(database, tool))
        for (tool,) in cast("list[tuple[str]]", tools)
    ]


def counted(database: Database, roll: RunTables, tool: str, bound_ms: int, worker: str = "") -> tuple[Permit, ...]:
    """The permits whose process is not gone. The worker that asks is not gone for itself."""
    held = [Permit(*row) for row in cast("list[tuple[str, str, int, str]]", database.rows(HELD, (tool,)))]
    others = {one.worker for one in held} - {worker}
    gone = {name for name in others if call_is_over(roll.fate(database, name), bound_ms)}
    return tuple(one for one in held if one.worker not in gone)


def _pace(database: Database, tool: str) -> ToolPace:
    found = database.rows(_PACE, (tool,))
    return ToolPace(*cast("tuple[str, int, int]", found[0])) if found else ToolPace()


def _store(database: Database, tool: str, pace: ToolPace) -> None:
    database.change(_KEEP, (tool, pace.boot, pace.due_us, pace.closed_ms))
