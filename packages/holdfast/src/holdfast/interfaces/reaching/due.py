"""What each channel is to be told now: judged as whoever plans it would, and neither decided upon nor sent."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.inspect.reader import JournalReader
from holdfast.interfaces.reaching.channel import Channel
from holdfast.interfaces.reaching.planning import waiting_of
from holdfast.journal.bodies import values_in
from holdfast.model.notices import Missed, Sent, Told, Waiting, Word, missed_stream, planned, stream_of
from holdfast.people.items import placed


class Due(msgspec.Struct, frozen=True):
    """What a worker that looks now would tell one channel: about which items, and why. `receiver` is for people."""

    channel: str
    receiver: str
    items: list[str]
    words: list[Word]


async def due_now(looking: JournalReader, channels: Iterable[Channel], now_ms: int) -> list[Due]:
    """The same for each of these channels, in their order. Nothing is written."""
    waiting = [waiting_of(one, one.tool) for one in await placed(looking, now_ms=now_ms) if one.asked_ms]
    return [await _of(looking, channel, waiting, now_ms) for channel in channels]


async def _of(looking: JournalReader, channel: Channel, waiting: list[Waiting], now_ms: int) -> Due:
    messages = planned(channel.only, channel.pace, await _told(looking, channel.name), waiting, now_ms)
    abouts = [about for message in messages for about in message.abouts]
    return Due(channel.name, channel.receiver, [one.item for one in abouts], sorted({one.word for one in abouts}))


async def _told(looking: JournalReader, channel: str) -> Told:
    told = Told()
    for sent in await values_in(looking.journal, stream_of(channel), Sent):
        told.add(sent)
    for missed in await values_in(looking.journal, missed_stream(channel), Missed):
        told.miss(missed)
    return told
