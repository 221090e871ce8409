"""Schedules: each moment fires as declared, once, by a run of its own, whichever process is killed or stands still.

The checker has a calendar of its own (`calendar.py`), and a book of its own of what the ledger declares.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import msgspec
from msgspec.structs import replace

from beforehand.journal.cells import LastFiring
from beforehand.journal.port import Firing
from beforehand.model import records as r
from beforehand.queues.firing_times import Schedule
from beforehand.queues.schedules import ScheduleEntry
from beforehand.testing.clock import EPOCH_MS
from beforehand.testing.loop import Actor
from simulator.checkers.calendar import due

if TYPE_CHECKING:
    from simulator.processes.worker import Life
    from simulator.world import World

FIRES: Final = 28
SOON_MS: Final = 90_000
"""So long after everything is well again, each moment that is due has been fired."""
SEEN_MS: Final = 35_000
"""One that was due for so long while everything was well cannot have been missed."""


class Known(msgspec.Struct, frozen=True):
    """A schedule as it is declared. No moment up to `since_ms` fires."""

    schedule: Schedule
    since_ms: int
    paused: bool = False


class Look(msgspec.Struct):
    """What one process decided from: the wall clock, and the last firing that it had read. `fired` counts its tries."""

    now_ms: int
    last_ms: int
    fired: int = 0


class Schedules:
    """Everything in one simulation that schedules submit."""

    def __init__(self, world: World, broken: Callable[[int, str], None]) -> None:
        self._world = world
        self._broken = broken
        self._books: dict[int, dict[str, Known]] = {0: {}}
        self._newest = 0
        self._fired: dict[str, set[int]] = {}
        self._looks: dict[tuple[Actor, str], Look] = {}
        self._tried: dict[tuple[str, int], Known] = {}
        """The schedule of each run that a process tried to submit, by the entry under which it did."""
        self._runs_tried: set[str] = set()
        self.runs: Final[dict[str, Known]] = {}
        """The runs of all firings."""
        self._started: dict[str, r.RunStarted] = {}
        self._due_since: dict[tuple[str, int], tuple[int, int]] = {}
        """The moments that are due, each with the time when that was seen, and the entry that declared it."""
        self._well_since = 0
        self._struck = 0

    # --- what processes do -----------------------------------------------------------------------------------

    def looked(self, actor: Actor, schedule: str, last: LastFiring | None, now_ms: int) -> None:
        """A process has read the last firing, and decides what is due at that time of its clock."""
        self._looks[actor, schedule] = Look(now_ms, 0 if last is None else last.moment_ms)

    def attempts(self, actor: Actor, run: str, firing: Firing) -> None:
        """A process is about to fire: what, follows from the declaration and from what it knows."""
        name, look = firing.schedule, self._looks.get((actor, firing.schedule))
        known = self._books.get(firing.entry, {}).get(name)
        if known is None or known.paused or look is None:
            self._broken(FIRES, f"{name} is fired under entry {firing.entry}, where it is not declared or paused")
            return
        right = due(known.schedule, max(known.since_ms, look.last_ms), look.now_ms)
        if right[look.fired : look.fired + 1] != [firing.moment_ms]:
            what = ", ".join(map(_text, right[look.fired : look.fired + 3])) or "none"
            when = f"at {_text(look.now_ms)} ({known.schedule.missed}, last {_text(look.last_ms)})"
            self._broken(FIRES, f"{name} is fired for {_text(firing.moment_ms)} {when}, and due is {what}")
        look.fired += 1
        self._tried[run, firing.entry] = known
        self._runs_tried.add(run)

    def about(self, run: str) -> str:
        """What a run is about that a schedule submits."""
        return str(self._tried[run, self._newest].schedule.input["about"])

    def submits(self, run: str) -> bool:
        """True if a process tried to submit that run for a schedule."""
        return run in self._runs_tried

    # --- what became durable ---------------------------------------------------------------------------------

    def entered(self, number: int, at_ms: int, body: bytes) -> None:
        """The ledger has an entry more about schedules."""
        entry = msgspec.json.decode(body, type=ScheduleEntry)
        before, book = self._books[self._newest], dict(self._books[self._newest])
        if entry.word == "declare":
            book = {name: _declared(before.get(name), one, at_ms) for name, one in entry.schedules.items()}
        elif entry.schedule in book:
            one = book[entry.schedule]
            if entry.word == "pause":
                book[entry.schedule] = replace(one, paused=True)
            elif one.paused:
                book[entry.schedule] = replace(one, paused=False, since_ms=at_ms)
        self._books[number] = book
        self._newest = number
        self._world.tell(None, f"the ledger has entry {number}: {entry.word} {entry.schedule or sorted(book)}")
        self._reached(entry.word)

    def fired(self, schedule: str, moment_ms: int, run: str) -> None:
        """A schedule has fired with this run."""
        known = self._books[self._newest].get(schedule)
        self._world.tell(None, f"{schedule} has fired for {_text(moment_ms)}")
        if known is None or known.paused:
            self._broken(FIRES, f"{schedule} fired for {_text(moment_ms)}, and is paused or not declared")
            return
        if (run, self._newest) not in self._tried:
            self._broken(FIRES, f"{schedule} fired for {_text(moment_ms)} under an entry that another one follows")
        if run != f"{schedule}@{_text(moment_ms)}" or run in self.runs:
            self._broken(FIRES, f"{schedule} fired for {_text(moment_ms)} with the run {run}")
        if moment_ms <= max(self._last(schedule), known.since_ms) or moment_ms > self._wall():
            self._broken(FIRES, f"{schedule} fired for {_text(moment_ms)} again, after a later one, or too soon")
        self._fired.setdefault(schedule, set()).add(moment_ms)
        self.runs[run] = known
        late = self._wall() - moment_ms > known.schedule.grace_ms
        self._reached(f"fired ({known.schedule.missed})" if late else "fired on time")

    def heard(self, run: str, record: r.Record) -> None:
        """A record became durable."""
        if isinstance(record, r.RunStarted) and record.schedule:
            self._started[run] = record

    # --- liveness --------------------------------------------------------------------------------------------

    def restless(self) -> list[str]:
        """The moments that are due. Reports those that should have fired before now."""
        if not self._world.plan.timetables:
            return []
        now, found = self._world.now_ms(), dict[tuple[str, int], Known]()
        self._see_whether_all_is_well()
        for name, known in self._books[self._newest].items():
            last = max(known.since_ms, self._last(name))
            if not known.paused and (moments := due(known.schedule, last, self._wall())):
                found[name, moments[0]] = known
        for place, known in found.items():
            seen, _ = self._due_since.setdefault(place, (now, self._newest))
            if now - max(seen, self._well_since) > SOON_MS and not self._world.checker.queues.is_full(
                known.schedule.queue
            ):
                self._broken(FIRES, f"{place[0]} is due for {_text(place[1])} since {seen} ms, and has not fired")
        for place in self._due_since.keys() - found.keys():
            seen, entry = self._due_since.pop(place)
            missed = self._last(place[0]) < place[1] and entry == self._newest
            if missed and max(seen, self._well_since) + SEEN_MS < now and not self._may_be_refused(place[0]):
                self._broken(FIRES, f"{place[0]} was due for {_text(place[1])} from {seen} ms on, and was missed")
        return [f"{name} is due for {_text(moment)}" for name, moment in found]

    def at_the_end(self) -> None:
        """Everything is drained: each firing has its run, as declared."""
        if self._started.keys() != self.runs.keys():
            self._broken(FIRES, f"fired were {sorted(self.runs)}, and submitted {sorted(self._started)}")
            return
        for run, known in self.runs.items():
            started, declared = self._started[run], known.schedule
            found = started.schedule, _text(started.moment), started.agent, started.queue, started.tenant
            name, _, moment = run.partition("@")
            if found != (name, moment, declared.agent, declared.queue, declared.tenant):
                self._broken(FIRES, f"run {run} was submitted as {found}")
            if msgspec.json.decode(started.input) != _recorded(declared.input):
                self._broken(FIRES, f"run {run} has an input that is not declared")

    # --- inside ----------------------------------------------------------------------------------------------

    def _see_whether_all_is_well(self) -> None:
        """All processes are up and can reach the journal, and nothing went wrong since the last look."""
        world = self._world
        struck, now = len(world.nemesis.struck), world.now_ms()
        up = all(life.app is not None and life.actor.alive and not life.actor.paused for life in _newest(world))
        dark = max(world.dark_until, world.full_until, world.slow_until, *world.lost_until.values(), 0)
        if struck != self._struck or not up or dark >= now:
            self._well_since = now
        self._struck = struck

    def _may_be_refused(self, name: str) -> bool:
        known = self._books[self._newest].get(name)
        return known is None or known.paused or self._world.checker.queues.is_full(known.schedule.queue)

    def _last(self, name: str) -> int:
        """The last moment that has fired and is not to come; a clock that was wrong may have fired later ones."""
        return max((moment for moment in self._fired.get(name, ()) if moment <= self._wall()), default=0)

    def _wall(self) -> int:
        return EPOCH_MS + self._world.now_ms() + self._world.skew_ms

    def _reached(self, what: str) -> None:
        self._world.reach.endings[f"schedule: {what}"] += 1


def _newest(world: World) -> list[Life]:
    """The last life of each worker."""
    return list({life.plan.name: life for life in world.lives.values()}.values())


def _declared(before: Known | None, schedule: Schedule, at_ms: int) -> Known:
    if before is None:
        return Known(schedule, at_ms)
    old = before.schedule
    same = (old.cron, old.every_ms, old.at, old.zone, old.missed, old.grace_ms) == (
        schedule.cron, schedule.every_ms, schedule.at, schedule.zone, schedule.missed, schedule.grace_ms,
    )  # fmt: skip
    return replace(before, schedule=schedule, since_ms=before.since_ms if same else at_ms)


def _recorded(given: Any) -> object:
    """The input of a run as its record has it: that of a schedule is a `Round`."""
    return {"input": {"$object": ["Round", {"about": given["about"], "kinds": {"$tuple": given["kinds"]}}]}}


def _text(moment_ms: int) -> str:
    return f"{datetime.fromtimestamp(moment_ms // 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
