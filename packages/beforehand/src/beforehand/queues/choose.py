"""`choose`: which waiting runs may start now. A pure function of the limits and of one snapshot of the journal.

The next slot goes to the queue with the fewest driven runs, in it to the tenant with the fewest, and in that to the run
that is first by priority with ageing. Among equals comes first what was served longest ago. So each tenant has its
share however many runs another one has submitted.

A run of priority `p` that is ready since `r` has the place `r - p * ageing`. The order of two runs never changes while
they wait, so an index can keep it, and no run is overtaken by one that became ready later than
`(HIGHEST - p) * ageing` after it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import msgspec

from beforehand.queues.limits import DeclaredLimits


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """A run that waits for a slot. `row` is its number in the journal; `holds`: its key is its own."""

    row: int
    ready_ms: int
    key: str = ""
    holds: bool = False


class Lane(msgspec.Struct, frozen=True, gc=False):
    """Waiting runs that all limits but that of a key treat alike, those ready first first."""

    queue: str
    agent: str
    tenant: str
    priority: int
    waiting: tuple[Candidate, ...]


class Snapshot(msgspec.Struct, frozen=True):
    """The journal at one moment.

    `driven` counts the runs that a worker drives, by queue, agent and tenant. `holders` counts those of a key that have
    begun and not ended, by queue and key. `served_ms` is when a tenant last got a slot, by queue and tenant; those
    that have no run in a lane may be left out of it. `turns_ms` is when a queue got one for any of its tenants.
    """

    lanes: tuple[Lane, ...] = ()
    driven: Mapping[tuple[str, str, str], int] = {}
    holders: Mapping[tuple[str, str], int] = {}
    served_ms: Mapping[tuple[str, str], int] = {}
    turns_ms: Mapping[str, int] = {}


class Choice(msgspec.Struct, frozen=True):
    """The rows that start, in order, since when each was ready, and those that wait behind others of their key."""

    start: tuple[int, ...] = ()
    behind: tuple[int, ...] = ()
    ready_ms: tuple[int, ...] = ()


def choose(limits: DeclaredLimits, snapshot: Snapshot, room: int) -> Choice:
    """The runs that start now, at most `room` of them. No limit is exceeded, whatever was driven before."""
    usage = _Usage(limits, snapshot)
    places = [0] * len(snapshot.lanes)
    start: list[Candidate] = []
    behind: list[int] = []
    while len(start) < room:
        open_lanes = [
            (usage.turn(lane, lane.waiting[place]), number)
            for number, (lane, place) in enumerate(zip(snapshot.lanes, places, strict=True))
            if place < len(lane.waiting) and usage.allows(lane)
        ]
        if not open_lanes:
            break
        _, number = min(open_lanes)
        lane, candidate = snapshot.lanes[number], snapshot.lanes[number].waiting[places[number]]
        places[number] += 1
        if usage.key_is_taken(lane, candidate):
            behind.append(candidate.row)
        else:
            usage.take(lane, candidate)
            start.append(candidate)
    return Choice(tuple(one.row for one in start), tuple(behind), tuple(one.ready_ms for one in start))


class _Usage:
    """Slots and keys in use, counted on as slots are given."""

    def __init__(self, limits: DeclaredLimits, snapshot: Snapshot) -> None:
        self._limits = limits
        self._holders = Counter(snapshot.holders)
        self._queues, self._agents = Counter[str](), Counter[str]()
        self._tenants, self._shares = Counter[str](), Counter[tuple[str, str]]()
        for (queue, agent, tenant), count in snapshot.driven.items():
            self._count(queue, agent, tenant, count)
        self._served = dict(snapshot.served_ms)
        self._served_queue = dict(snapshot.turns_ms)
        for (queue, _), at in self._served.items():
            self._served_queue[queue] = max(at, self._served_queue.get(queue, 0))
        self._last = max(self._served_queue.values(), default=0)

    def _count(self, queue: str, agent: str, tenant: str, count: int) -> None:
        self._queues[queue] += count
        self._agents[agent] += count
        self._tenants[tenant] += count
        self._shares[queue, tenant] += count

    def allows(self, lane: Lane) -> bool:
        """True if neither queue, agent nor tenant is at its limit."""
        queue = self._limits.queue(lane.queue)
        used = (
            (self._queues[lane.queue], queue.concurrency),
            (self._shares[lane.queue, lane.tenant], queue.per_tenant),
            (self._agents[lane.agent], self._limits.of_agent(lane.agent)),
            (self._tenants[lane.tenant], self._limits.of_tenant(lane.tenant)),
        )
        return all(limit is None or count < limit for count, limit in used)

    def turn(self, lane: Lane, candidate: Candidate) -> tuple[int, ...]:
        """The sort key of the next slot: the smallest is served."""
        share, ageing_ms = (lane.queue, lane.tenant), self._limits.queue(lane.queue).ageing_ms
        return (
            self._queues[lane.queue],
            self._served_queue.get(lane.queue, 0),
            self._shares[share],
            self._served.get(share, 0),
            candidate.ready_ms - lane.priority * ageing_ms,
            candidate.row,
        )

    def key_is_taken(self, lane: Lane, candidate: Candidate) -> bool:
        """True if others of this key have begun and not ended, and are as many as may be at once.

        A run that has its key keeps it: where `per_key` was lowered, those that have begun would wait for each other.
        """
        if not candidate.key or candidate.holds:
            return False
        return self._holders[lane.queue, candidate.key] >= self._limits.queue(lane.queue).per_key

    def take(self, lane: Lane, candidate: Candidate) -> None:
        """Count one more slot. Later ones of the same snapshot see it as served last."""
        self._last += 1
        self._count(lane.queue, lane.agent, lane.tenant, 1)
        self._served[lane.queue, lane.tenant] = self._served_queue[lane.queue] = self._last
        if candidate.key and not candidate.holds:
            self._holders[lane.queue, candidate.key] += 1
