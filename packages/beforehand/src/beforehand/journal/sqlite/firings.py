"""Firings of schedules on SQLite: judged and stored in the transaction that submits the run."""

from __future__ import annotations

from typing import Final, cast

from beforehand.journal.port import Firing, LastFiring
from beforehand.journal.sqlite.driver import Database
from beforehand.queues.schedules import STREAM

LAST_FIRING: Final = (
    "select moment_ms, run from firing where schedule = ? and moment_ms <= ? order by moment_ms desc limit 1"
)
NEWEST_ENTRY: Final = "select id from ledger where stream = ? order by id desc limit 1"


def last_firing(database: Database, schedule: str, until_ms: int) -> LastFiring | None:
    """The last firing of a schedule up to that moment."""
    found = database.rows(LAST_FIRING, (schedule, until_ms))
    return LastFiring(*cast("tuple[int, str]", found[0])) if found else None


def may_fire(database: Database, firing: Firing, wall_ms: int) -> bool:
    """True if the moment has come, neither it nor one since was fired, and nothing was declared; see `NewRun`."""
    last = last_firing(database, firing.schedule, wall_ms)
    newest = database.rows(NEWEST_ENTRY, (STREAM,))
    return (
        firing.moment_ms <= wall_ms
        and (last is None or last.moment_ms < firing.moment_ms)
        and (cast("int", newest[0][0]) if newest else 0) == firing.entry
    )


def store_firing(database: Database, firing: Firing, run: str) -> None:
    """Store that the schedule has fired with this run."""
    database.change(
        "insert into firing (schedule, moment_ms, run) values (?, ?, ?)", (firing.schedule, firing.moment_ms, run)
    )
