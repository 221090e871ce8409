"""Permits on SQLite: counted, judged and stored in one transaction, so that no two processes take the last one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, cast

from beforehand.journal.backend_rules import held_permits
from beforehand.journal.port import HeldPermits, Instant, LimitState, LimitUse, Permit, PermitAnswer, PermitRequest
from beforehand.journal.sqlite.driver import Database
from beforehand.journal.sqlite.ledger import check_limits
from beforehand.journal.sqlite.runs import RunTables
from beforehand.queues.call_limits import CallPace, judge_all, settled, slowed

HELD: Final = "select worker, number, operation from permit where name = ?"
_OWN: Final = "select name, units, at_ms from permit where worker = ? and number = ?"
_PACE: Final = "select boot, due_ns, closed_ms, busy_ns, apart_ns from pace where name = ?"
_KEEP: Final = (
    "insert or replace into pace (name, boot, due_ns, closed_ms, busy_ns, apart_ns) values (?, ?, ?, ?, ?, ?)"
)


def grant(database: Database, roll: RunTables, request: PermitRequest, now: Instant) -> PermitAnswer:
    """Judge the request, and store what was granted. Permits of processes that are proven dead are deleted."""
    check_limits(database, request.declared)
    asked, limits = request.permit, request.limits
    found: list[tuple[HeldPermits, CallPace]] = []
    for one in limits:
        for (worker,) in database.rows("select distinct worker from permit where name = ?", (one.name,)):
            if worker != asked.worker and roll.fate(database, str(worker)).fate == "dead":
                database.change("delete from permit where name = ? and worker = ?", (one.name, worker))
        held = counted(database, roll, one.name, request.pause_bound_ms, asked.worker)
        found.append((held, _pace(database, one.name)))
    states = [(one, len(held.permits), pace) for one, (held, pace) in zip(limits, found, strict=True)]
    verdicts = judge_all(states, now.boot, now.ms)
    granted = all(verdict.granted for verdict in verdicts)
    for one, (_, before), verdict in zip(limits, found, verdicts, strict=True):
        if verdict.pace != before:
            _store(database, one.name, verdict.pace)
        if granted:
            database.change(
                "insert into permit (name, worker, number, operation, units, at_ms) values (?, ?, ?, ?, ?, ?)",
                (one.name, asked.worker, asked.number, asked.operation, one.units, now.ms),
            )
    together = zip(limits, found, verdicts, strict=True)
    after = (LimitState(one.name, it.full, it.wait_ms, held.hung, held.silent_ms) for one, (held, _), it in together)
    return PermitAnswer(granted, tuple(after))


def release(database: Database, permit: Permit, used: Mapping[str, int], now: Instant) -> None:
    """Delete a permit, if it is there, and count what its call has used in place of what it had requested."""
    own = permit.worker, permit.number
    for name, units, at_ms in cast("list[tuple[str, int, int]]", database.rows(_OWN, own) if used else []):
        if name in used:
            _store(database, name, settled(_pace(database, name), now.boot, units, used[name], at_ms, now.ms))
    database.change("delete from permit where worker = ? and number = ?", own)


def slow(database: Database, limits: Collection[str], wait_ms: int, now: Instant) -> None:
    """Grant no permit under these limits for so long."""
    for name in limits:
        _store(database, name, slowed(_pace(database, name), now.boot, now.ms + wait_ms))


def use(database: Database, roll: RunTables, pause_bound_ms: int) -> list[LimitUse]:
    """The use of each limit, by name."""
    names = database.rows("select name from pace union select name from permit order by 1")
    found: list[LimitUse] = []
    for (name,) in cast("list[tuple[str]]", names):
        held = counted(database, roll, name, pause_bound_ms)
        found.append(LimitUse(name, held.permits, _pace(database, name), held.hung))
    return found


def counted(database: Database, roll: RunTables, name: str, bound_ms: int, worker: str = "") -> HeldPermits:
    """The permits whose call may be under way."""
    stored = [Permit(*row) for row in cast("list[tuple[str, int, str]]", database.rows(HELD, (name,)))]
    return held_permits(stored, lambda holder: roll.fate(database, holder), bound_ms, worker)


def _pace(database: Database, name: str) -> CallPace:
    found = database.rows(_PACE, (name,))
    return CallPace(*cast("tuple[str, int, int, int, int]", found[0])) if found else CallPace()


def _store(database: Database, name: str, pace: CallPace) -> None:
    database.change(_KEEP, (name, pace.boot, pace.due_ns, pace.closed_ms, pace.busy_ns, pace.apart_ns))
