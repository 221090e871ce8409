"""Queues: over the history of the listing, no limit is exceeded, the order is kept, and a submission counts once.

As the checker, it never asks the product: it counts anew after each commit, from the rows that became durable.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from beforehand.model import records as r
from beforehand.queues.limits import DeclaredLimits, TenantLimits
from beforehand.testing.clock import EPOCH_MS
from beforehand.testing.loop import Actor
from simulator.processes.queue_history import Line, QueueFiles, QueueStore
from simulator.services.service import Request

if TYPE_CHECKING:
    from simulator.world import World

LIMITS: Final = 25
ORDER: Final = 26
STORED: Final = 27
WAITS: Final = frozenset({"queued", "running", "suspended"})


class Queues:
    """Everything in one simulation that is submitted."""

    def __init__(self, world: World, broken: Callable[[int, str], None]) -> None:
        self._world = world
        self._broken = broken
        self._submissions = {world.plan.scripts[one.script].id: one for one in world.plan.submissions}
        self._lines: dict[str, Line] = {}
        self._limits = DeclaredLimits()
        self.declared_ms = 0
        """When other limits were declared last."""
        self._keys: set[str] = set()
        """The runs that have begun and not ended. Each that has a key holds it."""
        self._slots: set[tuple[str, int]] = set()
        """Each slot that was given, as a run and its token."""
        self._skips: dict[str, Collection[str]] = {}
        self._asking: Counter[str] = Counter()
        self._unsure: set[str] = set()
        """The runs of which a submission failed without an answer."""
        self._stored: set[str] = set()
        self._first: set[str] = set()
        self._begun: Counter[str] = Counter()

        self._calls: dict[int, tuple[Actor, Collection[str], int]] = {}
        """The calls of tools that are under way: their process, the limits that they began under, and their begin."""

    @property
    def limits(self) -> DeclaredLimits:
        """The limits in force."""
        return self._limits

    def tenant_of(self, run: str) -> str:
        """The tenant of a submitted run; empty for any other run."""
        line = self._lines.get(run)
        return "" if line is None else line.tenant

    @contextmanager
    def calling(self, actor: Actor, request: Request) -> Generator[None]:
        """A process calls a tool. All limits of the call hold with it.

        A call of a process that cannot be observed no longer counts once the process was stopped for longer than any
        pause: its slot may be free.
        """
        now, tool = self._world.now_ms(), request.service
        tenant = self.tenant_of(request.operation.partition("/")[0])
        recent = now - self._world.settings.pause_bound_ms
        hidden = tuple(worker.name for worker in self._world.plan.workers if worker.contained)
        unseen = actor.name.startswith(hidden)
        others = [
            under
            for process, under, since in self._calls.values()
            if process.alive and (since > recent or not (unseen or process.name.startswith(hidden)))
        ]
        limits = dict(self._call_limits(tool, tenant))
        for what, at_once in limits.items():
            self._reached(f"a call under a limit of a {what.split()[0]}{' for a tenant' * (' / ' in what)}")
            count = sum(what in under for under in others)
            if at_once is not None and count >= at_once:
                beside = f"{request.operation} is called beside {count} other calls of {what}"
                self._broken(LIMITS, f"{beside}, and its limit is {at_once}")
        self._calls[id(request)] = actor, limits.keys(), now
        try:
            yield
        finally:
            del self._calls[id(request)]

    def _call_limits(self, tool: str, tenant: str) -> Iterator[tuple[str, int | None]]:
        """Each limit that a call of this tool for this tenant is under, and how many it lets be under way at once.

        A call that began under no limit of that name is not counted by one that is declared while it is under way.
        """
        limits = self._limits
        own = limits.tenants.get(tenant) or limits.tenants.get("*") or TenantLimits()
        groups = [(f"tool {tool}", limits.tools.get(tool), own.tools.get(tool))]
        groups += [
            (f"service {name}", one, own.services.get(name))
            for name, one in limits.services.items()
            if tool in one.tools
        ]
        for name, of_all, of_one in groups:
            if of_all is not None:
                yield name, of_all.at_once
            if of_one is not None:
                yield f"{name} / {tenant}", of_one.at_once

    # --- what processes do -----------------------------------------------------------------------------------

    def looks(self, worker: str, skip: Collection[str]) -> None:
        """A process asks for runs that may start, without those in `skip`."""
        self._skips[worker] = frozenset(skip)

    def submits(self, run: str) -> None:
        """A process submits this run."""
        self._asking[run] += 1

    def refused(self, actor: Actor, run: str) -> None:
        """The queue is full. The run is not stored, unless another process submits it, too."""
        self._asking[run] -= 1
        self._reached("refused, because the queue is full")
        known = self._asking[run] or run in self._stored | self._unsure
        if actor.alive and not known and run in self._lines:
            self._broken(STORED, f"the submission of run {run} was refused, and the run is stored")

    def acknowledged(self, run: str, *, new: bool) -> None:
        """`submit` has returned: the run is stored. `new` is false if an earlier submission had stored it."""
        self._asking[run] -= 1
        if run not in self._lines:
            self._broken(STORED, f"the submission of run {run} was acknowledged, and the run is not stored")
        if new and run in self._first:
            self._broken(STORED, f"two submissions of run {run} were both called the first")
        self._stored.add(run)
        if new:
            self._first.add(run)
        self._reached("submitted" if new else "submitted again")

    def failed(self, run: str) -> None:
        """`submit` raised an error that does not say whether the run is stored."""
        self._asking[run] -= 1
        self._unsure.add(run)

    def took_another_input(self, run: str) -> None:
        """A submission of the same run with another input was acknowledged."""
        self._broken(STORED, f"run {run} was submitted with another input, and that was acknowledged")

    def refused_another_input(self) -> None:
        """A submission of the same run with another input was refused, as it must be."""
        self._reached("refused, because its input differs")

    # --- what became durable ---------------------------------------------------------------------------------

    def declared(self, limits: DeclaredLimits) -> None:
        """Limits were declared: they hold from now on, for every process. The empty ones never replace others."""
        if limits == DeclaredLimits() != self._limits:
            return  # a process that saw none began the ledger of queues
        self._limits = limits
        self.declared_ms = self._world.now_ms()
        self._world.tell(None, "other limits hold")
        self._reached("limits declared")

    def changed(self, line: Line) -> None:
        """The row of a run changed."""
        if line.run not in self._lines and line.status == "queued":
            self._created(line)
        self._note(line)

    def taken(self, before: Line, now: Line) -> None:
        """A worker got a slot for a run: all limits hold with it, and no other run should have had it."""
        self._note(before)
        assert now.owner is not None, now
        wall = EPOCH_MS + self._world.now_ms() + self._world.skew_ms
        counts = self._counts(now.owner)
        for what, count, limit in self._limited(now, counts):
            if limit is not None and count >= limit:
                self._broken(LIMITS, f"run {now.run} got a slot, and {what} has {count} of {limit} already")
        if self._key_taken(now):
            self._broken(
                LIMITS, f"run {now.run} got a slot while its key {now.about} is held by as many runs as may hold it"
            )
        ready = before.ready_ms
        lost = before.owner is not None and before.status != "queued"  # one that has not begun begins at its moment
        if not lost and (ready is None or ready > wall):
            self._broken(ORDER, f"run {now.run} got a slot at {wall}, but is not ready before {ready}")
        for other in self._others(before, now.owner, counts, wall):
            self._compare(other, before, counts)
        self._world.tell(None, f"{now.run} gets a slot of {now.queue} for {now.tenant!r}")
        self._reached("a slot" if before.owner is None else "a slot of a process that is gone")
        self._note(now)
        self._keys.add(now.run)
        self._slots.add((now.run, now.token))

    def heard(self, run: str, record: r.Record) -> None:
        """A record became durable."""
        if run not in self._submissions and not self._world.checker.schedules.submits(run):
            return
        if isinstance(record, r.RunStarted):
            self._begun[run] += 1
            if self._begun[run] > 1 or not record.queue:
                self._broken(STORED, f"run {run} was begun {self._begun[run]} times, in the queue {record.queue!r}")
        elif isinstance(record, r.Claimed):
            self._reached("begun")
            stopped = self._lines[run].status not in WAITS if run in self._lines else True
            if (run, record.token) not in self._slots and not stopped:
                self._broken(LIMITS, f"run {run} is driven under the token {record.token}, without a slot")

    # --- at the end ------------------------------------------------------------------------------------------

    def is_full(self, queue: str) -> bool:
        """True if the queue may refuse a submission, now or soon."""
        waiting = sum(one.queue == queue and one.status == "queued" for one in self._lines.values())
        return waiting + 3 >= self._limits.queue(queue).capacity

    def behind(self, run: str, resting: Collection[str]) -> bool:
        """True if it waits for a key whose holders are all suspended, or for room in a queue full of such runs."""
        line = self._lines.get(run)
        if line is None and run in self._submissions:
            queue = self._submissions[run].queue
            waiting = [one.run for one in self._lines.values() if one.queue == queue and one.status == "queued"]
            full = len(waiting) >= self._limits.queue(queue).capacity
            return full and all(self.behind(one, resting) for one in waiting)
        if line is None or not line.about or run in self._keys:
            return False
        holders = [one.run for one in self._lines.values() if self._same_key(one, line) and one.run in self._keys]
        return len(holders) >= self._limits.queue(line.queue).per_key and all(one in resting for one in holders)

    # --- inside ----------------------------------------------------------------------------------------------

    def _created(self, line: Line) -> None:
        queue = self._limits.queue(line.queue)
        waiting = sum(one.queue == line.queue and one.status == "queued" for one in self._lines.values())
        if waiting >= queue.capacity:
            self._broken(LIMITS, f"run {line.run} was stored in {line.queue}, where {waiting} of {queue.capacity} wait")
        submission = self._submissions.get(line.run)
        about = submission.about if submission is not None else self._world.checker.schedules.about(line.run)
        about = about if queue.key else ""
        if line.about != about:
            self._broken(STORED, f"run {line.run} is about {line.about!r}, and its queue says {about!r}")

    def _note(self, line: Line) -> None:
        self._lines[line.run] = line
        if line.status not in WAITS:
            self._keys.discard(line.run)

    def _gone(self, owner: str, taker: str) -> bool:
        world = self._world
        if isinstance(world.files, QueueFiles):
            return world.files.gone(owner, taker)
        assert isinstance(world.store, QueueStore), world.store
        return owner != taker and world.store.gone(owner)

    def _counts(self, taker: str) -> defaultdict[str, Counter[object]]:
        """The runs that are driven, by queue, agent, tenant, and tenant of a queue."""
        counts: defaultdict[str, Counter[object]] = defaultdict(Counter)
        for one in self._lines.values():
            if one.owner is None or self._gone(one.owner, taker):
                continue
            counts["queue"][one.queue] += 1
            counts["agent"][one.agent] += 1
            counts["tenant"][one.tenant] += 1
            counts["share"][one.queue, one.tenant] += 1
        return counts

    def _limited(self, line: Line, counts: defaultdict[str, Counter[object]]) -> Iterator[tuple[str, int, int | None]]:
        queue = self._limits.queue(line.queue)
        yield f"the queue {line.queue}", counts["queue"][line.queue], queue.concurrency
        yield f"{line.tenant!r} in {line.queue}", counts["share"][line.queue, line.tenant], queue.per_tenant
        yield f"the agent {line.agent}", counts["agent"][line.agent], self._limits.of_agent(line.agent)
        yield f"the tenant {line.tenant!r}", counts["tenant"][line.tenant], self._limits.of_tenant(line.tenant)

    def _same_key(self, one: Line, other: Line) -> bool:
        return bool(one.about) and (one.queue, one.about) == (other.queue, other.about)

    def _key_taken(self, line: Line) -> bool:
        """True if its key is held by as many runs as may hold it. A run holds its key from its begin to its end."""
        if not line.about or line.run in self._keys:
            return False
        holders = sum(one.run in self._keys for one in self._lines.values() if self._same_key(one, line))
        return holders >= self._limits.queue(line.queue).per_key

    def _others(self, chosen: Line, taker: str, counts: defaultdict[str, Counter[object]], wall: int) -> Iterator[Line]:
        """The runs that could have had the slot."""
        skip = self._skips.get(taker, ())
        for one in self._lines.values():
            ready = one.ready_ms
            if one.run == chosen.run or one.run in skip or one.owner is not None or one.status not in WAITS:
                continue
            if ready is None or ready > wall or self._key_taken(one):
                continue
            if any(limit is not None and count >= limit for _, count, limit in self._limited(one, counts)):
                continue
            if one.about and one.run not in self._keys and not self._first_of_its_key(one):
                continue
            yield one

    def _first_of_its_key(self, line: Line) -> bool:
        """True if the run is the next one of its key: they begin in the order in which they were ready."""
        place = line.ready_ms, line.row
        return line.status == "queued" and all(
            (one.ready_ms or 0, one.row) >= place  # a run that was reopened may come before it
            for one in self._lines.values()
            if self._same_key(one, line) and one.status in WAITS and one.run not in self._keys
        )

    def _compare(self, other: Line, chosen: Line, counts: defaultdict[str, Counter[object]]) -> None:
        """Report an invariant as broken if the other run should have had the slot."""
        if other.queue != chosen.queue:
            if counts["queue"][other.queue] < counts["queue"][chosen.queue]:
                self._broken(ORDER, f"{chosen.run} got a slot before {other.run}, whose queue has fewer")
            return
        mine, theirs = counts["share"][chosen.queue, chosen.tenant], counts["share"][other.queue, other.tenant]
        if theirs < mine:
            self._broken(ORDER, f"{chosen.run} got a slot before {other.run}, whose tenant has fewer")
        elif other.tenant == chosen.tenant and self._place(other) < self._place(chosen):
            self._broken(ORDER, f"{chosen.run} got a slot before {other.run}, which was before it by priority and age")

    def _place(self, line: Line) -> int:
        lost = line.owner is not None and line.status != "queued"  # its process is gone; one not begun keeps its place
        ready = line.updated_ms if lost else line.ready_ms
        assert ready is not None, line
        return ready - line.priority * self._limits.queue(line.queue).ageing_ms

    def _reached(self, what: str) -> None:
        self._world.reach.endings[f"queue: {what}"] += 1
