"""House-keeping goes on whatever one round raises, says what is wrong, and nothing is promised that it cannot do."""

import logging
from typing import Any

import pytest

from holdfast import Run, agent
from holdfast.engine.commands import command_post
from holdfast.engine.housekeeping import troubles_of
from holdfast.errors import JournalUnavailable, RunStopped
from holdfast.interfaces.heeding import TAKEN, until_taken
from holdfast.journal.port import Post
from holdfast.model import records as r
from tests.unit.engine.lab import Lab, virtual


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
            taken = await until_taken(other.engine, await other.service.cancel(name, by="ann"))
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
        instance = owner.engine.instances["a"]
        take, instance.stamp = instance.stamp, None  # type: ignore[assignment, method-assign]  # a bug: no command can be stamped
        found = await until_taken(other.engine, await other.service.cancel("a", by="ann"))
        assert not found.at_once
        assert "which drives the run, cannot take it (TypeError" in found.note
        assert "restart that process" in found.note
        (trouble,) = await troubles_of(lab.journal, owner.engine.worker.id)
        assert trouble.task.endswith("for run a")
        instance.stamp = take  # type: ignore[method-assign]  # mended
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
        await lab.journal.post(command_post("a", b'{"word":"cancel","by":null}'))
        await lab.journal.post(Post("pause/pay", "", b"7"))
        await other.service.pause_tool("mail", by="ann")
        for name in ("a", "b"):
            assert (await until_taken(other.engine, await other.service.cancel(name, by="ann"))).at_once
        await lab.pass_time(seconds=9)
        assert set(owner.engine.pauses) == {"pay", "mail"}
        for run in runs:
            with pytest.raises(RunStopped):
                await run.result()
    refused = [one.refused for one in lab.of("a", r.CommandApplied)]
    assert "cannot be read" in refused[0]
    assert refused[1:] == [""]


@virtual
async def test_a_journal_that_is_away_is_no_lasting_trouble(lab: Lab, caplog: pytest.LogCaptureFixture):
    idle = waiting(lab)
    async with lab.app(idle, poll_ms=1000) as owner:
        await lab.pass_time(seconds=1)
        lab.journal.fail_next(error=JournalUnavailable("the disk is away"))
        await lab.pass_time(seconds=30)
        assert "the disk is away" in caplog.text
        assert not owner.engine.house.failing()
