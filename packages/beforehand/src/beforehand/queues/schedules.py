"""Schedules: what is declared in `queues.yaml` or in code, its check, and what the entries in the ledger add up to.

`firing_times.py` says when one fires. ADR 34 has the design.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from typing import Any, Final, Literal, cast, get_args

import msgspec
from msgspec.structs import replace

from beforehand.model.alike import nearest, unknown_fields
from beforehand.model.errors import UsageError
from beforehand.model.ids import can_name
from beforehand.policies import milliseconds, written_duration
from beforehand.queues.firing_times import MissedRule, Schedule, next_moment, one_time
from beforehand.queues.limits import HIGHEST, LOWEST, DeclaredLimits, LimitsError, read_limits
from beforehand.queues.zones import zone_fault

STREAM: Final = "schedules"
"""The ledger stream of declarations, and of commands that pause and resume a schedule."""
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
_SHORTEST_MS: Final = 1_000
_LONGEST_MS: Final = 100 * 366 * 86_400_000
_REFERENCE_MS: Final = 1_704_067_200_000  # 2024-01-01: the check of an expression does not depend on the clock
_APART_MS: Final = 60_000  # so far the clocks of two processes may differ
_SPANS: Final = {"every": "every_ms", "grace": "grace_ms"}
_HOW_LONG: Final = "write a duration such as 30s, 5m or 1h"


class ScheduleEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry of the stream: all schedules as declared, or a person's command about one of them."""

    word: Literal["declare", "pause", "resume"]
    schedules: dict[str, Schedule] = {}
    schedule: str = ""
    by: str = ""
    why: str = ""


class KnownSchedule(msgspec.Struct, frozen=True):
    """One schedule as the ledger has it. Moments up to `since_ms` never fire; `paused` says why it is."""

    schedule: Schedule
    since_ms: int
    paused: str = ""


class ScheduleBook(msgspec.Struct, frozen=True):
    """All schedules as the entries of the ledger have them, up to the one of the number `entry`."""

    entry: int = 0
    schedules: Mapping[str, KnownSchedule] = {}

    def after(self, number: int, at_ms: int, entry: ScheduleEntry) -> ScheduleBook:
        """The book with one more entry.

        A schedule whose timing is new or has changed begins at that moment, and so does one that is resumed: what it
        missed before does not fire. Any other declaration keeps its place, and that it is paused.
        """
        known = dict(self.schedules)
        if entry.word == "declare":
            known = {name: _declared(self.schedules.get(name), one, at_ms) for name, one in entry.schedules.items()}
        elif (one := known.get(entry.schedule)) is not None:
            if entry.word == "pause":
                known[entry.schedule] = replace(one, paused=_reason(entry))
            elif one.paused:
                known[entry.schedule] = replace(one, since_ms=at_ms, paused="")
        return ScheduleBook(number, known)

    def after_unreadable(self, number: int) -> ScheduleBook:
        """The book with an entry that cannot be read. It may have been a pause, so all schedules are paused."""
        why = f"ledger entry {number} cannot be read"
        return replace(
            self, entry=number, schedules={name: replace(one, paused=why) for name, one in self.schedules.items()}
        )

    def named(self, name: str) -> KnownSchedule:
        """The schedule of that name. Raises `UsageError`."""
        if name in self.schedules:
            return self.schedules[name]
        near = nearest(name, self.schedules)
        raise UsageError(
            f"schedule {name!r} does not exist",
            known=f"declared schedules: {', '.join(sorted(self.schedules)) or 'none'}; nothing was changed",
            next_step=f"did you mean {near}?" if near else "see them: beforehand schedules",
        )


def _declared(before: KnownSchedule | None, schedule: Schedule, at_ms: int) -> KnownSchedule:
    if before is None:
        return KnownSchedule(schedule, at_ms)
    return replace(
        before, schedule=schedule, since_ms=before.since_ms if before.schedule.timing == schedule.timing else at_ms
    )


def _reason(entry: ScheduleEntry) -> str:
    return f"paused by {entry.by}" + (f": {entry.why}" if entry.why else "")


def clock_fault(known: KnownSchedule, newest_ms: int, now_ms: int) -> str:
    """The trace that a wrong clock has left on a schedule that has fired up to `newest_ms`; empty if none has."""
    if known.since_ms > now_ms + _APART_MS:
        return f"a clock was wrong: it begins at {_text(known.since_ms)}, unless it is paused and resumed"
    if newest_ms > now_ms + _APART_MS:
        return f"a clock was wrong: it has fired for {_text(newest_ms)} already"
    return ""


def scheduled_agents(schedules: Mapping[str, Schedule]) -> dict[str, str]:
    """The agents of these schedules, by the beginning of a remark about them."""
    return {f"the schedule {name} starts no run": one.agent for name, one in schedules.items()}


def run_id_of(name: str, moment_ms: int) -> str:
    """The id of the run that a schedule's firing submits: whichever process fires it, it is the same run."""
    return f"{name}@{_text(moment_ms)}"


def _text(moment_ms: int) -> str:
    return f"{datetime.fromtimestamp(moment_ms // 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


# --- reading and checking --------------------------------------------------------------------------------------------


class QueuesAndSchedules(msgspec.Struct, frozen=True):
    """The declarations of an app: the contents of `queues.yaml`. None leaves what is declared already as it is."""

    limits: DeclaredLimits | None = None
    schedules: Mapping[str, Schedule] | None = None


def read_declarations(given: object, where: str) -> QueuesAndSchedules:
    """The limits and the schedules of a file. Raises `LimitsError` naming every fault."""
    faults: list[str] = []
    limits = None
    try:
        limits = read_limits(given, where)
    except LimitsError as error:
        faults += error.faults
    whole = cast("dict[str, Any]", given) if isinstance(given, dict) else {}
    schedules: dict[str, Schedule] = {}
    if "schedules" in whole:
        entries: object = whole["schedules"]
        if isinstance(entries, dict):
            for name, fields in cast("dict[object, object]", entries).items():
                schedules |= _read(str(name), fields, faults)
        else:
            faults.append("schedules: it is a mapping of names; {} removes all")
    faults += schedule_faults(schedules, limits)
    if faults:
        raise LimitsError(where, tuple(faults))
    return QueuesAndSchedules(limits, schedules if "schedules" in whole else None)


def schedule_faults(schedules: Mapping[str, Schedule], limits: DeclaredLimits | None) -> list[str]:
    """Every fault of these schedules. Without `limits`, queues and tenants are not checked."""
    return [f"schedules.{name[:100]}{fault}" for name, one in schedules.items() for fault in _faults(name, one, limits)]


def _faults(name: str, one: Schedule, limits: DeclaredLimits | None) -> Iterator[str]:
    if _NAME.fullmatch(name) is None:
        yield ": a name has 1 to 100 letters, digits or . _ -, for it is a part of run ids"
    if not can_name(one.agent):
        yield ".agent: it names the agent that runs"
    if sum(map(bool, (one.cron, one.every_ms, one.at))) != 1:
        yield ": give one of cron, every and at"
    elif (fault := zone_fault(one.zone)) is not None:
        yield f".zone: {fault}"
    elif (fault := _timing_fault(one)) is not None:
        yield fault
    yield from _rule_faults(one, limits)


def _rule_faults(one: Schedule, limits: DeclaredLimits | None) -> Iterator[str]:
    if one.missed not in get_args(MissedRule):
        yield f".missed={one.missed}: choose skip, once or all"
    if not 0 <= one.grace_ms <= _LONGEST_MS:
        yield ".grace: it is a duration of at most a hundred years"
    if not LOWEST <= one.priority <= HIGHEST:
        yield f".priority={one.priority}: it is from {LOWEST} to {HIGHEST}"
    if one.tenant and not can_name(one.tenant):
        yield ".tenant: it cannot be a name"
    elif limits is not None:
        try:
            limits.check_names(one.queue, one.tenant)
        except UsageError as error:
            yield f": {error.message}"


def _timing_fault(one: Schedule) -> str | None:
    if one.every_ms:
        fits = _SHORTEST_MS <= one.every_ms <= _LONGEST_MS and one.every_ms % _SHORTEST_MS == 0
        return None if fits else ".every: it is at least 1s, in whole seconds, and at most a hundred years"
    if one.at:
        try:
            one_time(one)
        except (ValueError, OverflowError):
            return f".at: {one.at[:40]!r} is not a time; write 2027-01-31T12:00"
        return None
    return _cron_fault(one)


def _cron_fault(one: Schedule) -> str | None:
    if len(one.cron) > 200 or len(one.cron.split()) != 5:
        return (
            f".cron: {one.cron[:40]!r} does not have five fields: minute, hour, day of month, month, day of week; "
            "for firing more than once a minute use every"
        )
    try:
        never = next_moment(one, _REFERENCE_MS) is None
    except UsageError as error:
        return f".cron: {error.message}; {error.next_step}"
    except Exception as error:  # noqa: BLE001 - cronsim raises errors of several kinds for odd expressions
        text = str(error) or type(error).__name__
        return f".cron: {one.cron!r} never fires, or cannot be read: {text}"
    return f".cron: {one.cron!r} never fires" if never else None


def _read(name: str, given: object, faults: list[str]) -> dict[str, Schedule]:
    """One schedule of a file, by its name; nothing where it has a fault."""
    where = f"schedules.{name[:100]}"
    if not isinstance(given, dict):
        faults.append(f"{where}: it is a mapping with agent, input and one of cron, every and at")
        return {}
    fields = dict(cast("dict[str, Any]", given))
    found = list(unknown_fields(fields, _FIELDS, f"{where}."))
    if "agent" not in fields:
        found.append(f"{where}.agent: it is missing")
    for written, field in _SPANS.items():
        if written in fields:
            span = written_duration(str(fields.pop(written)))
            found += [f"{where}.{written}: {_HOW_LONG}"] if span is None else []
            fields[field] = 0 if span is None else milliseconds(span)
            found += [f"{where}.{written}: it is longer than zero"] if span is not None and not span else []
    if isinstance(at := fields.get("at"), date):  # YAML reads some spellings as a date or a time of its own
        fields["at"] = at.isoformat()
    if "input" in fields:
        fields["input"], fault = _plain(fields["input"])
        found += [f"{where}.input: {fault}"] if fault else []
    try:
        schedule = msgspec.convert(
            {field: value for field, value in fields.items() if field in Schedule.__struct_fields__}, Schedule
        )
    except msgspec.ValidationError as error:
        found += [] if "agent" not in fields else [f"{where}: {error}"]
        schedule = None
    faults += found
    return {} if found or schedule is None else {name: schedule}


_FIELDS: Final = tuple(name.removesuffix("_ms") for name in Schedule.__struct_fields__)


def _plain(value: object) -> tuple[object, str]:
    """A value as JSON has it; dates become text. Beside it the fault, if JSON cannot hold it."""
    try:
        return msgspec.json.decode(msgspec.json.encode(value)), ""
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        return None, f"it is not JSON: {error}"


def book_of(entries: Iterable[tuple[int, int, ScheduleEntry | None]]) -> ScheduleBook:
    """The book of these entries, each with its number and its time; None stands for one that cannot be read."""
    book = ScheduleBook()
    for number, at_ms, entry in entries:
        book = book.after_unreadable(number) if entry is None else book.after(number, at_ms, entry)
    return book
