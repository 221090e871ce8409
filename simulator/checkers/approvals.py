"""Invariant 9, approvals: nothing that needs a yes is sent without one that is bound to exactly this, and is alive.

As the checker, it reads the world, the durable records, and what people said; it never asks the product.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from beforehand.model import records as r
from beforehand.model.commands import Verdict
from beforehand.model.ids import operation_id
from beforehand.model.outcome import DECLINED, EXPIRED, Outcome
from simulator.agents.people import GATED, asks
from simulator.people.approvers import HARDLY_MS, Word
from simulator.services.service import Request

if TYPE_CHECKING:
    from simulator.world import World

LIVE: Final = 9
STOOD_IN: Final = "answered by a person"
EARLY_MS: Final = HARDLY_MS // 2
"""An approval closes early by the error of the clocks; half of that is for what lies between a look and the record."""


class _Asked:
    """An operation that needs a yes, and what the records say about that."""

    __slots__ = (
        "allowed",
        "asks",
        "consumed",
        "editors",
        "ended",
        "given",
        "held",
        "least",
        "newer",
        "observed",
        "people",
        "rounds",
        "shown",
        "until",
        "yes",
    )  # fmt: skip

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
        self.allowed = ""
        """The standing permission that the first attempt used, where no person was asked."""
        self.editors: list[str] = []
        """Who changed the arguments: none of them may approve them."""
        self.least = 1
        """How many a policy wants to be asked."""
        self.held = False
        """The question stays open although its time is over."""
        self.ended = ""
        self.given: object = None
        """What a person answered in the place of the tool."""


class Approvals:
    """Everything in one simulation that needs a person's yes."""

    def __init__(self, world: World, broken: Callable[[int, str], None]) -> None:
        self._world = world
        self._broken = broken
        self._known: dict[str, _Asked] = {}
        self._calls: dict[str, tuple[str, Mapping[str, str]]] = {}
        """The tool and the arguments of each operation of such a tool."""
        self._used: dict[str, str] = {}
        self._newer: dict[str, bool] = {}
        """Whether the owner of a run has newer code."""
        self._acknowledged: list[Word] = []
        self._said_no: dict[str, str] = {}
        """What agent code was told of a no, or of a time that passed: it rides, and is on record in the end."""

    def restored(self) -> None:
        """The records say less than they did: what people said since is forgotten, and they are asked anew."""
        self._known.clear()
        self._calls.clear()
        self._used.clear()
        self._acknowledged.clear()
        self._said_no.clear()
        self._world.people.restored()

    # --- events ----------------------------------------------------------------------------------------------

    def heard(self, run: str, record: r.Record) -> None:
        """A record became durable."""
        match record:
            case r.OperationPlanned(step=step, intent=intent):
                self._planned(operation_id(run, step), intent)
            case r.Ruled(step=step):
                self._ruled(operation_id(run, step), record)
            case r.OperationParked(step=step, asks=digest) if digest:
                self._asked(operation_id(run, step), record)
            case r.ApprovalGranted() | r.ApprovalRefused() | r.ArgumentsEdited() | r.ResultGiven() | r.Resolved():
                self._word(operation_id(run, record.step), record)
            case r.Reobserved(step=step, observed=observed):
                self._seen(operation_id(run, step), observed)
            case r.AttemptStarted(step=step, intent=intent):
                if intent is not None:
                    self._planned(operation_id(run, step), intent)
                self._seen(operation_id(run, step), record.observed)
                self._started(operation_id(run, step), record)
            case r.OperationSettled(step=step):
                self._settled(operation_id(run, step), record)
            case r.Claimed(worker=worker):
                self._newer[run] = any(
                    life.newer and worker in life.disk.workers for life in self._world.lives.values()
                )
            case _:
                return

    def _word(self, name: str, record: Verdict | r.Resolved) -> None:
        """A person's word is on record."""
        match record:
            case r.Resolved():
                self._ordered(name, record)
            case r.ApprovalGranted():
                self._granted(name, record)
            case r.ApprovalRefused():
                self._refused(name, record)
            case r.ArgumentsEdited():
                self._edited(name, record)
            case r.ResultGiven():
                self._stood_in(name, record)

    def _planned(self, name: str, intent: r.Intent) -> None:
        if intent.tool not in (*GATED, "vouch") and not self._world.plan.policy:
            return
        arguments = arguments_in(intent)
        self._calls[name] = intent.tool, arguments
        if asks(intent.tool, arguments):
            self._known.setdefault(name, _Asked())
            self._seen(name, intent.observed)

    def _ruled(self, name: str, record: r.Ruled) -> None:
        """A policy has judged it: what it asks about needs a yes, whatever the tool itself says."""
        if record.ruling.asks:
            known = self._known.setdefault(name, _Asked())
            known.least = max(known.least, record.ruling.people)
        elif name in self._known and not asks(*self._calls[name]) and not self._known[name].editors:
            del self._known[name]

    def _seen(self, name: str, observed: r.Raw) -> None:
        known = self._known.get(name)
        if known is not None and observed != r.NOTHING:
            known.observed = bytes(observed)

    def _asked(self, name: str, record: r.OperationParked) -> None:
        known = self._known.get(name)
        if known is None:
            self._broken(LIVE, f"a person is asked about {name}, which needs no approval")
            return
        if record.people < known.least:
            self._broken(LIVE, f"{record.people} are asked about {name}, and {known.least} have to be")
        known.asks, known.people, known.until = record.asks, record.people, record.until
        known.held = record.on_expiry == "hold"
        changed = bool(known.shown) and known.observed != known.shown
        known.shown, known.newer, known.yes, known.consumed = known.observed, self._newer[_run(name)], {}, False
        known.allowed = ""
        known.rounds += 1
        again = "asked about an edit" if known.editors else "asked about what has changed" if changed else "asked again"
        self._reached("asked" if known.rounds == 1 else again)
        if known.editors:
            self._world.people.asked_again(name, self._calls[name][1], record, known.editors)
        else:
            self._world.people.asked(name, *self._calls[name], record)

    def _granted(self, name: str, record: r.ApprovalGranted) -> None:
        known = self._known.get(name)
        if known is None or record.approval != known.asks:
            self._broken(LIVE, f"{record.by} is on record with a yes to {name} that was not asked for")
            return
        _, arguments = self._calls[name]
        said = [one for one in self._said(name, record.by) if one.says == "yes" and one.stands_for(arguments)]
        # A clock that was set back meanwhile has a word come earlier than it was said.
        late = said and all(min(one.said_ms, record.at) >= known.until for one in said)
        if not said:
            self._broken(LIVE, f"{record.by} is on record with a yes to {name} with {arguments}, and never said so")
        elif known.until and late and not known.held:
            self._broken(LIVE, f"{record.by} is on record with a yes to {name}, and said so after the time for it")
        if known.ended:
            self._broken(LIVE, f"{name} was approved after it was {known.ended}")
        if record.by in known.editors:
            self._broken(LIVE, f"{record.by} approves {name}, and edited it")
        if record.by in known.yes:
            self._broken(LIVE, f"{record.by} is counted twice for {name}")
        known.yes[record.by] = record.until
        self._reached("approved" if len(known.yes) == known.people else "half approved")

    def _refused(self, name: str, record: r.ApprovalRefused) -> None:
        known = self._known[name]
        if not any(one.says == "no" for one in self._said(name, record.by)):
            self._broken(LIVE, f"{record.by} is on record with a no to {name}, and never said so")
        if known.consumed:
            self._broken(LIVE, f"{name} was declined after it was sent with a yes")
        known.ended = "declined"
        self._reached("declined")

    def _ordered(self, name: str, record: r.Resolved) -> None:
        """A person has it sent again: the yes before was for what has been sent, and a no before was not to this."""
        known = self._known.get(name)
        if not record.orders or known is None or not (known.consumed or known.ended):
            return
        known.asks, known.allowed, known.ended, known.yes, known.consumed = "", "", "", {}, False
        self._reached("to be asked again, as a person orders it")

    def _edited(self, name: str, record: r.ArgumentsEdited) -> None:
        """Other arguments stand on record: those of the person who is named, and no other person's approval is left."""
        known, changes = self._known[name], msgspec.json.decode(record.changes)
        said = [one for one in self._said(name, record.by) if one.says == "edit" and one.changes == changes]
        if not said or record.approval != known.asks:
            self._broken(LIVE, f"{record.by} is on record with changes to {name}, and never said so")
        if known.ended or known.consumed:
            self._broken(LIVE, f"{name} was changed after it was {known.ended or 'sent'}")
        assert record.intent is not None, record
        arguments = arguments_in(record.intent)
        self._calls[name] = record.intent.tool, arguments
        if not any(one.stands_for(arguments) for one in said):
            self._broken(LIVE, f"{name} would be sent with {arguments}, which is not what {record.by} wrote")
        known.asks, known.yes, known.least = "", {}, 1  # the policy judges the new arguments
        known.editors.append(record.by)
        self._reached("edited")

    def _stood_in(self, name: str, record: r.ResultGiven) -> None:
        known, result = self._known[name], msgspec.json.decode(record.result)
        if not any(one.says == "stand_in" and one.result == result for one in self._said(name, record.by)):
            self._broken(LIVE, f"{record.by} is on record with an answer to {name}, and never gave it")
        if known.consumed or known.ended:
            self._broken(LIVE, f"{name} was answered by a person after it was {known.ended or 'sent'}")
        if record.by in known.editors:
            self._broken(LIVE, f"{record.by} answers in the place of {name}, and edited it")
        known.ended, known.given = STOOD_IN, result
        self._reached(STOOD_IN)

    def _said(self, name: str, by: str) -> list[Word]:
        """What that person said about an operation."""
        return [one for one in self._world.people.said if (one.operation, one.by) == (name, by)]

    def _settled(self, name: str, record: r.OperationSettled) -> None:
        """It is over, with a yes or without one."""
        known = self._known.get(name)
        if known is None or known.consumed:
            return
        if record.code == EXPIRED:
            if not known.until or record.at < known.until or known.held:
                self._broken(LIVE, f"{name} is called expired, and people have time until {known.until}")
            self._reached("expired")
        known.ended = record.code or record.status

    def _started(self, name: str, record: r.AttemptStarted) -> None:
        """An attempt is on record: from here on it may be sent, so a yes has to stand that is about exactly this."""
        known = self._known.get(name)
        if known is None:
            return
        if record.standing:
            self._allowed(name, known, record)
        elif (why := self._lacks(name, known, record)) != "":
            self._broken(LIVE, f"{name} attempt {record.number} begins {why}")
        if not known.consumed:
            known.consumed = True
            self._used[known.asks] = name
        known.shown = known.observed

    def _allowed(self, name: str, known: _Asked, record: r.AttemptStarted) -> None:
        """It was permitted in advance; `Permits` checks that the permission covers it."""
        if known.people > 1 or self._calls[name][0] == "wire" or known.ended:
            self._broken(LIVE, f"{name} leaves on the permission {record.standing}, and two people have to say yes")
        known.asks, known.allowed, known.yes = record.approval, record.standing, {}
        self._reached("allowed in advance")

    def _lacks(self, name: str, known: _Asked, record: r.AttemptStarted) -> str:
        if known.ended:
            return f"after it was {known.ended}"
        if not known.asks:
            return "and no person was asked"
        if len(known.yes) < known.people and not known.allowed:
            return f"with a yes of {', '.join(known.yes) or 'no person'}, and {known.people} are needed"
        if record.approval != known.asks:
            return "under another approval than was given"
        if self._used.get(known.asks, name) != name:
            return f"with the approval of {self._used[known.asks]}"
        if known.shown and known.observed != known.shown:
            return f"with an approval of what was {known.shown.decode()} and is {known.observed.decode()}"
        if known.consumed:
            return ""
        # What was begun is not judged by another policy: a new yes to send it again stands under the first ruling.
        bound = self._calls[name][0] == "adjust" or (self._world.plan.policy and record.number == 1)
        if bound and known.newer is not self._newer[_run(name)]:
            return "with an approval of other code"
        ends = min((until for until in known.yes.values() if until), default=0)
        return "after its approval ended" if ends and record.at >= ends - EARLY_MS else ""

    def arrived(self, request: Request) -> None:
        """A request is at its service."""
        known = self._known.get(request.operation)
        if known is None and not asks(request.service, request.arguments):
            return
        if known is None or not known.consumed:
            self._broken(LIVE, f"{request.operation} was sent, and no approval went into the record of an attempt")
        elif known.ended:
            self._broken(LIVE, f"{request.operation} was sent after it was {known.ended}")

    def acknowledged(self, word: Word, *, refused: bool) -> None:
        """A person heard that the word was taken down, or why it was not."""
        self._reached("a word refused" if refused else "a word taken down")
        if not refused:
            self._acknowledged.append(word)

    def told(self, outcome: Outcome[Any]) -> None:
        """Agent code heard an outcome: that people said no, or nothing, or answered themselves, has to be true."""
        known = self._known.get(outcome.operation)
        if known is not None and known.ended == STOOD_IN and outcome.value != known.given:
            self._broken(
                12, f"the agent heard {outcome.value!r} from {outcome.operation}, and was told {known.given!r}"
            )
        if outcome.code in {DECLINED, EXPIRED}:
            self._said_no[outcome.operation] = outcome.code

    # --- at the end of time ----------------------------------------------------------------------------------

    async def at_the_end(self) -> None:
        """Every no that was taken down has ended what it was about, unless others had decided that before."""
        rows = await self._world.journal.runs(limit=10_000)
        for name, code in self._said_no.items():
            if (known := self._known.get(name)) is None or known.ended != code:
                self._broken(12, f"the agent heard that {name} was {code}, which is not on record")
        set_aside = {row.run for row in rows if row.reason.startswith("quarantined")}
        for word in self._acknowledged:
            known = self._known.get(word.operation)
            if word.says != "no" or known is None or _run(word.operation) in set_aside:
                continue
            if not known.ended and len(known.yes) < known.people:
                self._broken(LIVE, f"the no of {word.by} to {word.operation} was taken down, and decided nothing")

    def _reached(self, what: str) -> None:
        self._world.reach.endings[f"approval: {what}"] += 1


def arguments_in(intent: r.Intent) -> dict[str, str]:
    """The arguments on record, as they look on the way to a service."""
    arguments = msgspec.json.decode(intent.arguments, type=dict[str, Any])
    return {name: str(value) for name, value in arguments.items() if isinstance(value, str | int)}


def _run(name: str) -> str:
    return name.partition("/")[0]
