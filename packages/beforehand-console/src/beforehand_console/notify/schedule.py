"""Notices to people: what a channel is sent, when, and when many things become one message. Pure.

Everything is computed from the open items and from what was sent: there is no queue that could be lost. Each channel
has one ledger stream of sent messages, whose entries are numbered; the number is the entry's key, so of two processes
that plan the same message one is refused and looks again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Final, Literal, TypeAlias

import msgspec

from beforehand.model.waits import Item as Kind
from beforehand.model.waits import Then
from beforehand.policies import milliseconds

AGENT: Final = "beforehand:notice"  # the agent of the runs that reach people
TOOL: Final = "notice:"
NOTICES: Final = "notices/"
MISSED: Final = "notices-missed/"
HOUR: Final = timedelta(hours=1)
QUARTER: Final = timedelta(minutes=15)
AT_ONCE: Final = timedelta(0)
AGAIN_AT_MOST: Final = 2

FINDING: Final = "finding "
"""How the name of a finding begins where it takes the place of an item: no run has a space in its name."""

NotifiableKind: TypeAlias = Kind | Literal["finding"]
NoticeReason = Literal["new", "reminder", "escalated", "again"]


class NotifiableItem(msgspec.Struct, frozen=True):
    """One open item, or a finding of the monitors, as notices are planned. Moments are wall clocks in milliseconds.

    `asked_ms` is when it was asked, as the records say; `rests_ms` until when it is snoozed; `urgent` how often it was
    made urgent; `then` what happens at its deadline.
    """

    item: str
    kind: NotifiableKind
    asked_ms: int
    due_ms: int | None = None
    tool: str = ""
    queue: str = ""
    to: str = ""
    rests_ms: int = 0
    urgent: int = 0
    then: Then = ""

    @property
    def identity(self) -> str:
        """The id of one question: the same step that asks again later gets another."""
        return f"{self.item}@{self.asked_ms}"


class Only(msgspec.Struct, frozen=True, omit_defaults=True):
    """The items that a channel receives; an empty field filters nothing.

    `due_within`: only items whose deadline is nearer than that, and those that were made urgent.
    """

    kinds: tuple[NotifiableKind, ...] = ()
    tools: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    people: tuple[str, ...] = ()
    due_within: timedelta | None = None

    def admits(self, one: NotifiableItem, now_ms: int) -> bool:
        """True if a channel with this filter receives that item now."""
        asked = (
            (self.kinds, one.kind),
            (self.tools, one.tool),
            (self.queues, one.queue),
            (self.people, one.to),
        )
        if any(wanted and value not in wanted for wanted, value in asked):
            return False
        if self.due_within is None or one.urgent:
            return True
        return one.due_ms is not None and one.due_ms - now_ms <= milliseconds(self.due_within)


class Pace(msgspec.Struct, frozen=True, omit_defaults=True):
    """When a channel is notified of an item.

    `after`: once it has been unanswered for that long; at once by default. `remind_before`: again that long before its
    deadline; an hour by default. `remind_every`: again at this interval until it is answered. More than `most` messages
    within `window`, 15 minutes by default, become one that lists the open items.
    """

    after: timedelta = AT_ONCE
    remind_before: timedelta = HOUR
    remind_every: timedelta | None = None
    most: int = 5
    window: timedelta = QUARTER

    def __post_init__(self) -> None:
        if min(self.after, self.remind_before, self.window, self.remind_every or HOUR) < AT_ONCE:
            raise ValueError("a pace is made of durations: they cannot be negative")
        if self.remind_every == AT_ONCE:
            raise ValueError("remind_every=0 would remind without end: leave it out, or give it some time")
        if self.most < 1:
            raise ValueError(f"most={self.most}: at least one message has to be allowed")


class NotifiedItem(msgspec.Struct, frozen=True):
    """One item in a message, and why."""

    identity: str
    word: NoticeReason

    @property
    def item(self) -> str:
        """The item's name: RUN/STEP."""
        return self.identity.rpartition("@")[0]


class Sent(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message in the ledger: decided, and sent by a run of its own."""

    at_ms: int
    abouts: tuple[NotifiedItem, ...] = ()
    test: str = ""  # who asked for a test notice; then it is about nothing


class Missed(msgspec.Struct, frozen=True):
    """A record that the delivery of a message about these questions is unknown."""

    at_ms: int
    identities: tuple[str, ...]


class ChannelHistory(msgspec.Struct):
    """The history of one channel: a fold of its messages.

    `last_of` is when a question was last sent; `missed` when, and how often, its delivery turned out to be unknown.
    `recent` are the last messages: when, and about how many.
    """

    messages: int = 0
    last_of: dict[str, int] = {}
    missed: dict[str, tuple[int, int]] = {}
    recent: list[tuple[int, int]] = []

    def add(self, sent: Sent) -> None:
        """Add one message."""
        self.messages += 1
        for about in sent.abouts:
            self.last_of[about.identity] = sent.at_ms
        if sent.abouts:
            self.recent = [*self.recent[-99:], (sent.at_ms, len(sent.abouts))]

    def miss(self, missed: Missed) -> None:
        """Note that a message may not have arrived."""
        for identity in missed.identities:
            _, times = self.missed.get(identity, (0, 0))
            self.missed[identity] = (missed.at_ms, times + 1)


def planned(
    only: Only, pace: Pace, history: ChannelHistory, waiting: Iterable[NotifiableItem], now_ms: int
) -> list[Sent]:
    """The messages that are to be sent to a channel now."""
    due: list[tuple[NotifiableItem, NoticeReason]] = [
        (one, word)
        for one in waiting
        if one.rests_ms <= now_ms
        and only.admits(one, now_ms)
        and (word := _word(one, pace, history, now_ms)) is not None
    ]
    if not due:
        return []
    abouts = [NotifiedItem(one.identity, word) for one, word in due]
    within = [(at, about) for at, about in history.recent if now_ms - at < milliseconds(pace.window)]
    if len(within) + len(due) <= pace.most:
        return [Sent(now_ms, (about,)) for about in abouts]
    if _held(within, len(due), pace) and not _presses(due, within, pace):
        return []
    return [Sent(now_ms, tuple(abouts))]


def _word(one: NotifiableItem, pace: Pace, history: ChannelHistory, now_ms: int) -> NoticeReason | None:
    """The reason to notify the channel of it now, if any."""
    over = one.due_ms is not None and one.due_ms <= now_ms
    if over and one.then != "hold":
        return None  # it ends by itself before it could be answered
    last = history.last_of.get(one.identity)
    if last is None:
        if now_ms < one.asked_ms + milliseconds(pace.after):
            return None
        return "escalated" if pace.after else "new"
    if over and one.due_ms is not None and last < one.due_ms:
        return "escalated"  # silence does not end it: all whom it concerns are notified again
    if one.due_ms is not None and last < one.due_ms - milliseconds(pace.remind_before) <= now_ms:
        return "reminder"
    missed_at, times = history.missed.get(one.identity, (0, 0))
    if times and times <= AGAIN_AT_MOST and last <= missed_at <= now_ms - milliseconds(pace.window):
        return "again"
    every = pace.remind_every
    return "reminder" if every is not None and now_ms - last >= milliseconds(every) else None


def _held(within: Sequence[tuple[int, int]], due: int, pace: Pace) -> bool:
    """True if a message waits for others to come: many came one by one, or a list was sent just now."""
    listed = any(about > 1 for _, about in within)
    return bool(within) and (listed or due <= pace.most)


def _presses(due: Sequence[tuple[NotifiableItem, NoticeReason]], within: Sequence[tuple[int, int]], pace: Pace) -> bool:
    """True if an item is due too soon to wait for the end of the pause."""
    until = max(at for at, _ in within) + milliseconds(pace.window)
    return any(one.due_ms is not None and one.due_ms - milliseconds(pace.remind_before) // 2 <= until for one, _ in due)


def stream_of(channel: str) -> str:
    """The ledger stream of messages to one channel."""
    return f"{NOTICES}{channel}"


def missed_stream(channel: str) -> str:
    """The ledger stream of messages to a channel whose delivery is unknown."""
    return f"{MISSED}{channel}"


def run_of(channel: str, number: int) -> str:
    """The run that sends the message of that number."""
    return f"notice-{channel}-{number:06d}"
