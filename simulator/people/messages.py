"""Messages to runs: what people tell them, and the check that it is heard once, in order, and before the next write.

As the checker, it reads what people said, the durable records, and what agent code heard; it never asks the product.
"""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from beforehand.control.service import ControlService
from beforehand.model import records as r
from beforehand.model.ids import operation_id
from beforehand.testing.loop import Actor
from simulator.checkers.records import Standing
from simulator.people.approvers import Errand
from simulator.plan import Telling

if TYPE_CHECKING:
    from simulator.world import World

ONCE: Final = 16
BEFORE: Final = 9
LATE_MS: Final = 60_000
"""The process that drives a run receives its messages long before that: each looks at least every 10 s, if it is not
paused."""
_NAMED: Final = re.compile(r"message \d+")


class _Run:
    """What was told to one run, as its records say."""

    def __init__(self) -> None:
        self.received: dict[int, tuple[str, bool]] = {}
        """The text, and whether it says to stop, by ledger entry."""
        self.heard: dict[str, tuple[int, ...]] = {}
        """What was heard at which step."""
        self.called_off: dict[str, int] = {}
        """Operations that were open, with nothing sent that could land, when that message came."""
        self.held: set[str] = set()


class Messages:
    """Everything that is told to the runs of one simulation."""

    def __init__(self, world: World, broken: Callable[[int, str], None]) -> None:
        self._world = world
        self._broken = broken
        self._runs: defaultdict[str, _Run] = defaultdict(_Run)
        self._taken: defaultdict[str, dict[str, int]] = defaultdict(dict)
        """What was acknowledged, and when, by run."""

    def restored(self) -> None:
        """The records say less than they did, and what was told since is forgotten."""
        self._runs.clear()
        self._taken.clear()

    def interrupted(self, run: str) -> bool:
        """Whether a message came for that run."""
        return bool(self._runs[run].received)

    # --- people ----------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Let people tell the runs what the plan has for them."""
        for text, telling in self._all():
            say = functools.partial(self._tell, telling, text)
            told = functools.partial(self._told, telling.run, text)
            Errand(self._world, f"{text} for {telling.run}", say, told).begin(telling.at_ms)

    async def _tell(self, telling: Telling, text: str, service: ControlService) -> None:
        await service.tell(telling.run, text, by="ann", stop=telling.stop, once=text)

    def _told(self, run: str, text: str, _actor: Actor, refused: bool) -> None:
        self._reached("refused" if refused else "taken down")
        if not refused:
            self._taken[run][text] = self._world.now_ms()

    # --- events ----------------------------------------------------------------------------------------------

    def heard(self, run: str, record: r.Record) -> None:
        """A record became durable."""
        if not self._world.plan.tellings:
            return
        match record:
            case r.MessageReceived():
                self._received(run, record)
            case r.MessageHeard(step=step, messages=messages):
                self._heard_at(run, step, messages)
            case r.OperationHeld(step=step):
                self._runs[run].held.add(step)
            case r.AttemptStarted(step=step, number=number):
                self._started(run, step, number)
            case _:
                return

    def _received(self, run: str, record: r.MessageReceived) -> None:
        known = self._runs[run]
        if record.entry in known.received or any(text == record.text for text, _ in known.received.values()):
            self._broken(ONCE, f"run {run} was told {record.text} twice")
        known.received[record.entry] = record.text, record.stop
        self._reached("received")
        for one in self._world.checker.operations.values():
            if one.run == run and one.step not in known.held and _is_open(one):
                known.called_off.setdefault(one.step, record.entry)
                self._reached("called something off")

    def _heard_at(self, run: str, step: str, messages: tuple[int, ...]) -> None:
        known = self._runs[run]
        if strange := [entry for entry in messages if entry not in known.received]:
            self._broken(ONCE, f"{run}/{step} received {strange}, which was not sent to run {run}")
        known.heard[step] = messages
        if messages:
            self._reached("heard")

    def _started(self, run: str, step: str, number: int) -> None:
        """An attempt is on record: if it is a new write of code, that code has heard everything."""
        known, name = self._runs[run], f"{run}/{step} attempt {number}"
        if step in known.held or _serves(self._world.checker.operations[operation_id(run, step)]):
            return
        if step in known.called_off:
            self._broken(BEFORE, f"{name} begins, and message {known.called_off[step]} had called it off")
        if number > 1:
            return
        received = {text for text, _ in known.received.values()}
        for text, taken_ms in self._taken[run].items():
            if text not in received and self._world.now_ms() > max(taken_ms, self._world.woke_ms) + LATE_MS:
                self._broken(BEFORE, f"{name} begins, and {text} was taken down at {taken_ms} ms")
        for entry, (text, stop) in known.received.items():
            if stop:
                self._broken(BEFORE, f"{name} begins, and {text} said to stop")
            if not any(entry in heard and _knows(step, place) for place, heard in known.heard.items()):
                self._broken(BEFORE, f"{name} begins, and its code has not heard {text}")

    def told(self, actor: Actor, run: str, before: tuple[str, ...], said: str) -> tuple[str, ...]:
        """Agent code was told something: each message once to each branch, in their order. Gives the messages."""
        texts = tuple(_NAMED.findall(said))
        if not actor.alive:
            return texts
        self._world.tell(actor, f"run {run} receives {', '.join(texts)}")
        said_for = {name: one.stop for name, one in self._all() if one.run == run}
        order = {text: number for number, (text, _) in enumerate(self._runs[run].received.values())}
        heard = list(before)
        for text in texts:
            if text not in said_for:
                self._broken(ONCE, f"run {run} heard {text}, which is not for it")
            elif text in heard and not said_for[text]:
                self._broken(ONCE, f"run {run} heard {text} again")
            heard.append(text)
        known = [order.get(text, len(order)) for text in dict.fromkeys(heard)]
        if known[: len(order)] != list(range(len(known)))[: len(order)]:
            self._broken(ONCE, f"run {run} heard {heard}, and was told {list(order)}")
        return texts

    def _all(self) -> list[tuple[str, Telling]]:
        """What people have to say, and its text."""
        return [(f"message {number + 1}", one) for number, one in enumerate(self._world.plan.tellings)]

    # --- at the end of time ----------------------------------------------------------------------------------

    async def at_the_end(self) -> None:
        """Every message that was taken down is on record, unless its run was set aside, or came to its end before."""
        for row in await self._world.journal.runs(limit=10_000):
            received = {text for text, _ in self._runs[row.run].received.values()}
            missing = self._taken[row.run].keys() - received
            if missing and not (row.status == "completed" or row.reason.startswith("quarantined")):
                self._broken(ONCE, f"{', '.join(missing)} for run {row.run} was taken down, and is not on record")
            if missing:
                self._reached("too late to be heard")

    def _reached(self, what: str) -> None:
        self._world.reach.endings[f"message: {what}"] += 1


def _is_open(one: Standing) -> bool:
    """Whether code waits for it, and nothing of it can have landed."""
    if one.intent is None or one.settled is not None or _serves(one):
        return False
    return len(one.attempts) == len(one.unsent) == len(one.ended)


def _serves(one: Standing) -> bool:
    """True if the runtime itself asked for it: a compensation, or what completes a reservation."""
    return one.intent is not None and bool(one.intent.serves)


def _knows(step: str, place: str) -> bool:
    """Whether code at this step knows what was heard at that place: not where these are branches beside each other."""
    here, there = step.partition("/")[0], place.partition("/")[0]
    return here == there or not (here.startswith("~") and there.startswith("~"))
