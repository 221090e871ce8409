"""The runs that send notices: the system's own agent, and one tool for each channel.

A notice is a plain write: it is attempted again only if nothing can have been sent. One that was sent and not answered
is unknown, and recorded as such; if the question is still open later, another notice is sent, which says that it may
be the second.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Final, cast

import msgspec

from beforehand.agent.agent import Agent, agent
from beforehand.agent.run import Run
from beforehand.agent.tool import Tool, tool
from beforehand.engine import steps
from beforehand.engine.current_operation import current_operation
from beforehand.errors import BeforehandError, NotSent, Rejected
from beforehand.inspect.reader import JournalReader
from beforehand.inspect.signing_keys import SigningKeys
from beforehand.journal.entry_codec import read, written
from beforehand.journal.port import Post
from beforehand.model.view import Operation
from beforehand.policies import Retry, milliseconds
from beforehand_console.links import Link, checked_base, link_id, make_link
from beforehand_console.notify.channel import Channel, SendContext
from beforehand_console.notify.compose import Letter, LetterLine, compose, still_asked
from beforehand_console.notify.schedule import AGENT, TOOL, Missed, Sent, missed_stream, run_of, stream_of

if TYPE_CHECKING:
    from beforehand.engine.engine import Engine

SCHEDULE: Final = Retry(attempts=16, elapsed=timedelta(days=1), base=timedelta(minutes=1), cap=timedelta(hours=2))
LINK_LASTS: Final = timedelta(days=7)
ANSWERED: Final = "answered"
STALE: Final = "stale"


class NoticeMessage(msgspec.Struct, frozen=True):
    """A message: the channel, and its number there."""

    channel: str
    number: int


class NotReached(BeforehandError):
    """A notice is proven not to have been sent, in all the time there was."""


class NoticeSender:
    """Sends the notices of one app. `engine`, and `keys` that sign links, are given once its journal is open."""

    def __init__(self, channels: Mapping[str, Channel], base_url: str) -> None:
        self.engine: Engine | None = None
        self.keys = SigningKeys(())
        self._base_url = base_url
        self._channels = channels
        self.agent: Final[Agent[NoticeMessage, str]] = agent(name=AGENT, tools=())(self._tell)

    def tool_for(self, name: str) -> Tool[[int, str], str]:
        """The tool of one channel: each has a breaker and a retry budget of its own."""

        @tool(name=TOOL + name, retry=SCHEDULE, timeout=timedelta(seconds=60), on_unknown="raise")
        def notice(number: int, letter: str) -> str:
            return self._send(name, number, letter)

        @notice.observe
        async def asked(_operation: Operation[str], number: int) -> bool:
            sent = await self._sent(name, number)
            return await still_asked(self._reader(), sent)

        return notice

    def _send(self, name: str, number: int, letter: str) -> str:
        """Send it once. A letter whose every question was answered before the first try is not sent at all."""
        channel, engine, current = self._channels.get(name), self._open_engine(), current_operation()
        if channel is None:
            raise NotSent(f"the channel {name} is not known here", retry_after=3600)
        if not current.observed:
            raise Rejected("answered before it could be sent", code=ANSWERED)
        now_ms, notice = engine.wall_ms(), run_of(name, number)

        def link(line: LetterLine) -> str:
            if not self._base_url:
                return ""
            if line.kind == "finding":
                return f"{checked_base(self._base_url)}/findings"
            until = now_ms + milliseconds(LINK_LASTS) if line.due_ms is None or line.waits_on else line.due_ms
            link = Link(line.item, line.digest, channel.receiver, until, link_id(notice, line.item))
            return make_link(self._base_url, self.keys, link)

        outside = SendContext(current.marker, link, engine.settings.private_webhooks, now_ms / 1000)
        return channel.send(msgspec.json.decode(letter, type=Letter), outside)

    async def _tell(self, run: Run, message: NoticeMessage) -> str:
        """Send it once, unless everything in it was answered meanwhile."""
        scope, engine = run.scope(), self._open_engine()

        async def fresh() -> str:
            sent = await self._sent(message.channel, message.number)
            letter = await compose(self._reader(), sent, engine.wall_ms())
            return "" if letter is None else msgspec.json.encode(letter).decode()

        letter = await steps.value(scope, "letter", fresh)
        if not letter:
            return "quiet: everything in it was answered"
        notice = cast("Tool[[int, str], str]", engine.tools[TOOL + message.channel])  # made by `tool_for`
        outcome = await notice.outcome(message.number, letter)
        if outcome.status == "succeeded":
            return f"taken: {outcome.value}"
        if outcome.code in {ANSWERED, STALE}:
            return "quiet: everything in it was answered before it could be sent"
        if outcome.status == "unknown":
            await steps.value(scope, "missed", lambda: self._missed(message, outcome.reason))
            return f"unknown: {outcome.reason}"
        raise NotReached(f"{message.channel} was not reached: {outcome.reason}")

    async def _missed(self, message: NoticeMessage, why: str) -> str:
        """Record an unknown delivery: what is still asked is sent once more later, with a remark."""
        engine = self._open_engine()
        sent = await self._sent(message.channel, message.number)
        missed = Missed(engine.wall_ms(), tuple(about.identity for about in sent.abouts))
        await engine.journal.commit(Post(missed_stream(message.channel), str(message.number), written(missed)))
        return why

    async def _sent(self, channel: str, number: int) -> Sent:
        entries = await self._open_engine().journal.entries(stream_of(channel))
        found = next((entry for entry in entries if entry.key == str(number)), None)
        return Sent(0) if found is None else read(found, Sent)

    def _reader(self) -> JournalReader:
        engine = self._open_engine()
        return JournalReader(engine.journal, engine.identity)

    def _open_engine(self) -> Engine:
        assert self.engine is not None, "an app gives its engine before anything is driven"
        return self.engine
