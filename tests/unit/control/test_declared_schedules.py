"""What a schedule may say, up to its bounds, and what each entry of the ledger makes of those before it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from beforehand.errors import UsageError
from beforehand.queues.firing_times import Schedule
from beforehand.queues.limits import DeclaredLimits, LimitsError, QueueLimits, TenantLimits
from beforehand.queues.schedules import (
    KnownSchedule,
    ScheduleBook,
    ScheduleEntry,
    book_of,
    clock_fault,
    read_declarations,
    run_id_of,
    schedule_faults,
    scheduled_agents,
)

CENTURY_MS = 100 * 366 * 86_400_000
EACH = Schedule("desk", every_ms=5_000)
LIMITS = DeclaredLimits({"mail": QueueLimits()}, tenants={"acme": TenantLimits()})
BOUNDS: list[tuple[dict[str, Any], str]] = [
    ({"every_ms": 1_000}, ""),
    ({"every_ms": 999}, ".every: it is at least 1s"),
    ({"every_ms": 1_500}, ".every: it is at least 1s, in whole seconds"),
    ({"every_ms": -1_000}, ".every: it is at least 1s"),
    ({"every_ms": CENTURY_MS}, ""),
    ({"every_ms": CENTURY_MS + 1_000}, ".every: it is at least 1s, in whole seconds, and at most a hundred years"),
    ({"grace_ms": 0}, ""),
    ({"grace_ms": -1}, ".grace: it is a duration of at most a hundred years"),
    ({"grace_ms": CENTURY_MS}, ""),
    ({"grace_ms": CENTURY_MS + 1}, ".grace: it is a duration of at most a hundred years"),
    ({"priority": -9}, ""),
    ({"priority": -10}, ".priority=-10: it is from -9 to 9"),
    ({"priority": 9}, ""),
    ({"priority": 10}, ".priority=10: it is from -9 to 9"),
    *(({"missed": missed}, "") for missed in ("skip", "once", "all")),
    ({"missed": "never"}, ".missed=never: choose skip, once or all"),
    ({"agent": ""}, ".agent: it names the agent that runs"),
    ({"agent": "a/b"}, ".agent: it names the agent that runs"),
    ({"tenant": "acme"}, ""),
    ({"tenant": "a/b"}, ".tenant: it cannot be a name"),
    ({"tenant": "bob"}, ": tenant 'bob' does not exist"),
    ({"queue": "mail"}, ""),
    ({"queue": "default"}, ""),
    ({"queue": "fax"}, ": queue 'fax' does not exist"),
    ({"zone": "Europe/Berlin"}, ""),
    ({"zone": "Europe/Berln"}, ".zone: time zone 'Europe/Berln' does not exist"),
    ({"every_ms": 0}, ": give one of cron, every and at"),
    ({"at": "2027-01-31T12:00"}, ": give one of cron, every and at"),
    ({"cron": "0 3 * * *"}, ": give one of cron, every and at"),
    ({"every_ms": 0, "at": "2027-01-31T12:00"}, ""),
    ({"every_ms": 0, "at": "2027-01-31T12:00+02:00"}, ""),
    ({"every_ms": 0, "at": "noon"}, ".at: 'noon' is not a time"),
    ({"every_ms": 0, "at": "2027-13-01T00:00"}, ".at: '2027-13-01T00:00' is not a time"),
    ({"every_ms": 0, "cron": "0 3 * * *"}, ""),
    ({"every_ms": 0, "cron": "0 3 * *"}, ".cron: '0 3 * *' does not have five fields"),
    ({"every_ms": 0, "cron": "0 3 * * * *"}, ".cron: '0 3 * * * *' does not have five fields"),
    ({"every_ms": 0, "cron": ",".join(["0"] * 96) + " " * 2 + "* * * *"}, ""),
    ({"every_ms": 0, "cron": ",".join(["0"] * 96) + " " * 3 + "* * * *"}, ".cron: '0,0"),
    ({"every_ms": 0, "cron": "99 3 * * *"}, ".cron: '99 3 * * *' never fires, or cannot be read: Bad"),
    ({"every_ms": 0, "cron": "0 0 30 2 *"}, ".cron: '0 0 30 2 *' never fires"),
]


@pytest.mark.parametrize(("fields", "fault"), BOUNDS, ids=str)
def test_a_schedule_is_accepted_up_to_its_bounds(fields: dict[str, Any], fault: str):
    faults = schedule_faults({"n": replace(EACH, **fields)}, LIMITS)
    assert len(faults) == bool(fault), faults
    assert all(one.startswith(f"schedules.n{fault}") for one in faults), faults


@pytest.mark.parametrize("name", ["n", "N.1_a-b", "n" * 100, "", "n" * 101, "a b", "a/b", "a@b"])
def test_the_name_of_a_schedule_can_be_a_part_of_the_ids_of_its_runs(name: str):
    fits = 1 <= len(name) <= 100 and all(sign.isalnum() or sign in "._-" for sign in name)
    assert bool(schedule_faults({name: EACH}, None)) == (not fits)
    if fits:
        assert run_id_of(name, 1_767_225_605_999) == f"{name}@2026-01-01T00:00:05Z"


@pytest.mark.parametrize(
    ("fields", "schedule"),
    [
        ({}, EACH),
        ({"grace": "2m"}, replace(EACH, grace_ms=120_000)),
        ({"grace": "0s"}, ".grace: it is longer than zero"),
        ({"grace": "soon"}, ".grace: write a duration such as"),
        ({"every": "1h"}, replace(EACH, every_ms=3_600_000)),
        ({"input": {"a": [1, None]}}, replace(EACH, input={"a": [1, None]})),
        ({"input": {1, 2}}, replace(EACH, input=[1, 2])),
        ({"input": 1j}, ".input: it is not JSON: "),
        ({"input": float("nan"), "queue": "mail"}, replace(EACH, queue="mail")),
        ({"priority": 3, "tenant": "acme", "missed": "all", "zone": "Europe/Berlin"},
         replace(EACH, priority=3, tenant="acme", missed="all", zone="Europe/Berlin")),
    ],
    ids=str,
)  # fmt: skip
def test_a_schedule_of_a_file_is_read_as_it_is_written(fields: dict[str, Any], schedule: Schedule | str):
    document = {"schedules": {"n": {"agent": "desk", "every": "5s", **fields}}, "queues": {"mail": {}}}
    if isinstance(schedule, str):
        with pytest.raises(LimitsError) as refused:
            read_declarations(document, "queues.yaml")
        (fault,) = refused.value.faults
        assert fault.startswith(f"schedules.n{schedule}")
        return
    assert read_declarations(document, "queues.yaml").schedules == {"n": schedule}


@pytest.mark.parametrize("schedules", [None, {}])
def test_a_file_without_schedules_leaves_those_that_are_declared(schedules: dict[str, Any] | None):
    document = {"queues": {"mail": {}}} if schedules is None else {"queues": {"mail": {}}, "schedules": schedules}
    found = read_declarations(document, "queues.yaml")
    assert (found.schedules, found.limits) == (schedules, DeclaredLimits({"mail": QueueLimits()}))


# --- the entries of the ledger ---------------------------------------------------------------------------------------

OTHER = replace(EACH, every_ms=60_000)
PAUSE, RESUME = ScheduleEntry("pause", schedule="n", by="ann", why="too many"), ScheduleEntry("resume", schedule="n")
QUIET = ScheduleEntry("pause", schedule="n", by="bob")


def declare(**schedules: Schedule) -> ScheduleEntry:
    return ScheduleEntry("declare", schedules)


RETIMED = [
    {"every_ms": 7_000}, {"cron": "0 3 * * *"}, {"at": "2027-01-31T12:00"}, {"zone": "Europe/Berlin"}, {"missed": "all"},
    {"grace_ms": 5},
]  # fmt: skip
KEPT = [{"input": 7}, {"queue": "mail"}, {"priority": 3}, {"tenant": "acme"}, {"agent": "clerk"}]
ENTRIES: list[tuple[list[ScheduleEntry | None], dict[str, tuple[Schedule, int, str]]]] = [
    # entries at the moments 10, 20 ..., and each schedule then: since when it fires, and why it is paused
    ([], {}),
    ([declare(n=EACH)], {"n": (EACH, 10, "")}),
    ([declare(n=EACH), declare(n=EACH)], {"n": (EACH, 10, "")}),
    ([declare(n=EACH), declare(m=EACH)], {"m": (EACH, 20, "")}),
    ([declare(n=EACH), declare(n=EACH, m=OTHER)], {"n": (EACH, 10, ""), "m": (OTHER, 20, "")}),
    ([declare(n=EACH), declare()], {}),
    ([declare(n=EACH), declare(), declare(n=EACH)], {"n": (EACH, 30, "")}),
    *(([declare(n=EACH), declare(n=replace(EACH, **more))], {"n": (replace(EACH, **more), 20, "")}) for more in RETIMED),
    *(([declare(n=EACH), declare(n=replace(EACH, **more))], {"n": (replace(EACH, **more), 10, "")}) for more in KEPT),
    ([declare(n=EACH), PAUSE], {"n": (EACH, 10, "paused by ann: too many")}),
    ([declare(n=EACH), QUIET], {"n": (EACH, 10, "paused by bob")}),
    ([declare(n=EACH), PAUSE, declare(n=EACH)], {"n": (EACH, 10, "paused by ann: too many")}),
    ([declare(n=EACH), PAUSE, declare(n=OTHER)], {"n": (OTHER, 30, "paused by ann: too many")}),
    ([declare(n=EACH), PAUSE, RESUME], {"n": (EACH, 30, "")}),
    ([declare(n=EACH), RESUME], {"n": (EACH, 10, "")}),
    ([declare(n=EACH, m=EACH), PAUSE], {"n": (EACH, 10, "paused by ann: too many"), "m": (EACH, 10, "")}),
    ([declare(m=EACH), PAUSE, RESUME], {"m": (EACH, 10, "")}),
    ([declare(n=EACH, m=EACH), None],
     dict.fromkeys(("n", "m"), (EACH, 10, "ledger entry 2 cannot be read"))),
    ([declare(n=EACH, m=EACH), None, RESUME],
     {"n": (EACH, 30, ""), "m": (EACH, 10, "ledger entry 2 cannot be read")}),
    ([None, declare(n=EACH)], {"n": (EACH, 20, "")}),
]  # fmt: skip


@pytest.mark.parametrize(("entries", "known"), ENTRIES, ids=range(len(ENTRIES)))
def test_each_entry_changes_what_it_is_about_and_nothing_else(
    entries: list[ScheduleEntry | None], known: dict[str, tuple[Schedule, int, str]]
):
    book = book_of((number, 10 * number, entry) for number, entry in enumerate(entries, 1))
    assert book == ScheduleBook(len(entries), {name: KnownSchedule(*one) for name, one in known.items()})


def test_a_schedule_that_is_not_declared_is_named_with_those_that_are():
    book = book_of([(1, 10, declare(nightly=EACH, monthly=OTHER))])
    assert book.named("nightly") == KnownSchedule(EACH, 10)
    for known, name, next_step in (
        (book, "nightli", "did you mean nightly?"), (book, "x", "see them: beforehand schedules"),
        (ScheduleBook(), "x", "see them: beforehand schedules"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=f"schedule '{name}' does not exist") as refused:
            known.named(name)
        declared = "monthly, nightly" if known is book else "none"
        assert refused.value.known == f"declared schedules: {declared}; nothing was changed"
        assert refused.value.next_step == next_step


@pytest.mark.parametrize(
    ("since_s", "newest_s", "fault"),
    [
        (0, 0, ""),
        (1_060, 0, ""),
        (1_061, 0, "a clock was wrong: it begins at 1970-01-01T00:17:41Z, unless it is paused and resumed"),
        (0, 1_060, ""),
        (0, 1_061, "a clock was wrong: it has fired for 1970-01-01T00:17:41Z already"),
        (1_061, 1_061, "a clock was wrong: it begins at 1970-01-01T00:17:41Z, unless it is paused and resumed"),
    ],
)
def test_a_clock_that_was_ahead_by_more_than_a_minute_has_left_its_trace(since_s: int, newest_s: int, fault: str):
    assert clock_fault(KnownSchedule(EACH, since_s * 1000), newest_s * 1000, 1_000_000) == fault


def test_the_agents_of_schedules_are_named():
    assert scheduled_agents({"n": EACH, "m": replace(EACH, agent="clerk")}) == {
        "the schedule n starts no run": "desk", "the schedule m starts no run": "clerk",
    }  # fmt: skip
