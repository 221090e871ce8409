"""Queues on SQLite: the snapshot that `choose` judges, and the slots that it gives.

Everything is found by a seek: the first of each lane, the keys of candidates, the slots in use. What a look costs grows
with the lanes (agents, queues, tenants and priorities that wait) and with what is driven, never with how many wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Final, cast

from msgspec.structs import replace

from beforehand.journal.port import AgentKey, LeaseGranted, QueueState, TakeRequest
from beforehand.journal.requests import LIMITS, check_limits
from beforehand.journal.sqlite import ledger
from beforehand.journal.sqlite.driver import Database, Value
from beforehand.journal.sqlite.runs import RunTables, find, granted
from beforehand.queues.choose import Candidate, Choice, Lane, Snapshot, choose
from beforehand.queues.limits import LOWEST

# Spelled as in the partial indexes, which are only used for what they know.
_WAITS: Final = "queue <> '' and owner is null and behind = 0 and status in ('queued', 'running', 'suspended')"
_HELD: Final = "queue <> '' and owner is not null"
# Three seeks, for SQLite would read all of the last lane to find what is greater than its three columns together.
NEXT_LANE: Final = tuple(
    f"select agent, program, queue, tenant, priority from run where {_WAITS} and {after} limit 1"  # noqa: S608 -- constants
    for after in (
        "agent = ? and program = ? and queue = ? and tenant = ? and priority > ? order by priority",
        "agent = ? and program = ? and queue = ? and tenant > ? order by tenant, priority",
        "agent = ? and program = ? and queue > ? order by queue, tenant, priority",
        "agent = ? and program > ? order by program, queue, tenant, priority",
        "agent > ? order by agent, program, queue, tenant, priority",
    )
)
_OF_ONE_AGENT: Final = 3  # of these
FIRST_IN_LANE: Final = (
    f"select id, ready_ms, about, holds, name from run where agent = ? and program = ? and {_WAITS}"  # noqa: S608 -- constants
    " and queue = ? and tenant = ? and priority = ? and ready_ms <= ? order by ready_ms, id limit ?"
)
# Of a paused queue: those that have begun, by the index of open runs. In its lanes they are behind all that have not.
BEGUN: Final = " union all ".join(
    "select id, ready_ms, about, holds, name, agent, program, tenant, priority from run"  # noqa: S608 -- constants
    f" where queue = ? and owner is null and behind = 0 and status in ('running', 'suspended') and {which}"
    for which in ("status = 'running' and updated_ms <= ?", "status = 'suspended' and due_ms <= ?")
)
SLOTS: Final = f"select queue, agent, tenant, owner, count(*) from run where {_HELD} group by 1, 2, 3, 4"  # noqa: S608 -- constants
LEFT_BEHIND: Final = (
    "select id, iif(status = 'queued', due_ms, updated_ms), about, holds, name, queue, agent, program, tenant,"  # noqa: S608 -- constants
    f" priority, status <> 'queued' from run where {_HELD} and behind = 0 and owner = ?"
    " and (+status in ('running', 'suspended') or +status = 'queued' and due_ms <= ?)"
)
HOLDERS: Final = "select count(*) from run where holds = 1 and queue = ? and about = ?"
SERVED: Final = (
    "select max(served_ms) from run where queue = ? and tenant = ? and queue <> '' and served_ms is not null"
)
# When a queue last got a slot, whichever tenants it has now. A hint: without it a queue is served out of turn once.
TURN: Final = "select max(cast(body as integer)) from cell where kind = 'hint' and name = 'turn/' || ? and key = ''"
_TURNED: Final = "insert or replace into cell (kind, name, key, body) values ('hint', 'turn/' || ?, '', ?)"
OLDEST: Final = (
    f"select min(ready_ms) from run where agent = ? and program = ? and {_WAITS}"  # noqa: S608 -- constants
    " and queue = ? and tenant = ? and priority = ?"
)
_START: Final = (
    "update run set token = token + 1, owner = ?, updated_ms = ?, served_ms = ?, holds = about <> '', behind = 0,"
    " due_ms = case status when 'queued' then null else due_ms end,"
    " reason = case status when 'queued' then '' else reason end,"
    " status = case status when 'queued' then 'running' else status end where id = ? returning name"
)


class QueueTables:
    """The slots of queues, as one process sees them."""

    def __init__(self, roll: RunTables) -> None:
        self._roll = roll

    def wants(self, database: Database, request: TakeRequest) -> bool:
        """True if `take` has something to change. It reads only, so a look that finds nothing takes no lock.

        Runs whose key is taken count, too: the first of a lane hide those behind them until `take` has marked them.
        """
        chosen = self._chosen(database, replace(request, room=1))
        return bool(chosen.start or chosen.behind)

    def take(self, database: Database, request: TakeRequest) -> list[LeaseGranted]:
        """Give slots, inside the transaction in which they were counted: no other process can count them free.

        The limits are compared there too: a process that has not heard of stricter ones gives no slot under the old.
        """
        check_limits(request.newest.entry, ledger.newest(database, LIMITS))
        started: list[LeaseGranted] = []
        marked = 0
        while (room := request.room - len(started)) > 0:
            # Twice as many rows each time: however many runs wait behind one key, marking them takes few rounds.
            chosen = self._chosen(database, replace(request, room=room), room + marked)
            marked += len(chosen.behind)
            for row in chosen.behind:  # out of their lane until a holder of their key ends: they hide nothing in it
                database.change("update run set behind = 1 where id = ?", (row,))
            wall = self._roll.wall_ms()
            for row, ready in zip(chosen.start, chosen.ready_ms, strict=True):
                ((name,),) = database.rows(_START, (request.worker, wall, wall, row))
                line = find(database, str(name))
                assert line is not None
                database.change(_TURNED, (line.queue, str(wall)))
                started.append(replace(granted(database, line, request.worker), slot=True, ready_ms=ready))
            if not chosen.behind:
                break
        return started

    def states(self, database: Database) -> list[QueueState]:
        """Every queue in which a run waits or is driven."""
        waiting = dict(cast("list[tuple[str, int]]", database.rows("select name, waiting from queue where waiting")))
        running, oldest, agents = Counter[str](), dict[str, int](), dict[str, dict[AgentKey, None]]()
        gone, wall = self._roll.gone_owners(database), self._roll.wall_ms()
        for (queue, _, _), count in self._driven(database, gone).items():
            running[queue] += count
        ready: list[Sequence[Value]] = [(*database.rows(OLDEST, lane)[0], *lane[:3]) for lane in _lanes(database)]
        behind = [row for owner in gone for row in database.rows(LEFT_BEHIND, (owner, wall))]
        ready += [(since, agent, program, queue) for _, since, _, _, _, queue, agent, program, *_ in behind]
        for since, agent, program, queue in cast("list[tuple[int | None, str, str, str]]", ready):
            if since is not None:
                oldest[queue] = min(since, oldest.get(queue, since))
                if since <= wall:
                    agents.setdefault(queue, {})[agent, program] = None
        return [
            QueueState(name, waiting.get(name, 0), running[name], oldest.get(name), tuple(agents.get(name, ())))
            for name in sorted({*running, *oldest, *waiting})
        ]

    def _chosen(self, database: Database, request: TakeRequest, most: int = 1) -> Choice:
        """The choice among the first `most` of each lane, beside those that are left out."""
        # A process whose lease is over is not gone for itself: it would take what it has just taken once more.
        gone = self._roll.gone_owners(database) - {request.worker}
        lanes = [*self._waiting(database, request, most), *_left_behind(database, request, gone, self._roll.wall_ms())]
        if not lanes:
            return Choice()
        keys = {(lane.queue, one.key) for lane in lanes for one in lane.waiting if one.key}
        shares = {(lane.queue, lane.tenant) for lane in lanes}
        snapshot = Snapshot(
            tuple(lanes),
            self._driven(database, gone),
            {key: _number(database, HOLDERS, key) for key in keys},
            {share: _number(database, SERVED, share) for share in shares},
            {queue: _number(database, TURN, (queue,)) for queue in {lane.queue for lane in lanes}},
        )
        return choose(request.newest.limits, snapshot, request.room)

    def _waiting(self, database: Database, request: TakeRequest, most: int) -> Iterator[Lane]:
        wall, most = self._roll.wall_ms(), most + len(request.skip)
        for queue in request.newest.paused:
            yield from _begun(database, request, queue, wall)
        for some in request.agents:
            for agent, program, queue, tenant, priority in _lanes(database, some):
                if queue in request.newest.paused:
                    continue
                found = database.rows(FIRST_IN_LANE, (agent, program, queue, tenant, priority, wall, most))
                if waiting := _candidates(found, request.skip):
                    yield Lane(queue, agent, tenant, priority, waiting)

    def _driven(self, database: Database, gone: Collection[str]) -> dict[tuple[str, str, str], int]:
        """The slots in use. Those of a process that is gone are free."""
        found = Counter[tuple[str, str, str]]()
        for queue, agent, tenant, owner, count in cast("list[tuple[str, str, str, str, int]]", database.rows(SLOTS)):
            if owner not in gone:
                found[queue, agent, tenant] += count
        return found


def _lanes(database: Database, agent: AgentKey | None = None) -> Iterator[tuple[str, str, str, str, int]]:
    """The lanes of an agent, or all of them: each is a seek or two behind the last."""
    lane: tuple[Value, ...] = (*(agent or ("", "")), "", "", LOWEST - 1)
    seeks = NEXT_LANE if agent is None else NEXT_LANE[:_OF_ONE_AGENT]
    while found := next((rows for n, sql in enumerate(seeks) if (rows := database.rows(sql, lane[: 5 - n]))), None):
        (lane,) = found
        yield cast("tuple[str, str, str, str, int]", lane)


def _begun(database: Database, request: TakeRequest, queue: str, wall_ms: int) -> Iterator[Lane]:
    """The runs of a paused queue that have begun and want to continue."""
    lanes: dict[tuple[str, str, int], list[tuple[Value, ...]]] = {}
    for found in database.rows(BEGUN, (queue, wall_ms, queue, wall_ms)):
        agent, program, tenant, priority = cast("tuple[str, str, str, int]", found[5:])
        if (agent, program) in request.agents:
            lanes.setdefault((agent, tenant, priority), []).append(found[:5])
    for (agent, tenant, priority), some in lanes.items():
        if waiting := _candidates(sorted(some, key=lambda one: (one[1], one[0])), request.skip):
            yield Lane(queue, agent, tenant, priority, waiting)


def _left_behind(database: Database, request: TakeRequest, gone: Collection[str], wall_ms: int) -> Iterator[Lane]:
    """The runs of processes that are gone: each waits for a slot like any other, those not begun too."""
    for owner in gone:
        for found in database.rows(LEFT_BEHIND, (owner, wall_ms)):
            queue, agent, program, tenant, priority, begun = cast("tuple[str, str, str, str, int, int]", found[5:])
            may_begin = (agent, program) in request.agents and (begun or queue not in request.newest.paused)
            if may_begin and (waiting := _candidates([found[:5]], request.skip)):
                yield Lane(queue, agent, tenant, priority, waiting)


def _candidates(found: list[tuple[Value, ...]], skip: Collection[str]) -> tuple[Candidate, ...]:
    lines = cast("list[tuple[int, int, str, int, str]]", found)
    return tuple(Candidate(row, ready, key, bool(holds)) for row, ready, key, holds, name in lines if name not in skip)


def _number(database: Database, sql: str, values: tuple[str, ...]) -> int:
    ((found,),) = database.rows(sql, values)
    return cast("int", found or 0)
