"""Planted bugs of queues: limits, keys, order, slots of processes that are gone, and submissions."""

from __future__ import annotations

from typing import Any, Final

from msgspec.structs import replace

from beforehand.journal.cells import judge
from beforehand.journal.port import ClaimRequest, LeaseGranted, TakeRequest
from beforehand.journal.requests import _check_room  # pyright: ignore[reportPrivateUsage]  # done outside
from beforehand.journal.sqlite.driver import Database
from beforehand.journal.sqlite.facts import SqliteFacts
from beforehand.journal.sqlite.queues import HOLDERS, QueueTables
from beforehand.journal.sqlite.runs import RunTables
from beforehand.queues.choose import Choice
from simulator.generator.queues import HELD, LIMITED, QUEUED
from simulator.mutations.mutation import Mutant, always

NO_BOUND: Final = 2**53


class _ChosenBefore(QueueTables):
    """Gives the slots that were chosen before."""

    def __init__(self, roll: RunTables, chosen: Choice) -> None:
        super().__init__(roll)
        self._before = chosen

    def _chosen(self, database: Database, request: TakeRequest, most: int = 1) -> Choice:  # noqa: ARG002 - as the original
        chosen, self._before = self._before, Choice()
        return chosen


def counted_before(original: Any) -> Any:
    """Slots are counted before the transaction that gives them."""

    async def commit(self: Any, request: Any) -> Any:
        if not isinstance(request, TakeRequest):
            return await original(self, request)

        def choose_now(database: Database) -> Choice:
            found: Choice = self._slots._chosen(database, request)  # noqa: SLF001 - as the original
            return found

        chosen: Choice = self._read(choose_now)
        slots = _ChosenBefore(self._roll, chosen)

        def give(database: Database) -> list[LeaseGranted]:
            return slots.take(database, request)

        return await self._running.run(give) if chosen.start else []

    return commit


def key_released_while_waiting(original: Any) -> Any:
    """A run that is suspended has its key no longer."""

    def number(database: Any, sql: str, values: Any) -> Any:
        return original(database, f"{sql} and status <> 'suspended'" if sql == HOLDERS else sql, values)

    return number


def age_ignored(original: Any) -> Any:
    """Priority alone decides."""

    def turn(self: Any, lane: Any, candidate: Any) -> Any:
        return (*original(self, lane, candidate)[:4], -lane.priority, candidate.ready_ms, candidate.row)

    return turn


def tenants_not_shared(original: Any) -> Any:
    """A tenant that submits more than others gets more slots."""

    def turn(self: Any, lane: Any, candidate: Any) -> Any:
        found = original(self, lane, candidate)
        return (*found[:2], 0, 0, *found[4:])

    return turn


def slots_of_the_dead(original: Any) -> Any:
    """A slot is in use although its process is gone."""

    def driven(self: Any, database: Any, _gone: Any) -> Any:
        return original(self, database, ())

    return driven


def capacity_before(original: Any) -> Any:
    """The capacity is compared before the transaction that stores the run."""

    async def commit(self: Any, request: Any) -> Any:
        new = request.new if isinstance(request, ClaimRequest) else None
        if new is None or new.place is None:
            return await original(self, request)

        place = new.place

        def compare(database: Database) -> None:
            _check_room(place, SqliteFacts(database, self._roll))

        self._read(compare)
        unbounded = replace(new, place=replace(place, capacity=NO_BOUND))
        return await original(self, replace(request, new=unbounded))

    return commit


def mark_kept(original: Any) -> Any:
    """A run that is stopped lets none of those in that wait behind it."""
    ends, completes = "new.status not in ('queued', 'running', 'suspended')", "new.status = 'completed'"

    def statements(sql: str) -> list[str]:
        found: list[str] = original(sql)
        return [one.replace(ends, completes) for one in found]

    return statements


def no_input_compared(_original: Any) -> Any:
    """The same run with another input is the same run."""

    def check_input(*_args: object) -> None:
        return

    return check_input


def permit_released_early(original: Any) -> Any:
    """A permit is released before its call begins."""

    async def take(self: Any, call: Any, operation: str) -> Any:
        permit = await original(self, call, operation)
        if permit is not None:
            self.release(permit)
        return permit

    return take


def permits_of_one_process(original: Any) -> Any:
    """Each process counts the permits of its own calls alone."""

    def held_permits(states: Any, bound_ms: int, worker: str = "") -> Any:
        return replace(original(states, bound_ms, worker), workers=frozenset({worker}))

    return held_permits


def over_by_silence(_original: Any) -> Any:
    """A process that is silent for longer than a pause loses its permits, though it is seen to live in its call."""

    def call_is_over(worker: Any, pause_bound_ms: int) -> bool:
        return worker.fate == "dead" or bool(worker.silent_ms > pause_bound_ms)

    return call_is_over


def silence_unheard(original: Any) -> Any:
    """A run that waits for the permit of a silent process looks again soon, and so is never suspended."""

    def limit_pause(wait: Any, *args: Any) -> Any:
        return original(replace(wait, silent_ms=0), *args)

    return limit_pause


def service_of_each_tool(original: Any) -> Any:
    """Each tool of a service has the whole limit of the service to itself."""

    def of_call(self: Any, call: Any) -> Any:
        found = original(self, call)
        return tuple(replace(one, name=one.name.replace("service ", f"service {call.tool} ")) for one in found)

    return of_call


def one_share_for_all(original: Any) -> Any:
    """Where a limit of tenants holds, that of all tenants together does not."""

    def of_call(self: Any, call: Any) -> Any:
        found = original(self, call)
        own = {one.name.partition(" / ")[0] for one in found if not one.shared}
        return tuple(one for one in found if not one.shared or one.name not in own)

    return of_call


def any_limit_is_enough(_original: Any) -> Any:
    """A permit is granted where one of the limits has room."""

    def judge_all(limits: Any, boot: str, now_ms: int) -> Any:
        verdicts = [judge(limit, in_use, pace, boot, now_ms) for limit, in_use, pace in limits]
        granted = any(verdict.granted for verdict in verdicts)
        return [replace(verdict, granted=granted) for verdict in verdicts]

    return judge_all


QUEUE_BUGS: Final = (
    Mutant(
        "limits counted outside",
        "slots are counted before the transaction that gives them",
        "beforehand.journal.sqlite.journal:SqliteJournal.commit",
        counted_before,
        from_seed=QUEUED,
    ),
    Mutant(
        "old limits hold",
        "limits that were replaced give slots and store runs",
        "beforehand.journal.requests:check_limits",
        always(None),
        from_seed=QUEUED,
    ),
    Mutant(
        "key released at suspension",
        "a run that waits has its key no longer",
        "beforehand.journal.sqlite.queues:_number",
        key_released_while_waiting,
        from_seed=QUEUED,
    ),
    Mutant(
        "ageing ignored",
        "a low priority waits for ever",
        "beforehand.queues.choose:_Usage.turn",
        age_ignored,
        from_seed=QUEUED,
    ),
    Mutant(
        "tenants do not share",
        "one tenant's backlog keeps another waiting",
        "beforehand.queues.choose:_Usage.turn",
        tenants_not_shared,
        from_seed=QUEUED,
    ),
    Mutant(
        "slots of the dead kept",
        "a process that is gone keeps its slots",
        "beforehand.journal.sqlite.queues:QueueTables._driven",
        slots_of_the_dead,
        from_seed=QUEUED,
    ),
    Mutant(
        "runs of the dead forgotten",
        "a run of a queue whose process is gone is never taken again",
        "beforehand.journal.sqlite.queues:_left_behind",
        always(()),
        from_seed=QUEUED,
    ),
    Mutant(
        "a mark left behind",
        "a run that is stopped keeps those behind it waiting",
        "beforehand.journal.sqlite.schema:statements",
        mark_kept,
        from_seed=QUEUED,
    ),
    Mutant(
        "capacity compared outside",
        "the capacity is compared before the transaction that stores the run",
        "beforehand.journal.sqlite.journal:SqliteJournal.commit",
        capacity_before,
        from_seed=QUEUED,
    ),
    Mutant(
        "driven without a slot",
        "a run of a queue is driven by any process that asks for it",
        "beforehand.engine.queueing:needs_slot",
        always(value=False),
        from_seed=QUEUED,
    ),
    Mutant(
        "another input accepted",
        "a submission with another input is taken for the same",
        "beforehand.engine.run_start:check_input",
        no_input_compared,
        from_seed=QUEUED,
    ),
    Mutant(
        "permits of one process",
        "the limit of a tool holds in each process alone",
        "beforehand.journal.cells:held_permits",
        permits_of_one_process,
        from_seed=LIMITED,
    ),
    Mutant(
        "permits released early",
        "a permit is released before its call begins",
        "beforehand.engine.call_limits:CallLimits.take",
        permit_released_early,
        from_seed=LIMITED,
    ),
    Mutant(
        "a service for each tool",
        "each tool of a service has the whole limit of the service to itself",
        "beforehand.queues.limits:DeclaredLimits.of_call",
        service_of_each_tool,
        from_seed=LIMITED,
    ),
    Mutant(
        "a share instead of the whole",
        "where a limit of tenants holds, that of all tenants together does not",
        "beforehand.queues.limits:DeclaredLimits.of_call",
        one_share_for_all,
        from_seed=LIMITED,
    ),
    Mutant(
        "one limit is enough",
        "a permit is granted where one of the limits of the call has room",
        "beforehand.journal.cells:judge_all",
        any_limit_is_enough,
        from_seed=LIMITED,
    ),
    Mutant(
        "permits of the dead kept",
        "a process that is gone keeps its permits",
        "beforehand.journal.cells:call_is_over",
        always(value=False),
        from_seed=LIMITED,
    ),
    Mutant(
        "permits by silence",
        "a process that is seen to live loses its permits by silence",
        "beforehand.journal.cells:call_is_over",
        over_by_silence,
        from_seed=HELD,
    ),
    Mutant(
        "silent permits waited for in place",
        "a run that waits for the permit of a silent process keeps its slot",
        "beforehand.engine.suspension:limit_pause",
        silence_unheard,
        from_seed=HELD,
    ),
)
"""Each is looked for in the seeds with queues, over a journal in a file."""
