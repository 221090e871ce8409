"""The waiters of a run, and the decision that it is suspended: everything waits, and no wait ends soon (`_ending`).

People are asked at once: while one part of a run waits for a person and another is at work, `LiveListing` puts the
question into the listing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from beforehand.engine.active_run.scopes import Scope
from beforehand.engine.suspension import Ending, Pause, encode_waits
from beforehand.engine.tool_protocol import wake
from beforehand.journal.port import RunChange
from beforehand.model.waits import CHILD, PEOPLE, ListedWait, decode_waits, waits_left
from beforehand.policies import BUDGET_LIMITS

if TYPE_CHECKING:
    from beforehand.engine.active_run.run import ActiveRun

PASSES: Final = 24
QUIET_S: Final = 0.1
"""How long a host begins no further call before its run is suspended: it may be about to make one beside the others."""
_WITHIN: Final = {"operation", "claim"}
"""Waits for operations: those of this run have a wait of their own, and those of another run a time to look again."""
BUDGET: Final = "(budget)"
"""The watchers of what is left of the run's budget; no step has such a name."""
_LISTING: Final = "(listing)"  # among the drivers; no step has such a name
Question: TypeAlias = tuple[str, str, int]
"""A question to a person: the kind of its wait, its step, and when it was asked."""
_WOKEN: Final = {"operation", "question", "handoff", "event", "timer", "child"}  # these check again, and wait on


class Waiters:
    """The branches of agent code and the drivers that wait.

    `pauses` holds the waits of branches, `resting` those of drivers. `watchers` wait for news of an operation, by step,
    `wakers` wake its driver. `limits` are the time limits around what waits: by step, when each ends on the wall clock.
    """

    def __init__(self, active: ActiveRun) -> None:
        self.resting: Final[dict[str, Pause]] = {}
        self.pauses: Final[dict[asyncio.Future[Any], Pause]] = {}
        self.limits: Final[dict[str, int]] = {}
        self._settling = 0
        self.wakers: Final[dict[str, asyncio.Future[None]]] = {}
        self.watchers: Final[dict[str, list[asyncio.Future[None]]]] = {}
        self._active: Final = active
        self._rest_scheduled = False
        self._calls_seen = 0
        self._listing: LiveListing | None = None
        self._quiet_since = 0.0

    async def wait(self, scope: Scope | None, waiters: list[asyncio.Future[None]], pause: Pause) -> None:
        """Let a branch of agent code wait; the run may be suspended meanwhile."""
        future = asyncio.get_running_loop().create_future()
        waiters.append(future)
        await self.wait_for(scope, future, pause)

    async def wait_for(self, scope: Scope | None, future: asyncio.Future[Any], pause: Pause) -> None:
        """Wait for `future` as a branch of agent code. Raises `Sealed` if the run is sealed meanwhile."""
        self.pauses[future] = pause
        if scope is not None:
            scope.host.waiting += 1
        if self.resting or pause.kind != "operation":
            self.consider_rest()
        if pause.kind in PEOPLE:
            self.listing.consider()
        try:
            await future
        finally:
            self.pauses.pop(future, None)
            if scope is not None:
                scope.host.waiting -= 1
            if pause.kind in PEOPLE:
                self.listing.consider()
        if self._active.closed:
            self._active.check()

    async def wait_ms(
        self, scope: Scope, ms: float, pause: Pause, news: Callable[[asyncio.Future[None]], object] = id
    ) -> None:
        """Let a branch of agent code wait for a time, or until what was given to `news` is woken."""
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[None] = loop.create_future()
        timer = loop.call_later(max(0, ms) / 1000, wake, waiting)
        news(waiting)
        try:
            await self.wait_for(scope, waiting, pause)
        finally:
            timer.cancel()

    async def rest(
        self, step: str, pause: Pause, seconds: float | None, scope: Scope | None, other: str | None = None
    ) -> None:
        """Let a driver wait until it is woken or `seconds` have passed; the run may be suspended meanwhile.

        `scope` is the branch of agent code whose own task drives, if one does. News of the operation `other` wake it.
        """
        waker = self.wakers.get(step)
        if waker is None or waker.done():
            waker = self.wakers[step] = asyncio.get_running_loop().create_future()
        if other is not None and waker not in (watchers := self.watchers.setdefault(other, [])):
            watchers.append(waker)
        self.resting[step] = pause
        if scope is not None:
            scope.host.waiting += 1
        self.consider_rest()
        if pause.kind in PEOPLE:
            self.listing.consider()
        try:
            await asyncio.wait({waker}, timeout=seconds)
        finally:
            self.resting.pop(step, None)
            if scope is not None:
                scope.host.waiting -= 1
            if pause.kind in PEOPLE:
                self.listing.consider()
            if waker.done():
                self.wakers.pop(step, None)

    def wake(self, step: str | None = None) -> None:
        """Let the drivers (or one of them) evaluate their situation again."""
        for name, waker in list(self.wakers.items()):
            if (step is None or name == step) and not waker.done():
                waker.set_result(None)

    def wake_everything(self) -> None:
        """Let all drivers and waiting branches check again, after a change that concerns all of them."""
        self.wake()
        for waiting, pause in list(self.pauses.items()):
            if pause.kind in _WOKEN:
                wake(waiting)

    def settled(self, step: str) -> None:
        """Wake the waiters of this operation: something about it is final."""
        if self.watchers:
            wake_all(self.watchers.pop(step, []))
        for closing in self._active.drivers.closing:
            self.wake(closing)

    def budget_changed(self) -> None:
        """Let everything check again that waits for a budget."""
        self.settled(BUDGET)
        self.wake()

    @property
    def listing(self) -> LiveListing:
        """The questions in the listing while the run goes on. Most runs ask no person, and have none."""
        if self._listing is None:
            self._listing = LiveListing(self._active, self)
        return self._listing

    def all(self) -> list[Pause]:
        """The waits of all drivers and branches."""
        return [*self.resting.values(), *self.pauses.values()]

    def outside(self) -> tuple[Pause, ...]:
        """Those for something outside the run."""
        return tuple(pause for pause in self.all() if pause.kind not in _WITHIN)

    # --- suspension: when every branch waits -----------------------------------------------------------------

    def at_rest(self) -> bool:
        """True if every branch of agent code and every driver waits."""
        return self._active.root.at_rest() and all(step in self.resting for step in self._active.drivers.tasks)

    def beside_others(self) -> bool:
        """True if agent code has branches at this moment."""
        return bool(self._active.root.children)

    def once_settled(self, then: Callable[[], object]) -> None:
        """Call `then` after `PASSES` of the loop: code has come to rest, and a cancellation to its branches."""
        loop = asyncio.get_running_loop()
        self._settling += 1

        def settle(passes: int) -> None:
            if passes:
                loop.call_soon(settle, passes - 1)
                return
            self._settling -= 1
            then()
            self.consider_rest()

        loop.call_soon(settle, PASSES)

    def consider_rest(self) -> None:
        """Check, after this pass of the loop, whether everything waits."""
        if not self._rest_scheduled and self._active.sealed is None:
            self._rest_scheduled = True
            asyncio.get_running_loop().call_soon(self._check_rest, 0)

    def _check_rest(self, passes: int) -> None:
        """End the run's drive if everything waits, and still does some passes of the loop later.

        Only then the end of a branch has reached the code that awaits it (through groups and nested gathers).
        """
        active = self._active
        self._rest_scheduled = False
        ending = self._ending()
        if ending is None:
            gate = active.process.isolation
            if active.log.counted and not self._settling and self.at_rest() and not gate.on_last_chance(active.run):
                active.log.leave_gate()
            return
        if passes == PASSES and not self._host_may_go_on(ending):
            active.end(ending)
            return
        self._rest_scheduled = True
        if passes == PASSES:
            asyncio.get_running_loop().call_later(QUIET_S, self._check_rest, 0)
            return
        asyncio.get_running_loop().call_soon(self._check_rest, passes + 1)

    def _host_may_go_on(self, ending: Ending) -> bool:
        """True while a host may be about to make a call: it works between its calls, unseen.

        A replay waits longer for it: the host may need its time again before each call, and a run that is wrongly
        called diverged needs a person.
        """
        active, now = self._active, asyncio.get_running_loop().time()
        if active.host_calls != self._calls_seen:
            self._calls_seen, self._quiet_since = active.host_calls, now
        if not active.host_calls:
            return False
        patience = active.process.settings.patience_ms / 1000 if ending.kind == "diverged" else QUIET_S
        return now - self._quiet_since < patience

    def _ending(self) -> Ending | None:
        """How the drive has to end, if everything waits and none of it will be over soon."""
        active = self._active
        if active.sealed is not None or active.ending.done() or self._settling or not self.at_rest():
            return None
        if active.log.command_lock.locked():
            return None  # a command changes the history before the driver that waits for it is woken
        if any(future.done() for future in (*self.pauses, *(self.wakers[step] for step in self.resting))):
            return None  # a waiter was woken and has not run yet
        pauses, waits = self.all(), self.outside()
        # What only the code can bring never comes: nothing that is waited for lets the code go on.
        left = waits and all(pause.kind == "code" and pause.step in active.replay.expected for pause in waits)
        if left or any(pause.kind == "replay" for pause in pauses):
            why = active.replay.departure()
            return Ending("diverged", why, error=active.replay.divergence(why))  # now: it names what waits
        process = active.process
        now, hold_ms = process.wall_ms(), process.settings.hold_ms
        # A time limit does not hold a run that waits for a child: the child may need the slot to end within that limit.
        limit_ms = 0 if any(pause.kind == CHILD for pause in waits) else hold_ms
        held = [(due, now, limit_ms) for due in self.limits.values()]
        held += [(pause.due, pause.since or now, hold_ms) for pause in pauses if pause.due is not None]
        long = bool(waits) and all(due - since > held_ms for due, since, held_ms in held)
        # A replay that waits for a time limit comes to the same place each time: a suspension would never end.
        goes_on = any(pause.kind == "left" for pause in pauses)
        # On its last chance a run is not held: what follows may kill this process before anything proves that it waits.
        if long or (pauses and not goes_on and process.isolation.on_last_chance(active.run)):
            budget = active.history.budget
            if (asks := next((pause.asks for pause in waits if pause.kind == "budget"), None)) is not None:
                own = "" if budget is None else budget.spent(BUDGET_LIMITS)
                return Ending("budget", own or asks)
            reason, due = "; ".join(_sentences(waits or pauses)), min((due for due, _, _ in held), default=None)
            return Ending("suspended", reason, due, waits, last_chance=not long)
        return None


class LiveListing:
    """The questions to people in the listing of a run that goes on beside them.

    A run that is suspended shows what it asks by its suspension. While another part of it is still at work, this shows
    it: `QUIET_S` after a person was asked, and again after an answer. `noticed` are the questions of this drive for
    which webhook endpoints have been sent a notice.
    """

    def __init__(self, active: ActiveRun, waiters: Waiters) -> None:
        self.noticed: frozenset[Question] = frozenset()
        self._row = b"[]"
        self._active: Final = active
        self._waiters: Final = waiters
        self._scheduled = False

    def begin(self, waits: bytes) -> None:
        """Note what the row shows when the run is claimed: answers may have come since."""
        self._row = waits
        self.consider()

    def consider(self) -> None:
        """Compare the row soon with what people are asked then."""
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_later(QUIET_S, self._check)

    def new(self, pauses: Iterable[Pause]) -> tuple[Pause, ...]:
        """The pauses for which no notice has been sent."""
        return tuple(pause for pause in pauses if _question(pause) not in self.noticed)

    def _check(self) -> None:
        self._scheduled = False
        active = self._active
        if active.sealed is not None or active.ending.done():
            return
        same = _questions(decode_waits(self._encoded())) == _questions(decode_waits(self._row))
        if _LISTING in active.drivers.tasks or (same and self._interrupted()):
            self.consider()
        elif not same:
            active.drivers.start(_LISTING, self._write)

    def _encoded(self) -> bytes:
        return encode_waits(self._waiters.outside(), self._interrupted())

    def _interrupted(self) -> list[ListedWait]:
        """The open questions of the row for which nothing waits at this moment.

        The driver of an operation reads the world back, or a replay has not come to the question yet.
        """
        history, present = self._active.history, {pause.step for pause in self._waiters.all()}
        asked = history.operations.keys() | (history.steps.questions.keys() - history.steps.answers.keys())
        left = decode_waits(waits_left(self._row, history))
        return [wait for wait in left if wait.kind in PEOPLE and wait.step in asked - present]

    async def _write(self) -> None:
        process, log = self._active.process, self._active.log
        asked = self.new(self._waiters.outside())
        self._row = self._encoded()
        waits = decode_waits(self._row)
        reason = "; ".join(_sentences(waits))
        notices = process.outbox.posts(log.history, "run.waits_for_person", reason, asked)
        self.noticed |= _questions(asked)
        # Due at once: if this process dies, the run is taken up, for its other part has not ended.
        due = process.wall_ms()
        asks = bool(_questions(waits))
        change = RunChange("suspended", reason[:500], due, self._row) if asks else RunChange("running")
        await log.append(change=change, posts=notices)


def _question(wait: Pause | ListedWait) -> Question:
    return wait.kind, wait.step, wait.at


def _questions(waits: Iterable[Pause | ListedWait]) -> frozenset[Question]:
    return frozenset(_question(wait) for wait in waits if wait.kind in PEOPLE)


def wake_all(waiters: list[asyncio.Future[None]]) -> None:
    """Wake every coroutine that waits in this list."""
    for waiter in waiters:
        wake(waiter)
    waiters.clear()


def _sentences(waits: Iterable[Pause | ListedWait]) -> list[str]:
    return list(dict.fromkeys(pause.asks or f"{pause.step} waits ({pause.kind})" for pause in waits))
