"""House-keeping goes on whatever one round raises, says what is wrong, and nothing is promised that it cannot do."""

import asyncio
import gc
import logging
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from beforehand import Beforehand, Run, agent
from beforehand.control.command_ack import TAKEN, wait_until_applied
from beforehand.engine.commands import command_post
from beforehand.errors import JournalUnavailable, RunStopped, RunSuspended
from beforehand.inspect.reader import troubles_of
from beforehand.journal.entry_codec import refused as set_aside_entries
from beforehand.journal.port import Post
from beforehand.model import records as r
from tests.unit.engine.lab import Lab, virtual

TASKS = 3
"""They renew the lease, take commands and pauses, and drive what is due."""


def waiting(lab: Lab) -> Any:
    """An agent that holds its process for an hour."""

    @agent(run_id="{name}")
    async def idle(run: Run, name: str) -> str:
        await lab.pass_time(hours=1)
        return "over"

    return idle


@virtual
async def test_a_process_takes_commands_after_a_round_that_raised_anything(lab: Lab, caplog: pytest.LogCaptureFixture):
    idle = waiting(lab)
    async with lab.app(idle, poll_ms=1000) as owner, lab.app() as other:
        runs = [owner.start(idle, name) for name in ("a", "b")]
        await lab.pass_time(seconds=5.5)
        lab.journal.fail_next(error=RuntimeError("a bug of ours"))
        await lab.pass_time(seconds=1)
        assert "a bug of ours" in caplog.text
        errors = [one for one in caplog.records if one.levelno >= logging.ERROR]
        assert errors[0].exc_info is not None, "a bug is logged with its traceback"
        for name in ("a", "b"):
            taken = await wait_until_applied(other.engine, await other.service.cancel(name, by="ann"))
            assert (taken.at_once, taken.note) == (True, TAKEN)
        for run in runs:
            with pytest.raises(RunStopped, match="cancelled"):
                await run.result()


@virtual
async def test_each_house_keeping_task_outlives_an_error_of_any_kind(lab: Lab):
    """Whatever call of the journal fails next, whichever task makes it: commands are heard and pauses are read."""
    idle = waiting(lab)
    async with lab.app(idle, recover=True, poll_ms=1000, recover_every_ms=3000) as owner, lab.app() as other:
        handle = owner.start(idle, "a")
        await lab.pass_time(seconds=1)
        for _ in range(60):
            lab.journal.fail_next(error=ZeroDivisionError("a bug of ours"))
            await lab.pass_time(milliseconds=777)
        lab.journal._faults.clear()
        await other.service.pause_tool("pay", by="ann")
        await lab.pass_time(seconds=9)
        assert owner.engine.pauses == {"pay": "paused by ann"}
        assert await troubles_of(lab.journal, owner.engine.worker.id) == []
        await other.service.cancel("a", by="ann")
        with pytest.raises(RunStopped):
            await handle.result()


@virtual
async def test_a_command_that_its_process_cannot_take_is_not_promised(lab: Lab):
    idle = waiting(lab)
    async with lab.app(idle, poll_ms=1000) as owner, lab.app() as other:
        handle = owner.start(idle, "a")
        await lab.pass_time(seconds=1)
        instance = owner.engine.active_runs["a"]
        take, instance.log.stamp = instance.log.stamp, None  # type: ignore[assignment, method-assign]  # a bug: no command can be stamped
        found = await wait_until_applied(other.engine, await other.service.cancel("a", by="ann"))
        assert not found.at_once
        assert "which drives the run, cannot take it (TypeError" in found.note
        assert "restart that process" in found.note
        (trouble,) = await troubles_of(lab.journal, owner.engine.worker.id)
        assert trouble.task.endswith("for run a")
        instance.log.stamp = take  # type: ignore[method-assign]  # mended
        await lab.pass_time(seconds=2)
        assert await troubles_of(lab.journal, owner.engine.worker.id) == []
        with pytest.raises(RunStopped, match="cancelled"):
            await handle.result()


@virtual
async def test_one_unreadable_command_keeps_no_other_from_being_applied(lab: Lab):
    idle = waiting(lab)
    async with lab.app(idle, poll_ms=1000) as owner, lab.app() as other:
        runs = [owner.start(idle, name) for name in ("a", "b")]
        await lab.pass_time(seconds=1)
        await lab.journal.commit(command_post("a", b'{"word":"cancel","by":null}'))
        await lab.journal.commit(Post("pause/pay", "", b"7"))
        await other.service.pause_tool("mail", by="ann")
        for name in ("a", "b"):
            assert (await wait_until_applied(other.engine, await other.service.cancel(name, by="ann"))).at_once
        await lab.pass_time(seconds=9)
        assert set(owner.engine.pauses) == {"pay", "mail"}
        for run in runs:
            with pytest.raises(RunStopped):
                await run.result()
    refused = [one.refused for one in lab.of("a", r.CommandApplied)]
    assert "cannot be read" in refused[0]
    assert refused[1:] == [""]


@virtual
async def test_an_unreadable_command_to_a_run_that_no_process_drives_is_set_aside_as_well(lab: Lab):
    @agent(run_id="{name}")
    async def desk(run: Run, name: str) -> object:
        return await run.ask("Go on?")

    async with lab.app(desk) as app:
        with pytest.raises(RunSuspended):
            await app.run(desk, "a")
        unreadable = await lab.journal.commit(command_post("a", b'{"word":"cancel","by":null}'))
        assert (await app.service.cancel("a", by="ann")).at_once
        assert [one.entry for one in await set_aside_entries(lab.journal)] == [unreadable.id]
    assert [bool(one.refused) for one in lab.of("a", r.CommandApplied)] == [True, False]


@virtual
async def test_a_journal_that_is_away_is_no_lasting_trouble(lab: Lab, caplog: pytest.LogCaptureFixture):
    idle = waiting(lab)
    async with lab.app(idle, poll_ms=1000) as owner:
        await lab.pass_time(seconds=1)
        lab.journal.fail_next(error=JournalUnavailable("the disk is away"))
        await lab.pass_time(seconds=30)
        assert "the disk is away" in caplog.text
        assert not owner.engine.housekeeping.failing()


def cancel_all(but: Any) -> int:
    """Cancel every task that keeps house, as code does that cancels all tasks of the event loop."""
    mine = [task for task in asyncio.all_tasks() if task.get_name().startswith("beforehand: ") and task not in but]
    for task in mine:
        task.cancel()
    return len(mine)


@virtual
async def test_a_house_keeping_task_that_is_cancelled_begins_again(lab: Lab, caplog: pytest.LogCaptureFixture):
    """Commands and pauses are taken, the lease is renewed, and what is due is found, after each was cancelled."""
    idle = waiting(lab)

    @agent(run_id="{name}")
    async def sleeps(run: Run, name: str) -> str:
        await run.sleep(timedelta(minutes=5))
        return name

    async with lab.app() as other:
        before = asyncio.all_tasks()
        async with lab.app(idle, sleeps, recover=True, poll_ms=1000, hold_ms=1000) as owner:
            handle = owner.start(idle, "a")
            with pytest.raises(RunSuspended):
                await owner.run(sleeps, "due")
            assert cancel_all(before) == TASKS
            await lab.pass_time(seconds=3)
            texts = [one.getMessage() for one in caplog.records if "was cancelled" in one.getMessage()]
            assert len(texts) == TASKS
            assert all(text.endswith("It was started again.") for text in texts)
            found = [one.task for one in await troubles_of(lab.journal, owner.engine.worker.id)]
            assert "the task that looks for commands and pauses was cancelled" in found
            assert len(found) == TASKS
            await lab.pass_time(minutes=6)
            assert await troubles_of(lab.journal, owner.engine.worker.id) == []
            assert owner.engine.lease_is_fresh(owner.engine.journal.clock().latest_ms), "the lease is renewed"
            assert lab.of("due", r.RunCompleted), "runs that are due are found"
            await other.service.pause_tool("pay", by="ann")
            await lab.pass_time(seconds=9)
            assert owner.engine.pauses == {"pay": "paused by ann"}
            await other.service.cancel("a", by="ann")
            with pytest.raises(RunStopped):
                await handle.result()


@virtual
async def test_a_house_keeping_task_that_is_cancelled_as_the_app_closes_ends(
    lab: Lab, caplog: pytest.LogCaptureFixture
):
    before = asyncio.all_tasks()
    async with lab.app(waiting(lab), recover=True):
        await lab.pass_time(seconds=3)
        assert cancel_all(before) == TASKS  # begins again in a second, and the app is closed before
    await lab.pass_time(seconds=10)
    assert cancel_all(before) == 0
    assert "was cancelled" not in caplog.text


def test_an_event_loop_that_ends_with_an_open_app_ends_its_tasks_in_silence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
):
    gc.collect()  # what earlier tests left behind belongs to them
    caplog.clear()

    async def main() -> None:
        await Beforehand(tmp_path / "desk.db").open()

    asyncio.run(main())
    gc.collect()
    assert [one.getMessage() for one in caplog.records if "cancelled" in one.getMessage()] == []
    assert "Task was destroyed" not in caplog.text


@virtual
async def test_a_task_that_files_how_a_call_ended_is_kept_when_it_is_cancelled(lab: Lab):
    filed: list[int] = []

    async def file() -> None:
        filed.append(1)
        if len(filed) < 3:
            raise JournalUnavailable("the disk is away")

    async with lab.app(poll_ms=1000) as app:
        before = asyncio.all_tasks()
        app.engine.insist(file)
        await asyncio.sleep(0)
        assert cancel_all(before) == 1
        await lab.pass_time(seconds=10)
        assert len(filed) == 3


@virtual
async def test_house_keeping_tasks_end_in_the_order_in_which_they_began(lab: Lab):
    """Else two simulations of one seed are different: what one of them writes at its end comes before the next one."""
    ended: list[int] = []

    async def work(number: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(number)

    async with lab.app(waiting(lab)) as app:
        for number in range(50):
            app.engine.housekeeping.keep(f"task {number}", partial(work, number))
        await lab.pass_time(seconds=1)
    assert ended == list(range(50))
