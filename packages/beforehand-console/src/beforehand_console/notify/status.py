"""Delivery status of notices: each message of each channel, and its result."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, TypeAlias

import msgspec

from beforehand.inspect.reader import JournalReader
from beforehand.journal.entry_codec import entries_below, readable, values_in
from beforehand.journal.port import LedgerEntry, RunRow
from beforehand.people.items import placed
from beforehand.webhooks.outgoing import is_parked, runs_named
from beforehand_console.notify.channel import Channel
from beforehand_console.notify.planner import waiting_findings, waiting_of
from beforehand_console.notify.schedule import (
    NOTICES,
    ChannelHistory,
    Missed,
    NoticeReason,
    NotifiableItem,
    Sent,
    missed_stream,
    planned,
    run_of,
    stream_of,
)

State: TypeAlias = Literal["sent", "on the way", "quiet", "unknown", "failed"]
NAMED: Final = 20


class NoticeStatus(msgspec.Struct, frozen=True):
    """One message. `quiet`: everything in it was answered before it could be sent. `said` is its result.

    `items` names the first ones that it is about, `about` how many there are; `test` who asked for a trial.
    """

    run: str
    number: int
    state: State
    said: str
    at_ms: int
    words: list[NoticeReason]
    items: list[str]
    about: int
    test: str = ""


class ChannelStatus(msgspec.Struct, frozen=True):
    """One channel: how many messages it was sent or spared, which are not sent yet, and which went wrong.

    `failed` and `unknown` name runs; `notices` are the last messages, the newest first.
    """

    channel: str
    messages: int
    on_the_way: list[str]
    unknown: list[str]
    failed: list[str]
    notices: list[NoticeStatus]


async def channel_statuses(reader: JournalReader, *, limit: int, channel: str = "") -> list[ChannelStatus]:
    """Every channel that was ever sent a message, by name, with its last `limit` messages."""
    streams = await entries_below(reader.journal, NOTICES)
    return [
        await _channel(reader, name, streams[name], limit) for name in sorted(streams) if not channel or name == channel
    ]


async def _channel(reader: JournalReader, name: str, entries: list[LedgerEntry], limit: int) -> ChannelStatus:
    rows = {row.run: row for row in await runs_named(reader, f"notice-{name}-")}
    by_state: dict[State, list[str]] = {"on the way": [], "unknown": [], "failed": []}
    for row in rows.values():
        if (state := state_of(row)) in by_state:
            by_state[state].append(row.run)
    last = [
        await notice_of(reader, name, entry, sent, rows.get(run_of(name, int(entry.key))))
        for entry, sent in await readable(reader.journal, entries[-limit:], Sent)
    ]
    return ChannelStatus(
        name, len(entries), by_state["on the way"], by_state["unknown"], by_state["failed"], last[::-1]
    )


async def notice_of(
    reader: JournalReader, channel: str, entry: LedgerEntry, sent: Sent, row: RunRow | None
) -> NoticeStatus:
    """One message, and the result of its run."""
    run = run_of(channel, int(entry.key))
    state, said = (state_of(row), row.reason) if row is not None else ("on the way", "to be sent")
    if row is not None and state == "sent":
        completed = (await reader.history(run)).lifecycle.completed
        said = msgspec.json.decode(completed.result, type=str) if completed is not None else ""
        state = "quiet" if said.startswith("quiet") else "sent"
    items = [about.item for about in sent.abouts]
    words: list[NoticeReason] = sorted({about.word for about in sent.abouts})
    return NoticeStatus(run, int(entry.key), state, said, sent.at_ms, words, items[:NAMED], len(items), sent.test)


def state_of(row: RunRow) -> State:
    """The state of a message, from the listing alone: one that had become needless counts as sent here."""
    if row.status == "completed":
        return "sent"
    if row.status in {"stopped", "undone"}:
        return "failed"
    return "unknown" if is_parked(row) else "on the way"


# The notices that are due for each channel: judged as the planner would, and neither decided nor sent.


class DueNotice(msgspec.Struct, frozen=True):
    """The notice that a worker would send to one channel now: which items, and why. `receiver` is for people."""

    channel: str
    receiver: str
    items: list[str]
    words: list[NoticeReason]


async def due_now(reader: JournalReader, channels: Iterable[Channel], now_ms: int) -> list[DueNotice]:
    """The due notices of these channels, in their order. Nothing is written."""
    waiting = [waiting_of(one, one.tool) for one in await placed(reader, now_ms=now_ms) if one.asked_ms]
    waiting += await waiting_findings(reader)
    return [await _of(reader, channel, waiting, now_ms) for channel in channels]


async def _of(reader: JournalReader, channel: Channel, waiting: list[NotifiableItem], now_ms: int) -> DueNotice:
    messages = planned(channel.only, channel.pace, await _history_of(reader, channel.name), waiting, now_ms)
    abouts = [about for message in messages for about in message.abouts]
    return DueNotice(channel.name, channel.receiver, [one.item for one in abouts], sorted({one.word for one in abouts}))


async def _history_of(reader: JournalReader, channel: str) -> ChannelHistory:
    history = ChannelHistory()
    for sent in await values_in(reader.journal, stream_of(channel), Sent):
        history.add(sent)
    for missed in await values_in(reader.journal, missed_stream(channel), Missed):
        history.miss(missed)
    return history
