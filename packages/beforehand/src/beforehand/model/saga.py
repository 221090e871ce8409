"""The next step of closing a transaction: one pure decision over all of its operations.

On the way back everything ambiguous is settled first; then what landed is compensated, in reverse order of
start, side by side where nothing started after something else had ended. What stays unknown holds up nothing: a person
is asked about it once all others are compensated. On the way forward reservations are
confirmed, what held effects rely on is read again, and then they are sent: the one that cannot be repeated (the
pivot) first. Until one of them was sent, a refusal turns the transaction back; afterwards it only goes forward.

`_back` alone decides that a compensation may be sent. For an effect whose outcome is `unknown` a person is asked first
(`_is_asked_about`), unless its tool declares that undoing an absent effect is harmless (`absent_safe`).
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Sequence
from typing import Final, TypeAlias

import msgspec

from beforehand.model.contract import Contract
from beforehand.model.decision.situation import Reading
from beforehand.model.operation import OperationState
from beforehand.model.transaction import TransactionState

UNDO: Final = "undo"
CONFIRM: Final = "confirm"
_OVER: Final = frozenset({"succeeded", "failed", "cancelled", "unknown"})
_STUCK: Final = frozenset({"unknown", "gated", "failed", "cancelled"})
_MISSED: Final = frozenset({"failed", "cancelled"})


class Member(msgspec.Struct, frozen=True):
    """One operation of the boundary.

    `begun` and `ended` are places in the run's record (`ended` is 0 while it goes on). `compensation` and
    `confirmation` are the newest operations that compensate and confirm it; `compensable` and `confirmable` say whether
    the code for that is here. `reading` is what reading its preconditions gave at this commit, and `lapsed` that the
    reservation's own time is over. `parts` are the parts of its effect whose end came, or comes, later. A `stray`
    belongs to an inner part that was called off, and landed later.
    """

    operation: OperationState
    contract: Contract
    begun: int = 0
    ended: int = 0
    compensation: OperationState | None = None
    confirmation: OperationState | None = None
    compensable: bool = True
    confirmable: bool = True
    reading: Reading = "unread"
    lapsed: bool = False
    parts: tuple[OperationState, ...] = ()
    stray: bool = False

    @property
    def step(self) -> str:
        """Its name."""
        return self.operation.step

    @property
    def held(self) -> bool:
        """True if it waits for the commit, or did."""
        return bool(self.operation.intent.hold)

    @property
    def leaving(self) -> bool:
        """True if its commit released it, and its end is not on record."""
        return self.operation.released and not self.operation.settled

    @property
    def landed(self) -> bool:
        """True if it has an effect of its own."""
        return self.operation.landed

    @property
    def reserved(self) -> bool:
        """True if its own call succeeded, so that there is something to confirm."""
        return self.operation.phase == "succeeded" and not self.operation.settlement.stood_in

    @property
    def missed(self) -> bool:
        """True if it ended without any effect."""
        return self.operation.phase in _MISSED and not self.operation.links.reused

    @property
    def on_its_way(self) -> bool:
        """True if it, a part of it or its confirmation has no outcome yet; `unknown` is one."""
        confirmation = () if self.confirmation is None else (self.confirmation,)
        return any(one.phase not in _OVER for one in (self.operation, *self.parts, *confirmation))

    @property
    def doubtful(self) -> OperationState | None:
        """The first `unknown` one of itself and its parts; None where there is none."""
        return next((one for one in (self.operation, *self.parts) if one.phase == "unknown"), None)

    @property
    def half_confirmed(self) -> bool:
        """True if it is unknown whether its reservation was confirmed, and so what there is to release."""
        return self.confirmation is not None and self.confirmation.phase == "unknown"

    @property
    def undone(self) -> bool:
        """True if its compensation succeeded, and later evidence has not overtaken that."""
        return self.compensation is not None and self.compensation.phase == "succeeded" and not self.overtaken

    @property
    def doubted(self) -> bool:
        """True if it was learned since that its compensation did not happen, and no person said that it did."""
        return self.compensation is not None and bool(self.compensation.links.doubt)

    @property
    def being_compensated(self) -> bool:
        """True if its compensation is under way, and no person is asked about it."""
        return self.compensation is not None and self.compensation.phase not in _OVER | {"gated"}

    @property
    def overtaken(self) -> bool:
        """True if it turned out otherwise after its compensation had begun."""
        return self.compensation is not None and self.operation.links.overtaken == self.compensation.step


class AwaitOperations(msgspec.Struct, frozen=True):
    """Wait: some operation is still on its way."""


class StartCompensations(msgspec.Struct, frozen=True):
    """Compensate these, side by side."""

    steps: tuple[str, ...]


class ConfirmReservations(msgspec.Struct, frozen=True):
    """Confirm these reservations, side by side."""

    steps: tuple[str, ...]


class Reread(msgspec.Struct, frozen=True):
    """Read again what these held effects rely on."""

    steps: tuple[str, ...]


class Release(msgspec.Struct, frozen=True):
    """Send this held effect."""

    step: str


class TurnBack(msgspec.Struct, frozen=True):
    """It cannot commit, and nothing irreversible was sent: call it off."""

    reason: str


class ParkTransaction(msgspec.Struct, frozen=True):
    """Only a person gets further."""

    why: str
    stuck: tuple[str, ...]


class Finish(msgspec.Struct, frozen=True):
    """It is over."""

    undone: tuple[str, ...] = ()
    still_standing: tuple[str, ...] = ()


Closing: TypeAlias = (
    AwaitOperations | StartCompensations | ConfirmReservations | Reread | Release | TurnBack | ParkTransaction | Finish
)


def close(boundary: TransactionState, members: Sequence[Member]) -> Closing:
    """The next thing to do for this boundary. Pure; total."""
    return _back(boundary, members) if boundary.backward else _forward(boundary, members)


# --- back: what landed is compensated ---------------------------------------------------------------------


def _back(boundary: TransactionState, members: Sequence[Member]) -> Closing:
    if any(member.on_its_way for member in members):
        return AwaitOperations()
    left = [member for member in members if not amended(boundary, member)]
    if not left:
        return Finish(*standing(members))
    asked = [member for member in left if _is_asked_about(member)]
    ordered = [member for member in left if member not in asked]
    newest = max((member.begun for member in ordered), default=0)
    turn = [member for member in ordered if not newest > member.ended > 0]
    blocked = [member for member in turn if _needs_person(boundary, member)]
    due = tuple(member.step for member in turn if member not in blocked and _due(boundary, member))
    if due:
        return StartCompensations(due)
    if len(turn) > len(blocked):
        return AwaitOperations()
    stuck = [member for member in left if member in blocked or member in asked]
    return ParkTransaction("; ".join(map(_why_stuck, stuck)), tuple(member.step for member in stuck))


def amended(boundary: TransactionState, member: Member) -> bool:
    """True if nothing is left to do for it on the way back."""
    if member.step in boundary.accepted or member.undone:
        return True
    if member.operation.phase == "unknown":
        return False
    return not member.landed or not member.contract.compensates


def _is_asked_about(member: Member) -> bool:
    """True if only a person can say whether there is anything to compensate."""
    doubtful = member.doubtful is not None and not member.contract.absent_safe
    return member.compensation is None and (member.half_confirmed or doubtful)


def _needs_person(boundary: TransactionState, member: Member) -> bool:
    """True if only a person can decide what happens to it."""
    compensation = member.compensation
    if compensation is not None and not _another_ordered(boundary, member):
        return compensation.phase in _STUCK or (compensation.phase == "succeeded" and member.overtaken)
    return not member.contract.compensates or not member.compensable


def _due(boundary: TransactionState, member: Member) -> bool:
    """True if its compensation has to be started now."""
    return member.compensation is None or _another_ordered(boundary, member)


def _another_ordered(boundary: TransactionState, member: Member) -> bool:
    """True if its last compensation had no effect, and a person asked for another one since."""
    compensation = member.compensation
    if compensation is None or attempt_number(compensation.step) >= boundary.tries:
        return False
    return compensation.phase in _MISSED or (compensation.phase == "succeeded" and member.overtaken)


def serving(step: str, kind: str, number: int = 1) -> str:
    """The name of the operation that compensates `step` for the `number`-th time, or confirms it."""
    return f"{step}/{kind}" if number == 1 else f"{step}/{kind}#{number}"


def attempt_number(step: str) -> int:
    """Which one of several compensations this is: `charge#1/undo` the first, `charge#1/undo#2` the second."""
    _, _, number = step.rpartition("/")[2].partition("#")
    return int(number or 1)


def _why_stuck(member: Member) -> str:
    operation, compensation = member.operation, member.compensation
    if compensation is not None and compensation.phase == "succeeded":
        news = operation.links.contradicted[-1] if operation.links.contradicted else f"it is {operation.phase}"
        return f"{operation.step} turned out otherwise after {compensation.step} had been begun: {news}"
    if compensation is not None:
        return f"{compensation.step} is {compensation.phase}: {compensation.reason or 'no reason is recorded'}"
    if member.half_confirmed:
        return f"it is not known whether {serving(operation.step, CONFIRM)} happened"
    if (doubtful := member.doubtful) is not None:
        return f"it is not known whether {doubtful.step} happened, and compensating it blindly is not declared harmless"
    return f"the compensation of {operation.step} is no longer in this app"


def standing(members: Sequence[Member]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The steps that were undone, and those whose effects remain (or may), each in order of start."""
    undone = tuple(member.step for member in members if member.undone and not member.doubted)
    still = tuple(
        member.step
        for member in members
        if (not member.undone or member.doubted) and (member.landed or member.operation.phase == "unknown")
    )
    return undone, still


# --- forward: held effects are sent -------------------------------------------------------------------------


def _forward(boundary: TransactionState, members: Sequence[Member]) -> Closing:
    held = [member for member in members if member.held]
    if any(not member.operation.final for member in members if not member.held):
        return AwaitOperations()
    strays = [member for member in members if member.stray]
    if not isinstance(compensation := _back(boundary, strays), Finish):
        return compensation
    members = [member for member in members if not member.stray]
    if any(member.leaving for member in held):
        return AwaitOperations()  # it may have been sent: whether there is a way back is known when it has ended
    sent = any(member.landed or member.operation.phase == "unknown" for member in held)
    if not sent and (reason := _refusal(boundary, held)):
        return TurnBack(reason)
    if any(not member.operation.settled and member.operation.phase != "held" for member in held):
        # A person may still refuse it: everything is answered before anything is confirmed or sent.
        return AwaitOperations()
    if (move := _confirm(boundary, members, sent=sent)) is not None:
        return move
    unread = tuple(
        member.step
        for member in held
        if member.contract.observes and member.operation.phase == "held" and member.reading == "unread"
    )
    if unread and not sent:
        return Reread(unread)
    return _release(boundary, held)


def _refusal(boundary: TransactionState, held: Sequence[Member]) -> str:
    """Why the commit cannot be made, as long as nothing was sent."""
    unrepeatable = [member.step for member in held if not repeatable(member.contract)]
    if len(unrepeatable) > 1 and boundary.pivot == "one":
        return f"more than one held effect cannot be repeated: {', '.join(unrepeatable)}"
    for member in held:
        operation = member.operation
        if member.missed:
            return f"{operation.step} is {operation.phase}: {operation.reason}"
        if member.reading in {"changed", "unreadable"} and not operation.attempts:
            return f"what {operation.step} relies on is {member.reading}"
    return ""


def repeatable(contract: Contract) -> bool:
    """True if an attempt that may have landed can be followed by another one, without a person."""
    return contract.idempotency is not None or contract.verifies


def _confirm(boundary: TransactionState, members: Sequence[Member], *, sent: bool) -> Closing | None:
    """Confirm every reservation; one that cannot be confirmed any more turns the transaction back."""
    due: list[str] = []
    refused: list[tuple[str, str]] = []
    pending = False
    for member in members:
        if not member.contract.confirms or not member.reserved or member.step in boundary.accepted:
            continue
        done = member.confirmation
        if done is None and (member.lapsed or not member.confirmable):
            why = (
                "its time was over before the commit" if member.lapsed else "its confirmation is no longer in this app"
            )
            refused.append((f"the reservation {member.step} was not confirmed: {why}", member.step))
        elif done is None:
            due.append(member.step)
        elif done.phase in _MISSED:
            refused.append((f"{done.step} is {done.phase}: {done.reason}", member.step))
        elif done.phase != "succeeded":
            pending = True
    if refused and not pending:  # what is being confirmed ends first: only then is it known what to release
        return _turn_back_or_park(*refused[0], sent=sent)
    if due and not refused:
        return ConfirmReservations(tuple(due))
    return AwaitOperations() if pending else None


def _turn_back_or_park(why: str, step: str, *, sent: bool) -> Closing:
    return ParkTransaction(why, (step,)) if sent else TurnBack(why)


def _release(boundary: TransactionState, held: Sequence[Member]) -> Closing:
    """Send held effects one after another: what cannot be repeated first, the others in order."""
    stuck: list[Member] = []
    for member in sorted(held, key=lambda one: repeatable(one.contract)):
        operation = member.operation
        if operation.phase == "succeeded" or operation.links.reused or member.step in boundary.accepted:
            continue
        if member.missed:
            stuck.append(member)  # something else was sent before: there is no way back
        elif operation.phase == "held":
            return Release(member.step)
        else:
            return AwaitOperations()  # it may have been sent: nothing else is sent before that is settled
    if stuck:
        return ParkTransaction(
            "partly committed: " + "; ".join(_missed(one) for one in stuck), tuple(one.step for one in stuck)
        )
    return Finish()


def _missed(member: Member) -> str:
    return f"{member.step} is {member.operation.phase}: {member.operation.reason or 'no reason is recorded'}"


# --- the members of a boundary on the way back, ordered by what is next ---------------------------------------------


class Backlog:
    """The members of a boundary that is being rolled back, indexed so that each change costs little.

    Thousands of effects are undone one after another, and each undo changes one or two members. `close` needs only
    those on which its answer depends: the operations in flight, and those whose turn it is.
    """

    def __init__(self, boundary: TransactionState, members: Sequence[Member]) -> None:
        self._boundary = boundary
        self._place = {member.step: place for place, member in enumerate(members)}
        self._left: dict[str, Member] = {}  # something is left to do about them, and no person has to say what
        self._asked: dict[str, Member] = {}  # only a person can say what is left to do
        self._going: dict[str, Member] = {}  # they have not come to an end
        self._held: dict[str, Member] = {}  # they wait for a commit that will not come
        self._busy: dict[str, Member] = {}  # they are being compensated
        # What is left, by where it began and where it ended: entries that are not true any more are passed over.
        self._by_begin: list[tuple[int, str]] = []
        self._by_end: list[tuple[float, str]] = []
        for member in members:
            self.put(member)

    def __contains__(self, step: str) -> bool:
        """True if an operation of that name belongs to the boundary."""
        return step in self._place

    def put(self, member: Member) -> None:
        """A member as it is now."""
        asked = (left := not amended(self._boundary, member)) and _is_asked_about(member)
        left = left and not asked
        busy = left and member.being_compensated
        known = self._left.get(member.step)
        if left and known is None:
            insort(self._by_begin, (member.begun, member.step))
        if left and not busy and (known is None or known.step in self._busy or known.ended != member.ended):
            insort(self._by_end, (_end(member), member.step))
        _put(self._left, member, left)
        _put(self._asked, member, asked)
        _put(self._busy, member, busy)
        _put(self._going, member, member.on_its_way)
        _put(self._held, member, member.held and not member.operation.final)

    def front(self) -> list[Member]:
        """Those on which the next decision depends, in order of start; empty where nothing is left to do."""
        going = next(iter(self._going.values()), None)
        found = dict(self._held)
        if going is not None:
            found[going.step] = going
        elif (newest := self._newest()) is None and not self._asked:
            return []
        else:
            found.update(self._asked if newest is None else self._asked | self._turn(newest))
        return sorted(found.values(), key=lambda member: self._place[member.step])

    def _newest(self) -> int | None:
        """The place where the last remaining member began."""
        while self._by_begin and self._by_begin[-1][1] not in self._left:
            self._by_begin.pop()
        return self._by_begin[-1][0] if self._by_begin else None

    def _turn(self, newest: int) -> dict[str, Member]:
        """Members that ended after the last began; of those being compensated, one is enough to wait for."""
        found: dict[str, Member] = {}
        while self._by_end and self._by_end[-1][0] >= newest:
            end, step = self._by_end.pop()
            member = self._left.get(step)
            if member is not None and _end(member) == end and step not in self._busy:
                found[step] = member
        self._by_end.extend(sorted((_end(member), step) for step, member in found.items()))
        busy = next((member for member in self._busy.values() if _end(member) >= newest), None)
        return found if busy is None else {**found, busy.step: busy}


def _put(under: dict[str, Member], member: Member, belongs: bool) -> None:
    if belongs:
        under[member.step] = member
    else:
        under.pop(member.step, None)


def _end(member: Member) -> float:
    """Where it ended; what goes on ends after everything."""
    return member.ended or math.inf
