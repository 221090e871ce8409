"""A person who says that it happened says also what the agent's code needs to go on."""

import asyncio

import pytest

from holdfast import Holdfast, Run, agent, tool
from holdfast.errors import Ambiguous, RunSuspended, UsageError


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
        async with Holdfast(tmp_path / "j.db", agents=[trip, noted]) as app:
            with pytest.raises(RunSuspended):
                await app.run(trip, "14a")
            with pytest.raises(UsageError, match="--happened --result JSON"):
                await app.service.resolve("trip-14a/book#1", "happened", by="ada")
            await app.service.resolve("trip-14a/book#1", "happened", by="ada", result="hf-1")
            assert await app.run(trip, "14a") == "HF-1"
            with pytest.raises(RunSuspended):
                await app.run(noted, "x")
            await app.service.resolve("note-x/note#1", "happened", by="ada")
            assert await app.run(noted, "x") == "noted"

    asyncio.run(main())


def test_the_synchronous_face_resolves_too(tmp_path):
    with Holdfast(tmp_path / "j.db", agents=[noted]) as app:
        with pytest.raises(RunSuspended) as caught:
            app.run(noted, "y")
        assert "holdfast resolve note-y/note#1 --happened | --did-not-happen" in str(caught.value)
        app.wait(app.service.resolve("note-y/note#1", "happened", by="ada"))
        assert app.run(noted, "y") == "noted"
