"""A run that stopped and cannot go on is an item: why, what it did, what is open, and a person's word about it."""

import contextlib
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from beforehand import Key, Run, agent, current_operation, tool
from beforehand.engine.recovery import verify_stopped_run
from beforehand.engine.suspension import stopped_change
from beforehand.errors import JournalUnavailable, ReplayDiverged, RunStopped, RunSuspended, UsageError
from beforehand.inspect.doctor import rebuild
from beforehand.inspect.timeline import timeline
from beforehand.journal.port import Post
from beforehand.journal.record_codec import encode
from beforehand.model import records as r
from beforehand.model.commands import Command, command_stream
from beforehand.people import answers as a
from beforehand.people.answering import OneOf, answer, answer_all
from beforehand.people.dossier import dossier
from beforehand.people.items import items
from beforehand.people.loaded_item import load_item
from beforehand_console.reviews.report import workload
from tests.unit.engine.lab import Lab, virtual

HOUR = timedelta(hours=1)


def desk_of(lab: Lab) -> Any:
    """An agent that sends something else to the second city, once its code is changed."""

    @tool(idempotency=Key.forever())
    async def book(city: str) -> str:
        lab.sent.append(f"book {city}")
        return f"{city} under {current_operation().key[:2]}"

    @agent(run_id="trip-{name}", tools=[book])
    async def desk(run: Run, name: str) -> str:
        await book("Lima" if lab.changed else "Rome")
        await run.sleep(HOUR)
        return "done"

    return desk


async def halted(lab: Lab, app: Any, desk: Any, name: str = "ann") -> None:
    """Let the run do something, change its code, and let it come back."""
    with pytest.raises(RunSuspended):
        await app.run(desk, name)
    lab.changed = True
    await lab.pass_time(hours=1)
    with pytest.raises(ReplayDiverged):
        await app.run(desk, name)


@virtual
async def test_a_run_that_diverged_waits_for_a_person_with_its_state(lab: Lab):
    desk = desk_of(lab)
    async with lab.app(desk, poll_ms=600_000) as app:
        await halted(lab, app, desk)
        (item,) = await items(app.service.reader)
        assert (item.kind, item.item, item.due_ms) == ("handoff", "trip-ann", lab.clock.wall_ms() + 7 * 24 * 3_600_000)
        assert item.asks.startswith("diverged: ")
        assert item.answers == (
            "beforehand take-over trip-ann --look",
            "beforehand resume trip-ann",
            "beforehand take-over trip-ann --by NAME",
            "beforehand cancel trip-ann",
        )
        about = await dossier(app.service, "trip-ann")
        assert about.open
        assert "Rome" in about.difference
        assert "Lima" in about.difference
        assert about.why == "diverged: its code diverged from its record, and nothing was sent since"
        assert about.last[0].startswith("book#1: succeeded")
        assert about.state is not None
        assert [one.tool for one in about.state.done] == ["book"]
        assert about.recommended.startswith("resume, once its code follows the record again")
        assert about.default == "it goes on waiting, first in the list; nothing more is sent"
        assert about.fits == ("resume", "take_over", "abandon", "delegate", "snooze", "escalate")
        counted = await workload(app.service.reader, app.engine.environment.clock.wall_ms())
        assert counted.health.depth == 1


@virtual
async def test_it_goes_on_once_a_person_says_that_the_cause_is_mended(lab: Lab):
    desk = desk_of(lab)
    async with lab.app(desk, poll_ms=600_000) as app:
        await halted(lab, app, desk)
        lab.changed = False
        shown = (await dossier(app.service, "trip-ann")).digest
        await answer(app.service, "trip-ann", a.Resume("the code is back"), by="bea", shown=shown)
        assert await items(app.service.reader) == []
        assert [row.run for row in await lab.journal.runs(wakeable=True)] == ["trip-ann"], "a worker takes it up"
        assert await app.run(desk, "ann") == "done"
        about = await dossier(app.service, "trip-ann")
        assert not about.open
    (reopened,) = [one for one in lab.records("trip-ann") if isinstance(one, r.RunReopened)]
    assert (reopened.by, reopened.note) == ("bea", "the code is back")
    assert lab.sent == ["book Rome"]


@pytest.mark.parametrize(
    ("word", "reason"), [(a.TakeOver("I call them"), "handed_over"), (a.Abandon("too late"), "cancelled")]
)
@virtual
async def test_or_it_is_taken_over_or_called_off(lab: Lab, word: a.Answer, reason: str):
    desk = desk_of(lab)
    async with lab.app(desk, poll_ms=600_000) as app:
        await halted(lab, app, desk)
        await answer(app.service, "trip-ann", word, by="bea")
        assert await items(app.service.reader) == []
        (row,) = await lab.journal.runs(run="trip-ann")
        assert (row.status, row.reason.partition(":")[0]) == ("stopped", reason)
        with pytest.raises(RunStopped) as stopped:
            await app.run(desk, "ann")
        assert stopped.value.reason == reason
        assert not (await load_item(app.service.reader, "trip-ann")).open
        with pytest.raises(UsageError, match="trip-ann was answered before"):
            await answer(app.service, "trip-ann", a.Resume(), by="cid")


@virtual
async def test_of_two_words_the_first_counts_and_both_are_on_record(lab: Lab):
    desk = desk_of(lab)
    async with lab.app(desk, poll_ms=600_000) as app:
        await halted(lab, app, desk)
        stream, seen = command_stream("trip-ann"), (await app.service.history("trip-ann")).entry_seen
        first = Command("take_over", "bea", "mine")
        await lab.journal.commit(Post(stream, f"halted/{seen}", msgspec.json.encode(first)))
        with pytest.raises(UsageError, match="already answered by bea"):
            await answer(app.service, "trip-ann", a.Resume(), by="cid")
        said = [msgspec.json.decode(one.body, type=Command) for one in await lab.journal.entries(stream)]
        assert [(one.word, one.by, one.after) for one in said] == [("take_over", "bea", ""), ("reopen", "cid", "bea")]
        (row,) = await lab.journal.runs(run="trip-ann")
        assert row.reason == "handed_over: bea took it over: mine", "whose process died before it could apply that"


@virtual
async def test_answers_that_fit_something_else_are_refused_and_names_what_fits(lab: Lab):
    desk = desk_of(lab)
    async with lab.app(desk, poll_ms=600_000) as app:
        await halted(lab, app, desk)
        with pytest.raises(UsageError, match="does not take this answer") as refused:
            await answer(app.service, "trip-ann", a.ReplyAnswer("yes"), by="bea")
        assert "resume, take_over, abandon" in refused.value.known
        with pytest.raises(UsageError, match="has changed since it was shown"):
            await answer(app.service, "trip-ann", a.Resume(), by="bea", shown="0" * 32)
        await answer(app.service, "trip-ann", a.Delegate("cid"), by="bea")
        (item,) = await items(app.service.reader)
        assert item.to == "cid"


@virtual
async def test_several_are_answered_at_once(lab: Lab):
    desk = desk_of(lab)
    async with lab.app(desk, poll_ms=600_000) as app:
        await halted(lab, app, desk)
        lab.changed = False
        await halted(lab, app, desk, "bob")
        lab.changed = False
        words = [OneOf(one.item, a.Resume()) for one in await items(app.service.reader)]
        assert len(await answer_all(app.service, words, by="bea")) == 2
        assert await items(app.service.reader) == []


@virtual
async def test_a_rebuilt_listing_still_asks(lab: Lab):
    desk = desk_of(lab)
    async with lab.app(desk, poll_ms=600_000) as app:
        await halted(lab, app, desk)
        assert (await rebuild(app.engine)).changed == []
        assert len(await items(app.service.reader)) == 1


@virtual
async def test_a_rebuild_that_the_journal_breaks_off_keeps_no_run_and_calls_none_unreadable(lab: Lab):
    desk = desk_of(lab)
    async with lab.app(desk, poll_ms=600_000) as app:
        await halted(lab, app, desk)
        listed = (await app.service.row("trip-ann")).reason
        for call in range(1, 13):
            lab.journal.fail_next(call)
            with contextlib.suppress(JournalUnavailable):
                await rebuild(app.engine)
            lab.journal._faults.clear()
            await lab.pass_time(seconds=1)
            row = await app.service.row("trip-ann")
            assert (row.owner, row.reason) == (None, listed), call


@virtual
async def test_a_look_at_what_it_left_in_doubt_neither_ends_the_question_nor_loses_the_word(lab: Lab):
    desk = desk_of(lab)
    async with lab.app(desk, poll_ms=600_000) as app:
        await halted(lab, app, desk)
        await verify_stopped_run(app.engine, "trip-ann")
        assert len(await items(app.service.reader)) == 1
        lab.changed = False
        await lab.journal.commit(Post(command_stream("trip-ann"), "", msgspec.json.encode(Command("reopen", "bea"))))
        await verify_stopped_run(app.engine, "trip-ann")
        assert await items(app.service.reader) == []
        assert await app.run(desk, "ann") == "done"


@virtual
async def test_what_its_code_raised_is_an_item_with_the_lines_that_it_came_through(lab: Lab):
    def looked_up(name: str) -> str:
        raise ValueError(f"no customer {name}")

    @agent(run_id="trip-{name}")
    async def desk(run: Run, name: str) -> str:
        return looked_up(name)  # the line that is shown

    async with lab.app(desk, poll_ms=600_000) as app:
        with pytest.raises(ValueError, match="no customer ann"):
            await app.run(desk, "ann")
        (item,) = await items(app.service.reader)
        assert (item.kind, item.item, item.asks) == ("handoff", "trip-ann", "error: ValueError: no customer ann")
        about = await dossier(app.service, "trip-ann")
        assert (about.open, about.asks) == (True, "ValueError: no customer ann")
        outer, inner = about.frames
        assert outer.endswith("in desk: return looked_up(name)  # the line that is shown")
        assert inner.endswith('in looked_up: raise ValueError(f"no customer {name}")')
        assert inner.startswith(f"{__file__}:")
        assert (await rebuild(app.engine)).changed == []
        assert len(await items(app.service.reader)) == 1
    told = [entry for entry in timeline("trip-ann", lab.records("trip-ann")).entries if entry.step == "stopped"]
    assert [note.text for note in told[0].notes] == list(about.frames)


@pytest.mark.parametrize(
    ("word", "end"),
    [
        (a.TakeOver("mine"), "handed_over: bea"),
        (a.Abandon("too late"), "cancelled: too late"),
        ("cancel", "cancelled: c"),
    ],
)
@virtual
async def test_such_a_run_is_taken_over_or_called_off(lab: Lab, word: a.Answer | str, end: str):
    @agent(run_id="trip-{name}")
    async def desk(run: Run, name: str) -> str:
        raise ValueError("no such customer")

    async with lab.app(desk, poll_ms=600_000) as app:
        with pytest.raises(ValueError, match="no such customer"):
            await app.run(desk, "ann")
        if isinstance(word, str):
            await app.service.cancel("trip-ann", by="bea", why="c")
        else:
            await answer(app.service, "trip-ann", word, by="bea")
        assert await items(app.service.reader) == []
        (row,) = await lab.journal.runs(run="trip-ann")
        assert (row.status, row.reason.startswith(end)) == ("stopped", True), row.reason


@virtual
async def test_it_goes_on_when_a_person_says_so_and_the_question_is_over(lab: Lab):
    @agent(run_id="trip-{name}")
    async def desk(run: Run, name: str) -> str:
        if not lab.changed:
            raise ValueError("no such customer")
        return "done"

    async with lab.app(desk, poll_ms=600_000) as app:
        with pytest.raises(ValueError, match="no such customer"):
            await app.run(desk, "ann")
        lab.changed = True
        await answer(app.service, "trip-ann", a.Resume(), by="bea")
        assert await items(app.service.reader) == []
        assert await app.run(desk, "ann") == "done"


@virtual
async def test_what_is_on_record_of_an_exception_is_bounded(lab: Lab):
    def deeper(depth: int) -> None:
        if depth == 0:
            raise ValueError("x" * 100_000)
        deeper(depth - 1)

    @agent(run_id="trip-{name}")
    async def desk(run: Run, name: str) -> None:
        try:
            deeper(300)
        except ValueError as error:
            raise ExceptionGroup("many" * 1000, [ExceptionGroup("inner", [error])]) from error

    async with lab.app(desk, poll_ms=600_000) as app:
        with pytest.raises(ExceptionGroup):
            await app.run(desk, "ann")
    (stopped,) = lab.of("trip-ann", r.RunStoppedRecord)
    assert len(encode(stopped)) < 6000
    assert len(stopped.frames) == 8
    assert "the first of them: ValueError: xxx" in stopped.error


@virtual
async def test_a_run_of_the_system_itself_asks_nobody(lab: Lab):
    stopped = r.RunStoppedRecord(reason="error", error="x", at=1, up=1)
    assert stopped_change(stopped, "beforehand:notify", None).waits == b"[]"
    assert stopped_change(stopped, "desk", None).waits != b"[]"
