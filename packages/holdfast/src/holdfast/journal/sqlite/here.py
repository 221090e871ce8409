"""What a journal knows of the machine under it: clocks, names, and whether a process still lives.

One value, so that tests can be another machine, another boot or another hour.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from holdfast.journal.host import boot_id, fate, machine_id, uptime_ms, wall_ms
from holdfast.journal.port import Fate, Worker


class JournalClock(msgspec.Struct, frozen=True):
    """A clock for `SqliteJournal(path, clock=...)`: leases, waits and settle windows are measured by it.

    `uptime_ms` counts milliseconds, never goes back, and two of its values compare while `boot` is the same.
    `wall_ms` is the calendar. Every process that has the file open needs a clock of the same `boot`.
    """

    boot: str
    uptime_ms: Callable[[], int]
    wall_ms: Callable[[], int]


class Here(msgspec.Struct, frozen=True):
    """`uptime_ms` runs on while the machine sleeps and is set by nobody; `wall_ms` is the calendar."""

    machine: str
    boot: str
    uptime_ms: Callable[[], int]
    wall_ms: Callable[[], int]
    fate: Callable[[Worker], Fate]


def this_host() -> Here:
    """The real machine."""
    return Here(
        machine=machine_id(),
        boot=boot_id(),
        uptime_ms=uptime_ms,
        wall_ms=wall_ms,
        fate=fate,
    )
