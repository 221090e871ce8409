"""The inbox: everything that waits for a person, read from the listing alone."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Final

import msgspec

from holdfast.interfaces.looking import Looking, Waiting, waits_of
from holdfast.interfaces.people.handing import NOBODY, Handed, all_handed, item_stream
from holdfast.interfaces.people.shadows import answer_afterwards, open_shadows
from holdfast.journal.port import Entry, RunRow, Which
from holdfast.model.planted import is_planted, shown_agent
from holdfast.model.shadow import Left, shadow_item
from holdfast.model.system import is_system
from holdfast.model.waits import HALT, PEOPLE, answer_with
from holdfast.model.waits import Item as Kind

WAITING: Final[tuple[Which, ...]] = ("suspended", "halted")
"""The lines of the listing that may ask people something: of runs that rest, and of those that cannot go on."""
KEPT: Final = 20_000
"""Lines of the listing whose items are kept: most of them are the same when a server is asked again."""


class Item(msgspec.Struct, frozen=True, gc=False):
    """One thing that a person is asked. `due_ms`: the wall clock at which it ends by itself, if it does.

    `answers` are the commands that answer it; `tool` is what would be called, or was. `to` and `queue` say who is to
    look at it, `rests_ms` until which wall clock somebody lets it rest, and `escalated` how often somebody made it
    urgent. `asked_ms` is when it was asked, by the records; 0 where an older release asked it.
    """

    kind: Kind
    item: str
    run: str
    agent: str
    asks: str
    due_ms: int | None
    since_ms: int
    answers: tuple[str, ...]
    to: str = ""
    queue: str = ""
    rests_ms: int = 0
    escalated: int = 0
    asked_ms: int = 0
    tool: str = ""


class Wanted(msgspec.Struct, frozen=True):
    """Which items somebody wants to see: all, or only those `mine` and those in that `queue`."""

    mine: str = ""
    queue: str = ""

    def shows(self, item: Item) -> bool:
        """Whether this one is wanted."""
        if not (self.mine or self.queue):
            return True
        return bool((self.mine and item.to == self.mine) or (self.queue and item.queue == self.queue))


EVERYTHING = Wanted()


async def items(looking: Looking, wanted: Wanted = EVERYTHING, *, now_ms: int = 0) -> list[Item]:
    """What runs that rest or cannot go on ask people: what is urgent first, then the nearest deadline, then the oldest.

    What somebody lets rest comes last until its time, by the wall clock `now_ms`. Notices that nobody took are no
    questions to a person: `holdfast webhooks` shows them.
    """
    handed = await all_handed(looking.journal)
    found = [
        _given(item, step, handed, now_ms) if handed else item
        for status in WAITING
        async for row in looking.every_run(status=status)
        for item, step in _lines(row)
    ]
    found.extend(_shadow(entry, handed, now_ms) for entry in await open_shadows(looking.journal))
    return sorted(filter(wanted.shows, found), key=_place)


def _shadow(entry: Entry, all_of: Mapping[str, Handed], now_ms: int) -> Item:
    """What left without a person, and was drawn for a look afterwards."""
    left = msgspec.json.decode(entry.body, type=Left)
    name, handed = shadow_item(left.run, left.step), all_of.get(item_stream(left.run, left.step), NOBODY)
    return Item(
        "shadow", name, left.run, left.traits.agent, left.asks, None, entry.at_ms,
        (f"holdfast why {left.run}/{left.step}", answer_afterwards(name)),
        handed.to, handed.queue, handed.until_ms if handed.until_ms > now_ms else 0, handed.escalated, entry.at_ms,
    )  # fmt: skip


@lru_cache(maxsize=KEPT)
def _lines(row: RunRow) -> tuple[tuple[Item, str], ...]:
    """What a line of the listing asks people, each with its step, before anybody gave it to somebody."""
    if is_system(row.agent) and not is_planted(row.agent):
        return ()
    return tuple((_item(row, wait), wait.step) for wait in waits_of(row) if wait.kind in PEOPLE)


def _item(row: RunRow, wait: Waiting) -> Item:
    name = f"{row.run}/{wait.step}".rstrip("/")
    return Item(
        PEOPLE[wait.kind], name, row.run, shown_agent(row.agent), asked_by(row.run, wait), wait.due,
        wait.at or row.updated_ms, answers_to(row.run, wait), queue=wait.queue, asked_ms=wait.at, tool=wait.tool,
    )  # fmt: skip


def _given(item: Item, step: str, all_of: Mapping[str, Handed], now_ms: int) -> Item:
    handed = all_of.get(item_stream(item.run, step))
    if handed is None:
        return item
    return msgspec.structs.replace(
        item, to=handed.to, queue=handed.queue_now(item.queue, item.asked_ms), escalated=handed.escalated,
        rests_ms=handed.until_ms if handed.until_ms > now_ms else 0,
    )  # fmt: skip


def asked_by(run: str, wait: Waiting) -> str:
    """What a person is asked, without the name and the commands that stand beside it in the inbox."""
    asks = wait.asks.removeprefix(f"{run}/{wait.step}: ").removeprefix(f"run {run} ").removeprefix("asks: ")
    return asks.replace(f"; {answer_with(run, wait.kind, wait.step)})", ")")


def _place(one: Item) -> tuple[int, int, bool, int, int, str]:
    return one.rests_ms, -one.escalated, one.due_ms is None, one.due_ms or 0, one.since_ms, one.item


def answers_to(run: str, wait: Waiting) -> tuple[str, ...]:
    """The commands that show and answer what a run waits for, where a person can."""
    answer = answer_with(run, wait.kind, wait.step)
    if not answer or wait.kind == "question":
        return (answer,) if answer else ()
    if wait.kind == HALT:
        return (f"holdfast take-over {run} --look", *answer.split(" | "))
    if wait.kind == "handoff":
        return (f"holdfast take-over {run}/{wait.step} --look", *answer.split(" | "))
    look = f"holdfast show {run}" if wait.step.endswith("/") else f"holdfast why {run}/{wait.step}"
    return look, answer
