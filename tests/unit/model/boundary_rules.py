"""The rules for the end of a transaction, stated a second time: over sets of operations, and without their texts.

They follow the design: on the way back, what is ambiguous is settled, then what landed is compensated in reverse order
of start, and a person is asked about what stays unknown once all others are compensated. On the way forward, all gates and preconditions of held
effects settle before the first one leaves, the one that cannot be repeated leaves first, and nothing turns back once a
held effect may have been sent.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

from msgspec.structs import replace

from beforehand.model import records as r
from beforehand.model import saga as c
from beforehand.model.contract import Contract, Key
from beforehand.model.operation import Attempt, Links, OperationState, Settlement
from beforehand.model.outcome import Phase
from beforehand.model.saga import Member
from beforehand.model.transaction import TransactionState

Answer = tuple[str, frozenset[str]]
ENDED: Final = frozenset({"succeeded", "failed", "cancelled"})
ON_THE_WAY: Final = frozenset({"planned", "ready", "running", "verifying", "awaiting", "gated", "held"})


def answer_of(move: c.Closing) -> Answer:
    """The kind of a move and the steps that it names."""
    match move:
        case c.StartCompensations(steps) | c.ConfirmReservations(steps) | c.Reread(steps):
            return type(move).__name__, frozenset(steps)
        case c.ParkTransaction(stuck=stuck):
            return "ParkTransaction", frozenset(stuck)
        case c.Release(step):
            return "Release", frozenset({step})
        case c.Finish(undone=undone, still_standing=still):
            return "Finish", frozenset({*undone, *(f"still {step}" for step in still)})
        case _:
            return type(move).__name__, frozenset()


def expected(boundary: TransactionState, members: Sequence[Member]) -> Answer:
    """The answer that the rules give."""
    return _backward(boundary, members) if boundary.backward else _forward(boundary, members)


# --- the way back ------------------------------------------------------------------------------------------


def _backward(boundary: TransactionState, members: Sequence[Member]) -> Answer:
    involved = [one for m in members for one in (m.operation, *m.parts, *([m.confirmation] if m.confirmation else []))]
    if any(one.phase in ON_THE_WAY for one in involved):
        return "AwaitOperations", frozenset()
    left = [m for m in members if _left_to_undo(boundary, m)]
    if not left:
        undone = {m.step for m in members if _met_by_its_compensation(m)}
        stands = {m.step for m in members if m.step not in undone and (_landed(m) or m.operation.phase == "unknown")}
        return "Finish", frozenset({*undone, *(f"still {step}" for step in stands)})
    asked = {m.step for m in left if m.compensation is None and _only_a_person_knows(m)}
    left = [m for m in left if m.step not in asked]
    turn = [m for m in left if all(other.begun <= m.ended or not m.ended for other in left)]
    states = {m.step: _compensation_of(boundary, m) for m in turn}
    if due := {step for step, state in states.items() if state == "due"}:
        return "StartCompensations", frozenset(due)
    if "under way" in states.values():
        return "AwaitOperations", frozenset()
    return "ParkTransaction", frozenset({*states, *asked})


def _landed(member: Member) -> bool:
    operation = member.operation
    return bool(operation.links.contradicted) or (operation.phase == "succeeded" and not operation.settlement.stood_in)


def _met_by_its_compensation(member: Member) -> bool:
    compensation = member.compensation
    return (
        compensation is not None
        and compensation.phase == "succeeded"
        and member.operation.links.overtaken != compensation.step
    )


def _left_to_undo(boundary: TransactionState, member: Member) -> bool:
    if member.step in boundary.accepted or _met_by_its_compensation(member):
        return False
    return member.operation.phase == "unknown" or (_landed(member) and member.contract.compensates)


def _only_a_person_knows(member: Member) -> bool:
    if member.confirmation is not None and member.confirmation.phase == "unknown":
        return True
    doubtful = any(one.phase == "unknown" for one in (member.operation, *member.parts))
    return doubtful and not member.contract.absent_safe


def _compensation_of(boundary: TransactionState, member: Member) -> str:
    """Whether its compensation is `due`, `under way`, or needs a person."""
    compensation = member.compensation
    if compensation is not None:
        came_to_nothing = compensation.phase in {"failed", "cancelled", "succeeded"}  # a success here met another world
        asked_again = compensation.step.endswith("/undo") and boundary.tries > 1
        if not (came_to_nothing and asked_again):
            waits = came_to_nothing or compensation.phase in {"unknown", "gated"}
            return "a person" if waits else "under way"
    return "due" if member.contract.compensates and member.compensable else "a person"


# --- the way forward ---------------------------------------------------------------------------------------


def _forward(boundary: TransactionState, members: Sequence[Member]) -> Answer:
    if any(m.operation.phase not in ENDED for m in members if not m.operation.intent.hold):
        return "AwaitOperations", frozenset()
    undoing = _backward(boundary, [m for m in members if m.stray])
    if undoing[0] != "Finish":
        return undoing
    members = [m for m in members if not m.stray]
    held = [m for m in members if m.operation.intent.hold]
    if any(m.operation.phase in ON_THE_WAY and m.operation.released for m in held):
        return "AwaitOperations", frozenset()
    sent = any(_landed(m) or m.operation.phase == "unknown" for m in held)
    if not sent and _refused(boundary, held):
        return "TurnBack", frozenset()
    if any(m.operation.phase in ON_THE_WAY - {"held"} for m in held):
        return "AwaitOperations", frozenset()
    if (confirming := _confirmations(boundary, members, sent=sent)) is not None:
        return confirming
    waiting = [m for m in held if m.operation.phase == "held"]
    unread = {m.step for m in waiting if m.contract.observes and m.reading == "unread"}
    if unread and not sent:
        return "Reread", frozenset(unread)
    return _next_to_leave(boundary, held)


def _refused(boundary: TransactionState, held: Sequence[Member]) -> bool:
    pivots = [m for m in held if _is_pivot(m)]
    nothing_came = any(m.operation.phase in {"failed", "cancelled"} and not m.operation.links.reused for m in held)
    changed = any(m.reading in {"changed", "unreadable"} and not m.operation.attempts for m in held)
    return (len(pivots) > 1 and boundary.pivot == "one") or nothing_came or changed


def _is_pivot(member: Member) -> bool:
    return member.contract.idempotency is None and not member.contract.verifies


def _confirmations(boundary: TransactionState, members: Sequence[Member], *, sent: bool) -> Answer | None:
    due, under_way, refused = set[str](), False, list[str]()
    for m in members:
        reserved = m.contract.confirms and m.operation.phase == "succeeded" and not m.operation.settlement.stood_in
        if not reserved or m.step in boundary.accepted:
            continue
        phase = "" if m.confirmation is None else m.confirmation.phase
        if phase in {"failed", "cancelled"} or (not phase and (m.lapsed or not m.confirmable)):
            refused.append(m.step)
        elif not phase:
            due.add(m.step)
        elif phase != "succeeded":
            under_way = True
    if refused:
        ended = ("ParkTransaction", frozenset(refused[:1])) if sent else ("TurnBack", frozenset[str]())
        return ("AwaitOperations", frozenset()) if under_way else ended
    if due:
        return "ConfirmReservations", frozenset(due)
    return ("AwaitOperations", frozenset()) if under_way else None


def _next_to_leave(boundary: TransactionState, held: Sequence[Member]) -> Answer:
    order = [m for m in held if _is_pivot(m)] + [m for m in held if not _is_pivot(m)]
    missing = set[str]()
    for m in order:
        phase = m.operation.phase
        if phase == "succeeded" or m.operation.links.reused or m.step in boundary.accepted:
            continue
        if phase == "held":
            return "Release", frozenset({m.step})
        if phase == "unknown":
            return "AwaitOperations", frozenset()
        missing.add(m.step)
    return ("ParkTransaction", frozenset(missing)) if missing else ("Finish", frozenset())


# --- boundaries to ask about -------------------------------------------------------------------------------

PHASES: Final[tuple[Phase, ...]] = (
    "succeeded", "succeeded", "succeeded", "failed", "cancelled", "unknown", "running", "gated", "verifying",
)  # fmt: skip
OF_HELD: Final[tuple[Phase, ...]] = (
    "held",
    "held",
    "held",
    "succeeded",
    "failed",
    "cancelled",
    "unknown",
    "running",
    "gated",
)


def operation(step: str, phase: Phase, **fields: Any) -> OperationState:
    """An operation in that phase. `hold` names the transaction whose commit it waits for."""
    intent = r.Intent("do", r.Raw(b"{}"), "d", "c", hold=fields.pop("hold", ""))
    links = Links(**{name: fields.pop(name) for name in Links.__struct_fields__ if name in fields})
    settlement = Settlement(**{name: fields.pop(name) for name in Settlement.__struct_fields__ if name in fields})
    return OperationState(step, intent, phase, "c", links=links, settlement=settlement, **fields)


def boundary_of(chance: random.Random, *, backward: bool) -> tuple[TransactionState, list[Member]]:
    """A boundary and its members, as the chance draws them."""
    members = [_member(chance, number, backward=backward) for number in range(1, chance.choice((1, 2, 2, 3)) + 1)]
    accepted = tuple(m.step for m in members if chance.random() < 0.1)
    boundary = TransactionState(
        "t", "aborting" if backward else "committing", chance.choice(("one", "best effort")), backward,
        accepted=accepted, tries=chance.choice((1, 2)),
    )  # fmt: skip
    return boundary, members


def _member(chance: random.Random, number: int, *, backward: bool) -> Member:
    step = f"t/do#{number}"
    held = chance.random() < (0.2 if backward else 0.6)
    phase = chance.choice(OF_HELD if held else PHASES)
    begun = chance.randint(1, 6)
    ended = begun + chance.randint(1, 4) if phase in {*ENDED, "unknown"} else 0
    return replace(
        Member(_operation(chance, step, phase, held=held), _contract(chance), begun, ended),
        compensation=_amends(chance, step) if chance.random() < 0.4 else None,
        confirmation=_served(chance, f"{step}/confirm") if chance.random() < 0.4 else None,
        compensable=chance.random() < 0.8,
        confirmable=chance.random() < 0.8,
        reading=chance.choice(("unread", "unread", "same", "changed", "unreadable")),
        lapsed=chance.random() < 0.2,
        parts=(_served(chance, f"{step}/part"),) if chance.random() < 0.2 else (),
        stray=not held and not backward and chance.random() < 0.2,
    )


def _operation(chance: random.Random, step: str, phase: Phase, *, held: bool) -> OperationState:
    released = held and phase not in {"held", "gated"}
    tried = released or (not held and chance.random() < 0.5)
    return operation(
        step,
        phase,
        hold="t" if held else "",
        released=released,
        attempts=(Attempt(1, 1, "b", 1, 1, 0, "c"),) if tried else (),
        contradicted=("it landed",) if phase == "failed" and chance.random() < 0.3 else (),
        stood_in=phase == "succeeded" and not held and chance.random() < 0.1,
        reused="another/do#1" if phase == "cancelled" and chance.random() < 0.3 else "",
        overtaken=chance.choice(("", "", f"{step}/undo", f"{step}/undo#2")),
    )


def _contract(chance: random.Random) -> Contract:
    return Contract(
        "do",
        compensates=chance.random() < 0.7,
        absent_safe=chance.random() < 0.4,
        idempotency=chance.choice((None, Key.forever())),
        verifies=chance.random() < 0.2,
        confirms=chance.choice(("", "confirm")),
        observes=chance.random() < 0.5,
    )


def _amends(chance: random.Random, step: str) -> OperationState:
    return _served(chance, f"{step}/undo{chance.choice(('', '', '#2'))}")


def _served(chance: random.Random, step: str) -> OperationState:
    return operation(
        step, chance.choice(("succeeded", "succeeded", "failed", "cancelled", "unknown", "running", "gated"))
    )
