"""Cells: small state that all processes share, and the rules by which a commit changes it. Pure, but for what reads it.

A cell is read and changed in the same commit, so no crash and no other process comes between. Five kinds:

- *counter*: how much is used, and how much reserved; refused from a limit on (`charged`).
- *rate*: when the next one may begin, as one moment (GCRA); it can be slowed down for a while (`judge`).
- *slot*: those who hold one of a number of places. A holder that is proven dead holds none (`held`).
- *once*: what has happened at which moment, so that it happens no second time.
- *hint*: a note that may be lost, replaced if it still is what the writer had read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from beforehand.errors import BudgetSpent
from beforehand.journal.port import Cell, JournalReads, Permit, WorkerState

if TYPE_CHECKING:
    from beforehand.model.cell_limit import CellLimit
    from beforehand.model.shared_use import Charge

_MS: Final = 1_000_000
_MOMENT_DIGITS: Final = 16


# --- counters ---------------------------------------------------------------------------------------------------------


class BudgetUse(msgspec.Struct, frozen=True):
    """One counter of a shared budget: how much of a limit was used in a period, and how much is reserved."""

    budget: str
    period: str
    limit: str
    used: int = 0
    reserved: int = 0


def counter_name(budget: str, period: str) -> str:
    """The name of the counters of a budget in a period; the key of each is its limit."""
    return f"{budget} {period}"


def use_of(budget: str, period: str, limit: str, body: bytes | None) -> BudgetUse:
    """A counter as it is stored; one that was never charged has nothing."""
    used, reserved = msgspec.json.decode(body, type=tuple[int, int]) if body is not None else (0, 0)
    return BudgetUse(budget, period, limit, used, reserved)


def charged(charges: Sequence[Charge], stored: Callable[[Charge], BudgetUse]) -> list[BudgetUse]:
    """The counters after these charges, each once. Raises `BudgetSpent` where one has come to its limit before."""
    from beforehand.model.money import MOST_UNITS, counter_currency  # noqa: PLC0415 - commands that only read need none
    from beforehand.policies import MOST  # noqa: PLC0415 - as above

    after: dict[tuple[str, str, str], BudgetUse] = {}
    for charge in charges:
        key = charge.budget, charge.period, charge.limit
        now = after.get(key) or stored(charge)
        # The one comparison of a shared budget, in the transaction that stores the record of the call.
        if charge.most is not None and now.used + now.reserved >= charge.most:
            raise BudgetSpent(charge.budget, charge.limit, now.used, now.reserved)
        highest = MOST_UNITS if counter_currency(charge.limit) else MOST
        used, reserved = min(highest, now.used + charge.used), max(0, min(highest, now.reserved + charge.reserved))
        after[key] = BudgetUse(*key, used, reserved)
    return list(after.values())


async def budget_uses(journal: JournalReads, periods: Mapping[str, str] | None) -> list[BudgetUse]:
    """The counters of shared budgets, each in the period that is named for it. One never charged has none.

    None: the counters of all budgets and periods.
    """
    names = None if periods is None else [counter_name(*place) for place in periods.items()]
    counters = await journal.cells("counter", names)
    split = ((cell.name.rpartition(" "), cell) for cell in counters)
    return [use_of(budget, period, cell.key, cell.body) for (budget, _, period), cell in split]


# --- rates ------------------------------------------------------------------------------------------------------------


class CallPace(msgspec.Struct, frozen=True, array_like=True):
    """The stored moments of a limit, on the journal's clock of `boot`.

    `due_ns` is when all calls so far would have begun at the full rate, and `busy_ns` since when one was always due.
    `apart_ns` is the rate by which that was computed. `closed_ms` is until when the service has asked not to be called.
    """

    boot: str = ""
    due_ns: int = 0
    closed_ms: int = 0
    busy_ns: int = 0
    apart_ns: int = 0


class LimitVerdict(msgspec.Struct, frozen=True):
    """One limit after a request, with the pace to be stored.

    `wait_ms` is how long no further call may begin, because of the rate or its service. `full`: as many calls are under
    way as may be.
    """

    granted: bool
    full: bool
    wait_ms: int
    pace: CallPace


def pace_of(body: bytes | None) -> CallPace:
    """The moments of a limit as they are stored."""
    return CallPace() if body is None else msgspec.json.decode(body, type=CallPace)


def judge(limit: CellLimit, in_use: int, pace: CallPace, boot: str, now_ms: int) -> LimitVerdict:
    """Judge a request to begin one more call, with `in_use` of them under way."""
    verdict = _unchanged(limit, in_use, pace, boot, now_ms)
    if verdict.full or verdict.wait_ms:
        return verdict
    return replace(_unchanged(limit, in_use + 1, _used(verdict.pace, limit.units, now_ms), boot, now_ms), granted=True)


def judge_all(limits: Collection[tuple[CellLimit, int, CallPace]], boot: str, now_ms: int) -> list[LimitVerdict]:
    """Judge a request under several limits, each with the calls under way and its pace. One refusal is one of all."""
    verdicts = [judge(limit, in_use, pace, boot, now_ms) for limit, in_use, pace in limits]
    if all(verdict.granted for verdict in verdicts):
        return verdicts
    return [_unchanged(limit, in_use, pace, boot, now_ms) for limit, in_use, pace in limits]


def _unchanged(limit: CellLimit, in_use: int, pace: CallPace, boot: str, now_ms: int) -> LimitVerdict:
    """The limit as it is, with so many calls under way: nothing is granted."""
    pace = on_boot(limit, pace, boot, now_ms)
    full = limit.at_once is not None and in_use >= limit.at_once
    return LimitVerdict(False, full, opens_in_ms(limit, pace, boot, now_ms), pace)


def _used(pace: CallPace, units: int, now_ms: int) -> CallPace:
    """The pace after so many units were used."""
    now_ns = now_ms * _MS
    begin, busy = (now_ns, now_ns) if pace.due_ns <= now_ns else (pace.due_ns, pace.busy_ns)
    return replace(pace, due_ns=begin + units * pace.apart_ns, busy_ns=busy)


def opens_in_ms(limit: CellLimit, pace: CallPace, boot: str, now_ms: int) -> int:
    """How long no further call may begin, whatever is under way; 0: one may begin now."""
    pace = on_boot(limit, pace, boot, now_ms)
    turn_ns = pace.due_ns - (limit.burst - 1) * limit.apart_ns if limit.apart_ns else 0
    return max(0, -(-turn_ns // _MS) - now_ms, pace.closed_ms - now_ms)


def on_boot(limit: CellLimit, pace: CallPace, boot: str, now_ms: int) -> CallPace:
    """The pace on the clock of this boot, and under the limit in force.

    The moments of another boot do not compare with this clock: then all of the burst counts as used. What was used
    under another rate is due in the time that the rate in force gives it.
    """
    now_ns, apart = now_ms * _MS, limit.apart_ns
    if pace.boot not in {"", boot}:
        return CallPace(boot, now_ns + limit.burst * apart, 0, now_ns, apart)
    if pace.apart_ns == apart:
        return replace(pace, boot=boot)
    ahead = max(0, pace.due_ns - now_ns) * apart // pace.apart_ns if pace.apart_ns else 0
    return CallPace(boot, now_ns + ahead, pace.closed_ms, now_ns, apart)


def settled(pace: CallPace, boot: str, reserved: int, used: int, began_ms: int, now_ms: int) -> CallPace:
    """The pace after a call that began with so many units reserved has used another number.

    Less is given back only while calls have been due ever since: else the time that it reserved has passed.
    """
    if pace.boot != boot or not pace.apart_ns or used == reserved:
        return pace
    if used > reserved:
        return _used(pace, used - reserved, now_ms)
    if began_ms * _MS < pace.busy_ns:
        return pace
    return replace(pace, due_ns=pace.due_ns - (reserved - used) * pace.apart_ns)


def slowed(pace: CallPace, boot: str, until_ms: int) -> CallPace:
    """The pace after a service has asked not to be called until this moment. It is never moved to an earlier one."""
    known = pace if pace.boot in {"", boot} else CallPace()
    return replace(known, boot=boot, closed_ms=max(known.closed_ms, until_ms))


# --- slots ------------------------------------------------------------------------------------------------------------


class SlotHolder(msgspec.Struct, frozen=True, array_like=True):
    """The stored part of a call that holds a permit: how much it counts under the rate, and when it was granted."""

    operation: str
    units: int
    at_ms: int


class HeldPermits(msgspec.Struct, frozen=True):
    """The workers whose permits of one limit count.

    `hung` is the number of a process that holds one of them, is seen to live, and has been silent for longer than a
    process can pause; 0 without such a process. `silent_ms` is the longest silence of a holder.
    """

    workers: frozenset[str]
    hung: int = 0
    silent_ms: int = 0


class LimitUse(msgspec.Struct, frozen=True):
    """The permits of one limit that count, and its stored moments. `hung`: see `HeldPermits`."""

    name: str
    permits: tuple[Permit, ...]
    pace: CallPace
    hung: int = 0


def slot_key(permit: Permit) -> str:
    """The key of the slot that a permit holds under each of its limits."""
    return f"{permit.worker} {permit.number}"


def worker_of(key: str) -> str:
    """The worker that holds a slot."""
    return key.rpartition(" ")[0]


def call_is_over(worker: WorkerState, pause_bound_ms: int) -> bool:
    """True if no call of this worker can be under way.

    It is proven dead, or it cannot be observed and has been silent for longer than a process can pause. A process that
    is seen to live may be stopped in its call for any time.
    """
    return worker.fate == "dead" or (worker.fate == "unknown" and worker.silent_ms > pause_bound_ms)


def held_permits(states: Mapping[str, WorkerState], pause_bound_ms: int, asking: str = "") -> HeldPermits:
    """The workers whose calls may be under way. The one that is `asking` is not gone for itself."""
    others = {name: state for name, state in states.items() if name != asking}
    holders = {name: state for name, state in others.items() if not call_is_over(state, pause_bound_ms)}
    hung = [state.pid for state in holders.values() if state.fate == "alive" and state.silent_ms > pause_bound_ms]
    silent_ms = max((state.silent_ms for state in holders.values()), default=0)
    return HeldPermits(frozenset((*holders, asking)), min(hung, default=0), silent_ms)


async def limit_uses(journal: JournalReads, pause_bound_ms: int = 600_000) -> list[LimitUse]:
    """The use of each limit under which a permit was requested, by name."""
    paces = {cell.name: pace_of(cell.body) for cell in await journal.cells("rate")}
    stored: dict[str, list[Permit]] = {name: [] for name in paces}
    for cell in await journal.cells("slot") if paces else ():
        worker, _, number = cell.key.rpartition(" ")
        holder = msgspec.json.decode(cell.body, type=SlotHolder)
        stored.setdefault(cell.name, []).append(Permit(worker, int(number), holder.operation))
    workers = {permit.worker for permits in stored.values() for permit in permits}
    states = {worker: await journal.fate(worker) for worker in sorted(workers)}
    uses: list[LimitUse] = []
    for name in sorted(stored):
        of_it = {permit.worker: states[permit.worker] for permit in stored[name]}
        held = held_permits(of_it, pause_bound_ms)
        permits = tuple(permit for permit in stored[name] if permit.worker in held.workers)
        uses.append(LimitUse(name, permits, paces.get(name, CallPace()), held.hung))
    return uses


# --- once -------------------------------------------------------------------------------------------------------------


class LastFiring(msgspec.Struct, frozen=True):
    """The last moment at which a schedule fired, and the run that it submitted."""

    moment_ms: int
    run: str


def moment_key(moment_ms: int) -> str:
    """A moment as a key: the order of keys is that of moments."""
    return f"{moment_ms:0{_MOMENT_DIGITS}}"


def firing_of(cell: Cell | None) -> LastFiring | None:
    """A firing as it is stored."""
    return None if cell is None else LastFiring(int(cell.key), msgspec.json.decode(cell.body, type=str))


async def last_firing(journal: JournalReads, schedule: str, until_ms: int) -> LastFiring | None:
    """The last firing of a schedule for a moment up to `until_ms`, or None. It outlives its declaration."""
    return firing_of(next(iter(await journal.cells("once", [schedule], until=moment_key(until_ms))), None))


# --- hints ------------------------------------------------------------------------------------------------------------


async def read_hint(journal: JournalReads, name: str) -> bytes | None:
    """A losable note that all processes share, such as the state of a breaker."""
    return next((cell.body for cell in await journal.cells("hint", [name])), None)
