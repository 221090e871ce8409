"""Invariant 16, each answer counts once: what offices have announced against what became of the operations.

As the checker, it reads the world, the durable records, and what agent code heard; it never asks the product.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from beforehand.model import records as r
from beforehand.model.contradiction import contradiction_stream
from beforehand.model.ids import operation_id
from beforehand.model.outcome import PENDING, Outcome, PendingEffect
from beforehand.testing.clock import EPOCH_MS
from beforehand.testing.loop import Actor
from simulator.agents.deferred import ASYNCHRONOUS
from simulator.services.deferred import ANSWERED, Application, Message
from simulator.services.service import Effect

if TYPE_CHECKING:
    from simulator.world import World

ONCE: Final = 16


class _Awaiting:
    """An operation whose answer comes later, and what the records say about it."""

    __slots__ = (
        "accepted", "ended_ms", "evidence", "forgotten", "key", "over", "pending", "person", "status", "tool", "until",
    )  # fmt: skip

    def __init__(self, tool: str) -> None:
        self.tool = tool
        self.accepted = False
        self.key = ""
        self.until = 0
        """The wall clock until which its answer is awaited."""
        self.person = False
        self.pending = False
        """Accepted, and not answered since."""
        self.status = ""
        self.evidence = ""
        self.forgotten = False
        """A person is asked since the journal was restored: an attempt that is not on record may have landed."""
        self.over: set[str] = set()
        """Those about the same thing whose time was over when an attempt of this one began: clocks are set back."""
        self.ended_ms = -1
        """When its outcome became durable; negative while it has none."""


class Answers:
    """Every deferred outcome of one simulation."""

    def __init__(self, world: World, broken: Callable[[int, str], None], effects: Mapping[str, list[Effect]]) -> None:
        self._world = world
        self._broken = broken
        self._effects = effects
        self._known: dict[str, _Awaiting] = {}
        self._orders: Counter[str] = Counter()
        self._about: dict[str, tuple[str, bytes]] = {}
        self._met: dict[str, PendingEffect] = {}
        self._called: dict[tuple[str, str], int] = {}
        self._owners: dict[str, str] = {}

    def awaited(self, run: str) -> bool:
        """Whether an operation of this run has a deadline still to come."""
        return any(one.pending and name.startswith(f"{run}/") for name, one in self._known.items())

    def taken_back(self, name: str) -> bool:
        """True if its office took its success back, and the journal lost the success: the refusal is all it knows."""
        done = [
            one
            for office in self._world.offices.values()
            for one in office.applications
            if one.request.operation == name and one.status == "succeeded"
        ]
        lost = {id(one.application) for office in self._world.offices.values() for one in office.messages if one.lost}
        return bool(done) and all(
            id(one) in lost and one.recalled is not None and one.recalled.heard and not one.recalled.lost
            for one in done
        )

    def waits_under(self, key: str) -> bool:
        """Whether an operation is on record as waiting for the answer under this key."""
        return any(known.key == key for known in self._known.values())

    def restored(self) -> None:
        """The records say less than they did, and what was acknowledged is lost with them: its senders are content."""
        self._known.clear()
        self._orders.clear()
        self._about.clear()
        self._met.clear()
        self._called.clear()
        self._owners.clear()
        for office in self._world.offices.values():
            for message in office.messages:
                message.lost = message.heard

    # --- events ----------------------------------------------------------------------------------------------

    def heard(self, run: str, record: r.Record) -> None:
        """A record became durable."""
        match record:
            case r.Claimed(worker=worker):
                self._owners[run] = worker
            case r.CommandApplied(command="late", refused="", note=note) if " under " in note:
                self._orders[f"{run}: {note}"] += 1
                if self._orders[f"{run}: {note}"] > 1:
                    self._broken(ONCE, f"run {run} took the message {note} twice")
            case _ if step := getattr(record, "step", ""):
                self._of_operation(operation_id(run, step), record)
            case _:
                return

    def _of_operation(self, name: str, record: r.Record) -> None:
        match record:
            case r.OperationPlanned(intent=intent) if intent.tool in ASYNCHRONOUS:
                self._planned(name, intent)
            case r.AttemptStarted(intent=intent):
                self._started(name, intent)
            case r.OperationDeferred():
                self._deferred(name, record)
            case r.LateReport(end=end):
                self._reported(name, end)
            case r.Verified(verdict="did_not_happen", believable=True) if name in self._known:
                self._known[name].pending = False
            case r.OperationSettled(status=status, reason=reason, met=met):
                self._note_pending(name, met)
                self._settled(name, status, reason)
                if status != "unknown":
                    self._ended(name)
            case r.OperationParked() | r.Resolved():
                self._by_people(name, record)
            case _:
                return

    def _by_people(self, name: str, record: r.OperationParked | r.Resolved) -> None:
        """It cannot be proven, so a person is asked, or has answered."""
        match record:
            case r.Resolved(word="happened" | "did_not_happen" as word, evidence=why):
                self._settled(name, "succeeded" if word == "happened" else "failed", why)
                self._ended(name)
                if name in self._known:
                    self._known[name].person = True
            case r.OperationParked(why=why, forgotten=forgotten):
                self._settled(name, "unknown", why)
                if name in self._known:
                    self._known[name].forgotten = forgotten
            case _:
                return

    def _planned(self, name: str, intent: r.Intent) -> None:
        self._known.setdefault(name, _Awaiting(intent.tool))
        self._about.setdefault(name, (intent.tool, bytes(intent.arguments)))

    def _note_pending(self, name: str, met: PendingEffect | None) -> None:
        """A call was not sent since something is pending: that is so, and about the same thing."""
        if met is None:
            return
        self._met[name] = met
        source, run = self._known.get(met.source), name.partition("/")[0]
        called = self._called.get((run, self._owners.get(run, "")), 0)
        if source is None or not source.accepted:
            self._broken(12, f"{name} is held back by {met.source}, and no person has accepted that")
        elif self._about.get(name) != self._about[met.source]:
            self._broken(12, f"{name} is held back by {met.source}, which is about something else")
        elif 0 <= source.ended_ms < called:
            self._broken(12, f"{name} is held back by {met.source}, which had ended before it was called")

    def _started(self, name: str, intent: r.Intent | None) -> None:
        if intent is not None and intent.tool in ASYNCHRONOUS:
            self._planned(name, intent)
        known = self._known.get(name)
        if known is None:
            return
        if known.pending:
            self._broken(5, f"{name} was accepted, and was sent again before anybody had answered")
        wall = EPOCH_MS + self._world.now_ms() + self._world.skew_ms
        pending = [other for other, one in self._known.items() if one.pending and other != name]
        same = [other for other in pending if self._about[other] == self._about[name]]
        known.over.update(other for other in same if self._known[other].until <= wall)
        again = [other for other in same if other not in known.over]
        if again:
            self._broken(2, f"{name} was sent while {again[0]} is pending, which is about the same thing")

    def _deferred(self, name: str, record: r.OperationDeferred) -> None:
        known = self._known[name]
        known.accepted, known.pending, known.key, known.ended_ms = True, True, record.key, -1
        known.until = record.until
        strangers = [one.request.operation for one in self._of(record.key) if one.request.operation != name]
        if strangers:
            self._broken(ONCE, f"{name} waits under {record.key}, and that is the number of {strangers[0]}")

    def _reported(self, name: str, end: r.End) -> None:
        """News of an attempt: it has to be what the office did for this very operation."""
        known = self._known.get(name)
        if known is None or end.why != ANSWERED:
            return
        known.pending = False
        applications = self._applications(known.tool, name)
        if end.kind == "rejected" and not any(one.status == "failed" or one.recalled for one in applications):
            self._broken(ONCE, f"{name} was notified of a refusal, and the office has not refused it")
        if end.kind == "returned":
            said = msgspec.json.decode(end.result)
            if said not in {one.value for one in applications if one.status == "succeeded"}:
                self._broken(ONCE, f"{name} was told {said!r}, and that is not what was done for it")

    def _settled(self, name: str, status: str, reason: str) -> None:
        known = self._known.get(name)
        if known is not None:
            known.pending, known.status, known.evidence = False, status, reason

    def _ended(self, name: str) -> None:
        if name in self._known:
            self._known[name].ended_ms = self._world.now_ms()

    def happened(self, effect: Effect) -> None:
        """An office did something: for what a model asks for again and again, once at most."""
        if effect.service == "permit":
            others = [one for one in self._world.services["permit"].effects if one.thing == effect.thing]
            if len(others) > 1:
                self._broken(2, f"{effect.thing} was permitted {len(others)} times: {[o.operation for o in others]}")

    def comes(self, message: Message) -> None:
        """A message is at a process: note what is on record by then."""
        known = self._known.get(message.application.request.operation)
        if message.found is None:
            message.found = known.status if known is not None else ""

    def acknowledged(self, actor: Actor, message: Message) -> None:
        """A process acknowledged this message, so its sender need not send it again."""
        self._world.tell(actor, f"{'refuses' if message.refused else 'acknowledges'} the webhook {message.id}")
        if message.value == "forged" and not message.refused:
            self._broken(ONCE, f"other words under the id {message.id} were taken")

    def calls(self, run: str, workers: list[str]) -> None:
        """The model of a run, driven by one of these workers, is about to call something that is answered later."""
        for worker in workers:
            self._called[run, worker] = self._world.now_ms()

    def told_pending(self, outcome: Outcome[Any]) -> None:
        """A model heard that something was accepted and is not finished: its call, or one that holds it back."""
        if outcome.code == PENDING:
            met = self._met.get(outcome.operation)
            if met is None or met.source != outcome.reused:
                self._broken(12, f"a model heard that {outcome.reused} is pending, and that is not on record")
            return
        if outcome.operation not in self._known or not self._known[outcome.operation].accepted:
            self._broken(12, f"a model heard that {outcome.operation} was accepted, and that is not on record")

    # --- at the end of time ----------------------------------------------------------------------------------

    async def at_the_end(self) -> None:
        """Every answer that was acknowledged counts, and what has no answer is proven or asked about."""
        rows = await self._world.journal.runs(limit=10_000)
        waits = {row.run: row.waits for row in rows if row.status != "stopped"}  # that one asks for no operation
        set_aside = {row.run for row in rows if row.reason.startswith("quarantined")}
        for office in self._world.offices.values():
            for message in office.messages:
                run = message.application.request.operation.partition("/")[0]
                if run in set_aside:  # what came is on record, and counts once a person lets the run go on
                    continue
                if message.heard and not (message.refused or message.lost) and message.status != "pending":
                    self._counted(message)
            for application in office.applications:
                await self._contradicted(application, set_aside)
        for name, known in self._known.items():
            run = name.partition("/")[0]
            if known.pending:
                self._broken(19, f"{name} is awaited for ever")
            asked = name.encode() in waits.get(run, name.encode())
            if known.status == "unknown" and not (known.evidence and asked):
                self._broken(19, f"a person is to look at {name}, and is not told why")
            if known.accepted:
                self._world.reach.endings[f"answer to {known.tool} {known.status}"] += 1

    async def _contradicted(self, application: Application, set_aside: set[str]) -> None:
        """A recorded success that was taken back: it stands as recorded, and a person is asked about both."""
        name, recall = application.request.operation, application.recalled
        known, (run, _, step) = self._known.get(name), name.partition("/")
        if recall is None or known is None or not recall.heard or recall.lost or run in set_aside:
            return
        if known.status == "succeeded" and known.key == recall.key and not known.person:
            self._world.reach.endings["answer contradicted"] += 1
            if not await self._world.journal.entries(contradiction_stream(run, step)):
                self._broken(ONCE, f"{recall.id} took {name} back, it is recorded as succeeded, and no person is asked")

    def _counted(self, message: Message) -> None:
        """The operation that waits under the key of this message has ended as the message says.

        After a restore a refusal speaks for its own attempt only: a person is asked whether a forgotten one has landed.
        """
        name = message.application.request.operation
        known = self._known.get(name)
        if known is not None and known.forgotten and (known.status, message.status) == ("unknown", "failed"):
            return
        if known is not None and known.key == message.key and known.status != message.status:
            better = known.status == "succeeded" and self._effects.get(name)  # another attempt has landed
            if not better:
                self._broken(ONCE, f"{message.id} said that {name} {message.status}, and it is {known.status}")

    def _of(self, key: str) -> list[Application]:
        offices = self._world.offices.values()
        return [one for office in offices for one in office.applications if one.key == key and one.announced]

    def _applications(self, tool: str, name: str) -> list[Application]:
        return [one for one in self._world.offices[tool].applications if one.request.operation == name]
