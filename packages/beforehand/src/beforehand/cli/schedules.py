"""`schedules`: list, preview, pause and resume the schedules that submit runs."""

from __future__ import annotations

import heapq
from collections.abc import Coroutine, Mapping
from itertools import islice
from typing import Any, Final, Literal, cast

import click
import msgspec
from msgspec.structs import replace

from beforehand.cli.common import CommandCall, by_option, command
from beforehand.cli.config import undeclared
from beforehand.control.code_location import unknown_agents
from beforehand.engine.process import newest_limits
from beforehand.errors import UsageError
from beforehand.inspect.reader import JournalReader, read_schedules, schedule_clock
from beforehand.inspect.text import count, duration, moment, safe
from beforehand.journal.cells import LastFiring, last_firing
from beforehand.journal.host import wall_ms
from beforehand.queues.firing_times import Schedule, due, moments, next_moment
from beforehand.queues.limits import Declaration
from beforehand.queues.schedules import KnownSchedule, run_id_of, scheduled_agents

_WORDS: Final = ("list", "pause", "resume")


class ListedSchedule(msgspec.Struct, frozen=True):
    """One schedule as `schedules --json` lists it. `due_ms` is the oldest moment that is due and was not fired yet.

    `waits` says by whom its queue is drained: it fires when the queue is resumed. `clock` is the trace of a
    wrong clock.
    """

    schedule: str
    declared: Schedule
    next_ms: int | None
    due_ms: int | None
    last: LastFiring | None
    paused: str
    waits: str = ""
    clock: str = ""


class UpcomingFiring(msgspec.Struct, frozen=True):
    """One firing to come, as `schedules --next` lists it."""

    moment_ms: int
    schedule: str
    agent: str
    run: str


@command(
    "schedules",
    examples=(
        "beforehand schedules",
        "beforehand schedules --next 10",
        "beforehand schedules pause nightly --why 'the bank is closed'",
        "beforehand schedules resume nightly",
    ),
)
@click.argument("word", type=click.Choice(_WORDS), default="list", metavar="[list|pause|resume]")
@click.argument("name", default="")
@click.option("--next", "upcoming", type=click.IntRange(1, 1000), metavar="N", help="List the next N firings.")
@click.option("--why", default="", metavar="TEXT", help="Why it is paused; it is recorded.")
@by_option
def schedules(
    call: CommandCall, word: str, name: str, upcoming: int | None, why: str, by: str
) -> Coroutine[Any, Any, None] | None:
    """List the schedules, or preview, pause and resume them.

    A schedule that is paused does not fire, and what it misses does not fire later. It
    continues with the first moment after it is resumed. With NAME only that one is listed.
    """
    if word != "list":
        return _steer(call, cast("Literal['pause', 'resume']", word), name, by=by, why=why)
    now = wall_ms()
    known, last, clocks, newest, remarks = call.read(lambda reader: _read(reader, name, now))
    if upcoming is None:
        found = [_listed(one, known[one], last[one], now) for one in sorted(known)]
        _list(call, [replace(one, waits=_waits(newest, one), clock=clocks[one.schedule]) for one in found])
    else:
        _preview(call, known, last, now, upcoming)
    for remark in remarks:
        call.screen.note((remark, "yellow"))
    return None


_Read = tuple[dict[str, KnownSchedule], dict[str, LastFiring | None], dict[str, str], Declaration, list[str]]


async def _read(reader: JournalReader, name: str, now_ms: int) -> _Read:
    book = await read_schedules(reader.journal)
    known = {name: book.named(name)} if name else dict(book.schedules)
    newest = await newest_limits(reader.journal) or Declaration()
    last = {one: await last_firing(reader.journal, one, now_ms) for one in known}
    clocks = {one: await schedule_clock(reader.journal, one, known[one], now_ms) for one in known}
    named = scheduled_agents({name: one.schedule for name, one in known.items()})
    remarks = await unknown_agents(reader.journal, named)
    if not name:
        remarks += undeclared("schedule", {one: known[one].schedule for one in known})
    return known, last, clocks, newest, remarks


def _waits(newest: Declaration, one: ListedSchedule) -> str:
    draining = newest.mode(one.declared.queue).draining
    return "" if draining is None else f"waits: the queue {one.declared.queue} is drained {draining}"


def _list(call: CommandCall, listed: list[ListedSchedule]) -> None:
    if call.screen.wrote_json({"schedules": listed}):
        return
    call.screen.columns([_cells(one) for one in listed])
    for one in listed:
        if one.clock:
            call.screen.line(safe(f"{one.schedule}: {one.clock}"))
    call.screen.line((count(len(listed), "schedule"), "dim"))
    if any(one.due_ms is not None for one in listed):
        call.screen.next("beforehand worker")


async def _steer(call: CommandCall, word: Literal["pause", "resume"], name: str, *, by: str, why: str) -> None:
    from beforehand.control.schedules import steer_schedule  # noqa: PLC0415 - a list is there without the engine

    if not name:
        raise UsageError(f"schedules {word} needs the name of a schedule", next_step="see them: beforehand schedules")
    async with call.serving() as service:
        known, changed = await steer_schedule(service.engine, name, word, by=by, why=why)
    following = None if known.paused else next_moment(known.schedule, max(wall_ms(), known.since_ms))
    note = f"{name} does not fire until it is resumed." if known.paused else f"{name} fires again."
    if not changed:
        note = f"{name} is {known.paused}." if known.paused else f"{name} was not paused."
    if call.screen.wrote_json({"schedule": name, "paused": known.paused, "changed": changed, "next_ms": following}):
        return
    call.screen.line(safe(note))
    if following is not None:
        call.screen.line((f"The next moment is {moment(following)}.", "dim"))


def _listed(name: str, known: KnownSchedule, last: LastFiring | None, now_ms: int) -> ListedSchedule:
    if known.paused:
        return ListedSchedule(name, known.schedule, None, None, last, known.paused)
    since = known.since_ms if last is None else max(known.since_ms, last.moment_ms)
    waiting = due(known.schedule, since, now_ms, 1)
    following = next_moment(known.schedule, max(now_ms, since))
    return ListedSchedule(name, known.schedule, following, waiting[0] if waiting else None, last, "")


def _preview(
    call: CommandCall,
    known: Mapping[str, KnownSchedule],
    last: Mapping[str, LastFiring | None],
    now_ms: int,
    most: int,
) -> None:
    firings = [
        [(at, name) for at in islice(moments(one.schedule, max(now_ms, one.since_ms, _moment(last[name]))), most)]
        for name, one in known.items()
        if not one.paused
    ]
    found = [
        UpcomingFiring(at, name, known[name].schedule.agent, run_id_of(name, at))
        for at, name in islice(heapq.merge(*firings), most)
    ]
    if call.screen.wrote_json({"next": found}):
        return
    call.screen.columns([("open", moment(one.moment_ms), one.schedule, one.agent, one.run) for one in found])
    paused = sum(bool(one.paused) for one in known.values())
    call.screen.line((count(len(found), "firing") + (f"; {paused} paused" if paused else ""), "dim"))


def _moment(last: LastFiring | None) -> int:
    return 0 if last is None else last.moment_ms


def _cells(one: ListedSchedule) -> tuple[str, ...]:
    state = f"next {moment(one.next_ms)}" if one.next_ms is not None else "fires no more"
    if one.paused:
        state = one.paused
    elif one.waits:
        state = one.waits
    elif one.due_ms is not None:
        state = f"due since {moment(one.due_ms)}"
    last = "has not fired" if one.last is None else f"last {one.last.run}"
    return (
        "open" if one.paused or one.waits or one.clock or one.due_ms is not None else "ok",
        one.schedule,
        one.declared.agent,
        _when(one.declared),
        state,
        last,
    )


def _when(schedule: Schedule) -> str:
    if schedule.every_ms:
        return f"every {duration(schedule.every_ms)}"
    return f"{schedule.cron} {schedule.zone}" if schedule.cron else f"at {schedule.at} {schedule.zone}"
