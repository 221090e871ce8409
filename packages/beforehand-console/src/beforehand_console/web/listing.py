"""Lists, a page at a time: the inbox, filtered and in order, and the timeline of a run."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from beforehand.control.input_checks import decode_json
from beforehand.errors import UsageError
from beforehand.inspect.reader import JournalReader, waits_of
from beforehand.inspect.text import without_commands
from beforehand.inspect.timeline import TimelineEntry, timeline_entries
from beforehand.journal.port import RunRow
from beforehand.model import records as r
from beforehand.model.waits import PEOPLE
from beforehand.model.waits import Item as Kind
from beforehand.people.items import InboxItem, Place, PlacedItem, asked_by, place_of, placed, worded

PAGE: Final = 50
LARGEST: Final = 500


class ItemsQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A filter of items, and a position: `after` is what the page before gave as its `next`.

    `mine` are those that were given to that person; `text` occurs in the question or in its name.
    """

    kind: Kind | None = None
    queue: str = ""
    agent: str = ""
    mine: str = ""
    text: str = ""
    after: str = ""
    limit: Annotated[int, Meta(ge=1, le=LARGEST)] = PAGE

    def wants(self, one: PlacedItem) -> bool:
        """True if this item passes the filter."""
        text = self.text.casefold()
        return (
            self.kind in (None, one.kind)
            and self.queue in ("", one.queue)
            and self.agent in ("", one.agent)
            and self.mine in ("", one.to)
            and (not text or text in one.item.casefold() or text in one.asks.casefold())
        )


class ItemsPage(msgspec.Struct, frozen=True):
    """One page of the items that are wanted.

    `total` counts all of them, `before` those of earlier pages, and `waiting` every item that this person may see,
    wanted or not. `next` names the next page; it is empty on the last one. `kinds`, `queues` and `agents` count all
    waiting items, so that a page can offer them as filters.
    """

    items: list[InboxItem]
    total: int
    before: int
    next: str
    kinds: dict[str, int]
    queues: dict[str, int]
    agents: dict[str, int]
    waiting: int = 0


async def listed(
    reader: JournalReader, asking: ItemsQuery, now_ms: int, may_see: Callable[[PlacedItem], bool]
) -> ItemsPage:
    """That page of the inbox. An item that was answered meanwhile moves nothing. Raises `UsageError`."""
    found = [one for one in await placed(reader, now_ms=now_ms) if may_see(one)]
    start = _read(asking.after) if asking.after else None
    wanted = [one for one in found if asking.wants(one)]
    before = 0 if start is None else sum(place_of(one) <= start for one in wanted)
    page = wanted[before : before + asking.limit]
    more = before + len(page) < len(wanted)
    return ItemsPage(
        [worded(one) for one in page], len(wanted), before, _written(place_of(page[-1])) if more else "",
        _counted([one.kind for one in found]), _counted([one.queue for one in found if one.queue]),
        _counted([one.agent for one in found]), len(found),
    )  # fmt: skip


# --- the timeline of a run --------------------------------------------------------------------------------------------

RECORDS: Final = 200
"""How many records a page of a timeline covers. As many before and after them are read, so that a step that crosses
the border of two pages is whole on both."""


class RunQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A position in a run: the last record of the page; without it, the newest."""

    to: Annotated[int, Meta(ge=1)] | None = None


def items_in(row: RunRow) -> list[tuple[str, str]]:
    """The items of a run that wait for people, each with its question, without commands: the page has its forms."""
    waits = [wait for wait in waits_of(row) if wait.kind in PEOPLE]
    return [(f"{row.run}/{wait.step}".rstrip("/"), without_commands(asked_by(row.run, wait))) for wait in waits]


def is_ready(row: RunRow, now_ms: int) -> bool:
    """True if a run goes on as soon as a worker takes it up."""
    due = row.status == "suspended" and row.due_ms is not None and row.due_ms <= now_ms
    return row.owner is None and (due or row.status == "running")


READY: Final = "ready to continue as soon as a worker takes it up"


class RunPage(msgspec.Struct, frozen=True):
    """The entries of the records `first` to `last`, of `records`. `given`: the input; `asks`: the items that wait.

    `items` names these, and the contradicted outcomes of the run.
    """

    row: RunRow
    given: r.Raw | None
    entries: list[TimelineEntry]
    first: int
    last: int
    records: int
    asks: list[tuple[str, str]]
    items: list[str]

    @property
    def earlier(self) -> int | None:
        """The `to` of the page before."""
        return self.first - 1 if self.first > 1 else None

    @property
    def later(self) -> int | None:
        """The `to` of the page after."""
        return min(self.last + RECORDS, self.records) if self.last < self.records else None


async def run_page(reader: JournalReader, run: str, to: int | None) -> RunPage:
    """That page of a run. What is read does not grow with the run. Raises `UnknownRun` and `ChainBroken`."""
    row = await reader.row(run)
    newest = await reader.newest_records(run, 2 * RECORDS)
    records = newest[-1][0].seq
    last = min(to or records, records)
    first = max(1, last - RECORDS + 1)
    begin = max(0, first - 1 - RECORDS)
    rows = newest if last == records else await reader.records_between(run, begin, last + RECORDS)
    (_, started), *_ = await reader.records_between(run, 0, 1)
    entries = timeline_entries(
        run, ((one.seq, record) for one, record in rows), first, last, to_end=rows[-1][0].seq == records
    )
    given = started.input if isinstance(started, r.RunStarted) else None
    asks, disputed = items_in(row), await reader.contradicted_steps()
    items = [item for item, _ in asks] + [f"{run}/{step}" for step in disputed.get(run, ())]
    return RunPage(row, given, entries, first, last, records, asks, items)


# --- inside -----------------------------------------------------------------------------------------------------------


def _counted(names: list[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for name in names:
        found[name] = found.get(name, 0) + 1
    return dict(sorted(found.items()))


def _written(place: Place) -> str:
    return urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def _read(after: str) -> Place:
    try:
        place: Place = decode_json(urlsafe_b64decode(after + "=" * (-len(after) % 4)), Place)
    except (ValueError, msgspec.MsgspecError) as error:
        raise UsageError("this is not the number of a page", next_step="begin at the first page") from error
    return place
