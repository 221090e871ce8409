"""Planning of notices: which are due, and to whom; done by the process that looks for due runs.

Nothing is queued when a question is asked: open items are compared with what was sent, again and again, so that
nothing can be lost between the two. A message is decided by its entry in the ledger, and sent by a run of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from beforehand.control.service import ControlService
from beforehand.engine.outbox import Cursor, begin_asleep
from beforehand.inspect.monitors.findings import shown_findings
from beforehand.inspect.reader import JournalReader
from beforehand.journal.entry_codec import readable, written
from beforehand.journal.port import Post
from beforehand.people.items import PlacedItem, placed
from beforehand.policies import milliseconds
from beforehand_console.notify.channel import Channel
from beforehand_console.notify.schedule import (
    AGENT,
    FINDING,
    NOTICES,
    ChannelHistory,
    Missed,
    NotifiableItem,
    Sent,
    missed_stream,
    planned,
    run_of,
    stream_of,
)
from beforehand_console.notify.sender import NoticeMessage, NoticeSender

if TYPE_CHECKING:
    from beforehand_console.notify.reach import Reach


class NoticePlanner:
    """The notices of one app, with what was sent to its channels. Two planners at once send each message once."""

    def __init__(self, service: ControlService, reach: Reach, sender: NoticeSender) -> None:
        self._service = service
        self._reach = reach
        self._sender = sender
        self._cursor = Cursor(service.engine.journal, NOTICES)
        self._histories: dict[str, ChannelHistory] = {}
        self._read: dict[str, int] = {}
        self._missed: dict[str, int] = {}
        self._tools: dict[str, str] = {}
        self._next_ms = 0

    async def run(self) -> None:
        """Plan what is due now, and begin the runs that send it. Raises `JournalUnavailable`."""
        now = self._service.engine.journal.clock().earliest_ms
        if now >= self._next_ms:
            self._next_ms = now + milliseconds(self._reach.every)
            waiting = await self.waiting()
            for channel in self._reach.channels:
                await self._plan(channel, waiting)
        await self._hand_out()

    async def waiting(self) -> list[NotifiableItem]:
        """The open items, with the tool if a channel filters by it, and the findings of the monitors."""
        by_tool = any(channel.only.tools for channel in self._reach.channels)
        now_ms = self._service.engine.wall_ms()
        found = await placed(self._service.reader, now_ms=now_ms)
        asked = [waiting_of(one, await self._tool(one) if by_tool else "") for one in found if one.asked_ms]
        return [*asked, *await waiting_findings(self._service.reader)]

    async def _plan(self, channel: Channel, waiting: list[NotifiableItem]) -> None:
        now_ms = self._service.engine.wall_ms()
        history = await self._refresh(channel.name)
        for sent in planned(channel.only, channel.pace, history, waiting, now_ms):
            if not await self.post(channel.name, sent):
                return  # another process was faster: what it sent is looked at the next time

    async def post(self, channel: str, sent: Sent) -> bool:
        """Decide a message; False if another process decided one of that number."""
        history = await self._refresh(channel)
        post = Post(stream_of(channel), str(history.messages + 1), written(sent))
        return (await self._service.engine.journal.commit(post)).fresh

    async def _refresh(self, channel: str) -> ChannelHistory:
        history = self._histories.setdefault(channel, ChannelHistory())
        journal = self._service.engine.journal
        entries = await journal.entries(stream_of(channel), self._read.get(channel, 0))
        for entry, sent in await readable(journal, entries, Sent):
            history.add(sent)
            self._read[channel] = entry.id
        entries = await journal.entries(missed_stream(channel), self._missed.get(channel, 0))
        for entry, missed in await readable(journal, entries, Missed):
            history.miss(missed)
            self._missed[channel] = entry.id
        return history

    async def _hand_out(self) -> None:
        """Begin a run for every message that has none yet."""
        engine = self._service.engine
        for entry in await self._cursor.news():
            message = NoticeMessage(entry.stream.removeprefix(NOTICES), int(entry.key))
            stored = self._sender.agent.stored_input(message, engine.identity.secret)
            await begin_asleep(engine, run_of(message.channel, message.number), stored, AGENT)
            await self._cursor.passed(entry.id)

    async def _tool(self, one: PlacedItem) -> str:
        """The tool that is asked about; read once for each question."""
        name = f"{one.item}@{one.asked_ms}"
        if one.kind == "unreadable":
            return ""
        if name not in self._tools:
            history = await self._service.reader.history(one.run)
            operation = history.operations.get(one.item.partition("/")[2])
            self._tools[name] = "" if operation is None else operation.intent.tool
        return self._tools[name]


def waiting_of(one: PlacedItem, tool: str) -> NotifiableItem:
    """An item of the inbox, as the planner takes it."""
    return NotifiableItem(
        one.item, one.kind, one.asked_ms, one.due_ms, tool, one.queue, one.to, one.rests_ms, one.escalated, one.then
    )


async def waiting_findings(reader: JournalReader) -> list[NotifiableItem]:
    """The findings that no person has acknowledged, as the planner takes them."""
    shown = await shown_findings(reader.journal)
    return [NotifiableItem(FINDING + one.id, "finding", one.since_ms) for one in shown]
