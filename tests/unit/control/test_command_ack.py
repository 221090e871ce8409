"""A command to a run that another process drives: its sender learns when it is applied, or that it is not yet."""

from typing import Any

import pytest

from beforehand import Run, agent, tool
from beforehand.control.command_ack import NOT_TAKEN, TAKEN, wait_until_applied
from beforehand.errors import Interrupted
from tests.unit.engine.lab import Lab, virtual

AT_MOST_S = 2


def busy(lab: Lab, writes: int = 1_000_000) -> Any:
    """An agent that writes ten times a second for as long as it may."""

    @tool
    async def beat(number: int) -> None:
        lab.sent.append(f"beat {number}")

    @agent()
    async def heart(run: Run, _: None) -> str:
        for number in range(writes):
            try:
                await beat(number)
            except Interrupted as message:
                return f"stopped by {message.sender}"
            await lab.pass_time(seconds=0.1)
        return "worn out"

    return heart


@virtual
async def test_once_an_order_was_taken_elsewhere_nothing_new_begins(lab: Lab):
    heart = busy(lab)
    async with lab.app(heart, poll_ms=1000) as owner, lab.app() as other:
        handle = owner.start(heart, None, run_id="heart")
        await lab.pass_time(seconds=3.5)
        told = await other.service.tell("heart", "stop", by="ann", stop=True)
        assert (told.at_once, told.elsewhere) == (False, True)
        before = len(lab.sent)
        taken = await wait_until_applied(other.engine, told)
        assert (taken.at_once, taken.elsewhere, taken.note) == (True, True, TAKEN)
        sent = len(lab.sent)
        assert sent > before, "until it was taken, the run went on"
        assert await handle.result() == "stopped by ann"
        assert len(lab.sent) == sent


@virtual
async def test_an_order_that_is_not_taken_in_time_is_told_as_that(lab: Lab):
    heart = busy(lab)
    async with lab.app(heart, poll_ms=600_000) as owner, lab.app() as other:
        handle = owner.start(heart, None, run_id="heart")
        await lab.pass_time(seconds=1)
        began = lab.clock.wall_ms()
        found = await wait_until_applied(other.engine, await other.service.cancel("heart", by="ann"))
        assert (found.at_once, found.note) == (False, NOT_TAKEN)
        assert lab.clock.wall_ms() - began == AT_MOST_S * 1000
        assert "may begin" in found.note
        await owner.engine.look()
        with pytest.raises(Exception, match="cancelled"):
            await handle.result()


@virtual
async def test_a_run_that_ends_before_it_takes_an_order_is_not_waited_for(lab: Lab):
    heart = busy(lab, writes=15)
    async with lab.app(heart, poll_ms=600_000) as owner, lab.app() as other:
        handle = owner.start(heart, None, run_id="heart")
        await lab.pass_time(seconds=1)
        found = await wait_until_applied(other.engine, await other.service.tell("heart", "too late", by="ann"))
        assert (found.at_once, found.note) == (False, "the run ended before it was taken")
        assert await handle.result() == "worn out"


@virtual
async def test_an_order_to_a_run_that_rests_holds_at_once(lab: Lab):
    heart = busy(lab)
    async with lab.app(heart) as app:
        handle = app.start(heart, None, run_id="heart")
        await lab.pass_time(seconds=1)
        paused = await app.service.pause("heart", by="ann")
        assert await wait_until_applied(app.engine, paused) == paused
        with pytest.raises(Exception, match="paused"):
            await handle.result()
