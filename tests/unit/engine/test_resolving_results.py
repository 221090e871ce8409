"""A person who says that it happened says also what the agent's code needs to go on."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import pytest

from beforehand import Beforehand, Run, agent, tool
from beforehand.control.service import ControlService
from beforehand.engine.engine import Engine
from beforehand.engine.environment import system_environment
from beforehand.engine.settings import Settings
from beforehand.errors import Ambiguous, RunStopped, RunSuspended, UsageError
from beforehand.journal.host import this_process
from beforehand.journal.sqlite.journal import SqliteJournal


@tool
async def book(seat: str) -> str:
    raise Ambiguous(f"no answer about {seat}")


@tool
async def note(text: str) -> None:
    raise Ambiguous(f"no answer about {text}")


@agent(run_id="trip-{seat}")
async def trip(run: Run, seat: str) -> str:
    code = await book(seat)
    return code.upper()


@agent(run_id="note-{text}")
async def noted(run: Run, text: str) -> str:
    await note(text)
    return "noted"


def test_happened_asks_for_the_result_that_the_code_goes_on_with(tmp_path):
    async def main():
        async with Beforehand(tmp_path / "j.db", agents=[trip, noted]) as app:
            with pytest.raises(RunSuspended):
                await app.run(trip, "14a")
            with pytest.raises(UsageError, match="happened --result JSON"):
                await app.service.resolve("trip-14a/book#1", "happened", by="ada")
            await app.service.resolve("trip-14a/book#1", "happened", by="ada", result="bh-1")
            assert await app.run(trip, "14a") == "BH-1"
            with pytest.raises(RunSuspended):
                await app.run(noted, "x")
            await app.service.resolve("note-x/note#1", "happened", by="ada")
            assert await app.run(noted, "x") == "noted"

    asyncio.run(main())


def test_the_synchronous_face_resolves_too(tmp_path):
    with Beforehand(tmp_path / "j.db", agents=[noted]) as app:
        with pytest.raises(RunSuspended) as caught:
            app.run(noted, "y")
        assert "resolve note-y/note#1 --did-not-happen --retry" in str(caught.value)
        app.wait(app.service.resolve("note-y/note#1", "happened", by="ada"))
        assert app.run(noted, "y") == "noted"


@contextlib.asynccontextmanager
async def service_without_code(path) -> AsyncGenerator[ControlService]:
    """What `beforehand resolve` has where no agent's code can be found."""
    engine = Engine(SqliteJournal(path), system_environment(), Settings(), {}, {}, this_process)
    await engine.open()
    try:
        yield ControlService(engine)
    finally:
        await engine.close()


def test_a_result_of_another_type_is_refused_with_what_the_tool_returns(tmp_path):
    async def main():
        async with Beforehand(tmp_path / "j.db", agents=[trip]) as app:
            with pytest.raises(RunSuspended):
                await app.run(trip, "14a")
            with pytest.raises(UsageError, match=r"17 is not what book returns") as refused:
                await app.service.resolve("trip-14a/book#1", "happened", by="ada", result=17)
            assert "str" in refused.value.known
            assert (await app.service.operation("trip-14a/book#1"))[1].phase == "unknown", "nothing was recorded"
            await app.service.resolve("trip-14a/book#1", "happened", by="ada", result="bh-1")
            assert await app.run(trip, "14a") == "BH-1"

    asyncio.run(main())


def test_what_cannot_be_checked_now_is_checked_when_the_code_is_here_and_may_be_said_again(tmp_path, caplog):
    async def main():
        async with Beforehand(tmp_path / "j.db", agents=[trip]) as app:
            with pytest.raises(RunSuspended):
                await app.run(trip, "14a")
        async with service_without_code(tmp_path / "j.db") as service:
            said = await service.resolve("trip-14a/book#1", "happened", by="ada", result=17)
            assert (said.at_once, said.lacks) == (False, "book")
        async with Beforehand(tmp_path / "j.db", agents=[trip], recover=False) as app:
            with pytest.raises(RunSuspended, match="trip-14a/book#1"):
                await app.run(trip, "14a")
            assert "17 is not what book returns" in caplog.text
            assert (await app.service.operation("trip-14a/book#1"))[1].phase == "unknown", "nothing is lost"
        async with service_without_code(tmp_path / "j.db") as service:
            await service.resolve("trip-14a/book#1", "happened", by="ada", result="bh-1")
            assert (await service.row("trip-14a")).due_ms is not None, "a worker picks it up"
        async with Beforehand(tmp_path / "j.db", agents=[trip], recover=False) as app:
            assert await app.run(trip, "14a") == "BH-1"

    asyncio.run(main())


def test_orders_after_one_that_waits_for_the_code_are_applied_with_it(tmp_path):
    async def main():
        async with Beforehand(tmp_path / "j.db", agents=[trip]) as app:
            with pytest.raises(RunSuspended):
                await app.run(trip, "14a")
        async with service_without_code(tmp_path / "j.db") as service:
            await service.resolve("trip-14a/book#1", "happened", by="ada", result="bh-1")
            with pytest.raises(UsageError, match="already answered by ada"):
                await service.resolve("trip-14a/book#1", "did_not_happen", by="bea")
            assert not (await service.cancel("trip-14a", by="bea")).at_once
        async with Beforehand(tmp_path / "j.db", agents=[trip], recover=False) as app:
            with pytest.raises(RunStopped, match="cancelled"):
                await app.run(trip, "14a")
            operation = (await app.service.operation("trip-14a/book#1"))[1]
            assert (operation.phase, bytes(operation.settlement.result)) == ("succeeded", b'"bh-1"')

    asyncio.run(main())
