"""What is left to do for a boundary on the way back, so ordered that what is next is found without a look at all of it.

Thousands of effects are undone one after another, and each of them changes a member or two. `close` needs only those on
which its answer rests: what is on its way, and what has its turn.
"""

from __future__ import annotations

import math
from bisect import insort
from collections.abc import Sequence

from holdfast.model.closing import Member, amended
from holdfast.model.transactions import Transaction


class Backlog:
    """The members of a boundary that is called off, each as it was put in last."""

    def __init__(self, boundary: Transaction, members: Sequence[Member]) -> None:
        self._boundary = boundary
        self._place = {member.step: place for place, member in enumerate(members)}
        self._left: dict[str, Member] = {}  # something is left to do about them
        self._going: dict[str, Member] = {}  # they have not come to an end
        self._held: dict[str, Member] = {}  # they wait for a commit that will not come
        self._busy: dict[str, Member] = {}  # amends are being made
        # What is left, by where it began and where it ended: entries that are not true any more are passed over.
        self._by_begin: list[tuple[int, str]] = []
        self._by_end: list[tuple[float, str]] = []
        for member in members:
            self.put(member)

    def __contains__(self, step: str) -> bool:
        """Whether an operation of that name belongs to the boundary."""
        return step in self._place

    def put(self, member: Member) -> None:
        """A member as it is now."""
        left = not amended(self._boundary, member)
        busy = left and member.being_amended
        known = self._left.get(member.step)
        if left and known is None:
            insort(self._by_begin, (member.begun, member.step))
        if left and not busy and (known is None or known.step in self._busy or known.ended != member.ended):
            insort(self._by_end, (_end(member), member.step))
        _file(self._left, member, left)
        _file(self._busy, member, busy)
        _file(self._going, member, member.on_its_way)
        _file(self._held, member, member.held and not member.operation.final)

    def front(self) -> list[Member]:
        """Those on which the next decision rests, in order of start; empty where nothing is left to do."""
        going = next(iter(self._going.values()), None)
        found = dict(self._held)
        if going is not None:
            found[going.step] = going
        elif (newest := self._newest()) is None:
            return []
        else:
            found.update(self._turn(newest))
        return sorted(found.values(), key=lambda member: self._place[member.step])

    def _newest(self) -> int | None:
        """Where the last of what is left began."""
        while self._by_begin and self._by_begin[-1][1] not in self._left:
            self._by_begin.pop()
        return self._by_begin[-1][0] if self._by_begin else None

    def _turn(self, newest: int) -> dict[str, Member]:
        """What nothing stands after: of those whose amends are being made, one is enough to wait for."""
        found: dict[str, Member] = {}
        while self._by_end and self._by_end[-1][0] >= newest:
            end, step = self._by_end.pop()
            member = self._left.get(step)
            if member is not None and _end(member) == end and step not in self._busy:
                found[step] = member
        self._by_end.extend(sorted((_end(member), step) for step, member in found.items()))
        busy = next((member for member in self._busy.values() if _end(member) >= newest), None)
        return found if busy is None else {**found, busy.step: busy}


def _file(under: dict[str, Member], member: Member, belongs: bool) -> None:
    if belongs:
        under[member.step] = member
    else:
        under.pop(member.step, None)


def _end(member: Member) -> float:
    """Where it ended; what goes on ends after everything."""
    return member.ended or math.inf
