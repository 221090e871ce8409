"""What `choose` promises of any queue: no limit is exceeded, each tenant has its share, and nothing starves."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from beforehand.queues.choose import Candidate, Lane, Snapshot, choose
from beforehand.queues.limits import HIGHEST, LOWEST, ConcurrencyLimit, DeclaredLimits, QueueLimits, TenantLimits

QUEUES, AGENTS, TENANTS, KEYS = ("mail", "web"), ("desk", "clerk"), ("", "acme", "big"), ("", "k1", "k2")
few = st.none() | st.integers(1, 4)
shares = st.builds(ConcurrencyLimit, few)
limits = st.builds(
    DeclaredLimits,
    st.fixed_dictionaries(
        {},
        optional={
            name: st.builds(QueueLimits, few, few, st.just("k"), st.integers(1, 3), ageing_ms=st.sampled_from((1, 90)))
            for name in QUEUES
        },
    ),
    st.fixed_dictionaries({}, optional=dict.fromkeys(AGENTS, shares)),
    st.fixed_dictionaries({}, optional=dict.fromkeys(("acme", "*"), st.builds(TenantLimits, few))),
)
counts = st.integers(0, 3)


@st.composite
def snapshots(draw: st.DrawFn) -> Snapshot:
    places = st.tuples(*map(st.sampled_from, (QUEUES, AGENTS, TENANTS)), st.integers(LOWEST, HIGHEST))
    lanes: list[Lane] = []
    row = 0
    for place in draw(st.lists(places, unique=True, max_size=8)):
        found = draw(st.lists(st.tuples(st.integers(0, 1000), st.sampled_from(KEYS), st.booleans()), max_size=6))
        waiting = []
        for ready, key, holds in sorted(found):
            row += 1
            waiting.append(Candidate(row, ready, key, bool(key) and holds))
        lanes.append(Lane(*place, tuple(waiting)))
    driven = draw(st.dictionaries(st.tuples(*map(st.sampled_from, (QUEUES, AGENTS, TENANTS))), counts))
    holders = draw(st.dictionaries(st.tuples(st.sampled_from(QUEUES), st.sampled_from(KEYS[1:])), counts))
    served = draw(st.dictionaries(st.tuples(st.sampled_from(QUEUES), st.sampled_from(TENANTS)), st.integers(0, 1000)))
    return Snapshot(tuple(lanes), driven, holders, served)


def exceeded(declared: DeclaredLimits, before: Snapshot, started: list[tuple[Lane, Candidate]]) -> list[str]:
    """The limits that the started runs exceed, counted another way than `choose` counts."""
    queues, agents, tenants = Counter[str](), Counter[str](), Counter[str]()
    parts, keys = Counter[tuple[str, str]](), Counter(before.holders)
    used = [(place, count) for place, count in before.driven.items()]
    used += [((lane.queue, lane.agent, lane.tenant), 1) for lane, _ in started]
    for (queue, agent, tenant), count in used:
        queues[queue] += count
        agents[agent] += count
        tenants[tenant] += count
        parts[queue, tenant] += count
    for lane, candidate in started:
        if candidate.key and not candidate.holds:  # one that has its key is among the holders
            keys[lane.queue, candidate.key] += 1
    found: list[str] = []
    for lane, candidate in started:  # only what was added to: a limit may have been lowered under what runs
        queue = declared.queue(lane.queue)
        pairs = {
            f"queue {lane.queue}": (queues[lane.queue], queue.concurrency),
            f"{lane.tenant} in {lane.queue}": (parts[lane.queue, lane.tenant], queue.per_tenant),
            f"agent {lane.agent}": (agents[lane.agent], declared.of_agent(lane.agent)),
            f"tenant {lane.tenant}": (tenants[lane.tenant], declared.of_tenant(lane.tenant)),
            f"key {candidate.key}": (0 if candidate.holds else keys[lane.queue, candidate.key], queue.per_key),
        }
        found += [f"{name}: {count}" for name, (count, limit) in pairs.items() if limit is not None and count > limit]
    return found


def runs_of(snapshot: Snapshot) -> dict[int, tuple[Lane, Candidate]]:
    return {one.row: (lane, one) for lane in snapshot.lanes for one in lane.waiting}


@given(limits, snapshots(), st.integers(0, 12))
def test_no_limit_is_exceeded_and_no_slot_is_given_twice(declared, snapshot, room):
    chosen = choose(declared, snapshot, room)
    known = runs_of(snapshot)
    assert len(chosen.start) <= room
    assert len({*chosen.start, *chosen.behind}) == len(chosen.start) + len(chosen.behind)
    started = [known[row] for row in chosen.start]
    assert exceeded(declared, snapshot, started) == []
    assert chosen.ready_ms == tuple(one.ready_ms for _, one in started)
    keys = Counter(snapshot.holders) + Counter((lane.queue, one.key) for lane, one in started if not one.holds)
    for lane, one in (known[row] for row in chosen.behind):
        assert (bool(one.key), one.holds) == (True, False)
        assert keys[lane.queue, one.key] >= declared.queue(lane.queue).per_key


@given(limits, snapshots())
def test_no_slot_stays_empty_while_a_run_may_have_it(declared, snapshot):
    chosen = choose(declared, snapshot, 99)
    known = runs_of(snapshot)
    started = [known[row] for row in chosen.start]
    for row, one in known.items():
        if row not in chosen.start:
            assert exceeded(declared, snapshot, [*started, one]) != []


@given(limits, snapshots(), st.integers(0, 12))
def test_what_starts_does_not_depend_on_the_order_of_the_lanes(declared, snapshot, room):
    other = Snapshot(snapshot.lanes[::-1], snapshot.driven, snapshot.holders, snapshot.served_ms)
    assert choose(declared, snapshot, room).start == choose(declared, other, room).start


def turn(declared: DeclaredLimits, snapshot: Snapshot, lane: Lane, candidate: Candidate) -> tuple[int, ...]:
    """Where a run stands in the order of the next slot, as the page says it, counted another way than `choose` counts."""
    of_queue = [(place, count) for place, count in snapshot.driven.items() if place[0] == lane.queue]
    served = {tenant: at for (queue, tenant), at in snapshot.served_ms.items() if queue == lane.queue}
    return (
        sum(count for _, count in of_queue),
        max(served.values(), default=0),
        sum(count for place, count in of_queue if place[2] == lane.tenant),
        served.get(lane.tenant, 0),
        candidate.ready_ms - lane.priority * declared.queue(lane.queue).ageing_ms,
        candidate.row,
    )


def after(snapshot: Snapshot, lane: Lane, candidate: Candidate) -> Snapshot:
    """The snapshot of the next look, once this run was started."""
    left = tuple(
        replace(one, waiting=tuple(other for other in one.waiting if other != candidate)) for one in snapshot.lanes
    )
    place, key = (lane.queue, lane.agent, lane.tenant), (lane.queue, candidate.key)
    driven, holders = Counter(snapshot.driven), Counter(snapshot.holders)
    driven[place] += 1
    holders[key] += bool(candidate.key) and not candidate.holds
    now = max(snapshot.served_ms.values(), default=0) + 1
    return Snapshot(left, driven, holders, {**snapshot.served_ms, (lane.queue, lane.tenant): now})


@given(limits, snapshots(), st.integers(0, 12))
def test_each_slot_goes_to_the_first_of_those_that_may_have_it(declared, snapshot, room):
    """One after the other, as in as many looks. So how many a worker takes at once changes no share."""
    found: list[int] = []
    seen = snapshot
    while len(found) < room:
        may = [one for one in runs_of(seen).values() if not exceeded(declared, seen, [one])]
        first = min(may, key=lambda one: turn(declared, seen, *one), default=None)
        if first is None:
            break
        found.append(first[1].row)
        seen = after(seen, *first)
    assert list(choose(declared, snapshot, room).start) == found


@given(st.integers(1, 6), st.integers(0, 8), st.integers(0, 3), st.sampled_from([LOWEST, 0]))
def test_a_single_run_beside_ten_thousand_starts_within_two_slots_of_its_share(slots, busy, others, priority):
    """Slots become free one at a time. Each of the tenants that wait has one share, whatever its runs' priority."""
    declared = DeclaredLimits({"mail": QueueLimits(concurrency=slots)})
    first = {f"big{n}": n * 10_000 for n in range(others + 1)}  # the first of its ten thousand that still waits
    driven, served, started = Counter({"big0": min(busy, slots)}), dict.fromkeys(first, 0), 0
    late = Lane("mail", "desk", "small", priority, (Candidate(10**6, 10**6),))
    for turn in range(1, 100):
        lanes = [Lane("mail", "desk", name, HIGHEST, (Candidate(row, row),)) for name, row in first.items()]
        used = {("mail", "desk", name): count for name, count in driven.items()}
        at = {("mail", name): moment for name, moment in served.items()}
        chosen = choose(declared, Snapshot((*lanes, late), used, {}, at), 1).start
        if chosen == (10**6,):
            assert started <= len(first) + 2
            return
        for row in chosen:
            name = f"big{row // 10_000}"
            first[name], driven[name], served[name], started = row + 1, driven[name] + 1, turn, started + 1
        if not chosen:  # all slots are taken, and one becomes free
            driven[next(name for name, count in driven.items() if count)] -= 1
    raise AssertionError("it starved")


@given(st.integers(LOWEST, HIGHEST), st.integers(1, 8), st.integers(0, 9))
def test_a_low_priority_waits_for_no_run_that_is_ready_later_than_the_bound(priority, ageing, ready):
    """A stream of the highest priority, one run a millisecond, delays it by (HIGHEST - priority) x ageing at most."""
    declared = DeclaredLimits({"mail": QueueLimits(concurrency=1, ageing_ms=ageing)})
    bound = ready + (HIGHEST - priority) * ageing
    low = Lane("mail", "desk", "", priority, (Candidate(-1, ready),))
    for moment in range(ready, bound + 2):
        above = Lane("mail", "desk", "", HIGHEST, (Candidate(moment, moment),))
        lanes: tuple[Lane, ...] = (above, low)
        if priority == HIGHEST:  # then both are in one lane
            lanes = (Lane("mail", "desk", "", HIGHEST, (Candidate(-1, ready), Candidate(moment, moment))),)
        if choose(declared, Snapshot(lanes), 1).start == (-1,):
            assert moment <= bound + 1
            return
    raise AssertionError("it starved")


@given(snapshots(), st.integers(1, 9))
def test_a_key_that_is_taken_blocks_only_its_own_runs(snapshot, room):
    taken = {(queue, "k1"): 1 for queue in QUEUES}
    snapshot = Snapshot(snapshot.lanes, {}, taken, {})
    known = runs_of(snapshot)
    free = [row for row, (_, one) in known.items() if not one.key]
    chosen = choose(DeclaredLimits(), snapshot, room)
    assert all(known[row][1].key != "k1" or known[row][1].holds for row in chosen.start)
    assert len(chosen.start) >= min(room, len(free))
