"""How people keep up, read from a journal: what waits, what was answered, and what waits behind what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from beforehand.inspect.reader import JournalReader
from beforehand.people.items import PlacedItem, placed
from beforehand_console.reviews.alerts import (
    DAY_MS,
    Alarm,
    AlertLimits,
    Health,
    OpenItem,
    alarms,
    by_urgency,
    health,
    suggested,
)
from beforehand_console.reviews.events import Review
from beforehand_console.reviews.metrics import ReviewMetrics, review_metrics
from beforehand_console.reviews.reader import RecordedReviews, read_reviews
from beforehand_console.reviews.shadow_reviews import open_reviews

NEXT: Final = 10
"""How many of the most urgent items are shown, with what is blocked behind them."""


class NextItem(msgspec.Struct, frozen=True):
    """One of the items to review next, `given` to a reviewer, or for `by` to take; empty: no reviewer is known."""

    item: str
    asks: str
    waited_ms: int
    due_ms: int | None
    blocked: int
    by: str
    given: bool


class Workload(msgspec.Struct, frozen=True):
    """The health of people's work, the alarms, and the next items."""

    health: Health
    alarms: tuple[Alarm, ...]
    next: tuple[NextItem, ...]


class ReviewReport(msgspec.Struct, frozen=True):
    """How people keep up, and what they found: both of the same days."""

    watch: Workload
    figures: ReviewMetrics


async def workload(
    reader: JournalReader, now_ms: int, days: float = 7.0, limits: AlertLimits | None = None
) -> Workload:
    """The figures of the last `days`, and the alarms by these limits."""
    return await _watched(reader, (await _reviews(reader, now_ms, days)).looks, now_ms, days, limits or AlertLimits())


async def report(reader: JournalReader, now_ms: int, days: float = 7.0) -> ReviewReport:
    """The workload beside what people found. The records are read once for both."""
    reviews = await _reviews(reader, now_ms, days)
    found = review_metrics(reviews.looks, reviews.passed, _since(now_ms, days))
    return ReviewReport(await _watched(reader, reviews.looks, now_ms, days, AlertLimits()), found)


async def _reviews(reader: JournalReader, now_ms: int, days: float) -> RecordedReviews:
    return await read_reviews(reader, _since(now_ms, days))


def _since(now_ms: int, days: float) -> int:
    return now_ms - int(days * DAY_MS)


async def _watched(
    reader: JournalReader, looks: Sequence[Review], now_ms: int, days: float, limits: AlertLimits
) -> Workload:
    found = {one.item: one for one in await placed(reader, now_ms=now_ms)}
    waiting = [_asked(one) for one in found.values() if not one.rests_ms]
    drawn = [OpenItem(one.operation, one.at_ms) for one in await open_reviews(reader.journal)]
    now = health([*waiting, *drawn], looks, now_ms, days)
    urgent = [await _with_blocked(reader, found[one.item], one) for one in by_urgency(waiting)[:NEXT]]
    turns = suggested([*urgent, *waiting[NEXT:]], now, limits)
    return Workload(
        now,
        alarms(now, limits),
        tuple(_turn(found[one.item], one, turns.get(one.item, ""), now_ms) for one in by_urgency(urgent)),
    )


def _asked(item: PlacedItem) -> OpenItem:
    return OpenItem(item.item, item.asked_ms or item.since_ms, item.due_ms, item.to, item.escalated)


async def _with_blocked(reader: JournalReader, item: PlacedItem, one: OpenItem) -> OpenItem:
    """The item with how much else is open in its run: all of it waits behind this."""
    if item.kind == "unreadable":
        return one
    history = await reader.history(item.run)
    return msgspec.structs.replace(one, blocked=max(0, len(history.open_operations()) - 1))


def _turn(item: PlacedItem, one: OpenItem, suggestion: str, now_ms: int) -> NextItem:
    return NextItem(
        item.item, item.asks, now_ms - one.asked_ms, one.due_ms, one.blocked, one.to or suggestion, bool(one.to)
    )
