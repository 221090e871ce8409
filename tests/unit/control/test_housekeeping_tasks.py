"""Errands: what one meets keeps no other from being done, and no run from being looked for."""

import msgspec
import pytest

from beforehand import Run, agent, tool
from beforehand.engine.deferred import ArrivedAnswer, arrived_stream, awaited_stream
from beforehand.errors import Deferred, RunSuspended
from beforehand.journal.cells import read_hint
from beforehand.journal.port import Post
from beforehand.model.commands import DELIVERIES, AnswerNotice
from tests.unit.engine.lab import Lab, virtual


@tool
async def book(room: str) -> str:
    raise Deferred(key=f"B-{room}")


@agent(run_id="r-{room}", tools=[book])
async def stay(run: Run, room: str) -> str:
    return await book(room)


async def cut_short(lab: Lab, key: str, *, stored: bool = True) -> None:
    """What a deliverer leaves that died before it said anything to the run."""
    await lab.journal.commit(Post(DELIVERIES, "", msgspec.json.encode(AnswerNotice(key, "m1"))))
    if stored:
        body = msgspec.json.encode(ArrivedAnswer("m1", result=msgspec.Raw(b'"yes"')))
        await lab.journal.commit(Post(arrived_stream(key), "m1", body))


@virtual
async def test_an_announcement_without_a_message_holds_nothing_up_and_is_given_up_after_an_hour(lab: Lab):
    async with lab.app(stay, recover=True) as app:
        for room in "12":
            with pytest.raises(RunSuspended):
                await app.run(stay, room)
        await cut_short(lab, "B-0", stored=False)
        await cut_short(lab, "B-1")
        await lab.pass_time(seconds=20)
        assert (await app.service.row("r-1")).status == "completed"
        await lab.pass_time(hours=2)
        await cut_short(lab, "B-2")
        await lab.pass_time(seconds=20)
        assert (await app.service.row("r-2")).status == "completed"
    mark = await read_hint(lab.journal, f"cursor/{DELIVERIES}")
    assert mark is not None
    assert int(mark) == (await lab.journal.entries(DELIVERIES))[-1].id


@virtual
async def test_a_message_for_a_run_that_is_not_there_is_passed_over(lab: Lab):
    async with lab.app(stay, recover=True) as app:
        with pytest.raises(RunSuspended):
            await app.run(stay, "1")
        await lab.journal.commit(Post(awaited_stream("B-9"), "owner", b'{"operation":"gone/book#1","number":1}'))
        await cut_short(lab, "B-9")
        await cut_short(lab, "B-1")
        await lab.pass_time(seconds=20)
        assert (await app.service.row("r-1")).status == "completed"
