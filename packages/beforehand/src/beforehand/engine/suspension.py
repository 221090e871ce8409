"""The endings of a drive: suspension, where everything waits and no wait ends soon, and stops.

`active_run/waiters.py` decides that a run is suspended (`_ending`), and `run_driver.py` records it. Here is what the
listing and the records say of such a run, and in the second half, why no wake-up of it is lost.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Generator, Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import msgspec
from msgspec.structs import replace

from beforehand.engine.tool_protocol import wake
from beforehand.errors import BudgetSpent, JournalError
from beforehand.journal.port import Journal, Post, RunChange
from beforehand.model import records as r
from beforehand.model.commands import COMMANDS
from beforehand.model.decision.verify_rules import LOOK_AGAIN_MS
from beforehand.model.money import counter_currency
from beforehand.model.run_budget import use_of, words_of
from beforehand.model.shared_use import PREFIX, TREE
from beforehand.model.shell import to_type
from beforehand.model.stop_reasons import STOP_REASONS, StopReason, reason_of, why_ended
from beforehand.model.system import is_system
from beforehand.model.waits import HALT, HUNG, SHARED_BUDGET, UNREADABLE, ListedWait, Then
from beforehand.queues.zones import Period

if TYPE_CHECKING:
    from beforehand.engine.environment import Stamp
    from beforehand.engine.settings import Settings
    from beforehand.model.decision.situation import LimitWait
    from beforehand.model.run_history import RunHistory
    from beforehand.queues.limits import SharedBudget

_LOOK_AGAIN_MS: Final = 1_000
"""How often a call asks again that only the reservations of calls in flight keep from beginning."""


class Pause(msgspec.Struct, frozen=True):
    """A wait of a branch or a driver. `due` is the wall clock in milliseconds at which it ends by itself, if it does.

    `at` is when a person was asked, by the same clock; asking again changes it. 0: it is not known.
    """

    kind: str
    step: str = ""
    due: int | None = None
    asks: str = ""
    sent: bool = True  # whether something may have been sent already
    at: int = 0
    queue: str = ""  # where the question is put
    tool: str = ""  # of the call that a person is asked about; the name of an awaited event
    until: int = 0  # the wall clock by which an answer is wanted, whether or not the wait ends then; 0: there is none
    then: Then = ""  # and what happens at that moment
    shown: str = ""  # the digest of exactly what a person is asked to approve; the key of an awaited answer or event
    result: bool = False  # whether an answer that it happened has to bring what the call returned
    budget: str = ""  # the shared budget that is spent
    declared: int | None = None  # the ledger entry of the limits under which it is; under others the wait is over
    since: int = 0  # the wall clock at which its caller began to be held by failing attempts; 0: this wait is the first


def limit_pause(wait: LimitWait, step: str, now_ms: int, operation: str, tool: str = "") -> Pause:
    """The wait for a permit under a limit. Where a process that stands still holds it, a person is asked.

    That is for calls of tools: an item of the inbox is about an operation, and a call of a model is none. Behind a
    process that is silent a run looks again after as long a time, and is suspended: the silence is held time.
    """
    kind, ms = HUNG if wait.hung and tool else "limit", max(wait.ms, min(wait.silent_ms, LOOK_AGAIN_MS))
    since = now_ms - wait.silent_ms if wait.silent_ms else 0
    return Pause(kind, step, now_ms + ms, f"{operation}: {wait.reason}", tool=tool, sent=False, since=since)


class BudgetRefusal(msgspec.Struct, frozen=True):
    """A limit of a shared budget in a period that permits no further call, and the limits that were in force."""

    spent: BudgetSpent
    budget: SharedBudget
    period: Period
    declared: int | None

    @property
    def reason(self) -> str:
        """The limit, and what is used of it, in words."""
        spent, most = self.spent, self.budget.most(self.spent.limit) or 0
        use, words = use_of(counter_currency(spent.limit), spent.used, spent.reserved, most), words_of(spent.limit)
        if self.period.name == TREE:
            tree = spent.budget.removeprefix(PREFIX)
            raised = to_type("budget", tree, "--raise", "LIMIT=AMOUNT")
            return f"the limit of {words} of run {tree} and its children is reached: {use}; {raised}"
        period = f"{self.period.words} ({self.budget.zone})"
        return f"the limit of {words} of the budget {spent.budget} is reached for {period}: {use}"

    def look_again_at(self, now_ms: int) -> int:
        """When the call may have room: soon if only calls in flight stand in its way, else when the period is over."""
        most = self.budget.most(self.spent.limit) or 0
        return now_ms + _LOOK_AGAIN_MS if self.spent.used < most else self.period.end_ms

    def pause(self, run: str, step: str, due: int) -> Pause:
        """The wait for the next period; for the budget of a tree, which has one, for a person who raises it."""
        if self.period.name == TREE:
            return Pause("budget", step, None if due == self.period.end_ms else due, self.reason)
        until = datetime.fromtimestamp(self.period.end_ms / 1000, UTC)
        asks = f"run {run} waits until {until:%Y-%m-%d %H:%M} UTC: {self.reason}"
        return Pause(SHARED_BUDGET, step, due, asks, budget=self.spent.budget, declared=self.declared)


PLACED = ("queue", "tool", "then", "shown", "result", "budget")


def encode_waits(pauses: Iterable[Pause], others: Iterable[ListedWait] = ()) -> bytes:
    """The waits of a run, as encoded in its row of the listing; `others` are in the row already."""
    return msgspec.json.encode([*map(_encoded_wait, pauses), *others])


def _encoded_wait(pause: Pause) -> dict[str, object]:
    place = {name: value for name in PLACED if (value := getattr(pause, name))}
    if not pause.sent:
        place["unsent"] = True
    due = None if pause.kind == HUNG else pause.until or pause.due  # the time of the next look is no deadline
    return {"kind": pause.kind, "step": pause.step, "asks": pause.asks, "due": due, "at": pause.at, **place}


EndingKind: TypeAlias = StopReason | Literal["suspended", "shutdown", "unavailable", "lost"]
"""The kinds of endings: a reason to stop the run, or one after which it goes on later, here or elsewhere."""


class Ending(msgspec.Struct, frozen=True):
    """Why an active run ends before its agent returns."""

    kind: EndingKind
    reason: str = ""
    due: int | None = None
    waits: tuple[Pause, ...] = ()
    error: BaseException | None = None
    last_chance: bool = False

    @property
    def commanded(self) -> bool:
        """True if a person's command stops the run."""
        return any(rule.command for reason, rule in STOP_REASONS.items() if reason == self.kind)


def ended_by(command: r.CommandApplied) -> Ending:
    """The end of a run by a command that stops it."""
    reason = reason_of(command.command)
    assert reason is not None, command
    return Ending(reason, why_ended(command.command, command.by, command.note))


def stopped_change(stopped: r.RunStoppedRecord, agent: str, due_ms: int | None) -> RunChange:
    """The listing of a stopped run of that agent. `due_ms`: when to verify its unknown effects again."""
    why = f"{stopped.reason}: {stopped.error}"
    asks = Pause(HALT, asks=why, at=stopped.at, until=stopped.until, then="hold")
    waits = encode_waits([asks] if STOP_REASONS[stopped.reason].asks_person and not is_system(agent) else [])
    return RunChange("stopped", why[:500], due_ms, waits, release=True)


def unreadable_change(error: JournalError, now_ms: int) -> RunChange:
    """The listing of a run that needs a record or a ledger entry that cannot be read.

    Only the listing shows it: no record can be added to a run that cannot be read. `resume` tries again.
    """
    why = f"unreadable: {error.message}"
    return RunChange(
        "stopped", why[:500], None, encode_waits([Pause(UNREADABLE, asks=why[:500], at=now_ms)]), release=True
    )


def asks_until(reason: StopReason, now_ms: int, settings: Settings) -> int:
    """Deadline for a person to decide about a run that stops now; 0 if no person is asked, or there is no deadline."""
    return settings.answer_by(now_ms) if STOP_REASONS[reason].asks_person else 0


def records_on_stopped(history: RunHistory, order: r.CommandApplied, stamp: Stamp) -> tuple[r.Record, ...]:
    """The records that a command adds to a stopped run: it goes on, or gets another end.

    A run that was cancelled, or that a person has taken over, stays as it is. An impossible command is refused.
    """
    ended = history.lifecycle.status == "stopped" and history.undo_state != "ordered"
    stopped = history.lifecycle.stopped if ended else None
    if order.command == "reopen":
        if stopped is None or STOP_REASONS[stopped.reason].final:
            return (replace(order, refused=f"the run is {stopped.reason if stopped else history.lifecycle.status}"),)
        return (order, r.RunReopened(by=order.by, note=order.note, **stamp))
    reason = reason_of(order.command)
    if stopped is None or reason is None or not STOP_REASONS[stopped.reason].asks_person:
        return (order,)
    left = r.RunStoppedRecord(
        reason=reason, error=why_ended(order.command, order.by, order.note), open=stopped.open, renews=stopped.renews,
        voices=(*history.lifecycle.voices, order.by), **stamp,
    )  # fmt: skip
    return (order, left)


# --- no lost wake-ups ----------------------------------------------------------------------------------------------
# Prevents lost wake-ups, of runs that are suspended and of those that wait in this process. A suspending owner and an
# arriving command race for one ledger key. A sender first puts its command or event into the ledger. If another process
# drives the run, the sender then writes the key of that owner's lease. An owner that suspends the run writes the same
# key in the commit that suspends it. The second of the two learns that it lost: the owner finds the sender's entry and
# leaves the run due at once, or the sender finds that the run is suspended and claims it. A process that applies
# commands to an idle run is its owner meanwhile, and does the same. A crash loses nothing: the command is in the
# ledger, and the next owner reads it. A running owner is not interrupted by this. Each process asks every `poll_ms`
# whether the journal has changed, then reads what is new in the ledger (`Engine.look`, `LedgerWatch`), however many
# runs it drives, and wakes those that it concerns.


_NOTIFIED: Final = b'"knock"'
_RELEASED: Final = b'"left"'


async def notify_owner(journal: Journal, run: str, token: int) -> bool:
    """Keep the owner of this lease from suspending the run unseen. False: it has released the run already."""
    return (await journal.commit(_owner_post(run, token, _NOTIFIED))).body == _NOTIFIED


def release_post(run: str, token: int) -> Post:
    """Part of the commit that suspends the run; `LedgerTaken` there means that a sender was first."""
    return _owner_post(run, token, _RELEASED)


def told_to_end(worker: str) -> Post:
    """Tells that this process shuts down: if it is killed meanwhile, no run is suspected of that."""
    return Post(f"told-to-end/{worker}", "", b"true")


def _owner_post(run: str, token: int, body: bytes) -> Post:
    return Post(f"door/{run}", str(token), body)


class StreamWatch:
    """One branch's watch over a ledger stream: it reads the stream first, and again only after a new entry."""

    def __init__(self) -> None:
        self._unread = True
        self._waiting: asyncio.Future[None] | None = None

    def begin_read(self) -> bool:
        """True if the stream has to be read. What arrives during the read is seen by the next one."""
        unread, self._unread = self._unread, False
        return unread

    def wake_at_news(self, waiting: asyncio.Future[None]) -> None:
        """Wake the branch at the next entry: at once if one has arrived since the last read began."""
        self._waiting = waiting
        if self._unread:
            wake(waiting)

    def arrived(self) -> None:
        """Note a new entry of the stream."""
        self._unread = True
        if self._waiting is not None:
            wake(self._waiting)


class LedgerWatch:
    """Finds what is new in the ledger: one read for all runs of a process, however many there are.

    A run reads its own commands when it is claimed. From then on this watch finds them. `concerns` says whether this
    process holds the lease of a run, or has asked for it.
    """

    def __init__(self, journal: Journal, concerns: Callable[[str], bool]) -> None:
        self.pending: set[str] = set()
        """The runs with commands that were found and not taken yet."""
        self._seen: int | None = None
        self._journal = journal
        self._concerns = concerns
        self._watches: dict[str, list[StreamWatch]] = {}

    async def begin(self) -> None:
        """Look no further back than to this moment: what is read from here on includes what came before."""
        self._seen = (await self._journal.news(None)).last

    async def look(self) -> set[str]:
        """Note the runs with new commands, wake the branches that watch a stream, and return what has grown."""
        streams: set[str] = set()
        more = True
        while more:
            found = await self._journal.news(self._seen)
            self._seen, more = found.last, found.more
            streams.update(found.streams)
        for stream in sorted(streams):  # in one order, so that a seed of the simulator is one story
            # A run whose claim is under way counts: it may have read its commands before this one came.
            if stream.startswith(COMMANDS) and self._concerns(run := stream.removeprefix(COMMANDS)):
                self.pending.add(run)
            self.arrived(stream)
        self.pending = {run for run in self.pending if self._concerns(run)}
        return streams

    def arrived(self, stream: str) -> None:
        """Wake the branches that watch a stream. What a run posts to itself is seen before the run is suspended."""
        for one in self._watches.get(stream, ()):
            one.arrived()

    @contextlib.contextmanager
    def over(self, stream: str) -> Generator[StreamWatch]:
        """Watch a stream. The watch begins before its first read: an entry between read and wait is not missed."""
        one = StreamWatch()
        self._watches.setdefault(stream, []).append(one)
        try:
            yield one
        finally:
            self._watches[stream].remove(one)
            if not self._watches[stream]:
                del self._watches[stream]
