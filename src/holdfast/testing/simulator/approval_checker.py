"""Invariant 9, approvals: nothing that needs a yes is sent without one that is bound to exactly this, and is alive.

As the checker, it reads the world, the durable records, and what people said; it never asks the product.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.model import records as r
from holdfast.model.ids import operation_id
from holdfast.model.outcome import DECLINED, EXPIRED, Outcome
from holdfast.testing.simulator.gates import GATED, asks
from holdfast.testing.simulator.loop import Actor
from holdfast.testing.simulator.people import HARDLY_MS, Word
from holdfast.testing.simulator.services import Request

if TYPE_CHECKING:
    from holdfast.testing.simulator.world import World

LIVE: Final = 9
EARLY_MS: Final = HARDLY_MS // 2
"""An approval closes early by the error of the clocks; half of that is for what lies between a look and the record."""


class _Asked:
    """An operation that needs a yes, and what the records say about that."""

    __slots__ = ("asks", "consumed", "ended", "newer", "observed", "people", "rounds", "shown", "until", "yes")

    def __init__(self) -> None:
        self.asks = ""
        self.people = 1
        self.until = 0
        self.rounds = 0
        self.observed = b""
        """What the call was last observed to rely on."""
        self.shown = b""
        """The same, when the question was asked."""
        self.newer = False
        """Whether newer code asked."""
        self.yes: dict[str, int] = {}
        """Who said yes to this question, and until when that holds."""
        self.consumed = False
        self.ended = ""


class Approvals:
    """Everything in one simulation that needs a person's yes."""

    def __init__(self, world: World, broken: Callable[[int, str], None]) -> None:
        self._world = world
        self._broken = broken
        self._known: dict[str, _Asked] = {}
        self._things: dict[str, tuple[str, str]] = {}
        self._used: dict[str, str] = {}
        self._newer: dict[str, bool] = {}
        """Whether the owner of a run has newer code."""
        self._acknowledged: list[Word] = []

    def restored(self) -> None:
        """The records say less than they did: what people said since is forgotten, and they are asked anew."""
        self._known.clear()
        self._things.clear()
        self._used.clear()
        self._acknowledged.clear()
        self._world.people.restored()

    # --- events ----------------------------------------------------------------------------------------------

    def heard(self, run: str, record: r.Record) -> None:
        """A record became durable."""
        match record:
            case r.OperationPlanned(step=step, intent=intent) if intent.tool in GATED:
                self._planned(operation_id(run, step), intent)
            case r.OperationParked(step=step, asks=digest) if digest:
                self._asked(operation_id(run, step), record)
            case r.ApprovalGranted(step=step):
                self._granted(operation_id(run, step), record)
            case r.ApprovalRefused(step=step):
                self._refused(operation_id(run, step), record)
            case r.Reobserved(step=step, reading="changed", observed=observed):
                self._seen(operation_id(run, step), observed)
            case r.AttemptStarted(step=step, intent=intent):
                if intent is not None and intent.tool in GATED:
                    self._planned(operation_id(run, step), intent)
                self._seen(operation_id(run, step), record.observed)
                self._started(operation_id(run, step), record)
            case r.OperationSettled(step=step, code=code) if code == EXPIRED:
                self._expired(operation_id(run, step), record)
            case r.Claimed(worker=worker):
                self._newer[run] = any(
                    life.newer and worker in life.disk.workers for life in self._world.lives.values()
                )
            case _:
                return

    def _planned(self, name: str, intent: r.Intent) -> None:
        thing = msgspec.json.decode(intent.arguments, type=dict[str, Any])["thing"]
        self._things[name] = intent.tool, thing
        if asks(intent.tool, thing):
            self._known.setdefault(name, _Asked())
            self._seen(name, intent.observed)

    def _seen(self, name: str, observed: r.Raw) -> None:
        known = self._known.get(name)
        if known is not None and observed != r.NOTHING:
            known.observed = bytes(observed)

    def _asked(self, name: str, record: r.OperationParked) -> None:
        known = self._known.get(name)
        if known is None:
            self._broken(LIVE, f"a person is asked about {name}, which needs no approval")
            return
        known.asks, known.people, known.until = record.asks, record.people, record.until
        changed = bool(known.shown) and known.observed != known.shown
        known.shown, known.newer, known.yes, known.consumed = known.observed, self._newer[_run(name)], {}, False
        known.rounds += 1
        again = "asked about what has changed" if changed else "asked again"
        self._reached("asked" if known.rounds == 1 else again)
        self._world.people.asked(name, *self._things[name], record)

    def _granted(self, name: str, record: r.ApprovalGranted) -> None:
        known = self._known.get(name)
        if known is None or record.approval != known.asks:
            self._broken(LIVE, f"{record.by} is on record with a yes to {name} that was not asked for")
            return
        said = [
            one.said_ms for one in self._world.people.said if one.yes and (one.operation, one.by) == (name, record.by)
        ]
        if not said:
            self._broken(LIVE, f"{record.by} is on record with a yes to {name}, and never said so")
        elif known.until and min(said) >= known.until:
            self._broken(LIVE, f"{record.by} is on record with a yes to {name}, and said so after the time for it")
        if known.ended:
            self._broken(LIVE, f"{name} was approved after it was {known.ended}")
        if record.by in known.yes:
            self._broken(LIVE, f"{record.by} is counted twice for {name}")
        known.yes[record.by] = record.until
        self._reached("approved" if len(known.yes) == known.people else "half approved")

    def _refused(self, name: str, record: r.ApprovalRefused) -> None:
        known = self._known[name]
        if not any(not one.yes and one.by == record.by and one.operation == name for one in self._world.people.said):
            self._broken(LIVE, f"{record.by} is on record with a no to {name}, and never said so")
        if known.consumed:
            self._broken(LIVE, f"{name} was declined after it was sent with a yes")
        known.ended = "declined"
        self._reached("declined")

    def _expired(self, name: str, record: r.OperationSettled) -> None:
        known = self._known[name]
        if not known.until or record.at < known.until:
            self._broken(LIVE, f"{name} is called expired, and people have time until {known.until}")
        known.ended = "expired"
        self._reached("expired")

    def _started(self, name: str, record: r.AttemptStarted) -> None:
        """An attempt is on record: from here on it may be sent, so a yes has to stand that is about exactly this."""
        known = self._known.get(name)
        if known is None:
            return
        if (why := self._lacks(name, known, record)) != "":
            self._broken(LIVE, f"{name} attempt {record.number} begins {why}")
        if not known.consumed:
            known.consumed = True
            self._used[known.asks] = name
        known.shown = known.observed

    def _lacks(self, name: str, known: _Asked, record: r.AttemptStarted) -> str:
        if known.ended:
            return f"after it was {known.ended}"
        if not known.asks:
            return "and nobody was asked"
        if len(known.yes) < known.people:
            return f"with a yes of {', '.join(known.yes) or 'nobody'}, and {known.people} are needed"
        if record.approval != known.asks:
            return "under another approval than was given"
        if self._used.get(known.asks, name) != name:
            return f"with the approval of {self._used[known.asks]}"
        if known.shown and known.observed != known.shown:
            return f"with an approval of what was {known.shown.decode()} and is {known.observed.decode()}"
        if known.consumed:
            return ""
        if self._things[name][0] == "adjust" and known.newer is not self._newer[_run(name)]:
            return "with an approval of other code"
        ends = min((until for until in known.yes.values() if until), default=0)
        return "after its approval ended" if ends and record.at >= ends - EARLY_MS else ""

    def arrived(self, request: Request) -> None:
        """A request is at its service."""
        if not asks(request.service, request.thing):
            return
        known = self._known.get(request.operation)
        if known is None or not known.consumed:
            self._broken(LIVE, f"{request.operation} was sent, and no approval went into the record of an attempt")
        elif known.ended:
            self._broken(LIVE, f"{request.operation} was sent after it was {known.ended}")

    def acknowledged(self, actor: Actor, word: Word) -> None:
        """A person heard that the word was taken down, or why it was not."""
        what = "yes" if word.yes else "no"
        self._world.tell(actor, f"{'refuses' if word.refused else 'takes down'} the {what} of {word.by}")
        self._reached("a word refused" if word.refused else "a word taken down")
        if not word.refused:
            self._acknowledged.append(word)

    def told(self, outcome: Outcome[Any]) -> None:
        """Agent code heard an outcome: that people said no, or nothing, has to be true."""
        if outcome.tool not in GATED or outcome.code not in {DECLINED, EXPIRED}:
            return
        known = self._known.get(outcome.operation)
        if known is None or known.ended != outcome.code:
            self._broken(12, f"the agent heard that {outcome.operation} was {outcome.code}, which is not on record")

    # --- at the end of time ----------------------------------------------------------------------------------

    async def at_the_end(self) -> None:
        """Every no that was taken down has ended what it was about, unless others had decided that before."""
        rows = await self._world.journal.runs(limit=10_000)
        set_aside = {row.run for row in rows if row.reason.startswith("quarantined")}
        for word in self._acknowledged:
            known = self._known.get(word.operation)
            if word.yes or known is None or _run(word.operation) in set_aside:
                continue
            if not known.ended and len(known.yes) < known.people:
                self._broken(LIVE, f"the no of {word.by} to {word.operation} was taken down, and decided nothing")

    def _reached(self, what: str) -> None:
        self._world.reach.endings[f"approval: {what}"] += 1


def _run(name: str) -> str:
    return name.partition("/")[0]
