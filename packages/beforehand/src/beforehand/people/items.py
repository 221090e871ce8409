"""The inbox: all items that wait for a person, read from the listing alone.

Items are sorted before they are worded, as there may be ten thousand of them and fifty on a page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

import msgspec
from msgspec.structs import replace

from beforehand.inspect.reader import JournalReader, waits_of
from beforehand.inspect.text import cut
from beforehand.journal.port import RunWaits, StatusFilter
from beforehand.model.contradiction import Opened, contradiction_text
from beforehand.model.shell import to_type
from beforehand.model.system import is_planted, is_system, shown_agent
from beforehand.model.waits import AMENDABLE, DISPUTED, HALT, PEOPLE, UNREADABLE, ListedWait, Then, answers_with, brings
from beforehand.model.waits import Item as Kind
from beforehand.people.assignments import Handed, all_handed, item_stream

_RAISES: Final = re.compile(r"beforehand budget (?:'.*'|\S+) --raise LIMIT=AMOUNT$")
LISTED: Final = 1000
"""Number of characters of a question that a list shows."""
Place: TypeAlias = tuple[int, int, bool, int, int, str]
WAITING: Final[tuple[StatusFilter, ...]] = ("suspended", "halted")
"""Filters of the listing with runs that may ask people something: suspended runs, and those that cannot continue."""


class InboxItem(msgspec.Struct, frozen=True, gc=False):
    """One question to a person. `due_ms`: the wall clock by which an answer is wanted, and `then` what happens.

    `answers` are the commands that answer it; `tool` is what would be called, or was. `to` and `queue` say who is to
    review it, `rests_ms` until which wall clock it is snoozed, and `escalated` how often it was escalated. `asked_ms`
    is when it was asked, by the records; 0 where an older release asked it. `marks` names letters in what is asked that
    look like others.
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
    then: Then = ""
    marks: tuple[str, ...] = ()


class PlacedItem(msgspec.Struct, frozen=True, gc=False):
    """An item that is not worded yet: its sort keys, and the `wait` that holds the rest."""

    kind: Kind
    item: str
    run: str
    agent: str
    wait: ListedWait
    since_ms: int
    queue: str
    to: str = ""
    rests_ms: int = 0
    escalated: int = 0

    @property
    def asks(self) -> str:
        """The question to the person."""
        return asked_by(self.run, self.wait)

    @property
    def due_ms(self) -> int | None:
        """The deadline for an answer, on the wall clock."""
        return self.wait.due

    @property
    def asked_ms(self) -> int:
        """The time of the question, by the records."""
        return self.wait.at

    @property
    def tool(self) -> str:
        """The tool of the call."""
        return self.wait.tool

    @property
    def then(self) -> Then:
        """The default at its deadline."""
        return self.wait.then


class ItemFilter(msgspec.Struct, frozen=True):
    """Filter of items: all, or only those `mine` and those in that `queue`."""

    mine: str = ""
    queue: str = ""

    def shows(self, one: PlacedItem) -> bool:
        """True if the filter admits the item."""
        if not (self.mine or self.queue):
            return True
        return bool((self.mine and one.to == self.mine) or (self.queue and one.queue == self.queue))


EVERYTHING = ItemFilter()


async def items(reader: JournalReader, wanted: ItemFilter = EVERYTHING, *, now_ms: int = 0) -> list[InboxItem]:
    """The questions of suspended and halted runs: urgent ones first, then the nearest deadline, then the oldest.

    Snoozed items come last until their time, by the wall clock `now_ms`. Undelivered notices are not included:
    `beforehand webhooks` shows them.
    """
    return [worded(one) for one in await placed(reader, wanted, now_ms=now_ms)]


async def placed(reader: JournalReader, wanted: ItemFilter = EVERYTHING, *, now_ms: int = 0) -> list[PlacedItem]:
    """The same items in the same order, not worded yet: `worded` words each one that is shown."""
    found = [one for status in WAITING for one in _asked(await reader.journal.waiting(status))]
    found += [_contradicted(one) for one in await reader.contradictions()]
    if handed := await all_handed(reader.journal):
        found = [_given(one, handed, now_ms) for one in found]
    return sorted(filter(wanted.shows, found), key=place_of)


def place_of(one: PlacedItem) -> Place:
    """The sort key of an item: snoozed ones last, urgent ones first, then the nearest deadline, then the oldest."""
    due = one.wait.due
    return one.rests_ms, -one.escalated, due is None, due or 0, one.since_ms, one.item


def worded(one: PlacedItem) -> InboxItem:
    """The item with its question and the commands that answer it."""
    answers = answers_to(one.run, one.wait)
    asks = cut(one.asks, LISTED, f": {to_type('inbox', '--item', one.item)}")
    return InboxItem(
        one.kind, one.item, one.run, one.agent, asks, one.due_ms, one.since_ms, answers, one.to, one.queue,
        one.rests_ms, one.escalated, one.asked_ms, one.tool, one.then, _marks(asks),
    )  # fmt: skip


def _marks(asks: str) -> tuple[str, ...]:
    """Letters in a question that look like others."""
    if asks.isascii():
        return ()
    from beforehand.model.names import remarks  # noqa: PLC0415 - most lists need no table of letters

    return remarks(asks)


def _asked(rows: Iterable[RunWaits]) -> Iterator[PlacedItem]:
    """The questions of these runs, before any assignment."""
    for row in rows:
        if is_system(row.agent) and not is_planted(row.agent):
            continue
        for wait in waits_of(row):
            if kind := PEOPLE.get(wait.kind):
                name = f"{row.run}/{wait.step}".rstrip("/")
                yield PlacedItem(
                    kind, name, row.run, shown_agent(row.agent), wait, wait.at or row.updated_ms, wait.queue
                )


def _contradicted(one: Opened) -> PlacedItem:
    """A final outcome with evidence against it, whether or not its run has ended."""
    kind = AMENDABLE if one.amends else DISPUTED
    wait = ListedWait(kind, one.step, contradiction_text(one.phase, (one.evidence,)), at=one.at, tool=one.tool)
    return PlacedItem("review", f"{one.run}/{one.step}", one.run, shown_agent(one.agent), wait, one.at, "")


def _given(one: PlacedItem, all_of: Mapping[str, Handed], now_ms: int) -> PlacedItem:
    handed = all_of.get(item_stream(one.run, one.wait.step))
    if handed is None:
        return one
    return replace(
        one, to=handed.to, queue=handed.queue_now(one.queue, one.asked_ms), escalated=handed.escalated,
        rests_ms=handed.until_ms if handed.until_ms > now_ms else 0,
    )  # fmt: skip


def asked_by(run: str, wait: ListedWait) -> str:
    """The question to a person, without the name and the commands that the inbox shows beside it."""
    return wait.asks.removeprefix(f"{run}/{wait.step}: ").removeprefix(f"run {run} ").removeprefix("asks: ")


def _raise_command(run: str, asks: str) -> str:
    """The command that raises the limit which stopped a run: its own, that of a run above it, or a declared one."""
    if (found := _RAISES.search(asks)) is not None:
        return found[0]
    return "beforehand budget" if " of the budget " in asks else to_type("budget", run, "--raise", "LIMIT=AMOUNT")


def answers_to(run: str, wait: ListedWait) -> tuple[str, ...]:
    """The commands that show and answer a wait, where a person can."""
    answers = answers_with(run, wait.kind, wait.step, sent=not wait.unsent, shown=wait.shown, result=wait.result)
    if not answers:
        return brings(run, wait.kind, wait.shown, wait.tool)
    if wait.kind in {"question", UNREADABLE}:
        return answers
    if wait.kind == HALT:
        raises = (_raise_command(run, wait.asks),) if wait.asks.startswith("budget: ") else ()
        return (to_type("take-over", run, "--look"), *raises, *answers)
    if wait.kind == "handoff":
        return (to_type("take-over", f"{run}/{wait.step}", "--look"), *answers)
    look = to_type("show", run) if wait.step.endswith("/") else to_type("why", f"{run}/{wait.step}")
    return look, *answers
