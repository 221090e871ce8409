"""Schedules that are declared anew: what begins one anew, and what leaves it as it is."""

from typing import Any

import pytest
from msgspec.structs import replace

from beforehand.queues.firing_times import Schedule
from beforehand.queues.schedules import ScheduleBook, ScheduleEntry

BEGINS_ANEW: dict[str, Any] = {
    "cron": "0 9 * * *", "every_ms": 3_600_000, "at": "2030-01-01T09:00", "zone": "Asia/Tokyo", "missed": "all",
    "grace_ms": 120_000,
}  # fmt: skip
STAYS: dict[str, Any] = {"agent": "clerk", "input": {"id": "2"}, "queue": "slow", "priority": 3, "tenant": "acme"}


@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize("field", Schedule.__struct_fields__)
def test_a_change_of_when_it_fires_begins_it_anew_and_any_other_one_does_not(field: str, paused: bool):
    """What would have fired before, by a time that was not declared then, must not fire now."""
    one = Schedule("desk", {"id": "1"}, every_ms=3_600_000)
    value = {**BEGINS_ANEW, **STAYS}[field]
    changed = replace(one, **{field: value if field != "every_ms" else one.every_ms + 1000})
    book = ScheduleBook().after(1, 100, ScheduleEntry("declare", {"s": one, "other": one}))
    if paused:
        book = book.after(2, 200, ScheduleEntry("pause", schedule="s", by="ann"))
    book = book.after(3, 300, ScheduleEntry("declare", {"s": changed, "other": one}))
    assert book.named("s").schedule == changed
    assert book.named("s").since_ms == (300 if field in BEGINS_ANEW else 100)
    assert book.named("other").since_ms == 100
    assert bool(book.named("s").paused) == paused
