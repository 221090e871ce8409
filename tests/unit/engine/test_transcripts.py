"""Transactions, step by step: what is recorded, what waits for the disk, what is sent, what code receives, and when.

Each story is compared with its transcript in `stories`. When one changes on purpose, the failed test says where the
new transcript is: read what differs, and copy it there.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, Literal

import pytest

from beforehand import Ambiguous, Beforehand, NotSent, Rejected, Run, agent
from beforehand.people.loaded_item import load_item
from tests.unit.engine.lab import Lab, virtual
from tests.unit.engine.office import (
    Office,
    alone,
    held_inside,
    impatient,
    inner_stays,
    nested,
    one_by_one,
    order,
    refused,
    side_by_side,
    stays,
    two_parts,
    waiting,
)
from tests.unit.engine.transcripts import bury

SHORT, LONG = 30_000, 10**9  # milliseconds for which a run that waits is kept in memory
Body = Callable[[Office, Run], Awaitable[str]]


class Story:
    """One agent in an office, and what happens to it from outside."""

    def __init__(self, lab: Lab, body: Body) -> None:
        self.lab, self.office = lab, Office(lab)

        @agent(run_id="r-{name}", tools=self.office.tools)
        async def desk(run: Run, name: str) -> str:
            told = await body(self.office, run)
            if self.stops:
                self.log.note("<", told)
                self.stops = False
                raise KeyError("a bug")
            return told

        self.stops = False
        self.desk, self.log = desk, self.office.log


async def _plain(story: Story, hold_ms: int = SHORT) -> None:
    async with story.lab.app(story.desk, hold_ms=hold_ms) as app:
        await story.log.tell(app.run(story.desk, "ann"))
        await story.log.tell(app.run(story.desk, "ann"))


Script = Callable[[Story], Awaitable[None]]


async def run_twice(story: Story) -> None:
    await _plain(story)


async def replay(story: Story) -> None:
    """Its code fails at the very end, and the run is reopened: everything comes from the record."""
    story.stops = True
    async with story.lab.app(story.desk, hold_ms=LONG, poll_ms=1000) as app:
        await story.log.tell(app.run(story.desk, "ann"))
        await story.lab.pass_time(minutes=1)
        await story.log.tell(app.resume("r-ann", by="eve"))


async def told(story: Story) -> None:
    """A message arrives while its first call is under way, and again later."""
    async with story.lab.app(story.desk, hold_ms=LONG, poll_ms=1000) as app:
        handle = app.start(story.desk, "ann")
        await story.lab.pass_time(seconds=3)
        await app.service.tell("r-ann", "hurry", by="eve")
        await story.log.tell(handle.result())
        await story.log.tell(app.run(story.desk, "ann"))


async def run_held(story: Story) -> None:
    await _plain(story, hold_ms=LONG)


async def resolve(story: Story, *words: Literal["retry", "accept"]) -> None:
    async with story.lab.app(story.desk) as app:
        await story.log.tell(app.run(story.desk, "ann"))
        for word in words:
            await story.log.tell(app.run(story.desk, "ann"))
            shown = (await load_item(app.service.reader, "r-ann/t")).digest
            await app.service.resolve_transaction("r-ann", "t", word, by="eve", shown=shown)
        await story.log.tell(app.run(story.desk, "ann"))


async def retry_then_accept(story: Story) -> None:
    await resolve(story, "retry", "accept")


async def accept(story: Story) -> None:
    await resolve(story, "accept")


async def undo(story: Story) -> None:
    async with story.lab.app(story.desk) as app:
        await story.log.tell(app.run(story.desk, "ann"))
        undone = await app.undo("r-ann", by="eve", why="withdrawn")
        story.log.note("<", f"undone {undone.undone}, still standing {undone.still_standing}")


async def cancel(story: Story) -> None:
    async with story.lab.app(story.desk) as app:
        await story.log.tell(app.run(story.desk, "ann"))
        await app.service.cancel("r-ann", by="eve", why="too long")
        await story.log.tell(app.run(story.desk, "ann"))


async def call_off(story: Story) -> None:
    async with story.lab.app(story.desk) as app:
        await story.log.tell(app.run(story.desk, "ann"))
        await app.service.call_off("r-ann", "t", by="eve", why="enough")
        await story.lab.pass_time(hours=1)
        await story.log.tell(app.run(story.desk, "ann"))


async def cancel_live(story: Story) -> None:
    async with story.lab.app(story.desk, hold_ms=LONG, poll_ms=1000) as app:
        handle = app.start(story.desk, "ann")
        await story.lab.pass_time(seconds=3)
        story.log.note("!", "eve cancels the run")
        await app.service.cancel("r-ann", by="eve", why="too long")
        await story.log.tell(handle.result())


async def _called_off_unknown(story: Story, app: Beforehand, name: str) -> None:
    await story.log.tell(app.run(story.desk, "ann"))
    await app.service.call_off("r-ann", name, by="eve", why="enough")
    await story.log.tell(app.run(story.desk, "ann"))


async def landed_after_all(story: Story) -> None:
    """An effect with an unknown outcome was undone blindly; while the run sleeps it turns out that it had landed."""
    async with story.lab.app(story.desk) as app:
        await _called_off_unknown(story, app, "t")
        for step in ("t/~1/book#1", "t/~2/book#1"):
            await app.service.resolve(f"r-ann/{step}", "happened", by="bob", result="room")
        await story.log.tell(app.run(story.desk, "ann"))
        await app.service.resolve_transaction("r-ann", "t", "retry", by="eve")
        await story.log.tell(app.run(story.desk, "ann"))
        await story.lab.pass_time(hours=1)
        await story.log.tell(app.run(story.desk, "ann"))


async def landed_after_all_live(story: Story) -> None:
    async with story.lab.app(story.desk, hold_ms=LONG, poll_ms=1000) as app:
        with story.lab.loop.held():
            await story.log.tell(app.run(story.desk, "ann"))
        await app.service.call_off("r-ann", "t", by="eve", why="enough")
        handle = app.start(story.desk, "ann")
        await story.lab.pass_time(minutes=5)
        for step in ("t/~2/book#1", "t/~1/book#1"):
            await app.service.resolve(f"r-ann/{step}", "happened", by="bob", result="room")
            await story.lab.pass_time(minutes=5)
        await app.service.resolve_transaction("r-ann", "t", "accept", by="eve")
        await story.log.tell(handle.result())


async def landed_inside_after_all(story: Story) -> None:
    async with story.lab.app(story.desk) as app:
        await _called_off_unknown(story, app, "outer/t")
        await app.service.resolve("r-ann/outer/t/book#1", "happened", by="bob", result="room")
        await story.lab.pass_time(hours=1)
        await story.log.tell(app.run(story.desk, "ann"))
        await app.service.resolve_transaction("r-ann", "outer", "retry", by="eve")
        await story.log.tell(app.run(story.desk, "ann"))


async def call_off_live(story: Story) -> None:
    async with story.lab.app(story.desk, hold_ms=LONG, poll_ms=1000) as app:
        handle = app.start(story.desk, "ann")
        await story.lab.pass_time(seconds=3)
        story.log.note("!", "eve calls it off")
        await app.service.call_off("r-ann", "t", by="eve", why="enough")
        await story.log.tell(handle.result())
        await story.log.tell(app.run(story.desk, "ann"))


async def crash_in_three_seconds(story: Story) -> None:
    app = story.lab.make(story.desk)
    await app.open()
    driving = asyncio.ensure_future(app.run(story.desk, "ann"))
    await story.lab.pass_time(seconds=3)
    story.log.note("!", "the process dies")
    await bury(story.lab, app, driving)
    async with story.lab.app(story.desk, hold_ms=LONG, poll_ms=1000) as app:
        await story.log.tell(app.run(story.desk, "ann"))


STORIES: Final[dict[str, tuple[Body, Script, dict[str, list[Any]]]]] = {
    "commit": (order, run_twice, {}),
    "commit with retries": (order, run_held, {
        "take": [NotSent("busy"), Ambiguous("cut")], "confirm": [Ambiguous("cut")], "pay": [NotSent("busy")],
        "mail": [NotSent("busy")], "look": [NotSent("busy")],
    }),
    "calls that take long": (order, run_held, {
        "take": [40.0], "reserve": [20.0], "confirm": [30.0], "pay": [20.0], "mail": [20.0],
    }),
    "called off": (refused, run_twice, {}),
    "called off slowly": (refused, run_held, {"put back": [20.0], "release": [30.0, NotSent("busy")], "take": [5.0]}),
    "called off, and a call is unknown": (refused, run_twice, {"release": [Rejected("never booked")]}),
    "a confirmation is refused": (order, run_twice, {"confirm": [Rejected("given away", code="E7")]}),
    "the pivot is unknown": (order, run_twice, {"pay": [Ambiguous("cut")]}),
    "the pivot is refused": (order, run_twice, {"pay": [Rejected("no money")]}),
    "a compensation fails": (refused, retry_then_accept, {"put back": [Rejected("shelf full"), Rejected("shelf gone")]}),
    "a compensation fails once": (refused, accept, {"put back": [Rejected("shelf full")]}),
    "partly committed": (order, accept, {"mail": [Rejected("mailbox full")]}),
    "partly committed, retried": (order, retry_then_accept, {"mail": [Rejected("mailbox full"), Rejected("again")]}),
    "nested": (nested, run_twice, {}),
    "nested, and refused outside": (nested, run_twice, {"reserve": [Rejected("full")]}),
    "nested, and refused later": (nested, run_held, {"confirm": [10.0, Rejected("full")]}),
    "undone": (order, undo, {}),
    "undone, nested": (nested, undo, {}),
    "cancelled": (waiting, cancel, {}),
    "called off while it rests": (waiting, call_off, {}),
    "called off while it sleeps": (waiting, call_off_live, {"put back": [10.0]}),
    "called off in a call": (order, call_off_live, {"take": [20.0]}),
    "called off in a read": (order, call_off_live, {"look": [20.0]}),
    "called off at the commit": (order, call_off_live, {"confirm": [20.0]}),
    "replayed": (order, replay, {}),
    "replayed, called off": (refused, replay, {}),
    "replayed, nested": (nested, replay, {}),
    "replayed, two parts": (two_parts, replay, {"take": [3.0, "first", 1.0, "second"]}),
    "two parts, one refused": (two_parts, run_twice, {"take": [3.0, "taken", Rejected("gone")]}),
    "two parts, called off at the commit": (two_parts, replay, {"mail": [Rejected("mailbox full"), Rejected("again")]}),
    "one by one": (one_by_one, replay, {"reserve": [Rejected("full")]}),
    "one by one, refused at the commit": (one_by_one, replay, {"confirm": ["yes", Rejected("full")]}),
    "one by one, told": (one_by_one, told, {"reserve": ["yes", 9.0]}),
    "told before the commit": (order, told, {"look": [9.0]}),
    "told before the commit, nested": (nested, told, {"take": [9.0]}),
    "told before an empty commit": (waiting, told, {}),
    "told while it is being undone": (refused, told, {"put back": [9.0]}),
    "alone": (alone, replay, {}),
    "alone, and slow": (alone, replay, {"take": ["cup!", 20.0, "book!"]}),
    "alone, and the read is slow": (alone, replay, {"look": [20.0]}),
    "alone, and refused": (alone, replay, {"take": ["cup!", "book!", Rejected("gone", code="E7")], "pay": [Rejected("no")]}),
    "alone, and unknown": (alone, run_twice, {"pay": [Ambiguous("cut")]}),
    "alone, told": (alone, told, {"take": ["cup!", 5.0]}),
    "alone, a crash": (alone, crash_in_three_seconds, {"take": ["cup!", 20.0]}),
    "alone, a crash in a read": (alone, crash_in_three_seconds, {"look": [20.0]}),
    "cancelled while it is being undone": (refused, cancel_live, {"put back": [20.0]}),
    "cancelled at the commit": (order, cancel_live, {"mail": [5.0]}),
    "cancelled in a confirmation": (order, cancel_live, {"confirm": [5.0]}),
    "cancelled in a call": (nested, cancel_live, {"reserve": [5.0]}),
    "landed after all": (stays, landed_after_all, {"book": [Ambiguous("cut"), Ambiguous("cut")]}),
    "landed after all, live": (stays, landed_after_all_live, {"book": [Ambiguous("cut"), Ambiguous("cut")]}),
    "landed inside after all": (inner_stays, landed_inside_after_all, {"book": [Ambiguous("cut")]}),
    "side by side": (side_by_side, replay, {"mail": [5.0, "a!", "b!"]}),
    "side by side, a crash at both commits": (side_by_side, crash_in_three_seconds, {"mail": [20.0, 20.0]}),
    "side by side, undone": (side_by_side, undo, {"put back": [5.0]}),
    "impatient": (impatient, run_held, {"take": [20.0]}),
    "impatient, and it rests": (impatient, run_twice, {"take": [20.0]}),
    "impatient, and nothing leaves": (impatient, run_twice, {"parcel": [NotSent("closed")] * 3}),
    "impatient, and it may have landed": (impatient, run_twice, {"parcel": [Ambiguous("cut"), 5.0]}),
    "impatient, and slow inside": (impatient, run_twice, {"parcel": [20.0]}),
    "nothing is held": (waiting, run_held, {}),
    "told in an inner part": (held_inside, told, {"look": [9.0]}),
    "held in an inner part": (held_inside, replay, {}),
    "a crash inside": (order, crash_in_three_seconds, {"reserve": [20.0]}),
    "a crash in a confirmation": (order, crash_in_three_seconds, {"confirm": [20.0]}),
    "a crash in a held effect": (order, crash_in_three_seconds, {"mail": [20.0]}),
    "a crash in the pivot": (order, crash_in_three_seconds, {"pay": [20.0]}),
    "a crash in a compensation": (refused, crash_in_three_seconds, {"put back": [20.0]}),
}  # fmt: skip


@pytest.mark.parametrize("name", STORIES)
@virtual
async def test_a_story_is_recorded_as_its_transcript_says(lab: Lab, name: str, tmp_path: Path):
    body, script, answers = STORIES[name]
    story = Story(lab, body)
    story.office.answers = {tool: list(queue) for tool, queue in answers.items()}
    await script(story)
    story.log.compare(re.sub(r"\W+", "_", name), tmp_path)
