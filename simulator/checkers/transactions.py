"""Invariant 11, the whole or nothing: what the simulated world says about every transaction.

As the checker, it reads the world, the durable records, and what agent code heard; it never asks the product.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from beforehand.errors import TransactionAborted
from beforehand.model import records as r
from beforehand.model.ids import operation_id
from beforehand.testing.loop import Actor
from simulator.agents.tools import PATIENT
from simulator.agents.transactions import CONFIRMS, HELD, UNDOES
from simulator.services.service import Effect, Request

if TYPE_CHECKING:
    from simulator.world import World

SAGA: Final = 11
ABSENT_SAFE: Final = frozenset({"seat"})
KEYED: Final = frozenset({"seat", "room"})
_OPEN: Final = frozenset({"", "unknown"})
_REFUSED: Final = frozenset({"failed", "cancelled"})


class _Part:
    """One operation inside a transaction: what it is, and from which record to which one it went."""

    __slots__ = ("attempts", "begun", "doubtful", "ended", "intent", "name", "refused", "status")

    def __init__(self, name: str, intent: r.Intent, begun: int) -> None:
        self.name = name
        self.intent = intent
        self.begun = begun
        self.ended = 0
        self.status = ""
        self.attempts = 0
        self.refused = False
        """Some attempt was refused, or a person answered about it: its key alone settles nothing."""
        self.doubtful = False
        """A person was asked about it: what began before it is compensated meanwhile."""


class _Trip:
    """One transaction."""

    __slots__ = ("again", "backward", "by", "heard", "left", "name", "parts", "phase", "still_standing", "undone")

    def __init__(self, name: str) -> None:
        self.name = name
        self.phase = "open"
        self.backward = False
        """It is called off, or is about to be."""
        self.by = ""
        """Who called it off, where a person did."""
        self.left: set[str] = set()
        """What was held until its commit, and was let go of."""
        self.heard: tuple[tuple[str, ...], tuple[str, ...]] | None = None
        """What code was told last: what was undone, and what stands; nothing where it was told nothing of that kind."""
        self.again = False
        """It was raised again after its end."""
        self.parts: dict[str, _Part] = {}
        self.undone: tuple[str, ...] = ()
        self.still_standing: tuple[str, ...] = ()


class Trips:
    """Every transaction of one simulation."""

    def __init__(self, world: World, broken: Callable[[int, str], None], effects: Mapping[str, list[Effect]]) -> None:
        self._world = world
        self._broken = broken
        self._effects = effects
        self._trips: dict[str, _Trip] = {}
        self._parts: dict[str, tuple[_Trip, _Part]] = {}
        self._records = 0
        self._commanded: set[str] = set()
        """Runs that a person has ended, or commanded otherwise."""
        self._ended_by_people: set[str] = set()

    def restored(self) -> None:
        """The records say less than they did."""
        self._trips.clear()
        self._parts.clear()

    # --- events ----------------------------------------------------------------------------------------------

    def heard(self, run: str, record: r.Record) -> None:
        """A record became durable."""
        self._records += 1
        self._tried(run, record)
        match record:
            case r.TransactionOpened() | r.TransactionCommitting() | r.TransactionAborting():
                self._turned(run, record)
            case r.TransactionCommitted() | r.TransactionParked() | r.TransactionAbortedRecord():
                self._came_to_rest(run, record)
            case r.HoldReleased(step=step):
                self._released(operation_id(run, step))
            case r.OperationPlanned(intent=intent):
                self._begun(run, record.step, intent)
            case r.OperationSettled():
                if record.status == "unknown":
                    self._left_to_a_person(run, record)
                self._settled(operation_id(run, record.step), record.status)
            case r.Resolved(word="happened" | "did_not_happen" as word):
                self._settled(operation_id(run, record.step), "succeeded" if word == "happened" else "failed")
            case _:
                return

    def _tried(self, run: str, record: r.Record) -> None:
        """Count the attempts, and note what makes them no matter of the key alone."""
        if isinstance(record, r.CommandApplied):
            if record.command != "transaction":
                self._commanded.add(run)
            if record.command in {"cancel", "take_over"} and not record.refused:
                self._ended_by_people.add(run)
            return
        if not isinstance(record, r.AttemptStarted | r.AttemptEnded | r.LateReport | r.Resolved):
            return
        if isinstance(record, r.AttemptStarted) and record.intent is not None:
            self._begun(run, record.step, record.intent)
        if (found := self._parts.get(operation_id(run, record.step))) is None:
            return
        trip, part = found
        if isinstance(record, r.AttemptStarted):
            self._sent_again(run, trip, part)
        part.attempts += isinstance(record, r.AttemptStarted)
        if isinstance(record, r.Resolved):
            part.refused = True
        elif not isinstance(record, r.AttemptStarted):
            part.refused = part.refused or record.end.kind == "rejected"

    def _sent_again(self, run: str, trip: _Trip, part: _Part) -> None:
        """A call of an aborted transaction is sent again to compensate it, and not once a person has ended the run."""
        forward = not (part.intent.compensates or part.intent.confirms or part.intent.hold)
        if not (trip.backward and part.attempts and forward) or part.refused:
            return
        if part.intent.tool not in UNDOES:
            self._broken(SAGA, f"{part.name} is sent again after {trip.name} was called off, and has no compensation")
        if run in self._ended_by_people:
            self._broken(SAGA, f"{part.name} is sent again by itself after a person has ended the run")

    def _left_to_a_person(self, run: str, record: r.OperationSettled) -> None:
        """What the key of an aborted call can tell is asked under the key, and not of a person."""
        if (found := self._parts.get(operation_id(run, record.step))) is None:
            return
        trip, part = found
        part.doubtful = True
        sure = part.intent.tool in KEYED and part.attempts < PATIENT.attempts and not part.refused
        if sure and trip.backward and run not in self._commanded and record.rule == "nothing can prove it":
            self._broken(SAGA, f"{part.name} is left to a person, and its key could tell what happened")

    def _turned(self, run: str, record: r.TransactionOpened | r.TransactionCommitting | r.TransactionAborting) -> None:
        match record:
            case r.TransactionOpened():
                name = operation_id(run, record.transaction)
                self._trips[name] = _Trip(name)
            case r.TransactionCommitting():
                self._move(run, record.transaction, "committing", {"open"})
            case r.TransactionAborting(by=by):
                allowed = {"open", "committing", *(("parked",) if by else ())}
                if not by:
                    self._turns_back(self._trips[operation_id(run, record.transaction)])
                trip = self._move(run, record.transaction, "aborting", allowed)
                trip.backward, trip.by = True, by

    def _came_to_rest(
        self, run: str, record: r.TransactionCommitted | r.TransactionParked | r.TransactionAbortedRecord
    ) -> None:
        match record:
            case r.TransactionCommitted():
                self._move(run, record.transaction, "committed", {"open", "committing", "parked"})
            case r.TransactionParked():
                trip = self._trips[operation_id(run, record.transaction)]
                trip.again = trip.again or trip.phase == "aborted"  # it turned out otherwise since
                self._move(run, record.transaction, "parked", {"committing", "aborting", "aborted", "parked"})
            case r.TransactionAbortedRecord():
                trip = self._move(run, record.transaction, "aborted", {"aborting", "parked"})
                trip.undone, trip.still_standing = record.undone, record.still_standing

    def _move(self, run: str, transaction: str, phase: str, allowed: set[str]) -> _Trip:
        trip = self._trips[operation_id(run, transaction)]
        if trip.phase not in allowed:
            self._broken(6, f"{trip.name} went from {trip.phase} to {phase}")
        trip.phase = phase
        return trip

    def _turns_back(self, trip: _Trip) -> None:
        """By itself a commit turns back only while nothing can have left, and nothing may still be confirmed."""
        for part in trip.parts.values():
            if part.name in trip.left and part.status not in _REFUSED:
                self._broken(SAGA, f"{trip.name} turned back while {part.name} was {part.status or 'on its way'}")
            if part.intent.confirms and part.status in _OPEN:
                self._broken(SAGA, f"{trip.name} turned back while {part.name} was {part.status or 'on its way'}")

    def _begun(self, run: str, step: str, intent: r.Intent) -> None:
        name = operation_id(run, step)
        trip = self.around(name)
        if trip is None or name in self._parts:
            return
        if trip.backward and not (intent.compensates or intent.confirms):
            self._broken(SAGA, f"{name} begins, and {trip.name} was called off")
        refused = [one.name for one in trip.parts.values() if one.intent.confirms and one.status in _REFUSED]
        if intent.confirms and refused:
            self._broken(SAGA, f"{name} begins, and {refused[0]} was refused")
        part = _Part(name, intent, self._records)
        self._parts[name] = (trip, part)
        trip.parts[name] = part

    def _released(self, name: str) -> None:
        trip = self._parts[name][0]
        trip.left.add(name)
        if trip.backward:
            self._broken(SAGA, f"{name} is held, and was let go of after {trip.name} was called off")

    def around(self, name: str) -> _Trip | None:
        """The transaction that an operation belongs to."""
        return next((one for title, one in self._trips.items() if name.startswith(title + "/")), None)

    def compensable(self, name: str) -> bool:
        """True if an operation has an effect and can be compensated."""
        return self._parts[name][1].intent.tool in UNDOES and bool(self._effects.get(name))

    def compensations_of(self, name: str) -> list[Effect]:
        """The effects of the compensation of an operation."""
        return self._done(self._parts[name][0], name, compensates=True)

    def _settled(self, name: str, status: str) -> None:
        found = self._parts.get(name)
        if found is not None:
            part = found[1]
            part.ended, part.status = part.ended or self._records, status

    def arrived(self, request: Request) -> None:
        """A request is at its service: look whether this is its time."""
        found = self._parts.get(request.operation)
        if found is None:
            return
        trip, part = found
        if part.intent.hold and trip.phase not in {"committing", "committed", "parked"}:
            self._broken(SAGA, f"{part.name} is held, and left while {trip.name} was {trip.phase}")
        if part.intent.compensates:
            self._compensations(trip, part)
        if part.intent.confirms and trip.phase not in {"committing", "committed", "aborting", "aborted", "parked"}:
            self._broken(SAGA, f"{part.name} confirmed before {trip.name} was committing")

    def _compensations(self, trip: _Trip, part: _Part) -> None:
        run = trip.name.partition("/")[0]
        forward = trip.parts[operation_id(run, part.intent.compensates)]
        if trip.phase not in {"aborting", "aborted", "parked"}:
            self._broken(SAGA, f"{forward.name} was compensated while {trip.name} was {trip.phase}")
        if forward.status != "succeeded" and forward.intent.tool not in ABSENT_SAFE:
            self._broken(SAGA, f"{forward.name} was compensated while it was {forward.status or 'on its way'}")
        for other in trip.parts.values():
            if other.intent.confirms == part.intent.compensates and other.status in _OPEN:
                self._broken(
                    SAGA, f"{forward.name} was compensated while {other.name} was {other.status or 'on its way'}"
                )
            later = other.begun > forward.ended > 0 and not other.intent.compensates and not other.intent.confirms
            if later and other is not forward and not other.doubtful and self._stands(trip, other):
                self._broken(SAGA, f"{forward.name} was compensated before {other.name}, which started after it")

    def _stands(self, trip: _Trip, part: _Part) -> bool:
        """True if there is an effect that has to be compensated and was not."""
        if part.intent.tool not in UNDOES or not self._effects.get(part.name):
            return False
        return not self._done(trip, part.name, compensates=True)

    def _done(self, trip: _Trip, name: str, *, compensates: bool) -> list[Effect]:
        """The effects of the compensation or the confirmation of a part."""
        step = name.partition("/")[2]
        return [
            effect
            for other in trip.parts.values()
            if (other.intent.compensates if compensates else other.intent.confirms) == step
            for effect in self._effects.get(other.name, [])
        ]

    def told(self, actor: Actor, text: str, gone: TransactionAborted | None, *, ended: str = "") -> None:
        """Agent code heard how a transaction ended: `ended` is its name, where code heard of no other end."""
        self._world.tell(actor, f"receives: {text}")
        if not actor.alive:
            return
        self._ended(text, gone, ended)
        for step in gone.undone if gone is not None else ():
            found = self._parts.get(operation_id(gone.run, step)) if gone is not None else None
            if found is None or not self._done(found[0], found[1].name, compensates=True):
                self._broken(12, f"the agent heard that {step} was undone, and it was not")

    def _ended(self, text: str, gone: TransactionAborted | None, ended: str) -> None:
        """What code heard of its end is what is on record, as far as that goes by then; and in the end is all of it."""
        trip = self._trips.get(ended or (operation_id(gone.run, gone.transaction) if gone is not None else ""))
        if trip is None:
            return
        if trip.backward if gone is None else trip.phase in {"committing", "committed"}:
            self._broken(12, f"the agent heard: {text}; and {trip.name} is {trip.phase}")
        trip.heard = (gone.undone, gone.still_standing) if gone is not None else None

    # --- at the end of time ------------------------------------------------------------------------------------

    def at_the_end(self) -> None:
        """Every transaction is whole, or undone, or waits for a person with the exact list."""
        for trip in self._trips.values():
            if (
                trip.phase == "aborted"
                and not trip.again
                and trip.heard not in {None, (trip.undone, trip.still_standing)}
            ):
                self._broken(
                    12, f"code heard of {trip.name} {trip.heard}: {trip.undone} undone, {trip.still_standing} stand"
                )
            if trip.phase == "committed":
                self._whole(trip)
            elif trip.phase == "aborted":
                self._undone(trip)
            self._world.reach.endings[f"transaction {trip.phase}"] += 1

    def _whole(self, trip: _Trip) -> None:
        for name, part in trip.parts.items():
            tool, happened = part.intent.tool, self._effects.get(name)
            if part.intent.compensates and happened:
                self._broken(SAGA, f"{trip.name} is committed, and {name} was done")
            if tool in HELD and not happened:
                self._broken(SAGA, f"{trip.name} is committed, and {name} never left")
            if tool in CONFIRMS and happened and not self._done(trip, name, compensates=False):
                self._broken(SAGA, f"{trip.name} is committed, and {name} was never confirmed")

    def _undone(self, trip: _Trip) -> None:
        for name, part in trip.parts.items():
            happened = self._effects.get(name)
            if part.intent.tool in HELD and happened:
                self._left(trip, part)
            if self._stands(trip, part):  # no reviewer here lets anything stand
                self._broken(SAGA, f"{trip.name} is called off, and {name} stands")
            compensations = self._done(trip, name, compensates=True)
            if part.intent.tool in {"gift", "guide"} and len(compensations) > 1:
                self._broken(2, f"{name} was given back {len(compensations)} times")

    def _left(self, trip: _Trip, part: _Part) -> None:
        """What was held has left, and stands: that is so only where a person called the rest off afterwards."""
        if not trip.by or part.name not in trip.left:
            self._broken(SAGA, f"{trip.name} is called off, and {part.name} left")
        if part.name.partition("/")[2] not in trip.still_standing:
            self._broken(SAGA, f"{trip.name} is called off, and no person is told that {part.name} stands")
